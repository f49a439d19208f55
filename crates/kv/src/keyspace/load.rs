//! Keys that come from elsewhere or go there, and what is known of the primary whose data these
//! are.
//!
//! A data set that is being copied is marked as incomplete, durably, before its first key: a server
//! that is killed in between does not take the half for a whole. The position in the primary's
//! stream of commands is part of the same commit as what it says, so that nothing is applied twice.

use super::{Found, Keyspace, order};
use crate::format::entry::kind;
use crate::format::{COPY, COPY_DB, COPY_ID, COPY_POSITION, DATABASE_COUNT};
use crate::heap::Full;
use crate::planted::Planted;
use crate::rdb::{Content, Item};

/// Whose data these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    /// This server's own.
    Own,
    /// A primary's, of which a part is missing.
    Part,
    /// A primary's.
    Whole,
}

impl Keyspace {
    /// Whose data these are.
    pub(crate) fn copied(&self) -> Copied {
        match self.heap.word(COPY) {
            0 => Copied::Own,
            2 => Copied::Whole,
            _ => Copied::Part,
        }
    }

    pub(crate) fn set_copied(&mut self, copied: Copied) {
        let word = match copied {
            Copied::Own => 0,
            Copied::Part => 1,
            Copied::Whole => 2,
        };
        if self.heap.word(COPY) != word {
            self.heap.set(COPY, word);
        }
        self.partial = copied == Copied::Part;
    }

    /// How far the primary's commands are applied.
    pub(crate) fn position(&self) -> u64 {
        self.heap.word(COPY_POSITION)
    }

    /// The database that the commands behind that are for.
    pub(crate) fn position_db(&self) -> u8 {
        u8::try_from(self.heap.word(COPY_DB)).ok().filter(|db| *db < DATABASE_COUNT).unwrap_or(0)
    }

    pub(crate) fn set_position(&mut self, position: u64, db: u8) {
        self.heap.set(COPY_POSITION, position);
        if self.heap.word(COPY_DB) != u64::from(db) {
            self.heap.set(COPY_DB, db.into());
        }
    }

    /// The name of the primary's history.
    pub(crate) fn history(&self) -> String {
        self.name_at(COPY_ID)
    }

    pub(super) fn name_at(&self, at: u64) -> String {
        let words = (0..5).flat_map(|word| self.heap.word(at + word * 8).to_le_bytes());
        String::from_utf8_lossy(&words.collect::<Vec<u8>>()).into_owned()
    }

    /// Sets it; it has 40 letters.
    pub(crate) fn set_history(&mut self, name: &str) {
        self.set_name_at(COPY_ID, name);
    }

    pub(super) fn set_name_at(&mut self, to: u64, name: &str) {
        let mut bytes = [0; 40];
        let len = name.len().min(40);
        bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
        for (at, word) in (0..).zip(bytes.chunks_exact(8)) {
            let word = word.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            self.heap.set(to + at * 8, word);
        }
    }

    /// Begins a copy: nothing is there, and that is not all there will be. Durable on return.
    pub(crate) fn begin_copy(&mut self) {
        if !self.heap.planted().is(Planted::CopyNotMarked) {
            self.set_copied(Copied::Part);
        }
        self.count_commands(false);
        (0..DATABASE_COUNT).for_each(|db| self.flush(db));
        if self.library_count() > 0 {
            self.flush_libraries();
        }
        self.heap.commit();
    }

    /// Puts a key that comes from elsewhere. It is durable with a later commit.
    ///
    /// # Errors
    /// Why it cannot be kept; the space that it would have taken is free again.
    pub(crate) fn load(&mut self, item: &Item) -> Result<(), String> {
        let Some(db) = u8::try_from(item.db).ok().filter(|db| *db < DATABASE_COUNT) else {
            return Err(format!("database {} is there, and this server has 16 of them", item.db));
        };
        let noted = self.notice_count();
        let loaded = self.load_into(db, item);
        // As in Redis, a copy is no event.
        self.forget_notices(noted, true);
        loaded
    }

    fn load_into(&mut self, db: u8, item: &Item) -> Result<(), String> {
        let mut before = self.heap.savepoint();
        if self.put_loaded(db, item).is_err() {
            self.heap.take_back(before);
            self.make_space();
            before = self.heap.savepoint();
            if self.put_loaded(db, item).is_err() {
                self.heap.take_back(before);
                return Err(FULL.to_owned());
            }
        }
        if self.heap.is_large() {
            if self.heap.make_room_for_record().is_err() {
                self.heap.take_back(before);
                return Err(FULL.to_owned());
            }
            self.heap.commit();
        }
        Ok(())
    }

    /// The value of an entry, as it goes elsewhere; damage is noted.
    pub(crate) fn content(&self, found: &Found) -> Content {
        match found.header.kind {
            kind::STRING => Content::String(self.value(found)),
            kind::LIST | kind::LIST_NODE => Content::List(self.elements(found, 0, u64::MAX)),
            kind::SET | kind::SET_NODE => {
                Content::Set(self.fields(found).into_iter().map(|(member, _)| member).collect())
            }
            kind::ZSET | kind::ZSET_NODE => Content::Sorted(self.scored(found, 0, u64::MAX)),
            kind::STREAM => Content::Stream(self.stream_content(found)),
            _ => Content::Hash(self.fields(found)),
        }
    }

    /// Puts a key that comes from elsewhere, in place of whatever is there.
    ///
    /// # Errors
    /// There is no space.
    pub(crate) fn put_loaded(&mut self, db: u8, item: &Item) -> Result<(), Full> {
        let (key, expires) = (item.key.as_slice(), item.expires);
        match &item.content {
            Content::Library(text) => return self.put_library(key, text),
            Content::String(value) => return self.put(db, key, kind::STRING, value, expires),
            Content::List(all) => return self.put_list(db, key, all, expires),
            Content::Sorted(all) => {
                let mut all: Vec<_> =
                    all.iter().map(|(member, score)| (member.clone(), *score + 0.0)).collect();
                all.sort_by(|one, other| order((&one.0, one.1), (&other.0, other.1)));
                return self.put_zset(db, key, &all, expires);
            }
            Content::Stream(stream) => return self.put_stream(db, key, stream, expires),
            Content::Set(all) => self.put_set(db, key, all)?,
            Content::Hash(all) => {
                let pairs: Vec<(&[u8], &[u8])> =
                    all.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect();
                self.remove(db, key);
                self.set_fields(db, key, (None, kind::HASH), &pairs)?;
            }
        }
        if let (Some(expires), Some(found)) = (expires, self.get(db, key)) {
            self.set_expiry(db, key, &found, Some(expires));
        }
        Ok(())
    }

    /// Commits: what this transaction gave back, and what a FLUSHDB took away, is space after that.
    ///
    /// A copy for a replica that is under way keeps space, and is given up.
    pub(crate) fn make_space(&mut self) {
        self.heap.let_go();
        self.heap.commit();
        while self.has_trash() {
            self.empty_trash(TRASH_STEP);
            self.heap.commit();
        }
    }
}

const FULL: &str = "the tier is full; give the server a larger one";
/// Buckets of the trash that are emptied at one go when no space is found.
const TRASH_STEP: u64 = 256;
