//! A connection to PostgreSQL whose answers are bounded in time, in bytes and in rows.
//!
//! A server that sends without end, claims a row of two gigabytes, or answers nothing breaks the
//! connection: it costs the recorder an error, not its memory and not its schedule. The frames are
//! looked at before the client library sees them, because the library makes room for whatever a
//! frame claims to be.
//!
//! Deliberately absent: connecting (`link.rs`), prepared statements, what the queries mean.
//!
//! Invariants: nothing here waits longer than the deadline of [`Wire::begin`]; between two calls of
//! it no more than [`MOST_BYTES`] and [`MOST_FRAMES`] are taken from the server.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::{Client, SimpleQueryMessage};

use super::link::{self, Bytes, OneThread, Place};
use crate::sources::tls::Refusal;

/// The most bytes of all answers from one [`Wire::begin`] to the next.
const MOST_BYTES: u64 = 64 << 20;
/// The most messages, rows among them, in that time.
const MOST_FRAMES: u64 = 200_000;
/// The largest message.
const MOST_BYTES_OF_A_FRAME: u64 = 8 << 20;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server refuses, or the connection broke.
    Client(tokio_postgres::Error),
    /// The system refuses, or the server does not keep to what is bounded.
    Broken(String),
    /// It is not encrypted as it should be.
    Refused(Refusal),
}

impl Fault {
    /// What the server itself said, if it did.
    pub(super) fn of_server(&self) -> Option<&tokio_postgres::error::DbError> {
        match self {
            Fault::Client(error) => error.as_db_error(),
            Fault::Broken(_) | Fault::Refused(_) => None,
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Broken(error.to_string())
    }
}

impl From<link::Fault> for Fault {
    fn from(fault: link::Fault) -> Fault {
        match fault {
            link::Fault::Client(error) => Fault::Client(error),
            link::Fault::Network(error) => error.into(),
            link::Fault::Refused(refusal) => Fault::Refused(refusal),
        }
    }
}

/// A connection.
pub(super) struct Wire {
    /// Of one thread: it runs while somebody waits for an answer here, and the connection with it.
    runtime: OneThread,
    client: Client,
    meter: Arc<Meter>,
    deadline: Instant,
    patience: Duration,
}

impl Wire {
    /// Connects to the first host of `place`, which has an answer within `patience`.
    ///
    /// # Errors
    /// If the server cannot be reached, refuses, or says nothing in time.
    pub(super) fn connect(place: &Place, patience: Duration) -> Result<Wire, Fault> {
        let runtime = OneThread::new()?;
        let deadline = Instant::now() + patience;
        let meter = Arc::new(Meter::default());
        meter.refill();
        // What is looked at are the server's messages as they are after decryption.
        let guard = |inner| -> Box<dyn Bytes> {
            Box::new(Limited { inner, meter: Arc::clone(&meter), frames: Frames::default() })
        };
        let connecting = async { place.client(patience, &guard).await.map_err(Fault::from) };
        let client =
            runtime.block_on(async { tokio::time::timeout_at(deadline.into(), connecting).await });
        let client = client
            .map_err(|_| late(patience))
            .and_then(|client| client)
            .map_err(|fault| meter.explained(fault))?;
        Ok(Wire { runtime, client, meter, deadline, patience })
    }

    /// Allows another share of time and bytes.
    pub(super) fn begin(&mut self, patience: Duration) {
        (self.deadline, self.patience) = (Instant::now() + patience, patience);
        self.meter.refill();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Runs statements whose answers nobody wants.
    pub(super) fn run(&mut self, statements: &str) -> Result<(), Fault> {
        let asked = async {
            tokio::time::timeout_at(self.deadline.into(), self.client.batch_execute(statements))
                .await
        };
        let done = self.runtime.block_on(asked).map_err(|_| late(self.patience));
        done.and_then(|done| done.map_err(Fault::Client))
            .map_err(|fault| self.meter.explained(fault))
    }

    /// The first column of every row of a query.
    pub(super) fn texts(&mut self, query: &str) -> Result<Vec<String>, Fault> {
        let asked = async {
            tokio::time::timeout_at(self.deadline.into(), self.client.simple_query(query)).await
        };
        let answer = self.runtime.block_on(asked).map_err(|_| late(self.patience));
        let answer = answer.and_then(|answer| answer.map_err(Fault::Client));
        let rows = answer.map_err(|fault| self.meter.explained(fault))?.into_iter().filter_map(
            |message| match message {
                SimpleQueryMessage::Row(row) => row.try_get(0).ok().flatten().map(str::to_owned),
                _ => None,
            },
        );
        Ok(rows.collect())
    }
}

fn late(patience: Duration) -> Fault {
    Fault::Broken(format!("there was no answer within {:.1} s", patience.as_secs_f64()))
}

/// How much may come still.
#[derive(Default)]
struct Meter {
    bytes: AtomicU64,
    frames: AtomicU64,
    /// What was exceeded: the client library only says that the connection is closed.
    exceeded: Mutex<Option<String>>,
}

impl Meter {
    fn refill(&self) {
        self.bytes.store(MOST_BYTES, Ordering::Relaxed);
        self.frames.store(MOST_FRAMES, Ordering::Relaxed);
    }

    fn take(&self, from: &AtomicU64, amount: u64, what: &str) -> io::Result<()> {
        let left = from.load(Ordering::Relaxed).checked_sub(amount);
        from.store(left.unwrap_or(0), Ordering::Relaxed);
        left.map(|_| ()).ok_or_else(|| self.exceed(what))
    }

    fn exceed(&self, what: &str) -> io::Error {
        let reason = format!("the answer is not one to a question of ours: {what}");
        *self.exceeded.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.clone());
        io::Error::new(io::ErrorKind::InvalidData, reason)
    }

    fn explained(&self, fault: Fault) -> Fault {
        match self.exceeded.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(reason) => Fault::Broken(reason),
            None => fault,
        }
    }
}

/// Messages of the server: a letter, a length of four bytes that counts itself, and what it says.
#[derive(Default)]
struct Frames {
    head: [u8; 5],
    of_head: usize,
    /// Bytes of the message that are still to come.
    left: u64,
}

impl Frames {
    #[allow(clippy::big_endian_bytes, reason = "the order of PostgreSQL's protocol")]
    fn look(&mut self, mut bytes: &[u8], meter: &Meter) -> io::Result<()> {
        meter.take(&meter.bytes, bytes.len() as u64, "it has more than 64 MiB")?;
        while let [first, rest @ ..] = bytes {
            if self.left > 0 {
                let skipped = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                self.left -= skipped as u64;
                bytes = &bytes[skipped..];
                continue;
            }
            self.head[self.of_head] = *first;
            self.of_head += 1;
            bytes = rest;
            if self.of_head == self.head.len() {
                self.of_head = 0;
                let [_, length @ ..] = self.head;
                let left = u64::from(u32::from_be_bytes(length)).checked_sub(4);
                self.left = left.ok_or_else(|| {
                    meter.exceed("a message claims to be shorter than its length")
                })?;
                if self.left > MOST_BYTES_OF_A_FRAME {
                    return Err(meter.exceed("a message claims to have more than 8 MiB"));
                }
                meter.take(&meter.frames, 1, "it has more than 200,000 messages")?;
            }
        }
        Ok(())
    }
}

/// A stream that ends with an error where the limits are.
struct Limited {
    inner: Box<dyn Bytes>,
    meter: Arc<Meter>,
    frames: Frames,
}

impl AsyncRead for Limited {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        let Limited { meter, frames, .. } = &mut *self;
        Poll::Ready(frames.look(&buffer.filled()[before..], meter))
    }
}

impl AsyncWrite for Limited {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked(bytes: &[u8], at_once: usize) -> io::Result<()> {
        let (meter, mut frames) = (Meter::default(), Frames::default());
        meter.refill();
        bytes.chunks(at_once).try_for_each(|part| frames.look(part, &meter))
    }

    #[test]
    fn frames_are_followed_however_the_bytes_come_and_impossible_ones_refused() {
        let sound = [&b"Z\0\0\0\x05I"[..], b"D\0\0\0\x08abcd", b"1\0\0\0\x04"].concat();
        for at_once in 1..=sound.len() {
            looked(&sound, at_once).expect("sound");
            for wrong in [&b"D\x7f\xff\xff\xff"[..], b"D\0\0\0\x03", b"D\xff\xff\xff\xff"] {
                looked(&[&sound, wrong].concat(), at_once).expect_err("refused");
            }
        }
        looked(&b"1\0\0\0\x04".repeat(MOST_FRAMES as usize + 1), 8192).expect_err("too many");
    }
}
