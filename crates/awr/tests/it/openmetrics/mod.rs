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

/// Reads a whole text.
pub(crate) fn read(text: &str) -> Result<Exposition, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("it does not end in # EOF and a line feed")?;
    let mut of = Exposition::default();
    let mut series = BTreeSet::new();
    let mut family: Option<(String, String, String)> = None;
    let mut described = BTreeSet::new();
    for (number, line) in body.split_inclusive('\n').enumerate() {
        let fail = |why: &str| format!("line {}: {why}: {line:?}", number + 1);
        let line = line.strip_suffix('\n').ok_or_else(|| fail("it has no end"))?;
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (Some(what), Some(name), Some(value)) = (words.next(), words.next(), words.next())
            else {
                return Err(fail("a descriptor has three parts"));
            };
            if !is_name(name) || !described.insert(format!("{what} {name}")) {
                return Err(fail("the name is wrong, or it was described before"));
            }
            match what {
                "TYPE" => {
                    if !["counter", "gauge", "histogram", "info"].contains(&value) {
                        return Err(fail("the type is not known"));
                    }
                    if of.families.insert(name.to_owned(), value.to_owned()).is_some() {
                        return Err(fail("the family is there twice"));
                    }
                    family = Some((name.to_owned(), value.to_owned(), String::new()));
                }
                "UNIT" => {
                    let current = family
                        .as_mut()
                        .filter(|(of, ..)| of == name)
                        .ok_or_else(|| fail("another family"))?;
                    if !name.ends_with(&format!("_{value}")) {
                        return Err(fail("the name does not end in the unit"));
                    }
                    value.clone_into(&mut current.2);
                }
                "HELP" => {
                    if family.as_ref().is_none_or(|(of, ..)| of != name) {
                        return Err(fail("another family"));
                    }
                    unescape(value).map_err(|why| fail(&why))?;
                }
                _ => return Err(fail("a descriptor of no kind")),
            }
            continue;
        }
        let sample = sample(line).map_err(|why| fail(&why))?;
        let (name, kind, _) = family.as_ref().ok_or_else(|| fail("a sample before its family"))?;
        let suffix = sample
            .name
            .strip_prefix(name.as_str())
            .ok_or_else(|| fail("a sample of another family"))?;
        let allowed: &[&str] = match kind.as_str() {
            "counter" => &["_total"],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_count", "_sum"],
            _ => &[""],
        };
        if !allowed.contains(&suffix) {
            return Err(fail("the name does not fit the type"));
        }
        if (suffix == "_bucket") != sample.labels.contains_key("le") {
            return Err(fail("buckets have le, and nothing else has"));
        }
        if kind != "gauge" && (sample.value.is_nan() || sample.value < 0.0) {
            return Err(fail("it is negative or no number"));
        }
        if kind == "info" && sample.value != 1.0 {
            return Err(fail("info is 1"));
        }
        if !series.insert((sample.name.clone(), sample.labels.clone())) {
            return Err(fail("the series is there twice"));
        }
        of.samples.push(sample);
    }
    for (name, _) in of.families.iter().filter(|(_, kind)| *kind == "histogram") {
        histogram(&of, name)?;
    }
    // A name that two families give would be one series with two meanings.
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
    Ok(of)
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
