//! What real servers of every version answered, and which figures come of it: a test, without
//! servers.
//!
//! `tests/recorded/servers/PRODUCT-VERSION.json` is what the queries of a source were answered by
//! that version after a little work, cut to what is read of it.
//! `tests/expected/server_versions.txt` lists every figure with the versions that give it: what a
//! version lost or gained is a line in a difference. `.ci/server_versions.sh` with
//! `TIERSMITH_RECORD=DIR` records anew, `TIERSMITH_BLESS=1` writes the list anew.
//!
//! Deliberately absent: whether the figures are right, which `tests/alone/servers_truth.rs` counts
//! on real servers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::redis::resp::Reply;
use super::{Address, Asking, Surroundings, mysql, postgres, redis};
use crate::Snapshot;
use crate::redact::Redaction;

#[path = "../../tests/it/servers/mod.rs"]
#[allow(dead_code, reason = "the integration tests use the rest")]
mod servers;

/// The views whose answers are recorded, by the name that a source gives them.
const VIEWS: [&str; 21] = [
    "identity",
    "system",
    "database",
    "bgwriter",
    "checkpointer",
    "wal",
    "io",
    "settings",
    "relations",
    "statements",
    "statements_info",
    "waits",
    "files",
    "tables",
    "statement_time",
    "transactions",
    "consumers",
    "instruments",
    "started",
    "metrics",
    "sessions",
];

/// The most rows of a view that are recorded, where they are all of one kind.
fn most(view: &str) -> usize {
    match view {
        "statements" | "relations" | "tables" => 3,
        "waits" => 6,
        _ => 200,
    }
}

fn below(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(path)
}

fn view(name: &str) -> &'static str {
    VIEWS.into_iter().find(|known| *known == name).unwrap_or_else(|| panic!("{name} is no view"))
}

fn texts(value: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(value.clone()).expect("texts by name")
}

/// The snapshot that comes of a recorded answer.
fn replayed(recorded: &Value) -> Snapshot {
    let mut snapshot = Snapshot::at(crate::Source::default(), 1, 1);
    let rows = recorded["rows"].as_object().cloned().unwrap_or_default();
    let rows =
        rows.iter().map(|(name, rows)| (view(name), rows.as_array().cloned().unwrap_or_default()));
    let list = |name: &str| -> Vec<String> {
        recorded[name]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    match recorded["source"].as_str().expect("which source") {
        "postgresql" => {
            let rows = rows.map(|(view, rows)| {
                (view, rows.into_iter().filter_map(|row| row.as_object().cloned()).collect())
            });
            let answers = postgres::Answers {
                version: recorded["version"].as_u64().expect("a version"),
                rows: rows.collect(),
                missing: list("missing"),
                statements_are_whole: true,
            };
            postgres::fill(&mut snapshot, &answers, Redaction::Literals);
        }
        "mysql" => {
            let rows = rows.map(|(view, rows)| (view, rows.iter().map(texts).collect()));
            let mut answers = mysql::Answers::default();
            answers.version = recorded["version"].as_str().expect("a version").to_owned();
            (answers.status, answers.variables) =
                (texts(&recorded["status"]), texts(&recorded["variables"]));
            (answers.rows, answers.missing) = (rows.collect(), list("missing"));
            mysql::counters::fill(&mut snapshot, &answers, Redaction::Literals);
        }
        _ => {
            let answers = redis::Answers {
                info: recorded["info"].as_str().expect("INFO").to_owned(),
                latency: vec![Reply::List(Vec::new())],
                slow: recorded["slow"].as_u64(),
                missing: list("missing"),
            };
            redis::fill(&mut snapshot, &answers);
        }
    }
    snapshot.check().expect("whole");
    snapshot
}

/// What a snapshot tells, a line a figure.
fn figures(snapshot: &Snapshot) -> BTreeSet<String> {
    let mut figures = BTreeSet::new();
    figures.extend(snapshot.db_time_ns.map(|_| "DB time".to_owned()));
    figures.extend(snapshot.process_cpu_ns.map(|_| "processor time".to_owned()));
    figures.extend(snapshot.sessions.map(|_| "sessions".to_owned()));
    figures
        .extend(snapshot.counters.iter().map(|of| format!("counter  {} [{}]", of.name, of.unit)));
    figures.extend(snapshot.levels.iter().map(|of| format!("level    {} [{}]", of.name, of.unit)));
    // The instruments one by one are those of the little work that was done.
    let named = snapshot.waits.iter().filter(|wait| !wait.name.starts_with("wait/"));
    figures.extend(named.map(|wait| {
        let who = if wait.background { "background" } else { "requests" };
        format!("wait     {} ({}, {who})", wait.name, wait.class.name())
    }));
    figures
        .extend((!snapshot.io.is_empty()).then(|| "reads and writes by kind of file".to_owned()));
    figures.extend((!snapshot.files.is_empty()).then(|| "reads by table or file".to_owned()));
    figures.extend((!snapshot.statements.is_empty()).then(|| "statements".to_owned()));
    figures.extend(snapshot.source.settings.keys().map(|name| format!("setting  {name}")));
    figures.extend(snapshot.resets.keys().map(|name| {
        let group =
            if name.starts_with("database ") { "database NAME (ID)" } else { name.as_str() };
        format!("reset    {group}")
    }));
    figures.extend(snapshot.missing.iter().map(|line| format!("missing  {line}")));
    figures
}

#[test]
fn every_figure_of_every_recorded_version_is_the_one_that_is_expected() {
    let mut of: BTreeMap<String, BTreeMap<String, Vec<(u64, u64)>>> = BTreeMap::new();
    let mut files: Vec<PathBuf> = fs::read_dir(below("recorded/servers"))
        .expect("recorded answers")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    for path in files {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        let (product, version) = name.split_once('-').expect("product and version");
        let mut parts = version.split('.').map(|part| part.parse::<u64>().expect("a number"));
        let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        let recorded =
            serde_json::from_str(&fs::read_to_string(&path).expect("read")).expect("JSON");
        for figure in figures(&replayed(&recorded)) {
            of.entry(product.to_owned()).or_default().entry(figure).or_default().push(version);
        }
    }
    let mut found = String::new();
    for (product, figures) in &of {
        found.push_str(&format!("{product}\n"));
        for (figure, versions) in figures {
            let mut versions = versions.clone();
            versions.sort_unstable();
            let versions: Vec<String> = versions
                .iter()
                .map(|(major, minor)| match (product.as_str(), minor) {
                    ("postgresql", _) => major.to_string(),
                    _ => format!("{major}.{minor}"),
                })
                .collect();
            found.push_str(&format!("    {figure}: {}\n", versions.join(" ")));
        }
    }
    let path = below("expected/server_versions.txt");
    if std::env::var_os("TIERSMITH_BLESS").is_some() {
        fs::write(&path, &found).expect("written");
    }
    let expected = fs::read_to_string(&path).expect("read");
    for (number, (expected, found)) in expected.lines().zip(found.lines()).enumerate() {
        assert_eq!(expected, found, "line {} of {}", number + 1, path.display());
    }
    assert_eq!(expected.lines().count(), found.lines().count(), "lines of {}", path.display());
}

#[test]
fn nothing_of_the_machine_that_recorded_is_in_a_record() {
    for entry in fs::read_dir(below("recorded/servers")).expect("recorded answers") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("read");
        assert!(text.len() < 40_000, "{} is small", path.display());
        // Put together here, so that this file does not name a place of a machine either.
        for top in ["tmp", "home", "root", "work", "var"] {
            let place = format!("/{top}/");
            assert!(!text.contains(&place), "{place} is in {}", path.display());
        }
        assert!(!text.contains("ts-awr-"), "a temporary directory is in {}", path.display());
    }
}

/// Where to record, if that is asked for.
fn to() -> Option<PathBuf> {
    std::env::var_os("TIERSMITH_RECORD").filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

fn write(
    source: &str,
    product: &str,
    version: &str,
    mut record: Map<String, Value>,
    rows: Map<String, Value>,
) {
    record.insert("source".to_owned(), json!(source));
    record.insert("rows".to_owned(), Value::Object(rows));
    let path = to().expect("asked for").join(format!("{product}-{version}.json"));
    // A row a line: small, and a difference can be read.
    let mut text = String::from("{\n");
    let members: Vec<String> = record
        .iter()
        .map(|(name, value)| match value {
            Value::Object(views) if name == "rows" => {
                let views: Vec<String> = views
                    .iter()
                    .map(|(name, rows)| {
                        let rows =
                            rows.as_array().expect("rows").iter().map(|row| format!("  {row}"));
                        format!(" {}: [\n{}\n ]", json!(name), rows.collect::<Vec<_>>().join(",\n"))
                    })
                    .collect();
                format!("{}: {{\n{}\n}}", json!(name), views.join(",\n"))
            }
            Value::Object(pairs) => {
                let pairs: Vec<String> = pairs
                    .iter()
                    .map(|(name, value)| format!(" {}: {value}", json!(name)))
                    .collect();
                format!("{}: {{\n{}\n}}", json!(name), pairs.join(",\n"))
            }
            value => format!("{}: {value}", json!(name)),
        })
        .collect();
    text.push_str(&members.join(",\n"));
    text.push_str("\n}\n");
    fs::write(path, text).expect("written");
}

/// Asks until something was counted of everything: counts of a session come late.
fn asked<A>(mut ask: impl FnMut() -> A, enough: impl Fn(&A) -> bool) -> A {
    let mut answers = None;
    servers::until("the counts of what was done", || {
        answers = Some(ask()).filter(|answers| enough(answers));
        answers.is_some()
    });
    answers.expect("there")
}

#[test]
fn a_postgresql_is_recorded_where_that_is_asked_for() {
    if to().is_none() {
        return;
    }
    let Some(server) = servers::postgres("recording a PostgreSQL") else { return };
    let host = server.path("");
    let config = format!("host={} user=postgres dbname=postgres", host.display());
    let mut work = ::postgres::Client::connect(&config, ::postgres::NoTls).expect("connected");
    work.batch_execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements").expect("made");
    work.batch_execute(
        "CREATE TABLE t (i int); INSERT INTO t SELECT * FROM generate_series(1, 20000)",
    )
    .expect("made");
    work.batch_execute("CHECKPOINT").expect("made");
    work.batch_execute("SELECT count(*) FROM t").expect("read");
    work.close().expect("closed");
    let address =
        Address::parse(&format!("postgresql://postgres@/postgres?host={}", host.display()));
    let mut source = postgres::Postgres::connect(
        &address.expect("an address"),
        &Asking::default(),
        &Surroundings::default(),
    )
    .expect("connected");
    let count =
        |row: &postgres::Row, field: &str| row.get(field).and_then(Value::as_u64).unwrap_or(0);
    let answers = asked(
        || source.answers().expect("answers"),
        |answers| {
            answers.rows["database"].iter().any(|row| count(row, "tup_inserted") > 20_000)
                && answers.rows["identity"].iter().all(|row| count(row, "sessions") == 1)
                && !answers.rows["relations"].is_empty()
        },
    );
    let mut rows = Map::new();
    for (view, all) in &answers.rows {
        let done = |row: &&postgres::Row| {
            *view != "io"
                || ["reads", "writes", "extends", "fsyncs"]
                    .iter()
                    .any(|field| count(row, field) > 0)
        };
        let some: Vec<&postgres::Row> = all.iter().filter(done).take(most(view)).collect();
        rows.insert((*view).to_owned(), json!(some));
    }
    let record = json!({"version": answers.version, "missing": answers.missing});
    let version = (answers.version / 10_000).to_string();
    write(
        "postgresql",
        "postgresql",
        &version,
        record.as_object().expect("a record").clone(),
        rows,
    );
}

#[test]
fn a_mysql_is_recorded_where_that_is_asked_for() {
    if to().is_none() {
        return;
    }
    let Some(server) = servers::mariadb("recording a MariaDB or MySQL") else { return };
    let socket = server.path("my.sock");
    let options = ::mysql::OptsBuilder::new().socket(socket.to_str()).user(Some("root"));
    let mut work = ::mysql::Conn::new(options).expect("connected");
    for line in [
        "CREATE DATABASE d",
        "CREATE TABLE d.t (i INT PRIMARY KEY) ENGINE = InnoDB",
        "INSERT INTO d.t VALUES (1), (2)",
        "UPDATE d.t SET i = i + 10",
        "DELETE FROM d.t WHERE i = 11",
        "SELECT COUNT(*) FROM d.t",
    ] {
        ::mysql::prelude::Queryable::query_drop(&mut work, line).expect("done");
    }
    let address = Address::parse(&format!("mysql://root@/?socket={}", socket.display()));
    let mut source = mysql::MySql::connect(
        &address.expect("an address"),
        &Asking::default(),
        &Surroundings::default(),
    )
    .expect("connected");
    let mut answers = source.answers().expect("answers");
    for path in
        answers.rows.get_mut("tables").into_iter().flatten().filter_map(|row| row.get_mut("name"))
    {
        *path = format!("./{}", path.rsplit('/').next().unwrap_or_default());
    }
    let mut rows = Map::new();
    for (view, all) in &answers.rows {
        let some: Vec<&mysql::Row> = all.iter().take(most(view)).collect();
        rows.insert((*view).to_owned(), json!(some));
    }
    let variables = mysql::counters::VARIABLES.iter().chain(&mysql::counters::SETTINGS);
    let mut variables: BTreeMap<&str, String> =
        variables.filter_map(|name| Some((*name, answers.variables.get(*name)?.clone()))).collect();
    variables.entry("hostname").and_modify(|name| "server".clone_into(name));
    let status: BTreeMap<&String, &String> =
        answers.status.iter().filter(|(name, _)| mysql::counters::is_read(name)).collect();
    let (product, rest) = if answers.version.contains("MariaDB") {
        ("mariadb", answers.version.as_str())
    } else {
        ("mysql", answers.version.as_str())
    };
    let version: Vec<&str> = rest.split(['.', '-']).take(2).collect();
    let record = json!({"version": answers.version, "missing": answers.missing, "status": status,
    "variables": variables});
    write(
        "mysql",
        product,
        &version.join("."),
        record.as_object().expect("a record").clone(),
        rows,
    );
}

#[test]
fn a_redis_is_recorded_where_that_is_asked_for() {
    if to().is_none() {
        return;
    }
    let Some(server) = servers::redis("recording a Redis") else { return };
    let address = Address::parse(&format!("unix://{}", server.path("r.sock").display()));
    let mut source = redis::Redis::connect(
        &address.expect("an address"),
        &Asking::default(),
        &Surroundings::default(),
    )
    .expect("connected");
    source.answers().expect("answers");
    let answers = source.answers().expect("answers");
    let outside = ["executable:", "config_file:", "os:", "monotonic_clock:", "availability_zone:"];
    let info: Vec<&str> = answers
        .info
        .lines()
        .filter(|line| !outside.iter().any(|name| line.starts_with(name)) && !line.contains("/tmp"))
        .collect();
    let field = |name: &str| info.iter().find_map(|line| line.strip_prefix(name));
    let (product, version) = match field("valkey_version:") {
        Some(version) => ("valkey", version),
        None => ("redis", field("redis_version:").expect("a version")),
    };
    let version: Vec<&str> = version.split('.').take(2).collect();
    let record = json!({"info": info.join("\n"), "slow": answers.slow, "missing": answers.missing});
    write(
        "redis",
        product,
        &version.join("."),
        record.as_object().expect("a record").clone(),
        Map::new(),
    );
}
