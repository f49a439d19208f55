//! The little of `sqlite3.h` that the VFS needs: structures, result codes, flags, file controls.
//!
//! Our own declarations, so that the loadable extension builds without SQLite's headers or library.
//! A test compares every size, offset and number with the bindings of `libsqlite3-sys`
//! (`compare.rs`).
//!
//! One of the three places with `unsafe` (`extension.rs` and `border` are the others): [`api`]
//! calls SQLite, [`foreign`] calls the VFS below, `opens` is called by SQLite.
//!
//! Invariant: nothing here decides anything; numbers and shapes only.

pub(crate) mod api;
#[cfg(all(test, feature = "linked"))]
mod compare;
pub(crate) mod foreign;
#[cfg(feature = "linked")]
pub(crate) mod opens;

use std::ffi::{c_char, c_int, c_void};

/// Declares result codes, flags and operations with their names in `sqlite3.h`.
macro_rules! numbers {
    ($($name:ident = $value:expr;)+) => {
        $(#[doc = concat!("`SQLITE_", stringify!($name),
        "`.")] pub(crate) const $name: c_int = $value;)+
        /// Every number, by name, for the test.
        #[cfg(all(test, feature = "linked"))]
        pub(crate) const NUMBERS: &[(&str, c_int)] = &[$((concat!("SQLITE_", stringify!($name)),
        $name)),+];
    };
}

numbers! {
    OK = 0;
    ERROR = 1;
    BUSY = 5;
    NOMEM = 7;
    READONLY = 8;
    IOERR = 10;
    CORRUPT = 11;
    NOTFOUND = 12;
    FULL = 13;
    CANTOPEN = 14;
    MISUSE = 21;
    WARNING = 28;
    OK_LOAD_PERMANENTLY = 1 << 8;
    IOERR_READ = IOERR | 1 << 8;
    IOERR_SHORT_READ = IOERR | 2 << 8;
    IOERR_WRITE = IOERR | 3 << 8;
    IOERR_FSYNC = IOERR | 4 << 8;
    IOERR_TRUNCATE = IOERR | 6 << 8;
    IOERR_FSTAT = IOERR | 7 << 8;
    IOERR_DELETE = IOERR | 10 << 8;
    IOERR_ACCESS = IOERR | 13 << 8;
    IOERR_CLOSE = IOERR | 16 << 8;
    IOERR_SHMMAP = IOERR | 21 << 8;
    IOERR_SHMLOCK = IOERR | 20 << 8;
    IOERR_DELETE_NOENT = IOERR | 23 << 8;
    IOERR_BEGIN_ATOMIC = IOERR | 29 << 8;
    IOERR_COMMIT_ATOMIC = IOERR | 30 << 8;
    OPEN_READONLY = 0x1;
    OPEN_READWRITE = 0x2;
    OPEN_CREATE = 0x4;
    OPEN_DELETEONCLOSE = 0x8;
    OPEN_EXCLUSIVE = 0x10;
    OPEN_MAIN_DB = 0x100;
    OPEN_MAIN_JOURNAL = 0x800;
    OPEN_PRIVATECACHE = 0x4_0000;
    OPEN_WAL = 0x8_0000;
    ACCESS_EXISTS = 0;
    LOCK_NONE = 0;
    LOCK_SHARED = 1;
    LOCK_RESERVED = 2;
    LOCK_PENDING = 3;
    LOCK_EXCLUSIVE = 4;
    SHM_UNLOCK = 1;
    SHM_LOCK = 2;
    SHM_SHARED = 4;
    SHM_EXCLUSIVE = 8;
    SHM_NLOCK = 8;
    IOCAP_ATOMIC512 = 0x2;
    IOCAP_SAFE_APPEND = 0x200;
    IOCAP_SEQUENTIAL = 0x400;
    IOCAP_UNDELETABLE_WHEN_OPEN = 0x800;
    IOCAP_POWERSAFE_OVERWRITE = 0x1000;
    IOCAP_BATCH_ATOMIC = 0x4000;
    FCNTL_LOCKSTATE = 1;
    FCNTL_LAST_ERRNO = 4;
    FCNTL_SIZE_HINT = 5;
    FCNTL_CHUNK_SIZE = 6;
    FCNTL_PERSIST_WAL = 10;
    FCNTL_VFSNAME = 12;
    FCNTL_POWERSAFE_OVERWRITE = 13;
    FCNTL_PRAGMA = 14;
    FCNTL_TEMPFILENAME = 16;
    FCNTL_MMAP_SIZE = 18;
    FCNTL_HAS_MOVED = 20;
    FCNTL_COMMIT_PHASETWO = 22;
    FCNTL_BEGIN_ATOMIC_WRITE = 31;
    FCNTL_COMMIT_ATOMIC_WRITE = 32;
    FCNTL_ROLLBACK_ATOMIC_WRITE = 33;
    UTF8 = 1;
}

/// `SQLITE_IOCAP_SUBPAGE_READ`: reads of part of a page are allowed. Newer than the oldest SQLite
/// this is compiled against.
pub(crate) const IOCAP_SUBPAGE_READ: c_int = 0x8000;
/// `SQLITE_FCNTL_EXTERNAL_READER`: does another process read the database? Newer as well.
pub(crate) const FCNTL_EXTERNAL_READER: c_int = 40;

/// Bytes of a region of the WAL index.
pub(crate) const SHM_REGION: usize = 32768;

/// An open connection; opaque.
#[repr(C)]
pub(crate) struct Connection {
    _opaque: [u8; 0],
}

/// What a function is called with; opaque.
#[repr(C)]
pub(crate) struct FunctionContext {
    _opaque: [u8; 0],
}

/// `sqlite3_file`: the head of whatever a VFS keeps for an open file.
#[repr(C)]
pub(crate) struct SqliteFile {
    pub(crate) methods: *const IoMethods,
}

/// `sqlite3_io_methods`, version 3. A method table of a lower version may be shorter: what it lacks
/// must not be touched.
#[repr(C)]
pub(crate) struct IoMethods {
    pub(crate) version: c_int,
    pub(crate) close: Option<unsafe extern "C" fn(*mut SqliteFile) -> c_int>,
    pub(crate) read:
        Option<unsafe extern "C" fn(*mut SqliteFile, *mut c_void, c_int, i64) -> c_int>,
    pub(crate) write:
        Option<unsafe extern "C" fn(*mut SqliteFile, *const c_void, c_int, i64) -> c_int>,
    pub(crate) truncate: Option<unsafe extern "C" fn(*mut SqliteFile, i64) -> c_int>,
    pub(crate) sync: Option<unsafe extern "C" fn(*mut SqliteFile, c_int) -> c_int>,
    pub(crate) file_size: Option<unsafe extern "C" fn(*mut SqliteFile, *mut i64) -> c_int>,
    pub(crate) lock: Option<unsafe extern "C" fn(*mut SqliteFile, c_int) -> c_int>,
    pub(crate) unlock: Option<unsafe extern "C" fn(*mut SqliteFile, c_int) -> c_int>,
    pub(crate) check_reserved_lock:
        Option<unsafe extern "C" fn(*mut SqliteFile, *mut c_int) -> c_int>,
    pub(crate) file_control:
        Option<unsafe extern "C" fn(*mut SqliteFile, c_int, *mut c_void) -> c_int>,
    pub(crate) sector_size: Option<unsafe extern "C" fn(*mut SqliteFile) -> c_int>,
    pub(crate) device_characteristics: Option<unsafe extern "C" fn(*mut SqliteFile) -> c_int>,
    pub(crate) shm_map: Option<
        unsafe extern "C" fn(*mut SqliteFile, c_int, c_int, c_int, *mut *mut c_void) -> c_int,
    >,
    pub(crate) shm_lock:
        Option<unsafe extern "C" fn(*mut SqliteFile, c_int, c_int, c_int) -> c_int>,
    pub(crate) shm_barrier: Option<unsafe extern "C" fn(*mut SqliteFile)>,
    pub(crate) shm_unmap: Option<unsafe extern "C" fn(*mut SqliteFile, c_int) -> c_int>,
    pub(crate) fetch:
        Option<unsafe extern "C" fn(*mut SqliteFile, i64, c_int, *mut *mut c_void) -> c_int>,
    pub(crate) unfetch: Option<unsafe extern "C" fn(*mut SqliteFile, i64, *mut c_void) -> c_int>,
}

/// A symbol of a loaded library.
pub(crate) type Symbol = Option<unsafe extern "C" fn(*mut SqliteVfs, *mut c_void, *const c_char)>;

/// `sqlite3_vfs`, version 2.
#[repr(C)]
pub(crate) struct SqliteVfs {
    pub(crate) version: c_int,
    pub(crate) file_bytes: c_int,
    pub(crate) path_max: c_int,
    pub(crate) next: *mut SqliteVfs,
    pub(crate) name: *const c_char,
    pub(crate) app_data: *mut c_void,
    pub(crate) open: Option<
        unsafe extern "C" fn(
            *mut SqliteVfs,
            *const c_char,
            *mut SqliteFile,
            c_int,
            *mut c_int,
        ) -> c_int,
    >,
    pub(crate) delete: Option<unsafe extern "C" fn(*mut SqliteVfs, *const c_char, c_int) -> c_int>,
    pub(crate) access:
        Option<unsafe extern "C" fn(*mut SqliteVfs, *const c_char, c_int, *mut c_int) -> c_int>,
    pub(crate) full_pathname:
        Option<unsafe extern "C" fn(*mut SqliteVfs, *const c_char, c_int, *mut c_char) -> c_int>,
    pub(crate) dl_open: Option<unsafe extern "C" fn(*mut SqliteVfs, *const c_char) -> *mut c_void>,
    pub(crate) dl_error: Option<unsafe extern "C" fn(*mut SqliteVfs, c_int, *mut c_char)>,
    pub(crate) dl_sym:
        Option<unsafe extern "C" fn(*mut SqliteVfs, *mut c_void, *const c_char) -> Symbol>,
    pub(crate) dl_close: Option<unsafe extern "C" fn(*mut SqliteVfs, *mut c_void)>,
    pub(crate) randomness:
        Option<unsafe extern "C" fn(*mut SqliteVfs, c_int, *mut c_char) -> c_int>,
    pub(crate) sleep: Option<unsafe extern "C" fn(*mut SqliteVfs, c_int) -> c_int>,
    pub(crate) current_time: Option<unsafe extern "C" fn(*mut SqliteVfs, *mut f64) -> c_int>,
    pub(crate) get_last_error:
        Option<unsafe extern "C" fn(*mut SqliteVfs, c_int, *mut c_char) -> c_int>,
    pub(crate) current_time_int64: Option<unsafe extern "C" fn(*mut SqliteVfs, *mut i64) -> c_int>,
}
