//! The library `struct`: values in the layouts of C.

use mlua::{Lua, MultiValue, Table, Value};

use super::library::{Failure, Given, SIZE_MAX, add, fits, one, said};
use super::msgpack::RESULTS_MAX;

/// The alignment that a format may ask for at most.
const ALIGN_MAX: usize = 16;

/// One part of a format.
enum Part {
    Whole {
        size: usize,
        signed: bool,
    },
    Float(usize),
    /// Bytes of that number, or as many as the value has.
    Bytes(usize),
    /// Up to a zero byte.
    Text,
    Padding,
}

struct Format<'a> {
    /// The function that reads it.
    name: &'static str,
    rest: &'a [u8],
    big: bool,
    align: usize,
}

impl Format<'_> {
    /// A number that follows, or another one.
    fn number(&mut self, other: usize) -> Result<usize, Failure> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        if digits == 0 {
            return Ok(other);
        }
        let number = std::str::from_utf8(number).ok().and_then(|text| text.parse::<usize>().ok());
        number
            .filter(|number| *number < SIZE_MAX)
            .map_or_else(|| said("integral size overflow"), Ok)
    }

    /// The next part, with what it changes of the rest done.
    fn next(&mut self) -> Result<Option<Part>, Failure> {
        let Some((letter, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        let whole = |size, signed| Ok(Some(Part::Whole { size, signed }));
        match letter {
            b'b' | b'B' => whole(1, *letter == b'b'),
            b'h' | b'H' => whole(2, *letter == b'h'),
            b'l' | b'L' => whole(8, *letter == b'l'),
            b'T' => whole(8, false),
            b'i' | b'I' => {
                let size = self.number(4)?;
                if !(1..=32).contains(&size) {
                    return said(format!("integral size {size} is larger than limit of 32"));
                }
                whole(size, *letter == b'i')
            }
            b'f' => Ok(Some(Part::Float(4))),
            b'd' => Ok(Some(Part::Float(8))),
            b'c' => Ok(Some(Part::Bytes(self.number(1)?))),
            b's' => Ok(Some(Part::Text)),
            b'x' => Ok(Some(Part::Padding)),
            b' ' => self.next(),
            b'>' | b'<' | b'=' => {
                self.big = *letter == b'>';
                self.next()
            }
            b'!' => {
                let align = self.number(8)?;
                if !align.is_power_of_two() || align > ALIGN_MAX {
                    return said("alignment is not a power of 2");
                }
                self.align = align;
                self.next()
            }
            other => said(format!(
                "bad argument #1 to '{}' (invalid format option '{}')",
                self.name,
                char::from(*other)
            )),
        }
    }

    /// Bytes of padding before a part at `at`.
    fn padding(&self, at: usize, part: &Part) -> usize {
        let (Part::Whole { size, .. } | Part::Float(size)) = part else { return 0 };
        let align = (*size).min(self.align);
        if align > 1 && size.is_power_of_two() {
            (align - (at & (align - 1))) & (align - 1)
        } else {
            0
        }
    }

    /// In the order of the machine: the bytes of a number, whose least significant one comes first.
    fn put(&self, out: &mut Vec<u8>, bytes: impl DoubleEndedIterator<Item = u8>) {
        if self.big { out.extend(bytes.rev()) } else { out.extend(bytes) }
    }
}

fn format_of<'a>(name: &'static str, bytes: &'a [u8]) -> Format<'a> {
    Format { name, rest: bytes, big: false, align: 1 }
}

/// The library.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    add(lua, &table, "pack", |lua, given| {
        let out = pack(given)?;
        one(Value::String(lua.create_string(out)?))
    })?;
    add(lua, &table, "unpack", |lua, given| Ok(MultiValue::from_iter(unpack(lua, given)?)))?;
    add(lua, &table, "size", |_, given| {
        let format = given.bytes(0)?;
        let (mut format, mut at) = (format_of("size", &format), 0_usize);
        while let Some(part) = format.next()? {
            at += format.padding(at, &part);
            at += match part {
                Part::Whole { size, .. } | Part::Float(size) => size,
                Part::Bytes(0) | Part::Text => {
                    return said("variable-size format in function 'size'");
                }
                Part::Bytes(size) => size,
                Part::Padding => 1,
            };
        }
        one(Value::Integer(at as i64))
    })?;
    Ok(table)
}

fn pack(given: &Given<'_>) -> Result<Vec<u8>, Failure> {
    let format = given.bytes(0)?;
    let (mut format, mut out, mut arg) = (format_of("pack", &format), Vec::new(), 1);
    while let Some(part) = format.next()? {
        let padding = format.padding(out.len(), &part);
        out.resize(out.len() + padding, 0);
        match part {
            Part::Whole { size, .. } => {
                let number = given.number(arg)?;
                // What is too large for a signed number is one without a sign.
                let bits =
                    if number < 0.0 { (number as i64).cast_unsigned() } else { number as u64 };
                let sign = if number < 0.0 { 0xff } else { 0 };
                let bytes = bits.to_le_bytes().into_iter().chain([sign; 24]);
                let bytes: Vec<u8> = bytes.take(size).collect();
                format.put(&mut out, bytes.into_iter());
            }
            Part::Float(4) => {
                let number = given.number(arg)? as f32;
                format.put(&mut out, number.to_le_bytes().into_iter());
            }
            Part::Float(_) => {
                let number = given.number(arg)?;
                format.put(&mut out, number.to_le_bytes().into_iter());
            }
            Part::Bytes(size) => {
                let bytes = given.bytes(arg)?;
                let size = if size == 0 { bytes.len() } else { size };
                let Some(bytes) = bytes.get(..size) else {
                    return said(format!("bad argument #{} to 'pack' (string too short)", arg + 1));
                };
                out.extend_from_slice(bytes);
            }
            Part::Text => {
                out.extend_from_slice(&given.bytes(arg)?);
                out.push(0);
            }
            Part::Padding => {
                out.push(0);
                continue;
            }
        }
        arg += 1;
        fits(&out)?;
    }
    Ok(out)
}

fn unpack(lua: &Lua, given: &Given<'_>) -> Result<Vec<Value>, Failure> {
    let (format, data) = (given.bytes(0)?, given.bytes(1)?);
    let start = given.number_or(2, 1.0)?;
    if start < 1.0 {
        return said("offset must be 1 or greater");
    }
    let (mut format, mut at, mut values) =
        (format_of("unpack", &format), start as usize - 1, Vec::new());
    let taken = |at: usize, size: usize| -> Result<&[u8], Failure> {
        let end = at.checked_add(size);
        end.and_then(|end| data.get(at..end))
            .map_or_else(|| said("bad argument #2 to 'unpack' (data string too short)"), Ok)
    };
    while let Some(part) = format.next()? {
        at = at.saturating_add(format.padding(at, &part));
        let value = match part {
            Part::Whole { size, signed } => {
                let bytes = taken(at, size)?;
                at += size;
                Value::Number(whole(bytes, format.big, signed))
            }
            Part::Float(size) => {
                let bytes = taken(at, size)?;
                at += size;
                let (bits, _) = bits_of(bytes, format.big);
                Value::Number(if size == 4 {
                    f32::from_bits(bits as u32).into()
                } else {
                    f64::from_bits(bits)
                })
            }
            Part::Bytes(mut size) => {
                if size == 0 {
                    // As long as the number before it says, which is no result then.
                    let len = values.pop().and_then(|last| super::values::number(&last));
                    let Some(len) = len.filter(|len| *len >= 0.0) else {
                        return said("format 'c0' needs a previous size");
                    };
                    size = len as usize;
                }
                let bytes = taken(at, size)?;
                at += size;
                Value::String(lua.create_string(bytes)?)
            }
            Part::Text => {
                let rest = data.get(at..).unwrap_or_default();
                let Some(len) = rest.iter().position(|byte| *byte == 0) else {
                    return said("unfinished string in data");
                };
                at += len + 1;
                Value::String(lua.create_string(&rest[..len])?)
            }
            Part::Padding => {
                taken(at, 1)?;
                at += 1;
                continue;
            }
        };
        if values.len() == RESULTS_MAX {
            return said("too many results to unpack");
        }
        values.push(value);
    }
    values.push(Value::Integer(at as i64 + 1));
    Ok(values)
}

/// The whole number that bytes are; of more than eight, the lowest are.
fn whole(bytes: &[u8], big: bool, signed: bool) -> f64 {
    let (bits, count) = bits_of(bytes, big);
    let shift = 64 - 8 * count;
    if signed { ((bits << shift).cast_signed() >> shift) as f64 } else { bits as f64 }
}

/// The lowest eight bytes, and how many there are.
fn bits_of(bytes: &[u8], big: bool) -> (u64, u32) {
    let mut bytes = bytes.to_vec();
    if big {
        bytes.reverse();
    }
    bytes.truncate(8);
    let bits = bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
    (bits, bytes.len() as u32)
}
