//! A source asked on a thread of its own, so that nothing it does keeps a recording from its schedule.
//!
//! For sources whose client library cannot be given a time for a whole answer, or trusts what it reads: an answer that does not come in
//! time is an error when that time has passed, and so is a panic in the library. A thread that still waits is not given a second question
//! and not doubled: until it comes back, every question has the same error at once. Its late answer is thrown away.
//!
//! Invariant: at most one thread a source.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use super::LiveSource;
use crate::sampling::Sampling;
use crate::{Error, Result, Snapshot};

/// What the thread is asked.
enum Question {
    Snapshot,
    Look(Sampling),
}

/// What it says.
enum Answer {
    Snapshot(Box<Snapshot>),
    /// Whether there was something to look at, and the samples with this look.
    Look(bool, Sampling),
}

/// How the source is opened, again after its thread ended.
type Open = Arc<dyn Fn() -> Result<Box<dyn LiveSource>> + Send + Sync>;

/// A source on a thread of its own.
pub(super) struct Aside {
    name: String,
    kept_as: String,
    open: Open,
    thread: Thread,
    /// How long an answer may take.
    patience: Duration,
    /// Since when the thread owes an answer that nobody waits for any more.
    owing: Option<Instant>,
    /// Whether the thread has ended.
    ended: bool,
}

/// The two ends of what is said to the thread and by it.
struct Thread {
    questions: Sender<Question>,
    answers: Receiver<Result<Answer>>,
}

impl Aside {
    /// Opens a source on a thread.
    ///
    /// # Errors
    /// Those of opening it, and if that takes longer than `patience`.
    pub(super) fn open(name: String, patience: Duration, open: Open) -> Result<Aside> {
        let (thread, kept_as) = start(&name, patience, &open)?;
        Ok(Aside { name, kept_as, open, thread, patience, owing: None, ended: false })
    }

    fn ask(&mut self, question: Question) -> Result<Answer> {
        if self.ended {
            (self.thread, _) = start(&self.name, self.patience, &self.open)?;
            (self.ended, self.owing) = (false, None);
        }
        if let Some(since) = self.owing {
            match self.thread.answers.try_recv() {
                Ok(_) => self.owing = None,
                Err(TryRecvError::Empty) => {
                    let reason = format!("it has not answered for {} s", since.elapsed().as_secs());
                    return Err(failed("ask", &self.name, &reason));
                }
                Err(TryRecvError::Disconnected) => return self.end(),
            }
        }
        let began = Instant::now();
        if self.thread.questions.send(question).is_err() {
            return self.end();
        }
        match self.thread.answers.recv_timeout(self.patience) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                self.owing = Some(began);
                Err(failed("ask", &self.name, &because(RecvTimeoutError::Timeout, self.patience)))
            }
            Err(RecvTimeoutError::Disconnected) => self.end(),
        }
    }

    fn end(&mut self) -> Result<Answer> {
        self.ended = true;
        Err(failed("ask", &self.name, &because(RecvTimeoutError::Disconnected, self.patience)))
    }
}

/// A thread with the source opened on it, and what the source is called in a repository.
fn start(name: &str, patience: Duration, open: &Open) -> Result<(Thread, String)> {
    let (questions, asked) = channel::<Question>();
    let (answer, answers) = channel();
    let (opened, opens) = channel();
    let open = Arc::clone(open);
    let started = std::thread::Builder::new().name("source".to_owned()).spawn(move || {
        let mut source = match open() {
            Ok(source) => source,
            Err(error) => {
                let _ = opened.send(Err(error));
                return;
            }
        };
        // Whoever asked may have gone: then there is nothing more to do.
        let _ = opened.send(Ok(source.kept_as()));
        while let Ok(question) = asked.recv() {
            let said = match question {
                Question::Snapshot => source.snapshot().map(|snapshot| Answer::Snapshot(Box::new(snapshot))),
                Question::Look(mut sampling) => {
                    source.look(&mut sampling).map(|useful| Answer::Look(useful, sampling))
                }
            };
            if answer.send(said).is_err() {
                return;
            }
        }
    });
    started.map_err(|error| failed("connect to", name, &error.to_string()))?;
    match opens.recv_timeout(patience) {
        Ok(opened) => Ok((Thread { questions, answers }, opened?)),
        Err(error) => Err(failed("connect to", name, &because(error, patience))),
    }
}

fn because(error: RecvTimeoutError, patience: Duration) -> String {
    match error {
        RecvTimeoutError::Timeout => format!("there was no answer within {:.1} s", patience.as_secs_f64()),
        RecvTimeoutError::Disconnected => {
            "what it sent could not be understood, and the connection was given up".to_owned()
        }
    }
}

fn failed(action: &'static str, name: &str, reason: &str) -> Error {
    Error::Source {
        action,
        place: name.to_owned(),
        reason: reason.to_owned(),
        remedy: "Check that it is the server you mean, and that it runs and answers its own client"
            .to_owned(),
    }
}

impl LiveSource for Aside {
    fn name(&self) -> &str {
        &self.name
    }

    fn kept_as(&self) -> String {
        self.kept_as.clone()
    }

    fn snapshot(&mut self) -> Result<Snapshot> {
        match self.ask(Question::Snapshot)? {
            Answer::Snapshot(snapshot) => Ok(*snapshot),
            Answer::Look(..) => Err(failed("ask", &self.name, "it answered another question")),
        }
    }

    fn look(&mut self, sampling: &mut Sampling) -> Result<bool> {
        match self.ask(Question::Look(sampling.clone()))? {
            Answer::Look(useful, with_look) => {
                *sampling = with_look;
                Ok(useful)
            }
            Answer::Snapshot(_) => Err(failed("ask", &self.name, "it answered another question")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::Source;

    /// Answers the first question when the barrier lets it, and panics at the look.
    struct Slow(Arc<Barrier>, Arc<AtomicBool>);

    impl LiveSource for Slow {
        fn name(&self) -> &str {
            "slow"
        }

        fn snapshot(&mut self) -> Result<Snapshot> {
            if !self.1.swap(true, Ordering::Relaxed) {
                self.0.wait();
            }
            Ok(Snapshot::at(Source::default(), 1, 1))
        }

        fn look(&mut self, _: &mut Sampling) -> Result<bool> {
            panic!("a client library that trusts its server")
        }
    }

    #[test]
    fn an_answer_that_does_not_come_and_a_panic_are_errors_and_a_late_answer_is_thrown_away() {
        let barrier = Arc::new(Barrier::new(2));
        let (gate, waited) = (Arc::clone(&barrier), Arc::new(AtomicBool::new(false)));
        let open: Open = Arc::new(move || Ok(Box::new(Slow(Arc::clone(&gate), Arc::clone(&waited)))));
        let mut source = Aside::open("slow".to_owned(), Duration::from_secs(120), open).expect("opened");
        source.patience = Duration::from_millis(1);
        let error = source.snapshot().expect_err("nothing yet").to_string();
        assert!(error.contains("no answer within"), "{error}");
        let error = source.snapshot().expect_err("nothing yet").to_string();
        assert!(error.contains("has not answered for"), "{error}");
        source.patience = Duration::from_secs(120);
        barrier.wait();
        let began = Instant::now();
        while source.snapshot().is_err() {
            assert!(began.elapsed() < Duration::from_secs(120), "it answers again");
            std::thread::yield_now();
        }
        let mut sampling = Sampling::new("s".to_owned(), 1);
        let error = source.look(&mut sampling).expect_err("the thread ended").to_string();
        assert!(error.contains("could not be understood"), "{error}");
        source.snapshot().expect("opened anew");
    }
}
