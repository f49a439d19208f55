//! How hot each file of a mounted home is: rates of reads, misses and writes, decayed, and what a
//! read from home and from the tier takes.
//!
//! Nothing is counted for it. The counters that each file has anyway are looked at every few
//! seconds, and the difference moves the rates: a rate is the mean of all intervals since the mount
//! began, in which an interval counts half as much for each [`HALF_LIVES_S`] that it is older. So a
//! rate is right from the first look on, of as long as there was something to see.
//!
//! **Invariant**: as many events as were counted between two looks go into the rates, whenever the
//! looks are.
//! **Deliberately absent**: files that have left the tier: their counts begin anew when they are
//! back. Which blocks of a file are hot.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tiersmith_store::{AttachedHome, FileClass, FileInTier, waits};

use super::links::read_of;

/// After how long an interval counts half as much: what is hot now, and what is worth a pin.
pub(crate) const HALF_LIVES_S: [f64; 2] = [60.0, 3600.0];
/// Seconds between two looks at the least: each goes over all files.
const LOOKS_APART_S: f64 = 1.0;
/// Files that are told of.
const FILES_MOST: usize = 20_000;
/// Bytes of PostgreSQL's control file.
const CONTROL_MOST: usize = 8192;

/// Blocks a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rates {
    /// Read from the tier.
    pub(crate) hits: f64,
    /// Read from home.
    pub(crate) misses: f64,
    /// Written to the tier by programs.
    pub(crate) writes: f64,
}

impl Rates {
    pub(crate) fn reads(&self) -> f64 {
        self.hits + self.misses
    }

    pub(crate) fn add(&mut self, other: &Rates) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.writes += other.writes;
    }

    fn map(mut self, f: impl Fn(f64) -> f64) -> Rates {
        for rate in [&mut self.hits, &mut self.misses, &mut self.writes] {
            *rate = f(*rate);
        }
        self
    }
}

/// A file, for `tiersmith hot`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HotFile {
    pub(crate) path: String,
    pub(crate) tier: String,
    /// Of class data: it can be pinned.
    pub(crate) is_data: bool,
    pub(crate) pinned: bool,
    pub(crate) lent: bool,
    pub(crate) size: u64,
    pub(crate) block_bytes: u64,
    pub(crate) in_tier_bytes: u64,
    /// For each of the half-lives.
    pub(crate) rates: [Rates; 2],
}

/// A tier, for `tiersmith hot`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HotTier {
    pub(crate) name: String,
    pub(crate) usable_bytes: u64,
    pub(crate) free_bytes: u64,
    /// What pinned files take, and may take.
    pub(crate) pinned_bytes: u64,
    pub(crate) pins_most_bytes: u64,
    /// Clean copies and newest blocks of files that are not pinned.
    pub(crate) others_bytes: u64,
}

/// What a mounted home says of its hot files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LiveHot {
    pub(crate) home: PathBuf,
    pub(crate) at: PathBuf,
    pub(crate) profile: String,
    pub(crate) emulated: bool,
    pub(crate) home_model: Option<String>,
    /// The number that PostgreSQL's initdb gave the cluster.
    pub(crate) cluster: Option<u64>,
    /// When the PostgreSQL server of this directory started, as its `postmaster.pid` says.
    #[serde(default)]
    pub(crate) server_started_unix_s: Option<i64>,
    /// For how long it was looked at.
    pub(crate) known_s: f64,
    pub(crate) half_lives_s: [f64; 2],
    /// What a block takes that is read from home, and from the tier, for each of the half-lives;
    /// absent where none was read.
    pub(crate) home_read_us: [Option<f64>; 2],
    pub(crate) tier_read_us: [Option<f64>; 2],
    pub(crate) tiers: Vec<HotTier>,
    pub(crate) files: Vec<HotFile>,
    /// Files that were used less than all of these.
    pub(crate) files_left_out: u64,
}

/// What was counted of a file up to a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    hits: u64,
    misses: u64,
    writes: u64,
}

impl Counts {
    /// What came since `last`. Counts are read one after the other while others add to them, so one
    /// may be a little behind what it was: then nothing came.
    fn since(self, last: Counts) -> Counts {
        Counts {
            hits: self.hits.saturating_sub(last.hits),
            misses: self.misses.saturating_sub(last.misses),
            writes: self.writes.saturating_sub(last.writes),
        }
    }

    /// The greater of each.
    fn max(self, last: Counts) -> Counts {
        Counts {
            hits: self.hits.max(last.hits),
            misses: self.misses.max(last.misses),
            writes: self.writes.max(last.writes),
        }
    }
}

/// A file, whatever its path is: its tier, and its number there.
type Key = (String, u64);

/// A file as a look finds it.
struct Found {
    key: Key,
    counts: Counts,
}

#[derive(Clone, Debug, Default)]
struct Seen {
    last: Counts,
    rates: [Rates; 2],
}

/// Reads of one kind: how long they took, and how many blocks they brought.
#[derive(Clone, Copy, Debug, Default)]
struct Waited {
    last: (u64, u64),
    ns: [f64; 2],
    blocks: [f64; 2],
}

impl Waited {
    fn look(&mut self, now: (u64, u64), passed_s: f64) {
        let came = (now.0.saturating_sub(self.last.0), now.1.saturating_sub(self.last.1));
        for (n, half_life_s) in HALF_LIVES_S.into_iter().enumerate() {
            self.ns[n] = decayed(self.ns[n], came.0, passed_s, half_life_s);
            self.blocks[n] = decayed(self.blocks[n], came.1, passed_s, half_life_s);
        }
        self.last = now;
    }

    fn us_per_block(&self) -> [Option<f64>; 2] {
        std::array::from_fn(|n| {
            let us = self.ns[n] / self.blocks[n] / 1e3;
            (self.blocks[n] > 0.0 && us.is_finite()).then_some(us)
        })
    }
}

/// A rate after so many more events in so many seconds. It begins at nothing; what is missing for
/// that is in [`Heat::weights`].
fn decayed(rate: f64, came: u64, passed_s: f64, half_life_s: f64) -> f64 {
    let kept = (-passed_s / half_life_s).exp2();
    rate * kept + came as f64 / passed_s * (1.0 - kept)
}

/// The heat of a home's files.
#[derive(Clone, Default)]
pub(super) struct Heat {
    /// When it was last looked at, in seconds since the first look.
    last_s: Option<f64>,
    began: Option<Instant>,
    /// How much of the mean is there: near 1 once a few half-lives have passed.
    weights: [f64; 2],
    files: HashMap<Key, Seen>,
    from_home: Waited,
    from_tier: Waited,
}

impl Heat {
    /// Looks at the counters of all files, unless that was done just before.
    pub(super) fn look(&mut self, home: &AttachedHome) {
        let now_s = self.began.get_or_insert_with(Instant::now).elapsed().as_secs_f64();
        if self.last_s.is_some_and(|last_s| now_s - last_s < LOOKS_APART_S) {
            return;
        }
        let Some(used) = home.used() else { return };
        let now_s = self.began.get_or_insert_with(Instant::now).elapsed().as_secs_f64();
        let used = used.into_iter().map(|file| {
            let (usage, block) = (&file.usage, file.block_size.bytes() as u64);
            let copied = usage.inserts.saturating_mul(block);
            let writes = usage.bytes_written.saturating_sub(copied) / block;
            let counts = Counts { hits: usage.hits, misses: usage.misses, writes };
            Found { key: (file.tier, file.id), counts }
        });
        let waited = home.events().read();
        let ns = |event| waited.event(event).total_ns();
        let from_home = (ns(waits::HOME_READ), waited.counter(waits::TIER_MISSES));
        let from_tier =
            (ns(waits::CACHED_READ) + ns(waits::DIRTY_READ), waited.counter(waits::TIER_HITS));
        self.look_at(now_s, used, from_home, from_tier);
    }

    fn look_at(
        &mut self,
        now_s: f64,
        found: impl IntoIterator<Item = Found>,
        from_home: (u64, u64),
        from_tier: (u64, u64),
    ) {
        let Some(last_s) = self.last_s.replace(now_s) else {
            // What was counted before has no time.
            (self.from_home.last, self.from_tier.last) = (from_home, from_tier);
            let first = |f: Found| (f.key, Seen { last: f.counts, ..Seen::default() });
            self.files = found.into_iter().map(first).collect();
            return;
        };
        let passed_s = now_s - last_s;
        if passed_s <= 0.0 {
            self.last_s = Some(last_s);
            return;
        }
        for (weight, half_life_s) in self.weights.iter_mut().zip(HALF_LIVES_S) {
            let kept = (-passed_s / half_life_s).exp2();
            *weight = *weight * kept + 1.0 - kept;
        }
        self.from_home.look(from_home, passed_s);
        self.from_tier.look(from_tier, passed_s);
        let mut before = std::mem::take(&mut self.files);
        for Found { key, counts } in found {
            // A file that is new to the tier: all of its counts are new.
            let mut seen = before.remove(&key).unwrap_or_default();
            let came = counts.since(seen.last);
            for (rates, half_life_s) in seen.rates.iter_mut().zip(HALF_LIVES_S) {
                let next = |rate, came| decayed(rate, came, passed_s, half_life_s);
                rates.hits = next(rates.hits, came.hits);
                rates.misses = next(rates.misses, came.misses);
                rates.writes = next(rates.writes, came.writes);
            }
            seen.last = counts.max(seen.last);
            let _ = self.files.insert(key, seen);
        }
    }

    fn rates(&self, tier: &str, id: u64) -> [Rates; 2] {
        let Some(seen) = self.files.get(&(tier.to_owned(), id)) else { return Default::default() };
        std::array::from_fn(|n| {
            seen.rates[n].map(|rate| rate / self.weights[n].max(f64::MIN_POSITIVE))
        })
    }

    /// What the daemon says; the caller has looked just before. Asks the home's file system, so no
    /// lock may be held.
    pub(super) fn live(&self, home: &AttachedHome, of: &super::live::Known) -> LiveHot {
        let (files, stats) = (home.files(), home.stats());
        let of_tier = |tier: &tiersmith_store::TierStats| {
            let here = || files.iter().filter(|file| file.tier == tier.name);
            let sum = |pinned: bool, bytes: fn(&FileInTier) -> u64| -> u64 {
                here().filter(|file| file.pinned == pinned).map(bytes).sum()
            };
            HotTier {
                name: tier.name.clone(),
                usable_bytes: tier.usable_bytes,
                free_bytes: tier.free_bytes,
                pinned_bytes: sum(true, |file| {
                    file.size.next_multiple_of(file.block_size.bytes() as u64)
                }),
                pins_most_bytes: tier.usable_bytes - tier.usable_bytes / 8,
                others_bytes: sum(false, in_tier),
            }
        };
        let tiers = stats.tiers.iter().map(of_tier).collect();
        let of_file = |file: &FileInTier| HotFile {
            path: file.path.display().to_string(),
            tier: file.tier.clone(),
            is_data: file.class == FileClass::Data,
            pinned: file.pinned,
            lent: file.lent,
            size: file.size,
            block_bytes: file.block_size.bytes() as u64,
            in_tier_bytes: in_tier(file),
            rates: self.rates(&file.tier, file.id),
        };
        let mut hot: Vec<HotFile> =
            files.iter().map(of_file).filter(|f| f.rates != <[Rates; 2]>::default()).collect();
        let used =
            |file: &HotFile| file.rates.map(|r| r.reads() + r.writes).into_iter().sum::<f64>();
        hot.sort_by(|a, b| used(b).total_cmp(&used(a)));
        let files_left_out = hot.len().saturating_sub(FILES_MOST) as u64;
        hot.truncate(FILES_MOST);
        LiveHot {
            home: of.home.clone(),
            at: of.at.clone(),
            profile: home.profile_name().to_owned(),
            emulated: stats.tiers.iter().any(|tier| tier.emulated),
            home_model: stats.home_model.clone(),
            cluster: cluster_of(home),
            server_started_unix_s: server_started_unix_s(home),
            known_s: self.last_s.unwrap_or_default(),
            half_lives_s: HALF_LIVES_S,
            home_read_us: self.from_home.us_per_block(),
            tier_read_us: self.from_tier.us_per_block(),
            tiers,
            files: hot,
            files_left_out,
        }
    }
}

/// What `global/pg_control` begins with, in the byte order of the machine that made it: of the one
/// that the server runs on, too.
fn cluster_of(home: &AttachedHome) -> Option<u64> {
    let control = read_of(home, "global/pg_control", CONTROL_MOST).ok()??;
    control.first_chunk().map(|number| u64::from_le_bytes(*number))
}

/// The third line of `postmaster.pid`.
fn server_started_unix_s(home: &AttachedHome) -> Option<i64> {
    let note = read_of(home, "postmaster.pid", CONTROL_MOST).ok()??;
    String::from_utf8_lossy(&note).lines().nth(2)?.trim().parse().ok()
}

fn in_tier(file: &FileInTier) -> u64 {
    (file.cached + file.dirty) * file.block_size.bytes() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that nobody but the test counts.
    fn found(id: u64, hits: u64, misses: u64) -> Found {
        Found { key: ("fast".into(), id), counts: Counts { hits, misses, writes: hits / 2 } }
    }

    fn rates(heat: &Heat) -> [Rates; 2] {
        heat.rates("fast", 1)
    }

    fn about(is: f64, should: f64) -> bool {
        (is - should).abs() <= should.abs() * 1e-9
    }

    #[test]
    fn a_steady_rate_is_right_from_the_second_look_on_however_often_one_looks() {
        for every_s in [0.001, 5.0, 700.0] {
            let mut heat = Heat::default();
            for n in 0..40_u64 {
                // A thousand a look; what was counted before the first has no time.
                let counted = 5_000_000 + n * 1000;
                heat.look_at(n as f64 * every_s, [found(1, counted, n * 10)], (0, 0), (0, 0));
                if n > 0 {
                    for rates in rates(&heat) {
                        assert!(about(rates.hits, 1000.0 / every_s), "{every_s} {n}: {rates:?}");
                        assert!(about(rates.misses, 10.0 / every_s), "{every_s} {n}: {rates:?}");
                        assert!(about(rates.writes, 500.0 / every_s), "{every_s} {n}: {rates:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_rate_halves_in_its_half_life_and_not_before() {
        let mut heat = Heat::default();
        let mut counted = 0;
        // A day: then the mean has all its weight.
        for n in 0..=17_280_u64 {
            counted = n * 500;
            heat.look_at(n as f64 * 5.0, [found(1, counted, 0)], (0, 0), (0, 0));
        }
        assert!(rates(&heat).iter().all(|rates| about(rates.hits, 100.0)), "{:?}", rates(&heat));
        for n in 1..=12 {
            heat.look_at(86_400.0 + f64::from(n) * 5.0, [found(1, counted, 0)], (0, 0), (0, 0));
        }
        let [minute, hour] = rates(&heat).map(|rates| rates.hits);
        assert!((minute - 50.0).abs() < 1e-3, "after a minute: {minute}");
        assert!((hour - 100.0 * (-1.0_f64 / 60.0).exp2()).abs() < 1e-3, "after a minute: {hour}");
        heat.look_at(86_400.0 + 3600.0, [found(1, counted, 0)], (0, 0), (0, 0));
        assert!((rates(&heat)[1].hits - 50.0).abs() < 1e-3, "{:?}", rates(&heat));
    }

    #[test]
    fn a_file_that_is_new_or_comes_back_begins_at_nothing() {
        let mut heat = Heat::default();
        heat.look_at(0.0, [found(2, 9000, 0)], (0, 0), (0, 0));
        heat.look_at(10.0, [found(1, 100, 0)], (0, 0), (0, 0));
        assert!(about(rates(&heat)[0].hits, 10.0), "another file: {:?}", rates(&heat));
        heat.look_at(20.0, [], (0, 0), (0, 0));
        assert_eq!(rates(&heat)[0], Rates::default(), "it has left the tier");
    }

    #[test]
    fn a_count_that_is_read_a_little_behind_is_not_a_lifetime_of_new_ones() {
        let mut heat = Heat::default();
        let at = |writes| {
            let counts = Counts { hits: 1_000_000_000, misses: 1_000_000, writes };
            Found { counts, ..found(1, 0, 0) }
        };
        heat.look_at(0.0, [at(101)], (0, 0), (0, 0));
        heat.look_at(5.0, [at(100)], (0, 0), (0, 0));
        assert_eq!(rates(&heat), [Rates::default(); 2]);
        // Nor is it counted twice when it has come up.
        heat.look_at(10.0, [at(101)], (0, 0), (0, 0));
        assert_eq!(rates(&heat), [Rates::default(); 2]);
    }

    #[test]
    fn two_files_of_one_path_are_two_and_so_are_two_of_one_number_in_two_tiers() {
        let mut heat = Heat::default();
        // One was removed and is open still; the order of a look is any.
        for (at, looked) in [(0.0, [1, 2, 3]), (5.0, [2, 1, 3]), (10.0, [1, 2, 3])] {
            let found = looked.map(|id| match id {
                3 => Found { key: ("other".into(), 1), ..found(1, 7, 7) },
                _ => found(id, 1_000_000 * id, 0),
            });
            heat.look_at(at, found, (0, 0), (0, 0));
        }
        for (tier, id) in [("fast", 1), ("fast", 2), ("other", 1)] {
            assert_eq!(heat.rates(tier, id), [Rates::default(); 2], "{tier} {id}");
        }
    }

    #[test]
    fn two_looks_at_one_instant_lose_nothing() {
        let mut heat = Heat::default();
        heat.look_at(0.0, [found(1, 0, 0)], (0, 0), (0, 0));
        heat.look_at(1.0, [found(1, 10, 0)], (0, 0), (0, 0));
        heat.look_at(1.0, [found(1, 20, 0)], (0, 0), (0, 0));
        heat.look_at(2.0, [found(1, 20, 0)], (0, 0), (0, 0));
        let hits = rates(&heat)[1].hits;
        assert!((hits - 10.0).abs() < 0.01, "{hits}");
    }

    #[test]
    fn what_a_read_takes_is_of_the_blocks_that_it_brought() {
        let mut heat = Heat::default();
        heat.look_at(0.0, [], (5_000_000, 1), (0, 0));
        assert_eq!(heat.from_home.us_per_block(), [None, None]);
        heat.look_at(5.0, [], (6_000_000, 11), (0, 0));
        assert!(heat.from_home.us_per_block().iter().all(|us| about(us.unwrap(), 100.0)));
        assert_eq!(heat.from_tier.us_per_block(), [None, None]);
    }
}
