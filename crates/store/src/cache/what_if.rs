//! What the tier would hit, and what would be written to it, if it were a quarter, half, twice or
//! four times as large: the policy in use, played in miniature while the home runs.
//!
//! Of the blocks one in so many is followed, chosen by a hash (Waldspurger and others, SHARDS,
//! 2015); tiers of as many times less frames are modelled for them, each with a [`Policy`] of its
//! own and the marks of `mover/keep.rs`. A miniature holds keys and no data. At most
//! [`FRAMES_MOST`] frames are modelled of the largest, so that all of them take less than 4 MiB
//! however large the tier is, and so few requests are followed that a read does not feel it.
//!
//! Of a request that comes while another is played, nothing is remembered but that it was: nobody
//! waits here.
//!
//! **Deliberately absent**: redo, pins and rules `keep`, which take their part of a tier whatever
//! its size; and a scan that the real tier hits, which a smaller one would not take for one.

use super::policy::{Chosen, Policy, Read};
use crate::address::{BlockIndex, FRAME};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

/// The sizes that are modelled, in quarters of the tier's own.
pub(crate) const QUARTERS: [u64; 5] = [1, 2, 4, 8, 16];
/// Frames of the largest miniature.
pub(crate) const FRAMES_MOST: u64 = 1 << 14;
/// Frames that the smallest miniature has at least: a few blocks say nothing.
const FRAMES_LEAST: u64 = 128;

/// A block that somebody asked for.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    /// The number of its file, and its own.
    pub(crate) file: u64,
    pub(crate) block: BlockIndex,
    /// Its length.
    pub(crate) frames: u64,
}

/// How it was asked for.
#[derive(Clone, Copy)]
pub(crate) enum How {
    /// It was read from the tier.
    Hit,
    /// It was read from home.
    Miss {
        /// As part of a scan.
        is_scan: bool,
        /// Frames of its file.
        file_frames: u64,
        /// Clean copies are made of the file's blocks.
        admits: bool,
    },
    /// It was written to the tier.
    Write,
}

/// One point of the curves.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct WhatIfPoint {
    /// Bytes that blocks and map pages could use.
    pub bytes: u64,
    /// Of the blocks that were read, those that would have been read from the tier; absent before
    /// the first that is followed.
    pub hit_ratio: Option<f64>,
    /// Bytes that would have been written to the tier, of programs and clean copies.
    pub bytes_written: f64,
}

/// What is modelled of a tier.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WhatIf {
    /// One of so many blocks is followed.
    pub one_in: u64,
    /// Reads that were followed.
    pub reads: u64,
    /// Requests that would have been followed, and came while another was played.
    pub passed_over: u64,
    /// For a quarter, half, once, twice and four times the tier.
    pub points: Vec<WhatIfPoint>,
}

/// The miniatures of a tier.
pub(crate) struct Miniatures {
    one_in: u64,
    /// Blocks with a smaller hash are followed.
    below: u64,
    /// The tier's own frames.
    frames: u64,
    /// The block that was read from home last: its next part is no other request.
    latest: AtomicU64,
    /// Next parts of blocks.
    parts: AtomicU64,
    passed_over: AtomicU64,
    /// Empty where the tier is too small for the sample to say anything.
    each: Mutex<Vec<Miniature>>,
}

struct Miniature {
    total: u64,
    used: u64,
    held: BTreeMap<(u64, u64), Held>,
    /// The last block that the search looked at.
    hand: (u64, u64),
    of_tier: <Chosen as Policy>::OfTier,
    hits: u64,
    reads: u64,
    frames_written: u64,
}

#[derive(Default)]
struct Held {
    policy: Chosen,
    frames: u64,
}

impl Miniatures {
    /// For a tier of so many frames, with one block followed of at least `one_in`.
    pub(crate) fn of_tier(frames: u64, one_in: u64) -> Self {
        let most = frames * QUARTERS[QUARTERS.len() - 1] / 4;
        let one_in = one_in.max(most.div_ceil(FRAMES_MOST)).max(1);
        let each = QUARTERS.map(|quarters| Miniature::of(frames * quarters / 4 / one_in));
        let is_large = each[0].total >= FRAMES_LEAST;
        Self {
            one_in,
            below: if is_large { u64::MAX / one_in } else { 0 },
            frames,
            latest: AtomicU64::new(0),
            parts: AtomicU64::new(0),
            passed_over: AtomicU64::new(0),
            each: Mutex::new(if is_large { each.into() } else { Vec::new() }),
        }
    }

    /// A block was asked for. On the way of every read and write: most of them end after a
    /// hash.
    #[inline]
    pub(crate) fn saw(&self, asked: Asked, how: How) {
        if self.below == 0 {
            return;
        }
        let key = mixed(asked.file.rotate_left(32) ^ asked.block.0);
        if let How::Miss { .. } = how
            && self.latest.swap(key, Ordering::Relaxed) == key
        {
            let _ = self.parts.fetch_add(1, Ordering::Relaxed);
        } else if key <= self.below {
            self.follow(asked, how);
        }
    }

    #[cold]
    fn follow(&self, asked: Asked, how: How) {
        match self.each.try_lock() {
            Some(mut each) => each.iter_mut().for_each(|one| one.play(asked, how, self.one_in)),
            None => {
                let _ = self.passed_over.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The curves since the attach, in which `all` blocks were read; `None` where the tier is too
    /// small.
    ///
    /// A few blocks have many of the requests, and hit at every size: of those that are followed
    /// there may be too many or too few. How many is known, so they are taken off or added.
    pub(crate) fn read(&self, all: u64) -> Option<WhatIf> {
        let each = self.each.lock();
        let reads = each.first()?.reads;
        let parts = self.parts.load(Ordering::Relaxed);
        let expected = (all.saturating_sub(parts) as f64 / self.one_in as f64).max(1.0);
        let ratio =
            |hits: u64| ((hits as f64 + expected - reads as f64) / expected).clamp(0.0, 1.0);
        let point = |(one, quarters): (&Miniature, u64)| WhatIfPoint {
            bytes: self.frames * quarters / 4 * FRAME as u64,
            hit_ratio: (reads > 0).then(|| ratio(one.hits)),
            bytes_written: (one.frames_written * self.one_in * FRAME as u64) as f64,
        };
        Some(WhatIf {
            one_in: self.one_in,
            reads,
            passed_over: self.passed_over.load(Ordering::Relaxed),
            points: each.iter().zip(QUARTERS).map(point).collect(),
        })
    }
}

/// Another hash than the policies': what is followed must not be alike to them.
#[inline]
fn mixed(value: u64) -> u64 {
    let value = (value ^ value >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let value = (value ^ value >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    value ^ value >> 32
}

impl Miniature {
    fn of(total: u64) -> Self {
        Self {
            total,
            used: 0,
            held: BTreeMap::new(),
            hand: (0, 0),
            of_tier: Chosen::of_tier(total),
            hits: 0,
            reads: 0,
            frames_written: 0,
        }
    }

    fn play(&mut self, asked: Asked, how: How, one_in: u64) {
        let is_held = self.held.get(&(asked.file, asked.block.0));
        if let How::Write = how {
            self.frames_written += asked.frames;
            if is_held.is_none() {
                self.insert(asked);
            }
            return;
        }
        self.reads += 1;
        if let Some(held) = is_held {
            self.hits += 1;
            held.policy.touched(0);
            return;
        }
        let (is_scan, file_frames, admits) = match how {
            How::Miss { is_scan, file_frames, admits } => (is_scan, file_frames, admits),
            // The real tier has it, so it takes such blocks.
            How::Hit | How::Write => (false, u64::MAX, true),
        };
        let read = Read {
            file: asked.file,
            block: asked.block,
            is_scan,
            of_small_file: file_frames / one_in <= self.total / 16,
            free_frames: self.total.saturating_sub(self.used),
            total_frames: self.total,
        };
        Chosen::another(&self.of_tier);
        if admits && Chosen::admitted(&self.of_tier, &read).is_ok() {
            self.frames_written += asked.frames;
            self.insert(asked);
        }
    }

    /// Puts a block into it, and keeps a quarter free.
    fn insert(&mut self, asked: Asked) {
        let held = Held { frames: asked.frames, ..Held::default() };
        let _ = self.held.insert((asked.file, asked.block.0), held);
        self.used += asked.frames;
        let free = self.total.saturating_sub(self.used);
        if free < self.total / 4 {
            self.evict(self.total / 4 - free);
        }
    }

    /// Takes `want` victims, by the policy, in the order of blocks from where the last search
    /// ended.
    fn evict(&mut self, want: u64) {
        let copies = self.held.len() as u64;
        let (mut evicted, mut looked) = (0, 0);
        'search: for pass in 0..Chosen::PASSES {
            for _ in 0..self.held.len() {
                let after = self.held.range((Excluded(self.hand), Unbounded)).next();
                let Some((key, held)) = after.or_else(|| self.held.first_key_value()) else {
                    break 'search;
                };
                self.hand = *key;
                looked += 1;
                if held.policy.victim(0, pass) {
                    self.used -= held.frames;
                    let _ = self.held.remove(&self.hand);
                    evicted += 1;
                    if evicted >= want {
                        break 'search;
                    }
                }
            }
        }
        if looked > 0 {
            Chosen::searched(&self.of_tier, looked, copies);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(block: u64) -> Asked {
        Asked { file: 1, block: BlockIndex(block), frames: 2 }
    }

    const MISS: How = How::Miss { is_scan: false, file_frames: 1 << 20, admits: true };

    #[test]
    fn what_fits_in_a_size_hits_there_and_in_all_larger_ones() {
        // 1024 frames, of which blocks have three quarters: 96, 192, 384, 768 and 1536 blocks.
        let all = Miniatures::of_tier(1024, 1);
        for _ in 0..40 {
            (0..300).for_each(|block| all.saw(asked(block * 7919 % 300), MISS));
        }
        let points = all.read(12_000).unwrap().points;
        let ratios: Vec<f64> = points.iter().map(|point| point.hit_ratio.unwrap()).collect();
        assert!(ratios[2] > 0.95 && ratios[3] > 0.95 && ratios[4] > 0.95, "{ratios:?}");
        assert!(ratios[0] < 0.5 && ratios[0] <= ratios[1] && ratios[1] < 0.9, "{ratios:?}");
        assert_eq!(points[2].bytes_written, 300.0 * 8192.0, "each once");
        let bytes: Vec<u64> = points.iter().map(|point| point.bytes).collect();
        assert_eq!(bytes, [1, 2, 4, 8, 16].map(|quarters| quarters << 20));
    }

    #[test]
    fn however_large_the_tier_is_the_miniatures_are_small_and_small_tiers_have_none() {
        let all = Miniatures::of_tier(1 << 30, 1);
        assert_eq!(all.one_in, 1 << 18);
        for block in 0..3_000_000_u64 {
            // Blocks of the least length there is: the most of them.
            all.follow(Asked { frames: 1, ..asked(block) }, MISS);
        }
        let each = all.each.lock();
        let held: usize = each.iter().map(|one| one.held.len()).sum();
        let bytes = held * (size_of::<Held>() + 16) * 3 / 2;
        assert!(bytes < 4 << 20, "{held} blocks, {bytes} bytes");
        assert!(each.iter().all(|one| one.used <= one.total), "more than fits");
        assert!(Miniatures::of_tier(4 * 64 * FRAMES_LEAST - 4, 64).read(0).is_none());
        assert!(Miniatures::of_tier(4 * 64 * FRAMES_LEAST, 64).read(0).is_some());
    }

    #[test]
    fn a_write_is_in_every_size_and_parts_of_a_block_are_one_request() {
        let all = Miniatures::of_tier(1024, 1);
        all.saw(asked(5), How::Write);
        all.saw(asked(5), How::Hit);
        all.saw(asked(6), MISS);
        all.saw(asked(6), MISS);
        let found = all.read(3).unwrap();
        assert_eq!(found.reads, 2);
        assert!(found.points.iter().all(|point| point.hit_ratio == Some(0.5)), "{found:?}");
        let _held = all.each.lock();
        all.saw(asked(5), How::Hit);
        assert_eq!(all.passed_over.load(Ordering::Relaxed), 1);
    }
}
