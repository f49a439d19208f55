//! Mapped memory as a medium: a ticket is nothing, waiting is a fence.
//!
//! Besides blocks it holds metadata: words that are stored whole, lines, and whatever is written in
//! the range before a tier's units, which is never pinned. What the instructions promise is
//! [`tiersmith_pmem`]'s.

use super::log::{Log, Place as LogPlace};
use super::{BlockMedium, Durability, Medium, Pin, Ticket, Written};
use crate::error::Result;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use tiersmith_pmem::{Access, LINE, Mapping, OpenOptions, ViewRef};

pub(crate) use tiersmith_pmem::prefetch_for_write as prepare_word;
pub(crate) use tiersmith_pmem::prefetch_whole_for_write as prepare_all;
pub(crate) use tiersmith_pmem::{PreparedWrite, Use};

/// Bytes of a pinned block, where they are.
pub(crate) type InPlace<'a> = ViewRef<'a>;

/// What is to be mapped.
pub(crate) struct Opening<'a> {
    pub(crate) path: &'a Path,
    /// Holds it open: only the last name of the path is looked up, there.
    pub(crate) directory: Arc<OwnedFd>,
    pub(crate) kind: Medium,
    /// Bytes to map now; 0: all that it has.
    pub(crate) len: u64,
    /// Bytes that it may grow to.
    pub(crate) max_len: u64,
    /// Make it when it is missing.
    pub(crate) create: bool,
    pub(crate) preallocate: bool,
    /// As in [`crate::Options::members_of`].
    pub(crate) owner: Option<u32>,
}

/// A medium that is mapped into memory.
pub(crate) struct Mapped {
    mapping: Arc<Mapping>,
    durability: Durability,
    is_quick: bool,
    /// How long each write takes at least.
    #[cfg(any(test, feature = "testing"))]
    takes: std::time::Duration,
    /// Keeps what is stored, where the memory is no medium.
    log: Option<Arc<Log>>,
}

#[cfg(any(test, feature = "testing"))]
thread_local! {
    /// What is opened by this thread is taken for a medium that takes its time, this long for each
    /// write ([`crate::testing::apart`]).
    pub(crate) static TAKES_TIME: std::cell::Cell<Option<std::time::Duration>> =
        const { std::cell::Cell::new(None) };
}

impl Mapped {
    pub(crate) fn new(mapping: Arc<Mapping>, kind: Medium) -> Self {
        let durability = match kind {
            Medium::Persistent | Medium::Emulated => Durability::OnReturn,
            Medium::Flash => Durability::AtSync,
            Medium::Volatile | Medium::Ephemeral => Durability::Never,
        };
        #[cfg(any(test, feature = "testing"))]
        let (is_quick, takes) = (TAKES_TIME.get().is_none(), TAKES_TIME.get());
        #[cfg(not(any(test, feature = "testing")))]
        let is_quick = true;
        Self {
            mapping,
            durability,
            is_quick,
            #[cfg(any(test, feature = "testing"))]
            takes: takes.unwrap_or_default(),
            log: None,
        }
    }

    pub(super) fn with_log(self, log: Arc<Log>) -> Self {
        Self { log: Some(log), ..self }
    }

    pub(super) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Maps a file or a device and locks it.
    ///
    /// # Errors
    /// As [`Mapping::open`].
    pub(crate) fn open(what: Opening<'_>) -> Result<Self> {
        let access = match what.kind {
            Medium::Persistent => Access::Dax,
            Medium::Flash | Medium::Ephemeral | Medium::Emulated => Access::Emulated,
            Medium::Volatile => Access::Volatile,
        };
        let mut options = OpenOptions::new(access, what.len);
        options.max_len = what.max_len.max(what.len);
        options.create = what.create;
        options.preallocate = what.preallocate;
        options.owner = what.owner;
        options.directory = Some(what.directory);
        Ok(Self::new(Arc::new(Mapping::open(what.path, &options)?), what.kind))
    }

    /// Others run meanwhile.
    #[inline]
    fn take_time(&self) {
        #[cfg(any(test, feature = "testing"))]
        if !self.takes.is_zero() {
            crate::sync::sleep(self.takes);
        }
    }

    /// Puts what the log says into memory ([`Log::begin`]).
    pub(crate) fn begin_log(&self, place: LogPlace) -> Result<()> {
        self.log.as_ref().map_or(Ok(()), |log| log.begin(place, &*self.mapping))
    }

    /// The file or device; `None` for memory of a simulation.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.mapping.file()
    }

    /// The bytes before `end` are metadata: always writable, never pinned.
    pub(crate) fn set_metadata_range(&self, end: u64) {
        self.mapping.set_open_range(end);
    }

    /// Waits until what this thread has written has arrived, on every mapped medium: a fence is the
    /// processor's, not a mapping's.
    ///
    /// # Durability
    /// What this thread wrote, streamed or flushed before is durable on return.
    #[inline]
    pub(crate) fn fence(&self) {
        self.mapping.fence();
    }

    /// [`Mapped::fence`], where only the order matters ([`Mapping::order`]).
    #[inline]
    pub(crate) fn order(&self) {
        self.mapping.order();
    }

    /// Stores a word.
    ///
    /// # Durability
    /// Whole or not at all at a power cut; durable after [`Mapped::flush_word`] and
    /// [`Mapped::fence`].
    pub(crate) fn store_word(&self, at: u64, word: u64) {
        self.mapping.store_u64(at, word);
    }

    /// A word, whole.
    pub(crate) fn load_word(&self, at: u64) -> u64 {
        self.mapping.load_u64(at)
    }

    /// Sends a stored word on its way; durable with the next fence.
    pub(crate) fn flush_word(&self, at: u64) {
        self.mapping.flush(at, 8);
    }

    /// Stores a word past the caches. The caller fences before it lets another thread store to it.
    ///
    /// # Durability
    /// Whole or not at all at a power cut; durable after [`Mapped::fence`].
    #[inline]
    pub(crate) fn stream_word(&self, at: u64, word: u64) {
        self.mapping.nt_store_u64(at, word);
    }

    /// Writes metadata: any bytes.
    ///
    /// # Durability
    /// Durable after [`Mapped::fence`]; torn in 8-byte words by a power cut before.
    pub(crate) fn write_meta(&self, at: u64, bytes: &[u8]) {
        self.mapping.nt_write(at, bytes);
    }

    /// The same with zeros.
    ///
    /// # Durability
    /// As [`Mapped::write_meta`].
    pub(crate) fn zero_meta(&self, at: u64, len: usize) {
        self.mapping.nt_zero(at, len);
    }

    /// A line that was just put together, `copies` times one behind the other
    /// ([`Mapping::nt_write_line`]).
    ///
    /// # Durability
    /// As [`Mapped::write_meta`].
    #[inline]
    pub(crate) fn write_line(&self, at: u64, line: [u64; LINE / 8], copies: usize) {
        self.mapping.nt_write_line(at, line, copies);
    }

    /// As [`BlockMedium::pin`], and the bytes where they are: no copy is made.
    ///
    /// Inlined up to its caller, as all that leads here is: what is returned in memory is copied
    /// once a call, and each copy loads together what was stored in parts a moment ago, for which
    /// it waits.
    #[inline(always)]
    pub(crate) fn show(&self, at: u64, len: usize) -> Option<InPlace<'_>> {
        self.mapping.view(at, len)
    }

    /// All of a write to a block that can be found out before its frames are the caller's. `None`
    /// where a write takes its time. Inlined as [`Mapped::show`] is.
    #[inline(always)]
    pub(crate) fn prepare_write(&self, at: u64, len: usize) -> Option<PreparedWrite<'_>> {
        #[cfg(any(test, feature = "testing"))]
        if !self.is_quick {
            return None;
        }
        Some(self.mapping.prepare(at, len))
    }

    /// Asks for the address translations of frames that are filled soon.
    pub(crate) fn prepare_translations(&self, at: u64, len: usize) {
        self.mapping.prefetch_translations(at, len);
    }
}

impl BlockMedium for Mapped {
    fn durability(&self) -> Durability {
        self.durability
    }

    fn is_quick(&self) -> bool {
        self.is_quick
    }

    fn len(&self) -> u64 {
        self.mapping.len()
    }

    fn max_len(&self) -> u64 {
        self.mapping.max_len()
    }

    fn grow(&self, len: u64) -> Result<()> {
        Ok(self.mapping.grow(len)?)
    }

    fn report(&self) -> String {
        self.mapping.report().to_string()
    }

    #[inline]
    fn write(&self, at: u64, block: &[u8], seed: u64) -> Result<Written> {
        self.take_time();
        let checksum = self.mapping.nt_write_hashed(at, block, seed);
        Ok(Written { ticket: Ticket::NEXT_FENCE, checksum })
    }

    #[inline]
    fn write_part(&self, at: u64, bytes: &[u8]) -> Result<Ticket> {
        self.take_time();
        self.mapping.nt_write(at, bytes);
        Ok(Ticket::NEXT_FENCE)
    }

    fn zero(&self, at: u64, len: usize) -> Result<Ticket> {
        self.mapping.nt_zero(at, len);
        Ok(Ticket::NEXT_FENCE)
    }

    #[inline]
    fn wait(&self, _ticket: Ticket) -> Result<()> {
        self.mapping.fence();
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.mapping.read(at, into);
        Ok(())
    }

    fn read_checked(&self, at: u64, into: &mut [u8]) -> Result<()> {
        if let Some(log) = &self.log {
            log.load_all(&*self.mapping, at, into.len())?;
        }
        Ok(self.mapping.read_checked(at, into)?)
    }

    #[inline]
    fn pin(&self, at: u64, len: usize) -> Option<Pin<'_>> {
        self.show(at, len).map(|frames| Pin { _frames: frames })
    }

    #[inline]
    fn latch(&self, at: u64, len: usize) -> bool {
        self.mapping.claim(at, len)
    }

    #[inline]
    fn unlatch(&self, at: u64, len: usize) {
        self.mapping.release(at, len);
    }

    #[inline]
    fn is_latched(&self, at: u64, len: usize) -> bool {
        self.mapping.is_claimed(at, len)
    }

    #[inline]
    fn prepare(&self, at: u64, len: usize) -> Use {
        self.mapping.look_ahead(at, len)
    }

    fn prepare_fresh(&self, at: u64, len: usize) {
        self.mapping.prefault(at, len);
    }
}
