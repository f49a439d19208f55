//! Taking a device over, cut at every step.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::cell::RefCell;

use super::*;

const MARK: &[u8; 8] = b"A MARK__";
const LEN: usize = (8 << 20) + 3 * 512;

enum Op {
    Write(u64, Vec<u8>),
    Sync,
}

/// What taking over does to a device of so many bytes.
fn ops(len: usize) -> Vec<Op> {
    let ops = RefCell::new(Vec::new());
    let write = |at: u64, bytes: &[u8]| {
        ops.borrow_mut().push(Op::Write(at, bytes.to_vec()));
        Ok(())
    };
    let sync = || {
        ops.borrow_mut().push(Op::Sync);
        Ok(())
    };
    clear(&write, &sync, len as u64, MARK).unwrap();
    ops.into_inner()
}

/// What is found: `None` when nothing, or only the mark.
fn found(image: &[u8]) -> Option<Foreign> {
    let read = |at: u64, into: &mut [u8]| {
        into.copy_from_slice(&image[at as usize..][..into.len()]);
        Ok(())
    };
    let len = image.len() as u64;
    match signatures::find(&read, len, &[]).unwrap() {
        Some(mark) => Some(mark.into()),
        None => data(&read, len, !image.starts_with(MARK)).unwrap(),
    }
}

/// A cut leaves it refused, or with nothing; and the mark is never beside something of somebody
/// else's.
fn assert_safe(image: &[u8], what: &str) {
    let edges = || image[..FRONT as usize].iter().chain(&image[image.len() - TAIL as usize..]);
    if image.starts_with(MARK) {
        let rest = edges().skip(MARK.len()).position(|byte| *byte != 0);
        assert_eq!((found(image), rest), (None, None), "{what}: the mark beside what was there");
    } else if found(image).is_none() {
        let first = image[..TAIL as usize].iter().chain(&image[image.len() - TAIL as usize..]);
        assert!(first.into_iter().all(|byte| *byte == 0), "{what}: data is taken for nothing");
    }
}

/// An image with every mark that fits, and data between them.
fn full() -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(18);
    let mut image: Vec<u8> = (0..LEN).map(|_| random.u8(..)).collect();
    for (at, mark) in signatures::places(LEN as u64) {
        image[at as usize..][..mark.len()].copy_from_slice(mark);
    }
    image
}

#[test]
fn a_cut_while_a_device_is_taken_over_leaves_it_refused_or_marked_and_nothing_between() {
    let ops = ops(LEN);
    let mut random = fastrand::Rng::with_seed(7);
    let mut synced = full();
    let mut pending: Vec<&Op> = Vec::new();
    for (n, op) in ops.iter().enumerate() {
        match op {
            Op::Sync => {
                for op in pending.drain(..) {
                    let Op::Write(at, bytes) = op else { unreachable!() };
                    synced[*at as usize..][..bytes.len()].copy_from_slice(bytes);
                }
            }
            Op::Write(..) => pending.push(op),
        }
        // Any sectors of what was not synced arrived.
        for share in [0, 1, 50, 99, 100] {
            let mut image = synced.clone();
            for op in &pending {
                let Op::Write(at, bytes) = op else { unreachable!() };
                for (n, sector) in bytes.chunks(512).enumerate() {
                    if random.u8(0..100) < share {
                        image[*at as usize + n * 512..][..sector.len()].copy_from_slice(sector);
                    }
                }
            }
            assert_safe(&image, &format!("after call {n}, {share} % of what was not synced"));
        }
    }
    assert!(pending.is_empty(), "what is written last is not synced");
    assert!(synced.starts_with(MARK) && found(&synced).is_none());
}

#[test]
fn taking_over_takes_away_every_mark_and_a_cut_after_any_call_keeps_the_refusal() {
    // So long that every mark fits.
    let mut image = vec![0; 80 << 20];
    let len = image.len();
    let places = signatures::places(len as u64);
    assert!(MIDDLE.iter().all(|m| places.iter().any(|(at, _)| (*m..m + BLOCK).contains(at))));
    let ops = ops(len);
    for (at, mark) in places {
        let place = at as usize..at as usize + mark.len();
        image[place.clone()].copy_from_slice(mark);
        assert!(found(&image).is_some_and(|found| found.mark.is_some()), "{at}");
        for op in &ops {
            if let Op::Write(at, bytes) = op {
                image[*at as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            assert_safe(&image, &format!("the mark at {at}"));
        }
        assert!(image.starts_with(MARK) && found(&image).is_none(), "{at}");
        image[place].fill(0);
        image[..MARK.len()].fill(0);
    }
}

#[test]
fn a_file_system_whose_partition_table_is_lost_is_found() {
    let mut image = vec![0; 16 << 20];
    image[(1 << 20) + 0x438..][..2].copy_from_slice(b"\x53\xef");
    let seen = found(&image).unwrap();
    assert!(seen.what.contains("ext4") && seen.mark.unwrap().start == (1 << 20) + 0x438);
    // In the second of two partitions, where no table looks.
    image.fill(0);
    image[9 << 20..10 << 20].fill(7);
    assert!(found(&image).unwrap().what.contains("data of a kind"));
    // Where a tier was, only what is behind it must be zeros.
    image[..MARK.len()].copy_from_slice(MARK);
    assert_eq!(found(&image), None);
    image[15 << 20] = 1;
    assert!(found(&image).unwrap().what.contains("byte 15728640 "));
}

#[test]
fn taking_over_writes_nothing_but_both_ends_and_the_places_of_marks() {
    for len in [LEN, 100 << 20] {
        let writes = ops(len).into_iter().filter_map(|op| match op {
            Op::Write(at, bytes) => Some(at..at + bytes.len() as u64),
            Op::Sync => None,
        });
        for range in writes {
            let front = range.end <= FRONT;
            let tail = range.start >= (len as u64 - TAIL) / BLOCK * BLOCK;
            let middle = MIDDLE.contains(&range.start) && range.end - range.start == BLOCK;
            assert!(front || tail || middle, "{range:?}");
            assert!(range.end <= len as u64, "{range:?}");
        }
    }
}
