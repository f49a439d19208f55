//! sysbench with `--histogram=on`: `   1.234 |****   56`, the milliseconds of each bucket and how
//! many.
//!
//! Percentiles are of its buckets, two of which are about 2 % apart.

use super::{Found, figure, no_figure, ns, number_after};
use crate::error::Result;
use crate::run::Latency;

/// Reads what it printed.
///
/// # Errors
/// A figure is missing.
pub(crate) fn read(printed: &str) -> Result<Found> {
    let missing = || no_figure("sysbench", printed);
    let number = |text: &str| number_after(printed, text).ok_or_else(missing);
    let buckets = buckets(printed);
    let elapsed_s =
        number("total time:").and_then(|s| (s > 0.0).then_some(s).ok_or_else(missing))?;
    let transactions = number("transactions:")? as u64;
    let latency = Latency {
        count: buckets.iter().fold(0, |all: u64, (_, count)| all.saturating_add(*count)),
        mean_ns: number("avg:")? * 1e6,
        median_ns: quantile(&buckets, 0.5),
        p95_ns: quantile(&buckets, 0.95),
        p99_ns: quantile(&buckets, 0.99),
        p999_ns: quantile(&buckets, 0.999),
        max_ns: ns(number("max:")?),
    };
    Ok(Found {
        transactions,
        statements: number("queries:")? as u64,
        elapsed_s,
        latency,
        ..Found::default()
    })
}

/// Nanoseconds and how many took about so long, shortest first.
fn buckets(printed: &str) -> Vec<(u64, u64)> {
    let bucket = |line: &str| {
        let (ms, rest) = line.split_once('|')?;
        let count = rest.split_whitespace().last()?.parse::<u64>().ok()?;
        Some((ns(ms.trim().parse().ok().and_then(figure)?), count))
    };
    let mut all: Vec<(u64, u64)> = printed.lines().filter_map(bucket).collect();
    all.sort_unstable();
    all
}

/// The bucket of the value with this share's rank, which is rounded as sysbench does; 0 if there is
/// none.
fn quantile(buckets: &[(u64, u64)], share: f64) -> u64 {
    let all: f64 = buckets.iter().map(|(_, count)| *count as f64).sum();
    let rank = (share * all + 0.5).floor();
    let mut seen = 0.0;
    for (ns, count) in buckets {
        seen += *count as f64;
        if seen >= rank {
            return *ns;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::tests::cut_anywhere;

    const PRINTED: &str = include_str!("../../../../fixtures/load-programs/sysbench.txt");

    #[test]
    fn what_sysbench_prints_is_read() {
        let found = read(PRINTED).unwrap();
        assert_eq!((found.transactions, found.statements, found.elapsed_s), (78, 1577, 1.0563));
        let latency = found.latency;
        assert_eq!((latency.count, latency.max_ns), (78, 1_006_040_000));
        assert!((latency.mean_ns - 26_980_000.0).abs() < 1.0, "{latency:?}");
        // sysbench prints this one itself.
        assert_eq!(latency.p99_ns, 995_508_000);
        assert!(latency.median_ns <= latency.p95_ns && latency.p95_ns <= latency.p99_ns);
    }

    #[test]
    fn what_sysbench_did_not_print_is_an_error() {
        cut_anywhere(PRINTED, read);
        let error = read("FATAL: unable to connect to MySQL server").unwrap_err().to_string();
        assert!(error.contains("unable to connect"), "{error}");
        for (from, to) in [("1.0563s", "nan"), ("1.0563s", "0.0000s"), ("1006.04", "inf")] {
            assert!(PRINTED.contains(from) && read(&PRINTED.replace(from, to)).is_err(), "{to}");
        }
        // A count that nobody could have counted to takes no time to read.
        let huge = PRINTED.replace("| 78", "").replace(
            "SQL statistics",
            "  1.000 |* 18446744073709551615\n  2.000 |* 18446744073709551615\n  NaN |* 3\n\
             SQL statistics",
        );
        assert_eq!(read(&huge).unwrap().latency.count, u64::MAX);
    }
}
