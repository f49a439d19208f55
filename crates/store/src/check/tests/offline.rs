//! The check of real files, with a real directory as the home.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, StatxFlags};

use super::super::{CheckError, CheckOptions, Severity, check};
use super::build::{Build, put};
use super::{kinds, sample};

fn write_members(dir: &Path, build: &Build) -> Vec<PathBuf> {
    let paths: Vec<PathBuf> =
        (0..build.images.len()).map(|n| dir.join(format!("member-{n}"))).collect();
    for (path, image) in paths.iter().zip(&build.images) {
        fs::write(path, image).unwrap();
    }
    paths
}

#[test]
fn member_files_are_checked_like_images_and_left_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let mut s = sample(3);
    let (_, at) = s.build.place(12);
    s.build.images[1][at as usize + 8191] = 1;
    let paths = write_members(dir.path(), &s.build);
    let report = check(None, &paths, &CheckOptions::default()).unwrap();
    assert_eq!(report, super::super::check_images(&s.build.views(), None));
    for (path, image) in paths.iter().zip(&s.build.images) {
        assert!(fs::read(path).unwrap() == *image);
    }
}

#[test]
fn a_real_home_is_compared_also_when_it_is_moved_aside() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    fs::create_dir_all(home.join("base")).unwrap();
    fs::write(home.join("base/1"), [5; 6000]).unwrap();
    let stat = |path: &Path| {
        let dir = fs::File::open(path).unwrap();
        let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let stat = rustix::fs::statx(dir, "", AtFlags::EMPTY_PATH, mask).unwrap();
        let birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
        (
            stat.stx_ino,
            if birth {
                stat.stx_btime.tv_sec as u64 * 1_000_000_000 + u64::from(stat.stx_btime.tv_nsec)
            } else {
                0
            },
        )
    };
    let mut build = Build::new(1, 4);
    let (ino, btime) = stat(&home.join("base/1"));
    let meta = fs::metadata(home.join("base/1")).unwrap();
    let mut f = super::File::new(0, 3, 0, 6000);
    (f.ino, f.path) = (ino, "base/1");
    f.mtime = meta.mtime() as u64 * 1_000_000_000 + meta.mtime_nsec() as u64;
    build.file(&f);
    build.leaf0(&f, 0);
    build.fill(8, &[5; 1904]);
    build.entry(&f, 0, 1, super::CACHED, 8);
    // The builder's birth time is no real one.
    let slot = build.slot_at(0);
    let mut identity = build.images[0][slot as usize + 16..slot as usize + 56].to_vec();
    put(&mut identity, 16, &btime.to_le_bytes());
    let sum = xxhash_rust::xxh3::xxh3_64_with_seed(&identity, build.seed ^ 3);
    put(&mut build.images[0], slot + 16, &identity);
    put(&mut build.images[0], slot + 56, &sum.to_le_bytes());
    let mut sb = build.superblock_bytes(0);
    let (ino, btime) = stat(&home);
    put(&mut sb, 144, &ino.to_le_bytes());
    put(&mut sb, 152, &btime.to_le_bytes());
    let sum = xxhash_rust::xxh3::xxh3_64_with_seed(&sb[..4088], 0x5449_4552_534d_5448);
    put(&mut sb, 4088, &sum.to_le_bytes());
    for at in [0, 4096] {
        put(&mut build.images[0], at, &sb);
    }
    let members = write_members(dir.path(), &build);

    let report = check(Some(&home), &members, &CheckOptions::default()).unwrap();
    assert_eq!(kinds(&report), [], "{report}");
    assert!(report.summary.home_compared);

    let aside = crate::home::files_aside(&home);
    fs::create_dir(aside.parent().unwrap()).unwrap();
    fs::rename(&home, &aside).unwrap();
    fs::create_dir(&home).unwrap();
    assert!(check(Some(&home), &members, &CheckOptions::default()).unwrap().is_sound());

    fs::write(aside.join("base/1"), [6; 6000]).unwrap();
    let report = check(Some(&home), &members, &CheckOptions::default()).unwrap();
    assert!(kinds(&report).contains(&(Severity::Inconsistent, 13)), "{report}");

    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    for path in [other, dir.path().join("missing")] {
        let error = check(Some(&path), &members, &CheckOptions::default()).unwrap_err();
        assert!(matches!(error, CheckError::Home { .. }), "{error}");
    }
}

#[test]
fn a_tier_in_use_is_refused_and_its_owner_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut s = sample(1);
    put(&mut s.build.images[0], 8192, b"postgres on db1, process 4711");
    let paths = write_members(dir.path(), &s.build);
    let owner = fs::File::open(&paths[0]).unwrap();
    rustix::fs::flock(&owner, FlockOperation::NonBlockingLockExclusive).unwrap();
    let error = check(None, &paths, &CheckOptions::default()).unwrap_err();
    assert!(error.to_string().contains("in use by postgres on db1, process 4711"), "{error}");
    drop(owner);
    assert!(check(None, &paths, &CheckOptions::default()).is_ok());
}

#[test]
fn each_thing_that_is_no_tier_has_its_own_message() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m");
    let says = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        check(None, std::slice::from_ref(&path), &CheckOptions::default()).unwrap_err().to_string()
    };
    let text = says(&[b'x'; 10000]);
    assert!(text.contains("is no Tiersmith tier: it begins with \"xxxxxxxx\""), "{text}");
    let text = says(&[0; 10000]);
    assert!(text.contains("both superblock copies are zero"), "{text}");
    let mut newer = sample(1).build.images.remove(0);
    for at in [0, 4096] {
        newer[at + 8] = 3;
        let sum =
            xxhash_rust::xxh3::xxh3_64_with_seed(&newer[at..at + 4088], 0x5449_4552_534d_5448);
        put(&mut newer, at as u64 + 4088, &sum.to_le_bytes());
    }
    let text = says(&newer);
    assert!(text.contains("has format version 3, this program reads version 2"), "{text}");
    let mut older = sample(1).build.images.remove(0);
    put(&mut older, 4096, b"TIERSMTH");
    assert!(says(&older).contains("made by a development build"), "{text}");
    for (paths, words) in [
        (vec![], "no member"),
        (vec![dir.path().to_path_buf()], "is a directory"),
        (vec![dir.path().join("missing")], "No such file"),
    ] {
        let text = check(None, &paths, &CheckOptions::default()).unwrap_err().to_string();
        assert!(text.contains(words), "{text}");
    }
}
