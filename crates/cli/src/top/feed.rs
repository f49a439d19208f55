//! Asks a source on a beat, in a thread of its own, and says what came of it.
//!
//! A source that does not answer is asked again with the next beat. What lies between the last
//! answer before and the first one after is a gap, and so is an interval in which the source was
//! started anew or set its counters to zero.
//!
//! Invariant: one question is under way at a time, whatever the beat: a slow server is not asked
//! more for being slow.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant, SystemTime};

use tiersmith_awr::sources::LiveSource;
use tiersmith_awr::{Interval, Sampling, Snapshot};

/// What the thread says.
#[derive(Debug)]
pub(crate) enum News {
    /// The first answer, or the first one after silence or a restart: intervals begin here.
    Begins,
    /// What happened since the last answer.
    Interval(Box<Interval>),
    /// It answered, and the difference to the last answer means nothing.
    Gap(String),
    /// It did not answer.
    Silent(String),
}

/// The thread that asks. It ends after the answer under way when this value goes.
#[derive(Debug)]
pub(crate) struct Feed {
    news: Receiver<News>,
    beat: Sender<Duration>,
}

impl Feed {
    /// Begins to ask: a snapshot every `every`, and a look at the active sessions every `sample`.
    /// The first interval lasts `first`.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(
        source: Box<dyn LiveSource>,
        every: Duration,
        first: Duration,
        sample: Option<Duration>,
    ) -> std::io::Result<Feed> {
        let (to, news) = channel();
        let (beat, control) = channel();
        let sampling = sample.map(|period| {
            let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let sampler = format!("process {} since {}", std::process::id(), at.as_nanos());
            Sampling::new(sampler, u64::try_from(period.as_millis()).unwrap_or(u64::MAX))
        });
        let asker = Asker { source, every, sample, sampling, last: None, to, control };
        std::thread::Builder::new().name("ask".to_owned()).spawn(move || asker.run(first))?;
        Ok(Feed { news, beat })
    }

    /// Changes the beat.
    pub(crate) fn every(&self, every: Duration) {
        // A thread that ended has said so by ending its news.
        let _ = self.beat.send(every);
    }

    /// What is new by now, if anything.
    pub(crate) fn try_next(&self) -> Result<Option<News>, Ended> {
        match self.news.try_recv() {
            Ok(news) => Ok(Some(news)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Ended),
        }
    }

    /// The next news, waited for until `limit` has passed.
    pub(crate) fn next(&self, limit: Duration) -> Result<Option<News>, Ended> {
        match self.news.recv_timeout(limit) {
            Ok(news) => Ok(Some(news)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Ended),
        }
    }
}

/// The thread that asks is not there any more.
#[derive(Debug)]
pub(crate) struct Ended;

struct Asker {
    source: Box<dyn LiveSource>,
    every: Duration,
    sample: Option<Duration>,
    sampling: Option<Sampling>,
    last: Option<Snapshot>,
    to: Sender<News>,
    control: Receiver<Duration>,
}

impl Asker {
    fn run(mut self, first: Duration) {
        if self.ask().is_err() {
            return;
        }
        let mut next = Instant::now() + first;
        // Right away, so that the shortest interval has a look in it.
        let mut next_look = Instant::now();
        loop {
            if self.sampling.is_some() && Instant::now() >= next_look {
                self.look();
                next_look = Instant::now() + self.sample.unwrap_or(self.every);
            }
            if Instant::now() >= next {
                if self.ask().is_err() {
                    return;
                }
                // A slow answer does not make the next ones come faster.
                next = (next + self.every).max(Instant::now() + self.every / 2);
            }
            let until = if self.sampling.is_some() { next.min(next_look) } else { next };
            match self.control.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(every) => {
                    self.every = every;
                    next = next.min(Instant::now() + every);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// A look that failed was not counted; the next snapshot finds out what is wrong.
    fn look(&mut self) {
        if let Some(sampling) = &mut self.sampling
            && let Ok(false) = self.source.look(sampling)
        {
            self.sampling = None;
        }
    }

    /// Asks, and says what came of it. An error means that nobody listens any more.
    fn ask(&mut self) -> Result<(), std::sync::mpsc::SendError<News>> {
        let news = match self.source.snapshot() {
            Err(error) => {
                self.last = None;
                News::Silent(error.to_string())
            }
            Ok(mut snapshot) => {
                snapshot.sampling.clone_from(&self.sampling);
                let news = match self.last.as_ref().map(|last| Interval::between(last, &snapshot)) {
                    None => News::Begins,
                    Some(Ok(interval)) => News::Interval(Box::new(interval)),
                    Some(Err(error)) => News::Gap(error.to_string()),
                };
                self.last = Some(snapshot);
                news
            }
        };
        self.to.send(news)
    }
}
