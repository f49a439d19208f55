//! PostgreSQL 13 to 18: statistics views, settings, pg_stat_statements where it is, samples of
//! pg_stat_activity.
//!
//! The views are asked for as JSON, a row an object, so that one query fits every version: a column
//! that a version does not have is an absent field. What the fields mean is in `counters.rs`, which
//! needs no server; classes of waits are in `waits.rs`.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | connecting and asking |
//! | `views.rs` | what is asked for |
//! | `counters.rs`, `io.rs`, `objects.rs` | rows into a snapshot |
//! | `fields.rs` | the fields of a row |
//! | `plans.rs` | plans: of pg_store_plans, and of auto_explain in the server's log |
//! | `waits.rs` | which class a wait event of PostgreSQL belongs to |
//! | `versions.rs` | tests: what each version's views have |
//! | `link.rs` | connecting, encrypted or not |
//! | `login.rs` | what the server asks for at the login, seen before it is given |
//! | `wire.rs` | the connection, and how much an answer may be |
//!
//! Everything is asked in one read-only transaction, which the server counts as one commit of its
//! own. Counters of a session reach the views when it becomes idle or ends, at most a second later
//! (PostgreSQL 15) or at its next report: those of a long statement, its time among them, in the
//! interval in which it ends.
//!
//! Deliberately absent: changes to the server, its extensions or its settings.

mod counters;
mod fields;
mod io;
pub(crate) mod link;
mod login;
mod objects;
mod plans;
#[cfg(test)]
mod versions;
mod views;
mod waits;
mod wire;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use tiersmith_events::WaitClass;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use self::link::Place;
use self::plans::Plans;
use self::views::VIEWS;
use self::wire::{Fault, Wire};

use super::tls::{self, Need, Refusal};
use super::{Address, Asking, LiveSource, Surroundings};
use crate::redact::Redaction;
use crate::snapshot::sampling::{ON_CPU, Sampling, Seen, Who};
use crate::{Error, Result, Snapshot};

/// A row as the server gave it.
pub(super) type Row = Map<String, Value>;

/// The oldest version that is asked.
const OLDEST: u64 = 130_000;
/// The most rows of a view: pg_stat_database has one for each database.
const MOST_ROWS: usize = 10_000;
/// The most statements of a snapshot, whatever was asked for.
const MOST_STATEMENTS: usize = 5_000;
/// The most characters of all texts of statements together.
const MOST_BYTES_OF_TEXTS: usize = 4 << 20;
/// The longest time that one look may take: it is one of many.
const LOOK: Duration = Duration::from_secs(5);

/// What a session is counted as that ended its work while it was looked at.
const ENDED: &str = "on CPU or just ended";

/// A connection to a server.
pub(super) struct Postgres {
    name: String,
    place: Place,
    asking: Asking,
    wire: Option<Wire>,
    version: u64,
    /// Whether this user may see what other sessions do: without it nobody would seem active.
    sees_others: bool,
    /// What the server's log had of plans since this connection was first made.
    plans: Plans,
}

/// What a server answered, a list of rows for each view.
#[derive(Default)]
pub(super) struct Answers {
    pub(super) version: u64,
    pub(super) rows: BTreeMap<&'static str, Vec<Row>>,
    pub(super) missing: Vec<String>,
    /// Whether every statement is there that the server counts.
    pub(super) statements_are_whole: bool,
}

impl Postgres {
    pub(super) fn connect(
        address: &Address,
        asking: &Asking,
        surroundings: &Surroundings,
    ) -> Result<Postgres> {
        let mut postgres = Postgres {
            name: address.shown(),
            place: parameters(address, surroundings)?,
            asking: asking.clone(),
            wire: None,
            version: 0,
            sees_others: false,
            plans: Plans::new(),
        };
        postgres.wire()?;
        Ok(postgres)
    }

    fn error(&self, action: &'static str, fault: &Fault) -> Error {
        let refusal = match fault {
            Fault::Refused(refusal) => Some(refusal.clone()),
            Fault::Client(error) => Refusal::behind(error, self.place.encryption.words),
            Fault::Broken(_) => None,
        };
        if let Some(Refusal { reason, remedy, .. }) = refusal {
            return Error::Source { action, place: self.name.clone(), reason, remedy };
        }
        let reason = match (fault, fault.of_server()) {
            (_, Some(of_server)) => {
                format!("{} ({})", of_server.message(), of_server.code().code())
            }
            (Fault::Client(error), None) => std::error::Error::source(error)
                .map_or(error.to_string(), |cause| format!("{error}: {cause}")),
            (Fault::Broken(reason), None) => reason.clone(),
            (Fault::Refused(refusal), None) => refusal.reason.clone(),
        };
        // The client itself says that none was given, without a code.
        let none_given = reason.contains("password missing");
        let code = fault.of_server().map(|of_server| of_server.code().code());
        let no_such_user =
            fault.of_server().and_then(|of| of.routine()) == Some(link::LOOKS_UP_USER);
        let remedy = match code.or(none_given.then_some("28P01")) {
            Some("28000") if no_such_user => "Give a user that is there and may log in",
            // A server's rules may be for encrypted connections only.
            Some("28000") if self.is_plain_by_choice() => {
                "Say sslmode=require, if the server lets in who is encrypted only; or give a user \
                 that may log in"
            }
            Some("28P01" | "28000") => {
                "Give the password by PGPASSWORD, ~/.pgpass or a service file, and a user that may \
                 log in"
            }
            Some("42501") => "GRANT pg_monitor TO the user",
            _ => "Check the address, that the server runs, and that the user may connect",
        };
        let reason = super::said(&reason);
        Error::Source { action, place: self.name.clone(), reason, remedy: remedy.to_owned() }
    }

    fn is_plain_by_choice(&self) -> bool {
        self.place.encryption.need == Need::Never
            && matches!(self.place.config.get_hosts().first(), Some(Host::Tcp(_)))
    }

    /// The connection, made if there is none or it broke.
    fn wire(&mut self) -> Result<&mut Wire> {
        if self.wire.as_ref().is_none_or(Wire::is_closed) {
            self.wire = None;
            let patience = self.asking.patience;
            let mut wire = Wire::connect(&self.place, patience.min(Duration::from_secs(10)))
                .map_err(|fault| self.error("connect to", &fault))?;
            let failed = |fault: Fault| self.error("ask", &fault);
            // jit would compile the wide queries anew each time; a lock nobody gives must not stop
            // a recording. The server gives a question up before this side gives the connection up,
            // so that one slow view costs that view and not the snapshot.
            let limit = (patience / 3).as_millis().max(1);
            let set = format!(
                "SET jit = off; SET lock_timeout = {}; SET statement_timeout = {limit}; \
                 SET idle_in_transaction_session_timeout = {}",
                limit.min(5_000),
                patience.as_millis().max(1) * 2
            );
            wire.run(&set).map_err(failed)?;
            let version = wire.texts("SHOW server_version_num").map_err(failed)?;
            let version: u64 = version.first().and_then(|text| text.parse().ok()).unwrap_or(0);
            if version < OLDEST {
                return Err(Error::Source {
                    action: "record",
                    place: self.name.clone(),
                    reason: format!("its version is {}, older than 13", version / 10_000),
                    remedy: "Record a server of version 13 or later".to_owned(),
                });
            }
            let sees = "SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')";
            let sees = wire.texts(sees).map_err(failed)?;
            self.version = version;
            self.sees_others = sees.first().is_some_and(|answer| answer == "t");
            self.wire = Some(wire);
        }
        Ok(self.wire.as_mut().expect("BUG: the connection was made in the lines above"))
    }

    /// The first column of every row of a question.
    pub(super) fn texts(&mut self, question: &str) -> Result<Vec<String>> {
        let patience = self.asking.patience;
        let wire = self.wire()?;
        wire.begin(patience);
        let answer = wire.texts(question);
        answer.map_err(|fault| self.error("ask", &fault))
    }

    pub(super) fn answers(&mut self) -> Result<Answers> {
        let statements = self.asking.statements.clamp(1, MOST_STATEMENTS);
        self.wire()?;
        let version = self.version;
        let (plans, redaction) = (&mut self.plans, self.asking.redaction);
        let mut answers = Answers { version, ..Answers::default() };
        let mut ask = |wire: &mut Wire| -> std::result::Result<(), Fault> {
            wire.run("BEGIN TRANSACTION READ ONLY")?;
            for view in VIEWS.iter().filter(|view| version >= view.since) {
                part(wire, &mut answers, view.name, view.query, MOST_ROWS, view.without)?;
            }
            // The extension may lie in any schema, and may be created without having been loaded.
            let schema = wire.texts(
                "SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = \
                 e.extnamespace \
                 WHERE e.extname = 'pg_stat_statements'",
            )?;
            match schema.first() {
                Some(schema) => {
                    let query = statements_query(schema, statements);
                    let without = "statements; load pg_stat_statements by shared_preload_libraries";
                    part(wire, &mut answers, "statements", &query, statements, without)?;
                    answers.statements_are_whole =
                        answers.rows.get("statements").is_some_and(|rows| rows.len() < statements);
                    // The view of resets came with version 14.
                    if version >= 140_000 && answers.rows.contains_key("statements") {
                        let query = format!(
                            "SELECT to_jsonb(s)::text FROM \
                                             {schema}.pg_stat_statements_info s"
                        );
                        part(
                            wire,
                            &mut answers,
                            "statements_info",
                            &query,
                            1,
                            "resets of \
                            pg_stat_statements",
                        )?;
                    }
                }
                None => answers.missing.push(
                    "statements; pg_stat_statements in shared_preload_libraries and CREATE \
                     EXTENSION pg_stat_statements in this \
                     database give them"
                        .to_owned(),
                ),
            }
            plans.ask(wire, &mut answers, redaction)?;
            wire.run("COMMIT")
        };
        let patience = self.asking.patience;
        let wire = self.wire.as_mut().expect("BUG: the connection was made in the lines above");
        wire.begin(patience);
        if let Err(fault) = ask(wire) {
            // Half an answer is none: the caller decides whether to ask again.
            self.wire = None;
            return Err(self.error("ask", &fault));
        }
        Ok(answers)
    }
}

/// The statements that took the longest and that the user may tell apart (those of others have no
/// number without a grant), their texts cut on the server so that all of them together stay small.
fn statements_query(schema: &str, statements: usize) -> String {
    let longest = (MOST_BYTES_OF_TEXTS / statements).clamp(500, 6_000);
    format!(
        "SELECT (to_jsonb(s) - 'query' || jsonb_build_object('query', left(s.query, \
         {longest})))::text FROM \
         (SELECT * FROM {schema}.pg_stat_statements WHERE queryid IS NOT NULL ORDER BY \
         total_exec_time DESC LIMIT {statements}) s"
    )
}

/// One part of the answers; what the server refuses is a line, a connection that breaks is an
/// error.
///
/// Of a view with more rows than `most` nothing is kept: sums over a part of it would rise and fall
/// with what the server happens to send.
fn part(
    wire: &mut Wire,
    answers: &mut Answers,
    name: &'static str,
    query: &str,
    most: usize,
    without: &str,
) -> std::result::Result<(), Fault> {
    // One message and one answer: the server stops at what fails, and the savepoint stays.
    let within =
        format!("SAVEPOINT part; {query} LIMIT {}; RELEASE SAVEPOINT part", most.saturating_add(1));
    match wire.texts(&within) {
        Ok(rows) if rows.len() > most => {
            answers
                .missing
                .push(format!("{without} (it has more than {most} rows, too many to record)"));
        }
        Ok(rows) => {
            let rows = rows.iter().filter_map(|row| match serde_json::from_str(row) {
                Ok(Value::Object(row)) => Some(row),
                _ => None,
            });
            answers.rows.insert(name, rows.collect());
        }
        Err(fault) if fault.of_server().is_some() && !wire.is_closed() => {
            wire.run("ROLLBACK TO SAVEPOINT part; RELEASE SAVEPOINT part")?;
            let reason =
                fault.of_server().map_or(String::new(), |error| super::said(error.message()));
            answers.missing.push(format!("{without} ({reason})"));
        }
        Err(fault) => return Err(fault),
    }
    Ok(())
}

/// How another client of this program connects to the same server, with the same password.
///
/// # Errors
/// If the service that is named is not there, or the words for encryption cannot be followed.
pub(crate) fn place(
    address: &Address,
    asking: &Asking,
    surroundings: &Surroundings,
) -> Result<Place> {
    let mut place = parameters(address, surroundings)?;
    // What the server never acknowledges breaks the connection, also when the network just drops
    // it.
    place
        .config
        .keepalives_idle(asking.patience)
        .tcp_user_timeout(asking.patience.saturating_mul(2));
    Ok(place)
}

/// Address, service, environment and password file, the first that has it.
fn parameters(address: &Address, surroundings: &Surroundings) -> Result<Place> {
    let service_name = address.service.as_deref().or_else(|| surroundings.variable("PGSERVICE"));
    let service = match service_name {
        None => BTreeMap::new(),
        Some(name) => surroundings.service(name).ok_or_else(|| Error::Source {
            action: "connect to",
            place: address.shown(),
            reason: format!(
                "there is no service `{}` in the service file",
                crate::figure::visible(name)
            ),
            remedy: "Check PGSERVICEFILE or ~/.pg_service.conf".to_owned(),
        })?,
    };
    let pick = |given: Option<String>, key: &str, variable: &str| {
        given
            .or_else(|| service.get(key).cloned())
            .or_else(|| surroundings.variable(variable).map(str::to_owned))
    };
    let there = |directory: &&str| std::path::Path::new(directory).is_dir();
    let socket = ["/var/run/postgresql", "/tmp"].iter().copied().find(there).unwrap_or("localhost");
    let host = pick(address.host.clone(), "host", "PGHOST").unwrap_or_else(|| socket.to_owned());
    let port = address.port.or_else(|| pick(None, "port", "PGPORT")?.parse().ok()).unwrap_or(5432);
    let user = pick(address.user.clone(), "user", "PGUSER")
        .or_else(|| surroundings.variable("USER").map(str::to_owned))
        .unwrap_or_else(|| "postgres".to_owned());
    let database =
        pick(address.database.clone(), "dbname", "PGDATABASE").unwrap_or_else(|| user.clone());
    let password = service
        .get("password")
        .cloned()
        .filter(|_| surroundings.variable("PGPASSWORD").is_none())
        .or_else(|| surroundings.variable("PGPASSWORD").map(str::to_owned))
        .or_else(|| surroundings.pgpass(&host, port, &database, &user));
    let mut config = Config::new();
    config.port(port).user(&user).dbname(&database).application_name("tiersmith");
    match host.starts_with('/') {
        true => config.host_path(&host),
        false => config.host(&host),
    };
    if let Some(password) = password {
        config.password(password);
    }
    let encryption = tls::of_postgres(address, &service, surroundings, host.starts_with('/'))?;
    Ok(Place { config, encryption })
}

/// Behind a wait for redo of a session that needs room in the page cache and commits nothing.
const EVICTING: &str = " (to write a page out)";

/// Counts a session as the server told it.
///
/// The server copies the states of all sessions first and reads what each waits for later: a
/// session that is active and waits for the next command of its client has ended what it was seen
/// at in between. Only COPY reads from the client while it is active.
fn saw(sampling: &mut Sampling, session: &Row, blockers: &Blockers, redaction: Redaction) {
    let of = |field: &str| session.get(field).and_then(Value::as_str).unwrap_or("");
    let is = |field: &str| session.get(field).and_then(Value::as_bool).unwrap_or(false);
    let copies = is("copy");
    let named = format!("{}: {}", of("kind"), of("event"));
    let (event, class) = match (of("kind"), of("event")) {
        ("Client", "ClientRead") if !copies => (ENDED, None),
        ("", _) => (ON_CPU, None),
        (kind, name) => (named.as_str(), Some(waits::class(kind, name))),
    };
    // A query without a transaction number has nothing to commit: it writes out a changed page for
    // the room, whose redo must be durable first.
    let evicts = is("reads") && class == Some(WaitClass::Commit) && of("kind") != "IPC";
    let evicting = format!("{event}{EVICTING}");
    let (event, class) = match evicts {
        true => (evicting.as_str(), Some(WaitClass::Configuration)),
        false => (event, class),
    };
    let pid = session.get("pid").and_then(Value::as_u64).unwrap_or(0);
    let (id, who) = (pid.to_string(), redaction.name(of("who")));
    let text = redaction.statement(of("query"));
    let blocker =
        blockers.head(pid).map(|(pid, doing)| (pid.to_string(), redaction.statement(doing)));
    sampling.saw_session(&Seen {
        event,
        class,
        session: Who { id: &id, text: &who },
        statement: Who { id: of("id"), text: &text },
        blocker: blocker.as_ref().map(|(id, text)| Who { id, text }),
    });
}

/// Who waits for whom, of one look: each blocked session with the one before it and what that did.
#[derive(Default)]
struct Blockers(BTreeMap<u64, (u64, String)>);

impl Blockers {
    fn of(sessions: &[Row]) -> Blockers {
        let pair = |row: &Row| {
            let doing = row.get("doing").and_then(Value::as_str).unwrap_or("").to_owned();
            Some((row.get("pid")?.as_u64()?, (row.get("blocker")?.as_u64()?, doing)))
        };
        Blockers(sessions.iter().filter_map(pair).collect())
    }

    /// The session that holds everybody before `pid` up: it waits for no lock itself. A circle of
    /// sessions, which the server breaks up as a deadlock, ends where it began.
    fn head(&self, pid: u64) -> Option<(u64, &str)> {
        let mut found = self.0.get(&pid)?;
        for _ in 0..self.0.len() {
            match self.0.get(&found.0) {
                Some(next) if next.0 != pid => found = next,
                _ => break,
            }
        }
        Some((found.0, &found.1))
    }
}

/// Sessions at work, each with what it waits for and, as far as a lock holds it up, who has it. Who
/// has it is asked for no more than twenty sessions a look: the server stops its locks for that.
fn sessions_query(version: u64) -> String {
    let id = if version >= 140_000 { "a.query_id::text" } else { "''" };
    format!(
        "WITH s AS MATERIALIZED (SELECT *, row_number() OVER (PARTITION BY wait_event_type ORDER \
         BY pid) AS at \
         FROM pg_stat_activity), a AS MATERIALIZED (SELECT *, CASE WHEN wait_event_type = 'Lock' \
         AND at <= 20 \
         THEN (pg_blocking_pids(pid))[1] END AS blocker FROM s WHERE backend_type = 'client \
         backend' \
         AND state IN ('active', 'fastpath function call') AND pid <> pg_backend_pid() LIMIT \
         20000) \
         SELECT jsonb_build_object('copy', a.query ~* '^\\s*copy\\M', 'reads', a.backend_xid IS \
         NULL AND \
         a.query ~* '^\\s*(select|with|table|values|fetch|declare)\\M', 'kind', a.wait_event_type, \
         'event', a.wait_event, \
         'pid', a.pid, 'who', a.usename || '@' || a.datname, 'id', {id}, 'query', left(a.query, \
         300), \
         'blocker', a.blocker, 'doing', CASE WHEN a.blocker = 0 THEN 'a prepared transaction' \
         ELSE b.state || ', last statement: ' || left(b.query, 300) END)::text \
         FROM a LEFT JOIN s b ON b.pid = a.blocker AND a.blocker <> 0"
    )
}

impl LiveSource for Postgres {
    fn name(&self) -> &str {
        &self.name
    }

    fn kept_as(&self) -> String {
        self.asking.redaction.name(&self.name)
    }

    fn snapshot(&mut self) -> Result<Snapshot> {
        let had_one = self.wire.is_some();
        let began = Instant::now();
        let answers = match self.answers() {
            // A connection that broke since the last time is made anew; a server that does not
            // answer is not asked twice.
            Err(_) if had_one && began.elapsed() < self.asking.patience / 2 => self.answers()?,
            answers => answers?,
        };
        let mut snapshot =
            Snapshot::now(crate::Source { path: self.name.clone(), ..crate::Source::default() });
        snapshot.process_cpu_ns = None;
        snapshot.source.remote = match self.place.config.get_hosts().first() {
            Some(Host::Tcp(host)) => Some(super::address::is_remote(host)),
            Some(Host::Unix(_)) => Some(false),
            None => None,
        };
        counters::fill(&mut snapshot, &answers, self.asking.redaction);
        self.plans.fill(&mut snapshot, &answers, self.asking.redaction);
        self.asking.redaction.apply(&mut snapshot);
        Ok(snapshot)
    }

    fn look(&mut self, sampling: &mut Sampling) -> Result<bool> {
        self.wire()?;
        if !self.sees_others {
            return Ok(false);
        }
        let (patience, query) = (self.asking.patience.min(LOOK), sessions_query(self.version));
        let wire = self.wire()?;
        wire.begin(patience);
        let seen = match wire.texts(&query) {
            Ok(seen) => seen,
            Err(fault) => {
                self.wire = None;
                return Err(self.error("ask", &fault));
            }
        };
        sampling.looks += 1;
        let seen: Vec<Row> = seen.iter().filter_map(|row| serde_json::from_str(row).ok()).collect();
        let blockers = Blockers::of(&seen);
        for session in &seen {
            saw(sampling, session, &blockers, self.asking.redaction);
        }
        Ok(true)
    }
}

/// For the test of what every version answered.
#[cfg(test)]
pub(super) use self::counters::fill;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(json: Value) -> Row {
        json.as_object().expect("a row").clone()
    }

    #[test]
    fn a_session_that_ended_while_it_was_looked_at_did_not_wait_for_the_network() {
        let class = |copy: bool, kind: Option<&str>, event: Option<&str>| {
            let mut sampling = Sampling::new("s".to_owned(), 100);
            let session =
                row(serde_json::json!({"copy": copy, "kind": kind, "event": event, "pid": 7}));
            saw(&mut sampling, &session, &Blockers::default(), Redaction::Literals);
            (sampling.events[0].name.clone(), sampling.events[0].class.clone())
        };
        let seen = |name: &str, class: &str| (name.to_owned(), class.to_owned());
        let waits_for_redo = |reads: bool, kind: &str, event: &str| {
            let mut sampling = Sampling::new("s".to_owned(), 100);
            let session =
                row(serde_json::json!({"reads": reads, "kind": kind, "event": event, "pid": 7}));
            saw(&mut sampling, &session, &Blockers::default(), Redaction::Literals);
            (sampling.events[0].name.clone(), sampling.events[0].class.clone())
        };
        let evicting = seen("IO: WALSync (to write a page out)", "Configuration");
        assert_eq!(waits_for_redo(true, "IO", "WALSync"), evicting, "no commit waits there");
        assert_eq!(waits_for_redo(false, "IO", "WALSync"), seen("IO: WALSync", "Commit"));
        assert_eq!(waits_for_redo(true, "IPC", "SyncRep"), seen("IPC: SyncRep", "Commit"));
        let client = |copy, event| class(copy, Some("Client"), Some(event));
        assert_eq!(client(false, "ClientRead"), seen("on CPU or just ended", "CPU"));
        assert_eq!(client(true, "ClientRead"), seen("Client: ClientRead", "Network"));
        assert_eq!(client(false, "ClientWrite"), seen("Client: ClientWrite", "Network"));
        assert_eq!(class(false, None, None), seen("on CPU", "CPU"));
        assert_eq!(class(false, Some("IO"), Some("WALSync")).0, "IO: WALSync");
    }

    #[test]
    fn the_head_of_a_queue_blocks_everybody_in_it_and_a_circle_ends() {
        let waits = |pid: u64, blocker: u64| {
            row(serde_json::json!({"kind": "Lock", "event": "tuple", "pid": pid,
                "blocker": blocker, "id": "5",
                "who": "u@d", "query": "UPDATE t SET a = 'secret'", "doing": format!("idle of \
                    {blocker}")}))
        };
        let queue = [waits(2, 1), waits(3, 2), waits(4, 3)];
        let blockers = Blockers::of(&queue);
        assert_eq!(blockers.head(4), Some((1, "idle of 1")));
        assert_eq!(blockers.head(1), None);
        let circle = Blockers::of(&[waits(1, 2), waits(2, 3), waits(3, 1)]);
        assert!(circle.head(2).is_some());
        let mut sampling = Sampling::new("s".to_owned(), 100);
        queue.iter().for_each(|of| saw(&mut sampling, of, &blockers, Redaction::Literals));
        let [blocker] = &sampling.blockers[..] else { panic!("{:?}", sampling.blockers) };
        assert_eq!(
            (blocker.id.as_str(), blocker.event.as_str(), blocker.seen),
            ("1", "Lock: tuple", 3)
        );
        let [statement] = &sampling.statements[..] else { panic!("{:?}", sampling.statements) };
        assert_eq!(
            (statement.id.as_str(), statement.text.as_str(), statement.seen),
            ("5", "UPDATE t SET a = ?", 3)
        );
        assert_eq!(sampling.sessions.len(), 3);
        let mut hidden = Sampling::new("s".to_owned(), 100);
        saw(&mut hidden, &queue[0], &blockers, Redaction::Text);
        assert!(
            hidden.statements[0].text.is_empty() && hidden.blockers[0].text.is_empty(),
            "{hidden:?}"
        );
    }

    #[test]
    fn a_connection_is_put_together_from_address_service_and_environment() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("services");
        std::fs::write(&file, "[prod]\nhost=db9\nport=6000\ndbname=shop\npassword=hunter2\n")
            .expect("written");
        let services = file.to_str().expect("UTF-8");
        let surroundings = Surroundings::of([
            ("PGSERVICEFILE", services),
            ("PGUSER", "monitor"),
            ("PGHOST", "other"),
        ]);
        let address = Address::parse("postgresql:///?service=prod").expect("an address");
        let config = parameters(&address, &surroundings).expect("put together").config;
        assert_eq!(
            (config.get_user(), config.get_dbname(), config.get_ports()),
            (Some("monitor"), Some("shop"), &[6000][..])
        );
        assert_eq!(config.get_password(), Some(&b"hunter2"[..]));
        assert!(!address.shown().contains("hunter2"));
        let address = Address::parse("postgresql:///?service=none").expect("an address");
        let error = parameters(&address, &surroundings).err().expect("no such service");
        assert!(error.to_string().contains("service file"), "{error}");
    }
}
