//! How long a script runs, and who may end it.
//!
//! The server has one thread, which the script uses. So the interpreter asks every few thousand
//! instructions whether the script has taken longer than it may (`busy-reply-threshold`), and then
//! lets the other clients be answered: with -BUSY, unless they say SCRIPT KILL or SHUTDOWN NOSAVE.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// What the other clients have told a script that takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Nothing.
    Nothing,
    /// SCRIPT KILL, or FUNCTION KILL.
    Kill,
    /// SHUTDOWN NOSAVE.
    ShutDown,
}

/// What keeps the other clients waiting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running {
    /// The name of the function; none: it is a script.
    pub(crate) function: Option<String>,
    /// The command that called it.
    pub(crate) command: Vec<Vec<u8>>,
    /// For how long.
    pub(crate) duration_ms: u64,
    /// It has changed keys, so that it cannot be ended without taking that back.
    pub(crate) wrote: bool,
    /// Libraries and functions that there are.
    pub(crate) known: [usize; 2],
}

/// The other clients of the server, while a script runs.
pub(crate) trait Bystanders: std::fmt::Debug {
    /// Answers those who have sent something.
    fn answer(&mut self, running: &Running) -> Told;
}

/// Between two looks at the other clients.
const PAUSE: Duration = Duration::from_millis(10);

/// What the interpreter's hook looks at.
#[derive(Default)]
pub(crate) struct Watchdog {
    /// When the script began, and how long it may run before the others are answered.
    running: Cell<Option<(Instant, Duration)>>,
    what: RefCell<Running>,
    /// When what is loaded has to be.
    deadline: Cell<Option<Instant>>,
    /// A script that nobody can end has to have ended then.
    last: Cell<Option<Instant>>,
    looked: Cell<Option<Instant>>,
    killed: Cell<bool>,
    shut_down: Cell<bool>,
    pub(super) wrote: Cell<bool>,
    pub(crate) bystanders: RefCell<Option<Box<dyn Bystanders>>>,
}

impl std::fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watchdog").field("killed", &self.killed).finish_non_exhaustive()
    }
}

impl Watchdog {
    /// A script begins.
    pub(super) fn begin(&self, limit: Duration, what: Running) {
        *self.what.borrow_mut() = what;
        self.last.set(None);
        self.running.set(Some((Instant::now(), limit)));
        self.looked.set(None);
        self.killed.set(false);
        self.wrote.set(false);
    }

    /// Nobody can end it: it came with a file, or from a primary.
    pub(super) fn bound_script(&self, time: Duration) {
        self.last.set(Some(Instant::now() + time));
    }

    /// Whether a script that nobody can end takes too long.
    pub(super) fn is_overdue(&self) -> bool {
        self.last.get().is_some_and(|last| Instant::now() > last)
    }

    /// It has ended.
    pub(super) fn end(&self) {
        self.running.set(None);
        self.last.set(None);
        // What is loaded next is not what was killed.
        self.killed.set(false);
    }

    /// A library is loaded, and has until then for it; nothing: it is no more.
    pub(super) fn bound_load(&self, until: Option<Instant>) {
        self.deadline.set(until);
    }

    /// Whether a library takes too long to be loaded.
    pub(super) fn is_late(&self) -> bool {
        self.deadline.get().is_some_and(|deadline| Instant::now() > deadline)
    }

    /// Whether the script is to end.
    pub(super) fn is_killed(&self) -> bool {
        self.killed.get()
    }

    /// Whether the server is to end, once the script has.
    pub(super) fn take_shut_down(&self) -> bool {
        self.shut_down.take()
    }

    /// Looks at the time, and at the others if the script takes long.
    pub(super) fn look(&self) {
        let Some((began, limit)) = self.running.get() else { return };
        if self.is_killed() || limit.is_zero() || began.elapsed() < limit {
            return;
        }
        if self.looked.get().is_some_and(|looked| looked.elapsed() < PAUSE) {
            return;
        }
        self.looked.set(Some(Instant::now()));
        let told = match &mut *self.bystanders.borrow_mut() {
            Some(bystanders) => {
                let mut what = self.what.borrow_mut();
                what.duration_ms = began.elapsed().as_millis() as u64;
                what.wrote = self.wrote.get();
                bystanders.answer(&what)
            }
            None => Told::Nothing,
        };
        self.killed.set(told != Told::Nothing);
        self.shut_down.set(told == Told::ShutDown);
    }
}
