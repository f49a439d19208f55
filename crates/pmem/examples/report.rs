//! Prints what was found for a path: `cargo run --example report -- PATH [emulate|volatile]`.

#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

use std::path::Path;
use std::process::ExitCode;

use tiersmith_pmem::{Access, Mapping, OpenOptions};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let access = match arguments.get(1).map(String::as_str) {
        None => Access::Dax,
        Some("emulate") => Access::Emulated,
        Some("volatile") => Access::Volatile,
        Some(other) => {
            eprintln!("{other:?} is not an access; give `emulate`, `volatile` or nothing");
            return ExitCode::from(2);
        }
    };
    let Some(path) = arguments.first() else {
        eprintln!("usage: report PATH [emulate|volatile]");
        return ExitCode::from(2);
    };
    // The whole backing, nothing allocated: looking changes nothing.
    let options = OpenOptions { preallocate: false, ..OpenOptions::new(access, 0) };
    match Mapping::open(Path::new(path), &options) {
        Ok(mapping) => {
            println!("{}", mapping.report());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
