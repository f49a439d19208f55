//! Reading and changing a lent file through this process: everything acts on the plain file, and is
//! durable when it returns.
//!
//! The kernel may write to the same file at the same time; to the program that is as two writers of
//! one file are on any file system. Deliberately not here: lending and giving back.
//!
//! Cutting: the state line gets the smaller size first, then the plain file is cut and synced. The
//! line's size is the least that the plain file has, so a cut of the power between the two leaves
//! the file as it was. Lengthening changes the plain file only.

use super::FileIo;
use crate::error::{Error, Result};
use crate::file::resize::Resize;
use crate::home::Clear;
use crate::known::times::SetTime;
use crate::known::{FileState, Placed};
use crate::plain::Plain;
use crate::planted::Planted;
use crate::waits;
/// Zeros that are written at a time.
const ZEROS_BYTES: usize = 256 << 10;

impl FileIo {
    pub(crate) fn read_lent(
        &self,
        file: &FileState,
        plain: &Plain,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize> {
        let start = self.events.start();
        let got = plain.file.read_at(offset, into).map_err(file.io("cannot read the lent"))?;
        let _ = self.events.record_n(waits::DIRTY_READ, start, got as u64);
        Ok(got)
    }

    /// The caller holds `sizing`.
    pub(crate) fn write_lent(
        &self,
        file: &FileState,
        placed: &Placed,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let start = self.events.start();
        self.change(file, placed, "cannot write the lent", |plain| {
            plain.file.write_at(offset, data)
        })?;
        let bytes = data.len() as u64;
        let what = (waits::REDO_WRITE, waits::REDO_SIZE);
        placed.usage.wrote(&self.events, what, start, bytes, bytes);
        Ok(())
    }

    /// Changes the plain file and syncs it. The caller holds `sizing`, so it is not given back
    /// meanwhile.
    fn change(
        &self,
        file: &FileState,
        placed: &Placed,
        what: &'static str,
        how: impl FnOnce(&Plain) -> std::io::Result<()>,
    ) -> Result<()> {
        let Some(plain) = placed.loan.plain() else {
            return Err(file.invalid("write", "BUG: it is not lent"));
        };
        placed.tier.sound()?;
        let changed = how(&plain).and_then(|()| plain.file.sync());
        placed.loan.changed();
        changed.map_err(file.io(what))
    }

    /// The caller holds `sizing`.
    pub(crate) fn resize_lent(
        &self,
        file: &FileState,
        placed: &Placed,
        size: u64,
        how: Resize,
    ) -> Result<()> {
        let old = file.size_of(placed)?;
        if size < old && how == Resize::Exactly {
            let mut meta = placed.meta.lock();
            if size < meta.line.size && !placed.tier.planted.is(Planted::PlainCutFirst) {
                meta.line.size = size;
                placed.persist_line(&mut meta);
            }
        } else if size <= old {
            return Ok(());
        }
        self.change(file, placed, "cannot resize the lent", |plain| {
            if size > old {
                match plain.file.allocate(old, size - old) {
                    Err(e) if e.kind() == std::io::ErrorKind::Unsupported => {}
                    other => other?,
                }
            }
            plain.file.set_len(size)
        })
    }

    /// Makes a range zero; its space stays, so that no later write of it meets a full medium.
    pub(crate) fn clear_lent(
        &self,
        file: &FileState,
        placed: &Placed,
        offset: u64,
        end: u64,
    ) -> Result<()> {
        let _sizing = placed.sizing.lock();
        self.change(file, placed, "cannot clear a range of the lent", |plain| {
            let end = end.min(plain.file.stat()?.size);
            if offset >= end {
                return Ok(());
            }
            match plain.file.clear(offset, end - offset, Clear::Zero) {
                Err(e) if e.kind() == std::io::ErrorKind::Unsupported => {}
                other => return other,
            }
            let zeros = vec![0; ZEROS_BYTES];
            let mut at = offset;
            while at < end {
                let part = (end - at).min(ZEROS_BYTES as u64);
                plain.file.write_at(at, &zeros[..part as usize])?;
                at += part;
            }
            Ok(())
        })
    }

    /// Reserves space on the tier's medium. `false` when the file is not lent any more.
    pub(crate) fn allocate_lent(
        &self,
        file: &FileState,
        placed: &Placed,
        offset: u64,
        len: u64,
    ) -> Result<bool> {
        let _sizing = placed.sizing.lock();
        if !placed.loan.is_lent() {
            return Ok(false);
        }
        self.change(file, placed, "cannot reserve space for the lent", |plain| {
            plain.file.allocate(offset, len)
        })?;
        Ok(true)
    }

    /// `None` when the file is not lent any more.
    pub(crate) fn set_times_lent(
        &self,
        file: &FileState,
        placed: &Placed,
        atime: SetTime,
        mtime: SetTime,
    ) -> Option<Result<()>> {
        let _sizing = placed.sizing.lock();
        if !placed.loan.is_lent() {
            return None;
        }
        let time = |set| match set {
            SetTime::Keep => None,
            SetTime::Now => Some(crate::home::FileTime::from_ns(self.env.home.now_ns())),
            SetTime::At(time) => Some(time),
        };
        if let Err(e) = file.home.set_times(time(atime), None) {
            return Some(Err(Error::io("cannot set the times of", &*file.path.lock())(e)));
        }
        Some(self.change(file, placed, "cannot set the times of the lent", |plain| {
            plain.file.set_times(time(atime), time(mtime))
        }))
    }

    /// Makes durable what was written through memory maps, too.
    pub(crate) fn sync_lent(&self, file: &FileState, plain: &Plain) -> Result<()> {
        plain.file.sync().map_err(file.io("cannot sync the lent"))
    }
}
