//! The checker's own reader of superblocks, and what the members of a tier must agree about
//! (invariants 1 and 2).
//!
//! **Invariant**: a [`Layout`] that is given out fits the members: every offset it computes for a
//! frame, slot or record lies inside the bytes that the member has; of one that was cut short it
//! may lie past them, and its [`Source`] then says so.

use super::at::superblock as at;
use super::log::LogAt;
use super::report::{CheckReport, Finding, Place, Severity};
use super::seal::{all_zero, checksum, u32_at, u64_at};
use super::source::{Source, Spot};
use super::{CheckError, CheckOptions};

pub(super) const FRAME: u64 = 4096;
pub(super) const SLOT: u64 = 1024;
pub(super) const LANES_AT: u64 = 12288;
const COPY_AT: [u64; 2] = [0, 4096];
const COPY: usize = 4096;
const MAGIC: &[u8; 8] = b"TSMITHST";
/// What the tiers of development builds begin with.
const DEVELOPMENT_MAGIC: &[u8; 8] = b"TIERSMTH";
const VERSION: u32 = 2;
const EXTENTS_MAX: u64 = 320;
/// The ledger and the sector sizes that go with it: memory, and a log on sectors.
const LEDGERS: [(u32, &[u32]); 2] = [(1, &[0]), (2, &[512, 4096])];
const LOG_MIN: u64 = 65536;
const FLAG_VOLATILE: u32 = 2;
const FLAG_EPHEMERAL: u32 = 4;
/// The key of the superblock's own checksum: the magic as a number, read the other way round.
const CHECK_KEY: u64 = 0x5449_4552_534d_5448;

/// How far attaching has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Attaching,
    Attached,
    Detaching,
    Detached,
}

impl Phase {
    pub(super) fn name(self) -> &'static str {
        match self {
            Phase::Attaching => "attaching",
            Phase::Attached => "attached",
            Phase::Detaching => "detaching",
            Phase::Detached => "detached",
        }
    }
}

/// The fields of one superblock copy that the check needs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Super {
    phase: Phase,
    sequence: u64,
    uuids: [u8; 32],
    member: u32,
    members: u32,
    seed: u64,
    len: u64,
    max_len: u64,
    unit: u64,
    data_start: u64,
    lanes: u32,
    batches: u32,
    slots: u64,
    home: (u64, u64),
    name: String,
    home_path: Vec<u8>,
    attaches: u64,
    volatile: bool,
    ephemeral: bool,
    /// Bytes of the log; 0: none. And of a sector.
    log: (u64, u64),
    extents: Vec<u64>,
}

/// Why a copy cannot be used.
enum Bad {
    /// All zero: never written, or emptied when formatting began.
    Zero,
    /// Not ours.
    Magic([u8; 8]),
    /// Made before version 1.
    Development,
    Version(u32),
    /// Of this version, with something that is not known here.
    Unknown(String),
    Other(String),
}

impl Bad {
    /// The mark of a tier that is being formatted.
    fn is_format_mark(&self) -> bool {
        matches!(self, Bad::Magic(start) if start == b"TIERFMT_")
    }
}

impl std::fmt::Display for Bad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bad::Zero => f.write_str("all zero"),
            Bad::Magic(found) => write!(f, "begins with \"{}\"", found.escape_ascii()),
            Bad::Development => f.write_str("made by a development build"),
            Bad::Version(n) => write!(f, "format version {n}"),
            Bad::Unknown(why) | Bad::Other(why) => f.write_str(why),
        }
    }
}

/// Refuses what this program does not read; else the bytes of a sector.
fn sector_size(b: &[u8]) -> Result<u32, Bad> {
    if all_zero(b) {
        return Err(Bad::Zero);
    }
    if b.starts_with(DEVELOPMENT_MAGIC) {
        return Err(Bad::Development);
    }
    if !b.starts_with(MAGIC) {
        return Err(Bad::Magic(u64_at(b, at::MAGIC).to_le_bytes()));
    }
    let (given, computed) = (u64_at(b, at::CHECK), checksum(&b[..at::CHECK], CHECK_KEY));
    let version = u32_at(b, at::VERSION);
    if given != computed {
        return Err(Bad::Other(format!("checksum {given:#x}, its bytes give {computed:#x}")));
    }
    if version != VERSION {
        return Err(Bad::Version(version));
    }
    let (role, ledger, sector_size) =
        (u32_at(b, at::ROLE), u32_at(b, at::LEDGER), u32_at(b, at::SECTOR_SIZE));
    if role != 3 {
        return Err(Bad::Unknown(format!("has role of the member {role}, this program knows 3")));
    }
    let Some((_, sizes)) = LEDGERS.iter().find(|(known, _)| *known == ledger) else {
        return Err(Bad::Unknown(format!(
            "has kind of ledger {ledger}, this program knows 1 and 2"
        )));
    };
    if !sizes.contains(&sector_size) || (ledger == 1 && u64_at(b, at::LOG_LEN) != 0) {
        return Err(Bad::Unknown(format!(
            "has sector size {sector_size} with kind of ledger {ledger}, which this program does \
             not know"
        )));
    }
    if u32_at(b, at::INCOMPATIBLE) != 0 || !all_zero(&b[at::RESERVED]) {
        return Err(Bad::Unknown(
            "has incompatible features that this program does not know".into(),
        ));
    }
    Ok(sector_size)
}

fn decode(b: &[u8]) -> Result<Super, Bad> {
    let sector_size = sector_size(b)?;
    let phase = match u32_at(b, at::STATE) {
        1 => Phase::Attaching,
        2 => Phase::Attached,
        3 => Phase::Detaching,
        4 => Phase::Detached,
        n => return Err(Bad::Other(format!("state {n}, which is none"))),
    };
    let mut uuids = [0; 32];
    uuids.copy_from_slice(&b[at::UUIDS]);
    let name = b[at::NAME].split(|c| *c == 0).next().unwrap_or_default();
    let path_len = u32_at(b, at::HOME_PATH_LEN) as usize;
    let Some(home_path) = b[at::HOME_PATH].get(..path_len) else {
        return Err(Bad::Other(format!(
            "the home's path has {path_len} bytes, there is room for 1024"
        )));
    };
    let extents = u64_at(b, at::EXTENT_COUNT);
    if extents > EXTENTS_MAX {
        return Err(Bad::Other(format!(
            "the file table has {extents} extents, there is room for {EXTENTS_MAX}"
        )));
    }
    let sb = Super {
        phase,
        sequence: u64_at(b, at::SEQUENCE),
        uuids,
        member: u32_at(b, at::MEMBER),
        members: u32_at(b, at::MEMBERS),
        seed: u64_at(b, at::SEED),
        len: u64_at(b, at::LEN),
        max_len: u64_at(b, at::MAX_LEN),
        unit: u64_at(b, at::UNIT),
        data_start: u64_at(b, at::DATA_START),
        lanes: u32_at(b, at::LANES),
        batches: u32_at(b, at::BATCHES),
        slots: u64_at(b, at::SLOTS),
        attaches: u64_at(b, at::ATTACHES),
        volatile: u32_at(b, at::FLAGS) & FLAG_VOLATILE != 0,
        ephemeral: u32_at(b, at::FLAGS) & FLAG_EPHEMERAL != 0,
        log: (u64_at(b, at::LOG_LEN), sector_size.into()),
        home: (u64_at(b, at::HOME_INO), u64_at(b, at::HOME_BTIME)),
        name: String::from_utf8_lossy(name).into_owned(),
        home_path: home_path.to_vec(),
        extents: (0..extents as usize).map(|n| u64_at(b, at::EXTENTS + n * 8)).collect(),
    };
    sb.sane().map(|()| sb).map_err(Bad::Other)
}

impl Super {
    /// Checks what later arithmetic relies on.
    fn sane(&self) -> Result<(), String> {
        let within = |what: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(format!("{what} is {value}, which is not within {least}..={most}"))
        };
        within("the number of members", self.members.into(), 1, 1 << 16)?;
        within("the number of this member", self.member.into(), 0, u64::from(self.members) - 1)?;
        within("the number of lanes", self.lanes.into(), 1, 1 << 16)?;
        within("the number of batch records", self.batches.into(), 1, 1 << 12)?;
        within("the number of file slots", self.slots, 1, 1 << 24)?;
        within("the allocation unit", self.unit, 32768, 1 << 30)?;
        within("the greatest length", self.max_len, 1, (1 << 48) - 1)?;
        within("the length", self.len, 1, self.max_len)?;
        within("the sequence", self.sequence, 0, (1 << 62) - 1)?;
        within("the attach count", self.attaches, 0, (1 << 30) - 1)?;
        if !self.unit.is_power_of_two() || !self.lanes.is_power_of_two() {
            return Err("the allocation unit or the number of lanes is no power of two".into());
        }
        let end = if self.member == 0 { self.slots_at() + self.slots * SLOT } else { LANES_AT };
        let (log, _) = self.log;
        if log > 0 {
            within("the length of the log", log, LOG_MIN, self.len)?;
            within("the number of members with a log", self.members.into(), 1, 1)?;
        }
        let start = end.next_multiple_of(self.unit) + log;
        if !log.is_multiple_of(self.unit) || self.data_start != start || self.data_start >= self.len
        {
            let (given, len) = (self.data_start, self.len);
            return Err(format!(
                "the units start at {given}, the counts give {start}, the length is {len}"
            ));
        }
        Ok(())
    }

    fn batches_at(&self) -> u64 {
        (LANES_AT + u64::from(self.lanes) * 128).next_multiple_of(FRAME)
    }

    fn slots_at(&self) -> u64 {
        self.batches_at() + u64::from(self.batches) * FRAME
    }

    /// Everything that must be the same on all members, whatever was interrupted.
    fn shape(&self) -> (u32, u64, u32, u32, u64) {
        (self.members, self.unit, self.lanes, self.batches, self.slots)
    }
}

/// Where things lie in a tier, as far as the superblocks can be believed.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) phase: Phase,
    /// It has clean copies only.
    pub(super) ephemeral: bool,
    pub(super) seed: u64,
    pub(super) uuid: [u8; 16],
    pub(super) home: (u64, u64),
    pub(super) unit: u64,
    pub(super) units: u64,
    pub(super) lanes: u32,
    pub(super) batches: u32,
    pub(super) slots: u64,
    batches_at: u64,
    slots_at: u64,
    /// The unit of each extent of the file table that lies in the tier.
    pub(super) extents: Vec<u64>,
    data_start: Vec<u64>,
    /// What makes the metadata durable, if it is not mapped.
    pub(super) log: Option<LogAt>,
}

impl Layout {
    pub(super) fn unit_frames(&self) -> u64 {
        self.unit / FRAME
    }

    pub(super) fn frames(&self) -> u64 {
        self.units * self.unit_frames()
    }

    pub(super) fn batch_at(&self, batch: u32) -> u64 {
        self.batches_at + u64::from(batch) * FRAME
    }

    /// Slots of an extent.
    fn per_extent(&self) -> u64 {
        self.unit / SLOT
    }

    /// Where a slot begins. Those past the table, of which only damaged records speak, have no
    /// place: the answer is that of the first.
    pub(super) fn slot_at(&self, slot: u64) -> Spot {
        let fixed = Spot { member: 0, offset: self.slots_at };
        let Some(beyond) = slot.checked_sub(self.slots) else {
            return Spot { offset: fixed.offset + slot * SLOT, ..fixed };
        };
        let unit =
            usize::try_from(beyond / self.per_extent()).ok().and_then(|n| self.extents.get(n));
        let Some(unit) = unit else { return fixed };
        let (member, offset) = self.locate(unit * self.unit_frames());
        Spot { member: member as u32, offset: offset + beyond % self.per_extent() * SLOT }
    }

    /// The slots that follow each other on a member: the first of them, and how many.
    pub(super) fn slot_runs(&self) -> Vec<(u64, u64)> {
        let mut runs = vec![(0, self.slots)];
        let extents = 0..self.extents.len() as u64;
        runs.extend(extents.map(|n| (self.slots + n * self.per_extent(), self.per_extent())));
        runs
    }

    /// Member and offset of a frame that the tier has.
    pub(super) fn locate(&self, frame: u64) -> (usize, u64) {
        let (unit, within) = (frame / self.unit_frames(), frame % self.unit_frames());
        let members = self.data_start.len() as u64;
        let member = (unit % members) as usize;
        (member, self.data_start[member] + unit / members * self.unit + within * FRAME)
    }
}

/// What the superblocks say.
pub(super) enum Opened {
    /// A tier; `order[n]` is the place of member `n` among the sources.
    Tier { layout: Box<Layout>, order: Vec<usize> },
    /// Nothing to look at further; the report says why.
    Nothing,
}

/// Reads the superblocks of all sources.
///
/// # Errors
/// When there is no tier to check: not one, of another version, members missing or foreign.
pub(super) fn open(
    sources: &[&dyn Source],
    options: &CheckOptions,
    report: &mut CheckReport,
) -> Result<Opened, CheckError> {
    let mut found: Vec<Option<Super>> = Vec::with_capacity(sources.len());
    let mut unformatted = 0;
    for (n, source) in sources.iter().enumerate() {
        match read_member(n, *source, options, report)? {
            Member::Super(sb) => found.push(Some(*sb)),
            Member::Unformatted => {
                found.push(None);
                unformatted += 1;
            }
            Member::Damaged => found.push(None),
        }
    }
    let Some(first) = found.iter().flatten().max_by_key(|sb| sb.sequence).cloned() else {
        report.summary.bytes = sources.iter().map(|source| source.len()).sum();
        return Ok(Opened::Nothing);
    };
    report.summary.tier = first.name.clone();
    report.summary.home = String::from_utf8_lossy(&first.home_path).into_owned();
    report.summary.state = first.phase.name().into();
    report.summary.members = first.members;
    report.summary.unit_bytes = first.unit;
    if first.volatile {
        // Clean copies that the next attach gives up: nothing in it is anybody's only copy.
        report.summary.state += ", volatile: nothing to check";
        return Ok(Opened::Nothing);
    }
    if first.ephemeral {
        report.summary.state += ", ephemeral: clean copies only";
    }
    // Formatting marks all superblocks and then writes them: a tier with some is in the middle of
    // it.
    if unformatted > 0
        && matches!(first.phase, Phase::Attaching | Phase::Detached)
        && !options.after_recovery
    {
        return Ok(Opened::Nothing);
    }
    let order = in_order(&found, &first)?;
    if found.iter().any(Option::is_none) {
        report.summary.bytes = sources.iter().map(|source| source.len()).sum();
        // Both copies of a member are gone, which the report says already; without them nothing can
        // be located.
        return Ok(Opened::Nothing);
    }
    let missing: Vec<String> = order
        .iter()
        .enumerate()
        .filter(|(_, place)| place.is_none())
        .map(|(n, _)| n.to_string())
        .collect();
    let order: Vec<usize> = order.into_iter().flatten().collect();
    if !missing.is_empty() {
        return Err(CheckError::WrongMembers(format!(
            "tier {:?} has {} members, {} were given; missing: number {}; give all of them",
            first.name,
            first.members,
            sources.len(),
            missing.join(", ")
        )));
    }
    let members: Vec<Super> =
        order.iter().filter_map(|n| found.get_mut(*n).and_then(Option::take)).collect();
    agree(&members, &first, options, report);
    Ok(lay_out(&members, sources, &order, &first, options, report))
}

/// Which of the superblocks found is that of each member.
fn in_order(found: &[Option<Super>], first: &Super) -> Result<Vec<Option<usize>>, CheckError> {
    let mut order: Vec<Option<usize>> = vec![None; first.members as usize];
    for (n, sb) in found.iter().enumerate() {
        let Some(sb) = sb else { continue };
        if sb.uuids[..at::UUID] != first.uuids[..at::UUID] || sb.shape() != first.shape() {
            return Err(CheckError::WrongMembers(format!(
                "member {n} of those given belongs to tier {:?}, another one to tier {:?}; give \
                 the members of one tier",
                sb.name, first.name
            )));
        }
        let place = order
            .get_mut(sb.member as usize)
            .expect("BUG: a sane superblock is below the member count");
        if let Some(other) = place.replace(n) {
            return Err(CheckError::WrongMembers(format!(
                "the members given as {other} and {n} both say they are member {}; give each \
                 member once and no copies",
                sb.member
            )));
        }
    }
    Ok(order)
}

enum Member {
    Super(Box<Super>),
    Unformatted,
    Damaged,
}

fn read_member(
    n: usize,
    source: &dyn Source,
    options: &CheckOptions,
    report: &mut CheckReport,
) -> Result<Member, CheckError> {
    let mut space = Vec::new();
    let copies = COPY_AT.map(|at| match source.view(at, COPY, &mut space) {
        Ok(bytes) => decode(bytes),
        Err(e) => Err(Bad::Other(format!("cannot be read: {e}"))),
    });
    let place = |structure: &str, offset| Place {
        member: Some(n as u32),
        offset,
        structure: structure.into(),
        ..Place::default()
    };
    // One copy is enough: a program that knows the format may not have come to write the other.
    match &copies {
        [Err(Bad::Version(found)), _] | [_, Err(Bad::Version(found))] => {
            return Err(CheckError::Version { member: n, found: *found, known: VERSION });
        }
        [Err(Bad::Unknown(why)), _] | [_, Err(Bad::Unknown(why))] => {
            return Err(CheckError::Unknown { member: n, why: why.clone() });
        }
        [Err(Bad::Development), _] | [_, Err(Bad::Development)] => {
            return Err(CheckError::Development { member: n });
        }
        _ => {}
    }
    match copies {
        [Ok(a), Ok(b)] if a == b => Ok(Member::Super(Box::new(a))),
        [Ok(a), Ok(b)] => {
            Ok(two_versions(&a, &b, place("superblock, copies 0 and 1", Some(0)), options, report))
        }
        [Ok(good), Err(bad)] => {
            Ok(one_copy(good, 1, &bad, place("superblock, copy 1", Some(4096)), options, report))
        }
        [Err(bad), Ok(good)] => {
            Ok(one_copy(good, 0, &bad, place("superblock, copy 0", Some(0)), options, report))
        }
        [Err(a @ Bad::Magic(start)), Err(b @ Bad::Magic(_))]
            if !a.is_format_mark() && !b.is_format_mark() =>
        {
            Err(CheckError::NotATier {
                member: n,
                why: format!("it begins with \"{}\" instead of \"TSMITHST\"", start.escape_ascii()),
            })
        }
        [Err(a), Err(b)] => {
            let place = place("superblock, copies 0 and 1", Some(0));
            no_copy(n, [&a, &b], place, options, report)
        }
    }
}

/// The newer of two copies that differ.
fn two_versions(
    a: &Super,
    b: &Super,
    place: Place,
    options: &CheckOptions,
    report: &mut CheckReport,
) -> Member {
    let (older, newer) = if a.sequence < b.sequence { (a, b) } else { (b, a) };
    let torn = older.sequence != newer.sequence;
    report.add(
        options.findings_max,
        Finding {
            severity: if torn { Severity::Note } else { Severity::Inconsistent },
            invariant: 1,
            place,
            expected: "two equal copies".into(),
            found: format!("sequence {} and {}", a.sequence, b.sequence),
            meaning: if torn {
                "an update of the superblock was interrupted; the newer copy is used".into()
            } else {
                "two versions of the superblock claim to be the newest; copy 0 was used \
                 here"
                    .into()
            },
            remedy: "attach the tier once; both copies are then written again".into(),
        },
    );
    Member::Super(Box::new(newer.clone()))
}

/// Neither copy can be used.
fn no_copy(
    n: usize,
    [a, b]: [&Bad; 2],
    place: Place,
    options: &CheckOptions,
    report: &mut CheckReport,
) -> Result<Member, CheckError> {
    let emptied = matches!(a, Bad::Zero) || matches!(b, Bad::Zero);
    let marked = a.is_format_mark() || b.is_format_mark();
    if !options.was_formatted && (marked || (emptied && !options.after_recovery)) {
        report.add(
            options.findings_max,
            Finding {
                severity: Severity::Note,
                invariant: 1,
                place,
                expected: "a superblock".into(),
                found: format!("copy 0: {a}; copy 1: {b}"),
                meaning: "formatting of the tier was interrupted or never began; it holds \
                     nothing yet"
                    .into(),
                remedy: "attach again".into(),
            },
        );
        return Ok(Member::Unformatted);
    }
    if !options.was_formatted && matches!((a, b), (Bad::Zero, Bad::Zero)) {
        return Err(CheckError::NotATier {
            member: n,
            why: "both superblock copies are zero".into(),
        });
    }
    report.add(
        options.findings_max,
        Finding {
            severity: Severity::Damage,
            invariant: 1,
            place,
            expected: "at least one copy with a right checksum".into(),
            found: format!("copy 0: {a}; copy 1: {b}"),
            meaning: "the tier cannot be read: its Dirty blocks, newer than the home \
                      files, are out of reach"
                .into(),
            remedy: "restore this member from a copy of the medium, or the home from a \
                     backup"
                .into(),
        },
    );
    report.summary.stake_is_unknown = true;
    Ok(Member::Damaged)
}

fn one_copy(
    good: Super,
    copy: usize,
    bad: &Bad,
    place: Place,
    options: &CheckOptions,
    report: &mut CheckReport,
) -> Member {
    report.add(
        options.findings_max,
        Finding {
            severity: Severity::Note,
            invariant: 1,
            place,
            expected: format!("a copy of the superblock in copy {}", 1 - copy),
            found: bad.to_string(),
            meaning: "no data is affected; the other copy is used".into(),
            remedy: "attach the tier once; both copies are then written again".into(),
        },
    );
    Member::Super(Box::new(good))
}

/// Invariant 2: what may differ only while an update of the superblocks is under way.
fn agree(members: &[Super], newest: &Super, options: &CheckOptions, report: &mut CheckReport) {
    for sb in members {
        let differs = [
            ("sequence", sb.sequence != newest.sequence),
            ("state", sb.phase != newest.phase),
            ("attachment", sb.uuids != newest.uuids),
            ("seed", sb.seed != newest.seed),
            ("length", sb.len != newest.len || sb.max_len != newest.max_len),
            ("home", sb.home != newest.home || sb.home_path != newest.home_path),
            ("name", sb.name != newest.name),
            ("file table", sb.extents != newest.extents),
        ];
        let named: Vec<&str> = differs.iter().filter(|(_, d)| *d).map(|(name, _)| *name).collect();
        if named.is_empty() {
            continue;
        }
        let torn = !options.after_recovery && sb.sequence != newest.sequence;
        report.add(
            options.findings_max,
            Finding {
                severity: if torn { Severity::Note } else { Severity::Inconsistent },
                invariant: 2,
                place: Place {
                    member: Some(sb.member),
                    offset: Some(0),
                    structure: "superblock".into(),
                    ..Place::default()
                },
                expected: format!(
                    "the same as on member {} (sequence {})",
                    newest.member, newest.sequence
                ),
                found: format!("another {} (sequence {})", named.join(", "), sb.sequence),
                meaning: "an update reached some members only, or a member is an older copy; with \
                          an older copy, blocks \
                          on it are out of date"
                    .into(),
                remedy: "if no member was replaced by a copy, attach once; else bring the right \
                         member back"
                    .into(),
            },
        );
    }
}

/// Limits the layout to the bytes that are really there.
fn lay_out(
    members: &[Super],
    sources: &[&dyn Source],
    order: &[usize],
    newest: &Super,
    options: &CheckOptions,
    report: &mut CheckReport,
) -> Opened {
    let mut units = u64::MAX;
    for (sb, at) in members.iter().zip(order) {
        let there = sources.get(*at).map_or(0, |s| s.len());
        report.summary.bytes += sb.len.max(there);
        if there < sb.len {
            report.add(
                options.findings_max,
                Finding {
                    severity: Severity::Damage,
                    invariant: 2,
                    place: Place {
                        member: Some(sb.member),
                        structure: "member".into(),
                        ..Place::default()
                    },
                    expected: format!("at least {} bytes", sb.len),
                    found: format!("{there} bytes"),
                    meaning: "the member was cut short; blocks that lay past its end are gone"
                        .into(),
                    remedy: "restore the member to its full length from a copy".into(),
                },
            );
        }
        // Counting the last unit of a truncated member: its first blocks may be there.
        let whole = sb.len.saturating_sub(sb.data_start) / sb.unit;
        units = units.min(there.saturating_sub(sb.data_start).div_ceil(sb.unit).min(whole));
    }
    let Some(zero) = members.first() else { return Opened::Nothing };
    let extents = extents(members, zero, units, options, report);
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&newest.uuids[..at::UUID]);
    let layout = Layout {
        phase: newest.phase,
        ephemeral: newest.ephemeral,
        seed: newest.seed,
        uuid,
        home: newest.home,
        unit: newest.unit,
        units: units * members.len() as u64,
        lanes: zero.lanes,
        batches: zero.batches,
        slots: zero.slots,
        batches_at: zero.batches_at(),
        slots_at: zero.slots_at(),
        extents,
        data_start: members.iter().map(|sb| sb.data_start).collect(),
        log: Some(zero.log).filter(|(len, _)| *len > 0).map(|(len, sector)| LogAt {
            at: zero.data_start - len,
            len,
            sector,
            seed: newest.seed,
            uuid,
            front: LANES_AT,
        }),
    };
    report.summary.units = layout.units;
    report.summary.frames_total = layout.frames();
    Opened::Tier { layout: Box::new(layout), order: order.to_vec() }
}

/// The extents of the file table that are within the `units` of each member.
fn extents(
    members: &[Super],
    zero: &Super,
    units: u64,
    options: &CheckOptions,
    report: &mut CheckReport,
) -> Vec<u64> {
    // Of a growth that was cut some members do not name the new extent yet: it has no files.
    let named = |n: &usize| members.iter().all(|sb| sb.extents.get(*n) == zero.extents.get(*n));
    let count = (0..zero.extents.len()).take_while(named).count();
    let mut extents: Vec<u64> = zero.extents.iter().take(count).copied().collect();
    if let Some(bad) = extents.iter().position(|unit| *unit >= units * members.len() as u64) {
        let found = format!("extent {bad} is unit {}", extents[bad]);
        extents.truncate(bad);
        report.add(
            options.findings_max,
            Finding {
                severity: Severity::Damage,
                invariant: 22,
                place: Place {
                    offset: Some(0),
                    structure: "superblock".into(),
                    ..Place::default()
                },
                expected: format!(
                    "extents of the file table below unit {}",
                    units * members.len() as u64
                ),
                found,
                meaning: "files that have their slots there, and from there on, are out of reach \
                          with their blocks in the tier"
                    .into(),
                remedy: "restore the members from a copy of the medium".into(),
            },
        );
    }
    extents
}
