//! Who was refused what, the last one first; as long as `acllog-max-len` says.

use std::collections::VecDeque;

/// Entries that are looked at for one that is the same.
const LOOKED_AT: usize = 10;
/// Two refusals that are further apart are two, in milliseconds.
const APART_MS: u64 = 60_000;
/// Bytes that are kept of a name or a key: whoever is refused chose them.
const BYTES_MAX: usize = 4096;

/// What was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Command,
    Key,
    Channel,
    Auth,
}

/// Where it was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    TopLevel,
    Multi,
    Script,
}

/// A refusal, and the same ones before it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) count: u64,
    pub(super) reason: Reason,
    pub(super) at: Where,
    pub(super) object: Vec<u8>,
    pub(super) user: Vec<u8>,
    pub(super) when_ms: u64,
    pub(super) client: String,
}

/// The refusals.
#[derive(Debug, Default)]
pub(super) struct Log(VecDeque<Entry>);

impl Log {
    pub(super) fn add(
        &mut self,
        reason: Reason,
        at: Where,
        mut object: Vec<u8>,
        mut user: Vec<u8>,
        client: String,
        when_ms: u64,
    ) {
        object.truncate(BYTES_MAX);
        user.truncate(BYTES_MAX);
        let same = |one: &Entry| {
            (one.reason, one.at) == (reason, at)
                && one.object == object
                && one.user == user
                && when_ms.saturating_sub(one.when_ms) <= APART_MS
        };
        let known = self.0.iter().take(LOOKED_AT).position(same);
        let before = known.and_then(|known| self.0.remove(known)).map_or(0, |one| one.count);
        self.0.push_front(Entry { count: before + 1, reason, at, object, user, when_ms, client });
    }

    pub(super) fn shorten(&mut self, most: usize) {
        self.0.truncate(most);
    }

    pub(super) fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.0.iter()
    }
}

impl Reason {
    pub(super) fn name(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Auth => "auth",
        }
    }
}

impl Where {
    pub(super) fn name(self) -> &'static str {
        match self {
            Where::TopLevel => "toplevel",
            Where::Multi => "multi",
            Where::Script => "lua",
        }
    }
}
