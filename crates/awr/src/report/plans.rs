//! Plans of statements: what ran by which plan, and the plans themselves.
//!
//! Deliberately absent: judgement of a plan; where plans come from (`sources/postgres/plans.rs`).

use super::{Section, io, time};
use crate::Interval;
use crate::table::{Cell, Table};

/// How many plans are listed and shown.
const ROWS: usize = 10;

/// How much of a statement's text stands beside its plan.
const TEXT: usize = 160;

/// Adds the table of plans and their texts to the section of statements.
pub(super) fn add_to(of: &Interval, section: &mut Section) {
    let mut table = Table::new("SQL by Plan")
        .text("Plan", "By this name the plan stands below.")
        .figures("Elapsed Time", "s", "Time of its runs.")
        .figures("%DB time", "", "Elapsed time by DB time.")
        .figures("Executions", "", "Its runs, as far as the server told them.")
        .figures("per Exec", "", "Elapsed time by executions.")
        .figures("Longest", "", "The longest run since plans were counted.")
        .text("Query Id", "The source's own number of the statement.")
        .text("SQL", "The statement, its literals taken out.");
    let mut texts = Vec::new();
    for (at, plan) in of.plans.iter().enumerate() {
        let name = format!("P{}", at + 1);
        // pg_store_plans tells the number alone.
        let known = of.statements.rows.iter().find(|row| {
            !plan.statement.is_empty() && row.id.split('/').next() == Some(plan.statement.as_str())
        });
        let sql = if plan.sql.is_empty() { known.map_or("", |row| &row.text) } else { &plan.sql };
        let sql: String = sql.chars().take(TEXT).collect();
        table.row(vec![
            Cell::text(&name),
            Cell::seconds(plan.total_ns as f64 / 1e9),
            Cell::percent(time::of_db_time(of, plan.total_ns as f64)),
            Cell::count(plan.calls),
            Cell::nanoseconds((plan.calls > 0).then(|| plan.total_ns as f64 / plan.calls as f64)),
            Cell::nanoseconds((plan.max_ns > 0).then_some(plan.max_ns as f64)),
            Cell::text(&plan.statement),
            Cell::text(&sql),
        ]);
        texts.push((format!("Plan {name}: {sql}"), plan.text.clone()));
    }
    if table.rows.is_empty() {
        return;
    }
    table.first(ROWS, io::REST);
    table.note(
        "By pg_store_plans, or by auto_explain, which tells only runs of \
         auto_explain.log_min_duration and more. \
         Each text is that of the longest run.",
    );
    section.table(table.without_empty_columns());
    for (title, text) in texts.into_iter().take(ROWS) {
        section.lines(title, text);
    }
}
