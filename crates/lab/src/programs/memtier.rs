//! memtier_benchmark with `--json-out-file`: the object `ALL STATS`.

use serde_json::Value;

use super::{Found, figure, no_figure, ns};
use crate::error::Result;
use crate::run::Latency;

/// Reads the JSON it wrote.
///
/// # Errors
/// It is no JSON, a figure is missing, or connections failed.
pub(crate) fn read(json: &str) -> Result<Found> {
    let missing = || no_figure("memtier_benchmark", json);
    let whole: Value = serde_json::from_str(json).map_err(|_| missing())?;
    let all = whole.get("ALL STATS").ok_or_else(missing)?;
    let number = |of: &Value, name: &str| of.get(name)?.as_f64().and_then(figure);
    let of = |kind: &str| all.get(kind).ok_or_else(missing);
    let latency = |kind: &Value| -> Option<Latency> {
        let percentile = |name: &str| {
            kind.get("Percentile Latencies")?.get(name)?.as_f64().and_then(figure).map(ns)
        };
        Some(Latency {
            count: number(kind, "Count")? as u64,
            mean_ns: number(kind, "Average Latency")? * 1e6,
            median_ns: percentile("p50.00")?,
            p95_ns: percentile("p95.00").unwrap_or(0),
            p99_ns: percentile("p99.00")?,
            p999_ns: percentile("p99.90").unwrap_or(0),
            max_ns: ns(number(kind, "Max Latency")?),
        })
    };
    // A kind that the ratio has none of has no percentiles.
    let part = |kind: &str| -> Result<Latency> {
        let kind = of(kind)?;
        match number(kind, "Count").ok_or_else(missing)? {
            0.0 => Ok(Latency::default()),
            _ => latency(kind).ok_or_else(missing),
        }
    };
    let (commit, select) = (part("Sets")?, part("Gets")?);
    let totals = of("Totals")?;
    let requests = number(totals, "Count").ok_or_else(missing)?;
    let rate = number(totals, "Ops/sec").filter(|rate| *rate > 0.0).ok_or_else(missing)?;
    if number(totals, "Connection Errors").is_some_and(|errors| errors > 0.0) {
        return Err(no_figure("memtier_benchmark", "connections failed during the run"));
    }
    Ok(Found {
        transactions: commit.count,
        statements: requests as u64,
        elapsed_s: requests / rate,
        latency: latency(totals).ok_or_else(missing)?,
        commit,
        select,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::tests::cut_anywhere;

    const JSON: &str = include_str!("../../../../fixtures/load-programs/memtier.json");

    #[test]
    fn what_memtier_writes_is_read() {
        let found = read(JSON).unwrap();
        assert_eq!((found.transactions, found.statements), (430, 4708));
        assert!((found.elapsed_s - 4708.0 / 4700.29).abs() < 1e-9);
        assert_eq!((found.commit.count, found.select.count), (430, 4278));
        assert_eq!((found.latency.p95_ns, found.latency.max_ns), (4_031_000, 11_647_000));
    }

    #[test]
    fn what_memtier_did_not_write_is_an_error() {
        cut_anywhere(JSON, read);
        for cut in [JSON.len() / 2, JSON.len() - 3] {
            let error = read(&JSON[..cut]).unwrap_err().to_string();
            assert!(error.contains("a figure is missing"), "{error}");
        }
        for (from, to) in [
            ("\"Ops/sec\": 4700.29", "\"Ops/sec\": 0.0"),
            ("\"Ops/sec\": 4700.29", "\"Ops/sec\": \"NaN\""),
            ("\"Ops/sec\": 4700.29", "\"Ops/sec\": null"),
            ("\"Ops/sec\": 4700.29", "\"Ops/sec\": 1e300"),
            ("\"ALL STATS\"", "\"SOME STATS\""),
            ("\"Gets\"", "\"gets\""),
            ("\"Connection Errors\": 0", "\"Connection Errors\": 3"),
        ] {
            assert!(JSON.contains(from), "{from}");
            assert!(read(&JSON.replace(from, to)).is_err(), "{to}");
        }
    }
}
