//! Cases: one experiment each, as a commented TOML file.
//!
//! The files in `cases/` are built into the program, so that it works alone; a file of the user's is named by its path. A case says
//! which database settings, which load, and what is on the fast tier; where home and tier are is said by the study.
//!
//! A case is run once for each of its UPDATE_PCT, and each such run is compared with the run of the baseline at the same UPDATE_PCT.
//!
//! **Invariant**: a case that is read has been checked: every setting in range, every published case it names there.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{During, Error, Result};
use crate::published;
use crate::size::ByteSize;
use crate::workload::slob;

/// The cases built in, in the order of a study.
const BUILT_IN: [(&str, &str); 6] = [
    ("redo-on-home", include_str!("../../../cases/redo-on-home.toml")),
    ("redo-on-tier", include_str!("../../../cases/redo-on-tier.toml")),
    ("all-on-tier", include_str!("../../../cases/all-on-tier.toml")),
    ("batch-on-tier", include_str!("../../../cases/batch-on-tier.toml")),
    ("rollback-on-home", include_str!("../../../cases/rollback-on-home.toml")),
    ("reads-from-tier", include_str!("../../../cases/reads-from-tier.toml")),
];

/// What lives on the fast tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Nothing: the stock way.
    Home,
    /// WAL and journal; the database file stays on the home's storage.
    Redo,
    /// The database file and its redo.
    All,
}

impl Placement {
    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            Placement::Home => "nothing",
            Placement::Redo => "redo",
            Placement::All => "data and redo",
        }
    }
}

/// How SQLite commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JournalMode {
    /// Write-ahead log.
    Wal,
    /// Rollback journal, deleted at each commit; not written at all where a batch of pages can be written as a whole.
    Delete,
    /// Rollback journal, its header zeroed at each commit.
    Persist,
    /// Rollback journal, cut to nothing at each commit.
    Truncate,
}

impl JournalMode {
    /// As in `PRAGMA journal_mode`.
    pub fn name(self) -> &'static str {
        match self {
            JournalMode::Wal => "wal",
            JournalMode::Delete => "delete",
            JournalMode::Persist => "persist",
            JournalMode::Truncate => "truncate",
        }
    }
}

/// SQLite's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SqliteSettings {
    /// Bytes of a page: 4096, 8192, 16384 or 32768.
    pub page_size: u32,
    /// How it commits.
    pub journal_mode: JournalMode,
    /// `PRAGMA synchronous`: `full` (a commit is durable), `normal`, `extra`, `off`.
    pub synchronous: String,
    /// The page cache of one connection.
    pub page_cache: ByteSize,
    /// Bytes read through `xFetch` instead of being copied; 0: none.
    pub mmap: ByteSize,
    /// `PRAGMA locking_mode = EXCLUSIVE`: one connection keeps its locks.
    pub exclusive: bool,
    /// Pages of WAL at which a commit checkpoints.
    pub wal_autocheckpoint: u32,
    /// Bytes of the tier of one database; absent: as much as the case can use.
    pub tier: Option<ByteSize>,
}

impl Default for SqliteSettings {
    fn default() -> Self {
        SqliteSettings {
            page_size: 4096,
            journal_mode: JournalMode::Wal,
            synchronous: "full".into(),
            page_cache: ByteSize(2 << 20),
            mmap: ByteSize(0),
            exclusive: false,
            wal_autocheckpoint: 1000,
            tier: None,
        }
    }
}

/// One experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Case {
    /// Its name: small letters, digits and hyphens.
    pub id: String,
    /// One line.
    pub title: String,
    /// What it shows and which published experiment it stands for.
    pub about: String,
    /// The case it is compared with; absent: it is a baseline.
    pub baseline: Option<String>,
    /// Part of a study that names no cases.
    pub by_default: bool,
    /// What is on the tier.
    pub placement: Placement,
    /// Published experiments shown beside it, `document/case`.
    pub published: Vec<String>,
    /// Runs: one for each of these UPDATE_PCT.
    pub update_pcts: Vec<u32>,
    /// The database.
    pub sqlite: SqliteSettings,
    /// The load, with the first of `update_pcts`.
    pub slob: slob::Settings,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    id: String,
    title: String,
    about: String,
    baseline: Option<String>,
    #[serde(default)]
    by_default: bool,
    placement: Placement,
    #[serde(default)]
    published: Vec<String>,
    update_pcts: Vec<u32>,
    #[serde(default)]
    sqlite: SqliteSettings,
    #[serde(default)]
    slob: slob::Settings,
}

impl Case {
    /// Reads a case file; `name` is what errors call it.
    ///
    /// # Errors
    /// [`Error::Case`] or [`Error::Setting`]: what is wrong in it.
    pub fn parse(name: &str, text: &str) -> Result<Case> {
        let wrong = |reason: String| Error::Case { case: name.to_owned(), reason };
        let file: File = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        if file.id.is_empty()
            || !file.id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        {
            return Err(wrong(format!("the id `{}` is not small letters, digits and hyphens", file.id)));
        }
        if file.update_pcts.is_empty() {
            return Err(wrong(
                "update_pcts is empty; name one UPDATE_PCT for each run, for instance [100, 25]".into(),
            ));
        }
        if file.slob.update_pct != slob::Settings::default().update_pct {
            return Err(wrong(
                "slob.update_pct is given; write it into update_pcts, one for each run".into(),
            ));
        }
        for id in &file.published {
            published::find(id)?;
        }
        let mut case = Case {
            id: file.id,
            title: file.title,
            about: file.about.split_whitespace().collect::<Vec<_>>().join(" "),
            baseline: file.baseline,
            by_default: file.by_default,
            placement: file.placement,
            published: file.published,
            update_pcts: file.update_pcts,
            sqlite: file.sqlite,
            slob: file.slob,
        };
        case.slob.update_pct = case.update_pcts[0];
        case.check(name)?;
        Ok(case)
    }

    fn check(&self, name: &str) -> Result<()> {
        let sqlite = &self.sqlite;
        let refuse = |setting, value: String, reason: &str| {
            Err(Error::Setting { setting, value, reason: reason.into() })
        };
        if ![4096, 8192, 16384, 32768].contains(&sqlite.page_size) {
            return refuse(
                "sqlite.page_size",
                sqlite.page_size.to_string(),
                "give 4096, 8192, 16384 or 32768: the block sizes of a tier",
            );
        }
        if !["off", "normal", "full", "extra"].contains(&sqlite.synchronous.as_str()) {
            return refuse(
                "sqlite.synchronous",
                sqlite.synchronous.clone(),
                "give off, normal, full or extra",
            );
        }
        if sqlite.exclusive && self.slob.threads_per_schema > 1 {
            return refuse(
                "sqlite.exclusive",
                "true".into(),
                "one connection keeps its locks, so give threads_per_schema = 1",
            );
        }
        if self.baseline.as_deref() == Some(self.id.as_str()) {
            return Err(Error::Case {
                case: name.to_owned(),
                reason: "it is its own baseline; leave baseline out".into(),
            });
        }
        for settings in self.runs() {
            settings.check(u64::from(sqlite.page_size))?;
        }
        Ok(())
    }

    /// The load of each run.
    pub fn runs(&self) -> impl Iterator<Item = slob::Settings> + '_ {
        self.update_pcts.iter().map(|pct| slob::Settings { update_pct: *pct, ..self.slob.clone() })
    }

    /// Bytes of one loaded database, about: the table, its index and the scan table.
    pub fn database_bytes(&self) -> u64 {
        let page = u64::from(self.sqlite.page_size);
        let rows = self.slob.blocks(page) + self.slob.scan_blocks(page);
        // An index entry is at most 24 bytes; two thirds of a page are filled when keys come in random order.
        rows * page + rows * 36 + (1 << 20)
    }

    /// Bytes of the tier of one database: as the case says, or enough for everything the case puts there.
    pub fn tier_bytes(&self) -> u64 {
        const REDO: u64 = 96 << 20;
        let wanted = match self.placement {
            Placement::Home => 0,
            Placement::Redo => REDO,
            // A quarter of a tier is kept free by its background work.
            Placement::All => REDO + self.database_bytes() * 3 / 2,
        };
        let bytes = self.sqlite.tier.map_or(wanted, ByteSize::bytes);
        if self.placement == Placement::Home { 0 } else { bytes.next_multiple_of(1 << 20) }
    }
}

/// The cases built in.
///
/// # Errors
/// None in a program that passed its tests.
pub fn built_in() -> Result<Vec<Case>> {
    BUILT_IN.iter().map(|(name, text)| Case::parse(name, text)).collect()
}

/// The text of a built-in case file, to copy and change.
pub fn text_of(id: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(name, _)| *name == id).map(|(_, text)| *text)
}

/// The cases of these names (ids, or paths of files that end in `.toml`), each behind its baseline; those that run by default if none
/// is named, every one if `full`.
///
/// # Errors
/// A name that is not there, or a file that is wrong.
pub fn choose(names: &[String], full: bool) -> Result<Vec<Case>> {
    let known = built_in()?;
    if names.is_empty() {
        return Ok(known.into_iter().filter(|case| full || case.by_default).collect());
    }
    let mut chosen: Vec<Case> = Vec::new();
    let mut add = |case: Case| {
        if !chosen.iter().any(|c| c.id == case.id) {
            chosen.push(case);
        }
    };
    let find = |name: &str| {
        known.iter().find(|case| case.id == name).cloned().ok_or_else(|| Error::NoSuchCase {
            name: name.to_owned(),
            known: known.iter().map(|case| case.id.as_str()).collect::<Vec<_>>().join(", "),
        })
    };
    for name in names {
        let case = if name.ends_with(".toml") {
            let text = std::fs::read_to_string(Path::new(name)).during("read the case file", name)?;
            Case::parse(name, &text)?
        } else {
            find(name)?
        };
        if let Some(baseline) = &case.baseline {
            add(find(baseline)?);
        }
        add(case);
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_case_is_sound_and_named_as_its_file() {
        let cases = built_in().unwrap();
        for (case, (name, text)) in cases.iter().zip(BUILT_IN) {
            assert_eq!(case.id, name);
            assert!(text.starts_with('#'), "{name} does not say first what it is");
            if let Some(baseline) = &case.baseline {
                assert!(cases.iter().any(|c| c.id == *baseline && c.baseline.is_none()), "{name}");
            }
        }
    }

    #[test]
    fn the_default_study_has_the_four_cases_at_100_and_25_with_a_database_larger_than_the_page_cache() {
        let cases = choose(&[], false).unwrap();
        let ids: Vec<&str> = cases.iter().map(|c| c.id.as_str()).collect();
        assert_eq!(ids, ["redo-on-home", "redo-on-tier", "all-on-tier", "batch-on-tier"]);
        for case in &cases {
            assert_eq!(case.update_pcts, [100, 25]);
            assert!(case.database_bytes() >= 8 * case.sqlite.page_cache.bytes(), "{}", case.id);
            assert_eq!(case.sqlite.synchronous, "full");
            assert!(case.slob.blocks(u64::from(case.sqlite.page_size)) >= slob::SLOB_SCALE_MIN_BLOCKS);
        }
        // A comparison is of one thing: where the files are, or how SQLite commits.
        let baseline = &cases[0];
        assert!(
            cases
                .iter()
                .all(|c| c.slob == baseline.slob && c.sqlite.page_cache == baseline.sqlite.page_cache)
        );
    }

    #[test]
    fn a_case_brings_its_baseline_and_comes_once() {
        let names = ["all-on-tier", "redo-on-home", "all-on-tier"].map(String::from);
        let ids: Vec<String> = choose(&names, false).unwrap().into_iter().map(|c| c.id).collect();
        assert_eq!(ids, ["redo-on-home", "all-on-tier"]);
    }

    #[test]
    fn a_case_that_is_not_there_is_refused_with_those_that_are() {
        let error = choose(&["redo".into()], false).unwrap_err().to_string();
        assert!(error.contains("no case `redo`") && error.contains("redo-on-tier"), "{error}");
        let error = choose(&["missing.toml".into()], false).unwrap_err().to_string();
        assert!(error.contains("cannot read the case file missing.toml"), "{error}");
    }

    #[test]
    fn a_case_file_with_a_fault_is_refused_with_the_fault() {
        let good = text_of("redo-on-tier").unwrap();
        for (from, to, expect) in [
            ("update_pcts = [100, 25]", "update_pcts = [100, 60]", "51 to 99"),
            ("update_pcts = [100, 25]", "update_pcts = []", "update_pcts is empty"),
            ("placement = \"redo\"", "placement = \"disk\"", "disk"),
            ("id = \"redo-on-tier\"", "id = \"Redo\"", "small letters"),
            ("baseline = \"redo-on-home\"", "baseline = \"redo-on-tier\"", "own baseline"),
            ("work_unit", "work_units", "work_units"),
        ] {
            assert!(good.contains(from), "{from}");
            let error = Case::parse("mine", &good.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        }
    }
}
