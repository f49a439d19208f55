//! The two text forms of metrics, written from the same families: names, escapes, numbers and
//! limits.
//!
//! | | OpenMetrics 1.0 | text 0.0.4 |
//! |---|---|---|
//! | a counter's name in `# TYPE` | without `_total` | with it |
//! | `# UNIT` | there | not there |
//! | info | a type | a gauge whose name ends in `_info` |
//! | the end | `# EOF` | nothing |
//!
//! Invariants: no two series of one name and labels; samples of one family stand together; no text
//! from outside ends a line or a quote.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::Format;
use crate::figure;

/// Series at most, of all sources together. A server that invents names cannot fill a disk of time
/// series.
const SERIES: usize = 20_000;
/// Families at most.
const FAMILIES: usize = 1_000;
/// Characters of a label's value at most.
const LABEL: usize = 200;

/// What a family counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
    Info,
}

/// The unit of a family, where it is one that Prometheus knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    None,
    Bytes,
    Seconds,
}

impl Unit {
    pub(super) fn name(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Bytes => "bytes",
            Unit::Seconds => "seconds",
        }
    }
}

/// A value, written without loss.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value {
    Whole(u64),
    /// A time: written in seconds.
    Nanoseconds(u64),
    Number(f64),
}

impl Value {
    fn write(self, out: &mut String) {
        // Writing to a string does not fail.
        let _ = match self {
            Value::Whole(value) => write!(out, "{value}"),
            Value::Nanoseconds(ns) => {
                let (whole, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
                let rest = format!("{rest:09}");
                match rest.trim_end_matches('0') {
                    "" => write!(out, "{whole}"),
                    rest => write!(out, "{whole}.{rest}"),
                }
            }
            Value::Number(value) => write!(out, "{value}"),
        };
    }
}

/// Labels of a series.
pub(super) type Labels = Vec<(&'static str, String)>;

/// A family: its name without prefix and without what its type adds behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec<'a> {
    pub(super) name: &'a str,
    pub(super) kind: Kind,
    pub(super) unit: Unit,
    pub(super) help: &'a str,
}

#[derive(Debug)]
struct Family {
    kind: Kind,
    unit: Unit,
    help: String,
    series: BTreeSet<String>,
    text: Vec<(&'static str, String, Value)>,
}

/// All families of a scrape.
#[derive(Debug, Default)]
pub(super) struct Families {
    families: BTreeMap<String, Family>,
    series: usize,
    dropped: u64,
}

impl Families {
    /// Adds a sample; counts it as left out if it is there already or there are too many.
    pub(super) fn add(&mut self, spec: Spec<'_>, labels: &Labels, value: Value) {
        self.add_group(spec, labels, &[("", Vec::new(), value)]);
    }

    /// Adds the samples of one metric, which stand or fall together: suffix of the name, labels
    /// besides, value.
    pub(super) fn add_group(
        &mut self,
        spec: Spec<'_>,
        labels: &Labels,
        samples: &[(&'static str, Labels, Value)],
    ) {
        let name = full_name(spec);
        let known = self.families.contains_key(&name);
        if self.series + samples.len() > SERIES || (!known && self.families.len() >= FAMILIES) {
            self.left_out(samples.len());
            return;
        }
        let family = self.families.entry(name).or_insert_with(|| Family {
            kind: spec.kind,
            unit: spec.unit,
            help: spec.help.to_owned(),
            series: BTreeSet::new(),
            text: Vec::new(),
        });
        // Two families of one name and different meaning would be one family with contradictions.
        let same = family.kind == spec.kind && family.unit == spec.unit;
        if !same || !family.series.insert(written(labels)) {
            self.left_out(samples.len());
            return;
        }
        for (suffix, more, value) in samples {
            let mut all = labels.clone();
            all.extend(more.iter().cloned());
            family.text.push((suffix, written(&all), *value));
        }
        self.series += samples.len();
    }

    /// Counts what was left out before it came here.
    pub(super) fn left_out(&mut self, series: usize) {
        self.dropped = self.dropped.saturating_add(series as u64);
    }

    /// Series left out so far.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The text.
    pub(super) fn write(&self, format: Format) -> String {
        let mut out = String::new();
        for (name, family) in &self.families {
            family.write(name, format, &mut out);
        }
        if format == Format::OpenMetrics {
            out.push_str("# EOF\n");
        }
        out
    }
}

impl Family {
    fn write(&self, name: &str, format: Format, out: &mut String) {
        let open = format == Format::OpenMetrics;
        let (kind, suffix) = match self.kind {
            Kind::Counter => ("counter", "_total"),
            Kind::Gauge => ("gauge", ""),
            Kind::Histogram => ("histogram", ""),
            Kind::Info if open => ("info", "_info"),
            Kind::Info => ("gauge", "_info"),
        };
        let described = if open { name.to_owned() } else { format!("{name}{suffix}") };
        let _ = writeln!(out, "# TYPE {described} {kind}");
        if open && self.unit != Unit::None {
            let _ = writeln!(out, "# UNIT {described} {}", self.unit.name());
        }
        let _ = writeln!(out, "# HELP {described} {}", help(&self.help));
        for (part, labels, value) in &self.text {
            let _ = write!(out, "{name}{suffix}{part}{labels} ");
            value.write(out);
            out.push('\n');
        }
    }
}

/// The name of a family as the text has it, without what its type adds behind it.
fn full_name(spec: Spec<'_>) -> String {
    match spec.unit {
        Unit::None => format!("tiersmith_{}", spec.name),
        unit => format!("tiersmith_{}_{}", spec.name, unit.name()),
    }
}

/// A name of the database's own as part of a metric's name: letters, digits and single underscores.
pub(super) fn slug(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars().take(100) {
        match c.to_ascii_lowercase() {
            c if c.is_ascii_alphanumeric() => out.push(c),
            _ if out.is_empty() || out.ends_with('_') => {}
            _ => out.push('_'),
        }
    }
    let out = out.trim_end_matches('_');
    // What types add behind a name must not be in it already.
    let cut = ["_total", "_created", "_info", "_bucket"]
        .iter()
        .find_map(|suffix| out.strip_suffix(suffix));
    let out = cut.unwrap_or(out);
    if out.is_empty() { "unnamed".to_owned() } else { out.to_owned() }
}

fn written(labels: &Labels) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let parts: Vec<String> =
        labels.iter().map(|(name, value)| format!("{name}=\"{}\"", label(value))).collect();
    format!("{{{}}}", parts.join(","))
}

/// A label's value: control characters made visible, not longer than it may be, quotes and
/// backslashes escaped.
fn label(value: &str) -> String {
    let beginning: String = value.chars().take(LABEL + 1).collect();
    let visible = figure::visible(&beginning);
    let mut out = String::with_capacity(visible.len());
    for (index, c) in visible.chars().enumerate() {
        match c {
            _ if index >= LABEL => return out + "...",
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out
}

/// A help text: on one line, without anything that one of the forms would have to escape.
fn help(text: &str) -> String {
    let plain = |c: char| match c {
        '"' => '\'',
        '\\' => '/',
        c if c.is_control() => ' ',
        c => c,
    };
    text.chars().take(500).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> Spec<'_> {
        Spec {
            name,
            kind: Kind::Counter,
            unit: Unit::Seconds,
            help: "What \"it\" is\nand more \\ less.",
        }
    }

    #[test]
    fn both_forms_are_written_from_one_family() {
        let mut families = Families::default();
        let labels: Labels = vec![("event", "a\"b\\c\nd\u{1b}".to_owned())];
        families.add(spec("wait"), &labels, Value::Nanoseconds(1_500_000_000));
        let series = r#"tiersmith_wait_seconds_total{event="a\"b\\c\\nd\\u{1b}"} 1.5"#;
        assert_eq!(
            families.write(Format::OpenMetrics),
            format!(
                "# TYPE tiersmith_wait_seconds counter\n# UNIT tiersmith_wait_seconds seconds\n\
                 # HELP tiersmith_wait_seconds What 'it' is and more / less.\n{series}\n# EOF\n"
            )
        );
        assert_eq!(
            families.write(Format::Prometheus),
            format!(
                "# TYPE tiersmith_wait_seconds_total counter\n\
                 # HELP tiersmith_wait_seconds_total What 'it' is and more / less.\n{series}\n"
            )
        );
    }

    #[test]
    fn what_is_there_twice_contradictory_or_too_much_is_left_out_and_counted() {
        let mut families = Families::default();
        let labels = |n: usize| vec![("n", n.to_string())];
        families.add(spec("a"), &labels(1), Value::Whole(1));
        families.add(spec("a"), &labels(1), Value::Whole(2));
        families.add(Spec { kind: Kind::Gauge, ..spec("a") }, &labels(2), Value::Whole(3));
        assert_eq!(families.dropped(), 2);
        for n in 0..SERIES + 5 {
            families.add(spec("many"), &labels(n), Value::Whole(1));
        }
        assert_eq!(families.dropped(), 2 + 6, "one series is there already");
        let long = "x".repeat(LABEL + 1);
        assert_eq!(label(&long), format!("{}...", "x".repeat(LABEL)));
        assert_eq!(label(&long[1..]), "x".repeat(LABEL));
    }

    #[test]
    fn names_are_letters_digits_and_single_underscores() {
        let cases = [
            ("parse count (total)", "parse_count"),
            ("flash cache read hits", "flash_cache_read_hits"),
            ("  --  ", "unnamed"),
            ("böse\"{}\n", "b_se"),
            ("_info", "info"),
        ];
        for (name, expected) in cases {
            assert_eq!(slug(name), expected);
        }
    }

    #[test]
    fn times_are_written_to_the_nanosecond() {
        for (ns, expected) in [(0, "0"), (1, "0.000000001"), (u64::MAX, "18446744073.709551615")] {
            let mut out = String::new();
            Value::Nanoseconds(ns).write(&mut out);
            assert_eq!(out, expected);
        }
    }
}
