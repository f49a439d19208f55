//! pgbench: the rate as it prints it, and its log of single transactions.

use tiersmith_awr::events::Histogram;

use super::{Found, no_figure, number_after};
use crate::error::Result;
use crate::run::Latency;

/// Reads what it printed. Its logs have a line for each transaction: client, number,
/// microseconds, ... A transaction has so many statements beside BEGIN and END.
///
/// # Errors
/// A figure is missing.
pub(crate) fn read(printed: &str, logs: &str, statements: u64) -> Result<Found> {
    let missing = || no_figure("pgbench", printed);
    let transactions =
        number_after(printed, "number of transactions actually processed:").ok_or_else(missing)?;
    if transactions == 0.0 {
        return Ok(Found::default());
    }
    let rate = number_after(printed, "tps = ").filter(|rate| *rate > 0.0).ok_or_else(missing)?;
    let mut histogram = Histogram::new();
    for line in logs.lines() {
        if let Some(us) = line.split(' ').nth(2).and_then(|word| word.parse::<u64>().ok()) {
            histogram.record(us.saturating_mul(1000));
        }
    }
    Ok(Found {
        transactions: transactions as u64,
        statements: (transactions as u64).saturating_mul(statements),
        elapsed_s: transactions / rate,
        latency: Latency::of(&histogram),
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::tests::cut_anywhere;

    const PRINTED: &str = include_str!("../../../../fixtures/load-programs/pgbench.txt");
    const LOGS: &str = include_str!("../../../../fixtures/load-programs/pgbench-transactions.txt");

    #[test]
    fn what_pgbench_prints_is_read() {
        let found = read(PRINTED, LOGS, 5).unwrap();
        assert_eq!((found.transactions, found.statements), (5052, 5 * 5052));
        assert!((found.elapsed_s - 5052.0 / 5081.835456).abs() < 1e-9, "{found:?}");
        // The log is the beginning of the real one.
        assert_eq!(found.latency.count, LOGS.lines().count() as u64);
        assert!(found.latency.max_ns >= 2_102_000, "{:?}", found.latency);
        let nothing = "number of transactions actually processed: 0\nnumber of failed \
                       transactions: 0 (NaN%)\n";
        assert_eq!(read(nothing, "", 5).unwrap(), Found::default());
    }

    #[test]
    fn what_pgbench_did_not_print_is_an_error() {
        cut_anywhere(PRINTED, |printed| read(printed, LOGS, 5));
        let error = read("pgbench: error: connection refused", "", 1).unwrap_err().to_string();
        assert!(error.contains("connection refused"), "{error}");
        for rate in ["tps = nan", "tps = inf", "tps = 0.0", "tps = -3"] {
            assert!(read(&PRINTED.replace("tps = 5081.835456", rate), LOGS, 5).is_err(), "{rate}");
        }
        let strange = "0 1 18446744073709551615 0\n0 2\nx y z\n0 3 NaN 0\n";
        assert_eq!(read(PRINTED, strange, 5).unwrap().latency.count, 1);
    }
}
