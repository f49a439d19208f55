//! A child process with everything it starts: started unprivileged, watched, killed whole.
//!
//! `setpriv` of util-linux gives up privileges and asks the kernel to kill the child when its
//! parent's thread ends. It does in a program of its own what would take `unsafe` code between fork
//! and exec here.
//!
//! **Invariants**: after [`Process::kill`] no process of the tree runs; a process is killed only if
//! it is the one that was found (its number and its start time).
//! **Deliberately absent**: reading a process's maps or command line, which waits for as long as a
//! dead mount in them does.
//!
//! The kernel's death signal goes with the *thread* that started the child: start a server on a
//! thread that stays.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, OFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::account::Account;
use crate::error::{During, Error, Result};
use crate::installed::system_program;

/// How long is waited between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// How long a killed process may take to be gone; in a system call that hangs it stays longer, and
/// is left to the kernel.
const GONE: Duration = Duration::from_secs(60);
/// How long PostgreSQL may take to end at once: it kills its processes itself after five seconds,
/// and on a busy machine comes to the rest later. One that is killed by us leaves its shared
/// memory, so only one that hangs is.
const AT_ONCE: Duration = Duration::from_secs(60);
/// Bytes of a log's end in an error.
const LOG_END: usize = 1500;

/// One process of the system: its number, and when it started, so that a number used again is not
/// taken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Identity {
    /// Its number.
    pub pid: i32,
    started: u64,
}

/// What /proc/PID/stat says.
struct Stat {
    state: char,
    parent: i32,
    ticks: u64,
    started: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Stat> {
        // The name in parentheses may hold anything.
        let after = text.rsplit_once(')')?.1;
        let fields: Vec<&str> = after.split_whitespace().collect();
        let number = |n: usize| fields.get(n)?.parse::<u64>().ok();
        Some(Stat {
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            // utime, stime, and those of children that ended.
            ticks: (11..=14).filter_map(number).sum(),
            started: number(19)?,
        })
    }
}

impl Identity {
    /// The process that has this number now.
    pub fn of(pid: u32) -> Option<Identity> {
        let pid = i32::try_from(pid).ok()?;
        Some(Identity { pid, started: Stat::read(pid)?.started })
    }

    /// Whether it still runs; one that ended and was not waited for does not.
    pub fn runs(self) -> bool {
        Stat::read(self.pid)
            .is_some_and(|stat| stat.started == self.started && !"ZX".contains(stat.state))
    }

    fn signal(self, signal: Signal) {
        if let (true, Some(pid)) = (self.runs(), Pid::from_raw(self.pid)) {
            let _ = kill_process(pid, signal);
        }
    }

    /// It and all that descend from it.
    pub fn tree(self) -> Vec<Identity> {
        let entries =
            fs::read_dir("/proc").into_iter().flatten().filter_map(std::result::Result::ok);
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let all: Vec<(i32, Stat)> =
            numbers.filter_map(|pid| Some((pid, Stat::read(pid)?))).collect();
        let mut tree = vec![self];
        let mut next = 0;
        while let Some(above) = tree.get(next).copied() {
            next += 1;
            for (pid, stat) in all.iter().filter(|(_, stat)| stat.parent == above.pid) {
                let found = Identity { pid: *pid, started: stat.started };
                if !tree.contains(&found) {
                    tree.push(found);
                }
            }
        }
        tree
    }

    /// Tells a PostgreSQL to end at once, and waits a little; nothing for any other program. Its
    /// shared memory has names in the system (`/dev/shm/PostgreSQL.*`, System V), which only it
    /// takes away: killed, it would leave them.
    pub fn end_if_postgres(self) {
        if fs::read_to_string(format!("/proc/{}/comm", self.pid))
            .is_ok_and(|name| name.trim() == "postgres")
        {
            self.signal(Signal::QUIT);
            let asked = Instant::now();
            while self.runs() && asked.elapsed() < AT_ONCE {
                std::thread::sleep(LOOK);
            }
        }
    }

    /// Kills it and all that descend from it, and waits until they are gone.
    pub fn kill_tree(self) {
        // Stopped first, so that it starts no more while the others are looked for. PostgreSQL's
        // children have sessions of their own: no process group has them all.
        self.signal(Signal::STOP);
        let tree = self.tree();
        for process in &tree {
            process.signal(Signal::KILL);
        }
        let asked = Instant::now();
        while tree.iter().any(|process| process.runs()) && asked.elapsed() < GONE {
            std::thread::sleep(LOOK);
        }
    }
}

/// Bytes that are read of what a program has printed.
const PRINTED_MOST: u64 = 64 << 20;

/// What a program prints, in memory: it has no name that somebody could exchange.
#[derive(Debug)]
pub(crate) struct Printed(File);

impl Printed {
    /// Nothing yet.
    pub(crate) fn new() -> Result<Printed> {
        let file = memfd_create(c"tiersmith-printed", MemfdFlags::CLOEXEC);
        Ok(Printed(file.map(File::from).during("make a file in", "memory")?))
    }

    /// For a program to print to.
    fn file(&self) -> Result<File> {
        self.0.try_clone().during("open again", "what a program prints")
    }

    /// What it has printed until now, of more than 64 MiB the beginning: whoever prints decides how
    /// long the file is.
    pub(crate) fn text(&self) -> String {
        let len = self.0.metadata().map_or(0, |found| found.len()).min(PRINTED_MOST);
        let mut bytes = vec![0; len as usize];
        match self.0.read_exact_at(&mut bytes, 0) {
            Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(_) => String::new(),
        }
    }
}

/// Where a child's log is.
#[derive(Debug)]
enum Log {
    At(PathBuf),
    InMemory(Printed),
}

/// A running child.
#[derive(Debug)]
pub struct Process {
    child: Child,
    identity: Identity,
    log: Log,
}

/// `program` with `arguments` as `account`, without any privilege.
///
/// # Errors
/// `setpriv` is not installed.
pub fn command(
    program: &Path,
    arguments: &[OsString],
    account: Option<&Account>,
) -> Result<Command> {
    command_ended_by("KILL", program, arguments, account)
}

/// Ends a program with all that it has started, also what is no longer its child, when it is told
/// to end or its parent has died.
const WITH_ITS_GROUP: &str = "trap 'kill -9 0' TERM; \"$@\" & wait $!";

/// As [`command`], of a program whose processes do not end with it.
///
/// # Errors
/// `setpriv` is not installed.
pub(crate) fn command_with_group(
    program: &Path,
    arguments: &[OsString],
    account: Option<&Account>,
) -> Result<Command> {
    let mut words: Vec<OsString> = ["-c", WITH_ITS_GROUP, "sh"].map(OsString::from).into();
    words.push(program.into());
    words.extend_from_slice(arguments);
    command_ended_by("TERM", Path::new("/bin/sh"), &words, account)
}

/// `signal`: what it gets when its parent's thread ends.
fn command_ended_by(
    signal: &str,
    program: &Path,
    arguments: &[OsString],
    account: Option<&Account>,
) -> Result<Command> {
    let setpriv = system_program("setpriv").ok_or_else(|| Error::Target {
        what: format!("starting {}", program.display()),
        database: "setpriv".into(),
        reason: "the program is not on PATH; on Debian: apt-get install util-linux".into(),
    })?;
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", signal, "--inh-caps=-all"]);
    if let Some(account) = account {
        command.args([
            "--clear-groups",
            "--reuid",
            &account.uid.to_string(),
            "--regid",
            &account.gid.to_string(),
        ]);
    }
    command.arg("--").arg(program).args(arguments);
    command
        .stdin(Stdio::null())
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC").current_dir("/");
    Ok(command)
}

impl Process {
    /// Starts a command; what it prints goes to the end of `log`.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(mut command: Command, log: &Path) -> Result<Process> {
        let file = append(log)?;
        let second = file.try_clone().during("open again", log)?;
        command.stdout(file).stderr(second);
        Process::spawn(command, Log::At(log.into()))
    }

    /// Starts a command that prints to memory: what it is asked for, and its messages.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn start_printing(
        mut command: Command,
        out: &Printed,
        messages: &Printed,
    ) -> Result<Process> {
        command.stdout(out.file()?).stderr(messages.file()?);
        Process::spawn(command, Log::InMemory(Printed(messages.file()?)))
    }

    fn spawn(mut command: Command, log: Log) -> Result<Process> {
        command.process_group(0);
        let mut child = command.spawn().during("start", command.get_program())?;
        match Identity::of(child.id()) {
            Some(identity) => Ok(Process { child, identity, log }),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                Err(Error::Io {
                    what: "read /proc for",
                    path: command.get_program().into(),
                    source: std::io::ErrorKind::NotFound.into(),
                })
            }
        }
    }

    /// Which process it is.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end for so long; nothing if it still runs.
    pub fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if began.elapsed() > patience {
                return None;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.identity.signal(signal);
    }

    /// Kills it and all that descend from it, and waits until they are gone.
    pub fn kill(&mut self) {
        self.identity.kill_tree();
        let _ = self.child.try_wait();
    }

    /// Processor time of it and its descendants, those included that ended and were waited for.
    pub fn cpu_ns(&self) -> u64 {
        let ticks: u64 = self
            .identity
            .tree()
            .iter()
            .filter_map(|p| Stat::read(p.pid))
            .map(|stat| stat.ticks)
            .sum();
        ticks.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1))
    }

    /// The end of what it printed.
    pub fn log_end(&self) -> String {
        match &self.log {
            Log::At(path) => log_end_at(path),
            Log::InMemory(printed) => log_end(&printed.text()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.identity.end_if_postgres();
            self.kill();
            let _ = self.child.wait();
        }
    }
}

/// Opens a log to write at its end; no link is followed.
pub(super) fn append(log: &Path) -> Result<File> {
    let no_link = OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.create(true).append(true).custom_flags(no_link).open(log).during("open the log", log)
}

/// The end of a log, in one line.
pub(super) fn log_end_at(log: &Path) -> String {
    log_end(&fs::read(log).map_or_else(|_| String::new(), |b| String::from_utf8_lossy(&b).into()))
}

/// The end of a text, in one line.
pub(crate) fn log_end(text: &str) -> String {
    let from = text.char_indices().rev().nth(LOG_END).map_or(0, |(at, _)| at);
    text.get(from..)
        .unwrap_or_default()
        .split('\n')
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect::<Vec<_>>()
        .join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_a_strange_name_is_read() {
        let text = "42 (a) b (c) S 7 42 42 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 12345 6 7 8";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.state, stat.parent, stat.ticks, stat.started), ('S', 7, 100, 12345));
        assert!(Stat::parse("42 nonsense").is_none());
    }

    #[test]
    fn a_killed_tree_is_gone_with_children_that_left_the_group() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let shell = system_program("sh").unwrap();
        let script = ["-c", "setsid sleep 600 & echo started; wait"].map(OsString::from);
        let mut process = Process::start(command(&shell, &script, None).unwrap(), &log).unwrap();
        let began = Instant::now();
        let tree = loop {
            let tree = process.identity().tree();
            if tree.len() >= 2 && fs::read_to_string(&log).unwrap().contains("started") {
                break tree;
            }
            assert!(
                process.ended().is_none() && began.elapsed() < Duration::from_secs(120),
                "{}",
                process.log_end()
            );
            std::thread::sleep(LOOK);
        };
        process.kill();
        assert!(tree.iter().all(|process| !process.runs()));
        drop(process);
    }

    /// As a program that made a copy leaves the process that receives WAL.
    #[test]
    fn a_program_with_its_group_ends_with_what_is_no_longer_its_child() {
        let dir = tempfile::tempdir().unwrap();
        let (log, told) = (dir.path().join("log"), dir.path().join("told"));
        let script = format!("sleep 600 & echo $! > {0}.new; mv {0}.new {0}; wait", told.display());
        let words = ["-c".into(), OsString::from(script)];
        let command = command_with_group(Path::new("/bin/sh"), &words, None).unwrap();
        let mut process = Process::start(command, &log).unwrap();
        let began = Instant::now();
        let child = loop {
            let pid = fs::read_to_string(&told).ok().and_then(|pid| pid.trim().parse().ok());
            if let Some(child) = pid.and_then(Identity::of) {
                break child;
            }
            assert!(began.elapsed() < Duration::from_secs(120), "{}", process.log_end());
            std::thread::sleep(LOOK);
        };
        // Its own parent is gone: it is in no tree of the process that was started.
        let tree = process.identity().tree();
        let between = tree.iter().find(|one| **one != process.identity() && **one != child);
        process.signal(Signal::STOP);
        between.unwrap().signal(Signal::KILL);
        while process.identity().tree().contains(&child) {
            std::thread::sleep(LOOK);
        }
        process.signal(Signal::TERM);
        process.signal(Signal::CONT);
        let ended = Instant::now();
        while child.runs() && ended.elapsed() < Duration::from_secs(120) {
            std::thread::sleep(LOOK);
        }
        assert!(!child.runs() && process.wait(GONE).is_some());
    }
}
