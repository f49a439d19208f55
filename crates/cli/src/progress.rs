//! Progress on a terminal: one line that is written over. Elsewhere a line for each run, so that a
//! log shows that something happens.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tiersmith_awr::figure;
use tiersmith_lab::study::Progress;
use tiersmith_lab::study::result::RunResult;

/// How often the line is written.
const EVERY: Duration = Duration::from_millis(100);
/// Characters of the bar.
const BAR: usize = 24;

/// Progress on standard error.
#[derive(Debug)]
pub(crate) struct Line {
    terminal: bool,
    began: Instant,
    written: Mutex<Option<Instant>>,
}

impl Line {
    /// A line on standard error.
    pub(crate) fn new() -> Line {
        Line {
            terminal: std::io::stderr().is_terminal(),
            began: Instant::now(),
            written: Mutex::new(None),
        }
    }

    /// Takes the line away.
    pub(crate) fn clear(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    /// Says what goes on, without a share.
    pub(crate) fn say(&self, what: &str) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K{what}");
        }
    }
}

impl Progress for Line {
    fn step(&self, what: &str, share: f64) {
        if !self.terminal {
            return;
        }
        let mut written = self.written.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if written.is_some_and(|at| at.elapsed() < EVERY) {
            return;
        }
        *written = Some(Instant::now());
        let share = share.clamp(0.0, 1.0);
        let filled = (share * BAR as f64) as usize;
        let left = match self.began.elapsed().as_secs_f64() {
            passed if share > 0.02 => format!("about {:.0} s left", passed / share - passed),
            _ => String::new(),
        };
        let bar = format!("{}{}", "#".repeat(filled), ".".repeat(BAR - filled));
        let _ = write!(std::io::stderr(), "\r\x1b[K[{bar}] {what} {left}");
    }

    fn done(&self, run: &RunResult) {
        self.clear();
        let measured = &run.measured;
        let doubted = if run.warnings.iter().any(|warning| !warning.is_note) { " (?)" } else { "" };
        let _ = writeln!(
            std::io::stderr(),
            "{:<18} UPDATE_PCT {:>3}  {:>12} transactions/s {:>12} executions/s{doubted}",
            run.case,
            run.update_pct,
            figure::number(measured.transactions_per_s()),
            figure::number(measured.executes_per_s()),
        );
    }
}
