//! The same random calls on a mount and on a plain directory: the same results, errors, contents
//! and attributes, with a small tier that is destaged in the background, files of all classes, and
//! remounts in the middle.
//!
//! `TIERSMITH_DIFFERENTIAL=SEED:COUNT` runs one seed with so many calls. A failure prints seed and
//! call number.

use crate::daemon::Apart;
use crate::place::skipped;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, Timespec, Timestamps,
    XattrFlags,
};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

const FILES: [&str; 6] = ["a.redo", "b.d8", "c.d4", "d.pass", "e.redo", "f.d8"];
const DIRS: [&str; 3] = ["", "one", "one/two"];
const HANDLES: usize = 6;
/// Times that nothing but the test sets.
const TIMES: [(i64, i64); 3] = [(1_234_567, 123_456_789), (-77, 500_000_000), (2_000_000_000, 1)];

#[derive(Debug, Clone)]
enum Call {
    Open { slot: usize, path: String, flags: OFlags, mode: u32 },
    Close(usize),
    Write { slot: usize, at: u64, data: Vec<u8> },
    Append { slot: usize, data: Vec<u8> },
    Read { slot: usize, at: u64, len: usize },
    Map { slot: usize, page: u64, data: Vec<u8> },
    Truncate { slot: usize, size: u64 },
    Allocate { slot: usize, at: u64, len: u64, flags: FallocateFlags },
    Seek { slot: usize, at: u64, data: bool },
    Copy { from: usize, to: usize, at: u64, to_at: u64, len: usize },
    Sync { slot: usize, data_only: bool },
    StatOpen(usize),
    Stat(String),
    Rename { from: String, to: String, flags: RenameFlags },
    Link { from: String, to: String },
    Unlink(String),
    Mkdir(String),
    Rmdir(String),
    Symlink { target: String, path: String },
    Readlink(String),
    Chmod { path: String, mode: u32 },
    Times { path: String, time: usize },
    SetXattr { path: String, value: Vec<u8>, flags: XattrFlags },
    GetXattr(String),
    RemoveXattr(String),
    List(String),
}

fn any_name(random: &mut fastrand::Rng) -> String {
    let dir = DIRS[random.usize(..DIRS.len())];
    let name = match random.u8(..40) {
        0 => "one".into(),
        1 => "two".into(),
        2..=3 => "link".into(),
        4 => "missing".into(),
        _ => FILES[random.usize(..FILES.len())].to_owned(),
    };
    if dir.is_empty() { name } else { format!("{dir}/{name}") }
}

fn any_offset(random: &mut fastrand::Rng) -> u64 {
    match random.u8(..6) {
        0 => 0,
        1 => random.u64(..40) * 8192,
        2 => random.u64(..200) * 4096,
        3 => random.u64(..1_500_000),
        _ => random.u64(..100_000),
    }
}

fn any_data(random: &mut fastrand::Rng) -> Vec<u8> {
    let len = match random.u8(..8) {
        0 => 8192,
        1 => 4096,
        2 => 65536,
        3 => random.usize(..200_000),
        4 => 0,
        _ => random.usize(..9000),
    };
    let seed = random.u8(..);
    (0..len).map(|n| (n as u8).wrapping_mul(31).wrapping_add(seed) ^ (n >> 8) as u8).collect()
}

fn any_open_flags(r: &mut fastrand::Rng) -> OFlags {
    let access = [OFlags::RDONLY, OFlags::RDWR, OFlags::RDWR, OFlags::RDWR, OFlags::WRONLY];
    let mut flags = access[r.usize(..access.len())] | OFlags::CLOEXEC;
    flags.set(OFlags::CREATE, r.u8(..4) > 0);
    for (one, of) in [
        (OFlags::EXCL, 8),
        (OFlags::TRUNC, 8),
        (OFlags::APPEND, 4),
        (OFlags::NOFOLLOW, 6),
        (OFlags::DSYNC, 6),
        (OFlags::SYNC, 9),
    ] {
        if r.u8(..of) == 0 {
            flags |= one;
        }
    }
    flags
}

fn any_allocation(r: &mut fastrand::Rng) -> FallocateFlags {
    let keep = FallocateFlags::KEEP_SIZE;
    [
        FallocateFlags::empty(),
        keep,
        FallocateFlags::PUNCH_HOLE | keep,
        FallocateFlags::PUNCH_HOLE | keep,
        FallocateFlags::ZERO_RANGE,
        FallocateFlags::ZERO_RANGE | keep,
        FallocateFlags::PUNCH_HOLE,
    ][r.usize(..7)]
}

fn any_call(r: &mut fastrand::Rng, open: &[usize]) -> Call {
    let any = r.usize(..HANDLES);
    let slot = if open.is_empty() || r.u8(..16) == 0 { any } else { open[r.usize(..open.len())] };
    match r.u8(..64) {
        0..=7 => Call::Open {
            slot: any,
            path: any_name(r),
            flags: any_open_flags(r),
            mode: [0o600, 0o644, 0o777, 0o4755][r.usize(..4)],
        },
        8 => Call::Close(slot),
        9 => Call::Stat(any_name(r)),
        10..=19 => Call::Write { slot, at: any_offset(r), data: any_data(r) },
        20..=22 => Call::Append { slot, data: any_data(r) },
        23..=28 => Call::Read { slot, at: any_offset(r), len: r.usize(..150_000) },
        29..=31 => {
            let mut data = any_data(r);
            data.truncate(4096);
            Call::Map { slot, page: r.u64(..60), data }
        }
        32..=34 => Call::Truncate { slot, size: any_offset(r) },
        35..=37 => Call::Allocate {
            slot,
            at: any_offset(r),
            len: r.u64(..100_000),
            flags: any_allocation(r),
        },
        38..=39 => Call::Seek { slot, at: any_offset(r), data: r.bool() },
        40..=41 => {
            let (at, to_at, len) = (any_offset(r), any_offset(r), r.usize(..100_000));
            Call::Copy { from: slot, to: r.usize(..HANDLES), at, to_at, len }
        }
        42 => Call::Sync { slot, data_only: r.bool() },
        43..=44 => Call::StatOpen(slot),
        45..=46 => Call::Stat(any_name(r)),
        47..=49 => {
            let flags = [
                RenameFlags::empty(),
                RenameFlags::empty(),
                RenameFlags::NOREPLACE,
                RenameFlags::EXCHANGE,
            ];
            Call::Rename { from: any_name(r), to: any_name(r), flags: flags[r.usize(..4)] }
        }
        50 => Call::Link { from: any_name(r), to: any_name(r) },
        51..=52 => Call::Unlink(any_name(r)),
        53 => Call::Mkdir(["one", "one/two", "two"][r.usize(..3)].into()),
        54 => Call::Rmdir(if r.bool() { "one/two".into() } else { any_name(r) }),
        55 => Call::Symlink { target: any_name(r), path: any_name(r) },
        56 => Call::Readlink(any_name(r)),
        57 => Call::Chmod {
            path: any_name(r),
            mode: [0o600, 0o640, 0o755, 0o2755, 0o4711][r.usize(..5)],
        },
        58..=59 => Call::Times { path: any_name(r), time: r.usize(..TIMES.len()) },
        60 => {
            let flags =
                [XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE][r.usize(..3)];
            Call::SetXattr { path: any_name(r), value: vec![r.u8(..); r.usize(..60)], flags }
        }
        61 => Call::GetXattr(any_name(r)),
        62 => Call::RemoveXattr(any_name(r)),
        _ => Call::List(["", "one", "one/two", "missing"][r.usize(..4)].into()),
    }
}

/// One of the two directories.
struct Side {
    root: PathBuf,
    handles: Vec<Option<OwnedFd>>,
}

/// What a call gave, in a form that can be compared.
type Outcome = Result<Vec<u8>, Errno>;

impl Side {
    fn new(root: PathBuf) -> Self {
        Self { root, handles: (0..HANDLES).map(|_| None).collect() }
    }

    fn fd(&self, slot: usize) -> Result<&OwnedFd, Errno> {
        self.handles[slot].as_ref().ok_or(Errno::BADF)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    #[expect(clippy::too_many_lines, reason = "one table: a row for each call")]
    fn call(&mut self, call: &Call) -> Outcome {
        let done = |()| Vec::new();
        match call {
            Call::Open { slot, path, flags, mode } => {
                self.handles[*slot] = None;
                let fd = rustix::fs::open(self.at(path), *flags, Mode::from_raw_mode(*mode))?;
                self.handles[*slot] = Some(fd);
                Ok(Vec::new())
            }
            Call::Close(slot) => {
                self.handles[*slot] = None;
                Ok(Vec::new())
            }
            Call::Write { slot, at, data } => {
                let n = rustix::io::pwrite(self.fd(*slot)?, data, *at)?;
                Ok(n.to_string().into())
            }
            Call::Append { slot, data } => {
                let fd = self.fd(*slot)?;
                let n = rustix::io::write(fd, data)?;
                let at = rustix::fs::seek(fd, SeekFrom::Current(0))?;
                Ok(format!("{n} {at}").into())
            }
            Call::Read { slot, at, len } => {
                let mut into = vec![0; *len];
                let n = rustix::io::pread(self.fd(*slot)?, &mut into, *at)?;
                into.truncate(n);
                Ok(into)
            }
            Call::Map { slot, page, data } => map(self.fd(*slot)?, *page, data).map(done),
            Call::Truncate { slot, size } => {
                rustix::fs::ftruncate(self.fd(*slot)?, *size).map(done)
            }
            Call::Allocate { slot, at, len, flags } => {
                rustix::fs::fallocate(self.fd(*slot)?, *flags, *at, *len).map(done)
            }
            Call::Seek { .. } => unreachable!("compared by its meaning"),
            Call::Copy { from, to, at, to_at, len } => {
                let (mut at, mut to_at) = (*at, *to_at);
                let mut total = 0;
                // A file system may copy less at a time.
                while total < *len {
                    let n = rustix::fs::copy_file_range(
                        self.fd(*from)?,
                        Some(&mut at),
                        self.fd(*to)?,
                        Some(&mut to_at),
                        len - total,
                    )?;
                    total += n;
                    if n == 0 {
                        break;
                    }
                }
                Ok(total.to_string().into())
            }
            Call::Sync { slot, data_only: true } => {
                rustix::fs::fdatasync(self.fd(*slot)?).map(done)
            }
            Call::Sync { slot, data_only: false } => rustix::fs::fsync(self.fd(*slot)?).map(done),
            Call::StatOpen(slot) => Ok(shown(&rustix::fs::fstat(self.fd(*slot)?)?)),
            Call::Stat(path) => {
                Ok(shown(&rustix::fs::statat(CWD, self.at(path), AtFlags::SYMLINK_NOFOLLOW)?))
            }
            Call::Rename { from, to, flags } => {
                rustix::fs::renameat_with(CWD, self.at(from), CWD, self.at(to), *flags).map(done)
            }
            Call::Link { from, to } => rustix::fs::link(self.at(from), self.at(to)).map(done),
            Call::Unlink(path) => rustix::fs::unlink(self.at(path)).map(done),
            Call::Mkdir(path) => {
                rustix::fs::mkdir(self.at(path), Mode::from_raw_mode(0o755)).map(done)
            }
            Call::Rmdir(path) => rustix::fs::rmdir(self.at(path)).map(done),
            Call::Symlink { target, path } => rustix::fs::symlink(target, self.at(path)).map(done),
            Call::Readlink(path) => {
                Ok(rustix::fs::readlink(self.at(path), Vec::new())?.into_bytes())
            }
            Call::Chmod { path, mode } => {
                rustix::fs::chmod(self.at(path), Mode::from_raw_mode(*mode)).map(done)
            }
            Call::Times { path, time } => {
                let (tv_sec, tv_nsec) = TIMES[*time];
                let at = Timespec { tv_sec, tv_nsec };
                let times = Timestamps { last_access: at, last_modification: at };
                rustix::fs::utimensat(CWD, self.at(path), &times, AtFlags::SYMLINK_NOFOLLOW)
                    .map(done)
            }
            Call::SetXattr { path, value, flags } => {
                rustix::fs::lsetxattr(self.at(path), "user.test", value, *flags).map(done)
            }
            Call::GetXattr(path) => {
                let mut into = vec![0; 100];
                let n = rustix::fs::lgetxattr(self.at(path), "user.test", &mut into)?;
                into.truncate(n);
                Ok(into)
            }
            Call::RemoveXattr(path) => {
                rustix::fs::lremovexattr(self.at(path), "user.test").map(done)
            }
            Call::List(path) => list(&self.at(path)),
        }
    }

    /// Everything that is below, by path.
    fn tree(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        let mut dirs = vec![PathBuf::new()];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(self.root.join(&dir)).unwrap() {
                let path = dir.join(entry.unwrap().file_name());
                let full = self.root.join(&path);
                let stat = rustix::fs::statat(CWD, &full, AtFlags::SYMLINK_NOFOLLOW).unwrap();
                let mut says = shown(&stat);
                match stat.st_mode & 0o170_000 {
                    0o040_000 => dirs.push(path.clone()),
                    0o120_000 => says.extend(
                        std::fs::read_link(&full).unwrap().into_os_string().into_encoded_bytes(),
                    ),
                    _ => {
                        says.extend(std::fs::read(&full).unwrap());
                        let mut into = [0; 100];
                        let n =
                            rustix::fs::lgetxattr(&full, "user.test", &mut into[..]).unwrap_or(0);
                        says.extend(&into[..n]);
                    }
                }
                found.push((path, says));
            }
        }
        found.sort();
        found
    }
}

/// What of a `stat` must be the same: of the times, whether they are ones that the test has set.
fn shown(stat: &rustix::fs::Stat) -> Vec<u8> {
    let is_dir = stat.st_mode & 0o170_000 == 0o040_000;
    let size = if is_dir { 0 } else { stat.st_size };
    let set = TIMES
        .iter()
        .position(|t| *t == (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap()));
    format!("{:o} {} {} {} {size} {set:?} ", stat.st_mode, stat.st_nlink, stat.st_uid, stat.st_gid)
        .into()
}

fn list(path: &Path) -> Outcome {
    let entries =
        std::fs::read_dir(path).map_err(|e| Errno::from_raw_os_error(e.raw_os_error().unwrap()))?;
    let mut names: Vec<_> = entries
        .map(|e| e.unwrap())
        .map(|e| format!("{:?} {:?}", e.file_name(), e.file_type().unwrap()))
        .collect();
    names.sort();
    Ok(names.join(", ").into())
}

/// Writes into a page of the file through shared memory.
fn map(fd: &OwnedFd, page: u64, data: &[u8]) -> Result<(), Errno> {
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
    let size = u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses where; nothing else knows of the mapping, which is taken away
    // below.
    let at =
        unsafe { mmap(std::ptr::null_mut(), 4096, protection, MapFlags::SHARED, fd, page * 4096)? };
    // Beyond the end of the file there is nothing to write to.
    let len = usize::try_from(size.saturating_sub(page * 4096)).unwrap().min(data.len());
    // SAFETY: `len` bytes are within the page and within the file, which nobody cuts meanwhile.
    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), at.cast(), len) };
    // SAFETY: the mapping is the one made above, and is not used after.
    unsafe {
        let synced = msync(at, 4096, MsyncFlags::SYNC);
        munmap(at, 4096)?;
        synced
    }
}

/// Where data and holes are may differ in detail; what is called a hole must read as zeros, on both
/// sides.
fn seek(mount: &Side, plain: &Side, slot: usize, at: u64, data: bool, what: &str) {
    let (Ok(one), Ok(other)) = (mount.fd(slot), plain.fd(slot)) else { return };
    let size = u64::try_from(rustix::fs::fstat(other).unwrap().st_size).unwrap();
    let mut whole = vec![0; usize::try_from(size).unwrap()];
    let mut got = 0;
    while got < whole.len() {
        match rustix::io::pread(other, &mut whole[got..], got as u64) {
            Ok(n) => got += n,
            Err(_) => return,
        }
    }
    let to = if data { SeekFrom::Data(at) } else { SeekFrom::Hole(at) };
    let found = rustix::fs::seek(one, to);
    if at >= size {
        assert_eq!(found, Err(Errno::NXIO), "{what}");
        return;
    }
    match (found, data) {
        (Ok(found), true) => {
            assert!((at..size).contains(&found), "{what}: {found}");
            assert!(whole[at as usize..found as usize].iter().all(|b| *b == 0), "{what}: {found}");
        }
        (Err(Errno::NXIO), true) => assert!(whole[at as usize..].iter().all(|b| *b == 0), "{what}"),
        (Ok(found), false) => assert!((at..=size).contains(&found), "{what}: {found}"),
        other => panic!("{what}: {other:?}"),
    }
    // The position is part of what later calls see.
    for fd in [one, other] {
        rustix::fs::seek(fd, SeekFrom::Start(at)).unwrap();
    }
}

fn run(seed: u64, calls: usize, sync_on_write: bool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut place = Apart::new(9, sync_on_write);
    let beside = place.path().join("plain");
    std::fs::create_dir(&beside).unwrap();
    let (mut mount, mut plain) = (Side::new(place.home()), Side::new(beside));
    for side in [&mount, &plain] {
        std::fs::create_dir_all(side.at("one/two")).unwrap();
    }
    let mut worked = 0;
    for n in 0..calls {
        let open: Vec<usize> = (0..HANDLES).filter(|s| plain.handles[*s].is_some()).collect();
        let call = any_call(&mut random, &open);
        let what = || format!("seed {seed}, call {n}: {}", brief(&call));
        if let Call::Seek { slot, at, data } = call {
            seek(&mount, &plain, slot, at, data, &what());
            continue;
        }
        let (one, other) = (mount.call(&call), plain.call(&call));
        assert!(one == other, "{}: mount {}, plain {}", what(), outcome(&one), outcome(&other));
        worked += usize::from(one.is_ok());
        if random.u16(..500) == 0 {
            for side in [&mut mount, &mut plain] {
                side.handles.iter_mut().for_each(|h| *h = None);
            }
            if random.bool() {
                place.remount();
            }
        }
        if random.u16(..250) == 0 {
            same_trees(&mount, &plain, &what());
        }
    }
    for side in [&mut mount, &mut plain] {
        side.handles.iter_mut().for_each(|h| *h = None);
    }
    same_trees(&mount, &plain, &format!("seed {seed}, at the end"));
    place.detach();
    same_trees(&mount, &plain, &format!("seed {seed}, detached"));
    // A run in which nearly everything fails would compare errors only.
    assert!(worked > calls / 4, "seed {seed}: {worked} of {calls} calls did something");
}

fn same_trees(mount: &Side, plain: &Side, what: &str) {
    let (one, other) = (mount.tree(), plain.tree());
    let names =
        |tree: &[(PathBuf, Vec<u8>)]| tree.iter().map(|(p, _)| p.clone()).collect::<Vec<_>>();
    assert_eq!(names(&one), names(&other), "{what}");
    for ((path, one), (_, other)) in one.iter().zip(&other) {
        if one != other {
            let at = one.iter().zip(other).position(|(a, b)| a != b);
            let head =
                |says: &[u8]| String::from_utf8_lossy(&says[..says.len().min(60)]).into_owned();
            panic!(
                "{what}: {} differs at {at:?}: mount {:?}, plain {:?}",
                path.display(),
                head(one),
                head(other)
            );
        }
    }
}

fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Ok(bytes) if bytes.len() > 200 => format!("{} bytes", bytes.len()),
        Ok(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
        Err(e) => format!("{e:?}"),
    }
}

fn brief(call: &Call) -> String {
    let mut text = format!("{call:?}");
    if text.len() > 300 {
        text.truncate(
            text.char_indices().map(|(n, _)| n).take_while(|n| *n < 300).last().unwrap_or(0),
        );
        text.push('…');
    }
    text
}

/// What the environment asks for, else the seeds of the test.
fn seeds(own: &[u64]) -> Vec<(u64, usize)> {
    match std::env::var("TIERSMITH_DIFFERENTIAL") {
        Ok(asked) => {
            let (seed, count) = asked.split_once(':').expect("SEED:COUNT");
            vec![(seed.parse().unwrap(), count.parse().unwrap())]
        }
        Err(_) => own.iter().map(|seed| (*seed, 3000)).collect(),
    }
}

#[test]
fn a_mount_behaves_as_a_plain_directory_does() {
    if skipped("a_mount_behaves_as_a_plain_directory_does") {
        return;
    }
    for (seed, calls) in seeds(&[1, 2, 3]) {
        run(seed, calls, false);
    }
}

#[test]
fn a_mount_that_syncs_every_write_behaves_as_a_plain_directory_does() {
    if skipped("a_mount_that_syncs_every_write_behaves_as_a_plain_directory_does") {
        return;
    }
    for (seed, calls) in seeds(&[4]) {
        run(seed, calls.min(1500), true);
    }
}
