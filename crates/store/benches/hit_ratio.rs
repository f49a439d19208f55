//! What eviction policies keep behind a database's buffer: traces played against the store's and
//! against published ones.
//!
//! `cargo bench -p tiersmith-store --bench hit_ratio -- TRACE...`; writes
//! `target/bench/hit_ratio.json`. `hit_ratio/trace.rs` says what a trace is, where the two public
//! ones are to be had, and how to record one.
//!
//! A public trace is played behind an LRU buffer of 1 % and of 5 % of its blocks, and what that
//! misses is asked of caches of 2, 5, 10 and 25 %. A recorded one was taken behind a database's
//! buffer and is played as it is. A request is a request, read or write: the store itself takes
//! every write, whatever its policy says of reads.
//!
//! | key of `ratios` | is |
//! |---|---|
//! | `hits.POLICY`, `hits.POLICY.TRACE` | hits as a share of Belady's, the mean over all cells, or over those of a trace |
//! | `fills.POLICY`, `fills.POLICY.TRACE` | blocks written to the cache as a share of LRU's, the same |
//! | `budget.WAY.SHARE`, `budget.WAY.SHARE.TRACE` | of the store's policy with a write budget of so much of what it would write: its hits as a share of those it has without |
//! | `budget_off.WAY.SHARE` | how far a day was off its budget at most on which more was asked for all the time, or above it on any |
//! | `budget_early.WAY.SHARE` | how far another was short of it at most, on which more was asked for in all: early |
//!
//! With a budget, a trace is [`DAYS`] days. `threshold` is what the store does; `chance` keeps the
//! same budget by dropping at random.

#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

#[path = "hit_ratio/belady.rs"]
mod belady;
#[path = "hit_ratio/budget.rs"]
mod budget;
#[path = "hit_ratio/epoch.rs"]
mod epoch;
#[path = "hit_ratio/lirs.rs"]
mod lirs;
#[path = "hit_ratio/policies.rs"]
mod policies;
#[path = "hit_ratio/queue.rs"]
mod queue;
#[path = "../../../benches/report.rs"]
mod report;
#[path = "hit_ratio/tiny_lfu.rs"]
mod tiny_lfu;
#[path = "hit_ratio/trace.rs"]
mod trace;

use std::path::PathBuf;
use std::process::ExitCode;

use budget::{Budget, By, Off};
use epoch::{Epochs, Rules};
use lirs::Lirs;
use policies::{Arc, Cache, Clock, Larc, Lru, S3Fifo, Sieve};
use report::Report;
use tiny_lfu::TinyLfu;
use trace::Trace;

/// Blocks of buffers in front, and of caches, as shares of a trace's blocks.
const BUFFERS: [f64; 2] = [0.01, 0.05];
const CACHES: [f64; 4] = [0.02, 0.05, 0.10, 0.25];

/// Days that a trace is for a write budget, and budgets as shares of what is written without one.
const DAYS: u64 = 4;
const BUDGETS: [f64; 3] = [0.5, 0.25, 0.1];
const WAYS: [(&str, By); 2] = [("threshold", By::Threshold), ("chance", By::Chance)];

type Make = fn(usize, usize) -> Box<dyn Cache>;

/// LRU is first: fills are compared with its own.
const POLICIES: [(&str, Make); 12] = [
    ("lru", |blocks, size| Box::new(Lru::new(blocks, size))),
    ("second-chance", |blocks, size| Box::new(Clock::new(blocks, size))),
    ("sieve", |blocks, size| Box::new(Sieve::new(blocks, size))),
    ("arc", |blocks, size| Box::new(Arc::new(blocks, size))),
    ("s3-fifo", |blocks, size| Box::new(S3Fifo::new(blocks, size))),
    ("clock2q+", |blocks, size| Box::new(S3Fifo::clock2q(blocks, size))),
    ("larc", |blocks, size| Box::new(Larc::new(blocks, size))),
    ("lirs", |blocks, size| Box::new(Lirs::new(blocks, size))),
    ("w-tinylfu", |blocks, size| Box::new(TinyLfu::new(blocks, size))),
    ("epochs", |blocks, size| Box::new(Epochs::new(Rules::STORE, blocks, size))),
    ("epochs-exact", |blocks, size| {
        Box::new(Epochs::new(Rules { exact: true, ..Rules::STORE }, blocks, size))
    }),
    ("epochs-short-0.5", |blocks, size| {
        Box::new(Epochs::new(Rules { short: 0.5, ..Rules::STORE }, blocks, size))
    }),
];

/// What one policy did in one cell.
struct Cell {
    policy: &'static str,
    trace: String,
    hits: f64,
    fills: f64,
}

/// What the store's policy did with a budget in one cell.
struct Budgeted {
    way: &'static str,
    share: f64,
    trace: String,
    /// As a share of those without a budget.
    hits: f64,
    off: Off,
}

fn main() -> ExitCode {
    let mut report = Report::from_args("hit_ratio", "hits and fills behind a database's buffer");
    let paths: Vec<PathBuf> = std::env::args()
        .skip(1)
        .filter(|option| !option.starts_with("--"))
        .map(PathBuf::from)
        .collect();
    if paths.is_empty() {
        println!(
            "hit_ratio: name traces to play; crates/store/benches/hit_ratio/trace.rs says where \
             from"
        );
        return ExitCode::SUCCESS;
    }
    let (mut cells, mut budgeted) = (Vec::new(), Vec::new());
    for path in &paths {
        match Trace::read(path) {
            Ok(trace) => {
                let of = format!(
                    "{} requests for {} blocks, {} of them writes",
                    trace.requests.len(),
                    trace.blocks,
                    trace.writes
                );
                println!("\n{}: {of}", trace.name);
                report.config(&trace.name, of);
                play(&trace, &mut cells, &mut budgeted);
            }
            Err(error) => {
                eprintln!("hit_ratio: {error}");
                return ExitCode::from(2);
            }
        }
    }
    means(&mut report, &cells);
    with_budgets(&mut report, &budgeted);
    report.finish()
}

/// Plays a trace behind each buffer and against each size of cache.
fn play(trace: &Trace, cells: &mut Vec<Cell>, budgeted: &mut Vec<Budgeted>) {
    let share = |share: f64| ((trace.blocks as f64 * share) as usize).max(1);
    let mut streams = Vec::new();
    if trace.behind_buffer {
        streams.push(("its own buffer".to_owned(), trace.requests.clone()));
    } else {
        for buffer in BUFFERS {
            let mut lru = Lru::new(trace.blocks, share(buffer));
            let missed =
                trace.requests.iter().copied().filter(|block| !lru.request(*block)).collect();
            streams.push((format!("a buffer of {:.0} %", buffer * 100.0), missed));
        }
    }
    for (buffer, requests) in streams {
        for cache in CACHES {
            let size = share(cache);
            let best = belady::hits(&requests, trace.blocks, size);
            println!(
                "\nbehind {buffer}, a cache of {:.0} %: Belady hits {:.1} %\n{:<18} {:>8} {:>12} \
                 {:>12}",
                cache * 100.0,
                best as f64 * 100.0 / requests.len() as f64,
                "policy",
                "hits, %",
                "of Belady's",
                "fills of LRU"
            );
            let mut lru_fills = 0;
            for (policy, make) in POLICIES {
                let mut held = make(trace.blocks, size);
                let hits = requests.iter().filter(|block| held.request(**block)).count() as f64;
                lru_fills = if lru_fills == 0 { held.fills().max(1) } else { lru_fills };
                let cell = Cell {
                    policy,
                    trace: trace.name.clone(),
                    hits: hits / best.max(1) as f64,
                    fills: held.fills() as f64 / lru_fills as f64,
                };
                let percent = hits * 100.0 / requests.len() as f64;
                println!("{policy:<18} {percent:>8.1} {:>12.3} {:>12.3}", cell.hits, cell.fills);
                cells.push(cell);
            }
            budgeted.extend(budgets(trace, &requests, size));
        }
    }
}

/// The store's policy with each budget, kept in either way.
fn budgets(trace: &Trace, requests: &[u32], size: usize) -> Vec<Budgeted> {
    let run = |budget: Option<Budget>| {
        let all = Epochs::new(Rules::STORE, trace.blocks, size);
        let mut held = match budget {
            Some(budget) => all.with_budget(budget),
            None => all,
        };
        let hits = requests.iter().filter(|block| held.request(**block)).count() as f64;
        (hits, held.fills() as f64, held.budget().map(Budget::off).unwrap_or_default())
    };
    let (all_hits, all_fills, _) = run(None);
    let percent = |hits: f64| hits * 100.0 / requests.len() as f64;
    println!(
        "with a budget of what it writes, hits of {:.1} %: {:>13} {:>12} {:>12}",
        percent(all_hits),
        "hits, %",
        "a day off, %",
        "asked early"
    );
    let mut found = Vec::new();
    for share in BUDGETS {
        for (way, by) in WAYS {
            let day = requests.len() as u64 / DAYS;
            let budget = Budget::new(by, all_fills * share / DAYS as f64, day);
            let (hits, _, off) = run(Some(budget));
            println!(
                "{share:<5} by {way:<41} {:>8.1} {:>12.2} {:>12.2}",
                percent(hits),
                off.steady * 100.0,
                off.early * 100.0
            );
            let trace = trace.name.clone();
            found.push(Budgeted { way, share, trace, hits: hits / all_hits.max(1.0), off });
        }
    }
    found
}

fn with_budgets(report: &mut Report, all: &[Budgeted]) {
    let mut traces: Vec<&str> = all.iter().map(|one| one.trace.as_str()).collect();
    traces.dedup();
    for share in BUDGETS {
        for (way, _) in WAYS {
            let of = |trace: Option<&str>| -> Vec<&Budgeted> {
                let is_it = |one: &&Budgeted| {
                    (one.way, one.share) == (way, share) && trace.is_none_or(|t| one.trace == t)
                };
                all.iter().filter(is_it).collect()
            };
            let mean = |cells: &[&Budgeted]| {
                cells.iter().map(|one| one.hits).sum::<f64>() / cells.len() as f64
            };
            let most =
                |off: fn(&Off) -> f64| of(None).iter().map(|one| off(&one.off)).fold(0.0, f64::max);
            report.ratio(&format!("budget.{way}.{share}"), mean(&of(None)));
            report.ratio(&format!("budget_off.{way}.{share}"), most(|off| off.steady));
            report.ratio(&format!("budget_early.{way}.{share}"), most(|off| off.early));
            for trace in &traces {
                report.ratio(&format!("budget.{way}.{share}.{trace}"), mean(&of(Some(trace))));
            }
        }
    }
}

fn means(report: &mut Report, cells: &[Cell]) {
    let mut traces: Vec<&str> = cells.iter().map(|cell| cell.trace.as_str()).collect();
    traces.dedup();
    for (policy, _) in POLICIES {
        let of = |trace: Option<&str>, figure: fn(&Cell) -> f64| {
            let cells =
                cells.iter().filter(|c| c.policy == policy && trace.is_none_or(|t| c.trace == t));
            let (sum, count) =
                cells.fold((0.0, 0.0), |(sum, count), cell| (sum + figure(cell), count + 1.0));
            sum / count
        };
        report.ratio(&format!("hits.{policy}"), of(None, |cell| cell.hits));
        report.ratio(&format!("fills.{policy}"), of(None, |cell| cell.fills));
        for trace in &traces {
            report.ratio(&format!("hits.{policy}.{trace}"), of(Some(trace), |cell| cell.hits));
            report.ratio(&format!("fills.{policy}.{trace}"), of(Some(trace), |cell| cell.fills));
        }
    }
}
