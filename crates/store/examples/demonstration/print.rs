//! The output: a table for people as it goes, and the same figures as JSON at the end.
//!
//! Invariants: nothing is printed that was not measured or read from the system; a figure from an
//! emulated tier carries the label.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tiersmith_events::Totals;

use crate::Result;
use crate::kill::Outcome;
use crate::measure::{Figure, clock_ns};
use crate::place::{BLOCK, Place, RECORD};

/// Wait events listed.
const TOP: usize = 8;
/// A load average above this share of the processors is reported.
const BUSY_SHARE: f64 = 0.3;

/// What is said and kept.
pub(crate) struct Report {
    emulated: bool,
    seconds: f64,
    json: Value,
    warnings: Vec<String>,
    faults: Vec<String>,
}

impl Report {
    pub(crate) fn new(place: &Place, seconds: f64) -> Report {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let cpu = cpuinfo
            .lines()
            .find_map(|l| l.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let load =
            read("/proc/loadavg").split(' ').next().and_then(|text| text.parse::<f64>().ok());
        let mut warnings = place.warnings.clone();
        if let Some(load) = load.filter(|load| *load > BUSY_SHARE * cores as f64) {
            warnings.push(format!(
                "the load average was {load} on {cores} processors when this began: figures suffer"
            ));
        }
        if cfg!(debug_assertions) {
            warnings.push("this is a debug build; run it with --release".into());
        }
        let json = json!({
            "name": "demonstration",
            "machine": {
                "cpu": cpu, "cores": cores, "kernel": read("/proc/sys/kernel/osrelease").trim(),
                "load_average_1min": load,
            },
            "versions": { "project": env!("CARGO_PKG_VERSION") },
            "command": std::env::args().skip(1).collect::<Vec<_>>(),
            "config": {
                "home_is_on": place.home_is_on, "tier_is_on": place.tier_is_on,
                "tier_emulated": place.tier.emulated,
                "tier_bytes": place.sizes.tier, "data_bytes": place.sizes.data,
                "redo_bytes": place.sizes.redo,
                "block_bytes": BLOCK, "record_bytes": RECORD, "seconds_per_figure": seconds,
                "clock_ns": clock_ns(),
                "profile": "postgres", "threads": 1,
            },
            "figures": [], "waits": [], "kills": [],
        });
        Report { emulated: place.tier.emulated, seconds, json, warnings, faults: Vec::new() }
    }

    pub(crate) fn head(&self) {
        let (machine, config) = (&self.json["machine"], &self.json["config"]);
        let mib = |key: &str| config[key].as_u64().unwrap_or(0) >> 20;
        println!("Tiersmith: the store's demonstration\n");
        println!(
            "machine   {}, {} processors, Linux {}, load average {}",
            machine["cpu"].as_str().unwrap_or("unknown processor"),
            machine["cores"],
            machine["kernel"].as_str().unwrap_or("?"),
            machine["load_average_1min"]
        );
        println!("home      {}", config["home_is_on"].as_str().unwrap_or("?"));
        println!(
            "tier      {} MiB, {}{}",
            mib("tier_bytes"),
            config["tier_is_on"].as_str().unwrap_or("?"),
            if self.emulated { ", EMULATED" } else { "" }
        );
        println!(
            "load      {} MiB of data in 8 KiB blocks, {} MiB of redo, 1 thread, {} s per figure",
            mib("data_bytes"),
            mib("redo_bytes"),
            self.seconds
        );
    }

    pub(crate) fn medium(&mut self, report: &str) {
        println!("\nThe tier's medium, as found:");
        for line in report.lines() {
            println!("  {line}");
        }
        self.json["medium"] = report.into();
    }

    pub(crate) fn figures(&mut self, plain: Vec<Figure>, attached: Vec<Figure>) {
        let label = if self.emulated { "attached, EMULATED" } else { "attached" };
        println!(
            "\n{:<34}{:<20}{:>9}{:>11}{:>11}{:>11}{:>9}",
            "operation", "on", "count", "mean us", "median us", "p99 us", "ratio"
        );
        let mut plain = plain.into_iter();
        for fast in &attached {
            let mut ratio = None;
            if let Some(slow) = plain.next() {
                ratio = Some(slow.quantile_ns(0.5) / fast.quantile_ns(0.5).max(1.0));
                self.figure(&slow, "plain files", slow.operation, None);
            }
            self.figure(fast, label, if ratio.is_some() { "" } else { fast.operation }, ratio);
        }
        println!(
            "\nratio: median on plain files / median on the attached home; above 1 the attached \
             home takes less time.\n\
             plain files: pwrite + fdatasync; attached: write + sync. Reads of plain files are \
             answered by the page cache.\n\
             The tier is larger than what is written, so the home's storage has no part in the \
             attached figures; what it costs\n\
             later is the time to destage, below. Reading the clock is in each sample: {:.0} ns.",
            self.json["config"]["clock_ns"].as_f64().unwrap_or(0.0)
        );
    }

    fn figure(&mut self, figure: &Figure, on: &str, operation: &str, ratio: Option<f64>) {
        let us = |ns: f64| format!("{:.2}", ns / 1e3);
        println!(
            "{operation:<34}{on:<20}{:>9}{:>11}{:>11}{:>11}{:>9}",
            figure.count(),
            us(figure.mean_ns()),
            us(figure.quantile_ns(0.5)),
            us(figure.quantile_ns(0.99)),
            ratio.map_or(String::new(), |r| format!("{r:.1}"))
        );
        if let Some(doubt) = figure.doubt() {
            self.warnings.push(format!("{}, {on}: {doubt}", figure.operation));
        }
        push(
            &mut self.json["figures"],
            json!({
                "operation": figure.operation, "on": on, "count": figure.count(), "unit": "ns",
                "mean": figure.mean_ns(), "median": figure.quantile_ns(0.5),
                "p90": figure.quantile_ns(0.9),
                "p99": figure.quantile_ns(0.99), "p999": figure.quantile_ns(0.999),
                "max": figure.max_ns(),
                "ratio_to_plain": ratio,
            }),
        );
    }

    pub(crate) fn waits(&mut self, totals: &Totals) {
        let mut events: Vec<_> = totals.events().filter(|(_, e)| e.count() > 0).collect();
        events.sort_by_key(|(_, e)| std::cmp::Reverse(e.total_ns()));
        let all: u64 =
            events.iter().filter(|(def, _)| !def.background).map(|(_, e)| e.total_ns()).sum();
        println!(
            "\nTop wait events, as the store recorded them{}:",
            if self.emulated { " (EMULATED tier)" } else { "" }
        );
        println!(
            "  {:<44}{:<15}{:>9}{:>11}{:>10}{:>9}",
            "event", "class", "waits", "total ms", "mean us", "% time"
        );
        for (def, e) in events.into_iter().take(TOP) {
            let share = if def.background {
                None
            } else {
                Some(100.0 * e.total_ns() as f64 / all.max(1) as f64)
            };
            println!(
                "  {:<44}{:<15}{:>9}{:>11.1}{:>10.2}{:>9}",
                def.name,
                def.class,
                e.count(),
                e.total_ns() as f64 / 1e6,
                e.mean_ns().unwrap_or(0.0) / 1e3,
                share.map_or("backgr.".into(), |s| format!("{s:.1}"))
            );
            push(
                &mut self.json["waits"],
                json!({
                    "event": def.name, "class": def.class.name(), "background": def.background,
                    "waits": e.count(),
                    "total_ns": e.total_ns(), "bytes": e.bytes(), "emulated": self.emulated,
                }),
            );
        }
    }

    pub(crate) fn kill(&mut self, round: usize, outcome: &Outcome) {
        if round == 1 {
            println!(
                "\nA writer is killed with SIGKILL (a killed process; power cuts are simulated by \
                 ./check --crash):"
            );
        }
        println!(
            "  kill {round}: {} writes acknowledged; reattached: {}",
            outcome.acknowledged, outcome.recovery
        );
        let verdict = if outcome.faults.is_empty() {
            "nothing acknowledged is missing, no block is a mixture".into()
        } else {
            format!("{} FAULTS, the first: {}", outcome.faults.len(), outcome.faults[0])
        };
        println!("          {verdict}");
        self.faults.extend(outcome.faults.iter().cloned());
        push(
            &mut self.json["kills"],
            json!({
                "acknowledged": outcome.acknowledged, "recovery": outcome.recovery,
                "recovery_ms": outcome.recovery_ms,
                "under_way_arrived": outcome.arrived, "faults": outcome.faults,
            }),
        );
    }

    pub(crate) fn detached(&mut self, destaged: u64, took: Duration, faults: &[String]) {
        println!(
            "\nDetached: {destaged} dirty blocks went home in {:.2} s; the plain files were \
             compared:",
            took.as_secs_f64()
        );
        match faults.first() {
            None => println!("  every block and record is the one that was acknowledged last"),
            Some(first) => println!("  {} FAULTS, the first: {first}", faults.len()),
        }
        self.faults.extend(faults.iter().cloned());
        self.json["detach"] =
            json!({ "blocks": destaged, "seconds": took.as_secs_f64(), "faults": faults });
    }

    pub(crate) fn finish(&mut self, took: Duration) {
        if self.emulated {
            self.warnings.push(
                "the tier is EMULATED: figures from it show the software's cost on memory, not a \
                 persistent medium"
                    .into(),
            );
        }
        self.json["took_s"] = took.as_secs_f64().into();
        self.json["warnings"] = self.warnings.clone().into();
        self.json["faults"] = self.faults.clone().into();
        println!();
        for warning in &self.warnings {
            println!("note: {warning}");
        }
        println!("done in {:.0} s, {} faults", took.as_secs_f64(), self.faults.len());
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        self.faults.clone()
    }

    pub(crate) fn write_json(&self, file: &Path) -> Result<()> {
        std::fs::write(file, serde_json::to_string_pretty(&self.json)? + "\n")
            .map_err(|e| format!("cannot write {}: {e}", file.display()))?;
        println!("results: {}", file.display());
        Ok(())
    }
}

fn push(list: &mut Value, item: Value) {
    if let Value::Array(items) = list {
        items.push(item);
    }
}
