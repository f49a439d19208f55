//! Where a study puts its home and its tier, and how it takes them away again.
//!
//! Home is an ordinary directory on ordinary storage. The tier is on persistent memory when a DAX
//! file system is mounted. Else it is emulated in /dev/shm, and every figure from it says so, or
//! flash: a file on a disk, durable as any tier on a disk is.
//!
//! **Invariants**: every path made is noted before it is made, and [`Leftovers::clean`] takes all
//! of them away, whenever it is called; what was there before is never removed.
//! **Deliberately absent**: signals (the program that has the terminal calls `clean`), and
//! measuring (`probe`).

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tiersmith_dir::{Dir, Found};
use tiersmith_store::Medium;

use crate::account::{Account, can_reach};
use crate::error::{During, Error, Result};
use crate::process::Identity;

/// What has to go when the study ends, and whether it was asked to stop.
#[derive(Clone, Debug, Default)]
pub struct Leftovers {
    left: Arc<Mutex<Vec<Left>>>,
    stop: Arc<AtomicBool>,
}

/// One thing that has to go.
#[derive(Debug)]
enum Left {
    /// A file, or a directory with all that is in it.
    Path(PathBuf),
    /// A file that was made in a directory that is held, if it has its name still.
    Made(Dir, OsString, Found),
    /// A process with all that it started.
    Process(Identity),
    /// What is mounted here.
    Mount(PathBuf),
}

impl Left {
    fn clean(&self) {
        match self {
            Left::Path(path) => remove(path),
            Left::Made(dir, name, made) => {
                let _ = dir.remove_file_that_is(name, made);
            }
            Left::Process(process) => {
                process.end_if_postgres();
                process.kill_tree();
            }
            Left::Mount(at) => unmount(at),
        }
    }
}

/// Removes a file or directory, patiently: another thread may be making files in it still.
fn remove(path: &Path) {
    for _ in 0..100 {
        let gone = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        if gone.is_ok() || fs::symlink_metadata(path).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Takes away what is mounted at a path, also while it is in use. Nothing is asked of the mounted
/// file system itself: its daemon may be gone.
pub(crate) fn unmount(at: &Path) {
    use rustix::mount::UnmountFlags;
    let mounted = || mounts().iter().any(|mount| mount.at == at);
    if mounted()
        && rustix::mount::unmount(at, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).is_err()
    {
        let mut command = std::process::Command::new("fusermount3");
        let quiet = std::process::Stdio::null;
        let _ = command
            .args(["-u", "-z", "--"])
            .arg(at)
            .stdin(quiet())
            .stdout(quiet())
            .stderr(quiet())
            .status();
    }
}

impl Leftovers {
    fn add(&self, left: Left) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).push(left);
    }

    /// Notes a path before it is made.
    pub fn note(&self, path: &Path) {
        self.add(Left::Path(path.to_path_buf()));
    }

    /// Makes a file with a name in a directory that is held, and notes it: nobody cleans in
    /// between. It is removed only while the name is that file's.
    ///
    /// # Errors
    /// What `make` fails with; then nothing is noted.
    pub fn make<T, E>(
        &self,
        dir: Dir,
        name: &OsStr,
        make: impl FnOnce(&Dir) -> std::result::Result<(T, Found), E>,
    ) -> std::result::Result<T, E> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let (made, found) = make(&dir)?;
        left.push(Left::Made(dir, name.to_owned(), found));
        Ok(made)
    }

    /// Notes a process.
    pub fn note_process(&self, process: Identity) {
        self.add(Left::Process(process));
    }

    /// Notes a mount before it is made.
    pub fn note_mount(&self, at: &Path) {
        self.add(Left::Mount(at.to_path_buf()));
    }

    /// Asks the study to stop; it returns [`Error::Interrupted`] within a step of its load.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Whether it was asked to stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Whether nothing is left to remove.
    pub fn is_empty(&self) -> bool {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Removes everything noted, the last first. May be called from another thread while the study
    /// runs, and more than once.
    pub fn clean(&self) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        for left in left.drain(..).rev() {
            left.clean();
        }
    }
}

/// What the user said about places.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// A directory on the slower storage.
    pub home: Option<PathBuf>,
    /// The fast storage: a directory, a file that is not there yet or empty, a DAX device, or a
    /// block device that has nothing.
    pub fast: Option<PathBuf>,
    /// Let whatever the tier is on stand for persistent memory.
    pub emulate: bool,
    /// Bytes of home a study needs.
    pub home_bytes: u64,
    /// Bytes of tier it needs.
    pub tier_bytes: u64,
    /// Databases, and so tier members, of one run.
    pub members: u32,
    /// Who has to be able to enter the home, when it is not the caller: a server's account.
    pub reachable_by: Option<Account>,
}

/// All places of one study.
#[derive(Debug)]
pub struct Places {
    /// An empty directory on the slower storage, for this study alone.
    pub home: PathBuf,
    /// What it is on.
    pub home_is_on: FileSystem,
    /// Where tier members go.
    pub tier: TierPlace,
    /// What it is on.
    pub tier_is_on: FileSystem,
    /// What the tier is taken as: persistent, flash or emulated.
    pub medium: Medium,
    /// What a reader of the figures must know about these places.
    pub notes: Vec<String>,
    /// What has to go.
    pub leftovers: Leftovers,
}

/// Where tier members go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierPlace {
    /// An empty directory for this study alone.
    Directory(PathBuf),
    /// One file or device, for studies of one schema.
    Member(PathBuf),
}

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystem {
    /// `ext4`, `xfs`, `tmpfs`, ...
    pub kind: String,
    /// The device.
    pub source: String,
    /// Where it is mounted.
    pub at: PathBuf,
    /// Mounted with DAX: mappings reach the persistent memory itself.
    pub dax: bool,
}

impl FileSystem {
    /// The one a path is on.
    pub fn of(path: &Path) -> FileSystem {
        let unknown = || FileSystem {
            kind: "unknown".into(),
            source: "unknown".into(),
            at: "/".into(),
            dax: false,
        };
        mounts()
            .into_iter()
            .filter(|mount| path.starts_with(&mount.at))
            // Of two at one place the later one hides the earlier.
            .max_by_key(|mount| mount.at.as_os_str().len())
            .unwrap_or_else(unknown)
    }

    /// Whether its files are in memory and gone after a reboot.
    pub fn in_memory(&self) -> bool {
        matches!(self.kind.as_str(), "tmpfs" | "ramfs")
    }
}

impl std::fmt::Display for FileSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}{}", self.kind, self.source, if self.dax { ", DAX" } else { "" })
    }
}

/// Every mounted file system.
pub fn mounts() -> Vec<FileSystem> {
    parse_mounts(&fs::read_to_string("/proc/self/mounts").unwrap_or_default())
}

fn parse_mounts(text: &str) -> Vec<FileSystem> {
    text.lines().filter_map(parse_mount).collect()
}

/// The file system of a line of /proc/self/mounts.
pub(crate) fn parse_mount(line: &str) -> Option<FileSystem> {
    let mut fields = line.split(' ');
    let (source, at, kind, options) =
        (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let plain =
        |text: &str| text.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\");
    let dax = options.split(',').any(|option| matches!(option, "dax" | "dax=always"));
    Some(FileSystem { kind: kind.into(), source: plain(source), at: plain(at).into(), dax })
}

/// Bytes free on the file system of `dir`, for somebody who is not root.
pub fn bytes_free(dir: &Path) -> u64 {
    rustix::fs::statvfs(dir).map_or(0, |s| s.f_bavail.saturating_mul(s.f_frsize))
}

/// Bytes of memory to be had, of the machine or of the control group, whichever has less.
pub fn memory_available() -> u64 {
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

/// Decides where everything goes and makes the directories.
///
/// # Errors
/// [`Error::Place`] with the remedy: a directory that is not there, cannot be written, or is too
/// small.
pub fn choose(wishes: &Wishes, leftovers: Leftovers) -> Result<Places> {
    let mut notes = Vec::new();
    let parent = match &wishes.home {
        Some(dir) => existing_directory("home", dir)?,
        None => slow_place(wishes.reachable_by.as_ref()),
    };
    // A process may have several at a time.
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = match NUMBER.fetch_add(1, Ordering::Relaxed) {
        0 => format!("tiersmith-study.{}", std::process::id()),
        number => format!("tiersmith-study.{}-{number}", std::process::id()),
    };
    let free = bytes_free(&parent);
    if free < wishes.home_bytes {
        let reason = format!(
            "{} MiB are free and {} needed; give --home",
            free >> 20,
            wishes.home_bytes >> 20
        );
        return Err(Error::Place { what: "home", path: parent, reason });
    }
    nobody_exchanges("home", &parent)?;
    let home_is_on = FileSystem::of(&parent);
    let (place, medium) = fast_place(wishes, &parent, &name, &mut notes)?;
    let above = match &place {
        TierPlace::Directory(path) | TierPlace::Member(path) => path.parent(),
    };
    nobody_exchanges("tier", above.unwrap_or(Path::new("/")))?;
    let home = parent.join(&name);
    make_directory(&home, "home", &leftovers)?;
    let tier_is_on = match &place {
        TierPlace::Directory(dir) => {
            make_directory(dir, "tier", &leftovers)?;
            FileSystem::of(dir)
        }
        TierPlace::Member(member) => {
            if !member.exists() {
                leftovers.note(member);
            }
            FileSystem::of(member)
        }
    };
    Ok(Places { home, home_is_on, tier: place, tier_is_on, medium, notes, leftovers })
}

impl Places {
    /// The tier member of the database with this number.
    pub fn member(&self, database: u32) -> PathBuf {
        match &self.tier {
            TierPlace::Directory(dir) => dir.join(format!("user{}.tier", database + 1)),
            TierPlace::Member(member) => member.clone(),
        }
    }

    /// Whether the tier only stands for persistent memory.
    pub fn emulated(&self) -> bool {
        self.medium == Medium::Emulated
    }

    /// Whether members are files that are made and removed for each run.
    pub fn members_are_ours(&self) -> bool {
        matches!(self.tier, TierPlace::Directory(_))
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.leftovers.clean();
    }
}

fn make_directory(dir: &Path, what: &'static str, leftovers: &Leftovers) -> Result<()> {
    if dir.exists() {
        let reason = "it is there already, left by a study that was killed; remove it".into();
        return Err(Error::Place { what, path: dir.into(), reason });
    }
    leftovers.note(dir);
    fs::create_dir(dir).map_err(|e| Error::Place {
        what,
        path: dir.into(),
        reason: format!(
            "it cannot be made: {e}; give --{}",
            if what == "home" { "home" } else { "fast" }
        ),
    })
}

fn existing_directory(what: &'static str, dir: &Path) -> Result<PathBuf> {
    if !dir.is_dir() {
        let reason = "it is not a directory; make it first, or give another".into();
        return Err(Error::Place { what, path: dir.into(), reason });
    }
    fs::canonicalize(dir).during("find", dir)
}

/// Root's study goes by paths, so nobody else may exchange what it makes in `dir`.
fn nobody_exchanges(what: &'static str, dir: &Path) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let refused = |reason| Err(Error::Place { what, path: dir.into(), reason });
    let found = match Dir::open(dir).and_then(|dir| dir.found()) {
        Ok(found) => found,
        Err(e) => return refused(e.to_string()),
    };
    let (everybody, sticky) = (found.mode & 0o002 != 0, found.mode & 0o1000 != 0);
    let who = match (found.is_roots(), everybody && !sticky) {
        (true, false) => return Ok(()),
        (false, _) => format!("user {}, who owns it,", found.user),
        (true, true) => "everybody".to_owned(),
    };
    refused(format!(
        "{who} could exchange what a study of root makes there; give a directory of root's, for \
         instance below /var/tmp, or run the study as another user"
    ))
}

fn writable(dir: &Path) -> bool {
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok()
}

/// The directory the program was built in, when it is on a disk; else a place for large temporary
/// files.
fn slow_place(reachable_by: Option<&Account>) -> PathBuf {
    let build =
        std::env::current_exe().ok().and_then(|exe| exe.ancestors().nth(2).map(Path::to_path_buf));
    let candidates = build.into_iter().chain([PathBuf::from("/var/tmp"), std::env::temp_dir()]);
    // A directory in it would be no use to somebody who cannot get there.
    let reached =
        |dir: &PathBuf| reachable_by.is_none_or(|account| can_reach(dir, account).is_ok());
    let usable: Vec<PathBuf> = candidates
        .filter(|dir| writable(dir))
        .filter_map(|dir| fs::canonicalize(dir).ok())
        .filter(|dir| nobody_exchanges("home", dir).is_ok())
        .filter(reached)
        .collect();
    let on_disk = usable.iter().find(|dir| !FileSystem::of(dir).in_memory());
    on_disk.or(usable.first()).cloned().unwrap_or_else(std::env::temp_dir)
}

/// What a tier there is.
fn medium(wishes: &Wishes, on: &FileSystem) -> Medium {
    match on {
        _ if wishes.emulate => Medium::Emulated,
        on if on.dax => Medium::Persistent,
        on if on.in_memory() => Medium::Emulated,
        _ => Medium::Flash,
    }
}

/// Whether a tier of so many bytes has room in a directory: a quarter of what is free stays free,
/// in memory half of it.
fn fits(needed: u64, dir: &Path) -> bool {
    let memory = FileSystem::of(dir).in_memory().then(memory_available);
    bytes_free(dir) / 4 * 3 >= needed && memory.is_none_or(|free| free / 2 >= needed)
}

fn too_small(needed: u64, dir: &Path) -> Error {
    Error::Place {
        what: "tier",
        path: dir.into(),
        reason: format!(
            "{} MiB are free and {} needed, with a quarter to spare; give --fast",
            bytes_free(dir) >> 20,
            needed >> 20
        ),
    }
}

/// Where the tier goes, and what it is.
fn fast_place(
    wishes: &Wishes,
    parent: &Path,
    name: &str,
    notes: &mut Vec<String>,
) -> Result<(TierPlace, Medium)> {
    let name = format!("{name}.tier");
    let needed = wishes.tier_bytes;
    if let Some(fast) = &wishes.fast {
        return chosen_place(wishes, fast, &name);
    }
    let dax = mounts().into_iter().filter(|mount| mount.dax).map(|mount| mount.at);
    for dir in dax.chain([PathBuf::from("/dev/shm")]) {
        if writable(&dir) && fits(needed, &dir) && nobody_exchanges("tier", &dir).is_ok() {
            let medium = medium(wishes, &FileSystem::of(&dir));
            return Ok((TierPlace::Directory(dir.join(name)), medium));
        }
    }
    notes.push(
        "there is no DAX file system and /dev/shm is too small: the tier is a file on the home's \
         own storage"
            .into(),
    );
    if !fits(needed, parent) {
        return Err(too_small(needed, parent));
    }
    Ok((TierPlace::Directory(parent.join(name)), medium(wishes, &FileSystem::of(parent))))
}

/// The tier where the user wants it: in a directory, in a file, or on a device.
fn chosen_place(wishes: &Wishes, fast: &Path, name: &str) -> Result<(TierPlace, Medium)> {
    let needed = wishes.tier_bytes;
    let refused = |reason: String| Error::Place { what: "tier", path: fast.into(), reason };
    if fast.is_dir() {
        let dir = existing_directory("tier", fast)?;
        let medium = medium(wishes, &FileSystem::of(&dir));
        return if fits(needed, &dir) {
            Ok((TierPlace::Directory(dir.join(name)), medium))
        } else {
            Err(too_small(needed, &dir))
        };
    }
    if wishes.members > 1 {
        return Err(refused(format!(
            "a load of {} schemas needs as many tiers; give a directory",
            wishes.members
        )));
    }
    let kind = fs::metadata(fast).ok().map(|found| found.file_type());
    let block_device = kind.is_some_and(|kind| kind.is_block_device());
    let device = block_device || kind.is_some_and(|kind| kind.is_char_device());
    let above = fast.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let above = existing_directory("tier", above)?;
    let file = fast.file_name().ok_or_else(|| refused("it names no file".into()))?;
    let medium = match device && !wishes.emulate {
        true if block_device => Medium::Flash,
        true => Medium::Persistent,
        false => medium(wishes, &FileSystem::of(&above)),
    };
    if device || fits(needed, &above) {
        Ok((TierPlace::Member(above.join(file)), medium))
    } else {
        Err(too_small(needed, &above))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_with_their_escapes_and_dax() {
        let text = "/dev/pmem0 /mnt/pm\\040em ext4 rw,dax=always 0 0\ntmpfs /dev/shm tmpfs rw 0 \
                    0\nnonsense\n";
        let mounts = parse_mounts(text);
        assert_eq!(mounts.len(), 2);
        assert!(mounts[0].dax && mounts[0].at == Path::new("/mnt/pm em") && !mounts[0].in_memory());
        assert!(!mounts[1].dax && mounts[1].in_memory());
        let never = parse_mounts(
            "/dev/pmem0 /a ext4 rw,dax=never 0 0\n/dev/pmem0 /b xfs rw,dax=inode 0 0\n",
        );
        assert!(never.iter().all(|mount| !mount.dax));
    }

    #[test]
    fn what_was_made_is_gone_after_a_study_and_what_was_there_stays() {
        let place = tempfile::tempdir().unwrap();
        let (slow, fast) = (place.path().join("slow"), place.path().join("fast"));
        for dir in [&slow, &fast] {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("mine"), "mine").unwrap();
        }
        let wishes = Wishes {
            home: Some(slow.clone()),
            fast: Some(fast.clone()),
            members: 2,
            ..Wishes::default()
        };
        let places = choose(&wishes, Leftovers::default()).unwrap();
        assert!(places.home.is_dir() && places.member(1).parent().unwrap().is_dir());
        assert_eq!(places.emulated(), FileSystem::of(place.path()).in_memory());
        fs::write(places.home.join("user1.db"), "data").unwrap();
        drop(places);
        for dir in [&slow, &fast] {
            let left: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert_eq!(left, ["mine"]);
        }
    }

    #[test]
    fn root_makes_nothing_where_another_account_could_exchange_it() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: places of other accounts, because this is not root");
            return;
        }
        use std::os::unix::fs::{PermissionsExt, chown};
        let place = tempfile::tempdir().unwrap();
        let (ours, theirs, open) =
            (place.path().join("ours"), place.path().join("theirs"), place.path().join("open"));
        for dir in [&ours, &theirs, &open, &theirs.join("inside")] {
            fs::create_dir(dir).unwrap();
        }
        chown(&theirs, Some(3_999_999), None).unwrap();
        for (dir, mode, expected) in [
            (&theirs, 0o755, "user 3999999, who owns it, could exchange"),
            (&theirs.join("inside"), 0o755, "could have put it there"),
            (&open, 0o777, "everybody could exchange"),
        ] {
            fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
            for (home, fast) in [(dir, &ours), (&ours, dir)] {
                let wishes = Wishes {
                    home: Some(home.clone()),
                    fast: Some(fast.clone()),
                    ..Wishes::default()
                };
                let error = choose(&wishes, Leftovers::default()).unwrap_err().to_string();
                assert!(error.contains(expected), "{error}");
                assert_eq!(fs::read_dir(&ours).unwrap().count(), 0);
            }
        }
        // As /tmp is: what is root's there, nobody else exchanges.
        fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
        let wishes =
            Wishes { home: Some(open.clone()), fast: Some(ours.clone()), ..Wishes::default() };
        choose(&wishes, Leftovers::default()).unwrap();
    }

    #[test]
    fn a_place_that_cannot_be_used_is_refused_with_what_to_do() {
        let place = tempfile::tempdir().unwrap();
        let wish = |home: &Path, fast: &Path, bytes| Wishes {
            home: Some(home.into()),
            fast: Some(fast.into()),
            tier_bytes: bytes,
            members: 2,
            ..Wishes::default()
        };
        let missing = place.path().join("missing");
        for (wishes, expect) in [
            (wish(&missing, place.path(), 0), "not a directory"),
            (wish(place.path(), &missing, 0), "give a directory"),
            (wish(place.path(), place.path(), 1 << 60), "needed"),
            (Wishes { home_bytes: 1 << 60, ..wish(place.path(), place.path(), 0) }, "give --home"),
        ] {
            let error = choose(&wishes, Leftovers::default()).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_is_removed_only_while_its_name_is_its_own() {
        let place = tempfile::tempdir().unwrap();
        for exchanged in [true, false] {
            let (leftovers, dir) = (Leftovers::default(), Dir::open(place.path()).unwrap());
            let make = |dir: &Dir| {
                let file = dir.make_file("made", 0o600, None)?;
                let found = Found::of(&file)?;
                Ok::<_, std::io::Error>((file, found))
            };
            leftovers.make(dir, OsStr::new("made"), make).unwrap();
            let at = place.path().join("made");
            if exchanged {
                fs::rename(&at, place.path().join("aside")).unwrap();
                fs::write(&at, "another's").unwrap();
            }
            leftovers.clean();
            assert_eq!((at.exists(), leftovers.is_empty()), (exchanged, true));
            let _ = fs::remove_file(&at);
        }
    }
}
