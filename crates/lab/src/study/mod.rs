//! A study: a set of cases on one machine, each beside its baseline.
//!
//! For every round, UPDATE_PCT and case: copies of loaded databases are put on the home's storage and synced, opened (and attached, where
//! the case says so), read once, loaded for a while, checked, and taken away. Cases take turns, so that a slow minute of the machine
//! hits a case and its baseline alike when there are several rounds.
//!
//! **Invariants**: every file made lies in the study's own directories, which go at the end, after an error and after an interruption;
//! a run whose database is not sound afterwards gives an error, not a figure.
//! **Deliberately absent**: the terminal (progress is told to the caller) and signals.
//!
//! Read next: `result.rs` (what is kept), `trust.rs` (when it is doubted), `text.rs` and `html.rs`.

pub mod html;
pub mod result;
pub mod tables;
pub mod text;
pub mod trust;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use tiersmith_awr::Repository;

use crate::case::{Case, Placement};
use crate::error::{During, Error, Result};
use crate::place::{self, Leftovers, Places, Wishes};
use crate::published;
use crate::run::{self, Plans};
use crate::size::ByteSize;
use crate::target::Target;
use crate::target::sqlite::{self, Spot, SqliteTarget};
use crate::workload::slob;
use result::{CaseSummary, Machine, PlaceSummary, RunResult, StudyResult};

/// Seconds measured per run when nothing is said, and in a full study.
pub const SECONDS: f64 = 8.0;
/// Seconds measured per run of a full study.
pub const FULL_SECONDS: f64 = 60.0;
/// Rounds of a full study.
pub const FULL_ROUNDS: u32 = 3;
/// The warm-up is this share of the measured time, within limits.
const WARM_UP_SHARE: f64 = 0.2;
const WARM_UP_S: (f64, f64) = (0.2, 30.0);

/// What a study is to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The cases, each behind its baseline: `case::choose`.
    pub cases: Vec<Case>,
    /// Seconds measured per run.
    pub seconds: f64,
    /// Rounds.
    pub rounds: u32,
    /// Instead of the cases' own.
    pub scale: Option<ByteSize>,
    /// Instead of the cases' own.
    pub tier_size: Option<ByteSize>,
    /// Instead of the cases' own.
    pub schemas: Option<u32>,
    /// Instead of the cases' own.
    pub threads_per_schema: Option<u32>,
    /// Instead of the cases' own.
    pub arrivals_per_s: Option<f64>,
    /// Instead of the cases' own.
    pub seed: Option<u64>,
    /// Where home goes.
    pub home: Option<PathBuf>,
    /// Where the tier goes.
    pub fast: Option<PathBuf>,
    /// Call the tier emulated even on persistent memory.
    pub emulate: bool,
    /// A directory that gets the snapshots of all runs.
    pub snapshots: Option<PathBuf>,
    /// How the study was called, for the result.
    pub command: Vec<String>,
}

impl Options {
    /// These cases, everything else as usual.
    pub fn new(cases: Vec<Case>) -> Options {
        Options {
            cases,
            seconds: SECONDS,
            rounds: 1,
            scale: None,
            tier_size: None,
            schemas: None,
            threads_per_schema: None,
            arrivals_per_s: None,
            seed: None,
            home: None,
            fast: None,
            emulate: false,
            snapshots: None,
            command: Vec::new(),
        }
    }

    /// The cases with what the caller said instead.
    fn cases(&self) -> Result<Vec<Case>> {
        if !(0.05..=86_400.0).contains(&self.seconds) {
            let reason = "give 0.05 to 86400".into();
            return Err(Error::Setting { setting: "seconds", value: self.seconds.to_string(), reason });
        }
        if !(1..=1000).contains(&self.rounds) {
            let reason = "give 1 to 1000".into();
            return Err(Error::Setting { setting: "rounds", value: self.rounds.to_string(), reason });
        }
        let mut cases = self.cases.clone();
        for case in &mut cases {
            let slob = &mut case.slob;
            slob.scale = self.scale.unwrap_or(slob.scale);
            slob.schemas = self.schemas.unwrap_or(slob.schemas);
            slob.threads_per_schema = self.threads_per_schema.unwrap_or(slob.threads_per_schema);
            slob.arrivals_per_s = self.arrivals_per_s.unwrap_or(slob.arrivals_per_s);
            slob.seed = self.seed.unwrap_or(slob.seed);
            case.sqlite.tier = self.tier_size.or(case.sqlite.tier);
            for settings in case.runs() {
                settings.check(u64::from(case.sqlite.page_size))?;
            }
        }
        Ok(cases)
    }
}

/// Told what a study is doing.
pub trait Progress: Sync {
    /// What it does now, and how much of the whole is done (0 to 1).
    fn step(&self, what: &str, share: f64);
    /// One run is over.
    fn done(&self, run: &RunResult);
}

/// Says nothing.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Progress for Silent {
    fn step(&self, _: &str, _: f64) {}
    fn done(&self, _: &RunResult) {}
}

/// One study while it runs.
struct Study<'a> {
    options: &'a Options,
    cases: Vec<Case>,
    places: Places,
    progress: &'a dyn Progress,
    repository: Option<Repository>,
    templates: Vec<(TemplateKey, PathBuf)>,
}

/// What loaded databases differ by.
type TemplateKey = (u32, u64, u64, u32, u64);

/// Runs a study.
///
/// # Errors
/// What it could not do, and why; [`Error::Interrupted`] when `leftovers` was told to stop. Everything made is taken away in any case.
pub fn run(options: &Options, leftovers: Leftovers, progress: &dyn Progress) -> Result<StudyResult> {
    let began = Instant::now();
    let taken_unix_ns = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
    let cases = options.cases()?;
    let machine = Machine::read();
    let mut warnings = trust::before(&machine, trust::busy_processors(), &cases);
    let repository = options.snapshots.as_ref().map(Repository::open).transpose()?;
    let places = place::choose(&wishes(options, &cases), leftovers)?;
    warnings.extend(trust::places(&places, &cases));
    let summary = PlaceSummary::of(&places);
    let mut study = Study { options, cases, places, progress, repository, templates: Vec::new() };
    let runs = study.all()?;
    let Study { cases, places, .. } = study;
    drop(places);
    let mut published = Vec::new();
    for id in cases.iter().flat_map(|case| &case.published) {
        published.push(published::find(id)?);
    }
    Ok(StudyResult {
        format: result::FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        command: options.command.clone(),
        taken_unix_ns,
        took_s: began.elapsed().as_secs_f64(),
        seconds: options.seconds,
        rounds: options.rounds,
        machine,
        places: summary,
        sqlite: sqlite::version(),
        cases: cases.iter().map(CaseSummary::of).collect(),
        runs,
        warnings,
        published,
    })
}

/// What a study needs of its places.
fn wishes(options: &Options, cases: &[Case]) -> Wishes {
    let per_schema = |case: &Case, bytes: u64| bytes * u64::from(case.slob.schemas);
    let home = cases.iter().map(|case| per_schema(case, 3 * case.database_bytes() + case.tier_bytes())).max();
    Wishes {
        home: options.home.clone(),
        fast: options.fast.clone(),
        emulate: options.emulate,
        home_bytes: home.unwrap_or(0) + (64 << 20),
        tier_bytes: cases.iter().map(|case| per_schema(case, case.tier_bytes())).max().unwrap_or(0),
        members: cases.iter().map(|case| case.slob.schemas).max().unwrap_or(1),
    }
}

impl Study<'_> {
    fn all(&mut self) -> Result<Vec<RunResult>> {
        // Cases that share an UPDATE_PCT follow each other, so that a case and its baseline are close in time.
        let mut pcts: Vec<u32> = self.cases.iter().flat_map(|case| case.update_pcts.clone()).collect();
        let mut seen = Vec::new();
        pcts.retain(|pct| {
            !seen.contains(pct) && {
                seen.push(*pct);
                true
            }
        });
        let mut plan = Vec::new();
        for round in 1..=self.options.rounds {
            for pct in &pcts {
                for case in self.cases.iter().filter(|case| case.update_pcts.contains(pct)) {
                    plan.push((round, *pct, case.clone()));
                }
            }
        }
        let mut runs = Vec::new();
        for (n, (round, pct, case)) in plan.iter().enumerate() {
            let share = |within: f64| (n as f64 + within) / plan.len() as f64;
            let run = self.one(case, *pct, *round, &share)?;
            self.progress.done(&run);
            runs.push(run);
        }
        Ok(runs)
    }

    fn look(&self) -> Result<()> {
        if self.places.leftovers.stopped() { Err(Error::Interrupted) } else { Ok(()) }
    }

    fn one(
        &mut self,
        case: &Case,
        pct: u32,
        round: u32,
        share: &(dyn Fn(f64) -> f64 + Sync),
    ) -> Result<RunResult> {
        let slob = slob::Settings { update_pct: pct, ..case.slob.clone() };
        let what = format!("{} at UPDATE_PCT {pct}", case.id);
        let template = self.template(case, &slob, share)?;
        self.look()?;
        self.progress.step(&format!("{what}: copying the database"), share(0.05));
        let dir = self.places.home.join("run");
        let spots = self.spots(&dir, &template, &slob)?;
        let target = SqliteTarget::open(case, &slob, &spots)?;
        self.look()?;
        self.progress.step(&format!("{what}: reading every table"), share(0.1));
        target.warm()?;
        let warm_up_s = (self.options.seconds * WARM_UP_SHARE).clamp(WARM_UP_S.0, WARM_UP_S.1);
        let (progress, leftovers) = (self.progress, self.places.leftovers.clone());
        let plans = Plans {
            slob: &slob,
            block_bytes: u64::from(case.sqlite.page_size),
            warm_up: Duration::from_secs_f64(warm_up_s),
            run_time: Duration::from_secs_f64(self.options.seconds),
            progress: &|part| progress.step(&what, share(0.15 + 0.8 * part)),
            stopped: &|| leftovers.stopped(),
        };
        let measured = run::run(&target, &plans)?;
        self.progress.step(&format!("{what}: checking the database"), share(0.97));
        target.check()?;
        drop(target);
        self.take_away(&dir, &spots, case)?;
        let mut run = RunResult {
            case: case.id.clone(),
            update_pct: pct,
            round,
            measured,
            snapshots: None,
            warnings: Vec::new(),
        };
        run.warnings = trust::run(&run, case, &slob);
        if let Some(repository) = &self.repository {
            let begin = repository.take(&run.measured.begin)?;
            let end = repository.take(&run.measured.end)?;
            run.snapshots = Some((begin.number(), end.number()));
        }
        Ok(run)
    }

    /// Loaded databases like those a run needs; made when they are not there.
    fn template(
        &mut self,
        case: &Case,
        slob: &slob::Settings,
        share: &dyn Fn(f64) -> f64,
    ) -> Result<PathBuf> {
        let page = case.sqlite.page_size;
        let key = (page, slob.scale.bytes(), slob.scan_table.bytes(), slob.schemas, slob.seed);
        if let Some((_, dir)) = self.templates.iter().find(|(known, _)| *known == key) {
            return Ok(dir.clone());
        }
        let dir = self.places.home.join(format!("loaded{}", self.templates.len() + 1));
        fs::create_dir(&dir).during("make", &dir)?;
        for schema in 0..slob.schemas {
            let report = |part: f64| {
                self.progress
                    .step(&format!("loading {} of {}", schema + 1, slob.schemas), share(0.05 * part));
                !self.places.leftovers.stopped()
            };
            sqlite::load::load(&database(&dir, schema), page, slob, schema, &report)?;
        }
        self.templates.push((key, dir.clone()));
        Ok(dir)
    }

    /// Fresh copies for one run, durable before it begins.
    fn spots(&self, dir: &Path, template: &Path, slob: &slob::Settings) -> Result<Vec<Spot>> {
        fs::create_dir(dir).during("make", dir)?;
        let mut spots = Vec::new();
        for schema in 0..slob.schemas {
            let path = database(dir, schema);
            fs::copy(database(template, schema), &path).during("copy a loaded database to", &path)?;
            File::open(&path).and_then(|file| file.sync_all()).during("sync", &path)?;
            spots.push(Spot { path, member: self.places.member(schema), emulated: self.places.emulated });
        }
        File::open(dir).and_then(|dir| dir.sync_all()).during("sync", dir)?;
        Ok(spots)
    }

    /// Removes what a run made. A member that is not the study's own is freed by detaching.
    fn take_away(&self, dir: &Path, spots: &[Spot], case: &Case) -> Result<()> {
        if case.placement != Placement::Home {
            for spot in spots {
                if self.places.members_are_ours() {
                    fs::remove_file(&spot.member).during("remove", &spot.member)?;
                } else {
                    sqlite::detach(&spot.path)?;
                }
            }
        }
        fs::remove_dir_all(dir).during("remove", dir)
    }
}

fn database(dir: &Path, schema: u32) -> PathBuf {
    dir.join(format!("user{}.db", schema + 1))
}
