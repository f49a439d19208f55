//! Promise 8: what is done is measured, and says where it was done.

use super::{BLOCK, MIB, attach_to, spec};
use crate::place;
use crate::place::Place;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use tiersmith_events::{CounterId, EventId};
use tiersmith_pmem::Mapping;
use tiersmith_store::home::SimHome;
use tiersmith_store::{
    AttachedHome, File, Medium, OpenMode, Options, Skip, TierSpec, attach, testing, waits,
};

/// A home with one file per class at home already, and a tier that can grow.
fn measured() -> (Arc<SimHome>, AttachedHome) {
    let home = Arc::new(SimHome::new(None));
    home.put(Path::new("a.d8"), &place::pattern(1, 0, 40_960)).unwrap();
    home.put(Path::new("a.txt"), b"pass").unwrap();
    home.put(Path::new("b.d8"), &[1; 100 * BLOCK as usize]).unwrap();
    home.rebase();
    let spec = TierSpec { max_size: 2 * MIB, grow_by: 128 << 10, ..spec(MIB) };
    let mapping = Arc::new(Mapping::in_memory(&vec![0; MIB as usize], 2 * MIB));
    let attached = attach_to(home.clone(), &spec, mapping).unwrap();
    (home, attached)
}

/// An operation and the events it records: how often, and how many bytes.
type Measured = (
    &'static str,
    fn(&AttachedHome, &Files),
    &'static [(EventId, u64, u64)],
    &'static [(CounterId, u64)],
);

struct Files {
    data: File,
    redo: File,
    pass: File,
}

const OPERATIONS: &[Measured] = &[
    (
        "a read from home, which admits the block",
        |_, f| drop(f.data.read(0, &mut [0; 8192])),
        &[(waits::HOME_READ, 1, 8192), (waits::ADMIT, 1, 8192)],
        &[(waits::TIER_MISSES, 1), (waits::INSERTS, 1), (waits::DATA_WRITTEN, 8192)],
    ),
    (
        "a read of a clean copy",
        |_, f| drop(f.data.read(0, &mut [0; 100])),
        &[(waits::CACHED_READ, 1, 100)],
        &[(waits::TIER_HITS, 1)],
    ),
    (
        "an overwrite",
        |_, f| f.data.write(0, &[1; 8192]).unwrap(),
        &[(waits::BLOCK_WRITE, 1, 8192)],
        &[(waits::DATA_WRITTEN, 8192)],
    ),
    (
        "a read of a dirty block",
        |_, f| drop(f.data.read(0, &mut [0; 8192])),
        &[(waits::DIRTY_READ, 1, 8192)],
        &[(waits::TIER_HITS, 1)],
    ),
    ("a reference", |_, f| drop(f.data.read_ref(0).unwrap()), &[], &[(waits::ZERO_COPY, 1)]),
    (
        "a batch",
        |_, f| f.data.write_batch(&[(8192, &[1; 8192]), (16384, &[2; 8192])]).unwrap(),
        &[(waits::BATCH_WRITE, 1, 16384)],
        &[(waits::DATA_WRITTEN, 16384)],
    ),
    (
        "a read of three blocks",
        |_, f| drop(f.data.read(0, &mut [0; 24_576])),
        &[(waits::DIRTY_READ, 3, 24_576)],
        &[(waits::TIER_HITS, 3), (waits::MORE_HITS, 2)],
    ),
    ("a sync of data", |_, f| f.data.sync().unwrap(), &[(waits::DATA_SYNC, 1, 0)], &[]),
    (
        "a redo append",
        |_, f| f.redo.write(0, &[1; 512]).unwrap(),
        &[(waits::REDO_WRITE, 1, 512)],
        &[(waits::REDO_SIZE, 512)],
    ),
    ("a sync of redo", |_, f| f.redo.sync().unwrap(), &[(waits::REDO_SYNC, 1, 0)], &[]),
    (
        "a read of redo",
        |_, f| drop(f.redo.read(0, &mut [0; 512])),
        &[(waits::DIRTY_READ, 1, 512)],
        &[(waits::TIER_HITS, 1), (waits::REDO_HITS, 1)],
    ),
    (
        "a write of a pass file",
        |_, f| f.pass.write(0, b"more").unwrap(),
        &[(waits::PASS_IO, 1, 4)],
        &[],
    ),
    (
        "a read of a pass file",
        |_, f| drop(f.pass.read(0, &mut [0; 9])),
        &[(waits::PASS_IO, 1, 4)],
        &[],
    ),
    ("a sync of a pass file", |_, f| f.pass.sync().unwrap(), &[(waits::PASS_SYNC, 1, 0)], &[]),
    ("a cut", |_, f| f.data.truncate(24_576).unwrap(), &[(waits::RESIZE, 1, 0)], &[]),
    ("a lengthening", |_, f| f.data.extend(32_768).unwrap(), &[(waits::RESIZE, 1, 0)], &[]),
    (
        "destaging data",
        |a, _| assert!(a.destage(Some(Path::new("a.d8"))).unwrap() > 0),
        &[(waits::DESTAGE, 1, 24_576)],
        &[(waits::DESTAGED, 3)],
    ),
    (
        "draining redo",
        |a, _| assert!(a.destage(Some(Path::new("a.redo"))).unwrap() > 0),
        &[(waits::DESTAGE, 1, 4096)],
        &[(waits::DESTAGED, 1)],
    ),
    (
        "eviction",
        |a, _| assert!(a.evict(Some(Path::new("a.d8")), 0).unwrap() > 0),
        &[],
        &[(waits::EVICTED, 3)],
    ),
    (
        "a pin, ended at once",
        |a, _| {
            a.pin("a.d8").unwrap();
            a.unpin("a.d8").unwrap();
        },
        &[(waits::MOVE_IN, 4, 32_768)],
        &[(waits::INSERTS, 4), (waits::DATA_WRITTEN, 32_768), (waits::MOVED_IN, 4)],
    ),
    (
        "a move home of a block that was written",
        |a, f| {
            f.data.write(0, &[1; 8192]).unwrap();
            assert_eq!(a.move_home_at("a.d8", None, |_| true).unwrap().blocks, 1);
        },
        &[(waits::BLOCK_WRITE, 1, 8192), (waits::DESTAGE, 1, 8192)],
        &[
            (waits::DATA_WRITTEN, 8192),
            (waits::DESTAGED, 1),
            (waits::MOVED_HOME, 1),
            (waits::EVICTED, 4),
        ],
    ),
    ("growing by hand", |a, _| assert!(a.grow("fast").unwrap()), &[(waits::GROW, 1, 0)], &[]),
];

#[test]
fn promise_8_measured_every_event_and_counter_is_recorded_by_the_operation_it_names() {
    let (_home, attached) = measured();
    let at_attach = attached.stats();
    assert_eq!(at_attach.waits.event(waits::RECOVERY).count(), 1);
    assert!(at_attach.recovery.time > std::time::Duration::ZERO);
    let files = Files {
        data: attached.open("a.d8", OpenMode::WRITE).unwrap(),
        redo: attached.open("a.redo", OpenMode::CREATE).unwrap(),
        pass: attached.open("a.txt", OpenMode::WRITE).unwrap(),
    };
    let mut recorded = BTreeSet::from(["recovery read"]);
    for (what, operation, events, counters) in OPERATIONS {
        let before = attached.events().read();
        operation(&attached, &files);
        let since = attached.events().read().since(&before);
        let found: Vec<_> = since
            .events()
            .filter(|(_, t)| t.count() > 0)
            .map(|(d, t)| (d.name, t.count(), t.bytes()))
            .collect();
        let expected: Vec<_> = since
            .events()
            .enumerate()
            .filter_map(|(n, (d, _))| {
                let (_, count, bytes) =
                    events.iter().find(|(e, _, _)| *e == EventId::new(n as u16))?;
                Some((d.name, *count, *bytes))
            })
            .collect();
        assert_eq!(found, expected, "{what}");
        let counted: Vec<_> = since.counters().filter(|(_, n)| *n > 0).collect();
        assert_eq!(counted.len(), counters.len(), "{what}: {counted:?}");
        assert!(counters.iter().all(|(c, n)| since.counter(*c) == *n), "{what}: {counted:?}");
        for (event, _, _) in *events {
            let total = since.event(*event);
            assert!(
                total.total_ns() > 0 && total.histogram().max_ns().is_some(),
                "{what}: no time"
            );
        }
        recorded.extend(found.iter().map(|(name, _, _)| *name));
        recorded.extend(counted.iter().map(|(d, _)| d.name));
    }
    free_blocks_are_waited_for(&attached, &files.data);
    recorded.insert("free buffer waits");
    // More files than slots.
    let before = attached.events().read();
    let one = |n| drop(attached.open(format!("{n}.d8"), OpenMode::CREATE).unwrap());
    let recycled = || attached.events().read().since(&before).counter(waits::RECYCLED);
    (0..2000).take_while(|_| recycled() == 0).for_each(one);
    assert!(
        recycled() > 0
            && attached.events().read().since(&before).event(waits::SLOT_WAIT).count() > 0
    );
    recorded.extend(["file slot waits", "file slots recycled"]);
    a_clean_copy_that_its_disk_does_not_give_is_repaired();
    recorded.extend(["blocks scrubbed", "blocks repaired from home"]);
    // Each of these has an operation in the test `usage`.
    recorded.extend(Skip::ALL.map(|skip| waits::COUNTERS[skip.counter().index()].name));
    recorded.extend(["flash cache read misses: redo", "flash cache eviction: invalidated"]);
    let all: BTreeSet<_> = waits::EVENTS
        .iter()
        .map(|e| e.name)
        .chain(waits::COUNTERS.iter().map(|c| c.name))
        .collect();
    assert_eq!(recorded, all, "not every event has an operation here that records it");
}

/// Waiting for free blocks, and growing because of it.
fn free_blocks_are_waited_for(attached: &AttachedHome, data: &File) {
    let before = attached.events().read();
    (0..400).for_each(|n| data.write(n * BLOCK, &[1; 8192]).unwrap());
    let since = attached.events().read().since(&before);
    assert!(since.event(waits::FREE_WAIT).count() > 0 && since.event(waits::GROW).count() > 0);
    assert_eq!(since.event(waits::BLOCK_WRITE).count(), 400);
    // A pin makes room too, and no session waits for it.
    let is_full = || attached.stats().tiers[0].free_bytes < 10 * BLOCK;
    let write = |n| data.write(n * BLOCK, &[2; 8192]).unwrap();
    (0..400).take_while(|_| !is_full()).for_each(write);
    let before = attached.events().read();
    attached.pin("b.d8").unwrap();
    let since = attached.events().read().since(&before);
    assert_eq!((since.event(waits::MOVE_IN).count(), since.counter(waits::MOVED_IN)), (100, 100));
    assert!(since.event(waits::DESTAGE).count() > 0, "there was room");
    for event in [waits::FREE_WAIT, waits::ADMIT] {
        assert_eq!(since.event(event).count(), 0, "{event:?}");
    }
    attached.unpin("b.d8").unwrap();
}

fn a_clean_copy_that_its_disk_does_not_give_is_repaired() {
    let disk = tiersmith_pmem::sim::Simulator::new().device(vec![0; MIB as usize], 512);
    let on_disk = TierSpec { medium: Medium::Flash, log: 64 << 10, ..spec(MIB) };
    let tiers = vec![(on_disk, vec![testing::TestMember::on_flash(disk.clone(), MIB)])];
    let home = Arc::new(SimHome::new(None));
    let attached =
        testing::attach_simulated(home, tiers, &place::profile(), place::options()).unwrap();
    let file = attached.open("a.d8", OpenMode::CREATE).unwrap();
    file.write(0, &[1; 8192]).unwrap();
    attached.destage(None).unwrap();
    assert_eq!(attached.scrub(None, |_| true).unwrap().blocks, 1);
    disk.fail_reads(0..MIB);
    let mut bytes = [0; 8192];
    file.read(0, &mut bytes).unwrap();
    assert_eq!((attached.events().read().counter(waits::REPAIRED), bytes[0]), (1, 1));
}

#[test]
fn promise_8_measured_recording_can_be_left_out_to_measure_what_it_costs() {
    let home = Arc::new(SimHome::new(None));
    let mapping = Arc::new(Mapping::in_memory(&vec![0; MIB as usize], 0));
    let options = Options { record_waits: false, ..place::options() };
    let tiers = vec![(spec(MIB), vec![mapping])];
    let attached = testing::attach_simulated(home, tiers, &place::profile(), options).unwrap();
    attached.open("a.d8", OpenMode::CREATE).unwrap().write(0, &[1; 8192]).unwrap();
    assert_eq!(attached.stats().waits.events().count(), 0);
}

#[test]
fn promise_8_measured_an_emulated_medium_is_labelled_in_what_is_printed() {
    let place = Place::new();
    let specs = [
        place.tier(MIB),
        TierSpec {
            medium: Medium::Volatile,
            name: "ram".into(),
            ..place::small(place.member("ram"), MIB)
        },
    ];
    let attached = attach(&place.home(), &specs, place::options()).unwrap();
    let stats = attached.stats();
    assert_eq!(stats.tiers.iter().map(|t| t.emulated).collect::<Vec<_>>(), [true, false]);
    assert!(stats.tiers[0].media.iter().all(|m| m.contains("EMULATED")));
    assert!(
        stats.tiers[1]
            .media
            .iter()
            .all(|m| !m.contains("EMULATED") && m.contains("does not survive"))
    );
    assert!(format!("{stats:?}").contains("emulated: true"));
    attached.detach().unwrap();
}
