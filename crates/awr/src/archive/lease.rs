//! Who records a source: one program at a time in one repository.
//!
//! A recorder that was killed leaves its row. The next one takes it over when it can tell that the other is gone: same start of the same
//! machine, same numbering of processes (containers have their own) and no such process (number and start time), or no sign of life for
//! [`SILENCE`]. What it cannot tell is refused.
//!
//! Invariant: at most one lease of a source is held by processes that are alive.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rusqlite::{OptionalExtension, TransactionBehavior, params};

use super::Archive;
use crate::{Error, Result};

/// Without a sign of life for so long, a recorder on another machine or in another container counts as gone.
pub(super) const SILENCE: Duration = Duration::from_secs(15 * 60);

/// The right to record a source; given back when it is dropped.
#[derive(Debug)]
pub struct Lease {
    archive: Archive,
    source: String,
    token: String,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

struct Holder {
    host: String,
    /// The start of the machine, and the namespace its process has its number in.
    boot: String,
    process: u32,
    started: i64,
    beat_unix_ns: i64,
}

impl Archive {
    /// Takes the right to record `source`; the lease has a connection of its own.
    ///
    /// # Errors
    /// If another recorder that may be alive has it: who that is.
    pub fn lease(&self, source: &str) -> Result<Lease> {
        let mut archive = Archive::existing(self.path())?;
        let me = myself();
        let token = format!("{}-{}-{}", me.boot, me.process, NEXT.fetch_add(1, Ordering::Relaxed));
        let mut take = || -> rusqlite::Result<Option<Holder>> {
            let change = archive.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let holder = change
                .query_row(
                    "SELECT host, boot, process, started, beat_unix_ns FROM recorder WHERE source = ?1",
                    [source],
                    |row| {
                        Ok(Holder {
                            host: row.get(0)?,
                            boot: row.get(1)?,
                            process: row.get(2)?,
                            started: row.get(3)?,
                            beat_unix_ns: row.get(4)?,
                        })
                    },
                )
                .optional()?;
            if let Some(holder) = holder.filter(|holder| may_be_alive(holder, &me)) {
                return Ok(Some(holder));
            }
            change.execute(
                "INSERT OR REPLACE INTO recorder VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![source, token, me.host, me.boot, me.process, me.started, me.beat_unix_ns],
            )?;
            change.commit()?;
            Ok(None)
        };
        let taken = take();
        match taken.map_err(|error| archive.failed("write to", &error))? {
            None => Ok(Lease { archive, source: source.to_owned(), token }),
            Some(holder) => Err(Error::Archive {
                action: "record into",
                path: self.path().to_owned(),
                reason: format!(
                    "process {} on {} is recording {source} into it",
                    holder.process,
                    crate::figure::visible(&holder.host)
                ),
                remedy: "Stop that one first, or record into another file".to_owned(),
            }),
        }
    }
}

impl Lease {
    /// A sign of life.
    ///
    /// # Errors
    /// If it cannot be written, or another recorder took the source over because this one was silent for too long.
    pub fn beat(&self) -> Result<()> {
        let beaten = self.archive.connection.execute(
            "UPDATE recorder SET beat_unix_ns = ?1 WHERE source = ?2 AND token = ?3",
            params![now_unix_ns(), self.source, self.token],
        );
        match beaten.map_err(|error| self.archive.failed("write to", &error))? {
            0 => Err(Error::Archive {
                action: "record into",
                path: self.archive.path().to_owned(),
                reason: format!("another recorder took {} over while this one was silent", self.source),
                remedy: "Let one of them record".to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Where this fails the row stays, and the next recorder finds that its process is gone.
        let _ = self.archive.connection.execute(
            "DELETE FROM recorder WHERE source = ?1 AND token = ?2",
            params![self.source, self.token],
        );
    }
}

pub(super) fn now_unix_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

fn myself() -> Holder {
    let line = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    let process = std::process::id();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let boot = line("/proc/sys/kernel/random/boot_id");
    Holder {
        host: line("/proc/sys/kernel/hostname"),
        boot: if boot.is_empty() { boot } else { format!("{boot} {}", namespace.display()) },
        process,
        started: started(process).unwrap_or(0),
        beat_unix_ns: now_unix_ns(),
    }
}

/// When a process started, in ticks since the machine did; nothing if there is no such process.
fn started(process: u32) -> Option<i64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in brackets may hold spaces and brackets; field 22 is the twentieth after it.
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn may_be_alive(holder: &Holder, me: &Holder) -> bool {
    let silent = i128::from(me.beat_unix_ns) - i128::from(holder.beat_unix_ns);
    if holder.boot == me.boot && !me.boot.is_empty() {
        return started(holder.process) == Some(holder.started);
    }
    silent < SILENCE.as_nanos() as i128
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(process: u32, started: i64, boot: &str, silent: Duration) -> Holder {
        Holder {
            host: "h".to_owned(),
            boot: boot.to_owned(),
            process,
            started,
            beat_unix_ns: now_unix_ns() - i64::try_from(silent.as_nanos()).unwrap_or(0),
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
        assert!(!may_be_alive(&holder(u32::MAX - 1, 1, &me.boot, minute), &me), "there is no such process");
        assert!(may_be_alive(&holder(u32::MAX - 1, 1, "another machine", minute), &me));
        assert!(!may_be_alive(&holder(1, 1, "another machine", SILENCE * 2), &me));
    }
}
