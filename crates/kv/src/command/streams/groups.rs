//! XGROUP, XACK, XPENDING.

use super::super::arguments::integer_or_refusal;
use super::super::{Arguments, Context, Done, Refusal, SYNTAX, subcommands, word};
use super::{id, id_or_end, ids, range_end, range_start, reply_id, stream, text};
use crate::format::stream::Id;
use crate::keyspace::notice;

const XGROUP_HELP: [&str; 14] = [
    "CREATE <key> <groupname> <id|$> [option]",
    "    Create a new consumer group. Options are:",
    "    * MKSTREAM",
    "      Create the empty stream if it does not exist.",
    "    * ENTRIESREAD entries_read",
    "      Set the group's entries_read counter (internal use).",
    "CREATECONSUMER <key> <groupname> <consumer>",
    "    Create a new consumer in the specified group.",
    "DELCONSUMER <key> <groupname> <consumer>",
    "    Remove the specified consumer.",
    "DESTROY <key> <groupname>",
    "    Remove the specified group.",
    "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
    "    Set the current group ID and entries_read counter.",
];

/// What CREATE and SETID are told beside the ID.
struct Options {
    make_stream: bool,
    read: Option<u64>,
}

fn options(name: &str, args: &Arguments<'_>) -> Result<Options, Refusal> {
    let mut all = Options { make_stream: false, read: None };
    let mut rest = args.get(5..).unwrap_or_default().iter();
    while let Some(option) = rest.next() {
        match word(option).as_str() {
            "mkstream" if name == "create" => all.make_stream = true,
            "entriesread" if matches!(name, "create" | "setid") => {
                let number = rest.next().ok_or_else(|| subcommands::syntax("xgroup", args))?;
                all.read = match integer_or_refusal(number)? {
                    -1 => None,
                    number => Some(u64::try_from(number).map_err(|_| {
                        Refusal::Said("ERR value for ENTRIESREAD must be positive or -1")
                    })?),
                };
            }
            _ => return Err(subcommands::syntax("xgroup", args)),
        }
    }
    Ok(all)
}

pub(crate) fn xgroup(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    subcommands::check("xgroup", args)?;
    let name = word(args[1]);
    let name = name.as_str();
    if name == "help" {
        subcommands::help(context, "xgroup", &XGROUP_HELP);
        return Ok(());
    }
    let options = options(name, args)?;
    let (key, group) = (args[2], args[3]);
    let node = stream(context, key)?;
    if node.is_none() && !options.make_stream {
        return Err(Refusal::Said(
            "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may \
             want to use the \
             MKSTREAM option to create an empty stream automatically.",
        ));
    }
    if name == "create" {
        return create(context, args, node, &options);
    }
    let Some(node) = node else { return Err(SYNTAX) };
    context.keys.note_change();
    let found = context.keys.named_child(node, group);
    if name == "destroy" {
        context.reply.integer(i64::from(found.is_some()));
        if let Some(found) = found {
            context.keys.remove_group(node, &found);
            context.notify(notice::STREAM, "xgroup-destroy", key);
            // Who waits for the group is told that it is gone.
            context.shared.is_ready(context.session.db, key);
        }
        return Ok(());
    }
    let found = found.ok_or_else(|| no_group(group, key))?;
    match name {
        "setid" => {
            if args.len() != 5 && args.len() != 7 {
                return Err(subcommands::syntax("xgroup", args));
            }
            let last = match args[4] {
                b"$" => context.keys.stream_facts(node).last,
                text => id_or_end(text, 0)?,
            };
            context.keys.set_group(found.node, last, options.read);
            context.notify(notice::STREAM, "xgroup-setid", key);
            context.reply.ok();
        }
        "createconsumer" => {
            let there = context.keys.named_child(found.node, args[4]).is_some();
            if !there {
                let now = context.keys.now_ms();
                context.keys.make_consumer(found.node, args[4], now)?;
                context.notify(notice::STREAM, "xgroup-createconsumer", key);
            }
            context.reply.integer(i64::from(!there));
        }
        _ => {
            let consumer = context.keys.named_child(found.node, args[4]);
            let pending = consumer.map(|one| context.keys.remove_consumer(found.node, &one));
            if pending.is_some() {
                context.notify(notice::STREAM, "xgroup-delconsumer", key);
            }
            context.reply.count(pending.unwrap_or(0));
        }
    }
    Ok(())
}

pub(super) fn no_group(group: &[u8], key: &[u8]) -> Refusal {
    let (group, key) = (text(group), text(key));
    Refusal::Words(format!("NOGROUP No such consumer group '{group}' for key name '{key}'"))
}

fn create(
    context: &mut Context<'_>,
    args: &Arguments<'_>,
    node: Option<u64>,
    options: &Options,
) -> Done {
    if args.len() > 8 {
        return Err(subcommands::syntax("xgroup", args));
    }
    let (key, group) = (args[2], args[3]);
    let last = match args[4] {
        b"$" => node.map_or(Id::MIN, |node| context.keys.stream_facts(node).last),
        text => id(text, 0)?,
    };
    let node = match node {
        Some(node) => node,
        None => context.keys.make_stream(context.session.db, key, None)?,
    };
    if context.keys.named_child(node, group).is_some() {
        return Err(Refusal::Said("BUSYGROUP Consumer Group name already exists"));
    }
    context.keys.make_group(node, group, last, options.read)?;
    context.keys.note_change();
    context.notify(notice::STREAM, "xgroup-create", key);
    context.reply.ok();
    Ok(())
}

pub(crate) fn xack(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let node = stream(context, args[1])?;
    let Some(group) = node.and_then(|node| context.keys.named_child(node, args[2])) else {
        context.reply.integer(0);
        return Ok(());
    };
    let mut acknowledged = 0;
    for id in ids(&args[3..])? {
        if let Some(pending) = context.keys.pending(group.node, id) {
            context.keys.acknowledge(group.node, &pending);
            context.keys.note_change();
            acknowledged += 1;
        }
    }
    context.reply.integer(acknowledged);
    Ok(())
}

/// The part of XPENDING's arguments that asks for single records.
struct Wanted<'a> {
    idle: u64,
    range: (Id, Id),
    count: u64,
    consumer: Option<&'a [u8]>,
}

impl<'a> Wanted<'a> {
    fn read(args: &'a Arguments<'a>) -> Result<Option<Wanted<'a>>, Refusal> {
        if args.len() == 3 {
            return Ok(None);
        }
        if !(6..=9).contains(&args.len()) {
            return Err(SYNTAX);
        }
        let (mut idle, mut from) = (0, 3);
        if word(args[3]) == "idle" {
            idle = u64::try_from(integer_or_refusal(args[4])?).unwrap_or(0);
            if args.len() < 8 {
                return Err(SYNTAX);
            }
            from = 5;
        }
        let count = u64::try_from(integer_or_refusal(args[from + 2])?).unwrap_or(0);
        let range = (range_start(args[from])?, range_end(args[from + 1])?);
        Ok(Some(Wanted { idle, range, count, consumer: args.get(from + 3).copied() }))
    }
}

pub(crate) fn xpending(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let wanted = Wanted::read(args)?;
    let node = stream(context, args[1])?;
    let group = node.and_then(|node| context.keys.named_child(node, args[2])).ok_or_else(|| {
        let (key, group) = (text(args[1]), text(args[2]));
        Refusal::Words(format!("NOGROUP No such key '{key}' or consumer group '{group}'"))
    })?;
    let Some(wanted) = wanted else {
        summary(context, group.node);
        return Ok(());
    };
    let mut of = group.node;
    if let Some(name) = wanted.consumer {
        match context.keys.named_child(group.node, name) {
            Some(consumer) => of = consumer.node,
            None => {
                context.reply.list(0);
                return Ok(());
            }
        }
    }
    let now = context.keys.now_ms();
    let mut found = Vec::new();
    context.keys.for_pending(of, wanted.range.0, |one| {
        if found.len() as u64 >= wanted.count || one.id > wanted.range.1 {
            return false;
        }
        if wanted.idle == 0 || i128::from(now) - i128::from(one.time) >= i128::from(wanted.idle) {
            found.push(one);
        }
        true
    });
    context.reply.list(found.len());
    for one in found {
        context.reply.list(4);
        reply_id(&mut context.reply, one.id);
        context.reply.bulk(&context.keys.consumer_name(one.consumer));
        context.reply.count(now.saturating_sub(one.time));
        context.reply.count(one.count);
    }
    Ok(())
}

fn summary(context: &mut Context<'_>, group: u64) {
    context.reply.list(4);
    context.reply.count(context.keys.pending_count(group));
    match context.keys.pending_ends(group) {
        None => {
            context.reply.null();
            context.reply.null();
            context.reply.null_list();
        }
        Some((first, last)) => {
            reply_id(&mut context.reply, first);
            reply_id(&mut context.reply, last);
            let mut consumers = context.keys.children(group);
            consumers.retain(|one| context.keys.pending_count(one.node) > 0);
            context.reply.list(consumers.len());
            for one in consumers {
                context.reply.list(2);
                context.reply.bulk(&one.name);
                context.reply.bulk(context.keys.pending_count(one.node).to_string().as_bytes());
            }
        }
    }
}
