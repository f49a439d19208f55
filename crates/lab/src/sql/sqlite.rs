//! SQL on a connection of SQLite.
//!
//! **Invariant**: a transaction that writes has the lock from its beginning (`BEGIN IMMEDIATE`), so
//! it never finds half way that another one was faster.

use std::collections::HashMap;
use std::path::PathBuf;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, ToSql, params_from_iter};

use super::{Broken, LOCK, Outcome, Row, Sql, Table, Value, beginning};
use crate::error::{Error, Result};

/// Statements that a connection keeps.
const STATEMENTS: usize = 1024;

/// A connection, and what its statements are called here.
pub(crate) struct SqliteSql {
    connection: Connection,
    path: PathBuf,
    texts: HashMap<String, String>,
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Int(number) => ValueRef::Integer(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

fn value(found: ValueRef<'_>) -> Value {
    match found {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Int(number),
        ValueRef::Real(number) => Value::Int(number as i64),
        ValueRef::Text(text) | ValueRef::Blob(text) => {
            Value::Text(String::from_utf8_lossy(text).into_owned())
        }
    }
}

impl SqliteSql {
    /// Takes over a connection that is set up.
    pub(crate) fn new(connection: Connection, path: PathBuf) -> SqliteSql {
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        SqliteSql { connection, path, texts: HashMap::new() }
    }

    /// The connection, when nothing is asked any more.
    pub(crate) fn into_connection(self) -> Connection {
        self.connection
    }

    fn failed(&self, what: &str, e: &rusqlite::Error) -> Error {
        Error::Target { what: beginning(what), database: self.path.clone(), reason: e.to_string() }
    }

    fn broken(&self, what: &str, e: &rusqlite::Error) -> Broken {
        match e.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Broken::Again,
            _ => Broken::Failed(self.failed(what, e)),
        }
    }

    fn run(&self, statement: &str) -> Outcome<()> {
        let prepared = self.connection.prepare_cached(statement);
        prepared
            .and_then(|mut run| run.execute([]))
            .map(drop)
            .map_err(|e| self.broken(statement, &e))
    }
}

/// The statement without what SQLite does not know.
fn text(statement: &str) -> String {
    statement.trim_end_matches(LOCK).to_owned()
}

impl Sql for SqliteSql {
    fn begin(&mut self, writes: bool) -> Outcome<()> {
        self.run(if writes { "BEGIN IMMEDIATE" } else { "BEGIN" })
    }

    fn rows(&mut self, statement: &str, values: &[Value]) -> Outcome<Vec<Row>> {
        if !self.texts.contains_key(statement) {
            self.texts.insert(statement.to_owned(), text(statement));
        }
        let sql = self.texts.get(statement).map_or(statement, String::as_str);
        let find = || -> rusqlite::Result<Vec<Row>> {
            let mut prepared = self.connection.prepare_cached(sql)?;
            let columns = prepared.column_count();
            let mut found = prepared.query(params_from_iter(values))?;
            let mut rows = Vec::new();
            while let Some(row) = found.next()? {
                let cells = (0..columns).map(|n| row.get_ref(n).map(value));
                rows.push(Row(cells.collect::<rusqlite::Result<_>>()?));
            }
            Ok(rows)
        };
        find().map_err(|e| self.broken(statement, &e))
    }

    fn change(&mut self, statement: &str, values: &[Value]) -> Outcome<u64> {
        let prepared = self.connection.prepare_cached(statement);
        let done = prepared.and_then(|mut change| change.execute(params_from_iter(values)));
        done.map(|rows| rows as u64).map_err(|e| self.broken(statement, &e))
    }

    fn commit(&mut self) -> Outcome<()> {
        self.run("COMMIT")
    }

    fn rollback(&mut self) -> Result<()> {
        if self.connection.is_autocommit() {
            // SQLite ended it by itself.
            return Ok(());
        }
        self.connection.execute_batch("ROLLBACK").map_err(|e| self.failed("ROLLBACK", &e))
    }

    fn batch(&mut self, statements: &str) -> Result<()> {
        self.connection.execute_batch(statements).map_err(|e| self.failed(statements, &e))
    }

    fn table(&mut self, query: &str) -> Result<Vec<Vec<String>>> {
        let find = || -> rusqlite::Result<Vec<Vec<String>>> {
            let mut prepared = self.connection.prepare(query)?;
            let columns = prepared.column_count();
            let mut found = prepared.query([])?;
            let mut rows = Vec::new();
            while let Some(row) = found.next()? {
                let cell = |n| {
                    row.get_ref(n).map(|cell| match value(cell) {
                        Value::Null => String::new(),
                        Value::Int(number) => number.to_string(),
                        Value::Text(text) => text,
                    })
                };
                rows.push((0..columns).map(cell).collect::<rusqlite::Result<_>>()?);
            }
            Ok(rows)
        };
        find().map_err(|e| self.failed(query, &e))
    }

    fn fill(&mut self, table: &Table, rows: &mut dyn Iterator<Item = Row>) -> Result<()> {
        let insert = || -> rusqlite::Result<()> {
            let marks = vec!["?"; table.width].join(", ");
            self.connection.execute_batch("BEGIN")?;
            let mut insert =
                self.connection.prepare(&format!("INSERT INTO {} VALUES ({marks})", table.name))?;
            for row in rows {
                insert.execute(params_from_iter(&row.0))?;
            }
            drop(insert);
            self.connection.execute_batch("COMMIT")
        };
        insert().map_err(|e| self.failed(&format!("loading {}", table.name), &e))
    }

    fn analyse(&mut self, _: &[Table]) -> Result<()> {
        self.batch("ANALYZE")
    }
}
