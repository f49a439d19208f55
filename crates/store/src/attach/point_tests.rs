//! Which tier belongs to a home that is a mount point: after faults of a detach, cuts, and copies
//! of its file system.
//!
//! Everything here mounts, so it needs root; without it the tests say that they were skipped.

use super::{Guard, Medium, Options, TierSpec, attach, map_and_attach};
use crate::OpenMode;
use crate::api::AttachedHome;
use crate::error::Result;
use crate::format::superblock::{COPY_AT, SUPERBLOCK, Superblock, TierState};
use crate::home::inside_tests::{Disk, run, unmount};
use crate::home::{Home, RealHome};
use crate::medium::held::Held;
use crate::profile::Profile;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// A mount point with files, and where its tier goes.
struct Site {
    disk: Disk,
    tier: PathBuf,
    _fast: tempfile::TempDir,
}

impl Site {
    fn new(what: &str) -> Option<Self> {
        let disk = Disk::new(what)?;
        fs::remove_file(disk.home().join(".tiersmith")).unwrap();
        let fast = tempfile::tempdir().unwrap();
        Some(Self { disk, tier: fast.path().join("fast"), _fast: fast })
    }

    fn spec(&self) -> TierSpec {
        let spec = TierSpec::new("fast", self.tier.clone(), Medium::Emulated, 4 << 20);
        TierSpec { unit: 64 << 10, lanes: 4, slots: 16, ..spec }
    }

    fn attach_at(&self, home: &Path) -> Result<AttachedHome> {
        attach(home, &[self.spec()], options(Guard::MoveAside))
    }

    fn attach(&self) -> Result<AttachedHome> {
        self.attach_at(&self.disk.home())
    }

    /// Attached by this very object, which a test can make fail.
    fn attach_by(&self, real: Arc<RealHome>) -> AttachedHome {
        real.lock().unwrap();
        let places = vec![Held::all(&self.spec().members).unwrap()];
        let (specs, began) = ([self.spec()], Instant::now());
        let options = options(Guard::MoveAside);
        map_and_attach(real, &specs, &places, &mut Vec::new(), options, began).unwrap()
    }

    /// Changes the superblocks of the tier at rest.
    fn edit(&self, change: impl Fn(&mut Superblock)) {
        let file = fs::File::options().read(true).write(true).open(&self.tier).unwrap();
        for at in COPY_AT {
            let mut bytes = [0; SUPERBLOCK];
            file.read_exact_at(&mut bytes, at).unwrap();
            let mut superblock = Superblock::decode(&bytes).unwrap();
            change(&mut superblock);
            superblock.seq += 1;
            file.write_all_at(&superblock.encode(), at).unwrap();
        }
    }

    /// Attached and detached once more, it is a plain directory with what was written.
    fn comes_back_with(&self, written: &[u8], when: &str) {
        let home = self.attach().unwrap_or_else(|e| panic!("{when}: {e}"));
        assert_eq!(read(&home), written, "{when}");
        home.detach().unwrap();
        self.is_plain_with(written, when);
    }

    fn is_plain_with(&self, written: &[u8], when: &str) {
        let home = self.disk.home();
        let mut names: Vec<_> =
            fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a", "d", "lost+found", "z"], "{when}");
        assert_eq!(fs::read(home.join("a")).unwrap(), written, "{when}");
        assert_eq!(fs::read(home.join("d/b")).unwrap(), b"more", "{when}");
        assert_eq!(fs::read(home.join("z")).unwrap(), b"last", "{when}");
    }
}

fn options(guard: Guard) -> Options {
    let profile = Some(Profile::named("generic").unwrap());
    Options { profile, background: false, guard, ..Options::default() }
}

fn write(home: &AttachedHome, bytes: &[u8]) {
    home.open("a", OpenMode::WRITE).unwrap().write(0, bytes).unwrap();
}

fn read(home: &AttachedHome) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    let _ = home.open("a", OpenMode::READ).unwrap().read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_detach_of_a_mount_point_that_fails_goes_on_or_is_served_no_more_and_loses_nothing() {
    for (step, lifted) in (40..=50).flat_map(|step| [(step, true), (step, false)]) {
        let when = format!("step {step}, lifted: {lifted}");
        let Some(mut site) = Site::new("a failing detach of a mount point") else { return };
        let real = Arc::new(RealHome::open(&site.disk.home()).unwrap());
        let home = site.attach_by(real.clone());
        write(&home, b"new1");
        let again = home.clone();
        if lifted {
            real.fail_at(step)
        } else {
            real.stop_at(step)
        }
        let said = home.detach().unwrap_err().to_string();
        if lifted {
            assert_eq!(read(&again), b"new1", "{when}");
            assert!(again.home().read_attachment().unwrap().is_some(), "{when}: without its note");
            write(&again, b"new2");
        } else {
            assert!(said.contains("not served"), "{when}: {said}");
            assert!(again.background_step().is_err(), "{when}: it is served still");
        }
        drop((again, real));
        site.disk.cut();
        site.comes_back_with(if lifted { b"new2" } else { b"new1" }, &when);
    }
}

#[test]
fn a_tier_that_names_the_top_belongs_to_a_mount_point_whose_files_have_moved() {
    for state in [TierState::Attached, TierState::Detaching] {
        let Some(mut site) = Site::new("a cut between the files and the tier") else { return };
        let home = attach(&site.disk.home(), &[site.spec()], options(Guard::Door)).unwrap();
        write(&home, b"new1");
        drop(home);
        site.edit(|sb| sb.state = state);
        RealHome::open(&site.disk.home()).unwrap().close_door("moved").unwrap();
        site.disk.cut();
        site.comes_back_with(b"new1", &format!("{state:?}"));
    }
}

#[test]
fn a_copy_of_the_file_system_is_refused_while_the_original_is_there() {
    let Some(site) = Site::new("a snapshot of a mount point") else { return };
    let home = site.attach().unwrap();
    write(&home, b"new1");
    drop(home);
    assert!(run("sync", &[&"-f", &site.disk.home()]));
    let other = tempfile::tempdir().unwrap();
    let at = other.path().canonicalize().unwrap().join("copy");
    fs::create_dir(&at).unwrap();
    let image = site.disk.copy();
    assert!(run("mount", &[&"-o", &"loop", &image, &at]));
    let copy = site.attach_at(&at).map(drop);
    unmount(&at);
    let said = copy.unwrap_err().to_string();
    assert!(said.contains("same home twice") && said.contains(&*at.to_string_lossy()), "{said}");
    // Reached by another path it is no copy.
    assert!(run("mount", &[&"--bind", &site.disk.home(), &at]));
    let bound = site.attach_at(&at).map(drop);
    unmount(&at);
    bound.unwrap();
    site.comes_back_with(b"new1", "the original");
}

#[test]
fn the_top_of_another_file_system_is_not_taken_for_the_home_by_its_inode_number() {
    let Some(site) = Site::new("a top without a birth time") else { return };
    let home = attach(&site.disk.home(), &[site.spec()], options(Guard::Door)).unwrap();
    drop(home);
    let path = site.disk.home().canonicalize().unwrap();
    site.edit(|sb| {
        sb.home_btime_ns = 0;
        sb.home_path = b"/elsewhere/db".to_vec();
    });
    let said = site.attach().map(drop).unwrap_err().to_string();
    assert!(said.contains("is a copy of the home /elsewhere/db"), "{said}");
    site.edit(|sb| sb.home_path = path.as_os_str().as_bytes().to_vec());
    site.comes_back_with(b"data", "at the path that the tier names");
}
