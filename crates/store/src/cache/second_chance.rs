//! Second chance (Corbato's clock): a copy that was read since the search last passed it stays, once.
//!
//! What is read from home is admitted unless it is a scan of a large file, and as long as a sixteenth of the tier is free for writers.
//!
//! Differences from the textbook: the hand does not stand still where it found a victim but begins with another file each time; and when a
//! whole round spared too many, the second one spares none, for a writer is waiting.

use super::policy::{Policy, Read};
use crate::format::entry::PAGE_WORDS;
use crate::sync::atomic::{AtomicU64, Ordering};

/// A bit per block, set by reads and cleared by the search.
#[derive(Default)]
pub(crate) struct SecondChance {
    read: [AtomicU64; PAGE_WORDS as usize / 64],
}

impl Policy for SecondChance {
    const PASSES: u32 = 2;

    /// Looks before it writes, so that a hot block costs no shared store.
    #[inline]
    fn touched(&self, index: usize) {
        let (word, bit) = (&self.read[index / 64], 1 << (index % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    fn admitted(read: &Read) -> bool {
        (!read.is_scan || read.of_small_file) && read.free_frames > read.total_frames / 16
    }

    fn victim(&self, index: usize, pass: u32) -> bool {
        let (word, bit) = (&self.read[index / 64], 1 << (index % 64));
        let was_read =
            word.load(Ordering::Relaxed) & bit != 0 && word.fetch_and(!bit, Ordering::Relaxed) & bit != 0;
        !was_read || pass > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_was_read_is_spared_once_and_only_in_the_first_pass() {
        let policy = SecondChance::default();
        assert!(policy.victim(7, 0), "nobody has read it");
        policy.touched(7);
        assert!(policy.victim(71, 0), "another block was read");
        assert!(!policy.victim(7, 0), "it was read since the search passed");
        assert!(policy.victim(7, 0), "and not since");
        policy.touched(7);
        assert!(policy.victim(7, 1), "the second pass spares nobody");
        assert!(policy.victim(7, 0), "and takes the mark away");
    }

    #[test]
    fn scans_of_large_files_and_reads_in_a_full_tier_are_not_admitted() {
        let read = |is_scan, of_small_file, free_frames| Read {
            is_scan,
            of_small_file,
            free_frames,
            total_frames: 1600,
        };
        assert!(SecondChance::admitted(&read(false, false, 101)));
        assert!(SecondChance::admitted(&read(true, true, 101)));
        assert!(!SecondChance::admitted(&read(true, false, 1600)));
        assert!(!SecondChance::admitted(&read(false, true, 100)), "a sixteenth is the writers'");
    }
}
