//! MariaDB and MySQL: global status, settings, InnoDB metrics, and performance_schema where it is
//! on.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | connecting and asking |
//! | `counters.rs` | rows into a snapshot |
//! | `wire.rs` | the connection, and how much an answer may be |
//! | `key.rs` | a server's key for a password |
//!
//! With `performance_schema = ON` and the `wait/%` instruments, waits are measured: by user,
//! because rows without a user are those of the server's own threads. Without it there are counters
//! only, and running statements are sampled by their state.
//!
//! Deliberately absent: replication, Galera.

pub(super) mod counters;
mod key;
mod wire;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tiersmith_events::WaitClass;

use self::wire::{Fault, Fields, Login, Wire};
use super::{Address, Asking, LiveSource, Surroundings, tls};
use crate::redact::Redaction;
use crate::snapshot::sampling::{ON_CPU, Sampling, Seen, Who};
use crate::{Error, Result, Snapshot};

/// A connection to a server.
pub(super) struct MySql {
    name: String,
    login: Login,
    asking: Asking,
    wire: Option<Wire>,
    /// Whether waits are measured, those of commits too, so that samples would only be a worse
    /// second figure. MariaDB since 10.8 does not time its redo.
    measured: bool,
    is_mariadb: bool,
    /// Whether this user may see what other sessions do: without it nobody would seem active.
    /// Nothing until that was asked.
    sees_others: Option<bool>,
}

/// What a server answered.
#[derive(Default)]
pub(super) struct Answers {
    pub(super) version: String,
    pub(super) status: BTreeMap<String, String>,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) rows: BTreeMap<&'static str, Vec<Fields>>,
    pub(super) missing: Vec<String>,
    /// What the user was not allowed to ask for, by the grant that gives it.
    denied: BTreeMap<&'static str, Vec<&'static str>>,
    /// Whether PROCESS was not refused.
    sees_others: bool,
    /// Whether every statement is there that the server counts.
    pub(super) statements_are_whole: bool,
}

/// How a server says that it lets in who is encrypted only.
const DEMANDS_ENCRYPTION: u16 = 3159;
/// The most statements of a snapshot, whatever was asked for.
const MOST_STATEMENTS: usize = 5_000;
/// The longest time that one look may take: it is one of many.
const LOOK: Duration = Duration::from_secs(5);

/// A query of performance_schema or information_schema, and what is lost without it.
const VIEWS: [(&str, &str, &str); 7] = [
    (
        "waits",
        "SELECT event_name AS name, IF(user IS NULL, 1, 0) AS background, SUM(count_star) AS \
         count, SUM(sum_timer_wait) AS ps \
         FROM performance_schema.events_waits_summary_by_user_by_event_name WHERE count_star > 0 \
         GROUP BY 1, 2",
        "waits",
    ),
    (
        "files",
        "SELECT event_name AS name, count_read, sum_timer_read AS read_ps, \
         sum_number_of_bytes_read AS read_bytes, count_write, \
         sum_timer_write AS write_ps, sum_number_of_bytes_write AS write_bytes, count_misc, \
         sum_timer_misc AS misc_ps \
         FROM performance_schema.file_summary_by_event_name WHERE count_star > 0",
        "reads and writes by file",
    ),
    (
        "tables",
        "SELECT file_name AS name, sum_number_of_bytes_read AS bytes, sum_timer_read AS ps \
         FROM performance_schema.file_summary_by_instance WHERE event_name = \
         'wait/io/file/innodb/innodb_data_file' AND count_read > 0 \
         ORDER BY sum_number_of_bytes_read DESC LIMIT 100",
        "reads by table",
    ),
    (
        "statement_time",
        "SELECT SUM(count_star) AS count, SUM(sum_timer_wait) AS ps FROM \
         performance_schema.events_statements_summary_global_by_event_name WHERE event_name LIKE \
         'statement/%'",
        "DB time",
    ),
    (
        "transactions",
        "SELECT SUM(count_star) AS count FROM \
         performance_schema.events_transactions_summary_global_by_event_name",
        "transactions",
    ),
    (
        "consumers",
        "SELECT name, enabled FROM performance_schema.setup_consumers WHERE name IN \
         ('global_instrumentation', 'thread_instrumentation')",
        "what performance_schema counts",
    ),
    (
        "instruments",
        "SELECT SUM(enabled = 'YES' AND timed = 'YES' AND name LIKE 'wait/io/file/innodb/%') AS \
         files, \
         SUM(enabled = 'YES' AND name LIKE 'statement/%') AS statements FROM \
         performance_schema.setup_instruments",
        "what performance_schema counts",
    ),
];

impl MySql {
    pub(super) fn connect(
        address: &Address,
        asking: &Asking,
        surroundings: &Surroundings,
    ) -> Result<MySql> {
        let mut mysql = MySql {
            name: address.shown(),
            login: login(address, surroundings)?,
            asking: asking.clone(),
            wire: None,
            measured: false,
            is_mariadb: false,
            sees_others: None,
        };
        mysql.wire = Some(mysql.connected(Instant::now() + asking.patience)?);
        Ok(mysql)
    }

    fn error(&self, action: &'static str, fault: &Fault) -> Error {
        let (reason, denied) = match fault {
            Fault::Server { code, message } => {
                (format!("{message} ({code})"), [1044, 1045, 1698].contains(code))
            }
            Fault::Broken(reason) => (reason.clone(), false),
            Fault::Refused(refusal) => (refusal.reason.clone(), false),
        };
        let remedy = if let Fault::Refused(refusal) = fault {
            refusal.remedy.as_str()
        } else if matches!(fault, Fault::Server { code: DEMANDS_ENCRYPTION, .. }) {
            "Say ssl-mode=REQUIRED in the URL, or leave ssl-mode out"
        } else if denied
            && self.login.encryption.need == tls::Need::Never
            && !self.login.host.starts_with('/')
        {
            "Give the user in the URL and the password by MYSQL_PWD or ~/.my.cnf; a user who must \
             be encrypted (REQUIRE SSL) needs ssl-mode=REQUIRED"
        } else if denied {
            "Give the user in the URL and the password by MYSQL_PWD or ~/.my.cnf; the user needs \
             PROCESS, and SELECT on performance_schema"
        } else {
            "Check the address, that the server runs, and that the user may connect"
        };
        // What a refusal tells of a certificate is bounded already.
        let reason = if matches!(fault, Fault::Refused(_)) { reason } else { super::said(&reason) };
        Error::Source { action, place: self.name.clone(), reason, remedy: remedy.to_owned() }
    }

    fn connected(&self, deadline: Instant) -> Result<Wire> {
        Wire::connect(&self.login, deadline).map_err(|fault| self.error("connect to", &fault))
    }

    /// The connection, taken, with time until an instant: whoever took it gives it back when
    /// everything was read.
    fn take(&mut self, deadline: Instant) -> Result<Wire> {
        match self.wire.take() {
            Some(mut wire) => {
                wire.begin(deadline);
                Ok(wire)
            }
            None => self.connected(deadline),
        }
    }

    /// The first column, by name, of every row of a question.
    pub(super) fn texts(&mut self, question: &str) -> Result<Vec<String>> {
        let mut wire = self.take(Instant::now() + self.asking.patience)?;
        let rows = wire.rows(question).map_err(|fault| self.error("ask", &fault))?;
        self.wire = Some(wire);
        Ok(rows.into_iter().filter_map(|row| row.into_values().next()).collect())
    }

    pub(super) fn answers(&mut self) -> Result<Answers> {
        let limit = self.asking.statements.clamp(1, MOST_STATEMENTS);
        let mut wire = self.take(Instant::now() + self.asking.patience)?;
        let mut answers = Answers::default();
        // A connection whose answer was not read to its end is closed.
        ask(&mut wire, &mut answers, limit).map_err(|fault| self.error("ask", &fault))?;
        self.wire = Some(wire);
        self.measured = counters::waits_are_measured(&answers) && counters::redo_is_timed(&answers);
        self.is_mariadb = answers.version.contains("MariaDB");
        self.sees_others = Some(answers.sees_others);
        Ok(answers)
    }
}

/// What gives performance_schema's tables.
const GRANT_SELECT: &str = "GRANT SELECT ON performance_schema.* TO the user";
/// What gives InnoDB's metrics and the sessions of others.
const GRANT_PROCESS: &str = "GRANT PROCESS ON *.* TO the user";
/// The numbers of errors that say that a right is missing: to a database, a table, a column, or of
/// the whole server.
const DENIALS: [u16; 4] = [1044, 1142, 1143, 1227];

fn ask(wire: &mut Wire, answers: &mut Answers, limit: usize) -> std::result::Result<(), Fault> {
    let pairs = |rows: Vec<Fields>| {
        let pair = |row: Fields| {
            Some((row.get("variable_name")?.to_lowercase(), row.get("value")?.clone()))
        };
        rows.into_iter().filter_map(pair).collect()
    };
    let version = wire.rows("SELECT VERSION() AS version")?;
    answers.version =
        version.first().and_then(|row| row.get("version")).cloned().unwrap_or_default();
    answers.status = pairs(wire.rows("SHOW GLOBAL STATUS")?);
    answers.variables = pairs(wire.rows("SHOW GLOBAL VARIABLES")?);
    let on = answers.variables.get("performance_schema").is_some_and(|value| value == "ON");
    if on {
        for (name, query, without) in VIEWS {
            part(wire, answers, name, query, without, GRANT_SELECT)?;
        }
        let digests = format!(
            "SELECT COALESCE(schema_name, '') AS db, COALESCE(digest, '') AS id, \
             LEFT(COALESCE(digest_text, ''), 6000) AS query, \
             count_star AS count, sum_timer_wait AS ps, sum_rows_sent + sum_rows_affected AS \
             row_count, \
             COALESCE(UNIX_TIMESTAMP(first_seen), 0) AS since \
             FROM performance_schema.events_statements_summary_by_digest ORDER BY sum_timer_wait \
             DESC LIMIT {limit}"
        );
        part(wire, answers, "statements", &digests, "statements", GRANT_SELECT)?;
        answers.statements_are_whole =
            answers.rows.get("statements").is_some_and(|rows| rows.len() < limit);
    }
    let started = "SELECT FLOOR(UNIX_TIMESTAMP(MIN(time_enabled))) AS since FROM \
                   information_schema.innodb_metrics";
    let without =
        "the start time of the server, commits of single statements, what other users' sessions do";
    part(wire, answers, "started", started, without, GRANT_PROCESS)?;
    let enabled = "SELECT name, count, comment FROM information_schema.innodb_metrics WHERE name \
                   IN \
                   ('trx_rw_commits', 'trx_ro_commits', 'trx_nl_ro_commits', \
                   'trx_rseg_history_len') \
                   AND time_enabled IS NOT NULL AND time_disabled IS NULL";
    part(wire, answers, "metrics", enabled, "information_schema.innodb_metrics", GRANT_PROCESS)?;
    answers.sees_others = !answers.denied.contains_key(GRANT_PROCESS);
    for (grant, lost) in std::mem::take(&mut answers.denied) {
        answers.missing.push(format!("{}; {grant} gives it", lost.join(", ")));
    }
    Ok(())
}

/// One part of the answers; what the server refuses is a line, a connection that breaks is an
/// error.
fn part(
    wire: &mut Wire,
    answers: &mut Answers,
    name: &'static str,
    query: &str,
    without: &'static str,
    grant: &'static str,
) -> std::result::Result<(), Fault> {
    match wire.rows(query) {
        Ok(rows) => {
            answers.rows.insert(name, rows);
            Ok(())
        }
        Err(Fault::Server { code, .. }) if DENIALS.contains(&code) => {
            let lost = answers.denied.entry(grant).or_default();
            if !lost.contains(&without) {
                lost.push(without);
            }
            Ok(())
        }
        Err(Fault::Server { code, message }) => {
            answers.missing.push(format!("{without} ({}, error {code})", super::said(&message)));
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Address, environment and option file, the first that has it.
fn login(address: &Address, surroundings: &Surroundings) -> Result<Login> {
    let file = surroundings.my_cnf().map_err(|error| Error::Source {
        action: "connect to",
        place: address.shown(),
        reason: format!("~/.my.cnf is there and cannot be read: {error}"),
        remedy:
            "Let this user read it: it may say who logs in, and that the connection is encrypted"
                .to_owned(),
    })?;
    let given = |key: &str| file.get(key).cloned();
    let user = address
        .user
        .clone()
        .or_else(|| given("user"))
        .or_else(|| surroundings.variable("USER").map(str::to_owned));
    let password =
        surroundings.variable("MYSQL_PWD").map(str::to_owned).or_else(|| given("password"));
    let host = address.host.clone().or_else(|| given("socket")).or_else(|| given("host"));
    let sockets = ["/run/mysqld/mysqld.sock", "/var/run/mysqld/mysqld.sock", "/tmp/mysql.sock"];
    let there = sockets
        .iter()
        .find(|path| std::path::Path::new(path).exists())
        .map(|path| (*path).to_owned());
    let host =
        host.or_else(|| surroundings.variable("MYSQL_UNIX_PORT").map(str::to_owned)).or(there);
    let port = address.port.or_else(|| given("port")?.parse().ok()).unwrap_or(3306);
    let host = host.unwrap_or_else(|| "127.0.0.1".to_owned());
    let encryption = tls::of_mysql(address, &file, surroundings, &host)?;
    Ok(Login {
        host,
        port,
        user: user.unwrap_or_default(),
        password: password.unwrap_or_default(),
        encryption,
    })
}

/// Sessions. Not by way of information_schema.processlist: its long texts make a temporary table on
/// disk of each look, and these are counted.
const SESSIONS: &str = "SHOW PROCESSLIST";

/// Sessions that wait for a row lock, which their state does not say.
const HELD_UP: &str = "SELECT trx_mysql_thread_id AS id FROM information_schema.innodb_trx WHERE \
                       trx_state = 'LOCK WAIT' LIMIT 10000";

/// Who holds the row locks that others wait for, as MariaDB tells it.
const BLOCKERS: &str = "SELECT w.trx_mysql_thread_id AS id, h.trx_mysql_thread_id AS blocker, \
                        p.command, \
     LEFT(COALESCE(h.trx_query, ''), 300) AS query FROM information_schema.innodb_lock_waits l \
     JOIN information_schema.innodb_trx w ON w.trx_id = l.requesting_trx_id \
     JOIN information_schema.innodb_trx h ON h.trx_id = l.blocking_trx_id \
     LEFT JOIN information_schema.processlist p ON p.id = h.trx_mysql_thread_id LIMIT 1000";

/// Whether a session runs a statement, and not the one that asks.
fn at_work(session: &Fields) -> bool {
    let is = |field: &str, value: &str| session.get(field).is_some_and(|text| text == value);
    (is("command", "Query") || is("command", "Execute")) && !is("info", SESSIONS)
}

/// Counts a session as the server told it.
fn saw(
    sampling: &mut Sampling,
    session: &Fields,
    held_up: &[Fields],
    blockers: &[Fields],
    redaction: Redaction,
) {
    let of = |row: &Fields, field: &str| row.get(field).cloned().unwrap_or_default();
    let (id, state) = (of(session, "id"), of(session, "state"));
    let (event, class) = match counters::class_of_state(&state) {
        _ if held_up.iter().any(|row| of(row, "id") == id) => {
            ("row lock", Some(WaitClass::Application))
        }
        Some(class) => (state.as_str(), Some(class)),
        None => (ON_CPU, None),
    };
    let who = redaction.name(&format!("{}@{}", of(session, "user"), of(session, "db")));
    let text = redaction.statement(&of(session, "info"));
    // Of all that hold a lock, the one that waits for none itself.
    let of_this = || blockers.iter().filter(|row| of(row, "id") == id);
    let waits = |row: &&Fields| blockers.iter().any(|other| of(other, "id") == of(row, "blocker"));
    let blocker = of_this().find(|row| !waits(row)).or_else(|| of_this().next()).map(|row| {
        let doing = match of(row, "command").as_str() {
            "Sleep" => "idle in a transaction".to_owned(),
            _ => redaction.statement(&of(row, "query")),
        };
        (of(row, "blocker"), doing)
    });
    sampling.saw_session(&Seen {
        event,
        class,
        session: Who { id: &id, text: &who },
        statement: Who { id: "", text: &text },
        blocker: blocker.as_ref().map(|(id, text)| Who { id, text }),
    });
}

impl LiveSource for MySql {
    fn name(&self) -> &str {
        &self.name
    }

    fn kept_as(&self) -> String {
        self.asking.redaction.name(&self.name)
    }

    fn snapshot(&mut self) -> Result<Snapshot> {
        let had_one = self.wire.is_some();
        let began = Instant::now();
        let answers = match self.answers() {
            // A connection that broke since the last time is made anew; a server that does not
            // answer is not asked twice.
            Err(_) if had_one && began.elapsed() < self.asking.patience / 2 => self.answers()?,
            answers => answers?,
        };
        let mut snapshot =
            Snapshot::now(crate::Source { path: self.name.clone(), ..crate::Source::default() });
        snapshot.process_cpu_ns = None;
        snapshot.source.remote = Some(super::address::is_remote(&self.login.host));
        counters::fill(&mut snapshot, &answers, self.asking.redaction);
        self.asking.redaction.apply(&mut snapshot);
        Ok(snapshot)
    }

    fn look(&mut self, sampling: &mut Sampling) -> Result<bool> {
        if self.measured {
            return Ok(false);
        }
        let mut wire = self.take(Instant::now() + self.asking.patience.min(LOOK))?;
        if self.sees_others.is_none() {
            let asked =
                wire.rows("SELECT COUNT(*) AS metrics FROM information_schema.innodb_metrics");
            self.sees_others = match asked {
                Ok(_) => Some(true),
                // Any other refusal, of a server without InnoDB for instance, says nothing of
                // rights.
                Err(Fault::Server { code, .. }) => Some(!DENIALS.contains(&code)),
                Err(fault) => return Err(self.error("ask", &fault)),
            };
        }
        if self.sees_others == Some(false) {
            self.wire = Some(wire);
            return Ok(false);
        }
        let mut ask = |query: &str| wire.rows(query).map_err(|fault| self.error("ask", &fault));
        let mut seen = ask(SESSIONS)?;
        seen.retain(at_work);
        let held_up = if seen.is_empty() { Vec::new() } else { ask(HELD_UP)? };
        let blockers =
            if held_up.is_empty() || !self.is_mariadb { Vec::new() } else { ask(BLOCKERS)? };
        self.wire = Some(wire);
        sampling.looks += 1;
        for session in &seen {
            saw(sampling, session, &held_up, &blockers, self.asking.redaction);
        }
        Ok(true)
    }
}

/// For the test of what every version answered.
#[cfg(test)]
pub(super) use self::wire::Fields as Row;

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables and the columns that are asked of them, as the manuals of MySQL 8.0 and 8.4
    /// (Performance Schema Table Descriptions, The INFORMATION_SCHEMA INNODB_METRICS Table) and the
    /// pages of MariaDB 10.5 and later list them.
    const TABLES: [(&str, &str); 9] = [
        ("events_waits_summary_by_user_by_event_name", "user event_name count_star sum_timer_wait"),
        (
            "file_summary_by_event_name",
            "event_name count_star count_read sum_timer_read sum_number_of_bytes_read count_write \
             sum_timer_write \
             sum_number_of_bytes_write count_misc sum_timer_misc",
        ),
        (
            "file_summary_by_instance",
            "file_name event_name count_read sum_timer_read sum_number_of_bytes_read",
        ),
        ("events_statements_summary_global_by_event_name", "event_name count_star sum_timer_wait"),
        ("events_transactions_summary_global_by_event_name", "event_name count_star"),
        ("setup_consumers", "name enabled"),
        ("setup_instruments", "name enabled timed"),
        (
            "events_statements_summary_by_digest",
            "schema_name digest digest_text count_star sum_timer_wait sum_rows_sent \
             sum_rows_affected first_seen",
        ),
        ("innodb_metrics", "name count comment time_enabled time_disabled"),
    ];

    #[test]
    fn the_tables_and_columns_that_are_asked_for_are_documented_for_both_products() {
        const WORDS: &str = "select as if is null sum from where group by and like in \
                             performance_schema information_schema name \
                             background count ps read_ps read_bytes write_ps write_bytes misc_ps \
                             files statements order desc limit bytes";
        for (name, query, _) in VIEWS {
            let table = TABLES
                .iter()
                .find(|(table, _)| query.contains(&format!(".{table} ")) || query.ends_with(table));
            let (table, columns) =
                table.unwrap_or_else(|| panic!("{name}: no documented table in {query}"));
            let outside_quotes: String = query.split('\'').step_by(2).collect();
            let words = outside_quotes.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            for word in words.filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic())) {
                let word = word.to_lowercase();
                let known = columns.split(' ').chain(WORDS.split(' ')).any(|known| known == word);
                assert!(known || word == *table, "{name}: {word} is no column of {table}");
            }
        }
    }
}
