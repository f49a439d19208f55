//! `redis.register_function`: what a library that is being loaded says of its functions.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use mlua::{Function, Lua, MultiValue, Table, Value};

use super::Flags;
use super::interpreter::{bytes_of, raise};
use crate::library::is_name;

/// Functions of one library: each takes a place in the interpreter outside its memory.
const FUNCTIONS_MAX: usize = 1000;
/// Bytes of a description, which is kept outside the interpreter's memory too; of a name as well.
const TEXT_MAX: usize = 64 << 10;

/// A function of a library.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) function: Function,
    pub(super) description: Option<Vec<u8>>,
    pub(super) flags: Flags,
}

/// The functions of the library that is being loaded; nothing: none is.
#[derive(Debug, Default)]
pub(super) struct Registry(RefCell<Option<BTreeMap<String, Registered>>>);

impl Registry {
    pub(super) fn open(&self) {
        *self.0.borrow_mut() = Some(BTreeMap::new());
    }

    pub(super) fn close(&self) -> BTreeMap<String, Registered> {
        self.0.borrow_mut().take().unwrap_or_default()
    }
}

pub(super) const NAMES: &str = "Library names can only contain letters, numbers, or underscores(_) \
                                and must be at least one character long";

/// A string, or a number as Lua prints it.
fn text(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => Some(bytes_of(value)),
        _ => None,
    }
}

/// Names of flags, in a table.
fn flags(table: &Table) -> mlua::Result<Option<Flags>> {
    let mut flags = Flags::default();
    for at in 1.. {
        let value = table.get::<Value>(at)?;
        if value.is_nil() {
            break;
        }
        let Some(name) = text(&value) else { return Ok(None) };
        let name = String::from_utf8_lossy(&name).to_ascii_lowercase();
        match flags.with(&name) {
            Some(more) => flags = more,
            None => return Ok(None),
        }
    }
    Ok(Some(flags))
}

/// What is said with names, in one table.
fn named(table: &Table) -> mlua::Result<(Vec<u8>, Registered)> {
    let (mut name, mut description, mut function, mut of) = (None, None, None, Flags::default());
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let Some(key) = text(&key) else {
            return raise(
                "ERR named argument key given to redis.register_function is not a string",
            );
        };
        match (key.to_ascii_lowercase().as_slice(), &value) {
            (b"function_name", value) => match text(value) {
                Some(said) => name = Some(said),
                None => {
                    return raise(
                        "ERR function_name argument given to redis.register_function must be a \
                         string",
                    );
                }
            },
            (b"description", value) => match text(value) {
                Some(said) => description = Some(said),
                None => {
                    return raise(
                        "ERR description argument given to redis.register_function must be a \
                         string",
                    );
                }
            },
            (b"callback", Value::Function(said)) => function = Some(said.clone()),
            (b"callback", _) => {
                return raise(
                    "ERR callback argument given to redis.register_function must be a function",
                );
            }
            (b"flags", Value::Table(said)) => match flags(said)? {
                Some(said) => of = said,
                None => return raise("ERR unknown flag given"),
            },
            (b"flags", _) => {
                return raise(
                    "ERR flags argument to redis.register_function must be a table representing \
                     function flags",
                );
            }
            _ => return raise("ERR unknown argument given to redis.register_function"),
        }
    }
    let Some(name) = name else {
        return raise("ERR redis.register_function must get a function name argument");
    };
    let Some(function) = function else {
        return raise("ERR redis.register_function must get a callback argument");
    };
    Ok((name, Registered { function, description, flags: of }))
}

fn read(args: &[Value]) -> mlua::Result<(Vec<u8>, Registered)> {
    match args {
        [Value::Table(table)] => named(table),
        [_] => raise(
            "ERR calling redis.register_function with a single argument is only applicable to Lua \
             table (representing named arguments).",
        ),
        [name, function] => match (text(name), function) {
            (None, _) => raise("ERR first argument to redis.register_function must be a string"),
            (Some(name), Value::Function(function)) => {
                let function = function.clone();
                let (description, flags) = (None, Flags::default());
                Ok((name, Registered { function, description, flags }))
            }
            _ => raise("ERR second argument to redis.register_function must be a function"),
        },
        _ => raise("ERR wrong number of arguments to redis.register_function"),
    }
}

/// `redis.register_function`.
pub(super) fn function(lua: &Lua, registry: &Rc<Registry>) -> mlua::Result<Function> {
    let own = Rc::clone(registry);
    lua.create_function(move |_, args: MultiValue| {
        if own.0.borrow().is_none() {
            return raise(
                "ERR redis.register_function can only be called on FUNCTION LOAD command",
            );
        }
        let args: Vec<Value> = args.into_iter().collect();
        let (name, registered) = read(&args)?;
        let mut open = own.0.borrow_mut();
        let Some(all) = open.as_mut() else { return Ok(()) };
        if !is_name(&name) {
            return raise(format!("ERR {NAMES}"));
        }
        let long = registered.description.as_ref().is_some_and(|text| text.len() > TEXT_MAX);
        if long || name.len() > TEXT_MAX {
            return raise(format!(
                "ERR the name or the description of a function is longer than {TEXT_MAX} bytes"
            ));
        }
        let name = String::from_utf8_lossy(&name).into_owned();
        if all.contains_key(&name) {
            return raise("ERR Function already exists in the library");
        }
        if all.len() >= FUNCTIONS_MAX {
            return raise(format!("ERR a library has at most {FUNCTIONS_MAX} functions"));
        }
        all.insert(name, registered);
        Ok(())
    })
}
