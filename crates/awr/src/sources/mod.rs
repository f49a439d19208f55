//! Sources: databases that can be asked for their counters now, one file each behind one trait.
//!
//! | file | what it asks |
//! |---|---|
//! | `postgres/` | PostgreSQL 13 to 18: the statistics views, pg_stat_statements, settings; samples of active sessions |
//! | `mysql/` | MariaDB and MySQL: status, InnoDB, performance_schema where it is on; samples of running statements |
//! | `redis/` | Redis and Valkey: INFO, commandstats, LATENCY, SLOWLOG |
//! | `machine.rs` | the machine alone |
//! | `recorded.rs` | tests: what servers of every version answered, and which figures came of it |
//! | `timed.rs` | a socket that is waited for until an instant and no longer |
//! | `tls/` | whether and how connections are encrypted, and whom they trust |
//!
//! A source asks in reads only, changes no setting and creates nothing. What it may not see, or
//! what an old version does not have, is left out of the snapshot and named in
//! [`Snapshot::missing`] with what would give it. SQLite and attached homes are counted by the
//! program that has them open; their snapshots come from there.
//!
//! To add one: copy `redis/mod.rs`, the smallest; a line in [`open`] and one in `address.rs`.
//!
//! Every answer is bounded in time, rows and bytes. A list that is longer than its bound is cut
//! where its rows stand for themselves (the longest statements) and left out where sums are made of
//! it, and either is said in the snapshot.
//!
//! Invariants: a snapshot carries an instance that changes with every start of the server and the
//! times of resets; nothing that could be a password is in a snapshot, an error or the log.

mod address;
mod machine;
mod mysql;
pub(crate) mod postgres;
#[cfg(test)]
mod recorded;
mod redis;
mod secret;
mod timed;
pub(crate) mod tls;

use std::time::Duration;

pub use address::{Address, Product};
/// Redis's protocol, for programs that ask a server of their own.
pub(crate) use redis::KV;
pub use redis::{add_waits_of_kv, resp};
pub use secret::Surroundings;

use crate::redact::Redaction;
use crate::snapshot::sampling::Sampling;
use crate::{Result, Snapshot};

/// Reads bytes as a certificate that a server shows, and asks it everything; false if they are
/// none: for fuzz targets.
#[cfg(feature = "testing")]
pub fn take_certificate_apart(bytes: &[u8]) -> bool {
    tls::take_apart(bytes)
}

/// A database that can be asked now.
pub trait LiveSource: Send {
    /// What it is called in messages: its address without anything secret.
    fn name(&self) -> &str;

    /// What it is called in a repository: its name, or a mark if names are to be taken out.
    fn kept_as(&self) -> String {
        self.name().to_owned()
    }

    /// Asks for every counter. A connection that broke is made anew, once.
    ///
    /// # Errors
    /// If the source does not answer or refuses; a part that it does not tell is no error but a
    /// line in [`Snapshot::missing`].
    fn snapshot(&mut self) -> Result<Snapshot>;

    /// Looks once who is active and adds that to `sampling`. False if this source has nothing to
    /// look at: its waits are measured, or it has none.
    ///
    /// # Errors
    /// If the source does not answer; nothing was counted then.
    fn look(&mut self, sampling: &mut Sampling) -> Result<bool>;
}

/// How sources are asked.
#[derive(Clone, Debug)]
pub struct Asking {
    /// What is taken out of statements and names.
    pub redaction: Redaction,
    /// How many statements a snapshot holds: those that took the longest since they were first
    /// counted.
    pub statements: usize,
    /// How long an answer may take.
    pub patience: Duration,
}

impl Default for Asking {
    fn default() -> Asking {
        Asking {
            redaction: Redaction::default(),
            statements: 200,
            patience: Duration::from_secs(30),
        }
    }
}

/// Connects to the source at `address`.
///
/// # Errors
/// If it cannot be reached, refuses the user, or needs a password that is nowhere to be found.
pub fn open(
    address: &Address,
    asking: &Asking,
    surroundings: &Surroundings,
) -> Result<Box<dyn LiveSource>> {
    Ok(match address.product {
        Product::PostgreSql => {
            Box::new(postgres::Postgres::connect(address, asking, surroundings)?)
        }
        Product::MySql => Box::new(mysql::MySql::connect(address, asking, surroundings)?),
        Product::Redis => Box::new(redis::Redis::connect(address, asking, surroundings)?),
        Product::Machine => Box::new(machine::Machine),
    })
}

/// Asks a database questions of SQL: the first column of every row of each answer. A question to
/// Redis is a command, its words apart by spaces; the answer is the lines of a text, or the
/// elements of a list. For a program that acts on what the database says of itself, such as where
/// its files are.
///
/// # Errors
/// If it cannot be reached or refuses a question; if it is no database.
pub fn ask(
    address: &Address,
    asking: &Asking,
    surroundings: &Surroundings,
    questions: &[&str],
) -> Result<Vec<Vec<String>>> {
    match address.product {
        Product::PostgreSql => {
            let mut server = postgres::Postgres::connect(address, asking, surroundings)?;
            questions.iter().map(|question| server.texts(question)).collect()
        }
        Product::MySql => {
            let mut server = mysql::MySql::connect(address, asking, surroundings)?;
            questions.iter().map(|question| server.texts(question)).collect()
        }
        Product::Redis => {
            let mut server = redis::Redis::connect(address, asking, surroundings)?;
            questions.iter().map(|question| server.texts(question)).collect()
        }
        Product::Machine => Err(crate::Error::Source {
            action: "ask",
            place: address.shown(),
            reason: "it is no database".to_owned(),
            remedy: "Give the address of PostgreSQL, MariaDB, MySQL or Redis".to_owned(),
        }),
    }
}

/// Asks a database one question of SQL, and does something with its answer while the connection is
/// open: the process that serves it can be looked for.
///
/// # Errors
/// As [`ask`]; it does not speak SQL.
pub fn ask_and_look<T>(
    address: &Address,
    asking: &Asking,
    surroundings: &Surroundings,
    question: &str,
    look: impl FnOnce(&[String]) -> T,
) -> Result<T> {
    match address.product {
        Product::PostgreSql => {
            let mut server = postgres::Postgres::connect(address, asking, surroundings)?;
            let answer = server.texts(question)?;
            Ok(look(&answer))
        }
        Product::MySql => {
            let mut server = mysql::MySql::connect(address, asking, surroundings)?;
            let answer = server.texts(question)?;
            Ok(look(&answer))
        }
        Product::Redis | Product::Machine => Err(crate::Error::Source {
            action: "ask",
            place: address.shown(),
            reason: "it does not speak SQL".to_owned(),
            remedy: "Give the address of PostgreSQL, MariaDB or MySQL".to_owned(),
        }),
    }
}

/// What a server said, as it may go to a terminal: on one line, without control characters, and not
/// longer than a message.
fn said(text: &str) -> String {
    let beginning: String = text.chars().take(300).collect();
    crate::figure::visible(&beginning)
}

/// Adds a counter whose value may be absent: then nothing is added.
fn count(snapshot: &mut Snapshot, name: &str, unit: &str, value: Option<u64>) {
    if let Some(value) = value {
        snapshot.add_counter(name, unit, value);
    }
}

/// A wait that the source measured: it keeps no histogram.
fn wait(
    name: &str,
    class: tiersmith_events::WaitClass,
    background: bool,
    help: &str,
) -> crate::WaitStat {
    crate::WaitStat {
        name: name.to_owned(),
        class,
        background,
        help: help.to_owned(),
        count: 0,
        total_ns: 0,
        max_ns: 0,
        bytes: 0,
        buckets: Vec::new(),
    }
}

/// Milliseconds, as databases print them with fractions, in nanoseconds.
fn ms_to_ns(ms: f64) -> Option<u64> {
    // Rust's conversion of a number that is too large gives the largest there is.
    (ms.is_finite() && ms >= 0.0).then_some((ms * 1e6) as u64)
}
