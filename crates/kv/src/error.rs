//! What can go wrong, in sentences.

use std::path::PathBuf;

/// Why a server does not start, or a tier cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The medium cannot be mapped.
    #[error(transparent)]
    Medium(#[from] tiersmith_pmem::Error),
    /// No room for anything.
    #[error(
        "{} has {len} bytes, which is too little for a key-value tier; give --size 16M or more",
        path.display()
    )]
    TooSmall {
        /// Which.
        path: PathBuf,
        /// Its length.
        len: u64,
    },
    /// Something else's.
    #[error(
        "{} holds something that is not a key-value tier, which is left alone; name another file, \
         or remove this one if nobody needs it",
        path.display()
    )]
    Foreign {
        /// Which.
        path: PathBuf,
    },
    /// Of another version.
    #[error(
        "{} is a key-value tier of format version {found}; this program reads version {}: use the \
         program that wrote it",
        path.display(),
        crate::format::VERSION
    )]
    Version {
        /// Which.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// Cut off.
    #[error("{} has {len} bytes, and its superblock says {wanted}; restore the whole file",
    path.display())]
    Shorter {
        /// Which.
        path: PathBuf,
        /// Its length.
        len: u64,
        /// What it had.
        wanted: u64,
    },
    /// What is there contradicts itself.
    #[error(
        "{} is damaged: {what}; `tiersmith kv check` lists what else is wrong, and nothing was \
         changed",
        path.display()
    )]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// There are keys already.
    #[error(
        "{} has {keys} keys, and an import would mix with them; name another tier, or say FLUSHALL \
         to its server first",
        path.display()
    )]
    NotEmpty {
        /// Which.
        path: PathBuf,
        /// How many.
        keys: u64,
    },
    /// Not all data are there.
    #[error(
        "{} holds a copy of which a part is missing: let a server follow the primary again, or \
         import the dump \
         again, before this",
        path.display()
    )]
    Incomplete {
        /// Which.
        path: PathBuf,
    },
    /// A dump cannot be read.
    #[error(transparent)]
    Dump(#[from] crate::rdb::Error),
    /// An append-only file cannot be replayed.
    #[error(
        "cannot replay the append-only file at byte {at}: {why}; nothing of it is left out \
         silently, and the tier \
         is empty"
    )]
    AppendOnly {
        /// Where.
        at: u64,
        /// Why not.
        why: String,
    },
    /// A listener cannot be made.
    #[error("cannot listen on {address}: {source}; {remedy}")]
    Listen {
        /// Where.
        address: String,
        /// Why not.
        source: std::io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// A configuration that means nothing.
    #[error("{0}")]
    Configuration(String),
    /// The system refused something else.
    #[error("cannot {what}: {source}")]
    System {
        /// What.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
}
