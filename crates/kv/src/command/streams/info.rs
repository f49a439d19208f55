//! XINFO.

use super::super::arguments::integer_or_refusal;
use super::super::{Arguments, Context, Done, Refusal, subcommands, word};
use super::groups::no_group;
use super::{NO_KEY, reply_id, reply_list, reply_range, stream};
use crate::format::stream::Id;
use crate::keyspace::{Child, Pending};

const XINFO_HELP: [&str; 6] = [
    "CONSUMERS <key> <groupname>",
    "    Show consumers of <groupname>.",
    "GROUPS <key>",
    "    Show the stream consumer groups.",
    "STREAM <key> [FULL [COUNT <count>]",
    "    Show information about the stream.",
];

const ALL: (Id, Id) = (Id::MIN, Id::MAX);
/// Entries and records that FULL shows unless it is told.
const FULL_COUNT: u64 = 10;

pub(crate) fn xinfo(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    subcommands::check("xinfo", args)?;
    let name = word(args[1]);
    if name == "help" {
        subcommands::help(context, "xinfo", &XINFO_HELP);
        return Ok(());
    }
    let node = stream(context, args[2])?.ok_or(NO_KEY)?;
    match name.as_str() {
        "consumers" => {
            let group = context
                .keys
                .named_child(node, args[3])
                .ok_or_else(|| no_group(args[3], args[2]))?;
            consumers(context, group.node);
        }
        "groups" => groups(context, node),
        _ => match full(args)? {
            None => about(context, node),
            Some(count) => all_about(context, node, count),
        },
    }
    Ok(())
}

/// How many entries FULL shows, if it is said; 0: all.
fn full(args: &Arguments<'_>) -> Result<Option<u64>, Refusal> {
    let syntax = || subcommands::syntax("xinfo", args);
    let (first, count) = match &args[3..] {
        [] => return Ok(None),
        [first] => (first, None),
        [first, name, count] if word(first) == "full" && word(name) == "count" => {
            (first, Some(count))
        }
        _ => return Err(syntax()),
    };
    if word(first) != "full" {
        return Err(syntax());
    }
    match count {
        None => Ok(Some(FULL_COUNT)),
        Some(count) => Ok(Some(u64::try_from(integer_or_refusal(count)?).unwrap_or(FULL_COUNT))),
    }
}

fn named_count(context: &mut Context<'_>, name: &str, count: u64) {
    context.reply.bulk(name.as_bytes());
    context.reply.count(count);
}

fn named_id(context: &mut Context<'_>, name: &str, id: Id) {
    context.reply.bulk(name.as_bytes());
    reply_id(&mut context.reply, id);
}

/// What XINFO STREAM says in both forms. A tree of Redis's has about a node for each block.
fn begin(context: &mut Context<'_>, node: u64) {
    let facts = context.keys.stream_facts(node);
    let blocks = context.keys.stream_blocks(node);
    named_count(context, "length", facts.length);
    named_count(context, "radix-tree-keys", blocks);
    named_count(context, "radix-tree-nodes", blocks + 1);
    named_id(context, "last-generated-id", facts.last);
    named_id(context, "max-deleted-entry-id", facts.removed);
    named_count(context, "entries-added", facts.added);
    named_id(context, "recorded-first-entry-id", facts.first);
}

fn about(context: &mut Context<'_>, node: u64) {
    context.reply.map(10);
    begin(context, node);
    let groups = context.keys.child_count(node);
    named_count(context, "groups", groups);
    for (name, last) in [("first-entry", false), ("last-entry", true)] {
        context.reply.bulk(name.as_bytes());
        if reply_range(context.keys, &mut context.reply, node, ALL, last, 1).is_empty() {
            context.reply.null();
        }
    }
}

/// How far a group is behind, and what it has read.
fn progress(context: &mut Context<'_>, node: u64, group: &Child) {
    let facts = context.keys.stream_facts(node);
    let (last, read) = context.keys.group_facts(group.node);
    let or_null = |context: &mut Context<'_>, name: &str, number: Option<u64>| match number {
        Some(number) => named_count(context, name, number),
        None => {
            context.reply.bulk(name.as_bytes());
            context.reply.null();
        }
    };
    let lag = match read {
        _ if facts.added == 0 => Some(0),
        Some(read) if !facts.has_gap_from(last) => Some(facts.added.wrapping_sub(read)),
        _ => facts.read_up_to(last).map(|read| facts.added.wrapping_sub(read)),
    };
    or_null(context, "entries-read", read);
    or_null(context, "lag", lag);
}

fn groups(context: &mut Context<'_>, node: u64) {
    let groups = context.keys.children(node);
    context.reply.list(groups.len());
    for group in groups {
        context.reply.map(6);
        context.reply.bulk(b"name");
        context.reply.bulk(&group.name);
        let (consumers, pending) =
            (context.keys.child_count(group.node), context.keys.pending_count(group.node));
        named_count(context, "consumers", consumers);
        named_count(context, "pending", pending);
        let last = context.keys.group_facts(group.node).0;
        named_id(context, "last-delivered-id", last);
        progress(context, node, &group);
    }
}

fn consumers(context: &mut Context<'_>, group: u64) {
    let (consumers, now) = (context.keys.children(group), context.keys.now_ms());
    context.reply.list(consumers.len());
    for one in consumers {
        context.reply.map(3);
        context.reply.bulk(b"name");
        context.reply.bulk(&one.name);
        let (pending, seen) = (context.keys.pending_count(one.node), context.keys.seen(one.node));
        named_count(context, "pending", pending);
        named_count(context, "idle", now.saturating_sub(seen));
    }
}

fn first_pending(context: &Context<'_>, node: u64, count: u64) -> Vec<Pending> {
    let mut all = Vec::new();
    context.keys.for_pending(node, Id::MIN, |one| {
        all.push(one);
        count == 0 || (all.len() as u64) < count
    });
    all
}

fn all_about(context: &mut Context<'_>, node: u64, count: u64) {
    context.reply.map(9);
    begin(context, node);
    context.reply.bulk(b"entries");
    reply_list(context, node, ALL, false, count);
    context.reply.bulk(b"groups");
    let groups = context.keys.children(node);
    context.reply.list(groups.len());
    for group in groups {
        context.reply.map(7);
        context.reply.bulk(b"name");
        context.reply.bulk(&group.name);
        let last = context.keys.group_facts(group.node).0;
        named_id(context, "last-delivered-id", last);
        progress(context, node, &group);
        let pending = context.keys.pending_count(group.node);
        named_count(context, "pel-count", pending);
        context.reply.bulk(b"pending");
        let pending = first_pending(context, group.node, count);
        context.reply.list(pending.len());
        for one in pending {
            context.reply.list(4);
            reply_id(&mut context.reply, one.id);
            context.reply.bulk(&context.keys.consumer_name(one.consumer));
            context.reply.count(one.time);
            context.reply.count(one.count);
        }
        context.reply.bulk(b"consumers");
        let consumers = context.keys.children(group.node);
        context.reply.list(consumers.len());
        consumers.iter().for_each(|one| all_about_consumer(context, one, count));
    }
}

fn all_about_consumer(context: &mut Context<'_>, one: &Child, count: u64) {
    context.reply.map(4);
    context.reply.bulk(b"name");
    context.reply.bulk(&one.name);
    let (pending, seen) = (context.keys.pending_count(one.node), context.keys.seen(one.node));
    named_count(context, "seen-time", seen);
    named_count(context, "pel-count", pending);
    context.reply.bulk(b"pending");
    let pending = first_pending(context, one.node, count);
    context.reply.list(pending.len());
    for one in pending {
        context.reply.list(3);
        reply_id(&mut context.reply, one.id);
        context.reply.count(one.time);
        context.reply.count(one.count);
    }
}
