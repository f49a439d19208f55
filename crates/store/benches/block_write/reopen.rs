//! Reopening: how long it takes to attach a tier again whose maps hold 16 GiB worth of entries.
//!
//! The entries are fabricated: the cost of an open is that of reading the maps, whatever the blocks
//! hold.

use std::time::Instant;

use crate::Failed;
use crate::report::Report;
use crate::scratch::Scratch;
use crate::subject::Subject;

const ENTRIES_OF: u64 = 16 << 30;
/// More than a quarter of the tier stays free, else the background destages.
const TIER: u64 = 22 << 30;
const REOPEN: &str = "reopen, 16 GiB of entries";

/// The table of opens.
pub(crate) fn reopen(report: &mut Report, scratch: &Scratch) -> Result<(), Failed> {
    let rounds = report.rounds();
    for (kib, name) in [(8, "blocks of 8 KiB"), (4, "blocks of 4 KiB")] {
        let subject = Subject::new(scratch, &format!("reopen{kib}"), kib << 10, TIER)?.sparse();
        let attached = subject.attach(true)?;
        subject.fabricate(&attached, "large", ENTRIES_OF)?;
        drop(attached);
        for _ in 0..rounds {
            let start = Instant::now();
            let attached = subject.attach(true)?;
            report.run_in("ms", REOPEN, name, vec![start.elapsed().as_secs_f64() * 1e3]);
            let found = attached.stats().recovery;
            if found.entries != ENTRIES_OF / u64::from(kib << 10) {
                return Err(format!("the tier came back with {} entries", found.entries).into());
            }
        }
        std::fs::remove_file(subject.member())?;
    }
    for (key, name) in [("reopen_16g_s", "blocks of 8 KiB"), ("reopen_16g_4k_s", "blocks of 4 KiB")]
    {
        if let Some(ms) = report.median(REOPEN, name) {
            report.ratio(key, ms / 1e3);
        }
    }
    Ok(())
}
