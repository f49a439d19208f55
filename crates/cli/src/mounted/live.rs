//! What the daemon of a mounted home says of it, for `status`: what is in the tier, how often it is
//! hit, how far home is behind, and over which way requests arrive.
//!
//! **Invariant**: an emulated tier and a modelled home are labelled wherever a figure appears.
//! **Deliberately absent**: differences between two looks; the workload repository has those.

mod text;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tiersmith_lab::ByteSize;
use tiersmith_mount::Reporter;
use tiersmith_store::{
    AttachedHome, Durability, FileClass, FileInTier, LendingStats, Stats, TierStats, waits,
};

use super::budget::LiveBudget;
use super::confine::Confined;
use super::dirty_since::DirtySince;
use super::links::OutsideHome;
use super::moves::LiveMove;
use super::pages;
use super::scrub::LiveScrub;
use super::usage::{LiveUsage, LiveWhatIf};

/// How requests reach the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Door {
    /// `classic` (/dev/fuse) or `io_uring`.
    pub(crate) transport: String,
    /// Why not a better one.
    pub(crate) transport_why: Option<String>,
    /// Files that pass go from kernel to home without the daemon.
    pub(crate) passthrough: bool,
    /// Why, or why not.
    pub(crate) passthrough_why: Option<String>,
    /// The kernel writes redo files of fixed size itself.
    #[serde(default)]
    pub(crate) lends: bool,
    /// Why, or why not.
    #[serde(default)]
    pub(crate) lends_why: Option<String>,
    /// Threads that answer.
    pub(crate) threads: usize,
    /// Every change is durable when it returns, and the kernel asks for no sync.
    pub(crate) sync_on_write: bool,
    /// Why this was chosen.
    pub(crate) sync_why: String,
    /// Each block of a data file is one whole version, whatever happens.
    #[serde(default = "atomic")]
    pub(crate) atomic_pages: bool,
    /// Why, or why not.
    #[serde(default)]
    pub(crate) pages_why: String,
    /// The directory of lent redo, when it has a connection of its own.
    #[serde(default)]
    pub(crate) redo_at: Option<PathBuf>,
    /// That was unmounted by somebody.
    #[serde(default)]
    pub(crate) redo_gone: bool,
    /// Why the kernel keeps few pages of the mount only.
    #[serde(default)]
    pub(crate) limits_why: Option<String>,
    /// There are extended attributes and ACLs.
    #[serde(default)]
    pub(crate) xattrs: bool,
    /// Requests since the mount began, by kind.
    #[serde(default)]
    pub(crate) requests: BTreeMap<String, u64>,
}

/// As it was before there was another way.
fn atomic() -> bool {
    true
}

impl Door {
    /// How pages are kept, for people.
    fn pages(&self) -> Vec<String> {
        let how = if self.atomic_pages {
            "atomic: each is one whole version after a crash"
        } else {
            "in the page cache, durable at fsync, and not atomic: the database mends torn ones"
        };
        let mut said = vec![format!("pages:     {how} ({})", self.pages_why)];
        if let Some(redo) = &self.redo_at {
            said.push(format!(
                "           {} is a mount of its own; unmount with `tiersmith unmount` or `umount \
                 -R`",
                redo.display()
            ));
        }
        if let Some(why) = &self.limits_why {
            said.push(format!("           the kernel keeps few of them, so writers wait: {why}"));
        }
        said
    }

    /// What the kernel has asked so far, what it asks most first; `None` before it has.
    fn asked(&self) -> Option<String> {
        let mut kinds: Vec<_> = self.requests.iter().collect();
        kinds.sort_by_key(|(name, count)| (Reverse(**count), *name));
        let all: u64 = self.requests.values().sum();
        let kinds: Vec<String> =
            kinds.iter().map(|(name, count)| format!("{count} {name}")).collect();
        (all > 0).then(|| format!("{all} requests: {}", kinds.join(", ")))
    }

    /// For people, one fact a line.
    pub(crate) fn lines(&self) -> Vec<String> {
        let why =
            |why: &Option<String>| why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        let mut lines = self.pages();
        lines.extend([
            format!(
                "requests:  over {}{}, {} threads",
                self.transport,
                why(&self.transport_why),
                self.threads
            ),
            format!(
                "pass files: {}{}",
                if self.passthrough {
                    "from the kernel straight to home"
                } else {
                    "through the \
                    daemon"
                },
                why(&self.passthrough_why)
            ),
            format!(
                "redo files: {}{}",
                if self.lends {
                    "those of fixed size are lent to the kernel, the others go through the daemon"
                } else {
                    "through the daemon"
                },
                why(&self.lends_why)
            ),
            format!(
                "fsync:     {} ({})",
                if self.sync_on_write {
                    "every change of a file is durable when it returns, so the kernel asks for \
                     syncs of directories only"
                } else {
                    "reaches the daemon; then redo and data are durable in the tier, and pass \
                     files at home"
                },
                self.sync_why
            ),
            format!(
                "attributes: {}",
                if self.xattrs {
                    "extended attributes and ACLs are the home's"
                } else {
                    "no extended attributes and ACLs, because the home has none; to set one, \
                     unmount, and attach with \
                     --xattrs always"
                }
            ),
        ]);
        lines
    }
}

/// Redo files that the kernel writes itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LiveLent {
    /// Lent now.
    pub(crate) files: u64,
    /// Bytes of their plain files, beside the tier.
    pub(crate) bytes: u64,
    /// Bytes of those of which home does not have everything, or is not known to.
    #[serde(default)]
    pub(crate) not_home_bytes: u64,
    /// Where the plain files are; each directory belongs to its tier.
    #[serde(default)]
    pub(crate) directories: Vec<PathBuf>,
    /// Bytes there may be.
    pub(crate) max_bytes: u64,
    /// Why the last file that was to be lent was not; `None` when it was.
    pub(crate) refused: Option<String>,
}

impl LiveLent {
    fn of(lending: &LendingStats) -> LiveLent {
        LiveLent {
            files: lending.files,
            bytes: lending.bytes,
            not_home_bytes: lending.not_home_bytes,
            directories: lending.directories.clone(),
            max_bytes: lending.max_bytes,
            refused: lending.refused.clone(),
        }
    }
}

/// One tier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LiveTier {
    pub(crate) name: String,
    pub(crate) emulated: bool,
    pub(crate) durability: Durability,
    pub(crate) bytes: u64,
    pub(crate) usable_bytes: u64,
    pub(crate) free_bytes: u64,
    pub(crate) dirty_bytes: u64,
    pub(crate) cached_bytes: u64,
    pub(crate) map_bytes: u64,
    /// Line by line: what comes from a daemon is printed with its line ends escaped.
    pub(crate) media: Vec<String>,
    /// Why nothing more is written to it.
    #[serde(default)]
    pub(crate) failed: Option<String>,
    /// Its file table.
    #[serde(default)]
    pub(crate) table: LiveTable,
    /// How much of its write budget is used; absent without one.
    #[serde(default)]
    pub(crate) write_budget: Option<LiveBudget>,
    /// What it would do at other sizes; absent where it is too small to say.
    #[serde(default)]
    pub(crate) what_if: Option<LiveWhatIf>,
}

impl LiveTier {
    fn of(tier: &TierStats) -> LiveTier {
        LiveTier {
            name: tier.name.clone(),
            emulated: tier.emulated,
            durability: tier.durability,
            bytes: tier.bytes,
            usable_bytes: tier.usable_bytes,
            free_bytes: tier.free_bytes,
            dirty_bytes: tier.dirty_bytes,
            cached_bytes: tier.cached_bytes,
            map_bytes: tier.map_bytes,
            media: tier.media.iter().flat_map(|medium| medium.lines()).map(str::to_owned).collect(),
            failed: tier.failed.clone(),
            table: LiveTable::of(tier),
            write_budget: tier.write_budget.as_ref().map(LiveBudget::of),
            what_if: tier.what_if.as_ref().map(LiveWhatIf::of),
        }
    }
}

/// The files that a tier knows and can know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LiveTable {
    /// Files with a slot.
    pub(crate) files: u64,
    /// Slots there are.
    pub(crate) slots: u64,
    /// Slots there can be, when the table has grown as far as it may.
    pub(crate) slots_most: u64,
    /// Of the slots there are, those kept from files that are neither the home's owner's nor
    /// root's.
    #[serde(default)]
    pub(crate) slots_kept: u64,
    /// Files that can have blocks in the tier at once.
    #[serde(default)]
    pub(crate) mapped_most: u64,
    /// Files that are open without one: redo goes straight home, data is only read.
    pub(crate) outside: u64,
    /// Why the last file that needed a slot got none; absent since one got one.
    pub(crate) refused: Option<String>,
}

impl LiveTable {
    pub(crate) fn of(tier: &TierStats) -> LiveTable {
        LiveTable {
            files: tier.files,
            slots: tier.file_slots,
            slots_most: tier.file_slots_most,
            slots_kept: tier.file_slots_kept,
            mapped_most: tier.mapped_files_most,
            outside: tier.files_outside,
            refused: tier.slot_refused.clone(),
        }
    }

    /// How many files fit.
    pub(crate) fn fits(&self) -> String {
        let Self { slots, slots_most, slots_kept, mapped_most, .. } = self;
        let mut fits =
            format!("{slots} files at a time, and {slots_most} when the file table has grown");
        // 0: an older daemon does not say.
        if *mapped_most != 0 && mapped_most < slots_most {
            fits += &format!(
                ", of which {mapped_most} can have blocks in the tier at once: each takes a block \
                 and a page of 4 KiB \
                 for its block map"
            );
        }
        if *slots_kept > 0 {
            fits += &format!(
                "; {slots_kept} of the {slots} are kept for redo and for files of the home's owner"
            );
        }
        fits
    }

    /// What is to be mended, for people.
    pub(super) fn trouble(&self, tier: &str) -> Vec<String> {
        let mut said = Vec::new();
        if self.outside > 0 {
            said.push(format!(
                "{} open files are not in tier {tier}: redo among them goes straight home, at \
                 home's speed. Close \
                 files and open them again, or detach and attach with a larger --size",
                self.outside
            ));
        }
        said.extend(self.refused.clone());
        said
    }
}

/// The files of one class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LiveClass {
    pub(crate) class: String,
    pub(crate) files: u64,
    pub(crate) pinned_files: u64,
    pub(crate) file_bytes: u64,
    pub(crate) dirty_bytes: u64,
    pub(crate) cached_bytes: u64,
}

impl LiveClass {
    fn of(class: FileClass, files: &[FileInTier]) -> LiveClass {
        let mut sum = LiveClass { class: class.to_string(), ..LiveClass::default() };
        for file in files.iter().filter(|file| file.class == class) {
            let block = file.block_size.bytes() as u64;
            sum.files += 1;
            sum.pinned_files += u64::from(file.pinned);
            sum.file_bytes += file.size;
            sum.dirty_bytes += file.dirty * block;
            sum.cached_bytes += file.cached * block;
        }
        sum
    }
}

/// Files, and how the tier treats their blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LiveCacheRule {
    /// keep, none or default.
    pub(crate) keeping: String,
    pub(crate) pattern: String,
    /// Data files that it decides of, and that the tier knows.
    pub(crate) files: u64,
    pub(crate) cached_bytes: u64,
    pub(crate) dirty_bytes: u64,
}

impl LiveCacheRule {
    pub(super) fn of(home: &AttachedHome) -> Vec<LiveCacheRule> {
        let of_one = |used: tiersmith_store::CacheRuleUse| LiveCacheRule {
            keeping: used.rule.keeping.to_string(),
            pattern: used.rule.pattern,
            files: used.files,
            cached_bytes: used.cached_bytes,
            dirty_bytes: used.dirty_bytes,
        };
        home.cache_rules().into_iter().map(of_one).collect()
    }
}

impl std::fmt::Display for LiveCacheRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: ", self.keeping, self.pattern)?;
        match self.files {
            0 => f.write_str("no data file that the tier knows"),
            files => {
                let (cached, dirty) = (size(self.cached_bytes), size(self.dirty_bytes));
                write!(f, "{files} files, {cached} cached, {dirty} dirty")
            }
        }
    }
}

/// A wait event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LiveWait {
    pub(crate) event: String,
    pub(crate) waits: u64,
    pub(crate) mean_us: f64,
    pub(crate) p99_us: f64,
}

impl LiveWait {
    /// Of every event that was waited for.
    fn all(stats: &Stats) -> Vec<LiveWait> {
        let waited = stats.waits.events().filter(|(_, totals)| totals.count() > 0);
        waited
            .map(|(event, totals)| LiveWait {
                event: event.name.to_owned(),
                waits: totals.count(),
                mean_us: totals.mean_ns().unwrap_or_default() / 1e3,
                p99_us: totals.histogram().quantile_ns(0.99).unwrap_or_default() as f64 / 1e3,
            })
            .collect()
    }
}

/// Unreadable blocks that are listed by name.
const UNREADABLE_MOST: usize = 20;

/// A look at a mounted home.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Live {
    pub(crate) home: PathBuf,
    pub(crate) at: PathBuf,
    pub(crate) pid: u32,
    pub(crate) up_s: u64,
    pub(crate) profile: String,
    /// Whether a tier only stands for persistent memory.
    pub(crate) emulated: bool,
    /// The slow storage that home pretends to be, for studies.
    pub(crate) home_model: Option<String>,
    /// Which files the tier keeps; the first rule that matches decides.
    #[serde(default)]
    pub(crate) cache: Vec<LiveCacheRule>,
    pub(crate) door: Door,
    /// What the daemon gave up.
    #[serde(default)]
    pub(crate) confined: Confined,
    pub(crate) tiers: Vec<LiveTier>,
    pub(crate) classes: Vec<LiveClass>,
    /// Blocks read from the tier since the daemon started.
    pub(crate) hits: u64,
    /// Blocks read from home.
    pub(crate) misses: u64,
    /// Of the reads of blocks, those from the tier; absent before the first.
    pub(crate) hit_ratio: Option<f64>,
    /// What became of the reads, by class and file.
    #[serde(default)]
    pub(crate) usage: LiveUsage,
    /// Redo that is in the tier only.
    pub(crate) drain_lag_bytes: u64,
    /// How long the oldest of the newest blocks can have been in the tier only, at most; absent
    /// when home has everything.
    pub(crate) dirty_age_s_at_most: Option<u64>,
    pub(crate) waits: Vec<LiveWait>,
    pub(crate) recovery: String,
    /// What background work failed with, while it fails.
    pub(crate) background_error: Option<String>,
    /// Blocks that only a tier has, and that could not be read; the first of them.
    #[serde(default)]
    pub(crate) unreadable: Vec<String>,
    /// How many there are.
    #[serde(default)]
    pub(crate) unreadable_blocks: u64,
    /// Clean copies that were not what was written, or could not be read, since the daemon started:
    /// home has them.
    #[serde(default)]
    pub(crate) repaired_blocks: u64,
    /// Comparing all blocks with their checksums.
    #[serde(default)]
    pub(crate) scrub: LiveScrub,
    /// The pin or move that runs, or ran last.
    #[serde(default)]
    pub(crate) moves: Option<LiveMove>,
    /// Redo files that the kernel writes itself.
    #[serde(default)]
    pub(crate) lent: LiveLent,
    /// Pages may be torn, and the database does not protect them any more.
    #[serde(default)]
    pub(crate) unprotected: Option<String>,
    /// What belongs to the database and lies outside the home.
    #[serde(default)]
    pub(crate) outside_home: OutsideHome,
}

/// What is known of the daemon besides the store's figures.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) home: PathBuf,
    pub(super) at: PathBuf,
    /// Where its files are.
    pub(super) aside: PathBuf,
    pub(super) started: Instant,
    /// As it was when the mount began.
    pub(super) door: Door,
    /// What the daemon gave up.
    pub(super) confined: Confined,
    pub(super) reporter: Arc<Mutex<Reporter>>,
    /// Why pages are not protected, once they were found not to be: until the next attach.
    pub(super) unprotected: Arc<Mutex<Option<String>>>,
}

impl Known {
    /// Why a command is not served: so many others are.
    pub(super) fn busy(&self) -> String {
        format!(
            "the daemon of {} (process {}) is busy with other commands and takes no more; if they \
             do not \
             end, the storage below it may hang",
            self.home.display(),
            std::process::id()
        )
    }

    /// Why pages are not protected, as far as it was found out.
    pub(super) fn unprotected(&self) -> Option<String> {
        self.unprotected.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same after a look at the database's settings.
    pub(super) fn look_at_pages(&self, home: &AttachedHome) -> Option<String> {
        if self.door.atomic_pages {
            return None;
        }
        let mut known = self.unprotected.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none() {
            *known = pages::found_unprotected(home);
        }
        known.clone()
    }

    /// As it is now: the kernel may have refused a file since.
    pub(super) fn door(&self) -> Door {
        let report = self.reporter.lock().unwrap_or_else(PoisonError::into_inner).report();
        Door {
            passthrough: report.passthrough,
            passthrough_why: report.passthrough_because,
            lends: report.lends,
            lends_why: report.lends_because,
            redo_gone: report.redo_gone,
            requests: report.requests.into_iter().collect(),
            ..self.door.clone()
        }
    }
}

/// Work that commands have asked for.
pub(super) struct Work {
    pub(super) scrub: LiveScrub,
    pub(super) moves: Option<LiveMove>,
}

/// Looks at a home.
pub(super) fn look(home: &AttachedHome, known: &Known, dirty: &DirtySince, work: Work) -> Live {
    let stats = home.stats();
    let up_s = known.started.elapsed().as_secs();
    let files = home.files();
    let classes: Vec<LiveClass> =
        [FileClass::Redo, FileClass::Data].map(|class| LiveClass::of(class, &files)).into();
    let counter = |id| stats.waits.counter(id);
    let (hits, misses) =
        (counter(waits::TIER_HITS) + counter(waits::ZERO_COPY), counter(waits::TIER_MISSES));
    let reads = hits + misses;
    let tiers: Vec<LiveTier> = stats.tiers.iter().map(LiveTier::of).collect();
    Live {
        home: known.home.clone(),
        at: known.at.clone(),
        pid: std::process::id(),
        up_s,
        profile: home.profile_name().to_owned(),
        emulated: tiers.iter().any(|tier| tier.emulated),
        home_model: stats.home_model.clone(),
        cache: LiveCacheRule::of(home),
        door: known.door(),
        confined: known.confined.clone(),
        drain_lag_bytes: classes.first().map(|redo| redo.dirty_bytes).unwrap_or_default()
            + stats.lending.not_home_bytes,
        tiers,
        classes,
        hits,
        misses,
        hit_ratio: (reads > 0).then(|| hits as f64 / reads as f64),
        usage: LiveUsage::of(files, &stats, up_s),
        dirty_age_s_at_most: dirty.oldest_s(),
        waits: LiveWait::all(&stats),
        recovery: stats.recovery.to_string(),
        background_error: stats.background_error.clone(),
        unreadable: stats
            .unreadable
            .iter()
            .take(UNREADABLE_MOST)
            .map(ToString::to_string)
            .collect(),
        unreadable_blocks: stats.unreadable.len() as u64,
        repaired_blocks: counter(waits::REPAIRED),
        scrub: work.scrub,
        moves: work.moves,
        lent: LiveLent::of(&stats.lending),
        unprotected: known.look_at_pages(home),
        outside_home: OutsideHome::of_attached(home, &known.aside),
    }
}

/// Bytes in the largest unit that leaves a figure of three or four digits.
pub(crate) fn size(bytes: u64) -> String {
    let rounded = match bytes {
        0..10_000 => return bytes.to_string(),
        10_000..10_240_000 => bytes >> 10 << 10,
        10_240_000..10_485_760_000 => bytes >> 20 << 20,
        _ => bytes >> 30 << 30,
    };
    ByteSize(rounded).to_string()
}

#[cfg(test)]
mod tests {
    use super::LiveTable;

    #[test]
    fn status_says_how_many_slots_are_kept_for_the_homes_owner() {
        let table = LiveTable {
            slots: 64,
            slots_most: 320,
            slots_kept: 16,
            mapped_most: 100,
            ..LiveTable::default()
        };
        let said = table.fits();
        assert!(
            said.ends_with("; 16 of the 64 are kept for redo and for files of the home's owner"),
            "{said}"
        );
        let roots = LiveTable { slots_kept: 0, ..table };
        assert!(!roots.fits().contains("kept"), "{}", roots.fits());
    }
}
