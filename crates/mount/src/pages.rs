//! Pages that the kernel keeps for a mount and writes back later: how many it may keep, and who
//! writes them.
//!
//! The kernel distrusts file systems of processes: it lets a FUSE mount have a hundredth of the
//! dirty pages that the system may have, and makes writers wait above that. A database writes in
//! bursts, so it would wait for the daemon all the time. Root may lift these limits
//! (`/sys/class/bdi/MAJOR:MINOR`); that is done for the one device that the mount itself is, and
//! ends with it.
//!
//! Whoever writes such pages back must not wait until there are fewer of them. The threads that
//! serve the mount therefore tell the kernel that they do (`PR_SET_IO_FLUSHER`): they are held back
//! by the device that they write to, and by no other.
//!
//! Deliberately absent: the limits of the whole system (`vm.dirty_ratio`), which hold for this
//! mount as for any other.

use rustix::fs::{AtFlags, StatxFlags};
use std::os::fd::OwnedFd;

/// What is written where, and means "as much as any device may".
const LIMITS: [(&str, &str); 2] = [("strict_limit", "0"), ("max_ratio", "100")];

/// Lifts the limits of the mount that this is the top of; why not, where it cannot be.
pub(crate) fn lift_limits(top: &OwnedFd) -> Result<(), String> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found =
        rustix::fs::statx(top, "", flags, StatxFlags::empty()).map_err(|e| e.to_string())?;
    let device = format!("/sys/class/bdi/{}:{}", found.stx_dev_major, found.stx_dev_minor);
    for (limit, value) in LIMITS {
        let path = format!("{device}/{limit}");
        std::fs::write(&path, value).map_err(|e| format!("{path} cannot be written: {e}"))?;
    }
    Ok(())
}

/// While this lives, the thread and those it starts are writers of pages: those stay so.
#[derive(Debug)]
pub(crate) struct Writer(());

impl Writer {
    /// `None`: the kernel does not let this process.
    pub(crate) fn begin() -> Option<Self> {
        set(1).then_some(Self(()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = set(0);
    }
}

fn set(on: libc::c_ulong) -> bool {
    const SET_IO_FLUSHER: libc::c_int = 57;
    // SAFETY: PR_SET_IO_FLUSHER takes a number and three zeros, and touches no memory of this
    // process.
    unsafe { libc::prctl(SET_IO_FLUSHER, on, 0, 0, 0) == 0 }
}
