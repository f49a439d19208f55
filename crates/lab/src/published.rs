//! What public documents printed for the same question, as data with its source.
//!
//! The figures are shown beside those measured here, labelled as other hardware, another database
//! and another year. They are never asserted, and nothing measured here is scaled by them.
//!
//! **Invariant**: a figure keeps the name and the value it has in its file; a label is made from
//! the name, a unit from its ending.
//! Read next: the files in `published/`.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The documents, by the names that case files use.
const DOCUMENTS: [(&str, &str); 5] = [
    ("oracle-vsphere-pmem", include_str!("../published/oracle-vsphere-pmem.toml")),
    ("oracle21c-flash-cache", include_str!("../published/oracle21c-flash-cache.toml")),
    ("sandisk-flash", include_str!("../published/sandisk-flash.toml")),
    ("sap-client-copy", include_str!("../published/sap-client-copy.toml")),
    ("vsphere-optane", include_str!("../published/vsphere-optane.toml")),
];

/// What every page and text says above such figures.
pub const LABEL: &str = "Printed by a public document: other hardware, another database, another \
                         year. Not a target and not a promise.";

/// Where figures come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Title of the document.
    pub title: String,
    /// Who published it.
    pub publisher: String,
    /// When.
    pub year: u32,
    /// The database, its version and machine.
    pub database: String,
    /// The load.
    pub load: String,
    /// How gains are to be read that the document itself prints in two ways; else empty.
    #[serde(default)]
    pub reading: String,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Its name in the file, for instance `log_file_parallel_write_avg_us`.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// What the document's baseline had, if it printed it.
    pub baseline: Option<f64>,
}

/// One published experiment beside its baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// `document/case`.
    pub id: String,
    /// Where it is from.
    pub source: Source,
    /// What was where in the experiment.
    pub setup: String,
    /// What was where in its baseline; empty if this is one.
    pub baseline_setup: String,
    /// What was printed.
    pub figures: Vec<Figure>,
}

#[derive(Deserialize)]
struct Document {
    source: Source,
    #[serde(default)]
    case: Vec<toml::Table>,
}

impl Figure {
    /// The name for people: `log file parallel write avg`.
    pub fn label(&self) -> String {
        let (name, _) = self.split();
        name.replace('_', " ")
    }

    /// Its unit, from the ending of the name; empty for a plain number.
    pub fn unit(&self) -> &'static str {
        self.split().1
    }

    /// Value over baseline; for a gain in per cent, what it is over a baseline of one.
    pub fn ratio(&self) -> Option<f64> {
        if self.name.ends_with("_ratio") {
            return Some(self.value);
        }
        if self.name.ends_with("_gain_pct") {
            return Some(1.0 + self.value / 100.0);
        }
        self.baseline.filter(|baseline| *baseline != 0.0).map(|baseline| self.value / baseline)
    }

    fn split(&self) -> (&str, &'static str) {
        for (ending, unit) in [
            ("_per_s", "/s"),
            ("_us", "us"),
            ("_ms", "ms"),
            ("_pct", "%"),
            ("_kb", "KB"),
            ("_total_s", "s total"),
            ("_usd", "USD"),
            ("_s", "s"),
        ] {
            if let Some(name) = self.name.strip_suffix(ending) {
                return (name, unit);
            }
        }
        (&self.name, "")
    }
}

/// The published experiment `document/case`, beside the baseline it names.
///
/// # Errors
/// [`Error::Case`] if there is none.
pub fn find(id: &str) -> Result<Published> {
    let unknown = |reason: String| Error::Case { case: id.to_owned(), reason };
    let (name, case) = id
        .split_once('/')
        .ok_or_else(|| unknown("a published case is named DOCUMENT/CASE".into()))?;
    let document = parse(name, text_of_document(name)?)?;
    let get = |wanted: &str| document.case.iter().find(|table| text_of(table, "id") == wanted);
    let table =
        get(case).ok_or_else(|| unknown(format!("the document {name} has no case {case}")))?;
    let baseline =
        Some(text_of(table, "against")).filter(|id| !id.is_empty()).and_then(|id| get(&id));
    let figures = table.iter().filter_map(|(name, value)| {
        let value = number(value)?;
        Some(Figure {
            name: name.clone(),
            value,
            baseline: baseline.and_then(|b| b.get(name)).and_then(number),
        })
    });
    Ok(Published {
        id: id.to_owned(),
        source: Source { reading: readings(&document), ..document.source.clone() },
        setup: setup(table),
        baseline_setup: baseline.map(setup).unwrap_or_default(),
        figures: figures.collect(),
    })
}

/// Where the figures of a document are from.
///
/// # Errors
/// [`Error::Case`] if there is none of this name.
pub fn source(name: &str) -> Result<Source> {
    Ok(parse(name, text_of_document(name)?)?.source)
}

fn text_of_document(name: &str) -> Result<&'static str> {
    let known = || DOCUMENTS.map(|(name, _)| name).join(", ");
    let found = DOCUMENTS.iter().find(|(document, _)| *document == name).map(|(_, text)| *text);
    found.ok_or_else(|| Error::Case {
        case: name.to_owned(),
        reason: format!("there is no published document {name}; there are {}", known()),
    })
}

/// Every published experiment's id.
///
/// # Errors
/// A file that is damaged; a test reads all of them.
pub fn all() -> Result<Vec<String>> {
    let mut ids = Vec::new();
    for (name, text) in DOCUMENTS {
        ids.extend(
            parse(name, text)?.case.iter().map(|table| format!("{name}/{}", text_of(table, "id"))),
        );
    }
    Ok(ids)
}

/// Both readings of every gain of a document that prints two, with the document's own words on
/// them.
fn readings(document: &Document) -> String {
    let both = |table: &toml::Table| {
        let figure = |name| table.get(name).and_then(number);
        let (ratio, printed) = (figure("transactions_ratio")?, figure("printed_pct")?);
        let setup = Some(setup(table)).filter(|setup| !setup.is_empty());
        let setup = setup.map(|setup| format!("; {setup}")).unwrap_or_default();
        let id = text_of(table, "id");
        Some(format!("{id} {ratio:.2} times the baseline (the text prints {printed} %{setup})"))
    };
    let gains: Vec<String> = document.case.iter().filter_map(both).collect();
    if gains.is_empty() {
        return document.source.reading.clone();
    }
    format!("two readings of its gains: {}. {}", gains.join(", "), document.source.reading)
}

fn parse(name: &str, text: &str) -> Result<Document> {
    toml::from_str(text)
        .map_err(|e| Error::Case { case: format!("published/{name}"), reason: e.to_string() })
}

fn text_of(table: &toml::Table, key: &str) -> String {
    table.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_owned()
}

fn number(value: &toml::Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|n| n as f64))
}

/// What was where: every text of the case that is not a name.
fn setup(table: &toml::Table) -> String {
    let parts = table
        .iter()
        .filter(|(key, _)| !["id", "against"].contains(&key.as_str()))
        .filter_map(|(key, value)| Some(format!("{}: {}", key.replace('_', " "), value.as_str()?)));
    parts.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_case_can_be_read_and_has_figures() {
        let ids = all().unwrap();
        assert!(ids.len() >= 20);
        for id in ids {
            let published = find(&id).unwrap();
            assert!(!published.figures.is_empty() && published.source.year > 2000, "{id}");
        }
    }

    #[test]
    fn a_case_stands_beside_the_baseline_its_document_names() {
        let published = find("oracle-vsphere-pmem/redo-vpmem-ext4-dax").unwrap();
        let executes = published.figures.iter().find(|f| f.name == "executes_per_s").unwrap();
        assert_eq!((executes.value, executes.baseline), (680.6, Some(646.8)));
        assert_eq!((executes.label().as_str(), executes.unit()), ("executes", "/s"));
        let gain = find("vsphere-optane/oracle-vpmem").unwrap();
        let gain = gain.figures.iter().find(|f| f.name == "tpm_gain_pct").unwrap();
        assert_eq!((gain.unit(), gain.ratio()), ("%", Some(1.0 + gain.value / 100.0)));
        assert_eq!(published.setup, "redo: ext4 mounted -o dax on a virtual NVDIMM");
    }

    /// A percentage that the text prints may be of the baseline or above it; commits leave no
    /// doubt.
    #[test]
    fn the_ratios_of_the_flash_study_are_those_of_the_commits_its_tables_count() {
        let cases = all().unwrap();
        let flash = cases.iter().filter(|id| id.starts_with("sandisk-flash/"));
        let mut ratios = Vec::new();
        for id in flash {
            let case = find(id).unwrap();
            let figure = |name: &str| case.figures.iter().find(|figure| figure.name == name);
            assert!(
                figure("transactions_gain_pct").is_none(),
                "{id}: a percentage taken for a gain"
            );
            let Some(printed) = figure("printed_pct") else { continue };
            assert_eq!(printed.ratio(), None, "{id}: a percentage of unknown base is no ratio");
            let told = figure("transactions_ratio").unwrap().ratio().unwrap();
            let counted = figure("log_file_sync_waits").unwrap().ratio().unwrap();
            assert!((told - counted).abs() < 0.001, "{id}: {told} told, {counted} counted");
            ratios.push(format!("{told:.2}"));
            assert!(
                case.source.reading.contains(&format!("{told:.2} times")),
                "{}",
                case.source.reading
            );
            let printed = format!("the text prints {} %", printed.value);
            assert!(case.source.reading.contains(&printed), "{}", case.source.reading);
        }
        assert_eq!(ratios, ["1.36", "1.63", "3.01", "5.17"]);
        let redo = find("sandisk-flash/redo-on-flash").unwrap();
        assert!(redo.source.reading.contains("(the text prints 63 %; flash cache: still on)"));
    }

    #[test]
    fn a_name_that_is_not_there_is_refused_with_those_that_are() {
        assert!(find("sandisk/x").unwrap_err().to_string().contains("sandisk-flash"));
        assert!(find("sandisk-flash/x").unwrap_err().to_string().contains("no case x"));
        assert!(find("x").unwrap_err().to_string().contains("DOCUMENT/CASE"));
    }
}
