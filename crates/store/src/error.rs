//! The errors of the store: each says what was tried, on what, why it failed and what to do.

use std::io;
use std::path::PathBuf;

pub(crate) use tiersmith_pmem::Error as MediumError;

/// What can go wrong in the store. `Display` is a sentence with the remedy; sources are kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The home cannot be used as one.
    #[error("cannot use {} as a home: {reason}", path.display())]
    Home {
        /// The path given.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// The options contradict each other or a size is out of range.
    #[error("cannot attach with these options: {0}")]
    Options(String),
    /// A member of a tier could not be opened or mapped.
    #[error(transparent)]
    Medium(#[from] MediumError),
    /// A device that holds a tier, or its blocks, failed.
    #[error(transparent)]
    Device(#[from] tiersmith_block::Error),
    /// Another process owns the home or the tier.
    #[error(
        "{what} is in use by {owner}; stop the process that has it (`fuser -v` finds it), or \
         detach there first"
    )]
    Owned {
        /// The home or the tier member.
        what: String,
        /// The process, as it named itself when it attached.
        owner: String,
    },
    /// The tier holds another home, or a member is missing or foreign.
    #[error("the tier does not fit: {0}")]
    WrongTier(String),
    /// The tier holds something that is not Tiersmith's.
    #[error(
        "{} is not empty and not a Tiersmith tier ({reason}); give an empty file. If nobody needs \
         what is there, remove the file, or attach with overwrite (a device)",
        path.display()
    )]
    NotATier {
        /// The member.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// A block device holds something that is not Tiersmith's.
    #[error(
        "{path} is not empty: there is {what}. Nothing was changed. If nobody needs that, this \
         destroys all that is on the device, and uses it: --overwrite '{identity}'{why}",
        path = .path.display()
    )]
    NotEmpty {
        /// The member.
        path: PathBuf,
        /// What was found.
        what: String,
        /// Why it is called so, or nothing.
        why: String,
        /// What the device is called by who wants it overwritten.
        identity: String,
    },
    /// A block device is another one than the user wants overwritten.
    #[error(
        "{path} is '{identity}'{why}, and '{said}' is to be overwritten: it is another device. \
         Nothing was changed; look which one you mean (`lsblk -o NAME,SIZE,SERIAL,WWN,PARTUUID`)",
        path = .path.display()
    )]
    WrongDevice {
        /// The member.
        path: PathBuf,
        /// What the user called it.
        said: String,
        /// What it is called.
        identity: String,
        /// Why it is called so, or nothing.
        why: String,
    },
    /// A tier of a format that this program does not read.
    #[error("{} is a Tiersmith tier of another format: {reason}. Nothing was changed",
    path.display())]
    OtherFormat {
        /// The member.
        path: PathBuf,
        /// Which format, and which program can detach it.
        reason: String,
    },
    /// A structure on the tier is damaged.
    #[error(
        "damaged tier: {structure} at byte {offset} of {} (member {member}): {detail}. Nothing was \
         changed. Run the check \
         to see what it means for which file, and restore the medium",
        path.display()
    )]
    Damaged {
        /// Path of the member.
        path: PathBuf,
        /// Number of the member.
        member: usize,
        /// Byte offset of the structure.
        offset: u64,
        /// What it is.
        structure: String,
        /// Expected and found.
        detail: String,
    },
    /// A block that is to be destaged cannot be read.
    #[error(
        "cannot read block {block} of {} at byte {at} of {}: {source}. The medium lost it or the \
         file was \
         truncated; its newest version exists only there, so the block stays in the tier. Restore \
         the medium \
         from a copy, or detach with --skip-unreadable, which gives up such blocks, lists them, \
         and leaves the \
         home's older version of each",
        path.display(), member.display()
    )]
    Unreadable {
        /// The file, relative to home.
        path: PathBuf,
        /// Which block of it.
        block: u64,
        /// The member it is on.
        member: PathBuf,
        /// Where it is there, in bytes.
        at: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The home was changed while Tiersmith was not attached, and the tier has newer blocks for the
    /// same file.
    #[error(
        "{} changed while the tier held {dirty_blocks} newer blocks of it ({how}); attaching would \
         mix the two. Nothing \
         was changed. Put the same file back as it was, its modification time too ({}), and attach \
         again",
        path.display(), touch(*expected)
    )]
    HomeChanged {
        /// The file, relative to home.
        path: PathBuf,
        /// Dirty blocks the tier holds for it.
        dirty_blocks: u64,
        /// Size or time, expected and found.
        how: String,
        /// What the tier takes the home file to be; `None` when the file is gone.
        expected: Option<HomeStamp>,
    },
    /// A server ran on the files of the home while the tier was ahead of them.
    #[error(
        "{} changed ({how}) while the tier held newer blocks of {}: a server ran on the files \
         without Tiersmith. Attaching would mix \
         what it wrote with what only the tier has, and nothing was changed. If no server ran, put \
         the same file back as it was, its \
         modification time too ({}), and attach again. If one did, restore a backup; or give up \
         what only the tier has: move the \
         tier's file away and `detach --force-without-tier`",
        path.display(), ahead.display(), touch(*expected)
    )]
    RanWithout {
        /// The file by which it shows, relative to home.
        path: PathBuf,
        /// A file that the tier has newer blocks of.
        ahead: PathBuf,
        /// Size or time, expected and found.
        how: String,
        /// What the tier takes the file to be; `None` when it is gone.
        expected: Option<HomeStamp>,
    },
    /// The plain file of a lent file is not there as it should be.
    #[error(
        "{} is lent: its newest contents are in {}, which cannot be used: {reason}. Nothing was \
         changed. Put that file (or the tier, if it was \
         moved or copied without the directory beside it) back and attach again",
        path.display(), plain.display()
    )]
    Lent {
        /// The file, relative to home.
        path: PathBuf,
        /// Where its contents should be.
        plain: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The directory that was named for plain files of lent files cannot have them.
    #[error(
        "{} cannot have the redo files that the kernel writes itself: {reason}. Nothing was \
         changed",
        directory.display()
    )]
    LentIn {
        /// The directory.
        directory: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file was changed, or may have been, while a log that is to be played into it was not
    /// empty.
    #[error(
        "{} {how}, and {} holds {log_bytes} bytes that belong to it as it was; attaching would mix \
         the two. Nothing was changed. Put \
         the same file back as it was, its modification time too ({}), and attach again",
        path.display(), log.display(), touch(*expected)
    )]
    LogOfAnother {
        /// The file, relative to home.
        path: PathBuf,
        /// The log, likewise.
        log: PathBuf,
        /// Its length.
        log_bytes: u64,
        /// Size or time, expected and found; or why it is not known to be as it was.
        how: String,
        /// What the file was taken to be; `None` when it is gone, or another file has its name.
        expected: Option<HomeStamp>,
    },
    /// Every block of the tier is pinned or too few blocks are left to work with.
    #[error(
        "the fast tier `{tier}` is full: {free_bytes} bytes are free and nothing can be moved home \
         ({reason}); unpin files or make the tier larger"
    )]
    TierFull {
        /// Name of the tier.
        tier: String,
        /// Bytes free.
        free_bytes: u64,
        /// Why nothing can be moved.
        reason: String,
    },
    /// A file cannot have a slot of the file table, and its blocks are not written whole without
    /// one.
    #[error(
        "cannot open {}: the file table of tier `{tier}` has {slots} slots, {open} of them for \
         files \
         that are open, and none could be freed or added{why}; close files, make room at home, or \
         detach and attach with a larger --size",
        path.display()
    )]
    FileTableFull {
        /// The file, relative to home.
        path: PathBuf,
        /// Name of the tier.
        tier: String,
        /// Slots of its table.
        slots: u64,
        /// Files of the tier that are open.
        open: u64,
        /// What home said, in brackets, if it refused blocks.
        why: String,
    },
    /// A batch that can never fit.
    #[error(
        "a batch of {blocks} blocks does not fit the tier ({most} blocks); write it in parts, or \
         with a journal"
    )]
    BatchTooLarge {
        /// Blocks in the batch.
        blocks: usize,
        /// Blocks the tier could hold at most.
        most: u64,
    },
    /// A request that makes no sense for the file.
    #[error("cannot {what} {}: {reason}", path.display())]
    Invalid {
        /// The operation.
        what: &'static str,
        /// The file, relative to home.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The home was detached (or the store closed) while a handle was still held.
    #[error("the home is no longer attached; open it again")]
    Detached,
    /// A forked child uses what its parent attached.
    #[error(
        "{what} was opened by process {opener}, and this is process {process}, which was forked \
         later: a fork copies an open \
         database, and two copies would overwrite each other. Open it after the fork, in one \
         process: in the initializer of a \
         multiprocessing pool, in post_fork of gunicorn"
    )]
    Forked {
        /// The home, as it was given.
        what: String,
        /// The process that attached it.
        opener: u32,
        /// This one.
        process: u32,
    },
    /// Files are still open.
    #[error("cannot detach: {0} file handles are still open; close them first")]
    Busy(usize),
    /// The home's file system failed.
    #[error("{what} {}: {source}{}", path.display(), remedy(source))]
    Io {
        /// The operation.
        what: &'static str,
        /// The file, relative to home.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Size and modification time by which a changed home file is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeStamp {
    /// Length in bytes.
    pub size: u64,
    /// Modification time, as [`crate::home::HomeStat`] has it.
    pub mtime_ns: u64,
}

/// How to give a file its time back.
fn touch(expected: Option<HomeStamp>) -> String {
    match expected.map(|stamp| crate::home::FileTime::from_ns(stamp.mtime_ns)) {
        Some(time) if time.sec >= 0 => format!("touch -d @{}.{:09}", time.sec, time.nsec),
        _ => "touch -d".to_owned(),
    }
}

fn remedy(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::StorageFull => {
            " (the home's file system is full: free space there; nothing acknowledged is lost)"
        }
        io::ErrorKind::ReadOnlyFilesystem => " (mount the home's file system read-write)",
        _ => "",
    }
}

/// Result of the store.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether a tier that was to be on flash is on a file system in memory.
    #[must_use]
    pub fn is_of_memory(&self) -> bool {
        matches!(self, Error::Device(tiersmith_block::Error::InMemory { .. }))
    }

    /// Whether a tier that was to be on persistent memory is on another file system.
    #[must_use]
    pub fn is_not_dax(&self) -> bool {
        matches!(self, Error::Medium(MediumError::NotDax { .. }))
    }

    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io { what, path, source }
    }

    /// The operating system's number a door answers with (`ENOSPC`, `EIO`, ...).
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        let errno = match self {
            Error::Io { source, .. } => {
                return source.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            }
            Error::TierFull { .. } | Error::BatchTooLarge { .. } => Errno::NOSPC,
            Error::Options(_) | Error::Invalid { .. } => Errno::INVAL,
            Error::FileTableFull { .. } => Errno::NFILE,
            Error::Owned { .. } | Error::Busy(_) => Errno::BUSY,
            Error::Detached | Error::Forked { .. } => Errno::BADF,
            _ => Errno::IO,
        };
        errno.raw_os_error()
    }
}
