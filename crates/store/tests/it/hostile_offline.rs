//! What happens to a home between two attaches: clean copies of changed files are dropped, dirty
//! blocks stop the attach with everything as it was, and files are recognised under other names,
//! and not mistaken for others.

use crate::place;

use crate::place::Place;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tiersmith_pmem::Mapping;
use tiersmith_store::home::sim::SimOptions;
use tiersmith_store::home::{Home, SimHome};
use tiersmith_store::{
    AttachedHome, Bound, Error, OpenMode, Options, Planted, Profile, attach, testing,
};

const MIB: u64 = 1 << 20;

fn open(place: &Place) -> AttachedHome {
    attach(&place.home(), &[place.tier(MIB)], place::options()).unwrap()
}

fn refusal(place: &Place) -> Error {
    match attach(&place.home(), &[place.tier(MIB)], place::options()) {
        Ok(_) => panic!("this must not attach"),
        Err(e) => e,
    }
}

/// A closed home whose file `a.d8` has three blocks, all cached and none dirty.
fn with_clean_copies(place: &Place) {
    fs::write(place.home().join("a.d8"), place::pattern(1, 0, 20_000)).unwrap();
    let attached = open(place);
    assert!(place::read(&attached, "a.d8") == place::pattern(1, 0, 20_000));
    assert_eq!(attached.open("a.d8", OpenMode::READ).unwrap().blocks_in_tier(), (0, 3));
}

/// A closed home whose file `a.d8` has three blocks, one of them dirty.
fn with_a_dirty_block(place: &Place) -> Vec<u8> {
    with_clean_copies(place);
    let attached = open(place);
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    file.write(8192, &place::pattern(2, 8192, 8192)).unwrap();
    assert_eq!(file.blocks_in_tier(), (1, 2));
    place::contents(&file)
}

/// Time stamps of files tick in steps of some milliseconds; a change within the same step as the
/// last one cannot be told.
fn let_the_clock_tick() {
    std::thread::sleep(Duration::from_millis(15));
}

#[test]
fn an_unchanged_file_is_still_cached_after_reopening() {
    let place = Place::new();
    with_clean_copies(&place);
    let attached = open(&place);
    assert!(place::read(&attached, "a.d8") == place::pattern(1, 0, 20_000));
    let waits = attached.stats().waits;
    assert_eq!(waits.counter(tiersmith_store::waits::TIER_HITS), 3);
    assert_eq!(waits.counter(tiersmith_store::waits::TIER_MISSES), 0);
}

/// Ways to change a file in place.
type Change = (&'static str, fn(&Path));

const CHANGES: [Change; 4] = [
    ("bytes overwritten", |p| {
        OpenOptions::new().write(true).open(p).unwrap().write_all_at(b"other", 9000).unwrap()
    }),
    ("bytes appended", |p| {
        OpenOptions::new().write(true).open(p).unwrap().write_all_at(b"more", 20_000).unwrap()
    }),
    ("cut", |p| OpenOptions::new().write(true).open(p).unwrap().set_len(5000).unwrap()),
    ("rewritten", |p| fs::write(p, place::pattern(7, 0, 20_000)).unwrap()),
];

#[test]
fn clean_copies_of_a_changed_file_are_dropped_and_the_new_contents_read() {
    for (what, change) in CHANGES {
        let place = Place::new();
        with_clean_copies(&place);
        let_the_clock_tick();
        change(&place.aside().join("a.d8"));
        let expected = fs::read(place.aside().join("a.d8")).unwrap();
        let attached = open(&place);
        assert_eq!(attached.stats().recovery.changed_files, 1, "{what}");
        place::assert_accounted(&attached.stats());
        assert!(place::read(&attached, "a.d8") == expected, "{what}");
    }
}

#[test]
fn dirty_blocks_of_a_changed_file_stop_the_attach_and_nothing_is_touched_until_it_is_as_it_was() {
    for (what, change) in CHANGES {
        let place = Place::new();
        let expected = with_a_dirty_block(&place);
        let path = place.aside().join("a.d8");
        let (before, time) =
            (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().modified().unwrap());
        let tier = fs::read(place.member("fast")).unwrap();
        let_the_clock_tick();
        change(&path);
        let changed = fs::read(&path).unwrap();
        for _ in 0..2 {
            let error = refusal(&place);
            assert!(matches!(error, Error::HomeChanged { dirty_blocks: 1, .. }), "{what}: {error}");
            assert!(error.to_string().contains("a.d8"), "{what}: {error}");
        }
        assert!(fs::read(&path).unwrap() == changed, "{what}: the home was touched");
        assert!(fs::read(place.member("fast")).unwrap() == tier, "{what}: the tier was touched");
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(before.len() as u64).unwrap();
        file.write_all_at(&before, 0).unwrap();
        file.set_modified(time).unwrap();
        let attached = open(&place);
        assert!(place::read(&attached, "a.d8") == expected, "{what}");
        attached.detach().unwrap();
        assert!(fs::read(place.home().join("a.d8")).unwrap() == expected, "{what}");
    }
}

#[test]
fn a_file_with_dirty_blocks_that_is_gone_or_replaced_stops_the_attach_until_it_is_back() {
    for replaced in [false, true] {
        let place = Place::new();
        let expected = with_a_dirty_block(&place);
        let (path, away) = (place.aside().join("a.d8"), place.path().join("away"));
        fs::rename(&path, &away).unwrap();
        if replaced {
            fs::copy(&away, &path).unwrap();
        }
        let error = refusal(&place);
        assert!(matches!(error, Error::HomeChanged { dirty_blocks: 1, .. }), "{error}");
        assert!(error.to_string().contains("no longer there"), "{error}");
        fs::rename(&away, &path).unwrap();
        assert!(place::read(&open(&place), "a.d8") == expected);
    }
}

/// A profile whose servers write `state.d4` when they start.
fn with_a_sentinel() -> Options {
    let text = "description = \"with a sentinel\"\nsentinel = [\"state.d4\"]\n\
        [default]\nclass = \"pass\"\nblock_size = 4096\n\
        [[rule]]\nfiles = [\"*.d4\"]\nclass = \"data\"\nwhy = \"test\"\n";
    Options { profile: Some(Profile::parse("sentinel", text).unwrap()), ..place::options() }
}

#[test]
fn a_server_that_ran_on_the_files_stops_the_attach_also_when_it_left_newer_blocks_alone() {
    for removed in [false, true] {
        let place = Place::new();
        fs::write(place.home().join("state.d4"), [1; 4096]).unwrap();
        let open = |planted| {
            let options = Options { planted, ..with_a_sentinel() };
            attach(&place.home(), &[place.tier(MIB)], options)
        };
        let attached = open(Planted::None).unwrap();
        // Nobody has opened the file that tells.
        attached.open("a.d4", OpenMode::CREATE).unwrap().write(0, &[7; 4096]).unwrap();
        drop(attached);
        // Asked for each time: each attach locks it again.
        let path = || place.aside().join("state.d4");
        let time = fs::metadata(path()).unwrap().modified().unwrap();
        let_the_clock_tick();
        if removed {
            fs::rename(path(), place.path().join("away")).unwrap();
        } else {
            OpenOptions::new()
                .write(true)
                .open(path())
                .unwrap()
                .write_all_at(b"in production", 0)
                .unwrap();
        }
        let tier = fs::read(place.member("fast")).unwrap();
        let error = open(Planted::None).map(drop).unwrap_err();
        assert!(matches!(error, Error::RanWithout { .. }), "{error}");
        let said = error.to_string();
        for word in ["state.d4", "a.d4", "without Tiersmith", "--force-without-tier"] {
            assert!(said.contains(word), "{said}");
        }
        assert!(fs::read(place.member("fast")).unwrap() == tier, "the tier was touched");
        let kept = place.path().join("kept");
        fs::copy(place.member("fast"), &kept).unwrap();
        // The planted bug is what this test is there to find.
        drop(open(Planted::SentinelUnchecked).unwrap());
        fs::copy(&kept, place.member("fast")).unwrap();
        if removed {
            fs::rename(place.path().join("away"), path()).unwrap();
        } else {
            let file = OpenOptions::new().write(true).open(path()).unwrap();
            file.write_all_at(&[1; 13], 0).unwrap();
            file.set_modified(time).unwrap();
        }
        let attached = open(Planted::None).unwrap();
        assert_eq!(place::read(&attached, "a.d4"), [7; 4096]);
        attached.detach().unwrap();
        assert_eq!(fs::read(place.home().join("state.d4")).unwrap(), [1; 4096]);
    }
}

/// A size is newer than home's without any block: what the server wrote and the size would be of
/// two databases.
#[test]
fn a_server_that_ran_stops_the_attach_when_the_tier_has_only_a_newer_size() {
    let profile = with_a_sentinel().profile.unwrap();
    let attach = |home: &Arc<SimHome>, mapping: Arc<Mapping>| {
        let spec = place::small("/simulated/fast".into(), MIB);
        let options = Options { seed: Some(3), ..place::options() };
        testing::attach_simulated(home.clone(), vec![(spec, vec![mapping])], &profile, options)
    };
    for grows in [true, false] {
        let home = Arc::new(SimHome::new(None));
        home.put(Path::new("state.d4"), &[1; 4096]).unwrap();
        home.put(Path::new("a.d4"), &[5; 8192]).unwrap();
        home.rebase();
        let mapping = Arc::new(Mapping::in_memory(&vec![0; MIB as usize], 0));
        let attached = attach(&home, mapping.clone()).unwrap();
        let file = attached.open("a.d4", OpenMode::WRITE).unwrap();
        if grows {
            file.extend(50_000).unwrap();
        } else {
            home.fail_nth_sync(1);
            file.truncate(100).unwrap_err();
        }
        // As after a kill at this moment.
        let (tier, home) =
            (place::image(&mapping), Arc::new(SimHome::from_image(&home.snapshot(), None)));
        let state = home.open(Path::new("state.d4"), OpenMode::WRITE).unwrap();
        state.write_at(0, b"in production").unwrap();
        let error = attach(&home, Arc::new(Mapping::in_memory(&tier, 0))).map(drop).unwrap_err();
        assert!(matches!(error, Error::RanWithout { .. }), "grows: {grows}: {error}");
        assert!(error.to_string().contains("a.d4"), "{error}");
    }
}

#[test]
fn a_server_that_ran_is_noticed_although_the_file_table_was_short_of_slots() {
    let place = Place::new();
    fs::write(place.home().join("state.d4"), [1; 4096]).unwrap();
    let open = || {
        let options = Options { background: false, ..with_a_sentinel() };
        attach(&place.home(), &[place.tier(4 * MIB)], options)
    };
    let attached = open().unwrap();
    for n in 0..500 {
        attached.open(format!("{n}.d4"), OpenMode::CREATE).unwrap().write(0, &[7; 4096]).unwrap();
    }
    assert!(
        attached.stats().waits.counter(tiersmith_store::waits::RECYCLED) > 0,
        "every file has a slot"
    );
    drop(attached);
    let_the_clock_tick();
    fs::write(place.aside().join("state.d4"), [2; 4096]).unwrap();
    let error = open().map(drop).unwrap_err();
    assert!(matches!(error, Error::RanWithout { .. }), "{error}");
}

#[test]
fn a_server_that_ran_on_the_files_of_a_young_tier_is_told_of_and_does_no_harm() {
    let place = Place::new();
    fs::write(place.home().join("state.d4"), [1; 4096]).unwrap();
    let open = || attach(&place.home(), &[place.tier(MIB)], with_a_sentinel()).unwrap();
    drop(open());
    let_the_clock_tick();
    fs::write(place.aside().join("state.d4"), [2; 4096]).unwrap();
    let attached = open();
    let recovery = attached.stats().recovery;
    assert_eq!(recovery.ran_without.as_deref(), Some(Path::new("state.d4")));
    assert!(
        recovery.to_string().contains("a server ran on the files without Tiersmith"),
        "{recovery}"
    );
    assert_eq!(place::read(&attached, "state.d4"), [2; 4096]);
    drop(attached);
    // It is known as it is now.
    assert_eq!(open().stats().recovery.ran_without, None);
}

#[test]
fn a_clean_file_that_is_gone_leaves_nothing_behind() {
    let place = Place::new();
    with_clean_copies(&place);
    fs::remove_file(place.aside().join("a.d8")).unwrap();
    let attached = open(&place);
    let tier = &attached.stats().tiers[0];
    assert_eq!((tier.files, tier.free_bytes), (0, tier.usable_bytes));
    assert!(attached.open("a.d8", OpenMode::READ).is_err());
}

#[test]
fn a_file_renamed_or_moved_or_linked_keeps_its_dirty_blocks() {
    let place = Place::new();
    let expected = with_a_dirty_block(&place);
    let at = |name: &str| place.aside().join(name);
    fs::rename(at("a.d8"), at("b.d8")).unwrap();
    assert!(place::read(&open(&place), "b.d8") == expected, "renamed");
    fs::create_dir_all(at("deep/down")).unwrap();
    fs::rename(at("b.d8"), at("deep/down/c.d8")).unwrap();
    assert!(place::read(&open(&place), "deep/down/c.d8") == expected, "moved");
    fs::rename(at("deep"), at("other")).unwrap();
    assert!(place::read(&open(&place), "other/down/c.d8") == expected, "its directory renamed");
    fs::hard_link(at("other/down/c.d8"), at("d.d8")).unwrap();
    {
        let attached = open(&place);
        assert!(
            place::read(&attached, "d.d8") == expected
                && place::read(&attached, "other/down/c.d8") == expected
        );
        attached.open("d.d8", OpenMode::WRITE).unwrap().write(0, b"both").unwrap();
        assert_eq!(&place::read(&attached, "other/down/c.d8")[..4], b"both");
    }
    fs::remove_file(at("other/down/c.d8")).unwrap();
    let attached = open(&place);
    assert_eq!(&place::read(&attached, "d.d8")[..4], b"both");
    assert!(place::read(&attached, "d.d8")[4..] == expected[4..]);
    attached.detach().unwrap();
    assert!(fs::read(place.home().join("d.d8")).unwrap()[4..] == expected[4..]);
}

#[test]
fn a_file_renamed_into_another_class_keeps_its_contents() {
    for name in ["a.txt", "a.redo", "a.d32"] {
        let place = Place::new();
        let expected = with_a_dirty_block(&place);
        fs::rename(place.aside().join("a.d8"), place.aside().join(name)).unwrap();
        for _ in 0..3 {
            assert!(place::read(&open(&place), name) == expected, "{name}");
        }
        open(&place).detach().unwrap();
        assert!(fs::read(place.home().join(name)).unwrap() == expected, "{name}");
    }
}

#[test]
fn two_files_that_exchange_their_names_keep_their_own_blocks() {
    let place = Place::new();
    let a = with_a_dirty_block(&place);
    let b = place::pattern(5, 0, 30_000);
    open(&place).open("b.d8", OpenMode::CREATE).unwrap().write(0, &b).unwrap();
    let at = |name: &str| place.aside().join(name);
    fs::rename(at("a.d8"), at("x")).unwrap();
    fs::rename(at("b.d8"), at("a.d8")).unwrap();
    fs::rename(at("x"), at("b.d8")).unwrap();
    let attached = open(&place);
    assert!(place::read(&attached, "a.d8") == b && place::read(&attached, "b.d8") == a);
}

#[test]
fn attributes_that_are_not_contents_may_change() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let expected = with_a_dirty_block(&place);
    let path = place.aside().join("a.d8");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    fs::read(&path).unwrap();
    assert!(place::read(&open(&place), "a.d8") == expected);
}

#[test]
fn a_file_that_is_open_keeps_its_slot_when_another_file_gets_its_inode_number() {
    let place = Place::new();
    for name in ["a.d8", "x.d8", "y.d8", "z.d8"] {
        fs::write(place.home().join(name), place::pattern(1, 0, 16_384)).unwrap();
    }
    let attached = open(&place);
    let held = attached.open("a.d8", OpenMode::WRITE).unwrap();
    // Others are used, so the home file of the first one is closed.
    for name in ["x.d8", "y.d8", "z.d8", "x.d8", "y.d8", "z.d8"] {
        place::read(&attached, name);
    }
    let ino = fs::metadata(place.aside().join("a.d8")).unwrap().ino();
    let_the_clock_tick();
    fs::remove_file(place.aside().join("a.d8")).unwrap();
    let new = place.aside().join("b.d8");
    fs::write(&new, place::pattern(9, 0, 16_384)).unwrap();
    if fs::metadata(&new).unwrap().ino() != ino {
        println!("skipped: an inode number used again, because this file system does not do that");
        return;
    }
    let error = attached.open("b.d8", OpenMode::WRITE).map(drop).unwrap_err();
    assert!(matches!(error, Error::HomeChanged { .. }), "{error}");
    assert!(error.to_string().contains("still has the removed one open"), "{error}");
    drop(held);
    assert!(place::read(&attached, "b.d8") == place::pattern(9, 0, 16_384));
}

#[test]
fn a_new_file_with_the_inode_number_of_a_removed_one_does_not_inherit_its_blocks() {
    let place = Place::new();
    with_clean_copies(&place);
    let path = place.aside().join("a.d8");
    let ino = fs::metadata(&path).unwrap().ino();
    let_the_clock_tick();
    fs::remove_file(&path).unwrap();
    fs::write(&path, place::pattern(9, 0, 20_000)).unwrap();
    let again = fs::metadata(&path).unwrap().ino() == ino;
    println!(
        "the inode number was {}used again by this file system",
        if again { "" } else { "not " }
    );
    let attached = open(&place);
    assert!(place::read(&attached, "a.d8") == place::pattern(9, 0, 20_000));
    // And while attached: the store removes the file and makes another.
    for round in 0..20 {
        attached
            .open("n.d8", OpenMode::CREATE)
            .unwrap()
            .write(0, &place::pattern(round, 0, 16_384))
            .unwrap();
        attached.unlink("n.d8").unwrap();
        let new = attached.create("n.d8").unwrap();
        new.extend(16_384).unwrap();
        assert!(place::contents(&new).iter().all(|b| *b == 0), "round {round}");
        drop(new);
        attached.unlink("n.d8").unwrap();
    }
}

#[test]
fn an_inode_number_reused_at_once_is_told_by_birth_time_or_generation() {
    // (time between two changes, generations reported)
    for (clock_step_ns, generations) in [(1_000_000, false), (1_000_000, true), (0, true)] {
        let home = Arc::new(SimHome::new(None));
        home.set_options(SimOptions {
            reuse_inos: true,
            clock_step_ns,
            generations,
            ..SimOptions::default()
        });
        home.put(Path::new("a.d8"), &place::pattern(1, 0, 20_000)).unwrap();
        let mapping = Arc::new(Mapping::in_memory(&vec![0; MIB as usize], 0));
        let spec = place::small("fast".into(), MIB);
        let open = || {
            let image = place::image(&mapping);
            let tiers = vec![(spec.clone(), place::loaded(&image))];
            testing::attach_simulated(home.clone(), tiers, &place::profile(), place::options())
        };
        let tiers = vec![(spec.clone(), vec![mapping.clone()])];
        let attached =
            testing::attach_simulated(home.clone(), tiers, &place::profile(), place::options())
                .unwrap();
        let ino = attached.stat("a.d8").unwrap().ino;
        place::read(&attached, "a.d8");
        // While attached.
        let file = attached.open("b.d8", OpenMode::CREATE).unwrap();
        file.write(0, &place::pattern(2, 0, 8192)).unwrap();
        drop(file);
        let b_ino = attached.stat("b.d8").unwrap().ino;
        attached.unlink("b.d8").unwrap();
        let file = attached.open("c.d8", OpenMode::CREATE).unwrap();
        file.extend(8192).unwrap();
        assert_eq!(attached.stat("c.d8").unwrap().ino, b_ino);
        assert!(place::contents(&file).iter().all(|b| *b == 0));
        drop(file);
        drop(attached);
        // While closed, with clean copies: dropped.
        use tiersmith_store::home::Home;
        let before = home.snapshot();
        home.unlink(Path::new("a.d8")).unwrap();
        home.put(Path::new("a.d8"), &place::pattern(3, 0, 20_000)).unwrap();
        assert_eq!(home.stat(Path::new("a.d8")).unwrap().ino, ino);
        let attached = open().unwrap();
        assert!(place::read(&attached, "a.d8") == place::pattern(3, 0, 20_000));
        drop(attached);
        // With dirty blocks: refused.
        home.restore(&before);
        let tiers = vec![(spec.clone(), place::loaded(&place::image(&mapping)))];
        let dirty = tiers[0].1[0].clone();
        let attached =
            testing::attach_simulated(home.clone(), tiers, &place::profile(), place::options())
                .unwrap();
        attached.open("a.d8", OpenMode::WRITE).unwrap().write(0, b"dirty").unwrap();
        drop(attached);
        home.unlink(Path::new("a.d8")).unwrap();
        home.put(Path::new("a.d8"), &place::pattern(3, 0, 20_000)).unwrap();
        assert_eq!(home.stat(Path::new("a.d8")).unwrap().ino, ino);
        let tiers = vec![(spec.clone(), place::loaded(&place::image(&dirty)))];
        let error =
            testing::attach_simulated(home.clone(), tiers, &place::profile(), place::options());
        assert!(matches!(error, Err(Error::HomeChanged { .. })), "{:?}", error.err());
    }
}

/// What a tier held of somebody's file is his, whatever mode the file has by now; what is another's
/// is not touched.
#[test]
fn a_file_that_its_owner_may_only_read_is_destaged_and_keeps_its_mode() {
    let place = Place::new();
    let expected = with_a_dirty_block(&place);
    // Asked for each time: who attaches locks it again.
    let path = || place.aside().join("a.d8");
    fs::set_permissions(path(), fs::Permissions::from_mode(0o400)).unwrap();
    // Permissions do not bind root: this thread, and no other, is somebody else for the while.
    let root = rustix::process::geteuid().is_root();
    let somebody = 65534;
    let as_somebody = || {
        let id = rustix::process::Uid::from_raw(somebody);
        let skipped = if root && rustix::thread::set_thread_res_uid(id, id, id).is_err() {
            "this thread cannot be another user"
        } else if fs::metadata(path()).is_err() {
            "another user cannot reach the temporary directory"
        } else {
            return true;
        };
        eprintln!("skipped: a file that its owner may only read, because {skipped}");
        false
    };
    let look = |attached: &AttachedHome| {
        let dirty = attached.open("a.d8", OpenMode::READ).unwrap().blocks_in_tier().0;
        (dirty, fs::metadata(path()).unwrap().mode() & 0o7777)
    };
    if root {
        give(place.path(), somebody);
        std::os::unix::fs::chown(path(), Some(somebody - 1), None).unwrap();
        fs::set_permissions(path(), fs::Permissions::from_mode(0o444)).unwrap();
        let others = || {
            if as_somebody() {
                let attached = open(&place);
                assert!(attached.flush_all().is_err());
                assert_eq!(look(&attached), (1, 0o444));
            }
        };
        std::thread::scope(|scope| scope.spawn(others).join().unwrap());
        give(place.path(), somebody);
        fs::set_permissions(path(), fs::Permissions::from_mode(0o400)).unwrap();
    }
    let own = || {
        if as_somebody() {
            let attached = open(&place);
            assert_eq!(look(&attached), (1, 0o400));
            attached.flush_all().unwrap();
            assert_eq!(look(&attached), (0, 0o400));
            assert!(fs::read(path()).unwrap() == expected);
        }
    };
    std::thread::scope(|scope| scope.spawn(own).join().unwrap());
}

/// Everything below `path` gets an owner.
fn give(path: &Path, uid: u32) {
    std::os::unix::fs::lchown(path, Some(uid), None).unwrap();
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path(), uid);
        }
    }
}

/// `a.d8` and its log, which has `log_bytes` bytes in the tier. Of `a.d8` the tier has clean copies
/// only.
fn with_a_log(place: &Place, log_bytes: usize) {
    with_clean_copies(place);
    let attached = open(place);
    let log = attached.open("a.redo", OpenMode::CREATE).unwrap();
    if log_bytes > 0 {
        log.write(0, &place::pattern(3, 0, log_bytes)).unwrap();
    }
}

fn bound(place: &Place, doubt: Option<&str>) -> Result<AttachedHome, Error> {
    let logs = vec!["no.redo".into(), "a.redo".into()];
    let bound = Bound {
        file: "a.d8".into(),
        logs,
        doubt: doubt.map(Into::into),
        aside: Some("aside.d4".into()),
    };
    attach(&place.home(), &[place.tier(MIB)], Options { bound: Some(bound), ..place::options() })
}

#[test]
fn a_changed_file_is_refused_while_its_log_holds_something() {
    for (what, change) in CHANGES {
        let place = Place::new();
        with_a_log(&place, 5000);
        let path = place.aside().join("a.d8");
        let (before, time) =
            (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().modified().unwrap());
        let tier = fs::read(place.member("fast")).unwrap();
        let_the_clock_tick();
        change(&path);
        let changed = fs::read(&path).unwrap();
        let refused = bound(&place, None).map(drop).unwrap_err().to_string();
        let since = time.duration_since(std::time::UNIX_EPOCH).unwrap();
        let remedy = format!("touch -d @{}.{:09})", since.as_secs(), since.subsec_nanos());
        assert!(refused.contains(&remedy), "{what}: {refused}");
        let Err(Error::LogOfAnother {
            path: named,
            log,
            log_bytes: 5000,
            expected: Some(expected),
            ..
        }) = bound(&place, None)
        else {
            panic!("{what}: it must be refused")
        };
        assert_eq!(
            (named.as_path(), log.as_path()),
            (Path::new("a.d8"), Path::new("a.redo")),
            "{what}"
        );
        assert_eq!(expected.size, 20_000, "{what}");
        assert!(fs::read(&path).unwrap() == changed, "{what}: the home was touched");
        assert!(fs::read(place.member("fast")).unwrap() == tier, "{what}: the tier was touched");
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(before.len() as u64).unwrap();
        file.write_all_at(&before, 0).unwrap();
        file.set_modified(time).unwrap();
        let attached = bound(&place, None).unwrap();
        assert!(place::read(&attached, "a.redo") == place::pattern(3, 0, 5000), "{what}");
    }
}

#[test]
fn a_file_that_another_was_put_over_is_refused_while_its_log_holds_something() {
    let place = Place::new();
    with_a_log(&place, 5000);
    let path = place.aside().join("a.d8");
    let new = place.aside().join("new");
    fs::write(&new, place::pattern(1, 0, 20_000)).unwrap();
    fs::rename(&new, &path).unwrap();
    let refused = bound(&place, None).map(drop).unwrap_err();
    assert!(matches!(refused, Error::LogOfAnother { expected: None, .. }), "{refused}");
}

#[test]
fn a_changed_file_whose_log_is_empty_is_taken_as_it_is() {
    for doubt in [None, Some("its guard is gone")] {
        let place = Place::new();
        with_a_log(&place, 0);
        let path = place.aside().join("a.d8");
        let_the_clock_tick();
        fs::write(&path, place::pattern(7, 0, 20_000)).unwrap();
        let attached = bound(&place, doubt).unwrap();
        assert!(place::read(&attached, "a.d8") == place::pattern(7, 0, 20_000), "{doubt:?}");
    }
}

#[test]
fn a_doubt_is_enough_to_refuse_a_file_that_looks_unchanged() {
    let place = Place::new();
    with_a_log(&place, 5000);
    let refused = bound(&place, Some("its guard is gone")).map(drop).unwrap_err();
    assert!(matches!(refused, Error::LogOfAnother { expected: Some(_), .. }), "{refused}");
    assert!(refused.to_string().contains("its guard is gone"), "{refused}");
    drop(bound(&place, None).unwrap());
}

#[test]
fn a_file_that_only_tells_something_refuses_nothing() {
    let changes: [fn(&Path); 3] = [
        |path| fs::remove_file(path).unwrap(),
        |path| fs::write(path, "other").unwrap(),
        |path| {
            fs::remove_file(path).unwrap();
            fs::write(path, "other").unwrap();
        },
    ];
    for change in changes {
        let place = Place::new();
        with_a_log(&place, 5000);
        let attached = open(&place);
        attached.open("aside.d4", OpenMode::CREATE).unwrap().write(0, b"tells").unwrap();
        drop(attached);
        let_the_clock_tick();
        change(&place.aside().join("aside.d4"));
        assert!(matches!(refusal(&place), Error::HomeChanged { .. }));
        let attached = bound(&place, None).unwrap();
        assert!(place::read(&attached, "a.redo") == place::pattern(3, 0, 5000));
        place::assert_accounted(&attached.stats());
        let left = fs::read(place.aside().join("aside.d4")).unwrap_or_default();
        let file = attached.open("aside.d4", OpenMode::CREATE).unwrap();
        assert!(place::contents(&file) == left);
    }
}
