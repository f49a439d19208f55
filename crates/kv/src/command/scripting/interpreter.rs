//! The interpreter: what it may use, the scripts it knows, how one runs.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::{Duration, Instant};

use mlua::chunk::ChunkMode;
use mlua::state::{GcIncParams, GcMode};
use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Value, VmState};

use super::super::acl;
use super::super::arguments::print_score;
use super::super::flag;
use super::super::space::{OVER, takes_space};
use super::super::subcommands::{self, Fit};
use super::super::{Arguments, Context, REPLIES_MAX, Refusal, Reply, Session, lookup, run};
use super::library::{add, one, said};
use super::register::{self, Registry};
use super::values::{COUNTED, Room, is_counted, number, read_reply, write_reply};
use super::watchdog::{Running, Watchdog};
use super::{Flags, bits, digest, first_line, json, msgpack, packed};
use crate::planted::Planted;

/// Bytes of memory that all scripts together have.
const MEMORY: usize = 512 << 20;
/// Scripts that are kept: a client that makes a new one for every call must not fill the memory.
/// Each takes one of the 8000 places that the interpreter has for what is held from outside
/// (`LUAI_MAXCSTACK`), and a call needs some of them.
const KEPT: usize = 4000;
/// Of those, scripts that came with EVAL, which nobody expects to be there later (Redis 7.4 keeps
/// as many).
const KEPT_OF_EVAL: usize = 500;
/// Bytes of memory of scripts that are kept: less than what the collector leaves alone.
const KEPT_BYTES: usize = MEMORY / 8;
/// Bytes of memory beyond which what nobody uses any more is collected.
const COLLECT: usize = MEMORY / 4;
/// Bytes of a pattern: a match needs some of the stack for each.
const PATTERN_MAX: i64 = 4096;
/// Instructions between two looks at the clock.
const INSTRUCTIONS: u32 = 1000;
/// The name that scripts have in messages.
const CHUNK: &str = "@user_script";
/// The name that functions of libraries have there.
const LIBRARY_CHUNK: &str = "@user_function";
/// At how many percent of what was in use the interpreter begins to collect again. With its own 200
/// the smallest scripts take more than the 100 KB that tests of Redis allow them.
const PAUSE: i32 = 150;
const OVERDUE: &str =
    "ERR the script takes more than 30 s, the most for one from a file or from a primary";
/// Time of a script that comes with a file or from a primary: no client can say SCRIPT KILL. Redis
/// has sent what a script did, and not the script, since version 5.
const OBEYED: Duration = Duration::from_secs(if cfg!(feature = "testing") { 2 } else { 30 });
const KILLED: &str = "ERR Script killed by user with SCRIPT KILL...";

struct Script {
    function: Function,
    flags: Flags,
    /// What it takes of the interpreter's memory, more or less.
    bytes: usize,
    /// Its place in the order.
    turn: Turn,
}

/// When a script goes: those of EVAL before those of SCRIPT LOAD, the one used longest ago first.
type Turn = (bool, u64);

/// A run of a script.
pub(super) struct Ran<'a> {
    pub(super) name: &'a str,
    pub(super) keys: &'a Arguments<'a>,
    pub(super) argv: &'a Arguments<'a>,
    pub(super) read_only: bool,
    pub(super) command: &'a Arguments<'a>,
}

/// What runs: a script, or a function of a library.
#[derive(Clone, Copy)]
pub(super) struct Called<'a> {
    pub(super) function: &'a Function,
    pub(super) flags: Flags,
    /// How many libraries and functions there are; none: it is a script.
    pub(super) of_library: Option<[usize; 2]>,
}

/// What a script may change of itself.
#[derive(Debug, Default)]
struct State {
    resp3: Cell<bool>,
    random: Cell<u64>,
}

impl State {
    /// As `srand48` has it.
    fn seed(&self, seed: i64) {
        self.random.set(((seed as u64) << 16 | 0x330e) & 0xffff_ffff_ffff);
    }

    /// As `lrand48` has it, from 0 to before 1.
    fn next(&self) -> f64 {
        let next =
            self.random.get().wrapping_mul(0x5_deec_e66d).wrapping_add(0xb) & 0xffff_ffff_ffff;
        self.random.set(next);
        ((next >> 17) % 0x7fff_ffff) as f64 / f64::from(0x7fff_ffff)
    }
}

/// The interpreter and its scripts.
pub(crate) struct Scripts {
    lua: Lua,
    globals: Table,
    run: Function,
    handler: Function,
    /// For libraries: what they see, how one is loaded, how a function is called.
    library_globals: Table,
    load_library: Function,
    run_function: Function,
    pub(super) registry: Rc<Registry>,
    known: HashMap<String, Script>,
    order: BTreeMap<Turn, String>,
    /// Scripts that came with EVAL.
    of_eval: usize,
    known_bytes: usize,
    /// How many turns there were.
    turns: u64,
    state: Rc<State>,
    watchdog: Rc<Watchdog>,
}

impl std::fmt::Debug for Scripts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scripts").field("known", &self.known.len()).finish_non_exhaustive()
    }
}

/// An error that scripts see as a table, as they do what a command says.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Raised {
    text: String,
    /// It is in the statistics already, as that of a command which the script called.
    counted: bool,
}

pub(super) fn raise<T>(text: impl Into<String>) -> mlua::Result<T> {
    Err(mlua::Error::external(Raised { text: text.into(), counted: false }))
}

/// Such an error.
fn raised(error: &mlua::Error) -> Option<&Raised> {
    match error {
        mlua::Error::ExternalError(inner) => inner.downcast_ref::<Raised>(),
        mlua::Error::CallbackError { cause, .. } => raised(cause),
        _ => None,
    }
}

/// What scripts may use besides `redis`.
fn own_libraries(lua: &Lua, state: &Rc<State>) -> mlua::Result<Table> {
    let libraries = lua.create_table()?;
    libraries.set("bit", bits::library(lua)?)?;
    libraries.set("cjson", json::library(lua)?)?;
    libraries.set("cmsgpack", msgpack::library(lua)?)?;
    libraries.set("struct", packed::library(lua)?)?;
    libraries.set("random", random(lua, state)?)?;
    Ok(libraries)
}

/// Looks at the clock every so many instructions, and ends what has no time left.
fn watch(lua: &Lua, watchdog: &Rc<Watchdog>) -> mlua::Result<()> {
    let own = Rc::clone(watchdog);
    lua.set_global_hook(HookTriggers::new().every_nth_instruction(INSTRUCTIONS), move |_, _| {
        own.look();
        if own.is_killed() {
            return raise(KILLED);
        }
        if own.is_overdue() {
            return raise(OVERDUE);
        }
        if own.is_late() {
            return raise("ERR FUNCTION LOAD timeout");
        }
        Ok(VmState::Continue)
    })
}

/// What is in `redis`, but for what needs a running script.
fn redis(lua: &Lua, state: &Rc<State>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let levels = ["LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"];
    for (name, level) in levels.into_iter().zip(0..) {
        table.set(name, level)?;
    }
    for (name, value) in
        [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", 3)]
    {
        table.set(name, value)?;
    }
    table.set("REDIS_VERSION", super::super::information::REDIS_VERSION)?;
    table.set("REDIS_VERSION_NUM", 0x0007_000f)?;
    let sha1hex = |_: &Lua, args: MultiValue| match args.iter().collect::<Vec<_>>()[..] {
        [value] => Ok(digest(&bytes_of(value))),
        _ => raise("ERR wrong number of arguments"),
    };
    table.set("sha1hex", lua.create_function(sha1hex)?)?;
    // There is no log of the server that a line could go to.
    let log = |_: &Lua, args: MultiValue| match (args.front().and_then(number), args.len()) {
        (_, 0 | 1) => raise("ERR redis.log() requires two arguments or more."),
        (None, _) => raise("ERR First argument must be a number (log level)."),
        (Some(level), _) if !(0.0..4.0).contains(&level) => raise("ERR Invalid debug level."),
        _ => Ok(()),
    };
    table.set("log", lua.create_function(log)?)?;
    // Every change is durable, and goes to every replica.
    let set_repl = |_: &Lua, args: MultiValue| match (args.front().and_then(number), args.len()) {
        (Some(which), 1) if (0.0..4.0).contains(&which) => Ok(()),
        (_, 1) => raise(
            "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
        ),
        _ => raise("ERR redis.set_repl() requires two arguments."),
    };
    table.set("set_repl", lua.create_function(set_repl)?)?;
    let own = Rc::clone(state);
    let setresp = move |_: &Lua, args: MultiValue| match (args.front().and_then(number), args.len())
    {
        (Some(version @ (2.0 | 3.0)), 1) => {
            own.resp3.set(version > 2.0);
            Ok(())
        }
        (_, 1) => raise("ERR RESP version must be 2 or 3."),
        _ => raise("ERR redis.setresp() requires one argument."),
    };
    table.set("setresp", lua.create_function(setresp)?)?;
    Ok(table)
}

/// `math.random`.
fn random(lua: &Lua, state: &Rc<State>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let own = Rc::clone(state);
    add(lua, &table, "random", move |_, given| {
        let random = own.next();
        let (low, high) = match given.args.len() {
            0 => return one(Value::Number(random)),
            1 => (1.0, given.number(0)?.trunc()),
            2 => (given.number(0)?.trunc(), given.number(1)?.trunc()),
            _ => return said("wrong number of arguments"),
        };
        if low > high {
            return said(format!(
                "bad argument #{} to 'random' (interval is empty)",
                given.args.len()
            ));
        }
        one(Value::Number((random * (high - low + 1.0)).floor() + low))
    })?;
    let own = Rc::clone(state);
    add(lua, &table, "randomseed", move |lua, given| {
        // A text of digits is a number, as everywhere in Lua.
        let text = given.args.first().filter(|value| value.is_string()).cloned();
        let number = text.map_or(Ok(None), |text| lua.coerce_number(text))?;
        own.seed(number.map_or_else(|| given.number(0), Ok)? as i64);
        Ok(MultiValue::new())
    })?;
    Ok(table)
}

/// An error as a script may see it: what Rust raised is a text, or a table with one.
fn shown(lua: &Lua, error: Value) -> mlua::Result<Value> {
    let Value::Error(error) = error else { return Ok(error) };
    let Some(raised) = raised(&error) else {
        return Ok(Value::String(lua.create_string(message(&error))?));
    };
    let table = lua.create_table()?;
    table.raw_set("err", raised.text.as_str())?;
    if raised.counted {
        table.raw_set(COUNTED, true)?;
    }
    Ok(Value::Table(table))
}

/// The first line of the script that runs now, from the top of the stack.
fn line(lua: &Lua) -> Option<usize> {
    for level in 1.. {
        let found = lua.inspect_stack(level, |frame| {
            let source = frame.source().source;
            let ours = source.is_some_and(|source| source == CHUNK || source == LIBRARY_CHUNK);
            frame.current_line().filter(|_| ours)
        });
        match found {
            None => return None,
            Some(None) => {}
            Some(line) => return line,
        }
    }
    None
}

/// What an error of the interpreter or of a function of ours says.
fn message(error: &mlua::Error) -> String {
    match error {
        mlua::Error::RuntimeError(text) | mlua::Error::SyntaxError { message: text, .. } => {
            text.clone()
        }
        mlua::Error::MemoryError(_) => "not enough memory".to_owned(),
        mlua::Error::CallbackError { cause, .. } => message(cause),
        other => other.to_string(),
    }
}

/// What an error is that nobody caught: a table with its text and where in the script it was.
fn explain(lua: &Lua, error: &Value) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let text = match error {
        Value::Table(error) => {
            table.raw_set(COUNTED, is_counted(error)?)?;
            match error.raw_get::<Value>("err")? {
                Value::String(text) => text,
                _ => lua.create_string("ERR unknown error")?,
            }
        }
        Value::Error(error) => match raised(error) {
            Some(raised) => {
                table.raw_set(COUNTED, raised.counted)?;
                lua.create_string(&raised.text)?
            }
            None => lua.create_string(format!("ERR {}", message(error)))?,
        },
        Value::String(text) => lua.create_string([b"ERR ", &*text.as_bytes()].concat())?,
        other => lua.create_string(format!("ERR {}", other.to_string()?))?,
    };
    table.raw_set("err", text)?;
    table.raw_set("line", line(lua))?;
    Ok(table)
}

impl Scripts {
    pub(super) fn new() -> mlua::Result<Scripts> {
        // No io, os, package or debug.
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        lua.gc_set_mode(GcMode::Incremental(GcIncParams::default().pause(PAUSE)));
        let (state, watchdog) = (Rc::new(State::default()), Rc::new(Watchdog::default()));
        state.seed(fastrand::i64(..));
        let native = lua.create_table()?;
        native.set("redis", redis(&lua, &state)?)?;
        native.set("libraries", own_libraries(&lua, &state)?)?;
        let own = Rc::clone(&watchdog);
        let go_on = move |_: &Lua, ()| match (own.is_killed(), own.is_overdue()) {
            (true, _) => raise(KILLED),
            (_, true) => raise(OVERDUE),
            _ => Ok(()),
        };
        native.set("go_on", lua.create_function(go_on)?)?;
        let read_only = |_: &Lua, ()| raise::<()>("ERR Attempt to modify a readonly table");
        native.set("read_only", lua.create_function(read_only)?)?;
        native.set("shown", lua.create_function(|lua, error: Value| shown(lua, error))?)?;
        let registry = Rc::new(Registry::default());
        native.set("register_function", register::function(&lua, &registry)?)?;
        let (globals, run, of_library): (Table, Function, Table) = lua
            .load(include_str!("prelude.lua"))
            .set_name("=prelude")
            .call((native.clone(), PATTERN_MAX))?;
        let environment = globals.clone();
        let compile = move |lua: &Lua, (text, name): (Value, Value)| {
            let name = String::from_utf8_lossy(&bytes_of(&name)).into_owned();
            let name = name.split('\0').next().unwrap_or_default().to_owned();
            let made = compile(lua, &bytes_of(&text), &name, &environment);
            Ok(match made {
                Ok(function) => (Value::Function(function), Value::Nil),
                Err(error) => (Value::Nil, Value::String(lua.create_string(message(&error))?)),
            })
        };
        native.set("compile", lua.create_function(compile)?)?;
        let handler = lua.create_function(|lua, error: Value| explain(lua, &error))?;
        watch(&lua, &watchdog)?;
        lua.set_memory_limit(MEMORY)?;
        let (known, order) = (HashMap::new(), BTreeMap::new());
        let (of_eval, known_bytes, turns) = (0, 0, 0);
        Ok(Scripts {
            lua,
            globals,
            run,
            handler,
            library_globals: of_library.get("globals")?,
            load_library: of_library.get("load")?,
            run_function: of_library.get("run")?,
            registry,
            known,
            order,
            of_eval,
            known_bytes,
            turns,
            state,
            watchdog,
        })
    }

    /// How many scripts there are.
    pub(crate) fn count(&self) -> usize {
        self.known.len()
    }

    /// Bytes that the interpreter uses.
    pub(crate) fn memory(&self) -> usize {
        self.lua.used_memory()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }

    /// What a script that is known says of itself.
    pub(super) fn flags(&self, name: &str) -> Flags {
        self.known.get(name).map_or_else(Flags::default, |script| script.flags)
    }

    /// Makes a script known; `loaded`: by SCRIPT LOAD, so that it stays when those of EVAL go.
    pub(super) fn load(&mut self, name: &str, text: &[u8], loaded: bool) -> Result<(), Refusal> {
        if self.has(name) {
            self.use_now(name, loaded);
            return Ok(());
        }
        let (flags, text) = first_line(text)?;
        let before = self.lua.used_memory();
        let function = compile(&self.lua, text, CHUNK, &self.globals);
        let bytes = self.lua.used_memory().saturating_sub(before).max(text.len());
        self.collect();
        let function = function.map_err(|error| {
            Refusal::Words(format!(
                "ERR Error compiling script (new function): {}",
                message(&error)
            ))
        })?;
        while self.known.len() >= KEPT
            || !loaded && self.of_eval >= KEPT_OF_EVAL
            || self.known_bytes + bytes > KEPT_BYTES
        {
            // Clients send a script again when it is not known.
            let Some((turn, name)) = self.order.pop_first() else { break };
            let gone = self.known.remove(&name);
            self.known_bytes -= gone.map_or(0, |script| script.bytes);
            self.of_eval -= usize::from(!turn.0);
        }
        self.turns += 1;
        let turn = (loaded, self.turns);
        self.order.insert(turn, name.to_owned());
        self.of_eval += usize::from(!loaded);
        self.known_bytes += bytes;
        self.known.insert(name.to_owned(), Script { function, flags, bytes, turn });
        Ok(())
    }

    /// Puts a script behind all others in their order.
    pub(super) fn use_now(&mut self, name: &str, loaded: bool) {
        let Some(script) = self.known.get_mut(name) else { return };
        let Some(name) = self.order.remove(&script.turn) else { return };
        self.turns += 1;
        self.of_eval -= usize::from(loaded && !script.turn.0);
        script.turn = (loaded || script.turn.0, self.turns);
        self.order.insert(script.turn, name);
    }

    /// Collects what nobody uses any more if there is much. If this fails, so will the next script.
    fn collect(&self) {
        if self.lua.used_memory() > COLLECT {
            let _ = self.lua.gc_collect();
        }
    }

    /// Runs a script that is known.
    pub(super) fn run_script(&self, context: &mut Context<'_>, ran: Ran<'_>) {
        let Some(Script { function, flags, .. }) = self.known.get(ran.name) else { return };
        self.run(context, Called { function, flags: *flags, of_library: None }, ran);
    }

    /// Runs the text of a library, which has until then to register its functions.
    pub(super) fn load_library(&self, text: &[u8], until: Instant) -> Result<(), String> {
        let function = compile(&self.lua, text, LIBRARY_CHUNK, &self.library_globals);
        let function =
            function.map_err(|e| format!("Error compiling function: {}", message(&e)))?;
        self.watchdog.bound_load(Some(until));
        let done: mlua::Result<(bool, Value)> = self.load_library.call(function);
        self.watchdog.bound_load(None);
        self.collect();
        let failed = |text: &str| Err(format!("Error registering functions: {text}"));
        match done {
            Ok((true, _)) => Ok(()),
            Ok((false, Value::Table(error))) => {
                let text = error.raw_get::<Value>("err").map(|text| bytes_of(&text));
                failed(&String::from_utf8_lossy(&text.unwrap_or_default()))
            }
            Ok((false, error)) => {
                failed(&format!("ERR {}", String::from_utf8_lossy(&bytes_of(&error))))
            }
            Err(error) => failed(&format!("ERR {}", message(&error))),
        }
    }

    /// Runs a script or a function, and writes its reply. What it changed stays, also if it ends
    /// with an error.
    pub(super) fn run(&self, context: &mut Context<'_>, script: Called<'_>, ran: Ran<'_>) {
        let read_only = ran.read_only || script.flags.has(Flags::NO_WRITES);
        let limit = context.shared.configuration.number("busy-reply-threshold");
        self.state.resp3.set(false);
        let what = Running {
            function: script.of_library.map(|_| ran.name.to_owned()),
            command: match script.of_library {
                Some(_) => ran.command.iter().map(|word| word.to_vec()).collect(),
                None => Vec::new(),
            },
            known: script.of_library.unwrap_or_default(),
            ..Running::default()
        };
        self.watchdog.begin(Duration::from_millis(limit), what);
        if context.keys.for_primary {
            self.watchdog.bound_script(OBEYED);
        }
        *self.watchdog.bystanders.borrow_mut() = context.shared.bystanders.take();
        // Nobody waits in a script, and an EXEC is not committed before its end.
        let in_exec = std::mem::replace(&mut context.shared.in_exec, true);
        context.shared.in_script = true;
        let before = context.reply.out.len();
        let done = self.within(context, &script, &ran, read_only, in_exec);
        context.shared.in_exec = in_exec;
        context.shared.in_script = false;
        self.watchdog.end();
        context.shared.bystanders = self.watchdog.bystanders.borrow_mut().take();
        context.shared.shutdown_now |= self.watchdog.take_shut_down();
        if let Err(error) = done {
            context.reply.out.truncate(before);
            let text = format!("ERR {}", message(&error));
            context.shared.note_error(&text);
            context.reply.error(&text);
        }
        self.collect();
    }

    fn within(
        &self,
        context: &mut Context<'_>,
        script: &Called<'_>,
        ran: &Ran<'_>,
        read_only: bool,
        in_exec: bool,
    ) -> mlua::Result<()> {
        let (keys, argv) = (self.list(ran.keys)?, self.list(ran.argv)?);
        // What a script selects is not for its client.
        let of = &*context.session;
        let mut session =
            Session::new(of.id, of.address.clone(), of.here.clone(), of.identity.clone());
        let mut unused = Vec::new();
        session.db = context.session.db;
        session.tracks = context.session.tracks;
        let caller = RefCell::new(Caller {
            context: Context {
                keys: &mut *context.keys,
                session: &mut session,
                shared: &mut *context.shared,
                reply: Reply { out: &mut unused, resp3: false },
            },
            state: &self.state,
            watchdog: &self.watchdog,
            read_only,
            allow_oom: script.flags.has(Flags::ALLOW_OOM),
            in_exec,
        });
        let (ok, value): (bool, Value) = self.lua.scope(|scope| {
            let call = scope.create_function(|lua, args: MultiValue| {
                let out = caller.borrow_mut().call(&args).or_else(raise)?;
                match out.strip_prefix(b"-") {
                    Some(error) => {
                        let text = String::from_utf8_lossy(error).trim_end().to_owned();
                        Err(mlua::Error::external(Raised { text, counted: true }))
                    }
                    None => read_reply(lua, &mut out.as_slice()),
                }
            })?;
            let protected = scope.create_function(|lua, args: MultiValue| {
                match caller.borrow_mut().call(&args) {
                    Ok(out) => read_reply(lua, &mut out.as_slice()),
                    Err(text) => {
                        let table = lua.create_table()?;
                        table.raw_set("err", text)?;
                        Ok(Value::Table(table))
                    }
                }
            })?;
            let run = if script.of_library.is_some() { &self.run_function } else { &self.run };
            let may = scope.create_function(|_, args: MultiValue| {
                match caller.borrow_mut().may(&args) {
                    Ok(may) => Ok(may),
                    Err(text) => raise(text),
                }
            })?;
            run.call((script.function, call, protected, may, &self.handler, keys, argv))
        })?;
        self.answer(context, script, ran, (ok, value))
    }

    fn list(&self, all: &Arguments<'_>) -> mlua::Result<Table> {
        // One string at a time: the places for what is held from outside are few.
        let list = self.lua.create_table_with_capacity(all.len(), 0)?;
        for (one, at) in all.iter().zip(1_i64..) {
            list.raw_set(at, self.lua.create_string(one)?)?;
        }
        Ok(list)
    }

    /// Replies with what came of a run, and counts what failed.
    fn answer(
        &self,
        context: &mut Context<'_>,
        script: &Called<'_>,
        ran: &Ran<'_>,
        result: (bool, Value),
    ) -> mlua::Result<()> {
        match result {
            (true, value) => {
                let (resp3, shared) = (self.state.resp3.get(), &mut *context.shared);
                let mut note = |text: &str| shared.note_error(text);
                let mut room = Room::new(&mut note);
                write_reply(&mut context.reply, &value, resp3, &mut room)?;
                if room.has_counted {
                    context.shared.statistics.fails();
                }
            }
            (false, Value::Table(error)) => {
                let text = bytes_of(&error.raw_get::<Value>("err")?);
                let text = String::from_utf8_lossy(&text).into_owned();
                let line = error.raw_get::<Option<i64>>("line")?;
                let chunk = if script.of_library.is_some() { LIBRARY_CHUNK } else { CHUNK };
                let place = line.map_or_else(String::new, |line| format!(", on {chunk}:{line}."));
                let text = format!("{text} script: {}{place}", ran.name);
                match is_counted(&error)? {
                    true => context.shared.statistics.fails(),
                    false => context.shared.note_error(&text),
                }
                context.reply.error(&text);
            }
            (false, other) => {
                let text = format!("ERR {}", other.to_string()?);
                context.shared.note_error(&text);
                context.reply.error(&text);
            }
        }
        Ok(())
    }
}

/// Makes a function of a text, never of what a compiler made.
fn compile(lua: &Lua, text: &[u8], name: &str, environment: &Table) -> mlua::Result<Function> {
    if text.first() == Some(&0x1b) {
        return Err(mlua::Error::RuntimeError("attempt to load a binary chunk".to_owned()));
    }
    lua.load(text)
        .set_name(name)
        .set_mode(ChunkMode::Text)
        .set_environment(environment.clone())
        .into_function()
}

/// The bytes of a string, or of a number as Redis prints it; nothing of anything else.
pub(super) fn bytes_of(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.as_bytes().to_vec(),
        other => number(other).map_or_else(Vec::new, |n| print_score(n).into_bytes()),
    }
}

/// What redis.call is during one run.
struct Caller<'a, 'b> {
    context: Context<'b>,
    state: &'a State,
    watchdog: &'a Watchdog,
    read_only: bool,
    /// More than `maxmemory` may be used.
    allow_oom: bool,
    /// The script is part of an EXEC.
    in_exec: bool,
}

impl Caller<'_, '_> {
    /// Executes a command; its reply, or why this is none.
    fn call(&mut self, args: &MultiValue) -> Result<Vec<u8>, &'static str> {
        let mut words: Vec<Vec<u8>> = Vec::with_capacity(args.len());
        for value in args {
            match value {
                Value::String(_) | Value::Integer(_) | Value::Number(_) => {
                    words.push(bytes_of(value))
                }
                _ => return Err("ERR Lua redis lib command arguments must be strings or integers"),
            }
        }
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        if words.is_empty() {
            return Err("ERR Please specify at least one argument for this redis lib call");
        }
        let mut out = Vec::new();
        if let Err(refusal) = self.execute(&words, &mut out) {
            let shared = &mut *self.context.shared;
            shared.reject(&refusal.text(), &words);
            // The script is not blamed for it as well.
            shared.statistics.begin(shared.refused);
            Reply { out: &mut out, resp3: false }.error(&refusal.text());
        }
        if out.len() > REPLIES_MAX {
            out = b"-ERR the reply is too large\r\n".to_vec();
        }
        Ok(out)
    }

    /// Whether who runs the script may execute a command.
    fn may(&mut self, args: &MultiValue) -> Result<bool, &'static str> {
        let words: Vec<Vec<u8>> = args.iter().map(bytes_of).collect();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let name = words
            .first()
            .ok_or("ERR Please specify at least one argument for this redis lib call")?;
        let row = lookup(name).ok_or("ERR Invalid command passed to redis.acl_check_cmd()")?;
        Ok(acl::may(&mut self.context, row, &words))
    }

    fn execute(&mut self, words: &Arguments<'_>, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let row = lookup(words[0])
            .ok_or(Refusal::Said("ERR Unknown Redis command called from script"))?;
        let fit = subcommands::fit(row.name, words);
        if !row.takes(words.len()) || matches!(fit, Fit::WrongCount(_)) {
            return Err(Refusal::Said(
                "ERR Wrong number of args calling Redis command from script",
            ));
        }
        if fit == Fit::Unknown {
            return Err(Refusal::Said("ERR Unknown Redis command called from script"));
        }
        let resets = row.name == "cluster" && words[1].eq_ignore_ascii_case(b"reset");
        // Some subcommands of what is refused are not: those that help.
        let helps = || acl::described_with(row.name, words).is_some_and(|one| one.helps());
        if (row.flags & flag::NOT_IN_SCRIPT != 0 && !helps()) || resets {
            return Err(Refusal::Said("ERR This Redis command is not allowed from script"));
        }
        acl::refuse_in_script(&mut self.context, row, words)?;
        let writes = row.flags & flag::WRITE != 0;
        // Replicas are told of these, and Redis takes that for writing.
        let tells = matches!(row.name, "publish" | "spublish" | "pfcount");
        if (writes || tells) && self.read_only {
            return Err(Refusal::Said(
                "ERR Write commands are not allowed from read-only scripts.",
            ));
        }
        if !self.allow_oom
            && self.context.shared.over_limit
            && !self.watchdog.wrote.get()
            && takes_space(words)
        {
            return Err(OVER);
        }
        let context = &mut self.context;
        let resp3 = self.state.resp3.get();
        context.session.resp3 = resp3;
        for again in [false, true] {
            out.clear();
            context.shared.commands += 1;
            let mut inner = Context {
                keys: &mut *context.keys,
                session: &mut *context.session,
                shared: &mut *context.shared,
                reply: Reply { out, resp3 },
            };
            run(&mut inner, row, words);
            // Before its first change a script may wait for space, as a command does.
            let full = std::mem::take(&mut context.shared.full);
            if !full || again || self.in_exec || self.watchdog.wrote.get() {
                break;
            }
            context.keys.make_space();
        }
        if writes && out.first() != Some(&b'-') {
            self.watchdog.wrote.set(true);
        }
        if context.keys.heap().planted().is(Planted::ScriptOneByOne) {
            context.keys.heap_mut().commit();
        }
        Ok(())
    }
}
