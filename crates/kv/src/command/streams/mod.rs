//! Streams: what their commands share. Adding and removing are in `add.rs`, reading in `read.rs`,
//! groups in `groups.rs`, claims in `claim.rs`, XINFO in `info.rs`; what replicas are told of them
//! in `effects.rs`.

mod add;
mod claim;
mod effects;
mod groups;
mod info;
mod read;

pub(crate) use add::{xadd, xdel, xlen, xsetid, xtrim};
pub(crate) use claim::{xautoclaim, xclaim};
pub(crate) use groups::{xack, xgroup, xpending};
pub(crate) use info::xinfo;
pub(crate) use read::{xrange, xread, xreadgroup, xrevrange};

use super::strings::WRONG_TYPE;
use super::{Arguments, Context, Refusal, Reply};
use crate::format::entry::kind;
use crate::format::stream::Id;
use crate::keyspace::Keyspace;
use crate::number::integer;

const INVALID_ID: Refusal =
    Refusal::Said("ERR Invalid stream ID specified as stream command argument");
const INVALID_START: Refusal = Refusal::Said("ERR invalid start ID for the interval");
const INVALID_END: Refusal = Refusal::Said("ERR invalid end ID for the interval");
const NO_KEY: Refusal = Refusal::Said("ERR no such key");
/// A stream whose node leads nowhere: the note says more.
const DAMAGED: Refusal = Refusal::Said("ERR the stream is damaged");
/// Letters of an ID at most, as in Redis.
const ID_MAX: usize = 127;

/// The node of a stream, if the key is there.
fn stream(context: &mut Context<'_>, key: &[u8]) -> Result<Option<u64>, Refusal> {
    match context.keys.get(context.session.db, key) {
        None => Ok(None),
        Some(found) if found.header.kind != kind::STREAM => Err(WRONG_TYPE),
        Some(found) => context.keys.stream_node(&found).ok_or(DAMAGED).map(Some),
    }
}

/// A number without a sign, as C's `strtoull` reads it where Redis's own reader does not.
fn unsigned(text: &[u8]) -> Option<u64> {
    if let Some(number) = integer(text) {
        return u64::try_from(number).ok();
    }
    let is_space = |byte: &u8| matches!(byte, b' ' | 9..=13);
    let from = text.iter().position(|byte| !is_space(byte))?;
    let (negative, digits) = match &text[from..] {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(if negative { number.wrapping_neg() } else { number })
}

/// An ID, whose number may be missing, or `*`: then it is given by `None`.
fn id_or_open(text: &[u8]) -> Option<(u64, Option<Option<u64>>)> {
    if text.len() > ID_MAX {
        return None;
    }
    // What is behind a zero byte C does not see.
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    match text.iter().position(|byte| *byte == b'-') {
        None => Some((unsigned(text)?, None)),
        Some(dash) => {
            let seq = match &text[dash + 1..] {
                b"*" => None,
                seq => Some(unsigned(seq)?),
            };
            Some((unsigned(&text[..dash])?, Some(seq)))
        }
    }
}

/// An ID; one without a number gets `missing`.
fn id(text: &[u8], missing: u64) -> Result<Id, Refusal> {
    match id_or_open(text) {
        Some((ms, None)) => Ok(Id { ms, seq: missing }),
        Some((ms, Some(Some(seq)))) => Ok(Id { ms, seq }),
        _ => Err(INVALID_ID),
    }
}

/// An ID, or `-` for the lowest and `+` for the highest one.
fn id_or_end(text: &[u8], missing: u64) -> Result<Id, Refusal> {
    match text {
        b"-" => Ok(Id::MIN),
        b"+" => Ok(Id::MAX),
        text => id(text, missing),
    }
}

/// The first ID of a range; `(` leaves out the ID itself.
fn range_start(text: &[u8]) -> Result<Id, Refusal> {
    match text {
        [b'(', rest @ ..] if !rest.is_empty() => id(rest, 0)?.next().ok_or(INVALID_START),
        text => id_or_end(text, 0),
    }
}

/// The last ID of a range.
fn range_end(text: &[u8]) -> Result<Id, Refusal> {
    match text {
        [b'(', rest @ ..] if !rest.is_empty() => id(rest, u64::MAX)?.before().ok_or(INVALID_END),
        text => id_or_end(text, u64::MAX),
    }
}

fn ids(texts: &Arguments<'_>) -> Result<Vec<Id>, Refusal> {
    texts.iter().map(|text| id(text, 0)).collect()
}

fn reply_id(reply: &mut Reply<'_>, id: Id) {
    reply.bulk(id.to_string().as_bytes());
}

/// An entry: its ID, then names and values.
fn reply_entry(reply: &mut Reply<'_>, id: Id, pairs: &[(&[u8], &[u8])]) {
    reply.list(2);
    reply_id(reply, id);
    reply.list(pairs.len() * 2);
    for (name, value) in pairs {
        reply.bulk(name);
        reply.bulk(value);
    }
}

/// Appends the entries of a range to `reply`, without their number, which is returned with their
/// IDs; 0 of `count`: all.
fn reply_range(
    keys: &Keyspace,
    reply: &mut Reply<'_>,
    node: u64,
    range: (Id, Id),
    reverse: bool,
    count: u64,
) -> Vec<Id> {
    let mut ids = Vec::new();
    keys.for_stream(node, range, reverse, |id, pairs| {
        reply_entry(reply, id, &pairs);
        ids.push(id);
        count == 0 || (ids.len() as u64) < count
    });
    ids
}

/// The same with the number of entries before them.
fn reply_list(context: &mut Context<'_>, node: u64, range: (Id, Id), reverse: bool, count: u64) {
    let mut body = Vec::new();
    let mut reply = Reply { out: &mut body, resp3: context.reply.resp3 };
    let ids = reply_range(context.keys, &mut reply, node, range, reverse, count);
    context.reply.list(ids.len());
    context.reply.out.append(&mut body);
}

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_redis_reads_them() {
        let all = |text: &str| id(text.as_bytes(), 7).ok().map(|id| (id.ms, id.seq));
        for (text, found) in [
            ("5", Some((5, 7))),
            ("5-3", Some((5, 3))),
            ("18446744073709551615-18446744073709551615", Some((u64::MAX, u64::MAX))),
            ("18446744073709551616", None),
            ("", None),
            ("-", None),
            ("5-", None),
            ("-5", None),
            ("5-*", None),
            ("007-01", Some((7, 1))),
            (" 5-+2", Some((5, 2))),
            ("5--3", None),
            ("5--03", Some((5, u64::MAX - 2))),
            ("x", None),
            ("5-3-1", None),
            ("5\0x", Some((5, 7))),
        ] {
            assert_eq!(all(text), found, "{text:?}");
        }
        assert_eq!(id_or_open(b"5-*"), Some((5, Some(None))));
        assert!(id(&[b'1'; 200], 0).is_err());
        assert!(range_start(b"(18446744073709551615-18446744073709551615").is_err());
        assert!(range_end(b"(0-0").is_err() && range_start(b"(+").is_err());
        assert_eq!(range_end(b"(5").ok(), Some(Id { ms: 5, seq: u64::MAX - 1 }));
    }
}
