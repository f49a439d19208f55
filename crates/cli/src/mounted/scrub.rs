//! Scrubbing a mounted home: a thread of the daemon reads every block of data files that the tiers
//! have, and `status` says how far it is.
//!
//! The command that asked for it may go away; another one ends it, and so does whoever takes the
//! home away. What is done about a block is the store's.
//!
//! **Invariant**: at most one scrub runs, and none when the home is unmounted or detached.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tiersmith_store::{AttachedHome, Scrubbed};

use super::live::size;
use super::log::say;

/// How often figures are brought up to date.
const EVERY: Duration = Duration::from_millis(100);

/// A scrub, for `status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LiveScrub {
    pub(crate) running: bool,
    /// It came to its end.
    pub(crate) whole: bool,
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
    pub(crate) of_bytes: u64,
    /// Clean copies that were given up: home has them.
    pub(crate) repaired: u64,
    /// Blocks of which the newest version is gone.
    pub(crate) lost: u64,
    pub(crate) without_checksum: u64,
    /// How long it has taken, or took.
    pub(crate) took_s: f64,
    /// Since it ended.
    pub(crate) ended_s: Option<u64>,
    /// Why it could not run.
    #[serde(default)]
    pub(crate) trouble: Option<String>,
}

impl LiveScrub {
    /// How far it is, from 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        if self.of_bytes == 0 { 1.0 } else { (self.bytes as f64 / self.of_bytes as f64).min(1.0) }
    }

    /// What it has found, for people.
    pub(crate) fn found(&self) -> String {
        if let Some(trouble) = &self.trouble {
            return format!("nothing, because {trouble}");
        }
        let none = match self.without_checksum {
            0 => String::new(),
            some => format!(", {some} without a checksum"),
        };
        let found = match (self.repaired, self.lost) {
            (0, 0) => "all are what was written".to_owned(),
            (repaired, lost) => format!(
                "{repaired} clean copies were not what was written and are read from home now, \
                 {lost} blocks are lost"
            ),
        };
        format!("{} blocks ({}){none}: {found}", self.blocks, size(self.bytes))
    }
}

impl std::fmt::Display for LiveScrub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.running, self.ended_s) {
            (true, _) => {
                write!(f, "runs, {:.0} %: so far {}", 100.0 * self.share(), self.found())
            }
            (false, Some(ago)) => {
                let end = if self.whole { "ended" } else { "was ended before its end" };
                write!(f, "{end} {ago} s ago: {}", self.found())
            }
            (false, None) => f.write_str("none since the daemon started (`tiersmith scrub HOME`)"),
        }
    }
}

/// The scrub that runs, or ran last.
#[derive(Default)]
struct Last {
    seen: Scrubbed,
    began: Option<Instant>,
    ended: Option<Instant>,
    whole: bool,
    trouble: Option<String>,
    thread: Option<JoinHandle<()>>,
    /// Says that it is to end: its own, so that nobody takes that back.
    stop: Arc<AtomicBool>,
}

/// The scrubs of a daemon.
#[derive(Default)]
pub(super) struct Scrubs {
    last: Arc<Mutex<Last>>,
    /// None begins any more.
    closed: AtomicBool,
}

fn lock(last: &Mutex<Last>) -> MutexGuard<'_, Last> {
    last.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Scrubs {
    /// Begins one.
    ///
    /// # Errors
    /// A sentence, when one runs already or no thread can be started.
    pub(super) fn begin(&self, home: AttachedHome, bytes_per_s: Option<u64>) -> Result<(), String> {
        let mut last = lock(&self.last);
        if last.began.is_some() && last.ended.is_none() {
            return Err("a scrub runs already; `tiersmith scrub HOME --stop` ends it".into());
        }
        if self.closed.load(Ordering::Acquire) {
            return Err("the home is being unmounted or detached".into());
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, ends) = (self.last.clone(), stop.clone());
        let work = move || run(&home, bytes_per_s, &shared, &ends);
        let thread = std::thread::Builder::new().name("scrub".into()).spawn(work);
        let thread = thread.map_err(|e| format!("the daemon can start no thread: {e}"))?;
        let began = Some(Instant::now());
        *last = Last { began, thread: Some(thread), stop, ..Last::default() };
        Ok(())
    }

    /// From here on none begins; the one that runs is ended.
    pub(super) fn close(&self) {
        {
            let _last = lock(&self.last);
            self.closed.store(true, Ordering::Release);
        }
        let _ = self.end();
    }

    /// The home is not taken away after all.
    pub(super) fn open(&self) {
        self.closed.store(false, Ordering::Release);
    }

    /// Ends it, and waits for that. Whether one ran.
    pub(super) fn end(&self) -> bool {
        let (thread, ran) = {
            let mut last = lock(&self.last);
            last.stop.store(true, Ordering::Release);
            (last.thread.take(), last.began.is_some() && last.ended.is_none())
        };
        if let Some(thread) = thread {
            // What it panicked with is in the log.
            let _ = thread.join();
        }
        ran
    }

    pub(super) fn live(&self) -> LiveScrub {
        let last = lock(&self.last);
        let Scrubbed { blocks, bytes, of_bytes, repaired, lost, without_checksum, .. } = last.seen;
        let until = last.ended.unwrap_or_else(Instant::now);
        LiveScrub {
            running: last.began.is_some() && last.ended.is_none(),
            whole: last.whole,
            blocks,
            bytes,
            of_bytes,
            repaired,
            lost,
            without_checksum,
            took_s: last.began.map_or(0.0, |began| (until - began).as_secs_f64()),
            ended_s: last.ended.map(|ended| ended.elapsed().as_secs()),
            trouble: last.trouble.clone(),
        }
    }
}

/// Says that it has ended, also after a panic.
struct Ending<'a>(&'a Mutex<Last>);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        lock(self.0).ended = Some(Instant::now());
    }
}

fn run(home: &AttachedHome, bytes_per_s: Option<u64>, last: &Mutex<Last>, stop: &AtomicBool) {
    let ending = Ending(last);
    let mut shown = Instant::now();
    let scrubbed = home.scrub(bytes_per_s, |seen| {
        if shown.elapsed() >= EVERY {
            lock(last).seen = *seen;
            shown = Instant::now();
        }
        !stop.load(Ordering::Acquire)
    });
    let whole = !stop.load(Ordering::Acquire);
    let seen = match scrubbed {
        Ok(seen) => seen,
        Err(e) => {
            lock(last).trouble = Some(e.to_string());
            return say(&format!("cannot scrub: {e}"));
        }
    };
    {
        let mut last = lock(last);
        (last.seen, last.whole) = (seen, whole);
    }
    drop(ending);
    if whole {
        let found = LiveScrub {
            blocks: seen.blocks,
            bytes: seen.bytes,
            repaired: seen.repaired,
            lost: seen.lost,
            without_checksum: seen.without_checksum,
            ..LiveScrub::default()
        };
        say(&format!("scrubbed {}", found.found()));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails here says where")]
mod tests {
    use super::*;
    use tiersmith_store::{Guard, Medium, Options, Profile, TierSpec, attach};

    #[test]
    fn none_runs_or_begins_while_the_home_is_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("db");
        std::fs::create_dir(&home).unwrap();
        let tier = TierSpec::new("fast", dir.path().join("tier"), Medium::Emulated, 8 << 20);
        let profile = Some(Profile::named("generic").unwrap());
        let options = Options { profile, guard: Guard::Door, ..Options::default() };
        let home = attach(&home, &[tier], options).unwrap();
        let file = home.create("a").unwrap();
        for n in 0..4 {
            file.write(n * 8192, &[1; 8192]).unwrap();
        }
        let scrubs = Scrubs::default();
        // A block would take hours.
        scrubs.begin(home.clone(), Some(1)).unwrap();
        assert!(scrubs.begin(home.clone(), None).unwrap_err().contains("runs already"));
        scrubs.close();
        let live = scrubs.live();
        assert!(!live.running && !live.whole);
        assert!(scrubs.begin(home.clone(), None).unwrap_err().contains("unmounted"));
        scrubs.open();
        scrubs.begin(home, None).unwrap();
        assert!(scrubs.end() || scrubs.live().whole);
    }
}
