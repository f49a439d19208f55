//! What a machine can hold of the house style: the source tree, read as text.
//!
//! Deliberately absent: what lints hold already (missing documentation, `unwrap`, undocumented
//! `unsafe`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The right margin of code and comments; that of documents is in `docs.rs`.
const COLUMNS_MAX: usize = 100;
/// The longest file there may be; longer ones hold two ideas.
const LINES_MAX: usize = 800;

/// Who may know whom (DESIGN.md, "Parts"). A part that is not listed yet is to be added with its
/// line there.
const MAY_KNOW: &[(&str, &[&str])] = &[
    // `pmem` for its simulated machine alone, in tests.
    ("block", &["dir", "pmem"]),
    ("dir", &[]),
    ("events", &[]),
    ("pmem", &[]),
    ("store", &["block", "dir", "pmem", "events"]),
    ("sqlite", &["dir", "store"]),
    ("mount", &["dir", "store"]),
    ("kv", &["pmem", "events"]),
    ("awr", &["dir", "events"]),
    ("lab", &["awr", "dir", "store", "sqlite", "mount"]),
    ("cli", &["block", "dir", "events", "pmem", "store", "sqlite", "mount", "kv", "awr", "lab"]),
];

/// Parts that may have `unsafe` code: the instructions, and the foreign borders.
const UNSAFE_PARTS: &[&str] = &["pmem", "block", "sqlite", "mount"];

/// Where `{:?}` stands in a message on purpose: text that is to be shown quoted and escaped, and
/// durations, which Rust writes as people do. File, and the end of its path; then what is printed.
const SHOWN_QUOTED: &[(&str, &[&str])] = &[
    ("awr/src/snapshot/mod.rs", &["{key:?}"]),
    // The names of the protocol's own alerts.
    ("awr/src/sources/tls/refusal.rs", &["{alert:?}"]),
    ("lab/src/server/client.rs", &["{text:?}"]),
    ("lab/src/server/postgres.rs", &["{PATIENCE:?}"]),
    ("lab/src/server/running.rs", &["{PATIENCE:?}"]),
    ("lab/src/target/server/keys.rs", &["{other:?}"]),
    // No messages: a key, and a column.
    ("kv/src/testing.rs", &["{:?}"]),
    ("lab/src/target/server/mod.rs", &["{:?}"]),
    ("lab/src/target/sqlite/mod.rs", &["{:?}"]),
    ("lab/src/target/server/program.rs", &["{:?}"]),
    ("mount/src/ring/mod.rs", &["{text:?}"]),
    ("sqlite/src/inspect.rs", &["{question:?}"]),
    ("store/src/home/mod.rs", &["{:?}"]),
    ("store/src/check/report.rs", &["{directory:?}", "{path:?}", "{:?}"]),
    ("store/src/check/table.rs", &["{:?}"]),
    ("store/src/check/superblock.rs", &["{:?}"]),
];

/// Where structures of bytes are read and written: by their fields, not by counting.
const BYTES: &[&str] = &[
    "crates/store/src/format/",
    "crates/store/src/check/",
    "crates/mount/src/wire/",
    "crates/mount/src/header.rs",
    "crates/mount/src/ring/layout.rs",
];

/// A number that stands for a place all the same: file, and what the line has.
const COUNTED: &[(&str, &str)] = &[
    // The table of the second reader, which must not share the first one's structures.
    ("check/at.rs", "UNUSED"),
    // One table for each byte of a value.
    ("check/seal.rs", "TABLES["),
    // The five bytes of a 40-bit value.
    ("format/entry.rs", "value.to_le_bytes()[..5]"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All files below a folder, without build results.
fn files_below(dir: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_symlink() || path.join("CACHEDIR.TAG").exists() || name == ".git" {
            continue;
        }
        if path.is_dir() {
            files_below(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// The project's own files with one of these endings, with their text.
fn sources(endings: &[&str]) -> Vec<(PathBuf, String)> {
    let root = root();
    let mut files = Vec::new();
    for folder in [".ci", "benches", "cases", "crates", "docs", "examples", "fuzz", "results"] {
        if root.join(folder).is_dir() {
            files_below(&root.join(folder), &mut files);
        }
    }
    files.extend(fs::read_dir(&root).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_file()));
    files
        .into_iter()
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            endings.iter().any(|ending| name.ends_with(ending) || name == *ending)
        })
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            (path.strip_prefix(&root).unwrap().to_path_buf(), text)
        })
        .collect()
}

/// A source file up to its module of tests, if it has one.
fn without_tests(text: &str) -> &str {
    let begins_tests = |at: &usize| {
        let mut after = text[*at..].lines().skip(1).skip_while(|line| line.starts_with("#["));
        after.next().is_some_and(|line| line.contains("mod ") && line.ends_with('{'))
    };
    let tests = text.match_indices("#[cfg(test)]").map(|(at, _)| at).find(begins_tests);
    &text[..tests.unwrap_or(text.len())]
}

fn assert_none(claim: &str, faults: &[String]) {
    assert!(faults.is_empty(), "{claim}:\n{}", faults.join("\n"));
}

#[test]
fn every_source_file_says_first_what_it_is() {
    let faults: Vec<String> = sources(&[".rs"])
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//! "))
        .map(|(path, _)| path.display().to_string())
        .collect();
    assert_none("files that do not begin with `//! `", &faults);
}

/// Whether a line of code has a number where an offset stands: `b[8]`, `b[8..]`, `b[..8]`,
/// `u64_at(b, 8)`.
fn counts_bytes(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let begins_with_digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let indexed = code.match_indices('[').any(|(at, _)| {
        let behind_a_value =
            code[..at].ends_with(|c: char| c.is_alphanumeric() || "_)]".contains(c));
        let inside = code[at + 1..].trim_start_matches('.');
        let after = inside.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_');
        behind_a_value
            && begins_with_digit(inside)
            && (after.starts_with(']') || after.starts_with(".."))
    });
    let asked = ["u64_at(", "u32_at(", "u16_at("].iter().any(|call| {
        code.match_indices(call).any(|(at, _)| {
            let arguments = code[at + call.len()..].split(')').next().unwrap_or_default();
            arguments.split_once(',').is_some_and(|(_, at)| begins_with_digit(at.trim_start()))
        })
    });
    indexed || asked
}

#[test]
fn no_number_is_an_offset_where_bytes_are_read_and_written() {
    for counted in
        ["x = b[8];", "b[8..16].copy()", "take(&b[..4088])", "u64_at(b, 0) != 0", "f()[2..]"]
    {
        assert!(counts_bytes(counted), "{counted}");
    }
    for named in
        ["[0; 512]", "b[AT..AT + 8]", "u64_at(b, at::LEN)", "let [a, 1]", "// b[8]", "#[cfg(x)]"]
    {
        assert!(!counts_bytes(named), "{named}");
    }
    let excused = |path: &str, line: &str| {
        COUNTED.iter().any(|(end, text)| path.ends_with(end) && line.contains(text))
    };
    let mut faults = Vec::new();
    for (path, text) in sources(&[".rs"]) {
        let path = path.display().to_string();
        if !BYTES.iter().any(|place| path.starts_with(place)) || path.contains("/tests/") {
            continue;
        }
        for (n, line) in without_tests(&text).lines().enumerate() {
            if counts_bytes(line) && !excused(&path, line) {
                faults.push(format!("{path}:{}: {}", n + 1, line.trim()));
            }
        }
    }
    assert_none("numbers where the name of a field should stand", &faults);
}

#[test]
fn no_source_file_is_longer_than_a_reader_bears() {
    let faults: Vec<String> = sources(&[".rs"])
        .into_iter()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(path, lines)| format!("{}: {lines} lines", path.display()))
        .collect();
    assert_none(&format!("files with more than {LINES_MAX} lines"), &faults);
}

#[test]
fn what_is_released_carries_no_line_tables() {
    let manifest: toml::Table =
        fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let release = &manifest["profile"]["release"];
    assert_eq!(release["strip"].as_str(), Some("debuginfo"), "{release}");
    assert!(release.get("debug").is_none(), "{release}");
}

#[test]
fn every_source_file_is_a_module_that_is_compiled() {
    let all: BTreeMap<PathBuf, String> = sources(&[".rs"]).into_iter().collect();
    let declares = |path: &Path, name: &str| {
        let says = |line: &str| line.trim().ends_with(&format!("mod {name};"));
        all.get(path).is_some_and(|text| text.lines().any(says))
    };
    let (mut faults, mut seen) = (Vec::new(), 0);
    for path in all.keys().filter(|path| path.components().any(|part| part.as_os_str() == "src")) {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        if ["lib", "main"].contains(&stem) {
            continue;
        }
        // What declares `a/b.rs` or `a/b/mod.rs` is the front page of `a`.
        let own = if stem == "mod" { path.parent().unwrap() } else { &path.with_extension("") };
        let (above, name) = (own.parent().unwrap(), own.file_name().unwrap().to_str().unwrap());
        let fronts = ["mod.rs", "lib.rs", "main.rs"].map(|front| above.join(front));
        let fronts = fronts.into_iter().chain([above.with_extension("rs")]);
        seen += 1;
        if !fronts.into_iter().any(|front| declares(&front, name)) {
            faults.push(path.display().to_string());
        }
    }
    assert!(seen > 500, "only {seen} files were looked at");
    assert_none("files that nothing declares as a module, so nobody compiles them", &faults);
}

#[test]
fn no_file_is_called_utils_common_or_misc() {
    let faults: Vec<String> = sources(&[".rs"])
        .into_iter()
        .map(|(path, _)| path)
        .filter(|path| {
            path.components().any(|c| {
                ["utils", "common", "misc"]
                    .map(Some)
                    .contains(&Path::new(c.as_os_str()).file_stem().and_then(|s| s.to_str()))
            })
        })
        .map(|path| path.display().to_string())
        .collect();
    assert_none("names that say nothing", &faults);
}

#[test]
fn no_file_names_a_place_of_one_machine() {
    // Put together at run time, so that this file does not name them either.
    let places = ["work", "root", "home"].map(|top| format!("/{top}/"));
    let mut faults = Vec::new();
    for (path, text) in sources(&[".rs", ".toml", ".md", ".sh", "check", "study", "run"]) {
        for (n, line) in text.lines().enumerate() {
            for place in &places {
                let starts_a_path = |at: usize| {
                    let before = line[..at].chars().next_back();
                    before.is_none_or(|c| !(c.is_alphanumeric() || "._-*}/".contains(c)))
                };
                if line.match_indices(place.as_str()).any(|(at, _)| starts_a_path(at)) {
                    faults.push(format!("{}:{}: {}", path.display(), n + 1, line.trim()));
                }
            }
        }
    }
    assert_none("paths of a machine", &faults);
}

#[test]
fn parts_know_only_the_parts_they_may_know() {
    let mut faults = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let dir = entry.unwrap().path();
        let part = dir.file_name().unwrap().to_string_lossy().into_owned();
        let manifest: toml::Value =
            toml::from_str(&fs::read_to_string(dir.join("Cargo.toml")).unwrap()).unwrap();
        let Some((_, may_know)) = MAY_KNOW.iter().find(|(name, _)| *name == part) else {
            faults.push(format!("{part} is no part of DESIGN.md"));
            continue;
        };
        let package = manifest["package"]["name"].as_str().unwrap();
        if package != format!("tiersmith-{part}") && part != "cli" {
            faults.push(format!("the folder {part} holds the package {package}"));
        }
        for table in ["dependencies", "build-dependencies"] {
            let Some(dependencies) = manifest.get(table).and_then(|d| d.as_table()) else {
                continue;
            };
            for name in dependencies.keys() {
                if let Some(other) = name.strip_prefix("tiersmith-")
                    && !may_know.contains(&other)
                {
                    faults.push(format!("{part} knows {other}"));
                }
            }
        }
    }
    assert_none("dependencies that DESIGN.md does not have", &faults);
}

#[test]
fn a_device_of_sectors_knows_the_simulated_machine_in_tests_only() {
    let manifest = fs::read_to_string(root().join("crates/block/Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    assert_eq!(manifest["dependencies"]["tiersmith-pmem"]["optional"].as_bool(), Some(true));
    let turned_on_by = |feature: &toml::Value| feature.to_string().contains("tiersmith-pmem");
    let features = manifest["features"].as_table().unwrap();
    assert!(features.iter().all(|(name, feature)| name == "testing" || !turned_on_by(feature)));
}

#[test]
fn unsafe_code_is_forbidden_outside_the_parts_that_need_it() {
    let mut faults = Vec::new();
    for (path, text) in sources(&["lib.rs", "main.rs"]) {
        let part = path.components().nth(1).map(|c| c.as_os_str().to_string_lossy().into_owned());
        let of_a_part = path.starts_with("crates")
            && path.components().nth(2).is_some_and(|c| c.as_os_str() == "src");
        if of_a_part
            && path.components().count() == 4
            && !UNSAFE_PARTS.contains(&part.unwrap_or_default().as_str())
            && !text.contains("#![forbid(unsafe_code)]")
        {
            faults.push(path.display().to_string());
        }
    }
    assert_none("crate roots without `#![forbid(unsafe_code)]`", &faults);
}

/// `{:?}` of an error or of a structure prints Rust: `Os { code: 28, kind: StorageFull, .. }`,
/// `RealHome { path: .. }`.
#[test]
fn no_message_shows_the_debug_text_of_rust() {
    let mut faults = Vec::new();
    for (path, text) in sources(&[".rs"]) {
        let name = path.to_string_lossy().into_owned();
        let tests = ["tests.rs", "_test.rs", "suite.rs", "/versions.rs", "/layouts.rs"]
            .iter()
            .any(|end| name.ends_with(end));
        if !name.starts_with("crates/") || !name.contains("/src/") || tests {
            continue;
        }
        let allowed = SHOWN_QUOTED
            .iter()
            .find(|(file, _)| name.ends_with(file))
            .map_or(&[][..], |(_, of)| of);
        for (n, line) in without_tests(&text).lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            let shown = line.match_indices(":?}").map(|(end, _)| {
                let begin = line[..end].rfind('{').unwrap_or(0);
                &line[begin..end + 3]
            });
            let fault = |shown: &str| !allowed.contains(&shown);
            if !is_comment && (shown.into_iter().any(fault) || line.contains(":#?}")) {
                faults.push(format!("{name}:{}: {}", n + 1, line.trim()));
            }
        }
    }
    assert_none("messages with Rust's debug text; use Display, or say it in words", &faults);
}

/// Cargo links a test program with all of its crate, so each costs seconds of every build. A new
/// file of tests is a module of `it`; one that nothing may disturb, of `alone`.
#[test]
fn integration_tests_are_few_programs() {
    const PROGRAMS_MAX: usize = 16;
    let crates = root().join("crates");
    let mut programs = Vec::new();
    for a_crate in fs::read_dir(&crates).unwrap() {
        let Ok(entries) = fs::read_dir(a_crate.unwrap().path().join("tests")) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            let program = if path.is_dir() { path.join("main.rs") } else { path };
            if program.is_file() && program.extension().is_some_and(|end| end == "rs") {
                programs.push(program.strip_prefix(&crates).unwrap().display().to_string());
            }
        }
    }
    assert!(programs.len() > 10, "the crates have only {programs:?}");
    assert!(
        programs.len() <= PROGRAMS_MAX,
        "{} programs of tests:\n{}",
        programs.len(),
        programs.join("\n")
    );
}

/// Texts of other programs, quoted as they are.
const QUOTED: &[&str] = &[
    "crates/awr/tests/it/import.rs",
    "crates/awr/tests/it/metrics.rs",
    "crates/awr/tests/it/page_chromium.rs",
    "crates/cli/tests/it/packages.rs",
];

/// A row of a table and the name of a test cannot be broken.
fn cannot_be_broken(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("fn ")
        || line.strip_prefix("//").is_some_and(|rest| rest[1..].starts_with(" |"))
}

#[test]
fn code_and_comments_keep_the_right_margin() {
    let mut faults = Vec::new();
    for (path, text) in sources(&[".rs"]) {
        let path = path.display().to_string();
        if QUOTED.contains(&path.as_str()) {
            continue;
        }
        for (n, line) in text.lines().enumerate() {
            if line.chars().count() > COLUMNS_MAX && !cannot_be_broken(line) {
                faults.push(format!("{path}:{}", n + 1));
            }
        }
    }
    assert_none(&format!("lines of more than {COLUMNS_MAX} columns"), &faults);
}
