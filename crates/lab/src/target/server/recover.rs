//! A server that is killed with SIGKILL under load and started again at once, and how long it
//! takes.
//!
//! Clients go on trying to connect from the kill on, every few milliseconds, as those of an
//! application do. Only the server is killed: where its files are on a mount, the daemon of the
//! mount goes on.
//!
//! **Invariant**: an error before the kill ends the run; after it, a client connects again.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::ServerTarget;
use super::ycsb::{self, YcsbOnRedis};
use crate::error::{Error, Result};
use crate::server::Server;
use crate::session::Work;
use crate::target::recovery::{LOOK, Meter, Recovered, Watch};
use crate::target::transactions::{self, COUNTS, Connected, Recorders};

/// What the clients and the caller share.
struct Shared {
    meter: Meter,
    /// Where the server listens; nothing while it is down.
    socket: Mutex<Option<PathBuf>>,
}

/// What a key-value server must have counted at its first reply.
struct Keys {
    counted: u64,
    /// Acknowledged before.
    acknowledged: u64,
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
    fn listens_at(&self, socket: Option<PathBuf>) {
        *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = socket;
    }
}

/// One client, until it is told to stop.
fn client<'a>(
    shared: &Shared,
    of: &Recorders,
    connect: &dyn Fn(&Path) -> Result<Box<dyn Connected + 'a>>,
) {
    let meter = &shared.meter;
    let mut seen = Vec::new();
    while !meter.stopped() {
        let socket = shared.socket.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let connected = socket.map(|socket| connect(&socket));
        let Some(Ok(mut connected)) = connected else {
            if let Some(Err(error)) = connected {
                meter.note(error);
            }
            std::thread::sleep(LOOK);
            continue;
        };
        while !meter.stopped() {
            connected.draw();
            match connected.carry_out(of) {
                Ok(took) => {
                    seen.push((meter.began.elapsed(), took));
                    let _ = connected.done(took, &of.transactions);
                    meter.count();
                }
                Err(error) => {
                    meter.note(error);
                    break;
                }
            }
        }
    }
    meter.add(seen);
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
        let shared = Shared { meter: Meter::now(), socket: Mutex::new(Some(server.socket())) };
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
            let count = |server: &Server| {
                let Some(records) = records else { return Ok(None) };
                let acknowledged = records.there();
                let counted = ycsb::counted(server.client()?.as_mut())?;
                Ok::<_, Error>(Some(Keys { counted, acknowledged }))
            };
            let mut keys = None;
            let watched = shared.meter.watch((watch, home), |gone| {
                shared.listens_at(None);
                server.end_at_once();
                gone();
                *server = Server::start(product, programs, site)?;
                // Before a client writes anything.
                keys = count(server)?;
                shared.listens_at(Some(server.socket()));
                Ok(())
            });
            shared.meter.stop();
            watched.map(|times| (times, keys))
        });
        if let Some(error) = shared.meter.failed() {
            return Err(error);
        }
        let (times, keys) = watched?;
        if let Some(keys) = &keys {
            keys.check(clients, home)?;
        }
        *control.get_mut().unwrap_or_else(PoisonError::into_inner) = server.client()?;
        *under_way = clients.into();
        shared.meter.recovered(&times, keys.map(|keys| keys.counted), (watch, home))
    }
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
