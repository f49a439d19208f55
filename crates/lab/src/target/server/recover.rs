//! A server that is killed with SIGKILL under load and started again at once, and how long it
//! takes.
//!
//! Clients go on trying to connect from the kill on, every few milliseconds, as those of an
//! application do. Only the server is killed: where its files are on a mount, the daemon of the
//! mount goes on.
//!
//! **Invariant**: an error before the kill ends the run; after it, a client connects again.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::ServerTarget;
use super::ycsb::{self, YcsbOnRedis};
use crate::error::{Error, Result};
use crate::server::Server;
use crate::session::Work;
use crate::target::recovery::{FULL_SHARE, Recovered, Seen, WINDOW, Watch, first_answer, timeline};
use crate::target::transactions::{self, COUNTS, Connected, Recorders};

/// How long a client waits before it tries to connect again, and the caller before it looks again.
const LOOK: Duration = Duration::from_millis(5);

/// What the clients and the caller share.
struct Shared {
    began: Instant,
    /// Where the server listens; nothing while it is down.
    socket: Mutex<Option<PathBuf>>,
    stop: AtomicBool,
    killed: AtomicBool,
    done: AtomicU64,
    seen: Mutex<Vec<Seen>>,
    failed: Mutex<Option<Error>>,
}

/// What a key-value server must have counted at its first reply.
struct Keys {
    counted: u64,
    /// Acknowledged before.
    acknowledged: u64,
}

/// What the caller noted; times are from the beginning of the load.
struct Times {
    before_per_s: f64,
    killed: Duration,
    gone: Duration,
    full: Option<Duration>,
    keys: Option<Keys>,
}

impl Keys {
    /// Whether every key is there that was acknowledged; each client may have had one more under
    /// way.
    ///
    /// # Errors
    /// [`Error::Unsound`].
    fn check(&self, clients: u32, home: &Path) -> Result<()> {
        let Keys { counted, acknowledged } = *self;
        if (acknowledged..=acknowledged + u64::from(clients)).contains(&counted) {
            return Ok(());
        }
        let reason = format!(
            "{acknowledged} records were acknowledged before the kill, and the server counted \
             {counted} at its first reply"
        );
        Err(Error::Unsound { database: home.into(), reason })
    }
}

impl Shared {
    /// Of a load that begins now, on a server that listens there.
    fn now(socket: PathBuf) -> Shared {
        Shared {
            began: Instant::now(),
            socket: Mutex::new(Some(socket)),
            stop: AtomicBool::new(false),
            killed: AtomicBool::new(false),
            done: AtomicU64::new(0),
            seen: Mutex::new(Vec::new()),
            failed: Mutex::new(None),
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn listens_at(&self, socket: Option<PathBuf>) {
        *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = socket;
    }

    /// A client got an error.
    fn note(&self, error: Error) {
        if !self.killed.load(Ordering::SeqCst) {
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            self.stop.store(true, Ordering::SeqCst);
        }
    }

    /// Waits until then; whether to go on.
    fn wait_until(&self, due: Instant, watch: &Watch<'_>) -> Result<()> {
        while Instant::now() < due && !self.stopped() {
            if (watch.stopped)() {
                return Err(Error::Interrupted);
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// One client, until it is told to stop.
fn client<'a>(
    shared: &Shared,
    of: &Recorders,
    connect: &dyn Fn(&Path) -> Result<Box<dyn Connected + 'a>>,
) {
    let mut seen = Vec::new();
    while !shared.stopped() {
        let socket = shared.socket.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let connected = socket.map(|socket| connect(&socket));
        let Some(Ok(mut connected)) = connected else {
            if let Some(Err(error)) = connected {
                shared.note(error);
            }
            std::thread::sleep(LOOK);
            continue;
        };
        while !shared.stopped() {
            connected.draw();
            match connected.carry_out(of) {
                Ok(took) => {
                    seen.push((shared.began.elapsed(), took));
                    let _ = connected.done(took, &of.transactions);
                    shared.done.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    shared.note(error);
                    break;
                }
            }
        }
    }
    shared.seen.lock().unwrap_or_else(PoisonError::into_inner).extend(seen);
}

/// Waits until the throughput of a window is full again; when that was, from the beginning of the
/// load.
fn full_again(
    shared: &Shared,
    wanted_per_s: f64,
    until: Instant,
    watch: &Watch<'_>,
) -> Result<Option<Duration>> {
    let mut samples = vec![(shared.began.elapsed(), shared.done.load(Ordering::Relaxed))];
    while Instant::now() < until && !shared.stopped() {
        shared.wait_until(Instant::now() + 4 * LOOK, watch)?;
        let now = (shared.began.elapsed(), shared.done.load(Ordering::Relaxed));
        samples.push(now);
        let Some(then) = samples.iter().rev().find(|(at, _)| *at + WINDOW <= now.0) else {
            continue;
        };
        let per_s = (now.1 - then.1) as f64 / (now.0 - then.0).as_secs_f64();
        if per_s >= wanted_per_s {
            return Ok(Some(now.0));
        }
    }
    Ok(None)
}

/// Waits, kills the server, starts it again and waits until the clients are served as before.
fn times(
    shared: &Shared,
    watch: &Watch<'_>,
    server: &mut Server,
    again: &dyn Fn() -> Result<Server>,
    count: &dyn Fn(&Server) -> Result<Option<Keys>>,
) -> Result<Times> {
    shared.wait_until(shared.began + watch.before / 2, watch)?;
    let half = (Instant::now(), shared.done.load(Ordering::Relaxed));
    shared.wait_until(shared.began + watch.before, watch)?;
    let done = shared.done.load(Ordering::Relaxed) - half.1;
    let before_per_s = done as f64 / half.0.elapsed().as_secs_f64();
    if shared.stopped() {
        // The error of a client says why.
        return Err(Error::Interrupted);
    }
    shared.killed.store(true, Ordering::SeqCst);
    shared.listens_at(None);
    let killed = shared.began.elapsed();
    server.end_at_once();
    let gone = shared.began.elapsed();
    *server = again()?;
    // Before a client writes anything.
    let keys = count(server)?;
    shared.listens_at(Some(server.socket()));
    let until = shared.began + killed + watch.patience;
    let full = full_again(shared, FULL_SHARE * before_per_s, until, watch)?;
    Ok(Times { before_per_s, killed, gone, full, keys })
}

impl ServerTarget {
    /// Runs the load, kills the server under it, starts it again, and watches.
    ///
    /// # Errors
    /// What a client failed with before the kill; that the server did not start, or did not answer
    /// in time; [`Error::Interrupted`].
    pub(super) fn watched(&mut self, watch: &Watch<'_>) -> Result<Recovered> {
        let ServerTarget {
            load,
            records,
            product,
            server,
            programs,
            site,
            control,
            case,
            slob,
            home,
            under_way,
            ..
        } = self;
        let (product, seed, clients) = (*product, slob.seed, case.server.clients);
        let kinds = match load {
            Some(load) => load.kinds(),
            None => super::super::ycsb::OPERATIONS,
        };
        let work = Work::of(clients, kinds, COUNTS);
        let shared = Shared::now(server.socket());
        let (load, records, shared, work) = (load.as_deref(), records.as_ref(), &shared, &work);
        let name = case.load().name();
        let watched = std::thread::scope(|scope| {
            for number in 0..clients {
                scope.spawn(move || {
                    let connect = |socket: &Path| match (load, records) {
                        (Some(load), _) => Ok(transactions::on_sql(
                            product.sql(socket)?,
                            load.client(seed, number),
                        )),
                        (None, Some(records)) => {
                            Ok(Box::new(YcsbOnRedis::open(socket, records, seed, number)?)
                                as Box<dyn Connected + '_>)
                        }
                        (None, None) => Err(no_statements(name)),
                    };
                    client(shared, &Recorders::of(work), &connect);
                });
            }
            let again = || Server::start(product, programs, site);
            let count = |server: &Server| {
                let Some(records) = records else { return Ok(None) };
                let acknowledged = records.there();
                let counted = ycsb::counted(server.client()?.as_mut())?;
                Ok(Some(Keys { counted, acknowledged }))
            };
            let watched = times(shared, watch, server, &again, &count);
            shared.stop.store(true, Ordering::SeqCst);
            watched
        });
        if let Some(error) = shared.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error);
        }
        let times = watched?;
        if let Some(keys) = &times.keys {
            keys.check(clients, home)?;
        }
        *control.get_mut().unwrap_or_else(PoisonError::into_inner) = server.client()?;
        *under_way = clients.into();
        let seen = std::mem::take(&mut *shared.seen.lock().unwrap_or_else(PoisonError::into_inner));
        recovered(&times, &seen).ok_or_else(|| Error::Target {
            what: "the first answer after the kill".into(),
            database: home.clone(),
            reason: format!(
                "there was none in {} s; give more --seconds",
                watch.patience.as_secs()
            ),
        })
    }
}

/// The result of a run; nothing if nobody was answered after the kill.
fn recovered(times: &Times, seen: &[Seen]) -> Option<Recovered> {
    let first = first_answer(seen, times.killed, times.gone)?;
    Some(Recovered {
        before_per_s: times.before_per_s,
        first_answer_s: first.as_secs_f64(),
        full_s: times.full.map(|at| (at - times.killed).as_secs_f64()),
        keys: times.keys.as_ref().map(|keys| keys.counted),
        timeline: timeline(seen, times.killed),
    })
}

fn no_statements(load: &str) -> Error {
    Error::Setting {
        setting: "load",
        value: load.into(),
        reason: "a recovery is watched under a load of its own statements".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_missing_at_the_first_reply_or_was_never_sent_is_an_error() {
        let check = |counted, acknowledged| {
            let keys = Keys { counted, acknowledged };
            keys.check(4, Path::new("/home")).map_err(|e| e.to_string())
        };
        assert_eq!((check(100, 100), check(104, 100)), (Ok(()), Ok(())));
        let lost = check(99, 100).unwrap_err();
        assert!(lost.contains("100 records were acknowledged") && lost.contains("99"), "{lost}");
        assert!(check(105, 100).is_err());
    }
}
