//! How the libraries of scripts are made: functions that answer, or say what is wrong.

use mlua::{Function, Lua, MultiValue, Table, Value};

use super::values::number;

/// Bytes of what a library makes at one go: it is not in the interpreter's memory, which has its
/// own limit, and tables that have the same table twice grow with every level.
pub(super) const SIZE_MAX: usize = 512 << 20;

/// Why a function of a library did nothing.
pub(super) enum Failure {
    /// In words that a script's pcall gets.
    Said(String),
    /// The interpreter itself failed: no memory, most likely.
    Lua(mlua::Error),
}

impl From<mlua::Error> for Failure {
    fn from(error: mlua::Error) -> Failure {
        Failure::Lua(error)
    }
}

/// What a function of a library returns.
pub(super) type Results = Result<MultiValue, Failure>;

pub(super) fn said<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Said(text.into()))
}

/// Whether what a library makes may grow further.
pub(super) fn fits(out: &[u8]) -> Result<(), Failure> {
    if out.len() > SIZE_MAX { said("the result is too large") } else { Ok(()) }
}

/// One result.
pub(super) fn one(value: Value) -> Results {
    Ok(MultiValue::from_iter([value]))
}

/// Adds a function to a library. Its errors begin with the place that called it, as those of Lua's
/// own functions do.
pub(super) fn add(
    lua: &Lua,
    library: &Table,
    name: &str,
    function: impl Fn(&Lua, &Given<'_>) -> Results + 'static,
) -> mlua::Result<()> {
    let own = name.to_owned();
    let called = move |lua: &Lua, args: MultiValue| -> mlua::Result<MultiValue> {
        let args: Vec<Value> = args.into_iter().collect();
        function(lua, &Given { name: &own, args: &args }).map_err(|failure| match failure {
            Failure::Said(text) => mlua::Error::RuntimeError(place(lua) + &text),
            Failure::Lua(error) => error,
        })
    };
    let function: Function = lua.create_function(called)?;
    library.raw_set(name, function)
}

/// The line that called, as messages begin with it.
fn place(lua: &Lua) -> String {
    let place = lua.inspect_stack(1, |frame| {
        let line = frame.current_line()?;
        Some(format!("{}:{line}: ", frame.source().short_src?))
    });
    place.flatten().unwrap_or_default()
}

/// The arguments of a call.
pub(super) struct Given<'a> {
    name: &'a str,
    pub(super) args: &'a [Value],
}

impl Given<'_> {
    fn wrong<T>(&self, at: usize, wanted: &str) -> Result<T, Failure> {
        let got = match self.args.get(at) {
            None => "no value",
            Some(Value::Integer(_)) => "number",
            Some(other) => other.type_name(),
        };
        said(format!("bad argument #{} to '{}' ({wanted} expected, got {got})", at + 1, self.name))
    }

    /// A number, or a string that is one.
    pub(super) fn number(&self, at: usize) -> Result<f64, Failure> {
        let found = match self.args.get(at) {
            Some(Value::String(text)) => crate::number::float(text.as_bytes().trim_ascii()),
            Some(value) => number(value),
            None => None,
        };
        found.map_or_else(|| self.wrong(at, "number"), Ok)
    }

    /// The same, or something else if there is none.
    pub(super) fn number_or(&self, at: usize, other: f64) -> Result<f64, Failure> {
        match self.args.get(at) {
            None | Some(Value::Nil) => Ok(other),
            Some(_) => self.number(at),
        }
    }

    /// The bytes of a string or a number.
    pub(super) fn bytes(&self, at: usize) -> Result<Vec<u8>, Failure> {
        match self.args.get(at) {
            Some(Value::String(text)) => Ok(text.as_bytes().to_vec()),
            Some(value @ (Value::Integer(_) | Value::Number(_))) => {
                Ok(print(number(value).unwrap_or_default(), 14).into_bytes())
            }
            _ => self.wrong(at, "string"),
        }
    }
}

/// C's `%.Ng`.
pub(super) fn print(number: f64, precision: usize) -> String {
    if !number.is_finite() {
        let text = if number.is_nan() { "nan" } else { "inf" };
        return format!("{}{text}", if number.is_sign_negative() { "-" } else { "" });
    }
    let precision = precision.max(1);
    let scientific = format!("{number:.*e}", precision - 1);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let shorten = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..precision as i32).contains(&exponent) {
        return shorten(&format!("{number:.*}", (precision as i32 - 1 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", shorten(digits), exponent.unsigned_abs())
}
