//! A place for one test of the mount: a home, a small emulated tier, a profile with all classes,
//! and the mount, all gone with the value.
//!
//! Without atomic pages, the directory `wal` has a connection of its own, if there is one. The
//! files `*.redo` are of class redo, `*.seg` too and may be lent, `*.d8` of class data in blocks of
//! 8 KiB, `*.d4` in blocks of 4 KiB; all else passes.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tiersmith_mount::{Mounted, Options, mount};
use tiersmith_store::{AttachedHome, Medium, Profile, TierSpec, attach};

/// The profile of these tests.
pub(crate) fn profile() -> Profile {
    let rule = |pattern: &str, class: &str, block: u32| {
        format!(
            "[[rule]]\nfiles = [\"**/*.{pattern}\"]\nclass = \"{class}\"\nblock_size = \
             {block}\nwhy = \"test\"\n"
        )
    };
    let text = "description = \"the tests' own\"\n[default]\nclass = \"pass\"\nblock_size = 4096\n"
        .to_owned()
        + &rule("redo", "redo", 4096)
        + &rule("seg", "redo", 4096)
            .replace("\"]", "\", \"wal/*.seg\"]")
            .replace("why =", "lend = true\nwhy =")
        + &rule("d4", "data", 4096)
        + &rule("d8", "data", 8192);
    Profile::parse("test", &text).unwrap()
}

/// Why there can be no mount here; a test then says so and returns.
pub(crate) fn no_mount() -> Option<String> {
    if let Err(e) = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        return Some(format!("/dev/fuse cannot be opened ({e})"));
    }
    if rustix::process::geteuid().is_root() {
        return None;
    }
    let program = std::process::Command::new("fusermount3")
        .arg("-V")
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .status();
    program.err().map(|e| format!("who is not root needs fusermount3 ({e})"))
}

/// Says that a test is skipped, and whether it is.
pub(crate) fn skipped(what: &str) -> bool {
    let why = no_mount();
    if let Some(why) = &why {
        eprintln!("skipped: {what}, because {why}");
    }
    why.is_some()
}

/// As [`skipped`], for what only root can do.
pub(crate) fn skipped_unless_root(what: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: {what}, because it needs root");
        return true;
    }
    skipped(what)
}

/// Waits until `ready`, two minutes at most.
pub(crate) fn until(what: &str, mut ready: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(120);
    while !ready() {
        assert!(Instant::now() < limit, "waited two minutes for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A home, a tier, and the mount over the home's own path.
pub(crate) struct Place {
    mounted: Option<Mounted>,
    /// What the mount was asked for.
    pub(crate) options: Options,
    /// Size of the tier in bytes.
    pub(crate) tier_bytes: u64,
    /// Slots of a new tier's file table.
    pub(crate) slots: u64,
    dir: tempfile::TempDir,
}

impl Place {
    /// Attached and mounted, with a tier of so many MiB.
    pub(crate) fn new(tier_mib: u64) -> Self {
        Self::with(tier_mib, Options::default())
    }

    /// As [`Place::new`], with options.
    pub(crate) fn with(tier_mib: u64, options: Options) -> Self {
        let mut place = Self::plain(tier_mib, options);
        place.mount();
        place
    }

    /// A plain directory, nothing attached.
    pub(crate) fn plain(tier_mib: u64, options: Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let place = Self { mounted: None, options, tier_bytes: tier_mib << 20, slots: 512, dir };
        fs::create_dir(place.home()).unwrap();
        place
    }

    /// Where programs find the home.
    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    /// Where its files are while it is attached; the test may go there from now on, whoever runs
    /// it.
    pub(crate) fn aside(&self) -> PathBuf {
        let vault = self.dir.path().join("db.tiersmith-home");
        if fs::metadata(&vault).is_ok_and(|found| found.permissions().mode() & 0o700 == 0) {
            fs::set_permissions(&vault, Permissions::from_mode(0o700)).unwrap();
        }
        vault.join("home")
    }

    /// The directory of the test.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A file below the home.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.home().join(name)
    }

    /// The home, attached but not mounted.
    pub(crate) fn attach(&self) -> AttachedHome {
        let mut spec =
            TierSpec::new("fast", self.dir.path().join("fast"), Medium::Emulated, self.tier_bytes);
        spec.unit = 256 << 10;
        spec.lanes = 8;
        spec.slots = self.slots;
        let options = tiersmith_store::Options {
            profile: Some(profile()),
            redo_keep_bytes: self.tier_bytes / 4,
            ..Default::default()
        };
        attach(&self.home(), &[spec], options).unwrap()
    }

    /// Attaches and mounts.
    pub(crate) fn mount(&mut self) {
        assert!(self.mounted.is_none());
        self.mounted = Some(mount(self.attach(), &self.home(), &self.options).unwrap());
    }

    /// The mount.
    pub(crate) fn mounted(&self) -> &Mounted {
        self.mounted.as_ref().unwrap()
    }

    /// Takes the mount away from here, and puts it back.
    pub(crate) fn take(&mut self) -> Mounted {
        self.mounted.take().unwrap()
    }

    pub(crate) fn put(&mut self, mounted: Mounted) {
        self.mounted = Some(mounted);
    }

    /// Unmounts, waiting for those who are about to close their files. The home stays attached.
    pub(crate) fn unmount(&mut self) -> AttachedHome {
        let limit = Instant::now() + Duration::from_secs(120);
        let mut mounted = self.mounted.take().unwrap();
        loop {
            match mounted.unmount() {
                Ok(home) => return home,
                Err((still, e)) => {
                    mounted = still;
                    assert!(Instant::now() < limit, "{e}");
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
    }

    /// Unmounts, lets the tier go, attaches and mounts again.
    pub(crate) fn remount(&mut self) {
        drop(self.unmount());
        self.mount();
    }

    /// Unmounts and detaches: a plain directory is left.
    pub(crate) fn detach(&mut self) {
        self.unmount().detach().unwrap();
    }
}
