//! A forked child has copies of everything its parent has open, and must change nothing: it is
//! refused by every call, what it drops is not given up for the parent, it keeps no lock, and it
//! may attach what the parent has closed.
//!
//! Each test runs itself again as a process of its own, for a fork copies whatever other tests have
//! open at that moment.

use crate::place;

use crate::place::Place;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tiersmith_store::process::{in_child, leave_forks_unseen, leave_idle_child};
use tiersmith_store::{AttachedHome, Error, File, OpenMode, Options, attach};

/// Where a test's own process finds its place.
const ROLE: &str = "TIERSMITH_FORK_PLACE";
/// In that process: forks are not noticed.
const UNSEEN: &str = "TIERSMITH_FORKS_UNSEEN";

/// Starts the test `name` as a process of its own.
fn alone(name: &str, at: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &full_name!(name), "--nocapture", "--test-threads=1"]).env(ROLE, at);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The place, in the process that [`alone`] started; else runs that process, and checks that it
/// ended well.
fn inside(name: &str) -> Option<PathBuf> {
    if let Some(at) = std::env::var_os(ROLE) {
        return Some(at.into());
    }
    let place = Place::in_memory();
    let done = alone(name, place.home().parent().unwrap()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    None
}

fn try_attach(at: &Path) -> Result<AttachedHome, Error> {
    let options = Options { background: true, ..place::options() };
    attach(&at.join("db"), &[place::small(at.join("fast"), 4 << 20)], options)
}

/// The number of the parent as it is named to a child.
fn names(error: &Error, process: u32) -> bool {
    error.to_string().contains(&format!("process {process}"))
}

fn every_call(home: &AttachedHome, file: &File, redo: &File) -> Vec<Option<Error>> {
    let mut bytes = [0; 4];
    vec![
        file.read(0, &mut bytes).err(),
        file.write(0, &[2; 4096]).err(),
        file.write_batch(&[(0, &[2; 4096])]).err(),
        file.truncate(0).err(),
        file.extend(1 << 20).err(),
        file.append(b"x").err(),
        file.zero(0, 4096, true).err(),
        file.punch(0, 4096).err(),
        file.allocate(0, 4096, true).err(),
        file.next_data(0).err(),
        file.next_hole(0).err(),
        file.overlay().err(),
        file.len().err(),
        file.stat().err(),
        file.sync().err(),
        redo.write(0, b"odd").err(),
        redo.lend().err(),
        home.open("t.d4", OpenMode::READ).err(),
        home.create("u.d4").err(),
        home.stat("t.d4").err(),
        home.rename("t.d4", "v.d4").err(),
        home.link("t.d4", "v.d4").err(),
        home.unlink("t.d4").err(),
        home.sync_dir("t.d4").err(),
        home.flush_all().err(),
        home.evict(None, 1).err(),
        home.pin("t.d4").err(),
        home.unpin("t.d4").err(),
        home.grow("fast").err(),
        home.background_step().err(),
        home.candidates("*").err(),
        home.in_tier("t.d4").err(),
        file.home_descriptor().err(),
        home.clone().detach().err(),
    ]
}

#[test]
fn a_child_is_refused_by_every_call_and_what_it_drops_is_the_parents_still() {
    let name = "a_child_is_refused_by_every_call_and_what_it_drops_is_the_parents_still";
    let Some(at) = inside(name) else { return };
    let home = try_attach(&at).unwrap();
    let file = home.open("t.d4", OpenMode::CREATE).unwrap();
    let redo = home.open("t.redo", OpenMode::CREATE).unwrap();
    file.write(0, &[1; 8192]).unwrap();
    redo.write(0, b"redo").unwrap();
    let opener = std::process::id();
    let mut waiting = Some((home, file, redo));
    let ended = in_child(|| {
        let (home, file, redo) = waiting.take().unwrap();
        let refused = every_call(&home, &file, &redo);
        for (number, error) in refused.iter().enumerate() {
            let error = error.as_ref().unwrap_or_else(|| panic!("call {number} was let through"));
            assert!(
                matches!(error, Error::Forked { .. }) && names(error, opener),
                "{number}: {error}"
            );
        }
        assert!(file.read_ref(0).is_none() && !home.is_of_this_process());
        assert!(!home.spare_descriptors(), "a child closes its parent's files");
        let stats = home.stats();
        let why = stats.background_error.unwrap_or_default();
        assert!(stats.tiers.is_empty() && why.contains(&format!("process {opener}")), "{why}");
        // The home is locked by the parent still, also after everything is dropped here.
        drop((home, file, redo));
        let owned = try_attach(&at).unwrap_err();
        assert!(matches!(owned, Error::Owned { .. }) && names(&owned, opener), "{owned}");
        0
    });
    assert_eq!(ended.unwrap(), 0);
    let (home, file, redo) = waiting.unwrap();
    let mut bytes = [0; 8192];
    assert_eq!(file.read(0, &mut bytes).unwrap(), 8192);
    assert_eq!(bytes, [1; 8192]);
    file.write(4096, &[3; 4096]).unwrap();
    drop((file, redo));
    // Another process than the child, which is gone: the lock is held by this one.
    assert_eq!(in_child(|| i32::from(try_attach(&at).is_ok())).unwrap(), 0);
    home.detach().unwrap();
    assert_eq!(std::fs::read(at.join("db/t.d4")).unwrap()[4096..], [3; 4096]);
    assert_eq!(std::fs::read(at.join("db/t.redo")).unwrap(), b"redo");
}

#[test]
fn a_child_attaches_what_the_parent_has_closed_and_the_parent_is_refused_then() {
    let name = "a_child_attaches_what_the_parent_has_closed_and_the_parent_is_refused_then";
    let Some(at) = inside(name) else { return };
    let home = try_attach(&at).unwrap();
    home.open("t.d4", OpenMode::CREATE).unwrap().write(0, &[1; 4096]).unwrap();
    // A child that lives on has no part in the lock that the parent gives up.
    let idle = leave_idle_child(Duration::from_secs(60)).unwrap();
    drop(home);
    let ended = in_child(|| {
        let home = try_attach(&at).unwrap();
        let file = home.open("t.d4", OpenMode::WRITE).unwrap();
        file.write(0, &[2; 4096]).unwrap();
        let mine = std::process::id();
        // A grandchild: none of both is its own.
        in_child(|| {
            assert!(matches!(file.write(0, &[3; 4096]), Err(Error::Forked { .. })));
            assert!(names(&try_attach(&at).unwrap_err(), mine));
            0
        })
        .unwrap()
    });
    assert_eq!(ended.unwrap(), 0);
    let home = try_attach(&at).unwrap();
    let mut bytes = [0; 4096];
    home.open("t.d4", OpenMode::READ).unwrap().read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [2; 4096]);
    stop(idle);
}

fn stop(child: i32) {
    let child = rustix::process::Pid::from_raw(child).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
}

/// Not a test: attaches, leaves a child behind and waits to be killed. By itself it does nothing.
#[test]
fn owner_that_is_killed() {
    let Some(at) = std::env::var_os(ROLE) else { return };
    if std::env::var_os(UNSEEN).is_some() {
        leave_forks_unseen();
    }
    let home = try_attach(Path::new(&at)).unwrap();
    home.open("t.d4", OpenMode::CREATE).unwrap().write(0, &[1; 4096]).unwrap();
    let child = leave_idle_child(Duration::from_secs(60)).unwrap();
    println!("\nchild {child}");
    std::thread::sleep(Duration::from_secs(60));
}

/// Kills an owner that has an idle child; returns what attaching says while the child lives.
fn attach_beside_the_child_of_a_killed_owner(unseen: bool) -> Result<(), Error> {
    let place = Place::in_memory();
    let at = place.home().parent().unwrap().to_path_buf();
    let mut command = alone("owner_that_is_killed", &at);
    if unseen {
        command.env(UNSEEN, "1");
    }
    let mut owner = command.spawn().unwrap();
    let child = announced_child(&mut owner);
    owner.kill().unwrap();
    owner.wait().unwrap();
    let attached = try_attach(&at).map(|home| {
        let mut bytes = [0; 4096];
        home.open("t.d4", OpenMode::READ).unwrap().read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [1; 4096]);
    });
    stop(child);
    attached
}

fn announced_child(owner: &mut Child) -> i32 {
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let child =
        lines.map_while(Result::ok).find_map(|line| line.strip_prefix("child ")?.parse().ok());
    child.unwrap_or_else(|| {
        let mut said = String::new();
        owner.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        panic!("the owner left no child: {said}")
    })
}

#[test]
fn the_idle_child_of_a_killed_owner_keeps_no_lock() {
    attach_beside_the_child_of_a_killed_owner(false).unwrap();
}

/// The test above would see it.
#[test]
fn with_forks_unseen_the_idle_child_of_a_killed_owner_keeps_the_lock() {
    let error = attach_beside_the_child_of_a_killed_owner(true).unwrap_err();
    assert!(matches!(error, Error::Owned { .. }), "{error}");
    assert!(error.to_string().contains("has ended"), "it names a process that is gone: {error}");
}

/// Not a test, as above: what a child drops and writes when it does not notice the fork.
#[test]
fn owner_whose_child_writes_unseen() {
    let Some(at) = std::env::var_os(ROLE) else { return };
    leave_forks_unseen();
    let home = try_attach(Path::new(&at)).unwrap();
    let file = home.open("t.d4", OpenMode::CREATE).unwrap();
    file.write(0, &[1; 4096]).unwrap();
    let ended = in_child(|| i32::from(file.write(0, &[2; 4096]).is_ok()));
    println!("\nwritten {}", ended.unwrap());
}

#[test]
fn with_forks_unseen_a_child_writes_to_its_parents_tier() {
    let place = Place::in_memory();
    let done =
        alone("owner_whose_child_writes_unseen", place.home().parent().unwrap()).output().unwrap();
    assert!(String::from_utf8_lossy(&done.stdout).contains("written 1"), "{done:?}");
}

#[test]
fn a_program_started_by_the_owner_has_nothing_of_it() {
    let name = "a_program_started_by_the_owner_has_nothing_of_it";
    let Some(at) = inside(name) else { return };
    let home = try_attach(&at).unwrap();
    let file = home.open("t.d4", OpenMode::CREATE).unwrap();
    file.write(0, &[1; 4096]).unwrap();
    // With and without the C library's `fork` in between.
    let listed = |command: &mut Command| {
        let done = command.args(["-l", "/proc/self/fd"]).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    let spawned = listed(&mut Command::new("ls"));
    assert!(!spawned.contains(at.to_str().unwrap()), "{spawned}");
    file.write(0, &[2; 4096]).unwrap();
    assert!(home.is_of_this_process());
    drop(file);
    home.detach().unwrap();
    assert_eq!(std::fs::read(at.join("db/t.d4")).unwrap(), [2; 4096]);
}
