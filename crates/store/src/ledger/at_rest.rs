//! Checksums at rest: what a block is compared with whenever it is read from a device, destaged or
//! scrubbed, and in mapped memory when it is read the first time after an attach.
//!
//! The checksum lies beside the block's entry in the map page and says whose block the bytes are
//! ([`crate::format::entry`]). It is the one that the switch takes on the way ([`super::lanes`]):
//! it is in the record for as long as that counts, and goes to its place with the entry. So a block
//! that is damaged, one that was written elsewhere, and an older version of a block are told from
//! the one that the entry means.
//!
//! Deliberately absent: what is done about a block that is not what it should be
//! ([`crate::mover::unreadable`]).
//!
//! **Invariant**: an entry of a data file that is not `Home` has its checksum durably beside it, or
//! a record that counts has both.

use super::Ledger;
use super::lanes::LaneGuard;
use super::switch::Spot;
use crate::address::WordAt;
use crate::error::{MediumError, Result};
use crate::format::entry::{Entry, Key, NO_SUM, SUM_AT};
use crate::medium::hash_bytes;
use crate::planted::Planted;

impl Ledger {
    /// Stores an entry and the checksum of its block past the caches, as [`Ledger::stream_word`]
    /// does.
    #[inline]
    pub(super) fn stream_entry(&self, at: WordAt, word: u64, sum: u64) {
        self.stream_word(at, word);
        if !self.planted.is(Planted::SumLeftBehind) {
            self.stream_word(at.plus(SUM_AT), sum);
        }
    }

    /// [`Ledger::stream_entry`] of several.
    pub(super) fn stream_entries(&self, entries: &[(WordAt, u64, u64)]) {
        entries.iter().for_each(|(at, word, sum)| self.stream_entry(*at, *word, *sum));
    }

    /// The checksum at rest of bytes with the checksum `hash` as the block of this key.
    #[inline]
    pub(super) fn sum_with(&self, key: Key, hash: u64) -> u64 {
        if self.planted.is(Planted::SumWithoutPlace) { hash.max(1) } else { key.block_sum(hash) }
    }

    /// Stores the checksum that belongs to the entry at `at`; durable with the next fence.
    pub(crate) fn store_sum(&self, at: WordAt, sum: u64) {
        self.store_word(at.plus(SUM_AT), sum);
    }

    /// The checksum of a block whose lane is locked.
    fn sum_under(&self, guard: &LaneGuard<'_>, spot: Spot<'_>) -> u64 {
        if let Some(pending) =
            guard.lane.pending.as_ref().filter(|p| p.is_of(spot.file, spot.block))
        {
            return pending.sum;
        }
        let Some(at) = spot.at() else { return NO_SUM };
        self.sum_of_batch(guard, spot.file, at)
            .unwrap_or_else(|| self.words(at.member()).load_word(at.offset() + SUM_AT))
    }

    /// The same, if a small batch has not stored the entry yet.
    fn sum_of_batch(&self, guard: &LaneGuard<'_>, file: u64, at: WordAt) -> Option<u64> {
        if guard.lane.batched == 0 {
            return None;
        }
        let pair = self.pairs[self.pair_of(file) as usize].lock();
        pair.pending.iter().find(|(pending, ..)| *pending == at).map(|(.., sum)| *sum)
    }

    /// The checksum of a block that is `entry`; `None` when it is another by now.
    pub(crate) fn sum_of(&self, spot: Spot<'_>, entry: Entry) -> Option<u64> {
        let guard = self.lock_lane(spot.file, spot.block);
        (spot.entry() == entry).then(|| self.sum_under(&guard, spot))
    }

    /// What a block must be compared with when it is read, its lane locked; [`NO_SUM`] where
    /// nothing is to be compared.
    pub(crate) fn sum_to_see(&self, guard: &LaneGuard<'_>, spot: Spot<'_>, entry: Entry) -> u64 {
        if entry != Entry::HOME && self.is_to_be_seen(entry) {
            self.sum_under(guard, spot)
        } else {
            NO_SUM
        }
    }

    /// Whether who reads a block of a data file compares it with its checksum: always on a device,
    /// and in memory the first time.
    #[inline]
    pub(crate) fn is_to_be_seen(&self, entry: Entry) -> bool {
        entry.is_unseen() || self.is_on_device
    }

    /// Compares the bytes of a block that is `entry` with a checksum.
    ///
    /// # Errors
    /// [`MediumError::Unreadable`]: they are not what was written there.
    pub(crate) fn compare(
        &self,
        spot: Spot<'_>,
        entry: Entry,
        bytes: &[u8],
        sum: u64,
    ) -> Result<()> {
        if sum == NO_SUM || spot.sum(self, hash_bytes(bytes, self.seed)) == sum {
            return Ok(());
        }
        let (member, at) = self.geometry.locate(entry.frame());
        let what = "its checksum is not that of this block of this file: the medium changed it, \
                    wrote it elsewhere or \
                    gave an older version";
        let source = std::io::Error::new(std::io::ErrorKind::InvalidData, what);
        let path = self.members[member].path.clone();
        Err(MediumError::Unreadable { path, at, len: bytes.len(), source }.into())
    }

    /// [`Ledger::compare`] of a block that a program reads.
    pub(crate) fn compare_read(
        &self,
        spot: Spot<'_>,
        entry: Entry,
        bytes: &[u8],
        sum: u64,
    ) -> Result<()> {
        let left_out =
            if entry.is_unseen() { Planted::FirstTouchUnseen } else { Planted::ReadUnseen };
        if self.planted.is(left_out) { Ok(()) } else { self.compare(spot, entry, bytes, sum) }
    }

    /// Remembers that a block which is `entry` was compared.
    pub(crate) fn note_seen(&self, spot: Spot<'_>, entry: Entry) {
        if entry.is_unseen() {
            let _lane = self.lock_lane(spot.file, spot.block);
            if spot.entry() == entry {
                spot.leaf.set(spot.index, entry.seen());
            }
        }
    }

    /// Says that a block has no checksum, or another one than it had, durably: what is changed in
    /// place by recovery, when nobody else is at work.
    pub(crate) fn restate(&self, spot: Spot<'_>, bytes: Option<&[u8]>) {
        if bytes.is_some() && self.planted.is(Planted::TailSumUnstated) {
            return;
        }
        let sum = bytes.map_or(NO_SUM, |bytes| spot.sum(self, hash_bytes(bytes, self.seed)));
        if let Some(at) = spot.at() {
            self.store_sum(at, sum);
            self.fence();
        }
    }
}
