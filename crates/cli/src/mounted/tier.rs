//! The tier's file: where it is, that nobody else can read it, and that it goes again when the
//! first attach fails.
//!
//! In a directory the file is called after the home's path with dashes for slashes, so that one
//! directory serves many homes. It is made before the store formats it, with mode 0600, so that no
//! byte of the database is ever in a file others can read.
//!
//! It belongs to who runs the daemon, not to the home's owner: a daemon writes what its tier says
//! into any file of the home, with its own rights. A tier of somebody else is refused, also one
//! that an earlier version gave to the home's owner: only a person can say whether that user has
//! changed it. The directory may be anybody's; who owns it can take the file away, but cannot put
//! another of root's there.
//!
//! **Invariants**: a file that had bytes is never removed here. One that is empty counts as made
//! here, whichever of several attaches at once has made it; it goes again only while this process
//! has the home locked and the home is plain, so it is never the tier of an attach that succeeded.

use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tiersmith_dir::{Dir, Found};
use tiersmith_store::home::{Home, RealHome};
use tiersmith_store::{Medium, TierSpec, attachment};

use super::device;
use crate::error::{Error, Result};

/// How long another attach of the same home may take to fail or to have attached it.
const UNDECIDED: Duration = Duration::from_secs(10);

/// A member made here; gone again unless [`Made::keep`] is called or somebody else uses it.
#[derive(Debug)]
pub(super) struct Made {
    dir: Dir,
    name: OsString,
    file: Found,
    home: PathBuf,
    keep: bool,
}

impl Made {
    pub(super) fn keep(mut self) {
        self.keep = true;
    }

    /// Removes it. The caller has the home locked, and the home is plain.
    pub(super) fn remove(mut self) {
        self.keep = true;
        // The error that led here says more than one from here would.
        let _ = self.dir.remove_file_that_is(&self.name, &self.file);
    }

    /// The home's lock, when nobody else has it and it is not attached.
    fn lock_plain(&self) -> Option<RealHome> {
        let began = Instant::now();
        loop {
            let home = RealHome::open(&self.home).ok()?;
            let locked = home.lock().is_ok();
            if !matches!(attachment(&self.home), Ok(None))
                || (!locked && began.elapsed() > UNDECIDED)
            {
                return None;
            }
            if locked {
                return Some(home);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // Somebody else's attach may have been faster, and have its blocks in this file by now.
        if !self.keep
            && let Some(_locked) = self.lock_plain()
        {
            // The home's lock says nothing of another home that has found the file empty.
            let _ = self.dir.remove_unused(&self.name, &self.file);
        }
    }
}

/// What the user said about the tier.
#[derive(Debug)]
pub(super) struct Wish<'a> {
    pub(super) fast: &'a Path,
    pub(super) size: u64,
    pub(super) medium: Medium,
    pub(super) home: &'a Path,
    /// What the block device is called by a user who wants it overwritten.
    pub(super) overwrite: Option<&'a str>,
}

impl Wish<'_> {
    /// The tier to attach, its file made when there is none.
    ///
    /// # Errors
    /// The place does not exist, is inside the home, or holds a file that somebody else could read
    /// or own.
    pub(super) fn spec(&self) -> Result<(TierSpec, Option<Made>)> {
        let (path, made) = self.member()?;
        if path.starts_with(self.home) {
            return Err(Error::Usage(format!(
                "cannot put the tier at {}: that is inside the home; name a place on the fast \
                 storage",
                path.display()
            )));
        }
        if !device::is_one(&path) && self.overwrite.is_some() {
            return Err(Error::Usage(format!(
                "--overwrite is for a block device, and {} is none; leave it out",
                path.display()
            )));
        }
        let overwrite_device = self.overwrite.map(str::to_owned);
        let spec = TierSpec::new("fast", path, self.medium, self.size);
        Ok((TierSpec { overwrite_device, ..spec }, made))
    }

    fn member(&self) -> Result<(PathBuf, Option<Made>)> {
        let (dir, name, path) = place(self.fast, self.home)?;
        device::refuse_to_make(&path)?;
        self.file(dir, name, path)
    }

    fn file(&self, dir: Dir, name: OsString, path: PathBuf) -> Result<(PathBuf, Option<Made>)> {
        let cannot = |source| Error::Io { what: "make the tier", path: path.clone(), source };
        let file = match dir.make_file(&name, 0o600, None) {
            Ok(file) => Found::of(file).map_err(cannot)?,
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                ours(&path, true)?;
                // Made an instant ago by another attach of this home, of which one will win;
                // whoever does removes it at the end.
                match dir.look(&name).map_err(cannot)? {
                    Some(found) if found.is_file() && found.size == 0 => found,
                    _ => return Ok((path, None)),
                }
            }
            Err(source) => return Err(cannot(source)),
        };
        let made = Made { dir, name, file, home: self.home.into(), keep: false };
        Ok((path, Some(made)))
    }
}

/// Where the tier of `subject` is to be: the directory, the name in it, and the path that leads
/// there without links. `fast` is that file or device, or the directory for it, and may be a link
/// that root trusts: whoever had a say in where a path leads is known only on the way, not from
/// where it ended.
///
/// # Errors
/// There is no such directory, or somebody who had a say in where it is does not own it.
pub(crate) fn place(fast: &Path, subject: &Path) -> Result<(Dir, OsString, PathBuf)> {
    let found = if fast.is_dir() {
        Dir::holding(&fast.join(file_name(subject)))
    } else {
        Dir::holding_target(fast)
    };
    let found = found.and_then(|(dir, name)| {
        let path = dir.where_it_is()?.join(&name);
        Ok((dir, name, path))
    });
    found.map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => Error::Usage(format!(
            "there is no {}; give a directory on the fast storage, a file in one, a DAX device \
             or a block device",
            fast.display()
        )),
        _ => Error::Io { what: "find", path: fast.into(), source },
    })
}

/// Refuses to make the file of an ephemeral tier again where its disk is not mounted, as it may be
/// after a stop: it would fill the root file system.
///
/// # Errors
/// Says what to do.
pub(super) fn refuse_unmounted(member: &Path) -> Result<()> {
    let root = std::fs::metadata("/").map(|root| root.dev());
    let found = Dir::holding(member).and_then(|(dir, _)| Found::of(dir));
    if let (Ok(found), Ok(root)) = (found, root)
        && found.device != root
    {
        return Ok(());
    }
    let directory = member.parent().unwrap_or(member);
    Err(Error::Usage(format!(
        "the tier {} is not there, and its disk seems not to be mounted: {} is on the root \
         file system, or nowhere. Format the disk if it is empty, mount it, and try again; or say \
         --fast with the place for a new tier. It had clean copies only, so nothing is lost, and \
         nothing was changed",
        member.display(),
        directory.display()
    )))
}

/// Makes the file of a tier of clean copies again that went with a reboot or a stop.
///
/// # Errors
/// When it cannot be made.
pub(super) fn make_again(member: &Path, home: &Path) -> Result<()> {
    device::refuse_to_make(member)?;
    let wish = Wish { fast: member, size: 0, medium: Medium::Volatile, home, overwrite: None };
    let (dir, name) = Dir::holding(member).map_err(|source| Error::Io {
        what: "make the tier",
        path: member.into(),
        source,
    })?;
    let (_, made) = wish.file(dir, name, member.to_path_buf())?;
    if let Some(made) = made {
        made.keep();
    }
    Ok(())
}

/// Whose a tier must be, if not root's: this user's.
pub(super) fn whose() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Refuses a member that somebody other than root and this user could have changed; with `private`,
/// also one that others may read. The store asks again what it has opened: in a directory of
/// somebody else, a path may lead elsewhere by then.
///
/// # Errors
/// Says whose it is, and what to do.
pub(super) fn ours(path: &Path, private: bool) -> Result<()> {
    let whose = whose();
    refuse_others(path, &[0, whose], private, |user| {
        format!(
            "it belongs to user {user}, who could have put anything into it, and what a tier holds \
             is written into the home with the rights \
             of user {whose}. Work as user {user} (setpriv, sudo -u); or, if only Tiersmith has \
             written to it, put a copy of user {whose} in \
             its place (cp, chmod 600, mv), likewise the directory beside it that ends in .lent if \
             there is one, with what is in it \
             (chown -R), and try again. Nothing was changed, and nothing is lost"
        )
    })
}

/// Refuses a member that somebody other than root, this user and the home's owner could have made
/// up; with `private`, also one that others may read.
///
/// # Errors
/// Says whose it is, and what to do.
pub(crate) fn trusted(path: &Path, home: &Metadata, private: bool) -> Result<()> {
    let whose = whose();
    refuse_others(path, &[0, whose, home.uid()], private, |user| {
        format!(
            "it belongs to user {user}, who is neither the home's owner nor you; remove it, or \
             name another place"
        )
    })
}

fn refuse_others(
    path: &Path,
    owners: &[u32],
    private: bool,
    why: impl FnOnce(u32) -> String,
) -> Result<()> {
    let found = std::fs::symlink_metadata(path).map_err(|source| Error::Io {
        what: "find the tier",
        path: path.into(),
        source,
    })?;
    let refuse =
        |why: String| Err(Error::Usage(format!("cannot use {} as a tier: {why}", path.display())));
    let device = found.file_type().is_char_device() || found.file_type().is_block_device();
    if !found.is_file() && !device {
        return refuse("it is neither a file nor a device".into());
    }
    if !owners.contains(&found.uid()) {
        return refuse(why(found.uid()));
    }
    // A device has the mode that the system gives it.
    if private && !device && found.mode() & 0o077 != 0 {
        return refuse(format!(
            "others may open it (mode {:04o}); chmod 600 it first",
            found.mode() & 0o7777
        ));
    }
    Ok(())
}

/// The home's path with dashes, and `.tier`.
pub(super) fn file_name(home: &Path) -> OsString {
    let mut name: Vec<u8> =
        home.as_os_str().as_bytes().iter().map(|b| if *b == b'/' { b'-' } else { *b }).collect();
    while name.first() == Some(&b'-') {
        name.remove(0);
    }
    // A name has at most 255 bytes; the end of a path tells more than its beginning.
    let cut = name.len().saturating_sub(240);
    let mut name = name.split_off(cut);
    name.extend_from_slice(b".tier");
    OsString::from_vec(name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails here says where")]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_called_after_the_homes_path() {
        assert_eq!(
            file_name(Path::new("/var/lib/postgresql/15/main")),
            "var-lib-postgresql-15-main.tier"
        );
        assert!(file_name(Path::new(&format!("/{}", "x/".repeat(500)))).len() < 255);
    }

    #[test]
    fn a_member_made_here_is_private_and_goes_unless_it_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("db");
        std::fs::create_dir(&home).unwrap();
        let fast = dir.path().join("fast");
        std::fs::create_dir(&fast).unwrap();
        let wish = Wish {
            fast: &fast,
            size: 8 << 20,
            medium: Medium::Emulated,
            home: &home,
            overwrite: None,
        };
        let (spec, made) = wish.spec().unwrap();
        let metadata = std::fs::metadata(&spec.members[0]).unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.uid()), (0o600, whose()));
        drop(made);
        assert!(!spec.members[0].exists());
        let (_, made) = wish.spec().unwrap();
        made.unwrap().keep();
        std::fs::write(&spec.members[0], "bytes").unwrap();
        assert!(wish.spec().unwrap().1.is_none(), "a file that is there is used");
    }

    #[test]
    fn a_member_that_another_attach_uses_by_now_stays() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        let (home, fast) = (real.join("db"), real.join("fast"));
        std::fs::create_dir(&home).unwrap();
        std::fs::create_dir(&fast).unwrap();
        let wish = Wish {
            fast: &fast,
            size: 24 << 20,
            medium: Medium::Emulated,
            home: &home,
            overwrite: None,
        };
        // Two attaches at once: this one made the file, the other one found it empty and was faster
        // to the home's lock.
        let (spec, made) = wish.spec().unwrap();
        let (others, others_made) = wish.spec().unwrap();
        assert_eq!(spec.members, others.members);
        let attached =
            tiersmith_store::attach(&home, &[others], tiersmith_store::Options::default()).unwrap();
        let held = attached.clone();
        drop(made);
        assert!(spec.members[0].exists(), "the tier of another attach was removed");
        attached.detach().unwrap();
        assert!(others_made.is_some(), "nobody would remove the file");
        others_made.unwrap().remove();
        drop(held);
        assert!(!spec.members[0].exists());
        // Attached, and its daemon dead: the lock is free.
        let (spec, made) = wish.spec().unwrap();
        drop(
            tiersmith_store::attach(
                &home,
                std::slice::from_ref(&spec),
                tiersmith_store::Options::default(),
            )
            .unwrap(),
        );
        drop(made);
        assert!(spec.members[0].exists(), "the tier of an attached home was removed");
    }

    #[test]
    fn a_member_that_another_home_uses_by_now_stays() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        let (home, other, tier) = (real.join("db"), real.join("other"), real.join("shared.tier"));
        std::fs::create_dir(&home).unwrap();
        std::fs::create_dir(&other).unwrap();
        let wish = Wish {
            fast: &tier,
            size: 24 << 20,
            medium: Medium::Emulated,
            home: &home,
            overwrite: None,
        };
        let (spec, made) = wish.spec().unwrap();
        let (_, others_made) = Wish { home: &other, ..wish }.spec().unwrap();
        let attached =
            tiersmith_store::attach(&other, &[spec], tiersmith_store::Options::default()).unwrap();
        others_made.unwrap().keep();
        drop(made);
        assert!(tier.exists(), "the tier of another home was removed");
        drop(attached);
    }

    #[test]
    fn a_file_that_others_may_read_and_a_place_inside_the_home_are_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let inside = Wish {
            fast: &home,
            size: 8 << 20,
            medium: Medium::Emulated,
            home: &home,
            overwrite: None,
        };
        assert!(inside.spec().unwrap_err().to_string().contains("inside the home"));
        assert_eq!(std::fs::read_dir(&home).unwrap().count(), 0, "something was left");
        let open = home.join("open.tier");
        std::fs::write(&open, "").unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).unwrap();
        let wish = Wish { fast: &open, home: Path::new("/db"), ..inside };
        assert!(wish.spec().unwrap_err().to_string().contains("chmod 600"));
        let nowhere = home.join("no/where");
        let wish = Wish { fast: &nowhere, ..wish };
        assert!(wish.spec().unwrap_err().to_string().contains("there is no"));
    }
}
