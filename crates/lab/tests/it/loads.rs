//! Loads whose transactions are statements of their own, small: YCSB A to F, OLTP like sysbench's,
//! SAP's client copy, on SQLite and on servers, and their checks.
//!
//! Deliberately absent: TPC-C's (`tpcc.rs`), figures.

use std::path::Path;

use tiersmith_lab::ByteSize;
use tiersmith_lab::case::{self, Case, Load};
use tiersmith_lab::place::Leftovers;
use tiersmith_lab::server;
use tiersmith_lab::sql::{self, Sql};
use tiersmith_lab::study::result::{RunResult, StudyResult};
use tiersmith_lab::study::{self, Options, Silent, text};
use tiersmith_lab::target::loads;

/// The loads, each with what its transactions are called.
const LOADS: [(Load, &[&str]); 10] = [
    (Load::YcsbA, &["Read", "Update"]),
    (Load::YcsbB, &["Read", "Update"]),
    (Load::YcsbC, &["Read"]),
    (Load::YcsbD, &["Read", "Insert"]),
    (Load::YcsbE, &["Scan", "Insert"]),
    (Load::YcsbF, &["Read", "Read-Modify-Write"]),
    (Load::OltpReadOnly, &["Read only"]),
    (Load::OltpReadWrite, &["Read and write"]),
    (Load::OltpWriteOnly, &["Write only"]),
    (Load::ClientCopy, &["Copy of rows", "Delete of rows", "Client copied", "Client deleted"]),
];

fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    for place in ["home", "fast"] {
        std::fs::create_dir(dir.path().join(place)).unwrap();
    }
    dir
}

fn options(target: &str, name: &str, load: Load, dir: &Path) -> Options {
    let mut cases = case::choose_for(target, &[name.to_owned()], false).unwrap();
    cases.retain(|case| case.id == name);
    for case in &mut cases {
        case.baseline = None;
        case.client_copy.tables = 3;
        // A job is three commits: a disk that is busy takes its time for each.
        case.client_copy.rows_at_once = 1000;
        // A server that is killed leaves none of it in /dev/shm: it goes with the directory.
        let mine = case.server.settings.entry("postgres".into()).or_default();
        mine.insert("dynamic_shared_memory_type".into(), "mmap".into());
    }
    let mut options = Options::new(cases);
    options.load = Some(load);
    options.clients = Some(3);
    options.seconds = if load == Load::ClientCopy { 1.0 } else { 0.4 };
    options.scale = Some(ByteSize(1 << 20));
    options.tier_size = Some(ByteSize(96 << 20));
    options.home = Some(dir.join("home"));
    options.fast = Some(dir.join("fast"));
    options
}

/// Its one run has transactions of each kind, times, and a label. On a disk that is busy, a client
/// may not be copied and deleted in a second.
fn is_whole<'a>(result: &'a StudyResult, load: Load, kinds: &[&str]) -> &'a RunResult {
    let run = &result.runs[0];
    let measured = &run.measured;
    let on_disk = load == Load::ClientCopy && run.case != "tpcc-all-on-tier";
    for kind in &kinds[..if on_disk { 1 } else { kinds.len() }] {
        let found = measured.kinds.iter().find(|one| one.name == *kind);
        let latency =
            found.unwrap_or_else(|| panic!("{load:?}: no {kind}: {:?}", measured.kinds)).latency;
        assert!(latency.count > 0 && latency.median_ns > 0, "{load:?}: {kind}: {latency:?}");
        assert!(
            latency.p95_ns >= latency.median_ns && latency.p999_ns >= latency.p99_ns,
            "{latency:?}"
        );
    }
    let others: Vec<_> = measured
        .kinds
        .iter()
        .filter(|one| one.latency.count > 0 && !kinds.contains(&one.name.as_str()))
        .collect();
    assert!(others.is_empty(), "{load:?}: {others:?}");
    assert!(measured.executes > 0 && run.interval().unwrap().db_time_ns.unwrap() > 0, "{load:?}");
    assert!(result.load.starts_with(load.title()), "{}", result.load);
    let shown = text::render(result);
    assert!(shown.contains(kinds[0]) && shown.contains("p99.9"), "{shown}");
    run
}

#[test]
fn every_load_runs_on_sqlite_beside_the_tier_and_on_it_and_leaves_what_must_be_there() {
    let dir = place();
    for (load, kinds) in LOADS {
        for case in ["tpcc-on-home", "tpcc-all-on-tier"] {
            let options = options("sqlite", case, load, dir.path());
            let result = study::run(&options, Leftovers::default(), &Silent).unwrap();
            is_whole(&result, load, kinds);
        }
    }
}

/// On a server; nothing, and a line that says why, where it is not here.
fn on_a_server(target: &str, load: Load, case: &str) -> Option<StudyResult> {
    let product = server::product(target).unwrap();
    if let Err(e) = server::find(product).and_then(|_| server::account(product)) {
        eprintln!("skipped: the load {} on {target}, because {e}", load.name());
        return None;
    }
    let dir = place();
    match study::run(&options(target, case, load, dir.path()), Leftovers::default(), &Silent) {
        Err(e) if e.to_string().contains("skipped: ") => {
            eprintln!("{e}");
            None
        }
        result => Some(result.unwrap()),
    }
}

/// Loads that have every statement between them.
fn every_statement_on(target: &str) {
    for n in [4, 5, 7, 9] {
        let (load, kinds) = LOADS[n];
        if let Some(result) = on_a_server(target, load, "server-on-home") {
            is_whole(&result, load, kinds);
        }
    }
}

#[test]
fn every_statement_runs_on_postgres_and_leaves_what_must_be_there() {
    every_statement_on("postgres");
}

#[test]
fn every_statement_runs_on_mariadb_and_leaves_what_must_be_there() {
    every_statement_on("mariadb");
}

#[test]
fn every_mix_of_ycsb_runs_on_redis_and_leaves_what_must_be_there() {
    for (load, kinds) in LOADS.into_iter().filter(|(load, _)| load.is_ycsb()) {
        if let Some(result) = on_a_server("redis", load, "server-on-home") {
            is_whole(&result, load, kinds);
        }
    }
}

#[test]
fn a_client_is_copied_on_a_mount_with_the_redo_on_the_tier() {
    if let Some(result) = on_a_server("postgres", Load::ClientCopy, "server-redo-on-mount") {
        is_whole(&result, Load::ClientCopy, LOADS[9].1);
    }
}

#[test]
fn two_hundred_clients_ask_a_redis_at_once() {
    let product = server::product("redis").unwrap();
    if let Err(e) = server::find(product).and_then(|_| server::account(product)) {
        eprintln!("skipped: two hundred clients, because {e}");
        return;
    }
    let dir = place();
    let mut options = options("redis", "server-on-home", Load::Mixed, dir.path());
    options.clients = Some(200);
    let result = study::run(&options, Leftovers::default(), &Silent).unwrap();
    assert!(result.load.contains("200 clients"), "{}", result.load);
    assert!(result.runs[0].measured.executes >= 200);
    options.clients = Some(1001);
    let refused = study::run(&options, Leftovers::default(), &Silent).unwrap_err().to_string();
    assert!(refused.contains("give 1 to 1000"), "{refused}");
}

#[test]
fn operations_that_arrive_at_fixed_times_are_timed_from_when_they_were_due() {
    let dir = place();
    let mut options = options("sqlite", "tpcc-on-home", Load::YcsbC, dir.path());
    options.arrivals_per_s = Some(300.0);
    options.seconds = 1.0;
    let result = study::run(&options, Leftovers::default(), &Silent).unwrap();
    let measured = &result.runs[0].measured;
    let response = measured.response.unwrap();
    // Not more than arrive; a busy machine may do fewer.
    assert!(response.count > 0 && measured.executes_per_s() < 330.0, "{measured:?}");
    let read = measured.kinds.iter().find(|kind| kind.name == "Read").unwrap().latency;
    assert!(response.mean_ns >= read.mean_ns, "{response:?} {read:?}");
}

#[test]
fn the_application_takes_its_share_of_a_client_copy() {
    let dir = place();
    let mut options = options("sqlite", "tpcc-on-home", Load::ClientCopy, dir.path());
    options.clients = Some(1);
    options.cases[0].client_copy.rows_at_once = 50;
    let busy = |options: &Options| {
        let result = study::run(options, Leftovers::default(), &Silent).unwrap();
        let measured = &result.runs[0].measured;
        let parts = measured.kinds.iter().filter(|kind| kind.name.ends_with("of rows"));
        parts.map(|kind| kind.latency.mean_ns * kind.latency.count as f64).sum::<f64>()
            / 1e9
            / measured.elapsed_s
    };
    let alone = busy(&options);
    options.application_pct = Some(50);
    let shared = busy(&options);
    assert!(alone > 0.8, "{alone}");
    assert!((0.3..0.6).contains(&shared), "{shared}");
}

fn case_of(load: Load) -> Case {
    let mut case = case::choose_for("sqlite", &["tpcc-on-home".into()], false).unwrap().remove(0);
    case.server.load = load;
    case.slob.scale = ByteSize(1 << 20);
    case.client_copy.tables = 2;
    case
}

/// A check finds each mistake that is planted for it, and nothing once it was taken back.
fn finds(load: Load, prepare: &str, planted: &[(&str, &str, &str)]) {
    let dir = tempfile::tempdir().unwrap();
    let mut sql = sql::open_sqlite(&dir.path().join("planted.db")).unwrap();
    let case = case_of(load);
    let of = loads::of(&case, &case.slob).unwrap();
    of.fill(sql.as_mut(), 1, &|_| true).unwrap();
    let at = Path::new("planted");
    sql.batch(prepare).unwrap();
    of.check(sql.as_mut(), at).unwrap();
    for (mistake, undo, expected) in planted {
        sql.batch(mistake).unwrap();
        let found = of.check(sql.as_mut(), at).unwrap_err().to_string();
        assert!(found.contains(expected), "{mistake}: {found}");
        sql.batch(undo).unwrap();
        of.check(sql.as_mut(), at).unwrap();
    }
}

#[test]
fn a_record_that_is_gone_or_mixed_up_is_found_after_ycsb() {
    let row = "(SELECT MIN(ycsb_key) FROM usertable)";
    let keep = format!("CREATE TABLE kept AS SELECT * FROM usertable WHERE ycsb_key = {row}");
    let remove = format!("DELETE FROM usertable WHERE ycsb_key = {row}");
    let mix = "UPDATE usertable SET field3 = 'userx' || substr(field3, 6) \
               WHERE ycsb_key = (SELECT ycsb_key FROM kept)";
    let right = "UPDATE usertable SET field3 = (SELECT field3 FROM kept) \
                 WHERE ycsb_key = (SELECT ycsb_key FROM kept)";
    finds(
        Load::YcsbA,
        &keep,
        &[
            (&remove, "INSERT INTO usertable SELECT * FROM kept", "records must be there"),
            (
                "UPDATE usertable SET field3 = 'x' WHERE ycsb_key = (SELECT ycsb_key FROM kept)",
                right,
                "field3",
            ),
            (mix, right, "field3 of 1 records belongs to another record"),
        ],
    );
}

#[test]
fn a_row_that_is_gone_or_too_many_is_found_after_oltp() {
    finds(
        Load::OltpReadWrite,
        "CREATE TABLE kept AS SELECT * FROM sbtest2 WHERE id = 7",
        &[
            (
                "DELETE FROM sbtest2 WHERE id = 7",
                "INSERT INTO sbtest2 SELECT * FROM kept",
                "sbtest2",
            ),
            (
                "INSERT INTO sbtest4 SELECT 999999, k, c, pad FROM sbtest4 WHERE id = 1",
                "DELETE FROM sbtest4 WHERE id = 999999",
                "sbtest4",
            ),
        ],
    );
}

#[test]
fn a_row_that_is_no_copy_is_found_after_a_client_copy() {
    finds(
        Load::ClientCopy,
        "INSERT INTO sap001 SELECT 100, id, text FROM sap001 WHERE mandt = 0",
        &[
            (
                "UPDATE sap001 SET text = text || 'x' WHERE mandt = 100 AND id = 3",
                "UPDATE sap001 SET text = (SELECT text FROM sap001 b WHERE b.mandt = 0 AND b.id = \
                 3) \
                 WHERE mandt = 100 AND id = 3",
                "1 rows of copies in sap001 are no copies",
            ),
            (
                "UPDATE sap002 SET mandt = 100 WHERE mandt = 0 AND id = 5",
                "UPDATE sap002 SET mandt = 0 WHERE mandt = 100 AND id = 5",
                "client 0 had",
            ),
        ],
    );
}

#[test]
fn the_same_seed_loads_the_same_rows() {
    let dir = tempfile::tempdir().unwrap();
    let sum = |load: Load, name: &str, seed, query: &str| {
        let mut sql: Box<dyn Sql> = sql::open_sqlite(&dir.path().join(name)).unwrap();
        let case = case_of(load);
        loads::of(&case, &case.slob).unwrap().fill(sql.as_mut(), seed, &|_| true).unwrap();
        sql.table(query).unwrap()
    };
    for (load, query) in [
        (Load::YcsbA, "SELECT group_concat(field2) FROM usertable"),
        (Load::OltpReadWrite, "SELECT group_concat(c), SUM(k) FROM sbtest3"),
        (Load::ClientCopy, "SELECT group_concat(text) FROM sap002"),
    ] {
        let name = |n: &str| format!("{}-{n}", load.name());
        assert_eq!(sum(load, &name("a"), 1, query), sum(load, &name("b"), 1, query), "{load:?}");
        assert_ne!(sum(load, &name("c"), 2, query), sum(load, &name("d"), 3, query), "{load:?}");
    }
}
