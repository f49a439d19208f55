//! Replies as values of Lua, and values of Lua as replies, in Redis's way.

use mlua::{Lua, Table, Value};

use super::super::Reply;
use crate::format::entry::LENGTH_MAX;

/// What an error's table says if the error was counted for a command that the script called.
pub(super) const COUNTED: &str = "ignore_error_stats_update";
/// Tables within tables that a reply may have.
const DEPTH_MAX: u32 = 200;
/// Values that it may have.
const VALUES_MAX: u32 = 1 << 22;

/// A number, whole or not.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

/// A table with one field.
fn single(lua: &Lua, name: &str, value: impl mlua::IntoLua) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, value)?;
    Ok(Value::Table(table))
}

fn impossible() -> mlua::Error {
    mlua::Error::RuntimeError("BUG: a reply that is none".to_owned())
}

/// Reads one reply from the front of these bytes, which a command of ours wrote.
pub(super) fn read_reply(lua: &Lua, bytes: &mut &[u8]) -> mlua::Result<Value> {
    if bytes.is_empty() {
        // A command whose reply is not for its caller.
        return Ok(Value::Nil);
    }
    let end = bytes.windows(2).position(|two| two == b"\r\n").ok_or_else(impossible)?;
    let (line, rest) = (&bytes[..end], &bytes[end + 2..]);
    *bytes = rest;
    let (kind, text) = line.split_first().ok_or_else(impossible)?;
    let count = || std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
    match kind {
        b'+' => single(lua, "ok", lua.create_string(text)?),
        b'-' => {
            let table = lua.create_table_with_capacity(0, 2)?;
            table.raw_set("err", lua.create_string(text)?)?;
            table.raw_set(COUNTED, true)?;
            Ok(Value::Table(table))
        }
        b':' => Ok(Value::Number(count().ok_or_else(impossible)? as f64)),
        b',' => {
            let double = crate::number::float(text).unwrap_or(f64::NAN);
            single(lua, "double", double)
        }
        b'#' => Ok(Value::Boolean(text == b"t")),
        b'_' => Ok(Value::Nil),
        b'$' | b'=' => {
            let Ok(len) = usize::try_from(count().ok_or_else(impossible)?) else {
                return Ok(Value::Boolean(false));
            };
            let (body, rest) = rest.split_at_checked(len).ok_or_else(impossible)?;
            *bytes = rest.get(2..).ok_or_else(impossible)?;
            if *kind == b'$' {
                return Ok(Value::String(lua.create_string(body)?));
            }
            let inner = lua.create_table()?;
            let (format, body) = body.split_at_checked(4).ok_or_else(impossible)?;
            inner.raw_set("format", lua.create_string(&format[..3])?)?;
            inner.raw_set("string", lua.create_string(body)?)?;
            single(lua, "verbatim_string", inner)
        }
        b'*' | b'~' | b'%' | b'>' => {
            let Ok(len) = usize::try_from(count().ok_or_else(impossible)?) else {
                return Ok(Value::Boolean(false));
            };
            let inner = lua.create_table()?;
            for at in 1..=len {
                let one = read_reply(lua, bytes)?;
                match kind {
                    b'%' => {
                        let value = read_reply(lua, bytes)?;
                        inner.raw_set(one, value)?;
                    }
                    b'~' => inner.raw_set(one, true)?,
                    _ => inner.raw_set(at, one)?,
                }
            }
            match kind {
                b'%' => single(lua, "map", inner),
                b'~' => single(lua, "set", inner),
                _ => Ok(Value::Table(inner)),
            }
        }
        _ => Err(impossible()),
    }
}

fn one_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace(['\r', '\n'], " ")
}

/// How much of a reply may still come, and the errors in it.
pub(super) struct Room<'a> {
    depth: u32,
    /// Tables that lead back to themselves have no end.
    values: u32,
    /// Is told of errors that are not in the statistics yet.
    note_error: &'a mut dyn FnMut(&str),
    /// There is one that was counted when a command said it.
    pub(super) has_counted: bool,
}

impl<'a> Room<'a> {
    pub(super) fn new(note_error: &'a mut dyn FnMut(&str)) -> Room<'a> {
        Room { depth: DEPTH_MAX, values: VALUES_MAX, note_error, has_counted: false }
    }
}

/// Writes what a script returned; `resp3`: the script speaks RESP3.
pub(super) fn write_reply(
    reply: &mut Reply<'_>,
    value: &Value,
    resp3: bool,
    room: &mut Room<'_>,
) -> mlua::Result<()> {
    room.values = room.values.saturating_sub(1);
    if reply.out.len() as u64 > LENGTH_MAX || room.values == 0 {
        return Err(mlua::Error::RuntimeError("the reply of the script is too large".to_owned()));
    }
    match value {
        Value::String(text) => reply.bulk(&text.as_bytes()),
        Value::Integer(number) => reply.integer(*number),
        // As C's compilers convert it: what is too large or no number is the smallest.
        Value::Number(number) if number.abs() < 9_223_372_036_854_775_808.0 => {
            reply.integer(*number as i64)
        }
        Value::Number(_) => reply.integer(i64::MIN),
        Value::Boolean(yes) if resp3 && reply.resp3 => {
            reply.out.extend_from_slice(if *yes { b"#t\r\n" } else { b"#f\r\n" });
        }
        Value::Boolean(yes) if resp3 => reply.integer(i64::from(*yes)),
        Value::Boolean(true) => reply.integer(1),
        Value::Table(_) if room.depth == 0 => reply.error("ERR reached lua stack limit"),
        Value::Table(table) => {
            room.depth -= 1;
            write_table(reply, table, resp3, room)?;
            room.depth += 1;
        }
        _ => reply.null(),
    }
    Ok(())
}

fn write_table(
    reply: &mut Reply<'_>,
    table: &Table,
    resp3: bool,
    room: &mut Room<'_>,
) -> mlua::Result<()> {
    if let Value::String(text) = table.raw_get::<Value>("err")? {
        let text = one_line(&text.as_bytes());
        reply.error(&text);
        match is_counted(table)? {
            true => room.has_counted = true,
            false => (room.note_error)(&text),
        }
        return Ok(());
    }
    if let Value::String(text) = table.raw_get::<Value>("ok")? {
        reply.simple(&one_line(&text.as_bytes()));
        return Ok(());
    }
    if let Some(double) = number(&table.raw_get::<Value>("double")?) {
        reply.double(double);
        return Ok(());
    }
    if let Value::Table(map) = table.raw_get::<Value>("map")? {
        reply.map(count(&map)?);
        for pair in map.pairs::<Value, Value>() {
            let (key, value) = pair?;
            write_reply(reply, &key, resp3, room)?;
            write_reply(reply, &value, resp3, room)?;
        }
        return Ok(());
    }
    if let Value::Table(set) = table.raw_get::<Value>("set")? {
        reply.set(count(&set)?);
        for pair in set.pairs::<Value, Value>() {
            write_reply(reply, &pair?.0, resp3, room)?;
        }
        return Ok(());
    }
    let mut len = 0;
    while !table.raw_get::<Value>(len + 1)?.is_nil() {
        len += 1;
    }
    reply.list(len);
    for at in 1..=len {
        write_reply(reply, &table.raw_get::<Value>(at)?, resp3, room)?;
    }
    Ok(())
}

/// How many pairs a table has. They are not kept meanwhile: the interpreter lets few of its values
/// be held from outside.
fn count(table: &Table) -> mlua::Result<usize> {
    table.pairs::<Value, Value>().try_fold(0, |count, pair| pair.map(|_| count + 1))
}

/// Whether the error in a table is in the statistics already. Scripts see that, as in Redis.
pub(super) fn is_counted(error: &Table) -> mlua::Result<bool> {
    Ok(matches!(error.raw_get::<Value>(COUNTED)?, Value::Boolean(true)))
}
