//! The VFS below ours (the one that was the default before: `unix`), and files it has open, as safe
//! calls.
//!
//! Deliberately absent: times and events; those are in `plain.rs`, which calls this.
//!
//! Invariant: a [`ForeignFile`] is only made of a file that the VFS below has opened and not
//! closed.

use super::api::Api;
use super::{IoMethods, SqliteFile, SqliteVfs};
use std::ffi::{CStr, c_char, c_int, c_void};

/// The VFS below. It is registered for as long as the process lives.
#[derive(Clone, Copy)]
pub(crate) struct ForeignVfs {
    vfs: *mut SqliteVfs,
    api: &'static Api,
}

// SAFETY: SQLite calls a VFS from any thread, so its functions may be called from any thread; the
// structure is only read.
unsafe impl Send for ForeignVfs {}
// SAFETY: as above.
unsafe impl Sync for ForeignVfs {}

impl ForeignVfs {
    /// # Safety
    /// `vfs` is registered with the SQLite that has these functions, and stays so.
    pub(crate) unsafe fn new(vfs: *mut SqliteVfs, api: &'static Api) -> Self {
        Self { vfs, api }
    }

    /// The functions of the SQLite it is registered with.
    pub(crate) fn api(&self) -> &'static Api {
        self.api
    }

    fn get(&self) -> &SqliteVfs {
        // SAFETY: it is registered (see `new`); SQLite changes only `next` of it, which nobody here
        // reads.
        unsafe { &*self.vfs }
    }

    /// Its address, for its own functions.
    pub(crate) fn pointer(&self) -> *mut SqliteVfs {
        self.vfs
    }

    /// Its functions.
    pub(crate) fn functions(&self) -> &SqliteVfs {
        self.get()
    }

    /// Its name.
    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: a registered VFS has a name that ends with a zero.
        unsafe { CStr::from_ptr(self.get().name) }
    }

    /// Whether the file may be used as `flags` says; or the VFS's result code.
    pub(crate) fn access(&self, path: &CStr, flags: c_int) -> Result<bool, c_int> {
        let Some(access) = self.get().access else { return Err(super::IOERR_ACCESS) };
        let mut answer = 0;
        // SAFETY: the function belongs to this VFS; `path` ends with a zero.
        match unsafe { access(self.vfs, path.as_ptr(), flags, &mut answer) } {
            super::OK => Ok(answer != 0),
            code => Err(code),
        }
    }

    /// Removes a file; SQLite's result code.
    pub(crate) fn delete(&self, path: &CStr, sync_directory: c_int) -> c_int {
        let Some(delete) = self.get().delete else { return super::IOERR_DELETE };
        // SAFETY: the function belongs to this VFS; `path` ends with a zero.
        unsafe { delete(self.vfs, path.as_ptr(), sync_directory) }
    }

    /// Opens `name` (null: a temporary file) into the memory at `file`. The flags it was opened
    /// with are the second result.
    ///
    /// # Safety
    /// `name` is what SQLite passed to `xOpen`, and `file` has as many bytes as this VFS asks for.
    pub(crate) unsafe fn open(
        &self,
        name: *const c_char,
        file: *mut SqliteFile,
        flags: c_int,
    ) -> (c_int, c_int) {
        let Some(open) = self.get().open else { return (super::CANTOPEN, flags) };
        let mut out = flags;
        // SAFETY: the caller's; the function belongs to this VFS.
        let code = unsafe { open(self.vfs, name, file, flags, &mut out) };
        (code, out)
    }
}

/// A file that the VFS below has open. Offsets and sizes are bytes; every call returns SQLite's
/// result code.
pub(crate) struct ForeignFile {
    file: *mut SqliteFile,
}

/// Calls a method of the file, if its table has one.
macro_rules! call {
    ($self:ident, $method:ident($($argument:expr),*), $missing:expr) => {
        match $self.methods().$method {
            // SAFETY: the method belongs to this file, which is open (see `ForeignFile::new`); the
            // arguments live through the call.
            Some(method) => unsafe { method($self.file $(, $argument)*) },
            None => $missing,
        }
    };
}

impl ForeignFile {
    /// # Safety
    /// `file` was opened by a VFS, and is neither closed nor used in another way while this lives.
    pub(crate) unsafe fn new(file: *mut SqliteFile) -> Self {
        Self { file }
    }

    fn methods(&self) -> &IoMethods {
        // SAFETY: an open file has methods. The table of an old version may be shorter than
        // `IoMethods`: the callers below look at `version` before they touch what was added later.
        unsafe { &*(*self.file).methods }
    }

    /// Version of its method table: 2 has a WAL index, 3 lends pages.
    pub(crate) fn version(&self) -> c_int {
        self.methods().version
    }

    pub(crate) fn close(&mut self) -> c_int {
        call!(self, close(), super::OK)
    }

    pub(crate) fn read(&mut self, offset: i64, into: &mut [u8]) -> c_int {
        call!(self, read(into.as_mut_ptr().cast(), into.len() as c_int, offset), super::IOERR_READ)
    }

    pub(crate) fn write(&mut self, offset: i64, data: &[u8]) -> c_int {
        call!(self, write(data.as_ptr().cast(), data.len() as c_int, offset), super::IOERR_WRITE)
    }

    pub(crate) fn truncate(&mut self, size: i64) -> c_int {
        call!(self, truncate(size), super::IOERR_TRUNCATE)
    }

    pub(crate) fn sync(&mut self, flags: c_int) -> c_int {
        call!(self, sync(flags), super::IOERR_FSYNC)
    }

    pub(crate) fn size(&mut self, size: &mut i64) -> c_int {
        call!(self, file_size(size), super::IOERR_FSTAT)
    }

    pub(crate) fn lock(&mut self, level: c_int) -> c_int {
        call!(self, lock(level), super::OK)
    }

    pub(crate) fn unlock(&mut self, level: c_int) -> c_int {
        call!(self, unlock(level), super::OK)
    }

    pub(crate) fn check_reserved_lock(&mut self, answer: &mut c_int) -> c_int {
        call!(self, check_reserved_lock(answer), super::OK)
    }

    /// # Safety
    /// `argument` is what the operation `op` asks for.
    pub(crate) unsafe fn control(&mut self, op: c_int, argument: *mut c_void) -> c_int {
        call!(self, file_control(op, argument), super::NOTFOUND)
    }

    pub(crate) fn sector_size(&mut self) -> c_int {
        call!(self, sector_size(), 4096)
    }

    pub(crate) fn characteristics(&mut self) -> c_int {
        call!(self, device_characteristics(), 0)
    }

    pub(crate) fn shm_map(
        &mut self,
        region: c_int,
        bytes: c_int,
        extend: c_int,
        at: &mut *mut c_void,
    ) -> c_int {
        if self.version() < 2 {
            return super::IOERR_SHMMAP;
        }
        call!(self, shm_map(region, bytes, extend, at), super::IOERR_SHMMAP)
    }

    pub(crate) fn shm_lock(&mut self, offset: c_int, n: c_int, flags: c_int) -> c_int {
        if self.version() < 2 {
            return super::IOERR_SHMLOCK;
        }
        call!(self, shm_lock(offset, n, flags), super::IOERR_SHMLOCK)
    }

    pub(crate) fn shm_barrier(&mut self) {
        if self.version() >= 2 {
            call!(self, shm_barrier(), ());
        }
    }

    pub(crate) fn shm_unmap(&mut self, delete: c_int) -> c_int {
        if self.version() < 2 {
            return super::OK;
        }
        call!(self, shm_unmap(delete), super::OK)
    }

    pub(crate) fn fetch(&mut self, offset: i64, amount: c_int, at: &mut *mut c_void) -> c_int {
        if self.version() < 3 {
            return super::OK;
        }
        call!(self, fetch(offset, amount, at), super::OK)
    }

    pub(crate) fn unfetch(&mut self, offset: i64, at: *mut c_void) -> c_int {
        if self.version() < 3 {
            return super::OK;
        }
        call!(self, unfetch(offset, at), super::OK)
    }
}
