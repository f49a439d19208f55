//! A write budget, by the rules of `crates/store/src/cache/budget.rs` and of the choice in
//! `epochs.rs` beside it: a model of both, where a request is the unit of time and a block that of
//! what is written. The same budget can be kept by chance, to see what the choice is worth.
//!
//! Deliberately absent: programs that write.

/// Ages that are told apart: epochs, and the last of what nobody asked for before.
const AGES: usize = 65;
/// Steps in a day. The store takes one every ten seconds, and smooths over six.
const STEPS: u64 = 8640;
const SMOOTHED: f64 = 6.0;

/// Parts of a day: where more than the budget's part was asked for in each, all of it can be used.
const PARTS: u64 = 8;

/// How it is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum By {
    /// By what was asked for least long ago, as the store does.
    Threshold,
    /// By letting in a part of what would come in, whichever.
    Chance,
}

pub(crate) struct Budget {
    by: By,
    /// Blocks a day, and requests.
    budget: f64,
    day: u64,
    now: u64,
    copied: u64,
    /// What would have come in today, by part of the day.
    asked_today: [u64; PARTS as usize],
    asked: [f64; AGES],
    rates: [f64; AGES],
    stepped: u64,
    /// Ages, or parts of one, that are let in.
    limit: f64,
    turn: f64,
    random: fastrand::Rng,
    off: Off,
}

/// How far the days were off so far at most, as shares of the budget.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Off {
    /// Above it, or below it on a day when more was asked for all the time.
    pub(crate) steady: f64,
    /// Below it on another day when more was asked for: early, when not so much had grown.
    pub(crate) early: f64,
}

impl Budget {
    pub(crate) fn new(by: By, budget: f64, day: u64) -> Budget {
        Budget {
            by,
            budget,
            day,
            now: 0,
            copied: 0,
            asked_today: [0; PARTS as usize],
            asked: [0.0; AGES],
            rates: [0.0; AGES],
            stepped: 0,
            limit: AGES as f64,
            turn: 0.0,
            random: fastrand::Rng::with_seed(1),
            off: Off::default(),
        }
    }

    pub(crate) fn off(&self) -> Off {
        self.off
    }

    /// One more request.
    pub(crate) fn goes_on(&mut self) {
        self.now += 1;
        if self.now.is_multiple_of(self.day) {
            let over = self.copied as f64 / self.budget - 1.0;
            let part = self.budget / PARTS as f64;
            let is_steady = self.asked_today.iter().all(|asked| *asked as f64 >= part);
            self.off.steady = self.off.steady.max(if is_steady { over.abs() } else { over });
            if !is_steady && self.asked_today.iter().sum::<u64>() as f64 >= self.budget {
                self.off.early = self.off.early.max(-over);
            }
            (self.copied, self.asked_today) = (0, [0; PARTS as usize]);
        }
        let step = (self.day / STEPS).max(1);
        if self.now - self.stepped >= step {
            self.stepped = self.now;
            self.step(step as f64);
        }
    }

    fn step(&mut self, step: f64) {
        for (rate, asked) in self.rates.iter_mut().zip(&mut self.asked) {
            *rate += (*asked / step - *rate) / (1.0 + SMOOTHED);
            *asked = 0.0;
        }
        let day_left = (self.day - self.now % self.day) as f64;
        let mut left = (self.budget - self.copied as f64) / day_left;
        let all: f64 = self.rates.iter().sum();
        self.limit = AGES as f64;
        if self.by == By::Chance {
            self.limit = if all > left { left / all } else { 1.0 };
            return;
        }
        for (age, rate) in self.rates.iter().enumerate() {
            if *rate > left {
                self.limit = age as f64 + left / rate;
                break;
            }
            left -= rate;
        }
    }

    /// Whether a block is let in that was asked for so many epochs ago.
    pub(crate) fn takes(&mut self, epochs: Option<u64>) -> bool {
        let age = epochs.map_or(AGES - 1, |epochs| (epochs as usize).min(AGES - 2));
        self.asked[age] += 1.0;
        self.asked_today[(self.now % self.day * PARTS / self.day) as usize] += 1;
        let wants = match self.by {
            By::Chance => self.random.f64() < self.limit,
            By::Threshold if self.limit >= age as f64 + 1.0 => true,
            By::Threshold => {
                self.turn += (self.limit - age as f64).max(0.0);
                let takes = self.turn >= 1.0;
                self.turn = self.turn.fract();
                takes
            }
        };
        let grown = self.budget * (self.now % self.day) as f64 / self.day as f64;
        let takes = wants && (self.copied + 1) as f64 <= grown;
        self.copied += u64::from(takes);
        takes
    }
}
