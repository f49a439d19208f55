//! Two SQLite libraries in one process, Python's own and a copy under another path, each of which
//! loads the extension (`support/two_libraries.py`): each is served with its own functions,
//! whichever was first.

use crate::programs::{library, program, run};
use std::path::Path;
use std::process::Command;

/// Where Debian's libraries are, on the processors it has.
const SQLITE: [&str; 2] =
    ["/usr/lib/x86_64-linux-gnu/libsqlite3.so.0", "/usr/lib/aarch64-linux-gnu/libsqlite3.so.0"];

fn served(order: &str) {
    let (Some(library), Some(python)) = (library(), program("/usr/bin/python3")) else { return };
    let Some(sqlite) = SQLITE.into_iter().find(|path| Path::new(path).exists()) else {
        eprintln!("skipped: two SQLite libraries, because none of {SQLITE:?} is installed");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/two_libraries.py");
    let mut command = Command::new(python);
    command.args([script, order]).arg(library.with_extension("")).arg(dir.path()).arg(sqlite);
    assert!(run(&mut command).starts_with("done"));
}

#[test]
fn the_library_that_comes_second_is_served_by_its_own_functions() {
    served("standard_first");
    served("copy_first");
}
