//! YCSB's core workloads A to F: which record is read, changed, added or scanned next.
//!
//! After the Yahoo! Cloud Serving Benchmark (Cooper and others, 2010): records of ten fields of 100
//! letters; the mixes and the popularity of records below.
//!
//! | mix | of a hundred operations | popular are |
//! |---|---|---|
//! | A | 50 reads, 50 updates | some, wherever they lie (zipfian, exponent 0.99) |
//! | B | 95 reads, 5 updates | the same |
//! | C | 100 reads | the same |
//! | D | 95 reads, 5 inserts | the newest |
//! | E | 95 scans of 1 to 100 records, 5 inserts | as A |
//! | F | 50 reads, 50 times read, change and write back | as A |
//!
//! Our differences: the zipfian distribution is over the records that were loaded and is then
//! scattered by a hash, where YCSB draws from ten thousand million and takes the remainder; a value
//! begins with its record's key, so that a mixed-up record is noticed after the run.
//!
//! **Invariants**: the same settings and seed give the same operations; a record is never read
//! before its insert was acknowledged.
//! **Deliberately absent**: SQL and sockets (`target/ycsb.rs`), time.

use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::workload::slob;

/// Fewest and most records.
const RECORDS: (u64, u64) = (1000, 10_000_000);
/// About what a record takes beside its fields.
const RECORD_BYTES: u64 = 80;
/// How much more popular a record is than the next one.
const EXPONENT: f64 = 0.99;
/// The most letters of a key: `user` and twenty digits.
pub const KEY_MAX: usize = 24;

/// One of the six.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Update heavy.
    A,
    /// Read mostly.
    B,
    /// Read only.
    C,
    /// Read latest.
    D,
    /// Short ranges.
    E,
    /// Read, change, write back.
    F,
}

impl Mix {
    /// Its letter.
    pub fn name(self) -> &'static str {
        match self {
            Mix::A => "A",
            Mix::B => "B",
            Mix::C => "C",
            Mix::D => "D",
            Mix::E => "E",
            Mix::F => "F",
        }
    }
}

/// How large the records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Fields of a record.
    pub fields: u32,
    /// Letters of a field.
    pub field_bytes: u32,
    /// The most records of a scan.
    pub scan_max: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { fields: 10, field_bytes: 100, scan_max: 100 }
    }
}

impl Settings {
    /// Whether they make a load.
    ///
    /// # Errors
    /// [`Error::Setting`]: which one does not.
    pub fn check(&self) -> Result<()> {
        for (setting, value, least, most) in [
            ("ycsb.fields", self.fields, 1, 64),
            ("ycsb.field_bytes", self.field_bytes, KEY_MAX as u32, 4096),
            ("ycsb.scan_max", self.scan_max, 1, 10_000),
        ] {
            if !(least..=most).contains(&value) {
                let reason = format!("give {least} to {most}");
                return Err(Error::Setting { setting, value: value.to_string(), reason });
            }
        }
        Ok(())
    }

    /// Bytes of a record, about.
    fn record_bytes(&self) -> u64 {
        u64::from(self.fields) * u64::from(self.field_bytes) + RECORD_BYTES
    }

    /// Records: as many as fit the scale.
    pub fn records(&self, slob: &slob::Settings) -> u64 {
        (slob.scale.bytes() / self.record_bytes()).clamp(RECORDS.0, RECORDS.1)
    }

    /// Bytes of a table of so many records, about, with room for what a run adds.
    pub fn bytes(&self, records: u64) -> u64 {
        records * self.record_bytes() * 3 / 2 + (8 << 20)
    }
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Every field of a record.
    Read(u64),
    /// Another value for one field.
    Update {
        /// The record.
        record: u64,
        /// From 0.
        field: u32,
    },
    /// A record that was not there.
    Insert(u64),
    /// Records from this one's key on, in the order of keys.
    Scan {
        /// The first.
        record: u64,
        /// The most of them.
        count: u32,
    },
    /// Every field is read, and one written back changed.
    ReadModifyWrite {
        /// The record.
        record: u64,
        /// From 0.
        field: u32,
    },
}

/// The key of a record: records that were added one after the other do not lie side by side.
pub fn key(record: u64) -> String {
    format!("user{}", scatter(record))
}

/// FNV-1a of the eight bytes, as YCSB scatters records.
fn scatter(record: u64) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    record.to_le_bytes().into_iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The value of a field: the key, and letters up to the length.
pub fn value(settings: &Settings, key: &str, random: &mut fastrand::Rng) -> String {
    let length = settings.field_bytes as usize;
    let mut value = String::with_capacity(length + 16);
    value.push_str(key);
    while value.len() < length {
        // Eight letters of one number: a letter at a time takes as long as a database.
        let mut bits = random.u64(..);
        for _ in 0..8 {
            value.push(char::from(b'a' + (bits & 15) as u8));
            bits >>= 4;
        }
    }
    value.truncate(length);
    value
}

/// Numbers from 0 on, of which each is less often drawn than the one before (Gray and others,
/// 1994).
#[derive(Clone, Copy, Debug)]
struct Zipf {
    items: f64,
    sum: f64,
    power: f64,
    eta: f64,
}

impl Zipf {
    fn over(items: u64) -> Zipf {
        let weight = |n: u64| 1.0 / (n as f64).powf(EXPONENT);
        let sum: f64 = (1..=items).map(weight).sum();
        let two = weight(1) + weight(2);
        let items = items as f64;
        let eta = (1.0 - (2.0 / items).powf(1.0 - EXPONENT)) / (1.0 - two / sum);
        Zipf { items, sum, power: 1.0 / (1.0 - EXPONENT), eta }
    }

    fn draw(&self, random: &mut fastrand::Rng) -> u64 {
        let share = random.f64();
        let of_sum = share * self.sum;
        if of_sum < 1.0 {
            return 0;
        }
        if of_sum < 1.0 + 0.5_f64.powf(EXPONENT) {
            return 1;
        }
        let item = self.items * (self.eta * share - self.eta + 1.0).powf(self.power);
        item.min(self.items - 1.0).max(0.0) as u64
    }
}

/// Which records there are: those that were loaded, and those that clients added.
#[derive(Debug)]
struct Added {
    /// The next to be added.
    next: u64,
    /// All below are there.
    there: u64,
    /// Those above that are there, too.
    ahead: BTreeSet<u64>,
}

/// A load of one mix, shared by its clients.
#[derive(Debug)]
pub struct Ycsb {
    /// What is done.
    pub mix: Mix,
    /// How large records are.
    pub settings: Settings,
    /// Records that were loaded.
    pub records: u64,
    zipf: OnceLock<Zipf>,
    added: Mutex<Added>,
}

impl Ycsb {
    /// A load on a table of so many records.
    pub fn new(mix: Mix, settings: Settings, records: u64) -> Ycsb {
        let added = Mutex::new(Added { next: records, there: records, ahead: BTreeSet::new() });
        Ycsb { mix, settings, records, zipf: OnceLock::new(), added }
    }

    fn zipf(&self) -> Zipf {
        *self.zipf.get_or_init(|| Zipf::over(self.records))
    }

    /// That a record is in the database.
    pub fn acknowledged(&self, record: u64) {
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        added.ahead.insert(record);
        while let Some(first) = added.ahead.first().copied().filter(|first| *first <= added.there) {
            added.ahead.pop_first();
            added.there = added.there.max(first + 1);
        }
    }

    /// Records that must be in the database.
    pub fn there(&self) -> u64 {
        let added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        added.there + added.ahead.len() as u64
    }

    /// What a client does.
    pub fn plan(&self, seed: u64, client: u32) -> Plan<'_> {
        Plan { load: self, zipf: self.zipf(), random: super::generator(seed, client) }
    }
}

/// The operations of one client, without end.
#[derive(Debug)]
pub struct Plan<'a> {
    load: &'a Ycsb,
    zipf: Zipf,
    random: fastrand::Rng,
}

impl Plan<'_> {
    /// The next operation.
    pub fn draw(&mut self) -> Operation {
        let first = self.random.u32(0..100);
        match self.load.mix {
            Mix::A if first < 50 => self.update(),
            Mix::B if first < 5 => self.update(),
            Mix::D | Mix::E if first < 5 => {
                let mut added = self.load.added.lock().unwrap_or_else(PoisonError::into_inner);
                added.next += 1;
                Operation::Insert(added.next - 1)
            }
            Mix::E => {
                let count = self.random.u32(1..=self.load.settings.scan_max);
                Operation::Scan { record: self.popular(), count }
            }
            Mix::F if first < 50 => {
                let record = self.popular();
                Operation::ReadModifyWrite { record, field: self.field() }
            }
            Mix::D => Operation::Read(self.newest()),
            _ => Operation::Read(self.popular()),
        }
    }

    /// A value for a field of a record.
    pub fn value(&mut self, key: &str) -> String {
        value(&self.load.settings, key, &mut self.random)
    }

    fn update(&mut self) -> Operation {
        let record = self.popular();
        Operation::Update { record, field: self.field() }
    }

    fn field(&mut self) -> u32 {
        self.random.u32(0..self.load.settings.fields)
    }

    /// A record of those that were loaded; the popular ones lie scattered.
    fn popular(&mut self) -> u64 {
        scatter(self.zipf.draw(&mut self.random)) % self.load.records
    }

    /// A record that is there, the newest most often.
    fn newest(&mut self) -> u64 {
        let there = self.load.added.lock().unwrap_or_else(PoisonError::into_inner).there;
        there - 1 - self.zipf.draw(&mut self.random).min(there - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(mix: Mix, count: usize) -> (Ycsb, Vec<Operation>) {
        let load = Ycsb::new(mix, Settings::default(), 10_000);
        let mut plan = load.plan(1, 0);
        let operations = (0..count).map(|_| plan.draw()).collect();
        (load, operations)
    }

    #[test]
    fn each_mix_has_the_shares_of_its_table() {
        for (mix, reads, updates, inserts, scans, changes) in [
            (Mix::A, 50, 50, 0, 0, 0),
            (Mix::B, 95, 5, 0, 0, 0),
            (Mix::C, 100, 0, 0, 0, 0),
            (Mix::D, 95, 0, 5, 0, 0),
            (Mix::E, 0, 0, 5, 95, 0),
            (Mix::F, 50, 0, 0, 0, 50),
        ] {
            let (_, operations) = drawn(mix, 20_000);
            let share = |is: fn(&Operation) -> bool| {
                operations.iter().filter(|operation| is(operation)).count() as f64 / 200.0
            };
            for (found, expected) in [
                (share(|o| matches!(o, Operation::Read(_))), reads),
                (share(|o| matches!(o, Operation::Update { .. })), updates),
                (share(|o| matches!(o, Operation::Insert(_))), inserts),
                (share(|o| matches!(o, Operation::Scan { .. })), scans),
                (share(|o| matches!(o, Operation::ReadModifyWrite { .. })), changes),
            ] {
                assert!(
                    (found - f64::from(expected)).abs() < 1.5,
                    "{mix:?}: {found} for {expected}"
                );
            }
        }
    }

    #[test]
    fn popular_records_are_read_as_often_as_the_exponent_says_and_lie_scattered() {
        let (load, operations) = drawn(Mix::C, 100_000);
        let mut count = std::collections::HashMap::new();
        for operation in operations {
            let Operation::Read(record) = operation else { panic!("{operation:?}") };
            assert!(record < 10_000);
            *count.entry(record).or_insert(0u32) += 1;
        }
        let mut counts: Vec<u32> = count.values().copied().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // The first of 10,000 has 1/sum of all draws, the second half of that.
        let sum = load.zipf().sum;
        let first = 100_000.0 / sum;
        assert!((f64::from(counts[0]) - first).abs() < 0.1 * first, "{} for {first}", counts[0]);
        assert!((f64::from(counts[1]) - first / 2.0).abs() < 0.15 * first, "{}", counts[1]);
        let hundred: u32 = counts.iter().take(100).sum();
        assert!((0.45..0.62).contains(&(f64::from(hundred) / 100_000.0)), "{hundred}");
        let mut hot: Vec<u64> =
            count.iter().filter(|(_, n)| **n > 500).map(|(record, _)| *record).collect();
        hot.sort_unstable();
        assert!(hot.windows(2).all(|two| two[1] - two[0] > 1), "{hot:?}");
    }

    #[test]
    fn a_record_is_read_only_after_its_insert_was_acknowledged_and_the_newest_most() {
        let load = Ycsb::new(Mix::D, Settings::default(), 1000);
        let mut plan = load.plan(7, 0);
        let (mut newest_read, mut open) = (0, Vec::new());
        for n in 0..20_000 {
            match plan.draw() {
                Operation::Insert(record) => open.push(record),
                Operation::Read(record) => {
                    assert!(record < 1000 || !open.contains(&record), "{record} is not there yet");
                    newest_read += u32::from(record + 100 >= load.there());
                }
                other => panic!("{other:?}"),
            }
            // Acknowledged late, and not in their order.
            if n % 50 == 0 && open.len() > 3 {
                load.acknowledged(open.remove(1));
                load.acknowledged(open.remove(0));
            }
        }
        assert!(load.there() > 1500, "{}", load.there());
        assert!(newest_read > 8000, "{newest_read}");
    }

    #[test]
    fn acknowledged_records_are_counted_whatever_their_order() {
        let load = Ycsb::new(Mix::D, Settings::default(), 1000);
        for record in [1002, 1000, 1003] {
            load.acknowledged(record);
        }
        assert_eq!(load.there(), 1003);
        assert_eq!(load.added.lock().unwrap().there, 1001);
        load.acknowledged(1001);
        assert_eq!(load.added.lock().unwrap().there, 1004);
    }

    #[test]
    fn the_same_seed_gives_the_same_operations_and_clients_differ() {
        let load = Ycsb::new(Mix::A, Settings::default(), 1000);
        let drawn = |seed, client| {
            let mut plan = load.plan(seed, client);
            (0..100).map(|_| plan.draw()).collect::<Vec<_>>()
        };
        assert_eq!(drawn(1, 0), drawn(1, 0));
        assert_ne!(drawn(1, 0), drawn(1, 1));
        assert_ne!(drawn(1, 0), drawn(2, 0));
    }

    #[test]
    fn a_value_begins_with_its_key_and_has_its_length() {
        let settings = Settings::default();
        let key = key(77);
        let value = value(&settings, &key, &mut fastrand::Rng::with_seed(1));
        assert!(value.starts_with(&key) && value.len() == 100 && key.len() <= KEY_MAX, "{value}");
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        Settings::default().check().unwrap();
        for (settings, name) in [
            (Settings { fields: 0, ..Settings::default() }, "ycsb.fields"),
            (Settings { field_bytes: 23, ..Settings::default() }, "ycsb.field_bytes"),
            (Settings { scan_max: 0, ..Settings::default() }, "ycsb.scan_max"),
        ] {
            let refused = settings.check().unwrap_err().to_string();
            assert!(refused.contains(name), "{refused}");
        }
    }
}
