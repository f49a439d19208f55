//! SLOWLOG: commands that took at least `slowlog-log-slower-than` microseconds, the last one first;
//! as many as `slowlog-max-len` says. It is in ordinary memory, and a start begins it anew.
//!
//! As in Redis, EXEC is not in it, but its commands are, and so are those of scripts; of a command
//! that waited for a key only the time counts in which it ran. Passwords are left out.

use std::collections::VecDeque;
use std::time::Duration;

use super::arguments::integer_or_refusal;
use super::subcommands::{help, syntax};
use super::{Arguments, Context, Done, Refusal, Row, word};

/// Arguments that are kept of a command.
const ARGUMENTS_MAX: usize = 32;
/// Bytes that are kept of an argument.
const BYTES_MAX: usize = 128;
/// Characters that are kept of a client's name, which has no limit of its own.
const NAME_MAX: usize = 4096;
/// Settings whose values are left out.
const SECRETS: [&str; 3] = ["masterauth", "masteruser", "requirepass"];

#[derive(Debug)]
struct Entry {
    id: u64,
    seconds: u64,
    micros: u64,
    arguments: Vec<Vec<u8>>,
    address: String,
    name: String,
}

/// The log.
#[derive(Debug, Default)]
pub(crate) struct SlowLog {
    /// The last one first.
    entries: VecDeque<Entry>,
    next: u64,
}

/// Whether an argument is a secret, as Redis says.
pub(super) fn is_secret(row: &Row, args: &Arguments<'_>, at: usize) -> bool {
    let is = |at: usize, name: &str| args.get(at).is_some_and(|one| word(one) == name);
    match row.name {
        "auth" => at > 0,
        "acl" => at > 1 && is(1, "setuser"),
        "hello" => (1..=2).any(|back| at > 1 + back && is(at - back, "auth")),
        "config" => {
            at > 2 && at % 2 == 1 && is(1, "set") && SECRETS.iter().any(|name| is(at - 1, name))
        }
        _ => false,
    }
}

/// The arguments as they are kept.
fn kept(row: &Row, args: &Arguments<'_>) -> Vec<Vec<u8>> {
    let whole = if args.len() > ARGUMENTS_MAX { ARGUMENTS_MAX - 1 } else { args.len() };
    let one = |(at, arg): (usize, &&[u8])| match arg.split_at_checked(BYTES_MAX) {
        _ if is_secret(row, args, at) => b"(redacted)".to_vec(),
        Some((first, rest)) if !rest.is_empty() => {
            [first, format!("... ({} more bytes)", rest.len()).as_bytes()].concat()
        }
        _ => arg.to_vec(),
    };
    let mut all: Vec<Vec<u8>> = args[..whole].iter().enumerate().map(one).collect();
    if whole < args.len() {
        all.push(format!("... ({} more arguments)", args.len() - whole).into_bytes());
    }
    all
}

/// Notes a command that was done, if it took long.
#[inline]
pub(super) fn note(context: &mut Context<'_>, row: &Row, args: &Arguments<'_>, ticks: u64) {
    let (shared, hot) = (&context.shared, &context.shared.configuration.hot);
    let Ok(least) = u64::try_from(hot.slower_than_us) else { return };
    let fits = shared.slow_log.entries.len() <= hot.slow_log_most;
    if fits && shared.ticks.certainly_shorter(ticks, least) {
        return;
    }
    let took = shared.ticks.duration(ticks);
    note_slow(context, row, args, took, least);
}

#[cold]
fn note_slow(
    context: &mut Context<'_>,
    row: &Row,
    args: &Arguments<'_>,
    took: Duration,
    least: u64,
) {
    let (most, micros) = (context.shared.configuration.hot.slow_log_most, took.as_micros() as u64);
    if row.name == "exec" {
        return;
    }
    if micros >= least {
        let (address, name) = match context.shared.in_script {
            // A script is a client of its own.
            true => ("?:0".to_owned(), String::new()),
            false => {
                let name: String = context.session.name.chars().take(NAME_MAX).collect();
                (context.session.address.clone(), name)
            }
        };
        let log = &mut context.shared.slow_log;
        log.entries.push_front(Entry {
            id: log.next,
            seconds: context.keys.now_ms() / 1000,
            micros,
            arguments: kept(row, args),
            address,
            name,
        });
        log.next += 1;
    }
    context.shared.slow_log.entries.truncate(most);
}

pub(crate) fn slowlog(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    match (word(args[1]).as_str(), &args[2..]) {
        ("get", counts @ ([] | [_])) => get(context, counts.first().copied())?,
        ("len", []) => context.reply.count(context.shared.slow_log.entries.len() as u64),
        ("reset", []) => {
            context.shared.slow_log.entries.clear();
            context.reply.ok();
        }
        ("help", []) => help(
            context,
            "slowlog",
            &[
                "GET [<count>]",
                "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
                "    Entries are made of:",
                "    id, timestamp, time in microseconds, arguments array, client IP and port,",
                "    client name",
                "LEN",
                "    Return the length of the slowlog.",
                "RESET",
                "    Reset the slowlog.",
            ],
        ),
        _ => return Err(syntax("slowlog", args)),
    }
    Ok(())
}

fn get(context: &mut Context<'_>, count: Option<&[u8]>) -> Done {
    let wrong = || Refusal::Said("ERR count should be greater than or equal to -1");
    let count = match count {
        None => 10,
        Some(count) => integer_or_refusal(count).map_err(|_| wrong())?,
    };
    let most = match count {
        -1 => usize::MAX,
        count => usize::try_from(count).map_err(|_| wrong())?,
    };
    let entries = &context.shared.slow_log.entries;
    context.reply.list(entries.len().min(most));
    for entry in entries.iter().take(most) {
        context.reply.list(6);
        context.reply.count(entry.id);
        context.reply.count(entry.seconds);
        context.reply.count(entry.micros);
        context.reply.list(entry.arguments.len());
        entry.arguments.iter().for_each(|argument| context.reply.bulk(argument));
        context.reply.bulk(entry.address.as_bytes());
        context.reply.bulk(entry.name.as_bytes());
    }
    Ok(())
}
