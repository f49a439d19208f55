//! The loadable extension that was built with the tests, and the installed programs that load it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The library that was built with this test, or why there is none.
pub(crate) fn library() -> Option<PathBuf> {
    let exe = std::env::current_exe().unwrap();
    let deps = exe.parent().unwrap();
    let found = [deps, deps.parent().unwrap()]
        .into_iter()
        .map(|dir| dir.join("libtiersmith_sqlite.so"))
        .find(|library| library.exists());
    if found.is_none() {
        eprintln!(
            "skipped: the extension, because there is no libtiersmith_sqlite.so in {}: cargo build \
             -p tiersmith-sqlite makes it",
            deps.display()
        );
    }
    found
}

/// The program at this path, if it is installed.
pub(crate) fn program(path: &'static str) -> Option<&'static Path> {
    let path = Path::new(path);
    if !path.exists() {
        eprintln!("skipped: the extension in {}, because it is not installed", path.display());
    }
    path.exists().then_some(path)
}

/// Runs a program to a good end; what it printed.
pub(crate) fn run(command: &mut Command) -> String {
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    said
}
