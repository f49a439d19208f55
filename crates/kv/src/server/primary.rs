//! Being the primary of others: the stream, the copies, the acknowledgements.
//!
//! | step | what happens | killed here leaves |
//! |---|---|---|
//! | 1 | a command's bytes and the position behind them are part of its transaction (`keyspace/feed.rs`) | both, or neither |
//! | 2 | after the commit the bytes go into the backlog, and from there to the replicas | the position: a replica that has less than all gets a new copy |
//! | 3 | a replica whose place is not in the backlog gets a copy: the heap holds a moment (`heap/hold.rs`), which is read a part at a time between two batches | nothing |
//! | 4 | a replica acknowledges a position; who waits for that is answered | a client that was told what is true |
//!
//! **Invariants**: no byte of the stream leaves before its commit. Of a copy and the stream behind
//! it, every command counts once: the copy is that of the position at which the stream goes on.
//!
//! A replica that takes the stream too slowly is cut, as `client-output-buffer-limit replica` says.
//!
//! A replica that wants a copy's length first (before Redis 2.8.18, and tools) gets it: the moment
//! is read twice.
//!
//! Deliberately absent: a backlog that survives a crash.

use std::time::{Duration, Instant};

use super::Server;
use super::backlog::Backlog;
use crate::command::{Phase, Reply};
use crate::format::{DATABASE_COUNT, LIBRARIES};
use crate::keyspace::{Copied, new_name};
use crate::rdb::{Content, Item, Writer};

/// Bytes that wait for a replica to take them, beyond which it is given no more for now.
const AHEAD: usize = 1 << 20;
/// Where a copy begins: with the libraries of functions, as Redis has them.
const FIRST: (u8, u64) = (LIBRARIES, 0);
/// In the place of a database: all of them are read.
const ALL_READ: u8 = u8::MAX;
/// How long a copy is read between two batches.
const COPY_TIME: Duration = Duration::from_millis(2);
/// Buckets that are read between two looks at the clock.
const COPY_BUCKETS: u64 = 16;
/// Lines of words that are kept for a copy, beyond which it is given up: 72 bytes each.
const HELD_MOST: usize = 8 << 20;
/// How often a replica that waits for its copy is told that somebody is there.
const SIGN: Duration = Duration::from_secs(1);

/// What is known of a copy's length.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Length {
    /// Nobody asks.
    Unasked,
    /// It is read a first time, and counted.
    Counted(u64),
    /// It was said.
    Said,
}

/// A copy on its way.
struct Copying {
    writer: Writer<Vec<u8>>,
    mark: String,
    /// How long it is, for those who want that first; nothing: they look for the mark.
    length: Length,
    /// The next bucket, and its database.
    at: (u8, u64),
    /// What the dump says first: history, position, database.
    begin: (String, u64, u8),
    /// When it began, which is what counts for keys that expire.
    now_ms: u64,
    /// Clients that get it.
    to: Vec<u64>,
}

/// What the server has of its replicas.
pub(super) struct Primary {
    backlog: Backlog,
    copying: Option<Copying>,
    /// The copy can go on at once.
    pub(super) busy: bool,
    /// Until when clients come before the copy.
    rests_until: Instant,
    pinged: Instant,
    signed: Instant,
    /// Since when there is no replica.
    alone_since: Instant,
}

impl Primary {
    pub(super) fn new() -> Primary {
        let now = Instant::now();
        Primary {
            backlog: Backlog::default(),
            copying: None,
            busy: false,
            rests_until: now,
            pinged: now,
            signed: now,
            alone_since: now,
        }
    }
}

impl Server {
    /// Begins with the stream where the tier is, with nothing kept; replicas come again.
    pub(super) fn begin_stream(&mut self) {
        self.cut_replicas(None);
        self.keys.run_feed(self.keys.has_history());
        self.primary.backlog = Backlog::at(self.keys.position());
        self.note_backlog();
    }

    /// Cuts all replicas but one, which will ask where to go on.
    pub(super) fn cut_replicas(&mut self, but: Option<u64>) {
        self.shared.kill.extend(self.shared.replicas.keys().filter(|id| Some(**id) != but));
        self.shared.replicas.retain(|id, _| Some(*id) == but);
    }

    fn cut_replica(&mut self, id: u64) {
        self.shared.replicas.remove(&id);
        self.shared.kill.push(id);
    }

    fn note_backlog(&mut self) {
        self.shared.backlog_first = self.primary.backlog.first();
        self.shared.backlog_bytes = self.primary.backlog.len();
    }

    /// Asks the replicas how far they are, if somebody waits for that.
    pub(super) fn ask_replicas(&mut self) {
        // While writes wait, the stream stands still.
        let asks = self.shared.ask_replicas && self.shared.pause.is_none();
        if asks && !self.shared.replicas.is_empty() {
            self.shared.ask_replicas = false;
            self.keys.feed_for_all(&[b"REPLCONF", b"GETACK", b"*"]);
        }
    }

    /// Gives the replicas what the commit has made true.
    pub(super) fn serve_replicas(&mut self) {
        match self.keys.take_feed() {
            Some((begin, bytes)) if begin == self.primary.backlog.end() => {
                self.primary.backlog.push(&bytes)
            }
            Some((_, bytes)) if bytes.is_empty() && self.shared.replicas.is_empty() => {}
            _ => self.begin_stream(),
        }
        if std::mem::take(&mut self.shared.heard_replica) {
            self.end_waits_for_replicas();
        }
        self.copy_a_part();
        if !self.shared.replicas.is_empty() {
            self.send_stream();
        }
        let backlog = &mut self.primary.backlog;
        let keep = self.shared.configuration.number("repl-backlog-size");
        let needed = self.shared.replicas.values().filter(|one| one.phase != Phase::Waits);
        let needed = needed.map(|one| one.cursor).min().unwrap_or(u64::MAX);
        if backlog.len() > keep {
            backlog.forget(needed.min(backlog.end() - keep));
        }
        self.note_backlog();
    }

    fn send_stream(&mut self) {
        let hot = self.shared.configuration.hot;
        let keep = self.shared.configuration.number("repl-backlog-size");
        let least = |limit: u64| if limit == 0 { u64::MAX } else { limit.max(keep) };
        let (hard, soft) = (least(hot.output_replica.hard), least(hot.output_replica.soft));
        let backlog = &self.primary.backlog;
        let mut slow = Vec::new();
        for (id, replica) in &mut self.shared.replicas {
            if replica.phase == Phase::Waits {
                continue;
            }
            let Some(client) = self.clients.get_mut(id) else { continue };
            let mut lost = false;
            if replica.phase == Phase::Online {
                while client.unsent() < AHEAD && replica.cursor < backlog.end() && !lost {
                    match backlog.copy(replica.cursor, AHEAD, &mut client.output) {
                        Some(count) => replica.cursor += count as u64,
                        None => lost = true,
                    }
                }
                if client.unsent() > 0 && !client.pending {
                    client.pending = true;
                    self.pending.push(*id);
                }
            }
            let behind = backlog.end() - replica.cursor + client.unsent() as u64;
            if behind <= soft {
                replica.over_since = None;
            }
            let since =
                (behind > soft).then(|| *replica.over_since.get_or_insert_with(Instant::now));
            let long = |since: Instant| since.elapsed().as_secs() >= hot.output_replica.seconds;
            if lost || behind > hard || since.is_some_and(long) {
                slow.push(*id);
            }
        }
        slow.into_iter().for_each(|id| self.cut_replica(id));
    }

    /// Answers those who waited until replicas have what they wrote.
    fn end_waits_for_replicas(&mut self) {
        for id in self.shared.waits_for_replicas.clone() {
            let waiting = self.clients.get(&id).and_then(|client| client.session.waiting.as_ref());
            let Some((position, count)) = waiting.and_then(|waiting| waiting.replicas) else {
                self.shared.waits_for_replicas.remove(&id);
                continue;
            };
            if self.shared.confirmed(position) >= count {
                self.end_wait_for_replicas(id);
            }
        }
    }

    /// Begins a copy if a replica waits for one, or goes on with it for a moment.
    fn copy_a_part(&mut self) {
        self.primary.busy = false;
        if self.primary.copying.is_none() && !self.begin_copy() {
            return;
        }
        let Some(mut copying) = self.primary.copying.take() else { return };
        let there =
            |id: &u64| self.clients.contains_key(id) && self.shared.replicas.contains_key(id);
        copying.to.retain(there);
        let short =
            self.keys.heap().is_short_of_units() || self.keys.heap().held_lines() > HELD_MOST;
        if copying.to.is_empty() || short || !self.keys.heap().is_held() {
            // What is left of it is of no use: space was needed, or nobody wants it.
            self.keys.heap_mut().let_go();
            copying.to.iter().for_each(|id| self.cut_replica(*id));
            return;
        }
        let unsent = |id: &u64| self.clients.get(id).map_or(0, |client| client.unsent());
        for id in copying.to.iter().filter(|id| unsent(id) < AHEAD) {
            if let Some(replica) = self.shared.replicas.get_mut(id) {
                replica.heard = Instant::now();
            }
        }
        if copying.to.iter().any(|id| unsent(id) >= AHEAD) {
            self.primary.copying = Some(copying);
            return;
        }
        let began = Instant::now();
        if !self.idle && began < self.primary.rests_until {
            (self.primary.busy, self.primary.copying) = (true, Some(copying));
            return;
        }
        let read = self.read_copy(&mut copying);
        // While clients are served, a copy gets half of the time, however small their batches are.
        self.primary.rests_until = began + 2 * began.elapsed();
        match read {
            Ok(read) => {
                let done = self.give_copy(&mut copying, read);
                self.primary.busy = !done;
                if !done {
                    self.primary.copying = Some(copying);
                }
            }
            Err(Damaged) => {
                // The damage is in INFO, or in the reply to whoever reads the key.
                copying.to.iter().for_each(|id| self.cut_replica(*id));
                self.keys.heap_mut().let_go();
            }
        }
    }

    /// Holds the moment for those who wait for a copy; whether there are any.
    fn begin_copy(&mut self) -> bool {
        let waits = self.shared.replicas.iter().filter(|(_, one)| one.phase == Phase::Waits);
        let Some(eof) = waits.clone().map(|(_, one)| one.eof).next() else { return false };
        let to: Vec<u64> = waits.filter(|(_, one)| one.eof == eof).map(|(id, _)| *id).collect();
        let mut random = fastrand::Rng::new();
        if !self.keys.has_history() {
            self.keys.begin_history(&new_name(&mut random));
            self.keys.count_commands(true);
            self.commit();
            self.keys.run_feed(true);
            self.primary.backlog = Backlog::at(self.keys.position());
        }
        self.keys.heap_mut().hold();
        let (history, position) = (self.keys.history(), self.keys.position());
        let mark = new_name(&mut random);
        let own = self.keys.copied() == Copied::Own;
        let db = if own { 0 } else { self.keys.position_db() };
        if own {
            self.keys.select_none();
        }
        for id in &to {
            if let Some(client) = self.clients.get_mut(id) {
                if !client.session.says_sync {
                    let head = format!("+FULLRESYNC {history} {position}\r\n");
                    client.output.extend_from_slice(head.as_bytes());
                }
                if eof {
                    client.output.extend_from_slice(format!("$EOF:{mark}\r\n").as_bytes());
                }
            }
            if let Some(replica) = self.shared.replicas.get_mut(id) {
                (replica.phase, replica.cursor, replica.heard) =
                    (Phase::Copies, position, Instant::now());
            }
        }
        let now_ms = self.keys.now_ms();
        let Some(writer) = begin_dump(&history, position, db) else { return false };
        let length = if eof { Length::Unasked } else { Length::Counted(0) };
        let begin = (history, position, db);
        self.primary.copying = Some(Copying { writer, begin, mark, length, at: FIRST, now_ms, to });
        true
    }

    /// Reads the next buckets of the moment that is held; whether that was all.
    fn read_copy(&mut self, copying: &mut Copying) -> Result<bool, Damaged> {
        let (began, now_ms) = (Instant::now(), self.keys.now_ms());
        self.keys.set_now_ms(copying.now_ms);
        self.keys.heap_mut().look_back();
        let mut entries = Vec::new();
        let mut done = false;
        let mut count = 0;
        while copying.writer.len() < AHEAD {
            let (db, bucket) = copying.at;
            if db == ALL_READ {
                done = true;
                break;
            }
            if bucket >= self.keys.bucket_count(db) {
                let next = match db {
                    LIBRARIES => 0,
                    db if db + 1 == DATABASE_COUNT => ALL_READ,
                    db => db + 1,
                };
                copying.at = (next, 0);
                continue;
            }
            copying.at.1 += 1;
            self.keys.keys_in_bucket(db, bucket, &mut entries);
            for (key, found) in entries.drain(..) {
                let (content, expires) = match db {
                    LIBRARIES => (Content::Library(self.keys.value(&found)), None),
                    _ => (self.keys.content(&found), found.header.expires),
                };
                // Writing to memory does not fail.
                let _ = copying.writer.item(&Item { db: db.into(), key, content, expires });
            }
            count += 1;
            if count % COPY_BUCKETS == 0 && began.elapsed() >= COPY_TIME {
                break;
            }
        }
        self.keys.heap_mut().look_back();
        self.keys.set_now_ms(now_ms);
        match self.keys.heap_mut().take_note() {
            None => Ok(done),
            Some(_) => Err(Damaged),
        }
    }

    /// Puts what was read into the clients' buffers, or counts it; whether they have all of it.
    fn give_copy(&mut self, copying: &mut Copying, read: bool) -> bool {
        let mut bytes = match read {
            true => copying.writer.finish(),
            false => copying.writer.take(),
        };
        let mut done = read;
        if let Length::Counted(before) = copying.length {
            let length = before + bytes.len() as u64;
            copying.length = Length::Counted(length);
            if !read {
                return false;
            }
            // Once more from the begin, with what is known now.
            let (history, position, db) = &copying.begin;
            let Some(writer) = begin_dump(history, *position, *db) else { return false };
            (copying.writer, copying.at, copying.length, done) =
                (writer, FIRST, Length::Said, false);
            bytes = format!("${length}\r\n").into_bytes();
        } else if done && copying.length == Length::Unasked {
            bytes.extend_from_slice(copying.mark.as_bytes());
        }
        if done {
            self.keys.heap_mut().let_go();
        }
        for id in &copying.to {
            if done && let Some(replica) = self.shared.replicas.get_mut(id) {
                // One that knows the length knows where the stream begins.
                let knows = copying.length == Length::Said;
                replica.phase = if knows { Phase::Online } else { Phase::Loads };
            }
            let Some(client) = self.clients.get_mut(id) else { continue };
            client.output.extend_from_slice(&bytes);
            if !client.pending {
                client.pending = true;
                self.pending.push(*id);
            }
        }
        done
    }

    /// What is done for replicas ten times a second.
    pub(super) fn tick_replicas(&mut self) {
        let configuration = &self.shared.configuration;
        let seconds = |name: &str| Duration::from_secs(configuration.number(name));
        let (patience, ping) = (seconds("repl-timeout"), seconds("repl-ping-replica-period"));
        let alone = seconds("repl-backlog-ttl");
        let silent = |phase: Phase| matches!(phase, Phase::Online | Phase::Copies);
        let gone: Vec<u64> = self
            .shared
            .replicas
            .iter()
            .filter(|(_, one)| silent(one.phase) && one.heard.elapsed() > patience)
            .map(|(id, _)| *id)
            .collect();
        gone.into_iter().for_each(|id| self.cut_replica(id));
        if self.shared.replicas.is_empty() {
            let long = !alone.is_zero() && self.primary.alone_since.elapsed() >= alone;
            if long && self.keys.copied() == Copied::Own && self.keys.has_history() {
                // Nobody follows any more, so nobody counts.
                self.keys.count_commands(false);
                self.commit();
                self.begin_stream();
            }
            return;
        }
        self.primary.alone_since = Instant::now();
        if self.primary.pinged.elapsed() >= ping && self.shared.pause.is_none() {
            self.primary.pinged = Instant::now();
            self.keys.feed_for_all(&[b"PING"]);
        }
        if self.primary.signed.elapsed() >= SIGN {
            self.primary.signed = Instant::now();
            for (id, _) in self.shared.replicas.iter().filter(|(_, one)| one.phase == Phase::Waits)
            {
                let Some(client) = self.clients.get_mut(id) else { continue };
                client.output.push(b'\n');
                if !client.pending {
                    client.pending = true;
                    self.pending.push(*id);
                }
            }
        }
    }

    /// Ends the waiting of a client with how many replicas have what it wrote.
    pub(super) fn end_wait_for_replicas(&mut self, id: u64) {
        let Some(mut client) = self.clients.remove(&id) else { return };
        self.shared.waits_for_replicas.remove(&id);
        if let Some(waiting) = self.shared.wait_no_more(&mut client.session, &mut self.keys) {
            let (position, _) = waiting.replicas.unwrap_or_default();
            let confirmed = self.shared.confirmed(position);
            if !client.session.follows {
                Reply { out: &mut client.output, resp3: client.session.resp3 }.count(confirmed);
            }
            self.shared.note_wait(&waiting, false, None);
            self.go_on(&mut client);
        }
        self.clients.insert(id, client);
    }
}

/// A dump that says where its stream goes on.
fn begin_dump(history: &str, position: u64, db: u8) -> Option<Writer<Vec<u8>>> {
    let mut writer = Writer::begin(Vec::new()).ok()?;
    writer.note("repl-stream-db", &db.to_string()).ok()?;
    writer.note("repl-id", history).ok()?;
    writer.note("repl-offset", &position.to_string()).ok()?;
    Some(writer)
}

/// The moment holds what it cannot hold.
struct Damaged;
