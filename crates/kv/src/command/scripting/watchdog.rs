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
    /// SCRIPT KILL.
    Kill,
    /// SHUTDOWN NOSAVE.
    ShutDown,
}

/// The other clients of the server, while a script runs.
pub(crate) trait Bystanders: std::fmt::Debug {
    /// Answers those who have sent something; `wrote`: the script has changed keys, so that it
    /// cannot be ended without taking that back.
    fn answer(&mut self, wrote: bool) -> Told;
}

/// Between two looks at the other clients.
const PAUSE: Duration = Duration::from_millis(10);

/// What the interpreter's hook looks at.
#[derive(Default)]
pub(crate) struct Watchdog {
    /// When the script began, and how long it may run before the others are answered.
    running: Cell<Option<(Instant, Duration)>>,
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
    pub(super) fn begin(&self, limit: Duration) {
        self.running.set(Some((Instant::now(), limit)));
        self.looked.set(None);
        self.killed.set(false);
        self.wrote.set(false);
    }

    /// It has ended.
    pub(super) fn end(&self) {
        self.running.set(None);
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
            Some(bystanders) => bystanders.answer(self.wrote.get()),
            None => Told::Nothing,
        };
        self.killed.set(told != Told::Nothing);
        self.shut_down.set(told == Told::ShutDown);
    }
}
