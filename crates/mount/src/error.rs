//! The errors of mounting and unmounting. What goes wrong inside the mount is answered to the
//! program that asked, as an errno.

use std::io;
use std::path::PathBuf;

/// Why a home cannot be mounted or unmounted. `Display` is a sentence with the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no FUSE here.
    #[error("cannot mount at {}: {source} (/dev/fuse); load the module with `modprobe fuse`, or in \
             a container pass the device in", at.display())]
    NoFuse {
        /// The mount point.
        at: PathBuf,
        /// What opening the device said.
        source: io::Error,
    },
    /// The mount point is no directory, or cannot be reached.
    #[error("cannot mount at {}: {source}; give an existing directory", at.display())]
    MountPoint {
        /// The mount point.
        at: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// The kernel, or fusermount3, refused.
    #[error("cannot mount at {}: {reason}{}", at.display(), mount_remedy(reason))]
    Mount {
        /// The mount point.
        at: PathBuf,
        /// What it said.
        reason: String,
    },
    /// Others may be let in by root only.
    #[error("cannot mount at {} for other users: only root can keep them to the rights that they \
             have in the home; run as root, or without allow_other", at.display())]
    OthersNeedRoot {
        /// The mount point.
        at: PathBuf,
    },
    /// The transport asked for is not to be had.
    #[error("cannot mount at {} over {transport}: {reason}; ask for `auto` to use the best that \
             there is", at.display())]
    Transport {
        /// The mount point.
        at: PathBuf,
        /// The transport asked for.
        transport: super::Transport,
        /// Why not.
        reason: String,
    },
    /// The home is not a real directory.
    #[error("cannot mount at {}: the home is a simulated one, which has no directory",
    at.display())]
    NoDirectory {
        /// The mount point.
        at: PathBuf,
    },
    /// Something is still using the mount.
    #[error("cannot unmount {}: {who}. Stop that first; nothing is lost, the mount goes on",
    at.display())]
    Busy {
        /// The mount point.
        at: PathBuf,
        /// The processes found, by name and number.
        who: String,
    },
    /// It is unmounted here, but another mount namespace has it still.
    #[error("{} is unmounted, but {who} and may use it; end that, and try again. Nothing is lost, \
             its files are served until then", at.display())]
    Elsewhere {
        /// The mount point.
        at: PathBuf,
        /// The processes found, by name and number.
        who: String,
    },
    /// The mount is served by a process that lives.
    #[error("{} is not a dead mount: a process serves it, or nothing is mounted there; it was left \
             alone", at.display())]
    NotDead {
        /// The mount point.
        at: PathBuf,
    },
    /// The system refused.
    #[error("cannot {what} {}: {source}", at.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The mount point.
        at: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn mount_remedy(reason: &str) -> &'static str {
    if reason.contains("fusermount") || reason.contains("No such file") {
        " (who is not root needs the program fusermount3, from the package fuse3)"
    } else if reason.contains("EPERM")
        || reason.contains("ermission")
        || reason.contains("not permitted")
    {
        " (run as root, or as the owner of the mount point with fusermount3 installed)"
    } else {
        ""
    }
}
