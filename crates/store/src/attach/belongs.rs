//! Whether a home and the tiers that are given belong together. Nothing is written here.
//!
//! **Deliberately absent**: whether home was changed while it was not served
//! ([`crate::recover`]).

use crate::error::{Error, Result};
use crate::format::superblock::{FLAG_EPHEMERAL, Superblock, TierState};
use crate::home::{HomeError, HomeStat, NoteOf};
use crate::medium::Medium;
use crate::note::Note;
use crate::options::TierSpec;
use crate::tier::Member;
use crate::tier::open::{self, Found};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The tiers that are given, as found.
pub(super) struct Read {
    pub(super) found: Vec<(TierSpec, Found)>,
    /// The names and media of those that are of this attachment.
    pub(super) given: Vec<(String, Medium)>,
    /// Where there is no tier yet.
    pub(super) empty: Vec<String>,
}

/// The home that is to be attached.
pub(super) struct Own<'a> {
    pub(super) identity: HomeStat,
    /// The directory at its path, where that is a mount point.
    pub(super) top: Option<HomeStat>,
    pub(super) path: &'a Path,
}

impl Own<'_> {
    /// Whether the tier's superblock names this very directory as its home, under whatever name.
    /// Of a mount point it may name the top, which the files have left since, or not reached yet.
    fn is_home_of(&self, sb: &Superblock) -> bool {
        let is = |found: &HomeStat| {
            // All file systems of a kind give their tops one number.
            let is_top = self.top.as_ref().is_some_and(|top| top.ino == found.ino);
            let told_apart = found.btime_ns != 0 && sb.home_btime_ns != 0;
            found.same_file(sb.home_ino, 0, sb.home_btime_ns)
                && (!is_top || told_apart || sb.home_path == self.path.as_os_str().as_bytes())
        };
        is(&self.identity) || self.top.as_ref().is_some_and(is)
    }

    /// Refuses the copy of a whole file system, in which the home has the same numbers, while the
    /// home that the tier names is there too.
    fn refuse_twin(&self, sb: &Superblock) -> Result<()> {
        let was = PathBuf::from(std::ffi::OsString::from_vec(sb.home_path.clone()));
        if was == self.path {
            return Ok(());
        }
        let twin = NoteOf::read(&was).ok().filter(|found| found.note.is_some());
        let twin = twin.and_then(|found| found.stat().ok());
        let (ino, btime) = (self.identity.ino, self.identity.btime_ns);
        if !twin.is_some_and(|it| it.same_file(ino, 0, btime) && it.dev != self.identity.dev) {
            return Ok(());
        }
        Err(Error::WrongTier(format!(
            "{} and {} are the same home twice, on two file systems of which one is a copy of the \
             other: some blocks of the copy are old. Tier `{}` names {1}: attach that; or unmount \
             the file system there, if it is the copy",
            self.path.display(),
            was.display(),
            sb.name
        )))
    }
}

pub(super) fn refuse_equal_names(mapped: &[(TierSpec, Vec<Member>)]) -> Result<()> {
    let mut names: Vec<&str> = mapped.iter().map(|(spec, _)| &spec.name[..]).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::Options(format!(
            "two tiers are called `{}`; give each its own name",
            twice[0]
        )));
    }
    Ok(())
}

/// Reads the superblocks of all tiers, and refuses those of others. One with clean copies that are
/// of no use any more counts as one without superblocks.
pub(super) fn read_tiers(
    mapped: Vec<(TierSpec, Vec<Member>)>,
    note: Option<&Note>,
    own: &Own<'_>,
    path: &Path,
) -> Result<Read> {
    let uuid = note.map(|note| note.attachment);
    let mut found = Vec::new();
    let (mut given, mut empty) = (Vec::new(), Vec::new());
    for (spec, members) in mapped {
        let mut tier = open::read_superblocks(members, &spec)?;
        match tier.superblocks.as_ref().map(|sb| &sb[0]) {
            Some(sb) if Some(sb.attachment) == uuid => given.push((sb.name.clone(), spec.medium)),
            Some(_) => {}
            None => empty.extend(spec.members.first().map(|p| p.display().to_string())),
        }
        let believed = tier.superblocks.as_ref().is_some_and(|sb| {
            note.iter().flat_map(|note| &note.tiers).any(|noted| noted.believes(&sb[0]))
        });
        if spec.medium == Medium::Ephemeral && !believed {
            // It is another one, an older state of it, or failed while home was written; or a
            // detach that the disk did not take down left it as it was.
            for sb in tier.superblocks.take().iter().flatten() {
                refuse_foreign(sb, own, uuid.as_ref(), path)?;
            }
        }
        if !spec.medium.has_clean_copies_only()
            && let Some(sb) = tier.superblocks.as_ref().map(|sb| &sb[0])
            && Some(sb.attachment) == uuid
            && sb.state != TierState::Detached
        {
            let noted = note.iter().flat_map(|note| &note.tiers);
            for (noted, member) in noted.filter(|noted| noted.name == sb.name).zip(&spec.members) {
                noted.refuse_another_state(sb, member, path)?;
            }
        }
        if spec.medium == Medium::Volatile {
            // Clean copies of an earlier attach are nobody's loss.
            for sb in tier.superblocks.take().iter().flatten() {
                refuse_foreign(sb, own, uuid.as_ref(), path)?;
                refuse_unnoted(sb, uuid.as_ref(), path)?;
            }
        }
        found.push((spec, tier));
    }
    Ok(Read { found, given, empty })
}

/// Whether this home and these tiers belong together already; an error when they belong to others.
pub(super) fn reopens(
    found: &[(TierSpec, Found)],
    note: Option<&[u8; 16]>,
    own: &Own<'_>,
    path: &Path,
) -> Result<bool> {
    let (mut ours, mut only_copies) = (0, 0);
    for (spec, tier) in found {
        let Some(sb) = tier.superblocks.as_ref().map(|sb| &sb[0]) else { continue };
        let state = newest_state(tier);
        refuse_noted(sb, state, own, note, path)?;
        if state == TierState::Detached || (state == TierState::Detaching && note.is_none()) {
            continue;
        }
        if state == TierState::Attaching && note != Some(&sb.attachment) {
            // Formatted and never used: no block is in it.
            continue;
        }
        refuse_foreign(sb, own, note, path)?;
        if note.is_none_or(|uuid| *uuid == sb.attachment) {
            ours += 1;
            only_copies += usize::from(!spec.medium.has_clean_copies_only());
        }
    }
    let durable = found.iter().filter(|(spec, _)| !spec.medium.has_clean_copies_only()).count();
    if ours > 0 && only_copies < durable {
        return Err(Error::WrongTier(format!(
            "{only_copies} of the {durable} tiers given belong to {}; name exactly the tiers it \
             was attached to",
            path.display()
        )));
    }
    Ok(ours > 0)
}

fn newest_state(tier: &Found) -> TierState {
    // A cut between members leaves different states; the one that is furthest back decides.
    let states = tier.superblocks.iter().flatten().map(|sb| sb.state);
    let rank = |s: &TierState| match s {
        TierState::Attached => 0,
        TierState::Detaching => 1,
        TierState::Attaching => 2,
        TierState::Detached => 3,
    };
    states.min_by_key(rank).unwrap_or(TierState::Detached)
}

/// A tier between the first and the last step of attaching or detaching holds nothing that home
/// lacks; but as long as the other home's note names it, that home needs it to be attached or
/// detached to the end. The home itself is never refused here, wherever it was moved and whatever
/// is at its old place now.
fn refuse_noted(
    sb: &Superblock,
    state: TierState,
    own: &Own<'_>,
    note: Option<&[u8; 16]>,
    path: &Path,
) -> Result<()> {
    let was = PathBuf::from(std::ffi::OsString::from_vec(sb.home_path.clone()));
    let in_the_middle = matches!(state, TierState::Attaching | TierState::Detaching);
    if !in_the_middle || was == path || own.is_home_of(sb) {
        return Ok(());
    }
    let why = match noted_at(&was) {
        Ok(attachment) if attachment != Some(sb.attachment) => return Ok(()),
        Ok(_) => String::new(),
        // It was copied to another place in the middle: what cannot be read where it was is no
        // reason to refuse what its own note names.
        Err(_) if note == Some(&sb.attachment) => return Ok(()),
        Err(reason) => format!(". Whether that home still needs it cannot be seen: {reason}"),
    };
    Err(Error::WrongTier(format!(
        "tier `{}` is in the middle of being attached to {} or detached from it, which was \
         interrupted; attach or detach that first{why}",
        sb.name,
        was.display()
    )))
}

/// The attachment that the note of the home at `path` names; `None` where there is no home, or one
/// without a note. The error is why that cannot be seen.
fn noted_at(path: &Path) -> std::result::Result<Option<[u8; 16]>, String> {
    let found = match NoteOf::read(path) {
        Err(HomeError::Missing { .. } | HomeError::NotADirectory { .. }) => return Ok(None),
        other => other.map_err(|e| e.to_string())?,
    };
    let note = found.note.map(|bytes| Note::parse(&bytes, &found.home)).transpose();
    Ok(note.map_err(|e| e.to_string())?.map(|note| note.attachment))
}

fn refuse_foreign(
    sb: &Superblock,
    own: &Own<'_>,
    note: Option<&[u8; 16]>,
    path: &Path,
) -> Result<()> {
    if matches!(sb.state, TierState::Detached | TierState::Attaching) {
        return Ok(());
    }
    let was = String::from_utf8_lossy(&sb.home_path).into_owned();
    if note.is_some_and(|uuid| *uuid != sb.attachment) {
        return Err(Error::WrongTier(format!(
            "tier `{}` belongs to the home {was}, not to {}. Name the tier this home was attached \
             to; {}",
            sb.name,
            path.display(),
            how_to_free(sb, &was)
        )));
    }
    if own.is_home_of(sb) {
        return own.refuse_twin(sb);
    }
    if note.is_some() {
        return Err(Error::WrongTier(format!(
            "{} (inode {}) is a copy of the home {was} (inode {}), which tier `{}` belongs to: \
             some blocks of the copy are old. Attach \
             the original; to copy it, detach it first",
            path.display(),
            own.identity.ino,
            sb.home_ino,
            sb.name
        )));
    }
    Err(Error::WrongTier(format!(
        "tier `{}` belongs to the home {was} (inode {}), {} is another directory (inode {}). Give \
         an empty tier; {}",
        sb.name,
        sb.home_ino,
        path.display(),
        own.identity.ino,
        how_to_free(sb, &was)
    )))
}

/// How a tier that belongs to the home at `was` becomes free.
fn how_to_free(sb: &Superblock, was: &str) -> String {
    if sb.flags & FLAG_EPHEMERAL != 0 {
        return format!(
            "it has clean copies of {was} only: if that home does without them, remove the tier's \
             file, or clear the beginning of its device"
        );
    }
    match noted_at(Path::new(was)) {
        Ok(attachment) if attachment != Some(sb.attachment) => format!(
            "nothing at {was} needs this one any more: if that home was moved, detach it where it \
             is now; if it is gone for good, so are \
             the blocks it had here only, and removing the tier's file frees it (on a block \
             device, clearing its beginning: `dd if=/dev/zero of=DEVICE bs=1M count=1 conv=fsync`)"
        ),
        _ => format!("or detach {was} first"),
    }
}

/// A tier in use by this home, which has no note, given as volatile: what it was attached as is not
/// known.
fn refuse_unnoted(sb: &Superblock, note: Option<&[u8; 16]>, path: &Path) -> Result<()> {
    if note.is_some() || sb.state != TierState::Attached {
        return Ok(());
    }
    Err(Error::WrongTier(format!(
        "tier `{}` is attached to {}, whose note .tiersmith is gone, and is given as volatile; \
         give it as what it was attached as",
        sb.name,
        path.display()
    )))
}
