//! What both reports have, for one interval or two: banners, warnings, host, media, settings,
//! explanations of events.

use std::collections::{BTreeMap, BTreeSet};

use crate::figure;
use crate::findings::SHORT_S;
use crate::snapshot::known;
use crate::table::{Cell, Table};
use crate::{Interval, WaitDelta, statistic};

/// How many rows a list of settings, counters or explanations has: a source may have any number.
pub(super) const ROWS: usize = 600;

/// What two intervals are called beside each other.
pub(super) const ORDINALS: [&str; 2] = ["First (1st)", "Second (2nd)"];

/// In what the instants of an interval are: Oracle's reports do not say their zone.
pub(super) fn zone(of: &Interval) -> &'static str {
    if of.end.source.is_oracle() { "as printed" } else { "UTC" }
}

/// The numbers of an interval's snapshots in their repository.
fn own_numbers(of: &Interval) -> Option<(u64, u64)> {
    of.ids.map(|(begin, end)| (begin.number(), end.number()))
}

/// The numbers by which people call the snapshots of an interval: those that Oracle printed, else
/// those of the repository.
pub(super) fn numbers(of: &Interval) -> Option<(u64, u64)> {
    of.printed_numbers().or_else(|| own_numbers(of))
}

/// Begin and end as [`numbers`], without commas where Oracle printed them; and as the repository
/// numbers them, if that is something else.
pub(super) fn number_cells(of: &Interval) -> [[Cell; 2]; 2] {
    let printed = of.printed_numbers();
    let own = own_numbers(of);
    let counts = |of: Option<(u64, u64)>| [of.map(|of| of.0), of.map(|of| of.1)].map(Cell::count);
    match printed {
        Some((begin, end)) => [[begin, end].map(|n| Cell::text(n.to_string())), counts(own)],
        None => [counts(own), counts(None)],
    }
}

/// By how much sessions may exceed clients before that is no error of two clocks.
const MORE_THAN_CLIENTS: f64 = 1.1;

/// What must not be overlooked, first of all: an interval that says nothing; emulated media; times
/// that are left out.
pub(super) fn banners(intervals: &[&Interval]) -> Vec<String> {
    let mut emulated: BTreeSet<String> = BTreeSet::new();
    for of in intervals {
        for medium in of
            .begin
            .media
            .iter()
            .chain(&of.end.media)
            .chain(&of.inside.emulated)
            .filter(|medium| medium.emulated)
        {
            emulated.insert(format!("{} ({})", medium.name, medium.kind));
        }
    }
    let whose = |index: usize| match intervals.len() {
        1 => String::new(),
        _ => format!("{}: ", ORDINALS[index.min(1)]),
    };
    let mut banners = Vec::new();
    for (index, of) in intervals.iter().enumerate() {
        let doubts = [without_waits(of), too_short(of), more_than_clients(of)];
        banners.extend(doubts.into_iter().flatten().map(|text| format!("{}{text}", whose(index))));
    }
    if !emulated.is_empty() {
        let media: Vec<String> = emulated.into_iter().collect();
        banners.push(format!(
            "EMULATED: the medium of {} only stands for persistent memory. Its figures are not \
             those of a real \
             one, and what it holds need not survive a power cut.",
            media.join(", ")
        ));
    }
    for (index, of) in intervals.iter().enumerate() {
        banners.extend(incomplete(of).map(|text| format!("{}{text}", whose(index))));
    }
    banners
}

/// Says that a report of Oracle's was not understood where it matters most.
fn without_waits(of: &Interval) -> Option<String> {
    of.lacks_wait_events().then(|| {
        "NO WAIT EVENTS: no table of wait events of the imported report could be read, so that \
         nothing here \
         says what requests waited for. Make the report anew, as HTML, and import that."
            .to_owned()
    })
}

/// Says that chance decides the figures.
fn too_short(of: &Interval) -> Option<String> {
    (of.elapsed_s() < SHORT_S).then(|| {
        format!(
            "TOO SHORT: this interval is {} s long. Below {SHORT_S} s a checkpoint, a scheduled \
             job or the \
             moment of a snapshot decides most figures: report a longer interval, or record some \
             minutes.",
            figure::number(of.elapsed_s())
        )
    })
}

/// Says that DB time cannot all be of this interval: each client has one session, which is active
/// or not.
///
/// Clients are those at the beginning and everybody who connected later. Where one of these is
/// unknown, or part of the time is left out, nothing is said; nor of Oracle's reports, whose
/// sessions are counted in another way.
fn more_than_clients(of: &Interval) -> Option<String> {
    let imported = of.end.source.is_oracle() || !of.left_out.is_empty();
    let (active, before) = (of.active_sessions()?, of.begin.sessions?);
    let connected = of.counter(statistic::LOGONS)?;
    let clients = before.saturating_add(connected);
    (!imported && active > clients as f64 * MORE_THAN_CLIENTS).then(|| {
        format!(
            "MORE ACTIVE SESSIONS THAN CLIENTS: {} on average, but only {} sessions were connected \
             at the \
             beginning and {} connected later. The server has added time to DB time that was spent \
             before \
             this interval: report a longer one, from before the load to after it.",
            figure::number(active),
            figure::count(before),
            figure::count(connected)
        )
    })
}

/// Says that figures are of a part of the interval: of which, and why.
fn incomplete(of: &Interval) -> Option<String> {
    let first = of.left_out.first()?;
    let seconds = |ns: u64| super::load::seconds(ns);
    let mut why: BTreeMap<&str, usize> = BTreeMap::new();
    for left in &of.left_out {
        *why.entry(left.what).or_default() += 1;
    }
    let what = match &of.left_out[..] {
        [one] => format!(
            "{} between snapshots {} ({}) and {} ({} UTC): {}",
            one.what,
            one.first,
            figure::instant(one.from_unix_ns),
            one.last,
            figure::instant(one.to_unix_ns),
            one.reason
        ),
        all => {
            let kinds: Vec<String> =
                why.iter().map(|(what, times)| format!("{what} {times} times")).collect();
            format!(
                "{}, first after {}, last before {} UTC (see Times Left Out)",
                kinds.join(", "),
                figure::instant(first.from_unix_ns),
                figure::instant(all.last().map_or(0, |last| last.to_unix_ns))
            )
        }
    };
    let out_ns = left_out_ns(of);
    Some(figure::visible(&format!(
        "INCOMPLETE: {what}. What happened in these {} is not known and left out; the figures are \
         what was counted in the other {}, \
         added up.",
        seconds(out_ns),
        seconds(of.elapsed_ns)
    )))
}

/// How long the times are that are left out, together.
pub(super) fn left_out_ns(of: &Interval) -> u64 {
    of.left_out.iter().fold(0, |sum, left| sum.saturating_add(left.elapsed_ns))
}

/// How many times left out are listed.
const LEFT_OUT: usize = 50;

/// The times that are left out of the figures.
pub(super) fn left_out(intervals: &[&Interval]) -> Table {
    let mut table = Table::new("Times Left Out");
    if intervals.len() > 1 {
        table = table.text("Set", "Which of the two intervals.");
    }
    table = table
        .figures("After Snap", "", "The last snapshot before it.")
        .figures("From", "UTC", "When that was taken.")
        .figures("Before Snap", "", "The first snapshot after it.")
        .figures("To", "UTC", "When that was taken.")
        .figures("Length", "s", "How much time passed between them.")
        .text("Why", "What was found.");
    for (index, of) in intervals.iter().enumerate() {
        for left in &of.left_out {
            let set = (intervals.len() > 1).then(|| Cell::text(["1st", "2nd"][index.min(1)]));
            let cells = [
                Cell::count(Some(left.first.number())),
                Cell::text(figure::instant(left.from_unix_ns)),
                Cell::count(Some(left.last.number())),
                Cell::text(figure::instant(left.to_unix_ns)),
                Cell::seconds(left.elapsed_ns as f64 / 1e9),
                Cell::text(format!("{}: {}", left.what, left.reason)),
            ];
            table.row(set.into_iter().chain(cells).collect());
        }
    }
    table.first(LEFT_OUT, super::io::REST);
    table
}

/// What an interval is called: its label, else its database.
pub(super) fn name_of(of: &Interval) -> String {
    if of.label.is_empty() { of.end.source.database.clone() } else { of.label.clone() }
}

/// The columns `First (1st)` and `Second (2nd)`, or one called `value` if there is one interval.
pub(super) fn value_columns(
    table: Table,
    intervals: &[&Interval],
    value: &str,
    explanation: &str,
) -> Table {
    match intervals.len() {
        1 => table.text(value, explanation),
        _ => ORDINALS.iter().fold(table, |table, ordinal| table.text(ordinal, explanation)),
    }
}

/// Behind a name or a title where the machine is not the database's.
const OF_RECORDER: &str = "of the recorder; the database is on another machine";

/// What a section about the machine is called: whose machine it is, if not the database's.
pub(super) fn host_title(intervals: &[&Interval]) -> String {
    let remote: Vec<&str> = intervals
        .iter()
        .zip(["1st", "2nd"])
        .filter(|(of, _)| of.is_remote())
        .map(|(_, ordinal)| ordinal)
        .collect();
    match (remote.len(), intervals.len()) {
        (0, _) => "Host".to_owned(),
        (some, all) if some == all => format!("Host ({OF_RECORDER})"),
        _ => format!("Host ({}: {OF_RECORDER})", remote.join(", ")),
    }
}

/// The name of the machine, and whose it is, if not the database's.
pub(super) fn host_name(of: &Interval) -> Option<String> {
    let name = of.end.host.name.clone()?;
    Some(if of.is_remote() { format!("{name} ({OF_RECORDER})") } else { name })
}

/// Host name, platform, processors, memory.
pub(super) fn host(intervals: &[&Interval]) -> Table {
    let table = Table::new(host_title(intervals)).text("Host", "What it is.");
    let mut table =
        value_columns(table, intervals, "Value", "As the system says at the end of the interval.");
    let counted = |count: u32| if count > 0 { count.to_string() } else { "not known".to_owned() };
    type Row = (&'static str, fn(&crate::snapshot::host::HostStat) -> Option<String>);
    let rows: [Row; 4] = [
        ("Host Name", |host| host.name.clone()),
        ("Platform", |host| host.platform.clone()),
        ("CPUs", |host| host.cpus.map(|cpus| cpus.threads.to_string())),
        ("Memory", |host| host.memory.map(|memory| figure::bytes(memory.total_bytes as f64))),
    ];
    for (name, value) in rows {
        let values: Vec<Option<String>> = intervals
            .iter()
            .map(|of| if name == "Host Name" { host_name(of) } else { value(&of.end.host) })
            .collect();
        if values.iter().any(Option::is_some) {
            let cells = values.into_iter().map(|value| value.map_or(Cell::Empty, Cell::text));
            table.row(std::iter::once(Cell::text(name)).chain(cells).collect());
        }
        if name == "CPUs" && intervals.iter().any(|of| of.end.host.cpus.is_some()) {
            for (name, pick) in [("Cores", 0), ("Sockets", 1)] {
                let cells = intervals.iter().map(|of| {
                    let counts =
                        of.end.host.cpus.map(|cpus| counted([cpus.cores, cpus.sockets][pick]));
                    counts.map_or(Cell::Empty, Cell::text)
                });
                table.row(std::iter::once(Cell::text(name)).chain(cells).collect());
            }
        }
    }
    table
}

/// Doubts about the measurement, each with the interval it is about if there are two.
pub(super) fn warnings(intervals: &[&Interval]) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, of) in intervals.iter().enumerate() {
        for warning in of.warnings.iter().cloned().chain(more_cpu_than_time(of)) {
            lines.push(match intervals.len() {
                1 => warning,
                _ => format!("{}: {warning}", ORDINALS[index.min(1)]),
            });
        }
    }
    lines
}

/// Said where processors worked for longer than requests were there: shares add up to more than a
/// hundred then.
fn more_cpu_than_time(of: &Interval) -> Option<String> {
    let (cpu, time) =
        of.db_cpu_ns.zip(of.db_time_ns).filter(|(cpu, time)| *time > 0 && cpu > time)?;
    Some(format!(
        "DB CPU is {} % of DB time, more than all of it: the source counts processor time of \
         helpers of a \
         request, or of a request that has not ended, which it does not count as DB time. Shares \
         of DB time \
         add up to more than 100 %.",
        figure::percent(cpu as f64 / time as f64 * 100.0)
    ))
}

/// What the bytes lie on, at the end of each interval.
pub(super) fn media(intervals: &[&Interval]) -> Table {
    let mut table = Table::new("Media");
    if intervals.len() > 1 {
        table = table.text("Set", "Which of the two intervals.");
    }
    table = table
        .text("Tier", "The tier's name, or home.")
        .text("Medium", "What it is.")
        .text("Label", "EMULATED: it only stands for persistent memory.")
        .figures("Size", "", "Its size.")
        .figures("Used", "", "How much of it was used at the end of the interval.")
        .figures("Used", "%", "The used part of it.");
    for (index, of) in intervals.iter().enumerate() {
        for medium in &of.end.media {
            let mut cells = Vec::new();
            if intervals.len() > 1 {
                cells.push(Cell::text(["1st", "2nd"][index.min(1)]));
            }
            let size = (medium.bytes > 0).then_some(medium.bytes as f64);
            cells.extend([
                Cell::text(&medium.name),
                Cell::text(&medium.kind),
                Cell::text(if medium.emulated { "EMULATED" } else { "" }),
                Cell::bytes(size),
                Cell::bytes(size.map(|_| medium.used_bytes as f64)),
                Cell::percent(size.map(|size| medium.used_bytes as f64 / size * 100.0)),
            ]);
            table.row(cells);
        }
    }
    table
}

/// Settings, those that differ first.
pub(super) fn settings(intervals: &[&Interval]) -> Table {
    let table = Table::new("Settings").text("Setting", "Its name.");
    let mut table =
        value_columns(table, intervals, "Value", "Its value at the end of the interval.");
    if intervals.len() > 1 {
        table = table.text("Differs", "Whether the two intervals had different values.");
    }
    let names: BTreeSet<&String> =
        intervals.iter().flat_map(|of| of.end.source.settings.keys()).collect();
    let mut rows = Vec::new();
    for name in names {
        let values: Vec<Option<&String>> =
            intervals.iter().map(|of| of.end.source.settings.get(name)).collect();
        let differs = values.windows(2).any(|pair| pair[0] != pair[1]);
        let mut cells = vec![Cell::text(name)];
        cells.extend(values.into_iter().map(|value| value.map_or(Cell::Empty, Cell::text)));
        if intervals.len() > 1 {
            cells.push(Cell::text(if differs { "differs" } else { "" }));
        }
        rows.push((!differs, cells));
    }
    rows.sort_by_key(|(same, _)| *same);
    table.rows = rows.into_iter().map(|(_, cells)| cells).collect();
    table.first(ROWS, super::io::REST);
    table
}

/// A list is cut by what its rows say only if it is longer than this.
const LONG: usize = 30;

/// The waits that happened, without those of a long list that took less than a millisecond
/// together; and how many these are.
pub(super) fn worth_listing<'a>(
    waits: impl Iterator<Item = &'a WaitDelta>,
) -> (Vec<&'a WaitDelta>, usize) {
    let mut waits: Vec<&WaitDelta> = waits.filter(|wait| wait.count > 0).collect();
    let all = waits.len();
    if all > LONG {
        waits.retain(|wait| wait.total_ns >= 1_000_000);
    }
    let brief = all - waits.len();
    (waits, brief)
}

/// Every wait event of the intervals that is listed: whose name it is and what is waited for.
pub(super) fn explanations<'a>(intervals: &[&'a Interval]) -> Table {
    let mut table = Table::new("Wait Events Explained")
        .text("Event", "Its name.")
        .text("Wait Class", "The class it is added up in; (bg) marks waits of background work.")
        .text("Name", "Whose name it is: Oracle's where the meaning is the same, else our own.")
        .text("What Is Waited For", "In a sentence.");
    let mut events = BTreeMap::new();
    let listed = |of: &&'a Interval| match of.waits.len() > LONG {
        true => worth_listing(of.waits.iter()).0,
        false => of.waits.iter().collect(),
    };
    for wait in intervals.iter().flat_map(listed) {
        events.entry((&wait.name, wait.class, wait.background)).or_insert(wait);
    }
    // What nobody has explained explains nothing: its class is in the table of its waits.
    let explained = |wait: &&WaitDelta| !super::time::help(&wait.name, &wait.help).is_empty();
    for wait in events.into_values().filter(explained) {
        let mut class = wait.class.name().to_owned();
        if wait.background {
            class.push_str(" (bg)");
        }
        let mut help = super::time::help(&wait.name, &wait.help);
        if let Some(outer) = known::inside(&wait.name).filter(|_| !wait.background) {
            help.push_str(&format!(" Its time is also in the time of {outer}."));
        }
        let whose = if known::is_oracle_event(&wait.name) { "Oracle" } else { "own" };
        table.row(vec![
            Cell::text(&wait.name),
            Cell::text(class),
            Cell::text(whose),
            Cell::text(help.trim()),
        ]);
    }
    table.first(ROWS, super::io::REST);
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::made::{Made, minute};
    use crate::render;
    use tiersmith_events::WaitClass;

    /// A minute with this DB time, sessions at its beginning, and connections made in it.
    fn clients(db_time_s: u64, before: u64, connected: u64) -> Made {
        let mut made = minute().counter(statistic::LOGONS, connected);
        made.end.db_time_ns = Some(db_time_s * 1_000_000_000);
        (made.begin.sessions, made.end.sessions) = (Some(before), Some(1));
        made
    }

    #[test]
    fn more_active_sessions_than_clients_is_said_first_of_all() {
        // Eight clients that connected and went in it were active all the time: nothing is wrong.
        assert_eq!(banners(&[&clients(8 * 60, 1, 8).interval()]), [""; 0]);
        assert_eq!(banners(&[&clients(8 * 60, 8, 0).interval()]), [""; 0]);
        // A little more is the error of two clocks.
        assert_eq!(banners(&[&clients(8 * 60 + 40, 8, 0).interval()]), [""; 0]);

        let mut more = clients(32 * 60, 8, 1);
        for snapshot in [&mut more.begin, &mut more.end] {
            snapshot.media.push(crate::MediumStat {
                name: "fast".to_owned(),
                kind: "a file".to_owned(),
                emulated: true,
                bytes: 1,
                used_bytes: 1,
            });
        }
        let said = banners(&[&more.interval()]);
        assert!(
            said[0].starts_with("MORE ACTIVE SESSIONS THAN CLIENTS: 32.00 on average"),
            "{said:?}"
        );
        assert!(
            said[0].contains("8 sessions were connected at the beginning and 1 connected later")
        );
        assert!(said[1].starts_with("EMULATED"), "{said:?}");
        let two = banners(&[&minute().interval(), &more.interval()]);
        assert!(two[0].starts_with("Second (2nd): MORE ACTIVE"), "{two:?}");

        // What is not known is not guessed.
        let mut unknown = clients(32 * 60, 8, 1);
        (unknown.begin.sessions, unknown.end.sessions) = (None, None);
        assert_eq!(banners(&[&unknown.interval()]), [""; 0]);
        let mut oracle = clients(32 * 60, 8, 1);
        oracle.begin.source.product = "Oracle".to_owned();
        oracle.end.source.product = "Oracle".to_owned();
        let said = banners(&[&oracle.interval()]);
        assert!(said.len() == 1 && said[0].starts_with("NO WAIT EVENTS"), "{said:?}");
        let waited = oracle.wait("log file sync", tiersmith_events::WaitClass::Commit, false, 1, 1);
        assert_eq!(banners(&[&waited.interval()]), [""; 0]);
    }

    #[test]
    fn an_interval_that_is_too_short_says_so_before_the_rest() {
        let mut short = minute();
        short.end.monotonic_ns = short.begin.monotonic_ns + 250_000_000;
        short.end.host.cpu = None;
        let said = banners(&[&short.interval()]);
        assert!(
            said[0].starts_with("TOO SHORT: this interval is 0.250 s long. Below 30 s"),
            "{said:?}"
        );
        assert_eq!(banners(&[&minute().interval()]), [""; 0]);
    }

    #[test]
    fn only_events_with_an_explanation_are_explained() {
        let made = minute().wait("log file sync", WaitClass::Commit, false, 10, 1).wait(
            "SQL*Net message from dblink",
            WaitClass::Network,
            false,
            10,
            1,
        );
        let table = explanations(&[&made.interval()]);
        assert_eq!(table.rows.len(), 1, "{:?}", table.rows);
        assert_eq!(table.rows[0][0].shown(), "log file sync");
    }

    #[test]
    fn no_sentence_of_a_report_has_back_ticks() {
        let made = minute().wait("log file sync", WaitClass::Commit, false, 10_000, 40).wait(
            "free buffer waits",
            WaitClass::Configuration,
            false,
            100,
            40,
        );
        let mut interval = made.interval();
        interval.end.source.product = "PostgreSQL".to_owned();
        let report = crate::report(&interval);
        assert!(
            render::text(&report).contains("tiersmith attach HOME --fast PATH"),
            "{}",
            render::text(&report)
        );
        assert!(
            !render::text(&report).contains('`') && !render::html(&report).contains('`'),
            "{}",
            render::text(&report)
        );
    }
}
