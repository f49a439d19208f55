//! SQL that is the same text on every database: what loads with statements of their own speak.
//!
//! A statement marks its parameters with `?` and may end in ` FOR UPDATE`. A connection writes it
//! as its product wants it (PostgreSQL numbers the marks, SQLite locks the whole database when a
//! transaction begins), prepares it when it is used first, and keeps it.
//!
//! **Invariant**: a transaction that has to be tried again is told apart from one that failed.
//! **Deliberately absent**: timing and counting, and what a load asks: `target/transactions`.

mod mariadb;
mod postgres;
mod sqlite;

use std::borrow::Cow;
use std::path::Path;

use crate::error::Error;

pub(crate) use mariadb::MariadbSql;
pub(crate) use postgres::PostgresSql;
pub(crate) use sqlite::SqliteSql;

/// What stands in a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A number; money is in cents, so that every database adds alike.
    Int(i64),
    /// Letters.
    Text(String),
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Int(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Value {
        Value::Int(number.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

/// The values of a row, in the order of its columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row(pub Vec<Value>);

impl Row {
    /// A number; 0 where there is none.
    pub fn int(&self, column: usize) -> i64 {
        match self.0.get(column) {
            Some(Value::Int(number)) => *number,
            _ => 0,
        }
    }

    /// Letters; none where there are none.
    pub fn text(&self, column: usize) -> &str {
        match self.0.get(column) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }
}

/// A row of anything that can be a value.
macro_rules! row {
    ($($value:expr),* $(,)?) => { $crate::sql::Row(vec![$($crate::sql::Value::from($value)),*]) };
}
pub(crate) use row;

/// A table, as every product takes it.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name.
    pub name: Cow<'static, str>,
    /// Its columns with their types, and its primary key if it has one.
    pub columns: Cow<'static, str>,
    /// How many columns.
    pub width: usize,
    /// Names of further indexes, within the table, with their columns; made when the rows are
    /// there.
    pub indexes: &'static [(&'static str, &'static str)],
}

impl Table {
    /// One whose name or columns are put together.
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        columns: impl Into<Cow<'static, str>>,
        width: usize,
        indexes: &'static [(&'static str, &'static str)],
    ) -> Table {
        Table { name: name.into(), columns: columns.into(), width, indexes }
    }
}

/// Why a statement did nothing.
#[derive(Debug)]
pub enum Broken {
    /// The database ended the transaction because of another one: try it again from its beginning.
    Again,
    /// It failed.
    Failed(Error),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Broken {
        Broken::Failed(error)
    }
}

/// What a statement gives.
pub type Outcome<T> = std::result::Result<T, Broken>;

/// A connection that speaks SQL. It is used by one thread at a time.
pub trait Sql: Send {
    /// Begins a transaction, which may write if `writes`.
    ///
    /// # Errors
    /// [`Broken`].
    fn begin(&mut self, writes: bool) -> Outcome<()>;

    /// Every row that a statement finds.
    ///
    /// # Errors
    /// [`Broken`].
    fn rows(&mut self, statement: &str, values: &[Value]) -> Outcome<Vec<Row>>;

    /// Changes rows; how many.
    ///
    /// # Errors
    /// [`Broken`].
    fn change(&mut self, statement: &str, values: &[Value]) -> Outcome<u64>;

    /// Commits.
    ///
    /// # Errors
    /// [`Broken`]; the transaction may have been committed nevertheless.
    ///
    /// # Durability
    /// What the transaction wrote is durable when this returns, as the database is set.
    fn commit(&mut self) -> Outcome<()>;

    /// Takes back what the transaction wrote, also after [`Broken::Again`].
    ///
    /// # Errors
    /// What the database says.
    fn rollback(&mut self) -> crate::Result<()>;

    /// Runs statements that give nothing back.
    ///
    /// # Errors
    /// What the database says.
    fn batch(&mut self, statements: &str) -> crate::Result<()>;

    /// Every row of a query that is asked once, each column as text.
    ///
    /// # Errors
    /// What the database says.
    fn table(&mut self, query: &str) -> crate::Result<Vec<Vec<String>>>;

    /// Puts rows into a table, as fast as the product can.
    ///
    /// # Errors
    /// What the database says.
    ///
    /// # Durability
    /// None: a load is synced as a whole, when it is over.
    fn fill(&mut self, table: &Table, rows: &mut dyn Iterator<Item = Row>) -> crate::Result<()>;

    /// Counts what is in the tables, for the planner, when all are filled.
    ///
    /// # Errors
    /// What the database says.
    fn analyse(&mut self, tables: &[Table]) -> crate::Result<()>;

    /// Makes what this connection counted visible to the server's figures now. Between
    /// transactions.
    fn tell_figures(&mut self) {}
}

/// A database file of SQLite, made if it is not there, with SQLite's own settings.
///
/// # Errors
/// What SQLite says.
pub fn open_sqlite(path: &Path) -> crate::Result<Box<dyn Sql>> {
    let connection = rusqlite::Connection::open(path).map_err(|e| Error::Target {
        what: "opening the database".into(),
        database: path.into(),
        reason: e.to_string(),
    })?;
    Ok(Box::new(SqliteSql::new(connection, path.into())))
}

/// Makes tables without their further indexes.
///
/// # Errors
/// What the database says.
pub(crate) fn make(sql: &mut dyn Sql, tables: &[Table]) -> crate::Result<()> {
    let one =
        |table: &Table| sql.batch(&format!("CREATE TABLE {} ({})", table.name, table.columns));
    tables.iter().try_for_each(one)
}

/// Makes the further indexes of filled tables, and counts what is in them.
///
/// # Errors
/// What the database says.
pub(crate) fn finish(sql: &mut dyn Sql, tables: &[Table]) -> crate::Result<()> {
    for table in tables {
        for (name, columns) in table.indexes {
            // Names of indexes are names of the whole schema in some products.
            let index = format!("{}_{name}", table.name);
            sql.batch(&format!("CREATE INDEX {index} ON {} ({columns})", table.name))?;
        }
    }
    sql.analyse(tables)
}

/// What locks the rows that a query finds, where a database locks rows.
const LOCK: &str = " FOR UPDATE";

/// The first words of a statement, for errors.
fn beginning(statement: &str) -> String {
    statement.split_whitespace().take(6).collect::<Vec<_>>().join(" ")
}
