//! Where each field lies, read from the tables in [`crate::format`] a second time.
//!
//! Deliberately not the structures of `format/`: a mistake there must not be one here.

/// The word in eight bytes, and the checksum behind an entry.
pub(super) const WORD: usize = 0;
pub(super) const SUM: usize = 8;

/// The superblock.
pub(super) mod superblock {
    pub(in crate::check) const MAGIC: usize = 0;
    pub(in crate::check) const VERSION: usize = 8;
    pub(in crate::check) const STATE: usize = 12;
    pub(in crate::check) const SEQUENCE: usize = 16;
    /// The tier's and the attachment's, so many bytes each.
    pub(in crate::check) const UUIDS: std::ops::Range<usize> = 24..56;
    pub(in crate::check) const UUID: usize = 16;
    pub(in crate::check) const MEMBER: usize = 56;
    pub(in crate::check) const MEMBERS: usize = 60;
    pub(in crate::check) const SEED: usize = 64;
    pub(in crate::check) const LEN: usize = 72;
    pub(in crate::check) const MAX_LEN: usize = 80;
    pub(in crate::check) const UNIT: usize = 96;
    pub(in crate::check) const DATA_START: usize = 104;
    pub(in crate::check) const LANES: usize = 112;
    pub(in crate::check) const BATCHES: usize = 116;
    pub(in crate::check) const SLOTS: usize = 120;
    pub(in crate::check) const ATTACHES: usize = 128;
    pub(in crate::check) const FLAGS: usize = 136;
    pub(in crate::check) const INCOMPATIBLE: usize = 140;
    pub(in crate::check) const HOME_INO: usize = 144;
    pub(in crate::check) const HOME_BTIME: usize = 152;
    pub(in crate::check) const ROLE: usize = 160;
    pub(in crate::check) const LEDGER: usize = 164;
    pub(in crate::check) const SECTOR_SIZE: usize = 168;
    pub(in crate::check) const HOME_PATH_LEN: usize = 172;
    pub(in crate::check) const NAME: std::ops::Range<usize> = 176..240;
    pub(in crate::check) const HOME_PATH: std::ops::Range<usize> = 240..1264;
    pub(in crate::check) const EXTENT_COUNT: usize = 1264;
    pub(in crate::check) const EXTENTS: usize = 1272;
    pub(in crate::check) const LOG_LEN: usize = 3832;
    pub(in crate::check) const RESERVED: std::ops::Range<usize> = 3840..4088;
    pub(in crate::check) const CHECK: usize = 4088;
}

/// The headers and records of a log.
pub(super) mod log {
    pub(in crate::check) const MAGIC: std::ops::Range<usize> = 0..8;
    pub(in crate::check) const GENERATION: usize = 8;
    pub(in crate::check) const HEAD: usize = 16;
    pub(in crate::check) const UUID: std::ops::Range<usize> = 24..40;
    pub(in crate::check) const HEADER_CHECK: usize = 40;
    pub(in crate::check) const CHECK: usize = 8;
    pub(in crate::check) const POSITION: usize = 16;
    pub(in crate::check) const LEN: usize = 24;
    pub(in crate::check) const RUNS: usize = 32;
    pub(in crate::check) const BLOCKS: usize = 36;
    pub(in crate::check) const RUNS_AT: usize = 40;
    /// Of a run: where, how long, and where its bytes begin.
    pub(in crate::check) const RUN_OFFSET: usize = 0;
    pub(in crate::check) const RUN_LEN: usize = 8;
    pub(in crate::check) const RUN_BYTES: usize = 16;
    /// Of a block: where, how long, its checksum; and where the next one begins.
    pub(in crate::check) const BLOCK_NUMBERS: [usize; 3] = [0, 8, 16];
    pub(in crate::check) const BLOCK_BYTES: usize = 24;
}

/// A slot of the file table.
pub(super) mod slot {
    pub(in crate::check) const IN_USE: usize = 0;
    pub(in crate::check) const IDENTITY: u64 = 16;
    pub(in crate::check) const IDENTITY_BODY: std::ops::Range<usize> = 16..56;
    pub(in crate::check) const INO: usize = 16;
    pub(in crate::check) const GENERATION: usize = 24;
    pub(in crate::check) const CLASS: usize = 28;
    pub(in crate::check) const BLOCK_SIZE: usize = 29;
    pub(in crate::check) const BTIME: usize = 32;
    pub(in crate::check) const IDENTITY_CHECK: usize = 56;
    pub(in crate::check) const ROOTS: [usize; 3] = [64, 72, 80];
    pub(in crate::check) const UNUSED: [std::ops::Range<usize>; 2] = [8..16, 88..128];
    pub(in crate::check) const LINES: usize = 128;
    pub(in crate::check) const LINE: usize = 64;
    pub(in crate::check) const HINT_CHECK: usize = 384;
    pub(in crate::check) const HINT_LEN: usize = 392;
    pub(in crate::check) const HINT: usize = 394;
}

/// A state line.
pub(super) mod line {
    pub(in crate::check) const SEQUENCE: usize = 0;
    pub(in crate::check) const SIZE: usize = 8;
    pub(in crate::check) const FLAGS: usize = 16;
    pub(in crate::check) const HOME_SIZE: usize = 24;
    pub(in crate::check) const HOME_MTIME: usize = 32;
    pub(in crate::check) const SINCE: usize = 40;
    pub(in crate::check) const CHECK: usize = 56;
}

/// A lane record.
pub(super) mod lane {
    pub(in crate::check) const SIZE: usize = 64;
    pub(in crate::check) const SEQUENCE: usize = 0;
    pub(in crate::check) const AT: usize = 8;
    pub(in crate::check) const WORD: usize = 16;
    pub(in crate::check) const HASH: usize = 24;
    pub(in crate::check) const FILE: usize = 32;
    pub(in crate::check) const BLOCK: usize = 40;
    pub(in crate::check) const FRAMES: usize = 48;
    pub(in crate::check) const LANE: usize = 52;
    pub(in crate::check) const CHECK: usize = 56;
}

/// A batch record, and its items.
pub(super) mod batch {
    pub(in crate::check) const SEQUENCE: usize = 0;
    pub(in crate::check) const FILE: usize = 8;
    pub(in crate::check) const COUNT: usize = 16;
    pub(in crate::check) const FRAMES: usize = 20;
    pub(in crate::check) const OVERFLOW: usize = 32;
    pub(in crate::check) const ITEMS_HASH: usize = 40;
    pub(in crate::check) const SLOT: usize = 48;
    pub(in crate::check) const CHECK: usize = 56;
    pub(in crate::check) const ITEMS: usize = 64;
    pub(in crate::check) const ITEM_AT: usize = 0;
    pub(in crate::check) const ITEM_WORD: usize = 8;
    pub(in crate::check) const ITEM_HASH: usize = 16;
    pub(in crate::check) const ITEM_BLOCK: usize = 24;
}
