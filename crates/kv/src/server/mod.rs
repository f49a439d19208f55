//! Sockets: one thread executes what all clients sent, commits once, and answers.
//!
//! | step | what happens |
//! |---|---|
//! | 1 | wait for clients that have sent something |
//! | 2 | for each: read, execute every whole request; replies stay in the client's buffer |
//! | 3 | commit: **one fence**; everything that step 2 changed is durable |
//! | 4 | send the replies, messages to subscribers, and the commands to replicas |
//! | 5 | for a moment: free what a FLUSHDB took away, remove expired keys |
//!
//! **Invariant**: no byte of a reply leaves before the commit that makes true what it says; also
//! not the reply to a read, which may have seen another client's change of the same batch.
//!
//! Several threads read and send where `io-threads` says so; one executes, always. Read next:
//! `request.rs`, `client.rs`, `io_threads.rs`, `blocked.rs`, `primary.rs`.

mod accept;
mod backlog;
mod blocked;
mod busy;
mod client;
mod evict;
mod execute;
mod handover;
mod io_threads;
mod link;
mod listen;
mod primary;
mod quota;
#[cfg(feature = "testing")]
mod rehearsal;
mod replica;
pub(crate) mod request;
mod secured;
mod waits;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use tiersmith_events::Registry;
use tiersmith_pmem::Mapping;

use crate::command::{
    Configuration, Delivery, OutputLimit, REPLIES_MAX, Replies, Reply, Session, Shared, Via,
    Wanted, What, evict_until, load_at_start, publish_events, say_invalid, wanted,
};
use crate::error::Error;
use crate::format::DATABASE_COUNT;
use crate::heap::Heap;
use crate::keyspace::Keyspace;
use crate::planted::Planted;
use accept::{Door, Taken, raise_descriptors};
use busy::Crowd;
use client::{Client, Io};
use io_threads::IoThreads;
use listen::{Listener, SocketFile};
use primary::Primary;
use replica::{BELL, Replica};
use request::Ahead;
use waits::EVENTS;

/// Bytes of one slot of the log of a new tier.
pub(crate) const LOG_BYTES: u64 = 1 << 20;
/// How often what is not urgent is done.
const TICK: Duration = Duration::from_millis(100);
/// How often clients are looked for that take their replies too slowly.
const SLOW_LOOK: Duration = Duration::from_millis(500);
/// How long expired keys are looked for at a tick.
const EXPIRY_TIME: Duration = Duration::from_micros(500);
/// How long while there are many.
const EXPIRY_TIME_MOST: Duration = Duration::from_millis(10);
/// Buckets of the trash that are emptied between two batches.
const TRASH_STEP: u64 = 32;
/// Connections that are taken at one go.
const ACCEPT_MAX: usize = 256;
/// Bytes of replies that a client has not taken, beyond which nothing more of it is executed:
/// without a limit of its own (Redis's default) a pipeline of large reads would fill the memory.
const OUTPUT_PAUSE: usize = 64 << 20;
/// Bytes of replies that are kept for a client that has not given the password.
const OUTPUT_UNKNOWN: u64 = 64 << 10;
/// There is something to read, or the client is gone, which reading tells.
const READABLE: EventFlags = EventFlags::IN.union(EventFlags::HUP).union(EventFlags::ERR);
/// Descriptors that are not clients'.
const DESCRIPTORS: u64 = 32;

/// A server that has opened its tier and its sockets.
pub struct Server {
    keys: Keyspace,
    shared: Shared,
    epoll: Rc<OwnedFd>,
    listeners: Rc<[Listener]>,
    _file: Option<SocketFile>,
    clients: HashMap<u64, Box<Client>>,
    next_id: u64,
    pending: Vec<u64>,
    ticked: Instant,
    /// When slow clients were looked for last.
    looked: Instant,
    /// No descriptor is left: the listeners are not watched until a client goes.
    deaf: bool,
    /// Clients that have got what they waited for, and may have sent more.
    resumed: Vec<u64>,
    /// Nobody has sent anything since the loop looked before.
    idle: bool,
    /// Requests that were read and are not executed yet; empty between two clients.
    ahead: Ahead,
    /// Read and send for a batch of clients.
    threads: IoThreads,
    /// The clients of this batch that they have read from.
    read: Vec<u64>,
    /// Clients whose next command waits for the end of a pause.
    held_back: BTreeSet<u64>,
    /// Answers the others while a script takes long.
    crowd: Rc<RefCell<Crowd>>,
    /// Bytes that the clients take that were counted; nothing while there is no limit of them.
    clients_bytes: Option<u64>,
    /// The primary that is followed.
    replica: Option<Replica>,
    /// The replicas that follow this server.
    primary: Primary,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("clients", &self.clients.len()).finish_non_exhaustive()
    }
}

fn system(what: &'static str) -> impl Fn(rustix::io::Errno) -> Error {
    move |errno| Error::System { what, source: errno.into() }
}

impl Server {
    /// Opens the tier, or makes one where there is nothing, and then the sockets.
    ///
    /// # Errors
    /// What is wrong with the tier; what is in the way of a socket.
    pub fn open(map: Mapping, configuration: Configuration) -> Result<Server, Error> {
        Server::open_with(map, configuration, Planted::None)
    }

    /// The same with a planted bug; tests only.
    ///
    /// # Errors
    /// As [`Server::open`].
    pub fn open_with(
        map: Mapping,
        configuration: Configuration,
        planted: Planted,
    ) -> Result<Server, Error> {
        let began = Instant::now();
        let heap = if Heap::is_blank(&map)? {
            Heap::create(map, LOG_BYTES, planted)?
        } else {
            Heap::open(map, planted)?
        };
        raise_descriptors(configuration.number("maxclients") + DESCRIPTORS);
        let recovery_us = began.elapsed().as_micros() as u64;
        let (listeners, file) = listen::open(&configuration)?;
        let mut server = Server::put_together(heap, (listeners, file), configuration)?;
        server.shared.recovery_us = recovery_us;
        Ok(server)
    }

    fn put_together(
        heap: Heap,
        (listeners, file): (Vec<Listener>, Option<SocketFile>),
        configuration: Configuration,
    ) -> Result<Server, Error> {
        let epoll = Rc::new(epoll::create(CreateFlags::CLOEXEC).map_err(system("make an epoll"))?);
        for (number, listener) in (0..).zip(&listeners) {
            epoll::add(&epoll, &listener.socket, EventData::new_u64(number), EventFlags::IN)
                .map_err(system("watch a listening socket"))?;
        }
        let listeners: Rc<[Listener]> = listeners.into();
        let primary = configuration.text("replicaof").to_owned();
        let threads = IoThreads::new(configuration.number("io-threads") as usize)?;
        let mut shared = Shared::new(configuration);
        shared.wanted = match primary.split_whitespace().collect::<Vec<_>>()[..] {
            [] => Some(Wanted::NoOne),
            [host, port] => wanted(host, port),
            _ => None,
        };
        if shared.wanted.is_none() {
            return Err(Error::Configuration(format!(
                "`replicaof` takes a host and a port, not `{primary}`"
            )));
        }
        let users = shared.configuration.text("aclfile").to_owned();
        if !users.is_empty() {
            if shared.configuration.has_users() {
                return Err(Error::Configuration(
                    "users are in the configuration and in the file that `aclfile` names; keep \
                     them in one \
                     of both"
                        .to_owned(),
                ));
            }
            load_at_start(&mut shared.acl, &users).map_err(Error::Configuration)?;
        }
        shared.events = Registry::new(EVENTS, &[]);
        let mut server = Server {
            keys: Keyspace::new(heap),
            shared,
            crowd: Rc::new(RefCell::new(Crowd::new(Rc::clone(&epoll), Rc::clone(&listeners)))),
            epoll,
            // The first numbers name the listeners.
            next_id: listeners.len() as u64,
            listeners,
            _file: file,
            clients: HashMap::new(),
            pending: Vec::new(),
            ticked: Instant::now(),
            looked: Instant::now(),
            deaf: false,
            resumed: Vec::new(),
            idle: true,
            ahead: Ahead::default(),
            threads,
            read: Vec::new(),
            held_back: BTreeSet::new(),
            clients_bytes: None,
            replica: None,
            primary: Primary::new(),
        };
        server.keys.set_policy(server.shared.configuration.hot.policy);
        server.keys.set_notices(server.shared.configuration.notice_classes());
        server.begin_stream();
        Ok(server)
    }

    /// The databases.
    pub fn keys(&self) -> &Keyspace {
        &self.keys
    }

    /// How long opening took.
    pub fn recovery_us(&self) -> u64 {
        self.shared.recovery_us
    }

    /// Serves until a client says SHUTDOWN or `stop` is not zero any more.
    ///
    /// # Errors
    /// The system does not let it wait for clients.
    pub fn serve(&mut self, stop: &AtomicI32) -> Result<(), Error> {
        let mut ready = Vec::with_capacity(self.threads.batch());
        while !self.shared.shutdown
            && !self.shared.shutdown_now
            && stop.load(Ordering::Relaxed) == 0
        {
            let busy = self.keys.has_trash() || !self.resumed.is_empty() || self.primary.busy;
            let wait = if busy { Duration::ZERO } else { self.patience() };
            let wait =
                rustix::event::Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
            let start = self.shared.events.start();
            ready.clear();
            let spare = rustix::buffer::spare_capacity(&mut ready);
            match epoll::wait(&self.epoll, spare, Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(system("wait for clients")(errno)),
            }
            let _ = self.shared.events.record(waits::IDLE, start);
            self.idle = ready.is_empty();
            let late = self.keys.heap().planted().is(Planted::AnsweredBeforeCommit);
            if late {
                self.commit();
            }
            self.set_clock();
            let mut received = self.receive(&ready).into_iter().peekable();
            for event in &ready {
                let (number, flags) = (event.data.u64(), event.flags);
                if number < self.listeners.len() as u64 {
                    self.accept(number as usize);
                } else if number == BELL {
                    self.hear();
                } else {
                    let read = received.next_if(|(id, _)| *id == number);
                    self.attend(number, flags, read.map(|(_, io)| io));
                }
                if self.shared.shutdown_now {
                    // Half of a script is not committed, and nobody is told of what came before it.
                    return Ok(());
                }
            }
            self.change_primary();
            self.cut_primary();
            self.hand_over();
            self.end_pause();
            self.end_waits();
            self.resume();
            self.ask_replicas();
            if !late {
                self.commit();
            }
            self.serve_replicas();
            self.answer();
            self.evict_clients();
            self.acknowledge();
            if self.keys.has_trash() {
                let start = self.shared.events.start();
                self.keys.empty_trash(TRASH_STEP);
                self.keys.heap_mut().commit();
                let _ = self.shared.events.record(waits::TRASH, start);
            }
            if self.ticked.elapsed() >= TICK {
                self.tick();
            }
        }
        Ok(())
    }

    /// How long the loop may sleep: until the next tick, or until somebody has waited long enough.
    fn patience(&self) -> Duration {
        let first = self.shared.deadlines.first();
        first.map_or(TICK, |(until, _)| until.saturating_duration_since(Instant::now()).min(TICK))
    }

    fn set_clock(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.keys.set_now_ms(now.as_millis() as u64);
    }

    fn commit(&mut self) {
        let start = self.shared.events.start();
        let before = self.keys.heap().commits();
        let latency_ms = self.shared.configuration.hot.latency_ms;
        let began = (latency_ms > 0).then(Instant::now);
        self.keys.heap_mut().commit();
        if let Some(began) = began {
            let now_ms = self.keys.now_ms();
            self.shared.latency.note("tier-commit", began.elapsed(), (latency_ms, now_ms));
        }
        if self.keys.heap().commits() != before {
            let _ = self.shared.events.record(waits::COMMIT, start);
        }
    }

    fn accept(&mut self, number: usize) {
        let door = Door::of(&self.shared.configuration, &self.shared.acl.users);
        for _ in 0..ACCEPT_MAX {
            let full = self.clients.len() as u64 >= door.most;
            match door.take(&self.listeners[number], &self.epoll, self.next_id, full) {
                Taken::NoDescriptor => return self.watch_listeners(false),
                Taken::Nothing => return,
                Taken::Rejected => self.shared.rejected += 1,
                Taken::Client(client) => {
                    self.clients.insert(self.next_id, client);
                    self.next_id += 1;
                    self.shared.clients += 1;
                }
            }
            self.shared.connections += 1;
        }
    }

    /// Watches the listeners, or not: without a descriptor left connections wait in the backlog,
    /// and the loop must not be told of them again and again.
    fn watch_listeners(&mut self, watch: bool) {
        self.deaf = !watch;
        let flags = if watch { EventFlags::IN } else { EventFlags::empty() };
        for (number, listener) in (0..).zip(self.listeners.iter()) {
            // What cannot be changed stays as it was, which costs time and nothing else.
            let _ = epoll::modify(&self.epoll, &listener.socket, EventData::new_u64(number), flags);
        }
    }

    /// Reads what the clients of a batch have sent where several threads do that: how each ended,
    /// in the order of the batch.
    fn receive(&mut self, ready: &[epoll::Event]) -> Vec<(u64, Io)> {
        self.read.clear();
        if !self.threads.share(ready.len()) {
            return Vec::new();
        }
        let reads = ready.iter().filter(|event| { event.flags }.intersects(READABLE));
        let clients = reads.filter_map(|event| self.clients.remove(&event.data.u64()));
        let mut batch: Vec<(Box<Client>, Io)> = clients.map(|client| (client, Io::Later)).collect();
        // What a pause holds back would be parsed again and again.
        let bulk = self.shared.pause.is_none().then_some(self.shared.configuration.hot.bulk);
        self.threads.each(&mut batch, |(client, io)| *io = client.receive_and_parse(bulk));
        self.shared.shared_reads += batch.len() as u64;
        let put_back = |(client, io): (Box<Client>, Io)| {
            let id = client.session.id;
            self.read.push(id);
            self.clients.insert(id, client);
            (id, io)
        };
        batch.into_iter().map(put_back).collect()
    }

    /// A client has sent something, takes more, or is gone; `received`: it was read already.
    fn attend(&mut self, id: u64, flags: EventFlags, received: Option<Io>) {
        let Some(mut client) = self.clients.remove(&id) else { return };
        let mut alive = true;
        if flags.intersects(READABLE) {
            match received.unwrap_or_else(|| client.receive()) {
                Io::Some(bytes) => {
                    self.shared.bytes_in += bytes as u64;
                    self.execute(&mut client);
                }
                // A handshake may have something to say.
                Io::Later if client.unsent() > 0 && !client.pending => {
                    client.pending = true;
                    self.pending.push(id);
                }
                Io::Later => {}
                Io::Gone => alive = false,
            }
        }
        if alive && flags.contains(EventFlags::OUT) && !client.pending {
            client.pending = true;
            self.pending.push(id);
        }
        if alive {
            self.count(&mut client);
            self.clients.insert(id, client);
        } else {
            self.close(client);
        }
    }

    /// Sends what the commit has made true.
    fn answer(&mut self) {
        self.deliver();
        self.end_killed();
        // The others are gone.
        self.shared.kill.clear();
        let pending = std::mem::take(&mut self.pending);
        if self.threads.share(pending.len()) {
            let clients = pending.into_iter().filter_map(|id| self.clients.remove(&id));
            let mut batch: Vec<(Box<Client>, Io)> =
                clients.map(|client| (client, Io::Later)).collect();
            self.threads.each(&mut batch, |(client, io)| *io = client.send());
            self.shared.shared_writes += batch.len() as u64;
            batch.into_iter().for_each(|(client, sent)| self.answered(client, sent));
        } else {
            for id in pending {
                let Some(mut client) = self.clients.remove(&id) else { continue };
                let sent = client.send();
                self.answered(client, sent);
            }
        }
    }

    /// Ends the clients that a command has ended, before anything else is done for them.
    fn end_killed(&mut self) {
        for id in std::mem::take(&mut self.shared.kill) {
            match self.clients.remove(&id) {
                Some(client) => self.close(client),
                // It is the one that is executed, or gone.
                None => self.shared.kill.push(id),
            }
        }
    }

    /// A client was sent what it took.
    fn answered(&mut self, mut client: Box<Client>, sent: Io) {
        client.pending = false;
        if let Io::Some(bytes) = sent {
            self.shared.bytes_out += bytes as u64;
        }
        let id = client.session.id;
        let slow = client.unsent() as u64 > self.output_limit(&client);
        if client.paused && client.unsent() == 0 && !client.session.closing {
            client.paused = false;
            self.resumed.push(id);
        }
        let done = client.session.closing && client.unsent() == 0;
        if sent == Io::Gone || slow || done || !self.watch(&mut client) {
            self.close(client);
        } else {
            self.count(&mut client);
            self.clients.insert(id, client);
        }
    }

    /// What may wait for a client to take it.
    fn output_limits(&self, client: &Client) -> OutputLimit {
        let hot = &self.shared.configuration.hot;
        if client.session.follows {
            // Other limits count for the stream.
            return OutputLimit::default();
        }
        match &client.session {
            // First: there is always an end to what waits for them.
            session if session.monitors => hot.output_of_monitors(),
            session if session.subscriptions() > 0 => hot.output_subscribed,
            _ => hot.output,
        }
    }

    /// Bytes of replies that may wait for a client to take them.
    fn output_limit(&self, client: &Client) -> u64 {
        match self.output_limits(client).hard {
            _ if !client.session.allowed => OUTPUT_UNKNOWN,
            0 => u64::MAX,
            limit => limit,
        }
    }

    /// Ends the clients that had more to take than the soft limit for longer than they may.
    fn cut_slow_clients(&mut self) {
        let mut slow = Vec::new();
        let mut clients = std::mem::take(&mut self.clients);
        for (id, client) in &mut clients {
            let OutputLimit { soft, seconds, .. } = self.output_limits(client);
            if soft == 0 || client.unsent() as u64 <= soft {
                client.over_since = None;
                continue;
            }
            let since = *client.over_since.get_or_insert_with(Instant::now);
            if since.elapsed().as_secs() >= seconds {
                slow.push(*id);
            }
        }
        self.clients = clients;
        for id in slow {
            if let Some(client) = self.clients.remove(&id) {
                self.close(client);
            }
        }
    }

    /// Watches for what the client waits for.
    fn watch(&self, client: &mut Client) -> bool {
        let blocked = client.unsent() > 0;
        if blocked == client.blocked {
            return true;
        }
        client.blocked = blocked;
        let flags = if blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        let data = EventData::new_u64(client.session.id);
        epoll::modify(&self.epoll, &client.socket, data, flags).is_ok()
    }

    /// Messages go to their subscribers' buffers.
    fn deliver(&mut self) {
        if self.shared.tracking.is_on() {
            self.shared.tell_trackers(&mut self.keys);
        }
        let (deliveries, over) = self.shared.deliveries.take();
        self.shared.kill.extend(over);
        for Delivery { client: mut to, what } in deliveries {
            // Who tracks is told that the one it named is not there.
            let lost = match &what {
                What::Invalid { tracker, .. } if !self.clients.contains_key(&to) => {
                    Some(std::mem::replace(&mut to, *tracker))
                }
                _ => None,
            };
            let Some(client) = self.clients.get(&to) else { continue };
            if client.session.follows {
                // It takes nothing but the stream.
                continue;
            }
            let limit = self.output_limit(client);
            let Some(client) = self.clients.get_mut(&to) else { continue };
            let before = client.unsent();
            match lost {
                Some(lost) => {
                    self.shared.tracking.note_broken(to);
                    say_lost(client, lost);
                }
                None => say(&client.session, &mut client.output, &what),
            }
            if client.unsent() as u64 > limit || client.output.len() > REPLIES_MAX {
                client.cut();
            }
            if client.unsent() != before && !client.pending {
                client.pending = true;
                self.pending.push(to);
            }
        }
    }

    fn close(&mut self, mut client: Box<Client>) {
        self.uncount(&client);
        if let Some(secured) = &mut client.secured {
            secured.say_goodbye(&client.socket);
        }
        self.shared.forget(&mut client.session, &mut self.keys);
        // Closing the socket takes it out of the epoll.
        drop(client);
        // Others may be out of the map at this moment.
        self.shared.clients = self.shared.clients.saturating_sub(1);
        if self.deaf {
            self.watch_listeners(true);
        }
    }

    /// What is done ten times a second.
    fn tick(&mut self) {
        self.ticked = Instant::now();
        self.set_clock();
        let began = self.ticked;
        while (0..DATABASE_COUNT).any(|db| self.keys.expiring(db) > 0) {
            let expired = self.keys.remove_expired(256);
            self.shared.break_watches(&mut self.keys);
            publish_events(&mut self.keys, &mut self.shared);
            let most = if expired > 16 { EXPIRY_TIME_MOST } else { EXPIRY_TIME };
            if began.elapsed() >= most {
                break;
            }
        }
        let times = (self.shared.configuration.hot.latency_ms, self.keys.now_ms());
        self.shared.latency.note("expire-cycle", began.elapsed(), times);
        evict_until(&mut self.keys, &mut self.shared, Instant::now() + EXPIRY_TIME_MOST);
        self.keys.grow_uses();
        self.tick_replicas();
        self.commit();
        // Replicas learn at once of what has expired.
        self.serve_replicas();
        self.answer();
        if self.looked.elapsed() >= SLOW_LOOK {
            self.looked = self.ticked;
            self.count_anew();
            self.cut_slow_clients();
            let late = |client: &Client| client.secured.as_ref().is_some_and(|tls| tls.is_late());
            let late: Vec<u64> =
                self.clients.values().filter(|c| late(c)).map(|c| c.session.id).collect();
            for id in late {
                if let Some(client) = self.clients.remove(&id) {
                    self.close(client);
                }
            }
        }
        let patience = self.shared.configuration.number("timeout");
        if patience > 0 {
            let idle = |client: &Client| {
                client.session.subscriptions() == 0
                    && !client.session.follows
                    && !client.session.monitors
                    && client.session.waiting.is_none()
                    && client.session.last.elapsed().as_secs() > patience
            };
            let ids: Vec<u64> =
                self.clients.values().filter(|c| idle(c)).map(|c| c.session.id).collect();
            for id in ids {
                if let Some(client) = self.clients.remove(&id) {
                    self.close(client);
                }
            }
        }
    }
}

/// Puts a message into a client's buffer, if it can take it.
fn say(session: &Session, out: &mut Vec<u8>, what: &What) {
    match what {
        What::Message { via, channel, payload } => {
            let mut reply = Reply { out, resp3: session.resp3 };
            reply.push(if let Via::Pattern(_) = via { 4 } else { 3 });
            match via {
                Via::Channel => reply.bulk(b"message"),
                Via::Shard => reply.bulk(b"smessage"),
                Via::Pattern(pattern) => {
                    reply.bulk(b"pmessage");
                    reply.bulk(pattern);
                }
            }
            reply.bulk(channel);
            reply.bulk(payload);
        }
        What::Line(line) if session.replies != Replies::Off => out.extend_from_slice(line),
        What::Line(_) => {}
        What::Invalid { redirected, keys, .. } => {
            say_invalid(session, out, *redirected, keys.as_deref());
        }
    }
}

/// Tells a client that another one is gone that was to be told of changes.
fn say_lost(client: &mut Client, lost: u64) {
    let mut reply = Reply { out: &mut client.output, resp3: client.session.resp3 };
    if reply.resp3 {
        reply.push(2);
        reply.bulk(b"tracking-redir-broken");
        reply.count(lost);
    }
}
