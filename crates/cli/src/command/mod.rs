//! The commands, and what their outputs share.

mod awr;
mod check;
mod detach;
mod home;
mod probe;
mod status;
mod study;

use std::io::Write;
use std::path::Path;

use clap::Subcommand;
use serde::Serialize;
use tiersmith_lab::place::Leftovers;

use crate::Outcome;
use crate::error::{Error, Result};

/// Every command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Probe(probe::Probe),
    Study(study::Study),
    #[command(subcommand)]
    Awr(awr::Awr),
    Status(status::Status),
    Check(check::Check),
    Detach(detach::Detach),
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(&self, leftovers: &Leftovers) -> Result<Outcome> {
        match self {
            Command::Probe(probe) => probe.run(leftovers),
            Command::Study(study) => study.run(leftovers),
            Command::Awr(awr) => awr.run(),
            Command::Status(status) => status.run(),
            Command::Check(check) => check.run(),
            Command::Detach(detach) => detach.run(),
        }
    }
}

/// Prints on standard output. A reader that went away (`| head`) is no error.
fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::Io { what: "write", path: "standard output".into(), source: e })
        }
        _ => Ok(()),
    }
}

/// Prints JSON on standard output.
fn print_json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Error::Usage(format!("the result cannot be written as JSON: {e}")))?;
    print(&format!("{text}\n"))
}

/// Writes a file the user asked for.
fn write_file(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|source| Error::Io { what: "write", path: path.into(), source })
}
