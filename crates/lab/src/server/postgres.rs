//! PostgreSQL: `initdb`, `postgres`, its protocol.
//!
//! **Deliberately absent**: passwords and TLS. The socket is in a directory that only the account
//! can enter.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use postgres::error::SqlState;
use postgres::{NoTls, SimpleQueryMessage, Statement};
use rustix::process::Signal;
use tiersmith_awr::{Snapshot, statistic};

use super::client::{Client, Deadlock, Range, Rows, first_words};
use super::sql::{Kind, Marks, Prepared, REDO_SYNC, wait};
use super::{Product, Programs, Site, refused};
use crate::error::Result;
use crate::sql::{PostgresSql, Sql};

/// How long clients that were told to end may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long figures may go on moving when nobody is connected any more.
const RESTLESS: Duration = Duration::from_secs(5);
/// How long is waited between two looks at them.
const LOOK: Duration = Duration::from_millis(30);

/// The product.
#[derive(Debug)]
pub(super) struct Postgres;

impl Product for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn title(&self) -> &'static str {
        "PostgreSQL"
    }

    fn needed(&self) -> &'static [&'static str] {
        &["postgres", "initdb"]
    }

    fn useful(&self) -> &'static [&'static str] {
        &["pgbench", "sysbench", "pg_amcheck", "pg_checksums", "pg_dump", "pg_waldump", "psql"]
    }

    fn places(&self) -> &'static [&'static str] {
        &["/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin"]
    }

    fn packages(&self) -> &'static str {
        "postgresql"
    }

    fn account_name(&self) -> &'static str {
        "postgres"
    }

    fn user(&self) -> &'static str {
        "postgres"
    }

    fn page_bytes(&self) -> u64 {
        8192
    }

    fn creation(&self, programs: &Programs, data: &Path) -> Option<Vec<OsString>> {
        let mut words: Vec<OsString> =
            vec![programs.path("initdb").into(), "-D".into(), data.into()];
        words.extend(
            ["--no-sync", "-k", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]
                .map(OsString::from),
        );
        Some(words)
    }

    fn arguments(&self, site: &Site, socket_dir: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> =
            vec!["-D".into(), site.data.clone().into(), "-k".into(), socket_dir.into()];
        let usual = [
            ("listen_addresses", ""),
            ("port", "5432"),
            ("unix_socket_permissions", "0700"),
            ("max_connections", "100"),
        ];
        let usual = usual.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        for (name, value) in usual.chain(site.settings.iter().cloned()) {
            words.extend(["-c".into(), format!("{name}={value}").into()]);
        }
        words
    }

    fn socket_name(&self) -> &'static str {
        ".s.PGSQL.5432"
    }

    fn stop_signal(&self) -> Signal {
        // Fast: sessions are ended, a checkpoint is made.
        Signal::INT
    }

    fn connect(&self, socket: &Path) -> Result<Box<dyn Client>> {
        Ok(Box::new(PostgresClient {
            connection: connection(socket)?,
            socket: socket.into(),
            statements: Prepared::new(),
            tells_figures: true,
        }))
    }

    fn speaks_sql(&self) -> bool {
        true
    }

    fn sql(&self, socket: &Path) -> Result<Box<dyn Sql>> {
        Ok(Box::new(PostgresSql::new(connection(socket)?, socket.into())))
    }

    fn unsynced(&self) -> Option<(&'static str, &'static str)> {
        Some(("fsync", "off"))
    }

    fn redo_within(&self) -> &'static str {
        "pg_wal"
    }

    fn torn_page_protection(&self) -> Option<(&'static str, &'static str)> {
        Some(("full_page_writes", "off"))
    }

    fn cache_settings(&self, bytes: u64) -> Vec<(String, String)> {
        vec![("shared_buffers".into(), format!("{}kB", bytes >> 10))]
    }

    fn redo_profile(&self) -> &'static str {
        "description = \"PostgreSQL: WAL alone on the tier\"\n\
         [default]\nclass = \"pass\"\nblock_size = 8192\n\
         [[rule]]\nfiles = [\"pg_wal/archive_status/**\"]\nclass = \"pass\"\nwhy = \"small\"\n\
         [[rule]]\nfiles = [\"pg_wal/*\"]\nclass = \"redo\"\nwhy = \"write-ahead log: each commit \
         waits for it\"\n"
    }

    fn settle(&self, client: &mut dyn Client) -> Result<()> {
        // A process adds up what it counted before it leaves the list of processes, so who has gone
        // has told. The WAL writer tells when it likes.
        let others = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' \
                      AND pid <> pg_backend_pid()";
        let told =
            "SELECT (wal_write, wal_sync, wal_records, wal_fpi, wal_bytes)::text FROM pg_stat_wal";
        let began = Instant::now();
        let mut last = String::new();
        loop {
            let left = client.number(others)?;
            // Before PostgreSQL 14 there is no such view, and nothing to wait for.
            let now = client.ask(told).unwrap_or_default();
            if left == 0 && now == last {
                return Ok(());
            }
            if left > 0 && began.elapsed() > PATIENCE {
                return Err(refused(
                    "waiting for the load's clients to leave",
                    Path::new("PostgreSQL"),
                )(format!(
                    "{left} are connected still after {PATIENCE:?}"
                )));
            }
            // Figures that never rest (somebody else's work) are no reason to wait for ever.
            if left == 0 && began.elapsed() > RESTLESS {
                return Ok(());
            }
            last = now;
            std::thread::sleep(LOOK);
        }
    }

    fn figures(&self, client: &mut dyn Client, snapshot: &mut Snapshot) -> Result<()> {
        let sql = "SELECT wal_write, wal_sync, (wal_write_time * 1e6)::int8, (wal_sync_time * \
                   1e6)::int8, wal_bytes::int8, wal_records, \
                   wal_fpi, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::int8 FROM \
                   pg_stat_wal";
        let row = client.table(sql)?.into_iter().next().unwrap_or_default();
        let figure = |n: usize| row.get(n).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        snapshot.waits.push(wait(
            "WALWrite",
            figure(0),
            figure(2),
            figure(4),
            "The server wrote WAL to the file.",
        ));
        snapshot.waits.push(wait(
            REDO_SYNC,
            figure(1),
            figure(3),
            0,
            "The server waited for WAL to be durable.",
        ));
        // Not the sum that processes tell when they like: the place in the WAL.
        snapshot.add_counter(statistic::REDO_SIZE, "bytes", figure(7));
        snapshot.add_counter("WAL records", "records", figure(5));
        snapshot.add_counter("WAL full page images", "pages", figure(6));
        let sql =
            "SELECT sum(blks_read)::int8, sum(blks_read + blks_hit)::int8 FROM pg_stat_database";
        let row = client.table(sql)?.into_iter().next().unwrap_or_default();
        let figure = |n: usize| row.get(n).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        snapshot.add_counter("pages read into shared buffers", "pages", figure(0));
        snapshot.add_counter(statistic::LOGICAL_READS, "pages", figure(1));
        Ok(())
    }
}

fn connection(socket: &Path) -> Result<postgres::Client> {
    let mut config = postgres::Config::new();
    config
        .host_path(socket.parent().unwrap_or(Path::new("/")))
        .port(5432)
        .user("postgres")
        .dbname("postgres");
    config.connect(NoTls).map_err(|e| failed("connecting", socket, &e))
}

fn failed(what: &str, socket: &Path, e: &postgres::Error) -> crate::error::Error {
    let detail = e
        .as_db_error()
        .map_or_else(|| e.to_string(), |db| format!("{}: {}", db.severity(), db.message()));
    let cause =
        std::error::Error::source(e).map_or_else(String::new, |source| format!(" ({source})"));
    refused(what, socket)(if e.as_db_error().is_some() {
        detail
    } else {
        format!("{detail}{cause}")
    })
}

/// One value for all columns.
const MARKS: Marks = Marks { after: "$1", before: "$2", value: "$3" };

struct PostgresClient {
    connection: postgres::Client,
    socket: PathBuf,
    statements: Prepared<Statement>,
    /// PostgreSQL 15 and newer can be asked to.
    tells_figures: bool,
}

impl PostgresClient {
    fn failed(&self, what: &str, e: &postgres::Error) -> crate::error::Error {
        failed(what, &self.socket, e)
    }

    fn prepared(&mut self, kind: Kind, schema: u32) -> Result<Statement> {
        let (connection, socket) = (&mut self.connection, &self.socket);
        self.statements.get(kind, schema, || {
            let prepared = connection.prepare(&kind.text(schema, MARKS));
            prepared.map_err(|e| failed("preparing a statement", socket, &e))
        })
    }
}

impl Client for PostgresClient {
    fn ping(&mut self) -> Result<()> {
        self.batch("SELECT 1")
    }

    fn batch(&mut self, statements: &str) -> Result<()> {
        self.connection
            .batch_execute(statements)
            .map_err(|e| failed(first_words(statements), &self.socket, &e))
    }

    fn table(&mut self, statement: &str) -> Result<Vec<Vec<String>>> {
        let messages = self
            .connection
            .simple_query(statement)
            .map_err(|e| failed(first_words(statement), &self.socket, &e))?;
        let row = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|n| row.get(n).unwrap_or_default().to_owned()).collect())
            }
            _ => None,
        };
        Ok(messages.iter().filter_map(row).collect())
    }

    fn load(&mut self, rows: &Rows) -> Result<()> {
        let user = format!("user{}", rows.schema + 1);
        let names: Vec<String> = (2..=20).map(|n| format!("c{n}")).collect();
        let plain: Vec<String> =
            names.iter().map(|name| format!("ALTER COLUMN {name} SET STORAGE PLAIN")).collect();
        let typed: Vec<String> = names.iter().map(|name| format!("{name} text")).collect();
        let values = vec!["v"; 19].join(", ");
        let mut sql = format!("CREATE SCHEMA {user};");
        for (table, count) in [("cf1", rows.rows), ("cf2", rows.scan_rows)] {
            // One row fills more than a tenth of a page, so that no second one is put beside it;
            // its new versions are.
            sql.push_str(&format!(
                "CREATE TABLE {user}.{table} (custid int8 NOT NULL, {}) WITH (fillfactor = 10, \
                 autovacuum_enabled = off);
                 ALTER TABLE {user}.{table} {};
                 INSERT INTO {user}.{table} SELECT custid, {values} FROM (SELECT custid, \
                 rpad(md5(custid::text), {}, 'x') AS v
                 FROM generate_series(1, {count}) custid ORDER BY md5(custid::text || '{}')) AS \
                 shuffled;",
                typed.join(", "),
                plain.join(", "),
                rows.width,
                rows.seed
            ));
        }
        sql.push_str(&format!(
            "CREATE INDEX i_cf1 ON {user}.cf1 (custid); VACUUM ANALYZE {user}.cf1; VACUUM ANALYZE \
             {user}.cf2; CHECKPOINT;"
        ));
        for statement in sql.split(';').filter(|statement| !statement.trim().is_empty()) {
            self.batch(statement)?;
        }
        Ok(())
    }

    fn count(&mut self, schema: u32, _: u64) -> Result<u64> {
        self.number(&format!("SELECT count(DISTINCT custid) FROM user{}.cf1", schema + 1))
    }

    fn select(&mut self, range: Range) -> Result<u64> {
        let statement = self.prepared(Kind::Select, range.schema)?;
        let row = self.connection.query_one(&statement, &[&range.after, &range.before]);
        row.map(|row| u64::try_from(row.get::<_, i64>(0)).unwrap_or(0))
            .map_err(|e| self.failed("SELECT", &e))
    }

    fn scan(&mut self, schema: u32) -> Result<u64> {
        let statement = self.prepared(Kind::Scan, schema)?;
        let row = self.connection.query_one(&statement, &[]);
        row.map(|row| u64::try_from(row.get::<_, i64>(0)).unwrap_or(0))
            .map_err(|e| self.failed("SELECT", &e))
    }

    fn update(
        &mut self,
        range: Range,
        value: &str,
        is_heavy: bool,
    ) -> Result<std::result::Result<u64, Deadlock>> {
        let statement = self.prepared(Kind::of_update(is_heavy), range.schema)?;
        self.batch("BEGIN")?;
        match self.connection.execute(&statement, &[&range.after, &range.before, &value]) {
            Ok(rows) => Ok(Ok(rows)),
            Err(e) if e.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED) => {
                self.batch("ROLLBACK")?;
                Ok(Err(Deadlock))
            }
            Err(e) => Err(self.failed("UPDATE", &e)),
        }
    }

    fn commit(&mut self) -> Result<()> {
        self.batch("COMMIT")
    }

    fn tell_figures(&mut self) {
        // Else a process tells what it counted once a second.
        self.tells_figures =
            self.tells_figures && self.batch("SELECT pg_stat_force_next_flush()").is_ok();
    }
}
