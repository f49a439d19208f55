//! Following a primary: what it said is applied, committed, and only then acknowledged.
//!
//! | step | what happens | killed here leaves |
//! |---|---|---|
//! | 1 | PSYNC from the position that the tier has | all as it was; the same is asked again |
//! | 2 | only if the primary cannot go on from there: the tier says that its data are not whole, and is emptied | a server that answers no reads, and copies again |
//! | 3 | the primary's keys are put | the same |
//! | 4 | the tier says that they are whole, with the history's name and the position, in one commit | all of it |
//! | 5 | each command, in one commit with the position behind it | a command and its position, or neither: none is applied twice |
//! | 6 | REPLCONF ACK with the position, after the commit | nothing that was acknowledged is missing |
//!
//! **Invariant**: no position is acknowledged before the commit that has it. A command of the
//! primary that is refused here ends the following, with the reason in INFO: what comes behind it
//! would not fit.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::SendFlags;

use super::Server;
use super::link::{self, Address, Line, Place, Resume, Said};
use crate::command::{Following, Identity, Link, Session, Wanted, check_libraries, refusals, step};
use crate::keyspace::{Copied, Keyspace, encode, new_name};

/// The bell's number among the events.
pub(super) const BELL: u64 = u64::MAX;
/// What is applied between two commits.
const BATCH: usize = 256;
/// Bytes of a transaction of the primary's, with what is said in its middle.
const RAW_MAX: usize = if cfg!(feature = "testing") { 200 << 20 } else { 1 << 30 };
/// How often a position is acknowledged that nobody asked for.
const ACKNOWLEDGE: Duration = Duration::from_secs(1);

/// What the server has of its primary.
pub(super) struct Replica {
    line: Line,
    session: Session,
    /// Where positions are acknowledged.
    ack: Option<TcpStream>,
    acknowledged: Instant,
    /// The primary asks for the position.
    asked: bool,
    /// Behind what was read of the stream.
    position: u64,
    /// What was read of it and is not applied yet, for this server's own replicas.
    raw: Vec<u8>,
}

impl Server {
    /// Follows another primary, or no one, if somebody said so.
    pub(super) fn change_primary(&mut self) {
        let Some(wanted) = self.shared.wanted.take() else { return };
        self.hang_up();
        self.shared.following = None;
        self.keys.follows = false;
        // They have to learn that something has changed, and ask where to go on.
        let said = match &wanted {
            Wanted::NoOne => String::new(),
            Wanted::Primary { host, port } => format!("{host} {port}"),
        };
        // It takes any text.
        let _ = self.shared.configuration.set("replicaof", &said);
        self.cut_replicas(self.shared.spared);
        self.shared.spared = None;
        match wanted {
            Wanted::NoOne => {
                self.keys.become_own(&new_name(&mut fastrand::Rng::new()));
                self.commit();
            }
            Wanted::Primary { host, port } => {
                self.keys.follows = true;
                let waiting =
                    self.clients.values().filter(|client| client.session.waiting.is_some());
                self.shared.unblock.extend(waiting.map(|client| (client.session.id, true)));
                let heard = Instant::now();
                let mut following = Following {
                    host,
                    port,
                    link: Link::Down,
                    tried: false,
                    heard,
                    why: "not connected yet".to_owned(),
                };
                if let Err(error) = self.begin(&following) {
                    following.why = format!("cannot begin: {error}");
                }
                self.shared.following = Some(following);
            }
        }
    }

    /// Ends the connection. What is left of the thread ends by itself.
    fn hang_up(&mut self) {
        if let Some(replica) = self.replica.take() {
            // A bell that is not watched is as good.
            let _ = epoll::delete(&self.epoll, &replica.line.bell);
        }
    }

    fn begin(&mut self, following: &Following) -> std::io::Result<()> {
        let address = self.address(following);
        let line = link::follow(address, self.resume_at(), self.shared.failover.is_some())?;
        epoll::add(&self.epoll, &line.bell, EventData::new_u64(BELL), EventFlags::IN)?;
        self.replica = Some(Replica::of(line, &self.keys));
        Ok(())
    }

    /// How to connect.
    pub(super) fn address(&self, following: &Following) -> Address {
        let configuration = &self.shared.configuration;
        let announced = configuration.number("replica-announce-port");
        let own_port = if announced == 0 { configuration.number("port") } else { announced };
        Address {
            host: following.host.clone(),
            port: following.port,
            user: configuration.text("masteruser").to_owned(),
            password: configuration.text("masterauth").to_owned(),
            timeout: Duration::from_secs(configuration.number("repl-timeout")),
            own_ip: configuration.text("replica-announce-ip").to_owned(),
            own_port,
            limits: crate::rdb::Limits::of_tier(self.keys.heap().size()),
            command_max: configuration.hot.query_buffer,
        }
    }

    /// Where a primary could go on.
    pub(super) fn resume_at(&self) -> Option<Resume> {
        self.keys
            .has_history()
            .then(|| Resume { history: self.keys.history(), position: self.keys.position() })
    }

    /// Ends the connection to the primary if somebody said so; it comes again.
    pub(super) fn cut_primary(&mut self) {
        if std::mem::take(&mut self.shared.cut_primary)
            && let Some(replica) = &self.replica
        {
            replica.line.cut();
        }
    }

    /// Applies what the primary said; the server commits afterwards.
    pub(super) fn hear(&mut self) {
        let Some(mut replica) = self.replica.take() else { return };
        let _ = rustix::io::read(&*replica.line.bell, &mut [0; 8]);
        let mut count = 0;
        while let Some(said) = replica.line.next() {
            if let Some(following) = &mut self.shared.following {
                following.heard = Instant::now();
            }
            if let Err(why) = self.apply(&mut replica, said).map_err(|why| plain(&why)) {
                self.replica = Some(replica);
                self.hang_up();
                if let Some(following) = &mut self.shared.following {
                    (following.link, following.why) = (Link::Down, why);
                }
                return;
            }
            count += 1;
            if count == BATCH {
                link::ring(&replica.line.bell);
                break;
            }
        }
        self.replica = Some(replica);
    }

    fn apply(&mut self, replica: &mut Replica, said: Said) -> Result<(), String> {
        let link = match said {
            Said::Begin => {
                self.keys.begin_copy();
                // All keys may change, also where there are none yet.
                self.shared.tracking.emptied = true;
                self.begin_stream();
                Link::Sync
            }
            Said::Key(item) => return self.keys.load(&item),
            Said::Whole { history, position, db, ack } => {
                check_libraries(&mut self.shared, &self.keys)
                    .map_err(|what| format!("the primary has {what}"))?;
                self.keys.begin_history(&history);
                self.keys.set_position(position, db);
                // While it is a part, so that nobody is told of each key.
                self.shared.break_watches(&mut self.keys);
                self.keys.set_copied(Copied::Whole);
                self.commit();
                self.begin_stream();
                replica.goes_on((position, db), ack);
                Link::Up
            }
            Said::GoesOn { position, .. } if position != self.keys.position() => {
                return Err(format!(
                    "the primary goes on behind position {position}, and this server is at {}",
                    self.keys.position()
                ));
            }
            Said::GoesOn { history, position, ack } => {
                let history = history.filter(|history| history.len() == 40);
                if let Some(history) = history.filter(|history| *history != self.keys.history()) {
                    self.keys.rename_history(&history);
                    self.cut_replicas(None);
                }
                // What was this server's own goes on as the primary's.
                self.keys.set_copied(Copied::Whole);
                self.keys.count_commands(false);
                self.commit();
                replica.goes_on((position, self.keys.position_db()), ack);
                Link::Up
            }
            Said::Command { words, bytes } => {
                replica.position += bytes;
                self.obey(replica, &words, bytes)?;
                return Ok(());
            }
            Said::Lost(why) => {
                replica.ack = None;
                if let Ok(mut place) = replica.line.place.lock() {
                    *place = Place::Known(self.resume_at());
                }
                if let Some(following) = &mut self.shared.following {
                    (following.why, following.tried) = (plain(&why), true);
                }
                Link::Down
            }
        };
        if let Some(following) = &mut self.shared.following {
            following.link = link;
        }
        Ok(())
    }

    /// Executes a command of the primary.
    fn obey(&mut self, replica: &mut Replica, words: &[Vec<u8>], bytes: u64) -> Result<(), String> {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        if replica.raw.len() > RAW_MAX {
            return Err(format!(
                "the primary sends a transaction of more than {RAW_MAX} bytes; make those smaller, \
                 and say REPLICAOF again for a new copy"
            ));
        }
        let Some(name) = words.first() else {
            // An empty line.
            replica.raw.resize(replica.raw.len() + bytes as usize, b'\n');
            replica.pass_on(&mut self.keys);
            return Ok(());
        };
        let mut raw = Vec::new();
        encode(&words, &mut raw);
        if raw.len() as u64 == bytes {
            replica.raw.extend_from_slice(&raw);
        }
        if name.eq_ignore_ascii_case(b"replconf") {
            replica.asked |= words.get(1).is_some_and(|word| word.eq_ignore_ascii_case(b"getack"));
            replica.pass_on(&mut self.keys);
            return Ok(());
        }
        // Half of an EXEC is not a place to go on from.
        let exec = name.eq_ignore_ascii_case(b"exec");
        let ends = replica.session.multi.is_none() && !name.eq_ignore_ascii_case(b"multi") || exec;
        if exec && self.keys.has_trash() {
            // It cannot look for space in its middle.
            self.keys.make_space();
        }
        self.shared.position = ends.then_some(replica.position);
        if ends {
            self.shared.relayed = std::mem::take(&mut replica.raw);
        }
        let mut out = Vec::new();
        self.keys.for_primary = true;
        let done = step(&mut self.keys, &mut self.shared, &mut replica.session, &words, &mut out);
        self.keys.for_primary = false;
        self.wake();
        if done {
            return Ok(());
        }
        // What was refused was taken back, and its position is not reached.
        let said = refusals(&out);
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        Err(format!(
            "this server cannot follow the primary's {name}: {said}; its data are those before that"
        ))
    }

    /// Tells the primary how far the commit went.
    pub(super) fn acknowledge(&mut self) {
        let Some(replica) = &mut self.replica else { return };
        let due = replica.asked || replica.acknowledged.elapsed() >= ACKNOWLEDGE;
        let Some(ack) = replica.ack.as_mut().filter(|_| due) else { return };
        let position = self.keys.position().to_string();
        let bytes =
            format!("*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n${}\r\n{position}\r\n", position.len());
        // All clients wait for this thread, so it waits for no primary that does not read.
        let sent =
            rustix::net::send(&*ack, bytes.as_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        if sent != Ok(bytes.len()) {
            // The thread that reads notices that the connection is gone, and connects again.
            let _ = ack.shutdown(std::net::Shutdown::Both);
            replica.ack = None;
        }
        (replica.asked, replica.acknowledged) = (false, Instant::now());
    }
}

impl Replica {
    pub(super) fn of(line: Line, keys: &Keyspace) -> Replica {
        Replica {
            line,
            session: primary_session(keys.position_db()),
            ack: None,
            acknowledged: Instant::now(),
            asked: false,
            position: keys.position(),
            raw: Vec::new(),
        }
    }

    /// What rings when the primary has said something.
    #[cfg(feature = "testing")]
    pub(super) fn bell(&self) -> &std::os::fd::OwnedFd {
        &self.line.bell
    }

    /// What was read and changes no key is this server's position, and that of its replicas.
    fn pass_on(&mut self, keys: &mut Keyspace) {
        // The middle of a transaction is not a place to go on from.
        if self.session.multi.is_none() {
            keys.relay(&std::mem::take(&mut self.raw), self.position, self.session.db);
        }
    }

    fn goes_on(&mut self, (position, db): (u64, u8), ack: TcpStream) {
        self.position = position;
        self.raw.clear();
        self.session = primary_session(db);
        self.ack = Some(ack);
        self.asked = true;
    }
}

/// A reason as a line of INFO: a primary's own words are in it.
fn plain(why: &str) -> String {
    why.chars().take(1000).flat_map(|c| (!c.is_control()).then_some(c)).collect()
}

fn primary_session(db: u8) -> Session {
    let mut session =
        Session::new(0, "primary".to_owned(), "primary".to_owned(), Identity::unlimited());
    session.db = db;
    session
}
