//! Sorted sets: members and their scores. Ranges are in `range.rs`, what takes members away in
//! `pop.rs`, what is made of several in `combine.rs`, places on the earth in `geo.rs`.

pub(crate) mod combine;
pub(crate) mod geo;
mod geohash;
pub(crate) mod pop;
pub(crate) mod range;

use super::arguments::{integer_or_refusal, print_score};
use super::strings::WRONG_TYPE;
use super::{Arguments, Context, Done, Refusal, SYNTAX, hashes, word};
use crate::format::entry::kind;
use crate::keyspace::{Found, Scored, notice, order};
use crate::number::float;

const NOT_A_FLOAT: Refusal = Refusal::Said("ERR value is not a valid float");
const NOT_A_NUMBER: Refusal = Refusal::Said("ERR resulting score is not a number (NaN)");

/// The sorted set of a key, if it is there.
fn sorted(context: &mut Context<'_>, key: &[u8]) -> Result<Option<Found>, Refusal> {
    match context.keys.get(context.session.db, key) {
        Some(found) if !matches!(found.header.kind, kind::ZSET | kind::ZSET_NODE) => {
            Err(WRONG_TYPE)
        }
        found => Ok(found),
    }
}

/// Members, with or without their scores: pairs in RESP3, one after the other in RESP2.
fn reply_members(context: &mut Context<'_>, members: &[Scored], scores: bool) {
    let pairs = scores && context.reply.resp3;
    context.reply.list(members.len() * if scores && !pairs { 2 } else { 1 });
    for (member, score) in members {
        if pairs {
            context.reply.list(2);
        }
        context.reply.bulk(member);
        if scores {
            context.reply.double(*score);
        }
    }
}

/// Changes a sorted set and says how many members changed as `changes` has them.
fn change(
    context: &mut Context<'_>,
    key: &[u8],
    found: Option<&Found>,
    changes: &[(&[u8], Option<f64>)],
) -> Done {
    Ok(context.keys.change_scores(context.session.db, key, found, changes)?)
}

#[derive(Default)]
struct Options {
    only_new: bool,
    only_old: bool,
    only_greater: bool,
    only_less: bool,
    count_changed: bool,
    increment: bool,
}

pub(crate) fn zadd(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let mut options = Options::default();
    let mut at = 2;
    while let Some(option) = args.get(at) {
        match word(option).as_str() {
            "nx" => options.only_new = true,
            "xx" => options.only_old = true,
            "gt" => options.only_greater = true,
            "lt" => options.only_less = true,
            "ch" => options.count_changed = true,
            "incr" => options.increment = true,
            _ => break,
        }
        at += 1;
    }
    add(context, args[1], &args[at..], &options)
}

pub(crate) fn zincrby(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let options = Options { increment: true, ..Options::default() };
    add(context, args[1], &args[2..], &options)
}

fn add(context: &mut Context<'_>, key: &[u8], pairs: &[&[u8]], options: &Options) -> Done {
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(SYNTAX);
    }
    if options.only_new && options.only_old {
        return Err(Refusal::Said("ERR XX and NX options at the same time are not compatible"));
    }
    if options.only_greater && options.only_less
        || options.only_new && (options.only_greater || options.only_less)
    {
        return Err(Refusal::Said(
            "ERR GT, LT, and/or NX options at the same time are not compatible",
        ));
    }
    if options.increment && pairs.len() > 2 {
        return Err(Refusal::Said("ERR INCR option supports a single increment-element pair"));
    }
    let mut wanted = Vec::new();
    for pair in pairs.chunks_exact(2) {
        // Of the two zeros there is one only: + 0.0 makes it that.
        wanted.push((pair[1], float(pair[0]).ok_or(NOT_A_FLOAT)? + 0.0));
    }
    let found = sorted(context, key)?;
    let mut changes: Vec<(&[u8], Option<f64>)> = Vec::new();
    let (mut added, mut updated, mut last) = (0, 0, None);
    // What this command gave a member before counts for the next of the same name.
    let mut now = std::collections::HashMap::new();
    for (member, score) in wanted {
        let known = now.get(member).copied();
        let old = known.or_else(|| found.and_then(|found| context.keys.score(&found, member)));
        let score = match old {
            Some(_) if options.only_new => continue,
            None if options.only_old => continue,
            Some(old) if options.increment => old + score,
            _ => score,
        };
        if score.is_nan() {
            return Err(NOT_A_NUMBER);
        }
        if let Some(old) = old {
            if options.only_greater && score <= old || options.only_less && score >= old {
                continue;
            }
            updated += u64::from(score != old);
        } else {
            added += 1;
        }
        last = Some(score);
        now.insert(member, score);
        if old != Some(score) {
            changes.push((member, Some(score)));
        }
    }
    change(context, key, found.as_ref(), &changes)?;
    if added + updated > 0 {
        context.notify(notice::ZSET, if options.increment { "zincr" } else { "zadd" }, key);
    }
    match last {
        _ if !options.increment => {
            context.reply.count(if options.count_changed { added + updated } else { added });
        }
        Some(score) => context.reply.double(score),
        None => context.reply.null(),
    }
    Ok(())
}

pub(crate) fn zrem(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let Some(found) = sorted(context, args[1])? else {
        context.reply.integer(0);
        return Ok(());
    };
    let mut there: Vec<&[u8]> = args[2..].to_vec();
    there.retain(|member| context.keys.score(&found, member).is_some());
    there.sort_unstable();
    there.dedup();
    let changes: Vec<(&[u8], Option<f64>)> = there.iter().map(|member| (*member, None)).collect();
    change(context, args[1], Some(&found), &changes)?;
    if !changes.is_empty() {
        context.notify_taken(notice::ZSET, "zrem", args[1]);
    }
    context.reply.count(changes.len() as u64);
    Ok(())
}

pub(crate) fn zscore(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let score = sorted(context, args[1])?.and_then(|found| context.keys.score(&found, args[2]));
    context.reply.double_or_null(score);
    Ok(())
}

pub(crate) fn zmscore(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let found = sorted(context, args[1])?;
    context.reply.list(args.len() - 2);
    for member in &args[2..] {
        let score = found.and_then(|found| context.keys.score(&found, member));
        context.reply.double_or_null(score);
    }
    Ok(())
}

pub(crate) fn zcard(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let count = sorted(context, args[1])?.map_or(0, |found| context.keys.field_count(&found));
    context.reply.count(count);
    Ok(())
}

fn rank(context: &mut Context<'_>, args: &Arguments<'_>, from_end: bool) -> Done {
    let found = sorted(context, args[1])?;
    let scored = found.and_then(|found| Some((found, context.keys.score(&found, args[2])?)));
    let Some((found, score)) = scored else {
        context.reply.null();
        return Ok(());
    };
    let rank =
        context.keys.rank(&found, |member, of| order((member, of), (args[2], score)).is_lt());
    let count = context.keys.field_count(&found);
    context.reply.count(if from_end { count.saturating_sub(rank + 1) } else { rank });
    Ok(())
}

pub(crate) fn zrank(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    rank(context, args, false)
}

pub(crate) fn zrevrank(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    rank(context, args, true)
}

pub(crate) fn zscan(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    hashes::scan(context, args, sorted, |value| {
        let score = f64::from_le_bytes(*value.first_chunk()?);
        Some(print_score(score).into_bytes())
    })
}

pub(crate) fn zrandmember(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let (count, scores) = match args {
        [_, _] => (None, false),
        [_, _, count] => (Some(integer_or_refusal(count)?), false),
        [_, _, count, option] if word(option) == "withscores" => {
            (Some(integer_or_refusal(count)?), true)
        }
        _ => return Err(SYNTAX),
    };
    if let Some(count) = count {
        if count == i64::MIN {
            return Err(Refusal::Said(
                "ERR value is out of range, value must between -9223372036854775807 and \
                 9223372036854775807",
            ));
        }
        if count < -hashes::RANDOM_MAX || scores && count > i64::MAX / 2 {
            return Err(Refusal::Said("ERR value is out of range"));
        }
    }
    let found = sorted(context, args[1])?;
    let Some(count) = count else {
        let one = found.and_then(|found| context.keys.random_field(&found));
        context.reply.bulk_or_null(one.as_deref());
        return Ok(());
    };
    let mut all = found.map(|found| context.keys.scored(&found, 0, u64::MAX)).unwrap_or_default();
    if count >= 0 || all.is_empty() {
        fastrand::shuffle(&mut all);
        all.truncate(usize::try_from(count).unwrap_or(0));
        reply_members(context, &all, scores);
        return Ok(());
    }
    let pairs = scores && context.reply.resp3;
    let count = count.unsigned_abs() as usize;
    context.reply.list(count.saturating_mul(if scores && !pairs { 2 } else { 1 }));
    for _ in 0..count {
        let (member, score) = &all[fastrand::usize(..all.len())];
        if pairs {
            context.reply.list(2);
        }
        context.reply.bulk(member);
        if scores {
            context.reply.double(*score);
        }
    }
    Ok(())
}
