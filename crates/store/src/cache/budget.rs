//! The write budget: how many bytes a day may be written to a tier, and what clean copies get of
//! it.
//!
//! A day is one of UTC. The budget grows evenly through it, from midnight or from the attach, and
//! clean copies are made as long as all that was written since midnight is within what it has grown
//! to. What is not used is saved until midnight. So a day never has more than the budget, and a
//! restart is given nothing.
//!
//! That is the limit. What the policy chooses is also held to twice the rate that it was told:
//! after idle hours, of which it has learned nothing, it would let everything in. What keeps within
//! the limit, and chooses, is the policy: every [`STEP`] it is told how many bytes a second it may
//! admit ([`super::policy::Policy::limited`]), which is what is left of the day's budget over what
//! is left of the day, less what programs write meanwhile. Programs are never held back: what they
//! write is taken from the budget, and clean copies get the rest.
//!
//! Time is the home's clock, as far as it goes on. Set back, it stands still until it moves again;
//! set forward, it has at most saved the budget of the day until then.
//!
//! **Deliberately absent**: the state of an earlier attach. Nothing is written for the budget, so
//! what was saved before a restart is given up, and so is a debt of programs.

use crate::options::WriteBudget;
use crate::sync::Mutex;
use std::time::Duration;

const DAY_NS: u64 = 86_400_000_000_000;
/// How often the policy is told what it may admit.
const STEP: Duration = Duration::from_secs(10);
/// How much faster than it was told the policy's choice is copied at most, which lets what is asked
/// for go up and down.
const CHOOSABLE: f64 = 2.0;
/// Of how long a time that is saved, at the rate that the policy was told.
const BURST: Duration = Duration::from_secs(60);
/// The same at the least: a block of any size.
const BURST_LEAST: u64 = 1 << 20;
/// A clock that was set back by less was read before another reader's, and is not set back.
const READ_BEFORE_NS: u64 = 1_000_000_000;
/// Over how long the rate of what cannot be chosen is smoothed.
const SMOOTHED_S: f64 = 300.0;

/// What is known of a tier's budget.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BudgetUse {
    /// The budget.
    pub bytes_a_day: u64,
    /// Bytes written since midnight UTC, or since the attach if that was later: of programs, and
    /// clean copies.
    pub written_today: u64,
    /// Of them, of clean copies that were made of what was read.
    pub copied_today: u64,
    /// What programs alone wrote is more than the budget has grown to so far: no copies are made.
    pub is_overdrawn: bool,
    /// How long ago a block may have been asked for before that a full tier takes, as a share of
    /// the time that copies stay; absent while copies have not had to go.
    pub threshold: Option<f64>,
    /// What it is without a budget.
    pub threshold_most: f64,
}

/// What the policy may admit until it is told anew.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    pub(crate) bytes_per_s: f64,
    /// Since it was told before.
    pub(crate) passed: Duration,
}

/// The budget of a tier, since the attach.
pub(crate) struct Budget {
    wanted: WriteBudget,
    day: Mutex<Day>,
}

/// Today.
#[derive(Default)]
struct Day {
    /// Its number; `None` before the first look at the clock.
    number: Option<u64>,
    /// How much of it has passed, since the attach if that was today.
    passed_ns: u64,
    now_ns: u64,
    copied: u64,
    /// Of programs, and of what somebody asked to be brought in.
    others: u64,
    /// Since the attach.
    all_copied: u64,
    all_others: u64,
    /// Copies that rules take, which the policy has no choice about.
    unchosen: u64,
    /// What the policy may still choose until the next step; `None` before the first.
    choosable: Option<u64>,
    step: Step,
}

/// The last step.
#[derive(Default)]
struct Step {
    at_ns: u64,
    /// What could not be chosen, since the attach and by the second.
    unchosen: u64,
    unchosen_per_s: f64,
}

/// `whole * part / of`.
fn share(whole: u64, part: u64, of: u64) -> u64 {
    u64::try_from(u128::from(whole) * u128::from(part) / u128::from(of)).unwrap_or(u64::MAX)
}

impl Day {
    /// Time goes on.
    fn at(&mut self, now_ns: u64) {
        let Some(number) = self.number else {
            (self.number, self.now_ns) = (Some(now_ns / DAY_NS), now_ns);
            self.step.at_ns = now_ns;
            return;
        };
        if (1..READ_BEFORE_NS).contains(&self.now_ns.saturating_sub(now_ns)) {
            return;
        }
        let went_on = now_ns.saturating_sub(self.now_ns);
        self.now_ns = now_ns;
        // A step over a clock that was set back is no time at all.
        self.step.at_ns = self.step.at_ns.min(now_ns);
        if now_ns / DAY_NS == number {
            self.passed_ns += went_on;
        } else {
            self.number = Some(now_ns / DAY_NS);
            (self.passed_ns, self.copied, self.others) = (went_on.min(now_ns % DAY_NS), 0, 0);
        }
    }

    /// What the budget has grown to.
    fn grown(&self, budget: u64) -> u64 {
        share(budget, self.passed_ns.min(DAY_NS), DAY_NS)
    }

    fn written(&self) -> u64 {
        self.copied + self.others
    }

    /// Whether a copy of so many bytes is within what the budget has grown to, and within what may
    /// be chosen if it `is_chosen`.
    fn has_room(&self, budget: u64, bytes: u64, is_chosen: bool) -> bool {
        self.written() + bytes <= self.grown(budget)
            && (!is_chosen || self.choosable.is_none_or(|left| bytes <= left))
    }
}

impl Budget {
    pub(crate) fn of(wanted: WriteBudget) -> Self {
        Self { wanted, day: Mutex::default() }
    }

    /// Whether so many bytes more are within the budget of a tier of so many, for a copy which a
    /// rule wants unless it `is_chosen`.
    pub(crate) fn has_room(
        &self,
        now_ns: u64,
        tier_bytes: u64,
        bytes: u64,
        is_chosen: bool,
    ) -> bool {
        let mut day = self.day.lock();
        day.at(now_ns);
        day.has_room(self.wanted.bytes_a_day(tier_bytes), bytes, is_chosen)
    }

    /// The same, and takes them.
    pub(crate) fn take(&self, now_ns: u64, tier_bytes: u64, bytes: u64, is_chosen: bool) -> bool {
        let mut day = self.day.lock();
        day.at(now_ns);
        let takes = day.has_room(self.wanted.bytes_a_day(tier_bytes), bytes, is_chosen);
        if takes {
            day.copied += bytes;
            day.all_copied += bytes;
            match is_chosen {
                true => day.choosable = day.choosable.map(|left| left - bytes),
                false => day.unchosen += bytes,
            }
        }
        takes
    }

    /// The copy was not made.
    pub(crate) fn give_back(&self, bytes: u64, is_chosen: bool) {
        let mut day = self.day.lock();
        day.copied = day.copied.saturating_sub(bytes);
        day.all_copied = day.all_copied.saturating_sub(bytes);
        match is_chosen {
            true => day.choosable = day.choosable.map(|left| left.saturating_add(bytes)),
            false => day.unchosen = day.unchosen.saturating_sub(bytes),
        }
    }

    /// Whether it is time for a step.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        let mut day = self.day.lock();
        day.at(now_ns);
        now_ns.saturating_sub(day.step.at_ns) >= STEP.as_nanos() as u64
    }

    /// A step: `written` bytes were written to the tier since the attach. What the policy may
    /// admit until the next one.
    pub(crate) fn step(&self, now_ns: u64, tier_bytes: u64, written: u64) -> Allowance {
        let budget = self.wanted.bytes_a_day(tier_bytes);
        let mut day = self.day.lock();
        day.at(now_ns);
        let passed = Duration::from_nanos(now_ns.saturating_sub(day.step.at_ns));
        let all_others = written.saturating_sub(day.all_copied).max(day.all_others);
        day.others += all_others - day.all_others;
        day.all_others = all_others;
        let unchosen = day.all_others + day.unchosen;
        let s = passed.as_secs_f64();
        let rate = unchosen.saturating_sub(day.step.unchosen) as f64 / s.max(1e-9);
        let before = day.step.unchosen_per_s;
        let unchosen_per_s = before + (rate - before) * s / (s + SMOOTHED_S);
        day.step = Step { at_ns: now_ns, unchosen, unchosen_per_s };
        let left_ns = DAY_NS - now_ns % DAY_NS;
        let left = share(budget, (day.passed_ns + left_ns).min(DAY_NS), DAY_NS)
            .saturating_sub(day.written());
        let per_s = left as f64 / Duration::from_nanos(left_ns).as_secs_f64();
        let bytes_per_s = (per_s - unchosen_per_s).max(0.0);
        let most = ((bytes_per_s * BURST.as_secs_f64()) as u64).max(BURST_LEAST);
        let more = (bytes_per_s * s * CHOOSABLE) as u64;
        day.choosable = Some(day.choosable.unwrap_or(0).saturating_add(more).min(most));
        Allowance { bytes_per_s, passed }
    }

    pub(crate) fn read(&self, tier_bytes: u64, thresholds: (Option<f64>, f64)) -> BudgetUse {
        let day = self.day.lock();
        let bytes_a_day = self.wanted.bytes_a_day(tier_bytes);
        BudgetUse {
            bytes_a_day,
            written_today: day.written(),
            copied_today: day.copied,
            is_overdrawn: day.others > day.grown(bytes_a_day),
            threshold: thresholds.0,
            threshold_most: thresholds.1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_NS: u64 = DAY_NS / 24;
    const MIDNIGHT: u64 = 20_000 * DAY_NS;
    /// A byte a second, in units that are larger than [`WriteBudget::LEAST`].
    const HOUR: u64 = 3600 << 10;

    fn budget() -> Budget {
        Budget::of(WriteBudget::Bytes(24 * HOUR))
    }

    /// Takes as much as there is.
    fn take_all(budget: &Budget, now_ns: u64) -> u64 {
        // More than three days' worth are none.
        let pieces = (0..3 * 86_400).take_while(|_| budget.take(now_ns, 0, 1 << 10, true));
        pieces.count() as u64 * (1 << 10)
    }

    #[test]
    fn a_budget_grows_from_the_attach_or_midnight_and_is_never_more_than_the_days() {
        let budget = budget();
        let ten = MIDNIGHT + 10 * HOUR_NS;
        assert_eq!(take_all(&budget, ten), 0, "the attach");
        assert_eq!(take_all(&budget, ten + HOUR_NS), HOUR);
        assert_eq!(take_all(&budget, ten + HOUR_NS), 0);
        assert_eq!(take_all(&budget, MIDNIGHT + DAY_NS - 1) / HOUR, 12);
        assert_eq!(take_all(&budget, MIDNIGHT + DAY_NS + HOUR_NS), HOUR, "a new day");
        assert_eq!(take_all(&budget, MIDNIGHT + 5 * DAY_NS + HOUR_NS), HOUR, "idle days");
    }

    #[test]
    fn a_clock_that_was_set_back_or_forward_gives_no_more_than_a_day_and_goes_on() {
        let budget = budget();
        let noon = MIDNIGHT + 12 * HOUR_NS;
        assert_eq!(take_all(&budget, noon), 0);
        assert_eq!(take_all(&budget, noon + HOUR_NS), HOUR);
        assert_eq!(take_all(&budget, noon), 0, "set back");
        assert!(!budget.is_due(noon));
        assert_eq!(take_all(&budget, noon + HOUR_NS), HOUR, "from then on it grows again");
        let year = 365 * DAY_NS;
        assert!(take_all(&budget, noon + year) <= 12 * HOUR, "set forward by a year");
        assert_eq!(take_all(&budget, noon), 0, "and back: a day that begins with nothing");
        assert_eq!(take_all(&budget, noon + HOUR_NS), HOUR);
        assert!(budget.is_due(noon + HOUR_NS));
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let budget = budget();
        assert!(!budget.take(MIDNIGHT, 0, HOUR, true));
        assert!(budget.take(MIDNIGHT + HOUR_NS, 0, HOUR, true));
        assert!(!budget.has_room(MIDNIGHT + HOUR_NS, 0, 1, true));
        budget.give_back(HOUR, true);
        assert!(budget.has_room(MIDNIGHT + HOUR_NS, 0, HOUR, true));
    }

    #[test]
    fn what_idle_hours_saved_is_not_copied_before_the_policy_has_learned_what_is_asked_for() {
        // A byte a second is a mebibyte here.
        let budget = Budget::of(WriteBudget::Bytes(86_400 << 20));
        let mut now_ns = MIDNIGHT;
        let _ = budget.step(now_ns, 0, 0);
        now_ns += 12 * HOUR_NS;
        let mut copied = 0;
        for step in 0..6 {
            let _ = budget.step(now_ns, 0, 0);
            let pieces = (0..86_400).take_while(|_| budget.take(now_ns, 0, 1 << 20, true)).count();
            // The rate is two: half a day is left, and half a day was saved.
            let most = if step == 0 { 120 } else { 40 };
            assert!((most - 3..=most).contains(&pieces), "step {step}: {pieces} MiB");
            copied += pieces;
            now_ns += STEP.as_nanos() as u64;
        }
        assert!(copied < 12 * 3600 / 100, "{copied} s of twelve hours went in a minute");
        assert!(budget.take(now_ns, 0, 3600 << 20, false), "a rule has what was saved");
        // Another reader's look at the clock, from before.
        let used = budget.read(0, (None, 0.7));
        assert!(!budget.is_due(now_ns - 5));
        assert_eq!(budget.read(0, (None, 0.7)), used);
    }

    #[test]
    fn the_policy_may_admit_what_is_left_of_the_day_less_what_programs_write() {
        let budget = budget();
        assert!(!budget.is_due(MIDNIGHT));
        let at = |hours: u64| MIDNIGHT + hours * HOUR_NS;
        let per_s = |allowed: Allowance| allowed.bytes_per_s / 1024.0;
        let about = |found: f64, want: f64| (found - want).abs() < 0.03;
        let first = budget.step(at(12), 0, 0);
        assert_eq!(first.passed, Duration::from_secs(12 * 3600));
        assert!(about(per_s(first), 2.0), "half a day was saved");
        // Programs write half of the even rate.
        let mut written = 0;
        for n in 1..=360 {
            written += 5 << 10;
            assert!(budget.is_due(at(12) + n * STEP.as_nanos() as u64));
            let _ = budget.step(at(12) + n * STEP.as_nanos() as u64, 0, written);
        }
        let found = budget.step(at(13) + STEP.as_nanos() as u64, 0, written + (5 << 10));
        assert!(about(per_s(found), (24.0 - 0.5) / 11.0 - 0.5), "{found:?}");
        let used = budget.read(0, (None, 0.7));
        assert_eq!((used.written_today, used.copied_today), (written + (5 << 10), 0));
        // A burst of theirs: more than the whole day's.
        assert_eq!(per_s(budget.step(at(14), 0, 30 * HOUR)), 0.0);
        assert!(budget.read(0, (None, 0.7)).is_overdrawn);
        assert_eq!(take_all(&budget, at(23)), 0);
    }
}
