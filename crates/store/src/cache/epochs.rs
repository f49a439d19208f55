//! Epochs: a tier that is full takes what was asked for a short time ago, and passes the rest by.
//!
//! The tier sees what a database's own buffer has missed. Most of that does not come again soon,
//! and what comes again has been away for long: recency alone, as LRU and second chance have it, is
//! the wrong measure. So a block that home was read for is admitted when it was asked for before,
//! and not longer ago than [`SHORT`] of the time that copies stay until the search for victims
//! comes to them. While the tier has room, everything is admitted. Scans of large files never are.
//!
//! A copy that was read since the search last passed it stays, once (Corbato's clock).
//!
//! Time is the number of blocks read from home. The time that copies stay is what the search takes
//! for a round, measured as it moves.
//!
//! # With a write budget
//! Short is then less: as long ago as lets in what the budget has room for. How much is asked for
//! is counted by how many epochs ago it was asked for before, and the limit is drawn through those
//! numbers, within an epoch by letting every so manieth in ([`Choice`]). While the tier has room,
//! what nobody asked for before comes last.
//!
//! # What is remembered
//! A word for every 8 KiB of the tier: 0.1 % of it, however large home is. A word has four entries
//! of 16 bits: ten of a hash of file and block, six of the epoch of the request. The oldest of four
//! goes. An entry that is lost, or taken for another block's, costs a copy too few or too many.
//! Epochs of half the tier's blocks are fine enough, and 64 of them outlast every entry. When the
//! tier grows, all of it is of its new size, and begins empty.
//!
//! `cargo bench -p tiersmith-store --bench hit_ratio` plays traces against this policy and others.

use super::policy::{Policy, Read};
use super::usage::Skip;
use crate::format::entry::LEAF_BLOCKS;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

/// What is short, in tenths of the time that copies stay.
const SHORT: u64 = 7;
/// Bits of an entry that hold its epoch.
const EPOCH_BITS: u32 = 6;
const EPOCH_MASK: u64 = (1 << EPOCH_BITS) - 1;
const ENTRY_BITS: u32 = 16;
const ENTRIES: u32 = 4;
const TAG_MASK: u64 = 0x3ff;
/// Ages that are told apart where there is a budget: epochs, and the last of what nobody asked for.
const AGES: usize = (1 << EPOCH_BITS) + 1;
/// What an epoch is divided into, to let a part of it in.
const PART: u64 = 1 << 16;
/// Over how long what is asked for is smoothed.
const SMOOTHED_S: f64 = 60.0;
/// Words that are allocated together, when the first of them is used.
const CHUNK: u64 = 1 << 13;

/// A bit per block of a map page, set by reads and cleared by the search.
#[derive(Default)]
pub(crate) struct Epochs {
    read: [AtomicU64; LEAF_BLOCKS as usize / 64],
}

/// What is remembered of home's blocks, and how long copies stay.
pub(crate) struct History {
    /// For the tier when it has grown as far as it may.
    chunks: Box<[OnceLock<Box<[AtomicU64]>>]>,
    /// Words of all of them, and those that are for the tier of now.
    words_most: u64,
    words: AtomicU64,
    /// Blocks read from home.
    now: AtomicU64,
    /// The hash of the last of them: one that is read in parts is asked for once.
    latest: AtomicU64,
    epoch: AtomicU64,
    /// How long copies stay; 0 while the search has not moved.
    stay: AtomicU64,
    search: Mutex<Search>,
    choice: Choice,
}

/// The search for victims since `stay` was last computed.
#[derive(Default)]
struct Search {
    looked: u64,
    since: u64,
}

/// Words for a tier of so many frames.
fn words_for(frames: u64) -> u64 {
    (frames / 2).max(1)
}

/// Blocks read from home that are an epoch of such a tier.
fn epoch_of(frames: u64) -> u64 {
    (frames / 4).max(1)
}

impl History {
    fn new(frames: u64, most: u64) -> Self {
        let words_most = words_for(most.max(frames));
        Self {
            chunks: (0..words_most.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(),
            words_most,
            words: AtomicU64::new(words_for(frames)),
            now: AtomicU64::new(0),
            latest: AtomicU64::new(0),
            epoch: AtomicU64::new(epoch_of(frames)),
            stay: AtomicU64::new(0),
            search: Mutex::new(Search::default()),
            choice: Choice::default(),
        }
    }

    /// What is remembered is forgotten: it was for another number of words, and other epochs.
    fn resized(&self, frames: u64) {
        self.words.store(words_for(frames).min(self.words_most), Ordering::Relaxed);
        self.epoch.store(epoch_of(frames), Ordering::Relaxed);
        let words = self.chunks.iter().filter_map(OnceLock::get).flatten();
        words.for_each(|word| word.store(0, Ordering::Relaxed));
        self.choice.begin_anew();
    }

    /// Notes that a block is asked for. How long ago it was before, to an epoch; `None`: not that
    /// anything is known of.
    fn note(&self, file: u64, block: u64) -> Option<u64> {
        let hash = mixed(file.rotate_left(40) ^ block);
        if self.latest.swap(hash, Ordering::Relaxed) == hash {
            return None;
        }
        let epoch = self.epoch.load(Ordering::Relaxed);
        let now = (self.now.fetch_add(1, Ordering::Relaxed) / epoch) & EPOCH_MASK;
        let at = hash % self.words.load(Ordering::Relaxed);
        let chunk = self.chunks[(at / CHUNK) as usize].get_or_init(|| {
            let words = CHUNK.min(self.words_most - at / CHUNK * CHUNK);
            (0..words).map(|_| AtomicU64::new(0)).collect()
        });
        let word = &chunk[(at % CHUNK) as usize];
        let found = word.load(Ordering::Relaxed);
        // From 1: an empty entry has the tag 0.
        let tag = (hash >> 48 & TAG_MASK).max(1);
        let entry = |n: u32| found >> (n * ENTRY_BITS) & ((1 << ENTRY_BITS) - 1);
        let age = |n: u32| now.wrapping_sub(entry(n)) & EPOCH_MASK;
        let same = (0..ENTRIES).find(|n| entry(*n) >> EPOCH_BITS == tag);
        let oldest = |n: &u32| if entry(*n) == 0 { u64::MAX } else { age(*n) };
        let place = same.or_else(|| (0..ENTRIES).max_by_key(oldest)).unwrap_or_default();
        let shift = place * ENTRY_BITS;
        let cleared = found & !(((1 << ENTRY_BITS) - 1) << shift);
        word.store(cleared | (tag << EPOCH_BITS | now) << shift, Ordering::Relaxed);
        same.map(|n| age(n) * epoch)
    }
}

/// What is let in of that which would be admitted, where there is a budget.
struct Choice {
    /// Frames that would have been admitted since the last step, by their age.
    asked: [AtomicU64; AGES],
    /// What is younger is let in, in parts of an epoch; [`Choice::NONE`]: there is no budget.
    limit: AtomicU64,
    /// Frames at the limit that were asked for, each counted with the part that is let in.
    turn: AtomicU64,
    /// Frames a second, by their age.
    rates: Mutex<[f64; AGES]>,
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            asked: [const { AtomicU64::new(0) }; AGES],
            limit: AtomicU64::new(Self::NONE),
            turn: AtomicU64::new(0),
            rates: Mutex::new([0.0; AGES]),
        }
    }
}

impl Choice {
    const NONE: u64 = u64::MAX;
    const ALL: u64 = AGES as u64 * PART;

    /// Whether so many frames are let in that were asked for so many epochs ago.
    fn takes(&self, epochs: Option<u64>, frames: u64) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        if limit == Self::NONE {
            return true;
        }
        let age = epochs.map_or(AGES - 1, |epochs| (epochs as usize).min(AGES - 2));
        let _ = self.asked[age].fetch_add(frames, Ordering::Relaxed);
        match limit.saturating_sub(age as u64 * PART) {
            0 => false,
            PART.. => true,
            part => {
                let before = self.turn.fetch_add(part, Ordering::Relaxed);
                before / PART != (before + part) / PART
            }
        }
    }

    /// From now on so many frames a second are let in.
    fn limit_to(&self, frames_per_s: f64, passed: Duration) {
        let s = passed.as_secs_f64().max(1e-9);
        let mut rates = self.rates.lock();
        for (rate, asked) in rates.iter_mut().zip(&self.asked) {
            let now = asked.swap(0, Ordering::Relaxed) as f64 / s;
            *rate += (now - *rate) * s / (s + SMOOTHED_S);
        }
        let (mut left, mut limit) = (frames_per_s, Self::ALL);
        for (age, rate) in rates.iter().enumerate() {
            if *rate > left {
                limit = age as u64 * PART + (left / rate * PART as f64) as u64;
                break;
            }
            left -= rate;
        }
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Epochs are of another length.
    fn begin_anew(&self) {
        *self.rates.lock() = [0.0; AGES];
        self.asked.iter().for_each(|asked| asked.store(0, Ordering::Relaxed));
        if self.limit.load(Ordering::Relaxed) != Self::NONE {
            self.limit.store(Self::ALL, Ordering::Relaxed);
        }
    }
}

/// The finalizer of SplitMix64.
fn mixed(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

impl Policy for Epochs {
    type OfTier = History;

    const PASSES: u32 = 2;

    fn of_tier(frames: u64, most: u64) -> History {
        History::new(frames, most)
    }

    fn resized(history: &History, frames: u64) {
        history.resized(frames);
    }

    /// Looks before it writes, so that a hot block costs no shared store.
    #[inline]
    fn touched(&self, index: usize) {
        let (word, bit) = (&self.read[index / 64], 1 << (index % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    fn admitted(history: &History, read: &Read) -> Result<(), Skip> {
        if read.is_scan && !read.of_small_file {
            return Err(Skip::Scan);
        }
        let age = history.note(read.file, read.block.0);
        let stay = history.stay.load(Ordering::Relaxed);
        // Much of a tier is free at once when a large file has gone.
        let roomy = stay == 0 || read.free_frames > read.total_frames / 2;
        if !Self::has_room(read.free_frames, read.total_frames) {
            return Err(Skip::NoRoom);
        }
        match age {
            _ if roomy => {}
            None => return Err(Skip::First),
            Some(age) if age <= stay.saturating_mul(SHORT) / 10 => {}
            Some(_) => return Err(Skip::Rare),
        }
        let epochs = age.map(|age| age / history.epoch.load(Ordering::Relaxed));
        if read.is_kept || history.choice.takes(epochs, read.frames) {
            Ok(())
        } else {
            Err(Skip::Budget)
        }
    }

    fn limited(history: &History, frames_per_s: f64, passed: Duration) {
        history.choice.limit_to(frames_per_s, passed);
    }

    fn thresholds(history: &History) -> (Option<f64>, f64) {
        let most = SHORT as f64 / 10.0;
        let stay = history.stay.load(Ordering::Relaxed);
        let limit = history.choice.limit.load(Ordering::Relaxed);
        let now = || match limit {
            Choice::ALL.. => most,
            limit => {
                let epoch = history.epoch.load(Ordering::Relaxed);
                (limit as f64 / PART as f64 * epoch as f64 / stay as f64).min(most)
            }
        };
        ((stay > 0).then(now), most)
    }

    fn another(history: &History) {
        history.latest.store(0, Ordering::Relaxed);
    }

    fn has_room(free_frames: u64, total_frames: u64) -> bool {
        free_frames > total_frames / 16
    }

    fn victim(&self, index: usize, pass: u32) -> bool {
        let (word, bit) = (&self.read[index / 64], 1 << (index % 64));
        let was_read = word.load(Ordering::Relaxed) & bit != 0
            && word.fetch_and(!bit, Ordering::Relaxed) & bit != 0;
        !was_read || pass > 0
    }

    fn searched(history: &History, looked: u64, copies: u64) {
        let mut search = history.search.lock();
        // Asked with the lock held, so that it is never before what an earlier search noted.
        let now = history.now.load(Ordering::Relaxed);
        search.looked += looked;
        let stay = history.stay.load(Ordering::Relaxed);
        if stay == 0 {
            // Until now they all stayed.
            history.stay.store(now.max(1), Ordering::Relaxed);
        } else if search.looked >= (copies / 64).max(1) {
            let round = (now - search.since).saturating_mul(copies) / search.looked;
            history.stay.store((stay - stay / 8 + round / 8).max(1), Ordering::Relaxed);
        } else {
            return;
        }
        *search = Search { looked: 0, since: now };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::BlockIndex;

    fn read(block: u64) -> Read {
        let block = BlockIndex(block);
        Read {
            file: 1,
            block,
            frames: 2,
            is_scan: false,
            of_small_file: false,
            is_kept: false,
            free_frames: 400,
            total_frames: 1600,
        }
    }

    #[test]
    fn a_copy_that_was_read_is_spared_once_and_only_in_the_first_pass() {
        let policy = Epochs::default();
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
            ..read(3)
        };
        let admitted = |read| Epochs::admitted(&Epochs::of_tier(1600, 1600), &read);
        assert_eq!(admitted(read(false, false, 101)), Ok(()));
        assert_eq!(admitted(read(true, true, 101)), Ok(()));
        assert_eq!(admitted(read(true, false, 1600)), Err(Skip::Scan));
        let writers = admitted(read(false, true, 100));
        assert_eq!(writers, Err(Skip::NoRoom), "a sixteenth is the writers'");
    }

    #[test]
    fn once_copies_had_to_go_only_what_comes_again_soon_is_admitted() {
        let history = Epochs::of_tier(1600, 1600);
        for block in 0..800 {
            let admitted = Epochs::admitted(&history, &read(block));
            assert_eq!(admitted, Ok(()), "no copy had to go for block {block} yet");
        }
        Epochs::searched(&history, 1, 600);
        assert_eq!(history.stay.load(Ordering::Relaxed), 800);
        let admitted = |read| Epochs::admitted(&history, &read);
        assert_eq!(admitted(read(2000)), Err(Skip::First), "it was never asked for");
        assert_eq!(admitted(read(2000)), Err(Skip::First), "the same request in two parts");
        assert_eq!(admitted(read(2001)), Err(Skip::First));
        assert_eq!(admitted(read(2000)), Ok(()), "it comes again at once");
        assert_eq!(admitted(read(10)), Err(Skip::Rare), "longer ago than copies stay");
        let roomy = Read { free_frames: 801, ..read(3000) };
        assert_eq!(admitted(roomy), Ok(()), "half of the tier is free");
    }

    #[test]
    fn how_long_copies_stay_follows_the_search_and_never_becomes_nothing() {
        let history = Epochs::of_tier(1600, 1600);
        let stay = || history.stay.load(Ordering::Relaxed);
        Epochs::searched(&history, 1, 600);
        assert_eq!(stay(), 1);
        // 600 copies, and the search passes 60 of them every 600 requests: a round takes 6000.
        for n in 0..6000 {
            let _ = Epochs::admitted(&history, &read(n));
            if n % 10 == 9 {
                Epochs::searched(&history, 1, 600);
            }
        }
        assert!((5000..=6100).contains(&stay()), "a round takes 6000 requests, not {}", stay());
        for _ in 0..100 {
            Epochs::searched(&history, 600, 600);
        }
        assert!((1..=7).contains(&stay()), "{}", stay());
    }

    /// A history of a tier that is full, with a budget: a hundred blocks from `n * 1000` on were
    /// asked for `n` epochs ago, which are 400 requests each.
    fn limited(frames_per_s: f64) -> History {
        let history = Epochs::of_tier(1600, 1600);
        history.stay.store(1 << 20, Ordering::Relaxed);
        Epochs::limited(&history, f64::MAX, Duration::from_secs(10));
        for epoch in (1..6).rev() {
            for block in 0..100 {
                let _ = history.note(1, epoch * 1000 + block);
            }
            history.now.fetch_add(300, Ordering::Relaxed);
        }
        // The demand: 0.02 frames a second of each of ten ages.
        for n in 0..10_000 {
            let _ = history.choice.takes(Some(n % 10), 2);
        }
        Epochs::limited(&history, frames_per_s, Duration::from_secs(100_000));
        history
    }

    #[test]
    fn with_a_budget_what_comes_again_soonest_is_admitted() {
        let history = limited(0.0501);
        let admitted = |epoch: u64| {
            let blocks = (0..100).map(|block| read(epoch * 1000 + block));
            blocks.filter(|read| Epochs::admitted(&history, read) == Ok(())).count()
        };
        assert_eq!(admitted(1), 100, "one epoch ago");
        let at_limit = admitted(2);
        assert!((45..=55).contains(&at_limit), "half of two epochs ago: {at_limit}");
        assert_eq!(admitted(3), 0);
        let skip = Epochs::admitted(&history, &read(3500));
        assert!(matches!(skip, Err(Skip::First | Skip::Budget)), "{skip:?}");
        assert_eq!(Epochs::admitted(&history, &read(4050)), Err(Skip::Budget));
        let kept = Read { is_kept: true, ..read(5050) };
        assert_eq!(Epochs::admitted(&history, &kept), Ok(()), "the budget itself limits rules");
        let (threshold, most) = Epochs::thresholds(&history);
        let threshold = threshold.unwrap() * (1u64 << 20) as f64;
        assert!((990.0..=1010.0).contains(&threshold), "2.5 epochs of 400: {threshold}");
        assert_eq!(most, 0.7);
    }

    #[test]
    fn without_a_budget_nothing_is_counted_and_nothing_is_limited() {
        let history = Epochs::of_tier(1600, 1600);
        assert!((0..100).all(|n| history.choice.takes(Some(n), 2)));
        let asked = history.choice.asked.iter().map(|asked| asked.load(Ordering::Relaxed));
        assert_eq!(asked.sum::<u64>(), 0);
        assert_eq!(Epochs::thresholds(&history), (None, 0.7));
    }

    #[test]
    fn a_tier_that_has_grown_remembers_as_much_as_one_that_was_made_of_its_size() {
        let again = |history: &History| {
            let known = || (0..4096).filter(|block| history.note(1, *block).is_some()).count();
            let _first = known();
            known()
        };
        let grown = Epochs::of_tier(64, 1 << 16);
        assert!(again(&grown) < 200, "32 words have 128 entries");
        Epochs::resized(&grown, 1 << 16);
        let mut words = grown.chunks.iter().filter_map(OnceLock::get).flatten();
        assert!(words.all(|word| word.load(Ordering::Relaxed) == 0), "they are of other blocks");
        let made = Epochs::of_tier(1 << 16, 1 << 16);
        assert_eq!((again(&grown), again(&made)), (4096, 4096));
        assert_eq!(grown.note(1, 1), Some(1 << 14), "an epoch is a quarter of its frames");
    }

    #[test]
    fn what_is_remembered_is_within_two_thousandths_of_the_tier() {
        let history = Epochs::of_tier(1 << 20, 1 << 20);
        for block in 0..200_000 {
            history.note(block % 7, block);
        }
        let words: usize =
            history.chunks.iter().filter_map(|chunk| chunk.get()).map(|c| c.len()).sum();
        assert!(words * 8 * 500 <= 4096 << 20, "{words} words are more than 0.2 % of the tier");
    }
}
