//! SQLite as a target: one database file for each schema, the library linked in, the fast tier by
//! the VFS `tiersmith`.
//!
//! A run gets fresh copies of loaded databases ([`load`]). Where a case puts something on the tier,
//! opening the copy attaches it; where it does not, the same VFS passes everything to the stock one
//! and times it, so that both sides are measured alike.
//!
//! **Invariant**: the only differences between two cases are those of their case files.
//! **Deliberately absent**: several processes; the VFS owns an attached database for one process.

pub mod load;
mod recover;
mod session;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rusqlite::{Connection, OpenFlags};
use serde::{Deserialize, Serialize};
use tiersmith_awr::events::{Registry, Totals, WaitClass};
use tiersmith_awr::{Snapshot, Source, WaitStat, statistic};
use tiersmith_sqlite::place::Place;

use super::{
    CALLS, COMMITS, EXECUTES, Ground, Kind, Opened, ROWS, Session, Target, Work, db_time_ns, loads,
    tier, transactions,
};
use crate::case::{Case, Load, Placement};
use crate::error::{During, Error, Result};
use crate::place::Places;
use crate::run::{self, Measured, Plans};
use crate::sql::{Sql, SqliteSql, Table};
use crate::target::recovery::{Recovered, Watch};
use crate::target::room;
use crate::workload::slob;

pub use recover::carry_out;

/// Numbers the instances of a process, so that snapshots of two runs cannot be mixed up.
static INSTANCES: AtomicU64 = AtomicU64::new(0);

/// SQLite, in the list of targets.
#[derive(Debug)]
pub struct SqliteKind;

impl Kind for SqliteKind {
    fn name(&self) -> &'static str {
        crate::case::SQLITE
    }

    fn title(&self) -> &'static str {
        "SQLite"
    }

    fn version(&self) -> Result<String> {
        Ok(version())
    }

    fn run_on(&self, _: &Case) -> Result<(&'static str, String)> {
        Ok((self.title(), self.version()?))
    }

    fn cannot(&self, ground: &Ground<'_>) -> Option<String> {
        let case = ground.case;
        if let Some(model) = ground.home_model {
            return Some(format!(
                "the home model {model} needs a mount, and SQLite is linked in; give --target"
            ));
        }
        match case.load() {
            Load::Slob => None,
            load if load.is_transactional() && case.sqlite.exclusive && case.server.clients > 1 => {
                Some(
                    "it is in exclusive mode, where one connection keeps its locks; give \
                      --clients 1"
                        .into(),
                )
            }
            load if load.is_transactional() => None,
            load => Some(format!("the load {} is for servers; give --target", load.name())),
        }
    }

    fn template_key(&self, ground: &Ground<'_>) -> String {
        let slob = ground.slob;
        let (scale, scan) = (slob.scale.bytes(), slob.scan_table.bytes());
        let case = ground.case;
        let load = format!("{} {:?}", case.load().name(), loads::of(case, slob));
        format!("{load} {} {scale} {scan} {} {}", case.sqlite.page_size, slob.schemas, slob.seed)
    }

    fn load(&self, ground: &Ground<'_>, dir: &Path) -> Result<()> {
        let schemas = ground.slob.schemas;
        if let Some(load) = loads::of(ground.case, ground.slob) {
            let (page_size, path) = (ground.case.sqlite.page_size, database(dir, 0));
            return load::load_tables(
                &path,
                page_size,
                load.as_ref(),
                ground.slob.seed,
                ground.progress,
            );
        }
        for schema in 0..schemas {
            let report =
                |part: f64| (ground.progress)((f64::from(schema) + part) / f64::from(schemas));
            load::load(
                &database(dir, schema),
                ground.case.sqlite.page_size,
                ground.slob,
                schema,
                &report,
            )?;
        }
        Ok(())
    }

    fn open<'a>(
        &self,
        ground: &Ground<'a>,
        template: &Path,
        dir: &Path,
    ) -> Result<Box<dyn Opened + 'a>> {
        let spots = spots(ground, template, dir)?;
        let target = SqliteTarget::open(ground.case, ground.slob, &spots)?;
        Ok(Box::new(OpenedSqlite { target, spots, places: ground.places }))
    }
}

fn database(dir: &Path, schema: u32) -> PathBuf {
    dir.join(format!("user{}.db", schema + 1))
}

/// Fresh copies for one run, durable before it begins.
fn spots(ground: &Ground<'_>, template: &Path, dir: &Path) -> Result<Vec<Spot>> {
    fs::create_dir(dir).during("make", dir)?;
    let mut spots = Vec::new();
    for schema in 0..ground.slob.schemas {
        let path = database(dir, schema);
        fs::copy(database(template, schema), &path).during("copy a loaded database to", &path)?;
        File::open(&path).and_then(|file| file.sync_all()).during("sync", &path)?;
        spots.push(Spot {
            path,
            member: ground.places.member(schema),
            emulated: ground.places.emulated(),
        });
    }
    File::open(dir).and_then(|dir| dir.sync_all()).during("sync", dir)?;
    Ok(spots)
}

/// The databases of one run and what has to go with them.
struct OpenedSqlite<'a> {
    target: SqliteTarget,
    spots: Vec<Spot>,
    places: &'a Places,
}

impl Opened for OpenedSqlite<'_> {
    fn target(&self) -> &dyn Target {
        &self.target
    }

    fn warm(&self) -> Result<()> {
        self.target.warm()
    }

    fn measure(&self, plans: &Plans<'_>) -> Result<Measured> {
        let target = &self.target;
        match &target.load {
            Some(load) => {
                let open = |work: &Work| target.sql(Some(work.client_waits.clone()));
                transactions::run(target, plans, load.as_ref(), target.case.server.clients, &open)
            }
            None => run::run(target, plans),
        }
    }

    fn recover(&mut self, watch: &Watch<'_>) -> Result<Option<Recovered>> {
        self.target.watched(&self.spots, watch).map(Some)
    }

    /// A member that is not the study's own is freed by detaching.
    fn close(self: Box<Self>) -> Result<()> {
        let OpenedSqlite { target, spots, places } = *self;
        let is_attached = target.case.placement != Placement::Home;
        drop(target);
        for spot in spots.iter().filter(|_| is_attached) {
            if places.members_are_ours() {
                fs::remove_file(&spot.member).during("remove", &spot.member)?;
            } else {
                detach(&spot.path)?;
            }
        }
        Ok(())
    }
}

/// The databases of one run, attached or plain.
pub struct SqliteTarget {
    case: Case,
    /// The load, if its transactions are statements of its own.
    load: Option<Box<dyn transactions::Transactional>>,
    slob: slob::Settings,
    databases: Vec<Database>,
    source: Source,
    /// What the process had waited for on plain files when the run began; later snapshots are
    /// counted from there.
    plain_before: Totals,
    /// What DB CPU is counted from: the first snapshot.
    cpu_base: OnceLock<CpuBase>,
    /// The largest DB CPU told, so that it never goes back.
    cpu_told_ns: AtomicU64,
}

/// What was known at the first snapshot. Waits before it were not all in DB time: tables were read
/// to warm the caches.
#[derive(Clone, Copy, Debug)]
struct CpuBase {
    cpu_ns: u64,
    db_time_ns: u64,
    waited_ns: u64,
}

struct Database {
    path: PathBuf,
    uri: String,
    /// Where its files live; nothing when it is plain.
    place: Option<Arc<Place>>,
    /// Keeps the database open, and with it its WAL, while sessions come and go. Nothing in
    /// exclusive mode, where it would keep sessions out.
    _keeper: Option<Mutex<Connection>>,
}

/// One database to open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spot {
    /// The database file.
    pub path: PathBuf,
    /// The tier's member; not used by cases that put nothing there.
    pub member: PathBuf,
    /// The member only stands for persistent memory.
    pub emulated: bool,
}

fn failed(what: &str, path: &Path) -> impl FnOnce(rusqlite::Error) -> Error {
    let (what, database) = (what.to_owned(), path.to_path_buf());
    move |e| Error::Target { what, database, reason: e.to_string() }
}

/// `SQLite` with its version.
pub fn version() -> String {
    rusqlite::version().to_owned()
}

/// Whether this SQLite can write a transaction as one atomic batch.
pub fn has_batch_atomic_writes() -> bool {
    let ask = || -> rusqlite::Result<bool> {
        Connection::open_in_memory()?.query_row(
            "SELECT sqlite_compileoption_used('ENABLE_BATCH_ATOMIC_WRITE')",
            [],
            |row| row.get(0),
        )
    };
    ask().unwrap_or(false)
}

impl SqliteTarget {
    /// Opens the databases of a run as its case says; attaches them if it puts something on the
    /// tier.
    ///
    /// # Errors
    /// What SQLite or the tier says.
    pub fn open(case: &Case, slob: &slob::Settings, spots: &[Spot]) -> Result<SqliteTarget> {
        if let Err(e) = tiersmith_sqlite::register() {
            let (what, database) = ("registering the VFS `tiersmith`".to_owned(), PathBuf::new());
            return Err(Error::Target { what, database, reason: e.to_string() });
        }
        let plain_before = tiersmith_sqlite::plain_events().read();
        let databases: Vec<Database> =
            spots.iter().map(|spot| Database::open(case, spot)).collect::<Result<_>>()?;
        let instance =
            format!("{}-{}", std::process::id(), INSTANCES.fetch_add(1, Ordering::Relaxed));
        let source = Source {
            instance,
            database: case.id.clone(),
            product: "SQLite".into(),
            version: version(),
            path: databases.first().map_or_else(String::new, |d| d.path.display().to_string()),
            settings: settings(case, slob),
            remote: None,
        };
        let load = loads::of(case, slob);
        let (case, slob) = (case.clone(), slob.clone());
        Ok(SqliteTarget {
            case,
            load,
            slob,
            databases,
            source,
            plain_before,
            cpu_base: OnceLock::new(),
            cpu_told_ns: AtomicU64::new(0),
        })
    }

    /// Reads every table once, so that a run does not begin with cold caches: the tier's, and the
    /// operating system's.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn warm(&self) -> Result<()> {
        for database in &self.databases {
            let connection = database.connect(&self.case)?;
            let whole: Vec<String> = match &self.load {
                Some(load) => {
                    let count =
                        |table: &Table| format!("SELECT COUNT(*) FROM {} NOT INDEXED", table.name);
                    load.tables().iter().map(count).collect()
                }
                None => ["cf1", "cf2"]
                    .map(|table| format!("SELECT COUNT(c2) FROM {table} NOT INDEXED"))
                    .into(),
            };
            for sql in whole {
                connection
                    .query_row(&sql, [], |_| Ok(()))
                    .map_err(failed("reading every table", &database.path))?;
            }
        }
        Ok(())
    }

    /// A connection for loads with statements of their own, whose waits for locks are told to
    /// `waits`.
    fn sql(&self, waits: Option<Registry>) -> Result<Box<dyn Sql>> {
        let database = self.databases.first().ok_or_else(|| Error::Target {
            what: "opening the database".into(),
            database: PathBuf::new(),
            reason: "the run has none".into(),
        })?;
        let mut connection = database.connect(&self.case)?;
        if let Some(waits) = waits {
            session::wait_for_locks(&mut connection, waits, &database.path)?;
        }
        Ok(Box::new(SqliteSql::new(connection, database.path.clone())))
    }

    fn add_waits(&self, snapshot: &mut Snapshot, work: &Work) {
        let mut physical_reads = 0;
        for place in self.databases.iter().filter_map(|d| d.place.as_ref()) {
            let stats = place.home().stats();
            tier::add(snapshot, &stats, false);
        }
        if self.case.placement == Placement::Home {
            let plain = tiersmith_sqlite::plain_events().read().since(&self.plain_before);
            snapshot.add_waits(&plain);
            snapshot.add_counters(&plain);
            snapshot.add_io_of(&plain, "home");
        }
        for counter in [statistic::FLASH_HITS, statistic::FLASH_MISSES, statistic::ZERO_COPY_READS]
        {
            physical_reads +=
                snapshot.counters.iter().find(|c| c.name == counter).map_or(0, |c| c.value);
        }
        if self.case.placement == Placement::Home {
            physical_reads = snapshot
                .waits
                .iter()
                .find(|w| w.name == "db file sequential read")
                .map_or(0, |wait| wait.count);
        }
        snapshot.add_counter(statistic::PHYSICAL_READS, "pages", physical_reads);
        snapshot.add_waits(&work.client_waits.read());
    }

    /// DB CPU without the time inside waits: on a mapped medium a wait *is* processor time, and
    /// would be counted twice; so would the copies a system call makes. Of what is known (the
    /// processor time of the threads, DB time, the waits) this is the most it can be.
    fn db_cpu_ns(&self, snapshot: &Snapshot, work: &Work, db_time_ns: u64) -> u64 {
        let foreground = |wait: &&WaitStat| !wait.background && wait.class != WaitClass::Idle;
        let waited_ns: u64 =
            snapshot.waits.iter().filter(foreground).map(|wait| wait.total_ns).sum();
        let now = CpuBase { cpu_ns: work.cpu_ns(), db_time_ns, waited_ns };
        let base = self.cpu_base.get_or_init(|| now);
        let since = |of: fn(&CpuBase) -> u64| of(&now).saturating_sub(of(base));
        let outside_ns = since(|c| c.db_time_ns).saturating_sub(since(|c| c.waited_ns));
        let cpu_ns = since(|c| c.cpu_ns).min(outside_ns);
        self.cpu_told_ns.fetch_max(cpu_ns, Ordering::Relaxed).max(cpu_ns)
    }
}

impl Database {
    fn open(case: &Case, spot: &Spot) -> Result<Database> {
        let uri = uri(case, spot);
        let keeper = connect(&uri, &spot.path)?;
        configure(&keeper, case, &spot.path)?;
        let place = Place::find(&spot.path);
        if place.is_some() != (case.placement != Placement::Home) {
            let reason = format!(
                "the case puts {} on the tier, and the database is {}",
                case.placement.name(),
                if place.is_some() { "attached" } else { "not attached" }
            );
            return Err(Error::Unsound { database: spot.path.clone(), reason });
        }
        let keeper = (!case.sqlite.exclusive).then(|| Mutex::new(keeper));
        Ok(Database { path: spot.path.clone(), uri, place, _keeper: keeper })
    }

    fn connect(&self, case: &Case) -> Result<Connection> {
        let connection = connect(&self.uri, &self.path)?;
        configure(&connection, case, &self.path)?;
        Ok(connection)
    }
}

fn connect(uri: &str, path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(uri, flags).map_err(failed("opening the database", path))
}

/// Detaches a database, so that its tier is free for another.
///
/// # Errors
/// What SQLite or the tier says; nothing is lost then.
pub fn detach(path: &Path) -> Result<()> {
    tiersmith_sqlite::detach(path).map_err(|e| Error::Target {
        what: "detaching".into(),
        database: path.into(),
        reason: e.to_string(),
    })
}

/// The name SQLite opens.
fn uri(case: &Case, spot: &Spot) -> String {
    let mut uri = format!("file:{}?vfs={}", escape(&spot.path), tiersmith_sqlite::VFS_NAME);
    let place = match case.placement {
        // The last two are for servers; a case of SQLite that has them is refused when it is read.
        Placement::Home | Placement::Disk | Placement::Directory | Placement::Mapped => return uri,
        Placement::Redo => "redo",
        Placement::All => "all",
    };
    uri.push_str(&format!(
        "&fast={}&size={}&place={place}",
        escape(&spot.member),
        room::tier_bytes(case)
    ));
    if spot.emulated {
        uri.push_str("&emulate=1");
    }
    uri
}

/// A path as SQLite's URIs want it.
fn escape(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte);
    path.as_os_str()
        .as_bytes()
        .iter()
        .map(
            |byte| {
                if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") }
            },
        )
        .collect()
}

/// Sets a connection as the case says, and looks whether SQLite took it.
fn configure(connection: &Connection, case: &Case, path: &Path) -> Result<()> {
    let settings = &case.sqlite;
    let set = |name: &str, value: &str| -> Result<()> {
        connection
            .pragma_update_and_check(None, name, value, |_| Ok(()))
            .or_else(|e| {
                if matches!(e, rusqlite::Error::QueryReturnedNoRows) { Ok(()) } else { Err(e) }
            })
            .map_err(failed(&format!("PRAGMA {name} = {value}"), path))
    };
    if settings.exclusive {
        set("locking_mode", "EXCLUSIVE")?;
    }
    let mode: String = connection
        .pragma_update_and_check(None, "journal_mode", settings.journal_mode.name(), |row| {
            row.get(0)
        })
        .map_err(failed("PRAGMA journal_mode", path))?;
    if mode != settings.journal_mode.name() {
        let reason = format!(
            "journal mode {} was asked for, SQLite stayed with {mode}",
            settings.journal_mode.name()
        );
        return Err(Error::Unsound { database: path.into(), reason });
    }
    set("synchronous", &settings.synchronous)?;
    // Negative: KiB instead of pages.
    set("cache_size", &format!("-{}", settings.page_cache.bytes() / 1024))?;
    set("mmap_size", &settings.mmap.bytes().to_string())?;
    set("wal_autocheckpoint", &settings.wal_autocheckpoint.to_string())?;
    Ok(())
}

/// What a report says of the settings.
fn settings(case: &Case, slob: &slob::Settings) -> std::collections::BTreeMap<String, String> {
    let sqlite = &case.sqlite;
    let load = match loads::of(case, slob) {
        Some(load) => vec![
            ("load", case.load().title().to_owned()),
            ("tables", load.describe(case.server.clients)),
            ("seed", slob.seed.to_string()),
        ],
        None => settings_of_slob(slob),
    };
    let pairs = [
        ("fast tier holds", case.placement.name().to_owned()),
        ("page_size", sqlite.page_size.to_string()),
        ("journal_mode", sqlite.journal_mode.name().to_owned()),
        ("synchronous", sqlite.synchronous.clone()),
        ("page cache", sqlite.page_cache.to_string()),
        ("mmap_size", sqlite.mmap.to_string()),
        ("locking_mode", if sqlite.exclusive { "exclusive" } else { "normal" }.to_owned()),
        ("wal_autocheckpoint", sqlite.wal_autocheckpoint.to_string()),
    ];
    let pairs = pairs.into_iter().chain(load);
    pairs.map(|(name, value)| (name.to_owned(), value)).collect()
}

fn settings_of_slob(slob: &slob::Settings) -> Vec<(&'static str, String)> {
    vec![
        ("SLOB UPDATE_PCT", slob.update_pct.to_string()),
        ("SLOB SCAN_PCT", slob.scan_pct.to_string()),
        ("SLOB SCALE", slob.scale.to_string()),
        ("SLOB WORK_UNIT", slob.work_unit.to_string()),
        ("SLOB REDO_STRESS", format!("{:?}", slob.redo_stress).to_uppercase()),
        ("SLOB schemas", slob.schemas.to_string()),
        ("SLOB THREADS_PER_SCHEMA", slob.threads_per_schema.to_string()),
        ("SLOB seed", slob.seed.to_string()),
        (
            "arrivals per second",
            if slob.arrivals_per_s > 0.0 {
                slob.arrivals_per_s.to_string()
            } else {
                "closed loop".into()
            },
        ),
    ]
}

impl Target for SqliteTarget {
    fn session<'a>(
        &'a self,
        work: &'a Work,
        number: usize,
        schema: u32,
    ) -> Result<Box<dyn Session + 'a>> {
        Ok(Box::new(session::SqliteSession::open(self, work, number, schema)?))
    }

    fn snapshot(&self, work: &Work) -> Snapshot {
        let statements = work.statements.read();
        let mut snapshot = Snapshot::now(self.source.clone());
        self.add_waits(&mut snapshot, work);
        let db_time_ns = db_time_ns(&statements);
        snapshot.db_time_ns = Some(db_time_ns);
        snapshot.db_cpu_ns = Some(self.db_cpu_ns(&snapshot, work, db_time_ns));
        snapshot.sessions = Some(work.sessions());
        snapshot.add_counter(statistic::EXECUTE_COUNT, "executions", statements.counter(EXECUTES));
        snapshot.add_counter(statistic::USER_CALLS, "calls", statements.counter(CALLS));
        snapshot.add_counter(statistic::USER_COMMITS, "transactions", statements.counter(COMMITS));
        if self.case.load() == Load::Slob {
            snapshot.add_counter("SLOB rows touched", "rows", statements.counter(ROWS));
        }
        if let Some(database) = self.databases.first() {
            tier::add_home(&mut snapshot, database.path.parent().unwrap_or(&database.path), None);
        }
        snapshot
    }

    fn check(&self) -> Result<()> {
        let rows = self.slob.blocks(u64::from(self.case.sqlite.page_size));
        for database in &self.databases {
            let connection = database.connect(&self.case)?;
            let unsound =
                |reason: String| Error::Unsound { database: database.path.clone(), reason };
            if let Some(load) = &self.load {
                load.check(self.sql(None)?.as_mut(), &database.path)?;
            } else {
                let found: i64 = connection
                    .query_row("SELECT COUNT(*) FROM cf1", [], |row| row.get(0))
                    .map_err(failed("counting the rows", &database.path))?;
                if found as u64 != rows {
                    return Err(unsound(format!(
                        "{rows} rows were loaded, {found} are there after the run"
                    )));
                }
            }
            let verdict: String = connection
                .query_row("PRAGMA quick_check", [], |row| row.get(0))
                .map_err(failed("PRAGMA quick_check", &database.path))?;
            if verdict != "ok" {
                return Err(unsound(format!("PRAGMA quick_check says: {verdict}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case;

    fn spot(emulated: bool) -> Spot {
        Spot { path: "/d/a b?c=%41&.db".into(), member: "/f/t,1.tier".into(), emulated }
    }

    #[test]
    fn a_path_with_signs_that_mean_something_in_a_uri_is_escaped() {
        let home = &case::choose(&["redo-on-home".into()], false).unwrap()[0];
        assert_eq!(uri(home, &spot(true)), "file:/d/a%20b%3Fc%3D%2541%26.db?vfs=tiersmith");
    }

    #[test]
    fn what_a_case_puts_on_the_tier_is_what_the_uri_asks_for() {
        for (id, place) in [("redo-on-tier", "&place=redo"), ("all-on-tier", "&place=all")] {
            let cases = case::choose(&[id.into()], false).unwrap();
            let uri_of = |emulated| uri(&cases[1], &spot(emulated));
            let size = format!("&fast=/f/t%2C1.tier&size={}", room::tier_bytes(&cases[1]));
            assert!(
                uri_of(true).contains(place) && uri_of(true).contains(&size),
                "{}",
                uri_of(true)
            );
            assert!(uri_of(true).ends_with("&emulate=1") && !uri_of(false).contains("emulate"));
        }
    }

    #[test]
    fn this_sqlite_writes_batches() {
        assert!(
            has_batch_atomic_writes(),
            "it was compiled without SQLITE_ENABLE_BATCH_ATOMIC_WRITE; see .cargo/config.toml"
        );
    }
}
