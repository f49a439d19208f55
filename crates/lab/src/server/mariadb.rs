//! MariaDB: `mariadb-install-db`, `mariadbd`, its protocol.
//!
//! **Deliberately absent**: MySQL, whose directories are made in another way; passwords: only the
//! account can enter the socket's directory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use mysql::consts::CapabilityFlags;
use mysql::prelude::Queryable;
use mysql::{Conn, OptsBuilder, Row, Statement, Value};
use rustix::process::Signal;
use tiersmith_awr::{Snapshot, statistic};

use super::client::{Client, Deadlock, Range, Rows, first_words};
use super::sql::{Kind, Marks, Prepared, REDO_SYNC, wait};
use super::{Product, Programs, Site, refused};
use crate::error::Result;
use crate::sql::{MariadbSql, Sql};

/// `ER_LOCK_DEADLOCK`.
const DEADLOCK: u16 = 1213;

/// Statements that a connection keeps: more than any load has.
const STATEMENTS: usize = 256;

/// The product.
#[derive(Debug)]
pub(super) struct Mariadb;

impl Product for Mariadb {
    fn name(&self) -> &'static str {
        "mariadb"
    }

    fn title(&self) -> &'static str {
        "MariaDB"
    }

    fn needed(&self) -> &'static [&'static str] {
        &["mariadbd", "mariadb-install-db"]
    }

    fn useful(&self) -> &'static [&'static str] {
        &["sysbench", "mariadb-check", "mariadb-dump"]
    }

    fn places(&self) -> &'static [&'static str] {
        &["/usr/sbin", "/usr/libexec"]
    }

    fn packages(&self) -> &'static str {
        "mariadb-server"
    }

    fn account_name(&self) -> &'static str {
        "mysql"
    }

    fn user(&self) -> &'static str {
        "root"
    }

    fn page_bytes(&self) -> u64 {
        16384
    }

    fn creation(&self, programs: &Programs, data: &Path) -> Option<Vec<OsString>> {
        let mut datadir = OsString::from("--datadir=");
        datadir.push(data);
        // A server removes what it takes for temporary tables of before from its directory for
        // them, and that of the system may have others'.
        let mut tmpdir = OsString::from("--tmpdir=");
        tmpdir.push(data);
        let install = programs.path("mariadb-install-db").into();
        let words = [
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--innodb-log-file-size=16M",
        ];
        Some(
            [install, "--no-defaults".into(), datadir, tmpdir]
                .into_iter()
                .chain(words.map(OsString::from))
                .collect(),
        )
    }

    fn arguments(&self, site: &Site, socket_dir: &Path) -> Vec<OsString> {
        let with = |option: &str, path: &Path| {
            let mut word = OsString::from(format!("--{option}="));
            word.push(path);
            word
        };
        let mut words = vec![
            OsString::from("--no-defaults"),
            with("datadir", &site.data),
            with("socket", &socket_dir.join(self.socket_name())),
            with("pid-file", &socket_dir.join("pid")),
            with("tmpdir", socket_dir),
        ];
        if let Some(redo) = &site.redo {
            words.push(with("innodb-log-group-home-dir", redo));
        }
        // A commit is durable.
        let usual = ["--skip-networking", "--innodb-flush-log-at-trx-commit=1"];
        words.extend(usual.map(OsString::from));
        words.extend(site.settings.iter().map(|(name, value)| format!("--{name}={value}").into()));
        words
    }

    fn socket_name(&self) -> &'static str {
        "mysqld.sock"
    }

    fn stop_signal(&self) -> Signal {
        Signal::TERM
    }

    fn connect(&self, socket: &Path) -> Result<Box<dyn Client>> {
        let connection = connection(socket)?;
        Ok(Box::new(MariadbClient {
            connection,
            socket: socket.into(),
            statements: Prepared::new(),
        }))
    }

    fn speaks_sql(&self) -> bool {
        true
    }

    fn sql(&self, socket: &Path) -> Result<Box<dyn Sql>> {
        Ok(Box::new(MariadbSql::new(connection(socket)?, socket.into())?))
    }

    fn unsynced(&self) -> Option<(&'static str, &'static str)> {
        Some(("innodb-flush-log-at-trx-commit", "0"))
    }

    fn redo_within(&self) -> &'static str {
        "ib_logfile0"
    }

    fn torn_page_protection(&self) -> Option<(&'static str, &'static str)> {
        Some(("innodb-doublewrite", "0"))
    }

    fn cache_settings(&self, bytes: u64) -> Vec<(String, String)> {
        // Smaller pools are refused.
        vec![("innodb-buffer-pool-size".into(), bytes.max(8 << 20).to_string())]
    }

    fn redo_profile(&self) -> &'static str {
        "description = \"MariaDB: InnoDB's redo alone on the tier\"\n\
         [default]\nclass = \"pass\"\nblock_size = 16384\n\
         [[rule]]\nfiles = [\"ib_logfile[0-9]*\"]\nclass = \"data\"\nblock_size = 4096\nwhy = \
         \"InnoDB redo log: each commit waits for it\"\n"
    }

    fn remark(&self, log: &str) -> Option<String> {
        let line = log.lines().rev().find(|line| line.contains("(memory-mapped)"))?;
        Some(format!(
            "MariaDB took its redo for persistent memory and mapped it by itself ({}): it is a \
             PMEM-aware database then, and writes redo \
             without a system call.",
            line.split("InnoDB: ").last().unwrap_or(line).trim()
        ))
    }

    fn figures(&self, client: &mut dyn Client, snapshot: &mut Snapshot) -> Result<()> {
        let sql = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_os_log_written', \
                   'Innodb_log_writes', 'Innodb_log_write_requests', \
                   'Innodb_buffer_pool_reads', 'Innodb_buffer_pool_read_requests', \
                   'Innodb_data_fsyncs', 'Innodb_dblwr_pages_written')";
        for row in client.table(sql)? {
            let [name, value] = row.as_slice() else { continue };
            let value = value.parse().unwrap_or(0);
            match name.as_str() {
                "Innodb_os_log_written" => {
                    snapshot.add_counter(statistic::REDO_SIZE, "bytes", value)
                }
                "Innodb_buffer_pool_reads" => {
                    snapshot.add_counter("pages read into the buffer pool", "pages", value)
                }
                "Innodb_buffer_pool_read_requests" => {
                    snapshot.add_counter(statistic::LOGICAL_READS, "pages", value)
                }
                other => snapshot.add_counter(other, "times", value),
            }
        }
        let sql = "SELECT COUNT_WRITE, SUM_TIMER_WRITE DIV 1000, COUNT_MISC, SUM_TIMER_MISC DIV \
                   1000, SUM_NUMBER_OF_BYTES_WRITE \
                   FROM performance_schema.file_summary_by_event_name WHERE EVENT_NAME = \
                   'wait/io/file/innodb/innodb_log_file'";
        // Only where performance_schema is on, and the server times its redo: MariaDB of 10.8 and
        // newer does not.
        if let Some(row) = client.table(sql)?.into_iter().next() {
            let figure =
                |n: usize| row.get(n).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            if figure(0) + figure(2) == 0 {
                return Ok(());
            }
            snapshot.waits.push(wait(
                "InnoDB redo write",
                figure(0),
                figure(1),
                figure(4),
                "InnoDB wrote redo to the file.",
            ));
            let help = "InnoDB waited for redo to be durable.";
            snapshot.waits.push(wait(REDO_SYNC, figure(2), figure(3), 0, help));
        }
        Ok(())
    }
}

fn connection(socket: &Path) -> Result<Conn> {
    // Rows found are counted, as the other products do, not those whose value was another.
    let options = OptsBuilder::new()
        .socket(socket.to_str())
        .user(Some("root"))
        .prefer_socket(true)
        // A client that forgets the oldest would close it under whoever holds it still.
        .stmt_cache_size(STATEMENTS)
        .additional_capabilities(CapabilityFlags::CLIENT_FOUND_ROWS);
    Conn::new(options).map_err(|e| refused("connecting", socket)(e.to_string()))
}

const MARKS: Marks = Marks { after: "?", before: "?", value: "?" };

struct MariadbClient {
    connection: Conn,
    socket: PathBuf,
    statements: Prepared<Statement>,
}

impl MariadbClient {
    fn failed(&self, what: &str) -> impl FnOnce(mysql::Error) -> crate::error::Error + use<> {
        let refuse = refused(what, &self.socket);
        move |e| refuse(e.to_string())
    }

    fn prepared(&mut self, kind: Kind, schema: u32) -> Result<Statement> {
        let failed = self.failed("preparing a statement");
        let connection = &mut self.connection;
        self.statements
            .get(kind, schema, || connection.prep(kind.text(schema, MARKS)))
            .map_err(failed)
    }
}

impl Client for MariadbClient {
    fn ping(&mut self) -> Result<()> {
        self.batch("SELECT 1")
    }

    fn batch(&mut self, statements: &str) -> Result<()> {
        self.connection.query_drop(statements).map_err(self.failed(first_words(statements)))
    }

    fn table(&mut self, statement: &str) -> Result<Vec<Vec<String>>> {
        let rows: Vec<Row> =
            self.connection.query(statement).map_err(self.failed(first_words(statement)))?;
        let text = |value: Value| match value {
            Value::NULL => String::new(),
            Value::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Value::Int(number) => number.to_string(),
            Value::UInt(number) => number.to_string(),
            other => other.as_sql(true).trim_matches('\'').to_owned(),
        };
        Ok(rows.into_iter().map(|row| row.unwrap().into_iter().map(text).collect()).collect())
    }

    fn load(&mut self, rows: &Rows) -> Result<()> {
        let user = format!("user{}", rows.schema + 1);
        let columns: Vec<String> =
            (2..=20).map(|n| format!("c{n} VARCHAR({}) CHARACTER SET ascii", rows.width)).collect();
        let values = vec!["v"; 19].join(", ");
        // A tenth of a page is filled when a table is built again, so that no second row is put
        // into it.
        let mut sql =
            vec![format!("CREATE DATABASE {user}"), "SET GLOBAL innodb_fill_factor = 10".into()];
        for (table, count) in [("cf1", rows.rows), ("cf2", rows.scan_rows)] {
            sql.push(format!(
                "CREATE TABLE {user}.{table} (place INT AUTO_INCREMENT PRIMARY KEY, custid BIGINT \
                 NOT NULL, {}) ENGINE=InnoDB \
                 ROW_FORMAT=DYNAMIC",
                columns.join(", ")
            ));
            sql.push(format!(
                "INSERT INTO {user}.{table} SELECT NULL, custid, {values} FROM (SELECT seq AS \
                 custid, RPAD(MD5(seq), {}, 'x') AS v, \
                 MD5(CONCAT(seq, '{}')) AS hash FROM {user}.seq_1_to_{count}) AS numbered ORDER BY \
                 hash",
                rows.width, rows.seed
            ));
            sql.push(format!("ALTER TABLE {user}.{table} FORCE, ALGORITHM=INPLACE"));
        }
        sql.push(format!("CREATE INDEX i_cf1 ON {user}.cf1 (custid)"));
        sql.push(format!("ANALYZE TABLE {user}.cf1, {user}.cf2"));
        sql.push("SET GLOBAL innodb_fill_factor = 100".into());
        sql.iter().try_for_each(|statement| self.batch(statement))
    }

    fn count(&mut self, schema: u32, _: u64) -> Result<u64> {
        self.number(&format!("SELECT COUNT(DISTINCT custid) FROM user{}.cf1", schema + 1))
    }

    fn select(&mut self, range: Range) -> Result<u64> {
        let statement = self.prepared(Kind::Select, range.schema)?;
        let found = self.connection.exec_first(&statement, (range.after, range.before));
        found.map(|rows: Option<u64>| rows.unwrap_or(0)).map_err(self.failed("SELECT"))
    }

    fn scan(&mut self, schema: u32) -> Result<u64> {
        let statement = self.prepared(Kind::Scan, schema)?;
        let found = self.connection.exec_first(&statement, ());
        found.map(|rows: Option<u64>| rows.unwrap_or(0)).map_err(self.failed("SELECT"))
    }

    fn update(
        &mut self,
        range: Range,
        value: &str,
        is_heavy: bool,
    ) -> Result<std::result::Result<u64, Deadlock>> {
        let kind = Kind::of_update(is_heavy);
        let statement = self.prepared(kind, range.schema)?;
        self.batch("BEGIN")?;
        let values = std::iter::repeat_n(Value::from(value), kind.columns().len());
        let parameters: Vec<Value> =
            values.chain([Value::from(range.after), Value::from(range.before)]).collect();
        match self.connection.exec_drop(&statement, parameters) {
            Ok(()) => Ok(Ok(self.connection.affected_rows())),
            // The server rolled it back.
            Err(mysql::Error::MySqlError(e)) if e.code == DEADLOCK => Ok(Err(Deadlock)),
            Err(e) => Err(self.failed("UPDATE")(e)),
        }
    }

    fn commit(&mut self) -> Result<()> {
        self.batch("COMMIT")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redo_that_mariadb_mapped_by_itself_is_remarked() {
        let mapped = "[Note] InnoDB: End of log at LSN=44760\n[Note] InnoDB: log sequence number \
                      44760 (memory-mapped); transaction id 14\n";
        let remark = Mariadb.remark(mapped).unwrap();
        assert!(
            remark.contains("PMEM-aware")
                && remark.contains("log sequence number 44760 (memory-mapped)"),
            "{remark}"
        );
        assert_eq!(
            Mariadb.remark(
                "[Note] InnoDB: File system buffers for log disabled (block size=4096 bytes)\n"
            ),
            None
        );
    }
}
