//! A home whose file system is full: the writer gets ENOSPC, nothing that was acknowledged is lost,
//! and with room it goes on.
//!
//! The home is on a small ext4 on a loop device, which root can make.

use crate::place::{profile, skipped_unless_root, until};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tiersmith_mount::{Mounted, Options, mount};
use tiersmith_store::{AttachedHome, Medium, TierSpec, attach};

const BLOCK: usize = 8192;

/// A small file system of its own, taken away with the value.
struct Small {
    dir: tempfile::TempDir,
}

impl Small {
    /// `None`, with a line that says why, where it cannot be made.
    fn new(mib: u64) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        fs::File::create(&image).unwrap().set_len(mib << 20).unwrap();
        fs::create_dir(dir.path().join("mnt")).unwrap();
        let small = Self { dir };
        for (program, arguments) in [
            ("mkfs.ext4", vec!["-q".into(), "-F".into(), "-m0".into(), image.clone()]),
            ("mount", vec!["-o".into(), "loop".into(), image, small.at()]),
        ] {
            let done = Command::new(program).args(&arguments).stdin(Stdio::null()).output();
            match done {
                Ok(done) if done.status.success() => {}
                Ok(done) => {
                    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
                    eprintln!("skipped: a full home, because {program} failed ({said})");
                    return None;
                }
                Err(e) => {
                    eprintln!("skipped: a full home, because {program} cannot be run ({e})");
                    return None;
                }
            }
        }
        Some(small)
    }

    fn at(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn mount(&self, how: &Options) -> Mounted {
        let home = self.at().join("db");
        let mut spec =
            TierSpec::new("fast", self.dir.path().join("fast"), Medium::Emulated, 9 << 20);
        spec.unit = 256 << 10;
        spec.lanes = 8;
        spec.slots = 64;
        let options = tiersmith_store::Options {
            profile: Some(profile()),
            redo_keep_bytes: 1 << 20,
            ..Default::default()
        };
        mount(attach(&home, &[spec], options).unwrap(), &home, how).unwrap()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.at()).stdin(Stdio::null()).output();
        if fs::read_to_string("/proc/mounts")
            .is_ok_and(|m| m.contains(&*self.at().to_string_lossy()))
        {
            let _ = Command::new("umount").arg("-l").arg(self.at()).stdin(Stdio::null()).output();
        }
    }
}

/// Writes blocks until an error; returns how many went and the error's number.
fn fill(path: &Path, limit: u64) -> (u64, Option<i32>) {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap();
    let mut done = 0;
    while done < limit {
        let block = [done as u8 ^ (done >> 8) as u8 | 1; BLOCK];
        if let Err(e) = file.write_all_at(&block, done * BLOCK as u64) {
            return (done, e.raw_os_error());
        }
        done += 1;
    }
    (done, None)
}

fn check(path: &Path, blocks: u64) {
    let file = fs::File::open(path).unwrap();
    let mut bytes = [0; BLOCK];
    for n in 0..blocks {
        file.read_exact_at(&mut bytes, n * BLOCK as u64).unwrap();
        assert!(
            bytes.iter().all(|b| *b == n as u8 ^ (n >> 8) as u8 | 1),
            "VIOLATION: {} block {n}",
            path.display()
        );
    }
}

#[test]
fn a_full_home_is_told_to_the_writer_and_loses_nothing() {
    if skipped_unless_root("a_full_home_is_told_to_the_writer_and_loses_nothing") {
        return;
    }
    let Some(small) = Small::new(40) else { return };
    let home = small.at().join("db");
    fs::create_dir(&home).unwrap();
    // Room to give back later.
    fs::write(small.at().join("ballast"), vec![1; 12 << 20]).unwrap();
    let mut mounted = Some(small.mount(&Options::default()));
    // Some of each class fits; then home is filled until it is full.
    let mut written = Vec::new();
    let mut full = false;
    for (name, limit) in [
        ("a.d8", 400),
        ("b.redo", 400),
        ("c.pass", 400),
        ("d.d8", 12_000),
        ("e.redo", 12_000),
        ("f.pass", 12_000),
    ] {
        let (blocks, error) = fill(&home.join(name), limit);
        eprintln!("{name}: {blocks} blocks, then {error:?}");
        written.push((name, blocks));
        if error.is_some() {
            assert_eq!(error, Some(libc::ENOSPC), "{name}");
            full = true;
        }
    }
    assert!(full, "the home was never full");
    for (name, blocks) in &written {
        check(&home.join(name), *blocks);
    }
    // With room again, writers go on.
    fs::remove_file(small.at().join("ballast")).unwrap();
    let more = home.join("more.d8");
    until("room to be noticed", || fill(&more, 50) == (50, None));
    for (name, blocks) in &written {
        check(&home.join(name), *blocks);
    }
    unmounted(&mut mounted).detach().unwrap();
    for (name, blocks) in &written {
        check(&home.join(name), *blocks);
    }
    check(&more, 50);
}

/// The home, as soon as nothing uses the mount.
fn unmounted(mounted: &mut Option<Mounted>) -> AttachedHome {
    let mut home = None;
    until("the mount to be free", || match mounted.take().unwrap().unmount() {
        Ok(free) => {
            home = Some(free);
            true
        }
        Err((still, _)) => {
            *mounted = Some(still);
            false
        }
    });
    home.unwrap()
}

/// Writes blocks and syncs them, some at a time, until an error; returns how many were synced and
/// the error's number.
fn fill_synced(path: &Path, limit: u64) -> (u64, Option<i32>) {
    const AT_ONCE: u64 = 16;
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap();
    for synced in (0..limit).step_by(AT_ONCE as usize) {
        let write =
            |n: u64| file.write_all_at(&[n as u8 ^ (n >> 8) as u8 | 1; BLOCK], n * BLOCK as u64);
        let done = (synced..synced + AT_ONCE).try_for_each(write).and_then(|()| file.sync_all());
        if let Err(e) = done {
            return (synced, e.raw_os_error());
        }
    }
    (limit, None)
}

#[test]
fn a_full_home_is_told_at_fsync_where_pages_are_written_back_and_what_was_synced_stays() {
    if skipped_unless_root("a full home at fsync") {
        return;
    }
    let Some(small) = Small::new(40) else { return };
    let home = small.at().join("db");
    fs::create_dir(&home).unwrap();
    fs::write(small.at().join("ballast"), vec![1; 12 << 20]).unwrap();
    let how = Options { atomic_pages: false, ..Options::default() };
    let mut mounted = Some(small.mount(&how));
    assert!(!mounted.as_ref().unwrap().report().atomic_pages);
    // Data beyond what tier and home hold together, in more than one file.
    let mut synced = Vec::new();
    for (name, limit) in [("a.d8", 400), ("b.d8", 12_000), ("c.d8", 12_000), ("d.pass", 12_000)] {
        let (blocks, error) = fill_synced(&home.join(name), limit);
        eprintln!("{name}: {blocks} blocks synced, then {error:?}");
        assert_eq!(error, (limit > 400).then_some(libc::ENOSPC), "{name}");
        synced.push((name, blocks));
    }
    let all_is_there = || synced.iter().for_each(|(name, blocks)| check(&home.join(name), *blocks));
    all_is_there();
    // Not from the page cache either.
    drop(unmounted(&mut mounted));
    mounted = Some(small.mount(&how));
    all_is_there();
    fs::remove_file(small.at().join("ballast")).unwrap();
    let more = home.join("more.d8");
    until("room to be noticed", || fill_synced(&more, 48) == (48, None));
    all_is_there();
    unmounted(&mut mounted).detach().unwrap();
    all_is_there();
    check(&more, 48);
}
