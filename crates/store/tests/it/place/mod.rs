//! A place on a real file system for one test: a home, files for the members of tiers, a profile,
//! and a tier small enough that growing, destaging and evicting run all the time.
//!
//! Deliberately not here: simulated media with a trace (`crash_support`).

mod media;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use tiersmith_pmem::Mapping;
use tiersmith_store::{AttachedHome, File, Medium, Options, Profile, Stats, TierSpec, TierStats};

#[allow(unused_imports, reason = "each test binary uses its part")]
pub(crate) use media::{LENDS, Memory, ON_SECTORS, attach, times};

/// Files by name ending: `.redo`, `.d4` to `.d32` (data in blocks of so many KiB), all else passes.
static PROFILE: LazyLock<Profile> = LazyLock::new(|| {
    let rule = |pattern: &str, class: &str, block: u32| {
        format!(
            "[[rule]]\nfiles = [\"**/*.{pattern}\"]\nclass = \"{class}\"\nblock_size = \
             {block}\nwhy = \"test\"\n"
        )
    };
    let text = "description = \"the tests' own\"\n[default]\nclass = \"pass\"\nblock_size = 4096\n"
        .to_owned()
        + &rule("redo", "redo", 4096)
        + &rule("d4", "data", 4096)
        + &rule("d8", "data", 8192)
        + &rule("d16", "data", 16384)
        + &rule("d32", "data", 32768);
    Profile::parse("test", &text).unwrap()
});

/// The profile of these tests.
pub(crate) fn profile() -> Profile {
    PROFILE.clone()
}

/// Options with that profile; work in the background only when a test asks for it. So few home
/// files are held open that every test closes and opens some.
pub(crate) fn options() -> Options {
    Options {
        profile: Some(profile()),
        background: false,
        home_files_open: Some(2),
        ..Options::default()
    }
}

/// A directory of its own, gone with the value.
pub(crate) struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    /// On the file system for temporary files.
    pub(crate) fn new() -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir(place.home()).unwrap();
        place
    }

    /// In memory, where syncing costs nothing; a process that is killed cannot tell the difference.
    pub(crate) fn in_memory() -> Self {
        match tempfile::tempdir_in("/dev/shm") {
            Ok(dir) => {
                std::fs::create_dir(dir.path().join("db")).unwrap();
                Self { dir }
            }
            Err(_) => Self::new(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    /// Where the home's files are while it is attached; the test may go there from now on, whoever
    /// runs it.
    pub(crate) fn aside(&self) -> PathBuf {
        let vault = self.vault();
        if std::fs::metadata(&vault).is_ok_and(|found| found.permissions().mode() & 0o700 == 0) {
            std::fs::set_permissions(&vault, PermissionsExt::from_mode(0o700)).unwrap();
        }
        vault.join("home")
    }

    /// The locked directory that they are in.
    pub(crate) fn vault(&self) -> PathBuf {
        self.dir.path().join("db.tiersmith-home")
    }

    pub(crate) fn member(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A tier of one member, `bytes` long.
    pub(crate) fn tier(&self, bytes: u64) -> TierSpec {
        small(self.member("fast"), bytes)
    }

    /// A tier of `members`, together `bytes` long.
    pub(crate) fn striped(&self, members: usize, bytes: u64) -> TierSpec {
        let mut spec = self.tier(bytes / members as u64);
        spec.members = (0..members).map(|n| self.member(&format!("fast{n}"))).collect();
        spec
    }
}

/// A tier with few lanes, slots and batches, so that little of a small size goes into them.
pub(crate) fn small(member: PathBuf, bytes: u64) -> TierSpec {
    TierSpec {
        unit: 32 << 10,
        lanes: 4,
        batches: 2,
        slots: 32,
        ..TierSpec::new("fast", member, Medium::Emulated, bytes)
    }
}

/// Everything in an image.
pub(crate) fn image(mapping: &Mapping) -> Vec<u8> {
    let mut bytes = vec![0; mapping.len() as usize];
    mapping.read(0, &mut bytes);
    bytes
}

/// An image in memory as the only member of a tier.
pub(crate) fn loaded(bytes: &[u8]) -> Vec<Arc<Mapping>> {
    vec![Arc::new(Mapping::in_memory(bytes, 0))]
}

/// Sets a flag when it goes, so that threads that run until then end also when another one panics:
/// a scope waits for them.
pub(crate) struct Done<'a>(pub(crate) &'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The whole contents of an open file.
pub(crate) fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    let got = file.read(0, &mut bytes).unwrap();
    bytes.truncate(got);
    bytes
}

/// The contents of the file at `path`.
pub(crate) fn read(attached: &AttachedHome, path: &str) -> Vec<u8> {
    contents(&attached.open(path, tiersmith_store::OpenMode::READ).unwrap())
}

/// The same, where the medium may be damaged.
pub(crate) fn try_read(attached: &AttachedHome, path: &str) -> tiersmith_store::Result<Vec<u8>> {
    let file = attached.open(path, tiersmith_store::OpenMode::READ)?;
    let mut bytes = vec![0; file.len()? as usize];
    let got = file.read(0, &mut bytes)?;
    bytes.truncate(got);
    Ok(bytes)
}

/// `len` bytes that tell where and when they were written: each 8-byte word is a function of `tag`
/// and its place in the file.
pub(crate) fn pattern(tag: u64, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 16);
    let mut word = at / 8;
    while bytes.len() < len + 8 {
        bytes.extend_from_slice(&mix(tag ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes());
        word += 1;
    }
    bytes.drain(..(at % 8) as usize);
    bytes.truncate(len);
    bytes
}

/// Spreads the bits of `x` over the word (the finaliser of SplitMix64).
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The seed of a random test: `TIERSMITH_SEED`, else a new one; it is printed, and what is printed
/// is shown when the test fails.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("TIERSMITH_SEED").ok().and_then(|s| s.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("TIERSMITH_SEED={seed}");
    seed
}

/// Whether every byte that blocks can use is free, or held by a block or a map page. Exact only
/// when no lane holds pieces ready: just after attaching, or after somebody was refused a block.
pub(crate) fn is_accounted(stats: &Stats) -> bool {
    let held = |t: &TierStats| t.dirty_bytes + t.cached_bytes + t.map_bytes;
    stats.tiers.iter().all(|tier| tier.free_bytes + held(tier) == tier.usable_bytes)
}

/// [`is_accounted`].
pub(crate) fn assert_accounted(stats: &Stats) {
    assert!(is_accounted(stats), "free and held is not all there is: {:?}", stats.tiers);
}

/// As [`assert_accounted`] for a tier in use, where lanes may hold free pieces ready: nothing is
/// counted twice.
pub(crate) fn assert_nearly_accounted(stats: &Stats) {
    for tier in &stats.tiers {
        let held = tier.dirty_bytes + tier.cached_bytes + tier.map_bytes;
        assert!(
            tier.free_bytes + held <= tier.usable_bytes,
            "more is free and held than there is: {tier:?}"
        );
    }
}
