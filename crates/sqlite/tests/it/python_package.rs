//! The Python package of `packaging/python`: built as a wheel, installed, and used by itself and by
//! SQLAlchemy, Django and Datasette where they are installed.
//!
//! `TIERSMITH_PYTHON` names one more Python to try, which `./check` makes with these libraries.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::programs::{library, run};

const TESTS: [&str; 8] = [
    "attaches",
    "says_what_is_wrong",
    "quotes_names",
    "needs_an_sqlite_that_loads_extensions",
    "refuses_a_forked_child",
    "sqlalchemy",
    "django",
    "datasette",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The Pythons of this machine, each once.
fn pythons() -> BTreeSet<PathBuf> {
    let named = std::env::var("TIERSMITH_PYTHON").ok();
    let names = ["python3", "/usr/bin/python3"].map(str::to_owned).into_iter().chain(named);
    let executable = |name: String| {
        let done =
            Command::new(name).args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
        done.status.success().then(|| PathBuf::from(String::from_utf8_lossy(&done.stdout).trim()))
    };
    names.filter_map(executable).collect()
}

#[test]
fn the_python_package_works_as_it_is_installed_from_its_wheel() {
    let Some(library) = library() else { return };
    let pythons = pythons();
    if pythons.is_empty() {
        return eprintln!("skipped: the Python package, because there is no python3");
    }
    let dir = tempfile::tempdir().unwrap();
    let build = root().join("packaging/python/build");
    let wheel = run(Command::new("python3")
        .arg(build)
        .arg(dir.path())
        .arg(&library)
        .env_remove("PYTHONPATH"));
    for (number, python) in pythons.iter().enumerate() {
        let site = dir.path().join(format!("site{number}"));
        let pip = Command::new(python)
            .args(["-m", "pip", "-q", "install", "--no-deps", "--no-index", "--target"])
            .arg(&site)
            .arg(wheel.trim())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&pip.stderr).into_owned();
        if !pip.status.success() && said.contains("No module named pip") {
            // What pip would do, without its look at the wheel's tag.
            run(Command::new(python).args(["-m", "zipfile", "-e", wheel.trim()]).arg(&site));
        } else {
            assert!(pip.status.success(), "{}: {said}", python.display());
        }
        for test in TESTS {
            let place = dir.path().join(format!("{test}{number}"));
            std::fs::create_dir(&place).unwrap();
            let said = run(Command::new(python)
                .arg(root().join("crates/sqlite/tests/it/support/python_package.py"))
                .arg(test)
                .arg(&place)
                .env("PYTHONPATH", &site)
                .env("PYTHONDONTWRITEBYTECODE", "1"));
            let said = said.trim();
            assert!(said == "good" || said.starts_with("skipped: "), "{test}: {said}");
            if said != "good" {
                eprintln!("{said}");
            }
        }
    }
}
