//! DUMP and RESTORE: a value as bytes, in the form of Redis's dump files.

use super::arguments::{integer, integer_or_refusal};
use super::{Arguments, Context, Done, Refusal, SYNTAX, word};
use crate::keyspace::notice;
use crate::rdb::{self, Item, Limits};

pub(crate) fn dump(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    match context.keys.get(context.session.db, args[1]) {
        None => context.reply.null(),
        Some(found) => context.reply.bulk(&rdb::dump(&context.keys.content(&found))),
    }
    Ok(())
}

/// `RESTORE key ttl value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]`.
pub(crate) fn restore(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let (mut replace, mut absolute) = (false, false);
    let (mut idle_s, mut frequency) = (None, None);
    let mut options = args[4..].iter();
    while let Some(option) = options.next() {
        match word(option).as_str() {
            "replace" => replace = true,
            "absttl" => absolute = true,
            // They count if the policy asks for them, as in Redis.
            "idletime" if frequency.is_none() => {
                let idle = integer_or_refusal(options.next().ok_or(SYNTAX)?)?;
                let idle = u64::try_from(idle);
                idle_s = Some(
                    idle.map_err(|_| Refusal::Said("ERR Invalid IDLETIME value, must be >= 0"))?,
                );
            }
            "freq" if idle_s.is_none() => {
                let counter = integer_or_refusal(options.next().ok_or(SYNTAX)?)?;
                let counter = u8::try_from(counter);
                frequency = Some(counter.map_err(|_| {
                    Refusal::Said("ERR Invalid FREQ value, must be >= 0 and <= 255")
                })?);
            }
            _ => return Err(SYNTAX),
        }
    }
    let (db, key) = (context.db(), args[1]);
    if !replace && context.keys.get(db, key).is_some() {
        return Err(Refusal::Said("BUSYKEY Target key name already exists."));
    }
    let time =
        integer(args[2]).ok_or(Refusal::Said("ERR value is not an integer or out of range"))?;
    let time =
        u64::try_from(time).map_err(|_| Refusal::Said("ERR Invalid TTL value, must be >= 0"))?;
    let base = if absolute { 0 } else { context.keys.now_ms() };
    let expires = (time > 0).then(|| time.saturating_add(base));
    let content = rdb::restore(args[3], key, Limits::of_tier(context.keys.heap().size()));
    let content = content.map_err(|error| match error {
        rdb::Error::Damaged { what: rdb::UNSIGNED, .. } => {
            Refusal::Said("ERR DUMP payload version or checksum are wrong")
        }
        rdb::Error::LargeValue { .. } | rdb::Error::Unsupported { .. } => {
            Refusal::Words(format!("ERR {error}"))
        }
        _ => Refusal::Said("ERR Bad data format"),
    })?;
    // A primary says itself that a key is gone.
    let gone = |at: u64| at <= context.keys.now_ms() && !context.keys.for_primary;
    if expires.is_some_and(gone) {
        if context.keys.remove(db, key) {
            context.notify(notice::GENERIC, "del", key);
        }
    } else {
        let there = context.keys.as_it_is(db, key).is_some();
        let item = Item { db: db.into(), key: key.to_vec(), content, expires };
        let made_anew = there && !matches!(item.content, rdb::Content::Hash(_));
        if made_anew {
            context.notify(notice::NEW, "new", key);
        }
        context.keys.put_loaded(db, &item)?;
        context.keys.set_use(key, idle_s, frequency);
        context.notify(notice::GENERIC, "restore", key);
    }
    context.reply.ok();
    Ok(())
}
