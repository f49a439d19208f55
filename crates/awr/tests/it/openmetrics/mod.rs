//! A strict reader of OpenMetrics 1.0 text, made from the grammar of the specification: what it
//! accepts, every reader accepts.
//!
//! Checked besides the grammar: families are not interleaved, series are distinct, names end in
//! what their type and unit ask for, counters are not negative, buckets are cumulative and agree
//! with their count.

use std::collections::{BTreeMap, BTreeSet};

/// One sample.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// Everything in a text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exposition {
    pub(crate) samples: Vec<Sample>,
    /// Type by family.
    pub(crate) families: BTreeMap<String, String>,
}

impl Exposition {
    /// The value of the first sample with these labels among its own.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let has = |sample: &&Sample| {
            sample.name == name
                && labels.iter().all(|(k, v)| sample.labels.get(*k).is_some_and(|value| value == v))
        };
        self.samples.iter().find(has).map(|sample| sample.value)
    }
}

/// A text that is being read.
#[derive(Default)]
struct Reading {
    of: Exposition,
    series: BTreeSet<(String, BTreeMap<String, String>)>,
    /// Name, type and unit of the family whose lines follow.
    family: Option<(String, String, String)>,
    described: BTreeSet<String>,
}

/// Reads a whole text.
pub(crate) fn read(text: &str) -> Result<Exposition, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("it does not end in # EOF and a line feed")?;
    let mut reading = Reading::default();
    for (number, line) in body.split_inclusive('\n').enumerate() {
        reading.line(line).map_err(|why| format!("line {}: {why}: {line:?}", number + 1))?;
    }
    let of = reading.of;
    for (name, _) in of.families.iter().filter(|(_, kind)| *kind == "histogram") {
        histogram(&of, name)?;
    }
    no_clash(&of)?;
    Ok(of)
}

impl Reading {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let line = line.strip_suffix('\n').ok_or("it has no end")?;
        match line.strip_prefix("# ") {
            Some(rest) => self.descriptor(rest),
            None => self.add(sample(line)?),
        }
    }

    fn descriptor(&mut self, rest: &str) -> Result<(), String> {
        let mut words = rest.splitn(3, ' ');
        let (Some(what), Some(name), Some(value)) = (words.next(), words.next(), words.next())
        else {
            return Err("a descriptor has three parts".to_owned());
        };
        if !is_name(name) || !self.described.insert(format!("{what} {name}")) {
            return Err("the name is wrong, or it was described before".to_owned());
        }
        match what {
            "TYPE" => {
                if !["counter", "gauge", "histogram", "info"].contains(&value) {
                    return Err("the type is not known".to_owned());
                }
                if self.of.families.insert(name.to_owned(), value.to_owned()).is_some() {
                    return Err("the family is there twice".to_owned());
                }
                self.family = Some((name.to_owned(), value.to_owned(), String::new()));
            }
            "UNIT" => {
                let current = self
                    .family
                    .as_mut()
                    .filter(|(of, ..)| of == name)
                    .ok_or_else(|| "another family".to_owned())?;
                if !name.ends_with(&format!("_{value}")) {
                    return Err("the name does not end in the unit".to_owned());
                }
                value.clone_into(&mut current.2);
            }
            "HELP" => {
                if self.family.as_ref().is_none_or(|(of, ..)| of != name) {
                    return Err("another family".to_owned());
                }
                unescape(value)?;
            }
            _ => return Err("a descriptor of no kind".to_owned()),
        }
        Ok(())
    }

    fn add(&mut self, sample: Sample) -> Result<(), String> {
        let (name, kind, _) =
            self.family.as_ref().ok_or_else(|| "a sample before its family".to_owned())?;
        let suffix = sample
            .name
            .strip_prefix(name.as_str())
            .ok_or_else(|| "a sample of another family".to_owned())?;
        let allowed: &[&str] = match kind.as_str() {
            "counter" => &["_total"],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_count", "_sum"],
            _ => &[""],
        };
        if !allowed.contains(&suffix) {
            return Err("the name does not fit the type".to_owned());
        }
        if (suffix == "_bucket") != sample.labels.contains_key("le") {
            return Err("buckets have le, and nothing else has".to_owned());
        }
        if kind != "gauge" && (sample.value.is_nan() || sample.value < 0.0) {
            return Err("it is negative or no number".to_owned());
        }
        if kind == "info" && sample.value != 1.0 {
            return Err("info is 1".to_owned());
        }
        if !self.series.insert((sample.name.clone(), sample.labels.clone())) {
            return Err("the series is there twice".to_owned());
        }
        self.of.samples.push(sample);
        Ok(())
    }
}

/// A name that two families give would be one series with two meanings.
fn no_clash(of: &Exposition) -> Result<(), String> {
    for (name, kind) in &of.families {
        let suffixes: &[&str] = match kind.as_str() {
            "counter" => &["_total", "_created"],
            "histogram" => &["_bucket", "_count", "_sum", "_created"],
            "info" => &["_info"],
            _ => &[],
        };
        if let Some(clash) =
            suffixes.iter().find(|suffix| of.families.contains_key(&format!("{name}{suffix}")))
        {
            return Err(format!("the family {name}{clash} is a sample of {name}"));
        }
    }
    Ok(())
}

/// Buckets, count, and whether there is a sum.
type Group = (Vec<(f64, f64)>, Option<f64>, bool);

fn histogram(of: &Exposition, name: &str) -> Result<(), String> {
    let mut groups: BTreeMap<BTreeMap<String, String>, Group> = BTreeMap::new();
    for sample in &of.samples {
        let Some(suffix) = sample.name.strip_prefix(name) else { continue };
        let mut labels = sample.labels.clone();
        let le = labels.remove("le");
        let group = groups.entry(labels).or_default();
        match (suffix, le) {
            ("_bucket", Some(le)) => group.0.push((number(&le)?, sample.value)),
            ("_count", _) => group.1 = Some(sample.value),
            ("_sum", _) => group.2 = true,
            _ => {}
        }
    }
    for (labels, (buckets, count, sum)) in groups {
        let ascending =
            buckets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        let last = buckets.last().ok_or("a histogram without buckets")?;
        if !ascending || last.0 != f64::INFINITY || Some(last.1) != count || !sum {
            return Err(format!(
                "the histogram {name} {labels:?} is not whole: {buckets:?} {count:?}"
            ));
        }
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_' || c == ':')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

fn number(text: &str) -> Result<f64, String> {
    match text {
        "+Inf" => Ok(f64::INFINITY),
        _ if text.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e')) => {
            text.parse().map_err(|_| format!("{text:?} is no number"))
        }
        _ => Err(format!("{text:?} is no number")),
    }
}

/// The text without its escapes; an error if it holds what must be escaped, or another escape.
fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' | '\n' => return Err("it is not escaped".to_owned()),
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some(c @ ('"' | '\\')) => out.push(c),
                other => return Err(format!("an escape of no meaning: {other:?}")),
            },
            c if c.is_control() => return Err(format!("a control character: {c:?}")),
            c => out.push(c),
        }
    }
    Ok(out)
}

fn sample(line: &str) -> Result<Sample, String> {
    let end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, mut rest) = line.split_at(end);
    if !is_name(name) {
        return Err("the name is wrong".to_owned());
    }
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").ok_or("a label without a value")?;
            if !is_name(label) || label.contains(':') {
                return Err(format!("the label {label:?} is wrong"));
            }
            // The quote that ends it is the first one not escaped.
            let mut escaped = false;
            let close = after.find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            let (value, after) = after.split_at(close.ok_or("a label without an end")?);
            if labels.insert(label.to_owned(), unescape(value)?).is_some() {
                return Err(format!("the label {label} is there twice"));
            }
            match after[1..].strip_prefix(',') {
                Some(more) => rest = more,
                None => {
                    rest = after[1..].strip_prefix('}').ok_or("labels without an end")?;
                    break;
                }
            }
        }
    }
    let value = rest.strip_prefix(' ').ok_or("no space before the value")?;
    Ok(Sample { name: name.to_owned(), labels, value: number(value)? })
}
