//! The stream of commands that replicas follow, until the commit that makes it true.
//!
//! What changes keys is appended here as a command, in the same transaction as the change, and the
//! position behind it is a word of that transaction: a command, its change and its position are
//! there, or none is. So a command that is taken back takes its bytes along: what is behind the
//! position is forgotten. The server takes the bytes after the commit and sends them.
//!
//! The bytes themselves are not on the medium. After a crash the stream goes on at the position,
//! and a replica that has all before it needs no new copy.

use super::{Copied, Found, Keyspace};
use crate::format::{COPY_DB, COPY_POSITION, FED, SECOND_ID, SECOND_POSITION};

/// The database of a stream in which none is selected: the next command says which.
const NO_DATABASE: u64 = 255;

/// Bytes that are not taken yet.
#[derive(Debug, Default)]
pub(super) struct Feed {
    /// Commands are put into the stream.
    on: bool,
    bytes: Vec<u8>,
    /// The position before the first of them.
    begin: u64,
    marks: Vec<Mark>,
    /// What the server sends does not fit what it was sent.
    torn: bool,
}

/// Where a command begins.
#[derive(Debug)]
struct Mark {
    position: u64,
    /// Bytes of the SELECT in front of it.
    select: usize,
}

/// A name for a server or a history: 40 digits in base 16.
pub(crate) fn new_name(random: &mut fastrand::Rng) -> String {
    (0..40).map(|_| random.digit(16)).collect()
}

/// Appends a command as the protocol has it.
pub(crate) fn encode(words: &[&[u8]], into: &mut Vec<u8>) {
    let head = |kind: u8, number: usize, into: &mut Vec<u8>| {
        into.push(kind);
        into.extend_from_slice(number.to_string().as_bytes());
        into.extend_from_slice(b"\r\n");
    };
    head(b'*', words.len(), into);
    for word in words {
        head(b'$', word.len(), into);
        into.extend_from_slice(word);
        into.extend_from_slice(b"\r\n");
    }
}

impl Keyspace {
    /// Whether the position and the history's name mean something.
    pub(crate) fn has_history(&self) -> bool {
        self.copied() == Copied::Whole || self.copied() == Copied::Own && self.heap.word(FED) == 1
    }

    /// The name that the history had before, and up to which position; nothing if it had none.
    pub(crate) fn second_history(&self) -> Option<(String, u64)> {
        let position = self.heap.word(SECOND_POSITION);
        (position > 0).then(|| (self.name_at(SECOND_ID), position - 1))
    }

    /// The history goes on under another name, which keeps what it was called before.
    pub(crate) fn rename_history(&mut self, name: &str) {
        let (before, position) = (self.history(), self.position());
        self.set_name_at(SECOND_ID, &before);
        self.heap.set(SECOND_POSITION, position + 1);
        self.set_history(name);
    }

    /// A history begins, which was called nothing before.
    pub(crate) fn begin_history(&mut self, name: &str) {
        self.heap.set(SECOND_POSITION, 0);
        self.set_history(name);
    }

    /// Counts this server's own commands in its stream from now on, or not.
    pub(crate) fn count_commands(&mut self, count: bool) {
        self.heap.set(FED, u64::from(count));
    }

    /// A copy becomes this server's own, and its history goes on under this name.
    pub(crate) fn become_own(&mut self, name: &str) {
        if self.copied() != Copied::Whole {
            return;
        }
        self.rename_history(name);
        self.set_copied(Copied::Own);
        self.count_commands(true);
        self.select_none();
    }

    /// The next command of the stream says which database it is for.
    pub(crate) fn select_none(&mut self) {
        self.heap.set(COPY_DB, NO_DATABASE);
    }

    /// Begins with the stream at the position that the tier has, or ends with it.
    pub(crate) fn run_feed(&mut self, on: bool) {
        self.feed = Feed { on, begin: self.position(), ..Feed::default() };
    }

    /// Whether what is executed now is put into the stream as it is done.
    pub(crate) fn feeds(&self) -> bool {
        self.feed.on && !self.follows && !self.for_primary
    }

    /// Changes of keys since the server started, but for those of time.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Something changed that nobody watches.
    pub(crate) fn note_change(&mut self) {
        self.changes += 1;
    }

    /// Forgets what was taken back.
    fn trim_feed(&mut self) {
        let position = self.position();
        let feed = &mut self.feed;
        feed.bytes.truncate(position.saturating_sub(feed.begin) as usize);
        while feed.marks.last().is_some_and(|mark| mark.position >= position) {
            feed.marks.pop();
        }
        feed.torn |= feed.begin + feed.bytes.len() as u64 != position;
    }

    /// Puts a command into the stream.
    pub(crate) fn feed(&mut self, db: u8, words: &[&[u8]]) {
        if self.feeds() {
            self.trim_feed();
            let before = self.feed.bytes.len();
            if self.heap.word(COPY_DB) != u64::from(db) {
                encode(&[b"SELECT", db.to_string().as_bytes()], &mut self.feed.bytes);
                self.heap.set(COPY_DB, db.into());
            }
            let select = self.feed.bytes.len() - before;
            self.feed.marks.push(Mark { position: self.position(), select });
            self.append_to_feed(words);
        }
    }

    /// Puts a command into the stream that is for no database.
    pub(crate) fn feed_for_all(&mut self, words: &[&[u8]]) {
        if self.feeds() {
            self.trim_feed();
            self.feed.marks.push(Mark { position: self.position(), select: 0 });
            self.append_to_feed(words);
        }
    }

    fn append_to_feed(&mut self, words: &[&[u8]]) {
        encode(words, &mut self.feed.bytes);
        self.heap.set(COPY_POSITION, self.feed.begin + self.feed.bytes.len() as u64);
    }

    /// Makes one transaction of the commands behind `from`, if they are several. The SELECT of the
    /// first is in front of it, as in Redis.
    pub(crate) fn wrap_feed(&mut self, from: u64) {
        if !self.feeds() || self.position() == from {
            return;
        }
        self.trim_feed();
        let first = self.feed.marks.partition_point(|mark| mark.position < from);
        if self.feed.marks.len() - first < 2 {
            return;
        }
        let at = (from - self.feed.begin) as usize + self.feed.marks[first].select;
        let mut multi = Vec::new();
        encode(&[b"MULTI"], &mut multi);
        self.feed.bytes.splice(at..at, multi);
        // One command more to trim, if it comes to that.
        self.feed.marks.truncate(first + 1);
        self.append_to_feed(&[b"EXEC"]);
    }

    /// Passes on what a primary sent, which is applied now, up to this position.
    pub(crate) fn relay(&mut self, bytes: &[u8], position: u64, db: u8) {
        if self.feed.on {
            self.trim_feed();
            self.feed.bytes.extend_from_slice(bytes);
        }
        self.set_position(position, db);
        self.trim_feed_if_on();
    }

    fn trim_feed_if_on(&mut self) {
        if self.feed.on {
            self.trim_feed();
        }
    }

    /// The bytes that the last commit has made true, and the position before them; nothing if they
    /// do not fit, and whoever follows needs a new copy.
    pub(crate) fn take_feed(&mut self) -> Option<(u64, Vec<u8>)> {
        if !self.feed.on {
            return Some((self.position(), Vec::new()));
        }
        self.trim_feed();
        let begin = self.feed.begin;
        if self.feed.torn {
            self.run_feed(true);
            return None;
        }
        self.feed.begin = self.position();
        self.feed.marks.clear();
        Some((begin, std::mem::take(&mut self.feed.bytes)))
    }

    /// When a key expires, if there is one, whether its time is over or not.
    pub(crate) fn expiry_of(&self, db: u8, key: &[u8]) -> Option<Option<u64>> {
        self.as_it_is(db, key).map(|found| found.header.expires)
    }

    /// The entry of a key, whether its time is over or not.
    pub(crate) fn as_it_is(&self, db: u8, key: &[u8]) -> Option<Found> {
        self.find(crate::format::database_at(db), key, self.heap.hash(key))
    }
}
