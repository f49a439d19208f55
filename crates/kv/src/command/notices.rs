//! Keyspace events on their way to subscribers: `notify-keyspace-events`, and the channels
//! `__keyspace@DB__:KEY` and `__keyevent@DB__:EVENT`. The events are noted by the commands and by
//! the keyspace ([`crate::keyspace::notice`]).

use super::{Context, Row, Shared, flag, pubsub};
use crate::keyspace::{Keyspace, notice as class};

/// The letters of the classes, in the order in which CONFIG GET has them.
const LETTERS: [(char, u16); 14] = [
    ('g', class::GENERIC),
    ('$', class::STRING),
    ('l', class::LIST),
    ('s', class::SET),
    ('h', class::HASH),
    ('z', class::ZSET),
    ('x', class::EXPIRED),
    ('e', class::EVICTED),
    ('t', class::STREAM),
    ('d', class::MODULE),
    ('n', class::NEW),
    ('K', class::KEYSPACE),
    ('E', class::KEYEVENT),
    ('m', class::MISS),
];
/// What `A` stands for.
const ALL: u16 = class::GENERIC
    | class::STRING
    | class::LIST
    | class::SET
    | class::HASH
    | class::ZSET
    | class::EXPIRED
    | class::EVICTED
    | class::STREAM
    | class::MODULE;

/// Commands that change keys, and look at some of them as one does that only reads.
const READERS: [&str; 19] = [
    "bitop",
    "copy",
    "georadius",
    "georadiusbymember",
    "geosearchstore",
    "getdel",
    "getex",
    "getset",
    "pfmerge",
    "sdiffstore",
    "sinterstore",
    "sort",
    "sunionstore",
    "xack",
    "xreadgroup",
    "zdiffstore",
    "zinterstore",
    "zrangestore",
    "zunionstore",
];

/// The classes that letters name.
pub(super) fn classes(letters: &str) -> Option<u16> {
    letters.chars().try_fold(0, |classes, letter| match letter {
        'A' => Some(classes | ALL),
        letter => LETTERS.iter().find(|one| one.0 == letter).map(|one| classes | one.1),
    })
}

/// The letters of classes, as Redis writes them.
pub(super) fn letters(classes: u16) -> String {
    let all = classes & ALL == ALL;
    // With all of them Redis does not name those that are new.
    let hidden = if all { ALL | class::NEW } else { 0 };
    let named = LETTERS.iter().filter(|one| classes & !hidden & one.1 != 0).map(|one| one.0);
    all.then_some('A').into_iter().chain(named).collect()
}

/// Before a command runs while somebody asks for events.
#[cold]
pub(super) fn prepare(keys: &mut Keyspace, row: &Row) {
    let reads = match row.name {
        "object" | "memory" => false,
        name => row.flags & flag::READ != 0 || READERS.contains(&name),
    };
    keys.note_misses(reads);
}

/// Publishes what is noted.
#[inline]
pub(crate) fn publish_events(keys: &mut Keyspace, shared: &mut Shared) {
    if keys.notice_count() > 0 {
        publish_all(keys, shared);
    }
}

#[cold]
fn publish_all(keys: &mut Keyspace, shared: &mut Shared) {
    let classes = keys.notice_classes();
    for notice in keys.take_notices() {
        let (event, key) = (notice.event.as_bytes(), notice.key.as_slice());
        for (class, name, subject, told) in
            [(class::KEYSPACE, "keyspace", key, event), (class::KEYEVENT, "keyevent", event, key)]
        {
            if classes & class != 0 {
                let begin = format!("__{name}@{}__:", notice.db);
                pubsub::deliver(shared, &[begin.as_bytes(), subject].concat(), told);
            }
        }
    }
}

impl Context<'_> {
    /// Something happened to a key of the client's database.
    #[inline]
    pub(super) fn notify(&mut self, class: u16, event: &'static str, key: &[u8]) {
        self.keys.notify(class, event, self.session.db, key);
    }

    /// Something was taken from a value, which is gone if that was the last.
    #[inline]
    pub(super) fn notify_taken(&mut self, class: u16, event: &'static str, key: &[u8]) {
        let classes = self.keys.notice_classes();
        if classes != 0 {
            self.notify(class, event, key);
            if self.keys.as_it_is(self.session.db, key).is_none() {
                self.notify(class::GENERIC, "del", key);
            }
        }
    }

    /// Removes a key in whose place nothing was stored.
    pub(super) fn remove_target(&mut self, key: &[u8]) {
        if self.keys.remove(self.session.db, key) {
            self.notify(class::GENERIC, "del", key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_read_and_written_as_redis_does_it() {
        for (said, shown) in [
            ("", ""),
            ("gKE", "gKE"),
            ("$lshzxeKE", "$lshzxeKE"),
            ("KA", "AK"),
            ("EA", "AE"),
            ("KEg$lshzxetd", "AKE"),
            ("AKEmn", "AKEm"),
            ("nmE", "nEm"),
        ] {
            assert_eq!(classes(said).map(letters).as_deref(), Some(shown), "{said}");
        }
        assert_eq!(classes("KEq"), None);
    }
}
