//! Outside programs beside our own loads, small, on real servers, plain and attached.
//!
//! Deliberately absent: figures that must agree. A run of a second on a busy machine says nothing
//! of a generator.

use std::path::Path;

use tiersmith_lab::case::{self, Load};
use tiersmith_lab::place::{Leftovers, mounts};
use tiersmith_lab::study::cross_check::Beside;
use tiersmith_lab::study::result::StudyResult;
use tiersmith_lab::study::{self, Options, Silent, html, text};
use tiersmith_lab::{ByteSize, server};

/// A place that servers can reach; nothing, and a line that says why, if the server is not here.
fn place(target: &str) -> Option<tempfile::TempDir> {
    let product = server::product(target).unwrap();
    if let Err(e) = server::find(product).and_then(|_| server::account(product)) {
        eprintln!("skipped: a cross-check on {target}, because {e}");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    for place in ["home", "fast"] {
        std::fs::create_dir(dir.path().join(place)).unwrap();
    }
    Some(dir)
}

fn options(target: &str, load: Load, cases: &[&str], dir: &Path) -> Options {
    let names: Vec<String> = cases.iter().map(|name| (*name).to_owned()).collect();
    let mut options = Options::new(case::choose_for(target, &names, false).unwrap());
    for case in &mut options.cases {
        // A server that is killed leaves none of it in /dev/shm: it goes with the directory.
        let mine = case.server.settings.entry("postgres".into()).or_default();
        mine.insert("dynamic_shared_memory_type".into(), "mmap".into());
        case.update_pcts = vec![100];
    }
    options.load = Some(load);
    options.clients = Some(2);
    options.seconds = 0.5;
    options.scale = Some(ByteSize(4 << 20));
    options.tier_size = Some(ByteSize(160 << 20));
    options.home = Some(dir.join("home"));
    options.fast = Some(dir.join("fast"));
    options.emulate = true;
    options.cross_check = true;
    options
}

/// Runs it; nothing is left, and text, page and JSON have the same comparison.
fn ran(options: &Options, dir: &Path) -> StudyResult {
    let result = study::run(options, Leftovers::default(), &Silent).unwrap();
    for place in ["home", "fast"] {
        assert_eq!(std::fs::read_dir(dir.join(place)).unwrap().count(), 0, "{place}");
    }
    assert!(!mounts().iter().any(|mount| mount.at.starts_with(dir)));
    let again = StudyResult::from_json(&result.to_json().unwrap(), "it").unwrap();
    assert_eq!(again.cross_check, result.cross_check);
    let (shown, page) = (text::render(&again), html::render(&again).unwrap());
    for row in &result.cross_check.as_ref().unwrap().rows {
        assert!(shown.contains("Cross-check") && shown.contains(&row.program), "{shown}");
        assert!(page.contains("Cross-check") && page.contains(&row.program));
    }
    result
}

/// The rows of a program: one for each case that ran. Nothing, and its line, if it is not here.
fn rows<'a>(result: &'a StudyResult, program: &str) -> Vec<&'a Beside> {
    let check = result.cross_check.as_ref().unwrap();
    let rows: Vec<&Beside> = check.rows.iter().filter(|row| row.program == program).collect();
    let note = format!("skipped: cross-check by {program}, because {program} is not installed; ");
    let skipped = result.warnings.iter().find(|one| one.sentence.starts_with(&note));
    assert!(rows.is_empty() != skipped.is_none(), "{program}: {:?}", result.warnings);
    if let Some(skipped) = skipped {
        eprintln!("{}", skipped.sentence);
        assert!(skipped.is_note && skipped.code == "cross-check-skipped");
        return rows;
    }
    let known = check.programs.iter().find(|one| one.name == program).unwrap();
    assert!(known.version.starts_with(|c: char| c.is_ascii_digit()), "{known:?}");
    assert_eq!(rows.len(), result.cases.len());
    for row in &rows {
        assert_eq!(row.failed, None, "{row:?}");
        let (ours, theirs) = (row.tiersmith.unwrap(), row.outside.unwrap());
        assert!(ours.count > 0 && theirs.count > 0 && ours.per_s > 0.0, "{row:?}");
        assert!((row.ratio.unwrap() - ours.per_s / theirs.per_s).abs() < 1e-9);
        let said = result
            .warnings
            .iter()
            .any(|one| one.code == "generators-disagree" && one.sentence.contains(&row.case));
        assert_eq!(row.disagree, said, "{row:?}");
    }
    rows
}

#[test]
fn sysbench_runs_beside_our_clients_on_a_plain_and_an_attached_postgres() {
    let Some(dir) = place("postgres") else { return };
    let cases = ["server-redo-on-mount"];
    let options = options("postgres", Load::OltpReadWrite, &cases, dir.path());
    let result = ran(&options, dir.path());
    for row in rows(&result, "sysbench") {
        assert_eq!(row.unit, "transactions");
        assert!(row.outside.unwrap().p95_ns.is_some() && row.tiersmith.unwrap().p95_ns.is_some());
        // sysbench takes whole seconds.
        assert!(row.outside.unwrap().elapsed_s >= 0.9, "{row:?}");
    }
    // The outside program's runs are not the study's.
    assert_eq!(result.runs.len(), result.cases.len());
    assert!(!result.cross_check.as_ref().unwrap().has_failed());
}

#[test]
fn our_clients_run_beside_sysbench_on_mariadb() {
    let Some(dir) = place("mariadb") else { return };
    let mut options = options("mariadb", Load::ReadOnly, &["server-on-home"], dir.path());
    for case in &mut options.cases {
        let mine = case.server.settings.entry("mariadb".into()).or_default();
        mine.insert("innodb-log-file-size".into(), "16M".into());
    }
    let product = server::product("mariadb").unwrap();
    if server::find(product).unwrap().get("sysbench").is_none() {
        eprintln!("skipped: our clients beside sysbench, because sysbench is not installed");
        return;
    }
    let result = ran(&options, dir.path());
    assert_eq!(rows(&result, "sysbench").len(), 1);
}

#[test]
fn our_clients_run_beside_each_script_of_pgbench_and_leave_balances_that_add_up() {
    let Some(dir) = place("postgres") else { return };
    if server::find(server::product("postgres").unwrap()).unwrap().get("pgbench").is_none() {
        eprintln!("skipped: our clients beside pgbench, because pgbench is not installed");
        return;
    }
    for load in [Load::Tpcb, Load::SimpleUpdate, Load::SelectOnly] {
        let options = options("postgres", load, &["server-on-home"], dir.path());
        let result = ran(&options, dir.path());
        assert_eq!(rows(&result, "pgbench").len(), 1, "{load:?}");
    }
}

#[test]
fn redis_benchmark_and_memtier_run_beside_our_clients_on_redis() {
    let Some(dir) = place("redis") else { return };
    let mixed = options("redis", Load::Mixed, &["server-redo-on-mount"], dir.path());
    let result = ran(&mixed, dir.path());
    for program in ["redis-benchmark", "memtier_benchmark"] {
        assert!(rows(&result, program).iter().all(|row| row.unit == "requests"));
    }
    let set = options("redis", Load::Set, &["server-on-home"], dir.path());
    if server::find(server::product("redis").unwrap()).unwrap().get("redis-benchmark").is_some() {
        assert_eq!(rows(&ran(&set, dir.path()), "redis-benchmark").len(), 1);
    }
}

#[test]
fn in_even_rounds_the_program_is_first() {
    struct Heard(std::sync::Mutex<Vec<bool>>);
    impl study::Progress for Heard {
        fn step(&self, what: &str, _: f64) {
            if what.ends_with("copying the database") {
                self.0.lock().unwrap().push(what.contains("cross-check"));
            }
        }
        fn done(&self, _: &study::result::RunResult) {}
    }
    let Some(dir) = place("redis") else { return };
    if server::find(server::product("redis").unwrap()).unwrap().get("redis-benchmark").is_none() {
        eprintln!("skipped: turns with redis-benchmark, because it is not installed");
        return;
    }
    let mut options = options("redis", Load::Set, &["server-on-home"], dir.path());
    options.rounds = 2;
    options.seconds = 0.1;
    let heard = Heard(std::sync::Mutex::default());
    study::run(&options, Leftovers::default(), &heard).unwrap();
    assert_eq!(*heard.0.lock().unwrap(), [false, true, true, false]);
}

#[test]
fn a_load_that_nobody_else_runs_has_a_line_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    for place in ["home", "fast"] {
        std::fs::create_dir(dir.path().join(place)).unwrap();
    }
    for (load, expected) in [
        (Load::OltpReadOnly, "sysbench, which stands beside oltp-read-only, does not know SQLite"),
        (Load::YcsbC, "nothing outside runs the load ycsb-c"),
    ] {
        let mut options = options("sqlite", load, &["tpcc-on-home"], dir.path());
        options.seconds = 0.1;
        let result = ran(&options, dir.path());
        assert!(result.cross_check.as_ref().unwrap().rows.is_empty());
        assert!(text::render(&result).contains("There is no cross-check"), "{load:?}");
        assert!(result.warnings.iter().any(|one| one.sentence.contains(expected)), "{load:?}");
        assert!(!result.cross_check.as_ref().unwrap().has_failed());
    }
    let without = Options {
        cross_check: false,
        ..options("sqlite", Load::YcsbC, &["tpcc-on-home"], dir.path())
    };
    let result = study::run(&without, Leftovers::default(), &Silent).unwrap();
    assert!(result.cross_check.is_none() && !result.to_json().unwrap().contains("cross_check"));
}
