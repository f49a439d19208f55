//! One backing in memory: reading, views and claims, writing, flushing.
//!
//! Reading and writing go through `kernel/`, which may race with other threads without undefined
//! behaviour (asm and atomics: a reader sees old and new 8-byte words mixed, never a half word).
//! Slices exist only under a view.
//!
//! Invariants: every offset is checked against the current length, every write against the claims;
//! a simulated mapping gives the same results, and records what happened ([`crate::sim`]).
//! Where to read next: `frames.rs` for the claims, `kernel/mod.rs` for what the instructions
//! promise.

mod prepared;
mod view;

pub use prepared::PreparedWrite;
pub use view::{View, ViewRef};

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::frames::{Frames, Use};
use crate::journal::{Bytes, Journal};
use crate::kernel::{Kernel, Keys};
use crate::memory::Memory;
use crate::sim::Watcher;
use crate::sync::{first_part, turn, turns_in_copy};
use crate::{Error, FRAME, LINE, OpenOptions, Report, open};

/// A backing mapped into memory. Send and Sync; one per backing.
///
/// Offsets are in bytes from the start. An offset outside the mapping, a write to frames not
/// claimed, and a misaligned word are defects of the caller and panic with `BUG:`.
pub struct Mapping {
    /// Pulled out of `memory`: one load less on each access.
    base: *mut u8,
    len: AtomicU64,
    open_end: AtomicU64,
    kernel: Kernel,
    /// Of the first seed that a checksum was taken with; who maps a medium has one.
    keys: OnceLock<Box<Keys>>,
    frames: Frames,
    /// Told of every change, when the memory is no medium.
    recorder: Option<Watcher>,
    max_len: u64,
    growing: Mutex<()>,
    report: Report,
    memory: Memory,
}

// SAFETY: `base` points into `memory`, which is Send; all other fields are.
unsafe impl Send for Mapping {}
// SAFETY: the bytes behind `base` are reached through atomics and asm, and as slices only under a
// view.
unsafe impl Sync for Mapping {}

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mapping")
            .field("len", &self.len())
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

/// Opening, growing, asking.
impl Mapping {
    /// Maps `path`, takes the lock on it, and makes it when asked to.
    ///
    /// # Errors
    /// One variant of [`Error`] per cause. A file made or lengthened by a failing call is put back
    /// as it was.
    ///
    /// # Durability
    /// The name and the length of a file on fsdax are durable on return. Nothing is written to the
    /// contents.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Mapping, Error> {
        let opened = open::open(path, options)?;
        let Some(frames) = Frames::new(opened.max_len) else {
            return Err(Error::AddressSpace {
                path: path.to_owned(),
                wanted: opened.max_len / 2048,
                source: std::io::ErrorKind::OutOfMemory.into(),
            });
        };
        Ok(Mapping {
            base: opened.memory.base(),
            len: AtomicU64::new(opened.report.len),
            open_end: AtomicU64::new(0),
            kernel: opened.kernel,
            keys: OnceLock::new(),
            frames,
            recorder: None,
            max_len: opened.max_len,
            growing: Mutex::new(()),
            report: opened.report,
            memory: opened.memory,
        })
    }

    /// A copy of `image` in heap memory, without a file and without a trace: how a crash test looks
    /// at an image. `max_len` as in [`OpenOptions`]. The length of `image` must be a multiple of
    /// [`FRAME`] and not zero.
    pub fn in_memory(image: &[u8], max_len: u64) -> Mapping {
        Mapping::on_heap(image, max_len, None, "memory")
    }

    /// Memory of `len` bytes that is kept elsewhere, by `journal`; it can grow to `max_len`. Only
    /// what is used of it costs memory. `path` is where it is kept, for messages. What the bytes
    /// are at first is nobody's to rely on: the journal fills in what it has ([`Bytes::fill`]).
    ///
    /// # Errors
    /// [`Error::AddressSpace`].
    pub fn journaled(
        path: &Path,
        len: u64,
        max_len: u64,
        journal: Arc<dyn Journal>,
    ) -> Result<Mapping, Error> {
        let max_len = max_len.max(len);
        let refused =
            |source| Error::AddressSpace { path: path.to_owned(), wanted: max_len, source };
        let no_memory = || refused(std::io::ErrorKind::OutOfMemory.into());
        let kernel = Kernel::heap();
        let reserved = usize::try_from(max_len).map_err(|_| no_memory())?;
        let memory = Memory::reserved(reserved).map_err(refused)?;
        let report = Report::of_heap(
            kernel.instruction(),
            kernel.nontemporal(),
            &path.to_string_lossy(),
            len,
        );
        Ok(Mapping {
            base: memory.base(),
            len: AtomicU64::new(len),
            open_end: AtomicU64::new(0),
            kernel,
            keys: OnceLock::new(),
            frames: Frames::new(max_len).ok_or_else(no_memory)?,
            recorder: Some(Watcher::Kept(journal)),
            max_len,
            growing: Mutex::new(()),
            report,
            memory,
        })
    }

    pub(crate) fn on_heap(
        image: &[u8],
        max_len: u64,
        recorder: Option<Watcher>,
        name: &str,
    ) -> Mapping {
        assert!(
            !image.is_empty() && image.len().is_multiple_of(FRAME),
            "BUG: an image of {} bytes; it must be a multiple of {FRAME} and not zero",
            image.len()
        );
        let max_len = max_len.max(image.len() as u64);
        let kernel = Kernel::heap();
        let memory = Memory::heap(
            usize::try_from(max_len).expect("BUG: a maximum beyond the address space"),
        );
        // SAFETY: the memory holds at least `max_len` bytes, is new to us, and `image` is a slice
        // elsewhere.
        unsafe { memory.base().copy_from_nonoverlapping(image.as_ptr(), image.len()) };
        let report =
            Report::of_heap(kernel.instruction(), kernel.nontemporal(), name, image.len() as u64);
        Mapping {
            base: memory.base(),
            len: AtomicU64::new(image.len() as u64),
            open_end: AtomicU64::new(0),
            kernel,
            keys: OnceLock::new(),
            frames: Frames::new(max_len).expect("BUG: no memory for the frames of an image"),
            recorder,
            max_len,
            growing: Mutex::new(()),
            report,
            memory,
        }
    }

    /// Makes the mapping `new_len` bytes long, in place. Readers and writers of the old part go on
    /// meanwhile. A `new_len` not beyond the present length changes nothing.
    ///
    /// # Errors
    /// [`Error::BeyondMaximum`], [`Error::NoSpace`], or what the system said; the old part stays as
    /// it was.
    ///
    /// # Durability
    /// On fsdax the new length is durable on return. New bytes of a file that was not there before
    /// read as zero.
    pub fn grow(&self, new_len: u64) -> Result<(), Error> {
        let path = || self.report.path.clone();
        if !new_len.is_multiple_of(FRAME as u64) {
            return Err(Error::BadLength {
                path: path(),
                len: new_len,
                reason: "not a multiple of 4096",
            });
        }
        if new_len > self.max_len {
            return Err(Error::BeyondMaximum {
                path: path(),
                wanted: new_len,
                max_len: self.max_len,
            });
        }
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let old_len = self.len();
        if new_len <= old_len {
            return Ok(());
        }
        open::grow(&self.report.path, &self.memory, old_len, new_len)?;
        let is_kept = matches!(self.recorder, Some(Watcher::Kept(_)));
        if self.memory.as_mapped().is_none() && !is_kept {
            // SAFETY: heap memory holds `max_len` bytes; beyond the present length nobody reads or
            // writes yet.
            unsafe { self.base.add(old_len as usize).write_bytes(0, (new_len - old_len) as usize) };
        }
        if let Some(recorder) = &self.recorder {
            recorder.grow(new_len);
        }
        // Release: whoever sees the new length sees the mapping behind it.
        self.len.store(new_len, Ordering::Release);
        Ok(())
    }

    /// Bytes mapped now.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Bytes to which it can grow.
    #[inline]
    pub fn max_len(&self) -> u64 {
        self.max_len
    }

    /// The file or device that is mapped, whatever has its name by now; `None` for memory of a
    /// simulation.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.memory.as_mapped().map(|mapped| mapped.file.as_fd())
    }

    /// What was found at open.
    pub fn report(&self) -> &Report {
        &self.report
    }
}

/// Reading. May race with writes: 8-byte words old and new can then be mixed.
impl Mapping {
    /// The little-endian word at `at`, which is a multiple of 8. Atomic, acquire.
    #[inline]
    pub fn load_u64(&self, at: u64) -> u64 {
        turn();
        u64::from_le(self.word(at).load(Ordering::Acquire))
    }

    /// Copies the bytes at `at`.
    #[inline]
    pub fn read(&self, at: u64, into: &mut [u8]) {
        let from = self.range(at, into.len());
        if into.len() >= FRAME {
            self.kernel.prefetch_for_read(from, into.len());
        }
        let (first, second) = into.split_at_mut(first_part(into.len()));
        if !first.is_empty() {
            // SAFETY: `range` checked the source; the target is an exclusive slice.
            unsafe { self.kernel.copy_out(first.as_mut_ptr(), from, first.len()) };
            turns_in_copy();
        }
        // SAFETY: as above.
        unsafe { self.kernel.copy_out(second.as_mut_ptr(), from.add(first.len()), second.len()) }
    }

    /// As [`Mapping::read`], but with `pread`: bytes that the medium lost, or that were truncated
    /// beneath the mapping, are an error instead of a signal that ends the process. A DAX device
    /// cannot be read that way and is read through memory.
    ///
    /// # Errors
    /// [`Error::Unreadable`].
    pub fn read_checked(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        let Some(mapped) = self.memory.as_mapped().filter(|mapped| mapped.device_len.is_none())
        else {
            self.read(at, into);
            return Ok(());
        };
        let _within = self.range(at, into.len());
        mapped.file.read_exact_at(into, at).map_err(|source| Error::Unreadable {
            path: self.report.path.clone(),
            at,
            len: into.len(),
            source,
        })
    }

    /// A hint that the bytes at `at` will be read soon. Worth its cost before a copy out of a view
    /// of 4 KiB or more; [`Mapping::read`] and [`Mapping::hash`] do it themselves.
    #[inline]
    pub fn prefetch_for_read(&self, at: u64, len: usize) {
        let from = self.range(at, len);
        self.kernel.prefetch_for_read(from, len);
    }

    /// A hint that the frames at `at` will be filled soon: asks for their address translations. By
    /// the last line of each: the first would be in a cache when the copy comes by, which costs the
    /// copy 20 ns.
    #[inline]
    pub fn prefetch_translations(&self, at: u64, len: usize) {
        let from = self.range(at, len);
        for frame in 1..=len / FRAME {
            self.kernel.prefetch_for_read(from.wrapping_add(frame * FRAME - LINE), LINE);
        }
    }

    /// A hint that the bytes at `at` will be written soon, the first time since they were mapped:
    /// one call instead of a page fault for each 4 KiB. Only where pages are memory already; of a
    /// file on a disk it would make pages dirty that are not written. `at` is a multiple of
    /// [`FRAME`].
    pub fn prefault(&self, at: u64, len: usize) {
        let _within = self.range(at, len);
        self.memory.prefault(at as usize, len);
    }

    /// The checksum of what is at `at`: what [`Mapping::nt_write_hashed`] returned when it wrote
    /// these bytes with this seed, and what [`crate::hash_bytes`] returns for a slice of them.
    pub fn hash(&self, at: u64, len: usize, seed: u64) -> u64 {
        let from = self.range(at, len);
        // SAFETY: `range` checked the source.
        unsafe { self.kernel.hash_shared(from, len, seed) }
    }
}

/// Views and claims.
impl Mapping {
    /// The bytes of whole frames, unchanging while the view lives. `None` when any of them is
    /// claimed. `at` and `len` are multiples of [`FRAME`].
    #[inline(always)]
    pub fn view(&self, at: u64, len: usize) -> Option<ViewRef<'_>> {
        let (first, count) = self.frame_range(at, len);
        if !self.frames.view(first, count) {
            return None;
        }
        // SAFETY: `frame_range` checked the bounds; the view just counted keeps every writer out,
        // because writes are to claimed frames or to the open range, and these frames are neither.
        let bytes = unsafe { std::slice::from_raw_parts(self.base.add(at as usize), len) };
        Some(ViewRef { mapping: self, at, bytes })
    }

    /// As [`Mapping::view`], owning a share of the mapping: for bytes that outlive the borrow.
    pub fn view_owned(self: &Arc<Self>, at: u64, len: usize) -> Option<View> {
        let (first, count) = self.frame_range(at, len);
        self.frames.view(first, count).then(|| View { mapping: Arc::clone(self), at, len })
    }

    #[inline]
    pub(crate) fn unview(&self, at: u64, len: usize) {
        self.frames.unview(at / FRAME as u64, (len / FRAME) as u64);
    }

    pub(crate) fn viewed<'a>(&'a self, view: &'a View) -> &'a [u8] {
        debug_assert!(
            std::ptr::eq(self, &raw const *view.mapping),
            "BUG: a view of another mapping"
        );
        // SAFETY: the view was counted by `view_owned` with these bounds and is alive, so no frame
        // of it is claimed.
        unsafe { std::slice::from_raw_parts(self.base.add(view.at as usize), view.len) }
    }

    /// Claims whole frames for writing. False, with nothing changed, when any is viewed or claimed.
    #[inline]
    pub fn claim(&self, at: u64, len: usize) -> bool {
        let (first, count) = self.frame_range(at, len);
        self.frames.claim(first, count)
    }

    /// Ends a claim. The caller's last write to the frames has returned.
    #[inline]
    pub fn release(&self, at: u64, len: usize) {
        let (first, count) = self.frame_range(at, len);
        self.frames.release(first, count);
    }

    /// Whether none of the frames is viewed or claimed.
    #[inline]
    pub fn is_free(&self, at: u64, len: usize) -> bool {
        let (first, count) = self.frame_range(at, len);
        self.frames.free(first, count)
    }

    /// What [`Mapping::is_claimed`] and [`Mapping::is_free`] say, at one look, of frames that are
    /// about to be filled; and asks for their address translations.
    #[inline]
    pub fn look_ahead(&self, at: u64, len: usize) -> Use {
        let (first, count) = self.frame_range(at, len);
        self.prefetch_translations(at, len);
        self.frames.used(first, count)
    }

    /// Whether each of the frames is claimed; for their owner, who alone knows whose claim it is.
    #[inline]
    pub fn is_claimed(&self, at: u64, len: usize) -> bool {
        let (first, count) = self.frame_range(at, len);
        self.frames.claimed(first, count)
    }

    /// Declares the bytes before `end` (a multiple of [`FRAME`]) metadata: always writable, never
    /// viewable. Once, after open, before anything is viewed.
    pub fn set_open_range(&self, end: u64) {
        assert!(
            end.is_multiple_of(FRAME as u64) && end <= self.max_len,
            "BUG: an open range to {end}; it must be a multiple of {FRAME} and at most {}",
            self.max_len
        );
        let before = self.open_end.swap(end, Ordering::AcqRel);
        assert!(
            before <= end && self.frames.free(0, end / FRAME as u64),
            "BUG: an open range to {end} after one to {before}, or over frames in use"
        );
    }
}

/// Writing. Each call asserts that its frames are claimed or in the open range. Nothing written is
/// seen for certain by another thread, nor durable, before what the call's `# Durability` says.
impl Mapping {
    /// Stores a little-endian word at `at`, a multiple of 8. Atomic, release.
    ///
    /// # Durability
    /// All or nothing at a power cut. Durable after [`Mapping::flush`] and [`Mapping::fence`].
    #[inline]
    pub fn store_u64(&self, at: u64, value: u64) {
        let word = self.word(at);
        self.check_writable(at, 8);
        if let Some(recorder) = &self.recorder {
            return recorder.store(self, at, &value.to_le_bytes(), false);
        }
        turn();
        word.store(value.to_le(), Ordering::Release);
    }

    /// Stores a little-endian word at `at`, a multiple of 8, past the caches: without waiting for a
    /// line that is in none of them. Atomic, and ordered with nothing: this thread fences before it
    /// lets another one store to the same word, else the older value may arrive last.
    ///
    /// # Durability
    /// All or nothing at a power cut. Durable after [`Mapping::fence`] by the same thread.
    #[inline]
    pub fn nt_store_u64(&self, at: u64, value: u64) {
        let word = self.word(at);
        self.check_word_writable(at);
        if let Some(recorder) = &self.recorder {
            return recorder.store(self, at, &value.to_le_bytes(), true);
        }
        turn();
        // SAFETY: `word` checked bounds and alignment, `check_writable` that no slice covers it.
        unsafe { self.kernel.stream_word(word.as_ptr(), value.to_le()) }
    }

    /// Copies `data` to `at` through the caches: for small writes.
    ///
    /// # Durability
    /// Durable after [`Mapping::flush`] and [`Mapping::fence`]. Torn in 8-byte words by a power cut
    /// before.
    #[inline]
    pub fn write(&self, at: u64, data: &[u8]) {
        let to = self.range(at, data.len());
        self.check_writable(at, data.len());
        if let Some(recorder) = &self.recorder {
            return recorder.store(self, at, data, false);
        }
        self.write_first_part(to, data);
        // SAFETY: `range` checked the target, `check_writable` that no slice of it exists; `data`
        // is a slice elsewhere.
        unsafe { self.kernel.copy_in(to, data.as_ptr(), data.len()) }
    }

    /// Copies `data` to `at` past the caches. Where `at` or the end is not on an 8-byte boundary,
    /// the word there is read, merged and written, so two threads must not write within one word.
    ///
    /// # Durability
    /// Durable after [`Mapping::fence`] by the same thread. Torn in 8-byte words by a power cut
    /// before; bytes outside the range never change.
    #[inline]
    pub fn nt_write(&self, at: u64, data: &[u8]) {
        let to = self.range(at, data.len());
        self.check_writable(at, data.len());
        if let Some(recorder) = &self.recorder {
            return recorder.store(self, at, data, true);
        }
        self.write_first_part(to, data);
        // SAFETY: as in `write`; the merged words lie in the same frames.
        unsafe { self.kernel.stream(to, data.as_ptr(), data.len()) }
    }

    /// Writes eight little-endian words `copies` times one behind the other, past the caches; `at`
    /// is a multiple of 64. For what was just put together: [`Mapping::nt_write`] loads whole
    /// lines, and a load of several words that were stored a moment ago waits until all stores
    /// before them are through, so for the medium. These words stay in registers.
    ///
    /// # Durability
    /// As [`Mapping::nt_write`].
    #[inline]
    pub fn nt_write_line(&self, at: u64, line: [u64; LINE / 8], copies: usize) {
        let to = self.range(at, copies * LINE);
        assert!(
            at.is_multiple_of(LINE as u64),
            "BUG: a line at {at}, which is not a multiple of 64"
        );
        self.check_writable(at, copies * LINE);
        if let Some(recorder) = &self.recorder {
            return recorder.store(
                self,
                at,
                &line.map(u64::to_le_bytes).as_flattened().repeat(copies),
                true,
            );
        }
        // SAFETY: as in `write`; the base is aligned to a frame, so the target is aligned to 64.
        unsafe { self.kernel.stream_line(to, line, copies) }
    }

    /// [`Mapping::nt_write`] and [`crate::hash_bytes`] in one pass over `data`. `at` and the length
    /// are multiples of 64.
    ///
    /// # Durability
    /// As [`Mapping::nt_write`].
    #[inline]
    pub fn nt_write_hashed(&self, at: u64, data: &[u8], seed: u64) -> u64 {
        self.prepare(at, data.len()).nt_write_hashed(data, seed)
    }

    /// Looks at all of a write that can be looked at before its frames are the caller's: for one
    /// who takes them under a lock and wants the first store soon after it.
    #[inline(always)]
    pub fn prepare(&self, at: u64, len: usize) -> PreparedWrite<'_> {
        let to = self.range(at, len);
        let claim =
            if len > 0 && self.recorder.is_none() && at >= self.open_end.load(Ordering::Relaxed) {
                let first = at / FRAME as u64;
                self.frames.claim_bits(first, (at + len as u64).div_ceil(FRAME as u64) - first)
            } else {
                None
            };
        PreparedWrite { mapping: self, to, at, len, claim }
    }

    /// Writes zeroes past the caches.
    ///
    /// # Durability
    /// As [`Mapping::nt_write`].
    pub fn nt_zero(&self, at: u64, len: usize) {
        const ZEROES: [u8; FRAME] = [0; FRAME];
        let mut done = 0;
        while done < len {
            // Up to a frame's boundary, so that the parts after the first are aligned.
            let position = at + done as u64;
            let part = (len - done).min(FRAME - (position % FRAME as u64) as usize);
            self.nt_write(position, &ZEROES[..part]);
            done += part;
        }
    }

    /// Sends the cache lines of a range towards the persistence domain.
    ///
    /// # Durability
    /// What was stored to them before is durable after the next [`Mapping::fence`].
    #[inline]
    pub fn flush(&self, at: u64, len: usize) {
        let from = self.range(at, len);
        if let Some(recorder) = &self.recorder {
            return recorder.flush(at, len);
        }
        // SAFETY: `range` checked the bounds.
        unsafe { self.kernel.flush(from, len) }
    }

    /// Waits until this thread's non-temporal writes and flushes have arrived; also makes them
    /// visible to other threads before anything this thread stores later.
    ///
    /// # Durability
    /// This thread's non-temporal writes and flushed lines are durable on return.
    #[inline]
    pub fn fence(&self) {
        if let Some(recorder) = &self.recorder {
            return recorder.fence(self);
        }
        turn();
        self.kernel.fence();
    }

    /// [`Mapping::fence`], where only the order matters: no later store is durable before what this
    /// thread has stored. A journal keeps the order of stores by itself, and has nothing to do.
    ///
    /// # Durability
    /// As of a fence where the mapping is a medium; else none.
    #[inline]
    pub fn order(&self) {
        if let Some(recorder) = &self.recorder {
            return recorder.order(self);
        }
        turn();
        self.kernel.fence();
    }

    /// Flush, then fence.
    ///
    /// # Durability
    /// What was stored to the range is durable on return.
    #[inline]
    pub fn persist(&self, at: u64, len: usize) {
        self.flush(at, len);
        self.fence();
    }
}

/// Checks.
impl Mapping {
    /// The address of `at`, when `len` bytes are mapped there.
    #[inline]
    fn range(&self, at: u64, len: usize) -> *mut u8 {
        let mapped = self.len.load(Ordering::Acquire);
        if at > mapped || len as u64 > mapped - at {
            outside(at, len, mapped);
        }
        // SAFETY: at most the mapped length, so inside the mapping or one past its end.
        unsafe { self.base.add(at as usize) }
    }

    #[inline]
    fn word(&self, at: u64) -> &AtomicU64 {
        let address = self.range(at, 8);
        assert!(at.is_multiple_of(8), "BUG: a word at {at}, which is not a multiple of 8");
        // SAFETY: mapped for 8 bytes and aligned, for as long as `self` lives. Racing accesses are
        // atomic or asm. A slice of the same word may exist only under a view, and then nobody
        // stores (`check_writable`).
        unsafe { AtomicU64::from_ptr(address.cast()) }
    }

    #[inline]
    fn frame_range(&self, at: u64, len: usize) -> (u64, u64) {
        self.range(at, len);
        if at < self.open_end.load(Ordering::Relaxed)
            || !at.is_multiple_of(FRAME as u64)
            || !len.is_multiple_of(FRAME)
        {
            bad_frames(at, len);
        }
        (at / FRAME as u64, (len / FRAME) as u64)
    }

    #[inline(always)]
    fn check_writable(&self, at: u64, len: usize) {
        let open_end = self.open_end.load(Ordering::Relaxed);
        let end = at + len as u64;
        if end <= open_end || len == 0 {
            return;
        }
        let first = at.max(open_end) / FRAME as u64;
        if !self.frames.claimed(first, end.div_ceil(FRAME as u64) - first) {
            not_claimed(at, len);
        }
    }

    /// [`Mapping::check_writable`] of one word, which lies in one frame.
    #[inline]
    fn check_word_writable(&self, at: u64) {
        if at >= self.open_end.load(Ordering::Relaxed)
            && !self.frames.one_claimed(at / FRAME as u64)
        {
            not_claimed(at, 8);
        }
    }

    /// Half of a write before the whole, where others may come in between: nothing in a normal
    /// build.
    #[inline(always)]
    fn write_first_part(&self, to: *mut u8, data: &[u8]) {
        let first = first_part(data.len());
        if first > 0 {
            // SAFETY: the callers are about to write the whole there, and have checked that they
            // may.
            unsafe { self.kernel.copy_in(to, data.as_ptr(), first) };
            turns_in_copy();
        }
    }

    /// The bytes for the simulator and for a journal, which alone know when they may be read as
    /// they are.
    pub(crate) fn copy_in(&self, at: u64, data: &[u8]) {
        let to = self.range(at, data.len());
        // SAFETY: `range` checked the target; `data` is a slice elsewhere.
        unsafe { self.kernel.copy_in(to, data.as_ptr(), data.len()) }
    }
}

impl Bytes for Mapping {
    fn read(&self, at: u64, into: &mut [u8]) {
        Mapping::read(self, at, into);
    }

    fn fill(&self, at: u64, bytes: &[u8]) {
        self.copy_in(at, bytes);
    }
}

#[cold]
#[inline(never)]
fn outside(at: u64, len: usize, mapped: u64) -> ! {
    panic!("BUG: {len} bytes at {at} are outside the mapping of {mapped} bytes")
}

#[cold]
#[inline(never)]
fn bad_frames(at: u64, len: usize) -> ! {
    panic!("BUG: {len} bytes at {at} are not whole frames outside the open range")
}

#[cold]
#[inline(never)]
fn not_lines(at: u64, len: usize) -> ! {
    panic!("BUG: a hashed write of {len} bytes at {at}; both must be multiples of 64")
}

#[cold]
#[inline(never)]
fn not_claimed(at: u64, len: usize) -> ! {
    panic!("BUG: a write of {len} bytes at {at} to frames that are not claimed")
}
