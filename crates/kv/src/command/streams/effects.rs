//! What replicas are told of commands on streams, as Redis tells it: an entry with the ID that it
//! got, what is left after trimming, and records as claims that do the same everywhere.

use super::super::Context;
use crate::format::stream::Id;
use crate::keyspace::Child;

/// An entry that was added, and how many are left if some were removed from the front.
pub(super) fn added(
    context: &mut Context<'_>,
    key: &[u8],
    id: Id,
    fields: &[&[u8]],
    left: Option<u64>,
) {
    let id = id.to_string();
    let words = [&[&b"XADD"[..], key, id.as_bytes()], fields].concat();
    let db = context.db();
    context.keys.feed(db, &words);
    if let Some(left) = left {
        trimmed(context, key, left);
    }
}

/// How many entries are left after some were removed from the front.
pub(super) fn trimmed(context: &mut Context<'_>, key: &[u8], left: u64) {
    let db = context.db();
    context.keys.feed(db, &[b"XTRIM", key, b"MAXLEN", left.to_string().as_bytes()]);
}

/// Where what is told belongs.
pub(super) struct Of<'a> {
    pub(super) key: &'a [u8],
    pub(super) group: &'a Child,
    pub(super) consumer: &'a [u8],
}

impl Of<'_> {
    /// A consumer that may be new.
    pub(super) fn consumer_is_there(&self, context: &mut Context<'_>) {
        let db = context.db();
        let words = [&b"XGROUP"[..], b"CREATECONSUMER", self.key, &self.group.name, self.consumer];
        context.keys.feed(db, &words);
    }

    /// A record that the consumer has now.
    pub(super) fn pending(&self, context: &mut Context<'_>, id: Id, (time, count): (u64, u64)) {
        let [id, time, count] = [id.to_string(), time.to_string(), count.to_string()];
        let db = context.db();
        let words = [
            &b"XCLAIM"[..],
            self.key,
            &self.group.name,
            self.consumer,
            b"0",
            id.as_bytes(),
            b"TIME",
            time.as_bytes(),
            b"RETRYCOUNT",
            count.as_bytes(),
            b"FORCE",
            b"JUSTID",
        ];
        context.keys.feed(db, &words);
    }

    /// A record that is gone.
    pub(super) fn gone(&self, context: &mut Context<'_>, id: Id) {
        let db = context.db();
        let id = id.to_string();
        context.keys.feed(db, &[b"XACK", self.key, &self.group.name, id.as_bytes()]);
    }

    /// What the group was given last, and has read.
    pub(super) fn progress(&self, context: &mut Context<'_>) {
        let (last, read) = context.keys.group_facts(self.group.node);
        let read = read.map_or("-1".to_owned(), |read| read.to_string());
        let (db, last) = (context.db(), last.to_string());
        let words = [
            &b"XGROUP"[..],
            b"SETID",
            self.key,
            &self.group.name,
            last.as_bytes(),
            b"ENTRIESREAD",
            read.as_bytes(),
        ];
        context.keys.feed(db, &words);
    }
}
