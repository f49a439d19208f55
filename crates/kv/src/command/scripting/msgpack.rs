//! The library `cmsgpack`: MessagePack, as lua-cmsgpack writes and reads it.

use mlua::{Lua, MultiValue, Table, Value};

use super::library::{Failure, Given, Results, add, fits, one, said};

/// Tables within tables; deeper ones are nil, as in lua-cmsgpack.
const DEPTH: usize = 16;
/// Values that one call returns: Lua's stack has room for 8000.
pub(super) const RESULTS_MAX: usize = 7000;

/// The library.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("_NAME", "cmsgpack")?;
    table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    table.raw_set("_COPYRIGHT", "Copyright (C) 2012, Redis Ltd.")?;
    table.raw_set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    add(lua, &table, "pack", |lua, given| {
        if given.args.is_empty() {
            return said("bad argument #0 to 'pack' (MessagePack pack needs input.)");
        }
        let mut out = Vec::new();
        for value in given.args {
            pack(value, 0, &mut out)?;
        }
        one(Value::String(lua.create_string(out)?))
    })?;
    add(lua, &table, "unpack", |lua, given| unpack(lua, &given.bytes(0)?, None, 0, false))?;
    add(lua, &table, "unpack_one", |lua, given| {
        let offset = offset(given, 1)?;
        unpack(lua, &given.bytes(0)?, Some(1), offset, true)
    })?;
    add(lua, &table, "unpack_limit", |lua, given| {
        let limit = given.number(1)?;
        if limit < 1.0 {
            return said("Invalid request to unpack with offset of 0 and limit of 0.");
        }
        unpack(lua, &given.bytes(0)?, Some(limit as usize), offset(given, 2)?, true)
    })?;
    Ok(table)
}

fn offset(given: &Given<'_>, at: usize) -> Result<usize, Failure> {
    let offset = given.number_or(at, 0.0)?;
    if offset < 0.0 { said("Invalid offset.") } else { Ok(offset as usize) }
}

fn unpack(
    lua: &Lua,
    bytes: &[u8],
    limit: Option<usize>,
    offset: usize,
    shows_offset: bool,
) -> Results {
    let Some(mut rest) = bytes.get(offset..) else {
        let len = bytes.len();
        return said(format!("Start offset {offset} greater than input length {len}."));
    };
    let mut values = Vec::new();
    while !rest.is_empty() && limit.is_none_or(|limit| values.len() < limit) {
        if values.len() == RESULTS_MAX {
            return said("too many results to unpack");
        }
        values.push(read(lua, &mut rest, 0)?);
    }
    if shows_offset {
        let next = if rest.is_empty() { -1 } else { (bytes.len() - rest.len()) as i64 };
        values.insert(0, Value::Integer(next));
    }
    Ok(MultiValue::from_iter(values))
}

/// A head with a length: in its own byte, or in one, two or four that follow.
fn head(out: &mut Vec<u8>, len: usize, short: Option<(u8, usize)>, marks: [Option<u8>; 3]) {
    match (short, marks) {
        (Some((mark, most)), _) if len <= most => out.push(mark | len as u8),
        (_, [Some(mark), ..]) if len <= 0xff => out.extend_from_slice(&[mark, len as u8]),
        (_, [_, Some(mark), _]) if len <= 0xffff => {
            out.push(mark);
            out.extend((len as u16).to_le_bytes().iter().rev());
        }
        (_, [.., mark]) => {
            out.push(mark.unwrap_or_default());
            out.extend((len as u32).to_le_bytes().iter().rev());
        }
    }
}

fn pack_whole(number: i64, out: &mut Vec<u8>) {
    let mut put = |mark: u8, bytes: usize| {
        out.push(mark);
        out.extend(number.to_le_bytes()[..bytes].iter().rev());
    };
    match number {
        0..=127 => put(number as u8, 0),
        128..=0xff => put(0xcc, 1),
        0x100..=0xffff => put(0xcd, 2),
        0x1_0000..=0xffff_ffff => put(0xce, 4),
        0x1_0000_0000.. => put(0xcf, 8),
        -32..0 => put(number as u8, 0),
        -0x80..-32 => put(0xd0, 1),
        -0x8000..-0x80 => put(0xd1, 2),
        -0x8000_0000..-0x8000 => put(0xd2, 4),
        _ => put(0xd3, 8),
    }
}

fn pack(value: &Value, depth: usize, out: &mut Vec<u8>) -> Result<(), Failure> {
    fits(out)?;
    match value {
        Value::String(text) => {
            let text = text.as_bytes();
            head(out, text.len(), Some((0xa0, 31)), [Some(0xd9), Some(0xda), Some(0xdb)]);
            out.extend_from_slice(&text);
        }
        Value::Boolean(yes) => out.push(if *yes { 0xc3 } else { 0xc2 }),
        Value::Integer(number) => pack_whole(*number, out),
        Value::Number(number) => {
            // Four bytes where nothing is lost.
            let short = *number as f32;
            if f64::from(short) == *number {
                out.push(0xca);
                out.extend(short.to_le_bytes().iter().rev());
            } else {
                out.push(0xcb);
                out.extend(number.to_le_bytes().iter().rev());
            }
        }
        Value::Table(_) if depth == DEPTH => out.push(0xc0),
        Value::Table(table) => pack_table(table, depth + 1, out)?,
        _ => out.push(0xc0),
    }
    Ok(())
}

fn pack_table(table: &Table, depth: usize, out: &mut Vec<u8>) -> Result<(), Failure> {
    // Two passes, because the interpreter lets few of its values be held from outside.
    let (mut most, mut all, mut count) = (0, true, 0);
    for pair in table.pairs::<Value, Value>() {
        count += 1;
        match pair?.0 {
            Value::Integer(key) if key > 0 => most = most.max(key),
            _ => all = false,
        }
    }
    if all && most as usize == count {
        head(out, count, Some((0x90, 15)), [None, Some(0xdc), Some(0xdd)]);
        for at in 1..=most {
            pack(&table.raw_get::<Value>(at)?, depth, out)?;
        }
        return Ok(());
    }
    head(out, count, Some((0x80, 15)), [None, Some(0xde), Some(0xdf)]);
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        pack(&key, depth, out)?;
        pack(&value, depth, out)?;
    }
    Ok(())
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], Failure> {
    let Some((taken, left)) = rest.split_at_checked(count) else {
        return said("Missing bytes in input.");
    };
    *rest = left;
    Ok(taken)
}

/// The most significant byte first.
fn unsigned(rest: &mut &[u8], bytes: usize) -> Result<u64, Failure> {
    Ok(take(rest, bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn read(lua: &Lua, rest: &mut &[u8], depth: usize) -> Result<Value, Failure> {
    // The depth that a packed table has at most is far below; this is for bytes from elsewhere.
    if depth > 200 {
        return said("Bad data format in input.");
    }
    let mark = take(rest, 1)?[0];
    let whole = |number: i64| Value::Number(number as f64);
    let text = |rest: &mut &[u8], len: u64| -> Result<Value, Failure> {
        Ok(Value::String(lua.create_string(take(rest, len as usize)?)?))
    };
    Ok(match mark {
        0..=0x7f => whole(mark.into()),
        0xe0.. => whole(i64::from(mark.cast_signed())),
        0xc0 => Value::Nil,
        0xc2 => Value::Boolean(false),
        0xc3 => Value::Boolean(true),
        0xcc..=0xcf => Value::Number(unsigned(rest, 1 << (mark - 0xcc))? as f64),
        0xd0..=0xd3 => {
            let bytes = 1 << (mark - 0xd0);
            let shift = 64 - 8 * bytes as u32;
            whole((unsigned(rest, bytes)? << shift).cast_signed() >> shift)
        }
        0xca => Value::Number(f32::from_bits(unsigned(rest, 4)? as u32).into()),
        0xcb => Value::Number(f64::from_bits(unsigned(rest, 8)?)),
        0xa0..=0xbf => text(rest, u64::from(mark & 31))?,
        0xd9 | 0xc4 => unsigned(rest, 1).and_then(|len| text(rest, len))?,
        0xda | 0xc5 => unsigned(rest, 2).and_then(|len| text(rest, len))?,
        0xdb | 0xc6 => unsigned(rest, 4).and_then(|len| text(rest, len))?,
        0x90..=0x9f => read_array(lua, rest, u64::from(mark & 15), depth)?,
        0xdc => unsigned(rest, 2).and_then(|len| read_array(lua, rest, len, depth))?,
        0xdd => unsigned(rest, 4).and_then(|len| read_array(lua, rest, len, depth))?,
        0x80..=0x8f => read_map(lua, rest, u64::from(mark & 15), depth)?,
        0xde => unsigned(rest, 2).and_then(|len| read_map(lua, rest, len, depth))?,
        0xdf => unsigned(rest, 4).and_then(|len| read_map(lua, rest, len, depth))?,
        _ => return said("Bad data format in input."),
    })
}

fn read_array(lua: &Lua, rest: &mut &[u8], len: u64, depth: usize) -> Result<Value, Failure> {
    let table = lua.create_table()?;
    for at in 1..=len {
        let value = read(lua, rest, depth + 1)?;
        table.raw_set(at, value)?;
    }
    Ok(Value::Table(table))
}

fn read_map(lua: &Lua, rest: &mut &[u8], len: u64, depth: usize) -> Result<Value, Failure> {
    let table = lua.create_table()?;
    for _ in 0..len {
        let key = read(lua, rest, depth + 1)?;
        let value = read(lua, rest, depth + 1)?;
        match &key {
            Value::Nil => return said("Bad data format in input."),
            Value::Number(number) if number.is_nan() => return said("Bad data format in input."),
            _ => table.raw_set(key, value)?,
        }
    }
    Ok(Value::Table(table))
}
