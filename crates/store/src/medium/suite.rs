//! What the store relies on of a medium of any kind, asked of one of each ([`Backing::after`]).
//!
//! **Deliberately absent**: what a power cut leaves, for which a medium has to be simulated
//! (`tests/it/crash_suite`); what a device does that fails (`tests/it/on_sectors.rs`).

use super::log::Place;
use super::{Backing, BlockMedium, Durability, Ticket, Use, hash_bytes};
use crate::address::FRAME;
use crate::planted::Planted;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Where metadata ends and frames for blocks begin.
pub(super) const FIRST: u64 = 96 << 10;
/// Bytes that a medium has at first, and may have.
pub(super) const LEN: u64 = FIRST + 16 * FRAME as u64;
pub(super) const MAX_LEN: u64 = 2 * LEN;
const SEED: u64 = 77;
/// Of those that have one, in front of the frames.
pub(super) const LOG: Place = Place {
    at: 32 << 10,
    len: FIRST - (32 << 10),
    tier_uuid: [5; 16],
    seed: SEED,
    planted: Planted::None,
};

/// Asks each kind of medium, new.
fn of_each(ask: impl Fn(&Backing)) {
    let mut next = Backing::after(None);
    while let Some(medium) = next {
        medium.mapped().set_metadata_range(FIRST);
        ask(&medium);
        next = Backing::after(Some(&medium));
    }
}

fn at(frame: u64) -> u64 {
    FIRST + frame * FRAME as u64
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 251) as u8 ^ seed).collect()
}

/// What each way of reading has of these bytes, which must be the same.
fn read(medium: &Backing, at: u64, len: usize) -> Vec<u8> {
    let (mut plain, mut checked, mut afresh) = (vec![0xee; len], vec![0xdd; len], vec![0xcc; len]);
    medium.read(at, &mut plain).unwrap();
    medium.read_checked(at, &mut checked).unwrap();
    medium.sync().unwrap();
    medium.read_afresh(at, &mut afresh).unwrap();
    assert!(plain == checked && plain == afresh, "{}", medium.report());
    plain
}

fn wait(medium: &Backing, ticket: Ticket) {
    medium.wait(ticket).unwrap();
}

#[test]
fn what_was_written_is_read_and_nothing_beside_it_has_changed() {
    of_each(|medium| {
        for blocks in [1, 2] {
            let len = blocks * FRAME;
            assert!(medium.latch(at(0), 6 * FRAME));
            wait(medium, medium.zero(at(0), 6 * FRAME).unwrap());
            let block = pattern(blocks as u8, len);
            let written = medium.write(at(2), &block, SEED).unwrap();
            assert_eq!(written.checksum, hash_bytes(&block, SEED), "{}", medium.report());
            assert!(read(medium, at(2), len) == block, "{}", medium.report());
            wait(medium, written.ticket);
            assert!(read(medium, at(2), len) == block, "{}", medium.report());
            assert_eq!(read(medium, at(0), 2 * FRAME), vec![0; 2 * FRAME]);
            let behind = at(2) + len as u64;
            assert_eq!(read(medium, behind, FRAME), vec![0; FRAME], "{}", medium.report());
            medium.unlatch(at(0), 6 * FRAME);
        }
    });
}

#[test]
fn a_part_of_a_block_is_any_bytes_and_changes_no_others() {
    of_each(|medium| {
        assert!(medium.latch(at(0), 2 * FRAME));
        let mut expected = pattern(3, 2 * FRAME);
        wait(medium, medium.write(at(0), &expected, SEED).unwrap().ticket);
        let frame = FRAME;
        for (n, (from, len)) in
            [(0, 1), (7, 1), (1, 510), (511, 2), (512, 512), (frame - 3, 9), (5, 0), (0, frame)]
                .into_iter()
                .enumerate()
        {
            let part = pattern(0x50 + n as u8, len);
            wait(medium, medium.write_part(at(0) + from as u64, &part).unwrap());
            expected[from..from + len].copy_from_slice(&part);
            assert!(read(medium, at(0), 2 * FRAME) == expected, "{from}, {len} bytes");
        }
        let (from, len) = (FRAME - 64, 192);
        wait(medium, medium.zero(at(0) + from as u64, len).unwrap());
        expected[from..from + len].fill(0);
        assert!(read(medium, at(0), 2 * FRAME) == expected, "{}", medium.report());
        for (from, len) in [(1, 1), (511, 2), (FRAME - 1, FRAME)] {
            assert!(read(medium, at(0) + from as u64, len) == expected[from..from + len]);
        }
        medium.unlatch(at(0), 2 * FRAME);
    });
}

#[test]
fn a_frame_is_pinned_or_latched_and_never_both() {
    of_each(|medium| {
        let pin = medium.pin(at(1), FRAME).unwrap();
        let again = medium.pin(at(1), FRAME).unwrap();
        assert!(!medium.latch(at(0), 2 * FRAME), "one of two is pinned");
        assert!(!medium.is_latched(at(0), FRAME), "a latch that fails changes nothing");
        drop(pin);
        assert!(!medium.latch(at(1), FRAME), "there is another pin");
        drop(again);
        assert_eq!(medium.prepare(at(0), 2 * FRAME), Use::Free);
        assert!(medium.latch(at(0), 2 * FRAME));
        assert!(medium.is_latched(at(0), 2 * FRAME) && !medium.is_latched(at(2), FRAME));
        assert_eq!(medium.prepare(at(0), 2 * FRAME), Use::Claimed);
        assert!(!medium.latch(at(1), FRAME) && medium.pin(at(1), FRAME).is_none());
        medium.prepare_fresh(at(0), 2 * FRAME);
        medium.unlatch(at(0), 2 * FRAME);
        assert!(!medium.is_latched(at(0), FRAME) && medium.pin(at(1), FRAME).is_some());
    });
}

#[test]
fn who_writes_without_the_latch_has_a_bug_and_is_told() {
    type Write = fn(&Backing) -> bool;
    let writes: [Write; 3] = [
        |medium| medium.write(at(0), &[1; FRAME], SEED).is_ok(),
        |medium| medium.write_part(at(0) + 9, &[1]).is_ok(),
        |medium| medium.zero(at(0) + 9, 64).is_ok(),
    ];
    of_each(|medium| {
        assert!(medium.latch(at(1), FRAME), "the latch of another frame is no help");
        for write in writes {
            let written = catch_unwind(AssertUnwindSafe(|| write(medium)));
            assert!(written.is_err(), "{}", medium.report());
        }
    });
}

#[test]
fn a_medium_that_grew_keeps_what_it_had_and_has_zeros_behind_it() {
    of_each(|medium| {
        assert!(medium.len() == LEN && medium.max_len() >= MAX_LEN, "{}", medium.report());
        let last = LEN - FRAME as u64;
        assert!(medium.latch(last, FRAME));
        let block = pattern(9, FRAME);
        wait(medium, medium.write(last, &block, SEED).unwrap().ticket);
        medium.grow(MAX_LEN).unwrap();
        assert_eq!(medium.len(), MAX_LEN);
        assert!(read(medium, last, FRAME) == block, "{}", medium.report());
        assert_eq!(read(medium, LEN, 2 * FRAME), vec![0; 2 * FRAME], "{}", medium.report());
        let end = MAX_LEN - FRAME as u64;
        assert!(medium.latch(end, FRAME));
        wait(medium, medium.write(end, &block, SEED).unwrap().ticket);
        assert!(read(medium, end, FRAME) == block, "{}", medium.report());
    });
}

/// The store keeps the only copy of a block by what the least durable part says.
#[test]
fn no_medium_promises_more_than_the_memory_of_its_metadata() {
    of_each(|medium| {
        let both = medium.durability().and(medium.mapped().durability());
        assert_eq!(both, medium.durability(), "{}", medium.report());
        let on_return = medium.durability() == Durability::OnReturn;
        assert!(!on_return || medium.memory().is_some(), "{}", medium.report());
        assert!(!medium.report().is_empty());
    });
}
