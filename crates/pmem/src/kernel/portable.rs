//! What every routine computes, in plain Rust: the definition the vector routines are tested
//! against, and what Miri and unknown processors run.
//!
//! Deliberately absent: flushes. A processor without a known flush instruction cannot hold
//! persistent memory here.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::checksum::{BEGIN, BLOCK_STRIPES, LAST_KEY, PRIME32_1, SCRAMBLE_KEY, Secret, key};
use super::{Source, Width};
use crate::report::FlushInstruction;

#[allow(dead_code, reason = "used where no architecture module is")]
pub(super) fn width() -> Width {
    Width::Portable
}

#[cfg(test)]
#[allow(dead_code, reason = "used where no architecture module is")]
pub(super) fn widths() -> Vec<Width> {
    vec![Width::Portable]
}

#[allow(dead_code, reason = "used where no architecture module is")]
pub(super) fn flush_instruction() -> FlushInstruction {
    FlushInstruction::None
}

/// # Safety
/// Nothing is touched.
#[allow(dead_code, reason = "used where no architecture module is")]
pub(super) unsafe fn flush(_: FlushInstruction, _: *const u8, _: usize) {}

#[allow(dead_code, reason = "used where no architecture module is")]
pub(super) fn fence() {
    std::sync::atomic::fence(Ordering::SeqCst);
}

#[allow(dead_code, reason = "used where no architecture module is")]
pub(super) fn prefetch_for_write(_: *const u8) {}

#[allow(dead_code, reason = "used where no architecture module is")]
pub(super) fn prefetch_for_read(_: *const u8, _: usize) {}

/// # Safety
/// The word is mapped and aligned, and no slice covers it.
#[allow(dead_code, reason = "used where no architecture module is")]
pub(super) unsafe fn stream_word(word: *mut u64, value: u64) {
    // SAFETY: the caller's obligation; racing accesses are atomic or asm.
    unsafe { AtomicU64::from_ptr(word) }.store(value, Ordering::Relaxed);
}

/// # Safety
/// As [`super::Kernel::copy_in`], for `lines` of 64 bytes.
#[allow(dead_code, reason = "used where no architecture module is")]
pub(super) unsafe fn stream_lines(width: Width, dst: *mut u8, src: *const u8, lines: usize) {
    // SAFETY: the caller's obligations are the same.
    unsafe { copy_in(width, dst, src, lines * 64) }
}

/// # Safety
/// As [`super::Kernel::stream_line`].
#[allow(dead_code, reason = "used where no architecture module is")]
pub(super) unsafe fn stream_line(width: Width, dst: *mut u8, line: [u64; 8], copies: usize) {
    let line = line.map(u64::to_le_bytes);
    for copy in 0..copies {
        // SAFETY: the caller's obligations are the same.
        unsafe { copy_in(width, dst.add(64 * copy), line.as_flattened().as_ptr(), 64) }
    }
}

/// To shared memory, from a slice: relaxed atomic stores.
///
/// # Safety
/// As [`super::Kernel::copy_in`].
#[allow(dead_code, reason = "used where no architecture module is")]
pub(super) unsafe fn copy_in(_: Width, dst: *mut u8, src: *const u8, len: usize) {
    let mut done = 0;
    while done < len {
        // SAFETY: `done` stays below `len`, so both addresses are in the caller's ranges; racing
        // accesses to the target are atomic or asm, and nobody writes the source.
        unsafe {
            let (to, from) = (dst.add(done), src.add(done));
            if to.addr().is_multiple_of(8) && len - done >= 8 {
                AtomicU64::from_ptr(to.cast())
                    .store(from.cast::<u64>().read_unaligned(), Ordering::Relaxed);
                done += 8;
            } else {
                AtomicU8::from_ptr(to).store(from.read(), Ordering::Relaxed);
                done += 1;
            }
        }
    }
}

/// From shared memory, to a slice: relaxed atomic loads.
///
/// # Safety
/// As [`super::Kernel::copy_out`].
pub(super) unsafe fn copy_out(_: Width, dst: *mut u8, src: *const u8, len: usize) {
    let mut done = 0;
    while done < len {
        // SAFETY: as in `copy_in`, the other way round.
        unsafe {
            let (to, from) = (dst.add(done), src.add(done).cast_mut());
            if from.addr().is_multiple_of(8) && len - done >= 8 {
                to.cast::<u64>()
                    .write_unaligned(AtomicU64::from_ptr(from.cast()).load(Ordering::Relaxed));
                done += 8;
            } else {
                to.write(AtomicU8::from_ptr(from).load(Ordering::Relaxed));
                done += 1;
            }
        }
    }
}

/// One step of the checksum: 64 bytes, in place of eight lanes.
fn step(acc: &mut [u64; 8], words: &[u64; 8], secret: &Secret, at: usize) {
    for lane in 0..8 {
        let data = words[lane];
        let keyed = data ^ key(secret, at + 8 * lane);
        acc[lane ^ 1] = acc[lane ^ 1].wrapping_add(data);
        acc[lane] = acc[lane].wrapping_add((keyed & 0xffff_ffff).wrapping_mul(keyed >> 32));
    }
}

fn scramble(acc: &mut [u64; 8], secret: &Secret) {
    for (lane, value) in acc.iter_mut().enumerate() {
        *value ^= *value >> 47;
        *value ^= key(secret, SCRAMBLE_KEY + 8 * lane);
        *value = value.wrapping_mul(PRIME32_1);
    }
}

/// # Safety
/// As [`Width::stripes`].
pub(super) unsafe fn stripes(
    width: Width,
    source: Source,
    dst: *mut u8,
    src: *const u8,
    len: usize,
    secret: &Secret,
) -> [u64; 8] {
    let mut acc = BEGIN.0;
    let load = |at: usize| {
        let mut bytes = [0u8; 64];
        // SAFETY: the callers below stay inside `len`; the target is this array.
        unsafe {
            match source {
                Source::Slice => bytes.as_mut_ptr().copy_from_nonoverlapping(src.add(at), 64),
                Source::Shared => copy_out(width, bytes.as_mut_ptr(), src.add(at), 64),
            }
        }
        if !dst.is_null() {
            // SAFETY: the caller's obligation on `dst`.
            unsafe { copy_in(width, dst.add(at), bytes.as_ptr(), 64) };
        }
        let mut words = [0u64; 8];
        for (word, eight) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*eight);
        }
        words
    };
    let regular = (len - 1) / 64;
    for stripe in 0..regular {
        step(&mut acc, &load(64 * stripe), secret, 8 * (stripe % BLOCK_STRIPES));
        if stripe % BLOCK_STRIPES == BLOCK_STRIPES - 1 {
            scramble(&mut acc, secret);
        }
    }
    step(&mut acc, &load(len - 64), secret, LAST_KEY);
    acc
}
