//! The attachment note, `.tiersmith` in the home: that it is attached, to which tiers, and how.
//!
//! The tiers know their home (superblock); the note is the other direction, so that a home is not
//! used with only some of its tiers, or with none, and so that naming the home is enough to attach
//! it again ([`attachment`]). It is a [`Sidecar`].
//!
//! The note lies where the database's user may write. So nothing in it is a permission: whoever
//! reads a path from it checks that file as it would one given on a command line.

use crate::error::{Error, Result};
use crate::format::hex;
use crate::format::superblock::Superblock;
use crate::home::{Home, NOTE_MAX, NoteOf};
use crate::ledger::Ledger;
use crate::medium::{Medium, OnDevice};
use crate::options::{Guard, Options, TierSpec};
use crate::plain::lent_beside;
use crate::plain::named::{LentIn, in_use_within};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tiersmith_dir::{PathText, Sidecar, Unfit};

/// The file.
const NOTE: Sidecar = Sidecar {
    kind: "attachment",
    version: 1,
    comment: "Tiersmith keeps the newest version of some blocks of this directory on the tiers \
              named here.\n\
              Do not use, copy or back up this directory before it is detached. Do not edit this \
              file.",
    most: NOTE_MAX,
};

/// What the note says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// The same uuid as in the tiers' superblocks.
    pub(crate) attachment: [u8; 16],
    pub(crate) profile: String,
    pub(crate) profile_file: Option<PathBuf>,
    pub(crate) guard: Guard,
    pub(crate) door: BTreeMap<String, String>,
    pub(crate) tiers: Vec<NoteTier>,
}

/// One tier in the note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoteTier {
    pub(crate) name: String,
    /// Paths of the members when the home was last attached.
    pub(crate) members: Vec<PathText>,
    #[serde(with = "MediumWord")]
    pub(crate) medium: Medium,
    size: u64,
    max_size: u64,
    grow_by: u64,
    unit: u64,
    lanes: u32,
    batches: u32,
    slots: u64,
    holds_redo: bool,
    holds_data: bool,
    /// In which directory the plain files of lent files are, where it is not beside a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lent_in: Option<PathText>,
    /// An ephemeral disk that failed while home was written: what is there may be older than home.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) given_up: bool,
    /// Of an ephemeral tier, and of one on a block device: which one it is, and how often it was
    /// attached. What is on the disk is believed if it is that, and not an older state of it.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "copies_of")]
    pub(crate) newest: Option<Newest>,
}

/// Which state of which tier the home was last attached to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Newest {
    /// The tier's own uuid, which it gets when it is formatted.
    tier: String,
    /// Its count of attaches.
    attach_count: u64,
}

/// A medium's word in the note.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Medium", rename_all = "lowercase")]
enum MediumWord {
    Persistent,
    Flash,
    Ephemeral,
    Emulated,
    Volatile,
}

/// A guard's word in the note.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Guard", rename_all = "kebab-case")]
enum GuardWord {
    MoveAside,
    Door,
}

/// The note's body.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    attachment: String,
    profile: String,
    profile_file: Option<PathText>,
    #[serde(with = "GuardWord")]
    guard: Guard,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    door: BTreeMap<String, String>,
    tier: Vec<NoteTier>,
}

/// How a home is attached, by the note in it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Attachment {
    /// The path that programs know the home by, without symbolic links.
    pub home: PathBuf,
    /// Where its files are now: there, or moved aside.
    pub files: PathBuf,
    /// The open directory of its files: by its path, this user may not get there while it is moved
    /// aside.
    pub directory: Arc<OwnedFd>,
    /// Whether they are moved aside.
    pub aside: bool,
    /// The user who owns the note, as the open file said from which all this was read: a look by
    /// path may find another one.
    pub owner: u32,
    /// The note's permission bits, from the same file.
    pub mode: u32,
    /// How many names the note has, from the same file.
    pub links: u32,
    /// Names the attachment; the tiers have the same.
    pub id: String,
    /// Name of the profile.
    pub profile: String,
    /// The file the profile came from, where it was not a built-in one.
    pub profile_file: Option<PathBuf>,
    /// How the home is guarded.
    pub guard: Guard,
    /// The door's own settings, as it gave them in [`Options`].
    pub door: BTreeMap<String, String>,
    /// The tiers.
    pub tiers: Vec<AttachedTier>,
}

/// A tier of an [`Attachment`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AttachedTier {
    /// Its name.
    pub name: String,
    /// Its members, in order.
    pub members: Vec<PathBuf>,
    /// What they are.
    pub medium: Medium,
    /// The medium only stands for persistent memory; the label of every figure.
    pub emulated: bool,
    /// Bytes of each member when last attached.
    pub size: u64,
    /// Bytes each may grow to.
    pub max_size: u64,
    /// Bytes each grows by.
    pub grow_by: u64,
    /// Ready to attach again.
    pub spec: TierSpec,
    /// Which state of which tier the home was last attached to, where that is noted.
    newest: Option<Newest>,
}

impl AttachedTier {
    /// The tier's own uuid, where it is noted: of one on a block device.
    #[must_use]
    pub fn uuid(&self) -> Option<&str> {
        self.newest.as_ref().map(|noted| &noted.tier[..])
    }

    /// The directory of the plain files of its lent files, if it is there and not empty.
    #[must_use]
    pub fn lent_directory(&self) -> Option<PathBuf> {
        match &self.spec.lent_in {
            Some(given) => in_use_within(&given.directory, self.uuid()),
            None => lent_beside(self.members.first()?),
        }
    }
}

/// What is on a device, to a home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IsTier {
    /// The home's tier.
    Yes,
    /// Of the home's attachment, but not of the state that the home was last attached to: why.
    InAnotherState(String),
    /// Nothing of this home's.
    No,
}

impl Attachment {
    /// What a device has that was looked at.
    #[must_use]
    pub fn compare(&self, found: &OnDevice) -> IsTier {
        let OnDevice::Tier { attachment, name, is_free: false, uuid, attach_count } = found else {
            return IsTier::No;
        };
        let Some(tier) = self.tiers.iter().find(|tier| tier.name == *name) else {
            return IsTier::No;
        };
        if *attachment != self.id {
            return IsTier::No;
        }
        let found = Newest { tier: uuid.clone(), attach_count: *attach_count };
        match tier.newest.as_ref().and_then(|noted| noted.differs(&found)) {
            None => IsTier::Yes,
            Some(how) => IsTier::InAnotherState(how),
        }
    }
}

/// What the note in a home says: the home itself may be mounted, moved aside, or where it belongs.
/// `None`: it is not attached.
///
/// # Errors
/// [`Error::Home`] when there is no such directory, or the note is damaged.
pub fn attachment(home: &Path) -> Result<Option<Attachment>> {
    let unusable = |reason: String| Error::Home { path: home.to_path_buf(), reason };
    let found = NoteOf::read(home).map_err(|e| unusable(e.to_string()))?;
    let Some(bytes) = found.note else { return Ok(None) };
    let note = Note::parse(&bytes, &found.home)?;
    Ok(Some(Attachment {
        home: found.home,
        files: found.files,
        directory: Arc::new(found.directory),
        aside: found.aside,
        owner: found.owner,
        mode: found.mode,
        links: found.links,
        id: hex(&note.attachment),
        profile: note.profile,
        profile_file: note.profile_file,
        guard: note.guard,
        door: note.door,
        tiers: note.tiers.into_iter().map(NoteTier::attached).collect(),
    }))
}

/// Whether the home's note names the directory for plain files; one that cannot be read may.
pub(crate) fn names_lent_in(home: &dyn Home, path: &Path, directory: &Path) -> bool {
    let Ok(note) = home.read_attachment() else { return true };
    let names = |note: Note| {
        note.tiers.iter().any(|tier| tier.lent_in.as_ref().is_some_and(|it| it.0 == directory))
    };
    note.is_some_and(|bytes| Note::parse(&bytes, path).map_or(true, names))
}

impl Newest {
    fn of(superblock: &Superblock) -> Self {
        Self { tier: hex(&superblock.tier_uuid), attach_count: superblock.attach_count }
    }

    /// What a superblock of the attachment is to this. An attach that is cut before it has noted
    /// its number has not touched home, and the next one notes the number first.
    fn compare(&self, found: &Newest) -> State {
        match (self.tier == found.tier, found.attach_count.checked_sub(self.attach_count)) {
            (false, _) => State::AnotherTier,
            (true, None) => State::Older,
            (true, Some(0 | 1)) => State::Newest,
            (true, Some(_)) => State::NewerThanHome,
        }
    }
}

/// What is found on a disk, by the home's note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Newest,
    /// A copy from before a later attach, or a disk that was set back.
    Older,
    /// Home was set back.
    NewerThanHome,
    /// Formatted at another time.
    AnotherTier,
}

impl NoteTier {
    /// Whether what an ephemeral disk has are copies of this home.
    pub(crate) fn believes(&self, superblock: &Superblock) -> bool {
        !self.given_up
            && self.name == superblock.name
            && self
                .newest
                .as_ref()
                .is_some_and(|noted| noted.compare(&Newest::of(superblock)) == State::Newest)
    }

    /// Refuses a member of this attachment that is another state of the tier than the home was
    /// last attached to, where that is noted.
    ///
    /// # Errors
    /// [`Error::WrongTier`] that says which of the two is older, and what to do.
    pub(crate) fn refuse_another_state(
        &self,
        superblock: &Superblock,
        member: &Path,
        home: &Path,
    ) -> Result<()> {
        let Some(noted) = &self.newest else { return Ok(()) };
        match noted.differs(&Newest::of(superblock)) {
            None => Ok(()),
            Some(how) => Err(Error::WrongTier(format!(
                "{} has tier `{}` of {}, but {how}. Nothing was changed",
                member.display(),
                self.name,
                home.display()
            ))),
        }
    }
}

impl Newest {
    /// How a superblock of the attachment is not of this state, and what to do; `None`: it is.
    fn differs(&self, found: &Newest) -> Option<String> {
        let Newest { tier, attach_count: noted } = self;
        let count = found.attach_count;
        Some(match self.compare(found) {
            State::Newest => return None,
            State::Older => format!(
                "as it was at attach {count}, and the home was attached {noted} times: it is an \
                 old copy, which lacks what was written since. Give the device that has the \
                 newest: --fast DEVICE"
            ),
            State::NewerThanHome => format!(
                "as it was at attach {count}, and by its note the home was attached {noted} times: \
                 the home was set back to an older state. Restore both to one time; or, to go on \
                 with the home as it is, take the device away and `tiersmith detach \
                 --force-without-tier`"
            ),
            State::AnotherTier => format!(
                "it was formatted at another time: its uuid is {}, and the home's note has {tier}. \
                 Give the device that has that one: --fast DEVICE",
                found.tier
            ),
        })
    }
}

/// Says in the note of the home `path` that the tier `name` is not to be believed any more.
///
/// # Durability
/// Durable on return.
///
/// # Errors
/// The note cannot be read or written.
pub(crate) fn give_up(home: &dyn Home, path: &Path, name: &str) -> Result<()> {
    let cannot = |what| Error::io(what, path);
    let bytes = home.read_attachment().map_err(cannot("cannot read the attachment note of"))?;
    let missing = || Error::Home {
        path: path.to_path_buf(),
        reason: format!(
            "its attachment note .tiersmith is gone, and has to say that the tier `{name}` failed"
        ),
    };
    let mut note = Note::parse(&bytes.ok_or_else(missing)?, path)?;
    match note.tiers.iter_mut().find(|tier| tier.name == name) {
        Some(tier) => tier.given_up = true,
        None => return Err(missing()),
    }
    let bytes = note.encode();
    bytes
        .and_then(|bytes| home.write_attachment(&bytes))
        .map_err(cannot("cannot write the attachment note of"))
}

impl NoteTier {
    fn attached_members(&self) -> String {
        let members: Vec<_> =
            self.members.iter().map(|member| member.0.display().to_string()).collect();
        members.join(", ")
    }

    fn attached(self) -> AttachedTier {
        let members: Vec<PathBuf> = self.members.into_iter().map(|PathText(path)| path).collect();
        let spec = TierSpec {
            members: members.clone(),
            max_size: self.max_size,
            grow_by: self.grow_by,
            unit: self.unit,
            lanes: self.lanes,
            batches: self.batches,
            slots: self.slots,
            holds_redo: self.holds_redo,
            holds_data: self.holds_data,
            lent_in: self.lent_in.map(|PathText(directory)| LentIn { directory, is_new: false }),
            ..TierSpec::new(self.name.clone(), PathBuf::new(), self.medium, self.size)
        };
        AttachedTier {
            name: self.name,
            members,
            medium: self.medium,
            emulated: self.medium == Medium::Emulated,
            size: self.size,
            max_size: self.max_size,
            grow_by: self.grow_by,
            spec,
            newest: self.newest,
        }
    }
}

/// What may be in a tier on the medium, which must not change while it is attached.
fn holds(medium: Medium) -> &'static str {
    match medium {
        Medium::Volatile => "volatile memory",
        Medium::Ephemeral => "an ephemeral disk",
        Medium::Persistent | Medium::Flash | Medium::Emulated => "persistent (or emulated)",
    }
}

impl Note {
    pub(crate) fn new(
        attachment: [u8; 16],
        profile: &str,
        options: &Options,
        tiers: &[Arc<Ledger>],
    ) -> Self {
        let member = |path: &Path| {
            PathText(std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()))
        };
        let tiers = tiers.iter().map(|tier| {
            let superblock = tier.superblocks.lock()[0].clone();
            NoteTier {
                name: tier.name.clone(),
                members: tier.members.iter().map(|m| member(&m.path)).collect(),
                medium: match (tier.holds_dirty(), tier.emulated) {
                    (false, _) if tier.is_ephemeral() => Medium::Ephemeral,
                    (false, _) => Medium::Volatile,
                    (true, true) => Medium::Emulated,
                    (true, false) if superblock.log_len > 0 => Medium::Flash,
                    (true, false) => Medium::Persistent,
                },
                size: superblock.len,
                max_size: superblock.max_len,
                grow_by: superblock.grow_by,
                unit: superblock.unit,
                lanes: superblock.lanes,
                batches: superblock.batches,
                slots: superblock.slots,
                holds_redo: tier.holds_redo,
                holds_data: tier.holds_data,
                lent_in: tier.lent_in.as_deref().map(member),
                given_up: false,
                newest: tier.is_counted().then(|| Newest::of(&superblock)),
            }
        });
        Self {
            attachment,
            profile: profile.to_owned(),
            profile_file: options.profile_file.clone(),
            guard: options.guard,
            door: options.door.clone(),
            tiers: tiers.collect(),
        }
    }

    /// Reads the note of the home `path`.
    ///
    /// # Errors
    /// [`Error::Home`] when it is damaged, edited, or of another version.
    pub(crate) fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        let unusable = |unfit: Unfit| {
            let remedy = match unfit {
                Unfit::OtherVersion(_) => "",
                _ => "; restore it, or remove it if the home is not attached",
            };
            let reason = format!("its attachment note .tiersmith {unfit}{remedy}");
            Error::Home { path: path.to_path_buf(), reason }
        };
        let body: Body = NOTE.decode(bytes).map_err(|unfit| {
            // The first notes of development builds had neither a version nor a checksum.
            let development =
                bytes.starts_with(b"# Tiersmith keeps") && !bytes.windows(5).any(|w| w == b"kind ");
            unusable(if development { Unfit::of_development_build() } else { unfit })
        })?;
        let plain =
            body.attachment.len() == 32 && body.attachment.bytes().all(|b| b.is_ascii_hexdigit());
        let uuid = u128::from_str_radix(&body.attachment, 16).ok().filter(|_| plain);
        let sound = body.tier.iter().all(|tier| !tier.members.is_empty() && tier.unit > 0);
        let Some(uuid) = uuid.filter(|_| sound) else {
            return Err(unusable(Unfit::Damaged("says what cannot be".into())));
        };
        Ok(Self {
            attachment: uuid.to_le_bytes(),
            profile: body.profile,
            profile_file: body.profile_file.map(|PathText(path)| path),
            guard: body.guard,
            door: body.door,
            tiers: body.tier,
        })
    }

    /// The file's text.
    ///
    /// # Errors
    /// Options too long or too large for it.
    pub(crate) fn encode(&self) -> std::io::Result<Vec<u8>> {
        let body = Body {
            attachment: hex(&self.attachment),
            profile: self.profile.clone(),
            profile_file: self.profile_file.clone().map(PathText),
            guard: self.guard,
            door: self.door.clone(),
            tier: self.tiers.clone(),
        };
        NOTE.encode(&body).map(String::into_bytes)
    }

    /// Refuses what does not cover the tiers of the note. `given`: name and medium of the tiers
    /// given that carry this note's uuid; `empty`: members given on which there is nothing.
    ///
    /// # Errors
    /// [`Error::WrongTier`] that names the tier missed, and its members.
    pub(crate) fn check(
        &self,
        given: &[(String, Medium)],
        empty: &[String],
        home: &Path,
    ) -> Result<()> {
        for tier in &self.tiers {
            match given.iter().find(|(name, _)| *name == tier.name) {
                Some((_, medium)) if holds(*medium) != holds(tier.medium) => {
                    return Err(Error::WrongTier(format!(
                        "tier `{}` was attached to {} as {} and is given as {}; give it as it was, \
                         or detach first",
                        tier.name,
                        home.display(),
                        holds(tier.medium),
                        holds(*medium)
                    )));
                }
                None if !tier.medium.has_clean_copies_only() => {
                    let found = if empty.is_empty() {
                        "which was not given".to_owned()
                    } else {
                        format!("and there is nothing on {}", empty.join(", "))
                    };
                    return Err(Error::WrongTier(format!(
                        "{} is attached to tier `{}` on {}, {found}; give every tier the home was \
                         attached to (see .tiersmith in it), mounted",
                        home.display(),
                        tier.name,
                        tier.attached_members()
                    )));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    fn note() -> Note {
        let tier = |name: &str, medium| NoteTier {
            name: name.into(),
            members: vec![
                PathText("/a b/ü".into()),
                PathText(OsStr::from_bytes(b"/%41\xff").into()),
            ],
            medium,
            size: 1 << 40,
            max_size: 1 << 41,
            grow_by: 1 << 30,
            unit: 1 << 20,
            lanes: 4,
            batches: 2,
            slots: 32,
            holds_redo: true,
            holds_data: false,
            lent_in: None,
            given_up: false,
            newest: None,
        };
        Note {
            attachment: [7; 16],
            profile: "postgres \"#\n".into(),
            profile_file: Some(OsStr::from_bytes(b"/etc/a \xffb.toml").into()),
            guard: Guard::MoveAside,
            door: BTreeMap::from([("mount.threads".into(), "# checksum".into())]),
            tiers: vec![
                tier("fast \"\\ \u{7f}\n", Medium::Emulated),
                tier("ram", Medium::Volatile),
            ],
        }
    }

    #[test]
    fn a_note_reads_back_whatever_the_names_are() {
        let note = note();
        assert_eq!(Note::parse(&note.encode().unwrap(), Path::new("/db")).unwrap(), note);
    }

    #[test]
    fn what_is_on_a_disk_is_compared_with_the_noted_attach_and_its_tier() {
        let of = |tier: &str, attach_count| Newest { tier: tier.into(), attach_count };
        let noted = of("aa", 3);
        let state = |tier, count| noted.compare(&of(tier, count));
        assert_eq!(state("aa", 0), State::Older);
        assert_eq!(state("aa", 2), State::Older);
        assert_eq!((state("aa", 3), state("aa", 4)), (State::Newest, State::Newest));
        assert_eq!(state("aa", 5), State::NewerThanHome);
        assert_eq!(state("ab", 3), State::AnotherTier);
        assert_eq!(noted.differs(&of("aa", 4)), None);
        let said = |tier, count| noted.differs(&of(tier, count)).unwrap();
        assert!(said("aa", 2).contains("old copy") && said("aa", 2).contains("--fast DEVICE"));
        assert!(said("aa", 5).contains("set back") && said("ab", 3).contains("uuid is ab"));
    }

    #[test]
    fn a_damaged_note_is_refused() {
        for text in ["", "attachment = 7", "attachment = \"zz\"\ntier = []\n", "\u{0}"] {
            assert!(Note::parse(text.as_bytes(), Path::new("/db")).is_err(), "{text:?}");
        }
        let no_members = NoteTier { members: Vec::new(), ..note().tiers[0].clone() };
        let wrong = Note { tiers: vec![no_members], ..note() };
        assert!(Note::parse(&wrong.encode().unwrap(), Path::new("/db")).is_err());
        let bytes = note().encode().unwrap();
        for at in 0..bytes.len() - 1 {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(Note::parse(&other, Path::new("/db")).is_err(), "byte {at}");
        }
    }

    /// As `copies_of`, when only ephemeral tiers had it.
    #[test]
    fn the_count_of_attaches_is_read_under_its_first_name() {
        let mut wanted = note();
        wanted.tiers[0].newest = Some(Newest { tier: "ab".repeat(16), attach_count: 3 });
        let text = String::from_utf8(wanted.encode().unwrap()).unwrap();
        let (body, _) = text.rsplit_once("# checksum ").unwrap();
        let old = body.replace(".newest]", ".copies_of]").replace("\nnewest =", "\ncopies_of =");
        assert_ne!(old, body);
        let sum = xxhash_rust::xxh3::xxh3_64(old.as_bytes());
        let old = format!("{old}# checksum {sum:016x}\n");
        assert_eq!(Note::parse(old.as_bytes(), Path::new("/db")).unwrap(), wanted);
    }

    #[test]
    fn a_note_of_another_version_is_refused_and_says_whose_it_is() {
        let says =
            |text: &str| Note::parse(text.as_bytes(), Path::new("/db")).unwrap_err().to_string();
        let newer = String::from_utf8(note().encode().unwrap())
            .unwrap()
            .replace("version = 1", "version = 2");
        let said = says(&newer);
        assert!(
            said.contains("of version 2") && said.contains("the Tiersmith that wrote it"),
            "{said}"
        );
        // Development builds called two forms version 1 and 2.
        let first = "# Tiersmith keeps the newest version of some blocks.\nattachment = \"00\"\n";
        let second = format!("{first}version = 2\n");
        let sum = xxhash_rust::xxh3::xxh3_64(second.as_bytes());
        for text in [first.to_owned(), format!("{second}# checksum {sum:016x}\n")] {
            let said = says(&text);
            assert!(said.contains("development build") && !said.contains("remove it"), "{said}");
        }
    }
}
