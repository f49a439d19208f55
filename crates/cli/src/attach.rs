//! What `tiersmith attach` can be asked for: read by the command, and by the daemon that it starts.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use tiersmith_lab::ByteSize;

use crate::write_budget::Wished;

/// Accelerate a database directory in place: no copy, no setting changed
///
/// Stop the database first. Its directory is moved aside into the locked directory
/// HOME.tiersmith-home, where no server can start on it by mistake, and a daemon mounts it at its
/// own path: redo and data go to the fast storage and from there home in the background, everything
/// else straight home. Start the database as before. After a reboot, a crash or a killed daemon,
/// `tiersmith attach HOME` alone goes on where it was: nothing that was acknowledged is lost.
///
/// An SQLite database that one program uses needs no mount: give its file. It is attached in place,
/// and the program opens it through the SQLite VFS (docs/guide/sqlite.md). Several processes that
/// share one need a mount of its directory.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith attach /var/lib/postgresql/15/main --fast /mnt/pmem0 --size 4G
  tiersmith attach /var/lib/mysql --fast /dev/dax0.0 --profile mariadb
  tiersmith attach /srv/pg --fast /dev/nvme1n1                          a whole disk, without a \
  file system
  tiersmith attach /srv/pg --fast /dev/nvme1n1p2 --passthrough-dir /mnt/nvme1n1p1    the kernel \
  writes PostgreSQL's WAL itself
  tiersmith attach /srv/pg --fast /mnt/pmem0 --cache 'keep=base/16384/*' --cache 'none=base/16385/*'
  tiersmith attach /srv/redis --fast /dev/shm --size 64M --emulate      to try it out: the tier \
  does not survive a power cut
  tiersmith attach /srv/redis                                           again, after a reboot or a \
  crash
  tiersmith attach app.db --fast /mnt/pmem0 --size 256M                 one SQLite file, without a \
  mount

Exit codes: 0 it is attached, and mounted if it is a directory; 2 error: the sentence says why, \
and what was changed if anything.")]
pub(crate) struct Attach {
    /// The database's directory, or an SQLite database file
    #[arg(value_name = "HOME")]
    pub(crate) home: PathBuf,
    /// The fast storage: a directory (of a DAX file system), a file in one, a DAX device, or a
    /// block device that nobody uses (a disk, a partition, a volume). Needed the first time only.
    /// An empty file there counts as made by this command, and goes with `detach` (that of a
    /// database file stays)
    #[arg(long, value_name = "PATH")]
    pub(crate) fast: Option<PathBuf>,
    /// Bytes of the tier's file, when it is made (K, M, G, T, powers of 1024); a device or a file
    /// that has bytes is used whole. Redo that the kernel writes itself comes on top: see
    /// --passthrough-max
    #[arg(long, value_name = "BYTES", default_value = "1G")]
    pub(crate) size: ByteSize,
    /// Use the block device of --fast although something is on it, all of which is lost. ID is what
    /// the refusal names: the device's serial number, WWN or uuid, or NAME:BYTES where it has none.
    /// A device that is mounted or held, or has a tier in use, is refused all the same
    #[arg(long, value_name = "ID", requires = "fast")]
    pub(crate) overwrite: Option<String>,
    /// What the files are: postgres, mariadb, redis, sqlite, generic, another profile (a wrong name
    /// lists them all), or the path of a profile file [default: by looking into the directory]
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) profile: Option<String>,
    /// Mount at DIR, an empty directory, and not at the home's own path (where only a note is then)
    #[arg(long, value_name = "DIR")]
    pub(crate) at: Option<PathBuf>,
    /// Let any file stand for persistent memory: a power cut may then lose what was acknowledged.
    /// To try things out; every report says so
    #[arg(long, conflicts_with_all = ["volatile", "ephemeral"])]
    pub(crate) emulate: bool,
    /// The fast storage does not survive a power cut: keep clean copies there only, and begin with
    /// none after each attach. Speeds up reading, not commits
    #[arg(long, conflicts_with = "ephemeral")]
    pub(crate) volatile: bool,
    /// The fast storage is a disk that is emptied when the machine is stopped, as the local disks
    /// of clouds are: keep clean copies there only. They are there after a crash or a reboot, and a
    /// disk that is empty or fails costs nothing but them. Speeds up reading, not commits. Local
    /// NVMe disks of Amazon, Google and Microsoft are recognized; `--ephemeral=no` takes one as a
    /// disk that keeps its contents
    #[arg(
        long,
        value_enum,
        value_name = "YES|NO",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "yes"
    )]
    pub(crate) ephemeral: Option<Ephemeral>,
    /// Which data files the tier keeps: keep=PATTERN (taken when first read, and the last to
    /// leave), none=PATTERN (what is read of them is not taken; what is written goes home first) or
    /// default=PATTERN. The first rule that matches a file decides. Repeat for more; new rules
    /// replace those of before
    #[arg(long, value_name = "RULE")]
    pub(crate) cache: Vec<String>,
    /// Bytes a day that may be written to the tier (500G), or drive writes a day of its size
    /// (0.3dwpd), so that a disk lasts. Fewer of the blocks that are read are copied then, those
    /// that come again soonest; what programs write is never held back, and copies get what it
    /// leaves. The day is one of UTC. none: no budget, as without this option; kept until another
    /// one is given
    #[arg(long, value_name = "BYTES|DWPD")]
    pub(crate) write_budget: Option<Wished>,
    /// For studies: delay home as slower storage would (15k-disk-array, all-flash-array,
    /// cloud-network-volume); every report says so
    #[arg(long, value_name = "NAME")]
    pub(crate) home_model: Option<String>,
    /// Threads that answer requests [default: by the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: Option<u16>,
    /// How requests reach the daemon
    #[arg(long, value_enum)]
    pub(crate) transport: Option<Transport>,
    /// Whether every change of every file is durable when it returns, so that fsync need not be
    /// asked for: faster commits, but files that pass are synced at each write (temporary ones
    /// excepted). auto: only where the profile's files allow it
    #[arg(long, value_enum)]
    pub(crate) sync_on_write: Option<SyncOnWrite>,
    /// Whether each page of a data file is one whole version after a crash. on: yes, so that the
    /// database's own protection may be off (full_page_writes, innodb_doublewrite). off: data files
    /// are in the page cache and durable at fsync, which is faster; only for a database that mends
    /// torn pages itself. auto: on, unless that protection is proved to be on (PostgreSQL)
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) atomic_pages: Option<AtomicPages>,
    /// Whether there are extended attributes and ACLs on the mount. auto: for databases that use
    /// none (postgres, mariadb, redis) only if something in the home has one; else the kernel need
    /// not ask for them before each write, and setting one is refused until the next `attach`
    #[arg(long, value_enum)]
    pub(crate) xattrs: Option<Xattrs>,
    /// Whether the kernel writes the redo files of fixed size itself (segments of PostgreSQL's
    /// WAL), in plain files beside the tier: a commit then does not go through the daemon. auto:
    /// where kernel, medium and room allow it, and `status` says if not. no: every redo write goes
    /// through the daemon, whose wait events then have each of them; those of the kernel are in the
    /// database's own wait events only
    #[arg(long, value_enum)]
    pub(crate) lend: Option<Lend>,
    /// Where the kernel writes redo files itself (see --lend) if the tier is on flash, a whole
    /// block device above all: a directory on a file system that survives a power cut, as fast as
    /// the tier. Tiersmith keeps one of its own in it until `detach`, and the note of the home
    /// names it. Without this option such redo goes through the daemon
    #[arg(long, value_name = "DIR")]
    pub(crate) passthrough_dir: Option<PathBuf>,
    /// Bytes the redo files that the kernel writes itself may take beside the tier, in TIER.lent,
    /// or in --passthrough-dir: on the fast storage, besides --size [default: 1G; only where
    /// --lend is in effect]
    #[arg(long, value_name = "BYTES")]
    pub(crate) passthrough_max: Option<ByteSize>,
    /// Stay in the foreground, messages on standard error: for a service manager. SIGTERM unmounts;
    /// the home stays attached
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The daemon that `attach` starts: reports on standard output as JSON
    #[arg(long, hide = true)]
    pub(crate) as_daemon: bool,
}

/// How requests reach the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Transport {
    /// The best that works here.
    Auto,
    /// Read and write of /dev/fuse.
    Classic,
    /// io_uring (Linux 6.14, with fuse.enable_uring).
    Uring,
}

/// Whether redo files are lent to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lend {
    /// Where it works.
    Auto,
    /// Never.
    No,
}

/// Whether the tier's disk is emptied when the machine is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ephemeral {
    /// It is.
    Yes,
    /// It keeps its contents.
    No,
}

/// Whether pages are whole whatever happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AtomicPages {
    /// By what the database is proved to do itself.
    Auto,
    /// Yes.
    On,
    /// No.
    Off,
}

/// Whether there are extended attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Xattrs {
    /// By the profile, and by what the home has.
    Auto,
    /// Yes.
    Always,
}

/// Whether every change is durable on return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SyncOnWrite {
    /// By the profile.
    Auto,
    /// Yes.
    Always,
    /// No.
    Never,
}

impl Attach {
    /// Whether this process stays as the daemon, and so has signals of its own.
    pub(crate) fn stays(&self) -> bool {
        self.foreground || self.as_daemon
    }

    /// The first option given that only a mount has.
    pub(crate) fn of_a_mount(&self) -> Option<&'static str> {
        [
            ("--overwrite", self.overwrite.is_some()),
            ("--profile", self.profile.is_some()),
            ("--at", self.at.is_some()),
            ("--volatile", self.volatile),
            ("--ephemeral", self.ephemeral == Some(Ephemeral::Yes)),
            ("--cache", !self.cache.is_empty()),
            ("--write-budget", self.write_budget.is_some()),
            ("--home-model", self.home_model.is_some()),
            ("--threads", self.threads.is_some()),
            ("--transport", self.transport.is_some()),
            ("--sync-on-write", self.sync_on_write.is_some()),
            ("--atomic-pages", self.atomic_pages.is_some()),
            ("--xattrs", self.xattrs.is_some()),
            ("--lend", self.lend.is_some()),
            ("--passthrough-dir", self.passthrough_dir.is_some()),
            ("--passthrough-max", self.passthrough_max.is_some()),
            ("--foreground", self.foreground),
        ]
        .into_iter()
        .find_map(|(option, given)| given.then_some(option))
    }
}
