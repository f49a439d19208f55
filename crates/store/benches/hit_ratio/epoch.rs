//! The store's policy, by the rules of `crates/store/src/cache/epochs.rs`: a model of it, for
//! blocks and requests alone.
//!
//! | as in the store | differs |
//! |---|---|
//! | words of four entries, tags, epochs, the hash | a trace's blocks have one number |
//! | the search goes on by file and block, and measures its round | one victim at a time, not a sixteenth of the tier |
//! | time is misses; short is 0.7 of the time that copies stay | nothing is a scan: the traces do not say what one read is |
//!
//! [`Rules`] has what was tried instead.

use super::budget::Budget;
use super::policies::Cache;

/// What may be chosen.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// What is short, as a share of the time that copies stay.
    pub(crate) short: f64,
    /// Remembers the last request of each block, and not what the table can hold.
    pub(crate) exact: bool,
    /// How often a copy is spared at most.
    pub(crate) spared: u8,
}

impl Rules {
    /// The store's.
    pub(crate) const STORE: Rules = Rules { short: 0.7, exact: false, spared: 1 };
}

pub(crate) struct Epochs {
    rules: Rules,
    size: usize,
    table: Vec<[u16; 4]>,
    last: Vec<Option<u64>>,
    /// Whether a block is held, and how often it will be spared.
    held: Vec<Option<u8>>,
    len: usize,
    hand: usize,
    now: u64,
    stay: Option<f64>,
    looked: u64,
    since: u64,
    fills: u64,
    budget: Option<Budget>,
}

impl Epochs {
    pub(crate) fn new(rules: Rules, blocks: usize, size: usize) -> Epochs {
        Epochs {
            rules,
            size,
            table: vec![[0; 4]; size],
            last: vec![None; blocks],
            held: vec![None; blocks],
            len: 0,
            hand: 0,
            now: 0,
            stay: None,
            looked: 0,
            since: 0,
            fills: 0,
            budget: None,
        }
    }

    /// The same, with a budget.
    pub(crate) fn with_budget(self, budget: Budget) -> Epochs {
        Epochs { budget: Some(budget), ..self }
    }

    pub(crate) fn budget(&self) -> Option<&Budget> {
        self.budget.as_ref()
    }

    /// Notes a request. How long ago the one before was.
    fn note(&mut self, block: usize) -> Option<u64> {
        if self.rules.exact {
            return self.last[block].replace(self.now).map(|last| self.now - last);
        }
        let unit = (self.size as u64 / 2).max(1);
        let epoch = ((self.now / unit) & 63) as u16;
        let hash = mixed(block as u64);
        let row = &mut self.table[(hash % self.size as u64) as usize];
        let tag = (hash >> 48 & 0x3ff).max(1) as u16;
        let age = |entry: u16| epoch.wrapping_sub(entry) & 63;
        let same = row.iter().position(|entry| entry >> 6 == tag);
        let oldest = || (0..4).max_by_key(|n| if row[*n] == 0 { u16::MAX } else { age(row[*n]) });
        let place = same.or_else(oldest).unwrap_or_default();
        let found = same.map(|n| u64::from(age(row[n])) * unit);
        row[place] = tag << 6 | epoch;
        found
    }

    fn evict(&mut self) {
        loop {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.held.len();
            let Some(spared) = self.held[at] else { continue };
            self.looked += 1;
            self.measure();
            if spared == 0 {
                self.held[at] = None;
                self.len -= 1;
                return;
            }
            self.held[at] = Some(spared - 1);
        }
    }

    fn measure(&mut self) {
        let Some(stay) = self.stay else {
            self.stay = Some(self.now as f64);
            (self.looked, self.since) = (0, self.now);
            return;
        };
        if self.looked >= (self.size as u64 / 64).max(1) {
            let round = (self.now - self.since) as f64 * self.size as f64 / self.looked as f64;
            self.stay = Some(stay + (round - stay) / 8.0);
            (self.looked, self.since) = (0, self.now);
        }
    }
}

/// The finalizer of SplitMix64.
fn mixed(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

impl Cache for Epochs {
    fn request(&mut self, block: u32) -> bool {
        let at = block as usize;
        if let Some(budget) = &mut self.budget {
            budget.goes_on();
        }
        if let Some(spared) = &mut self.held[at] {
            *spared = (*spared + 1).min(self.rules.spared);
            if self.rules.exact {
                self.last[at] = Some(self.now);
            }
            return true;
        }
        self.now += 1;
        let age = self.note(at);
        if self.len >= self.size {
            let short = self
                .stay
                .is_none_or(|stay| age.is_some_and(|a| a as f64 <= stay * self.rules.short));
            if !short {
                return false;
            }
        }
        let unit = (self.size as u64 / 2).max(1);
        if self.budget.as_mut().is_some_and(|budget| !budget.takes(age.map(|age| age / unit))) {
            return false;
        }
        if self.len >= self.size {
            self.evict();
        }
        self.held[at] = Some(0);
        self.len += 1;
        self.fills += 1;
        false
    }

    fn fills(&self) -> u64 {
        self.fills
    }
}
