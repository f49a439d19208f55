//! SORT: the elements of a list, set or sorted set in another order, with what other keys say of
//! them.

use std::cmp::Ordering;

use super::arguments::integer_or_refusal;
use super::strings::WRONG_TYPE;
use super::{Arguments, Context, Done, Refusal, SYNTAX, acl, sets, word};
use crate::format::entry::kind;
use crate::keyspace::{Found, notice};
use crate::number::strtod_within_range;

/// What a command asks for.
#[derive(Default)]
struct Asked<'a> {
    by: Option<&'a [u8]>,
    limit: Option<(i64, i64)>,
    get: Vec<&'a [u8]>,
    descending: bool,
    alpha: bool,
    store: Option<&'a [u8]>,
}

impl Asked<'_> {
    /// A pattern without a star is the same for all: nothing is sorted.
    fn keeps_order(&self) -> bool {
        self.by.is_some_and(|by| !by.contains(&b'*'))
    }
}

fn parse<'a>(options: &'a Arguments<'a>, stores: bool) -> Result<Asked<'a>, Refusal> {
    let mut asked = Asked::default();
    let mut at = 0;
    while let Some(option) = options.get(at) {
        let left = options.len() - at - 1;
        match word(option).as_str() {
            "asc" => asked.descending = false,
            "desc" => asked.descending = true,
            "alpha" => asked.alpha = true,
            "limit" if left >= 2 => {
                let (skip, count) =
                    (integer_or_refusal(options[at + 1])?, integer_or_refusal(options[at + 2])?);
                asked.limit = Some((skip, count));
                at += 2;
            }
            "store" if left >= 1 && stores => {
                asked.store = Some(options[at + 1]);
                at += 1;
            }
            "by" if left >= 1 => {
                asked.by = Some(options[at + 1]);
                at += 1;
            }
            "get" if left >= 1 => {
                asked.get.push(options[at + 1]);
                at += 1;
            }
            _ => return Err(SYNTAX),
        }
        at += 1;
    }
    Ok(asked)
}

/// The value that a pattern leads to for an element: of the key in which the element takes the
/// star's place, or of a field of a hash, behind `->`.
fn look_up(context: &mut Context<'_>, pattern: &[u8], element: &[u8]) -> Option<Vec<u8>> {
    if pattern == b"#" {
        return Some(element.to_vec());
    }
    let star = pattern.iter().position(|byte| *byte == b'*')?;
    let rest = &pattern[star + 1..];
    let arrow = rest.windows(2).position(|two| two == b"->").filter(|at| at + 2 < rest.len());
    let (tail, field) = match arrow {
        Some(at) => (&rest[..at], Some(&rest[at + 2..])),
        None => (rest, None),
    };
    let key = [&pattern[..star], element, tail].concat();
    let found = context.keys.get(context.session.db, &key)?;
    match (field, found.header.kind) {
        (Some(field), kind::HASH | kind::HASH_NODE) => context.keys.field(&found, field),
        (None, kind::STRING) => Some(context.keys.value(&found)),
        _ => None,
    }
}

/// The elements of a list, a set or a sorted set.
fn elements(context: &mut Context<'_>, found: Option<&Found>) -> Result<Vec<Vec<u8>>, Refusal> {
    let Some(found) = found else { return Ok(Vec::new()) };
    match found.header.kind {
        kind::LIST | kind::LIST_NODE => Ok(context.keys.elements(found, 0, u64::MAX)),
        kind::SET | kind::SET_NODE => Ok(sets::members(context, Some(found))),
        kind::ZSET | kind::ZSET_NODE => {
            let all = context.keys.scored(found, 0, u64::MAX);
            Ok(all.into_iter().map(|(member, _)| member).collect())
        }
        _ => Err(WRONG_TYPE),
    }
}

/// Puts elements in order by what they are, or by what a pattern leads to.
fn put_in_order(
    context: &mut Context<'_>,
    all: Vec<Vec<u8>>,
    asked: &Asked<'_>,
) -> Result<Vec<Vec<u8>>, Refusal> {
    let mut weighed = Vec::new();
    for element in all {
        let weight = match asked.by {
            Some(by) => look_up(context, by, &element),
            None => Some(element.clone()),
        };
        let score = match &weight {
            Some(weight) if !asked.alpha => strtod_within_range(weight)
                .ok_or(Refusal::Said("ERR One or more scores can't be converted into double"))?,
            _ => 0.0,
        };
        weighed.push((score, weight, element));
    }
    weighed.sort_by(|(score, weight, element), (other_score, other_weight, other)| {
        let order = match asked.alpha {
            true => weight.cmp(other_weight),
            false => score
                .partial_cmp(other_score)
                .unwrap_or(Ordering::Equal)
                .then_with(|| element.cmp(other)),
        };
        if asked.descending { order.reverse() } else { order }
    });
    Ok(weighed.into_iter().map(|(_, _, element)| element).collect())
}

/// Patterns lead to keys that nobody can name before: whoever may not read all may use none.
fn refuse_patterns(context: &Context<'_>, args: &Arguments<'_>, asked: &Asked<'_>) -> Done {
    let follows = asked.by.is_some() && !asked.keeps_order();
    if !follows && asked.get.is_empty() || acl::may_read_all_keys(context, args) {
        return Ok(());
    }
    Err(Refusal::Said(match follows {
        true => "ERR BY option of SORT denied due to insufficient ACL permissions.",
        false => "ERR GET option of SORT denied due to insufficient ACL permissions.",
    }))
}

fn run(context: &mut Context<'_>, args: &Arguments<'_>, stores: bool) -> Done {
    let mut asked = parse(&args[2..], stores)?;
    refuse_patterns(context, args, &asked)?;
    let found = context.keys.get(context.session.db, args[1]);
    let mut all = elements(context, found.as_ref())?;
    let of = found.map_or(kind::LIST, |found| found.header.kind);
    let shown_to_all = asked.store.is_some() || context.shared.in_script;
    if matches!(of, kind::SET | kind::SET_NODE) && asked.keeps_order() && shown_to_all {
        // What is stored, or what a script sees, has an order that does not depend on how a set is
        // kept.
        (asked.by, asked.alpha) = (None, true);
    }
    if !asked.keeps_order() {
        all = put_in_order(context, all, &asked)?;
    } else if asked.descending && !matches!(of, kind::SET | kind::SET_NODE) {
        all.reverse();
    }
    if let Some((skip, count)) = asked.limit {
        let skip = usize::try_from(skip).unwrap_or(0);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        all = all.into_iter().skip(skip).take(count).collect();
    }
    let mut parts = Vec::new();
    for element in all {
        if asked.get.is_empty() {
            parts.push(Some(element));
            continue;
        }
        for pattern in &asked.get {
            parts.push(look_up(context, pattern, &element));
        }
    }
    let Some(target) = asked.store else {
        context.reply.list(parts.len());
        parts.iter().for_each(|part| context.reply.bulk_or_null(part.as_deref()));
        return Ok(());
    };
    let parts: Vec<Vec<u8>> = parts.into_iter().map(Option::unwrap_or_default).collect();
    if parts.is_empty() {
        context.remove_target(target);
    } else {
        context.keys.put_list(context.session.db, target, &parts, None)?;
        context.notify(notice::LIST, "sortstore", target);
    }
    context.reply.count(parts.len() as u64);
    Ok(())
}

pub(crate) fn sort(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    run(context, args, true)
}

pub(crate) fn sort_ro(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    run(context, args, false)
}
