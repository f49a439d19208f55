//! Transactions like those of sysbench's OLTP scripts: which rows are read, summed, changed next.
//!
//! After `oltp_read_only.lua`, `oltp_read_write.lua` and `oltp_write_only.lua` of sysbench 1.0:
//! tables of rows with an indexed number and 180 letters. A transaction goes to one table after the
//! other and
//!
//! | what | reads | writes |
//! |---|---|---|
//! | rows by primary key | 10 | |
//! | ranges of 100 rows: read, summed, sorted, distinct | 4 | |
//! | changes of the indexed number, of the letters | | 1 and 1 |
//! | a row is removed and put in again | | 1 |
//!
//! Our differences: rows are uniform, or `special`: three of four from the hundredth of the rows in
//! the middle (sysbench adds twelve draws); the transaction stays in one table. A removal that
//! finds no row, because another client is about to put it in again, is tried again.
//!
//! **Invariant**: the same settings and seed give the same transactions; each leaves as many rows
//! as there were.
//! **Deliberately absent**: SQL (`target/oltp.rs`), time.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::size::ByteSize;
use crate::workload::slob;

/// About what a row takes with its index.
const ROW_BYTES: u64 = 260;
/// Fewest and most rows of a table.
const ROWS: (u64, u64) = (1000, 100_000_000);
/// Rows that a transaction reads by their key.
pub const POINTS: usize = 10;
/// Rows of a range.
pub const RANGE: u64 = 100;
/// Of a hundred rows, how many are drawn from the middle with `special`.
const SPECIAL_PCT: u32 = 75;

/// What a transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only reads.
    ReadOnly,
    /// It reads and writes.
    ReadWrite,
    /// It only writes.
    WriteOnly,
}

impl Kind {
    /// Whether it has the reading part.
    pub fn reads(self) -> bool {
        self != Kind::WriteOnly
    }

    /// Whether it has the writing part.
    pub fn writes(self) -> bool {
        self != Kind::ReadOnly
    }
}

/// Which rows are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rows {
    /// Three of four from the hundredth in the middle.
    #[default]
    Special,
    /// Each as likely as any other.
    Uniform,
}

/// The tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// How many.
    pub tables: u32,
    /// Which rows are drawn.
    pub rows: Rows,
    /// The page cache of the database as a share of the tables' bytes, in per cent; absent: as the
    /// case says.
    pub buffer_pct: Option<u32>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { tables: 4, rows: Rows::default(), buffer_pct: None }
    }
}

impl Rows {
    /// As sysbench calls it.
    pub fn name(self) -> &'static str {
        match self {
            Rows::Special => "special",
            Rows::Uniform => "uniform",
        }
    }
}

/// The tables of sysbench itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    /// How many.
    pub count: u32,
    /// Rows of each.
    pub rows: u64,
    /// Which rows are drawn.
    pub drawn: Rows,
}

impl Tables {
    /// How many there are when nobody says.
    const COUNT: u32 = 4;
    /// About what a row of sysbench takes, with its index.
    const ROW_BYTES: u64 = 240;

    /// As many rows as fit the scale.
    pub fn fitting(slob: &slob::Settings) -> Tables {
        let rows = slob.scale.bytes() / Tables::ROW_BYTES / u64::from(Tables::COUNT);
        Tables { count: Tables::COUNT, rows: rows.max(100), drawn: Rows::default() }
    }

    /// A scale with which the tables of [`Settings`] have as many rows as these.
    pub fn scale(&self) -> ByteSize {
        ByteSize(self.rows.max(ROWS.0) * ROW_BYTES * u64::from(self.count))
    }
}

/// What a caller wants instead of the settings of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instead {
    /// How many tables.
    pub tables: Option<u32>,
    /// The page cache in per cent of the tables.
    pub buffer_pct: Option<u32>,
}

impl Instead {
    /// The settings with what is wanted instead.
    #[must_use]
    pub fn of(&self, settings: &Settings) -> Settings {
        Settings {
            tables: self.tables.unwrap_or(settings.tables),
            buffer_pct: self.buffer_pct.or(settings.buffer_pct),
            ..*settings
        }
    }
}

impl Settings {
    /// Whether they make a load.
    ///
    /// # Errors
    /// [`Error::Setting`]: which one does not.
    pub fn check(&self) -> Result<()> {
        for (setting, value, least, most) in [
            ("oltp.tables", self.tables, 1, 64),
            ("oltp.buffer_pct", self.buffer_pct.unwrap_or(10), 1, 1000),
        ] {
            if !(least..=most).contains(&value) {
                let reason = format!("give {least} to {most}");
                return Err(Error::Setting { setting, value: value.to_string(), reason });
            }
        }
        Ok(())
    }

    /// Rows of each table: together as many as fit the scale.
    pub fn table_rows(&self, slob: &slob::Settings) -> u64 {
        (slob.scale.bytes() / ROW_BYTES / u64::from(self.tables)).clamp(ROWS.0, ROWS.1)
    }

    /// Bytes of the loaded tables, about.
    fn table_bytes(&self, slob: &slob::Settings) -> u64 {
        self.table_rows(slob) * ROW_BYTES * u64::from(self.tables)
    }

    /// Bytes of tables of so many rows, about, with room for what a run adds.
    pub fn bytes(&self, table_rows: u64) -> u64 {
        table_rows * ROW_BYTES * u64::from(self.tables) * 3 / 2 + (8 << 20)
    }

    /// Bytes of the database's page cache, if these settings say.
    pub fn buffer_bytes(&self, slob: &slob::Settings) -> Option<u64> {
        self.buffer_pct.map(|pct| (self.table_bytes(slob) / 100 * u64::from(pct)).max(1 << 20))
    }
}

/// The input of one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The table, from 0.
    pub table: u32,
    /// Rows that are read by their key.
    pub points: [i64; POINTS],
    /// The first row of each range: read, summed, sorted, distinct.
    pub ranges: [i64; 4],
    /// The row whose indexed number grows, the one whose letters change, the one that is put in
    /// again.
    pub changed: [i64; 3],
    /// The indexed number of the row that is put in again.
    pub number: i64,
    /// Its letters, and those of the row that is changed.
    pub letters: u64,
}

/// The transactions of one client, without end.
#[derive(Debug)]
pub struct Plan {
    tables: u32,
    table_rows: u64,
    rows: Rows,
    random: fastrand::Rng,
}

impl Plan {
    /// Of a client.
    pub fn new(settings: &Settings, table_rows: u64, seed: u64, client: u32) -> Plan {
        let random = super::generator(seed, client);
        Plan { tables: settings.tables, table_rows, rows: settings.rows, random }
    }

    /// The next one.
    pub fn draw(&mut self) -> Transaction {
        let table = self.random.u32(0..self.tables);
        let points = std::array::from_fn(|_| self.row());
        let last_first = i64::try_from(self.table_rows.saturating_sub(RANGE)).unwrap_or(0).max(1);
        let ranges = std::array::from_fn(|_| self.row().min(last_first));
        let changed = std::array::from_fn(|_| self.row());
        Transaction {
            table,
            points,
            ranges,
            changed,
            number: self.row(),
            letters: self.random.u64(..),
        }
    }

    /// A row, from 1.
    fn row(&mut self) -> i64 {
        let rows = self.table_rows;
        let special = self.rows == Rows::Special && self.random.u32(0..100) < SPECIAL_PCT;
        let row = if special {
            let middle = (rows / 100).max(1);
            rows / 2 - middle / 2 + self.random.u64(0..middle)
        } else {
            self.random.u64(0..rows)
        };
        i64::try_from(row + 1).unwrap_or(i64::MAX)
    }
}

/// Digits in groups, as sysbench fills its columns: so many groups of eleven, from a number.
pub fn letters(mut from: u64, groups: usize) -> String {
    let mut text = String::with_capacity(groups * 12);
    for group in 0..groups {
        if group > 0 {
            text.push('-');
        }
        for _ in 0..11 {
            // Knuth's generator: each digit from the upper bits.
            from = from
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            text.push(char::from(b'0' + ((from >> 33) % 10) as u8));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_rows_are_three_of_four_from_the_middle_and_all_are_in_the_table() {
        for (rows, expected) in [(Rows::Special, 0.7525), (Rows::Uniform, 0.01)] {
            let settings = Settings { rows, ..Settings::default() };
            let mut plan = Plan::new(&settings, 10_000, 1, 0);
            let drawn: Vec<i64> = (0..40_000).map(|_| plan.row()).collect();
            assert!(drawn.iter().all(|row| (1..=10_000).contains(row)));
            let middle =
                drawn.iter().filter(|row| (4951..=5050).contains(*row)).count() as f64 / 40_000.0;
            assert!((middle - expected).abs() < 0.01, "{middle}");
        }
    }

    #[test]
    fn a_range_ends_within_the_table() {
        let mut plan = Plan::new(&Settings::default(), 1000, 1, 0);
        for _ in 0..2000 {
            let drawn = plan.draw();
            assert!(drawn.ranges.iter().all(|first| (1..=900).contains(first)), "{drawn:?}");
            assert!(drawn.table < 4);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_transactions_and_clients_differ() {
        let drawn = |seed, client| {
            let mut plan = Plan::new(&Settings::default(), 5000, seed, client);
            (0..20).map(|_| plan.draw()).collect::<Vec<_>>()
        };
        assert_eq!(drawn(1, 0), drawn(1, 0));
        assert_ne!(drawn(1, 0), drawn(1, 1));
    }

    #[test]
    fn our_tables_can_have_as_many_rows_as_those_of_sysbench() {
        for scale in [4 << 20, 100_000_000, 999_999_999] {
            let of_sysbench =
                Tables::fitting(&slob::Settings { scale: ByteSize(scale), ..Default::default() });
            let ours = slob::Settings { scale: of_sysbench.scale(), ..Default::default() };
            let settings = Settings { tables: of_sysbench.count, ..Settings::default() };
            assert_eq!(settings.table_rows(&ours), of_sysbench.rows, "{scale}");
        }
    }

    #[test]
    fn letters_are_groups_of_eleven_digits_and_follow_their_number() {
        let text = letters(1, 10);
        assert_eq!(text.len(), 119);
        assert!(
            text.split('-')
                .all(|group| group.len() == 11 && group.bytes().all(|b| b.is_ascii_digit()))
        );
        assert_eq!(text, letters(1, 10));
        assert_ne!(text, letters(2, 10));
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name_and_the_buffer_is_a_share_of_the_tables() {
        for (settings, name) in [
            (Settings { tables: 0, ..Settings::default() }, "oltp.tables"),
            (Settings { buffer_pct: Some(0), ..Settings::default() }, "oltp.buffer_pct"),
        ] {
            let refused = settings.check().unwrap_err().to_string();
            assert!(refused.contains(name), "{refused}");
        }
        let slob =
            slob::Settings { scale: crate::ByteSize(520 << 20), ..slob::Settings::default() };
        let settings = Settings { buffer_pct: Some(10), ..Settings::default() };
        let (buffer, tables) = (settings.buffer_bytes(&slob).unwrap(), settings.table_bytes(&slob));
        assert!((buffer * 10).abs_diff(tables) < 1 << 20, "{buffer} of {tables}");
        assert_eq!(Settings::default().buffer_bytes(&slob), None);
    }
}
