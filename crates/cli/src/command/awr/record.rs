//! `tiersmith awr record`: snapshots of databases on a schedule, around a command or for a time.
//!
//! What is recorded is in the repository as soon as it was taken. A signal ends a recording as its
//! length does; around a command it is handed on to the command, whose end is that of the
//! recording.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tiersmith_awr::record::{Plan, Recorded, Recorder};
use tiersmith_awr::sources::{self, Address, Asking, LiveSource, Surroundings};
use tiersmith_awr::{AnyRepository, NamesKey, Redaction, Sampling, Snapshot};

use super::super::{print, print_json};
use super::attached::Attached;
use crate::Outcome;
use crate::error::{Error, Result};

/// Record databases: a snapshot now, one every so often, one at the end
///
/// A source is postgresql://USER@HOST:PORT/DB, mysql://USER@HOST:PORT or mariadb://,
/// redis://HOST:PORT or unix:///SOCKET, `host` for the machine alone, the directory of a mounted
/// home, or the file of an attached SQLite database while its program has it open. Sockets:
/// postgresql:///DB?host=DIRECTORY, mysql:///?socket=PATH.
///
/// Passwords come from the environment (PGPASSWORD, MYSQL_PWD, REDISCLI_AUTH), from ~/.pgpass, from
/// PostgreSQL's service file (?service=NAME) or from ~/.my.cnf; a URL with a password in it is
/// refused, because everybody on the machine can read it.
///
/// Connections are encrypted as the databases' own programs do it:
/// ?sslmode=verify-full&sslrootcert=FILE and PGSSLMODE for PostgreSQL,
/// ?ssl-mode=VERIFY_IDENTITY&ssl-ca=FILE and ~/.my.cnf for MariaDB and MySQL,
/// rediss://HOST?cacert=FILE for Redis and Valkey.
///
/// What a user may not see is left out and named, with the grant that gives it: pg_monitor for
/// PostgreSQL; PROCESS and SELECT on performance_schema for MariaDB and MySQL.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith awr record --source postgresql:///postgres -- pgbench -T 60 -c 8
  tiersmith awr record --source mariadb://monitor@db1 --source redis://db1 --every 1m --for 1h \
  --to load.db
  tiersmith awr record --source host --every 10s --for 10m --name quiet
  tiersmith awr record --source app.db --every 10s --for 10m    while its program has the attached \
  database open
  tiersmith awr record --source mariadb://monitor@db1 --to postgresql://awr@db0/fleet --keep 30d
  tiersmith awr report                               all that was recorded last

Exit codes: 0 recorded; 1 a source could not be asked at times, or the command failed; 2 error.")]
pub(crate) struct Record {
    /// What to record; may be given several times
    #[arg(long, value_name = "URL", required = true)]
    source: Vec<String>,
    /// The repository, made if it is not there: one file, or postgresql://USER@HOST/DB
    #[arg(long, value_name = "PATH", default_value = super::DEFAULT_FILE)]
    to: PathBuf,
    /// The time from one snapshot to the next
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration,
    allow_hyphen_values = true)]
    every: Duration,
    /// How long to record; without it as long as the command runs, or until Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = length, allow_hyphen_values = true)]
    length: Option<Duration>,
    /// The time from one look at the active sessions to the next, where waits can only be sampled;
    /// 0 for none
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration,
    allow_hyphen_values = true)]
    sample: Duration,
    /// Remove snapshots of these sources that are older; those of baselines stay
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
    keep: Option<Duration>,
    /// Name what is recorded, as a baseline, unless Ctrl-C ends it; with several sources the
    /// source's number is put behind it
    #[arg(long, value_name = "NAME",
    value_parser = clap::builder::NonEmptyStringValueParser::new())]
    name: Option<String>,
    #[command(flatten)]
    asking: HowToAsk,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// A command to run while recording; the recording ends with it
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// How sources are asked.
#[derive(Clone, Debug, Args)]
pub(in crate::command) struct HowToAsk {
    /// What is kept of statements: their text without literals, no text, or no text and no names
    #[arg(long, value_name = "HOW", value_enum, default_value = "redacted")]
    sql: Sql,
    /// How many statements a snapshot holds
    #[arg(long, value_name = "N", default_value_t = 200)]
    statements: usize,
}

/// What is kept of statements.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Sql {
    /// Their text without literals
    Redacted,
    /// No text
    None,
    /// No text, and marks (pseudonyms) instead of names of databases, hosts and paths
    Anonymous,
}

impl HowToAsk {
    pub(super) fn asking(&self) -> Result<Asking> {
        let redaction = match self.sql {
            Sql::Redacted => Redaction::Literals,
            Sql::None => Redaction::Text,
            Sql::Anonymous => Redaction::Names(NamesKey::of_user()?),
        };
        Ok(Asking { redaction, statements: self.statements, ..Asking::default() })
    }

    /// The source of this name: an address, a mounted home, or an attached SQLite database.
    pub(in crate::command) fn open(&self, source: &str) -> Result<Box<dyn LiveSource>> {
        let asking = self.asking()?;
        if Address::is_one(source) {
            return Ok(sources::open(
                &Address::parse(source)?,
                &asking,
                &Surroundings::of_process(),
            )?);
        }
        let path = PathBuf::from(source);
        if crate::command::home::is_database_file(&path) {
            return Ok(Box::new(Attached::open(&path, asking.redaction)?));
        }
        if crate::mounted::snapshot(&path)?.is_none() {
            return Err(Error::Usage(format!(
                "cannot record {}: it is neither a mounted home nor an attached SQLite database. \
                 Give the directory of a mounted home, \
                 the file of an attached database, or a URL such as postgresql:///postgres",
                path.display()
            )));
        }
        Ok(Box::new(Mounted {
            name: path.display().to_string(),
            path,
            redaction: asking.redaction,
        }))
    }
}

/// A mounted home, asked through its daemon.
struct Mounted {
    name: String,
    path: PathBuf,
    redaction: Redaction,
}

impl LiveSource for Mounted {
    fn name(&self) -> &str {
        &self.name
    }

    fn kept_as(&self) -> String {
        self.redaction.name(&self.name)
    }

    fn snapshot(&mut self) -> tiersmith_awr::Result<Snapshot> {
        let failed = |reason: String| tiersmith_awr::Error::Source {
            action: "ask the daemon of",
            place: self.name.clone(),
            reason,
            remedy: "`tiersmith status` says whether the home is mounted".to_owned(),
        };
        let asked = crate::mounted::snapshot(&self.path).map_err(|e| failed(e.to_string()))?;
        let mut snapshot = asked.ok_or_else(|| failed("it is not mounted any more".to_owned()))?;
        self.redaction.apply(&mut snapshot);
        Ok(snapshot)
    }

    fn look(&mut self, _: &mut Sampling) -> tiersmith_awr::Result<bool> {
        Ok(false)
    }
}

/// Waits for a command, and hands on to it what this program was asked to end by. A terminal sends
/// its interrupt to both.
fn wait_for(child: &mut Child, asked: &AtomicI32) -> std::io::Result<ExitStatus> {
    let mut handed_on = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let signal = asked.load(Ordering::Relaxed);
        if signal != 0 && signal != signal_hook::consts::SIGINT && !handed_on {
            let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            let signal =
                if signal == signal_hook::consts::SIGHUP { Signal::HUP } else { Signal::TERM };
            // It may have ended just now: then that is seen next.
            let _ = process.map(|process| kill_process(process, signal));
            handed_on = true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A time with its unit.
pub(in crate::command) fn duration(text: &str) -> std::result::Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[digits.len()..];
    let ms_of = match unit {
        "ms" => 1.0,
        "s" => 1e3,
        "m" | "min" => 6e4,
        "h" => 3.6e6,
        "d" => 8.64e7,
        "" if digits == "0" => 0.0,
        _ => return Err("write a number with ms, s, m, h or d, for instance 30s".to_owned()),
    };
    let number: f64 = digits
        .parse()
        .map_err(|_| "write a number with ms, s, m, h or d, for instance 30s".to_owned())?;
    let ms = number * ms_of;
    if ms < 0.0 {
        return Err(
            "a time is not negative; write it without the minus, for instance 30s".to_owned()
        );
    }
    // Ten years: more is a slip of the keyboard.
    if !(0.0..=3.2e11).contains(&ms) {
        return Err("give a time of at most ten years".to_owned());
    }
    Ok(Duration::from_millis(ms as u64))
}

/// How long something goes on: a time, and not none.
pub(in crate::command) fn length(text: &str) -> std::result::Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => {
            Err("nothing happens in no time; give a length, for instance 30s".to_owned())
        }
        length => Ok(length),
    }
}

impl Record {
    pub(super) fn run(&self) -> Result<Outcome> {
        if self.every < Duration::from_millis(100) {
            return Err(Error::Usage(
                "cannot take a snapshot more often than ten times a second; give --every 100ms or \
                 more"
                    .into(),
            ));
        }
        let plan = Plan {
            every: self.every,
            length: self.length,
            sample: Some(self.sample).filter(|period| !period.is_zero()),
            keep: self.keep,
        };
        self.no_source_twice()?;
        let names: Vec<String> = match &self.name {
            Some(name) => {
                (0..self.source.len()).map(|number| self.baseline(name, number)).collect()
            }
            None => Vec::new(),
        };
        // Before anything is recorded: a name that does not fit would be noticed at the end only.
        let unfit = self
            .name
            .iter()
            .chain(&names)
            .find_map(|name| tiersmith_awr::archive::unfit_name(name));
        if let Some(reason) = unfit {
            return Err(Error::Usage(format!(
                "cannot name a baseline: {reason}; give another --name"
            )));
        }
        // A directory of snapshots is refused before anything is asked. What is not there is made
        // when all sources have answered: a slip in an address leaves no file behind.
        let new_file = !Address::is_one(&self.to.to_string_lossy()) && !self.to.exists();
        let early = if new_file { Some(self.sources()?) } else { None };
        let archive = AnyRepository::open(&self.to)?.archive(&self.to)?;
        if !names.is_empty()
            && let Some(there) =
                archive.baselines()?.into_iter().find(|of| names.contains(&of.name))
        {
            return Err(Error::Usage(format!(
                "there is a baseline `{}` in {}; give another --name, or drop that one with \
                 `tiersmith awr baseline drop`",
                there.name,
                self.to.display()
            )));
        }
        drop(archive);
        let sources = early.map_or_else(|| self.sources(), Ok)?;
        let asked = crate::signals::finish_when_interrupted();
        let recorder = Recorder::begin(sources, &self.to, plan)?;
        let (recorded, failed) = match self.command.split_first() {
            None => (recorder.run(&|| asked.load(Ordering::Relaxed) != 0)?, None),
            Some((program, arguments)) => self.around(recorder, program, arguments, &asked)?,
        };
        let named = self.name.as_ref().map_or(Ok(true), |name| self.name_it(name, &recorded));
        // What was recorded is said also where it could not be named.
        let outcome = self.say(&recorded, failed.as_deref())?;
        named.map(|all| if all { outcome } else { Outcome::Findings })
    }

    fn sources(&self) -> Result<Vec<Box<dyn LiveSource>>> {
        self.source.iter().map(|source| self.asking.open(source)).collect()
    }

    /// Two recorders of one source in one repository would count everything twice.
    fn no_source_twice(&self) -> Result<()> {
        let mut names: Vec<String> = Vec::new();
        for source in &self.source {
            let name = match Address::is_one(source) {
                true => Address::parse(source)?.shown(),
                // One home by two paths is one home.
                false => std::fs::canonicalize(source)
                    .map_or_else(|_| source.clone(), |path| path.display().to_string()),
            };
            if names.contains(&name) {
                return Err(Error::Usage(format!("{name} was given twice; give each source once")));
            }
            names.push(name);
        }
        Ok(())
    }

    /// Runs the command and records until it ends. What went wrong with it, if something did.
    fn around(
        &self,
        recorder: Recorder,
        program: &str,
        arguments: &[String],
        asked: &AtomicI32,
    ) -> Result<(Vec<Recorded>, Option<String>)> {
        let mut command = Command::new(program);
        command.args(arguments);
        if self.json {
            // Standard output is for the JSON alone.
            command.stdout(Stdio::from(std::io::stderr()));
        }
        let mut child = command.spawn().map_err(|source| Error::Io {
            what: "run",
            path: PathBuf::from(program),
            source,
        })?;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let recording = scope.spawn(|| recorder.run(&|| over.load(Ordering::Relaxed)));
            let ended = wait_for(&mut child, asked);
            over.store(true, Ordering::Relaxed);
            let recorded = recording.join().expect("BUG: the recorder does not panic")?;
            let failed = match ended {
                Ok(status) if status.success() => None,
                Ok(status) => Some(format!("{program} ended with {status}")),
                Err(e) => Some(format!("{program} cannot be waited for: {e}")),
            };
            Ok((recorded, failed))
        })
    }

    /// The name of the baseline of the source of this number.
    fn baseline(&self, name: &str, number: usize) -> String {
        if self.source.len() > 1 { format!("{name}-{}", number + 1) } else { name.to_owned() }
    }

    /// Names what was recorded of each source. False if there is one of which too little was
    /// recorded to be named.
    fn name_it(&self, name: &str, recorded: &[Recorded]) -> Result<bool> {
        let archive = AnyRepository::existing(&self.to)?.archive(&self.to)?;
        let mut all = true;
        for (number, of) in recorded.iter().enumerate() {
            let name = self.baseline(name, number);
            match (of.taken.first(), of.taken.last()) {
                (Some(first), Some(last)) if first < last => {
                    archive.add_baseline(&name, *first, *last)?
                }
                _ => {
                    all = false;
                    log::warn!(
                        "{} has no two snapshots, which a baseline needs: `{name}` is not given",
                        of.source
                    );
                }
            }
        }
        Ok(all)
    }

    fn say(&self, recorded: &[Recorded], failed: Option<&str>) -> Result<Outcome> {
        if self.json {
            let all: Vec<_> = recorded
                .iter()
                .map(|of| {
                    json!({ "source": of.source, "snapshots": of.taken, "gaps": of.gaps,
                "lost": of.lost, "looks": of.looks })
                })
                .collect();
            print_json(
                &json!({ "repository": self.to, "recorded": all, "command_failed": failed }),
            )?;
        } else {
            print(&text(&self.to, recorded))?;
        }
        if let Some(failed) = failed {
            log::warn!("{failed}; what was recorded is kept");
        }
        let whole = failed.is_none() && recorded.iter().all(|of| of.gaps == 0);
        Ok(if whole { Outcome::Good } else { Outcome::Findings })
    }
}

fn text(to: &Path, recorded: &[Recorded]) -> String {
    let mut out = String::new();
    for of in recorded {
        let (first, last) = (of.taken.first(), of.taken.last());
        let ids =
            first.zip(last).map_or("none".to_owned(), |(first, last)| format!("{first} to {last}"));
        out.push_str(&format!(
            "{}: {} snapshots, {ids}\n",
            tiersmith_awr::figure::visible(&of.source),
            of.taken.len()
        ));
        if of.gaps > 0 {
            out.push_str(&format!(
                "  {} times it, or the repository, could not be asked; `tiersmith awr list {}` \
                 says why\n",
                of.gaps,
                to.display()
            ));
        }
        if of.lost > 0 {
            out.push_str(&format!(
                "  {} snapshots and gaps are lost: the repository was away at the end\n",
                of.lost
            ));
        }
        if let Some((first, last)) = first.zip(last).filter(|(first, last)| first != last) {
            out.push_str(&format!("  tiersmith awr report --in {} {first} {last}\n", to.display()));
        }
    }
    out
}
