//! The configuration: `redis.conf`-style lines, flags, CONFIG GET and SET.
//!
//! A name that Redis has and that means nothing here is accepted if what it says is what this
//! server does anyway (`appendonly yes`), and refused otherwise. `save` is taken as it is: a
//! snapshot is what a durable write makes unneeded. `list-max-listpack-size` and
//! `list-compress-depth` are too: they say how Redis lays a list out in its memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::acl::{Acl, for_configuration};
use super::arguments::integer;
use super::help::help;
use super::rewrite::rewrite;
use super::statistics::{Statistics, percentiles};
use super::{Arguments, Context, Done, Refusal, glob, notices, word};
use crate::error::Error;
use crate::format::entry::LENGTH_MAX;
use crate::keyspace::{NodeLimits, Policy};

/// What a setting takes.
#[derive(Clone, Copy)]
enum Takes {
    /// A number in this range.
    Number(u64, u64),
    /// A number in this range, which may be negative.
    Signed(i64, i64),
    /// A number of bytes.
    Bytes,
    /// A number of bytes, or a part of `maxmemory` in percent.
    BytesOrPercent,
    YesNo,
    /// `class hard soft seconds`, several times; classes that are not named stay as they are.
    OutputLimits,
    /// Letters of classes of events.
    Events,
    /// Numbers from 0 to 100.
    Percentiles,
    /// Any text.
    Text,
    /// One of these.
    OneOf(&'static [&'static str]),
    /// One of these, whatever is said: what this server does.
    Fixed(&'static [&'static str], &'static str),
}

struct Setting {
    name: &'static str,
    default: &'static str,
    takes: Takes,
    /// CONFIG SET may change it.
    changes: bool,
}

const fn setting(
    name: &'static str,
    default: &'static str,
    takes: Takes,
    changes: bool,
) -> Setting {
    Setting { name, default, takes, changes }
}

/// Why settings about how durable writes are cannot be changed.
const DURABLE: &str = "every write is durable in the tier";

/// Why `io-threads-do-reads` cannot be changed.
const READS: &str = "the threads that send replies also read requests";

const SETTINGS: &[Setting] = &[
    setting("aclfile", "", Takes::Text, false),
    setting("acllog-max-len", "128", Takes::Number(0, 1 << 20), true),
    setting("appendfsync", "always", Takes::Fixed(&["always"], DURABLE), true),
    setting("appendonly", "yes", Takes::Fixed(&["yes"], DURABLE), true),
    setting("bind", "127.0.0.1 -::1", Takes::Text, false),
    setting("busy-reply-threshold", "5000", Takes::Number(0, 1 << 40), true),
    setting("client-output-buffer-limit", OUTPUT_LIMITS, Takes::OutputLimits, true),
    setting("client-query-buffer-limit", "1073741824", Takes::Bytes, true),
    setting("daemonize", "no", Takes::Fixed(&["no"], "a service manager does that"), false),
    setting("databases", "16", Takes::Fixed(&["16"], "the tier has as many"), false),
    setting("hash-max-listpack-entries", "512", Takes::Number(0, 1 << 62), true),
    setting("hash-max-listpack-value", "64", Takes::Bytes, true),
    setting("io-threads", "1", Takes::Number(1, 128), false),
    setting("io-threads-do-reads", "yes", Takes::Fixed(&["yes"], READS), false),
    setting("latency-monitor-threshold", "0", Takes::Number(0, 1 << 40), true),
    setting("latency-tracking", "yes", Takes::YesNo, true),
    setting("latency-tracking-info-percentiles", "50 99 99.9", Takes::Percentiles, true),
    setting("list-compress-depth", "0", Takes::Number(0, 1 << 31), true),
    setting("list-max-listpack-size", "-2", Takes::Signed(-(1 << 31), (1 << 31) - 1), true),
    setting("masterauth", "", Takes::Text, true),
    setting("masteruser", "", Takes::Text, true),
    setting("maxclients", "10000", Takes::Number(1, 1_000_000), true),
    setting("lfu-decay-time", "1", Takes::Number(0, 1 << 31), true),
    setting("lfu-log-factor", "10", Takes::Number(0, 1 << 16), true),
    setting("maxmemory", "0", Takes::Bytes, true),
    setting("maxmemory-clients", "0", Takes::BytesOrPercent, true),
    setting("maxmemory-policy", "noeviction", Takes::OneOf(POLICIES), true),
    setting("maxmemory-samples", "5", Takes::Number(1, 64), true),
    setting("notify-keyspace-events", "", Takes::Events, true),
    setting("port", "6379", Takes::Number(0, 65535), false),
    setting("proto-max-bulk-len", "536870912", Takes::Bytes, true),
    setting("protected-mode", "yes", Takes::YesNo, true),
    setting("min-replicas-max-lag", "10", Takes::Number(0, 1 << 31), true),
    setting("min-replicas-to-write", "0", Takes::Number(0, 1 << 31), true),
    setting("repl-backlog-size", "1048576", Takes::Bytes, true),
    setting("repl-backlog-ttl", "3600", Takes::Number(0, 1 << 31), true),
    setting("repl-ping-replica-period", "10", Takes::Number(1, 1 << 31), true),
    setting("repl-timeout", "60", Takes::Number(1, 1 << 31), true),
    setting("replica-announce-ip", "", Takes::Text, true),
    setting("replica-announce-port", "0", Takes::Number(0, 65535), true),
    setting("replica-priority", "100", Takes::Number(0, 1 << 31), true),
    setting("replicaof", "", Takes::Text, false),
    setting("requirepass", "", Takes::Text, true),
    setting("save", "", Takes::Text, true),
    setting("set-max-intset-entries", "512", Takes::Number(0, 1 << 62), true),
    setting("slowlog-log-slower-than", "10000", Takes::Signed(-1, i64::MAX), true),
    setting("slowlog-max-len", "128", Takes::Number(0, 1 << 20), true),
    setting("stream-node-max-bytes", "4096", Takes::Bytes, true),
    setting("stream-node-max-entries", "100", Takes::Number(0, 1 << 31), true),
    setting("tcp-backlog", "511", Takes::Number(1, 65535), false),
    setting("tcp-keepalive", "300", Takes::Number(0, 65535), true),
    setting("timeout", "0", Takes::Number(0, 1 << 31), true),
    setting("tls-auth-clients", "yes", Takes::OneOf(&["yes", "no", "optional"]), false),
    setting("tls-ca-cert-file", "", Takes::Text, false),
    setting("tls-cert-file", "", Takes::Text, false),
    setting("tls-key-file", "", Takes::Text, false),
    setting("tls-port", "0", Takes::Number(0, 65535), false),
    setting("unixsocket", "", Takes::Text, false),
    setting("unixsocketperm", "0", Takes::Text, false),
    setting("tracking-table-max-keys", "1000000", Takes::Number(0, 1 << 62), true),
    setting("zset-max-listpack-entries", "128", Takes::Number(0, 1 << 62), true),
    setting("zset-max-listpack-value", "64", Takes::Bytes, true),
];

/// The least that `maxmemory-clients` lets all clients have, as in Redis.
const CLIENTS_LEAST: u64 = 128 << 10;

/// Of which keys go when there is no space.
const POLICIES: &[&str] = &[
    "noeviction",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
];

/// As in Redis.
const OUTPUT_LIMITS: &str = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";
/// The classes in it.
const OUTPUT_CLASSES: [&str; 3] = ["normal", "slave", "pubsub"];
/// Bytes that may wait for a client that monitors, where no limit says it: what subscribers have by
/// default.
const MONITOR_MOST: u64 = 32 << 20;

/// All settings with their values.
#[derive(Clone, Debug)]
pub struct Configuration {
    values: BTreeMap<&'static str, String>,
    /// The file that it came from.
    file: Option<PathBuf>,
    /// What follows `user` in lines.
    users: Vec<String>,
    /// Of `notify-keyspace-events`, whose text does not name all.
    events: u16,
    pub(crate) hot: Hot,
}

/// Settings that every request needs, as numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hot {
    pub(crate) bulk: u64,
    pub(crate) query_buffer: u64,
    pub(crate) output: OutputLimit,
    pub(crate) output_subscribed: OutputLimit,
    pub(crate) output_replica: OutputLimit,
    pub(crate) replicas_least: u64,
    pub(crate) replicas_lag: u64,
    pub(crate) memory_most: u64,
    /// Bytes of memory that all clients together may take; 0: any number.
    pub(crate) clients_most: u64,
    pub(crate) policy: Policy,
    pub(crate) stream_node: NodeLimits,
    /// From how many microseconds on a command is slow; negative: none is.
    pub(crate) slower_than_us: i64,
    /// Entries of the log of slow commands.
    pub(crate) slow_log_most: usize,
    /// From how many milliseconds on LATENCY notes something; 0: never.
    pub(crate) latency_ms: u64,
    /// Keys that are remembered for clients that track.
    pub(crate) tracked_most: u64,
    /// Histograms of commands' times are made.
    pub(crate) latency_tracking: bool,
}

impl Hot {
    /// Bytes that may wait for a client that is told of keys it has read, whether it is one that
    /// subscribes to channels or not: the server looks closer when it sends them. 0: any number.
    pub(crate) fn most_for_trackers(&self) -> u64 {
        let [normal, subscribed] = [self.output.hard, self.output_subscribed.hard];
        if normal == 0 || subscribed == 0 { 0 } else { normal.max(subscribed) }
    }

    /// What may wait for a client that monitors: the limits of normal clients, as in Redis, and
    /// where these have none, those of subscribers. There is a hard one always: a monitor that does
    /// not read must not take all memory.
    pub(crate) fn output_of_monitors(&self) -> OutputLimit {
        let limit = match self.output {
            OutputLimit { hard: 0, soft: 0, .. } => self.output_subscribed,
            limit => limit,
        };
        let hard = match (limit.hard, self.output_subscribed.hard) {
            (0, 0) => MONITOR_MOST.max(limit.soft),
            (0, of_subscribers) => of_subscribers.max(limit.soft),
            (hard, _) => hard,
        };
        OutputLimit { hard, ..limit }
    }
}

/// Bytes that may wait for a client to take them; 0: any number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OutputLimit {
    /// Beyond this it is cut at once.
    pub(crate) hard: u64,
    /// Beyond this it is cut after so many seconds.
    pub(crate) soft: u64,
    pub(crate) seconds: u64,
}

impl Default for Configuration {
    fn default() -> Configuration {
        let values = SETTINGS.iter().map(|one| (one.name, one.default.to_owned())).collect();
        let hot = Hot::default();
        let mut all = Configuration { values, file: None, users: Vec::new(), events: 0, hot };
        all.heat();
        all
    }
}

/// Names that settings had before, and those of today.
const OLD_NAMES: &[(&str, &str)] = &[
    ("hash-max-ziplist-entries", "hash-max-listpack-entries"),
    ("hash-max-ziplist-value", "hash-max-listpack-value"),
    ("list-max-ziplist-size", "list-max-listpack-size"),
    ("lua-time-limit", "busy-reply-threshold"),
    ("min-slaves-max-lag", "min-replicas-max-lag"),
    ("min-slaves-to-write", "min-replicas-to-write"),
    ("repl-ping-slave-period", "repl-ping-replica-period"),
    ("slave-announce-ip", "replica-announce-ip"),
    ("slave-announce-port", "replica-announce-port"),
    ("slave-priority", "replica-priority"),
    ("slaveof", "replicaof"),
    ("zset-max-ziplist-entries", "zset-max-listpack-entries"),
    ("zset-max-ziplist-value", "zset-max-listpack-value"),
];

/// Settings that Redis lets nobody say again either, also not as they are.
const SAID_ONCE: [&str; 5] =
    ["aclfile", "replicaof", "tcp-backlog", "unixsocket", "unixsocketperm"];

/// The name that a setting has today.
fn current_name(name: &str) -> &str {
    OLD_NAMES.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new)
}

fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|one| one.name == current_name(name))
}

/// A number of bytes: `64`, `64k` (1000), `64kb` (1024), and so on.
fn bytes(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// A number of bytes, or of percent from 0 to 100, as the setting has it.
fn bytes_or_percent(name: &str, value: &str) -> Result<String, String> {
    match (value.strip_suffix('%'), bytes(value)) {
        (Some(percent), _) => match integer(percent.as_bytes()) {
            Some(0) => Ok("0".to_owned()),
            Some(percent @ 1..=100) => Ok(format!("{percent}%")),
            Some(101..) => Err("percentage argument must be less or equal to 100".to_owned()),
            _ => Err(format!("`{name}` takes a number of bytes, or one like 5%")),
        },
        (None, Some(bytes)) => Ok(bytes.to_string()),
        (None, None) => Err(format!("`{name}` takes a number of bytes, or one like 5%")),
    }
}

/// `old` with what `value` says of some classes.
fn output_limits(old: &str, value: &str) -> Result<String, String> {
    let words: Vec<&str> = value.split_whitespace().collect();
    let wrong = || {
        "`client-output-buffer-limit` takes a class (normal, replica, pubsub), two sizes and \
         seconds"
            .to_owned()
    };
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err(wrong());
    }
    let mut all: Vec<String> = old.split_whitespace().map(str::to_owned).collect();
    for limit in words.chunks_exact(4) {
        let class = if limit[0] == "replica" { "slave" } else { limit[0] };
        let place = OUTPUT_CLASSES.iter().position(|known| *known == class).ok_or_else(wrong)?;
        let numbers = [bytes(limit[1]), bytes(limit[2]), limit[3].parse().ok()];
        for (at, number) in numbers.into_iter().enumerate() {
            all[place * 4 + 1 + at] = number.ok_or_else(wrong)?.to_string();
        }
    }
    Ok(all.join(" "))
}

impl Configuration {
    /// Reads a file of lines `name value`; `#` begins a comment.
    ///
    /// # Errors
    /// The first line that means nothing, with its number.
    pub fn read(&mut self, text: &str, path: &str) -> Result<(), Error> {
        for (number, line) in (1..).zip(text.lines()) {
            // Other spaces than these may be part of a name or a password.
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let space = |c: char| c.is_ascii_whitespace();
            let (name, value) = line.split_once(space).unwrap_or((line, ""));
            let value = value.trim_ascii();
            let value =
                value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
            self.set(&name.to_ascii_lowercase(), value)
                .map_err(|why| Error::Configuration(format!("{path}, line {number}: {why}")))?;
        }
        Ok(())
    }

    /// Names the file that it came from, which CONFIG REWRITE writes anew.
    pub fn came_from(&mut self, file: &Path) {
        self.file = Some(std::path::absolute(file).unwrap_or_else(|_| file.to_owned()));
    }

    fn rewrite(&self, acl: &Acl) -> Result<(), Refusal> {
        let Some(file) = &self.file else {
            return Err(Refusal::Said("ERR The server is running without a config file"));
        };
        let all: Vec<_> =
            SETTINGS.iter().map(|one| (one.name, self.text(one.name), one.default)).collect();
        let failed = |why| Refusal::Words(format!("ERR Rewriting config file: {why}"));
        // Those of a file of their own are written by ACL SAVE.
        let users = match self.text("aclfile") {
            "" => Some(for_configuration(acl, self.text("requirepass")).map_err(failed)?),
            _ => None,
        };
        rewrite(file, &all, users.as_ref(), current_name).map_err(failed)
    }

    /// Sets one setting.
    ///
    /// # Errors
    /// Why the name or the value means nothing.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let name = current_name(name);
        if name == "user" {
            return self.add_user(value);
        }
        let setting = find(name).ok_or_else(|| {
            format!("`{name}` is no setting of this server; see `tiersmith kv --help`")
        })?;
        let value = match setting.takes {
            Takes::Number(from, to) => match value.parse::<u64>() {
                Ok(number) if (from..=to).contains(&number) => number.to_string(),
                _ => return Err(format!("`{name}` takes a number from {from} to {to}")),
            },
            Takes::Signed(from, to) => match value.parse::<i64>() {
                Ok(number) if (from..=to).contains(&number) => number.to_string(),
                _ => return Err(format!("`{name}` takes a number from {from} to {to}")),
            },
            Takes::Bytes => bytes(value)
                .ok_or_else(|| format!("`{name}` takes a number of bytes, like 64mb"))?
                .to_string(),
            Takes::BytesOrPercent => bytes_or_percent(name, value)?,
            Takes::YesNo if matches!(value, "yes" | "no") => value.to_owned(),
            Takes::YesNo => return Err(format!("`{name}` takes yes or no")),
            Takes::OutputLimits => output_limits(self.text(name), value)?,
            Takes::OneOf(all) if all.contains(&value) => value.to_owned(),
            Takes::OneOf(all) => return Err(format!("`{name}` takes one of {}", all.join(", "))),
            Takes::Events => {
                self.events = notices::classes(value)
                    .ok_or_else(|| format!("`{name}` takes letters of Ag$lshzxeKEtmdn"))?;
                notices::letters(self.events)
            }
            Takes::Percentiles => {
                percentiles(value).ok_or_else(|| format!("`{name}` takes numbers from 0 to 100"))?
            }
            Takes::Text => value.to_owned(),
            Takes::Fixed(only, _) if only.contains(&value) => value.to_owned(),
            Takes::Fixed(only, why) => {
                return Err(format!("`{name}` is always `{}` here: {why}", only.join(" or ")));
            }
        };
        self.values.insert(setting.name, value);
        self.heat();
        Ok(())
    }

    /// Adds a user, who is not there yet.
    fn add_user(&mut self, line: &str) -> Result<(), String> {
        let name = |line: &str| line.split_ascii_whitespace().next().unwrap_or_default().to_owned();
        if self.users.iter().any(|known| name(known) == name(line)) {
            return Err(format!("the user `{}` is there twice", name(line).escape_debug()));
        }
        Acl::new("").set_user_line(line)?;
        self.users.push(line.to_owned());
        Ok(())
    }

    /// The classes of events that clients can subscribe to.
    pub(crate) fn notice_classes(&self) -> u16 {
        self.events
    }

    /// Whether lines name users.
    pub(crate) fn has_users(&self) -> bool {
        !self.users.is_empty()
    }

    /// The users that this makes.
    pub(crate) fn users(&self) -> Acl {
        let mut acl = Acl::new(self.text("requirepass"));
        for line in &self.users {
            let set = acl.set_user_line(line);
            debug_assert!(set.is_ok(), "BUG: a line was taken that means nothing");
        }
        acl
    }

    /// The limits of a class of clients.
    fn output_limit(&self, class: &str) -> OutputLimit {
        let words: Vec<&str> = self.text("client-output-buffer-limit").split_whitespace().collect();
        let of = words.chunks_exact(4).find(|limit| limit[0] == class);
        let number = |at: usize| of.and_then(|limit| limit[at].parse().ok()).unwrap_or(0);
        OutputLimit { hard: number(1), soft: number(2), seconds: number(3) }
    }

    /// `maxmemory-clients` in bytes; 0: any number. With less than [`CLIENTS_LEAST`] nobody could
    /// say that it is too little.
    fn clients_most(&self) -> u64 {
        let most = self.text("maxmemory-clients");
        let (is_limited, bytes) = match most.strip_suffix('%').map(str::parse::<u64>) {
            Some(percent) => {
                let (percent, all) = (percent.unwrap_or(0), self.number("maxmemory"));
                let part = u128::from(all) * u128::from(percent) / 100;
                (percent > 0 && all > 0, u64::try_from(part).unwrap_or(u64::MAX))
            }
            None => (most != "0", self.number("maxmemory-clients")),
        };
        if is_limited { bytes.max(CLIENTS_LEAST) } else { 0 }
    }

    fn heat(&mut self) {
        self.hot = Hot {
            // No entry holds more, also where the setting says so.
            bulk: self.number("proto-max-bulk-len").min(LENGTH_MAX),
            query_buffer: self.number("client-query-buffer-limit"),
            output: self.output_limit("normal"),
            output_subscribed: self.output_limit("pubsub"),
            output_replica: self.output_limit("slave"),
            replicas_least: self.number("min-replicas-to-write"),
            replicas_lag: self.number("min-replicas-max-lag"),
            memory_most: self.number("maxmemory"),
            clients_most: self.clients_most(),
            policy: Policy {
                samples: self.number("maxmemory-samples") as usize,
                log_factor: self.number("lfu-log-factor") as u32,
                decay_minutes: self.number("lfu-decay-time") as u32,
                ..Policy::named(self.text("maxmemory-policy"))
            },
            stream_node: NodeLimits::new(
                self.number("stream-node-max-bytes"),
                self.number("stream-node-max-entries"),
            ),
            slower_than_us: self.text("slowlog-log-slower-than").parse().unwrap_or(-1),
            slow_log_most: self.number("slowlog-max-len") as usize,
            tracked_most: self.number("tracking-table-max-keys"),
            latency_ms: self.number("latency-monitor-threshold"),
            latency_tracking: self.is_yes("latency-tracking"),
        };
    }

    /// The text of a setting.
    pub fn text(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }

    /// The number of a setting.
    pub fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }

    /// Whether a setting is `yes`.
    pub fn is_yes(&self, name: &str) -> bool {
        self.text(name) == "yes"
    }
}

pub(crate) fn config(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    match (word(args[1]).as_str(), &args[2..]) {
        ("get", patterns @ [_, ..]) => {
            let fits = |name: &str| patterns.iter().any(|p| glob(p, name.as_bytes(), true));
            let values = &context.shared.configuration.values;
            let olds = OLD_NAMES.iter().filter_map(|(old, new)| Some((*old, values.get(new)?)));
            let all = values.iter().map(|(name, value)| (*name, value)).chain(olds);
            let found: Vec<_> = all.filter(|(name, _)| fits(name)).collect();
            context.reply.map(found.len());
            for (name, value) in found {
                context.reply.bulk(name.as_bytes());
                context.reply.bulk(value.as_bytes());
            }
        }
        ("set", pairs @ [_, _, ..]) if pairs.len().is_multiple_of(2) => set(context, pairs)?,
        ("resetstat", []) => {
            let shared = &mut *context.shared;
            (shared.commands, shared.refused, shared.connections, shared.rejected) = (0, 0, 0, 0);
            shared.statistics = Statistics::default();
            context.reply.ok();
        }
        ("help", []) => help(context, "config"),
        ("rewrite", []) => {
            context.shared.configuration.rewrite(&context.shared.acl)?;
            context.reply.ok();
        }
        (name, _) => {
            return Err(Refusal::Words(format!(
                "ERR unknown subcommand or wrong number of arguments for '{name}'. Try CONFIG HELP."
            )));
        }
    }
    Ok(())
}

/// Sets all of them, or none.
fn set(context: &mut Context<'_>, pairs: &Arguments<'_>) -> Done {
    let mut changed = context.shared.configuration.clone();
    let mut seen = BTreeSet::new();
    let failed = |name: &str, why: &str| {
        Refusal::Words(format!(
            "ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"
        ))
    };
    // The names of all first, and then what they are set to.
    for pair in pairs.chunks_exact(2) {
        let (name, value) = (word(pair[0]), String::from_utf8_lossy(pair[1]));
        // What cannot be changed while the server runs can be said again, where Redis
        // changes it: clients set all settings to what they were.
        let fixed = find(&name).is_some_and(|one| {
            !one.changes
                && (matches!(one.takes, Takes::Fixed(..))
                    || SAID_ONCE.contains(&one.name)
                    || changed.text(one.name) != value)
        });
        if fixed {
            return Err(failed(&name, "can't set immutable config"));
        }
        if find(&name).is_none() {
            return Err(Refusal::Words(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
            )));
        }
        if !seen.insert(name.clone()) {
            return Err(failed(&name, "duplicate parameter"));
        }
    }
    for pair in pairs.chunks_exact(2) {
        let (name, value) = (word(pair[0]), String::from_utf8_lossy(pair[1]));
        changed.set(&name, &value).map_err(|why| failed(&name, &why))?;
    }
    context.keys.set_policy(changed.hot.policy);
    context.keys.set_notices(changed.notice_classes());
    let password = changed.text("requirepass");
    if password != context.shared.configuration.text("requirepass") {
        context.shared.acl.set_password(password);
    }
    context.shared.configuration = changed;
    context.reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_argument_may_be_longer_than_what_an_entry_holds() {
        let mut all = Configuration::default();
        all.set("proto-max-bulk-len", "4gb").expect("it is a size");
        assert_eq!(all.hot.bulk, LENGTH_MAX);
    }

    #[test]
    fn what_waits_for_a_monitor_is_bounded_whatever_the_limits_are() {
        for (limits, hard) in [
            ("normal 0 0 0", 32 << 20),
            ("normal 0 1mb 60", 32 << 20),
            ("normal 0 100mb 60", 100 << 20),
            ("normal 0 0 0 pubsub 0 0 0", MONITOR_MOST),
            ("normal 0 1mb 60 pubsub 0 0 0", MONITOR_MOST),
            ("normal 0 0 0 pubsub 0 1mb 60", MONITOR_MOST),
            ("normal 3mb 1mb 60", 3 << 20),
        ] {
            let mut all = Configuration::default();
            all.set("client-output-buffer-limit", limits).expect("they are right");
            assert_eq!(all.hot.output_of_monitors().hard, hard, "{limits}");
        }
    }

    #[test]
    fn a_file_is_read_and_its_first_wrong_line_is_named() {
        let mut all = Configuration::default();
        all.read(
            "# a comment\n\nport 7000\nrequirepass \"a b\"\nclient-output-buffer-limit pubsub 32mb \
             8mb 60\n",
            "f",
        )
        .expect("it is right");
        assert_eq!((all.number("port"), all.text("requirepass")), (7000, "a b"));
        let limit = all.hot.output_subscribed;
        assert_eq!((limit.hard, limit.soft, limit.seconds), (32 << 20, 8 << 20, 60));
        for (text, part) in [
            ("port x", "line 1: `port` takes a number"),
            ("\nappendfsync no", "line 2: `appendfsync` is always `always`"),
            ("cluster-enabled yes", "`cluster-enabled` is no setting"),
        ] {
            let said = Configuration::default().read(text, "f").expect_err("wrong").to_string();
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn a_limit_of_all_clients_is_never_so_small_that_it_is_none_or_lets_nobody_speak() {
        for (memory, clients, most) in [
            ("0", "0", 0),
            ("0", "5%", 0),
            ("1gb", "0", 0),
            ("1gb", "0%", 0),
            ("99", "100%", CLIENTS_LEAST),
            ("99", "1%", CLIENTS_LEAST),
            ("1gb", "1", CLIENTS_LEAST),
            ("1gb", "10%", (1 << 30) / 10),
            ("18446744073709551615", "100%", u64::MAX),
        ] {
            let mut all = Configuration::default();
            all.set("maxmemory", memory).expect("it is a size");
            all.set("maxmemory-clients", clients).expect("it is a size or a part");
            assert_eq!(all.hot.clients_most, most, "{clients} of {memory}");
        }
    }
}
