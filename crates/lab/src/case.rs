//! Cases: one experiment each, as a commented TOML file.
//!
//! The files in `cases/` are built into the program, so that it works alone; a file of the user's
//! is named by its path. A case says which database settings, which load, and what is on the fast
//! tier; where home and tier are is said by the study.
//!
//! A case is run once for each of its UPDATE_PCT, and each such run is compared with the run of the
//! baseline at the same UPDATE_PCT. A case names the targets it is for: SQLite's cases are of no
//! use to a server, and the six of the servers are the same for all of them. A file with `[each]`
//! is several cases, one for each server and `appendfsync` that it names.
//!
//! **Invariant**: a case that is read has been checked: every setting in range, every published
//! case it names there.

mod file;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{During, Error, Result};
use crate::published;
use crate::server::{self, Product};
use crate::size::ByteSize;
use crate::workload::{clients, keys, oltp, slob, tpcc, ycsb};

use file::File;

pub use crate::workload::Load;

/// The cases built in, in the order of a study.
const BUILT_IN: [(&str, &str); 20] = [
    ("redo-on-home", include_str!("../../../cases/redo-on-home.toml")),
    ("redo-on-tier", include_str!("../../../cases/redo-on-tier.toml")),
    ("all-on-tier", include_str!("../../../cases/all-on-tier.toml")),
    ("batch-on-tier", include_str!("../../../cases/batch-on-tier.toml")),
    ("rollback-on-home", include_str!("../../../cases/rollback-on-home.toml")),
    ("reads-from-tier", include_str!("../../../cases/reads-from-tier.toml")),
    ("server-on-home", include_str!("../../../cases/server-on-home.toml")),
    ("server-redo-on-disk", include_str!("../../../cases/server-redo-on-disk.toml")),
    ("server-redo-in-directory", include_str!("../../../cases/server-redo-in-directory.toml")),
    ("server-redo-on-mount", include_str!("../../../cases/server-redo-on-mount.toml")),
    ("server-all-on-mount", include_str!("../../../cases/server-all-on-mount.toml")),
    ("server-all-written-once", include_str!("../../../cases/server-all-written-once.toml")),
    ("keys-on-home", include_str!("../../../cases/keys-on-home.toml")),
    ("keys-in-directory", include_str!("../../../cases/keys-in-directory.toml")),
    ("keys-on-mount", include_str!("../../../cases/keys-on-mount.toml")),
    ("keys-on-tier", include_str!("../../../cases/keys-on-tier.toml")),
    ("tpcc-on-home", include_str!("../../../cases/tpcc-on-home.toml")),
    ("tpcc-redo-on-tier", include_str!("../../../cases/tpcc-redo-on-tier.toml")),
    ("tpcc-all-on-tier", include_str!("../../../cases/tpcc-all-on-tier.toml")),
    ("tpcc-written-once", include_str!("../../../cases/tpcc-written-once.toml")),
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
    /// The redo, on ext4 on a loop device over the medium: a virtual disk that a hypervisor backs
    /// with persistent memory.
    Disk,
    /// The redo, in a directory of the medium: a DAX file system.
    Directory,
    /// All data, in a tier that the server maps itself.
    Mapped,
}

impl Placement {
    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            Placement::Home => "nothing",
            Placement::Redo => "redo",
            Placement::All => "data and redo",
            Placement::Disk => "redo, a disk",
            Placement::Directory => "redo, a folder",
            Placement::Mapped => "all data",
        }
    }
}

/// How SQLite commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JournalMode {
    /// Write-ahead log.
    Wal,
    /// Rollback journal, deleted at each commit; not written at all where a batch of pages can be
    /// written as a whole.
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

/// A server's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerSettings {
    /// The server, where it is not the one that the target is named after: `redis`, `valkey`.
    pub program: Option<String>,
    /// Its page cache: shared_buffers, innodb_buffer_pool_size.
    pub cache: ByteSize,
    /// Whether pages are written twice against torn ones: full_page_writes, innodb_doublewrite.
    pub torn_page_protection: bool,
    /// Whether data pages are atomic on a mount; else they are in the page cache.
    pub atomic_pages: bool,
    /// The load.
    pub load: Load,
    /// Clients of a load that is a program of its own.
    pub clients: u32,
    /// What `mixed` and `set` ask of a key-value server.
    pub keys: keys::Settings,
    /// Bytes of the tier; absent: as much as the case can use.
    pub tier: Option<ByteSize>,
    /// Settings by product, in its own words.
    pub settings: BTreeMap<String, BTreeMap<String, String>>,
    /// The tables of sysbench, where a study says so and not a file.
    #[serde(skip)]
    pub(crate) sysbench: Option<oltp::Tables>,
}

impl Default for ServerSettings {
    fn default() -> Self {
        ServerSettings {
            program: None,
            cache: ByteSize(16 << 20),
            torn_page_protection: true,
            atomic_pages: true,
            load: Load::Slob,
            clients: 1,
            keys: keys::Settings::default(),
            tier: None,
            settings: BTreeMap::new(),
            sysbench: None,
        }
    }
}

/// The target of a case that names none, and of a study that names none.
pub const SQLITE: &str = "sqlite";

/// What a case may be for: SQLite, and every server.
pub(crate) fn targets() -> Vec<&'static str> {
    let servers = server::products().iter().map(|product| product.name());
    std::iter::once(SQLITE).chain(servers).collect()
}

/// That there is no such target, and which there are.
pub(crate) fn no_target(name: &str) -> Error {
    Error::Setting {
        setting: "target",
        value: name.to_owned(),
        reason: format!("give one of {}", targets().join(", ")),
    }
}

fn known(target: &str) -> Result<()> {
    if targets().contains(&target) { Ok(()) } else { Err(no_target(target)) }
}

/// One experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// Sets it is part of: `redo`.
    pub sets: Vec<String>,
    /// Targets it is for.
    pub targets: Vec<String>,
    /// The target it is run on.
    pub target: String,
    /// What is on the tier.
    pub placement: Placement,
    /// Published experiments shown beside it, `document/case`.
    pub published: Vec<String>,
    /// Runs: one for each of these UPDATE_PCT.
    pub update_pcts: Vec<u32>,
    /// SQLite's settings.
    pub sqlite: SqliteSettings,
    /// A server's settings.
    pub server: ServerSettings,
    /// SLOB's load, with the first of `update_pcts`.
    pub slob: slob::Settings,
    /// The company of the load `tpcc`.
    pub tpcc: tpcc::Settings,
    /// The records of the loads `ycsb-*`.
    pub ycsb: ycsb::Settings,
    /// The tables of the loads `oltp-*`.
    pub oltp: oltp::Settings,
    /// The tables and jobs of the load `client-copy`.
    pub client_copy: clients::Settings,
}

impl Case {
    /// Reads a file of one case, or the first of several; `name` is what errors call it.
    ///
    /// # Errors
    /// [`Error::Case`] or [`Error::Setting`]: what is wrong in it.
    pub fn parse(name: &str, text: &str) -> Result<Case> {
        let first = Case::parse_all(name, text)?.into_iter().next();
        first.ok_or_else(|| Error::Case { case: name.to_owned(), reason: "it has no case".into() })
    }

    /// Reads a case file; `name` is what errors call it.
    ///
    /// # Errors
    /// [`Error::Case`] or [`Error::Setting`]: what is wrong in it.
    pub fn parse_all(name: &str, text: &str) -> Result<Vec<Case>> {
        let wrong = |reason: String| Error::Case { case: name.to_owned(), reason };
        let file: File = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        if file.each.program.is_empty() != file.each.appendfsync.is_empty() {
            return Err(wrong("each has one of program and appendfsync; give both".into()));
        }
        file.split().into_iter().map(|file| Case::of(name, file)).collect()
    }

    fn of(name: &str, file: File) -> Result<Case> {
        let wrong = |reason: String| Error::Case { case: name.to_owned(), reason };
        if file.id.is_empty()
            || !file.id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        {
            return Err(wrong(format!(
                "the id `{}` is not small letters, digits and hyphens",
                file.id
            )));
        }
        if file.update_pcts.is_empty() {
            return Err(wrong(
                "update_pcts is empty; name one UPDATE_PCT for each run, for instance [100, 25]"
                    .into(),
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
            sets: file.sets,
            target: file.targets.first().cloned().unwrap_or_default(),
            targets: file.targets,
            placement: file.placement,
            published: file.published,
            update_pcts: file.update_pcts,
            sqlite: file.sqlite,
            server: file.server,
            slob: file.slob,
            tpcc: file.tpcc,
            ycsb: file.ycsb,
            oltp: file.oltp,
            client_copy: file.client_copy,
        };
        case.server.load = file.load.unwrap_or(case.server.load);
        case.server.clients = file.clients.unwrap_or(case.server.clients);
        if case.targets.is_empty() {
            return Err(wrong(format!("targets is empty; name some of {}", targets().join(", "))));
        }
        for name in &case.targets {
            known(name)?;
        }
        case.slob.update_pct = case.update_pcts[0];
        for name in case.targets.clone() {
            case.clone().on(&name).check(&case.id)?;
        }
        case.check(name)?;
        Ok(case)
    }

    /// The same case on one of its targets.
    #[must_use]
    pub fn on(mut self, target: &str) -> Case {
        self.target = target.to_owned();
        self
    }

    /// The server it is run on.
    ///
    /// # Errors
    /// It is run on none.
    pub fn product(&self) -> Result<&'static dyn Product> {
        server::product(self.server.program.as_ref().unwrap_or(&self.target))
    }

    /// Bytes of a block, which holds one row: a page of the target.
    pub fn block_bytes(&self) -> u64 {
        match self.product() {
            Ok(product) => product.page_bytes(),
            Err(_) => u64::from(self.sqlite.page_size),
        }
    }

    /// What the database is loaded with.
    pub fn load(&self) -> Load {
        self.server.load
    }

    pub(crate) fn is_embedded(&self) -> bool {
        self.target == SQLITE
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
        use Placement::{Directory, Disk, Mapped};
        let of_servers = matches!(self.placement, Disk | Directory | Mapped);
        if of_servers && self.is_embedded() {
            let reason = format!(
                "the placement `{}` is for servers, and the case is for sqlite",
                self.placement.name()
            );
            return Err(Error::Case { case: name.to_owned(), reason });
        }
        self.check_server(name)?;
        self.check_clients(self.server.clients)?;
        self.check_loads()?;
        for settings in self.runs() {
            settings.check(self.block_bytes())?;
        }
        Ok(())
    }

    /// Whether its server is one that can stand for the target, and its data are where it keeps
    /// them.
    fn check_server(&self, name: &str) -> Result<()> {
        if self.is_embedded() {
            return Ok(());
        }
        let (product, target) = (self.product()?, server::product(&self.target)?);
        let wrong = |reason: String| Err(Error::Case { case: name.to_owned(), reason });
        if product.name() != target.name() && !(product.speaks_redis() && target.speaks_redis()) {
            return wrong(format!(
                "{} cannot stand for the target {}: the two speak another protocol",
                product.title(),
                target.name()
            ));
        }
        let mapped = self.placement == Placement::Mapped;
        if mapped != product.tier_file().is_some() {
            return wrong(format!(
                "the placement `mapped` is for servers that map their tier themselves, and for no \
                 others; the server is {}, the placement `{}`",
                product.title(),
                self.placement.name()
            ));
        }
        Ok(())
    }

    /// Whether the target takes so many clients.
    ///
    /// # Errors
    /// [`Error::Setting`]: how many it takes.
    pub(crate) fn check_clients(&self, clients: u32) -> Result<()> {
        // PostgreSQL and MariaDB take a hundred connections as they come, Redis ten thousand.
        let of_redis = self.product().is_ok_and(|product| product.speaks_redis());
        let most = if of_redis { 1000 } else { 90 };
        if (1..=most).contains(&clients) {
            return Ok(());
        }
        let reason = format!("give 1 to {most}");
        Err(Error::Setting { setting: "clients", value: clients.to_string(), reason })
    }

    /// Whether the settings of each load make one.
    ///
    /// # Errors
    /// [`Error::Setting`]: which one does not.
    pub(crate) fn check_loads(&self) -> Result<()> {
        self.server.keys.check()?;
        self.tpcc.check()?;
        self.ycsb.check()?;
        self.oltp.check()?;
        self.client_copy.check()
    }

    /// The load of each run.
    pub fn runs(&self) -> impl Iterator<Item = slob::Settings> + '_ {
        self.update_pcts.iter().map(|pct| slob::Settings { update_pct: *pct, ..self.slob.clone() })
    }
}

/// The cases built in.
///
/// # Errors
/// None in a program that passed its tests.
pub fn built_in() -> Result<Vec<Case>> {
    let all: Result<Vec<Vec<Case>>> =
        BUILT_IN.iter().map(|(name, text)| Case::parse_all(name, text)).collect();
    Ok(all?.into_iter().flatten().collect())
}

/// The text of a built-in file, by its name or that of a case in it, to copy and change.
pub fn text_of(id: &str) -> Option<&'static str> {
    let has = |text: &str| {
        Case::parse_all(id, text).is_ok_and(|cases| cases.iter().any(|case| case.id == id))
    };
    let found = BUILT_IN.iter().find(|(name, _)| *name == id);
    found.or_else(|| BUILT_IN.iter().find(|(_, text)| has(text))).map(|(_, text)| *text)
}

/// The cases of these names (ids, names of sets, or paths of files that end in `.toml`), each
/// behind its baseline; those that run by default if none is named, every one if `full`. Of SQLite:
/// [`choose_for`] is for the others.
///
/// # Errors
/// A name that is not there, or a file that is wrong.
pub fn choose(names: &[String], full: bool) -> Result<Vec<Case>> {
    choose_for(SQLITE, names, full)
}

/// [`choose`] for a target.
///
/// # Errors
/// A name that is not there, a file that is wrong, a target that is not there.
pub fn choose_for(target: &str, names: &[String], full: bool) -> Result<Vec<Case>> {
    known(target)?;
    let is_for = |case: &Case| case.targets.iter().any(|name| name == target);
    let known: Vec<Case> =
        built_in()?.into_iter().filter(is_for).map(|case| case.on(target)).collect();
    if names.is_empty() {
        return Ok(known.into_iter().filter(|case| full || case.by_default).collect());
    }
    let mut chosen: Vec<Case> = Vec::new();
    let mut add = |case: Case| {
        if !chosen.iter().any(|c| c.id == case.id) {
            chosen.push(case);
        }
    };
    let find = |name: &str| -> Result<Case> {
        if let Some(case) = known.iter().find(|case| case.id == name) {
            return Ok(case.clone());
        }
        Err(
            match built_in()?
                .into_iter()
                .find(|case| case.id == name || case.sets.iter().any(|set| set == name))
            {
                Some(other) => {
                    Error::Case { case: name.to_owned(), reason: not_of(&other, target) }
                }
                None => Error::NoSuchCase {
                    name: name.to_owned(),
                    known: known.iter().map(|case| case.id.as_str()).collect::<Vec<_>>().join(", "),
                },
            },
        )
    };
    for name in names {
        let of_set: Vec<Case> =
            known.iter().filter(|case| case.sets.contains(name)).cloned().collect();
        let cases = if name.ends_with(".toml") {
            let text =
                std::fs::read_to_string(Path::new(name)).during("read the case file", name)?;
            let cases = Case::parse_all(name, &text)?;
            if let Some(case) = cases.iter().find(|case| !is_for(case)) {
                return Err(Error::Case { case: name.clone(), reason: not_of(case, target) });
            }
            cases.into_iter().map(|case| case.on(target)).collect()
        } else if of_set.is_empty() {
            vec![find(name)?]
        } else {
            of_set
        };
        for case in cases {
            if let Some(baseline) = &case.baseline {
                add(find(baseline)?);
            }
            add(case);
        }
    }
    Ok(chosen)
}

/// Why a case cannot be run on a target, and how it is run.
fn not_of(case: &Case, target: &str) -> String {
    let its = case.targets.join(", ");
    match case.targets.first() {
        Some(first) => format!("it is for {its}, and the target is {target}; say --target {first}"),
        None => format!("it names no target, and the target is {target}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_case_is_sound_and_named_as_its_file() {
        let cases = built_in().unwrap();
        for (name, text) in BUILT_IN {
            let of_file = Case::parse_all(name, text).unwrap();
            let several = of_file.len() > 1;
            for case in of_file {
                let begins = case.id.starts_with(&format!("{name}-"));
                assert!(if several { begins } else { case.id == name }, "{name}: {}", case.id);
                assert_eq!(text_of(&case.id), Some(text));
                let Some(baseline) = &case.baseline else { continue };
                assert!(cases.iter().any(|c| c.id == *baseline && c.baseline.is_none()), "{name}");
            }
            assert!(text.starts_with('#'), "{name} does not say first what it is");
        }
    }

    #[test]
    fn the_default_study_has_the_four_cases_at_100_and_25() {
        let cases = choose(&[], false).unwrap();
        let ids: Vec<&str> = cases.iter().map(|c| c.id.as_str()).collect();
        assert_eq!(ids, ["redo-on-home", "redo-on-tier", "all-on-tier", "batch-on-tier"]);
        for case in &cases {
            assert_eq!(case.update_pcts, [100, 25]);
            assert_eq!(case.sqlite.synchronous, "full");
            assert!(
                case.slob.blocks(u64::from(case.sqlite.page_size)) >= slob::SLOB_SCALE_MIN_BLOCKS
            );
        }
        // A comparison is of one thing: where the files are, or how SQLite commits.
        let baseline = &cases[0];
        assert!(
            cases
                .iter()
                .all(|c| c.slob == baseline.slob
                    && c.sqlite.page_cache == baseline.sqlite.page_cache)
        );
    }

    #[test]
    fn a_case_of_another_target_is_said_to_be_one() {
        let refused = choose(&["server-redo-on-mount".into()], false).unwrap_err().to_string();
        assert!(refused.contains("it is for postgres, mariadb, redis"), "{refused}");
        assert!(refused.contains("target is sqlite; say --target postgres"), "{refused}");
        let refused = choose_for("redis", &["redo-on-tier".into()], false).unwrap_err().to_string();
        assert!(refused.contains("say --target sqlite"), "{refused}");
        let refused = choose(&["nothing".into()], false).unwrap_err().to_string();
        assert!(refused.contains("there is no case `nothing`"), "{refused}");
    }

    #[test]
    fn a_case_brings_its_baseline_and_comes_once() {
        let names = ["all-on-tier", "redo-on-home", "all-on-tier"].map(String::from);
        let ids: Vec<String> = choose(&names, false).unwrap().into_iter().map(|c| c.id).collect();
        assert_eq!(ids, ["redo-on-home", "all-on-tier"]);
    }

    #[test]
    fn every_server_has_the_redo_cases_and_each_is_compared_with_the_home_disk() {
        // The key-value server has no redo that could lie elsewhere.
        for product in server::products().iter().filter(|product| product.tier_file().is_none()) {
            let cases = choose_for(product.name(), &["redo".into()], false).unwrap();
            let placements: Vec<Placement> = cases.iter().map(|case| case.placement).collect();
            use Placement::{All, Directory, Disk, Home, Redo};
            assert_eq!(placements, [Home, Disk, Directory, Redo, All, All]);
            let written_twice: Vec<bool> =
                cases.iter().map(|case| case.server.torn_page_protection).collect();
            assert_eq!(written_twice, [true, true, true, true, true, false]);
            assert!(
                cases[1..]
                    .iter()
                    .all(|case| case.baseline.as_deref() == Some(cases[0].id.as_str()))
            );
            assert!(cases.iter().all(
                |case| case.block_bytes() == product.page_bytes() && case.slob == cases[0].slob
            ));
        }
        let sqlite = choose(&["redo".into()], false).unwrap();
        assert!(sqlite.iter().all(|case| case.target == SQLITE) && sqlite.len() >= 3);
        assert!(choose_for("oracle", &[], false).is_err());
        assert!(choose(&["server-on-home".into()], false).is_err());
    }

    #[test]
    fn the_key_value_server_stands_beside_each_server_with_each_sync_in_each_place() {
        let cases = choose_for("kv", &["keys".into()], false).unwrap();
        let baseline = "keys-on-home-redis-always";
        let mut rows = Vec::new();
        for case in &cases {
            let own = case.product().unwrap().name();
            let sync = case.server.settings.get(own).map(|own| own["appendfsync"].as_str());
            rows.push((own, sync.unwrap_or_default().to_owned(), case.placement));
            assert_eq!(case.baseline.is_none(), case.id == baseline, "{}", case.id);
            // One load for all of them.
            assert_eq!(
                (case.load(), case.server.clients, case.server.keys, &case.slob),
                (Load::Mixed, 200, cases[0].server.keys, &cases[0].slob)
            );
        }
        let mut expected = Vec::new();
        for placement in [Placement::Home, Placement::Directory, Placement::Redo] {
            for own in ["redis", "valkey"] {
                expected
                    .extend(["always", "everysec", "no"].map(|s| (own, s.to_owned(), placement)));
            }
        }
        expected.push(("kv", String::new(), Placement::Mapped));
        assert_eq!(rows, expected);
        let usual: Vec<String> =
            choose_for("kv", &[], false).unwrap().into_iter().map(|case| case.id).collect();
        let three =
            ["on-home", "in-directory", "on-mount"].map(|at| format!("keys-{at}-redis-always"));
        assert_eq!(usual, [&three[..], &["keys-on-tier".to_owned()]].concat());
    }

    #[test]
    fn a_server_that_cannot_stand_for_the_target_is_refused() {
        let good = text_of("keys-on-tier").unwrap();
        for (from, to, expected) in [
            (
                "placement = \"mapped\"",
                "placement = \"redo\"",
                "is tiersmith kv, the placement `redo`",
            ),
            ("[server]", "[server]\nprogram = \"redis\"", "the server is Redis"),
            ("[server]", "[server]\nprogram = \"postgres\"", "cannot stand for the target kv"),
            ("[server]", "[server]\nprogram = \"oracle\"", "oracle"),
            ("[server]", "[each]\nprogram = [\"redis\"]\n[server]", "give both"),
        ] {
            assert!(good.contains(from), "{from}");
            let error = Case::parse_all("mine", &good.replacen(from, to, 1)).unwrap_err();
            assert!(error.to_string().contains(expected), "{from}: {error}");
        }
    }

    #[test]
    fn loads_have_names() {
        for load in Load::ALL {
            assert_eq!(load.name().parse(), Ok(load));
        }
        assert!("tpch".parse::<Load>().unwrap_err().contains("tpcb"));
    }

    #[test]
    fn a_case_that_is_not_there_is_refused_with_those_that_are() {
        let error = choose(&["undo".into()], false).unwrap_err().to_string();
        assert!(error.contains("no case `undo`") && error.contains("redo-on-tier"), "{error}");
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
