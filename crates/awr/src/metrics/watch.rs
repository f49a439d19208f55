//! Asking sources when somebody scrapes, each in a thread of its own, and no longer than patience
//! lasts.
//!
//! ```text
//! scrape  ->  wanted  ->  thread of the source: open if need be, ask  ->  found
//!         ->  scrape, if patience lasted
//! ```
//!
//! Scrapes that come within a second share one answer, so that many readers ask a database no more
//! often than one. An answer that took longer than patience is for nobody: the next scrape asks
//! anew. Between scrapes the threads look at the active sessions, where waits can only be sampled.
//!
//! Invariants: an answer was begun at most `SHARED` before the scrape that uses it; a source that
//! hangs holds up its own thread only.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::Scrape;
use super::held::Held;
use crate::Snapshot;
use crate::snapshot::sampling::Sampling;
use crate::sources::LiveSource;

/// How old the beginning of an answer may be that a scrape shares with another.
const SHARED: Duration = Duration::from_secs(1);

/// The longest sleep of a thread that nobody wants anything of.
const LONG: Duration = Duration::from_secs(3600);

/// Connects to a source, or says in a sentence why not.
pub type Opener = Box<dyn FnMut() -> Result<Box<dyn LiveSource>, String> + Send>;

/// A source that is asked when somebody scrapes. Its thread ends after the answer under way when
/// this value goes.
#[derive(Debug)]
pub struct Watched {
    label: String,
    shared: Arc<Shared>,
}

/// Sources, and how long a scrape waits for them.
#[derive(Debug)]
pub struct Watch {
    sources: Vec<Watched>,
    patience: Duration,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// When the latest scrape came that is not answered yet.
    wanted: Option<Instant>,
    found: Option<Found>,
    stop: bool,
}

#[derive(Clone, Debug)]
struct Found {
    began: Instant,
    took: Duration,
    snapshot: Option<Snapshot>,
    sampling: Option<Sampling>,
}

impl State {
    fn for_scrape_at(&self, at: Instant) -> Option<&Found> {
        self.found.as_ref().filter(|found| found.began + SHARED >= at)
    }
}

impl Watched {
    /// Starts the thread of a source that is called `label`; `sample` is the time from one look at
    /// its sessions to the next.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(
        label: &str,
        opener: Opener,
        sample: Option<Duration>,
    ) -> std::io::Result<Watched> {
        let shared = Arc::new(Shared::default());
        let asker = Asker {
            label: label.to_owned(),
            opener,
            source: None,
            sampling: sample.map(sampler),
            held: Held::default(),
            answered: None,
        };
        let of_thread = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("scrape".to_owned())
            .spawn(move || asker.run(&of_thread, sample))?;
        Ok(Watched { label: label.to_owned(), shared })
    }

    fn want(&self, at: Instant) {
        let mut state = self.shared.lock();
        if state.for_scrape_at(at).is_none() {
            state.wanted = Some(at);
            self.shared.changed.notify_all();
        }
    }

    fn get(&self, at: Instant, patience: Duration) -> Scrape {
        let mut state = self.shared.lock();
        loop {
            let waited = at.elapsed();
            if let Some(found) = state.for_scrape_at(at) {
                let Found { snapshot, sampling, took, .. } = found.clone();
                return Scrape { source: self.label.clone(), snapshot, sampling, took };
            }
            let Some(left) = patience.checked_sub(waited).filter(|left| !left.is_zero()) else {
                return Scrape {
                    source: self.label.clone(),
                    snapshot: None,
                    sampling: None,
                    took: waited,
                };
            };
            state = self.shared.wait(state, left);
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
    }
}

impl Watch {
    /// These sources, each waited for as long as `patience`.
    pub fn new(sources: Vec<Watched>, patience: Duration) -> Watch {
        Watch { sources, patience }
    }

    /// Asks all sources at once.
    pub fn scrape(&self) -> Vec<Scrape> {
        let at = Instant::now();
        self.sources.iter().for_each(|source| source.want(at));
        self.sources.iter().map(|source| source.get(at, self.patience)).collect()
    }
}

impl Shared {
    /// A state is whole between two statements, also after a panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, limit: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0
    }
}

fn sampler(period: Duration) -> Sampling {
    let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let name = format!("process {} since {}", std::process::id(), at.as_nanos());
    Sampling::new(name, u64::try_from(period.as_millis()).unwrap_or(u64::MAX))
}

/// What the thread of a source has.
struct Asker {
    label: String,
    opener: Opener,
    source: Option<Box<dyn LiveSource>>,
    sampling: Option<Sampling>,
    held: Held,
    /// Whether the last question was answered, so that a failure is said once.
    answered: Option<bool>,
}

impl Asker {
    fn run(mut self, shared: &Shared, sample: Option<Duration>) {
        let mut next_look = Instant::now();
        loop {
            let mut state = shared.lock();
            let asked = loop {
                if state.stop {
                    return;
                }
                // What was wanted while the last answer was under way may be answered by it.
                if let Some(at) = state.wanted.take()
                    && state.for_scrape_at(at).is_none()
                {
                    break true;
                }
                let looks = self.sampling.is_some() && self.source.is_some();
                let now = Instant::now();
                if looks && now >= next_look {
                    break false;
                }
                let limit = if looks { next_look - now } else { LONG };
                state = shared.wait(state, limit);
            };
            drop(state);
            if asked {
                let found = self.ask();
                shared.lock().found = Some(found);
                shared.changed.notify_all();
            } else {
                self.look();
                next_look = Instant::now() + sample.unwrap_or(LONG);
            }
        }
    }

    /// A look that fails was not counted; the next scrape finds out what is wrong.
    fn look(&mut self) {
        if let (Some(source), Some(sampling)) = (&mut self.source, &mut self.sampling)
            && let Ok(false) = source.look(sampling)
        {
            self.sampling = None;
        }
    }

    fn ask(&mut self) -> Found {
        let began = Instant::now();
        let answer = self.answer();
        match (&answer, self.answered) {
            (Err(reason), None | Some(true)) => log::warn!("{}: {reason}", self.label),
            (Ok(_), Some(false)) => log::warn!("{}: answers again", self.label),
            _ => {}
        }
        self.answered = Some(answer.is_ok());
        let sampling = self.sampling.clone();
        Found { began, took: began.elapsed(), snapshot: answer.ok(), sampling }
    }

    fn answer(&mut self) -> Result<Snapshot, String> {
        if self.source.is_none() {
            self.source = Some((self.opener)()?);
        }
        let source = self.source.as_mut().ok_or("it is not connected")?;
        let mut snapshot = source.snapshot().map_err(|error| error.to_string())?;
        snapshot.check().map_err(|reason| format!("its answer contradicts itself: {reason}"))?;
        self.held.go_on(&mut snapshot);
        Ok(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// For hangs only.
    const LIMIT: Duration = Duration::from_secs(120);

    struct Counted(Arc<AtomicUsize>);

    impl LiveSource for Counted {
        fn name(&self) -> &str {
            "counted"
        }
        fn snapshot(&mut self) -> crate::Result<Snapshot> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(Snapshot::at(crate::Source::default(), 1, 1))
        }
        fn look(&mut self, _: &mut Sampling) -> crate::Result<bool> {
            Ok(false)
        }
    }

    #[test]
    fn many_readers_at_once_ask_a_source_no_more_often_than_one() {
        let asked = Arc::new(AtomicUsize::new(0));
        let of_source = Arc::clone(&asked);
        let opener: Opener = Box::new(move || Ok(Box::new(Counted(Arc::clone(&of_source)))));
        let watched = Watched::start("one", opener, None).expect("a thread");
        // All scrapes of this test are of one instant, however slow the machine is.
        let at = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    watched.want(at);
                    assert!(watched.get(at, LIMIT).snapshot.is_some());
                });
            }
        });
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_source_that_cannot_be_opened_is_tried_again_by_the_next_scrape() {
        let mut tries = 0;
        let opener: Opener = Box::new(move || {
            tries += 1;
            match tries {
                1 => Err("it is not there yet".to_owned()),
                _ => Ok(Box::new(Counted(Arc::default())) as Box<dyn LiveSource>),
            }
        });
        let watched = Watched::start("late", opener, None).expect("a thread");
        let first = Instant::now();
        watched.want(first);
        assert!(watched.get(first, LIMIT).snapshot.is_none());
        let began = watched.shared.lock().found.as_ref().expect("an answer").began;
        // A scrape so much later that it may not share that answer.
        let later = began + SHARED + Duration::from_millis(1);
        while Instant::now() < later {
            std::thread::sleep(Duration::from_millis(5));
        }
        watched.want(later);
        assert!(watched.get(later, LIMIT).snapshot.is_some());
    }

    #[test]
    fn a_source_that_hangs_is_given_up_and_the_others_are_not_held_up() {
        let (release, held) = std::sync::mpsc::channel::<()>();
        let hanging: Opener = Box::new(move || {
            let _ = held.recv();
            Err("released".to_owned())
        });
        let fine: Opener = Box::new(|| Ok(Box::new(Counted(Arc::default()))));
        let hangs = Watched::start("hangs", hanging, None).expect("a thread");
        let fine = Watched::start("fine", fine, None).expect("a thread");
        let at = Instant::now();
        hangs.want(at);
        fine.want(at);
        assert!(hangs.get(at, Duration::from_millis(1)).snapshot.is_none());
        assert!(fine.get(at, LIMIT).snapshot.is_some());
        drop(release);
    }
}
