//! Strings.

use super::arguments::{expiry, integer_or_refusal};
use super::{Arguments, Context, Done, Refusal, SYNTAX, word, wrong_count};
use crate::format::entry::{LENGTH_MAX, kind};
use crate::keyspace::{Found, notice};
use crate::number::{Extended, Long, long};

pub(crate) const WRONG_TYPE: Refusal =
    Refusal::Said("WRONGTYPE Operation against a key holding the wrong kind of value");
const TOO_LONG: Refusal =
    Refusal::Said("ERR string exceeds maximum allowed size (proto-max-bulk-len)");

/// The string of a key, if it is there.
pub(crate) fn string(context: &mut Context<'_>, key: &[u8]) -> Result<Option<Found>, Refusal> {
    let found = context.keys.get(context.session.db, key);
    match found {
        Some(found) if found.header.kind != kind::STRING => Err(WRONG_TYPE),
        found => Ok(found),
    }
}

pub(super) fn value(context: &mut Context<'_>, key: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
    Ok(string(context, key)?.map(|found| context.keys.value(&found)))
}

/// Puts a string.
pub(crate) fn put(
    context: &mut Context<'_>,
    key: &[u8],
    value: &[u8],
    expires: Option<u64>,
) -> Done {
    if value.len() as u64 > LENGTH_MAX {
        return Err(TOO_LONG);
    }
    Ok(context.keys.put(context.session.db, key, kind::STRING, value, expires)?)
}

fn reply_value(context: &mut Context<'_>, found: Option<&Found>) {
    match found {
        Some(found) => {
            let keys = &context.keys;
            let len = found.header.value_len;
            context.reply.bulk_of(len, |out| keys.read_value(found, 0, len, out));
        }
        None => context.reply.null(),
    }
}

pub(crate) fn get(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let found = string(context, args[1])?;
    reply_value(context, found.as_ref());
    Ok(())
}

/// A positive time from an argument: when it is.
fn time(context: &Context<'_>, name: &str, option: &str, argument: &[u8]) -> Result<u64, Refusal> {
    let now = context.keys.now_ms();
    let (unit, base) = match option {
        "ex" => (1000, now),
        "px" => (1, now),
        "exat" => (1000, 0),
        _ => (1, 0),
    };
    let amount = integer_or_refusal(argument)?;
    let invalid = || Refusal::Words(format!("ERR invalid expire time in '{name}' command"));
    if amount <= 0 {
        return Err(invalid());
    }
    u64::try_from(expiry(amount, unit, base, name)?).map_err(|_| invalid())
}

pub(crate) fn set(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let (mut only_new, mut only_old, mut keep, mut get) = (false, false, false, false);
    let mut expires = None;
    let mut at = 3;
    while at < args.len() {
        match word(args[at]).as_str() {
            "nx" if !only_old => only_new = true,
            "xx" if !only_new => only_old = true,
            "keepttl" if expires.is_none() => keep = true,
            "get" => get = true,
            option @ ("ex" | "px" | "exat" | "pxat")
                if expires.is_none() && !keep && at + 1 < args.len() =>
            {
                at += 1;
                expires = Some(time(context, "set", option, args[at])?);
            }
            _ => return Err(SYNTAX),
        }
        at += 1;
    }
    let old = if only_new || only_old || keep || get {
        context.keys.get(context.session.db, args[1])
    } else {
        None
    };
    if get && old.is_some_and(|old| old.header.kind != kind::STRING) {
        return Err(WRONG_TYPE);
    }
    if get {
        reply_value(context, old.as_ref());
        if old.is_none() {
            context.notify(notice::MISS, "keymiss", args[1]);
        }
    }
    if only_new && old.is_some() || only_old && old.is_none() {
        if !get {
            context.reply.null();
        }
        return Ok(());
    }
    let timed = expires.is_some();
    if let Some(old) = old.filter(|_| keep) {
        expires = old.header.expires;
    }
    put(context, args[1], args[2], expires)?;
    context.notify(notice::STRING, "set", args[1]);
    if timed {
        context.notify(notice::GENERIC, "expire", args[1]);
    }
    // A primary says itself that a key is gone, maybe after it made it persist.
    if !context.keys.for_primary && expires.is_some_and(|at| at <= context.keys.now_ms()) {
        context.keys.remove(context.session.db, args[1]);
    }
    if !get {
        context.reply.ok();
    }
    Ok(())
}

pub(crate) fn setnx(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let there = context.keys.get(context.session.db, args[1]).is_some();
    if !there {
        put(context, args[1], args[2], None)?;
        context.notify(notice::STRING, "set", args[1]);
    }
    context.reply.integer(i64::from(!there));
    Ok(())
}

pub(crate) fn setex(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let expires = time(context, "setex", "ex", args[2])?;
    set_timed(context, args, expires)
}

pub(crate) fn psetex(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let expires = time(context, "psetex", "px", args[2])?;
    set_timed(context, args, expires)
}

fn set_timed(context: &mut Context<'_>, args: &Arguments<'_>, expires: u64) -> Done {
    put(context, args[1], args[3], Some(expires))?;
    context.notify(notice::STRING, "set", args[1]);
    context.notify(notice::GENERIC, "expire", args[1]);
    context.reply.ok();
    Ok(())
}

pub(crate) fn getset(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let old = string(context, args[1])?;
    reply_value(context, old.as_ref());
    put(context, args[1], args[2], None)?;
    context.notify(notice::STRING, "set", args[1]);
    Ok(())
}

pub(crate) fn getdel(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let found = string(context, args[1])?;
    reply_value(context, found.as_ref());
    if found.is_some() {
        context.keys.remove(context.session.db, args[1]);
        context.notify(notice::GENERIC, "del", args[1]);
    }
    Ok(())
}

pub(crate) fn getex(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let option = args.get(2).map(|option| word(option));
    match (option.as_deref(), args.len()) {
        (None, _) | (Some("persist"), 3) | (Some("ex" | "px" | "exat" | "pxat"), 4) => {}
        _ => return Err(SYNTAX),
    }
    let Some(found) = string(context, args[1])? else {
        context.reply.null();
        return Ok(());
    };
    let expires = match option.as_deref() {
        None => found.header.expires,
        Some("persist") => None,
        Some(option) => Some(time(context, "getex", option, args[3])?),
    };
    reply_value(context, Some(&found));
    if expires.is_some_and(|at| at <= context.keys.now_ms()) {
        context.keys.remove(context.session.db, args[1]);
        context.notify(notice::GENERIC, "del", args[1]);
        return Ok(());
    }
    if expires != found.header.expires {
        context.keys.set_expiry(context.session.db, args[1], &found, expires);
    }
    match (option, expires) {
        (Some(_), Some(_)) => context.notify(notice::GENERIC, "expire", args[1]),
        (Some(_), None) if found.header.expires.is_some() => {
            context.notify(notice::GENERIC, "persist", args[1]);
        }
        _ => {}
    }
    Ok(())
}

pub(crate) fn mget(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    context.reply.list(args.len() - 1);
    for key in &args[1..] {
        let found = context.keys.get(context.session.db, key);
        let found = found.filter(|found| found.header.kind == kind::STRING);
        reply_value(context, found.as_ref());
    }
    Ok(())
}

fn put_pairs(context: &mut Context<'_>, pairs: &Arguments<'_>) -> Done {
    for pair in pairs.chunks_exact(2) {
        put(context, pair[0], pair[1], None)?;
        context.notify(notice::STRING, "set", pair[0]);
    }
    Ok(())
}

pub(crate) fn mset(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    if args.len().is_multiple_of(2) {
        return Err(wrong_count("mset"));
    }
    put_pairs(context, &args[1..])?;
    context.reply.ok();
    Ok(())
}

pub(crate) fn msetnx(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    if args.len().is_multiple_of(2) {
        return Err(wrong_count("msetnx"));
    }
    let db = context.session.db;
    let there = args[1..].iter().step_by(2).any(|key| context.keys.get(db, key).is_some());
    if !there {
        put_pairs(context, &args[1..])?;
    }
    context.reply.integer(i64::from(!there));
    Ok(())
}

pub(crate) fn strlen(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let len = string(context, args[1])?.map_or(0, |found| found.header.value_len);
    context.reply.count(len);
    Ok(())
}

pub(crate) fn append(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let len = match string(context, args[1])? {
        Some(found) => {
            let len = found.header.value_len + args[2].len() as u64;
            if len > LENGTH_MAX {
                return Err(TOO_LONG);
            }
            context.keys.append(context.session.db, args[1], &found, args[2])?;
            len
        }
        None => {
            put(context, args[1], args[2], None)?;
            args[2].len() as u64
        }
    };
    context.notify(notice::STRING, "append", args[1]);
    context.reply.count(len);
    Ok(())
}

/// The bytes from `start` to `end`, both counted from the end if negative, of `len`.
pub(crate) fn span(start: i64, end: i64, len: u64) -> Option<(u64, u64)> {
    let len = len as i64;
    let from = if start < 0 { len.saturating_add(start).max(0) } else { start };
    let to = if end < 0 { len.saturating_add(end).max(0) } else { end }.min(len - 1);
    (from <= to && len > 0).then(|| (from as u64, to as u64 + 1))
}

/// Whether a range is empty because both of its ends count from the end.
pub(crate) fn is_backwards(start: i64, end: i64) -> bool {
    start < 0 && end < 0 && start > end
}

pub(crate) fn getrange(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let (start, end) = (integer_or_refusal(args[2])?, integer_or_refusal(args[3])?);
    let found = string(context, args[1])?;
    let part = found
        .filter(|_| !is_backwards(start, end))
        .and_then(|found| span(start, end, found.header.value_len).map(|span| (found, span)));
    match part {
        Some((found, (from, to))) => {
            let keys = &context.keys;
            context.reply.bulk_of(to - from, |out| keys.read_value(&found, from, to, out));
        }
        None => context.reply.bulk(b""),
    }
    Ok(())
}

pub(crate) fn setrange(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let offset = integer_or_refusal(args[2])?;
    let Ok(offset) = usize::try_from(offset) else {
        return Err(Refusal::Said("ERR offset is out of range"));
    };
    let found = string(context, args[1])?;
    if args[3].is_empty() {
        context.reply.count(found.map_or(0, |found| found.header.value_len));
        return Ok(());
    }
    let end = offset.saturating_add(args[3].len());
    if end as u64 > LENGTH_MAX {
        return Err(TOO_LONG);
    }
    let mut value = found.map_or_else(Vec::new, |found| context.keys.value(&found));
    if value.len() < end {
        value.resize(end, 0);
    }
    value[offset..end].copy_from_slice(args[3]);
    let expires = found.and_then(|found| found.header.expires);
    context.keys.put_raw(context.session.db, args[1], &value, expires)?;
    context.notify(notice::STRING, "setrange", args[1]);
    context.reply.count(value.len() as u64);
    Ok(())
}

fn add(context: &mut Context<'_>, key: &[u8], by: i64) -> Done {
    let found = string(context, key)?;
    let old = match &found {
        Some(found) if found.header.value_len <= 20 => {
            integer_or_refusal(&context.keys.value(found))?
        }
        Some(_) => return Err(Refusal::Said("ERR value is not an integer or out of range")),
        None => 0,
    };
    let new =
        old.checked_add(by).ok_or(Refusal::Said("ERR increment or decrement would overflow"))?;
    let expires = found.and_then(|found| found.header.expires);
    put(context, key, new.to_string().as_bytes(), expires)?;
    context.notify(notice::STRING, "incrby", key);
    context.reply.integer(new);
    Ok(())
}

pub(crate) fn incr(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    add(context, args[1], 1)
}

pub(crate) fn decr(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    add(context, args[1], -1)
}

pub(crate) fn incrby(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    add(context, args[1], integer_or_refusal(args[2])?)
}

pub(crate) fn decrby(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let by = integer_or_refusal(args[2])?
        .checked_neg()
        .ok_or(Refusal::Said("ERR decrement would overflow"))?;
    add(context, args[1], by)
}

/// The sum of a number that is there and one that is given, of which neither is infinite.
pub(crate) fn sum(old: Long, by: Long) -> Result<Extended, Refusal> {
    let sum = match (old, by) {
        (Long::Finite(old), Long::Finite(by)) => old.plus(by),
        _ => None,
    };
    sum.ok_or(Refusal::Said("ERR increment would produce NaN or Infinity"))
}

pub(crate) fn incrbyfloat(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    const NOT_A_FLOAT: Refusal = Refusal::Said("ERR value is not a valid float");
    let found = string(context, args[1])?;
    let old = match &found {
        Some(found) => long(&context.keys.value(found)).ok_or(NOT_A_FLOAT)?,
        None => Long::Finite(Extended::default()),
    };
    let text = sum(old, long(args[2]).ok_or(NOT_A_FLOAT)?)?.print();
    let expires = found.and_then(|found| found.header.expires);
    put(context, args[1], text.as_bytes(), expires)?;
    context.notify(notice::STRING, "incrbyfloat", args[1]);
    context.reply.bulk(text.as_bytes());
    Ok(())
}
