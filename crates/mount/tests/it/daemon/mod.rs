//! A mount in a process of its own, which a test can kill: the test's own program, started again to
//! run one test that serves.

use crate::place::until;
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use tiersmith_mount::{Options, clear_dead, is_dead, mount};
use tiersmith_store::{Medium, TierSpec, attach};

/// The directory, in the environment of the process that serves.
const PLACE: &str = "TIERSMITH_TEST_DAEMON";

/// Given: without atomic pages.
pub(crate) const WRITE_BACK: &str = "TIERSMITH_TEST_WRITE_BACK";

/// Given: only redo is durable on return, if anything is.
pub(crate) const SYNC_IN_REDO: &str = "TIERSMITH_TEST_SYNC_IN_REDO";

/// How many files that process may open; not given: as many as this one.
pub(crate) const FILES: &str = "TIERSMITH_TEST_FILES";

/// A process that serves a mount at `place/db`.
pub(crate) struct Daemon {
    child: Child,
    at: PathBuf,
    /// What it says, so that it can.
    _lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl Daemon {
    /// Starts it and waits until the mount is there.
    pub(crate) fn start(place: &Path, tier_bytes: u64, sync_on_write: bool) -> Self {
        Self::start_with(place, tier_bytes, sync_on_write, &[])
    }

    /// The same, with more in the environment of the process.
    pub(crate) fn start_with(
        place: &Path,
        tier_bytes: u64,
        sync_on_write: bool,
        environment: &[(&str, &str)],
    ) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .envs(environment.iter().copied())
            .args([
                full_name!("the_process_that_serves").as_str(),
                "--exact",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(PLACE, place)
            .env("TIERSMITH_TEST_TIER", tier_bytes.to_string())
            .env("TIERSMITH_TEST_SYNC", if sync_on_write { "1" } else { "0" })
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut daemon = Self { child, at: place.join("db"), _lines: None };
        let ready = lines.any(|line| line.unwrap().ends_with("mounted and ready"));
        assert!(ready, "the process that serves ended before it was ready; its errors are above");
        daemon._lines = Some(lines);
        daemon
    }

    /// SIGKILL, and waits until the process is gone. The mount is dead then.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Takes the dead mount away.
    pub(crate) fn clear(&self) {
        until("the mount to be dead", || is_dead(&self.at));
        clear_dead(&self.at).unwrap();
    }

    /// The process's number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        while is_dead(&self.at) {
            if clear_dead(&self.at).is_err() {
                break;
            }
        }
    }
}

/// Not a test: serves until it is killed, when this process was started for that.
#[test]
fn the_process_that_serves() {
    let Some(place) = std::env::var_os(PLACE) else { return };
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let number = |name| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let place = PathBuf::from(place);
    if let Some(files) = std::env::var(FILES).ok().and_then(|n| n.parse().ok()) {
        let few = rustix::process::Rlimit { current: Some(files), maximum: Some(files) };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
    }
    let tier_bytes = number("TIERSMITH_TEST_TIER");
    let mut spec = TierSpec::new("fast", place.join("fast"), Medium::Emulated, tier_bytes);
    spec.unit = 256 << 10;
    spec.lanes = 8;
    spec.slots = 512;
    let options = tiersmith_store::Options {
        profile: Some(crate::place::profile()),
        redo_keep_bytes: tier_bytes / 4,
        ..Default::default()
    };
    let home = attach(&place.join("db"), &[spec], options).unwrap();
    let options = Options {
        sync_on_write: number("TIERSMITH_TEST_SYNC") == 1,
        sync_in_redo_only: std::env::var_os(SYNC_IN_REDO).is_some(),
        atomic_pages: std::env::var_os(WRITE_BACK).is_none(),
        ..Options::default()
    };
    let mounted = mount(home, &place.join("db"), &options).unwrap();
    println!("mounted and ready");
    mounted.wait();
    drop(mounted.unmount().map_err(|(_, e)| e).unwrap());
}

/// A home whose mount is served by another process. A process that maps files of its own mount into
/// memory waits for itself: the kernel holds the process's address space while it writes pages
/// back, and the threads that serve need it.
pub(crate) struct Apart {
    daemon: Option<Daemon>,
    sync_on_write: bool,
    place: crate::place::Place,
}

impl Apart {
    /// Attached and mounted, with a tier of so many MiB.
    pub(crate) fn new(tier_mib: u64, sync_on_write: bool) -> Self {
        let place = crate::place::Place::plain(tier_mib, Options::default());
        let mut apart = Self { daemon: None, sync_on_write, place };
        apart.mount();
        apart
    }

    fn mount(&mut self) {
        let (path, bytes) = (self.place.path(), self.place.tier_bytes);
        self.daemon = Some(Daemon::start(path, bytes, self.sync_on_write));
    }

    /// Unmounts, waiting for those who are about to close their files. The home stays attached.
    fn unmount(&mut self) {
        let home = self.place.home();
        until("the mount to be free", || {
            match rustix::mount::unmount(&home, rustix::mount::UnmountFlags::empty()) {
                Ok(()) => true,
                Err(rustix::io::Errno::PERM) => Command::new("fusermount3")
                    .arg("-u")
                    .arg(&home)
                    .stdin(Stdio::null())
                    .stderr(Stdio::null())
                    .status()
                    .unwrap()
                    .success(),
                Err(_) => false,
            }
        });
        let mut daemon = self.daemon.take().unwrap();
        assert!(daemon.child.wait().unwrap().success());
    }

    pub(crate) fn remount(&mut self) {
        self.unmount();
        self.mount();
    }

    /// Unmounts and detaches: a plain directory is left.
    pub(crate) fn detach(&mut self) {
        self.unmount();
        self.place.attach().detach().unwrap();
    }
}

impl std::ops::Deref for Apart {
    type Target = crate::place::Place;

    fn deref(&self) -> &Self::Target {
        &self.place
    }
}
