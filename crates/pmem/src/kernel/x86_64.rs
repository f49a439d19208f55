//! x86-64: SSE2, AVX2 or AVX-512 for copies and the checksum; `movnti`/`movntdq` past the caches;
//! `clwb`, `clflushopt` or `clflush`; `sfence`.
//!
//! Loads and stores of shared memory are asm (the stream intrinsics are asm inside too), so that a
//! race with another thread is the hardware's business: an aligned 8-byte word is always whole.
//!
//! Sources: Intel SDM volume 1, 10.4.6.2 (non-temporal stores are weakly ordered, `sfence` orders
//! them), volume 2, `CLWB` (ordered by `sfence` with later stores).

use std::arch::asm;
use std::arch::x86_64::*;
use std::sync::LazyLock;

use super::checksum::{BEGIN, BLOCK_STRIPES, LAST_KEY, PRIME32_1, SCRAMBLE_KEY, Secret};
use super::{Source, Width};
use crate::report::FlushInstruction;

pub(super) fn width() -> Width {
    if is_x86_feature_detected!("avx512f") {
        if is_amd() { Width::Avx512 } else { Width::Avx512Copies }
    } else if is_x86_feature_detected!("avx2") {
        Width::Avx2
    } else {
        Width::Sse2
    }
}

/// Whether the checksum gains from 64-byte vectors: 8 KiB took a Xeon 75 ns longer with them than
/// with AVX2, and an EPYC a third less over the copy alone.
fn is_amd() -> bool {
    static AMD: LazyLock<bool> = LazyLock::new(|| {
        let vendor = __cpuid(0);
        [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD"
    });
    *AMD
}

#[cfg(test)]
pub(super) fn widths() -> Vec<Width> {
    let mut all = vec![Width::Portable, Width::Sse2];
    if is_x86_feature_detected!("avx2") {
        all.push(Width::Avx2);
    }
    if is_x86_feature_detected!("avx512f") {
        all.extend([Width::Avx512Copies, Width::Avx512]);
    }
    all
}

pub(super) fn flush_instruction() -> FlushInstruction {
    // `clflush` itself is in every x86-64 processor.
    if __cpuid(0).eax < 7 {
        return FlushInstruction::Clflush;
    }
    let features = __cpuid_count(7, 0).ebx;
    if features & (1 << 24) != 0 {
        FlushInstruction::Clwb
    } else if features & (1 << 23) != 0 {
        FlushInstruction::ClflushOpt
    } else {
        FlushInstruction::Clflush
    }
}

/// # Safety
/// The range is mapped and not empty; the processor has the instruction.
#[inline]
pub(super) unsafe fn flush(instruction: FlushInstruction, at: *const u8, len: usize) {
    let mut line = at.wrapping_sub(at.addr() % 64);
    let end = at.wrapping_add(len);
    while line < end {
        // SAFETY: a line of the mapped range; a flush changes no contents.
        unsafe {
            match instruction {
                FlushInstruction::Clwb => {
                    asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags))
                }
                FlushInstruction::ClflushOpt => {
                    asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags))
                }
                _ => asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)),
            }
        }
        line = line.wrapping_add(64);
    }
}

#[inline]
pub(super) fn fence() {
    // SAFETY: touches no register; the default memory clobber keeps the compiler from moving
    // accesses across.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) }
}

#[inline]
pub(super) fn prefetch_for_write(line: *const u8) {
    // SAFETY: a prefetch never faults and changes nothing; without it, it is a no-op.
    unsafe { asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly)) }
}

/// Every line of the range at once: the processor's own prefetcher starts anew in each 4 KiB page
/// and ramps up slowly, which for a block of two pages not in the cache costs a fifth of the copy.
///
/// Eight to a turn, because what stands here delays the next call, which the processor begins while
/// these lines are on their way. First each page's first, to look the translations up side by side.
#[inline]
pub(super) fn prefetch_for_read(at: *const u8, len: usize) {
    let mut page = at.wrapping_add(4096);
    let end = at.wrapping_add(len);
    while page < end {
        prefetch_line(page);
        page = page.wrapping_add(4096);
    }
    let mut line = at;
    while end.addr().saturating_sub(line.addr()) >= 512 {
        // SAFETY: a prefetch never faults and changes nothing.
        unsafe {
            asm!(
                "prefetcht0 [{0}]", "prefetcht0 [{0} + 64]", "prefetcht0 [{0} + 128]",
                "prefetcht0 [{0} + 192]", "prefetcht0 [{0} + 256]", "prefetcht0 [{0} + 320]",
                "prefetcht0 [{0} + 384]", "prefetcht0 [{0} + 448]",
                in(reg) line, options(nostack, preserves_flags, readonly)
            );
        }
        line = line.wrapping_add(512);
    }
    while line < end {
        prefetch_line(line);
        line = line.wrapping_add(64);
    }
}

#[inline]
fn prefetch_line(line: *const u8) {
    // SAFETY: a prefetch never faults and changes nothing.
    unsafe { asm!("prefetcht0 [{}]", in(reg) line, options(nostack, preserves_flags, readonly)) }
}

/// # Safety
/// The word is mapped and aligned, and no slice covers it.
#[inline]
pub(super) unsafe fn stream_word(word: *mut u64, value: u64) {
    // SAFETY: the caller's obligation.
    unsafe {
        asm!("movnti [{}], {}", in(reg) word, in(reg) value, options(nostack, preserves_flags))
    }
}

/// Stores of 64 bytes where the processor has them, put together in registers once for all copies.
///
/// # Safety
/// As [`super::Kernel::stream_line`].
#[inline]
pub(super) unsafe fn stream_line(width: Width, dst: *mut u8, line: [u64; 8], copies: usize) {
    if matches!(width, Width::Avx512 | Width::Avx512Copies) {
        let [a, b, c, d, e, f, g, h] = line;
        // SAFETY: the caller's obligations; the width says what the processor has.
        return unsafe { stream_line_avx512(dst, copies, a, b, c, d, e, f, g, h) };
    }
    for copy in 0..copies {
        for (n, word) in line.into_iter().enumerate() {
            // SAFETY: within the lines, which the caller vouches for.
            unsafe { stream_word(dst.add(64 * copy + 8 * n).cast(), word) }
        }
    }
}

/// # Safety
/// As [`super::Kernel::stream_line`].
#[target_feature(enable = "avx512f")]
#[allow(
    clippy::too_many_arguments,
    reason = "arguments stay words: an array would be copied, by vectors that its words were not \
              stored as"
)]
unsafe fn stream_line_avx512(
    dst: *mut u8,
    copies: usize,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
    f: u64,
    g: u64,
    h: u64,
) {
    let line: __m512i;
    // asm, or the compiler might put the vector together in memory.
    // SAFETY: touches registers only.
    unsafe {
        asm!(
            "vmovq xmm0, {a}",
            "vmovq xmm1, {c}",
            "vmovq xmm2, {e}",
            "vmovq xmm3, {g}",
            "vpinsrq xmm0, xmm0, {b}, 1",
            "vpinsrq xmm1, xmm1, {d}, 1",
            "vpinsrq xmm2, xmm2, {f}, 1",
            "vpinsrq xmm3, xmm3, {h}, 1",
            "vinserti128 ymm0, ymm0, xmm1, 1",
            "vinserti128 ymm2, ymm2, xmm3, 1",
            "vinserti64x4 zmm0, zmm0, ymm2, 1",
            a = in(reg) a, b = in(reg) b, c = in(reg) c, d = in(reg) d,
            e = in(reg) e, f = in(reg) f, g = in(reg) g, h = in(reg) h,
            out("zmm0") line, out("zmm1") _, out("zmm2") _, out("zmm3") _,
            options(nomem, nostack, preserves_flags)
        );
    }
    for copy in 0..copies {
        // SAFETY: within the caller's lines; `dst` is aligned to 64.
        unsafe { _mm512_stream_si512(dst.add(64 * copy).cast(), line) };
    }
}

/// # Safety
/// As [`super::Kernel::copy_in`].
#[inline]
pub(super) unsafe fn copy_in(width: Width, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's obligations are the same.
    unsafe { copy(width, dst, src, len) }
}

/// # Safety
/// As [`super::Kernel::copy_out`].
#[inline]
pub(super) unsafe fn copy_out(width: Width, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's obligations are the same.
    unsafe { copy(width, dst, src, len) }
}

/// To the processor both directions are the same.
///
/// # Safety
/// Both ranges are mapped and do not overlap; either may be raced.
#[inline]
unsafe fn copy(width: Width, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's obligations; the width says what the processor has.
    unsafe {
        if len < 64 {
            copy_small(dst, src, len);
        } else if width == Width::Avx512 && len >= 512 {
            copy_avx512(dst, src, len);
        } else if matches!(width, Width::Avx2 | Width::Avx512 | Width::Avx512Copies) {
            copy_avx(dst, src, len);
        } else {
            copy_sse2(dst, src, len);
        }
    }
}

/// Words while there are eight bytes, then single bytes: no word is read or written twice, so none
/// is torn.
///
/// # Safety
/// As [`copy`].
#[inline]
unsafe fn copy_small(dst: *mut u8, src: *const u8, len: usize) {
    let mut done = 0;
    // SAFETY: every access is below `len` from the start.
    unsafe {
        while len - done >= 8 {
            copy_word(dst.add(done), src.add(done));
            done += 8;
        }
        while done < len {
            asm!("mov {t}, byte ptr [{s}]", "mov byte ptr [{d}], {t}", t = out(reg_byte) _,
                s = in(reg) src.add(done), d = in(reg) dst.add(done), options(nostack,
                preserves_flags));
            done += 1;
        }
    }
}

/// # Safety
/// 8 bytes are readable and writable.
#[inline]
unsafe fn copy_word(dst: *mut u8, src: *const u8) {
    // SAFETY: the caller's obligation.
    unsafe {
        asm!("mov {t}, [{s}]", "mov [{d}], {t}", t = out(reg) _, s = in(reg) src, d = in(reg) dst,
            options(nostack, preserves_flags));
    }
}

/// # Safety
/// As [`copy`].
#[target_feature(enable = "avx")]
unsafe fn copy_avx(mut dst: *mut u8, mut src: *const u8, len: usize) {
    // SAFETY: each loop runs only while that many bytes are left.
    unsafe {
        asm!(
            "sub {n}, 128",
            "jb 3f",
            ".p2align 4",
            "2:",
            "vmovdqu ymm0, [{s}]",
            "vmovdqu ymm1, [{s} + 32]",
            "vmovdqu ymm2, [{s} + 64]",
            "vmovdqu ymm3, [{s} + 96]",
            "vmovdqu [{d}], ymm0",
            "vmovdqu [{d} + 32], ymm1",
            "vmovdqu [{d} + 64], ymm2",
            "vmovdqu [{d} + 96], ymm3",
            "add {s}, 128",
            "add {d}, 128",
            "sub {n}, 128",
            "jae 2b",
            "3:",
            "add {n}, 96",
            "jnc 5f",
            "4:",
            "vmovdqu ymm0, [{s}]",
            "vmovdqu [{d}], ymm0",
            "add {s}, 32",
            "add {d}, 32",
            "sub {n}, 32",
            "jae 4b",
            "5:",
            "vzeroupper",
            s = inout(reg) src, d = inout(reg) dst, n = inout(reg) len => _,
            out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
            options(nostack)
        );
    }
    // SAFETY: the pointers advanced by the whole vectors copied; this is the rest.
    unsafe { copy_small(dst, src, len % 32) }
}

/// Half the instructions of [`copy_avx`], for the reason that [`prefetch_for_read`] has.
///
/// # Safety
/// As [`copy`], `len` at least 64.
#[target_feature(enable = "avx512f")]
unsafe fn copy_avx512(mut dst: *mut u8, mut src: *const u8, len: usize) {
    // SAFETY: each turn runs only while that many bytes are left.
    unsafe {
        for _ in 0..len / 512 {
            asm!(
                "vmovdqu64 zmm0, [{s}]",
                "vmovdqu64 zmm1, [{s} + 64]",
                "vmovdqu64 zmm2, [{s} + 128]",
                "vmovdqu64 zmm3, [{s} + 192]",
                "vmovdqu64 zmm4, [{s} + 256]",
                "vmovdqu64 zmm5, [{s} + 320]",
                "vmovdqu64 zmm6, [{s} + 384]",
                "vmovdqu64 zmm7, [{s} + 448]",
                "vmovdqu64 [{d}], zmm0",
                "vmovdqu64 [{d} + 64], zmm1",
                "vmovdqu64 [{d} + 128], zmm2",
                "vmovdqu64 [{d} + 192], zmm3",
                "vmovdqu64 [{d} + 256], zmm4",
                "vmovdqu64 [{d} + 320], zmm5",
                "vmovdqu64 [{d} + 384], zmm6",
                "vmovdqu64 [{d} + 448], zmm7",
                s = in(reg) src, d = in(reg) dst,
                out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _,
                out("zmm4") _, out("zmm5") _, out("zmm6") _, out("zmm7") _,
                options(nostack, preserves_flags)
            );
            (dst, src) = (dst.add(512), src.add(512));
        }
        asm!("vzeroupper", out("zmm0") _, options(nostack, preserves_flags));
    }
    // SAFETY: the pointers advanced by what was copied; this is the rest.
    unsafe { copy(Width::Avx2, dst, src, len % 512) }
}

/// # Safety
/// As [`copy`].
unsafe fn copy_sse2(mut dst: *mut u8, mut src: *const u8, len: usize) {
    // SAFETY: each loop runs only while that many bytes are left.
    unsafe {
        asm!(
            "sub {n}, 64",
            "jb 3f",
            ".p2align 4",
            "2:",
            "movdqu xmm0, [{s}]",
            "movdqu xmm1, [{s} + 16]",
            "movdqu xmm2, [{s} + 32]",
            "movdqu xmm3, [{s} + 48]",
            "movdqu [{d}], xmm0",
            "movdqu [{d} + 16], xmm1",
            "movdqu [{d} + 32], xmm2",
            "movdqu [{d} + 48], xmm3",
            "add {s}, 64",
            "add {d}, 64",
            "sub {n}, 64",
            "jae 2b",
            "3:",
            "add {n}, 48",
            "jnc 5f",
            "4:",
            "movdqu xmm0, [{s}]",
            "movdqu [{d}], xmm0",
            "add {s}, 16",
            "add {d}, 16",
            "sub {n}, 16",
            "jae 4b",
            "5:",
            s = inout(reg) src, d = inout(reg) dst, n = inout(reg) len => _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            options(nostack)
        );
    }
    // SAFETY: the pointers advanced by the whole vectors copied; this is the rest.
    unsafe { copy_small(dst, src, len % 16) }
}

/// # Safety
/// As [`super::Kernel::copy_in`] for `lines` of 64 bytes, `dst` aligned to 64.
#[inline]
pub(super) unsafe fn stream_lines(width: Width, dst: *mut u8, src: *const u8, lines: usize) {
    // SAFETY: the caller's obligations; the width says what the processor has.
    unsafe {
        match width {
            Width::Avx512 | Width::Avx512Copies => avx512::stream_lines(dst, src, lines),
            Width::Avx2 => avx2::stream_lines(dst, src, lines),
            Width::Sse2 | Width::Portable => sse2::stream_lines(dst, src, lines),
        }
    }
}

/// # Safety
/// As [`Width::stripes`].
#[inline]
pub(super) unsafe fn stripes(
    width: Width,
    source: Source,
    dst: *mut u8,
    src: *const u8,
    len: usize,
    secret: &Secret,
) -> [u64; 8] {
    // SAFETY: the caller's obligations; the width says what the processor has.
    unsafe {
        match (width, dst.is_null()) {
            (Width::Avx512, true) => avx512_checksum::stripes::<false>(dst, src, len, secret),
            (Width::Avx512, false) => avx512_checksum::stripes::<true>(dst, src, len, secret),
            (Width::Avx512Copies | Width::Avx2, true) => {
                avx2_checksum::stripes::<false>(dst, src, len, secret)
            }
            (Width::Avx512Copies | Width::Avx2, false) => {
                avx2_checksum::stripes::<true>(dst, src, len, secret)
            }
            (Width::Sse2, true) => sse2_checksum::stripes::<false>(dst, src, len, secret),
            (Width::Sse2, false) => sse2_checksum::stripes::<true>(dst, src, len, secret),
            (Width::Portable, _) => super::portable::stripes(width, source, dst, src, len, secret),
        }
    }
}

/// The copy of one width: `$count` vectors make a line. Intrinsics by name, so that the widths
/// differ in nothing else.
macro_rules! copies {
    ($module:ident, $feature:literal, $vector:ty, $count:literal, $class:ident, $load:literal,
    $stream:ident) => {
        mod $module {
            use super::*;

            pub(super) const BYTES: usize = 64 / $count;

            /// # Safety
            /// The address is readable for one vector, raced or not.
            #[inline]
            #[target_feature(enable = $feature)]
            pub(super) unsafe fn load(at: *const u8) -> $vector {
                let value: $vector;
                // SAFETY: the caller's obligation.
                unsafe {
                    asm!($load, v = lateout($class) value, p = in(reg) at,
                        options(nostack, preserves_flags, readonly));
                }
                value
            }

            /// # Safety
            /// As [`super::stream_lines`].
            #[target_feature(enable = $feature)]
            pub(super) unsafe fn stream_lines(dst: *mut u8, src: *const u8, lines: usize) {
                for line in 0..lines {
                    for part in 0..$count {
                        let at = 64 * line + BYTES * part;
                        // SAFETY: inside the caller's ranges; `dst` is aligned to 64, so to the
                        // vector.
                        unsafe { $stream(dst.add(at).cast(), load(src.add(at))) };
                    }
                }
            }
        }
    };
}

copies!(avx512, "avx512f", __m512i, 1, zmm_reg, "vmovdqu64 {v}, [{p}]", _mm512_stream_si512);
copies!(avx2, "avx2", __m256i, 2, ymm_reg, "vmovdqu {v}, [{p}]", _mm256_stream_si256);
copies!(sse2, "sse2", __m128i, 4, xmm_reg, "movdqu {v}, [{p}]", _mm_stream_si128);

/// The checksum of one width, copying on the way.
macro_rules! checksums {
    ($module:ident, $copies:ident, $feature:literal, $vector:ty, $count:literal, $loadu:ident,
    $storeu:ident, $stream:ident,
     $xor:ident, $add:ident, $mul:ident, $shr:ident, $shl:ident, $swap:ident, $splat:ident) => {
        mod $module {
            use super::$copies::{BYTES, load};
            use super::*;

            /// The accumulators in two parts, added up when they are needed: one addition a stripe
            /// in either chain of dependences instead of two in one, which is what the loop's speed
            /// hangs on.
            struct Sums {
                products: [$vector; $count],
                data: [$vector; $count],
            }

            impl Sums {
                /// Both parts in one, the other empty.
                #[inline]
                #[target_feature(enable = $feature)]
                fn join(&mut self) {
                    for part in 0..$count {
                        self.products[part] = $add(self.products[part], self.data[part]);
                        self.data[part] = $splat(0);
                    }
                }
            }

            /// One stripe, copied too when `STORE`.
            ///
            /// # Safety
            /// 64 bytes at `src` and `keys`, and at `dst` when `STORE`.
            #[inline]
            #[target_feature(enable = $feature)]
            unsafe fn step<const STORE: bool>(
                sums: &mut Sums,
                dst: *mut u8,
                src: *const u8,
                keys: *const u8,
            ) {
                for part in 0..$count {
                    // SAFETY: the caller's obligation.
                    let data = unsafe { load(src.add(BYTES * part)) };
                    // SAFETY: the caller's obligation.
                    let key = unsafe { $loadu(keys.add(BYTES * part).cast()) };
                    if STORE {
                        // SAFETY: the caller's obligation.
                        unsafe { $stream(dst.add(BYTES * part).cast(), data) };
                    }
                    let keyed = $xor(data, key);
                    let product = $mul(keyed, $shr::<32>(keyed));
                    sums.products[part] = $add(sums.products[part], product);
                    sums.data[part] = $add(sums.data[part], $swap::<0b01_00_11_10>(data));
                }
            }

            #[inline]
            #[target_feature(enable = $feature)]
            fn scramble(acc: &mut [$vector; $count], secret: &Secret) {
                let prime = $splat(PRIME32_1 as i64);
                for part in 0..$count {
                    let at = &secret.0[SCRAMBLE_KEY + BYTES * part..][..BYTES];
                    // SAFETY: the slice is one vector long.
                    let key = unsafe { $loadu(at.as_ptr().cast()) };
                    let mixed = $xor($xor(acc[part], $shr::<47>(acc[part])), key);
                    let high = $mul($shr::<32>(mixed), prime);
                    acc[part] = $add($mul(mixed, prime), $shl::<32>(high));
                }
            }

            /// # Safety
            /// As [`Width::stripes`]; `dst` is read only when `STORE`.
            #[target_feature(enable = $feature)]
            pub(super) unsafe fn stripes<const STORE: bool>(
                dst: *mut u8,
                src: *const u8,
                len: usize,
                secret: &Secret,
            ) -> [u64; 8] {
                let keys = secret.0.as_ptr();
                let products = std::array::from_fn(|part| {
                    // SAFETY: eight words are `$count` vectors.
                    unsafe { $loadu(BEGIN.0.as_ptr().cast::<u8>().add(BYTES * part).cast()) }
                });
                let mut sums = Sums { products, data: [$splat(0); $count] };
                let regular = (len - 1) / 64;
                let mut at = 0;
                for _ in 0..regular / BLOCK_STRIPES {
                    for quarter in 0..BLOCK_STRIPES / 4 {
                        // Four at a time, spelled out: the compiler does not unroll past the asm.
                        // SAFETY: below `len`; the highest key is at 120 of 192 bytes.
                        unsafe {
                            let (dst, src, keys) =
                                (dst.wrapping_add(at), src.add(at), keys.add(32 * quarter));
                            step::<STORE>(&mut sums, dst, src, keys);
                            step::<STORE>(
                                &mut sums,
                                dst.wrapping_add(64),
                                src.add(64),
                                keys.add(8),
                            );
                            step::<STORE>(
                                &mut sums,
                                dst.wrapping_add(128),
                                src.add(128),
                                keys.add(16),
                            );
                            step::<STORE>(
                                &mut sums,
                                dst.wrapping_add(192),
                                src.add(192),
                                keys.add(24),
                            );
                        }
                        at += 256;
                    }
                    sums.join();
                    scramble(&mut sums.products, secret);
                }
                for stripe in 0..regular % BLOCK_STRIPES {
                    // SAFETY: as above.
                    unsafe {
                        step::<STORE>(
                            &mut sums,
                            dst.wrapping_add(at),
                            src.add(at),
                            keys.add(8 * stripe),
                        )
                    };
                    at += 64;
                }
                let last = len - 64;
                // SAFETY: the last 64 bytes, and the key at 121 of 192.
                unsafe {
                    step::<STORE>(
                        &mut sums,
                        dst.wrapping_add(last),
                        src.add(last),
                        keys.add(LAST_KEY),
                    )
                };
                sums.join();
                let mut acc = [0; 8];
                for (part, lane) in sums.products.into_iter().enumerate() {
                    // SAFETY: eight words are `$count` vectors.
                    unsafe {
                        $storeu(acc.as_mut_ptr().cast::<u8>().add(BYTES * part).cast(), lane)
                    };
                }
                acc
            }
        }
    };
}

checksums!(
    avx2_checksum,
    avx2,
    "avx2",
    __m256i,
    2,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    _mm256_stream_si256,
    _mm256_xor_si256,
    _mm256_add_epi64,
    _mm256_mul_epu32,
    _mm256_srli_epi64,
    _mm256_slli_epi64,
    _mm256_shuffle_epi32,
    _mm256_set1_epi64x
);
checksums!(
    sse2_checksum,
    sse2,
    "sse2",
    __m128i,
    4,
    _mm_loadu_si128,
    _mm_storeu_si128,
    _mm_stream_si128,
    _mm_xor_si128,
    _mm_add_epi64,
    _mm_mul_epu32,
    _mm_srli_epi64,
    _mm_slli_epi64,
    _mm_shuffle_epi32,
    _mm_set1_epi64x
);

/// The checksum with 64-byte vectors: a stripe is one vector.
mod avx512_checksum {
    use super::*;

    /// One stripe, `AT` bytes behind `src`, copied as far behind `dst` when `STORE`, its key `KEY`
    /// bytes behind `keys`: the sums of products and of data. The key is taken from memory where it
    /// is needed: sixteen that are loaded before the first store hold that up.
    ///
    /// # Safety
    /// 64 bytes there at `src` and `keys`, and at `dst`, aligned to 64, when `STORE`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn step<const STORE: bool, const AT: usize, const KEY: usize>(
        sums: &mut [__m512i; 2],
        dst: *mut u8,
        src: *const u8,
        keys: *const u8,
    ) {
        let (data, keyed): (__m512i, __m512i);
        // SAFETY: the caller's obligation.
        unsafe {
            asm!("vmovdqu64 {v}, [{p} + {at}]", v = lateout(zmm_reg) data, p = in(reg) src,
            at = const AT,
                options(nostack, preserves_flags, readonly));
            if STORE {
                asm!("vmovntdq [{p} + {at}], {v}", v = in(zmm_reg) data, p = in(reg) dst,
                at = const AT,
                    options(nostack, preserves_flags));
            }
            asm!("vpxorq {k}, {v}, [{p} + {key}]", k = lateout(zmm_reg) keyed,
            v = in(zmm_reg) data, p = in(reg) keys,
                key = const KEY, options(nostack, preserves_flags, readonly));
        }
        let product = _mm512_mul_epu32(keyed, _mm512_srli_epi64::<32>(keyed));
        sums[0] = _mm512_add_epi64(sums[0], product);
        sums[1] = _mm512_add_epi64(sums[1], _mm512_shuffle_epi32::<0b01_00_11_10>(data));
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn key(secret: &Secret, at: usize) -> __m512i {
        let key = &secret.0[at..][..64];
        // SAFETY: the slice is one vector long.
        unsafe { _mm512_loadu_si512(key.as_ptr().cast()) }
    }

    /// # Safety
    /// As [`Width::stripes`]; `dst` is written only when `STORE`.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn stripes<const STORE: bool>(
        dst: *mut u8,
        src: *const u8,
        len: usize,
        secret: &Secret,
    ) -> [u64; 8] {
        let prime = _mm512_set1_epi64(PRIME32_1 as i64);
        let keys = secret.0.as_ptr();
        // SAFETY: eight words are one vector.
        let mut sums =
            [unsafe { _mm512_load_si512(BEGIN.0.as_ptr().cast()) }, _mm512_setzero_si512()];
        let regular = (len - 1) / 64;
        let mut at = 0;
        for _ in 0..regular / BLOCK_STRIPES {
            let (to, from) = (dst.wrapping_add(at), src.wrapping_add(at));
            // Spelled out: places are the instructions' own.
            macro_rules! steps {
                ($($n:literal)*) => {
                    $(
                        // SAFETY: below `len`; the highest key is at 120 of 192 bytes.
                        unsafe { step::<STORE, { 64 * $n }, { 8 * $n }>(&mut sums, to, from,
                        keys) };
                    )*
                };
            }
            steps!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
            at += 64 * BLOCK_STRIPES;
            let sum = _mm512_add_epi64(sums[0], sums[1]);
            let mixed = _mm512_xor_si512(
                _mm512_xor_si512(sum, _mm512_srli_epi64::<47>(sum)),
                key(secret, SCRAMBLE_KEY),
            );
            let high = _mm512_mul_epu32(_mm512_srli_epi64::<32>(mixed), prime);
            sums = [
                _mm512_add_epi64(_mm512_mul_epu32(mixed, prime), _mm512_slli_epi64::<32>(high)),
                _mm512_setzero_si512(),
            ];
        }
        for stripe in 0..regular % BLOCK_STRIPES {
            // SAFETY: below `len`, and the keys as above.
            unsafe {
                step::<STORE, 0, 0>(
                    &mut sums,
                    dst.wrapping_add(at),
                    src.add(at),
                    keys.add(8 * stripe),
                )
            };
            at += 64;
        }
        let last = len - 64;
        // SAFETY: the last 64 bytes, and the key at 121 of 192.
        unsafe {
            step::<STORE, 0, LAST_KEY>(&mut sums, dst.wrapping_add(last), src.add(last), keys)
        };
        let sum = _mm512_add_epi64(sums[0], sums[1]);
        let mut acc = [0; 8];
        // SAFETY: eight words are one vector.
        unsafe { _mm512_storeu_si512(acc.as_mut_ptr().cast(), sum) };
        acc
    }
}
