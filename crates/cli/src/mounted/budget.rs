//! The write budget of a tier: as it is given, noted and shown.
//!
//! **Deliberately absent**: keeping it (crate `store`).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tiersmith_lab::ByteSize;
use tiersmith_store::{BudgetUse, WriteBudget};

use super::plan::key;
use super::size;

/// Drive writes a day beyond which nobody means it.
const DRIVE_WRITES_MOST: f64 = 1000.0;

/// What a user wants: a budget, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wished(Option<WriteBudget>);

impl FromStr for Wished {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let word = text.trim().to_ascii_lowercase();
        if word == "none" {
            return Ok(Wished(None));
        }
        let budget = match word.strip_suffix("dwpd") {
            Some(writes) => {
                let writes = writes.trim().parse::<f64>().ok();
                let writes = writes.filter(|n| (0.0..=DRIVE_WRITES_MOST).contains(n));
                writes
                    .map(|n| WriteBudget::DriveWrites { thousandths: (n * 1000.0).round() as u64 })
            }
            None => word.parse::<ByteSize>().ok().map(|size| WriteBudget::Bytes(size.bytes())),
        };
        let budget = budget.ok_or_else(|| {
            format!(
                "`{}` is no write budget; write bytes a day (500G), drive writes a day of the \
                 tier's size (0.3dwpd), or none",
                text.escape_debug()
            )
        })?;
        match budget.refusal() {
            None => Ok(Wished(Some(budget))),
            Some(why) => Err(format!("{why}; without a budget: --write-budget none")),
        }
    }
}

impl fmt::Display for Wished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("none"),
            Some(WriteBudget::Bytes(bytes)) => write!(f, "{bytes}"),
            Some(WriteBudget::DriveWrites { thousandths }) => {
                write!(f, "{}dwpd", thousandths as f64 / 1000.0)
            }
        }
    }
}

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
    wish.or_else(noted)?.0
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
            Some(_) | None => "it holds nothing back now".to_owned(),
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
    fn a_budget_is_read_as_it_is_written_and_what_is_none_is_refused_with_what_to_do() {
        let read = |text: &str| text.parse::<Wished>();
        for (text, noted) in [
            ("500G", "536870912000"),
            (" 2 TiB ", "2199023255552"),
            ("0.3dwpd", "0.3dwpd"),
            ("1 DWPD", "1dwpd"),
            ("none", "none"),
        ] {
            let wished = read(text).unwrap();
            assert_eq!(wished.to_string(), noted);
            assert_eq!(read(noted), Ok(wished), "{text}");
        }
        for none in ["0", "0G", "0dwpd", "0.0001dwpd", "500"] {
            let said = read(none).unwrap_err();
            assert!(said.contains("would let no block in"), "{none}: {said}");
            assert!(said.contains("none=PATTERN") && said.contains("budget none"), "{said}");
        }
        for bad in
            ["", "-1", "dwpd", "-1dwpd", "nandwpd", "infdwpd", "1e9dwpd", "5X", "99999999T\n"]
        {
            let said = read(bad).unwrap_err();
            assert!(said.contains("is no write budget") && !said.contains('\n'), "{bad}: {said}");
        }
    }

    #[test]
    fn a_note_that_was_damaged_costs_the_budget_and_nothing_else() {
        let mut remarks = Vec::new();
        let door = |text: &str| BTreeMap::from([(key::WRITE_BUDGET.to_owned(), text.to_owned())]);
        let some = Some(WriteBudget::Bytes(1 << 30));
        assert_eq!(budget(None, &door("1073741824"), &mut remarks), some);
        assert_eq!(budget(Some(Wished(some)), &door("none"), &mut remarks), some);
        assert_eq!(budget(Some(Wished(None)), &door("1G"), &mut remarks), None);
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
            assert!(free.text().contains("holds nothing back"), "{}", free.text());
        }
        let overdrawn = LiveBudget { is_overdrawn: true, ..budget };
        assert!(overdrawn.text().contains("programs alone"), "{}", overdrawn.text());
    }
}
