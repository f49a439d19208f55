//! One command and what follows it: watches, a full tier, a transaction that grows large.

use super::{Arguments, Refusal, Session, Shared, execute};
use crate::keyspace::Keyspace;

/// Buckets of the trash that are emptied at one go when a command finds no space.
const TRASH_STEP: u64 = 256;

/// Commits: what this transaction gave back, and what a FLUSHDB took away, is space after that.
pub(super) fn find_space(keys: &mut Keyspace) {
    keys.heap_mut().commit();
    while keys.has_trash() {
        keys.empty_trash(TRASH_STEP);
        keys.heap_mut().commit();
    }
}

/// Executes a command. Its reply is in `out`, and must not be sent before the next commit.
pub(crate) fn step(
    keys: &mut Keyspace,
    shared: &mut Shared,
    session: &mut Session,
    arguments: &Arguments<'_>,
    out: &mut Vec<u8>,
) {
    let sent = out.len();
    // An EXEC says of each of its commands what became of it, and is not done twice.
    let once = session.multi.is_some();
    let messages = shared.deliveries.len();
    let mut before = keys.heap().savepoint();
    execute(keys, shared, session, arguments, out);
    if shared.shutdown_now {
        return;
    }
    let once = std::mem::take(&mut shared.not_again) || once;
    if std::mem::take(&mut shared.full) && !once {
        find_space(keys);
        out.truncate(sent);
        before = keys.heap().savepoint();
        execute(keys, shared, session, arguments, out);
        shared.full = false;
    }
    shared.break_watches(keys);
    if !keys.heap().is_large() {
        return;
    }
    if keys.heap_mut().make_room_for_record().is_err() {
        keys.heap_mut().take_back(before);
        shared.deliveries.truncate(messages);
        out.truncate(sent);
        let mut reply = super::Reply { out, resp3: false };
        reply.error(&Refusal::Full.text());
    }
    keys.heap_mut().commit();
}
