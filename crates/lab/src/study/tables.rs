//! The tables of a study: data, written once, shown as text and as a page.
//!
//! **Invariant**: a figure that is doubted carries a mark in its row, and the table says what the
//! mark means.

use tiersmith_awr::{Cell, Interval, Table};

use super::operations;
use super::result::{Row, StudyResult};
use crate::case::Placement;
use crate::published::{LABEL, Published};
use crate::workload::tpcc;

/// Behind the name of a case whose figures are doubted.
pub const MARK: &str = " (?)";

pub(super) fn name(row: &Row<'_>) -> String {
    format!("{}{}", row.case.id, if row.doubted { MARK } else { "" })
}

/// What was run, with its version.
fn server(row: &Row<'_>) -> String {
    let source = &row.run.measured.end.source;
    format!("{} {}", source.product, source.version)
}

fn is_marked(rows: &[Row<'_>]) -> bool {
    rows.iter().any(|row| row.doubted)
}

/// The comparison without its rows; `programs`: with what load programs measured, `rounds`: with
/// the slowest and the fastest of several.
fn columns_of_comparison(pct: u32, programs: bool, rounds: bool) -> Table {
    let mut table = Table::new(format!(
        "UPDATE_PCT {pct}: throughput and commits, each case beside its baseline"
    ))
    .text("Case", "A case of the study.")
    .text("Server", "What was run, where the cases are of several servers.")
    .text("On tier", "What the case puts on the fast tier.")
    .figures("Trans /s", "", "Transactions committed per second.")
    .figures("x base", "", "Transactions per second over the baseline's.")
    .figures("Execs /s", "", "SQL statements run per second: SELECT and UPDATE.")
    .figures("x base", "", "Executions per second over the baseline's.")
    .figures(
        "Commit avg",
        "",
        "Mean time of COMMIT, as the client sees it; of a SET, where that is a transaction.",
    )
    .figures("Commit p99", "", "99 of 100 commits took no longer.")
    .figures("Select avg", "", "Mean time of a SELECT of WORK_UNIT - 1 rows, or of a GET.")
    .figures(
        "Worst p99",
        "",
        "The largest p99 of statements and commits in a twentieth of the run: stalls.",
    );
    if programs {
        table = table
            .figures(
                "Trans avg",
                "",
                "Mean time of a transaction, as the load program measured it.",
            )
            .figures(
                "Trans p99",
                "",
                "99 of 100 transactions took no longer, as the load program measured it.",
            );
    }
    if rounds {
        table = table.figures("least", "", "Executions per second of the slowest round.").figures(
            "most",
            "",
            "Executions per second of the fastest round.",
        );
    }
    table
}

/// What a database administrator asks first: how many transactions, and what a commit costs.
pub fn comparison(result: &StudyResult, pct: u32) -> Table {
    let rows = result.rows(pct);
    let programs = rows.iter().any(|row| row.run.measured.transaction.is_some());
    let rounds = result.rounds > 1;
    let mut table = columns_of_comparison(pct, programs, rounds);
    let servers = rows.iter().any(|row| server(row) != server(&rows[0]));
    for row in &rows {
        let measured = &row.run.measured;
        let some = |latency: &crate::run::Latency, ns: f64| (latency.count > 0).then_some(ns);
        let mut cells = vec![
            Cell::text(name(row)),
            Cell::text(if servers { server(row) } else { String::new() }),
            Cell::text(row.case.placement.name()),
            Cell::number((measured.transactions > 0).then(|| measured.transactions_per_s())),
            Cell::number(row.transactions_ratio().filter(|_| measured.transactions > 0)),
            Cell::number(measured.executes_per_s()),
            Cell::number(row.executes_ratio()),
            Cell::nanoseconds(some(&measured.commit, measured.commit.mean_ns)),
            Cell::nanoseconds(some(&measured.commit, measured.commit.p99_ns as f64)),
            Cell::nanoseconds(some(&measured.select, measured.select.mean_ns)),
            Cell::nanoseconds(measured.p99_slices_ns.iter().max().map(|ns| *ns as f64)),
        ];
        if programs {
            let latency = measured.transaction.filter(|latency| latency.count > 0);
            cells.push(Cell::nanoseconds(latency.map(|latency| latency.mean_ns)));
            cells.push(Cell::nanoseconds(latency.map(|latency| latency.p99_ns as f64)));
        }
        if rounds {
            cells.extend([Cell::number(row.spread.0), Cell::number(row.spread.1)]);
        }
        table.row(cells);
    }
    leave_out_empty(&mut table);
    add_notes(&mut table, result, &rows);
    table
}

/// The waits without their rows; `counted`: with bytes of redo, `pages`: with whole pages in it.
fn columns_of_waits(pct: u32, counted: bool, pages: bool) -> Table {
    let mut table = Table::new(format!("UPDATE_PCT {pct}: DB time and waits"))
        .text("Case", "A case of the study.")
        .figures(
            "DB time /exec",
            "",
            "DB time over executions: what one statement costs, commit \
                                       included.",
        )
        .figures("DB CPU %", "", "Share of DB time in which a processor worked outside of waits.")
        .figures(
            "log file sync avg",
            "",
            "Mean wait of a commit for its redo to be durable. \
                                           Zero-length where the write was durable already. Of a \
                                           server: its redo sync.",
        )
        .figures(
            "log file parallel write avg",
            "",
            "Mean time of a write to the redo; on the tier \
                                                     it is durable then, in a file it is not. Of a \
                                                     server: WALWrite, InnoDB's write.",
        )
        .figures(
            "Redo /trans",
            "",
            "Time to write redo and make it durable, for each transaction: \
                                     both events before.",
        )
        .text("Top event", "The wait event with most time, and its share of DB time.")
        .figures("Reads from tier %", "", "Share of block reads that the tier answered.");
    if counted {
        table = table.figures(
            "Redo bytes /trans",
            "",
            "Bytes of redo for each transaction, as the database counts them.",
        );
    }
    if pages {
        table = table.figures(
            "Whole pages /trans",
            "",
            "Pages written whole into the redo for each transaction: the first change of a page \
             after a checkpoint (full_page_writes). The \
             fewer transactions since a checkpoint, the more; so of two runs the slower has more, \
             and bytes with it.",
        );
    }
    table
}

/// What the time went into.
pub fn waits(result: &StudyResult, pct: u32) -> Table {
    let rows = result.rows(pct);
    let whole = |row: &Row<'_>| row.run.whole_pages_per_transaction();
    let counted = rows.iter().any(|row| row.run.redo_bytes_per_transaction().is_some());
    let pages = rows.iter().any(|row| whole(row).is_some());
    let mut table = columns_of_waits(pct, counted, pages);
    for row in &rows {
        let run = row.run;
        let interval = run.interval().ok();
        let db_time_ns = interval.as_ref().and_then(|i| i.db_time_ns).map(|ns| ns as f64);
        let share = |ns: Option<u64>| Some(100.0 * ns? as f64 / db_time_ns.filter(|ns| *ns > 0.0)?);
        let cpu = share(interval.as_ref().and_then(|i| i.db_cpu_ns));
        let executes = (run.measured.executes > 0).then_some(run.measured.executes as f64);
        let mut cells = vec![
            Cell::text(name(row)),
            Cell::nanoseconds(db_time_ns.zip(executes).map(|(ns, n)| ns / n)),
            Cell::percent(cpu),
            Cell::nanoseconds(run.redo_sync_mean_ns()),
            Cell::nanoseconds(run.redo_write_mean_ns()),
            Cell::nanoseconds(run.redo_ns_per_transaction()),
            Cell::text(interval.as_ref().and_then(top_event).unwrap_or_default()),
            Cell::percent(run.tier_read_share().map(|share| share * 100.0)),
        ];
        if counted {
            cells.push(Cell::number(run.redo_bytes_per_transaction()));
        }
        if pages {
            cells.push(Cell::number(whole(row)));
        }
        table.row(cells);
    }
    leave_out_empty(&mut table);
    add_notes(&mut table, result, &rows);
    if table.rows.iter().flatten().any(|cell| *cell == Cell::Empty) {
        table.note(
            "An empty cell was not measured: the case has no such thing, or the database does not \
             tell it.",
        );
    }
    table
}

/// Takes away the columns in which no run has anything, and names them: a server does not tell all
/// that SQLite does, nor the other way round.
fn leave_out_empty(table: &mut Table) {
    let is_empty = |cell: Option<&Cell>| match cell {
        Some(Cell::Text(text)) => text.is_empty(),
        cell => matches!(cell, None | Some(Cell::Empty)),
    };
    if table.rows.is_empty() {
        return;
    }
    let mut left_out = Vec::new();
    for n in (1..table.columns.len()).rev() {
        if table.rows.iter().all(|row| is_empty(row.get(n))) {
            left_out.insert(0, table.columns.remove(n).title);
            for row in table.rows.iter_mut().filter(|row| n < row.len()) {
                row.remove(n);
            }
        }
    }
    left_out.dedup();
    if !left_out.is_empty() {
        table.note(format!("Left out, because no run has it: {}.", left_out.join("; ")));
    }
}

/// What must be read with the figures wherever the table goes.
pub(super) fn add_notes(table: &mut Table, result: &StudyResult, rows: &[Row<'_>]) {
    if is_marked(rows) {
        table.note(format!(
            "{}: the figure, or its baseline's, cannot be trusted; the reasons are listed under \
             warnings.",
            MARK.trim()
        ));
    }
    if result.places.emulated && rows.iter().any(|row| row.case.placement != Placement::Home) {
        table.note(
            "EMULATED: figures of cases with something on the tier are of memory that \
                    stands for persistent memory.",
        );
    }
    if let Some(model) = &result.home_model {
        table.note(format!(
            "MODELLED: the home's storage was slowed down to the latencies of the profile {model}."
        ));
    }
}

fn top_event(interval: &Interval) -> Option<String> {
    let top = interval.foreground().into_iter().find(|wait| wait.count > 0)?;
    let share = interval
        .db_time_ns
        .filter(|ns| *ns > 0)
        .map(|all| 100.0 * top.total_ns as f64 / all as f64);
    Some(match share {
        Some(share) => format!("{} {share:.0} %", top.name),
        None => top.name.clone(),
    })
}

/// The published figures that this study measures too, as ratios to the baseline; nothing if there
/// are none.
pub fn beside_published(result: &StudyResult) -> Option<Table> {
    let mut table = Table::new(
        "Beside published figures: ratios to the baseline, at UPDATE_PCT \
                                100",
    )
    .text("Case", "The case of this study that stands for the experiment.")
    .text("Published", "Document/case.")
    .text("Figure", "What was printed.")
    .figures("Printed", "", "What the document printed, over what it printed of its baseline.")
    .figures(
        "Here",
        "",
        "The same ratio measured here. Times of redo are those to write it \
                              and make it durable, for each transaction.",
    );
    for case in &result.cases {
        for published in result.published.iter().filter(|p| case.published.contains(&p.id)) {
            for figure in &published.figures {
                if let (Some(printed), Some(here)) =
                    (figure.ratio(), here(result, &case.id, &figure.name))
                {
                    table.row(vec![
                        Cell::text(&case.id),
                        Cell::text(&published.id),
                        // The long word would be broken in the text, which has a hundred columns.
                        Cell::text(figure.label().replace("transactions", "trans")),
                        Cell::number(printed),
                        Cell::number(here),
                    ]);
                }
            }
        }
    }
    table.note(LABEL);
    if result.runs.iter().any(|run| operations::nopm(&run.measured).is_some()) {
        table.note(format!("The ratios measured here are {}.", tpcc::LABEL));
    }
    note_readings(&mut table, result);
    if result.places.emulated {
        table.note(
            "EMULATED: the ratios measured here are of memory that stands for persistent memory.",
        );
    }
    (!table.rows.is_empty()).then_some(table)
}

/// How documents are to be read that print their gains in two ways.
fn note_readings(table: &mut Table, result: &StudyResult) {
    let read = result.published.iter().filter(|p| !p.source.reading.is_empty());
    let document = |p: &Published| p.id.split('/').next().unwrap_or_default().to_owned();
    let mut readings: Vec<String> =
        read.map(|p| format!("{}: {}", document(p), p.source.reading)).collect();
    readings.sort();
    readings.dedup();
    for reading in readings {
        table.note(reading);
    }
}

/// Everything that public documents printed for the cases, with its source; nothing if no case
/// names one.
pub fn published(result: &StudyResult) -> Option<Table> {
    if result.published.is_empty() {
        return None;
    }
    let mut table = Table::new("Everything the documents printed for these cases")
        .text("Case", "The case of this study that stands for the experiment.")
        .text("Published", "Document/case.")
        .text("Figure", "What was printed.")
        .figures("Baseline", "", "The figure of the document's baseline, where it printed one.")
        .figures("Printed", "", "The figure.");
    for case in &result.cases {
        for published in result.published.iter().filter(|p| case.published.contains(&p.id)) {
            for figure in &published.figures {
                table.row(vec![
                    Cell::text(&case.id),
                    Cell::text(&published.id),
                    Cell::text(format!("{} {}", figure.label(), figure.unit()).trim()),
                    Cell::number(figure.baseline),
                    Cell::number(figure.value),
                ]);
            }
        }
    }
    table.rows.dedup();
    table.note(LABEL);
    note_readings(&mut table, result);
    let mut sources: Vec<String> = result
        .published
        .iter()
        .map(|p| {
            format!(
                "{}: {}, {} {}; {}; {}",
                p.id.split('/').next().unwrap_or(""),
                p.source.title,
                p.source.publisher,
                p.source.year,
                p.source.database,
                p.source.load
            )
        })
        .collect();
    sources.sort();
    sources.dedup();
    for source in sources {
        table.note(source);
    }
    Some(table)
}

/// The ratio to the baseline measured here, for the figures that mean the same.
fn here(result: &StudyResult, case: &str, figure: &str) -> Option<f64> {
    let rows = result.rows(100);
    let row = rows.iter().find(|row| row.case.id == case)?;
    let redo = || {
        Some(
            row.run.redo_ns_per_transaction()?
                / row.baseline?.redo_ns_per_transaction().filter(|ns| *ns > 0.0)?,
        )
    };
    match figure {
        "executes_per_s" | "requests_ratio" => row.executes_ratio(),
        "shorter_ratio" => row.commit_ratio(),
        "transactions_per_s" | "transactions_ratio" | "tpm_gain_pct" | "throughput_ratio" => {
            row.transactions_ratio()
        }
        // Oracle's log writer waits in this event until its write is durable; so does the device of
        // the last.
        "log_file_parallel_write_avg_us" | "log_file_sync_avg_ms" | "log_write_us" => redo(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_that_nobody_fills_is_left_out_and_named() {
        let mut table = Table::new("figures")
            .text("Case", "A case.")
            .figures("One", "", "Some have it.")
            .text("None", "Nobody has it.")
            .figures("Last", "", "Nobody has it.");
        table.row(vec![Cell::text("a"), Cell::Empty, Cell::text(""), Cell::Empty]);
        table.row(vec![Cell::text("b"), Cell::number(1.0), Cell::text(""), Cell::Empty]);
        leave_out_empty(&mut table);
        let titles: Vec<&str> = table.columns.iter().map(|column| column.title.as_str()).collect();
        assert_eq!(titles, ["Case", "One"]);
        assert_eq!(
            table.rows,
            [vec![Cell::text("a"), Cell::Empty], vec![Cell::text("b"), Cell::number(1.0)]]
        );
        assert_eq!(table.notes, ["Left out, because no run has it: None; Last."]);
    }
}
