//! Where a race is run: root's directories with canaries, another account's, and the attacker's own
//! with a home and a database in it.
//!
//! ```text
//! STAGE/roots/      root's: the same names as in the attacker's directory, and a few more
//! STAGE/stranger/   another unprivileged account's, likewise
//! STAGE/fast/       root's, for tiers
//! STAGE/user/       the attacker's: work/ holds db and app.db, fast/ may hold tiers
//! ```

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::daemon::{daemons_of, is_alive, kill};
use crate::races::attacker::{ATTACKER, STRANGER, become_user};
use crate::races::names::{DIRECTORIES, NAMES};

/// What must not get to anybody who may not read it.
pub(crate) const SECRET: &str = "CANARY-secret-of-somebody-else";
/// The longest that a command may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);
/// Kilobytes of memory a command may fill.
const MEMORY_KIB: u64 = 2 << 20;

/// See above. What runs in it ends with it.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Removed at the end.
    _dir: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// `None`: it did not end in time.
    pub(crate) code: Option<i32>,
    pub(crate) said: String,
}

impl Stage {
    pub(crate) fn new() -> Self {
        // In memory, where that can be: more is tried in the same time.
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix("ts");
        Self::within(builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir()).unwrap())
    }

    /// Where temporary files are: on a disk, perhaps.
    pub(crate) fn for_temporary_files() -> Self {
        Self::within(tempfile::Builder::new().prefix("ts").tempdir().unwrap())
    }

    fn within(dir: tempfile::TempDir) -> Self {
        let path = dir.path().canonicalize().unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let stage = Self { _dir: dir, path };
        fs::create_dir(stage.path.join("fast")).unwrap();
        for (name, owner) in [("roots", 0), ("stranger", STRANGER)] {
            let top = stage.path.join(name);
            fs::create_dir(&top).unwrap();
            canaries(&top, name == "roots");
            give(&top, owner);
        }
        stage.set_up();
        stage
    }

    /// The attacker's directory as it was at the beginning.
    pub(crate) fn set_up(&self) {
        self.clear();
        let user = self.path.join("user");
        let _ = fs::remove_dir_all(&user);
        for tier in fs::read_dir(self.path.join("fast")).unwrap() {
            let tier = tier.unwrap().path();
            let _ = fs::remove_file(&tier).or_else(|_| fs::remove_dir_all(&tier));
        }
        for dir in [
            "fast",
            "decoys",
            "work/db/global",
            "work/db/base/1",
            "work/db/pg_wal",
            "work/db/pg_xact",
        ] {
            fs::create_dir_all(user.join(dir)).unwrap();
        }
        let db = user.join("work/db");
        fs::write(db.join("PG_VERSION"), "15\n").unwrap();
        fs::write(db.join("postgresql.conf"), "max_connections = 10\n").unwrap();
        fs::write(db.join("postgresql.auto.conf"), "").unwrap();
        fs::write(db.join("global/pg_control"), [7; 8192]).unwrap();
        fs::write(db.join("base/1/1259"), [9; 65536]).unwrap();
        database(&user.join("work/app.db"), "nothing secret");
        give(&user, ATTACKER);
        let note = user.join("decoys/note");
        fs::write(&note, SECRET).unwrap();
        fs::set_permissions(&note, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Ends what runs, and takes away what is mounted in the attacker's directory or by a race
    /// elsewhere.
    pub(crate) fn clear(&self) {
        self.kill_daemons();
        let canary = self.path.join("roots/work/db");
        let mut kept = 0;
        for at in mounts(&self.path).into_iter().rev() {
            let of_ours = at.mount_point == canary && at.source == "canary";
            kept += u32::from(of_ours);
            if !of_ours || kept > 1 {
                let _ = quietly(Command::new("umount").arg("-l").arg(&at.mount_point));
            }
        }
    }

    /// As `kill -9` does.
    pub(crate) fn kill_daemons(&self) {
        let began = Instant::now();
        loop {
            let daemons = daemons_of(&self.path);
            if daemons.is_empty() || began.elapsed() > LIMIT {
                return;
            }
            for pid in daemons {
                kill("KILL", pid);
                while is_alive(pid) && began.elapsed() < LIMIT {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }

    /// Runs the program as root, in the directory that the attacker's is in; looks at it now and
    /// then.
    pub(crate) fn run(&self, arguments: &[String], look: impl FnMut()) -> Ended {
        self.run_within(LIMIT, arguments, look)
    }

    /// The same, with another limit of its time.
    pub(crate) fn run_within(
        &self,
        limit: Duration,
        arguments: &[String],
        mut look: impl FnMut(),
    ) -> Ended {
        let said = self.path.join("said");
        let out = fs::File::create(&said).unwrap();
        // A command that reads without a limit ends by itself, and not the machine.
        let script = format!("ulimit -d {MEMORY_KIB}; exec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_tiersmith")]).args(arguments);
        command.current_dir(&self.path).stdin(Stdio::null());
        command.stdout(out.try_clone().unwrap()).stderr(out);
        let mut child = command.spawn().unwrap();
        let began = Instant::now();
        let code = loop {
            look();
            match child.try_wait().unwrap() {
                Some(status) => break Some(status.code().unwrap_or(-1)),
                None if began.elapsed() > limit => {
                    let _ = child.kill();
                    let _ = child.wait();
                    break None;
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        Ended { code, said: String::from_utf8_lossy(&fs::read(&said).unwrap()).into_owned() }
    }

    /// What has to work while nobody attacks.
    pub(crate) fn prepare(&self, arguments: &[String]) {
        let ended = self.run(arguments, || {});
        assert_eq!(ended.code, Some(0), "{arguments:?} while nobody attacks: {}", ended.said);
    }

    /// Something the owner does.
    pub(crate) fn as_attacker(&self, work: impl FnOnce(&Path) + Send + 'static) {
        let user = self.path.join("user");
        let done = std::thread::spawn(move || {
            become_user(ATTACKER);
            work(&user);
        });
        done.join().unwrap();
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.clear();
        let _ = quietly(Command::new("umount").arg("-l").arg(self.path.join("roots/work/db")));
    }
}

/// Somebody else's files under each of the names, and some that the attacker can only link to.
fn canaries(top: &Path, with_mount: bool) {
    let secret = |path: &Path| {
        fs::write(path, format!("{SECRET}\n{}\n", path.display())).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    };
    for name in DIRECTORIES {
        fs::create_dir(top.join(name)).unwrap();
        // Another mount point of the home's name, which `attach` must not mistake for the home's.
        if with_mount && name == "work/db" {
            let mounted =
                quietly(Command::new("mount").args(["-t", "tmpfs", "canary"]).arg(top.join(name)));
            assert!(mounted, "a tmpfs cannot be mounted at {}", top.join(name).display());
        }
    }
    for name in NAMES.into_iter().filter(|name| !DIRECTORIES.contains(name)) {
        match name {
            "work/app.db" | "work/app.db-tiersmith/db" => database(&top.join(name), SECRET),
            // Left free, as they are beside most databases.
            "work/app.db-shm" | "work/app.db-journal" | "work/db/pg_wal" => {}
            _ => secret(&top.join(name)),
        }
    }
    secret(&top.join("secret"));
    fs::create_dir(top.join("directory")).unwrap();
    secret(&top.join("directory/secret"));
}

/// A database that holds this text; nobody waits for the disk.
fn database(path: &Path, text: &str) {
    let connection = Connection::open(path).unwrap();
    let quick = "PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF; CREATE TABLE t (x)";
    connection.execute_batch(quick).unwrap();
    connection.execute("INSERT INTO t VALUES (?1)", [text.repeat(1000)]).unwrap();
    drop(connection);
    if text == SECRET {
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

fn give(top: &Path, owner: u32) {
    chown(top, Some(owner), Some(owner)).unwrap();
    for entry in fs::read_dir(top).unwrap() {
        let path = entry.unwrap().path();
        if path.symlink_metadata().unwrap().is_dir() {
            give(&path, owner);
        } else {
            chown(&path, Some(owner), Some(owner)).unwrap();
        }
    }
}

fn quietly(command: &mut Command) -> bool {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A line of the kernel's list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MountLine {
    pub(crate) mount_point: PathBuf,
    pub(crate) source: String,
}

/// What is mounted at `path` and below. No name of a stage has to be escaped there.
pub(crate) fn mounts(path: &Path) -> Vec<MountLine> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let dash = fields.iter().position(|field| *field == "-")?;
        Some(MountLine {
            mount_point: fields.get(4)?.into(),
            source: (*fields.get(dash + 2)?).into(),
        })
    };
    text.lines().filter_map(line).filter(|line| line.mount_point.starts_with(path)).collect()
}

/// All files below `top`, without what is mounted there.
pub(crate) fn files_below(top: &Path) -> Vec<(PathBuf, fs::Metadata)> {
    let mut found = Vec::new();
    let mut rest = vec![top.to_path_buf()];
    while let Some(path) = rest.pop() {
        let Ok(seen) = path.symlink_metadata() else { continue };
        if seen.is_dir() {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            rest.extend(entries.map(|entry| entry.path()));
        }
        found.push((path, seen));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Whether `user` may read a file, if it can get there.
pub(crate) fn may_read(user: u32, found: &fs::Metadata) -> bool {
    let mode = found.mode();
    found.uid() == user || mode & 0o004 != 0 || (found.gid() == user && mode & 0o040 != 0)
}
