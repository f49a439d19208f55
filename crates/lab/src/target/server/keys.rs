//! The load `mixed`: GET and SET on Redis by the lab's own clients, a connection and a thread each.
//!
//! What is asked is said by [`crate::workload::keys`]. A client sends a batch of requests, reads
//! all answers, and sends the next batch; the time of a request is from the sending of its batch to
//! the arrival of its own answer.
//!
//! **Invariant**: an answer that is an error, or a GET that finds nothing, fails the run: figures
//! of a load that did something else mean nothing.
//! **Deliberately absent**: TLS, clusters, a number of connections per thread.

use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tiersmith_awr::events::Histogram;
use tiersmith_awr::resp::{self, Reply};

use super::PATIENCE;
use super::program::Amount;
use crate::error::{During, Error, Result};
use crate::programs::Found;
use crate::run::Latency;
use crate::server::Server;
use crate::workload::keys::{Plan, Request, Settings};

/// Requests at once while the keys get their values.
const FILL_AT_ONCE: u64 = 256;
/// How often the caller looks whether to stop.
const LOOK: Duration = Duration::from_millis(20);

/// One run.
pub(super) struct Run<'a> {
    pub(super) settings: &'a Settings,
    pub(super) keys: u64,
    pub(super) seed: u64,
    pub(super) clients: u32,
    pub(super) amount: Amount,
    pub(super) stopped: &'a (dyn Fn() -> bool + Sync),
    pub(super) progress: &'a (dyn Fn(f64) + Sync),
}

/// How a key is called, by its number.
pub(super) type Name = fn(u64) -> String;

/// As the lab's own clients call it; memtier_benchmark is told to.
pub(super) const OURS: Name = |key| format!("tiersmith-{key}");

/// As redis-benchmark calls it.
pub(super) const OF_REDIS_BENCHMARK: Name = |key| format!("key:{key:012}");

/// Gives every key a value.
///
/// # Errors
/// What the server says.
pub(super) fn fill(server: &Server, settings: &Settings, keys: u64, name: Name) -> Result<()> {
    let mut connection = Connection::open(&server.socket(), settings)?;
    connection.name = name;
    for first in (0..keys).step_by(FILL_AT_ONCE as usize) {
        let batch: Vec<Request> =
            (first..keys.min(first + FILL_AT_ONCE)).map(Request::Set).collect();
        connection.exchange(&batch, |_, _| {})?;
    }
    Ok(())
}

/// What one client found.
#[derive(Default)]
struct Times {
    sets: Histogram,
    gets: Histogram,
    /// From the beginning of the run to the end of the last client.
    ended: Duration,
}

impl Times {
    fn found(&self) -> Found {
        let mut all = self.sets.clone();
        all.merge(&self.gets);
        Found {
            transactions: self.sets.count(),
            statements: all.count(),
            elapsed_s: self.ended.as_secs_f64(),
            latency: Latency::of(&all),
            commit: Latency::of(&self.sets),
            select: Latency::of(&self.gets),
        }
    }
}

impl Run<'_> {
    /// The share that is done, of 1; `left`: requests that no client has taken yet.
    fn share_done(&self, began: Instant, left: u64) -> f64 {
        let share = match self.amount {
            Amount::Time(time) => began.elapsed().as_secs_f64() / time.as_secs_f64().max(1e-3),
            Amount::Count(count) => 1.0 - left as f64 / count.max(1) as f64,
        };
        share.min(1.0)
    }

    /// Whether the time is over, or the user stops it.
    fn is_over(&self, began: Instant) -> bool {
        (self.stopped)() || matches!(self.amount, Amount::Time(time) if began.elapsed() >= time)
    }
}

/// Runs the load.
///
/// # Errors
/// What a client failed with; [`Error::Interrupted`].
pub(super) fn run(server: &Server, run: &Run<'_>) -> Result<Found> {
    let socket = server.socket();
    let (stop, failed, sum) =
        (AtomicBool::new(false), Mutex::new(None), Mutex::new(Times::default()));
    // Requests that no client has taken yet, of a run by number.
    let left = AtomicU64::new(match run.amount {
        Amount::Count(count) => count,
        Amount::Time(_) => u64::MAX,
    });
    let mut connections = Vec::new();
    for _ in 0..run.clients {
        connections.push(Connection::open(&socket, run.settings)?);
    }
    let began = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = connections
            .into_iter()
            .enumerate()
            .map(|(number, connection)| {
                let number = u32::try_from(number).unwrap_or(0);
                let plan = run.settings.plan(run.keys, number, run.clients, run.seed);
                let (stop, failed, sum, left) = (&stop, &failed, &sum, &left);
                scope.spawn(move || {
                    match client(connection, plan, run.settings.pipeline, stop, left) {
                        Ok(times) => {
                            let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
                            sum.sets.merge(&times.sets);
                            sum.gets.merge(&times.gets);
                            sum.ended = sum.ended.max(began.elapsed());
                        }
                        Err(e) => {
                            failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                            stop.store(true, Ordering::SeqCst);
                        }
                    }
                })
            })
            .collect();
        while !threads.iter().all(|thread| thread.is_finished()) && !stop.load(Ordering::SeqCst) {
            (run.progress)(run.share_done(began, left.load(Ordering::Relaxed)));
            if run.is_over(began) {
                stop.store(true, Ordering::SeqCst);
            }
            std::thread::sleep(match run.amount {
                Amount::Time(time) => LOOK.min(time.saturating_sub(began.elapsed())),
                Amount::Count(_) => LOOK,
            });
        }
        for thread in threads {
            let _ = thread.join();
        }
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    if (run.stopped)() {
        return Err(Error::Interrupted);
    }
    Ok(sum.into_inner().unwrap_or_else(PoisonError::into_inner).found())
}

/// One client, until it is told to stop or nothing is left to do.
fn client(
    mut connection: Connection,
    mut plan: Plan,
    pipeline: u32,
    stop: &AtomicBool,
    left: &AtomicU64,
) -> Result<Times> {
    let mut times = Times::default();
    let mut batch = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let take = |left: u64| Some(left.saturating_sub(u64::from(pipeline)));
        let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).unwrap_or(0);
        let count = before.min(u64::from(pipeline));
        if count == 0 {
            break;
        }
        batch.clear();
        batch.extend((0..count).map(|_| plan.draw()));
        connection.exchange(&batch, |request, ns| match request {
            Request::Set(_) => times.sets.record(ns),
            Request::Get(_) => times.gets.record(ns),
        })?;
    }
    Ok(times)
}

/// A connection of a client.
struct Connection {
    input: BufReader<UnixStream>,
    output: UnixStream,
    /// The end of every SET: a value.
    value: Vec<u8>,
    bytes: Vec<u8>,
    name: Name,
    failed: Box<dyn Fn(String) -> Error + Send>,
}

impl Connection {
    fn open(socket: &Path, settings: &Settings) -> Result<Connection> {
        let streams = UnixStream::connect(socket).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok((BufReader::with_capacity(64 << 10, stream.try_clone()?), stream))
        });
        let (input, output) = streams.during("connect to", socket)?;
        let length = usize::try_from(settings.value_bytes()).unwrap_or(0);
        let mut value = format!("${length}\r\n").into_bytes();
        value.resize(value.len() + length, b'x');
        value.extend(b"\r\n");
        let database = socket.to_path_buf();
        let failed = move |reason| Error::Target {
            what: "the load".into(),
            database: database.clone(),
            reason,
        };
        let (bytes, failed) = (Vec::new(), Box::new(failed));
        Ok(Connection { input, output, value, bytes, name: OURS, failed })
    }

    /// Sends requests and reads their answers; each with the nanoseconds it took.
    fn exchange(&mut self, batch: &[Request], mut took: impl FnMut(Request, u64)) -> Result<()> {
        self.bytes.clear();
        for request in batch {
            match request {
                Request::Set(key) => {
                    self.bytes.extend(b"*3\r\n$3\r\nSET\r\n");
                    push_key(&mut self.bytes, &(self.name)(*key));
                    self.bytes.extend(&self.value);
                }
                Request::Get(key) => {
                    self.bytes.extend(b"*2\r\n$3\r\nGET\r\n");
                    push_key(&mut self.bytes, &(self.name)(*key));
                }
            }
        }
        let began = Instant::now();
        self.output
            .write_all(&self.bytes)
            .map_err(|e| (self.failed)(format!("sending requests: {e}")))?;
        for request in batch {
            let reply = resp::receive(&mut self.input)
                .map_err(|e| (self.failed)(format!("reading an answer: {e}")))?;
            match (request, reply) {
                (_, Reply::Refused(reason)) => return Err((self.failed)(reason)),
                (Request::Set(_), _) | (Request::Get(_), Reply::Text(_)) => {}
                (Request::Get(key), other) => {
                    return Err((self.failed)(format!(
                        "the value of key {key} is {other:?}; every key had one"
                    )));
                }
            }
            took(*request, u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        Ok(())
    }
}

/// A key as a bulk string.
fn push_key(bytes: &mut Vec<u8>, key: &str) {
    let _ = write!(bytes, "${}\r\n{key}\r\n", key.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_bulk_string_with_its_length() {
        let mut bytes = Vec::new();
        push_key(&mut bytes, &OURS(1234));
        assert_eq!(bytes, b"$14\r\ntiersmith-1234\r\n");
        bytes.clear();
        push_key(&mut bytes, &OF_REDIS_BENCHMARK(1234));
        assert_eq!(bytes, b"$16\r\nkey:000000001234\r\n");
    }
}
