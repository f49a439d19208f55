//! The methods of files that are on an attached home.

use super::lent::OpenMain;
use super::{OsFile, answer, api_of, guard, unsigned};
use crate::batch::Outcome;
use crate::ffi::api::Api;
use crate::ffi::{self, IoMethods, SqliteFile};
use crate::file::{Main, Side, Storage};
use crate::pragmas;
use crate::result;
use crate::shm::Index;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use tiersmith_store::Error;

/// What kind of object is behind a file.
trait Object {
    type Storage: Storage;
    fn storage(&mut self) -> &mut Self::Storage;
}

impl Object for OpenMain {
    type Storage = Main;
    #[inline]
    fn storage(&mut self) -> &mut Main {
        &mut self.main
    }
}

impl Object for Side {
    type Storage = Side;
    #[inline]
    fn storage(&mut self) -> &mut Side {
        self
    }
}

/// Methods of WAL and journal: version 1 is enough, SQLite asks only a main file for more.
pub(super) static SIDE: IoMethods = IoMethods {
    version: 1,
    lock: Some(no_lock),
    unlock: Some(no_lock),
    check_reserved_lock: Some(no_reserved_lock),
    file_control: Some(side_control),
    shm_map: None,
    shm_lock: None,
    shm_barrier: None,
    shm_unmap: None,
    fetch: None,
    unfetch: None,
    ..methods::<Side>()
};

/// Methods of main files.
pub(super) static MAIN: IoMethods = IoMethods {
    version: 3,
    lock: Some(lock),
    unlock: Some(unlock),
    check_reserved_lock: Some(check_reserved_lock),
    file_control: Some(control),
    shm_map: Some(shm_map),
    shm_lock: Some(shm_lock),
    shm_barrier: Some(shm_barrier),
    shm_unmap: Some(shm_unmap),
    fetch: Some(fetch),
    unfetch: Some(unfetch),
    ..methods::<OpenMain>()
};

/// What both have.
const fn methods<T: Object>() -> IoMethods {
    IoMethods {
        version: 1,
        close: Some(close::<T>),
        read: Some(read::<T>),
        write: Some(write::<T>),
        truncate: Some(truncate::<T>),
        sync: Some(sync::<T>),
        file_size: Some(file_size::<T>),
        lock: None,
        unlock: None,
        check_reserved_lock: None,
        file_control: None,
        sector_size: Some(sector_size),
        device_characteristics: Some(device_characteristics::<T>),
        shm_map: None,
        shm_lock: None,
        shm_barrier: None,
        shm_unmap: None,
        fetch: None,
        unfetch: None,
    }
}

/// Runs `call` with the object of an open file, as [`guard`] does. A forked child has a copy of its
/// parent's connection; there nothing is touched, and `in_child` answers.
///
/// # Safety
/// `file` is one of ours, opened with an object of type `T` and not closed; nobody else uses it
/// during the call.
#[inline]
unsafe fn with<T: Object>(
    file: *mut SqliteFile,
    code: c_int,
    in_child: impl FnOnce(&mut T) -> c_int,
    call: impl FnOnce(&mut T) -> c_int,
) -> c_int {
    guard(code, || {
        // SAFETY: the caller's: xOpen has put a `Box<T>` there.
        let object = unsafe { &mut *(*file.cast::<OsFile>()).object.cast::<T>() };
        if object.storage().user().is_of_this_process() { call(object) } else { in_child(object) }
    })
}

/// In a forked child: says why, and what to do.
#[cold]
fn refuse<T: Object>(object: &mut T) -> c_int {
    result::of_store(&object.storage().user().forked(), ffi::MISUSE)
}

/// In a forked child: what SQLite calls to end its use of a file is done, without anything.
fn nothing<T>(_object: &mut T) -> c_int {
    ffi::OK
}

#[inline]
fn code(result: tiersmith_store::Result<()>, otherwise: c_int) -> c_int {
    match result {
        Ok(()) => ffi::OK,
        Err(e) => result::of_store(&e, otherwise),
    }
}

unsafe extern "C" fn close<T: Object>(file: *mut SqliteFile) -> c_int {
    guard(ffi::IOERR_CLOSE, || {
        let file = file.cast::<OsFile>();
        // SAFETY: SQLite's (see `mod.rs`): the file is open, and this is the last call for it, so
        // the box is taken back once.
        let mut object = unsafe { Box::from_raw((*file).object.cast::<T>()) };
        // SAFETY: the memory is SQLite's and still there; without methods SQLite does not call for
        // it again.
        unsafe {
            (*file).head.methods = std::ptr::null();
            (*file).object = std::ptr::null_mut();
        }
        if !object.storage().user().is_of_this_process() {
            // A forked child's copy: what it points to is the parent's, and goes with the child.
            std::mem::forget(object);
            return ffi::OK;
        }
        code(object.storage().close(), ffi::IOERR_CLOSE)
    })
}

unsafe extern "C" fn read<T: Object>(
    file: *mut SqliteFile,
    into: *mut c_void,
    amount: c_int,
    offset: i64,
) -> c_int {
    let call = |object: &mut T| {
        let (Some(at), Ok(amount)) = (unsigned(offset), usize::try_from(amount)) else {
            return ffi::IOERR_READ;
        };
        // SAFETY: SQLite's: `into` has `amount` bytes, which are initialised memory of SQLite's
        // page cache or stack.
        let into = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), amount) };
        match object.storage().read(at, into) {
            Ok(got) if got == amount => ffi::OK,
            Ok(got) => {
                // The contract: what is not there is zeros.
                into[got..].fill(0);
                ffi::IOERR_SHORT_READ
            }
            Err(e) => result::of_store(&e, ffi::IOERR_READ),
        }
    };
    // SAFETY: SQLite's.
    unsafe { with(file, ffi::IOERR_READ, refuse::<T>, call) }
}

unsafe extern "C" fn write<T: Object>(
    file: *mut SqliteFile,
    data: *const c_void,
    amount: c_int,
    offset: i64,
) -> c_int {
    let call = |object: &mut T| {
        let (Some(at), Ok(amount)) = (unsigned(offset), usize::try_from(amount)) else {
            return ffi::IOERR_WRITE;
        };
        // SAFETY: SQLite's: `data` has `amount` bytes.
        let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), amount) };
        code(object.storage().write(at, data), ffi::IOERR_WRITE)
    };
    // SAFETY: SQLite's.
    unsafe { with(file, ffi::IOERR_WRITE, refuse::<T>, call) }
}

unsafe extern "C" fn truncate<T: Object>(file: *mut SqliteFile, size: i64) -> c_int {
    let call = |object: &mut T| {
        let Some(size) = unsigned(size) else { return ffi::IOERR_TRUNCATE };
        code(object.storage().truncate(size), ffi::IOERR_TRUNCATE)
    };
    // SAFETY: SQLite's.
    unsafe { with(file, ffi::IOERR_TRUNCATE, refuse::<T>, call) }
}

unsafe extern "C" fn sync<T: Object>(file: *mut SqliteFile, _flags: c_int) -> c_int {
    let call = |object: &mut T| code(object.storage().sync(), ffi::IOERR_FSYNC);
    // SAFETY: SQLite's.
    unsafe { with(file, ffi::IOERR_FSYNC, refuse::<T>, call) }
}

unsafe extern "C" fn file_size<T: Object>(file: *mut SqliteFile, size: *mut i64) -> c_int {
    let call = |object: &mut T| match object.storage().size() {
        // SAFETY: SQLite's: room for the answer.
        Ok(bytes) => unsafe { answer(size, i64::try_from(bytes).unwrap_or(i64::MAX)) },
        Err(e) => result::of_store(&e, ffi::IOERR_FSTAT),
    };
    // SAFETY: SQLite's.
    unsafe { with(file, ffi::IOERR_FSTAT, refuse::<T>, call) }
}

/// With `POWERSAFE_OVERWRITE` SQLite does not use it but for the smallest page of a new database;
/// 4096 is the smallest block.
unsafe extern "C" fn sector_size(_file: *mut SqliteFile) -> c_int {
    4096
}

unsafe extern "C" fn device_characteristics<T: Object>(file: *mut SqliteFile) -> c_int {
    // SAFETY: SQLite's.
    unsafe { with(file, 0, |_: &mut T| 0, |object| object.storage().characteristics()) }
}

unsafe extern "C" fn no_lock(_file: *mut SqliteFile, _level: c_int) -> c_int {
    ffi::OK
}

unsafe extern "C" fn no_reserved_lock(_file: *mut SqliteFile, reserved: *mut c_int) -> c_int {
    // SAFETY: SQLite's: room for the answer.
    unsafe { answer(reserved, 0) }
}

unsafe extern "C" fn side_control(
    _file: *mut SqliteFile,
    _op: c_int,
    _argument: *mut c_void,
) -> c_int {
    ffi::NOTFOUND
}

unsafe extern "C" fn lock(file: *mut SqliteFile, level: c_int) -> c_int {
    // SAFETY: SQLite's.
    unsafe { with(file, ffi::IOERR, refuse, |open: &mut OpenMain| open.main.lock(level)) }
}

unsafe extern "C" fn unlock(file: *mut SqliteFile, level: c_int) -> c_int {
    let call = |open: &mut OpenMain| {
        open.main.unlock(level);
        ffi::OK
    };
    // SAFETY: SQLite's.
    unsafe { with(file, ffi::IOERR, nothing, call) }
}

unsafe extern "C" fn check_reserved_lock(file: *mut SqliteFile, reserved: *mut c_int) -> c_int {
    let call = |open: &mut OpenMain| {
        let held = open.main.user.shared().locks.reserved();
        // SAFETY: SQLite's: room for the answer.
        unsafe { answer(reserved, c_int::from(held)) }
    };
    // SAFETY: SQLite's.
    unsafe { with(file, ffi::IOERR, refuse, call) }
}

unsafe extern "C" fn shm_map(
    file: *mut SqliteFile,
    region: c_int,
    bytes: c_int,
    extend: c_int,
    at: *mut *mut c_void,
) -> c_int {
    let call = |open: &mut OpenMain| {
        let (Ok(region), Ok(ffi::SHM_REGION)) = (usize::try_from(region), usize::try_from(bytes))
        else {
            return ffi::IOERR_SHMMAP;
        };
        let main = &mut open.main;
        let mapped = main.user.place().shared.index.map(&mut main.member, region, extend != 0);
        // SAFETY: SQLite's: room for the answer.
        unsafe { answer(at, mapped.cast()) }
    };
    // SAFETY: SQLite's.
    unsafe { with(file, ffi::IOERR_SHMMAP, refuse, call) }
}

unsafe extern "C" fn shm_lock(
    file: *mut SqliteFile,
    first: c_int,
    n: c_int,
    flags: c_int,
) -> c_int {
    let call = |open: &mut OpenMain| {
        let (Ok(first), Ok(n)) = (usize::try_from(first), usize::try_from(n)) else {
            return ffi::IOERR_SHMLOCK;
        };
        open.main.shm_lock(first, n, flags)
    };
    // To give a lock up is part of closing.
    let in_child = if flags & ffi::SHM_UNLOCK != 0 { nothing } else { refuse };
    // SAFETY: SQLite's.
    unsafe { with(file, ffi::IOERR_SHMLOCK, in_child, call) }
}

unsafe extern "C" fn shm_barrier(_file: *mut SqliteFile) {
    Index::barrier();
}

/// The delete flag means nothing: the index is memory, and goes with its last connection.
unsafe extern "C" fn shm_unmap(file: *mut SqliteFile, _delete: c_int) -> c_int {
    let call = |open: &mut OpenMain| {
        open.main.shm_unmap();
        ffi::OK
    };
    // SAFETY: SQLite's.
    unsafe { with(file, ffi::IOERR_SHMMAP, nothing, call) }
}

unsafe extern "C" fn fetch(
    file: *mut SqliteFile,
    offset: i64,
    amount: c_int,
    at: *mut *mut c_void,
) -> c_int {
    let call = |open: &mut OpenMain| {
        let (Some(offset), Ok(amount)) = (unsigned(offset), usize::try_from(amount)) else {
            return ffi::IOERR;
        };
        let lent = open.lend(offset, amount);
        // SQLite does not write through the pointer: it takes a copy of a page that it changes.
        // SAFETY: SQLite's: room for the answer.
        unsafe { answer(at, lent.map_or(std::ptr::null_mut(), |p| p.cast_mut().cast())) }
    };
    // SAFETY: SQLite's.
    unsafe { with(file, ffi::IOERR, refuse, call) }
}

/// A null pointer says that what lies behind `offset` may have changed elsewhere: nothing to do,
/// since a lent page never changes.
unsafe extern "C" fn unfetch(file: *mut SqliteFile, offset: i64, at: *mut c_void) -> c_int {
    let call = |open: &mut OpenMain| {
        if let Some(offset) = unsigned(offset)
            && !at.is_null()
        {
            open.take_back(offset, at.cast());
        }
        ffi::OK
    };
    // SAFETY: SQLite's.
    unsafe { with(file, ffi::IOERR, nothing, call) }
}

unsafe extern "C" fn control(file: *mut SqliteFile, op: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: SQLite's: the argument is what the operation asks for.
    let call = |open: &mut OpenMain| unsafe { control_main(open, api_of(file), op, argument) };
    let in_child = |open: &mut OpenMain| match op {
        // A pragma is answered with a sentence of ours, where SQLite has only its own for other
        // calls. SAFETY: as above: three `char*`.
        ffi::FCNTL_PRAGMA => unsafe {
            pragma(api_of(file), argument.cast(), |_, _| {
                Some(Err(open.main.user.forked().to_string()))
            })
        },
        _ => refuse(open),
    };
    // SAFETY: SQLite's.
    unsafe { with(file, ffi::IOERR, in_child, call) }
}

/// # Safety
/// `argument` is what the operation `op` asks for.
unsafe fn control_main(
    open: &mut OpenMain,
    api: &'static Api,
    op: c_int,
    argument: *mut c_void,
) -> c_int {
    let main = &mut open.main;
    match op {
        ffi::FCNTL_COMMIT_PHASETWO => match main.committed() {
            Ok(()) => ffi::OK,
            Err(e) => result::of_store(&e, ffi::IOERR_FSYNC),
        },
        ffi::FCNTL_BEGIN_ATOMIC_WRITE => main.begin_batch(),
        ffi::FCNTL_COMMIT_ATOMIC_WRITE => match main.commit_batch() {
            Ok(Outcome::Done) => ffi::OK,
            Ok(Outcome::Refused) => ffi::IOERR_COMMIT_ATOMIC,
            // With this code SQLite tries once more, with a journal, page by page.
            Err(e @ Error::BatchTooLarge { .. }) => {
                result::of_store(&e, ffi::IOERR_COMMIT_ATOMIC);
                ffi::IOERR_COMMIT_ATOMIC
            }
            // Full is final: a journal would need more room, and taking back what it let through,
            // too. As it is nothing was written.
            Err(e) => result::of_store(&e, ffi::IOERR_COMMIT_ATOMIC),
        },
        ffi::FCNTL_ROLLBACK_ATOMIC_WRITE => {
            main.batch.discard();
            ffi::OK
        }
        // SAFETY: the caller's: an `int`.
        ffi::FCNTL_LOCKSTATE => unsafe { answer(argument.cast(), main.held.level()) },
        ffi::FCNTL_LAST_ERRNO => {
            let errno = result::last_error().map_or(0, |(errno, _)| errno);
            // SAFETY: the caller's: an `int`.
            unsafe { answer(argument.cast(), errno) }
        }
        ffi::FCNTL_SIZE_HINT | ffi::FCNTL_CHUNK_SIZE => ffi::OK,
        // SAFETY: the caller's: an `int`.
        ffi::FCNTL_PERSIST_WAL => unsafe { flag(argument.cast(), &mut main.persist_wal) },
        ffi::FCNTL_POWERSAFE_OVERWRITE => {
            // It holds whether it is asked for or not.
            // SAFETY: the caller's: an `int`.
            unsafe { flag(argument.cast(), &mut true) }
        }
        // SAFETY: the caller's: an `int`. The file is in a directory that only Tiersmith changes.
        ffi::FCNTL_HAS_MOVED | ffi::FCNTL_EXTERNAL_READER => unsafe {
            answer(argument.cast(), 0 as c_int)
        },
        // SAFETY: the caller's: a `char*` for a string that SQLite frees.
        ffi::FCNTL_VFSNAME => unsafe { text(api, argument.cast(), crate::VFS_NAME) },
        ffi::FCNTL_TEMPFILENAME => {
            let name = std::env::temp_dir().join(format!("etilqs_{:016x}", unique()));
            // SAFETY: as above.
            unsafe {
                text(api, argument.cast(), &String::from_utf8_lossy(name.as_os_str().as_bytes()))
            }
        }
        ffi::FCNTL_MMAP_SIZE => {
            let limit: *mut i64 = argument.cast();
            if limit.is_null() {
                return ffi::MISUSE;
            }
            // SAFETY: the caller's: an `sqlite3_int64`.
            let (new, old) = (unsafe { limit.read() }, main.lend_before);
            if new >= 0 && open.lent() == 0 {
                open.main.lend_before = new;
            }
            // SAFETY: as above.
            unsafe { answer(limit, old) }
        }
        // SAFETY: the caller's: three `char*`.
        ffi::FCNTL_PRAGMA => unsafe {
            pragma(api, argument.cast(), |name, value| {
                pragmas::answer(api, name, value, Some((&open.main.user, &open.main.file)))
            })
        },
        _ => ffi::NOTFOUND,
    }
}

/// A number that this process has not given before.
fn unique() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

/// Sets the flag if `at` holds 0 or 1, and answers with it.
///
/// # Safety
/// `at` is null or points to an `int`.
unsafe fn flag(at: *mut c_int, flag: &mut bool) -> c_int {
    if at.is_null() {
        return ffi::MISUSE;
    }
    // SAFETY: the caller's.
    let asked = unsafe { at.read() };
    if asked >= 0 {
        *flag = asked != 0;
    }
    // SAFETY: the caller's.
    unsafe { answer(at, c_int::from(*flag)) }
}

/// # Safety
/// `at` is null or points to room for a `char*`.
unsafe fn text(api: &Api, at: *mut *mut c_char, text: &str) -> c_int {
    let copy = api.string(text);
    if copy.is_null() {
        return ffi::NOMEM;
    }
    // SAFETY: the caller's.
    unsafe { answer(at, copy) }
}

/// Answers `SQLITE_FCNTL_PRAGMA`: the first of three strings is for the answer or the message, the
/// second is the pragma's name, the third its value.
///
/// # Safety
/// `strings` points to three `char*`, of which the second is a string, and the third is a string or
/// null.
pub(super) unsafe fn pragma(
    api: &Api,
    strings: *mut *mut c_char,
    answer: impl FnOnce(&str, Option<&str>) -> Option<Result<String, String>>,
) -> c_int {
    if strings.is_null() {
        return ffi::MISUSE;
    }
    // SAFETY: the caller's.
    let (name, value) = unsafe { (*strings.add(1), *strings.add(2)) };
    if name.is_null() {
        return ffi::NOTFOUND;
    }
    // SAFETY: the caller's: it ends with a zero and lives through the call.
    let Ok(name) = unsafe { CStr::from_ptr(name) }.to_str() else { return ffi::NOTFOUND };
    let value = if value.is_null() {
        None
    } else {
        // SAFETY: the caller's: as above.
        unsafe { CStr::from_ptr(value) }.to_str().ok()
    };
    match answer(name, value) {
        None => ffi::NOTFOUND,
        // SAFETY: the caller's.
        Some(Ok(row)) => unsafe { text(api, strings, &row) },
        Some(Err(message)) => {
            result::report(ffi::ERROR, 0, &format!("PRAGMA {name}: {message}"));
            // SAFETY: the caller's.
            unsafe { text(api, strings, &message) };
            ffi::ERROR
        }
    }
}
