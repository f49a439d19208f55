//! The VFS as SQLite has it: one structure for each SQLite library, registered once, that lives as
//! long as the process.

use super::lent::OpenMain;
use super::{BELOW_AT, OsFile, guard, methods, plain, refused};
use crate::ffi::api::{Api, Filename};
use crate::ffi::foreign::{ForeignFile, ForeignVfs};
use crate::ffi::{self, IoMethods, SqliteFile, SqliteVfs, Symbol};
use crate::place::Role;
use crate::result;
use crate::vfs::{self, Opened};
use std::ffi::{CStr, c_char, c_int, c_void};

/// [`crate::VFS_NAME`], for C.
const NAME: &CStr = c"tiersmith";

/// Registers the VFS, once per SQLite; returns the VFS below it.
///
/// # Errors
/// SQLite's result code, or `SQLITE_ERROR` when there is no VFS to build on.
pub(crate) fn register(api: &'static Api, default: bool) -> Result<ForeignVfs, c_int> {
    let ours = api.find(Some(NAME));
    if !ours.is_null() {
        // SQLite that was shut down and is used again has made its own the default.
        // SAFETY: it was registered before, and is never given back.
        if default && unsafe { api.register(ours, true) } != ffi::OK {
            return Err(ffi::ERROR);
        }
        // SAFETY: a VFS of this name was registered by `register`, in this copy of the code or
        // another, whose `Registered` begins alike.
        let below = unsafe { (*(*ours).app_data.cast::<Registered>()).below };
        // SAFETY: as above; it was the default VFS then.
        return Ok(unsafe { ForeignVfs::new(below, api) });
    }
    let below = api.find(None);
    if below.is_null() {
        return Err(ffi::ERROR);
    }
    // SAFETY: it is the default VFS; programs that unregister theirs must not do so while ours is
    // used.
    let foreign = unsafe { ForeignVfs::new(below, api) };
    let functions = foreign.functions();
    let vfs = Box::new(SqliteVfs {
        version: functions.version.min(2),
        file_bytes: BELOW_AT as c_int + functions.file_bytes,
        path_max: functions.path_max,
        next: std::ptr::null_mut(),
        name: NAME.as_ptr(),
        app_data: Box::into_raw(Box::new(Registered { below, api })).cast(),
        open: Some(open),
        delete: Some(delete),
        access: Some(access),
        full_pathname: Some(full_pathname),
        dl_open: Some(dl_open),
        dl_error: Some(dl_error),
        dl_sym: Some(dl_sym),
        dl_close: Some(dl_close),
        randomness: Some(randomness),
        sleep: Some(sleep),
        current_time: Some(current_time),
        get_last_error: Some(get_last_error),
        current_time_int64: Some(current_time_int64),
    });
    // SAFETY: the box is never given back.
    match unsafe { api.register(Box::into_raw(vfs), default) } {
        ffi::OK => Ok(foreign),
        code => Err(code),
    }
}

/// What the registered structure leads to.
#[repr(C)]
struct Registered {
    /// The VFS below ours.
    below: *mut SqliteVfs,
    /// The functions of the SQLite it is registered with.
    api: &'static Api,
}

/// The VFS below ours.
///
/// # Safety
/// `vfs` is the structure that [`register`] made.
unsafe fn below(vfs: *mut SqliteVfs) -> ForeignVfs {
    // SAFETY: the caller's; the VFS below stays registered (see `register`), and the data are never
    // given back.
    unsafe {
        let registered = &*(*vfs).app_data.cast::<Registered>();
        ForeignVfs::new(registered.below, registered.api)
    }
}

unsafe extern "C" fn open(
    vfs: *mut SqliteVfs,
    name: *const c_char,
    file: *mut SqliteFile,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let ours = file.cast::<OsFile>();
    // Without methods SQLite does not call xClose after an error.
    // SAFETY: SQLite's: the memory has as many bytes as `file_bytes` says.
    unsafe {
        (*ours).head.methods = std::ptr::null();
        (*ours).object = std::ptr::null_mut();
    }
    guard(ffi::CANTOPEN, || {
        // SAFETY: SQLite's: `vfs` is the one registered.
        let below = unsafe { below(vfs) };
        // SAFETY: SQLite's: null, or a name that ends with a zero and lives as long as the file.
        let c_name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) });
        // SAFETY: it is what SQLite passed to xOpen.
        let c_name = c_name.map(|name| unsafe { Filename::new(name, below.api()) });
        // SAFETY: SQLite's: the memory has as many bytes as `file_bytes` says.
        unsafe { (*ours).api = below.api() };
        let opened = match vfs::open(&below, c_name, flags) {
            Ok(opened) => opened,
            Err(code) if flags & ffi::OPEN_MAIN_DB != 0 => {
                // SAFETY: SQLite's memory.
                unsafe {
                    (*ours).object = refused::object(code);
                    (*ours).head.methods = &raw const refused::REFUSED;
                    set(out, flags);
                }
                return ffi::OK;
            }
            Err(code) => return code,
        };
        let (methods, object): (&'static IoMethods, *mut c_void) = match opened {
            Opened::Main(main) => {
                (&methods::MAIN, Box::into_raw(Box::new(OpenMain::new(*main))).cast())
            }
            Opened::Side(side) => (&methods::SIDE, Box::into_raw(side).cast()),
            // SAFETY: SQLite's: name and memory are those of this call, and the VFS below has no
            // more bytes than `file_bytes`.
            Opened::Below => unsafe {
                let (code, opened) = below.open(name, file, flags);
                set(out, opened);
                return code;
            },
            Opened::Plain(role, kept) => {
                let inner = plain::below(file);
                // SAFETY: as above; behind our head there is room for the file below.
                let (code, opened) = unsafe { below.open(name, inner, flags) };
                if code != ffi::OK {
                    // SAFETY: the file below has methods if it wants to be closed after an error.
                    unsafe {
                        if !(*inner).methods.is_null() {
                            ForeignFile::new(inner).close();
                        }
                    }
                    return code;
                }
                let kept =
                    kept.map_or(std::ptr::null_mut(), |name| Box::into_raw(Box::new(name)).cast());
                // SAFETY: SQLite's memory; the file below is open.
                unsafe {
                    (*ours).role = plain::number(role);
                    (*ours).object = kept;
                    (*ours).head.methods = plain::table_for(ForeignFile::new(inner).version());
                    set(out, opened);
                }
                debug_assert!(role == Role::Main || kept.is_null());
                return ffi::OK;
            }
        };
        // SAFETY: SQLite's memory.
        unsafe {
            (*ours).object = object;
            (*ours).head.methods = methods;
            set(out, flags);
        }
        ffi::OK
    })
}

/// # Safety
/// `at` is null or points to room for an `int`.
unsafe fn set(at: *mut c_int, value: c_int) {
    if !at.is_null() {
        // SAFETY: the caller's.
        unsafe { at.write(value) };
    }
}

unsafe extern "C" fn delete(
    vfs: *mut SqliteVfs,
    name: *const c_char,
    sync_directory: c_int,
) -> c_int {
    guard(ffi::IOERR_DELETE, || {
        // SAFETY: SQLite's: the VFS registered, and a name that ends with a zero.
        let (below, name) = unsafe { (below(vfs), CStr::from_ptr(name)) };
        vfs::delete(&below, name, sync_directory)
    })
}

unsafe extern "C" fn access(
    vfs: *mut SqliteVfs,
    name: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    guard(ffi::IOERR_ACCESS, || {
        // SAFETY: SQLite's: the VFS registered, and a name that ends with a zero.
        let (below, name) = unsafe { (below(vfs), CStr::from_ptr(name)) };
        match vfs::access(&below, name, flags) {
            // SAFETY: SQLite's: room for the answer.
            Ok(found) => unsafe { super::answer(out, c_int::from(found)) },
            Err(code) => code,
        }
    })
}

/// Functions that are the VFS's below, without a look at what they are asked.
macro_rules! pass {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty, $missing:expr;)+) => {
        $(unsafe extern "C" fn $name(vfs: *mut SqliteVfs $(, $argument: $type)*) -> $answer {
            // SAFETY: SQLite's: the VFS registered.
            let below = unsafe { below(vfs) };
            match below.functions().$name {
                // SAFETY: SQLite's: the arguments are those of this call; the function belongs to
                // the VFS below.
                Some(function) => unsafe { function(below.pointer() $(, $argument)*) },
                None => $missing,
            }
        })+
    };
}

pass! {
    full_pathname(name: *const c_char, bytes: c_int, out: *mut c_char) -> c_int, ffi::CANTOPEN;
    dl_open(name: *const c_char) -> *mut c_void, std::ptr::null_mut();
    dl_error(bytes: c_int, message: *mut c_char) -> (), ();
    dl_sym(library: *mut c_void, symbol: *const c_char) -> Symbol, None;
    dl_close(library: *mut c_void) -> (), ();
    randomness(bytes: c_int, out: *mut c_char) -> c_int, 0;
    sleep(us: c_int) -> c_int, 0;
    current_time(days: *mut f64) -> c_int, ffi::ERROR;
    current_time_int64(ms: *mut i64) -> c_int, ffi::ERROR;
}

/// The last error: its number, and as much of the sentence as there is room for.
unsafe extern "C" fn get_last_error(vfs: *mut SqliteVfs, bytes: c_int, out: *mut c_char) -> c_int {
    guard(0, || {
        let Some((errno, sentence)) = result::last_error() else {
            // SAFETY: SQLite's: the VFS registered.
            let below = unsafe { below(vfs) };
            return match below.functions().get_last_error {
                // SAFETY: SQLite's: the arguments are those of this call.
                Some(function) => unsafe { function(below.pointer(), bytes, out) },
                None => 0,
            };
        };
        if !out.is_null() && bytes > 0 {
            let n = sentence.len().min(bytes as usize - 1);
            // SAFETY: SQLite's: `out` has room for `bytes` bytes.
            unsafe {
                std::ptr::copy_nonoverlapping(sentence.as_ptr().cast(), out, n);
                *out.add(n) = 0;
            }
        }
        errno
    })
}
