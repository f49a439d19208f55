//! The daemon of a mounted home: attach, mount, answer, and end so that nothing is lost.
//!
//! # How it ends
//!
//! | what | the home afterwards |
//! |---|---|
//! | SIGTERM, SIGINT, `unmount` | attached, not mounted; while files are open the mount goes on, after a signal until they are closed |
//! | `detach` | plain; while files are open the mount goes on |
//! | somebody else unmounts it | attached, not mounted |
//! | SIGKILL, a crash, a reboot | attached, and perhaps a dead mount: the next `attach` or `detach` recovers |
//!
//! **Invariants**: the command that started the daemon hears of success only when the mount is up
//! and the socket is there. A first attach that fails leaves a plain home.
//! **Deliberately absent**: what requests of commands do (`answer.rs`), what was decided
//! (`plan.rs`).

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::Mode;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tiersmith_mount::{Mounted, Reporter, Transport};
use tiersmith_store::{AttachedHome, Medium, SigbusWatch, Stats, TierSpec, attachment};

use super::answer::{self, LOOK_EVERY, Order, Shared};
use super::confine::{confine, drop_capabilities};
use super::control::{self, Listener, Reply, Request};
use super::give_back::{
    attach_patiently, clear_dead_mounts, finish_interrupted, finish_move, give_back, interrupted,
};
use super::leavings::Removed;
use super::limit;
use super::links::OutsideHome;
use super::live::{Door, Known, LiveCacheRule, LiveTable};
use super::log::{Log, say};
use super::place::Place;
use super::plan::Plan;
use super::refuse;
use super::report::{Attached, FirstWord};
use super::tier::Made;
use crate::Outcome;
use crate::attach::Attach;
use crate::error::{Error, Result};
use crate::messages::{self, Messages};

/// How often the daemon looks whether its mount is there still, and tries again to end after a
/// signal.
const TICK: Duration = Duration::from_millis(250);

/// How long a mount that is in use is tried again before it is said to be.
const BUSY: Duration = Duration::from_secs(2);

/// How often a daemon that was signalled tries to end while its mount is in use: each try looks
/// through all processes for who uses it.
const AGAIN: Duration = Duration::from_secs(2);

/// A mounted home and what belongs to it.
struct Daemon {
    place: Place,
    at: PathBuf,
    mount: tiersmith_mount::Options,
    /// Tiers whose files were made by `attach`.
    made: Vec<TierSpec>,
    /// The socket's file goes before the home's lock does, so that it is never a later daemon's.
    listener: Option<Listener>,
    shared: Arc<Shared>,
    reporter: Arc<Mutex<Reporter>>,
    orders: Receiver<Order>,
    /// None in the foreground.
    log: Option<Log>,
    /// Explains a SIGBUS in the log.
    _sigbus: Option<SigbusWatch>,
}

/// Attaches, mounts and serves until the end.
///
/// # Errors
/// Why the mount did not come up; after that, none.
pub(crate) fn serve(wish: &Attach) -> Result<Outcome> {
    // Socket, log and tier are for this user alone from their first instant.
    let _ = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    if wish.as_daemon {
        // Away from the terminal, and from its signals. It fails only for who leads a session
        // already.
        let _ = rustix::process::setsid();
    }
    limit::raise();
    drop_capabilities();
    let (orders, received) = channel();
    watch_signals(orders.clone())?;
    match begin(wish, orders, received) {
        Ok((daemon, mounted, attached)) => {
            // Every path is whole by now; a daemon keeps no file system from being unmounted.
            let _ = std::env::set_current_dir("/");
            if tell(wish, &attached) {
                daemon.run(mounted);
            } else {
                daemon.give_up(mounted, !attached.again);
            }
            Ok(Outcome::Good)
        }
        Err(e) if wish.as_daemon => {
            let line = serde_json::to_string(&FirstWord::Failed(e.to_string())).unwrap_or_default();
            // Standard output is all there is to say it with; the exit code says it besides.
            let _ = writeln!(std::io::stdout(), "{line}");
            std::process::exit(2);
        }
        Err(e) => Err(e),
    }
}

fn watch_signals(orders: Sender<Order>) -> Result<()> {
    let cannot =
        |source| Error::Io { what: "watch for signals in", path: "this process".into(), source };
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(cannot)?;
    let watch = move || {
        for signal in signals.forever() {
            // A terminal that closes ends a daemon in the foreground only by its SIGTERM.
            if signal != SIGHUP && orders.send(Order::Stop).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch).map(|_| ()).map_err(cannot)
}

/// Refuses when a daemon serves the home already.
fn refuse_served(place: &Place) -> Result<()> {
    match control::ask(place, &Request::Status)? {
        None => Ok(()),
        Some(Reply::Status { live }) => Err(Error::Usage(format!(
            "{} is attached already: mounted at {} by process {}; `tiersmith status {0}` says how \
             it is",
            place.path().display(),
            live.at.display(),
            live.pid
        ))),
        Some(_) => Err(super::unexpected(place.path())),
    }
}

/// Everything up to the mount. What fails on the way of a first attach is undone.
fn begin(
    wish: &Attach,
    orders: Sender<Order>,
    received: Receiver<Order>,
) -> Result<(Daemon, Mounted, Attached)> {
    let started = Instant::now();
    let place = Place::find(&wish.home)?;
    refuse_served(&place)?;
    let moved = finish_move(&place)?;
    let mut plan = Plan::make(wish)?;
    plan.remarks.extend(moved);
    let removed = match !plan.again && place.has_to_remove() {
        true => finish_interrupted(&place)?,
        false => Removed::default(),
    };
    if removed.was_listed {
        plan.remarks.extend(interrupted(removed));
        // The file that it removed may be the one this attach was to use; what was made goes before
        // it is made anew.
        let remarks = std::mem::take(&mut plan.remarks);
        drop(plan);
        plan = Plan { remarks, ..Plan::make(wish)? };
    }
    let home = attach_as_what_it_is(wish, &place, &mut plan).map_err(not_persistent)?;
    plan.sync_as_the_tier_does(&home);
    plan.remarks.extend(limit::remark(&home));
    let first = !plan.again;
    let sigbus = home.watch_sigbus();
    if let Err(e) = &sigbus {
        plan.remarks.push(format!("{e}; if the medium loses bytes, the log will not say which"));
    }
    let undo = home.clone();
    match mount(wish, &mut plan, home, started, orders, received) {
        Ok((daemon, mounted, attached)) => {
            if let Some(made) = plan.made.take() {
                made.keep();
            }
            Ok((Daemon { _sigbus: sigbus.ok(), ..daemon }, mounted, attached))
        }
        Err(e) if first => {
            // The home's lock goes with the last of these.
            let _locked = undo.clone();
            let undone = undo.detach();
            let made = plan.made.take();
            Err(match undone {
                Ok(()) => {
                    made.into_iter().for_each(Made::remove);
                    e
                }
                Err(worse) => {
                    // It is attached still, to this tier.
                    made.into_iter().for_each(Made::keep);
                    Error::Usage(format!(
                        "{e}. Besides, {} could not be made plain again: {worse}; `tiersmith \
                         detach {0}` does it",
                        place.path().display()
                    ))
                }
            })
        }
        Err(e) => Err(e),
    }
}

/// Attaches the tier as persistent memory where its file is, else as flash, where that survives a
/// power cut.
fn attach_as_what_it_is(wish: &Attach, place: &Place, plan: &mut Plan) -> Result<AttachedHome> {
    use tiersmith_store::Error as StoreError;
    let not_dax = match attach_patiently(place, &plan.tiers, &plan.store) {
        Err(e @ Error::Store(StoreError::Medium(tiersmith_pmem::Error::NotDax { .. }))) => e,
        Err(Error::Store(
            e @ (StoreError::Damaged { .. }
            | StoreError::NotATier { .. }
            | StoreError::Device(_)
            | StoreError::Medium(_)),
        )) if plan.tiers.iter().all(|spec| spec.medium == Medium::Ephemeral) => {
            return Err(Error::Usage(if e.is_of_memory() {
                format!("{e}; for memory that does not survive a power cut say --volatile")
            } else {
                format!(
                    "{e}. The tier has clean copies only, so nothing is lost: name another place \
                     with --fast, or remove its file if it is one"
                )
            }));
        }
        other => return other,
    };
    if !plan.take_as_a_disk(wish) {
        return Err(not_dax);
    }
    match attach_patiently(place, &plan.tiers, &plan.store) {
        Err(Error::Store(e)) if e.is_of_memory() => Err(not_dax),
        other => other,
    }
}

/// What the medium said, in the words of the command line.
fn not_persistent(e: Error) -> Error {
    use tiersmith_pmem::Error::{NotDax, NotPersistent};
    match e {
        Error::Store(tiersmith_store::Error::Medium(NotDax { .. } | NotPersistent { .. })) => {
            Error::Usage(format!(
                "{e}. On the command line that is --emulate, to try things out; with --volatile \
                 memory keeps clean copies only, with --ephemeral a disk. \
             Nothing was changed"
            ))
        }
        e => e,
    }
}

/// The home is locked from here on: nobody else clears mounts, makes the socket or writes the log.
fn mount(
    wish: &Attach,
    plan: &mut Plan,
    home: AttachedHome,
    started: Instant,
    orders: Sender<Order>,
    received: Receiver<Order>,
) -> Result<(Daemon, Mounted, Attached)> {
    let place = plan.place.clone();
    plan.decide_pages(&home)?;
    clear_dead_mounts(&place, Some(&plan.at), &mut plan.remarks)?;
    // Whoever opened a file between the first look and the move aside would write past the tier.
    refuse::in_use(place.path(), &place.aside(), false)?;
    place.check_holds(&home)?;
    let listener = Listener::bind(&place)?;
    let log = wish.as_daemon.then(|| Log::begin(&place)).transpose()?;
    let stats = home.stats();
    let fits = files_fit(&stats, &mut plan.remarks);
    plan.remarks.extend(OutsideHome::of_attached(&home, &place.aside()).lines());
    plan.remarks.extend(rules_of_no_file(&home)?);
    let cache = LiveCacheRule::of(&home);
    let mounted = mount_at(&place, home.clone(), &plan.at, &plan.mount)?;
    let door = door(&mounted, plan);
    let confined = confine(mounted.report().transport == Transport::Uring);
    let reporter = Arc::new(Mutex::new(mounted.reporter()));
    let known = Known {
        home: place.path().into(),
        at: plan.at.clone(),
        aside: place.aside(),
        started,
        door: door.clone(),
        confined,
        reporter: reporter.clone(),
        unprotected: Arc::default(),
    };
    let shared = Shared::new(home, known, orders);
    answer::serve(&listener, &shared).map_err(|source| Error::Io {
        what: "start a thread for",
        path: place.control(),
        source,
    })?;
    let attached = told(wish, plan, &stats, (fits, cache), door);
    let made = if plan.store.door.contains_key(super::plan::key::MADE) {
        plan.tiers.clone()
    } else {
        Vec::new()
    };
    let daemon = Daemon {
        at: plan.at.clone(),
        mount: plan.mount.clone(),
        made,
        listener: Some(listener),
        shared,
        reporter,
        orders: received,
        log,
        place,
        _sigbus: None,
    };
    Ok((daemon, mounted, attached))
}

/// What the command that started the daemon is told.
fn told(
    wish: &Attach,
    plan: &Plan,
    stats: &Stats,
    (fits, cache): (String, Vec<LiveCacheRule>),
    door: Door,
) -> Attached {
    let place = &plan.place;
    Attached {
        home: place.path().into(),
        at: plan.at.clone(),
        files: place.aside(),
        pid: std::process::id(),
        log: wish.as_daemon.then(|| place.log()),
        members: plan.tiers.iter().flat_map(|spec| spec.members.clone()).collect(),
        tier_bytes: stats.tiers.iter().map(|tier| tier.bytes).sum(),
        passthrough_max_bytes: stats.lending.max_bytes,
        passthrough_dir: plan
            .tiers
            .iter()
            .find_map(|spec| spec.lent_in.as_ref().map(|given| given.directory.clone())),
        emulated: stats.tiers.iter().any(|tier| tier.emulated),
        volatile: plan.tiers.iter().any(|spec| spec.medium == Medium::Volatile),
        flash: plan.tiers.iter().any(|spec| spec.medium == Medium::Flash),
        ephemeral: plan.tiers.iter().any(|spec| spec.medium == Medium::Ephemeral),
        profile: plan.profile.name().to_owned(),
        profile_why: plan.profile_why.clone(),
        home_model: stats.home_model.clone(),
        cache,
        write_budget: stats.tiers.iter().find_map(|tier| Some(tier.write_budget?.bytes_a_day)),
        again: plan.again,
        recovery: stats.recovery.to_string(),
        fits,
        remarks: plan.remarks.clone(),
        door,
    }
}

/// Says which cache rules decide of nothing: a slip, or made for files to come.
fn rules_of_no_file(home: &AttachedHome) -> Result<Vec<String>> {
    let rules = home.cache_rules_of_no_file()?;
    let said = rules.iter().map(|rule| {
        format!(
            "the cache rule `{rule}` decides of no data file that the home has now: none \
                 matches, or an earlier rule does"
        )
    });
    Ok(said.collect())
}

/// How many files fit, and a remark when the home has more than ever can at a time.
fn files_fit(stats: &Stats, remarks: &mut Vec<String>) -> String {
    let tables: Vec<LiveTable> = stats.tiers.iter().map(LiveTable::of).collect();
    let fits: Vec<String> = tables.iter().map(LiveTable::fits).collect();
    let fits = fits.join("; ");
    let Some(files) = stats.recovery.home_files else { return fits };
    let most: u64 = tables.iter().map(|table| table.slots_most).sum();
    if files > most {
        remarks.push(format!(
            "the home has {files} files for the tier, which can know {most} at a time: files that \
             nobody has open \
             give way to others, and are cold when they come back. A larger --size has room for all"
        ));
    }
    format!("{fits}; the home has {files}")
}

/// Mounts. Who is not root may mount only on what they can write to, and the note at the home's
/// path is read-only on purpose.
fn mount_at(
    place: &Place,
    home: AttachedHome,
    at: &Path,
    options: &tiersmith_mount::Options,
) -> Result<Mounted> {
    let note = at == place.path() && !rustix::process::geteuid().is_root();
    let look_only = std::fs::Permissions::from_mode(0o555);
    if note {
        let writable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(at, writable).map_err(|source| Error::Io {
            what: "prepare the mount point",
            path: at.into(),
            source,
        })?;
    }
    let mounted = tiersmith_mount::mount(home, at, options);
    if note && mounted.is_err() {
        // Best effort: the note says what it is all the same.
        let _ = std::fs::set_permissions(at, look_only);
    }
    Ok(mounted?)
}

fn door(mounted: &Mounted, plan: &Plan) -> Door {
    let report = mounted.report();
    Door {
        transport: report.transport.to_string(),
        transport_why: report.transport_because,
        passthrough: report.passthrough,
        passthrough_why: report.passthrough_because,
        lends: report.lends,
        lends_why: report.lends_because,
        threads: report.threads,
        sync_on_write: !report.fsync_reaches_server,
        sync_why: match &report.redo_at {
            Some(redo) if plan.mount.sync_on_write => {
                format!("in {} every change is durable when it returns", redo.display())
            }
            _ if !report.atomic_pages => "the kernel keeps what is written until then".into(),
            None if plan.mount.sync_on_write && report.fsync_reaches_server => {
                "the home has no directory of redo that could be a mount of its own".into()
            }
            _ => plan.sync_why.clone(),
        },
        atomic_pages: report.atomic_pages,
        pages_why: plan.pages_why.clone(),
        redo_at: report.redo_at,
        redo_gone: report.redo_gone,
        limits_why: report.limits_because,
        xattrs: report.xattrs,
        requests: report.requests.into_iter().collect(),
    }
}

/// Says that the mount is up, to whoever waits for it. `false`: the command that started this
/// daemon was interrupted meanwhile.
fn tell(wish: &Attach, attached: &Attached) -> bool {
    if wish.as_daemon {
        say(&format!(
            "process {}: attached and mounted at {}; {}",
            attached.pid,
            attached.at.display(),
            attached.recovery
        ));
        let word = FirstWord::Attached(Box::new(attached.clone()));
        let told = serde_json::to_string(&word)
            .is_ok_and(|line| writeln!(std::io::stdout(), "{line}").is_ok());
        // Whoever reads the other end waits for its end.
        if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdout(&null);
        }
        return told;
    }
    let text = if wish.json {
        serde_json::to_string_pretty(attached)
            .map(|json| messages::json(&json) + "\n")
            .unwrap_or_default()
    } else {
        messages::output(&attached.text())
    };
    // A service manager may have closed it.
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    notify_service_manager();
    true
}

/// systemd's readiness protocol: a datagram to the socket it names.
fn notify_service_manager() {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let sent = std::os::unix::net::UnixDatagram::unbound().and_then(|from| {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::ffi::OsStrExt;
        match socket.as_bytes().strip_prefix(b"@") {
            Some(name) => from.send_to_addr(
                b"READY=1",
                &std::os::unix::net::SocketAddr::from_abstract_name(name)?,
            ),
            None => from.send_to(b"READY=1", &socket),
        }
    });
    if let Err(e) = sent {
        say(&format!(
            "the service manager at {} could not be told: {e}",
            Path::new(&socket).display()
        ));
    }
}

/// How an attempt to end ended.
enum Attempt {
    Ended,
    GoesOn(Box<Mounted>, String),
    /// Not mounted, and not ended in order; the home is attached, or plain with something left
    /// beside it.
    Lost(String),
}

/// Unmounts. A process that is being started has, for an instant, what its parent has open: so a
/// mount in use is tried again for `patience`.
fn unmount_patiently(
    mounted: Mounted,
    patience: Duration,
) -> std::result::Result<AttachedHome, (Box<Mounted>, String)> {
    let began = Instant::now();
    let mut mounted = mounted;
    loop {
        match mounted.unmount() {
            Ok(home) => return Ok(home),
            Err((back, _)) if began.elapsed() < patience => mounted = back,
            Err((back, e)) => return Err((Box::new(back), e.to_string())),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Daemon {
    fn run(mut self, mounted: Mounted) {
        let mut mounted = mounted;
        let mut stopping = false;
        let (mut looked, mut tried) = (Instant::now(), Instant::now());
        loop {
            let order = self.orders.recv_timeout(TICK).ok();
            if mounted.has_ended() {
                say("somebody else has unmounted it; the home stays attached");
                return self.finish(order, Ok(()));
            }
            Messages::catch_up(false);
            if let Some(log) = &mut self.log {
                log.keep_short();
            }
            if looked.elapsed() > LOOK_EVERY {
                self.shared.look();
                if self.shared.has_unprotected_pages()
                    && let Err(e) = mounted.sync()
                {
                    say(&format!(
                        "what the kernel keeps of the mount could not be written back: {e}"
                    ));
                }
                looked = Instant::now();
            }
            let again = stopping && order.is_none();
            let attempt = match &order {
                Some(Order::Stop | Order::End { detach: false, .. }) => self.unmount(mounted, BUSY),
                Some(Order::End { detach: true, .. }) => self.detach(mounted),
                None if stopping && tried.elapsed() > AGAIN => {
                    self.unmount(mounted, Duration::ZERO)
                }
                None => continue,
            };
            tried = Instant::now();
            match attempt {
                Attempt::Ended => return self.finish(order, Ok(())),
                Attempt::Lost(why) => {
                    say(&why);
                    return self.finish(order, Err(why));
                }
                Attempt::GoesOn(back, why) => {
                    mounted = *back;
                    self.report(&mounted);
                    match order {
                        Some(Order::End { answer, .. }) => {
                            // Who asked may have gone away.
                            let _ = answer.send(Err(why));
                        }
                        _ if again => {}
                        _ => {
                            say(&format!("asked to end: {why}; it ends when that has"));
                            stopping = true;
                        }
                    }
                }
            }
        }
    }

    /// The command that started the daemon was interrupted: back to what was before it.
    fn give_up(mut self, mounted: Mounted, first: bool) {
        say("the command that started this daemon was interrupted");
        match if first { self.detach(mounted) } else { self.unmount(mounted, BUSY) } {
            Attempt::Ended => self.finish(None, Ok(())),
            // Somebody uses it by now, or home is full: then it is served as if nothing had
            // happened.
            Attempt::GoesOn(mounted, why) => {
                say(&why);
                self.report(&mounted);
                self.run(*mounted);
            }
            Attempt::Lost(why) => say(&why),
        }
    }

    /// What `status` says of the mount: after an attempt to end, the connection of the redo may be
    /// another one than before.
    fn report(&self, mounted: &Mounted) {
        *self.reporter.lock().unwrap_or_else(PoisonError::into_inner) = mounted.reporter();
    }

    fn unmount(&mut self, mounted: Mounted, patience: Duration) -> Attempt {
        match unmount_patiently(mounted, patience) {
            Ok(home) => {
                self.restore_note();
                self.listener = None;
                self.shared.put(None);
                drop(home);
                say("unmounted; the home stays attached");
                Attempt::Ended
            }
            Err((back, e)) => Attempt::GoesOn(back, e),
        }
    }

    fn detach(&mut self, mounted: Mounted) -> Attempt {
        let home = match unmount_patiently(mounted, BUSY) {
            Ok(home) => home,
            Err((back, e)) => return Attempt::GoesOn(back, e),
        };
        self.shared.close_work();
        self.restore_note();
        let again = home.clone();
        match give_back(&self.place, home, &self.made, false) {
            Ok((_, left)) => {
                left.iter().for_each(|left| say(left));
                self.listener = None;
                self.shared.put(None);
                drop(again);
                Attempt::Ended
            }
            // The store had given it back before this: there is nothing to mount any more.
            Err(e) if matches!(attachment(self.place.path()), Ok(None)) => Attempt::Lost(format!(
                "{e}. {} is detached all the same, a plain directory at its path; when that is \
                 mended, `tiersmith detach {0}` removes what is \
                 left beside it",
                self.place.path().display()
            )),
            Err(e) => match mount_at(&self.place, again, &self.at, &self.mount) {
                Ok(mounted) => {
                    self.report(&mounted);
                    self.shared.open_work();
                    Attempt::GoesOn(
                        Box::new(mounted),
                        format!("{e}. Nothing is lost; it is attached and mounted as before"),
                    )
                }
                Err(worse) => Attempt::Lost(format!(
                    "{e}; and it could not be mounted again: {worse}. Nothing is lost, and \
                     `tiersmith attach {}` goes on",
                    self.place.path().display()
                )),
            },
        }
    }

    /// The note at the home's path is for looking only.
    fn restore_note(&self) {
        if self.at == self.place.path() && !rustix::process::geteuid().is_root() {
            let _ = std::fs::set_permissions(&self.at, std::fs::Permissions::from_mode(0o555));
        }
    }

    /// The end of the process. Locks are given up before anybody is told, so that whoever waits can
    /// go on at once.
    fn finish(self, order: Option<Order>, result: std::result::Result<(), String>) {
        drop(self.listener);
        // Who has asked for the end meanwhile hears that it is ending.
        drop(self.orders);
        self.shared.put(None);
        let asked = usize::from(matches!(order, Some(Order::End { .. })));
        self.shared.wait_for_connections(asked);
        if let Some(Order::End { answer, .. }) = order {
            let _ = answer.send(result);
        }
        // The answer is on its way as long as its thread has not ended.
        self.shared.wait_for_connections(0);
    }
}
