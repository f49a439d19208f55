//! MULTI, EXEC, DISCARD, WATCH.
//!
//! An EXEC is part of one transaction of the heap: nothing is committed in its middle.

use super::session::Queued;
use super::{Arguments, Context, Done, Refusal, Reply, Session, acl, lookup, pubsub, run};
use crate::planted::Planted;

pub(super) const NOT_BEGUN: Refusal = Refusal::Said("ERR DISCARD without MULTI");
pub(super) const NOT_WATCHED: Refusal = Refusal::Said("ERR WATCH inside MULTI is not allowed");
/// Bytes of commands that may wait for an EXEC.
const QUEUE_BYTES_MAX: usize = 1 << 30;

pub(crate) fn multi(context: &mut Context<'_>, _args: &Arguments<'_>) -> Done {
    begin(context.session)?;
    context.reply.ok();
    Ok(())
}

pub(super) fn begin(session: &mut Session) -> Done {
    if session.multi.is_some() {
        return Err(Refusal::Said("ERR MULTI calls can not be nested"));
    }
    session.multi = Some(Queued::default());
    Ok(())
}

/// Keeps a command for the EXEC.
pub(crate) fn queue(session: &mut Session, reply: &mut Reply<'_>, args: &Arguments<'_>) {
    let Some(queued) = &mut session.multi else { return };
    queued.bytes += args.iter().map(|argument| argument.len() + 24).sum::<usize>();
    if queued.bytes > QUEUE_BYTES_MAX {
        queued.refused = true;
        queued.commands.clear();
        return reply.error("ERR the transaction is too large");
    }
    queued.commands.push(args.iter().map(|argument| argument.to_vec()).collect());
    reply.simple("QUEUED");
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
    let broken = (expired || context.shared.broken.contains(&context.session.id))
        && !context.keys.heap().planted().is(Planted::WatchIgnored);
    let Some(queued) = end(context) else { return Ok(()) };
    if queued.refused {
        return Err(Refusal::Said("EXECABORT Transaction discarded because of previous errors."));
    }
    if broken {
        context.reply.null_list();
        return Ok(());
    }
    if !context.session.wants_no_reply() {
        context.reply.list(queued.commands.len());
    }
    context.shared.in_exec = true;
    for command in &queued.commands {
        let arguments: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        if let Some(row) = lookup(&command[0]) {
            // The way a client speaks may change in between.
            context.reply.resp3 = context.session.resp3;
            let before = context.reply.out.len();
            match acl::refuse_queued(context, row, &arguments) {
                Ok(()) => run(context, row, &arguments),
                Err(refusal) => {
                    context.shared.note_error(&refusal.text());
                    context.reply.error(&refusal.text());
                }
            }
            // What is pushed is no reply.
            if context.session.wants_no_reply()
                && !pubsub::pushed(&arguments, context.reply.out, before)
            {
                context.reply.out.truncate(before);
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
        return Err(NOT_BEGUN);
    }
    end(context);
    context.reply.ok();
    Ok(())
}

pub(crate) fn watch(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    if context.session.multi.is_some() {
        return Err(NOT_WATCHED);
    }
    for key in &args[1..] {
        let place = (context.session.db, *key);
        context.shared.watch(context.session, context.keys, place);
    }
    context.reply.ok();
    Ok(())
}

pub(crate) fn unwatch(context: &mut Context<'_>, _args: &Arguments<'_>) -> Done {
    context.shared.unwatch(context.session, context.keys);
    context.reply.ok();
    Ok(())
}
