//! The report of one interval, in the order of Oracle's AWR report.
//!
//! Sections: Report Summary, Wait Events Statistics, samples of sessions, SQL Statistics, Databases
//! and Users, IO Stats, Cache and Redo Statistics, Replication, Instance Activity Statistics,
//! Segment Statistics, Host, Media and Settings, Wait Events Explained, Activity Over Time. Read
//! next: `time.rs` for where DB time went.

use super::load::{self, per};
use super::{
    ROWS, Report, Section, front, io, latency, more, objects, over_time, printed, segments, sizes,
    tables, time,
};
use crate::chart::{Chart, Series};
use crate::figure;
use crate::snapshot::known;
use crate::snapshot::known::statistic;
use crate::table::{Cell, Quantity, Table};
use crate::{CounterDelta, Interval, IoStat, WaitDelta};

/// How many events Oracle calls the top ones.
pub(super) const TOP: usize = 10;

/// Of how many events the distribution is drawn.
pub(super) const DRAWN: usize = 4;

/// The report of one interval.
pub fn report(of: &Interval) -> Report {
    let snaps =
        tables::numbers(of).map_or(String::new(), |(begin, end)| format!(", Snaps: {begin}-{end}"));
    let title = format!("WORKLOAD REPOSITORY report for DB: {}{snaps}", of.end.source.database);
    let mut report = Report::new(title, of.label.clone(), &[of]);
    report.add(summary(of));
    report.add(waits(of));
    report.add(more::samples(&[of]));
    report.add(more::seen(of));
    report.add(more::statements(of));
    report.add(objects::section(of));
    let mut reads_and_writes = Section::new("IO Stats");
    io::tables_of(of, &mut reads_and_writes);
    reads_and_writes.table_if_any(io_table(of));
    report.add(reads_and_writes);
    let mut cache = Section::new("Cache and Redo Statistics");
    cache.table_if_any(redo(of));
    cache.table_if_any(cache_table(of));
    report.add(cache);
    report.add(objects::replication(of));
    let mut activity = Section::new("Instance Activity Statistics");
    activity.table_if_any(activity_table(of));
    activity.table_if_any(levels(of));
    report.add(activity);
    report.add(segments::section(of));
    let mut host = Section::new(&tables::host_title(&[of]));
    host.table_if_any(cpu_table(of));
    host.table_if_any(disks(of));
    host.table_if_any(more::pressure(&[of]));
    report.add(host);
    let mut rest = Section::new("Media and Settings");
    rest.table_if_any(tables::media(&[of]));
    rest.table_if_any(tables::settings(&[of]));
    report.add(rest);
    let mut explained = Section::new("Wait Events Explained");
    explained.table_if_any(tables::explanations(&[of]));
    report.add(explained);
    report.add(over_time::section(&[of]));
    report.add(printed::section(of));
    report.opening.0 = Some(front::front(of));
    report
}

fn summary(of: &Interval) -> Section {
    let mut section = Section::new("Report Summary");
    section.table(database(of));
    section.table_if_any(tables::host(&[of]));
    section.table(snapshots(of));
    section.table_if_any(tables::left_out(&[of]));
    for warning in tables::warnings(&[of]) {
        section.text(format!("Warning: {warning}"));
    }
    section.table_if_any(more::findings_table(&[of]));
    section.table_if_any(more::advice_table(&[of]));
    section.charts(over_time::charts(&[of]));
    section.table_if_any(load_profile(of));
    section.table_if_any(efficiency(of));
    section.table_if_any(sizes::settings_changed(of));
    let bars = time::bars(of, TOP);
    if !bars.is_empty() {
        section.charts([Chart::Bars {
            title: "Top foreground events by total wait time".to_owned(),
            explanation: "Seconds in the interval, summed over all sessions.".to_owned(),
            quantity: Quantity::Seconds,
            bars,
        }]);
    }
    section.table(top_events(of));
    section.table(wait_classes(of));
    if let Some(table) = account(of) {
        let (series, values) = time::parts(&[of]);
        let rows = values.into_iter().map(|values| ("DB time".to_owned(), values)).collect();
        section.charts([Chart::Stacked {
            title: "DB time by wait class".to_owned(),
            explanation: time::parts_explained(&[of]),
            quantity: Quantity::Nanoseconds,
            series,
            rows,
        }]);
        section.table(table);
    }
    section.table_if_any(io::profile(of));
    section.table_if_any(sizes::memory(&[of]));
    section.table_if_any(sizes::caches(&[of]));
    section
}

fn database(of: &Interval) -> Table {
    let source = &of.end.source;
    let mut table = Table::new("Database")
        .text("DB Name", "The name of the database.")
        .text("Product", "What kind of database it is.")
        .text("Release", "Its version.")
        .text("Instance", "Which run of it: counters begin at zero with each.")
        .text("Path", "Where it lies.");
    let texts =
        [&source.database, &source.product, &source.version, &source.instance, &source.path];
    table.row(texts.into_iter().map(Cell::text).collect());
    table
}

fn snapshots(of: &Interval) -> Table {
    let mut table = Table::new("Snapshots")
        .text("", "Begin or end of the interval, its length, and the DB time in it.")
        .figures(
            "Snap Id",
            "",
            "The number of the snapshot: as the imported report prints it, else in its repository.",
        )
        .figures(
            "Snap Time",
            tables::zone(of),
            "When the snapshot was taken; a length for elapsed and DB time.",
        )
        .figures("Sessions", "", "Sessions connected at that instant.")
        .figures("In Repository", "", "The number of an imported snapshot in its repository.");
    let [shown, own] = tables::number_cells(of);
    let sides = [("Begin Snap:", &of.begin), ("End Snap:", &of.end)];
    for (((name, snapshot), shown), own) in sides.into_iter().zip(shown).zip(own) {
        table.row(vec![
            Cell::text(name),
            shown,
            Cell::text(figure::instant(snapshot.taken_unix_ns)),
            Cell::count(snapshot.sessions),
            own,
        ]);
    }
    table.row(vec![Cell::text("Elapsed:"), Cell::Empty, Cell::text(load::seconds(of.elapsed_ns))]);
    if !of.left_out.is_empty() {
        let ns = tables::left_out_ns(of);
        table.row(vec![Cell::text("Left Out:"), Cell::Empty, Cell::text(load::seconds(ns))]);
    }
    if let Some(ns) = of.db_time_ns {
        table.row(vec![Cell::text("DB Time:"), Cell::Empty, Cell::text(load::seconds(ns))]);
    }
    if let Some(sessions) = of.active_sessions() {
        let sessions = Cell::text(figure::number(sessions));
        table.row(vec![Cell::text("Average Active Sessions:"), Cell::Empty, sessions]);
    }
    table.without_empty_columns()
}

fn load_profile(of: &Interval) -> Table {
    let mut table = Table::new("Load Profile")
        .text("", "What is counted.")
        .figures("Per Second", "", "By elapsed time.")
        .figures("Per Transaction", "", "By transactions that ended, well or not.")
        .figures("Per Exec", "", "By statements run.")
        .figures("Per Call", "", "By calls of clients.");
    for row in load::profile(of) {
        table.row(vec![
            Cell::text(row.name),
            Cell::number(row.total / of.elapsed_s()),
            Cell::number(per(row.total, of.transactions())),
            Cell::number(per(row.total, of.counter(statistic::EXECUTE_COUNT))),
            Cell::number(per(row.total, of.counter(statistic::USER_CALLS))),
        ]);
    }
    table.without_empty_columns()
}

fn efficiency(of: &Interval) -> Table {
    let mut table = Table::new("Instance Efficiency Percentages (Target 100%)")
        .text("Statistic", "What is compared.")
        .figures("Value", "%", "The share.")
        .text("What It Is", "In a sentence.");
    for row in load::efficiency(of) {
        table.row(vec![
            Cell::text(row.name),
            Cell::percent(row.percent),
            Cell::text(row.explanation),
        ]);
    }
    table
}

fn top_events(of: &Interval) -> Table {
    let mut table = Table::new(format!("Top {TOP} Foreground Events by Total Wait Time"))
        .text("Event", "The wait event, or DB CPU: time in which a processor worked for requests.")
        .figures("Waits", "", "How often something was waited for.")
        .figures("Total Wait Time", "sec", "Time waited, summed over all sessions.")
        .figures("Avg Wait", "", "Time waited by waits.")
        .figures("% DB time", "", "Time waited by DB time.")
        .text("Wait Class", "The class the event is added up in.");
    for row in time::timed(of).into_iter().take(TOP) {
        if row.inside && table.notes.is_empty() {
            table.note(time::INSIDE_NOTE);
        }
        table.row(vec![
            Cell::text(row.marked()),
            Cell::count(row.count),
            Cell::seconds(row.total_ns as f64 / 1e9),
            Cell::nanoseconds(row.mean_ns()),
            Cell::percent(time::of_db_time(of, row.total_ns as f64)),
            Cell::text(row.class_name()),
        ]);
    }
    table
}

fn wait_classes(of: &Interval) -> Table {
    let mut table = Table::new("Wait Classes by Total Wait Time")
        .text("Wait Class", "The class, or DB CPU.")
        .figures("Waits", "", "How often something was waited for.")
        .figures("Total Wait Time", "sec", "Time waited, summed over all sessions.")
        .figures("Avg Wait Time", "", "Time waited by waits.")
        .figures("% DB time", "", "Time waited by DB time.")
        .figures(
            "Avg Active Sessions",
            "",
            "Time waited by elapsed time: sessions that waited at any instant, on average.",
        );
    let mut rows: Vec<(u64, Option<u64>, &str)> = time::classes(of)
        .into_iter()
        .map(|row| (row.total_ns, Some(row.count), row.class.name()))
        .collect();
    rows.extend(of.db_cpu_ns.map(|ns| (ns, None, time::DB_CPU)));
    rows.sort_by_key(|(ns, ..)| std::cmp::Reverse(*ns));
    for (total_ns, count, name) in rows {
        let ns = total_ns as f64;
        table.row(vec![
            Cell::text(name),
            Cell::count(count),
            Cell::seconds(ns / 1e9),
            Cell::nanoseconds(count.and_then(|count| per(ns, Some(count)))),
            Cell::percent(time::of_db_time(of, ns)),
            Cell::number(ns / of.elapsed_ns as f64),
        ]);
    }
    table
}

fn account(of: &Interval) -> Option<Table> {
    let mut table = Table::new("Where DB Time Went")
        .text("Part", "DB CPU, the wait classes, and what makes them add up.")
        .figures("Time", "sec", "In the interval, summed over all sessions.")
        .figures("% DB time", "", "The part's share; they add up to a hundred.");
    let lines = time::account(of)?;
    let overlap = lines.iter().any(|line| line.name == time::OVERLAP);
    for line in lines {
        let percent = Cell::percent(time::of_db_time(of, line.ns));
        table.row(vec![Cell::text(line.name), Cell::seconds(line.ns / 1e9), percent]);
    }
    let ns = of.db_time_ns? as f64;
    table.row(vec![
        Cell::text("DB time"),
        Cell::seconds(ns / 1e9),
        Cell::percent(time::of_db_time(of, ns)),
    ]);
    if overlap {
        table.note(time::overlap_note(&[of]));
    }
    Some(table)
}

/// What Oracle's report says of time beside DB time and DB CPU.
fn time_model(of: &Interval) -> Table {
    let mut table = Table::new("Time Model Statistics")
        .text("Statistic Name", "What the time was spent in; one may lie in another.")
        .figures("Time", "s", "Summed over all sessions.")
        .figures("% of DB Time", "", "By DB time; empty for background work, which is not in it.");
    let mut rows: Vec<(&str, u64)> = of
        .counters
        .iter()
        .filter_map(|counter| Some((counter.name.strip_prefix(known::TIME_MODEL)?, counter.value)))
        .collect();
    rows.sort_by_key(|(name, ns)| (std::cmp::Reverse(*ns), *name));
    for (name, ns) in rows {
        let share = time::of_db_time(of, ns as f64).filter(|_| !name.starts_with("background"));
        table.row(vec![Cell::text(name), Cell::seconds(ns as f64 / 1e9), Cell::percent(share)]);
    }
    table
}

fn waits(of: &Interval) -> Section {
    let mut section = Section::new("Wait Events Statistics");
    section.table_if_any(time_model(of));
    let mut foreground = of.foreground();
    let mut idle: Vec<&WaitDelta> = of
        .waits
        .iter()
        .filter(|wait| !wait.background && wait.class == tiersmith_events::WaitClass::Idle)
        .collect();
    foreground.append(&mut idle);
    let share = |wait: &WaitDelta| match wait.class {
        tiersmith_events::WaitClass::Idle => None,
        _ => time::of_db_time(of, wait.total_ns as f64),
    };
    section.table(events(of, "Foreground Wait Events", "% DB time", &foreground, &share));
    let background = of.background();
    // Oracle's share is of all the time of background processes, which its report tells.
    let all = of.counter(known::BACKGROUND_ELAPSED).unwrap_or_else(|| {
        background.iter().fold(0u64, |sum, wait| sum.saturating_add(wait.total_ns))
    });
    let share = |wait: &WaitDelta| (all > 0).then(|| wait.total_ns as f64 / all as f64 * 100.0);
    section.table(events(of, "Background Wait Events", "% bg time", &background, &share));
    let drawn = time::timed(of).into_iter().filter(|row| row.class.is_some()).take(DRAWN);
    let only = |name: &str| Series { name: name.to_owned(), colour: 1 };
    section
        .charts(drawn.filter_map(|row| latency::chart(&row.name, false, &[(of, only(&row.name))])));
    section.charts(over_time::heat_maps(&[of]));
    section.table_if_any(latency::percentiles(of));
    for table in latency::histograms(of) {
        section.table(table);
    }
    section
}

fn events(
    of: &Interval,
    caption: &str,
    share_title: &str,
    waits: &[&WaitDelta],
    share: &dyn Fn(&WaitDelta) -> Option<f64>,
) -> Table {
    let mut table = Table::new(caption)
        .text("Event", "The wait event.")
        .figures("Waits", "", "How often something was waited for.")
        .figures("Total Wait Time", "s", "Time waited, summed over all sessions.")
        .figures("Avg wait", "", "Time waited by waits.")
        .figures("Waits /txn", "", "Waits by transactions.")
        .figures("Bytes", "", "What was moved in these waits; empty if nothing or not counted.")
        .figures(
            share_title,
            "",
            "Time waited by DB time, or by the time of all background waits.",
        );
    let (shown, brief) = tables::worth_listing(waits.iter().copied());
    for wait in shown {
        let inside = wait.is_inside_another();
        if inside && table.notes.is_empty() {
            table.note(time::INSIDE_NOTE);
        }
        table.row(vec![
            Cell::text(time::marked(&wait.name, inside)),
            Cell::count(wait.count),
            Cell::seconds(wait.total_ns as f64 / 1e9),
            Cell::nanoseconds(wait.mean_ns()),
            Cell::number(per(wait.count as f64, of.transactions())),
            Cell::bytes((wait.bytes > 0).then_some(wait.bytes as f64)),
            Cell::percent(share(wait)),
        ]);
    }
    table.first(ROWS, io::REST);
    if brief > 0 {
        table.note(format!(
            "Events of less than a millisecond together, which are not listed: {brief}. The JSON \
             form has them in its snapshots."
        ));
    }
    let silent = waits.iter().filter(|wait| wait.count == 0).count();
    if silent > 0 {
        table
            .note(format!("Events of the source that did not occur and are not listed: {silent}."));
    }
    table
}

fn io_table(of: &Interval) -> Table {
    let mut table = Table::new("IO by File Class and Tier")
        .text("File Class", "What the files are: data, redo, or what else the source tells apart.")
        .text("Tier", "Where they were read or written: the tier's name, or home.")
        .figures("Reads: Data", "", "Bytes read.")
        .figures("Read Reqs per sec", "", "Requests that read, by elapsed time.")
        .figures("Read Data per sec", "", "Bytes read by elapsed time.")
        .figures("Avg Read", "", "Time reading by requests that read.")
        .figures("Writes: Data", "", "Bytes written.")
        .figures("Write Reqs per sec", "", "Requests that wrote, by elapsed time.")
        .figures("Write Data per sec", "", "Bytes written by elapsed time.")
        .figures("Avg Write", "", "Time writing by requests that wrote.");
    let mut rows: Vec<&IoStat> = of.io.iter().filter(|io| io.reads > 0 || io.writes > 0).collect();
    rows.sort_by_key(|io| std::cmp::Reverse(io.read_bytes.saturating_add(io.write_bytes)));
    for io in rows {
        let side = |requests: u64, bytes: u64, ns: u64| {
            [
                Cell::bytes(bytes as f64),
                Cell::number(requests as f64 / of.elapsed_s()),
                Cell::bytes(bytes as f64 / of.elapsed_s()),
                // No time for requests that were made: the source counts them and does not time
                // them.
                Cell::nanoseconds(per(ns as f64, Some(requests)).filter(|_| ns > 0)),
            ]
        };
        let mut cells = vec![Cell::text(&io.file_class), Cell::text(&io.tier)];
        cells.extend(side(io.reads, io.read_bytes, io.read_ns));
        cells.extend(side(io.writes, io.write_bytes, io.write_ns));
        table.row(cells);
    }
    table.first(io::ROWS, io::REST);
    table
}

fn redo(of: &Interval) -> Table {
    let mut table = Table::new("Redo Statistics")
        .text("Statistic", "What is measured.")
        .figures("Value", "", "In the interval.")
        .figures("Per Second", "", "By elapsed time.")
        .figures("Per Transaction", "", "By transactions.");
    if let Some(size) = of.counter(statistic::REDO_SIZE) {
        let bytes = size as f64;
        let per_transaction = Cell::bytes(per(bytes, of.transactions()));
        table.row(vec![
            Cell::text("redo size"),
            Cell::bytes(bytes),
            Cell::bytes(bytes / of.elapsed_s()),
            per_transaction,
        ]);
    }
    for (event, count, mean) in [
        ("log file parallel write", "redo writes", "redo write time, average"),
        ("redo sync", "redo syncs", "redo sync time, average"),
        ("log file sync", "redo synch writes", "redo synch time, average"),
    ] {
        // By requests themselves and by whoever does it for them: it is one redo.
        let waits: Vec<&WaitDelta> = of.waits.iter().filter(|wait| wait.name == event).collect();
        let sum = |pick: fn(&WaitDelta) -> u64| {
            waits.iter().fold(0u64, |sum, wait| sum.saturating_add(pick(wait)))
        };
        let (waited, ns, bytes) =
            (sum(|wait| wait.count), sum(|wait| wait.total_ns), sum(|wait| wait.bytes));
        // The source's own counter says how many there were; its events, which may leave some out,
        // how long they took.
        let Some(counted) = of.counter(count).or((!waits.is_empty()).then_some(waited)) else {
            continue;
        };
        table.row(vec![
            Cell::text(count),
            Cell::count(counted),
            Cell::number(counted as f64 / of.elapsed_s()),
            Cell::number(per(counted as f64, of.transactions())),
        ]);
        if waited > 0 {
            table.row(vec![Cell::text(mean), Cell::nanoseconds(per(ns as f64, Some(waited)))]);
        }
        if bytes > 0 {
            let size = Cell::bytes(per(bytes as f64, Some(waited)));
            table.row(vec![Cell::text("redo write size, average"), size]);
        }
    }
    table
}

/// Counters of the flash cache and of blocks on their way between tier and home.
fn cache_table(of: &Interval) -> Table {
    let names = [
        statistic::ZERO_COPY_READS,
        statistic::READS_OPTIMIZED,
        statistic::BYTES_OPTIMIZED,
        "blocks destaged",
        "blocks evicted",
        "blocks moved into the tier",
        "blocks moved home",
    ];
    let is_shown = |name: &str| names.contains(&name) || name.starts_with("flash cache ");
    let mut table = statistics("Flash Cache Statistics");
    // Of the many reasons for which a block is skipped, those that there were.
    let is_nothing = |counter: &&CounterDelta| {
        counter.value == 0 && counter.name.starts_with("flash cache insert skip")
    };
    let counters = of.counters.iter().filter(|counter| is_shown(&counter.name));
    for counter in counters.filter(|counter| !is_nothing(counter)) {
        table.row(statistic_row(of, &counter.name, counter.value));
    }
    table
}

fn activity_table(of: &Interval) -> Table {
    let mut table = statistics("Instance Activity Stats");
    let mut counters: Vec<_> =
        of.counters.iter().filter(|counter| !counter.name.starts_with(known::TIME_MODEL)).collect();
    // What is left out, if there are more than fit, says least.
    counters.sort_by_key(|counter| {
        let known = !counter.help.is_empty() || !known::help_of_statistic(&counter.name).is_empty();
        let key = known::KEY_STATISTICS.iter().any(|words| counter.name.starts_with(words));
        (!(known || key), std::cmp::Reverse(counter.value))
    });
    let fits = counters.len().min(tables::ROWS);
    counters[..fits].sort_by(|a, b| a.name.cmp(&b.name));
    for counter in counters {
        let name = if counter.unit.is_empty() {
            counter.name.clone()
        } else {
            format!("{} ({})", counter.name, counter.unit)
        };
        table.row(statistic_row(of, &name, counter.value));
    }
    table.first(tables::ROWS, io::REST);
    table
}

fn statistics(caption: &str) -> Table {
    Table::new(caption)
        .text("Statistic", "The counter, with its unit.")
        .figures("Total", "", "How much it grew in the interval.")
        .figures("per Second", "", "By elapsed time.")
        .figures("per Trans", "", "By transactions.")
}

fn statistic_row(of: &Interval, name: &str, value: u64) -> Vec<Cell> {
    vec![
        Cell::text(name),
        Cell::count(value),
        Cell::number(value as f64 / of.elapsed_s()),
        Cell::number(per(value as f64, of.transactions())),
    ]
}

fn levels(of: &Interval) -> Table {
    let mut table = Table::new("Instance Activity Stats - Absolute Values")
        .text("Statistic", "A value that goes up and down, with its unit.")
        .figures("Begin Value", "", "At the beginning of the interval.")
        .figures("End Value", "", "At its end.");
    for level in &of.end.levels {
        let value = |value: u64| match level.unit.as_str() {
            "bytes" => Cell::bytes(value as f64),
            _ => Cell::count(value),
        };
        let begin = of.begin.levels.iter().find(|begin| begin.name == level.name);
        let name = match level.unit.is_empty() {
            true => level.name.clone(),
            false => format!("{} ({})", level.name, level.unit),
        };
        table.row(vec![
            Cell::text(name),
            begin.map_or(Cell::Empty, |level| value(level.value)),
            value(level.value),
        ]);
    }
    table.first(tables::ROWS, io::REST);
    table
}

/// Shares of the host's processor time: user, system, waiting for disks, idle, stolen.
pub(super) fn cpu_shares(of: &Interval) -> Option<[f64; 5]> {
    let times = of.host_cpu?;
    let mut parts =
        [times.user_ns, times.system_ns, times.iowait_ns, times.idle_ns, times.steal_ns]
            .map(|ns| ns as f64);
    let all: f64 = parts.iter().sum();
    if of.end.source.is_oracle() {
        // To Oracle a processor that waits for a disk is idle as well.
        parts[3] += parts[2];
    }
    (all > 0.0).then(|| parts.map(|part| part / all * 100.0))
}

/// The share of the host's busy processor time that this process used.
pub(super) fn process_share(of: &Interval) -> Option<f64> {
    let times = of.host_cpu?;
    let busy = times.user_ns as f64 + times.system_ns as f64;
    of.process_cpu_ns.filter(|_| busy > 0.0).map(|ns| ns as f64 / busy * 100.0)
}

fn cpu_table(of: &Interval) -> Table {
    let mut table = Table::new("Host CPU")
        .figures("CPUs", "", "Hardware threads.")
        .figures(
            "Load Average Begin",
            "",
            "Threads that ran or wanted to in the minute before the interval.",
        )
        .figures("Load Average End", "", "The same in the minute before its end.")
        .figures("%User", "", "Processor time in programs.")
        .figures("%System", "", "Processor time in the kernel.")
        .figures("%WIO", "", "Processors idle while a disk request was under way.")
        .figures("%Idle", "", "Processors idle.")
        .figures("%Steal", "", "Taken away by the machine below this virtual machine.")
        .figures(
            "%Busy by process",
            "",
            "Share of the busy processor time that this process used.",
        );
    if let Some(shares) = cpu_shares(of) {
        let load =
            |host: &crate::snapshot::host::HostStat| Cell::number(host.load.map(|load| load.one));
        let cpus = of.end.host.cpus.map(|cpus| u64::from(cpus.threads));
        let mut cells = vec![Cell::count(cpus), load(&of.begin.host), load(&of.end.host)];
        cells.extend(shares.map(Cell::percent));
        cells.push(Cell::percent(process_share(of)));
        table.row(cells);
    }
    table
}

fn disks(of: &Interval) -> Table {
    let mut table = Table::new("Host Disks")
        .text("Disk", "Its name.")
        .figures("Reads /s", "", "Requests that read, by elapsed time.")
        .figures("Read /s", "", "Bytes read by elapsed time.")
        .figures("Avg Read", "", "Time reading by requests that read.")
        .figures("Writes /s", "", "Requests that wrote, by elapsed time.")
        .figures("Write /s", "", "Bytes written by elapsed time.")
        .figures("Avg Write", "", "Time writing by requests that wrote.")
        .figures(
            "Flushes /s",
            "",
            "Requests that made what was written before durable, by elapsed time.",
        )
        .figures("Avg Flush", "", "Their time by their number.")
        .figures("%Busy", "", "Elapsed time in which a request was under way.");
    for disk in &of.disks {
        let mean = |ms: u64, count: u64| Cell::nanoseconds(per(ms as f64 * 1e6, Some(count)));
        table.row(vec![
            Cell::text(&disk.name),
            Cell::number(disk.reads as f64 / of.elapsed_s()),
            Cell::bytes(disk.read_bytes as f64 / of.elapsed_s()),
            mean(disk.read_ms, disk.reads),
            Cell::number(disk.writes as f64 / of.elapsed_s()),
            Cell::bytes(disk.write_bytes as f64 / of.elapsed_s()),
            mean(disk.write_ms, disk.writes),
            Cell::number(disk.flushes.map(|count| count as f64 / of.elapsed_s())),
            disk.flushes.zip(disk.flush_ms).map_or(Cell::Empty, |(count, ms)| mean(ms, count)),
            Cell::percent(disk.busy_ms as f64 * 1e6 / of.elapsed_ns as f64 * 100.0),
        ]);
    }
    table.first(io::ROWS, io::REST);
    table.without_empty_columns()
}

#[cfg(test)]
mod tests {
    use tiersmith_events::WaitClass;

    use super::*;
    use crate::findings::made::minute;

    #[test]
    fn of_too_many_statistics_those_that_matter_and_the_largest_are_listed() {
        let mut made = minute().counter("zz redo unlike", 900).counter("redo synch long waits", 1);
        for number in 0..tables::ROWS as u64 {
            made = made.counter(&format!("a statistic {number}"), 10 + number);
        }
        let table = activity_table(&made.interval());
        let listed = |name: &str| table.rows.iter().any(|row| row[0].shown() == name);
        assert!(
            listed("redo synch long waits")
                && listed("zz redo unlike")
                && listed("a statistic 599")
        );
        assert!(!listed("a statistic 0") && table.rows.len() == tables::ROWS);
    }

    #[test]
    fn redo_is_that_of_requests_and_of_the_background_together() {
        let rows = |of: &Interval| -> Vec<Vec<String>> {
            redo(of).rows.iter().map(|row| row.iter().take(2).map(Cell::shown).collect()).collect()
        };
        let by = |requests: u64, background: u64| {
            minute().wait("redo sync", WaitClass::Commit, false, requests, requests / 10).wait(
                "redo sync",
                WaitClass::SystemIo,
                true,
                background,
                background / 5,
            )
        };
        let (syncs, mean) = ("redo syncs", "redo sync time, average");
        assert_eq!(rows(&by(0, 50).interval()), [[syncs, "50"], [mean, "200.00ms"]]);
        assert_eq!(rows(&by(50, 50).interval()), [[syncs, "100"], [mean, "150.00ms"]]);
        let counted = by(50, 50).counter(syncs, 120);
        assert_eq!(rows(&counted.interval()), [[syncs, "120"], [mean, "150.00ms"]]);
    }
}
