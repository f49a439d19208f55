//! A day's write budget, by the clock of a simulated home: how much is written with one, from which
//! requests, after idle hours, beside programs that write, and after restarts.
//!
//! Deliberately absent: whether what is taken hits more than what chance would take
//! (`benches/hit_ratio`).

use crate::place;
use std::path::Path;
use std::sync::Arc;
use tiersmith_pmem::Mapping;
use tiersmith_store::home::SimHome;
use tiersmith_store::{
    AttachedHome, BudgetUse, CacheRules, File, FileClass, Medium, OpenMode, Options, Skip,
    TierSpec, WriteBudget, testing,
};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 8192;
const BLOCKS: u64 = 4096;
const TIER: u64 = 8 * MIB;
const NS_PER_S: u64 = 1_000_000_000;
const HOUR_S: u64 = 3600;
const DAY_S: u64 = 24 * HOUR_S;
/// How far the clock goes on at a time.
const TICK_S: u64 = 30;
/// Reads in a tick of a busy hour.
const READS: u64 = 40;

/// A simulated home, attached, and what reads it.
struct Scene {
    home: Arc<SimHome>,
    mapping: Arc<Mapping>,
    budget: Option<WriteBudget>,
    cache: CacheRules,
    attached: Option<AttachedHome>,
    file: Option<File>,
    random: fastrand::Rng,
    s: u64,
}

impl Scene {
    /// At midnight.
    fn new(budget: Option<WriteBudget>) -> Self {
        Self::with(budget, CacheRules::default())
    }

    fn with(budget: Option<WriteBudget>, cache: CacheRules) -> Self {
        let home = Arc::new(SimHome::new(None));
        home.put(Path::new("a.d8"), &vec![7; (BLOCKS * BLOCK) as usize]).unwrap();
        home.put(Path::new("w.d8"), &vec![7; 64 * BLOCK as usize]).unwrap();
        home.rebase();
        home.pass_time(DAY_S * NS_PER_S - home_ns(&home) % (DAY_S * NS_PER_S));
        let mapping = Arc::new(Mapping::in_memory(&vec![0; TIER as usize], 0));
        let random = fastrand::Rng::with_seed(7);
        let mut scene =
            Self { home, mapping, budget, cache, attached: None, file: None, random, s: 0 };
        scene.attach();
        scene
    }

    fn attach(&mut self) {
        let spec = TierSpec { medium: Medium::Emulated, ..place::small("fast".into(), TIER) };
        let options =
            Options { write_budget: self.budget, cache: self.cache.clone(), ..place::options() };
        let tiers = vec![(spec, vec![self.mapping.clone()])];
        let home = self.home.clone();
        let attached = testing::attach_simulated(home, tiers, &place::profile(), options).unwrap();
        self.file = Some(attached.open("a.d8", OpenMode::WRITE).unwrap());
        self.attached = Some(attached);
    }

    /// Killed, and attached again.
    fn kill(&mut self) {
        let bytes = place::image(&self.mapping);
        (self.file, self.attached) = (None, None);
        self.home = Arc::new(SimHome::from_image(&self.home.snapshot(), None));
        self.mapping = Arc::new(Mapping::in_memory(&bytes, 0));
        self.attach();
    }

    fn attached(&self) -> &AttachedHome {
        self.attached.as_ref().unwrap()
    }

    /// Reads as a database with a working set does that moves on: most of what is asked for is near
    /// the set's beginning.
    fn read(&mut self, reads: u64) {
        let mut block = [0; BLOCK as usize];
        for _ in 0..reads {
            let skewed = self.random.f64().powi(3) * BLOCKS as f64;
            // Not one block after the other, which would be a scan.
            let at = (skewed as u64 + self.s / 60) * 1103 % BLOCKS * BLOCK;
            self.file.as_ref().unwrap().read(at, &mut block).unwrap();
        }
    }

    /// Time goes on with so many reads, and bytes written, every [`TICK_S`].
    fn go_on(&mut self, s: u64, reads: u64, written: u64) {
        let writes = self.attached().open("w.d8", OpenMode::WRITE).unwrap();
        for n in 0..s / TICK_S {
            self.home.pass_time(TICK_S * NS_PER_S);
            self.s += TICK_S;
            self.read(reads);
            for block in 0..written / BLOCK {
                let at = (n * 7 + block) % 64 * BLOCK;
                writes.write(at, &[n as u8; BLOCK as usize]).unwrap();
            }
            self.attached().background_step().unwrap();
        }
    }

    /// Bytes copied since the attach, and blocks skipped for want of a budget.
    fn copied(&self) -> (u64, u64) {
        let usage = self.attached().stats().usage(FileClass::Data);
        (usage.inserts * BLOCK, usage.skips[Skip::Budget as usize])
    }

    fn budget_use(&self) -> BudgetUse {
        self.attached().stats().tiers[0].write_budget.unwrap()
    }
}

fn home_ns(home: &SimHome) -> u64 {
    tiersmith_store::home::Home::now_ns(home)
}

/// What the same reads copy in a day without a budget.
fn demand() -> u64 {
    let mut scene = Scene::new(None);
    scene.go_on(DAY_S, READS, 0);
    let (copied, skipped) = scene.copied();
    assert_eq!(skipped, 0, "there is no budget");
    assert_eq!(scene.attached().stats().tiers[0].write_budget, None);
    copied
}

/// Within 5 % of it.
fn assert_kept(what: &str, written: u64, budget: u64) {
    let percent = 100.0 * written as f64 / budget as f64;
    println!("{what}: {percent:.2} % of the budget");
    assert!((95.0..=105.0).contains(&percent), "{what}: {percent:.2} % of the budget");
}

#[test]
fn where_more_is_asked_for_a_day_has_its_budget_within_five_percent() {
    let demand = demand();
    for (name, budget) in [("half", demand / 2), ("a fifth", demand / 5)] {
        let mut scene = Scene::new(Some(WriteBudget::Bytes(budget)));
        for day in 0..2 {
            let (before, _) = scene.copied();
            for quarter in 0..4 {
                // The last tick of a day is before midnight.
                let s = DAY_S / 4 - if quarter == 3 { TICK_S } else { 0 };
                scene.go_on(s, READS, 0);
                let (copied, skipped) = scene.copied();
                let evenly = budget * (quarter + 1) / 4;
                let so_far = (copied - before) as f64 / evenly as f64;
                assert!((0.9..=1.0).contains(&so_far), "{name}, quarter {quarter}: {so_far}");
                assert!(skipped > 0);
            }
            let used = scene.budget_use();
            let (copied, _) = scene.copied();
            assert_eq!((used.bytes_a_day, used.copied_today), (budget, copied - before));
            assert_eq!(used.written_today, used.copied_today, "no program writes");
            assert_kept(&format!("{name} of the demand, day {day}"), copied - before, budget);
            scene.go_on(TICK_S, READS, 0);
            assert!(scene.budget_use().copied_today < budget / 100, "a new day has begun");
        }
        let threshold = scene.budget_use().threshold.unwrap();
        assert!(threshold < 0.9 * scene.budget_use().threshold_most, "{name}: {threshold}");
    }
}

#[test]
fn it_is_the_threshold_that_keeps_a_budget_and_the_limit_has_hardly_to() {
    let budget = demand() / 4;
    let mut scene = Scene::new(Some(WriteBudget::Bytes(budget)));
    scene.go_on(6 * HOUR_S, READS, 0);
    // The limit is at the end: with its room, and no more of what the policy would let in.
    let saved = budget / 4 - scene.budget_use().copied_today;
    assert!(saved >= BLOCK, "the limit is not what is met all the time: {saved} bytes are left");
    scene.home.pass_time(HOUR_S * NS_PER_S);
    let (before, _) = scene.copied();
    let threshold = scene.budget_use().threshold.unwrap();
    scene.read(READS * 60 * HOUR_S / TICK_S / 60);
    let (after, _) = scene.copied();
    let hours = (after - before) as f64 / (budget as f64 / 24.0);
    assert!(
        (0.5..=2.0).contains(&hours),
        "by the threshold {threshold} an hour's reads are let in for {hours:.2} hours of budget, \
         and there is one saved"
    );
}

#[test]
fn a_budget_above_what_is_asked_for_changes_nothing() {
    let demand = demand();
    let mut scene = Scene::new(Some(WriteBudget::Bytes(40 * demand)));
    scene.go_on(DAY_S - TICK_S, READS, 0);
    let used = scene.budget_use();
    let share = used.copied_today as f64 / demand as f64;
    assert!((0.97..=1.03).contains(&share), "{share} of the demand");
    assert_eq!(used.threshold, Some(used.threshold_most));
}

#[test]
fn what_an_idle_morning_saved_is_used_the_same_day_and_not_the_next() {
    let budget = demand() / 3;
    let mut scene = Scene::new(Some(WriteBudget::Bytes(budget)));
    scene.go_on(DAY_S / 2, 0, 0);
    scene.go_on(HOUR_S, READS, 0);
    let hours = scene.budget_use().copied_today as f64 / (budget as f64 / 24.0);
    assert!((1.5..=3.0).contains(&hours), "spread over the rest of the day: {hours} hours' worth");
    scene.go_on(DAY_S / 2 - HOUR_S - TICK_S, READS, 0);
    assert_kept("after an idle morning", scene.budget_use().copied_today, budget);
    // An idle day leaves nothing.
    scene.go_on(DAY_S + TICK_S, 0, 0);
    scene.go_on(HOUR_S, READS, 0);
    assert!(scene.budget_use().copied_today <= budget / 24 + budget / 100);
}

#[test]
fn programs_write_what_they_like_and_copies_get_what_is_left() {
    let budget = demand() / 2;
    let a_tick =
        |share: f64| (budget as f64 * share / (DAY_S / TICK_S) as f64) as u64 / BLOCK * BLOCK;
    let written = a_tick(0.6);
    assert!(written > 0);
    let mut scene = Scene::new(Some(WriteBudget::Bytes(budget)));
    scene.go_on(DAY_S - TICK_S, READS, written);
    let used = scene.budget_use();
    assert_kept("with programs that write", used.written_today, budget);
    let programs = written * (DAY_S / TICK_S - 1);
    assert_eq!(used.written_today - used.copied_today, programs, "all that they wrote is counted");
    assert!(!used.is_overdrawn);

    let mut scene = Scene::new(Some(WriteBudget::Bytes(budget)));
    scene.go_on(DAY_S / 2, READS, a_tick(3.0));
    let used = scene.budget_use();
    assert!(used.is_overdrawn && used.written_today > budget, "{used:?}");
    let early = budget / 100;
    assert!(used.copied_today < early, "{} bytes copied", used.copied_today);
}

#[test]
fn a_restart_is_given_nothing() {
    let budget = demand() / 3;
    let mut scene = Scene::new(Some(WriteBudget::Bytes(budget)));
    // Nothing is saved that a restart could give again, and what was saved is gone.
    scene.go_on(DAY_S / 4, 0, 0);
    let (mut copied, mut restarts) = (0, 0);
    while scene.s < DAY_S - 2 * TICK_S {
        scene.kill();
        restarts += 1;
        scene.read(READS);
        assert_eq!(scene.copied().0, 0, "restart {restarts}");
        scene.go_on(HOUR_S.min(DAY_S - TICK_S - scene.s), READS, 0);
        copied += scene.copied().0;
    }
    assert_eq!(restarts, 18);
    let share = copied as f64 / (budget as f64 * 0.75);
    assert!((0.9..=1.0).contains(&share), "{share} of three quarters of the budget");
}

#[test]
fn a_rule_that_keeps_files_keeps_to_the_budget_too() {
    let rules = CacheRules::parse(["keep=a.d8"]).unwrap();
    let budget = demand() / 3;
    let mut scene = Scene::with(Some(WriteBudget::Bytes(budget)), rules);
    scene.go_on(DAY_S - TICK_S, READS, 0);
    let (used, (_, skipped)) = (scene.budget_use(), scene.copied());
    assert_kept("with a rule that keeps more than fits", used.copied_today, budget);
    assert!(skipped > 0);
}

#[test]
fn drive_writes_a_day_are_of_the_tier_and_a_budget_of_nothing_is_refused() {
    let budget = WriteBudget::DriveWrites { thousandths: 300 };
    assert_eq!(Scene::new(Some(budget)).budget_use().bytes_a_day, TIER * 3 / 10);
    let none = [WriteBudget::Bytes(0), WriteBudget::DriveWrites { thousandths: 0 }];
    for none in none.into_iter().chain([WriteBudget::Bytes(WriteBudget::LEAST - 1)]) {
        let place = place::Place::new();
        let options = Options { write_budget: Some(none), ..place::options() };
        let refused =
            tiersmith_store::attach(&place.home(), &[place.tier(2 * MIB)], options).unwrap_err();
        let said = refused.to_string();
        assert!(said.contains("would let no block in") && said.contains("none=PATTERN"), "{said}");
        assert_eq!(std::fs::read_dir(place.home()).unwrap().count(), 0, "nothing was changed");
    }
}
