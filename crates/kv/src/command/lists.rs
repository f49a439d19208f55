//! Lists.

use super::arguments::{integer, integer_or_refusal};
use super::blocking::{self, Popped, Waits, from_an_end, wait_for};
use super::keys::Words;
use super::strings::WRONG_TYPE;
use super::{Arguments, Context, Done, Refusal, SYNTAX, word, wrong_count};
use crate::format::entry::kind;
use crate::keyspace::{Found, notice};

/// An end of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

impl Side {
    /// The event of a push.
    fn pushed(self) -> &'static str {
        if self == Side::Left { "lpush" } else { "rpush" }
    }

    /// The event of a pop.
    fn popped(self) -> &'static str {
        if self == Side::Left { "lpop" } else { "rpop" }
    }

    fn of(argument: &[u8]) -> Result<Side, Refusal> {
        match word(argument).as_str() {
            "left" => Ok(Side::Left),
            "right" => Ok(Side::Right),
            _ => Err(SYNTAX),
        }
    }
}

/// The list of a key, if it is there.
fn list(context: &mut Context<'_>, key: &[u8]) -> Result<Option<Found>, Refusal> {
    match context.keys.get(context.session.db, key) {
        Some(found) if !matches!(found.header.kind, kind::LIST | kind::LIST_NODE) => {
            Err(WRONG_TYPE)
        }
        found => Ok(found),
    }
}

fn add(
    context: &mut Context<'_>,
    key: &[u8],
    values: &[&[u8]],
    side: Side,
) -> Result<u64, Refusal> {
    let found = list(context, key)?;
    let len = found.map_or(0, |found| context.keys.list_len(&found));
    let front = side == Side::Left;
    context.keys.insert_in_list(context.session.db, key, found.as_ref(), len, front, values)?;
    context.notify(notice::LIST, side.pushed(), key);
    Ok(len + values.len() as u64)
}

fn push(context: &mut Context<'_>, args: &Arguments<'_>, side: Side, only_old: bool) -> Done {
    let len = match list(context, args[1])? {
        None if only_old => 0,
        _ => add(context, args[1], &args[2..], side)?,
    };
    context.reply.count(len);
    Ok(())
}

pub(crate) fn lpush(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    push(context, args, Side::Left, false)
}

pub(crate) fn rpush(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    push(context, args, Side::Right, false)
}

pub(crate) fn lpushx(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    push(context, args, Side::Left, true)
}

pub(crate) fn rpushx(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    push(context, args, Side::Right, true)
}

/// Takes up to `count` elements from an end, the outermost first.
fn take(
    context: &mut Context<'_>,
    key: &[u8],
    found: &Found,
    count: u64,
    side: Side,
) -> Result<Vec<Vec<u8>>, Refusal> {
    let elements = remove(context, key, found, count, side)?;
    if !elements.is_empty() {
        context.notify_taken(notice::LIST, side.popped(), key);
    }
    Ok(elements)
}

/// The same, and whoever calls says what happened.
fn remove(
    context: &mut Context<'_>,
    key: &[u8],
    found: &Found,
    count: u64,
    side: Side,
) -> Result<Vec<Vec<u8>>, Refusal> {
    let len = context.keys.list_len(found);
    let (from, to) = match side {
        Side::Left => (0, count.min(len)),
        Side::Right => (len.saturating_sub(count), len),
    };
    let mut elements = context.keys.elements(found, from, to);
    if side == Side::Right {
        elements.reverse();
    }
    let places: Vec<u64> = (from..to).collect();
    context.keys.remove_from_list(context.session.db, key, found, &places)?;
    Ok(elements)
}

/// The places from `start` to `end`, both counted from the end if negative, of `len`.
fn span(start: i64, end: i64, len: u64) -> Option<(u64, u64)> {
    let from_end = |at: i64| if at < 0 { at.saturating_add_unsigned(len) } else { at };
    let (from, to) = (from_end(start).max(0), from_end(end).min(len as i64 - 1));
    (from <= to).then(|| (from as u64, to as u64 + 1))
}

fn reply_all(context: &mut Context<'_>, elements: &[Vec<u8>]) {
    context.reply.list(elements.len());
    elements.iter().for_each(|element| context.reply.bulk(element));
}

fn pop(context: &mut Context<'_>, args: &Arguments<'_>, side: Side, name: &str) -> Done {
    const NEGATIVE: Refusal = Refusal::Said("ERR value is out of range, must be positive");
    let count = match args {
        [_, _] => None,
        [_, _, count] => {
            Some(integer(count).and_then(|count| u64::try_from(count).ok()).ok_or(NEGATIVE)?)
        }
        _ => return Err(wrong_count(name)),
    };
    match (list(context, args[1])?, count) {
        (None, None) => context.reply.null(),
        (None, Some(_)) => context.reply.null_list(),
        (Some(found), None) => {
            let elements = take(context, args[1], &found, 1, side)?;
            context.reply.bulk_or_null(elements.first().map(Vec::as_slice));
        }
        (Some(found), Some(count)) => {
            let elements = take(context, args[1], &found, count, side)?;
            reply_all(context, &elements);
        }
    }
    Ok(())
}

pub(crate) fn lpop(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    pop(context, args, Side::Left, "lpop")
}

pub(crate) fn rpop(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    pop(context, args, Side::Right, "rpop")
}

pub(crate) fn llen(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let len = list(context, args[1])?.map_or(0, |found| context.keys.list_len(&found));
    context.reply.count(len);
    Ok(())
}

pub(crate) fn lrange(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let (start, end) = (integer_or_refusal(args[2])?, integer_or_refusal(args[3])?);
    let elements = match list(context, args[1])? {
        Some(found) => span(start, end, context.keys.list_len(&found))
            .map(|(from, to)| context.keys.elements(&found, from, to))
            .unwrap_or_default(),
        None => Vec::new(),
    };
    reply_all(context, &elements);
    Ok(())
}

/// A place in a list of `len`, counted from its end if negative.
fn place(index: i64, len: u64) -> Option<u64> {
    let index = if index < 0 { index.checked_add_unsigned(len)? } else { index };
    u64::try_from(index).ok().filter(|place| *place < len)
}

pub(crate) fn lindex(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let Some(found) = list(context, args[1])? else {
        context.reply.null();
        return Ok(());
    };
    let place = place(integer_or_refusal(args[2])?, context.keys.list_len(&found));
    let element = place.map(|place| context.keys.elements(&found, place, place + 1));
    context.reply.bulk_or_null(element.as_ref().and_then(|all| all.first()).map(Vec::as_slice));
    Ok(())
}

pub(crate) fn lset(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let found = list(context, args[1])?.ok_or(Refusal::Said("ERR no such key"))?;
    let place = place(integer_or_refusal(args[2])?, context.keys.list_len(&found))
        .ok_or(Refusal::Said("ERR index out of range"))?;
    context.keys.set_in_list(context.session.db, args[1], &found, place, args[3])?;
    context.notify(notice::LIST, "lset", args[1]);
    context.reply.ok();
    Ok(())
}

pub(crate) fn linsert(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let behind = match word(args[2]).as_str() {
        "before" => 0,
        "after" => 1,
        _ => return Err(SYNTAX),
    };
    let Some(found) = list(context, args[1])? else {
        context.reply.integer(0);
        return Ok(());
    };
    let (mut place, mut there) = (0, false);
    context.keys.for_list(&found, 0, |element| {
        there = element == args[3];
        place += u64::from(!there);
        !there
    });
    if !there {
        context.reply.integer(-1);
        return Ok(());
    }
    let db = context.session.db;
    context.keys.insert_in_list(db, args[1], Some(&found), place + behind, false, &[args[4]])?;
    context.notify(notice::LIST, "linsert", args[1]);
    let len = context.keys.get(db, args[1]).map_or(0, |found| context.keys.list_len(&found));
    context.reply.count(len);
    Ok(())
}

pub(crate) fn lrem(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let count = integer_or_refusal(args[2])?;
    let Some(found) = list(context, args[1])? else {
        context.reply.integer(0);
        return Ok(());
    };
    let most = match count.unsigned_abs() {
        0 => usize::MAX,
        most => usize::try_from(most).unwrap_or(usize::MAX),
    };
    let (mut places, mut at) = (Vec::new(), 0);
    context.keys.for_list(&found, 0, |element| {
        if element == args[3] {
            places.push(at);
        }
        at += 1;
        count < 0 || places.len() < most
    });
    let begin = if count < 0 { places.len().saturating_sub(most) } else { 0 };
    let places = &places[begin..];
    context.keys.remove_from_list(context.session.db, args[1], &found, places)?;
    if !places.is_empty() {
        context.notify_taken(notice::LIST, "lrem", args[1]);
    }
    context.reply.count(places.len() as u64);
    Ok(())
}

pub(crate) fn ltrim(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let (start, end) = (integer_or_refusal(args[2])?, integer_or_refusal(args[3])?);
    if let Some(found) = list(context, args[1])? {
        let len = context.keys.list_len(&found);
        let (from, to) = span(start, end, len).unwrap_or((0, 0));
        let places: Vec<u64> = (0..from).chain(to..len).collect();
        context.keys.remove_from_list(context.session.db, args[1], &found, &places)?;
        context.notify_taken(notice::LIST, "ltrim", args[1]);
    }
    context.reply.ok();
    Ok(())
}

pub(crate) fn lpos(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    if args.len().is_multiple_of(2) {
        return Err(SYNTAX);
    }
    let (mut rank, mut count, mut most) = (1, None, 0);
    let positive = |argument: &[u8], negative| {
        let number = integer(argument).and_then(|number| u64::try_from(number).ok());
        number.ok_or(Refusal::Said(negative))
    };
    for option in args[3..].chunks_exact(2) {
        match word(option[0]).as_str() {
            "rank" => {
                rank = integer_or_refusal(option[1])?;
                if rank == 0 {
                    return Err(Refusal::Said(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the \
                         second \
                         ... or use negative to start from the end of the list",
                    ));
                }
            }
            "count" => count = Some(positive(option[1], "ERR COUNT can't be negative")?),
            "maxlen" => most = positive(option[1], "ERR MAXLEN can't be negative")?,
            _ => return Err(SYNTAX),
        }
    }
    let wanted = match count {
        None => 1,
        Some(0) => u64::MAX,
        Some(count) => count,
    };
    let mut places = Vec::new();
    if let Some(found) = list(context, args[1])? {
        let len = context.keys.list_len(&found);
        let looked_at = if most == 0 { len } else { most.min(len) };
        // The smallest number has no positive one, and is -1 to Redis.
        let mut skip = if rank == i64::MIN { 0 } else { rank.unsigned_abs() - 1 };
        let mut note = |at: u64, element: &[u8]| {
            if element == args[2] {
                if skip == 0 {
                    places.push(at);
                }
                skip = skip.saturating_sub(1);
            }
            (places.len() as u64) < wanted
        };
        if rank > 0 {
            let mut at = 0;
            context.keys.for_list(&found, 0, |element| {
                at += 1;
                at <= looked_at && note(at - 1, &element)
            });
        } else {
            let elements = context.keys.elements(&found, len - looked_at, len);
            let _ = (0..looked_at).zip(elements.iter().rev()).all(|(n, e)| note(len - 1 - n, e));
        }
    }
    match count {
        None => match places.first() {
            Some(place) => context.reply.count(*place),
            None => context.reply.null(),
        },
        Some(_) => {
            context.reply.list(places.len());
            places.iter().for_each(|place| context.reply.count(*place));
        }
    }
    Ok(())
}

/// Moves an element from one list to another, or to the other end; nothing if there is none.
fn shift(
    context: &mut Context<'_>,
    from: (&[u8], Side),
    to: (&[u8], Side),
) -> Result<Option<Vec<u8>>, Refusal> {
    let Some(found) = list(context, from.0)? else { return Ok(None) };
    list(context, to.0)?;
    if from.0 == to.0 && context.keys.list_len(&found) == 1 {
        // It stays where it is, and the key keeps its time.
        context.notify(notice::LIST, to.1.pushed(), to.0);
        context.notify(notice::LIST, from.1.popped(), from.0);
        return Ok(context.keys.elements(&found, 0, 1).pop());
    }
    let element = remove(context, from.0, &found, 1, from.1)?.pop().unwrap_or_default();
    add(context, to.0, &[&element], to.1)?;
    context.notify_taken(notice::LIST, from.1.popped(), from.0);
    Ok(Some(element))
}

fn shift_or_null(context: &mut Context<'_>, from: (&[u8], Side), to: (&[u8], Side)) -> Done {
    let element = shift(context, from, to)?;
    context.reply.bulk_or_null(element.as_deref());
    Ok(())
}

pub(crate) fn lmove(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let (from, to) = (Side::of(args[3])?, Side::of(args[4])?);
    shift_or_null(context, (args[1], from), (args[2], to))
}

pub(crate) fn rpoplpush(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    shift_or_null(context, (args[1], Side::Right), (args[2], Side::Left))
}

fn shift_or_wait(
    context: &mut Context<'_>,
    args: &Arguments<'_>,
    sides: [Side; 2],
    timeout: &[u8],
) -> Done {
    let waits = Waits::of(timeout)?;
    match shift(context, (args[1], sides[0]), (args[2], sides[1]))? {
        Some(element) => context.reply.bulk(&element),
        None if context.shared.in_exec => context.reply.null(),
        None => wait_for(context, &args[1..2], args, waits),
    }
    Ok(())
}

pub(crate) fn blmove(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let sides = [Side::of(args[3])?, Side::of(args[4])?];
    shift_or_wait(context, args, sides, args[5])
}

pub(crate) fn brpoplpush(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    shift_or_wait(context, args, [Side::Right, Side::Left], args[3])
}

/// Takes elements from the first of these lists that has some.
fn take_first<'a>(
    context: &mut Context<'_>,
    keys: Words<'a>,
    count: u64,
    side: Side,
) -> Result<Option<Popped<'a, Vec<u8>>>, Refusal> {
    let some = |context: &mut Context<'_>, key: &[u8], found: &Found| {
        take(context, key, found, count, side)
    };
    blocking::take_first(context, keys, list, some)
}

fn pop_or_wait(context: &mut Context<'_>, args: &Arguments<'_>, side: Side) -> Done {
    let waits = Waits::of(args[args.len() - 1])?;
    let keys = &args[1..args.len() - 1];
    match take_first(context, keys, 1, side)? {
        Some((key, elements)) => {
            context.reply.list(2);
            context.reply.bulk(key);
            // There is none only if it is damaged, and then the reply is taken back.
            context.reply.bulk_or_null(elements.first().map(Vec::as_slice));
        }
        None if context.shared.in_exec => context.reply.null_list(),
        None => wait_for(context, keys, args, waits),
    }
    Ok(())
}

pub(crate) fn blpop(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    pop_or_wait(context, args, Side::Left)
}

pub(crate) fn brpop(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    pop_or_wait(context, args, Side::Right)
}

fn reply_popped(context: &mut Context<'_>, popped: Option<Popped<'_, Vec<u8>>>) {
    match popped {
        Some((key, elements)) => {
            context.reply.list(2);
            context.reply.bulk(key);
            reply_all(context, &elements);
        }
        None => context.reply.null_list(),
    }
}

pub(crate) fn lmpop(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let (keys, side, count) = from_an_end(&args[1..], Side::of)?;
    let popped = take_first(context, keys, count, side)?;
    reply_popped(context, popped);
    Ok(())
}

pub(crate) fn blmpop(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let waits = Waits::of(args[1])?;
    let (keys, side, count) = from_an_end(&args[2..], Side::of)?;
    match take_first(context, keys, count, side)? {
        None if !context.shared.in_exec => wait_for(context, keys, args, waits),
        popped => reply_popped(context, popped),
    }
    Ok(())
}
