//! XRANGE, XREVRANGE, XREAD, XREADGROUP.

use super::super::arguments::integer_or_refusal;
use super::super::blocking::{Waits, wait_for};
use super::super::strings::WRONG_TYPE;
use super::super::{Arguments, Context, Done, Refusal, Reply, SYNTAX, word};
use super::effects::Of;
use super::{
    id, range_end, range_start, reply_entry, reply_id, reply_list, reply_range, stream, text,
};
use crate::format::stream::Id;
use crate::keyspace::{Child, notice};

/// Entries that a client gets at most that waited and did not say how many it wants, as in Redis.
const WAITED_COUNT: &[u8] = b"1000";

fn range(context: &mut Context<'_>, args: &Arguments<'_>, reverse: bool) -> Done {
    let (start, end) = if reverse { (args[3], args[2]) } else { (args[2], args[3]) };
    let range = (range_start(start)?, range_end(end)?);
    let mut count = None;
    for option in args[4..].chunks(2) {
        match option {
            [name, number] if word(name) == "count" => {
                count = Some(u64::try_from(integer_or_refusal(number)?).unwrap_or(0));
            }
            _ => return Err(SYNTAX),
        }
    }
    match (stream(context, args[1])?, count) {
        (None, _) => context.reply.list(0),
        (Some(_), Some(0)) => context.reply.null_list(),
        (Some(node), count) => reply_list(context, node, range, reverse, count.unwrap_or(0)),
    }
    Ok(())
}

pub(crate) fn xrange(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    range(context, args, false)
}

pub(crate) fn xrevrange(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    range(context, args, true)
}

/// What XREAD or XREADGROUP is told.
struct Read<'a> {
    waits: Option<(Waits, &'a [u8])>,
    count: Option<&'a [u8]>,
    most: u64,
    group: Option<(&'a [u8], &'a [u8])>,
    no_ack: bool,
    keys: &'a [&'a [u8]],
    ids: &'a [&'a [u8]],
}

/// From where a stream is read.
#[derive(Clone, Copy)]
enum From {
    Behind(Id),
    /// Behind what the group was given last.
    New,
}

impl<'a> Read<'a> {
    fn of(args: &'a Arguments<'a>, in_script: bool, group: bool) -> Result<Read<'a>, Refusal> {
        let mut all = Read {
            waits: None,
            count: None,
            most: 0,
            group: None,
            no_ack: false,
            keys: &[],
            ids: &[],
        };
        let mut at = 1;
        while at < args.len() {
            let more = args.len() - 1 - at;
            match word(args[at]).as_str() {
                "block" if more > 0 => {
                    if in_script {
                        return Err(Refusal::Words(format!(
                            "ERR {} command is not allowed with BLOCK option from scripts",
                            text(args[0])
                        )));
                    }
                    at += 1;
                    all.waits = Some((Waits::of_ms(args[at])?, args[at]));
                }
                "count" if more > 0 => {
                    at += 1;
                    all.most = u64::try_from(integer_or_refusal(args[at])?).unwrap_or(0);
                    all.count = (all.most > 0).then_some(args[at]);
                }
                "streams" if more > 0 => {
                    let rest = &args[at + 1..];
                    if !rest.len().is_multiple_of(2) {
                        return Err(Refusal::Said(
                            "ERR Unbalanced XREAD list of streams: for each stream key an ID or \
                             '$' must be \
                             specified.",
                        ));
                    }
                    (all.keys, all.ids) = rest.split_at(rest.len() / 2);
                    break;
                }
                "group" if more > 1 && group => {
                    all.group = Some((args[at + 1], args[at + 2]));
                    at += 2;
                }
                "noack" if group => all.no_ack = true,
                name @ ("group" | "noack") if name == "noack" || more > 1 => {
                    return Err(Refusal::Words(format!(
                        "ERR The {} option is only supported by XREADGROUP. You called XREAD \
                         instead.",
                        name.to_ascii_uppercase()
                    )));
                }
                _ => return Err(SYNTAX),
            }
            at += 1;
        }
        if all.keys.is_empty() {
            return Err(SYNTAX);
        }
        if group && all.group.is_none() {
            return Err(Refusal::Said("ERR Missing GROUP option for XREADGROUP"));
        }
        Ok(all)
    }

    /// From where each stream is read.
    fn places(&self, context: &mut Context<'_>) -> Result<Vec<From>, Refusal> {
        const NO_END: Refusal = Refusal::Said(
            "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the \
             history of this \
             consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID \
             would just \
             return an empty result set.",
        );
        const NO_NEW: Refusal = Refusal::Said(
            "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> \
             <consumer> \
             option.",
        );
        let mut places = Vec::new();
        for (key, from) in self.keys.iter().zip(self.ids) {
            let node = stream(context, key)?;
            if let Some((group, _)) = self.group
                && node.and_then(|node| context.keys.named_child(node, group)).is_none()
            {
                return Err(Refusal::Words(format!(
                    "NOGROUP No such key '{}' or consumer group '{}' in XREADGROUP with GROUP \
                     option",
                    text(key),
                    text(group)
                )));
            }
            places.push(match *from {
                b"$" if self.group.is_some() => return Err(NO_END),
                b"$" => {
                    From::Behind(node.map_or(Id::MIN, |node| context.keys.stream_facts(node).last))
                }
                b">" if self.group.is_none() => return Err(NO_NEW),
                b">" => From::New,
                from => match id(from, 0)? {
                    // As in Redis, which marks the new ones with this ID.
                    Id::MAX if self.group.is_some() => From::New,
                    id => From::Behind(id),
                },
            });
        }
        Ok(places)
    }

    /// The command as it is executed again for a key that has changed.
    fn again(&self, places: &[From]) -> Vec<Vec<u8>> {
        let mut words: Vec<Vec<u8>> = Vec::new();
        let mut say = |word: &[u8]| words.push(word.to_vec());
        match self.group {
            None => say(b"XREAD"),
            Some((group, consumer)) => {
                [&b"XREADGROUP"[..], b"GROUP", group, consumer].into_iter().for_each(&mut say);
            }
        }
        if self.no_ack {
            say(b"NOACK");
        }
        let waits = self.waits.as_ref().map_or(&b"0"[..], |(_, text)| text);
        let count = self.count.unwrap_or(WAITED_COUNT);
        [&b"COUNT"[..], count, b"BLOCK", waits, b"STREAMS"].into_iter().for_each(&mut say);
        self.keys.iter().for_each(|key| say(key));
        for place in places {
            match place {
                From::Behind(id) => say(id.to_string().as_bytes()),
                From::New => say(b">"),
            }
        }
        words
    }
}

/// Gives a group the entries behind what it was given last; the reply's entries and their number.
fn give_new(
    context: &mut Context<'_>,
    (key, node): (&[u8], u64),
    group: &Child,
    (name, consumer): (&[u8], u64),
    read: &Read<'_>,
) -> Result<(usize, Vec<u8>), Refusal> {
    let of = Of { key, group, consumer: name };
    of.consumer_is_there(context);
    let (mut last, mut count) = context.keys.group_facts(group.node);
    let mut body = Vec::new();
    let mut reply = Reply { out: &mut body, resp3: context.reply.resp3 };
    let from = (last.next().unwrap_or(Id::MAX), Id::MAX);
    let ids = reply_range(context.keys, &mut reply, node, from, false, read.most);
    let facts = context.keys.stream_facts(node);
    let now = context.keys.now_ms();
    for id in &ids {
        count = match count {
            Some(count) if !facts.has_gap_from(*id) => Some(count.wrapping_add(1)),
            _ if facts.added > 0 => facts.read_up_to(*id),
            count => count,
        };
        last = *id;
        if !read.no_ack {
            context.keys.deliver(group.node, consumer, *id, (now, 1))?;
            of.pending(context, *id, (now, 1));
        }
    }
    context.keys.set_group(group.node, last, count);
    of.progress(context);
    Ok((ids.len(), body))
}

/// What a consumer was given behind an ID and has not acknowledged.
fn give_again(
    context: &mut Context<'_>,
    of: &Of<'_>,
    node: u64,
    consumer: u64,
    (behind, most): (Id, u64),
) -> Result<(usize, Vec<u8>), Refusal> {
    let mut pending = Vec::new();
    // Behind the highest ID Redis begins anew.
    context.keys.for_pending(consumer, behind.next().unwrap_or(Id::MIN), |one| {
        pending.push(one);
        most == 0 || (pending.len() as u64) < most
    });
    let mut body = Vec::new();
    let now = context.keys.now_ms();
    for one in &pending {
        let mut reply = Reply { out: &mut body, resp3: context.reply.resp3 };
        let mut there = false;
        context.keys.for_stream(node, (one.id, one.id), false, |id, pairs| {
            reply_entry(&mut reply, id, &pairs);
            there = true;
            false
        });
        if !there {
            reply.list(2);
            reply_id(&mut reply, one.id);
            reply.null_list();
        }
        if there {
            let again = (now, one.count.wrapping_add(1));
            context.keys.hand_over(one, consumer, again)?;
            of.pending(context, one.id, again);
        }
    }
    Ok((pending.len(), body))
}

/// The consumer of a group, which is made if it is not there, and was seen now.
pub(super) fn consumer(
    context: &mut Context<'_>,
    key: &[u8],
    group: u64,
    name: &[u8],
) -> Result<u64, Refusal> {
    let now = context.keys.now_ms();
    match context.keys.named_child(group, name) {
        Some(consumer) => {
            context.keys.set_seen(consumer.node, now);
            Ok(consumer.node)
        }
        None => {
            let consumer = context.keys.make_consumer(group, name, now)?;
            context.notify(notice::STREAM, "xgroup-createconsumer", key);
            Ok(consumer)
        }
    }
}

/// What a stream has for the client, if it has something.
fn serve(
    context: &mut Context<'_>,
    read: &Read<'_>,
    key: &[u8],
    from: From,
) -> Result<Option<(usize, Vec<u8>)>, Refusal> {
    let Some(node) = stream(context, key)? else { return Ok(None) };
    let newest = context.keys.stream_end(node, true);
    let Some((group, name)) = read.group else {
        let From::Behind(behind) = from else { return Ok(None) };
        if newest.is_none_or(|newest| newest <= behind) {
            return Ok(None);
        }
        let mut body = Vec::new();
        let mut reply = Reply { out: &mut body, resp3: context.reply.resp3 };
        let range = (behind.next().unwrap_or(Id::MAX), Id::MAX);
        let ids = reply_range(context.keys, &mut reply, node, range, false, read.most);
        return Ok(Some((ids.len(), body)));
    };
    let Some(group) = context.keys.named_child(node, group) else { return Ok(None) };
    match from {
        From::Behind(behind) => {
            let consumer = consumer(context, key, group.node, name)?;
            let of = Of { key, group: &group, consumer: name };
            of.consumer_is_there(context);
            give_again(context, &of, node, consumer, (behind, read.most)).map(Some)
        }
        From::New => {
            let last = context.keys.group_facts(group.node).0;
            if newest.is_none_or(|newest| newest <= last) {
                return Ok(None);
            }
            let consumer = consumer(context, key, group.node, name)?;
            give_new(context, (key, node), &group, (name, consumer), read).map(Some)
        }
    }
}

/// Whether the client can still wait for a key that has changed.
fn may_wait(context: &mut Context<'_>, read: &Read<'_>, key: &[u8]) -> Result<bool, Refusal> {
    let node = match stream(context, key) {
        Err(Refusal::Said(said)) if said == WRONG_TYPE.text() => None,
        other => other?,
    };
    let Some((group, _)) = read.group else { return Ok(node.is_some()) };
    let Some(node) = node else {
        return Err(Refusal::Said("UNBLOCKED the stream key no longer exists"));
    };
    if context.keys.named_child(node, group).is_none() {
        return Err(Refusal::Said(
            "NOGROUP the consumer group this client was blocked on no longer exists",
        ));
    }
    Ok(true)
}

fn read(context: &mut Context<'_>, args: &Arguments<'_>, group: bool) -> Done {
    let read = Read::of(args, context.shared.in_script, group)?;
    let waking = context.shared.waking.clone();
    if let Some(key) = &waking
        && !may_wait(context, &read, key)?
    {
        let (waits, _) = read.waits.ok_or(SYNTAX)?;
        wait_for(context, read.keys, args, waits);
        return Ok(());
    }
    let places = match &waking {
        None => read.places(context)?,
        Some(_) => {
            let new = |from: &&[u8]| {
                if *from == b">" { Ok(From::New) } else { id(from, 0).map(From::Behind) }
            };
            read.ids.iter().map(new).collect::<Result<_, _>>()?
        }
    };
    let mut served = Vec::new();
    for (key, from) in read.keys.iter().zip(&places) {
        // Of another key those who wait longer come first.
        if waking.as_ref().is_none_or(|woken| woken == key)
            && let Some(found) = serve(context, &read, key, *from)?
        {
            served.push((*key, found));
        }
    }
    if served.is_empty() {
        return match read.waits {
            None => {
                context.reply.null_list();
                Ok(())
            }
            Some(_) if context.shared.in_exec => {
                context.reply.null_list();
                Ok(())
            }
            Some((waits, _)) => {
                let again = read.again(&places);
                let again: Vec<&[u8]> = again.iter().map(Vec::as_slice).collect();
                wait_for(context, read.keys, &again, waits);
                Ok(())
            }
        };
    }
    if context.reply.resp3 {
        context.reply.map(served.len());
    } else {
        context.reply.list(served.len());
    }
    for (key, (count, mut body)) in served {
        if !context.reply.resp3 {
            context.reply.list(2);
        }
        context.reply.bulk(key);
        context.reply.list(count);
        context.reply.out.append(&mut body);
    }
    Ok(())
}

pub(crate) fn xread(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    read(context, args, false)
}

pub(crate) fn xreadgroup(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    read(context, args, true)
}
