//! REPLICAOF, ROLE, and what INFO says about replication. The work is the server's
//! (`server/replica.rs`).

use std::time::Instant;

use super::arguments::integer;
use super::replicas::{self, Downstream, Phase};
use super::{Arguments, Context, Done, Refusal, Shared, word};
use crate::keyspace::{Copied, Keyspace, new_name};

/// Whom the server should follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// No one: its data are its own.
    NoOne,
    /// A primary.
    Primary { host: String, port: u16 },
}

/// How far a replica has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// There is no connection.
    Down,
    /// The primary's data are being copied.
    Sync,
    /// Commands are applied as they come.
    Up,
}

/// The primary whose commands are followed.
#[derive(Debug)]
pub(crate) struct Following {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) link: Link,
    /// A connection was tried and did not come about, or ended.
    pub(crate) tried: bool,
    /// When the primary was heard last, or the link went down.
    pub(crate) heard: Instant,
    /// Why the link is down.
    pub(crate) why: String,
}

/// `host port`, or `no one`.
pub(crate) fn wanted(host: &str, port: &str) -> Option<Wanted> {
    if host.eq_ignore_ascii_case("no") && port.eq_ignore_ascii_case("one") {
        return Some(Wanted::NoOne);
    }
    let port = integer(port.as_bytes()).and_then(|port| u16::try_from(port).ok())?;
    Some(Wanted::Primary { host: host.to_owned(), port })
}

pub(crate) fn replicaof(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let host = String::from_utf8_lossy(args[1]).into_owned();
    let wanted = wanted(&host, &word(args[2])).ok_or(Refusal::Said("ERR Invalid master port"))?;
    let following = context.shared.following.as_ref();
    if context.shared.failover.is_some() {
        return Err(Refusal::Said("ERR REPLICAOF not allowed while failing over."));
    }
    let same = match (&wanted, following) {
        (Wanted::Primary { host, port }, Some(now)) => *host == now.host && *port == now.port,
        _ => false,
    };
    if same {
        context.reply.simple("OK Already connected to specified master");
        return Ok(());
    }
    if wanted == Wanted::NoOne && context.keys.copied() == Copied::Part {
        return Err(Refusal::Said(
            "ERR a part of the primary's data is missing, so nobody can go on with them; follow a \
             primary, \
             or say FLUSHALL to begin with nothing",
        ));
    }
    // What follows it in a transaction is for the new state already.
    context.keys.follows = wanted != Wanted::NoOne;
    if wanted == Wanted::NoOne {
        context.keys.become_own(&new_name(&mut fastrand::Rng::new()));
    }
    let said = match &wanted {
        Wanted::NoOne => String::new(),
        Wanted::Primary { host, port } => format!("{host} {port}"),
    };
    // CONFIG REWRITE may follow in the same transaction.
    context.shared.configuration.set("replicaof", &said).map_err(Refusal::Words)?;
    context.shared.wanted = Some(wanted);
    context.reply.ok();
    Ok(())
}

pub(crate) fn role(context: &mut Context<'_>, _args: &Arguments<'_>) -> Done {
    match &context.shared.following {
        None => {
            context.reply.list(3);
            context.reply.bulk(b"master");
            context.reply.count(context.keys.position());
            let online = |one: &&Downstream| one.phase == Phase::Online;
            let replicas: Vec<_> = context.shared.replicas.values().filter(online).collect();
            context.reply.list(replicas.len());
            for replica in replicas {
                context.reply.list(3);
                context.reply.bulk(replica.ip.as_bytes());
                context.reply.bulk(replica.port.to_string().as_bytes());
                context.reply.bulk(replica.acknowledged.to_string().as_bytes());
            }
        }
        Some(following) => {
            context.reply.list(5);
            context.reply.bulk(b"slave");
            context.reply.bulk(following.host.as_bytes());
            context.reply.integer(following.port.into());
            let state: &[u8] = match following.link {
                Link::Down => b"connect",
                Link::Sync => b"sync",
                Link::Up => b"connected",
            };
            context.reply.bulk(state);
            context.reply.count(context.keys.position());
        }
    }
    Ok(())
}

/// The lines of INFO.
pub(crate) fn lines(shared: &Shared, keys: &Keyspace) -> Vec<(String, String)> {
    let line = |name: &str, value: &dyn std::fmt::Display| (name.to_owned(), value.to_string());
    let mut lines = Vec::new();
    match &shared.following {
        None => lines.push(line("role", &"master")),
        Some(following) => {
            let quiet = following.heard.elapsed().as_secs();
            let up = following.link == Link::Up;
            lines.push(line("role", &"slave"));
            lines.push(line("master_host", &following.host));
            lines.push(line("master_port", &following.port));
            lines.push(line("master_link_status", &if up { "up" } else { "down" }));
            if up {
                lines.push(line("master_last_io_seconds_ago", &quiet));
            } else {
                lines.push(line("master_last_io_seconds_ago", &-1));
                lines.push(line("master_link_down_since_seconds", &quiet));
                lines.push(line("master_link_down_reason", &following.why));
            }
            lines.push(line("master_sync_in_progress", &u8::from(following.link == Link::Sync)));
            lines.push(line("slave_read_repl_offset", &keys.position()));
            lines.push(line("slave_repl_offset", &keys.position()));
            lines.push(line("slave_priority", &shared.configuration.text("replica-priority")));
            lines.push(line("slave_read_only", &1));
            lines.push(line("replica_announced", &1));
        }
    }
    lines.extend(replicas::lines(shared));
    let failover = match &shared.failover {
        None => "no-failover",
        Some(failover) if failover.asked => "failover-in-progress",
        Some(_) => "waiting-for-sync",
    };
    lines.push(line("master_failover_state", &failover));
    let history = if keys.has_history() { keys.history() } else { shared.run_id.clone() };
    let second = keys.second_history().filter(|_| keys.has_history());
    lines.push(line("master_replid", &history));
    let (name, position) = match second {
        Some((name, last)) => (name, (last + 1).to_string()),
        None => ("0".repeat(40), "-1".to_owned()),
    };
    lines.push(line("master_replid2", &name));
    lines.push(line("master_repl_offset", &keys.position()));
    lines.push(line("second_repl_offset", &position));
    lines.push(line("repl_backlog_active", &u8::from(keys.has_history())));
    lines.push(line("repl_backlog_size", &shared.configuration.text("repl-backlog-size")));
    lines.push(line("repl_backlog_first_byte_offset", &(shared.backlog_first + 1)));
    lines.push(line("repl_backlog_histlen", &shared.backlog_bytes));
    lines
}
