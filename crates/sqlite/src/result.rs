//! From errors to SQLite's result codes, and the last error in words.
//!
//! SQLite has a number for an error and its own sentence for the number; what happened, on which
//! file and what to do about it, it can carry for a failed open (`border/refused.rs`) and a pragma
//! only. So each error goes to three places, here and nowhere else: the code to SQLite, the whole
//! sentence to SQLite's log (`sqlite3_log`, of each SQLite of the process), and to
//! `tiersmith_last_error()` and `xGetLastError`.
//!
//! | error | code |
//! |---|---|
//! | tier full, home full | `SQLITE_FULL` |
//! | in use by another process | `SQLITE_BUSY` |
//! | a connection that a forked child inherited | `SQLITE_MISUSE` |
//! | cannot be written | `SQLITE_READONLY`; at open `SQLITE_CANTOPEN` |
//! | damaged tier | `SQLITE_CORRUPT` |
//! | wrong tier, changed home, bad parameters | `SQLITE_CANTOPEN` |
//! | anything else | the code of the operation (`SQLITE_IOERR_WRITE`, ...) |
//!
//! Read next: `vfs.rs` and `file.rs`, which call this.

use crate::error::PlaceError;
use crate::ffi::{self, api};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::ffi::c_int;
use std::io;
use tiersmith_store::Error;
use tiersmith_store::process::PerProcess;

/// The last error of the process: errno and sentence.
static LAST: PerProcess<Mutex<Option<(c_int, String)>>> = PerProcess::new(Default::default);

thread_local! {
    /// The last error of the thread.
    static LAST_HERE: RefCell<Option<(c_int, String)>> = const { RefCell::new(None) };
}

/// Keeps and logs a sentence; returns `code`.
pub(crate) fn report(code: c_int, errno: c_int, sentence: &str) -> c_int {
    let sentence = format!("tiersmith: {sentence}");
    for api in api::all() {
        api.log_line(code, &sentence);
    }
    log::warn!("{sentence}");
    // The thread-local is gone when a thread's end closes a connection.
    let _ = LAST_HERE.try_with(|last| *last.borrow_mut() = Some((errno, sentence.clone())));
    *LAST.get().lock() = Some((errno, sentence));
    code
}

/// The last error of this thread, else of the process.
pub(crate) fn last_error() -> Option<(c_int, String)> {
    let here = LAST_HERE.try_with(|last| last.borrow().clone()).ok().flatten();
    here.or_else(|| LAST.get().lock().clone())
}

/// The code for an error of the store; `otherwise` is the code of the operation that failed.
fn code_of(error: &Error, otherwise: c_int) -> c_int {
    match error {
        Error::TierFull { .. } | Error::BatchTooLarge { .. } => ffi::FULL,
        Error::Owned { .. } | Error::Busy(_) => ffi::BUSY,
        Error::Forked { .. } => ffi::MISUSE,
        Error::Damaged { .. } => ffi::CORRUPT,
        Error::WrongTier(_)
        | Error::NotATier { .. }
        | Error::OtherFormat { .. }
        | Error::Options(_)
        | Error::Home { .. }
        | Error::HomeChanged { .. }
        | Error::LogOfAnother { .. } => ffi::CANTOPEN,
        Error::Io { source, .. } => code_of_io(source, otherwise),
        // A medium is opened, mapped or grown: there is no operation on a file that fails by it but
        // for want of space.
        Error::Medium(_) if error.errno() == rustix::io::Errno::NOSPC.raw_os_error() => ffi::FULL,
        _ => otherwise,
    }
}

fn code_of_io(error: &io::Error, otherwise: c_int) -> c_int {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ffi::FULL,
        io::ErrorKind::ReadOnlyFilesystem => ffi::READONLY,
        _ => otherwise,
    }
}

/// The result code for an error of the store during an operation whose own code is `otherwise`;
/// kept and logged.
pub(crate) fn of_store(error: &Error, otherwise: c_int) -> c_int {
    report(code_of(error, otherwise), error.errno(), &error.to_string())
}

/// The result code for a place that could not be opened; kept and logged.
pub(crate) fn of_place(error: &PlaceError) -> c_int {
    let code = if error.is_busy() {
        ffi::BUSY
    } else if error.is_full() {
        ffi::FULL
    } else if error.is_readonly() {
        ffi::CANTOPEN
    } else {
        match error {
            PlaceError::Store(e) => code_of(e, ffi::CANTOPEN),
            _ => ffi::CANTOPEN,
        }
    };
    let errno = match error {
        PlaceError::Store(e) => e.errno(),
        _ => rustix::io::Errno::IO.raw_os_error(),
    };
    report(code, errno, &error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(kind: io::ErrorKind) -> Error {
        Error::Io { what: "cannot write", path: "db".into(), source: kind.into() }
    }

    #[test]
    fn every_way_to_be_full_is_sqlite_full() {
        let full =
            Error::TierFull { tier: "fast".into(), free_bytes: 0, reason: "all pinned".into() };
        assert_eq!(code_of(&full, ffi::IOERR_WRITE), ffi::FULL);
        assert_eq!(code_of(&io(io::ErrorKind::StorageFull), ffi::IOERR_WRITE), ffi::FULL);
        assert_eq!(
            code_of(&Error::BatchTooLarge { blocks: 2, most: 1 }, ffi::IOERR_WRITE),
            ffi::FULL
        );
    }

    #[test]
    fn an_owner_elsewhere_is_busy_and_damage_is_corrupt() {
        let owned = Error::Owned { what: "the tier".into(), owner: "process 1".into() };
        assert_eq!(code_of(&owned, ffi::CANTOPEN), ffi::BUSY);
        let damaged = Error::Damaged {
            path: "t".into(),
            member: 0,
            offset: 0,
            structure: "superblock".into(),
            detail: "x".into(),
        };
        assert_eq!(code_of(&damaged, ffi::IOERR_READ), ffi::CORRUPT);
    }

    #[test]
    fn an_error_with_no_code_of_its_own_gets_that_of_the_operation() {
        assert_eq!(code_of(&io(io::ErrorKind::Other), ffi::IOERR_READ), ffi::IOERR_READ);
        assert_eq!(code_of(&Error::Detached, ffi::IOERR_FSYNC), ffi::IOERR_FSYNC);
    }

    #[test]
    fn the_last_error_of_the_thread_comes_before_that_of_another() {
        report(ffi::IOERR, 5, "first");
        std::thread::spawn(|| report(ffi::IOERR, 6, "second")).join().unwrap();
        assert_eq!(last_error(), Some((5, "tiersmith: first".to_string())));
    }
}
