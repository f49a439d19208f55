//! What the page of one interval opens with: four figures, where the time went, the longest waits,
//! and what was found. The same figures are in the sections below.

use super::{over_time, printed, tables, time};
use crate::chart::{Bar, Chart, Front, Severity, Tile, Told};
use crate::findings::{Finding, findings};
use crate::{Interval, figure};

/// How many waits stand beside the chart.
const WAITS: usize = 5;

/// Shares of DB time from which on a finding matters more.
const HIGH_PERCENT: f64 = 30.0;
const MEDIUM_PERCENT: f64 = 10.0;

pub(super) fn front(of: &Interval) -> Front {
    let (waits, bars) = longest(of);
    Front { tiles: tiles(of, bars.first()), chart: chart(of), waits, bars, findings: told(of) }
}

/// A figure of three significant digits.
fn three(value: f64) -> String {
    let (value, suffix) = match value.abs() {
        large if large >= 1e9 => (value / 1e9, " G"),
        large if large >= 1e6 => (value / 1e6, " M"),
        large if large >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match value.abs() {
        large if large >= 99.95 => 0,
        middle if middle >= 9.995 => 1,
        _ => 2,
    };
    let value = if value.abs() >= 999.5 { (value / 10.0).round() * 10.0 } else { value };
    format!("{}{suffix}", figure::grouped(&format!("{value:.digits$}")))
}

/// A time of three significant digits, in the unit that people use for it.
fn length(ns: f64) -> String {
    let seconds = ns / 1e9;
    match seconds {
        day if day >= 172_800.0 => format!("{} d", three(day / 86_400.0)),
        hour if hour >= 7_200.0 => format!("{} h", three(hour / 3_600.0)),
        minute if minute >= 120.0 => format!("{} min", three(minute / 60.0)),
        second if second >= 1.0 => format!("{} s", three(second)),
        milli if milli >= 1e-3 => format!("{} ms", three(milli * 1e3)),
        less => format!("{} us", three(less * 1e6)),
    }
}

fn tile(label: &str, value: String, detail: String) -> Tile {
    Tile { label: label.to_owned(), value, detail }
}

fn tiles(of: &Interval, top: Option<&(Bar, String)>) -> Vec<Tile> {
    let mut tiles = Vec::new();
    let whole = length(of.elapsed_ns as f64);
    match of.db_time_ns {
        Some(ns) => tiles.push(tile("DB time", length(ns as f64), format!("in {whole}"))),
        None => tiles.push(tile("Interval", whole, "the source does not tell DB time".to_owned())),
    }
    let sampled = of.sampling.as_ref().and_then(crate::Sampling::active_sessions);
    let cpus = of.end.host.cpus.filter(|_| !of.is_remote()).map(|cpus| cpus.threads);
    let beside = cpus.map_or(String::new(), |cpus| format!("on {cpus} processors"));
    if let Some(measured) = of.active_sessions() {
        tiles.push(tile("Active sessions", three(measured), beside));
    } else if let Some(sampled) = sampled {
        let beside =
            if beside.is_empty() { "sampled".to_owned() } else { format!("sampled, {beside}") };
        tiles.push(tile("Active sessions", three(sampled), beside));
    }
    if let Some(count) = of.transactions() {
        let rate = three(count as f64 / of.elapsed_s());
        tiles.push(tile(
            "Transactions",
            format!("{rate}/s"),
            format!("{} in all", three(count as f64)),
        ));
    }
    if let Some((bar, shown)) = top {
        let of_what = if sampled_first(of) { "active sessions" } else { "DB time" };
        let beside = format!("{} % of {of_what}, {shown}", figure::percent(bar.value));
        tiles.push(tile("Top wait", bar.label.clone(), beside));
    }
    tiles
}

/// Where the source does not tell what a processor did, measured time is a part of the truth, and
/// samples are all of it.
fn sampled_first(of: &Interval) -> bool {
    of.sampling.is_some() && of.db_cpu_ns.is_none()
}

fn chart(of: &Interval) -> Option<Chart> {
    let is_sampled =
        |chart: &Chart| matches!(chart, Chart::Area { of, .. } if of.title.contains("sampled"));
    let mut charts = over_time::charts(&[of]);
    let best = charts.iter().position(|chart| is_sampled(chart) == sampled_first(of)).unwrap_or(0);
    (!charts.is_empty()).then(|| charts.swap_remove(best))
}

/// The longest waits, each with its share in per cent and in words.
fn longest(of: &Interval) -> (String, Vec<(Bar, String)>) {
    if let Some(sampling) = of.sampling.as_ref().filter(|_| sampled_first(of)) {
        let all = sampling.seen().max(1) as f64;
        let bars = sampling.events.iter().take(WAITS).map(|event| {
            let percent = event.seen as f64 / all * 100.0;
            let colour = time::colour(tiersmith_events::WaitClass::from_name(&event.class));
            let bar =
                Bar { label: event.name.clone(), value: percent, detail: String::new(), colour };
            (bar, event.class.clone())
        });
        return ("Top five, % of active sessions (sampled)".to_owned(), bars.collect());
    }
    let bars = time::bars(of, WAITS).into_iter().filter_map(|bar| {
        let percent = time::of_db_time(of, bar.value * 1e9)?;
        let shown = length(bar.value * 1e9);
        Some((Bar { value: percent, ..bar }, shown))
    });
    let bars: Vec<(Bar, String)> = bars.collect();
    ("Top five waits, % of DB time".to_owned(), bars)
}

fn told(of: &Interval) -> Vec<Told> {
    findings(of).into_iter().map(|finding| one(of, finding)).collect()
}

fn one(of: &Interval, finding: Finding) -> Told {
    let safety = finding.name == crate::findings::UNSAFE;
    let severity = match finding.impact_percent {
        _ if safety => Severity::High,
        Some(percent) if percent >= HIGH_PERCENT => Severity::High,
        Some(percent) if percent >= MEDIUM_PERCENT => Severity::Medium,
        _ => Severity::Low,
    };
    let share = match finding.impact_percent {
        _ if safety => "data at risk".to_owned(),
        Some(percent) => format!("{} %", figure::percent(percent)),
        None => String::new(),
    };
    Told {
        share,
        severity,
        section: section(of, &finding.name),
        name: finding.name,
        evidence: finding.evidence,
        advice: finding.advice,
        tier: finding.tiersmith.unwrap_or_default(),
    }
}

/// The section with the figures of a finding, by the beginning of its name.
fn section(of: &Interval, name: &str) -> String {
    let seen = of.sampling.as_ref().is_some_and(|sampling| !sampling.statements.is_empty());
    let sections = [
        ("A crash can lose", "Media and Settings"),
        (
            "Sessions wait for locks",
            if seen { super::more::SEEN_TITLE } else { "Wait Events Statistics" },
        ),
        ("One statement", "SQL Statistics"),
        ("A few statements", "SQL Statistics"),
        ("Oracle's ADDM found", printed::TITLE),
        ("Compiling statements", "Instance Activity Statistics"),
        ("Sessions connect", "Instance Activity Statistics"),
        ("Processor time", "Report Summary"),
        ("Much of DB time", "Report Summary"),
        ("Large tables", "Segment Statistics"),
        ("Dead rows", "Segment Statistics"),
        ("Replication", "Replication"),
        ("A few files", "Segment Statistics"),
        ("Checkpoints", "Instance Activity Statistics"),
        ("Full pages", "Instance Activity Statistics"),
        ("Redo too small", "Instance Activity Statistics"),
        ("Pages are written twice", "Instance Activity Statistics"),
        ("Sorts and hashes", "Instance Activity Statistics"),
        ("Flash cache", "Cache and Redo Statistics"),
        ("Threads wait", "Host"),
        ("Too ", "Report Summary"),
    ];
    let found = sections.iter().find(|(begin, _)| name.starts_with(begin)).map(|(_, title)| *title);
    match found {
        Some("Host") => tables::host_title(&[of]),
        Some(title) => title.to_owned(),
        None if name.starts_with("The processors") => tables::host_title(&[of]),
        None => "Wait Events Statistics".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_significant_digits_and_the_unit_that_people_use() {
        let shown =
            [0.0, 0.479, 3.356, 12.34, 99.96, 469.2, 2264.0, 17_466.0, 119_881.0, 8_150_000.0]
                .map(three);
        let expected =
            ["0.00", "0.48", "3.36", "12.3", "100", "469", "2,260", "17.5 k", "120 k", "8.15 M"];
        assert_eq!(shown, expected);
        let shown = [48_408.42, 14_400.0, 300.0, 59.0, 0.0021, 0.0000071].map(|s| length(s * 1e9));
        assert_eq!(shown, ["13.4 h", "4.00 h", "5.00 min", "59.0 s", "2.10 ms", "7.10 us"]);
    }
}
