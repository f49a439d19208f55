//! A block device as a member: whether it is a tier of ours, free, or somebody else's.
//!
//! # What is taken, and what is refused
//!
//! | the superblock's copies | somebody else's mark | what is done |
//! |---|---|---|
//! | both whole, in use | none in front of the tier or behind it | used, unless another device has the same tier |
//! | one whole, in use | the same | the same; the other copy is written again |
//! | whole, in use | some | refused, whatever the user says, with the command that takes the mark away |
//! | whole, free | none, no data where the other copy was, and zeros in the last MiB | formatted |
//! | marked as being formatted | the same | formatted |
//! | ours, and damaged | none | refused as damaged |
//! | none | none, also 1 MiB further, and zeros at both ends and wherever else is looked | formatted |
//! | any of the last four | some, or data | refused, unless the user says that it is this device; then cleared and formatted |
//!
//! "In use" is `attached` or `detaching`. A tier in state `attaching` has no blocks, but is
//! compared with other devices too: a copy of it is as good as it.
//!
//! Besides, what is formatted has no partition with a tier in use, is no partition of one, and
//! nobody else has it open.
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
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use tiersmith_block::{Device, Error as DeviceError, Foreign, Raw, Sector, begins_of};
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
    if let Some(newest) = newest.filter(|newest| newest.state != TierState::Detached) {
        refuse_copies(path, raw, newest)?;
    }
    let mut ours: Vec<Range<u64>> = whole.iter().map(|copy| copy.place.clone()).collect();
    if in_use {
        // Of another format it is not known how long it is.
        let end = match newest.filter(|_| !is_of_another_format) {
            Some(newest) => newest.len.max(FRONT),
            None => u64::MAX,
        };
        ours.push(FRONT..end);
        return match raw.marks(&ours)? {
            None => Ok(Admitted::InUse),
            Some(found) => Err(Error::WrongTier(format!(
                "{} is a tier in use, and there is {}: somebody has written to it. Nothing was \
                 changed{}",
                path.display(),
                found.what,
                way_out(path, &found)
            ))),
        };
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

/// A tier in use on a partition of the device, or on the disk that it is part of.
fn refuse_family(path: &Path, raw: Raw<'_>) -> Result<()> {
    for (other, begin) in begins_of(&raw.family(), BEGIN) {
        let has = match begin.map(|begin| OnDevice::read(&begin)) {
            Err(e) => {
                format!("{} cannot be read ({e}), so nobody knows what it has", other.display())
            }
            Ok(OnDevice::Nothing | OnDevice::Tier { is_free: true, .. }) => continue,
            Ok(OnDevice::Tier { name, .. }) => {
                format!("{} has the tier `{name}`, which is in use", other.display())
            }
            Ok(OnDevice::Unusable(why)) => format!("{} has a tier ({why})", other.display()),
        };
        return Err(Error::WrongTier(format!(
            "{} is of one piece with {has}. Nothing was changed; detach that home first, or take \
             the partition away",
            path.display()
        )));
    }
    Ok(())
}

/// A device that was copied byte by byte has a tier twice. Nobody knows which one is the newer.
fn refuse_copies(path: &Path, raw: Raw<'_>, ours: &Superblock) -> Result<()> {
    let is_same = |begin: &[u8]| {
        newest_in(begin)
            .is_some_and(|sb| (sb.tier_uuid, sb.member) == (ours.tier_uuid, ours.member))
    };
    let mut twin = None;
    for (other, begin) in begins_of(&raw.others(), BEGIN) {
        match begin {
            Ok(begin) if is_same(&begin) => twin = Some(other),
            Ok(_) => {}
            Err(e) if is_without_medium(&e) => {}
            // A dead disk of somebody else's keeps no database from its tier.
            Err(e) => {
                log::warn!("{} could not be looked at for a copy of the tier: {e}", other.display())
            }
        }
    }
    match twin {
        None => Ok(()),
        Some(twin) => Err(Error::WrongTier(format!(
            "{} and {} both have tier `{}`: one is a copy of the other, and some blocks of the \
             copy are old. Nothing was changed. Take the copy away (unplug it, `losetup -d`); or, \
             if you are sure which one is the copy, clear its beginning: `dd if=/dev/zero of=COPY \
             bs=1M count=1 conv=fsync`",
            path.display(),
            twin.display(),
            ours.name
        ))),
    }
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
    },
    /// A tier, of which this program cannot say whose.
    Unusable(String),
}

impl OnDevice {
    /// Looks at a device.
    ///
    /// # Errors
    /// What the system says; also when the device does not answer.
    pub fn look(device: &Path) -> io::Result<Self> {
        let missing = || Err(io::Error::from(io::ErrorKind::NotFound));
        let mut found = begins_of(&[device.to_path_buf()], BEGIN);
        let begin = found.pop().map_or_else(missing, |(_, begin)| begin)?;
        Ok(Self::read(&begin))
    }

    fn read(begin: &[u8]) -> Self {
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

    /// Whether it is the tier of an attachment, in use or on its way there or back.
    #[must_use]
    pub fn is_of(&self, id: &str) -> bool {
        matches!(self, OnDevice::Tier { attachment, is_free: false, .. } if attachment == id)
    }
}

/// What was found on the devices of this machine.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    /// Those that have the tier.
    pub found: Vec<PathBuf>,
    /// Those of which that cannot be said, and why.
    pub unread: Vec<(PathBuf, String)>,
}

/// The block devices that have a tier with this attachment's uuid, as [`crate::Attachment::id`]
/// has it, in use or not: for who looks for a member that is called otherwise now.
#[must_use]
pub fn devices_of(attachment: &str) -> Devices {
    let mut devices = Devices::default();
    for (device, begin) in begins_of(&tiersmith_block::block_devices(), BEGIN) {
        match begin.map(|begin| OnDevice::read(&begin)) {
            Ok(on) if on.is_of(attachment) => devices.found.push(device),
            Ok(OnDevice::Unusable(why)) => devices.unread.push((device, why)),
            Ok(_) => {}
            Err(e) if is_without_medium(&e) => {}
            Err(e) => devices.unread.push((device, e.to_string())),
        }
    }
    devices
}

/// A drive that is empty, a device that went between the list and the look.
fn is_without_medium(e: &io::Error) -> bool {
    use rustix::io::Errno;
    let none = [Errno::NOMEDIUM, Errno::NXIO, Errno::NODEV].map(Errno::raw_os_error);
    e.raw_os_error().is_some_and(|code| none.contains(&code))
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
