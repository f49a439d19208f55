//! Whose a file must be that a daemon is led by: a home's note lies where the database's user
//! writes.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use tiersmith_store::Attachment;

/// Whether a file was written by root or this user, and nobody else can change it.
pub(super) fn is_trusted(found: &Metadata) -> bool {
    is_ours(found.uid(), found.mode(), found.nlink())
}

/// Whether the note that was read was written by root or this user.
pub(crate) fn is_believed(note: &Attachment) -> bool {
    is_ours(note.owner, note.mode, note.links.into())
}

fn is_ours(owner: u32, mode: u32, links: u64) -> bool {
    (owner == 0 || owner == rustix::process::geteuid().as_raw()) && mode & 0o022 == 0 && links == 1
}
