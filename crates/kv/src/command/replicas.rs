//! The replicas that follow this server: REPLCONF, PSYNC, SYNC, WAIT, and what INFO says of them.
//!
//! Here is decided what a replica gets: the rest of the stream, or a copy first. The bytes are the
//! server's work (`server/primary.rs`).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::arguments::{integer, integer_or_refusal};
use super::blocking::Waiting;
use super::replication::{Link, Wanted};
use super::{Arguments, Context, Done, Refusal, SYNTAX, Session, Shared, word};
use crate::keyspace::new_name;

/// What a replica said of itself before it began to follow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Announced {
    ip: String,
    port: u16,
    /// It takes a dump whose length is not known before.
    eof: bool,
    /// It knows that the history may have another name.
    renames: bool,
}

/// How far a replica has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It waits for its copy to begin.
    Waits,
    /// The copy is on its way.
    Copies,
    /// It has the copy, and has not said yet that it understood it.
    Loads,
    /// It gets commands as they are committed.
    Online,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Phase::Waits => "wait_bgsave",
            Phase::Copies | Phase::Loads => "send_bulk",
            Phase::Online => "online",
        }
    }
}

/// A replica that follows this server.
#[derive(Debug)]
pub(crate) struct Downstream {
    pub(crate) ip: String,
    pub(crate) port: u16,
    pub(crate) phase: Phase,
    /// It takes a copy whose length is not in front of it.
    pub(crate) eof: bool,
    /// Behind what it was sent of the stream.
    pub(crate) cursor: u64,
    /// Behind what it says that it has.
    pub(crate) acknowledged: u64,
    /// When it was heard last, or took something.
    pub(crate) heard: Instant,
    /// Since when it has more to take than the soft limit.
    pub(crate) over_since: Option<Instant>,
}

impl Downstream {
    fn of(session: &Session, phase: Phase, cursor: u64) -> Downstream {
        let announced = &session.announced;
        let peer = session.address.parse::<SocketAddr>().map(|address| address.ip().to_canonical());
        let ip = match peer {
            _ if !announced.ip.is_empty() => announced.ip.clone(),
            Ok(ip) => ip.to_string(),
            Err(_) => "127.0.0.1".to_owned(),
        };
        let now = Instant::now();
        let (port, eof) = (announced.port, announced.eof);
        Downstream { ip, port, phase, eof, cursor, acknowledged: 0, heard: now, over_since: None }
    }
}

impl Shared {
    /// How many replicas have said that they have everything up to this position.
    pub(crate) fn confirmed(&self, position: u64) -> u64 {
        let has = |one: &&Downstream| one.phase == Phase::Online && one.acknowledged >= position;
        self.replicas.values().filter(has).count() as u64
    }

    /// How many replicas were heard within so many seconds.
    pub(crate) fn good_replicas(&self, seconds: u64) -> u64 {
        let good = |one: &&Downstream| {
            one.phase == Phase::Online && one.heard.elapsed().as_secs() <= seconds
        };
        self.replicas.values().filter(good).count() as u64
    }

    /// Whether `min-replicas-to-write` forbids to write.
    pub(crate) fn lacks_replicas(&self) -> bool {
        let least = self.configuration.hot.replicas_least;
        least > 0 && self.good_replicas(self.configuration.hot.replicas_lag) < least
    }
}

/// What a REPLCONF is about.
pub(super) enum Said {
    /// The one who says it.
    Of,
    /// How far a replica has come. There is no reply, also not of an error.
    Acknowledged(Option<u64>),
    /// Nothing that is answered.
    Nothing,
}

pub(crate) fn replconf(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    match announce(&mut context.session.announced, args)? {
        Said::Of => context.reply.ok(),
        Said::Acknowledged(position) => acknowledge(context, position),
        Said::Nothing => {}
    }
    Ok(())
}

/// Notes what a REPLCONF says.
pub(super) fn announce(announced: &mut Announced, args: &Arguments<'_>) -> Result<Said, Refusal> {
    if args.len().is_multiple_of(2) {
        return Err(SYNTAX);
    }
    for pair in args[1..].chunks_exact(2) {
        match word(pair[0]).as_str() {
            "listening-port" => {
                let port = integer(pair[1]).and_then(|port| u16::try_from(port).ok());
                announced.port =
                    port.ok_or(Refusal::Said("ERR value is not an integer or out of range"))?;
            }
            "ip-address" if pair[1].len() <= 255 => {
                announced.ip = String::from_utf8_lossy(pair[1]).into_owned();
            }
            "capa" => {
                announced.eof |= pair[1].eq_ignore_ascii_case(b"eof");
                announced.renames |= pair[1].eq_ignore_ascii_case(b"psync2");
            }
            "ack" => {
                let position = integer(pair[1]).and_then(|position| u64::try_from(position).ok());
                return Ok(Said::Acknowledged(position));
            }
            // For replicas only; here nobody is asked.
            "getack" => return Ok(Said::Nothing),
            "version" | "rdb-only" | "rdb-filter-only"
                if word(pair[1]) == "0" || word(pair[0]) == "version" => {}
            _ => {
                let option = String::from_utf8_lossy(pair[0]);
                return Err(Refusal::Words(format!("ERR Unrecognized REPLCONF option: {option}")));
            }
        }
    }
    Ok(Said::Of)
}

fn acknowledge(context: &mut Context<'_>, position: Option<u64>) {
    let now_at = context.keys.position();
    let Some(replica) = context.shared.replicas.get_mut(&context.session.id) else { return };
    replica.heard = Instant::now();
    if let Some(position) = position.filter(|position| *position <= now_at) {
        replica.acknowledged = replica.acknowledged.max(position);
    }
    if replica.phase == Phase::Loads {
        replica.phase = Phase::Online;
    }
    context.shared.heard_replica = true;
}

pub(crate) fn psync(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    if is_heard_already(context) {
        return Ok(());
    }
    match &args[3..] {
        [] => {}
        [how] if how.eq_ignore_ascii_case(b"failover") => take_over(context, args[1])?,
        _ => return Err(SYNTAX),
    }
    follow(context, Some((args[1], args[2])))
}

/// The primary of this server hands its role over.
fn take_over(context: &mut Context<'_>, history: &[u8]) -> Done {
    if history != context.keys.history().as_bytes() || !context.keys.has_history() {
        return Err(Refusal::Said("ERR PSYNC FAILOVER replid must match my replid."));
    }
    if context.keys.follows {
        context.keys.follows = false;
        context.keys.become_own(&new_name(&mut fastrand::Rng::new()));
        context.shared.configuration.set("replicaof", "").map_err(Refusal::Words)?;
        context.shared.wanted = Some(Wanted::NoOne);
        context.shared.spared = Some(context.session.id);
    }
    Ok(())
}

pub(crate) fn sync(context: &mut Context<'_>, _args: &Arguments<'_>) -> Done {
    if is_heard_already(context) {
        return Ok(());
    }
    follow(context, None)
}

/// Whether the client follows already, or monitors: then it is not answered. Lines for a monitor
/// would stand in the middle of the stream.
fn is_heard_already(context: &Context<'_>) -> bool {
    context.session.follows || context.session.monitors
}

/// Lets a replica follow, from where it wants if that can be, else with a copy.
fn follow(context: &mut Context<'_>, from: Option<(&[u8], &[u8])>) -> Done {
    let id = context.session.id;
    let link = context.shared.following.as_ref().map(|following| following.link);
    if context.keys.follows && link != Some(Link::Up) || context.keys.partial {
        return Err(Refusal::Said("NOMASTERLINK Can't SYNC while not connected with my master"));
    }
    if context.session.waiting.is_some() || context.session.subscriptions() > 0 {
        return Err(Refusal::Said("ERR SYNC and PSYNC are invalid with pending output"));
    }
    let wants = from.and_then(|(name, next)| Some((name, u64::try_from(integer(next)?).ok()?)));
    if let Some((_, next)) = wants.filter(|(name, next)| has_rest(context, name, *next)) {
        let replica = Downstream::of(context.session, Phase::Online, next - 1);
        context.shared.replicas.insert(id, replica);
        context.session.follows = true;
        context.shared.syncs.partial_ok += 1;
        let text = match context.session.announced.renames {
            true => format!("CONTINUE {}", context.keys.history()),
            false => "CONTINUE".to_owned(),
        };
        context.reply.simple(&text);
        return Ok(());
    }
    if wants.is_some() {
        context.shared.syncs.partial_err += 1;
    }
    context.session.says_sync = from.is_none();
    context.shared.syncs.full += 1;
    let replica = Downstream::of(context.session, Phase::Waits, 0);
    context.shared.replicas.insert(id, replica);
    context.session.follows = true;
    Ok(())
}

/// Whether the stream of this name from this byte on is still there.
fn has_rest(context: &Context<'_>, name: &[u8], next: u64) -> bool {
    let keys = &context.keys;
    let named = keys.has_history()
        && (name == keys.history().as_bytes()
            || keys
                .second_history()
                .is_some_and(|(second, last)| name == second.as_bytes() && next <= last + 1));
    named && next > context.shared.backlog_first && next <= keys.position() + 1
}

pub(crate) fn wait(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let count = integer_or_refusal(args[1])?;
    let timeout = integer_or_refusal(args[2])
        .map_err(|_| Refusal::Said("ERR timeout is not an integer or out of range"))?;
    if context.keys.follows {
        return Err(Refusal::Said(
            "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 \
             if a \
             replica is configured to be writable (which is not the default) writes to replicas \
             are just \
             local and are not propagated.",
        ));
    }
    let timeout = u64::try_from(timeout).map_err(|_| Refusal::Said("ERR timeout is negative"))?;
    let count = u64::try_from(count)
        .map_err(|_| Refusal::Said("ERR value is out of range, must be positive"))?;
    let position = context.session.wrote;
    let confirmed = context.shared.confirmed(position);
    if confirmed >= count || context.shared.in_exec || context.shared.in_script {
        context.reply.count(confirmed);
        return Ok(());
    }
    let until = Instant::now().checked_add(Duration::from_millis(timeout)).filter(|_| timeout > 0);
    context.session.waiting = Some(Waiting {
        db: context.session.db,
        keys: Vec::new(),
        arguments: args.iter().map(|argument| argument.to_vec()).collect(),
        until,
        replicas: Some((position, count)),
    });
    context.shared.waits_for_replicas.insert(context.session.id);
    context.shared.ask_replicas = true;
    Ok(())
}

/// A line for each replica.
pub(super) fn lines(shared: &Shared) -> Vec<(String, String)> {
    let mut lines = vec![("connected_slaves".to_owned(), shared.replicas.len().to_string())];
    let least = shared.configuration.hot.replicas_least;
    if least > 0 {
        let good = shared.good_replicas(shared.configuration.hot.replicas_lag);
        lines.push(("min_slaves_good_slaves".to_owned(), good.to_string()));
    }
    for (number, replica) in (0..).zip(shared.replicas.values()) {
        let Downstream { ip, port, phase, acknowledged, heard, .. } = replica;
        let lag = if *phase == Phase::Online { heard.elapsed().as_secs() } else { 0 };
        lines.push((
            format!("slave{number}"),
            format!("ip={ip},port={port},state={},offset={acknowledged},lag={lag}", phase.name()),
        ));
    }
    lines
}
