//! `maxmemory`: before a command that needs space, keys go until there is some, as the policy says.
//!
//! What counts is the space in the tier that is in use, the first metadata included, so that it is
//! never 0, as in Redis. A server that follows a primary leaves that
//! to the primary, as in Redis.

use std::time::Instant;

use super::{Arguments, Refusal, Session, Shared, acl, lookup, notices, subcommands};
use crate::keyspace::{Keyspace, Order};

/// Keys that are removed before a command is tried again for which the tier had no space.
const AT_ONCE: usize = 16;
/// How often that is done.
pub(super) const ATTEMPTS: usize = 8;
/// Buckets of the trash that are emptied between two keys.
const TRASH_STEP: u64 = 64;

pub(super) const OVER: Refusal =
    Refusal::Said("OOM command not allowed when used memory > 'maxmemory'.");

/// Whether keys may be removed here.
fn may_evict(keys: &Keyspace) -> bool {
    keys.policy().order != Order::None
        && !keys.follows
        && !keys.for_primary
        && !keys.frozen
        && !keys.partial
}

/// Removes keys until the limit is kept, none may go, or `go_on` says no.
fn evict(keys: &mut Keyspace, shared: &mut Shared, go_on: impl Fn() -> bool) {
    let (most, latency_ms) =
        (shared.configuration.hot.memory_most, shared.configuration.hot.latency_ms);
    let began = (latency_ms > 0).then(Instant::now);
    while may_evict(keys) && keys.in_use() > most && go_on() {
        // What a large value held is freed a part at a time.
        if keys.has_trash() {
            keys.empty_trash(TRASH_STEP);
        } else if !keys.evict() {
            break;
        }
        notices::publish_events(keys, shared);
        if keys.heap().is_large() {
            keys.heap_mut().commit();
        }
    }
    if let Some(began) = began {
        shared.latency.note("eviction-cycle", began.elapsed(), (latency_ms, keys.now_ms()));
    }
}

/// Removes keys for a limit that was lowered, until this time.
pub(crate) fn evict_until(keys: &mut Keyspace, shared: &mut Shared, until: Instant) {
    let most = shared.configuration.hot.memory_most;
    if most > 0 && keys.in_use() > most {
        evict(keys, shared, || Instant::now() < until);
    }
}

/// Removes keys until the limit is kept.
///
/// # Errors
/// It cannot be kept, and the command needs space.
pub(super) fn keep_limit(
    keys: &mut Keyspace,
    shared: &mut Shared,
    session: &Session,
    arguments: &Arguments<'_>,
) -> Result<(), Refusal> {
    let most = shared.configuration.hot.memory_most;
    shared.over_limit = false;
    if most == 0 || !session.allowed || keys.in_use() <= most || keys.follows || keys.for_primary {
        return Ok(());
    }
    evict(keys, shared, || true);
    if keys.in_use() <= most {
        return Ok(());
    }
    let Some(name) = arguments.first() else { return Ok(()) };
    let mut queued = session.multi.iter().flat_map(|queued| &queued.commands);
    let exec = name.eq_ignore_ascii_case(b"exec");
    // A script may read, and may free something.
    shared.over_limit = true;
    let is_queued = |command: &Vec<Vec<u8>>| {
        let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        takes_space(&words)
    };
    // What is queued takes memory, whatever it is.
    let queues = session.multi.is_some()
        && !["exec", "discard", "quit", "reset"]
            .iter()
            .any(|ends| name.eq_ignore_ascii_case(ends.as_bytes()));
    let refused = takes_space(arguments) || queues || exec && queued.any(is_queued);
    // Whoever is refused for another reason is told that one.
    if refused && is_admitted(shared, session, arguments) { Err(OVER) } else { Ok(()) }
}

/// Whether nothing but the memory is in the way of a command.
fn is_admitted(shared: &Shared, session: &Session, command: &Arguments<'_>) -> bool {
    let row = command.first().and_then(|name| lookup(name));
    row.is_some_and(|row| {
        row.takes(command.len())
            && subcommands::check(row.name, command).is_ok()
            && acl::may_run(&shared.acl.users, session, command).is_ok()
    })
}

/// Whether a command is refused where memory is short.
pub(super) fn takes_space(command: &Arguments<'_>) -> bool {
    let row = command.first().and_then(|name| lookup(name));
    let described = row.and_then(|row| acl::described_with(row.name, command));
    described.is_some_and(|one| one.takes_space())
}

/// The tier has no space for a command: some keys go, if the policy lets them; whether any did.
pub(super) fn make_more_space(keys: &mut Keyspace) -> bool {
    if !may_evict(keys) {
        return false;
    }
    let gone = (0..AT_ONCE).take_while(|_| keys.evict()).count();
    keys.make_space();
    gone > 0
}
