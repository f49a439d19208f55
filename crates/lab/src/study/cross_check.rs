//! What a cross-check found, as it is written to JSON.
//!
//! **Deliberately absent**: how it is found (`crossing.rs`).

use serde::{Deserialize, Serialize};

/// What was compared with outside programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrossCheck {
    /// The programs that ran.
    pub programs: Vec<Program>,
    /// A case at one UPDATE_PCT beside a program, in the order of time.
    pub rows: Vec<Beside>,
    /// How it was done, and what each program measures differently.
    pub notes: Vec<String>,
}

/// An outside program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// One comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// The case.
    pub case: String,
    /// At which UPDATE_PCT.
    pub update_pct: u32,
    /// The program.
    pub program: String,
    /// What is counted: `transactions` or `requests`.
    pub unit: String,
    /// What Tiersmith's clients did; the median of the rounds.
    pub tiersmith: Option<Rate>,
    /// What the program did; the median of the rounds.
    pub outside: Option<Rate>,
    /// Tiersmith's rate over the program's.
    pub ratio: Option<f64>,
    /// The two are not close. Never of two that are not comparable.
    pub disagree: bool,
    /// Both do the same; else the ratio says nothing.
    #[serde(default = "comparable")]
    pub comparable: bool,
    /// Why the last round of it that failed did.
    pub failed: Option<String>,
}

/// What a result means that does not say it.
fn comparable() -> bool {
    true
}

/// How much was done.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// In a second.
    pub per_s: f64,
    /// In all.
    pub count: u64,
    /// In this time.
    pub elapsed_s: f64,
    /// 95 of 100 took no longer; nothing if it is not told.
    pub p95_ns: Option<u64>,
}

impl CrossCheck {
    /// Whether an outside program failed, so that a comparison is missing.
    pub fn has_failed(&self) -> bool {
        self.rows.iter().any(|row| row.failed.is_some())
    }
}
