//! What the lab asks of a connection, whatever the protocol: SLOB's statements, and figures.
//!
//! **Invariant**: an update is durable when [`Client::commit`] returned, not before, unless the
//! product commits with each statement.
//! **Deliberately absent**: timing, retrying: `target/server/session.rs`.

use std::path::Path;

use super::refused;
use crate::error::Result;

/// Rows with `after < custid < before` of a schema's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Which schema, from 0.
    pub schema: u32,
    /// The key before the first row.
    pub after: i64,
    /// The key after the last row.
    pub before: i64,
}

/// The server ended this transaction, because it and another waited for each other. Nothing of it
/// is left; it can be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlock;

/// What a schema is loaded with.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// Which schema, from 0.
    pub schema: u32,
    /// Rows of the table, each in a page of its own.
    pub rows: u64,
    /// Rows of the scan table.
    pub scan_rows: u64,
    /// Letters in each of the columns c2 to c20.
    pub width: usize,
    /// Where rows lie follows from it.
    pub seed: u64,
}

/// A connection to a server.
pub trait Client: Send {
    /// Whether it answers.
    ///
    /// # Errors
    /// What the server says.
    fn ping(&mut self) -> Result<()>;

    /// Runs SQL statements, or one command of Redis, and forgets what they return.
    ///
    /// # Errors
    /// What the server says.
    ///
    /// # Durability
    /// As the server is set: here, when it returns.
    fn batch(&mut self, statements: &str) -> Result<()>;

    /// The first column of the first row, or Redis' reply, as text.
    ///
    /// # Errors
    /// What the server says; no row.
    fn ask(&mut self, statement: &str) -> Result<String> {
        let first =
            self.table(statement)?.into_iter().next().and_then(|row| row.into_iter().next());
        first.ok_or_else(|| {
            refused(first_words(statement), Path::new(""))("it returned no row".into())
        })
    }

    /// Every row, each column as text, NULL as nothing. Redis: the lines of a reply, split at the
    /// first colon.
    ///
    /// # Errors
    /// What the server says.
    fn table(&mut self, statement: &str) -> Result<Vec<Vec<String>>>;

    /// Makes a schema and fills it, rows in random order of place.
    ///
    /// # Errors
    /// What the server says.
    fn load(&mut self, rows: &Rows) -> Result<()>;

    /// Rows of a schema's table.
    ///
    /// # Errors
    /// What the server says.
    fn count(&mut self, schema: u32, rows: u64) -> Result<u64>;

    /// Counts a range by index, each row fetched.
    ///
    /// # Errors
    /// What the server says.
    fn select(&mut self, range: Range) -> Result<u64>;

    /// Counts the rows of the scan table.
    ///
    /// # Errors
    /// What the server says.
    fn scan(&mut self, schema: u32) -> Result<u64>;

    /// Begins a transaction and changes a range: nineteen columns, or two.
    ///
    /// # Errors
    /// What the server says. A deadlock is none.
    fn update(
        &mut self,
        range: Range,
        value: &str,
        is_heavy: bool,
    ) -> Result<std::result::Result<u64, Deadlock>>;

    /// Commits.
    ///
    /// # Errors
    /// What the server says.
    ///
    /// # Durability
    /// The changes are durable when it returns.
    fn commit(&mut self) -> Result<()>;

    /// Makes what this connection counted visible to [`super::Product::figures`] now, if the server
    /// gathers it first. Between transactions.
    fn tell_figures(&mut self) {}

    /// The first column of the first row as a number.
    ///
    /// # Errors
    /// What the server says; what is no number.
    fn number(&mut self, statement: &str) -> Result<u64> {
        let text = self.ask(statement)?;
        text.trim().parse().map_err(|_| crate::error::Error::Target {
            what: statement.to_owned(),
            database: std::path::PathBuf::new(),
            reason: format!("{text:?} is not a number"),
        })
    }
}

/// The beginning of a statement, for errors.
pub(super) fn first_words(statement: &str) -> &str {
    let statement = statement.trim_start();
    let end = statement.char_indices().nth(60).map_or(statement.len(), |(at, _)| at);
    statement.get(..end).unwrap_or(statement)
}
