//! The figures in `README.md` and `docs/benchmarks.md`, and the tables in each run's folder, are
//! those of the raw data in `results`.
//!
//! `TIERSMITH_BLESS=1 cargo test -p tiersmith-store --test it results` writes them anew, as
//! `results/keep` does after a run. `results/README.md` says what is written where.
//!
//! Deliberately absent: whether a figure is good. That is for readers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The documents that print figures, and how each leads to the project's root.
const DOCUMENTS: [(&str, &str); 2] = [("README.md", ""), ("docs/benchmarks.md", "../")];
/// What a document says while some of its figures have no raw data.
const NOT_KEPT: &str = "was not kept";

/// The newest kept run of each benchmark: its name, its file below the root, what it holds.
type Results = BTreeMap<String, (String, Value)>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Folders are named `<date>-<benchmark>`, so the last one of a benchmark is its newest run.
fn kept() -> Results {
    let mut folders: Vec<PathBuf> = fs::read_dir(root().join("results"))
        .unwrap()
        .map(|entry| entry.unwrap().path().join("result.json"))
        .filter(|path| path.is_file())
        .collect();
    folders.sort();
    let mut results = Results::new();
    for path in folders {
        let value: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let file = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        results.insert(value["name"].as_str().unwrap().to_owned(), (file, value));
    }
    results
}

/// A document with the figures of the results. `up` leads from its folder to the project's root.
fn with_figures(document: &str, up: &str, results: &Results) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut inside = false;
    for line in document.lines() {
        if line.starts_with("<!-- end of results") {
            inside = false;
        }
        if inside {
            continue;
        }
        lines.push(with_figure(line, up, results));
        let opened = line.strip_prefix("<!-- results: ").and_then(|rest| rest.strip_suffix(" -->"));
        if let Some(name) = opened {
            inside = true;
            lines.extend(results.get(name).map(|(file, run)| ratios(&format!("{up}{file}"), run)));
        }
    }
    assert!(!inside, "a block of results has no end");
    lines.join("\n") + "\n"
}

/// One line: a row of a table that names a key, or the definition of a link.
fn with_figure(line: &str, up: &str, results: &Results) -> String {
    if let Some((name, _)) = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
        let found = results.get(name);
        return found.map_or(line.to_owned(), |(file, _)| format!("[{name}]: {up}{file}"));
    }
    let Some(key) = key_of_row(line) else { return line.to_owned() };
    let Some(value) = results.values().find_map(|(_, run)| run["ratios"][key].as_f64()) else {
        return line.to_owned();
    };
    let mut cells: Vec<String> = line.split('|').map(str::to_owned).collect();
    cells[2] = format!(" {} ", with_unit(key, value));
    cells.join("|")
}

/// The key that a row of a table is about: its only name in back-ticks with an underscore.
fn key_of_row(line: &str) -> Option<&str> {
    let row = line.strip_prefix('|')?;
    let mut keys = row.split('`').skip(1).step_by(2).filter(|name| name.contains('_'));
    let key = keys.next()?;
    (keys.next().is_none() && row.matches('|').count() >= 3).then_some(key)
}

/// One word of a key is the unit of its figure; a key without one is of a ratio.
fn with_unit(key: &str, value: f64) -> String {
    let units = [
        ("pct", " %"),
        ("us", " us"),
        ("ns", " ns"),
        ("ms", " ms"),
        ("mib", " MiB"),
        ("s", " s"),
        ("instructions", ""),
    ];
    let mut words = key.split('_').filter(|_| !key.contains("_over_"));
    let unit = words.find_map(|word| units.iter().find(|(unit, _)| *unit == word));
    format!("{}{}", figure(value), unit.map_or(" x", |(_, shown)| shown))
}

/// Three significant digits.
fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A warning without the list of what it is about, which the raw data has.
fn shortened(warning: &str) -> String {
    match warning.split_once(": ") {
        Some((what, list)) if list.matches(" %)").count() > 1 => {
            format!("{what}: {} series, named in the raw data", list.matches(" %)").count())
        }
        _ => warning.to_owned(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("unknown").to_owned()
}

/// Where and with what a run was made.
fn machine(run: &Value) -> String {
    let machine = &run["machine"];
    let gib = machine["memory_bytes"].as_u64().unwrap_or(0).div_ceil(1 << 30);
    let mut out = format!(
        "{}, {} processors, {gib} GiB, kernel {};\n{}, revision {}.\n",
        text(&machine["cpu"]),
        machine["cores"],
        text(&machine["kernel"]),
        text(&run["versions"]["rustc"]),
        text(&run["versions"]["git"]),
    );
    let mut warnings: Vec<_> = run["warnings"].as_array().into_iter().flatten().map(text).collect();
    warnings.dedup();
    for (number, warning) in warnings.iter().enumerate() {
        let line = format!("- warning: {}", shortened(warning));
        let _ = writeln!(out, "{}{}", if number == 0 { "\n" } else { "" }, broken(&line));
    }
    out
}

/// An item of a list, broken at the right margin.
fn broken(item: &str) -> String {
    let mut lines = vec![String::new()];
    for word in item.split(' ') {
        let line = lines.last_mut().unwrap();
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= 100 {
            let _ = write!(line, " {word}");
        } else {
            lines.push(format!("  {word}"));
        }
    }
    lines.join("\n")
}

/// The ratios of a run, for the documents.
fn ratios(link: &str, run: &Value) -> String {
    let mut out = format!("\n**[{}]({link})**\n\n{}", text(&run["command"]), machine(run));
    let ratios = run["ratios"].as_object().into_iter().flatten();
    let ratios: Vec<_> = ratios.filter_map(|(key, value)| Some((key, value.as_f64()?))).collect();
    if !ratios.is_empty() {
        out.push_str("\n| key | figure |\n|---|---|\n");
        for (key, value) in ratios {
            let _ = writeln!(out, "| `{key}` | {} |", with_unit(key, value));
        }
    }
    out
}

/// Every table of a run, for the page beside its raw data.
fn page(folder: &str, run: &Value) -> String {
    let mut out = format!(
        "# {folder}\n\n    {}\n\n{}\nEvery round is in [result.json](result.json).\n",
        text(&run["command"]),
        machine(run)
    );
    let mut groups: Vec<(String, Vec<&Value>)> = Vec::new();
    for sample in run["samples"].as_array().into_iter().flatten() {
        let group = text(&sample["group"]);
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, samples)) => samples.push(sample),
            None => groups.push((group, vec![sample])),
        }
    }
    for (group, samples) in groups {
        let _ = write!(out, "\n| {group} | median | p99 | unit |\n|---|---|---|---|\n");
        for sample in samples {
            let value = |key: &str| sample[key].as_f64().map_or("-".to_owned(), figure);
            let (name, unit) = (text(&sample["name"]), text(&sample["unit"]));
            let _ = writeln!(out, "| {name} | {} | {} | {unit} |", value("median"), value("p99"));
        }
    }
    out
}

/// Compares what a file says with what it should say, or writes it.
fn compare_or_write(name: &str, expected: &str) {
    let path = root().join(name);
    if std::env::var_os("TIERSMITH_BLESS").is_some() {
        fs::write(&path, expected).unwrap();
        return;
    }
    let found = fs::read_to_string(&path).unwrap();
    for (number, (expected, found)) in expected.lines().zip(found.lines()).enumerate() {
        assert_eq!(expected, found, "line {} of {name}; results/keep --tables", number + 1);
    }
    assert_eq!(expected.lines().count(), found.lines().count(), "{name}; results/keep --tables");
}

#[test]
fn the_figures_of_the_documents_are_those_of_the_raw_data() {
    let results = kept();
    for (name, up) in DOCUMENTS {
        let found = fs::read_to_string(root().join(name)).unwrap();
        compare_or_write(name, &with_figures(&found, up, &results));
    }
    for (file, run) in results.values() {
        let folder = file.strip_suffix("/result.json").unwrap();
        let name = folder.strip_prefix("results/").unwrap();
        compare_or_write(&format!("{folder}/README.md"), &page(name, run));
    }
}

#[test]
fn a_document_says_whether_the_raw_data_of_its_figures_was_kept() {
    let results = kept();
    let is_kept = |key: &&str| results.values().any(|(_, run)| run["ratios"][*key].is_number());
    for (name, _) in DOCUMENTS {
        let text = fs::read_to_string(root().join(name)).unwrap();
        let keys: Vec<&str> = text.lines().filter_map(key_of_row).collect();
        assert!(!keys.is_empty(), "{name} prints no figure with a key");
        if !keys.iter().all(is_kept) {
            assert!(text.contains(NOT_KEPT), "{name} has figures without raw data and must say so");
        }
    }
}

#[test]
fn a_kept_run_fills_its_rows_its_links_and_its_block_and_changes_nothing_else() {
    let run = serde_json::json!({
        "name": "commits", "command": "cargo bench --bench commits",
        "machine": { "cpu": "A CPU", "cores": 2, "memory_bytes": 24_u64 << 30, "kernel": "6.18" },
        "versions": { "rustc": "rustc 1.95.0", "git": "abc" },
        "warnings": [
            "EMULATED: tmpfs stands for persistent memory",
            "io_uring is not measured: the kernel has FUSE over io_uring switched off (as root: \
             echo Y > enable_uring)",
            "io_uring is not measured: the kernel has FUSE over io_uring switched off (as root: \
             echo Y > enable_uring)",
        ],
        "samples": [{ "group": "commit", "name": "stock", "unit": "ns", "median": 6612.0,
        "p99": 9.0 }],
        "ratios": { "commits_over_disk": 84.6, "floor_us": 1.234, "absent": null,
        "write_us_lent": 2.49, "write_us_over_floor": 1.15 },
    });
    let file = "results/2026-01-02-commits/result.json".to_owned();
    let results = Results::from([("commits".to_owned(), (file, run))]);
    let document = "\
| what | figure | data |
| commits | 1 x | [`commits_over_disk`][commits] |
| another | 2 x | [`another_key`][other] |
| `floor_us` | old | - | what |

[commits]: docs/benchmarks.md#commits
[other]: docs/benchmarks.md#other
<!-- results: commits -->
old
<!-- end of results -->
the end
";
    let expected = "\
| what | figure | data |
| commits | 84.6 x | [`commits_over_disk`][commits] |
| another | 2 x | [`another_key`][other] |
| `floor_us` | 1.23 us | - | what |

[commits]: ../results/2026-01-02-commits/result.json
[other]: docs/benchmarks.md#other
<!-- results: commits -->

**[cargo bench --bench commits](../results/2026-01-02-commits/result.json)**

A CPU, 2 processors, 24 GiB, kernel 6.18;
rustc 1.95.0, revision abc.

- warning: EMULATED: tmpfs stands for persistent memory
- warning: io_uring is not measured: the kernel has FUSE over io_uring switched off (as root: echo Y
  > enable_uring)

| key | figure |
|---|---|
| `commits_over_disk` | 84.6 x |
| `floor_us` | 1.23 us |
| `write_us_lent` | 2.49 us |
| `write_us_over_floor` | 1.15 x |

<!-- end of results -->
the end
";
    let filled = with_figures(document, "../", &results);
    assert_eq!(filled, expected);
    let (_, run) = &results["commits"];
    let page = page("2026-01-02-commits", run);
    assert!(page.contains(
        "\n| commit | median | p99 | unit |\n|---|---|---|---|\n| stock | 6612 | 9.00 | ns |\n"
    ));
    assert_eq!(with_figures(&filled, "../", &results), expected, "once more changes nothing");
    let none = with_figures(document, "", &Results::new());
    assert_eq!(none, document.replace("\nold\n", "\n"), "without a run the block is empty");
}
