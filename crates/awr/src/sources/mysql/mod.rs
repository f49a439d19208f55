//! MariaDB and MySQL: global status, settings, InnoDB metrics, and performance_schema where it is on.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | connecting and asking |
//! | `counters.rs` | rows into a snapshot |
//!
//! With `performance_schema = ON` and the `wait/%` instruments, waits are measured: by user, because rows without a user are those of
//! the server's own threads. Without it there are counters only, and running statements are sampled by their state.
//!
//! An answer has at most `MOST_ROWS` rows and `MOST_BYTES` bytes, and a snapshot takes no longer than is asked: it is made on a thread of
//! its own (`../aside.rs`), because the client library reads on to the end of an answer, however long it takes, and takes it on trust.
//!
//! Deliberately absent: TLS (use the socket, or a tunnel), replication, Galera.

mod counters;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use mysql::{Conn, Opts, OptsBuilder, Row};

use super::{Address, Asking, LiveSource, Surroundings};
use crate::sampling::{ON_CPU, Sampling};
use crate::{Error, Result, Snapshot};

/// A row by the names of its columns, in lower case.
type Fields = BTreeMap<String, String>;

/// A connection to a server.
pub(super) struct MySql {
    name: String,
    opts: Opts,
    asking: Asking,
    conn: Option<Conn>,
    /// Whether waits are measured, so that samples would only be a worse second figure.
    measured: bool,
}

/// What a server answered.
#[derive(Default)]
struct Answers {
    version: String,
    status: BTreeMap<String, String>,
    variables: BTreeMap<String, String>,
    rows: BTreeMap<&'static str, Vec<Fields>>,
    missing: Vec<String>,
    /// Whether every statement is there that the server counts.
    statements_are_whole: bool,
}

/// The most rows of an answer: a server has some hundreds of variables and some thousands of instruments.
const MOST_ROWS: usize = 20_000;
/// The most bytes of an answer.
const MOST_BYTES: usize = 16 << 20;
/// The largest packet.
const MOST_BYTES_OF_A_PACKET: usize = 4 << 20;
/// The most statements of a snapshot, whatever was asked for.
const MOST_STATEMENTS: usize = 5_000;
/// The longest value that is kept, in characters.
const LONGEST: usize = 8_000;

/// A query of performance_schema or information_schema, and what is lost without it.
const VIEWS: [(&str, &str, &str); 7] = [
    (
        "waits",
        "SELECT event_name AS name, IF(user IS NULL, 1, 0) AS background, SUM(count_star) AS count, SUM(sum_timer_wait) AS ps \
         FROM performance_schema.events_waits_summary_by_user_by_event_name WHERE count_star > 0 GROUP BY 1, 2",
        "waits",
    ),
    (
        "files",
        "SELECT event_name AS name, count_read, sum_timer_read AS read_ps, sum_number_of_bytes_read AS read_bytes, count_write, \
         sum_timer_write AS write_ps, sum_number_of_bytes_write AS write_bytes, count_misc, sum_timer_misc AS misc_ps \
         FROM performance_schema.file_summary_by_event_name WHERE count_star > 0",
        "reads and writes by file",
    ),
    (
        "tables",
        "SELECT file_name AS name, sum_number_of_bytes_read AS bytes, sum_timer_read AS ps \
         FROM performance_schema.file_summary_by_instance WHERE event_name = 'wait/io/file/innodb/innodb_data_file' AND count_read > 0 \
         ORDER BY sum_number_of_bytes_read DESC LIMIT 100",
        "reads by table",
    ),
    (
        "statement_time",
        "SELECT SUM(count_star) AS count, SUM(sum_timer_wait) AS ps FROM \
         performance_schema.events_statements_summary_global_by_event_name WHERE event_name LIKE 'statement/%'",
        "DB time",
    ),
    (
        "transactions",
        "SELECT SUM(count_star) AS count FROM performance_schema.events_transactions_summary_global_by_event_name",
        "transactions",
    ),
    (
        "consumers",
        "SELECT name, enabled FROM performance_schema.setup_consumers WHERE name IN ('global_instrumentation', 'thread_instrumentation')",
        "what performance_schema counts",
    ),
    (
        "instruments",
        "SELECT SUM(enabled = 'YES' AND timed = 'YES' AND name LIKE 'wait/io/file/innodb/%') AS files, \
         SUM(enabled = 'YES' AND name LIKE 'statement/%') AS statements FROM performance_schema.setup_instruments",
        "what performance_schema counts",
    ),
];

impl MySql {
    pub(super) fn connect(address: &Address, asking: &Asking, surroundings: &Surroundings) -> Result<MySql> {
        let mut mysql = MySql {
            name: address.shown(),
            opts: options(address, asking, surroundings),
            asking: asking.clone(),
            conn: None,
            measured: false,
        };
        mysql.conn()?;
        Ok(mysql)
    }

    fn error(&self, action: &'static str, error: &mysql::Error) -> Error {
        // The client's error may carry the options; the server's own words never do.
        let (reason, denied) = match error {
            mysql::Error::MySqlError(of_server) => (
                format!("{} ({})", of_server.message, of_server.code),
                [1044, 1045, 1698].contains(&of_server.code),
            ),
            mysql::Error::IoError(error) => (error.to_string(), false),
            mysql::Error::DriverError(error) => (error.to_string(), false),
            _ => ("the server and this program do not understand each other".to_owned(), false),
        };
        let remedy = if denied {
            "Give the user in the URL and the password by MYSQL_PWD or ~/.my.cnf; the user needs PROCESS, and SELECT on performance_schema"
        } else {
            "Check the address, that the server runs, and that the user may connect"
        };
        let reason = super::said(&reason);
        Error::Source { action, place: self.name.clone(), reason, remedy: remedy.to_owned() }
    }

    fn conn(&mut self) -> Result<&mut Conn> {
        if self.conn.is_none() {
            let made = Conn::new(self.opts.clone()).map_err(|error| self.error("connect to", &error))?;
            self.conn = Some(made);
        }
        Ok(self.conn.as_mut().expect("BUG: the connection was made in the lines above"))
    }

    fn answers(&mut self) -> Result<Answers> {
        let limit = self.asking.statements.clamp(1, MOST_STATEMENTS);
        let mut answers = Answers::default();
        self.conn()?;
        // A connection whose answer was too long is forgotten with the rest of it unread.
        let conn = self.conn.take().expect("BUG: the connection was made in the line above");
        let deadline = Instant::now() + self.asking.patience;
        match ask(conn, &mut answers, limit, deadline) {
            Ok(conn) => self.conn = Some(conn),
            Err(error) => return Err(self.error("ask", &error)),
        }
        self.measured = counters::waits_are_measured(&answers);
        Ok(answers)
    }
}

fn ask(conn: Conn, answers: &mut Answers, limit: usize, deadline: Instant) -> mysql::Result<Conn> {
    let mut asker = Asker { conn, deadline };
    let pairs = |rows: Vec<Fields>| {
        let pair = |row: Fields| Some((row.get("variable_name")?.to_lowercase(), row.get("value")?.clone()));
        rows.into_iter().filter_map(pair).collect()
    };
    let version = asker.rows("SELECT VERSION() AS version")?;
    answers.version = version.first().and_then(|row| row.get("version")).cloned().unwrap_or_default();
    answers.status = pairs(asker.rows("SHOW GLOBAL STATUS")?);
    answers.variables = pairs(asker.rows("SHOW GLOBAL VARIABLES")?);
    let on = answers.variables.get("performance_schema").is_some_and(|value| value == "ON");
    if on {
        for (name, query, without) in VIEWS {
            part(&mut asker, answers, name, query, without)?;
        }
        let digests = format!(
            "SELECT COALESCE(schema_name, '') AS db, COALESCE(digest, '') AS id, LEFT(COALESCE(digest_text, ''), 6000) AS query, \
             count_star AS count, sum_timer_wait AS ps, sum_rows_sent + sum_rows_affected AS row_count, \
             COALESCE(UNIX_TIMESTAMP(first_seen), 0) AS since \
             FROM performance_schema.events_statements_summary_by_digest ORDER BY sum_timer_wait DESC LIMIT {limit}"
        );
        part(&mut asker, answers, "statements", &digests, "statements")?;
        answers.statements_are_whole = answers.rows.get("statements").is_some_and(|rows| rows.len() < limit);
    }
    let started =
        "SELECT FLOOR(UNIX_TIMESTAMP(MIN(time_enabled))) AS since FROM information_schema.innodb_metrics";
    part(
        &mut asker,
        answers,
        "started",
        started,
        "the start time of the server; GRANT PROCESS ON *.* gives it",
    )?;
    let enabled = "SELECT name, count, comment FROM information_schema.innodb_metrics WHERE name IN \
                   ('trx_rw_commits', 'trx_ro_commits', 'trx_nl_ro_commits') AND time_enabled IS NOT NULL AND time_disabled IS NULL";
    let without = "information_schema.innodb_metrics; GRANT PROCESS ON *.* gives it";
    part(&mut asker, answers, "metrics", enabled, without)?;
    Ok(asker.conn)
}

/// A connection that answers within limits, or is lost.
struct Asker {
    conn: Conn,
    deadline: Instant,
}

impl Asker {
    fn rows(&mut self, query: &str) -> mysql::Result<Vec<Fields>> {
        let mut result = self.conn.query_iter(query)?;
        let (mut rows, mut bytes) = (Vec::new(), 0usize);
        while let Some(row) = result.next() {
            let row = fields(row?);
            bytes += row.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
            let why = match () {
                () if rows.len() == MOST_ROWS || bytes > MOST_BYTES => {
                    "an answer is longer than any of a server should be"
                }
                () if Instant::now() > self.deadline => "there was no whole answer in time",
                () => {
                    rows.push(row);
                    continue;
                }
            };
            // Dropping the result would read the rest of it, which may have no end: this connection is given up.
            std::mem::forget(result);
            return Err(mysql::Error::IoError(std::io::Error::other(why)));
        }
        drop(result);
        Ok(rows)
    }
}

/// One part of the answers; what the server refuses is a line, a connection that breaks is an error.
fn part(
    asker: &mut Asker,
    answers: &mut Answers,
    name: &'static str,
    query: &str,
    without: &str,
) -> mysql::Result<()> {
    match asker.rows(query) {
        Ok(rows) => {
            answers.rows.insert(name, rows);
            Ok(())
        }
        Err(mysql::Error::MySqlError(error)) => {
            answers.missing.push(format!(
                "{without}; GRANT SELECT ON performance_schema.* may give it, if nothing else is named ({})",
                super::said(&error.message)
            ));
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn fields(row: Row) -> Fields {
    let names: Vec<String> =
        row.columns_ref().iter().map(|column| column.name_str().to_lowercase()).collect();
    names.into_iter().zip(row.unwrap()).map(|(name, value)| (name, shown(value))).collect()
}

fn shown(value: mysql::Value) -> String {
    match value {
        mysql::Value::Bytes(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            text.char_indices()
                .nth(LONGEST)
                .map_or_else(|| text.to_string(), |(end, _)| text[..end].to_owned())
        }
        mysql::Value::Int(number) => number.to_string(),
        mysql::Value::UInt(number) => number.to_string(),
        mysql::Value::Float(number) => number.to_string(),
        mysql::Value::Double(number) => number.to_string(),
        _ => String::new(),
    }
}

fn options(address: &Address, asking: &Asking, surroundings: &Surroundings) -> Opts {
    let file = surroundings.my_cnf();
    let given = |key: &str| file.get(key).cloned();
    let user = address
        .user
        .clone()
        .or_else(|| given("user"))
        .or_else(|| surroundings.variable("USER").map(str::to_owned));
    let password = surroundings.variable("MYSQL_PWD").map(str::to_owned).or_else(|| given("password"));
    let host = address.host.clone().or_else(|| given("socket")).or_else(|| given("host"));
    let sockets = ["/run/mysqld/mysqld.sock", "/var/run/mysqld/mysqld.sock", "/tmp/mysql.sock"];
    let there =
        sockets.iter().find(|path| std::path::Path::new(path).exists()).map(|path| (*path).to_owned());
    let host = host.or_else(|| surroundings.variable("MYSQL_UNIX_PORT").map(str::to_owned)).or(there);
    let mut builder = OptsBuilder::new()
        .user(user)
        .pass(password)
        .prefer_socket(false)
        // Given, it is not asked of the server, which could say anything.
        .max_allowed_packet(Some(MOST_BYTES_OF_A_PACKET))
        .read_timeout(Some(asking.patience))
        .write_timeout(Some(asking.patience))
        .tcp_connect_timeout(Some(asking.patience.min(Duration::from_secs(10))));
    builder = match host {
        Some(path) if path.starts_with('/') => builder.socket(Some(path)),
        host => {
            let port = address.port.or_else(|| given("port")?.parse().ok()).unwrap_or(3306);
            builder.ip_or_hostname(Some(host.unwrap_or_else(|| "127.0.0.1".to_owned()))).tcp_port(port)
        }
    };
    Opts::from(builder)
}

impl LiveSource for MySql {
    fn name(&self) -> &str {
        &self.name
    }

    fn kept_as(&self) -> String {
        self.asking.redaction.name(&self.name)
    }

    fn snapshot(&mut self) -> Result<Snapshot> {
        let had_one = self.conn.is_some();
        let began = Instant::now();
        let answers = match self.answers() {
            // A connection that broke since the last time is made anew; a server that does not answer is not asked twice.
            Err(_) if had_one && began.elapsed() < self.asking.patience / 2 => self.answers()?,
            answers => answers?,
        };
        let mut snapshot =
            Snapshot::now(crate::Source { path: self.name.clone(), ..crate::Source::default() });
        snapshot.process_cpu_ns = None;
        counters::fill(&mut snapshot, &answers, self.asking.redaction);
        self.asking.redaction.apply(&mut snapshot);
        Ok(snapshot)
    }

    fn look(&mut self, sampling: &mut Sampling) -> Result<bool> {
        if self.measured {
            return Ok(false);
        }
        let query = "SELECT COALESCE(state, '') AS state FROM information_schema.processlist WHERE command IN ('Query', 'Execute') \
                     AND id <> CONNECTION_ID() LIMIT 10000";
        self.conn()?;
        let conn = self.conn.take().expect("BUG: the connection was made in the line above");
        let mut asker = Asker { conn, deadline: Instant::now() + self.asking.patience };
        let seen = asker.rows(query).map_err(|error| self.error("ask", &error))?;
        self.conn = Some(asker.conn);
        sampling.looks += 1;
        for state in seen.iter().filter_map(|row| row.get("state")) {
            match counters::class_of_state(state) {
                Some(class) => sampling.saw(state, Some(class)),
                None => sampling.saw(ON_CPU, None),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables and the columns that are asked of them, as the manuals of MySQL 8.0 and 8.4 (Performance Schema Table Descriptions, The
    /// INFORMATION_SCHEMA INNODB_METRICS Table) and the pages of MariaDB 10.5 and later list them.
    const TABLES: [(&str, &str); 9] = [
        ("events_waits_summary_by_user_by_event_name", "user event_name count_star sum_timer_wait"),
        (
            "file_summary_by_event_name",
            "event_name count_star count_read sum_timer_read sum_number_of_bytes_read count_write sum_timer_write \
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
            "schema_name digest digest_text count_star sum_timer_wait sum_rows_sent sum_rows_affected first_seen",
        ),
        ("innodb_metrics", "name count comment time_enabled time_disabled"),
    ];

    #[test]
    fn the_tables_and_columns_that_are_asked_for_are_documented_for_both_products() {
        const WORDS: &str = "select as if is null sum from where group by and like in performance_schema information_schema name \
                             background count ps read_ps read_bytes write_ps write_bytes misc_ps files statements order desc limit bytes";
        for (name, query, _) in VIEWS {
            let table = TABLES
                .iter()
                .find(|(table, _)| query.contains(&format!(".{table} ")) || query.ends_with(table));
            let (table, columns) = table.unwrap_or_else(|| panic!("{name}: no documented table in {query}"));
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
