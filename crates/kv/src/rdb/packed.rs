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
        let back = back_len(before - rest.len());
        take(&mut rest, back)?;
    }
    // 65535: nobody counted.
    (rest.is_empty() && (count == 0xffff || count == all.len() as u64)).then_some(all)
}

/// Bytes of the length that is behind an element of so many bytes.
fn back_len(len: usize) -> usize {
    match len {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    }
}

/// Bytes of a number in a listpack, without the length behind it.
fn number_len(number: i64) -> usize {
    match number {
        0..=127 => 1,
        -4096..=4095 => 2,
        -32_768..=32_767 => 3,
        -8_388_608..=8_388_607 => 4,
        -2_147_483_648..=2_147_483_647 => 5,
        _ => 9,
    }
}

/// Bytes that a number takes in a listpack.
pub(crate) fn packed_number(number: i64) -> u64 {
    let len = number_len(number);
    (len + back_len(len)) as u64
}

/// Bytes that a string takes in a listpack, in which it may be a number.
pub(crate) fn packed_string(bytes: &[u8]) -> u64 {
    if let Some(number) = crate::number::integer(bytes) {
        return packed_number(number);
    }
    let len = bytes.len() + string_head(bytes.len());
    (len + back_len(len)) as u64
}

fn string_head(len: usize) -> usize {
    match len {
        0..=63 => 1,
        64..=4095 => 2,
        _ => 5,
    }
}

/// A listpack that is written.
pub(super) struct Pack {
    bytes: Bytes,
    count: usize,
}

impl Pack {
    pub(super) fn new() -> Pack {
        Pack { bytes: vec![0; 6], count: 0 }
    }

    fn close(&mut self, begin: usize) {
        let len = self.bytes.len() - begin;
        let parts = back_len(len);
        // The most significant seven bits first; all but the first have bit 7.
        for part in 0..parts {
            let bits = (len >> (7 * (parts - 1 - part)) & 127) as u8;
            self.bytes.push(if part == 0 { bits } else { bits | 128 });
        }
        self.count += 1;
    }

    pub(super) fn number(&mut self, number: i64) {
        let (begin, bytes) = (self.bytes.len(), number.to_le_bytes());
        match number_len(number) {
            1 => self.bytes.push(bytes[0]),
            2 => self.bytes.extend([0xc0 | (number >> 8 & 0x1f) as u8, bytes[0]]),
            3 => self.bytes.push(0xf1),
            4 => self.bytes.push(0xf2),
            5 => self.bytes.push(0xf3),
            _ => self.bytes.push(0xf4),
        }
        let len = number_len(number);
        if len > 2 {
            self.bytes.extend_from_slice(&bytes[..len - 1]);
        }
        self.close(begin);
    }

    pub(super) fn string(&mut self, bytes: &[u8]) {
        if let Some(number) = crate::number::integer(bytes) {
            return self.number(number);
        }
        let (begin, len) = (self.bytes.len(), bytes.len());
        match string_head(len) {
            1 => self.bytes.push(0x80 | len as u8),
            2 => self.bytes.extend([0xe0 | (len >> 8) as u8, len as u8]),
            _ => {
                self.bytes.push(0xf0);
                self.bytes.extend((len as u32).to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(bytes);
        self.close(begin);
    }

    pub(super) fn end(mut self) -> Bytes {
        self.bytes.push(0xff);
        let len = (self.bytes.len() as u32).to_le_bytes();
        let count = u16::try_from(self.count).unwrap_or(u16::MAX).to_le_bytes();
        self.bytes[..4].copy_from_slice(&len);
        self.bytes[4..6].copy_from_slice(&count);
        self.bytes
    }
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
    fn a_listpack_that_is_written_is_read_again_and_takes_the_bytes_that_were_said() {
        let limits = crate::rdb::Limits { value: 1 << 30, file: 1 << 30 };
        let (mut pack, mut said, mut expected) = (Pack::new(), 7, Vec::new());
        for number in
            [0, 1, 127, 128, -1, 4095, -4096, 4096, 40_000, -9_000_000, 1 << 31, i64::MIN, i64::MAX]
        {
            pack.number(number);
            said += packed_number(number);
            expected.push(text(number));
        }
        for len in [0, 1, 63, 64, 126, 127, 4095, 4096, 16_384, 70_000] {
            let bytes = vec![b'x'; len];
            pack.string(&bytes);
            said += packed_string(&bytes);
            expected.push(bytes);
        }
        pack.string(b"-12");
        said += packed_string(b"-12");
        expected.push(b"-12".to_vec());
        let bytes = pack.end();
        assert_eq!(bytes.len() as u64, said);
        assert_eq!(listpack(&bytes, &mut Budget::new(limits)), Some(expected));
    }

    #[test]
    fn a_compressed_string_may_repeat_itself() {
        assert_eq!(lzf(&[0, b'a', 0xe0, 3, 0], 13).as_deref(), Some(&b"aaaaaaaaaaaaa"[..]));
        assert_eq!(lzf(&[0, b'a', 0xe0, 3, 1], 13), None);
        assert_eq!(lzf(&[2, b'a'], 3), None);
    }
}
