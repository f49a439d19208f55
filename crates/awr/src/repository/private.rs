//! Files that hold texts of statements: a new one is its owner's alone.
//!
//! One that is there keeps its mode, which somebody may have meant; if everybody may read it, that
//! is said. As root, a file is only made or opened where no other account could have put it.
//!
//! Deliberately absent: what is in the files.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use tiersmith_dir::{Dir, Kind};

const OWNERS_ALONE: u32 = 0o600;
const EVERYBODY_READS: u32 = 0o004;

/// A new file for writing. Nothing may have its name.
pub(crate) fn make(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(OWNERS_ALONE).open(path)
}

/// Sees to it that there is a file for a program that opens by path, and makes an empty one if not.
pub(crate) fn make_if_missing(path: &Path) -> io::Result<()> {
    let (dir, name) = Dir::holding(path)?;
    match dir.make_file(&name, OWNERS_ALONE, None) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made.map(|_| ()),
    }
    let Some(found) = dir.look(&name)? else { return Ok(()) };
    let parent = dir.found()?;
    let is_trusted = match found.kind {
        // Who owns a link may change where it leads, and so may the directory's owner.
        Kind::Link => found.user == 0 && parent.user == 0,
        _ => found.user == 0 || found.user == parent.user,
    };
    if rustix::process::geteuid().is_root() && !is_trusted {
        let thing = if found.kind == Kind::Link { "link" } else { "file" };
        let text = format!("it is a {thing} of user {}, and root does not write there", found.user);
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

/// Says it if everybody may read a file, and how that ends.
pub(crate) fn warn_if_loose(path: &Path) {
    let loose = fs::metadata(path)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & EVERYBODY_READS != 0);
    if loose {
        let path = crate::figure::visible(&path.display().to_string());
        log::warn!(
            "{path} may hold texts of statements, and every account can read it: chmod o-r {path}"
        );
    }
}
