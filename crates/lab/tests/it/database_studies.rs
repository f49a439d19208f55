//! Studies of servers, small: every redo case of each product, through the mount too, in a
//! temporary directory.
//!
//! Deliberately absent: servers by themselves (`servers.rs`), figures.

use std::path::Path;
use std::time::Duration;

use tiersmith_awr::Snapshot;

use tiersmith_lab::case::{self, Case, Load, Placement};
use tiersmith_lab::place::{self, Leftovers, Wishes, mounts};
use tiersmith_lab::run::{Plans, Program};
use tiersmith_lab::study::result::{RunResult, StudyResult};
use tiersmith_lab::study::{self, Options, Progress, Silent, html, text};
use tiersmith_lab::target::{self, Ground};
use tiersmith_lab::workload::keys::Instead;
use tiersmith_lab::{ByteSize, Error, server};

/// A directory that servers can reach; nothing, and a line that says why, if the product is not
/// here.
fn ground(name: &str) -> Option<tempfile::TempDir> {
    let product = server::product(name).unwrap();
    if let Err(e) = server::find(product).and_then(|_| server::account(product)) {
        eprintln!("skipped: a study of {name}, because {e}");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    for place in ["home", "fast"] {
        std::fs::create_dir(dir.path().join(place)).unwrap();
    }
    Some(dir)
}

fn small(cases: Vec<Case>, dir: &Path) -> Options {
    let mut options = Options::new(cases);
    options.seconds = 0.5;
    options.scale = Some(ByteSize(4 << 20));
    options.tier_size = Some(ByteSize(160 << 20));
    options.home = Some(dir.join("home"));
    options.fast = Some(dir.join("fast"));
    options.emulate = true;
    for case in &mut options.cases {
        case.slob.work_unit = 8;
        let small = [
            ("postgres", "max_wal_size", "64MB"),
            // A server that is killed leaves none of it in /dev/shm: it goes with the directory.
            ("postgres", "dynamic_shared_memory_type", "mmap"),
            ("mariadb", "innodb-log-file-size", "16M"),
        ];
        for (product, setting, value) in small {
            let settings = case.server.settings.entry(product.into()).or_default();
            settings.insert(setting.into(), value.into());
        }
    }
    options
}

fn nothing_left(dir: &Path) {
    for place in ["home", "fast"] {
        let left: Vec<_> =
            std::fs::read_dir(dir.join(place)).unwrap().map(|e| e.unwrap().path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
    let mounted: Vec<_> = mounts().into_iter().filter(|mount| mount.at.starts_with(dir)).collect();
    assert!(mounted.is_empty(), "{mounted:?}");
}

fn run(options: &Options) -> StudyResult {
    study::run(options, Leftovers::default(), &Silent).unwrap()
}

/// What was left out is said, and nothing else is missing.
fn all_ran_or_were_skipped(result: &StudyResult, cases: &[Case]) {
    for case in cases {
        let ran = result.runs.iter().any(|run| run.case == case.id);
        let note =
            result.warnings.iter().find(|w| w.code == "skipped" && w.sentence.contains(&case.id));
        if let Some(note) = note {
            eprintln!("{}", note.sentence);
        }
        assert!(ran != note.is_some(), "{}: ran {ran}, note {note:?}", case.id);
    }
}

/// The two cases with something on the tier, where that is a file on a disk.
fn on_flash(name: &str) {
    let Some(dir) = ground(name) else { return };
    let wanted = ["server-redo-on-mount", "server-all-on-mount"].map(str::to_owned);
    let cases = case::choose_for(name, &wanted, false).unwrap();
    let options = Options { emulate: false, ..small(cases.clone(), dir.path()) };
    let result = run(&options);
    nothing_left(dir.path());
    all_ran_or_were_skipped(&result, &cases);
    if result.places.emulated {
        eprintln!("skipped: {name} on flash, because temporary files are in memory here");
        return;
    }
    for run in &result.runs {
        let measured = &run.measured;
        assert!(measured.transactions > 0, "{}", run.case);
        assert!(!measured.end.is_emulated(), "{}", run.case);
        let media = &measured.end.media;
        let on_tier = wanted.contains(&run.case);
        let found = media.iter().any(|medium| medium.kind.contains("flash"));
        assert_eq!(found, on_tier, "{}: {media:?}", run.case);
    }
}

#[test]
fn postgresql_is_studied_on_a_tier_that_is_a_file_on_a_disk() {
    on_flash("postgres");
}

#[test]
fn redis_is_studied_on_a_tier_that_is_a_file_on_a_disk() {
    on_flash("redis");
}

fn redo_cases(name: &str) {
    let Some(dir) = ground(name) else { return };
    let cases = case::choose_for(name, &["redo".into()], false).unwrap();
    let options = small(cases.clone(), dir.path());
    let result = run(&options);
    nothing_left(dir.path());
    all_ran_or_were_skipped(&result, &cases);
    // What has no setting for it would only do again what it did in the case before.
    let once = "server-all-written-once";
    let left_out = result
        .warnings
        .iter()
        .any(|w| w.sentence.contains(once) && w.sentence.contains("no page twice"));
    let ran = !result.runs.is_empty();
    assert_eq!(left_out, name == "redis" && ran, "{:?}", result.warnings);
    for run in &result.runs {
        let measured = &run.measured;
        assert!(
            measured.executes > 0 && measured.transactions > 0 && measured.commit.count > 0,
            "{}",
            run.case
        );
        assert_eq!(measured.rows % 7, 0, "{}", run.case);
        run.interval().unwrap();
        if name != "redis" {
            assert!(
                run.redo_bytes_per_transaction().is_some() || measured.transactions < 50,
                "{}",
                run.case
            );
        }
        let on_mount = matches!(
            cases.iter().find(|case| case.id == run.case).unwrap().placement,
            Placement::Redo | Placement::All
        );
        assert_eq!(
            run.warnings.iter().any(|w| w.code == "mount"),
            on_mount,
            "{}: {:?}",
            run.case,
            run.warnings
        );
        if on_mount {
            let tier: u64 =
                ["tier redo write", "tier block write"].iter().filter_map(|e| run.counter(e)).sum();
            let waited = measured.end.waits.iter().any(|wait| wait.background && wait.count > 0);
            assert!(tier > 0 || waited, "{}: nothing reached the tier", run.case);
            // The server's count of its redo is not the sum of its own and the tier's.
            let names: Vec<&str> = measured.end.counters.iter().map(|c| c.name.as_str()).collect();
            assert!(names.contains(&"redo size") && names.contains(&"tier redo size"), "{names:?}");
        }
        assert!(measured.end.is_emulated() == on_mount, "{}", run.case);
    }
    let text = text::render(&result);
    assert!(text.contains("EMULATED") && text.contains(&result.database_version), "{text}");
    let page = html::render(&result).unwrap();
    assert!(page.contains(&result.database) && !page.contains("<script"));
    let again = StudyResult::from_json(&result.to_json().unwrap(), "test").unwrap();
    assert_eq!(text::render(&again), text);
}

#[test]
fn every_redo_case_runs_on_postgres() {
    redo_cases("postgres");
}

#[test]
fn every_redo_case_runs_on_mariadb() {
    redo_cases("mariadb");
}

#[test]
fn every_redo_case_runs_on_redis() {
    redo_cases("redis");
}

#[test]
fn the_databases_own_load_programs_run_and_their_transactions_are_timed() {
    for (name, load) in [
        ("postgres", Load::Tpcb),
        ("mariadb", Load::ReadWrite),
        ("redis", Load::Set),
        ("redis", Load::Mixed),
    ] {
        let Some(dir) = ground(name) else { continue };
        let mut options =
            small(case::choose_for(name, &["server-on-home".into()], false).unwrap(), dir.path());
        options.seconds = if load == Load::Mixed { 0.5 } else { 2.0 };
        options.keys = Instead { pipeline: Some(4), ..Instead::default() };
        options.load = Some(load);
        options.clients = Some(2);
        let result = match study::run(&options, Leftovers::default(), &Silent) {
            Err(Error::Case { reason, .. }) if reason.contains("is not installed") => {
                eprintln!("skipped: {name} under {}, because {reason}", load.title());
                continue;
            }
            result => result.unwrap(),
        };
        nothing_left(dir.path());
        let measured = &result.runs[0].measured;
        let latency = measured.transaction.unwrap();
        assert!(measured.transactions > 0 && measured.executes >= measured.transactions, "{name}");
        if load == Load::Mixed {
            // One in eleven is a SET, and each client may have begun another window.
            let sets = measured.transactions * 11;
            assert!(sets.abs_diff(measured.executes) <= 2 * 11, "{sets} of {}", measured.executes);
            assert_eq!(measured.commit.count, measured.transactions);
            assert_eq!(measured.select.count, measured.executes - measured.transactions);
            assert!(
                text::render(&result).contains("1:10 SETs to GETs"),
                "{}",
                text::render(&result)
            );
        }
        assert!(
            latency.count > 0 && latency.p99_ns >= latency.median_ns && latency.mean_ns > 0.0,
            "{name}: {latency:?}"
        );
        assert!(text::render(&result).contains(load.title()));
    }
}

#[test]
fn so_many_transactions_run_as_were_asked_for_and_all_of_their_redo_is_counted() {
    let Some(dir) = ground("postgres") else { return };
    let product = server::product("postgres").unwrap();
    if server::find(product).unwrap().get("pgbench").is_none() {
        eprintln!("skipped: a number of transactions, because pgbench is not installed");
        return;
    }
    let mut case =
        case::choose_for("postgres", &["server-on-home".into()], false).unwrap().remove(0);
    (case.server.load, case.slob.scale) = (Load::Tpcb, ByteSize(4 << 20));
    let wishes = Wishes {
        home: Some(dir.path().join("home")),
        fast: Some(dir.path().join("fast")),
        members: 1,
        reachable_by: server::account(product).unwrap(),
        ..Wishes::default()
    };
    let places = place::choose(&wishes, Leftovers::default()).unwrap();
    let go_on = |_: f64| true;
    let ground = Ground {
        case: &case,
        slob: &case.slob,
        places: &places,
        home_model: None,
        progress: &go_on,
    };
    let kind = target::kind("postgres").unwrap();
    let loaded = places.home.join("loaded");
    std::fs::create_dir(&loaded).unwrap();
    kind.load(&ground, &loaded).unwrap();
    let opened = kind.open(&ground, &loaded, &places.home.join("run")).unwrap();
    opened.warm().unwrap();
    let plans = |load, clients, transactions| Plans {
        slob: &case.slob,
        block_bytes: case.block_bytes(),
        warm_up: Duration::ZERO,
        run_time: Duration::ZERO,
        program: Some(Program { load, clients, transactions }),
        progress: &|_| {},
        stopped: &|| false,
    };
    let measured = opened.measure(&plans(Load::Tpcb, 2, 40)).unwrap();
    assert_eq!(measured.transactions, 40);
    let grown = |name: &str| {
        let of = |s: &Snapshot| s.counters.iter().find(|c| c.name == name).map_or(0, |c| c.value);
        of(&measured.end) - of(&measured.begin)
    };
    // Three updates, an insert and a commit; what the clients' processes counted has been told when
    // they have gone.
    assert!(grown("WAL records") >= 40 * 5, "{}", grown("WAL records"));
    assert!(grown("redo size") >= 40 * 5 * 24, "{}", grown("redo size"));
    for (load, expected) in [(Load::Slob, "no program"), (Load::Set, "is for redis")] {
        let error = opened.measure(&plans(load, 1, 1)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(opened.server().is_some());
    opened.close().unwrap();
    drop(places);
    nothing_left(dir.path());
}

#[test]
fn a_modelled_home_is_labelled_wherever_its_figures_are() {
    let Some(dir) = ground("redis") else { return };
    let mut options = small(
        case::choose_for("redis", &["server-redo-on-mount".into()], false).unwrap(),
        dir.path(),
    );
    options.home_model = Some("all-flash-array".into());
    let result = match study::run(&options, Leftovers::default(), &Silent) {
        Err(Error::Case { reason, .. }) => {
            eprintln!("skipped: a modelled home, because {reason}");
            return;
        }
        result => result.unwrap(),
    };
    nothing_left(dir.path());
    // The baseline is slowed down as well: its home is reached through a mount whose tier holds
    // nothing.
    let remarks: Vec<_> =
        result.runs.iter().flat_map(|run| &run.warnings).filter(|w| w.code == "mount").collect();
    assert_eq!(remarks.len(), result.runs.len());
    // What the kernel would hand through to the home's own disk would be as fast as that.
    assert!(
        remarks.iter().all(|w| w.sentence.contains("did not go through the kernel alone")),
        "{remarks:?}"
    );
    let text = text::render(&result);
    assert!(text.contains("MODELLED as all-flash-array"), "{text}");
    let note =
        &result.warnings.iter().find(|warning| warning.code == "home-model").unwrap().sentence;
    assert!(note.contains("Its figures are from ") && note.contains("us to a sync"), "{note}");
    assert!(html::render(&result).unwrap().contains("MODELLED"));
}

#[test]
fn a_model_that_is_not_there_and_a_load_of_another_product_are_refused() {
    let Some(dir) = ground("redis") else { return };
    let mut options =
        small(case::choose_for("redis", &["server-on-home".into()], false).unwrap(), dir.path());
    options.home_model = Some("tape".into());
    let error = study::run(&options, Leftovers::default(), &Silent).unwrap_err().to_string();
    assert!(error.contains("15k-disk-array"), "{error}");
    options.home_model = None;
    options.clients = Some(0);
    let error = run_to_error(&options);
    assert!(error.contains("clients = 0") && error.contains("1 to 1000"), "{error}");
    options.clients = None;
    options.keys.pipeline = Some(0);
    let error = run_to_error(&options);
    assert!(error.contains("pipeline = 0") && error.contains("1 to 1000"), "{error}");
    options.keys = Instead::default();
    options.load = Some(Load::Tpcb);
    let error = run_to_error(&options);
    assert!(error.contains("the load tpcb is for postgres"), "{error}");
    nothing_left(dir.path());
}

fn run_to_error(options: &Options) -> String {
    study::run(options, Leftovers::default(), &Silent).unwrap_err().to_string()
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
fn a_study_of_a_server_that_is_interrupted_leaves_nothing() {
    let Some(dir) = ground("redis") else { return };
    let options = small(case::choose_for("redis", &["redo".into()], false).unwrap(), dir.path());
    let leftovers = Leftovers::default();
    let error = study::run(&options, leftovers.clone(), &StopAfterOne(leftovers)).unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
    nothing_left(dir.path());
}
