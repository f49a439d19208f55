//! Media: where the bytes of a tier live, and what a power cut leaves of them.
//!
//! This is the only room that knows which kinds of media there are. Above it a block is written,
//! read and pinned the same way on all of them. [`BlockMedium`] is the interface, [`mapped`] is
//! memory that is mapped (persistent, or standing for it), [`Backing`] is any of them.
//!
//! Blocks go to any medium. Words (map entries, records, file headers) are changed eight bytes at a
//! time and durable in order, so metadata needs a medium that is mapped: [`Mapped`] has more words
//! than the interface. Where a device has the metadata too, that is in memory and durable by a
//! [`log`].
//!
//! # Adding a medium
//! 1. Implement [`BlockMedium`] in a file of its own. In `block.rs`, take what uses the device and
//!    `meta`, and leave out `log` and `raw`. Latches, pins and lengths are those of `meta`; what
//!    returns `Ticket::NEXT_FENCE` is durable with the thread's next fence, anything else is
//!    waited for.
//! 2. Add a variant to [`Backing`] here. The compiler names each place that asks which it is, and
//!    `Backing::after` gives one to `suite.rs`, whose tests say what the store relies on.
//! 3. Make one where members are opened (`map_members` in `tier/open.rs`; for tests, `backing` in
//!    `testing.rs`), by the [`Medium`] that the user asked for. That is what the medium survives,
//!    not how it is accessed: a new one of these is a change of the format, the note and the
//!    command line too.
//!
//! What a power cut leaves of it, the crash suite can only say of a medium that is simulated: see
//! `TestMember` in `testing.rs`, and `tests/it/crash_suite/sectors.rs`, which does it for a device.
//!
//! **Invariant**: a call that writes asserts that the caller holds the write latch of each frame it
//! changes.
//! **Deliberately absent**: which frame is free ([`crate::tier`]), and which block it holds.

mod block;
pub(crate) mod held;
pub(crate) mod log;
mod mapped;
mod raw;
#[cfg(test)]
mod suite;

use crate::address::FRAME;
use crate::error::Result;
use serde::{Deserialize, Serialize};

pub(crate) use block::OnSectors;
#[cfg(any(test, feature = "testing"))]
pub(crate) use mapped::TAKES_TIME;
pub(crate) use mapped::{InPlace, Mapped, Opening, PreparedWrite, Use, prepare_all, prepare_word};

pub use raw::OnDevice;
pub(crate) use raw::{is_persistent_memory, open_to_read};

// The rest of what the store has of that crate: nobody else names it.
pub(crate) use tiersmith_block::why_not_kept;
pub use tiersmith_pmem::SigbusWatch;
pub use tiersmith_pmem::is_only_opening;
pub(crate) use tiersmith_pmem::{hash_bytes, watch_sigbus};

const _: () = assert!(FRAME == tiersmith_pmem::FRAME);

/// What the members of a tier are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Persistent memory: a file on a DAX file system or a DAX device. Anything else is refused.
    Persistent,
    /// An ordinary file on a disk: metadata goes through a log.
    Flash,
    /// An ordinary file on a disk that is emptied when the machine is stopped, as the local disks
    /// of clouds are: the tier holds clean copies only. They outlive a kill, a crash and a reboot.
    Ephemeral,
    /// Any file, standing for persistent memory because the user said so; labelled wherever it
    /// appears.
    Emulated,
    /// Memory that does not survive power loss: the tier holds clean copies only, and starts cold
    /// at every attach.
    Volatile,
}

impl Medium {
    /// Whether blocks and metadata are in a file on a disk.
    #[must_use]
    pub fn is_on_disk(self) -> bool {
        matches!(self, Medium::Flash | Medium::Ephemeral)
    }

    /// Whether the tier never has the only copy of a block, so that nobody misses it.
    #[must_use]
    pub fn has_clean_copies_only(self) -> bool {
        matches!(self, Medium::Volatile | Medium::Ephemeral)
    }
}

/// When a write that has returned survives a power cut that the medium survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// At once.
    OnReturn,
    /// After the next sync of the file that was written.
    AtSync,
    /// It does not: the medium may hold clean copies only.
    Never,
}

impl Durability {
    /// Whether the medium may hold the only copy of a block.
    #[must_use]
    pub fn may_hold_only_copy(self) -> bool {
        self != Durability::Never
    }

    /// What can be said of several media together: what the least durable one does.
    #[must_use]
    pub fn and(self, other: Durability) -> Durability {
        match (self, other) {
            (Durability::Never, _) | (_, Durability::Never) => Durability::Never,
            (Durability::AtSync, _) | (_, Durability::AtSync) => Durability::AtSync,
            _ => Durability::OnReturn,
        }
    }
}

/// A write that is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what was written is not durable before the ticket was waited for"]
pub(crate) struct Ticket(u64);

impl Ticket {
    /// For who waits for the thread's next fence anyway, and leaves to the next
    /// [`BlockMedium::sync`] what that does not cover.
    pub(crate) fn left_to_sync(self) {}

    /// The write is durable after the next fence of the thread that wrote ([`Mapped::fence`]): a
    /// ledger that fences anyway need not wait for it.
    pub(crate) const NEXT_FENCE: Ticket = Ticket(0);
}

/// A block that was written.
#[must_use]
pub(crate) struct Written {
    pub(crate) ticket: Ticket,
    /// Of the whole block, by the seed that was given.
    pub(crate) checksum: u64,
}

/// What a medium does with blocks. Positions and lengths of blocks are multiples of [`FRAME`].
///
/// A write that has returned is what everybody reads from then on; it is durable when its ticket
/// was waited for, or after a sync. A ledger whose facts become durable by themselves waits before
/// it makes one that rests on the block; what may be lost until the file is synced (bytes written
/// in place, where [`Durability::AtSync`] holds) is left to the sync.
///
/// A frame is pinned (somebody relies on its bytes) or latched for writing, never both.
pub(crate) trait BlockMedium {
    fn durability(&self) -> Durability;

    /// Whether writing a block takes no longer than a copy in memory, so that a lock that spins may
    /// be held.
    fn is_quick(&self) -> bool;

    /// Bytes in use now.
    fn len(&self) -> u64;

    /// Bytes that it can have.
    fn max_len(&self) -> u64;

    /// Makes it `len` bytes long; the new bytes read as zeros.
    ///
    /// # Durability
    /// The new length is durable on return.
    fn grow(&self, len: u64) -> Result<()>;

    /// What it is, for people; several lines.
    fn report(&self) -> String;

    /// Writes a whole block and takes its checksum.
    ///
    /// # Durability
    /// Durable once [`BlockMedium::wait`] has returned; a power cut before leaves any part of it.
    fn write(&self, at: u64, block: &[u8], seed: u64) -> Result<Written>;

    /// Writes part of a block in place; `at` is any byte.
    ///
    /// # Durability
    /// As [`BlockMedium::write`]; bytes outside of the range never change.
    fn write_part(&self, at: u64, bytes: &[u8]) -> Result<Ticket>;

    /// The same with zeros.
    ///
    /// # Durability
    /// As [`BlockMedium::write_part`].
    fn zero(&self, at: u64, len: usize) -> Result<Ticket>;

    /// Waits for what this thread has written.
    ///
    /// # Durability
    /// What the ticket stands for is durable on return.
    fn wait(&self, ticket: Ticket) -> Result<()>;

    /// Waits for what everybody has written.
    ///
    /// # Durability
    /// Every write that had returned when this was called is durable on return. Nothing is to be
    /// done where each is durable once its writer has waited ([`Durability::OnReturn`]).
    fn sync(&self) -> Result<()>;

    /// Copies bytes; `at` is any byte. Who holds neither pin nor latch may get old and new ones
    /// mixed. Where the bytes are memory that the medium has lost, the process ends with SIGBUS.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<()>;

    /// The same, and bytes that the medium has lost are always an error.
    ///
    /// # Errors
    /// [`tiersmith_pmem::Error::Unreadable`].
    fn read_checked(&self, at: u64, into: &mut [u8]) -> Result<()>;

    /// The same, past what the kernel keeps in memory of bytes that are durable.
    fn read_afresh(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.read_checked(at, into)
    }

    /// Keeps whole frames as they are while the pin lives. `None` when somebody holds the latch of
    /// one, or when there are too many pins.
    fn pin(&self, at: u64, len: usize) -> Option<Pin<'_>>;

    /// Latches whole frames for writing. `false`, with nothing changed, when one is pinned or
    /// latched.
    fn latch(&self, at: u64, len: usize) -> bool;

    /// Ends a latch. The caller's last write to the frames has returned.
    fn unlatch(&self, at: u64, len: usize);

    /// Whether each of the frames is latched.
    fn is_latched(&self, at: u64, len: usize) -> bool;

    /// Whether frames that are about to be filled are pinned or latched; and whatever makes filling
    /// them faster.
    fn prepare(&self, at: u64, len: usize) -> Use;

    /// A hint that the frames are filled soon, the first time since the medium was opened.
    fn prepare_fresh(&self, at: u64, len: usize);
}

/// Frames that stay as they are.
pub(crate) struct Pin<'a> {
    /// On a device not the bytes: only who uses them.
    _frames: InPlace<'a>,
}

/// The medium of a member, whatever kind it is. An enum and no trait object: the way of a write has
/// one branch here, always the same for a tier.
pub(crate) enum Backing {
    Mapped(Mapped),
    OnSectors(Box<OnSectors>),
}

impl Backing {
    /// The medium as one that can hold metadata.
    #[inline]
    pub(crate) fn mapped(&self) -> &Mapped {
        match self {
            Backing::Mapped(medium) => medium,
            Backing::OnSectors(medium) => &medium.meta,
        }
    }

    /// The medium, if its blocks are memory too.
    #[inline]
    pub(crate) fn memory(&self) -> Option<&Mapped> {
        match self {
            Backing::Mapped(medium) => Some(medium),
            Backing::OnSectors(_) => None,
        }
    }

    /// What makes its metadata durable, where that is not mapped.
    pub(crate) fn log(&self) -> Option<&log::Log> {
        match self {
            Backing::Mapped(_) => None,
            Backing::OnSectors(medium) => medium.log.as_deref(),
        }
    }

    /// Its device of sectors.
    pub(crate) fn on_sectors(&self) -> Option<&OnSectors> {
        match self {
            Backing::Mapped(_) => None,
            Backing::OnSectors(medium) => Some(medium),
        }
    }

    /// Bytes that are written as one; 0: words are.
    pub(crate) fn sector_size(&self) -> u32 {
        match self {
            Backing::Mapped(_) => 0,
            Backing::OnSectors(medium) => medium.sector() as u32,
        }
    }
}

#[cfg(test)]
impl Backing {
    /// For `suite.rs`: one of each kind, after the other, as long as [`suite::LEN`].
    fn after(before: Option<&Backing>) -> Option<Backing> {
        use tiersmith_pmem::{Mapping, sim::Simulator};
        let mapped = || {
            let image = vec![0; suite::LEN as usize];
            Mapped::new(Mapping::in_memory(&image, suite::MAX_LEN).into(), Medium::Emulated)
        };
        let device = || {
            let image = vec![0; suite::LEN as usize];
            tiersmith_block::Device::simulated(Simulator::new().device(image, 512))
        };
        Some(match before {
            None => Backing::Mapped(mapped()),
            Some(Backing::Mapped(_)) => {
                Backing::OnSectors(Box::new(OnSectors::new(mapped(), device())))
            }
            Some(Backing::OnSectors(medium)) if medium.log.is_none() => {
                let medium = OnSectors::with_log(device(), suite::MAX_LEN).unwrap();
                medium.log.as_ref().unwrap().begin_anew(suite::LOG).unwrap();
                medium.meta.begin_log(suite::LOG).unwrap();
                Backing::OnSectors(Box::new(medium))
            }
            Some(Backing::OnSectors(_)) => return None,
        })
    }
}

/// Passes each call on to the medium.
macro_rules! of_any_kind {
    ($($name:ident($($arg:ident: $type:ty),*) $(-> $answer:ty)?;)*) => {
        impl BlockMedium for Backing {
            $(
                #[inline]
                fn $name(&self, $($arg: $type),*) $(-> $answer)? {
                    match self {
                        Backing::Mapped(medium) => medium.$name($($arg),*),
                        Backing::OnSectors(medium) => medium.$name($($arg),*),
                    }
                }
            )*
        }
    };
}

of_any_kind! {
    durability() -> Durability;
    is_quick() -> bool;
    len() -> u64;
    max_len() -> u64;
    grow(len: u64) -> Result<()>;
    report() -> String;
    write(at: u64, block: &[u8], seed: u64) -> Result<Written>;
    write_part(at: u64, bytes: &[u8]) -> Result<Ticket>;
    zero(at: u64, len: usize) -> Result<Ticket>;
    wait(ticket: Ticket) -> Result<()>;
    sync() -> Result<()>;
    read(at: u64, into: &mut [u8]) -> Result<()>;
    read_checked(at: u64, into: &mut [u8]) -> Result<()>;
    read_afresh(at: u64, into: &mut [u8]) -> Result<()>;
    pin(at: u64, len: usize) -> Option<Pin<'_>>;
    latch(at: u64, len: usize) -> bool;
    unlatch(at: u64, len: usize);
    is_latched(at: u64, len: usize) -> bool;
    prepare(at: u64, len: usize) -> Use;
    prepare_fresh(at: u64, len: usize);
}
