//! Servers as targets: one shape for PostgreSQL, MariaDB, Redis and `tiersmith kv`.
//!
//! A run gets a copy of a loaded data directory. Its redo is moved, or its tier, or the directory
//! is attached and mounted, as the case says (`placed.rs`); the server is started on it; sessions
//! are the lab's own clients (`session.rs`, `keys.rs`) or a program that comes with the database
//! (`program.rs`).
//!
//! **Invariants**: the only differences between two cases are those of their case files; a server
//! is stopped before its directory is unmounted, and both before anything is removed.
//! **Deliberately absent**: what differs by product; that is in [`crate::server`].

mod keys;
mod placed;
mod program;
mod recover;
mod session;
mod ycsb;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tiersmith_awr::{Snapshot, Source, statistic};

use super::{
    CALLS, COMMITS, EXECUTES, Ground, Kind, Opened, ROWS, Session, Target, Work, db_time_ns, loads,
    room, tier, tpcc, transactions,
};
use crate::case::{Case, Load};
use crate::error::{During, Error, Result};
use crate::run::{self, Measured, Plans};
use crate::server::client::Rows;
use crate::server::{self, Client, MappedTier, Product, Programs, Server, Site};
use crate::target::recovery::{Recovered, Watch};
use crate::workload::slob;
use crate::workload::ycsb::Ycsb;
use placed::Placed;
pub(crate) use program::{SET_KEYS, set_value};

/// For a server that hangs: how long an answer may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long the load runs before a kill.
const BEFORE_KILL: Duration = Duration::from_secs(1);

/// Numbers the instances of a process, so that snapshots of two runs cannot be mixed up.
static INSTANCES: AtomicU64 = AtomicU64::new(0);

/// One of [`server::products`], by name, in the list of targets.
#[derive(Debug)]
pub struct ServerKind(pub(super) &'static str);

impl ServerKind {
    fn product(&self) -> Result<&'static dyn Product> {
        server::product(self.0)
    }

    fn found(&self) -> Result<(&'static dyn Product, Programs)> {
        let product = self.product()?;
        Ok((product, server::find(product)?))
    }
}

/// The server of a case, and its programs.
fn of_case(case: &Case) -> Result<(&'static dyn Product, Programs)> {
    let product = case.product()?;
    Ok((product, server::find(product)?))
}

impl Kind for ServerKind {
    fn name(&self) -> &'static str {
        self.0
    }

    fn title(&self) -> &'static str {
        self.product().map_or(self.0, Product::title)
    }

    fn version(&self) -> Result<String> {
        Ok(self.found()?.1.version().to_owned())
    }

    fn run_on(&self, case: &Case) -> Result<(&'static str, String)> {
        let (product, programs) = of_case(case)?;
        Ok((product.title(), programs.version().to_owned()))
    }

    fn cannot(&self, ground: &Ground<'_>) -> Option<String> {
        let (product, programs) = match of_case(ground.case) {
            Ok(found) => found,
            Err(e) => return Some(e.to_string()),
        };
        program::cannot(product, &programs, ground.case.server.load)
            .or_else(|| written_once_already(ground.case, product))
            .or_else(|| placed::cannot(ground))
    }

    fn template_key(&self, ground: &Ground<'_>) -> String {
        let (case, slob) = (ground.case, ground.slob);
        let (scale, scan) = (slob.scale.bytes(), slob.scan_table.bytes());
        format!(
            "{:?} {:?} {:?} {:?} {:?} {scale} {scan} {} {} {:?}",
            case.server.program,
            case.load(),
            loads::of(case, slob),
            case.server.keys,
            case.server.sysbench,
            slob.schemas,
            slob.seed,
            case.server.settings
        )
    }

    fn load(&self, ground: &Ground<'_>, dir: &Path) -> Result<()> {
        let (product, programs) = of_case(ground.case)?;
        let mut site = site(ground, product, dir);
        server::create(product, &programs, &site)?;
        // Nothing of a load has to survive; it is copied when the server has stopped in order.
        let fast = product.unsynced();
        site.settings.extend(fast.map(|(name, value)| (name.to_owned(), value.to_owned())));
        (ground.progress)(0.3).then_some(()).ok_or(Error::Interrupted)?;
        let running = Server::start(product, &programs, &site)?;
        (ground.progress)(0.5).then_some(()).ok_or(Error::Interrupted)?;
        match ground.case.server.load {
            Load::Slob => {
                let mut client = running.client()?;
                for schema in 0..ground.slob.schemas {
                    client.load(&rows(product, ground.slob, schema))?;
                    (ground.progress)(0.6).then_some(()).ok_or(Error::Interrupted)?;
                }
            }
            load if load.is_transactional() => {
                let report = |part: f64| (ground.progress)(0.5 + 0.4 * part);
                let records = loads::ycsb_of(ground.case, ground.slob);
                if let Some(load) = records.filter(|_| !product.speaks_sql()) {
                    ycsb::fill(&running.socket(), &load, ground.slob.seed, &report)?;
                    running.stop()?;
                    return (ground.progress)(0.95).then_some(()).ok_or(Error::Interrupted);
                }
                let mut sql = running.sql()?;
                if let Some(load) = loads::of(ground.case, ground.slob) {
                    load.fill(sql.as_mut(), ground.slob.seed, &report)?;
                }
            }
            _ => program::prepare(&running, &programs, ground.case, ground.slob)?,
        }
        running.stop()?;
        (ground.progress)(0.95).then_some(()).ok_or(Error::Interrupted)
    }

    fn open<'a>(
        &self,
        ground: &Ground<'a>,
        template: &Path,
        dir: &Path,
    ) -> Result<Box<dyn Opened + 'a>> {
        let (product, programs) = of_case(ground.case)?;
        fs::create_dir(dir).during("make", dir)?;
        let mut site = site(ground, product, dir);
        copy_tree(&template.join("data"), &site.data)?;
        let placed = Placed::new(ground, product, &mut site)?;
        let server = Server::start(product, &programs, &site)?;
        let control = Mutex::new(server.client()?);
        let case = ground.case;
        let instance =
            format!("{}-{}", std::process::id(), INSTANCES.fetch_add(1, Ordering::Relaxed));
        let source = Source {
            instance,
            database: case.id.clone(),
            product: product.title().into(),
            version: programs.version().into(),
            path: site.data.display().to_string(),
            settings: settings(case, ground.slob, &site),
            remote: None,
        };
        let target = ServerTarget {
            load: loads::of(case, ground.slob).filter(|_| product.speaks_sql()),
            records: loads::ycsb_of(case, ground.slob).filter(|_| !product.speaks_sql()),
            under_way: 0,
            case: case.clone(),
            slob: ground.slob.clone(),
            product,
            programs,
            control,
            server,
            source,
            site,
            placed,
            home: dir.to_path_buf(),
            home_model: ground.home_model.map(str::to_owned),
        };
        Ok(Box::new(target))
    }
}

/// Why a case without protection against torn pages says nothing of a product that has none.
fn written_once_already(case: &Case, product: &dyn Product) -> Option<String> {
    let same = !case.server.torn_page_protection && product.torn_page_protection().is_none();
    same.then(|| {
        format!("{} writes no page twice, so there is no protection to switch off", product.title())
    })
}

/// Where a server of this study lies within `dir`, and what it is told.
fn site(ground: &Ground<'_>, product: &dyn Product, dir: &Path) -> Site {
    let wishes = &ground.case.server;
    let mut site = Site::new(dir.join("data"), dir.join("log"));
    site.tier = product.tier_file().map(|name| MappedTier {
        path: site.data.join(name),
        bytes: room::tier_bytes(ground.case),
        // Until it is on the medium.
        emulated: true,
    });
    site.settings = product.cache_settings(wishes.cache.bytes());
    if let (false, Some((name, off))) =
        (wishes.torn_page_protection, product.torn_page_protection())
    {
        site.settings.push((name.into(), off.into()));
    }
    let own = wishes.settings.get(product.name()).into_iter().flatten();
    site.settings.extend(own.map(|(name, value)| (name.clone(), value.clone())));
    site.leftovers = ground.places.leftovers.clone();
    site
}

/// What a schema is loaded with: rows of a third of a page, as SLOB's are of an 8 KiB block.
fn rows(product: &dyn Product, slob: &slob::Settings, schema: u32) -> Rows {
    let page = product.page_bytes();
    Rows {
        schema,
        rows: slob.blocks(page),
        scan_rows: slob.scan_blocks(page),
        width: width(product),
        seed: slob.seed,
    }
}

/// Letters in each of nineteen columns: SLOB's 128 at pages of 8 KiB, in proportion at others.
fn width(product: &dyn Product) -> usize {
    usize::try_from(product.page_bytes() / 64).unwrap_or(128)
}

/// Copies a stopped server's directory with owners, modes and links, and makes the copy durable.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    let output = Command::new("cp")
        .args(["-a", "--reflink=auto", "--"])
        .arg(from)
        .arg(to)
        .stdin(Stdio::null())
        .output();
    let output = output.during("run cp for", to)?;
    if !output.status.success() {
        return Err(Error::Target {
            what: "copying a loaded database".into(),
            database: to.into(),
            reason: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    let dir = fs::File::open(to).during("open", to)?;
    rustix::fs::syncfs(&dir).during("sync", to)
}

/// Reads every file once, on the way that the server takes, so that the page cache has them: those
/// of a copy on a plain file system are there already, those of a mount are not.
fn read_tree(dir: &Path) -> Result<()> {
    // By another process: this one may be serving the mount.
    let words = ["-type", "f", "-size", "+0", "-exec", "cat", "--", "{}", "+"];
    let mut find = Command::new("find");
    find.arg(dir).args(words).env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null());
    let read = find.stderr(Stdio::piped()).output().during("run find for", dir)?;
    let said = String::from_utf8_lossy(&read.stderr);
    let root = format!("find: '{}'", dir.display());
    // Files that the server removes meanwhile are none of our business.
    let mut reasons = said
        .lines()
        .filter(|line| !line.ends_with(": No such file or directory") || line.starts_with(&root))
        .map(str::to_owned);
    let silent = (!read.status.success() && said.is_empty()).then(|| read.status.to_string());
    match reasons.next().or(silent) {
        None => Ok(()),
        Some(reason) => Err(Error::Target {
            what: "reading every file once".into(),
            database: dir.into(),
            reason,
        }),
    }
}

fn settings(case: &Case, slob: &slob::Settings, site: &Site) -> BTreeMap<String, String> {
    let mut pairs: BTreeMap<String, String> = site.settings.iter().cloned().collect();
    pairs.insert("fast tier holds".into(), case.placement.name().into());
    pairs.insert("load".into(), case.server.load.title().into());
    if case.server.load == Load::Slob {
        for (name, value) in [
            ("SLOB UPDATE_PCT", slob.update_pct.to_string()),
            ("SLOB SCALE", slob.scale.to_string()),
            ("SLOB WORK_UNIT", slob.work_unit.to_string()),
            ("SLOB REDO_STRESS", format!("{:?}", slob.redo_stress).to_uppercase()),
            ("SLOB schemas", slob.schemas.to_string()),
            ("SLOB THREADS_PER_SCHEMA", slob.threads_per_schema.to_string()),
            ("SLOB seed", slob.seed.to_string()),
        ] {
            pairs.insert(name.into(), value);
        }
    } else {
        pairs.insert("clients".into(), case.server.clients.to_string());
        if let Some(load) = loads::of(case, slob) {
            pairs.insert("tables".into(), load.describe(case.server.clients));
            pairs.insert("seed".into(), slob.seed.to_string());
        }
        let keys = &case.server.keys;
        if matches!(case.server.load, Load::Set | Load::SetGet | Load::Memtier | Load::Mixed) {
            pairs.insert("requests at once".into(), keys.pipeline.to_string());
        }
        if case.server.load == Load::Mixed {
            pairs.insert("SETs and GETs".into(), keys.ratio.to_string());
            pairs.insert("bytes of a value".into(), keys.value_bytes().to_string());
            pairs.insert("keys".into(), format!("{}, {}", keys.keys(slob), keys.pattern.name()));
        }
    }
    pairs
}

impl ServerTarget {
    /// A client of a server that has ended knows only that its connection did: the server's own
    /// words say why.
    fn explained(&self, error: Error) -> Error {
        match error {
            Error::Target { what, database, reason } if self.server.client().is_err() => {
                let words = self.server.log_end();
                let reason = format!(
                    "{reason}; {} has ended, its last words are: {words}",
                    self.product.title()
                );
                Error::Target { what, database, reason }
            }
            other => other,
        }
    }

    /// Waits until the server has added up what it counted for clients that have gone.
    fn settle(&self) -> Result<()> {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        self.product.settle(control.as_mut())
    }
}

/// A server on its directory, for one run. Fields are dropped in their order: the server before
/// what it stands on.
struct ServerTarget {
    control: Mutex<Box<dyn Client>>,
    server: Server,
    placed: Placed,
    case: Case,
    /// The load, if its transactions are statements of its own in SQL.
    load: Option<Box<dyn transactions::Transactional>>,
    /// The load, if it is one of YCSB's on a server that speaks no SQL.
    records: Option<Ycsb>,
    /// Operations that may have been under way when the server was killed.
    under_way: u64,
    slob: slob::Settings,
    product: &'static dyn Product,
    programs: Programs,
    source: Source,
    site: Site,
    home: PathBuf,
    home_model: Option<String>,
}

impl Target for ServerTarget {
    fn session<'a>(
        &'a self,
        work: &'a Work,
        number: usize,
        _: u32,
    ) -> Result<Box<dyn Session + 'a>> {
        Ok(Box::new(session::ServerSession::open(self, work, number)?))
    }

    fn snapshot(&self, work: &Work) -> Snapshot {
        let statements = work.statements.read();
        let mut snapshot = Snapshot::now(self.source.clone());
        // The server works for the load as this process does.
        snapshot.process_cpu_ns = snapshot.process_cpu_ns.map(|ns| ns + self.server.cpu_ns());
        if let Some(stats) = self.placed.stats() {
            tier::add(&mut snapshot, &stats, true);
        }
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        // What the server cannot tell now is left out of the reports; that it is broken shows in
        // its sessions.
        let _ = self.product.figures(control.as_mut(), &mut snapshot);
        snapshot.add_waits(&work.client_waits.read());
        snapshot.sessions = Some(work.sessions());
        if self.case.load() == Load::Slob || self.load.is_some() || self.records.is_some() {
            snapshot.db_time_ns = Some(db_time_ns(&statements));
            snapshot.add_counter(
                statistic::EXECUTE_COUNT,
                "executions",
                statements.counter(EXECUTES),
            );
            snapshot.add_counter(statistic::USER_CALLS, "calls", statements.counter(CALLS));
            snapshot.add_counter(
                statistic::USER_COMMITS,
                "transactions",
                statements.counter(COMMITS),
            );
            if self.case.load() == Load::Slob {
                snapshot.add_counter("SLOB rows touched", "rows", statements.counter(ROWS));
            }
        }
        tier::add_home(&mut snapshot, &self.home, self.home_model.as_deref());
        snapshot
    }

    fn check(&self) -> Result<()> {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        control.ping()?;
        if let Some(load) = &self.load {
            return load.check(self.server.sql()?.as_mut(), &self.home);
        }
        if let Some(records) = &self.records {
            return ycsb::check(&self.server.socket(), records, self.under_way);
        }
        if self.case.load() == Load::Mixed {
            let (expected, found) =
                (self.case.server.keys.keys(&self.slob), control.number("DBSIZE")?);
            if found == expected {
                return Ok(());
            }
            let reason = format!("{expected} keys were loaded, {found} are there after the run");
            return Err(Error::Unsound { database: self.home.clone(), reason });
        }
        if self.case.load() != Load::Slob {
            return Ok(());
        }
        let expected = self.slob.blocks(self.product.page_bytes());
        for schema in 0..self.slob.schemas {
            let found = control.count(schema, expected)?;
            if found != expected {
                let reason =
                    format!("{expected} rows were loaded, {found} are there after the run");
                return Err(Error::Unsound { database: self.home.clone(), reason });
            }
        }
        Ok(())
    }
}

impl Opened for ServerTarget {
    fn target(&self) -> &dyn Target {
        self
    }

    fn warm(&self) -> Result<()> {
        if self.case.server.load != Load::Slob {
            return read_tree(&self.home.join("data"));
        }
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        for schema in 0..self.slob.schemas {
            control.count(schema, self.slob.blocks(self.product.page_bytes()))?;
            control.scan(schema)?;
        }
        Ok(())
    }

    fn measure(&self, plans: &Plans<'_>) -> Result<Measured> {
        if let (None, Some(records)) = (plans.program, &self.records) {
            let (socket, seed) = (self.server.socket(), plans.slob.seed);
            let connect: &transactions::Connect<'_> =
                &|_, number| Ok(Box::new(ycsb::YcsbOnRedis::open(&socket, records, seed, number)?));
            let clients = self.case.server.clients;
            let kinds = super::ycsb::OPERATIONS;
            return transactions::run_connected(self, plans, kinds, clients, connect)
                .map_err(|e| self.explained(e));
        }
        match (plans.program, &self.load) {
            (None, None) if self.case.load() == Load::Slob => run::run(self, plans),
            (None, Some(load)) => {
                let clients = self.case.server.clients;
                transactions::run(self, plans, load.as_ref(), clients, &|_| self.server.sql())
            }
            _ => program::measure(self, plans),
        }
        .map_err(|e| self.explained(e))
    }

    fn server(&self) -> Option<&Server> {
        Some(&self.server)
    }

    fn recover(&mut self, watch: &Watch<'_>) -> Result<Option<Recovered>> {
        self.watched(watch).map(Some).map_err(|e| self.explained(e))
    }

    fn kill(&mut self) -> Result<Option<String>> {
        if self.case.load() != Load::Tpcc {
            return Ok(None);
        }
        let (case, product, socket) = (&self.case, self.product, self.server.socket());
        let open = || product.sql(&socket);
        let server = &mut self.server;
        let mut kill = || {
            server.end_at_once();
            Ok(())
        };
        let (clients, seed) = (case.server.clients, self.slob.seed);
        let killed = tpcc::until_killed(&open, &case.tpcc, seed, clients, BEFORE_KILL, &mut kill)?;
        let began = Instant::now();
        self.server = Server::start(self.product, &self.programs, &self.site)?;
        let took = began.elapsed();
        *self.control.get_mut().unwrap_or_else(PoisonError::into_inner) = self.server.client()?;
        killed.check(self.server.sql()?.as_mut(), took, &self.home).map(Some)
    }

    fn remarks(&self) -> Vec<(&'static str, String)> {
        let log = fs::read(&self.site.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default();
        let own = self.product.remark(&log).map(|sentence| ("server", sentence));
        own.into_iter().chain(self.placed.remark().map(|sentence| ("mount", sentence))).collect()
    }

    fn close(self: Box<Self>) -> Result<()> {
        let ServerTarget { control, server, placed, .. } = *self;
        drop(control);
        server.stop()?;
        placed.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_read_is_not_taken_for_one_that_was() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), [1; 9000]).unwrap();
        read_tree(dir.path()).unwrap();
        let error = read_tree(&dir.path().join("data")).unwrap_err().to_string();
        assert!(error.contains("No such file or directory"), "{error}");
    }
}
