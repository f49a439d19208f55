//! SAP's client copy and client delete: all rows of one client across a family of tables.
//!
//! An SAP system keeps the data of several clients (companies) in the same tables; the first column
//! of each key is the client. A copy reads the rows of client 0, table by table and a few hundred
//! at a time, and inserts them under another number; a delete removes that client again. Each of
//! our clients copies into a client of its own and deletes it, again and again.
//!
//! The published study ran both as a batch job whose time was 34 % application and 66 % database;
//! `application_pct` makes a client wait so long after each part that its shares are those.
//!
//! Our differences: the tables are made up, their rows of 40 to 1,000 letters; a part is read,
//! inserted and committed as one transaction.
//!
//! **Invariant**: client 0 is only read; a copied row equals the one it was copied from.
//! **Deliberately absent**: SQL (`target/clients.rs`), time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::workload::slob;

/// About what a row takes beside its letters, with its index.
const ROW_BYTES: u64 = 60;
/// Letters of a row of the table with the number `n % 8`.
const WIDTHS: [u32; 8] = [40, 80, 120, 200, 300, 450, 700, 1000];

/// The family of tables and the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Tables.
    pub tables: u32,
    /// Rows that are copied or deleted in one transaction.
    pub rows_at_once: u32,
    /// Of a hundred seconds of the job, how many the application takes; the published study had 34.
    pub application_pct: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { tables: 24, rows_at_once: 200, application_pct: 0 }
    }
}

impl Settings {
    /// Whether they make a load.
    ///
    /// # Errors
    /// [`Error::Setting`]: which one does not.
    pub fn check(&self) -> Result<()> {
        for (setting, value, least, most) in [
            ("client_copy.tables", self.tables, 1, 400),
            ("client_copy.rows_at_once", self.rows_at_once, 1, 10_000),
            ("client_copy.application_pct", self.application_pct, 0, 95),
        ] {
            if !(least..=most).contains(&value) {
                let reason = format!("give {least} to {most}");
                return Err(Error::Setting { setting, value: value.to_string(), reason });
            }
        }
        Ok(())
    }

    /// Letters of a row of a table.
    pub fn width(&self, table: u32) -> u32 {
        WIDTHS[table as usize % WIDTHS.len()]
    }

    /// Rows that client 0 has in each table: together with the copies of so many clients they fit
    /// the scale.
    pub fn rows(&self, slob: &slob::Settings, clients: u32) -> u64 {
        let one: u64 = (0..self.tables).map(|table| u64::from(self.width(table)) + ROW_BYTES).sum();
        (slob.scale.bytes() / one.max(1) / u64::from(clients + 1)).clamp(10, 10_000_000)
    }

    /// Bytes of everything when all clients are copied, about.
    pub fn bytes(&self, slob: &slob::Settings, clients: u32) -> u64 {
        let one: u64 = (0..self.tables).map(|table| u64::from(self.width(table)) + ROW_BYTES).sum();
        // What is deleted leaves room behind that is not used again at once.
        self.rows(slob, clients) * one * u64::from(clients + 1) * 2 + (8 << 20)
    }

    /// How long the application takes after the database took so long.
    pub fn application(&self, database: Duration) -> Option<Duration> {
        (self.application_pct > 0).then(|| {
            database
                .mul_f64(f64::from(self.application_pct) / f64::from(100 - self.application_pct))
        })
    }
}

/// What a part belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Client 0 is copied.
    Copy,
    /// The copy is deleted.
    Delete,
}

/// A part of a job: rows of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which job.
    pub job: Job,
    /// The table, from 0.
    pub table: u32,
    /// The first row.
    pub from: i64,
    /// The row after the last.
    pub to: i64,
    /// No part of the job is left after this one.
    pub is_last: bool,
}

/// The parts of one client's jobs, without end.
#[derive(Clone, Debug)]
pub struct Plan {
    tables: u32,
    rows: i64,
    at_once: i64,
    job: Job,
    table: u32,
    from: i64,
}

impl Plan {
    /// Of tables with so many rows each.
    pub fn new(settings: &Settings, rows: u64) -> Plan {
        Plan {
            tables: settings.tables,
            rows: i64::try_from(rows).unwrap_or(i64::MAX),
            at_once: i64::from(settings.rows_at_once),
            job: Job::Copy,
            table: 0,
            from: 0,
        }
    }

    /// The next part.
    pub fn draw(&mut self) -> Part {
        let to = (self.from + self.at_once).min(self.rows);
        let ends_table = to == self.rows;
        let is_last = ends_table && self.table + 1 == self.tables;
        let part = Part { job: self.job, table: self.table, from: self.from, to, is_last };
        self.from = if ends_table { 0 } else { to };
        self.table = if is_last { 0 } else { self.table + u32::from(ends_table) };
        if is_last {
            self.job = if self.job == Job::Copy { Job::Delete } else { Job::Copy };
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_goes_through_every_row_of_every_table_once_and_then_they_are_deleted() {
        let settings = Settings { tables: 3, rows_at_once: 4, ..Settings::default() };
        let mut plan = Plan::new(&settings, 10);
        for job in [Job::Copy, Job::Delete, Job::Copy] {
            for table in 0..3 {
                for (from, to) in [(0, 4), (4, 8), (8, 10)] {
                    let is_last = table == 2 && to == 10;
                    assert_eq!(plan.draw(), Part { job, table, from, to, is_last });
                }
            }
        }
    }

    #[test]
    fn rows_that_are_a_multiple_of_a_part_leave_no_empty_part() {
        let settings = Settings { tables: 1, rows_at_once: 5, ..Settings::default() };
        let mut plan = Plan::new(&settings, 10);
        let parts: Vec<Part> = (0..4).map(|_| plan.draw()).collect();
        assert!(parts.iter().all(|part| part.to - part.from == 5), "{parts:?}");
        assert_eq!(parts.iter().filter(|part| part.is_last).count(), 2);
    }

    #[test]
    fn the_application_takes_its_share_of_the_whole() {
        let settings = Settings { application_pct: 34, ..Settings::default() };
        let application = settings.application(Duration::from_millis(660)).unwrap();
        assert!((application.as_secs_f64() - 0.340).abs() < 1e-6, "{application:?}");
        assert_eq!(Settings::default().application(Duration::from_secs(1)), None);
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        Settings::default().check().unwrap();
        for (settings, name) in [
            (Settings { tables: 0, ..Settings::default() }, "client_copy.tables"),
            (Settings { rows_at_once: 0, ..Settings::default() }, "client_copy.rows_at_once"),
            (
                Settings { application_pct: 96, ..Settings::default() },
                "client_copy.application_pct",
            ),
        ] {
            let refused = settings.check().unwrap_err().to_string();
            assert!(refused.contains(name), "{refused}");
        }
    }
}
