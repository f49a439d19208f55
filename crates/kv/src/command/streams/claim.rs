//! XCLAIM and XAUTOCLAIM.

use super::super::arguments::integer;
use super::super::{Arguments, Context, Done, Refusal, Reply, SYNTAX, word};
use super::effects::Of;
use super::read::consumer;
use super::{id, range_start, reply_id, reply_range, stream, text};
use crate::format::stream::Id;
use crate::keyspace::{Child, Pending};

/// Records that XAUTOCLAIM looks at for each that it may claim.
const ATTEMPTS: u64 = 10;

fn number(argument: &[u8], what: &'static str) -> Result<i64, Refusal> {
    integer(argument).ok_or(Refusal::Said(what))
}

/// The stream of a key and a group of it.
fn stream_and_group(
    context: &mut Context<'_>,
    args: &Arguments<'_>,
) -> Result<(u64, Child), Refusal> {
    if let Some(node) = stream(context, args[1])?
        && let Some(group) = context.keys.named_child(node, args[2])
    {
        return Ok((node, group));
    }
    let (key, group) = (text(args[1]), text(args[2]));
    Err(Refusal::Words(format!("NOGROUP No such key '{key}' or consumer group '{group}'")))
}

/// What XCLAIM is told behind the IDs.
struct Options {
    time: u64,
    count: Option<u64>,
    force: bool,
    just_id: bool,
    last: Id,
}

impl Options {
    fn read(args: &Arguments<'_>, now: u64, latest: u64) -> Result<Options, Refusal> {
        let (mut time, mut count) = (None, None);
        let (mut force, mut just_id, mut last) = (false, false, Id::MIN);
        let mut rest = args.iter();
        while let Some(option) = rest.next() {
            let more = !rest.as_slice().is_empty();
            let mut next = || rest.next().copied().unwrap_or_default();
            match word(option).as_str() {
                "force" => force = true,
                "justid" => just_id = true,
                "idle" if more => {
                    let idle = number(next(), "ERR Invalid IDLE option argument for XCLAIM")?;
                    time = Some(now.cast_signed().wrapping_sub(idle));
                }
                "time" if more => {
                    time = Some(number(next(), "ERR Invalid TIME option argument for XCLAIM")?);
                }
                "retrycount" if more => {
                    count =
                        Some(number(next(), "ERR Invalid RETRYCOUNT option argument for XCLAIM")?);
                }
                "lastid" if more => last = id(next(), 0)?,
                _ => {
                    let option = text(option);
                    return Err(Refusal::Words(format!(
                        "ERR Unrecognized XCLAIM option '{option}'"
                    )));
                }
            }
        }
        // A time that is to come is now, but for a primary, whose clock may be ahead.
        let time = time
            .and_then(|time| u64::try_from(time).ok())
            .filter(|time| *time <= latest)
            .unwrap_or(now);
        let count = count.and_then(|count| u64::try_from(count).ok());
        Ok(Options { time, count, force, just_id, last })
    }
}

/// Who claims, and what it is told.
struct Claim<'a> {
    key: &'a [u8],
    node: u64,
    group: &'a Child,
    name: &'a [u8],
    consumer: Option<u64>,
    just_id: bool,
    body: Vec<u8>,
    count: usize,
}

impl Claim<'_> {
    fn consumer(&mut self, context: &mut Context<'_>) -> Result<u64, Refusal> {
        match self.consumer {
            Some(consumer) => Ok(consumer),
            None => {
                Ok(*self.consumer.insert(consumer(context, self.key, self.group.node, self.name)?))
            }
        }
    }

    fn of(&self) -> Of<'_> {
        Of { key: self.key, group: self.group, consumer: self.name }
    }

    /// Removes a record whose entry is gone.
    fn forget(&self, context: &mut Context<'_>, pending: &Pending) {
        context.keys.acknowledge(self.group.node, pending);
        self.of().gone(context, pending.id);
    }

    fn reply(&mut self, context: &Context<'_>, id: Id) {
        let mut reply = Reply { out: &mut self.body, resp3: context.reply.resp3 };
        if self.just_id {
            reply_id(&mut reply, id);
        } else {
            reply_range(context.keys, &mut reply, self.node, (id, id), false, 1);
        }
        self.count += 1;
    }

    /// Gives a record, or an entry that nobody has, to who claims.
    fn take(
        &mut self,
        context: &mut Context<'_>,
        pending: Option<&Pending>,
        id: Id,
        (time, count): (u64, u64),
    ) -> Done {
        let consumer = self.consumer(context)?;
        match pending {
            Some(pending) => context.keys.hand_over(pending, consumer, (time, count))?,
            None => context.keys.deliver(self.group.node, consumer, id, (time, count))?,
        }
        self.of().pending(context, id, (time, count));
        self.reply(context, id);
        Ok(())
    }
}

/// Whether it is too short ago that a record was delivered.
fn is_fresh(pending: &Pending, now: u64, idle: u64) -> bool {
    idle > 0 && i128::from(now) - i128::from(pending.time) < i128::from(idle)
}

pub(crate) fn xclaim(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let (node, group) = stream_and_group(context, args)?;
    let idle = number(args[4], "ERR Invalid min-idle-time argument for XCLAIM")?;
    let idle = u64::try_from(idle).unwrap_or(0);
    let ids: Vec<Id> = args[5..].iter().map_while(|text| id(text, 0).ok()).collect();
    let now = context.keys.now_ms();
    let latest = if context.keys.for_primary { u64::MAX } else { now };
    let options = Options::read(&args[5 + ids.len()..], now, latest)?;
    let (last, read) = context.keys.group_facts(group.node);
    if options.last > last {
        context.keys.set_group(group.node, options.last, read);
        Of { key: args[1], group: &group, consumer: args[3] }.progress(context);
    }
    let mut claim = Claim {
        key: args[1],
        node,
        group: &group,
        name: args[3],
        consumer: None,
        just_id: options.just_id,
        body: Vec::new(),
        count: 0,
    };
    for id in ids {
        let pending = context.keys.pending(group.node, id);
        if !context.keys.is_in_stream(node, id) {
            if let Some(pending) = pending {
                claim.forget(context, &pending);
            }
            continue;
        }
        if pending.is_none() && !options.force
            || pending.is_some_and(|one| is_fresh(&one, now, idle))
        {
            continue;
        }
        // One that is made counts as delivered once already, as in Redis.
        let before = pending.map_or(1, |pending| pending.count);
        let count = options.count.unwrap_or(before.wrapping_add(u64::from(!options.just_id)));
        claim.take(context, pending.as_ref(), id, (options.time, count))?;
    }
    context.reply.list(claim.count);
    context.reply.out.append(&mut claim.body);
    Ok(())
}

pub(crate) fn xautoclaim(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let idle = number(args[4], "ERR Invalid min-idle-time argument for XAUTOCLAIM")?;
    let idle = u64::try_from(idle).unwrap_or(0);
    let start = range_start(args[5])?;
    let (mut most, mut just_id) = (100, false);
    let mut rest = args[6..].iter();
    while let Some(option) = rest.next() {
        match (word(option).as_str(), rest.as_slice()) {
            ("count", [count, ..]) => {
                rest.next();
                let count = integer(count)
                    .ok_or(Refusal::Said("ERR value is not an integer or out of range"));
                most = count.ok().and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
                if !(1..=i64::MAX as u64 / 16).contains(&most) {
                    return Err(Refusal::Said("ERR COUNT must be > 0"));
                }
            }
            ("justid", _) => just_id = true,
            _ => return Err(SYNTAX),
        }
    }
    let (node, group) = stream_and_group(context, args)?;
    let now = context.keys.now_ms();
    let attempts = most.saturating_mul(ATTEMPTS);
    let mut looked_at = Vec::new();
    context.keys.for_pending(group.node, start, |one| {
        looked_at.push(one);
        looked_at.len() as u64 <= attempts
    });
    let mut claim = Claim {
        key: args[1],
        node,
        group: &group,
        name: args[3],
        consumer: None,
        just_id,
        body: Vec::new(),
        count: 0,
    };
    let (mut left, mut gone, mut done) = (most, Vec::new(), 0);
    for pending in &looked_at {
        if left == 0 || done as u64 == attempts {
            break;
        }
        done += 1;
        if !context.keys.is_in_stream(node, pending.id) {
            claim.forget(context, pending);
            gone.push(pending.id);
            left -= 1;
        } else if !is_fresh(pending, now, idle) {
            let count = pending.count.wrapping_add(u64::from(!just_id));
            claim.take(context, Some(pending), pending.id, (now, count))?;
            left -= 1;
        }
    }
    context.reply.list(3);
    reply_id(&mut context.reply, looked_at.get(done).map_or(Id::MIN, |next| next.id));
    context.reply.list(claim.count);
    context.reply.out.append(&mut claim.body);
    context.reply.list(gone.len());
    gone.into_iter().for_each(|id| reply_id(&mut context.reply, id));
    Ok(())
}
