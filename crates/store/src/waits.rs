//! The wait events and counters of the store. Oracle's names where the meaning is the same, our own
//! where it is not.
//!
//! Where it stands: a foreground wait is one a caller of [`crate::File`] sat through; background
//! waits are those of destaging.

use tiersmith_events::{counters, wait_events};

wait_events! {
    /// Every wait the store records.
    pub const EVENTS;
    /// A read of one or more blocks from the home file, because the fast tier does not hold them.
    HOME_READ = "db file sequential read", UserIo;
    /// A read of a block that the fast tier holds and the home file also has (state Cached).
    CACHED_READ = "db flash cache single block physical read", UserIo;
    /// A read of a block whose newest version is only in the fast tier (state Dirty).
    DIRTY_READ = "tier newest block read", UserIo;
    /// A read or write of a file that goes straight to home (class pass).
    PASS_IO = "pass file read or write", UserIo;
    /// One block written to the fast tier and durable: the pointer switch.
    BLOCK_WRITE = "tier block write", UserIo;
    /// Several blocks written to the fast tier, all or none.
    BATCH_WRITE = "tier batch write", UserIo;
    /// A write to a redo file in the fast tier, durable on return.
    REDO_WRITE = "log file parallel write", SystemIo;
    /// A sync of a redo file: what a commit waits for.
    REDO_SYNC = "log file sync", Commit;
    /// A sync of a data file; on persistent media there is nothing left to do.
    DATA_SYNC = "tier data sync", UserIo;
    /// A sync of a file that goes straight to home.
    PASS_SYNC = "pass file sync", UserIo;
    /// A home block copied into the fast tier after a read.
    ADMIT = "db flash cache write", UserIo;
    /// Dirty blocks written to the home file, the sync included.
    DESTAGE = "db file parallel write", SystemIo, background;
    /// A block read from home and copied into the fast tier because its file is pinned or moved.
    MOVE_IN = "tier move in", UserIo, background;
    /// A writer waited until fast blocks were free again.
    FREE_WAIT = "free buffer waits", Configuration;
    /// An opening waited for a slot of the file table.
    SLOT_WAIT = "file slot waits", Configuration;
    /// The fast tier was grown by one step.
    GROW = "tier grow", Configuration;
    /// A file was cut or lengthened.
    RESIZE = "tier file resize", UserIo;
    /// Reading the maps and finishing what a crash interrupted, at attach.
    RECOVERY = "recovery read", SystemIo, background;
}

counters! {
    /// Everything the store counts.
    pub const COUNTERS;
    /// Blocks read from the fast tier.
    TIER_HITS = "flash cache read hits", "blocks";
    /// Blocks read from the home file.
    TIER_MISSES = "flash cache read misses", "blocks";
    /// Blocks among them that were not the first of their read that came from there.
    MORE_HITS = "flash cache read hits: more of a request", "blocks";
    /// Blocks of redo files among those that were read from the fast tier.
    REDO_HITS = "flash cache read hits: redo", "blocks";
    /// Blocks of redo files among those that were read from the home file.
    REDO_MISSES = "flash cache read misses: redo", "blocks";
    /// Blocks of home that became clean copies.
    INSERTS = "flash cache inserts", "blocks";
    /// Blocks read from home that did not become clean copies: part of a scan of a large file.
    SKIP_SCAN = "flash cache insert skip: scan", "blocks";
    /// The same, because the tier is full and nobody is known to have asked for them before.
    SKIP_FIRST = "flash cache insert skip: first request", "blocks";
    /// The same, because the tier is full and it is too long ago that somebody asked for them.
    SKIP_RARE = "flash cache insert skip: requested too long ago", "blocks";
    /// The same, because the write budget has room for better ones only, or for none.
    SKIP_BUDGET = "flash cache insert skip: write budget", "blocks";
    /// The same, because what is free is kept for writers.
    SKIP_NO_ROOM = "flash cache insert skip: no room", "blocks";
    /// The same, because a rule says none.
    SKIP_RULE = "flash cache insert skip: rule none", "blocks";
    /// The same, because their file has no clean copies: it is redo, or has no slot in the tier.
    SKIP_OUTSIDE = "flash cache insert skip: file without copies", "blocks";
    /// The same, because they were in the tier by then, or on their way there.
    SKIP_EXISTS = "flash cache insert skip: exists", "blocks";
    /// The same, because they were changed, cut or destaged meanwhile, or home or the tier failed.
    SKIP_LOST = "flash cache insert skip: changed meanwhile", "blocks";
    /// Clean copies that went because home was written past them, cut or cleared, or because the
    /// medium no longer gave them as they were.
    INVALIDATED = "flash cache eviction: invalidated", "blocks";
    /// Bytes of data files written to the fast tier, whole blocks: of programs, and clean copies.
    DATA_WRITTEN = "flash cache bytes written", "bytes";
    /// Blocks handed out as references into the tier, without a copy.
    ZERO_COPY = "zero-copy reads", "blocks";
    /// Bytes written to redo files.
    REDO_SIZE = "redo size", "bytes";
    /// Blocks written to home.
    DESTAGED = "blocks destaged", "blocks";
    /// Clean copies that the medium lost or changed, and that are read from home since.
    REPAIRED = "blocks repaired from home", "blocks";
    /// Blocks read and compared with their checksums by a scrub.
    SCRUBBED = "blocks scrubbed", "blocks";
    /// Blocks that came into the fast tier because their file is pinned or moved there.
    MOVED_IN = "blocks moved into the tier", "blocks";
    /// Blocks that went home because their file is moved there.
    MOVED_HOME = "blocks moved home", "blocks";
    /// Clean copies given up.
    EVICTED = "blocks evicted", "blocks";
    /// Files that gave their slot of the file table to others.
    RECYCLED = "file slots recycled", "files";
}
