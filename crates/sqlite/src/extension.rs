//! The loadable extension: what SQLite calls when it loads `libtiersmith_sqlite.so`, and the SQL
//! function every connection gets. Each SQLite library of a process loads it for itself.
//!
//! ```text
//! sqlite3 -cmd '.load /usr/lib/libtiersmith_sqlite' \
//!     'file:app.db?vfs=tiersmith&fast=/mnt/pmem0/app.tier&size=1G'
//! ```
//!
//! SQLite looks for `sqlite3_extension_init`, then for a name made of the file's: "lib" and
//! everything behind the first dot goes, of the rest the letters stay. The extension stays loaded
//! until the process ends: SQLite keeps pointers into it.

use crate::border;
use crate::ffi::api::{Api, Function, OLDEST};
use crate::ffi::{self, Connection, FunctionContext, api};
use crate::result;
use std::ffi::{c_char, c_int, c_void};
use std::panic::catch_unwind;

/// SQLite's entry into the extension.
///
/// # Safety
/// For SQLite to call: `routines` is its table of functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_tiersmithsqlite_init(
    connection: *mut c_void,
    message: *mut *mut c_char,
    routines: *const c_void,
) -> c_int {
    let loaded = catch_unwind(|| {
        // SAFETY: the caller's.
        let api = match unsafe { api::use_routines(routines) } {
            Ok(api) => api,
            Err(version) => {
                // No table, no way to allocate a message: only the log of the program is left.
                log::error!(
                    "tiersmith needs SQLite {OLDEST} or later, and was loaded by {version}"
                );
                return ffi::ERROR;
            }
        };
        if let Err(code) = border::register(api, crate::wants_default()) {
            let said = format!("tiersmith: SQLite does not take the VFS: result code {code}");
            if !message.is_null() {
                // SAFETY: the caller's: room for a string that SQLite frees.
                unsafe { message.write(api.string(&said)) };
            }
            return ffi::ERROR;
        }
        announce(api);
        // The connection that loads us is open already.
        // SAFETY: the caller's: an open connection; this library stays loaded.
        unsafe { add_function(api, connection.cast()) };
        ffi::OK_LOAD_PERMANENTLY
    });
    loaded.unwrap_or(ffi::ERROR)
}

/// The name SQLite tries first.
///
/// # Safety
/// As [`sqlite3_tiersmithsqlite_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_extension_init(
    connection: *mut c_void,
    message: *mut *mut c_char,
    routines: *const c_void,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { sqlite3_tiersmithsqlite_init(connection, message, routines) }
}

/// Every connection opened from now on gets `tiersmith_last_error()`. SQLite takes the same entry
/// only once.
pub(crate) fn announce(api: &'static Api) {
    // SAFETY: the function is in this library, which is not unloaded.
    let code = unsafe { api.on_every_connection(on_connection) };
    if code != ffi::OK {
        log::warn!(
            "tiersmith_last_error() is not there: SQLite refused it with result code {code}"
        );
    }
}

/// Gives a new connection its function; one whose main file could not be opened fails, with our
/// sentence.
unsafe extern "C" fn on_connection(
    connection: *mut Connection,
    message: *mut *mut c_char,
    routines: *const c_void,
) -> c_int {
    // The program's logger may panic.
    let done = catch_unwind(|| {
        // SAFETY: SQLite's: its table of functions, or null.
        let Some(api) = (unsafe { of_routines(routines) }) else { return ffi::OK };
        // SAFETY: SQLite's: the connection is open; this library stays loaded.
        unsafe { add_function(api, connection) };
        // SAFETY: SQLite's: nobody else has the connection yet.
        let Some(refused) = (unsafe { border::refusal(api, connection) }) else { return ffi::OK };
        if !message.is_null() {
            // SAFETY: SQLite's: room for a string, which it frees.
            unsafe { message.write(api.string(&refused.sentence)) };
        }
        refused.code
    });
    done.unwrap_or(ffi::OK)
}

/// The SQLite that calls, by its table of functions. One that loads no extensions has none to hand
/// out: it is the one linked in.
///
/// # Safety
/// `routines` is null, or the table that SQLite handed out.
unsafe fn of_routines(routines: *const c_void) -> Option<&'static Api> {
    if !routines.is_null() {
        // SAFETY: the caller's.
        return unsafe { api::use_routines(routines) }.ok();
    }
    #[cfg(feature = "linked")]
    return Some(api::use_linked());
    #[cfg(not(feature = "linked"))]
    None
}

/// # Safety
/// `connection` is open.
unsafe fn add_function(api: &'static Api, connection: *mut Connection) {
    let Some(function) = api::number_of(api).and_then(|number| LAST_ERROR.get(number)) else {
        log::warn!(
            "tiersmith_last_error() is not there: this is the ninth SQLite library of the process"
        );
        return;
    };
    // SAFETY: the caller's; this library stays loaded.
    let code = unsafe { api.function(connection, c"tiersmith_last_error", *function) };
    if code != ffi::OK {
        log::warn!("tiersmith_last_error() is not there for a connection: result code {code}");
    }
}

/// `tiersmith_last_error()` of each SQLite: a function is called with nothing that would tell whose
/// it is.
static LAST_ERROR: [Function; 8] = [
    Some(last_error::<0>),
    Some(last_error::<1>),
    Some(last_error::<2>),
    Some(last_error::<3>),
    Some(last_error::<4>),
    Some(last_error::<5>),
    Some(last_error::<6>),
    Some(last_error::<7>),
];

unsafe extern "C" fn last_error<const NUMBER: usize>(
    context: *mut FunctionContext,
    _n: c_int,
    _arguments: *mut *mut c_void,
) {
    let last = catch_unwind(result::last_error).ok().flatten();
    if let Some(api) = api::all().nth(NUMBER) {
        // SAFETY: SQLite's: the context of this call.
        unsafe { api.result(context, last.as_ref().map(|(_, sentence)| sentence.as_str())) };
    }
}
