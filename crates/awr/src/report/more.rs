//! Sections that both reports have for what live sources tell: findings, statements, samples of
//! sessions, pressure on the host.
//!
//! Samples are never in a table with measured time; their tables say that they are sampled and how
//! far they may be off.

use super::{Section, tables};
use crate::figure;
use crate::findings::findings;
use crate::snapshot::sampling::{error_of_share, who};
use crate::table::{Cell, Table};
use crate::{CPU, Interval, SampledWho, Sampling, StatementStat};

/// How many statements a table lists.
const STATEMENTS: usize = 20;

/// How much of a statement's text stands in a table.
const TEXT: usize = 160;

/// How much of it names it in the list of whole texts.
const BEGINS: usize = 40;

/// The captions of what was found and what to do, which a page shows on its first screen.
pub(crate) const FINDINGS: &str = "Findings";
pub(crate) const ADVICE: &str = "What To Do";

/// What the rules found; an empty table if they found nothing.
pub(super) fn findings_table(of: &[&Interval]) -> Table {
    let mut table = Table::new(FINDINGS);
    if of.len() > 1 {
        table = table.text("Set", "Which of the two intervals.");
    }
    table = table
        .text("Finding", "In a few words.")
        .figures(
            "Impact",
            "% DB time",
            "How much of DB time it is about; empty if that is not known.",
        )
        .text("Evidence", "The figures it rests on; what to do is in the next table.");
    for (index, of_one) in of.iter().enumerate() {
        for finding in findings(of_one) {
            let mut cells = Vec::new();
            if of.len() > 1 {
                cells.push(Cell::text(["1st", "2nd"][index.min(1)]));
            }
            cells.extend([
                Cell::text(&finding.name),
                Cell::percent(finding.impact_percent),
                Cell::text(finding.evidence.join(" ")),
            ]);
            table.row(cells);
        }
    }
    table
}

/// What to do about each finding, once if both intervals have it; an empty table if there is none.
pub(super) fn advice_table(of: &[&Interval]) -> Table {
    let mut table = Table::new(ADVICE).text("Finding", "The finding it is about.").text(
        "Advice",
        "What can be set, run or looked at, and what a fast tier would do about it, with the \
         command.",
    );
    for finding in of.iter().flat_map(|of| findings(of)) {
        let tier =
            finding.tiersmith.map_or(String::new(), |text| format!(" With Tiersmith: {text}"));
        let cells =
            vec![Cell::text(&finding.name), Cell::text(format!("{}{tier}", finding.advice))];
        if !table.rows.contains(&cells) {
            table.row(cells);
        }
    }
    table
}

/// Statements of one interval.
pub(super) fn statements(of: &Interval) -> Section {
    let mut section = Section::new("SQL Statistics");
    let rows = &of.statements.rows;
    if rows.is_empty() {
        super::plans::add_to(of, &mut section);
        return section;
    }
    section.table(list(of, "SQL ordered by Elapsed Time", rows.iter().collect()));
    type Order = (&'static str, fn(&StatementStat) -> u64);
    let orders: [Order; 5] = [
        ("SQL ordered by Gets", |row| gets(row).unwrap_or(0)),
        ("SQL ordered by Reads", |row| row.pages_read.unwrap_or(0)),
        ("SQL ordered by Executions", |row| row.calls),
        ("SQL ordered by Redo", |row| row.redo_bytes.unwrap_or(0)),
        ("SQL ordered by Temporary Files", |row| row.temp_bytes.unwrap_or(0)),
    ];
    let mut listed: Vec<&StatementStat> = rows.iter().take(STATEMENTS).collect();
    for (caption, key) in orders {
        let mut sorted: Vec<&StatementStat> = rows.iter().filter(|row| key(row) > 0).collect();
        sorted.sort_by_key(|row| std::cmp::Reverse(key(row)));
        let new: Vec<&StatementStat> = sorted
            .iter()
            .take(STATEMENTS)
            .filter(|row| !listed.iter().any(|known| known.id == row.id))
            .copied()
            .collect();
        listed.extend(new);
        if !sorted.is_empty() {
            section.table(list(of, caption, sorted));
        }
    }
    section.table_if_any(texts(&listed));
    super::plans::add_to(of, &mut section);
    section
}

/// Pages asked of the page cache.
fn gets(row: &StatementStat) -> Option<u64> {
    row.pages_hit.zip(row.pages_read).map(|(hit, read)| hit.saturating_add(read))
}

/// The statements of the tables that are cut off there, whole.
fn texts(rows: &[&StatementStat]) -> Table {
    let mut table = Table::new("Complete List of SQL Text")
        .text("Begins", "What the tables above show of it, or the beginning of that.")
        .text(
            "SQL Text",
            "The whole text, literals taken out, as far as the source and the repository keep it.",
        )
        .details();
    for row in rows.iter().filter(|row| row.text.chars().count() > TEXT) {
        let begins: String = row.text.chars().take(BEGINS).collect();
        table.row(vec![Cell::text(begins), Cell::text(&row.text)]);
    }
    table
}

fn shown(row: &StatementStat) -> String {
    let text: String = row.text.chars().take(TEXT).collect();
    match text.is_empty() {
        true => format!("(text not kept) {}", row.id),
        false => text,
    }
}

/// The number by which an administrator finds the statement in the source: the id without what it
/// is told apart by besides.
fn query_id<'a>(of: &Interval, row: &'a StatementStat) -> &'a str {
    match of.end.source.product.as_str() {
        "PostgreSQL" => row.id.split('/').next().unwrap_or_default(),
        "MariaDB" | "MySQL" => row.id.split('/').nth(1).unwrap_or_default(),
        _ if of.end.source.is_oracle() => &row.id,
        _ => "",
    }
}

fn list(of: &Interval, caption: &str, rows: Vec<&StatementStat>) -> Table {
    let mut table = Table::new(caption)
        .figures("Elapsed Time", "s", "Time spent in it, waiting included, summed over all runs.")
        .figures("Executions", "", "How often it was run.")
        .figures("per Exec", "", "Elapsed time by executions.")
        .figures("%DB time", "", "Elapsed time by DB time.")
        .figures("Rows", "", "Rows it returned or changed.")
        .figures("Gets", "pages", "Pages asked of the page cache.")
        .figures("Reads", "pages", "Pages that the page cache did not hold.")
        .figures("Redo", "", "Redo it made.")
        .figures(
            "Temp",
            "",
            "Temporary files it wrote: sorts and hashes that did not fit into memory.",
        )
        .text("Query Id", "The source's own number of the statement, to look it up there.")
        .text("SQL", "The statement, its literals taken out.");
    let all = rows.len();
    // Where no statement has any, the source does not count them.
    let counts_rows = rows.iter().any(|row| row.rows > 0);
    for row in rows.into_iter().take(STATEMENTS) {
        table.row(vec![
            Cell::seconds(row.total_ns as f64 / 1e9),
            Cell::count(row.calls),
            Cell::nanoseconds((row.calls > 0).then(|| row.total_ns as f64 / row.calls as f64)),
            Cell::percent(super::time::of_db_time(of, row.total_ns as f64)),
            Cell::count(counts_rows.then_some(row.rows)),
            Cell::count(gets(row)),
            Cell::count(row.pages_read),
            Cell::bytes(row.redo_bytes.map(|bytes| bytes as f64)),
            Cell::bytes(row.temp_bytes.filter(|bytes| *bytes > 0).map(|bytes| bytes as f64)),
            Cell::text(query_id(of, row)),
            Cell::text(shown(row)),
        ]);
    }
    if all > STATEMENTS {
        table.note(format!(
            "The first {STATEMENTS}; {} more statements ran. {}",
            figure::count((all - STATEMENTS) as u64),
            super::io::REST
        ));
    }
    table.without_empty_columns()
}

/// Statements of two intervals, by how much their share of DB time changed; of their time by
/// elapsed time if DB time is not told.
pub(super) fn statements_compared(both: [&Interval; 2]) -> Table {
    let mut table = Table::new("SQL Ordered by Change of Elapsed Time")
        .figures("1st %DB time", "", "Time spent in it by DB time, in the first interval.")
        .figures("2nd %DB time", "", "Time spent in it by DB time, in the second interval.")
        .figures("Diff", "points", "Second minus first, in points of per cent.")
        .figures(
            "1st",
            "s/s",
            "Time spent in it by elapsed time, in the first interval; where DB time is not told.",
        )
        .figures(
            "2nd",
            "s/s",
            "Time spent in it by elapsed time, in the second interval; where DB time is not told.",
        )
        .figures("1st per Exec", "", "Time by executions in the first interval.")
        .figures("2nd per Exec", "", "Time by executions in the second interval.")
        .figures("1st Executions", "", "Runs in the first interval.")
        .figures("2nd Executions", "", "Runs in the second interval.")
        .text("SQL", "The statement, its literals taken out.");
    // The same text is the same statement also after a restart, which gives it another number.
    let key =
        |row: &StatementStat| if row.text.is_empty() { row.id.clone() } else { row.text.clone() };
    let mut sums = std::collections::BTreeMap::<String, [(u64, u64); 2]>::new();
    for (side, of) in both.iter().enumerate() {
        for row in &of.statements.rows {
            let sum = &mut sums.entry(key(row)).or_default()[side];
            *sum = (sum.0.saturating_add(row.total_ns), sum.1.saturating_add(row.calls));
        }
    }
    let rate = |side: usize, ns: u64| ns as f64 / both[side].elapsed_ns as f64;
    let share = |side: usize, ns: u64| super::time::of_db_time(both[side], ns as f64);
    let shares = |row: &[(u64, u64); 2]| share(0, row[0].0).zip(share(1, row[1].0));
    let change = |row: &[(u64, u64); 2]| {
        shares(row)
            .map_or_else(|| rate(1, row[1].0) - rate(0, row[0].0), |(first, second)| second - first)
            .abs()
    };
    let mut rows: Vec<_> = sums.into_iter().collect();
    let all = rows.len();
    rows.sort_by(|a, b| change(&b.1).total_cmp(&change(&a.1)));
    for (text, sides) in rows.into_iter().take(STATEMENTS) {
        let each = |side: usize| {
            let (ns, calls) = sides[side];
            Cell::nanoseconds((calls > 0).then(|| ns as f64 / calls as f64))
        };
        table.row(vec![
            Cell::percent(share(0, sides[0].0)),
            Cell::percent(share(1, sides[1].0)),
            Cell::percent(shares(&sides).map(|(first, second)| second - first)),
            Cell::number(shares(&sides).is_none().then(|| rate(0, sides[0].0))),
            Cell::number(shares(&sides).is_none().then(|| rate(1, sides[1].0))),
            each(0),
            each(1),
            Cell::count(sides[0].1),
            Cell::count(sides[1].1),
            Cell::text(text.chars().take(TEXT).collect::<String>()),
        ]);
    }
    if all > STATEMENTS {
        table.note(format!(
            "The first {STATEMENTS}; {} more are left out here. {}",
            figure::count((all - STATEMENTS) as u64),
            super::io::REST
        ));
    }
    table.without_empty_columns()
}

/// Samples of active sessions, of one interval or two.
pub(super) fn samples(of: &[&Interval]) -> Section {
    let mut section = Section::new("Active Session Samples (sampled, not measured)");
    for (index, of_one) in of.iter().enumerate() {
        let Some(sampling) = &of_one.sampling else { continue };
        let set = if of.len() > 1 {
            format!("{}: ", tables::ORDINALS[index.min(1)])
        } else {
            String::new()
        };
        let mut table = Table::new(format!(
            "{set}{} looks, one in {} ms: {} active sessions on average",
            figure::count(sampling.looks),
            figure::count(sampling.period_ms),
            figure::number(sampling.active_sessions().unwrap_or(0.0))
        ))
        .text("Event", "What the sessions that were seen did or waited for.")
        .text("Wait Class", "The class of the wait, or CPU.")
        .figures("Seen", "", "Sessions seen in it, summed over all looks.")
        .figures("% Activity", "", "Its share of all sessions seen.")
        .figures(
            "+-",
            "points",
            "The standard error of the share: of chance alone, not of looking late.",
        )
        .figures("Avg Active Sessions", "", "Sessions seen in it by looks.");
        let all = sampling.seen();
        for event in &sampling.events {
            let percent = event.seen as f64 / all.max(1) as f64 * 100.0;
            table.row(vec![
                Cell::text(&event.name),
                Cell::text(&event.class),
                Cell::count(event.seen),
                Cell::percent(percent),
                Cell::number(error_of_share(percent, all)),
                Cell::number(event.seen as f64 / sampling.looks.max(1) as f64),
            ]);
        }
        table.first(super::ROWS, super::io::REST);
        if let Some(measured) = of_one.samples_miss() {
            table.note(format!(
                "Measured were {} active sessions on average: further from the samples than chance \
                 explains. On a busy machine the \
                 sampler gets a processor when others have stopped, and sees less.",
                figure::number(measured)
            ));
        }
        if let Some(measured) = of_one.samples_exceed() {
            table.note(format!(
                "Measured were {} active sessions on average, fewer than the samples saw: a \
                 statement that has not ended is not in the \
                 measured time yet.",
                figure::number(measured)
            ));
        }
        table.note(
            "An estimate: what began and ended between two looks was not seen. It is not \
                    added to measured time.",
        );
        section.table(table);
    }
    section
}

/// How many statements, sessions and blockers a table of who was seen lists.
const SEEN: usize = 20;

/// How many waits stand beside each of them.
const WAITS: usize = 3;

/// The title of [`seen`].
pub(super) const SEEN_TITLE: &str = "Top SQL and Sessions by Wait (sampled, not measured)";

/// Statements that were seen working. No source counts their processor time.
const BY_CPU: &str = "SQL ordered by CPU";

/// Sessions that held others up.
const BLOCKING: &str = "Blocking Sessions";

/// Who was seen in samples: statements, sessions, and those that blocked others. Of one interval.
pub(super) fn seen(of: &Interval) -> Section {
    let mut section = Section::new(SEEN_TITLE);
    let Some(sampling) = &of.sampling else { return section };
    let works = |row: &&SampledWho| row.class == CPU;
    let on_cpu: Vec<SampledWho> = sampling.statements.iter().filter(works).cloned().collect();
    let number = ("Query Id", "The source's own number of the statement, to look it up there.");
    let text = ("SQL", "The statement, its literals taken out.");
    let session = ("Session", "Its number on the server.");
    let did = "Its state, and the statement that it ran last: it waited for no lock itself.";
    for list in [
        SeenList {
            caption: "Top SQL by Active Sessions",
            id: number,
            text,
            rows: &sampling.statements,
        },
        SeenList { caption: BY_CPU, id: number, text, rows: &on_cpu },
        SeenList {
            caption: "Top Sessions",
            id: session,
            text: ("User", "The user and the database."),
            rows: &sampling.sessions,
        },
        SeenList {
            caption: BLOCKING,
            id: session,
            text: ("What it did", did),
            rows: &sampling.blockers,
        },
    ] {
        section.table_if_any(list.table(sampling));
    }
    section
}

/// A table of who was seen: its caption, the title and the explanation of its first and its last
/// column, its rows.
struct SeenList<'a> {
    caption: &'static str,
    id: (&'static str, &'static str),
    text: (&'static str, &'static str),
    rows: &'a [SampledWho],
}

impl SeenList<'_> {
    fn without_rows(&self) -> Table {
        // Time of a blocker is time of those that it held up.
        let [seen, average] = match self.caption == BLOCKING {
            true => [
                "Sessions seen waiting for it, summed over all looks.",
                "Sessions that it held up, on average.",
            ],
            false => {
                ["Sessions seen in it, summed over all looks.", "Sessions seen in it, on average."]
            }
        };
        let mut table = Table::new(self.caption)
            .text(self.id.0, self.id.1)
            .figures("Seen", "", seen)
            .figures("% Activity", "", "Its share of all sessions seen.")
            .figures("Avg Active Sessions", "", average)
            .text("Top Waits", "What was waited for most, each with its share of this row.")
            .text(self.text.0, self.text.1);
        if self.caption == BY_CPU {
            table.columns.retain(|column| column.title != "Top Waits");
        }
        table
    }

    fn table(&self, sampling: &Sampling) -> Table {
        let mut table = self.without_rows();
        for one in who::by_who(self.rows) {
            let share = |seen: u64, all: u64| seen as f64 / all.max(1) as f64 * 100.0;
            let waits = one.events.iter().take(WAITS).map(|row| {
                format!(
                    "{} {} %",
                    figure::visible(&row.event),
                    figure::percent(share(row.seen, one.seen))
                )
            });
            let mut cells = vec![
                Cell::text(one.id),
                Cell::count(one.seen),
                Cell::percent(share(one.seen, sampling.seen())),
                Cell::number(one.seen as f64 / sampling.looks.max(1) as f64),
            ];
            if self.caption != BY_CPU {
                cells.push(Cell::text(waits.collect::<Vec<_>>().join(", ")));
            }
            cells.push(Cell::text(match one.text {
                "" => "(text not kept)".to_owned(),
                text => text.chars().take(TEXT).collect(),
            }));
            table.row(cells);
        }
        table.first(SEEN, super::io::REST);
        table.without_empty_columns()
    }
}

/// Pressure on the host.
pub(super) fn pressure(of: &[&Interval]) -> Table {
    let mut table = Table::new("Host Pressure").text("", "Who waited for what.");
    table = tables::value_columns(
        table,
        of,
        "% of interval",
        "Share of the interval in which it was so.",
    );
    type Line = (&'static str, fn(&crate::snapshot::host::Pressure) -> u64);
    let lines: [Line; 5] = [
        ("some thread waited for a processor", |of| of.cpu_some_us),
        ("some thread waited for a disk", |of| of.io_some_us),
        ("all threads with work waited for a disk", |of| of.io_full_us),
        ("some thread waited for memory", |of| of.memory_some_us),
        ("all threads with work waited for memory", |of| of.memory_full_us),
    ];
    if of.iter().all(|of| of.pressure.is_none()) {
        return table;
    }
    for (name, pick) in lines {
        let share = |of: &&Interval| {
            of.pressure.map(|found| pick(&found) as f64 * 1e3 / of.elapsed_ns as f64 * 100.0)
        };
        table.row(
            std::iter::once(Cell::text(name))
                .chain(of.iter().map(|of| Cell::percent(share(of))))
                .collect(),
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use tiersmith_events::WaitClass;

    use super::*;
    use crate::findings::made::minute;
    use crate::report::Item;
    use crate::{ON_CPU, Seen, Who};

    #[test]
    fn statements_are_ordered_by_reads_temporary_bytes_and_redo() {
        let row = |id: &str, reads: u64, temp: u64, redo: u64| StatementStat {
            id: id.to_owned(),
            text: id.to_owned(),
            calls: 1,
            total_ns: 1,
            pages_hit: Some(0),
            pages_read: Some(reads),
            temp_bytes: Some(temp),
            redo_bytes: Some(redo),
            ..StatementStat::default()
        };
        let mut made = minute();
        made.end.statements = vec![row("a", 1, 300, 20), row("b", 3, 100, 0), row("c", 2, 200, 30)];
        let section = statements(&made.interval());
        let order = |caption: &str| -> Vec<String> {
            let table = section.items.iter().find_map(|item| match item {
                Item::Table(table) if table.caption == caption => Some(table),
                _ => None,
            });
            let rows = &table.unwrap_or_else(|| panic!("no {caption}")).rows;
            rows.iter().map(|row| row.last().map(Cell::shown).unwrap_or_default()).collect()
        };
        assert_eq!(order("SQL ordered by Reads"), ["b", "c", "a"]);
        assert_eq!(order("SQL ordered by Temporary Files"), ["a", "c", "b"]);
        assert_eq!(order("SQL ordered by Redo"), ["c", "a"], "b made none");
    }

    #[test]
    fn a_statement_has_the_number_by_which_its_source_knows_it() {
        for (product, id, shown) in [
            ("PostgreSQL", "-77/10/5", "-77"),
            ("MariaDB", "shop/4f5e", "4f5e"),
            ("Oracle", "0abc", "0abc"),
        ] {
            let mut made = minute();
            made.end.source.product = product.to_owned();
            made.begin.source.product = product.to_owned();
            let of = made.interval();
            let row = StatementStat { id: id.to_owned(), calls: 1, ..StatementStat::default() };
            let table = list(&of, "all", vec![&row]);
            let at = table.columns.iter().position(|column| column.title == "Query Id");
            let cell = at.and_then(|at| table.rows[0].get(at)).map(Cell::shown);
            assert_eq!(cell.as_deref(), Some(shown), "{product}");
        }
    }

    #[test]
    fn statements_are_listed_by_the_processor_time_that_they_were_seen_to_use() {
        let mut made = minute();
        let mut sampling = Sampling::new("s".to_owned(), 1000);
        made.begin.sampling = Some(sampling.clone());
        sampling.looks = 100;
        for at in 0..90 {
            let (event, class, id) = match at {
                0..60 => ("log file sync", Some(WaitClass::Commit), "1"),
                60..80 => (ON_CPU, None, "2"),
                _ => (ON_CPU, None, "1"),
            };
            sampling.saw_session(&Seen {
                event,
                class,
                session: Who { id: "3", text: "u@d" },
                statement: Who { id, text: "select 1" },
                blocker: None,
            });
        }
        made.end.sampling = Some(sampling);
        let section = seen(&made.interval());
        let table = section.items.iter().find_map(|item| match item {
            Item::Table(table) if table.caption == BY_CPU => Some(table),
            _ => None,
        });
        let table = table.expect("a table by processor time");
        let rows: Vec<Vec<String>> =
            table.rows.iter().map(|row| row.iter().map(Cell::shown).collect()).collect();
        assert_eq!(rows[0][..3], ["2", "20", "22.2"], "waits are not in it: {rows:?}");
        assert_eq!(rows[1][..3], ["1", "10", "11.1"]);
        assert!(table.columns.iter().all(|column| column.title != "Top Waits"));
    }
}
