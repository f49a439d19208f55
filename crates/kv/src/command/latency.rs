//! LATENCY: when something took at least `latency-monitor-threshold` milliseconds, the last 160
//! seconds in which it did for each kind of event; and histograms of commands' times.
//!
//! The events: `command` and `fast-command` (as COMMAND flags them), `expire-cycle`,
//! `eviction-cycle`, and `tier-commit`, the fence that makes a batch durable. There are no others,
//! so the memory that this takes is bounded.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::time::Duration;

use super::subcommands::{help, syntax};
use super::{Arguments, Context, Done, Refusal, word};

/// Samples that are kept of an event, each of another second.
const SAMPLES_MAX: usize = 160;
/// Columns and rows of a graph.
const COLUMNS: usize = 80;
const ROWS: usize = 4;
/// The characters of a graph's column, from the lowest.
const FILL: [char; 3] = ['_', 'o', '#'];

const HELP: [&str; 14] = [
    "DOCTOR",
    "    Return a human readable latency analysis report.",
    "GRAPH <event>",
    "    Return an ASCII latency graph for the <event> class.",
    "HISTORY <event>",
    "    Return time-latency samples for the <event> class.",
    "LATEST",
    "    Return the latest latency samples for all events.",
    "RESET [<event> ...]",
    "    Reset latency data of one or more <event> classes.",
    "    (default: reset all data for all event classes)",
    "HISTOGRAM [COMMAND ...]",
    "    Return a cumulative distribution of latencies in the format of a histogram for the \
     specified command names.",
    "    If no commands are specified then all histograms are replied.",
];

/// What was seen of one kind of event.
#[derive(Debug, Default)]
struct Series {
    /// Seconds since 1970 and milliseconds, the oldest first.
    samples: VecDeque<(u64, u64)>,
    most: u64,
}

/// What was seen of all.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    all: BTreeMap<&'static str, Series>,
}

impl Latency {
    /// Notes that something took so long, if that is worth it.
    #[inline]
    pub(crate) fn note(
        &mut self,
        event: &'static str,
        took: Duration,
        (threshold_ms, now_ms): (u64, u64),
    ) {
        if threshold_ms > 0 && took.as_millis() as u64 >= threshold_ms {
            self.add(event, took.as_millis() as u64, now_ms / 1000);
        }
    }

    #[cold]
    fn add(&mut self, event: &'static str, ms: u64, second: u64) {
        let series = self.all.entry(event).or_default();
        series.most = series.most.max(ms);
        match series.samples.back_mut() {
            Some((last, most)) if *last == second => *most = (*most).max(ms),
            _ => {
                series.samples.push_back((second, ms));
                if series.samples.len() > SAMPLES_MAX {
                    series.samples.pop_front();
                }
            }
        }
    }

    /// Forgets some kinds of events, or all; how many there were.
    fn reset(&mut self, events: &Arguments<'_>) -> u64 {
        let before = self.all.len();
        let named = |name: &str| events.iter().any(|one| one.eq_ignore_ascii_case(name.as_bytes()));
        self.all.retain(|name, _| !events.is_empty() && !named(name));
        (before - self.all.len()) as u64
    }

    fn series(&self, event: &[u8]) -> Option<(&'static str, &Series)> {
        let found = self.all.iter().find(|(name, _)| name.as_bytes() == event);
        found.map(|(name, series)| (*name, series))
    }
}

impl Series {
    fn lowest_and_highest(&self) -> (u64, u64) {
        let all = || self.samples.iter().map(|(_, ms)| *ms);
        (all().min().unwrap_or(0), all().max().unwrap_or(0))
    }

    /// The average, and how far samples are from it on average.
    fn average(&self) -> (u64, u64) {
        let count = self.samples.len().max(1) as u64;
        let average = self.samples.iter().map(|(_, ms)| ms).sum::<u64>() / count;
        let off: u64 = self.samples.iter().map(|(_, ms)| ms.abs_diff(average)).sum();
        (average, off / count)
    }

    /// The graph, as Redis draws it: columns of samples, and below how long ago each was.
    fn graph(&self, event: &str, now_s: u64) -> String {
        let (low, high) = self.lowest_and_highest();
        let mut text = format!(
            "{event} - high {high} ms, low {low} ms (all time high {} ms)\n{}\n",
            self.most,
            "-".repeat(COLUMNS)
        );
        let samples: Vec<(u64, u64)> = self.samples.iter().copied().collect();
        for (number, part) in samples.chunks(COLUMNS).enumerate() {
            if number > 0 {
                text.push('\n');
            }
            draw(part, (low, high), now_s, &mut text);
        }
        text
    }
}

fn draw(samples: &[(u64, u64)], (low, high): (u64, u64), now_s: u64, text: &mut String) {
    let steps = (FILL.len() * ROWS) as u64;
    let step = |ms: u64| ((ms - low) * steps / (high - low).max(1)).min(steps - 1) as usize;
    for row in (0..ROWS).rev() {
        text.extend(samples.iter().map(|(_, ms)| match step(*ms).checked_sub(row * FILL.len()) {
            None => ' ',
            Some(level) => FILL.get(level).copied().unwrap_or('|'),
        }));
        text.push('\n');
    }
    let labels: Vec<Vec<char>> =
        samples.iter().map(|(second, _)| ago(now_s.saturating_sub(*second))).collect();
    text.extend(std::iter::repeat_n(' ', samples.len()));
    text.push('\n');
    for row in 0..labels.iter().map(Vec::len).max().unwrap_or(0) {
        text.extend(labels.iter().map(|label| label.get(row).copied().unwrap_or(' ')));
        text.push('\n');
    }
}

/// How long ago something was.
fn ago(seconds: u64) -> Vec<char> {
    let text = match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    };
    text.chars().collect()
}

pub(crate) fn latency(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let now_s = context.keys.now_ms() / 1000;
    match (word(args[1]).as_str(), &args[2..]) {
        ("latest", []) => latest(context),
        ("history", [event]) => {
            let series = context.shared.latency.series(event);
            let samples = series.map(|(_, series)| &series.samples);
            context.reply.list(samples.map_or(0, VecDeque::len));
            for (second, ms) in samples.into_iter().flatten() {
                context.reply.list(2);
                context.reply.count(*second);
                context.reply.count(*ms);
            }
        }
        ("graph", [event]) => {
            let Some((name, series)) = context.shared.latency.series(event) else {
                return Err(Refusal::Words(format!(
                    "ERR No samples available for event '{}'",
                    String::from_utf8_lossy(event).chars().take(128).collect::<String>()
                )));
            };
            let graph = series.graph(name, now_s);
            context.reply.text(&graph);
        }
        ("reset", events) => {
            let count = context.shared.latency.reset(events);
            context.reply.count(count);
        }
        ("histogram", names) => histogram(context, names),
        ("doctor", []) => {
            let report = doctor(context, now_s);
            context.reply.text(&report);
        }
        ("help", []) => help(context, "latency", &HELP),
        _ => return Err(syntax("latency", args)),
    }
    Ok(())
}

fn latest(context: &mut Context<'_>) {
    let all = &context.shared.latency.all;
    context.reply.list(all.len());
    for (event, series) in all {
        let (second, ms) = series.samples.back().copied().unwrap_or_default();
        context.reply.list(4);
        context.reply.bulk(event.as_bytes());
        [second, ms, series.most].into_iter().for_each(|number| context.reply.count(number));
    }
}

/// How many calls of commands took at most how long, in steps that double.
fn histogram(context: &mut Context<'_>, names: &Arguments<'_>) {
    let statistics = &context.shared.statistics;
    let all: Vec<_> = match names {
        [] => statistics.commands().filter(|(_, calls)| calls.is_measured()).collect(),
        names => names.iter().flat_map(|name| statistics.named(&word(name))).collect(),
    };
    context.reply.map(all.len());
    for (name, calls) in all {
        let steps = calls.steps(&context.shared.ticks);
        context.reply.bulk(name.as_bytes());
        context.reply.map(2);
        context.reply.bulk(b"calls");
        context.reply.count(steps.last().map_or(0, |(_, count)| *count));
        context.reply.bulk(b"histogram_usec");
        context.reply.map(steps.len());
        for (step, count) in steps {
            context.reply.count(step / 1000);
            context.reply.count(count);
        }
    }
}

/// What was seen in words, and what can be done.
fn doctor(context: &Context<'_>, now_s: u64) -> String {
    let configuration = &context.shared.configuration;
    let threshold = configuration.number("latency-monitor-threshold");
    let all = &context.shared.latency.all;
    if all.is_empty() && threshold == 0 {
        return "Latency monitoring is off. To turn it on: CONFIG SET latency-monitor-threshold \
                <milliseconds>.\n"
            .to_owned();
    }
    if all.is_empty() {
        return format!("Nothing has taken {threshold} ms since the monitor was turned on.\n");
    }
    let mut text = String::from("What took long:\n\n");
    for (number, (event, series)) in (1..).zip(all) {
        let (average, off) = series.average();
        let first = series.samples.front().map_or(now_s, |(second, _)| *second);
        let period = now_s.saturating_sub(first).max(1) as f64 / series.samples.len() as f64;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{number}. {event}: {} latency spikes (average {average}ms, mean deviation {off}ms, \
             period {period:.2} sec). Worst all time event {}ms.",
            series.samples.len(),
            series.most
        );
    }
    text += "\nWhat can be done:\n\n";
    let slower_than = configuration.hot.slower_than_us;
    let advice = |event: &str| match event {
        "command" if slower_than < 0 || slower_than.unsigned_abs() / 1000 > threshold => format!(
            "- Some commands are slow, and SLOWLOG does not note them: CONFIG SET \
             slowlog-log-slower-than {}.\n",
            threshold.saturating_mul(1000)
        ),
        "command" => "- Some commands are slow: SLOWLOG GET says which.\n".to_owned(),
        "fast-command" => "- Commands that take constant time were slow: the machine did not run \
                           the server. Look for other load, and for a busy host.\n"
            .to_owned(),
        "expire-cycle" => "- Many keys expire at the same time: spread their times.\n".to_owned(),
        "eviction-cycle" => "- Many keys had to go at once for maxmemory: raise it, or let keys \
                             expire.\n"
            .to_owned(),
        _ => "- Making changes durable took long: the medium is slow or busy; `tiersmith probe` \
              measures it.\n"
            .to_owned(),
    };
    all.keys().for_each(|event| text += &advice(event));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_keeps_the_worst_of_each_second_and_no_more_than_it_may() {
        let mut all = Latency::default();
        let mut note = |ms: u64, second: u64| {
            all.note("command", Duration::from_millis(ms), (10, second * 1000));
        };
        note(9, 1);
        note(20, 2);
        note(30, 2);
        note(25, 2);
        note(10, 3);
        let series = &all.all["command"];
        assert_eq!(series.samples, [(2, 30), (3, 10)]);
        assert_eq!((series.most, series.average()), (30, (20, 10)));
        (0..1000).for_each(|second| all.add("command", 50, 10 + second));
        assert_eq!(all.all["command"].samples.len(), SAMPLES_MAX);
        all.add("expire-cycle", 50, 1);
        assert_eq!(all.reset(&[b"COMMAND", b"nothing"]), 1);
        assert_eq!(all.reset(&[]), 1);
        assert!(all.all.is_empty());
    }

    #[test]
    fn a_graph_has_a_column_for_each_sample_and_how_long_ago_it_was() {
        let mut all = Latency::default();
        for (second, ms) in [(1000, 10), (1030, 20), (1090, 40)] {
            all.add("command", ms, second);
        }
        let graph = all.all["command"].graph("command", 1100);
        let lines: Vec<&str> = graph.lines().collect();
        assert_eq!(lines[0], "command - high 40 ms, low 10 ms (all time high 40 ms)");
        assert_eq!(lines[1], "-".repeat(80));
        assert_eq!(lines[2..], ["  #", "  |", " o|", "_||", "   ", "111", "mm0", "  s"]);
    }
}
