//! FAILOVER: this primary hands its role to a replica that has everything.
//!
//! | step | what happens |
//! |---|---|
//! | 1 | writes of clients wait, and no key expires: the stream stands still |
//! | 2 | a replica acknowledges the end of the stream |
//! | 3 | this server asks that replica for the stream, and to be the primary (`PSYNC ... FAILOVER`) |
//! | 4 | it goes on from there as a replica; the writes that waited are answered with READONLY |
//!
//! Whatever fails on the way, or takes longer than it may, ends with this server as the primary
//! that it was. The server drives the steps (`server/handover.rs`).

use std::time::{Duration, Instant};

use super::arguments::integer;
use super::{Arguments, Context, Done, Phase, Refusal, SYNTAX, word};

/// A handover under way.
#[derive(Clone, Debug)]
pub(crate) struct Failover {
    /// The replica that is wanted; nothing: any.
    pub(crate) to: Option<(String, u16)>,
    pub(crate) until: Option<Instant>,
    /// When the time is over it is done all the same.
    pub(crate) force: bool,
    /// The replica was asked.
    pub(crate) asked: bool,
}

/// Commands of clients that wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    /// Nothing: until it is ended.
    pub(crate) until: Option<Instant>,
    /// All of them, not only those that may write.
    pub(crate) all: bool,
}

pub(crate) fn failover(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let (mut to, mut timeout, mut force, mut abort) = (None, None, false, false);
    let mut at = 1;
    while let Some(option) = args.get(at) {
        match (word(option).as_str(), &args[at + 1..]) {
            ("to", [host, port, ..]) if to.is_none() => {
                let port = integer(port).and_then(|port| u16::try_from(port).ok());
                let port =
                    port.ok_or(Refusal::Said("ERR value is not an integer or out of range"))?;
                to = Some((String::from_utf8_lossy(host).into_owned(), port));
                at += 3;
            }
            ("timeout", [ms, ..]) if timeout.is_none() => {
                let ms = integer(ms).and_then(|ms| u64::try_from(ms).ok()).filter(|ms| *ms > 0);
                timeout =
                    Some(ms.ok_or(Refusal::Said("ERR FAILOVER timeout must be greater than 0"))?);
                at += 2;
            }
            ("force", _) if !force => {
                force = true;
                at += 1;
            }
            ("abort", _) if !abort => {
                abort = true;
                at += 1;
            }
            _ => return Err(SYNTAX),
        }
    }
    let shared = &mut *context.shared;
    if abort {
        if args.len() > 2 {
            return Err(SYNTAX);
        }
        if shared.failover.is_none() {
            return Err(Refusal::Said("ERR No failover in progress."));
        }
        shared.abort_failover = true;
        context.reply.ok();
        return Ok(());
    }
    if shared.failover.is_some() {
        return Err(Refusal::Said("ERR FAILOVER already in progress."));
    }
    if context.keys.follows {
        return Err(Refusal::Said("ERR FAILOVER is not valid when server is a replica."));
    }
    if shared.replicas.is_empty() {
        return Err(Refusal::Said("ERR FAILOVER requires connected replicas."));
    }
    if force && (timeout.is_none() || to.is_none()) {
        return Err(Refusal::Said(
            "ERR FAILOVER with force option requires both a timeout and target HOST and IP.",
        ));
    }
    if let Some((host, port)) = &to {
        let mut replicas = shared.replicas.values();
        let target = replicas.find(|one| one.ip == *host && one.port == *port);
        let target =
            target.ok_or(Refusal::Said("ERR FAILOVER target HOST and PORT is not a replica."))?;
        if target.phase != Phase::Online {
            return Err(Refusal::Said("ERR FAILOVER target replica is not online."));
        }
    }
    let until = timeout.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
    shared.failover = Some(Failover { to, until, force, asked: false });
    shared.pause = Some(Pause { until: None, all: false });
    context.keys.frozen = true;
    context.reply.ok();
    Ok(())
}

/// CLIENT PAUSE and CLIENT UNPAUSE.
pub(crate) fn pause(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let shared = &mut *context.shared;
    match args {
        [_] if shared.failover.is_none() => {
            shared.pause = None;
            context.keys.frozen = false;
        }
        [_, ms, how @ ..] if how.len() < 2 => {
            let ms = integer(ms).and_then(|ms| u64::try_from(ms).ok());
            let ms = ms.ok_or(Refusal::Said("ERR timeout is not an integer or out of range"))?;
            let all = match how.first().map(|how| word(how)).as_deref() {
                None | Some("all") => true,
                Some("write") => false,
                _ => return Err(Refusal::Said("ERR CLIENT PAUSE mode must be WRITE or ALL")),
            };
            let until = Instant::now().checked_add(Duration::from_millis(ms));
            if shared.failover.is_none() {
                shared.pause = Some(Pause { until, all });
                context.keys.frozen = true;
            }
        }
        _ => {}
    }
    context.reply.ok();
    Ok(())
}
