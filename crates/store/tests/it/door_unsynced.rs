//! Names that a door changes cost home no sync until somebody asks for one; and what waits for it
//! gives way when it is in the way.

use crate::place;

use crate::gate::Gate;
use std::path::Path;
use std::sync::Arc;
use tiersmith_pmem::Mapping;
use tiersmith_store::home::{Named, SimHome};
use tiersmith_store::{
    AttachedHome, File, Medium, OpenMode, Profile, RenameFlags, TierSpec, testing,
};

const BLOCK: usize = 8192;

fn attached(slots: u64) -> (Arc<SimHome>, AttachedHome) {
    let home = Arc::new(SimHome::new(None));
    home.rebase();
    let bytes = 4 << 20;
    let mapping = Arc::new(Mapping::in_memory(&vec![0; bytes], 0));
    let spec =
        TierSpec { medium: Medium::Emulated, slots, ..place::small("fast".into(), bytes as u64) };
    let tiers = vec![(spec, vec![mapping])];
    let attached =
        testing::attach_simulated(home.clone(), tiers, &place::profile(), place::options())
            .unwrap();
    (home, attached)
}

fn make(attached: &AttachedHome, name: &str) -> File {
    attached.home().open(Path::new(name), OpenMode::CREATE_NEW).unwrap();
    attached.open_made(name, OpenMode::WRITE).unwrap()
}

fn remove(attached: &AttachedHome, name: &str) {
    attached.unlink_named(Named::by_path(Path::new(name))).unwrap();
}

fn rename(attached: &AttachedHome, from: &str, to: &str) {
    let (from, to) = (Path::new(from), Path::new(to));
    let at_home = || attached.home().rename(from, to);
    attached
        .rename_by(Named::by_path(from), Named::by_path(to), RenameFlags::None, at_home)
        .unwrap();
}

fn dirty(attached: &AttachedHome) -> u64 {
    attached.stats().tiers[0].dirty_bytes
}

/// Whether the call syncs something at home.
fn syncs(home: &SimHome, call: impl FnOnce() -> bool) -> bool {
    home.fail_nth_sync(1);
    let failed = !call();
    home.fail_nth_sync(0);
    failed
}

#[test]
fn files_are_made_written_renamed_cut_and_removed_without_a_sync_of_home() {
    let (home, attached) = attached(256);
    let synced = syncs(&home, || {
        for n in 0..100u8 {
            let file = make(&attached, "a.d8");
            file.write(0, &[n; 3 * BLOCK]).unwrap();
            file.truncate(BLOCK as u64 + 5).unwrap();
            rename(&attached, "a.d8", "b.d8");
            assert_eq!(place::read(&attached, "b.d8"), [n; BLOCK + 5]);
            drop(file);
            if n % 10 == 9 {
                remove(&attached, "b.d8");
            }
        }
        true
    });
    assert!(!synced);
}

#[test]
fn a_file_is_settled_by_its_sync_and_a_removed_one_by_the_next_of_all() {
    let (home, attached) = attached(16);
    let file = make(&attached, "a.d8");
    file.write(0, &[1; 2 * BLOCK]).unwrap();
    assert!(!file.is_settled());
    assert!(syncs(&home, || file.sync().is_ok()), "a made file is synced");
    assert!(!file.is_settled(), "the sync failed");
    file.sync().unwrap();
    assert!(file.is_settled());
    assert!(!syncs(&home, || file.sync().is_ok()), "it has nothing left to do");
    rename(&attached, "a.d8", "b.d8");
    assert!(!file.is_settled());
    assert!(syncs(&home, || file.sync().is_ok()), "a renamed file is synced");
    file.sync().unwrap();
    drop(file);

    remove(&attached, "b.d8");
    assert_eq!(dirty(&attached), 2 * BLOCK as u64, "its name may come back");
    assert!(syncs(&home, || attached.settle_names().is_ok()));
    assert_eq!(dirty(&attached), 2 * BLOCK as u64, "the sync failed");
    // What failed is tried again at once.
    attached.background_step().unwrap();
    assert_eq!(dirty(&attached), 0);
    attached.detach().unwrap();
    assert!(home.contents(Path::new("b.d8")).is_none());
}

#[test]
fn the_sync_of_one_file_settles_the_names_beside_it_and_above_and_no_others() {
    let (home, attached) = attached(16);
    for directory in ["one", "two"] {
        attached.home().create_dir(Path::new(directory)).unwrap();
    }
    let made = ["one/a.d8", "one/b.d8", "c.d8", "two/d.d8"].map(|name| make(&attached, name));
    let [file, beside, above, elsewhere] = made;
    assert!(syncs(&home, || file.sync().is_ok()));
    assert!(!beside.is_settled() && !above.is_settled(), "the sync failed");
    file.sync().unwrap();
    assert!(beside.is_settled() && above.is_settled() && !elsewhere.is_settled());
    assert!(!syncs(&home, || beside.sync().is_ok() && above.sync().is_ok()));
    assert!(syncs(&home, || elsewhere.sync().is_ok()), "its directory was not synced");
    // What happens to a name afterwards waits again, for itself and for the background.
    rename(&attached, "one/b.d8", "one/e.d8");
    assert!(!beside.is_settled());
    (0..51).for_each(|_| attached.background_step().unwrap());
    assert!(beside.is_settled() && elsewhere.is_settled());
}

#[test]
fn reserving_space_again_and_again_waits_for_home_only_now_and_then() {
    let (home, attached) = attached(16);
    let file = make(&attached, "a.d8");
    file.sync().unwrap();
    file.allocate(0, BLOCK as u64, false).unwrap();
    let more = |n: u64| {
        file.write((n - 1) * BLOCK as u64, &[1; BLOCK]).unwrap();
        // Programs see another time than before.
        file.stat().unwrap();
        home.pass_time(1_000_000_000);
        syncs(&home, || file.allocate(n * BLOCK as u64, BLOCK as u64, false).is_ok())
    };
    assert!((1..6).all(|n| !more(n)));
    // What was said holds for a while only: recovery does not take any later time for ours.
    home.pass_time(10_000_000_000);
    assert!(more(6), "nothing was synced");
    file.allocate(6 * BLOCK as u64, BLOCK as u64, false).unwrap();
    assert!(!more(7));
}

#[test]
fn the_background_settles_names_about_a_second_later() {
    let (_home, attached) = attached(16);
    let made = make(&attached, "a.d8");
    drop(make(&attached, "b.d8"));
    attached.open("b.d8", OpenMode::WRITE).unwrap().write(0, &[1; BLOCK]).unwrap();
    remove(&attached, "b.d8");
    attached.background_step().unwrap();
    assert!(!made.is_settled() && dirty(&attached) > 0);
    (0..50).for_each(|_| attached.background_step().unwrap());
    assert!(made.is_settled() && dirty(&attached) == 0);
}

#[test]
fn a_removed_file_that_is_open_keeps_its_bytes_and_goes_with_the_last_handle() {
    let (_home, attached) = attached(16);
    let file = make(&attached, "a.d8");
    file.write(0, &[7; BLOCK]).unwrap();
    remove(&attached, "a.d8");
    // Another one of the same name.
    make(&attached, "a.d8").write(0, &[8; BLOCK]).unwrap();
    attached.settle_names().unwrap();
    file.write(0, &[9; 100]).unwrap();
    file.sync().unwrap();
    let bytes = place::contents(&file);
    assert_eq!((bytes[0], bytes[100]), (9, 7));
    drop(file);
    assert_eq!(dirty(&attached), BLOCK as u64);
    assert_eq!(place::read(&attached, "a.d8"), [8; BLOCK]);
}

#[test]
fn removed_files_give_their_slots_to_who_needs_one() {
    let (_home, attached) = attached(8);
    for _ in 0..100 {
        drop(make(&attached, "a.d8"));
        remove(&attached, "a.d8");
    }
    let open: Vec<File> = (0..6).map(|n| make(&attached, &format!("{n}.d8"))).collect();
    assert!(open.iter().all(|file| file.write(0, &[1; BLOCK]).is_ok()));
}

#[test]
fn who_removes_very_many_files_syncs_for_all_of_them() {
    let (home, attached) = attached(512);
    let at_home = |n: usize| format!("{n}.d8");
    for n in 0..255 {
        make(&attached, &at_home(n)).write(0, &[1; 512]).unwrap();
        remove(&attached, &at_home(n));
    }
    assert!(dirty(&attached) > 0);
    make(&attached, &at_home(255)).write(0, &[1; 512]).unwrap();
    remove(&attached, &at_home(255));
    assert_eq!(dirty(&attached), 0, "256 files wait for a sync");
    assert!(home.paths().iter().all(|path| path.extension().is_none()));
}

#[test]
fn a_name_in_a_directory_that_is_gone_is_settled_by_what_is_above() {
    let (_home, attached) = attached(16);
    let at_home = attached.home().clone();
    at_home.create_dir(Path::new("d")).unwrap();
    make(&attached, "d/a.d8").write(0, &[1; BLOCK]).unwrap();
    remove(&attached, "d/a.d8");
    at_home.remove_dir(Path::new("d")).unwrap();
    attached.settle_names().unwrap();
    assert_eq!(dirty(&attached), 0);
}

/// What a power cut leaves when home had come to `home` by then, attached.
fn after_cut(home: &SimHome, mapping: &Mapping) -> tiersmith_store::Result<AttachedHome> {
    let home = Arc::new(SimHome::from_image(&home.snapshot(), None));
    let members = place::loaded(&place::image(mapping));
    let spec = TierSpec { medium: Medium::Emulated, ..place::small("fast".into(), mapping.len()) };
    testing::attach_simulated(home, vec![(spec, members)], &place::profile(), place::options())
}

#[test]
fn a_made_file_that_home_refused_to_remove_may_still_be_gone_after_a_cut() {
    let home = Arc::new(SimHome::new(None));
    home.rebase();
    let mapping = Arc::new(Mapping::in_memory(&vec![0; 4 << 20], 0));
    let spec = TierSpec { medium: Medium::Emulated, ..place::small("fast".into(), 4 << 20) };
    let tiers = vec![(spec, vec![mapping.clone()])];
    let attached =
        testing::attach_simulated(home.clone(), tiers, &place::profile(), place::options())
            .unwrap();
    let before = home.snapshot();
    make(&attached, "a.d8").write(0, &[1; BLOCK]).unwrap();
    drop(make(&attached, "b.d8"));
    let names = ["b.d8", "a.d8"].map(Path::new);
    let refused = || Err(std::io::ErrorKind::PermissionDenied.into());
    let [from, to] = names.map(Named::by_path);
    attached.rename_by(from, to, RenameFlags::None, refused).unwrap_err();
    assert_eq!(
        after_cut(&home, &mapping).map(|again| place::read(&again, "a.d8")).unwrap(),
        [1; BLOCK]
    );
    let nothing = SimHome::from_image(&before, None);
    after_cut(&nothing, &mapping).expect("neither name had come to be durable");
}

#[test]
fn a_renamed_file_is_settled_by_the_background_too() {
    let (_home, attached) = attached(16);
    let file = make(&attached, "a.d8");
    // Nothing waits any more.
    attached.settle_names().unwrap();
    rename(&attached, "a.d8", "b.d8");
    assert!(!file.is_settled());
    (0..51).for_each(|_| attached.background_step().unwrap());
    assert!(file.is_settled());
}

#[test]
fn a_linked_file_is_settled_by_the_background_and_a_rename_after_it_too() {
    let (_home, attached) = attached(16);
    let file = make(&attached, "a.d8");
    attached.settle_names().unwrap();
    attached.link("a.d8", "b.d8").unwrap();
    assert!(!file.is_settled());
    (0..51).for_each(|_| attached.background_step().unwrap());
    assert!(file.is_settled());
    attached.link("a.d8", "c.d8").unwrap();
    rename(&attached, "a.d8", "d.d8");
    (0..51).for_each(|_| attached.background_step().unwrap());
    assert!(file.is_settled());
}

#[test]
fn a_link_into_another_directory_is_durable_on_return_or_is_not_there() {
    let (home, attached) = attached(16);
    for directory in ["one", "two"] {
        attached.home().create_dir(Path::new(directory)).unwrap();
    }
    let file = make(&attached, "one/a.d8");
    file.write(0, &[1; BLOCK]).unwrap();
    file.sync().unwrap();
    // In the same directory it waits for a sync, which is of that directory.
    assert!(!syncs(&home, || attached.link("one/a.d8", "one/b.d8").is_ok()));
    file.sync().unwrap();
    let link = || attached.link("one/a.d8", "two/a.d8");
    assert!(syncs(&home, || link().is_ok()), "the file's sync would not settle this name");
    assert!(
        attached.home().stat(Path::new("two/a.d8")).is_err(),
        "a name that was refused is there"
    );
    link().unwrap();
    for name in ["one/a.d8", "one/b.d8"] {
        remove(&attached, name);
    }
    file.sync().unwrap();
    assert_eq!(place::read(&attached, "two/a.d8"), [1; BLOCK]);
}

#[test]
fn who_settles_names_waits_for_another_who_does() {
    let (home, attached) = attached(16);
    make(&attached, "a.d8").write(0, &[1; BLOCK]).unwrap();
    remove(&attached, "a.d8");
    let (begins, began) = std::sync::mpsc::channel();
    home.set_hook(Some(Arc::new(move |_| {
        let _ = begins.send(());
        std::thread::sleep(std::time::Duration::from_millis(300));
    })));
    std::thread::scope(|scope| {
        scope.spawn(|| attached.settle_names().unwrap());
        began.recv().unwrap();
        attached.settle_names().unwrap();
        assert_eq!(dirty(&attached), 0, "it came back before the sync");
    });
}

#[test]
fn a_made_file_is_settled_before_the_kernel_writes_it() {
    let rule = "[[rule]]\nfiles = [\"*.redo\"]\nclass = \"redo\"\nblock_size = 4096\nlend = \
                true\nwhy = \"test\"\n";
    let text = "description = \"lending\"\n[default]\nclass = \"pass\"\nblock_size = 4096\n"
        .to_owned()
        + rule;
    let profile = Profile::parse("lending", &text).unwrap();
    let bytes = 4 << 20;
    let mapping = Arc::new(Mapping::in_memory(&vec![0; bytes], 0));
    let spec = TierSpec { medium: Medium::Emulated, ..place::small("fast".into(), bytes as u64) };
    let (home, lent) = (Arc::new(SimHome::new(None)), Arc::new(SimHome::new(None)));
    let tiers = vec![(spec, vec![mapping])];
    let attached =
        testing::attach_simulated_lending(home, lent, tiers, &profile, place::options()).unwrap();
    let file = make(&attached, "w.redo");
    file.write(0, &[1; 12288]).unwrap();
    assert!(!file.is_settled());
    let lent = file.lend().unwrap().expect("it is one to be lent");
    assert!(file.is_settled(), "what the kernel writes is durable, and the file is not");
    drop(lent);
}

fn gated(slots: u64) -> (Arc<Gate>, AttachedHome) {
    let home = Arc::new(SimHome::new(None));
    home.rebase();
    let gate = Gate::new(home);
    let bytes = 4 << 20;
    let mapping = Arc::new(Mapping::in_memory(&vec![0; bytes], 0));
    let spec =
        TierSpec { medium: Medium::Emulated, slots, ..place::small("fast".into(), bytes as u64) };
    let tiers = vec![(spec, vec![mapping])];
    let attached =
        testing::attach_simulated(gate.clone(), tiers, &place::profile(), place::options())
            .unwrap();
    (gate, attached)
}

#[test]
fn a_removed_file_that_cannot_be_held_open_waits_for_no_sync() {
    let (gate, attached) = gated(32);
    for n in 0..8 {
        let file = make(&attached, &format!("{n}.d8"));
        file.write(0, &[1; BLOCK]).unwrap();
        file.sync().unwrap();
    }
    let before = dirty(&attached);
    gate.refuse_open(Some(5));
    remove(&attached, "0.d8");
    assert_eq!(
        before - dirty(&attached),
        BLOCK as u64,
        "its inode number may be another file's by now"
    );
}

#[test]
fn who_gets_no_slot_because_home_syncs_no_removal_is_told_so() {
    let (gate, attached) = gated(8);
    drop(make(&attached, "removed.d8"));
    remove(&attached, "removed.d8");
    gate.refuse_sync_dir(Some(5));
    let mut open = Vec::new();
    let refused = loop {
        let name = format!("{}.d8", open.len());
        attached.home().open(Path::new(&name), OpenMode::CREATE_NEW).unwrap();
        match attached.open_made(&name, OpenMode::WRITE) {
            Ok(file) => open.push(file),
            Err(e) => break e.to_string(),
        }
        assert!(open.len() < 10_000);
    };
    assert!(refused.contains("cannot sync the directory"), "{refused}");
}
