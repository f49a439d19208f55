//! aarch64: cached stores, then `dc cvap` (or `dc cvac`) per line, then `dsb`.
//!
//! There is no store that is durable after a fence without a clean: `stnp` is only a hint. So bulk
//! writes are copied by `portable.rs` and cleaned line by line by the caller. Checked to compile;
//! not measured.
//!
//! Source: Arm Architecture Reference Manual, `DC CVAP` (FEAT_DPB) and `DSB`.

use std::arch::asm;

#[cfg(test)]
pub(super) use super::portable::widths;
pub(super) use super::portable::{
    copy_in, copy_out, stream_line, stream_lines, stream_word, stripes, width,
};
use crate::report::FlushInstruction;

pub(super) fn flush_instruction() -> FlushInstruction {
    if std::arch::is_aarch64_feature_detected!("dpb") {
        FlushInstruction::DcCvap
    } else {
        FlushInstruction::DcCvac
    }
}

/// Bytes per line of the data cache.
#[inline]
fn line_bytes() -> usize {
    let ctr: u64;
    // SAFETY: Linux lets programs read CTR_EL0, or emulates it.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) ctr, options(nomem, nostack, preserves_flags)) };
    4 << ((ctr >> 16) & 0xf)
}

/// # Safety
/// The range is mapped and not empty; the processor has the instruction.
pub(super) unsafe fn flush(instruction: FlushInstruction, at: *const u8, len: usize) {
    let bytes = line_bytes();
    let mut line = at.wrapping_sub(at.addr() % bytes);
    let end = at.wrapping_add(len);
    while line < end {
        // SAFETY: a line of the mapped range; a clean changes no contents. `sys #3, c7, c12, #1` is
        // `dc cvap`, spelled so that it assembles without the feature.
        unsafe {
            match instruction {
                FlushInstruction::DcCvap => {
                    asm!("sys #3, c7, c12, #1, {}", in(reg) line, options(nostack, preserves_flags))
                }
                _ => asm!("dc cvac, {}", in(reg) line, options(nostack, preserves_flags)),
            }
        }
        line = line.wrapping_add(bytes);
    }
}

#[inline]
pub(super) fn fence() {
    // The full system: persistent memory may be outside the inner shareable domain. SAFETY: touches
    // no register; the default memory clobber keeps the compiler from moving accesses across.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) }
}

#[inline]
pub(super) fn prefetch_for_write(line: *const u8) {
    // SAFETY: a prefetch never faults and changes nothing.
    unsafe {
        asm!("prfm pstl1keep, [{}]", in(reg) line, options(nostack, preserves_flags, readonly))
    }
}

#[inline]
pub(super) fn prefetch_for_read(at: *const u8, len: usize) {
    let mut line = at;
    let end = at.wrapping_add(len);
    while line < end {
        // SAFETY: a prefetch never faults and changes nothing.
        unsafe {
            asm!("prfm pldl1keep, [{}]", in(reg) line, options(nostack, preserves_flags, readonly))
        }
        line = line.wrapping_add(64);
    }
}
