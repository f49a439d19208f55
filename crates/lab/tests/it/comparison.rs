//! What a study says of known figures: ratios, medians of rounds, marks, warnings.

use std::path::PathBuf;

use tiersmith_awr::{Snapshot, Source, statistic};
use tiersmith_lab::case::Placement;
use tiersmith_lab::published;
use tiersmith_lab::run::{Latency, Measured};
use tiersmith_lab::study::cross_check::{Beside, CrossCheck, Program, Rate};
use tiersmith_lab::study::result::{
    CaseSummary, FORMAT, Machine, PlaceSummary, RunResult, StudyResult,
};
use tiersmith_lab::study::trust::Warning;
use tiersmith_lab::study::{html, tables, text};

/// A run of ten seconds with so many executions, each a transaction, and commits of so many
/// nanoseconds.
fn run(case: &str, round: u32, executes: u64, commit_ns: u64) -> RunResult {
    let source =
        Source { instance: format!("{case} {round}"), database: case.into(), ..Source::default() };
    let snapshot = |at_s: u64, executes: u64| {
        let mut snapshot = Snapshot::at(
            source.clone(),
            (1_700_000_000 + at_s) * 1_000_000_000,
            at_s * 1_000_000_000,
        );
        snapshot.db_time_ns = Some(executes * commit_ns);
        snapshot.db_cpu_ns = Some(executes * commit_ns / 4);
        snapshot.add_counter(statistic::EXECUTE_COUNT, "executions", executes);
        snapshot.add_counter(statistic::USER_COMMITS, "transactions", executes);
        snapshot
    };
    let commit = Latency {
        count: executes,
        mean_ns: commit_ns as f64,
        median_ns: commit_ns,
        p99_ns: 2 * commit_ns,
        max_ns: 3 * commit_ns,
        ..Latency::default()
    };
    RunResult {
        case: case.into(),
        update_pct: 100,
        round,
        measured: Measured {
            begin: snapshot(1, 0),
            end: snapshot(11, executes),
            elapsed_s: 10.0,
            slices: vec![executes as f64 / 10.0; 20],
            p99_slices_ns: (0..20).map(|n| if n == 7 { 80_000_000 } else { 2_000_000 }).collect(),
            executes,
            transactions: executes,
            rows: 63 * executes,
            select: Latency::default(),
            update: commit,
            commit,
            response: None,
            transaction: None,
            kinds: Vec::new(),
            counted: Vec::new(),
        },
        snapshots: None,
        warnings: Vec::new(),
    }
}

fn case(id: &str, baseline: Option<&str>, placement: Placement) -> CaseSummary {
    CaseSummary {
        id: id.into(),
        title: format!("The case <b>{id}</b>"),
        about: "For a test.".into(),
        baseline: baseline.map(Into::into),
        placement,
        published: if baseline.is_some() {
            vec!["oracle-vsphere-pmem/redo-vpmem-ext4-dax".into()]
        } else {
            Vec::new()
        },
        tier_bytes: if placement == Placement::Home { 0 } else { 96 << 20 },
        database_bytes: 64 << 20,
    }
}

fn study() -> StudyResult {
    StudyResult {
        format: FORMAT,
        version: "0.0.0".into(),
        command: vec!["tiersmith".into(), "study".into(), "<script>alert(1)</script>".into()],
        taken_unix_ns: 1_700_000_000_000_000_000,
        took_s: 60.0,
        seconds: 10.0,
        rounds: 3,
        machine: Machine { cpus: 2, ..Machine::default() },
        places: PlaceSummary {
            home: PathBuf::from("h"),
            home_is_on: "ext4 on /dev/sda".into(),
            tier: PathBuf::from("t"),
            tier_is_on: "tmpfs on tmpfs".into(),
            emulated: true,
            flash: false,
        },
        database: "SQLite".into(),
        database_version: "3".into(),
        load: "SLOB's method".into(),
        home_model: None,
        cases: vec![
            case("slow", None, Placement::Home),
            case("fast", Some("slow"), Placement::All),
        ],
        runs: vec![
            run("slow", 1, 1_000, 9_000_000),
            run("fast", 1, 8_000, 1_000_000),
            run("slow", 2, 5_000, 1_500_000),
            run("fast", 2, 2_000, 4_000_000),
            run("slow", 3, 2_000, 4_500_000),
            run("fast", 3, 6_000, 1_200_000),
        ],
        cross_check: None,
        warnings: Vec::new(),
        published: vec![published::find("oracle-vsphere-pmem/redo-vpmem-ext4-dax").unwrap()],
    }
}

fn warning(code: &str, sentence: &str, is_note: bool) -> Warning {
    Warning { code: code.into(), sentence: sentence.into(), is_note }
}

#[test]
fn the_median_round_is_compared_with_the_median_round_of_the_baseline() {
    let study = study();
    let rows = study.rows(100);
    assert_eq!((rows[0].run.round, rows[1].run.round), (3, 3));
    assert_eq!(rows[1].executes_ratio(), Some(3.0));
    assert_eq!(rows[1].spread, (200.0, 800.0));
    assert!(rows[0].baseline.is_none() && rows[0].executes_ratio().is_none());
}

#[test]
fn the_comparison_prints_the_figures_and_nothing_else() {
    let mut out = String::new();
    tiersmith_awr::write_table(&mut out, &tables::comparison(&study(), 100));
    let fast: Vec<&str> =
        out.lines().find(|line| line.starts_with("fast")).unwrap().split_whitespace().collect();
    assert_eq!(
        fast,
        [
            "fast", "data", "and", "redo", "600.0", "3.00", "600.0", "3.00", "1.20ms", "2.40ms",
            "80.00ms", "200.0", "800.0"
        ]
    );
    let slow: Vec<&str> =
        out.lines().find(|line| line.starts_with("slow")).unwrap().split_whitespace().collect();
    assert_eq!(
        slow,
        ["slow", "nothing", "200.0", "200.0", "4.50ms", "9.00ms", "80.00ms", "100.0", "500.0"]
    );
    assert!(out.contains("EMULATED"));
}

#[test]
fn a_published_ratio_stands_beside_the_one_measured_here() {
    let table = tables::beside_published(&study()).unwrap();
    let mut out = String::new();
    tiersmith_awr::write_table(&mut out, &table);
    let executes: Vec<&str> =
        out.lines().find(|line| line.contains("executes")).unwrap().split_whitespace().collect();
    assert_eq!(
        executes,
        ["fast", "oracle-vsphere-pmem/redo-vpmem-ext4-dax", "executes", "1.05", "3.00"]
    );
    assert!(out.contains("other hardware"));
}

/// By its percentages the paper would seem to promise more than it counted.
#[test]
fn the_flash_study_is_compared_by_its_commits_and_both_readings_are_on_the_page() {
    let mut study = study();
    study.cases[1].published = vec!["sandisk-flash/all-on-flash".into()];
    study.published = vec![published::find("sandisk-flash/all-on-flash").unwrap()];
    let (text, page) = (text::render(&study), html::render(&study).unwrap());
    let row =
        text.lines().find(|line| line.contains("trans ratio")).unwrap_or_else(|| panic!("{text}"));
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[..5], ["fast", "sandisk-flash/all-on-flash", "trans", "ratio", "5.17"]);
    let unwrapped = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [unwrapped, page] {
        for reading in [
            "flash-cache 1.36 times the baseline (the text prints 136 %)",
            "redo-on-flash 1.63 times the baseline (the text prints 63 %; flash cache: still on)",
            "hot-tables-on-flash 3.01 times the baseline (the text prints 302 %)",
            "all-on-flash 5.17 times the baseline (the text prints 538 %)",
            "percent of the baseline",
        ] {
            assert!(said.contains(reading), "{reading:?} in {said}");
        }
        assert!(!said.contains("6.38"), "{said}");
    }
}

#[test]
fn a_warning_marks_its_case_and_a_baseline_marks_those_compared_with_it() {
    let mut study = study();
    assert!(!study.has_warnings() && !text::render(&study).contains("(?)"));
    study.runs[0].warnings.push(warning("host-unknown", "A note.", true));
    assert!(!study.has_warnings());
    study.runs[1].warnings.push(warning("steal", "Somebody else had the processor.", false));
    let rows = study.rows(100);
    assert!(!rows[0].doubted && rows[1].doubted);
    study.runs[1].warnings.clear();
    study.runs[4].warnings.push(warning("steal", "Somebody else had the processor.", false));
    let rows = study.rows(100);
    assert!(rows[0].doubted && rows[1].doubted);
    let text = text::render(&study);
    assert!(
        text.contains("fast (?)")
            && text.contains("slow at UPDATE_PCT 100, round 3: Somebody else"),
        "{text}"
    );
    let page = html::render(&study).unwrap();
    assert!(
        page.contains("cannot be trusted") && page.contains("Somebody else had the processor.")
    );
}

#[test]
fn the_same_warning_of_many_runs_is_said_once() {
    let mut study = study();
    for run in &mut study.runs {
        run.warnings.push(warning("short", "Too short.", false));
    }
    study.warnings.push(warning("machine-busy", "Busy.", false));
    let grouped = study.grouped_warnings();
    assert_eq!(grouped.len(), 2);
    assert_eq!(grouped[0], (String::new(), "Busy.".into(), false));
    assert_eq!(grouped[1].0, "slow at UPDATE_PCT 100, round 1, and 5 more runs");
}

#[test]
fn a_stall_is_in_the_table_and_both_configurations_are_on_one_chart() {
    let mut study = study();
    let (printed, page) = (text::render(&study), html::render(&study).unwrap());
    assert!(printed.contains("Worst") && printed.contains("80.00ms"), "{printed}");
    let title = "99th percentile of statements and commits: fast";
    assert!(page.contains(title) && page.contains("The area is the baseline, the line the case"));
    // A result of an earlier version has no slices, and no chart.
    study.runs.iter_mut().for_each(|run| run.measured.p99_slices_ns.clear());
    let (printed, page) = (text::render(&study), html::render(&study).unwrap());
    assert!(!page.contains(title));
    assert!(
        printed.contains("Left out, because no run has it") && printed.contains("Worst p99"),
        "{printed}"
    );
}

#[test]
fn text_from_outside_reaches_neither_the_page_as_a_tag_nor_the_terminal_as_an_escape() {
    let mut study = study();
    study.places.home_is_on = "ext4 \u{1b}[31m on <img src=x>".into();
    study.warnings.push(warning("x", "\u{1b}[2J<script>alert(2)</script>", false));
    let text = text::render(&study);
    assert!(!text.contains('\u{1b}'), "{text}");
    let page = html::render(&study).unwrap();
    for tag in ["<script", "<img", "<b>"] {
        assert!(!page.contains(tag), "{tag}");
    }
}

#[test]
fn a_result_is_read_back_as_it_was_and_a_foreign_one_is_refused() {
    let study = study();
    let json = study.to_json().unwrap();
    let again = StudyResult::from_json(&json, "result.json").unwrap();
    assert_eq!(text::render(&again), text::render(&study));
    let error = StudyResult::from_json(
        &json.replace("\"format\": 1,\n  \"version\"", "\"format\": 9,\n  \"version\""),
        "result.json",
    );
    assert!(error.unwrap_err().to_string().contains("format 9"));
    for cut in (0..json.len()).step_by(997) {
        if json.is_char_boundary(cut) {
            assert!(StudyResult::from_json(&json[..cut], "result.json").is_err());
        }
    }
}

#[test]
fn a_cross_check_is_shown_with_both_rates_their_ratio_and_what_failed() {
    let rate = |per_s: f64| Rate { per_s, count: 100, elapsed_s: 2.0, p95_ns: Some(1_500_000) };
    let row = |case: &str, outside: Option<f64>, disagree| Beside {
        case: case.into(),
        update_pct: 100,
        program: "sysbench".into(),
        unit: "transactions".into(),
        tiersmith: Some(rate(500.0)),
        outside: outside.map(rate),
        ratio: outside.map(|outside| 500.0 / outside),
        disagree,
        comparable: case != "other",
        failed: outside.is_none().then(|| "<b>its last words</b>".into()),
    };
    let mut result = study();
    let without = text::render(&result);
    assert!(!without.contains("Cross-check"));
    result.cross_check = Some(CrossCheck {
        programs: vec![Program { name: "sysbench".into(), version: "1.0.20".into() }],
        rows: vec![
            row("slow", Some(250.0), true),
            row("fast", Some(501.0), false),
            row("other", Some(5.0), false),
        ],
        notes: vec!["sysbench: what it does differently.".into()],
    });
    let shown = text::render(&result);
    for expected in [
        "sysbench 1.0.20",
        "2.00",
        "disagree",
        "agree",
        "not comparable",
        "what it does differently",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert!(!result.cross_check.as_ref().unwrap().has_failed());
    let check = result.cross_check.as_mut().unwrap();
    check.rows.push(row("fast", None, false));
    assert!(check.has_failed());
    assert!(text::render(&result).contains("failed"));
    let page = html::render(&result).unwrap();
    assert!(page.contains("Cross-check") && !page.contains("<b>its last"), "{page}");
    let json = result.to_json().unwrap();
    let again = StudyResult::from_json(&json, "it").unwrap();
    assert_eq!(again.cross_check, result.cross_check);
    assert_eq!(text::render(&again), text::render(&result));
}
