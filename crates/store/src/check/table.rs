//! The checker's own reader of file slots (invariants 3 to 6, 22).
//!
//! **Invariant**: a slot whose in-use word or identity is damaged gives no [`FileFacts`]; its map
//! is not followed, because without the block size nothing in it can be placed.

use std::io;

use super::at;
use super::frames::Use;
use super::report::{FileName, Place, Severity};
use super::seal::{Level, Seal, all_zero, checksum, u16_at, u32_at, u64_at};
use super::superblock::SLOT;
use super::{Checker, Text};
use crate::check::home::same_when_known;

/// Slots read at a time.
const SLOTS_AT_ONCE: u64 = 64;
/// Slots read at a time around an unreadable place: media lose whole frames.
const SLOTS_IN_FRAME: u64 = 4;
const HINT_MAX: usize = 630;
/// Blocks a file can have at most.
const BLOCKS_MAX: u64 = 1 << 26;

pub(super) const TRUNCATING: u64 = 1;
pub(super) const UNLINKING: u64 = 2;
pub(super) const DESTAGING: u64 = 8;
pub(super) const LENT: u64 = 32;
const FLAGS_KNOWN: u64 = 63;
/// The upper bits of the flags of a lent file: the number of the loan.
const LOAN: u64 = !0xffff;

/// What a whole slot says.
#[derive(Clone, Debug)]
pub(super) struct FileFacts {
    pub(super) id: u64,
    pub(super) slot: u64,
    pub(super) ino: u64,
    pub(super) generation: u32,
    pub(super) btime_ns: u64,
    pub(super) redo: bool,
    /// Log2 of the frames of a block.
    pub(super) class: u8,
    pub(super) roots: [u64; 3],
    pub(super) line: Option<Line>,
    pub(super) hint: Option<Vec<u8>>,
}

impl FileFacts {
    pub(super) fn block_bytes(&self) -> u64 {
        4096 << self.class
    }

    /// The size, or a size that no block lies beyond when the state is unknown.
    pub(super) fn size(&self) -> u64 {
        self.line.map_or(u64::MAX, |line| line.size)
    }

    /// The number of the loan of a lent file.
    pub(super) fn loan(&self) -> u64 {
        self.line.map_or(0, |line| line.flags >> 16)
    }

    pub(super) fn hint(&self) -> &[u8] {
        self.hint.as_deref().unwrap_or_default()
    }

    pub(super) fn has(&self, flag: u64) -> bool {
        self.line.is_some_and(|line| line.flags & flag != 0)
    }

    pub(super) fn name(&self) -> FileName {
        FileName {
            id: self.id,
            path: self.hint.as_ref().map(|h| String::from_utf8_lossy(h).into_owned()),
        }
    }
}

/// A state line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    sequence: u64,
    pub(super) size: u64,
    pub(super) flags: u64,
    pub(super) home_size: u64,
    pub(super) home_mtime_ns: u64,
    since_ns: u64,
}

impl Line {
    fn read(b: &[u8], key: u64) -> Option<Self> {
        let body = b.get(..at::line::CHECK)?;
        let sequence = u64_at(b, at::line::SEQUENCE);
        (u64_at(b, at::line::CHECK) == checksum(body, key) && sequence < 1 << 62).then(|| Self {
            sequence,
            size: u64_at(b, at::line::SIZE),
            flags: u64_at(b, at::line::FLAGS),
            home_size: u64_at(b, at::line::HOME_SIZE),
            home_mtime_ns: u64_at(b, at::line::HOME_MTIME),
            since_ns: u64_at(b, at::line::SINCE),
        })
    }
}

impl Checker<'_> {
    /// Reads the file table into `self.files`.
    pub(super) fn read_table(&mut self) {
        self.claim_extents();
        for (first, count) in self.tier.layout.slot_runs() {
            self.read_slots(first, count);
        }
        self.report.summary.files = self.files.len() as u64;
        self.index_files();
    }

    /// Invariant 22.
    fn claim_extents(&mut self) {
        let frames = self.tier.layout.unit_frames();
        for unit in &self.tier.layout.extents {
            let claimed = (unit * frames..(unit + 1) * frames)
                .all(|frame| self.frames.claim(frame, Use::Slots).is_ok());
            if !claimed {
                let place =
                    Place { offset: Some(0), structure: "superblock".into(), ..Place::default() };
                let text = Text {
                    expected: "each extent of the file table in a unit of its own".into(),
                    found: format!("two in unit {unit}"),
                    meaning: "slots of different numbers share a place: which files are known is \
                              not sure"
                        .into(),
                    remedy: "do not attach; restore the members from a copy of the medium",
                };
                self.add(Severity::Damage, 22, place, text);
            }
        }
    }

    /// Reads slots that follow each other on a member.
    fn read_slots(&mut self, first: u64, count: u64) {
        let mut space = Vec::new();
        let (start, end, mut first, mut at_once) = (first, first + count, first, SLOTS_AT_ONCE);
        // A run of unreadable slots, for one finding.
        let mut lost: Option<(u64, u64, io::Error)> = None;
        while first < end {
            // After a large step failed: small steps up to the next large one.
            let count = (at_once - (first - start) % at_once).min(end - first);
            let at = self.tier.layout.slot_at(first);
            let source = self.tier.source(at.member);
            match source.and_then(|s| s.view(at.offset, (count * SLOT) as usize, &mut space)) {
                Ok(bytes) => {
                    for (slot, bytes) in (first..).zip(bytes.chunks_exact(SLOT as usize)) {
                        self.read_slot(slot, bytes);
                    }
                    self.slots_unreadable(lost.take());
                }
                Err(_) if at_once > SLOTS_IN_FRAME => {
                    at_once = SLOTS_IN_FRAME;
                    continue;
                }
                Err(e) => lost.get_or_insert((first, 0, e)).1 += count,
            }
            first += count;
            if (first - start).is_multiple_of(SLOTS_AT_ONCE) {
                at_once = SLOTS_AT_ONCE;
            }
        }
        self.slots_unreadable(lost);
    }

    fn slots_unreadable(&mut self, lost: Option<(u64, u64, io::Error)>) {
        let Some((first, count, e)) = lost else { return };
        self.report.summary.stake_is_unknown = true;
        let place = self.slot_place(first, 0, "file slots", None);
        let text = Text {
            expected: format!("{count} readable slots"),
            found: format!("the medium gave an error: {e}"),
            meaning: "which files have blocks in the tier is not known for these slots".into(),
            remedy: "restore the member from a copy of the medium",
        };
        self.add(Severity::Damage, 3, place, text);
    }

    fn slot_place(&self, slot: u64, within: u64, structure: &str, file: Option<FileName>) -> Place {
        let at = self.tier.layout.slot_at(slot);
        Place {
            member: Some(at.member),
            offset: Some(at.offset + within),
            structure: structure.into(),
            file,
            block: None,
        }
    }

    /// Which file has a slot, by its word; `None`: none, or it cannot be said.
    fn file_in_slot(&mut self, slot: u64, word: u64) -> Option<u64> {
        match Seal::new(self.tier.layout.seed, 0).value(Level::Slot(slot), word) {
            Some(0) => None,
            Some(id) => Some(id),
            None => {
                self.report.summary.stake_is_unknown = true;
                let place =
                    self.slot_place(slot, 0, &format!("in-use word of file slot {slot}"), None);
                let text = Text {
                    expected: format!("a word sealed for slot {slot}"),
                    found: format!("{word:#018x}"),
                    meaning: "whether a file is in this slot is not known; if one is, its blocks \
                              in the tier are out of \
                              reach and their frames look free"
                        .into(),
                    remedy: "do not attach; restore the member from a copy of the medium",
                };
                self.add(Severity::Damage, 3, place, text);
                None
            }
        }
    }

    fn read_slot(&mut self, slot: u64, b: &[u8]) {
        let seed = self.tier.layout.seed;
        let Some(id) = self.file_in_slot(slot, u64_at(b, at::slot::IN_USE)) else { return };
        let key = seed ^ id;
        let hint = read_hint(b, key);
        let mut file = FileFacts {
            id,
            slot,
            ino: u64_at(b, at::slot::INO),
            generation: u32_at(b, at::slot::GENERATION),
            btime_ns: u64_at(b, at::slot::BTIME),
            redo: b[at::slot::CLASS] == 1,
            class: b[at::slot::BLOCK_SIZE],
            roots: at::slot::ROOTS.map(|at| u64_at(b, at)),
            line: None,
            hint,
        };
        let given = u64_at(b, at::slot::IDENTITY_CHECK);
        let computed = checksum(&b[at::slot::IDENTITY_BODY], key);
        if given != computed || !matches!(b[at::slot::CLASS], 1 | 2) || file.class > 3 {
            self.report.summary.stake_is_unknown = true;
            let found = if given == computed {
                format!("class {}, block size code {}", b[at::slot::CLASS], file.class)
            } else {
                format!("checksum {given:#x}, the bytes give {computed:#x}")
            };
            let place = self.slot_place(
                slot,
                at::slot::IDENTITY,
                &format!("identity in file slot {slot}"),
                Some(file.name()),
            );
            let text = Text {
                expected: "an identity with a right checksum, a class and a block size".into(),
                found,
                meaning: "which home file the slot's blocks belong to is not known; the file's \
                          Dirty blocks are out of reach"
                    .into(),
                remedy: "restore the member from a copy of the medium, or this file from a backup",
            };
            return self.add(Severity::Damage, 4, place, text);
        }
        file.line = self.read_lines(&file, b, key);
        if file.hint.is_none() && self.options.after_recovery {
            self.slot_note(
                &file,
                at::slot::HINT_CHECK as u64,
                "path hint",
                "a hint with a right checksum",
                "a wrong checksum",
            );
        }
        if at::slot::UNUSED.into_iter().any(|unused| !all_zero(&b[unused])) {
            self.slot_note(&file, 8, "unused bytes of the slot", "zero", "other bytes");
        }
        self.files.push(file);
    }

    /// Invariant 5. The newest line decides; the pair that is not the newest may be in the middle
    /// of being written.
    fn read_lines(&mut self, file: &FileFacts, b: &[u8], key: u64) -> Option<Line> {
        let lines: [Option<Line>; 4] = std::array::from_fn(|n| {
            let line = Line::read(b.get(at::slot::LINES + n * at::slot::LINE..)?, key)?;
            (line.sequence % 2 == n as u64 / 2).then_some(line)
        });
        let Some(newest) = lines.iter().flatten().max_by_key(|line| line.sequence).copied() else {
            let place = self.slot_place(
                file.slot,
                at::slot::LINES as u64,
                &format!("state lines in file slot {}", file.slot),
                Some(file.name()),
            );
            let text = Text {
                expected: "one of four lines with a right checksum".into(),
                found: "none".into(),
                meaning:
                    "the size of the file is not known, nor whether the home file was changed \
                          meanwhile"
                        .into(),
                remedy: "restore the member from a copy of the medium, or this file from a backup",
            };
            self.add(Severity::Damage, 5, place, text);
            return None;
        };
        let pair = (newest.sequence % 2) as usize * 2;
        match (lines[pair], lines[pair + 1]) {
            (Some(a), Some(b)) if a == b => {}
            (Some(a), Some(b)) if a.sequence == b.sequence => {
                let place = self.slot_place(file.slot, 128, "state lines", Some(file.name()));
                let text = Text {
                    expected: "two equal copies of the newest state line".into(),
                    found: format!(
                        "size {} flags {} and size {} flags {}",
                        a.size, a.flags, b.size, b.flags
                    ),
                    meaning: "two sizes or states of the file claim to be the newest".into(),
                    remedy: "attach once, then compare the file's size with what the database \
                             expects",
                };
                self.add(Severity::Inconsistent, 5, place, text);
            }
            _ => {
                self.slot_note(file, 128, "newest state line", "two whole copies", "one whole copy")
            }
        }
        let known = if newest.flags & LENT != 0 { FLAGS_KNOWN | LOAN } else { FLAGS_KNOWN };
        let lent_data = newest.flags & LENT != 0 && !file.redo;
        if newest.flags & !known != 0
            || lent_data
            || newest.size > BLOCKS_MAX.saturating_mul(file.block_bytes())
        {
            let place = self.slot_place(file.slot, 128, "state line", Some(file.name()));
            let text = Text {
                expected: format!(
                    "known flags, `lent` of redo files only, and a size of at most {BLOCKS_MAX} \
                     blocks"
                ),
                found: format!("flags {:#x}, size {}", newest.flags, newest.size),
                meaning: "the file's state was written by a defective program".into(),
                remedy: "report this; keep the tier and the home as they are until it is \
                         understood",
            };
            self.add(Severity::Inconsistent, 5, place, text);
        }
        Some(newest)
    }

    fn slot_note(
        &mut self,
        file: &FileFacts,
        within: u64,
        structure: &str,
        expected: &str,
        found: &str,
    ) {
        let place = self.slot_place(file.slot, within, structure, Some(file.name()));
        let text = Text {
            expected: expected.into(),
            found: found.into(),
            meaning: "no data is affected".into(),
            remedy: "nothing; it is written again when the file is next opened or changed",
        };
        self.add(Severity::Note, 5, place, text);
    }

    /// Invariant 6, and the index by id that records are looked up in.
    fn index_files(&mut self) {
        let mut by_id: Vec<(u64, usize)> =
            self.files.iter().enumerate().map(|(n, f)| (f.id, n)).collect();
        by_id.sort_unstable();
        for pair in by_id.windows(2) {
            if let [(a, first), (b, second)] = *pair
                && a == b
            {
                self.same_twice("file id", first, second);
            }
        }
        self.by_id = by_id;
        let mut by_ino: Vec<usize> = (0..self.files.len()).collect();
        by_ino.sort_unstable_by_key(|n| self.files.get(*n).map(|f| (f.ino, f.btime_ns)));
        for pair in by_ino.windows(2) {
            let [first, second] = *pair else { continue };
            let (Some(a), Some(b)) = (self.files.get(first), self.files.get(second)) else {
                continue;
            };
            // A file being unlinked may have left its inode number to the next one.
            let leaving = a.has(UNLINKING) || b.has(UNLINKING);
            let same = a.ino == b.ino
                && same_when_known(a.btime_ns, b.btime_ns)
                && same_when_known(a.generation.into(), b.generation.into());
            if same && !leaving {
                self.same_twice("home file", first, second);
            }
        }
    }

    fn same_twice(&mut self, what: &str, first: usize, second: usize) {
        let (Some(a), Some(b)) = (self.files.get(first), self.files.get(second)) else { return };
        let place = self.slot_place(b.slot, 0, &format!("file slot {}", b.slot), Some(b.name()));
        let text = Text {
            expected: format!("a {what} that no other slot has"),
            found: format!("slot {} has it too ({:?})", a.slot, a.name().path.unwrap_or_default()),
            meaning:
                "two maps say where the blocks of one file are; which one is right is not known"
                    .into(),
            remedy: "do not attach; restore the member from a copy of the medium, or the file from \
                     a backup",
        };
        self.add(Severity::Inconsistent, 6, place, text);
    }
}

fn read_hint(b: &[u8], key: u64) -> Option<Vec<u8>> {
    let body = b.get(at::slot::HINT_LEN..);
    let whole = body.is_some_and(|body| u64_at(b, at::slot::HINT_CHECK) == checksum(body, key));
    let len = usize::from(u16_at(b, at::slot::HINT_LEN));
    if !whole || len > HINT_MAX {
        return None;
    }
    b.get(at::slot::HINT..at::slot::HINT + len).map(<[u8]>::to_vec)
}
