//! Recording: snapshots of sources on a schedule, with samples of their active sessions between
//! them.
//!
//! ```text
//! Recorder::begin    leases, first snapshots; an error here means that nothing was recorded
//! Recorder::run      two threads a source: one looks and takes snapshots until told to stop,
//!                    one writes (`outbox.rs`)
//! ```
//!
//! A source that does not answer at all cannot keep a recording from ending: it is waited for
//! `GRACE`, then noted as a gap. A source that cannot be asked is no end of the recording: the
//! instant and the reason go into the repository as a gap, and the next snapshot is tried when it
//! is due. Instants are multiples of the period from the beginning, so a slow snapshot does not
//! move those after it; one that is missed is not made up for, and where half a minute or more was
//! missed, or the machine was suspended, that is a gap. The clock of the schedule is never set, and
//! goes on while the machine is suspended.
//!
//! A repository that is away for a while (a server that restarts or hangs, a full disk) is no end
//! either, and holds up nothing: what is to be kept waits in memory, in order, and is written when
//! the repository is back. What does not fit in there is a gap.
//!
//! Invariants: two recorders never record one source into one repository; every snapshot carries
//! the samples of its own recorder only.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

use crate::outbox::{Closing, Outbox, Waiting, Writer};
use crate::repository::archive::{Archive, Gap, Lease};
use crate::snapshot::sampling::Sampling;
use crate::sources::LiveSource;
use crate::{Result, SnapshotId};

/// How long a recorder sleeps at most before it asks whether to stop.
const NAP: Duration = Duration::from_millis(50);

/// How long the last answers may take after the end of a recording: several times what a source may
/// take for one.
const GRACE: Duration = Duration::from_secs(120);

/// How long a repository may take for the last gap.
const LAST_WORD: Duration = Duration::from_secs(30);

/// Snapshots that were not taken for so long are a gap; less is a slow machine, and the report
/// shows a longer interval.
const MISSED: Duration = Duration::from_secs(30);

/// When to do what.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// From one snapshot to the next.
    pub every: Duration,
    /// How long to record; until told to stop if absent.
    pub length: Option<Duration>,
    /// From one look at the active sessions to the next; none if absent.
    pub sample: Option<Duration>,
    /// Snapshots older than this are removed; none if absent.
    pub keep: Option<Duration>,
}

/// A recording under way.
pub struct Recorder {
    plan: Plan,
    repository: PathBuf,
    tracks: Vec<Track>,
    grace: Duration,
    last_word: Duration,
}

/// One source of a recording.
struct Track {
    source: Box<dyn LiveSource>,
    archive: Archive,
    lease: Lease,
    sampling: Option<Sampling>,
    /// What the lease is held under: the source's address, or a mark if names are taken out.
    kept_as: String,
    /// The path that its snapshots carry.
    path: String,
    recorded: Arc<Mutex<Recorded>>,
}

/// The thread that asks a source.
struct Asker {
    source: Box<dyn LiveSource>,
    sampling: Option<Sampling>,
    kept_as: String,
    path: String,
    recorded: Arc<Mutex<Recorded>>,
    outbox: Arc<Outbox>,
}

/// What was recorded of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// The source's address.
    pub source: String,
    /// The snapshots, in order.
    pub taken: Vec<SnapshotId>,
    /// How often the source could not be asked.
    pub gaps: usize,
    /// How many snapshots and gaps the repository had not acknowledged at the end.
    pub lost: usize,
    /// How often its sessions were looked at.
    pub looks: u64,
}

impl Recorder {
    /// Takes the leases and the first snapshots.
    ///
    /// # Errors
    /// If a source cannot be asked, somebody else records it, or the repository cannot be written.
    pub fn begin(
        sources: Vec<Box<dyn LiveSource>>,
        repository: &Path,
        plan: Plan,
    ) -> Result<Recorder> {
        let mut tracks = Vec::new();
        for source in sources {
            let archive = Archive::open(repository)?;
            let kept_as = source.kept_as();
            let lease = archive.lease(&kept_as)?;
            let recorded = Recorded { source: source.name().to_owned(), ..Recorded::default() };
            let recorded = Arc::new(Mutex::new(recorded));
            tracks.push(Track {
                source,
                archive,
                lease,
                sampling: None,
                kept_as,
                path: String::new(),
                recorded,
            });
        }
        for track in &mut tracks {
            // Also where nobody looks: its name tells the snapshots of this recording from others
            // (`repository/latest.rs`).
            let sampler =
                format!("process {} since {}", std::process::id(), since_1970().as_nanos());
            let period_ms = plan.sample.map_or(0, |period| period.as_millis());
            track.sampling =
                Some(Sampling::new(sampler, u64::try_from(period_ms).unwrap_or(u64::MAX)));
            track.begin()?;
        }
        let repository = repository.to_owned();
        Ok(Recorder { plan, repository, tracks, grace: GRACE, last_word: LAST_WORD })
    }

    /// Records until the plan's length has passed or `stop` says so, and takes the last snapshots.
    ///
    /// # Errors
    /// If the repository refuses, or somebody else took a source over. What was recorded before
    /// that stays. One that is away or silent at the end is no error: what it did not get is said
    /// and counted.
    pub fn run(self, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Recorded>> {
        let plan = self.plan;
        let began = clock();
        let over = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for track in self.tracks {
            let (recorded, path) = (Arc::clone(&track.recorded), track.path.clone());
            let (over, outbox) = (Arc::clone(&over), Arc::new(Outbox::default()));
            let waits = Arc::clone(&outbox);
            // Not scoped: a thread whose source never answers is left behind.
            let thread = std::thread::spawn(move || track.run(outbox, plan, began, &over));
            threads.push((thread, recorded, path, waits));
        }
        let end = plan.length.map(|length| began + length);
        let mut asked_to_end: Option<Duration> = None;
        while threads.iter().any(|(thread, ..)| !thread.is_finished()) {
            let now = clock();
            if asked_to_end.is_none() && (end.is_some_and(|end| now >= end) || stop()) {
                over.store(true, Ordering::Relaxed);
                asked_to_end = Some(now);
            }
            if asked_to_end.is_some_and(|asked| now - asked > self.grace) {
                break;
            }
            std::thread::sleep(NAP);
        }
        let (mut all, mut refused, mut answers) = (Vec::new(), None, true);
        for (thread, recorded, path, waits) in threads {
            if thread.is_finished() {
                let done = thread.join().expect("BUG: a recording thread does not panic");
                refused = refused.or(done.err());
            } else {
                let reason = format!(
                    "it, or the repository, did not answer within {} s of the end of the recording",
                    self.grace.as_secs()
                );
                let lost = waits.unacknowledged();
                log::warn!(
                    "{}: {reason}; {lost} snapshots and gaps that waited in memory are lost",
                    crate::figure::visible(&path)
                );
                let gap = Gap { source: path, at_unix_ns: now_unix_ns(), reason, after: None };
                // Who was silent once is not asked again for each source.
                answers =
                    answers && note_if_it_answers(self.repository.clone(), gap, self.last_word);
                let mut recorded = lock(&recorded);
                recorded.gaps += 1;
                recorded.lost += lost;
            }
            all.push(lock(&recorded).clone());
        }
        refused.map_or(Ok(all), Err)
    }
}

/// What was recorded is counted up only, so that it is whole also if a thread panicked.
pub(crate) fn lock(recorded: &Mutex<Recorded>) -> std::sync::MutexGuard<'_, Recorded> {
    recorded.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a gap into a repository that may be what does not answer: then it is left behind, as the
/// thread that waits for it is. Whether it was written.
fn note_if_it_answers(repository: PathBuf, gap: Gap, within: Duration) -> bool {
    let (done, noted) = std::sync::mpsc::channel();
    let noting = move || {
        let _ =
            done.send(Archive::existing(&repository).and_then(|archive| archive.note_gap(&gap)));
    };
    std::thread::spawn(noting);
    let why = match noted.recv_timeout(within) {
        Ok(Ok(())) => return true,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "The repository does not answer".to_owned(),
    };
    log::warn!("{why}. That the recording ended without it is not noted in it");
    false
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn now_unix_ns() -> u64 {
    u64::try_from(since_1970().as_nanos()).unwrap_or(u64::MAX)
}

fn read_clock(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    let ns = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), ns)
}

/// Time by a clock that is never set and goes on while the machine is suspended.
fn clock() -> Duration {
    read_clock(ClockId::Boottime)
}

/// How long the machine has been suspended since it was started.
fn suspended() -> Duration {
    let awake = read_clock(ClockId::Monotonic);
    clock().saturating_sub(awake)
}

/// Multiples of a period.
struct Beat {
    period: Duration,
    next: Duration,
}

impl Beat {
    fn new(period: Duration, began: Duration) -> Beat {
        let period = period.max(Duration::from_millis(1));
        Beat { period, next: began + period }
    }

    /// If it is due: how many were missed before it. The next one is in the future then, whatever
    /// was missed.
    fn due(&mut self, now: Duration) -> Option<u32> {
        let late = now.checked_sub(self.next)?;
        let missed =
            u32::try_from(late.as_nanos() / self.period.as_nanos()).unwrap_or(u32::MAX - 1);
        self.next += self.period.saturating_mul(missed + 1);
        Some(missed)
    }
}

/// Why snapshots were missed, if that is worth a gap: `slept` is how long the machine was suspended
/// meanwhile.
fn reason_of(missed: u32, period: Duration, slept: Duration) -> Option<String> {
    if missed == 0 {
        return None;
    }
    let not_taken =
        if missed == 1 { "1 snapshot was".to_owned() } else { format!("{missed} snapshots were") };
    if slept >= Duration::from_secs(1) {
        return Some(format!(
            "{not_taken} not taken: the machine was suspended for {} s",
            slept.as_secs()
        ));
    }
    (period.saturating_mul(missed) >= MISSED).then(|| {
        format!("{not_taken} not taken: the one before took too long, or the recorder was stopped")
    })
}

impl Track {
    /// Records until told to stop, and waits for what is to be kept.
    fn run(
        self,
        outbox: Arc<Outbox>,
        plan: Plan,
        began: Duration,
        stop: &AtomicBool,
    ) -> Result<()> {
        let writer = Writer {
            archive: self.archive,
            lease: self.lease,
            outbox: Arc::clone(&outbox),
            recorded: Arc::clone(&self.recorded),
        };
        let asker = Asker {
            source: self.source,
            sampling: self.sampling,
            kept_as: self.kept_as,
            path: self.path,
            recorded: self.recorded,
            outbox: Arc::clone(&outbox),
        };
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| writer.run());
            let closing = Closing(&outbox);
            asker.run(plan, began, stop);
            drop(closing);
            writing.join().expect("BUG: a writing thread does not panic")
        })
    }

    /// The first snapshot: what cannot be asked or written now is an error.
    fn begin(&mut self) -> Result<()> {
        let mut snapshot = self.source.snapshot()?;
        snapshot.sampling.clone_from(&self.sampling);
        let id = self.archive.take(&snapshot)?;
        self.path = snapshot.source.path;
        lock(&self.recorded).taken.push(id);
        Ok(())
    }
}

impl Asker {
    fn run(mut self, plan: Plan, began: Duration, stop: &AtomicBool) {
        let began_at = since_1970();
        let mut snapshots = Beat::new(plan.every, began);
        let mut looks = plan.sample.map(|period| Beat::new(period, began));
        let end = plan.length.map(|length| began + length);
        let mut slept = suspended();
        loop {
            let now = clock();
            let over = end.is_some_and(|end| now >= end);
            if over || stop.load(Ordering::Relaxed) {
                return self.ask();
            }
            // The error is the writer's to give.
            if self.outbox.is_dead() {
                return;
            }
            if looks.as_mut().is_some_and(|beat| beat.due(now).is_some()) && !self.look() {
                looks = None;
            }
            // A snapshot that is due together with the end is the last one.
            if let Some(missed) = snapshots.due(now)
                && end.is_none_or(|end| now < end)
            {
                let slept_before = std::mem::replace(&mut slept, suspended());
                if let Some(reason) =
                    reason_of(missed, plan.every, slept.saturating_sub(slept_before))
                {
                    self.gap(reason);
                }
                self.ask();
                if let Some(keep) = plan.keep {
                    // A time of day that was set forward must not make everything old.
                    let now = since_1970().min(began_at + clock().saturating_sub(began));
                    self.outbox.remove_before(
                        u64::try_from(now.saturating_sub(keep).as_nanos()).unwrap_or(0),
                    );
                }
            }
            let next = looks.as_ref().map_or(snapshots.next, |beat| beat.next.min(snapshots.next));
            let until = end.map_or(next, |end| end.min(next));
            std::thread::sleep(until.saturating_sub(clock()).min(NAP));
        }
    }

    /// One look; false if this source has nothing to look at.
    fn look(&mut self) -> bool {
        let Some(sampling) = &mut self.sampling else { return false };
        // A look that failed was not counted; the next snapshot finds out what is wrong.
        let useful = self.source.look(sampling).unwrap_or(true);
        lock(&self.recorded).looks = sampling.looks;
        useful
    }

    /// A snapshot, or the reason why there is none, on its way into the repository.
    fn ask(&mut self) {
        match self.source.snapshot() {
            Ok(mut snapshot) => {
                snapshot.sampling.clone_from(&self.sampling);
                self.path.clone_from(&snapshot.source.path);
                self.outbox.put(&self.path, Waiting::snapshot(snapshot));
            }
            Err(error) => {
                // What a server says may hold the names that were to be taken out.
                let named = self.kept_as == self.source.name();
                self.gap(if named {
                    error.to_string()
                } else {
                    "it could not be asked".to_owned()
                });
            }
        }
    }

    fn gap(&mut self, reason: String) {
        lock(&self.recorded).gaps += 1;
        let gap = Gap { source: self.path.clone(), at_unix_ns: now_unix_ns(), reason, after: None };
        self.outbox.put(&self.path, Waiting::Gap(gap));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source that counts its snapshots, and panics at one of them.
    struct Counting(Arc<std::sync::atomic::AtomicU64>, u64);

    impl LiveSource for Counting {
        fn name(&self) -> &str {
            "counting"
        }

        fn snapshot(&mut self) -> Result<crate::Snapshot> {
            let number = self.0.fetch_add(1, Ordering::SeqCst);
            assert!(number < self.1, "a snapshot that panics, as it should");
            Ok(crate::Snapshot::now(crate::Source {
                path: "counting".to_owned(),
                ..Default::default()
            }))
        }

        fn look(&mut self, _: &mut Sampling) -> Result<bool> {
            Ok(false)
        }
    }

    fn counting(path: &Path, panics_at: u64) -> (Recorder, Arc<std::sync::atomic::AtomicU64>) {
        let plan =
            Plan { every: Duration::from_millis(10), length: None, sample: None, keep: None };
        let count = Arc::default();
        let source = Box::new(Counting(Arc::clone(&count), panics_at));
        (Recorder::begin(vec![source], path, plan).expect("begun"), count)
    }

    #[test]
    fn a_recording_that_ends_while_the_repository_hangs_says_what_is_lost_and_ends() {
        for gone in [false, true] {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("awr.db");
            let (mut recorder, count) = counting(&path, u64::MAX);
            (recorder.grace, recorder.last_word) = (Duration::ZERO, Duration::from_millis(1));
            if gone {
                // The error of a repository that cannot even be opened must not end it either.
                recorder.repository = dir.path().join("none.db");
                recorder.last_word = Duration::from_secs(120);
            }
            // Whoever holds the file like this makes each writer wait.
            let holder = rusqlite::Connection::open(&path).expect("opened");
            holder.busy_timeout(Duration::from_secs(120)).expect("patient");
            holder.execute_batch("BEGIN EXCLUSIVE").expect("held");
            let before = count.load(Ordering::SeqCst);
            let recorded =
                recorder.run(&|| count.load(Ordering::SeqCst) > before + 5).expect("a list");
            let [of] = recorded.as_slice() else { panic!("{recorded:?}") };
            assert!(of.taken.len() == 1 && of.gaps > 0, "{of:?}");
            assert!(of.lost > 2, "{of:?}");
        }
    }

    #[test]
    fn a_source_that_panics_ends_its_recording() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("awr.db");
        let (recorder, _) = counting(&path, 3);
        let run = std::panic::AssertUnwindSafe(|| recorder.run(&|| false));
        assert!(std::panic::catch_unwind(run).is_err(), "the panic is not hidden");
        let kept = Archive::existing(&path).and_then(|archive| archive.list()).expect("a list");
        assert_eq!(kept.entries.len(), 3, "what was taken before is written");
        drop(counting(&path, 1));
    }

    #[test]
    fn what_was_missed_is_not_made_up_for() {
        let began = clock();
        let second = Duration::from_secs(1);
        let mut beat = Beat::new(second, began);
        assert_eq!(beat.due(began), None);
        assert_eq!(beat.due(began + second), Some(0));
        assert_eq!(beat.due(began + second), None);
        assert_eq!(
            beat.due(began + second * 7 + second / 2),
            Some(5),
            "one for all that were missed"
        );
        assert_eq!(beat.next, began + second * 8);
    }

    #[test]
    fn a_week_of_late_snapshots_does_not_drift() {
        let (minute, began) = (Duration::from_secs(60), Duration::from_secs(1_000_000));
        let mut beat = Beat::new(minute, began);
        let mut rng = fastrand::Rng::with_seed(3);
        for number in 1..=7 * 24 * 60 {
            assert_eq!(beat.next, began + minute * number);
            // Late by anything below a minute.
            let late = Duration::from_millis(rng.u64(0..60_000));
            assert_eq!(beat.due(began + minute * number + late), Some(0));
        }
    }

    #[test]
    fn what_was_missed_for_long_or_in_sleep_is_a_gap() {
        let (second, none) = (Duration::from_secs(1), Duration::ZERO);
        assert_eq!(reason_of(0, second * 60, second * 50), None, "suspended between two of them");
        assert_eq!(reason_of(1, second, none), None, "a slow machine");
        let missed = reason_of(1, second * 60, none).expect("a minute is missing");
        assert!(missed.contains("1 snapshot was not taken"), "{missed}");
        let slept = reason_of(3, second, second * 4).expect("it was suspended");
        assert!(
            slept.contains("3 snapshots were not taken") && slept.contains("suspended for 4 s"),
            "{slept}"
        );
    }
}
