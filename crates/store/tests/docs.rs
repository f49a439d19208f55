//! What the documents say of the code is so: named tests and files exist, the example in the README is the one that is compiled.
//!
//! Deliberately absent: whether a sentence is true. That is for readers.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The names in backquotes in a text.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Every test of the crates.
fn tests() -> BTreeSet<String> {
    fn read(dir: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let mut marked = false;
                for line in fs::read_to_string(&path).unwrap().lines().map(str::trim) {
                    if line == "#[test]" {
                        marked = true;
                    } else if marked && let Some(rest) = line.strip_prefix("fn ") {
                        let end =
                            rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
                        found.insert(rest[..end].to_owned());
                        marked = false;
                    }
                }
            }
        }
    }
    let mut found = BTreeSet::new();
    for part in fs::read_dir(root().join("crates")).unwrap() {
        for folder in ["src", "tests"] {
            let dir = part.as_ref().unwrap().path().join(folder);
            if dir.is_dir() {
                read(&dir, &mut found);
            }
        }
    }
    found
}

/// The numbered invariants of `docs/crash-safety.md`: number, text, and the tests that pin it.
fn invariants(document: &str) -> Vec<(u32, String, Vec<String>)> {
    let mut found = Vec::new();
    for paragraph in document.split("\n\n") {
        let Some(rest) = paragraph.trim_start().strip_prefix("**C") else { continue };
        let Some((number, said)) = rest.split_once('.') else { continue };
        let Ok(number) = number.parse() else { continue };
        let (said, pins) = said.split_once("Pinned by:").unwrap_or((said, ""));
        found.push((number, said.to_owned(), quoted(pins).iter().map(|s| s.to_string()).collect()));
    }
    found
}

#[test]
fn every_invariant_of_crash_safety_is_pinned_by_tests_that_exist() {
    let document = text("docs/crash-safety.md");
    let tests = tests();
    let invariants = invariants(&document);
    let mut faults = Vec::new();
    for (expected, (number, _, pins)) in (1..).zip(&invariants) {
        if *number != expected {
            faults.push(format!("C{number} stands where C{expected} should"));
        }
        if pins.is_empty() {
            faults.push(format!("C{number} names no test"));
        }
        let missing = pins.iter().filter(|pin| !tests.contains(*pin));
        faults.extend(missing.map(|pin| format!("C{number}: there is no test `{pin}`")));
    }
    assert!(invariants.len() >= 20, "{} invariants were found", invariants.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_planted_bug_is_in_the_table_of_crash_safety() {
    let document = text("docs/crash-safety.md");
    let named: BTreeSet<&str> = quoted(&document).into_iter().collect();
    let missing: Vec<String> = tiersmith_store::Planted::ALL
        .iter()
        .map(|bug| format!("{bug:?}"))
        .filter(|bug| !named.contains(bug.as_str()))
        .collect();
    assert!(missing.is_empty(), "not in docs/crash-safety.md: {}", missing.join(", "));
}

#[test]
fn the_example_in_the_readme_is_the_one_that_is_compiled() {
    let library = text("crates/store/src/lib.rs");
    let compiled: Vec<&str> = library
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .skip_while(|line| *line != "```")
        .skip(1)
        .take_while(|line| *line != "```")
        .filter(|line| !line.starts_with("# "))
        .collect();
    let readme = text("README.md");
    let (_, rest) = readme.split_once("```rust\n").expect("the README has an example in Rust");
    let shown: Vec<&str> = rest.lines().take_while(|line| *line != "```").collect();
    assert_eq!(shown, compiled);
}

#[test]
fn every_file_the_documents_name_exists() {
    let mut faults = Vec::new();
    let mut documents = vec!["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
        .into_iter()
        .map(PathBuf::from)
        .collect::<Vec<_>>();
    for folder in ["docs", "docs/decisions", "docs/guide"] {
        documents.extend(fs::read_dir(root().join(folder)).unwrap().filter_map(|entry| {
            let path = entry.unwrap().path();
            path.extension()
                .is_some_and(|e| e == "md")
                .then(|| path.strip_prefix(root()).unwrap().to_path_buf())
        }));
    }
    for document in documents {
        let text = text(document.to_str().unwrap());
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let target = root().join(&document).parent().unwrap().join(link.split('#').next().unwrap());
            if !target.exists() {
                faults.push(format!("{}: the link {link} leads nowhere", document.display()));
            }
        }
        for name in quoted(&text) {
            let a_path = ["crates/", "docs/", "examples/", "benches/", ".ci/"]
                .iter()
                .any(|start| name.starts_with(start));
            if a_path
                && !(name.contains(['*', ' ', '<']) || name.contains("NNNN"))
                && !root().join(name).exists()
            {
                faults.push(format!("{}: there is no {name}", document.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn architecture_is_short_enough_to_be_read_and_long_enough_to_help() {
    let lines = text("ARCHITECTURE.md").lines().count();
    assert!((250..=350).contains(&lines), "ARCHITECTURE.md has {lines} lines");
}
