//! A main file that could not be opened, and says why.
//!
//! For an xOpen that fails SQLite has a message of its own ("unable to open database file",
//! "database is locked"), and the sentence is only in its log. So the open seems to succeed, and
//! the automatic extension, which SQLite calls for each new connection, asks its file
//! ([`refusal`]): the connection then fails with our sentence. Where SQLite does not call it
//! (`ATTACH`, a program that resets its automatic extensions), the first lock or page that is asked
//! for fails with the code, and SQLite's message.
//!
//! Invariant: nothing is read or written, and nothing seems to be there: but for the header that
//! SQLite looks for while it opens, every call fails.

use super::{OsFile, guard};
use crate::ffi::api::Api;
use crate::ffi::{self, Connection, IoMethods, SqliteFile};
use crate::result;
use std::ffi::{c_int, c_void};

/// Why a file could not be opened.
pub(crate) struct Refusal {
    /// SQLite's result code.
    pub(crate) code: c_int,
    /// The sentence, as it was reported.
    pub(crate) sentence: String,
}

/// The file control that answers with a file's [`Refusal`]; numbers above 100 are free for a VFS.
/// It is an address of this copy of the crate, so that a file of another copy does not answer.
fn question() -> c_int {
    let address = (&raw const REFUSED) as usize;
    0x4000_0000 | (address >> 3) as c_int & 0x3fff_ffff
}

/// Bytes of a database's header, which SQLite reads while it opens.
const HEADER: c_int = 100;

/// Methods of a file that could not be opened.
pub(super) static REFUSED: IoMethods = IoMethods {
    version: 1,
    close: Some(close),
    read: Some(read),
    write: Some(write),
    truncate: Some(truncate),
    sync: Some(sync),
    file_size: Some(size),
    lock: Some(lock),
    unlock: Some(unlock),
    check_reserved_lock: Some(check_reserved_lock),
    file_control: Some(control),
    sector_size: Some(sector_size),
    device_characteristics: Some(device_characteristics),
    shm_map: None,
    shm_lock: None,
    shm_barrier: None,
    shm_unmap: None,
    fetch: None,
    unfetch: None,
};

/// The object of a file with [`REFUSED`], for the open that failed last on this thread.
pub(super) fn object(code: c_int) -> *mut c_void {
    let sentence = result::last_error().map_or_else(String::new, |(_, sentence)| sentence);
    Box::into_raw(Box::new(Refusal { code, sentence })).cast()
}

/// Why the main file of a connection could not be opened; `None`: it was.
///
/// # Safety
/// `connection` is an open one of this SQLite, and neither closed nor used in another way while the
/// answer lives.
pub(crate) unsafe fn refusal<'a>(api: &Api, connection: *mut Connection) -> Option<&'a Refusal> {
    let mut found: *const Refusal = std::ptr::null();
    // SAFETY: the caller's; only our files know the question, and they answer with a pointer to
    // what they keep until they are closed.
    unsafe {
        let code = api.ask_main_file(connection, question(), (&raw mut found).cast());
        if code == ffi::OK { found.as_ref() } else { None }
    }
}

/// The result code of every call.
///
/// # Safety
/// `file` is open, with these methods.
unsafe fn code(file: *mut SqliteFile) -> c_int {
    // SAFETY: the caller's: xOpen has put a `Box<Refusal>` there.
    unsafe { (*(*file.cast::<OsFile>()).object.cast::<Refusal>()).code }
}

unsafe extern "C" fn close(file: *mut SqliteFile) -> c_int {
    guard(ffi::IOERR_CLOSE, || {
        let file = file.cast::<OsFile>();
        // SAFETY: SQLite's: the file is open, and this is the last call for it, so the box is taken
        // back once.
        unsafe {
            drop(Box::from_raw((*file).object.cast::<Refusal>()));
            (*file).head.methods = std::ptr::null();
            (*file).object = std::ptr::null_mut();
        }
        ffi::OK
    })
}

unsafe extern "C" fn read(
    file: *mut SqliteFile,
    into: *mut c_void,
    amount: c_int,
    offset: i64,
) -> c_int {
    if offset == 0
        && amount <= HEADER
        && let Ok(amount) = usize::try_from(amount)
    {
        // SAFETY: SQLite's: `into` has `amount` bytes.
        unsafe { into.cast::<u8>().write_bytes(0, amount) };
        return ffi::IOERR_SHORT_READ;
    }
    // SAFETY: SQLite's.
    unsafe { code(file) }
}

unsafe extern "C" fn write(
    file: *mut SqliteFile,
    _data: *const c_void,
    _amount: c_int,
    _at: i64,
) -> c_int {
    // SAFETY: SQLite's.
    unsafe { code(file) }
}

unsafe extern "C" fn truncate(file: *mut SqliteFile, _size: i64) -> c_int {
    // SAFETY: SQLite's.
    unsafe { code(file) }
}

unsafe extern "C" fn sync(file: *mut SqliteFile, _flags: c_int) -> c_int {
    // SAFETY: SQLite's.
    unsafe { code(file) }
}

unsafe extern "C" fn size(file: *mut SqliteFile, _size: *mut i64) -> c_int {
    // SAFETY: SQLite's.
    unsafe { code(file) }
}

unsafe extern "C" fn lock(file: *mut SqliteFile, _level: c_int) -> c_int {
    // SAFETY: SQLite's.
    unsafe { code(file) }
}

unsafe extern "C" fn unlock(_file: *mut SqliteFile, _level: c_int) -> c_int {
    ffi::OK
}

unsafe extern "C" fn check_reserved_lock(file: *mut SqliteFile, _reserved: *mut c_int) -> c_int {
    // SAFETY: SQLite's.
    unsafe { code(file) }
}

unsafe extern "C" fn control(file: *mut SqliteFile, op: c_int, argument: *mut c_void) -> c_int {
    if op != question() || argument.is_null() {
        return ffi::NOTFOUND;
    }
    // SAFETY: SQLite's: the file is open; nobody but `refusal` asks this, with room for a pointer.
    unsafe { argument.cast::<*const Refusal>().write((*file.cast::<OsFile>()).object.cast()) };
    ffi::OK
}

unsafe extern "C" fn sector_size(_file: *mut SqliteFile) -> c_int {
    4096
}

unsafe extern "C" fn device_characteristics(_file: *mut SqliteFile) -> c_int {
    0
}
