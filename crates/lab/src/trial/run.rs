//! Taking the steps of a trial, and going back.
//!
//! A step makes so what it is called, from whatever it finds: it can be taken again after a crash,
//! a reboot, or a start of the server that nobody asked for. So going on after an interruption is
//! taking the first step again that the journal does not call done.
//!
//! | killed while | the server | then |
//! |---|---|---|
//! | it records | runs | `--resume` records again, `--undo` detaches if there is something attached |
//! | it stops, attaches, detaches or starts | may be stopped; its directory is plain or attached | either goes on from there |
//! | it makes or removes a copy | was not touched | `--resume` makes the copy again, `--undo` removes it |
//!
//! Invariants: the server is stopped before its directory is attached or detached; a step that
//! fails leads back to the plain database, and if that cannot be had, to the server running on the
//! tier.
//! Deliberately absent: the terminal (the process that takes the steps has none).

use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;
use tiersmith_awr::figure;
use tiersmith_awr::sources::Address;

use super::alone::Alone;
use super::answering;
use super::copy::OnCopy;
use super::journal::{End, Goal, Journal, Room, Taken};
use super::page;
use super::plan::{Database, Service, Step};
use super::redis;
use super::service::{self, Wanted};
use super::which::Which;
use crate::error::{During, Error, Result};
use crate::process::{Process, log_end_at};

/// How long a recording may take to end when it is asked to.
const END: Duration = Duration::from_secs(30);
/// How long a server may take to stop although the command that stops it failed.
const FAILED: Duration = Duration::from_secs(5);
/// How long is waited for what a command has done when it took all the time itself.
const AFTER: Duration = Duration::from_secs(1);
/// How long the command that stops a server may go on when the server is gone.
const AFTER_GONE: Duration = Duration::from_secs(30);
/// How long is waited between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// How often attach and detach are tried while something still uses the directory.
const TRIES: usize = 40;
/// How long is waited between two of these.
const BETWEEN: Duration = Duration::from_millis(500);

/// How a home stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Plain,
    Mounted,
    /// Attached, and not mounted or not to be asked.
    Unmounted,
}

/// Takes the steps that are left, and returns what the journal says then.
///
/// # Errors
/// The way back failed too, or the journal cannot be written; the journal says how far it came.
pub fn take_steps(room: &Room, program: &Path) -> Result<Journal> {
    let mut runner = Runner { journal: room.read()?, room, program };
    let done = Alone::on(&runner.journal.plan.home.0).and_then(|_alone| runner.run());
    if let Err(e) = &done {
        runner.journal.why = Some(format!("{e}; {}", runner.state()));
        // One that never began is over: there is nothing to go on with, or back from.
        if runner.journal.taken.is_empty() {
            runner.journal.end = Some(End::Undone);
        }
        room.write(&runner.journal)?;
    }
    done.map(|()| runner.journal)
}

struct Runner<'a> {
    room: &'a Room,
    program: &'a Path,
    journal: Journal,
}

impl Runner<'_> {
    fn run(&mut self) -> Result<()> {
        if self.journal.end.is_some() {
            return Ok(());
        }
        self.end_helper()?;
        while self.journal.goal == Goal::Measure {
            if self.room.undo_is_asked() {
                self.go_back("it was asked for".into())?;
                break;
            }
            let next =
                self.journal.plan.steps().into_iter().find(|step| !self.journal.is_done(*step));
            let Some(step) = next else {
                return self.end(if self.journal.plan.keep { End::Kept } else { End::Plain });
            };
            if let Err(e) = self.take(step) {
                // Without its page, the trial has come to its end all the same.
                if step == Step::Report {
                    self.journal.why = Some(e.to_string());
                    return self.end(if self.journal.plan.keep { End::Kept } else { End::Plain });
                }
                self.go_back(format!("{}: {e}", step.name()))?;
            }
        }
        self.take(Step::Undo)?;
        if self.journal.is_done(Step::Measure) && self.take(Step::Report).is_ok() {
            return self.end(End::Plain);
        }
        self.end(End::Undone)
    }

    /// How the database stands, for people: looked at, and not taken from the journal.
    fn state(&self) -> String {
        let directory = match self.standing() {
            Ok(Standing::Plain) => "plain",
            Ok(Standing::Mounted) => "attached",
            Ok(Standing::Unmounted) => "attached and not mounted",
            Err(_) => "not to be looked at",
        };
        let home = self.journal.plan.home.0.display();
        if !self.journal.plan.has_server() {
            return format!("{home} is {directory}");
        }
        if self.journal.plan.copy.is_some() && !self.has_home() {
            return "the database was not touched, and there is no copy of it".to_owned();
        }
        let server = match service::processes_in(&self.journal.plan.home.0).is_empty() {
            true => "no server runs in it",
            false if matches!(self.answers(), Ok(true)) => "the server runs and answers",
            false => "a server runs in it and does not answer",
        };
        let original =
            self.journal.plan.copy.as_ref().map_or("", |_| "; the database itself was not touched");
        format!("{home} is {directory}, and {server}{original}")
    }

    /// Whether there is something at the home's path; one that cannot be looked at is there.
    fn has_home(&self) -> bool {
        let home = self.journal.plan.home.0.symlink_metadata();
        !home.is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
    }

    fn end(&mut self, end: End) -> Result<()> {
        self.journal.end = Some(end);
        self.room.write(&self.journal)
    }

    fn go_back(&mut self, why: String) -> Result<()> {
        self.journal.goal = Goal::Undo;
        self.journal.why = Some(why);
        self.note()
    }

    /// Writes the journal. The way back finds out by itself how everything stands: it goes on where
    /// the journal cannot be written, because a full disk must not leave the server stopped.
    fn note(&self) -> Result<()> {
        match self.room.write(&self.journal) {
            Err(e) if self.journal.goal == Goal::Undo => {
                // The log may be on the same full disk.
                let _ = writeln!(std::io::stderr(), "{e}; the way back goes on without it");
                Ok(())
            }
            written => written,
        }
    }

    /// What a killed process of this trial had started: a recording and a copy are ended, anything
    /// else awaited.
    fn end_helper(&self) -> Result<()> {
        let Some(last) = self.journal.taken.last() else { return Ok(()) };
        let Some(helper) = last.helper.filter(|helper| !last.done && helper.runs()) else {
            return Ok(());
        };
        // The command to start the server is the server itself: it is not to end.
        let servers = service::processes_in(&self.journal.plan.home.0);
        if helper.tree().iter().any(|process| servers.contains(process)) {
            return Ok(());
        }
        if matches!(last.step, Step::Copy | Step::Baseline | Step::Measure) {
            helper.kill_tree();
            return Ok(());
        }
        let began = Instant::now();
        while helper.runs() {
            if began.elapsed() > self.journal.plan.patience() {
                helper.kill_tree();
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn take(&mut self, step: Step) -> Result<()> {
        let at = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis();
        let at_unix_ms = u64::try_from(at).unwrap_or(0);
        self.journal.taken.push(Taken { step, at_unix_ms, done: false, said: None, helper: None });
        self.note()?;
        end_here(step, "begun");
        let done = self.act(step);
        end_here(step, "acted");
        if let Some(taken) = self.journal.taken.last_mut() {
            taken.done = done.is_ok();
            taken.said = done.as_ref().err().map(ToString::to_string);
        }
        self.note()?;
        done
    }

    fn act(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Copy => self.copy(),
            Step::Baseline => {
                self.run_plain()?;
                self.record("before", step)
            }
            Step::Stop | Step::StopAgain => self.stop(),
            Step::Attach => self.attach(),
            Step::Start => {
                self.attach()?;
                self.start()
            }
            Step::Measure => {
                if self.standing()? != Standing::Mounted {
                    self.attach()?;
                }
                self.start()?;
                self.record("after", step)?;
                let status = self.ask_program("status")?;
                self.room.put("tier.json", &status)
            }
            Step::Detach => self.detach(),
            Step::StartAgain => self.run_plain(),
            Step::Remove => self.remove_copy(),
            Step::Report => page::write(self.room, &self.journal),
            Step::Undo if self.journal.plan.copy.is_some() => self.remove_copy(),
            Step::Undo => self.undo(),
        }
    }

    /// The plain database, running.
    fn run_plain(&mut self) -> Result<()> {
        if self.standing()? != Standing::Plain {
            self.detach()?;
        }
        self.start()
    }

    /// A copy of the database, plain, whose server does not run.
    fn copy(&mut self) -> Result<()> {
        // One that is not whole is begun again.
        self.remove_copy()?;
        let plan = self.journal.plan.clone();
        let Some(copy) = &plan.copy else { return Ok(()) };
        copy.prepare(&plan)?;
        let mut process = self.spawn(copy.making(&plan)?)?;
        end_here(Step::Copy, "running");
        let status = self.wait_for(&mut process, "copying the database")?;
        if !status.success() {
            let reason = format!("it ended with {status} and said: {}", process.log_end());
            return Err(self.failed("copying the database", reason));
        }
        copy.make_its_own(&plan)?;
        self.journal.plan.home_is = Some(Which::at(&plan.home.0)?);
        Ok(())
    }

    /// No copy, and no server on it.
    fn remove_copy(&mut self) -> Result<()> {
        let Some(copy) = self.journal.plan.copy.clone() else { return Ok(()) };
        if copy.is_there()? && self.has_home() {
            self.stop()?;
            if self.standing()? != Standing::Plain
                && let Err(why) = self.detach()
            {
                // After a reboot a tier in memory is gone, and what was in it is not needed.
                let mut command = Command::new(self.program);
                command.args(["detach", "--force-without-tier"]).arg(&self.journal.plan.home.0);
                // It fails for what it gives up, too.
                let _ = self.succeeds(command, "detaching without the tier");
                if self.standing()? != Standing::Plain {
                    return Err(why);
                }
            }
        }
        copy.remove()
    }

    fn undo(&mut self) -> Result<()> {
        let Err(why) = self.run_plain() else { return Ok(()) };
        // The tier cannot be taken away now: then the database runs on it.
        if self.standing()? != Standing::Plain {
            self.attach()?;
        }
        self.start()?;
        // It was only slow to start, or was stopped behind our back.
        if self.standing()? == Standing::Plain {
            return Ok(());
        }
        let what = "bringing the plain database back";
        let reason =
            format!("{why}; the database is attached, and in use. Mend that, and undo again");
        Err(self.failed(what, reason))
    }

    /// Whether the server answers, and with this directory, here: another machine's may be called
    /// the same.
    fn answers(&self) -> Result<bool> {
        if !self.journal.plan.has_server() {
            return Ok(true);
        }
        let is_here = !service::processes_in(&self.journal.plan.home.0).is_empty();
        Ok(is_here && self.ask_for_home()?.is_ok())
    }

    /// Asks the server for its directory; why it is not this one.
    fn ask_for_home(&self) -> Result<std::result::Result<(), String>> {
        let plan = &self.journal.plan;
        let address = Address::parse(&plan.url)?;
        let Some(database) = Database::of(&address) else {
            return Ok(Err("there is no trial of it".into()));
        };
        let directory = match plan.ask(&[database.directory()]) {
            Ok(rows) => database.directory_of(&rows),
            Err(e) => return Ok(Err(e.to_string())),
        };
        // As it is configured, which may be through a link.
        let given = Path::new(directory.trim_end_matches('/'));
        let is_home =
            given == plan.home.0 || given.canonicalize().is_ok_and(|real| real == plan.home.0);
        if !is_home {
            return Ok(Err(format!("its directory is {directory}")));
        }
        Ok(answering::is_here(&address, database, &plan.home.0))
    }

    fn stop(&mut self) -> Result<()> {
        let home = self.journal.plan.home.0.clone();
        if !self.journal.plan.has_server() || service::processes_in(&home).is_empty() {
            return Ok(());
        }
        // One that was started in the note's directory, as after a reboot, has no data to keep.
        let has_data = self.standing()? != Standing::Unmounted;
        if let Some(address) = self.redis()?.filter(|_| has_data) {
            redis::prepare_stop(&address, self.journal.plan.patience())?;
        }
        self.stop_service(&home)
    }

    /// The address, if it is of a Redis or Valkey.
    fn redis(&self) -> Result<Option<Address>> {
        if !self.journal.plan.has_server() {
            return Ok(None);
        }
        let address = Address::parse(&self.journal.plan.url)?;
        Ok((Database::of(&address) == Some(Database::Redis)).then_some(address))
    }

    fn stop_service(&mut self, home: &Path) -> Result<()> {
        let began = Instant::now();
        let ended = self.service(Wanted::Stop)?;
        let failed = ended.is_some_and(|status| !status.success());
        let until = match failed {
            true => began.elapsed() + FAILED,
            false => self.journal.plan.patience().max(began.elapsed() + AFTER),
        };
        while !service::processes_in(home).is_empty() {
            if began.elapsed() > until {
                let how = self.how(ended);
                let log = log_end_at(&self.room.path_of("log"));
                let reason =
                    format!("it still runs; the command to stop it: {how}; it printed: {log}");
                return Err(self.failed("stopping the server", reason));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn start(&mut self) -> Result<()> {
        // A stop that was given up may not be over: the service manager still carries it out.
        let is_stopping = service::is_stopping(&self.journal.plan.service);
        if self.answers()? && !is_stopping {
            return self.look_after_start();
        }
        let home = self.journal.plan.home.0.clone();
        let began = Instant::now();
        let ended = if is_stopping || service::processes_in(&home).is_empty() {
            self.service(Wanted::Start)?
        } else {
            None
        };
        let until = self.journal.plan.patience().max(began.elapsed() + AFTER);
        while let Err(why) = self.ask_for_home()? {
            let failed = ended.is_some_and(|status| !status.success());
            // A server that could not be started leaves nothing that runs.
            let gone = began.elapsed() > END && service::processes_in(&home).is_empty();
            // Nor does waiting help where the server runs and lets nobody in, as after a password
            // was changed.
            let refused = began.elapsed() > END && is_refused_login(&why);
            let failed = failed && service::processes_in(&home).is_empty();
            if failed || gone || refused || began.elapsed() > until {
                let how = self.how(ended);
                // What the server of a copy says goes with the copy.
                let log = match &self.journal.plan.copy {
                    Some(copy) => copy.log_end(),
                    None => log_end_at(&self.room.path_of("log")),
                };
                let reason = format!(
                    "it does not answer: {why}; the command to start it: {how}; it printed: {log}"
                );
                return Err(self.failed("starting the server", reason));
            }
            std::thread::sleep(LOOK);
        }
        self.look_after_start()
    }

    fn look_after_start(&self) -> Result<()> {
        match self.redis()? {
            Some(address) => redis::look_after_start(&address),
            None => Ok(()),
        }
    }

    /// How the command to stop or to start the server ended.
    fn how(&self, ended: Option<ExitStatus>) -> String {
        let patience = self.journal.plan.patience();
        let hung = || format!("did not end in {}", figure::nanoseconds(patience.as_nanos() as f64));
        ended.map_or_else(hung, |status| status.to_string())
    }

    /// Runs the command that stops or starts the server; nothing if it does not end. One that hangs
    /// is ended, so that it does not stop the server when nobody expects it any more.
    fn service(&mut self, wanted: Wanted) -> Result<Option<ExitStatus>> {
        let mut command = service::command_for(&self.journal.plan.service, wanted)?;
        // The user's commands may be relative to where the trial was begun, as the load is.
        let directory = &self.journal.plan.directory.0;
        if matches!(self.journal.plan.service, Service::Commands { .. }) && directory.is_dir() {
            command.current_dir(directory);
        }
        let mut process = self.spawn(command)?;
        let began = Instant::now();
        let mut gone_since = None;
        loop {
            if let Some(status) = process.ended() {
                return Ok(Some(status));
            }
            let is_gone = service::processes_in(&self.journal.plan.home.0).is_empty();
            gone_since = gone_since.filter(|_| is_gone).or(is_gone.then(Instant::now));
            // The last word of a command that stops could be meant for the next server.
            let goes_on = wanted == Wanted::Stop
                && gone_since.is_some_and(|since: Instant| since.elapsed() > AFTER_GONE);
            let is_so = wanted == Wanted::Start && self.answers()?;
            let hangs = began.elapsed() > self.journal.plan.patience() || goes_on;
            if is_so && process.wait(BETWEEN).is_none() || hangs {
                // It may be the server itself, which must not be killed with its handle.
                let servers = service::processes_in(&self.journal.plan.home.0);
                let tree = process.identity().tree();
                if is_so || tree.iter().any(|process| servers.contains(process)) {
                    std::mem::forget(process);
                } else {
                    process.kill();
                }
                return Ok(None);
            }
            std::thread::sleep(LOOK);
        }
    }

    fn attach(&mut self) -> Result<()> {
        let plan = self.journal.plan.clone();
        for _ in 0..TRIES {
            let standing = self.standing()?;
            if standing == Standing::Mounted {
                return Ok(());
            }
            self.stop()?;
            let mut command = Command::new(self.program);
            command.arg("attach").arg(&plan.home.0);
            if standing == Standing::Plain {
                if let Some(which) = &plan.home_is {
                    which.check(&plan.home.0)?;
                }
                command.arg("--fast").arg(&plan.fast.0);
                command.args(plan.size.iter().flat_map(|size| ["--size", size]));
                command.args(plan.loses.iter().map(|loses| loses.option()));
                // A snapshot of Redis and a SQLite file may be called anything.
                command.args(plan.profile()?.iter().flat_map(|name| ["--profile", name]));
            }
            if self.succeeds(command, "attaching")? {
                return Ok(());
            }
        }
        Err(self.failed("attaching", self.in_use()))
    }

    fn detach(&mut self) -> Result<()> {
        for _ in 0..TRIES {
            self.stop()?;
            let mut command = Command::new(self.program);
            command.arg("detach").arg(&self.journal.plan.home.0);
            if self.succeeds(command, "detaching")? {
                return Ok(());
            }
        }
        Err(self.failed("detaching", self.in_use()))
    }

    fn in_use(&self) -> String {
        format!("the directory stays in use: {}", log_end_at(&self.room.path_of("log")))
    }

    /// Whether a command of this program did it; false if the directory is in use still.
    fn succeeds(&mut self, command: Command, what: &str) -> Result<bool> {
        let mut process = self.spawn(command)?;
        let status = loop {
            match process.ended() {
                Some(status) => break status,
                None => std::thread::sleep(LOOK),
            }
        };
        let said = process.log_end();
        if status.success() {
            return Ok(true);
        }
        if said.contains("in use") || said.contains("busy") {
            std::thread::sleep(BETWEEN);
            return Ok(false);
        }
        Err(self.failed(what, format!("it ended with {status} and said: {said}")))
    }

    fn record(&mut self, name: &str, step: Step) -> Result<()> {
        let plan = self.journal.plan.clone();
        let to = self.room.path_of(&format!("{name}-{}.db", self.journal.attempts(step)));
        // Twenty snapshots of a short period, one a minute of a long one.
        let every_ms = plan.length_ms.map_or(5_000, |length| (length / 20).clamp(200, 60_000));
        let mut command = Command::new(self.program);
        command.args(["awr", "record", "--name", name]).arg("--to").arg(to);
        if plan.has_server() {
            command.args(["--source", &plan.url]);
        } else {
            // The machine is there both times; the mount's waits are beside it.
            command.args(["--source", "host"]);
            if step == Step::Measure {
                command.arg("--source").arg(&plan.home.0);
            }
        }
        command.arg("--every").arg(format!("{every_ms}ms"));
        command.args(
            plan.length_ms.iter().flat_map(|length| ["--for".to_owned(), format!("{length}ms")]),
        );
        if !plan.load.is_empty() {
            command.arg("--").args(&plan.load).current_dir(&plan.directory.0);
        }
        if let Some(copy) = &plan.copy {
            copy.tell(&mut command);
        }
        let mut process = self.spawn(command)?;
        let status = self.wait_for(&mut process, "recording")?;
        // Code 1: the database could not be asked at times, which the page says; or the load
        // failed.
        if status.success() || (plan.load.is_empty() && status.code() == Some(1)) {
            return Ok(());
        }
        Err(self
            .failed("recording", format!("it ended with {status} and said: {}", process.log_end())))
    }

    /// Waits for a process, and ends it when the way back is asked for.
    fn wait_for(&self, process: &mut Process, what: &str) -> Result<ExitStatus> {
        loop {
            if let Some(status) = process.ended() {
                return Ok(status);
            }
            let room = self.journal.plan.copy.as_ref().map_or(Ok(()), OnCopy::has_room);
            if self.room.undo_is_asked() || room.is_err() {
                process.signal(Signal::TERM);
                if process.wait(END).is_none() {
                    process.kill();
                }
                room?;
                return Err(self.failed(what, "somebody asked for the way back".into()));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn spawn(&mut self, mut command: Command) -> Result<Process> {
        command.stdin(Stdio::null());
        let process = Process::start(command, &self.room.path_of("log"))?;
        if let Some(taken) = self.journal.taken.last_mut() {
            taken.helper = Some(process.identity());
        }
        self.note()?;
        Ok(process)
    }

    fn standing(&self) -> Result<Standing> {
        let text = self.ask_program("status")?;
        let status: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        match status["standing"].as_str() {
            Some("plain") => Ok(Standing::Plain),
            Some("mounted") => Ok(Standing::Mounted),
            Some(_) => Ok(Standing::Unmounted),
            None => Err(self.failed("asking how the directory stands", text)),
        }
    }

    /// What a command of this program prints about the home, as JSON.
    fn ask_program(&self, command: &str) -> Result<String> {
        let home = &self.journal.plan.home.0;
        let mut asked = Command::new(self.program);
        asked.arg(command).arg(home).arg("--json").stdin(Stdio::null());
        let asked = asked.output().during("run", self.program)?;
        match asked.stdout.is_empty() {
            true => {
                Err(self.failed(command, String::from_utf8_lossy(&asked.stderr).trim().to_owned()))
            }
            false => Ok(String::from_utf8_lossy(&asked.stdout).into_owned()),
        }
    }

    fn failed(&self, what: &str, reason: String) -> Error {
        Error::Target { what: what.to_owned(), database: self.journal.plan.home.0.clone(), reason }
    }
}

/// Whether a server that runs refused the account or its password: it will do so again.
fn is_refused_login(why: &str) -> bool {
    [
        // PostgreSQL, in its own words.
        "authentication failed",
        "no pg_hba.conf entry",
        "role \"",
        // MariaDB and MySQL.
        "Access denied for user",
        // Redis and Valkey.
        "NOAUTH",
        "WRONGPASS",
        "NOPERM",
        "REDISCLI_AUTH is not set",
    ]
    .iter()
    .any(|words| why.contains(words))
}

/// Ends this process as kill -9 does, at the step and point that a test names.
#[cfg(feature = "testing")]
fn end_here(step: Step, point: &str) {
    let wanted = std::env::var("TIERSMITH_TRIAL_KILL").unwrap_or_default();
    if wanted == format!("{}:{point}", step.name()) {
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    }
}

#[cfg(not(feature = "testing"))]
fn end_here(_: Step, _: &str) {}

#[cfg(test)]
mod tests {
    use super::is_refused_login;

    #[test]
    fn a_refused_login_is_told_from_a_server_that_is_not_up() {
        for refused in [
            "cannot use postgresql:///postgres: FATAL: password authentication failed for user \
             \"app\"",
            "FATAL: no pg_hba.conf entry for host \"[local]\"",
            "FATAL: role \"app\" does not exist",
            "Access denied for user 'root'@'localhost' (using password: NO)",
            "cannot log in to redis://localhost: NOAUTH Authentication required.",
        ] {
            assert!(is_refused_login(refused), "{refused}");
        }
        for down in [
            "cannot connect to /run/postgresql/.s.PGSQL.5432: No such file or directory",
            "Connection refused (os error 111)",
            "FATAL: the database system is starting up",
            "LOADING Redis is loading the dataset in memory",
        ] {
            assert!(!is_refused_login(down), "{down}");
        }
    }
}
