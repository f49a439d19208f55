//! Figures made of several counters of an interval: what findings and reports both calculate with.

use super::Interval;
use crate::snapshot::known::statistic;

/// Pages found in the database's own page cache, of those asked of it, in per cent. Reads past it,
/// where the source tells them apart, are neither hits nor misses; nothing where they are among the
/// misses and not told apart, so that these are more than what was asked for.
pub(crate) fn page_cache_hit(of: &Interval) -> Option<f64> {
    let counter = |name: &str| of.counter(name).map(|value| value as f64);
    let own = counter("physical reads cache").zip(
        counter("consistent gets from cache")
            .zip(counter("db block gets from cache"))
            .map(|(consistent, current)| consistent + current),
    );
    let (missed, asked) = own.or_else(|| {
        let direct = counter("physical reads direct").unwrap_or(0.0);
        Some((
            counter(statistic::PHYSICAL_READS)? - direct,
            counter(statistic::LOGICAL_READS)? - direct,
        ))
    })?;
    (asked > 0.0 && (0.0..=asked).contains(&missed)).then(|| (asked - missed) / asked * 100.0)
}

/// The size of a page, as the source says it; else PostgreSQL's.
pub(crate) fn page_bytes(of: &Interval) -> u64 {
    of.end
        .source
        .settings
        .get("block_size")
        .and_then(|size| size.parse().ok())
        .filter(|bytes| *bytes > 0)
        .unwrap_or(8192)
}
