//! Formatting a tier, opening it, and its superblocks.
//!
//! Deliberately not here: what the records and maps of an existing tier say ([`crate::recover`]).

use super::geometry::Geometry;
use super::table::FileTable;
use super::{Member, Tier};
use crate::address::FRAME;
use crate::cache::budget::Budget;
use crate::cache::policy::{Chosen, Policy};
use crate::cache::what_if::Miniatures;
use crate::error::{Error, MediumError, Result};
use crate::format::entry::{Place, seal_value};
use crate::format::record::BATCH_RECORD;
use crate::format::slot::SLOT;
use crate::format::superblock::{
    COPY_AT, FLAG_EMULATED, FLAG_EPHEMERAL, FLAG_VOLATILE, FORMATTING, LANES_AT, MAGIC, SUPERBLOCK,
    Superblock, TierState, Unusable,
};
use crate::medium::held::Held;
use crate::medium::log::{Log, Place as LogPlace};
use crate::medium::{
    Backing, BlockMedium, Durability, Mapped, Medium, OnSectors, Opening, is_persistent_memory,
};
use crate::options::{Options, TierSpec};
use crate::planted::Planted;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::tier::alloc::Census;
use rustix::fs::FileType;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The members of a tier as found, before it is known whose they are.
pub(crate) struct Found {
    pub(crate) members: Vec<Member>,
    /// The superblocks in member order, of a volatile tier those that are there; `None` for a tier
    /// never formatted.
    pub(crate) superblocks: Option<Vec<Superblock>>,
}

/// One file or device as two members, whatever it is called: the second would be said to be in use
/// by this very process.
pub(crate) fn refuse_twice(tiers: &[TierSpec]) -> Result<()> {
    #[derive(PartialEq, Eq, Hash)]
    enum Which<'a> {
        File(u64, u64),
        /// Nothing is there yet.
        Place(PathBuf, Option<&'a std::ffi::OsStr>),
    }
    let mut seen = HashMap::new();
    for path in tiers.iter().flat_map(|spec| &spec.members) {
        let which = match std::fs::metadata(path) {
            Ok(found) => Which::File(found.dev(), found.ino()),
            Err(_) => {
                let parent =
                    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
                let Ok(parent) = parent.canonicalize() else { continue };
                Which::Place(parent, path.file_name())
            }
        };
        if let Some(other) = seen.insert(which, path) {
            return Err(Error::Options(format!(
                "{} and {} are one and the same, a member is named twice; name each once",
                other.display(),
                path.display()
            )));
        }
    }
    Ok(())
}

/// Opens the members a specification names, at their `places`. A device is mapped whole, a file in
/// the length it has; one that is empty or missing gets the size of the specification. `owner` as
/// in [`crate::Options::members_of`]; `made` gets what was opened, also when a later one fails.
pub(crate) fn map_members(
    spec: &TierSpec,
    places: &[Held],
    owner: Option<u32>,
    made: &mut Vec<Option<tiersmith_dir::Found>>,
) -> Result<Vec<Member>> {
    let mut map = |place: &Held| {
        let device = place.was(FileType::CharacterDevice).is_some();
        let existing =
            place.was(FileType::RegularFile).map_or(0, |was| was.st_size.cast_unsigned());
        let wanted = if existing == 0 { spec.size } else { existing };
        let is_block_device = place.was(FileType::BlockDevice).is_some();
        // Its place is below a DAX file system: that says the mapping, which refuses it.
        let is_memory = is_block_device && is_persistent_memory(&place.path);
        let is_raw = is_block_device && !is_memory;
        if is_raw && matches!(spec.medium, Medium::Emulated | Medium::Volatile) {
            return Err(Error::Options(format!(
                "{} is a block device, which can be flash or ephemeral only; leave emulate and \
                 volatile out, or give a file",
                place.path.display()
            )));
        }
        if is_raw && spec.medium == Medium::Persistent {
            let (path, file_system) = (place.path.clone(), "a block device".into());
            return Err(MediumError::NotDax { path, file_system }.into());
        }
        if spec.medium.is_on_disk() && !is_memory {
            let (len, max_len) =
                (if existing == 0 { wanted } else { 0 }, spec.max_size.max(wanted));
            let medium = match is_raw {
                true => OnSectors::open_raw(place, owner, spec.overwrite_device.as_deref())?,
                false => OnSectors::open(place, len, max_len, owner)?,
            };
            made.push(medium.file().and_then(|file| tiersmith_dir::Found::of(file).ok()));
            let medium = Backing::OnSectors(Box::new(medium));
            return Ok(Member { medium, path: place.path.clone() });
        }
        let medium = Mapped::open(Opening {
            path: &place.path,
            directory: place.directory().map_err(Error::io("cannot hold", &place.path))?,
            kind: if is_memory { Medium::Persistent } else { spec.medium },
            // A device's metadata says 0 bytes; zero asks for all it has.
            len: if device || is_memory { 0 } else { wanted / FRAME as u64 * FRAME as u64 },
            max_len: spec.max_size,
            create: existing == 0 && !device && !is_memory,
            preallocate: spec.preallocate,
            owner,
        })?;
        made.push(medium.file().and_then(|file| tiersmith_dir::Found::of(file).ok()));
        Ok(Member { medium: Backing::Mapped(medium), path: place.path.clone() })
    };
    places.iter().map(&mut map).collect()
}

/// Reads the superblocks of `members` and checks that they belong together.
pub(crate) fn read_superblocks(members: Vec<Member>, spec: &TierSpec) -> Result<Found> {
    let mut superblocks = Vec::new();
    let mut empty = Vec::new();
    for (n, member) in members.iter().enumerate() {
        match read_member(n, member, spec)? {
            Some(superblock) => superblocks.push(superblock),
            None => empty.push(member.path.display().to_string()),
        }
    }
    if superblocks.is_empty() {
        return Ok(Found { members, superblocks: None });
    }
    let unused = |sb: &Superblock| matches!(sb.state, TierState::Detached | TierState::Attaching);
    if superblocks.len() < members.len() && superblocks.iter().all(unused) {
        return Ok(Found { members, superblocks: None });
    }
    let clean_copies = |sb: &Superblock| unused(sb) || sb.flags & FLAG_VOLATILE != 0;
    if !empty.is_empty() && spec.medium == Medium::Volatile && superblocks.iter().all(clean_copies)
    {
        // A volatile tier is formatted at every attach, member by member: one that was killed then
        // leaves some without a superblock.
        return Ok(Found { members, superblocks: Some(superblocks) });
    }
    if let Some(path) = empty.first() {
        return Err(Error::WrongTier(format!(
            "there is nothing on {path}, and the other members are of tier `{}` and in use; give \
             that member's file or device as \
             it was, mounted",
            superblocks[0].name
        )));
    }
    fit(&members, &superblocks, spec)?;
    Ok(Found { members, superblocks: Some(superblocks) })
}

/// The superblock of member `n`; `None`: it may be formatted.
fn read_member(n: usize, member: &Member, spec: &TierSpec) -> Result<Option<Superblock>> {
    let medium = &member.medium;
    if medium.len() < LANES_AT + FRAME as u64 {
        return Err(Error::Options(format!(
            "{} has {} bytes, a tier member needs at least {}",
            member.path.display(),
            medium.len(),
            spec_minimum(spec, medium.len())
        )));
    }
    let mut unreadable = None;
    let copies: Vec<_> = COPY_AT
        .iter()
        .map(|at| {
            let mut bytes = [0; SUPERBLOCK];
            match medium.mapped().read_checked(*at, &mut bytes) {
                Ok(()) => (bytes, Superblock::decode(&bytes)),
                Err(e) => {
                    let why = e.to_string();
                    unreadable = Some(e);
                    (bytes, Err(Unusable::Damaged(why)))
                }
            }
        })
        .collect();
    // Even one copy counts, and even to overwrite: a program that knows the format may have
    // been stopped before it had written the other one, and the tier may hold the only copy of
    // a block.
    let other_format = copies.iter().find_map(|(_, sb)| match sb {
        Err(Unusable::OtherFormat(why)) => Some(why.clone()),
        _ => None,
    });
    if let Some(reason) = other_format {
        return Err(Error::OtherFormat { path: member.path.clone(), reason });
    }
    let newest = copies.iter().filter_map(|(_, sb)| sb.as_ref().ok()).max_by_key(|sb| sb.seq);
    if let Some(sb) = newest {
        if copies.iter().any(|(_, sb)| sb.is_err()) {
            log::warn!(
                "{}: one copy of the superblock is damaged or was being written; the other is \
                 used and both are rewritten",
                member.path.display()
            );
        }
        return Ok(Some(sb.clone()));
    }
    if let Some(e) = unreadable {
        // Unreadable is not empty: it must not be formatted.
        return Err(e);
    }
    // The marks go in one after the other; then copy 1 keeps its mark while copy 0 is written,
    // and is written when copy 0 is whole.
    let cut_while_formatting = copies.iter().any(|(bytes, _)| &bytes[..8] == FORMATTING);
    let nothing = copies.iter().all(|(bytes, _)| bytes.iter().all(|b| *b == 0));
    let given_up = medium.on_sectors().is_some_and(OnSectors::must_clear);
    if nothing || cut_while_formatting || spec.overwrite || given_up {
        return Ok(None);
    }
    let why = |n: usize| copies[n].1.as_ref().err().map(Unusable::to_string).unwrap_or_default();
    if copies.iter().any(|(bytes, _)| &bytes[..8] == MAGIC) {
        return Err(Error::Damaged {
            path: member.path.clone(),
            member: n,
            offset: 0,
            structure: "superblock".into(),
            detail: format!("copy 0: {}; copy 1: {}", why(0), why(1)),
        });
    }
    Err(Error::NotATier { path: member.path.clone(), reason: why(0) })
}

fn spec_minimum(spec: &TierSpec, len: u64) -> u64 {
    let front =
        Geometry::data_start_for(0, spec.lanes, spec.batches, spec.slot_count(len, 0), spec.unit);
    front + spec.log_len(len) + 4 * spec.unit
}

/// Before members are made a tier again: both copies of all of them say `detached`. A detach that
/// was ended between two members, or between two copies, left one that does not, and it would look
/// in use beside one whose marks the making had written already.
///
/// # Durability
/// Durable on return; a cut leaves the old or the new state, member by member.
fn let_go(members: &[Member], mut superblocks: Vec<Superblock>) {
    if superblocks.len() != members.len() {
        return;
    }
    for sb in &mut superblocks {
        sb.state = TierState::Detached;
        sb.seq += 1;
    }
    write_superblocks(members, &superblocks, Planted::None);
}

/// All members are there, in order, of one tier, and as long as the superblocks say.
fn fit(members: &[Member], superblocks: &[Superblock], spec: &TierSpec) -> Result<()> {
    let first = &superblocks[0];
    if first.members as usize != members.len() {
        let given: Vec<String> = members.iter().map(|m| m.path.display().to_string()).collect();
        return Err(Error::WrongTier(format!(
            "tier `{}` has {} members, and {} were given ({}); name all members, in the order in \
             which it was made",
            first.name,
            first.members,
            members.len(),
            given.join(", ")
        )));
    }
    for (n, (sb, member)) in superblocks.iter().zip(members).enumerate() {
        let path = member.path.display();
        if sb.tier_uuid != first.tier_uuid {
            return Err(Error::WrongTier(format!("{path} belongs to another tier, `{}`", sb.name)));
        }
        if sb.member as usize != n {
            return Err(Error::WrongTier(format!(
                "{path} is member {} and was given as member {n}; name the members in the order in \
                 which the tier was made",
                sb.member
            )));
        }
        if member.medium.len() < sb.len {
            return Err(Error::WrongTier(format!(
                "{path} has {} bytes and had {} when last used; it was cut short, restore it to \
                 its full length",
                member.medium.len(),
                sb.len
            )));
        }
        fit_log(sb, member)?;
        let front = Geometry::data_start_for(n as u32, sb.lanes, sb.batches, sb.slots, sb.unit);
        let expected = front + sb.log_len;
        if sb.data_start != expected {
            return Err(Error::Damaged {
                path: member.path.clone(),
                member: n,
                offset: 0,
                structure: "superblock".into(),
                detail: format!("units begin at {}, the counts give {expected}", sb.data_start),
            });
        }
        if sb.flags & FLAG_EMULATED != 0
            && spec.medium != Medium::Emulated
            && sb.state != TierState::Detached
        {
            return Err(Error::WrongTier(format!(
                "{path} was attached as emulated persistent memory; attach it with emulate again"
            )));
        }
        let is_ephemeral = sb.flags & FLAG_EPHEMERAL != 0;
        if sb.state != TierState::Detached && is_ephemeral != (spec.medium == Medium::Ephemeral) {
            let (was, is) = match is_ephemeral {
                true => ("ephemeral, with clean copies only", "not"),
                false => ("a tier that may have the only copy of a block", "as ephemeral"),
            };
            return Err(Error::WrongTier(format!(
                "{path} was attached as {was}, and is given {is}; give it as it was, or detach \
                 first"
            )));
        }
    }
    Ok(())
}

/// A member with a log is on flash, and one without is not.
fn fit_log(sb: &Superblock, member: &Member) -> Result<()> {
    let (path, wrong) = (member.path.display(), |why| Err(Error::WrongTier(why)));
    let found = member.medium.sector_size();
    match (member.medium.log().is_some(), sb.log_len > 0) {
        (true, true) if found != sb.sector_size => wrong(format!(
            "{path} was made with sectors of {} bytes and has sectors of {found}; give the device \
             that it was made on",
            sb.sector_size
        )),
        (true, false) => wrong(format!(
            "{path} was attached as memory, not as flash; attach it as it was: with emulate, or on \
             its DAX file system"
        )),
        (false, true) => {
            wrong(format!("{path} was attached as flash; attach it without emulate or volatile"))
        }
        _ => Ok(()),
    }
}

/// The log of each member that has one.
fn log_places<'a>(
    members: &'a [Member],
    superblocks: &'a [Superblock],
    planted: Planted,
) -> impl Iterator<Item = (&'a Member, LogPlace)> {
    members.iter().zip(superblocks).filter(|(_, sb)| sb.log_len > 0).map(move |(member, sb)| {
        let Superblock { tier_uuid, seed, log_len: len, data_start, .. } = *sb;
        (member, LogPlace { at: data_start - len, len, tier_uuid, seed, planted })
    })
}

/// The uuid of the tier that [`format()`] makes with these random numbers.
pub(crate) fn uuid_of(random: [u64; 3]) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&random[0].to_le_bytes());
    uuid[8..].copy_from_slice(&random[1].to_le_bytes());
    uuid
}

/// Writes empty structures and superblocks in state `Attaching`; the home has so many `files` for
/// this tier.
///
/// # Durability
/// Durable on return. A cut before leaves no valid superblock, or the old one in state `Detached`
/// or `Attaching`; the tier is then formatted again.
pub(crate) fn format(
    members: &[Member],
    before: Vec<Superblock>,
    spec: &TierSpec,
    attachment: [u8; 16],
    random: [u64; 3],
    home: (u64, u64, &[u8]),
    files: u64,
) -> Result<Vec<Superblock>> {
    let len = members.iter().map(|m| m.medium.len()).min().unwrap_or(0);
    // A block device is used whole, whatever size a file would get.
    let raw = members.iter().filter_map(|m| m.medium.on_sectors()).any(OnSectors::is_raw);
    let whole = TierSpec { size: len, max_size: len, grow_by: 0, ..spec.clone() };
    let spec = if raw { &whole } else { spec };
    let minimum = spec_minimum(spec, len);
    if len < minimum {
        return Err(Error::Options(format!(
            "each member of tier `{}` needs at least {minimum} bytes, the smallest has {len}; give \
             a larger size",
            spec.name
        )));
    }
    let slots = spec.slot_count(len, files);
    let superblocks = new_superblocks(members, spec, (len, slots), attachment, random, home);
    let geometry = Geometry::new(&superblocks);
    let first = members[0].medium.mapped();
    for (member, start) in members.iter().zip(&geometry.data_start) {
        member.medium.mapped().set_metadata_range(*start);
    }
    members.iter().filter_map(|m| m.medium.on_sectors()).try_for_each(OnSectors::take_over)?;
    let_go(members, before);
    // The old superblocks go first, an 8-byte word each: a cut among the new structures leaves
    // neither them under an old superblock nor something that could be anybody's.
    for at in COPY_AT {
        for member in members {
            let medium = member.medium.mapped();
            medium.store_word(at, u64::from_le_bytes(*FORMATTING));
            medium.flush_word(at);
        }
        first.fence();
    }
    // Nothing of them may stay behind the marks: the new mark is the old one, so the first words of
    // a new copy to arrive would make the old one whole again.
    for at in COPY_AT {
        for member in members {
            member
                .medium
                .mapped()
                .zero_meta(at + FORMATTING.len() as u64, SUPERBLOCK - FORMATTING.len());
        }
    }
    first.zero_meta(LANES_AT, (geometry.lanes as usize) * 128);
    for batch in 0..geometry.batches {
        first.zero_meta(geometry.batch_at(batch), BATCH_RECORD);
    }
    let mut empty = [0; SLOT];
    for slot in 0..slots {
        empty[..8]
            .copy_from_slice(&seal_value(geometry.seed, 0, Place::Slot(slot), 0).to_le_bytes());
        first.write_meta(geometry.slot_at(slot), &empty);
    }
    first.fence();
    for (member, place) in log_places(members, &superblocks, Planted::None) {
        let log = member.medium.log().expect("BUG: who has a place for a log has one");
        log.check()?;
        log.begin_anew(place)?;
    }
    write_superblocks(members, &superblocks, Planted::None);
    members.iter().filter_map(|member| member.medium.log()).try_for_each(Log::check)?;
    members.iter().filter_map(|m| m.medium.on_sectors()).for_each(OnSectors::formatted);
    Ok(superblocks)
}

/// The superblocks of members that get `len` bytes each and so many slots of the file table.
fn new_superblocks(
    members: &[Member],
    spec: &TierSpec,
    (len, slots): (u64, u64),
    attachment: [u8; 16],
    random: [u64; 3],
    home: (u64, u64, &[u8]),
) -> Vec<Superblock> {
    // A device does not grow.
    let reachable = members.iter().map(|m| m.medium.max_len()).min().unwrap_or(len);
    let tier_uuid = uuid_of(random);
    (0..members.len() as u32)
        .map(|n| Superblock {
            state: TierState::Attaching,
            seq: 1,
            tier_uuid,
            attachment,
            member: n,
            members: members.len() as u32,
            seed: random[2],
            len,
            max_len: reachable.min(spec.max_size.max(len)),
            grow_by: spec.grow_by,
            unit: spec.unit,
            data_start: Geometry::data_start_for(n, spec.lanes, spec.batches, slots, spec.unit)
                + spec.log_len(len),
            sector_size: members[n as usize].medium.sector_size()
                * u32::from(spec.log_len(len) > 0),
            log_len: spec.log_len(len),
            lanes: spec.lanes,
            batches: spec.batches,
            slots,
            attach_count: 0,
            flags: match spec.medium {
                Medium::Persistent | Medium::Flash => 0,
                Medium::Emulated => FLAG_EMULATED,
                Medium::Volatile => FLAG_VOLATILE,
                Medium::Ephemeral => FLAG_EPHEMERAL,
            },
            home_ino: home.0,
            home_btime_ns: home.1,
            name: spec.name.clone(),
            home_path: home.2.to_vec(),
            extents: Vec::new(),
        })
        .collect()
}

/// Writes both copies of every superblock, one copy of all after the other. Of each member the
/// newest whole copy comes last: a cut among earlier writes may have left the other one in parts,
/// and a second cut here must not leave both so.
///
/// # Durability
/// Durable on return; a cut leaves the old or the new one, member by member.
pub(crate) fn write_superblocks(members: &[Member], superblocks: &[Superblock], planted: Planted) {
    let orders: Vec<[u64; 2]> = members.iter().map(newest_last).collect();
    for turn in 0..COPY_AT.len() {
        for ((member, sb), order) in members.iter().zip(superblocks).zip(&orders) {
            member.medium.mapped().write_meta(order[turn], &sb.encode());
        }
        if turn > 0 || !planted.is(Planted::SuperblocksTogether) {
            members[0].medium.mapped().fence();
        }
    }
}

/// The places of a member's copies, in the order in which they may be written.
fn newest_last(member: &Member) -> [u64; 2] {
    let [first, second] = COPY_AT;
    let [a, b] = COPY_AT.map(|at| {
        let mut bytes = [0; SUPERBLOCK];
        member.medium.mapped().read_checked(at, &mut bytes).ok()?;
        Superblock::decode(&bytes).ok().map(|sb| sb.seq)
    });
    // A copy that is not whole is older than any.
    if a > b { [second, first] } else { [first, second] }
}

/// When a write to a tier of these members is durable.
pub(crate) fn durability(members: &[Member], spec: &TierSpec) -> Durability {
    if spec.medium == Medium::Ephemeral {
        return Durability::Never;
    }
    let each = members.iter().map(|member| member.medium.durability());
    each.fold(Durability::OnReturn, Durability::and)
}

/// A tier in DRAM, its allocator empty until the maps have been read.
pub(crate) fn assemble(
    members: Vec<Member>,
    mut superblocks: Vec<Superblock>,
    spec: &TierSpec,
    options: &Options,
) -> Result<Tier> {
    let planted = options.planted;
    // A cut while they were written leaves members that differ: the shortest length counts, and the
    // next update makes them equal.
    let len = superblocks.iter().map(|sb| sb.len).min().unwrap_or(0);
    let seq = superblocks.iter().map(|sb| sb.seq).max().unwrap_or(0);
    let attach_count = superblocks.iter().map(|sb| sb.attach_count).max().unwrap_or(0);
    for sb in &mut superblocks {
        (sb.len, sb.seq, sb.attach_count) = (len, seq, attach_count);
    }
    for (member, place) in log_places(&members, &superblocks, planted) {
        member.medium.mapped().begin_log(place)?;
    }
    let table = FileTable::of(&mut superblocks);
    let geometry = Geometry::new(&superblocks);
    for (member, start) in members.iter().zip(&geometry.data_start) {
        member.medium.mapped().set_metadata_range(*start);
    }
    let first = &superblocks[0];
    let durability = durability(&members, spec);
    let allocator = Census::new(&geometry, first.data_start).into_allocator();
    // The allocator has nothing before the maps are read.
    let frames_of = |len| geometry.units(len) * geometry.unit_frames();
    let frames = frames_of(len);
    Ok(Tier {
        name: first.name.clone(),
        seed: first.seed,
        policy: Chosen::of_tier(frames, frames_of(first.max_len)),
        budget: options.write_budget.filter(|_| spec.holds_data).map(Budget::of),
        // Only reads of data files are played.
        what_if: Miniatures::of_tier(
            if spec.holds_data { frames } else { 0 },
            options.what_if_one_in,
            options.background,
        ),
        hands: Mutex::default(),
        kept_went: AtomicBool::new(false),
        staying: AtomicU64::new(0),
        allocator,
        table: Mutex::new(table),
        making_slots: Mutex::new(()),
        room: Mutex::new(()),
        lent_dir: None,
        lent_in: None,
        holds_redo: spec.holds_redo && durability.may_hold_only_copy(),
        holds_data: spec.holds_data,
        retired: Mutex::default(),
        has_log: members.iter().any(|m| m.medium.log().is_some()),
        is_quick: members.iter().all(|m| m.medium.is_quick()),
        is_on_device: members.iter().any(|m| m.medium.memory().is_none()),
        durability,
        emulated: spec.medium == Medium::Emulated,
        given_up: Mutex::default(),
        superblocks: Mutex::new(superblocks),
        members,
        geometry,
        planted,
    })
}

impl Tier {
    /// Changes the superblocks of all members.
    ///
    /// # Durability
    /// Durable on return; a cut leaves the old or the new one, member by member.
    pub(crate) fn update_superblocks(&self, change: impl Fn(&mut Superblock)) {
        let mut superblocks = self.superblocks.lock();
        for sb in superblocks.iter_mut() {
            change(sb);
            sb.seq += 1;
        }
        write_superblocks(&self.members, &superblocks, self.planted);
    }
}
