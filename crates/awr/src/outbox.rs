//! What a recording has to keep and the repository has not taken yet, and the thread that hands it
//! over.
//!
//! Asking a source and writing to the repository are two threads: a repository that hangs holds up
//! neither snapshots nor looks at the sessions. What waits is bounded; what does not fit is lost,
//! oldest first, and that is a gap.
//!
//! ```text
//! the thread that asks  --- put --->  Outbox (a queue of MOST_WAITING)  --- Writer --->  Archive
//! ```
//!
//! A write that failed for a reason that may pass is tried again with the next thing that is put,
//! and at the end of the recording for a while. Any other error ends the writer, and the recording
//! with it.
//!
//! Invariants: what is put is written in its order, each once; a snapshot is not taken out before
//! it is durable or given up.
//! Deliberately absent: the schedule (`record.rs`).

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::record::{Recorded, lock};
use crate::repository::archive::{Archive, Gap, Lease, fresh_key};
use crate::{Result, Snapshot};

/// How many snapshots and gaps wait in memory for a repository that is away: an hour of one a
/// minute.
pub(crate) const MOST_WAITING: usize = 60;

/// How long the end of a recording waits for a repository that is away.
const LAST_TRY: Duration = Duration::from_secs(60);

/// From one sign of life to the next at most, however rare the snapshots are.
const SIGN_OF_LIFE: Duration = Duration::from_secs(60);

/// After so long without an answer the repository is said to hang.
const SILENT: Duration = Duration::from_secs(10);

/// What is to be kept.
pub(crate) enum Waiting {
    /// With the key that every try to keep it has: who got no answer does not know whether it was
    /// kept.
    Snapshot(Box<Snapshot>, String),
    Gap(Gap),
}

impl Waiting {
    pub(crate) fn snapshot(snapshot: Snapshot) -> Waiting {
        Waiting::Snapshot(Box::new(snapshot), fresh_key())
    }

    fn at_unix_ns(&self) -> u64 {
        match self {
            Waiting::Snapshot(snapshot, _) => snapshot.taken_unix_ns,
            Waiting::Gap(gap) => gap.at_unix_ns,
        }
    }
}

/// What waits for the repository.
#[derive(Default)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Oldest first.
    queue: VecDeque<Waiting>,
    /// When the first of those was lost that did not fit, and how many were.
    lost: Option<(u64, usize)>,
    /// What of it is being written: a second try says the same, so that it is one gap.
    telling: Option<(u64, usize)>,
    /// What the source's snapshots are kept under.
    path: String,
    /// Whether one is in the hands of the writer, and not in the queue.
    in_hand: bool,
    /// Snapshots of the source from before this instant are to be removed.
    remove_before: Option<u64>,
    /// Whether something was put or asked for since the last try.
    news: bool,
    /// Nothing more comes.
    over: bool,
    /// Since when the repository has been asked for something, and whether it was said that it does
    /// not answer.
    asked_at: Option<Instant>,
    hangs: bool,
    /// What was said last of a repository that is away: the same is not said again with every try.
    said: Option<String>,
    /// The writer is not there any more: somebody else has the source, or the repository refuses.
    ended: bool,
}

impl State {
    fn lose(&mut self, what: &Waiting) {
        let (at, lost) = self.lost.get_or_insert((what.at_unix_ns(), 0));
        *at = what.at_unix_ns().min(*at);
        *lost += 1;
    }
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change of the state is whole, whoever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts something to be kept for the source of this path. Never waits for the repository.
    pub(crate) fn put(&self, path: &str, what: Waiting) {
        let mut state = self.lock();
        path.clone_into(&mut state.path);
        if state.queue.len() >= MOST_WAITING
            && let Some(oldest) = state.queue.pop_front()
        {
            if state.lost.is_none() {
                log::warn!(
                    "{MOST_WAITING} snapshots and gaps of {path} wait for the repository: from now \
                     on the oldest are lost, which will be \
                     noted as a gap"
                );
            }
            state.lose(&oldest);
        }
        state.queue.push_back(what);
        state.news = true;
        let silent = state.asked_at.is_some_and(|at| at.elapsed() >= SILENT);
        if silent && !state.hangs {
            state.hangs = true;
            log::warn!(
                "The repository has not answered for {} s. The recording of {path} goes on: {} \
                 snapshots and gaps wait in memory, which \
                 has room for {MOST_WAITING}",
                SILENT.as_secs(),
                state.queue.len()
            );
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Asks for the removal of what is older than an instant.
    pub(crate) fn remove_before(&self, unix_ns: u64) {
        let mut state = self.lock();
        (state.remove_before, state.news) = (Some(unix_ns), true);
        drop(state);
        self.changed.notify_all();
    }

    fn next(&self) -> Option<Waiting> {
        let mut state = self.lock();
        let next = state.queue.pop_front();
        state.in_hand = next.is_some();
        next
    }

    /// How many snapshots and gaps the repository has not acknowledged, those among them that did
    /// not fit in here.
    pub(crate) fn unacknowledged(&self) -> usize {
        let state = self.lock();
        state.queue.len() + usize::from(state.in_hand) + state.lost.map_or(0, |(_, lost)| lost)
    }

    /// Says that nothing more comes.
    pub(crate) fn close(&self) {
        self.lock().over = true;
        self.changed.notify_all();
    }

    /// Whether the writer ended, so that nothing that is put will be kept.
    pub(crate) fn is_dead(&self) -> bool {
        self.lock().ended
    }
}

/// Says that nothing more comes, however the asking ended: a writer that is not told would give
/// signs of life for ever.
pub(crate) struct Closing<'a>(pub(crate) &'a Outbox);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Says that the writer ended, however that came about.
struct Ended(Arc<Outbox>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.lock().ended = true;
    }
}

/// Hands over what waits.
pub(crate) struct Writer {
    pub(crate) archive: Archive,
    pub(crate) lease: Lease,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) recorded: Arc<Mutex<Recorded>>,
}

impl Writer {
    /// Writes until the outbox is closed and empty.
    ///
    /// # Errors
    /// If the repository refuses, or somebody else took the source over. What was written stays. A
    /// repository that is away at the end is no error: what it did not get is counted and said.
    pub(crate) fn run(self) -> Result<()> {
        let _ended = Ended(Arc::clone(&self.outbox));
        let mut sign_due = Instant::now() + SIGN_OF_LIFE;
        let mut asked_to_end: Option<Instant> = None;
        loop {
            let (over, work) = self.wait_until(sign_due);
            if Instant::now() >= sign_due {
                sign_due = Instant::now() + SIGN_OF_LIFE;
                let beaten = self.asking(|| self.lease.beat());
                self.unless_away(beaten)?;
            }
            if !over {
                if work {
                    let done = self.hand_over();
                    self.unless_away(done)?;
                }
                continue;
            }
            let since = *asked_to_end.get_or_insert_with(Instant::now);
            match self.hand_over() {
                Err(error) if self.archive.may_pass() && since.elapsed() < LAST_TRY => {
                    let waiting = self.outbox.lock().queue.len();
                    self.say_once(format!(
                        "{error}. The recording is over; {waiting} snapshots and gaps wait up to \
                         {} s for it",
                        LAST_TRY.as_secs()
                    ));
                    std::thread::sleep(Duration::from_secs(1));
                }
                Err(error) if self.archive.may_pass() => {
                    let count = self.outbox.unacknowledged();
                    log::warn!(
                        "{error}. {count} snapshots and gaps that waited in memory are lost"
                    );
                    let mut recorded = lock(&self.recorded);
                    recorded.gaps += 1;
                    recorded.lost += count;
                    return Ok(());
                }
                done => return done,
            }
        }
    }

    /// Waits for something new, the end, or the next sign of life; whether it is the end, and
    /// whether there is something to write.
    fn wait_until(&self, sign_due: Instant) -> (bool, bool) {
        let mut state = self.outbox.lock();
        loop {
            // What could not be written waits for something new: a repository that is away is not
            // asked again at once.
            let work = state.news;
            let left = sign_due.saturating_duration_since(Instant::now());
            if work || state.over || left.is_zero() {
                state.news = false;
                return (state.over, work);
            }
            let waited = self.outbox.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Asks the repository for something; how long that takes is known to who puts things
    /// meanwhile.
    fn asking<T>(&self, ask: impl FnOnce() -> Result<T>) -> Result<T> {
        self.outbox.lock().asked_at = Some(Instant::now());
        let done = ask();
        let mut state = self.outbox.lock();
        state.asked_at = None;
        if std::mem::take(&mut state.hangs) {
            let waiting = state.queue.len();
            log::warn!(
                "The repository answers again; {waiting} snapshots and gaps of {} wait for it",
                state.path
            );
        }
        done
    }

    /// No error where the repository is away for a while.
    fn unless_away(&self, done: Result<()>) -> Result<()> {
        match done {
            Err(error) if self.archive.may_pass() => {
                self.say_once(format!("{error}. The recording goes on, and this is tried again"));
                Ok(())
            }
            done => done,
        }
    }

    /// Warns, unless that was the last warning.
    fn say_once(&self, warning: String) {
        let mut state = self.outbox.lock();
        if state.said.as_ref() != Some(&warning) {
            log::warn!("{warning}");
            state.said = Some(warning);
        }
    }

    /// Writes what waits, as far as the repository takes it.
    fn hand_over(&self) -> Result<()> {
        // Whoever took the source over writes newer snapshots: what waited here would come behind
        // them.
        self.asking(|| self.lease.beat())?;
        loop {
            let (lost, path) = {
                let mut state = self.outbox.lock();
                state.telling = state.telling.or(state.lost);
                (state.telling, state.path.clone())
            };
            if let Some((at_unix_ns, count)) = lost {
                let reason = format!(
                    "{count} snapshots and gaps were lost while the repository could not be written"
                );
                let gap = Gap { source: path, at_unix_ns, reason, after: None };
                self.asking(|| self.archive.note_gap(&gap))?;
                lock(&self.recorded).gaps += 1;
                let mut state = self.outbox.lock();
                state.telling = None;
                // More may have been lost while this was written: that is another gap.
                state.lost =
                    state.lost.filter(|(_, now)| *now > count).map(|(at, now)| (at, now - count));
                continue;
            }
            let Some(next) = self.outbox.next() else { break };
            if let Err(error) = self.asking(|| self.keep(&next)) {
                self.put_back(next);
                return Err(error);
            }
            self.outbox.lock().in_hand = false;
        }
        if let Some(said) = self.outbox.lock().said.take() {
            log::warn!("The repository takes snapshots again. Before, it was: {said}");
        }
        self.remove_old()
    }

    fn keep(&self, what: &Waiting) -> Result<()> {
        match what {
            Waiting::Snapshot(snapshot, key) => {
                let id = self.archive.take_once(snapshot, key)?;
                lock(&self.recorded).taken.push(id);
            }
            Waiting::Gap(gap) => self.archive.note_gap(gap)?,
        }
        Ok(())
    }

    /// What was not taken is the first again, unless newer things fill the room meanwhile.
    fn put_back(&self, what: Waiting) {
        let mut state = self.outbox.lock();
        state.in_hand = false;
        if state.queue.len() >= MOST_WAITING {
            state.lose(&what);
        } else {
            state.queue.push_front(what);
        }
    }

    fn remove_old(&self) -> Result<()> {
        let (before, path) = {
            let mut state = self.outbox.lock();
            (state.remove_before.take(), state.path.clone())
        };
        match before {
            Some(before) => {
                self.asking(|| self.archive.remove_before(Some(&path), before).map(|_| ()))
            }
            None => Ok(()),
        }
    }
}
