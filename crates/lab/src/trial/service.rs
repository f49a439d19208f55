//! A server that Tiersmith did not start: which processes it is, how it is stopped and started.
//!
//! A server is known by its working directory, which is its data directory. Nothing of that
//! directory is read for it: the kernel names it, whatever is mounted there.
//!
//! Invariants: what is run as root is `systemctl` with the name of a unit, or the user's own words;
//! what belongs to the server's account (its program, its arguments) is run as that account.
//! Deliberately absent: servers of another container, whose processes are not to be seen from here.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tiersmith_dir::PathText;

use super::plan::{Database, Service};
use crate::account::Account;
use crate::error::{Error, Result};
use crate::installed::system_program;
use crate::process::{Identity, command};

/// What servers are called, cut as the kernel cuts it.
const SERVERS: [&str; 5] = ["postgres", "mariadbd", "mysqld", "redis-server", "valkey-server"];
/// The variables of its environment that a server is started with again.
const KEPT: [&str; 5] = ["LANG", "LANGUAGE", "TZ", "PATH", "LD_LIBRARY_PATH"];

/// A server that runs.
#[derive(Clone, Debug)]
pub struct Running {
    /// Its first process.
    pub process: Identity,
    /// The user it runs as.
    pub uid: u32,
    /// The group it runs as.
    pub gid: u32,
}

/// The processes whose working directory is `home` and whose name is that of a server.
pub fn processes_in(home: &Path) -> Vec<Identity> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(std::result::Result::ok);
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let serves = |pid: &u32| {
        let is_server = fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|name| SERVERS.contains(&name.trim_end()));
        is_server && fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == home)
    };
    numbers.filter(serves).filter_map(Identity::of).filter(|process| process.runs()).collect()
}

/// The server whose data directory is `home`; nothing if none is to be seen.
pub fn running_in(home: &Path) -> Option<Running> {
    all_running_in(home).into_iter().next()
}

/// The servers whose working directory is `home`, which should be one.
pub fn all_running_in(home: &Path) -> Vec<Running> {
    let all = processes_in(home);
    // The first one started the others.
    let is_first = |process: &&Identity| {
        let parent = fs::read_to_string(format!("/proc/{}/status", process.pid)).ok();
        let parent = parent.and_then(|text| {
            text.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse::<i32>().ok())
        });
        parent.is_some_and(|parent| all.iter().all(|other| other.pid != parent))
    };
    let running = |process: &Identity| {
        let found = fs::metadata(format!("/proc/{}", process.pid)).ok()?;
        Some(Running { process: *process, uid: found.uid(), gid: found.gid() })
    };
    all.iter().filter(is_first).filter_map(running).collect()
}

/// How a running server is stopped and started: by its unit, or by PostgreSQL's own program.
///
/// # Errors
/// Neither is known; what to give.
pub fn found(running: &Running, database: Database, home: &Path) -> Result<Service> {
    let groups =
        fs::read_to_string(format!("/proc/{}/cgroup", running.process.pid)).unwrap_or_default();
    if let Some(unit) = unit_in(&groups)
        && rustix::process::geteuid().is_root()
        && let Some(systemctl) = system_program("systemctl")
        && Path::new("/run/systemd/system").is_dir()
        && is_main_process(&systemctl, &unit, running.process.pid)
    {
        return Ok(Service::Systemd { unit });
    }
    let none = |reason: &str| Error::Place {
        what: "trial",
        path: home.into(),
        reason: format!(
            "{reason}, so it is not known how the server is stopped and started; say it with \
             --stop COMMAND \
             --start COMMAND"
        ),
    };
    if database != Database::Postgres {
        return Err(none("no unit of systemd runs this server"));
    }
    pg_ctl(running, home)
        .ok_or_else(|| none("neither a unit of systemd nor a pg_ctl belongs to this server"))
}

/// The unit of the system's service manager in the text of `/proc/PID/cgroup`.
fn unit_in(groups: &str) -> Option<String> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/system.slice/"))?;
    let unit = path.rsplit('/').find(|part| part.ends_with(".service"))?;
    let plain = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    (unit.chars().all(plain) && !unit.starts_with('-')).then(|| unit.to_owned())
}

/// Whether the unit was made for this server. One that `cron` or a supervisor started is in its
/// unit, which would stop more than the server, and not start it again.
fn is_main_process(systemctl: &Path, unit: &str, pid: i32) -> bool {
    let shown =
        Command::new(systemctl).args(["show", "--property=MainPID", "--value", unit]).output();
    shown.is_ok_and(|shown| String::from_utf8_lossy(&shown.stdout).trim() == pid.to_string())
}

fn pg_ctl(running: &Running, home: &Path) -> Option<Service> {
    let about = |name: &str| fs::read(format!("/proc/{}/{name}", running.process.pid)).ok();
    let words = |bytes: Vec<u8>| -> Option<Vec<String>> {
        let text = String::from_utf8(bytes).ok()?;
        Some(text.split_terminator('\0').map(str::to_owned).collect())
    };
    let link = |name: &str| fs::read_link(format!("/proc/{}/{name}", running.process.pid)).ok();
    let program = link("exe")?.with_file_name("pg_ctl");
    if !program.is_file() {
        return None;
    }
    let (directory, arguments) = split_directory(words(about("cmdline")?)?);
    let environment = words(about("environ")?)?.into_iter().filter(|pair| {
        let name = pair.split('=').next().unwrap_or_default();
        KEPT.contains(&name) || name.starts_with("LC_")
    });
    let log =
        link("fd/2").filter(|log| log.is_file()).unwrap_or_else(|| PathBuf::from("/dev/null"));
    Some(Service::PgCtl {
        program: PathText(program),
        uid: running.uid,
        gid: running.gid,
        directory: PathText(directory.map_or_else(|| home.to_path_buf(), |given| home.join(given))),
        arguments,
        environment: environment.collect(),
        log: PathText(log),
    })
}

/// The directory after `-D`, and the arguments without it and without the program.
fn split_directory(words: Vec<String>) -> (Option<PathBuf>, Vec<String>) {
    let (mut directory, mut rest) = (None, Vec::new());
    let mut words = words.into_iter().skip(1);
    while let Some(word) = words.next() {
        match word.strip_prefix("-D") {
            Some("") => directory = words.next().map(PathBuf::from),
            Some(joined) => directory = Some(PathBuf::from(joined)),
            None => rest.push(word),
        }
    }
    (directory, rest)
}

/// Whether the service manager is stopping the server, or is about to.
pub fn is_stopping(service: &Service) -> bool {
    let Service::Systemd { unit } = service else { return false };
    let Some(systemctl) = system_program("systemctl") else { return false };
    let shown = Command::new(systemctl)
        .args(["show", "--property=ActiveState", "--property=Job", unit])
        .output();
    shown.is_ok_and(|shown| is_stopping_by(&String::from_utf8_lossy(&shown.stdout)))
}

/// The same, from what `systemctl show` prints: while it runs a unit has a job only if it is to be
/// stopped or started anew.
fn is_stopping_by(shown: &str) -> bool {
    let value = |name: &str| shown.lines().find_map(|line| line.strip_prefix(name));
    let has_job = value("Job=").is_some_and(|job| !matches!(job.trim(), "" | "0"));
    match value("ActiveState=").map(str::trim) {
        Some("deactivating") => true,
        Some("active") => has_job,
        _ => false,
    }
}

/// One word for a shell.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// What is asked of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// That it runs.
    Start,
    /// That it does not.
    Stop,
}

/// The command that stops or starts a server.
///
/// # Errors
/// A program of the system is missing.
pub fn command_for(service: &Service, wanted: Wanted) -> Result<Command> {
    let verb = if wanted == Wanted::Start { "start" } else { "stop" };
    let mut made = match service {
        Service::Systemd { unit } => {
            let mut made =
                Command::new(system_program("systemctl").unwrap_or_else(|| "systemctl".into()));
            made.arg(verb).arg(unit);
            made
        }
        Service::Commands { stop, start } => {
            let mut made = Command::new("/bin/sh");
            made.arg("-c").arg(if wanted == Wanted::Start { start } else { stop });
            made
        }
        // Nobody asks for it: such a plan has no such steps.
        Service::NoServer => Command::new("/bin/true"),
        Service::PgCtl { program, uid, gid, directory, arguments, environment, log } => {
            let mut words: Vec<OsString> = vec!["-i".into()];
            words.extend(environment.iter().map(OsString::from));
            words.extend([
                program.0.clone().into(),
                verb.into(),
                "-D".into(),
                directory.0.clone().into(),
            ]);
            if wanted == Wanted::Start {
                let options: Vec<String> = arguments.iter().map(|word| quoted(word)).collect();
                words.extend(["-W".into(), "-l".into(), log.0.clone().into()]);
                words.extend(["-o".into(), options.join(" ").into()]);
            } else {
                words.extend(["-W".into(), "-m".into(), "fast".into()]);
            }
            let env = system_program("env").unwrap_or_else(|| "/usr/bin/env".into());
            let own = rustix::process::geteuid().as_raw();
            let account = Account { name: uid.to_string(), uid: *uid, gid: *gid };
            // Its own variables only behind the change of account: they name libraries.
            command(&env, &words, (own != *uid).then_some(&account))?
        }
    };
    made.stdin(Stdio::null());
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_is_being_stopped_or_is_to_be_is_told_from_one_that_runs() {
        for stopping in ["Job=412\nActiveState=deactivating\n", "ActiveState=active\nJob=412\n"] {
            assert!(is_stopping_by(stopping), "{stopping}");
        }
        for other in ["Job=\nActiveState=active\n", "ActiveState=active\nJob=0\n", "", "Job=7\n"] {
            assert!(!is_stopping_by(other), "{other}");
        }
        assert!(!is_stopping_by("ActiveState=inactive\nJob=3\n"), "it is to be started");
    }

    #[test]
    fn a_unit_is_taken_from_the_systems_own_slice_only() {
        let of = |path: &str| unit_in(&format!("0::{path}\n"));
        assert_eq!(of("/system.slice/mariadb.service").as_deref(), Some("mariadb.service"));
        let template = "/system.slice/system-postgresql.slice/postgresql@15-main.service";
        assert_eq!(of(template).as_deref(), Some("postgresql@15-main.service"));
        for other in [
            "/",
            "/user.slice/user-0.slice/session-3.scope",
            "/user.slice/user-9.slice/user@9.service/app.slice/db.service",
            "/system.slice/docker-0123.scope",
            "/system.slice/-x y.service",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn a_server_is_started_with_its_own_arguments_and_none_is_a_command() {
        let words =
            ["postgres", "-D", "/data", "-c", "port=1; rm -rf '/'", "-k/run"].map(str::to_owned);
        let (directory, arguments) = split_directory(words.to_vec());
        assert_eq!(directory, Some(PathBuf::from("/data")));
        assert_eq!(arguments, ["-c", "port=1; rm -rf '/'", "-k/run"]);
        assert_eq!(quoted(&arguments[1]), r"'port=1; rm -rf '\''/'\'''");
        assert_eq!(
            split_directory(vec!["postgres".into(), "-D/d".into()]).0,
            Some(PathBuf::from("/d"))
        );
    }
}
