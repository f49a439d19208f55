//! The contract of `sqlite3_vfs` and `sqlite3_io_methods`, called as SQLite calls it.

use crate::vfs_support::{Bench, text};
use rusqlite::Connection;
use rusqlite::ffi;
use std::ffi::{CString, c_int, c_void};

/// The main file of a connection.
fn main_file(connection: &Connection) -> *mut ffi::sqlite3_file {
    let mut file: *mut ffi::sqlite3_file = std::ptr::null_mut();
    // SAFETY: the connection is open; FILE_POINTER answers with a pointer.
    let code = unsafe {
        let at: *mut c_void = (&raw mut file).cast();
        ffi::sqlite3_file_control(
            connection.handle(),
            c"main".as_ptr(),
            ffi::SQLITE_FCNTL_FILE_POINTER,
            at,
        )
    };
    assert_eq!(code, ffi::SQLITE_OK);
    file
}

/// Calls a method of a file.
macro_rules! call {
    ($file:expr, $method:ident($($argument:expr),*)) => {{
        let file = $file;
        // SAFETY: the file is open as long as its connection, and nobody else uses it in these
        // tests.
        unsafe { (*(*file).pMethods).$method.unwrap()(file $(, $argument)*) }
    }};
}

fn control(file: *mut ffi::sqlite3_file, op: c_int, value: c_int) -> (c_int, c_int) {
    let mut value = value;
    let code = call!(file, xFileControl(op, (&raw mut value).cast()));
    (code, value)
}

#[test]
fn a_read_past_the_end_is_short_and_filled_with_zeros() {
    let bench = Bench::new();
    let connection = bench.open();
    connection.execute_batch("CREATE TABLE t(x)").unwrap();
    let file = main_file(&connection);
    let mut size = 0;
    assert_eq!(call!(file, xFileSize(&mut size)), ffi::SQLITE_OK);
    assert_eq!(size, 8192);
    let mut bytes = [0xffu8; 64];
    let code = call!(file, xRead(bytes.as_mut_ptr().cast(), 64, size - 32));
    assert_eq!(code, ffi::SQLITE_IOERR_SHORT_READ);
    assert_eq!(bytes[32..], [0; 32]);
    let mut bytes = [0xffu8; 64];
    assert_eq!(
        call!(file, xRead(bytes.as_mut_ptr().cast(), 64, 1 << 40)),
        ffi::SQLITE_IOERR_SHORT_READ
    );
    assert_eq!(bytes, [0; 64]);
    let mut bytes = [0xffu8; 16];
    assert_eq!(call!(file, xRead(bytes.as_mut_ptr().cast(), 16, 0)), ffi::SQLITE_OK);
    assert_eq!(&bytes, b"SQLite format 3\0");
    assert_eq!(call!(file, xRead(bytes.as_mut_ptr().cast(), 16, -1)), ffi::SQLITE_IOERR_READ);
}

#[test]
fn the_device_characteristics_follow_the_class_of_the_file() {
    let ordered = ffi::SQLITE_IOCAP_SEQUENTIAL | ffi::SQLITE_IOCAP_SAFE_APPEND;
    let flags = |parameters: &str| {
        let bench = Bench::with(parameters);
        let connection = bench.open();
        connection.execute_batch("CREATE TABLE t(x)").unwrap();
        call!(main_file(&connection), xDeviceCharacteristics())
    };
    let all = flags("&size=16M&block=8192");
    assert_eq!(all & ordered, ordered);
    assert_ne!(all & ffi::SQLITE_IOCAP_BATCH_ATOMIC, 0);
    assert_ne!(all & ffi::SQLITE_IOCAP_ATOMIC512, 0);
    assert_ne!(all & ffi::SQLITE_IOCAP_ATOMIC8K, 0);
    assert_eq!(all & (ffi::SQLITE_IOCAP_ATOMIC16K | ffi::SQLITE_IOCAP_ATOMIC), 0);
    let redo = flags("&size=16M&place=redo");
    assert_eq!(redo & (ordered | ffi::SQLITE_IOCAP_BATCH_ATOMIC | ffi::SQLITE_IOCAP_ATOMIC512), 0);
    let data = flags("&size=16M&place=data");
    assert_eq!(data & ordered, 0, "the journal is at home: it must be synced");
    assert_ne!(data & ffi::SQLITE_IOCAP_BATCH_ATOMIC, 0);
}

#[test]
fn a_batch_is_seen_by_its_connection_and_is_all_or_nothing() {
    let bench = Bench::new();
    let connection = bench.open();
    connection.execute_batch("CREATE TABLE t(x)").unwrap();
    let file = main_file(&connection);
    let page = [7u8; 4096];
    let mut size = 0;
    let null = std::ptr::null_mut();
    // Rolled back: nothing of it is left.
    assert_eq!(
        call!(file, xFileControl(ffi::SQLITE_FCNTL_BEGIN_ATOMIC_WRITE, null)),
        ffi::SQLITE_OK
    );
    for offset in [8192, 12288] {
        assert_eq!(call!(file, xWrite(page.as_ptr().cast(), 4096, offset)), ffi::SQLITE_OK);
    }
    let mut seen = [0u8; 100];
    assert_eq!(call!(file, xRead(seen.as_mut_ptr().cast(), 100, 12288)), ffi::SQLITE_OK);
    assert_eq!(seen, [7; 100]);
    assert_eq!(call!(file, xFileSize(&mut size)), ffi::SQLITE_OK);
    assert_eq!(size, 16384);
    assert_eq!(
        call!(file, xFileControl(ffi::SQLITE_FCNTL_ROLLBACK_ATOMIC_WRITE, null)),
        ffi::SQLITE_OK
    );
    assert_eq!(call!(file, xFileSize(&mut size)), ffi::SQLITE_OK);
    assert_eq!(size, 8192);
    // Committed: all of it is there, also for another connection.
    assert_eq!(
        call!(file, xFileControl(ffi::SQLITE_FCNTL_BEGIN_ATOMIC_WRITE, null)),
        ffi::SQLITE_OK
    );
    for offset in [12288, 8192] {
        assert_eq!(call!(file, xWrite(page.as_ptr().cast(), 4096, offset)), ffi::SQLITE_OK);
    }
    assert_eq!(
        call!(file, xFileControl(ffi::SQLITE_FCNTL_COMMIT_ATOMIC_WRITE, null)),
        ffi::SQLITE_OK
    );
    let other = bench.reopen();
    text(&other, "SELECT count(*) FROM t");
    assert_eq!(
        call!(main_file(&other), xRead(seen.as_mut_ptr().cast(), 100, 8192)),
        ffi::SQLITE_OK
    );
    assert_eq!(seen, [7; 100]);
    assert_eq!(call!(file, xTruncate(8192)), ffi::SQLITE_OK);
}

#[test]
fn the_other_file_controls_answer_as_the_unix_vfs_does() {
    let bench = Bench::new();
    let connection = bench.open();
    connection.execute_batch("CREATE TABLE t(x)").unwrap();
    let file = main_file(&connection);
    assert_eq!(
        control(file, ffi::SQLITE_FCNTL_LOCKSTATE, 9),
        (ffi::SQLITE_OK, ffi::SQLITE_LOCK_NONE)
    );
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(
        control(file, ffi::SQLITE_FCNTL_LOCKSTATE, 9),
        (ffi::SQLITE_OK, ffi::SQLITE_LOCK_RESERVED)
    );
    connection.execute_batch("COMMIT").unwrap();
    assert_eq!(control(file, ffi::SQLITE_FCNTL_PERSIST_WAL, -1), (ffi::SQLITE_OK, 0));
    assert_eq!(control(file, ffi::SQLITE_FCNTL_PERSIST_WAL, 1), (ffi::SQLITE_OK, 1));
    assert_eq!(control(file, ffi::SQLITE_FCNTL_PERSIST_WAL, -1), (ffi::SQLITE_OK, 1));
    assert_eq!(control(file, ffi::SQLITE_FCNTL_HAS_MOVED, 9), (ffi::SQLITE_OK, 0));
    assert_eq!(control(file, ffi::SQLITE_FCNTL_POWERSAFE_OVERWRITE, -1), (ffi::SQLITE_OK, 1));
    assert_eq!(control(file, 12345, 0).0, ffi::SQLITE_NOTFOUND);
    for op in [ffi::SQLITE_FCNTL_VFSNAME, ffi::SQLITE_FCNTL_TEMPFILENAME] {
        let mut name: *mut std::ffi::c_char = std::ptr::null_mut();
        assert_eq!(call!(file, xFileControl(op, (&raw mut name).cast())), ffi::SQLITE_OK);
        // SAFETY: the answer is a string that the caller frees.
        let said = unsafe { std::ffi::CStr::from_ptr(name) }.to_str().unwrap().to_string();
        // SAFETY: as above.
        unsafe { ffi::sqlite3_free(name.cast()) };
        assert!(if op == ffi::SQLITE_FCNTL_VFSNAME {
            said == "tiersmith"
        } else {
            said.contains("etilqs_")
        });
    }
    let mut limit = 1i64 << 20;
    assert_eq!(
        call!(file, xFileControl(ffi::SQLITE_FCNTL_MMAP_SIZE, (&raw mut limit).cast())),
        ffi::SQLITE_OK
    );
    let mut asked = -1i64;
    assert_eq!(
        call!(file, xFileControl(ffi::SQLITE_FCNTL_MMAP_SIZE, (&raw mut asked).cast())),
        ffi::SQLITE_OK
    );
    assert_eq!(asked, 1 << 20);
}

#[test]
fn a_lent_page_keeps_its_bytes_while_the_page_is_written() {
    let bench = Bench::new();
    let connection = bench.open();
    connection.execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES (1)").unwrap();
    let file = main_file(&connection);
    let mut at: *mut c_void = std::ptr::null_mut();
    assert_eq!(call!(file, xFetch(0, 4096, &mut at)), ffi::SQLITE_OK);
    assert!(at.is_null(), "nothing is lent before mmap_size is set");
    text(&connection, "PRAGMA mmap_size=1000000");
    text(&connection, "SELECT x FROM t");
    assert_eq!(call!(file, xFetch(4096, 4096, &mut at)), ffi::SQLITE_OK);
    assert!(!at.is_null());
    // SAFETY: 4096 bytes were lent.
    let lent = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), 4096) };
    let before = lent.to_vec();
    connection.execute_batch("UPDATE t SET x=2").unwrap();
    connection.execute_batch("UPDATE t SET x=3").unwrap();
    assert_eq!(lent, before);
    let mut now = vec![0; 4096];
    assert_eq!(call!(file, xRead(now.as_mut_ptr().cast(), 4096, 4096)), ffi::SQLITE_OK);
    assert_ne!(now, before);
    assert_eq!(call!(file, xUnfetch(4096, at)), ffi::SQLITE_OK);
    // Neither across blocks nor past the limit nor past the end.
    for (offset, amount) in [(2048, 4096), (4096, 8192), (1 << 30, 4096), (8192 * 4, 4096)] {
        assert_eq!(call!(file, xFetch(offset, amount, &mut at)), ffi::SQLITE_OK);
        assert!(at.is_null(), "{offset} {amount}");
    }
}

#[test]
fn a_journal_that_does_not_exist_cannot_be_deleted_or_opened() {
    let bench = Bench::new();
    let connection = bench.open();
    connection.execute_batch("CREATE TABLE t(x)").unwrap();
    let name = CString::new(format!("{}-journal", bench.database().display())).unwrap();
    // SAFETY: the VFS is registered, names end with a zero, answers have room.
    unsafe {
        let vfs = ffi::sqlite3_vfs_find(c"tiersmith".as_ptr());
        let mut there = 1;
        let access = (*vfs).xAccess.unwrap();
        assert_eq!(
            access(vfs, name.as_ptr(), ffi::SQLITE_ACCESS_EXISTS, &mut there),
            ffi::SQLITE_OK
        );
        assert_eq!(there, 0);
        assert_eq!((*vfs).xDelete.unwrap()(vfs, name.as_ptr(), 0), ffi::SQLITE_IOERR_DELETE_NOENT);
        let mut memory = vec![0u64; (*vfs).szOsFile as usize / 8 + 1];
        let file: *mut ffi::sqlite3_file = memory.as_mut_ptr().cast();
        let flags = ffi::SQLITE_OPEN_READONLY | ffi::SQLITE_OPEN_MAIN_JOURNAL;
        let code = (*vfs).xOpen.unwrap()(vfs, name.as_ptr(), file, flags, std::ptr::null_mut());
        assert_eq!(code, ffi::SQLITE_CANTOPEN);
        assert!((*file).pMethods.is_null(), "SQLite closes what has methods");
    }
}
