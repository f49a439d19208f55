//! FUNCTION, FCALL and FCALL_RO: libraries of functions, which are data as keys are, with the
//! answers of Redis 7.0.
//!
//! FUNCTION is no command that writes, but some of its subcommands are: [`writes`] says which, and
//! whoever asks whether a command writes has to ask it too.

use super::Flags;
use super::interpreter::{Called, Ran};
use super::libraries::{FUNCTIONS_MAX, Libraries, TEXTS_MAX};
use crate::command::arguments::glob;
use crate::command::space::OVER;
use crate::command::{Arguments, Context, Done, READ_ONLY, Refusal, subcommands, word};
use crate::number::integer;
use crate::rdb;

/// Whether a FUNCTION changes the libraries.
pub(crate) fn writes(args: &Arguments<'_>) -> bool {
    args.first().is_some_and(|name| name.eq_ignore_ascii_case(b"function"))
        && args.get(1).is_some_and(|sub| {
            matches!(word(sub).as_str(), "load" | "delete" | "flush" | "restore")
        })
}

/// Does something with the libraries, which are made if the tier has others than those known.
fn with<T>(
    context: &mut Context<'_>,
    what: impl FnOnce(&mut Context<'_>, &mut Libraries) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let mut kept = context.shared.libraries.take();
    let mut unusable = context.shared.libraries_unusable.take();
    let done = Libraries::current(&mut kept, &mut unusable, context.keys)
        .and_then(|all| what(context, all));
    context.shared.libraries_unusable = unusable;
    context.shared.libraries = kept;
    done
}

pub(crate) fn function(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    match (word(args[1]).as_str(), &args[2..]) {
        ("load", [options @ .., text]) => load(context, options, text)?,
        ("restore", [_, _, _, ..]) | ("flush", [_, _, ..]) => {
            return Err(subcommands::syntax("function", args));
        }
        ("restore", [payload, policy @ ..]) => {
            restore(context, payload, policy.first().copied())?;
        }
        ("flush", how) => {
            if !matches!(how.first().map(|how| word(how)).as_deref(), None | Some("sync" | "async"))
            {
                return Err(Refusal::Said("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
            }
            // What cannot be made can be removed.
            context.shared.libraries = None;
            context.keys.flush_libraries();
            context.reply.ok();
        }
        ("delete", [name]) => {
            let before = context.keys.libraries_turn();
            if !context.keys.remove_library(name) {
                return Err(Refusal::Said("ERR Library not found"));
            }
            context.reply.ok();
            if let Some(all) = &mut context.shared.libraries {
                all.removed(context.keys, name, before);
            }
        }
        ("list", options) => list(context, options)?,
        ("dump", []) => {
            let texts = context.keys.libraries();
            let dump = rdb::dump_libraries(texts.iter().map(|(_, text)| text.as_slice()));
            context.reply.bulk(&dump);
        }
        ("stats", []) => with(context, |context, all| {
            stats(&mut context.reply, None, all.counts());
            Ok(())
        })?,
        ("help", []) => subcommands::help(context, "function", HELP),
        // While one runs, the server answers this itself.
        ("kill", []) => return Err(Refusal::Said("NOTBUSY No scripts in execution right now.")),
        _ => return Err(subcommands::syntax("function", args)),
    }
    Ok(())
}

/// `[REPLACE] text`.
fn load(context: &mut Context<'_>, options: &Arguments<'_>, text: &[u8]) -> Done {
    if context.shared.over_limit {
        return Err(OVER);
    }
    if let Some(other) = options.iter().find(|option| word(option) != "replace") {
        let other = String::from_utf8_lossy(other);
        return Err(Refusal::Words(format!("ERR Unknown option given: {other}")));
    }
    let name = with(context, |context, all| {
        let until = Libraries::until(context.keys, false);
        let (name, library) = all.make(text, options.is_empty(), until)?;
        all.collides(&library, &[&name])?;
        all.put(context.keys, vec![(name.clone(), library)], false)?;
        Ok(name)
    })?;
    context.reply.bulk(name.as_bytes());
    Ok(())
}

/// `payload [FLUSH | APPEND | REPLACE]`.
fn restore(context: &mut Context<'_>, payload: &[u8], policy: Option<&[u8]>) -> Done {
    if context.shared.over_limit {
        return Err(OVER);
    }
    let policy = policy.map_or_else(|| "append".to_owned(), word);
    if !matches!(policy.as_str(), "flush" | "append" | "replace") {
        return Err(Refusal::Said(
            "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
        ));
    }
    // What a client says to be large takes no more memory than what may be kept.
    let limits = rdb::Limits { value: TEXTS_MAX as u64, file: TEXTS_MAX as u64 };
    let items = rdb::libraries(payload, limits, FUNCTIONS_MAX).map_err(|error| match error {
        rdb::Error::Damaged { what: what @ rdb::NO_FUNCTION, .. } => {
            Refusal::Words(format!("ERR {what}"))
        }
        rdb::Error::Damaged { what: rdb::UNSIGNED, .. } => {
            Refusal::Said("ERR DUMP payload version or checksum are wrong")
        }
        _ => Refusal::Said("ERR failed loading the given functions payload"),
    })?;
    with(context, |context, all| {
        let until = Libraries::until(context.keys, true);
        let flush = policy == "flush";
        let mut functions = 0;
        let mut made: Vec<(String, _)> = Vec::with_capacity(items.len());
        for item in &items {
            let rdb::Content::Library(text) = &item.content else { continue };
            let (name, library) = all.make(text, false, until)?;
            if made.iter().any(|(other, _)| *other == name)
                || policy == "append" && all.known.contains_key(&name)
            {
                return Err(Refusal::Words(format!("ERR Library {name} already exists")));
            }
            functions += library.functions.len();
            made.push((name, library));
            // Before the next one is made, which takes memory and a place.
            if functions > FUNCTIONS_MAX {
                break;
            }
        }
        all.fit_together(&made, flush)?;
        all.put(context.keys, made, flush)
    })?;
    context.reply.ok();
    Ok(())
}

/// `[LIBRARYNAME pattern] [WITHCODE]`, in any order.
fn list(context: &mut Context<'_>, options: &Arguments<'_>) -> Done {
    let (mut pattern, mut code, mut at) = (None, false, 0);
    while let Some(option) = options.get(at) {
        match word(option).as_str() {
            "withcode" if !code => code = true,
            "libraryname" if pattern.is_none() => {
                at += 1;
                pattern = Some(
                    *options
                        .get(at)
                        .ok_or(Refusal::Said("ERR library name argument was not given"))?,
                );
            }
            _ => {
                let other = String::from_utf8_lossy(option);
                return Err(Refusal::Words(format!("ERR Unknown argument {other}")));
            }
        }
        at += 1;
    }
    with(context, |context, all| {
        let wanted =
            |name: &str| pattern.is_none_or(|pattern| glob(pattern, name.as_bytes(), true));
        let listed: Vec<_> = all.known.iter().filter(|(name, _)| wanted(name)).collect();
        let reply = &mut context.reply;
        reply.list(listed.len());
        for (name, library) in listed {
            reply.map(3 + usize::from(code));
            reply.bulk(b"library_name");
            reply.bulk(name.as_bytes());
            reply.bulk(b"engine");
            reply.bulk(b"LUA");
            reply.bulk(b"functions");
            reply.list(library.functions.len());
            for (name, function) in &library.functions {
                reply.map(3);
                reply.bulk(b"name");
                reply.bulk(name.as_bytes());
                reply.bulk(b"description");
                match &function.description {
                    Some(text) => reply.bulk(text),
                    None => reply.null(),
                }
                reply.bulk(b"flags");
                let flags = function.flags.names();
                reply.set(flags.len());
                flags.iter().for_each(|flag| reply.simple(flag));
            }
            if code {
                reply.bulk(b"library_code");
                reply.bulk(&library.text);
            }
        }
        Ok(())
    })
}

/// What FUNCTION STATS says: what runs, if a function does, and the libraries and functions.
pub(crate) fn stats(
    reply: &mut crate::command::Reply<'_>,
    running: Option<&super::Running>,
    [libraries, functions]: [usize; 2],
) {
    reply.map(2);
    reply.bulk(b"running_script");
    match running {
        None => reply.null(),
        Some(running) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(running.function.as_deref().unwrap_or_default().as_bytes());
            reply.bulk(b"command");
            reply.list(running.command.len());
            running.command.iter().for_each(|word| reply.bulk(word));
            reply.bulk(b"duration_ms");
            reply.integer(running.duration_ms.cast_signed());
        }
    }
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.count(libraries as u64);
    reply.bulk(b"functions_count");
    reply.count(functions as u64);
}

pub(crate) fn fcall(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    call(context, args, false)
}

pub(crate) fn fcall_ro(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    call(context, args, true)
}

fn call(context: &mut Context<'_>, args: &Arguments<'_>, read_only: bool) -> Done {
    with(context, |context, all| {
        let found = all.function(args[1]).ok_or(Refusal::Said("ERR Function not found"))?;
        let (name, registered) = found;
        let count = integer(args[2]).ok_or(Refusal::Said("ERR Bad number of keys provided"))?;
        if count > (args.len() - 3) as i64 {
            return Err(Refusal::Said("ERR Number of keys can't be greater than number of args"));
        }
        let count = usize::try_from(count)
            .map_err(|_| Refusal::Said("ERR Number of keys can't be negative"))?;
        let flags = registered.flags;
        may_run(context, flags, read_only)?;
        let (keys, argv) = args[3..].split_at(count);
        // A second time would do twice what the first one did.
        context.shared.not_again = true;
        let function = &registered.function;
        let called = Called { function, flags, of_library: Some(all.counts()) };
        all.scripts.run(context, called, Ran { name, keys, argv, read_only, command: args });
        Ok(())
    })
}

/// Whether a function may run now, or a script that says what it does.
pub(super) fn may_run(context: &Context<'_>, flags: Flags, read_only: bool) -> Done {
    let writes = !flags.has(Flags::NO_WRITES);
    // As of any command that writes, and before anything else is said of it.
    if context.shared.over_limit && writes && !flags.has(Flags::ALLOW_OOM) {
        return Err(OVER);
    }
    if writes && context.keys.follows && !context.keys.for_primary {
        return Err(READ_ONLY);
    }
    if writes && !context.keys.for_primary && context.shared.lacks_replicas() {
        return Err(Refusal::Said("NOREPLICAS Not enough good replicas to write."));
    }
    if writes && read_only {
        return Err(Refusal::Said(
            "ERR Can not execute a script with write flag using *_ro command.",
        ));
    }
    Ok(())
}

const HELP: &[&str] = &[
    "LOAD [REPLACE] <FUNCTION CODE>",
    "    Create a new library with the given library name and code.",
    "DELETE <LIBRARY NAME>",
    "    Delete the given library.",
    "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
    "    Return general information on all the libraries:",
    "    * Library name",
    "    * The engine used to run the Library",
    "    * Library description",
    "    * Functions list",
    "    * Library code (if WITHCODE is given)",
    "    It also possible to get only function that matches a pattern using LIBRARYNAME argument.",
    "STATS",
    "    Return information about the current function running:",
    "    * Function name",
    "    * Command used to run the function",
    "    * Duration in MS that the function is running",
    "    If no function is running, return nil",
    "    In addition, returns a list of available engines.",
    "KILL",
    "    Kill the current running function.",
    "FLUSH [ASYNC|SYNC]",
    "    Delete all the libraries.",
    "    When called without the optional mode argument, the behavior is determined by the",
    "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
    "    * ASYNC: Asynchronously flush the libraries.",
    "    * SYNC: Synchronously flush the libraries.",
    "DUMP",
    "    Return a serialized payload representing the current libraries, can be restored using \
     FUNCTION RESTORE command",
    "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
    "    Restore the libraries represented by the given payload, it is possible to give a restore \
     policy to",
    "    control how to handle existing libraries (default APPEND):",
    "    * FLUSH: delete all existing libraries.",
    "    * APPEND: appends the restored libraries to the existing libraries. On collision, abort.",
    "    * REPLACE: appends the restored libraries to the existing libraries, On collision, \
     replace the old",
    "      libraries with the new libraries (notice that even on this option there is a chance of \
     failure",
    "      in case of functions name collision with another library).",
];
