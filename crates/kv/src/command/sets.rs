//! Sets.

use std::collections::HashSet;

use super::arguments::{integer, integer_or_refusal};
use super::strings::WRONG_TYPE;
use super::{Arguments, Context, Done, Refusal, SYNTAX, hashes, word};
use crate::format::entry::kind;
use crate::keyspace::{Found, notice};
use crate::planted::Planted;

/// The set of a key, if it is there.
fn set(context: &mut Context<'_>, key: &[u8]) -> Result<Option<Found>, Refusal> {
    match context.keys.get(context.session.db, key) {
        Some(found) if !matches!(found.header.kind, kind::SET | kind::SET_NODE) => Err(WRONG_TYPE),
        found => Ok(found),
    }
}

/// All members.
pub(crate) fn members(context: &Context<'_>, found: Option<&Found>) -> Vec<Vec<u8>> {
    let fields = found.map(|found| context.keys.fields(found)).unwrap_or_default();
    fields.into_iter().map(|(member, _)| member).collect()
}

fn reply_set(context: &mut Context<'_>, members: &[Vec<u8>]) {
    context.reply.set(members.len());
    members.iter().for_each(|member| context.reply.bulk(member));
}

fn add(context: &mut Context<'_>, key: &[u8], members: &[&[u8]]) -> Result<u64, Refusal> {
    let found = set(context, key)?;
    let mut new: Vec<(&[u8], &[u8])> = Vec::new();
    for member in members {
        if found.is_none_or(|found| context.keys.field(&found, member).is_none()) {
            new.push((member, b""));
        }
    }
    if new.is_empty() {
        return Ok(0);
    }
    let of = (found.as_ref(), kind::SET);
    let added = context.keys.set_fields(context.session.db, key, of, &new)?;
    context.notify(notice::SET, "sadd", key);
    Ok(added)
}

pub(crate) fn sadd(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let added = add(context, args[1], &args[2..])?;
    context.reply.count(added);
    Ok(())
}

fn remove(
    context: &mut Context<'_>,
    key: &[u8],
    found: &Found,
    members: &[&[u8]],
) -> Result<u64, Refusal> {
    Ok(context.keys.remove_fields(context.session.db, key, found, members)?)
}

pub(crate) fn srem(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let removed = match set(context, args[1])? {
        Some(found) => remove(context, args[1], &found, &args[2..])?,
        None => 0,
    };
    if removed > 0 {
        context.notify_taken(notice::SET, "srem", args[1]);
    }
    context.reply.count(removed);
    Ok(())
}

pub(crate) fn scard(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let count = set(context, args[1])?.map_or(0, |found| context.keys.field_count(&found));
    context.reply.count(count);
    Ok(())
}

fn has(context: &Context<'_>, found: Option<&Found>, member: &[u8]) -> bool {
    found.is_some_and(|found| context.keys.field(found, member).is_some())
}

pub(crate) fn sismember(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let found = set(context, args[1])?;
    let there = has(context, found.as_ref(), args[2]);
    context.reply.integer(i64::from(there));
    Ok(())
}

pub(crate) fn smismember(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let found = set(context, args[1])?;
    context.reply.list(args.len() - 2);
    for member in &args[2..] {
        let there = has(context, found.as_ref(), member);
        context.reply.integer(i64::from(there));
    }
    Ok(())
}

pub(crate) fn smembers(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let found = set(context, args[1])?;
    let all = members(context, found.as_ref());
    reply_set(context, &all);
    Ok(())
}

pub(crate) fn smove(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let moved = match set(context, args[1])? {
        None => false,
        Some(found) => {
            set(context, args[2])?;
            let there = has(context, Some(&found), args[3]);
            if there && args[1] != args[2] {
                remove(context, args[1], &found, &args[3..4])?;
                context.notify_taken(notice::SET, "srem", args[1]);
                if context.keys.heap().planted().is(Planted::MovedInTwo) {
                    context.keys.heap_mut().commit();
                }
                add(context, args[2], &args[3..4])?;
            }
            there
        }
    };
    context.reply.integer(i64::from(moved));
    Ok(())
}

pub(crate) fn spop(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let count = match args {
        [_, _] => None,
        [_, _, count] => Some(
            integer(count)
                .and_then(|count| usize::try_from(count).ok())
                .ok_or(Refusal::Said("ERR value is out of range, must be positive"))?,
        ),
        _ => return Err(SYNTAX),
    };
    let found = set(context, args[1])?;
    let Some(count) = count else {
        let one = found.and_then(|found| context.keys.random_field(&found));
        if let (Some(found), Some(one)) = (&found, &one) {
            remove(context, args[1], found, &[one])?;
            context.notify_taken(notice::SET, "spop", args[1]);
            context.shared.instead = Some([&b"SREM"[..], args[1], one].map(<[u8]>::to_vec).into());
        }
        context.reply.bulk_or_null(one.as_deref());
        return Ok(());
    };
    let mut all = members(context, found.as_ref());
    if count >= all.len() {
        if context.keys.remove(context.session.db, args[1]) {
            context.notify_taken(notice::SET, "spop", args[1]);
        }
        context.shared.instead = Some([&b"DEL"[..], args[1]].map(<[u8]>::to_vec).into());
        reply_set(context, &all);
        return Ok(());
    }
    fastrand::shuffle(&mut all);
    all.truncate(count);
    if let Some(found) = found.filter(|_| !all.is_empty()) {
        let names: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        remove(context, args[1], &found, &names)?;
        context.notify(notice::SET, "spop", args[1]);
        let words = [&b"SREM"[..], args[1]].into_iter().chain(names);
        context.shared.instead = Some(words.map(<[u8]>::to_vec).collect());
    }
    reply_set(context, &all);
    Ok(())
}

pub(crate) fn srandmember(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let count = match args {
        [_, _] => None,
        [_, _, count] => Some(integer_or_refusal(count)?),
        _ => return Err(SYNTAX),
    };
    if count == Some(i64::MIN) {
        return Err(Refusal::Said(
            "ERR value is out of range, value must between -9223372036854775807 and \
             9223372036854775807",
        ));
    }
    if count.is_some_and(|count| count < -hashes::RANDOM_MAX) {
        return Err(Refusal::Said("ERR value is out of range"));
    }
    let found = set(context, args[1])?;
    let Some(count) = count else {
        let one = found.and_then(|found| context.keys.random_field(&found));
        context.reply.bulk_or_null(one.as_deref());
        return Ok(());
    };
    let mut all = members(context, found.as_ref());
    if count < 0 && !all.is_empty() {
        let count = count.unsigned_abs() as usize;
        context.reply.list(count);
        (0..count).for_each(|_| context.reply.bulk(&all[fastrand::usize(..all.len())]));
        return Ok(());
    }
    fastrand::shuffle(&mut all);
    all.truncate(usize::try_from(count).unwrap_or(0));
    context.reply.list(all.len());
    all.iter().for_each(|member| context.reply.bulk(member));
    Ok(())
}

pub(crate) fn sscan(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    hashes::scan(context, args, set, |_| None)
}

/// What is made of several sets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Intersection,
    Union,
    Difference,
}

/// The members of the result, at most `limit`.
fn combine(
    context: &mut Context<'_>,
    keys: &[&[u8]],
    operation: Operation,
    limit: usize,
) -> Result<Vec<Vec<u8>>, Refusal> {
    let mut all = Vec::new();
    for key in keys {
        all.push(set(context, key)?);
    }
    if operation == Operation::Union {
        let mut seen = HashSet::new();
        for found in &all {
            seen.extend(members(context, found.as_ref()));
        }
        return Ok(seen.into_iter().collect());
    }
    let mut first = 0;
    if operation == Operation::Intersection {
        // The smallest one is looked through.
        let size =
            |found: &Option<Found>| found.map_or(0, |found| context.keys.field_count(&found));
        first = (0..all.len()).min_by_key(|at| size(&all[*at])).unwrap_or(0);
    }
    let stays = |member: &Vec<u8>| {
        (0..all.len()).filter(|at| *at != first).all(|at| {
            has(context, all[at].as_ref(), member) == (operation == Operation::Intersection)
        })
    };
    let candidates = members(context, all[first].as_ref()).into_iter();
    Ok(candidates.filter(stays).take(limit).collect())
}

fn reply_combined(context: &mut Context<'_>, keys: &[&[u8]], operation: Operation) -> Done {
    let result = combine(context, keys, operation, usize::MAX)?;
    reply_set(context, &result);
    Ok(())
}

fn store(context: &mut Context<'_>, args: &Arguments<'_>, operation: Operation) -> Done {
    let result = combine(context, &args[2..], operation, usize::MAX)?;
    if result.is_empty() {
        context.remove_target(args[1]);
    } else {
        context.keys.put_set(context.session.db, args[1], &result)?;
        let event = match operation {
            Operation::Intersection => "sinterstore",
            Operation::Union => "sunionstore",
            Operation::Difference => "sdiffstore",
        };
        context.notify(notice::SET, event, args[1]);
    }
    context.reply.count(result.len() as u64);
    Ok(())
}

pub(crate) fn sinter(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    reply_combined(context, &args[1..], Operation::Intersection)
}

pub(crate) fn sunion(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    reply_combined(context, &args[1..], Operation::Union)
}

pub(crate) fn sdiff(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    reply_combined(context, &args[1..], Operation::Difference)
}

pub(crate) fn sinterstore(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    store(context, args, Operation::Intersection)
}

pub(crate) fn sunionstore(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    store(context, args, Operation::Union)
}

pub(crate) fn sdiffstore(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    store(context, args, Operation::Difference)
}

/// `[LIMIT limit]`, of SINTERCARD and ZINTERCARD.
pub(crate) fn limit_of(options: &Arguments<'_>) -> Result<usize, Refusal> {
    let limit = match options {
        [] => 0,
        [name, limit] if word(name) == "limit" => integer(limit)
            .and_then(|limit| usize::try_from(limit).ok())
            .ok_or(Refusal::Said("ERR LIMIT can't be negative"))?,
        _ => return Err(SYNTAX),
    };
    Ok(if limit == 0 { usize::MAX } else { limit })
}

pub(crate) fn sintercard(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let count =
        integer(args[1]).and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
    let count = count.ok_or(Refusal::Said("ERR numkeys should be greater than 0"))?;
    let (keys, options) = args[2..]
        .split_at_checked(count)
        .ok_or(Refusal::Said("ERR Number of keys can't be greater than number of args"))?;
    let limit = limit_of(options)?;
    let result = combine(context, keys, Operation::Intersection, limit)?;
    context.reply.count(result.len() as u64);
    Ok(())
}
