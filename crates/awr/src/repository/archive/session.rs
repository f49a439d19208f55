//! A session with a PostgreSQL repository whose every answer is waited for so long and no longer.
//!
//! The server has limits of its own for a statement and a lock (`server.rs`); those here are for a
//! server that was stopped, or a machine that stands still: they take a question, also over TCP,
//! and never answer.
//!
//! Deliberately absent: what is asked, and trying again.
//!
//! Invariant: no call waits longer than [`CONNECTING`] or [`ANSWERING`]. After one that was late
//! the session is of no use.

use std::time::Duration;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement, ToStatement};

use crate::sources::postgres::link::{self, OneThread, Place};
use crate::sources::tls::Refusal;

/// How long a server may take to let a session begin.
pub(super) const CONNECTING: Duration = Duration::from_secs(10);
/// How long it may take for an answer: longer than it gives itself for a statement.
const ANSWERING: Duration = Duration::from_secs(130);

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server refuses, or the connection broke.
    Client(tokio_postgres::Error),
    /// This side refuses to wait, or has no means to ask.
    Own(std::io::Error),
    /// The server cannot be reached.
    Away(std::io::Error),
    /// The connection is not encrypted as it should be.
    Refused(Refusal),
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Fault {
        Fault::Client(error)
    }
}

impl From<link::Fault> for Fault {
    fn from(fault: link::Fault) -> Fault {
        match fault {
            link::Fault::Client(error) => Fault::Client(error),
            link::Fault::Network(error) => Fault::Away(error),
            link::Fault::Refused(refusal) => Fault::Refused(refusal),
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Client(error) => match (error.as_db_error(), std::error::Error::source(error)) {
                (Some(of_server), _) => {
                    write!(f, "{} ({})", of_server.message(), of_server.code().code())
                }
                (None, Some(cause)) => write!(f, "{error}: {cause}"),
                (None, None) => error.fmt(f),
            },
            Fault::Own(error) | Fault::Away(error) => error.fmt(f),
            Fault::Refused(refusal) => refusal.fmt(f),
        }
    }
}

impl Fault {
    /// Whether the server did not answer at all, in all the time that it had.
    pub(super) fn is_silence(&self) -> bool {
        match self {
            Fault::Own(_) => true,
            Fault::Away(error) => error.kind() == std::io::ErrorKind::TimedOut,
            Fault::Client(_) | Fault::Refused(_) => false,
        }
    }
}

/// What was asked, or why not.
pub(super) type Asked<T> = std::result::Result<T, Fault>;

/// A connection.
pub(super) struct Session {
    client: Client,
    /// Of one thread: it runs while somebody waits for an answer here, and the connection with it.
    runtime: OneThread,
}

type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Session {
    /// Connects within `patience`, which is [`CONNECTING`] but in tests, and runs what a session
    /// begins with.
    ///
    /// # Errors
    /// If the server cannot be reached, refuses, or says nothing in time.
    pub(super) fn begin(place: &Place, with: &str, patience: Duration) -> Asked<Session> {
        let runtime = OneThread::new().map_err(Fault::Own)?;
        let client = wait(&runtime, patience, async {
            let client = place.client(patience, &|stream| stream).await?;
            client.batch_execute(with).await?;
            Ok::<_, Fault>(client)
        })?;
        Ok(Session { client, runtime })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    pub(super) fn batch_execute(&self, statements: &str) -> Asked<()> {
        wait(&self.runtime, ANSWERING, self.client.batch_execute(statements))
    }

    pub(super) fn prepare(&self, statement: &str) -> Asked<Statement> {
        wait(&self.runtime, ANSWERING, self.client.prepare(statement))
    }

    pub(super) fn execute<T: ?Sized + ToStatement>(
        &self,
        statement: &T,
        values: Values<'_>,
    ) -> Asked<u64> {
        wait(&self.runtime, ANSWERING, self.client.execute(statement, values))
    }

    pub(super) fn query<T: ?Sized + ToStatement>(
        &self,
        statement: &T,
        values: Values<'_>,
    ) -> Asked<Vec<Row>> {
        wait(&self.runtime, ANSWERING, self.client.query(statement, values))
    }

    pub(super) fn query_one<T: ?Sized + ToStatement>(
        &self,
        statement: &T,
        values: Values<'_>,
    ) -> Asked<Row> {
        wait(&self.runtime, ANSWERING, self.client.query_one(statement, values))
    }

    pub(super) fn query_opt<T: ?Sized + ToStatement>(
        &self,
        statement: &T,
        values: Values<'_>,
    ) -> Asked<Option<Row>> {
        wait(&self.runtime, ANSWERING, self.client.query_opt(statement, values))
    }
}

fn wait<T, E: Into<Fault>>(
    runtime: &OneThread,
    limit: Duration,
    answer: impl Future<Output = std::result::Result<T, E>>,
) -> Asked<T> {
    let late = || {
        let reason = format!("there was no answer within {} s", limit.as_secs());
        Fault::Own(std::io::Error::new(std::io::ErrorKind::TimedOut, reason))
    };
    let answer = runtime.block_on(async { tokio::time::timeout(limit, answer).await });
    answer.map_err(|_| late())?.map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::sources::{Address, Asking, Surroundings, postgres};

    fn begun(url: &str, patience: Duration) -> Fault {
        let address = Address::parse(url).expect("an address");
        let place = postgres::place(&address, &Asking::default(), &Surroundings::default())
            .expect("a place");
        Session::begin(&place, "", patience).err().expect("nobody answers")
    }

    #[test]
    fn a_server_that_lets_nobody_in_or_says_nothing_is_not_asked_again_at_once() {
        for mode in ["disable", "allow", "prefer", "require"] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
            let at = listener.local_addr().expect("an address");
            let url = format!("postgresql://u@{at}/d?sslmode={mode}");
            // It takes a connection and says nothing.
            let fault = begun(&url, Duration::from_millis(300));
            assert!(fault.is_silence(), "{mode}: {fault:?}");
            // Its queue becomes full, and then it does not even take one.
            rustix::net::listen(&listener, 0).expect("a short queue");
            let mut queued = Vec::new();
            while queued.len() < 20
                && let Ok(stream) = TcpStream::connect_timeout(&at, Duration::from_millis(300))
            {
                queued.push(stream);
            }
            let fault = begun(&url, Duration::from_millis(300));
            assert!(fault.is_silence(), "{mode}: {fault:?}");
        }
        // Whichever of the two limits is over first.
        assert!(Fault::Away(io::Error::from(io::ErrorKind::TimedOut)).is_silence());
        assert!(!Fault::Away(io::Error::from(io::ErrorKind::ConnectionRefused)).is_silence());
    }
}
