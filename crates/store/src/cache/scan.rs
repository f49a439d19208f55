//! Scans: who reads home from one block to the next, further than a tier should remember.
//!
//! A scan is read once and is often larger than the tier: admitted, it would evict what is read
//! again, and cost two copies more of every block. So it is told from other reads by where they
//! begin, a few of them at a time for each file, and home is told what will be read next. A file
//! that is small beside the tier is admitted all the same.
//!
//! Deliberately absent: any memory of scans that ended, and reading backwards. A scan whose blocks
//! are in the tier already is not seen here, and goes on hitting them.

use crate::sync::Mutex;
use std::ops::Range;

/// Blocks of one run that are admitted; what reads on is a scan.
pub(crate) const ADMIT_BLOCKS_MAX: u64 = 16;
/// Scans of one file that are told apart.
const STREAMS: usize = 4;
/// Blocks from the end of the last read within which the next one of a run begins, at least: an
/// inner page of an index may be between its leaves, or some blocks that are in the tier. Of long
/// reads several may be under way at a time, and come in any order.
const GAP: u64 = 8;
/// A read of so many blocks is a long one.
const LONG: u64 = 4;
/// Bytes that home is asked for ahead of a scan, and what is left of them when it is asked again.
const AHEAD_BYTES: u64 = 2 << 20;
const AGAIN_BYTES: u64 = 1 << 20;

/// The runs of reads of one file that missed the tier.
#[derive(Debug, Default)]
pub(crate) struct Scans {
    streams: Mutex<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    each: [Stream; STREAMS],
    reads: u64,
}

/// All but `last` in bytes.
#[derive(Debug, Default, Clone, Copy)]
struct Stream {
    /// Where the read that went furthest ended.
    end: u64,
    /// What was read, each byte counted once.
    run: u64,
    /// Home was asked for what is before this.
    asked: u64,
    /// When it was last read, in reads.
    last: u64,
}

/// What a read from home is part of.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// It is too long a run to be admitted, unless the file is small.
    pub(crate) scan: bool,
    /// Bytes that home should get ready.
    pub(crate) ahead: Option<Range<u64>>,
}

impl Scans {
    /// Notes a read of `len` bytes at `offset`, in a file of blocks of so many bytes.
    pub(crate) fn read(&self, offset: u64, len: u64, block_bytes: u64) -> Seen {
        let mut streams = self.streams.lock();
        streams.reads += 1;
        let now = streams.reads;
        let gap = (GAP * block_bytes).max(4 * len);
        let goes_on = |s: &&mut Stream| s.run > 0 && s.end.abs_diff(offset) <= gap;
        let to = offset + len;
        let (stream, new) = match streams.each.iter_mut().find(goes_on) {
            Some(stream) => {
                let new = to.saturating_sub(stream.end.max(offset));
                (stream, new)
            }
            None => {
                let Some(oldest) = streams.each.iter_mut().min_by_key(|s| s.last) else {
                    return Seen { scan: false, ahead: None };
                };
                *oldest = Stream::default();
                (oldest, len)
            }
        };
        stream.run += new;
        stream.end = stream.end.max(to);
        stream.last = now;
        // What is read again is no scan, but for a long read that others have overtaken.
        let goes_further = new > 0 || len >= LONG * block_bytes;
        let scan = stream.run > ADMIT_BLOCKS_MAX * block_bytes && goes_further;
        let at = stream.end;
        let ahead = (scan && stream.asked < at + AGAIN_BYTES).then(|| {
            let from = stream.asked.max(at);
            stream.asked = at + AHEAD_BYTES;
            from..stream.asked
        });
        Seen { scan, ahead }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_scan(scans: &Scans, first: u64, count: u64) -> bool {
        scans.read(first * 4096, count * 4096, 4096).scan
    }

    #[test]
    fn the_seventeenth_block_of_a_run_is_a_scan_also_with_gaps_and_in_parts() {
        let scans = Scans::default();
        for half in 0..32 {
            assert!(!scans.read(half * 2048, 2048, 4096).scan, "half {half}");
        }
        assert!(is_scan(&scans, 16, 1));
        assert!(!is_scan(&scans, 14, 1), "it is read again");
        assert!(is_scan(&scans, 17 + GAP, 1));
        assert!(!is_scan(&scans, 18 + 2 * GAP + 1, 1), "too far away to be the same run");
        assert!(is_scan(&scans, 1000, 17), "one long read");
    }

    #[test]
    fn long_reads_in_any_order_are_one_scan_and_a_few_blocks_read_again_are_none() {
        let scans = Scans::default();
        assert!(!is_scan(&scans, 0, 16));
        for first in [32, 16, 64, 48] {
            assert!(is_scan(&scans, first, 16), "{first}");
        }
        for n in 0..100 {
            assert!(!is_scan(&scans, 1000 + n % 5, 1));
        }
    }

    #[test]
    fn scans_side_by_side_are_told_apart_and_points_are_none() {
        let scans = Scans::default();
        for n in 0..100 {
            for stream in 0..STREAMS as u64 - 1 {
                assert_eq!(is_scan(&scans, stream * 100_000 + n, 1), n >= 16);
            }
            assert!(!is_scan(&scans, 1_000_000 + n * 7919, 1));
        }
    }

    #[test]
    fn home_is_asked_once_for_each_part_of_what_comes() {
        let scans = Scans::default();
        let mut ready = 0;
        for block in 0..4096_u64 {
            if let Some(ahead) = scans.read(block * 4096, 4096, 4096).ahead {
                assert!(ahead.start >= ready && ahead.end > ahead.start, "{ahead:?} after {ready}");
                assert!(
                    ready == 0 || ahead.start == ready,
                    "{ahead:?} leaves a hole after {ready}"
                );
                ready = ahead.end;
            }
            assert!(block <= 16 || ready > (block + 1) * 4096, "block {block}");
        }
    }
}
