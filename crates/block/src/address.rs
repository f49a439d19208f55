//! Positions and lengths on a device, each a type of its own.
//!
//! Invariant: bytes are computed here alone, and a computation that overflows has no result.

use std::fmt;
use std::ops::Range;

/// The position of a sector: its number, counted from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sector(pub u64);

/// A number of sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sectors(pub u64);

/// How many bytes are written as one, all or nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SectorSize {
    /// 512 bytes, which every disk keeps together.
    #[default]
    B512,
    /// 4096 bytes. Whoever asks for this knows that the disk below keeps them together, or needs no
    /// more than 512 of them to be.
    B4096,
}

impl SectorSize {
    /// The size as a number.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::B512 => 512,
            Self::B4096 => 4096,
        }
    }
}

impl fmt::Display for SectorSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes())
    }
}

impl Sectors {
    /// How many bytes they are; `None` when a file could not be that long.
    #[must_use]
    pub fn bytes(self, size: SectorSize) -> Option<u64> {
        self.0.checked_mul(size.bytes() as u64).filter(|bytes| i64::try_from(*bytes).is_ok())
    }

    /// How many whole sectors there are in so many bytes.
    #[must_use]
    pub fn in_bytes(bytes: u64, size: SectorSize) -> Self {
        Self(bytes / size.bytes() as u64)
    }
}

impl Sector {
    /// The bytes from the beginning of this sector on; `None` when no file could have them.
    pub(crate) fn range(self, len: usize, size: SectorSize) -> Option<Range<u64>> {
        let from = Sectors(self.0).bytes(size)?;
        let to = from.checked_add(len as u64).filter(|to| i64::try_from(*to).is_ok())?;
        Some(from..to)
    }
}
