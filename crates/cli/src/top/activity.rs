//! Average active sessions by wait class: the figure that a performance page begins with.
//!
//! | basis | what it is | where |
//! |---|---|---|
//! | measured | DB CPU and the time of waits, by elapsed time | MariaDB with performance_schema, mounted homes, Redis |
//! | sampled | sessions seen active, by looks: an estimate | PostgreSQL, MariaDB without performance_schema |
//! | processors | time of the machine's processors, by elapsed time | a source without a database |
//!
//! Where looks were taken the classes are those that were seen, since such a source measures some
//! of its waits only. Measured and sampled are never in one stack.
//!
//! Invariant: waits inside other waits, of background work and idle ones are in no layer.

use serde::Serialize;
use tiersmith_awr::Interval;
use tiersmith_awr::events::WaitClass;

/// What the layers are made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Basis {
    Measured,
    Sampled,
    Processors,
}

/// A layer that there can be: its name, and the letter it is drawn with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) letter: char,
}

const fn kind(name: &'static str, letter: char) -> Kind {
    Kind { name, letter }
}

/// Every layer, the lowest first. The letters are drawn also where there are colours: not everybody
/// sees these.
pub(super) const KINDS: [Kind; 15] = [
    kind("CPU", 'C'),
    kind("User I/O", 'U'),
    kind("System I/O", 'S'),
    kind("Commit", 'M'),
    kind("Configuration", 'F'),
    kind("Concurrency", 'X'),
    kind("Network", 'N'),
    kind("Application", 'A'),
    kind("Administrative", 'D'),
    kind("Other", 'O'),
    kind("not told apart", '?'),
    kind("user", 'u'),
    kind("system", 's'),
    kind("waits for disks", 'w'),
    kind("stolen", 't'),
];

const CPU: usize = 0;
const REST: usize = 10;

/// One layer in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Layer {
    /// Which of [`KINDS`].
    #[serde(skip)]
    pub(super) kind: usize,
    pub(super) name: &'static str,
    /// Sessions, or processors.
    pub(super) sessions: f64,
}

/// Who was active in an interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Activity {
    pub(super) basis: Basis,
    /// Looks at the sessions in the interval, if it is sampled.
    pub(super) looks: Option<u64>,
    /// The sum of the layers.
    pub(super) total: f64,
    /// DB time by elapsed time, if the source measures it.
    pub(super) measured: Option<f64>,
    /// Measured average active sessions that the samples are further from than chance explains:
    /// they miss something.
    pub(super) samples_miss: Option<f64>,
    /// The measured figure, if the samples saw more than it by more than chance explains.
    pub(super) samples_exceed: Option<f64>,
    /// Hardware threads of the source's machine; absent if that is another one than this.
    pub(super) cpus: Option<u32>,
    /// Those that are not zero, the lowest first.
    pub(super) layers: Vec<Layer>,
}

/// Who was active in `of`.
pub(super) fn activity(of: &Interval) -> Activity {
    let mut sums = [0.0; KINDS.len()];
    let elapsed = of.elapsed_ns as f64;
    let sampling = of.sampling.as_ref().filter(|sampling| sampling.looks > 0);
    let measures = of.db_time_ns.is_some() || of.db_cpu_ns.is_some() || !of.waits.is_empty();
    let basis = match (sampling, measures) {
        (Some(_), _) => Basis::Sampled,
        (None, true) => Basis::Measured,
        (None, false) => Basis::Processors,
    };
    match (basis, sampling) {
        (Basis::Sampled, Some(sampling)) => {
            for event in &sampling.events {
                sums[named(&event.class)] += event.seen as f64 / sampling.looks as f64;
            }
        }
        (Basis::Processors, _) => {
            if let Some(cpu) = &of.host_cpu {
                let times = [cpu.user_ns, cpu.system_ns, cpu.iowait_ns, cpu.steal_ns];
                for (sum, ns) in sums[REST + 1..].iter_mut().zip(times) {
                    *sum = ns as f64 / elapsed;
                }
            }
        }
        _ => measured(of, &mut sums),
    }
    let layers: Vec<Layer> = sums
        .iter()
        .enumerate()
        .filter(|(_, sessions)| **sessions > 0.0)
        .map(|(kind, sessions)| Layer { kind, name: KINDS[kind].name, sessions: *sessions })
        .collect();
    Activity {
        basis,
        looks: sampling.map(|sampling| sampling.looks),
        total: layers.iter().map(|layer| layer.sessions).sum(),
        measured: of.active_sessions(),
        samples_miss: sampling.and_then(|_| of.samples_miss()),
        samples_exceed: sampling.and_then(|_| of.samples_exceed()),
        cpus: of.end.host.cpus.as_ref().filter(|_| !of.is_remote()).map(|cpus| cpus.threads),
        layers,
    }
}

fn measured(of: &Interval, sums: &mut [f64]) {
    let elapsed = of.elapsed_ns as f64;
    for wait in of.foreground().into_iter().filter(|wait| !wait.is_inside_another()) {
        sums[named(wait.class.name())] += wait.total_ns as f64 / elapsed;
    }
    let waits: f64 = sums.iter().sum();
    let cpu = of.db_cpu_ns.map_or(0.0, |ns| ns as f64 / elapsed);
    let Some(all) = of.active_sessions() else {
        sums[CPU] = cpu;
        return;
    };
    // Processor time inside timed waits (stores to a mapping are both) is in the wait; a
    // processor's time is what is left of it.
    sums[CPU] = cpu.min((all - waits).max(0.0));
    sums[REST] = (all - waits - sums[CPU]).max(0.0);
}

/// The layer of a class by its name in reports.
fn named(class: &str) -> usize {
    KINDS[..REST].iter().position(|kind| kind.name == class).unwrap_or_else(|| {
        if class == WaitClass::Idle.name() { REST } else { named(WaitClass::Other.name()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_layer_and_every_layer_a_letter_of_its_own() {
        // Those that only Oracle's reports have are no layers.
        let others =
            [WaitClass::Idle, WaitClass::Cluster, WaitClass::Queueing, WaitClass::Scheduler];
        for class in WaitClass::ALL.into_iter().filter(|class| !others.contains(class)) {
            assert_eq!(KINDS[named(class.name())].name, class.name());
        }
        assert_eq!(named(tiersmith_awr::CPU), CPU);
        let mut letters: Vec<char> = KINDS.iter().map(|kind| kind.letter).collect();
        letters.sort_unstable();
        letters.dedup();
        assert_eq!(letters.len(), KINDS.len());
    }
}
