//! redis-benchmark with `--csv`: a line of `"SET","45871.56","0.189","0.048",...` for each kind.
//!
//! The figures are the rate, then mean, least, median, 95th and 99th percentile and longest in
//! milliseconds.

use super::{Found, figure, no_figure, ns};
use crate::error::Result;
use crate::run::Latency;
use crate::workload::keys::Ratio;

/// One kind of request: how many a second, and how long they took.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    rate: f64,
    latency: Latency,
}

/// The line of a kind of request.
fn line(printed: &str, kind: &str, count: u64) -> Result<Line> {
    let missing = || no_figure("redis-benchmark", printed);
    let begins = format!("\"{kind}\"");
    let line = printed.lines().find(|line| line.starts_with(&begins)).ok_or_else(missing)?;
    let words = line.split(',').skip(1).map(|word| word.trim().trim_matches('"').parse().ok());
    let figures: Option<Vec<f64>> = words.map(|number| number.and_then(figure)).collect();
    let figures = figures.ok_or_else(missing)?;
    let [rate, mean, _, median, p95, p99, longest] = *figures.as_slice() else {
        return Err(missing());
    };
    if rate <= 0.0 {
        return Err(missing());
    }
    let latency = Latency {
        count,
        mean_ns: mean * 1e6,
        median_ns: ns(median),
        p95_ns: ns(p95),
        p99_ns: ns(p99),
        // It prints none.
        p999_ns: 0,
        max_ns: ns(longest),
    };
    Ok(Line { rate, latency })
}

/// Two runs as one; of percentiles the worse is kept.
fn add(one: &Latency, other: &Latency) -> Latency {
    let count = one.count.saturating_add(other.count);
    let sum = one.mean_ns * one.count as f64 + other.mean_ns * other.count as f64;
    Latency {
        count,
        mean_ns: sum / count.max(1) as f64,
        median_ns: one.median_ns.max(other.median_ns),
        p95_ns: one.p95_ns.max(other.p95_ns),
        p99_ns: one.p99_ns.max(other.p99_ns),
        p999_ns: 0,
        max_ns: one.max_ns.max(other.max_ns),
    }
}

/// Reads a run of `count` SETs and adds it to those before.
///
/// # Errors
/// A figure is missing.
pub(crate) fn read_sets(printed: &str, count: u64, before: &Found) -> Result<Found> {
    let Line { rate, latency } = line(printed, "SET", count)?;
    let transactions = before.transactions.saturating_add(count);
    Ok(Found {
        transactions,
        statements: transactions,
        elapsed_s: before.elapsed_s + count as f64 / rate,
        latency: add(&before.latency, &latency),
        ..Found::default()
    })
}

/// Reads a run of `count` SETs and then as many GETs, and adds to those before what a mixture of
/// this ratio would have taken at these rates. What the mixture has none of was not run.
///
/// # Errors
/// A figure is missing.
pub(crate) fn read_mixed(printed: &str, count: u64, ratio: Ratio, before: &Found) -> Result<Found> {
    let mut sum = Found {
        transactions: before.transactions,
        statements: before.statements,
        elapsed_s: before.elapsed_s,
        commit: before.commit,
        select: before.select,
        ..Found::default()
    };
    let window = u64::from(ratio.sets + ratio.gets).max(1);
    let part = |share: u32| count.saturating_mul(u64::from(share)) / window;
    if ratio.sets > 0 {
        let sets = line(printed, "SET", count)?;
        sum.transactions = sum.transactions.saturating_add(part(ratio.sets));
        sum.statements = sum.statements.saturating_add(part(ratio.sets));
        sum.elapsed_s += part(ratio.sets) as f64 / sets.rate;
        sum.commit = add(&sum.commit, &sets.latency);
    }
    if ratio.gets > 0 {
        let gets = line(printed, "GET", count)?;
        sum.statements = sum.statements.saturating_add(part(ratio.gets));
        sum.elapsed_s += part(ratio.gets) as f64 / gets.rate;
        sum.select = add(&sum.select, &gets.latency);
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::tests::cut_anywhere;

    const PRINTED: &str = include_str!("../../../../fixtures/load-programs/redis-benchmark.csv");

    #[test]
    fn what_redis_benchmark_prints_is_read_and_added_up() {
        let one = read_sets(PRINTED, 2000, &Found::default()).unwrap();
        assert!((one.elapsed_s - 2000.0 / 1016.78).abs() < 1e-9);
        let two = read_sets(PRINTED, 2000, &one).unwrap();
        assert_eq!((two.transactions, two.elapsed_s), (4000, 2.0 * one.elapsed_s));
        assert_eq!((two.latency.p99_ns, two.latency.max_ns), (11_903_000, 13_343_000));
        assert!((two.latency.mean_ns - 3_897_000.0).abs() < 1.0);
    }

    #[test]
    fn a_mixture_takes_what_its_parts_take() {
        let ratio = "1:10".parse().unwrap();
        let one = read_mixed(PRINTED, 2200, ratio, &Found::default()).unwrap();
        assert_eq!((one.transactions, one.statements), (200, 2200));
        let expected = 200.0 / 1016.78 + 2000.0 / 47619.05;
        assert!((one.elapsed_s - expected).abs() < 1e-9, "{one:?}");
        assert_eq!((one.commit.p95_ns, one.select.p95_ns), (7_919_000, 63_000));
        let two = read_mixed(PRINTED, 2200, ratio, &one).unwrap();
        assert!((two.elapsed_s - 2.0 * expected).abs() < 1e-9);
        // What was not run is not asked for.
        let sets_alone: String = PRINTED.lines().take(2).map(|line| format!("{line}\n")).collect();
        assert!(read_mixed(&sets_alone, 10, "1:0".parse().unwrap(), &one).is_ok());
        assert!(read_mixed(&sets_alone, 10, ratio, &one).is_err());
    }

    #[test]
    fn what_redis_benchmark_did_not_print_is_an_error() {
        cut_anywhere(PRINTED, |printed| read_sets(printed, 10, &Found::default()));
        for rate in ["nan", "0.00", "inf", "-5", ""] {
            let printed = PRINTED.replace("1016.78", rate);
            assert!(read_sets(&printed, 10, &Found::default()).is_err(), "{rate}");
        }
        let refused = "Could not connect to Redis at /x: Connection refused";
        let error = read_sets(refused, 1, &Found::default()).unwrap_err().to_string();
        assert!(error.contains("Connection refused"), "{error}");
    }
}
