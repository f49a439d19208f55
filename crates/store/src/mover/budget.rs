//! What clean copies take of a tier's write budget, and what the policy is told of it.
//!
//! Deliberately absent: how much that is ([`crate::cache::budget`]), and which copies are worth it
//! (the policy).

use super::Mover;
use crate::address::FRAME;
use crate::cache::budget::Budget;
use crate::cache::policy::{Chosen, Policy};
use crate::known::Placed;
use crate::ledger::Ledger;
use crate::profile::Keeping;
use crate::waits;
use std::sync::atomic::Ordering;

/// Bytes of a budget for a copy that is being made. They go back unless it was.
pub(crate) struct Taken<'a> {
    budget: Option<&'a Budget>,
    bytes: u64,
    is_chosen: bool,
}

impl Taken<'_> {
    /// The copy was made.
    pub(crate) fn spend(mut self) {
        self.budget = None;
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(budget) = self.budget {
            budget.give_back(self.bytes, self.is_chosen);
        }
    }
}

impl Mover {
    /// Whether it is the policy's choice that a block is copied: not while a rule takes it at once.
    fn is_chosen(placed: &Placed) -> bool {
        placed.keeping() != Keeping::Keep || placed.tier.kept_went.load(Ordering::Relaxed)
    }

    /// Whether the budget has room for a copy of a block.
    pub(crate) fn is_in_budget(&self, placed: &Placed) -> bool {
        let tier = &placed.tier;
        let bytes = placed.block_size.bytes() as u64;
        tier.budget.as_ref().is_none_or(|budget| {
            let now_ns = self.env.home.now_ns();
            budget.has_room(now_ns, tier.len(), bytes, Self::is_chosen(placed))
        })
    }

    /// Takes from the budget what a copy of a block needs. `None`: it has not so much.
    pub(crate) fn take_from_budget<'a>(&self, placed: &'a Placed) -> Option<Taken<'a>> {
        let tier = &placed.tier;
        let bytes = placed.block_size.bytes() as u64;
        let is_chosen = Self::is_chosen(placed);
        let budget = tier.budget.as_ref();
        let now = || self.env.home.now_ns();
        budget
            .is_none_or(|budget| budget.take(now(), tier.len(), bytes, is_chosen))
            .then(|| Taken { budget, bytes, is_chosen })
    }

    /// The background's part: tells the policy now and then what it may admit.
    pub(crate) fn keep_budget(&self, tier: &Ledger) {
        let Some(budget) = &tier.budget else { return };
        let now_ns = self.env.home.now_ns();
        if !budget.is_due(now_ns) {
            return;
        }
        let waits = self.events.read();
        let redo = if tier.holds_redo { waits.counter(waits::REDO_SIZE) } else { 0 };
        let written = waits.counter(waits::DATA_WRITTEN) + redo;
        let allowed = budget.step(now_ns, tier.len(), written);
        Chosen::limited(&tier.policy, allowed.bytes_per_s / FRAME as f64, allowed.passed);
    }
}
