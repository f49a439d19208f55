//! The methods of files of databases that are not attached: each call goes to the file of the VFS
//! below, which lies behind ours.

use super::{BELOW_AT, OsFile, guard, methods};
use crate::database::Name;
use crate::ffi::foreign::ForeignFile;
use crate::ffi::{self, IoMethods, SqliteFile};
use crate::place::Role;
use crate::{plain, pragmas};
use std::ffi::{c_int, c_void};

const fn table(version: c_int) -> IoMethods {
    IoMethods {
        version,
        close: Some(close),
        read: Some(read),
        write: Some(write),
        truncate: Some(truncate),
        sync: Some(sync),
        file_size: Some(file_size),
        lock: Some(lock),
        unlock: Some(unlock),
        check_reserved_lock: Some(check_reserved_lock),
        file_control: Some(control),
        sector_size: Some(sector_size),
        device_characteristics: Some(device_characteristics),
        shm_map: Some(shm_map),
        shm_lock: Some(shm_lock),
        shm_barrier: Some(shm_barrier),
        shm_unmap: Some(shm_unmap),
        fetch: Some(fetch),
        unfetch: Some(unfetch),
    }
}

/// One table for each version that the file below may have.
static TABLES: [IoMethods; 3] = [table(1), table(2), table(3)];

/// The table for a file below of this version.
pub(super) fn table_for(version: c_int) -> &'static IoMethods {
    &TABLES[version.clamp(1, 3) as usize - 1]
}

/// The number a role is kept as.
pub(super) fn number(role: Role) -> c_int {
    match role {
        Role::Main => 0,
        Role::Wal => 1,
        Role::Journal => 2,
    }
}

/// Where the file below is.
pub(super) fn below(file: *mut SqliteFile) -> *mut SqliteFile {
    file.wrapping_byte_add(BELOW_AT)
}

/// The file below, and whose events its calls are.
///
/// # Safety
/// `file` is a plain file of ours, open, and nobody else uses it during the call.
unsafe fn of(file: *mut SqliteFile) -> (ForeignFile, Role) {
    // SAFETY: the caller's.
    let role = match unsafe { (*file.cast::<OsFile>()).role } {
        0 => Role::Main,
        1 => Role::Wal,
        _ => Role::Journal,
    };
    // SAFETY: xOpen opened the file below in the memory behind ours, and it is closed when ours is.
    (unsafe { ForeignFile::new(below(file)) }, role)
}

unsafe extern "C" fn close(file: *mut SqliteFile) -> c_int {
    guard(ffi::IOERR_CLOSE, || {
        // SAFETY: SQLite's: the file is open, and this is the last call for it.
        let code = unsafe { of(file) }.0.close();
        let ours = file.cast::<OsFile>();
        // SAFETY: the memory is SQLite's and still there; the box, if there is one, was put there
        // by xOpen and is taken back once.
        unsafe {
            let name = std::mem::replace(&mut (*ours).object, std::ptr::null_mut());
            if !name.is_null() {
                drop(Box::from_raw(name.cast::<Name>()));
            }
            (*ours).head.methods = std::ptr::null();
        }
        code
    })
}

unsafe extern "C" fn read(
    file: *mut SqliteFile,
    into: *mut c_void,
    amount: c_int,
    offset: i64,
) -> c_int {
    guard(ffi::IOERR_READ, || {
        let Ok(amount) = usize::try_from(amount) else { return ffi::IOERR_READ };
        // SAFETY: SQLite's: `into` has `amount` bytes of initialised memory.
        let into = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), amount) };
        // SAFETY: SQLite's.
        let (mut below, role) = unsafe { of(file) };
        plain::read(&mut below, role, offset, into)
    })
}

unsafe extern "C" fn write(
    file: *mut SqliteFile,
    data: *const c_void,
    amount: c_int,
    offset: i64,
) -> c_int {
    guard(ffi::IOERR_WRITE, || {
        let Ok(amount) = usize::try_from(amount) else { return ffi::IOERR_WRITE };
        // SAFETY: SQLite's: `data` has `amount` bytes.
        let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), amount) };
        // SAFETY: SQLite's.
        let (mut below, role) = unsafe { of(file) };
        plain::write(&mut below, role, offset, data)
    })
}

unsafe extern "C" fn truncate(file: *mut SqliteFile, size: i64) -> c_int {
    // SAFETY: SQLite's.
    guard(ffi::IOERR_TRUNCATE, || unsafe { of(file) }.0.truncate(size))
}

unsafe extern "C" fn sync(file: *mut SqliteFile, flags: c_int) -> c_int {
    guard(ffi::IOERR_FSYNC, || {
        // SAFETY: SQLite's.
        let (mut below, role) = unsafe { of(file) };
        plain::sync(&mut below, role, flags)
    })
}

unsafe extern "C" fn file_size(file: *mut SqliteFile, size: *mut i64) -> c_int {
    // SAFETY: SQLite's: room for the answer.
    guard(ffi::IOERR_FSTAT, || unsafe { of(file).0.size(&mut *size) })
}

unsafe extern "C" fn lock(file: *mut SqliteFile, level: c_int) -> c_int {
    // SAFETY: SQLite's.
    guard(ffi::IOERR, || unsafe { of(file) }.0.lock(level))
}

unsafe extern "C" fn unlock(file: *mut SqliteFile, level: c_int) -> c_int {
    // SAFETY: SQLite's.
    guard(ffi::IOERR, || unsafe { of(file) }.0.unlock(level))
}

unsafe extern "C" fn check_reserved_lock(file: *mut SqliteFile, reserved: *mut c_int) -> c_int {
    // SAFETY: SQLite's: room for the answer.
    guard(ffi::IOERR, || unsafe { of(file).0.check_reserved_lock(&mut *reserved) })
}

unsafe extern "C" fn control(file: *mut SqliteFile, op: c_int, argument: *mut c_void) -> c_int {
    guard(ffi::IOERR, || {
        if op == ffi::FCNTL_PRAGMA {
            // SAFETY: SQLite's: three `char*`.
            let code = unsafe {
                let api = super::api_of(file);
                methods::pragma(api, argument.cast(), |name, value| {
                    pragmas::answer(api, name, value, None)
                })
            };
            if code != ffi::NOTFOUND {
                return code;
            }
        }
        // SAFETY: SQLite's: the argument is what the operation asks for.
        unsafe { of(file).0.control(op, argument) }
    })
}

unsafe extern "C" fn sector_size(file: *mut SqliteFile) -> c_int {
    // SAFETY: SQLite's.
    guard(4096, || unsafe { of(file) }.0.sector_size())
}

unsafe extern "C" fn device_characteristics(file: *mut SqliteFile) -> c_int {
    // SAFETY: SQLite's.
    guard(0, || unsafe { of(file) }.0.characteristics())
}

unsafe extern "C" fn shm_map(
    file: *mut SqliteFile,
    region: c_int,
    bytes: c_int,
    extend: c_int,
    at: *mut *mut c_void,
) -> c_int {
    // SAFETY: SQLite's: room for the answer.
    guard(ffi::IOERR_SHMMAP, || unsafe { of(file).0.shm_map(region, bytes, extend, &mut *at) })
}

unsafe extern "C" fn shm_lock(
    file: *mut SqliteFile,
    first: c_int,
    n: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: SQLite's.
    guard(ffi::IOERR_SHMLOCK, || unsafe { of(file) }.0.shm_lock(first, n, flags))
}

unsafe extern "C" fn shm_barrier(file: *mut SqliteFile) {
    guard(ffi::OK, || {
        // SAFETY: SQLite's.
        unsafe { of(file) }.0.shm_barrier();
        ffi::OK
    });
}

unsafe extern "C" fn shm_unmap(file: *mut SqliteFile, delete: c_int) -> c_int {
    // SAFETY: SQLite's.
    guard(ffi::IOERR_SHMMAP, || unsafe { of(file) }.0.shm_unmap(delete))
}

unsafe extern "C" fn fetch(
    file: *mut SqliteFile,
    offset: i64,
    amount: c_int,
    at: *mut *mut c_void,
) -> c_int {
    // SAFETY: SQLite's: room for the answer.
    guard(ffi::IOERR, || unsafe { of(file).0.fetch(offset, amount, &mut *at) })
}

unsafe extern "C" fn unfetch(file: *mut SqliteFile, offset: i64, at: *mut c_void) -> c_int {
    // SAFETY: SQLite's.
    guard(ffi::IOERR, || unsafe { of(file) }.0.unfetch(offset, at))
}
