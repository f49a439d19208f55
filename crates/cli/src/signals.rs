//! Ctrl-C, a terminal that closes, a service that is stopped: what a command made is removed before
//! the program ends.
//!
//! A recording is ended by a signal as by its length: it takes the last snapshots first.
//!
//! **Invariant**: the exit code is 128 and the signal's number, as a shell expects it, unless the
//! command came to its end by itself.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tiersmith_lab::place::Leftovers;

use crate::error::{Error, Result};

/// How long a command may take to stop by itself before what it made is taken away under its hands.
const PATIENCE: Duration = Duration::from_millis(400);

/// What is said besides when the program is interrupted.
static BESIDES: Mutex<String> = Mutex::new(String::new());

/// Says `what` when the program is interrupted from here on: a command that leaves something to
/// others tells to whom.
pub(crate) fn say_when_interrupted(what: String) {
    *BESIDES.lock().unwrap_or_else(PoisonError::into_inner) = what;
}

/// What a command asks that would rather come to its end than be ended.
static FINISHING: Mutex<Option<Arc<AtomicI32>>> = Mutex::new(None);

/// From here on the number of the first signal is only put here (none is zero): the command ends by
/// itself. The second ends the program.
pub(crate) fn finish_when_interrupted() -> Arc<AtomicI32> {
    let asked = Arc::new(AtomicI32::new(0));
    *FINISHING.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&asked));
    asked
}

/// Removes what `leftovers` knows when the program is interrupted, and ends it.
pub(crate) fn clean_up_on_interruption(leftovers: &Leftovers) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(|source| Error::Io {
        what: "watch for signals in",
        path: "this process".into(),
        source,
    })?;
    let leftovers = leftovers.clone();
    let watch = move || {
        let mut all = signals.forever();
        let Some(mut signal) = all.next() else { return };
        let finishing = FINISHING.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(asked) = finishing {
            asked.store(signal, Ordering::Relaxed);
            let _ = writeln!(
                std::io::stderr(),
                "tiersmith: coming to the end; a second signal ends it at once"
            );
            let Some(second) = all.next() else { return };
            signal = second;
        }
        let made = !leftovers.is_empty();
        leftovers.stop();
        let asked = Instant::now();
        // The command returns by itself within a step of its load and cleans up with nothing
        // running; a long system call may keep it.
        while asked.elapsed() < PATIENCE && !leftovers.is_empty() {
            std::thread::sleep(Duration::from_millis(10));
        }
        leftovers.clean();
        let mut error = std::io::stderr();
        if error.is_terminal() {
            let _ = write!(error, "\r\x1b[K");
        }
        // A command that made nothing of its own has nothing removed: what a recording recorded
        // stays.
        let removed = if made { "; what was made is removed" } else { "" };
        let besides = BESIDES.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writeln!(error, "tiersmith: interrupted{removed}{besides}");
        std::process::exit(128 + signal);
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(watch)
        .map(|_| ())
        .map_err(|source| Error::Io { what: "start a thread for", path: "signals".into(), source })
}
