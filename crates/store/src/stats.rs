//! What an attached home says of itself: sizes, states, waits, and what recovery found.

use crate::cache::budget::BudgetUse;
use crate::cache::usage::{FileUse, Skip};
use crate::cache::what_if::WhatIf;
use crate::lend::LendingStats;
use crate::lend::holders::LentInUse;
use crate::medium::Durability;
use crate::mover::unreadable::LostBlock;
use crate::profile::FileClass;
use crate::waits;
use std::path::PathBuf;
use std::time::Duration;
use tiersmith_events::Totals;

/// What attaching found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Whether the home was attached before (else the tier was formatted).
    pub reopened: bool,
    /// Time from opening the media to being ready.
    pub time: Duration,
    /// Files of the home whose class belongs into a tier, counted when a tier is made.
    pub home_files: Option<u64>,
    /// Files in the tier.
    pub files: u64,
    /// Map entries read.
    pub entries: u64,
    /// Lane records applied: switches whose entry had not been stored.
    pub switches_finished: u64,
    /// Batches applied.
    pub batches_finished: u64,
    /// Truncations finished.
    pub truncations_finished: u64,
    /// Slots of removed files freed.
    pub files_freed: u64,
    /// Files whose clean copies were dropped because home had changed.
    pub changed_files: u64,
    /// Entries past the end of their file, dropped.
    pub entries_dropped: u64,
    /// The file by which it shows that a server ran on the home without the tier, which had nothing
    /// newer than home.
    pub ran_without: Option<PathBuf>,
    /// Files found lent.
    pub files_lent: u64,
    /// Those of them that a program has kept open since before: it goes on writing to them, and
    /// what it writes counts.
    pub lent_in_use: Vec<LentInUse>,
}

impl std::fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.reopened {
            return write!(f, "formatted and attached in {:.1} ms", self.time.as_secs_f64() * 1e3);
        }
        write!(
            f,
            "opened in {:.1} ms: {} files, {} map entries; finished {} switches, {} batches, {} \
             truncations; freed {} removed files; \
             dropped clean copies of {} changed files and {} entries past the end",
            self.time.as_secs_f64() * 1e3,
            self.files,
            self.entries,
            self.switches_finished,
            self.batches_finished,
            self.truncations_finished,
            self.files_freed,
            self.changed_files,
            self.entries_dropped
        )?;
        if self.files_lent > 0 {
            write!(f, "; {} files are lent", self.files_lent)?;
        }
        if let Some(path) = &self.ran_without {
            write!(
                f,
                "; {} was changed since the last attach: a server ran on the files without \
                 Tiersmith. The tier had nothing \
                 newer than they have, so nothing is lost",
                path.display()
            )?;
        }
        self.lent_in_use.iter().try_for_each(|file| write!(f, "; {file}"))
    }
}

/// One tier's part of [`Stats`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TierStats {
    /// Its name.
    pub name: String,
    /// Whether the medium only stands for persistent memory; reports must say so.
    pub emulated: bool,
    /// When a write to it that has returned survives a power cut.
    pub durability: Durability,
    /// Bytes of all members.
    pub bytes: u64,
    /// Bytes blocks and map pages can use.
    pub usable_bytes: u64,
    /// Bytes of those that are free (pieces that lanes hold ready not counted).
    pub free_bytes: u64,
    /// Bytes of dirty blocks.
    pub dirty_bytes: u64,
    /// Bytes of clean copies.
    pub cached_bytes: u64,
    /// Bytes of map pages.
    pub map_bytes: u64,
    /// Bytes that the file table has grown by.
    pub table_bytes: u64,
    /// Files with a slot of the file table.
    pub files: u64,
    /// Slots there are.
    pub file_slots: u64,
    /// Slots there can be, when the table has grown as far as it may.
    pub file_slots_most: u64,
    /// Of the slots there are, those that files of guests do not get: of users who are neither the
    /// home's owner nor root. 0 when the home is root's.
    pub file_slots_kept: u64,
    /// Files that can have blocks in the tier at once: each takes a map page, and a block.
    pub mapped_files_most: u64,
    /// Files whose class belongs into this tier and that are open without it, because there was no
    /// slot or they are too large: redo goes straight home, data is only read.
    pub files_outside: u64,
    /// Why the last file that needed a slot got none; `None` when one got one since.
    pub slot_refused: Option<String>,
    /// What each member's medium is.
    pub media: Vec<String>,
    /// Of its write budget, if it has one.
    pub write_budget: Option<BudgetUse>,
    /// What it would hit, and what would be written to it, at other sizes; `None` where it is too
    /// small to say. It knows of no write budget.
    pub what_if: Option<WhatIf>,
    /// Why nothing more is written to it, and nothing that it has goes home, until it is attached
    /// again; reads go on.
    pub failed: Option<String>,
}

/// A look at an attached home.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// The tiers.
    pub tiers: Vec<TierStats>,
    /// Waits and counters since attach.
    pub waits: Totals,
    /// What attaching found.
    pub recovery: RecoveryReport,
    /// Name of the profile.
    pub profile: String,
    /// The slow storage that home is made to look like: no figure of this home is one of the real
    /// storage, and reports must say so.
    pub home_model: Option<String>,
    /// Files that the kernel writes itself.
    pub lending: LendingStats,
    /// What destaging or other background work failed with, until it succeeds: home is full or
    /// failing, say.
    pub background_error: Option<String>,
    /// Files of which home took no blocks when it was last tried.
    pub refused_files: u64,
    /// Blocks whose newest version only the tier has, and could not be read when somebody last
    /// tried.
    pub unreadable: Vec<LostBlock>,
}

impl Stats {
    /// What became of the reads of all files of a class, also of those that have gone since.
    pub fn usage(&self, class: FileClass) -> FileUse {
        let count = |id| self.waits.counter(id);
        let redo = (count(waits::REDO_HITS), count(waits::REDO_MISSES));
        let mut usage = FileUse::default();
        match class {
            FileClass::Pass => {}
            FileClass::Redo => {
                (usage.hits, usage.misses) = redo;
                usage.skips[Skip::Outside as usize] = redo.1;
                usage.bytes_written = count(waits::REDO_SIZE);
            }
            FileClass::Data => {
                // Figures of threads at work: a part may be seen before the whole.
                let hits = count(waits::TIER_HITS) + count(waits::ZERO_COPY);
                usage.hits = hits.saturating_sub(redo.0);
                usage.misses = count(waits::TIER_MISSES).saturating_sub(redo.1);
                usage.inserts = count(waits::INSERTS);
                usage.skips = Skip::ALL.map(|skip| count(skip.counter()));
                let outside = &mut usage.skips[Skip::Outside as usize];
                *outside = outside.saturating_sub(redo.1);
                usage.aged_out = count(waits::EVICTED);
                usage.invalidated = count(waits::INVALIDATED);
                usage.bytes_written = count(waits::DATA_WRITTEN);
            }
        }
        usage
    }
}
