//! Strings as rows of bits.

use super::arguments::{integer, integer_or_refusal};
use super::strings::{is_backwards, span, string};
use super::{Arguments, Context, Done, Refusal, SYNTAX, word};
use crate::keyspace::notice;

const OFFSET: Refusal = Refusal::Said("ERR bit offset is not an integer or out of range");

fn offset(argument: &[u8]) -> Result<usize, Refusal> {
    let offset = integer(argument).and_then(|at| usize::try_from(at).ok()).ok_or(OFFSET)?;
    if offset / 8 >= 512 << 20 { Err(OFFSET) } else { Ok(offset) }
}

fn bytes(context: &mut Context<'_>, key: &[u8]) -> Result<Vec<u8>, Refusal> {
    Ok(string(context, key)?.map(|found| context.keys.value(&found)).unwrap_or_default())
}

pub(crate) fn setbit(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let at = offset(args[2])?;
    let on = match args[3] {
        b"0" => false,
        b"1" => true,
        _ => return Err(Refusal::Said("ERR bit is not an integer or out of range")),
    };
    let found = string(context, args[1])?;
    let mut value = found.map(|found| context.keys.value(&found)).unwrap_or_default();
    let grows = value.len() <= at / 8;
    if grows {
        value.resize(at / 8 + 1, 0);
    }
    let mask = 0x80 >> (at % 8);
    let before = value[at / 8] & mask != 0;
    value[at / 8] = if on { value[at / 8] | mask } else { value[at / 8] & !mask };
    let changes = grows || before != on;
    // A string that is not kept as bytes yet is from now on.
    if changes || found.is_some_and(|found| !found.header.raw) {
        let expires = found.and_then(|found| found.header.expires);
        context.keys.put_raw(context.session.db, args[1], &value, expires)?;
    }
    if changes {
        context.notify(notice::STRING, "setbit", args[1]);
    }
    context.reply.integer(i64::from(before));
    Ok(())
}

pub(crate) fn getbit(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let at = offset(args[2])?;
    let found = string(context, args[1])?;
    let found = found.filter(|found| (at as u64) / 8 < found.header.value_len);
    let byte = found.map_or(0, |found| {
        let mut byte = Vec::new();
        context.keys.read_value(&found, at as u64 / 8, at as u64 / 8 + 1, &mut byte);
        byte[0]
    });
    context.reply.integer(i64::from(byte >> (7 - at % 8) & 1));
    Ok(())
}

/// Bits `from..to` of a value, from a range that counts bytes or bits.
fn bits(args: &Arguments<'_>, len: u64) -> Result<Option<(u64, u64)>, Refusal> {
    let (start, end) = (integer_or_refusal(args[0])?, integer_or_refusal(args[1])?);
    let by_bit = match args.get(2).map(|unit| word(unit)).as_deref() {
        None | Some("byte") => false,
        Some("bit") => true,
        Some(_) => return Err(SYNTAX),
    };
    Ok(if by_bit {
        span(start, end, len * 8)
    } else {
        span(start, end, len).map(|(from, to)| (from * 8, to * 8))
    })
}

fn is_set(value: &[u8], bit: u64) -> bool {
    value[(bit / 8) as usize] >> (7 - bit % 8) & 1 == 1
}

pub(crate) fn bitcount(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    if string(context, args[1])?.is_none() {
        context.reply.integer(0);
        return Ok(());
    }
    if args.len() == 3 || args.len() > 5 {
        return Err(SYNTAX);
    }
    let range = (args.len() > 2).then_some(&args[2..]);
    if let Some([start, end, ..]) = range {
        // An empty range from the end counts nothing, whatever its unit is called.
        let (start, end) = (integer_or_refusal(start)?, integer_or_refusal(end)?);
        if is_backwards(start, end) {
            context.reply.integer(0);
            return Ok(());
        }
    }
    let value = bytes(context, args[1])?;
    let span = match range {
        Some(range) => bits(range, value.len() as u64)?,
        None => Some((0, value.len() as u64 * 8)),
    };
    let count = span.map_or(0, |(from, to)| {
        let (first, last) = (from.next_multiple_of(8).min(to), (to / 8 * 8).max(from));
        let whole =
            if first < last { &value[first as usize / 8..last as usize / 8] } else { &[][..] };
        let edges =
            if first < last { (from..first).chain(last..to) } else { (from..to).chain(0..0) };
        whole.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
            + edges.filter(|bit| is_set(&value, *bit)).count() as u64
    });
    context.reply.count(count);
    Ok(())
}

pub(crate) fn bitpos(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let on = match args[2] {
        b"0" => false,
        b"1" => true,
        _ => return Err(Refusal::Said("ERR The bit argument must be 1 or 0.")),
    };
    if string(context, args[1])?.is_none() {
        context.reply.integer(if on { -1 } else { 0 });
        return Ok(());
    }
    if args.len() > 6 {
        return Err(SYNTAX);
    }
    let value = bytes(context, args[1])?;
    let whole = [args.get(3).copied().unwrap_or(b"0"), args.get(4).copied().unwrap_or(b"-1")];
    // The unit is looked at before the end is.
    integer_or_refusal(whole[0])?;
    if args.get(5).is_some_and(|unit| !matches!(word(unit).as_str(), "bit" | "byte")) {
        return Err(SYNTAX);
    }
    let mut range = whole.to_vec();
    range.extend(args.get(5));
    let span = bits(&range, value.len() as u64)?;
    let found = span.and_then(|(from, to)| {
        let mut at = from;
        while at < to {
            let byte = value[(at / 8) as usize];
            if at.is_multiple_of(8) && byte == if on { 0 } else { 0xff } {
                at += 8;
            } else if is_set(&value, at) == on {
                return Some(at);
            } else {
                at += 1;
            }
        }
        None
    });
    // A string is followed by zeros, unless its end was named.
    let behind = !on && args.len() < 5 && span.is_some();
    match found {
        Some(at) => context.reply.count(at),
        None if behind => context.reply.count(value.len() as u64 * 8),
        None => context.reply.integer(-1),
    }
    Ok(())
}

pub(crate) fn bitop(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let operation = word(args[1]);
    if !matches!(operation.as_str(), "and" | "or" | "xor" | "not") {
        return Err(SYNTAX);
    }
    if operation == "not" && args.len() != 4 {
        return Err(Refusal::Said("ERR BITOP NOT must be called with a single source key."));
    }
    // One source after the other: a long value may be named a thousand times.
    let mut result = bytes(context, args[3])?;
    if operation == "not" {
        result.iter_mut().for_each(|byte| *byte = !*byte);
    }
    for key in &args[4..] {
        let mut value = bytes(context, key)?;
        let len = value.len().max(result.len());
        value.resize(len, 0);
        result.resize(len, 0);
        for (byte, other) in result.iter_mut().zip(&value) {
            match operation.as_str() {
                "and" => *byte &= other,
                "or" => *byte |= other,
                _ => *byte ^= other,
            }
        }
    }
    let len = result.len();
    if len == 0 {
        context.remove_target(args[2]);
    } else {
        context.keys.put_raw(context.session.db, args[2], &result, None)?;
        context.notify(notice::STRING, "set", args[2]);
    }
    context.reply.count(len as u64);
    Ok(())
}
