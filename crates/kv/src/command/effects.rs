//! What replicas are told of a command: the command itself, where it does the same everywhere; else
//! what it did.
//!
//! As in Redis: times that count from now become times of the clock, what chance chose is named, a
//! command that waited becomes one that does not, and a script is the commands that it called. A
//! command that changed nothing is not passed on.
//!
//! A new command whose effect depends on chance or the clock says what it did with
//! [`Shared::instead`](super::Shared), or has a branch here.

use super::{Arguments, Context, Row, flag};
use crate::format::entry::kind;

/// Passes on a command that was done; `changes` were there before it.
pub(super) fn pass_on(context: &mut Context<'_>, row: &Row, args: &Arguments<'_>, changes: u64) {
    let instead = context.shared.instead.take();
    let taken = context.shared.taken.take();
    if matches!(row.name, "publish" | "spublish") {
        // For a database, as all commands of clients are in Redis's stream.
        return context.keys.feed(context.session.db, args);
    }
    let writes = row.flags & flag::WRITE != 0 || super::scripting::writes(args);
    if !writes || context.keys.changes() == changes {
        return;
    }
    let db = context.db();
    if let Some(words) = instead {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        return context.keys.feed(db, &words);
    }
    match row.name {
        "set" | "setnx" | "getset" => stored(context, args[1], args[2]),
        "setex" | "psetex" => stored(context, args[1], args[3]),
        "expire" | "pexpire" | "expireat" | "pexpireat" | "getex" => timed(context, args[1]),
        "getdel" => context.keys.feed(db, &[b"DEL", args[1]]),
        "incrbyfloat" => summed(context, args[1]),
        "hincrbyfloat" => summed_field(context, args[1], args[2]),
        "restore" => restored(context, args),
        "blmove" => context.keys.feed(db, &[b"LMOVE", args[1], args[2], args[3], args[4]]),
        "brpoplpush" => context.keys.feed(db, &[b"RPOPLPUSH", args[1], args[2]]),
        "blpop" | "brpop" | "bzpopmin" | "bzpopmax" | "blmpop" | "bzmpop" => {
            if let Some(key) = taken {
                waited(context, row.name, &key, args);
            }
        }
        // They say themselves what they did.
        "xadd" | "xtrim" | "xreadgroup" | "xclaim" | "xautoclaim" => {}
        _ => context.keys.feed(db, args),
    }
}

/// A value that was set, and when it expires.
fn stored(context: &mut Context<'_>, key: &[u8], value: &[u8]) {
    let db = context.db();
    match context.keys.expiry_of(db, key) {
        None => context.keys.feed(db, &[b"DEL", key]),
        Some(None) => context.keys.feed(db, &[b"SET", key, value]),
        Some(Some(at)) => {
            context.keys.feed(db, &[b"SET", key, value, b"PXAT", at.to_string().as_bytes()])
        }
    }
}

/// A key whose time was changed.
fn timed(context: &mut Context<'_>, key: &[u8]) {
    let db = context.db();
    match context.keys.expiry_of(db, key) {
        None => context.keys.feed(db, &[b"DEL", key]),
        Some(None) => context.keys.feed(db, &[b"PERSIST", key]),
        Some(Some(at)) => context.keys.feed(db, &[b"PEXPIREAT", key, at.to_string().as_bytes()]),
    }
}

/// A sum with a fraction, which another machine may round otherwise.
fn summed(context: &mut Context<'_>, key: &[u8]) {
    let db = context.db();
    if let Some(found) =
        context.keys.as_it_is(db, key).filter(|found| found.header.kind == kind::STRING)
    {
        let value = context.keys.value(&found);
        context.keys.feed(db, &[b"SET", key, &value, b"KEEPTTL"]);
    }
}

fn summed_field(context: &mut Context<'_>, key: &[u8], field: &[u8]) {
    let db = context.db();
    let value = context.keys.as_it_is(db, key).and_then(|found| context.keys.field(&found, field));
    if let Some(value) = value {
        context.keys.feed(db, &[b"HSET", key, field, &value]);
    }
}

fn restored(context: &mut Context<'_>, args: &Arguments<'_>) {
    let db = context.db();
    match context.keys.expiry_of(db, args[1]) {
        None => context.keys.feed(db, &[b"DEL", args[1]]),
        Some(at) => {
            let at = at.unwrap_or(0).to_string();
            let words = [b"RESTORE", args[1], at.as_bytes(), args[3], b"REPLACE", b"ABSTTL"];
            context.keys.feed(db, &words);
        }
    }
}

/// A command that may have waited, and took something from this key.
fn waited(context: &mut Context<'_>, name: &str, key: &[u8], args: &Arguments<'_>) {
    let db = context.db();
    let now = name.strip_prefix('b').unwrap_or(name).to_ascii_uppercase();
    if !name.ends_with("mpop") {
        return context.keys.feed(db, &[now.as_bytes(), key]);
    }
    // `BLMPOP timeout numkeys key... end [COUNT count]`.
    let count = std::str::from_utf8(args[2]).ok().and_then(|count| count.parse::<usize>().ok());
    let rest = count.and_then(|count| args.get(3 + count..)).unwrap_or_default();
    let words: Vec<&[u8]> =
        [now.as_bytes(), b"1", key].into_iter().chain(rest.iter().copied()).collect();
    context.keys.feed(db, &words);
}
