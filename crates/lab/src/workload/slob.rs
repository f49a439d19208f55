//! SLOB's method: random reads and updates of tables that hold one row per block.
//!
//! After SLOB 2.5.3 (Silly Little Oracle Benchmark, Kevin Closson): `slob.sql`,
//! `misc/procedure.sql` and `runit.sh`. The order of decisions in an iteration is that of
//! `slob.sql`: think time, hot schema, block, hot spot, update or select, scan or random.
//!
//! Where this differs from SLOB, and why:
//!
//! | SLOB | here | because |
//! |---|---|---|
//! | a block number is a random real, rounded: the two at the ends come half as often | uniform integers | two blocks of ten thousand |
//! | the random generator is not seeded | seeded: schema and session have generators of their own | a run can be repeated |
//! | think time is a multiple of 0.01 s | any time between the two | |
//! | smallest scale 10000 blocks | smaller is allowed, and the result says that it is doubtful | tests |
//! | closed loop only | optional arrivals at a fixed rate, latency from the intended start | a closed loop hides stalls |
//! | the load ends the test 30 s after a warm-up that is part of RUN_TIME | the warm-up is beside RUN_TIME | the figure is the interval asked for |
//!
//! **Invariant**: in a window of 100 operations there are at most UPDATE_PCT updates, and of 100
//! selects at most SCAN_PCT scans.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Operation, Plan, Step};
use crate::error::{Error, Result};
use crate::size::ByteSize;

/// Operations in a window of the quotas.
const WINDOW: u32 = 100;
/// SLOB refuses a scale of fewer blocks.
pub const SLOB_SCALE_MIN_BLOCKS: u64 = 10_000;

/// How many columns an update writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum RedoStress {
    /// c2 and c20.
    #[default]
    Lite,
    /// c2 to c20: nineteen columns.
    Heavy,
}

/// A region that is visited more often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HotSpot {
    /// HOTSPOT_MB: its size in MiB.
    pub mib: u64,
    /// HOTSPOT_OFFSET_MB: where it begins, in MiB.
    pub offset_mib: u64,
    /// HOTSPOT_FREQUENCY: every n-th operation goes there.
    pub frequency: u64,
}

/// Pauses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThinkTime {
    /// THINK_TM_FREQUENCY: about one operation in n is preceded by a pause.
    pub frequency: u64,
    /// THINK_TM_MIN, in seconds.
    pub min_s: f64,
    /// THINK_TM_MAX, in seconds.
    pub max_s: f64,
}

/// SLOB's parameters; the defaults are those of `slob.conf`, but for the scale and the scan table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// UPDATE_PCT: updates in a hundred operations; 0 to 50, or 100.
    pub update_pct: u32,
    /// SCAN_PCT: scans in a hundred selects; 0 to 50, or 100.
    pub scan_pct: u32,
    /// WORK_LOOP: iterations of each session; 0: until RUN_TIME is over.
    pub work_loop: u64,
    /// SCALE: bytes of the table of one schema; one row is one block.
    pub scale: ByteSize,
    /// SCAN_TABLE_SZ: bytes of the scan table.
    pub scan_table: ByteSize,
    /// WORK_UNIT: an operation touches WORK_UNIT - 1 rows, as in SLOB.
    pub work_unit: u32,
    /// REDO_STRESS.
    pub redo_stress: RedoStress,
    /// Schemas: `runit.sh -s`.
    pub schemas: u32,
    /// THREADS_PER_SCHEMA: `runit.sh -t`.
    pub threads_per_schema: u32,
    /// DO_HOTSPOT and its parameters; absent: no.
    pub hot_spot: Option<HotSpot>,
    /// HOT_SCHEMA_FREQUENCY: every n-th operation goes to the first schema; 0: none.
    pub hot_schema_frequency: u64,
    /// THINK_TM; absent: no.
    pub think_time: Option<ThinkTime>,
    /// Not SLOB's. Operations per second over all sessions, at fixed times whether or not the last
    /// one has ended; 0: each session goes on when its last operation ends, as SLOB does.
    pub arrivals_per_s: f64,
    /// Not SLOB's. The first state of the random generators.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            update_pct: 10,
            scan_pct: 0,
            work_loop: 0,
            scale: ByteSize(80 << 20),
            scan_table: ByteSize(1 << 20),
            work_unit: 64,
            redo_stress: RedoStress::Lite,
            schemas: 1,
            threads_per_schema: 1,
            hot_spot: None,
            hot_schema_frequency: 0,
            think_time: None,
            arrivals_per_s: 0.0,
            seed: 1,
        }
    }
}

fn refuse<T>(setting: &'static str, value: impl ToString, reason: impl Into<String>) -> Result<T> {
    Err(Error::Setting { setting, value: value.to_string(), reason: reason.into() })
}

impl Settings {
    /// Whether these settings make a load on blocks of `block_bytes`.
    ///
    /// # Errors
    /// [`Error::Setting`] names the first setting that is out of range.
    pub fn check(&self, block_bytes: u64) -> Result<()> {
        for (setting, pct) in [("update_pct", self.update_pct), ("scan_pct", self.scan_pct)] {
            if pct > 100 {
                return refuse(setting, pct, "a percentage is 0 to 100");
            }
            if (51..=99).contains(&pct) {
                return refuse(
                    setting,
                    pct,
                    "SLOB refuses 51 to 99, because half the blocks have an even number and the \
                     quota of a window of 100 could not \
                     be filled; give 0 to 50, or 100",
                );
            }
        }
        if self.work_unit < 2 {
            return refuse(
                "work_unit",
                self.work_unit,
                "an operation touches work_unit - 1 rows; give 2 or more",
            );
        }
        for (setting, number, most) in
            [("schemas", self.schemas, 4096), ("threads_per_schema", self.threads_per_schema, 4096)]
        {
            if !(1..=most).contains(&number) {
                return refuse(setting, number, format!("give 1 to {most}"));
            }
        }
        let blocks = self.blocks(block_bytes);
        if blocks < 2 * u64::from(self.work_unit) + 1 {
            let reason = format!(
                "that is {blocks} blocks of {block_bytes} bytes, and a random block needs \
                 work_unit = {} blocks on both sides",
                self.work_unit
            );
            return refuse("scale", self.scale, reason);
        }
        if blocks > 1 << 40 {
            return refuse("scale", self.scale, "more than a million million blocks");
        }
        if self.scan_blocks(block_bytes) < 4 {
            return refuse(
                "scan_table",
                self.scan_table,
                "SLOB's smallest scan table has 4 blocks",
            );
        }
        self.check_hot_spot(block_bytes)?;
        self.check_pace()
    }

    /// Whether think time and arrivals are in range and do not contradict each other.
    fn check_pace(&self) -> Result<()> {
        if let Some(think) = self.think_time {
            if think.frequency == 0 {
                return refuse("think_time.frequency", 0, "leave think_time out for no think time");
            }
            if !(think.min_s >= 0.0 && think.min_s <= think.max_s && think.max_s <= 3600.0) {
                let value = format!("{} to {} s", think.min_s, think.max_s);
                return refuse("think_time", value, "give 0 <= min_s <= max_s <= 3600");
            }
        }
        if !(0.0..=1e9).contains(&self.arrivals_per_s) {
            return refuse(
                "arrivals_per_s",
                self.arrivals_per_s,
                "give a rate up to 1e9, or 0 for a closed loop",
            );
        }
        if self.arrivals_per_s > 0.0 && self.think_time.is_some() {
            return refuse(
                "arrivals_per_s",
                self.arrivals_per_s,
                "a fixed rate already says when operations begin; leave think_time out",
            );
        }
        Ok(())
    }

    fn check_hot_spot(&self, block_bytes: u64) -> Result<()> {
        let Some(hot) = self.hot_spot else { return Ok(()) };
        if hot.frequency == 0 {
            return refuse("hot_spot.frequency", 0, "leave hot_spot out for no hot spot");
        }
        let (first, blocks) = hot.blocks(block_bytes);
        if blocks < u64::from(self.work_unit) + 1 {
            let reason = format!(
                "that is {blocks} blocks, and an operation needs work_unit = {} and one more",
                self.work_unit
            );
            return refuse("hot_spot.mib", hot.mib, reason);
        }
        let all = self.blocks(block_bytes);
        if first.checked_add(blocks).is_none_or(|end| end > all) {
            let reason = format!(
                "the hot spot would end after the last of {all} blocks; make it smaller or the \
                 scale larger"
            );
            return refuse("hot_spot.offset_mib", hot.offset_mib, reason);
        }
        Ok(())
    }

    /// Blocks, and so rows, of the table of one schema.
    pub fn blocks(&self, block_bytes: u64) -> u64 {
        self.scale.bytes() / block_bytes
    }

    /// Blocks of the scan table.
    pub fn scan_blocks(&self, block_bytes: u64) -> u64 {
        self.scan_table.bytes() / block_bytes
    }

    /// Sessions: schemas times threads per schema.
    pub fn sessions(&self) -> u32 {
        self.schemas * self.threads_per_schema
    }

    /// The plan of one session of one schema.
    pub fn plan(&self, schema: u32, thread: u32, block_bytes: u64) -> SlobPlan {
        // Far apart for neighbouring sessions: fastrand's first numbers follow its seed.
        let session = u64::from(schema) << 32 | u64::from(thread);
        let seed = self.seed.wrapping_add(session.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut random = fastrand::Rng::with_seed(seed);
        let seed = random.u64(..);
        SlobPlan {
            settings: self.clone(),
            hot: self.hot_spot.map(|hot| hot.blocks(block_bytes)),
            blocks: self.blocks(block_bytes),
            schema,
            random: fastrand::Rng::with_seed(seed),
            iteration: 0,
            block: 1,
            window: Quota::new(self.update_pct),
            scans: Quota::new(self.scan_pct),
        }
    }
}

impl HotSpot {
    /// The block before the first, and how many.
    fn blocks(&self, block_bytes: u64) -> (u64, u64) {
        let blocks = |mib: u64| mib.saturating_mul(1 << 20) / block_bytes;
        (blocks(self.offset_mib), blocks(self.mib))
    }
}

/// So many of each window of 100 draws.
#[derive(Clone, Debug)]
struct Quota {
    pct: u32,
    drawn: u32,
    taken: u32,
}

impl Quota {
    fn new(pct: u32) -> Quota {
        Quota { pct, drawn: 0, taken: 0 }
    }

    /// Whether this draw is taken: always or never at 100 and 0, else when `even` until the quota
    /// of the window is full.
    fn draw(&mut self, even: bool) -> bool {
        match self.pct {
            0 => return false,
            100 => return true,
            _ => {}
        }
        let take = even && self.taken < self.pct;
        self.taken += u32::from(take);
        self.drawn += 1;
        if self.drawn == WINDOW {
            (self.drawn, self.taken) = (0, 0);
        }
        take
    }
}

/// The steps of one session.
#[derive(Debug)]
pub struct SlobPlan {
    settings: Settings,
    /// The block before the hot spot's first, and its blocks.
    hot: Option<(u64, u64)>,
    blocks: u64,
    schema: u32,
    random: fastrand::Rng,
    iteration: u64,
    /// The block before.
    block: u64,
    window: Quota,
    scans: Quota,
}

impl SlobPlan {
    /// The pause before this step: by the block before it, as `slob.sql` does, so about one in
    /// `frequency`.
    fn think(&mut self) -> Option<Duration> {
        let think = self.settings.think_time?;
        self.block.is_multiple_of(think.frequency).then(|| {
            Duration::from_secs_f64(think.min_s + self.random.f64() * (think.max_s - think.min_s))
        })
    }

    fn pick(&mut self) -> u64 {
        let unit = u64::from(self.settings.work_unit);
        // Drawn in any case, so that a hot spot does not change the blocks of the other operations.
        let anywhere = self.random.u64(unit + 1..=self.blocks - unit);
        match (self.settings.hot_spot, self.hot) {
            (Some(hot), Some((base, blocks))) if self.iteration.is_multiple_of(hot.frequency) => {
                self.random.u64(base + 1..=base + blocks - unit)
            }
            _ => anywhere,
        }
    }
}

impl Plan for SlobPlan {
    fn next(&mut self) -> Step {
        self.iteration += 1;
        let think = self.think();
        let hot_schema = self.settings.hot_schema_frequency;
        let schema = if hot_schema > 0 && self.iteration.is_multiple_of(hot_schema) {
            0
        } else {
            self.schema
        };
        self.block = self.pick();
        let range = |block: u64, unit: u32| (block as i64 - i64::from(unit), block as i64);
        let (after, before) = range(self.block, self.settings.work_unit);
        let operation = if self.window.draw(self.block.is_multiple_of(2)) {
            Operation::Update { after, before }
        } else if self.scans.draw(self.iteration.is_multiple_of(2)) {
            Operation::Scan
        } else {
            Operation::Select { after, before }
        };
        Step { think, schema, operation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;

    fn settings() -> Settings {
        Settings { scale: ByteSize(2_000 * BLOCK), ..Settings::default() }
    }

    fn steps(settings: &Settings, count: usize) -> Vec<Step> {
        settings.check(BLOCK).unwrap();
        let mut plan = settings.plan(1, 0, BLOCK);
        (0..count).map(|_| plan.next()).collect()
    }

    fn updates(steps: &[Step]) -> usize {
        steps.iter().filter(|s| matches!(s.operation, Operation::Update { .. })).count()
    }

    #[test]
    fn fifty_one_to_ninety_nine_per_cent_are_refused_as_slob_does() {
        for pct in 0..=101 {
            let allowed = pct <= 50 || pct == 100;
            assert_eq!(
                Settings { update_pct: pct, ..settings() }.check(BLOCK).is_ok(),
                allowed,
                "{pct}"
            );
            assert_eq!(
                Settings { scan_pct: pct, ..settings() }.check(BLOCK).is_ok(),
                allowed,
                "{pct}"
            );
        }
    }

    #[test]
    fn a_quarter_of_updates_fills_its_quota_in_every_window_and_never_more() {
        let steps = steps(&Settings { update_pct: 25, ..settings() }, 10_000);
        let windows: Vec<usize> = steps.chunks(100).map(updates).collect();
        assert!(windows.iter().all(|n| *n <= 25));
        assert!(windows.iter().filter(|n| **n == 25).count() >= 99, "{windows:?}");
    }

    #[test]
    fn updates_come_first_in_a_window_at_even_blocks_until_the_quota_is_full() {
        let steps = steps(&Settings { update_pct: 10, ..settings() }, 100);
        let mut left = 10;
        for step in steps {
            let (update, before) = match step.operation {
                Operation::Update { before, .. } => (true, before),
                Operation::Select { before, .. } => (false, before),
                Operation::Scan => panic!("no scans were asked for"),
            };
            assert_eq!(update, before % 2 == 0 && left > 0);
            left -= u32::from(update);
        }
    }

    #[test]
    fn zero_and_a_hundred_per_cent_are_fixed() {
        assert_eq!(updates(&steps(&Settings { update_pct: 0, ..settings() }, 500)), 0);
        assert_eq!(updates(&steps(&Settings { update_pct: 100, ..settings() }, 500)), 500);
        let scans = steps(&Settings { update_pct: 0, scan_pct: 100, ..settings() }, 50);
        assert!(scans.iter().all(|s| s.operation == Operation::Scan));
    }

    #[test]
    fn scans_have_a_quota_of_the_selects() {
        let steps = steps(&Settings { update_pct: 0, scan_pct: 20, ..settings() }, 1_000);
        for window in steps.chunks(100) {
            assert_eq!(window.iter().filter(|s| s.operation == Operation::Scan).count(), 20);
        }
    }

    #[test]
    fn an_operation_touches_one_row_less_than_the_work_unit_and_stays_in_the_table() {
        let settings = Settings { work_unit: 64, ..settings() };
        let mut seen = (i64::MAX, i64::MIN);
        for step in steps(&settings, 100_000) {
            let (Operation::Select { after, before } | Operation::Update { after, before }) =
                step.operation
            else {
                panic!("no scans were asked for")
            };
            assert_eq!(before - after - 1, 63);
            seen = (seen.0.min(before), seen.1.max(before));
        }
        assert_eq!(seen, (65, 2_000 - 64));
    }

    #[test]
    fn every_third_operation_goes_to_the_hot_spot() {
        let hot = HotSpot { mib: 1, offset_mib: 2, frequency: 3 };
        let plain = steps(&settings(), 999);
        let steps = steps(&Settings { hot_spot: Some(hot), ..settings() }, 999);
        for (n, step) in steps.iter().enumerate() {
            let (Operation::Select { before, .. } | Operation::Update { before, .. }) =
                step.operation
            else {
                continue;
            };
            if (n + 1) % 3 == 0 {
                assert!((513..=512 + 256 - 64).contains(&before), "{before}");
            }
        }
        assert_eq!(plain[0], steps[0]);
    }

    #[test]
    fn a_hot_spot_past_the_end_is_refused() {
        let hot = HotSpot { mib: 4, offset_mib: 6, frequency: 3 };
        let error = Settings { hot_spot: Some(hot), ..settings() }.check(BLOCK).unwrap_err();
        assert!(error.to_string().contains("hot_spot.offset_mib"), "{error}");
    }

    #[test]
    fn every_nth_operation_of_each_session_goes_to_the_hot_schema() {
        let steps = steps(&Settings { schemas: 4, hot_schema_frequency: 5, ..settings() }, 100);
        for (n, step) in steps.iter().enumerate() {
            assert_eq!(step.schema, if (n + 1) % 5 == 0 { 0 } else { 1 });
        }
    }

    #[test]
    fn think_time_comes_about_once_in_its_frequency_and_within_its_limits() {
        let think = ThinkTime { frequency: 10, min_s: 0.1, max_s: 0.5 };
        let steps = steps(&Settings { think_time: Some(think), ..settings() }, 10_000);
        let pauses: Vec<Duration> = steps.iter().filter_map(|s| s.think).collect();
        assert!((800..1200).contains(&pauses.len()), "{}", pauses.len());
        assert!(pauses.iter().all(|p| (0.1..=0.5).contains(&p.as_secs_f64())));
    }

    #[test]
    fn the_same_seed_gives_the_same_steps_and_sessions_differ() {
        let settings = Settings { update_pct: 25, schemas: 2, ..settings() };
        assert_eq!(steps(&settings, 200), steps(&settings, 200));
        assert_ne!(steps(&settings, 200), steps(&Settings { seed: 2, ..settings.clone() }, 200));
        let first = |schema, thread| {
            let mut plan = settings.plan(schema, thread, BLOCK);
            (0..20).map(|_| plan.next().operation).collect::<Vec<_>>()
        };
        assert_ne!(first(0, 0), first(0, 1));
        assert_ne!(first(0, 0), first(1, 0));
    }

    #[test]
    fn settings_that_make_no_load_are_refused_with_a_sentence() {
        let good = settings();
        let refused = [
            Settings { work_unit: 1, ..good.clone() },
            Settings { scale: ByteSize(100 * BLOCK), ..good.clone() },
            Settings { schemas: 0, ..good.clone() },
            Settings { threads_per_schema: 0, ..good.clone() },
            Settings { scan_table: ByteSize(BLOCK), ..good.clone() },
            Settings {
                think_time: Some(ThinkTime { frequency: 1, min_s: 2.0, max_s: 1.0 }),
                ..good.clone()
            },
            Settings {
                think_time: Some(ThinkTime { frequency: 1, min_s: f64::NAN, max_s: 1.0 }),
                ..good.clone()
            },
            Settings { arrivals_per_s: f64::NAN, ..good.clone() },
            Settings { arrivals_per_s: -1.0, ..good.clone() },
            Settings {
                hot_spot: Some(HotSpot { mib: u64::MAX, offset_mib: u64::MAX, frequency: 1 }),
                ..good
            },
        ];
        for settings in refused {
            let error = settings.check(BLOCK).unwrap_err().to_string();
            assert!(error.starts_with("the setting ") && error.contains("is refused: "), "{error}");
        }
    }
}
