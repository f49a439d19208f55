//! `tiersmith trial`: before and after on the user's own database, and the way back.
//!
//! The command looks, says what it will do, and starts a process without a terminal that does it;
//! from then on it only tells what the trial's journal says. Its end, or that of the terminal,
//! changes nothing of the trial; Ctrl-C asks for the way back.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::json;
use signal_hook::consts::SIGHUP;
use tiersmith_lab::ByteSize;
use tiersmith_lab::trial::alone::Alone;
use tiersmith_lab::trial::found;
use tiersmith_lab::trial::journal::{End, Goal, Journal, Room};
use tiersmith_lab::trial::page::{PAGE, TEXT};
use tiersmith_lab::trial::plan::{Found, Loses, Plan, Step, Wishes};
use tiersmith_lab::trial::{self, run};

use super::awr::length;
use super::{print, print_json};
use crate::Outcome;
use crate::error::{Error, Result};
use crate::messages;

/// How often the journal is read.
const LOOK: Duration = Duration::from_millis(100);
/// How long each period is if nothing is said.
const LENGTH: Duration = Duration::from_secs(1800);

/// Try fast storage on your own database: before, after, and the plain database again
///
/// For PostgreSQL, MariaDB, MySQL, Redis and Valkey here. It records the database under its load,
/// stops it, attaches the fast storage, starts it, records it again, and compares. Then it stops
/// the database once more, detaches, and starts it as it was; with --keep the tier stays.
///
/// Of a SQLite file no server is stopped: LOAD runs on the file as it is, and with its directory
/// attached.
///
/// With --on-copy DIR the database (PostgreSQL) is left alone: it makes a copy of itself into DIR
/// while it runs, a server of its own is started on that, and LOAD runs there, plain and attached.
/// Afterwards the copy is removed. That needs neither root nor a service manager.
///
/// Look first with --check: it touches nothing. Every step is in a journal before it is taken, and
/// the steps are taken by a process that does not need your terminal. Ctrl-C brings the plain
/// database back.
///
/// The password comes from ~/.pgpass or ~/.my.cnf, or from the environment (PGPASSWORD, MYSQL_PWD,
/// REDISCLI_AUTH).
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith trial postgresql:///postgres --fast /mnt/nvme --check
  tiersmith trial postgresql://postgres@/shop?host=/run/postgresql --fast /mnt/nvme --for 30m
  tiersmith trial mariadb:///?socket=/run/mysqld/mysqld.sock --fast /mnt/pmem0 --size 8G -- \
  sysbench oltp_read_write --time=600 run
  tiersmith trial redis://127.0.0.1:6379 --fast /mnt/nvme --for 10m
  tiersmith trial app.db --fast /mnt/nvme -- ./load.sh
  tiersmith trial postgresql:///shop --fast /mnt/nvme --on-copy /srv/copy -- pgbench -T 60 -c 8
  tiersmith trial postgresql:///shop --fast /dev/shm --emulate --on-copy /srv/copy -- ./load.sh
  tiersmith trial --resume          it was killed, or the machine restarted: go on
  tiersmith trial --undo            or bring the plain database back

Exit codes: 0 measured, or brought back as asked; 1 not measured, and it says how the database
stands and what to do; with --check, something speaks against it; 2 error.")]
pub(crate) struct Trial {
    /// The database: postgresql://USER@HOST:PORT/DB, mariadb:// or redis://HOST:PORT, as for
    /// `tiersmith awr record`; or the path of a SQLite file
    #[arg(value_name = "URL", required_unless_present_any = ["resume", "undo"])]
    url: Option<String>,
    /// The fast storage: a directory, a file in one, or a DAX device
    #[arg(long, value_name = "PATH", required_unless_present_any = ["resume", "undo"])]
    fast: Option<PathBuf>,
    /// Bytes of the tier's file [default: 1G]
    #[arg(long, value_name = "BYTES", requires = "url")]
    size: Option<ByteSize>,
    /// How long each period is [default: 30m, or as long as LOAD runs]
    #[arg(long = "for", value_name = "TIME", value_parser = length, requires = "url",
    allow_hyphen_values = true)]
    period: Option<Duration>,
    /// Try it on a copy of the database in DIR, which is empty or not there yet. LOAD is needed:
    /// PGHOST, PGPORT, PGUSER, PGDATABASE and TIERSMITH_URL tell it where the copy is. With --keep
    /// the copy stays, attached
    #[arg(long, value_name = "DIR", requires = "url")]
    on_copy: Option<PathBuf>,
    /// With --on-copy: let any file stand for persistent memory; every figure says EMULATED
    #[arg(long, requires = "url")]
    emulate: bool,
    /// With --on-copy: the fast storage does not survive a power cut, and gets clean copies only
    #[arg(long, requires = "url", conflicts_with = "emulate")]
    volatile: bool,
    /// Only say what would be done, and what speaks against it
    #[arg(long, requires = "url")]
    check: bool,
    /// Leave the tier attached at the end
    #[arg(long, requires = "url")]
    keep: bool,
    /// The command that stops the server [default: its systemd unit, or pg_ctl as the server's
    /// account]
    #[arg(long, value_name = "COMMAND", requires_all = ["start", "url"])]
    stop: Option<String>,
    /// The command that starts the server; it must return
    #[arg(long, value_name = "COMMAND", requires_all = ["stop", "url"])]
    start: Option<String>,
    /// How long the server may take to stop, and to start [default: 20m]
    #[arg(long, value_name = "TIME", value_parser = length, requires = "url",
    allow_hyphen_values = true)]
    patience: Option<Duration>,
    /// Go on with the trial that is not over
    #[arg(long, conflicts_with_all = ["url", "fast", "undo", "load"])]
    resume: bool,
    /// Bring the plain database back from the trial that is not over
    #[arg(long, conflicts_with_all = ["url", "fast", "load"])]
    undo: bool,
    /// Where trials are kept: journals, recordings, pages
    /// [default: /var/lib/tiersmith/trials, or ~/.local/state/tiersmith/trials]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Takes the steps of the trial in this directory
    // With --resume: the manual and the completions are made without what is hidden, so nothing
    // else may ask for it.
    #[arg(long, hide = true, value_name = "DIR", requires = "resume")]
    as_runner: Option<PathBuf>,
    /// A command that is the load of each period
    #[arg(last = true, value_name = "LOAD", requires = "url")]
    load: Vec<String>,
}

impl Trial {
    pub(super) fn run(&self) -> Result<Outcome> {
        if let Some(dir) = &self.as_runner {
            return runner(dir);
        }
        let state = self.state.clone().unwrap_or_else(trial::state_directory);
        // The process that takes the steps is in another directory.
        let state = std::path::absolute(&state).map_err(|source| Error::Io {
            what: "find",
            path: state.clone(),
            source,
        })?;
        let Some((url, fast)) = self.url.as_ref().zip(self.fast.as_ref()) else {
            return self.go_on(&state);
        };
        let (mut left, unread) = Room::unfinished(&state)?;
        if let Some(left) = left.pop() {
            return Err(Error::Usage(format!(
                "cannot begin a trial: the one in {} is not over; `tiersmith trial --resume` goes \
                 on with it, \
                 `tiersmith trial --undo` brings that database back",
                left.path().display()
            )));
        }
        // It may be one that is not over.
        if let Some(unread) = unread.into_iter().next() {
            return Err(unread.into());
        }
        let mut found = found::look(&self.wishes(url, fast))?;
        // A server would be stopped; who has a SQLite file open is nobody's to end.
        let home = found.plan.home.0.clone();
        let dir = found.plan.copy.as_ref().map_or(&home, |copy| &copy.dir.0);
        if state.starts_with(dir) {
            let becomes = if dir == &home { "moved aside" } else { "removed" };
            found.refusals.push(format!(
                "the trial's own files would be in {}, which is {becomes}; give another --state",
                messages::path(&state)
            ));
        }
        if !found.plan.has_server()
            && let Err(used) = crate::mounted::refuse::in_use(&home, &home, false)
        {
            found.refusals.push(used.to_string());
        }
        // Not held: the process that takes the steps does.
        if let Err(other) = Alone::on(&home) {
            found.refusals.push(other.to_string());
        }
        if self.check {
            return self.tell(&found);
        }
        if !found.refusals.is_empty() {
            return Err(Error::Usage(format!(
                "cannot begin a trial of {}: {}. Nothing was changed",
                subject(&found.plan),
                found.refusals.join("; ")
            )));
        }
        if !self.json {
            print(&text(&found))?;
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or(0);
        let room = Room::make(&state, &Journal::new(found.plan), now)?;
        self.follow(&room)
    }

    fn wishes(&self, url: &str, fast: &Path) -> Wishes {
        let given = self.load.is_empty().then_some(LENGTH);
        Wishes {
            url: url.to_owned(),
            fast: fast.to_path_buf(),
            size: self.size,
            length_ms: self.period.or(given).map(milliseconds),
            patience_ms: self.patience.map(milliseconds),
            load: self.load.clone(),
            keep: self.keep,
            commands: self.stop.clone().zip(self.start.clone()),
            on_copy: self.on_copy.clone(),
            loses: match (self.emulate, self.volatile) {
                (true, _) => Some(Loses::Emulated),
                (_, true) => Some(Loses::Volatile),
                _ => None,
            },
        }
    }

    fn tell(&self, found: &Found) -> Result<Outcome> {
        if self.json {
            print_json(found)?;
        } else {
            print(&text(found))?;
        }
        Ok(if found.refusals.is_empty() { Outcome::Good } else { Outcome::Findings })
    }

    fn go_on(&self, state: &Path) -> Result<Outcome> {
        let (mut left, unread) = Room::unfinished(state)?;
        let Some(room) = left.pop() else {
            if let Some(unread) = unread.into_iter().next() {
                return Err(unread.into());
            }
            return Err(Error::Usage(format!(
                "there is no trial in {} that is not over; --state names another directory",
                state.display()
            )));
        };
        for unread in &unread {
            messages::say(&unread.to_string());
        }
        if self.undo {
            room.ask_for_undo()?;
        }
        self.follow(&room)
    }

    /// Tells what the journal says until the trial is over, or nobody takes its steps.
    fn follow(&self, room: &Room) -> Result<Outcome> {
        let interrupted = crate::signals::finish_when_interrupted();
        let mut child: Option<Child> = None;
        // Somebody takes the steps already: a second `--undo`, or one beside the trial itself.
        if room.lock()?.is_some() {
            let program = std::env::current_exe().map_err(|source| Error::Io {
                what: "find",
                path: "this program".into(),
                source,
            })?;
            child = Some(trial::launch(room, &program, &["trial", "--resume", "--as-runner"])?);
        }
        let mut told = 0;
        let mut asked = false;
        loop {
            // Read in this order: what the process wrote before it ended is seen.
            // Ours ends at once if another came before it, which then takes the steps.
            let ended = child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)));
            let gone = ended && room.lock()?.is_some();
            let journal = room.read()?;
            if !self.json {
                told = tell_steps(&journal, told)?;
            }
            if let Some(end) = journal.end {
                return self.ended(room, &journal, end);
            }
            if gone {
                return self.left(room, &journal);
            }
            match interrupted.load(Ordering::Relaxed) {
                0 => {}
                SIGHUP => return Ok(Outcome::Findings),
                _ if !asked => {
                    asked = true;
                    room.ask_for_undo()?;
                }
                _ => {}
            }
            std::thread::sleep(LOOK);
        }
    }

    fn ended(&self, room: &Room, journal: &Journal, end: End) -> Result<Outcome> {
        let (page, text) = (room.path_of(PAGE), room.path_of(TEXT));
        if self.json {
            print_json(&json!({ "end": end, "why": journal.why, "page": page, "text": text }))?;
        } else {
            let why = journal.why.as_ref().map(|why| format!(" ({})", messages::line(why)));
            let why = why.unwrap_or_default();
            let stands = stands(&journal.plan, end);
            print(&match end {
                End::Plain | End::Kept => format!(
                    "measured{why}; {stands}\n\n{}page: {}\n",
                    first_section(&room.read_text(TEXT).unwrap_or_default()),
                    page.display()
                ),
                End::Undone => format!("not measured{why}; {stands}\n"),
            })?;
        }
        let as_asked =
            if self.undo { true } else { end != End::Undone && journal.goal == Goal::Measure };
        Ok(if as_asked { Outcome::Good } else { Outcome::Findings })
    }

    /// Nobody takes the steps, and the trial is not over.
    fn left(&self, room: &Room, journal: &Journal) -> Result<Outcome> {
        let step = journal.taken.last().map_or("begin", |taken| taken.step.name());
        let why = journal
            .why
            .clone()
            .unwrap_or_else(|| "the process that took its steps was killed".into());
        if self.json {
            print_json(&json!({ "end": null, "step": step, "why": why, "trial": room.path() }))?;
        } else {
            let undo = match journal.plan.copy {
                Some(_) => "removes the copy",
                None => "brings the plain database back",
            };
            print(&format!(
                "the trial is not over: {}, at the step `{step}`. `tiersmith trial --resume` goes \
                 on, `tiersmith trial --undo` {undo}; its journal and log are in {}\n",
                messages::line(&why),
                room.path().display()
            ))?;
        }
        Ok(Outcome::Findings)
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The process without a terminal.
fn runner(dir: &Path) -> Result<Outcome> {
    // Its own session: what ends the terminal does not end it. It fails only for who leads one
    // already.
    let _ = rustix::process::setsid();
    let room = Room::open(dir)?;
    let Some(_lock) = room.lock()? else { return Ok(Outcome::Good) };
    let program = std::env::current_exe().map_err(|source| Error::Io {
        what: "find",
        path: "this program".into(),
        source,
    })?;
    let journal = run::take_steps(&room, &program)?;
    Ok(if journal.end == Some(End::Undone) { Outcome::Findings } else { Outcome::Good })
}

/// Prints the steps that were begun or done since; returns how many lines have been told.
fn tell_steps(journal: &Journal, told: usize) -> Result<usize> {
    let mut lines = Vec::new();
    for taken in &journal.taken {
        let what = match taken.step {
            Step::Undo if journal.plan.copy.is_some() => Step::Remove.text(),
            step => step.text(),
        };
        lines.push(format!("{:<12} {what}\n", taken.step.name()));
        if let Some(said) = &taken.said {
            lines.push(format!("{:<12} failed: {}\n", "", messages::line(said)));
        }
    }
    for line in lines.iter().skip(told) {
        print(line)?;
    }
    Ok(lines.len())
}

/// How the database stands when a trial is over, for people.
fn stands(plan: &Plan, end: End) -> String {
    let runs = |text: &'static str| if plan.has_server() { text } else { "" };
    match (end, plan.copy.is_some()) {
        (End::Plain, false) => format!("the database is plain again{}", runs(" and runs")),
        (End::Kept, false) => {
            format!("the tier stays attached{}", runs(", and the database runs"))
        }
        (End::Undone, false) => format!("the database is plain{}", runs(" and runs")),
        (End::Plain, true) => "the copy is removed, and the database was not touched".to_owned(),
        (End::Kept, true) => {
            "the copy stays, attached, and its server runs; the database was not touched".to_owned()
        }
        (End::Undone, true) => "no copy is left, and the database was not touched".to_owned(),
    }
}

/// What a trial is of, for people.
fn subject(plan: &Plan) -> String {
    match &plan.copy {
        Some(copy) => messages::line(&copy.of),
        None => messages::path(&plan.home.0),
    }
}

/// What was found before anything is touched, for people.
fn text(found: &Found) -> String {
    let plan = &found.plan;
    let on_copy = plan
        .copy
        .as_ref()
        .map_or_else(String::new, |copy| format!(" on a copy in {}", messages::path(&copy.dir.0)));
    let mut out =
        format!("{}: a trial{on_copy} with {}\n", subject(plan), messages::path(&plan.fast.0));
    for (what, lines) in
        [("", &found.notes), ("warning: ", &found.warnings), ("REFUSED: ", &found.refusals)]
    {
        for line in lines {
            out.push_str(&format!("  {what}{}\n", messages::line(line)));
        }
    }
    out
}

/// The report's own first section: the trial's.
fn first_section(text: &str) -> String {
    let Some((_, rest)) = text.split_once("The Trial") else { return String::new() };
    let end = rest.find("Report Summary").unwrap_or(rest.len());
    let kept: Vec<&str> =
        rest[..end].lines().skip(1).filter(|line| !line.trim_matches('=').is_empty()).collect();
    format!("{}\n\n", kept.join("\n"))
}
