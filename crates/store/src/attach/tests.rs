//! A tier that a cut left between the states, given to another home, and to its own in another
//! place.

use super::{Medium, Options, TierSpec, attach};
use crate::api::AttachedHome;
use crate::error::Result;
use crate::format::superblock::{COPY_AT, SUPERBLOCK, Superblock, TierState};
use crate::profile::Profile;
use std::fs;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

fn try_attach(dir: &Path, home: &str) -> Result<AttachedHome> {
    let mut spec = TierSpec::new("fast", dir.join("fast"), Medium::Emulated, 4 << 20);
    (spec.unit, spec.lanes, spec.slots) = (64 << 10, 4, 16);
    let profile = Some(Profile::named("generic").unwrap());
    attach(&dir.join(home), &[spec], Options { profile, background: false, ..Options::default() })
}

/// Writes another state into the superblocks of a tier at rest.
fn set_state(member: &Path, state: TierState) {
    let file = fs::File::options().read(true).write(true).open(member).unwrap();
    for at in COPY_AT {
        let mut bytes = [0; SUPERBLOCK];
        file.read_exact_at(&mut bytes, at).unwrap();
        let mut superblock = Superblock::decode(&bytes).unwrap();
        superblock.state = state;
        superblock.seq += 1;
        file.write_all_at(&superblock.encode(), at).unwrap();
    }
}

#[test]
fn a_tier_in_the_middle_of_attaching_or_detaching_is_not_given_to_another_home_while_a_note_names_it()
 {
    for state in [TierState::Attaching, TierState::Detaching] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        for home in ["one", "two"] {
            fs::create_dir(dir.join(home)).unwrap();
            fs::write(dir.join(home).join("file"), home).unwrap();
        }
        drop(try_attach(&dir, "one").unwrap());
        let member = dir.join("fast");
        set_state(&member, state);
        let before = fs::read(&member).unwrap();
        let said = try_attach(&dir, "two").unwrap_err().to_string();
        assert!(
            said.contains(&format!("{}", dir.join("one").display())) && said.contains("first"),
            "{said}"
        );
        assert!(fs::read(&member).unwrap() == before, "nothing was changed");
        assert_eq!(fs::read_dir(dir.join("two")).unwrap().count(), 1, "nor there");
        // The first home goes on from there, and its end makes the tier free.
        try_attach(&dir, "one").unwrap().detach().unwrap();
        assert_eq!(fs::read_to_string(dir.join("one/file")).unwrap(), "one");
        try_attach(&dir, "two").unwrap().detach().unwrap();
        // One whose home is gone, or says nothing of it, is free.
        drop(try_attach(&dir, "one").unwrap());
        set_state(&member, state);
        fs::remove_file(aside(&dir.join("one")).join(".tiersmith")).unwrap();
        try_attach(&dir, "two").unwrap().detach().unwrap();
    }
}

/// A directory with homes in it, each with a file.
fn homes(names: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let guard = tempfile::tempdir().unwrap();
    let dir = guard.path().canonicalize().unwrap();
    for home in names {
        fs::create_dir_all(dir.join(home)).unwrap();
        fs::write(dir.join(home).join("file"), home).unwrap();
    }
    (guard, dir)
}

/// Where the files of a home lie that is attached; the test may go there from now on, whoever runs
/// it.
fn aside(home: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(crate::home::vault_of(home), fs::Permissions::from_mode(0o700)).unwrap();
    crate::home::files_aside(home)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for name in ["file", ".tiersmith"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

#[test]
fn a_home_that_was_moved_with_a_link_at_its_old_place_is_not_locked_out_of_its_tier() {
    for (state, attached_between) in
        [TierState::Attaching, TierState::Detaching].iter().flat_map(|s| [(*s, false), (*s, true)])
    {
        let (_guard, dir) = homes(&["old/one"]);
        drop(try_attach(&dir, "old/one").unwrap());
        if !attached_between {
            set_state(&dir.join("fast"), state);
        }
        fs::rename(dir.join("old"), dir.join("new")).unwrap();
        symlink(dir.join("new"), dir.join("old")).unwrap();
        if attached_between {
            drop(try_attach(&dir, "old/one").unwrap());
            set_state(&dir.join("fast"), state);
        }
        for home in ["old/one", "new/one"] {
            let attached = try_attach(&dir, home).unwrap();
            assert_eq!(
                attached.home_path(),
                dir.join("new/one"),
                "what it says of its place is where it is"
            );
            drop(attached);
            set_state(&dir.join("fast"), state);
        }
        try_attach(&dir, "old/one").unwrap().detach().unwrap();
        assert_eq!(fs::read_to_string(dir.join("new/one/file")).unwrap(), "old/one");
    }
}

#[test]
fn a_home_that_was_renamed_keeps_its_tier_when_a_copy_of_it_is_at_its_old_place() {
    let (_guard, dir) = homes(&["one"]);
    drop(try_attach(&dir, "one").unwrap());
    set_state(&dir.join("fast"), TierState::Detaching);
    for aside in ["", ".tiersmith-home"] {
        fs::rename(dir.join(format!("one{aside}")), dir.join(format!("moved{aside}"))).unwrap();
    }
    copy(&aside(&dir.join("moved")), &dir.join("one"));
    let said = try_attach(&dir, "one").map(drop).unwrap_err().to_string();
    assert!(said.contains("is a copy of"), "{said}");
    try_attach(&dir, "moved").unwrap().detach().unwrap();
    assert_eq!(fs::read_to_string(dir.join("moved/file")).unwrap(), "one");
}

#[test]
fn a_home_that_was_copied_to_another_place_in_the_middle_of_attaching_stays_attached_there() {
    // What is at the old place then: nothing, or something that cannot be read.
    for unreadable in [false, true] {
        let (_guard, dir) = homes(&["one"]);
        drop(try_attach(&dir, "one").unwrap());
        set_state(&dir.join("fast"), TierState::Attaching);
        copy(&aside(&dir.join("one")), &dir.join("other"));
        fs::remove_dir_all(dir.join("one.tiersmith-home")).unwrap();
        fs::remove_dir_all(dir.join("one")).unwrap();
        if unreadable {
            fs::create_dir_all(dir.join("one/.tiersmith")).unwrap();
        }
        drop(try_attach(&dir, "other").unwrap());
        // By now it says `attached`, and that of this directory.
        drop(try_attach(&dir, "other").unwrap());
        try_attach(&dir, "other").unwrap().detach().unwrap();
        assert_eq!(fs::read_to_string(dir.join("other/file")).unwrap(), "one");
    }
}

#[test]
fn a_tier_in_the_middle_is_not_given_away_while_it_cannot_be_seen_whether_its_home_needs_it() {
    type Hide = fn(&Path, &Path);
    let hidden: [(&str, Hide); 4] = [
        ("note .tiersmith does not end with a checksum", |_, note| {
            fs::write(note, "attachment = 7").unwrap()
        }),
        ("note .tiersmith is of version 2", |_, note| {
            let text = fs::read_to_string(note).unwrap();
            fs::write(note, text.replace("version = 1", "version = 2")).unwrap();
        }),
        ("cannot read the note of", |_, note| {
            fs::remove_file(note).unwrap();
            fs::create_dir(note).unwrap();
        }),
        ("bring that directory back", |dir, _| {
            fs::rename(dir.join("one.tiersmith-home"), dir.join("elsewhere")).unwrap();
        }),
    ];
    for state in [TierState::Attaching, TierState::Detaching] {
        for (reason, hide) in hidden {
            let (_guard, dir) = homes(&["one", "two"]);
            drop(try_attach(&dir, "one").unwrap());
            set_state(&dir.join("fast"), state);
            let note = aside(&dir.join("one")).join(".tiersmith");
            let kept = fs::read(&note).unwrap();
            hide(&dir, &note);
            let before = fs::read(dir.join("fast")).unwrap();
            let said = try_attach(&dir, "two").map(drop).unwrap_err().to_string();
            assert!(
                said.contains(reason) && said.contains("cannot be seen"),
                "{state:?} {reason}: {said}"
            );
            assert!(fs::read(dir.join("fast")).unwrap() == before, "nothing was changed");
            // It comes back, and needs the tier.
            let _ = fs::rename(dir.join("elsewhere"), dir.join("one.tiersmith-home"));
            let _ = fs::remove_dir(&note);
            fs::write(&note, kept).unwrap();
            try_attach(&dir, "one").unwrap().detach().unwrap();
            try_attach(&dir, "two").unwrap().detach().unwrap();
        }
        // No home there: a file, or nothing.
        for file in [true, false] {
            let (_guard, dir) = homes(&["one", "two"]);
            drop(try_attach(&dir, "one").unwrap());
            set_state(&dir.join("fast"), state);
            let _ = aside(&dir.join("one"));
            fs::remove_dir_all(dir.join("one")).unwrap();
            fs::remove_dir_all(dir.join("one.tiersmith-home")).unwrap();
            if file {
                fs::write(dir.join("one"), "").unwrap();
            }
            try_attach(&dir, "two").unwrap().detach().unwrap();
        }
    }
}

#[test]
fn who_has_a_tier_is_not_asked_of_a_pipe_or_a_link() {
    let (_guard, dir) = homes(&["one"]);
    let (pipe, link) = (dir.join("pipe"), dir.join("link"));
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    drop(try_attach(&dir, "one").unwrap());
    symlink(dir.join("fast"), &link).unwrap();
    assert!(super::owner_note(&dir.join("fast")).is_some());
    for path in [pipe, link] {
        let (said, heard) = std::sync::mpsc::channel();
        std::thread::spawn(move || said.send(super::owner_note(&path)));
        let answer = heard.recv_timeout(std::time::Duration::from_secs(20));
        assert_eq!(answer, Ok(None), "it waits for a pipe, or follows a link");
    }
}
