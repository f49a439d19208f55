//! Which profile a home is attached with.
//!
//! **Invariant**: a profile's file that only a note names is read only when nobody but root and
//! this user can change either (`plan.rs` has why).
//! **Deliberately absent**: what a profile says (crate `store`).

use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use tiersmith_store::{Attachment, Profile};

use super::belief::is_trusted;
use crate::attach::Attach;
use crate::error::{Error, Result};

/// Most bytes of a profile's file.
const PROFILE_MAX: u64 = 1 << 20;

/// A profile, where it is from, and why it was taken.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) profile: Profile,
    pub(super) file: Option<PathBuf>,
    pub(super) why: String,
}

/// As said, as noted, or by looking into the directory.
///
/// # Errors
/// No profile of that name; its file cannot be read, or is named by a note that is not believed.
pub(super) fn choose(
    wish: &Attach,
    note: Option<&Attachment>,
    believed: bool,
    files: &Path,
) -> Result<Chosen> {
    let named = |name: &str, why: String| {
        let profile = Profile::named(name).map_err(|e| Error::Usage(e.to_string()))?;
        Ok(Chosen { profile, file: None, why })
    };
    if let Some(said) = &wish.profile {
        if !said.contains('/') && !said.ends_with(".toml") {
            return named(said, "as --profile says".into());
        }
        let path = std::path::absolute(said).map_err(|source| Error::Io {
            what: "find",
            path: said.into(),
            source,
        })?;
        let profile = read_profile(&path, false)?;
        return Ok(Chosen {
            profile,
            why: format!("as --profile says, from {}", path.display()),
            file: Some(path),
        });
    }
    if let Some(path) = note.and_then(|note| note.profile_file.clone()) {
        if !believed {
            return Err(Error::Usage(format!(
                "cannot attach again: the home's note names the profile file {}, and the note was \
                 not written by root or you; if it is the \
                 right one, say --profile {0}",
                path.display()
            )));
        }
        let profile = read_profile(&path, true)?;
        return Ok(Chosen {
            profile,
            why: format!("as before, from {}", path.display()),
            file: Some(path),
        });
    }
    if let Some(note) = note {
        return named(&note.profile, "as before".into());
    }
    match Profile::detect(files) {
        Some(profile) => {
            let why = format!("found by looking into the directory: {}", profile.description());
            Ok(Chosen { profile, file: None, why })
        }
        None => named(
            "generic",
            "the directory looks like no database known here; --profile names one".into(),
        ),
    }
}

/// Reads a profile's file. With `strict` it must be root's or this user's, and nobody else may
/// change it.
fn read_profile(path: &Path, strict: bool) -> Result<Profile> {
    let cannot =
        |source: std::io::Error| Error::Io { what: "read the profile", path: path.into(), source };
    // Not waiting for a pipe's writer; what it is is looked at when it is open.
    let file =
        rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| cannot(e.into()))?;
    let file = std::fs::File::from(file);
    let metadata = file.metadata().map_err(cannot)?;
    if !metadata.is_file() || metadata.len() > PROFILE_MAX {
        return Err(Error::Usage(format!(
            "{} is no profile: it is not a file of at most 1 MiB",
            path.display()
        )));
    }
    if strict && !is_trusted(&metadata) {
        return Err(Error::Usage(format!(
            "the home's note names the profile file {}, which others than root and you can change; \
             look at it, and if it is right say \
             --profile {0}",
            path.display()
        )));
    }
    let mut text = String::new();
    file.take(PROFILE_MAX).read_to_string(&mut text).map_err(cannot)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    Profile::parse(&name, &text).map_err(|e| Error::Usage(format!("{}: {e}", path.display())))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails here says where")]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_profile_that_others_can_change_is_not_read_because_a_note_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mine.toml");
        std::fs::write(
            &path,
            "description = \"x\"\n[default]\nclass = \"pass\"\nblock_size = 4096\n",
        )
        .unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(read_profile(&path, true).unwrap().name(), "mine");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(read_profile(&path, true).unwrap_err().to_string().contains("--profile"));
        read_profile(&path, false).unwrap();
        assert!(read_profile(Path::new("/dev/zero"), false).is_err());
        assert!(read_profile(dir.path(), false).is_err());
    }
}
