//! A source that is asked only while a gate is open: so a recorder works in some slots of a load
//! and sleeps in the others.
//!
//! Closing waits until nothing is under way, so that no look of one slot falls into the next. A
//! recorder whose call waits at the gate takes no processor time at all; what it missed meanwhile
//! it does once, when the gate opens.
//!
//! Deliberately absent: the recorder itself, which is the product's.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tiersmith_awr::sources::LiveSource;
use tiersmith_awr::{Result, Sampling, Snapshot};

/// Whether a recorder may ask, and how often it did.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    looks: AtomicU64,
    snapshots: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    open: bool,
    inside: usize,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn open(&self) {
        self.state().open = true;
        self.changed.notify_all();
    }

    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.open = false;
        while state.inside > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Looks and snapshots until now.
    pub(crate) fn asked(&self) -> [u64; 2] {
        [&self.looks, &self.snapshots].map(|count| count.load(Ordering::Relaxed))
    }

    fn enter(&self) -> Inside<'_> {
        let mut state = self.state();
        while !state.open {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.inside += 1;
        Inside(self)
    }
}

/// A call that is under way.
struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.state().inside -= 1;
        self.0.changed.notify_all();
    }
}

/// A source behind a gate.
pub(crate) struct Gated {
    pub(crate) source: Box<dyn LiveSource>,
    pub(crate) gate: Arc<Gate>,
}

impl LiveSource for Gated {
    fn name(&self) -> &str {
        self.source.name()
    }

    fn kept_as(&self) -> String {
        self.source.kept_as()
    }

    fn snapshot(&mut self) -> Result<Snapshot> {
        let _inside = self.gate.enter();
        self.gate.snapshots.fetch_add(1, Ordering::Relaxed);
        self.source.snapshot()
    }

    fn look(&mut self, sampling: &mut Sampling) -> Result<bool> {
        let _inside = self.gate.enter();
        self.gate.looks.fetch_add(1, Ordering::Relaxed);
        self.source.look(sampling)
    }
}
