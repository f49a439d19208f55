//! The page of a trial: Compare Periods of the two recordings, below what the trial found in one
//! table.
//!
//! Deliberately absent: what the figures of the comparison mean (crate `awr`).

use tiersmith_awr::sources::Address;
use tiersmith_awr::{
    AnyRepository, Cell, Interval, Item, Report, Section, Table, compare, figure, render, statistic,
};

use super::copy::OnCopy;
use super::journal::{Journal, Room};
use super::plan::Step;
use super::service::quoted;
use crate::error::{Error, Result};

/// Waits of the mount that are listed.
const WAITS: usize = 10;
/// The page's file.
pub const PAGE: &str = "trial.html";
/// The same as text.
pub const TEXT: &str = "trial.txt";

/// Writes the page and its text into the trial's directory.
///
/// # Errors
/// A recording cannot be read, or a file cannot be written.
pub(super) fn write(room: &Room, journal: &Journal) -> Result<()> {
    let before = recorded(room, journal, "before", Step::Baseline, "before")?;
    // Of a SQLite file, two sources are recorded the second time.
    let first = if journal.plan.has_server() { "after" } else { "after-1" };
    let after = recorded(room, journal, "after", Step::Measure, first)?;
    let mut report: Report = compare(&before, &after);
    report.title = "TIERSMITH TRIAL: COMPARE PERIODS".to_owned();
    let mut section = Section { title: "The Trial".to_owned(), items: Vec::new() };
    if journal.plan.has_server() {
        section.items.push(Item::Table(gain(&before, &after)));
    } else {
        let mount = recorded(room, journal, "after", Step::Measure, "after-2")?;
        section.items.push(Item::Table(run_time(&before, &after)));
        section.items.push(Item::Table(waits(&mount)));
    }
    section.items.extend(copied(journal).map(Item::Text));
    section.items.extend(tier(room).map(Item::Text));
    section.items.extend(ways(journal).into_iter().map(Item::Text));
    report.sections.insert(0, section);
    room.put(TEXT, &render::text(&report))?;
    room.put(PAGE, &render::html(&report))
}

fn recorded(
    room: &Room,
    journal: &Journal,
    file: &str,
    step: Step,
    name: &str,
) -> Result<Interval> {
    let path = room.path_of(&format!("{file}-{}.db", journal.attempts(step)));
    let repository = AnyRepository::existing(&path)?;
    let (baselines, _) = repository.baselines_and_gaps()?;
    let found = baselines.into_iter().find(|baseline| baseline.name == name).ok_or_else(|| {
        Error::Target {
            what: "comparing".into(),
            database: path,
            reason: format!("too little was recorded `{name}` to be compared; record for longer"),
        }
    })?;
    Ok(repository.interval(found.first, found.last)?.labelled(file))
}

/// How long the load took, where nobody counts what it did.
fn run_time(before: &Interval, after: &Interval) -> Table {
    let mut table = Table::new("Gain")
        .text("Figure", "What is compared.")
        .figures("Before", "s", "The file as it was.")
        .figures("After", "s", "With its directory attached.")
        .figures("After / Before", "", "The second by the first: below 1 is faster.");
    let (first, second) = (before.elapsed_s(), after.elapsed_s());
    table.row(vec![
        Cell::text("Run time of the load"),
        Cell::number(Some(first)),
        Cell::number(Some(second)),
        Cell::number((first > 0.0).then_some(second / first)),
    ]);
    table
}

/// What the load waited for in the mount.
fn waits(mount: &Interval) -> Table {
    let mut table = Table::new("Waits in the Mount")
        .text("Event", "What the load waited for, with the fast storage.")
        .figures("Waits", "", "How often.")
        .figures("Time", "", "Altogether; several processes wait at once.")
        .figures("Mean", "", "Of one wait.");
    for wait in mount.foreground().into_iter().take(WAITS) {
        table.row(vec![
            Cell::text(&wait.name),
            Cell::number(Some(wait.count as f64)),
            Cell::nanoseconds(Some(wait.total_ns as f64)),
            Cell::nanoseconds(wait.mean_ns()),
        ]);
    }
    table
}

/// A figure of each period.
type Figure = (&'static str, fn(&Interval) -> Cell, fn(&Interval) -> Option<f64>);

fn gain(before: &Interval, after: &Interval) -> Table {
    let mut table = Table::new("Gain")
        .text("Figure", "What is compared.")
        .figures("Before", "", "The database as it was.")
        .figures("After", "", "With the fast storage. Its caches were cold when this period began.")
        .figures("After / Before", "", "The second by the first.");
    let rows: [Figure; 6] = [
        ("Transactions per second", |of| Cell::number(rate(of)), rate),
        ("DB time per transaction", |of| Cell::nanoseconds(time_of_one(of)), time_of_one),
        ("Commands per second", |of| Cell::number(calls_rate(of)), calls_rate),
        ("DB time per command", |of| Cell::nanoseconds(time_of_call(of)), time_of_call),
        ("Waits per transaction", |of| Cell::nanoseconds(waited_of_one(of)), waited_of_one),
        (
            "Average active sessions",
            |of| Cell::number(of.active_sessions()),
            Interval::active_sessions,
        ),
    ];
    for (name, shown, value) in rows {
        let both = value(before).zip(value(after));
        let ratio = both.filter(|(first, _)| *first > 0.0).map(|(first, second)| second / first);
        if value(before).is_some() || value(after).is_some() {
            table.row(vec![Cell::text(name), shown(before), shown(after), Cell::number(ratio)]);
        }
    }
    table
}

fn rate(of: &Interval) -> Option<f64> {
    of.transactions().map(|transactions| transactions as f64 / of.elapsed_s())
}

fn of_one(of: &Interval, ns: f64) -> Option<f64> {
    of.transactions()
        .filter(|transactions| *transactions > 0)
        .map(|transactions| ns / transactions as f64)
}

fn time_of_one(of: &Interval) -> Option<f64> {
    of_one(of, of.db_time_ns? as f64)
}

fn waited_of_one(of: &Interval) -> Option<f64> {
    of_one(of, of.waited_ns() as f64)
}

/// Commands, where the database has no transactions.
fn calls(of: &Interval) -> Option<f64> {
    let calls = of.counter(statistic::USER_CALLS).filter(|_| of.transactions().is_none())?;
    (calls > 0).then_some(calls as f64)
}

fn calls_rate(of: &Interval) -> Option<f64> {
    calls(of).map(|calls| calls / of.elapsed_s())
}

fn time_of_call(of: &Interval) -> Option<f64> {
    Some(of.db_time_ns? as f64 / calls(of)?)
}

/// What was on the tier at the end of the second period.
fn tier(room: &Room) -> Option<String> {
    let text = room.read_text("tier.json").ok()?;
    let status: serde_json::Value = serde_json::from_str(&text).ok()?;
    let tiers = status["live"]["tiers"].as_array()?;
    let one = |tier: &serde_json::Value| {
        let bytes = |name: &str| figure::bytes(tier[name].as_f64().unwrap_or(0.0));
        let label = if tier["emulated"] == true { ", EMULATED" } else { "" };
        format!(
            "{} of {} free{label}; {} newer than home, {} clean copies",
            bytes("free_bytes"),
            bytes("usable_bytes"),
            bytes("dirty_bytes"),
            bytes("cached_bytes")
        )
    };
    let all: Vec<String> = tiers.iter().map(one).collect();
    Some(format!("On the tier at the end of the second period: {}.", all.join("; ")))
}

/// What the periods are of, if it is not the database itself.
fn copied(journal: &Journal) -> Option<String> {
    let copy = journal.plan.copy.as_ref()?;
    let of = Address::parse(&copy.of).map_or_else(|_| String::new(), |of| of.shown());
    Some(format!(
        "Both periods are of a copy of {of} in {}, under the load of the trial alone; both began \
         with a server that had just been started.",
        copy.dir.0.display()
    ))
}

/// How to try a copy's tier on the database itself, or how to end the copy.
fn ways_of_copy(journal: &Journal, copy: &OnCopy) -> Vec<String> {
    let (home, dir) = (journal.plan.home.0.display(), copy.dir.0.display());
    match journal.plan.keep {
        true => vec![format!(
            "The copy stays, attached, and its server runs: {}. To end it: kill -INT $(head -n 1 \
             {home}/postmaster.pid), then tiersmith detach {home}, then rm -r {dir}.",
            journal.plan.url
        )],
        false => vec![format!(
            "Nothing was kept: the copy was removed, and the database itself was not touched. To \
             try persistent storage on that: tiersmith trial {} --fast PATH.",
            quoted(&copy.of)
        )],
    }
}

/// How to keep it, and how to undo it.
fn ways(journal: &Journal) -> Vec<String> {
    if let Some(copy) = &journal.plan.copy {
        return ways_of_copy(journal, copy);
    }
    let (home, fast) = (journal.plan.home.0.display(), journal.plan.fast.0.display());
    let size = journal.plan.size.iter().map(|size| format!(" --size {size}")).collect::<String>();
    let stop = if journal.plan.has_server() { "stop the server" } else { "close the database" };
    match journal.plan.keep {
        true => vec![format!(
            "The tier stays attached. After a reboot: tiersmith attach {home}. To undo it, {stop} \
             and run: tiersmith detach {home}."
        )],
        false => vec![format!(
            "Nothing was kept: the database is plain again. To keep the tier, {stop} and run: \
             tiersmith attach {home} --fast {fast}{size}."
        )],
    }
}
