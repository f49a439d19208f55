//! What users of pg_profile look for, on a real PostgreSQL: each database and user by itself,
//! indexes that are used and those that nobody uses, dead rows and what cleaned them up, standbys
//! and slots, plans.

use crate::reports::keep_page;
use crate::servers;
use crate::servers::{Server, until};
use tiersmith_awr::sources::{LiveSource, Surroundings};
use tiersmith_awr::{Cell, Interval, Item, Report, Snapshot, Table, TableStat, render, report};

fn client_of(server: &Server, user: &str, database: &str) -> postgres::Client {
    let config = format!("host={} user={user} dbname={database}", server.path("").display());
    postgres::Client::connect(&config, postgres::NoTls).unwrap()
}

fn client(server: &Server) -> postgres::Client {
    client_of(server, "postgres", "postgres")
}

fn source(server: &Server) -> Box<dyn LiveSource> {
    let url = format!("postgresql://postgres@/postgres?host={}", server.path("").display());
    server.source(&url, &Surroundings::default()).unwrap()
}

fn table<'a>(of: &'a Report, caption: &str) -> Option<&'a Table> {
    let items = of.sections.iter().flat_map(|section| &section.items);
    let mut tables =
        items.filter_map(|item| if let Item::Table(table) = item { Some(table) } else { None });
    tables.find(|table| table.caption == caption)
}

/// The cell of a row whose first words are these.
fn cell(of: &Report, caption: &str, row: &str, column: &str) -> Option<Cell> {
    let table = table(of, caption)?;
    let at = table.columns.iter().position(|of| of.title == column)?;
    let row = table.rows.iter().find(|cells| cells[0].shown() == row)?;
    Some(row[at].clone())
}

fn count(of: &Report, caption: &str, row: &str, column: &str) -> Option<u64> {
    match cell(of, caption, row, column)? {
        Cell::Count(count) => Some(count),
        other => panic!("{caption}, {row}, {column}: {other:?}"),
    }
}

/// Asks until the report of what happened since then has what is waited for.
fn report_with(
    source: &mut dyn LiveSource,
    begin: &Snapshot,
    what: &str,
    has: impl Fn(&Report) -> bool,
) -> Report {
    let mut found = None;
    until(what, || {
        let of = report(&Interval::between(begin, &source.snapshot().unwrap()).unwrap());
        let whole = has(&of);
        found = Some(of);
        whole
    });
    found.unwrap()
}

/// In a session of its own: a session that goes on tells later what it changed, and a VACUUM before
/// that is counted as if it had come first.
fn run(server: &Server, sql: &str) {
    let mut client = client(server);
    client.batch_execute(sql).unwrap();
    client.close().unwrap();
}

/// Asks until the table `t` is told so.
fn snapshot_with(source: &mut dyn LiveSource, has: impl Fn(&TableStat) -> bool) -> Snapshot {
    let mut found = None;
    until("what was done to the table", || {
        let snapshot = source.snapshot().unwrap();
        let told = snapshot.tables.iter().any(|table| table.name == "public.t" && has(table));
        found = Some(snapshot);
        told
    });
    found.unwrap()
}

/// As pg_store_plans 1.6 has it, over the server's own counts of statements: its extension cannot
/// be installed here.
const STORED_PLANS: &str = "SET allow_system_table_mods = on; \
    INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion) \
    VALUES (99999, 'pg_store_plans', 10, 'public'::regnamespace, false, '1.6'); \
    CREATE VIEW pg_store_plans AS SELECT userid, dbid, queryid, 4711::bigint AS planid, \
    'Index Scan using t_n on t  (cost=0.28..8.30 rows=1 width=5)' || chr(10) || '  Index Cond: (n \
    = 4242)' AS plan, \
    calls, total_exec_time AS total_time, max_exec_time AS max_time, '2026-01-01'::timestamptz AS \
    first_call \
    FROM pg_stat_statements WHERE query LIKE 'SELECT s FROM t%'";

/// Starts the server anew so that it counts statements and explains them, and makes a table.
fn fill_with_plans(server: &mut Server) {
    server.stop();
    for argument in [
        "-cshared_preload_libraries=pg_stat_statements,auto_explain",
        "-cauto_explain.log_min_duration=0",
        "-cauto_explain.log_analyze=on",
        "-clogging_collector=on",
        "-clog_destination=stderr",
        // It would clean up what is counted here.
        "-cautovacuum=off",
    ] {
        server.start_with(argument);
    }
    server.start();
    let mut work = client(server);
    work.batch_execute("CREATE EXTENSION pg_stat_statements; CREATE ROLE clerk LOGIN").unwrap();
    work.batch_execute("CREATE DATABASE other").unwrap();
    work.batch_execute(
        "CREATE TABLE t (i int PRIMARY KEY, n int, s text); CREATE INDEX t_n ON t (n); \
         CREATE INDEX t_s ON t (s); INSERT INTO t SELECT i, i, 'row' FROM generate_series(1, 5000) \
         i; \
         GRANT SELECT ON t TO clerk",
    )
    .unwrap();
    work.batch_execute(STORED_PLANS).unwrap();
    work.close().unwrap();
}

#[test]
fn databases_users_indexes_vacuum_and_plans_are_told_apart() {
    let what = "databases_users_indexes_vacuum_and_plans_are_told_apart";
    let Some(mut server) = servers::postgres(what) else { return };
    fill_with_plans(&mut server);
    let mut source = source(&server);
    snapshot_with(source.as_mut(), |table| table.changed_rows == 5000);
    run(&server, "ANALYZE t");
    let begin = snapshot_with(source.as_mut(), |table| table.analyzes == Some(1));

    let mut clerk = client_of(&server, "clerk", "postgres");
    for _ in 0..50 {
        clerk.batch_execute("SELECT s FROM t WHERE n = 4242").unwrap();
    }
    clerk.close().unwrap();
    let mut other = client_of(&server, "postgres", "other");
    for _ in 0..30 {
        other.batch_execute("SELECT 1").unwrap();
    }
    other.batch_execute("BEGIN; SELECT 1; ROLLBACK").unwrap();
    other.close().unwrap();
    run(&server, "UPDATE t SET n = n + 1");
    snapshot_with(source.as_mut(), |table| table.changed_rows == 10_000);
    run(&server, "VACUUM ANALYZE t");
    run(&server, "UPDATE t SET s = s || 'x'");

    let made = report_with(source.as_mut(), &begin, "what the sessions counted", |made| {
        count(made, "Segments by Dead Rows", "public.t", "Dead Rows") == Some(5000)
            && count(made, "SQL by User and Database", "clerk", "Executions") >= Some(50)
            && count(made, "Indexes by Scans", "public.t_n", "Scans") >= Some(50)
            && table(made, "SQL by Plan").is_some()
    });
    let text = render::text(&made);
    keep_page("postgresql.html", &render::html(&made));
    assert_eq!(count(&made, "SQL by User and Database", "clerk", "Executions"), Some(50), "{text}");
    let database = |column: &str| cell(&made, "Databases", "other", column);
    let Some(Cell::Percent(rolled_back)) = database("%Rolled back") else { panic!("{text}") };
    // One of thirty-two or a little more: connecting is a transaction as well.
    assert!((1.5..=100.0 / 31.0).contains(&rolled_back), "{rolled_back}: {text}");
    assert!(matches!(database("Age"), Some(Cell::Count(age)) if age > 0), "{text}");
    assert_eq!(count(&made, "Segments by Dead Rows", "public.t", "Vacuums"), Some(1));
    assert_eq!(count(&made, "Segments by Dead Rows", "public.t", "Analyzes"), Some(1));
    assert_eq!(count(&made, "Segments by Dead Rows", "public.t", "by Itself"), Some(0));
    let vacuumed = cell(&made, "Segments by Dead Rows", "public.t", "Last Vacuum").unwrap();
    assert!(vacuumed.shown().starts_with("20"), "{vacuumed:?}");
    assert!(count(&made, "Indexes by Scans", "public.t_n", "Rows") >= Some(50), "{text}");
    let unused = table(&made, "Indexes That Nobody Used").unwrap();
    let names: Vec<String> = unused.rows.iter().map(|row| row[0].shown()).collect();
    assert!(
        names.contains(&"public.t_s".to_owned()) && !names.contains(&"public.t_n".to_owned()),
        "{names:?}"
    );
    plans_are_told(&made, &text);
}

/// The plans of a report and its text: by pg_store_plans with the number of the statement, by
/// auto_explain with its text.
fn plans_are_told(made: &Report, text: &str) {
    let plans = table(made, "SQL by Plan").unwrap();
    let of_clerk: Vec<&Vec<Cell>> = plans
        .rows
        .iter()
        .filter(|row| row.iter().any(|cell| cell.shown().starts_with("SELECT s FROM t")))
        .collect();
    assert_eq!(of_clerk.len(), 2, "{text}");
    let runs = plans.columns.iter().position(|column| column.title == "Executions").unwrap();
    assert!(of_clerk.iter().all(|row| row[runs] == Cell::Count(50)), "{of_clerk:?}");
    assert!(text.contains("->  ") || text.contains("Scan using t_n on t"), "{text}");
    assert!(
        text.contains("(n = ?)") && !made.json().contains("= 4242"),
        "literals are taken out of plans"
    );
    let asked_by_us = |row: &Vec<Cell>| row.iter().any(|cell| cell.shown().contains("SAVEPOINT"));
    assert!(!plans.rows.iter().any(asked_by_us), "plans of what the recorder asks: {text}");
    assert!(
        render::html(made).contains("Plan P1: ") && render::markdown(made).contains("**Plan P1: ")
    );
}

#[test]
fn a_standby_and_a_slot_that_nobody_reads_are_told_with_what_they_are_behind() {
    let what = "a_standby_and_a_slot_that_nobody_reads_are_told_with_what_they_are_behind";
    let Some(mut server) = servers::postgres(what) else { return };
    server.stop();
    server.start_with("-cwal_level=replica");
    server.start();
    let mut work = client(&server);
    work.batch_execute(
        "CREATE TABLE t (i int); SELECT pg_create_physical_replication_slot('left', true)",
    )
    .unwrap();
    let Some(standby) = servers::standby(&server, what) else { return };
    let mut source = source(&server);
    let mut begin = source.snapshot().unwrap();
    until("the standby to be there", || {
        begin = source.snapshot().unwrap();
        begin.objects.iter().any(|object| object.detail.starts_with("streaming"))
    });
    work.batch_execute("INSERT INTO t VALUES (0)").unwrap();
    let mut replayed = client(&standby);
    until("the standby to replay something", || {
        let row =
            replayed.query_one("SELECT pg_last_xact_replay_timestamp() IS NOT NULL", &[]).unwrap();
        row.get(0)
    });
    // It keeps what it is sent and does not replay it.
    client(&standby).batch_execute("SELECT pg_wal_replay_pause()").unwrap();
    work.batch_execute("INSERT INTO t SELECT i FROM generate_series(1, 100000) i").unwrap();
    let mib = |cell: Option<Cell>| match cell {
        Some(Cell::Bytes(bytes)) => bytes / 1_048_576.0,
        _ => 0.0,
    };
    let standby_of = |made: &Report| table(made, "Standbys").map(|table| table.rows[0][0].shown());
    let made = report_with(source.as_mut(), &begin, "the standby to be behind", |made| {
        let behind =
            standby_of(made).and_then(|name| cell(made, "Standbys", &name, "Behind at End"));
        mib(behind) > 5.0
    });
    let text = render::text(&made);
    keep_page("replication.html", &render::html(&made));
    assert_eq!(cell(&made, "Replication Slots", "left", "In Use").unwrap().shown(), "no", "{text}");
    assert!(mib(cell(&made, "Replication Slots", "left", "Kept")) > 5.0, "{text}");
    assert!(text.contains("redo that a standby has not replayed, at most"), "{text}");
    // The standby itself can be recorded, and tells how far behind it is.
    let url = format!("postgresql://postgres@/postgres?host={}", standby.path("").display());
    let mut asked = standby.source(&url, &Surroundings::default()).unwrap();
    let mut end = asked.snapshot().unwrap();
    until("the standby to say that it is behind", || {
        end = asked.snapshot().unwrap();
        end.levels.iter().any(|level| level.name == "time behind the primary" && level.value > 0)
    });
    assert!(!end.missing.iter().any(|line| line.contains("standbys")), "{:?}", end.missing);
}
