//! The log alone on a simulated device: what each cut leaves of words and blocks, also with planted
//! bugs that a script of operations does not show.

use super::*;
use crate::medium::{BlockMedium, OnSectors};
use tiersmith_pmem::sim::{Simulator, Trace};

const LOG_AT: u64 = 32 << 10;
const LOG_LEN: u64 = 64 << 10;
/// A frame behind the log, and a word of metadata in front of it.
const FRAME_AT: u64 = LOG_AT + LOG_LEN;
const WORD_AT: u64 = LANES_AT;
const BYTES: u64 = FRAME_AT + (64 << 10);

fn place(planted: Planted) -> Place {
    Place { at: LOG_AT, len: LOG_LEN, tier_uuid: [5; 16], seed: 77, planted }
}

fn medium(device: tiersmith_pmem::sim::Device) -> OnSectors {
    let medium = OnSectors::with_log(Device::simulated(device), BYTES).unwrap();
    medium.meta.set_metadata_range(FRAME_AT);
    medium
}

/// A machine with an empty log.
fn blank() -> (Simulator, OnSectors) {
    let machine = Simulator::new();
    let medium = medium(machine.device(vec![0; BYTES as usize], 512));
    medium.log.as_ref().unwrap().begin_anew(place(Planted::None)).unwrap();
    machine.rebase();
    (machine, medium)
}

fn begin(medium: &OnSectors, planted: Planted) -> Result<()> {
    medium.meta.begin_log(place(planted))
}

fn word(medium: &OnSectors) -> u64 {
    let mut bytes = [0; 8];
    medium.meta.read_checked(WORD_AT, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

fn write(medium: &OnSectors, at: u64, fill: u8) {
    let _ = medium.write(at, &[fill; FRAME], 77).unwrap();
}

/// Whether `holds` of every image that a cut leaves, given how many marks there were before it.
fn at_every_cut(trace: &Trace, holds: impl Fn(&OnSectors, u64) -> bool) -> bool {
    let mut player = trace.player();
    let mut buffer = player.buffer();
    let mut all = true;
    for cut in trace.cut_points() {
        player.advance_to(cut);
        let marks = trace
            .events()
            .take(cut)
            .filter(|event| matches!(event, tiersmith_pmem::sim::Event::Mark(_)));
        let marks = marks.count() as u64;
        for choice in player.images(200, cut as u64) {
            let image = player.image(&choice, &mut buffer)[0].clone();
            let found = medium(Simulator::new().device(image, 512));
            all &= begin(&found, Planted::None).is_ok() && holds(&found, marks);
        }
    }
    all
}

/// A block in a frame of which the newest record has a checksum is written anew, and the power
/// goes.
fn what_was_acknowledged_survives_a_block_written_over(planted: Planted) -> bool {
    let (machine, medium) = blank();
    begin(&medium, planted).unwrap();
    assert!(medium.latch(FRAME_AT, FRAME));
    for n in 1..=4 {
        write(&medium, FRAME_AT, n as u8);
        medium.meta.store_word(WORD_AT, n);
        medium.sync().unwrap();
        machine.mark(n);
        // Nobody was told of this one.
        write(&medium, FRAME_AT, 0x80 | n as u8);
    }
    at_every_cut(&machine.trace(), |found, marks| word(found) >= marks)
}

/// A frame that held a map page becomes a block's, and the log is replayed and checkpointed.
fn a_block_survives_the_map_page_that_was_in_its_frame(planted: Planted) -> bool {
    let (machine, medium) = blank();
    begin(&medium, planted).unwrap();
    assert!(medium.latch(FRAME_AT, FRAME));
    medium.meta.write_meta(FRAME_AT, &[1; FRAME]);
    medium.meta.store_word(WORD_AT, 1);
    medium.sync().unwrap();
    machine.mark(1);
    write(&medium, FRAME_AT, 2);
    medium.meta.store_word(WORD_AT, 2);
    medium.sync().unwrap();
    machine.mark(2);
    at_every_cut(&machine.trace(), |found, marks| {
        let log = found.log.as_ref().unwrap();
        log.checkpoint(found.meta.mapping()).unwrap();
        let mut block = [0; FRAME];
        found.read(FRAME_AT, &mut block).unwrap();
        word(found) >= marks && (word(found) < 2 || block == [2; FRAME])
    })
}

#[test]
fn a_record_counts_whatever_is_written_over_its_blocks_afterwards() {
    assert!(what_was_acknowledged_survives_a_block_written_over(Planted::None));
    assert!(!what_was_acknowledged_survives_a_block_written_over(Planted::LogBlockRewritten));
}

#[test]
fn a_map_page_never_comes_back_over_a_block() {
    assert!(a_block_survives_the_map_page_that_was_in_its_frame(Planted::None));
    assert!(!a_block_survives_the_map_page_that_was_in_its_frame(Planted::LogPageOverBlock));
}

/// Who gave a block up gives its frame back at once, so nothing but this keeps the frame as the
/// newest durable record has it.
#[test]
fn a_block_of_the_newest_durable_record_is_not_written_over_while_the_next_record_is_on_its_way() {
    let (_machine, medium) = blank();
    begin(&medium, Planted::None).unwrap();
    assert!(medium.latch(FRAME_AT, FRAME));
    write(&medium, FRAME_AT, 1);
    medium.meta.store_word(WORD_AT, 1);
    medium.sync().unwrap();
    medium.meta.store_word(WORD_AT, 2);
    let log = medium.log.as_ref().unwrap();
    let turn = log.turn(|| false).unwrap();
    let next = log.compose(medium.meta.mapping(), &turn, false, false).unwrap();
    std::thread::scope(|scope| {
        let over = scope.spawn(|| write(&medium, FRAME_AT, 2));
        std::thread::sleep(std::time::Duration::from_millis(200));
        let waits = !over.is_finished();
        log.write_commit(&next, turn, None).unwrap();
        over.join().unwrap();
        assert!(waits, "a cut now costs the record of an acknowledged sync");
    });
}

#[test]
fn who_waits_for_a_commit_returns_when_it_is_durable_and_not_after_the_next_one() {
    let (_machine, medium) = blank();
    begin(&medium, Planted::None).unwrap();
    let log = medium.log.as_ref().unwrap();
    let turn = log.turn(|| false).unwrap();
    std::thread::scope(|scope| {
        medium.meta.store_word(WORD_AT, 1);
        let waits = scope.spawn(|| medium.sync());
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(!waits.is_finished(), "nobody has written anything");
        let composed = log.compose(medium.meta.mapping(), &turn, false, false).unwrap();
        log.write_commit(&composed, turn, None).unwrap();
        let next = log.turn(|| false).unwrap();
        for _ in 0..500 {
            if waits.is_finished() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let returned = waits.is_finished();
        drop(next);
        waits.join().unwrap().unwrap();
        assert!(returned, "what was durable waited for somebody else's commit");
    });
}

#[test]
fn a_commit_of_more_blocks_than_a_record_has_room_for_is_done_in_parts() {
    const FRAMES: u64 = 4096;
    let bytes = FRAME_AT + FRAMES * FRAME as u64;
    let device = Simulator::new().device(vec![0; bytes as usize], 512);
    let medium = OnSectors::with_log(Device::simulated(device), bytes).unwrap();
    medium.meta.set_metadata_range(FRAME_AT);
    medium.log.as_ref().unwrap().begin_anew(place(Planted::None)).unwrap();
    begin(&medium, Planted::None).unwrap();
    for n in 0..FRAMES {
        let at = FRAME_AT + n * FRAME as u64;
        assert!(medium.latch(at, FRAME));
        write(&medium, at, n as u8);
    }
    medium.meta.store_word(WORD_AT, 1);
    medium.sync().unwrap();
}

#[test]
fn a_record_that_says_it_is_longer_than_any_address_does_not_count() {
    let device = Simulator::new().device(vec![0; BYTES as usize], 512);
    let first = medium(device.clone());
    first.log.as_ref().unwrap().begin_anew(place(Planted::None)).unwrap();
    begin(&first, Planted::None).unwrap();
    first.meta.store_word(WORD_AT, 1);
    first.sync().unwrap();
    let mut sector = [0; 512];
    sector[..8].copy_from_slice(b"TSLOGREC");
    sector[16..24].copy_from_slice(&512_u64.to_le_bytes());
    sector[24..32].copy_from_slice(&(u64::MAX - 511).to_le_bytes());
    device.write(LOG_AT + RING_AT + 512, &sector).unwrap();
    let again = medium(device);
    begin(&again, Planted::None).unwrap();
    assert_eq!(word(&again), 1);
}

#[test]
fn words_stored_by_many_threads_are_durable_when_their_fence_returns_and_the_ring_laps() {
    let device = Simulator::new().device(vec![0; BYTES as usize], 512);
    let first = medium(device.clone());
    first.log.as_ref().unwrap().begin_anew(place(Planted::None)).unwrap();
    begin(&first, Planted::None).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let meta = &first.meta;
            scope.spawn(move || {
                for n in 0..400_u64 {
                    let at = WORD_AT + (thread * 16 + n % 16) * 64;
                    meta.store_word(at, thread << 32 | n);
                    meta.fence();
                }
            });
        }
    });
    first.log.as_ref().unwrap().check().unwrap();
    drop(first);
    let again = medium(device);
    begin(&again, Planted::None).unwrap();
    for thread in 0..4 {
        for slot in 0..16 {
            let mut bytes = [0; 8];
            again.meta.read_checked(WORD_AT + (thread * 16 + slot) * 64, &mut bytes).unwrap();
            assert_eq!(u64::from_le_bytes(bytes), thread << 32 | (384 + slot));
        }
    }
}

#[test]
fn a_record_with_a_block_larger_than_any_does_not_count() {
    for (len, counts) in [(BLOCK_MOST as usize, true), (BLOCK_MOST as usize + FRAME, false)] {
        let device = Simulator::new().device(vec![0; BYTES as usize], 512);
        let first = medium(device.clone());
        first.log.as_ref().unwrap().begin_anew(place(Planted::None)).unwrap();
        begin(&first, Planted::None).unwrap();
        assert!(first.latch(FRAME_AT, len));
        let _ = first.write(FRAME_AT, &vec![7; len], 77).unwrap();
        first.meta.store_word(WORD_AT, 1);
        first.sync().unwrap();
        let again = medium(device);
        begin(&again, Planted::None).unwrap();
        assert_eq!(word(&again), u64::from(counts), "{len} bytes");
    }
}
