//! The attacker: a thread with the rights of an unprivileged account, which exchanges names while
//! root works. Credentials belong to threads, so the kernel judges it as it judges that account.
//!
//! What it does is drawn from a seed before root's command begins: which names, and what is put
//! there. When it does it follows the command: after a number of its steps that can be seen from
//! outside (inotify), or as fast as the kernel lets it.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags};
use rustix::fs::{CWD, RenameFlags};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::races::names::{self, Kind};

/// The attacker's account, and another unprivileged one.
pub(crate) const ATTACKER: u32 = 54321;
pub(crate) const STRANGER: u32 = 54322;

/// This thread is that account for the rest of its life.
pub(crate) fn become_user(id: u32) {
    let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
    set_thread_groups(&[group]).unwrap();
    set_thread_res_gid(group, group, group).unwrap();
    set_thread_res_uid(user, user, user).unwrap();
}

/// What is to be done at which names.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Put at every one of these names where nothing is before the command begins.
    pub(crate) free: Option<(Kind, Vec<&'static str>)>,
    /// Put there before the command begins, and left.
    pub(crate) planted: Vec<(&'static str, Kind)>,
    /// Exchanged while it runs.
    pub(crate) swapped: Vec<(&'static str, Kind)>,
    /// Only after steps of the command, there and soon back; else as fast as can be, too.
    pub(crate) by_steps: bool,
    /// Once, as soon as the command does something with this name that can be seen.
    pub(crate) at: Option<&'static str>,
    /// Seed of the moments.
    pub(crate) seed: u64,
}

impl Plan {
    /// Draws one for a command that looks at `names`.
    pub(crate) fn draw(seed: u64, names: &[&'static str], second_names: bool, loot: bool) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let any = |random: &mut fastrand::Rng| names[random.usize(..names.len())];
        let one =
            |random: &mut fastrand::Rng| (any(random), names::draw(random, names, second_names));
        let free = (random.u8(0..3) == 0)
            .then(|| (names::draw(&mut random, names, second_names), names.to_vec()));
        let mut planted = Vec::new();
        while random.bool() {
            planted.push(one(&mut random));
        }
        let mut swapped = Vec::new();
        // Of a directory that leads elsewhere for a moment, and of nothing else, most is to be had.
        let alone = match random.u8(0..8) {
            0..=2 => Some(("work", Kind::RootsTwin)),
            3 => Some(("work", Kind::StrangersTwin)),
            4 => Some(("fast", Kind::RootsTwin)),
            _ => None,
        };
        let by_steps = random.u8(0..3) == 0;
        let beside: Vec<&str> =
            names.iter().filter_map(|name| name.strip_prefix("work/")).collect();
        let at = (by_steps && random.u8(0..3) > 0).then(|| beside[random.usize(..beside.len())]);
        let at = at.filter(|name| !name.contains('/'));
        if let Some(alone) = alone {
            swapped.push(alone);
            if random.bool() {
                let (free, planted) = (None, Vec::new());
                return Self { free, planted, swapped, by_steps, at, seed };
            }
        }
        if loot && random.u8(0..4) > 0 {
            swapped = vec![("work/db.tiersmith-detach", Kind::Loot)];
        }
        while swapped.is_empty() || random.u8(0..3) > 0 {
            swapped.push(one(&mut random));
        }
        Self { free, planted, swapped, by_steps, at, seed }
    }
}

/// A name and what it is exchanged with.
struct Swap {
    name: PathBuf,
    other: PathBuf,
}

impl Swap {
    /// Exchanges them; where one of them is missing, moves the other.
    fn toggle(&self) -> bool {
        let rename = |from: &Path, to: &Path, flags| {
            rustix::fs::renameat_with(CWD, from, CWD, to, flags).is_ok()
        };
        rename(&self.name, &self.other, RenameFlags::EXCHANGE)
            || rename(&self.other, &self.name, RenameFlags::NOREPLACE)
            || rename(&self.name, &self.other, RenameFlags::NOREPLACE)
    }
}

/// The attacker at work.
pub(crate) struct Attacker {
    stop: Arc<AtomicBool>,
    swaps: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Attacker {
    /// Starts it, and waits until what is to be planted is in place.
    pub(crate) fn begin(stage: &Path, plan: &Plan) -> Self {
        let (stop, swaps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ready, begun) = channel();
        let thread = {
            let (stage, plan) = (stage.to_path_buf(), plan.clone());
            let (stop, swaps) = (stop.clone(), swaps.clone());
            std::thread::spawn(move || {
                become_user(ATTACKER);
                let work = Work { stage, stop, swaps, random: fastrand::Rng::with_seed(plan.seed) };
                work.all(&plan, || ready.send(()).unwrap());
            })
        };
        begun.recv().unwrap();
        Self { stop, swaps, thread }
    }

    /// Ends it; how many exchanges there were.
    pub(crate) fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.swaps.load(Ordering::Relaxed)
    }
}

struct Work {
    stage: PathBuf,
    stop: Arc<AtomicBool>,
    swaps: Arc<AtomicU64>,
    random: fastrand::Rng,
}

impl Work {
    fn all(mut self, plan: &Plan, ready: impl FnOnce()) {
        let planted: Vec<Swap> =
            (0..).zip(&plan.planted).filter_map(|(n, at)| self.prepare(n, at)).collect();
        let swapped: Vec<Swap> =
            (1000..).zip(&plan.swapped).filter_map(|(n, at)| self.prepare(n, at)).collect();
        if let Some((kind, names)) = &plan.free {
            for (number, name) in (2000..).zip(names) {
                if self.stage.join("user").join(name).symlink_metadata().is_err()
                    && let Some(swap) = self.prepare(number, &(*name, *kind))
                {
                    self.toggle(&swap);
                }
            }
        }
        for swap in &planted {
            self.toggle(swap);
        }
        for swap in &swapped {
            if !plan.by_steps && self.random.bool() {
                self.toggle(swap);
            }
        }
        let steps = self.watch();
        ready();
        if let Some(name) = plan.at {
            self.wait_for(&steps, |seen, time| seen == Some(name) || time > Duration::from_secs(5));
            for swap in &swapped {
                self.toggle(swap);
            }
            Self::spin(Duration::from_micros(self.random.u64(..10_000)));
            for swap in &swapped {
                self.toggle(swap);
            }
            return;
        }
        while !self.stopped() && !swapped.is_empty() {
            let swap = &swapped[self.random.usize(..swapped.len())];
            match if plan.by_steps { 0 } else { self.random.u8(0..8) } {
                // After some of the command's steps, until after some more.
                0 => {
                    for most in [40, 8] {
                        let mut left = self.random.u32(..most);
                        // Not for long: a command also takes steps that are not seen.
                        self.wait_for(&steps, |seen, time| {
                            left = left.saturating_sub(u32::from(seen.is_some()));
                            left == 0 || time > Duration::from_millis(4)
                        });
                        self.toggle(swap);
                    }
                }
                // There and back for as long as a step of the command takes.
                1 => {
                    self.toggle(swap);
                    Self::spin(Duration::from_micros(self.random.u64(..400)));
                    self.toggle(swap);
                }
                _ => {
                    for _ in 0..self.random.u32(1..5000) {
                        self.toggle(swap);
                    }
                }
            }
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn toggle(&self, swap: &Swap) {
        if swap.toggle() {
            self.swaps.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn spin(time: Duration) {
        let began = Instant::now();
        while began.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    /// What is done in the directories, as far as an unprivileged account is told.
    fn watch(&self) -> OwnedFd {
        let steps =
            rustix::fs::inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        for name in ["user", "user/work", "user/work/db", "user/work/app.db-tiersmith", "user/fast"]
        {
            let what = WatchFlags::OPEN
                | WatchFlags::CREATE
                | WatchFlags::CLOSE_WRITE
                | WatchFlags::CLOSE_NOWRITE
                | WatchFlags::MOVE
                | WatchFlags::DELETE;
            // Of those that are there and can be looked into.
            let _ = rustix::fs::inotify::add_watch(&steps, self.stage.join(name), what);
        }
        steps
    }

    /// Waits until `enough` of the name of a step, or of none, and of the time since it began.
    fn wait_for(&self, steps: &OwnedFd, mut enough: impl FnMut(Option<&str>, Duration) -> bool) {
        let mut space = [std::mem::MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(steps, &mut space);
        let began = Instant::now();
        while !self.stopped() {
            let step = reader.next().ok();
            let name = step.as_ref().map(|step| {
                step.file_name().and_then(|name| name.to_str().ok()).unwrap_or_default()
            });
            if enough(name, began.elapsed()) {
                return;
            }
            if name.is_none() {
                std::hint::spin_loop();
            }
        }
    }

    /// Makes what is to be put at a name, beside the others in a directory of their own.
    fn prepare(&self, number: u32, (name, kind): &(&str, Kind)) -> Option<Swap> {
        let user = self.stage.join("user");
        let at = user.join(name);
        let mut other = user.join("decoys").join(number.to_string());
        if let Some(target) = names::target(*kind, name, &self.stage) {
            symlink(target, &other).ok()?;
        }
        match kind {
            Kind::Pipe => {
                let mode = rustix::fs::Mode::from_raw_mode(0o666);
                rustix::fs::mknodat(CWD, &other, rustix::fs::FileType::Fifo, mode, 0).ok()?;
            }
            // The name stays when nobody listens any more.
            Kind::Socket => drop(UnixListener::bind(&other).ok()?),
            Kind::Directory => fs::create_dir(&other).ok()?,
            Kind::Junk => fs::write(&other, [b'x'; 5000]).ok()?,
            Kind::RootsSecondName => fs::hard_link(self.stage.join("roots/secret"), &other).ok()?,
            Kind::RootsHere => other = user.join("decoys/note"),
            Kind::Loot => other = user.join("decoys/loot"),
            Kind::Other(second) => other = user.join(second),
            _ => {}
        }
        Some(Swap { name: at, other })
    }
}

/// Takes `name` away as soon as it appears while `work` is done, and keeps it. Whether it appeared.
pub(crate) fn steal(stage: &Path, name: &'static str, work: impl FnOnce()) -> bool {
    let (at, loot) = (stage.join("user").join(name), stage.join("user/decoys/loot"));
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, to) = (stop.clone(), loot.clone());
    let thief = std::thread::spawn(move || {
        become_user(ATTACKER);
        while !stopped.load(Ordering::Relaxed) && fs::rename(&at, &to).is_err() {
            std::hint::spin_loop();
        }
    });
    work();
    stop.store(true, Ordering::Relaxed);
    thief.join().unwrap();
    loot.symlink_metadata().is_ok()
}

/// Whether the kernel lets the attacker make a second name of root's file.
pub(crate) fn may_link(secret: &Path, to: &Path) -> bool {
    let (secret, to) = (secret.to_path_buf(), to.to_path_buf());
    let linked = std::thread::spawn(move || {
        become_user(ATTACKER);
        fs::hard_link(secret, &to).and_then(|()| fs::remove_file(to)).is_ok()
    });
    linked.join().unwrap()
}
