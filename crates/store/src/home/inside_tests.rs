//! A home that is a mount point: each step cut, on a bind mount and, with the power, on ext4.
//!
//! Everything here mounts, so it needs root; without it the tests say that they were skipped.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{
    Home, HomeError, NOTE_FILE, NOTE_MARKER, OpenMode, RealHome, files_aside, files_inside,
    finish_move, inside::Inside, vault_of,
};

/// Of closing and of opening, as `inside.rs` numbers them.
const CLOSING: std::ops::RangeInclusive<u32> = 30..=39;
const OPENING: std::ops::RangeInclusive<u32> = 40..=49;
/// The user who has the files.
const OWNER: u32 = 4711;

pub(crate) fn run(program: &str, args: &[&dyn AsRef<std::ffi::OsStr>]) -> bool {
    let mut command = Command::new(program);
    command.args(args.iter().map(|arg| arg.as_ref()));
    command.output().is_ok_and(|done| done.status.success())
}

/// A child that another test has just forked may hold it for a moment.
pub(crate) fn unmount(at: &Path) {
    let done = (0..200).any(|_| {
        let done = run("umount", &[&at]);
        if !done {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        done
    });
    assert!(done, "{} cannot be unmounted", at.display());
}

/// A home that a directory is mounted on; the last thing on it goes first.
struct Site {
    dir: tempfile::TempDir,
    mounted: Vec<PathBuf>,
}

impl Site {
    /// `None` where this may not mount.
    fn new(what: &str) -> Option<Self> {
        let site = Self::empty(what)?;
        fill(&site.home());
        Some(site)
    }

    fn empty(what: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("under")).unwrap();
        std::fs::create_dir(dir.path().join("home")).unwrap();
        let mut site = Self { dir, mounted: Vec::new() };
        site.put_back().then_some(()).or_else(|| {
            eprintln!("skipped: {what}, because nothing can be mounted here");
            None
        })?;
        Some(site)
    }

    fn put_back(&mut self) -> bool {
        let (under, home) = (self.dir.path().join("under"), self.home());
        let done = run("mount", &[&"--bind", &under, &home]);
        if done {
            self.mounted.push(home);
        }
        done
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    fn open(&self) -> RealHome {
        RealHome::open(&self.home()).unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        while let Some(at) = self.mounted.pop() {
            let _ = run("umount", &[&"-l", &at]);
        }
    }
}

/// What a database has, with what a directory may have besides.
fn fill(home: &Path) {
    std::fs::create_dir(home.join("d")).unwrap();
    for (name, holds) in [("a", "data"), ("d/b", "more"), ("z", "last"), (".tiersmith", "attached")]
    {
        std::fs::write(home.join(name), holds).unwrap();
    }
    chown(home, Some(OWNER), Some(OWNER + 1)).unwrap();
    std::fs::set_permissions(home, PermissionsExt::from_mode(0o2750)).unwrap();
}

fn is_whole(home: &RealHome) {
    for (name, holds) in [("a", "data"), ("d/b", "more"), ("z", "last")] {
        let mut into = [0; 4];
        let file = home.open(Path::new(name), OpenMode::READ).unwrap();
        assert_eq!(file.read_at(0, &mut into).unwrap(), 4, "{name}");
        assert_eq!(into, *holds.as_bytes(), "{name}");
    }
    assert_eq!(home.read_attachment().unwrap().unwrap(), b"attached");
}

fn is_open(at: &Path, left: &[&str]) {
    let home = RealHome::open(at).unwrap();
    is_whole(&home);
    assert!(!home.door_closed().unwrap());
    let mut names: Vec<_> = std::fs::read_dir(at)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let mut wanted = [&[".tiersmith", "a", "d", "z"], left].concat();
    wanted.sort_unstable();
    assert_eq!(names, wanted);
    let found = std::fs::metadata(at).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (OWNER, OWNER + 1, 0o2750));
}

fn is_closed(at: &Path) {
    let home = RealHome::open(at).unwrap();
    is_whole(&home);
    assert!(home.door_closed().unwrap());
    let note = std::fs::read_to_string(at.join(NOTE_FILE)).unwrap();
    assert!(note.starts_with(NOTE_MARKER) && note.contains("the tier is on /fast"), "{note}");
    assert!(note.contains(&*files_inside(at).to_string_lossy()), "{note}");
    let (top, vault) =
        (std::fs::metadata(at).unwrap(), std::fs::metadata(at.join(".tiersmith-home")).unwrap());
    assert_eq!((top.uid(), top.mode() & 0o7777), (0, 0o555));
    assert_eq!((vault.uid(), vault.mode() & 0o777), (0, 0o700));
    let files = std::fs::metadata(files_inside(at)).unwrap();
    assert_eq!((files.uid(), files.gid(), files.mode() & 0o7777), (OWNER, OWNER + 1, 0o2750));
    assert!(!at.join("a").exists());
}

/// Either every file is at the path and the database could start, or its user may not go in, or
/// there is none of its files.
fn no_back_door(at: &Path) {
    let here = ["a", "d", "z"].iter().filter(|name| at.join(name).exists()).count();
    let top = std::fs::metadata(at).unwrap();
    let locked = top.uid() == 0 && top.mode() & 0o077 == 0;
    assert!(
        here == 3 || here == 0 || locked,
        "{here} of 3 names are at a path that is open to its user"
    );
}

fn close(home: &RealHome) -> io::Result<()> {
    home.close_door("the tier is on /fast")
}

/// Opens it as a command does: what was interrupted is finished first.
fn found(at: &Path) -> RealHome {
    finish_move(at).unwrap();
    RealHome::open(at).unwrap()
}

#[test]
fn power_cut_before_each_step_of_closing_a_mount_point_leaves_a_home_that_closes_or_opens() {
    for step in CLOSING {
        for then_open in [true, false] {
            let Some(site) = Site::new("closing a mount point") else { return };
            let home = site.open();
            home.stop_at(step);
            close(&home).expect_err("the step was not reached");
            drop(home);
            no_back_door(&site.home());
            let home = found(&site.home());
            is_whole(&home);
            if then_open {
                home.open_door().unwrap()
            } else {
                close(&home).unwrap()
            }
            drop(home);
            if then_open { is_open(&site.home(), &[]) } else { is_closed(&site.home()) }
        }
    }
}

#[test]
fn power_cut_before_each_step_of_opening_a_mount_point_leaves_a_home_that_opens_or_closes() {
    for step in OPENING {
        for then_open in [true, false] {
            let Some(site) = Site::new("opening a mount point") else { return };
            close(&site.open()).unwrap();
            is_closed(&site.home());
            let home = site.open();
            home.stop_at(step);
            home.open_door().expect_err("the step was not reached");
            drop(home);
            no_back_door(&site.home());
            let home = found(&site.home());
            is_whole(&home);
            if then_open {
                home.open_door().unwrap()
            } else {
                close(&home).unwrap()
            }
            drop(home);
            if then_open { is_open(&site.home(), &[]) } else { is_closed(&site.home()) }
        }
    }
}

/// ext4 in a file, and what that file holds at the instant of a power cut.
pub(crate) struct Disk {
    dir: tempfile::TempDir,
    mounted: bool,
}

impl Disk {
    pub(crate) fn new(what: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        std::fs::create_dir(dir.path().join("home")).unwrap();
        let mut disk = Self { dir, mounted: false };
        if run("mkfs.ext4", &[&"-q", &"-F", &image]) && disk.mount(&image) {
            fill(&disk.home());
            assert!(run("sync", &[&"-f", &disk.home()]));
            return Some(disk);
        }
        eprintln!("skipped: {what}, because ext4 cannot be made and mounted in a file here");
        None
    }

    pub(crate) fn mount(&mut self, image: &Path) -> bool {
        self.mounted = run("mount", &[&"-o", &"loop", &image, &self.home()]);
        self.mounted
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// A copy of the file system as its disk has it now.
    pub(crate) fn copy(&self) -> PathBuf {
        let copy = self.dir.path().join("copy");
        std::fs::copy(self.dir.path().join("image"), &copy).unwrap();
        copy
    }

    /// The file system as a power cut now would leave it: what was not synced is not in it.
    pub(crate) fn cut(&mut self) {
        let (image, cut) = (self.dir.path().join("image"), self.dir.path().join("cut"));
        std::fs::copy(&image, &cut).unwrap();
        unmount(&self.home());
        assert!(self.mount(&cut), "the file system does not come back");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            let _ = run("umount", &[&"-l", &self.home()]);
        }
    }
}

#[test]
fn ext4_that_loses_power_before_each_step_has_a_home_that_closes_or_opens() {
    for step in CLOSING.chain(OPENING) {
        for then_open in [true, false] {
            let Some(mut disk) = Disk::new("power cuts of a mount point") else { return };
            let home = RealHome::open(&disk.home()).unwrap();
            if OPENING.contains(&step) {
                close(&home).unwrap();
                home.stop_at(step);
                home.open_door().expect_err("the step was not reached");
            } else {
                home.stop_at(step);
                close(&home).expect_err("the step was not reached");
            }
            drop(home);
            disk.cut();
            no_back_door(&disk.home());
            let home = found(&disk.home());
            is_whole(&home);
            if then_open {
                home.open_door().unwrap()
            } else {
                close(&home).unwrap()
            }
            drop(home);
            disk.cut_image_again();
            if then_open { is_open(&disk.home(), &["lost+found"]) } else { is_closed(&disk.home()) }
        }
    }
}

impl Disk {
    /// What returned is durable.
    fn cut_image_again(&mut self) {
        let (cut, again) = (self.dir.path().join("cut"), self.dir.path().join("again"));
        std::fs::copy(&cut, &again).unwrap();
        unmount(&self.home());
        assert!(self.mount(&again));
    }
}

#[test]
fn a_closed_mount_point_opens_after_its_file_system_was_mounted_again() {
    let Some(mut site) = Site::new("a mount point after a reboot") else { return };
    let home = site.open();
    let before = home.identity().unwrap();
    close(&home).unwrap();
    assert_ne!(home.identity().unwrap().ino, before.ino, "it is another directory now");
    is_whole(&home);
    drop(home);
    unmount(&site.mounted.pop().unwrap());
    assert!(site.put_back());
    is_closed(&site.home());
    let home = site.open();
    home.open_door().unwrap();
    // The same object goes on with the directory at the path.
    is_whole(&home);
    assert_eq!(home.identity().unwrap().ino, before.ino);
    home.remove_attachment().unwrap();
    assert!(!site.home().join(".tiersmith").exists());
    close(&home).unwrap();
    home.open_door().unwrap();
    assert_eq!(std::fs::read(site.home().join("z")).unwrap(), b"last");
}

#[test]
fn the_owner_of_a_mount_point_keeps_it_through_closing_and_opening() {
    let Some(site) = Site::new("who owns a mount point") else { return };
    let owner = site.open();
    owner.lock().unwrap();
    let refused = |when: &str| {
        let refused = site.open().lock().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock, "{when}: {refused}");
    };
    refused("open");
    close(&owner).unwrap();
    refused("closed");
    owner.open_door().unwrap();
    refused("open again");
    drop(owner);
    site.open().lock().unwrap();
}

#[test]
fn an_interrupted_move_is_not_finished_by_others_while_its_process_lives() {
    let Some(site) = Site::new("two who move a mount point") else { return };
    let home = site.open();
    home.lock().unwrap();
    home.stop_at(36);
    close(&home).unwrap_err();
    assert!(matches!(RealHome::open(&site.home()), Err(HomeError::Between { .. })));
    assert!(matches!(finish_move(&site.home()), Err(HomeError::Owned { .. })));
    drop(home);
    assert!(finish_move(&site.home()).unwrap());
    assert!(!finish_move(&site.home()).unwrap());
    is_open(&site.home(), &[]);
}

#[test]
fn what_lies_beside_the_note_of_a_mount_point_stops_the_way_back_and_is_named() {
    let Some(site) = Site::new("files beside the note") else { return };
    close(&site.open()).unwrap();
    std::fs::write(site.home().join("PG_VERSION"), "18").unwrap();
    // Not an interrupted move: the note is whole.
    assert!(!finish_move(&site.home()).unwrap());
    let home = site.open();
    let refused = home.open_door().unwrap_err();
    assert!(refused.to_string().contains("PG_VERSION"), "{refused}");
    std::fs::remove_file(site.home().join("PG_VERSION")).unwrap();
    is_closed(&site.home());
    // A name in the home that is taken at the top.
    std::fs::write(files_inside(&site.home()).join(NOTE_FILE), "mine").unwrap();
    let refused = home.open_door().unwrap_err();
    assert!(refused.to_string().contains(NOTE_FILE), "{refused}");
    is_closed(&site.home());
    std::fs::remove_file(files_inside(&site.home()).join(NOTE_FILE)).unwrap();
    home.open_door().unwrap();
    std::fs::write(site.home().join(NOTE_FILE), "mine").unwrap();
    let refused = close(&home).unwrap_err();
    assert!(refused.to_string().contains(NOTE_FILE), "{refused}");
    assert_eq!(std::fs::read(site.home().join(NOTE_FILE)).unwrap(), b"mine");
}

#[test]
fn a_home_whose_name_cannot_be_moved_is_as_it_was() {
    let Some(mut site) = Site::new("a file system inside a mount point") else { return };
    let other = site.home().join("d");
    assert!(run("mount", &[&"-t", &"tmpfs", &"tiersmith-test", &other]));
    site.mounted.push(other);
    let refused = close(&site.open()).unwrap_err();
    assert!(refused.to_string().contains("each name"), "{refused}");
    unmount(&site.mounted.pop().unwrap());
    is_open(&site.home(), &[]);
}

#[test]
fn a_vault_that_the_homes_owner_planted_is_not_believed() {
    let Some(site) = Site::new("a planted vault") else { return };
    let planted = files_inside(&site.home());
    std::fs::create_dir_all(&planted).unwrap();
    std::fs::write(planted.join("theirs"), "x").unwrap();
    std::fs::write(site.home().join(NOTE_FILE), NOTE_MARKER).unwrap();
    chown(planted.parent().unwrap(), Some(OWNER), None).unwrap();
    // With the note it is said, and not entered.
    assert!(matches!(RealHome::open(&site.home()), Err(HomeError::NoVault { .. })));
    std::fs::remove_file(site.home().join(NOTE_FILE)).unwrap();
    let home = site.open();
    is_whole(&home);
    let refused = close(&home).unwrap_err();
    assert!(refused.to_string().contains("belongs to user 4711"), "{refused}");
    assert_eq!(std::fs::read(planted.join("theirs")).unwrap(), b"x");
}

#[test]
fn attributes_and_access_lists_of_the_top_come_back() {
    use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
    let Some(disk) = Disk::new("attributes of a mount point") else { return };
    let at = std::fs::File::open(disk.home()).unwrap();
    fsetxattr(&at, "user.of", b"mine", XattrFlags::empty()).unwrap();
    // An access list: the owner rwx, user 99 r-x, the group r-x, mask r-x, others nothing.
    let entry = |tag: u16, rights: u16, id: u32| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let none = u32::MAX;
    let entries = [(1, 7, none), (2, 5, 99), (4, 5, none), (16, 5, none), (32, 0, none)];
    let list: Vec<u8> = 2u32
        .to_le_bytes()
        .into_iter()
        .chain(entries.into_iter().flat_map(|(tag, rights, id)| entry(tag, rights, id)))
        .collect();
    for name in ["system.posix_acl_access", "system.posix_acl_default"] {
        fsetxattr(&at, name, &list, XattrFlags::empty()).unwrap();
    }
    let read = |file: &std::fs::File, name: &str| {
        let mut value = vec![0; 256];
        fgetxattr(file, name, &mut value[..]).map(|len| value[..len].to_vec())
    };
    let home = RealHome::open(&disk.home()).unwrap();
    close(&home).unwrap();
    assert_eq!(
        std::fs::metadata(disk.home().join(".tiersmith-home")).unwrap().mode() & 0o777,
        0o700
    );
    let files = std::fs::File::open(files_inside(&disk.home())).unwrap();
    home.open_door().unwrap();
    for (file, when) in [(&files, "in the vault"), (&at, "back at the top")] {
        assert_eq!(read(file, "user.of").unwrap(), b"mine", "{when}");
        for name in ["system.posix_acl_access", "system.posix_acl_default"] {
            assert_eq!(read(file, name).unwrap(), list, "{when}: {name}");
        }
    }
    is_open(&disk.home(), &["lost+found"]);
}

#[test]
fn under_a_door_the_files_of_a_mount_point_are_found_by_the_second_way() {
    let Some(mut site) = Site::new("a door over a mount point") else { return };
    let owner = site.open();
    close(&owner).unwrap();
    let way = vault_of(&site.home());
    std::fs::create_dir(&way).unwrap();
    assert!(run("mount", &[&"--bind", &site.home().join(".tiersmith-home"), &way]));
    site.mounted.push(way);
    assert!(run("mount", &[&"-t", &"tmpfs", &"tiersmith-test", &site.home()]));
    site.mounted.push(site.home());
    let home = RealHome::open(&site.home()).unwrap();
    is_whole(&home);
    assert!(home.door_closed().unwrap());
    close(&home).unwrap();
    assert_eq!(std::fs::read(files_aside(&site.home()).join("a")).unwrap(), b"data");
    for home in [&home, &owner] {
        assert!(home.open_door().unwrap_err().to_string().contains("mount point"));
    }
    unmount(&site.mounted.pop().unwrap());
    home.open_door().unwrap();
    is_open(&site.home(), &[]);
}

#[test]
fn who_is_not_root_cannot_close_a_mount_point() {
    let Some(site) = Site::new("a mount point without root") else { return };
    std::fs::set_permissions(site.dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let refused = std::thread::spawn({
        let at = site.home();
        move || {
            let (group, user) =
                (rustix::fs::Gid::from_raw(OWNER + 1), rustix::fs::Uid::from_raw(OWNER));
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            close(&RealHome::open(&at).unwrap()).unwrap_err().to_string()
        }
    });
    let refused = refused.join().unwrap();
    assert!(refused.contains("only root"), "{refused}");
    is_open(&site.home(), &[]);
}

#[test]
fn an_opening_that_fails_and_is_undone_keeps_every_file_through_a_power_cut() {
    for step in OPENING {
        let Some(mut disk) = Disk::new("undoing the opening of a mount point") else { return };
        let home = RealHome::open(&disk.home()).unwrap();
        close(&home).unwrap();
        home.fail_at(step);
        home.open_door().expect_err("the step was not reached");
        close(&home).unwrap();
        is_whole(&home);
        drop(home);
        disk.cut();
        is_closed(&disk.home());
        let home = found(&disk.home());
        is_whole(&home);
        home.open_door().unwrap();
        drop(home);
        is_open(&disk.home(), &["lost+found"]);
    }
}

#[test]
fn a_closing_that_fails_at_any_step_leaves_the_home_as_it_was() {
    for step in CLOSING {
        let Some(site) = Site::new("a fault of closing a mount point") else { return };
        let home = site.open();
        home.fail_at(step);
        close(&home).expect_err("the step was not reached");
        drop(home);
        is_open(&site.home(), &[]);
    }
}

#[test]
fn without_the_note_what_lies_at_the_top_of_an_attached_mount_point_is_no_part_of_a_move() {
    let Some(site) = Site::new("a mount point without its note") else { return };
    close(&site.open()).unwrap();
    std::fs::remove_file(site.home().join(NOTE_FILE)).unwrap();
    std::fs::write(site.home().join("PG_VERSION"), "18").unwrap();
    assert!(!finish_move(&site.home()).unwrap(), "stale files are given to the database's user");
    let home = site.open();
    is_whole(&home);
    for refused in [close(&home), home.open_door()] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("PG_VERSION") && refused.contains("elsewhere"), "{refused}");
    }
    assert!(!site.home().join("a").exists() && !site.home().join(NOTE_FILE).exists());
    std::fs::remove_file(site.home().join("PG_VERSION")).unwrap();
    close(&home).unwrap();
    is_closed(&site.home());
}

#[test]
fn a_file_that_is_made_while_the_top_is_being_locked_moves_with_the_others() {
    let Some(site) = Site::new("a file made while a mount point is closed") else { return };
    let top = std::fs::File::open(site.home()).unwrap().into();
    let step = |step: u32| match step {
        // Before the lock, and after everything that came before it.
        34 => std::fs::write(site.home().join("late"), "late"),
        _ => Ok(()),
    };
    let inside = Inside { top: &top, path: &site.home(), step: &step };
    inside.close(&format!("{NOTE_MARKER}\n"), &mut |_| Ok(())).unwrap();
    assert!(!site.home().join("late").exists());
    assert_eq!(std::fs::read(files_inside(&site.home()).join("late")).unwrap(), b"late");
}

#[test]
fn what_has_the_vaults_name_and_is_no_directory_is_no_vault() {
    let Some(site) = Site::new("a file with the vault's name") else { return };
    let ordinary = tempfile::tempdir().unwrap();
    fill(ordinary.path());
    for link in [false, true] {
        for home in [site.home(), ordinary.path().to_path_buf()] {
            let at = home.join(".tiersmith-home");
            let _ = std::fs::remove_file(&at);
            match link {
                true => std::os::unix::fs::symlink("a", &at).unwrap(),
                false => std::fs::write(&at, "mine").unwrap(),
            }
            assert!(!finish_move(&home).unwrap());
            is_open(&home, &[".tiersmith-home"]);
        }
        let refused = close(&site.open()).unwrap_err().to_string();
        assert!(refused.contains(".tiersmith-home is no directory"), "{refused}");
        is_open(&site.home(), &[".tiersmith-home"]);
        // A home that is no mount point has its vault elsewhere.
        let home = RealHome::open(ordinary.path()).unwrap();
        close(&home).unwrap();
        home.open_door().unwrap();
        drop(home);
        is_open(ordinary.path(), &[".tiersmith-home"]);
    }
    // In a vault that is one, in place of the files.
    std::fs::remove_file(site.home().join(".tiersmith-home")).unwrap();
    close(&site.open()).unwrap();
    let (files, kept) = (files_inside(&site.home()), site.home().join("kept"));
    std::fs::rename(&files, &kept).unwrap();
    std::fs::write(&files, "mine").unwrap();
    let refused = RealHome::open(&site.home()).unwrap_err().to_string();
    assert!(refused.contains("/home is no directory"), "{refused}");
    std::fs::remove_file(&files).unwrap();
    std::fs::rename(&kept, &files).unwrap();
    is_closed(&site.home());
}

#[test]
fn a_directory_of_roots_with_the_vaults_name_is_not_taken_for_a_vault() {
    // Two that are not locked, and one that is, but says nothing of Tiersmith.
    for (owner, mode) in [(OWNER, 0o700), (0, 0o755), (0, 0o700)] {
        let Some(site) = Site::new("root's own directory in a mount point") else { return };
        let vault = site.home().join(".tiersmith-home");
        let theirs = files_inside(&site.home()).join("theirs");
        std::fs::create_dir_all(theirs.parent().unwrap()).unwrap();
        std::fs::write(&theirs, "x").unwrap();
        std::fs::set_permissions(&vault, PermissionsExt::from_mode(mode)).unwrap();
        chown(&vault, Some(owner), Some(owner)).unwrap();
        assert!(!finish_move(&site.home()).unwrap());
        is_open(&site.home(), &[".tiersmith-home"]);
        let refused = close(&site.open()).unwrap_err().to_string();
        assert!(refused.contains(".tiersmith-home") && refused.contains("0700"), "{refused}");
        is_open(&site.home(), &[".tiersmith-home"]);
        assert_eq!(std::fs::read(&theirs).unwrap(), b"x");
    }
}

#[test]
fn a_vault_that_was_opened_to_others_is_refused_until_it_is_locked_again() {
    let Some(site) = Site::new("a vault that root opened") else { return };
    close(&site.open()).unwrap();
    let vault = site.home().join(".tiersmith-home");
    let refused = |found: &str| {
        for refused in [RealHome::open(&site.home()).map(drop), finish_move(&site.home()).map(drop)]
        {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(found) && refused.contains("chmod 0700"), "{refused}");
        }
    };
    // What an entry point does that gives its volume to the database's user.
    chown(&vault, Some(OWNER), Some(OWNER)).unwrap();
    refused("belongs to user 4711");
    chown(&vault, Some(0), Some(0)).unwrap();
    std::fs::set_permissions(&vault, PermissionsExt::from_mode(0o755)).unwrap();
    refused("has mode 0755");
    std::fs::set_permissions(&vault, PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::remove_file(vault.join(NOTE_FILE)).unwrap();
    refused(NOTE_FILE);
    // As the message says.
    std::fs::copy(site.home().join(NOTE_FILE), vault.join(NOTE_FILE)).unwrap();
    is_closed(&site.home());
    site.open().open_door().unwrap();
    is_open(&site.home(), &[]);
}

#[test]
fn a_vault_that_was_only_begun_is_removed() {
    let Some(site) = Site::new("a vault that was begun") else { return };
    for torn in [false, true] {
        let vault = site.home().join(".tiersmith-home");
        std::fs::create_dir(&vault).unwrap();
        std::fs::set_permissions(&vault, PermissionsExt::from_mode(0o700)).unwrap();
        if torn {
            std::fs::write(vault.join(NOTE_FILE), "This is").unwrap();
        }
        assert!(finish_move(&site.home()).unwrap());
        is_open(&site.home(), &[]);
    }
}

#[test]
fn a_top_that_has_all_its_files_is_not_locked_again() {
    let Some(site) = Site::new("a mount point whose files have not moved") else { return };
    let home = site.open();
    home.stop_at(34);
    close(&home).unwrap_err();
    drop(home);
    // A server may have been started there.
    let top = std::fs::File::open(site.home()).unwrap().into();
    let step = |step: u32| match step {
        40 => Err(std::io::Error::other("it is locked")),
        _ => Ok(()),
    };
    Inside { top: &top, path: &site.home(), step: &step }.open().unwrap();
    is_open(&site.home(), &[]);
}

#[test]
fn a_move_is_not_finished_while_somebody_has_the_files() {
    let Some(site) = Site::new("two who move a mount point back") else { return };
    let home = site.open();
    close(&home).unwrap();
    home.stop_at(43);
    home.open_door().unwrap_err();
    drop(home);
    let files = std::fs::File::open(files_inside(&site.home())).unwrap();
    files.lock().unwrap();
    assert!(matches!(finish_move(&site.home()), Err(HomeError::Owned { .. })));
    files.unlock().unwrap();
    assert!(finish_move(&site.home()).unwrap());
    is_open(&site.home(), &[]);
}
