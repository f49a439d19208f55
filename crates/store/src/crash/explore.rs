//! The loop over cuts and images.
//!
//! Each thread replays the recording for itself and takes the next cut nobody has taken, so cuts
//! only go forward. At a cut the home images are made once and shared by all tier images; a tier
//! image is made from the one before by the words that differ.

use std::any::Any;
use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tiersmith_pmem::sim::{Choice, ImageBuffer, Player};

use super::{Budget, Cut, CutState, ImageId, Recording, Report, Violation};
use crate::home::sim::{HomeImage, HomePlayer};

/// What a check is, to a worker.
type Check<'c> = &'c mut dyn FnMut(CutState<'_>) -> Result<(), String>;

/// Tries the images at every cut of `recording`, on [`Budget::threads`] threads. A panic of the
/// check is a violation.
pub fn explore<F>(recording: &Recording, budget: &Budget, check: F) -> Report
where
    F: Fn(CutState<'_>) -> Result<(), String> + Sync,
{
    explore_with(recording, budget, None, &check)
}

/// As [`explore`], but an image that explorations with the same `tried` and `question` have tried
/// is left out, unless the test had made more or fewer marks by then. So the answer of the check
/// must depend on nothing but media, home, marks, [`CutState::thorough`] and what `question` is
/// about.
pub fn explore_untried<F>(
    recording: &Recording,
    budget: &Budget,
    (tried, question): (&Tried, u64),
    check: F,
) -> Report
where
    F: Fn(CutState<'_>) -> Result<(), String> + Sync,
{
    explore_with(recording, budget, Some((tried, question)), &check)
}

fn explore_with(
    recording: &Recording,
    budget: &Budget,
    tried: Option<(&Tried, u64)>,
    check: &(dyn Fn(CutState<'_>) -> Result<(), String> + Sync),
) -> Report {
    let (begun, shared) = (Instant::now(), Shared::new(recording, budget, tried));
    let found: Vec<Found> = std::thread::scope(|scope| {
        let run = || Worker::new(&shared).run(&mut |state| check(state));
        let threads: Vec<_> = (1..budget.threads).map(|_| scope.spawn(run)).collect();
        let own = run();
        let joined = threads
            .into_iter()
            .map(|t| t.join().expect("BUG: a worker catches the panics of checks"));
        joined.chain([own]).collect()
    });
    shared.report(found, begun)
}

/// As [`explore`], on this thread, for a check that keeps something between images.
pub fn explore_one_by_one<F>(recording: &Recording, budget: &Budget, mut check: F) -> Report
where
    F: FnMut(CutState<'_>) -> Result<(), String>,
{
    let (begun, shared) = (Instant::now(), Shared::new(recording, budget, None));
    let found = Worker::new(&shared).run(&mut check);
    shared.report(vec![found], begun)
}

/// Tries one image again; a panic of the check goes through, for its backtrace.
///
/// # Errors
/// What the check returns.
///
/// # Panics
/// When the recording has no such image with this budget.
pub fn replay<F>(
    recording: &Recording,
    budget: &Budget,
    id: ImageId,
    check: F,
) -> Result<(), String>
where
    F: FnOnce(CutState<'_>) -> Result<(), String>,
{
    let shared = Shared::new(recording, budget, None);
    let mut worker = Worker::new(&shared);
    let cut = shared.cuts[id.cut];
    let plan = worker.plan(id.cut, cut);
    let tiers = worker.media.image(&plan.tiers[id.tier], &mut worker.buffer);
    let (home, lent) = (plan.homes[id.home].0.home(), plan.homes[id.home].1.home());
    let (acked, position, thorough) = (cut.acked, cut.position, is_thorough(id.tier));
    check(CutState { tiers, home, lent, acked, position, id, thorough })
}

/// What the threads share.
struct Shared<'r> {
    recording: &'r Recording,
    budget: &'r Budget,
    cuts: Vec<Cut>,
    next_cut: AtomicUsize,
    violations: AtomicUsize,
    /// What was tried, and for which question.
    tried: Option<(&'r Tried, u64)>,
}

type Prints = HashSet<u64, BuildHasherDefault<AsItIs>>;

/// The images that explorations have tried ([`explore_untried`]).
#[derive(Debug, Default)]
pub struct Tried(Mutex<Prints>);

/// What one thread found.
#[derive(Default)]
struct Found {
    cuts: usize,
    exhaustive_cuts: usize,
    images: u64,
    known: u64,
    distinct: Prints,
    violations: Vec<Violation>,
}

impl<'r> Shared<'r> {
    fn new(recording: &'r Recording, budget: &'r Budget, tried: Option<(&'r Tried, u64)>) -> Self {
        let (next_cut, violations) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { recording, budget, cuts: recording.cuts(), next_cut, violations, tried }
    }

    /// Whether this is not the first time, where that counts.
    fn is_known(&self, print: u64) -> bool {
        self.tried.is_some_and(|(tried, question)| !tried.0.lock().insert(mix(print, question, 4)))
    }

    fn report(&self, found: Vec<Found>, begun: Instant) -> Report {
        let mut all = Found::default();
        for one in found {
            all.cuts += one.cuts;
            all.exhaustive_cuts += one.exhaustive_cuts;
            all.images += one.images;
            all.known += one.known;
            all.violations.extend(one.violations);
            if all.distinct.is_empty() {
                all.distinct = one.distinct
            } else {
                all.distinct.extend(one.distinct)
            }
        }
        all.violations.sort_by_key(|v| (v.id.cut, v.id.tier, v.id.home));
        Report {
            cuts: all.cuts,
            exhaustive_cuts: all.exhaustive_cuts,
            images: all.images,
            distinct: all.distinct.len() as u64,
            known: all.known,
            violations: all.violations,
            elapsed: begun.elapsed(),
        }
    }
}

/// What to try at one cut.
struct Plan {
    tiers: Vec<Choice>,
    /// Home, and the plain files of lent files.
    homes: Vec<(HomeImage, HomeImage)>,
    /// For each tier choice, the homes it meets.
    pairs: Vec<Vec<usize>>,
    exhaustive: bool,
}

/// One thread's way through the recording.
struct Worker<'s, 'r> {
    shared: &'s Shared<'r>,
    media: Player,
    home: HomePlayer,
    lent: HomePlayer,
    buffer: ImageBuffer,
    found: Found,
}

impl<'s, 'r> Worker<'s, 'r> {
    fn new(shared: &'s Shared<'r>) -> Self {
        let (media, home) = (shared.recording.media.player(), shared.recording.home.player());
        let lent = shared.recording.lent.player();
        Self { shared, media, home, lent, buffer: ImageBuffer::default(), found: Found::default() }
    }

    fn run(mut self, check: Check<'_>) -> Found {
        loop {
            let index = self.shared.next_cut.fetch_add(1, Ordering::Relaxed);
            let Some(cut) = self.shared.cuts.get(index).copied() else { return self.found };
            if self.stopped() {
                return self.found;
            }
            let plan = self.plan(index, cut);
            self.found.cuts += 1;
            self.found.exhaustive_cuts += usize::from(plan.exhaustive);
            self.try_all(index, cut, &plan, check);
        }
    }

    fn stopped(&self) -> bool {
        self.shared.violations.load(Ordering::Relaxed) >= self.shared.budget.stop_after
    }

    /// Goes to the cut and chooses its images.
    fn plan(&mut self, index: usize, cut: Cut) -> Plan {
        let Budget { images_per_cut: most, seed, .. } = *self.shared.budget;
        self.media.advance_to(cut.position);
        self.home.advance_to(cut.home_events);
        self.lent.advance_to(cut.lent_events);
        let most = most.max(1);
        let seed = mix(seed, index as u64, 0x6375_7473);
        let tier_count = self.media.image_count().unwrap_or(u128::MAX);
        let home_count = self.home.count().saturating_mul(self.lent.count());
        let exhaustive = tier_count.saturating_mul(home_count) <= most as u128;
        let (tier_most, home_most) = share(tier_count, home_count, most);
        let tiers: Vec<Choice> = self.media.images(tier_most, seed).collect();
        let lent_most = share(self.home.count(), self.lent.count(), home_most).1;
        let choices = self.home.choices(home_most / lent_most.max(1), seed);
        let lent_choices = self.lent.choices(lent_most, seed);
        let tier_corners = corners(&tiers, &self.media.everything());
        // The first of a sample are its corners; of a full list, first and last are the outermost.
        let home_corners: BTreeSet<usize> =
            (0..choices.len().min(4)).chain([choices.len() - 1]).collect();
        let lent_images: Vec<HomeImage> = lent_choices.iter().map(|c| self.lent.image(c)).collect();
        let home_images: Vec<HomeImage> = choices.iter().map(|c| self.home.image(c)).collect();
        let last = lent_images.len() - 1;
        // A corner of the pair is one of both.
        let home_corners = home_corners
            .iter()
            .flat_map(|at| [0, last].map(|lent| at * lent_images.len() + lent))
            .collect();
        let pair = |home: &HomeImage| -> Vec<_> {
            lent_images.iter().map(|l| (home.clone(), l.clone())).collect()
        };
        let homes: Vec<(HomeImage, HomeImage)> = home_images.iter().flat_map(pair).collect();
        let pairs = pair_up(tiers.len(), homes.len(), most, &tier_corners, &home_corners);
        Plan { tiers, homes, pairs, exhaustive }
    }

    fn try_all(&mut self, index: usize, cut: Cut, plan: &Plan, check: Check<'_>) {
        let print =
            |(home, lent): &(HomeImage, HomeImage)| mix(home.fingerprint(), lent.fingerprint(), 2);
        let home_prints: Vec<u64> = plan.homes.iter().map(print).collect();
        // What two homes may differ in that the same files say nothing of: the clock, for one.
        let rest = |(home, lent): &(HomeImage, HomeImage)| mix(home.rest(), lent.rest(), 3);
        let rests: Vec<u64> = plan.homes.iter().map(rest).collect();
        let durable = fingerprint(self.media.durable());
        for (tier, (choice, homes)) in plan.tiers.iter().zip(&plan.pairs).enumerate() {
            if homes.is_empty() {
                continue;
            }
            let tier_print = fingerprint_of(durable, &self.media, choice);
            let tiers = self.media.image(choice, &mut self.buffer);
            let thorough = is_thorough(tier);
            for &home in homes {
                let print = mix(tier_print, home_prints[home], 0);
                let told = (cut.told as u64) << 1 | u64::from(thorough);
                if self.shared.is_known(mix(print, rests[home], told)) {
                    self.found.known += 1;
                    continue;
                }
                self.found.images += 1;
                self.found.distinct.insert(print);
                let id = ImageId { cut: index, tier, home };
                let (acked, position) = (cut.acked, cut.position);
                let (found, lent) = (plan.homes[home].0.home(), plan.homes[home].1.home());
                let state = CutState { tiers, home: found, lent, acked, position, id, thorough };
                let said = catch_unwind(AssertUnwindSafe(|| check(state)));
                let message = match said {
                    Ok(Ok(())) => continue,
                    Ok(Err(message)) => message,
                    Err(panic) => format!("the check panicked: {}", text_of(&*panic)),
                };
                let budget = *self.shared.budget;
                self.found.violations.push(Violation { id, position, acked, budget, message });
                let before = self.shared.violations.fetch_add(1, Ordering::Relaxed);
                if before + 1 >= budget.stop_after {
                    return;
                }
            }
        }
    }
}

fn is_thorough(tier: usize) -> bool {
    tier.is_multiple_of(8)
}

/// How many choices of each side to make when `most` pairs may be tried: all of both if that is no
/// more, else about equally many of both, and more of one when the other has few.
fn share(tier_count: u128, home_count: u128, most: usize) -> (usize, usize) {
    let cap =
        |count: u128, most: usize| usize::try_from(count).unwrap_or(usize::MAX).min(most.max(1));
    let even = most.isqrt().max(1);
    let homes = cap(home_count, even);
    let tiers = cap(tier_count, most / homes);
    (tiers, cap(home_count, most / tiers))
}

/// The choices in which nothing and everything of what is pending arrived.
fn corners(tiers: &[Choice], everything: &Choice) -> BTreeSet<usize> {
    let nothing = tiers.iter().position(|c| c.versions().iter().all(|v| *v == 0));
    nothing.into_iter().chain(tiers.iter().position(|c| c == everything)).collect()
}

/// Which homes each tier choice meets: the corners meet each other first, then all meet in turn
/// until there are `most` pairs.
fn pair_up(
    tiers: usize,
    homes: usize,
    most: usize,
    tier_corners: &BTreeSet<usize>,
    home_corners: &BTreeSet<usize>,
) -> Vec<Vec<usize>> {
    if tiers.saturating_mul(homes) <= most {
        return vec![(0..homes).collect(); tiers];
    }
    let mut pairs = vec![BTreeSet::new(); tiers];
    let mut left = most;
    let corner_pairs = tier_corners.iter().flat_map(|t| home_corners.iter().map(move |h| (*t, *h)));
    // A diagonal at a time: every tier choice meets one home before any meets a second.
    let in_turn = (0..homes).flat_map(|turn| (0..tiers).map(move |t| (t, (t + turn) % homes)));
    for (tier, home) in corner_pairs.chain(in_turn) {
        if left == 0 {
            break;
        }
        left -= usize::from(pairs[tier].insert(home));
    }
    pairs.into_iter().map(|set| set.into_iter().collect()).collect()
}

/// The fingerprint of media is a sum over their words, so that the one of an image follows from the
/// durable one and the words that differ, those of sectors among them. A word of zeros adds
/// nothing.
fn fingerprint(media: &[Vec<u8>]) -> u64 {
    let mut sum = 0u64;
    for (mapping, image) in media.iter().enumerate() {
        sum = sum.wrapping_add(mix(mapping as u64, image.len() as u64, 1));
        for (i, word) in image.as_chunks::<8>().0.iter().enumerate() {
            sum = sum.wrapping_add(word_print(mapping, i as u64 * 8, *word));
        }
    }
    sum
}

fn fingerprint_of(durable: u64, player: &Player, choice: &Choice) -> u64 {
    let mut sum = durable;
    for (word, version) in player.pending().iter().zip(choice.versions()) {
        let Some(newer) = usize::from(*version).checked_sub(1) else { continue };
        let at = word.at as usize;
        let older = player.durable()[word.mapping][at..]
            .first_chunk::<8>()
            .expect("BUG: a word beyond its image");
        sum = sum.wrapping_sub(word_print(word.mapping, word.at, *older));
        sum = sum.wrapping_add(word_print(word.mapping, word.at, word.values[newer]));
    }
    let chosen = &choice.versions()[player.pending().len()..];
    for (sector, version) in player.pending_sectors().iter().zip(chosen).filter(|(_, v)| **v > 0) {
        let range = sector.at as usize..sector.at as usize + sector.len;
        let older = player.durable()[sector.device][range].as_chunks::<8>().0;
        let newer = player.sector_version(sector, *version).as_chunks::<8>().0;
        for (at, (older, newer)) in (sector.at..).step_by(8).zip(older.iter().zip(newer)) {
            sum = sum.wrapping_sub(word_print(sector.device, at, *older));
            sum = sum.wrapping_add(word_print(sector.device, at, *newer));
        }
    }
    sum
}

fn word_print(mapping: usize, at: u64, word: [u8; 8]) -> u64 {
    match u64::from_le_bytes(word) {
        0 => 0,
        value => mix(value, at, mapping as u64 + 2),
    }
}

/// Mixes three numbers into one (the finalizer of `SplitMix64`, twice).
fn mix(a: u64, b: u64, c: u64) -> u64 {
    let finish = |x: u64| {
        let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    };
    let position =
        b.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(c.wrapping_mul(0xD1B5_4A32_D192_ED03));
    finish(finish(a.wrapping_add(0x9E37_79B9_7F4A_7C15)).wrapping_add(position))
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("")
}

/// The hash of a fingerprint is the fingerprint.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("BUG: only whole numbers are hashed");
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
}

#[cfg(test)]
mod tests {
    use super::pair_up;
    use std::collections::BTreeSet;

    #[test]
    fn corners_meet_each_other_before_the_budget_goes_to_other_pairs() {
        let (tier_corners, home_corners) = (BTreeSet::from([0, 9]), BTreeSet::from([1, 7]));
        for most in [4, 11, 60] {
            let pairs = pair_up(10, 10, most, &tier_corners, &home_corners);
            assert_eq!(pairs.iter().map(Vec::len).sum::<usize>(), most);
            for tier in [0, 9] {
                for home in [1, 7] {
                    assert!(
                        pairs[tier].contains(&home),
                        "tier {tier} does not meet home {home} of {most}"
                    );
                }
            }
        }
    }
}
