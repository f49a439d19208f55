//! A tier on a block device: by the name that it was given by, and known by what is on it.
//!
//! The kernel gives names to disks in the order in which it finds them, so `/dev/nvme1n1` may be
//! another disk after a reboot. So the home's note keeps the link that was given
//! (`/dev/disk/by-id/...`), which udev leads to the disk, and the disk's WWN, serial number or
//! uuid. What is there must have the tier's uuid, and be no older than the note.
//!
//! **Invariants**: nothing is written here, and no device is opened but for reading, in a process
//! of its own that is waited for some seconds only. No device is searched for a tier to attach: who
//! finds one by its contents alone finds a copy, or a disk below a volume.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tiersmith_block::{devices_called, devices_of_size, id_of, is_called};
use tiersmith_dir::Dir;
use tiersmith_store::{Attachment, IsTier, OnDevice, TierSpec};

use super::belief::is_believed;
use crate::error::{Error, Result};

/// The link by which the device was given, in the home's note.
const GIVEN: &str = "mount.device";
/// Its WWN, serial number or uuid.
const ID: &str = "mount.device_id";

/// How long a device may take to give its first bytes.
const ANSWER: Duration = Duration::from_secs(5);

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

/// What the note keeps of the device of `tiers`: the link in `fast` by which it was given, else the
/// one of before, and what tells it from others.
pub(super) fn note_names(
    noted: &mut BTreeMap<String, String>,
    before: &BTreeMap<String, String>,
    fast: Option<&Path>,
    tiers: &[TierSpec],
) {
    let [TierSpec { members, .. }] = tiers else { return };
    let [member] = &members[..] else { return };
    if !is_one(member) {
        return;
    }
    let given = match fast {
        // A plain name says no more than the member's.
        Some(fast) => std::path::absolute(fast)
            .ok()
            .filter(|given| given != member)
            .and_then(|given| given.to_str().map(str::to_owned)),
        None => before.get(GIVEN).cloned(),
    };
    for (key, value) in [(GIVEN, given), (ID, id_of(member))] {
        if let Some(value) = value {
            let _ = noted.insert(key.to_owned(), value);
        }
    }
}

/// Devices that have other names than when the home was attached.
pub(super) fn called_otherwise(note: &Attachment, tiers: &[TierSpec]) -> Vec<String> {
    let was = note.tiers.iter().flat_map(|tier| &tier.members);
    let is = tiers.iter().flat_map(|spec| &spec.members);
    was.zip(is)
        .filter(|(was, is)| was != is && is_one(is))
        .map(|(was, is)| {
            format!("the tier's device was {} and is {} now", was.display(), is.display())
        })
        .collect()
}

/// A member of an attached home that was a block device when it was attached.
struct Noted<'a> {
    note: &'a Attachment,
    member: &'a Path,
    /// As it was given.
    name: PathBuf,
    id: Option<&'a str>,
    /// Where the name leads now.
    at: Option<PathBuf>,
}

/// What is where a device was.
enum There {
    Tier(PathBuf),
    /// A tier that this program cannot use, of which nobody can say whose.
    Unusable(PathBuf, String),
    /// The home's tier in another state: how it differs, and what to do.
    OtherState(PathBuf, String),
    Unread(PathBuf, io::Error),
    /// Not the tier: what is there.
    Not(String),
}

impl<'a> Noted<'a> {
    /// `None`: it never was a block device.
    fn of(note: &'a Attachment, member: &'a Path) -> Option<Self> {
        let door = |key| note.door.get(key).filter(|_| is_believed(note)).map(String::as_str);
        let given = door(GIVEN).map(PathBuf::from);
        let is_device = is_one(member);
        // Something else in /dev is a DAX device, for instance.
        let was_one = is_device || is_among_devices(member) && member.symlink_metadata().is_err();
        if given.is_none() && !was_one {
            return None;
        }
        // Only where those lead whom root trusts.
        let led = given.as_ref().and_then(|given| {
            let (dir, name) = Dir::holding_target(given).ok()?;
            Some(dir.where_it_is().ok()?.join(name)).filter(|path| is_one(path))
        });
        let at = led.or_else(|| is_device.then(|| member.to_path_buf()));
        let name = given.unwrap_or_else(|| member.to_path_buf());
        Some(Self { note, member, name, id: door(ID), at })
    }

    fn look(&self) -> There {
        let Some(at) = &self.at else { return There::Not("is not there".into()) };
        if let Some(id) = self.id.filter(|id| !is_called(at, id)) {
            // It is not opened: a disk of somebody else's may hang.
            return There::Not(format!("is another device now, not `{id}`"));
        }
        look_at(self.note, at)
    }

    /// The tier, its uuid, and the device that had it.
    fn tier(&self) -> String {
        let has = |tier: &&tiersmith_store::AttachedTier| {
            tier.members.iter().any(|member| member == self.member)
        };
        let tier = self.note.tiers.iter().find(has);
        let name = tier.map_or("?", |tier| &tier.name);
        let uuid = tier.and_then(|tier| tier.uuid());
        let uuid = uuid.map_or(String::new(), |uuid| format!(" (uuid {uuid})"));
        let id = self.id.map_or(String::new(), |id| format!(" (`{id}`)"));
        format!("tier `{name}`{uuid} on {}{id}", self.name.display())
    }

    /// Where else it may be, by what the kernel says. Nothing is opened.
    fn candidates(&self) -> Vec<PathBuf> {
        let mut found = match self.id {
            Some(id) => devices_called(id),
            None => self.of_its_size(),
        };
        found.retain(|path| Some(path) != self.at.as_ref());
        found
    }

    fn of_its_size(&self) -> Vec<PathBuf> {
        let mut sizes: Vec<u64> = self.note.tiers.iter().map(|tier| tier.size).collect();
        sizes.dedup();
        sizes.into_iter().flat_map(devices_of_size).collect()
    }

    fn what_to_type(&self) -> String {
        let found = self.candidates();
        let names: Vec<String> = found.iter().map(|path| path.display().to_string()).collect();
        let seen = match (self.id, names.is_empty()) {
            (_, true) => String::new(),
            (Some(id), false) => format!(" ({id} is {} now)", names.join(", ")),
            (None, false) => format!(" (of its size: {})", names.join(", ")),
        };
        format!(
            "Plug it in (or `losetup` it) and try again; or, if it has another name now{seen}, say \
             it: `tiersmith attach {} --fast DEVICE`",
            self.note.home.display()
        )
    }
}

/// Where the member of an attached home is that was a block device when it was attached, and
/// `None` when it never was one.
///
/// # Errors
/// It is not where it was, or in another state; or this user may not look.
pub(crate) fn noted(note: &Attachment, member: &Path) -> Result<Option<PathBuf>> {
    let Some(noted) = Noted::of(note, member) else { return Ok(None) };
    let home = note.home.display();
    let what = match noted.look() {
        // What is wrong with it says whoever opens it.
        There::Tier(at) | There::Unusable(at, _) => return Ok(Some(at)),
        There::OtherState(at, how) => return Err(in_another_state(note, &at, &how)),
        There::Unread(at, e) => {
            not_permitted(&at, &e)?;
            format!("cannot be read ({e})")
        }
        There::Not(what) => what,
    };
    Err(Error::Usage(format!(
        "{home} is attached to {}, which {what}. {}. Nothing was changed, and nothing is lost as \
         long as that device is not",
        noted.tier(),
        noted.what_to_type()
    )))
}

fn in_another_state(note: &Attachment, at: &Path, how: &str) -> Error {
    Error::Usage(format!(
        "{} has the tier of {}, but {how}. Nothing was changed",
        at.display(),
        note.home.display()
    ))
}

/// Refuses a block device that was given for the tier of an attached home and has another one, an
/// older copy, or none.
///
/// # Errors
/// Says where the tier was.
pub(super) fn refuse_another(note: &Attachment, given: &Path) -> Result<()> {
    if !is_one(given) {
        return Ok(());
    }
    let what = match look_at(note, given) {
        // What is wrong with it says whoever opens it.
        There::Tier(_) | There::Unusable(..) => return Ok(()),
        There::OtherState(at, how) => return Err(in_another_state(note, &at, &how)),
        There::Unread(at, e) => {
            not_permitted(&at, &e)?;
            return Err(Error::Usage(format!(
                "{} cannot be read: {e}. Nothing was changed",
                given.display()
            )));
        }
        There::Not(what) => what,
    };
    let members = note.tiers.iter().flat_map(|tier| &tier.members);
    let is_on =
        members.filter_map(|member| Noted::of(note, member)).find_map(|noted| match noted.look() {
            There::Tier(at) => Some(format!("it is on {0}: say --fast {0}", at.display())),
            _ => None,
        });
    let is_on = is_on.unwrap_or_else(|| {
        let tiers: Vec<String> = note
            .tiers
            .iter()
            .flat_map(|tier| &tier.members)
            .filter_map(|member| Noted::of(note, member).map(|noted| noted.tier()))
            .collect();
        format!("that is {}, by the home's note", tiers.join(", "))
    });
    Err(Error::Usage(format!(
        "{} {what}: it does not have the tier of {}; {is_on}. Nothing was changed",
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

/// Looks for a member that is on a block device; `None`: it never was on one. Also at the devices
/// that may have it under another name: given up is only what is nowhere.
pub(super) fn presence(note: &Attachment, member: &Path) -> Option<Presence> {
    let noted = Noted::of(note, member)?;
    match noted.look() {
        There::Tier(at) => return Some(Presence::At(at)),
        There::Unread(at, e) => {
            return Some(Presence::Unknown(format!(
                "{} cannot be read ({e}). Work as root, or take that device away",
                at.display()
            )));
        }
        There::Unusable(at, why) => {
            return Some(Presence::Unknown(format!(
                "{} has a tier, {why}. If nobody needs it, take that device away",
                at.display()
            )));
        }
        There::OtherState(..) | There::Not(_) => {}
    }
    // An id changes with the kernel, or with a virtual machine's settings. What cannot be read is
    // somebody else's.
    if noted.id.is_some() {
        for other in noted.at.clone().into_iter().chain(noted.of_its_size()) {
            if let There::Tier(at) = look_at(note, &other) {
                return Some(Presence::At(at));
            }
        }
    }
    let mut unread = Vec::new();
    for other in noted.candidates() {
        match look_at(note, &other) {
            There::Tier(at) => return Some(Presence::At(at)),
            There::Unread(at, e) if !is_without_medium(&e) => {
                unread.push(format!("{}: {e}", at.display()));
            }
            _ => {}
        }
    }
    Some(match unread.is_empty() {
        true => Presence::Gone,
        false => Presence::Unknown(format!(
            "it may be on a device that cannot be read ({}). Work as root, where all devices may \
             be read, or take that one away",
            unread.join("; ")
        )),
    })
}

/// A drive that is empty, a device that went between the list and the look.
fn is_without_medium(e: &io::Error) -> bool {
    use rustix::io::Errno;
    let none = [Errno::NOMEDIUM, Errno::NXIO, Errno::NODEV].map(Errno::raw_os_error);
    e.raw_os_error().is_some_and(|code| none.contains(&code))
}

/// Whether a device has the tier of the home, or one that is on its way there or back.
pub(super) fn has(note: &Attachment, device: &Path) -> bool {
    matches!(look_at(note, device), There::Tier(_) | There::OtherState(..))
}

fn look_at(note: &Attachment, device: &Path) -> There {
    let at = device.to_path_buf();
    let found = match begin_of(device) {
        Ok(begin) => OnDevice::read(&begin),
        Err(e) => return There::Unread(at, e),
    };
    match (note.compare(&found), found) {
        (IsTier::Yes, _) => There::Tier(at),
        (IsTier::InAnotherState(how), _) => There::OtherState(at, how),
        (IsTier::No, OnDevice::Unusable(why)) => There::Unusable(at, why),
        (IsTier::No, OnDevice::Nothing) => There::Not("has no tier".into()),
        (IsTier::No, OnDevice::Tier { is_free: true, .. }) => {
            There::Not("has a tier that is free".into())
        }
        (IsTier::No, OnDevice::Tier { .. }) => There::Not("has the tier of another home".into()),
    }
}

/// What this user can do about a device that may not be opened.
fn not_permitted(device: &Path, e: &io::Error) -> Result<()> {
    if e.kind() != io::ErrorKind::PermissionDenied {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{} may not be opened: {}. Nothing was changed",
        device.display(),
        tiersmith_block::remedy_of_denied()
    )))
}

/// The first bytes of a device, read by another process (`tiersmith look-at`). A device may hang,
/// and who waits for it then cannot even be killed: a daemon would keep the home's lock.
fn begin_of(device: &Path) -> io::Result<Vec<u8>> {
    let child = Command::new("/proc/self/exe")
        .arg("look-at")
        .arg(device)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = child?;
    let out = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let (tell, told) = mpsc::channel();
    // It waits for a pipe, which a kill ends.
    let _ = std::thread::Builder::new().spawn(move || {
        let mut said = Vec::new();
        let most = (OnDevice::BYTES + LINE) as u64;
        let read = out.take(most).read_to_end(&mut said).map(|_| said);
        // Nobody may listen any more.
        let _ = tell.send(read);
    })?;
    let said = told.recv_timeout(ANSWER);
    if said.is_err() {
        let _ = child.kill();
    }
    // One that hangs is left: it has nothing of ours open.
    let began = Instant::now();
    while matches!(child.try_wait(), Ok(None)) && began.elapsed() < Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(2));
    }
    let silent = || io::Error::new(io::ErrorKind::TimedOut, "it does not answer");
    answered(&said.map_err(|_| silent())??)
}

/// Most bytes of the first line of an answer.
const LINE: usize = 1000;

/// What `tiersmith look-at` prints: a line with the number of an error and its text, or an empty
/// line and the bytes.
pub(crate) fn answer_of(begin: io::Result<Vec<u8>>) -> Vec<u8> {
    match begin {
        Ok(begin) => [b"\n", &begin[..]].concat(),
        Err(e) => {
            let number = e.raw_os_error().unwrap_or(0);
            let said: String =
                e.to_string().chars().filter(|c| !c.is_control()).take(200).collect();
            format!("{number} {said}\n").into_bytes()
        }
    }
}

fn answered(said: &[u8]) -> io::Result<Vec<u8>> {
    let Some(end) = said.iter().position(|byte| *byte == b'\n') else {
        return Err(io::Error::other("what reads it has ended"));
    };
    let (line, rest) = (String::from_utf8_lossy(&said[..end]), &said[end + 1..]);
    match line.split_once(' ').map(|(number, text)| (number.parse().unwrap_or(0), text)) {
        None => Ok(rest.to_vec()),
        Some((0, text)) => Err(io::Error::other(text.to_owned())),
        Some((number, _)) => Err(io::Error::from_raw_os_error(number)),
    }
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

    #[test]
    fn bytes_and_errors_come_back_from_the_process_that_looks() {
        for begin in [&b""[..], b"\n7 x\n", &[0xff; 9000]] {
            assert_eq!(answered(&answer_of(Ok(begin.to_vec()))).unwrap(), begin);
        }
        let denied = answered(&answer_of(Err(io::Error::from_raw_os_error(13)))).unwrap_err();
        assert_eq!(denied.kind(), io::ErrorKind::PermissionDenied);
        let stopped = answered(&answer_of(Err(io::Error::other("it is\nsuspended")))).unwrap_err();
        assert_eq!(stopped.to_string(), "it issuspended");
        assert!(answered(b"").is_err());
    }
}
