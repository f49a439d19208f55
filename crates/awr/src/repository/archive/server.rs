//! The archive on a PostgreSQL: tables in a schema of their own, `tiersmith`, for the recorders of
//! a fleet.
//!
//! | table | a row is |
//! |---|---|
//! | `repository` | the only one: the format |
//! | `snapshot` | a snapshot and its brief as `packed.rs` describes them, with what a list shows of it; `key` tells it from every other |
//! | `baseline`, `gap`, `recorder` | as in `file.rs` |
//!
//! A connection that breaks is made anew and the call is made again, a few times. So that nothing
//! is there twice, every call finds out whether it was done before: a snapshot by its key, a
//! baseline by the instant it was made at, a gap by its instant and reason, a lease by its token.
//! What may not be done twice and cannot tell (taking away) is an error then.
//!
//! Who changes what baselines keep, or a lease, locks that table first: a snapshot is not removed
//! while it is being named, and two recorders that begin at the same instant are one and a refusal.
//! Silence is measured by the server's clock, so the recorders' need not agree.
//!
//! A schema `tiersmith` that holds something else is refused and not touched, one of another format
//! too. Who may not create a schema in the database can be given an empty one. Reading asks for
//! nothing but `SELECT`.
//!
//! Deliberately absent: partitions. How the connection is encrypted is in
//! `sources/tls/settings.rs`. How long an answer is waited for is in `session.rs`.
//!
//! Invariant: every name in the SQL here is written out with its schema; the search path of the
//! user does not matter.

use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::lease::{Holder, Who};
use super::session::{Asked, CONNECTING, Fault, Session};
use super::{Baseline, Behind, Gap, Keeper, New, Verdict, now_unix_ns};
use crate::sources::postgres::{self as source, link::Place};
use crate::sources::tls::Refusal;
use crate::sources::{Address, Asking, Product, Surroundings};
use crate::{Entry, Error, Result, SnapshotId};

/// The format this program writes and reads.
const FORMAT: i32 = 1;

/// The lock of whoever makes the tables: `TSAW` in ASCII.
const MAKING: i64 = 0x5453_4157;

/// The lock of whoever notes a gap, with a number for the source: `TSGA` in ASCII.
const NOTING: i32 = 0x5453_4741;

const TABLES: &str = "
CREATE TABLE tiersmith.repository (one boolean PRIMARY KEY DEFAULT true CHECK (one), format \
integer NOT NULL);
CREATE TABLE tiersmith.snapshot (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key text NOT NULL UNIQUE,
    taken_unix_ns bigint NOT NULL,
    source text NOT NULL,
    database text NOT NULL,
    instance text NOT NULL,
    brief bytea NOT NULL,
    body bytea NOT NULL
);
ALTER TABLE tiersmith.snapshot ALTER COLUMN body SET STORAGE EXTERNAL, ALTER COLUMN brief SET \
STORAGE EXTERNAL;
CREATE INDEX snapshot_of_source ON tiersmith.snapshot (source, id);
CREATE TABLE tiersmith.baseline (
    name text PRIMARY KEY,
    first bigint NOT NULL,
    last bigint NOT NULL,
    made_unix_ns bigint NOT NULL
);
CREATE TABLE tiersmith.gap (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source text NOT NULL,
    at_unix_ns bigint NOT NULL,
    reason text NOT NULL,
    after bigint
);
CREATE INDEX gap_of_source ON tiersmith.gap (source);
CREATE TABLE tiersmith.recorder (
    source text PRIMARY KEY,
    token text NOT NULL,
    host text NOT NULL,
    boot text NOT NULL,
    process bigint NOT NULL,
    started bigint NOT NULL,
    beat timestamptz NOT NULL
);
";

/// For the connection: what the user or the database may have set otherwise. A snapshot that is
/// acknowledged is durable.
const SESSION: &str = "
SET search_path = pg_catalog;
SET lock_timeout = '30s';
SET statement_timeout = '120s';
SET idle_in_transaction_session_timeout = '120s';
SET default_transaction_isolation = 'read committed';
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = \
'off';
";

/// How often a call is tried.
const TRIES: u32 = 4;

/// How many gaps are written at a time.
const GAPS_AT_A_TIME: usize = 1_000;

/// How many brief snapshots are asked for at a time.
const AT_A_TIME: i64 = 100;

/// A repository on a server.
pub(super) struct OnServer {
    name: String,
    place: Place,
    session: Option<Session>,
    may_pass: bool,
}

/// Whether a call that may have been done may be made again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Twice {
    Harmless,
    Wrong,
}

/// Whether this is the address of a server, right or wrong, and not a path.
pub(super) fn is_address(text: &str) -> bool {
    text.contains("://")
}

impl OnServer {
    /// The repository at an address, made if it is not there and `make` says so; and what it is
    /// called in messages.
    pub(super) fn open(url: &str, make: bool) -> Result<(OnServer, PathBuf)> {
        let address = Address::parse(url)?;
        if address.product != Product::PostgreSql {
            return Err(Error::Archive {
                action: "open",
                path: PathBuf::from(address.shown()),
                reason: "it is not a PostgreSQL".to_owned(),
                remedy: "A repository is a file, a directory, or postgresql://USER@HOST/DB"
                    .to_owned(),
            });
        }
        let place = source::place(&address, &Asking::default(), &Surroundings::of_process())?;
        let mut server = OnServer { name: address.shown(), place, session: None, may_pass: false };
        if make {
            server.make()?;
        }
        server.check()?;
        let place = PathBuf::from(&server.name);
        Ok((server, place))
    }

    fn refused(&self, reason: String, remedy: &str) -> Error {
        let (path, remedy) = (PathBuf::from(&self.name), remedy.to_owned());
        Error::Archive { action: "open", path, reason, remedy }
    }

    fn connect(&mut self) -> Asked<()> {
        if self.session.as_ref().is_none_or(Session::is_closed) {
            self.session = None;
            self.session = Some(Session::begin(&self.place, SESSION, CONNECTING)?);
        }
        Ok(())
    }

    /// One transaction, tried again as long as the reason passes and that is harmless.
    fn run<T>(
        &mut self,
        action: &'static str,
        twice: Twice,
        work: impl Fn(&Session) -> Asked<T>,
    ) -> Result<T> {
        self.may_pass = false;
        let mut tried = 0;
        loop {
            let mut sent = false;
            let done = self.connect().and_then(|()| {
                let session =
                    self.session.as_ref().expect("BUG: the connection was made in the line above");
                session.batch_execute("BEGIN")?;
                let value = work(session)?;
                sent = true;
                session.batch_execute("COMMIT")?;
                Ok(value)
            });
            let error = match done {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            // Whatever state it is in: the next call begins with a connection that is sound.
            self.session = None;
            self.may_pass = passes(&error);
            tried += 1;
            // Who does not answer at all is not asked again at once.
            if error.is_silence()
                || !self.may_pass
                || tried == TRIES
                || (sent && twice == Twice::Wrong)
            {
                return Err(failed(action, &self.name, &self.place, &error));
            }
            std::thread::sleep(Duration::from_millis(100) * tried);
        }
    }

    /// What is there: nothing, tables of this program with their format, or something else.
    fn found(transaction: &Session) -> Asked<Found> {
        let asked = transaction.query_one(
            "SELECT to_regclass('tiersmith.repository') IS NOT NULL AND \
             to_regclass('tiersmith.snapshot') IS NOT NULL, \
             EXISTS (SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = \
             c.relnamespace \
             WHERE n.nspname = 'tiersmith'), current_setting('server_encoding')",
            &[],
        )?;
        let (ours, something, encoding): (bool, bool, String) =
            (asked.get(0), asked.get(1), asked.get(2));
        if encoding != "UTF8" {
            return Ok(Found::Encoding(encoding));
        }
        if !ours {
            return Ok(if something { Found::Foreign } else { Found::Nothing });
        }
        let format = transaction.query_opt("SELECT format FROM tiersmith.repository", &[])?;
        Ok(format.map_or(Found::Foreign, |row| Found::Format(row.get(0))))
    }

    fn make(&mut self) -> Result<()> {
        self.run("make", Twice::Harmless, |transaction| {
            if !matches!(OnServer::found(transaction)?, Found::Nothing) {
                return Ok(());
            }
            // Two programs that make it at once: the second waits, then finds the tables.
            transaction.execute("SELECT pg_catalog.pg_advisory_xact_lock($1)", &[&MAKING])?;
            if matches!(OnServer::found(transaction)?, Found::Nothing) {
                let schema = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = 'tiersmith'";
                if transaction.query_opt(schema, &[])?.is_none() {
                    transaction.batch_execute("CREATE SCHEMA tiersmith")?;
                }
                transaction.batch_execute(TABLES)?;
                transaction
                    .execute("INSERT INTO tiersmith.repository (format) VALUES ($1)", &[&FORMAT])?;
            }
            Ok(())
        })
    }

    fn check(&mut self) -> Result<()> {
        match self.run("open", Twice::Harmless, OnServer::found)? {
            Found::Format(FORMAT) => Ok(()),
            Found::Format(format) => Err(self.refused(
                format!("it is of format {format}, this program knows format {FORMAT}"),
                "Use the tiersmith that recorded it",
            )),
            Found::Foreign => Err(self.refused(
                "its schema tiersmith is of something else".to_owned(),
                "Give another database",
            )),
            Found::Nothing => Err(self.refused(
                "there is none in this database".to_owned(),
                "Give the database that the snapshots were recorded into",
            )),
            Found::Encoding(encoding) => Err(self.refused(
                format!(
                    "the encoding of this database is {encoding}, and names may be of any language"
                ),
                "Give a database with the encoding UTF8",
            )),
        }
    }
}

/// What there is in a database.
enum Found {
    Nothing,
    Foreign,
    Encoding(String),
    Format(i32),
}

impl Keeper for OnServer {
    fn take(&mut self, all: &[New<'_>], gaps: &[Behind]) -> Result<Vec<SnapshotId>> {
        self.run("write to", Twice::Harmless, |transaction| {
            let keep = transaction.prepare(
                "INSERT INTO tiersmith.snapshot (key, taken_unix_ns, source, database, instance, \
                 brief, body) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (key) DO NOTHING",
            )?;
            let find = transaction.prepare("SELECT id FROM tiersmith.snapshot WHERE key = $1")?;
            let (mut ids, mut there) = (Vec::new(), false);
            for new in all {
                let at = signed(new.taken_unix_ns);
                let kept = transaction.execute(
                    &keep,
                    &[
                        &new.key,
                        &at,
                        &new.source,
                        &new.database,
                        &new.instance,
                        &new.brief,
                        &new.body,
                    ],
                )?;
                there |= kept == 0;
                ids.push(id_of(transaction.query_one(&find, &[&new.key])?.get(0)));
            }
            // If this is the second time because the first answer was lost, the gaps are there as
            // well.
            for gaps in gaps.chunks(GAPS_AT_A_TIME).filter(|_| !there) {
                let sources: Vec<&str> = gaps.iter().map(|of| of.gap.source.as_str()).collect();
                let times: Vec<i64> = gaps.iter().map(|of| signed(of.gap.at_unix_ns)).collect();
                let reasons: Vec<&str> = gaps.iter().map(|of| of.gap.reason.as_str()).collect();
                let after = |of: &Behind| ids.get(of.behind).map(|id| signed(id.number()));
                let after: Vec<Option<i64>> = gaps.iter().map(after).collect();
                transaction.execute(
                    "INSERT INTO tiersmith.gap (source, at_unix_ns, reason, after) \
                     SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[])",
                    &[&sources, &times, &reasons, &after],
                )?;
            }
            Ok(ids)
        })
    }

    fn entries(&mut self) -> Result<Vec<Entry>> {
        self.run("read", Twice::Harmless, |transaction| {
            let rows = transaction.query(
                "SELECT id, taken_unix_ns, database, instance, source FROM tiersmith.snapshot \
                 ORDER BY id",
                &[],
            )?;
            let entry = |row: &Row| {
                let source: String = row.get(4);
                Entry {
                    id: id_of(row.get(0)),
                    taken_unix_ns: unsigned(row.get(1)),
                    database: row.get(2),
                    instance: row.get(3),
                    path: PathBuf::from(&source),
                    source,
                }
            };
            Ok(rows.iter().map(entry).collect())
        })
    }

    fn body(&mut self, id: SnapshotId) -> Result<Option<Vec<u8>>> {
        self.run("read", Twice::Harmless, |transaction| {
            let body = "SELECT body FROM tiersmith.snapshot WHERE id = $1";
            Ok(transaction.query_opt(body, &[&signed(id.number())])?.map(|row| row.get(0)))
        })
    }

    fn briefs(
        &mut self,
        first: SnapshotId,
        last: SnapshotId,
        each: &mut dyn FnMut(SnapshotId, &[u8]),
    ) -> Result<()> {
        let (of, last) = (signed(first.number()), signed(last.number()));
        let mut from = of;
        loop {
            let rows = self.run("read", Twice::Harmless, |transaction| {
                transaction.query(
                    "SELECT id, brief FROM tiersmith.snapshot WHERE id BETWEEN $1 AND $2 AND \
                     source = (SELECT source FROM tiersmith.snapshot WHERE id = $3) ORDER BY id \
                     LIMIT $4",
                    &[&from, &last, &of, &AT_A_TIME],
                )
            })?;
            for row in &rows {
                each(id_of(row.get(0)), row.get(1));
            }
            match rows.last() {
                Some(row) if rows.len() as i64 == AT_A_TIME => {
                    from = row.get::<_, i64>(0).saturating_add(1)
                }
                _ => return Ok(()),
            }
        }
    }

    fn between(&mut self, first: SnapshotId, last: SnapshotId) -> Result<Vec<SnapshotId>> {
        self.run("read", Twice::Harmless, |transaction| {
            let rows = transaction.query(
                "SELECT id FROM tiersmith.snapshot WHERE id BETWEEN $1 AND $2 AND \
                 source = (SELECT source FROM tiersmith.snapshot WHERE id = $1) ORDER BY id",
                &[&signed(first.number()), &signed(last.number())],
            )?;
            Ok(rows.iter().map(|row| id_of(row.get(0))).collect())
        })
    }

    fn add_baseline(&mut self, baseline: &Baseline) -> Result<bool> {
        let (first, last) = (signed(baseline.first.number()), signed(baseline.last.number()));
        let made = now_unix_ns();
        let added = self.run("add a baseline to", Twice::Harmless, |transaction| {
            transaction
                .batch_execute("LOCK TABLE tiersmith.baseline IN SHARE ROW EXCLUSIVE MODE")?;
            let there = "SELECT count(DISTINCT id) FROM tiersmith.snapshot WHERE id IN ($1, $2)";
            let there: i64 = transaction.query_one(there, &[&first, &last])?.get(0);
            if there < if first == last { 1 } else { 2 } {
                return Ok(None);
            }
            transaction.execute(
                "INSERT INTO tiersmith.baseline (name, first, last, made_unix_ns) VALUES ($1, $2, \
                 $3, $4) \
                 ON CONFLICT (name) DO NOTHING",
                &[&baseline.name, &first, &last, &made],
            )?;
            // Ours, also if this is the second time because the first answer was lost.
            let ours = transaction.query_one(
                "SELECT first = $2 AND last = $3 AND made_unix_ns = $4 FROM tiersmith.baseline \
                 WHERE name = $1",
                &[&baseline.name, &first, &last, &made],
            )?;
            Ok(Some(ours.get(0)))
        })?;
        added.ok_or_else(|| Error::Archive {
            action: "add a baseline to",
            path: PathBuf::from(&self.name),
            reason: "a snapshot of it was removed in the meantime".to_owned(),
            remedy: "Name snapshots that are there; `tiersmith awr list` shows them".to_owned(),
        })
    }

    fn drop_baseline(&mut self, name: &str) -> Result<bool> {
        self.run("write to", Twice::Wrong, |transaction| {
            Ok(transaction.execute("DELETE FROM tiersmith.baseline WHERE name = $1", &[&name])? > 0)
        })
    }

    fn baselines(&mut self) -> Result<Vec<Baseline>> {
        self.run("read", Twice::Harmless, |transaction| {
            let rows = transaction.query(
                "SELECT name, first, last FROM tiersmith.baseline ORDER BY name COLLATE \"C\"",
                &[],
            )?;
            let baseline = |row: &Row| Baseline {
                name: row.get(0),
                first: id_of(row.get(1)),
                last: id_of(row.get(2)),
            };
            Ok(rows.iter().map(baseline).collect())
        })
    }

    fn remove_before(&mut self, source: Option<&str>, unix_ns: u64) -> Result<usize> {
        let at = signed(unix_ns);
        self.run("write to", Twice::Wrong, |transaction| {
            transaction
                .batch_execute("LOCK TABLE tiersmith.baseline IN SHARE ROW EXCLUSIVE MODE")?;
            let gone = transaction.execute(
                "DELETE FROM tiersmith.snapshot WHERE taken_unix_ns < $1 AND ($2::text IS NULL OR \
                 source = $2 AND id < \
                 (SELECT max(id) FROM tiersmith.snapshot WHERE source = $2)) AND NOT EXISTS \
                 (SELECT 1 FROM tiersmith.baseline WHERE snapshot.id BETWEEN first AND last)",
                &[&at, &source],
            )?;
            transaction.execute(
                "DELETE FROM tiersmith.gap WHERE at_unix_ns < $1 AND ($2::text IS NULL OR source = \
                 $2) AND NOT EXISTS \
                 (SELECT 1 FROM tiersmith.baseline b JOIN tiersmith.snapshot f ON f.id = b.first \
                 JOIN tiersmith.snapshot l ON l.id = b.last \
                 WHERE f.source = gap.source AND (gap.after BETWEEN b.first AND b.last OR \
                 gap.after IS NULL AND gap.at_unix_ns BETWEEN f.taken_unix_ns AND \
                 l.taken_unix_ns))",
                &[&at, &source],
            )?;
            Ok(usize::try_from(gone).unwrap_or(usize::MAX))
        })
    }

    fn note_gap(&mut self, gap: &Gap) -> Result<()> {
        self.run("write to", Twice::Harmless, |transaction| {
            // A first try that was not answered may be under way still: the second waits for its
            // end, and sees then whether the gap is there.
            transaction.execute(
                "SELECT pg_catalog.pg_advisory_xact_lock($1, pg_catalog.hashtext($2))",
                &[&NOTING, &gap.source],
            )?;
            transaction.execute(
                "INSERT INTO tiersmith.gap (source, at_unix_ns, reason, after) SELECT $1::text, \
                 $2::bigint, $3::text, coalesce($4::bigint, \
                 (SELECT max(id) FROM tiersmith.snapshot WHERE source = $1)) WHERE NOT EXISTS \
                 (SELECT 1 FROM tiersmith.gap WHERE source = $1 AND at_unix_ns = $2 AND reason = \
                 $3)",
                &[
                    &gap.source,
                    &signed(gap.at_unix_ns),
                    &gap.reason,
                    &gap.after.map(|id| signed(id.number())),
                ],
            )?;
            Ok(())
        })
    }

    fn gaps(&mut self, source: Option<&str>) -> Result<Vec<Gap>> {
        self.run("read", Twice::Harmless, |transaction| {
            let rows = transaction.query(
                "SELECT source, at_unix_ns, reason, after FROM tiersmith.gap WHERE $1::text IS \
                 NULL OR source = $1 \
                 ORDER BY at_unix_ns, id",
                &[&source],
            )?;
            let gap = |row: &Row| Gap {
                source: row.get(0),
                at_unix_ns: unsigned(row.get(1)),
                reason: row.get(2),
                after: row.get::<_, Option<i64>>(3).map(id_of),
            };
            Ok(rows.iter().map(gap).collect())
        })
    }

    fn lease(
        &mut self,
        source: &str,
        token: &str,
        me: &Who,
        verdict: &Verdict<'_>,
    ) -> Result<Option<Holder>> {
        self.run("write to", Twice::Harmless, |transaction| {
            transaction
                .batch_execute("LOCK TABLE tiersmith.recorder IN SHARE ROW EXCLUSIVE MODE")?;
            let row = transaction.query_opt(
                "SELECT host, boot, process, started, \
                 (extract(epoch FROM pg_catalog.clock_timestamp() - beat) * 1000)::bigint \
                 FROM tiersmith.recorder WHERE source = $1 AND token <> $2",
                &[&source, &token],
            )?;
            let holder = row.map(|row| Holder {
                who: Who {
                    host: row.get(0),
                    boot: row.get(1),
                    process: u32::try_from(row.get::<_, i64>(2)).unwrap_or(0),
                    started: row.get(3),
                },
                silent: Duration::from_millis(unsigned(row.get(4))),
            });
            if let Some(holder) = holder.filter(|holder| verdict(holder)) {
                return Ok(Some(holder));
            }
            transaction.execute(
                "INSERT INTO tiersmith.recorder (source, token, host, boot, process, started, \
                 beat) \
                 VALUES ($1, $2, $3, $4, $5, $6, pg_catalog.clock_timestamp()) ON CONFLICT \
                 (source) DO UPDATE SET \
                 token = excluded.token, host = excluded.host, boot = excluded.boot, process = \
                 excluded.process, \
                 started = excluded.started, beat = excluded.beat",
                &[&source, &token, &me.host, &me.boot, &i64::from(me.process), &me.started],
            )?;
            Ok(None)
        })
    }

    fn beat(&mut self, source: &str, token: &str) -> Result<bool> {
        self.run("write to", Twice::Harmless, |transaction| {
            let beat = "UPDATE tiersmith.recorder SET beat = pg_catalog.clock_timestamp() WHERE \
                        source = $1 AND token = $2";
            Ok(transaction.execute(beat, &[&source, &token])? > 0)
        })
    }

    fn release(&mut self, source: &str, token: &str) -> Result<()> {
        self.run("write to", Twice::Harmless, |transaction| {
            let release = "DELETE FROM tiersmith.recorder WHERE source = $1 AND token = $2";
            transaction.execute(release, &[&source, &token])?;
            Ok(())
        })
    }

    fn may_pass(&self) -> bool {
        self.may_pass
    }
}

/// PostgreSQL's numbers have a sign; what is too large for one is the largest.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn id_of(number: i64) -> SnapshotId {
    SnapshotId::new(unsigned(number))
}

/// Whether the reason passes by itself, or by the help of whoever looks after the server.
fn passes(fault: &Fault) -> bool {
    let error = match fault {
        Fault::Client(error) => error,
        Fault::Own(_) | Fault::Away(_) => return true,
        Fault::Refused(refusal) => return refusal.may_pass,
    };
    match error.code() {
        None => {
            error.is_closed()
                || std::error::Error::source(error)
                    .is_some_and(|cause| cause.is::<std::io::Error>())
        }
        Some(code) => {
            // Connection exceptions; out of resources (disk, memory, connections); the
            // administrator or a restart.
            let class = code.code().get(..2).unwrap_or_default();
            matches!(class, "08" | "53")
                || [
                    SqlState::ADMIN_SHUTDOWN,
                    SqlState::CRASH_SHUTDOWN,
                    SqlState::CANNOT_CONNECT_NOW,
                    SqlState::T_R_SERIALIZATION_FAILURE,
                    SqlState::T_R_DEADLOCK_DETECTED,
                    SqlState::LOCK_NOT_AVAILABLE,
                    SqlState::QUERY_CANCELED,
                    SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
                ]
                .contains(code)
        }
    }
}

/// What the server or the network says, as a sentence with what to do.
fn failed(action: &'static str, name: &str, place: &Place, fault: &Fault) -> Error {
    let refusal = match fault {
        Fault::Refused(refusal) => Some(refusal.clone()),
        Fault::Client(error) => Refusal::behind(error, place.encryption.words),
        Fault::Own(_) | Fault::Away(_) => None,
    };
    if let Some(Refusal { reason, remedy, .. }) = refusal {
        return Error::Archive { action, path: PathBuf::from(name), reason, remedy };
    }
    let reason = fault.to_string();
    let code = match fault {
        Fault::Client(error) => error.code().map(SqlState::code).unwrap_or_default(),
        Fault::Own(_) | Fault::Away(_) | Fault::Refused(_) => "",
    };
    let remedy = match code {
        "28P01" | "28000" => {
            "Give the password by PGPASSWORD, ~/.pgpass or a service file, and a user that may log \
             in"
        }
        _ if reason.contains("password missing") => {
            "Give the password by PGPASSWORD, ~/.pgpass or a service file"
        }
        "3D000" => "Create the database first, or give one that is there",
        "42501" => {
            "CREATE SCHEMA tiersmith AUTHORIZATION the user who records; GRANT USAGE ON the schema \
             and SELECT, INSERT, UPDATE, DELETE ON \
             its tables TO others"
        }
        "25006" => "It only reads now, as a standby does; give the primary, or only read it",
        "53100" => "Make space on the server",
        "53300" => {
            "Give the server more connections (max_connections), or record from fewer programs"
        }
        "55P03" | "57014" => {
            "Somebody holds a lock on the tables in the schema tiersmith; end that, or wait"
        }
        _ => "Check the address, that the server runs, and that the user may connect",
    };
    let beginning: String = reason.chars().take(300).collect();
    Error::Archive {
        action,
        path: PathBuf::from(name),
        reason: crate::figure::visible(&beginning),
        remedy: remedy.to_owned(),
    }
}
