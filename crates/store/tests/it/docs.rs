//! What the documents say of the code is so: named tests, files and headings exist, the example of
//! the guide is compiled, the first page is short, and no document says what nobody says.
//!
//! Deliberately absent: whether a sentence is true. That is for readers.

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
                        let end = rest
                            .find(|c: char| !(c.is_alphanumeric() || c == '_'))
                            .unwrap_or(rest.len());
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

/// The lines of `docs/security.md` that say what holds: each begins a list entry, and its tests are
/// named at its end. What is not defended has none.
#[test]
fn every_line_of_the_threat_model_names_tests_that_exist() {
    let document = text("docs/security.md");
    let (defended, not_defended) = document.split_once("## What is not defended").unwrap();
    assert!(not_defended.lines().any(|line| line.starts_with("- ")));
    let tests = tests();
    let mut faults = Vec::new();
    let entries: Vec<&str> = defended.split("\n- ").skip(1).collect();
    for entry in &entries {
        let said = entry.lines().next().unwrap_or_default();
        let Some((_, named)) = entry.rsplit_once("Test") else {
            faults.push(format!("no test: {said}"));
            continue;
        };
        let named = quoted(named.split("\n\n").next().unwrap_or_default());
        if named.is_empty() {
            faults.push(format!("no test: {said}"));
        }
        let missing = named.into_iter().filter(|name| !tests.contains(*name));
        faults.extend(missing.map(|name| format!("there is no test `{name}`: {said}")));
    }
    assert!(entries.len() >= 30, "{} lines were found", entries.len());
    assert!(faults.is_empty(), "docs/security.md:\n{}", faults.join("\n"));
}

#[test]
fn every_planted_bug_is_in_the_table_of_crash_safety() {
    let document = text("docs/crash-safety.md");
    let named: BTreeSet<&str> = quoted(&document).into_iter().collect();
    use tiersmith_store::Planted;
    let lists = [
        &Planted::ALL[..],
        &Planted::ON_SECTORS,
        &Planted::AT_REST,
        &Planted::TAILS,
        &Planted::ON_FLASH,
        &Planted::EPHEMERAL,
    ];
    let missing: Vec<String> = lists
        .concat()
        .iter()
        .map(|bug| format!("{bug:?}"))
        .filter(|bug| !named.contains(bug.as_str()))
        .collect();
    assert!(missing.is_empty(), "not in docs/crash-safety.md: {}", missing.join(", "));
}

#[test]
fn the_example_in_the_guide_is_the_one_that_is_compiled() {
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
    let guide = text("docs/guide/rust.md");
    let (_, rest) = guide.split_once("```rust\n").expect("the guide has an example in Rust");
    let shown: Vec<&str> = rest.lines().take_while(|line| *line != "```").collect();
    assert_eq!(shown, compiled);
}

/// Every Markdown file of the project, relative to the root.
fn documents() -> Vec<String> {
    let mut found = Vec::new();
    for folder in ["", "docs", "docs/decisions", "docs/guide", "fuzz", "results"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") {
                found.push(Path::new(folder).join(name).to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// What a document links to: in the text, and in definitions (`[name]: target`).
fn links(text: &str) -> Vec<&str> {
    let definition = |line: &'_ str| line.starts_with('[').then(|| line.find("]: ")).flatten();
    let defined = text.lines().filter_map(|line| definition(line).map(|at| &line[at + 3..]));
    let inline = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    inline.chain(defined).filter(|link| !link.contains("://")).collect()
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| -> String {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_file_and_heading_the_documents_name_exists() {
    let mut faults = Vec::new();
    for document in documents() {
        let text = text(&document);
        for link in links(&text) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = root().join(&document).parent().unwrap().join(file);
            let target = if file.is_empty() { root().join(&document) } else { target };
            if !target.exists() {
                faults.push(format!("{document}: the link {link} leads nowhere"));
            } else if !anchor.is_empty()
                && !anchors(&fs::read_to_string(target).unwrap()).contains(anchor)
            {
                faults.push(format!("{document}: the link {link} names no heading"));
            }
        }
        for name in quoted(&text) {
            let a_path = ["crates/", "docs/", "examples/", "benches/", "results/", ".ci/"]
                .iter()
                .any(|start| name.starts_with(start));
            if a_path
                && !(name.contains(['*', ' ', '<']) || name.contains("NNNN"))
                && !root().join(name).exists()
            {
                faults.push(format!("{document}: there is no {name}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Lines of a document that people wrote: with their numbers, without blocks of generated tables.
fn written(text: &str) -> Vec<(usize, &str)> {
    let mut generated = false;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        generated = (generated || line.starts_with("<!-- results: "))
            && !line.starts_with("<!-- end of results");
        if !generated {
            lines.push((number, line));
        }
    }
    lines
}

#[test]
fn documents_keep_the_right_margin() {
    let mut faults = Vec::new();
    for document in documents() {
        let text = text(&document);
        // A line of one word, such as the name of a test, cannot be broken.
        let too_long = written(&text)
            .into_iter()
            .filter(|(_, line)| line.chars().count() > 100 && line.trim().contains(' '));
        faults.extend(too_long.map(|(number, _)| format!("{document}:{number}")));
    }
    assert!(faults.is_empty(), "lines of more than 100 columns:\n{}", faults.join("\n"));
}

#[test]
fn no_document_or_help_text_says_what_nobody_says() {
    const PHRASES: [&str; 7] =
        ["mended", "to be had", "comes in", "so many", "is said", "not told", "of no use"];
    let mut faults = Vec::new();
    let scripts = ["check", "study"].map(str::to_owned);
    for document in documents().into_iter().chain(scripts) {
        // A phrase may go on in the next line.
        let words = text(&document).to_lowercase();
        let words: Vec<&str> = words.split_whitespace().collect();
        let words = words.join(" ");
        let said = PHRASES.iter().filter(|phrase| words.contains(**phrase));
        faults.extend(said.map(|phrase| format!("{document}: \"{phrase}\"")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_readme_is_one_screen_that_answers_and_one_that_shows() {
    let readme = text("README.md");
    assert!(readme.lines().count() <= 90, "README.md has {} lines", readme.lines().count());
    let first: Vec<&str> = readme.lines().take(40).collect();
    for answer in ["For whom", "How it works", "What it costs", "What it is not"] {
        let found = first.iter().any(|line| line.contains(answer));
        assert!(found, "the first 40 lines of README.md do not answer: {answer}");
    }
}

#[test]
fn architecture_is_short_enough_to_be_read_and_long_enough_to_help() {
    let lines = text("ARCHITECTURE.md").lines().count();
    assert!((250..=350).contains(&lines), "ARCHITECTURE.md has {lines} lines");
}
