//! An attached SQLite database as a source: what the process that has it open leaves in the
//! database's directory.
//!
//! Nothing of the database is opened, so it is recorded while another process works on it.
//!
//! Invariants: figures of two openings are never subtracted, for each has an instance of its own;
//! nothing in the file makes the program panic.

use std::path::{Path, PathBuf};

use tiersmith_awr::sources::LiveSource;
use tiersmith_awr::{CounterStat, MediumStat, Redaction, Sampling, Snapshot, Source, WaitStat};
use tiersmith_sqlite::place::{Statistics, attachment, statistics};

use crate::error::{Error, Result};

/// Figures that are not older were written by a process at work: a snapshot of them is one of the
/// instant they were written.
const FRESH_NS: u64 = 2_000_000_000;

/// An attached database.
pub(in crate::command) struct Attached {
    name: String,
    path: PathBuf,
    redaction: Redaction,
    /// The opening that was seen open the last time.
    seen: Option<String>,
    /// The instant of the last snapshot.
    last_ns: u64,
}

impl Attached {
    /// The database at `path`, which is attached.
    pub(in crate::command) fn open(path: &Path, redaction: Redaction) -> Result<Attached> {
        if attachment(path)?.is_none() {
            let shown = path.display();
            return Err(Error::Usage(format!(
                "cannot record {shown}: it is a file that is not an attached SQLite database, so \
                 nobody counts what is waited for in it. \
                 Attach it: let its program open file:{shown}?vfs=tiersmith&fast=TIER&size=BYTES"
            )));
        }
        let name = path.display().to_string();
        Ok(Attached { name, path: path.to_path_buf(), redaction, seen: None, last_ns: 0 })
    }

    fn failed(&self, reason: String) -> tiersmith_awr::Error {
        tiersmith_awr::Error::Source {
            action: "read the figures of",
            place: self.name.clone(),
            reason,
            remedy:
                "its program leaves them while it has the database open through vfs=tiersmith, \
                     on this machine"
                    .to_owned(),
        }
    }
}

impl LiveSource for Attached {
    fn name(&self) -> &str {
        &self.name
    }

    fn kept_as(&self) -> String {
        self.redaction.name(&self.name)
    }

    fn snapshot(&mut self) -> tiersmith_awr::Result<Snapshot> {
        let found = statistics(&self.path).map_err(|e| self.failed(e.to_string()))?;
        let found = found.ok_or_else(|| self.failed("nobody has it open".to_owned()))?;
        // What was counted up to the close belongs to the interval that began before it; it is told
        // once.
        let closed_now = !found.open && self.seen.take().is_some_and(|seen| seen == found.instance);
        if !found.open && !closed_now {
            return Err(
                self.failed(format!("nobody has it open; the last was process {}", found.process))
            );
        }
        if found.open {
            self.seen = Some(found.instance.clone());
        }
        let mut snapshot = of(&self.path, &found);
        let written_ns = found.written_boot_ns;
        let age_ns = snapshot.monotonic_ns.saturating_sub(written_ns);
        if written_ns > self.last_ns && written_ns <= snapshot.monotonic_ns && age_ns < FRESH_NS {
            snapshot.monotonic_ns = written_ns;
            snapshot.taken_unix_ns = snapshot.taken_unix_ns.saturating_sub(age_ns);
        }
        self.last_ns = snapshot.monotonic_ns;
        snapshot
            .check()
            .map_err(|why| self.failed(format!("they contradict each other: {why}")))?;
        self.redaction.apply(&mut snapshot);
        Ok(snapshot)
    }

    fn look(&mut self, _: &mut Sampling) -> tiersmith_awr::Result<bool> {
        Ok(false)
    }
}

fn of(path: &Path, found: &Statistics) -> Snapshot {
    let version = match found.sqlite {
        0 => String::new(),
        n => format!("{}.{}.{}", n / 1_000_000, n / 1000 % 1000, n % 1000),
    };
    let mut snapshot = Snapshot::now(Source {
        instance: found.instance.clone(),
        database: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        product: "SQLite".into(),
        version,
        path: path.display().to_string(),
        ..Source::default()
    });
    // That of the recorder.
    snapshot.process_cpu_ns = None;
    snapshot.sessions = Some(found.connections);
    snapshot.waits = found
        .waits
        .iter()
        .map(|wait| WaitStat {
            name: wait.name.clone(),
            class: wait.class,
            background: wait.background,
            help: wait.help.clone(),
            count: wait.buckets.iter().map(|(_, count)| count).sum(),
            total_ns: wait.total_ns,
            max_ns: wait.max_ns,
            bytes: wait.bytes,
            buckets: wait.buckets.clone(),
        })
        .collect();
    snapshot.counters = found
        .counters
        .iter()
        .map(|counter| CounterStat {
            name: counter.name.clone(),
            unit: counter.unit.clone(),
            help: counter.help.clone(),
            value: counter.value,
        })
        .collect();
    for tier in &found.tiers {
        snapshot.add_io_of_its_waits(&tier.name);
        snapshot.add_medium(MediumStat {
            name: tier.name.clone(),
            kind: tier.medium.clone(),
            emulated: tier.emulated,
            bytes: tier.bytes,
            used_bytes: tier.used_bytes,
        });
        snapshot.add_level("tier dirty", "bytes", tier.dirty_bytes);
        snapshot.add_level("tier cached", "bytes", tier.cached_bytes);
        snapshot.add_level("tier free", "bytes", tier.free_bytes);
    }
    snapshot
}
