//! Ranges of a sorted set: by rank, by score, by member.

use super::super::arguments::integer_or_refusal;
use super::super::{Arguments, Context, Done, Refusal, SYNTAX, word};
use super::{change, reply_members, sorted};
use crate::keyspace::{Found, Scored, notice};
use crate::number::strtod;

/// What a range counts by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Member,
}

impl By {
    /// The event of a range that was removed.
    fn removed(self) -> &'static str {
        match self {
            By::Rank => "zremrangebyrank",
            By::Score => "zremrangebyscore",
            By::Member => "zremrangebylex",
        }
    }
}

/// An end of a range.
enum Border<'a> {
    /// Below or above everything.
    Outside,
    Score(f64, bool),
    /// Whether the border itself is left out.
    Member(&'a [u8], bool),
}

/// A range as ranks: from, to before.
type Ranks = (u64, u64);

fn score_border<'a>(argument: &[u8]) -> Result<Border<'a>, Refusal> {
    let (open, number) = match argument.strip_prefix(b"(") {
        Some(number) => (true, number),
        None => (false, argument),
    };
    let score = strtod(number).ok_or(Refusal::Said("ERR min or max is not a float"))?;
    Ok(Border::Score(score, open))
}

fn member_border<'a>(argument: &'a [u8]) -> Result<(Border<'a>, bool), Refusal> {
    match argument {
        b"-" => Ok((Border::Outside, true)),
        b"+" => Ok((Border::Outside, false)),
        [b'(', member @ ..] => Ok((Border::Member(member, true), false)),
        [b'[', member @ ..] => Ok((Border::Member(member, false), false)),
        _ => Err(Refusal::Said("ERR min or max not valid string range item")),
    }
}

/// A range as it was given.
enum Range<'a> {
    Ranks(i64, i64),
    Borders(Border<'a>, Border<'a>),
    /// Its ends are outside, the wrong way round.
    Nothing,
}

fn parse<'a>(by: By, low: &'a [u8], high: &'a [u8]) -> Result<Range<'a>, Refusal> {
    Ok(match by {
        By::Rank => Range::Ranks(integer_or_refusal(low)?, integer_or_refusal(high)?),
        By::Score => Range::Borders(score_border(low)?, score_border(high)?),
        By::Member => {
            let ((low, low_is_first), (high, high_is_first)) =
                (member_border(low)?, member_border(high)?);
            let low_is_last = matches!(low, Border::Outside) && !low_is_first;
            if low_is_last || high_is_first { Range::Nothing } else { Range::Borders(low, high) }
        }
    })
}

/// The ranks of a range, in ascending order; `from_end`: ranks are counted from the end.
fn ranks(context: &Context<'_>, found: &Found, range: &Range<'_>, from_end: bool) -> Ranks {
    let len = context.keys.field_count(found);
    match range {
        Range::Nothing => (0, 0),
        Range::Ranks(start, end) => {
            let place = |at: i64| if at < 0 { at.saturating_add_unsigned(len) } else { at };
            let (from, to) = (place(*start).max(0), place(*end).min(len as i64 - 1));
            match (from <= to, from_end) {
                (false, _) => (0, 0),
                (true, false) => (from as u64, to as u64 + 1),
                (true, true) => (len - 1 - to as u64, len - from as u64),
            }
        }
        Range::Borders(low, high) => {
            let from = match low {
                Border::Outside => 0,
                Border::Score(low, open) => {
                    context.keys.rank(found, |_, score| score < *low || *open && score == *low)
                }
                Border::Member(low, open) => {
                    context.keys.rank(found, |member, _| member < *low || *open && member == *low)
                }
            };
            let to = match high {
                Border::Outside => len,
                Border::Score(high, open) => {
                    context.keys.rank(found, |_, score| score < *high || !*open && score == *high)
                }
                Border::Member(high, open) => context
                    .keys
                    .rank(found, |member, _| member < *high || !*open && member == *high),
            };
            (from, to.max(from))
        }
    }
}

/// What a command of the family always does, or may be told to do.
#[derive(Clone, Copy)]
struct Fixed {
    by: Option<By>,
    reverse: Option<bool>,
    stores: bool,
}

/// `key low high [options]`: the members, and whether their scores are wanted.
fn select(
    context: &mut Context<'_>,
    args: &Arguments<'_>,
    fixed: Fixed,
) -> Result<(Vec<Scored>, bool), Refusal> {
    let (mut by, mut reverse) = (fixed.by, fixed.reverse);
    let (mut scores, mut limit) = (false, None);
    let mut at = 3;
    while let Some(option) = args.get(at) {
        match (word(option).as_str(), args.len() - at) {
            ("withscores", _) if !fixed.stores => scores = true,
            ("limit", 3..) => {
                limit =
                    Some((integer_or_refusal(args[at + 1])?, integer_or_refusal(args[at + 2])?));
                at += 2;
            }
            ("rev", _) if fixed.reverse.is_none() => reverse = Some(true),
            ("bylex", _) if fixed.by.is_none() => by = Some(By::Member),
            ("byscore", _) if fixed.by.is_none() => by = Some(By::Score),
            _ => return Err(SYNTAX),
        }
        at += 1;
    }
    let (by, reverse) = (by.unwrap_or(By::Rank), reverse.unwrap_or(false));
    // A count of -1 is that of no limit.
    if limit.is_some_and(|(_, count)| count != -1) && by == By::Rank {
        return Err(Refusal::Said(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ));
    }
    if scores && by == By::Member {
        return Err(Refusal::Said(
            "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
        ));
    }
    let (low, high) =
        if reverse && by != By::Rank { (args[2], args[1]) } else { (args[1], args[2]) };
    let range = parse(by, low, high)?;
    let Some(found) = sorted(context, args[0])? else { return Ok((Vec::new(), scores)) };
    let (mut from, mut to) = ranks(context, &found, &range, reverse);
    if let Some((skip, count)) = limit.filter(|_| by != By::Rank) {
        let len = to - from;
        let skip = u64::try_from(skip).unwrap_or(len).min(len);
        let count = u64::try_from(count).unwrap_or(u64::MAX).min(len - skip);
        (from, to) = if reverse {
            (to - skip - count, to - skip)
        } else {
            (from + skip, from + skip + count)
        };
    }
    let mut members = context.keys.scored(&found, from, to);
    if reverse {
        members.reverse();
    }
    Ok((members, scores))
}

fn answer(
    context: &mut Context<'_>,
    args: &Arguments<'_>,
    by: Option<By>,
    reverse: Option<bool>,
) -> Done {
    let (members, scores) = select(context, &args[1..], Fixed { by, reverse, stores: false })?;
    reply_members(context, &members, scores);
    Ok(())
}

pub(crate) fn zrange(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    answer(context, args, None, None)
}

pub(crate) fn zrevrange(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    answer(context, args, Some(By::Rank), Some(true))
}

pub(crate) fn zrangebyscore(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    answer(context, args, Some(By::Score), Some(false))
}

pub(crate) fn zrevrangebyscore(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    answer(context, args, Some(By::Score), Some(true))
}

pub(crate) fn zrangebylex(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    answer(context, args, Some(By::Member), Some(false))
}

pub(crate) fn zrevrangebylex(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    answer(context, args, Some(By::Member), Some(true))
}

/// Puts members, in order, as a sorted set; none: there is no such key any more.
pub(super) fn store(
    context: &mut Context<'_>,
    key: &[u8],
    members: &[Scored],
    event: &'static str,
) -> Done {
    if members.is_empty() {
        context.remove_target(key);
    } else {
        context.keys.put_zset(context.session.db, key, members, None)?;
        context.notify(notice::ZSET, event, key);
    }
    context.reply.count(members.len() as u64);
    Ok(())
}

pub(crate) fn zrangestore(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let (mut members, _) =
        select(context, &args[2..], Fixed { by: None, reverse: None, stores: true })?;
    members.sort_by(|one, other| crate::keyspace::order((&one.0, one.1), (&other.0, other.1)));
    store(context, args[1], &members, "zrangestore")
}

fn count(context: &mut Context<'_>, args: &Arguments<'_>, by: By) -> Done {
    let range = parse(by, args[2], args[3])?;
    let count = sorted(context, args[1])?.map_or(0, |found| {
        let (from, to) = ranks(context, &found, &range, false);
        to - from
    });
    context.reply.count(count);
    Ok(())
}

pub(crate) fn zcount(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    count(context, args, By::Score)
}

pub(crate) fn zlexcount(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    count(context, args, By::Member)
}

fn remove(context: &mut Context<'_>, args: &Arguments<'_>, by: By) -> Done {
    let range = parse(by, args[2], args[3])?;
    let Some(found) = sorted(context, args[1])? else {
        context.reply.integer(0);
        return Ok(());
    };
    let (from, to) = ranks(context, &found, &range, false);
    let (db, len) = (context.session.db, context.keys.field_count(&found));
    if (len - (to - from)) < (to - from) / 4 {
        // What is left is written anew, and the rest freed later, a part at a time.
        let mut left = context.keys.scored(&found, 0, from);
        left.extend(context.keys.scored(&found, to, len));
        if left.is_empty() {
            context.keys.remove(db, args[1]);
        } else {
            context.keys.put_zset(db, args[1], &left, found.header.expires)?;
        }
        context.notify_taken(notice::ZSET, by.removed(), args[1]);
        context.reply.count(to - from);
        return Ok(());
    }
    let members = context.keys.scored(&found, from, to);
    let changes: Vec<(&[u8], Option<f64>)> =
        members.iter().map(|(member, _)| (member.as_slice(), None)).collect();
    change(context, args[1], Some(&found), &changes)?;
    if !members.is_empty() {
        context.notify_taken(notice::ZSET, by.removed(), args[1]);
    }
    context.reply.count(members.len() as u64);
    Ok(())
}

pub(crate) fn zremrangebyrank(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    remove(context, args, By::Rank)
}

pub(crate) fn zremrangebyscore(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    remove(context, args, By::Score)
}

pub(crate) fn zremrangebylex(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    remove(context, args, By::Member)
}
