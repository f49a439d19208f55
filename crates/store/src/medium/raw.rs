//! A block device as a member: whether it is a tier of ours, free, or somebody else's.
//!
//! # What is taken, and what is refused
//!
//! | the superblock's copies | somebody else's mark | what is done |
//! |---|---|---|
//! | both whole, in use | none in front of the tier or behind it | used |
//! | one whole, in use | the same | the same; the other copy is written again |
//! | whole, in use | some | refused, whatever the user says, with the command that takes the mark away |
//! | whole, free | none, no data where the other copy was, and zeros in the last MiB | formatted |
//! | marked as being formatted | the same | formatted |
//! | ours, and damaged | none | refused as damaged |
//! | none | none, also 1 MiB further, and zeros at both ends and wherever else is looked | formatted |
//! | any of the last four | some, or data | refused, unless the user says that it is this device; then cleared and formatted |
//!
//! "In use" is `attached` or `detaching`. A tier in state `attaching` has no blocks.
//!
//! Besides, what is formatted has no partition with a tier in use, is no partition of one and not
//! over one as a loop device; nobody else has it open, and nothing may be a use of it
//! ([`Raw::doubt`]), which a tier in use is only warned of.
//!
//! A device that was copied byte by byte has a tier twice. Other devices are not read to find out:
//! one of them may hang, and nobody could tell which is the copy. What is here is told from an
//! older copy by the number of its attach, which the home's note has (`note.rs` above).
//!
//! **Invariants**: nothing is written before the store formats the tier; a device with somebody
//! else's mark is cleared first, in the order of [`tiersmith_block`]'s `raw`. What decides is read
//! past the kernel's copy.
//! **Deliberately absent**: whose tier it is (`attach.rs` above).

use crate::error::{Error, MediumError, Result};
use crate::format::superblock::{
    COPY_AT, DEVELOPMENT_MAGIC, FORMATTING, LANES_AT, MAGIC, SUPERBLOCK, Superblock, TierState,
    Unusable,
};
use std::ops::Range;
use std::path::Path;
use tiersmith_block::{Device, Error as DeviceError, Foreign, Raw, Sector};
pub(crate) use tiersmith_block::{is_persistent_memory, open_to_read};

/// Bytes in front of a tier in use that others may write, all but for its superblock's copies: the
/// rest is ours, and a path or a block may look like a mark.
const FRONT: u64 = LANES_AT;

/// What was found in the place of a superblock.
struct Copy {
    place: Range<u64>,
    bytes: [u8; SUPERBLOCK],
    read: std::result::Result<Superblock, Unusable>,
}

impl Copy {
    fn all(device: &Device) -> Result<Vec<Copy>> {
        let copy = |at: u64| {
            let mut bytes = [0; SUPERBLOCK];
            let sector = Sector(at / device.sector_size().bytes() as u64);
            device.read_afresh(sector, &mut bytes)?;
            let mut kept = [0; SUPERBLOCK];
            device.read(sector, &mut kept)?;
            if kept != bytes {
                return Err(Error::WrongTier(format!(
                    "{}: what the kernel keeps of it in memory is not what is on it: somebody else \
                     has it open, and it was changed past this machine. Nothing was changed; end \
                     who has it open (`fuser -v {0}`), and try again",
                    device.path().display()
                )));
            }
            let read = Superblock::decode(&bytes);
            Ok(Copy { place: at..at + SUPERBLOCK as u64, bytes, read })
        };
        COPY_AT.into_iter().map(copy).collect()
    }

    /// Whether it is whole, though perhaps of another program's format.
    fn is_whole(&self) -> bool {
        matches!(self.read, Ok(_) | Err(Unusable::OtherFormat(_)))
    }

    fn begins_with(&self, magic: &[u8; 8]) -> bool {
        self.bytes.starts_with(magic)
    }
}

/// What is done with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    /// It has a tier in use.
    InUse,
    /// Nobody misses what is on it.
    Free,
    /// It is to be cleared before it is formatted.
    ToClear,
}

/// Decides about a device that was just opened, by the table above. `meant` is how the user called
/// it, who wants it overwritten.
///
/// # Errors
/// Says what is on it, and what to do. Nothing was changed.
pub(super) fn admit(device: &Device, raw: Raw<'_>, meant: Option<&str>) -> Result<Admitted> {
    let path = device.path();
    if let Some(said) = meant.filter(|said| !raw.is_called(said)) {
        return Err(Error::WrongDevice {
            path: path.into(),
            said: said.into(),
            identity: raw.identity(),
            why: namesakes(raw),
        });
    }
    let copies = Copy::all(device)?;
    let whole: Vec<&Copy> = copies.iter().filter(|copy| copy.is_whole()).collect();
    let superblocks: Vec<&Superblock> =
        whole.iter().filter_map(|copy| copy.read.as_ref().ok()).collect();
    let is_of_another_format = superblocks.len() < whole.len();
    let in_use =
        superblocks.iter().any(|sb| matches!(sb.state, TierState::Attached | TierState::Detaching))
            || is_of_another_format;
    let newest = superblocks.iter().max_by_key(|sb| sb.seq);
    let mut ours: Vec<Range<u64>> = whole.iter().map(|copy| copy.place.clone()).collect();
    if in_use {
        // Of another format it is not known how long it is.
        let end = match newest.filter(|_| !is_of_another_format) {
            Some(newest) => newest.len.max(FRONT),
            None => u64::MAX,
        };
        ours.push(FRONT..end);
        return admit_in_use(path, raw, &ours);
    }
    if let Some(by) = raw.doubt() {
        return Err(DeviceError::InUse { path: path.into(), by: by.into() }.into());
    }
    let marked = copies.iter().any(|copy| copy.begins_with(FORMATTING));
    let damaged = whole.is_empty()
        && copies.iter().any(|copy| copy.begins_with(MAGIC) || copy.begins_with(DEVELOPMENT_MAGIC));
    let nothing_of_ours = whole.is_empty() && !marked && !damaged;
    // What a cut leaves of a copy begins like one, or was never written.
    let is_strange = |copy: &Copy| {
        !copy.is_whole()
            && !copy.begins_with(FORMATTING)
            && !copy.begins_with(MAGIC)
            && copy.bytes.iter().any(|byte| *byte != 0)
    };
    let strange = copies.iter().find(|copy| is_strange(copy)).map(|copy| Foreign {
        what: format!(
            "data of a kind that is not known here where a free tier had its superblock (byte {})",
            copy.place.start
        ),
        mark: None,
    });
    let strange = strange.filter(|_| !damaged && !nothing_of_ours);
    refuse_family(path, raw)?;
    let found = raw.foreign(&ours, nothing_of_ours)?.or(strange);
    let admitted = match found {
        None if damaged && meant.is_some() => Admitted::ToClear,
        // Whoever reads its superblocks says that it is.
        None => Admitted::Free,
        Some(_) if meant.is_some() => {
            log::warn!("{}: what is on it is overwritten, as was asked for", path.display());
            Admitted::ToClear
        }
        Some(Foreign { what, .. }) => {
            return Err(Error::NotEmpty {
                path: path.into(),
                why: namesakes(raw),
                what: if damaged { format!("{what}, and the rest of a tier") } else { what },
                identity: raw.identity(),
            });
        }
    };
    match raw.opener() {
        None => Ok(admitted),
        Some(by) => Err(DeviceError::InUse { path: path.into(), by }.into()),
    }
}

/// A tier in use is used, unless somebody has written beside what is `ours`.
fn admit_in_use(path: &Path, raw: Raw<'_>, ours: &[Range<u64>]) -> Result<Admitted> {
    match raw.marks(ours)? {
        None => {
            // That it is ours is proved, and a doubt keeps no database from its tier.
            raw.doubt().iter().for_each(|by| log::warn!("{} is {by}", path.display()));
            Ok(Admitted::InUse)
        }
        Some(found) => Err(Error::WrongTier(format!(
            "{} is a tier in use, and there is {}: somebody has written to it. Nothing was \
             changed{}",
            path.display(),
            found.what,
            way_out(path, &found)
        ))),
    }
}

/// Why the device is called by its name and size though it has a serial number.
fn namesakes(raw: Raw<'_>) -> String {
    let others: Vec<String> =
        raw.namesakes().iter().map(|path| path.display().to_string()).collect();
    match others.is_empty() {
        true => String::new(),
        false => format!(
            " (its serial number or uuid is also that of {}, so it does not say which one is \
             meant)",
            others.join(", ")
        ),
    }
}

/// What to do about a mark on a tier in use.
fn way_out(path: &Path, found: &Foreign) -> String {
    match &found.mark {
        None => "; take that away if it is of no use, and attach again".into(),
        Some(mark) => format!(
            ". If nobody uses the device for that, `dd if=/dev/zero of={} bs=1 seek={} count={} \
             conv=notrunc,fsync` takes that mark away, and nothing of the tier; then attach again. \
             `tiersmith check` says what of the tier is damaged, and what of it home lacks",
            path.display(),
            mark.start,
            mark.end - mark.start
        ),
    }
}

/// A tier in use on a partition of the device, on the disk that it is part of, or on what a loop
/// device is over.
fn refuse_family(path: &Path, raw: Raw<'_>) -> Result<()> {
    for other in raw.family(BEGIN) {
        let at = other.path.display();
        let (has, what_to_do) = match other.begin.map(|begin| OnDevice::read(&begin)) {
            Ok(OnDevice::Nothing | OnDevice::Tier { is_free: true, .. }) => continue,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => (
                format!("{at}, which is not in /dev here, so nobody can say whether it has a tier"),
                "Give the container that device too, to read, or attach where it is seen",
            ),
            Err(e) => (
                format!("{at}, which cannot be read ({e}), so nobody knows what it has"),
                "Work where it can be read",
            ),
            Ok(OnDevice::Tier { name, .. }) => (
                format!("{at}, which has the tier `{name}`, which is in use"),
                "Detach that home first",
            ),
            Ok(OnDevice::Unusable(why)) => {
                (format!("{at}, which has a tier ({why})"), "Give another device")
            }
        };
        let how = if other.is_below { "over" } else { "of one piece with" };
        return Err(Error::WrongTier(format!(
            "{} is {how} {has}. Nothing was changed. {what_to_do}",
            path.display()
        )));
    }
    Ok(())
}

/// Bytes that have both copies of a superblock.
const BEGIN: usize = COPY_AT[1] as usize + SUPERBLOCK;

fn copies_in(begin: &[u8]) -> impl Iterator<Item = &[u8; SUPERBLOCK]> {
    let at = |at: u64| begin.get(at as usize..).and_then(|copy| copy.first_chunk());
    COPY_AT.into_iter().filter_map(at)
}

fn newest_in(begin: &[u8]) -> Option<Superblock> {
    let whole = copies_in(begin).filter_map(|copy| Superblock::decode(copy).ok());
    whole.max_by_key(|sb| sb.seq)
}

/// What a device that is only looked at has of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnDevice {
    /// Nothing.
    Nothing,
    /// A tier with a whole superblock.
    Tier {
        /// As [`crate::Attachment::id`] has it.
        attachment: String,
        /// The tier's.
        name: String,
        /// Nobody uses it.
        is_free: bool,
        /// The tier's own, which it gets when it is formatted.
        uuid: String,
        /// How often it was attached.
        attach_count: u64,
    },
    /// A tier, of which this program cannot say whose.
    Unusable(String),
}

impl OnDevice {
    /// How many bytes of a device it is read from.
    pub const BYTES: usize = BEGIN;

    /// By the first [`OnDevice::BYTES`] of a device, as
    /// [`read_begin`](tiersmith_block::read_begin) gives them.
    #[must_use]
    pub fn read(begin: &[u8]) -> Self {
        let other = copies_in(begin).find_map(|copy| match Superblock::decode(copy) {
            Err(Unusable::OtherFormat(why)) => Some(why),
            _ => None,
        });
        if let Some(why) = other {
            return OnDevice::Unusable(format!("of another format: {why}"));
        }
        if let Some(newest) = newest_in(begin) {
            return OnDevice::Tier {
                attachment: crate::format::hex(&newest.attachment),
                is_free: newest.state == TierState::Detached,
                uuid: crate::format::hex(&newest.tier_uuid),
                attach_count: newest.attach_count,
                name: newest.name,
            };
        }
        let begun = |copy: &[u8; SUPERBLOCK]| {
            copy.starts_with(MAGIC) || copy.starts_with(DEVELOPMENT_MAGIC)
        };
        match copies_in(begin).any(begun) {
            true => OnDevice::Unusable("both copies of its superblock are damaged".into()),
            false => OnDevice::Nothing,
        }
    }
}

/// Takes away what is on a device, all but for the mark that it is being formatted.
///
/// # Durability
/// Durable on return; a cut leaves something of what was there, or the mark.
pub(super) fn clear(raw: Raw<'_>) -> Result<()> {
    Ok(raw.clear(FORMATTING)?)
}

/// The error of an open, in the words of the rooms above.
pub(super) fn open_error(e: DeviceError) -> Error {
    match e {
        DeviceError::Owned { path } => MediumError::Owned { path }.into(),
        DeviceError::Missing { path } => MediumError::Missing { path }.into(),
        other => other.into(),
    }
}
