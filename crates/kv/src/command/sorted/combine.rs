//! What is made of several sorted sets, or sets, whose members count with the score 1.

use std::collections::HashMap;

use super::super::arguments::integer_or_refusal;
use super::super::sets::{limit_of, members};
use super::super::strings::WRONG_TYPE;
use super::super::{Arguments, Context, Done, Refusal, SYNTAX, keys, word};
use super::reply_members;
use crate::format::entry::kind;
use crate::keyspace::{Found, Scored, order};
use crate::number::float;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// Which score a member gets that several have.
#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Least,
    Most,
}

impl Aggregate {
    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            // Both infinities together are 0, as in Redis.
            Aggregate::Sum if (one + other).is_nan() => 0.0,
            Aggregate::Sum => one + other,
            Aggregate::Least if other < one => other,
            Aggregate::Most if other > one => other,
            Aggregate::Least | Aggregate::Most => one,
        }
    }
}

/// What a command asks for.
struct Asked<'a> {
    keys: keys::Words<'a>,
    weights: Vec<f64>,
    aggregate: Aggregate,
    scores: bool,
}

/// `numkeys key...`: the keys, and what follows them.
fn split<'a>(
    args: &'a Arguments<'a>,
    name: &str,
) -> Result<(keys::Words<'a>, keys::Words<'a>), Refusal> {
    let count = integer_or_refusal(args[0])?;
    if count < 1 {
        return Err(Refusal::Words(format!(
            "ERR at least 1 input key is needed for '{name}' command"
        )));
    }
    let count = usize::try_from(count).map_err(|_| SYNTAX)?;
    args[1..].split_at_checked(count).ok_or(SYNTAX)
}

/// `numkeys key... [WEIGHTS weight...] [AGGREGATE how] [WITHSCORES]`.
fn parse<'a>(
    context: &mut Context<'_>,
    args: &'a Arguments<'a>,
    operation: Operation,
    stores: bool,
    name: &str,
) -> Result<Asked<'a>, Refusal> {
    let (keys, mut options) = split(args, name)?;
    look_for(context, keys)?;
    let count = keys.len();
    let mut asked =
        Asked { keys, weights: vec![1.0; count], aggregate: Aggregate::Sum, scores: false };
    while let Some((option, rest)) = options.split_first() {
        options = match word(option).as_str() {
            "weights" if operation != Operation::Difference && rest.len() >= count => {
                let (weights, rest) = rest.split_at(count);
                for (weight, text) in asked.weights.iter_mut().zip(weights) {
                    *weight =
                        float(text).ok_or(Refusal::Said("ERR weight value is not a float"))?;
                }
                rest
            }
            "aggregate" if operation != Operation::Difference && !rest.is_empty() => {
                asked.aggregate = match word(rest[0]).as_str() {
                    "sum" => Aggregate::Sum,
                    "min" => Aggregate::Least,
                    "max" => Aggregate::Most,
                    _ => return Err(SYNTAX),
                };
                &rest[1..]
            }
            "withscores" if !stores => {
                asked.scores = true;
                rest
            }
            _ => return Err(SYNTAX),
        };
    }
    Ok(asked)
}

/// Looks whether keys hold what they may hold. Those that are not there were looked for then.
fn look_for(context: &mut Context<'_>, keys: keys::Words<'_>) -> Done {
    for key in keys {
        source(context, key)?;
    }
    context.keys.note_misses(false);
    Ok(())
}

/// The sorted set or set of a key, if it is there.
fn source(context: &mut Context<'_>, key: &[u8]) -> Result<Option<Found>, Refusal> {
    match context.keys.get(context.session.db, key) {
        Some(found) if !(kind::SET..=kind::ZSET_NODE).contains(&found.header.kind) => {
            Err(WRONG_TYPE)
        }
        found => Ok(found),
    }
}

/// The members of a sorted set, or of a set.
fn all(context: &mut Context<'_>, key: &[u8]) -> Result<Vec<Scored>, Refusal> {
    Ok(match source(context, key)? {
        None => Vec::new(),
        Some(found) if matches!(found.header.kind, kind::ZSET | kind::ZSET_NODE) => {
            context.keys.scored(&found, 0, u64::MAX)
        }
        found => members(context, found.as_ref()).into_iter().map(|member| (member, 1.0)).collect(),
    })
}

fn combine(
    context: &mut Context<'_>,
    asked: &Asked<'_>,
    operation: Operation,
) -> Result<Vec<Scored>, Refusal> {
    let mut inputs = Vec::new();
    for (key, weight) in asked.keys.iter().zip(&asked.weights) {
        let mut input = all(context, key)?;
        input.iter_mut().for_each(|(_, score)| *score *= weight);
        inputs.push(input);
    }
    // As in Redis, where it shows: infinity with the weight 0 is 0 in the first set and in a union,
    // and makes the sum 0 in another set of an intersection.
    if operation != Operation::Difference {
        inputs.sort_by_key(Vec::len);
    }
    let zeroed = if operation == Operation::Union { inputs.len() } else { 1 };
    for (_, score) in inputs.iter_mut().take(zeroed).flatten() {
        *score = if score.is_nan() { 0.0 } else { *score };
    }
    let mut inputs = inputs.into_iter();
    let mut result: HashMap<Vec<u8>, f64> = inputs.next().unwrap_or_default().into_iter().collect();
    for input in inputs {
        match operation {
            Operation::Union => {
                for (member, score) in input {
                    let aggregate = asked.aggregate;
                    result
                        .entry(member)
                        .and_modify(|old| *old = aggregate.of(*old, score))
                        .or_insert(score);
                }
            }
            Operation::Intersection => {
                let mut both = HashMap::new();
                for (member, score) in input {
                    if let Some(old) = result.get(&member) {
                        both.insert(member, asked.aggregate.of(*old, score));
                    }
                }
                result = both;
            }
            Operation::Difference => input.iter().for_each(|(member, _)| {
                result.remove(member);
            }),
        }
    }
    let mut result: Vec<Scored> = result.into_iter().collect();
    result.sort_by(|one, other| order((&one.0, one.1), (&other.0, other.1)));
    Ok(result)
}

fn answer(
    context: &mut Context<'_>,
    args: &Arguments<'_>,
    operation: Operation,
    name: &str,
) -> Done {
    let asked = parse(context, &args[1..], operation, false, name)?;
    let result = combine(context, &asked, operation)?;
    reply_members(context, &result, asked.scores);
    Ok(())
}

fn store(
    context: &mut Context<'_>,
    args: &Arguments<'_>,
    operation: Operation,
    name: &str,
) -> Done {
    let asked = parse(context, &args[2..], operation, true, name)?;
    let result = combine(context, &asked, operation)?;
    let event = match operation {
        Operation::Union => "zunionstore",
        Operation::Intersection => "zinterstore",
        Operation::Difference => "zdiffstore",
    };
    super::range::store(context, args[1], &result, event)
}

pub(crate) fn zunion(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    answer(context, args, Operation::Union, "zunion")
}

pub(crate) fn zinter(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    answer(context, args, Operation::Intersection, "zinter")
}

pub(crate) fn zdiff(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    answer(context, args, Operation::Difference, "zdiff")
}

pub(crate) fn zunionstore(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    store(context, args, Operation::Union, "zunionstore")
}

pub(crate) fn zinterstore(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    store(context, args, Operation::Intersection, "zinterstore")
}

pub(crate) fn zdiffstore(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    store(context, args, Operation::Difference, "zdiffstore")
}

pub(crate) fn zintercard(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let (keys, options) = split(&args[1..], "zintercard")?;
    look_for(context, keys)?;
    let limit = limit_of(options)?;
    let weights = vec![1.0; keys.len()];
    let asked = Asked { keys, weights, aggregate: Aggregate::Sum, scores: false };
    let result = combine(context, &asked, Operation::Intersection)?;
    context.reply.count(result.len().min(limit) as u64);
    Ok(())
}
