//! FUNCTION of a server that has no libraries: what a client that asks for them is told.
//!
//! Deliberately absent: libraries, so FUNCTION LOAD, DUMP, RESTORE and FCALL. Clients and tests
//! that empty a server say FUNCTION FLUSH, which has nothing to remove here.

use crate::command::{Arguments, Context, Done, Refusal, word};

pub(crate) fn function(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    match (word(args[1]).as_str(), &args[2..]) {
        ("flush", how) => {
            let how: Vec<_> = how.iter().map(|how| word(how)).collect();
            if !matches!(
                how.iter().map(String::as_str).collect::<Vec<_>>()[..],
                [] | ["sync" | "async"]
            ) {
                return Err(Refusal::Said("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
            }
            context.reply.ok();
        }
        ("list", options) => {
            listing(options)?;
            context.reply.list(0);
        }
        ("delete", [_]) => return Err(Refusal::Said("ERR Library not found")),
        // A script that runs is ended by SCRIPT KILL.
        ("kill", []) => return Err(Refusal::Said("NOTBUSY No scripts in execution right now.")),
        (name, _) => {
            return Err(Refusal::Words(format!(
                "ERR FUNCTION {} is not supported by this server; use EVAL or SCRIPT LOAD",
                name.to_ascii_uppercase()
            )));
        }
    }
    Ok(())
}

/// `[LIBRARYNAME pattern] [WITHCODE]`, in any order.
fn listing(options: &Arguments<'_>) -> Done {
    let (mut named, mut code, mut at) = (false, false, 0);
    while let Some(option) = options.get(at) {
        match word(option).as_str() {
            "withcode" if !code => code = true,
            "libraryname" if !named && at + 1 < options.len() => {
                (named, at) = (true, at + 1);
            }
            "libraryname" if !named => {
                return Err(Refusal::Said("ERR library name argument was not given"));
            }
            other => {
                return Err(Refusal::Words(format!("ERR Unknown argument {other}")));
            }
        }
        at += 1;
    }
    Ok(())
}
