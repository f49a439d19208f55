//! Our declarations against the bindings of `libsqlite3-sys`: sizes, offsets, numbers, and the
//! places of SQLite's functions in the table that an extension is handed.

use super::api::Api;
use super::{IoMethods, NUMBERS, SqliteFile, SqliteVfs};
use libsqlite3_sys as sys;
use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;
use std::sync::atomic::{AtomicPtr, Ordering};

#[test]
fn our_structures_have_the_layout_of_the_header() {
    macro_rules! same {
        ($ours:ty, $theirs:ty: $($a:ident $b:ident),+) => {
            assert_eq!(size_of::<$ours>(), size_of::<$theirs>());
            $(assert_eq!(offset_of!($ours, $a), offset_of!($theirs, $b), stringify!($b));)+
        };
    }
    same!(SqliteFile, sys::sqlite3_file: methods pMethods);
    same!(IoMethods, sys::sqlite3_io_methods: version iVersion, close xClose, read xRead,
    write xWrite, truncate xTruncate,
        sync xSync, file_size xFileSize, lock xLock, unlock xUnlock,
        check_reserved_lock xCheckReservedLock,
        file_control xFileControl, sector_size xSectorSize,
        device_characteristics xDeviceCharacteristics,
        shm_map xShmMap, shm_lock xShmLock, shm_barrier xShmBarrier, shm_unmap xShmUnmap,
        fetch xFetch, unfetch xUnfetch);
    macro_rules! prefix {
        ($($a:ident $b:ident),+) => {
            $(assert_eq!(offset_of!(SqliteVfs, $a), offset_of!(sys::sqlite3_vfs, $b),
            stringify!($b));)+
        };
    }
    prefix!(version iVersion, file_bytes szOsFile, path_max mxPathname, next pNext, name zName,
    app_data pAppData, open xOpen,
        delete xDelete, access xAccess, full_pathname xFullPathname, dl_open xDlOpen,
        dl_error xDlError, dl_sym xDlSym,
        dl_close xDlClose, randomness xRandomness, sleep xSleep, current_time xCurrentTime,
        get_last_error xGetLastError, current_time_int64 xCurrentTimeInt64);
    // Version 3 has three more functions behind ours.
    assert_eq!(size_of::<SqliteVfs>() + 3 * size_of::<usize>(), size_of::<sys::sqlite3_vfs>());
}

macro_rules! by_name {
    ($($name:ident),+ $(,)?) => {
        &[$((stringify!($name), sys::$name as i64)),+]
    };
}

/// The numbers of the header, by name.
const THEIRS: &[(&str, i64)] = by_name![
    SQLITE_OK,
    SQLITE_ERROR,
    SQLITE_BUSY,
    SQLITE_NOMEM,
    SQLITE_READONLY,
    SQLITE_IOERR,
    SQLITE_CORRUPT,
    SQLITE_NOTFOUND,
    SQLITE_FULL,
    SQLITE_CANTOPEN,
    SQLITE_MISUSE,
    SQLITE_WARNING,
    SQLITE_OK_LOAD_PERMANENTLY,
    SQLITE_IOERR_READ,
    SQLITE_IOERR_SHORT_READ,
    SQLITE_IOERR_WRITE,
    SQLITE_IOERR_FSYNC,
    SQLITE_IOERR_TRUNCATE,
    SQLITE_IOERR_FSTAT,
    SQLITE_IOERR_DELETE,
    SQLITE_IOERR_ACCESS,
    SQLITE_IOERR_CLOSE,
    SQLITE_IOERR_SHMMAP,
    SQLITE_IOERR_SHMLOCK,
    SQLITE_IOERR_DELETE_NOENT,
    SQLITE_IOERR_BEGIN_ATOMIC,
    SQLITE_IOERR_COMMIT_ATOMIC,
    SQLITE_OPEN_READONLY,
    SQLITE_OPEN_READWRITE,
    SQLITE_OPEN_CREATE,
    SQLITE_OPEN_DELETEONCLOSE,
    SQLITE_OPEN_EXCLUSIVE,
    SQLITE_OPEN_MAIN_DB,
    SQLITE_OPEN_MAIN_JOURNAL,
    SQLITE_OPEN_PRIVATECACHE,
    SQLITE_OPEN_WAL,
    SQLITE_ACCESS_EXISTS,
    SQLITE_LOCK_NONE,
    SQLITE_LOCK_SHARED,
    SQLITE_LOCK_RESERVED,
    SQLITE_LOCK_PENDING,
    SQLITE_LOCK_EXCLUSIVE,
    SQLITE_SHM_UNLOCK,
    SQLITE_SHM_LOCK,
    SQLITE_SHM_SHARED,
    SQLITE_SHM_EXCLUSIVE,
    SQLITE_SHM_NLOCK,
    SQLITE_IOCAP_ATOMIC512,
    SQLITE_IOCAP_SAFE_APPEND,
    SQLITE_IOCAP_SEQUENTIAL,
    SQLITE_IOCAP_UNDELETABLE_WHEN_OPEN,
    SQLITE_IOCAP_POWERSAFE_OVERWRITE,
    SQLITE_IOCAP_BATCH_ATOMIC,
    SQLITE_FCNTL_LOCKSTATE,
    SQLITE_FCNTL_LAST_ERRNO,
    SQLITE_FCNTL_SIZE_HINT,
    SQLITE_FCNTL_CHUNK_SIZE,
    SQLITE_FCNTL_PERSIST_WAL,
    SQLITE_FCNTL_VFSNAME,
    SQLITE_FCNTL_POWERSAFE_OVERWRITE,
    SQLITE_FCNTL_PRAGMA,
    SQLITE_FCNTL_TEMPFILENAME,
    SQLITE_FCNTL_MMAP_SIZE,
    SQLITE_FCNTL_HAS_MOVED,
    SQLITE_FCNTL_COMMIT_PHASETWO,
    SQLITE_FCNTL_BEGIN_ATOMIC_WRITE,
    SQLITE_FCNTL_COMMIT_ATOMIC_WRITE,
    SQLITE_FCNTL_ROLLBACK_ATOMIC_WRITE,
    SQLITE_UTF8,
];

#[test]
fn our_numbers_are_those_of_the_header() {
    for (name, theirs) in THEIRS {
        let ours = NUMBERS.iter().find(|(n, _)| n == name).expect(name).1;
        assert_eq!(i64::from(ours), *theirs, "{name}");
    }
    let compared = THEIRS.len();
    assert_eq!(compared, NUMBERS.len(), "a number was added here and not to the comparison");
    assert_eq!(
        i64::from(super::FCNTL_EXTERNAL_READER),
        i64::from(sys::SQLITE_FCNTL_EXTERNAL_READER)
    );
}

/// The table SQLite hands to automatic extensions: the same as to loaded ones.
static TABLE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

unsafe extern "C" fn keep(
    _: *mut sys::sqlite3,
    _: *mut *mut c_char,
    table: *const sys::sqlite3_api_routines,
) -> c_int {
    TABLE.store(table.cast_mut().cast(), Ordering::Release);
    0
}

#[test]
fn every_function_is_where_we_look_for_it_in_the_table_of_an_extension() {
    // SAFETY: `keep` has the type of an automatic extension; the connection is opened and closed
    // here.
    unsafe {
        sys::sqlite3_auto_extension(Some(keep));
        let mut db = std::ptr::null_mut();
        assert_eq!(sys::sqlite3_open(c":memory:".as_ptr(), &mut db), 0);
        sys::sqlite3_close(db);
    }
    let table: *const *const c_void = TABLE.load(Ordering::Acquire).cast_const().cast();
    assert!(!table.is_null());
    // SAFETY: it is the table of the SQLite linked in, which is newer than 3.8.7.
    let found: Api = unsafe { Api::from_routines(table) }.unwrap();
    assert_eq!(found.addresses(), Api::linked().addresses());
}
