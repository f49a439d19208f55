//! SQLite under load in a process of its own, which is killed with SIGKILL and started again at
//! once, and how long it takes.
//!
//! The process is this program once more ([`carry_out`]). It opens the databases as a study would,
//! and with them the tier. Of each transaction that was acknowledged it writes 16 bytes to its
//! standard output: when it ended, by the clock that all processes share, and how long it took,
//! both in nanoseconds and little-endian. It ends when its standard input does.
//!
//! **Invariant**: nobody else has the databases open while that process runs.
//! **Deliberately absent**: YCSB D and E, which add records: only the killed process knew which of
//! them were acknowledged.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::{Database, Spot, SqliteTarget};
use crate::case::Case;
use crate::error::{During, Error, Result};
use crate::server;
use crate::session::Work;
use crate::target::recovery::{LOOK, Meter, Recovered, Watch};
use crate::target::transactions::{self, COUNTS, Recorders, Transactional};
use crate::workload::slob;

/// How long the process may take to close its databases.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// Bytes that tell one transaction.
const TOLD: usize = 16;
/// Most bytes of its errors that are kept.
const ERROR_MAX: usize = 4096;

/// What the process is to do.
#[derive(Serialize, Deserialize)]
struct Task {
    case: Case,
    slob: slob::Settings,
    spots: Vec<Spot>,
}

/// The clock that all processes share.
fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

impl SqliteTarget {
    /// Closes the databases, has a process of its own run the load on them, kills it, starts it
    /// again, watches, and opens the databases again.
    ///
    /// # Errors
    /// What the process failed with; that it did not answer in time; [`Error::Interrupted`].
    pub(super) fn watched(&mut self, spots: &[Spot], watch: &Watch<'_>) -> Result<Recovered> {
        let program = server::this_program().map_err(|reason| Error::Target {
            what: "running the load in a process of its own".into(),
            database: database_of(spots),
            reason,
        })?;
        let task = Task { case: self.case.clone(), slob: self.slob.clone(), spots: spots.into() };
        let file = database_of(spots).with_extension("task");
        let text = serde_json::to_vec(&task).map_err(std::io::Error::from);
        text.and_then(|text| fs::write(&file, text)).during("write", &file)?;
        self.databases.clear();
        let recovered = watched(&program, &file, &database_of(spots), watch)?;
        self.databases = open_all(&self.case, spots)?;
        Ok(recovered)
    }
}

fn database_of(spots: &[Spot]) -> PathBuf {
    spots.first().map_or_else(PathBuf::new, |spot| spot.path.clone())
}

fn open_all(case: &Case, spots: &[Spot]) -> Result<Vec<Database>> {
    spots.iter().map(|spot| Database::open(case, spot)).collect()
}

fn watched(program: &Path, task: &Path, database: &Path, watch: &Watch<'_>) -> Result<Recovered> {
    let (meter, began_ns) = (Arc::new(Meter::now()), now_ns());
    let start = || Process::start(program, task, database, &meter, began_ns);
    let mut process = start()?;
    let watched = meter.watch((watch, database), |gone| {
        process.kill();
        gone();
        process = start()?;
        Ok(())
    });
    meter.stop();
    let ended = process.end();
    drop(process);
    if let Some(error) = meter.failed() {
        return Err(error);
    }
    let times = watched?;
    ended?;
    meter.recovered(&times, None, (watch, database))
}

/// The process that runs the load.
struct Process {
    child: Child,
    /// Reads what it tells.
    reader: Option<JoinHandle<()>>,
    /// It is to end: an end is no error.
    may_end: Arc<AtomicBool>,
    database: PathBuf,
}

impl Process {
    fn start(
        program: &Path,
        task: &Path,
        database: &Path,
        meter: &Arc<Meter>,
        began_ns: u64,
    ) -> Result<Process> {
        // In a group of its own: Ctrl-C is for the study, which ends it.
        let mut child = Command::new(program)
            .args(["study", "--carry-out"])
            .arg(task)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .during("start", program)?;
        let may_end = Arc::new(AtomicBool::new(false));
        let reader = child.stdout.take().zip(child.stderr.take()).map(|(told, errors)| {
            let (meter, may_end, database) =
                (meter.clone(), may_end.clone(), database.to_path_buf());
            // Read all the time: one who waits to print does no work.
            let errors = std::thread::spawn(move || last_words(errors));
            std::thread::spawn(move || {
                read(told, &meter, began_ns);
                let said = errors.join().unwrap_or_default();
                if !may_end.load(Ordering::SeqCst) {
                    meter.note_always(Error::Target {
                        what: "the load in a process of its own".into(),
                        database,
                        reason: said,
                    });
                }
            })
        });
        Ok(Process { child, reader, may_end, database: database.into() })
    }

    /// Kills it; nothing of it runs on return, and what it has told is counted.
    fn kill(&mut self) {
        self.may_end.store(true, Ordering::SeqCst);
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.join();
    }

    /// Has it close its databases and end.
    ///
    /// # Errors
    /// It does not end; it is killed then.
    fn end(&mut self) -> Result<()> {
        self.may_end.store(true, Ordering::SeqCst);
        drop(self.child.stdin.take());
        let until = Instant::now() + ENDS_WITHIN;
        let ended = loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
                Ok(None) => break Err(format!("it did not end in {} s", ENDS_WITHIN.as_secs())),
                Ok(Some(status)) if status.success() => break Ok(()),
                Ok(Some(status)) => break Err(format!("it ended with {status}")),
                Err(e) => break Err(e.to_string()),
            }
        };
        self.kill();
        ended.map_err(|reason| Error::Target {
            what: "ending the load".into(),
            database: self.database.clone(),
            reason,
        })
    }

    fn join(&mut self) {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Counts what the process tells, until it ends.
fn read(mut told: ChildStdout, meter: &Meter, began_ns: u64) {
    let mut seen = Vec::new();
    let mut bytes = [0; TOLD];
    while told.read_exact(&mut bytes).is_ok() {
        let [ended, took] = [0, 8]
            .map(|at| bytes[at..].first_chunk().map_or(0, |number| u64::from_le_bytes(*number)));
        let since = Duration::from_nanos(ended.saturating_sub(began_ns));
        seen.push((since, Duration::from_nanos(took)));
        meter.count();
    }
    meter.add(seen);
}

/// The last line of what a process has printed as its errors, when it ends.
fn last_words(mut errors: ChildStderr) -> String {
    let (mut text, mut part) = (Vec::new(), [0; ERROR_MAX]);
    while let Ok(len @ 1..) = errors.read(&mut part) {
        text.extend_from_slice(&part[..len]);
        text.drain(..text.len().saturating_sub(ERROR_MAX));
    }
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    line.unwrap_or("it ended without a word").to_owned()
}

/// Runs the load of a task until standard input ends: what the process of a study does.
///
/// # Errors
/// What the task or the database says.
pub fn carry_out(task: &Path) -> Result<()> {
    let text = File::open(task).and_then(std::io::read_to_string).during("read", task)?;
    let task: Task =
        serde_json::from_str(&text).map_err(std::io::Error::from).during("read", task)?;
    let target = SqliteTarget::open(&task.case, &task.slob, &task.spots)?;
    let Some(load) = target.load.as_deref() else {
        return Err(Error::Setting {
            setting: "load",
            value: task.case.load().name().into(),
            reason: "a recovery is watched under a load of its own statements".into(),
        });
    };
    let stop = Arc::new(AtomicBool::new(false));
    let ended = stop.clone();
    // It may wait for its input when the load has failed: nobody joins it.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        ended.store(true, Ordering::SeqCst);
    });
    let work = Work::of(task.case.server.clients, load.kinds(), COUNTS);
    let failed = Mutex::new(None);
    let (target, work, stop, fails) = (&target, &work, &*stop, &failed);
    std::thread::scope(|scope| {
        for number in 0..task.case.server.clients {
            scope.spawn(move || {
                if let Err(error) = client(target, load, work, number, stop) {
                    fails.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    stop.store(true, Ordering::SeqCst);
                }
            });
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// One client, until it is told to stop or nobody listens.
fn client(
    target: &SqliteTarget,
    load: &dyn Transactional,
    work: &Work,
    number: u32,
    stop: &AtomicBool,
) -> Result<()> {
    let sql = target.sql(Some(work.client_waits.clone()))?;
    let mut connected = transactions::on_sql(sql, load.client(target.slob.seed, number));
    let of = Recorders::of(work);
    while !stop.load(Ordering::Relaxed) {
        connected.draw();
        let took = connected.carry_out(&of)?;
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let mut told = [0; TOLD];
        told[..8].copy_from_slice(&now_ns().to_le_bytes());
        told[8..].copy_from_slice(&took_ns.to_le_bytes());
        let mut out = std::io::stdout().lock();
        match out.write_all(&told).and_then(|()| out.flush()) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(()),
            told => told.during("tell a transaction to", Path::new("standard output"))?,
        }
        drop(out);
        let _ = connected.done(took, &of.transactions);
    }
    Ok(())
}
