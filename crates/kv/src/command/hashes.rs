//! Hashes.

use super::arguments::{integer, integer_or_refusal};
use super::strings::{WRONG_TYPE, sum};
use super::{Arguments, Context, Done, Refusal, SYNTAX, glob, word, wrong_count};
use crate::format::entry::kind;
use crate::keyspace::{Found, notice};
use crate::number::{Extended, Long, long};

/// The most fields or members that HRANDFIELD and its sisters return when the same one may come
/// again: Redis makes as many as are asked for, until its memory is full.
pub(crate) const RANDOM_MAX: i64 = 1 << 24;

/// The hash of a key, if it is there.
fn hash(context: &mut Context<'_>, key: &[u8]) -> Result<Option<Found>, Refusal> {
    match context.keys.get(context.session.db, key) {
        Some(found) if !matches!(found.header.kind, kind::HASH | kind::HASH_NODE) => {
            Err(WRONG_TYPE)
        }
        found => Ok(found),
    }
}

fn field(context: &mut Context<'_>, args: &Arguments<'_>) -> Result<Option<Vec<u8>>, Refusal> {
    Ok(hash(context, args[1])?.and_then(|found| context.keys.field(&found, args[2])))
}

fn put(context: &mut Context<'_>, args: &Arguments<'_>, name: &str) -> Result<u64, Refusal> {
    if !args.len().is_multiple_of(2) {
        return Err(wrong_count(name));
    }
    let found = hash(context, args[1])?;
    let pairs: Vec<(&[u8], &[u8])> =
        args[2..].chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let of = (found.as_ref(), kind::HASH);
    let added = context.keys.set_fields(context.session.db, args[1], of, &pairs)?;
    context.notify(notice::HASH, "hset", args[1]);
    Ok(added)
}

pub(crate) fn hset(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let added = put(context, args, "hset")?;
    context.reply.count(added);
    Ok(())
}

pub(crate) fn hmset(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    put(context, args, "hmset")?;
    context.reply.ok();
    Ok(())
}

pub(crate) fn hsetnx(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let there = field(context, args)?.is_some();
    if !there {
        put(context, args, "hsetnx")?;
    }
    context.reply.integer(i64::from(!there));
    Ok(())
}

pub(crate) fn hget(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let value = field(context, args)?;
    context.reply.bulk_or_null(value.as_deref());
    Ok(())
}

pub(crate) fn hmget(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let found = hash(context, args[1])?;
    context.reply.list(args.len() - 2);
    for name in &args[2..] {
        let value = found.and_then(|found| context.keys.field(&found, name));
        context.reply.bulk_or_null(value.as_deref());
    }
    Ok(())
}

pub(crate) fn hdel(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let removed = match hash(context, args[1])? {
        Some(found) => {
            context.keys.remove_fields(context.session.db, args[1], &found, &args[2..])?
        }
        None => 0,
    };
    if removed > 0 {
        context.notify_taken(notice::HASH, "hdel", args[1]);
    }
    context.reply.count(removed);
    Ok(())
}

pub(crate) fn hlen(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let count = hash(context, args[1])?.map_or(0, |found| context.keys.field_count(&found));
    context.reply.count(count);
    Ok(())
}

pub(crate) fn hexists(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let there = field(context, args)?.is_some();
    context.reply.integer(i64::from(there));
    Ok(())
}

pub(crate) fn hstrlen(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let len = field(context, args)?.map_or(0, |value| value.len() as u64);
    context.reply.count(len);
    Ok(())
}

/// Names, values or both of all fields.
fn all(context: &mut Context<'_>, key: &[u8], names: bool, values: bool) -> Done {
    let fields = hash(context, key)?.map(|found| context.keys.fields(&found)).unwrap_or_default();
    if names && values {
        context.reply.map(fields.len());
    } else {
        context.reply.list(fields.len());
    }
    for (name, value) in &fields {
        if names {
            context.reply.bulk(name);
        }
        if values {
            context.reply.bulk(value);
        }
    }
    Ok(())
}

pub(crate) fn hgetall(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    all(context, args[1], true, true)
}

pub(crate) fn hkeys(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    all(context, args[1], true, false)
}

pub(crate) fn hvals(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    all(context, args[1], false, true)
}

fn set_one(context: &mut Context<'_>, args: &Arguments<'_>, value: &[u8]) -> Done {
    let found = hash(context, args[1])?;
    context.keys.set_fields(
        context.session.db,
        args[1],
        (found.as_ref(), kind::HASH),
        &[(args[2], value)],
    )?;
    Ok(())
}

pub(crate) fn hincrby(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let by = integer_or_refusal(args[3])?;
    let old = match field(context, args)? {
        Some(value) => integer(&value).ok_or(Refusal::Said("ERR hash value is not an integer"))?,
        None => 0,
    };
    let new =
        old.checked_add(by).ok_or(Refusal::Said("ERR increment or decrement would overflow"))?;
    set_one(context, args, new.to_string().as_bytes())?;
    context.notify(notice::HASH, "hincrby", args[1]);
    context.reply.integer(new);
    Ok(())
}

pub(crate) fn hincrbyfloat(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let by = long(args[3]).ok_or(Refusal::Said("ERR value is not a valid float"))?;
    if by == Long::Infinite {
        return Err(Refusal::Said("ERR value is NaN or Infinity"));
    }
    let old = match field(context, args)? {
        Some(value) => long(&value).ok_or(Refusal::Said("ERR hash value is not a float"))?,
        None => Long::Finite(Extended::default()),
    };
    let text = sum(old, by)?.print();
    set_one(context, args, text.as_bytes())?;
    context.notify(notice::HASH, "hincrbyfloat", args[1]);
    context.reply.bulk(text.as_bytes());
    Ok(())
}

pub(crate) fn hscan(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    scan(context, args, hash, |value| Some(value.to_vec()))
}

/// One step of a walk over the fields or members of what `find` finds; `shown` is what is said of a
/// value.
pub(crate) fn scan(
    context: &mut Context<'_>,
    args: &Arguments<'_>,
    find: fn(&mut Context<'_>, &[u8]) -> Result<Option<Found>, Refusal>,
    shown: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> Done {
    let cursor = std::str::from_utf8(args[2]).ok().and_then(|text| text.parse::<u64>().ok());
    let mut cursor = cursor.ok_or(Refusal::Said("ERR invalid cursor"))?;
    let Some(found) = find(context, args[1])? else {
        context.reply.list(2);
        context.reply.bulk(b"0");
        context.reply.list(0);
        return Ok(());
    };
    let (mut count, mut pattern) = (10, None);
    for option in args[3..].chunks(2) {
        match option {
            [name, argument] if word(name) == "count" => count = integer_or_refusal(argument)?,
            [name, argument] if word(name) == "match" => pattern = Some(*argument),
            _ => return Err(SYNTAX),
        }
    }
    if count < 1 {
        return Err(SYNTAX);
    }
    let mut fields = Vec::new();
    for _ in 0..count.saturating_mul(10) {
        let (next, some) = context.keys.scan_fields(&found, cursor);
        cursor = next;
        fields.extend(some);
        if cursor == 0 || fields.len() as i64 >= count {
            break;
        }
    }
    fields.retain(|(name, _)| pattern.is_none_or(|pattern| glob(pattern, name, false)));
    let parts: Vec<Vec<u8>> = fields
        .into_iter()
        .flat_map(|(name, value)| std::iter::once(name).chain(shown(&value)))
        .collect();
    context.reply.list(2);
    context.reply.bulk(cursor.to_string().as_bytes());
    context.reply.list(parts.len());
    parts.iter().for_each(|part| context.reply.bulk(part));
    Ok(())
}

pub(crate) fn hrandfield(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let (count, values) = match args {
        [_, _] => (None, false),
        [_, _, count] => (Some(integer_or_refusal(count)?), false),
        [_, _, count, option] if word(option) == "withvalues" => {
            (Some(integer_or_refusal(count)?), true)
        }
        _ => return Err(SYNTAX),
    };
    if count.is_some_and(|count| !(-RANDOM_MAX..=i64::MAX / 2).contains(&count)) {
        return Err(Refusal::Said("ERR value is out of range"));
    }
    let mut fields =
        hash(context, args[1])?.map(|found| context.keys.fields(&found)).unwrap_or_default();
    let Some(count) = count else {
        let one = fastrand::choice(&fields).map(|(name, _)| name.as_slice());
        context.reply.bulk_or_null(one);
        return Ok(());
    };
    let again = count < 0;
    let chosen = match usize::try_from(count.unsigned_abs()) {
        _ if fields.is_empty() => 0,
        Ok(count) if again => count,
        Ok(count) => count.min(fields.len()),
        Err(_) => fields.len(),
    };
    fastrand::shuffle(&mut fields);
    let nested = values && context.reply.resp3;
    context.reply.list(chosen * if values && !nested { 2 } else { 1 });
    for number in 0..chosen {
        let (name, value) = &fields[if again { fastrand::usize(..fields.len()) } else { number }];
        if nested {
            context.reply.list(2);
        }
        context.reply.bulk(name);
        if values {
            context.reply.bulk(value);
        }
    }
    Ok(())
}
