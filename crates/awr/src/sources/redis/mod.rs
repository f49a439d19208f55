//! Redis and Valkey: INFO, commandstats, the latency monitor and the length of the slow log.
//!
//! Commands run one after the other on one thread, so the time of all commands (`usec` of
//! commandstats) is DB time, measured. What a command waited for the server does not say: the
//! appendonly file's syncs with `appendfsync always` are in the command's time. The arguments of
//! slow commands are never asked for. A `tiersmith kv` says what it waits for: `kv.rs`.
//!
//! Deliberately absent: clusters (record each node), MONITOR.

mod kv;
pub mod resp;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader};
use std::time::Instant;

pub(crate) use self::kv::PRODUCT as KV;
use self::resp::Reply;
use super::timed::Timed;
use super::tls::{self, Encryption, Need, Refusal};
use super::{Address, Asking, LiveSource, Surroundings, count};
use crate::snapshot::known::statistic;
use crate::snapshot::sampling::Sampling;
use crate::snapshot::statement::StatementStat;
use crate::{Error, Result, Snapshot, Source};

/// A connection to a server.
pub(super) struct Redis {
    name: String,
    address: Address,
    password: Option<String>,
    encryption: Encryption,
    asking: Asking,
    stream: Option<BufReader<Timed>>,
    /// Until when everything that a snapshot needs must have been answered.
    deadline: Instant,
    memory: Memory,
}

/// What the last snapshot found, to see counters that were set to zero since.
#[derive(Default)]
struct Memory {
    instance: String,
    counters: BTreeMap<String, u64>,
    /// What the server told of resets.
    told: String,
    /// When counters were found to be smaller than before although the server did not tell of a
    /// reset.
    fell: String,
}

/// What a server answered.
#[derive(Default)]
pub(super) struct Answers {
    /// INFO with its sections, and commandstats.
    pub(super) info: String,
    /// LATENCY LATEST.
    pub(super) latency: Vec<Reply>,
    /// SLOWLOG LEN: how many entries there are now; the log may be emptied at any time, so it is no
    /// counter.
    pub(super) slow: Option<u64>,
    pub(super) missing: Vec<String>,
}

impl Redis {
    pub(super) fn connect(
        address: &Address,
        asking: &Asking,
        surroundings: &Surroundings,
    ) -> Result<Redis> {
        let mut redis = Redis {
            name: address.shown(),
            address: address.clone(),
            password: surroundings.variable("REDISCLI_AUTH").map(str::to_owned),
            encryption: tls::of_redis(address, surroundings)?,
            asking: asking.clone(),
            stream: None,
            deadline: Instant::now() + asking.patience,
            memory: Memory::default(),
        };
        if redis.address.user.is_some() && redis.password.is_none() {
            return Err(super::address::perhaps_a_password());
        }
        redis.ask(&["PING"])?;
        Ok(redis)
    }

    /// A connection that failed: for a reason of encryption, or another.
    fn failed(&self, action: &'static str, error: &io::Error) -> Error {
        if let Some(Refusal { reason, remedy, .. }) = Refusal::behind(error, self.encryption.words)
        {
            return Error::Source { action, place: self.name.clone(), reason, remedy };
        }
        self.error(action, error.to_string())
    }

    fn error(&self, action: &'static str, reason: String) -> Error {
        let denied = ["NOAUTH", "WRONGPASS", "NOPERM"].iter().any(|word| reason.starts_with(word));
        let remedy = if denied {
            "Give the password by REDISCLI_AUTH and the user's name in the URL; the user needs \
             `+info +ping +latency +slowlog`"
        } else {
            "Check the address, that the server runs, and that it is redis:// where it speaks \
             plainly and rediss:// where it speaks TLS"
        };
        let reason = super::said(&reason);
        Error::Source { action, place: self.name.clone(), reason, remedy: remedy.to_owned() }
    }

    fn open(&self) -> io::Result<BufReader<Timed>> {
        let host = self.address.host.as_deref().unwrap_or("127.0.0.1");
        let mut stream = Timed::open(host, self.address.port.unwrap_or(6379), self.deadline)?;
        if self.encryption.need == Need::Always {
            stream.encrypt(&self.encryption.connector(host, &[])?)?;
        }
        Ok(BufReader::new(stream))
    }

    /// Allows another share of time.
    fn begin(&mut self) {
        self.deadline = Instant::now() + self.asking.patience;
        if let Some(stream) = &mut self.stream {
            stream.get_mut().wait_until(self.deadline);
        }
    }

    /// One command and its reply; a connection that broke is made anew, once.
    fn ask(&mut self, words: &[&str]) -> Result<Reply> {
        let had_one = self.stream.is_some();
        match self.try_ask(words) {
            Ok(reply) => Ok(reply),
            // A server that does not answer is not asked twice.
            Err(_) if had_one && Instant::now() + self.asking.patience / 2 < self.deadline => {
                self.stream = None;
                self.try_ask(words)
            }
            Err(error) => Err(error),
        }
    }

    fn try_ask(&mut self, words: &[&str]) -> Result<Reply> {
        if self.stream.is_none() {
            self.stream = Some(self.open().map_err(|error| self.failed("connect to", &error))?);
            if let Some(password) = self.password.clone() {
                let host = self.address.host.as_deref().unwrap_or_default();
                if self.encryption.need != Need::Always && super::address::is_remote(host) {
                    tls::in_clear(host, "so the password is in clear too; rediss:// encrypts both");
                }
                let user = self.address.user.clone();
                let words: Vec<&str> = match &user {
                    Some(user) => vec!["AUTH", user, &password],
                    None => vec!["AUTH", &password],
                };
                if let Reply::Refused(reason) = self.exchange(&words)? {
                    self.stream = None;
                    // A server that does not know AUTH repeats the password in its answer.
                    let code = ["WRONGPASS", "NOAUTH", "NOPERM"]
                        .into_iter()
                        .find(|code| reason.starts_with(code));
                    let reason = format!("{} the login was refused", code.unwrap_or("ERR"));
                    return Err(self.error("log in to", reason));
                }
            }
        }
        match self.exchange(words)? {
            Reply::Refused(reason) if words == ["PING"] => {
                self.stream = None;
                Err(self.error("log in to", reason))
            }
            reply => Ok(reply),
        }
    }

    fn exchange(&mut self, words: &[&str]) -> Result<Reply> {
        let Some(stream) = &mut self.stream else {
            return Err(self.error("ask", "there is no connection".to_owned()));
        };
        let exchanged = resp::send(stream.get_mut(), words).and_then(|()| resp::receive(stream));
        exchanged.map_err(|error| {
            self.stream = None;
            self.failed("ask", &error)
        })
    }

    /// What a command answers: the lines of a text, the elements of a list.
    pub(super) fn texts(&mut self, command: &str) -> Result<Vec<String>> {
        let words: Vec<&str> = command.split_whitespace().collect();
        let element = |reply: &Reply| match reply {
            Reply::Text(text) => text.clone(),
            Reply::Number(number) => number.to_string(),
            _ => String::new(),
        };
        match self.ask(&words)? {
            Reply::Text(text) => Ok(text.lines().map(str::to_owned).collect()),
            Reply::List(list) => Ok(list.iter().map(element).collect()),
            Reply::Refused(reason) => Err(self.error("ask", reason)),
            other => Ok(vec![element(&other)]),
        }
    }

    pub(super) fn answers(&mut self) -> Result<Answers> {
        let mut answers = Answers::default();
        for section in ["default", "commandstats"] {
            match self.ask(&["INFO", section])? {
                Reply::Text(text) => {
                    answers.info.push_str(&text);
                    answers.info.push('\n');
                }
                Reply::Refused(reason) if section == "default" => {
                    return Err(self.error("ask", reason));
                }
                _ => {
                    answers.missing.push(format!("INFO {section}; ACL SETUSER NAME +info gives it"))
                }
            }
        }
        match self.ask(&["LATENCY", "LATEST"])? {
            Reply::List(list) => answers.latency = list,
            _ => answers
                .missing
                .push("the latency monitor; ACL SETUSER NAME +latency gives it".to_owned()),
        }
        match self.ask(&["SLOWLOG", "LEN"])? {
            Reply::Number(entries) => answers.slow = u64::try_from(entries).ok(),
            _ => {
                answers.missing.push("the slow log; ACL SETUSER NAME +slowlog gives it".to_owned())
            }
        }
        Ok(answers)
    }
}

impl LiveSource for Redis {
    fn name(&self) -> &str {
        &self.name
    }

    fn kept_as(&self) -> String {
        self.asking.redaction.name(&self.name)
    }

    fn snapshot(&mut self) -> Result<Snapshot> {
        self.begin();
        let answers = self.answers()?;
        let mut snapshot = Snapshot::now(Source { path: self.name.clone(), ..Source::default() });
        fill(&mut snapshot, &answers);
        snapshot.source.remote =
            Some(super::address::is_remote(self.address.host.as_deref().unwrap_or_default()));
        self.memory.resets(&mut snapshot, &answers);
        snapshot.statements.sort_by_key(|row| std::cmp::Reverse(row.total_ns));
        if snapshot.statements.is_empty() || snapshot.statements.len() > self.asking.statements {
            snapshot.is_partial_in(&["statements"]);
        }
        snapshot.statements.truncate(self.asking.statements);
        self.asking.redaction.apply(&mut snapshot);
        Ok(snapshot)
    }

    fn look(&mut self, _: &mut Sampling) -> Result<bool> {
        Ok(false)
    }
}

impl Memory {
    /// Says when counters were set to zero, as far as that can be known.
    ///
    /// Redis keeps no time of CONFIG RESETSTAT, but the command empties commandstats and is then
    /// their first entry itself, with the microseconds it took. Where that entry changes, there was
    /// one. Versions before 7 do not tell the command from other CONFIGs, and two resets may take
    /// the same microseconds: so counters that are smaller than at the last snapshot count as well.
    fn resets(&mut self, snapshot: &mut Snapshot, answers: &Answers) {
        let told =
            answers.info.lines().find_map(|line| line.strip_prefix("cmdstat_config|resetstat:"));
        let told = told.map_or(String::new(), |line| {
            short(line.split(",usec_per_call").next().unwrap_or(line))
        });
        let counters: BTreeMap<String, u64> =
            snapshot.counters.iter().map(|counter| (counter.name.clone(), counter.value)).collect();
        let fell = counters
            .iter()
            .any(|(name, now)| self.counters.get(name).is_some_and(|before| now < before));
        let same = self.instance == snapshot.source.instance;
        if same && fell && told == self.told {
            self.fell = crate::figure::instant(snapshot.taken_unix_ns);
        } else if !same {
            self.fell = String::new();
        }
        self.instance.clone_from(&snapshot.source.instance);
        (self.counters, self.told) = (counters, told);
        for (group, at) in [
            ("the statistics (CONFIG RESETSTAT)", &self.told),
            ("the statistics, found smaller than before", &self.fell),
        ] {
            snapshot.resets.insert(group.to_owned(), at.clone());
        }
    }
}

/// The most entries of a list of the server's that has no end of its own.
const MOST_ENTRIES: usize = 10_000;

/// The most events of the latency monitor: a server knows about twenty.
const MOST_EVENTS: usize = 200;

/// A name or value of the server's, not longer than a name.
fn short(text: &str) -> String {
    text.chars().take(200).collect()
}

/// Settings worth comparing, as INFO has them.
const SETTINGS: [&str; 8] = [
    "redis_mode",
    "maxmemory",
    "maxmemory_policy",
    "io_threads_active",
    "aof_enabled",
    "mem_allocator",
    "role",
    "tcp_port",
];

/// Counters of INFO: its name, ours, the unit.
const COUNTERS: [(&str, &str, &str); 17] = [
    ("total_connections_received", statistic::LOGONS, "connections"),
    ("total_net_input_bytes", "bytes received from clients", "bytes"),
    ("total_net_output_bytes", "bytes sent to clients", "bytes"),
    ("rejected_connections", "connections refused", "connections"),
    ("expired_keys", "keys expired", "keys"),
    ("evicted_keys", "keys evicted", "keys"),
    ("keyspace_hits", "key lookups that found the key", "lookups"),
    ("keyspace_misses", "key lookups that found nothing", "lookups"),
    ("total_forks", "forks", "forks"),
    ("aof_delayed_fsync", "appendonly writes delayed by a sync", "writes"),
    ("total_error_replies", "error replies", "replies"),
    ("sync_full", "full synchronisations of replicas", "synchronisations"),
    ("rdb_saves", "snapshots of the data set saved", "saves"),
    ("aof_rewrites", "rewrites of the appendonly file", "rewrites"),
    ("total_reads_processed", "reads from clients", "reads"),
    ("total_writes_processed", "writes to clients", "writes"),
    ("dump_payload_sanitizations", "payloads checked", "payloads"),
];

/// What the data take.
const DATA: &str = "used_memory";

/// Values that go up and down.
const LEVELS: [(&str, &str, &str); 11] = [
    (DATA, "memory used by data", "bytes"),
    ("used_memory_rss", "memory used by the process", "bytes"),
    ("used_memory_peak", "memory used by data, highest", "bytes"),
    ("blocked_clients", "clients waiting in a blocking command", "clients"),
    ("rdb_changes_since_last_save", "changes since the data set was saved", "changes"),
    ("aof_current_size", "appendonly file", "bytes"),
    ("aof_base_size", "appendonly file after its last rewrite", "bytes"),
    ("aof_pending_bio_fsync", "syncs of the appendonly file waiting", "syncs"),
    ("aof_buffer_length", "appendonly buffer", "bytes"),
    ("latest_fork_usec", "last fork took", "us"),
    ("connected_slaves", "replicas", "replicas"),
];

/// The lines of INFO by name, without those of commandstats.
fn fields(info: &str) -> BTreeMap<&str, &str> {
    let lines = info.lines().map(|line| line.trim_end_matches('\r'));
    let lines =
        lines.filter(|line| !line.starts_with("cmdstat_")).filter_map(|line| line.split_once(':'));
    let mut fields: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, value) in lines.take(MOST_ENTRIES) {
        fields.entry(name).or_insert(value);
    }
    fields
}

/// Adds what INFO of a `tiersmith kv` says of its waits and its tier; nothing if it is another
/// server's.
pub fn add_waits_of_kv(snapshot: &mut Snapshot, info: &str) {
    let fields = fields(info);
    if kv::is_one(&fields) {
        kv::fill(snapshot, &fields);
    }
}

/// What the answers say, put where reports look for it.
pub(super) fn fill(snapshot: &mut Snapshot, answers: &Answers) {
    let fields = fields(&answers.info);
    let field = |name: &str| fields.get(name).copied();
    let number = |name: &str| field(name).and_then(|value| value.parse::<u64>().ok());
    snapshot.missing.extend(answers.missing.iter().cloned());
    // Which rows there are depends on what the user may ask, which may change between two
    // snapshots.
    snapshot.is_partial_in(&["waits", "counters", "io"]);
    let is_kv = kv::is_one(&fields);
    let (product, version) = match field("server_name") {
        Some("valkey") => ("Valkey", "valkey_version"),
        _ if is_kv => (kv::PRODUCT, "tiersmith_version"),
        _ => ("Redis", "redis_version"),
    };
    let source = &mut snapshot.source;
    source.product = product.to_owned();
    source.version = field(version).map(short).unwrap_or_default();
    source.instance = field("run_id").map(short).unwrap_or_default();
    source.database = match number("tcp_port") {
        Some(port) if port > 0 => format!("port {port}"),
        _ => source.product.to_lowercase(),
    };
    for name in SETTINGS {
        if let Some(value) = field(name) {
            source.settings.insert(name.to_owned(), short(value));
        }
    }
    snapshot.sessions = number("connected_clients");
    // Both processor times are of the whole server: background threads are in it, children are not.
    let seconds = |name: &str| field(name).and_then(|value| value.parse::<f64>().ok());
    snapshot.process_cpu_ns = seconds("used_cpu_user")
        .zip(seconds("used_cpu_sys"))
        .and_then(|(user, system)| super::ms_to_ns((user + system) * 1e3));
    for (name, ours, unit) in COUNTERS {
        count(snapshot, ours, unit, number(name));
    }
    count(snapshot, statistic::USER_CALLS, "calls", number("total_commands_processed"));
    // Its data are in the tier, which is not memory.
    for (name, ours, unit) in LEVELS.into_iter().filter(|(name, ..)| !is_kv || *name != DATA) {
        if let Some(value) = number(name) {
            snapshot.add_level(ours, unit, value);
        }
    }
    if let Some(entries) = answers.slow {
        snapshot.add_level("entries in the slow log", "commands", entries);
    }
    if answers.latency.len() > MOST_EVENTS {
        snapshot
            .missing
            .push(format!("events of the latency monitor after the first {MOST_EVENTS}"));
    }
    for event in answers.latency.iter().take(MOST_EVENTS) {
        if let [name, _, latest, highest, ..] = event.list()
            && let (Some(name), Some(latest), Some(highest)) =
                (name.text(), latest.number(), highest.number())
        {
            let name = short(name);
            snapshot.add_level(&format!("latency of {name}, latest"), "ms", latest);
            snapshot.add_level(&format!("latency of {name}, highest"), "ms", highest);
        }
    }
    commands(snapshot, answers);
    if is_kv {
        kv::fill(snapshot, &fields);
        let waited_ns = kv::waited_ns(snapshot);
        snapshot.db_time_ns = snapshot.db_time_ns.map(|ns| ns.saturating_add(waited_ns));
    }
}

/// commandstats: `cmdstat_get:calls=1,usec=10,...`.
fn commands(snapshot: &mut Snapshot, answers: &Answers) {
    let mut total_us: Option<u64> = None;
    let mut executions = 0u64;
    let mut seen = BTreeSet::new();
    for line in answers.info.lines() {
        let Some((name, rest)) =
            line.strip_prefix("cmdstat_").and_then(|line| line.split_once(':'))
        else {
            continue;
        };
        let of = |key: &str| {
            let fields =
                rest.trim_end_matches('\r').split(',').filter_map(|field| field.split_once('='));
            fields
                .into_iter()
                .find(|(found, _)| *found == key)
                .and_then(|(_, value)| value.parse::<u64>().ok())
        };
        let (Some(calls), Some(us)) = (of("calls"), of("usec")) else { continue };
        let name = name.get(..200).unwrap_or(name);
        if seen.contains(name) {
            continue;
        }
        if seen.len() == MOST_ENTRIES {
            // Sums over a part of the commands would rise and fall with the order in which they
            // come.
            snapshot.statements.clear();
            snapshot.missing.push(format!(
                "commands and their time: the server has more than {MOST_ENTRIES}, too many to \
                 record"
            ));
            return;
        }
        seen.insert(name);
        total_us = Some(total_us.unwrap_or(0).saturating_add(us));
        executions = executions.saturating_add(calls);
        snapshot.statements.push(StatementStat {
            id: short(name),
            text: short(&name.to_uppercase().replace('|', " ")),
            calls,
            total_ns: us.saturating_mul(1000),
            ..StatementStat::default()
        });
    }
    if let Some(us) = total_us {
        snapshot.db_time_ns = Some(us.saturating_mul(1000));
        snapshot.add_counter(statistic::EXECUTE_COUNT, "executions", executions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_times_and_commands_come_from_info() {
        let info = "redis_version:7.0.15\r\nrun_id:abc\r\ntcp_port:0\r\n\
                    connected_clients:3\r\nused_cpu_sys:1.5\r\n\
                    used_cpu_user:0.5\r\ntotal_commands_processed:12\r\n\
                    aof_delayed_fsync:2\r\nused_memory:1000\r\n\
                    cmdstat_set:calls=10,usec=500,usec_per_call=50.00\r\n\
                    cmdstat_config|get:calls=2,usec=30,x=1\r\n";
        let latency = Reply::List(vec![
            Reply::Text("aof-write".to_owned()),
            Reply::Number(1),
            Reply::Number(20),
            Reply::Number(90),
        ]);
        let answers = Answers {
            info: info.to_owned(),
            latency: vec![latency],
            slow: Some(4),
            missing: Vec::new(),
        };
        let mut snapshot = Snapshot::at(Source::default(), 1, 1);
        fill(&mut snapshot, &answers);
        assert_eq!(snapshot.source.instance, "abc");
        assert_eq!(
            (snapshot.db_time_ns, snapshot.process_cpu_ns),
            (Some(530_000), Some(2_000_000_000))
        );
        let value = |name: &str| {
            snapshot.counters.iter().find(|counter| counter.name == name).map(|c| c.value)
        };
        assert_eq!((value("execute count"), value("user calls")), (Some(12), Some(12)));
        assert_eq!(value("slow log entries"), None, "a log that may be emptied is no counter");
        assert!(
            snapshot
                .levels
                .iter()
                .any(|level| level.name == "entries in the slow log" && level.value == 4)
        );
        assert_eq!(value("keys evicted"), None, "what INFO does not have is not a zero");
        assert_eq!(snapshot.statements[1].text, "CONFIG GET");
        assert!(
            snapshot
                .levels
                .iter()
                .any(|level| level.name == "latency of aof-write, highest" && level.value == 90)
        );
        snapshot.check().expect("whole");
    }

    #[test]
    fn text_of_any_kind_makes_a_snapshot_or_nothing_but_no_panic() {
        let mut rng = fastrand::Rng::with_seed(4);
        let parts = [
            "cmdstat_",
            "server_name:tiersmith\n",
            "\nwait_a",
            "class=Commit",
            "waits=",
            "tier_",
            ":",
            "calls=",
            "usec=",
            "99999999999999999999",
            "1",
            ",",
            "\n",
            "run_id",
            "\r",
            "=",
            "é",
        ];
        for _ in 0..5_000 {
            let info: String =
                (0..rng.usize(0..20)).map(|_| parts[rng.usize(0..parts.len())]).collect();
            let mut snapshot = Snapshot::at(Source::default(), 1, 1);
            fill(&mut snapshot, &Answers { info, ..Answers::default() });
            snapshot.check().expect("whole");
        }
    }
}
