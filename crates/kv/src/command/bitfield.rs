//! BITFIELD and BITFIELD_RO: whole numbers of any width within a string.

use super::arguments::{integer, integer_or_refusal};
use super::strings::string;
use super::{Arguments, Context, Done, Refusal, SYNTAX, word};
use crate::format::entry::LENGTH_MAX;
use crate::keyspace::{Found, notice};

const TYPE: Refusal = Refusal::Said(
    "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 \
     is.",
);
const OFFSET: Refusal = Refusal::Said("ERR bit offset is not an integer or out of range");

/// What becomes of a number that does not fit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Clone, Copy)]
enum What {
    Get,
    Set(i64),
    Add(i64),
}

/// A number's width, and whether it has a sign.
#[derive(Clone, Copy)]
struct Width {
    signed: bool,
    bits: u32,
}

#[derive(Clone, Copy)]
struct Step {
    what: What,
    width: Width,
    /// The first bit.
    at: u64,
    overflow: Overflow,
}

impl Width {
    fn of(argument: &[u8]) -> Result<Width, Refusal> {
        let (signed, digits) = match argument.split_first() {
            Some((b'i', digits)) => (true, digits),
            Some((b'u', digits)) => (false, digits),
            _ => return Err(TYPE),
        };
        let most = if signed { 64 } else { 63 };
        let bits = integer(digits).filter(|bits| (1..=most).contains(bits)).ok_or(TYPE)?;
        Ok(Width { signed, bits: bits as u32 })
    }

    fn range(self) -> (i128, i128) {
        match self.signed {
            true => (-(1_i128 << (self.bits - 1)), (1_i128 << (self.bits - 1)) - 1),
            false => (0, (1_i128 << self.bits) - 1),
        }
    }

    /// The number that these bits are.
    fn number(self, bits: u64) -> i128 {
        let shift = 64 - self.bits;
        match self.signed {
            true => i128::from((bits << shift).cast_signed() >> shift),
            false => i128::from(bits),
        }
    }

    /// The low bits of a number.
    fn low(self, number: i128) -> u64 {
        number as u64 & u64::MAX >> (64 - self.bits)
    }
}

/// An offset in bits, or `#` and one in numbers of this width.
fn offset(argument: &[u8], width: Width) -> Result<u64, Refusal> {
    let (digits, step) = match argument.strip_prefix(b"#") {
        Some(digits) => (digits, i64::from(width.bits)),
        None => (argument, 1),
    };
    let at = integer(digits).and_then(|at| at.checked_mul(step));
    let at = at.and_then(|at| u64::try_from(at).ok()).ok_or(OFFSET)?;
    // All of it within a value of the largest size.
    if (at + u64::from(width.bits)).div_ceil(8) > LENGTH_MAX { Err(OFFSET) } else { Ok(at) }
}

fn steps(args: &Arguments<'_>) -> Result<Vec<Step>, Refusal> {
    let (mut all, mut overflow, mut at) = (Vec::new(), Overflow::Wrap, 0);
    while let Some(name) = args.get(at) {
        let rest = &args[at + 1..];
        match (word(name).as_str(), rest) {
            ("overflow", [how, ..]) => {
                overflow = match word(how).as_str() {
                    "wrap" => Overflow::Wrap,
                    "sat" => Overflow::Saturate,
                    "fail" => Overflow::Fail,
                    _ => return Err(Refusal::Said("ERR Invalid OVERFLOW type specified")),
                };
                at += 2;
            }
            ("get", [width, place, ..]) => {
                let width = Width::of(width)?;
                let place = offset(place, width)?;
                all.push(Step { what: What::Get, width, at: place, overflow });
                at += 3;
            }
            (name @ ("set" | "incrby"), [width, place, number, ..]) => {
                let width = Width::of(width)?;
                let place = offset(place, width)?;
                let number = integer_or_refusal(number)?;
                let what = if name == "set" { What::Set(number) } else { What::Add(number) };
                all.push(Step { what, width, at: place, overflow });
                at += 4;
            }
            _ => return Err(SYNTAX),
        }
    }
    Ok(all)
}

/// Bits of a value, behind which there are zeros.
fn bits(value: &[u8], at: u64, count: u32) -> u64 {
    (at..at + u64::from(count)).fold(0, |bits, at| {
        let byte = value.get((at / 8) as usize).copied().unwrap_or(0);
        bits << 1 | u64::from(byte >> (7 - at % 8) & 1)
    })
}

fn set_bits(value: &mut [u8], at: u64, count: u32, bits: u64) {
    for bit in 0..u64::from(count) {
        let on = bits >> (u64::from(count) - 1 - bit) & 1 == 1;
        let mask = 0x80 >> ((at + bit) % 8);
        if let Some(byte) = value.get_mut(((at + bit) / 8) as usize) {
            *byte = if on { *byte | mask } else { *byte & !mask };
        }
    }
}

/// Replies to steps that only read: of a large value no more is read than they ask for.
fn look(context: &Context<'_>, found: Option<&Found>, steps: &[Step]) -> Vec<Option<i64>> {
    let one = |step: &Step| {
        let (from, to) = (step.at / 8, (step.at + u64::from(step.width.bits)).div_ceil(8));
        let mut bytes = Vec::new();
        if let Some(found) = found.filter(|found| from < found.header.value_len) {
            context.keys.read_value(found, from, to.min(found.header.value_len), &mut bytes);
        }
        act(&mut bytes, &Step { at: step.at % 8, ..*step })
    };
    steps.iter().map(one).collect()
}

/// Does a step; its reply, or nothing if a number does not fit.
fn act(value: &mut [u8], step: &Step) -> Option<i64> {
    let Step { width, at, .. } = *step;
    let old = width.number(bits(value, at, width.bits));
    let new = match step.what {
        What::Get => return Some(old as i64),
        What::Add(number) => old + i128::from(number),
        What::Set(number) if width.signed => i128::from(number),
        // A number below zero is one without a sign, and too large.
        What::Set(number) => i128::from(number.cast_unsigned()),
    };
    let (least, most) = width.range();
    let new = match (new < least || new > most, step.overflow) {
        (false, _) => new,
        (true, Overflow::Wrap) => width.number(width.low(new)),
        (true, Overflow::Saturate) => new.clamp(least, most),
        (true, Overflow::Fail) => return None,
    };
    set_bits(value, at, width.bits, width.low(new));
    Some(if matches!(step.what, What::Set(_)) { old as i64 } else { new as i64 })
}

fn bitfield_of(context: &mut Context<'_>, args: &Arguments<'_>, read_only: bool) -> Done {
    let steps = steps(&args[2..])?;
    let writes = steps.iter().filter(|step| !matches!(step.what, What::Get));
    let end = writes.map(|step| (step.at + u64::from(step.width.bits)).div_ceil(8)).max();
    if read_only && end.is_some() {
        return Err(Refusal::Said("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    let found = string(context, args[1])?;
    let replies = match end {
        None => {
            if found.is_none() && !read_only {
                context.notify(notice::MISS, "keymiss", args[1]);
            }
            look(context, found.as_ref(), &steps)
        }
        Some(end) => {
            let mut value = found.map(|found| context.keys.value(&found)).unwrap_or_default();
            let grows = value.len() < end as usize;
            value.resize(value.len().max(end as usize), 0);
            let (mut changed, mut replies) = (grows, Vec::with_capacity(steps.len()));
            for step in &steps {
                let bits_of = |value: &[u8]| bits(value, step.at, step.width.bits);
                let before = bits_of(&value);
                replies.push(act(&mut value, step));
                changed |= bits_of(&value) != before;
            }
            if changed {
                let expires = found.and_then(|found| found.header.expires);
                context.keys.put_raw(context.session.db, args[1], &value, expires)?;
                context.notify(notice::STRING, "setbit", args[1]);
            }
            replies
        }
    };
    context.reply.list(replies.len());
    for reply in replies {
        match reply {
            Some(number) => context.reply.integer(number),
            None => context.reply.null(),
        }
    }
    Ok(())
}

pub(crate) fn bitfield(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    bitfield_of(context, args, false)
}

pub(crate) fn bitfield_ro(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    bitfield_of(context, args, true)
}
