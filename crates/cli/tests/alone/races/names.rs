//! The names that root's commands look at in the attacker's directories, and what is put there.
//!
//! The list was read from `strace -f -e trace=file,bind,connect` of each command of `commands.rs`.

use std::path::{Path, PathBuf};

/// Relative to the attacker's directory.
pub(crate) const NAMES: [&str; 56] = [
    "fast",
    "fast/app.tier",
    "fast/app.tier.lent",
    "fast/db.tier",
    "fast/db.tier.lent",
    "work",
    "work/app.db",
    "work/app.db-changed",
    "work/app.db-changed-journal",
    "work/app.db-changed-wal",
    "work/app.db-changed.new",
    "work/app.db-journal",
    "work/app.db-shm",
    "work/app.db-tiersmith",
    "work/app.db-tiersmith/.tiersmith",
    "work/app.db-tiersmith/.tiersmith.new",
    "work/app.db-tiersmith/.tiersmith.probe",
    "work/app.db-tiersmith/attachment",
    "work/app.db-tiersmith/attachment.new",
    "work/app.db-tiersmith/db",
    "work/app.db-tiersmith/db-journal",
    "work/app.db-tiersmith/db-shm",
    "work/app.db-tiersmith/db-wal",
    "work/app.db-tiersmith/journal",
    "work/app.db-tiersmith/keep-both",
    "work/app.db-tiersmith/keep-both.new",
    "work/app.db-tiersmith/stamp",
    "work/app.db-tiersmith/statistics",
    "work/app.db-tiersmith/statistics.new",
    "work/app.db-tiersmith/stub.new",
    "work/app.db-tiersmith/wal",
    "work/app.db-wal",
    "work/app.db.tiersmith-home",
    "work/app.db.tiersmith-home/home",
    "work/db",
    "work/db.tiersmith-control",
    "work/db.tiersmith-detach",
    "work/db.tiersmith-home",
    "work/db.tiersmith-home/home",
    "work/db.tiersmith-log",
    "work/db.tiersmith-log.old",
    "work/db/.tiersmith",
    "work/db/.tiersmith.new",
    "work/db/.tiersmith.probe",
    "work/db/PG_VERSION",
    "work/db/README-TIERSMITH.txt",
    "work/db/base",
    "work/db/base/1",
    "work/db/base/1/1259",
    "work/db/global",
    "work/db/global/pg_control",
    "work/db/pg_wal",
    "work/db/postgresql.auto.conf",
    "work/db/postgresql.conf",
    "work/db/postmaster.pid",
    "work/db/postmaster.opts",
];

/// Those of them that are directories where somebody else has the same tree.
pub(crate) const DIRECTORIES: [&str; 13] = [
    "fast",
    "fast/app.tier.lent",
    "fast/db.tier.lent",
    "work",
    "work/app.db-tiersmith",
    "work/app.db.tiersmith-home",
    "work/app.db.tiersmith-home/home",
    "work/db",
    "work/db.tiersmith-home",
    "work/db.tiersmith-home/home",
    "work/db/base",
    "work/db/base/1",
    "work/db/global",
];

/// The names that commands on the database file look at, or those that commands on the directory
/// do.
pub(crate) fn of(subject: &str) -> Vec<&'static str> {
    let is_app = |name: &str| name.contains("/app.");
    let both = |name: &str| name == "work" || name == "fast";
    let wanted = |name: &&str| both(name) || is_app(name) == (subject == "app.db");
    NAMES.into_iter().filter(wanted).collect()
}

/// What is put at a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A link to root's file or directory of the same name.
    RootsTwin,
    /// A link to a file that only root may read.
    RootsSecret,
    /// A link to a name in root's directory that is free.
    RootsNew,
    /// A link to a directory of root.
    RootsDirectory,
    /// A second name of root's file, where the kernel lets the attacker make one.
    RootsSecondName,
    /// A file of root that lies in the attacker's directory, and can be renamed there.
    RootsHere,
    /// What was taken away while an earlier command ran.
    Loot,
    /// A link to the file or directory of the same name of another unprivileged account.
    StrangersTwin,
    /// A link to a device without an end.
    Endless,
    Pipe,
    Socket,
    Directory,
    /// A file of the attacker with nothing sensible in it.
    Junk,
    /// A link to itself.
    Loop,
    /// Nothing.
    Absent,
    /// What is at another name of the list.
    Other(&'static str),
}

/// One of them for `name`; those that lead to something worth having are drawn more often.
pub(crate) fn draw(random: &mut fastrand::Rng, names: &[&'static str], second_names: bool) -> Kind {
    match random.u8(0..24) {
        0..=4 => Kind::RootsTwin,
        5..=6 => Kind::RootsSecret,
        7..=8 => Kind::RootsNew,
        9 => Kind::RootsDirectory,
        10 if second_names => Kind::RootsSecondName,
        10..=11 => Kind::RootsHere,
        12..=13 => Kind::StrangersTwin,
        14 => Kind::Endless,
        15..=16 => Kind::Pipe,
        17 => Kind::Socket,
        18 => Kind::Directory,
        19 => Kind::Junk,
        20 => Kind::Loop,
        21..=22 => Kind::Absent,
        _ => Kind::Other(names[random.usize(..names.len())]),
    }
}

/// Where a link of this kind at `name` leads.
pub(crate) fn target(kind: Kind, name: &str, stage: &Path) -> Option<PathBuf> {
    Some(match kind {
        Kind::RootsTwin => stage.join("roots").join(name),
        Kind::RootsSecret => stage.join("roots/secret"),
        Kind::RootsNew => stage.join("roots/new"),
        Kind::RootsDirectory => stage.join("roots/directory"),
        Kind::StrangersTwin => stage.join("stranger").join(name),
        Kind::Endless => PathBuf::from("/dev/zero"),
        Kind::Loop => stage.join("user").join(name),
        _ => return None,
    })
}
