//! Recovery with a stopwatch: each server is killed under load, on the home's storage and with its
//! files in the tier, and started again at once. `tiersmith kv` has Redis beside it. Of SQLite, the
//! process that uses it is killed.
//!
//! **Invariant**: after each run what must be in the database is there, or there is an error and no
//! figure.
//! **Deliberately absent**: power cuts, which end the daemon as well (the crash suite).

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use tiersmith_awr::page::{Bar, Chart, Line, OverTime, Page, Series, TimeSlot};
use tiersmith_awr::{Cell, Quantity, Table, figure, write_table};

use super::result::{Machine, PlaceSummary};
use super::{Options, Progress, text, trust};
use crate::case::{self, Load, SQLITE};
use crate::error::{During, Error, Result};
use crate::place::{self, Leftovers};
use crate::server;
use crate::size::ByteSize;
use crate::target::recovery::{FULL_SHARE, Recovered, Watch};
use crate::target::{self, Ground, Kind};

/// The cases: without the tier, and with everything in it.
const CASES: [&str; 2] = ["server-on-home", "server-all-on-mount"];
/// Those of SQLite.
const OF_SQLITE: [&str; 2] = ["redo-on-home", "all-on-tier"];
/// Those of the key-value server: itself, and a Redis that promises the same.
pub(super) const OF_KV: [&str; 3] =
    ["keys-on-home-redis-always", "keys-on-mount-redis-always", "keys-on-tier"];
/// Its name.
const KV: &str = "kv";
/// Clients, if nobody says otherwise.
const CLIENTS: u32 = 4;
/// Seconds of load before the kill.
const SECONDS: f64 = 6.0;
/// Bytes that are loaded.
const SCALE: ByteSize = ByteSize(64 << 20);
/// Slots of the chart before the kill.
const SHOWN_BEFORE_S: f64 = 2.0;

/// What is to be run.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Only this target.
    pub target: Option<String>,
    /// The load; YCSB A if nobody says otherwise.
    pub load: Option<Load>,
    /// Clients.
    pub clients: Option<u32>,
    /// Seconds of load before the kill; ten times as long is waited for full throughput.
    pub seconds: Option<f64>,
    /// Bytes that are loaded.
    pub scale: Option<ByteSize>,
    /// Where home goes.
    pub home: Option<PathBuf>,
    /// Where the tier goes.
    pub fast: Option<PathBuf>,
    /// Call the tier emulated even on persistent memory.
    pub emulate: bool,
}

/// One kill.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The target.
    pub target: String,
    /// Its version.
    pub version: String,
    /// The case.
    pub case: String,
    /// What is on the tier.
    pub on_tier: String,
    /// What was seen.
    pub recovered: Recovered,
}

/// Everything.
#[derive(Debug, Serialize)]
pub struct Recovery {
    /// The version of this structure.
    pub format: u32,
    /// The load, for people.
    pub load: String,
    /// The machine.
    pub machine: Machine,
    /// Where home and tier were, of the last target.
    pub places: Option<PlaceSummary>,
    /// Why figures are doubted, and what a reader has to know.
    pub warnings: Vec<trust::Warning>,
    /// The kills, a target's one after the other.
    pub runs: Vec<Run>,
    /// What was not run, and why.
    pub not_run: Vec<(String, String)>,
}

/// Runs everything.
///
/// # Errors
/// What a database says; what it lost; [`Error::Interrupted`].
pub fn run(wanted: &Wanted, leftovers: &Leftovers, progress: &dyn Progress) -> Result<Recovery> {
    let machine = Machine::read();
    let load = wanted.load.unwrap_or(Load::YcsbA);
    if !load.is_transactional() {
        let reason =
            "give one whose transactions are statements of its own: tpcc, ycsb-*, oltp-*".into();
        return Err(Error::Setting { setting: "load", value: load.name().into(), reason });
    }
    let warnings = trust::before(&machine, trust::busy_processors(), &[]);
    let mut recovery = Recovery {
        format: 1,
        load: load.title().into(),
        machine,
        places: None,
        warnings,
        runs: Vec::new(),
        not_run: Vec::new(),
    };
    for kind in target::kinds() {
        if wanted.target.as_ref().is_some_and(|only| only != kind.name()) {
            continue;
        }
        if let Some(why) = cannot_be_watched(*kind, load) {
            recovery.not_run.push((kind.title().into(), why));
            continue;
        }
        match kind.version() {
            Ok(_) => of_target(*kind, load, wanted, leftovers, progress, &mut recovery)?,
            Err(e) => recovery.not_run.push((kind.title().into(), e.to_string())),
        }
    }
    Ok(recovery)
}

/// Why SQLite cannot be killed under the load by this program.
fn cannot_be_watched(kind: &dyn Kind, load: Load) -> Option<String> {
    match load {
        _ if kind.name() != SQLITE => None,
        Load::YcsbD | Load::YcsbE => Some(format!(
            "{} adds records, and only the killed process would know which were acknowledged",
            load.name()
        )),
        _ => server::this_program().err(),
    }
}

/// The options of a study that would load the same.
fn options(kind: &dyn Kind, load: Load, wanted: &Wanted) -> Result<Options> {
    let names = match kind.name() {
        KV => &OF_KV[..],
        SQLITE => &OF_SQLITE,
        _ => &CASES,
    };
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut options = Options::new(case::choose_for(kind.name(), &names, false)?);
    options.load = Some(load);
    options.clients = Some(wanted.clients.unwrap_or(CLIENTS));
    options.scale = Some(wanted.scale.unwrap_or(SCALE));
    options.seconds = wanted.seconds.unwrap_or(SECONDS);
    options.home.clone_from(&wanted.home);
    options.fast.clone_from(&wanted.fast);
    options.emulate = wanted.emulate;
    Ok(options)
}

fn of_target(
    kind: &'static dyn Kind,
    load: Load,
    wanted: &Wanted,
    leftovers: &Leftovers,
    progress: &dyn Progress,
    recovery: &mut Recovery,
) -> Result<()> {
    let options = options(kind, load, wanted)?;
    let cases = options.cases()?;
    let places = place::choose(&super::wishes(&options, &cases), leftovers.clone())?;
    recovery.places = Some(PlaceSummary::of(&places));
    let mut templates: Vec<(String, PathBuf)> = Vec::new();
    for (n, case) in cases.iter().enumerate() {
        let share = n as f64 / cases.len() as f64;
        let report = |part: f64| {
            progress.step(&format!("{} {}: loading", kind.title(), case.id), share + 0.2 * part);
            !leftovers.stopped()
        };
        let ground =
            Ground { case, slob: &case.slob, places: &places, home_model: None, progress: &report };
        if let Some(because) = kind.cannot(&ground) {
            recovery.not_run.push((format!("{} {}", kind.title(), case.id), because));
            continue;
        }
        let (title, version) = kind.run_on(case)?;
        let key = kind.template_key(&ground);
        let known = templates.iter().find(|(known, _)| *known == key).map(|(_, dir)| dir.clone());
        let template = match known {
            Some(dir) => dir,
            None => {
                let dir = places.home.join(format!("loaded{}", templates.len() + 1));
                fs::create_dir(&dir).during("make", &dir)?;
                kind.load(&ground, &dir)?;
                templates.push((key, dir.clone()));
                dir
            }
        };
        progress.step(&format!("{} {}: load, kill, and again", kind.title(), case.id), share + 0.3);
        if let Some(recovered) = killed(kind, &ground, &template, options.seconds, leftovers)? {
            recovery.runs.push(Run {
                target: title.into(),
                version,
                case: case.id.clone(),
                on_tier: case.placement.name().into(),
                recovered,
            });
        }
    }
    Ok(())
}

fn killed(
    kind: &dyn Kind,
    ground: &Ground<'_>,
    template: &std::path::Path,
    seconds: f64,
    leftovers: &Leftovers,
) -> Result<Option<Recovered>> {
    let dir = ground.places.home.join("run");
    let mut opened = kind.open(ground, template, &dir)?;
    opened.warm()?;
    let watch = Watch {
        before: Duration::from_secs_f64(seconds),
        patience: Duration::from_secs_f64(10.0 * seconds.max(2.0)),
        stopped: &|| leftovers.stopped(),
    };
    let recovered = opened.recover(&watch)?;
    opened.target().check()?;
    opened.close()?;
    fs::remove_dir_all(&dir).during("remove", &dir)?;
    Ok(recovered)
}

/// What was found, in sentences.
fn verdict(recovery: &Recovery) -> String {
    let seconds =
        |of: Option<f64>| of.map_or_else(|| "not in time".into(), |s| format!("after {s:.2} s"));
    let sentence = |run: &Run| {
        format!(
            "{} with {} on the tier answered after {:.2} s and had {:.0} % of its throughput {}.",
            run.target,
            run.on_tier,
            run.recovered.first_answer_s,
            100.0 * FULL_SHARE,
            seconds(run.recovered.full_s)
        )
    };
    if recovery.runs.is_empty() {
        return "Nothing could be killed here.".into();
    }
    let sentences: Vec<String> = recovery.runs.iter().map(sentence).collect();
    format!("Killed with SIGKILL under load and started again at once: {}", sentences.join(" "))
}

pub(super) fn table(recovery: &Recovery) -> Table {
    let mut table = Table::new("From the kill")
        .text("Database", "Killed with SIGKILL under load, and started again at once.")
        .text("Case", "Where its files are.")
        .text("On tier", "What is on the fast tier.")
        .figures("Before /s", "", "Operations per second before the kill.")
        .figures("First answer", "", "To the end of the first operation that began after the kill.")
        .figures(
            "Full",
            "",
            "To half a second at 90 % of the throughput before; empty: not in time.",
        )
        .figures("Keys", "", "Records that a key-value server counted at its first reply.");
    for run in &recovery.runs {
        table.row(vec![
            Cell::text(format!("{} {}", run.target, run.version)),
            Cell::text(&run.case),
            Cell::text(&run.on_tier),
            Cell::number(run.recovered.before_per_s),
            Cell::nanoseconds(run.recovered.first_answer_s * 1e9),
            Cell::nanoseconds(run.recovered.full_s.map(|s| s * 1e9)),
            Cell::count(run.recovered.keys),
        ]);
    }
    if recovery.runs.iter().any(|run| run.recovered.keys.is_some()) {
        table.note(
            "Keys: every record that was acknowledged before the kill was counted at the first \
             reply, or there would be an error and no figure.",
        );
    }
    table.note(format!(
        "Load: {}. After each run every row that must be there is there.",
        recovery.load
    ));
    table.note(
        "Only the server is killed; the daemon of a mount goes on. Of SQLite it is the program \
         that uses it, and with it whoever serves the tier. Times are to within 50 ms: a server \
         that starts is asked every 30 ms.",
    );
    if is_emulated(recovery) {
        table.note("EMULATED: the tier only stands for persistent memory.");
    }
    table
}

pub(super) fn is_emulated(recovery: &Recovery) -> bool {
    recovery.places.as_ref().is_some_and(|places| places.emulated)
}

/// The recovery for a terminal.
pub fn render_text(recovery: &Recovery) -> String {
    let mut out = String::new();
    text::paragraph(&mut out, "", &verdict(recovery));
    if !recovery.runs.is_empty() {
        out.push('\n');
        write_table(&mut out, &table(recovery));
    }
    if !recovery.warnings.is_empty() || !recovery.not_run.is_empty() {
        out.push('\n');
    }
    for warning in &recovery.warnings {
        text::paragraph(&mut out, "- ", &figure::visible(&warning.sentence));
    }
    for (what, why) in &recovery.not_run {
        text::paragraph(
            &mut out,
            "- ",
            &figure::visible(&format!("skipped: {what}, because {why}")),
        );
    }
    out
}

/// The recovery as one page that needs nothing else.
pub fn render_html(recovery: &Recovery) -> String {
    let mut page = Page::new("Tiersmith: recovery with a stopwatch");
    page.lead(verdict(recovery));
    if is_emulated(recovery) {
        page.banner("EMULATED: the tier only stands for persistent memory.");
    }
    for warning in &recovery.warnings {
        page.warning(&warning.sentence);
    }
    page.section("From the kill");
    let bar = |(n, run): (usize, &Run)| Bar {
        label: format!("{}, {} on the tier", run.target, run.on_tier),
        value: run.recovered.first_answer_s * 1e9,
        detail: String::new(),
        colour: (n % 2) as u8,
    };
    page.chart(&Chart::Bars {
        title: "First answer after the kill".into(),
        explanation: "Shorter is better.".into(),
        quantity: Quantity::Nanoseconds,
        bars: recovery.runs.iter().enumerate().map(bar).collect(),
    });
    page.table(&table(recovery));
    for pair in recovery.runs.chunk_by(|a, b| a.target == b.target) {
        if let [plain, tiered] = pair {
            page.section(&format!("{} over time", plain.target));
            page.chart(&over_time(plain, tiered, "operations per second", |slot| slot.per_s));
            page.chart(&over_time(plain, tiered, "99th percentile, ms", |slot| {
                slot.p99_ns as f64 / 1e6
            }));
        }
    }
    if !recovery.not_run.is_empty() {
        page.section("What was not run");
        page.list(recovery.not_run.iter().map(|(what, why)| format!("{what}: {why}")));
    }
    page.render()
}

/// A figure of both configurations on one chart, the kill two seconds from its beginning.
fn over_time(
    plain: &Run,
    tiered: &Run,
    what: &str,
    of: fn(&crate::target::recovery::Slot) -> f64,
) -> Chart {
    let slot_ns = 100_000_000u64;
    let first = -(SHOWN_BEFORE_S * 10.0) as i64;
    let number = |at_s: f64| (at_s * 10.0).round() as i64;
    let last = [plain, tiered]
        .iter()
        .filter_map(|run| run.recovered.timeline.last().map(|slot| number(slot.at_s)))
        .max()
        .unwrap_or(0);
    let value = |run: &Run, n: i64| {
        run.recovered.timeline.iter().find(|slot| number(slot.at_s) == n).map_or(0.0, of)
    };
    let slots = (first..=last).map(|n| {
        let from_unix_ns = u64::try_from(n - first).unwrap_or(0) * slot_ns;
        TimeSlot {
            from_unix_ns,
            to_unix_ns: from_unix_ns + slot_ns,
            values: vec![value(plain, n)],
            lines: vec![Some(value(tiered, n))],
        }
    });
    Chart::Area {
        of: OverTime {
            title: format!("{}: {what}", plain.target),
            explanation: format!(
                "The area is {}, the line {}. The kill is {SHOWN_BEFORE_S:.0} s from the \
                 beginning.",
                plain.case, tiered.case
            ),
            unit: String::new(),
            slots: slots.collect(),
            gaps: Vec::new(),
            top: 0.0,
            length_ns: 0,
        },
        series: vec![Series { name: plain.case.clone(), colour: 0 }],
        lines: vec![Line { name: tiered.case.clone(), limit: false }],
    }
}
