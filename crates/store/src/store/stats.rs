//! What [`Stats`] says of a store.

use super::Store;
use crate::address::FRAME;
use crate::cache::policy::{Chosen, Policy};
use crate::cache::usage::blocks_read;
use crate::error::Error;
use crate::known::FileState;
use crate::lend::LendingStats;
use crate::medium::BlockMedium;
use crate::stats::{Stats, TierStats};
use crate::waits;
use tiersmith_events::Registry;

impl Store {
    /// In a forked child: nothing but why. It takes no lock, for the thread that held one may not
    /// be there.
    pub(crate) fn stats_of_another_process(&self, why: &Error) -> Stats {
        Stats {
            tiers: Vec::new(),
            waits: Registry::new(waits::EVENTS, waits::COUNTERS).read(),
            recovery: self.recovery.clone(),
            profile: self.profile.name().to_owned(),
            home_model: self.env.options.home_model.as_ref().map(|model| model.name().to_owned()),
            lending: LendingStats::default(),
            background_error: Some(why.to_string()),
            refused_files: 0,
            unreadable: Vec::new(),
        }
    }

    /// A look at the home.
    pub(crate) fn stats(&self) -> Stats {
        let files = self.files.all();
        let waits = self.env.events.read();
        let read = blocks_read(&waits);
        let tiers = self
            .tiers
            .iter()
            .map(|tier| {
                let table = tier.table_counts();
                let mut stats = TierStats {
                    name: tier.name.clone(),
                    emulated: tier.emulated,
                    durability: tier.durability,
                    bytes: tier.len(),
                    usable_bytes: tier.allocator.total_frames() * FRAME as u64,
                    free_bytes: tier.allocator.free_frames() * FRAME as u64,
                    dirty_bytes: 0,
                    cached_bytes: 0,
                    map_bytes: 0,
                    table_bytes: table.extent_bytes,
                    files: 0,
                    file_slots: table.slots,
                    file_slots_most: table.most,
                    file_slots_kept: if self.names.owner == 0 { 0 } else { table.not_guests },
                    mapped_files_most: table.most.min(table.maps_most / 2),
                    files_outside: 0,
                    slot_refused: tier.table.lock().refusal().map(|r| r.message.clone()),
                    media: tier.members.iter().map(|m| m.medium.report()).collect(),
                    write_budget: tier
                        .budget
                        .as_ref()
                        .map(|budget| budget.read(tier.len(), Chosen::thresholds(&tier.policy))),
                    what_if: tier.what_if.read(read),
                    failed: tier.sound().err().map(|e| e.to_string()),
                };
                for placed in files.iter().filter_map(|f| f.placed.as_ref()) {
                    if std::sync::Arc::ptr_eq(&placed.tier, tier) {
                        let (dirty, cached) = placed.map.counts();
                        stats.dirty_bytes += dirty * placed.block_size.bytes() as u64;
                        stats.cached_bytes += cached * placed.block_size.bytes() as u64;
                        stats.map_bytes += placed.map.page_count() as u64 * FRAME as u64;
                        stats.files += u64::from(placed.has_slot());
                        stats.files_outside += u64::from(!placed.has_slot());
                    }
                }
                let here = |file: &FileState| {
                    let class = self.profile.placement(&file.path.lock()).class;
                    self.names.tier_of(class).is_some_and(|t| std::sync::Arc::ptr_eq(t, tier))
                };
                stats.files_outside += files.iter().filter(|f| f.outside && here(f)).count() as u64;
                stats
            })
            .collect();
        Stats {
            tiers,
            waits,
            recovery: self.recovery.clone(),
            profile: self.profile.name().to_owned(),
            home_model: self.env.options.home_model.as_ref().map(|model| model.name().to_owned()),
            lending: self.lender.lending_stats(),
            background_error: self.mover.refused.message(),
            refused_files: self.mover.refused.count(),
            unreadable: self.mover.unreadable_blocks(),
        }
    }
}
