//! What is looked at before a copy is made: whether the database gives one, whether there is room
//! for it, and whether a server for it is installed.
//!
//! The database may be on another machine: nothing here needs its directory.
//!
//! Deliberately absent: changing anything, here or there.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tiersmith_awr::figure;
use tiersmith_awr::sources::{Address, Product};
use tiersmith_dir::{Dir, PathText};

use super::super::found::{SIZE_DEFAULT, is_in_memory};
use super::super::plan::{Found, Loses, Plan, Service, Wishes, ask, ask_patiently};
use super::{DATA, LOG, OnCopy, RUN, judge, place, settings};
use crate::account::{Account, can_reach};
use crate::error::{During, Error, Result};
use crate::installed::{directories, is_program};
use crate::server;

/// How long a server may take to say how large it is: it looks at every file.
const SIZING: Duration = Duration::from_secs(300);
/// A socket's path has 107 bytes at the most; behind the directory's are `/run/.s.PGSQL.5432`.
const PATH_MAX: usize = 80;
/// WAL senders that a copy takes: one sends the files, one the WAL that is written meanwhile.
const SENDERS: i64 = 2;
/// For an idea of how long a copy takes.
const ASSUMED_BYTES_PER_S: f64 = (100 << 20) as f64;

/// What the original says of itself.
struct Facts {
    version: u32,
    user: String,
    database: String,
    is_standby: bool,
    may_copy: bool,
    sees_settings: bool,
    wal_level: String,
    free_senders: i64,
    preloads: u64,
    spaces: u64,
    wal_bytes: u64,
    buffer_bytes: u64,
    subscriptions: u64,
    dropped: Vec<String>,
    /// Without what is known: why.
    bytes: std::result::Result<u64, String>,
}

impl Facts {
    fn ask(address: &Address) -> Result<Facts> {
        let answers = ask(
            address,
            &[
                "SELECT current_setting('server_version_num')",
                "SELECT session_user::text",
                "SELECT current_database()::text",
                "SELECT pg_is_in_recovery()::text",
                "SELECT (rolsuper OR rolreplication)::text FROM pg_roles \
                 WHERE rolname = session_user",
                "SELECT (rolsuper OR pg_has_role(oid, 'pg_read_all_settings', 'USAGE'))::text \
                 FROM pg_roles WHERE rolname = session_user",
                "SELECT current_setting('wal_level')",
                "SELECT (current_setting('max_wal_senders')::int - (SELECT count(*) FROM \
                 pg_stat_replication))::text",
                "SELECT count(*)::text FROM pg_db_role_setting, unnest(setconfig) one \
                 WHERE one LIKE 'session_preload_libraries=_%' \
                 OR one LIKE 'local_preload_libraries=_%'",
                "SELECT count(*)::text FROM pg_tablespace WHERE pg_tablespace_location(oid) LIKE \
                 '/%'",
                "SELECT pg_size_bytes(current_setting('max_wal_size'))::text",
                "SELECT pg_size_bytes(current_setting('shared_buffers'))::text",
                "SELECT count(*)::text FROM pg_stat_subscription",
                settings::QUESTION,
            ],
        )?;
        let text =
            |at: usize| answers.get(at).and_then(|rows| rows.first()).map_or("", String::as_str);
        let number = |at: usize| text(at).parse::<i64>().unwrap_or(0);
        let bytes = |at: usize| u64::try_from(number(at)).unwrap_or(0);
        let (_, dropped) =
            settings::libraries(answers.get(13).map(Vec::as_slice).unwrap_or_default());
        Ok(Facts {
            version: u32::try_from(number(0)).unwrap_or(0) / 10_000,
            user: text(1).to_owned(),
            database: text(2).to_owned(),
            is_standby: text(3) == "true",
            may_copy: text(4) == "true",
            sees_settings: text(5) == "true",
            wal_level: text(6).to_owned(),
            free_senders: number(7),
            preloads: bytes(8),
            spaces: bytes(9),
            wal_bytes: bytes(10),
            buffer_bytes: bytes(11),
            subscriptions: bytes(12),
            dropped,
            bytes: size(address),
        })
    }

    /// Bytes that the copy needs: the database, the WAL that may gather, and a tenth for what the
    /// load adds.
    fn needed(&self) -> Option<u64> {
        let bytes = self.bytes.as_ref().ok()?;
        Some(bytes.saturating_add(self.wal_bytes).saturating_add(bytes / 10))
    }
}

fn size(address: &Address) -> std::result::Result<u64, String> {
    let question = "SELECT sum(pg_tablespace_size(oid))::text FROM pg_tablespace";
    let rows = ask_patiently(address, &[question], SIZING).map_err(|e| e.to_string())?;
    let bytes = rows.first().and_then(|rows| rows.first()?.parse().ok());
    bytes.ok_or_else(|| "it does not say".to_owned())
}

/// Looks at the database and at the place for its copy.
///
/// # Errors
/// There is no copy of such a database yet, it cannot be asked, or the place cannot have one.
pub(in crate::trial) fn look(wishes: &Wishes, dir: &Path) -> Result<Found> {
    let address = address_of(wishes)?;
    let (dir, is_made) = place_of(dir)?;
    let facts = Facts::ask(&address)?;
    let programs = programs_of(facts.version)?;
    let account = account(&dir)?;
    let copy = OnCopy {
        of: wishes.url.clone(),
        is_made,
        mark: format!("{:016x}", fastrand::u64(..)),
        program: PathText(programs.join("pg_basebackup")),
        user: facts.user.clone(),
        database: facts.database.clone(),
        reserve: reserve_at(&dir),
        dir: PathText(dir),
    };
    let run = copy.run();
    let service = Service::PgCtl {
        program: PathText(programs.join("pg_ctl")),
        uid: account.uid,
        gid: account.gid,
        directory: PathText(copy.data()),
        arguments: settings::arguments(&run),
        environment: vec!["PATH=/usr/bin:/bin".into()],
        log: PathText(run.join(LOG)),
    };
    let mut plan = Plan::of(wishes, copy.url(), copy.data(), service);
    plan.copy = Some(copy.clone());
    let mut found = Found::new(plan);
    found.look_for_fuse();
    found.look_at_fast(wishes.size.unwrap_or(SIZE_DEFAULT));
    look_at_original(&mut found, &facts);
    look_at_room(&mut found, &facts, wishes, &copy);
    look_at_load(&mut found, wishes, &facts);
    tell(&mut found, &facts, &copy);
    Ok(found)
}

/// The address, if there is a copy of such a database, and what is wished goes together.
fn address_of(wishes: &Wishes) -> Result<Address> {
    let refused = |reason: &str| Error::Setting {
        setting: "--on-copy",
        value: wishes.on_copy.iter().map(|dir| dir.display().to_string()).collect(),
        reason: reason.to_owned(),
    };
    if !Address::is_one(&wishes.url) {
        return Err(refused(
            "Tiersmith makes no copy of a SQLite file yet; make one with sqlite3 app.db \".backup \
             copy.db\", and give the copy's path to a trial without --on-copy",
        ));
    }
    let address = Address::parse(&wishes.url)?;
    if address.product != Product::PostgreSql {
        return Err(refused(
            "Tiersmith makes copies of PostgreSQL only yet, because it knows for no other server \
             how to keep the copy from acting on the original; restore a backup into a server of \
             its own, and give that one's address to a trial without --on-copy",
        ));
    }
    if wishes.load.is_empty() {
        return Err(refused(
            "the database's own users do not reach a copy, so a load is needed: -- LOAD. It runs \
             twice, and finds the copy by PGHOST and PGPORT, or by the address in TIERSMITH_URL",
        ));
    }
    if wishes.commands.is_some() {
        return Err(refused(
            "the server on the copy is Tiersmith's to stop and to start, and the original is not \
             stopped; leave out --stop and --start",
        ));
    }
    Ok(address)
}

/// The directory without links, and whether it has to be made.
fn place_of(given: &Path) -> Result<(PathBuf, bool)> {
    let path = std::path::absolute(given).during("find", given)?;
    let is_made = match fs::symlink_metadata(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => true,
        found => {
            found.during("look at", &path)?;
            false
        }
    };
    let dir = if is_made {
        let (above, name) = Dir::holding(&path).map_err(|e| {
            let reason =
                format!("{e}; give an empty directory, or a new one in a directory that is there");
            place(&path, reason)
        })?;
        above.canonical_path().during("find", above.path())?.join(name)
    } else {
        let path = path.canonicalize().during("find", &path)?;
        judge(&Dir::open(&path).during("open", &path)?)?;
        path
    };
    // PostgreSQL takes a list of directories for its sockets.
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=@~".contains(c);
    let text = dir.to_string_lossy();
    if text.len() > PATH_MAX || !text.chars().all(plain) {
        let reason = format!(
            "the server's socket is in it, whose path may have {PATH_MAX} bytes before that, of \
             letters, digits and /._-+=@~; give a shorter or plainer one"
        );
        return Err(place(&dir, reason));
    }
    // It would be part of what is copied, or of another copy.
    let inside = dir.ancestors().skip(1).find(|above| above.join("PG_VERSION").exists());
    match inside {
        Some(data) => Err(place(
            &dir,
            format!("it is inside {}, which is a PostgreSQL's data directory", data.display()),
        )),
        None => Ok((dir, is_made)),
    }
}

/// The account that the server of the copy runs as.
fn account(dir: &Path) -> Result<Account> {
    let product = server::product("postgres")?;
    let there = dir.ancestors().find(|above| above.exists()).unwrap_or(Path::new("/"));
    match server::account(product)? {
        Some(account) => can_reach(there, &account).map(|()| account),
        None => Ok(Account {
            name: String::new(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }),
    }
}

/// The directory of the programs of this version.
fn programs_of(version: u32) -> Result<PathBuf> {
    let needed = ["postgres", "pg_ctl", "pg_basebackup"];
    let own = format!("/usr/lib/postgresql/{version}/bin");
    let red_hat = format!("/usr/pgsql-{version}/bin");
    let places = directories(&[own.as_str(), red_hat.as_str(), "/usr/local/pgsql/bin"]);
    let fits = |dir: &PathBuf| {
        // What is on PATH may be links to programs whose others are beside them.
        needed.iter().all(|name| is_program(&dir.join(name)))
            && server::find::version_of(&dir.join("postgres")).split('.').next()
                == Some(version.to_string().as_str())
    };
    places.into_iter().find(fits).ok_or_else(|| Error::Target {
        what: format!("looking for the programs of PostgreSQL {version}"),
        database: own.into(),
        reason: format!(
            "the copy needs a server of the original's version, with {}; on Debian: apt-get \
             install postgresql-{version}",
            needed.join(", ")
        ),
    })
}

fn look_at_original(found: &mut Found, facts: &Facts) {
    let refusals = [
        (
            facts.is_standby,
            "the database is a standby, and a copy of it would wait for its primary; give the \
             primary's address"
                .to_owned(),
        ),
        (
            !facts.may_copy,
            format!(
                "the user {} may not copy the database; allow it with ALTER ROLE ... REPLICATION, \
                 and a line for `replication` in pg_hba.conf",
                facts.user
            ),
        ),
        (
            facts.wal_level == "minimal",
            "wal_level is minimal, with which PostgreSQL makes no copy while it runs; set it to \
             replica, and restart"
                .to_owned(),
        ),
        (
            facts.free_senders < SENDERS,
            format!(
                "the copy takes {SENDERS} WAL senders, and {} of max_wal_senders are free; raise \
                 it, or wait until a backup has ended",
                facts.free_senders.max(0)
            ),
        ),
        (
            facts.preloads > 0,
            "roles or databases load libraries into their sessions (session_preload_libraries or \
             local_preload_libraries in pg_db_role_setting), which would act on the copy too; \
             restore a backup elsewhere, and give its address to a trial without --on-copy"
                .to_owned(),
        ),
        (
            facts.spaces > 0,
            format!(
                "the database has {} tablespaces in directories of their own, which Tiersmith does \
                 not copy yet; restore a backup elsewhere, and give its address to a trial without \
                 --on-copy",
                facts.spaces
            ),
        ),
    ];
    let refused = refusals.into_iter().filter(|(is_so, _)| *is_so).map(|(_, why)| why);
    found.refusals.extend(refused);
    if !facts.sees_settings {
        found.warnings.push(format!(
            "the user {} does not see all settings, so that the copy may lack some; GRANT \
             pg_read_all_settings lets it",
            facts.user
        ));
    }
    if !facts.dropped.is_empty() {
        found.warnings.push(format!(
            "the copy does not load {}: it might run jobs, replicate or call home from the copy",
            facts.dropped.join(", ")
        ));
    }
    if facts.subscriptions > 0 {
        found.warnings.push(
            "the original has subscriptions; the copy does not follow them, and misses that work"
                .into(),
        );
    }
}

/// Bytes that stay free for others on the file system of the copy: a twentieth of it.
fn reserve_at(dir: &Path) -> u64 {
    let there = dir.ancestors().find(|above| above.exists()).unwrap_or(Path::new("/"));
    rustix::fs::statvfs(there).map_or(0, |room| room.f_blocks.saturating_mul(room.f_frsize) / 20)
}

fn look_at_room(found: &mut Found, facts: &Facts, wishes: &Wishes, copy: &OnCopy) {
    let dir = &copy.dir.0;
    let there = dir.ancestors().find(|above| above.exists()).unwrap_or(Path::new("/"));
    if is_in_memory(there) {
        found.warnings.push(format!(
            "{} is in memory: the copy is as fast as memory is, and the trial shows how it works, \
             not what faster storage gives",
            dir.display()
        ));
    }
    let Some(mut needed) = facts.needed() else {
        let why = facts.bytes.as_ref().err().map_or("", String::as_str);
        found.refusals.push(format!(
            "it is not known how large the database is, and whether there is room for a copy: \
             {why}. GRANT pg_read_all_stats TO \"{}\" lets it be asked",
            facts.user
        ));
        return;
    };
    let about = |path: &Path| fs::metadata(path).ok();
    let is_beside = about(&wishes.fast).zip(about(there));
    if is_beside.is_some_and(|(fast, dir)| fast.is_dir() && fast.dev() == dir.dev()) {
        needed = needed.saturating_add(wishes.size.unwrap_or(SIZE_DEFAULT).bytes());
    }
    needed = needed.saturating_add(copy.reserve);
    let Ok(room) = rustix::fs::statvfs(there) else { return };
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    if free < needed {
        found.refusals.push(format!(
            "{} has {} free, and the copy may take {} (the database, max_wal_size, a tenth for \
             what the load adds, the tier if it is there too, and what stays free for others); \
             give a directory with more room",
            there.display(),
            figure::bytes(free as f64),
            figure::bytes(needed as f64)
        ));
    }
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = available.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse().ok());
    if kib.is_some_and(|kib: u64| kib.saturating_mul(1024) < facts.buffer_bytes) {
        found.warnings.push(format!(
            "the copy has the original's shared_buffers ({}), and this machine has less memory \
             available",
            figure::bytes(facts.buffer_bytes as f64)
        ));
    }
}

fn look_at_load(found: &mut Found, wishes: &Wishes, facts: &Facts) {
    if wishes.load.iter().any(|word| word.contains(&wishes.url)) {
        found.refusals.push(
            "the load names the original's address, and would load the original; let it use \
             PGHOST, PGPORT, PGUSER and PGDATABASE, or TIERSMITH_URL"
                .into(),
        );
    }
    found.warnings.push(format!(
        "a load that goes to the original by an address of its own loads the original; it has to \
         use what it is told: PGHOST, PGPORT, PGUSER ({}), PGDATABASE ({}), TIERSMITH_URL",
        facts.user, facts.database
    ));
}

fn tell(found: &mut Found, facts: &Facts, copy: &OnCopy) {
    let dir = copy.dir.0.display();
    let size = facts.bytes.as_ref().map_or(0.0, |bytes| *bytes as f64);
    let end = match found.plan.keep {
        true => "The copy stays, attached, and its server runs",
        false => "Afterwards the copy is removed with all that was made",
    };
    found.notes = vec![
        format!(
            "The database is not stopped, and nothing of it is changed. It is read once, {} (at \
             100 MiB/s: {}), by {}: a checkpoint, {SENDERS} WAL senders for that \
             long.",
            figure::bytes(size),
            figure::nanoseconds(size / ASSUMED_BYTES_PER_S * 1e9),
            copy.program.0.display()
        ),
        format!(
            "The copy is {dir}/{DATA}. A server of its own runs on it, with the original's \
             settings but for places, archives, replication and logs; it listens on a socket in \
             {dir}/{RUN} alone."
        ),
        format!(
            "The load runs twice on the copy, plain and attached; what it changes the first time \
             is there the second time. {end}."
        ),
        "A power cut meanwhile costs the copy at the most; `tiersmith trial --undo` removes what \
         is left of it."
            .to_owned(),
    ];
    if found.plan.loses == Some(Loses::Emulated) {
        found.notes.push(
            "The tier is EMULATED: it stands for persistent memory, and its figures are those of \
             what is behind it."
                .to_owned(),
        );
    }
}
