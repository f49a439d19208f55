//! One command and what follows it: watches, a full tier, a transaction that grows large.

use super::{Arguments, Refusal, Session, Shared, execute, space};
use crate::keyspace::Keyspace;
use crate::planted::Planted;

/// Executes a command. Its reply is in `out`, and must not be sent before the next commit. Returns
/// whether all of it was done, which counts for a primary's commands: of those that were refused,
/// nothing is left, also not of an EXEC of which only a part was refused.
pub(crate) fn step(
    keys: &mut Keyspace,
    shared: &mut Shared,
    session: &mut Session,
    arguments: &Arguments<'_>,
    out: &mut Vec<u8>,
) -> bool {
    // An EXEC says of each of its commands what became of it, and is not done twice.
    let once = session.multi.is_some();
    let exec = is_exec(arguments);
    if let Err(refusal) = space::keep_limit(keys, shared, session, arguments) {
        return refuse(keys, shared, session, arguments, out, &refusal);
    }
    if session.tracks {
        tell_what_went(keys, shared, session, out);
    }
    let (messages, sent) = (shared.deliveries.len(), out.len());
    shared.tracking.current = session.id;
    let mut before = keys.heap().savepoint();
    let mut refused = shared.refused;
    let mut from = keys.position();
    execute(keys, shared, session, arguments, out);
    if shared.shutdown_now {
        return false;
    }
    let once = std::mem::take(&mut shared.not_again) || once;
    if std::mem::take(&mut shared.full) && !once {
        keys.make_space();
        shared.clock = None;
        out.truncate(sent);
        before = keys.heap().savepoint();
        refused = shared.refused;
        execute(keys, shared, session, arguments, out);
        for _ in 0..space::ATTEMPTS {
            if !std::mem::take(&mut shared.full) || !space::make_more_space(keys) {
                break;
            }
            out.truncate(sent);
            (before, refused, from) = (keys.heap().savepoint(), shared.refused, keys.position());
            execute(keys, shared, session, arguments, out);
        }
        shared.full = false;
    }
    if keys.position() != from {
        keys.wrap_feed(from);
        session.wrote = keys.position();
    }
    let position = shared.position.take();
    if keys.for_primary && (out.get(sent) == Some(&b'-') || exec && shared.refused != refused) {
        keys.heap_mut().take_back(before);
        shared.deliveries.truncate(messages);
        // What was taken back may have been noted as changed, which does no harm.
        shared.break_watches(keys);
        return false;
    }
    if let Some(position) = position {
        if keys.heap().planted().is(Planted::PositionLater) {
            keys.heap_mut().commit();
        }
        // One commit with what the command did, so that it is never done twice.
        let bytes = std::mem::take(&mut shared.relayed);
        keys.relay(&bytes, position, session.db);
    }
    shared.break_watches(keys);
    shared.tracking.current = 0;
    if !keys.heap().is_large() {
        return true;
    }
    let fits = keys.heap_mut().make_room_for_record().is_ok();
    if !fits {
        keys.heap_mut().take_back(before);
        shared.deliveries.truncate(messages);
        out.truncate(sent);
        let mut reply = super::Reply { out, resp3: false };
        reply.error(&Refusal::Full.text());
    }
    keys.heap_mut().commit();
    shared.clock = None;
    fits
}

/// Refuses a command before it is executed: it, or the transaction it belongs to, has no space.
#[cold]
fn refuse(
    keys: &mut Keyspace,
    shared: &mut Shared,
    session: &mut Session,
    arguments: &Arguments<'_>,
    out: &mut Vec<u8>,
    refusal: &Refusal,
) -> bool {
    if is_exec(arguments) && session.multi.is_some() {
        let reply = super::Reply { out, resp3: session.resp3 };
        let mut context = super::Context { keys, session, shared, reply };
        return abort(&mut context, refusal);
    }
    if let Some(queued) = &mut session.multi {
        queued.refused = true;
    }
    let text = refusal.text();
    shared.reject(&text, arguments);
    super::Reply { out, resp3: session.resp3 }.error(&text);
    false
}

#[inline]
fn is_exec(arguments: &Arguments<'_>) -> bool {
    arguments.first().is_some_and(|name| name.eq_ignore_ascii_case(b"exec"))
}

/// Tells a client that tracks what had to go for the command that it says, before its reply.
#[cold]
fn tell_what_went(keys: &mut Keyspace, shared: &mut Shared, session: &Session, out: &mut Vec<u8>) {
    let messages = shared.deliveries.len();
    shared.break_watches(keys);
    for one in shared.deliveries.take_own(messages, session.id) {
        if let super::What::Invalid { redirected, keys, .. } = &one.what {
            super::say_invalid(session, out, *redirected, keys.as_deref());
        }
    }
}

/// Ends the transaction of a client whose EXEC is refused, as Redis does: there is no second one.
fn abort(context: &mut super::Context<'_>, refusal: &Refusal) -> bool {
    super::transactions::end(context);
    let text = format!("EXECABORT Transaction discarded because of: {}", refusal.text());
    context.shared.note_error(&text);
    context.reply.error(&text);
    super::monitor::abort(context);
    false
}

/// The first error of a reply, which may be that of an EXEC, for people: what was refused can have
/// anything in it.
pub(crate) fn refusals(out: &[u8]) -> String {
    let mut lines = out.split(|byte| *byte == b'\n');
    let first = lines.find_map(|line| line.strip_prefix(b"-")).unwrap_or_default();
    let text = String::from_utf8_lossy(first);
    text.trim_end().chars().filter(|c| !c.is_control()).take(200).collect()
}
