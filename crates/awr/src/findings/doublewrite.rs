//! InnoDB writes its pages twice.

use super::{Finding, attach, setting};
use crate::snapshot::known::statistic;
use crate::{Interval, figure};

/// Fewer pages are not worth a change.
const LEAST_PAGES: u64 = 10_000;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let twice = of
        .counter("pages written to the doublewrite buffer")
        .filter(|pages| *pages >= LEAST_PAGES)?;
    let written = of.counter(statistic::PHYSICAL_WRITES)?;
    let page: f64 =
        setting(of, "innodb_page_size").and_then(|size| size.parse().ok()).unwrap_or(16_384.0);
    Some(Finding {
        name: "Pages are written twice".to_owned(),
        impact_percent: None,
        evidence: vec![format!(
            "{} pages ({}) went to the doublewrite buffer before {} were written to their places.",
            figure::count(twice),
            figure::bytes(twice as f64 * page),
            figure::count(written)
        )],
        advice: "innodb_doublewrite = 0 saves it, but only on storage that writes a page all or \
                 nothing: elsewhere a power cut may tear pages."
            .to_owned(),
        tiersmith: attach(
            of,
            "a page is written whole or not at all, so innodb_doublewrite = 0 is \
                               safe there",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::minute;
    use super::*;

    #[test]
    fn it_needs_many_pages() {
        let of = |pages| {
            minute()
                .counter("pages written to the doublewrite buffer", pages)
                .counter(statistic::PHYSICAL_WRITES, pages)
                .interval()
        };
        assert!(find(&of(20_000)).is_some());
        assert_eq!(find(&of(20)), None);
    }
}
