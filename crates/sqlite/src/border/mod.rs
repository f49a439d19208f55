//! The border to SQLite: what it calls, with C's types, turned into calls of the safe modules.
//!
//! A file of ours is an [`OsFile`] in memory that SQLite allocated: a method table, and a pointer
//! to our object. Behind it is room for the file of the VFS below, for databases that are not
//! attached.
//!
//! # Obligations, and who keeps them
//! - SQLite calls a method only between a successful `xOpen` and `xClose`, one call at a time for
//!   each file, with pointers that are valid during the call and lengths that fit them. That is the
//!   contract of `sqlite3_io_methods`; every `unsafe` here rests on it.
//! - No panic crosses: each function runs in [`guard`], which turns one into a result code and a
//!   log line.
//! - An object is made by `xOpen` with `Box::into_raw` and given back by `xClose`, and by nobody
//!   else.
//!
//! Deliberately absent: decisions. Which file goes where is in `vfs.rs`, what is written in
//! `file.rs`.

mod lent;
mod methods;
mod plain;
mod refused;
mod registered;

pub(crate) use refused::refusal;
pub(crate) use registered::register;

use crate::ffi::api::Api;
use crate::ffi::{self, SqliteFile};
use crate::result;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The head of the memory SQLite gives us for a file.
#[repr(C)]
struct OsFile {
    head: SqliteFile,
    /// A `Box` of `lent::OpenMain`, `Side`, `refused::Refusal` or, for a plain main file, its
    /// `Name`; null for nothing.
    object: *mut c_void,
    /// The functions of the SQLite whose file it is; there since xOpen.
    api: *const Api,
    /// Of plain files: whose events its calls are.
    role: c_int,
    _align: c_int,
}

/// The functions of the SQLite whose file it is.
///
/// # Safety
/// `file` is one of ours, opened and not closed.
unsafe fn api_of(file: *mut SqliteFile) -> &'static Api {
    // SAFETY: xOpen has put there what lives as long as the process.
    unsafe { &*(*file.cast::<OsFile>()).api }
}

/// Where the file of the VFS below begins.
const BELOW_AT: usize = size_of::<OsFile>();
const _: () =
    assert!(BELOW_AT.is_multiple_of(8), "a file of the VFS below is aligned as SQLite aligns ours");

/// Runs `call`; a panic becomes `code` and a line in the log.
#[inline]
fn guard(code: c_int, call: impl FnOnce() -> c_int) -> c_int {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(answer) => answer,
        Err(panic) => {
            let said = panic
                .downcast_ref::<&str>()
                .map(|s| (*s).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "no message".to_owned());
            // Reporting allocates and locks; should that panic too, the code alone goes to SQLite.
            let reported = catch_unwind(|| {
                let errno = rustix::io::Errno::IO.raw_os_error();
                result::report(
                    code,
                    errno,
                    &format!(
                        "a defect stopped a call: {said}. Close the database, and report this line"
                    ),
                )
            });
            reported.unwrap_or(code)
        }
    }
}

/// An offset or size from SQLite; never negative in a call that makes sense.
#[inline]
fn unsigned(offset: i64) -> Option<u64> {
    u64::try_from(offset).ok()
}

/// Writes through a pointer SQLite gave for an answer.
///
/// # Safety
/// `at` is null or points to room for a `T`, as the operation says.
#[inline]
unsafe fn answer<T>(at: *mut T, value: T) -> c_int {
    if at.is_null() {
        return ffi::MISUSE;
    }
    // SAFETY: the caller's.
    unsafe { at.write(value) };
    ffi::OK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_result_code_and_the_last_error() {
        let code = guard(ffi::IOERR_READ, || panic!("the block {} is odd", 7));
        assert_eq!(code, ffi::IOERR_READ);
        assert!(result::last_error().unwrap().1.contains("the block 7 is odd"));
    }
}
