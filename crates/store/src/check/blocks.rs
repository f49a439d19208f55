//! What is checked at every word of a file's map, and in the block behind it (invariants 7 to 13).

use std::collections::HashSet;
use std::io;

use super::frames::{Frames, Misuse, Use};
use super::home::HomeFileView;
use super::map::{BadWords, LEAF_BLOCKS, Visitor};
use super::report::{Place, Severity};
use super::seal::{Held, Level, Seal, all_zero};
use super::source::Spot;
use super::superblock::FRAME;
use super::table::FileFacts;
use super::verify::{Checker, Claim, OtherSum, Text};
use crate::medium::hash_bytes;

/// The first block of several that one finding is about.
#[derive(Clone, Copy)]
pub(super) struct First {
    pub(super) block: u64,
    pub(super) spot: Spot,
    /// Byte of the file.
    pub(super) byte: u64,
}

/// What was counted in one file.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) cached: u64,
    pub(super) dirty: u64,
    /// `Dirty` blocks whose newest version cannot be had.
    pub(super) dirty_lost: u64,
    /// Part of the map cannot be read.
    pub(super) unknown: bool,
    /// Blocks at or past the end of the file.
    pub(super) past_end: (u64, Option<First>),
    /// `Cached` blocks that differ from home.
    pub(super) differ: (u64, Option<First>),
}

fn count(what: &mut (u64, Option<First>), first: First) {
    what.0 += 1;
    what.1.get_or_insert(first);
}

/// Reads one file's map.
pub(super) struct Reader<'c, 's> {
    pub(super) index: usize,
    pub(super) file: &'c FileFacts,
    pub(super) home: Option<&'c dyn HomeFileView>,
    pub(super) checker: &'c mut Checker<'s>,
    pub(super) counts: Counts,
}

impl Reader<'_, '_> {
    fn place(&self, structure: &str, spot: Spot, block: Option<u64>) -> Place {
        Place {
            member: Some(spot.member),
            offset: Some(spot.offset),
            structure: structure.into(),
            file: Some(self.file.name()),
            block,
        }
    }

    /// Counts frames as used (invariants 8 to 10). Returns whether they may be looked into.
    fn claim(&mut self, frame: u64, purpose: Use, spot: Spot, block: Option<u64>) -> bool {
        let misuse = match self.checker.frames.claim(frame, purpose) {
            Ok(()) => return true,
            Err(misuse) => misuse,
        };
        let total = self.checker.frames.total();
        let (invariant, expected, found) = match misuse {
            Misuse::Twice => {
                self.checker.note_claim(Claim {
                    file: self.index,
                    block,
                    frame,
                    purpose,
                    spot,
                    record: false,
                });
                return false;
            }
            Misuse::Beyond => (8, format!("a frame below {total}"), format!("frame {frame}")),
            Misuse::Unaligned => {
                (8, format!("a multiple of {}", purpose.frames()), format!("frame {frame}"))
            }
            Misuse::Unit { unit, holds } => {
                (10, format!("unit {unit} holds {purpose} only"), format!("it holds {holds} too"))
            }
        };
        let structure = if block.is_some() { "map entry" } else { "pointer to a map page" };
        let text = Text {
            expected,
            found,
            meaning: match block {
                Some(_) => "the newest version of the block is not where the map says".into(),
                None => "the blocks of this part of the file cannot be found".into(),
            },
            remedy: "do not attach; restore the member from a copy of the medium, or the file from \
                     a backup",
        };
        self.checker.add(
            Severity::Inconsistent,
            invariant,
            self.place(structure, spot, block),
            text,
        );
        false
    }

    /// Invariants 12, 13 and 24: the bytes of a block that begins within the file.
    fn contents(&mut self, first: First, held: Held, frame: u64, sum: u64) {
        let (bytes, size) = (self.file.block_bytes(), self.file.size());
        let inside = bytes.min(size - first.byte) as usize;
        let tail = self.checker.options.after_recovery && (inside as u64) < bytes;
        let copy = held == Held::Cached && self.checker.options.compare_blocks;
        let home = self.home.filter(|_| copy && self.file.line.is_some());
        let only_copy = held == Held::Dirty && self.checker.options.read_dirty;
        if !tail && !only_copy && !copy {
            return;
        }
        let [mut space, mut home_space] = std::mem::take(&mut self.checker.space);
        let tier = self.checker.tier;
        let at = tier.spot(frame);
        match tier.source(at.member).and_then(|s| s.block(at.offset, bytes as usize, &mut space)) {
            Ok(block) => {
                let (data, rest) = block.split_at(inside);
                let has_sum = self.has_sum(first, held, at, block, sum);
                if tail && !all_zero(rest) {
                    self.tail_not_zero(first, inside);
                }
                if let Some(home) = home.filter(|_| has_sum) {
                    self.compare(first, data, home, &mut home_space);
                }
            }
            Err(e) => {
                self.counts.dirty_lost += u64::from(held == Held::Dirty);
                self.block_unreadable(first, at, &e);
            }
        }
        self.checker.space = [space, home_space];
    }

    /// Invariant 24. `false`: the block has another checksum.
    fn has_sum(&mut self, first: First, held: Held, at: Spot, block: &[u8], sum: u64) -> bool {
        if self.file.redo {
            return true;
        }
        let layout = &self.checker.tier.layout;
        let found =
            Seal::new(layout.seed, self.file.id).sum(first.block, hash_bytes(block, layout.seed));
        // A file whose last block recovery was changing has none for that until it has run again.
        let unstated = sum == 0 && !self.checker.options.after_recovery;
        if found == sum || unstated {
            return true;
        }
        let other = OtherSum { file: self.index, first, held, at, found, sum };
        self.checker.note_other_sum(other);
        false
    }

    fn compare(&mut self, first: First, data: &[u8], home: &dyn HomeFileView, space: &mut Vec<u8>) {
        space.resize(data.len().max(space.len()), 0);
        let into = space.get_mut(..data.len()).expect("BUG: it has just been made long enough");
        match home.read_at(first.byte, into) {
            // Past the end of the home file there are zeros.
            Ok(got) => into.iter_mut().skip(got).for_each(|b| *b = 0),
            Err(e) => {
                let text = Text {
                    expected: "a readable home file".into(),
                    found: format!("the file system gave an error: {e}"),
                    meaning: "the block cannot be compared; the tier still has a copy of it".into(),
                    remedy: "mend the home's file system and check again",
                };
                let place = self.place("home file", first.spot, Some(first.block));
                return self.checker.add(Severity::Damage, 13, place, text);
            }
        }
        if *into != *data {
            let byte = into.iter().zip(data).position(|(a, b)| a != b).unwrap_or_default() as u64;
            count(&mut self.counts.differ, First { byte: first.byte + byte, ..first });
        }
    }

    fn tail_not_zero(&mut self, first: First, inside: usize) {
        let text = Text {
            expected: format!("zeros from byte {inside} of the block on, where the file ends"),
            found: "other bytes".into(),
            meaning: "bytes that were cut off, or never written, would show if the file grew"
                .into(),
            remedy: "attach once: recovery makes them zero; if it does not, report this",
        };
        let place = self.place("last block", first.spot, Some(first.block));
        self.checker.add(Severity::Inconsistent, 12, place, text);
    }

    fn block_unreadable(&mut self, first: First, at: Spot, e: &io::Error) {
        let text = Text {
            expected: "a readable block".into(),
            found: format!("the medium gave an error: {e}"),
            meaning:
                "if the block is Dirty, its newest version is gone; if it is Cached, the home file \
                 has it"
                    .into(),
            remedy: "restore the member from a copy of the medium, or the file from a backup",
        };
        let place = self.place("block", at, Some(first.block));
        self.checker.add(Severity::Damage, 7, place, text);
    }
}

impl Visitor for Reader<'_, '_> {
    fn pointer(&mut self, level: Level, frame: u64, spot: Spot) -> bool {
        // Leaf 0 and middle page 0 hang on the slot; the words for them in the pages above stay
        // empty.
        let doubled = spot.offset >= FRAME && {
            let root = self.checker.tier.layout.slot_at(self.file.slot);
            let in_slot = spot.member == root.member
                && (root.offset..root.offset + 128).contains(&spot.offset);
            !in_slot && matches!(level, Level::Leaf(0) | Level::Middle(0))
        };
        if doubled {
            let text = Text {
                expected: "an empty word: this page hangs on the file slot".into(),
                found: format!("a pointer to frame {frame}"),
                meaning: "there are two maps of one part of the file; the slot's was followed"
                    .into(),
                remedy: "report this and keep the tier as it is",
            };
            let place = self.place("pointer to a map page", spot, None);
            self.checker.add(Severity::Inconsistent, 7, place, text);
            return false;
        }
        let fine = self.claim(frame, Use::Page, spot, None);
        self.checker.report.summary.map_pages += u64::from(fine);
        self.counts.unknown |= !fine;
        fine
    }

    fn block(&mut self, block: u64, held: Held, frame: u64, spot: Spot, sum: u64) {
        match held {
            Held::Cached => self.counts.cached += 1,
            Held::Dirty => self.counts.dirty += 1,
        }
        let fine = self.claim(frame, Use::Block(self.file.class), spot, Some(block));
        let first = First { block, spot, byte: block * self.file.block_bytes() };
        if first.byte >= self.file.size() {
            count(&mut self.counts.past_end, first);
        } else if fine {
            self.contents(first, held, frame, sum);
        } else {
            self.counts.dirty_lost += u64::from(held == Held::Dirty);
        }
    }

    fn damaged(&mut self, bad: BadWords) {
        self.counts.unknown = true;
        let (structure, block) = match bad.level {
            Level::Block(n) => {
                let first = n / LEAF_BLOCKS * LEAF_BLOCKS;
                (format!("map page of blocks {} to {}", first, first + LEAF_BLOCKS - 1), Some(n))
            }
            Level::Leaf(n) => {
                let first = n * LEAF_BLOCKS;
                let last = first + LEAF_BLOCKS - 1;
                (format!("pointer to the map page of blocks {first} to {last}"), None)
            }
            Level::Middle(n) => (format!("pointer to middle map page {n}"), None),
            Level::Top | Level::Slot(_) => ("pointer to the top map page".to_owned(), None),
        };
        let text = Text {
            expected: "words sealed for this place".into(),
            found: format!("{} word(s) that are not, the first is {:#018x}", bad.count, bad.word),
            meaning: match block {
                Some(_) => {
                    "where the newest version of these blocks is, is not known; the home \
                            file may hold older ones"
                }
                None => {
                    "where the newest versions of all blocks below are, is not known; the home \
                         file may hold older ones"
                }
            }
            .into(),
            remedy: "restore the member from a copy of the medium, or the file from a backup",
        };
        self.checker.add(Severity::Damage, 7, self.place(&structure, bad.spot, block), text);
    }

    fn unreadable(&mut self, level: Level, spot: Spot, error: io::Error) {
        self.counts.unknown = true;
        let text = Text {
            expected: "a readable map page".into(),
            found: format!("the medium gave an error: {error}"),
            meaning: "where the newest versions of the blocks below are, is not known; the home \
                      file may hold older ones"
                .into(),
            remedy: "restore the member from a copy of the medium, or the file from a backup",
        };
        self.checker.add(Severity::Damage, 7, self.place(&level.to_string(), spot, None), text);
    }
}

/// Walks maps again and collects who refers to certain frames.
pub(super) struct Search {
    wanted: HashSet<u64>,
    /// Pages already read in this walk.
    frames: Frames,
    pub(super) index: usize,
    pub(super) class: u8,
    pub(super) found: Vec<Claim>,
}

impl Search {
    pub(super) fn new(wanted: HashSet<u64>, frames: Frames) -> Self {
        Self { wanted, frames, index: 0, class: 0, found: Vec::new() }
    }

    fn look(&mut self, frame: u64, purpose: Use, spot: Spot, block: Option<u64>) {
        // Bounded like the findings are; a tier with more users of one frame is beyond naming them
        // all.
        let hit = (frame..frame.saturating_add(purpose.frames())).any(|f| self.wanted.contains(&f));
        if hit && self.found.len() < 16 * 1024 {
            self.found.push(Claim { file: self.index, block, frame, purpose, spot, record: false });
        }
    }
}

impl Visitor for Search {
    fn pointer(&mut self, _: Level, frame: u64, spot: Spot) -> bool {
        self.look(frame, Use::Page, spot, None);
        self.frames.claim(frame, Use::Page).is_ok()
    }

    fn block(&mut self, block: u64, _: Held, frame: u64, spot: Spot, _: u64) {
        self.look(frame, Use::Block(self.class), spot, Some(block));
    }

    fn damaged(&mut self, _: BadWords) {}

    fn unreadable(&mut self, _: Level, _: Spot, _: io::Error) {}
}
