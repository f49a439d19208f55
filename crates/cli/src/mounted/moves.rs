//! `pin` and `move` in a mounted home: how far the one that runs is, and how it is ended.
//!
//! The command that asked for it may go away; another one ends it, and so does whoever takes the
//! home away. What was moved stays where it is, so the same command goes on from there, also after
//! a crash.
//!
//! **Invariant**: at most one runs, and none when the home is unmounted or detached.
//! **Deliberately absent**: how blocks are moved (the store); going on without being asked.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tiersmith_store::{Candidate, Moved};

use super::size;

/// How often whoever waits for an end looks.
const LOOK: Duration = Duration::from_millis(5);

/// A pin or a move, for `status` and for whoever waits for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LiveMove {
    pub(crate) running: bool,
    /// The command and its pattern.
    pub(crate) what: String,
    /// Files that it is through with, and all of them.
    pub(crate) files: u64,
    pub(crate) of_files: u64,
    /// Of those that it is through with: it was not done to these.
    #[serde(default)]
    pub(crate) failed: u64,
    /// Bytes of the files that it is through with, and of all.
    pub(crate) bytes: u64,
    pub(crate) of_bytes: u64,
    /// Bytes of those that had to be moved.
    pub(crate) moved_bytes: u64,
    /// No faster than that.
    pub(crate) bytes_per_s: Option<u64>,
    /// How long it has taken, or took.
    pub(crate) took_s: f64,
    /// Since it ended.
    pub(crate) ended_s: Option<u64>,
    /// It came to its end, and was done to every file.
    pub(crate) whole: bool,
}

impl LiveMove {
    /// How far it is, from 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        if self.of_bytes == 0 { 1.0 } else { (self.bytes as f64 / self.of_bytes as f64).min(1.0) }
    }

    /// How far it is, in bytes and files.
    pub(crate) fn far(&self) -> String {
        let failed =
            if self.failed > 0 { format!(" ({} failed)", self.failed) } else { String::new() };
        format!(
            "{} of {}, {} of {} files{failed}, {} moved",
            size(self.bytes),
            size(self.of_bytes),
            self.files,
            self.of_files,
            size(self.moved_bytes)
        )
    }
}

impl std::fmt::Display for LiveMove {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rate = self.bytes_per_s.map_or(String::new(), |rate| format!(" at {}/s", size(rate)));
        match self.ended_s {
            None => write!(f, "{} runs{rate}: {}", self.what, self.far()),
            Some(ago) if self.whole || self.failed > 0 && self.files == self.of_files => {
                write!(f, "{} ended {ago} s ago: {}", self.what, self.far())
            }
            Some(ago) => write!(
                f,
                "{} was ended before its end, {ago} s ago: {}; the same command goes on",
                self.what,
                self.far()
            ),
        }
    }
}

struct Job {
    live: LiveMove,
    began: Instant,
    ended: Option<Instant>,
    /// Says that it is to end: its own, so that nobody takes that back.
    stop: Arc<AtomicBool>,
    /// The files that it will pin, or pin again.
    pins: HashSet<PathBuf>,
}

/// The pins and moves of a daemon.
#[derive(Default)]
pub(super) struct Moves {
    last: Mutex<Option<Job>>,
    /// None begins any more.
    closed: AtomicBool,
}

fn lock(last: &Mutex<Option<Job>>) -> MutexGuard<'_, Option<Job>> {
    last.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Moves {
    /// Begins one; its end is that of what is returned. `pins`: it pins these files.
    ///
    /// # Errors
    /// A sentence, when one runs already.
    pub(super) fn begin(
        &self,
        what: String,
        files: &[Candidate],
        pins: bool,
        bytes_per_s: Option<u64>,
    ) -> Result<Running<'_>, String> {
        let mut last = lock(&self.last);
        if let Some(job) = last.as_ref().filter(|job| job.ended.is_none()) {
            return Err(format!(
                "`{}` runs already; wait for it, or end it (tiersmith pin HOME --stop)",
                job.live.what
            ));
        }
        if self.closed.load(Ordering::Acquire) {
            return Err("the home is being unmounted or detached".into());
        }
        let live = LiveMove {
            what,
            of_files: files.len() as u64,
            of_bytes: files.iter().map(|file| file.size).sum(),
            bytes_per_s,
            ..LiveMove::default()
        };
        let stop = Arc::new(AtomicBool::new(false));
        let pins = files.iter().filter(|_| pins).map(|file| file.path.clone()).collect();
        *last = Some(Job { live, began: Instant::now(), ended: None, stop: stop.clone(), pins });
        Ok(Running { moves: self, stop, bytes_per_s })
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
        let runs = |job: &&Job| job.ended.is_none();
        let Some(stop) = lock(&self.last).as_ref().filter(runs).map(|job| job.stop.clone()) else {
            return false;
        };
        stop.store(true, Ordering::Release);
        let is_it = |job: &&Job| Arc::ptr_eq(&job.stop, &stop);
        while lock(&self.last).as_ref().filter(is_it).is_some_and(|job| job.ended.is_none()) {
            std::thread::sleep(LOOK);
        }
        true
    }

    /// Whether one runs that will pin this file.
    pub(super) fn will_pin(&self, path: &Path) -> bool {
        lock(&self.last).as_ref().is_some_and(|job| job.ended.is_none() && job.pins.contains(path))
    }

    /// The one that runs, or ran last.
    pub(super) fn live(&self) -> Option<LiveMove> {
        lock(&self.last).as_ref().map(|job| LiveMove {
            running: job.ended.is_none(),
            took_s: (job.ended.unwrap_or_else(Instant::now) - job.began).as_secs_f64(),
            ended_s: job.ended.map(|ended| ended.elapsed().as_secs()),
            ..job.live.clone()
        })
    }
}

/// The one that runs, for whoever does it. It has ended when this is dropped, also by a panic.
pub(super) struct Running<'a> {
    moves: &'a Moves,
    stop: Arc<AtomicBool>,
    pub(super) bytes_per_s: Option<u64>,
}

impl Running<'_> {
    /// Moves a file by `act`, which asks after each step whether it goes on. `None`: it was ended.
    /// A file that it cannot be done to it is through with, too.
    pub(super) fn file(
        &self,
        file: &Candidate,
        act: impl FnOnce(&mut dyn FnMut(&Moved) -> bool) -> Result<Moved, String>,
    ) -> Result<Option<u64>, String> {
        if self.is_stopped() {
            return Ok(None);
        }
        let before = self.change(|live| (live.bytes, live.moved_bytes));
        let moved = act(&mut |moved| {
            self.change(|live| {
                live.bytes = before.0 + moved.at.min(file.size);
                live.moved_bytes = before.1 + moved.bytes;
            });
            !self.is_stopped()
        });
        match moved {
            Ok(moved) if moved.stopped => Ok(None),
            result => {
                self.is_through_with(&file.path);
                self.change(|live| {
                    live.files += 1;
                    live.failed += u64::from(result.is_err());
                    live.bytes = before.0 + file.size;
                });
                result.map(|moved| Some(moved.blocks))
            }
        }
    }

    /// It will not pin this file any more: it has, or could not.
    fn is_through_with(&self, path: &Path) {
        if let Some(job) = lock(&self.moves.last).as_mut() {
            let _ = job.pins.remove(path);
        }
    }

    /// It came to its end.
    pub(super) fn is_whole(&self) {
        self.change(|live| live.whole = live.failed == 0);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn change<T: Default>(&self, change: impl FnOnce(&mut LiveMove) -> T) -> T {
        lock(&self.moves.last).as_mut().map(|job| change(&mut job.live)).unwrap_or_default()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(job) = lock(&self.moves.last).as_mut() {
            job.ended = Some(Instant::now());
            job.pins = HashSet::new();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails here says where")]
mod tests {
    use super::*;
    use tiersmith_store::{Guard, Medium, Options, Profile, TierSpec, attach};

    #[test]
    fn one_runs_at_a_time_and_none_while_the_home_is_taken_away() {
        let moves = Moves::default();
        let running = moves.begin("pin a".into(), &[], true, Some(1 << 20)).unwrap();
        let said = moves.begin("pin b".into(), &[], true, None).err().unwrap();
        assert!(said.contains("`pin a` runs already"), "{said}");
        let live = moves.live().unwrap();
        assert!(live.running && live.to_string().contains("pin a runs at 1M/s"), "{live}");
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| moves.close());
            while !running.is_stopped() {
                std::thread::sleep(LOOK);
            }
            assert!(!closing.is_finished(), "it runs still");
            drop(running);
        });
        let live = moves.live().unwrap();
        assert!(!live.running && !live.whole && live.to_string().contains("goes on"), "{live}");
        assert!(moves.begin("pin c".into(), &[], true, None).err().unwrap().contains("unmounted"));
        moves.open();
        let running = moves.begin("pin c".into(), &[], true, None).unwrap();
        running.is_whole();
        drop(running);
        assert!(moves.live().unwrap().whole && !moves.end());
    }

    #[test]
    fn a_pin_holds_back_the_unpinning_of_files_that_it_has_not_come_to_and_of_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("db");
        std::fs::create_dir(&home).unwrap();
        for name in ["a.ibd", "b.ibd", "c.ibd"] {
            std::fs::write(home.join(name), [1; 100]).unwrap();
        }
        let tier = TierSpec::new("fast", dir.path().join("fast"), Medium::Emulated, 16 << 20);
        let profile = Some(Profile::named("generic").unwrap());
        let options = Options { profile, guard: Guard::Door, ..Options::default() };
        let home = attach(&home, &[tier], options).unwrap();
        let files = home.candidates("*.ibd").unwrap();
        let moves = Moves::default();
        let running = moves.begin("pin".into(), &files, true, None).unwrap();
        let held = || files.iter().filter(|file| moves.will_pin(&file.path)).count();
        assert_eq!((files.len(), held()), (3, 3));
        let _ = running.file(&files[0], |_| Ok(Moved::default())).unwrap();
        assert!(!moves.will_pin(&files[0].path) && held() == 2, "it is pinned");
        let _ = running.file(&files[1], |_| Err("no room".into())).unwrap_err();
        assert!(!moves.will_pin(&files[1].path) && held() == 1, "it could not be pinned");
        drop(running);
        assert_eq!(held(), 0);
    }

    #[test]
    fn what_failed_is_shown_and_is_no_end_before_its_end() {
        let live = LiveMove {
            what: "pin a".into(),
            files: 3,
            of_files: 3,
            failed: 1,
            ended_s: Some(5),
            ..LiveMove::default()
        };
        let said = live.to_string();
        assert!(
            said.contains("ended 5 s ago") && said.contains("3 of 3 files (1 failed)"),
            "{said}"
        );
    }
}
