//! What a thread finds that was overtaken between a look without a lock and the lock: here the two
//! are called one after the other.

use crate::address::BlockIndex;
use crate::api::{AttachedHome, OpenMode};
use crate::attach::{Options, TierSpec};
use crate::check::{AnyHome, check_images};
use crate::format::entry::Entry;
use crate::home::SimHome;
use crate::medium::Medium;
use crate::mover::admit::Run;
use crate::profile::Profile;
use crate::testing::{accounting, attach_simulated};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tiersmith_pmem::Mapping;

const LEN: usize = 1 << 20;
const B: usize = 4096;

/// A home with the file `a.db` of four blocks, on a tier with one lane.
fn attached() -> (Arc<SimHome>, Arc<Mapping>, AttachedHome) {
    attached_with(4, 1)
}

fn attached_with(blocks: usize, lanes: u32) -> (Arc<SimHome>, Arc<Mapping>, AttachedHome) {
    let profile = "description = 'test'\n[default]\nclass = 'data'\nblock_size = 4096\n";
    let profile = Profile::parse("test", profile).unwrap();
    let home = Arc::new(SimHome::new(None));
    home.put(Path::new("a.db"), &vec![9; blocks * B]).unwrap();
    home.rebase();
    let tier = Arc::new(Mapping::in_memory(&[0; LEN], 0));
    let mut spec = TierSpec::new("fast", "/fast", Medium::Emulated, LEN as u64);
    (spec.unit, spec.lanes, spec.batches, spec.slots) = (32 << 10, lanes, 1, 16);
    let options = Options { background: false, ..Options::default() };
    let tiers = vec![(spec, vec![tier.clone()])];
    let attached = attach_simulated(home.clone(), tiers, &profile, options).unwrap();
    (home, tier, attached)
}

#[test]
fn a_block_that_waits_for_admission_is_not_admitted_into_a_file_that_is_gone() {
    let (home, tier, attached) = attached();
    let file = attached.open("a.db", OpenMode::WRITE).unwrap();
    // The background has found the file; then it is removed, and another one gets its place.
    let state = file.state.clone();
    drop(file);
    attached.unlink("a.db").unwrap();
    let other = attached.open("b.db", OpenMode::CREATE).unwrap();
    let placed = state.placed.as_ref().unwrap();
    assert_eq!(placed.slot, other.state.placed.as_ref().unwrap().slot);
    attached.store.mover.admit_again(&state, placed, Run::of(&state, BlockIndex(0), 2));
    assert_eq!(placed.map.counts(), (0, 0));
    other.write(0, &[1; B]).unwrap();
    let (free, used, all) = accounting(&attached);
    assert_eq!(free + used, all);
    attached.flush_all().unwrap();
    let mut image = vec![0; LEN];
    tier.read(0, &mut image);
    let report = check_images(&[&image[..]], Some(&AnyHome(&*home)));
    assert!(report.is_sound(), "{report}");
}

#[test]
fn an_overwrite_of_a_block_that_was_cut_off_before_its_lane_was_locked_goes_the_longer_way() {
    let (_home, _tier, attached) = attached();
    let file = attached.open("a.db", OpenMode::WRITE).unwrap();
    for n in 0..4 {
        file.write(0, &[n; B]).unwrap();
    }
    let placed = file.state.placed.as_ref().unwrap();
    let at = 3 * B as u64;
    assert!(
        attached.store.io.switch_whole(placed, at, &[7; B]).is_some(),
        "the lane has a piece laid out"
    );
    // The writer has found the block within the file; then it is cut off.
    file.truncate(at).unwrap();
    assert!(attached.store.io.switch_whole(placed, at, &[8; B]).is_none());
    assert!(attached.store.io.switch_whole(placed, 0, &[8; B]).is_some(), "and it has one still");
    file.extend(4 * B as u64).unwrap();
    let mut found = [1; B];
    file.read(at, &mut found).unwrap();
    assert_eq!(found, [0; B]);
}

#[test]
fn a_block_admitted_while_its_map_page_is_given_back_is_evicted_after_the_page_is_there_again() {
    let (_home, _tier, attached) = attached_with(64, 2);
    let file = attached.open("a.db", OpenMode::WRITE).unwrap();
    file.write(0, &[1; B]).unwrap();
    attached.flush_all().unwrap();
    attached.evict(None, u64::MAX).unwrap();
    let placed = file.state.placed.as_ref().unwrap();
    let tier = &placed.tier;
    assert_eq!((placed.map.counts(), placed.map.page_count()), ((0, 0), 1), "a page, all `Home`");
    let block = (1..64).map(BlockIndex).find(|block| tier.lane_of(placed.id, *block) == 0).unwrap();
    let (leaf, index) = placed.map.leaf(block).unwrap();
    let store = &attached.store;
    std::thread::scope(|scope| {
        // Who gives the page back waits for both lanes, one after the other.
        let last = tier.lock_lane_number(1);
        let mut admits = tier.lock_lane_number(0);
        let spot = placed.spot(block).unwrap();
        let at = spot.at().unwrap();
        let frame = tier.take_piece(&mut admits.lane, placed.block_size).unwrap();
        let gives = scope.spawn(|| placed.give_back_pages(u64::MAX));
        while leaf.has_page() {
            std::thread::yield_now();
        }
        let ticket = tier.write_part(frame, 0, &[9; B]).unwrap();
        tier.wait_for(frame, ticket).unwrap();
        tier.replace_entry(&mut admits, spot, at, Entry::cached(frame));
        tier.unlatch(frame, placed.block_size.frames());
        leaf.set(index, Entry::cached(frame));
        drop(admits);
        let evicts = scope.spawn(|| store.mover.evict(tier, u64::MAX));
        std::thread::sleep(Duration::from_millis(50));
        drop(last);
        assert_eq!(gives.join().unwrap(), 0);
        assert_eq!(evicts.join().unwrap(), 1);
    });
    assert_eq!((placed.map.counts(), placed.map.page_count()), ((0, 0), 1));
    let (free, used, all) = accounting(&attached);
    assert_eq!(free + used, all);
}

#[test]
fn a_step_looks_for_removed_files_only_after_an_unlinking_that_failed() {
    let (home, _, attached) = attached();
    drop(attached.open("a.db", OpenMode::WRITE).unwrap());
    let names = &attached.store.names;
    let held = attached.store.files.hold();
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        scope.spawn(move || tell.send(names.settle_step()).unwrap());
        let step = told.recv_timeout(Duration::from_secs(20));
        drop(held);
        step.expect("it waits for the files").unwrap();
    });
    home.fail_nth_sync(1);
    attached.unlink("a.db").unwrap_err();
    assert_eq!(attached.store.files.all().len(), 1);
    names.settle_step().unwrap();
    assert_eq!(attached.store.files.all().len(), 0);
}
