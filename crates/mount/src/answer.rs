//! From a request to its answer: decodes, calls the file system, encodes. Both transports call
//! [`answer`].
//!
//! A panic below ends in `EIO` for the one who asked and a line in the log; the mount goes on.

use crate::attr::Time;
use crate::caller::Caller;
use crate::fs::{Answer, Change, Fs, Handle, VALID, When};
use crate::ring::{self, Service};
use crate::wire::encode::Out;
use crate::wire::layout::*;
use crate::wire::{Request, op, take_name};
use rustix::io::Errno;
use std::panic::AssertUnwindSafe;
use std::sync::Weak;
use zerocopy::FromBytes;

/// What is to be sent back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Nothing: the kernel does not wait for an answer.
    Nothing,
    /// So many bytes of the buffer.
    Bytes(usize),
    /// An error, as a positive number.
    Error(i32),
}

/// Answers a request. `into` is where the answer without its header goes.
pub(crate) fn answer(fs: &Fs, request: &Request<'_>, into: &mut [u8]) -> Sent {
    fs.requests.count(request.opcode);
    let result = std::panic::catch_unwind(AssertUnwindSafe(|| answer_or_panic(fs, request, into)));
    match result {
        Ok(Ok(Some(len))) => Sent::Bytes(len),
        Ok(Ok(None)) => Sent::Nothing,
        Ok(Err(errno)) => Sent::Error(fs.without_descriptors(errno).raw_os_error()),
        Err(_) => {
            log::error!(
                "BUG: request {} of process {} for node {} panicked; it was answered with an I/O \
                 error, and the mount goes on",
                request.opcode,
                request.pid,
                request.node
            );
            if matches!(request.opcode, op::FORGET | op::BATCH_FORGET | op::INTERRUPT) {
                Sent::Nothing
            } else {
                Sent::Error(Errno::IO.raw_os_error())
            }
        }
    }
}

/// The length of the answer, or `None` if none is to be sent.
pub(crate) fn answer_or_panic(
    fs: &Fs,
    request: &Request<'_>,
    into: &mut [u8],
) -> Answer<Option<usize>> {
    let mut out = Out::new(into);
    Ok(dispatch(fs, request, &mut out)?.then_some(out.len()))
}

/// The file system as the io_uring transport knows it: its threads may be there a moment longer
/// than the mount, and must not keep the home.
#[derive(Debug)]
pub(crate) struct Door(pub(crate) Weak<Fs>);

impl Service for Door {
    fn is_quick(&self, request: &ring::Request<'_>) -> bool {
        let request = Request::new(request.header, request.fixed, request.rest);
        match (self.0.upgrade(), request) {
            (Some(fs), Some(request)) => is_quick(&fs, &request),
            _ => true,
        }
    }

    fn answer(&self, request: &ring::Request<'_>, out: &mut [u8]) -> Result<usize, Errno> {
        let request = Request::new(request.header, request.fixed, request.rest).ok_or(Errno::IO)?;
        let fs = self.0.upgrade().ok_or(Errno::NODEV)?;
        match answer(&fs, &request, out) {
            Sent::Bytes(len) => Ok(len),
            Sent::Nothing => Ok(0),
            Sent::Error(errno) => Err(Errno::from_raw_os_error(errno)),
        }
    }
}

/// Whether a request is answered without waiting for a disk.
fn is_quick(fs: &Fs, r: &Request<'_>) -> bool {
    if r.check().is_err() {
        return true;
    }
    match r.opcode {
        op::READ => r.fixed::<ReadIn>().is_ok_and(|x| fs.reads_quickly(x.fh.get(), x.offset.get())),
        op::WRITE => r.fixed::<WriteIn>().is_ok_and(|x| fs.writes_quickly(x.fh.get())),
        op::FSYNC => r.fixed::<FsyncIn>().is_ok_and(|x| fs.writes_quickly(x.fh.get())),
        // A rename may wait for a disk, and they for the rename.
        op::LOOKUP | op::GETATTR => fs.names_are_free(),
        op::RELEASEDIR | op::STATFS => true,
        _ => false,
    }
}

/// `false`: no answer is to be sent.
fn dispatch(fs: &Fs, r: &Request<'_>, out: &mut Out<'_>) -> Answer<bool> {
    r.check()?;
    match r.opcode {
        op::READ => {
            let x: &ReadIn = r.fixed()?;
            let read = fs.read(x.fh.get(), x.offset.get(), out.space(x.size.get() as usize)?)?;
            out.filled(read);
        }
        op::WRITE => write(fs, r, out)?,
        op::FSYNC => {
            // ENOSYS once, and the kernel sends no more of them: every change of a file is durable
            // as it returns.
            if fs.sync_on_write {
                return Err(Errno::NOSYS);
            }
            let x: &FsyncIn = r.fixed()?;
            fs.fsync(x.fh.get(), x.fsync_flags.get() & FSYNC_FDATASYNC != 0)?;
        }
        // Always asked for: it is the one sync of what is removed.
        op::FSYNCDIR => fs.fsyncdir(r.node, r.fixed::<FsyncIn>()?.fh.get())?,
        op::LOOKUP => match fs.lookup(r.node, r.name()?)? {
            Some(entry) => out.entry(entry.node, &entry.attr, VALID)?,
            None => out.entry(0, &Default::default(), VALID)?,
        },
        op::FORGET => {
            fs.forget(r.node, r.fixed::<ForgetIn>()?.lookups.get());
            return Ok(false);
        }
        op::BATCH_FORGET => {
            forget_all(fs, r)?;
            return Ok(false);
        }
        // Nothing here waits long, except for room in the tier, which comes.
        op::INTERRUPT => return Ok(false),
        op::GETATTR => {
            let x: &GetattrIn = r.fixed()?;
            let fh = (x.getattr_flags.get() & GETATTR_FH != 0).then(|| x.fh.get());
            out.attr_out(&fs.getattr(r.node, fh)?, VALID)?;
        }
        op::SETATTR => out.attr_out(&fs.setattr(r.node, &change(r.fixed()?)?)?, VALID)?,
        op::OPEN => handle(out, fs.open(r.node, r.fixed::<OpenIn>()?.flags.get())?)?,
        op::RELEASE => fs.release(r.fixed::<ReleaseIn>()?.fh.get()),
        op::OPENDIR => handle(out, Handle { fh: fs.opendir(r.node)?, flags: 0, backing: 0 })?,
        op::RELEASEDIR => fs.releasedir(r.fixed::<ReleaseIn>()?.fh.get()),
        op::READDIR | op::READDIRPLUS => readdir(fs, r, out)?,
        // The kernel does not say here whether the caller may keep suid and sgid; root may.
        op::FALLOCATE => {
            let x: &FallocateIn = r.fixed()?;
            fs.fallocate(x.fh.get(), x.offset.get(), x.length.get(), x.mode.get(), r.uid != 0)?;
        }
        // Pages that the kernel has not written yet are no holes. Once refused, it asks no more,
        // and takes the whole file for data.
        op::LSEEK if fs.write_back => return Err(Errno::NOSYS),
        op::LSEEK => {
            let x: &LseekIn = r.fixed()?;
            out.put(&LseekOut { offset: fs.lseek(x.fh.get(), x.offset.get(), x.whence.get())? })?;
        }
        op::STATFS => statfs(fs, out)?,
        // ENOSYS once for each kind, and the kernel sends no more of it.
        op::SETXATTR | op::GETXATTR | op::LISTXATTR | op::REMOVEXATTR if !fs.xattrs => {
            return Err(Errno::NOSYS);
        }
        op::SETXATTR | op::GETXATTR | op::LISTXATTR | op::REMOVEXATTR => xattr(fs, r, out)?,
        op::IOCTL => return Err(Errno::NOTTY),
        _ => return name_request(fs, r, out),
    }
    Ok(true)
}

#[inline]
fn write(fs: &Fs, r: &Request<'_>, out: &mut Out<'_>) -> Answer<()> {
    let x: &WriteIn = r.fixed()?;
    let data = r.rest.get(..x.size.get() as usize).ok_or(Errno::INVAL)?;
    let written = if fs.discards_writes() {
        data.len()
    } else {
        let take_rights = x.write_flags.get() & WRITE_KILL_SUIDGID != 0;
        fs.write(x.fh.get(), x.offset.get(), data, x.flags.get(), take_rights)?
    };
    out.put(&WriteOut { size: written as u32, padding: 0 })
}

fn forget_all(fs: &Fs, r: &Request<'_>) -> Answer<()> {
    let mut rest = r.rest;
    for _ in 0..r.fixed::<BatchForgetIn>()?.count.get() {
        let Ok((one, after)) = ForgetOne::ref_from_prefix(rest) else { break };
        fs.forget(one.node.get(), one.lookups.get());
        rest = after;
    }
    Ok(())
}

/// Requests that make, change or remove names.
fn name_request(fs: &Fs, r: &Request<'_>, out: &mut Out<'_>) -> Answer<bool> {
    match r.opcode {
        op::CREATE => {
            let x: &CreateIn = r.fixed()?;
            let (mode, umask, flags) = (x.mode.get(), x.umask.get(), x.flags.get());
            let (entry, opened) = fs.create(who(r)?, r.node, r.name()?, mode, umask, flags)?;
            out.entry(entry.node, &entry.attr, VALID)?;
            handle(out, opened)?;
        }
        op::MKDIR => {
            let x: &MkdirIn = r.fixed()?;
            let entry = fs.mkdir(who(r)?, r.node, r.name()?, x.mode.get(), x.umask.get())?;
            out.entry(entry.node, &entry.attr, VALID)?;
        }
        op::MKNOD => {
            let x: &MknodIn = r.fixed()?;
            let (mode, device, umask) = (x.mode.get(), x.rdev.get(), x.umask.get());
            let entry = fs.mknod(who(r)?, r.node, r.name()?, mode, device, umask)?;
            out.entry(entry.node, &entry.attr, VALID)?;
        }
        op::SYMLINK => {
            let (name, rest) = r.names()?;
            let entry = fs.symlink(who(r)?, r.node, name, take_name(rest)?.0)?;
            out.entry(entry.node, &entry.attr, VALID)?;
        }
        op::LINK => {
            let entry = fs.link(r.fixed::<LinkIn>()?.node.get(), r.node, r.name()?)?;
            out.entry(entry.node, &entry.attr, VALID)?;
        }
        op::UNLINK => fs.unlink(r.node, r.name()?)?,
        op::RMDIR => fs.rmdir(r.node, r.name()?)?,
        op::RENAME | op::RENAME2 => {
            let (new_dir, flags) = if r.opcode == op::RENAME2 {
                let x: &Rename2In = r.fixed()?;
                (x.new_dir.get(), x.flags.get())
            } else {
                (r.fixed::<RenameIn>()?.new_dir.get(), 0)
            };
            let (from, rest) = r.names()?;
            fs.rename(who(r)?, (r.node, from), (new_dir, take_name(rest)?.0), flags)?;
        }
        op::READLINK => out.bytes(&fs.readlink(r.node)?)?,
        // Locks, access checks, copies, polling: the kernel does them without us, and better.
        _ => return Err(Errno::NOSYS),
    }
    Ok(true)
}

/// Who asks. A user or group that has no number here (-1) must not be taken for "leave it", which
/// would make what is made the daemon's own.
fn who(r: &Request<'_>) -> Answer<Caller> {
    if r.uid == NOBODY || r.gid == NOBODY {
        Err(Errno::OVERFLOW)
    } else {
        Ok(Caller { uid: r.uid, gid: r.gid, pid: r.pid })
    }
}

/// The number that is no user and no group.
const NOBODY: u32 = u32::MAX;

fn handle(out: &mut Out<'_>, h: Handle) -> Answer<()> {
    out.put(&OpenOut { fh: h.fh, open_flags: h.flags, backing_id: h.backing })
}

fn change(x: &SetattrIn) -> Answer<Change> {
    let has = |bit: u32| x.valid.get() & bit != 0;
    let when = |set: u32, now: u32, sec: i64, nsec: u32| match (has(now), has(set)) {
        (true, _) => Some(When::Now),
        (false, true) => Some(When::At(Time { sec, nsec })),
        (false, false) => None,
    };
    let change = Change {
        mode: has(fattr::MODE).then(|| x.mode.get()),
        uid: has(fattr::UID).then(|| x.uid.get()),
        gid: has(fattr::GID).then(|| x.gid.get()),
        size: has(fattr::SIZE).then(|| x.size.get()),
        atime: when(fattr::ATIME, fattr::ATIME_NOW, x.atime.get(), x.atime_nsec.get()),
        mtime: when(fattr::MTIME, fattr::MTIME_NOW, x.mtime.get(), x.mtime_nsec.get()),
        fh: has(fattr::FH).then(|| x.fh.get()),
        take_rights: has(fattr::KILL_SUIDGID),
    };
    if change.uid == Some(NOBODY) || change.gid == Some(NOBODY) {
        Err(Errno::INVAL)
    } else {
        Ok(change)
    }
}

fn readdir(fs: &Fs, r: &Request<'_>, out: &mut Out<'_>) -> Answer<()> {
    // The kernel says how much it takes; the buffer may be larger.
    let x: &ReadIn = r.fixed()?;
    let size = (x.size.get() as usize).min(out.room());
    let mut part = Out::new(out.space(size)?);
    fs.readdir(r.node, x.fh.get(), x.offset.get(), r.opcode == op::READDIRPLUS, &mut part)?;
    let len = part.len();
    out.filled(len);
    Ok(())
}

fn statfs(fs: &Fs, out: &mut Out<'_>) -> Answer<()> {
    let s = fs.statfs()?;
    out.put(&StatfsOut {
        blocks: s.f_blocks,
        bfree: s.f_bfree,
        bavail: s.f_bavail,
        files: s.f_files,
        ffree: s.f_ffree,
        bsize: s.f_bsize as u32,
        namelen: s.f_namemax as u32,
        frsize: s.f_frsize as u32,
        ..StatfsOut::default()
    })
}

fn xattr(fs: &Fs, r: &Request<'_>, out: &mut Out<'_>) -> Answer<()> {
    match r.opcode {
        op::SETXATTR => {
            let (name, value) = r.names()?;
            let x: &SetxattrIn = r.fixed()?;
            let value = value.get(..x.size.get() as usize).ok_or(Errno::INVAL)?;
            fs.setxattr(r.node, name, value, x.flags.get())
        }
        op::REMOVEXATTR => fs.removexattr(r.node, r.name()?),
        _ => {
            let size = (r.fixed::<GetxattrIn>()?.size.get() as usize).min(out.room());
            let read = |into: &mut [u8]| match r.opcode {
                op::GETXATTR => fs.getxattr(r.node, r.name()?, into),
                _ => fs.listxattr(r.node, into),
            };
            if size == 0 {
                let len = read(&mut [])?;
                out.put(&GetxattrOut { size: len as u32, padding: 0 })
            } else {
                let len = read(out.space(size)?)?;
                out.filled(len);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::host_endian_bytes, reason = "the kernel of this machine writes its messages")]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn times_stay_the_numbers_they_are() {
        let mut fixed = [0u8; 88];
        fixed[..4].copy_from_slice(&(fattr::ATIME | fattr::MTIME).to_ne_bytes());
        fixed[32..40].copy_from_slice(&i64::MIN.to_ne_bytes());
        fixed[40..48].copy_from_slice(&(-2i64).to_ne_bytes());
        fixed[60..64].copy_from_slice(&500_000_000u32.to_ne_bytes());
        let change =
            change(SetattrIn::ref_from_bytes(&fixed).expect("its size")).expect("it is sound");
        assert!(matches!(change.atime, Some(When::At(Time { sec: i64::MIN, nsec: 0 }))));
        assert!(matches!(change.mtime, Some(When::At(Time { sec: -2, nsec: 500_000_000 }))));
        assert!(change.mode.is_none() && change.size.is_none() && !change.take_rights);
    }

    #[test]
    fn a_message_that_is_cut_short_is_refused_and_not_followed() {
        for opcode in 0..64u32 {
            for len in 0..=crate::header::IN_HEADER + 100 {
                let mut message = vec![0u8; len];
                if len >= 8 {
                    message[4..8].copy_from_slice(&opcode.to_ne_bytes());
                }
                let Some(request) = Request::whole(&message) else {
                    assert!(len < crate::header::IN_HEADER);
                    continue;
                };
                let whole = request.fixed.len() >= crate::wire::fixed_len(opcode);
                assert_eq!(request.check().is_ok(), whole, "opcode {opcode}, {len} bytes");
            }
        }
        assert_eq!(take_name(b"no end"), Err(Errno::INVAL));
        assert_eq!(take_name(b"\0"), Err(Errno::INVAL));
        assert_eq!(take_name(b"a\0b\0"), Ok((OsStr::from_bytes(b"a"), &b"b\0"[..])));
    }
}
