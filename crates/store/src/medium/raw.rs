//! A block device as a member: whether it is a tier of ours, free, or somebody else's.
//!
//! # What is taken, and what is refused
//!
//! | the superblock's copies | somebody else's mark | what is done |
//! |---|---|---|
//! | both whole, in use | not looked for: all bytes are known to be ours | used, unless another device has the same tier |
//! | one whole, in use | none | the same; the other copy is written again |
//! | one whole, in use | some | refused, whatever the user says |
//! | whole, free | none, and no data where the other copy was | formatted |
//! | marked as being formatted | the same | formatted |
//! | ours, and damaged | none | refused as damaged |
//! | none | none, and zeros at both ends | formatted |
//! | any of the last five | some, or data | refused, unless the user says that it is this device; then cleared and formatted |
//!
//! "In use" is `attached` or `detaching`. A tier in state `attaching` has no blocks, but is
//! compared with other devices too: a copy of it is as good as it.
//!
//! **Invariants**: nothing is written before the store formats the tier; a device with somebody
//! else's mark is cleared first, in the order of [`tiersmith_block`]'s `raw`.
//! **Deliberately absent**: whose tier it is (`attach.rs` above).

use crate::error::{Error, MediumError, Result};
use crate::format::superblock::{
    COPY_AT, DEVELOPMENT_MAGIC, FORMATTING, MAGIC, SUPERBLOCK, Superblock, TierState, Unusable,
};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
pub(crate) use tiersmith_block::open_to_read;
use tiersmith_block::{Device, Error as DeviceError, Foreign, Raw, Sector};

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
            device.read(sector, &mut bytes)?;
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

/// Decides about a device that was just opened, by the table above. `true`: it is to be cleared
/// before it is formatted. `meant` is how the user called it, who wants it overwritten.
///
/// # Errors
/// Says what is on it, and what to do. Nothing was changed.
pub(super) fn admit(device: &Device, raw: Raw<'_>, meant: Option<&str>) -> Result<bool> {
    let path = device.path();
    if let Some(said) = meant.filter(|said| !raw.is_called(said)) {
        return Err(Error::WrongDevice {
            path: path.into(),
            said: said.into(),
            identity: raw.identity(),
        });
    }
    let copies = Copy::all(device)?;
    let whole: Vec<&Copy> = copies.iter().filter(|copy| copy.is_whole()).collect();
    let superblocks: Vec<&Superblock> =
        whole.iter().filter_map(|copy| copy.read.as_ref().ok()).collect();
    let in_use =
        superblocks.iter().any(|sb| matches!(sb.state, TierState::Attached | TierState::Detaching))
            || superblocks.len() < whole.len();
    if let Some(newest) = superblocks.iter().max_by_key(|sb| sb.seq)
        && newest.state != TierState::Detached
    {
        refuse_copies(path, raw, newest)?;
    }
    if in_use && whole.len() == copies.len() {
        return Ok(false);
    }
    let marked = copies.iter().any(|copy| copy.begins_with(FORMATTING));
    let damaged = whole.is_empty()
        && copies.iter().any(|copy| copy.begins_with(MAGIC) || copy.begins_with(DEVELOPMENT_MAGIC));
    let ours: Vec<Range<u64>> = whole.iter().map(|copy| copy.place.clone()).collect();
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
        is_known: false,
    });
    let strange = strange.filter(|_| !in_use && !damaged && !nothing_of_ours);
    let found = raw.foreign(&ours, nothing_of_ours)?.or(strange);
    match found {
        None if damaged => Ok(meant.is_some()),
        None => Ok(false),
        Some(found) if in_use => Err(Error::WrongTier(format!(
            "{} is a tier in use, over which somebody has written: there is {}. One copy of its \
             superblock is left. Nothing was changed; `tiersmith check` says what else is damaged, \
             and what of it home lacks",
            path.display(),
            found.what
        ))),
        Some(_) if meant.is_some() => {
            log::warn!("{}: what is on it is overwritten, as was asked for", path.display());
            Ok(true)
        }
        Some(Foreign { what, is_known }) => Err(Error::NotEmpty {
            path: path.into(),
            clear: match is_known {
                true => {
                    format!("If nobody needs that, `wipefs --all {}` clears it. ", path.display())
                }
                false => String::new(),
            },
            what: if damaged { format!("{what}, and the rest of a tier") } else { what },
            identity: raw.identity(),
        }),
    }
}

/// A device that was copied byte by byte has a tier twice. Nobody knows which one is the newer.
fn refuse_copies(path: &Path, raw: Raw<'_>, ours: &Superblock) -> Result<()> {
    let is_same = |sb: &Superblock| (sb.tier_uuid, sb.member) == (ours.tier_uuid, ours.member);
    let twin =
        raw.others().into_iter().find(|other| newest_on(other).is_some_and(|sb| is_same(&sb)));
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

/// The newest superblock on a device that is only looked at.
fn newest_on(device: &Path) -> Option<Superblock> {
    let file = open_to_read(device).ok()?;
    let copy = |at: &u64| {
        let mut bytes = [0; SUPERBLOCK];
        file.read_exact_at(&mut bytes, *at).ok()?;
        Superblock::decode(&bytes).ok()
    };
    COPY_AT.iter().filter_map(copy).max_by_key(|sb| sb.seq)
}

/// The block devices that have a tier with this attachment's uuid, as [`crate::Attachment::id`]
/// has it, in use or not: for who looks for a member that is called otherwise now. This user may
/// not read them all.
#[must_use]
pub fn devices_of(attachment: &str) -> Vec<PathBuf> {
    let is_of = |path: &PathBuf| {
        newest_on(path).is_some_and(|sb| {
            sb.state != TierState::Detached && crate::format::hex(&sb.attachment) == attachment
        })
    };
    tiersmith_block::block_devices().into_iter().filter(is_of).collect()
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
