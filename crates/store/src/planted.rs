//! Planted bugs: each leaves out or reorders one step that a promise rests on. The crash suite must
//! catch every one of them (`tests/it/crash_suite/planted.rs`); a bug that it does not catch is a
//! hole in the suite.
//!
//! Without the `testing` feature there is none of this in the program: [`Planted::is`] is `false`
//! at compile time.

/// One planted bug, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planted {
    /// The store as it is.
    #[default]
    None,
    /// An overwrite is acknowledged before its fence.
    DropFenceBeforeAck,
    /// The map entry is switched and durable before the block it points to is.
    PointerBeforeBlock,
    /// An evicted block's frame is free for others while the durable entry still points to it.
    ReuseTooEarly,
    /// Recovery applies a lane record without looking at the block's checksum.
    SkipBlockChecksum,
    /// The entry is stored but its cache line never flushed.
    DropEntryFlush,
    /// Both records of a lane share one slot, so that a new record destroys the only trace of the
    /// last switch.
    OneRecordSlot,
    /// A block is evicted while a lane record still points to it.
    EvictWithoutRetire,
    /// An entry is stored without the checksum that belongs beside it.
    SumLeftBehind,
    /// The checksum at rest says nothing of the block's place.
    SumWithoutPlace,
    /// Destaging does not compare a block with its checksum.
    DestageUnseen,
    /// A part of a block is added to a block that is not compared.
    PartUnseen,
    /// A read from a device does not compare the block with its checksum.
    ReadUnseen,
    /// A read from memory does not compare the block the first time.
    FirstTouchUnseen,
    /// A batch is a loop of single switches.
    BatchOneByOne,
    /// Recovery applies a batch record without looking at the blocks' checksums.
    SkipBatchChecksum,
    /// The batch record is taken back before the entries are durable.
    BatchRetiredEarly,
    /// A small batch leaves the entries of the one before it in DRAM.
    BatchEntriesLeft,
    /// The two records of small batches share one place, so that a new one destroys the only trace
    /// of the last.
    BatchOneSlot,
    /// A block is overwritten while the record of a small batch still speaks of it.
    BatchNotRetired,
    /// Of two records of small batches the newer is emptied first, and no fence is between.
    BatchNewerFirst,
    /// Recovery applies the older of two batch records last.
    BatchNewestReplayedFirst,
    /// Destaging does not sync the home file before it calls the blocks clean.
    DestageWithoutSync,
    /// A commit of a log is acknowledged before its sync.
    LogNotSynced,
    /// A log's header says that records are not needed before the pages are durable in their
    /// places.
    LogHeadEarly,
    /// The newest record of a log counts also when its blocks did not arrive.
    LogBlocksUnchecked,
    /// A record of a log counts also when it is torn.
    LogTornRecord,
    /// A record of an earlier lap of a log counts.
    LogOldLap,
    /// A block is written of which the newest record of a log has a checksum.
    LogBlockRewritten,
    /// A frame is used again before the log has made durable what no longer points to it.
    ReuseUnsynced,
    /// A block is written where the log still has a map page.
    LogPageOverBlock,
    /// Of two records about one block the newer is emptied first, and no fence is between.
    RetireNewerFirst,
    /// The records of every attach are numbered from one again.
    RecordNumbersRepeat,
    /// A redo write is acknowledged before its fence.
    RedoWithoutFence,
    /// A redo write that makes the file longer does not make the new size durable.
    SizeNotDurable,
    /// A home block enters the cache with its entry durable before its bytes.
    AdmitPointerFirst,
    /// Truncation cuts the home file before the new size is durable in the tier.
    TruncateHomeFirst,
    /// Truncation leaves the entries past the end; regrowing shows them again.
    TruncateKeepsEntries,
    /// Unlinking frees the file's blocks before the home directory entry is gone for good.
    UnlinkFreesFirst,
    /// Recovery calls done what home shows, without syncing it: after a killed process a power cut
    /// may take that back.
    RecoveryWithoutSync,
    /// A new map page is linked before its contents are durable.
    MapPageLinkedFirst,
    /// A map page that says nothing is free for others while the durable pointer to it is still
    /// there.
    MapPageFreedEarly,
    /// A file slot is put in use before its contents are durable.
    SlotInUseFirst,
    /// A redo file grows by a piece that still holds what it held before.
    RedoPieceNotZeroed,
    /// Punching gives home's space back before the tier has the zeros.
    PunchHomeFirst,
    /// A file is said to be lent before its plain file is durable.
    LentBeforeSync,
    /// A file is said to be back before home is durable.
    GivenBackBeforeSync,
    /// A new map page is everybody's before its link is durable.
    MapPageShownEarly,
    /// A longer file is everybody's before its size is durable.
    SizeShownEarly,
    /// A file that leaves the tier gives its slot back before home has its blocks.
    SlotFreedBeforeHome,
    /// The superblocks name an extent of the file table before its slots are durable.
    ExtentNamedFirst,
    /// Detaching moves the home back to its path before the newest blocks are home.
    DoorOpenedEarly,
    /// Attaching moves the home aside before the attachment note is durable.
    DoorClosedFirst,
    /// Recovery does not look at the files that tell that a server ran without the tier.
    SentinelUnchecked,
    /// Part of a block that was written without its lane goes over a version that came meanwhile.
    PartOverMoved,
    /// A block that was admitted without its lane goes over a version that came meanwhile.
    AdmitUnasked,
    /// The slot of a file that was just made does not say that the file may be gone.
    MadeUndoubted,
    /// The sync of a file leaves its name as it is.
    NameNotSynced,
    /// The blocks of a removed file are free for others before the removal is durable.
    RemovedFreedEarly,
    /// The sync of a directory does nothing.
    DirectoryNotSynced,
    /// What was written to a device of sectors is called durable before its sync.
    DeviceNotSynced,
    /// A file's sync leaves out the device that has its blocks.
    SyncWithoutDevice,
    /// Recovery empties records while the entries they speak of are still on their way.
    ReplayUnfenced,
    /// Both copies of a superblock are written with one fence.
    SuperblocksTogether,
    /// Eviction takes blocks that home does not have.
    EvictDirty,
    /// The drain frees what the entries on the medium point to, and does not store others.
    DrainKeepsEntries,
    /// Home is changed before the state line says so.
    ChangeUnsaid,
    /// The last name of a file goes before the state line says so.
    UnlinkUnsaid,
    /// A plain file goes before its loan has ended on the tier.
    PlainRemovedFirst,
    /// A lent file is cut while the tier says that it is longer.
    PlainCutFirst,
    /// What is cut off within a block of redo stays there.
    TailNotZeroed,
    /// Recovery makes the rest of a last block zero while the block's checksum still counts.
    TailSumKept,
    /// Recovery does not state the checksum of a last block that has none.
    TailSumUnstated,

    /// Home is written past an ephemeral tier that still has the old copy.
    HomeBeforeCopies,
    /// Home is written past an ephemeral tier that has an old copy durably, which somebody else is
    /// just giving up (`file/through_tests.rs`).
    OthersUnwaited,
    /// What home may still lose is copied to an ephemeral tier.
    AdmitUnsynced,
    /// Recovery goes by the size that an ephemeral tier knows.
    SizeOfLine,

    // Between threads, each by the name that the model of the protocol has for it
    // (`tests/it/interleavings.rs`).
    /// A copy out of the tier compares the entry only.
    NoTurns,
    /// A copy out of the tier compares the turns only.
    NoSecondEntry,
    /// A lane's turn is not counted.
    TurnNotCounted,
    /// Who takes a reference does not look at the entry again when it has its view.
    NoSecondLook,
    /// A claim is let go without the lane.
    LetGoUnlocked,
    /// A claim is let go by what the entry was before the lane was locked.
    LetGoOld,
    /// A piece is taken that somebody still looks at ([`tiersmith_pmem`]'s frames).
    TakeViewed,
    /// A view counts although the frame is claimed ([`tiersmith_pmem`]'s frames).
    ViewOfClaimed,
    /// Destaging lets its view go before it compares the entry.
    ViewGoneEarly,
    /// Admission, and a read from home, without a look at the count of evictions.
    NoEvictions,
    /// A read from home looks at the entry after the count, afterwards.
    EntryAfterEvictions,
    /// The lock on map pages is let go before others can see the new leaf.
    PagesLetGoEarly,
    /// A read from home goes by the size that it began with.
    OldSize,
    /// A piece is laid out as claimed without a look.
    OwnedUnseen,
    /// The guessed piece is filled, whichever the lane has laid out by then.
    GuessTrusted,
    /// A switch looks at the file's size before it has the lane.
    SizeBeforeLane,
    /// A redo block becomes the tier's without `meta`.
    OwnWithoutMeta,
    /// The drain lets `meta` go before its words have been stored.
    MetaGoneEarly,
    /// The drain does not ask whether a block was written meanwhile.
    DrainRewritten,
    /// The drain frees frames before the words that no longer point to them have been stored.
    FreedEarly,
    /// An append within a block does not ask again, under `meta`, where the block is.
    OldGuess,
}

impl Planted {
    /// All planted bugs that cutting the power shows. [`Planted::SentinelUnchecked`] shows when a
    /// server has run between two attaches (`tests/it/hostile_offline.rs`).
    pub const ALL: [Planted; 52] = [
        Planted::DropFenceBeforeAck,
        Planted::PointerBeforeBlock,
        Planted::ReuseTooEarly,
        Planted::SkipBlockChecksum,
        Planted::DropEntryFlush,
        Planted::OneRecordSlot,
        Planted::EvictWithoutRetire,
        Planted::SumLeftBehind,
        Planted::BatchOneByOne,
        Planted::SkipBatchChecksum,
        Planted::BatchRetiredEarly,
        Planted::BatchEntriesLeft,
        Planted::BatchOneSlot,
        Planted::BatchNotRetired,
        Planted::BatchNewerFirst,
        Planted::BatchNewestReplayedFirst,
        Planted::DestageWithoutSync,
        Planted::RetireNewerFirst,
        Planted::RecordNumbersRepeat,
        Planted::RedoWithoutFence,
        Planted::SizeNotDurable,
        Planted::AdmitPointerFirst,
        Planted::TruncateHomeFirst,
        Planted::TruncateKeepsEntries,
        Planted::UnlinkFreesFirst,
        Planted::RecoveryWithoutSync,
        Planted::MapPageLinkedFirst,
        Planted::MapPageFreedEarly,
        Planted::SlotInUseFirst,
        Planted::RedoPieceNotZeroed,
        Planted::PunchHomeFirst,
        Planted::LentBeforeSync,
        Planted::GivenBackBeforeSync,
        Planted::MapPageShownEarly,
        Planted::SizeShownEarly,
        Planted::SlotFreedBeforeHome,
        Planted::ExtentNamedFirst,
        Planted::DoorOpenedEarly,
        Planted::DoorClosedFirst,
        Planted::ReplayUnfenced,
        Planted::SuperblocksTogether,
        Planted::EvictDirty,
        Planted::DrainKeepsEntries,
        Planted::ChangeUnsaid,
        Planted::UnlinkUnsaid,
        Planted::PlainRemovedFirst,
        Planted::PlainCutFirst,
        Planted::TailNotZeroed,
        Planted::MadeUndoubted,
        Planted::NameNotSynced,
        Planted::RemovedFreedEarly,
        Planted::DirectoryNotSynced,
    ];

    /// Those that show between threads, on a medium that takes its time (`tests/it/apart.rs`).
    pub const APART: [Planted; 2] = [Planted::PartOverMoved, Planted::AdmitUnasked];

    /// Those that show where blocks are on a device of sectors.
    pub const ON_SECTORS: [Planted; 2] = [Planted::DeviceNotSynced, Planted::SyncWithoutDevice];

    /// Those in batches that take one fence, which blocks on a device never take.
    pub const AT_ONCE: [Planted; 5] = [
        Planted::BatchEntriesLeft,
        Planted::BatchOneSlot,
        Planted::BatchNotRetired,
        Planted::BatchNewerFirst,
        Planted::BatchNewestReplayedFirst,
    ];

    /// Those that show where the medium gives other bytes than were written there
    /// (`tests/it/at_rest.rs`).
    pub const AT_REST: [Planted; 5] = [
        Planted::SumWithoutPlace,
        Planted::DestageUnseen,
        Planted::PartUnseen,
        Planted::ReadUnseen,
        Planted::FirstTouchUnseen,
    ];

    /// Those that show when recovery finds a last block with bytes past the end, and is cut itself.
    pub const TAILS: [Planted; 2] = [Planted::TailSumKept, Planted::TailSumUnstated];

    /// Those that show where metadata goes through a log. [`Planted::LogBlockRewritten`] and
    /// [`Planted::LogPageOverBlock`] show with the log alone (`medium/log/tests.rs`),
    /// [`Planted::ReuseUnsynced`] between two syncs (`tests/it/crash_suite/flash.rs`).
    pub const ON_FLASH: [Planted; 5] = [
        Planted::LogNotSynced,
        Planted::LogHeadEarly,
        Planted::LogBlocksUnchecked,
        Planted::LogTornRecord,
        Planted::LogOldLap,
    ];

    /// Those that show on an ephemeral tier (`tests/it/crash_suite/ephemeral.rs`).
    pub const EPHEMERAL: [Planted; 3] =
        [Planted::HomeBeforeCopies, Planted::AdmitUnsynced, Planted::SizeOfLine];

    /// Those that one thread does not show, because it fences a moment later itself.
    pub const BETWEEN_THREADS: [Planted; 2] = [Planted::MapPageShownEarly, Planted::SizeShownEarly];

    /// Those that `tests/shuttle/main.rs` finds, running the code in other orders. They are on hot
    /// paths and there only with the feature `interleavings`.
    pub const RACES: [Planted; 21] = [
        Planted::NoTurns,
        Planted::NoSecondEntry,
        Planted::TurnNotCounted,
        Planted::NoSecondLook,
        Planted::LetGoUnlocked,
        Planted::LetGoOld,
        Planted::TakeViewed,
        Planted::ViewOfClaimed,
        Planted::ViewGoneEarly,
        Planted::NoEvictions,
        Planted::EntryAfterEvictions,
        Planted::PagesLetGoEarly,
        Planted::OldSize,
        Planted::OwnedUnseen,
        Planted::GuessTrusted,
        Planted::SizeBeforeLane,
        Planted::OwnWithoutMeta,
        Planted::MetaGoneEarly,
        Planted::DrainRewritten,
        Planted::FreedEarly,
        Planted::OldGuess,
    ];

    /// As [`Planted::is`], of [`Planted::RACES`].
    #[inline(always)]
    pub(crate) fn races(self, bug: Planted) -> bool {
        cfg!(feature = "interleavings") && self == bug
    }

    #[cfg(feature = "testing")]
    pub(crate) fn is(self, bug: Planted) -> bool {
        self == bug
    }

    #[cfg(not(feature = "testing"))]
    pub(crate) fn is(self, _bug: Planted) -> bool {
        false
    }
}
