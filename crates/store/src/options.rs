//! What a home is attached with: tiers, and how. Deliberately not here: attaching (`attach.rs`),
//! and what a profile says of a file.

use crate::error::{Error, Result};
use crate::format::slot::SLOT;
use crate::home::model::HomeModel;
use crate::medium::Medium;
use crate::plain::named::LentIn;
use crate::planted::Planted;
use crate::profile::{CacheRules, Profile};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// A tier to attach: its members and, when it is made, its sizes.
#[derive(Clone, Debug)]
pub struct TierSpec {
    /// Name, for reports and messages.
    pub name: String,
    /// The backings, striped by allocation unit. Always name all of them, in the same order.
    pub members: Vec<PathBuf>,
    /// What they are.
    pub medium: Medium,
    /// Bytes of each member when it is made (Oracle's SIZE). A DAX device is used whole.
    pub size: u64,
    /// Bytes each member may grow to (MAXSIZE); `size` or less: it does not grow.
    pub max_size: u64,
    /// Bytes each member grows by at a time (AUTOEXTEND NEXT); 0: it does not grow.
    pub grow_by: u64,
    /// Allocation unit in bytes: the width of a stripe. A power of two from 32 KiB to 1 GiB.
    pub unit: u64,
    /// Independent paths of commit; a power of two. More lanes, fewer writers that meet.
    pub lanes: u32,
    /// Batches that can be committed at the same time.
    pub batches: u32,
    /// Files the tier can know before its file table grows; 0: one for every 256 KiB of a member,
    /// from 64 to 65536, or more if the home has more files.
    pub slots: u64,
    /// Bytes of the log of a tier on flash, a multiple of the unit; 0: by the size of the member.
    pub log: u64,
    /// Redo files may live here.
    pub holds_redo: bool,
    /// Data files may live here.
    pub holds_data: bool,
    /// Allocate the members' space at once. False leaves holes, which on a full file system end the
    /// process; for tests.
    pub preallocate: bool,
    /// Format members that hold something else. What they held is lost.
    pub overwrite: bool,
    /// Of a member that is a block device: what it is called ([`tiersmith_block::Raw::identity`])
    /// by the user, who wants what is on it overwritten. What is in use is refused all the same.
    pub overwrite_device: Option<String>,
    /// Of a tier on flash: where the plain files of lent files are ([`crate::File::lend`]). `None`:
    /// nothing is lent there. On other media they are beside the first member.
    pub lent_in: Option<LentIn>,
}

impl TierSpec {
    /// A tier of one member with the usual sizes, for redo and data.
    pub fn new(
        name: impl Into<String>,
        member: impl Into<PathBuf>,
        medium: Medium,
        size: u64,
    ) -> Self {
        Self {
            name: name.into(),
            members: vec![member.into()],
            medium,
            size,
            max_size: size,
            grow_by: 0,
            unit: 1 << 20,
            lanes: 128,
            batches: 8,
            slots: 0,
            log: 0,
            holds_redo: true,
            holds_data: true,
            preallocate: true,
            overwrite: false,
            overwrite_device: None,
            lent_in: None,
        }
    }

    /// The number of file slots, the default resolved for members of `len` bytes and a home with so
    /// many files for them.
    pub(crate) fn slot_count(&self, len: u64, files: u64) -> u64 {
        if self.slots > 0 {
            return self.slots;
        }
        // A quarter more than there are, on a sixteenth of each member at most: they are on the
        // first one, and what it lacks for blocks no other member can use.
        let by_size = (len.max(self.size) / (256 << 10)).clamp(64, 65536);
        let most = len / 16 / SLOT as u64;
        by_size.max((files + files / 4 + 256).min(most))
    }

    /// Bytes of the log of a member of `len` bytes; 0: it has none.
    pub(crate) fn log_len(&self, len: u64) -> u64 {
        match self.log {
            _ if !self.medium.is_on_disk() => 0,
            0 => (len / 64).clamp(4 << 20, 64 << 20).next_multiple_of(self.unit),
            log => log,
        }
    }

    /// Only of a tier on flash plain files may be elsewhere than beside it.
    pub(crate) fn refuse_lent_elsewhere(&self) -> Result<()> {
        let Some(given) = self.lent_in.as_ref().filter(|_| self.medium != Medium::Flash) else {
            return Ok(());
        };
        let why = match self.medium.has_clean_copies_only() {
            true => "keeps clean copies only, so redo is never in it",
            false => "is no disk: where such files can be lent, they are beside the tier",
        };
        Err(Error::Options(format!(
            "{} is named for redo that the kernel writes itself, but tier `{}` {why}; leave it \
             out. Nothing was changed",
            given.directory.display(),
            self.name
        )))
    }

    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |why: String| Err(Error::Options(format!("tier `{}`: {why}", self.name)));
        if self.name.is_empty() || self.name.len() > 64 {
            return wrong("its name must have 1 to 64 bytes".into());
        }
        if self.members.is_empty() || self.members.len() > 64 {
            return wrong("it needs 1 to 64 members".into());
        }
        let mut seen = self.members.clone();
        seen.sort();
        seen.dedup();
        if seen.len() != self.members.len() {
            return wrong("a member is named twice".into());
        }
        if !self.unit.is_power_of_two() || !(32768..=1 << 30).contains(&self.unit) {
            return wrong(format!(
                "the unit of {} bytes is not a power of two from 32 KiB to 1 GiB",
                self.unit
            ));
        }
        if !self.lanes.is_power_of_two() || self.lanes > 1 << 16 {
            return wrong(format!("{} lanes are not a power of two up to 65536", self.lanes));
        }
        if self.batches == 0 || self.batches > 4096 {
            return wrong(format!("{} batches are not 1 to 4096", self.batches));
        }
        if self.medium.is_on_disk() && self.members.len() > 1 {
            return wrong("on a disk it has one member; several come with a later version".into());
        }
        if self.slots > 1 << 24 {
            return wrong(format!("{} slots are more than 16777216", self.slots));
        }
        if [self.size, self.max_size, self.grow_by].iter().any(|n| !n.is_multiple_of(4096)) {
            return wrong("its sizes must be multiples of 4096 bytes".into());
        }
        if self.size.max(self.max_size) >= 1 << 48 {
            return wrong("a member cannot be 256 TiB or larger".into());
        }
        if self.grow_by > 0 && self.max_size <= self.size {
            return wrong("it should grow, but its maximum is not larger than its size".into());
        }
        Ok(())
    }
}

/// How the home is kept from being used without Tiersmith while the tier is ahead of it (promise
/// 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The directory is moved aside to a sibling; its path holds a note, and becomes the mount
    /// point of a door.
    MoveAside,
    /// The door guards the home in its own way (a single SQLite file); the directory stays at its
    /// path.
    Door,
}

/// A file, and the logs that the database plays into it. A log is only right for the file it was
/// written for: while one of them is not empty, the file must be at home as the tier left it, also
/// when the tier has no newer block of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// The file, relative to home.
    pub file: PathBuf,
    /// Its logs.
    pub logs: Vec<PathBuf>,
    /// Why the file may have been changed although nothing is seen of it (a guard of the door's own
    /// is gone): refused as if it had been.
    pub doubt: Option<String>,
    /// A file that only tells something about the others: when it was changed or removed, what the
    /// tier has of it is dropped, and refuses nothing.
    pub aside: Option<PathBuf>,
}

/// How to attach.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which files are redo, data or pass. `None`: the built-in one the home is attached with, else
    /// by looking into the directory, else `generic`.
    pub profile: Option<Profile>,
    /// Promise 7.
    pub guard: Guard,
    /// The file `profile` was read from, when it is not a built-in one; only noted, for attaching
    /// again.
    pub profile_file: Option<PathBuf>,
    /// The door's own settings, noted as they are, for attaching again.
    pub door: BTreeMap<String, String>,
    /// Bytes of each redo file that stay in the tier; older redo is drained to home. Never more
    /// than a quarter of the tier, and all redo files together half of it.
    pub redo_keep_bytes: u64,
    /// Bytes of plain files that there may be of lent files (redo files that the kernel writes
    /// itself); 0: none is lent.
    pub lent_max_bytes: u64,
    /// Each write of the kernel to a lent file is durable on return, also of a tier on flash, whose
    /// own writes are durable at the file's sync: for a door that asks for no sync.
    pub lent_synced: bool,
    /// How long a lent file that nobody has open waits before the background brings it home. A
    /// database that is busy writes it anew before that. While more than half of `lent_max_bytes`
    /// is taken, none waits.
    pub lent_rest: Duration,
    /// Home files that are held open at most; the others are opened when they are needed. `None`:
    /// half of what the process may open (`RLIMIT_NOFILE`).
    pub home_files_open: Option<usize>,
    /// Whose the members of the tiers must be, if not root's: who can change a tier decides what is
    /// written to the home. `None`: whose they are does not matter, because who owns them could
    /// write to each file of the home.
    pub members_of: Option<u32>,
    /// A file that is one with its logs; `None`: a file without newer blocks in the tier may be
    /// another than it was, its clean copies are dropped then.
    pub bound: Option<Bound>,
    /// Behave as if home were on this slow storage: for studies, which label their figures with it.
    pub home_model: Option<HomeModel>,
    /// Copy home blocks into the tier when they are read (second-level flash cache).
    pub admit: bool,
    /// Of which files clean copies are kept longest, and of which there are none.
    pub cache: CacheRules,
    /// Bytes a day that may be written to a tier with data files: clean copies are made of what
    /// programs leave of it, and a policy chooses them. Programs are never held back. It knows what
    /// they write only if waits are recorded.
    pub write_budget: Option<WriteBudget>,
    /// Of how many blocks one is followed, at least, to say what a tier of another size would hit
    /// ([`crate::WhatIf`]); more of a large tier.
    pub what_if_one_in: u64,
    /// Run a thread that drains redo and keeps blocks free. Without it
    /// [`crate::AttachedHome::background_step`] does.
    pub background: bool,
    /// Record wait events. False only to measure what recording costs.
    pub record_waits: bool,
    /// Source of uuids and seeds; `None`: the operating system. For runs that must be repeatable.
    pub seed: Option<u64>,
    /// A planted bug, for testing the tests.
    pub planted: Planted,
}

impl Options {
    /// What a mount takes for [`Options::lent_rest`]: a busy database writes a segment of its WAL
    /// anew long before, and one that is not is soon all at home.
    pub const LENT_REST: Duration = Duration::from_secs(60);

    pub(crate) fn check(&self) -> Result<()> {
        let refusal = self.write_budget.and_then(WriteBudget::refusal);
        refusal.map_or(Ok(()), |why| Err(Error::Options(why)))
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            profile: None,
            guard: Guard::MoveAside,
            profile_file: None,
            door: BTreeMap::new(),
            redo_keep_bytes: 256 << 20,
            lent_max_bytes: 1 << 30,
            lent_synced: false,
            lent_rest: Duration::ZERO,
            home_files_open: None,
            members_of: None,
            bound: None,
            home_model: None,
            admit: true,
            cache: CacheRules::default(),
            write_budget: None,
            what_if_one_in: 8,
            background: true,
            record_waits: true,
            seed: None,
            planted: Planted::None,
        }
    }
}

/// Bytes a day that may be written to a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBudget {
    /// So many.
    Bytes(u64),
    /// Drive writes per day: so many thousandths of the tier's own bytes.
    DriveWrites {
        /// 300 is 0.3 DWPD.
        thousandths: u64,
    },
}

impl WriteBudget {
    /// The least that is one: with less, hardly a block a day would come in.
    pub const LEAST: u64 = 1 << 20;

    /// For a tier of so many bytes.
    #[must_use]
    pub fn bytes_a_day(self, tier_bytes: u64) -> u64 {
        match self {
            WriteBudget::Bytes(bytes) => bytes,
            WriteBudget::DriveWrites { thousandths } => {
                let bytes = u128::from(tier_bytes) * u128::from(thousandths) / 1000;
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
        }
    }

    /// Why it is no budget; `None`: it is one.
    #[must_use]
    pub fn refusal(self) -> Option<String> {
        let what = match self {
            WriteBudget::Bytes(bytes) if bytes < Self::LEAST => format!("{bytes} bytes a day"),
            WriteBudget::DriveWrites { thousandths: 0 } => "0 drive writes a day".to_owned(),
            _ => return None,
        };
        Some(format!(
            "a write budget of {what} would let no block in; give 1 MiB or more, or keep blocks \
             out with a cache rule: none=PATTERN, or none=** for all files"
        ))
    }
}
