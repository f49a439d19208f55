//! What the tests of this directory share: a directory with a database and an emulated tier, stock
//! connections, and starting the test binary again as another process.
//!
//! Every tier here is a file that stands for persistent memory (EMULATED), unless it is on flash:
//! what a process can see is the same, what a power cut does is not.

use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tiersmith_sqlite::place::{FastSpec, Place, PlaceError, Want};

/// The VFS SQLite comes with.
pub(crate) const STOCK: &str = "unix";

/// A directory of its own, gone with the value.
pub(crate) struct Bench {
    dir: TempDir,
    /// Its tier is a file on a disk.
    flash: bool,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), flash: false }
    }

    /// On a disk, with a tier on flash; `None`, and a line, where temporary files are in memory.
    pub(crate) fn on_flash() -> Option<Self> {
        /// `statfs(2)`, as on x86-64 and aarch64.
        const TMPFS: i64 = 0x0102_1994;
        let dir = tempfile::tempdir().unwrap();
        if rustix::fs::statfs(dir.path()).unwrap().f_type == TMPFS {
            println!(
                "skipped: a tier on flash, because directories for temporary files are in memory \
                 here"
            );
            return None;
        }
        Some(Self { dir, flash: true })
    }

    /// What reports call its figures.
    pub(crate) fn label(&self) -> &'static str {
        if self.flash { "on flash" } else { "EMULATED" }
    }

    /// In memory where there is enough (a container's /dev/shm has 64 MiB), for syncing costs
    /// nothing there; a process that is killed cannot tell the difference.
    pub(crate) fn in_memory() -> Self {
        let free = rustix::fs::statvfs("/dev/shm")
            .map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
        if free < 1 << 30 {
            return Self::new();
        }
        match tempfile::Builder::new().prefix("tiersmith-").tempdir_in("/dev/shm") {
            Ok(dir) => Self { dir, flash: false },
            Err(_) => Self::new(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.file("app.db")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.file("app.db-tiersmith")
    }

    pub(crate) fn tier(&self) -> PathBuf {
        self.file("tier")
    }

    pub(crate) fn fast(&self) -> FastSpec {
        let (members, emulate) = (vec![self.tier()], !self.flash);
        FastSpec { members, size: Some(8 << 20), emulate, ..FastSpec::default() }
    }

    pub(crate) fn attach_with(&self, fast: FastSpec) -> Result<Option<Arc<Place>>, PlaceError> {
        let want = Want { fast: Some(fast), create: true, read_only: false };
        patiently(|| Place::open(&self.database(), &want, &fold))
    }

    /// [`Bench::attach`], for a database that somebody has open.
    pub(crate) fn attach_at_once(&self) -> Result<Option<Arc<Place>>, PlaceError> {
        let want = Want { fast: Some(self.fast()), create: true, read_only: false };
        Place::open(&self.database(), &want, &fold)
    }

    /// [`Bench::detach`], likewise.
    pub(crate) fn detach_at_once(&self) -> Result<(), PlaceError> {
        Place::detach(&self.database(), &fold)
    }

    pub(crate) fn attach(&self) -> Result<Option<Arc<Place>>, PlaceError> {
        self.attach_with(self.fast())
    }

    pub(crate) fn open(&self) -> Result<Option<Arc<Place>>, PlaceError> {
        patiently(|| Place::open(&self.database(), &Want::default(), &fold))
    }

    pub(crate) fn detach(&self) -> Result<(), PlaceError> {
        patiently(|| Place::detach(&self.database(), &fold))
    }

    /// A plain database with `rows` rows of a table `t`.
    pub(crate) fn fill(&self, rows: u32) {
        let db = stock(&self.database()).unwrap();
        db.execute_batch("CREATE TABLE t(n)").unwrap();
        for n in 0..rows {
            db.execute("INSERT INTO t VALUES (?)", [n]).unwrap();
        }
    }

    /// Every file below the directory but those named, with its bytes and mode: to see that nothing
    /// was changed.
    pub(crate) fn contents(&self, but: &[&str]) -> Vec<(PathBuf, u32, Vec<u8>)> {
        let mut found = Vec::new();
        list(self.path(), &mut found);
        found.retain(|(path, ..)| !but.iter().any(|name| path.ends_with(name)));
        found.sort();
        found
    }

    /// The URI of the database through the VFS, attaching it to the tier.
    pub(crate) fn uri(&self) -> String {
        self.uri_with("")
    }

    /// The same with more parameters, each with `&` before it; 8 MiB unless they have a size.
    pub(crate) fn uri_with(&self, more: &str) -> String {
        let size = if more.contains("&size=") { "" } else { "&size=8M" };
        let (database, tier) = (self.database(), self.tier());
        let emulate = if self.flash { "" } else { "&emulate=1" };
        format!(
            "file:{}?vfs=tiersmith&fast={}{emulate}{size}{more}",
            database.display(),
            tier.display()
        )
    }
}

/// Longer than anything here takes; a limit for what hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Tries again while somebody else has it: a process that another test is just starting has, until
/// its exec, copies of this process's descriptors and their locks. Where somebody else is expected
/// to have it, do without: [`Bench::attach_at_once`].
pub(crate) fn patiently<T>(work: impl Fn() -> Result<T, PlaceError>) -> Result<T, PlaceError> {
    let end = Instant::now() + PATIENCE;
    loop {
        match work() {
            Err(e) if e.is_busy() && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(1))
            }
            other => return other,
        }
    }
}

fn list(dir: &Path, found: &mut Vec<(PathBuf, u32, Vec<u8>)>) {
    use std::os::unix::fs::MetadataExt;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let stat = path.symlink_metadata().unwrap();
        if stat.is_dir() {
            list(&path, found);
        } else {
            found.push((path.clone(), stat.mode(), std::fs::read(&path).unwrap()));
        }
    }
}

/// A connection with the stock VFS.
pub(crate) fn stock(path: &Path) -> rusqlite::Result<Connection> {
    Connection::open_with_flags_and_vfs(path, OpenFlags::default(), STOCK)
}

/// What the VFS does before attaching and when detaching, with the stock VFS.
pub(crate) fn fold(path: &Path) -> Result<(), String> {
    let folded = || {
        let db =
            Connection::open_with_flags_and_vfs(path, OpenFlags::SQLITE_OPEN_READ_WRITE, STOCK)?;
        db.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()))?;
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        db.close().map_err(|(_, e)| e)
    };
    folded().map_err(|e| e.to_string())
}

/// Rows of `t` that a stock SQLite sees at the path.
pub(crate) fn rows(path: &Path) -> rusqlite::Result<u32> {
    stock(path)?.query_row("SELECT count(*) FROM t", [], |row| row.get(0))
}

/// Asserts that a stock SQLite refuses the path cleanly.
pub(crate) fn assert_not_a_database(path: &Path) {
    let refused =
        stock(path).unwrap().query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()));
    let code = refused.unwrap_err().sqlite_error_code();
    assert_eq!(code, Some(rusqlite::ffi::ErrorCode::NotADatabase));
}

/// The test `name`, as [`full_name`] has it, as a process of its own with `role` in the
/// environment.
pub(crate) fn again(name: &str, role: (&str, &str)) -> Command {
    // A name without its module is no test: the process would end at once, having run nothing.
    assert!(name.contains("::"), "{name} lacks its module");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command.env(role.0, role.1).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A connection through the VFS, with a URI as [`Bench::uri`] has it. Waits when another test is
/// just starting a process, which has copies of this one's descriptors, and their locks, until its
/// exec.
pub(crate) fn connect(uri: &str) -> rusqlite::Result<Connection> {
    tiersmith_sqlite::register().expect("the VFS can be registered");
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    until_free(|| {
        // A connection opens its file when it first needs it.
        let db = Connection::open_with_flags(uri, flags)?;
        db.query_row("PRAGMA schema_version", [], |_| Ok(()))?;
        Ok(db)
    })
}

/// Tries again while SQLite says that somebody else has the database.
pub(crate) fn until_free<T>(work: impl Fn() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        match work() {
            Err(e) if is_busy(&e) && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(1));
            }
            other => return other,
        }
    }
}

fn is_busy(e: &rusqlite::Error) -> bool {
    e.sqlite_error_code() == Some(rusqlite::ffi::ErrorCode::DatabaseBusy)
}

/// How many, unless the environment says otherwise.
pub(crate) fn many(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}
