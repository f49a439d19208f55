//! What a detach leaves beside a plain home and has still to remove: tier, socket, log, and the
//! list that says which tier.
//!
//! The list, `HOME.tiersmith-detach`, lies where the home's owner may rename it, keep it, and put
//! it back later or beside another home. So it is no order to remove a path. It names the home, and
//! for each member of the tier its inode and attachment; and a file goes only if it is that inode,
//! and its own superblock says that it is a free tier of this home and that attachment.
//!
//! **Invariant**: what is removed is named in a directory held open, and was looked at when open.
//! **Deliberately absent**: when it may be removed (`give_back.rs`).

use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tiersmith_dir::{Dir, NumberText, PathText, Sidecar, Unfit};
use tiersmith_store::MemberLabel;
use tiersmith_store::home::HomeStat;

use super::belief;
use super::control;
use super::place::Place;
use crate::error::{Error, Result};
use crate::messages;

/// The list.
const LIST: Sidecar = Sidecar {
    kind: "detach-list",
    version: 1,
    comment: "The home beside this file is being detached: what is still to be removed. Run the \
              detach again.",
    most: 1 << 20,
};

/// How the list of a development build begins.
const DEVELOPMENT: &[u8] = b"{\"home_inode\":";

/// What is still to be removed.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToRemove {
    home_inode: NumberText,
    home_birth_ns: NumberText,
    members: Vec<Member>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Member {
    path: PathText,
    inode: NumberText,
    attachment: String,
}

/// What became of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Removed {
    /// There was a list.
    pub(super) was_listed: bool,
    /// What was not removed, and why, in sentences.
    pub(super) left: Vec<String>,
}

impl ToRemove {
    /// Those of `members` that are files of the tier of the home that is attached, to be removed
    /// when `plain` is its directory; besides, in sentences, why other files will be left.
    pub(super) fn of<'a>(
        home: &HomeStat,
        plain: &HomeStat,
        members: impl Iterator<Item = &'a PathBuf>,
    ) -> (ToRemove, Vec<String>) {
        let (home_inode, home_birth_ns) = (NumberText(plain.ino), NumberText(plain.btime_ns));
        let mut list = ToRemove { home_inode, home_birth_ns, members: Vec::new() };
        let mut left = Vec::new();
        for path in members {
            match Member::look(path, home) {
                Ok(Some(member)) => list.members.push(member),
                Ok(None) => {}
                Err(why) => {
                    left.push(format!("{} was left where it is: {why}", messages::path(path)))
                }
            }
        }
        (list, left)
    }

    /// Writes it beside the home, in place of what is there.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn write(&self, place: &Place) -> Result<()> {
        let cannot = |source| Error::Io { what: "write", path: place.to_remove(), source };
        // What has the name is of an earlier detach, or somebody's.
        LIST.replace(place.dir(), place.to_remove_name(), self, 0o600, None).map_err(cannot)
    }

    fn remove_members(&self, home: &HomeStat) -> Vec<String> {
        if !home.same_file(self.home_inode.0, 0, self.home_birth_ns.0) {
            let of = |member: &Member| messages::path(&member.path.0);
            let named: Vec<String> = self.members.iter().map(of).collect();
            return vec![format!(
                "the list of what an earlier detach had left is another directory's, so nothing on \
                 it was \
                 removed: {}",
                named.join(", ")
            )];
        }
        self.members.iter().filter_map(|member| member.remove(home).err()).collect()
    }
}

impl Member {
    /// `None`: a device, which stays.
    fn look(path: &Path, home: &HomeStat) -> std::io::Result<Option<Member>> {
        let (dir, name) = Dir::holding(path)?;
        if !dir.look(&name)?.is_some_and(|found| found.is_file()) {
            return Ok(None);
        }
        let file = dir.open_file(name)?;
        let label = MemberLabel::read(&file)?.filter(|label| label.is_of(home));
        let label =
            label.ok_or_else(|| std::io::Error::other("it is not the tier of this home"))?;
        let inode = NumberText(file.metadata()?.ino());
        Ok(Some(Member { path: path.into(), inode, attachment: label.attachment }))
    }

    /// Removes the file, if it is what the list says, and says so itself.
    fn remove(&self, home: &HomeStat) -> std::result::Result<(), String> {
        let left =
            |why: &str| format!("{} was left where it is: {why}", messages::path(&self.path.0));
        let (dir, name) = match Dir::holding(&self.path.0) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|e| left(&e.to_string()))?,
        };
        let file = match dir.open_file(&name) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|e| left(&e.to_string()))?,
        };
        let inode = NumberText(file.metadata().map_err(|e| left(&e.to_string()))?.ino());
        let label = MemberLabel::read(&file).map_err(|e| left(&e.to_string()))?;
        let is_this = |label: &MemberLabel| {
            label.is_free && label.is_of(home) && label.attachment == self.attachment
        };
        if inode != self.inode || !label.as_ref().is_some_and(is_this) {
            return Err(left(
                "it is not the tier that was detached from this home; remove it by hand if nobody \
                 needs it",
            ));
        }
        dir.remove(&name).map_err(|e| left(&e.to_string()))
    }
}

/// Whether a file that is there says that it is a tier of this attachment.
pub(super) fn is_tier_of(path: &Path, attachment: &str) -> bool {
    let label = Dir::holding(path)
        .and_then(|(dir, name)| dir.open_file(name))
        .and_then(|file| MemberLabel::read(&file));
    label.is_ok_and(|label| label.is_some_and(|label| label.attachment == attachment))
}

/// Removes all of it. The home is plain, has this identity, and is locked by the caller.
///
/// # Errors
/// A file beside the home that cannot be removed; a list that somebody else wrote.
pub(super) fn remove(place: &Place, home: &HomeStat) -> Result<Removed> {
    let mut removed = Removed::default();
    if let Some(text) = read_list(place)? {
        removed.was_listed = true;
        let list = LIST.decode::<ToRemove>(&text).map_err(|unfit| {
            if text.starts_with(DEVELOPMENT) { Unfit::of_development_build() } else { unfit }
        });
        removed.left = match list {
            Ok(list) => list.remove_members(home),
            // The program that wrote it can finish what it began.
            Err(Unfit::OtherVersion(why)) => {
                return Err(Error::Usage(format!(
                    "the list {} {why}",
                    place.to_remove().display()
                )));
            }
            Err(unfit) => {
                vec![format!(
                    "{} {unfit}; if it named a tier, that was left",
                    place.to_remove().display()
                )]
            }
        };
    }
    remove_what_daemons_leave(place)?;
    remove_beside(place, &place.to_remove_name())?;
    Ok(removed)
}

/// Takes the list back: the home is attached still.
pub(super) fn forget(place: &Place) {
    // A later detach writes it anew.
    let _ = place.dir().remove(place.to_remove_name());
}

/// `None`: there is none. It must be root's own or this user's: else somebody made it up.
fn read_list(place: &Place) -> Result<Option<Vec<u8>>> {
    let cannot = |source| Error::Io { what: "read", path: place.to_remove(), source };
    let (dir, name) = (place.dir(), place.to_remove_name());
    let not_ours = || {
        Error::Usage(format!(
            "{} was not written by root or you; look at it, and remove it and the files it names",
            place.to_remove().display()
        ))
    };
    let Some(found) = dir.look(&name).map_err(cannot)? else { return Ok(None) };
    if !found.is_file() {
        return Err(not_ours());
    }
    let file = dir.open_file(&name).map_err(cannot)?;
    let found = file.metadata().map_err(cannot)?;
    if !belief::is_trusted(&found) || found.len() > LIST.most {
        return Err(not_ours());
    }
    let mut text = Vec::new();
    let _ = file.take(LIST.most).read_to_end(&mut text).map_err(cannot)?;
    Ok(Some(text))
}

fn remove_what_daemons_leave(place: &Place) -> Result<()> {
    let control = place.control_name();
    if control::has_socket(place) && !control::is_served(place) {
        remove_beside(place, &control)?;
    }
    remove_beside(place, &place.log_name())?;
    remove_beside(place, &place.log_old_name())
}

fn remove_beside(place: &Place, name: &std::ffi::OsStr) -> Result<()> {
    match place.dir().remove(name) {
        Err(e) if e.kind() != ErrorKind::NotFound => {
            Err(Error::Io { what: "remove", path: place.dir().path_of(name), source: e })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails here says where")]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tiersmith_store::home::RealHome;
    use tiersmith_store::{Medium, Options, TierSpec};

    use super::*;

    struct Site {
        _dir: tempfile::TempDir,
        real: PathBuf,
    }

    impl Site {
        fn new() -> Site {
            let dir = tempfile::tempdir().unwrap();
            let real = dir.path().canonicalize().unwrap();
            Site { _dir: dir, real }
        }

        /// A home that was attached to a tier and detached; its list as a detach writes it.
        fn detached(&self, home: &str, tier: &str) -> (Place, HomeStat, ToRemove) {
            let (home, tier) = (self.real.join(home), self.real.join(tier));
            let _ = std::fs::create_dir(&home);
            let place = Place::find(&home).unwrap();
            let spec = TierSpec::new("fast", tier.clone(), Medium::Emulated, 24 << 20);
            let attached = tiersmith_store::attach(&home, &[spec], Options::default()).unwrap();
            let identity = attached.home().identity().unwrap();
            let (list, left) = ToRemove::of(&identity, &identity, [&tier].into_iter());
            assert_eq!((list.members.len(), left.len()), (1, 0));
            // A tier in use is not removed, whatever a list says.
            assert_eq!(list.remove_members(&identity).len(), 1);
            assert!(tier.exists());
            attached.detach().unwrap();
            (place, identity, list)
        }
    }

    #[test]
    fn an_interrupted_removal_is_finished_and_a_list_of_somebody_else_is_not_followed() {
        let site = Site::new();
        let (place, home, list) = site.detached("db", "db.tier");
        let tier = site.real.join("db.tier");
        list.write(&place).unwrap();
        let mode = |mode| {
            std::fs::set_permissions(place.to_remove(), PermissionsExt::from_mode(mode)).unwrap()
        };
        mode(0o666);
        assert!(remove(&place, &home).is_err());
        assert!(tier.exists());
        mode(0o600);
        assert_eq!(remove(&place, &home).unwrap(), Removed { was_listed: true, left: Vec::new() });
        assert!(!tier.exists() && !place.to_remove().exists());
        assert_eq!(remove(&place, &home).unwrap(), Removed::default());
        let other = site.real.join("list");
        std::fs::write(&other, "{}").unwrap();
        std::os::unix::fs::symlink(&other, place.to_remove()).unwrap();
        assert!(remove(&place, &home).unwrap_err().to_string().contains("not written by"));
        std::fs::remove_file(place.to_remove()).unwrap();
        // Another version's list stays for the program that wrote it; a damaged one names nothing.
        list.write(&place).unwrap();
        let text = std::fs::read_to_string(place.to_remove()).unwrap();
        std::fs::write(place.to_remove(), text.replace("version = 1", "version = 2")).unwrap();
        assert!(remove(&place, &home).unwrap_err().to_string().contains("of version 2"));
        assert!(place.to_remove().exists());
        let development = "{\"home_inode\":1,\"home_birth_ns\":2,\"members\":[]}";
        std::fs::write(place.to_remove(), development).unwrap();
        assert!(remove(&place, &home).unwrap_err().to_string().contains("development build"));
        assert!(place.to_remove().exists());
        for damaged in ["{".to_owned(), text.replace("members", "Members")] {
            std::fs::write(place.to_remove(), damaged).unwrap();
            mode(0o600);
            assert_eq!(remove(&place, &home).unwrap().left.len(), 1);
            assert!(!place.to_remove().exists());
        }
    }

    #[test]
    fn a_home_and_a_tier_whose_inode_numbers_take_all_64_bits_are_listed() {
        let site = Site::new();
        let (place, mut home, _) = site.detached("db", "db.tier");
        (home.ino, home.btime_ns) = (u64::MAX, 1 << 63);
        let (mut list, _) = ToRemove::of(&home, &home, std::iter::empty());
        let path = site.real.join("gone.tier").as_path().into();
        list.members.push(Member { path, inode: NumberText(u64::MAX), attachment: "00".into() });
        list.write(&place).unwrap();
        assert_eq!(remove(&place, &home).unwrap(), Removed { was_listed: true, left: Vec::new() });
    }

    #[test]
    fn a_list_that_was_kept_removes_no_tier_of_another_home_or_attachment() {
        let site = Site::new();
        let (place, home, list) = site.detached("db", "db.tier");
        let (other, others_home, _) = site.detached("other", "other.tier");
        // The list of one home put beside another one, and beside its own with the path of another
        // tier.
        list.write(&other).unwrap();
        assert_eq!(remove(&other, &others_home).unwrap().left.len(), 1);
        std::fs::rename(site.real.join("db.tier"), site.real.join("kept.tier")).unwrap();
        std::fs::rename(site.real.join("other.tier"), site.real.join("db.tier")).unwrap();
        list.write(&place).unwrap();
        let said = remove(&place, &home).unwrap().left.concat();
        assert!(said.contains("not the tier that was detached from this home"), "{said}");
        assert!(site.real.join("db.tier").exists() && site.real.join("kept.tier").exists());
        // Its own home's, of a later attachment: in use, and free again.
        std::fs::rename(site.real.join("db.tier"), site.real.join("other.tier")).unwrap();
        std::fs::rename(site.real.join("kept.tier"), site.real.join("db.tier")).unwrap();
        let (_, _, later) = site.detached("db", "db.tier");
        assert_ne!(later, list);
        list.write(&place).unwrap();
        assert_eq!(remove(&place, &home).unwrap().left.len(), 1);
        assert!(site.real.join("db.tier").exists());
        later.write(&place).unwrap();
        assert_eq!(remove(&place, &home).unwrap().left, Vec::<String>::new());
        assert!(!site.real.join("db.tier").exists());
        let _ = RealHome::open(place.path()).unwrap();
    }
}
