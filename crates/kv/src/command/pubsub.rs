//! Publish and subscribe. Nothing of it is persistent, as in Redis.

use std::rc::Rc;

use super::deliveries::{Delivery, What};
use super::{Arguments, Context, Done, Refusal, Shared, glob, word};

/// Channels, or patterns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Channels,
    Patterns,
}

fn change(context: &mut Context<'_>, name: &[u8], of: Of, subscribe: bool) {
    let id = context.session.id;
    let (mine, all) = match of {
        Of::Channels => (&mut context.session.channels, &mut context.shared.channels),
        Of::Patterns => (&mut context.session.patterns, &mut context.shared.patterns),
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
    };
    context.reply.push(3);
    context.reply.bulk(kind);
    context.reply.bulk_or_null(name);
    context.reply.count(context.session.subscriptions() as u64);
}

fn leave(context: &mut Context<'_>, args: &Arguments<'_>, of: Of) -> Done {
    let names: Vec<Vec<u8>> = match (args.len(), of) {
        (1, Of::Channels) => context.session.channels.iter().cloned().collect(),
        (1, Of::Patterns) => context.session.patterns.iter().cloned().collect(),
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

/// Whether what a command said from there on are messages about subscriptions, which a client gets
/// that wants no replies. An error is a reply, and so is QUEUED.
pub(super) fn pushed(args: &Arguments<'_>, out: &[u8], from: usize) -> bool {
    let all = ["subscribe", "psubscribe", "unsubscribe", "punsubscribe"];
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
        let what = What::Message { pattern: None, channel, payload };
        shared.deliveries.push(Delivery { client: *client, what }, limit);
        count += 1;
    }
    for (pattern, clients) in &shared.patterns {
        for client in clients.iter().filter(|_| glob(pattern, &channel, false)) {
            let (pattern, channel, payload) =
                (Some(pattern.clone()), channel.clone(), payload.clone());
            let what = What::Message { pattern, channel, payload };
            shared.deliveries.push(Delivery { client: *client, what }, limit);
            count += 1;
        }
    }
    count
}

pub(crate) fn publish(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let count = deliver(context.shared, args[1], args[2]);
    context.reply.count(count);
    Ok(())
}

pub(crate) fn pubsub(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let shared = &*context.shared;
    match (word(args[1]).as_str(), &args[2..]) {
        ("channels", patterns @ ([] | [_])) => {
            let fits = |name: &&Vec<u8>| patterns.iter().all(|p| glob(p, name, false));
            let names: Vec<&Vec<u8>> = shared.channels.keys().filter(fits).collect();
            context.reply.list(names.len());
            names.iter().for_each(|name| context.reply.bulk(name));
        }
        ("numsub", names) => {
            context.reply.list(names.len() * 2);
            for name in names {
                context.reply.bulk(name);
                let clients = shared.channels.get(*name).map_or(0, Vec::len);
                context.reply.count(clients as u64);
            }
        }
        ("numpat", []) => context.reply.count(shared.patterns.len() as u64),
        (name, _) => {
            return Err(Refusal::Words(format!(
                "ERR unknown subcommand or wrong number of arguments for '{name}'. Try PUBSUB HELP."
            )));
        }
    }
    Ok(())
}
