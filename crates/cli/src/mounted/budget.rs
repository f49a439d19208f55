//! The write budget of a tier: as it is noted and shown.
//!
//! **Deliberately absent**: keeping it (crate `store`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tiersmith_store::{BudgetUse, WriteBudget};

use super::plan::key;
use super::size;
use crate::write_budget::Wished;

/// The budget as said, else as noted.
pub(super) fn budget(
    wish: Option<Wished>,
    door: &BTreeMap<String, String>,
    remarks: &mut Vec<String>,
) -> Option<WriteBudget> {
    let noted = || {
        let read = door.get(key::WRITE_BUDGET)?.parse();
        let read = read.inspect_err(|e| {
            remarks.push(format!("the write budget of the home's note is left out: {e}"));
        });
        read.ok()
    };
    wish.or_else(noted)?.budget()
}

/// What became of a tier's budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LiveBudget {
    pub(crate) bytes_a_day: u64,
    /// Since midnight UTC, or the attach if that was later.
    pub(crate) written_today: u64,
    /// Of them, clean copies of what was read.
    pub(crate) copied_today: u64,
    /// What programs wrote is more than the budget has grown to: no copies are made.
    pub(crate) is_overdrawn: bool,
    /// A full tier takes what comes again within this share of the time that copies stay; absent
    /// while no copy had to go.
    pub(crate) threshold: Option<f64>,
    /// The same without a budget.
    pub(crate) threshold_most: f64,
}

impl LiveBudget {
    pub(super) fn of(found: &BudgetUse) -> LiveBudget {
        LiveBudget {
            bytes_a_day: found.bytes_a_day,
            written_today: found.written_today,
            copied_today: found.copied_today,
            is_overdrawn: found.is_overdrawn,
            threshold: found.threshold,
            threshold_most: found.threshold_most,
        }
    }

    /// For people, below the tier.
    pub(super) fn text(&self) -> String {
        let percent = 100.0 * self.written_today as f64 / self.bytes_a_day.max(1) as f64;
        let mut out = format!(
            "    {:<28} {:>10}  {percent:>5.1} % of the write budget of {}; {} of it copies\n",
            "written today (UTC)",
            size(self.written_today),
            size(self.bytes_a_day),
            size(self.copied_today)
        );
        let how = match self.threshold {
            _ if self.is_overdrawn => {
                "programs alone have written today's part of it, so nothing that is read is copied"
                    .to_owned()
            }
            Some(threshold) if threshold < self.threshold_most => format!(
                "copied is what comes again within {threshold:.2} of the time that copies stay, \
                 and not {:.2}",
                self.threshold_most
            ),
            Some(_) | None => {
                "what is read is copied as without it, as far as it has grown by now".to_owned()
            }
        };
        out.push_str(&format!("    {:<28} {how}\n", "write budget"));
        out
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails here says where")]
mod tests {
    use super::*;

    #[test]
    fn a_note_that_was_damaged_costs_the_budget_and_nothing_else() {
        let mut remarks = Vec::new();
        let door = |text: &str| BTreeMap::from([(key::WRITE_BUDGET.to_owned(), text.to_owned())]);
        let some = Some(WriteBudget::Bytes(1 << 30));
        assert_eq!(budget(None, &door("1073741824"), &mut remarks), some);
        assert_eq!(budget(Some("1G".parse().unwrap()), &door("none"), &mut remarks), some);
        assert_eq!(budget(Some("none".parse().unwrap()), &door("1G"), &mut remarks), None);
        assert_eq!(budget(None, &BTreeMap::new(), &mut remarks), None);
        assert_eq!(remarks, [""; 0]);
        for damaged in ["0", "\u{1b}[2J", "much"] {
            assert_eq!(budget(None, &door(damaged), &mut remarks), None);
            let said = remarks.pop().unwrap();
            assert!(said.contains("is left out") && !said.contains('\u{1b}'), "{said}");
        }
    }

    #[test]
    fn status_says_how_much_is_used_and_what_is_held_back() {
        let budget = LiveBudget {
            bytes_a_day: 500 << 30,
            written_today: 125 << 30,
            copied_today: 100 << 30,
            is_overdrawn: false,
            threshold: Some(0.25),
            threshold_most: 0.7,
        };
        let said = budget.text();
        assert!(said.contains("125G   25.0 % of the write budget of 500G; 100G of it"), "{said}");
        assert!(said.contains("within 0.25 of the time that copies stay, and not 0.70"), "{said}");
        for threshold in [None, Some(0.7)] {
            let free = LiveBudget { threshold, ..budget.clone() };
            assert!(free.text().contains("copied as without it"), "{}", free.text());
        }
        let overdrawn = LiveBudget { is_overdrawn: true, ..budget };
        assert!(overdrawn.text().contains("programs alone"), "{}", overdrawn.text());
    }
}
