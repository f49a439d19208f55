//! Tables of what a load tells apart itself: TPC-C's throughput, and the times of each kind.
//!
//! **Invariant**: a table of TPC-C's transactions says whose they are not.

use tiersmith_awr::{Cell, Table};

use super::result::{Row, StudyResult};
use super::tables::{add_notes, name};
use crate::run::Measured;
use crate::workload::tpcc;

/// What only TPC-C's transactions are called.
const NEW_ORDER: &str = "New-Order";
const TAKEN_BACK: &str = "Taken back";

fn count(measured: &Measured, kind: &str) -> Option<u64> {
    measured.kinds.iter().find(|one| one.name == kind).map(|one| one.latency.count)
}

fn per_minute(measured: &Measured, count: u64) -> f64 {
    count as f64 * 60.0 / measured.elapsed_s
}

/// New-Orders committed, per minute.
pub fn nopm(measured: &Measured) -> Option<f64> {
    count(measured, NEW_ORDER).map(|orders| per_minute(measured, orders))
}

/// Transactions of all kinds, per minute; those that were taken back belong to the mix.
pub fn tpm(measured: &Measured) -> Option<f64> {
    count(measured, NEW_ORDER)?;
    let all = measured.kinds.iter().map(|kind| kind.latency.count).sum();
    Some(per_minute(measured, all))
}

/// The tables that there are.
pub fn tables(result: &StudyResult, pct: u32) -> impl Iterator<Item = Table> {
    [throughput(result, pct), kinds(result, pct)].into_iter().flatten()
}

/// Throughput as the programs that are derived from TPC-C print it; nothing of another load.
fn throughput(result: &StudyResult, pct: u32) -> Option<Table> {
    let rows = result.rows(pct);
    let mut table = Table::new("TPC-C's transactions: throughput, each case beside its baseline")
        .text("Case", "A case of the study.")
        .text("On tier", "What the case puts on the fast tier.")
        .figures("NOPM", "", "New-Orders committed per minute.")
        .figures("x base", "", "NOPM over the baseline's.")
        .figures("TPM", "", "Transactions of all five kinds per minute.")
        .figures("x base", "", "TPM over the baseline's.")
        .figures("Taken back", "", "New-Orders with an item that nobody sells: one of a hundred.")
        .figures(
            "Tried again",
            "",
            "Times that a transaction was begun again, ended for another one.",
        );
    for row in &rows {
        let measured = &row.run.measured;
        let Some((orders, all)) = nopm(measured).zip(tpm(measured)) else { continue };
        let over = |mine: f64, of: fn(&Measured) -> Option<f64>| {
            row.baseline
                .and_then(|base| of(&base.measured))
                .filter(|base| *base > 0.0)
                .map(|base| mine / base)
        };
        let again = measured.counted.iter().find(|(name, _)| name == "tried again");
        table.row(vec![
            Cell::text(name(row)),
            Cell::text(row.case.placement.name()),
            Cell::number(orders),
            Cell::number(over(orders, nopm)),
            Cell::number(all),
            Cell::number(over(all, tpm)),
            Cell::number(count(measured, TAKEN_BACK).map(|count| count as f64)),
            Cell::number(again.map(|(_, count)| *count as f64)),
        ]);
    }
    finish(table, result, &rows)
}

/// How long each kind took.
fn kinds(result: &StudyResult, pct: u32) -> Option<Table> {
    let rows = result.rows(pct);
    let mut table = Table::new("Times of each kind of transaction")
        .text("Case", "A case of the study.")
        .text("Kind", "What the load tells apart.")
        .figures("Count", "", "How many ended in the measured time.")
        .figures("Avg", "", "Mean time, from the first beginning to the end.")
        .figures("p50", "", "Half took no longer.")
        .figures("p95", "", "95 of 100 took no longer.")
        .figures("p99", "", "99 of 100 took no longer.")
        .figures("p99.9", "", "999 of 1000 took no longer.");
    for row in &rows {
        for kind in row.run.measured.kinds.iter().filter(|kind| kind.latency.count > 0) {
            let latency = &kind.latency;
            table.row(vec![
                Cell::text(name(row)),
                Cell::text(&kind.name),
                Cell::number(latency.count as f64),
                Cell::nanoseconds(latency.mean_ns),
                Cell::nanoseconds(latency.median_ns as f64),
                Cell::nanoseconds(latency.p95_ns as f64),
                Cell::nanoseconds(latency.p99_ns as f64),
                Cell::nanoseconds(latency.p999_ns as f64),
            ]);
        }
    }
    finish(table, result, &rows)
}

fn finish(mut table: Table, result: &StudyResult, rows: &[Row<'_>]) -> Option<Table> {
    if rows.iter().any(|row| nopm(&row.run.measured).is_some()) {
        table.note(format!("These figures are {}.", tpcc::LABEL));
    }
    add_notes(&mut table, result, rows);
    (!table.rows.is_empty()).then_some(table)
}
