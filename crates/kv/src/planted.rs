//! Planted bugs: each leaves out or reorders one step that a promise rests on. The crash tests must
//! find every one of them (`tests/it/crash.rs`); one that they do not find is a hole in them.
//!
//! Without the `testing` feature there is none of this in the program: [`Planted::is`] is `false`
//! at compile time.

/// One planted bug, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planted {
    /// The server as it is.
    #[default]
    None,
    /// A commit returns before its fence.
    ReplyBeforeFence,
    /// Words go to their places before the record is durable.
    ApplyBeforeFence,
    /// Both records share one slot.
    OneSlot,
    /// Words in their places are never flushed.
    WordsNotFlushed,
    /// Space is used again in the transaction that freed it.
    ReuseInTransaction,
    /// A record names bytes that the transaction itself gave back.
    ShortLifeInRecord,
    /// A record changes words in space that it gives back.
    DeadWordsInRecord,
    /// Zeros, and bytes behind a length, are not durable before the record that shows them.
    NoFenceAhead,
    /// Recovery takes a record without looking at its checksum.
    RecordUnchecked,
    /// Recovery takes a record without looking at the bytes that came with it.
    RangesUnchecked,
    /// Recovery applies the last record and not the one before it.
    LastRecordOnly,
    /// A record that recovery refused stays in its slot.
    RefusedRecordStays,
    /// A new slab keeps the bitmap of what was there before.
    SlabNotCleared,
    /// The body of a large record lies in units that the next transaction may use.
    BodyNotKept,
    /// Recovery lets the next transaction use the units of that body.
    BodyNotKeptAfterRecovery,
    /// A transaction of several commands is committed command by command.
    ExecOneByOne,
    /// A script is committed command by command.
    ScriptOneByOne,
    /// The number of keys is committed after the key.
    CountLater,
    /// The superblock is durable before what it describes.
    SuperblockFirst,
    /// A bucket's entries are moved to the new bucket in two commits.
    SplitInTwo,
    /// A hash's index goes to the trash before the hash is gone.
    IndexGoesFirst,
    /// An element of a list is counted after it was put into the sequence.
    ElementCountedLater,
    /// A full node of a sequence is split, and its parent learns of it, in two commits.
    NodeSplitInTwo,
    /// A member leaves one set and comes into the other in two commits.
    MovedInTwo,
    /// A member of a sorted set leaves the sequence in a commit of its own.
    OrderComesLater,
    /// An entry of a stream is counted after it was put into its block.
    RowCountedLater,
    /// A block of a stream is replaced, and the old one freed, in two commits.
    BlockReplacedInTwo,
    /// A pending record leaves its group and its consumer in two commits.
    PendingInTwo,
    /// A group leaves its stream before the trash has it.
    GroupForgotten,
    /// A data set that is being copied is not marked as incomplete.
    CopyNotMarked,
    /// The position in the primary's stream is committed after the command.
    PositionLater,
    /// FLUSHDB empties the database before the trash has its index.
    FlushForgetsTrash,
    /// Libraries that others take the place of go in a commit of their own.
    LibrariesGoFirst,
    /// What is given back is taken again while a moment is held that has it. No crash shows this:
    /// it is not in [`Planted::ALL`], and `tests/it/hold.rs` finds it and the next one.
    HeldSpaceReused,
    /// Words that a held moment has are not kept.
    HeldWordsNotKept,
    /// The server answers a batch, and commits it when the next one comes. Only who asks a server
    /// through its socket sees this one and the next: `tests/it/linearizable.rs` finds them.
    AnsweredBeforeCommit,
    /// An EXEC does not look at whether what it watched has changed.
    WatchIgnored,
}

impl Planted {
    /// Every bug.
    pub const ALL: &[Planted] = &[
        Planted::ReplyBeforeFence,
        Planted::ApplyBeforeFence,
        Planted::OneSlot,
        Planted::WordsNotFlushed,
        Planted::ReuseInTransaction,
        Planted::ShortLifeInRecord,
        Planted::DeadWordsInRecord,
        Planted::NoFenceAhead,
        Planted::RecordUnchecked,
        Planted::RangesUnchecked,
        Planted::LastRecordOnly,
        Planted::RefusedRecordStays,
        Planted::SlabNotCleared,
        Planted::BodyNotKept,
        Planted::BodyNotKeptAfterRecovery,
        Planted::ExecOneByOne,
        Planted::ScriptOneByOne,
        Planted::CountLater,
        Planted::SuperblockFirst,
        Planted::SplitInTwo,
        Planted::IndexGoesFirst,
        Planted::ElementCountedLater,
        Planted::NodeSplitInTwo,
        Planted::MovedInTwo,
        Planted::OrderComesLater,
        Planted::RowCountedLater,
        Planted::BlockReplacedInTwo,
        Planted::PendingInTwo,
        Planted::GroupForgotten,
        Planted::CopyNotMarked,
        Planted::PositionLater,
        Planted::FlushForgetsTrash,
        Planted::LibrariesGoFirst,
    ];

    /// The bugs that only a server with sockets shows, by their names.
    pub fn of_server(name: &str) -> Option<Planted> {
        match name {
            "AnsweredBeforeCommit" => Some(Planted::AnsweredBeforeCommit),
            "WatchIgnored" => Some(Planted::WatchIgnored),
            _ => None,
        }
    }

    /// Whether this is that bug.
    #[inline]
    pub fn is(self, bug: Planted) -> bool {
        cfg!(feature = "testing") && self == bug
    }
}
