//! Every byte of the metadata of a tier flipped in turn: the attach gives an error that names the
//! place, or, where there is a twin, goes on with the right data. Never a panic, never other data.
//!
//! In memory and with a simulated home, for speed. The offline check is put through the same in
//! `src/check/tests/`.

use crate::place;

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use tiersmith_pmem::Mapping;
use tiersmith_store::home::{SimHome, sim::HomeImage};
use tiersmith_store::{AttachedHome, Error, OpenMode, Options, TierSpec, testing};

const SIZE: u64 = 320 << 10;
/// Where things lie with the lanes, batches and slots of [`place::small`].
const SUPERBLOCKS: Range<u64> = 0..8192;
const RECORDS: Range<u64> = 12288..24576;
const SLOTS_AT: u64 = 24576;
const SLOT: u64 = 1024;
const UNITS_AT: u64 = 65536;

/// A tier at rest with dirty, cached and home blocks, and the home it belongs to.
struct Base {
    spec: TierSpec,
    image: Vec<u8>,
    home: HomeImage,
    expected: BTreeMap<&'static str, Vec<u8>>,
}

fn options() -> Options {
    Options { seed: Some(3), ..place::options() }
}

fn attach(home: HomeImage, spec: &TierSpec, image: &[u8]) -> Result<AttachedHome, Error> {
    let home = Arc::new(SimHome::from_image(&home, None));
    let tiers = vec![(spec.clone(), place::loaded(image))];
    testing::attach_simulated(home, tiers, &place::profile(), options())
}

impl Base {
    fn new() -> Self {
        let home = Arc::new(SimHome::new(None));
        home.put(Path::new("old.d8"), &place::pattern(1, 0, 60_000)).unwrap();
        home.rebase();
        let spec = place::small("/simulated/fast".into(), SIZE);
        let mapping = Arc::new(Mapping::in_memory(&vec![0; SIZE as usize], 0));
        let tiers = vec![(spec.clone(), vec![mapping.clone()])];
        let attached =
            testing::attach_simulated(home.clone(), tiers, &place::profile(), options()).unwrap();
        let old = attached.open("old.d8", OpenMode::WRITE).unwrap();
        place::contents(&old);
        old.write(8192, &place::pattern(2, 8192, 9000)).unwrap();
        let new = attached.open("new.d4", OpenMode::CREATE).unwrap();
        new.write(0, &place::pattern(3, 0, 30_000)).unwrap();
        attached.destage(Some(Path::new("new.d4"))).unwrap();
        new.write(100, b"again").unwrap();
        let redo = attached.open("log.redo", OpenMode::CREATE).unwrap();
        redo.write(0, &place::pattern(4, 0, 10_000)).unwrap();
        let expected = [("old.d8", &old), ("new.d4", &new), ("log.redo", &redo)];
        let expected =
            expected.into_iter().map(|(name, file)| (name, place::contents(file))).collect();
        drop((old, new, redo));
        drop(attached);
        Self { spec, image: place::image(&mapping), home: home.snapshot(), expected }
    }

    fn slot(&self, number: u64) -> Range<u64> {
        SLOTS_AT + number * SLOT..SLOTS_AT + (number + 1) * SLOT
    }

    /// The first map page of the file in slot `number`.
    fn map_page(&self, number: u64) -> Range<u64> {
        let at = self.slot(number).start as usize + 64;
        let word = u64::from_le_bytes(self.image[at..at + 8].try_into().unwrap());
        let frame = word & ((1 << 36) - 1);
        assert_eq!(word >> 36 & 3, 3, "slot {number} has no map page");
        UNITS_AT + frame * 4096..UNITS_AT + (frame + 1) * 4096
    }

    /// Attaches with `damaged` in place of the image: right data or an error, else what was wrong.
    fn outcome(&self, damaged: &[u8]) -> Result<Option<String>, String> {
        let attempt = catch_unwind(AssertUnwindSafe(|| {
            match attach(self.home.clone(), &self.spec, damaged) {
                Ok(attached) => {
                    for (name, expected) in &self.expected {
                        match place::try_read(&attached, name) {
                            Ok(found) if found == *expected => {}
                            Ok(_) => return Err(format!("{name} has other data")),
                            // Damaged, and home has it not.
                            Err(e) => return Ok(Some(e.to_string())),
                        }
                    }
                    Ok(None)
                }
                Err(e) => Ok(Some(e.to_string())),
            }
        }));
        attempt.unwrap_or_else(|_| Err("it panicked".into()))
    }

    /// Flips bytes of `range` one at a time; returns how many were refused and how many made no
    /// difference.
    fn flip(
        &self,
        range: Range<u64>,
        masks: &[u8],
        refusal_names: impl Fn(u64) -> String,
    ) -> (u64, u64) {
        let mut image = self.image.clone();
        let (mut refused, mut the_same) = (0, 0);
        for at in range {
            for mask in masks {
                image[at as usize] ^= mask;
                match self.outcome(&image) {
                    Ok(None) => the_same += 1,
                    Ok(Some(message)) => {
                        let name = refusal_names(at);
                        assert!(
                            message.contains(&name),
                            "byte {at} ^ {mask:#x}: {name} is not named: {message}"
                        );
                        assert!(
                            message.contains("/simulated/fast"),
                            "byte {at}: no path: {message}"
                        );
                        refused += 1;
                    }
                    Err(why) => panic!("byte {at} ^ {mask:#x}: {why}"),
                }
                image[at as usize] ^= mask;
            }
        }
        (refused, the_same)
    }
}

const MASKS: [u8; 3] = [0x01, 0x80, 0xff];

#[test]
fn a_flipped_byte_in_one_superblock_copy_costs_nothing() {
    let base = Base::new();
    let (refused, the_same) = base.flip(SUPERBLOCKS, &[0x10], |_| "superblock".into());
    assert_eq!((refused, the_same), (0, 8192));
}

#[test]
fn a_byte_flipped_in_both_superblock_copies_is_refused_and_named() {
    let base = Base::new();
    for at in 0..4096 {
        let mut image = base.image.clone();
        image[at] ^= 0x10;
        image[at + 4096] ^= 0x10;
        match base.outcome(&image) {
            Ok(Some(message)) => {
                let named =
                    message.contains("superblock") || message.contains("not a Tiersmith tier");
                assert!(named && message.contains("/simulated/fast"), "byte {at}: {message}");
            }
            other => panic!("byte {at}: {other:?}"),
        }
    }
}

#[test]
fn a_flipped_byte_of_a_used_file_slot_is_refused_or_costs_nothing() {
    let base = Base::new();
    let mut all = (0, 0);
    for (slot, masks) in [(0, &MASKS[..]), (1, &MASKS[..1]), (2, &MASKS[1..2])] {
        let (refused, the_same) = base.flip(base.slot(slot), masks, |_| format!("slot {slot}"));
        // The in-use word, the identity, the roots; state lines and path hint have a twin or are
        // not needed.
        assert_eq!(refused, (8 + 48 + 24) * masks.len() as u64, "slot {slot}");
        all = (all.0 + refused, all.1 + the_same);
    }
    println!("{} flips in file slots: {} refused, {} without effect", all.0 + all.1, all.0, all.1);
}

#[test]
fn a_flipped_byte_of_a_free_file_slot_is_refused_or_costs_nothing() {
    let base = Base::new();
    let (refused, _) = base.flip(base.slot(5), &[0x40], |_| "slot 5".into());
    assert_eq!(refused, 8);
}

#[test]
fn every_flipped_byte_of_a_used_map_page_is_refused_and_named_or_costs_nothing() {
    let base = Base::new();
    for (slot, mask) in [(0, 0x01), (1, 0x80), (2, 0xff)] {
        let page = base.map_page(slot);
        let (refused, the_same) = base.flip(page.clone(), &[mask], |at| {
            let block = (at - page.start) / 16;
            let what = if at % 16 < 8 { "map entry of block" } else { "block" };
            format!("{what} {block}")
        });
        // A block that only the tier has is not read with another checksum. Redo has none.
        let (words, _) = base.image[page.start as usize..page.end as usize].as_chunks::<16>();
        let state = |slot: &&[u8; 16]| slot[4] >> 4 & 3;
        let dirty = words.iter().filter(|slot| state(slot) == 2).count() as u64;
        assert!(dirty > 0);
        let refused_sums = if slot == 2 { 0 } else { dirty * 8 };
        assert_eq!((refused, the_same), (2048 + refused_sums, 2048 - refused_sums), "slot {slot}");
    }
}

#[test]
fn flipped_bytes_in_the_records_of_a_tier_at_rest_cost_nothing() {
    let base = Base::new();
    let (refused, the_same) = base.flip(RECORDS.start..RECORDS.end, &[0xa5], |_| String::new());
    assert_eq!((refused, the_same), (0, RECORDS.end - RECORDS.start));
}

#[test]
fn any_bytes_of_metadata_changed_together_never_give_other_data() {
    let base = Base::new();
    let mut rng = fastrand::Rng::with_seed(place::seed());
    let mut places: Vec<u64> = (0..UNITS_AT).filter(|at| !(8192..12288).contains(at)).collect();
    places.extend((0..3).flat_map(|slot| base.map_page(slot)));
    let (mut refused, mut the_same) = (0, 0);
    for _ in 0..2000 {
        let mut image = base.image.clone();
        for _ in 0..rng.usize(1..12) {
            let at = places[rng.usize(..places.len())] as usize;
            // A word copied from elsewhere has a right checksum, in the wrong place.
            if rng.bool() {
                image[at] = rng.u8(..);
            } else {
                let from = places[rng.usize(..places.len())] as usize & !7;
                let word: [u8; 8] = image[from..from + 8].try_into().unwrap();
                image[at & !7..(at & !7) + 8].copy_from_slice(&word);
            }
        }
        match base.outcome(&image) {
            Ok(None) => the_same += 1,
            Ok(Some(_)) => refused += 1,
            Err(why) => panic!("{why}"),
        }
    }
    println!("2000 images with several changes: {refused} refused, {the_same} with the right data");
}

#[test]
fn an_image_cut_to_any_length_is_refused() {
    let base = Base::new();
    for len in (4096..SIZE).step_by(4096) {
        match base.outcome(&base.image[..len as usize]) {
            Ok(Some(message)) => {
                assert!(message.contains("/simulated/fast"), "{len} bytes: {message}")
            }
            other => panic!("{len} bytes: {other:?}"),
        }
    }
}

#[test]
fn zeros_or_noise_in_place_of_a_structure_are_refused() {
    let base = Base::new();
    let map = base.map_page(1);
    let places =
        [("the file table", SLOTS_AT..UNITS_AT), ("a slot", base.slot(0)), ("a map page", map)];
    for (what, range) in places {
        let len = (range.end - range.start) as usize;
        for filler in [vec![0; len], vec![0xff; len], place::pattern(8, 0, len)] {
            let mut image = base.image.clone();
            image[range.start as usize..range.end as usize].copy_from_slice(&filler);
            assert!(matches!(base.outcome(&image), Ok(Some(_))), "{what}");
        }
    }
    // A structure of the same tier in another place: right checksums, wrong place.
    let mut image = base.image.clone();
    let (one, two) = (base.map_page(0), base.map_page(1));
    image.copy_within(one.start as usize..one.end as usize, two.start as usize);
    assert!(matches!(base.outcome(&image), Ok(Some(_))));
    let mut image = base.image.clone();
    let (one, two) = (base.slot(0), base.slot(1));
    image.copy_within(one.start as usize..one.end as usize, two.start as usize);
    assert!(matches!(base.outcome(&image), Ok(Some(_))));
}
