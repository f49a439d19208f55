//! The experiments that the five public documents published, and what stands for each here.
//!
//! One file of `cases/published/` for each: document, table or figure, what was done, and either
//! the case with its targets, its load and what it needs, or why there is none. Figures are in
//! [`crate::published`].
//!
//! **Invariant**: a file that is read has been checked: its figures, its case, its targets and its
//! load are there, and it says how the case differs or why there is none.
//! **Deliberately absent**: running them: `study/`.

use serde::{Deserialize, Serialize};

use crate::case;
use crate::error::{Error, Result};
use crate::published::{self, Source};
use crate::size::ByteSize;
use crate::target;
use crate::workload::{Load, keys};

/// The name and the text of one file.
macro_rules! file {
    ($id:literal) => {
        ($id, include_str!(concat!("../../../cases/published/", $id, ".toml")))
    };
}

/// Every experiment, in the order of the documents.
const FILES: [(&str, &str); 42] = [
    file!("vpmem-2018-vpmemdisk-asm-san"),
    file!("vpmem-2018-vpmemdisk-asm-pvscsi"),
    file!("vpmem-2018-vpmemdisk-asm-nvme"),
    file!("vpmem-2018-vpmemdisk-ext4-san"),
    file!("vpmem-2018-vpmemdisk-ext4-pvscsi"),
    file!("vpmem-2018-vpmem-asm-san"),
    file!("vpmem-2018-vpmem-asm-raw"),
    file!("vpmem-2018-vpmem-asm-memory"),
    file!("vpmem-2018-vpmem-ext4-san"),
    file!("vpmem-2018-vpmem-ext4-dax"),
    file!("vpmem-2018-flash-cache-none"),
    file!("vpmem-2018-flash-cache-asm"),
    file!("vpmem-2018-flash-cache-ext4"),
    file!("vpmem-2018-licence-12-vcpu"),
    file!("vpmem-2018-licence-9-vcpu"),
    file!("optane-2019-fio-overhead"),
    file!("optane-2019-fio-4k"),
    file!("optane-2019-fio-512"),
    file!("optane-2019-fio-512k"),
    file!("optane-2019-fio-latency"),
    file!("optane-2019-oracle-nvme"),
    file!("optane-2019-oracle-vpmem"),
    file!("optane-2019-mysql-read-only"),
    file!("optane-2019-mysql-read-write"),
    file!("optane-2019-mysql-write-only"),
    file!("optane-2019-sql-server"),
    file!("optane-2019-redis-0-writes"),
    file!("optane-2019-redis-30-writes"),
    file!("optane-2019-redis-70-writes"),
    file!("optane-2019-redis-100-writes"),
    file!("optane-2019-redis-latency"),
    file!("optane-2019-redis-recovery"),
    file!("sandisk-2015-hdd"),
    file!("sandisk-2015-flash-cache"),
    file!("sandisk-2015-redo"),
    file!("sandisk-2015-hot-tables"),
    file!("sandisk-2015-all"),
    file!("sandisk-2015-cost"),
    file!("sap-2018-client-copy"),
    file!("sap-2018-client-delete"),
    file!("flash-cache-2022-afa"),
    file!("flash-cache-2022-pmem"),
];

/// What stands for storage devices without a database.
pub const PROBE: &str = "probe";
/// Its target.
const DEVICE: &str = "device";
/// What stands for servers that are killed.
pub const RECOVERY: &str = "recovery";

/// A published experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Experiment {
    /// Its name here: document, year, what.
    pub id: String,
    /// Where it is from.
    pub source: Source,
    /// Which table or figure shows it.
    pub shown_in: String,
    /// What was done.
    pub experiment: String,
    /// Its figures, `document/case`; the document may have printed a picture only.
    pub figures: Vec<String>,
    /// What stands for it here.
    pub here: Here,
}

/// What stands for an experiment here.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Here {
    /// A case.
    Case {
        /// Its id, `probe` or `recovery`.
        case: String,
        /// Cases that have a row beside it: they are not what was printed.
        beside: Vec<String>,
        /// Targets it is for.
        targets: Vec<String>,
        /// The load.
        load: Option<Load>,
        /// What the machine must have.
        needs: Vec<String>,
        /// How it differs from what was published.
        differs: String,
        /// Settings instead of the case's own.
        instead: Box<Instead>,
    },
    /// Nothing, and why.
    Missing(String),
}

/// Settings of a load instead of the case's own, as the options of `study` are called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Instead {
    /// Clients.
    pub clients: Option<u32>,
    /// SETs and GETs of `mixed`.
    pub ratio: Option<keys::Ratio>,
    /// Requests at once of `mixed`.
    pub pipeline: Option<u32>,
    /// Bytes of a value of `mixed`.
    pub value: Option<ByteSize>,
    /// Tables of `oltp-*`.
    pub tables: Option<u32>,
    /// Page cache in per cent of the tables of `oltp-*`.
    pub buffer_pct: Option<u32>,
    /// The application's share of `client-copy`.
    pub application_pct: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    document: String,
    shown_in: String,
    experiment: String,
    figures: Vec<String>,
    case: Option<String>,
    #[serde(default)]
    beside: Vec<String>,
    #[serde(default)]
    targets: Vec<String>,
    load: Option<Load>,
    #[serde(default)]
    needs: Vec<String>,
    differs: Option<String>,
    missing: Option<String>,
    #[serde(default)]
    instead: Instead,
}

impl Experiment {
    /// Reads a file; `id` is its name.
    ///
    /// # Errors
    /// [`Error::Case`]: what is wrong in it.
    pub fn parse(id: &str, text: &str) -> Result<Experiment> {
        let wrong = |reason: String| Error::Case { case: format!("published/{id}"), reason };
        let file: File = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        let source = published::source(&file.document)?;
        for figures in &file.figures {
            published::find(figures)?;
            if !figures.starts_with(&format!("{}/", file.document)) {
                return Err(wrong(format!("the figures {figures} are not of {}", file.document)));
            }
        }
        let here = match (file.case, file.missing, file.differs) {
            (None, Some(missing), None) => Here::Missing(missing),
            (Some(case), None, Some(differs)) => {
                for case in file.beside.iter().chain([&case]) {
                    check(case, &file.targets).map_err(wrong)?;
                }
                Here::Case {
                    case,
                    beside: file.beside,
                    targets: file.targets,
                    load: file.load,
                    needs: file.needs,
                    differs,
                    instead: Box::new(file.instead),
                }
            }
            _ => return Err(wrong("give either case and differs, or missing".into())),
        };
        let (shown_in, experiment, figures) = (file.shown_in, file.experiment, file.figures);
        Ok(Experiment { id: id.to_owned(), source, shown_in, experiment, figures, here })
    }
}

/// Whether a case is there for each of the targets.
fn check(case: &str, targets: &[String]) -> std::result::Result<(), String> {
    if targets.is_empty() {
        return Err("targets is empty; name those that the case is for".into());
    }
    if case == PROBE {
        let right = targets == [DEVICE];
        return right.then_some(()).ok_or_else(|| format!("the target of {PROBE} is {DEVICE}"));
    }
    for target in targets {
        if case == RECOVERY {
            target::kind(target).map_err(|e| e.to_string())?;
            continue;
        }
        case::choose_for(target, &[case.to_owned()], false).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Every published experiment.
///
/// # Errors
/// A file that is damaged; a test reads all of them.
pub fn all() -> Result<Vec<Experiment>> {
    FILES.iter().map(|(id, text)| Experiment::parse(id, text)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn all_42_experiments_can_be_read_and_each_has_a_name_of_its_own() {
        let all = all().unwrap();
        let ids: BTreeSet<&str> = all.iter().map(|one| one.id.as_str()).collect();
        assert_eq!((all.len(), ids.len()), (42, 42));
        let mut documents: Vec<String> = all.iter().map(|one| one.source.title.clone()).collect();
        documents.dedup();
        assert_eq!(documents.len(), 5, "{documents:?}");
    }

    #[test]
    fn every_file_of_the_directory_is_listed() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../cases/published");
        let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        let there: BTreeSet<String> =
            names.map(|name| name.to_string_lossy().into_owned()).collect();
        let listed: BTreeSet<String> = FILES.iter().map(|(id, _)| format!("{id}.toml")).collect();
        assert_eq!(there, listed);
    }

    #[test]
    fn every_published_figure_belongs_to_an_experiment() {
        let shown: BTreeSet<String> =
            all().unwrap().into_iter().flat_map(|one| one.figures).collect();
        let printed: BTreeSet<String> = published::all().unwrap().into_iter().collect();
        assert_eq!(shown, printed);
    }

    #[test]
    fn both_readings_of_the_cost_are_told() {
        let all = all().unwrap();
        let cost = all.iter().find(|one| one.id == "sandisk-2015-cost").unwrap();
        let Here::Missing(why) = &cost.here else { panic!("{cost:?}") };
        assert!(why.contains("63 %") && why.contains("57 %"), "{why}");
        // The second follows from the prices.
        assert_eq!((100.0_f64 * (1.0 - 6268.0 / 14551.0)).round(), 57.0);
    }

    #[test]
    fn a_file_with_a_fault_is_refused_with_the_fault() {
        let (id, good) = FILES[1];
        Experiment::parse(id, good).unwrap();
        for (from, to, expected) in [
            ("document = \"oracle-vsphere-pmem\"", "document = \"nobody\"", "nobody"),
            ("/redo-vpmemdisk-asm-pvscsi", "/redo-on-the-moon", "no case redo-on-the-moon"),
            ("server-redo-on-disk", "server-redo-on-tape", "no case `server-redo-on-tape`"),
            ("\"postgres\", ", "\"oracle\", ", "oracle"),
            ("load = \"slob\"", "load = \"slop\"", "slop"),
            ("differs", "missing", "give either case and differs, or missing"),
            ("needs", "need", "need"),
        ] {
            assert!(good.contains(from), "{from}");
            let refused =
                Experiment::parse(id, &good.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(refused.contains(expected), "{from}: {refused}");
        }
    }
}
