//! Redis's commands: one table, and what it means to execute one.
//!
//! The table is the source of COMMAND, of arity checks and of the guide's list. A family of
//! commands is a file. To add a command: its function in a file, its row in `table.rs`.
//!
//! A command that is refused, or finds no space, has changed nothing.

mod acl;
mod arguments;
mod beside;
mod bitfield;
mod bits;
mod blocking;
mod configuration;
mod connection;
mod deliveries;
mod described;
mod dumps;
mod effects;
mod encoding;
mod failover;
pub(crate) mod flag;
mod hashes;
mod help;
mod hyperloglog;
mod information;
mod keys;
mod latency;
mod lcs;
mod listed;
mod lists;
mod monitor;
mod names;
mod notices;
mod pubsub;
mod replicas;
mod replication;
mod reply;
mod rewrite;
mod scripting;
mod session;
mod sets;
mod slowlog;
mod sorted;
mod sorting;
mod space;
mod statistics;
mod step;
mod streams;
mod strings;
mod subcommands;
mod table;
mod tracking;
mod transactions;

use std::borrow::Cow;

use crate::heap::{Damage, Full};
use crate::keyspace::Keyspace;

pub(crate) use acl::{Identity, Users, load_at_start, log_in, may_run};
pub(crate) use arguments::glob;
pub(crate) use beside::{Beside, beside_a_script};
pub(crate) use blocking::Waiting;
pub use configuration::Configuration;
pub(crate) use configuration::OutputLimit;
pub(crate) use connection::{describe, listed};
pub(crate) use deliveries::{Delivery, Via, What};
pub(crate) use listed::Listed;
pub(crate) use notices::publish_events;
pub(crate) use replicas::Phase;
pub(crate) use replication::{Following, Link, Wanted, wanted};
pub(crate) use reply::{REPLIES_MAX, Reply};
pub(crate) use scripting::writes as changes_libraries;
pub(crate) use scripting::{Bystanders, Running, Told, changes_nothing, check_libraries, stats};
pub(crate) use session::{Buffers, Replies, Session, Shared, UNIX};
pub(crate) use space::evict_until;
pub(crate) use step::{refusals, step};
pub use table::table_for_people;
pub(crate) use table::{Row, TABLE, lookup};
pub(crate) use tracking::{Tracking, say_invalid};

/// Arguments, the command's name first.
pub(crate) type Arguments<'a> = [&'a [u8]];

/// Why a command did nothing.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// There is no space.
    Full,
    /// In Redis's words.
    Said(&'static str),
    /// In words that are put together.
    Words(String),
}

impl From<Full> for Refusal {
    fn from(_: Full) -> Refusal {
        Refusal::Full
    }
}

pub(crate) const SYNTAX: Refusal = Refusal::Said("ERR syntax error");
const PARTIAL: Refusal = Refusal::Said(
    "LOADING the data are a copy of a primary's of which a part is missing; wait until it is \
     whole, or say \
     FLUSHALL to begin with nothing",
);
const READ_ONLY: Refusal = Refusal::Said("READONLY You can't write against a read only replica.");
const NO_SPACE: &str =
    "OOM command not allowed: the tier is full; delete keys, or give the server a larger tier";

impl Refusal {
    pub(crate) fn text(&self) -> Cow<'static, str> {
        match self {
            Refusal::Full => Cow::Borrowed(NO_SPACE),
            Refusal::Said(text) => Cow::Borrowed(text),
            Refusal::Words(text) => Cow::Owned(text.clone()),
        }
    }
}

/// What a command works with.
pub(crate) struct Context<'a> {
    pub(crate) keys: &'a mut Keyspace,
    pub(crate) session: &'a mut Session,
    pub(crate) shared: &'a mut Shared,
    pub(crate) reply: Reply<'a>,
}

impl Context<'_> {
    pub(crate) fn db(&self) -> u8 {
        self.session.db
    }
}

/// What a command returns.
pub(crate) type Done = Result<(), Refusal>;

/// Executes one command of a client and appends its reply to `out`. The change is not durable
/// before the heap is committed, so the reply must not be sent before.
fn execute(
    keys: &mut Keyspace,
    shared: &mut Shared,
    session: &mut Session,
    arguments: &Arguments<'_>,
    out: &mut Vec<u8>,
) {
    let before = out.len();
    // SKIP is about the next command, not about the one that says it.
    if session.replies == Replies::SkipNext {
        session.replies = Replies::SkipThis;
    }
    let mut context = Context { keys, shared, reply: Reply { out, resp3: session.resp3 }, session };
    dispatch(&mut context, arguments);
    if session.tracks && session.multi.is_none() {
        let client = arguments.first().is_some_and(|name| name.eq_ignore_ascii_case(b"client"));
        // CACHING is for the command behind it.
        if !client {
            shared.tracking.end_caching(session.id);
        }
    }
    if session.replies != Replies::On {
        keep_back(session, arguments, out, before);
    }
}

/// Takes away the reply of a client that does not want it.
#[cold]
fn keep_back(session: &mut Session, arguments: &Arguments<'_>, out: &mut Vec<u8>, before: usize) {
    if session.replies == Replies::SkipThis {
        session.replies = Replies::On;
    }
    // An EXEC that ran has kept what is pushed already, and nothing else.
    let ran = arguments.first().is_some_and(|name| name.eq_ignore_ascii_case(b"exec"))
        && !matches!(out.get(before..).unwrap_or_default(), [b'-' | b'_', ..] | [b'*', b'-', ..]);
    if !ran && !pubsub::pushed(arguments, out, before) {
        out.truncate(before);
    }
}

fn dispatch(context: &mut Context<'_>, arguments: &Arguments<'_>) {
    let Some(name) = arguments.first() else { return };
    context.shared.commands += 1;
    let row = match admit(context, name, arguments) {
        Ok(row) => row,
        Err(refusal) => {
            if let Some(queued) = &mut context.session.multi {
                queued.refused = true;
            }
            let mut text = refusal.text();
            if name.eq_ignore_ascii_case(b"exec") {
                // There is no second one.
                transactions::end(context);
                let why = text.strip_prefix("ERR ").unwrap_or(&text);
                text = format!("EXECABORT Transaction discarded because of: {why}").into();
                monitor::abort(context);
            }
            context.shared.reject(&text, arguments);
            return context.reply.error(&text);
        }
    };
    if context.session.multi.is_some() && row.flags & flag::NOT_QUEUED == 0 {
        return transactions::queue(context.session, &mut context.reply, arguments);
    }
    run(context, row, arguments);
}

/// Whether the command may run at all.
fn admit(
    context: &mut Context<'_>,
    name: &[u8],
    arguments: &Arguments<'_>,
) -> Result<&'static Row, Refusal> {
    let row = lookup(name).ok_or_else(|| unknown(name, &arguments[1..]))?;
    if !row.takes(arguments.len()) {
        return Err(wrong_count(row.name));
    }
    if row.has_subcommands {
        context.session.last_subcommand = subcommands::check(row.name, arguments)?;
    }
    context.session.last_command = Some(row);
    if !context.session.allowed && row.flags & flag::WITHOUT_AUTH == 0 {
        return Err(Refusal::Said("NOAUTH Authentication required."));
    }
    acl::refuse(context, row, arguments)?;
    if context.session.subscriptions() > 0
        && !context.session.resp3
        && row.flags & flag::SUBSCRIBED == 0
    {
        return Err(Refusal::Words(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
             are \
             allowed in this context",
            row.name
        )));
    }
    if context.session.multi.is_some() && row.flags & flag::NOT_IN_MULTI != 0 {
        return Err(Refusal::Said("ERR Command not allowed inside a transaction"));
    }
    Ok(row)
}

/// Runs a command; what it changed before it was refused is taken back.
pub(crate) fn run(context: &mut Context<'_>, row: &Row, arguments: &Arguments<'_>) {
    let ticks = context.shared.ticks;
    let began = context.shared.clock.take().unwrap_or_else(|| ticks.now());
    context.shared.statistics.begin(context.shared.refused);
    let mut admitted = false;
    let before = context.keys.heap().savepoint();
    let sent = context.reply.out.len();
    let changes = context.keys.changes();
    let noted = context.keys.notice_count();
    if context.keys.notice_classes() != 0 {
        notices::prepare(context.keys, row);
    }
    if context.session.tracks {
        tracking::begin(context, row, arguments);
    }
    let monitored = !context.shared.monitors.is_empty();
    if monitored {
        monitor::begin(context, row, arguments);
    }
    context.keys.heap_mut().open_reserve(row.flags & flag::FREES != 0);
    let functions = scripting::writes(arguments);
    let writes = row.flags & flag::WRITE != 0 || functions;
    let done = match not_allowed_now(context, row, writes) {
        Some(refusal) => Err(refusal),
        None => {
            // Of a command before it that nobody was to be told of.
            (context.shared.instead, context.shared.taken) = (None, None);
            admitted = true;
            (row.run)(context, arguments)
        }
    };
    let done = match context.keys.heap_mut().take_note() {
        None => done,
        Some(damage) => Err(damaged(damage)),
    };
    if done.is_ok() && context.keys.feeds() {
        effects::pass_on(context, row, arguments, changes);
    }
    if let Err(refusal) = done {
        context.keys.heap_mut().take_back(before);
        context.keys.forget_notices(noted, matches!(refusal, Refusal::Full));
        context.reply.out.truncate(sent);
        if matches!(refusal, Refusal::Full) {
            context.shared.full = true;
        }
        let text = refusal.text();
        match admitted {
            true => context.shared.note_error(&text),
            false => context.shared.reject(&text, arguments),
        }
        context.reply.error(&text);
    }
    notices::publish_events(context.keys, context.shared);
    if context.session.tracks {
        tracking::note_reads(context, row, arguments);
    }
    // One that found no space is done again, or was refused.
    if monitored && admitted && !context.shared.full {
        monitor::end(context, row, arguments);
    }
    let ended = ticks.now();
    if !context.shared.in_script {
        context.shared.clock = Some(ended);
    }
    // One that waits is noted once it was done.
    if admitted && context.session.waiting.is_none() {
        note_time(context, row, arguments, ended.saturating_sub(began));
    }
}

/// Why a command is not to run now.
#[inline]
fn not_allowed_now(context: &Context<'_>, row: &Row, writes: bool) -> Option<Refusal> {
    match context.keys.heap().broken() {
        Some(what) if writes => Some(Refusal::Words(broken(what))),
        _ if context.keys.partial
            && (row.flags & flag::READ != 0 || row.calls_functions() || writes)
            && !row.empties() =>
        {
            Some(PARTIAL)
        }
        _ if context.keys.follows && !context.keys.for_primary && writes => Some(READ_ONLY),
        _ if writes && !context.keys.for_primary && context.shared.lacks_replicas() => {
            Some(Refusal::Said("NOREPLICAS Not enough good replicas to write."))
        }
        _ => None,
    }
}

#[cold]
fn damaged(damage: Damage) -> Refusal {
    match damage {
        Damage::Value(what) => Refusal::Words(format!(
            "ERR the tier is damaged: {what}; write the key anew, or remove it, and see `tiersmith \
             kv check`"
        )),
        Damage::Structure(what) => Refusal::Words(broken(&what)),
    }
}

/// Notes how long a command took that was done.
#[inline]
fn note_time(context: &mut Context<'_>, row: &Row, arguments: &Arguments<'_>, ticks: u64) {
    let shared = &mut *context.shared;
    let hot = &shared.configuration.hot;
    shared.statistics.ran(row, arguments, ticks, (shared.refused, hot.latency_tracking));
    if hot.latency_ms > 0 && !shared.ticks.certainly_shorter(ticks, hot.latency_ms * 1000) {
        let event = if row.flags & flag::FAST != 0 { "fast-command" } else { "command" };
        let took = shared.ticks.duration(ticks);
        shared.latency.note(event, took, (hot.latency_ms, context.keys.now_ms()));
    }
    slowlog::note(context, row, arguments, ticks);
}

fn broken(what: &str) -> String {
    format!(
        "MISCONF the tier is damaged, and nothing is written any more: {what}; read what is \
         needed, stop \
         the server, copy the tier, and see `tiersmith kv check`"
    )
}

fn unknown(name: &[u8], arguments: &Arguments<'_>) -> Refusal {
    let shown = |bytes: &[u8], most: usize| {
        String::from_utf8_lossy(&bytes[..bytes.len().min(most)]).into_owned()
    };
    let mut with = String::new();
    for argument in arguments {
        if with.len() >= 128 {
            break;
        }
        with += &format!("'{}' ", shown(argument, 128 - with.len()));
    }
    Refusal::Words(format!(
        "ERR unknown command '{}', with args beginning with: {with}",
        shown(name, 128)
    ))
}

pub(crate) fn wrong_count(name: &str) -> Refusal {
    Refusal::Words(format!("ERR wrong number of arguments for '{name}' command"))
}

/// An argument that is one of a few words, in small letters.
pub(crate) fn word(argument: &[u8]) -> String {
    String::from_utf8_lossy(argument).to_ascii_lowercase()
}
