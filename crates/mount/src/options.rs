//! What a mount is asked for, and what it turned out to be.
//!
//! Not here: where the tier is, and which file belongs to which class. Those are the attached
//! home's.

use std::num::NonZeroUsize;
use std::path::PathBuf;

/// How requests travel between the kernel and this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// The fastest that the kernel offers.
    #[default]
    Auto,
    /// `/dev/fuse`, read and written: every kernel has it.
    Classic,
    /// FUSE over io_uring, with a queue per processor. Refused when the kernel does not offer it.
    Uring,
}

impl std::fmt::Display for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Transport::Auto => "auto",
            Transport::Classic => "classic",
            Transport::Uring => "io_uring",
        })
    }
}

/// How to mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Threads that serve requests; a writer that waits for room in the tier holds one of them.
    pub threads: usize,
    /// How requests travel.
    pub transport: Transport,
    /// Let the kernel read and write files of class pass itself, where it can (Linux 6.9, root).
    pub passthrough: bool,
    /// Let the kernel write redo files of fixed size itself, where it can: the store lends them
    /// ([`tiersmith_store::File::lend`]).
    pub lend: bool,
    /// Every change of a file is durable when its call returns, and so is the name of one that is
    /// made, renamed or linked; `fsync` of a file then never leaves the kernel. That a name is gone
    /// is durable after the sync of its directory.
    pub sync_on_write: bool,
    /// [`Options::sync_on_write`] holds for the directory of the redo that is lent and for nothing
    /// else, where there can be a connection for it: commits send no `fsync`, and all other names
    /// wait for theirs. Where that directory is missing, a server has yet to be set up there, and
    /// until the next mount it holds for nothing.
    pub sync_in_redo_only: bool,
    /// Each block of a data file is one whole version, whatever happens. Without it, data files are
    /// in the kernel's page cache until they are synced, as on any file system: faster, and for
    /// databases that find and mend a torn page themselves. Then [`Options::sync_on_write`] and
    /// [`Options::passthrough`] hold for the directory of the redo that is lent, which gets a
    /// connection of its own.
    pub atomic_pages: bool,
    /// Have extended attributes and ACLs only if something in the home has one when it is mounted.
    /// Else the kernel need not ask for them before writes and changes of names, and setting one is
    /// refused, as on a file system that has none.
    pub xattrs_if_any: bool,
    /// Let other users in, with the rights that their user and group have in the home. Only root
    /// may ask for it.
    pub allow_other: bool,
    /// The name of the device in the table of mounts.
    pub fsname: String,
    /// Answer every write at once WITHOUT DOING IT: what then is left is the cost of kernel and
    /// transport.
    #[cfg(feature = "testing")]
    pub discard_writes: bool,
}

/// Whether a mount for this profile should have [`Options::sync_on_write`], and why: where syncing
/// each write of the files that pass costs little, because the database writes little to them.
#[must_use]
pub fn sync_on_write_for(profile: &str) -> (bool, &'static str) {
    match profile {
        "postgres" => (true, "what passes is small, or temporary and not synced"),
        _ => (false, "files that pass may be large, and are synced when the database asks for it"),
    }
}

/// Whether a mount for this profile should have [`Options::xattrs_if_any`]: where the database and
/// its tools set no extended attributes.
#[must_use]
pub fn xattrs_if_any_for(profile: &str) -> bool {
    matches!(profile, "postgres" | "mariadb" | "redis")
}

impl Default for Options {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(2, NonZeroUsize::get);
        Self {
            threads: (2 * processors).clamp(4, 32),
            transport: Transport::Auto,
            passthrough: true,
            lend: true,
            sync_on_write: false,
            sync_in_redo_only: false,
            atomic_pages: true,
            xattrs_if_any: false,
            allow_other: rustix::process::geteuid().is_root(),
            fsname: "tiersmith".into(),
            #[cfg(feature = "testing")]
            discard_writes: false,
        }
    }
}

/// What a mount turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The transport in use: never [`Transport::Auto`].
    pub transport: Transport,
    /// Why a better transport is not in use.
    pub transport_because: Option<String>,
    /// Whether the kernel reads and writes files of class pass itself.
    pub passthrough: bool,
    /// Why it does not.
    pub passthrough_because: Option<String>,
    /// Whether the kernel writes redo files of fixed size itself. A single file may still not be
    /// lent: the store says why.
    pub lends: bool,
    /// Why it does not.
    pub lends_because: Option<String>,
    /// Threads that serve requests.
    pub threads: usize,
    /// Whether `fsync` reaches this process. When it does not, every change of a file is durable as
    /// its call returns.
    pub fsync_reaches_server: bool,
    /// Whether each block of a data file is one whole version: [`Options::atomic_pages`].
    pub atomic_pages: bool,
    /// The directory of lent redo, if it has a connection of its own.
    pub redo_at: Option<PathBuf>,
    /// Somebody has unmounted that directory alone.
    pub redo_gone: bool,
    /// Why the kernel holds the pages of this mount within narrow limits still, where it keeps any.
    pub limits_because: Option<String>,
    /// Whether there are extended attributes and ACLs.
    pub xattrs: bool,
    /// Whether other users may use the mount.
    pub allow_other: bool,
    /// Requests of the kernel since the mount began, by kind; kinds that there were.
    pub requests: Vec<(String, u64)>,
}
