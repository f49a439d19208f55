//! Keys, whatever their values are.

use super::arguments::{expiry, integer, integer_or_refusal};
use super::help::help;
use super::{Arguments, Context, Done, Refusal, SYNTAX, encoding, glob, word};
use crate::format::{DATABASE_COUNT, entry::kind};
use crate::keyspace::{Copied, Found, notice};

/// Keys that SCAN looks at unless it is told.
const SCAN_COUNT: i64 = 10;

fn type_name(kind_of: u8) -> &'static str {
    match kind_of {
        kind::STRING => "string",
        kind::HASH | kind::HASH_NODE => "hash",
        kind::LIST | kind::LIST_NODE => "list",
        kind::SET | kind::SET_NODE => "set",
        kind::ZSET | kind::ZSET_NODE => "zset",
        kind::STREAM => "stream",
        _ => "none",
    }
}

pub(crate) fn del(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let db = context.db();
    let mut removed = 0;
    for key in &args[1..] {
        if context.keys.remove(db, key) {
            context.notify(notice::GENERIC, "del", key);
            removed += 1;
        }
    }
    context.reply.count(removed);
    Ok(())
}

pub(crate) fn exists(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let db = context.db();
    let there = args[1..].iter().filter(|key| context.keys.get(db, key).is_some()).count();
    context.reply.count(there as u64);
    Ok(())
}

pub(crate) fn type_of(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let found = context.keys.get(context.session.db, args[1]);
    context.reply.simple(found.map_or("none", |found| type_name(found.header.kind)));
    Ok(())
}

fn rename_to(context: &mut Context<'_>, args: &Arguments<'_>, over: bool) -> Result<bool, Refusal> {
    let db = context.db();
    let found = context.keys.get(db, args[1]).ok_or(Refusal::Said("ERR no such key"))?;
    if args[1] == args[2] {
        return Ok(over);
    }
    if !over && context.keys.get(db, args[2]).is_some() {
        return Ok(false);
    }
    context.keys.rename((db, args[1]), &found, (db, args[2]))?;
    context.notify(notice::GENERIC, "rename_from", args[1]);
    context.notify(notice::GENERIC, "rename_to", args[2]);
    Ok(true)
}

pub(crate) fn rename(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    rename_to(context, args, true)?;
    context.reply.ok();
    Ok(())
}

pub(crate) fn renamenx(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let renamed = rename_to(context, args, false)?;
    context.reply.integer(i64::from(renamed));
    Ok(())
}

/// Some of a command's arguments.
pub(crate) type Words<'a> = &'a [&'a [u8]];

/// `numkeys key...`: the keys, and what follows them.
pub(crate) fn counted_keys<'a>(args: &'a Arguments<'a>) -> Result<(Words<'a>, Words<'a>), Refusal> {
    let count = args.first().and_then(|count| integer(count)).filter(|count| *count > 0);
    let count = count.ok_or(Refusal::Said("ERR numkeys should be greater than 0"))?;
    usize::try_from(count).ok().and_then(|count| args[1..].split_at_checked(count)).ok_or(SYNTAX)
}

/// The number of a database.
pub(crate) fn database(argument: &[u8]) -> Result<u8, Refusal> {
    let number = integer(argument).ok_or(Refusal::Said("ERR invalid DB index"))?;
    u8::try_from(number)
        .ok()
        .filter(|number| *number < DATABASE_COUNT)
        .ok_or(Refusal::Said("ERR DB index is out of range"))
}

pub(crate) fn copy(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let (from, mut to, mut replace) = (context.db(), context.db(), false);
    let mut at = 3;
    while at < args.len() {
        match word(args[at]).as_str() {
            "replace" => replace = true,
            "db" if at + 1 < args.len() => {
                at += 1;
                let number = integer_or_refusal(args[at])?;
                to = database(number.to_string().as_bytes())?;
            }
            _ => return Err(SYNTAX),
        }
        at += 1;
    }
    if from == to && args[1] == args[2] {
        return Err(Refusal::Said("ERR source and destination objects are the same"));
    }
    let found = context.keys.get(from, args[1]);
    let there = context.keys.get_to_change(to, args[2]).is_some();
    let copied = match found {
        Some(found) if replace || !there => {
            if there {
                // It is removed first, and a key that is made anew counts as such.
                context.keys.notify(notice::NEW, "new", to, args[2]);
            }
            context.keys.copy(&found, to, args[2])?;
            context.keys.notify(notice::GENERIC, "copy_to", to, args[2]);
            true
        }
        _ => false,
    };
    context.reply.integer(i64::from(copied));
    Ok(())
}

pub(crate) fn move_to(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    integer_or_refusal(args[2])?;
    let (from, to) = (context.db(), database(args[2])?);
    if from == to {
        return Err(Refusal::Said("ERR source and destination objects are the same"));
    }
    let moved = match context.keys.get(from, args[1]) {
        Some(found) if context.keys.get(to, args[1]).is_none() => {
            context.keys.rename((from, args[1]), &found, (to, args[1]))?;
            context.keys.notify(notice::GENERIC, "move_from", from, args[1]);
            context.keys.notify(notice::GENERIC, "move_to", to, args[1]);
            true
        }
        _ => false,
    };
    context.reply.integer(i64::from(moved));
    Ok(())
}

pub(crate) fn randomkey(context: &mut Context<'_>, _args: &Arguments<'_>) -> Done {
    let key = context.keys.random_key(context.session.db);
    context.reply.bulk_or_null(key.as_deref());
    Ok(())
}

pub(crate) fn keys(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let mut fitting = Vec::new();
    context.keys.for_each(context.session.db, |key, _| {
        if glob(args[1], key, false) {
            fitting.push(key.to_vec());
        }
    });
    context.reply.list(fitting.len());
    fitting.iter().for_each(|key| context.reply.bulk(key));
    Ok(())
}

pub(crate) fn scan(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let cursor = std::str::from_utf8(args[1]).ok().and_then(|text| text.parse::<u64>().ok());
    let mut cursor = cursor.ok_or(Refusal::Said("ERR invalid cursor"))?;
    let (mut count, mut pattern, mut of_type) = (SCAN_COUNT, None, None);
    for option in args[2..].chunks(2) {
        let [name, argument] = option else { return Err(SYNTAX) };
        match word(name).as_str() {
            "count" => count = integer_or_refusal(argument)?,
            "match" => pattern = Some(*argument),
            "type" => of_type = Some(word(argument)),
            _ => return Err(SYNTAX),
        }
    }
    if count < 1 {
        return Err(SYNTAX);
    }
    let mut found = Vec::new();
    let mut buckets = 0;
    loop {
        cursor = context.keys.scan(context.session.db, cursor, &mut found);
        buckets += 1;
        if cursor == 0 || found.len() as i64 >= count || buckets >= count.saturating_mul(10) {
            break;
        }
    }
    found.retain(|(key, entry)| {
        pattern.is_none_or(|pattern| glob(pattern, key, false))
            && of_type.as_ref().is_none_or(|name| name == type_name(entry.header.kind))
    });
    context.reply.list(2);
    context.reply.bulk(cursor.to_string().as_bytes());
    context.reply.list(found.len());
    found.iter().for_each(|(key, _)| context.reply.bulk(key));
    Ok(())
}

pub(crate) fn object(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let subcommand = word(args[1]);
    if subcommand == "help" && args.len() == 2 {
        help(context, "object");
        return Ok(());
    }
    if args.len() != 3 {
        return Err(Refusal::Words(format!(
            "ERR unknown subcommand or wrong number of arguments for '{}'. Try OBJECT HELP.",
            String::from_utf8_lossy(args[1])
        )));
    }
    // Asked before the key counts as used by this.
    let (idle, frequency) = (context.keys.idle_ms(args[2]) / 1000, context.keys.frequency(args[2]));
    let found = match context.keys.is_expired(context.session.db, args[2]) {
        true => context.keys.get(context.session.db, args[2]),
        false => context.keys.as_it_is(context.session.db, args[2]),
    };
    match (subcommand.as_str(), found) {
        ("freq", None) => context.reply.null(),
        ("freq", Some(_)) if frequency.is_some() => {
            context.reply.count(frequency.unwrap_or(0).into())
        }
        ("freq", _) => {
            return Err(Refusal::Said(
                "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please \
                 note \
                 that when switching between policies at runtime LRU and LFU data will take some \
                 time to \
                 adjust.",
            ));
        }
        ("encoding" | "refcount" | "idletime", None) => context.reply.null(),
        ("encoding", Some(found)) => {
            let name = encoding::encoding(context, &found);
            context.reply.bulk(name);
        }
        ("refcount", Some(_)) => context.reply.integer(1),
        ("idletime", Some(_)) if frequency.is_some() => {
            return Err(Refusal::Said(
                "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that \
                 when \
                 switching between policies at runtime LRU and LFU data will take some time to \
                 adjust.",
            ));
        }
        ("idletime", Some(_)) => context.reply.count(idle),
        _ => {
            return Err(Refusal::Words(format!(
                "ERR unknown subcommand or wrong number of arguments for '{}'. Try OBJECT HELP.",
                String::from_utf8_lossy(args[1])
            )));
        }
    }
    Ok(())
}

/// EXPIRE and its sisters.
fn expire(
    context: &mut Context<'_>,
    args: &Arguments<'_>,
    name: &str,
    unit: i64,
    now: bool,
) -> Done {
    let base = if now { context.keys.now_ms() } else { 0 };
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for option in &args[3..] {
        match word(option).as_str() {
            "nx" => nx = true,
            "xx" => xx = true,
            "gt" => gt = true,
            "lt" => lt = true,
            _ => {
                let option = String::from_utf8_lossy(option);
                return Err(Refusal::Words(format!("ERR Unsupported option {option}")));
            }
        }
    }
    if nx && (xx || gt || lt) {
        return Err(Refusal::Said(
            "ERR NX and XX, GT or LT options at the same time are not compatible",
        ));
    }
    if gt && lt {
        return Err(Refusal::Said("ERR GT and LT options at the same time are not compatible"));
    }
    let at = expiry(integer_or_refusal(args[2])?, unit, base, name)?;
    let db = context.db();
    let Some(found) = context.keys.get(db, args[1]) else {
        context.reply.integer(0);
        return Ok(());
    };
    let old = found.header.expires;
    // A key that does not expire lives longest.
    let later = |old: u64| at > 0 && at as u64 > old;
    let refused = nx && old.is_some()
        || xx && old.is_none()
        || gt && !old.is_some_and(later)
        || lt && old.is_some_and(|old| at > 0 && at as u64 >= old);
    if refused {
        context.reply.integer(0);
        return Ok(());
    }
    // A primary says itself that a key is gone, maybe after it made it persist.
    let to_come = |at: &u64| context.keys.for_primary || *at > context.keys.now_ms();
    match u64::try_from(at).ok().filter(to_come) {
        Some(at) => {
            context.keys.set_expiry(db, args[1], &found, Some(at));
            context.notify(notice::GENERIC, "expire", args[1]);
        }
        None => {
            context.keys.remove(db, args[1]);
            context.notify(notice::GENERIC, "del", args[1]);
        }
    }
    context.reply.integer(1);
    Ok(())
}

pub(crate) fn expire_in(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    expire(context, args, "expire", 1000, true)
}

pub(crate) fn pexpire(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    expire(context, args, "pexpire", 1, true)
}

pub(crate) fn expireat(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    expire(context, args, "expireat", 1000, false)
}

pub(crate) fn pexpireat(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    expire(context, args, "pexpireat", 1, false)
}

pub(crate) fn persist(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let db = context.db();
    let found: Option<Found> = context.keys.get(db, args[1]);
    let persists = found.filter(|found| found.header.expires.is_some());
    if let Some(found) = &persists {
        context.keys.set_expiry(db, args[1], found, None);
        context.notify(notice::GENERIC, "persist", args[1]);
    }
    context.reply.integer(i64::from(persists.is_some()));
    Ok(())
}

/// The time left, or the time: -2 without a key, -1 without a time.
fn left(context: &mut Context<'_>, key: &[u8], unit: u64, from_now: bool) -> Done {
    let now = if from_now { context.keys.now_ms() } else { 0 };
    let found = context.keys.get(context.session.db, key);
    context.reply.integer(match found.map(|found| found.header.expires) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => {
            let left = at.saturating_sub(now);
            (if unit == 1 {
                left
            } else if from_now {
                (left + 500) / 1000
            } else {
                left / 1000
            }) as i64
        }
    });
    Ok(())
}

pub(crate) fn ttl(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    left(context, args[1], 1000, true)
}

pub(crate) fn pttl(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    left(context, args[1], 1, true)
}

pub(crate) fn expiretime(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    left(context, args[1], 1000, false)
}

pub(crate) fn pexpiretime(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    left(context, args[1], 1, false)
}

pub(crate) fn dbsize(context: &mut Context<'_>, _args: &Arguments<'_>) -> Done {
    let keys = context.keys.len(context.session.db);
    context.reply.count(keys);
    Ok(())
}

fn sync_or_async(args: &Arguments<'_>) -> Done {
    match args {
        [_] => Ok(()),
        [_, how] if matches!(word(how).as_str(), "sync" | "async") => Ok(()),
        _ => Err(SYNTAX),
    }
}

pub(crate) fn flushdb(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    sync_or_async(args)?;
    context.keys.flush(context.session.db);
    context.shared.tracking.emptied = context.shared.tracking.is_on();
    context.reply.ok();
    Ok(())
}

pub(crate) fn flushall(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    sync_or_async(args)?;
    (0..DATABASE_COUNT).for_each(|db| context.keys.flush(db));
    context.shared.tracking.emptied = context.shared.tracking.is_on();
    if context.keys.copied() == Copied::Part && !context.keys.for_primary {
        // Nothing is whole, and this server's own.
        context.keys.flush_libraries();
        context.keys.set_copied(Copied::Own);
    }
    context.reply.ok();
    Ok(())
}

pub(crate) fn swapdb(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let invalid = |which: &'static str| move |_| Refusal::Said(which);
    let one = integer(args[1]).ok_or(()).map_err(invalid("ERR invalid first DB index"))?;
    let other = integer(args[2]).ok_or(()).map_err(invalid("ERR invalid second DB index"))?;
    let one = database(one.to_string().as_bytes())?;
    let other = database(other.to_string().as_bytes())?;
    if one != other {
        context.keys.swap(one, other);
    }
    context.reply.ok();
    Ok(())
}
