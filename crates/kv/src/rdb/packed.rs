//! Values that Redis keeps packed in one string: listpacks, ziplists, sets of whole numbers; and
//! the compression of strings, LZF. Nothing: the bytes contradict themselves.

use super::Bytes;
use super::budget::Budget;

/// Takes bytes from the front.
fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

/// The least significant byte first.
fn unsigned(rest: &mut &[u8], bytes: usize) -> Option<u64> {
    Some(take(rest, bytes)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn signed(rest: &mut &[u8], bytes: usize) -> Option<i64> {
    let shift = 64 - 8 * bytes as u32;
    Some((unsigned(rest, bytes)? << shift).cast_signed() >> shift)
}

fn text(number: i64) -> Bytes {
    number.to_string().into_bytes()
}

/// The elements of a listpack.
pub(super) fn listpack(bytes: &[u8], budget: &mut Budget) -> Option<Vec<Bytes>> {
    let mut rest = bytes;
    let (len, count) = (unsigned(&mut rest, 4)?, unsigned(&mut rest, 2)?);
    if len != bytes.len() as u64 {
        return None;
    }
    let mut all = Vec::new();
    loop {
        let before = rest.len();
        let first = *take(&mut rest, 1)?.first()?;
        let long = usize::from(first);
        let element = match first {
            0xff => break,
            0..=0x7f => text(first.into()),
            0x80..=0xbf => take(&mut rest, long & 63)?.to_vec(),
            0xc0..=0xdf => {
                let number = (i64::from(first & 31) << 8) | signed(&mut rest, 1)? & 0xff;
                text(if number >= 1 << 12 { number - (1 << 13) } else { number })
            }
            0xe0..=0xef => {
                let len = (long & 15) << 8 | unsigned(&mut rest, 1)? as usize;
                take(&mut rest, len)?.to_vec()
            }
            0xf0 => {
                let len = unsigned(&mut rest, 4)? as usize;
                take(&mut rest, len)?.to_vec()
            }
            0xf1..=0xf3 => text(signed(&mut rest, long - 0xf1 + 2)?),
            0xf4 => text(signed(&mut rest, 8)?),
            _ => return None,
        };
        budget.element(element.len())?;
        all.push(element);
        // Behind each element is its own length, for who reads backwards.
        let back = match before - rest.len() {
            0..=127 => 1,
            128..=16_382 => 2,
            16_383..=2_097_150 => 3,
            2_097_151..=268_435_454 => 4,
            _ => 5,
        };
        take(&mut rest, back)?;
    }
    // 65535: nobody counted.
    (rest.is_empty() && (count == 0xffff || count == all.len() as u64)).then_some(all)
}

/// The elements of a ziplist.
pub(super) fn ziplist(bytes: &[u8], budget: &mut Budget) -> Option<Vec<Bytes>> {
    let mut rest = bytes;
    let (len, _, count) =
        (unsigned(&mut rest, 4)?, unsigned(&mut rest, 4)?, unsigned(&mut rest, 2)?);
    if len != bytes.len() as u64 {
        return None;
    }
    let mut all = Vec::new();
    loop {
        // The length of the element before.
        match take(&mut rest, 1)?.first()? {
            0xff => break,
            0xfe => {
                take(&mut rest, 4)?;
            }
            _ => {}
        }
        let first = *take(&mut rest, 1)?.first()?;
        let long = usize::from(first);
        let element = match first {
            0..=0x3f => take(&mut rest, long)?.to_vec(),
            0x40..=0x7f => {
                let len = (long & 63) << 8 | unsigned(&mut rest, 1)? as usize;
                take(&mut rest, len)?.to_vec()
            }
            0x80 => {
                let len = super::number(take(&mut rest, 4)?) as usize;
                take(&mut rest, len)?.to_vec()
            }
            0xc0 => text(signed(&mut rest, 2)?),
            0xd0 => text(signed(&mut rest, 4)?),
            0xe0 => text(signed(&mut rest, 8)?),
            0xf0 => text(signed(&mut rest, 3)?),
            0xfe => text(signed(&mut rest, 1)?),
            0xf1..=0xfd => text(i64::from(first & 15) - 1),
            _ => return None,
        };
        budget.element(element.len())?;
        all.push(element);
    }
    (rest.is_empty() && (count == 0xffff || count == all.len() as u64)).then_some(all)
}

/// The members of a set of whole numbers.
pub(super) fn intset(bytes: &[u8], budget: &mut Budget) -> Option<Vec<Bytes>> {
    let mut rest = bytes;
    let (size, count) = (unsigned(&mut rest, 4)? as usize, unsigned(&mut rest, 4)?);
    if !matches!(size, 2 | 4 | 8) || rest.len() as u64 != count.checked_mul(size as u64)? {
        return None;
    }
    (0..count)
        .map(|_| {
            let member = text(signed(&mut rest, size)?);
            budget.element(member.len())?;
            Some(member)
        })
        .collect()
}

/// Unpacks `len` bytes of LZF.
pub(super) fn lzf(bytes: &[u8], len: usize) -> Option<Bytes> {
    let (mut rest, mut out) = (bytes, Vec::new());
    while !rest.is_empty() {
        let control = usize::from(*take(&mut rest, 1)?.first()?);
        if control < 32 {
            out.extend_from_slice(take(&mut rest, control + 1)?);
        } else {
            let mut count = control >> 5;
            if count == 7 {
                count += usize::from(*take(&mut rest, 1)?.first()?);
            }
            let back = (control & 31) << 8 | usize::from(*take(&mut rest, 1)?.first()?);
            let from = out.len().checked_sub(back + 1)?;
            // The copy may overlap with what it makes.
            for at in from..from + count + 2 {
                out.push(out[at]);
            }
        }
        if out.len() > len {
            return None;
        }
    }
    (out.len() == len).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_are_refused_or_read() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..20_000 {
            let mut budget = Budget::new(crate::rdb::Limits { value: 1 << 20, file: 1 << 20 });
            let mut bytes: Vec<u8> = (0..random.usize(..40)).map(|_| random.u8(..)).collect();
            if random.bool() && bytes.len() >= 4 {
                let len = bytes.len() as u32;
                bytes[..4].copy_from_slice(&len.to_le_bytes());
            }
            listpack(&bytes, &mut budget);
            ziplist(&bytes, &mut budget);
            intset(&bytes, &mut budget);
            lzf(&bytes, random.usize(..100));
        }
    }

    #[test]
    fn a_compressed_string_may_repeat_itself() {
        assert_eq!(lzf(&[0, b'a', 0xe0, 3, 0], 13).as_deref(), Some(&b"aaaaaaaaaaaaa"[..]));
        assert_eq!(lzf(&[0, b'a', 0xe0, 3, 1], 13), None);
        assert_eq!(lzf(&[2, b'a'], 3), None);
    }
}
