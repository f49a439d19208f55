//! Recording: snapshots of sources on a schedule, with samples of their active sessions between them.
//!
//! ```text
//! Recorder::begin    leases, first snapshots           an error here means that nothing was recorded
//! Recorder::run      one thread a source: looks and snapshots until told to stop; then the last snapshots
//! ```
//!
//! A source that does not answer at all cannot keep a recording from ending: it is waited for `GRACE`, then noted as a gap.
//! A source that cannot be asked is no end of the recording: the instant and the reason go into the repository as a gap, and the next
//! snapshot is tried when it is due. Instants are multiples of the period from the beginning, so a slow snapshot does not move those
//! after it; one that is missed is not made up for.
//!
//! Invariants: two recorders never record one source into one repository; every snapshot carries the samples of its own recorder only.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::archive::{Archive, Gap, Lease};
use crate::sampling::Sampling;
use crate::sources::LiveSource;
use crate::{Result, Snapshot, SnapshotId};

/// How long a recorder sleeps at most before it asks whether to stop.
const NAP: Duration = Duration::from_millis(50);

/// How long the last answers may take after the end of a recording: several times what a source may take for one.
const GRACE: Duration = Duration::from_secs(120);

/// From one sign of life to the next at most, however rare the snapshots are.
const SIGN_OF_LIFE: Duration = Duration::from_secs(60);

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

/// What was recorded of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// The source's address.
    pub source: String,
    /// The snapshots, in order.
    pub taken: Vec<SnapshotId>,
    /// How often the source could not be asked.
    pub gaps: usize,
    /// How often its sessions were looked at.
    pub looks: u64,
}

impl Recorder {
    /// Takes the leases and the first snapshots.
    ///
    /// # Errors
    /// If a source cannot be asked, somebody else records it, or the repository cannot be written.
    pub fn begin(sources: Vec<Box<dyn LiveSource>>, repository: &Path, plan: Plan) -> Result<Recorder> {
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
            track.sampling = plan.sample.map(|period| {
                let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let sampler = format!("process {} since {}", std::process::id(), at.as_nanos());
                Sampling::new(sampler, u64::try_from(period.as_millis()).unwrap_or(u64::MAX))
            });
            track.take()?;
        }
        Ok(Recorder { plan, repository: repository.to_owned(), tracks })
    }

    /// Records until the plan's length has passed or `stop` says so, and takes the last snapshots.
    ///
    /// # Errors
    /// If the repository cannot be written. What was recorded before that stays.
    pub fn run(self, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Recorded>> {
        let plan = self.plan;
        let began = Instant::now();
        let over = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for track in self.tracks {
            let (recorded, kept_as) = (Arc::clone(&track.recorded), track.kept_as.clone());
            let over = Arc::clone(&over);
            // Not scoped: a thread whose source never answers is left behind.
            threads.push((std::thread::spawn(move || track.run(plan, began, &over)), recorded, kept_as));
        }
        let end = plan.length.map(|length| began + length);
        let mut asked_to_end: Option<Instant> = None;
        while threads.iter().any(|(thread, ..)| !thread.is_finished()) {
            let now = Instant::now();
            if asked_to_end.is_none() && (end.is_some_and(|end| now >= end) || stop()) {
                over.store(true, Ordering::Relaxed);
                asked_to_end = Some(now);
            }
            if asked_to_end.is_some_and(|asked| now - asked > GRACE) {
                break;
            }
            std::thread::sleep(NAP);
        }
        let mut all = Vec::new();
        for (thread, recorded, kept_as) in threads {
            if thread.is_finished() {
                thread.join().expect("BUG: a recording thread does not panic")?;
            } else {
                lock(&recorded).gaps += 1;
                let reason =
                    format!("it did not answer within {} s of the end of the recording", GRACE.as_secs());
                Archive::existing(&self.repository)?.note_gap(&Gap {
                    source: kept_as,
                    at_unix_ns: u64::try_from(since_1970().as_nanos()).unwrap_or(u64::MAX),
                    reason,
                    after: None,
                })?;
            }
            all.push(lock(&recorded).clone());
        }
        Ok(all)
    }
}

/// What was recorded is counted up only, so that it is whole also if a thread panicked.
fn lock(recorded: &Mutex<Recorded>) -> std::sync::MutexGuard<'_, Recorded> {
    recorded.lock().unwrap_or_else(PoisonError::into_inner)
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// A multiple of a period.
struct Beat {
    period: Duration,
    next: Instant,
}

impl Beat {
    fn new(period: Duration, began: Instant) -> Beat {
        let period = period.max(Duration::from_millis(1));
        Beat { period, next: began + period }
    }

    /// Whether it is due; the next one is in the future then, whatever was missed.
    fn due(&mut self, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        let missed = (now - self.next).as_nanos() / self.period.as_nanos();
        self.next += self.period.saturating_mul(u32::try_from(missed + 1).unwrap_or(u32::MAX));
        true
    }
}

impl Track {
    fn run(mut self, plan: Plan, began: Instant, stop: &AtomicBool) -> Result<()> {
        let began_at = since_1970();
        let mut signs = Beat::new(SIGN_OF_LIFE, began);
        let mut snapshots = Beat::new(plan.every, began);
        let mut looks = plan.sample.map(|period| Beat::new(period, began));
        let end = plan.length.map(|length| began + length);
        loop {
            let now = Instant::now();
            let over = end.is_some_and(|end| now >= end);
            if over || stop.load(Ordering::Relaxed) {
                return self.take_or_note();
            }
            if signs.due(now) {
                self.lease.beat()?;
            }
            if looks.as_mut().is_some_and(|beat| beat.due(now)) && !self.look() {
                looks = None;
            }
            // A snapshot that is due together with the end is the last one.
            if snapshots.due(now) && end.is_none_or(|end| now < end) {
                self.take_or_note()?;
                self.lease.beat()?;
                if let Some(keep) = plan.keep {
                    // A time of day that was set forward must not make everything old.
                    let now = since_1970().min(began_at + began.elapsed());
                    let before = u64::try_from(now.saturating_sub(keep).as_nanos()).unwrap_or(0);
                    self.archive.remove_before(Some(&self.path), before)?;
                }
            }
            let next = looks.as_ref().map_or(snapshots.next, |beat| beat.next.min(snapshots.next));
            let until = end.map_or(next, |end| end.min(next));
            std::thread::sleep(until.saturating_duration_since(Instant::now()).min(NAP));
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

    fn take(&mut self) -> Result<()> {
        let snapshot = self.source.snapshot()?;
        self.keep(snapshot)
    }

    fn keep(&mut self, mut snapshot: Snapshot) -> Result<()> {
        snapshot.sampling.clone_from(&self.sampling);
        let id = self.archive.take(&snapshot)?;
        self.path = snapshot.source.path;
        lock(&self.recorded).taken.push(id);
        Ok(())
    }

    /// A snapshot, or the reason why there is none.
    fn take_or_note(&mut self) -> Result<()> {
        match self.source.snapshot() {
            Ok(snapshot) => self.keep(snapshot),
            Err(error) => {
                lock(&self.recorded).gaps += 1;
                // What a server says may hold the names that were to be taken out.
                let named = self.kept_as == self.source.name();
                let reason = if named { error.to_string() } else { "it could not be asked".to_owned() };
                self.archive.note_gap(&Gap {
                    source: self.kept_as.clone(),
                    at_unix_ns: u64::try_from(since_1970().as_nanos()).unwrap_or(u64::MAX),
                    reason,
                    after: None,
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_missed_is_not_made_up_for() {
        let began = Instant::now();
        let second = Duration::from_secs(1);
        let mut beat = Beat::new(second, began);
        assert!(!beat.due(began));
        assert!(beat.due(began + second));
        assert!(!beat.due(began + second));
        assert!(beat.due(began + second * 7 + second / 2), "one for all that were missed");
        assert_eq!(beat.next, began + second * 8);
    }
}
