//! A tier on a block device: found by what is on it, whatever it is called now.
//!
//! The kernel gives names to disks in the order in which it finds them, so `/dev/nvme1n1` may be
//! another disk after a reboot. The home's note has the name of before; the device has the uuid of
//! the attachment, as the note has.
//!
//! **Invariant**: nothing is written here, and no device is opened but for reading.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use tiersmith_store::{Attachment, Devices, OnDevice, devices_of};

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
    let on = is_one(member).then(|| OnDevice::look(member));
    if matches!(&on, Some(Ok(on)) if on.is_of(&note.id)) {
        return Ok(Some(member.to_path_buf()));
    }
    let Devices { found, mut unread } = devices_of(&note.id);
    unread.retain(|(device, _)| device != member);
    let shown =
        || found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and ");
    match &found[..] {
        [one] => Ok(Some(one.clone())),
        // What is wrong with it says whoever opens it.
        [] if matches!(on, Some(Ok(OnDevice::Unusable(_)))) => Ok(Some(member.to_path_buf())),
        [] => Err(Error::Usage(format!(
            "{} is attached to the tier on {}, {}, and no other block device has it{}. Plug it in \
             (or `losetup` it) and try again. Nothing was changed, and nothing is lost as long as \
             that device is not",
            note.home.display(),
            member.display(),
            match on {
                None => "which is not there".into(),
                Some(Err(e)) => format!("which cannot be read ({e})"),
                Some(Ok(_)) => "which has no tier of it now".to_owned(),
            },
            but(&unread)
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
    if !is_one(given) {
        return Ok(());
    }
    if let Some(said) = not_permitted(given) {
        return Err(said);
    }
    match OnDevice::look(given) {
        Ok(on) if on.is_of(&note.id) => return Ok(()),
        // What is wrong with it says whoever opens it.
        Ok(OnDevice::Unusable(_)) => return Ok(()),
        Ok(_) => {}
        Err(e) => {
            return Err(Error::Usage(format!(
                "{} cannot be read: {e}. Nothing was changed",
                given.display()
            )));
        }
    }
    let Devices { found, unread } = devices_of(&note.id);
    let is_on = match found.first() {
        Some(device) => format!("it is on {0}: say --fast {0}", device.display()),
        None => {
            let members = note.tiers.iter().flat_map(|tier| &tier.members);
            let was: Vec<String> = members.map(|path| path.display().to_string()).collect();
            format!("it was on {}, and no block device has it now{}", was.join(", "), but(&unread))
        }
    };
    Err(Error::Usage(format!(
        "{} does not have the tier of {}: {is_on}. Nothing was changed",
        given.display(),
        note.home.display()
    )))
}

/// Where the member of an attached home is that is said to be gone for good.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Presence {
    At(PathBuf),
    Gone,
    /// Nobody can say that it is gone: why, and what to do.
    Unknown(String),
}

/// Looks for a member that is on a block device; `None`: it never was on one.
pub(super) fn presence(note: &Attachment, member: &Path) -> Option<Presence> {
    let is_device = is_one(member);
    if !is_device && (!is_among_devices(member) || member.symlink_metadata().is_ok()) {
        return None;
    }
    let on = is_device.then(|| OnDevice::look(member));
    if matches!(&on, Some(Ok(on)) if on.is_of(&note.id)) {
        return Some(Presence::At(member.to_path_buf()));
    }
    let Devices { found, unread } = devices_of(&note.id);
    if let Some(at) = found.into_iter().next() {
        return Some(Presence::At(at));
    }
    let name = member.display();
    Some(match on {
        Some(Err(e)) => Presence::Unknown(format!("{name} cannot be read ({e})")),
        Some(Ok(OnDevice::Unusable(why))) => Presence::Unknown(format!(
            "{name} has a tier, {why}. If it is of no use, clear its beginning (dd if=/dev/zero \
             of={name} bs=1M count=1 conv=fsync)"
        )),
        _ if !unread.is_empty() => Presence::Unknown(format!(
            "it may be on a device that cannot be read ({}). Work as root, or take that device \
             away",
            listed(&unread)
        )),
        _ => Presence::Gone,
    })
}

fn listed(unread: &[(PathBuf, String)]) -> String {
    let all: Vec<String> =
        unread.iter().map(|(device, why)| format!("{}: {why}", device.display())).collect();
    all.join("; ")
}

fn but(unread: &[(PathBuf, String)]) -> String {
    match unread.is_empty() {
        true => String::new(),
        false => format!(" (of these nobody can say: {})", listed(unread)),
    }
}

/// Whether a device has the tier of the home, or one that is on its way there or back.
pub(super) fn has(note: &Attachment, device: &Path) -> bool {
    OnDevice::look(device).is_ok_and(|on| on.is_of(&note.id))
}

/// Whether this user may not even look.
fn is_denied(device: &Path) -> bool {
    tiersmith_block::open_to_read(device)
        .is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied)
}

fn not_permitted(device: &Path) -> Option<Error> {
    is_denied(device).then(|| {
        Error::Usage(format!(
            "{} may not be opened: {}. Nothing was changed",
            device.display(),
            tiersmith_block::remedy_of_denied()
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
