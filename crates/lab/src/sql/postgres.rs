//! SQL on a connection of PostgreSQL.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::PathBuf;

use postgres::error::SqlState;
use postgres::types::{ToSql, Type};
use postgres::{Client, Error as ServerError, SimpleQueryMessage, Statement};

use super::{Broken, Outcome, Row, Sql, Table, Value, beginning};
use crate::error::{Error, Result};

/// Bytes of rows that are sent at once.
const BATCH: usize = 256 << 10;

/// A connection, and what it has prepared.
pub(crate) struct PostgresSql {
    connection: Client,
    socket: PathBuf,
    prepared: HashMap<String, Statement>,
    /// PostgreSQL 15 and newer can be asked to.
    tells_figures: bool,
}

/// PostgreSQL numbers the marks.
fn text(statement: &str) -> String {
    let mut parts = statement.split('?');
    let mut sql = parts.next().unwrap_or_default().to_owned();
    for (n, part) in parts.enumerate() {
        sql.push_str(&format!("${}{part}", n + 1));
    }
    sql
}

fn reason(e: &ServerError) -> String {
    match e.as_db_error() {
        Some(said) => format!("{}: {}", said.severity(), said.message()),
        None => match std::error::Error::source(e) {
            Some(source) => format!("{e} ({source})"),
            None => e.to_string(),
        },
    }
}

impl PostgresSql {
    /// Takes over a connection.
    pub(crate) fn new(connection: Client, socket: PathBuf) -> PostgresSql {
        PostgresSql { connection, socket, prepared: HashMap::new(), tells_figures: true }
    }

    fn failed(&self, what: &str, e: &ServerError) -> Error {
        Error::Target { what: beginning(what), database: self.socket.clone(), reason: reason(e) }
    }

    fn broken(&self, what: &str, e: &ServerError) -> Broken {
        match e.code() {
            Some(&SqlState::T_R_DEADLOCK_DETECTED | &SqlState::T_R_SERIALIZATION_FAILURE) => {
                Broken::Again
            }
            _ => Broken::Failed(self.failed(what, e)),
        }
    }

    fn prepare(&mut self, statement: &str) -> Outcome<Statement> {
        if let Some(prepared) = self.prepared.get(statement) {
            return Ok(prepared.clone());
        }
        let prepared =
            self.connection.prepare(&text(statement)).map_err(|e| self.broken(statement, &e))?;
        self.prepared.insert(statement.to_owned(), prepared.clone());
        Ok(prepared)
    }

    fn plain(&mut self, statement: &str) -> Outcome<()> {
        self.connection.batch_execute(statement).map_err(|e| self.broken(statement, &e))
    }
}

fn parameter(value: &Value) -> &(dyn ToSql + Sync) {
    match value {
        Value::Null => &None::<i64>,
        Value::Int(number) => number,
        Value::Text(text) => text,
    }
}

/// Parameters as the protocol wants them.
fn parameters(values: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(parameter).collect()
}

fn row(found: &postgres::Row) -> Row {
    let cell = |(n, column): (usize, &postgres::Column)| match *column.type_() {
        Type::INT8 => found.get::<_, Option<i64>>(n).map_or(Value::Null, Value::Int),
        Type::TEXT | Type::VARCHAR | Type::BPCHAR => {
            found.get::<_, Option<String>>(n).map_or(Value::Null, Value::Text)
        }
        _ => Value::Null,
    };
    Row(found.columns().iter().enumerate().map(cell).collect())
}

impl Sql for PostgresSql {
    fn begin(&mut self, _: bool) -> Outcome<()> {
        self.plain("BEGIN")
    }

    fn rows(&mut self, statement: &str, values: &[Value]) -> Outcome<Vec<Row>> {
        let prepared = self.prepare(statement)?;
        let found = self.connection.query(&prepared, &parameters(values));
        found.map(|rows| rows.iter().map(row).collect()).map_err(|e| self.broken(statement, &e))
    }

    fn change(&mut self, statement: &str, values: &[Value]) -> Outcome<u64> {
        let prepared = self.prepare(statement)?;
        self.connection
            .execute(&prepared, &parameters(values))
            .map_err(|e| self.broken(statement, &e))
    }

    fn commit(&mut self) -> Outcome<()> {
        self.plain("COMMIT")
    }

    fn rollback(&mut self) -> Result<()> {
        self.batch("ROLLBACK")
    }

    fn batch(&mut self, statements: &str) -> Result<()> {
        self.connection.batch_execute(statements).map_err(|e| self.failed(statements, &e))
    }

    fn table(&mut self, query: &str) -> Result<Vec<Vec<String>>> {
        let messages = self.connection.simple_query(query).map_err(|e| self.failed(query, &e))?;
        let row = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|n| row.get(n).unwrap_or_default().to_owned()).collect())
            }
            _ => None,
        };
        Ok(messages.iter().filter_map(row).collect())
    }

    fn fill(&mut self, table: &Table, rows: &mut dyn Iterator<Item = Row>) -> Result<()> {
        let (what, database) = (format!("loading {}", table.name), self.socket.clone());
        let target =
            |reason| Error::Target { what: what.clone(), database: database.clone(), reason };
        let failed = |e: ServerError| target(reason(&e));
        let unsent = |e: std::io::Error| target(e.to_string());
        let copy = format!("COPY {} FROM STDIN", table.name);
        let mut writer = self.connection.copy_in(&copy).map_err(&failed)?;
        let mut lines = String::with_capacity(BATCH + 1024);
        for row in rows {
            for (n, value) in row.0.iter().enumerate() {
                lines.push_str(if n == 0 { "" } else { "\t" });
                match value {
                    Value::Null => lines.push_str("\\N"),
                    Value::Int(number) => lines.push_str(&number.to_string()),
                    Value::Text(text) => push_escaped(&mut lines, text),
                }
            }
            lines.push('\n');
            if lines.len() >= BATCH {
                writer.write_all(lines.as_bytes()).map_err(&unsent)?;
                lines.clear();
            }
        }
        writer.write_all(lines.as_bytes()).map_err(&unsent)?;
        writer.finish().map(drop).map_err(failed)
    }

    fn analyse(&mut self, tables: &[Table]) -> Result<()> {
        let names: Vec<&str> = tables.iter().map(|table| table.name.as_ref()).collect();
        self.batch(&format!("VACUUM ANALYZE {}", names.join(", ")))?;
        self.batch("CHECKPOINT")
    }

    fn tell_figures(&mut self) {
        // Else a process tells what it counted once a second.
        self.tells_figures =
            self.tells_figures && self.batch("SELECT pg_stat_force_next_flush()").is_ok();
    }
}

/// A text as COPY reads it.
fn push_escaped(lines: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '\\' => lines.push_str("\\\\"),
            '\t' => lines.push_str("\\t"),
            '\n' => lines.push_str("\\n"),
            '\r' => lines.push_str("\\r"),
            other => lines.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_numbered_in_their_order() {
        let sql = "UPDATE t SET a = ? WHERE b = ? FOR UPDATE";
        assert_eq!(text(sql), "UPDATE t SET a = $1 WHERE b = $2 FOR UPDATE");
    }

    #[test]
    fn what_means_something_to_copy_is_escaped() {
        let mut lines = String::new();
        push_escaped(&mut lines, "a\tb\\c\n");
        assert_eq!(lines, "a\\tb\\\\c\\n");
    }
}
