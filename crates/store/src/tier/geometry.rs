//! Where a frame lies: members, allocation units and offsets.
//!
//! Unit `n` of the tier is unit `n / members` of member `n % members`, so neighbouring units are on
//! different members (striping). The superblock's numbers never change but the length; all members
//! have the same.

use super::Role;
use crate::address::{FRAME, Frame};
use crate::format::record::BATCH_RECORD;
use crate::format::slot::SLOT;
use crate::format::superblock::{LANES_AT, Superblock};

/// The fixed part of a tier's layout.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    pub(crate) seed: u64,
    pub(crate) members: u64,
    /// What each member holds.
    pub(crate) roles: Box<[Role]>,
    pub(crate) unit: u64,
    /// Log2 of the frames in a unit.
    unit_shift: u32,
    /// Offset of the first unit, per member.
    pub(crate) data_start: Vec<u64>,
    pub(crate) lanes: u32,
    pub(crate) batches: u32,
    pub(crate) slots: u64,
}

impl Geometry {
    /// `superblocks` in the order of the members, at least one.
    pub(crate) fn new(superblocks: &[Superblock]) -> Self {
        let first = &superblocks[0];
        Self {
            seed: first.seed,
            members: u64::from(first.members),
            roles: superblocks.iter().map(|_| Role::Both).collect(),
            unit: first.unit,
            unit_shift: (first.unit / FRAME as u64).trailing_zeros(),
            data_start: superblocks.iter().map(|s| s.data_start).collect(),
            lanes: first.lanes,
            batches: first.batches,
            slots: first.slots,
        }
    }

    /// Offset of the first unit on member `member` of a tier with these counts.
    pub(crate) fn data_start_for(
        member: u32,
        lanes: u32,
        batches: u32,
        slots: u64,
        unit: u64,
    ) -> u64 {
        let end = if member == 0 {
            Self::slots_at(lanes, batches) + slots * SLOT as u64
        } else {
            LANES_AT
        };
        end.next_multiple_of(unit)
    }

    fn batches_at(lanes: u32) -> u64 {
        (LANES_AT + u64::from(lanes) * 128).next_multiple_of(FRAME as u64)
    }

    fn slots_at(lanes: u32, batches: u32) -> u64 {
        Self::batches_at(lanes) + u64::from(batches) * BATCH_RECORD as u64
    }

    /// Offset on member 0 of the record in which sequence `seq` of `lane` is kept.
    pub(crate) fn lane_record_at(&self, lane: u32, seq: u64) -> u64 {
        LANES_AT + u64::from(lane) * 128 + (seq & 1) * 64
    }

    /// Offset on member 0 of a batch record.
    pub(crate) fn batch_at(&self, batch: u32) -> u64 {
        Self::batches_at(self.lanes) + u64::from(batch) * BATCH_RECORD as u64
    }

    /// Offset on member 0 of a file slot in front of the units.
    pub(crate) fn slot_at(&self, slot: u64) -> u64 {
        Self::slots_at(self.lanes, self.batches) + slot * SLOT as u64
    }

    pub(crate) fn unit_frames(&self) -> u64 {
        1 << self.unit_shift
    }

    /// Units of the tier when every member has `len` bytes.
    pub(crate) fn units(&self, len: u64) -> u64 {
        let smallest =
            self.data_start.iter().map(|start| len.saturating_sub(*start) / self.unit).min();
        smallest.unwrap_or(0) * self.members
    }

    pub(crate) fn unit_of(&self, frame: Frame) -> u64 {
        frame.0 >> self.unit_shift
    }

    /// The member a frame is on and its byte offset there.
    #[inline]
    pub(crate) fn locate(&self, frame: Frame) -> (usize, u64) {
        let unit = self.unit_of(frame);
        let within = (frame.0 & (self.unit_frames() - 1)) * FRAME as u64;
        let (member, unit) =
            if self.members == 1 { (0, unit) } else { (unit % self.members, unit / self.members) };
        (member as usize, self.data_start[member as usize] + unit * self.unit + within)
    }
}
