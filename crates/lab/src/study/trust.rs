//! When a figure should not be believed: what was wrong with the machine, the place, or the run.
//!
//! A warning is shown wherever the figure is: in the text, the page and the JSON. A note is no
//! warning; it is what a reader has to know.
//!
//! **Invariant**: a limit is a constant here, with its reason. **Deliberately absent**:
//! significance tests; several rounds show more.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tiersmith_awr::host;
use tiersmith_store::Medium;

use super::result::{Machine, RunResult};
use crate::case::{Case, JournalMode, Load, Placement, SQLITE};
use crate::mounted;
use crate::place::{Places, memory_available};
use crate::target::{room, sqlite};
use crate::workload::slob::{self, SLOB_SCALE_MIN_BLOCKS};
use crate::workload::tpcc;

/// Processors in use before the study, when it does nothing itself.
const BUSY_CPUS: f64 = 0.25;
/// How long that is looked at. Not the load average: it remembers the build of a minute ago.
const LOOK: Duration = Duration::from_millis(500);
/// Processors that others used during a run.
const OTHERS_CPUS: f64 = 0.25;
/// Share of processor time the hypervisor gave to somebody else.
const STEAL_SHARE: f64 = 0.02;
/// Standard deviation over mean of a run's slices.
const VARIATION: f64 = 0.25;
/// Seconds under which a run shows little but its beginning.
const SHORT_S: f64 = 3.0;
/// Executions under which a p99 is the worst of a few.
const FEW: u64 = 1000;

/// A reason to distrust a figure, or a note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// For programs: `machine-busy`, `short`, `unsteady`, ...
    pub code: String,
    /// For people: what was found, and what to do.
    pub sentence: String,
    /// Nothing is wrong, but a reader has to know.
    pub is_note: bool,
}

pub(super) fn warning(code: &str, sentence: String) -> Warning {
    Warning { code: code.into(), sentence, is_note: false }
}

pub(super) fn note(code: &str, sentence: String) -> Warning {
    Warning { code: code.into(), sentence, is_note: true }
}

/// Of a study whose home is slowed down as a latency profile says.
pub(super) fn modelled(name: &str) -> Warning {
    let mut sentence = format!(
        "MODELLED: the home's storage was slowed down to the latencies of the profile {name}; it \
         is not such storage. Every figure here is of \
         that model."
    );
    if let Ok(model) = mounted::home_model(name) {
        sentence.push_str(&format!(
            " It is {}: {} us are added to a read, {} us to a write, {} us to a sync, and {} MiB/s \
             go through at most. Its figures are from {}",
            model.description(),
            model.read().as_micros(),
            model.write().as_micros(),
            model.sync().as_micros(),
            model.bytes_per_s() >> 20,
            model.source()
        ));
    }
    note("home-model", sentence)
}

/// Processors in use right now, while this program sleeps; nothing if /proc does not tell.
pub fn busy_processors() -> Option<f64> {
    let busy_ns = || host::read().cpu.map(|cpu| cpu.user_ns + cpu.system_ns);
    let (before, began) = (busy_ns()?, Instant::now());
    std::thread::sleep(LOOK);
    Some(busy_ns()?.saturating_sub(before) as f64 / began.elapsed().as_nanos() as f64)
}

/// Before anything runs; `busy` processors were in use.
pub fn before(machine: &Machine, busy: Option<f64>, cases: &[Case]) -> Vec<Warning> {
    let mut found = Vec::new();
    if let Some(busy) = busy.filter(|busy| *busy > BUSY_CPUS) {
        let cpus = machine.cpus;
        let sentence = format!(
            "Other programs used {busy:.1} of {cpus} processors before the study began: they take \
             part in the figures."
        );
        found.push(warning("machine-busy", sentence));
    }
    if cfg!(debug_assertions) {
        found.push(warning("debug-build", "This is a debug build: build with --release.".into()));
    }
    let batches = cases.iter().any(|c| {
        c.target == SQLITE
            && c.placement == Placement::All
            && c.sqlite.journal_mode == JournalMode::Delete
    });
    if batches && !sqlite::has_batch_atomic_writes() {
        let sentence = "This SQLite was compiled without SQLITE_ENABLE_BATCH_ATOMIC_WRITE: a case \
                        of batch-atomic commits \
                        writes a journal instead. Set \
                        LIBSQLITE3_FLAGS=-DSQLITE_ENABLE_BATCH_ATOMIC_WRITE when building.";
        found.push(warning("no-batch-atomic", sentence.into()));
    }
    let is_slob = |case: &Case| case.load() == Load::Slob;
    let blocks = |case: &Case| case.slob.blocks(case.block_bytes());
    let is_small = |case: &&Case| is_slob(case) && blocks(case) < SLOB_SCALE_MIN_BLOCKS;
    // The same of every case is said once.
    let small: BTreeSet<u64> = cases.iter().filter(is_small).map(blocks).collect();
    for blocks_of_case in small {
        let those: Vec<&Case> =
            cases.iter().filter(is_small).filter(|case| blocks(case) == blocks_of_case).collect();
        let who = match those.as_slice() {
            [] => continue,
            those if those.len() == cases.len() => "Every case".to_owned(),
            [case] => case.id.clone(),
            [case, others @ ..] => format!("{}, and {} more", case.id, others.len()),
        };
        let sentence = format!(
            "{who}: the scale is {blocks_of_case} blocks, and SLOB's smallest is \
             {SLOB_SCALE_MIN_BLOCKS}: caches hold more of it than of a \
             real database."
        );
        found.push(warning("small-scale", sentence));
    }
    for case in cases {
        let is_slob = is_slob(case);
        if is_slob && case.slob.sessions() > machine.cpus {
            let sentence = format!(
                "{}: {} sessions share {} processors.",
                case.id,
                case.slob.sessions(),
                machine.cpus
            );
            found.push(note("more-sessions-than-processors", sentence));
        }
        if case.target == SQLITE && room::database_bytes(case) < 4 * case.sqlite.page_cache.bytes()
        {
            let sentence = format!(
                "{}: the database is less than four times SQLite's page cache; few reads leave it.",
                case.id
            );
            found.push(warning("page-cache", sentence));
        }
    }
    found
}

/// About home and tier.
pub fn places(places: &Places, cases: &[Case]) -> Vec<Warning> {
    let mut found: Vec<Warning> =
        places.notes.iter().map(|sentence| note("place", sentence.clone())).collect();
    if places.emulated() && cases.iter().any(|case| case.placement != Placement::Home) {
        let sentence = format!(
            "EMULATED: the tier is {} and only stands for persistent memory. It would not survive \
             a power cut, and it is as fast as this \
             machine's memory; persistent memory is slower to write.",
            places.tier_is_on
        );
        found.push(note("emulated", sentence));
    }
    if places.medium == Medium::Flash {
        let sentence = format!(
            "The tier is a file on a disk ({}): what it acknowledges survives a power cut, and is \
             as fast as that disk.",
            places.tier_is_on
        );
        found.push(note("flash", sentence));
    }
    if places.home_is_on.in_memory() {
        let sentence = format!(
            "The home is in memory ({}): nothing here is compared with a disk. Give --home DIR on \
             a disk.",
            places.home_is_on
        );
        found.push(warning("home-in-memory", sentence));
    }
    let largest = cases
        .iter()
        .map(|case| room::database_bytes(case) * u64::from(case.slob.schemas))
        .max()
        .unwrap_or(0);
    if largest < memory_available() {
        let sentence = "The databases fit the operating system's page cache, and every run begins \
                        by reading them once: reads of the home's \
                        storage are answered from memory. What is compared is writing and syncing; \
                        a disk's read times are not in it.";
        found.push(note("os-page-cache", sentence.into()));
    }
    found
}

/// What must be said beside figures of this load.
fn of_load(case: &Case) -> Option<Warning> {
    (case.load() == Load::Tpcc).then(|| {
        let sentence = format!(
            "Figures are {}. Consistency conditions 1 to 4 of clause 3.3.2 held after every run.",
            tpcc::LABEL
        );
        note("tpcc", sentence)
    })
}

/// About one run.
pub fn run(run: &RunResult, case: &Case, slob: &slob::Settings) -> Vec<Warning> {
    let mut found: Vec<Warning> = of_load(case).into_iter().collect();
    let measured = &run.measured;
    if measured.elapsed_s < SHORT_S {
        let sentence = format!(
            "It was measured for {:.1} s only; give --seconds {SHORT_S} or more.",
            measured.elapsed_s
        );
        found.push(warning("short", sentence));
    }
    if measured.executes < FEW {
        let sentence = format!(
            "It made {} executions only; its p99 is the worst of a few. Give more --seconds.",
            measured.executes
        );
        found.push(warning("few", sentence));
    }
    let variation = measured.variation();
    if variation > VARIATION {
        let sentence = format!(
            "Its throughput varied by {:.0} % (standard deviation over mean of {} slices): it had \
             not settled, or something else ran.",
            variation * 100.0,
            measured.slices.len()
        );
        found.push(warning("unsteady", sentence));
    }
    found.extend(others(run));
    if slob.arrivals_per_s > 0.0 && measured.executes_per_s() < 0.95 * slob.arrivals_per_s {
        let sentence = format!(
            "{} operations a second were to arrive and {:.0} were done: the backlog grew, and \
             response times with the run's length.",
            slob.arrivals_per_s,
            measured.executes_per_s()
        );
        found.push(warning("overloaded", sentence));
    }
    let batches = case.target == SQLITE
        && case.placement == Placement::All
        && case.sqlite.journal_mode == JournalMode::Delete;
    if batches && measured.transactions > 0 && run.wait_mean_ns("tier batch write").is_none() {
        let sentence =
            "No batch was written, though its commits were to be batches: SQLite used a journal."
                .into();
        found.push(warning("no-batches", sentence));
    }
    found
}

/// What else the machine did meanwhile.
fn others(run: &RunResult) -> Vec<Warning> {
    let mut found = Vec::new();
    let (begin, end) = (&run.measured.begin, &run.measured.end);
    let (Some(a), Some(b)) = (begin.host.cpu, end.host.cpu) else {
        return vec![note(
            "host-unknown",
            "The host's processor time could not be read from /proc.".into(),
        )];
    };
    let grown = |before: u64, after: u64| after.saturating_sub(before) as f64 / 1e9;
    let busy_s = grown(a.user_ns, b.user_ns) + grown(a.system_ns, b.system_ns);
    let steal_s = grown(a.steal_ns, b.steal_ns);
    let all_s = busy_s + steal_s + grown(a.idle_ns, b.idle_ns) + grown(a.iowait_ns, b.iowait_ns);
    let own_s = match (begin.process_cpu_ns, end.process_cpu_ns) {
        (Some(before), Some(after)) => grown(before, after),
        _ => busy_s,
    };
    // The kernel counts (/proc/stat) in hundredths of a second, and its threads work for us too; a
    // little more is no warning.
    let others = (busy_s - own_s) / run.measured.elapsed_s;
    if others > OTHERS_CPUS {
        let sentence = format!(
            "Other programs (and the kernel's own threads) used {others:.1} processors meanwhile."
        );
        found.push(warning("others", sentence));
    }
    if all_s > 0.0 && steal_s / all_s > STEAL_SHARE {
        let sentence = format!(
            "The hypervisor gave {:.0} % of the processor time to somebody else.",
            steal_s / all_s * 100.0
        );
        found.push(warning("steal", sentence));
    }
    found
}
