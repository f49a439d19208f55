//! Mounting, unmounting, and dead mounts.
//!
//! Root mounts on a directory that was judged first ([`crate::point`]), who is not root through
//! fusermount3, which fuser calls; fuser agrees with the kernel on what both can. Requests are then
//! served by [`crate::session`].

use crate::answer::Door;
use crate::device::Backings;
use crate::error::Error;
use crate::fs::{Fs, Part, part_of};
use crate::options::{Options, Report, Transport};
use crate::pages::{self, Writer};
use crate::passage::Passage;
use crate::point::{Made, Point, by_descriptor};
use crate::ring::{self, Ring};
use crate::session::{self, Serving};
use crate::wire::MAX_IO;
use fuser::{
    Config, Filesystem, InitFlags, KernelConfig, MountOption, Request, Session, SessionACL,
};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tiersmith_dir::Dir;
use tiersmith_store::AttachedHome;

/// What this side can do, if the kernel can.
const WISHES: [InitFlags; 9] = [
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_DONT_MASK,
];

/// For how long an unmounted file system may take to end before somebody else must have it.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was agreed on with the kernel.
#[derive(Debug, Default, Clone, Copy)]
struct Agreed {
    passthrough: bool,
    ring: bool,
}

/// fuser's file system: it takes part in the first exchange only.
#[derive(Debug)]
struct Negotiator {
    passthrough: bool,
    write_back: bool,
    ring: bool,
    agreed: Arc<Mutex<Agreed>>,
}

impl Filesystem for Negotiator {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        for wish in WISHES {
            // What the kernel does not know it does without; nothing here depends on it.
            let _ = config.add_capabilities(wish);
        }
        let _ = config.set_max_write(MAX_IO as u32);
        let _ = config.set_max_background(64);
        if self.passthrough && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok() {
            self.agreed.lock().passthrough = config.set_max_stack_depth(1).is_ok();
        }
        if self.write_back {
            // Without it each write reaches this process at once, as with atomic pages.
            let _ = config.add_capabilities(InitFlags::FUSE_WRITEBACK_CACHE);
        }
        if self.ring && config.add_capabilities(InitFlags::FUSE_OVER_IO_URING).is_ok() {
            self.agreed.lock().ring = true;
        }
        Ok(())
    }
}

/// A mounted home. Dropping it unmounts, at once or, while something uses the mount, as soon as
/// nothing does.
#[derive(Debug)]
pub struct Mounted {
    at: PathBuf,
    home: AttachedHome,
    fs: Arc<Fs>,
    session: Option<Session<Negotiator>>,
    /// The mount that was made without fuser.
    made: Option<Made>,
    serving: Arc<Serving>,
    threads: Vec<JoinHandle<()>>,
    ring: Option<Ring>,
    /// The connection for the directory of lent redo, mounted in this one.
    redo: Option<Box<Mounted>>,
    options: Options,
    /// It is unmounted, though it may be in use by who was there before.
    gone: bool,
    report: Report,
    /// The way to the files that are beneath: there from before the mount until after it.
    passage: Option<Passage>,
}

/// Mounts an attached home at a directory: its own path, from which it was moved aside, or any
/// other that is empty. The path's last name may not be a link, and what is mounted on is the
/// directory that was judged, whoever changes the path meanwhile.
///
/// # Errors
/// [`Error`], one variant for each of: no FUSE, no such directory, not permitted, transport not to
/// be had. The home stays attached; it was given away, so keep a clone where that matters.
///
/// # Durability
/// A change made through the mount is as durable as the store makes it: see `docs/guide/mount.md`.
pub fn mount(home: AttachedHome, at: &Path, options: &Options) -> Result<Mounted, Error> {
    let at =
        std::path::absolute(at).map_err(|source| Error::MountPoint { at: at.into(), source })?;
    check(&home, &at, options)?;
    let passage = Passage::make(&home, &at)?;
    let mut mounted = mount_parts(&home, &at, options)?;
    mounted.passage = passage;
    Ok(mounted)
}

/// Mounts the home with as many connections as its options need.
fn mount_parts(home: &AttachedHome, at: &Path, options: &Options) -> Result<Mounted, Error> {
    let point = || Point::find(home, at);
    let lent = lent_directory(home, options);
    let syncs_apart = options.sync_on_write && options.sync_in_redo_only && lent.is_some();
    if options.atomic_pages && !syncs_apart {
        let connection = Connection { at, part: Part::default(), point: &point };
        return connect(home, options, &connection);
    }
    let redo = lent.filter(|directory| is_there(home, directory));
    let write_back = !options.atomic_pages;
    let part = Part { without: redo.clone(), write_back, ..Part::default() };
    let rest = Options {
        sync_on_write: false,
        passthrough: options.passthrough && !write_back,
        // Redo that comes to a home without its directory.
        lend: options.lend && !write_back && redo.is_none(),
        ..options.clone()
    };
    let mut mounted = connect(home, &rest, &Connection { at, part, point: &point })?;
    mounted.options = options.clone();
    mounted.report.redo_at = redo;
    mounted.mount_redo()?;
    Ok(mounted)
}

/// The directory of the redo that can be lent, if it may have a connection of its own: passthrough
/// and pages that the kernel writes back exclude each other on one, and so do writes that are
/// durable on return and names that wait for a sync.
fn lent_directory(home: &AttachedHome, options: &Options) -> Option<PathBuf> {
    let may = options.lend && rustix::process::geteuid().is_root();
    home.profile().lent_directory().filter(|_| may).map(Path::to_path_buf)
}

fn is_there(home: &AttachedHome, directory: &Path) -> bool {
    let top = home.directory().and_then(|top| top.try_clone_to_owned().ok());
    // A link leads out of the home, and is followed by the program that meets it.
    top.is_some_and(|top| part_of(&top, directory).is_ok())
}

/// What is mounted where.
struct Connection<'a> {
    at: &'a Path,
    part: Part,
    point: &'a dyn Fn() -> Result<Point, Error>,
}

/// Mounts a part of a home over the best transport that there is.
fn connect(
    home: &AttachedHome,
    options: &Options,
    connection: &Connection<'_>,
) -> Result<Mounted, Error> {
    let at = connection.at;
    let ring = match options.transport {
        Transport::Classic => Err("another transport was not asked for".into()),
        _ => ring::available(),
    };
    let mounted = match ring {
        Ok(()) => match mount_over(home.clone(), connection, options, Ok(())) {
            Err(Attempt::NoRing(why)) => mount_over(home.clone(), connection, options, Err(why)),
            other => other,
        },
        Err(why) => mount_over(home.clone(), connection, options, Err(why)),
    };
    let transport =
        |reason| Error::Transport { at: at.into(), transport: options.transport, reason };
    let mounted = mounted.map_err(|e| match e {
        Attempt::Failed(e) => e,
        Attempt::NoRing(reason) => transport(reason),
    })?;
    match (options.transport, &mounted.report.transport_because) {
        (Transport::Uring, Some(reason)) => Err(transport(reason.clone())),
        _ => Ok(mounted),
    }
}

/// Why one way of mounting did not work.
enum Attempt {
    Failed(Error),
    /// The kernel cannot go on with this mount; without io_uring it may.
    NoRing(String),
}

/// Mounts, with io_uring or knowing why not.
fn mount_over(
    home: AttachedHome,
    connection: &Connection<'_>,
    options: &Options,
    ring: Result<(), String>,
) -> Result<Mounted, Attempt> {
    let (at, part) = (connection.at, &connection.part);
    let io = |what| move |source| Attempt::Failed(Error::Io { what, at: at.to_path_buf(), source });
    let is_root = rustix::process::geteuid().is_root();
    let fs = Arc::new(
        Fs::new(home.clone(), options, part).map_err(io("open the home for the mount at"))?,
    );
    let stats = home.stats();
    let is_modelled = stats.home_model.is_some();
    let (wanted_pass, mut because) = passthrough_wanted(options, part, is_root, is_modelled);
    let (wanted_lent, mut lends_because) = lending_wanted(options, is_root, stats.lending.refused);
    let agreed = Arc::new(Mutex::new(Agreed::default()));
    let negotiator = Negotiator {
        passthrough: wanted_pass || wanted_lent,
        write_back: part.write_back,
        ring: ring.is_ok(),
        agreed: agreed.clone(),
    };
    let (made, session) = open_session(connection, options, negotiator, is_root)?;
    let agreed = *agreed.lock();
    if !agreed.passthrough {
        let none = || Some("the kernel does not offer it (Linux 6.9 does)".to_owned());
        because = if wanted_pass { none() } else { because };
        lends_because = if wanted_lent { none() } else { lends_because };
    }
    let device =
        session.as_fd().try_clone_to_owned().map_err(io("open the device of the mount at"))?;
    if agreed.passthrough {
        let device =
            session.as_fd().try_clone_to_owned().map_err(io("open the device of the mount at"))?;
        fs.set_passthrough(Some(Box::new(Backings { device: Arc::new(device) })));
    }
    let limits_because = if part.write_back { lift_limits(made.as_ref()).err() } else { None };
    let has_xattrs = fs.xattrs;
    let mut mounted = Mounted {
        at: at.to_path_buf(),
        home,
        fs,
        session: Some(session),
        made,
        serving: Arc::default(),
        threads: Vec::new(),
        ring: None,
        redo: None,
        options: options.clone(),
        gone: false,
        report: Report {
            transport: Transport::Classic,
            transport_because: None,
            passthrough: because.is_none(),
            passthrough_because: because,
            lends: lends_because.is_none(),
            lends_because,
            threads: options.threads.max(1),
            fsync_reaches_server: !options.sync_on_write,
            atomic_pages: !part.write_back,
            redo_at: None,
            redo_gone: false,
            limits_because,
            xattrs: has_xattrs,
            allow_other: options.allow_other,
            requests: Vec::new(),
        },
        passage: None,
    };
    let _writer = if part.write_back { Writer::begin() } else { None };
    mounted.choose_transport(ring, agreed.ring, &device)?;
    // What the ring does not carry (forgetting, interrupts) needs one reader.
    let readers = if mounted.ring.is_some() { 1 } else { options.threads.max(1) };
    mounted.threads = session::start(&mounted.fs, device.as_fd(), readers, &mounted.serving)
        .map_err(io("start the threads of the mount at"))?;
    Ok(mounted)
}

/// Mounts, and agrees with the kernel on what both can.
fn open_session(
    connection: &Connection<'_>,
    options: &Options,
    negotiator: Negotiator,
    is_root: bool,
) -> Result<(Option<Made>, Session<Negotiator>), Attempt> {
    let point = (connection.point)().map_err(Attempt::Failed)?;
    let at = connection.at;
    let refused = |e: String| Attempt::Failed(Error::Mount { at: at.to_path_buf(), reason: e });
    Ok(match point.mount(options).map_err(Attempt::Failed)? {
        Some((made, device)) => {
            let config = config(options);
            let session = Session::from_fd(negotiator, device, config.acl, config);
            (Some(made), session.map_err(|e| refused(e.to_string()))?)
        }
        // fuser would go by the path again, and root follows a link that others can put there.
        None if is_root => return Err(refused(io::Error::from(Errno::PERM).to_string())),
        None => {
            let writable = WritableFor::mounting(at);
            let session = Session::new(negotiator, at, &config(options));
            drop(writable);
            (None, session.map_err(|e| refused(e.to_string()))?)
        }
    })
}

/// Lets the kernel keep as many pages of the mount as of others, or says why it does not.
fn lift_limits(made: Option<&Made>) -> Result<(), String> {
    let made = made.ok_or_else(|| "only root may lift them".to_owned())?;
    let top = made.top().ok_or_else(|| "the directory was moved away".to_owned())?;
    pages::lift_limits(&top)
}

/// fusermount3 mounts only where the user may write, and the directory with the note for people may
/// not be written: it may for the moment of mounting.
struct WritableFor {
    dir: OwnedFd,
    mode: Mode,
}

impl WritableFor {
    fn mounting(at: &Path) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::open(at, flags, Mode::empty()).ok()?;
        let mode = Mode::from_raw_mode(rustix::fs::fstat(&dir).ok()?.st_mode & 0o7777);
        if mode.contains(Mode::WUSR) {
            return None;
        }
        rustix::fs::fchmod(&dir, mode | Mode::WUSR).ok()?;
        Some(Self { dir, mode })
    }
}

impl Drop for WritableFor {
    fn drop(&mut self) {
        // The descriptor is of the directory beneath, also when something is mounted on it.
        if let Err(e) = rustix::fs::fchmod(&self.dir, self.mode) {
            log::warn!("the directory under the mount stays writable: {e}");
        }
    }
}

fn config(options: &Options) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.fsname.replace([',', '\\'], "_")),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
    ];
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config
}

/// What can be known before the kernel is asked.
fn check(home: &AttachedHome, at: &Path, options: &Options) -> Result<(), Error> {
    if home.directory().is_none() {
        return Err(Error::NoDirectory { at: at.into() });
    }
    if !home.is_served() {
        let reason = "the home is not attached any more".into();
        return Err(Error::Mount { at: at.into(), reason });
    }
    if options.allow_other && !rustix::process::geteuid().is_root() {
        return Err(Error::OthersNeedRoot { at: at.into() });
    }
    rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map(drop)
        .map_err(|e| Error::NoFuse { at: at.into(), source: e.into() })
}

fn passthrough_wanted(
    options: &Options,
    part: &Part,
    is_root: bool,
    is_modelled: bool,
) -> (bool, Option<String>) {
    let because = if part.write_back {
        "the kernel keeps their pages and writes them back, which excludes it"
    } else if !options.passthrough {
        "not asked for"
    } else if is_modelled {
        "the home is modelled slow, and the kernel would go past the model"
    } else if options.sync_on_write {
        "every write is to be synced, which the kernel would not do"
    } else if !is_root {
        "only root may"
    } else {
        return (true, None);
    };
    (false, Some(because.into()))
}

/// `nowhere`: why the store can lend nothing.
fn lending_wanted(
    options: &Options,
    is_root: bool,
    nowhere: Option<String>,
) -> (bool, Option<String>) {
    let because = if !options.lend {
        Some("not asked for".into())
    } else if !is_root {
        Some("only root may".into())
    } else {
        nowhere
    };
    (because.is_none(), because)
}

/// Tells what a mount is without keeping it.
#[derive(Clone, Debug)]
pub struct Reporter {
    report: Report,
    fs: Weak<Fs>,
    serving: Arc<Serving>,
    /// Of the redo's directory.
    redo: Option<Box<Reporter>>,
}

impl Reporter {
    /// What the mount is now; after its end what it was at its beginning.
    #[must_use]
    pub fn report(&self) -> Report {
        let mut report =
            self.fs.upgrade().map_or_else(|| self.report.clone(), |fs| now(&self.report, &fs));
        if report.redo_at.is_none() {
            return report;
        }
        let Some(redo) = &self.redo else { return Report { redo_gone: true, ..report } };
        let of_redo = redo.report();
        report.redo_gone = redo.serving.is_over();
        report.lends = of_redo.lends;
        report.lends_because = of_redo.lends_because;
        for (kind, count) in of_redo.requests {
            match report.requests.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, sum)) => *sum += count,
                None => report.requests.push((kind, count)),
            }
        }
        report
    }
}

/// What a mount turned out to be so far.
fn now(report: &Report, fs: &Fs) -> Report {
    let mut report = report.clone();
    report.requests = fs.requests.counted();
    if let Some(refused) = &*fs.passthrough_refused.lock() {
        let because = Some(format!("the kernel refused a file: {refused}"));
        if std::mem::take(&mut report.passthrough) {
            report.passthrough_because = because;
        }
    }
    if let Some(refused) = &*fs.lending_refused.lock()
        && std::mem::take(&mut report.lends)
    {
        report.lends_because = Some(format!("the kernel refused a file: {refused}"));
    }
    report
}

impl Mounted {
    /// Takes requests by io_uring where the kernel can, else notes why not.
    fn choose_transport(
        &mut self,
        ring: Result<(), String>,
        is_offered: bool,
        device: &OwnedFd,
    ) -> Result<(), Attempt> {
        let ring = match ring {
            Ok(()) if is_offered => self.start_ring(device),
            Ok(()) => Err("the kernel did not offer it".into()),
            Err(why) => Err(why),
        };
        match ring {
            Ok(ring) => {
                self.report.transport = Transport::Uring;
                self.report.threads += ring.queues();
                self.ring = Some(ring);
            }
            Err(why) if why.starts_with("BLOCKED: ") => return Err(Attempt::NoRing(why)),
            Err(why) => self.report.transport_because = Some(why),
        }
        Ok(())
    }

    fn start_ring(&self, device: &OwnedFd) -> Result<Ring, String> {
        let options = ring::Options {
            max_write: MAX_IO as u32,
            max_pages: (MAX_IO / 4096) as u16,
            pool_threads: self.report.threads,
        };
        ring::start(device, Arc::new(Door(Arc::downgrade(&self.fs))), &options)
    }

    /// What the mount turned out to be.
    #[must_use]
    pub fn report(&self) -> Report {
        self.reporter().report()
    }

    /// The same from elsewhere, at any time until the mount ends.
    #[must_use]
    pub fn reporter(&self) -> Reporter {
        Reporter {
            report: self.report.clone(),
            fs: Arc::downgrade(&self.fs),
            serving: self.serving.clone(),
            redo: self.redo.as_ref().map(|redo| Box::new(redo.reporter())),
        }
    }

    /// Mounts the connection of the redo's directory in this one, if there is to be one.
    fn mount_redo(&mut self) -> Result<(), Error> {
        let (Some(below), Some(made)) = (self.report.redo_at.clone(), &self.made) else {
            return Ok(());
        };
        let moved = || Error::Mount { at: self.at.clone(), reason: "it was moved away".into() };
        let own = self.home.directory().ok_or_else(moved)?;
        let failed = |e: Errno| Error::MountPoint { at: self.at.join(&below), source: e.into() };
        let own = own
            .try_clone_to_owned()
            .map_err(|source| Error::MountPoint { at: self.at.clone(), source })?;
        let own = part_of(&own, &below).map_err(failed)?;
        let point = || Point::within(made.top().ok_or_else(moved)?, &self.at, &below, &own);
        let part = Part { below: below.clone(), xattrs: Some(self.fs.xattrs), ..Part::default() };
        let at = self.at.join(&below);
        let redo =
            connect(&self.home, &self.options, &Connection { at: &at, part, point: &point })?;
        self.redo = Some(Box::new(redo));
        Ok(())
    }

    /// Unmounts the redo's directory, if nobody uses what it is mounted in.
    fn unmount_redo(&mut self) -> Result<(), Error> {
        let Some(redo) = self.redo.take() else { return Ok(()) };
        // Whoever uses the rest would find the directory shut until it is mounted again.
        if let Some(who) =
            crate::users::others(&self.at).filter(|_| !self.gone && !redo.has_ended())
        {
            self.redo = Some(redo);
            return Err(Error::Busy { at: self.at.clone(), who });
        }
        redo.unmount().map(drop).map_err(|(redo, e)| {
            self.redo = Some(Box::new(redo));
            e
        })
    }

    /// Has the kernel send what it keeps of this mount's pages to the store. Not to be called by a
    /// thread that serves the mount.
    ///
    /// # Errors
    /// What the kernel says.
    ///
    /// # Durability
    /// None is promised: the kernel need not wait until the pages are written (since Linux 6.16 it
    /// does not), and sends no `fsync`.
    pub fn sync(&self) -> io::Result<()> {
        let Some(top) = self.made.as_ref().and_then(Made::top) else { return Ok(()) };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(top, ".", flags, Mode::empty())?;
        Ok(rustix::fs::syncfs(dir)?)
    }

    /// The home behind the mount.
    #[must_use]
    pub fn attached(&self) -> &AttachedHome {
        &self.home
    }

    /// Where it is mounted.
    #[must_use]
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// How many files and directories the kernel remembers.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.fs.table.lock().len()
    }

    /// Returns when the mount is gone: unmounted by [`Mounted::unmount`] or by somebody else.
    pub fn wait(&self) {
        if let Some(redo) = &self.redo {
            redo.wait();
        }
        self.serving.wait();
        if let Some(ring) = &self.ring {
            ring.wait();
        }
    }

    /// Whether the mount is gone.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.redo.as_ref().is_none_or(|redo| redo.has_ended())
            && self.serving.is_over()
            && self.ring.as_ref().is_none_or(Ring::has_ended)
    }

    /// Unmounts. The home stays attached, and is given back.
    ///
    /// # Errors
    /// [`Error::Busy`] while something uses the mount, with who does; the mount goes on, and is
    /// given back. [`Error::Elsewhere`] when it was unmounted, but another mount namespace (a
    /// container, a service) has a copy of it: that goes on, until this is called again.
    ///
    /// # Durability
    /// What was written through memory maps and not yet sent is written first.
    #[allow(clippy::result_large_err, reason = "a refusal gives the mount back, once in its life")]
    pub fn unmount(mut self) -> Result<AttachedHome, (Mounted, Error)> {
        if let Err(e) = self.unmount_redo() {
            return Err((self, e));
        }
        if !self.gone
            && !self.has_ended()
            && let Err(e) = self.unmount_now()
        {
            if let Err(worse) = self.mount_redo() {
                log::error!(
                    "what is in use stays mounted, but the directory of its redo does not: {worse}"
                );
            }
            return Err((self, e));
        }
        let first = !std::mem::replace(&mut self.gone, true);
        if !self.ends_within(if first { PATIENCE } else { PATIENCE / 10 }) {
            let error =
                Error::Elsewhere { at: self.at.clone(), who: crate::users::elsewhere(&self.at) };
            return Err((self, error));
        }
        self.finish();
        Ok(self.home.clone())
    }

    /// Waits a while for the kernel to end what was unmounted, which it does at once if nobody else
    /// has it.
    fn ends_within(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        self.serving.wait_for(limit);
        while !self.has_ended() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.has_ended()
    }

    fn unmount_now(&self) -> Result<(), Error> {
        match self.unmount_with(UnmountFlags::empty()) {
            Ok(()) => Ok(()),
            // Not mounted any more: somebody else was faster.
            Err(Errno::INVAL | Errno::NOENT) if self.has_ended() => Ok(()),
            Err(Errno::BUSY) => {
                Err(Error::Busy { at: self.at.clone(), who: crate::users::of(&self.at) })
            }
            Err(Errno::PERM) => self.fusermount(false),
            Err(e) => Err(Error::Io { what: "unmount", at: self.at.clone(), source: e.into() }),
        }
    }

    fn unmount_with(&self, flags: UnmountFlags) -> Result<(), Errno> {
        match &self.made {
            Some(made) => made.unmount(flags),
            None => rustix::mount::unmount(&self.at, flags | UnmountFlags::NOFOLLOW),
        }
    }

    fn fusermount(&self, lazy: bool) -> Result<(), Error> {
        fusermount(&self.at, lazy)
    }

    /// The kernel is gone: lets the threads end and closes every file.
    fn finish(&mut self) {
        self.wait();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                log::error!("BUG: a thread of the mount at {} had panicked", self.at.display());
            }
        }
        self.fs.end();
        // Both see that nothing is mounted, and leave the path alone.
        self.made.take();
        self.session.take();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Mounted in this one, so it goes first.
        drop(self.redo.take());
        if self.session.is_none() {
            return;
        }
        if self.has_ended() || (!self.gone && self.unmount_now().is_ok()) {
            self.gone = true;
            if self.ends_within(PATIENCE) {
                self.finish();
                return;
            }
        }
        log::warn!(
            "{} is still in use: it is unmounted as soon as nothing uses it",
            self.at.display()
        );
        if !self.gone
            && let Err(Errno::PERM) = self.unmount_with(UnmountFlags::DETACH)
        {
            let _ = self.fusermount(true);
        }
        // The threads go on for those who still use it. What is held must not unmount what another
        // may have mounted here since.
        std::mem::forget(self.made.take());
        std::mem::forget(self.session.take());
    }
}

fn fusermount(at: &Path, lazy: bool) -> Result<(), Error> {
    let failed =
        |source| Error::Io { what: "run fusermount3 to unmount", at: at.to_path_buf(), source };
    let mut command = Command::new("fusermount3");
    command.arg("-u");
    if lazy {
        command.arg("-z");
    }
    let done = command.arg("--").arg(at).stdin(Stdio::null()).output().map_err(failed)?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    if said.contains("busy") {
        return Err(Error::Busy { at: at.to_path_buf(), who: crate::users::of(at) });
    }
    Err(failed(std::io::Error::other(said)))
}

/// Whether a mount is at `at` whose daemon is gone. Asks the daemon if there is one: not to be
/// called by a thread that serves the mount.
#[must_use]
pub fn is_dead(at: &Path) -> bool {
    // The kernel may remember the directory's attributes, so a call that always goes to the daemon
    // is needed.
    says_dead(rustix::fs::statfs(at))
}

/// Takes a dead mount away. Who still has files of it open gets errors, as before.
///
/// # Errors
/// [`Error::NotDead`] when a process serves it; [`Error::Io`] when the system refuses.
pub fn clear_dead(at: &Path) -> Result<(), Error> {
    let left = || Error::NotDead { at: at.to_path_buf() };
    let failed = |source: Errno| Error::Io {
        what: "take away the dead mount",
        at: at.to_path_buf(),
        source: source.into(),
    };
    // What is judged dead is what is unmounted, whatever the path leads to by then; and root goes
    // by no link of somebody else.
    let handle = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let holding =
        |source| Error::Io { what: "take away the dead mount", at: at.to_path_buf(), source };
    let (above, name) = Dir::holding(at).map_err(holding)?;
    let top = rustix::fs::openat(&above, name, handle, Mode::empty()).map_err(|_| left())?;
    if !says_dead(rustix::fs::fstatfs(&top)) {
        return Err(left());
    }
    match rustix::mount::unmount(by_descriptor(&top), UnmountFlags::DETACH) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => fusermount(at, true),
        Err(e) => Err(failed(e)),
    }
}

// While the daemon goes, a call that was under way is cancelled; a moment later calls are refused.
fn says_dead<T>(answer: Result<T, Errno>) -> bool {
    matches!(answer, Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED))
}
