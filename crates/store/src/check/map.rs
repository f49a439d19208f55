//! Walks the block map of one file, page by page, and tells a [`Visitor`] what each word says.
//!
//! **Invariant**: a page is read only after [`Visitor::pointer`] said so, which it does once for
//! each frame: that bounds the walk of a map whose pages point to each other.

use std::io;

use super::at::{SUM, WORD};
use super::seal::{Held, Level, Seal, u64_at};
use super::source::{Source, Spot};
use super::superblock::{FRAME, Layout};
use super::table::FileFacts;

const PAGE_WORDS: u64 = 512;
/// Blocks of a leaf, and the bytes that it has for each: an entry, and a checksum.
pub(super) const LEAF_BLOCKS: u64 = 256;
const LEAF_SLOT: u64 = 16;

/// Words that are not whole at their place: how many of one page, and the first of them.
pub(super) struct BadWords {
    pub(super) count: u64,
    pub(super) level: Level,
    pub(super) spot: Spot,
    pub(super) word: u64,
}

/// Told what a map says.
pub(super) trait Visitor {
    /// A pointer to the map page in `frame`. Returns whether to read that page.
    fn pointer(&mut self, level: Level, frame: u64, spot: Spot) -> bool;

    /// The entry of a block that is in the tier, and the checksum beside it.
    fn block(&mut self, block: u64, held: Held, frame: u64, spot: Spot, sum: u64);

    /// Words that do not unseal.
    fn damaged(&mut self, bad: BadWords);

    /// A page that cannot be read.
    fn unreadable(&mut self, level: Level, spot: Spot, error: io::Error);
}

/// The bytes of a tier, by member.
pub(super) struct Tier<'s> {
    pub(super) sources: Vec<&'s dyn Source>,
    pub(super) layout: Layout,
}

impl<'s> Tier<'s> {
    /// The member a spot is on.
    pub(super) fn source(&self, member: u32) -> io::Result<&'s dyn Source> {
        self.sources.get(member as usize).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Where a frame that the tier has lies.
    pub(super) fn spot(&self, frame: u64) -> Spot {
        let (member, offset) = self.layout.locate(frame);
        Spot { member: member as u32, offset }
    }

    fn word(&self, spot: Spot) -> Option<u64> {
        let mut space = Vec::new();
        let bytes = self.source(spot.member).ok()?.view(spot.offset, 8, &mut space).ok()?;
        Some(u64_at(bytes, WORD))
    }

    /// Where the root words of a file are.
    fn roots(&self, file: &FileFacts) -> [(Level, u64, Spot); 3] {
        let slot = self.layout.slot_at(file.slot);
        let at = |n: u64| Spot { offset: slot.offset + 64 + n * 8, ..slot };
        let [leaf, middle, top] = file.roots;
        [(Level::Leaf(0), leaf, at(0)), (Level::Middle(0), middle, at(1)), (Level::Top, top, at(2))]
    }

    /// Visits the whole map of a file.
    pub(super) fn walk(&self, file: &FileFacts, visitor: &mut dyn Visitor) {
        let seal = Seal::new(self.layout.seed, file.id);
        for (level, word, spot) in self.roots(file) {
            self.follow(seal, level, word, spot, visitor);
        }
    }

    fn follow(&self, seal: Seal, level: Level, word: u64, spot: Spot, visitor: &mut dyn Visitor) {
        match seal.pointer(level, word) {
            None => visitor.damaged(BadWords { count: 1, level, spot, word }),
            Some(Some(frame)) if visitor.pointer(level, frame, spot) => {
                self.page(seal, level, frame, visitor)
            }
            Some(_) => {}
        }
    }

    fn page(&self, seal: Seal, level: Level, frame: u64, visitor: &mut dyn Visitor) {
        let spot = self.spot(frame);
        let mut space = Vec::new();
        let source = self.source(spot.member);
        let page =
            match source.and_then(|source| source.view(spot.offset, FRAME as usize, &mut space)) {
                Ok(page) => page,
                Err(e) => return visitor.unreadable(level, spot, e),
            };
        let mut bad: Option<BadWords> = None;
        let slot = if matches!(level, Level::Leaf(_)) { LEAF_SLOT } else { 8 };
        for (n, bytes) in (0..).zip(page.chunks_exact(slot as usize)) {
            let (word, spot) =
                (u64_at(bytes, WORD), Spot { offset: spot.offset + n * slot, ..spot });
            let (level, fine) = match level {
                Level::Leaf(leaf) => {
                    let block = leaf * LEAF_BLOCKS + n;
                    match seal.block(block, word) {
                        Some(None) => continue,
                        Some(Some((held, frame))) => {
                            visitor.block(block, held, frame, spot, u64_at(bytes, SUM));
                            continue;
                        }
                        None => (Level::Block(block), false),
                    }
                }
                Level::Middle(middle) => {
                    let level = Level::Leaf(middle * PAGE_WORDS + n);
                    (level, seal.pointer(level, word).is_some())
                }
                _ => (Level::Middle(n), seal.pointer(Level::Middle(n), word).is_some()),
            };
            if fine {
                self.follow(seal, level, word, spot, visitor);
            } else if let Some(bad) = &mut bad {
                bad.count += 1;
            } else {
                bad = Some(BadWords { count: 1, level, spot, word });
            }
        }
        if let Some(bad) = bad {
            visitor.damaged(bad);
        }
    }

    /// Where the map entry of a block is, and the word there; `None` when no whole pointers lead to
    /// it.
    pub(super) fn entry(&self, file: &FileFacts, block: u64) -> Option<(Spot, u64)> {
        let seal = Seal::new(self.layout.seed, file.id);
        let into = |level, word, within: u64| {
            let frame = seal.pointer(level, word)??;
            let spot = (frame < self.layout.frames()).then(|| self.spot(frame))?;
            let spot = Spot { offset: spot.offset + within, ..spot };
            Some((spot, self.word(spot)?))
        };
        let (leaf, middle) = (block / LEAF_BLOCKS, block / LEAF_BLOCKS / PAGE_WORDS);
        if middle >= PAGE_WORDS {
            return None;
        }
        let [first_leaf, first_middle, top] = file.roots;
        let leaf_word = if leaf == 0 {
            first_leaf
        } else {
            let middle_word =
                if middle == 0 { first_middle } else { into(Level::Top, top, middle * 8)?.1 };
            into(Level::Middle(middle), middle_word, leaf % PAGE_WORDS * 8)?.1
        };
        into(Level::Leaf(leaf), leaf_word, block % LEAF_BLOCKS * LEAF_SLOT)
    }
}
