//! The two readers of the format agree: what the store's coders write, the checker understands.

use super::super::{Severity, check_images_with};
use super::build::{Build, put};
use super::{AFTER_CUT, kinds};
use crate::address::{BlockIndex, BlockSize, Frame, WordAt};
use crate::format::entry::{Entry, Place, block_sum, seal, seal_value};
use crate::format::record::{BatchHeader, BatchItem, LaneRecord, NO_FRAME, items_hash};
use crate::format::slot::{Identity, StateLine, encode_path};
use crate::format::superblock::{Superblock, TierState};
use crate::profile::FileClass;

const SEED: u64 = 99;
const FILE: u64 = 0x12_3456_789a;

/// A tier of one member written with the store's coders alone: a file with block 0 Dirty in frame
/// 8, and records that move it to frame 10.
fn written() -> Vec<u8> {
    // Only the offsets are taken from the builder.
    let places = Build::new(1, 4);
    let mut image = vec![0; places.images[0].len()];
    let sb = superblock(image.len() as u64, places.data_start(0));
    put(&mut image, 0, &sb.encode());
    put(&mut image, 4096, &sb.encode());
    for slot in 0..8 {
        put(
            &mut image,
            places.slot_at(slot),
            &seal_value(SEED, 0, Place::Slot(slot), 0).to_le_bytes(),
        );
    }
    let slot = places.slot_at(6);
    let identity = Identity {
        ino: 5,
        generation: 6,
        btime_ns: 7,
        class: FileClass::Data,
        block_size: BlockSize::from_bytes(8192).unwrap(),
    };
    put(&mut image, slot, &seal_value(SEED, 0, Place::Slot(6), FILE).to_le_bytes());
    put(&mut image, slot + 16, &identity.encode(SEED, FILE));
    let roots = [
        (Place::Leaf(0), Entry::page(Frame(0))),
        (Place::Middle(0), Entry::HOME),
        (Place::Top, Entry::HOME),
    ];
    for (n, (place, entry)) in roots.into_iter().enumerate() {
        put(&mut image, slot + 64 + n as u64 * 8, &seal(SEED, FILE, place, entry).to_le_bytes());
    }
    for seq in [1, 2] {
        let line = StateLine { seq, size: 8192, ..StateLine::default() };
        put(&mut image, slot + line.at(), &line.encode_pair(SEED, FILE));
    }
    put(&mut image, slot + 384, &encode_path(b"base/1", SEED, FILE));
    let leaf = places.place(0).1;
    for n in 0..256 {
        let entry = if n == 0 { Entry::dirty(Frame(8)) } else { Entry::HOME };
        put(&mut image, leaf + n * 16, &seal(SEED, FILE, Place::Block(n), entry).to_le_bytes());
    }
    let hash = crate::medium::hash_bytes(&[0; 8192], SEED);
    let (word, sum) = (
        seal(SEED, FILE, Place::Block(0), Entry::dirty(Frame(10))),
        block_sum(SEED, FILE, BlockIndex(0), hash),
    );
    put(&mut image, leaf + 8, &sum.to_le_bytes());
    let at = WordAt::new(0, leaf);
    let record =
        LaneRecord { seq: 5, at, word, sum, file: FILE, block: BlockIndex(0), frames: 2, lane: 2 };
    put(&mut image, 12288 + 2 * 128 + 64, record.words(SEED).map(u64::to_le_bytes).as_flattened());
    let items = [BatchItem { at, word, sum, block: BlockIndex(0) }];
    let header = BatchHeader {
        seq: 1,
        file: FILE,
        count: 1,
        frames: 2,
        size_after: 8192,
        overflow: NO_FRAME,
        items_hash: items_hash(&items, SEED),
        slot: 6,
    };
    put(&mut image, places.batch_at(1), &header.encode(&items, SEED));
    image
}

fn superblock(len: u64, data_start: u64) -> Superblock {
    Superblock {
        state: TierState::Attached,
        seq: 3,
        tier_uuid: [1; 16],
        attachment: [2; 16],
        member: 0,
        members: 1,
        seed: SEED,
        len,
        max_len: 1 << 30,
        grow_by: 1 << 20,
        unit: 32768,
        data_start,
        lanes: 4,
        batches: 2,
        slots: 8,
        attach_count: 3,
        sector_size: 0,
        log_len: 0,
        flags: 0,
        home_ino: 12,
        home_btime_ns: 13,
        name: "fast".into(),
        home_path: b"/data/home".to_vec(),
        extents: Vec::new(),
    }
}

#[test]
fn what_the_store_writes_the_checker_understands() {
    let image = written();
    let report = check_images_with(&[&image], None, &AFTER_CUT);
    assert_eq!(kinds(&report), [], "{report}");
    let s = &report.summary;
    assert_eq!((s.files, s.blocks_dirty, s.map_pages, s.units), (1, 1, 1, 4));
    assert_eq!((s.lane_records_pending, s.batch_records_pending), (1, 1));
    assert_eq!(
        (s.tier.as_str(), s.home.as_str(), s.state.as_str()),
        ("fast", "/data/home", "attached")
    );
}

#[test]
fn a_finding_names_the_file_the_block_and_the_place() {
    let mut image = written();
    let at = Build::new(1, 4).place(0).1;
    image[at as usize] ^= 1;
    let report = check_images_with(&[&image], None, &AFTER_CUT);
    let finding = report.findings.first().unwrap();
    assert_eq!((finding.severity, finding.invariant), (Severity::Damage, 7));
    let place = &finding.place;
    assert_eq!((place.member, place.offset, place.block), (Some(0), Some(at), Some(0)));
    let file = place.file.as_ref().unwrap();
    assert_eq!((file.id, file.path.as_deref()), (FILE, Some("base/1")));
}
