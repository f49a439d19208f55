//! Commands that wait for a key: BLPOP and its sisters, XREAD.
//!
//! A client that waits has its command kept in its session. When a key changes that somebody waits
//! for, the server runs the commands of those who wait for it again, the longest first, right after
//! the command that changed the key; what they do is part of the same batch. Nothing of it is
//! persistent: a client whose server was killed asks again.

use std::time::{Duration, Instant};

use super::arguments::integer;
use super::keys::{Words, counted_keys};
use super::{Arguments, Context, Refusal, SYNTAX, Session, Shared, word};
use crate::format::entry::kind;
use crate::keyspace::{Found, Keyspace};
use crate::number::{long, strtod};

/// A command that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) db: u8,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) arguments: Vec<Vec<u8>>,
    pub(crate) until: Option<Instant>,
    /// It waits until so many replicas have the stream up to this position.
    pub(crate) replicas: Option<(u64, u64)>,
}

impl Waiting {
    /// Whether it waits for a value of this type, or is to be told that there is no other.
    pub(crate) fn takes(&self, kind: Option<u8>) -> bool {
        let name = self.arguments.first().map(|name| name.to_ascii_lowercase()).unwrap_or_default();
        match name.as_slice() {
            // Its stream or group may be gone.
            b"xreadgroup" => true,
            b"xread" => kind == Some(kind::STREAM),
            name if name.starts_with(b"bz") => matches!(kind, Some(kind::ZSET | kind::ZSET_NODE)),
            _ => matches!(kind, Some(kind::LIST | kind::LIST_NODE)),
        }
    }
}

/// Until when a command waits; nothing: for ever.
#[derive(Clone, Copy)]
pub(crate) struct Waits(Option<Instant>);

impl Waits {
    /// From seconds, of which 0 is for ever.
    pub(crate) fn of(argument: &[u8]) -> Result<Waits, Refusal> {
        let seconds = long(argument)
            .and_then(|_| strtod(argument))
            .ok_or(Refusal::Said("ERR timeout is not a float or out of range"))?;
        // Redis says this of what is more milliseconds than 64 bits count, too.
        if seconds < 0.0 || seconds * 1000.0 >= i64::MAX as f64 {
            return Err(Refusal::Said("ERR timeout is negative"));
        }
        // What no clock reaches is for ever.
        let until = Duration::try_from_secs_f64(seconds)
            .ok()
            .and_then(|time| Instant::now().checked_add(time));
        Ok(Waits(until.filter(|_| seconds > 0.0)))
    }

    /// From milliseconds, of which 0 is for ever.
    pub(crate) fn of_ms(argument: &[u8]) -> Result<Waits, Refusal> {
        let ms = integer(argument)
            .ok_or(Refusal::Said("ERR timeout is not an integer or out of range"))?;
        let ms = u64::try_from(ms).map_err(|_| Refusal::Said("ERR timeout is negative"))?;
        let until = Instant::now().checked_add(Duration::from_millis(ms));
        Ok(Waits(until.filter(|_| ms > 0)))
    }
}

/// Lets the client wait for these keys. Its reply comes later.
pub(crate) fn wait_for(
    context: &mut Context<'_>,
    keys: &Arguments<'_>,
    args: &Arguments<'_>,
    waits: Waits,
) {
    let own = |all: &Arguments<'_>| all.iter().map(|one| one.to_vec()).collect();
    let waiting = Waiting {
        db: context.session.db,
        keys: own(keys),
        arguments: own(args),
        until: waits.0,
        replicas: None,
    };
    context.session.waiting = Some(waiting);
}

/// A key, and what was taken from it.
pub(crate) type Popped<'a, T> = (&'a [u8], Vec<T>);

/// Takes something from the first of these keys that `find` finds something at.
pub(crate) fn take_first<'a, T>(
    context: &mut Context<'_>,
    keys: Words<'a>,
    find: fn(&mut Context<'_>, &[u8]) -> Result<Option<Found>, Refusal>,
    take: impl Fn(&mut Context<'_>, &[u8], &Found) -> Result<Vec<T>, Refusal>,
) -> Result<Option<Popped<'a, T>>, Refusal> {
    // Of another key those who wait longer come first.
    let waking = context.shared.waking.clone();
    for key in keys.iter().filter(|key| waking.as_ref().is_none_or(|woken| woken == *key)) {
        match find(context, key) {
            Ok(Some(found)) => {
                let taken = take(context, key, &found)?;
                context.shared.taken = Some(key.to_vec());
                return Ok(Some((key, taken)));
            }
            // Who waits takes no notice of a key that became something else.
            Ok(None) => {}
            Err(_) if waking.is_some() => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(None)
}

/// `numkeys key... end [COUNT count]`: the keys, the end that `end` reads, how many.
pub(crate) fn from_an_end<'a, E>(
    args: &'a Arguments<'a>,
    end: impl Fn(&[u8]) -> Result<E, Refusal>,
) -> Result<(Words<'a>, E, u64), Refusal> {
    let (keys, options) = counted_keys(args)?;
    let (one, options) = options.split_first().ok_or(SYNTAX)?;
    let one = end(one)?;
    let count = match options {
        [] => 1,
        [name, count] if word(name) == "count" => integer(count)
            .and_then(|count| u64::try_from(count).ok())
            .filter(|count| *count > 0)
            .ok_or(Refusal::Said("ERR count should be greater than 0"))?,
        _ => return Err(SYNTAX),
    };
    Ok((keys, one, count))
}

impl Shared {
    /// Lets those who wait for a key look at it again, although nothing was put there.
    pub(crate) fn is_ready(&mut self, db: u8, key: &[u8]) {
        let place = (db, key.to_vec());
        if self.waiting.contains_key(&place) {
            self.ready.push_back(place);
        }
    }

    /// Puts a session among those that wait for its keys.
    pub(crate) fn line_up(&mut self, session: &Session, keys: &mut Keyspace) {
        let Some(waiting) = &session.waiting else { return };
        self.blocked += 1;
        for key in &waiting.keys {
            let line = self.waiting.entry((waiting.db, key.clone())).or_default();
            if !line.contains(&session.id) {
                line.push_back(session.id);
            }
        }
        if let Some(until) = waiting.until {
            self.deadlines.insert((until, session.id));
        }
        keys.watched = true;
    }

    /// Takes what a session waits for, and the session from the lines.
    pub(crate) fn wait_no_more(
        &mut self,
        session: &mut Session,
        keys: &mut Keyspace,
    ) -> Option<Waiting> {
        let waiting = session.waiting.take()?;
        self.leave_lines(&waiting, session.id, keys);
        Some(waiting)
    }

    /// Takes a client from the lines of what it waited for.
    pub(crate) fn leave_lines(&mut self, waiting: &Waiting, id: u64, keys: &mut Keyspace) {
        self.blocked -= 1;
        for key in &waiting.keys {
            let place = (waiting.db, key.clone());
            if let Some(line) = self.waiting.get_mut(&place) {
                line.retain(|other| *other != id);
                if line.is_empty() {
                    self.waiting.remove(&place);
                }
            }
        }
        if let Some(until) = waiting.until {
            self.deadlines.remove(&(until, id));
        }
        self.note_who_watches(keys);
    }

    /// Whether changes of keys are to be noted.
    pub(crate) fn note_who_watches(&self, keys: &mut Keyspace) {
        keys.watched =
            !self.watchers.is_empty() || !self.waiting.is_empty() || self.tracking.is_on();
    }
}
