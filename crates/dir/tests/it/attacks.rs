//! What a directory held open is worth against somebody who changes names.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use tiersmith_dir::{Dir, Found, Kind, Owner};

/// Two accounts that nobody needs to have.
const MALLORY: u32 = 54_321;
const ALICE: u32 = 54_322;

/// Whether this runs as root, who alone can be led astray; else a line says that it does not.
fn root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: {test}, because only root can make files of other accounts");
    }
    root
}

/// A scratch directory that everybody may pass through.
fn scratch() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

fn folder(path: &Path, user: u32) {
    fs::create_dir(path).unwrap();
    chown(path, Some(user), Some(user)).unwrap();
}

fn link(target: &Path, path: &Path, user: u32) {
    symlink(target, path).unwrap();
    std::os::unix::fs::lchown(path, Some(user), Some(user)).unwrap();
}

fn refusal(path: &Path) -> String {
    let error = Dir::open(path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    error.to_string()
}

#[test]
fn names_are_single_components() {
    let scratch = scratch();
    let dir = Dir::open(scratch.path()).unwrap();
    for name in ["", ".", "..", "a/b", "/etc", "../x", "a\0b"] {
        assert_eq!(dir.look(name).unwrap_err().kind(), ErrorKind::InvalidInput, "{name:?}");
        assert_eq!(
            dir.make_file(name, 0o600, None).unwrap_err().kind(),
            ErrorKind::InvalidInput,
            "{name:?}"
        );
        assert_eq!(dir.remove(name).unwrap_err().kind(), ErrorKind::InvalidInput, "{name:?}");
        assert_eq!(
            dir.rename("x", &dir, name).unwrap_err().kind(),
            ErrorKind::InvalidInput,
            "{name:?}"
        );
    }
}

#[test]
fn links_pipes_and_devices_are_not_opened_and_nothing_waits() {
    let scratch = scratch();
    fs::write(scratch.path().join("secret"), "secret").unwrap();
    symlink("secret", scratch.path().join("link")).unwrap();
    let made =
        std::process::Command::new("mkfifo").arg(scratch.path().join("pipe")).status().unwrap();
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(scratch.path().join("socket")).unwrap();
    fs::create_dir(scratch.path().join("directory")).unwrap();
    let dir = Dir::open(scratch.path()).unwrap();
    for name in ["link", "pipe", "socket", "directory"] {
        for error in [dir.open_file(name).unwrap_err(), dir.open_file_rw(name).unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name}: {error}");
        }
        assert!(dir.read(name, 10).is_err());
        assert_eq!(
            dir.make_file(name, 0o600, None).unwrap_err().kind(),
            ErrorKind::AlreadyExists,
            "{name}"
        );
    }
    assert_eq!(
        Dir::open(Path::new("/dev")).unwrap().open_file("zero").unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(dir.look("link").unwrap().unwrap().kind, Kind::Link);
    assert_eq!(dir.sub("link").unwrap_err().kind(), ErrorKind::NotADirectory);
    assert!(dir.look("nothing").unwrap().is_none());
}

#[test]
fn a_replaced_link_is_replaced_itself() {
    let scratch = scratch();
    fs::write(scratch.path().join("victim"), "precious").unwrap();
    symlink("victim", scratch.path().join("note")).unwrap();
    let dir = Dir::open(scratch.path()).unwrap();
    dir.replace("note", b"ours", 0o640, None).unwrap();
    assert_eq!(fs::read(scratch.path().join("victim")).unwrap(), b"precious");
    assert_eq!(dir.read("note", 4).unwrap(), b"ours");
    assert_eq!(dir.look("note").unwrap().unwrap().mode, 0o640);
    assert_eq!(dir.names(10).unwrap().len(), 2);
}

#[test]
fn what_a_process_left_that_ended_in_a_replace_is_taken_away_by_the_next() {
    let scratch = scratch();
    let dir = Dir::open(scratch.path()).unwrap();
    drop(dir.make_file("note.new-0", 0o600, None).unwrap());
    dir.replace("note", b"one", 0o600, None).unwrap();
    assert_eq!(dir.names(10).unwrap(), ["note"]);
    // What is not ours, or not left: somebody writes it, or it has another name, or it is no file.
    let written = dir.make_file("note.new-0", 0o600, None).unwrap();
    rustix::fs::flock(&written, rustix::fs::FlockOperation::LockExclusive).unwrap();
    fs::write(scratch.path().join("precious"), "precious").unwrap();
    fs::hard_link(scratch.path().join("precious"), scratch.path().join("note.new-1")).unwrap();
    symlink("precious", scratch.path().join("note.new-2")).unwrap();
    let mut names = vec!["note", "note.new-0", "note.new-1", "note.new-2", "precious"];
    if root("a leftover of another account") {
        fs::write(scratch.path().join("note.new-3"), "hers").unwrap();
        chown(scratch.path().join("note.new-3"), Some(MALLORY), None).unwrap();
        names.insert(4, "note.new-3");
    }
    dir.replace("note", b"two", 0o600, None).unwrap();
    let mut there = dir.names(10).unwrap();
    there.sort();
    assert_eq!(there, names);
    assert_eq!(dir.read("note", 3).unwrap(), b"two");
    // Given away before its process ended.
    if root("a leftover that was given away") {
        let owner = Some(Owner { user: MALLORY, group: MALLORY });
        dir.replace("note", b"six", 0o600, owner).unwrap();
        assert!(dir.look("note.new-3").unwrap().is_none());
    }
}

#[test]
fn of_those_that_replace_a_file_at_once_each_succeeds_and_nothing_is_left() {
    let scratch = scratch();
    let replace = |text: &[u8; 4]| {
        let dir = Dir::open(scratch.path()).unwrap();
        for _ in 0..300 {
            dir.replace("note", text, 0o600, None).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for text in [b"1111", b"2222", b"3333"] {
            scope.spawn(move || replace(text));
        }
    });
    let dir = Dir::open(scratch.path()).unwrap();
    assert_eq!(dir.names(10).unwrap(), ["note"]);
    assert_eq!(dir.read("note", 4).unwrap().len(), 4);
}

#[test]
fn what_is_read_has_a_limit() {
    let scratch = scratch();
    fs::write(scratch.path().join("long"), vec![b'x'; 1001]).unwrap();
    let dir = Dir::open(scratch.path()).unwrap();
    assert_eq!(dir.read("long", 1000).unwrap_err().kind(), ErrorKind::FileTooLarge);
    assert_eq!(dir.read("long", 1001).unwrap().len(), 1001);
    assert_eq!(dir.names(0).unwrap_err().kind(), ErrorKind::FileTooLarge);
}

#[test]
fn a_held_directory_stays_the_same_when_its_name_changes() {
    let scratch = scratch();
    let (home, aside) = (scratch.path().join("home"), scratch.path().join("aside"));
    fs::create_dir(&home).unwrap();
    fs::write(home.join("file"), "ours").unwrap();
    let dir = Dir::open(&home).unwrap();
    fs::rename(&home, &aside).unwrap();
    assert!(!dir.is_at_its_path().unwrap());
    fs::create_dir(&home).unwrap();
    fs::write(home.join("file"), "another").unwrap();
    assert_eq!(dir.read("file", 10).unwrap(), b"ours");
    assert_eq!(fs::read(dir.through("file")).unwrap(), b"ours");
    assert!(!dir.is_at_its_path().unwrap());
    dir.remove("file").unwrap();
    assert!(home.join("file").exists());
}

#[test]
fn the_last_component_is_no_link_and_links_before_it_are_followed() {
    let scratch = scratch();
    fs::create_dir_all(scratch.path().join("real/home")).unwrap();
    symlink("real", scratch.path().join("relative")).unwrap();
    symlink(scratch.path().join("real"), scratch.path().join("absolute")).unwrap();
    symlink("loop", scratch.path().join("loop")).unwrap();
    let home = Dir::open(&scratch.path().join("real/home")).unwrap().found().unwrap();
    for way in ["relative/home", "absolute/home", "real/../relative/./home"] {
        assert!(
            Dir::open(&scratch.path().join(way)).unwrap().found().unwrap().same_file(&home),
            "{way}"
        );
    }
    assert_eq!(
        Dir::open(&scratch.path().join("relative")).unwrap_err().kind(),
        ErrorKind::NotADirectory
    );
    assert!(Dir::open(&scratch.path().join("loop/home")).is_err());
    let (parent, name) = Dir::holding(&scratch.path().join("relative/new")).unwrap();
    assert_eq!(name, "new");
    parent.make_file("new", 0o600, None).unwrap();
    assert!(scratch.path().join("real/new").exists());
    assert_eq!(Dir::holding(Path::new("/")).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn made_files_have_owner_and_mode_whatever_the_umask_says() {
    if !root("made_files_have_owner_and_mode_whatever_the_umask_says") {
        return;
    }
    let scratch = scratch();
    let dir = Dir::open(scratch.path()).unwrap();
    let owner = Owner { user: MALLORY, group: ALICE };
    dir.make_file("file", 0o666, Some(owner)).unwrap();
    dir.make_dir("folder", 0o777, Some(owner)).unwrap();
    for (name, mode) in [("file", 0o666), ("folder", 0o777)] {
        let found = fs::symlink_metadata(scratch.path().join(name)).unwrap();
        assert_eq!(
            (found.uid(), found.gid(), found.mode() & 0o7777),
            (MALLORY, ALICE, mode),
            "{name}"
        );
    }
}

#[test]
fn root_follows_an_account_only_to_what_belongs_to_it() {
    if !root("root_follows_an_account_only_to_what_belongs_to_it") {
        return;
    }
    let scratch = scratch();
    let (roots, hers, alices) = (
        scratch.path().join("roots"),
        scratch.path().join("mallory"),
        scratch.path().join("alice"),
    );
    folder(&roots, 0);
    folder(&hers, MALLORY);
    folder(&alices, ALICE);
    folder(&hers.join("db"), MALLORY);
    folder(&hers.join("from-root"), 0);
    folder(&hers.join("from-alice"), ALICE);
    folder(&hers.join("from-alice/db"), MALLORY);
    folder(&roots.join("etc"), 0);
    // What is trusted: her own directory, and whatever root's own directories hold.
    for good in [hers.join("db"), hers.clone(), alices.clone(), roots.join("etc")] {
        Dir::open(&good).unwrap();
    }
    let text = refusal(&hers.join("from-root"));
    assert!(text.contains("user 54321") && text.contains("belongs to user 0"), "{text}");
    refusal(&hers.join("from-alice"));
    let text = refusal(&hers.join("from-alice/db"));
    assert!(text.contains("user 54321") && text.contains("user 54322"), "{text}");
    // Her links lead root to her own directories, and to nobody else's.
    link(&roots, &hers.join("to-root"), MALLORY);
    link(&hers, &hers.join("to-herself"), MALLORY);
    link(&alices, &hers.join("to-alice"), MALLORY);
    refusal(&hers.join("to-root/etc"));
    Dir::open(&hers.join("to-herself/db")).unwrap();
    folder(&alices.join("db"), ALICE);
    refusal(&hers.join("to-alice/db"));
    assert_eq!(
        Dir::holding(&hers.join("to-root/passwd")).unwrap_err().kind(),
        ErrorKind::PermissionDenied
    );
    // A link of hers where she has no right to write is what root left there; it leads to hers.
    link(&hers, &roots.join("her-link"), MALLORY);
    Dir::open(&roots.join("her-link/db")).unwrap();
}

#[test]
fn a_second_name_is_a_files_own_and_never_what_a_link_leads_to() {
    let scratch = scratch();
    fs::create_dir(scratch.path().join("in")).unwrap();
    let (dir, inside) =
        (Dir::open(scratch.path()).unwrap(), Dir::open(&scratch.path().join("in")).unwrap());
    drop(dir.make_file("file", 0o600, None).unwrap());
    symlink("file", scratch.path().join("link")).unwrap();
    dir.link("file", &inside, "second").unwrap();
    let of = |dir: &Dir, name| dir.look(name).unwrap().unwrap();
    assert!(of(&dir, "file").same_file(&of(&inside, "second")));
    assert_eq!(dir.link("file", &inside, "second").unwrap_err().kind(), ErrorKind::AlreadyExists);
    dir.link("link", &inside, "third").unwrap();
    assert_eq!(of(&inside, "third").kind, Kind::Link);
    assert!(dir.link("../file", &inside, "fourth").is_err());
}

#[test]
fn a_directory_knows_where_it_is_now() {
    let scratch = scratch();
    let real = scratch.path().canonicalize().unwrap();
    fs::create_dir(real.join("one")).unwrap();
    let dir = Dir::open(&real.join("one")).unwrap();
    fs::rename(real.join("one"), real.join("two")).unwrap();
    assert_eq!(dir.where_it_is().unwrap(), real.join("two"));
    fs::remove_dir(real.join("two")).unwrap();
    assert_eq!(dir.where_it_is().unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn the_last_link_is_followed_where_its_owner_is_trusted() {
    let scratch = scratch();
    let (real, links) = (scratch.path().join("real"), scratch.path().join("links"));
    fs::create_dir_all(real.join("db")).unwrap();
    fs::create_dir(&links).unwrap();
    symlink("../real/db", links.join("one")).unwrap();
    symlink("one", links.join("two")).unwrap();
    symlink("loop", links.join("loop")).unwrap();
    for way in ["two", "one", "../real/db", "../real/nothing"] {
        let (dir, name) = Dir::holding_target(&links.join(way)).unwrap();
        assert!(
            dir.found().unwrap().same_file(&Dir::open(&real).unwrap().found().unwrap()),
            "{way}"
        );
        assert_eq!(name, if way.ends_with("nothing") { "nothing" } else { "db" });
    }
    assert!(Dir::holding_target(&links.join("loop")).is_err());
    assert!(Dir::holding_target(Path::new("/")).is_err());
    if !root("the_last_link_is_followed_where_its_owner_is_trusted, against an account") {
        return;
    }
    let hers = scratch.path().join("mallory");
    folder(&hers, MALLORY);
    folder(&hers.join("db"), MALLORY);
    link(&real.join("db"), &hers.join("to-root"), MALLORY);
    link(&hers.join("db"), &hers.join("to-herself"), MALLORY);
    let refused = Dir::holding_target(&hers.join("to-root")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
    Dir::holding_target(&hers.join("to-herself")).unwrap();
}

#[test]
fn a_link_to_a_processs_root_leads_where_that_process_is() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    if !root("a_link_to_a_processs_root_leads_where_that_process_is") {
        return;
    }
    let scratch = scratch();
    let at = scratch.path().join("at");
    fs::create_dir(&at).unwrap();
    // A process for which another file system is there.
    let inside = "mount -t tmpfs none \"$0\" && touch \"$0/inside\" && echo ready && read end";
    let mut child = Command::new("unshare")
        .args(["--mount", "sh", "-c", inside])
        .arg(&at)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    if said != "ready\n" {
        child.wait().unwrap();
        return println!(
            "skipped: a process with a file system of its own, because none can be mounted"
        );
    }
    let proc = format!("/proc/{}", child.id());
    let dir = Dir::open(&Path::new(&proc).join("root").join(at.strip_prefix("/").unwrap()));
    let found = dir.and_then(|dir| dir.look("inside"));
    let last = Dir::holding_target(&Path::new(&proc).join("root")).unwrap_err();
    let ordinary = Dir::open(Path::new("/proc/self/task"));
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    child.wait().unwrap();
    assert!(found.unwrap().is_some(), "the link was followed by its text");
    assert!(last.to_string().contains("give the path that it stands for"), "{last}");
    assert!(ordinary.is_ok(), "{ordinary:?}");
}

#[test]
fn root_passes_no_directory_that_everybody_may_change() {
    if !root("root_passes_no_directory_that_everybody_may_change") {
        return;
    }
    let scratch = scratch();
    let open = scratch.path().join("open");
    folder(&open, 0);
    folder(&open.join("home"), 0);
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let text = refusal(&open.join("home"));
    assert!(text.contains("chmod o-w"), "{text}");
    // With the sticky bit, as in /tmp, an entry is exchanged by its owner only.
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
    Dir::open(&open.join("home")).unwrap();
    folder(&open.join("hers"), MALLORY);
    folder(&open.join("hers/roots"), 0);
    refusal(&open.join("hers/roots"));
    Dir::open(&open).unwrap();
}

#[test]
fn a_name_of_somebody_else_cannot_command_a_terminal() {
    if !root("a_name_of_somebody_else_cannot_command_a_terminal") {
        return;
    }
    let scratch = scratch();
    let hers = scratch.path().join("\u{1b}]0;hers\u{7}");
    folder(&hers, MALLORY);
    folder(&hers.join("roots"), 0);
    let text = refusal(&hers.join("roots"));
    assert!(!text.chars().any(char::is_control), "{text:?}");
}

#[test]
fn a_file_is_removed_only_while_it_has_the_name() {
    let scratch = scratch();
    let dir = Dir::open(scratch.path()).unwrap();
    let made = Found::of(dir.make_file("tier", 0o600, None).unwrap()).unwrap();
    fs::rename(scratch.path().join("tier"), scratch.path().join("ours")).unwrap();
    assert!(!dir.remove_file_that_is("tier", &made).unwrap(), "nothing is there");
    for at in ["file", "link"] {
        match at {
            "file" => fs::write(scratch.path().join("tier"), "another's").unwrap(),
            _ => symlink("ours", scratch.path().join("tier")).unwrap(),
        }
        assert!(!dir.remove_file_that_is("tier", &made).unwrap(), "a {at} of somebody else");
        fs::remove_file(scratch.path().join("tier")).unwrap();
    }
    assert!(dir.remove_file_that_is("ours", &made).unwrap());
    assert!(dir.look("ours").unwrap().is_none());
}

#[test]
fn a_file_that_is_locked_or_has_bytes_is_not_removed_as_unused() {
    let scratch = scratch();
    let dir = Dir::open(scratch.path()).unwrap();
    let made = Found::of(dir.make_file("tier", 0o600, None).unwrap()).unwrap();
    let theirs = dir.open_file("tier").unwrap();
    rustix::fs::flock(&theirs, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert!(!dir.remove_unused("tier", &made).unwrap(), "it is locked");
    drop(theirs);
    fs::write(scratch.path().join("tier"), "bytes").unwrap();
    assert!(!dir.remove_unused("tier", &made).unwrap(), "it has bytes");
    fs::rename(scratch.path().join("tier"), scratch.path().join("ours")).unwrap();
    fs::write(scratch.path().join("tier"), "").unwrap();
    assert!(!dir.remove_unused("tier", &made).unwrap(), "it is another file");
    let now = dir.look("tier").unwrap().unwrap();
    assert!(dir.remove_unused("tier", &now).unwrap());
    assert!(dir.look("tier").unwrap().is_none());
}
