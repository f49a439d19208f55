//! SQL on a connection of MariaDB.

use std::collections::HashMap;
use std::path::PathBuf;

use mysql::prelude::Queryable;
use mysql::{Conn, Params, Statement};

use super::{Broken, Outcome, Row, Sql, Table, Value, beginning};
use crate::error::{Error, Result};

/// Deadlock, lock wait timeout, record changed since it was read: another transaction was there.
const AGAIN: [u16; 3] = [1213, 1205, 1020];
/// Bytes of rows in one INSERT.
const BATCH: usize = 256 << 10;
/// The database that the tables of a load are in.
const DATABASE: &str = "tiersmith";

/// A connection, and what it has prepared.
pub(crate) struct MariadbSql {
    connection: Conn,
    socket: PathBuf,
    prepared: HashMap<String, Statement>,
}

impl MariadbSql {
    /// Takes over a connection. The database of the loads is made if it is not there.
    ///
    /// # Errors
    /// What the server says.
    pub(crate) fn new(connection: Conn, socket: PathBuf) -> Result<MariadbSql> {
        let mut sql = MariadbSql { connection, socket, prepared: HashMap::new() };
        sql.batch(&format!("CREATE DATABASE IF NOT EXISTS {DATABASE}"))?;
        sql.batch(&format!("USE {DATABASE}"))?;
        Ok(sql)
    }

    fn failed(&self, what: &str, e: &mysql::Error) -> Error {
        Error::Target {
            what: beginning(what),
            database: self.socket.clone(),
            reason: e.to_string(),
        }
    }

    fn broken(&self, what: &str, e: &mysql::Error) -> Broken {
        match e {
            mysql::Error::MySqlError(said) if AGAIN.contains(&said.code) => Broken::Again,
            _ => Broken::Failed(self.failed(what, e)),
        }
    }

    fn prepare(&mut self, statement: &str) -> Outcome<Statement> {
        if let Some(prepared) = self.prepared.get(statement) {
            return Ok(prepared.clone());
        }
        let prepared = self.connection.prep(statement).map_err(|e| self.broken(statement, &e))?;
        self.prepared.insert(statement.to_owned(), prepared.clone());
        Ok(prepared)
    }

    fn plain(&mut self, statement: &str) -> Outcome<()> {
        self.connection.query_drop(statement).map_err(|e| self.broken(statement, &e))
    }
}

fn parameters(values: &[Value]) -> Params {
    let one = |value: &Value| match value {
        Value::Null => mysql::Value::NULL,
        Value::Int(number) => mysql::Value::Int(*number),
        Value::Text(text) => mysql::Value::Bytes(text.clone().into_bytes()),
    };
    if values.is_empty() {
        Params::Empty
    } else {
        Params::Positional(values.iter().map(one).collect())
    }
}

fn value(found: mysql::Value) -> Value {
    match found {
        mysql::Value::Int(number) => Value::Int(number),
        mysql::Value::UInt(number) => Value::Int(i64::try_from(number).unwrap_or(i64::MAX)),
        mysql::Value::Bytes(bytes) => Value::Text(String::from_utf8_lossy(&bytes).into_owned()),
        _ => Value::Null,
    }
}

impl Sql for MariadbSql {
    fn begin(&mut self, _: bool) -> Outcome<()> {
        self.plain("BEGIN")
    }

    fn rows(&mut self, statement: &str, values: &[Value]) -> Outcome<Vec<Row>> {
        let prepared = self.prepare(statement)?;
        let found: mysql::Result<Vec<mysql::Row>> =
            self.connection.exec(&prepared, parameters(values));
        let row = |row: mysql::Row| Row(row.unwrap().into_iter().map(value).collect());
        found
            .map(|rows| rows.into_iter().map(row).collect())
            .map_err(|e| self.broken(statement, &e))
    }

    fn change(&mut self, statement: &str, values: &[Value]) -> Outcome<u64> {
        let prepared = self.prepare(statement)?;
        let done = self.connection.exec_drop(&prepared, parameters(values));
        done.map_err(|e| self.broken(statement, &e))?;
        Ok(self.connection.affected_rows())
    }

    fn commit(&mut self) -> Outcome<()> {
        self.plain("COMMIT")
    }

    fn rollback(&mut self) -> Result<()> {
        self.batch("ROLLBACK")
    }

    fn batch(&mut self, statements: &str) -> Result<()> {
        for statement in statements.split(';').filter(|statement| !statement.trim().is_empty()) {
            self.connection.query_drop(statement).map_err(|e| self.failed(statement, &e))?;
        }
        Ok(())
    }

    fn table(&mut self, query: &str) -> Result<Vec<Vec<String>>> {
        let found: Vec<mysql::Row> =
            self.connection.query(query).map_err(|e| self.failed(query, &e))?;
        let text = |cell: mysql::Value| match value(cell) {
            Value::Null => String::new(),
            Value::Int(number) => number.to_string(),
            Value::Text(text) => text,
        };
        Ok(found.into_iter().map(|row| row.unwrap().into_iter().map(text).collect()).collect())
    }

    fn fill(&mut self, table: &Table, rows: &mut dyn Iterator<Item = Row>) -> Result<()> {
        self.batch("BEGIN")?;
        let head = format!("INSERT INTO {} VALUES ", table.name);
        let mut insert = head.clone();
        for row in rows {
            insert.push_str(if insert.len() == head.len() { "(" } else { ", (" });
            for (n, value) in row.0.iter().enumerate() {
                insert.push_str(if n == 0 { "" } else { ", " });
                match value {
                    Value::Null => insert.push_str("NULL"),
                    Value::Int(number) => insert.push_str(&number.to_string()),
                    Value::Text(text) => {
                        insert.push_str(&mysql::Value::from(text.as_str()).as_sql(false));
                    }
                }
            }
            insert.push(')');
            if insert.len() >= BATCH {
                self.connection.query_drop(&insert).map_err(|e| self.failed(&head, &e))?;
                insert.clone_from(&head);
            }
        }
        if insert.len() > head.len() {
            self.connection.query_drop(&insert).map_err(|e| self.failed(&head, &e))?;
        }
        self.batch("COMMIT")
    }

    fn analyse(&mut self, tables: &[Table]) -> Result<()> {
        let names: Vec<&str> = tables.iter().map(|table| table.name.as_ref()).collect();
        self.batch(&format!("ANALYZE TABLE {}", names.join(", ")))
    }
}
