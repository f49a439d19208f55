//! A tier on a block device: found by what is on it, whatever it is called now.
//!
//! The kernel gives names to disks in the order in which it finds them, so `/dev/nvme1n1` may be
//! another disk after a reboot. The home's note has the name of before; the device has the uuid of
//! the attachment, as the note has.
//!
//! **Invariant**: nothing is written here, and no device is opened but for reading.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use tiersmith_store::{Attachment, MemberLabel, devices_of};

use crate::error::{Error, Result};

/// Whether there is a block device.
pub(crate) fn is_one(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}

/// Whether a path is one of devices: nothing is made there that is no device.
pub(super) fn is_among_devices(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm") && !path.starts_with("/dev/mqueue")
}

/// Refuses to make a file where only devices are.
///
/// # Errors
/// Says that there is no such device.
pub(crate) fn refuse_to_make(path: &Path) -> Result<()> {
    if is_among_devices(path) && path.symlink_metadata().is_err() {
        return Err(Error::Usage(format!(
            "there is no device {}; `lsblk` lists those that there are. Nothing was changed",
            path.display()
        )));
    }
    Ok(())
}

/// Where the member of an attached home is that was a block device when it was attached, and
/// `None` when it never was one.
///
/// # Errors
/// It is nowhere, or on several devices; or this user may not look.
pub(crate) fn noted(note: &Attachment, member: &Path) -> Result<Option<PathBuf>> {
    if !is_one(member) && !is_among_devices(member) {
        return Ok(None);
    }
    if !is_one(member) && member.symlink_metadata().is_ok() {
        // A DAX device, for instance.
        return Ok(None);
    }
    if let Some(said) = not_permitted(member) {
        return Err(said);
    }
    if has(note, member) {
        return Ok(Some(member.to_path_buf()));
    }
    let found = devices_of(&note.id);
    let shown =
        || found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and ");
    match &found[..] {
        [one] => Ok(Some(one.clone())),
        [] => Err(Error::Usage(format!(
            "{} is attached to the tier on {}, {}, and no other block device has it. Plug it in \
             (or `losetup` it) and try again. Nothing was changed, and nothing is lost as long as \
             that device is not",
            note.home.display(),
            member.display(),
            match is_one(member) {
                true => "which is another device now",
                false => "which is not there",
            }
        ))),
        _ => Err(Error::Usage(format!(
            "the tier of {} is on several devices, {}: all but one are copies, and some blocks of \
             a copy are old. Take the copies away, or clear their beginning (dd if=/dev/zero \
             of=COPY bs=1M count=1 conv=fsync), and try again. Nothing was changed",
            note.home.display(),
            shown()
        ))),
    }
}

/// Refuses a block device that was given for the tier of an attached home and has another one, or
/// none.
///
/// # Errors
/// Says where the tier is.
pub(super) fn refuse_another(note: &Attachment, given: &Path) -> Result<()> {
    if !is_one(given) || has(note, given) {
        return Ok(());
    }
    if let Some(said) = not_permitted(given) {
        return Err(said);
    }
    let found = devices_of(&note.id);
    let is_on = match found.first() {
        Some(device) => format!("it is on {0}: say --fast {0}", device.display()),
        None => {
            let members = note.tiers.iter().flat_map(|tier| &tier.members);
            let was: Vec<String> = members.map(|path| path.display().to_string()).collect();
            format!("it was on {}, and no block device has it now", was.join(", "))
        }
    };
    Err(Error::Usage(format!(
        "{} does not have the tier of {}: {is_on}. Nothing was changed",
        given.display(),
        note.home.display()
    )))
}

/// Whether a device has the tier of the home, or one that is on its way there or back.
fn has(note: &Attachment, device: &Path) -> bool {
    let label = tiersmith_block::open_to_read(device).and_then(|file| MemberLabel::read(&file));
    label.is_ok_and(|label| label.is_some_and(|label| label.attachment == note.id))
}

/// Whether this user may not even look.
pub(super) fn is_denied(device: &Path) -> bool {
    tiersmith_block::open_to_read(device)
        .is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied)
}

fn not_permitted(device: &Path) -> Option<Error> {
    is_denied(device).then(|| {
        Error::Usage(format!(
            "{} may be opened by root or its group only; work as root (sudo). Nothing was changed",
            device.display()
        ))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails here says where")]
mod tests {
    use super::*;

    #[test]
    fn no_file_is_made_among_devices() {
        let said = refuse_to_make(Path::new("/dev/nvme77n7")).unwrap_err().to_string();
        assert!(said.contains("there is no device"), "{said}");
        refuse_to_make(Path::new("/dev/null")).unwrap();
        refuse_to_make(Path::new("/dev/shm/new.tier")).unwrap();
        refuse_to_make(Path::new("/mnt/new.tier")).unwrap();
        assert!(!is_one(Path::new("/dev/null")) && !is_one(Path::new("/dev")));
    }
}
