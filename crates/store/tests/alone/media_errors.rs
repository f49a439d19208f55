//! Media that lose what they hold, shown by cutting the tier's file short beneath its mapping: what
//! attaching, destaging, detaching and a program that reads get to hear.

use crate::place;

use crate::place::Place;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use tiersmith_pmem::{Access, Mapping, OpenOptions};
use tiersmith_store::{AttachedHome, Error, OpenMode, TierSpec, attach, testing};

const BYTES: u64 = 16 << 20;
const B: usize = 8192;
const ROLE: &str = "TIERSMITH_TEST_FAULT";

/// Units in the order in which they are first needed: map pages, data, redo.
fn spec(place: &Place) -> TierSpec {
    TierSpec { unit: 1 << 20, lanes: 1, ..place::small(place.member("tier"), BYTES) }
}

/// A home with 20 blocks of `a.d8` and 20 of `b.redo` that only the tier has, each of its own
/// bytes.
fn ahead_of_home(place: &Place) -> AttachedHome {
    std::fs::write(place.home().join("a.d8"), vec![0xa0; 20 * B]).unwrap();
    let attached = attach(&place.home(), &[spec(place)], place::options()).unwrap();
    let (a, b) = (
        attached.open("a.d8", OpenMode::WRITE).unwrap(),
        attached.open("b.redo", OpenMode::CREATE).unwrap(),
    );
    for n in 0..20 {
        a.write(n * B as u64, &[n as u8 + 1; B]).unwrap();
        b.write(n * 4096, &[n as u8 + 101; 4096]).unwrap();
    }
    drop((a, b));
    attached
}

/// Where on the medium each of the twenty blocks is whose bytes begin with `first`, `first` + 1 and
/// so on.
fn positions(place: &Place, first: u8) -> Vec<u64> {
    let tier = std::fs::read(place.member("tier")).unwrap();
    let find =
        |byte| tier.chunks(4096).position(|frame| frame == [byte; 4096]).unwrap() as u64 * 4096;
    (first..first + 20).map(find).collect()
}

fn cut(path: &Path, len: u64) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

/// From a place in the middle of the blocks of `a.d8` on the medium has nothing any more. Returns
/// the place, and which blocks of `a.d8` are lost; of `b.redo` all are.
fn lose_the_end(place: &Place) -> (u64, Vec<u64>) {
    let (a, b) = (positions(place, 1), positions(place, 101));
    let mut sorted = a.clone();
    sorted.sort_unstable();
    let at = sorted[15];
    assert!(b.iter().all(|b| *b > at), "redo is behind data");
    cut(&place.member("tier"), at);
    (at, (0..20).filter(|n| a[*n as usize] >= at).collect())
}

#[test]
fn metadata_that_the_medium_does_not_give_ends_the_attach_with_a_sentence_and_nothing_is_changed() {
    let place = Place::in_memory();
    drop(ahead_of_home(&place));
    let slots = 12288 + 4096 + 2 * 4096;
    for (what, len) in [
        ("a superblock copy and all else", 4096),
        ("lanes", 12288),
        ("file table", slots),
        ("map pages", 1 << 20),
    ] {
        let copy = place.member("copy");
        std::fs::copy(place.member("tier"), &copy).unwrap();
        let mapping = Mapping::open(&copy, &OpenOptions::new(Access::Emulated, BYTES)).unwrap();
        cut(&copy, len);
        let spec = TierSpec { members: vec![copy.clone()], ..spec(&place) };
        let tiers = vec![(spec, vec![Arc::new(mapping)])];
        let error =
            testing::attach_simulated_at(&place.home(), tiers, &place::profile(), place::options())
                .expect_err(what)
                .to_string();
        assert!(error.contains("cannot read ") && error.contains("/copy: "), "{what}: {error}");
        assert!(error.contains("truncated") && error.contains("restore"), "{what}: {error}");
        std::fs::remove_file(&copy).unwrap();
    }
    // Nothing of it was ours to change.
    let attached = attach(&place.home(), &[spec(&place)], place::options()).unwrap();
    attached.detach().unwrap();
    let home = std::fs::read(place.home().join("a.d8")).unwrap();
    assert!((0..20).all(|n| home[n * B..][..B] == [n as u8 + 1; B]));
}

/// Home has the newest version of each block but for those that are lost: of them it has what it
/// had.
fn assert_home(home: &[u8], lost: &[u64]) {
    for (n, block) in (0..).zip(home.chunks(B)) {
        let expected = if lost.contains(&n) { 0xa0 } else { n as u8 + 1 };
        assert!(block == [expected; B], "block {n} begins with {:#x}", block[0]);
    }
}

#[test]
fn a_block_that_cannot_be_read_on_its_way_home_is_named_stays_and_keeps_no_other_from_going() {
    let place = Place::in_memory();
    let attached = ahead_of_home(&place);
    let (_, lost) = lose_the_end(&place);
    let dirty = |attached: &AttachedHome| attached.stats().tiers[0].dirty_bytes;

    let error = attached.destage(None).unwrap_err();
    let said = error.to_string();
    let Error::Unreadable { path, block, .. } = error else { panic!("{said}") };
    assert_eq!((path, block), (PathBuf::from("a.d8"), lost[0]), "{said}");
    for part in
        [&*format!("block {block} of a.d8"), "/tier: ", "exists only there", "--skip-unreadable"]
    {
        assert!(said.contains(part), "{part:?} in {said}");
    }
    // What could be read is at home, and what could not is nobody else's.
    let home = std::fs::read(place.aside().join("a.d8")).unwrap();
    assert_home(&home, &lost);
    assert_eq!(dirty(&attached), 5 * B as u64 + 20 * 4096);
    // The same for the redo file alone, and whatever is tried again.
    for _ in 0..2 {
        let error = attached.destage(Some(Path::new("b.redo"))).unwrap_err();
        assert!(
            matches!(&error, Error::Unreadable { path, .. } if path == Path::new("b.redo")),
            "{error}"
        );
        let error = attached.background_step();
        assert!(error.is_ok() || matches!(error, Err(Error::Unreadable { .. })), "{error:?}");
    }
    let error = attached.clone().detach().unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }), "{error}");
    assert_eq!(dirty(&attached), 5 * B as u64 + 20 * 4096);
}

#[test]
fn detaching_gives_up_unreadable_blocks_only_when_told_to_and_lists_them() {
    let place = Place::in_memory();
    let attached = ahead_of_home(&place);
    let (_, lost) = lose_the_end(&place);
    assert!(attached.clone().detach().is_err());
    let listed = attached.detach_giving_up_unreadable().unwrap();
    let names: Vec<(PathBuf, u64)> =
        listed.iter().map(|lost| (lost.path.clone(), lost.block)).collect();
    let expected: Vec<(PathBuf, u64)> = lost
        .iter()
        .map(|n| ("a.d8".into(), *n))
        .chain((0..20).map(|n| ("b.redo".into(), n)))
        .collect();
    assert_eq!(names, expected);
    let (first, from) = (lost[0], lost[0] * B as u64);
    let said = format!("block {first} of a.d8 (bytes {from} to {})", from + B as u64);
    assert_eq!(listed[0].to_string(), said);
    let home = std::fs::read(place.home().join("a.d8")).unwrap();
    assert_home(&home, &lost);
    assert_eq!(std::fs::read(place.home().join("b.redo")).unwrap(), [0; 20 * 4096]);
    assert!(!place.aside().exists());
}

/// Runs the test `name` in a process of its own, in which `role` says what to do.
fn child(name: &str, role: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", &full_name!(name), "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .output()
        .unwrap()
}

#[test]
fn a_fault_while_a_program_reads_names_member_byte_file_and_block_where_that_was_asked_for() {
    const NAME: &str =
        "a_fault_while_a_program_reads_names_member_byte_file_and_block_where_that_was_asked_for";
    if let Ok(role) = std::env::var(ROLE) {
        let place = Place::in_memory();
        let attached = ahead_of_home(&place);
        let _watch = (role != "unwatched").then(|| attached.watch_sigbus().unwrap());
        let file =
            attached.open(if role == "redo" { "b.redo" } else { "a.d8" }, OpenMode::READ).unwrap();
        let (_, lost) = lose_the_end(&place);
        println!("lost block {}; {}", lost[0], place.path().display());
        let mut bytes = [0; 16];
        let _ = file.read(if role == "redo" { 3 * 4096 } else { lost[0] * B as u64 }, &mut bytes);
        unreachable!();
    }
    for role in ["watched", "redo", "unwatched"] {
        let ended = child(NAME, role);
        let (said, out) =
            (String::from_utf8_lossy(&ended.stderr), String::from_utf8_lossy(&ended.stdout));
        // Who is ended like this takes nothing away.
        let told = out.lines().find_map(|line| line.split_once("lost block ")?.1.split_once("; "));
        let (lost, left) = told.unwrap_or_else(|| panic!("{role}: {said} {out}"));
        std::fs::remove_dir_all(left).unwrap();
        assert_eq!(ended.status.signal(), Some(7), "{role}: {said}");
        let which = match role {
            "watched" => format!("block {lost} of a.d8"),
            "redo" => "block 3 of b.redo".to_owned(),
            _ => {
                assert!(!said.contains("tiersmith: "), "{role}: {said}");
                continue;
            }
        };
        assert!(said.contains("tiersmith: SIGBUS at byte "), "{role}: {said}");
        let words = format!(
            " of {left}/tier: it is in {which} (Dirty: its newest version exists only there)\n"
        );
        assert!(said.contains(&words), "{role}: {said}");
    }
}
