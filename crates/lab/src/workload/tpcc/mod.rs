//! The five transactions of TPC-C: who orders what, pays what, asks what.
//!
//! After the TPC Benchmark C specification, revision 5.11: the tables and their contents (clauses
//! 1.3 and 4.3), the inputs of the transactions (clause 2), the mix, and keying and think times
//! (5.2).
//!
//! Where this differs from the specification, and why:
//!
//! | TPC-C | here | because |
//! |---|---|---|
//! | ten terminals per warehouse, with keying and think times | any number of clients; the times are an option | HammerDB runs it so, and the published studies used HammerDB |
//! | money and rates with decimals | cents, and hundredths of a per cent | every database adds whole numbers alike |
//! | Delivery is queued and answered at once | it is carried out and timed as the others | as HammerDB does |
//! | 100,000 items, 3,000 customers of a district | fewer are allowed, and the result says so | tests |
//! | two hours, audited, with a price | none of it | a result here is no TPC-C result |
//!
//! **Invariant**: the same settings and seed give the same rows and the same inputs, whatever the
//! database and however long a transaction takes.
//! **Deliberately absent**: SQL (`target/tpcc`).
//!
//! Read next: `plan.rs` (what comes next), `rows.rs` (what is loaded).

mod plan;
mod random;
mod rows;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

pub use plan::{Customer, Input, Line, Order, Payment, Plan};
pub use rows::{DISTRICTS, TABLES, fill};

/// What is said wherever a figure of this load is shown.
pub const LABEL: &str = "derived from TPC-C, not comparable with published results";

/// Items of the specification.
const ITEMS: u32 = 100_000;
/// Customers of a district of the specification, each with one order.
const CUSTOMERS: u32 = 3_000;
/// About what a warehouse of the specification takes, with its indexes.
const WAREHOUSE_BYTES: u64 = 140 << 20;
/// About what the items take.
const ITEMS_BYTES: u64 = 14 << 20;
/// Room for what a run adds.
const GROWTH_BYTES: u64 = 48 << 20;

/// The size of the company, and how its people work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Warehouses: the scale.
    pub warehouses: u32,
    /// Whether clients wait as people at terminals do (clause 5.2.5): to type, and to think.
    pub think: bool,
    /// Items; the specification has 100000.
    pub items: u32,
    /// Customers of each of the ten districts of a warehouse; the specification has 3000.
    pub customers: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { warehouses: 1, think: false, items: ITEMS, customers: CUSTOMERS }
    }
}

/// What a caller wants instead of the settings of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instead {
    /// Warehouses.
    pub warehouses: Option<u32>,
    /// Keying and think times.
    pub think: bool,
}

impl Instead {
    /// The settings with what is wanted instead.
    #[must_use]
    pub fn of(&self, settings: &Settings) -> Settings {
        Settings {
            warehouses: self.warehouses.unwrap_or(settings.warehouses),
            think: self.think || settings.think,
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
            ("tpcc.warehouses", self.warehouses, 1, 10_000),
            ("tpcc.items", self.items, 100, ITEMS),
            ("tpcc.customers", self.customers, 30, CUSTOMERS),
        ] {
            if !(least..=most).contains(&value) {
                let reason = format!("give {least} to {most}");
                return Err(Error::Setting { setting, value: value.to_string(), reason });
            }
        }
        Ok(())
    }

    /// Whether the tables are smaller than the specification's.
    pub fn is_reduced(&self) -> bool {
        self.items < ITEMS || self.customers < CUSTOMERS
    }

    /// Bytes of the loaded database, about, and what a run adds.
    pub fn bytes(&self) -> u64 {
        // Half of a warehouse is its stock, of which there is a row for each item.
        let stock = WAREHOUSE_BYTES / 2 * u64::from(self.items) / u64::from(ITEMS);
        let people = WAREHOUSE_BYTES / 2 * u64::from(self.customers) / u64::from(CUSTOMERS);
        let items = ITEMS_BYTES * u64::from(self.items) / u64::from(ITEMS);
        u64::from(self.warehouses) * (stock + people) + items + GROWTH_BYTES
    }

    /// For people.
    pub fn describe(&self, clients: u32) -> String {
        let reduced = if self.is_reduced() {
            format!(
                ", reduced to {} items and {} customers of a district",
                self.items, self.customers
            )
        } else {
            String::new()
        };
        let think = if self.think { "with" } else { "without" };
        format!(
            "{} warehouse{}{reduced}, {clients} client{} {think} keying and think times",
            self.warehouses,
            if self.warehouses == 1 { "" } else { "s" },
            if clients == 1 { "" } else { "s" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        Settings::default().check().unwrap();
        for (settings, name) in [
            (Settings { warehouses: 0, ..Settings::default() }, "tpcc.warehouses"),
            (Settings { items: 99, ..Settings::default() }, "tpcc.items"),
            (Settings { customers: 3001, ..Settings::default() }, "tpcc.customers"),
        ] {
            let refused = settings.check().unwrap_err().to_string();
            assert!(refused.contains(name), "{refused}");
        }
    }

    #[test]
    fn a_smaller_company_says_so() {
        let small = Settings { items: 1000, customers: 60, warehouses: 2, ..Settings::default() };
        let said = small.describe(4);
        assert!(said.starts_with("2 warehouses, reduced to 1000 items and 60 customers"), "{said}");
        assert!(!Settings::default().describe(1).contains("reduced"));
    }
}
