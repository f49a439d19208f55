//! The library `bit`: whole numbers of 32 bits.

use mlua::{Lua, Table, Value};

use super::library::{Failure, Given, add, one};

/// The low 32 bits of a number, rounded as LuaBitOp does.
fn low(number: f64) -> i32 {
    // To the nearest, of two as near to the even one; what has no bits there is 0.
    let rounded = number.round_ties_even();
    if rounded.is_finite() { (rounded.rem_euclid(4_294_967_296.0) as u32).cast_signed() } else { 0 }
}

fn fold(given: &Given<'_>, each: fn(i32, i32) -> i32) -> Result<i32, Failure> {
    let mut bits = low(given.number(0)?);
    for at in 1..given.args.len() {
        bits = each(bits, low(given.number(at)?));
    }
    Ok(bits)
}

fn shift(given: &Given<'_>, each: fn(i32, u32) -> i32) -> Result<i32, Failure> {
    Ok(each(low(given.number(0)?), low(given.number(1)?).cast_unsigned() & 31))
}

/// The library.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let number = |bits: i32| one(Value::Integer(bits.into()));
    add(lua, &table, "tobit", move |_, given| number(low(given.number(0)?)))?;
    add(lua, &table, "bnot", move |_, given| number(!low(given.number(0)?)))?;
    add(lua, &table, "bswap", move |_, given| number(low(given.number(0)?).swap_bytes()))?;
    add(lua, &table, "band", move |_, given| number(fold(given, |a, b| a & b)?))?;
    add(lua, &table, "bor", move |_, given| number(fold(given, |a, b| a | b)?))?;
    add(lua, &table, "bxor", move |_, given| number(fold(given, |a, b| a ^ b)?))?;
    add(lua, &table, "lshift", move |_, given| number(shift(given, |bits, by| bits << by)?))?;
    add(lua, &table, "arshift", move |_, given| number(shift(given, |bits, by| bits >> by)?))?;
    add(lua, &table, "rshift", move |_, given| {
        number(shift(given, |bits, by| (bits.cast_unsigned() >> by).cast_signed())?)
    })?;
    add(lua, &table, "rol", move |_, given| number(shift(given, i32::rotate_left)?))?;
    add(lua, &table, "ror", move |_, given| number(shift(given, i32::rotate_right)?))?;
    add(lua, &table, "tohex", |lua, given| {
        let (bits, digits) = (low(given.number(0)?).cast_unsigned(), low(given.number_or(1, 8.0)?));
        let count = (digits.unsigned_abs() as usize).min(8);
        let text = if digits < 0 { format!("{bits:08X}") } else { format!("{bits:08x}") };
        one(Value::String(lua.create_string(&text[8 - count..])?))
    })?;
    Ok(table)
}
