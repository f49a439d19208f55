//! Finding a server's programs: on PATH, and where Debian puts what is not meant to be called by
//! hand.
//!
//! **Deliberately absent**: installing anything.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Product;
use crate::error::{Error, Result};
use crate::installed::{directories, is_program};

/// The programs of a product, found.
#[derive(Clone, Debug)]
pub struct Programs {
    found: Vec<(&'static str, PathBuf)>,
    version: String,
}

impl Programs {
    /// A program, if it is there.
    pub fn get(&self, name: &str) -> Option<&Path> {
        self.found.iter().find(|(known, _)| *known == name).map(|(_, path)| path.as_path())
    }

    /// A program without which there would be no [`Programs`].
    pub(crate) fn path(&self, name: &str) -> &Path {
        self.get(name).unwrap_or(Path::new("/nonexistent"))
    }

    /// The server's version, digits and dots; behind it the program's name if it is a fork's.
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// Looks for the programs of a product.
///
/// # Errors
/// What is missing, and which package has it.
pub fn find(product: &dyn Product) -> Result<Programs> {
    find_in(product, &directories(product.places()))
}

/// Looks for the programs of a product in these directories alone.
///
/// # Errors
/// What is missing, and which package has it.
pub fn find_in(product: &dyn Product, directories: &[PathBuf]) -> Result<Programs> {
    let file =
        |name: &str| directories.iter().map(|dir| dir.join(name)).find(|path| is_program(path));
    let of_fork =
        |name: &str| product.fork().iter().find(|(own, _)| *own == name).map(|(_, fork)| *fork);
    // All are of one of the two.
    let is_fork = product.is_fork()
        || product
            .needed()
            .iter()
            .any(|name| file(name).is_none() && of_fork(name).and_then(file).is_some());
    let called = |name: &'static str| match is_fork {
        true => of_fork(name).unwrap_or(name),
        false => name,
    };
    let look = |name: &'static str| file(called(name)).map(|path| (name, path));
    let missing = |name: &'static str, reason: String| Error::Target {
        what: format!("looking for {}", product.title()),
        database: called(name).into(),
        reason,
    };
    let mut found = Vec::new();
    for name in product.needed() {
        if let Some(own) = product.own_program() {
            found.push((*name, own.map_err(|reason| missing(name, reason))?));
            continue;
        }
        let found_it = look(name).ok_or_else(|| {
            let reason = format!(
                "the program is neither on PATH nor in {}; on Debian: apt-get install {}",
                product.places().join(", "),
                product.packages()
            );
            missing(name, reason)
        });
        found.push(found_it?);
    }
    found.extend(product.useful().iter().filter_map(|name| look(name)));
    let mut version = found.first().map(|(_, path)| version_of(path)).unwrap_or_default();
    if let (true, Some(fork)) = (is_fork, product.needed().first().and_then(|name| of_fork(name))) {
        version = format!("{version} ({fork})");
    }
    Ok(Programs { found, version })
}

/// The first word with a digit first and a dot in it, of what `--version` prints.
pub(crate) fn version_of(program: &Path) -> String {
    let printed = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    let printed = printed
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    version_in(&printed).unwrap_or_else(|| {
        program
            .file_name()
            .and_then(OsStr::to_str)
            .map(|name| format!("{name}, version unknown"))
            .unwrap_or_default()
    })
}

fn version_in(printed: &str) -> Option<String> {
    let word = printed
        .split([' ', '=', '-', '\n'])
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))?;
    Some(word.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_servers_print() {
        for (printed, version) in [
            ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", "15.18"),
            (
                "mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian \
                 12)",
                "10.11.19",
            ),
            (
                "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 \
                 build=ae4d7c971a948f0",
                "7.0.15",
            ),
        ] {
            let word = printed.replace("v=", "");
            assert_eq!(version_in(&word).as_deref(), Some(version), "{printed}");
            assert_eq!(version_in(printed).as_deref(), Some(version), "{printed}");
        }
        for (printed, version) in [
            ("fio-3.33\n", "3.33"),
            ("sysbench 1.0.20\n", "1.0.20"),
            ("redis-benchmark 7.0.15", "7.0.15"),
            ("memtier_benchmark v=2.1.0 sha=2f74d611:0 bits=64 libevent=2.1.12-stable", "2.1.0"),
        ] {
            assert_eq!(version_in(&printed.replace("v=", "")).as_deref(), Some(version));
            assert_eq!(version_in(printed).as_deref(), Some(version), "{printed}");
        }
        assert_eq!(version_in("no version"), None);
    }

    #[test]
    fn a_fork_is_found_by_its_own_names_and_named_in_the_version() {
        let dir = tempfile::tempdir().unwrap();
        // Written by another process: a program that this one has open for writing at a moment when
        // it starts another cannot be started.
        let program = |name: &str, printed: &str| {
            let path = dir.path().join(name).display().to_string();
            let script = "printf '#!/bin/sh\\necho \"%s\"\\n' \"$2\" > \"$1\" && chmod 755 \"$1\"";
            let wrote = Command::new("sh")
                .args(["-c", script, "sh", &path, printed])
                .stdin(Stdio::null())
                .status();
            assert!(wrote.unwrap().success());
        };
        let redis = super::super::product("redis").unwrap();
        let find = || find_in(redis, &[dir.path().to_path_buf()]);
        assert!(find().unwrap_err().to_string().contains("apt-get install redis-server"));
        program("valkey-server", "Valkey server v=8.0.1 sha=00000000:0 bits=64");
        program("valkey-benchmark", "");
        let found = find().unwrap();
        assert_eq!(found.version(), "8.0.1 (valkey-server)");
        assert_eq!(
            found.get("redis-benchmark"),
            Some(dir.path().join("valkey-benchmark").as_path())
        );
        program("redis-server", "Redis server v=7.0.15 sha=00000000:0");
        let found = find().unwrap();
        assert_eq!((found.version(), found.get("redis-benchmark")), ("7.0.15", None));
    }
}
