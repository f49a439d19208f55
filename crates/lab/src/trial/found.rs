//! What a trial looks at before anything is touched: where the database is, whose it is, how it is
//! stopped, and what could go wrong.
//!
//! What the database says is not believed where root would act on it. Its directory must belong to
//! the account that a server with that working directory runs as, so that the worst a lying server
//! can have attached is a directory of its own.
//!
//! Deliberately absent: changing anything.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use tiersmith_awr::figure;
use tiersmith_awr::sources::Address;

use super::plan::{Database, Found, Plan, Service, Wishes, ask};
use super::service::Running;
use super::which::Which;
use super::{answering, copy, redis, service, sqlite};
use crate::ByteSize;
use crate::error::{Error, Result};

/// `statfs(2)`: file systems in memory.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6u32 as i64];
/// What `tiersmith attach` makes without a size.
pub(super) const SIZE_DEFAULT: ByteSize = ByteSize(1 << 30);
/// Programs that copy a database, cut as the kernel cuts names.
const BACKUPS: [&str; 9] = [
    "pg_basebackup",
    "pgbackrest",
    "barman",
    "wal-g",
    "pg_dump",
    "pg_dumpall",
    "mariabackup",
    "mariadb-backup",
    "xtrabackup",
];
/// Tablespaces of PostgreSQL that are counted.
const TABLESPACES_MAX: usize = 10_000;

/// Looks, and changes nothing.
///
/// # Errors
/// The database cannot be asked, is not on this machine, or is not the caller's to stop.
pub fn look(wishes: &Wishes) -> Result<Found> {
    if let Some(dir) = &wishes.on_copy {
        return copy::look(wishes, dir);
    }
    if let Some(loses) = wishes.loses {
        return Err(Error::Setting {
            setting: "the tier",
            value: loses.option().into(),
            reason:
                "a trial of the database itself takes persistent storage only, such as PMEM or \
                     a disk, so that a power cut costs nothing; add --on-copy DIR to try this on a \
                     copy, or leave it out"
                    .into(),
        });
    }
    if sqlite::is_path(&wishes.url) {
        let mut found = sqlite::plan(wishes)?;
        found.look_at_home();
        found.look_at_fast(wishes.size.unwrap_or(SIZE_DEFAULT));
        found.tell();
        return Ok(found);
    }
    let address = Address::parse(&wishes.url)?;
    let database = Database::of(&address).ok_or_else(|| Error::Setting {
        setting: "URL",
        value: address.shown(),
        reason: "a trial is of PostgreSQL, MariaDB, MySQL, Redis or Valkey".into(),
    })?;
    let home = directory_of(&address, database)?;
    let refused = |reason: String| Error::Place { what: "trial", path: home.clone(), reason };
    let mut all = service::all_running_in(&home);
    if let [_, other, ..] = all.as_slice() {
        return Err(refused(format!(
            "several servers work in it, process {} among them; give each a directory of its own",
            other.process.pid
        )));
    }
    let running = all.pop().ok_or_else(|| {
        refused(
            "the database says that this is its directory, but no server on this machine works in \
             it; run \
             the trial where the server runs, outside of containers, as root or as the server's \
             account"
                .into(),
        )
    })?;
    let which = Which::at(&home)?;
    judge_owner(&home, which.user, &running)?;
    let service = match &wishes.commands {
        Some((stop, start)) => Service::Commands { stop: stop.clone(), start: start.clone() },
        None => service::found(&running, database, &home)?,
    };
    let mut found = Found::new(Plan::of(wishes, wishes.url.clone(), home, service));
    found.plan.home_is = Some(which);
    found.look_at_home();
    found.look_at_fast(wishes.size.unwrap_or(SIZE_DEFAULT));
    found.look_at_use(&address, database)?;
    found.tell();
    Ok(found)
}

/// The directory is its server's, and the caller's to take away from it.
fn judge_owner(home: &Path, owner: u32, running: &Running) -> Result<()> {
    let refused = |reason: String| Error::Place { what: "trial", path: home.to_path_buf(), reason };
    let caller = rustix::process::geteuid();
    if owner != running.uid || (owner == 0 && !caller.is_root()) {
        return Err(refused(format!(
            "it belongs to user {owner}, and the server there runs as user {}; give it to the \
             server's account",
            running.uid
        )));
    }
    if !caller.is_root() && caller.as_raw() != owner {
        return Err(refused(format!(
            "it belongs to user {owner}; run the trial as that user, or as root"
        )));
    }
    Ok(())
}

fn directory_of(address: &Address, database: Database) -> Result<PathBuf> {
    let answers = ask(address, &[database.directory()]).map_err(|e| match database {
        Database::Redis => redis::untold(address, &e),
        Database::Postgres | Database::Mysql => e,
    })?;
    let given = database.directory_of(&answers);
    let cannot =
        |reason: String| Error::Place { what: "trial", path: given.clone().into(), reason };
    if !given.starts_with('/') {
        return Err(cannot("the database does not tell its directory".into()));
    }
    Path::new(&given).canonicalize().map_err(|e| {
        cannot(format!(
            "the database says that this is its directory, and it cannot be reached here: {e}; run \
             the trial \
             on the machine where the server runs, as root or as the server's account"
        ))
    })
}

impl Found {
    fn look_at_home(&mut self) {
        let home = self.plan.home.0.clone();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let at = |line: &str| line.split(' ').nth(4).map(str::to_owned);
        let within: Vec<String> =
            mounts.lines().filter_map(at).filter(|at| Path::new(at).starts_with(&home)).collect();
        // The nearest mount that the directory is on.
        let on = mounts.lines().filter(|line| at(line).is_some_and(|at| home.starts_with(at)));
        let on = on.max_by_key(|line| at(line).map_or(0, |at| at.len()));
        let attached = on.filter(|line| {
            let behind = line.split_once(" - ").map_or("", |(_, behind)| behind);
            let mut words = behind.split(' ');
            let (kind, source) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
            kind == "fuse.tiersmith" || (kind.starts_with("fuse") && source == "tiersmith")
        });
        match within.first() {
            _ if attached.is_some() => {
                let at = attached.and_then(at).unwrap_or_default();
                self.refusals.push(attached_already(&self.plan, &at));
            }
            Some(at) if Path::new(at) == home => self.refusals.push(format!(
                "{} is a mount point, which a trial does not move aside; put the database into a \
                 directory inside it",
                home.display()
            )),
            Some(at) => self.refusals.push(format!(
                "another file system is mounted inside {}, at {at}; a home is attached as a whole",
                home.display()
            )),
            None => {}
        }
        self.look_for_fuse();
        let links = |of: &Path| {
            let entries = fs::read_dir(of).into_iter().flatten().take(TABLESPACES_MAX);
            entries
                .flatten()
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()))
                .count()
        };
        let spaces = links(&home.join("pg_tblspc"));
        if spaces > 0 {
            self.warnings.push(format!(
                "{spaces} tablespaces lie outside of {}; they stay where they are, and get no \
                 faster",
                home.display()
            ));
        }
        if fs::symlink_metadata(home.join("pg_wal")).is_ok_and(|about| about.is_symlink()) {
            self.warnings.push(
                "pg_wal is a link to another place; it stays there, so that commits get no faster"
                    .into(),
            );
        }
    }

    pub(super) fn look_for_fuse(&mut self) {
        let device = Path::new("/dev/fuse");
        let both = Access::READ_OK | Access::WRITE_OK;
        if !device.exists() {
            self.refusals.push(
                "there is no /dev/fuse, and a database is attached by a FUSE mount; load the \
                 module fuse"
                    .into(),
            );
        } else if rustix::fs::access(device, both).is_err() {
            self.refusals.push(
                "/dev/fuse is closed to this user, and a database is attached by a FUSE mount; \
                 allow everybody (chmod 666 /dev/fuse, as most systems have it), or run this as \
                 root"
                    .into(),
            );
        }
    }

    pub(super) fn look_at_fast(&mut self, size: ByteSize) {
        let fast = self.plan.fast.0.clone();
        let shown = fast.display();
        if fast.starts_with(&self.plan.home.0) {
            self.refusals.push(format!(
                "{shown} is inside the database's directory, which is moved aside; give another \
                 place"
            ));
        }
        let about = match fs::metadata(&fast) {
            Ok(about) => about,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return self.refusals.push(format!(
                    "there is no {shown}; give a directory on the fast storage, or a DAX device"
                ));
            }
            Err(e) => return self.refusals.push(format!("cannot look at {shown}: {e}")),
        };
        if !about.is_dir() && !about.is_file() {
            return;
        }
        if is_in_memory(&fast) && self.plan.loses.is_none() {
            let or = match self.plan.copy {
                Some(_) => ", or say --emulate (it stands for persistent memory) or --volatile",
                None => "",
            };
            self.refusals.push(format!(
                "{shown} is in memory, and a power cut would lose what was acknowledged; give \
                 storage that is persistent, such as PMEM or a directory on a disk{or}"
            ));
        }
        if let Ok(room) = rustix::fs::statvfs(&fast) {
            let free = room.f_bavail.saturating_mul(room.f_frsize);
            if about.is_dir() && free < size.bytes() {
                self.refusals.push(format!(
                    "{shown} has {} free, and the tier takes {size}; make room, or give a smaller \
                     --size",
                    figure::bytes(free as f64)
                ));
            }
        }
        // A home that is not there yet will be of the file system that it is made on.
        let there = self.plan.home.0.ancestors().find_map(|above| fs::metadata(above).ok());
        if there.is_some_and(|home| home.dev() == about.dev()) {
            self.warnings.push(format!(
                "{shown} is on the database's own file system: the trial shows how it works, not \
                 what faster \
                 storage gives"
            ));
        }
    }

    fn look_at_use(&mut self, address: &Address, database: Database) -> Result<()> {
        let questions = match database {
            Database::Redis => return redis::look_at_use(self, address),
            Database::Postgres => [
                "SELECT count(*)::text FROM pg_stat_activity \
                 WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
                "SELECT count(*)::text FROM pg_stat_progress_basebackup",
                "SELECT count(*)::text FROM pg_stat_replication",
            ],
            Database::Mysql => [
                "SELECT COUNT(*) - 1 AS n FROM information_schema.processlist WHERE user <> \
                 'system user'",
                "SELECT 0 AS n",
                "SELECT COUNT(*) AS n FROM information_schema.processlist WHERE command LIKE \
                 'Binlog Dump%'",
            ],
        };
        if let Err(why) = answering::is_here(address, database, &self.plan.home.0) {
            self.refusals.push(why);
        }
        let answers = ask(address, &questions[..1])?;
        let count = |rows: Option<&Vec<String>>| {
            rows.and_then(|rows| rows.first()?.parse::<u64>().ok()).unwrap_or(0)
        };
        let sessions = count(answers.first());
        // PostgreSQL 13 and what a user may not see: then it is not known, and the processes tell.
        let more =
            |at: usize| ask(address, &questions[at..=at]).map_or(0, |rows| count(rows.first()));
        let (backups, replicas) = (more(1), more(2));
        let copying: Vec<String> =
            names_of_processes().filter(|n| BACKUPS.contains(&n.as_str())).collect();
        if backups > 0 || !copying.is_empty() {
            let by = if copying.is_empty() {
                "the server says so".to_owned()
            } else {
                copying.join(", ")
            };
            self.refusals.push(format!(
                "a backup is running ({by}), and a trial would break it off; wait until it has \
                 ended"
            ));
        }
        if sessions > 0 {
            self.warnings.push(format!("{sessions} sessions will be disconnected at each stop"));
        }
        if replicas > 0 {
            self.warnings.push(format!(
                "{replicas} replicas follow this server, and wait while it is stopped"
            ));
        }
        Ok(())
    }

    fn tell(&mut self) {
        let plan = &self.plan;
        let length = match (plan.length_ms, plan.load.is_empty()) {
            (Some(ms), _) => format!("two periods of {}", figure::nanoseconds(ms as f64 * 1e6)),
            (None, _) => "two runs of the load".to_owned(),
        };
        let stops = match plan.keep {
            _ if !plan.has_server() => {
                self.notes = vec![
                    "No server is stopped: the load runs on the plain file, then with its \
                     directory attached by a mount, where it finds the file at the same path."
                        .to_owned(),
                    "Expected: two runs of the load, and some seconds to attach and to detach."
                        .to_owned(),
                    "A power cut meanwhile costs nothing that SQLite has committed: the tier is \
                     persistent. The directory may stay empty until `tiersmith trial --resume` or \
                     `tiersmith trial --undo`."
                        .to_owned(),
                ];
                return;
            }
            true => "The server is stopped once and started once (two steps); the tier stays",
            false => "The server is stopped twice and started twice (four steps); nothing is kept",
        };
        self.notes = vec![
            format!("{stops}. By: {}.", plan.service.text()),
            format!(
                "Expected: {length}, and for each stop and start as long as your server takes for \
                 its \
                 checkpoint, and some seconds to attach or detach."
            ),
            "A power cut meanwhile costs nothing that the database has acknowledged: the tier is \
             persistent. \
             The server may stay down until `tiersmith trial --resume` or `tiersmith trial --undo`."
                .to_owned(),
        ];
    }
}

/// Whether a path is of a file system in memory.
pub(super) fn is_in_memory(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|system| IN_MEMORY.contains(&{ system.f_type }))
}

/// What to do about a home that has a tier already.
fn attached_already(plan: &Plan, home: &str) -> String {
    format!(
        "{home} is attached already, and a trial begins with the plain database. To try it, stop \
         {}, run `tiersmith detach {home}`, start it, and run this again, with --keep if the tier \
         is to stay. To measure it as it is, record it now and after the detach (`tiersmith awr \
         record --name NAME`), and compare the two with `tiersmith awr compare`",
        if plan.has_server() { "the server" } else { "what uses it" }
    )
}

/// What the processes of this machine are called.
fn names_of_processes() -> impl Iterator<Item = String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let comm = entries.filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok());
    comm.map(|name| name.trim_end().to_owned())
}
