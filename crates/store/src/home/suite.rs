//! One suite for every kind of home, and what only a real one has: links, mounts and the way aside.

use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::*;

fn p(path: &str) -> &Path {
    Path::new(path)
}

fn both(claim: impl Fn(&dyn Home)) {
    claim(&SimHome::new(None));
    let dir = tempfile::tempdir().unwrap();
    claim(&RealHome::open(dir.path()).unwrap());
}

fn kind_of<T: Debug>(r: io::Result<T>) -> ErrorKind {
    r.unwrap_err().kind()
}

fn contents(home: &dyn Home, path: &str) -> Vec<u8> {
    let file = home.open(p(path), OpenMode::READ).unwrap();
    let mut bytes = vec![0; file.stat().unwrap().size as usize];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn put(home: &dyn Home, path: &str, bytes: &[u8]) {
    home.open(p(path), OpenMode::CREATE).unwrap().write_at(0, bytes).unwrap();
}

fn walked(home: &dyn Home) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    home.walk(&mut |path, s| {
        found.push((path.to_path_buf(), s.size));
        Ok(())
    })
    .unwrap();
    found
}

#[test]
fn what_was_written_is_read_up_to_the_end_of_the_file() {
    both(|home| {
        let file = home.open(p("a"), OpenMode::CREATE).unwrap();
        file.write_at(3, b"abc").unwrap();
        let mut into = [9u8; 10];
        assert_eq!(file.read_at(0, &mut into).unwrap(), 6);
        assert_eq!(into, *b"\0\0\0abc\x09\x09\x09\x09");
        assert_eq!(file.read_at(6, &mut into).unwrap(), 0);
        assert_eq!(file.read_at(1 << 40, &mut into).unwrap(), 0);
        file.set_len(4).unwrap();
        file.set_len(6).unwrap();
        file.sync().unwrap();
        assert_eq!(contents(home, "a"), b"\0\0\0a\0\0");
        let s = home.stat(p("a")).unwrap();
        assert_eq!((s.size, s.nlink, s.kind), (6, 1, FileKind::Regular));
        assert_eq!(s, file.stat().unwrap());
    });
}

#[test]
fn open_modes_do_what_they_say() {
    both(|home| {
        assert_eq!(kind_of(home.open(p("a"), OpenMode::WRITE)), ErrorKind::NotFound);
        assert_eq!(kind_of(home.open(p("d/a"), OpenMode::CREATE)), ErrorKind::NotFound);
        home.open(p("a"), OpenMode::CREATE_NEW).unwrap();
        assert_eq!(kind_of(home.open(p("a"), OpenMode::CREATE_NEW)), ErrorKind::AlreadyExists);
        home.open(p("a"), OpenMode::CREATE).unwrap();
        assert!(home.open(p("a"), OpenMode::READ).unwrap().write_at(0, b"x").is_err());
        home.create_dir(p("d")).unwrap();
        assert_eq!(kind_of(home.open(p("d"), OpenMode::WRITE)), ErrorKind::IsADirectory);
        assert_eq!(kind_of(home.open(p("a/b"), OpenMode::WRITE)), ErrorKind::NotADirectory);
        for bad in ["/a", "../a", "d/../a", ""] {
            assert_eq!(
                kind_of(home.open(p(bad), OpenMode::CREATE)),
                ErrorKind::InvalidInput,
                "{bad}"
            );
        }
    });
}

#[test]
fn an_open_file_survives_rename_and_unlink() {
    both(|home| {
        let file = home.open(p("a"), OpenMode::CREATE).unwrap();
        file.write_at(0, b"one").unwrap();
        put(home, "b", b"two");
        let ino = file.stat().unwrap().ino;
        home.rename(p("a"), p("b")).unwrap();
        assert_eq!(kind_of(home.stat(p("a"))), ErrorKind::NotFound);
        assert_eq!(home.stat(p("b")).unwrap().ino, ino);
        home.link(p("b"), p("c")).unwrap();
        assert_eq!(file.stat().unwrap().nlink, 2);
        assert_eq!(kind_of(home.link(p("b"), p("c"))), ErrorKind::AlreadyExists);
        home.unlink(p("b")).unwrap();
        home.unlink(p("c")).unwrap();
        file.write_at(3, b"!").unwrap();
        let mut into = [0; 4];
        file.read_at(0, &mut into).unwrap();
        assert_eq!((&into, file.stat().unwrap().nlink), (b"one!", 0));
        assert_eq!(kind_of(home.unlink(p("b"))), ErrorKind::NotFound);
    });
}

#[test]
fn names_are_exchanged_and_not_replaced_where_that_is_asked() {
    both(|home| {
        put(home, "a", b"one");
        put(home, "b", b"two");
        home.create_dir(p("d")).unwrap();
        put(home, "d/x", b"three");
        let refused = home.rename_with(p("a"), p("b"), RenameFlags::NoReplace);
        assert_eq!(kind_of(refused), ErrorKind::AlreadyExists);
        home.rename_with(p("a"), p("c"), RenameFlags::NoReplace).unwrap();
        home.rename_with(p("c"), p("b"), RenameFlags::Exchange).unwrap();
        assert_eq!((contents(home, "b"), contents(home, "c")), (b"one".to_vec(), b"two".to_vec()));
        home.rename_with(p("d"), p("b"), RenameFlags::Exchange).unwrap();
        assert_eq!(
            (contents(home, "d"), contents(home, "b/x")),
            (b"one".to_vec(), b"three".to_vec())
        );
        assert_eq!(
            kind_of(home.rename_with(p("c"), p("none"), RenameFlags::Exchange)),
            ErrorKind::NotFound
        );
        assert_eq!(
            kind_of(home.rename_with(p("../c"), p("e"), RenameFlags::Exchange)),
            ErrorKind::InvalidInput
        );
        home.rename_with(p("c"), p("d"), RenameFlags::None).unwrap();
        assert_eq!(walked(home), [("b/x".into(), 5), ("d".into(), 3)]);
    });
}

#[test]
fn ranges_are_cleared_and_reserved_and_times_set() {
    both(|home| {
        let file = home.open(p("a"), OpenMode::CREATE).unwrap();
        file.write_at(0, &[7; 20000]).unwrap();
        for how in [Clear::Punch, Clear::Zero] {
            match file.clear(4096, 100_000, how) {
                Err(e) if e.kind() == ErrorKind::Unsupported => {
                    eprintln!("skipped: {how:?}, because this file system has none")
                }
                other => other.unwrap(),
            }
        }
        file.allocate(0, 100_000).unwrap_or_else(|e| assert_eq!(e.kind(), ErrorKind::Unsupported));
        assert_eq!(file.stat().unwrap().size, 20000);
        assert!(contents(home, "a")[..4096] == [7; 4096]);
        assert_eq!((file.next_data(0).unwrap(), file.next_data(20000).unwrap()), (Some(0), None));
        assert!(file.next_hole(0).unwrap().is_some_and(|at| at == 4096 || at == 20000));
        assert_eq!(file.next_hole(20001).unwrap(), None);
        let time = FileTime { sec: 1_234_567_890, nsec: 0 };
        file.set_times(None, Some(time)).unwrap();
        assert_eq!(file.stat().unwrap().mtime_ns, time.wrapped_ns());
        file.set_times(Some(time), None).unwrap();
        assert_eq!(file.stat().unwrap().mtime_ns, time.wrapped_ns());
        file.write_at(0, b"x").unwrap();
        assert!(file.stat().unwrap().mtime_ns > time.wrapped_ns());
    });
}

#[test]
fn directories_move_with_what_is_in_them() {
    both(|home| {
        home.create_dir(p("d")).unwrap();
        home.create_dir(p("d/e")).unwrap();
        put(home, "d/e/f", b"x");
        assert_eq!(kind_of(home.create_dir(p("d"))), ErrorKind::AlreadyExists);
        assert_eq!(kind_of(home.remove_dir(p("d"))), ErrorKind::DirectoryNotEmpty);
        assert_eq!(kind_of(home.rename(p("d"), p("d/g"))), ErrorKind::InvalidInput);
        home.rename(p("d"), p("g")).unwrap();
        assert_eq!(contents(home, "g/e/f"), b"x");
        home.sync_dir(p("g/e/f")).unwrap();
        home.sync_dir(p("")).unwrap();
        assert_eq!(kind_of(home.sync_dir(p("d/x"))), ErrorKind::NotFound);
        home.unlink(p("g/e/f")).unwrap();
        home.remove_dir(p("g/e")).unwrap();
        assert_eq!(kind_of(home.stat(p("g/e"))), ErrorKind::NotFound);
        assert_eq!(home.stat(p("g")).unwrap().kind, FileKind::Directory);
    });
}

#[test]
fn walk_gives_ordinary_files_in_order_without_our_own() {
    both(|home| {
        home.create_dir(p("base")).unwrap();
        home.create_dir(p("base/1")).unwrap();
        for (path, bytes) in [("z", "zz"), ("base/1/7", "1"), ("base.x", "22"), ("a", "")] {
            put(home, path, bytes.as_bytes());
        }
        home.write_attachment(b"note").unwrap();
        let want = [("a", 0), ("base/1/7", 1), ("base.x", 2), ("z", 2)]
            .map(|(n, s)| (PathBuf::from(n), s));
        assert_eq!(walked(home), want);
        // `each` may call the home.
        home.walk(&mut |path, _| home.unlink(path)).unwrap();
        assert_eq!(walked(home), []);
    });
}

#[test]
fn the_attachment_note_is_replaced_as_a_whole_and_removed_for_good() {
    both(|home| {
        assert_eq!(home.read_attachment().unwrap(), None);
        home.write_attachment(b"a longer note").unwrap();
        home.write_attachment(b"short").unwrap();
        assert_eq!(home.read_attachment().unwrap().unwrap(), b"short");
        home.remove_attachment().unwrap();
        home.remove_attachment().unwrap();
        assert_eq!(home.read_attachment().unwrap(), None);
    });
}

#[test]
fn a_changed_file_has_a_new_time_and_a_new_file_another_identity() {
    both(|home| {
        put(home, "a", b"1");
        let one = home.stat(p("a")).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        put(home, "a", b"2");
        let two = home.stat(p("a")).unwrap();
        assert!(two.same_file(one.ino, one.generation, one.btime_ns));
        assert!(two.mtime_ns > one.mtime_ns);
        home.unlink(p("a")).unwrap();
        put(home, "a", b"2");
        let three = home.stat(p("a")).unwrap();
        assert!(!three.same_file(one.ino, one.generation, one.btime_ns));
        assert_eq!(home.identity().unwrap().kind, FileKind::Directory);
    });
}

#[test]
fn a_second_owner_is_refused_until_the_first_has_gone() {
    let sim = SimHome::new(None);
    let other = sim.another();
    let dir = tempfile::tempdir().unwrap();
    let open = || Box::new(RealHome::open(dir.path()).unwrap()) as Box<dyn Home>;
    let pairs: [(Box<dyn Home>, Box<dyn Home>); 2] =
        [(Box::new(sim), Box::new(other)), (open(), open())];
    for (first, second) in pairs {
        first.lock().unwrap();
        first.lock().unwrap();
        let refused = second.lock().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        assert!(refused.to_string().contains("in use by another"), "{refused}");
        drop(first);
        second.lock().unwrap();
    }
}

#[test]
fn the_door_closes_and_opens_and_files_stay_in_reach() {
    let sim = SimHome::new(None);
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("home")).unwrap();
    let real = RealHome::open(&dir.path().join("home")).unwrap();
    for home in [&sim as &dyn Home, &real] {
        put(home, "a", b"data");
        for _ in 0..2 {
            assert!(!home.door_closed().unwrap());
            home.close_door("the tier is on /fast").unwrap();
            home.close_door("the tier is on /fast").unwrap();
            assert!(home.door_closed().unwrap());
            assert_eq!(contents(home, "a"), b"data");
            put(home, "b", b"while closed");
            home.open_door().unwrap();
            home.open_door().unwrap();
            assert_eq!(contents(home, "b"), b"while closed");
        }
    }
    let names: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["home"]);
}

// --- real homes only ---

#[test]
fn a_symbolic_link_is_never_followed() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "x").unwrap();
    let dir = tempfile::tempdir().unwrap();
    symlink(outside.path(), dir.path().join("d")).unwrap();
    symlink(outside.path().join("secret"), dir.path().join("f")).unwrap();
    let fast = RealHome::open(dir.path()).unwrap();
    let slow = RealHome::open(dir.path()).unwrap();
    slow.without_openat2();
    for home in [fast, slow] {
        put(&home, "plain", b"1");
        home.create_dir(p("sub")).unwrap();
        put(&home, "sub/plain", b"1");
        assert!(home.open(p("d/secret"), OpenMode::READ).is_err());
        assert!(home.open(p("f"), OpenMode::READ).is_err());
        assert!(home.rename(p("d/secret"), p("x")).is_err());
        assert!(home.unlink(p("d/secret")).is_err());
        assert_eq!(home.stat(p("f")).unwrap().kind, FileKind::Other);
        assert_eq!(walked(&home).len(), 2);
        home.unlink(p("sub/plain")).unwrap();
        home.remove_dir(p("sub")).unwrap();
    }
    assert!(outside.path().join("secret").exists());
}

#[test]
fn a_pipe_in_the_home_is_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let home = RealHome::open(dir.path()).unwrap();
    rustix::fs::mknodat(
        home.directory(),
        "pipe",
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    assert_eq!(kind_of(home.open(p("pipe"), OpenMode::READ)), ErrorKind::InvalidInput);
    assert_eq!(walked(&home), []);
}

#[test]
fn each_reason_not_to_open_a_home_is_its_own_error() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    assert!(matches!(RealHome::open(&at("none")), Err(HomeError::Missing { .. })));
    assert!(matches!(RealHome::open(&at("none/deeper")), Err(HomeError::Missing { .. })));
    std::fs::write(at("file"), "").unwrap();
    assert!(matches!(RealHome::open(&at("file")), Err(HomeError::NotADirectory { .. })));
    assert!(matches!(RealHome::open(p("/proc")), Err(HomeError::NotWritable { .. })));
    if !rustix::process::geteuid().is_root() {
        std::fs::create_dir(at("closed")).unwrap();
        std::fs::set_permissions(at("closed"), PermissionsExt::from_mode(0o000)).unwrap();
        assert!(matches!(RealHome::open(&at("closed")), Err(HomeError::NoPermission { .. })));
        std::fs::set_permissions(at("closed"), PermissionsExt::from_mode(0o500)).unwrap();
        assert!(matches!(RealHome::open(&at("closed")), Err(HomeError::NotWritable { .. })));
    }
    symlink(at("home"), at("link")).unwrap();
    std::fs::create_dir(at("home")).unwrap();
    let home = RealHome::open(&at("link")).unwrap();
    assert_eq!(home.path(), std::fs::canonicalize(at("home")).unwrap());
}

/// A home with files in it, named `home` in a directory of its own.
struct Moved {
    dir: tempfile::TempDir,
    exchange: bool,
}

impl Moved {
    fn new(exchange: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("home")).unwrap();
        let new = Self { dir, exchange };
        let home = new.open();
        put(&home, "a", b"data");
        home.create_dir(p("d")).unwrap();
        put(&home, "d/b", b"more");
        home.write_attachment(b"attached").unwrap();
        new
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    fn open(&self) -> RealHome {
        let home = RealHome::open(&self.path()).unwrap();
        if !self.exchange {
            home.without_exchange();
        }
        home
    }

    /// What root need not do, to whom the note's permissions mean nothing.
    fn let_write_beside_the_note(&self) {
        std::fs::set_permissions(self.path(), PermissionsExt::from_mode(0o755)).unwrap();
    }

    fn is_whole(&self, home: &RealHome) {
        assert_eq!(
            (contents(home, "a"), contents(home, "d/b")),
            (b"data".to_vec(), b"more".to_vec())
        );
        assert_eq!(home.read_attachment().unwrap().unwrap(), b"attached");
    }

    fn is_closed(&self) {
        let home = self.open();
        self.is_whole(&home);
        assert!(home.door_closed().unwrap());
        let note = std::fs::read_to_string(self.path().join(NOTE_FILE)).unwrap();
        assert!(note.starts_with(NOTE_MARKER) && note.contains("the tier is on /fast"), "{note}");
        assert_eq!(std::fs::read_dir(self.path()).unwrap().count(), 1);
        let vault = std::fs::metadata(vault_of(&self.path())).unwrap();
        let me = rustix::process::geteuid();
        assert_eq!(
            (vault.uid(), vault.mode() & 0o7777),
            (me.as_raw(), if me.is_root() { 0o700 } else { 0 })
        );
    }

    /// A note that was moved in is as hard to write to as one that was made in its place.
    fn note_is_read_only(&self) {
        assert_eq!(std::fs::metadata(self.path()).unwrap().mode() & 0o7777, 0o555);
    }

    fn is_open(&self) {
        let home = self.open();
        self.is_whole(&home);
        assert!(!home.door_closed().unwrap());
        assert_eq!(std::fs::read(self.path().join("a")).unwrap(), b"data");
        assert_eq!(
            std::fs::read_dir(self.dir.path()).unwrap().count(),
            1,
            "nothing is left beside the home"
        );
    }

    /// Stops `work` before `step`, then finishes the way `then` goes; whether the step was reached.
    fn cut(
        &self,
        step: u32,
        work: impl Fn(&RealHome) -> io::Result<()>,
        then: impl Fn(&RealHome),
    ) -> bool {
        let home = self.open();
        home.stop_at(step);
        let reached = work(&home).is_err();
        drop(home);
        let home = self.open();
        self.is_whole(&home);
        then(&home);
        reached
    }
}

fn close(home: &RealHome) -> io::Result<()> {
    home.close_door("the tier is on /fast")
}

#[test]
fn power_cut_before_each_step_of_closing_leaves_a_home_that_closes_or_opens() {
    for (exchange, steps) in
        [(true, vec![1, 2, 3, 4, 5, 10]), (false, vec![1, 2, 3, 4, 6, 7, 8, 5, 10, 9])]
    {
        for step in steps {
            let moved = Moved::new(exchange);
            assert!(moved.cut(step, close, |h| close(h).unwrap()), "step {step} was not reached");
            moved.is_closed();
            moved.note_is_read_only();
            let moved = Moved::new(exchange);
            moved.cut(step, close, |h| h.open_door().unwrap());
            moved.is_open();
        }
    }
}

#[test]
fn power_cut_before_each_step_of_opening_leaves_a_home_that_opens_or_closes() {
    for (exchange, steps) in
        [(true, vec![20, 21, 22, 23, 24, 25]), (false, vec![20, 21, 26, 27, 22, 25])]
    {
        for step in steps {
            for then_open in [true, false] {
                let moved = Moved::new(exchange);
                close(&moved.open()).unwrap();
                moved.is_closed();
                let then = |h: &RealHome| {
                    if then_open { h.open_door().unwrap() } else { close(h).unwrap() }
                };
                assert!(moved.cut(step, RealHome::open_door, then), "step {step} was not reached");
                if then_open { moved.is_open() } else { moved.is_closed() }
            }
        }
    }
}

#[test]
fn files_put_beside_the_note_stop_the_way_back_and_are_named() {
    let moved = Moved::new(true);
    close(&moved.open()).unwrap();
    moved.let_write_beside_the_note();
    std::fs::write(moved.path().join("PG_VERSION"), "18").unwrap();
    let home = moved.open();
    let refused = home.open_door().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::DirectoryNotEmpty);
    assert!(refused.to_string().contains("PG_VERSION"), "{refused}");
    moved.is_whole(&home);
    std::fs::remove_file(moved.path().join("PG_VERSION")).unwrap();
    home.open_door().unwrap();
    moved.is_open();
}

#[test]
fn a_file_that_has_the_name_of_the_note_is_replaced_and_not_written_to() {
    let moved = Moved::new(true);
    close(&moved.open()).unwrap();
    moved.let_write_beside_the_note();
    let (note, other) = (moved.path().join(NOTE_FILE), moved.dir.path().join("other"));
    std::fs::write(&other, "somebody else's").unwrap();
    std::fs::remove_file(&note).unwrap();
    std::fs::hard_link(&other, &note).unwrap();
    close(&moved.open()).unwrap();
    moved.is_closed();
    assert_eq!(std::fs::read(&other).unwrap(), b"somebody else's");
}

#[test]
fn a_note_without_its_data_and_data_in_both_places_are_refused() {
    let moved = Moved::new(true);
    close(&moved.open()).unwrap();
    let (aside, away) = (vault_of(&moved.path()), moved.dir.path().join("away"));
    std::fs::rename(&aside, &away).unwrap();
    assert!(matches!(RealHome::open(&moved.path()), Err(HomeError::DataMissing { .. })));
    std::fs::rename(&away, &aside).unwrap();
    moved.let_write_beside_the_note();
    std::fs::remove_file(moved.path().join(NOTE_FILE)).unwrap();
    std::fs::write(moved.path().join("new"), "").unwrap();
    assert!(matches!(RealHome::open(&moved.path()), Err(HomeError::TwoHomes { .. })));
    std::fs::remove_file(moved.path().join("new")).unwrap();
    // An empty directory at the path is a note not yet written.
    close(&moved.open()).unwrap();
    moved.is_closed();
}

#[test]
fn a_directory_of_someone_else_under_the_siblings_name_is_not_touched() {
    let moved = Moved::new(true);
    let home = moved.open();
    let aside = vault_of(&moved.path());
    for (name, inside) in [("theirs", "theirs"), (FILES_NAME, "home/theirs")] {
        std::fs::create_dir_all(aside.join(inside).parent().unwrap()).unwrap();
        std::fs::write(aside.join(inside), "x").unwrap();
        let refused = close(&home).unwrap_err().to_string();
        assert!(refused.contains(if name == FILES_NAME { "theirs" } else { name }), "{refused}");
        assert_eq!(std::fs::read(aside.join(inside)).unwrap(), b"x");
        assert!(!home.door_closed().unwrap());
        std::fs::remove_dir_all(&aside).unwrap();
    }
    std::os::unix::fs::symlink(moved.dir.path(), &aside).unwrap();
    assert!(close(&home).is_err());
    moved.is_whole(&moved.open());
    std::fs::remove_file(&aside).unwrap();
    if rustix::process::geteuid().is_root() {
        // Neither root's nor the home's owner's: not entered, not chowned.
        std::fs::create_dir(&aside).unwrap();
        std::os::unix::fs::chown(&aside, Some(4711), Some(4711)).unwrap();
        assert!(close(&home).unwrap_err().to_string().contains("belongs to user 4711"));
        assert_eq!(std::fs::metadata(&aside).unwrap().uid(), 4711);
        std::fs::remove_dir(&aside).unwrap();
    }
    close(&home).unwrap();
    moved.is_closed();
}

#[test]
fn the_root_cannot_be_moved_aside() {
    if let Ok(root) = RealHome::open(p("/")) {
        let refused = close(&root).unwrap_err();
        assert!(refused.to_string().contains("no parent directory"), "{refused}");
        assert!(!root.door_closed().unwrap());
    }
}

/// A file system mounted on the note, as a door would; `None` where the test may not mount.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: &Path) -> Option<Self> {
        let command = |name: &str, args: &[&str]| {
            std::process::Command::new(name).args(args).arg(at).output()
        };
        let done = command("mount", &["-t", "tmpfs", "tiersmith-test"]).ok()?;
        done.status.success().then(|| Self(at.to_path_buf()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn while_a_door_is_mounted_the_home_is_found_aside_and_cannot_be_moved_back() {
    let moved = Moved::new(true);
    let owner = moved.open();
    close(&owner).unwrap();
    let Some(mounted) = Mounted::new(&moved.path()) else { return };
    std::fs::write(moved.path().join("seen through the mount"), "").unwrap();
    let home = moved.open();
    moved.is_whole(&home);
    assert!(home.door_closed().unwrap());
    close(&home).unwrap();
    assert!(home.open_door().unwrap_err().to_string().contains("mount point"));
    assert!(owner.open_door().unwrap_err().to_string().contains("unmount it first"));
    drop(mounted);
    owner.open_door().unwrap();
    moved.is_open();
}

#[test]
fn a_home_renamed_while_open_is_reported() {
    let moved = Moved::new(true);
    let home = moved.open();
    std::fs::rename(moved.path(), moved.dir.path().join("elsewhere")).unwrap();
    for refused in [close(&home), home.open_door()] {
        assert!(refused.unwrap_err().to_string().contains("someone renamed it"));
    }
}

#[test]
fn a_file_of_ours_is_opened_whatever_its_mode_and_another_in_its_place_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let home = RealHome::open(dir.path()).unwrap();
    put(&home, "a", b"abc");
    put(&home, "b", b"abc");
    let meant = home.stat(p("a")).unwrap();
    let none = std::fs::Permissions::from_mode(0o000);
    std::fs::set_permissions(dir.path().join("a"), none).unwrap();
    let file = home.open_own(p("a"), &meant).unwrap();
    file.write_at(0, b"x").unwrap();
    let mode = std::fs::metadata(dir.path().join("a")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0, "its mode was not put back");
    assert_eq!(kind_of(home.open_own(p("b"), &meant)), ErrorKind::NotFound);
    symlink("a", dir.path().join("link")).unwrap();
    assert!(home.open_own(p("link"), &meant).is_err());
}

#[test]
fn root_goes_to_a_home_only_by_directories_that_it_may_trust() {
    use std::os::unix::fs::{chown, symlink};
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: what root trusts, because it needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = std::fs::canonicalize(dir.path()).unwrap();
    std::fs::create_dir_all(root.join("one/other/db")).unwrap();
    std::fs::create_dir_all(root.join("roots/db")).unwrap();
    chown(root.join("one"), Some(2001), None).unwrap();
    RealHome::open(&root.join("one/other/db"))
        .expect_err("user 2001 can exchange root's directory");
    for of in ["one/other", "one/other/db"] {
        chown(root.join(of), Some(2001), None).unwrap();
    }
    RealHome::open(&root.join("one/other/db")).unwrap();
    // A link that user 2001 has put there, to a directory of root.
    symlink(root.join("roots"), root.join("one/link")).unwrap();
    let refused = RealHome::open(&root.join("one/link/db")).unwrap_err();
    assert!(matches!(refused, HomeError::NoPermission { .. }), "{refused}");
    assert!(refused.to_string().contains("user 2001"), "{refused}");
    RealHome::open(&root.join("roots/db")).unwrap();
    // The home itself as such a link.
    symlink(root.join("roots/db"), root.join("one/direct")).unwrap();
    let refused = RealHome::open(&root.join("one/direct")).unwrap_err();
    assert!(matches!(refused, HomeError::NoPermission { .. }), "{refused}");
    symlink(root.join("one/other/db"), root.join("one/own")).unwrap();
    assert_eq!(RealHome::open(&root.join("one/own")).unwrap().path(), root.join("one/other/db"));
}

/// Exchanges two names until `work` is done, or has failed.
fn while_exchanged(one: &Path, other: &Path, work: impl FnOnce()) {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let _done = Done(&done);
        work();
    });
}

#[test]
fn root_is_not_led_astray_by_who_exchanges_directories_while_it_looks() {
    use std::os::unix::fs::chown;
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: what root trusts, because it needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = std::fs::canonicalize(dir.path()).unwrap();
    std::fs::create_dir_all(root.join("theirs/app/db")).unwrap();
    std::fs::create_dir_all(root.join("roots/db")).unwrap();
    for of in ["theirs", "theirs/app", "theirs/app/db"] {
        chown(root.join(of), Some(2001), None).unwrap();
    }
    symlink(root.join("roots"), root.join("theirs/link")).unwrap();
    let (app, link) = (root.join("theirs/app"), root.join("theirs/link"));
    let roots = std::fs::metadata(root.join("roots/db")).unwrap().ino();
    while_exchanged(&app, &link, || {
        for _ in 0..20_000 {
            let found = RealHome::open(&app.join("db")).map(|home| home.identity().unwrap().ino);
            assert_ne!(found.ok(), Some(roots), "root's directory was taken for user 2001's home");
        }
    });
}

#[test]
fn no_directory_but_the_notes_own_is_opened_to_everybody() {
    let moved = Moved::new(true);
    close(&moved.open()).unwrap();
    moved.let_write_beside_the_note();
    // In place of the note an empty directory and, at times, a private one.
    let private = moved.dir.path().join("private");
    std::fs::create_dir(&private).unwrap();
    std::fs::write(private.join("secret"), "x").unwrap();
    let secret = std::fs::metadata(&private).unwrap().ino();
    std::fs::set_permissions(&private, PermissionsExt::from_mode(0o700)).unwrap();
    let home = moved.open();
    while_exchanged(&moved.path(), &private, || {
        for _ in 0..3_000 {
            let _ = close(&home);
            for at in [moved.path(), private.clone()] {
                let Ok(dir) = std::fs::File::open(&at) else { continue };
                let found = dir.metadata().unwrap();
                if found.ino() == secret {
                    assert_eq!(found.mode() & 0o777, 0o700, "a private directory was opened");
                } else {
                    // So that the next call has to write the note again.
                    let _ = rustix::fs::fchmod(&dir, rustix::fs::Mode::RWXU);
                    let _ = rustix::fs::unlinkat(&dir, NOTE_FILE, rustix::fs::AtFlags::empty());
                }
            }
        }
    });
}
