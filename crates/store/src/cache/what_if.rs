//! What the tier would hit, and what would be written to it, if it were a quarter, half, twice or
//! four times as large: the policy in use, played in miniature while the home runs.
//!
//! Of the blocks one in so many is followed, chosen by a hash (Waldspurger and others, SHARDS,
//! 2015); tiers of as many times less frames are modelled for them, each with a [`Policy`] of its
//! own and the marks of `mover/keep.rs`. A miniature holds keys and no data. The largest has up to
//! [`FRAMES_MOST`] frames, so that of a large tier some 8000 blocks of 8 KiB are followed, and all
//! of it takes less than 5 MiB.
//!
//! A read or write that is followed is noted, in one of [`QUEUES`] queues by its thread, and the
//! background plays what was noted. Of a request that finds its queue full nothing is remembered
//! but that it was. Where there is no background, its thread plays some requests first
//! ([`PLAYED_AT_ONCE`]). Nobody waits here but who wants to see the curves.
//!
//! Blocks that go wait as requests do, so that what was asked for before and after that is played
//! before and after it: a few of them in the queue of their thread; of more it is said behind all
//! that waits in any queue.
//!
//! A block that is read in parts counts with each of them, as in [`super::usage`]. To the policy
//! they are one request: the next part of the block that was read from home last, or followed last,
//! is no other.
//!
//! A tier that was warm when it was attached begins with what it had, as far as that fits: the
//! background's first step looks for it, because an attach must not take longer for it
//! ([`Miniatures::seed`]). When the tier grows, what was counted begins anew, of other sizes.
//!
//! **Deliberately absent**: a write budget, since nobody chose one for the other sizes; redo, pins
//! and rules `keep`, which take their part of a tier whatever its size; the room of what a rule
//! `none` lets in until it goes home; and a scan that the real tier hits, which a smaller one would
//! not take for one.

#[cfg(test)]
mod tests;

use super::policy::{Chosen, Policy, Read};
use crate::address::{BlockIndex, FRAME};
use crate::format::entry::LEAF_BLOCKS;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crossbeam_utils::CachePadded;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// The sizes that are modelled, in quarters of the tier's own.
pub(crate) const QUARTERS: [u64; 5] = [1, 2, 4, 8, 16];
/// Frames of the largest miniature.
pub(crate) const FRAMES_MOST: u64 = 1 << 16;
/// Frames that the smallest miniature has at least: a few blocks say nothing.
const FRAMES_LEAST: u64 = 128;
/// Blocks of which it is asked one by one whether they are followed; of more all are looked for.
const ASKED_MOST: u64 = 64;
/// Queues of requests that wait to be played, and how many wait in each at most.
const QUEUES: usize = 16;
const WAITING_MOST: usize = 1024;
/// How many a thread plays at once that finds its queue full where nobody else plays them.
const PLAYED_AT_ONCE: usize = 32;
/// What waits at most beside the queues. That more blocks have gone is forgotten then, and they
/// leave as what nobody reads.
const EARLIER_MOST: usize = 4096;
/// Parts that the followed blocks are divided into, to see how far those of a part differ.
const GROUPS: usize = 16;

/// A block that somebody asked for.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    /// The number of its file, and its own.
    pub(crate) file: u64,
    pub(crate) block: BlockIndex,
    /// Its length.
    pub(crate) frames: u64,
    /// No rule says that it is to be at home.
    pub(crate) is_kept: bool,
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
    /// It is in no tier any more, whatever its size, and neither are the blocks up to this one.
    Gone { last: u64 },
}

/// One point of the curves.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct WhatIfPoint {
    /// Bytes that blocks and map pages could use.
    pub bytes: u64,
    /// Of the blocks that were read, those that would have been read from the tier; absent before
    /// [`WhatIf::READS_LEAST`] were followed.
    pub hit_ratio: Option<f64>,
    /// How far that may be off, because a sample is followed: three standard errors, by how much
    /// the misses of parts of it differ. Absent where the ratio is.
    pub hit_ratio_off: Option<f64>,
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
    /// Requests that would have been followed, and found no room where they wait to be played.
    pub passed_over: u64,
    /// Since when: since the attach, or since the tier grew.
    pub counted: Duration,
    /// For a quarter, half, once, twice and four times the tier.
    pub points: Vec<WhatIfPoint>,
}

impl WhatIf {
    /// Reads of which a hit ratio is worth a look.
    pub const READS_LEAST: u64 = 1000;
}

/// The miniatures of a tier.
pub(crate) struct Miniatures {
    /// Of how many blocks one is followed, at least.
    one_in_least: u64,
    /// Somebody plays what waits, now and then.
    has_background: bool,
    /// It has miniatures that do not know yet what it has.
    unseeded: AtomicBool,
    /// Blocks with a smaller hash are followed. Every read looks here, so nothing that is written
    /// is in its cache line.
    below: CachePadded<AtomicU64>,
    queues: [Queue; QUEUES],
    /// What waits to be played before what is in the queues.
    earlier: Mutex<VecDeque<Request>>,
    all: Mutex<All>,
}

/// What the threads of a queue write, in cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Queue {
    /// The block that was read from home last, or was followed last: its next part is no other
    /// request.
    latest: AtomicU64,
    /// Requests that were not played: reads of blocks, and writes.
    passed: [AtomicU64; 2],
    /// Those that wait to be played.
    waiting: Mutex<VecDeque<Request>>,
}

impl Queue {
    /// Of a request nothing is remembered but that it was.
    fn pass_over(&self, how: How) {
        let n = match how {
            How::Hit | How::Miss { .. } => 0,
            How::Write => 1,
            How::Gone { .. } => return,
        };
        let _ = self.passed[n].fetch_add(1, Ordering::Relaxed);
    }
}

/// All of them, and what was counted since they began.
struct All {
    one_in: u64,
    /// The tier's own frames.
    frames: u64,
    began: Instant,
    /// Blocks that had been read by then.
    read_before: u64,
    reads: u64,
    writes: u64,
    /// Empty where the tier is too small for the sample to say anything.
    each: Vec<Miniature>,
}

struct Miniature {
    total: u64,
    used: u64,
    held: BTreeMap<(u64, u64), Held>,
    /// The last block that the search looked at.
    hand: (u64, u64),
    of_tier: <Chosen as Policy>::OfTier,
    /// What the policy keeps of the blocks, by their places.
    marks: Vec<Chosen>,
    /// Places that no block has.
    places: Vec<u32>,
    misses: [u64; GROUPS],
    frames_written: u64,
}

struct Held {
    place: u32,
    frames: u32,
}

/// Places of which the policy keeps something in one piece.
const PLACES: u32 = LEAF_BLOCKS as u32;

/// A request, as each miniature plays it.
#[derive(Clone, Copy)]
struct Request {
    asked: Asked,
    how: How,
    /// It is the next part of the block that was asked for before.
    is_part: bool,
    group: u32,
}

impl Miniatures {
    /// For a tier of so many frames, with one block followed of at least `one_in`.
    pub(crate) fn of_tier(frames: u64, one_in: u64, has_background: bool) -> Self {
        let found = Self {
            one_in_least: one_in.max(1),
            has_background,
            unseeded: AtomicBool::new(false),
            below: CachePadded::new(AtomicU64::new(0)),
            queues: Default::default(),
            earlier: Mutex::default(),
            all: Mutex::new(All {
                one_in: 1,
                frames: 0,
                began: Instant::now(),
                read_before: 0,
                reads: 0,
                writes: 0,
                each: Vec::new(),
            }),
        };
        found.resized(frames, 0);
        found
    }

    /// The tier has so many frames now, and `read` blocks were read until now.
    pub(crate) fn resized(&self, frames: u64, read: u64) {
        let most = frames * QUARTERS[QUARTERS.len() - 1] / 4;
        let one_in = self.one_in_least.max(most.div_ceil(FRAMES_MOST));
        let mut all = self.played();
        let totals = QUARTERS.map(|quarters| frames * quarters / 4 / one_in);
        let is_large = totals[0] >= FRAMES_LEAST;
        let below = if is_large { u64::MAX / one_in } else { 0 };
        let had_some = !all.each.is_empty();
        if is_large {
            all.each.resize_with(QUARTERS.len(), Miniature::default);
        } else {
            all.each.clear();
        }
        for (one, total) in all.each.iter_mut().zip(totals) {
            one.resized(total, below);
        }
        self.below.store(below, Ordering::Relaxed);
        let passed = self.queues.iter().flat_map(|queue| &queue.passed);
        passed.for_each(|passed| passed.store(0, Ordering::Relaxed));
        (all.one_in, all.frames, all.read_before) = (one_in, frames, read);
        (all.began, all.reads, all.writes) = (Instant::now(), 0, 0);
        if is_large && !had_some {
            self.unseeded.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it is to be told what the tier has. Says so once.
    pub(crate) fn wants_seed(&self) -> bool {
        self.unseeded.load(Ordering::Relaxed) && self.unseeded.swap(false, Ordering::Relaxed)
    }

    /// A block was asked for. On the way of every read and write: most of them end after a
    /// hash. `asked` says more of the block.
    #[inline]
    pub(crate) fn saw(
        &self,
        file: u64,
        block: BlockIndex,
        how: How,
        asked: impl FnOnce() -> Asked,
    ) {
        let below = self.below.load(Ordering::Relaxed);
        if below == 0 {
            return;
        }
        let key = key_of(file, block.0);
        if key <= below {
            self.follow(key, asked(), how);
        } else if let How::Miss { .. } = how {
            self.queues[queue_of_thread()].latest.store(key, Ordering::Relaxed);
        }
    }

    #[cold]
    fn follow(&self, key: u64, asked: Asked, how: How) {
        let queue = &self.queues[queue_of_thread()];
        let is_part = queue.latest.swap(key, Ordering::Relaxed) == key;
        let group = (key % GROUPS as u64) as u32;
        if !self.queues_up(queue, Request { asked, how, is_part, group }) {
            queue.pass_over(how);
        }
    }

    /// Puts a request into a queue. `false`: it is full, or somebody has it at this moment.
    fn queues_up(&self, queue: &Queue, request: Request) -> bool {
        let Some(mut waiting) = queue.waiting.try_lock() else { return false };
        if waiting.len() >= WAITING_MOST
            && !self.has_background
            && let Some(mut all) = self.all.try_lock()
        {
            waiting.drain(..PLAYED_AT_ONCE).for_each(|request| all.play(request));
        }
        let has_room = waiting.len() < WAITING_MOST;
        if has_room {
            waiting.push_back(request);
        }
        has_room
    }

    /// Plays what waits; the background does it now and then.
    pub(crate) fn play_waiting(&self) {
        if self.follows_some() {
            drop(self.played());
        }
    }

    /// The miniatures when nothing waits any more.
    fn played(&self) -> MutexGuard<'_, All> {
        let mut all = self.all.lock();
        let mut waiting = std::mem::take(&mut *self.gathered(usize::MAX));
        waiting.drain(..).for_each(|request| all.play(request));
        all
    }

    /// What waits. When it is more than so much, the rest of the queues is passed over: else that
    /// would be played behind what is said next.
    fn gathered(&self, most: usize) -> MutexGuard<'_, VecDeque<Request>> {
        let mut earlier = self.earlier.lock();
        for queue in &self.queues {
            let mut waiting = queue.waiting.lock();
            if earlier.len() < most {
                earlier.append(&mut waiting);
                continue;
            }
            for request in waiting.drain(..) {
                match request.how {
                    How::Gone { .. } if earlier.len() < EARLIER_MOST => earlier.push_back(request),
                    how => queue.pass_over(how),
                }
            }
        }
        earlier
    }

    /// Blocks of a file are in no tier any more, whatever its size: they were cut off, removed, or
    /// written past it.
    pub(crate) fn gone(&self, file: u64, blocks: RangeInclusive<u64>) {
        let below = self.below.load(Ordering::Relaxed);
        if below == 0 {
            return;
        }
        let is_few = blocks.end() - blocks.start() < ASKED_MOST;
        if is_few && !blocks.clone().any(|block| key_of(file, block) <= below) {
            return;
        }
        let (first, last) = blocks.into_inner();
        let asked = Asked { file, block: BlockIndex(first), frames: 0, is_kept: false };
        let request = Request { asked, how: How::Gone { last }, is_part: false, group: 0 };
        if is_few && self.queues_up(&self.queues[queue_of_thread()], request) {
            return;
        }
        let mut earlier = self.gathered(EARLIER_MOST / 2);
        if earlier.len() < EARLIER_MOST {
            earlier.push_back(request);
        }
    }

    /// Whether some blocks are followed.
    pub(crate) fn follows_some(&self) -> bool {
        self.below.load(Ordering::Relaxed) > 0
    }

    /// Whether a block is followed.
    pub(crate) fn follows(&self, file: u64, block: u64) -> bool {
        let below = self.below.load(Ordering::Relaxed);
        below > 0 && key_of(file, block) <= below
    }

    /// These followed blocks are in the tier already. Of a smaller one nobody knows which of them
    /// it would have: some of them, by their hash.
    pub(crate) fn seed(&self, mut blocks: Vec<Asked>) {
        blocks.sort_by_cached_key(|asked| key_of(asked.file, asked.block.0));
        // What was asked for since then still waits, mostly.
        for one in &mut self.all.lock().each {
            for asked in &blocks {
                if one.used + asked.frames <= one.total - one.total / 4 {
                    one.hold(*asked);
                }
            }
        }
    }

    /// The curves, when `all` blocks were read since the attach; `None` where the tier is too
    /// small.
    ///
    /// A few blocks have many of the requests, and hit at every size: of those that are followed
    /// there may be too many or too few. How many is known, so they are taken off or added.
    pub(crate) fn read(&self, all: u64) -> Option<WhatIf> {
        let found = self.played();
        let passed = |n: usize| -> u64 {
            self.queues.iter().map(|queue| queue.passed[n].load(Ordering::Relaxed)).sum()
        };
        let passed = [passed(0), passed(1)];
        let _some = found.each.first()?;
        let of_all = |played: u64, passed: u64| match played {
            0 => 1.0,
            played => (played + passed) as f64 / played as f64,
        };
        // What was passed over is as what was played.
        let reads_of_all = of_all(found.reads, passed[0]);
        let of_all = of_all(found.reads + found.writes, passed[0] + passed[1]);
        let read = all.saturating_sub(found.read_before);
        let expected = (read as f64 / found.one_in as f64).max(1.0);
        let is_enough = found.reads >= WhatIf::READS_LEAST;
        let point = |(one, quarters): (&Miniature, u64)| {
            let misses = one.misses.map(|misses| misses as f64 * reads_of_all / expected);
            let sum = misses.iter().sum::<f64>();
            let groups = GROUPS as f64;
            let squares = misses.iter().map(|of_group| (of_group - sum / groups).powi(2));
            let not_followed = 1.0 - 1.0 / found.one_in as f64;
            let error = (squares.sum::<f64>() * groups / (groups - 1.0) * not_followed).sqrt();
            WhatIfPoint {
                bytes: found.frames * quarters / 4 * FRAME as u64,
                hit_ratio: is_enough.then(|| (1.0 - sum).clamp(0.0, 1.0)),
                hit_ratio_off: is_enough.then(|| (3.0 * error).min(1.0)),
                bytes_written: of_all * (one.frames_written * found.one_in * FRAME as u64) as f64,
            }
        };
        Some(WhatIf {
            one_in: found.one_in,
            reads: found.reads,
            passed_over: passed[0] + passed[1],
            counted: found.began.elapsed(),
            points: found.each.iter().zip(QUARTERS).map(point).collect(),
        })
    }
}

/// The queue that this thread's requests wait in: by where its own memory is.
fn queue_of_thread() -> usize {
    thread_local! {
        static MINE: u8 = const { 0 };
    }
    MINE.try_with(|mine| mixed(std::ptr::from_ref(mine).addr() as u64) as usize % QUEUES)
        .unwrap_or_default()
}

/// A hash of a block.
#[inline]
fn key_of(file: u64, block: u64) -> u64 {
    mixed(file.rotate_left(32) ^ block)
}

/// Another hash than the policies': what is followed must not be alike to them.
#[inline]
fn mixed(value: u64) -> u64 {
    let value = (value ^ value >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let value = (value ^ value >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    value ^ value >> 32
}

impl All {
    fn play(&mut self, request: Request) {
        match request.how {
            How::Write => self.writes += 1,
            How::Hit | How::Miss { .. } => self.reads += 1,
            How::Gone { last } => {
                let Asked { file, block, .. } = request.asked;
                let blocks = block.0..=last;
                return self.each.iter_mut().for_each(|one| one.gone(file, &blocks));
            }
        }
        self.each.iter_mut().for_each(|one| one.play(request, self.one_in));
    }
}

impl Default for Miniature {
    /// Of no size yet.
    fn default() -> Self {
        Self {
            total: 0,
            used: 0,
            held: BTreeMap::new(),
            hand: (0, 0),
            of_tier: Chosen::of_tier(0, FRAMES_MOST),
            marks: Vec::new(),
            places: Vec::new(),
            misses: [0; GROUPS],
            frames_written: 0,
        }
    }
}

impl Miniature {
    /// It has so many frames, for blocks with no larger hash than `below`. What it holds stays.
    fn resized(&mut self, total: u64, below: u64) {
        self.total = total;
        Chosen::resized(&self.of_tier, total);
        let others = self.held.keys().filter(|(file, block)| key_of(*file, *block) > below);
        let others = others.copied().collect();
        self.let_go(others);
        (self.misses, self.frames_written) = ([0; GROUPS], 0);
    }

    fn play(&mut self, request: Request, one_in: u64) {
        let Request { asked, how, is_part, group } = request;
        let is_held = self.held.get(&(asked.file, asked.block.0));
        if let How::Write = how {
            self.frames_written += asked.frames;
            if is_held.is_none() && asked.is_kept {
                self.insert(asked);
            }
            return;
        }
        if let Some(held) = is_held {
            self.marks[(held.place / PLACES) as usize].touched((held.place % PLACES) as usize);
            return;
        }
        if !asked.is_kept && matches!(how, How::Hit) {
            // It was written, and has not gone home yet: so it would be in any tier.
            return;
        }
        self.misses[group as usize] += 1;
        if is_part {
            return;
        }
        let (is_scan, file_frames, admits) = match how {
            How::Miss { is_scan, file_frames, admits } => (is_scan, file_frames, admits),
            // The real tier has it, so it takes such blocks.
            How::Hit | How::Write | How::Gone { .. } => (false, u64::MAX, true),
        };
        let read = Read {
            file: asked.file,
            block: asked.block,
            frames: asked.frames,
            is_scan,
            of_small_file: file_frames / one_in <= self.total / 16,
            is_kept: false,
            free_frames: self.total.saturating_sub(self.used),
            total_frames: self.total,
        };
        Chosen::another(&self.of_tier);
        if admits && Chosen::admitted(&self.of_tier, &read).is_ok() {
            self.frames_written += asked.frames;
            self.insert(asked);
        }
    }

    fn gone(&mut self, file: u64, blocks: &RangeInclusive<u64>) {
        let range = (file, *blocks.start())..=(file, *blocks.end());
        let gone = self.held.range(range).map(|(key, _)| *key).collect();
        self.let_go(gone);
    }

    /// Blocks are no longer in it: their frames and places are others'.
    fn let_go(&mut self, keys: Vec<(u64, u64)>) {
        for held in keys.iter().filter_map(|key| self.held.remove(key)) {
            // Else the next block in its place would be one that was read.
            let _ = self.marks[(held.place / PLACES) as usize]
                .victim((held.place % PLACES) as usize, Chosen::PASSES - 1);
            self.used -= u64::from(held.frames);
            self.places.push(held.place);
        }
    }

    fn hold(&mut self, asked: Asked) {
        if self.places.is_empty() {
            let first = self.marks.len() as u32 * PLACES;
            self.marks.push(Chosen::default());
            self.places.extend((first..first + PLACES).rev());
        }
        let Some(place) = self.places.pop() else { return };
        let held = Held { place, frames: asked.frames as u32 };
        if let Some(before) = self.held.insert((asked.file, asked.block.0), held) {
            self.used -= u64::from(before.frames);
            self.places.push(before.place);
        }
        self.used += asked.frames;
    }

    /// Puts a block into it, and keeps a quarter free.
    fn insert(&mut self, asked: Asked) {
        self.hold(asked);
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
                let place = held.place;
                if self.marks[(place / PLACES) as usize].victim((place % PLACES) as usize, pass) {
                    self.used -= u64::from(held.frames);
                    self.places.push(place);
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
