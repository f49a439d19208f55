//! The instructions: copies that may race, non-temporal stores, flushes, fences, and the checksum
//! (`checksum.rs`).
//!
//! One [`Kernel`] per mapping holds what was chosen when it was opened. The choice asks the
//! processor (CPUID, or the auxiliary vector), never the build: the same program runs on a machine
//! without AVX-512, and under valgrind, which hides `clwb`.
//!
//! Which non-temporal store: the widest the processor has. A line written by one 64-byte store
//! leaves its write-combining buffer whole at once; narrower stores fill the buffer piece by piece,
//! and another line can push it out half full, which costs the memory a read and a merge.
//! `movdir64b` also writes a line whole, but takes its data from memory only: the hashed copy would
//! load every line twice, and the plain one gains nothing over 64-byte vectors, so it is not used.
//!
//! Invariants: nothing here checks bounds (`mapping.rs` did); the copies and `hash_shared` are
//! defined under races with the other routines here; `portable.rs` defines what the others must
//! compute, and is what Miri runs.

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod aarch64;
mod checksum;
mod portable;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64;

#[cfg(all(target_arch = "aarch64", not(miri)))]
use aarch64 as arch;
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
use portable as arch;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use x86_64 as arch;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::report::{FlushInstruction, NonTemporal, PersistenceDomain};
use crate::{Access, LINE};

use checksum::Secret;

pub(crate) use checksum::Keys;
pub use checksum::hash_bytes;

/// How much of a range is prefetched at most: half of a 32 KiB first-level cache.
const PREFETCHED: usize = 16 << 10;

/// How wide the vector registers are that the bulk routines use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "each architecture makes only its own")]
pub(crate) enum Width {
    Portable,
    Sse2,
    Avx2,
    /// 64-byte vectors for copies, 32-byte ones for the checksum.
    Avx512Copies,
    Avx512,
}

/// Whether others may write what is read meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A slice: nobody writes it.
    Slice,
    /// The mapping.
    Shared,
}

impl Width {
    /// The widest of this processor.
    pub(crate) fn detect() -> Width {
        arch::width()
    }

    /// Every width this processor has, for tests that compare them.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Width> {
        arch::widths()
    }

    /// The sums of the checksum's stripes over `len` bytes (more than 240) from `src`, also copied
    /// to `dst` past the caches when `dst` is not null.
    ///
    /// # Safety
    /// `src` is readable for `len` bytes; `dst` is null, or aligned to 64, writable for `len` bytes
    /// and apart from `src`, and `len` is a multiple of 64. The processor has this width.
    #[inline]
    pub(crate) unsafe fn stripes(
        self,
        source: Source,
        dst: *mut u8,
        src: *const u8,
        len: usize,
        secret: &Secret,
    ) -> [u64; 8] {
        // SAFETY: the caller's obligations are the same.
        unsafe { arch::stripes(self, source, dst, src, len, secret) }
    }
}

/// What was chosen for one mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    width: Width,
    /// Bulk writes go past the caches.
    streams: bool,
    flush: FlushInstruction,
    /// No instruction is known, as opposed to none needed.
    flush_is_unknown: bool,
}

impl Kernel {
    /// For a mapped backing.
    pub(crate) fn detect(access: Access, domain: PersistenceDomain) -> Kernel {
        let width = Width::detect();
        let known = arch::flush_instruction();
        let needed = access != Access::Volatile && domain != PersistenceDomain::CpuCache;
        Kernel {
            width,
            streams: width != Width::Portable,
            flush: if needed { known } else { FlushInstruction::None },
            flush_is_unknown: known == FlushInstruction::None,
        }
    }

    /// For heap memory: plain copies, no flush.
    pub(crate) fn heap() -> Kernel {
        let width = Width::detect();
        Kernel { width, streams: false, flush: FlushInstruction::None, flush_is_unknown: false }
    }

    pub(crate) fn flush_is_unknown(&self) -> bool {
        self.flush_is_unknown
    }

    pub(crate) fn instruction(&self) -> FlushInstruction {
        self.flush
    }

    pub(crate) fn nontemporal(&self) -> NonTemporal {
        match self.width {
            _ if !self.streams => NonTemporal::CachedThenFlush,
            Width::Portable => NonTemporal::CachedThenFlush,
            Width::Sse2 => NonTemporal::Sse2,
            Width::Avx2 => NonTemporal::Avx2,
            Width::Avx512 | Width::Avx512Copies => NonTemporal::Avx512,
        }
    }

    /// Copies a slice into shared memory. Whole aligned words of the target are not torn.
    ///
    /// # Safety
    /// `src` is a slice of `len` bytes; `dst` is mapped for as many, elsewhere, and no slice covers
    /// it. It may be raced.
    #[inline]
    pub(crate) unsafe fn copy_in(&self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller's obligations are the same.
        unsafe { arch::copy_in(self.width, dst, src, len) }
    }

    /// Copies shared memory into a slice. Whole aligned words of the source are not torn.
    ///
    /// # Safety
    /// `dst` is an exclusive slice of `len` bytes; `src` is mapped for as many, elsewhere. It may
    /// be raced.
    #[inline]
    pub(crate) unsafe fn copy_out(&self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller's obligations are the same.
        unsafe { arch::copy_out(self.width, dst, src, len) }
    }

    /// Copies to `dst` past the caches, at any alignment; words at the edges are read, merged and
    /// written.
    ///
    /// # Safety
    /// As [`Kernel::copy_in`], also for the whole 8-byte words that the ends of the target lie in.
    #[inline]
    pub(crate) unsafe fn stream(&self, dst: *mut u8, src: *const u8, len: usize) {
        if !self.streams {
            // SAFETY: the caller's obligations are the same.
            unsafe { self.copy_in(dst, src, len) };
            // SAFETY: the same range.
            return unsafe { self.flush(dst, len) };
        }
        if dst.addr().is_multiple_of(LINE) && len.is_multiple_of(LINE) {
            // SAFETY: the caller's obligations, and the target is whole lines.
            return unsafe { arch::stream_lines(self.width, dst, src, len / LINE) };
        }
        // SAFETY: the caller's obligations are the same.
        unsafe { self.stream_edges(dst, src, len) }
    }

    /// Stores one word past the caches.
    ///
    /// # Safety
    /// The word is mapped and aligned, and no slice covers it. It may be raced.
    #[inline]
    pub(crate) unsafe fn stream_word(&self, word: *mut u64, value: u64) {
        if self.streams {
            // SAFETY: the caller's obligations are the same.
            return unsafe { arch::stream_word(word, value) };
        }
        // SAFETY: mapped and aligned; racing accesses are atomic or asm.
        unsafe { AtomicU64::from_ptr(word) }.store(value, Ordering::Release);
        // SAFETY: the same word.
        unsafe { self.flush(word.cast(), 8) }
    }

    /// Stores a line `copies` times one behind the other past the caches, from words in registers.
    ///
    /// # Safety
    /// `dst` is aligned to 64 and mapped for as many lines, and no slice covers it. It may be
    /// raced.
    #[inline]
    pub(crate) unsafe fn stream_line(&self, dst: *mut u8, line: [u64; LINE / 8], copies: usize) {
        if self.streams {
            // SAFETY: the caller's obligations are the same.
            return unsafe { arch::stream_line(self.width, dst, line, copies) };
        }
        let line = line.map(u64::to_le_bytes);
        for copy in 0..copies {
            // SAFETY: the caller's obligations; the source is a slice.
            unsafe { self.stream(dst.add(LINE * copy), line.as_flattened().as_ptr(), LINE) }
        }
    }

    /// [`Kernel::stream`] where the target is not whole lines.
    ///
    /// # Safety
    /// As [`Kernel::stream`].
    unsafe fn stream_edges(&self, mut dst: *mut u8, mut src: *const u8, mut len: usize) {
        // SAFETY: each step stays inside the caller's ranges: `len` counts down what is left, and
        // every part is at most `len`; the merged words are the caller's by its obligation.
        unsafe {
            let head = dst.addr() % 8;
            if head != 0 && len > 0 {
                let part = len.min(8 - head);
                merge_word(dst.sub(head).cast(), head, src, part);
                (dst, src, len) = (dst.add(part), src.add(part), len - part);
            }
            while len >= 8 && !dst.addr().is_multiple_of(LINE) {
                arch::stream_word(dst.cast(), src.cast::<u64>().read_unaligned());
                (dst, src, len) = (dst.add(8), src.add(8), len - 8);
            }
            let lines = len / LINE;
            if lines > 0 {
                arch::stream_lines(self.width, dst, src, lines);
                (dst, src, len) =
                    (dst.add(lines * LINE), src.add(lines * LINE), len - lines * LINE);
            }
            while len >= 8 {
                arch::stream_word(dst.cast(), src.cast::<u64>().read_unaligned());
                (dst, src, len) = (dst.add(8), src.add(8), len - 8);
            }
            if len > 0 {
                merge_word(dst.cast(), 0, src, len);
            }
        }
    }

    /// Copies past the caches and returns the checksum of the bytes, reading them once.
    ///
    /// # Safety
    /// As [`Kernel::copy_in`]; `dst` is aligned to 64 and `len` is a multiple of 64.
    #[inline]
    pub(crate) unsafe fn stream_hashed(
        &self,
        dst: *mut u8,
        src: *const u8,
        len: usize,
        keys: &Keys,
    ) -> u64 {
        if len <= checksum::SHORT || !self.streams {
            // SAFETY: the caller's obligations are the same.
            unsafe { self.stream(dst, src, len) };
            // SAFETY: the source is a slice nobody writes, by the caller's obligation.
            return hash_bytes(unsafe { std::slice::from_raw_parts(src, len) }, keys.seed);
        }
        // SAFETY: the caller's obligations; the width was detected.
        unsafe { checksum::long_with(self.width, Source::Slice, dst, src, len, &keys.secret) }
    }

    /// The checksum of memory that may be raced.
    ///
    /// # Safety
    /// `src` is readable for `len` bytes.
    pub(crate) unsafe fn hash_shared(&self, src: *const u8, len: usize, seed: u64) -> u64 {
        if len <= checksum::SHORT {
            let mut bytes = [0; checksum::SHORT];
            // SAFETY: the caller's obligation; the target is this array.
            unsafe { self.copy_out(bytes.as_mut_ptr(), src, len) };
            return hash_bytes(&bytes[..len], seed);
        }
        self.prefetch_for_read(src, len);
        // SAFETY: the caller's obligation; the width was detected; nothing is copied.
        unsafe { checksum::long(self.width, Source::Shared, std::ptr::null_mut(), src, len, seed) }
    }

    /// Flushes every line of a range.
    ///
    /// # Safety
    /// The range is mapped.
    #[inline]
    pub(crate) unsafe fn flush(&self, at: *const u8, len: usize) {
        if self.flush != FlushInstruction::None && len > 0 {
            // SAFETY: the caller's obligation is the same.
            unsafe { arch::flush(self.flush, at, len) }
        }
    }

    /// Orders stores, non-temporal stores and flushes before everything after.
    #[inline]
    pub(crate) fn fence(&self) {
        arch::fence();
    }

    /// A hint, for the start of a range: more would push itself out of the first-level cache.
    #[inline]
    pub(crate) fn prefetch_for_read(&self, at: *const u8, len: usize) {
        arch::prefetch_for_read(at, len.min(PREFETCHED));
    }
}

/// A hint that a value in ordinary memory will be written soon. Changes nothing, and unlike a load
/// holds nothing up.
#[inline]
pub fn prefetch_for_write<T>(value: &T) {
    arch::prefetch_for_write(std::ptr::from_ref(value).cast());
}

/// [`prefetch_for_write`] for every cache line of a value.
#[inline]
pub fn prefetch_whole_for_write<T>(value: &T) {
    let from = std::ptr::from_ref(value).cast::<u8>();
    for line in (0..size_of::<T>()).step_by(LINE) {
        arch::prefetch_for_write(from.wrapping_add(line));
    }
}

/// Replaces `len` bytes from byte `from` on of an aligned word, storing it whole: torn or not, the
/// other bytes stay.
///
/// # Safety
/// The word is mapped, no slice covers it; `src` is readable for `len` bytes; `from + len <= 8`.
unsafe fn merge_word(word: *mut u64, from: usize, src: *const u8, len: usize) {
    // SAFETY: mapped and aligned; racing accesses are atomic or asm.
    let old = unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Relaxed);
    let mut bytes = old.to_le_bytes();
    #[cfg(target_endian = "big")]
    compile_error!("the formats on media and the merge of words here are little-endian");
    // SAFETY: the caller's obligation on `src`.
    bytes[from..from + len].copy_from_slice(unsafe { std::slice::from_raw_parts(src, len) });
    // SAFETY: as for the load.
    unsafe { arch::stream_word(word, u64::from_le_bytes(bytes)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes at an address aligned to a line, with room for any misalignment.
    #[repr(C, align(64))]
    struct Aligned([u8; 4096]);

    fn noise(seed: u64) -> Aligned {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut bytes = Aligned([0; 4096]);
        rng.fill(&mut bytes.0);
        bytes
    }

    fn kernels() -> Vec<Kernel> {
        let kernel = |width, streams| Kernel {
            width,
            streams,
            flush: arch::flush_instruction(),
            flush_is_unknown: false,
        };
        Width::all()
            .into_iter()
            .flat_map(|width| [kernel(width, false), kernel(width, true)])
            .collect()
    }

    /// Lengths around every border of the loops.
    fn lengths() -> impl Iterator<Item = usize> {
        (0..260).chain([511, 512, 513, 1023, 1024, 1025, 1088, 2048, 3000]).step_by(if cfg!(miri) {
            37
        } else {
            1
        })
    }

    #[test]
    fn every_width_copies_exactly_the_bytes_asked_for() {
        let source = noise(1);
        for kernel in kernels() {
            for len in lengths() {
                for (to, from) in [(0, 0), (8, 0), (0, 5), (3, 0), (61, 7), (7, 7)] {
                    for stream in [false, true] {
                        let mut target = noise(2);
                        let mut expected = noise(2);
                        expected.0[to..to + len].copy_from_slice(&source.0[from..from + len]);
                        let dst = target.0.as_mut_ptr();
                        let src = source.0.as_ptr();
                        // SAFETY: both arrays hold 4096 bytes and the ranges end below 3100.
                        unsafe {
                            if stream {
                                kernel.stream(dst.add(to), src.add(from), len);
                            } else {
                                kernel.copy_in(dst.add(to), src.add(from), len);
                            }
                        }
                        kernel.fence();
                        assert!(
                            target.0 == expected.0,
                            "{kernel:?} {len} bytes from {from} to {to}, stream {stream}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn every_width_copies_and_hashes_in_one_pass_as_in_two() {
        let source = noise(3);
        for kernel in kernels() {
            for len in (0..=3072).step_by(if cfg!(miri) { 768 } else { 64 }) {
                for seed in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
                    let mut target = noise(4);
                    let mut expected = noise(4);
                    expected.0[64..64 + len].copy_from_slice(&source.0[5..5 + len]);
                    // SAFETY: both arrays hold 4096 bytes; the target is on a line.
                    let (hash, found) = unsafe {
                        let to = target.0.as_mut_ptr().add(64);
                        let hash = kernel.stream_hashed(
                            to,
                            source.0.as_ptr().add(5),
                            len,
                            &Keys::of_seed(seed),
                        );
                        kernel.fence();
                        (hash, kernel.hash_shared(to, len, seed))
                    };
                    assert!(target.0 == expected.0, "{kernel:?} {len} bytes");
                    let published =
                        xxhash_rust::xxh3::xxh3_64_with_seed(&source.0[5..5 + len], seed);
                    assert_eq!(hash, published, "{kernel:?} {len} bytes seed {seed}");
                    assert_eq!(found, published, "{kernel:?} {len} bytes seed {seed}");
                }
            }
        }
    }

    #[test]
    fn every_width_stores_a_line_as_it_is() {
        let source = noise(8);
        for kernel in kernels() {
            let mut target = noise(9);
            let mut expected = noise(9);
            expected.0[64..128].copy_from_slice(&source.0[3..67]);
            expected.0[128..192].copy_from_slice(&source.0[3..67]);
            let line = std::array::from_fn(|n| {
                u64::from_le_bytes(*source.0[3 + 8 * n..].first_chunk().unwrap())
            });
            // SAFETY: the target holds 4096 bytes and is aligned to a line.
            unsafe { kernel.stream_line(target.0.as_mut_ptr().add(64), line, 2) };
            kernel.fence();
            assert!(target.0 == expected.0, "{kernel:?}");
        }
    }

    #[test]
    fn an_unaligned_stream_stores_whole_words_at_its_edges() {
        // What a torn edge could lose is checked by the simulator's model; here, that the
        // neighbours are kept.
        let mut target = noise(5);
        let expected = noise(5).0;
        for kernel in kernels() {
            // SAFETY: inside the array.
            unsafe { kernel.stream(target.0.as_mut_ptr().add(3), expected.as_ptr().add(3), 2) };
            kernel.fence();
            assert!(target.0 == expected, "{kernel:?}");
        }
    }

    #[test]
    fn a_flush_of_any_range_changes_nothing() {
        let bytes = noise(6);
        for kernel in kernels() {
            for (at, len) in [(0, 0), (0, 1), (63, 2), (0, 4096), (4095, 1)] {
                // SAFETY: inside the array.
                unsafe { kernel.flush(bytes.0.as_ptr().add(at), len) };
            }
            kernel.fence();
        }
        assert!(bytes.0 == noise(6).0);
    }

    #[test]
    fn nothing_is_flushed_where_nothing_is_expected_to_survive_or_the_caches_do() {
        let domain = PersistenceDomain::MemoryController;
        assert_eq!(
            Kernel::detect(Access::Volatile, PersistenceDomain::None).instruction(),
            FlushInstruction::None
        );
        assert_eq!(
            Kernel::detect(Access::Dax, PersistenceDomain::CpuCache).instruction(),
            FlushInstruction::None
        );
        assert_eq!(Kernel::detect(Access::Dax, domain).instruction(), arch::flush_instruction());
        assert_eq!(
            Kernel::detect(Access::Emulated, PersistenceDomain::None).instruction(),
            arch::flush_instruction()
        );
    }
}
