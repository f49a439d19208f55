//! The write budget of a tier, as it is given on the command line and kept in a home's note.
//!
//! **Deliberately absent**: showing it (`mounted/budget.rs`), and keeping it (crate `store`).

use std::fmt;
use std::str::FromStr;

use tiersmith_lab::ByteSize;
use tiersmith_store::WriteBudget;

/// Drive writes a day beyond which nobody means it.
const DRIVE_WRITES_MOST: f64 = 1000.0;

/// What a user wants: a budget, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wished(Option<WriteBudget>);

impl Wished {
    pub(crate) fn budget(self) -> Option<WriteBudget> {
        self.0
    }
}

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
                 tier's size (0.3dwpd, 1000dwpd at most), or none",
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
}
