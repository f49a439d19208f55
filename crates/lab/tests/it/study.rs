//! A whole study, small: every default case on a real tier that stands for persistent memory, in a
//! temporary directory.

use std::collections::HashMap;
use std::path::Path;

use tiersmith_lab::case::{self, Case, JournalMode};
use tiersmith_lab::place::Leftovers;
use tiersmith_lab::study::result::{RunResult, StudyResult};
use tiersmith_lab::study::trust::Warning;
use tiersmith_lab::study::{self, Options, Progress, Silent, html, text};
use tiersmith_lab::{ByteSize, Error};

fn places(dir: &Path) -> (std::path::PathBuf, std::path::PathBuf) {
    let (home, fast) = (dir.join("home"), dir.join("fast"));
    for place in [&home, &fast] {
        std::fs::create_dir_all(place).unwrap();
    }
    (home, fast)
}

fn small(cases: Vec<Case>, dir: &Path) -> Options {
    let (home, fast) = places(dir);
    let mut options = Options::new(cases);
    options.seconds = 0.3;
    options.scale = Some(ByteSize(4 << 20));
    options.tier_size = Some(ByteSize(64 << 20));
    options.home = Some(home);
    options.fast = Some(fast);
    options.emulate = true;
    options
}

fn nothing_left(dir: &Path) {
    for place in ["home", "fast"] {
        let left: Vec<_> =
            std::fs::read_dir(dir.join(place)).unwrap().map(|e| e.unwrap().path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn run(options: &Options) -> StudyResult {
    study::run(options, Leftovers::default(), &Silent).unwrap()
}

#[test]
fn a_directory_on_a_disk_is_a_durable_tier_unless_it_is_to_stand_for_persistent_memory() {
    let dir = tempfile::tempdir().unwrap();
    let cases = ["redo-on-home", "redo-on-tier", "all-on-tier"].map(str::to_owned);
    let mut options = small(case::choose(&cases, false).unwrap(), dir.path());
    options.emulate = false;
    let result = run(&options);
    nothing_left(dir.path());
    if result.places.emulated {
        eprintln!("skipped: a study on flash, because temporary files are in memory here");
        return;
    }
    assert!(result.places.flash);
    let said = text::render(&result);
    assert!(!said.contains("EMULATED") && said.contains("The tier is a file on a disk"), "{said}");
    assert!(!html::render(&result).unwrap().contains("EMULATED: the tier is"));
    for run in &result.runs {
        assert!(run.measured.transactions > 0 || run.update_pct == 0, "{}", run.case);
        assert!(!run.measured.end.is_emulated());
        let media = &run.measured.end.media;
        let on_flash = media.iter().any(|medium| medium.kind.contains("flash"));
        assert_eq!(on_flash, run.case != "redo-on-home", "{}: {media:?}", run.case);
    }
}

fn it_did_the_load(run: &RunResult) {
    let measured = &run.measured;
    let (begin, end) = run.snapshots.unwrap();
    assert_eq!(end, begin + 1);
    assert!(measured.executes > 0, "{} did nothing", run.case);
    // The snapshots stop nobody: one operation may be counted in part.
    assert!(
        measured.rows.abs_diff(measured.executes * 63) <= 63,
        "{} rows, {} executions",
        measured.rows,
        measured.executes
    );
    if run.update_pct == 100 {
        assert!(
            measured.executes.abs_diff(measured.transactions) <= 1 && measured.commit.count > 0
        );
    } else if measured.executes >= 400 {
        // Four windows of the quota; a slow machine does not get so far.
        let share = measured.transactions as f64 / measured.executes as f64;
        assert!((0.1..0.4).contains(&share), "{share}");
    }
}

fn it_waited_for_what_its_case_says(run: &RunResult) {
    let waited = |event: &str| run.wait_mean_ns(event).is_some();
    match run.case.as_str() {
        "redo-on-home" => assert!(waited("log file sync") && !waited("tier block write")),
        "redo-on-tier" => {
            assert!(waited("log file parallel write"));
            // Not the database's blocks: what tells a foreign write of a database that passes
            // is one block, twice a checkpoint.
            let interval = run.interval().unwrap();
            let blocks = interval
                .waits
                .iter()
                .filter(|wait| wait.name == "tier block write")
                .map(|wait| wait.count);
            let blocks: u64 = blocks.sum();
            assert!(
                blocks <= 2 + run.measured.transactions / 4,
                "{blocks} blocks, {} transactions",
                run.measured.transactions
            );
        }
        "all-on-tier" => {
            assert!(waited("log file parallel write") && !waited("tier batch write"))
        }
        _ => assert!(
            waited("tier batch write")
                && !waited("log file parallel write")
                && !waited("log file sync")
        ),
    }
}

/// `threads`: how many the load has.
fn its_time_is_counted_once(run: &RunResult, threads: u64) {
    let interval = run.interval().unwrap();
    let (db_time, cpu) = (interval.db_time_ns.unwrap(), interval.db_cpu_ns.unwrap());
    assert!(db_time > 0, "{}", run.case);
    // What is waited for in a statement that has not ended when the snapshot is taken is in no
    // DB time yet: where others take the processors, that is most of so short a run. The study
    // says so of its figures itself.
    let disturbed = |warning: &Warning| ["others", "steal"].contains(&warning.code.as_str());
    if run.warnings.iter().any(disturbed) {
        eprintln!(
            "skipped: that the time of a run is counted once, because other programs use the \
             processors"
        );
        return;
    }
    // Time is counted once: on a mapped medium a wait is processor time too. And each
    // thread may be in a statement that has waited once, as long as the longest
    // wait for a disk.
    let longest = interval.waits.iter().filter_map(|wait| wait.histogram.max_ns()).max();
    let not_ended_ns = 100_000_000 + threads * longest.unwrap();
    let sum = cpu + interval.waited_ns();
    assert!(sum <= db_time + db_time / 10 + not_ended_ns, "{}: {sum} of {db_time}", run.case);
    assert!(cpu > 0 || run.case.starts_with("redo-on-"), "{}", run.case);
}

#[test]
fn the_default_set_runs_and_every_case_does_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = small(case::choose(&[], false).unwrap(), dir.path());
    options.snapshots = Some(dir.path().join("snapshots"));
    let threads: HashMap<_, _> = options
        .cases
        .iter()
        .map(|case| (case.id.clone(), u64::from(case.slob.sessions())))
        .collect();
    let result = run(&options);
    nothing_left(dir.path());
    assert_eq!(result.runs.len(), 8);
    assert!(result.places.emulated);
    for run in &result.runs {
        assert_eq!(run.measured.end.is_emulated(), run.case != "redo-on-home");
        it_did_the_load(run);
        it_waited_for_what_its_case_says(run);
        its_time_is_counted_once(run, threads[&run.case]);
    }
    for pct in [100, 25] {
        let rows = result.rows(pct);
        assert_eq!(rows.len(), 4);
        assert!(
            rows[0].baseline.is_none()
                && rows[1..].iter().all(|row| row.transactions_ratio().is_some())
        );
    }
    let text = text::render(&result);
    for expected in [
        "EMULATED",
        "redo-on-tier (?)",
        "oracle-vsphere-pmem",
        "other hardware",
        "Warnings",
        "log file",
    ] {
        assert!(text.contains(expected), "no {expected} in\n{text}");
    }
    let page = html::render(&result).unwrap();
    assert!(page.contains("EMULATED") && page.contains("<svg") && !page.contains("<script"));
    let again = StudyResult::from_json(&result.to_json().unwrap(), "test").unwrap();
    assert_eq!(text::render(&again), text);
}

#[test]
fn several_schemas_threads_and_rounds_make_one_comparison() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = small(case::choose(&["all-on-tier".into()], false).unwrap(), dir.path());
    options.schemas = Some(2);
    options.threads_per_schema = Some(2);
    options.rounds = 2;
    for case in &mut options.cases {
        case.update_pcts = vec![50];
        case.slob.hot_schema_frequency = 7;
        case.slob.scan_pct = 5;
    }
    let result = run(&options);
    nothing_left(dir.path());
    assert_eq!(result.runs.len(), 4);
    let rows = result.rows(50);
    assert!(rows.iter().all(|row| row.spread.0 <= row.run.measured.executes_per_s()));
    assert!(
        result
            .all_warnings()
            .iter()
            .any(|(_, w)| w.code == "more-sessions-than-processors" || w.code == "small-scale")
    );
}

#[test]
fn every_journal_mode_and_locking_mode_runs_on_the_tier_and_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = small(
        case::choose(&["redo-on-home".into(), "all-on-tier".into()], false).unwrap(),
        dir.path(),
    );
    options.seconds = 0.1;
    let mut cases = Vec::new();
    for case in &options.cases {
        for (mode, name) in [
            (JournalMode::Persist, "persist"),
            (JournalMode::Truncate, "truncate"),
            (JournalMode::Wal, "wal"),
        ] {
            let mut case = case.clone();
            case.id = format!("{}-{name}", case.id);
            case.baseline = None;
            case.update_pcts = vec![50];
            case.sqlite.journal_mode = mode;
            case.sqlite.exclusive = mode != JournalMode::Truncate;
            case.sqlite.page_size = 8192;
            cases.push(case);
        }
    }
    options.cases = cases;
    let result = run(&options);
    assert_eq!(result.runs.len(), 6);
    assert!(result.runs.iter().all(|run| run.measured.executes > 0));
    nothing_left(dir.path());
}

#[test]
fn a_rate_that_cannot_be_kept_is_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = small(case::choose(&["redo-on-home".into()], false).unwrap(), dir.path());
    options.cases[0].update_pcts = vec![100];
    options.arrivals_per_s = Some(1e6);
    let result = run(&options);
    let run = &result.runs[0];
    assert!(run.warnings.iter().any(|w| w.code == "overloaded"), "{:?}", run.warnings);
    let response = run.measured.response.unwrap();
    assert!(response.mean_ns > run.measured.update.mean_ns);
}

/// Asks the study to stop when it has done one run.
struct StopAfterOne(Leftovers);

impl Progress for StopAfterOne {
    fn step(&self, _: &str, _: f64) {}
    fn done(&self, _: &RunResult) {
        self.0.stop();
    }
}

#[test]
fn a_study_that_is_interrupted_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options = small(case::choose(&["redo-on-tier".into()], false).unwrap(), dir.path());
    let leftovers = Leftovers::default();
    let error = study::run(&options, leftovers.clone(), &StopAfterOne(leftovers)).unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
    nothing_left(dir.path());
}

#[test]
fn a_tier_smaller_than_the_database_waits_for_room_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = small(case::choose(&["batch-on-tier".into()], false).unwrap(), dir.path());
    options.cases[1].update_pcts = vec![100];
    options.tier_size = Some(ByteSize(1 << 20));
    // The study itself counts the rows and checks the database after each run.
    let result = run(&options);
    nothing_left(dir.path());
    let run = result.runs.iter().find(|run| run.case == "batch-on-tier").unwrap();
    assert!(run.wait_mean_ns("free buffer waits").is_some());
}

#[test]
fn settings_out_of_range_are_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let good = small(case::choose(&["redo-on-home".into()], false).unwrap(), dir.path());
    for options in [
        Options { seconds: 0.0, ..good.clone() },
        Options { seconds: f64::NAN, ..good.clone() },
        Options { rounds: 0, ..good.clone() },
        Options { scale: Some(ByteSize(1)), ..good.clone() },
        Options { schemas: Some(0), ..good.clone() },
        Options { arrivals_per_s: Some(-1.0), ..good.clone() },
    ] {
        let error = study::run(&options, Leftovers::default(), &Silent).unwrap_err().to_string();
        assert!(error.starts_with("the setting "), "{error}");
    }
    nothing_left(dir.path());
}
