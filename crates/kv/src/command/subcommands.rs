//! Commands whose first argument names what they do, and what of that there is, as in Redis.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::{Arguments, Context, Refusal, acl, word, wrong_count};

/// The commands that have some.
const HAVE: [&str; 15] = [
    "acl", "client", "cluster", "command", "config", "function", "latency", "memory", "module",
    "object", "pubsub", "script", "slowlog", "xgroup", "xinfo",
];

/// Of Redis 7.2, which the catalogue does not have: clients say it without asking.
const SETINFO: (&str, &str, i64) = ("client", "setinfo", 4);

/// Names, each with the number of arguments that it takes, as in the table of commands.
type Subcommands = Vec<(&'static str, i64)>;

/// The subcommands of a command, if it has some.
pub(super) fn of(command: &str) -> Option<&'static [(&'static str, i64)]> {
    static ALL: LazyLock<HashMap<&'static str, Subcommands>> =
        LazyLock::new(|| HAVE.iter().map(|command| (*command, all_of(command))).collect());
    ALL.get(command).map(Vec::as_slice)
}

fn all_of(command: &'static str) -> Subcommands {
    let known = acl::described(command).into_iter().flat_map(acl::children);
    let named = known.filter_map(|one| Some((one.name.split_once('|')?.1, one.arity)));
    let newer = (command == SETINFO.0).then_some((SETINFO.1, SETINFO.2));
    let mut all: Subcommands = named.chain(newer).collect();
    all.sort_unstable();
    all
}

/// Whether a command has subcommands, for the table of commands.
pub(super) const fn are_of(command: &str) -> bool {
    let mut at = 0;
    while at < HAVE.len() {
        if same(HAVE[at].as_bytes(), command.as_bytes()) {
            return true;
        }
        at += 1;
    }
    false
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// Whether a command can run with its subcommand, if it has one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// With this subcommand, or none.
    Fits(&'static str),
    Unknown,
    WrongCount(&'static str),
}

pub(super) fn fit(command: &str, args: &Arguments<'_>) -> Fit {
    let (Some(all), Some(name)) = (of(command), args.get(1)) else { return Fit::Fits("") };
    let small = word(name);
    let Some((known, arity)) = all.iter().find(|(known, _)| *known == small) else {
        return Fit::Unknown;
    };
    let wanted = arity.unsigned_abs() as usize;
    match if *arity < 0 { args.len() >= wanted } else { args.len() == wanted } {
        true => Fit::Fits(known),
        false => Fit::WrongCount(known),
    }
}

/// The subcommand of a command, which may be none, or why it cannot run with it.
pub(super) fn check(command: &str, args: &Arguments<'_>) -> Result<&'static str, Refusal> {
    match fit(command, args) {
        Fit::Fits(name) => Ok(name),
        Fit::WrongCount(known) => Err(wrong_count(&format!("{command}|{known}"))),
        Fit::Unknown => Err(Refusal::Words(format!(
            "ERR unknown subcommand '{}'. Try {} HELP.",
            args.get(1).map(|name| shown(name)).unwrap_or_default(),
            command.to_ascii_uppercase()
        ))),
    }
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(&name[..name.len().min(128)]).into_owned()
}

/// What a subcommand says of arguments that it does not take.
pub(super) fn syntax(command: &str, args: &Arguments<'_>) -> Refusal {
    Refusal::Words(format!(
        "ERR unknown subcommand or wrong number of arguments for '{}'. Try {} HELP.",
        args.get(1).map(|name| shown(name)).unwrap_or_default(),
        command.to_ascii_uppercase()
    ))
}

/// The lines of a HELP.
pub(super) fn help(context: &mut Context<'_>, command: &str, lines: &[&str]) {
    context.reply.list(lines.len() + 3);
    let command = command.to_ascii_uppercase();
    context
        .reply
        .simple(&format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    lines.iter().for_each(|line| context.reply.simple(line));
    context.reply.simple("HELP");
    context.reply.simple("    Prints this help.");
}
