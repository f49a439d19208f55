//! What may be said while a script keeps everybody waiting, as in Redis: its commands with the flag
//! `allow-busy`. The keys belong to the script meanwhile, so what is about them is noted in the
//! session ([`super::session::Later`]) and done when the script has ended.
//!
//! Deliberately absent: AUTH, QUIT, SCRIPT KILL and SHUTDOWN, which are answered by the server's
//! `busy.rs`.

use super::acl::{Identity, Users, log_in};
use super::{
    Arguments, Done, Refusal, Reply, Session, connection, lookup, replicas, transactions as t,
    wrong_count,
};

/// What somebody needs to know for an answer beside a script.
#[derive(Debug)]
pub(crate) struct Beside<'a> {
    /// What everything else is answered with.
    pub(crate) busy: &'a str,
    pub(crate) users: &'a Users,
    /// The server is a replica.
    pub(crate) follows: bool,
}

const ALLOWED: [&str; 8] =
    ["discard", "exec", "hello", "multi", "replconf", "reset", "unwatch", "watch"];

/// Answers what may be said beside a script. Returns whether it was that.
pub(crate) fn beside_a_script(
    session: &mut Session,
    args: &Arguments<'_>,
    reply: &mut Reply<'_>,
    beside: &Beside<'_>,
) -> bool {
    let Some(row) = args.first().and_then(|name| lookup(name)) else { return false };
    if !ALLOWED.contains(&row.name) {
        return false;
    }
    let fits = row.takes(args.len());
    if let Some(queued) = session.multi.as_mut().filter(|_| !fits) {
        queued.refused = true;
    }
    let done = match fits {
        true => answer(session, args, reply, beside, row.name),
        false => Err(wrong_count(row.name)),
    };
    if let Err(refusal) = done {
        reply.error(&refusal.text());
    }
    true
}

fn answer(
    session: &mut Session,
    args: &Arguments<'_>,
    reply: &mut Reply<'_>,
    beside: &Beside<'_>,
    name: &str,
) -> Done {
    match name {
        "multi" => t::begin(session)?,
        "exec" => {
            end(session);
            return Err(Refusal::Words(format!(
                "EXECABORT Transaction discarded because of: {}",
                beside.busy
            )));
        }
        "discard" if session.multi.is_none() => return Err(t::NOT_BEGUN),
        "discard" => end(session),
        "reset" => {
            end(session);
            session.later.resets = true;
            connection::begin_anew(session, Identity::of_default(beside.users));
            reply.resp3 = false;
            reply.simple("RESET");
            return Ok(());
        }
        "watch" if session.multi.is_some() => return Err(t::NOT_WATCHED),
        "watch" => {
            let db = session.db;
            session.later.watches.extend(args[1..].iter().map(|key| (db, key.to_vec())));
        }
        "hello" | "replconf" | "unwatch" if session.multi.is_some() => {
            t::queue(session, reply, args);
            return Ok(());
        }
        "unwatch" => end(session),
        "hello" => {
            let wanted = connection::wanted(args, |name, password| {
                session.identity = log_in(beside.users, name, password).ok_or(connection::WRONG)?;
                session.allowed = true;
                Ok(())
            })?;
            return connection::greet(session, reply, wanted, beside.follows);
        }
        // A replica that follows is not asked here, so nobody acknowledges anything.
        _ => match replicas::announce(&mut session.announced, args)? {
            replicas::Said::Of => {}
            replicas::Said::Acknowledged(_) | replicas::Said::Nothing => return Ok(()),
        },
    }
    reply.ok();
    Ok(())
}

/// Forgets the transaction, and what is watched for it.
fn end(session: &mut Session) {
    session.multi = None;
    session.later.watches.clear();
    session.later.unwatches = true;
}
