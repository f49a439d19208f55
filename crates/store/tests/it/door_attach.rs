//! Attaching as a door does it: by the home alone, failing the first time, two processes at once, a
//! tier too small, modelled homes.

use crate::place;

use crate::place::{Place, read};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tiersmith_store::home::{Home, RealHome};
use tiersmith_store::{
    Attachment, Error, Guard, HomeModel, Medium, OpenMode, Options, Profile, TierSpec, attach,
    attachment,
};

fn spec(place: &Place) -> TierSpec {
    TierSpec::new("fast", place.member("m0"), Medium::Emulated, 12 << 20)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_home_says_how_it_was_attached_wherever_it_is() {
    let place = Place::new();
    std::fs::write(place.home().join("a.d4"), [1; 9000]).unwrap();
    assert!(attachment(&place.home()).unwrap().is_none());
    let options = Options {
        profile_file: Some("/etc/tiersmith/test.toml".into()),
        door: BTreeMap::from([("mount.threads".into(), "4".into())]),
        ..place::options()
    };
    let grows = TierSpec { max_size: 20 << 20, grow_by: 1 << 20, ..spec(&place) };
    let home = attach(&place.home(), std::slice::from_ref(&grows), options).unwrap();
    home.open("a.d4", OpenMode::WRITE).unwrap().write(0, &[2; 4096]).unwrap();
    let check = |found: Attachment| {
        assert_eq!(
            (found.aside, found.files.clone()),
            (true, place.aside().canonicalize().unwrap())
        );
        assert_eq!((found.profile.as_str(), found.guard), ("test", Guard::MoveAside));
        assert_eq!(found.profile_file, Some(PathBuf::from("/etc/tiersmith/test.toml")));
        assert_eq!(found.door["mount.threads"], "4");
        let tier = &found.tiers[0];
        assert!(tier.emulated && tier.members == [place.member("m0")] && tier.size == 12 << 20);
        tier.spec.clone()
    };
    // While it is attached, and after its process is gone.
    let found = check(attachment(&place.home()).unwrap().unwrap());
    assert_eq!(
        (found.max_size, found.grow_by, found.unit),
        (grows.max_size, grows.grow_by, grows.unit)
    );
    drop(home);
    let again = check(attachment(&place.home()).unwrap().unwrap());
    let home = attach(&place.home(), &[again], place::options()).unwrap();
    assert_eq!(read(&home, "a.d4")[..4096], [2; 4096]);
    let other = attachment(&place.home()).unwrap().unwrap();
    assert_eq!((other.profile_file, other.door.len()), (None, 0), "as it was attached last");
    home.detach().unwrap();
    assert!(attachment(&place.home()).unwrap().is_none());
    assert!(attachment(&place.path().join("none")).is_err());
}

#[test]
fn an_edited_note_and_one_of_another_version_are_refused_and_nothing_is_changed() {
    let place = Place::new();
    let home = attach(&place.home(), &[spec(&place)], place::options()).unwrap();
    home.create("a.d4").unwrap().write(0, &[3; 9000]).unwrap();
    drop(home);
    let note = place.aside().join(".tiersmith");
    let text = std::fs::read_to_string(&note).unwrap();
    let first = text.lines().filter(|l| l.starts_with(['#', 'a']) && !l.starts_with("# checksum"));
    let first: String = first.map(|line| format!("{line}\n")).collect();
    for (other, words) in [
        (text.replace("\"emulated\"", "\"volatile\""), "edited or damaged"),
        (text.replace("version = 1", "version = 2"), "of version 2"),
        (first, "development build"),
    ] {
        std::fs::write(&note, &other).unwrap();
        let tier = std::fs::read(place.member("m0")).unwrap();
        let error =
            attach(&place.home(), &[spec(&place)], place::options()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert!(attachment(&place.home()).is_err());
        assert_eq!(std::fs::read_to_string(&note).unwrap(), other);
        assert!(std::fs::read(place.member("m0")).unwrap() == tier);
    }
    std::fs::write(&note, text).unwrap();
    attach(&place.home(), &[spec(&place)], place::options()).unwrap().detach().unwrap();
    assert_eq!(std::fs::read(place.home().join("a.d4")).unwrap(), vec![3; 9000]);
}

/// What a first attach may fail for, and what is left.
#[test]
fn a_first_attach_that_fails_leaves_a_plain_home_and_no_tier() {
    let place = Place::new();
    std::fs::create_dir_all(place.home().join("pg_wal")).unwrap();
    std::fs::write(place.home().join("pg_wal/1"), [1; 100]).unwrap();
    let plain = |why: &str| {
        assert_eq!(names(place.path()), ["db"], "{why}");
        assert_eq!(names(&place.home()), ["pg_wal"], "{why}");
        assert!(attachment(&place.home()).unwrap().is_none(), "{why}");
    };
    // Too small for anything, and for the redo of the profile.
    for mib in [1, 2, 3, 4] {
        let small = TierSpec { size: mib << 20, max_size: mib << 20, ..spec(&place) };
        let options =
            Options { profile: Some(Profile::named("postgres").unwrap()), ..place::options() };
        let error = attach(&place.home(), &[small], options).unwrap_err();
        assert!(matches!(error, Error::Options(_)), "{mib} MiB: {error}");
        assert!(error.to_string().contains("at least"), "{mib} MiB: {error}");
        plain(&format!("{mib} MiB: {error}"));
    }
    // The place for the tier is none.
    let nowhere = TierSpec { members: vec![place.path().join("none/m0")], ..spec(&place) };
    assert!(attach(&place.home(), &[nowhere], place::options()).is_err());
    plain("no directory for the tier");
    // A second member that is not ours.
    std::fs::write(place.member("other"), vec![7; 1 << 20]).unwrap();
    let foreign =
        TierSpec { members: vec![place.member("m0"), place.member("other")], ..spec(&place) };
    assert!(attach(&place.home(), &[foreign], place::options()).is_err());
    std::fs::remove_file(place.member("other")).unwrap();
    plain("a foreign member");
    // The directory cannot be moved aside: something that is no note has the name.
    std::fs::create_dir(place.vault()).unwrap();
    std::fs::write(place.vault().join("a file"), b"x").unwrap();
    assert!(attach(&place.home(), &[spec(&place)], place::options()).is_err());
    std::fs::remove_dir_all(place.vault()).unwrap();
    plain("two homes");
    // A name too long to have a sibling fails when the door is closed, after the tier was formatted
    // and the note written.
    let long = place.path().join("x".repeat(250));
    std::fs::rename(place.home(), &long).unwrap();
    let error = attach(&long, &[spec(&place)], place::options()).unwrap_err();
    assert_eq!(names(&long), ["pg_wal"], "{error}");
    std::fs::rename(&long, place.home()).unwrap();
    plain("a name too long");
    // An empty file given for the tier is empty again.
    std::fs::write(place.member("m0"), b"").unwrap();
    std::fs::create_dir(place.vault()).unwrap();
    std::fs::write(place.vault().join("a file"), b"x").unwrap();
    assert!(attach(&place.home(), &[spec(&place)], place::options()).is_err());
    assert_eq!(std::fs::metadata(place.member("m0")).unwrap().len(), 0);
    std::fs::remove_dir_all(place.vault()).unwrap();
    attach(&place.home(), &[spec(&place)], place::options()).unwrap().detach().unwrap();
}

/// The door's steps (their numbers in `guard.rs`), stopped in turn: whatever is found, the next
/// attach and detach end it.
#[test]
fn a_stop_at_any_step_of_moving_the_home_is_ended_by_the_next_attach_or_detach() {
    for exchange in [true, false] {
        for step in (1..=9).chain(21..=27) {
            let place = Place::new();
            std::fs::write(place.home().join("a.d4"), [1; 9000]).unwrap();
            let first = attach(&place.home(), &[spec(&place)], place::options()).unwrap();
            first.open("a.d4", OpenMode::WRITE).unwrap().write(0, &[2; 4096]).unwrap();
            drop(first);
            let real = RealHome::open(&place.home()).unwrap();
            if !exchange {
                real.without_exchange();
            }
            // As if the process had been moving it back, or aside, when it stopped.
            let moving = if step < 20 {
                real.open_door().unwrap();
                real.stop_at(step);
                real.close_door("note")
            } else {
                real.stop_at(step);
                real.open_door()
            };
            drop(moving);
            drop(real);
            let what = format!("step {step}, exchange {exchange}");
            let again = attach(&place.home(), &[spec(&place)], place::options())
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(read(&again, "a.d4")[..4097], [&[2; 4096][..], &[1][..]].concat(), "{what}");
            again.detach().unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(names(&place.home()), ["a.d4"], "{what}");
            assert_eq!(names(place.path()), ["db", "m0"], "{what}");
            assert_eq!(
                std::fs::read(place.home().join("a.d4")).unwrap()[..4096],
                [2; 4096],
                "{what}"
            );
        }
    }
}

#[test]
fn a_tier_too_small_for_the_redo_says_how_large_it_must_be_and_that_is_enough() {
    let place = Place::new();
    let options =
        || Options { profile: Some(Profile::named("postgres").unwrap()), ..place::options() };
    let small = TierSpec { size: 6 << 20, max_size: 6 << 20, unit: 32768, ..spec(&place) };
    let said = attach(
        &place.home(),
        &[TierSpec { size: 3 << 20, max_size: 3 << 20, ..small.clone() }],
        options(),
    )
    .unwrap_err()
    .to_string();
    assert!(said.contains("redo of profile `postgres`") && said.contains("`fast`"), "{said}");
    let mib: u64 =
        said.rsplit("at least ").next().unwrap().split(' ').next().unwrap().parse().unwrap();
    let enough = TierSpec { size: mib << 20, max_size: mib << 20, ..small };
    let home = attach(&place.home(), &[enough], options()).unwrap();
    // It works: more redo than the tier holds goes through it, in two segments that keep as much as
    // they may.
    std::fs::create_dir(place.aside().join("pg_wal")).unwrap();
    for name in ["pg_wal/1", "pg_wal/2"] {
        let file = home.create(name).unwrap();
        for n in 0..256u64 {
            file.append(&[n as u8; 32768]).unwrap();
        }
        home.background_step().unwrap();
    }
    let tier = &home.stats().tiers[0];
    assert!(tier.dirty_bytes <= tier.usable_bytes / 2 + (1 << 20), "redo fills the tier: {tier:?}");
    home.detach().unwrap();
    let bytes = std::fs::read(place.home().join("pg_wal/2")).unwrap();
    assert!(
        bytes.len() == 256 * 32768
            && bytes.chunks(32768).enumerate().all(|(n, c)| c.iter().all(|b| *b == n as u8))
    );
}

#[test]
fn the_place_a_home_was_moved_to_is_not_attached_by_that_name() {
    let place = Place::new();
    let home = attach(&place.home(), &[spec(&place)], place::options()).unwrap();
    home.create("a.d4").unwrap().write(0, &[4; 100]).unwrap();
    let busy = attach(&place.aside(), &[spec(&place)], place::options()).unwrap_err().to_string();
    assert!(busy.contains("give ") && busy.contains("/db"), "{busy}");
    drop(home);
    for path in [place.aside(), place.vault()] {
        let aside = attach(&path, &[spec(&place)], place::options()).unwrap_err().to_string();
        assert!(aside.contains("give ") && aside.contains("/db "), "{aside}");
    }
    assert_eq!(names(place.path()), ["db", "db.tiersmith-home", "m0"]);
    let home = attach(&place.home(), &[spec(&place)], place::options()).unwrap();
    assert_eq!(read(&home, "a.d4"), vec![4; 100]);
    home.detach().unwrap();
    // A directory that only has such a name is a home as any.
    std::fs::create_dir(place.vault()).unwrap();
    let other = TierSpec { members: vec![place.member("m1")], ..spec(&place) };
    std::fs::remove_dir_all(place.home()).unwrap();
    attach(&place.vault(), &[other], place::options()).unwrap().detach().unwrap();
}

#[test]
fn an_attached_home_keeps_its_profile_when_none_is_given() {
    let place = Place::new();
    std::fs::write(place.home().join("dump.rdb"), b"x").unwrap();
    let options = || Options { background: false, ..Options::default() };
    let home = attach(&place.home(), &[spec(&place)], options()).unwrap();
    assert_eq!((home.profile_name(), home.stats().profile.as_str()), ("redis", "redis"));
    home.unlink("dump.rdb").unwrap();
    drop(home);
    let home = attach(&place.home(), &[spec(&place)], options()).unwrap();
    assert_eq!(home.profile_name(), "redis");
    home.detach().unwrap();
    let home = attach(&place.home(), &[spec(&place)], options()).unwrap();
    assert_eq!(home.profile_name(), "generic");
    home.detach().unwrap();
}

/// The home may belong to the database's user: what he puts where the note is written is not
/// written to.
#[test]
fn a_note_is_never_written_into_what_somebody_put_in_its_place() {
    let place = Place::new();
    let new = place.home().join(".tiersmith.new");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &new,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o666),
        0,
    )
    .unwrap();
    let home = attach(&place.home(), &[spec(&place)], place::options()).unwrap();
    home.create("a.d4").unwrap().write(0, &[5; 9000]).unwrap();
    home.detach().unwrap();
    assert_eq!(std::fs::read(place.home().join("a.d4")).unwrap(), vec![5; 9000]);
    assert!(!new.exists());
}

#[test]
fn a_pipe_in_the_place_of_the_note_is_an_error_and_not_waited_for() {
    let place = Place::new();
    let note = place.home().join(".tiersmith");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &note,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o666),
        0,
    )
    .unwrap();
    let refused = attach(&place.home(), &[spec(&place)], place::options()).unwrap_err();
    assert!(refused.to_string().contains(".tiersmith is not an ordinary file"), "{refused}");
    assert!(note.exists());
}

#[test]
fn a_modelled_home_is_labelled_and_detaches_to_the_same_bytes() {
    let place = Place::new();
    let plain = attach(&place.home(), &[spec(&place)], place::options()).unwrap();
    assert_eq!(plain.stats().home_model, None);
    plain.detach().unwrap();
    let options = Options { home_model: HomeModel::named("all-flash-array"), ..place::options() };
    let home = attach(&place.home(), &[spec(&place)], options).unwrap();
    assert_eq!(home.stats().home_model.as_deref(), Some("all-flash-array"));
    home.create("a.d4").unwrap().write(0, &[5; 9000]).unwrap();
    home.detach().unwrap();
    assert_eq!(std::fs::read(place.home().join("a.d4")).unwrap(), vec![5; 9000]);
}

const ROLE: &str = "TIERSMITH_TEST_RACER";

/// Not a test: what the parent starts. By itself it does nothing.
#[test]
fn racer() {
    let Ok(dir) = std::env::var(ROLE) else { return };
    let dir = PathBuf::from(dir);
    let mut line = String::new();
    let mut input = std::io::stdin().lock();
    let mut said = std::fs::OpenOptions::new().write(true).open("/proc/self/fd/1").unwrap();
    writeln!(said, "\nready").unwrap();
    let tier = TierSpec::new("fast", dir.join("m0"), Medium::Emulated, 12 << 20);
    loop {
        line.clear();
        if input.read_line(&mut line).unwrap() == 0 {
            return;
        }
        let home = dir.join(line.trim());
        match attach(&home, std::slice::from_ref(&tier), place::options()) {
            Ok(home) => {
                let file = home.open("a.d4", OpenMode::CREATE).unwrap();
                let mut count = [0; 8];
                file.read(0, &mut count).unwrap();
                file.write(0, &(u64::from_le_bytes(count) + 1).to_le_bytes()).unwrap();
                drop(file);
                writeln!(said, "\nwon").unwrap();
                // Held until the parent has heard the other one.
                line.clear();
                input.read_line(&mut line).unwrap();
                if line.trim() == "detach" {
                    home.detach().unwrap();
                } else {
                    drop(home);
                }
                writeln!(said, "\nleft").unwrap();
            }
            Err(Error::Owned { what, owner }) => {
                writeln!(said, "\nrefused {what} {owner}").unwrap()
            }
            Err(e) => writeln!(said, "\nfailed {e}").unwrap(),
        }
    }
}

struct Racer {
    child: std::process::Child,
    said: std::sync::mpsc::Receiver<String>,
}

impl Racer {
    fn start(dir: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([full_name!("racer").as_str(), "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (sender, said) = std::sync::mpsc::channel();
        let out = std::io::BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            let words = ["ready", "won", "left", "refused", "failed"];
            for line in out.lines().map_while(Result::ok) {
                if words.iter().any(|word| line.starts_with(word)) && sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, said }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The next word; the limit is for a hang.
    fn hear(&self) -> String {
        self.said
            .recv_timeout(std::time::Duration::from_secs(300))
            .expect("the racer says something")
    }
}

impl Drop for Racer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn of_two_processes_that_attach_one_home_exactly_one_wins_and_nothing_is_lost() {
    let place = Place::in_memory();
    let mut racers = [Racer::start(place.path()), Racer::start(place.path())];
    racers.iter().for_each(|racer| assert_eq!(racer.hear(), "ready"));
    let mut wins = 0u64;
    for round in 0..50 {
        for racer in &mut racers {
            racer.tell("db");
        }
        let said: Vec<String> = racers.iter().map(Racer::hear).collect();
        let winners: Vec<usize> = (0..2).filter(|n| said[*n] == "won").collect();
        assert_eq!(winners.len(), 1, "round {round}: {said:?}");
        let loser = &said[1 - winners[0]];
        assert!(loser.starts_with("refused"), "round {round}: {loser}");
        wins += 1;
        // Every third round ends with a plain home, so that the next is a race of first attaches.
        racers[winners[0]].tell(if round % 3 == 0 { "detach" } else { "close" });
        assert_eq!(racers[winners[0]].hear(), "left", "round {round}");
    }
    drop(racers);
    let home = attach(&place.home(), &[spec(&place)], place::options()).unwrap();
    assert_eq!(read(&home, "a.d4")[..8], wins.to_le_bytes());
    home.detach().unwrap();
    assert_eq!(names(place.path()), ["db", "m0"]);
}

#[test]
fn a_pipe_where_the_note_names_the_tier_is_not_waited_for() {
    let place = Place::new();
    drop(attach(&place.home(), &[spec(&place)], place::options()).unwrap());
    let member = place.member("m0");
    std::fs::rename(&member, place.member("kept")).unwrap();
    assert!(Command::new("mkfifo").arg(&member).status().unwrap().success());
    // Somebody has the home locked, and the note says who that may be.
    let other = RealHome::open(&place.home()).unwrap();
    other.lock().unwrap();
    let (home, elsewhere) =
        (place.home(), TierSpec { members: vec![place.member("kept")], ..spec(&place) });
    let (done, ended) = std::sync::mpsc::channel();
    drop(std::thread::spawn(move || {
        done.send(attach(&home, &[elsewhere], place::options()).err())
    }));
    let refused = ended.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
    assert!(matches!(refused, Some(Error::Owned { .. })), "{refused:?}");
}

/// It is text in the tier's file, which the tier's owner may change: nobody may be led to stop
/// another process, or to print what commands a terminal.
#[test]
fn who_has_a_tier_is_told_as_what_its_note_says() {
    use std::os::unix::fs::FileExt;
    const OWNER_NOTE: u64 = 8192;
    let place = Place::new();
    let _held = attach(&place.home(), &[spec(&place)], place::options()).unwrap();
    let other = place.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let owner = || match attach(&other, &[spec(&place)], place::options()) {
        Err(error @ Error::Owned { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let says = format!("as the owner note of {} says", place.member("m0").display());
    let said = owner();
    assert!(said.contains(&format!("in use by process {} (", std::process::id())), "{said}");
    assert!(said.contains(&says) && !said.contains("stop that process"), "{said}");
    let member = std::fs::OpenOptions::new().write(true).open(place.member("m0")).unwrap();
    for (forged, told) in [
        ("process 1 (postgres)", "process 1 (postgres), as the owner note of"),
        ("process 1 (postgres)\n\u{1b}]0;x", "in use by another process;"),
        ("process none (postgres)", "in use by another process;"),
        ("nobody: all is well", "in use by another process;"),
    ] {
        let mut note = forged.as_bytes().to_vec();
        note.resize(256, 0);
        member.write_all_at(&note, OWNER_NOTE).unwrap();
        let said = owner();
        assert!(said.contains(told), "{forged:?}: {said}");
    }
}
