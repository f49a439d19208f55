//! The sizes that the allocator hands out: 47 classes of slots, and runs of whole units above.
//!
//! Steps of 16 bytes up to 128, then four to each doubling, so that at most a fifth of a slot is
//! unused. A slab of slots up to 8 KiB is one unit; of larger ones it is 16 units, at a multiple of
//! 16 units in the heap. Changing this table changes the format.

use super::UNIT;

/// How many classes there are.
pub const COUNT: u8 = SIZES.len() as u8;
/// The largest slot.
pub const LARGEST: u64 = SIZES[SIZES.len() - 1] as u64;
/// What an entry says whose place is a run of units and no slot.
pub const RUN: u16 = 0xffff;

const SIZES: [u32; 47] = sizes();

const fn sizes() -> [u32; 47] {
    let mut sizes = [0; 47];
    let mut index = 0;
    let mut size = 32;
    while size < 128 {
        sizes[index] = size;
        size += 16;
        index += 1;
    }
    while index < 47 {
        sizes[index] = size;
        let mut step = 32;
        while step * 8 <= size {
            step *= 2;
        }
        size += step;
        index += 1;
    }
    sizes
}

/// Bytes of a slot of a class.
#[inline]
pub fn size(class: u8) -> u64 {
    u64::from(SIZES[usize::from(class)])
}

/// The smallest class whose slots hold `len` bytes; nothing when a run is needed.
#[inline]
pub fn of(len: u64) -> Option<u8> {
    if len <= 112 {
        return Some((len.max(17).div_ceil(16) - 2) as u8);
    }
    if len > LARGEST {
        return None;
    }
    Some(SIZES.partition_point(|size| u64::from(*size) < len) as u8)
}

/// Units of a slab of a class.
#[inline]
pub fn slab_units(class: u8) -> u64 {
    if size(class) <= 8192 { 1 } else { 16 }
}

/// Slots of a slab of a class.
#[inline]
pub fn slots(class: u8) -> u64 {
    u64::from(SLOTS[usize::from(class)])
}

/// Bytes before the first slot.
#[inline]
pub fn header(class: u8) -> u64 {
    slots(class).div_ceil(512) * 64
}

const SLOTS: [u32; 47] = {
    let mut all = [0; 47];
    let mut index = 0;
    while index < 47 {
        let size = SIZES[index];
        let bytes = if size <= 8192 { UNIT as u32 } else { 16 * UNIT as u32 };
        let mut slots = bytes / size;
        while slots.div_ceil(512) * 64 + slots * size > bytes {
            slots -= 1;
        }
        all[index] = slots;
        index += 1;
    }
    all
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_the_smallest_that_holds_what_was_asked_for_and_wastes_at_most_a_fifth() {
        for len in 1..=LARGEST {
            let class = of(len).expect("a class");
            assert!(size(class) >= len);
            assert!(class == 0 || size(class - 1) < len, "{len} in {}", size(class));
            assert!(len < 128 || size(class) * 4 <= len * 5 + 4, "{len} in {}", size(class));
        }
        assert_eq!(of(LARGEST + 1), None);
        assert_eq!(LARGEST, 131_072);
    }

    #[test]
    fn the_slots_of_a_slab_lie_in_it() {
        for class in 0..COUNT {
            assert!(header(class) + slots(class) * size(class) <= slab_units(class) * UNIT);
            assert!(slots(class) >= 7 && header(class) * 8 >= slots(class));
            assert!(size(class).is_multiple_of(16));
        }
    }
}
