//! Commands whose first argument names what they do, and what of that there is, as in Redis.

use super::{Arguments, Context, Refusal, word, wrong_count};

/// Names, each with the number of arguments that it takes, as in the table of commands.
type Subcommands = &'static [(&'static str, i8)];

/// The subcommands of the commands that are here and have some. CLIENT SETINFO is of Redis 7.2:
/// clients say it without asking.
const ALL: &[(&str, Subcommands)] = &[
    (
        "acl",
        &[
            ("cat", -2),
            ("deluser", -3),
            ("dryrun", -4),
            ("genpass", -2),
            ("getuser", 3),
            ("help", 2),
            ("list", 2),
            ("load", 2),
            ("log", -2),
            ("save", 2),
            ("setuser", -3),
            ("users", 2),
            ("whoami", 2),
        ],
    ),
    (
        "client",
        &[
            ("caching", 3),
            ("getname", 2),
            ("getredir", 2),
            ("help", 2),
            ("id", 2),
            ("info", 2),
            ("kill", -3),
            ("list", -2),
            ("no-evict", 3),
            ("pause", -3),
            ("reply", 3),
            ("setinfo", 4),
            ("setname", 3),
            ("tracking", -3),
            ("trackinginfo", 2),
            ("unblock", -3),
            ("unpause", 2),
        ],
    ),
    (
        "cluster",
        &[
            ("addslots", -3),
            ("addslotsrange", -4),
            ("bumpepoch", 2),
            ("count-failure-reports", 3),
            ("countkeysinslot", 3),
            ("delslots", -3),
            ("delslotsrange", -4),
            ("failover", -2),
            ("flushslots", 2),
            ("forget", 3),
            ("getkeysinslot", 4),
            ("help", 2),
            ("info", 2),
            ("keyslot", 3),
            ("links", 2),
            ("meet", -4),
            ("myid", 2),
            ("nodes", 2),
            ("replicas", 3),
            ("replicate", 3),
            ("reset", -2),
            ("saveconfig", 2),
            ("set-config-epoch", 3),
            ("setslot", -4),
            ("shards", 2),
            ("slaves", 3),
            ("slots", 2),
        ],
    ),
    (
        "command",
        &[
            ("count", 2),
            ("docs", -2),
            ("getkeys", -4),
            ("getkeysandflags", -4),
            ("help", 2),
            ("info", -2),
            ("list", -2),
        ],
    ),
    ("config", &[("get", -3), ("help", 2), ("resetstat", 2), ("rewrite", 2), ("set", -4)]),
    (
        "function",
        &[
            ("delete", 3),
            ("dump", 2),
            ("flush", -2),
            ("help", 2),
            ("kill", 2),
            ("list", -2),
            ("load", -3),
            ("restore", -3),
            ("stats", 2),
        ],
    ),
    (
        "latency",
        &[
            ("doctor", 2),
            ("graph", 3),
            ("help", 2),
            ("histogram", -2),
            ("history", 3),
            ("latest", 2),
            ("reset", -2),
        ],
    ),
    (
        "memory",
        &[
            ("doctor", 2),
            ("help", 2),
            ("malloc-stats", 2),
            ("purge", 2),
            ("stats", 2),
            ("usage", -3),
        ],
    ),
    ("object", &[("encoding", 3), ("freq", 3), ("help", 2), ("idletime", 3), ("refcount", 3)]),
    (
        "pubsub",
        &[
            ("channels", -2),
            ("help", 2),
            ("numpat", 2),
            ("numsub", -2),
            ("shardchannels", -2),
            ("shardnumsub", -2),
        ],
    ),
    (
        "script",
        &[("debug", 3), ("exists", -3), ("flush", -2), ("help", 2), ("kill", 2), ("load", 3)],
    ),
    ("slowlog", &[("get", -2), ("help", 2), ("len", 2), ("reset", 2)]),
    (
        "xgroup",
        &[
            ("create", -5),
            ("createconsumer", 5),
            ("delconsumer", 5),
            ("destroy", 4),
            ("help", 2),
            ("setid", -5),
        ],
    ),
    ("xinfo", &[("consumers", 4), ("groups", 3), ("help", 2), ("stream", -3)]),
];

/// The subcommands of a command, if it has some.
pub(super) fn of(command: &str) -> Option<Subcommands> {
    ALL.iter().find(|(name, _)| *name == command).map(|(_, all)| *all)
}

/// Whether a command has subcommands, for the table of commands.
pub(super) const fn are_of(command: &str) -> bool {
    let mut at = 0;
    while at < ALL.len() {
        if same(ALL[at].0.as_bytes(), command.as_bytes()) {
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
    let wanted = usize::from(arity.unsigned_abs());
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
