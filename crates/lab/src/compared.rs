//! Two rates side by side: ours and an outside program's, as a study and a probe print them.
//!
//! **Invariant**: what counts as close stands here alone, and every text takes it from here.
//! **Deliberately absent**: who stands beside whom (`study/opponents.rs`, `probe/beside.rs`).

use tiersmith_awr::{Cell, Table};

/// Two that measure the same are this close: ours over theirs.
const AGREE: (f64, f64) = (0.8, 1.25);

/// Whether two rates are so far apart that somebody has to look.
pub(crate) fn disagree(ratio: f64) -> bool {
    !(AGREE.0..=AGREE.1).contains(&ratio)
}

/// What counts as close, for people.
pub(crate) fn agreed() -> String {
    format!("{} to {}", AGREE.0, AGREE.1)
}

/// What is to be said of two rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They are close.
    Agree,
    /// They are not.
    Disagree,
    /// They are rates of different things.
    NotComparable,
    /// There is no second one.
    Failed,
}

impl Verdict {
    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Agree => "agree",
            Verdict::Disagree => "disagree",
            Verdict::NotComparable => "not comparable",
            Verdict::Failed => "failed",
        }
    }
}

/// A row of a table of two rates.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// By us, in a second.
    pub ours_per_s: Option<f64>,
    /// By the program, in a second.
    pub theirs_per_s: Option<f64>,
    /// Ours over theirs.
    pub ratio: Option<f64>,
    /// 95 of 100 of ours took no longer.
    pub ours_p95_ns: Option<u64>,
    /// 95 of 100 of theirs took no longer.
    pub theirs_p95_ns: Option<u64>,
    /// What is to be said of them.
    pub verdict: Verdict,
}

impl Rates {
    /// Adds their columns: who measures on our side, the program, and of what the 95th percentile
    /// is.
    pub fn columns(table: Table, ours: &str, program: &str, of: &str) -> Table {
        table
            .figures("Tiersmith /s", "", &format!("By {ours}, per second."))
            .figures(&format!("{program} /s"), "", "By the program, per second, as it says itself.")
            .figures("Ratio", "", "Tiersmith's rate over the program's.")
            .figures("Tiersmith p95", "", &format!("95 of 100{of} took no longer."))
            .figures(
                &format!("{program} p95"),
                "",
                &format!("95 of 100{of} took no longer, as the program says itself."),
            )
            .text("Verdict", &format!("Whether the ratio is from {}.", agreed()))
    }

    /// Its cells in these columns.
    pub fn cells(&self) -> [Cell; 6] {
        let p95 = |ns: Option<u64>| Cell::nanoseconds(ns.map(|ns| ns as f64));
        [
            Cell::number(self.ours_per_s),
            Cell::number(self.theirs_per_s),
            Cell::number(self.ratio),
            p95(self.ours_p95_ns),
            p95(self.theirs_p95_ns),
            Cell::text(self.verdict.name()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_from_four_fifths_to_five_quarters_agree() {
        for (ratio, expected) in [
            (0.79, true),
            (0.8, false),
            (1.0, false),
            (1.25, false),
            (1.26, true),
            (f64::NAN, true),
        ] {
            assert_eq!(disagree(ratio), expected, "{ratio}");
        }
        assert_eq!(agreed(), "0.8 to 1.25");
    }

    #[test]
    fn a_row_has_a_cell_for_each_column() {
        let table = Rates::columns(Table::new("t"), "us", "fio", " reads");
        let rates = Rates {
            ours_per_s: Some(2.0),
            theirs_per_s: None,
            ratio: None,
            ours_p95_ns: None,
            theirs_p95_ns: None,
            verdict: Verdict::NotComparable,
        };
        assert_eq!(table.columns.len(), rates.cells().len());
        assert_eq!(table.columns[1].title, "fio /s");
        assert_eq!(table.columns[5].explanation, "Whether the ratio is from 0.8 to 1.25.");
        assert_eq!(rates.cells()[5], Cell::text("not comparable"));
    }
}
