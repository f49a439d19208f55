//! Full pages are much of PostgreSQL's redo.

use super::{Finding, attach, setting};
use crate::snapshot::known::statistic;
use crate::{Interval, figure};

/// Share of redo from which on it is worth saying.
const LEAST_PERCENT: f64 = 30.0;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let pages = of.counter("full page images in redo").filter(|pages| *pages >= 100)?;
    let redo = of.counter(statistic::REDO_SIZE).filter(|bytes| *bytes > 0)?;
    let page: u64 = setting(of, "block_size").and_then(|size| size.parse().ok()).unwrap_or(8192);
    // A page is written without its hole, and maybe compressed: this is the most it can be.
    let most = (pages.saturating_mul(page) as f64 / redo as f64 * 100.0).min(100.0);
    let compressed = setting(of, "wal_compression").is_some_and(|value| value != "off");
    (most >= LEAST_PERCENT).then(|| Finding {
        name: "Full pages are much of the redo".to_owned(),
        impact_percent: None,
        evidence: vec![
            format!(
                "{} pages of {} in {} of redo: at most {} % of it.",
                figure::count(pages),
                figure::bytes(page as f64),
                figure::bytes(redo as f64),
                figure::percent(most)
            ),
            format!("wal_compression is {}.", if compressed { "on" } else { "off" }),
        ],
        advice: "Fewer checkpoints (max_wal_size, checkpoint_timeout) and wal_compression make it \
                 less. full_page_writes = off makes it \
                 none, but only on storage that writes a page all or nothing: elsewhere a power \
                 cut may tear pages."
            .to_owned(),
        tiersmith: attach(
            of,
            "a page is written whole or not at all, so full_page_writes = off is \
                               safe there",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::minute;
    use super::*;

    #[test]
    fn it_speaks_from_a_third_of_the_redo_on_and_says_at_most() {
        let of = |pages, redo| {
            minute()
                .counter("full page images in redo", pages)
                .counter(statistic::REDO_SIZE, redo)
                .interval()
        };
        assert!(
            find(&of(1000, 10_000_000))
                .is_some_and(|found| found.evidence[0].contains("at most 81.9 %"))
        );
        assert_eq!(find(&of(1000, 100_000_000)), None);
        assert_eq!(find(&of(0, 100)), None);
    }
}
