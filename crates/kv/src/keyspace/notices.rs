//! Keyspace events: what happened to keys, for clients that subscribed to it, in Redis's classes
//! and names.
//!
//! They are noted here as it happens, and published when the command is done; what a command had
//! noted before it was refused is forgotten with its changes. Where nobody asks for events
//! (`notify-keyspace-events` is empty) a place that could note one costs a comparison.

use super::Keyspace;

/// The classes, as bits.
pub(crate) mod class {
    pub(crate) const KEYSPACE: u16 = 1;
    pub(crate) const KEYEVENT: u16 = 1 << 1;
    pub(crate) const GENERIC: u16 = 1 << 2;
    pub(crate) const STRING: u16 = 1 << 3;
    pub(crate) const LIST: u16 = 1 << 4;
    pub(crate) const SET: u16 = 1 << 5;
    pub(crate) const HASH: u16 = 1 << 6;
    pub(crate) const ZSET: u16 = 1 << 7;
    pub(crate) const EXPIRED: u16 = 1 << 8;
    pub(crate) const EVICTED: u16 = 1 << 9;
    pub(crate) const STREAM: u16 = 1 << 10;
    /// Of modules, which are not here.
    pub(crate) const MODULE: u16 = 1 << 11;
    pub(crate) const NEW: u16 = 1 << 12;
    pub(crate) const MISS: u16 = 1 << 13;
}

/// The event of a key that is not there.
const MISS: &str = "keymiss";

/// Something that happened to a key.
#[derive(Debug)]
pub(crate) struct Notice {
    pub(crate) db: u8,
    pub(crate) event: &'static str,
    pub(crate) key: Vec<u8>,
}

/// What is asked for, and what is noted.
#[derive(Debug, Default)]
pub(super) struct Notices {
    classes: u16,
    /// The command that runs reads keys, and one that is not there is worth an event.
    misses: bool,
    all: Vec<Notice>,
}

impl Keyspace {
    /// Sets which classes of events are noted.
    pub(crate) fn set_notices(&mut self, classes: u16) {
        let told = classes & (class::KEYSPACE | class::KEYEVENT) != 0;
        self.notices.classes = if told { classes } else { 0 };
    }

    /// The classes that are noted.
    #[inline]
    pub(crate) fn notice_classes(&self) -> u16 {
        self.notices.classes
    }

    /// Says whether a key that the next command does not find is worth an event.
    pub(crate) fn note_misses(&mut self, misses: bool) {
        self.notices.misses = misses;
    }

    /// Something happened to a key.
    #[inline]
    pub(crate) fn notify(&mut self, class: u16, event: &'static str, db: u8, key: &[u8]) {
        if self.notices.classes & class != 0 {
            self.note_event(event, db, key);
        }
    }

    #[cold]
    fn note_event(&mut self, event: &'static str, db: u8, key: &[u8]) {
        self.notices.all.push(Notice { db, event, key: key.to_vec() });
    }

    /// A key that was looked for is not there.
    #[inline]
    pub(super) fn notify_miss(&mut self, db: u8, key: &[u8]) {
        if self.notices.misses {
            self.notify(class::MISS, MISS, db, key);
        }
    }

    /// Events that are noted.
    #[inline]
    pub(crate) fn notice_count(&self) -> usize {
        self.notices.all.len()
    }

    /// Forgets events behind the first `count`: what they tell was taken back. That a key was not
    /// there is true nevertheless, unless the command is done again (`misses_too`).
    pub(crate) fn forget_notices(&mut self, count: usize, misses_too: bool) {
        let behind = self.notices.all.split_off(count.min(self.notices.all.len()));
        let stays = |one: &Notice| !misses_too && one.event == MISS;
        self.notices.all.extend(behind.into_iter().filter(stays));
    }

    /// Takes the events, the first one first.
    pub(crate) fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices.all)
    }
}
