//! The file system: what each request does to the attached home. It knows nothing of transports and
//! of the layout of messages.
//!
//! - [`table`]: which node number is which file of the home.
//! - [`crate::attr`]: attributes, as home has them with what the tier knows better.
//! - `names`: look up, create, rename, link, remove. `dir`: reading directories.
//! - `io`: open files: read, write, sync. `space`: holes, allocation. `change`: modes, owners,
//!   times, sizes. `xattr`: extended attributes.
//!
//! # Who is trusted
//! The kernel has checked the caller's rights before a request comes (`default_permissions`), by
//! the modes, owners and ACLs that home has. Home itself is not trusted: who owns it may have put
//! anything into it, and may change it while it is aside. So a path is only ever resolved below
//! home's own descriptor, without following a link, the last step is done by name in an open
//! directory, and a file that is opened is compared with the one that was looked up. A device,
//! socket or pipe is never opened. A name is changed in the very directory that the kernel judged,
//! if what has the name is what the kernel knows by it (decision 0007).
//!
//! # Locks, in the order in which they are taken
//! `renames` (shared by whoever uses a path, alone by renames), a node's `open`, the table, a
//! node's `names`.

mod change;
mod dir;
mod io;
mod names;
#[cfg(test)]
mod refused;
mod space;
pub(crate) mod table;
mod xattr;

use crate::attr::{Attr, attr_of};
use crate::options::Options;
use crate::requests::Requests;
use io::{HomeFd, Opened};
use parking_lot::{Mutex, RwLock};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use table::{Identity, Node, ROOT, Slots, Table};
use tiersmith_store::home::RESERVED;
use tiersmith_store::{AttachedHome, Durability, HomeModel, Named};

pub(crate) use change::{Change, When};
pub(crate) use dir::Listing;
pub(crate) use io::Handle;

/// The result of an operation: what goes wrong is an errno.
pub(crate) type Answer<T> = Result<T, Errno>;

/// For how long the kernel may remember names and attributes. Every change comes through here, so
/// it could be for good.
pub(crate) const VALID: Duration = Duration::from_secs(3600);

/// How files may be handed to the kernel: registers a descriptor, gives back its number.
pub(crate) trait Passthrough: Send + Sync + std::fmt::Debug {
    /// Registers an open file.
    fn open(&self, file: BorrowedFd<'_>) -> std::io::Result<i32>;
    /// Ends that.
    fn close(&self, id: i32);
}

/// Which part of a home one connection serves, and how.
#[derive(Debug, Clone, Default)]
pub(crate) struct Part {
    /// Its top, relative to home; empty: home itself.
    pub(crate) below: PathBuf,
    /// A directory, relative to home, that another connection serves.
    pub(crate) without: Option<PathBuf>,
    /// The kernel keeps pages and writes them back.
    pub(crate) write_back: bool,
    /// Whether there are extended attributes, where that is known already.
    pub(crate) xattrs: Option<bool>,
}

/// The file system behind one mount.
#[derive(Debug)]
pub(crate) struct Fs {
    pub(crate) home: AttachedHome,
    /// Home's own directory.
    root: Arc<OwnedFd>,
    /// The directory that this mount shows, and its path relative to home: home itself, or one in
    /// it.
    top: Arc<OwnedFd>,
    below: PathBuf,
    /// A directory that another connection serves: nothing in it is reached from here.
    covered: Option<Identity>,
    /// The kernel keeps what was written until a sync, so that it alone knows a file's size.
    pub(crate) write_back: bool,
    pub(crate) table: Mutex<Table>,
    renames: RwLock<()>,
    files: Slots<Opened>,
    listings: Slots<Listing>,
    pub(crate) sync_on_write: bool,
    /// There are extended attributes and ACLs.
    pub(crate) xattrs: bool,
    /// The slow storage that the home is modelled as, for studies.
    model: Option<HomeModel>,
    /// The kernel may have files of class pass, if it takes any.
    passes: bool,
    /// The kernel may have redo files that can be lent, likewise.
    lends: bool,
    /// As in [`Options`].
    #[cfg(feature = "testing")]
    discard_writes: bool,
    /// Set once, before the first request is served.
    passthrough: RwLock<Option<Box<dyn Passthrough>>>,
    /// Why the kernel last refused to take a file over.
    pub(crate) passthrough_refused: Mutex<Option<String>>,
    /// Why the kernel did not take a lent file; from then on nothing is lent on this mount.
    pub(crate) lending_refused: Mutex<Option<String>>,
    root_user: bool,
    logged: Mutex<Logged>,
    pub(crate) ended: AtomicBool,
    pub(crate) requests: Requests,
    /// Of writes to any tier.
    durability: Durability,
}

/// Names of files and programs are in it, which may hold anything: a line stays one line, and a
/// terminal that shows it neither obeys it nor turns it round.
pub(crate) fn one_line(message: &str) -> String {
    let turns = |c| {
        matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}')
    };
    let shown = |c: char| {
        if c.is_control() || turns(c) { c.escape_default().to_string() } else { c.to_string() }
    };
    message.chars().map(shown).collect()
}

/// Whether it is a name and not a way to somewhere else. The kernel sends nothing else; were it to,
/// the way could lead out of the home.
fn is_one_name(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    !matches!(bytes, b"" | b"." | b"..") && !bytes.contains(&b'/') && !bytes.contains(&0)
}

/// Lines about trouble in a second.
const LINES: usize = 8;

/// What was logged in the present second.
#[derive(Debug, Default)]
struct Logged {
    since: Option<Instant>,
    lines: Vec<String>,
    left_out: u64,
}

impl Logged {
    /// Whether a line is to be written, and how many of the seconds before were not and are to be
    /// told of now.
    fn admits(&mut self, message: &str, now: Instant) -> (bool, u64) {
        let mut left_out = 0;
        if self.since.is_none_or(|since| now.duration_since(since) >= Duration::from_secs(1)) {
            left_out = std::mem::take(&mut self.left_out);
            self.lines.clear();
            self.since = Some(now);
        }
        let says = self.lines.len() < LINES && !self.lines.iter().any(|l| l == message);
        if says {
            self.lines.push(message.to_owned());
        } else {
            self.left_out += 1;
        }
        (says, left_out)
    }
}

/// A file or directory by its name in an open directory.
#[derive(Debug)]
struct At {
    dir: Arc<OwnedFd>,
    name: OsString,
    /// Relative to home.
    path: PathBuf,
}

impl At {
    /// For the store: in this directory, wherever the path leads.
    fn named(&self) -> Named<'_> {
        Named::in_directory(self.dir.as_fd(), &self.path)
    }
}

impl Fs {
    pub(crate) fn new(home: AttachedHome, options: &Options, part: &Part) -> std::io::Result<Self> {
        let directory = home.directory().ok_or(Errno::NOTDIR)?;
        let root = Arc::new(rustix::io::fcntl_dupfd_cloexec(directory, 3)?);
        let top = if part.below.as_os_str().is_empty() {
            root.clone()
        } else {
            Arc::new(part_of(&root, &part.below)?)
        };
        let look = |dir: &OwnedFd| rustix::fs::statx(dir, "", AtFlags::EMPTY_PATH, mask());
        let found = look(&top)?;
        let covered =
            part.without.as_deref().map(|without| look(&part_of(&root, without)?)).transpose()?;
        let stats = home.stats();
        let all = stats.tiers.iter().map(|tier| tier.durability);
        let durability = all.fold(Durability::OnReturn, Durability::and);
        let model = stats.home_model.as_deref().and_then(HomeModel::named);
        // The kernel would go past the model.
        let passes = options.passthrough && !options.sync_on_write && model.is_none();
        Ok(Self {
            model,
            durability,
            home,
            table: Mutex::new(Table::new(&found, top.clone())),
            xattrs: part
                .xattrs
                .unwrap_or_else(|| !options.xattrs_if_any || xattr::are_there(&root)),
            root,
            top,
            below: part.below.clone(),
            covered: covered.as_ref().map(Identity::of),
            write_back: part.write_back,
            renames: RwLock::new(()),
            files: Slots::default(),
            listings: Slots::default(),
            sync_on_write: options.sync_on_write,
            passes,
            lends: options.lend,
            #[cfg(feature = "testing")]
            discard_writes: options.discard_writes,
            passthrough: RwLock::new(None),
            passthrough_refused: Mutex::new(None),
            lending_refused: Mutex::new(None),
            root_user: rustix::process::geteuid().is_root(),
            logged: Mutex::default(),
            ended: AtomicBool::new(false),
            requests: Requests::default(),
        })
    }

    /// Whether writes are answered without being done: see [`Options`].
    #[inline]
    pub(crate) fn discards_writes(&self) -> bool {
        #[cfg(feature = "testing")]
        return self.discard_writes;
        #[cfg(not(feature = "testing"))]
        false
    }

    pub(crate) fn set_passthrough(&self, passthrough: Option<Box<dyn Passthrough>>) {
        *self.passthrough.write() = passthrough;
    }

    /// Closes every file and forgets every node: the kernel does not ask any more.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.files.clear();
        self.listings.clear();
        self.table.lock().clear();
        self.set_passthrough(None);
    }

    /// The errno for an error of the store, with a line in the log when it is one that somebody
    /// must see.
    fn failed(&self, e: &tiersmith_store::Error) -> Errno {
        let errno = Errno::from_raw_os_error(e.errno());
        self.note(errno, || e.to_string());
        errno
    }

    /// The errno for an error of home, likewise.
    fn refused(&self, what: &str, path: &Path, errno: Errno) -> Errno {
        self.note(errno, || format!("cannot {what} {}: {errno}", path.display()));
        errno
    }

    /// One line for trouble with storage, not for what programs do wrong; the same line once a
    /// second and [`LINES`] in all, for any user may cause them.
    fn note(&self, errno: Errno, message: impl FnOnce() -> String) {
        let trouble = matches!(
            errno,
            Errno::IO
                | Errno::NOSPC
                | Errno::DQUOT
                | Errno::ROFS
                | Errno::NOMEM
                | Errno::MFILE
                | Errno::NFILE
                | Errno::STALE
        );
        if !trouble {
            return;
        }
        let message = one_line(&message());
        let (says, left_out) = self.logged.lock().admits(&message, Instant::now());
        if left_out > 0 {
            log::error!(
                "the mount answered {left_out} more requests with errors than the log says"
            );
        }
        if says {
            log::error!("the mount answers a request with an error: {message}");
        }
    }

    /// The errno for a program when this process, or the system, has no descriptor left. A program
    /// takes EMFILE for its own limit, which it is far from.
    pub(crate) fn without_descriptors(&self, errno: Errno) -> Errno {
        if errno != Errno::MFILE {
            return errno;
        }
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        self.note(errno, || {
            format!(
                "this process may have {} files open, and has; raise its limit before attaching \
                 (`ulimit -n`, or LimitNOFILE= in its unit)",
                limit.map_or_else(|| "unlimited".into(), |n| n.to_string())
            )
        });
        Errno::NFILE
    }

    /// Whether no rename is under way or waiting, so that looking at a name waits for nobody.
    pub(crate) fn names_are_free(&self) -> bool {
        self.renames.try_read().is_some()
    }

    fn node(&self, id: u64) -> Answer<Arc<Node>> {
        self.table.lock().node(id).ok_or(Errno::STALE)
    }

    /// The path of a node relative to home, by one of its names. To be called with `renames` held.
    fn path_of(&self, node: &Node) -> Answer<PathBuf> {
        let table = self.table.lock();
        let mut parts = Vec::new();
        let (mut parent, name) = node.any_name().ok_or(Errno::NOENT)?;
        parts.push(name);
        while parent != ROOT {
            // A loop cannot be: a directory has one parent, and the kernel refuses to move one
            // below itself.
            if parts.len() > 4096 {
                return Err(Errno::LOOP);
            }
            let up = table.node(parent).ok_or(Errno::NOENT)?;
            let (next, name) = up.any_name().ok_or(Errno::NOENT)?;
            parts.push(name);
            parent = next;
        }
        Ok(std::iter::once(self.below.as_os_str())
            .chain(parts.iter().rev().map(OsString::as_os_str))
            .collect())
    }

    /// A descriptor of a directory that was opened, which is good after its name is gone.
    fn kept_directory(&self, node: &Node) -> Option<Arc<OwnedFd>> {
        if node.id == ROOT { Some(self.top.clone()) } else { node.kept() }
    }

    /// Home's directory for the node of a directory. To be called with `renames` held.
    fn directory(&self, node: &Node) -> Answer<Arc<OwnedFd>> {
        // Whoever gets here goes past the mount that covers it, as in a copy of this mount alone.
        // Two connections with pages of one file would not see each other's.
        if self.covered == Some(node.identity) {
            return Err(Errno::BUSY);
        }
        if let Some(dir) = self.kept_directory(node) {
            return Ok(dir);
        }
        let path = self.path_of(node)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let dir = Arc::new(self.with_descriptor(|| self.beneath(&path, flags))?);
        let found = rustix::fs::statx(&dir, "", AtFlags::EMPTY_PATH, mask())?;
        if !node.is(&found) {
            return Err(Errno::STALE);
        }
        if self.table.lock().may_keep_directory() {
            *node.directory.lock() = Some(dir.clone());
        }
        Ok(dir)
    }

    /// Whether Tiersmith's own names are in this directory.
    pub(crate) fn shows_reserved(&self, dir: u64) -> bool {
        dir == ROOT && self.below.as_os_str().is_empty()
    }

    /// Opens a path below home, without following a link.
    fn beneath(&self, path: &Path, flags: OFlags) -> Answer<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..32 {
            match rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN) => {}
                Err(Errno::NOSYS | Errno::PERM) => return self.step_by_step(path, flags),
                other => return other,
            }
        }
        self.step_by_step(path, flags)
    }

    /// As [`Fs::beneath`] where there is no `openat2`: one name at a time.
    fn step_by_step(&self, path: &Path, flags: OFlags) -> Answer<OwnedFd> {
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = self.root.clone();
        for name in path.parent().into_iter().flat_map(Path::iter) {
            at = Arc::new(rustix::fs::openat(&at, name, step, Mode::empty())?);
        }
        let name = path.file_name().ok_or(Errno::INVAL)?;
        rustix::fs::openat(&at, name, flags | OFlags::NOFOLLOW, Mode::empty())
    }

    /// Where the name `name` in the directory `parent` is. To be called with `renames` held.
    fn at(&self, parent: u64, name: &OsStr) -> Answer<At> {
        if !is_one_name(name) {
            return Err(Errno::INVAL);
        }
        if self.shows_reserved(parent) && RESERVED.iter().any(|r| OsStr::new(r) == name) {
            return Err(Errno::PERM);
        }
        let node = self.node(parent)?;
        if !node.is_dir() {
            return Err(Errno::NOTDIR);
        }
        let path =
            if parent == ROOT { self.below.join(name) } else { self.path_of(&node)?.join(name) };
        Ok(At { dir: self.directory(&node)?, name: name.to_os_string(), path })
    }

    /// Where a node is, by the first of its names that still leads to it. To be called with
    /// `renames` held.
    fn find(&self, node: &Node) -> Answer<(At, Statx)> {
        let mut last = Errno::NOENT;
        for (parent, name) in node.all_names() {
            let at = match self.at(parent, &name) {
                Ok(at) => at,
                Err(e) => {
                    last = e;
                    continue;
                }
            };
            match rustix::fs::statx(&at.dir, &at.name, AtFlags::SYMLINK_NOFOLLOW, mask()) {
                Ok(found) if node.is(&found) => return Ok((at, found)),
                Ok(_) => last = Errno::STALE,
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// What has a name, if it is what the kernel knows by that name and has judged. Else the kernel
    /// looks the name up and asks again.
    fn judged(&self, parent: u64, at: &At) -> Answer<Statx> {
        let found = rustix::fs::statx(&at.dir, &at.name, AtFlags::SYMLINK_NOFOLLOW, mask())?;
        if self.covered == Some(Identity::of(&found)) {
            return Err(Errno::BUSY);
        }
        let known = self.table.lock().named(parent, &at.name);
        if known.is_some_and(|node| node.is(&found)) { Ok(found) } else { Err(Errno::STALE) }
    }

    /// A descriptor of the node itself, good for changing attributes, whatever kind it is.
    fn pinned(&self, node: &Node) -> Answer<Pinned> {
        if let Some(opened) = node.opened() {
            return Pinned::open(opened);
        }
        if let Some(dir) = self.kept_directory(node) {
            return Ok(Pinned::Path(dir));
        }
        let _renames = self.renames.read();
        let (at, _) = self.find(node)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd =
            self.with_descriptor(|| rustix::fs::openat(&at.dir, &at.name, flags, Mode::empty()))?;
        let found = rustix::fs::statx(&fd, "", AtFlags::EMPTY_PATH, mask())?;
        if node.is(&found) { Ok(Pinned::Path(Arc::new(fd))) } else { Err(Errno::STALE) }
    }

    /// What home says about a node.
    fn status(&self, node: &Node) -> Answer<Statx> {
        if let Some(dir) = self.kept_directory(node) {
            return rustix::fs::statx(&dir, "", AtFlags::EMPTY_PATH, mask());
        }
        if let Some(opened) = node.opened() {
            return rustix::fs::statx(opened.home_fd()?, "", AtFlags::EMPTY_PATH, mask());
        }
        let _renames = self.renames.read();
        Ok(self.find(node)?.1)
    }

    /// The attributes of a node.
    pub(crate) fn getattr(&self, id: u64, fh: Option<u64>) -> Answer<Attr> {
        let node = self.node(id)?;
        let found = match fh.and_then(|fh| self.files.get(fh)) {
            Some(opened) => rustix::fs::statx(opened.home_fd()?, "", AtFlags::EMPTY_PATH, mask())?,
            None => self.status(&node)?,
        };
        Ok(attr_of(&self.home, &found))
    }

    /// Makes the names in a directory durable, when every change must be as its call returns.
    fn settle_directory(&self, dir: &OwnedFd) -> Answer<()> {
        if self.sync_on_write { sync_directory(dir) } else { Ok(()) }
    }

    /// The home's numbers.
    pub(crate) fn statfs(&self) -> Answer<rustix::fs::StatVfs> {
        rustix::fs::fstatvfs(&self.top)
    }
}

/// Opens a directory of a home by its path, without following a link.
pub(crate) fn part_of(root: &OwnedFd, path: &Path) -> Answer<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut names = path.iter();
    let first = names.next().ok_or(Errno::INVAL)?;
    let first = rustix::fs::openat(root, first, flags, Mode::empty())?;
    names.try_fold(first, |at, name| rustix::fs::openat(&at, name, flags, Mode::empty()))
}

/// A descriptor that stands for a file of any kind.
#[derive(Debug)]
enum Pinned {
    /// An open file, and home's descriptor of it.
    Open(Arc<Opened>, HomeFd),
    /// A descriptor without access to contents.
    Path(Arc<OwnedFd>),
}

impl Pinned {
    fn open(opened: Arc<Opened>) -> Answer<Self> {
        let fd = opened.home_fd()?;
        Ok(Pinned::Open(opened, fd))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Pinned::Open(_, fd) => fd.as_fd(),
            Pinned::Path(fd) => fd.as_fd(),
        }
    }

    /// The kernel's own name of the descriptor: for calls that take a path only. It leads to this
    /// very file, whatever its kind, and no further.
    fn link(&self) -> String {
        format!("/proc/self/fd/{}", self.fd().as_raw_fd())
    }
}

/// Syncs a directory of which there may be a path descriptor only.
fn sync_directory(dir: impl AsFd) -> Answer<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::fsync(rustix::fs::openat(dir, ".", flags, Mode::empty())?)
}

/// What is asked of home about a file.
fn mask() -> StatxFlags {
    StatxFlags::BASIC_STATS | StatxFlags::BTIME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_make_a_line_of_the_log() {
        assert_eq!(
            one_line("cannot open a\nb\u{1b}[2J: \u{e4}"),
            "cannot open a\\nb\\u{1b}[2J: \u{e4}"
        );
        assert_eq!(one_line("a\u{202e}gpj.exe\u{2066}"), "a\\u{202e}gpj.exe\\u{2066}");
    }

    #[test]
    fn trouble_is_told_of_but_does_not_fill_the_log() {
        let (mut logged, start) = (Logged::default(), Instant::now());
        assert_eq!(logged.admits("a", start), (true, 0));
        assert_eq!(logged.admits("b", start), (true, 0));
        assert_eq!(logged.admits("a", start), (false, 0));
        let more = (0..100).filter(|n| logged.admits(&n.to_string(), start).0).count();
        assert_eq!(more, LINES - 2);
        let later = start + Duration::from_secs(1);
        assert_eq!(logged.admits("a", later), (true, 1 + 100 - (LINES as u64 - 2)));
    }
}
