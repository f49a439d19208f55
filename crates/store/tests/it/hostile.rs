//! Wrong and hostile input on real files: each reason has its own message, which names the place
//! and the remedy, and nothing is changed.
//!
//! What happens to a home between two attaches is in `hostile_offline.rs`, flipped bytes are in
//! `hostile_flips.rs`.

use crate::place;

use crate::place::Place;
use rustix::fs::FileType;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tiersmith_store::{AttachedHome, Error, Medium, OpenMode, Options, TierSpec, attach};

const MIB: u64 = 1 << 20;

/// An attached home that is not open: two dirty blocks in `a.d8`, and what a first attach leaves.
fn attached_and_closed(place: &Place, specs: &[TierSpec]) {
    let attached = attach(&place.home(), specs, place::options()).unwrap();
    let file = attached.open("a.d8", OpenMode::CREATE).unwrap();
    file.write(0, &place::pattern(1, 0, 20_000)).unwrap();
}

fn contents_are_there(place: &Place, specs: &[TierSpec]) {
    let attached = attach(&place.home(), specs, place::options()).unwrap();
    assert!(place::read(&attached, "a.d8") == place::pattern(1, 0, 20_000));
}

/// Every file below `dir`, with its length and a digest.
fn tree(dir: &Path) -> BTreeMap<PathBuf, (u64, u64)> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.is_file()
                && let Ok(bytes) = std::fs::read(&path)
            {
                let digest = bytes.iter().fold(0u64, |d, b| place::mix(d ^ u64::from(*b)));
                found.insert(path, (bytes.len() as u64, digest));
            }
        }
    }
    found
}

/// Attaches, is refused, and finds everything as it was.
fn refused(place: &Place, home: &Path, specs: &[TierSpec]) -> Error {
    refused_with(place, home, specs, place::options())
}

fn refused_with(place: &Place, home: &Path, specs: &[TierSpec], options: Options) -> Error {
    let before = tree(place.path());
    let error = match attach(home, specs, options) {
        Ok(_) => panic!("this must not attach"),
        Err(e) => e,
    };
    let after = tree(place.path());
    assert!(
        before == after,
        "refusing ({error}) changed {:?}",
        after.iter().filter(|(p, v)| before.get(*p) != Some(v)).map(|(p, _)| p).collect::<Vec<_>>()
    );
    error
}

/// A reason to refuse: sets the situation up, and gives the error and what its message must name.
/// What stands before a colon is the reason; situations with one reason have one message.
type Reason = fn(&Place) -> (Error, Vec<String>);

fn name(path: impl AsRef<Path>) -> String {
    path.as_ref().display().to_string()
}

fn flip(path: &Path, at: u64) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x5a], at).unwrap();
}

fn node(path: &Path, kind: FileType) {
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, rustix::fs::Mode::from_raw_mode(0o600), 0)
        .unwrap();
}

const REASONS: &[(&str, Reason)] = &[
    ("no such path", |p| {
        let home = p.path().join("nothing");
        (refused(p, &home, &[p.tier(MIB)]), vec![name(home)])
    }),
    ("not a directory", |p| {
        let home = p.path().join("file");
        std::fs::write(&home, "x").unwrap();
        (refused(p, &home, &[p.tier(MIB)]), vec![name(home)])
    }),
    ("an ordinary file as persistent memory", |p| {
        let spec = TierSpec { medium: Medium::Persistent, ..p.tier(MIB) };
        (refused(p, &p.home(), &[spec]), vec![name(p.member("fast"))])
    }),
    ("a directory as a member", |p| {
        std::fs::create_dir(p.member("fast")).unwrap();
        (refused(p, &p.home(), &[p.tier(MIB)]), vec![name(p.member("fast"))])
    }),
    ("a member in a directory that is not there", |p| {
        let member = p.path().join("not/mounted");
        (refused(p, &p.home(), &[place::small(member.clone(), MIB)]), vec![name(member)])
    }),
    ("too small for a tier", |p| {
        (refused(p, &p.home(), &[p.tier(64 << 10)]), vec!["`fast`".into()])
    }),
    ("a tier of another home", |p| {
        let other = p.path().join("other");
        std::fs::create_dir(&other).unwrap();
        attached_and_closed(p, &[p.tier(MIB)]);
        let error = refused(p, &other, &[p.tier(MIB)]);
        contents_are_there(p, &[p.tier(MIB)]);
        (error, vec![name(other), name(p.home())])
    }),
    ("another tier for this home", |p| {
        let other = p.path().join("other");
        std::fs::create_dir(&other).unwrap();
        attached_and_closed(p, &[p.tier(MIB)]);
        let spec = place::small(p.member("fast2"), MIB);
        drop(attach(&other, std::slice::from_ref(&spec), place::options()).unwrap());
        let error = refused(p, &p.home(), &[spec]);
        contents_are_there(p, &[p.tier(MIB)]);
        (error, vec![name(other), name(p.home())])
    }),
    ("a copy of the home", |p| {
        attached_and_closed(p, &[p.tier(MIB)]);
        let copy = p.path().join("copy");
        assert!(Command::new("cp").arg("-a").arg(p.aside()).arg(&copy).status().unwrap().success());
        let error = refused(p, &copy, &[p.tier(MIB)]);
        contents_are_there(p, &[p.tier(MIB)]);
        (error, vec![name(copy), name(p.home())])
    }),
    ("one member of two", |p| {
        let both = p.striped(2, 2 * MIB);
        attached_and_closed(p, std::slice::from_ref(&both));
        let one = TierSpec { members: vec![p.member("fast0")], ..both.clone() };
        let error = refused(p, &p.home(), &[one]);
        contents_are_there(p, &[both]);
        (error, vec!["`fast`".into(), "2 members".into()])
    }),
    ("a member's file is gone", |p| {
        let both = p.striped(2, 2 * MIB);
        attached_and_closed(p, std::slice::from_ref(&both));
        std::fs::rename(p.member("fast1"), p.member("kept")).unwrap();
        let error = refused(p, &p.home(), std::slice::from_ref(&both));
        std::fs::rename(p.member("kept"), p.member("fast1")).unwrap();
        contents_are_there(p, &[both]);
        (error, vec![name(p.member("fast1"))])
    }),
    ("members in the wrong order", |p| {
        let both = p.striped(2, 2 * MIB);
        attached_and_closed(p, std::slice::from_ref(&both));
        let swapped =
            TierSpec { members: vec![p.member("fast1"), p.member("fast0")], ..both.clone() };
        let error = refused(p, &p.home(), &[swapped]);
        contents_are_there(p, &[both]);
        (error, vec![name(p.member("fast1"))])
    }),
    ("a member of another tier", |p| {
        let other = p.path().join("other");
        std::fs::create_dir(&other).unwrap();
        let both = p.striped(2, 2 * MIB);
        attached_and_closed(p, std::slice::from_ref(&both));
        let two = TierSpec { members: vec![p.member("x0"), p.member("x1")], ..both.clone() };
        drop(attach(&other, &[two], place::options()).unwrap());
        let mixed = TierSpec { members: vec![p.member("fast0"), p.member("x1")], ..both.clone() };
        let error = refused(p, &p.home(), &[mixed]);
        contents_are_there(p, &[both]);
        (error, vec![name(p.member("x1"))])
    }),
    ("a member cut short", |p| {
        attached_and_closed(p, &[p.tier(MIB)]);
        let file = std::fs::OpenOptions::new().write(true).open(p.member("fast")).unwrap();
        file.set_len(MIB / 2).unwrap();
        (
            refused(p, &p.home(), &[p.tier(MIB)]),
            vec![name(p.member("fast")), (MIB / 2).to_string(), MIB.to_string()],
        )
    }),
    ("a member cut to nearly nothing", |p| {
        attached_and_closed(p, &[p.tier(MIB)]);
        let file = std::fs::OpenOptions::new().write(true).open(p.member("fast")).unwrap();
        file.set_len(100).unwrap();
        (refused(p, &p.home(), &[p.tier(MIB)]), vec![name(p.member("fast"))])
    }),
    ("a tier is missing, what was given is empty: another file", |p| {
        attached_and_closed(p, &[p.tier(MIB)]);
        std::fs::write(p.member("new"), vec![0; MIB as usize]).unwrap();
        let error = refused(p, &p.home(), &[place::small(p.member("new"), MIB)]);
        contents_are_there(p, &[p.tier(MIB)]);
        (error, vec![name(p.home())])
    }),
    ("a tier is missing, what was given is empty: its file is gone", |p| {
        attached_and_closed(p, &[p.tier(MIB)]);
        std::fs::rename(p.member("fast"), p.member("kept")).unwrap();
        let error = refused(p, &p.home(), &[p.tier(MIB)]);
        std::fs::rename(p.member("kept"), p.member("fast")).unwrap();
        contents_are_there(p, &[p.tier(MIB)]);
        (error, vec![name(p.home()), name(p.member("fast"))])
    }),
    ("something else in the member: for a new tier", |p| {
        std::fs::write(p.member("fast"), place::pattern(9, 0, MIB as usize)).unwrap();
        (refused(p, &p.home(), &[p.tier(MIB)]), vec![name(p.member("fast"))])
    }),
    ("something else in the member: for an attached home", |p| {
        attached_and_closed(p, &[p.tier(MIB)]);
        std::fs::write(p.member("wrong"), place::pattern(9, 0, MIB as usize)).unwrap();
        let error = refused(p, &p.home(), &[place::small(p.member("wrong"), MIB)]);
        contents_are_there(p, &[p.tier(MIB)]);
        (error, vec![name(p.member("wrong"))])
    }),
    ("both copies of the superblock are damaged", |p| {
        attached_and_closed(p, &[p.tier(MIB)]);
        flip(&p.member("fast"), 100);
        flip(&p.member("fast"), 4096 + 100);
        (refused(p, &p.home(), &[p.tier(MIB)]), vec!["superblock".into(), name(p.member("fast"))])
    }),
    ("a file slot is damaged", |p| {
        attached_and_closed(p, &[p.tier(MIB)]);
        // The first slot: after the superblocks, the owner note, four lanes and two batches.
        flip(&p.member("fast"), 16384 + 2 * 4096 + 16);
        (refused(p, &p.home(), &[p.tier(MIB)]), vec!["slot 0".into(), name(p.member("fast"))])
    }),
    ("the home's attachment note cannot be read", |p| {
        attached_and_closed(p, &[p.tier(MIB)]);
        std::fs::write(p.aside().join(".tiersmith"), "attachment = 7\n").unwrap();
        (refused(p, &p.home(), &[p.tier(MIB)]), vec![name(p.home()), ".tiersmith".into()])
    }),
    ("a home file was changed under dirty blocks", |p| {
        attached_and_closed(p, &[p.tier(MIB)]);
        std::fs::write(p.aside().join("a.d8"), "changed").unwrap();
        (refused(p, &p.home(), &[p.tier(MIB)]), vec!["a.d8".into()])
    }),
    ("a home file with dirty blocks is gone", |p| {
        attached_and_closed(p, &[p.tier(MIB)]);
        std::fs::remove_file(p.aside().join("a.d8")).unwrap();
        (refused(p, &p.home(), &[p.tier(MIB)]), vec!["a.d8".into(), "no longer there".into()])
    }),
    ("emulated media given as volatile", |p| {
        attached_and_closed(p, &[p.tier(MIB)]);
        let spec = TierSpec { medium: Medium::Volatile, ..p.tier(MIB) };
        let error = refused(p, &p.home(), &[spec]);
        contents_are_there(p, &[p.tier(MIB)]);
        (error, vec![name(p.member("fast"))])
    }),
    ("a tier is missing: one of two", |p| {
        let redo = TierSpec {
            holds_data: false,
            name: "redo".into(),
            ..place::small(p.member("redo"), MIB)
        };
        let data = TierSpec { holds_redo: false, ..p.tier(MIB) };
        attached_and_closed(p, &[redo.clone(), data.clone()]);
        let error = refused(p, &p.home(), std::slice::from_ref(&redo));
        contents_are_there(p, &[redo, data]);
        (error, vec![name(p.home()), "fast".into()])
    }),
    ("a tier too many", |p| {
        attached_and_closed(p, &[p.tier(MIB)]);
        std::fs::write(p.member("more"), vec![0; MIB as usize]).unwrap();
        let more = TierSpec { name: "more".into(), ..place::small(p.member("more"), MIB) };
        let error = refused(p, &p.home(), &[p.tier(MIB), more]);
        contents_are_there(p, &[p.tier(MIB)]);
        (error, vec![name(p.home())])
    }),
    ("a tier is missing: none given", |p| {
        attached_and_closed(p, &[p.tier(MIB)]);
        let error = refused(p, &p.home(), &[]);
        contents_are_there(p, &[p.tier(MIB)]);
        (error, vec![name(p.home())])
    }),
    ("a tier is missing, what was given is empty: a volatile one", |p| {
        attached_and_closed(p, &[p.tier(MIB)]);
        std::fs::write(p.member("ram"), vec![0; MIB as usize]).unwrap();
        let ram = TierSpec {
            name: "ram".into(),
            medium: Medium::Volatile,
            ..place::small(p.member("ram"), MIB)
        };
        let error = refused(p, &p.home(), &[ram]);
        contents_are_there(p, &[p.tier(MIB)]);
        (error, vec![name(p.home())])
    }),
    ("the home is in use", |p| {
        let attached = attach(&p.home(), &[p.tier(MIB)], place::options()).unwrap();
        let error = refused(p, &p.home(), &[p.tier(MIB)]);
        attached.detach().unwrap();
        (error, vec![name(p.home()), format!("process {}", std::process::id())])
    }),
    ("the tier is in use", |p| {
        let other = p.path().join("other");
        std::fs::create_dir(&other).unwrap();
        let attached = attach(&p.home(), &[p.tier(MIB)], place::options()).unwrap();
        let error = refused(p, &other, &[p.tier(MIB)]);
        attached.detach().unwrap();
        (error, vec![name(p.member("fast")), format!("process {}", std::process::id())])
    }),
    ("the directory moved aside is gone", |p| {
        attached_and_closed(p, &[p.tier(MIB)]);
        std::fs::rename(p.aside(), p.path().join("elsewhere")).unwrap();
        let error = refused(p, &p.home(), &[p.tier(MIB)]);
        std::fs::rename(p.path().join("elsewhere"), p.aside()).unwrap();
        contents_are_there(p, &[p.tier(MIB)]);
        (error, vec![name(p.home()), name(p.aside())])
    }),
    ("data at the path and moved aside", |p| {
        attached_and_closed(p, &[p.tier(MIB)]);
        assert!(
            Command::new("chmod").args(["-R", "u+w"]).arg(p.home()).status().unwrap().success()
        );
        std::fs::remove_dir_all(p.home()).unwrap();
        std::fs::create_dir(p.home()).unwrap();
        std::fs::write(p.home().join("PG_VERSION"), "17").unwrap();
        (refused(p, &p.home(), &[p.tier(MIB)]), vec![name(p.home()), name(p.aside())])
    }),
    ("a volatile tier without a name", |p| {
        let spec = TierSpec { name: String::new(), medium: Medium::Volatile, ..p.tier(MIB) };
        (refused(p, &p.home(), &[spec]), vec!["1 to 64 bytes".into()])
    }),
    ("a member named twice", |p| {
        let spec = TierSpec { members: vec![p.member("x"), p.member("x")], ..p.tier(MIB) };
        (refused(p, &p.home(), &[spec]), vec!["twice".into()])
    }),
    ("a symbolic link as a member", |p| {
        std::fs::write(p.path().join("elsewhere"), "").unwrap();
        std::os::unix::fs::symlink("elsewhere", p.member("fast")).unwrap();
        (
            refused(p, &p.home(), &[p.tier(MIB)]),
            vec![name(p.member("fast")), "a symbolic link".into()],
        )
    }),
    ("a FIFO as a member", |p| {
        // Not waited for, either.
        node(&p.member("fast"), FileType::Fifo);
        (refused(p, &p.home(), &[p.tier(MIB)]), vec![name(p.member("fast")), "a FIFO".into()])
    }),
    ("a socket as a member", |p| {
        node(&p.member("fast"), FileType::Socket);
        (refused(p, &p.home(), &[p.tier(MIB)]), vec![name(p.member("fast")), "a socket".into()])
    }),
    ("a character device of another kind as a member", |p| {
        let spec = place::small("/dev/null".into(), MIB);
        (
            refused(p, &p.home(), &[spec]),
            vec!["/dev/null".into(), "not a DAX character device".into()],
        )
    }),
    ("a member named twice: by two paths", |p| {
        std::fs::create_dir(p.path().join("sub")).unwrap();
        let other = p.path().join("sub/../fast");
        let spec = TierSpec { members: vec![p.member("fast"), other], ..p.tier(MIB) };
        (refused(p, &p.home(), &[spec]), vec!["twice".into()])
    }),
    ("a member named twice: in two tiers", |p| {
        let redo = TierSpec { name: "redo".into(), ..p.tier(MIB) };
        (refused(p, &p.home(), &[redo, p.tier(MIB)]), vec!["twice".into()])
    }),
    ("two tiers with one name", |p| {
        let error = refused(p, &p.home(), &[p.tier(MIB), place::small(p.member("fast2"), MIB)]);
        (error, vec!["`fast`".into()])
    }),
];

/// A message without what differs from run to run.
fn bare(message: &str) -> String {
    let words = message
        .split_whitespace()
        .filter(|w| !w.contains('/') && !w.contains(|c: char| c.is_ascii_digit()));
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn each_reason_to_refuse_has_its_own_message_that_names_the_place_and_nothing_is_changed() {
    let mut by_message: BTreeMap<String, &str> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (what, reason) in REASONS {
        let place = Place::in_memory();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| reason(&place)));
        let (error, names) = match outcome {
            Ok(outcome) => outcome,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                wrong.push(format!("{what}: {}", text.unwrap_or_else(|| "panicked".into())));
                continue;
            }
        };
        let message = error.to_string();
        println!("{what}:\n    {message}");
        for name in names.iter().filter(|n| !message.contains(*n)) {
            wrong.push(format!("{what}: the message does not name {name}: {message}"));
        }
        let kind = what.split(':').next().unwrap();
        if let Some(other) = by_message.insert(bare(&message), kind).filter(|other| *other != kind)
        {
            wrong.push(format!("{what}: the same message as for {other}: {message}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{} reasons, {} messages", REASONS.len(), by_message.len());
}

#[test]
fn a_home_that_cannot_be_written_is_refused_and_says_so() {
    let place = Place::new();
    let tier = Place::new();
    let ro = |on: &str| {
        Command::new("mount").args(["-o", on]).arg(place.home()).arg(place.home()).status()
    };
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        // Permissions do not stop root, a read-only mount does.
        let mounted = Command::new("mount")
            .arg("--bind")
            .arg(place.home())
            .arg(place.home())
            .output()
            .unwrap();
        if !mounted.status.success() {
            println!(
                "SKIPPED: a bind mount is not allowed here: {}",
                String::from_utf8_lossy(&mounted.stderr)
            );
            return;
        }
        assert!(ro("remount,ro,bind").unwrap().success());
    } else {
        let read = std::os::unix::fs::PermissionsExt::from_mode(0o555);
        std::fs::set_permissions(place.home(), read).unwrap();
    }
    let result = attach(&place.home(), &[tier.tier(MIB)], place::options());
    if is_root {
        assert!(Command::new("umount").arg(place.home()).status().unwrap().success());
    } else {
        let write = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(place.home(), write).unwrap();
    }
    let message = result.err().unwrap().to_string();
    assert!(
        message.contains(&name(place.home())) && message.contains("cannot be written"),
        "{message}"
    );
    assert!(!tier.member("fast").exists(), "a tier was made for a home that was refused");
    drop(attach(&place.home(), &[tier.tier(MIB)], place::options()).unwrap());
}

#[test]
fn files_beside_the_note_are_named_and_nothing_is_lost() {
    let place = Place::in_memory();
    attached_and_closed(&place, &[place.tier(MIB)]);
    assert!(Command::new("chmod").arg("u+w").arg(place.home()).status().unwrap().success());
    std::fs::write(place.home().join("stray"), "x").unwrap();
    // The note is whole, so the home can still be used; giving the path back cannot go on over
    // somebody's file.
    let attached = attach(&place.home(), &[place.tier(MIB)], place::options()).unwrap();
    let message = attached.detach().unwrap_err().to_string();
    assert!(message.contains(&name(place.home())) && message.contains("stray"), "{message}");
    std::fs::remove_file(place.home().join("stray")).unwrap();
    let attached = attach(&place.home(), &[place.tier(MIB)], place::options()).unwrap();
    assert!(place::read(&attached, "a.d8") == place::pattern(1, 0, 20_000));
    attached.detach().unwrap();
    assert!(std::fs::read(place.home().join("a.d8")).unwrap() == place::pattern(1, 0, 20_000));
}

const OWNER: &str = "TIERSMITH_OWNER";

/// Not a test: the first owner, in a process of its own. By itself it does nothing.
#[test]
fn owner_in_another_process() {
    let Ok(dir) = std::env::var(OWNER) else { return };
    let dir = PathBuf::from(dir);
    let _attached: AttachedHome =
        attach(&dir.join("db"), &[place::small(dir.join("fast"), MIB)], place::options()).unwrap();
    println!("\nattached");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

#[test]
fn a_second_process_is_refused_and_told_which_the_first_is() {
    use std::io::{BufRead, BufReader};
    let place = Place::in_memory();
    let other = place.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let mut first = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            &full_name!("owner_in_another_process"),
            "--nocapture",
            "--test-threads=1",
        ])
        .env(OWNER, place.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines();
    assert!(lines.any(|l| l.unwrap() == "attached"), "the first process did not attach");
    let second = place::small(place.member("second"), MIB);
    let messages = [
        attach(&place.home(), &[place.tier(MIB)], place::options()),
        attach(&place.home(), &[second], place::options()),
        attach(&other, &[place.tier(MIB)], place::options()),
    ]
    .map(|result| match result {
        Err(e @ Error::Owned { .. }) => e.to_string(),
        other => panic!("a second owner: {:?}", other.err()),
    });
    drop(first.stdin.take());
    assert!(first.wait().unwrap().success());
    for message in &messages {
        assert!(
            message.contains(&format!("process {}", first.id())),
            "it does not name the first: {message}"
        );
    }
    assert!(!place.member("second").exists());
    drop(attach(&place.home(), &[place.tier(MIB)], place::options()).unwrap());
}
