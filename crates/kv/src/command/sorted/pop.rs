//! Taking members from an end of a sorted set, at once or when there are some.

use super::super::arguments::integer;
use super::super::blocking::{self, Popped, Waits, from_an_end, wait_for};
use super::super::keys::Words;
use super::super::{Arguments, Context, Done, Refusal, SYNTAX, word};
use super::{change, reply_members, sorted};
use crate::keyspace::{Found, Scored, notice};

/// Takes up to `count` members from the end with the lowest or the highest scores.
fn take(
    context: &mut Context<'_>,
    key: &[u8],
    found: &Found,
    count: u64,
    lowest: bool,
) -> Result<Vec<Scored>, Refusal> {
    let len = context.keys.field_count(found);
    let count = count.min(len);
    let (from, to) = if lowest { (0, count) } else { (len - count, len) };
    let mut members = context.keys.scored(found, from, to);
    let changes: Vec<(&[u8], Option<f64>)> =
        members.iter().map(|(member, _)| (member.as_slice(), None)).collect();
    change(context, key, Some(found), &changes)?;
    if count > 0 {
        context.notify_taken(notice::ZSET, if lowest { "zpopmin" } else { "zpopmax" }, key);
    }
    if !lowest {
        members.reverse();
    }
    Ok(members)
}

fn pop(context: &mut Context<'_>, args: &Arguments<'_>, lowest: bool) -> Done {
    let count = match args {
        [_, _] => None,
        [_, _, count] => Some(
            integer(count)
                .and_then(|count| u64::try_from(count).ok())
                .ok_or(Refusal::Said("ERR value is out of range, must be positive"))?,
        ),
        _ => return Err(SYNTAX),
    };
    let members = match sorted(context, args[1])? {
        Some(found) => take(context, args[1], &found, count.unwrap_or(1), lowest)?,
        None => Vec::new(),
    };
    match (members.as_slice(), count) {
        // One that was not counted is no pair of its own.
        ([(member, score)], None) => {
            context.reply.list(2);
            context.reply.bulk(member);
            context.reply.double(*score);
        }
        (members, _) => reply_members(context, members, true),
    }
    Ok(())
}

pub(crate) fn zpopmin(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    pop(context, args, true)
}

pub(crate) fn zpopmax(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    pop(context, args, false)
}

/// Takes members from the first of these sorted sets that has some.
fn take_first<'a>(
    context: &mut Context<'_>,
    keys: Words<'a>,
    count: u64,
    lowest: bool,
) -> Result<Option<Popped<'a, Scored>>, Refusal> {
    let some = |context: &mut Context<'_>, key: &[u8], found: &Found| {
        take(context, key, found, count, lowest)
    };
    blocking::take_first(context, keys, sorted, some)
}

fn pop_or_wait(context: &mut Context<'_>, args: &Arguments<'_>, lowest: bool) -> Done {
    let waits = Waits::of(args[args.len() - 1])?;
    let keys = &args[1..args.len() - 1];
    match take_first(context, keys, 1, lowest)? {
        Some((key, members)) => {
            context.reply.list(3);
            context.reply.bulk(key);
            for (member, score) in members.iter().take(1) {
                context.reply.bulk(member);
                context.reply.double(*score);
            }
        }
        None if context.shared.in_exec => context.reply.null_list(),
        None => wait_for(context, keys, args, waits),
    }
    Ok(())
}

pub(crate) fn bzpopmin(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    pop_or_wait(context, args, true)
}

pub(crate) fn bzpopmax(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    pop_or_wait(context, args, false)
}

/// Whether MIN, and not MAX, names the end.
fn is_lowest(argument: &[u8]) -> Result<bool, Refusal> {
    match word(argument).as_str() {
        "min" => Ok(true),
        "max" => Ok(false),
        _ => Err(SYNTAX),
    }
}

fn reply_popped(context: &mut Context<'_>, popped: Option<Popped<'_, Scored>>) {
    let Some((key, members)) = popped else { return context.reply.null_list() };
    context.reply.list(2);
    context.reply.bulk(key);
    context.reply.list(members.len());
    for (member, score) in &members {
        context.reply.list(2);
        context.reply.bulk(member);
        context.reply.double(*score);
    }
}

pub(crate) fn zmpop(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let (keys, lowest, count) = from_an_end(&args[1..], is_lowest)?;
    let popped = take_first(context, keys, count, lowest)?;
    reply_popped(context, popped);
    Ok(())
}

pub(crate) fn bzmpop(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let waits = Waits::of(args[1])?;
    let (keys, lowest, count) = from_an_end(&args[2..], is_lowest)?;
    match take_first(context, keys, count, lowest)? {
        None if !context.shared.in_exec => wait_for(context, keys, args, waits),
        popped => reply_popped(context, popped),
    }
    Ok(())
}
