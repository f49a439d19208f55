//! A client's session, and what all sessions share.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Instant;

use tiersmith_events::Registry;
use tiersmith_pmem::Ticks;

use super::acl::{Acl, Identity};
use super::blocking::Waiting;
use super::deliveries::Deliveries;
use super::failover::{Failover, Pause};
use super::latency::Latency;
use super::listed::Listed;
use super::names::Names;
use super::replicas::{Announced, Downstream};
use super::replication::{Following, Wanted};
use super::scripting::{Bystanders, Libraries, Scripts, Unusable};
use super::slowlog::SlowLog;
use super::statistics::Statistics;
use super::tracking::Tracking;
use super::{Arguments, Configuration, Row, lookup};
use crate::keyspace::{Keyspace, new_name};

/// Commands that wait for their EXEC.
#[derive(Debug, Default)]
pub(crate) struct Queued {
    pub(crate) commands: Vec<Vec<Vec<u8>>>,
    pub(crate) bytes: usize,
    /// One of them was refused when it was queued.
    pub(crate) refused: bool,
}

/// A key that an EXEC depends on.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) db: u8,
    pub(crate) key: Vec<u8>,
    /// It had expired already.
    pub(crate) expired: bool,
}

/// What is done for a client when the script has ended that keeps everybody waiting.
#[derive(Debug, Default)]
pub(crate) struct Later {
    /// What it watches is forgotten.
    pub(crate) unwatches: bool,
    /// The session begins anew.
    pub(crate) resets: bool,
    /// Then these keys are watched.
    pub(crate) watches: Vec<(u8, Vec<u8>)>,
}

/// Which replies a client wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    /// All.
    #[default]
    On,
    /// None.
    Off,
    /// Not that of the next command.
    SkipNext,
    /// Not that of the command that runs.
    SkipThis,
}

/// The address of a client of the socket in the file system.
pub(crate) const UNIX: &str = "unix:0";
/// Bytes that a subscription takes beside its name, here and where it is found by that.
const NAME_BYTES: usize = 64;
/// Bytes that a watched key takes beside its name.
const WATCHED_BYTES: usize = 64;

/// What a connection keeps in memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Buffers {
    /// Bytes that have come and are not executed, with those of the command that runs.
    pub(crate) input: usize,
    /// Bytes that the buffer can take without growing.
    pub(crate) input_free: usize,
    /// Bytes of replies that are not sent.
    pub(crate) output: usize,
    /// Bytes that their buffer has.
    pub(crate) output_size: usize,
}

/// What the server knows of a client.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: u64,
    pub(crate) address: String,
    pub(crate) here: String,
    pub(crate) since: Instant,
    pub(crate) last: Instant,
    /// Its last command that is known.
    pub(crate) last_command: Option<&'static Row>,
    /// The subcommand of its last command that had one.
    pub(crate) last_subcommand: &'static str,
    pub(crate) name: String,
    pub(crate) library: [String; 2],
    pub(crate) db: u8,
    pub(crate) resp3: bool,
    /// It gave the password, or needs none.
    pub(crate) allowed: bool,
    /// Who it is.
    pub(crate) identity: Identity,
    pub(crate) multi: Option<Queued>,
    pub(crate) watching: Vec<Watched>,
    /// Bytes of the keys in it.
    watching_bytes: usize,
    /// What it said beside a script, and what is left of that for the script's end.
    pub(crate) later: Later,
    /// A command that waits for a key.
    pub(crate) waiting: Option<Waiting>,
    pub(crate) channels: Names,
    pub(crate) patterns: Names,
    pub(crate) shards: Names,
    pub(crate) replies: Replies,
    /// Behind its last change in the stream that replicas follow.
    pub(crate) wrote: u64,
    /// It is a replica that follows this server.
    pub(crate) follows: bool,
    /// It said SYNC, and is not told where the stream goes on.
    pub(crate) says_sync: bool,
    /// What it said of itself before it asked for the stream.
    pub(crate) announced: Announced,
    /// It is told of changes of keys: CLIENT TRACKING.
    pub(crate) tracks: bool,
    /// It is not cut because clients take too much memory: CLIENT NO-EVICT.
    pub(crate) stays: bool,
    /// What its connection kept in memory when somebody asked last.
    pub(crate) buffers: Buffers,
    /// It is told of every command: MONITOR.
    pub(crate) monitors: bool,
    /// It goes when its replies are sent.
    pub(crate) closing: bool,
}

impl Session {
    pub(crate) fn new(id: u64, address: String, here: String, identity: Identity) -> Session {
        let now = Instant::now();
        Session {
            id,
            address,
            here,
            since: now,
            last: now,
            last_command: None,
            last_subcommand: "",
            name: String::new(),
            library: Default::default(),
            db: 0,
            resp3: false,
            allowed: identity.is_let_in(),
            identity,
            multi: None,
            watching: Vec::new(),
            watching_bytes: 0,
            later: Later::default(),
            waiting: None,
            channels: Names::default(),
            patterns: Names::default(),
            shards: Names::default(),
            replies: Replies::On,
            wrote: 0,
            follows: false,
            says_sync: false,
            announced: Announced::default(),
            tracks: false,
            stays: false,
            buffers: Buffers::default(),
            monitors: false,
            closing: false,
        }
    }

    /// Whether the reply of the command that runs is nobody's.
    pub(crate) fn wants_no_reply(&self) -> bool {
        matches!(self.replies, Replies::Off | Replies::SkipThis)
    }

    pub(crate) fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len() + self.shards.len()
    }

    /// Bytes of memory that the client takes, about, with its buffers as they were last. This is
    /// asked for after every batch, so nothing is added up here.
    pub(crate) fn memory(&self) -> usize {
        let names = [&self.channels, &self.patterns, &self.shards];
        let names: usize = names.iter().map(|names| names.bytes(NAME_BYTES)).sum();
        let watched = self.watching_bytes + self.watching.len() * WATCHED_BYTES;
        let queued = self.multi.as_ref().map_or(0, |queued| queued.bytes);
        let Buffers { input, input_free, output_size, .. } = self.buffers;
        size_of::<Session>()
            + self.name.len()
            + names
            + watched
            + queued
            + input
            + input_free
            + output_size
    }
}

/// How often replicas asked for the stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Syncs {
    pub(crate) full: u64,
    pub(crate) partial_ok: u64,
    pub(crate) partial_err: u64,
}

/// What all sessions share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) configuration: Configuration,
    /// Who may do what.
    pub(crate) acl: Acl,
    pub(crate) started: Instant,
    pub(crate) run_id: String,
    pub(crate) commands: u64,
    pub(crate) refused: u64,
    pub(crate) connections: u64,
    pub(crate) rejected: u64,
    /// Clients that were cut because all together took too much memory.
    pub(crate) evicted_clients: u64,
    pub(crate) clients: usize,
    /// Clients that wait for a key.
    pub(crate) blocked: usize,
    /// Clients that wait for the end of a pause.
    pub(crate) held_back: usize,
    pub(crate) bytes_in: u64,
    /// Reads and sends that were shared out to the I/O threads.
    pub(crate) shared_reads: u64,
    pub(crate) shared_writes: u64,
    pub(crate) bytes_out: u64,
    pub(crate) recovery_us: u64,
    /// The wait events of the server.
    pub(crate) events: Registry,
    /// A command of the last batch found no space.
    pub(crate) full: bool,
    /// The server is asked to end.
    pub(crate) shutdown: bool,
    /// All clients, in order, for CLIENT LIST and CLIENT KILL; made before one asks.
    pub(crate) listed: Vec<Listed>,
    /// Clients to be cut.
    pub(crate) kill: Vec<u64>,
    pub(crate) watchers: HashMap<(u8, Vec<u8>), Vec<u64>>,
    /// Clients whose EXEC will fail.
    pub(crate) broken: HashSet<u64>,
    /// Clients that wait for a key, the longest first.
    pub(crate) waiting: HashMap<(u8, Vec<u8>), VecDeque<u64>>,
    /// Until when clients wait.
    pub(crate) deadlines: BTreeSet<(Instant, u64)>,
    /// Keys that somebody waits for, and that have changed.
    pub(crate) ready: VecDeque<(u8, Vec<u8>)>,
    /// Clients that CLIENT UNBLOCK names; whether with an error.
    pub(crate) unblock: Vec<(u64, bool)>,
    /// An EXEC is under way, in which nobody waits.
    pub(crate) in_exec: bool,
    /// A script is under way.
    pub(crate) in_script: bool,
    /// The key for which a command that waited is tried again, and which alone it takes from.
    pub(crate) waking: Option<Vec<u8>>,
    pub(crate) channels: HashMap<Vec<u8>, Vec<u64>>,
    pub(crate) patterns: HashMap<Vec<u8>, Vec<u64>>,
    pub(crate) shards: HashMap<Vec<u8>, Vec<u64>>,
    pub(crate) deliveries: Deliveries,
    /// Clients that are told of every command: MONITOR.
    pub(crate) monitors: Vec<u64>,
    /// The interpreter of scripts, once there was one.
    pub(crate) scripts: Option<Box<Scripts>>,
    /// That of the libraries of functions.
    pub(crate) libraries: Option<Box<Libraries>>,
    /// Why the libraries of the tier cannot be made.
    pub(crate) libraries_unusable: Option<Unusable>,
    /// A script ran, whose command must not be executed a second time to look for space.
    pub(crate) not_again: bool,
    /// Who is answered while a script takes long.
    pub(crate) bystanders: Option<Box<dyn Bystanders>>,
    /// The primary whose commands are followed.
    pub(crate) following: Option<Following>,
    /// REPLICAOF was said: the server changes whom it follows.
    pub(crate) wanted: Option<Wanted>,
    /// How far the primary's stream is applied once the command that runs is.
    pub(crate) position: Option<u64>,
    /// The bytes that the primary sent up to there, for this server's own replicas.
    pub(crate) relayed: Vec<u8>,
    /// What replicas are told of the command that runs, in its place.
    pub(crate) instead: Option<Vec<Vec<u8>>>,
    /// The key that the command that runs has taken something from.
    pub(crate) taken: Option<Vec<u8>>,
    /// The replicas that follow this server, by their client's number.
    pub(crate) replicas: BTreeMap<u64, Downstream>,
    pub(crate) syncs: Syncs,
    /// The position before the first byte of the stream that is kept.
    pub(crate) backlog_first: u64,
    /// Bytes of it that are kept.
    pub(crate) backlog_bytes: u64,
    /// Clients that wait until replicas have what they wrote.
    pub(crate) waits_for_replicas: BTreeSet<u64>,
    /// Replicas are to be asked how far they are.
    pub(crate) ask_replicas: bool,
    /// A replica has said how far it is.
    pub(crate) heard_replica: bool,
    /// A handover to a replica that is under way.
    pub(crate) failover: Option<Failover>,
    /// It is to be given up.
    pub(crate) abort_failover: bool,
    /// Commands of clients wait.
    pub(crate) pause: Option<Pause>,
    /// The replica that has just made this server a primary, and goes on.
    pub(crate) spared: Option<u64>,
    /// The connection to the primary is to be cut.
    pub(crate) cut_primary: bool,
    /// More space is in use than `maxmemory`, and nothing may go.
    pub(crate) over_limit: bool,
    /// The server ends, and what is not committed is not to be.
    pub(crate) shutdown_now: bool,
    /// Commands that took long.
    pub(crate) slow_log: SlowLog,
    /// When the next command of a pipeline begins, which is when the one before it ended: the clock
    /// is read once a command. None where something else may lie between.
    pub(crate) clock: Option<u64>,
    /// For durations that are measured at each command.
    pub(crate) ticks: Ticks,
    /// What became of each command.
    pub(crate) statistics: Statistics,
    /// When something took long.
    pub(crate) latency: Latency,
    /// Who is told of changes of keys.
    pub(crate) tracking: Tracking,
}

impl Shared {
    pub(crate) fn new(configuration: Configuration) -> Shared {
        let mut random = fastrand::Rng::new();
        Shared {
            acl: configuration.users(),
            configuration,
            started: Instant::now(),
            run_id: new_name(&mut random),
            commands: 0,
            refused: 0,
            connections: 0,
            rejected: 0,
            evicted_clients: 0,
            clients: 0,
            blocked: 0,
            held_back: 0,
            bytes_in: 0,
            shared_reads: 0,
            shared_writes: 0,
            bytes_out: 0,
            recovery_us: 0,
            events: Registry::disabled(),
            full: false,
            shutdown: false,
            listed: Vec::new(),
            kill: Vec::new(),
            watchers: HashMap::new(),
            broken: HashSet::new(),
            waiting: HashMap::new(),
            deadlines: BTreeSet::new(),
            ready: VecDeque::new(),
            unblock: Vec::new(),
            in_exec: false,
            in_script: false,
            waking: None,
            channels: HashMap::new(),
            patterns: HashMap::new(),
            shards: HashMap::new(),
            deliveries: Deliveries::default(),
            monitors: Vec::new(),
            scripts: None,
            libraries: None,
            libraries_unusable: None,
            not_again: false,
            bystanders: None,
            following: None,
            wanted: None,
            position: None,
            relayed: Vec::new(),
            instead: None,
            taken: None,
            replicas: BTreeMap::new(),
            syncs: Syncs::default(),
            backlog_first: 0,
            backlog_bytes: 0,
            waits_for_replicas: BTreeSet::new(),
            ask_replicas: false,
            heard_replica: false,
            failover: None,
            abort_failover: false,
            pause: None,
            spared: None,
            cut_primary: false,
            over_limit: false,
            shutdown_now: false,
            slow_log: SlowLog::default(),
            clock: None,
            ticks: Ticks::start(),
            statistics: Statistics::default(),
            latency: Latency::default(),
            tracking: Tracking::default(),
        }
    }

    /// Counts an error reply.
    #[cold]
    pub(crate) fn note_error(&mut self, text: &str) {
        self.refused += 1;
        self.statistics.note_error(text);
    }

    /// Counts a command that is not let run, and the error reply that it gets.
    #[cold]
    pub(crate) fn reject(&mut self, text: &str, arguments: &Arguments<'_>) {
        self.note_error(text);
        if let Some(row) = arguments.first().and_then(|name| lookup(name)) {
            self.statistics.reject(row, arguments);
        }
    }

    /// Counts a command that waited and got nothing of its key, maybe because somebody ended that,
    /// or the error with this text.
    #[cold]
    pub(crate) fn note_wait(&mut self, waiting: &Waiting, failed: bool, error: Option<&str>) {
        let arguments: Vec<&[u8]> = waiting.arguments.iter().map(Vec::as_slice).collect();
        error.into_iter().for_each(|text| self.note_error(text));
        if let Some(row) = arguments.first().and_then(|name| lookup(name)) {
            self.statistics.waited(row, &arguments, failed);
        }
    }

    /// Notes which clients watch a key that has changed, and which wait for one.
    pub(crate) fn break_watches(&mut self, keys: &mut Keyspace) {
        if !keys.watched {
            return;
        }
        let tracks = self.tracking.is_on();
        let mut flushed = std::mem::take(&mut self.tracking.emptied) && tracks;
        let limit = self.configuration.hot.most_for_trackers();
        for (db, key) in keys.take_touched() {
            if tracks {
                match &key {
                    // Of a copy that is read, whose beginning was told as a change of all.
                    Some(_) if keys.partial => {}
                    Some(key) => self.tracking.changed(key, &mut self.deliveries, limit),
                    None => flushed = true,
                }
            }
            match key {
                Some(key) => {
                    let place = (db, key);
                    self.broken.extend(self.watchers.get(&place).into_iter().flatten());
                    if self.waiting.contains_key(&place) {
                        self.ready.push_back(place);
                    }
                }
                None => {
                    let waited = self.waiting.keys().filter(|(of, _)| *of == db).cloned();
                    self.ready.extend(waited);
                    let there = self.watchers.iter().filter(|((of, _), _)| *of == db);
                    self.broken.extend(there.flat_map(|(_, clients)| clients));
                }
            }
        }
        if flushed {
            self.tracking.flushed(&mut self.deliveries, limit);
        }
    }

    /// Keeps the table of tracked keys within its limit, and tells the clients of prefixes.
    pub(crate) fn tell_trackers(&mut self, keys: &mut Keyspace) {
        self.tracking.current = 0;
        self.break_watches(keys);
        let limit = self.configuration.hot.most_for_trackers();
        let most = self.configuration.hot.tracked_most;
        self.tracking.keep_limit(most, &mut self.deliveries, limit);
        self.tracking.broadcast(&mut self.deliveries, limit);
    }

    /// Forgets what a session watches.
    pub(crate) fn unwatch(&mut self, session: &mut Session, keys: &mut Keyspace) {
        session.watching_bytes = 0;
        for watched in session.watching.drain(..) {
            let place = (watched.db, watched.key);
            if let Some(clients) = self.watchers.get_mut(&place) {
                clients.retain(|client| *client != session.id);
                if clients.is_empty() {
                    self.watchers.remove(&place);
                }
            }
        }
        self.broken.remove(&session.id);
        self.note_who_watches(keys);
    }

    /// Lets the next EXEC fail if a key changes.
    pub(crate) fn watch(
        &mut self,
        session: &mut Session,
        keys: &mut Keyspace,
        (db, key): (u8, &[u8]),
    ) {
        let clients = self.watchers.entry((db, key.to_vec())).or_default();
        if !clients.contains(&session.id) {
            clients.push(session.id);
            let expired = keys.is_expired(db, key);
            session.watching_bytes += key.len();
            session.watching.push(Watched { db, key: key.to_vec(), expired });
        }
        keys.watched = true;
    }

    /// Does what a client said beside a script that has ended. `wrote`: the script may have changed
    /// keys after they were watched, and then the client has to begin again.
    pub(crate) fn catch_up(&mut self, session: &mut Session, keys: &mut Keyspace, wrote: bool) {
        let later = std::mem::take(&mut session.later);
        if later.resets {
            self.forget(session, keys);
        } else if later.unwatches {
            self.unwatch(session, keys);
        }
        for (db, key) in &later.watches {
            self.watch(session, keys, (*db, key));
        }
        if wrote && !later.watches.is_empty() {
            self.broken.insert(session.id);
        }
    }

    /// Forgets a session.
    pub(crate) fn forget(&mut self, session: &mut Session, keys: &mut Keyspace) {
        self.unwatch(session, keys);
        self.wait_no_more(session, keys);
        self.waits_for_replicas.remove(&session.id);
        self.replicas.remove(&session.id);
        session.follows = false;
        session.tracks = false;
        self.tracking.end(session.id);
        if std::mem::take(&mut session.monitors) {
            self.monitors.retain(|client| *client != session.id);
        }
        self.note_who_watches(keys);
        for (all, of) in [
            (&mut self.channels, std::mem::take(&mut session.channels)),
            (&mut self.patterns, std::mem::take(&mut session.patterns)),
            (&mut self.shards, std::mem::take(&mut session.shards)),
        ] {
            for name in of {
                if let Some(clients) = all.get_mut(&name) {
                    clients.retain(|client| *client != session.id);
                    if clients.is_empty() {
                        all.remove(&name);
                    }
                }
            }
        }
    }
}
