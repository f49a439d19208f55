//! SQLite's own functions, as the VFS calls them: from the library linked in, or from the table a
//! loadable extension is handed.
//!
//! A process may have several SQLite libraries (Python's own and the one that APSW brings), each
//! with its memory, its connections and its list of VFSs. Each that loads the extension has its
//! [`Api`]: the registered VFS, the open file and the SQL function each know whose they are. A
//! program that links this crate in and loads the extension as well has two copies of the crate,
//! each with its own places.
//!
//! Deliberately absent: statements. What the VFS asks SQLite to run, it runs through
//! `sqlite3_exec`.
//!
//! Invariants: every function pointer here belongs to a SQLite that is not unloaded while this
//! library is in memory; what one SQLite made is given to no other.

use super::{Connection, FunctionContext, SqliteVfs};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::OnceLock;

/// The oldest SQLite whose table of functions has every entry used here (URI parameters for a VFS,
/// `malloc64`): 3.8.7.
pub(crate) const OLDEST: c_int = 3_008_007;

type Callback =
    Option<unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_char, *mut *mut c_char) -> c_int>;
/// What SQLite calls for an SQL function.
pub(crate) type Function =
    Option<unsafe extern "C" fn(*mut FunctionContext, c_int, *mut *mut c_void)>;
/// What SQLite calls when a destructor is given.
type Destroy = Option<unsafe extern "C" fn(*mut c_void)>;
/// What [`Api::auto_extension`] registers; SQLite calls it with a connection, a place for a message
/// and its table of functions.
pub(crate) type Entry =
    unsafe extern "C" fn(*mut Connection, *mut *mut c_char, *const c_void) -> c_int;

/// Declares the functions: SQLite's name, number in `sqlite3_api_routines` (`sqlite3ext.h`; the
/// order never changes), type.
macro_rules! functions {
    ($($name:ident = $function:ident, $number:literal: $type:ty;)+) => {
        /// SQLite's functions.
        #[derive(Clone, Copy)]
        pub(crate) struct Api {
            $($name: $type,)+
        }

        impl Api {
            /// Takes the functions from the table that SQLite hands to an extension.
            ///
            /// # Safety
            /// `table` points to the `sqlite3_api_routines` of a SQLite of version 3.8.7 or later.
            pub(super) unsafe fn from_routines(table: *const *const c_void) -> Option<Api> {
                Some(Api {
                    $($name: {
                        // SAFETY: the table is one of function pointers, and longer than this
                        // number since 3.8.7 (the caller has looked).
                        let entry = unsafe { *table.add($number) };
                        if entry.is_null() {
                            return None;
                        }
                        // SAFETY: the entry of this number has this type; `compare.rs` pins number
                        // and function for each of them.
                        unsafe { std::mem::transmute::<*const c_void, $type>(entry) }
                    },)+
                })
            }

            /// The functions of the SQLite this crate is linked to.
            #[cfg(feature = "linked")]
            pub(super) fn linked() -> Api {
                Api {
                    $($name: {
                        let address = libsqlite3_sys::$function as *const c_void;
                        // SAFETY: the type is that of this C function; the bindings have the same
                        // with other names for the structures, which have the same layout
                        // (`compare.rs`).
                        unsafe { std::mem::transmute::<*const c_void, $type>(address) }
                    },)+
                }
            }

            /// The functions' addresses by name, for the test.
            #[cfg(all(test, feature = "linked"))]
            pub(crate) fn addresses(&self) -> Vec<(&'static str, usize)> {
                vec![$((stringify!($name), self.$name as usize)),+]
            }

            /// Whether these are the functions of the same SQLite.
            fn is_same(&self, other: &Api) -> bool {
                [$((self.$name as usize, other.$name as usize)),+].iter().all(|(one,
                two)| one == two)
            }
        }
    };
}

functions! {
    close = sqlite3_close, 16: unsafe extern "C" fn(*mut Connection) -> c_int;
    errmsg = sqlite3_errmsg, 53: unsafe extern "C" fn(*mut Connection) -> *const c_char;
    exec = sqlite3_exec, 55: unsafe extern "C" fn(*mut Connection, *const c_char, Callback,
    *mut c_void, *mut *mut c_char) -> c_int;
    libversion_number = sqlite3_libversion_number, 67: unsafe extern "C" fn() -> c_int;
    result_null = sqlite3_result_null, 84: unsafe extern "C" fn(*mut FunctionContext);
    result_text = sqlite3_result_text, 85: unsafe extern "C" fn(*mut FunctionContext,
    *const c_char, c_int, Destroy);
    file_control = sqlite3_file_control, 127: unsafe extern "C" fn(*mut Connection, *const c_char,
    c_int, *mut c_void) -> c_int;
    open_v2 = sqlite3_open_v2, 135: unsafe extern "C" fn(*const c_char, *mut *mut Connection,
    c_int, *const c_char) -> c_int;
    vfs_find = sqlite3_vfs_find, 141: unsafe extern "C" fn(*const c_char) -> *mut SqliteVfs;
    vfs_register = sqlite3_vfs_register, 142: unsafe extern "C" fn(*mut SqliteVfs, c_int) -> c_int;
    create_function_v2 = sqlite3_create_function_v2, 162: unsafe extern "C" fn(
        *mut Connection, *const c_char, c_int, c_int, *mut c_void, Function, Function,
        Option<unsafe extern "C" fn(*mut FunctionContext)>, Destroy,
    ) -> c_int;
    log = sqlite3_log, 167: unsafe extern "C" fn(c_int, *const c_char, ...);
    uri_parameter = sqlite3_uri_parameter, 189: unsafe extern "C" fn(*const c_char,
    *const c_char) -> *const c_char;
    auto_extension = sqlite3_auto_extension, 192: unsafe extern "C" fn(Option<Entry>) -> c_int;
    malloc64 = sqlite3_malloc64, 197: unsafe extern "C" fn(u64) -> *mut c_void;
}

/// The SQLites that have registered the VFS, first to last: a list that only grows, and is read
/// without a lock.
static FIRST: Link = Link::new();

struct Link(OnceLock<(Api, Box<Link>)>);

impl Link {
    const fn new() -> Self {
        Self(OnceLock::new())
    }
}

/// All SQLites that have registered the VFS.
pub(crate) fn all() -> impl Iterator<Item = &'static Api> {
    let mut link = &FIRST;
    std::iter::from_fn(move || {
        let (api, next) = link.0.get()?;
        link = next;
        Some(api)
    })
}

/// Which of [`all`] these are.
pub(crate) fn number_of(api: &'static Api) -> Option<usize> {
    all().position(|found| std::ptr::eq(found, api))
}

/// The one in the list that is this, or this, added to it.
fn kept(api: Api) -> &'static Api {
    let mut link = &FIRST;
    loop {
        let (found, next) = link.0.get_or_init(|| (api, Box::new(Link::new())));
        if found.is_same(&api) {
            return found;
        }
        link = next;
    }
}

/// The functions of the SQLite this crate is linked to.
#[cfg(feature = "linked")]
pub(crate) fn use_linked() -> &'static Api {
    kept(Api::linked())
}

/// The functions a loadable extension is handed. `Err`: SQLite is too old, with its version.
///
/// # Safety
/// `table` is the third argument SQLite gave to the extension's entry point.
pub(crate) unsafe fn use_routines(table: *const c_void) -> Result<&'static Api, c_int> {
    let table: *const *const c_void = table.cast();
    // SAFETY: `libversion_number` has been entry 67 since the table exists.
    let version = unsafe { (*table.add(67)).cast::<()>() };
    if version.is_null() {
        return Err(0);
    }
    // SAFETY: it is `int (*)(void)`.
    let version =
        unsafe { std::mem::transmute::<*const (), unsafe extern "C" fn() -> c_int>(version)() };
    if version < OLDEST {
        return Err(version);
    }
    // SAFETY: the version was looked at.
    unsafe { Api::from_routines(table) }.map(kept).ok_or(version)
}

/// The name of a file as SQLite hands it to `xOpen`: UTF-8 or whatever the file system has, with
/// the URI parameters behind it.
#[derive(Clone, Copy)]
pub(crate) struct Filename<'a> {
    name: &'a CStr,
    api: &'static Api,
}

impl<'a> Filename<'a> {
    /// # Safety
    /// `name` is what this SQLite passed to `xOpen` as the name of a main database.
    pub(crate) unsafe fn new(name: &'a CStr, api: &'static Api) -> Self {
        Self { name, api }
    }

    pub(crate) fn bytes(self) -> &'a [u8] {
        self.name.to_bytes()
    }

    /// A URI parameter; `None` also when it is not UTF-8.
    pub(crate) fn parameter(self, key: &str) -> Option<String> {
        let key = CString::new(key).ok()?;
        // SAFETY: the name is one of `xOpen` (see `new`), the key ends with a zero.
        let value = unsafe { (self.api.uri_parameter)(self.name.as_ptr(), key.as_ptr()) };
        if value.is_null() {
            return None;
        }
        // SAFETY: SQLite's strings end with a zero; this one lives as long as the name.
        unsafe { CStr::from_ptr(value) }.to_str().ok().map(str::to_owned)
    }
}

impl Api {
    /// Writes a line to SQLite's log (`SQLITE_CONFIG_LOG`).
    pub(crate) fn log_line(&self, code: c_int, line: &str) {
        let line = line.replace('\0', " ");
        let Ok(line) = CString::new(line) else { return };
        // SAFETY: the format has one `%s`, for which a string is given that ends with a zero.
        unsafe { (self.log)(code, c"%s".as_ptr(), line.as_ptr()) };
    }

    /// SQLite's version: 3054001 is 3.54.1.
    pub(crate) fn version(&self) -> c_int {
        // SAFETY: it takes nothing and may be called at any time.
        unsafe { (self.libversion_number)() }
    }

    /// A copy of `text` in SQLite's memory, which SQLite frees; null when there is no memory.
    pub(crate) fn string(&self, text: &str) -> *mut c_char {
        let bytes = text.as_bytes();
        // SAFETY: any size may be asked for.
        let to: *mut c_char = unsafe { (self.malloc64)(bytes.len() as u64 + 1) }.cast();
        if !to.is_null() {
            // SAFETY: `to` has room for the bytes and a zero, and nobody else knows it yet.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to, bytes.len());
                *to.add(bytes.len()) = 0;
            }
        }
        to
    }

    /// The VFS of this name, or the default one.
    pub(crate) fn find(&self, name: Option<&CStr>) -> *mut SqliteVfs {
        // SAFETY: null asks for the default VFS; SQLite initialises itself when that was not done.
        unsafe { (self.vfs_find)(name.map_or(std::ptr::null(), CStr::as_ptr)) }
    }

    /// # Safety
    /// `vfs` stays as it is until the process ends.
    pub(crate) unsafe fn register(&self, vfs: *mut SqliteVfs, default: bool) -> c_int {
        // SAFETY: the caller's.
        unsafe { (self.vfs_register)(vfs, c_int::from(default)) }
    }

    /// # Safety
    /// `entry` is a function of a library that is not unloaded.
    pub(crate) unsafe fn on_every_connection(&self, entry: Entry) -> c_int {
        // SAFETY: the caller's.
        unsafe { (self.auto_extension)(Some(entry)) }
    }

    /// Makes an SQL function without arguments known to a connection.
    ///
    /// # Safety
    /// `connection` is an open one of this SQLite; `function` belongs to a library that is not
    /// unloaded.
    pub(crate) unsafe fn function(
        &self,
        connection: *mut Connection,
        name: &CStr,
        function: Function,
    ) -> c_int {
        let null = std::ptr::null_mut();
        // SAFETY: the caller's; no data and no destructor are given.
        unsafe {
            (self.create_function_v2)(
                connection,
                name.as_ptr(),
                0,
                super::UTF8,
                null,
                function,
                None,
                None,
                None,
            )
        }
    }

    /// Asks the main database's file of a connection.
    ///
    /// # Safety
    /// `connection` is an open one of this SQLite; `argument` is what the operation `op` asks for.
    pub(crate) unsafe fn ask_main_file(
        &self,
        connection: *mut Connection,
        op: c_int,
        argument: *mut c_void,
    ) -> c_int {
        // SAFETY: the caller's; the name ends with a zero.
        unsafe { (self.file_control)(connection, c"main".as_ptr(), op, argument) }
    }

    /// The result of an SQL function: a text, or NULL.
    ///
    /// # Safety
    /// `context` is what this SQLite called the function with.
    pub(crate) unsafe fn result(&self, context: *mut FunctionContext, text: Option<&str>) {
        match text {
            // SAFETY: the caller's.
            None => unsafe { (self.result_null)(context) },
            Some(text) => {
                let len = c_int::try_from(text.len()).unwrap_or(c_int::MAX);
                // SAFETY: -1 as a destructor is SQLITE_TRANSIENT: SQLite copies the text before it
                // returns. It is only compared, never called.
                let transient = unsafe { std::mem::transmute::<isize, Destroy>(-1) };
                // SAFETY: the caller's; the text has at least `len` bytes.
                unsafe { (self.result_text)(context, text.as_ptr().cast(), len, transient) }
            }
        }
    }

    /// Opens a database with the VFS `vfs`, reads from it (a hot journal is rolled back by that),
    /// brings its WAL into it and closes it.
    ///
    /// # Errors
    /// SQLite's own sentence.
    ///
    /// # Durability
    /// SQLite's: synced when the database's `synchronous` is NORMAL or higher.
    pub(crate) fn fold(&self, database: &Path, vfs: &CStr) -> Result<(), String> {
        use std::os::unix::ffi::OsStrExt;
        let name = CString::new(database.as_os_str().as_bytes())
            .map_err(|_| "its path has a zero byte".to_string())?;
        let mut connection: *mut Connection = std::ptr::null_mut();
        // We are called inside xOpen. A shared cache is made and found under a mutex that SQLite
        // holds then.
        let flags = super::OPEN_READWRITE | super::OPEN_PRIVATECACHE;
        // SAFETY: both strings end with a zero; `connection` is written before it is read.
        let mut code =
            unsafe { (self.open_v2)(name.as_ptr(), &mut connection, flags, vfs.as_ptr()) };
        for sql in [
            c"PRAGMA busy_timeout=0",
            c"SELECT 1 FROM sqlite_master LIMIT 1",
            c"PRAGMA wal_checkpoint(TRUNCATE)",
        ] {
            if code != super::OK {
                break;
            }
            // SAFETY: the connection is open, the statement ends with a zero; no callback and no
            // place for a message are given.
            code = unsafe {
                (self.exec)(
                    connection,
                    sql.as_ptr(),
                    None,
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                )
            };
        }
        let said = if code == super::OK {
            Ok(())
        } else if connection.is_null() {
            Err("out of memory".to_string())
        } else {
            // SAFETY: the connection is there, and its message ends with a zero; it is copied
            // before anything else is done with it.
            Err(unsafe { CStr::from_ptr((self.errmsg)(connection)) }.to_string_lossy().into_owned())
        };
        // SAFETY: no statement is left; null is allowed.
        let closed = unsafe { (self.close)(connection) };
        if said.is_ok() && closed != super::OK {
            return Err(format!("closing it failed with result code {closed}"));
        }
        said
    }
}
