//! What is done with an imported report, and heads that let a fuzzer reach what comes behind them.

use tiersmith_awr::findings::findings;
use tiersmith_awr::{Interval, Snapshot, compare, import, report};

/// What says when the interval of a text report was.
#[allow(dead_code, reason = "each target uses its part")]
pub const TEXT_HEAD: &str = "\nBegin Snap:        100 24-Aug-26 10:00:00       50       1.5\n  End Snap:        101 24-Aug-26 10:10:00       52\n   DB time:      33.33 (mins)\n\n";

/// And of one in HTML.
#[allow(dead_code, reason = "each target uses its part")]
pub const HTML_HEAD: &str = "<h1>WORKLOAD REPOSITORY report for</h1><table><tr><th></th><th>Snap Id</th><th>Snap Time</th></tr>\
<tr><td>Begin Snap:</td><td>1</td><td>24-Aug-26 10:00:00</td></tr><tr><td>End Snap:</td><td>2</td><td>24-Aug-26 10:10:00</td></tr>\
<tr><td>DB Time:</td><td>33.33 (mins)</td></tr></table>";

/// Imports a text; what can be read can be written, reported and compared, and no impact is over a hundred per cent.
pub fn take(text: &str) {
    let Ok(imported) = import::parse(text, "here") else { return };
    let again = Snapshot::from_json(&imported.end.to_json(), "here").expect("what was imported can be kept");
    assert_eq!(again, imported.end);
    let Ok(interval) = Interval::between(&imported.begin, &imported.end) else { return };
    for finding in findings(&interval) {
        assert!(finding.impact_percent.is_none_or(|percent| (0.0..=100.0).contains(&percent)), "{finding:?}");
        assert!(!finding.evidence.is_empty());
    }
    let text = report(&interval).text();
    assert!(!text.contains("NaN") && !text.chars().any(|c| c.is_control() && c != '\n'));
    assert_eq!(report(&interval).html().matches("<script").count(), report_scripts());
    let _ = compare(&interval, &interval).text();
}

/// How many scripts a page has by itself.
fn report_scripts() -> usize {
    static OWN: std::sync::LazyLock<usize> = std::sync::LazyLock::new(|| {
        let text = format!("{HTML_HEAD}<table><tr><th>Statistic</th><th>Total</th></tr><tr><td>user commits</td><td>7</td></tr></table>");
        let imported = import::parse(&text, "here").expect("a report");
        let interval = Interval::between(&imported.begin, &imported.end).expect("an interval");
        report(&interval).html().matches("<script").count()
    });
    *OWN
}
