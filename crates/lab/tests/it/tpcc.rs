//! TPC-C's transactions, small: on SQLite and on servers, their checks, and a kill under load.
//!
//! Deliberately absent: figures; the inputs and the rows by themselves (`workload/tpcc`).

use std::path::Path;

use tiersmith_lab::case::{self, Case, Load};
use tiersmith_lab::place::{Leftovers, mounts};
use tiersmith_lab::server::{self, Server, Site};
use tiersmith_lab::sql::Sql;
use tiersmith_lab::study::result::StudyResult;
use tiersmith_lab::study::{self, Options, Silent, html, operations, text};
use tiersmith_lab::target::tpcc::consistent;
use tiersmith_lab::workload::tpcc::{self, Settings};

const SMALL: Settings = Settings { warehouses: 2, think: false, items: 400, customers: 60 };

/// Whether a product is here; a line that says why if it is not.
fn is_here(name: &str) -> bool {
    let product = server::product(name).unwrap();
    let found = server::find(product).and_then(|_| server::account(product));
    if let Err(e) = &found {
        eprintln!("skipped: TPC-C's transactions on {name}, because {e}");
    }
    found.is_ok()
}

fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    for place in ["home", "fast"] {
        std::fs::create_dir(dir.path().join(place)).unwrap();
    }
    dir
}

fn cases(target: &str, names: &[&str]) -> Vec<Case> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut cases = case::choose_for(target, &names, false).unwrap();
    for case in &mut cases {
        case.tpcc = SMALL;
        case.server.clients = 3;
        let small = [
            ("postgres", "max_wal_size", "64MB"),
            ("postgres", "shared_buffers", "16MB"),
            // A server that is killed leaves none of it in /dev/shm: it goes with the directory.
            ("postgres", "dynamic_shared_memory_type", "mmap"),
            ("mariadb", "innodb-log-file-size", "16M"),
            ("mariadb", "innodb-buffer-pool-size", "32M"),
        ];
        for (product, setting, value) in small {
            let settings = case.server.settings.entry(product.into()).or_default();
            settings.insert(setting.into(), value.into());
        }
    }
    cases
}

/// A study; nothing, and a line that says why, where none of its cases can run.
fn run(cases: Vec<Case>, dir: &Path) -> Option<StudyResult> {
    let mut options = Options::new(cases);
    options.seconds = 0.5;
    options.tier_size = Some(tiersmith_lab::ByteSize(192 << 20));
    options.home = Some(dir.join("home"));
    options.fast = Some(dir.join("fast"));
    let result = match study::run(&options, Leftovers::default(), &Silent) {
        Err(e) if e.to_string().contains("skipped: ") => {
            eprintln!("{e}");
            None
        }
        result => Some(result.unwrap()),
    };
    for place in ["home", "fast"] {
        let left: Vec<_> =
            std::fs::read_dir(dir.join(place)).unwrap().map(|e| e.unwrap().path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
    assert!(!mounts().iter().any(|mount| mount.at.starts_with(dir)));
    result
}

/// A case has throughput, times and labels, and what was killed was checked.
fn is_whole(result: &StudyResult, case: &str, is_server: bool) {
    let run = result.runs.iter().find(|run| run.case == case).unwrap();
    let measured = &run.measured;
    let (orders, all) = (operations::nopm(measured).unwrap(), operations::tpm(measured).unwrap());
    assert!(orders > 0.0 && all >= orders, "{case}: {orders} of {all}");
    let kind = |name: &str| measured.kinds.iter().find(|kind| kind.name == name).unwrap();
    let latency = kind("New-Order").latency;
    assert!(latency.median_ns > 0 && latency.p95_ns >= latency.median_ns, "{latency:?}");
    assert!(latency.p999_ns >= latency.p99_ns && latency.p99_ns >= latency.p95_ns, "{latency:?}");
    assert!(kind("Payment").latency.count > 0);
    assert!(measured.commit.count > 0 && measured.executes > measured.transactions);
    assert!(run.interval().unwrap().db_time_ns.unwrap() > 0);
    let killed = run.warnings.iter().find(|warning| warning.code == "killed");
    assert_eq!(killed.is_some(), is_server, "{case}");
    if let Some(killed) = killed {
        assert!(
            killed.sentence.contains("consistency conditions 1 to 4 hold"),
            "{}",
            killed.sentence
        );
        assert!(!killed.sentence.contains("the 0 orders"), "{}", killed.sentence);
    }
    assert!(result.load.contains(tpcc::LABEL), "{}", result.load);
    for shown in [text::render(result), html::render(result).unwrap(), result.to_json().unwrap()] {
        assert!(shown.contains(tpcc::LABEL), "{shown}");
    }
    let shown = text::render(result);
    assert!(shown.contains("NOPM") && shown.contains("p99.9"), "{shown}");
}

#[test]
fn tpcc_runs_on_sqlite_on_the_tier_and_beside_it_and_stays_consistent() {
    let dir = place();
    let names = ["tpcc-on-home", "tpcc-redo-on-tier", "tpcc-all-on-tier"];
    let result = run(cases("sqlite", &names), dir.path()).unwrap();
    names.iter().for_each(|case| is_whole(&result, case, false));
    // What was printed of the same experiment stands beside it.
    let shown = text::render(&result);
    assert!(shown.contains("sandisk-flash/all-on-flash"), "{shown}");
    assert!(
        shown.contains("vsphere-optane/sql-server-vpmem-aware") && shown.contains("2.7"),
        "{shown}"
    );
}

/// One case alone, which is a server's.
fn survives_a_kill(product: &str, case: &str) {
    if !is_here(product) {
        return;
    }
    let dir = place();
    let mut cases = cases(product, &[case]);
    cases.retain(|one| one.id == case);
    cases[0].baseline = None;
    if let Some(result) = run(cases, dir.path()) {
        is_whole(&result, case, true);
    }
}

#[test]
fn tpcc_on_postgres_is_consistent_after_the_run_and_after_a_kill_on_disk() {
    survives_a_kill("postgres", "tpcc-on-home");
}

#[test]
fn tpcc_on_postgres_without_full_page_writes_survives_a_kill_on_the_mount() {
    survives_a_kill("postgres", "tpcc-written-once");
}

#[test]
fn tpcc_on_mariadb_is_consistent_after_the_run_and_after_a_kill_on_disk() {
    survives_a_kill("mariadb", "tpcc-on-home");
}

#[test]
fn tpcc_on_mariadb_without_doublewrite_survives_a_kill_on_the_mount() {
    survives_a_kill("mariadb", "tpcc-written-once");
}

#[test]
fn tpcc_is_refused_where_no_sql_is_spoken() {
    let dir = place();
    let mut options =
        Options::new(case::choose_for("redis", &["server-on-home".into()], false).unwrap());
    options.load = Some(Load::Tpcc);
    options.home = Some(dir.path().join("home"));
    options.fast = Some(dir.path().join("fast"));
    if is_here("redis") {
        let refused = study::run(&options, Leftovers::default(), &Silent).unwrap_err().to_string();
        assert!(refused.contains("Redis does not speak it"), "{refused}");
    }
    let no_warehouse = Settings { warehouses: 0, ..SMALL };
    assert!(no_warehouse.check().unwrap_err().to_string().contains("give 1 to 10000"));
}

/// One mistake for each condition, planted in a database that is sound, and how it is taken back.
const PLANTED: [(&str, &str, &str); 6] = [
    (
        "condition 1",
        "UPDATE district SET d_ytd = d_ytd + 1 WHERE d_w_id = 2 AND d_id = 3",
        "UPDATE district SET d_ytd = d_ytd - 1 WHERE d_w_id = 2 AND d_id = 3",
    ),
    (
        "condition 2",
        "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 1 AND d_id = 10",
        "UPDATE district SET d_next_o_id = d_next_o_id - 1 WHERE d_w_id = 1 AND d_id = 10",
    ),
    (
        "condition 2",
        "DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 4 AND no_o_id = 60",
        "INSERT INTO new_order VALUES (1, 4, 60)",
    ),
    (
        "condition 3",
        "DELETE FROM new_order WHERE no_w_id = 2 AND no_d_id = 9 AND no_o_id = 50",
        "INSERT INTO new_order VALUES (2, 9, 50)",
    ),
    (
        "condition 4",
        "UPDATE orders SET o_ol_cnt = o_ol_cnt + 1 WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 7",
        "UPDATE orders SET o_ol_cnt = o_ol_cnt - 1 WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 7",
    ),
    (
        "condition 4",
        "UPDATE order_line SET ol_d_id = 77 WHERE ol_w_id = 2 AND ol_d_id = 5",
        "UPDATE order_line SET ol_d_id = 5 WHERE ol_w_id = 2 AND ol_d_id = 77",
    ),
];

fn planted_mistakes_are_found(sql: &mut dyn Sql) {
    tpcc::fill(sql, &SMALL, 1, &|_| true).unwrap();
    let at = Path::new("planted");
    consistent(sql, at).unwrap();
    for (condition, mistake, undo) in PLANTED {
        sql.batch(mistake).unwrap();
        let found = consistent(sql, at).unwrap_err().to_string();
        assert!(found.contains(condition), "{mistake}: {found}");
        sql.batch(undo).unwrap();
        consistent(sql, at).unwrap();
    }
}

#[test]
fn each_condition_finds_the_mistake_that_is_planted_for_it_in_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let mut sql = tiersmith_lab::sql::open_sqlite(&dir.path().join("company.db")).unwrap();
    planted_mistakes_are_found(sql.as_mut());
}

fn planted_in_a_server(name: &str) {
    if !is_here(name) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let product = server::product(name).unwrap();
    let programs = server::find(product).unwrap();
    server::make_reachable(dir.path(), product).unwrap();
    let mut site = Site::new(dir.path().join("data"), dir.path().join("log"));
    if name == "postgres" {
        site.settings.push(("dynamic_shared_memory_type".into(), "mmap".into()));
    }
    server::create(product, &programs, &site).unwrap();
    let server = Server::start(product, &programs, &site).unwrap();
    planted_mistakes_are_found(server.sql().unwrap().as_mut());
    server.stop().unwrap();
}

#[test]
fn each_condition_finds_the_mistake_that_is_planted_for_it_in_postgres() {
    planted_in_a_server("postgres");
}

#[test]
fn each_condition_finds_the_mistake_that_is_planted_for_it_in_mariadb() {
    planted_in_a_server("mariadb");
}

#[test]
fn the_same_seed_loads_the_same_company() {
    let dir = tempfile::tempdir().unwrap();
    let sum = |name: &str, seed| {
        let mut sql = tiersmith_lab::sql::open_sqlite(&dir.path().join(name)).unwrap();
        tpcc::fill(sql.as_mut(), &SMALL, seed, &|_| true).unwrap();
        let query = "SELECT SUM(s_quantity), (SELECT SUM(ol_amount) FROM order_line), \
                     (SELECT group_concat(c_first) FROM customer WHERE c_d_id = 2) FROM stock";
        sql.table(query).unwrap()
    };
    assert_eq!(sum("a", 1), sum("b", 1));
    assert_ne!(sum("c", 1), sum("d", 2));
}
