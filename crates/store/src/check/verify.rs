//! The check of everything behind the superblocks: files, home, phase, and frames that have two
//! users (invariants 9, 11, 13 to 15, 18, 20, 21).
//!
//! Frames referred to twice are only noted during the walk ([`super::blocks`]); a second walk at
//! the end finds out by whom, so that a sound tier pays for one.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io;
use std::path::Path;

use super::CheckOptions;
use super::blocks::{Counts, First, Reader, Search};
use super::frames::{Frames, Use};
use super::home::{HomeFileView, HomeView};
use super::map::Tier;
use super::report::{CheckReport, Finding, Place, Severity};
use super::seal::Held;
use super::source::Spot;
use super::superblock::Phase;
use super::table::{DESTAGING, FileFacts, LENT, TRUNCATING, UNLINKING};
use crate::medium::held;
use crate::plain::{LentDir, PlainDir, PlainName, Unfit, directory_of};

/// The words of a finding.
pub(super) struct Text {
    pub(super) expected: String,
    pub(super) found: String,
    pub(super) meaning: String,
    pub(super) remedy: &'static str,
}

/// Somebody refers to frames that somebody else may refer to as well.
#[derive(Clone, Copy)]
pub(super) struct Claim {
    /// Index into the files.
    pub(super) file: usize,
    /// The block; `None` for a map page.
    pub(super) block: Option<u64>,
    pub(super) frame: u64,
    pub(super) purpose: Use,
    /// The word or record that refers to them.
    pub(super) spot: Spot,
    /// A pending record, not a map.
    pub(super) record: bool,
}

impl Claim {
    fn overlaps(&self, other: &Claim) -> bool {
        self.frame < other.frame + other.purpose.frames()
            && other.frame < self.frame + self.purpose.frames()
    }

    fn is_same_entry(&self, other: &Claim) -> bool {
        self.block.is_some() && (self.file, self.block) == (other.file, other.block)
    }
}

/// A block that has another checksum than its map says.
pub(super) struct OtherSum {
    /// Index into the files.
    pub(super) file: usize,
    pub(super) first: First,
    pub(super) held: Held,
    /// Where the block is.
    pub(super) at: Spot,
    pub(super) found: u64,
    pub(super) sum: u64,
}

/// A check under way.
pub(super) struct Checker<'s> {
    pub(super) tier: &'s Tier<'s>,
    pub(super) options: &'s CheckOptions,
    pub(super) report: CheckReport,
    pub(super) frames: Frames,
    pub(super) files: Vec<FileFacts>,
    /// File ids and indexes into `files`, sorted.
    pub(super) by_id: Vec<(u64, usize)>,
    home: Option<&'s dyn HomeView>,
    /// The first member, beside which plain files are.
    first: Option<&'s Path>,
    claims: Vec<Claim>,
    other_sums: Vec<OtherSum>,
    /// Blocks, by the index of their file, of which a whole record speaks: what their map says is
    /// not the last word.
    pub(super) recorded: RefCell<HashSet<(usize, u64)>>,
    /// Space for one block of the tier and one of the home.
    pub(super) space: [Vec<u8>; 2],
}

impl<'s> Checker<'s> {
    pub(super) fn new(
        tier: &'s Tier<'s>,
        home: Option<&'s dyn HomeView>,
        options: &'s CheckOptions,
        report: CheckReport,
    ) -> Self {
        let frames = Frames::new(tier.layout.unit_frames(), tier.layout.frames());
        let (files, by_id, claims, space) = Default::default();
        let (other_sums, recorded) = Default::default();
        let first = None;
        Self {
            tier,
            options,
            report,
            frames,
            files,
            by_id,
            home,
            first,
            claims,
            other_sums,
            recorded,
            space,
        }
    }

    /// Looks for plain files beside this member.
    pub(super) fn beside(mut self, first: Option<&'s Path>) -> Self {
        self.first = first;
        self
    }

    /// Checks everything behind the superblocks.
    pub(super) fn run(mut self) -> CheckReport {
        self.report.summary.home_compared = self.home.is_some();
        if self.tier.layout.phase == Phase::Detached {
            // Free for another home: what the structures still say is of no consequence.
            return self.report;
        }
        self.read_table();
        let files = std::mem::take(&mut self.files);
        for (n, file) in files.iter().enumerate() {
            self.verify_file(n, file);
        }
        self.files = files;
        self.verify_phase();
        self.verify_copies();
        self.read_lanes();
        self.read_batches();
        self.conclude_sums();
        self.settle_claims();
        self.report.summary.frames_used = self.frames.used();
        self.report
    }

    pub(super) fn add(&mut self, severity: Severity, invariant: u8, place: Place, text: Text) {
        let Text { expected, found, meaning, remedy } = text;
        let remedy = remedy.into();
        let finding = Finding { severity, invariant, place, expected, found, meaning, remedy };
        self.report.add(self.options.findings_max, finding);
    }

    /// Index of the file with this id.
    pub(super) fn file_by_id(&self, id: u64) -> Option<usize> {
        let at = self.by_id.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.by_id.get(at).map(|(_, n)| *n)
    }

    /// Remembers a claim that may be a second one.
    pub(super) fn note_claim(&mut self, claim: Claim) {
        if self.claims.len() < self.options.findings_max.max(16) {
            self.claims.push(claim);
        } else if !claim.record {
            // Too many to look for their partners: counted, like any finding that is left out.
            self.report.counts[Severity::Inconsistent as usize] += 1;
            self.report.omitted += 1;
        }
    }

    /// Remembers a block whose checksum is another, until the records have been read.
    pub(super) fn note_other_sum(&mut self, other: OtherSum) {
        if self.other_sums.len() < self.options.findings_max.max(16) {
            self.other_sums.push(other);
        } else {
            // Too many to look for records that vouch for them: counted as what they seem to be.
            let severity = match other.held {
                Held::Dirty => Severity::Damage,
                Held::Cached => Severity::Inconsistent,
            };
            self.report.counts[severity as usize] += 1;
            self.report.omitted += 1;
            if let (Held::Dirty, Some(file)) = (other.held, self.files.get(other.file)) {
                self.report.summary.dirty_lost += 1;
                self.report.summary.dirty_lost_bytes += file.block_bytes();
            }
        }
    }

    /// Invariant 24: of blocks that no record speaks of. What is wrong with the others, invariants
    /// 16 to 19 say.
    fn conclude_sums(&mut self) {
        for other in std::mem::take(&mut self.other_sums) {
            let OtherSum { file, first, held, at, found, sum } = other;
            let Some(facts) = self.files.get(file) else { continue };
            if self.recorded.borrow().contains(&(file, first.block)) {
                continue;
            }
            let (severity, meaning, remedy) = match held {
                Held::Dirty => (
                    Severity::Damage,
                    "the newest version of the block is gone: the medium changed it, wrote it \
                     elsewhere or gives an older one; the \
                     home file may hold an older version",
                    "restore the member from a copy of the medium, or the file from a backup",
                ),
                Held::Cached => (
                    Severity::Inconsistent,
                    "the medium changed the copy, wrote it elsewhere or gives an older one; the \
                     home file has the block",
                    "nothing is lost: attached, the block is read from home; look after the medium",
                ),
            };
            let mut place = entry_place(facts, first.block, at);
            place.structure = "block".into();
            let text = Text {
                expected: match sum {
                    0 => "a checksum of the block beside its map entry".into(),
                    sum => {
                        format!("a block with the checksum {sum:#018x} as this block of this file")
                    }
                },
                found: format!("checksum {found:#018x}"),
                meaning: meaning.into(),
                remedy,
            };
            if held == Held::Dirty {
                self.report.summary.dirty_lost += 1;
                self.report.summary.dirty_lost_bytes += facts.block_bytes();
            }
            self.add(severity, 24, place, text);
        }
    }

    fn verify_file(&mut self, index: usize, file: &FileFacts) {
        let found =
            self.home.map(|home| home.find(file.ino, file.generation, file.btime_ns, file.hint()));
        let home = match &found {
            Some(Ok(Some(home))) => Some(&**home),
            _ => None,
        };
        let tier = self.tier;
        let mut reader = Reader { index, file, home, checker: self, counts: Counts::default() };
        tier.walk(file, &mut reader);
        let counts = reader.counts;
        let summary = &mut self.report.summary;
        summary.blocks_cached += counts.cached;
        summary.blocks_dirty += counts.dirty;
        summary.dirty_bytes += counts.dirty * file.block_bytes();
        summary.dirty_lost += counts.dirty_lost;
        summary.dirty_lost_bytes += counts.dirty_lost * file.block_bytes();
        summary.stake_is_unknown |= counts.unknown;
        self.conclude_blocks(file, &counts);
        match &found {
            Some(Ok(Some(home))) => self.verify_stamp(file, &counts, &**home),
            Some(Ok(None)) => self.home_file_missing(file, &counts),
            Some(Err(e)) => self.home_unreadable(file, e),
            None => {}
        }
        self.verify_flags(file);
        if file.has(LENT) {
            self.verify_lent(file, &counts);
        }
    }

    /// Findings of which there is one for a file, however many blocks it concerns.
    fn conclude_blocks(&mut self, file: &FileFacts, counts: &Counts) {
        if let (past @ 1.., Some(first)) = counts.past_end
            && self.options.after_recovery
            && !file.has(TRUNCATING)
        {
            let text = Text {
                expected: format!(
                    "no block in the tier past the end of the file ({} bytes)",
                    file.size()
                ),
                found: format!("{past} block(s), the first is block {}", first.block),
                meaning:
                    "the frames are lost until the file goes away, and old bytes would show if the \
                     file grew"
                        .into(),
                remedy: "attach once: recovery drops them; if it does not, report this",
            };
            self.add(Severity::Lost, 11, entry_place(file, first.block, first.spot), text);
        }
        if let (count @ 1.., Some(first)) = counts.differ {
            let text = Text {
                expected: "the bytes of the home file".into(),
                found: format!(
                    "{count} block(s) differ, the first at byte {} of the file",
                    first.byte
                ),
                meaning: "a read through the tier and a read of the home file give different \
                          bytes; which is right cannot \
                          be told from here"
                    .into(),
                remedy: "if the home file was changed while detached, attach (clean copies are \
                         dropped); else restore the \
                         file from a backup",
            };
            self.add(Severity::Inconsistent, 13, entry_place(file, first.block, first.spot), text);
        }
    }

    /// Invariant 15. While it is being destaged or truncated, the home file changes before its
    /// stamp does.
    fn verify_stamp(&mut self, file: &FileFacts, counts: &Counts, home: &dyn HomeFileView) {
        let Some(line) = file.line else { return };
        let (size, mtime) = (home.size(), home.mtime_ns());
        let in_step = size == line.home_size && mtime == line.home_mtime_ns;
        if in_step || file.has(TRUNCATING | UNLINKING | DESTAGING) {
            return;
        }
        let (severity, meaning) = if file.has(LENT) {
            let meaning = "the home file was changed behind the tier, and is lent: its newest \
                           contents are in a plain file";
            (Severity::Inconsistent, meaning.into())
        } else if counts.dirty > 0 {
            let meaning = format!(
                "the home file was changed behind the tier, which has {} newer block(s) of it; \
                 putting both together may \
                 mix two versions",
                counts.dirty
            );
            (Severity::Inconsistent, meaning)
        } else {
            let meaning = "the home file was changed behind the tier, which has clean copies only; \
                           they are out of date";
            (
                if counts.cached > 0 { Severity::Inconsistent } else { Severity::Note },
                meaning.into(),
            )
        };
        let text = Text {
            expected: format!(
                "home file of {} bytes, changed at {} ns",
                line.home_size, line.home_mtime_ns
            ),
            found: format!("{size} bytes, changed at {mtime} ns"),
            meaning,
            remedy: "put the file back as it was, or move it away; with clean copies only, attach: \
                     they are dropped",
        };
        self.add(severity, 15, self.line_place(file), text);
    }

    /// Invariant 14. A file being unlinked may be gone already.
    fn home_file_missing(&mut self, file: &FileFacts, counts: &Counts) {
        if file.has(UNLINKING) {
            return;
        }
        let severity = if counts.dirty > 0 || file.has(LENT) {
            Severity::Lost
        } else {
            Severity::Inconsistent
        };
        let text = Text {
            expected: format!(
                "a file with inode number {} and birth time {} ns in the home",
                file.ino, file.btime_ns
            ),
            found: "none".into(),
            meaning: format!(
                "the file was removed behind the tier, or the home was copied: {} Dirty block(s) \
                 have no place to go",
                counts.dirty
            ),
            remedy: "bring the original file back (a copy has another inode); if it is not wanted, \
                     attach and the slot is \
                     freed",
        };
        self.add(severity, 14, self.line_place(file), text);
    }

    fn home_unreadable(&mut self, file: &FileFacts, e: &io::Error) {
        let text = Text {
            expected: "a readable home file".into(),
            found: format!("the file system gave an error: {e}"),
            meaning: "whether the clean copies equal the home file is not known".into(),
            remedy: "mend the home's file system and check again",
        };
        self.add(Severity::Damage, 14, self.line_place(file), text);
    }

    /// The part of invariant 20 that is about one file.
    fn verify_flags(&mut self, file: &FileFacts) {
        if !self.options.after_recovery {
            return;
        }
        for (flag, severity, name) in [
            (TRUNCATING, Severity::Note, "truncating"),
            (UNLINKING, Severity::Lost, "unlinking"),
            (DESTAGING, Severity::Note, "destaging"),
        ] {
            if file.has(flag) {
                let text = Text {
                    expected: "nothing under way".into(),
                    found: format!("the flag `{name}`"),
                    meaning: "the operation was not finished (the home may have failed); what was \
                              acknowledged is there"
                        .into(),
                    remedy: "attach once more: it is taken up again",
                };
                self.add(severity, 20, self.line_place(file), text);
            }
        }
    }

    /// Invariant 21.
    fn verify_lent(&mut self, file: &FileFacts, counts: &Counts) {
        if self.options.after_recovery && counts.dirty + counts.cached > 0 {
            let text = Text {
                expected: "no block of a lent file in the tier".into(),
                found: format!("{} block(s)", counts.dirty + counts.cached),
                meaning: "nobody reads these blocks: the file's contents are in its plain file"
                    .into(),
                remedy: "attach once more: they are dropped",
            };
            self.add(Severity::Inconsistent, 21, self.line_place(file), text);
        }
        self.report.summary.files_lent += 1;
        let Some(first) = self.first else { return };
        let name = PlainName { tier: self.tier.layout.uuid, id: file.id, loan: file.loan() };
        let named = self.options.lent_in.as_deref();
        let place = match named {
            Some(named) => PlainDir::within(named, name.tier, false).ok(),
            None => held::Held::find(first).ok().and_then(|member| PlainDir::new(&member, false)),
        };
        let directory = match (&place, named) {
            (Some(place), _) => place.directory_path(),
            (None, Some(named)) => named.to_path_buf(),
            (None, None) => directory_of(first),
        };
        let plain = directory.join(name.to_string());
        self.report.summary.lent_in = Some(directory.display().to_string());
        let least = file.size();
        let looked = place.map_or(Err(Unfit::Missing), |place| place.look(name));
        let back = "put the plain file back, with the tier if that was moved or copied without the \
                    directory beside it";
        let gone = "the file is lent: its newest contents are nowhere else";
        let (severity, found, meaning, remedy) = match looked {
            Ok(len) if len >= least => {
                self.report.summary.lent_bytes += len;
                return;
            }
            Ok(len) => (Severity::Lost, format!("one of {len} bytes"), gone, back),
            Err(Unfit::Missing) => (Severity::Lost, "none".into(), gone, back),
            Err(Unfit::NoFile) => (Severity::Lost, "something that is no file".into(), gone, back),
            Err(Unfit::NotOurs(how)) => (
                Severity::Inconsistent,
                how,
                "somebody else could have changed the newest contents of the file, so attaching \
                 refuses them",
                "if they are as you left them, make file and directory their owner's alone (modes \
                 600 and 700, the owner of the tier, no \
                 further name), and check again",
            ),
            Err(Unfit::Unreadable(e)) => (
                Severity::Damage,
                format!("the file system gave an error: {e}"),
                "the file is lent: whether its newest contents are there is not known",
                "check as the tier's owner or root; else mend the file system beside the tier, and \
                 check again",
            ),
        };
        let text = Text {
            expected: format!("a plain file of {least} bytes or more, {}", plain.display()),
            found,
            meaning: meaning.into(),
            remedy,
        };
        self.add(severity, 21, self.line_place(file), text);
    }

    /// The part of invariant 20 that is about the tier.
    fn verify_phase(&mut self) {
        let summary = &self.report.summary;
        let held = match self.tier.layout.phase {
            Phase::Attaching => summary.blocks_cached + summary.blocks_dirty,
            Phase::Detaching => summary.blocks_dirty,
            Phase::Attached | Phase::Detached => 0,
        };
        if held > 0 {
            let place =
                Place { structure: "superblock".into(), offset: Some(0), ..Place::default() };
            let text = Text {
                expected: format!(
                    "no such block in a tier that is {}",
                    self.tier.layout.phase.name()
                ),
                found: format!("{held} block(s)"),
                meaning:
                    "finishing what was begun would forget these blocks, of which some may exist \
                     nowhere else"
                        .into(),
                remedy: "do not attach or detach; report this and keep the tier as it is",
            };
            self.add(Severity::Inconsistent, 20, place, text);
        }
    }

    /// Invariant 25.
    fn verify_copies(&mut self) {
        let dirty = self.report.summary.blocks_dirty;
        if !self.tier.layout.ephemeral || dirty == 0 {
            return;
        }
        let text = Text {
            expected: "clean copies only in an ephemeral tier".into(),
            found: format!("{dirty} Dirty block(s)"),
            meaning: "home may have an older version of these blocks, and the disk may be emptied \
                      when the machine is stopped"
                .into(),
            remedy: "do not stop the machine; copy the tier, and report this",
        };
        let place = Place { structure: "superblock".into(), ..Place::default() };
        self.add(Severity::Inconsistent, 25, place, text);
    }

    fn line_place(&self, file: &FileFacts) -> Place {
        let at = self.tier.layout.slot_at(file.slot);
        Place {
            member: Some(at.member),
            offset: Some(at.offset + 128),
            structure: "state line".into(),
            file: Some(file.name()),
            block: None,
        }
    }

    /// Invariants 9 and 18: finds out who else refers to the frames in question.
    fn settle_claims(&mut self) {
        let claims = std::mem::take(&mut self.claims);
        let relevant = |c: &Claim| !c.record || self.frames.is_used(c.frame, c.purpose);
        let between_records = claims.iter().enumerate().any(|(n, c)| {
            c.record
                && claims.iter().take(n).any(|o| o.record && o.overlaps(c) && !o.is_same_entry(c))
        });
        if !between_records && !claims.iter().any(relevant) {
            return;
        }
        let wanted = claims.iter().flat_map(|c| c.frame..c.frame + c.purpose.frames()).collect();
        let frames = Frames::new(self.tier.layout.unit_frames(), self.tier.layout.frames());
        let mut search = Search::new(wanted, frames);
        for (index, file) in self.files.iter().enumerate() {
            (search.index, search.class) = (index, file.class);
            self.tier.walk(file, &mut search);
        }
        for (n, claim) in claims.iter().enumerate() {
            let others = search.found.iter().filter(|o| {
                let replaced =
                    claim.record && claims.iter().any(|c| c.record && c.is_same_entry(o));
                o.spot != claim.spot && o.overlaps(claim) && !replaced
            });
            let rivals = claims.iter().take(n).filter(|o| {
                claim.record && o.record && o.overlaps(claim) && !o.is_same_entry(claim)
            });
            let others: Vec<Claim> = others.chain(rivals).copied().collect();
            if !others.is_empty() || !claim.record {
                self.double_use(claim, &others);
            }
        }
    }

    fn double_use(&mut self, claim: &Claim, others: &[Claim]) {
        let place = self.claim_place(claim);
        let named: Vec<String> =
            others.iter().take(4).map(|o| self.claim_place(o).to_string()).collect();
        let more = others.len().saturating_sub(named.len());
        let also = if more > 0 { format!(" and {more} more") } else { String::new() };
        let text = Text {
            expected: format!("frame {} referred to once", claim.frame),
            found: format!("also referred to by {}{also}", named.join("; ")),
            meaning: "two blocks share one place: at least one of them has the other's bytes, and \
                      a write to one changes both"
                .into(),
            remedy: "do not attach; restore the member from a copy of the medium, or both files \
                     from a backup",
        };
        self.add(Severity::Inconsistent, if claim.record { 18 } else { 9 }, place, text);
    }

    fn claim_place(&self, claim: &Claim) -> Place {
        let structure = match (claim.record, claim.block) {
            (true, _) => "record",
            (false, Some(_)) => "map entry",
            (false, None) => "pointer to a map page",
        };
        Place {
            member: Some(claim.spot.member),
            offset: Some(claim.spot.offset),
            structure: structure.into(),
            file: self.files.get(claim.file).map(FileFacts::name),
            block: claim.block,
        }
    }
}

fn entry_place(file: &FileFacts, block: u64, spot: Spot) -> Place {
    Place {
        member: Some(spot.member),
        offset: Some(spot.offset),
        structure: "map entry".into(),
        file: Some(file.name()),
        block: Some(block),
    }
}
