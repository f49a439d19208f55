//! Where the demonstration puts its home and its tier, and how it takes them away again.
//!
//! Invariants: every path it makes is noted before it is made, and goes when the program ends or is
//! interrupted (SIGINT, SIGTERM, SIGHUP); a file that was there before is never removed, and one
//! that holds something is refused by the store.
//!
//! Deliberately absent: measuring what storage there is; that will be `tiersmith probe`.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tiersmith_store::{AttachedHome, Medium, Options, Profile, TierSpec, attach};

use crate::{Arguments, Result};

/// The files of the load, named as PostgreSQL names its own, so that the profile `postgres` classes
/// them.
pub(crate) const DATA: &str = "base/1/16384";
pub(crate) const REDO: &str = "pg_wal/000000010000000000000001";
/// Bytes of a data block, and of a redo record.
pub(crate) const BLOCK: usize = 8192;
pub(crate) const RECORD: usize = 512;

/// How much is written where.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sizes {
    pub(crate) tier: u64,
    pub(crate) data: u64,
    pub(crate) redo: u64,
    lanes: u32,
}

/// The tier holds all that is written, with half of it to spare, so that nothing has to go home
/// while it is measured.
const USUAL: Sizes = Sizes { tier: 256 << 20, data: 96 << 20, redo: 16 << 20, lanes: 64 };
const SMALL: Sizes = Sizes { tier: 48 << 20, data: 12 << 20, redo: 4 << 20, lanes: 16 };

/// All places of one demonstration.
pub(crate) struct Place {
    pub(crate) home: PathBuf,
    pub(crate) plain: PathBuf,
    pub(crate) home_is_on: String,
    pub(crate) tier: Tier,
    pub(crate) tier_is_on: String,
    pub(crate) sizes: Sizes,
    /// What a reader of the figures must know.
    pub(crate) warnings: Vec<String>,
    leftovers: Leftovers,
}

/// The tier's member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Tier {
    pub(crate) member: PathBuf,
    pub(crate) emulated: bool,
}

/// What has to go when the program ends.
#[derive(Clone, Default)]
struct Leftovers {
    paths: Arc<Mutex<Vec<PathBuf>>>,
    writer: Arc<Mutex<Option<Child>>>,
}

impl Leftovers {
    fn note(&self, path: &Path) {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_path_buf());
    }

    /// Kills the writer, if one is running, and waits until it is gone.
    fn kill_writer(&self) -> std::io::Result<()> {
        if let Some(mut child) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    fn clean(&self) {
        if let Err(e) = self.kill_writer() {
            eprintln!("the writer cannot be killed: {e}");
        }
        for path in self.paths.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // Another thread may be making files in it still.
            for _ in 0..50 {
                let gone =
                    if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
                if gone.is_ok() || !path.exists() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }

    /// Cleans up when the program is interrupted.
    fn clean_on_signals(&self) -> Result<()> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let leftovers = self.clone();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            if let Some(signal) = signals.forever().next() {
                leftovers.clean();
                std::process::exit(128 + signal);
            }
        })?;
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leftovers.clean();
    }
}

/// Decides where everything goes, and makes the directories.
pub(crate) fn choose(arguments: &Arguments) -> Result<Place> {
    let leftovers = Leftovers::default();
    leftovers.clean_on_signals()?;
    let mut warnings = Vec::new();
    let parent = match &arguments.home {
        Some(dir) if dir.is_dir() => fs::canonicalize(dir)?,
        Some(dir) => {
            return Err(
                format!("--home {} is not a directory; make it first", dir.display()).into()
            );
        }
        None => slow_place(),
    };
    let name = format!("tiersmith-demonstration.{}", std::process::id());
    let work = parent.join(&name);
    let (home_kind, home_is_on) = file_system(&parent);
    if matches!(home_kind.as_str(), "tmpfs" | "ramfs") {
        warnings.push(format!(
            "the home is in memory ({home_kind}): nothing here is compared with a disk; give --home"
        ));
    }
    let (tier, sizes, ours) = fast_place(arguments, &parent, &name, &mut warnings)?;
    let needed = 3 * (sizes.data + sizes.redo);
    if available(&parent) < needed {
        return Err(format!(
            "{} has less than {} MiB free; give --home",
            parent.display(),
            needed >> 20
        )
        .into());
    }
    leftovers.note(&work);
    fs::create_dir(&work)
        .map_err(|e| format!("cannot make {}: {e}; give --home", work.display()))?;
    if ours {
        leftovers.note(&tier.member);
    }
    let (_, tier_is_on) = file_system(tier.member.parent().unwrap_or(&tier.member));
    Ok(Place {
        home: work.join("db"),
        plain: work.join("plain"),
        home_is_on,
        tier,
        tier_is_on,
        sizes,
        warnings,
        leftovers,
    })
}

impl Place {
    /// The two files of the load, full length and synced: a database's files do not grow in the
    /// middle of a load either.
    pub(crate) fn make_files(&self, at: &Path) -> Result<()> {
        for (name, bytes) in [(DATA, self.sizes.data), (REDO, self.sizes.redo)] {
            let path = at.join(name);
            let dir = path.parent().unwrap_or(at);
            fs::create_dir_all(dir)?;
            let mut file = File::create(&path)?;
            let chunk = vec![0; 1 << 20];
            for _ in 0..bytes >> 20 {
                file.write_all(&chunk)
                    .map_err(|e| format!("cannot write {}: {e}", path.display()))?;
            }
            file.sync_all()?;
        }
        Ok(())
    }

    /// Takes charge of a writer, so that it does not outlive the program.
    pub(crate) fn keep_writer(&self, child: Child) {
        *self.leftovers.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
    }

    /// Sends the writer SIGKILL and waits until it is gone.
    pub(crate) fn kill_writer(&self) -> Result<()> {
        Ok(self.leftovers.kill_writer()?)
    }

    /// Attaches the tier to the home.
    pub(crate) fn attach(&self) -> Result<AttachedHome> {
        attach_tier(&self.home, &self.tier, &self.sizes)
    }
}

/// Attaches a tier to a home; the killed writer does so too.
pub(crate) fn attach_tier(home: &Path, tier: &Tier, sizes: &Sizes) -> Result<AttachedHome> {
    let medium = if tier.emulated { Medium::Emulated } else { Medium::Persistent };
    let mut spec = TierSpec::new("fast", &tier.member, medium, sizes.tier);
    spec.lanes = sizes.lanes;
    let options = Options { profile: Some(Profile::named("postgres")?), ..Options::default() };
    Ok(attach(home, &[spec], options)?)
}

/// The build directory, when it is on a disk; else a place for large temporary files.
fn slow_place() -> PathBuf {
    let build =
        std::env::current_exe().ok().and_then(|exe| exe.ancestors().nth(3).map(Path::to_path_buf));
    let candidates = build.into_iter().chain([PathBuf::from("/var/tmp"), std::env::temp_dir()]);
    let usable: Vec<PathBuf> = candidates
        .filter(|dir| rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok())
        .filter_map(|dir| fs::canonicalize(dir).ok())
        .collect();
    let on_disk =
        usable.iter().find(|dir| !matches!(file_system(dir).0.as_str(), "tmpfs" | "ramfs"));
    on_disk.or(usable.first()).cloned().unwrap_or_else(std::env::temp_dir)
}

/// The member of the tier, how large everything is, and whether the member is made here.
fn fast_place(
    arguments: &Arguments,
    home_parent: &Path,
    name: &str,
    warnings: &mut Vec<String>,
) -> Result<(Tier, Sizes, bool)> {
    let file = format!("{name}.tier");
    if let Some(fast) = &arguments.fast {
        if fast.is_dir() {
            let dir = fs::canonicalize(fast)?;
            let sizes = fitting(&dir).ok_or_else(|| too_small(&dir))?;
            return Ok((Tier { emulated: !on_dax(&dir), member: dir.join(file) }, sizes, true));
        }
        let (exists, device) =
            fs::metadata(fast).map_or((false, false), |m| (true, m.file_type().is_char_device()));
        let parent = fs::canonicalize(
            fast.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")),
        )
        .map_err(|e| format!("--fast {}: its directory cannot be used: {e}", fast.display()))?;
        let member = parent.join(
            fast.file_name().ok_or_else(|| format!("--fast {} names no file", fast.display()))?,
        );
        let sizes =
            if device { USUAL } else { fitting(&parent).ok_or_else(|| too_small(&parent))? };
        return Ok((Tier { emulated: !device && !on_dax(&parent), member }, sizes, !exists));
    }
    let dax = mounts().into_iter().filter(|m| m.dax).map(|m| m.at);
    for dir in dax.chain([PathBuf::from("/dev/shm")]) {
        if rustix::fs::access(&dir, rustix::fs::Access::WRITE_OK).is_ok()
            && let Some(sizes) = fitting(&dir)
        {
            return Ok((Tier { emulated: !on_dax(&dir), member: dir.join(file) }, sizes, true));
        }
    }
    warnings.push(
        "there is no DAX file system and /dev/shm is too small: the tier is a file on the home's \
         own storage"
            .into(),
    );
    let sizes = fitting(home_parent).ok_or_else(|| too_small(home_parent))?;
    Ok((Tier { emulated: true, member: home_parent.join(file) }, sizes, true))
}

fn too_small(dir: &Path) -> String {
    format!(
        "{} has {} MiB free, the tier needs {}; free space there, or give --fast",
        dir.display(),
        available(dir) >> 20,
        (SMALL.tier >> 20) + 1
    )
}

/// The sizes that fit there and into memory.
fn fitting(dir: &Path) -> Option<Sizes> {
    let memory = memory_available();
    // A quarter of what is free stays free.
    let fits = |s: &Sizes| available(dir) / 4 * 3 >= s.tier && memory >= 4 * s.tier;
    if fits(&USUAL) {
        return Some(USUAL);
    }
    (available(dir) > SMALL.tier).then_some(SMALL)
}

/// Bytes free on the file system of `dir`.
fn available(dir: &Path) -> u64 {
    rustix::fs::statvfs(dir).map_or(0, |s| s.f_bavail * s.f_frsize)
}

/// Bytes of memory to be had, of the machine or of the control group, whichever has less.
fn memory_available() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = meminfo
        .lines()
        .find_map(|line| {
            line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok()
        })
        .map_or(0, |kib| kib << 10);
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let group = number("/sys/fs/cgroup/memory.max")
        .map(|max| max.saturating_sub(number("/sys/fs/cgroup/memory.current").unwrap_or(0)));
    group.map_or(machine, |group| machine.min(group))
}

/// A mounted file system.
struct Mount {
    source: String,
    at: PathBuf,
    kind: String,
    dax: bool,
}

fn mounts() -> Vec<Mount> {
    let text = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mount = |line: &str| {
        let mut fields = line.split(' ');
        let (source, at, kind, options) =
            (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let at = PathBuf::from(at.replace("\\040", " "));
        let dax = options.split(',').any(|o| matches!(o, "dax" | "dax=always"));
        Some(Mount { source: source.into(), at, kind: kind.into(), dax })
    };
    text.lines().filter_map(mount).collect()
}

fn mount_of(dir: &Path) -> Option<Mount> {
    mounts().into_iter().filter(|m| dir.starts_with(&m.at)).max_by_key(|m| m.at.as_os_str().len())
}

/// The kind of a directory's file system, and a description for people.
fn file_system(dir: &Path) -> (String, String) {
    mount_of(dir).map_or_else(
        || ("unknown".into(), "unknown file system".into()),
        |m| (m.kind.clone(), format!("{} on {}", m.kind, m.source)),
    )
}

fn on_dax(dir: &Path) -> bool {
    mount_of(dir).is_some_and(|m| m.dax)
}
