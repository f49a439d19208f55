//! A tier: members striped into one space of frames, with lanes, batch records and a file table.
//!
//! Start reading at [`lane`], the life of one switch. [`geometry`] knows where things lie,
//! [`alloc`] what is free, [`blocks`] what can be done with the bytes of a block, [`batch`] how several blocks
//! switch together, [`open`] how a tier is formatted and opened, [`grow`] how it gets larger, [`table`] the file table, [`zeroed`] what
//! redo files grow by.
//!
//! **Invariant**: map pages, and blocks of redo files, stay latched for as long as an entry points to them. A block of a data file is claimed while
//! it is written, and may stay so afterwards: who wants to view it (to read without a copy) and finds it claimed takes the claim back under its
//! lane's lock ([`Tier::let_go`]). A free piece may be claimed too; the claim is that of whoever takes the piece ([`Tier::own`]).

pub(crate) mod alloc;
pub(crate) mod batch;
pub(crate) mod blocks;
pub(crate) mod geometry;
pub(crate) mod grow;
pub(crate) mod held;
pub(crate) mod label;
pub(crate) mod lane;
pub(crate) mod open;
pub(crate) mod table;
pub(crate) mod zeroed;

use crate::address::{BlockIndex, BlockSize, Frame, WordAt};
use crate::file::latch::Latch;
use crate::format::superblock::Superblock;
use crate::lend::place::LentDir;
use crate::medium::{Backing, BlockMedium, Durability, Mapped};
use crate::planted::Planted;
use crate::sync::Mutex;
use crate::sync::atomic::{Ordering, fence};
use alloc::Allocator;
use batch::BatchSlot;
use crossbeam_utils::CachePadded;
use geometry::Geometry;
use lane::Lane;
use std::path::PathBuf;
use std::sync::Arc;
use table::FileTable;

/// One backing of a tier.
pub(crate) struct Member {
    pub(crate) medium: Backing,
    pub(crate) path: PathBuf,
}

/// Which block, and where its map entry is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockAddress {
    pub(crate) file: u64,
    pub(crate) block: BlockIndex,
    pub(crate) at: WordAt,
    pub(crate) size: BlockSize,
}

/// A tier in use by one attached home.
pub(crate) struct Tier {
    pub(crate) name: String,
    pub(crate) members: Vec<Member>,
    pub(crate) geometry: Geometry,
    pub(crate) seed: u64,
    pub(crate) superblocks: Mutex<Vec<Superblock>>,
    pub(crate) allocator: Allocator,
    /// Locks that sleep when they wait long, for a thread of lower priority may hold one: held for
    /// a microsecond, and released without waiting for what the holder sent on its way.
    pub(crate) lanes: Box<[CachePadded<Latch<Lane>>]>,
    /// What of each lane is looked at without its lock.
    pub(crate) shown: Box<[CachePadded<lane::Shown>]>,
    pub(crate) batches: Box<[CachePadded<Mutex<BatchSlot>>]>,
    pub(crate) table: Mutex<FileTable>,
    /// Held by the one that sees to it that there are free slots ([`crate::slots`]).
    pub(crate) making_slots: Mutex<()>,
    /// Pieces at hand for redo files that grow.
    pub(crate) zeroed: Latch<zeroed::Zeroed>,
    /// Held by the one that makes room ([`crate::room::Turn`]).
    pub(crate) room: Mutex<()>,
    /// Where the contents of lent files are ([`crate::lend`]); `None`: nothing can be lent.
    pub(crate) lent_dir: Option<Arc<dyn LentDir>>,
    /// Which files may live here.
    pub(crate) holds_redo: bool,
    pub(crate) holds_data: bool,
    /// Of the least durable member.
    pub(crate) durability: Durability,
    pub(crate) emulated: bool,
    /// Pieces a lane takes from the allocator at a time.
    pub(crate) refill: usize,
    pub(crate) planted: Planted,
}

impl Tier {
    /// It gets another one when it is formatted.
    pub(crate) fn uuid(&self) -> [u8; 16] {
        self.superblocks.lock()[0].tier_uuid
    }

    /// Whether a block may be `Dirty` here: the media survive power loss, or the user said they may be taken to.
    pub(crate) fn holds_dirty(&self) -> bool {
        self.durability.may_hold_only_copy()
    }

    /// The medium of a member that holds metadata.
    pub(crate) fn words(&self, member: usize) -> &Mapped {
        self.members[member].medium.mapped()
    }

    /// Waits until what this thread has written to metadata is durable, and to blocks of mapped media.
    pub(crate) fn fence(&self) {
        self.words(0).fence();
    }

    /// Stores an 8-byte word and sends its line on its way; durable with the next fence.
    pub(crate) fn store_word(&self, at: WordAt, word: u64) {
        let medium = self.words(at.member());
        medium.store_word(at.offset(), word);
        if !self.planted.is(Planted::DropEntryFlush) {
            medium.flush_word(at.offset());
        }
    }

    /// [`Tier::store_word`] past the caches, for a caller that fences before it unlocks what keeps others from this word: without that
    /// fence what another thread stores there next might arrive first. A line that is in no cache, as most entries' are, costs
    /// nothing here, where `store_word` waits for it and the fence then waits for its way back.
    pub(crate) fn stream_word(&self, at: WordAt, word: u64) {
        let medium = self.words(at.member());
        if self.planted.is(Planted::DropEntryFlush) {
            return medium.store_word(at.offset(), word);
        }
        medium.stream_word(at.offset(), word);
    }

    /// Writes metadata; durable with the next fence.
    pub(crate) fn write_meta(&self, at: WordAt, bytes: &[u8]) {
        self.words(at.member()).write_meta(at.offset(), bytes);
    }

    /// Between having latched frames and writing to them. Who copies from them without a pin and gets anything
    /// that is written under the latch sees also that the entry has moved on ([`Tier::turns_of`]).
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

#[cfg(test)]
mod tests {
    use crate::medium::Medium;
    use crate::options::{Options, TierSpec};
    use crate::profile::Profile;
    use std::time::Duration;

    /// Sleeps and other waits of this thread that let any thread run, of whatever priority.
    fn waits() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let waits = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        waits.unwrap().trim().parse().unwrap()
    }

    #[test]
    fn who_waits_for_a_lane_sleeps_so_that_a_holder_of_lower_priority_can_run() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("db")).unwrap();
        let tier = TierSpec::new("fast", dir.path().join("fast"), Medium::Emulated, 16 << 20);
        let profile = Some(Profile::named("generic").unwrap());
        let options = Options { profile, background: false, ..Options::default() };
        let home = crate::attach(&dir.path().join("db"), &[tier], options).unwrap();
        let tier = &home.inner.tiers[0];
        let held = tier.lock_lane_number(0);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let before = waits();
                drop(tier.lock_lane_number(0));
                waits() - before
            });
            std::thread::sleep(Duration::from_millis(100));
            drop(held);
            let slept = waiter.join().unwrap();
            assert!(slept >= 10, "{slept} sleeps in 100 ms");
        });
    }
}
