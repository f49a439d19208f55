//! What a study found: the raw snapshots and what follows from them, as it is written to JSON.
//!
//! **Invariants**: everything printed follows from what is here, so the text and the page can be
//! made again from the file; a figure of an emulated tier is in a result that says so; of several
//! rounds the median run is shown, never the best.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tiersmith_awr::{Interval, Snapshot, host};
use tiersmith_store::Medium;

use super::cross_check::CrossCheck;
use super::trust::Warning;
use crate::case::{Case, Load, Placement};
use crate::error::{Error, Result};
use crate::place::{Places, TierPlace};
use crate::published::Published;
use crate::run::Measured;
use crate::server::REDO_SYNC;
use crate::target::room;

/// What servers call writing redo, and making it durable. Their processes share these waits: they
/// are no request's alone.
const REDO_WRITES: [&str; 2] = ["WALWrite", "InnoDB redo write"];
/// The second and the third in results of an earlier version; the last is the key-value server's.
const REDO_SYNCS: [&str; 4] = [REDO_SYNC, "WALSync", "InnoDB redo sync", "tier commit"];

/// The version of the JSON form.
pub const FORMAT: u32 = 1;

/// A study's result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StudyResult {
    /// [`FORMAT`].
    pub format: u32,
    /// Of the program.
    pub version: String,
    /// How it was called.
    pub command: Vec<String>,
    /// When it began.
    pub taken_unix_ns: u64,
    /// How long it took, loading included.
    pub took_s: f64,
    /// Seconds measured per run.
    pub seconds: f64,
    /// Rounds.
    pub rounds: u32,
    /// On what.
    pub machine: Machine,
    /// Where.
    pub places: PlaceSummary,
    /// The database: `SQLite`, `PostgreSQL`, ...
    #[serde(default = "sqlite_title")]
    pub database: String,
    /// Its version.
    #[serde(alias = "sqlite")]
    pub database_version: String,
    /// What it was loaded with.
    #[serde(default = "slob_title")]
    pub load: String,
    /// The latency profile laid over the home, if one was: figures are of a model then.
    #[serde(default)]
    pub home_model: Option<String>,
    /// The cases, in their order.
    pub cases: Vec<CaseSummary>,
    /// Every run, in the order of time.
    pub runs: Vec<RunResult>,
    /// Outside programs beside the runs, if they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross_check: Option<CrossCheck>,
    /// Reasons to distrust all of it, and what a reader must know.
    pub warnings: Vec<Warning>,
    /// What public documents printed for these cases.
    pub published: Vec<Published>,
}

/// What results said that were written when there was one database.
fn sqlite_title() -> String {
    "SQLite".into()
}

fn slob_title() -> String {
    Load::Slob.title().into()
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Host name.
    pub name: Option<String>,
    /// Operating system and kernel.
    pub platform: Option<String>,
    /// Processor model.
    pub processor: Option<String>,
    /// Processors this program may use.
    pub cpus: u32,
    /// Memory.
    pub memory_bytes: Option<u64>,
    /// Load average over a minute, before the study.
    pub load_average: Option<f64>,
}

/// Where home and tier were.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlaceSummary {
    /// Home's directory; gone now.
    pub home: PathBuf,
    /// What it was on.
    pub home_is_on: String,
    /// The tier's directory or member; gone now if the study made it.
    pub tier: PathBuf,
    /// What it was on.
    pub tier_is_on: String,
    /// The tier only stood for persistent memory.
    pub emulated: bool,
    /// The tier was a file on a disk.
    #[serde(default)]
    pub flash: bool,
}

/// A case, as it was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseSummary {
    /// Its name.
    pub id: String,
    /// One line.
    pub title: String,
    /// What it shows.
    pub about: String,
    /// What it is compared with.
    pub baseline: Option<String>,
    /// What was on the tier.
    pub placement: Placement,
    /// Published experiments beside it.
    pub published: Vec<String>,
    /// Bytes of the tier of one database.
    pub tier_bytes: u64,
    /// Bytes of one database, about.
    pub database_bytes: u64,
}

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunResult {
    /// Which case.
    pub case: String,
    /// At which UPDATE_PCT.
    pub update_pct: u32,
    /// In which round, from 1.
    pub round: u32,
    /// What was measured.
    pub measured: Measured,
    /// Numbers of its snapshots, if they were kept in a repository.
    pub snapshots: Option<(u64, u64)>,
    /// Reasons to distrust it.
    pub warnings: Vec<Warning>,
}

/// One line of the comparison: a case at one UPDATE_PCT.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// The case.
    pub case: &'a CaseSummary,
    /// The median run of its rounds.
    pub run: &'a RunResult,
    /// The baseline's, at the same UPDATE_PCT.
    pub baseline: Option<&'a RunResult>,
    /// Least and most executions per second of its rounds.
    pub spread: (f64, f64),
    /// A run of it, or of its baseline, is doubted.
    pub doubted: bool,
}

impl Machine {
    /// This one, now.
    pub fn read() -> Machine {
        let host = host::read();
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = |line: &str| {
            Some(line.strip_prefix("model name")?.split_once(':')?.1.trim().to_owned())
        };
        Machine {
            name: host.name,
            platform: host.platform,
            processor: cpuinfo.lines().find_map(model),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            memory_bytes: host.memory.map(|memory| memory.total_bytes),
            load_average: host.load.map(|load| load.one),
        }
    }
}

impl PlaceSummary {
    pub(super) fn of(places: &Places) -> PlaceSummary {
        let tier = match &places.tier {
            TierPlace::Directory(path) | TierPlace::Member(path) => path.clone(),
        };
        PlaceSummary {
            home: places.home.clone(),
            home_is_on: places.home_is_on.to_string(),
            tier,
            tier_is_on: places.tier_is_on.to_string(),
            emulated: places.emulated(),
            flash: places.medium == Medium::Flash,
        }
    }
}

impl CaseSummary {
    pub(super) fn of(case: &Case) -> CaseSummary {
        CaseSummary {
            id: case.id.clone(),
            title: case.title.clone(),
            about: case.about.clone(),
            baseline: case.baseline.clone(),
            placement: case.placement,
            published: case.published.clone(),
            tier_bytes: room::tier_bytes(case),
            database_bytes: room::database_bytes(case),
        }
    }
}

impl RunResult {
    /// The interval between its snapshots, with a name for reports.
    ///
    /// # Errors
    /// If the snapshots do not belong together.
    pub fn interval(&self) -> Result<Interval> {
        let label = format!("{} at UPDATE_PCT {}", self.case, self.update_pct);
        Ok(Interval::between(&self.measured.begin, &self.measured.end)?.labelled(&label))
    }

    /// Waits and time of a wait event: of requests, or, if a server counted it, of all its
    /// processes.
    fn wait(&self, event: &str) -> Option<(u64, u64)> {
        let of_server = REDO_WRITES.contains(&event) || REDO_SYNCS.contains(&event);
        let find = |snapshot: &Snapshot| {
            let same = snapshot
                .waits
                .iter()
                .filter(|wait| wait.name == event && (of_server || !wait.background));
            same.fold((0, 0), |(count, ns), wait| (count + wait.count, ns + wait.total_ns))
        };
        let (before, after) = (find(&self.measured.begin), find(&self.measured.end));
        Some((after.0.checked_sub(before.0)?, after.1.checked_sub(before.1)?))
    }

    /// Mean time of a wait event of requests.
    pub fn wait_mean_ns(&self, event: &str) -> Option<f64> {
        self.wait(event).filter(|(count, _)| *count > 0).map(|(count, ns)| ns as f64 / count as f64)
    }

    /// What the database calls an event of its redo: a server's own name if it has one, else the
    /// name of the file layer.
    fn own_name(&self, names: &[&'static str], of_files: &'static str) -> &'static str {
        let has =
            |name: &&&'static str| self.measured.end.waits.iter().any(|wait| wait.name == **name);
        names.iter().find(has).copied().unwrap_or(of_files)
    }

    fn redo_write(&self) -> &'static str {
        self.own_name(&REDO_WRITES, "log file parallel write")
    }

    fn redo_sync(&self) -> &'static str {
        self.own_name(&REDO_SYNCS, "log file sync")
    }

    /// Mean time of a write of redo.
    pub fn redo_write_mean_ns(&self) -> Option<f64> {
        self.wait_mean_ns(self.redo_write())
    }

    /// Mean time of a sync of redo.
    pub fn redo_sync_mean_ns(&self) -> Option<f64> {
        self.wait_mean_ns(self.redo_sync())
    }

    /// Bytes of redo for each transaction, where the database counts them.
    pub fn redo_bytes_per_transaction(&self) -> Option<f64> {
        let bytes = self.counter(tiersmith_awr::statistic::REDO_SIZE).filter(|bytes| *bytes > 0)?;
        (self.measured.transactions > 0).then(|| bytes as f64 / self.measured.transactions as f64)
    }

    /// Pages written whole into the redo for each transaction, where the database counts them:
    /// PostgreSQL.
    pub fn whole_pages_per_transaction(&self) -> Option<f64> {
        let pages = self.counter("WAL full page images")?;
        (self.measured.transactions > 0).then(|| pages as f64 / self.measured.transactions as f64)
    }

    /// Time to write redo and make it durable, for each transaction. Where a write is durable on
    /// return the sync that follows is short; where it is not, the write is: only their sum can be
    /// compared.
    pub fn redo_ns_per_transaction(&self) -> Option<f64> {
        let (writes, write_ns) = self.wait(self.redo_write())?;
        let (syncs, sync_ns) = self.wait(self.redo_sync())?;
        let transactions = self.measured.transactions;
        (writes + syncs > 0 && transactions > 0)
            .then(|| (write_ns + sync_ns) as f64 / transactions as f64)
    }

    /// How much a counter grew.
    pub fn counter(&self, name: &str) -> Option<u64> {
        let value = |snapshot: &Snapshot| {
            snapshot.counters.iter().find(|c| c.name == name).map(|c| c.value)
        };
        value(&self.measured.end)?.checked_sub(value(&self.measured.begin).unwrap_or(0))
    }

    /// Share of block reads that the tier answered, with a copy or without.
    pub fn tier_read_share(&self) -> Option<f64> {
        use tiersmith_awr::statistic::{FLASH_HITS, FLASH_MISSES, ZERO_COPY_READS};
        let hits = self.counter(FLASH_HITS)? + self.counter(ZERO_COPY_READS)?;
        let all = hits + self.counter(FLASH_MISSES)?;
        (all > 0).then(|| hits as f64 / all as f64)
    }
}

impl StudyResult {
    /// The case of this name.
    pub fn case(&self, id: &str) -> Option<&CaseSummary> {
        self.cases.iter().find(|case| case.id == id)
    }

    /// Runs of a case at an UPDATE_PCT.
    fn runs_of(&self, case: &str, pct: u32) -> Vec<&RunResult> {
        let mut runs: Vec<&RunResult> =
            self.runs.iter().filter(|run| run.case == case && run.update_pct == pct).collect();
        runs.sort_by(|a, b| a.measured.executes_per_s().total_cmp(&b.measured.executes_per_s()));
        runs
    }

    /// The median run: of an even number the slower of the two in the middle.
    fn median(&self, case: &str, pct: u32) -> Option<&RunResult> {
        let runs = self.runs_of(case, pct);
        runs.get(runs.len().saturating_sub(1) / 2).copied()
    }

    /// UPDATE_PCTs in the order they were run.
    pub fn update_pcts(&self) -> Vec<u32> {
        let mut pcts: Vec<u32> = Vec::new();
        for run in &self.runs {
            if !pcts.contains(&run.update_pct) {
                pcts.push(run.update_pct);
            }
        }
        pcts
    }

    /// The comparison at one UPDATE_PCT, in the order of cases.
    pub fn rows(&self, pct: u32) -> Vec<Row<'_>> {
        let row = |case: &'_ CaseSummary| {
            let case = self.case(&case.id)?;
            let run = self.median(&case.id, pct)?;
            let baseline = case.baseline.as_ref().and_then(|id| self.median(id, pct));
            let runs = self.runs_of(&case.id, pct);
            let rates: Vec<f64> = runs.iter().map(|run| run.measured.executes_per_s()).collect();
            let doubted = |run: &&RunResult| run.warnings.iter().any(|warning| !warning.is_note);
            Some(Row {
                case,
                run,
                baseline,
                spread: (rates.first().copied()?, rates.last().copied()?),
                doubted: runs.iter().any(&doubted) || baseline.as_ref().is_some_and(doubted),
            })
        };
        self.cases.iter().filter_map(row).collect()
    }

    /// Every warning, those of runs with the run's name; notes last.
    pub fn all_warnings(&self) -> Vec<(String, &Warning)> {
        let runs = self.runs.iter().flat_map(|run| {
            let round =
                if self.rounds > 1 { format!(", round {}", run.round) } else { String::new() };
            let name = format!("{} at UPDATE_PCT {}{round}", run.case, run.update_pct);
            run.warnings.iter().map(move |warning| (name.clone(), warning))
        });
        let mut all: Vec<(String, &Warning)> =
            self.warnings.iter().map(|warning| (String::new(), warning)).chain(runs).collect();
        all.sort_by_key(|(_, warning)| warning.is_note);
        all
    }

    /// Every warning once, for people: which runs (empty: all of it), the sentence of the first of
    /// them, and whether it is a note.
    pub fn grouped_warnings(&self) -> Vec<(String, String, bool)> {
        let mut groups: Vec<(&str, Vec<String>, &Warning)> = Vec::new();
        for (about, warning) in self.all_warnings() {
            // A warning says the same of each run with other figures; a note may say something else
            // of each.
            let same = |first: &Warning| {
                first.code == warning.code
                    && (!warning.is_note || first.sentence == warning.sentence)
            };
            match groups
                .iter_mut()
                .find(|(_, runs, first)| same(first) && !runs.is_empty() && !about.is_empty())
            {
                Some((_, runs, _)) => runs.push(about),
                None => groups.push((
                    &warning.code,
                    Some(about).into_iter().filter(|a| !a.is_empty()).collect(),
                    warning,
                )),
            }
        }
        let about = |runs: &[String]| match runs {
            [first, _, _, ..] => format!("{first}, and {} more runs", runs.len() - 1),
            few => few.join(" and "),
        };
        groups
            .into_iter()
            .map(|(_, runs, w)| (about(&runs), w.sentence.clone(), w.is_note))
            .collect()
    }

    /// Whether something in it cannot be trusted.
    pub fn has_warnings(&self) -> bool {
        self.all_warnings().iter().any(|(_, warning)| !warning.is_note)
    }

    /// As JSON.
    ///
    /// # Errors
    /// None for a result that a study made.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).map_err(|e| Error::Case {
            case: "the result".into(),
            reason: format!("it cannot be written as JSON: {e}"),
        })
    }

    /// From JSON, of a file called `place`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_json(text: &str, place: &str) -> Result<StudyResult> {
        let wrong = |reason: String| Error::Case { case: place.to_owned(), reason };
        let result: StudyResult = serde_json::from_str(text)
            .map_err(|e| wrong(format!("it is not the result of a study: {e}")))?;
        if result.format != FORMAT {
            return Err(wrong(format!(
                "it has format {}, this program reads {FORMAT}",
                result.format
            )));
        }
        Ok(result)
    }
}

impl Row<'_> {
    /// Executions per second over the baseline's.
    pub fn executes_ratio(&self) -> Option<f64> {
        let baseline = self.baseline?.measured.executes_per_s();
        (baseline > 0.0).then(|| self.run.measured.executes_per_s() / baseline)
    }

    /// The baseline's mean time of a commit over this one's.
    pub fn commit_ratio(&self) -> Option<f64> {
        let mean = |run: &RunResult| {
            Some(run.measured.commit).filter(|commit| commit.count > 0).map(|of| of.mean_ns)
        };
        Some(mean(self.baseline?)? / mean(self.run).filter(|ns| *ns > 0.0)?)
    }

    /// Transactions per second over the baseline's.
    pub fn transactions_ratio(&self) -> Option<f64> {
        let baseline = self.baseline?.measured.transactions_per_s();
        (baseline > 0.0).then(|| self.run.measured.transactions_per_s() / baseline)
    }
}
