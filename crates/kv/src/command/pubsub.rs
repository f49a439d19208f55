//! Publish and subscribe. Nothing of it is persistent, as in Redis.

use std::rc::Rc;

use super::deliveries::{Delivery, Via, What};
use super::help::help;
use super::{Arguments, Context, Done, Refusal, Shared, glob, subcommands, word};

/// Channels, patterns, or channels of a shard: of a namespace of their own, and without patterns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Channels,
    Patterns,
    Shards,
}

fn change(context: &mut Context<'_>, name: &[u8], of: Of, subscribe: bool) {
    let id = context.session.id;
    let (mine, all) = match of {
        Of::Channels => (&mut context.session.channels, &mut context.shared.channels),
        Of::Patterns => (&mut context.session.patterns, &mut context.shared.patterns),
        Of::Shards => (&mut context.session.shards, &mut context.shared.shards),
    };
    if subscribe && mine.insert(name) {
        all.entry(name.to_vec()).or_default().push(id);
    } else if !subscribe && mine.remove(name) {
        let clients = all.entry(name.to_vec()).or_default();
        clients.retain(|client| *client != id);
        if clients.is_empty() {
            all.remove(name);
        }
    }
    answer(context, Some(name), of, subscribe);
}

fn answer(context: &mut Context<'_>, name: Option<&[u8]>, of: Of, subscribe: bool) {
    let kind: &[u8] = match (of, subscribe) {
        (Of::Channels, true) => b"subscribe",
        (Of::Channels, false) => b"unsubscribe",
        (Of::Patterns, true) => b"psubscribe",
        (Of::Patterns, false) => b"punsubscribe",
        (Of::Shards, true) => b"ssubscribe",
        (Of::Shards, false) => b"sunsubscribe",
    };
    let session = &context.session;
    let count = match of {
        Of::Shards => session.shards.len(),
        Of::Channels | Of::Patterns => session.channels.len() + session.patterns.len(),
    };
    context.reply.push(3);
    context.reply.bulk(kind);
    context.reply.bulk_or_null(name);
    context.reply.count(count as u64);
}

fn leave(context: &mut Context<'_>, args: &Arguments<'_>, of: Of) -> Done {
    let names: Vec<Vec<u8>> = match (args.len(), of) {
        (1, Of::Channels) => context.session.channels.iter().cloned().collect(),
        (1, Of::Patterns) => context.session.patterns.iter().cloned().collect(),
        (1, Of::Shards) => context.session.shards.iter().cloned().collect(),
        _ => args[1..].iter().map(|name| name.to_vec()).collect(),
    };
    if names.is_empty() {
        answer(context, None, of, false);
    }
    for name in &names {
        change(context, name, of, false);
    }
    Ok(())
}

pub(crate) fn subscribe(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    args[1..].iter().for_each(|name| change(context, name, Of::Channels, true));
    Ok(())
}

pub(crate) fn psubscribe(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    args[1..].iter().for_each(|name| change(context, name, Of::Patterns, true));
    Ok(())
}

pub(crate) fn unsubscribe(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    leave(context, args, Of::Channels)
}

pub(crate) fn punsubscribe(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    leave(context, args, Of::Patterns)
}

pub(crate) fn ssubscribe(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    if context.shared.in_exec {
        return Err(Refusal::Said("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"));
    }
    args[1..].iter().for_each(|name| change(context, name, Of::Shards, true));
    Ok(())
}

pub(crate) fn sunsubscribe(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    leave(context, args, Of::Shards)
}

/// Whether what a command said from there on are messages about subscriptions, which a client gets
/// that wants no replies. An error is a reply, and so is QUEUED.
pub(super) fn pushed(args: &Arguments<'_>, out: &[u8], from: usize) -> bool {
    let all =
        ["subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe"];
    let is = |said: &[u8]| all.iter().any(|name| said.eq_ignore_ascii_case(name.as_bytes()));
    args.first().is_some_and(|said| is(said)) && matches!(out.get(from), Some(b'*' | b'>'))
}

/// Sends a message to all who are subscribed to a channel; how many they are.
pub(super) fn deliver(shared: &mut Shared, channel: &[u8], payload: &[u8]) -> u64 {
    if shared.channels.is_empty() && shared.patterns.is_empty() {
        return 0;
    }
    let name = channel;
    let (channel, payload): (Rc<[u8]>, Rc<[u8]>) = (channel.into(), payload.into());
    let (mut count, limit) = (0, shared.configuration.hot.output_subscribed.hard);
    for client in shared.channels.get(name).into_iter().flatten() {
        let (channel, payload) = (channel.clone(), payload.clone());
        let what = What::Message { via: Via::Channel, channel, payload };
        shared.deliveries.push(Delivery { client: *client, what }, limit);
        count += 1;
    }
    for (pattern, clients) in &shared.patterns {
        for client in clients.iter().filter(|_| glob(pattern, &channel, false)) {
            let via = Via::Pattern(pattern.clone());
            let what = What::Message { via, channel: channel.clone(), payload: payload.clone() };
            shared.deliveries.push(Delivery { client: *client, what }, limit);
            count += 1;
        }
    }
    count
}

pub(crate) fn spublish(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let shared = &mut *context.shared;
    let limit = shared.configuration.hot.output_subscribed.hard;
    let (channel, payload): (Rc<[u8]>, Rc<[u8]>) = (args[1].into(), args[2].into());
    let clients = shared.shards.get(args[1]).map_or(&[][..], Vec::as_slice);
    for client in clients {
        let (channel, payload) = (channel.clone(), payload.clone());
        let what = What::Message { via: Via::Shard, channel, payload };
        shared.deliveries.push(Delivery { client: *client, what }, limit);
    }
    context.reply.count(clients.len() as u64);
    Ok(())
}

pub(crate) fn publish(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let count = deliver(context.shared, args[1], args[2]);
    context.reply.count(count);
    Ok(())
}

pub(crate) fn pubsub(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let shared = &*context.shared;
    let said = word(args[1]);
    let all = if said.starts_with("shard") { &shared.shards } else { &shared.channels };
    match (said.as_str(), &args[2..]) {
        ("channels" | "shardchannels", patterns @ ([] | [_])) => {
            let fits = |name: &&Vec<u8>| patterns.iter().all(|p| glob(p, name, false));
            let names: Vec<&Vec<u8>> = all.keys().filter(fits).collect();
            context.reply.list(names.len());
            names.iter().for_each(|name| context.reply.bulk(name));
        }
        ("numsub" | "shardnumsub", names) => {
            context.reply.list(names.len() * 2);
            for name in names {
                context.reply.bulk(name);
                context.reply.count(all.get(*name).map_or(0, Vec::len) as u64);
            }
        }
        ("numpat", []) => context.reply.count(shared.patterns.len() as u64),
        ("help", []) => help(context, "pubsub"),
        _ => return Err(subcommands::syntax("pubsub", args)),
    }
    Ok(())
}
