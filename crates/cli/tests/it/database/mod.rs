//! A database under test on a mounted home: what is written to it, and what must be found
//! afterwards.
//!
//! A transaction changes a balance and writes a row whose number is noted when the database has
//! acknowledged it. After whatever happened every noted row must be there with its payload, and as
//! many changes of balances as rows.

pub(crate) mod mysql;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tiersmith_lab::server::{self, Client, Product, Programs, Server};

use crate::daemon::{output, text, wait_until};

/// Sessions that write.
pub(crate) const SESSIONS: u64 = 2;
/// Accounts whose balances are changed; each session has its own.
const ACCOUNTS: u64 = 200;
/// A row's number, and the length of its payload in bytes.
pub(crate) type Row = (u64, u64);

/// Rows, or what the database said.
pub(crate) type Rows = Result<Vec<Row>, String>;

/// What differs between the databases.
pub(crate) struct Subject {
    pub(crate) product: &'static dyn Product,
    /// Settings on the mounted home.
    pub(crate) settings: &'static [(&'static str, &'static str)],
    pub(crate) prepare: &'static [&'static str],
    /// One transaction: number, session, payload length.
    pub(crate) transaction: fn(u64, u64) -> Vec<String>,
    /// Every acknowledged number, with the length of its payload.
    pub(crate) found: fn(&mut dyn Client, &[u64]) -> Rows,
    /// What must hold besides.
    pub(crate) consistent: fn(&mut dyn Client) -> Result<(), String>,
    /// The database's own checks, while it runs.
    pub(crate) check_running: fn(&Server, &Programs) -> Result<(), String>,
    /// And when it is stopped.
    pub(crate) check_stopped: fn(&Path, &Programs, &Server) -> Command,
    pub(crate) dump: fn(&Server, &Programs) -> Vec<u8>,
}

/// The directory of the server under test, if that is not the installed one
/// (`.ci/server_versions.sh`).
pub(crate) fn under_test() -> Option<PathBuf> {
    std::env::var_os("TIERSMITH_TEST_SERVER_BIN").filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// The programs of the server under test, else of the installed one; why there are none.
pub(crate) fn programs(product: &dyn Product) -> Result<Programs, String> {
    let Some(dir) = under_test() else { return server::find(product).map_err(|e| e.to_string()) };
    let other = format!("{} is not the server under test in {}", product.title(), dir.display());
    server::find_in(product, &[dir]).map_err(|_| other)
}

pub(crate) fn payload_bytes(number: u64) -> u64 {
    100 + number * 37 % 900
}

/// Sessions that write until they are stopped or their server is gone.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Vec<u64>>>,
    sessions: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(subject: &Subject, server: &Server, next: &Arc<AtomicU64>) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        let sessions = (0..SESSIONS).map(|session| {
            let mut client = server.client().unwrap();
            let (stop, acknowledged, next, transaction) =
                (stop.clone(), acknowledged.clone(), next.clone(), subject.transaction);
            std::thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    for statement in transaction(number, session) {
                        if client.batch(&statement).is_err() {
                            return;
                        }
                    }
                    acknowledged.lock().unwrap().push(number);
                }
            })
        });
        Load {
            stop: stop.clone(),
            acknowledged: acknowledged.clone(),
            sessions: sessions.collect(),
        }
    }

    pub(crate) fn wait_for(&self, count: u64) {
        wait_until("transactions are acknowledged", || {
            self.acknowledged.lock().unwrap().len() as u64 >= count
                || self.sessions.iter().all(JoinHandle::is_finished)
        });
    }

    pub(crate) fn end(self) -> Vec<u64> {
        self.stop.store(true, Ordering::SeqCst);
        for session in self.sessions {
            session.join().unwrap();
        }
        std::mem::take(&mut *self.acknowledged.lock().unwrap())
    }
}

/// What is wrong with what is there; nothing if every acknowledged row is there and the database's
/// own checks find nothing.
pub(crate) fn verify(
    subject: &Subject,
    server: &Server,
    programs: &Programs,
    acknowledged: &[u64],
) -> Result<(), String> {
    let mut client = server.client().map_err(|e| e.to_string())?;
    let found: std::collections::HashMap<u64, u64> =
        (subject.found)(&mut *client, acknowledged)?.into_iter().collect();
    for number in acknowledged {
        match found.get(number) {
            None => return Err(format!("acknowledged row {number} is not there")),
            Some(bytes) if *bytes != payload_bytes(*number) => {
                return Err(format!(
                    "row {number} has {bytes} bytes, not {}",
                    payload_bytes(*number)
                ));
            }
            Some(_) => {}
        }
    }
    (subject.consistent)(&mut *client)?;
    (subject.check_running)(server, programs)
}

/// Stops a server and lets the database's own program look at its directory.
pub(crate) fn stop_and_check(
    subject: &Subject,
    server: Server,
    programs: &Programs,
    data: &Path,
) -> Result<(), String> {
    let command = (subject.check_stopped)(data, programs, &server);
    server.stop().map_err(|e| e.to_string())?;
    run(command).map(|_| ())
}

/// Runs a tool; what it printed when it failed.
pub(crate) fn run(mut command: Command) -> Result<Vec<u8>, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
    let ended = output(child, &["a tool of the database"]);
    if ended.status.success() {
        Ok(ended.stdout)
    } else {
        Err(format!("{command:?} says: {}", text(&ended)))
    }
}

/// The lines of a dump in order, without the token that newer versions of `pg_dumpall` make up each
/// time.
pub(crate) fn lines(dump: Vec<u8>) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = dump
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.starts_with(b"\\restrict ") && !line.starts_with(b"\\unrestrict "))
        .collect();
    lines.sort();
    lines.join(&b'\n')
}

/// A tool beside one that is known.
pub(crate) fn tool(programs: &Programs, known: &str, name: &str) -> std::path::PathBuf {
    programs
        .get(name)
        .map_or_else(|| programs.get(known).unwrap().with_file_name(name), Path::to_path_buf)
}

pub(crate) fn numbers(client: &mut dyn Client, sql: &str) -> Rows {
    let rows = client.table(sql).map_err(|e| e.to_string())?;
    Ok(rows.iter().map(|row| (row[0].parse().unwrap(), row[1].parse().unwrap())).collect())
}

/// In SQL: a balance is changed and a row is written, together.
pub(crate) fn sql_transaction(number: u64, session: u64) -> Vec<String> {
    let account = 1 + (number * SESSIONS + session) % ACCOUNTS / SESSIONS * SESSIONS + session;
    vec![
        "BEGIN".into(),
        format!("UPDATE account SET balance = balance + 1 WHERE id = {account}"),
        format!("INSERT INTO acked VALUES ({number}, repeat('x', {}))", payload_bytes(number)),
        "COMMIT".into(),
    ]
}

pub(crate) fn sql_consistent(client: &mut dyn Client) -> Result<(), String> {
    let rows = client.number("SELECT count(*) FROM acked").map_err(|e| e.to_string())?;
    let sum = client.number("SELECT sum(balance) FROM account").map_err(|e| e.to_string())?;
    if rows == sum {
        Ok(())
    } else {
        Err(format!("{rows} rows and {sum} changes of balances: a transaction was torn apart"))
    }
}

/// PostgreSQL, whose pages nothing but the tier keeps from being torn: `full_page_writes = off`.
pub(crate) fn postgres() -> Subject {
    Subject {
        product: server::product("postgres").unwrap(),
        settings: &[
            ("full_page_writes", "off"),
            ("wal_recycle", "on"),
            ("max_wal_size", "64MB"),
            ("checkpoint_timeout", "30s"),
            // A server that is killed leaves none of it in /dev/shm: it goes with the directory.
            ("dynamic_shared_memory_type", "mmap"),
        ],
        prepare: &[
            "CREATE EXTENSION IF NOT EXISTS amcheck",
            "CREATE TABLE acked (id bigint PRIMARY KEY, payload text)",
            "CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL)",
            "INSERT INTO account SELECT n, 0 FROM generate_series(1, 400) n",
        ],
        transaction: sql_transaction,
        found: |client, _| numbers(client, "SELECT id, length(payload) FROM acked"),
        consistent: sql_consistent,
        check_running: |server, programs| {
            let mut amcheck = server.command(&tool(programs, "initdb", "pg_amcheck")).unwrap();
            amcheck.args(["--database", "postgres", "--heapallindexed"]);
            run(amcheck).map(|_| ())
        },
        check_stopped: |data, programs, server| {
            let mut checksums = server.command(&tool(programs, "initdb", "pg_checksums")).unwrap();
            checksums.args(["--check", "-D"]).arg(data);
            checksums
        },
        dump: |server, programs| {
            lines(run(server.command(&tool(programs, "initdb", "pg_dumpall")).unwrap()).unwrap())
        },
    }
}
