//! Which frames are in use, by what, counted while the maps are read.
//!
//! Memory is taken in chunks as frames are claimed, so a sparse tier of many terabytes costs
//! little, and a hostile length costs at most eight bytes for each 128 MiB the member really has.
//!
//! **Invariant**: a claim that is refused leaves everything as it was.

/// What a piece of the tier is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// A map page, one frame.
    Page,
    /// A block of `1 << class` frames.
    Block(u8),
    /// Four slots of the file table, one frame.
    Slots,
}

impl Use {
    pub(super) fn frames(self) -> u64 {
        match self {
            Use::Page | Use::Slots => 1,
            Use::Block(class) => 1 << class,
        }
    }

    /// What is noted for a unit; 0 is "nothing yet".
    fn code(self) -> u8 {
        match self {
            Use::Page => 1,
            Use::Block(class) => 2 + class,
            Use::Slots => u8::MAX,
        }
    }

    fn from_code(code: u8) -> Self {
        match code {
            1 => Use::Page,
            u8::MAX => Use::Slots,
            code => Use::Block(code.saturating_sub(2)),
        }
    }
}

impl std::fmt::Display for Use {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Use::Page => f.write_str("map pages"),
            Use::Slots => f.write_str("file slots"),
            Use::Block(class) => write!(f, "blocks of {} KiB", 4 << class),
        }
    }
}

/// Why a piece cannot be what a word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misuse {
    /// The tier ends before it.
    Beyond,
    /// It does not begin on a multiple of its own size.
    Unaligned,
    /// Its unit is used for something else.
    Unit { unit: u64, holds: Use },
    /// Another word refers to it too.
    Twice,
}

/// Frames in one chunk: 128 MiB of tier.
const CHUNK_FRAMES: u64 = 1 << 15;
/// The smallest unit there is has eight frames.
const UNITS_MAX: usize = CHUNK_FRAMES as usize / 8;

struct Chunk {
    used: [u64; CHUNK_FRAMES as usize / 64],
    units: [u8; UNITS_MAX],
}

/// The frames of a tier.
pub(super) struct Frames {
    unit_frames: u64,
    total: u64,
    used: u64,
    chunks: Vec<Option<Box<Chunk>>>,
}

impl Frames {
    /// None of `total` frames is in use; a unit has `unit_frames`, a power of two of at least
    /// eight.
    pub(super) fn new(unit_frames: u64, total: u64) -> Self {
        let count = total.div_ceil(CHUNK_FRAMES) as usize;
        Self {
            unit_frames,
            total,
            used: 0,
            chunks: std::iter::repeat_with(|| None).take(count).collect(),
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Whether a piece for `purpose` can begin at `frame` at all.
    pub(super) fn fits(&self, frame: u64, purpose: Use) -> Result<(), Misuse> {
        let count = purpose.frames();
        if frame.checked_add(count).is_none_or(|end| end > self.total) {
            Err(Misuse::Beyond)
        } else if !frame.is_multiple_of(count) {
            Err(Misuse::Unaligned)
        } else {
            Ok(())
        }
    }

    /// Whether any frame of a piece that [`Frames::fits`] is in use.
    pub(super) fn is_used(&self, frame: u64, purpose: Use) -> bool {
        let (chunk, word, mask) = Self::position(frame, purpose);
        let chunk = self.chunks.get(chunk).and_then(Option::as_ref);
        chunk.is_some_and(|c| c.used.get(word).is_some_and(|w| w & mask != 0))
    }

    /// Marks a piece as used.
    pub(super) fn claim(&mut self, frame: u64, purpose: Use) -> Result<(), Misuse> {
        self.fits(frame, purpose)?;
        let unit = frame / self.unit_frames;
        let holds = self.unit_code(unit);
        if *holds != 0 && *holds != purpose.code() {
            return Err(Misuse::Unit { unit, holds: Use::from_code(*holds) });
        }
        *holds = purpose.code();
        let (chunk, word, mask) = Self::position(frame, purpose);
        let word = &mut self.chunk(chunk).used[word];
        if *word & mask != 0 {
            return Err(Misuse::Twice);
        }
        *word |= mask;
        self.used += purpose.frames();
        Ok(())
    }

    /// A piece is aligned to its size of at most eight frames, so it lies within one word.
    fn position(frame: u64, purpose: Use) -> (usize, usize, u64) {
        let within = frame % CHUNK_FRAMES;
        let mask = ((1 << purpose.frames()) - 1) << (within % 64);
        ((frame / CHUNK_FRAMES) as usize, (within / 64) as usize, mask)
    }

    /// Units are noted under their first frame.
    fn unit_code(&mut self, unit: u64) -> &mut u8 {
        let first = unit * self.unit_frames;
        let chunk = self.chunk((first / CHUNK_FRAMES) as usize);
        &mut chunk.units[(first % CHUNK_FRAMES / 8) as usize]
    }

    fn chunk(&mut self, n: usize) -> &mut Chunk {
        let chunk = self.chunks.get_mut(n).expect("BUG: the frame is inside the tier");
        chunk.get_or_insert_with(|| {
            Box::new(Chunk { used: [0; CHUNK_FRAMES as usize / 64], units: [0; UNITS_MAX] })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_misuse_has_its_name_and_changes_nothing() {
        let mut frames = Frames::new(8, 40_000 * 8);
        assert_eq!(frames.claim(16, Use::Block(1)), Ok(()));
        assert_eq!(frames.claim(16, Use::Block(1)), Err(Misuse::Twice));
        assert_eq!(frames.claim(17, Use::Block(1)), Err(Misuse::Unaligned));
        assert_eq!(
            frames.claim(18, Use::Page),
            Err(Misuse::Unit { unit: 2, holds: Use::Block(1) })
        );
        assert_eq!(frames.claim(320_000, Use::Page), Err(Misuse::Beyond));
        assert_eq!(frames.claim(u64::MAX, Use::Page), Err(Misuse::Beyond));
        assert_eq!(frames.claim(319_992, Use::Block(3)), Ok(()));
        assert_eq!(frames.used(), 10);
        assert!(frames.is_used(17, Use::Page) && !frames.is_used(18, Use::Page));
    }
}
