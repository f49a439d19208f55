//! EVAL and its sisters: Lua scripts, which run within one transaction of the heap.
//!
//! What a script changes is committed with its reply, like a command: after a power cut all of it
//! is there or nothing. As in Redis, a script that ends with an error keeps what it changed before.
//! What scripts see is in `prelude.lua`; the interpreter is made when the first script comes.
//!
//! Libraries of functions have an interpreter of their own (`libraries.rs`).
//!
//! Deliberately absent: the debugger, exact times of the garbage
//! collector. Read next: `interpreter.rs`, `values.rs`.

mod bits;
mod functions;
mod interpreter;
mod json;
mod libraries;
mod library;
mod msgpack;
mod packed;
mod register;
mod values;
mod watchdog;

use sha1::{Digest, Sha1};

use super::arguments::integer_or_refusal;
use super::help::help;
use super::{Arguments, Context, Done, Refusal, Shared, word};
pub(crate) use functions::{fcall, fcall_ro, function, stats, writes};
use interpreter::Ran;
pub(crate) use interpreter::Scripts;
pub(crate) use libraries::{Libraries, Unusable, check as check_libraries};
pub(crate) use watchdog::{Bystanders, Running, Told};

const NO_SCRIPT: Refusal = Refusal::Said("NOSCRIPT No matching script. Please use EVAL.");

/// The name of a script: 40 digits in base 16.
fn digest(text: &[u8]) -> String {
    Sha1::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a script says of itself in its first line, and a function when it is registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Flags(u8);

impl Flags {
    const NO_WRITES: Flags = Flags(1);
    const ALLOW_OOM: Flags = Flags(2);
    /// It said so at all, maybe that it has none.
    const DECLARED: Flags = Flags(1 << 7);
    /// Their names, from the lowest bit on. The last three are about what this server does not
    /// have.
    const NAMES: [&str; 5] =
        ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

    fn has(self, one: Flags) -> bool {
        self.0 & one.0 != 0
    }

    /// With one more; nothing if there is none of this name.
    fn with(self, name: &str) -> Option<Flags> {
        let bit = Flags::NAMES.iter().position(|known| *known == name)?;
        Some(Flags(self.0 | 1 << bit))
    }

    fn names(self) -> Vec<&'static str> {
        let has = |bit: &usize| self.0 >> bit & 1 == 1;
        (0..Flags::NAMES.len()).filter(has).map(|bit| Flags::NAMES[bit]).collect()
    }
}

/// Reads `#!lua flags=...`, and what is left to be compiled: a line that says nothing.
fn first_line(text: &[u8]) -> Result<(Flags, &[u8]), Refusal> {
    let mut flags = Flags::default();
    if !text.starts_with(b"#!") {
        return Ok((flags, text));
    }
    flags.0 |= Flags::DECLARED.0;
    let end = text.iter().position(|byte| *byte == b'\n');
    let end = end.ok_or(Refusal::Said("ERR Invalid script shebang"))?;
    let line = String::from_utf8_lossy(&text[..end]);
    let mut words = line.split_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "#!lua" {
        return Err(Refusal::Words(format!("ERR Unexpected engine in script shebang: {engine}")));
    }
    for option in words {
        let Some(list) = option.strip_prefix("flags=") else {
            return Err(Refusal::Words(format!("ERR Unknown lua shebang option: {option}")));
        };
        for flag in list.split(',').filter(|flag| !flag.is_empty()) {
            flags = flags.with(flag).ok_or_else(|| {
                Refusal::Words(format!("ERR Unexpected flag in script shebang: {flag}"))
            })?;
        }
    }
    Ok((flags, &text[end..]))
}

/// `numkeys key... arg...`: the keys and the arguments.
fn split<'a>(args: &'a Arguments<'a>) -> Result<(&'a Arguments<'a>, &'a Arguments<'a>), Refusal> {
    let count = integer_or_refusal(args[0])?;
    let count = usize::try_from(count)
        .map_err(|_| Refusal::Said("ERR Number of keys can't be negative"))?;
    args[1..]
        .split_at_checked(count)
        .ok_or(Refusal::Said("ERR Number of keys can't be greater than number of args"))
}

/// Whether a command runs a script or function that says itself that it changes nothing, and is
/// held to that.
pub(crate) fn changes_nothing(shared: &Shared, args: &Arguments<'_>) -> bool {
    let (Some(name), Some(what)) = (args.first(), args.get(1)) else { return false };
    let flags = match word(name).as_str() {
        "eval" => first_line(what).ok().map(|(flags, _)| flags),
        "evalsha" => shared.scripts.as_ref().map(|scripts| scripts.flags(&word(what))),
        "fcall" => {
            let found = shared.libraries.as_ref().and_then(|all| all.function(what));
            found.map(|(_, registered)| registered.flags)
        }
        _ => None,
    };
    flags.is_some_and(|flags| flags.has(Flags::NO_WRITES))
}

/// Does something with the interpreter, which is made if there is none yet.
fn with<T>(
    context: &mut Context<'_>,
    what: impl FnOnce(&mut Context<'_>, &mut Scripts) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let mut scripts = match context.shared.scripts.take() {
        Some(scripts) => scripts,
        None => Box::new(Scripts::new().map_err(|e| {
            Refusal::Words(format!("ERR cannot make an interpreter for scripts: {e}"))
        })?),
    };
    let done = what(context, &mut scripts);
    context.shared.scripts = Some(scripts);
    done
}

fn run(context: &mut Context<'_>, args: &Arguments<'_>, by_name: bool, read_only: bool) -> Done {
    let (keys, argv) = split(&args[2..])?;
    let name = if by_name { word(args[1]) } else { digest(args[1]) };
    with(context, |context, scripts| {
        match scripts.has(&name) {
            true => scripts.use_now(&name, false),
            false if by_name => return Err(NO_SCRIPT),
            false => scripts.load(&name, args[1], false)?,
        }
        let flags = scripts.flags(&name);
        if flags.has(Flags::DECLARED) {
            functions::may_run(context, flags, read_only)?;
        }
        // A second time would do twice what the first one did.
        context.shared.not_again = true;
        let command = args;
        scripts.run_script(context, Ran { name: &name, keys, argv, read_only, command });
        Ok(())
    })
}

pub(crate) fn eval(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    run(context, args, false, false)
}

pub(crate) fn eval_ro(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    run(context, args, false, true)
}

pub(crate) fn evalsha(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    run(context, args, true, false)
}

pub(crate) fn evalsha_ro(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    run(context, args, true, true)
}

pub(crate) fn script(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let mut scripts = context.shared.scripts.as_mut();
    match (word(args[1]).as_str(), &args[2..]) {
        ("load", [text]) => {
            let name = digest(text);
            with(context, |_, scripts| scripts.load(&name, text, true))?;
            context.reply.bulk(name.as_bytes());
        }
        ("exists", names @ [_, ..]) => {
            context.reply.list(names.len());
            for name in names {
                let there = scripts.as_mut().is_some_and(|scripts| scripts.has(&word(name)));
                context.reply.integer(i64::from(there));
            }
        }
        ("flush", how) => {
            if !matches!(how.first().map(|how| word(how)).as_deref(), None | Some("sync" | "async"))
                || how.len() > 1
            {
                return Err(Refusal::Said("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
            }
            context.shared.scripts = None;
            context.reply.ok();
        }
        // While one runs, the server answers this itself.
        ("kill", []) => return Err(Refusal::Said("NOTBUSY No scripts in execution right now.")),
        ("help", []) => help(context, "script"),
        ("debug", [how]) if how.eq_ignore_ascii_case(b"no") => context.reply.ok(),
        ("debug", [_]) => {
            return Err(Refusal::Said(
                "ERR the debugger of scripts is not there; use redis.log or PUBLISH",
            ));
        }
        (name, _) => {
            return Err(Refusal::Words(format!(
                "ERR unknown subcommand '{name}'. Try SCRIPT HELP."
            )));
        }
    }
    Ok(())
}
