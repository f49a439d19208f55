//! The library `cjson`, with lua-cjson's rules and messages.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{Lua, Table, Value};

use super::library::{Failure, Given, Results, add, fits, one, print, said};
use super::values::number;

/// What scripts may set; as in Redis it stays for the scripts that follow.
#[derive(Clone, Copy)]
struct Settings {
    /// A sparse array becomes an object, and is no error.
    sparse_convert: bool,
    sparse_ratio: i64,
    sparse_safe: i64,
    encode_depth: usize,
    decode_depth: usize,
    precision: usize,
    encode_invalid: bool,
    decode_invalid: bool,
}

/// No deeper, whatever scripts set: both directions are recursive.
const DEPTH_MAX: usize = 1000;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth: DEPTH_MAX,
            decode_depth: DEPTH_MAX,
            precision: 14,
            encode_invalid: false,
            decode_invalid: true,
        }
    }
}

/// The library.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let settings = Rc::new(Cell::new(Settings::default()));
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    table.raw_set("null", Value::NULL)?;
    let own = Rc::clone(&settings);
    add(lua, &table, "encode", move |lua, given| {
        if given.args.len() != 1 {
            return said("bad argument #1 to 'encode' (expected 1 argument)");
        }
        let mut out = Vec::new();
        encode(&own.get(), &given.args[0], 0, &mut out)?;
        one(Value::String(lua.create_string(out)?))
    })?;
    let own = Rc::clone(&settings);
    add(lua, &table, "decode", move |lua, given| {
        if given.args.len() != 1 {
            return said("bad argument #1 to 'decode' (expected 1 argument)");
        }
        decode(lua, &given.bytes(0)?, own.get())
    })?;
    let set = |name: &str, change: fn(&mut Settings, &Given<'_>) -> Results| {
        let own = Rc::clone(&settings);
        add(lua, &table, name, move |_, given| {
            let mut now = own.get();
            let results = change(&mut now, given)?;
            own.set(now);
            Ok(results)
        })
    };
    set("encode_sparse_array", |settings, given| {
        settings.sparse_convert = switch(given, settings.sparse_convert);
        settings.sparse_ratio = given.number_or(1, settings.sparse_ratio as f64)? as i64;
        settings.sparse_safe = given.number_or(2, settings.sparse_safe as f64)? as i64;
        one(Value::Boolean(settings.sparse_convert))
    })?;
    set("encode_max_depth", |settings, given| {
        settings.encode_depth = depth(given, settings.encode_depth)?;
        one(Value::Integer(settings.encode_depth as i64))
    })?;
    set("decode_max_depth", |settings, given| {
        settings.decode_depth = depth(given, settings.decode_depth)?;
        one(Value::Integer(settings.decode_depth as i64))
    })?;
    set("encode_number_precision", |settings, given| {
        let precision = given.number_or(0, settings.precision as f64)?;
        if !(1.0..=16.0).contains(&precision) {
            return said(
                "bad argument #1 to 'encode_number_precision' (expected integer between 1 and 16)",
            );
        }
        settings.precision = precision as usize;
        one(Value::Integer(settings.precision as i64))
    })?;
    set("encode_keep_buffer", |_, given| one(Value::Boolean(switch(given, true))))?;
    set("encode_invalid_numbers", |settings, given| {
        settings.encode_invalid = switch(given, settings.encode_invalid);
        one(Value::Boolean(settings.encode_invalid))
    })?;
    set("decode_invalid_numbers", |settings, given| {
        settings.decode_invalid = switch(given, settings.decode_invalid);
        one(Value::Boolean(settings.decode_invalid))
    })?;
    Ok(table)
}

fn decode(lua: &Lua, text: &[u8], settings: Settings) -> Results {
    let mut decoder = Decoder { lua, text, at: 0, settings };
    let value = decoder.value(0)?;
    let (at, token) = decoder.next();
    match token {
        Token::End => one(value),
        other => expected("the end", at, &other),
    }
}

fn switch(given: &Given<'_>, now: bool) -> bool {
    match given.args.first() {
        None | Some(Value::Nil) => now,
        Some(value) => *value != Value::Boolean(false),
    }
}

fn depth(given: &Given<'_>, now: usize) -> Result<usize, Failure> {
    let depth = given.number_or(0, now as f64)?;
    if depth < 1.0 {
        return said("bad argument #1 to 'max_depth' (expected integer between 1 and 2147483647)");
    }
    Ok((depth as usize).min(DEPTH_MAX))
}

/// How long an array a table is; nothing if it is none.
fn array_len(settings: &Settings, table: &Table) -> Result<Option<i64>, Failure> {
    let (mut most, mut count) = (0, 0);
    for pair in table.pairs::<Value, Value>() {
        match pair?.0 {
            Value::Integer(key) if key > 0 => (most, count) = (key.max(most), count + 1),
            _ => return Ok(None),
        }
    }
    let Settings { sparse_ratio: ratio, sparse_safe: safe, .. } = *settings;
    if ratio > 0 && most > i64::saturating_mul(count, ratio) && most > safe {
        if !settings.sparse_convert {
            return said("Cannot serialise table: excessively sparse array");
        }
        return Ok(None);
    }
    Ok(Some(most).filter(|most| *most > 0))
}

fn encode(
    settings: &Settings,
    value: &Value,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    fits(out)?;
    match value {
        Value::String(text) => encode_text(&text.as_bytes(), out),
        Value::Integer(_) | Value::Number(_) => {
            encode_number(settings, number(value).unwrap_or_default(), out)?;
        }
        Value::Boolean(true) => out.extend_from_slice(b"true"),
        Value::Boolean(false) => out.extend_from_slice(b"false"),
        Value::Nil => out.extend_from_slice(b"null"),
        null if *null == Value::NULL => out.extend_from_slice(b"null"),
        Value::Table(table) => {
            let depth = depth + 1;
            if depth > settings.encode_depth {
                return said(format!("Cannot serialise, excessive depth ({depth})"));
            }
            if let Some(len) = array_len(settings, table)? {
                out.push(b'[');
                for at in 1..=len {
                    if at > 1 {
                        out.push(b',');
                    }
                    encode(settings, &table.raw_get(at)?, depth, out)?;
                }
                out.push(b']');
            } else {
                encode_object(settings, table, depth, out)?;
            }
        }
        other => {
            let kind = other.type_name();
            return said(format!("Cannot serialise {kind}: type not supported"));
        }
    }
    Ok(())
}

fn encode_object(
    settings: &Settings,
    table: &Table,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    out.push(b'{');
    for (at, pair) in table.pairs::<Value, Value>().enumerate() {
        let (key, value) = pair?;
        if at > 0 {
            out.push(b',');
        }
        match &key {
            Value::String(text) => encode_text(&text.as_bytes(), out),
            key => {
                let Some(number) = number(key) else {
                    return said("Cannot serialise table: table key must be a number or string");
                };
                out.push(b'"');
                encode_number(settings, number, out)?;
                out.push(b'"');
            }
        }
        out.push(b':');
        encode(settings, &value, depth, out)?;
    }
    out.push(b'}');
    Ok(())
}

fn encode_number(settings: &Settings, number: f64, out: &mut Vec<u8>) -> Result<(), Failure> {
    if !number.is_finite() && !settings.encode_invalid {
        return said("Cannot serialise number: must not be NaN or Inf");
    }
    out.extend_from_slice(print(number, settings.precision).as_bytes());
    Ok(())
}

fn encode_text(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'/' => out.extend_from_slice(b"\\/"),
            8 => out.extend_from_slice(b"\\b"),
            9 => out.extend_from_slice(b"\\t"),
            10 => out.extend_from_slice(b"\\n"),
            12 => out.extend_from_slice(b"\\f"),
            13 => out.extend_from_slice(b"\\r"),
            0..=31 | 127 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            other => out.push(*other),
        }
    }
    out.push(b'"');
}

enum Token {
    Mark(u8),
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    End,
    Wrong(&'static str),
}

impl Token {
    fn name(&self) -> &'static str {
        match self {
            Token::Mark(b'{') => "T_OBJ_BEGIN",
            Token::Mark(b'}') => "T_OBJ_END",
            Token::Mark(b'[') => "T_ARR_BEGIN",
            Token::Mark(b']') => "T_ARR_END",
            Token::Mark(b':') => "T_COLON",
            Token::Mark(_) => "T_COMMA",
            Token::Text(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::End => "T_END",
            Token::Wrong(why) => why,
        }
    }
}

fn expected<T>(what: &str, at: usize, found: &Token) -> Result<T, Failure> {
    said(format!("Expected {what} but found {} at character {}", found.name(), at + 1))
}

struct Decoder<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
    settings: Settings,
}

impl Decoder<'_> {
    fn next(&mut self) -> (usize, Token) {
        while self
            .text
            .get(self.at)
            .is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
        {
            self.at += 1;
        }
        let (from, rest) = (self.at, &self.text[self.at..]);
        let word = |word: &str| rest.starts_with(word.as_bytes()).then_some(word.len());
        let token = match rest.first() {
            None => Token::End,
            Some(mark @ (b'{' | b'}' | b'[' | b']' | b':' | b',')) => {
                self.at += 1;
                Token::Mark(*mark)
            }
            Some(b'"') => match text(rest) {
                Ok((text, len)) => {
                    self.at += len;
                    Token::Text(text)
                }
                Err((at, why)) => return (from + at, Token::Wrong(why)),
            },
            Some(b'-' | b'+' | b'.' | b'0'..=b'9') => self.number(rest),
            _ => match (word("true"), word("false"), word("null")) {
                (Some(len), ..) => {
                    self.at += len;
                    Token::Boolean(true)
                }
                (_, Some(len), _) => {
                    self.at += len;
                    Token::Boolean(false)
                }
                (.., Some(len)) => {
                    self.at += len;
                    Token::Null
                }
                _ if self.settings.decode_invalid => self.number(rest),
                _ => Token::Wrong("invalid token"),
            },
        };
        (from, token)
    }

    /// The longest text that is a number.
    fn number(&mut self, rest: &[u8]) -> Token {
        let len = rest
            .iter()
            .position(|byte| !byte.is_ascii_alphanumeric() && !matches!(byte, b'-' | b'+' | b'.'))
            .unwrap_or(rest.len());
        let plain = |text: &[u8]| {
            let digits = text.strip_prefix(b"-").unwrap_or(text);
            let zero = digits.len() > 1 && digits[0] == b'0' && digits[1].is_ascii_alphanumeric();
            digits.first().is_some_and(u8::is_ascii_digit) && !zero
        };
        let some = |text: &[u8]| match text.to_ascii_lowercase().as_slice() {
            b"nan" | b"-nan" | b"+nan" => Some(f64::NAN),
            _ => crate::number::strtod(text),
        };
        for to in (1..=len.min(400)).rev() {
            let text = &rest[..to];
            if !self.settings.decode_invalid && !plain(text) {
                continue;
            }
            if let Some(number) = some(text) {
                self.at += to;
                return Token::Number(number);
            }
        }
        let digit = rest.first().is_some_and(|byte| !byte.is_ascii_alphabetic());
        Token::Wrong(if digit { "invalid number" } else { "invalid token" })
    }

    fn value(&mut self, depth: usize) -> Result<Value, Failure> {
        let (at, token) = self.next();
        self.value_of(at, token, depth)
    }

    fn value_of(&mut self, at: usize, token: Token, depth: usize) -> Result<Value, Failure> {
        Ok(match token {
            Token::Text(text) => Value::String(self.lua.create_string(text)?),
            Token::Number(number) => Value::Number(number),
            Token::Boolean(yes) => Value::Boolean(yes),
            Token::Null => Value::NULL,
            Token::Mark(mark @ (b'{' | b'[')) => {
                let depth = depth + 1;
                if depth > self.settings.decode_depth {
                    let at = self.at;
                    return said(format!(
                        "Found too many nested data structures ({depth}) at character {at}"
                    ));
                }
                let table = self.lua.create_table()?;
                if mark == b'{' {
                    self.object(&table, depth)?
                } else {
                    self.array(&table, depth)?
                }
                Value::Table(table)
            }
            other => return expected("value", at, &other),
        })
    }

    fn object(&mut self, table: &Table, depth: usize) -> Result<(), Failure> {
        let (mut at, mut token) = self.next();
        if matches!(token, Token::Mark(b'}')) {
            return Ok(());
        }
        loop {
            let Token::Text(key) = token else { return expected("object key string", at, &token) };
            match self.next() {
                (_, Token::Mark(b':')) => {}
                (at, other) => return expected("colon", at, &other),
            }
            let value = self.value(depth)?;
            table.raw_set(self.lua.create_string(key)?, value)?;
            match self.next() {
                (_, Token::Mark(b'}')) => return Ok(()),
                (_, Token::Mark(b',')) => {}
                (at, other) => return expected("comma or object end", at, &other),
            }
            (at, token) = self.next();
        }
    }

    fn array(&mut self, table: &Table, depth: usize) -> Result<(), Failure> {
        let (mut at, mut token) = self.next();
        if matches!(token, Token::Mark(b']')) {
            return Ok(());
        }
        for place in 1.. {
            let value = self.value_of(at, token, depth)?;
            table.raw_set(place, value)?;
            match self.next() {
                (_, Token::Mark(b']')) => break,
                (_, Token::Mark(b',')) => {}
                (at, other) => return expected("comma or array end", at, &other),
            }
            (at, token) = self.next();
        }
        Ok(())
    }
}

/// A text between quotes, and how many bytes it took; or where and why it is none.
fn text(bytes: &[u8]) -> Result<(Vec<u8>, usize), (usize, &'static str)> {
    let mut text = Vec::new();
    let mut at = 1;
    loop {
        match bytes.get(at) {
            None => return Err((at, "unexpected end of string")),
            Some(b'"') => return Ok((text, at + 1)),
            Some(b'\\') => {
                let escaped = match bytes.get(at + 1) {
                    Some(same @ (b'"' | b'\\' | b'/')) => *same,
                    Some(b'b') => 8,
                    Some(b't') => 9,
                    Some(b'n') => 10,
                    Some(b'f') => 12,
                    Some(b'r') => 13,
                    Some(b'u') => {
                        let (letter, len) =
                            unicode(&bytes[at..]).ok_or((at, "invalid unicode escape code"))?;
                        text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                        at += len;
                        continue;
                    }
                    _ => return Err((at, "invalid escape code")),
                };
                text.push(escaped);
                at += 2;
            }
            Some(byte) => {
                text.push(*byte);
                at += 1;
            }
        }
    }
}

/// A letter that is written as `\uXXXX`, or as two of those.
fn unicode(bytes: &[u8]) -> Option<(char, usize)> {
    let unit = |at: usize| {
        let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let first = unit(0)?;
    if (0xd800..0xdc00).contains(&first) {
        let second = unit(6).filter(|second| (0xdc00..0xe000).contains(second))?;
        return Some((char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))?, 12));
    }
    Some((char::from_u32(first)?, 6))
}
