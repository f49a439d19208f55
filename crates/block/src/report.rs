//! What a device is, for people.

use std::fmt;
use std::path::PathBuf;

use crate::{SectorSize, Sectors};

/// What was found when a device was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Where it is.
    pub path: PathBuf,
    /// What it is.
    pub kind: &'static str,
    /// How many bytes are written as one.
    pub sector_size: SectorSize,
    /// How long it is now.
    pub len: Sectors,
    /// Whether what was synced survives a power cut: not on a file system in memory.
    pub survives_power_cut: bool,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, kind, sector_size, len, survives_power_cut } = self;
        let durable = match survives_power_cut {
            true => "durable at sync",
            false => "lost at a power cut, synced or not",
        };
        write!(f, "{}: {kind}, {} sectors of {sector_size} bytes, {durable}", path.display(), len.0)
    }
}
