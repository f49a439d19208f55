//! A tier: members striped into one space of frames.
//!
//! [`geometry`] knows where things lie, [`alloc`] what is free, [`blocks`] what can be done with
//! the bytes of a block, [`open`] how a tier is formatted and opened, [`grow`] how it gets larger,
//! [`table`] how many slots for files it has.
//!
//! **Deliberately absent**: what the frames hold, which is the ledger's to say ([`crate::ledger`]).

pub(crate) mod alloc;
pub(crate) mod blocks;
pub(crate) mod geometry;
pub(crate) mod grow;
pub(crate) mod label;
pub(crate) mod open;
pub(crate) mod table;

use crate::address::{Frame, WordAt};
use crate::cache::budget::Budget;
use crate::cache::policy::{Chosen, Policy};
use crate::cache::what_if::Miniatures;
use crate::error::Result;
use crate::format::superblock::Superblock;
use crate::medium::log::Log;
use crate::medium::{Backing, BlockMedium, Durability, Mapped, OnSectors};
use crate::plain::LentDir;
use crate::planted::Planted;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use alloc::{Allocator, Purpose};
use geometry::Geometry;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use table::FileTable;

/// What a member of a tier holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Map pages, overflow pages of batches, slots; on member 0 lanes and batch records too.
    #[cfg(test)]
    Metadata,
    /// Blocks of files.
    #[cfg(test)]
    Blocks,
    Both,
}

impl Role {
    pub(crate) fn holds(self, purpose: Purpose) -> bool {
        match self {
            #[cfg(test)]
            Role::Metadata => matches!(purpose, Purpose::Pages | Purpose::Table),
            #[cfg(test)]
            Role::Blocks => matches!(purpose, Purpose::Blocks(_)),
            Role::Both => matches!(purpose, Purpose::Pages | Purpose::Table | Purpose::Blocks(_)),
        }
    }
}

/// One backing of a tier.
pub(crate) struct Member {
    pub(crate) medium: Backing,
    pub(crate) path: PathBuf,
}

/// A piece that no entry points to any more, except durable ones while the log has not come to this
/// change.
pub(crate) struct Retired {
    change: u64,
    purpose: Purpose,
    frame: Frame,
}

/// A list as long as most are.
pub(crate) type Few<T> = SmallVec<[T; 8]>;

/// A tier in use by one attached home.
pub(crate) struct Tier {
    pub(crate) name: String,
    pub(crate) members: Vec<Member>,
    pub(crate) geometry: Geometry,
    pub(crate) seed: u64,
    pub(crate) superblocks: Mutex<Vec<Superblock>>,
    pub(crate) allocator: Allocator,
    pub(crate) table: Mutex<FileTable>,
    /// What the policy keeps of it.
    pub(crate) policy: <Chosen as Policy>::OfTier,
    /// How much a day may be written to it.
    pub(crate) budget: Option<Budget>,
    /// What it would be at other sizes.
    pub(crate) what_if: Miniatures,
    /// Where the search for victims goes on, for each [`Keeping`](crate::profile::Keeping): inode
    /// number of a file, and a block.
    pub(crate) hands: Mutex<[(u64, u64); 3]>,
    /// Copies that are kept longest had to go: there are more than the tier can have.
    pub(crate) kept_went: AtomicBool,
    /// Frames of files that stay, as the mover last counted them ([`crate::mover::keep`]).
    pub(crate) staying: AtomicU64,
    /// Held by the one that sees to it that there are free slots ([`crate::names::slots`]).
    pub(crate) making_slots: Mutex<()>,
    /// Held by the one that makes room ([`crate::mover::room::Turn`]).
    pub(crate) room: Mutex<()>,
    /// Where the contents of lent files are ([`crate::lend`]); `None`: nothing can be lent.
    pub(crate) lent_dir: Option<Arc<dyn LentDir>>,
    /// In which directory that is, where the user named one.
    pub(crate) lent_in: Option<PathBuf>,
    /// Which files may live here.
    pub(crate) holds_redo: bool,
    pub(crate) holds_data: bool,
    /// Pieces that are free when a log has made durable what no longer points to them
    /// ([`Tier::retire`]).
    pub(crate) retired: Mutex<VecDeque<Retired>>,
    /// Metadata is durable by a log ([`crate::medium::log`]).
    pub(crate) has_log: bool,
    /// Every medium is quick ([`BlockMedium::is_quick`]).
    pub(crate) is_quick: bool,
    /// Blocks are not in memory.
    pub(crate) is_on_device: bool,
    /// Of the least durable member.
    pub(crate) durability: Durability,
    pub(crate) emulated: bool,
    /// An ephemeral tier that is not to be believed at the next attach.
    pub(crate) given_up: Mutex<bool>,
    pub(crate) planted: Planted,
}

impl Tier {
    /// It gets another one when it is formatted.
    pub(crate) fn uuid(&self) -> [u8; 16] {
        self.superblocks.lock()[0].tier_uuid
    }

    /// Whether a block may be `Dirty` here: the media survive power loss, or the user said they may
    /// be taken to.
    pub(crate) fn holds_dirty(&self) -> bool {
        self.durability.may_hold_only_copy()
    }

    /// Frames that are not of files that stay: the marks for what is free are parts of them. Of a
    /// tier that is pinned nearly whole, a part of all its frames would never be free.
    pub(crate) fn frames_that_change(&self) -> u64 {
        self.allocator.total_frames().saturating_sub(self.staying.load(Ordering::Relaxed))
    }

    /// Whether it has clean copies only, and finds them again at the next attach.
    pub(crate) fn is_ephemeral(&self) -> bool {
        self.has_log && !self.holds_dirty()
    }

    /// Whether the home's note says how often it was attached: an ephemeral disk may come back as
    /// it was, and a block device may be a copy of the one that has the newest.
    pub(crate) fn is_counted(&self) -> bool {
        let mut on_sectors = self.members.iter().filter_map(|member| member.medium.on_sectors());
        self.is_ephemeral() || on_sectors.any(OnSectors::is_raw)
    }

    /// The medium of a member that holds metadata.
    #[inline]
    pub(crate) fn words(&self, member: usize) -> &Mapped {
        self.members[member].medium.mapped()
    }

    /// Waits until what this thread has written to metadata is durable, and to blocks of mapped
    /// media.
    #[inline]
    pub(crate) fn fence(&self) {
        self.words(0).fence();
    }

    /// Sees to it that nothing that is stored later is durable without what this thread has stored.
    /// What that replaced is free only when it is durable: see [`Tier::retire`].
    ///
    /// # Durability
    /// As of a fence, except where a log keeps the order: there a sync of the file makes it
    /// durable, or a fence of anybody.
    #[inline]
    pub(crate) fn order(&self) {
        self.words(0).order();
    }

    /// Whether everything that was fenced is durable: a fence itself does not say so, since on
    /// mapped memory it cannot fail.
    ///
    /// # Errors
    /// What the device said when it was not. It keeps to that: nothing more is written there.
    #[inline]
    pub(crate) fn sound(&self) -> Result<()> {
        if self.is_quick {
            return Ok(());
        }
        self.members.iter().filter_map(|member| member.medium.log()).try_for_each(Log::check)
    }

    /// Takes pieces whose entries have been replaced, in order but not yet durably: others get them
    /// when that is durable.
    pub(crate) fn retire(&self, purpose: Purpose, frames: impl IntoIterator<Item = Frame>) {
        let Some(log) =
            self.members[0].medium.log().filter(|_| !self.planted.is(Planted::ReuseUnsynced))
        else {
            return self.allocator.give(purpose, frames);
        };
        let change = log.changes();
        self.retired.lock().extend(frames.into_iter().map(|frame| Retired {
            change,
            purpose,
            frame,
        }));
    }

    /// Gives those pieces to others that no durable entry points to. Whether there are more that a
    /// sync would free.
    pub(crate) fn free_retired(&self) -> bool {
        let Some(log) = self.members[0].medium.log() else { return false };
        let durable = log.durable();
        let mut retired = self.retired.lock();
        while let Some(&Retired { purpose, frame, .. }) =
            retired.front().filter(|retired| retired.change <= durable)
        {
            retired.pop_front();
            self.allocator.give(purpose, [frame]);
        }
        !retired.is_empty()
    }

    /// Writes metadata; durable with the next fence.
    pub(crate) fn write_meta(&self, at: WordAt, bytes: &[u8]) {
        self.words(at.member()).write_meta(at.offset(), bytes);
    }

    /// Between having latched frames and writing to them. Who copies from them without a pin and
    /// gets anything that is written under the latch sees also that the entry has moved on.
    #[inline]
    pub(crate) fn latches_are_visible(&self) {
        fence(Ordering::Release);
    }

    /// The words of a map page begin here.
    pub(crate) fn page_at(&self, page: Frame) -> WordAt {
        let (member, offset) = self.geometry.locate(page);
        WordAt::new(member, offset)
    }

    /// Bytes of all members in use now.
    pub(crate) fn len(&self) -> u64 {
        self.members.iter().map(|m| m.medium.len()).sum()
    }
}
