//! What a check found: counts, and findings that say where, what it means for the data, and what to
//! do.
//!
//! The number of findings kept is bounded, because damage (or an attacker) can produce any number
//! of them; the counts go on.
//!
//! **Invariant**: [`CheckReport::is_sound`] looks at the counts, so leaving findings out never
//! makes a tier sound.

use std::fmt;

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Severity {
    /// Nothing is wrong with the data; the next attach repairs it, or nothing need be done.
    Note,
    /// Space, or an acknowledged write, that nothing refers to any more.
    Lost,
    /// Structures that are whole but contradict each other or the home.
    Inconsistent,
    /// Bytes that do not pass their checksum, or cannot be read.
    Damage,
}

impl Severity {
    const ALL: [Severity; 4] =
        [Severity::Damage, Severity::Inconsistent, Severity::Lost, Severity::Note];

    /// Its name, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Damage => "Damage",
            Severity::Inconsistent => "Inconsistent",
            Severity::Lost => "Lost",
            Severity::Note => "Note",
        }
    }
}

/// A file as the tier knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileName {
    /// The file's id in the tier.
    pub id: u64,
    /// Its path relative to home when last opened, if the hint is readable.
    pub path: Option<String>,
}

/// Where something was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Number of the member.
    pub member: Option<u32>,
    /// Byte offset on that member.
    pub offset: Option<u64>,
    /// What is there.
    pub structure: String,
    /// The file it belongs to.
    pub file: Option<FileName>,
    /// The block of that file.
    pub block: Option<u64>,
}

/// A statement about the tier, with evidence and advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The number of the invariant that does not hold ([`crate::check`]).
    pub invariant: u8,
    /// Where it was found.
    pub place: Place,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
    /// What it means for the user's data.
    pub meaning: String,
    /// What to do.
    pub remedy: String,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Name of the tier.
    pub tier: String,
    /// Path of the home, as the superblock has it.
    pub home: String,
    /// The state in the superblock: attaching, attached, detaching, detached.
    pub state: String,
    /// Members of the tier.
    pub members: u32,
    /// Bytes of all members: as their superblocks say, or as they are, whichever is more.
    pub bytes: u64,
    /// Allocation units over all members.
    pub units: u64,
    /// Bytes of an allocation unit.
    pub unit_bytes: u64,
    /// File slots in use.
    pub files: u64,
    /// Blocks in state `Cached`.
    pub blocks_cached: u64,
    /// Blocks in state `Dirty`.
    pub blocks_dirty: u64,
    /// Bytes of the blocks in state `Dirty`: what only the tier holds.
    pub dirty_bytes: u64,
    /// Those `Dirty` blocks whose newest version is lost: the frame is unreadable, past the end of
    /// its member, or also used by something else.
    pub dirty_lost: u64,
    /// Bytes of these.
    pub dirty_lost_bytes: u64,
    /// Superblocks, file slots or map pages are damaged, so there may be more `Dirty` blocks than
    /// counted.
    pub stake_is_unknown: bool,
    /// Files that are lent: their newest contents may be in plain files only, beside the first
    /// member.
    pub files_lent: u64,
    /// Bytes of these plain files.
    pub lent_bytes: u64,
    /// The directory they are in; it belongs to the tier.
    pub lent_in: Option<String>,
    /// Map pages.
    pub map_pages: u64,
    /// Frames that a map refers to.
    pub frames_used: u64,
    /// All frames (4 KiB each).
    pub frames_total: u64,
    /// Whole lane records whose entry is not yet switched.
    pub lane_records_pending: u64,
    /// Whole batch records whose entries are not all switched.
    pub batch_records_pending: u64,
    /// Whether the home was there to compare with.
    pub home_compared: bool,
}

impl Summary {
    /// For people: how many files are lent, and where their plain files are; `None` when none is.
    #[must_use]
    pub fn lent_line(&self) -> Option<String> {
        let directory = match (self.files_lent, &self.lent_in) {
            (0, _) => return None,
            (_, Some(directory)) => {
                format!(" in {directory:?}, which belongs to the tier: move or copy both")
            }
            _ => String::new(),
        };
        Some(format!(
            "{} file(s) lent, of {} bytes, newest there and perhaps only there,{directory}",
            self.files_lent, self.lent_bytes
        ))
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// What was counted.
    pub summary: Summary,
    /// What was found, in the order of the check, as many as the options allow.
    pub findings: Vec<Finding>,
    /// Findings left out because there were too many.
    pub omitted: u64,
    /// All findings by severity: Note, Lost, Inconsistent, Damage.
    pub counts: [u64; 4],
}

impl CheckReport {
    /// Whether every invariant holds. Notes do not count.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        Severity::ALL.into_iter().all(|s| s == Severity::Note || self.count(s) == 0)
    }

    /// For people: how many acknowledged blocks are at stake. `None` when the tier is sound.
    #[must_use]
    pub fn at_stake(&self) -> Option<String> {
        if self.is_sound() {
            return None;
        }
        let s = &self.summary;
        let (dirty, lost) = (s.blocks_dirty, s.dirty_lost);
        let counted = (dirty > 0).then(|| {
            format!(
                "{lost} of {dirty} blocks that exist only in the tier cannot be read ({} of {} \
                 bytes)",
                s.dirty_lost_bytes, s.dirty_bytes
            )
        });
        let unknown = s.stake_is_unknown.then(|| {
            let more = if dirty > 0 {
                "more such blocks"
            } else {
                "blocks that exist only in the \
                tier"
            };
            format!(
                "{more} may be lost and cannot be counted, because the metadata that locates them \
                 is \
                 damaged (the tier has {} bytes)",
                s.bytes
            )
        });
        let all: Vec<String> = counted.into_iter().chain(unknown).collect();
        Some(if all.is_empty() {
            "no block exists only in the tier".into()
        } else {
            all.join("; ")
        })
    }

    /// How many findings there are of one severity, those left out included.
    #[must_use]
    pub fn count(&self, severity: Severity) -> u64 {
        self.counts[severity as usize]
    }

    pub(super) fn add(&mut self, most: usize, finding: Finding) {
        self.counts[finding.severity as usize] += 1;
        if self.findings.len() < most {
            self.findings.push(finding);
        } else {
            self.omitted += 1;
        }
    }

    /// The report as one JSON object, with the names of the fields of this structure.
    #[must_use]
    pub fn to_json(&self) -> String {
        let s = &self.summary;
        let mut summary = Object::new();
        summary.text("tier", &s.tier).text("home", &s.home).text("state", &s.state);
        summary.raw("members", s.members).raw("bytes", s.bytes);
        summary.raw("units", s.units).raw("unit_bytes", s.unit_bytes);
        summary
            .raw("files", s.files)
            .raw("blocks_cached", s.blocks_cached)
            .raw("blocks_dirty", s.blocks_dirty);
        summary.raw("dirty_bytes", s.dirty_bytes).raw("dirty_lost", s.dirty_lost);
        summary
            .raw("dirty_lost_bytes", s.dirty_lost_bytes)
            .raw("stake_is_unknown", s.stake_is_unknown);
        summary.raw("files_lent", s.files_lent).raw("lent_bytes", s.lent_bytes);
        match &s.lent_in {
            Some(directory) => summary.text("lent_in", directory),
            None => summary.raw("lent_in", "null"),
        };
        summary.raw("map_pages", s.map_pages);
        summary.raw("frames_used", s.frames_used).raw("frames_total", s.frames_total);
        summary.raw("lane_records_pending", s.lane_records_pending);
        summary
            .raw("batch_records_pending", s.batch_records_pending)
            .raw("home_compared", s.home_compared);
        let findings: Vec<String> = self.findings.iter().map(finding_json).collect();
        let [note, lost, inconsistent, damage] = self.counts;
        let mut report = Object::new();
        report.raw("summary", summary.end()).raw("findings", format!("[{}]", findings.join(",")));
        report.raw("omitted", self.omitted);
        report.raw("counts", format!("[{note},{lost},{inconsistent},{damage}]"));
        report.end()
    }
}

fn finding_json(f: &Finding) -> String {
    let number = |n: Option<u64>| n.map_or_else(|| "null".to_owned(), |n| n.to_string());
    let file = f.place.file.as_ref().map_or_else(
        || "null".to_owned(),
        |file| {
            let mut object = Object::new();
            object.raw("id", file.id);
            match &file.path {
                Some(path) => object.text("path", path),
                None => object.raw("path", "null"),
            };
            object.end()
        },
    );
    let mut place = Object::new();
    place
        .raw("member", number(f.place.member.map(u64::from)))
        .raw("offset", number(f.place.offset));
    place
        .text("structure", &f.place.structure)
        .raw("file", file)
        .raw("block", number(f.place.block));
    let mut object = Object::new();
    object
        .text("severity", f.severity.name())
        .raw("invariant", f.invariant)
        .raw("place", place.end());
    object.text("expected", &f.expected).text("found", &f.found);
    object.text("meaning", &f.meaning).text("remedy", &f.remedy);
    object.end()
}

/// A JSON object being written.
struct Object(String);

impl Object {
    fn new() -> Self {
        Self(String::from("{"))
    }

    fn raw(&mut self, name: &str, value: impl fmt::Display) -> &mut Self {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&format!("\"{name}\":{value}"));
        self
    }

    fn text(&mut self, name: &str, value: &str) -> &mut Self {
        let mut quoted = String::from("\"");
        for c in value.chars() {
            match c {
                '"' | '\\' => quoted.extend(['\\', c]),
                c if u32::from(c) < 0x20 => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
                c => quoted.push(c),
            }
        }
        quoted.push('"');
        self.raw(name, quoted)
    }

    fn end(&mut self) -> String {
        self.0.push('}');
        std::mem::take(&mut self.0)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.structure)?;
        if let Some(file) = &self.file {
            match &file.path {
                Some(path) => write!(f, " of {path:?} (file {})", file.id)?,
                None => write!(f, " of file {}", file.id)?,
            }
        }
        if let Some(block) = self.block {
            write!(f, ", block {block}")?;
        }
        match (self.member, self.offset) {
            (Some(member), Some(offset)) => write!(f, ", member {member} byte {offset}"),
            (Some(member), None) => write!(f, ", member {member}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.summary;
        let mut row = |name: &str, value: String| writeln!(f, "{name:<18}{value}");
        row("tier", format!("{:?}, {}, members: {}", s.tier, s.state, s.members))?;
        let compared = if s.home_compared { "compared" } else { "not compared" };
        row("home", format!("{:?} ({compared})", s.home))?;
        row("allocation units", format!("{} of {} KiB", s.units, s.unit_bytes / 1024))?;
        row("frames in use", format!("{} of {} (4 KiB each)", s.frames_used, s.frames_total))?;
        row("files", s.files.to_string())?;
        row("blocks Cached", s.blocks_cached.to_string())?;
        row(
            "blocks Dirty",
            format!("{} ({} KiB only the tier has)", s.blocks_dirty, s.dirty_bytes / 1024),
        )?;
        if let Some(lent) = s.lent_line() {
            row("lent", lent)?;
        }
        row("map pages", s.map_pages.to_string())?;
        row(
            "records pending",
            format!("lane {}, batch {}", s.lane_records_pending, s.batch_records_pending),
        )?;
        let counts = Severity::ALL.map(|s| format!("{} {}", self.count(s), s.name()));
        row("findings", counts.join(", "))?;
        if let Some(stake) = self.at_stake() {
            row("at stake", stake)?;
        }
        for (n, finding) in self.findings.iter().enumerate() {
            writeln!(f, "\n{:>4}  {}: {}", n + 1, finding.severity.name(), finding.place)?;
            writeln!(f, "      expected  {}", finding.expected)?;
            writeln!(f, "      found     {} (invariant {})", finding.found, finding.invariant)?;
            writeln!(f, "      means     {}", finding.meaning)?;
            writeln!(f, "      remedy    {}", finding.remedy)?;
        }
        if self.omitted > 0 {
            writeln!(f, "\n      {} more findings are counted above and not shown", self.omitted)?;
        }
        write!(f, "\n{}", if self.is_sound() { "sound" } else { "NOT SOUND" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_is_what_serde_makes_of_the_report() {
        let mut report = CheckReport::default();
        let file = Some(FileName { id: 7, path: Some("a \"b\"\\\n\u{1}ü".into()) });
        let place = Place {
            member: Some(1),
            offset: Some(4096),
            structure: "slot".into(),
            file,
            block: None,
        };
        let finding = Finding {
            severity: Severity::Damage,
            invariant: 3,
            place,
            expected: "x".into(),
            found: "y".into(),
            meaning: String::new(),
            remedy: "z".into(),
        };
        let mut second = finding.clone();
        second.place.file = Some(FileName { id: 8, path: None });
        for finding in [finding, second, Finding { place: Place::default(), ..report_finding() }] {
            report.add(2, finding);
        }
        let ours: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(ours, serde_json::to_value(&report).unwrap());
        assert_eq!(
            (report.omitted, report.count(Severity::Damage), report.is_sound()),
            (1, 2, false)
        );
        assert!(report.to_string().contains("NOT SOUND"));
    }

    fn report_finding() -> Finding {
        Finding {
            severity: Severity::Note,
            invariant: 1,
            place: Place::default(),
            expected: String::new(),
            found: String::new(),
            meaning: String::new(),
            remedy: String::new(),
        }
    }
}
