//! Addresses and counts as types: a frame of a tier, a block of a file, a word on a member.
//!
//! Deliberately not here: anything that knows where a frame lies on a member; that is
//! [`crate::tier::geometry`].

/// Size in bytes of a frame, the unit in which tier space is addressed.
pub(crate) const FRAME: usize = 4096;

/// A frame of a tier, counted over all its members in stripe order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Frame(pub(crate) u64);

/// A block of a file, counted from the start of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockIndex(pub(crate) u64);

/// An 8-byte word on a member: the member's number in the upper 16 bits, the byte offset below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WordAt(pub(crate) u64);

impl WordAt {
    pub(crate) fn new(member: usize, offset: u64) -> Self {
        debug_assert!(offset < 1 << 48);
        Self((member as u64) << 48 | offset)
    }

    pub(crate) fn member(self) -> usize {
        (self.0 >> 48) as usize
    }

    pub(crate) fn offset(self) -> u64 {
        self.0 & ((1 << 48) - 1)
    }

    pub(crate) fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

/// A block size: 4, 8, 16 or 32 KiB, kept as a number of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockSize(u8);

impl BlockSize {
    /// The four sizes there are, smallest first.
    pub const ALL: [BlockSize; 4] = [BlockSize(0), BlockSize(1), BlockSize(2), BlockSize(3)];

    /// The block size of `bytes` bytes, or `None` when it is not 4, 8, 16 or 32 KiB.
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.bytes() == bytes as usize)
    }

    /// The size in bytes.
    pub fn bytes(self) -> usize {
        FRAME << self.0
    }

    pub(crate) fn frames(self) -> u64 {
        1 << self.0
    }

    /// 0 for 4 KiB to 3 for 32 KiB: the index of a free list.
    pub(crate) fn class(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn from_class(class: u8) -> Option<Self> {
        (class < 4).then_some(Self(class))
    }

    pub(crate) fn block_of(self, offset: u64) -> BlockIndex {
        BlockIndex(offset >> (FRAME.trailing_zeros() + u32::from(self.0)))
    }

    pub(crate) fn start_of(self, block: BlockIndex) -> u64 {
        block.0 * self.bytes() as u64
    }
}
