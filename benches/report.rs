//! What every benchmark of the project shares: options, statistics, the table for people and the
//! file for machines.
//!
//! Included with `#[path = "../../../benches/report.rs"] mod report;` by a benchmark that has
//! `harness = false` and `serde_json` among its dev-dependencies. It is source, not a crate, so
//! that no part of the product depends on it.
//!
//! ```text
//! let mut report = Report::from_args("block_write", "Durable block overwrites on one mapping");
//! // Peers take turns, so that a slow minute hits them all.
//! for _ in 0..report.rounds() {
//!     report.run("8 KiB overwrite", "raw", samples_ns);
//!     report.run("8 KiB overwrite", "store", samples_ns);
//! }
//! let group = "8 KiB overwrite";
//! report.ratio_of_medians("overwrite_8k_over_raw", (group, "store"), (group, "raw"));
//! report.finish()
//! ```
//!
//! Options: `--quick` (fewer rounds). The file is `target/bench/NAME.json` under the project root:
//!
//! | key | holds |
//! |---|---|
//! | `name`, `title`, `quick`, `finished_unix_s` | what was run, and when |
//! | `machine` | `cpu`, `cores`, `memory_bytes`, `kernel`, `load_average_1min` when the run began |
//! | `versions` | `project`, `git` (null if unknown), `rustc`, and what the benchmark adds |
//! | `command`, `config` | how to run it again |
//! | `warnings` | why these figures may be wrong: another load on the machine, rounds that disagree |
//! | `broken` | promised figures that were not kept; the exit code is 1 then |
//! | `samples` | per group and name: `unit`, `median`, `p99`, and per round `median`, `p99`, `mean`, `min`, `max`, `samples` |
//! | `ratios` | flat object of the figures that are promised somewhere |
//!
//! Invariants: nothing is printed that is not in the file; a figure is the median of rounds, never
//! the best of them.
//! Deliberately absent: statistics of significance, comparison with an earlier file.

#![allow(dead_code, reason = "each benchmark uses a part of this file")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// Rounds whose medians differ by more than this share of their median are reported as disagreeing.
const NOISY_SPREAD: f64 = 0.25;
/// A load average above this share of the cores, when the run begins, is reported.
const BUSY_LOAD_PER_CORE: f64 = 0.3;

/// A benchmark's results, filled while it runs.
pub(crate) struct Report {
    name: &'static str,
    title: &'static str,
    quick: bool,
    options: Vec<String>,
    began: Instant,
    load_average: Option<f64>,
    series: Vec<Series>,
    ratios: Vec<(String, f64)>,
    versions: BTreeMap<String, Value>,
    config: BTreeMap<String, Value>,
    notes: Vec<String>,
    warnings: Vec<String>,
    broken: Vec<String>,
}

/// All rounds of one thing measured.
struct Series {
    group: String,
    name: String,
    unit: &'static str,
    rounds: Vec<Round>,
}

/// One round of one thing measured: the statistics of its samples.
struct Round {
    median: f64,
    p99: f64,
    mean: f64,
    min: f64,
    max: f64,
    samples: usize,
}

impl Report {
    /// Reads the command line; `name` is the benchmark's, and of the file it writes.
    pub(crate) fn from_args(name: &'static str, title: &'static str) -> Report {
        // Cargo itself adds `--bench`.
        let options: Vec<String> =
            std::env::args().skip(1).filter(|option| option != "--bench").collect();
        Report {
            name,
            title,
            quick: options.iter().any(|option| option == "--quick"),
            options,
            began: Instant::now(),
            load_average: load_average(),
            series: Vec::new(),
            ratios: Vec::new(),
            versions: BTreeMap::new(),
            config: BTreeMap::new(),
            notes: Vec::new(),
            warnings: Vec::new(),
            broken: Vec::new(),
        }
    }

    /// Whether `--quick` was given.
    pub(crate) fn quick(&self) -> bool {
        self.quick
    }

    /// Whether an option that the benchmark itself knows was given, for instance `--tmpfs`.
    pub(crate) fn has_option(&self, option: &str) -> bool {
        self.options.iter().any(|given| given == option)
    }

    /// How often the peers take turns.
    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 7 } else { 25 }
    }

    /// Notes the version of something measured, for instance a peer library.
    pub(crate) fn version(&mut self, of: &str, version: &str) {
        self.versions.insert(of.to_owned(), version.into());
    }

    /// Notes how the benchmark was set up, for instance the size of the mapping.
    pub(crate) fn config(&mut self, key: &str, value: impl Into<Value>) {
        self.config.insert(key.to_owned(), value.into());
    }

    /// Adds a line of explanation under the tables.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Adds a reason to doubt the figures, or a label they need (for instance that the medium is
    /// emulated).
    pub(crate) fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    /// A promised figure that was not kept: the results are written, and the exit code says it.
    pub(crate) fn broken(&mut self, text: impl Into<String>) {
        self.broken.push(text.into());
    }

    /// Adds a round of samples in nanoseconds: of single operations, or of batches divided by their
    /// length.
    pub(crate) fn run(&mut self, group: &str, name: &str, samples_ns: Vec<f64>) {
        self.run_in("ns", group, name, samples_ns);
    }

    /// Adds a round of samples in another unit, for instance `GiB/s`.
    pub(crate) fn run_in(
        &mut self,
        unit: &'static str,
        group: &str,
        name: &str,
        samples: Vec<f64>,
    ) {
        let Some(round) = Round::of(samples) else { return };
        match self.series.iter_mut().find(|series| series.group == group && series.name == name) {
            Some(series) => series.rounds.push(round),
            None => {
                let (group, name) = (group.to_owned(), name.to_owned());
                self.series.push(Series { group, name, unit, rounds: vec![round] });
            }
        }
    }

    /// The median over the rounds of one thing measured, if it was measured.
    pub(crate) fn median(&self, group: &str, name: &str) -> Option<f64> {
        self.find(group, name).map(Series::median)
    }

    /// The 99th percentile over the rounds of one thing measured, if it was measured.
    pub(crate) fn p99(&self, group: &str, name: &str) -> Option<f64> {
        self.find(group, name).map(Series::p99)
    }

    /// Adds a promised figure. Not every one is a ratio: a key that ends in a unit has that unit.
    pub(crate) fn ratio(&mut self, key: &str, value: f64) {
        self.ratios.push((key.to_owned(), value));
    }

    /// Adds the median over rounds of (this / that), each pair taken from the same round; absent if
    /// either is.
    ///
    /// Rounds are paired because a slow moment of the machine hits both sides of a round, and then
    /// cancels.
    pub(crate) fn ratio_of_medians(&mut self, key: &str, this: (&str, &str), that: (&str, &str)) {
        let (Some(this), Some(that)) = (self.find(this.0, this.1), self.find(that.0, that.1))
        else {
            return;
        };
        let pairs = this.rounds.iter().zip(&that.rounds);
        let value = median(pairs.map(|(this, that)| this.median / that.median).collect());
        self.ratio(key, value);
    }

    /// How far the rounds of [`Report::ratio_of_medians`] lie apart, least from most, as a share of
    /// their median.
    pub(crate) fn spread_of_ratio(&self, this: (&str, &str), that: (&str, &str)) -> Option<f64> {
        let (this, that) = (self.find(this.0, this.1)?, self.find(that.0, that.1)?);
        let ratio = |(this, that): (&Round, &Round)| this.median / that.median;
        let mut ratios: Vec<f64> = this.rounds.iter().zip(&that.rounds).map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        Some((ratios.last()? - ratios.first()?) / median(ratios.clone()).max(f64::MIN_POSITIVE))
    }

    /// Between which ratios [`Report::ratio_of_medians`] lies with 95 % confidence, and of how many
    /// pairs, if these are ten or more.
    ///
    /// By rank, so nothing is assumed of how the pairs are spread: half of them lie below the true
    /// median, give or take two standard deviations of a binomial.
    pub(crate) fn range_of_ratio(
        &self,
        this: (&str, &str),
        that: (&str, &str),
    ) -> Option<(f64, f64, usize)> {
        let (this, that) = (self.find(this.0, this.1)?, self.find(that.0, that.1)?);
        let ratio = |(this, that): (&Round, &Round)| this.median / that.median;
        let mut ratios: Vec<f64> = this.rounds.iter().zip(&that.rounds).map(ratio).collect();
        let pairs = ratios.len();
        if pairs < 10 {
            return None;
        }
        ratios.sort_by(f64::total_cmp);
        let below = (pairs as f64 / 2.0 - (pairs as f64).sqrt()).floor() as usize;
        Some((*ratios.get(below)?, *ratios.get(pairs - 1 - below)?, pairs))
    }

    /// Multiplies a figure added before, for instance by the number of threads to make times per
    /// thread a throughput.
    pub(crate) fn scale_ratio(&mut self, key: &str, factor: f64) {
        for (_, value) in self.ratios.iter_mut().filter(|(name, _)| name == key) {
            *value *= factor;
        }
    }

    /// Prints the tables and writes the file.
    ///
    /// The exit code is 0, 1 when a promised figure was not kept, or 2 when the file cannot be
    /// written.
    pub(crate) fn finish(mut self) -> ExitCode {
        self.look_for_noise();
        self.print();
        let file = project_root().join("target/bench").join(format!("{}.json", self.name));
        let text = format!("{:#}\n", self.to_json());
        let written = match file.parent() {
            Some(folder) => {
                std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&file, text))
            }
            None => std::fs::write(&file, text),
        };
        match written {
            Ok(()) => {
                println!("\nwritten: {}", file.display());
                self.broken.iter().for_each(|text| eprintln!("not kept: {text}"));
                if self.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
            }
            Err(error) => {
                eprintln!(
                    "cannot write the results to {}: {error}; make the folder writable",
                    file.display()
                );
                ExitCode::from(2)
            }
        }
    }

    fn find(&self, group: &str, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.group == group && series.name == name)
    }

    fn look_for_noise(&mut self) {
        if let Some(load) = self.load_average
            && load > BUSY_LOAD_PER_CORE * cores() as f64
        {
            let text = format!(
                "the machine was busy when the run began: load average {load:.1} on {} cores",
                cores()
            );
            self.warnings.push(text);
        }
        let noisy: Vec<&Series> =
            self.series.iter().filter(|series| series.spread() > NOISY_SPREAD).collect();
        if !noisy.is_empty() {
            let share = NOISY_SPREAD * 100.0;
            let names: Vec<String> = noisy
                .iter()
                .map(|series| {
                    format!("{}: {} ({:.0} %)", series.group, series.name, series.spread() * 100.0)
                })
                .collect();
            let names = names.join(", ");
            self.warnings.push(format!(
                "half of the rounds lie further apart than {share:.0} % of the median: {names}"
            ));
        }
    }

    fn print(&self) {
        let (machine, quick) =
            (machine(self.load_average), if self.quick { ", --quick" } else { "" });
        println!("{}: {}", self.name, self.title);
        println!(
            "{}, {} cores, {} GiB, kernel {}; {} rounds{quick}, {:.1} s",
            machine["cpu"].as_str().unwrap_or("unknown processor"),
            machine["cores"],
            machine["memory_bytes"].as_u64().unwrap_or(0).div_ceil(1 << 30),
            machine["kernel"].as_str().unwrap_or("unknown"),
            self.series.iter().map(|series| series.rounds.len()).max().unwrap_or(0),
            self.began.elapsed().as_secs_f64(),
        );
        let width =
            self.series.iter().map(|series| series.name.chars().count()).max().unwrap_or(0).max(24);
        let mut groups: Vec<&str> = Vec::new();
        for series in &self.series {
            if !groups.contains(&series.group.as_str()) {
                groups.push(&series.group);
            }
        }
        for group in groups {
            println!("\n{group:<width$} {:>12} {:>12} {:>6} {:>8}", "median", "p99", "", "ratio");
            let members: Vec<&Series> =
                self.series.iter().filter(|series| series.group == group).collect();
            for series in &members {
                println!(
                    "{:<width$} {:>12} {:>12} {:<6} {:>8}",
                    series.name,
                    figure(series.median()),
                    figure(series.p99()),
                    series.unit,
                    match series.unit == members[0].unit {
                        true => format!("{:.2}", series.median() / members[0].median()),
                        false => String::new(),
                    }
                );
            }
        }
        println!("\nratio: to the first row of the table; p99: of samples, median of rounds");
        for note in &self.notes {
            println!("note: {note}");
        }
        for warning in &self.warnings {
            println!("warning: {warning}");
        }
        if !self.ratios.is_empty() {
            println!();
        }
        for (key, value) in &self.ratios {
            println!("{key:<width$} {value:>12.3}");
        }
    }

    fn to_json(&self) -> Value {
        let mut versions: serde_json::Map<String, Value> =
            self.versions.clone().into_iter().collect();
        versions.insert("project".to_owned(), env!("CARGO_PKG_VERSION").into());
        versions.insert(
            "git".to_owned(),
            first_line("git", &["describe", "--always", "--dirty", "--tags"]),
        );
        let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
        versions.insert("rustc".to_owned(), first_line(&rustc, &["--version"]));
        let mut command = format!(
            "cargo bench -p {} --bench {}",
            env!("CARGO_PKG_NAME"),
            env!("CARGO_CRATE_NAME")
        );
        if !self.options.is_empty() {
            command = format!("{command} -- {}", self.options.join(" "));
        }
        let ratios: serde_json::Map<String, Value> =
            self.ratios.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        json!({
            "name": self.name,
            "title": self.title,
            "quick": self.quick,
            "finished_unix_s": SystemTime::now().duration_since(UNIX_EPOCH).map_or(0,
            |since| since.as_secs()),
            "machine": machine(self.load_average),
            "versions": versions,
            "command": command,
            "config": self.config,
            "notes": self.notes,
            "warnings": self.warnings,
            "broken": self.broken,
            "samples": self.series.iter().map(Series::to_json).collect::<Vec<_>>(),
            "ratios": ratios,
        })
    }
}

impl Series {
    fn median(&self) -> f64 {
        median(self.rounds.iter().map(|round| round.median).collect())
    }

    fn p99(&self) -> f64 {
        median(self.rounds.iter().map(|round| round.p99).collect())
    }

    /// The middle half of the rounds' medians, as a share of their median.
    fn spread(&self) -> f64 {
        let mut medians: Vec<f64> = self.rounds.iter().map(|round| round.median).collect();
        medians.sort_by(f64::total_cmp);
        (at_share(&medians, 0.75) - at_share(&medians, 0.25)) / self.median().max(f64::MIN_POSITIVE)
    }

    fn to_json(&self) -> Value {
        let rounds = self.rounds.iter().map(|round| {
            json!({
                "median": round.median, "p99": round.p99, "mean": round.mean,
                "min": round.min, "max": round.max, "samples": round.samples,
            })
        });
        json!({
            "group": self.group, "name": self.name, "unit": self.unit,
            "median": self.median(), "p99": self.p99(), "rounds": rounds.collect::<Vec<_>>(),
        })
    }
}

impl Round {
    fn of(mut samples: Vec<f64>) -> Option<Round> {
        samples.sort_by(f64::total_cmp);
        Some(Round {
            median: at_share(&samples, 0.5),
            p99: at_share(&samples, 0.99),
            mean: samples.iter().sum::<f64>() / samples.len() as f64,
            min: *samples.first()?,
            max: *samples.last()?,
            samples: samples.len(),
        })
    }
}

/// Times `operations` calls of `step` as batches of `batch`; gives nanoseconds per call of each
/// batch.
///
/// For operations so short that reading the clock around one would be most of it.
pub(crate) fn time_batches(
    operations: usize,
    batch: usize,
    mut step: impl FnMut(usize),
) -> Vec<f64> {
    let mut samples_ns = Vec::with_capacity(operations / batch);
    for index in 0..operations / batch {
        let start = Instant::now();
        for operation in index * batch..(index + 1) * batch {
            step(operation);
        }
        samples_ns.push(start.elapsed().as_nanos() as f64 / batch as f64);
    }
    samples_ns
}

/// The value at a share (0 to 1) of a sorted list, nearest rank; zero if it is empty.
fn at_share(sorted: &[f64], share: f64) -> f64 {
    let rank = ((sorted.len() as f64 * share).ceil() as usize).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0.0)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    at_share(&values, 0.5)
}

/// Four significant digits and more.
fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 1_000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

fn machine(load_average: Option<f64>) -> Value {
    json!({
        "cpu": field_of("/proc/cpuinfo", &["model name", "Model", "CPU part"]),
        "cores": cores(),
        "memory_bytes": field_of("/proc/meminfo", &["MemTotal"])
            .and_then(|value| value.trim_end_matches("kB").trim().parse::<u64>().ok())
            .map(|kib| kib * 1024),
        "kernel": std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()
            .map(|text| text.trim().to_owned()),
        "load_average_1min": load_average,
    })
}

/// The value of the first of these `key : value` lines that a file of the kernel has.
fn field_of(file: &str, keys: &[&str]) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    keys.iter().find_map(|key| {
        text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == *key).then(|| value.trim().to_owned())
        })
    })
}

/// The first line a program prints, or null if it does not run.
fn first_line(program: &str, arguments: &[&str]) -> Value {
    let output = Command::new(program).args(arguments).current_dir(project_root()).output();
    match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).lines().next().map_or(Value::Null, Value::from)
        }
        _ => Value::Null,
    }
}

/// The folder that holds the workspace: the nearest with a `Cargo.lock` above the package, or else
/// above here.
fn project_root() -> PathBuf {
    let from = std::env::var_os("CARGO_MANIFEST_DIR")
        .map(PathBuf::from)
        .or_else(|| std::env::current_dir().ok());
    let from = from.unwrap_or_else(|| PathBuf::from("."));
    let root = from.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
    root.unwrap_or(Path::new(".")).to_path_buf()
}
