//! Writing past an ephemeral tier while somebody else is between two steps: here the steps are
//! called one after the other.

use crate::address::BlockIndex;
use crate::api::{AttachedHome, OpenMode};
use crate::attach::{Options, TierSpec};
use crate::format::entry::Entry;
use crate::home::SimHome;
use crate::home::sim::SimOptions;
use crate::medium::Medium;
use crate::planted::Planted;
use crate::profile::Profile;
use crate::sync::atomic::Ordering;
use crate::testing::{TestMember, attach_simulated};
use std::path::Path;
use std::sync::Arc;
use tiersmith_block::Device;
use tiersmith_pmem::Mapping;
use tiersmith_pmem::sim::{self, Simulator};

const LOG: u64 = 64 << 10;
const LEN: u64 = (1 << 20) + LOG;
const B: usize = 4096;

fn disk_of(bytes: Vec<u8>) -> sim::Device {
    Simulator::new().device(bytes, 512)
}

/// The disk as a kill leaves it.
fn killed(disk: &sim::Device) -> sim::Device {
    let mut bytes = vec![0; disk.len() as usize];
    disk.read(0, &mut bytes).unwrap();
    disk_of(bytes)
}

fn attach(home: &Arc<SimHome>, disk: &sim::Device, planted: Planted) -> AttachedHome {
    let profile = "description = 'test'\n[default]\nclass = 'data'\nblock_size = 4096\n";
    let profile = Profile::parse("test", profile).unwrap();
    let mut spec = TierSpec::new("fast", "/fast", Medium::Ephemeral, LEN);
    (spec.unit, spec.lanes, spec.batches, spec.slots, spec.log) = (32 << 10, 1, 1, 16, LOG);
    let device = disk.clone();
    let member = TestMember {
        mapping: Arc::new(Mapping::in_memory(&[0; 4096], 0)),
        blocks: Some(Arc::new(move || Device::simulated(device.clone()))),
        on_flash: Some(LEN),
    };
    let options = Options { background: false, planted, ..Options::default() };
    attach_simulated(home.clone(), vec![(spec, vec![member])], &profile, options).unwrap()
}

/// A home with the file `a.db` of four blocks, of which an ephemeral tier has copies, durably.
fn warm(planted: Planted) -> (Arc<SimHome>, sim::Device, AttachedHome) {
    let home = Arc::new(SimHome::new(None));
    home.put(Path::new("a.db"), &[9; 4 * B]).unwrap();
    home.rebase();
    let disk = disk_of(vec![0; LEN as usize]);
    let attached = attach(&home, &disk, planted);
    attached.pin("a.db").unwrap();
    attached.unpin("a.db").unwrap();
    attached.store.tiers[0].wait();
    (home, disk, attached)
}

fn first_block(attached: &AttachedHome) -> Vec<u8> {
    let mut bytes = vec![0; B];
    attached.open("a.db", OpenMode::READ).unwrap().read(0, &mut bytes).unwrap();
    bytes
}

/// What an attach after a kill reads, where the first block was written while its copy was being
/// given up.
fn after_a_kill(planted: Planted) -> Vec<u8> {
    let (home, disk, attached) = warm(planted);
    let file = attached.open("a.db", OpenMode::WRITE).unwrap();
    // Home is announced, so the next write has no word of its own to wait for.
    file.write(3 * B as u64, &[1; B]).unwrap();
    let placed = file.state.placed.as_ref().unwrap();
    let spot = placed.spot(BlockIndex(0)).unwrap();
    // Who evicts has changed the entry and waits for the disk.
    let _ = placed.map.leaving.fetch_add(1, Ordering::AcqRel);
    placed.tier.change(spot, |_| Some(Entry::HOME)).unwrap();
    file.write(0, &[7; B]).unwrap();
    let left = killed(&disk);
    let _ = placed.map.leaving.fetch_sub(1, Ordering::AcqRel);
    let home_left = Arc::new(SimHome::from_image(&home.snapshot(), None));
    drop((file, attached));
    first_block(&attach(&home_left, &left, planted))
}

#[test]
fn who_writes_a_block_whose_copy_is_just_given_up_waits_until_that_is_durable() {
    assert!(after_a_kill(Planted::None) == [7; B], "an old copy is believed");
    assert!(after_a_kill(Planted::OthersUnwaited) == [9; B], "the planted bug does not show");
}

#[test]
fn a_sync_that_nobody_asked_for_hides_no_error_and_what_it_was_for_is_not_copied() {
    let (home, _disk, attached) = warm(Planted::None);
    // Each change of home takes longer than a file is written before it is at rest.
    home.set_options(SimOptions { clock_step_ns: 60_000_000_000, ..SimOptions::default() });
    let file = attached.open("a.db", OpenMode::WRITE).unwrap();
    file.write(0, &[7; B]).unwrap();
    home.fail_nth_sync(1);
    assert!(attached.background_step().is_err(), "the file is at rest, and home fails");
    assert!(file.sync().is_err(), "the program was not told");
    file.sync().unwrap();
    for _ in 0..3 {
        assert!(first_block(&attached) == [7; B]);
        attached.background_step().unwrap();
    }
    let placed = file.state.placed.as_ref().unwrap();
    assert_eq!(placed.map.get(BlockIndex(0)), Entry::HOME, "home may not have it");
    assert!(attached.pin("a.db").unwrap_err().to_string().contains("home could not be synced"));
}
