//! Who records a source: one program at a time in one repository.
//!
//! A recorder that was killed leaves its row. The next one takes it over when it can tell that the
//! other is gone: same start of the same machine, same numbering of processes (containers have
//! their own) and no such process (number and start time), or no sign of life for [`SILENCE`]. What
//! it cannot tell is refused.
//!
//! Invariant: at most one lease of a source is held by processes that are alive.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Archive, now_unix_ns};
use crate::{Error, Result};

/// Without a sign of life for so long, a recorder on another machine or in another container counts
/// as gone.
pub(super) const SILENCE: Duration = Duration::from_secs(15 * 60);

/// The right to record a source; given back when it is dropped.
#[derive(Debug)]
pub struct Lease {
    archive: Archive,
    source: String,
    token: String,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A process that records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) host: String,
    /// The start of the machine, and the namespace its process has its number in.
    pub(super) boot: String,
    pub(super) process: u32,
    pub(super) started: i64,
}

/// Who has a lease, and since when nothing was heard of it.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) who: Who,
    pub(super) silent: Duration,
}

impl Archive {
    /// Takes the right to record `source`.
    ///
    /// # Errors
    /// If another recorder that may be alive has it: who that is.
    pub fn lease(&self, source: &str) -> Result<Lease> {
        self.check_name("source", source)?;
        let me = myself();
        let token = format!(
            "{}-{}-{}-{}",
            me.boot,
            me.process,
            now_unix_ns(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let holder =
            self.keeper().lease(source, &token, &me, &|holder| may_be_alive(holder, &me))?;
        match holder {
            None => Ok(Lease { archive: self.clone(), source: source.to_owned(), token }),
            Some(holder) => Err(Error::Archive {
                action: "record into",
                path: self.path().to_owned(),
                reason: format!(
                    "process {} on {} is recording {} into it",
                    holder.who.process,
                    crate::figure::visible(&holder.who.host),
                    crate::figure::visible(source)
                ),
                remedy: "Stop that one first, or record into another repository".to_owned(),
            }),
        }
    }
}

impl Lease {
    /// A sign of life.
    ///
    /// # Errors
    /// If it cannot be written, or another recorder took the source over because this one was
    /// silent for too long.
    pub fn beat(&self) -> Result<()> {
        let ours = self.archive.keeper().beat(&self.source, &self.token)?;
        match ours {
            true => Ok(()),
            false => Err(Error::Archive {
                action: "record into",
                path: self.archive.path().to_owned(),
                reason: format!(
                    "another recorder took {} over while this one was silent",
                    crate::figure::visible(&self.source)
                ),
                remedy: "Let one of them record".to_owned(),
            }),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Where this fails the row stays, and the next recorder finds that its process is gone.
        let _ = self.archive.keeper().release(&self.source, &self.token);
    }
}

fn myself() -> Who {
    let line = |path: &str| {
        fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
    };
    let process = std::process::id();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let boot = line("/proc/sys/kernel/random/boot_id");
    Who {
        host: line("/proc/sys/kernel/hostname"),
        boot: if boot.is_empty() { boot } else { format!("{boot} {}", namespace.display()) },
        process,
        started: started(process).unwrap_or(0),
    }
}

/// When a process started, in ticks since the machine did; nothing if there is no such process.
fn started(process: u32) -> Option<i64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in brackets may hold spaces and brackets; field 22 is the twentieth after it.
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn is_hidden(process: u32) -> bool {
    let process = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
    let asked = process.map(rustix::process::test_kill_process);
    matches!(asked, Some(Ok(()) | Err(rustix::io::Errno::PERM)))
}

fn may_be_alive(holder: &Holder, me: &Who) -> bool {
    if holder.who.boot == me.boot && !me.boot.is_empty() {
        return match started(holder.who.process) {
            Some(started) => started == holder.who.started,
            // A system may hide processes of others from this one, and says so when one is to be
            // signalled.
            None => is_hidden(holder.who.process) && holder.silent < SILENCE,
        };
    }
    holder.silent < SILENCE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(process: u32, started: i64, boot: &str, silent: Duration) -> Holder {
        Holder {
            who: Who { host: "h".to_owned(), boot: boot.to_owned(), process, started },
            silent,
        }
    }

    #[test]
    fn a_recorder_counts_as_alive_until_the_contrary_is_known() {
        let me = myself();
        let (process, began) = (me.process, me.started);
        assert!(began > 0, "the start of this process is known");
        let minute = Duration::from_secs(60);
        assert!(may_be_alive(&holder(process, began, &me.boot, minute), &me));
        assert!(
            !may_be_alive(&holder(process, began + 1, &me.boot, minute), &me),
            "the number was given to another process"
        );
        assert!(
            !may_be_alive(&holder(u32::MAX - 1, 1, &me.boot, minute), &me),
            "there is no such process"
        );
        assert!(is_hidden(process) && !is_hidden(i32::MAX as u32) && !is_hidden(0));
        assert!(may_be_alive(&holder(u32::MAX - 1, 1, "another machine", minute), &me));
        assert!(!may_be_alive(&holder(1, 1, "another machine", SILENCE * 2), &me));
    }
}
