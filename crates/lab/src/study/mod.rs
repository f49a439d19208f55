//! A study: a set of cases on one machine, each beside its baseline.
//!
//! For every round, UPDATE_PCT and case: copies of loaded databases are put on the home's storage
//! and synced, opened (and attached, where the case says so), read once, loaded for a while,
//! checked, and taken away. Cases take turns, so that a slow minute of the machine hits a case and
//! its baseline alike when there are several rounds.
//!
//! **Invariants**: every file made lies in the study's own directories, which go at the end, after
//! an error and after an interruption; a run whose database is not sound afterwards gives an error,
//! not a figure.
//! **Deliberately absent**: the terminal (progress is told to the caller) and signals.
//!
//! Read next: `result.rs` (what is kept), `trust.rs` (when it is doubted), `text.rs` and `html.rs`;
//! `survey.rs` (all of what was published, in one go).

pub mod beside;
pub mod cross_check;
pub mod crossing;
pub mod html;
pub mod operations;
mod opponents;
pub mod recovery;
pub mod result;
pub mod survey;
pub mod survey_page;
pub mod tables;
pub mod text;
pub mod trust;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use tiersmith_awr::Repository;

use crate::case::{Case, Load};
use crate::error::{During, Error, Result};
use crate::mounted;
use crate::place::{self, Leftovers, Places, Wishes};
use crate::published;
use crate::run::{Measured, Plans};
use crate::server;
use crate::size::ByteSize;
use crate::target::{self, Ground, Kind, loads, room};
use crate::workload::{clients, keys, oltp, slob, tpcc};
use crossing::Crossing;
use opponents::Opponent;
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
    /// The load of a server, instead of the cases' own.
    pub load: Option<Load>,
    /// Clients of a server's load that is a program of its own, instead of the cases' own.
    pub clients: Option<u32>,
    /// What `mixed` and `set` ask of a key-value server, instead of the cases' own.
    pub keys: keys::Instead,
    /// The company of the load `tpcc`, instead of the cases' own.
    pub tpcc: tpcc::Instead,
    /// The tables of the loads `oltp-*`, instead of the cases' own.
    pub oltp: oltp::Instead,
    /// Of a hundred seconds of `client-copy`, how many the application takes, instead of the cases'
    /// own.
    pub application_pct: Option<u32>,
    /// A latency profile of slow storage laid over the home, by name; every figure is labelled
    /// then.
    pub home_model: Option<String>,
    /// Where home goes.
    pub home: Option<PathBuf>,
    /// Where the tier goes.
    pub fast: Option<PathBuf>,
    /// Call the tier emulated even on persistent memory.
    pub emulate: bool,
    /// A directory that gets the snapshots of all runs.
    pub snapshots: Option<PathBuf>,
    /// Run outside programs beside the cases.
    pub cross_check: bool,
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
            load: None,
            clients: None,
            keys: keys::Instead::default(),
            tpcc: tpcc::Instead::default(),
            oltp: oltp::Instead::default(),
            application_pct: None,
            home_model: None,
            home: None,
            fast: None,
            emulate: false,
            snapshots: None,
            cross_check: false,
            command: Vec::new(),
        }
    }

    /// The cases with what the caller said instead.
    fn cases(&self) -> Result<Vec<Case>> {
        if !(0.05..=86_400.0).contains(&self.seconds) {
            let reason = "give 0.05 to 86400".into();
            return Err(Error::Setting {
                setting: "seconds",
                value: self.seconds.to_string(),
                reason,
            });
        }
        if !(1..=1000).contains(&self.rounds) {
            let reason = "give 1 to 1000".into();
            return Err(Error::Setting {
                setting: "rounds",
                value: self.rounds.to_string(),
                reason,
            });
        }
        if let Some(name) = &self.home_model {
            mounted::home_model(name)?;
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
            case.server.tier = self.tier_size.or(case.server.tier);
            let own = (case.server.load, case.server.clients, case.server.keys);
            case.server.load = self.load.unwrap_or(case.server.load);
            case.server.clients = self.clients.unwrap_or(case.server.clients);
            case.check_clients(case.server.clients)?;
            case.server.keys = self.keys.of(&case.server.keys);
            // What was printed of one mix of GETs and SETs means nothing beside another.
            let load = (case.server.load, case.server.clients, case.server.keys);
            if own.0 == Load::Mixed && own != load {
                case.published.clear();
            }
            case.tpcc = self.tpcc.of(&case.tpcc);
            case.oltp = self.oltp.of(&case.oltp);
            let application_pct = self.application_pct.unwrap_or(case.client_copy.application_pct);
            case.client_copy = clients::Settings { application_pct, ..case.client_copy };
            case.check_loads()?;
            if case.load().is_transactional() {
                // One database, however many tables.
                case.slob.schemas = 1;
                let buffer = case.oltp.buffer_bytes(&case.slob).map(ByteSize);
                case.server.cache = buffer.unwrap_or(case.server.cache);
                case.sqlite.page_cache = buffer.unwrap_or(case.sqlite.page_cache);
            }
            for settings in case.runs() {
                settings.check(case.block_bytes())?;
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
    kind: &'static dyn Kind,
    places: Places,
    progress: &'a dyn Progress,
    repository: Option<Repository>,
    templates: Vec<(String, PathBuf)>,
    crossing: Crossing,
}

/// One run of a study.
struct Turn {
    round: u32,
    pct: u32,
    case: Case,
    /// Who runs in place of the case's own load.
    opponent: Option<Opponent>,
}

/// What a run left behind.
struct Ran {
    measured: Measured,
    killed: Option<String>,
    remarks: Vec<(&'static str, String)>,
}

/// Runs a study.
///
/// # Errors
/// What it could not do, and why; [`Error::Interrupted`] when `leftovers` was told to stop.
/// Everything made is taken away in any case.
pub fn run(
    options: &Options,
    leftovers: Leftovers,
    progress: &dyn Progress,
) -> Result<StudyResult> {
    let began = Instant::now();
    let taken_unix_ns = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
    let cases = options.cases()?;
    let kind = target_of(&cases)?;
    let version = kind.version()?;
    let machine = Machine::read();
    let mut warnings = trust::before(&machine, trust::busy_processors(), &cases);
    let repository = options.snapshots.as_ref().map(Repository::open).transpose()?;
    let crossing = if options.cross_check { Crossing::beside(&cases) } else { Crossing::default() };
    let all: Vec<Case> = cases.iter().chain(crossing.cases()).cloned().collect();
    let places = place::choose(&wishes(options, &all), leftovers)?;
    warnings.extend(trust::places(&places, &cases));
    warnings.extend(options.home_model.as_deref().map(trust::modelled));
    let summary = PlaceSummary::of(&places);
    let templates = Vec::new();
    let mut study =
        Study { options, cases, kind, places, progress, repository, templates, crossing };
    warnings.extend(study.leave_out()?);
    let runs = study.all()?;
    let Study { cases, places, crossing, .. } = study;
    drop(places);
    let cross_check = options.cross_check.then(|| {
        let (found, said) = crossing.end(&runs);
        warnings.extend(said);
        found
    });
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
        database: kind.title().into(),
        database_version: version,
        load: load_of(&cases),
        home_model: options.home_model.clone(),
        cases: cases.iter().map(CaseSummary::of).collect(),
        runs,
        cross_check,
        warnings,
        published,
    })
}

/// The one target of the cases.
fn target_of(cases: &[Case]) -> Result<&'static dyn Kind> {
    let name = cases.first().map_or(crate::case::SQLITE, |case| case.target.as_str());
    if let Some(other) = cases.iter().find(|case| case.target != name) {
        let reason = format!("{} is for {}; one study is of one target", other.id, other.target);
        return Err(Error::Setting { setting: "target", value: name.into(), reason });
    }
    target::kind(name)
}

/// What the database was loaded with, for people.
fn load_of(cases: &[Case]) -> String {
    let embedded = cases.first().is_none_or(|case| case.target == crate::case::SQLITE);
    let load = cases.first().map_or(Load::Slob, |case| case.server.load);
    match (cases.first(), load) {
        (Some(case), Load::Mixed) => {
            let keys = &case.server.keys;
            format!(
                "{}: {} SETs to GETs, {} keys ({}), values of {} bytes, {} at once, {} clients",
                load.title(),
                keys.ratio,
                keys.keys(&case.slob),
                keys.pattern.name(),
                keys.value_bytes(),
                keys.pipeline,
                case.server.clients
            )
        }
        (Some(case), load) if load.is_transactional() => {
            let described = loads::of(case, &case.slob).map(|of| of.describe(case.server.clients));
            let label =
                if load == Load::Tpcc { format!(" ({})", tpcc::LABEL) } else { String::new() };
            format!("{}: {}{label}", load.title(), described.unwrap_or_default())
        }
        _ if embedded => Load::Slob.title().into(),
        _ => load.title().into(),
    }
}

fn is_server(case: &Case) -> bool {
    case.target != crate::case::SQLITE
}

/// What a study needs of its places.
fn wishes(options: &Options, cases: &[Case]) -> Wishes {
    let per_schema = |case: &Case, bytes: u64| bytes * u64::from(case.slob.schemas);
    let home = cases
        .iter()
        .map(|case| per_schema(case, 3 * room::database_bytes(case) + room::tier_bytes(case)))
        .max();
    Wishes {
        home: options.home.clone(),
        fast: options.fast.clone(),
        emulate: options.emulate,
        home_bytes: home.unwrap_or(0) + (64 << 20),
        tier_bytes: cases
            .iter()
            .map(|case| per_schema(case, room::tier_bytes(case)))
            .max()
            .unwrap_or(0),
        // A server has one directory, whatever the number of schemas.
        members: cases
            .iter()
            .map(|case| if is_server(case) { 1 } else { case.slob.schemas })
            .max()
            .unwrap_or(1),
        reachable_by: cases
            .first()
            .and_then(|case| case.product().ok())
            .and_then(|product| server::account(product).ok().flatten()),
    }
}

impl Study<'_> {
    /// Takes out the cases that cannot run here, and says why.
    fn leave_out(&mut self) -> Result<Vec<trust::Warning>> {
        let mut notes = Vec::new();
        let mut stay = Vec::new();
        for case in &self.cases {
            match self.kind.cannot(&self.ground(case, &case.slob, &|_| true)) {
                Some(because) => notes.push(trust::note(
                    "skipped",
                    format!("skipped: {}, because {because}.", case.id),
                )),
                None => stay.push(case.clone()),
            }
        }
        if stay.is_empty() {
            let reason =
                notes.iter().map(|note| note.sentence.as_str()).collect::<Vec<_>>().join(" ");
            return Err(Error::Case { case: "of this study".into(), reason });
        }
        self.cases = stay;
        Ok(notes)
    }

    fn all(&mut self) -> Result<Vec<RunResult>> {
        // Cases that share an UPDATE_PCT follow each other, so that a case and its baseline are
        // close in time.
        let mut pcts: Vec<u32> =
            self.cases.iter().flat_map(|case| case.update_pcts.clone()).collect();
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
                    let opponents = self.crossing.of(case).cloned().map(Some);
                    let mut both: Vec<_> = std::iter::once(None).chain(opponents).collect();
                    if round % 2 == 0 {
                        both.reverse();
                    }
                    let turn = |opponent| Turn { round, pct: *pct, case: case.clone(), opponent };
                    plan.extend(both.into_iter().map(turn));
                }
            }
        }
        let mut runs = Vec::new();
        for (n, turn) in plan.iter().enumerate() {
            let share = |within: f64| (n as f64 + within) / plan.len() as f64;
            if let Some(opponent) = &turn.opponent {
                let measured = self.beside(opponent, turn.pct, n, &share);
                self.crossing.ran(opponent, turn.pct, measured)?;
                continue;
            }
            let run = self.one(&turn.case, turn.pct, turn.round, &share)?;
            self.progress.done(&run);
            runs.push(run);
        }
        Ok(runs)
    }

    /// Runs an opponent of a case, number `n` of all runs.
    fn beside(
        &mut self,
        opponent: &Opponent,
        pct: u32,
        n: usize,
        share: &(dyn Fn(f64) -> f64 + Sync),
    ) -> Result<Measured> {
        let case = &opponent.case;
        let slob = slob::Settings { update_pct: pct, ..case.slob.clone() };
        let by = if opponent.is_ours { "Tiersmith's clients" } else { opponent.program };
        let what = format!("{} at UPDATE_PCT {pct}, cross-check by {by}", case.id);
        // What a failure leaves there must not be in the way of the next run.
        let dir = self.places.home.join(format!("beside{n}"));
        let ran = self.measured(case, &slob, &what, &dir, share);
        if ran.is_err() {
            let _ = fs::remove_dir_all(&dir);
        }
        Ok(ran?.measured)
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
        let dir = self.places.home.join("run");
        let Ran { measured, killed, remarks } = self.measured(case, &slob, &what, &dir, share)?;
        let mut run = RunResult {
            case: case.id.clone(),
            update_pct: pct,
            round,
            measured,
            snapshots: None,
            warnings: Vec::new(),
        };
        run.warnings = trust::run(&run, case, &slob);
        run.warnings.extend(killed.map(|sentence| trust::note("killed", sentence)));
        run.warnings
            .extend(remarks.into_iter().map(|(code, sentence)| trust::note(code, sentence)));
        if let Some(repository) = &self.repository {
            let begin = repository.take(&run.measured.begin)?;
            let end = repository.take(&run.measured.end)?;
            run.snapshots = Some((begin.number(), end.number()));
        }
        Ok(run)
    }

    /// Measures a copy of a loaded database in `dir`, which does not exist and is removed.
    fn measured(
        &mut self,
        case: &Case,
        slob: &slob::Settings,
        what: &str,
        dir: &Path,
        share: &(dyn Fn(f64) -> f64 + Sync),
    ) -> Result<Ran> {
        let kind = self.kind;
        let template = self.template(case, slob, share)?;
        self.look()?;
        self.progress.step(&format!("{what}: copying the database"), share(0.05));
        let mut opened = kind.open(&self.ground(case, slob, &|_| true), &template, dir)?;
        self.look()?;
        self.progress.step(&format!("{what}: reading every table"), share(0.1));
        opened.warm()?;
        let warm_up_s = (self.options.seconds * WARM_UP_SHARE).clamp(WARM_UP_S.0, WARM_UP_S.1);
        let (progress, leftovers) = (self.progress, self.places.leftovers.clone());
        let plans = Plans {
            slob,
            block_bytes: case.block_bytes(),
            warm_up: Duration::from_secs_f64(warm_up_s),
            run_time: Duration::from_secs_f64(self.options.seconds),
            program: None,
            progress: &|part| progress.step(what, share(0.15 + 0.8 * part)),
            stopped: &|| leftovers.stopped(),
        };
        let measured = opened.measure(&plans)?;
        self.progress.step(&format!("{what}: checking the database"), share(0.97));
        opened.target().check()?;
        if case.load() == Load::Tpcc {
            self.progress.step(&format!("{what}: killing the database under load"), share(0.98));
        }
        let killed = opened.kill()?;
        let remarks = opened.remarks();
        opened.close()?;
        fs::remove_dir_all(dir).during("remove", dir)?;
        Ok(Ran { measured, killed, remarks })
    }

    fn ground<'b>(
        &'b self,
        case: &'b Case,
        slob: &'b slob::Settings,
        progress: &'b dyn Fn(f64) -> bool,
    ) -> Ground<'b> {
        let home_model = self.options.home_model.as_deref();
        Ground { case, slob, places: &self.places, home_model, progress }
    }

    /// Loaded databases like those a run needs; made when they are not there.
    fn template(
        &mut self,
        case: &Case,
        slob: &slob::Settings,
        share: &dyn Fn(f64) -> f64,
    ) -> Result<PathBuf> {
        let report = |part: f64| {
            self.progress.step("loading", share(0.05 * part));
            !self.places.leftovers.stopped()
        };
        let ground = self.ground(case, slob, &report);
        let key = self.kind.template_key(&ground);
        if let Some((_, dir)) = self.templates.iter().find(|(known, _)| *known == key) {
            return Ok(dir.clone());
        }
        let dir = self.places.home.join(format!("loaded{}", self.templates.len() + 1));
        fs::create_dir(&dir).during("make", &dir)?;
        report(0.0);
        self.kind.load(&ground, &dir)?;
        self.templates.push((key, dir.clone()));
        Ok(dir)
    }
}
