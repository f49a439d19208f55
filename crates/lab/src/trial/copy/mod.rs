//! A trial on a copy: the database is copied, a private server is started on the copy, and the
//! trial is of that. The database itself is only read.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | looks, says what will be done, and how the private server is started |
//! | `settings.rs` | which settings and libraries the copy takes over |
//! | `place.rs` | the copy's directory: who may change what in it |
//!
//! The private server listens on its own socket only, and root gives it no network at all. What a
//! copy could do to others is off: it archives no WAL, follows nobody, is followed by nobody,
//! subscribes to nothing, and loads only libraries that are known to act on nobody.
//!
//! `pg_basebackup` runs as the account of the private server. What it is sent says which files it
//! writes, and a server's account is not to say that to root.
//!
//! Deliberately absent: MariaDB and Redis; tablespaces, which `pg_basebackup` would write to where
//! the database's own are.

mod place;
mod settings;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tiersmith_awr::figure;
use tiersmith_awr::sources::{Address, Surroundings, environment_of_postgres};
use tiersmith_dir::PathText;

use self::place::NAME;
use self::settings::{OFF, TakenOver, taken_over};
use super::plan::{Copied, Database, Found, Plan, Service, Wishes, ask_patiently};
use super::space;
use crate::account::{Account, can_reach};
use crate::error::{Error, Result};
use crate::installed::{directories, system_program};
use crate::process::command;
use crate::server::{self, Programs, find_in};

/// Programs without which there is no copy.
const NEEDED: [&str; 2] = ["pg_basebackup", "pg_ctl"];
/// Statistics without the network that older versions send them through.
const ALONE_SINCE: u64 = 15;
/// The oldest version whose settings of recovery are settings of the server.
const OLDEST: u64 = 12;
/// The least and the most that stays free on a disk; between them a twentieth of it.
const RESERVE: (u64, u64) = (1 << 30, 16 << 30);
/// How long the server may look for the sizes of its files.
const SIZES: Duration = Duration::from_secs(300);
/// What a server takes beside its buffers.
const SERVER: u64 = 256 << 20;

/// What the database says of itself.
#[derive(Debug, Default)]
struct Facts {
    bytes: u64,
    redo_bytes: u64,
    buffers_bytes: u64,
    tablespaces: u64,
    foreign_servers: u64,
    major: u64,
    user: String,
    database: String,
    taken_over: TakenOver,
}

impl Facts {
    fn ask(address: &Address) -> Result<Facts> {
        let questions = [
            "SELECT sum(pg_database_size(oid))::bigint::text FROM pg_database",
            "SELECT pg_size_bytes(current_setting('max_wal_size'))::text",
            "SELECT pg_size_bytes(current_setting('shared_buffers'))::text",
            "SELECT count(*)::text FROM pg_tablespace WHERE spcname NOT IN ('pg_default', \
             'pg_global')",
            "SELECT count(*)::text FROM pg_foreign_server",
            "SHOW server_version_num",
            "SELECT current_user::text",
            "SELECT current_database()::text",
            settings::QUESTION,
            "SELECT unnest(string_to_array(current_setting('shared_preload_libraries'), ','))",
        ];
        let mut answers = ask_patiently(address, &questions, SIZES)?.into_iter();
        let mut rows = || answers.next().unwrap_or_default();
        let number = |rows: Vec<String>| rows.first().and_then(|n| n.parse().ok()).unwrap_or(0);
        let one = |rows: Vec<String>| rows.into_iter().next().unwrap_or_default();
        Ok(Facts {
            bytes: number(rows()),
            redo_bytes: number(rows()),
            buffers_bytes: number(rows()),
            tablespaces: number(rows()),
            foreign_servers: number(rows()),
            major: number(rows()) / 10_000,
            user: one(rows()),
            database: one(rows()),
            taken_over: taken_over(&rows(), &rows()),
        })
    }
}

/// What there is to know before anything is made.
///
/// # Errors
/// There is no trial on a copy of this database; it cannot be asked, or not be copied.
pub(super) fn plan(wishes: &Wishes, dir: &Path, size: u64) -> Result<Found> {
    let (address, dir) = allowed(wishes, dir)?;
    let facts = Facts::ask(&address)?;
    let product = server::product("postgres")?;
    let programs = of_version(facts.major, &directories(product.places()))?;
    let server = programs.path("postgres").to_path_buf();
    let account = server::account(product)?;
    if let Some(account) = &account {
        can_reach(&dir, account)?;
    }
    let reserve_bytes = space::on(&dir).map_or(RESERVE.0, reserve_of);
    let copy = Copied {
        of: wishes.url.clone(),
        room: PathText(dir.join(NAME)),
        programs: PathText(server.parent().unwrap_or(Path::new("/")).to_path_buf()),
        major: facts.major,
        account: account.as_ref().map(|account| (account.uid, account.gid)),
        settings: facts.taken_over.lines.clone(),
        reserve_bytes,
    };
    let alone = facts.major >= ALONE_SINCE && without_network().is_some();
    let mut plan = Plan::of(wishes, copy.url(&facts), copy.data(), copy.service(alone));
    plan.copy = Some(copy);
    let mut found = Found::new(plan);
    look_at_programs(&mut found, &server, facts.major);
    look_at_space(&mut found, &facts, &dir, size);
    look_at_facts(&mut found, &facts, &dir.join(NAME));
    if !alone {
        found.warnings.push(
            "the copy's server can reach the network: what the load calls there acts as in the \
             database"
                .into(),
        );
    }
    Ok(found)
}

/// The address and the directory, if there can be a trial on a copy as it is wished.
fn allowed(wishes: &Wishes, dir: &Path) -> Result<(Address, PathBuf)> {
    let refused = |reason: String| Error::Place { what: "copy", path: dir.to_path_buf(), reason };
    // A URL that is wrong, or has a password in it, is refused by its own words.
    let address = match Address::is_one(&wishes.url) {
        true => Some(Address::parse(&wishes.url)?),
        false => None,
    };
    let is_postgres = |address: &Address| Database::of(address) == Some(Database::Postgres);
    let Some(address) = address.filter(is_postgres) else {
        return Err(refused(
            "a trial on a copy is of PostgreSQL; restore a backup of another database, start a \
             server on that, and run the trial of it without --on-copy"
                .into(),
        ));
    };
    if wishes.load.is_empty() {
        return Err(refused(
            "nobody else uses a copy; give the load: -- COMMAND, with {url} where the copy's \
             address belongs, or with TIERSMITH_TRIAL_URL in the command"
                .into(),
        ));
    }
    if wishes.commands.is_some() || wishes.keep {
        return Err(refused(
            "a copy has a server of its own, and is removed at the end; leave out --stop, --start, \
             --keep"
                .into(),
        ));
    }
    Ok((address, place::judged(dir)?))
}

/// The programs of this version, which need not be the newest that is installed.
fn of_version(major: u64, directories: &[PathBuf]) -> Result<Programs> {
    let product = server::product("postgres")?;
    let mut others = Vec::new();
    for dir in directories {
        let Ok(found) = find_in(product, std::slice::from_ref(dir)) else { continue };
        if found.version().split('.').next().and_then(|first| first.parse().ok()) == Some(major) {
            return Ok(found);
        }
        others.push(format!("{} in {}", found.version(), dir.display()));
    }
    let there = if others.is_empty() { "none".to_owned() } else { others.join(", ") };
    Err(Error::Target {
        what: "looking for the server of the copy".into(),
        database: product.title().into(),
        reason: format!(
            "the database is of version {major}, and a copy runs by no other; installed here: \
             {there}. On Debian: apt-get install postgresql-{major}"
        ),
    })
}

/// The program that starts another without a network, if it does that for this caller.
fn without_network() -> Option<PathBuf> {
    let unshare = system_program("unshare").filter(|_| rustix::process::geteuid().is_root())?;
    let mut tried = Command::new(&unshare);
    tried.args(["--net", "--", "/bin/true"]);
    tried.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    tried.status().is_ok_and(|status| status.success()).then_some(unshare)
}

fn look_at_programs(found: &mut Found, server: &Path, major: u64) {
    if major < OLDEST {
        found.refusals.push(format!(
            "the database is PostgreSQL {major}, and a copy is made of {OLDEST} and newer"
        ));
    }
    for name in NEEDED {
        let program = server.with_file_name(name);
        if !program.is_file() {
            found.refusals.push(format!(
                "there is no {}; on Debian: apt-get install postgresql-{major} \
                 postgresql-client-{major}",
                program.display()
            ));
        }
    }
}

/// What stays free on a disk, so that others that use it go on.
fn reserve_of(disk: space::Room) -> u64 {
    (disk.total / 20).clamp(RESERVE.0, RESERVE.1)
}

/// What a copy takes, in bytes.
#[derive(Clone, Copy, Debug)]
struct Needed {
    /// What is copied.
    copied: u64,
    /// WAL that comes with it, and as much again that the private server keeps.
    redo: u64,
    /// The tier, if it is on the same disk.
    tier: u64,
}

/// Why a disk has no room for it.
fn no_room(needed: Needed, disk: space::Room) -> Option<String> {
    let reserve = reserve_of(disk);
    let sum = [needed.copied, needed.redo, needed.redo, needed.tier, reserve];
    let all = sum.into_iter().fold(0, u64::saturating_add);
    let text = |bytes: u64| figure::bytes(bytes as f64);
    (all > disk.free).then(|| {
        format!(
            "has {} free, and the copy takes {}: {} of files, twice max_wal_size ({}), {} of the \
             tier, and {} that must stay free for others; make room, or give a directory elsewhere",
            text(disk.free),
            text(all),
            text(needed.copied),
            text(needed.redo),
            text(needed.tier),
            text(reserve)
        )
    })
}

/// Why memory does not suffice for a second server, and a tier that is in memory.
fn no_memory(buffers: u64, tier: u64, memory: space::Room) -> Option<String> {
    let reserve = memory.total / 10;
    let sum = [buffers, buffers / 10, SERVER, tier, reserve];
    let all = sum.into_iter().fold(0, u64::saturating_add);
    let text = |bytes: u64| figure::bytes(bytes as f64);
    (all > memory.free).then(|| {
        format!(
            "of this machine's memory {} can be had, and the copy takes {}: shared_buffers of {} \
             and what goes with them, {} of a tier in memory, and {} that must stay free for \
             others; make the copy on another machine, or give a smaller --size",
            text(memory.free),
            text(all),
            text(buffers),
            text(tier),
            text(reserve)
        )
    })
}

fn look_at_space(found: &mut Found, facts: &Facts, dir: &Path, size: u64) {
    let shown = dir.display().to_string();
    let fast = &found.plan.fast.0;
    let (tier_in_memory, about) = (space::is_in_memory(fast), fs::metadata(fast));
    let is_dir = about.as_ref().is_ok_and(fs::Metadata::is_dir);
    let is_beside = match (&about, fs::metadata(dir)) {
        (Ok(fast), Ok(dir)) => fast.dev() == dir.dev(),
        _ => false,
    };
    if space::is_in_memory(dir) {
        found.refusals.push(format!(
            "{shown} is in memory, which a copy would fill; give a directory on storage as slow as \
             the database's"
        ));
    }
    let tier = if is_beside && is_dir { size } else { 0 };
    let needed = Needed { copied: facts.bytes, redo: facts.redo_bytes, tier };
    if let Some(why) = space::on(dir).and_then(|disk| no_room(needed, disk)) {
        found.refusals.push(format!("{shown} {why}"));
    }
    let tier = if tier_in_memory && is_dir { size } else { 0 };
    let memory = space::memory().and_then(|memory| no_memory(facts.buffers_bytes, tier, memory));
    found.refusals.extend(memory);
}

fn look_at_facts(found: &mut Found, facts: &Facts, room: &Path) {
    if fs::symlink_metadata(room).is_ok() {
        found.refusals.push(format!(
            "there is a {} already, perhaps of a trial that is not over; see `tiersmith trial \
             --undo`, or remove it",
            room.display()
        ));
    }
    if facts.tablespaces > 0 {
        found.refusals.push(format!(
            "the database has {} tablespaces, whose copies would be written to where they are \
             themselves; restore a backup elsewhere, and run the trial of that",
            facts.tablespaces
        ));
    }
    let taken = &facts.taken_over;
    if !taken.libraries_without.is_empty() {
        found.warnings.push(format!(
            "the copy does not load {}, which might act on others too; what needs it fails there",
            taken.libraries_without.join(", ")
        ));
    }
    if facts.foreign_servers > 0 {
        found.warnings.push(format!(
            "the database knows {} foreign servers: keep the load from using them",
            facts.foreign_servers
        ));
    }
    if !found.plan.load.iter().any(|word| word.contains("{url}")) {
        found.warnings.push(
            "the load has no {url} in it: it must take the copy's address from \
             TIERSMITH_TRIAL_URL or from PGHOST, or it is a load of the database itself"
                .into(),
        );
    }
    found.notes = vec![
        "The database is read once, by pg_basebackup, which begins with a checkpoint. It is not \
         stopped. The load runs on the copy only."
            .to_owned(),
        format!(
            "Expected: {} are copied to {}, the load runs twice, and the copy is removed. The \
             trial ends before the load has filled the disk.",
            figure::bytes(facts.bytes as f64),
            room.display()
        ),
        "A power cut meanwhile costs the database nothing. `tiersmith trial --undo` removes what \
         is left of the copy."
            .to_owned(),
    ];
    if !taken.without.is_empty() {
        found.notes.push(format!(
            "The copy has the database's settings but these, which are not about its work: {}.",
            taken.without.join(", ")
        ));
    }
}

/// A part of a URL.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

impl Copied {
    /// The address of the private server.
    fn url(&self, facts: &Facts) -> String {
        format!(
            "postgresql://{}@/{}?host={}&port=5432",
            encoded(&facts.user),
            encoded(&facts.database),
            encoded(&self.sockets().display().to_string())
        )
    }

    fn data(&self) -> PathBuf {
        self.room.0.join("data")
    }

    fn sockets(&self) -> PathBuf {
        self.room.0.join("s")
    }

    /// The private server.
    fn service(&self, alone: bool) -> Service {
        let file = |name: &str| self.room.0.join(name).display().to_string();
        let own = [
            format!("config_file={}", file("postgresql.conf")),
            format!("hba_file={}", file("pg_hba.conf")),
            format!("ident_file={}", file("pg_ident.conf")),
            format!("unix_socket_directories={}", self.sockets().display()),
            "unix_socket_permissions=0700".to_owned(),
        ];
        let settings = own.into_iter().chain(OFF.map(str::to_owned));
        let me = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let (uid, gid) = self.account.unwrap_or(me);
        Service::PgCtl {
            program: PathText(self.programs.0.join("pg_ctl")),
            uid,
            gid,
            directory: PathText(self.data()),
            arguments: settings.flat_map(|setting| ["-c".to_owned(), setting]).collect(),
            environment: vec!["LC_ALL=C.UTF-8".into(), "PATH=/usr/bin:/bin".into()],
            log: PathText(self.room.0.join("log")),
            alone,
        }
    }

    /// Makes the directory of the copy, and the command that copies. What an earlier try has left
    /// is gone.
    ///
    /// # Errors
    /// The system refuses; how the database is reached is not configured any more.
    ///
    /// # Durability
    /// None: a copy is worth nothing.
    pub(super) fn prepare(&self) -> Result<Command> {
        self.remove()?;
        let mut text = self.settings.join("\n");
        text.push('\n');
        let files = [
            ("postgresql.conf", text),
            ("pg_hba.conf", "local all all trust\n".to_owned()),
            ("pg_ident.conf", String::new()),
        ];
        place::make(&self.room.0, self.account, &files)?;
        let mut words: Vec<OsString> =
            ["--no-password", "--checkpoint=fast", "--wal-method=stream", "--no-sync", "-D"]
                .map(OsString::from)
                .to_vec();
        words.push(self.data().into());
        let account = self.account.map(|(uid, gid)| Account { name: uid.to_string(), uid, gid });
        let mut made = command(&self.programs.0.join("pg_basebackup"), &words, account.as_ref())?;
        // The password is in the environment of a process, which its own account and root can read.
        let address = Address::parse(&self.of)?;
        made.envs(environment_of_postgres(&address, &Surroundings::of_process())?);
        Ok(made)
    }

    /// Makes of what was copied a database of its own.
    ///
    /// # Errors
    /// It is another version's than the programs; the system refuses.
    pub(super) fn finish(&self) -> Result<()> {
        place::finish(&self.room.0, self.major)
    }

    /// Removes all of it. Nobody uses it any more.
    ///
    /// # Errors
    /// The system refuses; something is mounted there.
    pub(super) fn remove(&self) -> Result<()> {
        place::remove(&self.room.0)
    }

    /// Why the copy must not grow: others need what is left of the disk.
    pub(super) fn fills_the_disk(&self) -> Option<String> {
        let dir = self.room.0.parent().unwrap_or(Path::new("/"));
        let disk = space::on(dir).filter(|disk| disk.free < self.reserve_bytes / 2)?;
        Some(format!(
            "{} has only {} free, and the copy must not fill it; make room, or give a directory \
             elsewhere",
            dir.display(),
            figure::bytes(disk.free as f64)
        ))
    }

    /// What the load is told: the copy's address, in its words and its environment.
    pub(super) fn tell(&self, url: &str, load: &[String], command: &mut Command) {
        command.args(load.iter().map(|word| word.replace("{url}", url)));
        command.env("TIERSMITH_TRIAL_URL", url);
        if let Ok(address) = Address::parse(url) {
            command.env("PGHOST", self.sockets()).env("PGPORT", "5432");
            for name in ["PGSERVICE", "PGHOSTADDR", "PGPASSWORD"] {
                command.env_remove(name);
            }
            command.envs(address.user.map(|user| ("PGUSER", user)));
            command.envs(address.database.map(|database| ("PGDATABASE", database)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_so_that_an_address_reads_them_back() {
        let url = format!("postgresql://{}@/{}?host=/s", encoded("a b@c:d"), encoded("x?y&z%"));
        // A colon in a name is taken for a password, and refused.
        assert!(tiersmith_awr::sources::Address::parse(&url).is_err());
        let url = format!("postgresql://{}@/{}?host=/s", encoded("a b"), encoded("x?y&z%"));
        let address = tiersmith_awr::sources::Address::parse(&url).unwrap();
        assert_eq!(address.user.as_deref(), Some("a b"));
        assert_eq!(address.database.as_deref(), Some("x?y&z%"));
    }

    #[test]
    fn a_copy_leaves_room_for_its_redo_its_tier_and_everybody_else() {
        const GIB: u64 = 1 << 30;
        let disk = |free: u64| space::Room { free, total: 100 * GIB };
        let needed = Needed { copied: 10 * GIB, redo: 2 * GIB, tier: GIB };
        // Ten, twice two, one, and a twentieth of the disk.
        assert_eq!(no_room(needed, disk(20 * GIB)), None);
        let why = no_room(needed, disk(20 * GIB - 1)).unwrap();
        assert!(why.contains("max_wal_size") && why.contains("make room"), "{why}");
        let huge = Needed { copied: u64::MAX, ..needed };
        assert!(no_room(huge, disk(u64::MAX - 1)).is_some());
        // A small disk keeps a whole gibibyte, and a large one no more than sixteen.
        assert_eq!(reserve_of(space::Room { free: 0, total: GIB }), GIB);
        assert_eq!(reserve_of(space::Room { free: 0, total: 5000 * GIB }), 16 * GIB);
    }

    #[test]
    fn a_copy_leaves_memory_for_the_database() {
        const GIB: u64 = 1 << 30;
        let memory = |free: u64| space::Room { free, total: 20 * GIB };
        // Ten and a tenth of it, a quarter for the server, one for the tier, two that stay free.
        let enough = 14 * GIB + GIB / 4;
        assert_eq!(no_memory(10 * GIB, GIB, memory(enough)), None);
        let why = no_memory(10 * GIB, GIB, memory(enough - 1)).unwrap();
        assert!(why.contains("shared_buffers of 10.0 GiB") || why.contains("10"), "{why}");
        assert!(no_memory(u64::MAX, 1, memory(enough)).is_some());
    }

    #[test]
    fn the_programs_are_those_of_the_databases_version() {
        let dir = tempfile::tempdir().unwrap();
        let directories: Vec<PathBuf> =
            ["16", "14"].iter().map(|version| dir.path().join(version).join("bin")).collect();
        for (bin, version) in directories.iter().zip(["16.4", "14.13"]) {
            fs::create_dir_all(bin).unwrap();
            // Written by another process, as in `server/find.rs`.
            let script = "printf '#!/bin/sh\\necho postgres \"(PostgreSQL)\" %s\\n' \"$2\" > \
                          \"$1/postgres\"; cp \"$1/postgres\" \"$1/initdb\"; chmod 755 \"$1\"/*";
            let mut wrote = Command::new("sh");
            wrote.args(["-c", script, "sh"]).arg(bin).arg(version).stdin(Stdio::null());
            assert!(wrote.status().unwrap().success());
        }
        let found = of_version(14, &directories).unwrap();
        assert_eq!(found.path("postgres"), directories[1].join("postgres"));
        let said = of_version(15, &directories).unwrap_err().to_string();
        assert!(said.contains("of version 15") && said.contains("16.4 in"), "{said}");
        assert!(said.contains("apt-get install postgresql-15"), "{said}");
    }
}
