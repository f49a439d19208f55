//! XADD, XTRIM, XDEL, XSETID, XLEN.

use super::super::arguments::integer_or_refusal;
use super::super::{Arguments, Context, Done, Refusal, SYNTAX, word, wrong_count};
use super::{INVALID_ID, NO_KEY, effects, id, id_or_open, ids, reply_id, stream};
use crate::format::entry::LENGTH_MAX;
use crate::format::stream::Id;
use crate::keyspace::{NodeLimits, Trim, TrimTo, notice};

/// Bytes that an entry takes beside its names and values, for each of them.
const FIELD: u64 = 16;

/// The ID that an entry gets.
#[derive(Clone, Copy)]
enum Wanted {
    /// One that the server makes.
    Any,
    /// One of this millisecond.
    Of(u64),
    This(Id),
}

/// What XADD and XTRIM are told beside the entry.
struct Options {
    trim: Option<TrimTo>,
    whole: bool,
    limit: Option<i64>,
    no_stream: bool,
    wanted: Wanted,
    /// Arguments up to the ID, or all.
    read: usize,
}

/// Entries that are trimmed at most with `~`, if nothing is said: those of 100 full blocks.
fn usual_limit(limits: NodeLimits) -> u64 {
    match limits.entries.saturating_mul(100) {
        0 => 10_000,
        many => many.min(1_000_000),
    }
}

impl Options {
    fn read(args: &Arguments<'_>, add: bool) -> Result<Options, Refusal> {
        const BOTH: Refusal = Refusal::Said(
            "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
        );
        let mut all = Options {
            trim: None,
            whole: false,
            limit: None,
            no_stream: false,
            wanted: Wanted::Any,
            read: args.len(),
        };
        let mut at = 2;
        while at < args.len() {
            let more = args.len() - 1 - at;
            let name = word(args[at]);
            match name.as_str() {
                "*" if add => {
                    all.read = at;
                    break;
                }
                "maxlen" | "minid" if more > 0 => {
                    if all.trim.is_some() {
                        return Err(BOTH);
                    }
                    let how = args[at + 1];
                    all.whole = more > 1 && how == b"~";
                    at += 1 + usize::from(all.whole || more > 1 && how == b"=");
                    all.trim = Some(match name.as_str() {
                        "minid" => TrimTo::Id(id(args[at], 0)?),
                        _ => {
                            let most = integer_or_refusal(args[at])?;
                            const NEGATIVE: Refusal =
                                Refusal::Said("ERR The MAXLEN argument must be >= 0.");
                            TrimTo::Length(u64::try_from(most).map_err(|_| NEGATIVE)?)
                        }
                    });
                }
                "limit" if more > 0 => {
                    at += 1;
                    let limit = integer_or_refusal(args[at])?;
                    if limit < 0 {
                        return Err(Refusal::Said("ERR The LIMIT argument must be >= 0."));
                    }
                    all.limit = Some(limit);
                }
                "nomkstream" if add => all.no_stream = true,
                _ if add => {
                    all.wanted = match id_or_open(args[at]).ok_or(INVALID_ID)? {
                        (ms, None) => Wanted::This(Id { ms, seq: 0 }),
                        (ms, Some(Some(seq))) => Wanted::This(Id { ms, seq }),
                        (ms, Some(None)) => Wanted::Of(ms),
                    };
                    all.read = at;
                    break;
                }
                _ => return Err(SYNTAX),
            }
            at += 1;
        }
        if all.limit.is_some_and(|limit| limit > 0) && all.trim.is_none() {
            return Err(Refusal::Said(
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
            ));
        }
        if !add && all.trim.is_none() {
            return Err(Refusal::Said(
                "ERR syntax error, XTRIM must be called with a trimming strategy",
            ));
        }
        Ok(all)
    }

    /// What is trimmed. A primary's command is not limited: it says what is left.
    fn trim(&self, for_primary: bool, limits: NodeLimits) -> Result<Option<Trim>, Refusal> {
        let limit = match self.limit {
            _ if for_primary => 0,
            Some(_) if !self.whole => {
                return Err(Refusal::Said(
                    "ERR syntax error, LIMIT cannot be used without the special ~ option",
                ));
            }
            Some(limit) => limit.unsigned_abs(),
            None if self.whole => usual_limit(limits),
            None => 0,
        };
        Ok(self.trim.map(|to| Trim { to, whole: self.whole, limit }))
    }
}

/// The ID of the next entry, whose stream has given `last`.
fn next_id(wanted: Wanted, last: Id, now_ms: u64) -> Result<Id, Refusal> {
    const SMALLER: Refusal = Refusal::Said(
        "ERR The ID specified in XADD is equal or smaller than the target stream top item",
    );
    let id = match wanted {
        Wanted::This(id) => id,
        Wanted::Of(ms) if ms == last.ms => Id { ms, seq: last.seq.checked_add(1).ok_or(SMALLER)? },
        Wanted::Of(ms) => Id { ms, seq: 0 },
        Wanted::Any if now_ms > last.ms => Id { ms: now_ms, seq: 0 },
        Wanted::Any => last.next().ok_or(SMALLER)?,
    };
    if id > last { Ok(id) } else { Err(SMALLER) }
}

pub(crate) fn xadd(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let limits = context.shared.configuration.hot.stream_node;
    let options = Options::read(args, true)?;
    let trim = options.trim(context.keys.for_primary, limits)?;
    let fields = args.get(options.read + 1..).unwrap_or_default();
    if fields.is_empty() || !fields.len().is_multiple_of(2) {
        return Err(wrong_count("xadd"));
    }
    if matches!(options.wanted, Wanted::This(Id::MIN)) {
        return Err(Refusal::Said("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let (db, key) = (context.db(), args[1]);
    let node = match stream(context, key)? {
        Some(node) => node,
        None if options.no_stream => {
            context.reply.null();
            return Ok(());
        }
        None => context.keys.make_stream(db, key, None)?,
    };
    let last = context.keys.stream_facts(node).last;
    if last == Id::MAX {
        return Err(Refusal::Said(
            "ERR The stream has exhausted the last possible ID, unable to add more items",
        ));
    }
    let id = next_id(options.wanted, last, context.keys.now_ms())?;
    let len: u64 = fields.iter().map(|field| field.len() as u64 + FIELD).sum();
    if len + 64 > LENGTH_MAX {
        return Err(Refusal::Said("ERR Elements are too large to be stored"));
    }
    let pairs: Vec<(&[u8], &[u8])> =
        fields.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    context.keys.add_to_stream(node, id, &pairs, limits)?;
    context.notify(notice::STREAM, "xadd", key);
    let removed = trim.map_or(0, |trim| context.keys.trim_stream(node, &trim));
    context.keys.touch(db, key);
    if removed > 0 {
        context.notify(notice::STREAM, "xtrim", key);
    }
    let left = (removed > 0).then(|| context.keys.stream_facts(node).length);
    effects::added(context, key, id, fields, left);
    reply_id(&mut context.reply, id);
    Ok(())
}

pub(crate) fn xtrim(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let limits = context.shared.configuration.hot.stream_node;
    let trim = Options::read(args, false)?.trim(context.keys.for_primary, limits)?;
    let mut removed = 0;
    if let (Some(node), Some(trim)) = (stream(context, args[1])?, trim) {
        removed = context.keys.trim_stream(node, &trim);
        if removed > 0 {
            context.keys.touch(context.session.db, args[1]);
            let left = context.keys.stream_facts(node).length;
            effects::trimmed(context, args[1], left);
            context.notify(notice::STREAM, "xtrim", args[1]);
        }
    }
    context.reply.count(removed);
    Ok(())
}

pub(crate) fn xdel(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let Some(node) = stream(context, args[1])? else {
        context.reply.integer(0);
        return Ok(());
    };
    let mut removed = 0;
    for id in ids(&args[2..])? {
        if context.keys.remove_from_stream(node, id)? {
            removed += 1;
            let facts = context.keys.stream_facts(node);
            if id > facts.removed {
                context.keys.set_stream_facts(node, facts.last, None, Some(id));
            }
        }
    }
    if removed > 0 {
        context.keys.touch(context.session.db, args[1]);
        context.notify(notice::STREAM, "xdel", args[1]);
    }
    context.reply.count(removed);
    Ok(())
}

pub(crate) fn xlen(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let length = stream(context, args[1])?.map_or(0, |node| context.keys.stream_facts(node).length);
    context.reply.count(length);
    Ok(())
}

/// `XSETID key id [ENTRIESADDED n] [MAXDELETEDID id]`.
pub(crate) fn xsetid(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let last = id(args[2], 0)?;
    let (mut added, mut removed) = (None, Id::MIN);
    let mut options = args[3..].iter();
    while let Some(option) = options.next() {
        let name = word(option);
        match (name.as_str(), options.next()) {
            ("entriesadded", Some(text)) => {
                let number = u64::try_from(integer_or_refusal(text)?);
                added =
                    Some(number.map_err(|_| Refusal::Said("ERR entries_added must be positive"))?);
            }
            ("maxdeletedid", Some(text)) => {
                removed = id(text, 0)?;
                if last < removed {
                    return Err(Refusal::Said(
                        "ERR The ID specified in XSETID is smaller than the provided \
                         max_deleted_entry_id",
                    ));
                }
            }
            _ => return Err(SYNTAX),
        }
    }
    let node = stream(context, args[1])?.ok_or(NO_KEY)?;
    let facts = context.keys.stream_facts(node);
    if facts.length > 0 {
        if context.keys.stream_end(node, true).is_some_and(|end| last < end) {
            return Err(Refusal::Said(
                "ERR The ID specified in XSETID is smaller than the target stream top item",
            ));
        }
        if added.is_some_and(|added| facts.length > added) {
            return Err(Refusal::Said(
                "ERR The entries_added specified in XSETID is smaller than the target stream \
                 length",
            ));
        }
    }
    context.keys.set_stream_facts(node, last, added, (removed != Id::MIN).then_some(removed));
    context.keys.note_change();
    context.notify(notice::STREAM, "xsetid", args[1]);
    context.reply.ok();
    Ok(())
}
