//! MULTI, EXEC, DISCARD, WATCH.
//!
//! An EXEC is part of one transaction of the heap: nothing is committed in its middle.

use super::session::{Queued, Watched};
use super::{Arguments, Context, Done, Refusal, Reply, Session, acl, lookup, run, word};
use crate::planted::Planted;

const NOT_BEGUN: &str = "ERR DISCARD without MULTI";
/// Bytes of commands that may wait for an EXEC.
const QUEUE_BYTES_MAX: usize = 1 << 30;

pub(crate) fn multi(context: &mut Context<'_>, _args: &Arguments<'_>) -> Done {
    begin(context.session)?;
    context.reply.ok();
    Ok(())
}

fn begin(session: &mut Session) -> Done {
    if session.multi.is_some() {
        return Err(Refusal::Said("ERR MULTI calls can not be nested"));
    }
    session.multi = Some(Queued::default());
    Ok(())
}

/// What somebody says of transactions while a script keeps everybody waiting, as Redis has it: one
/// can be begun and discarded, and none executed. Returns whether it was about that.
pub(crate) fn beside_a_script(
    session: &mut Session,
    args: &Arguments<'_>,
    reply: &mut Reply<'_>,
    busy: &str,
) -> bool {
    let [name] = args else { return false };
    match word(name).as_str() {
        "multi" => match begin(session) {
            Ok(()) => reply.ok(),
            Err(refusal) => reply.error(&refusal.text()),
        },
        "discard" if session.multi.take().is_some() => {
            session.unwatches = true;
            reply.ok();
        }
        "discard" => reply.error(NOT_BEGUN),
        "exec" => {
            (session.multi, session.unwatches) = (None, true);
            reply.error(&format!("EXECABORT Transaction discarded because of: {busy}"));
        }
        _ => return false,
    }
    true
}

/// Keeps a command for the EXEC.
pub(crate) fn queue(context: &mut Context<'_>, args: &Arguments<'_>) {
    let Some(queued) = &mut context.session.multi else { return };
    queued.bytes += args.iter().map(|argument| argument.len() + 24).sum::<usize>();
    if queued.bytes > QUEUE_BYTES_MAX {
        queued.refused = true;
        queued.commands.clear();
        return context.reply.error("ERR the transaction is too large");
    }
    queued.commands.push(args.iter().map(|argument| argument.to_vec()).collect());
    context.reply.simple("QUEUED");
}

pub(super) fn end(context: &mut Context<'_>) -> Option<Queued> {
    context.shared.unwatch(context.session, context.keys);
    context.session.multi.take()
}

pub(crate) fn exec(context: &mut Context<'_>, _args: &Arguments<'_>) -> Done {
    if context.session.multi.is_none() {
        return Err(Refusal::Said("ERR EXEC without MULTI"));
    }
    let expired = context
        .session
        .watching
        .iter()
        .any(|watched| !watched.expired && context.keys.is_expired(watched.db, &watched.key));
    let broken = expired || context.shared.broken.contains(&context.session.id);
    let Some(queued) = end(context) else { return Ok(()) };
    if queued.refused {
        return Err(Refusal::Said("EXECABORT Transaction discarded because of previous errors."));
    }
    if broken {
        context.reply.null_list();
        return Ok(());
    }
    context.reply.list(queued.commands.len());
    context.shared.in_exec = true;
    for command in &queued.commands {
        let arguments: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        if let Some(row) = lookup(&command[0]) {
            // The way a client speaks may change in between.
            context.reply.resp3 = context.session.resp3;
            match acl::refuse_queued(context, row, &arguments) {
                Ok(()) => run(context, row, &arguments),
                Err(refusal) => {
                    context.shared.refused += 1;
                    context.reply.error(&refusal.text());
                }
            }
        }
        if context.keys.heap().planted().is(Planted::ExecOneByOne) {
            context.keys.heap_mut().commit();
        }
    }
    context.shared.in_exec = false;
    Ok(())
}

pub(crate) fn discard(context: &mut Context<'_>, _args: &Arguments<'_>) -> Done {
    if context.session.multi.is_none() {
        return Err(Refusal::Said(NOT_BEGUN));
    }
    end(context);
    context.reply.ok();
    Ok(())
}

pub(crate) fn watch(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    if context.session.multi.is_some() {
        return Err(Refusal::Said("ERR WATCH inside MULTI is not allowed"));
    }
    for key in &args[1..] {
        let db = context.session.db;
        let clients = context.shared.watchers.entry((db, key.to_vec())).or_default();
        if !clients.contains(&context.session.id) {
            clients.push(context.session.id);
            let expired = context.keys.is_expired(db, key);
            context.session.watching.push(Watched { db, key: key.to_vec(), expired });
        }
    }
    context.keys.watched = true;
    context.reply.ok();
    Ok(())
}

pub(crate) fn unwatch(context: &mut Context<'_>, _args: &Arguments<'_>) -> Done {
    context.shared.unwatch(context.session, context.keys);
    context.reply.ok();
    Ok(())
}
