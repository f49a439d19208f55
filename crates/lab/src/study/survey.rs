//! A survey: every published experiment that can be run here, one study after the other, and one
//! page.
//!
//! Experiments that share target, load and settings share a study. Devices are measured by the
//! caller, who may map memory.
//!
//! **Invariants**: every published experiment is on the page, with figures or with the reason why
//! there are none; a figure of ours stands only beside one that means the same.
//! **Deliberately absent**: the studies themselves: `mod.rs`.
//!
//! Read next: `beside.rs` (which figures mean the same), `survey_page.rs`.

use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;

use super::recovery::{self, Recovery};
use super::result::{Machine, StudyResult};
use super::{Options, Progress, SECONDS};
use crate::case;
use crate::error::{Error, Result};
use crate::experiments::{self, Experiment, Here, Instead, PROBE, RECOVERY};
use crate::place::Leftovers;
use crate::probe::Place;
use crate::size::ByteSize;
use crate::target;
use crate::workload::{Load, tpcc};

/// Seconds measured per run of a quick survey, and bytes of what is loaded.
const QUICK_SECONDS: f64 = 1.0;
/// Of load before a server is killed, in a quick survey.
const QUICK_BEFORE_KILL: f64 = 1.5;
const QUICK_SCALE: ByteSize = ByteSize(16 << 20);
/// The company of a quick survey, which is loaded in seconds.
const QUICK_COMPANY: tpcc::Settings =
    tpcc::Settings { warehouses: 1, think: false, items: 10_000, customers: 300 };

/// What is to be run.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Short runs of small databases, each experiment on one target only.
    pub quick: bool,
    /// Seconds measured per run, instead of the usual.
    pub seconds: Option<f64>,
    /// Only on this target.
    pub target: Option<String>,
    /// Where home goes.
    pub home: Option<PathBuf>,
    /// Where the tier goes.
    pub fast: Option<PathBuf>,
    /// Call the tier emulated even on persistent memory.
    pub emulate: bool,
    /// How the survey was called.
    pub command: Vec<String>,
    /// Devices that were measured for the experiments without a database.
    pub devices: Vec<Place>,
}

/// What became of an experiment.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was run.
    Ran(Vec<Ran>),
    /// It could be run, but not here or not this time, and why.
    NotHere(String),
    /// Nothing stands for it, and why.
    Nothing(String),
}

/// Where the figures of an experiment are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ran {
    /// Of [`Survey::studies`], which; nothing if they are those of the devices or of the recovery.
    pub study: Option<usize>,
    /// The target.
    pub target: String,
    /// The case.
    pub case: String,
    /// It stands beside what was published, and printed figures are not of it.
    pub beside: bool,
}

/// An experiment and what became of it.
#[derive(Clone, Debug, Serialize)]
pub struct Surveyed {
    /// The experiment.
    pub experiment: Experiment,
    /// What became of it.
    pub outcome: Outcome,
}

/// Everything.
#[derive(Debug, Serialize)]
pub struct Survey {
    /// The version of this structure.
    pub format: u32,
    /// Of Tiersmith.
    pub version: String,
    /// How it was called.
    pub command: Vec<String>,
    /// Whether runs were short and databases small.
    pub quick: bool,
    /// How long it took.
    pub took_s: f64,
    /// The machine.
    pub machine: Machine,
    /// Each experiment, in the order of the documents.
    pub experiments: Vec<Surveyed>,
    /// The studies.
    pub studies: Vec<StudyResult>,
    /// The devices.
    pub devices: Vec<Place>,
    /// The servers that were killed.
    pub recovery: Option<Recovery>,
}

/// Cases that are run in one study.
#[derive(Clone, Debug)]
struct Group {
    target: String,
    load: Option<Load>,
    instead: Instead,
    cases: Vec<String>,
}

/// One case of an experiment on one target.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    /// Of the groups, which.
    group: usize,
    target: String,
    case: String,
    beside: bool,
}

/// The groups that an experiment is in; or why it is in none.
type Placed = std::result::Result<Vec<Member>, String>;

/// Runs everything.
///
/// # Errors
/// [`Error::Interrupted`]; a case file that is damaged. What a study could not do is the outcome of
/// its experiments.
pub fn run(wanted: &Wanted, leftovers: &Leftovers, progress: &dyn Progress) -> Result<Survey> {
    let began = Instant::now();
    let experiments = experiments::all()?;
    let (groups, placed) = grouped(&experiments, wanted)?;
    let mut studies = Vec::new();
    let mut done: Vec<std::result::Result<usize, String>> = Vec::new();
    for (n, group) in groups.iter().enumerate() {
        let part = Part { inner: progress, first: n, of: groups.len() };
        done.push(match super::run(&options(group, wanted)?, leftovers.clone(), &part) {
            Ok(result) => {
                studies.push(result);
                Ok(studies.len() - 1)
            }
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(e) => Err(e.to_string()),
        });
    }
    let recovery = recovery_of(&experiments, &placed, wanted, leftovers, progress)?;
    let outcome = |experiment: &Experiment, placed: Placed| match (&experiment.here, placed) {
        (Here::Missing(why), _) => Outcome::Nothing(why.clone()),
        (_, Err(why)) => Outcome::NotHere(why),
        (Here::Case { case, .. }, _) if case == PROBE => of_devices(wanted),
        (Here::Case { case, .. }, _) if case == RECOVERY => of_recovery(&recovery),
        (_, Ok(places)) => of_studies(&places, &done, &studies),
    };
    let surveyed = experiments.into_iter().zip(placed).map(|(experiment, placed)| {
        let outcome = outcome(&experiment, placed);
        Surveyed { experiment, outcome }
    });
    Ok(Survey {
        format: 1,
        version: env!("CARGO_PKG_VERSION").into(),
        command: wanted.command.clone(),
        quick: wanted.quick,
        took_s: began.elapsed().as_secs_f64(),
        machine: Machine::read(),
        experiments: surveyed.collect(),
        studies,
        devices: wanted.devices.clone(),
        recovery: recovery.and_then(std::result::Result::ok),
    })
}

/// What became of a recovery: nothing if no experiment wants one, or why it failed.
type Killed = Option<std::result::Result<Recovery, String>>;

/// Kills the servers of the experiment that wants it.
fn recovery_of(
    experiments: &[Experiment],
    placed: &[Placed],
    wanted: &Wanted,
    leftovers: &Leftovers,
    progress: &dyn Progress,
) -> Result<Killed> {
    let wants = experiments.iter().zip(placed).find_map(|(one, placed)| match &one.here {
        Here::Case { case, targets, load, .. } if case == RECOVERY && placed.is_ok() => {
            Some((targets.first().cloned(), *load))
        }
        _ => None,
    });
    let Some((target, load)) = wants else { return Ok(None) };
    let quick = |value| wanted.quick.then_some(value);
    let wanted = recovery::Wanted {
        target,
        load,
        seconds: quick(QUICK_BEFORE_KILL),
        scale: wanted.quick.then_some(QUICK_SCALE),
        home: wanted.home.clone(),
        fast: wanted.fast.clone(),
        emulate: wanted.emulate,
        ..recovery::Wanted::default()
    };
    match recovery::run(&wanted, leftovers, progress) {
        Err(Error::Interrupted) => Err(Error::Interrupted),
        other => Ok(Some(other.map_err(|e| e.to_string()))),
    }
}

fn of_recovery(killed: &Killed) -> Outcome {
    match killed {
        Some(Ok(recovery)) if !recovery.runs.is_empty() => {
            let ran = |run: &recovery::Run| Ran {
                study: None,
                target: run.target.clone(),
                case: run.case.clone(),
                beside: false,
            };
            Outcome::Ran(recovery.runs.iter().map(ran).collect())
        }
        Some(Ok(recovery)) => {
            let why = recovery.not_run.iter().map(|(what, why)| format!("{what}: {why}"));
            Outcome::NotHere(why.collect::<Vec<_>>().join("; "))
        }
        Some(Err(why)) => Outcome::NotHere(why.clone()),
        None => Outcome::NotHere("it was not run".to_owned()),
    }
}

fn of_devices(wanted: &Wanted) -> Outcome {
    if wanted.devices.is_empty() {
        return Outcome::NotHere("no directory could be measured".into());
    }
    let ran = |place: &Place| Ran {
        study: None,
        target: "device".into(),
        case: place.path.clone(),
        beside: false,
    };
    Outcome::Ran(wanted.devices.iter().map(ran).collect())
}

/// What became of an experiment that is part of these groups.
fn of_studies(
    places: &[Member],
    done: &[std::result::Result<usize, String>],
    studies: &[StudyResult],
) -> Outcome {
    let (mut ran, mut why) = (Vec::new(), Vec::new());
    for Member { group, target, case, beside } in places {
        match done.get(*group) {
            Some(Ok(study)) => {
                let result = studies.get(*study);
                if result.is_some_and(|result| result.runs.iter().any(|run| run.case == *case)) {
                    ran.push(Ran {
                        study: Some(*study),
                        target: target.clone(),
                        case: case.clone(),
                        beside: *beside,
                    });
                } else {
                    why.push(left_out(result, case));
                }
            }
            Some(Err(reason)) => why.push(reason.clone()),
            None => {}
        }
    }
    why.dedup();
    if ran.is_empty() { Outcome::NotHere(why.join(" ")) } else { Outcome::Ran(ran) }
}

/// Why a study left a case out.
fn left_out(result: Option<&StudyResult>, case: &str) -> String {
    let mine = format!("skipped: {case}, ");
    let warnings = result.into_iter().flat_map(|result| &result.warnings);
    let mut reasons = warnings.filter_map(|warning| warning.sentence.strip_prefix(&mine));
    reasons.next().map_or_else(|| "the study has no run of it".to_owned(), str::to_owned)
}

/// Experiments by what can be run together.
fn grouped(experiments: &[Experiment], wanted: &Wanted) -> Result<(Vec<Group>, Vec<Placed>)> {
    let mut groups: Vec<Group> = Vec::new();
    let mut placed = Vec::new();
    for experiment in experiments {
        let Here::Case { case, beside, targets, load, instead, .. } = &experiment.here else {
            placed.push(Ok(Vec::new()));
            continue;
        };
        if case == PROBE {
            placed.push(Ok(Vec::new()));
            continue;
        }
        let targets = match usable(targets, wanted) {
            Ok(targets) => targets,
            Err(why) => {
                placed.push(Err(why));
                continue;
            }
        };
        if case == RECOVERY {
            placed.push(Ok(Vec::new()));
            continue;
        }
        let mut places = Vec::new();
        for target in targets {
            let same = |group: &Group| {
                group.target == target && group.load == *load && group.instead == **instead
            };
            let number = groups.iter().position(same).unwrap_or_else(|| {
                let (target, load, instead) = (target.clone(), *load, **instead);
                groups.push(Group { target, load, instead, cases: Vec::new() });
                groups.len() - 1
            });
            for name in std::iter::once(case).chain(beside) {
                if let Some(group) = groups.get_mut(number).filter(|g| !g.cases.contains(name)) {
                    group.cases.push(name.clone());
                }
                let (target, beside) = (target.clone(), name != case);
                places.push(Member { group: number, target, case: name.clone(), beside });
            }
        }
        placed.push(Ok(places));
    }
    Ok((groups, placed))
}

/// The targets that are here, of a quick survey the first; or why there is none.
fn usable(targets: &[String], wanted: &Wanted) -> std::result::Result<Vec<String>, String> {
    let mut reasons = Vec::new();
    let mut found = Vec::new();
    for name in targets {
        if wanted.target.as_ref().is_some_and(|only| only != name) {
            reasons.push(format!("--target leaves {name} out"));
            continue;
        }
        match target::kind(name).and_then(|kind| kind.version()) {
            Ok(_) => found.push(name.clone()),
            Err(e) => reasons.push(e.to_string()),
        }
    }
    if wanted.quick {
        found.truncate(1);
    }
    if found.is_empty() { Err(reasons.join("; ")) } else { Ok(found) }
}

/// The study of a group.
fn options(group: &Group, wanted: &Wanted) -> Result<Options> {
    let mut cases = case::choose_for(&group.target, &group.cases, false)?;
    if wanted.quick {
        for case in &mut cases {
            case.update_pcts.truncate(1);
            case.tpcc = QUICK_COMPANY;
        }
    }
    let mut options = Options::new(cases);
    options.load = group.load;
    put(&group.instead, &mut options);
    options.seconds = wanted.seconds.unwrap_or(if wanted.quick { QUICK_SECONDS } else { SECONDS });
    options.scale = wanted.quick.then_some(QUICK_SCALE);
    options.home.clone_from(&wanted.home);
    options.fast.clone_from(&wanted.fast);
    options.emulate = wanted.emulate;
    options.command.clone_from(&wanted.command);
    Ok(options)
}

/// Puts what an experiment has instead of its case into the options of a study.
fn put(instead: &Instead, options: &mut Options) {
    options.clients = instead.clients.or(options.clients);
    options.keys.ratio = instead.ratio.or(options.keys.ratio);
    options.keys.pipeline = instead.pipeline.or(options.keys.pipeline);
    options.keys.value = instead.value.or(options.keys.value);
    options.oltp.tables = instead.tables.or(options.oltp.tables);
    options.oltp.buffer_pct = instead.buffer_pct.or(options.oltp.buffer_pct);
    options.application_pct = instead.application_pct.or(options.application_pct);
}

/// The progress of one study of several.
struct Part<'a> {
    inner: &'a dyn Progress,
    first: usize,
    of: usize,
}

impl Progress for Part<'_> {
    fn step(&self, what: &str, share: f64) {
        let text = format!("study {} of {}: {what}", self.first + 1, self.of);
        self.inner.step(&text, (self.first as f64 + share) / self.of.max(1) as f64);
    }

    fn done(&self, run: &super::result::RunResult) {
        self.inner.done(run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_that_share_target_load_and_settings_share_a_study_and_none_is_lost() {
        let experiments = experiments::all().unwrap();
        let wanted = Wanted { quick: true, target: Some("sqlite".into()), ..Wanted::default() };
        let (groups, placed) = grouped(&experiments, &wanted).unwrap();
        assert_eq!(placed.len(), experiments.len());
        assert!(groups.iter().all(|group| group.target == "sqlite"), "{groups:?}");
        let tpcc: Vec<&Group> =
            groups.iter().filter(|group| group.load == Some(Load::Tpcc)).collect();
        assert_eq!(tpcc.len(), 1, "{groups:?}");
        assert!(tpcc[0].cases.len() >= 3, "{groups:?}");
        // The key-value server is left out by the wish.
        let redis =
            experiments.iter().position(|one| one.id == "optane-2019-redis-latency").unwrap();
        assert_eq!(placed[redis], Err("--target leaves kv out".into()));
    }

    #[test]
    fn the_settings_of_an_experiment_reach_its_study() {
        let instead = Instead {
            clients: Some(50),
            pipeline: Some(6),
            value: Some(ByteSize(1024)),
            ratio: Some("3:7".parse().unwrap()),
            ..Instead::default()
        };
        let group = Group {
            target: "redis".into(),
            load: Some(Load::Mixed),
            instead,
            cases: vec!["server-redo-on-mount".into()],
        };
        let options = options(&group, &Wanted { quick: true, ..Wanted::default() }).unwrap();
        assert_eq!((options.clients, options.keys.pipeline), (Some(50), Some(6)));
        assert_eq!(options.keys.ratio.unwrap().to_string(), "3:7");
        assert_eq!((options.seconds, options.scale), (QUICK_SECONDS, Some(QUICK_SCALE)));
        assert!(options.cases.iter().all(|case| case.update_pcts.len() == 1));
    }
}
