//! HyperLogLogs: how many different elements were added, within about one per cent, in 12 KiB.
//!
//! They are strings in Redis's own form (`registers.rs`), so a dump, a copy or a primary's data
//! have them already, and RDB, DUMP and `check` need to know nothing of them.
//!
//! Deliberately absent: the count that Redis caches in the value. PFCOUNT computes it each time: a
//! command that only reads must not wait for a fence. What is written here says that nothing is
//! cached, which Redis understands; what a cached count says is not believed.

mod registers;

use super::strings::{put, string};
use super::{Arguments, Context, Done, Refusal};
use crate::keyspace::notice;
use registers::{Invalid, Registers};

impl From<Invalid> for Refusal {
    fn from(invalid: Invalid) -> Refusal {
        Refusal::Said(match invalid {
            Invalid::Other => "WRONGTYPE Key is not a valid HyperLogLog string value.",
            Invalid::Corrupt => "INVALIDOBJ Corrupted HLL object detected",
        })
    }
}

/// What a key holds.
#[derive(Default)]
struct Kept {
    registers: Box<Registers>,
    expires: Option<u64>,
}

fn kept(context: &mut Context<'_>, key: &[u8]) -> Result<Option<Kept>, Refusal> {
    let Some(found) = string(context, key)? else { return Ok(None) };
    // A long string is none, and is not read to learn that.
    if found.header.value_len > registers::BYTES_MAX as u64 {
        return Err(Invalid::Other.into());
    }
    let registers = Registers::decode(&context.keys.value(&found))?;
    Ok(Some(Kept { registers, expires: found.header.expires }))
}

pub(crate) fn pfadd(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let found = kept(context, args[1])?;
    let mut changed = found.is_none();
    let Kept { registers: mut all, expires } = found.unwrap_or_default();
    for element in &args[2..] {
        changed |= all.add(element);
    }
    if changed {
        put(context, args[1], &all.encode(), expires)?;
        context.notify(notice::STRING, "pfadd", args[1]);
    }
    context.reply.integer(i64::from(changed));
    Ok(())
}

pub(crate) fn pfcount(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let mut all = Box::<Registers>::default();
    for key in &args[1..] {
        if let Some(more) = kept(context, key)? {
            all.merge(&more.registers);
        }
    }
    context.reply.count(all.count());
    Ok(())
}

pub(crate) fn pfmerge(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let Kept { registers: mut all, expires } = kept(context, args[1])?.unwrap_or_default();
    for key in &args[2..] {
        if let Some(more) = kept(context, key)? {
            all.merge(&more.registers);
        }
    }
    put(context, args[1], &all.encode(), expires)?;
    context.notify(notice::STRING, "pfadd", args[1]);
    context.reply.ok();
    Ok(())
}
