//! A test that watches its whole process, or changes it, runs in a process of its own.

use std::process::Command;

/// Set in such a process.
const ALONE: &str = "TIERSMITH_TEST_ALONE";

/// Whether this process has only the test of this full name. If not, runs the test in one that has,
/// and fails if it fails there.
pub(crate) fn alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(ALONE, "1");
    let ran = command.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    print!("{said}");
    eprint!("{}", String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{test} failed in a process of its own: {}", ran.status);
    assert!(said.contains("1 passed"), "there is no test {test}");
    false
}
