//! Steps that no other test would miss: each test here fails when one step of the store is left
//! out, at a moment that only a gate before the home, a failing home or a clock can make.
//!
//! Deliberately not here: what a power cut shows by itself (`crash_suite/operations.rs`).

use crate::place;

use crate::gate::Gate;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use tiersmith_pmem::Mapping;
use tiersmith_store::home::sim::SimOptions;
use tiersmith_store::home::{Home, HomeFile, SimHome};
use tiersmith_store::{
    AttachedHome, Error, File, FileClass, FileTime, Medium, OpenMode, Profile, Result, SetTime,
    TierSpec, testing, waits,
};

const MIB: u64 = 1 << 20;
const B: usize = 8192;
/// The error number of a disk that fails.
const EIO: i32 = 5;

/// A home with a gate, attached, and what its tier is in.
struct Attached {
    home: Arc<SimHome>,
    gate: Arc<Gate>,
    attached: AttachedHome,
    mapping: Arc<Mapping>,
}

fn spec(bytes: u64) -> TierSpec {
    TierSpec { medium: Medium::Emulated, ..place::small("fast".into(), bytes) }
}

/// The file `a.d8` has `blocks` blocks of 9.
fn attached(blocks: usize) -> Attached {
    let home = Arc::new(SimHome::new(None));
    home.put(Path::new("a.d8"), &vec![9; blocks * B]).unwrap();
    home.rebase();
    let gate = Gate::new(home.clone());
    let mapping = Arc::new(Mapping::in_memory(&vec![0; MIB as usize], 0));
    let tiers = vec![(spec(MIB), vec![mapping.clone()])];
    let attached =
        testing::attach_simulated(gate.clone(), tiers, &place::profile(), place::options())
            .unwrap();
    Attached { home, gate, attached, mapping }
}

impl Attached {
    /// What is there when the process is killed now; `meanwhile` happens to the home before the
    /// next attach.
    fn killed(&self, meanwhile: impl FnOnce(&SimHome)) -> Result<AttachedHome> {
        let home = Arc::new(self.home.snapshot().home());
        meanwhile(&home);
        let members = place::loaded(&place::image(&self.mapping));
        testing::attach_simulated(
            home,
            vec![(spec(MIB), members)],
            &place::profile(),
            place::options(),
        )
    }
}

fn at_home(home: &SimHome) -> Arc<dyn HomeFile> {
    home.open(Path::new("a.d8"), OpenMode::WRITE).unwrap()
}

fn assert_changed(result: Result<AttachedHome>, what: &str) {
    match result {
        Err(Error::HomeChanged { path, .. }) => assert_eq!(path, Path::new("a.d8")),
        other => panic!("{what}: {:?}", other.map(|_| "attached")),
    }
}

// --- a home that somebody else has changed ---

#[test]
fn a_home_of_another_length_with_the_same_time_is_a_changed_home() {
    let it = attached(4);
    let file = it.attached.open("a.d8", OpenMode::WRITE).unwrap();
    file.write(0, &[1; B]).unwrap();
    for len in [3 * B as u64, 4 * B as u64 + 1] {
        let changed = it.killed(|home| {
            let (file, before) = (at_home(home), home.stat(Path::new("a.d8")).unwrap());
            file.set_len(len).unwrap();
            file.set_times(None, Some(FileTime::from_ns(before.mtime_ns))).unwrap();
            assert_eq!(file.stat().unwrap().mtime_ns, before.mtime_ns);
        });
        assert_changed(changed, "another length");
    }
    assert!(it.killed(|_| {}).is_ok(), "and as it was it is ours");
}

#[test]
fn a_home_that_was_changed_before_or_long_after_a_destaging_that_was_cut_short_is_a_changed_home() {
    let it = attached(4);
    let file = it.attached.open("a.d8", OpenMode::WRITE).unwrap();
    file.write(0, &[1; B]).unwrap();
    it.home.fail_nth_sync(1);
    it.attached.destage(Some(Path::new("a.d8"))).unwrap_err();
    let at = |seconds: i64| {
        let now = FileTime::from_ns(it.home.now_ns());
        let time = FileTime { sec: now.sec + seconds, ..now };
        it.killed(move |home| at_home(home).set_times(None, Some(time)).unwrap())
    };
    assert!(it.killed(|_| {}).is_ok(), "what destaging left is ours");
    assert!(at(60).is_ok(), "the last write of a slow destaging is ours");
    assert_changed(at(-5), "a file from before the destaging");
    assert_changed(at(130), "a file from long after it");
}

#[test]
fn a_file_whose_removal_home_refused_is_missed_when_it_is_gone_afterwards() {
    let it = attached(4);
    let file = it.attached.open("a.d8", OpenMode::WRITE).unwrap();
    file.write(0, &[1; B]).unwrap();
    drop(file);
    it.gate.refuse_unlink(Some(EIO));
    it.attached.unlink("a.d8").unwrap_err();
    assert_changed(
        it.killed(|home| home.unlink(Path::new("a.d8")).unwrap()),
        "removed by somebody else",
    );
    // And by us it can be removed as before.
    it.gate.refuse_unlink(None);
    it.attached.unlink("a.d8").unwrap();
    assert!(it.killed(|_| {}).is_ok());
}

// --- times ---

#[test]
fn a_write_after_a_time_was_set_is_not_hidden_by_it_after_a_kill() {
    const OLD: FileTime = FileTime { sec: 1_000_000_000, nsec: 5 };
    let it = attached(4);
    let file = it.attached.open("a.d8", OpenMode::WRITE).unwrap();
    file.write(0, &[1; B]).unwrap();
    file.set_times(SetTime::Keep, SetTime::At(OLD)).unwrap();
    let seen = |attached: &AttachedHome| {
        FileTime::from_ns(attached.open("a.d8", OpenMode::WRITE).unwrap().stat().unwrap().mtime_ns)
    };
    assert_eq!(seen(&it.killed(|_| {}).unwrap()), OLD);
    file.write(B as u64, &[2; B]).unwrap();
    let again = it.killed(|_| {}).unwrap();
    assert!(seen(&again) > OLD, "{:?}", seen(&again));
}

// --- ranges ---

#[test]
fn a_block_that_is_written_while_home_gives_its_space_back_keeps_what_was_written() {
    let it = attached(4);
    let file = it.attached.open("a.d8", OpenMode::WRITE).unwrap();
    let other = file.clone();
    it.gate.before_next_clear(move || other.write(B as u64, &[7; B]).unwrap());
    file.punch(0, 4 * B as u64).unwrap();
    let want = [vec![0; B], vec![7; B], vec![0; 2 * B]].concat();
    assert_eq!(place::contents(&file), want);
    assert_eq!(place::read(&it.killed(|_| {}).unwrap(), "a.d8"), want);
}

#[test]
fn a_block_that_is_written_between_its_zeros_and_home_s_keeps_what_was_written() {
    let it = attached(4);
    let file = it.attached.open("a.d8", OpenMode::WRITE).unwrap();
    // Its zeros are in the tier when it is asked whether the next block is a hole.
    file.write(0, &[1; B]).unwrap();
    let other = file.clone();
    it.gate.before_next_look_for_data(move || other.write(0, &[7; B]).unwrap());
    file.punch(0, 4 * B as u64).unwrap();
    let want = [vec![7; B], vec![0; 3 * B]].concat();
    assert_eq!(place::contents(&file), want);
    assert_eq!(place::read(&it.killed(|_| {}).unwrap(), "a.d8"), want);
}

// --- reads and writes that something overtakes ---

#[test]
fn a_read_from_home_that_a_write_a_destage_and_an_eviction_overtake_is_never_a_mixture() {
    let it = attached(4);
    let file = it.attached.open("a.d8", OpenMode::WRITE).unwrap();
    let overtake = |value: u8| {
        let (file, attached) = (file.clone(), it.attached.clone());
        move || {
            file.write(B as u64, &[value; B]).unwrap();
            attached.destage(None).unwrap();
            attached.evict(None, u64::MAX).unwrap();
            assert_eq!(file.blocks_in_tier(), (0, 0));
        }
    };
    let mut found = [0; B];
    // Once in the read of the run, and once in that of the block alone, which follows.
    let (again, home) = (overtake(2), it.home.clone());
    let first = overtake(1);
    it.home.in_next_read(move || {
        first();
        home.in_next_read(again);
    });
    file.read(B as u64, &mut found).unwrap();
    assert_eq!(found, [2; B]);
}

#[test]
fn a_write_to_a_part_of_a_block_that_is_cut_off_meanwhile_lengthens_the_file_again() {
    let it = attached(4);
    let file = it.attached.open("a.d8", OpenMode::WRITE).unwrap();
    let other = file.clone();
    // It reads the rest of the block, and has not locked it.
    it.gate.after_next_read(move || other.truncate(0).unwrap());
    file.write(3 * B as u64 + 100, &[7; 100]).unwrap();
    let want = [vec![0; 3 * B + 100], vec![7; 100]].concat();
    assert_eq!(place::contents(&file), want);
    assert_eq!(place::read(&it.killed(|_| {}).unwrap(), "a.d8"), want);
}

#[test]
fn a_write_past_the_end_after_a_cut_that_home_refused_shows_nothing_that_was_cut_off() {
    let it = attached(4);
    let file = it.attached.open("a.d8", OpenMode::WRITE).unwrap();
    it.home.fail_nth_write(1);
    file.truncate(B as u64).unwrap_err();
    file.write(3 * B as u64, &[7; B]).unwrap();
    assert_eq!(place::contents(&file), [vec![9; B], vec![0; 2 * B], vec![7; B]].concat());
}

#[test]
fn a_batch_that_is_no_set_of_blocks_is_refused_and_changes_nothing() {
    let it = attached(4);
    let file = it.attached.open("a.d8", OpenMode::WRITE).unwrap();
    let (block, part) = ([1; B], [1; B / 2]);
    let at = B as u64;
    for batch in [
        vec![(0, &block[..]), (at, &block[..]), (0, &block[..])],
        vec![(0, &block[..]), (at, &part[..])],
        vec![(0, &block[..]), (at + 512, &block[..])],
    ] {
        file.write_batch(&batch).unwrap_err();
        assert_eq!(place::contents(&file), [9; 4 * B]);
    }
    file.write_batch(&[(0, &block[..]), (at, &block[..])]).unwrap();
}

// --- redo ---

#[test]
fn redo_that_home_refused_is_the_oldest_still_and_goes_with_the_next_drain() {
    let it = attached(1);
    let file = it.attached.open("r.redo", OpenMode::CREATE).unwrap();
    file.write(0, &[1; 6 * 4096]).unwrap();
    let destage = || it.attached.destage(Some(Path::new("r.redo")));
    for fail in [SimHome::fail_nth_write, SimHome::fail_nth_sync] {
        fail(&it.home, 1);
        destage().unwrap_err();
        assert_eq!(file.blocks_in_tier(), (6, 0));
    }
    destage().unwrap();
    assert_eq!(file.blocks_in_tier(), (0, 0));
    assert_eq!(**it.home.contents(Path::new("r.redo")).unwrap(), [1; 6 * 4096]);
}

// --- a full tier ---

#[test]
fn a_tier_is_not_full_as_long_as_somebody_has_pieces_in_hand() {
    let it = attached(16);
    let file = it.attached.open("a.d8", OpenMode::WRITE).unwrap();
    file.write(0, &[1; 16 * B]).unwrap();
    let single = it.attached.open("c.d8", OpenMode::CREATE).unwrap();
    single.write(0, &[1; B]).unwrap();
    let full = it.attached.open("b.d8", OpenMode::CREATE).unwrap();
    for name in ["a.d8", "c.d8", "b.d8"] {
        it.attached.pin(name).unwrap();
    }
    let mut at = 0;
    let refused = loop {
        match full.write(at, &[2; B]) {
            Ok(()) => at += B as u64,
            Err(e) => break e,
        }
    };
    assert!(matches!(refused, Error::TierFull { .. }), "{refused}");
    // One frame is free again. The cut takes it for the block that it cuts in two, and gives many
    // back when it is done.
    drop(single);
    it.attached.unlink("c.d8").unwrap();
    let (told, heard) = channel();
    it.gate.before_next_now(move || {
        let writer = std::thread::spawn(move || full.write(at, &[2; B]).map_err(|e| e.to_string()));
        std::thread::sleep(Duration::from_millis(200));
        told.send(writer).unwrap();
    });
    file.truncate(2 * B as u64 + 100).unwrap();
    heard.recv().unwrap().join().unwrap().unwrap();
}

// --- lent files ---

/// A home with the file `w.redo`, which may be lent, and the directory of plain files.
struct Lending {
    home: Arc<SimHome>,
    lent: Arc<SimHome>,
    mapping: Arc<Mapping>,
    attached: AttachedHome,
}

const LEN: usize = 12288;

fn lending_profile() -> Profile {
    let rule = "[[rule]]\nfiles = [\"**/*.redo\"]\nclass = \"redo\"\nblock_size = 4096\nlend = \
                true\nwhy = \"test\"\n";
    let text = "description = \"lending\"\n[default]\nclass = \"pass\"\nblock_size = 4096\n"
        .to_owned()
        + rule;
    Profile::parse("lending", &text).unwrap()
}

fn attach_lending(
    home: Arc<SimHome>,
    lent: Arc<SimHome>,
    mapping: Arc<Mapping>,
) -> Result<AttachedHome> {
    let tiers = vec![(spec(MIB), vec![mapping])];
    testing::attach_simulated_lending(home, lent, tiers, &lending_profile(), place::options())
}

fn lending() -> Lending {
    let home = Arc::new(SimHome::new(None));
    home.put(Path::new("w.redo"), &[9; LEN]).unwrap();
    home.rebase();
    let lent = Arc::new(SimHome::new(None));
    let mapping = Arc::new(Mapping::in_memory(&vec![0; MIB as usize], 0));
    let attached = attach_lending(home.clone(), lent.clone(), mapping.clone()).unwrap();
    Lending { home, lent, mapping, attached }
}

impl Lending {
    /// Whatever a power cut leaves of home, now that plain files and tier are durable: it attaches,
    /// and the file reads as `want`.
    fn assert_power_cut_keeps(&self, want: &[u8]) {
        let trace = self.home.trace();
        let mut player = trace.player();
        player.advance_to(trace.events().len());
        for choice in player.choices(64, 1) {
            let home = Arc::new(player.image(&choice).home());
            let lent = Arc::new(self.lent.snapshot().home());
            let mapping = Arc::new(Mapping::in_memory(&place::image(&self.mapping), 0));
            let attached = attach_lending(home, lent, mapping).unwrap();
            assert!(place::read(&attached, "w.redo") == want, "{choice:?}");
        }
    }
}

#[test]
fn a_lent_file_goes_home_again_after_a_sync_that_failed_although_home_looks_alike() {
    let it = lending();
    let file = it.attached.open("w.redo", OpenMode::WRITE).unwrap();
    let lent = file.lend().unwrap().unwrap();
    let destage = || it.attached.destage(Some(Path::new("w.redo")));
    destage().unwrap();
    it.home.rebase();
    testing::kernel_write(&lent, 0, &[7; LEN]).unwrap();
    it.home.fail_nth_sync(1);
    destage().unwrap_err();
    assert_eq!(
        it.home.contents(Path::new("w.redo")).unwrap()[..],
        [7; LEN],
        "home looks as if it had it"
    );
    drop(lent);
    assert!(it.attached.give_back("w.redo").unwrap());
    it.assert_power_cut_keeps(&[7; LEN]);
}

#[test]
fn a_destaging_that_failed_is_settled_before_its_file_is_lent() {
    const OLD: FileTime = FileTime { sec: 1_000_000_000, nsec: 5 };
    let it = lending();
    let file = it.attached.open("w.redo", OpenMode::WRITE).unwrap();
    file.write(0, &[7; LEN]).unwrap();
    // The time that home is being given is what tells that the change is ours, and a lent file's
    // line has no room for it.
    file.set_times(SetTime::Keep, SetTime::At(OLD)).unwrap();
    it.home.rebase();
    it.home.fail_nth_sync(1);
    it.attached.destage(Some(Path::new("w.redo"))).unwrap_err();
    it.home.set_options(SimOptions { clock_step_ns: 200_000_000_000, ..SimOptions::default() });
    drop(file.lend().unwrap().unwrap());
    it.assert_power_cut_keeps(&[7; LEN]);
}

// --- slots of the file table ---

/// A home with a gate whose file table is full of open files, and those files; `a.d8` has no slot.
/// `redo`: also the slots that only redo files get are taken.
fn full_table(redo: bool) -> (Attached, Vec<File>) {
    let home = Arc::new(SimHome::new(None));
    home.put(Path::new("a.d8"), &[9; B]).unwrap();
    home.rebase();
    let gate = Gate::new(home.clone());
    let mapping = Arc::new(Mapping::in_memory(&vec![0; MIB as usize / 4], 0));
    let tiers = vec![(spec(MIB / 4), vec![mapping.clone()])];
    let attached =
        testing::attach_simulated(gate.clone(), tiers, &place::profile(), place::options())
            .unwrap();
    let slots = attached.stats().tiers[0].file_slots_most;
    let data = slots - slots / 8;
    let name = |n| format!("{n}.{}", if n < data { "d8" } else { "redo" });
    let most = if redo { slots } else { data };
    let files = (0..most).map(|n| attached.create(name(n)).unwrap()).collect();
    assert_eq!(attached.stats().tiers[0].files, most);
    (Attached { home, gate, attached, mapping }, files)
}

#[test]
fn a_time_that_is_set_while_the_file_gets_a_slot_is_not_taken_for_a_change_of_home() {
    let (it, mut files) = full_table(false);
    let reader = it.attached.open("a.d8", OpenMode::READ).unwrap();
    assert_eq!(it.attached.stats().tiers[0].files_outside, 1, "it has a slot");
    let ((begin, begun), (done, is_done)) = (channel(), channel());
    files.remove(0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Until the gate is gone.
            for n in begun {
                reader
                    .set_times(
                        SetTime::Keep,
                        SetTime::At(FileTime { sec: 1_000_000_000 + n, nsec: 5 }),
                    )
                    .unwrap();
                let _ = done.send(());
            }
        });
        let mut looks: i64 = 0;
        it.gate.after_settling("a.d8", move || {
            looks += 1;
            begin.send(looks).unwrap();
            let _ = is_done.recv_timeout(Duration::from_millis(300));
        });
        let writer = it.attached.open("a.d8", OpenMode::WRITE).unwrap();
        it.gate.after_settling("", || {});
        writer.write(0, &[7; B]).unwrap();
    });
    let again = killed_with(&it, MIB / 4).unwrap();
    assert_eq!(place::read(&again, "a.d8"), [7; B]);
}

/// [`Attached::killed`] of a tier of another size.
fn killed_with(it: &Attached, bytes: u64) -> Result<AttachedHome> {
    let members = place::loaded(&place::image(&it.mapping));
    let home = Arc::new(it.home.snapshot().home());
    testing::attach_simulated(
        home,
        vec![(spec(bytes), members)],
        &place::profile(),
        place::options(),
    )
}

#[test]
fn who_waits_for_a_slot_behind_a_home_that_hangs_gives_up() {
    let (it, mut files) = full_table(true);
    files[0].write(0, &[1; B]).unwrap();
    drop(files.remove(0));
    it.gate.close();
    std::thread::scope(|scope| {
        let hangs = scope.spawn(|| it.attached.create("new.d8").map(drop));
        while it.gate.waiting() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (done, is_done) = channel();
        let attached = it.attached.clone();
        scope.spawn(move || done.send(attached.create("new.redo").map(|file| file.class())));
        let outcome = is_done.recv_timeout(Duration::from_secs(8));
        let said = it.attached.stats().tiers[0].slot_refused.clone().unwrap_or_default();
        it.gate.open_wide();
        // One slot more is free, and that is for redo.
        hangs.join().unwrap().unwrap_err();
        assert_eq!(
            outcome.expect("it waits without end").unwrap(),
            FileClass::Pass,
            "it goes straight home"
        );
        assert!(said.contains("another opening has waited"), "{said}");
    });
}

#[test]
fn who_waits_for_a_slot_empties_the_tier_once() {
    let home = Arc::new(SimHome::new(None));
    let gate = Gate::new(home);
    let mapping = Arc::new(Mapping::in_memory(&vec![0; MIB as usize / 2], 0));
    let tiers = vec![(TierSpec { lanes: 1, ..spec(MIB / 2) }, vec![mapping])];
    let attached =
        testing::attach_simulated(gate, tiers, &place::profile(), place::options()).unwrap();
    // A pinned block in every unit of four, so that no unit can become the file table's.
    let [pinned, other] = ["pinned.d8", "other.d8"].map(|name| attached.create(name).unwrap());
    attached.pin("pinned.d8").unwrap();
    for n in 0..attached.stats().tiers[0].usable_bytes / B as u64 - 4 {
        let file = if n % 2 == 0 { &pinned } else { &other };
        file.write(n / 2 * B as u64, &[1; B]).unwrap();
    }
    let mut files: Vec<File> = Vec::new();
    while attached.stats().tiers[0].files < attached.stats().tiers[0].file_slots * 7 / 8 {
        files.push(attached.create(format!("{}.d8", files.len())).unwrap());
    }
    let rooms = || attached.stats().waits.event(waits::FREE_WAIT).count();
    let before = rooms();
    let refused = attached.create("refused.d8").map(drop).unwrap_err();
    assert!(matches!(refused, Error::FileTableFull { .. }), "{refused}");
    assert!(rooms() <= before + 1, "the tier was emptied {} times", rooms() - before);
    // Whoever is refused from now on is refused soon after another, and the tier can be emptied
    // again.
    attached.unpin("pinned.d8").unwrap();
    let began = std::time::Instant::now();
    while let Err(refused) = attached.create("refused.d8") {
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{refused}, though all blocks can go home"
        );
    }
}
