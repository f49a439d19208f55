//! Profiles: which files of a database are redo, which are data, which are left alone, and in
//! blocks of which size.
//!
//! A profile is a commented TOML file (`profiles/*.toml`, built in; a user may bring one). Its
//! rules are tried in order against the path of a file relative to home, and the first that matches
//! decides; a file no rule matches gets the profile's default. Reading the files is in `parse.rs`,
//! with what they may hold; what the built-in ones say about the files of real databases is pinned
//! in `layouts.rs`.
//!
//! # Which class is right
//!
//! - `redo` files are written in place, and persistent memory is atomic to 8 bytes, not to a
//!   sector. So only a file whose program never changes bytes it has acknowledged, finds a torn
//!   tail by a checksum of each *record*, and takes any record with a wrong one at the end for the
//!   torn tail, may be `redo`. A log that rewrites its last sector under a checksum of the *sector*
//!   is `data`, and so is one whose program refuses to start on a record torn within a sector
//!   (etcd). When in doubt, `data`.
//! - `data` is right for every file: each block is one whole version.
//! - `pass` is right for every file, and best for small, temporary and memory-mapped ones.
//!
//! # Invariants
//!
//! - A name a program writes first and the name it renames it to have the same placement
//!   (`layouts.rs` lists them).
//! - The block size is a power of two from [`MIN_BLOCK_SIZE`] to [`MAX_BLOCK_SIZE`].
//!
//! # Adding a profile
//! 1. `profiles/NAME.toml`: a copy of one that is there (`parse.rs` has the keys). For each rule,
//!    say in a comment who writes the files, how, and what becomes of a torn end.
//! 2. `BUILT_IN`: before a profile whose signs this database's homes have too, and before
//!    `sqlite`, whose signs are patterns of names.
//! 3. `layouts.rs`: the names of all files of a server that ran, was killed and ran again, what
//!    it renames into what, and a home by which it is recognized. Tests say what is missing: each
//!    pattern of a profile matches a name there.
//!
//! Messages name it by themselves. `docs/guide/rust.md` and `CHANGELOG.md` say which databases have
//! one.
//!
//! Deliberately absent: looking into files. A name decides, so that it can be decided before the
//! file has any bytes.

pub(crate) mod keeping;
mod parse;

#[cfg(test)]
mod layouts;

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use globset::GlobSet;
use serde::Deserialize;

pub use keeping::{CacheRule, CacheRules, CacheRulesError, Keeping};
pub use parse::ProfileError;

/// The smallest block size a profile may ask for, in bytes.
pub const MIN_BLOCK_SIZE: u32 = 4096;
/// The largest block size a profile may ask for, in bytes.
pub const MAX_BLOCK_SIZE: u32 = 32768;

/// How a file is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileClass {
    /// Written in place in the tier and drained to home in the background: its own format detects a
    /// torn tail.
    Redo,
    /// Written by pointer switch: each aligned block is one whole version.
    Data,
    /// Everything goes straight to home.
    Pass,
}

/// Where a file belongs: its class, and the size of its blocks in bytes (which means nothing for
/// `pass`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Placement {
    /// How the file is treated.
    pub class: FileClass,
    /// The size of its blocks in bytes.
    pub block_size: u32,
}

/// The rules for the files of one database. A clone shares what is large: each pattern set that is
/// cloned would make its own caches when it is first used.
#[derive(Debug, Clone)]
pub struct Profile {
    name: String,
    description: String,
    /// The home is this database's if every item of one of these lists is there.
    detect: Arc<[Vec<Sign>]>,
    default: Placement,
    /// Files that a server of this database writes whenever it starts.
    sentinels: Vec<PathBuf>,
    lent_in: Option<PathBuf>,
    /// Bytes of blocks that a tier for its redo needs at least.
    redo_at_least: u64,
    rules: Arc<[Rule]>,
    /// All patterns of all rules, compiled together; `rule_of` says whose each is.
    patterns: Arc<GlobSet>,
    rule_of: Arc<[usize]>,
}

/// Files of a kind and where they belong.
#[derive(Debug, Clone)]
struct Rule {
    placement: Placement,
    temporary: bool,
    lend: bool,
    why: String,
}

/// Something whose presence in a home tells the database.
#[derive(Debug, Clone)]
enum Sign {
    /// This path is there.
    Path(PathBuf),
    /// A name directly in home matches.
    Name(globset::GlobMatcher),
}

/// The built-in profiles, in the order they are tried by [`Profile::detect`].
const BUILT_IN: &[(&str, &str)] = &[
    ("postgres", include_str!("../../profiles/postgres.toml")),
    ("mariadb", include_str!("../../profiles/mariadb.toml")),
    ("redis", include_str!("../../profiles/redis.toml")),
    ("etcd", include_str!("../../profiles/etcd.toml")),
    ("sqlite", include_str!("../../profiles/sqlite.toml")),
    ("generic", include_str!("../../profiles/generic.toml")),
    ("pass", include_str!("../../profiles/pass.toml")),
];

impl Profile {
    /// The built-in profile of this name; `mysql`, `postgresql` and `valkey` are other names of
    /// three.
    ///
    /// # Errors
    /// If there is none; the error lists those there are.
    pub fn named(name: &str) -> Result<Profile, ProfileError> {
        let asked = match name {
            "mysql" => "mariadb",
            "postgresql" => "postgres",
            "valkey" => "redis",
            other => other,
        };
        match BUILT_IN.iter().find(|(known, _)| *known == asked) {
            Some((known, toml)) => Ok(Profile::built_in(known, toml)),
            None => Err(ProfileError::Unknown { name: name.to_owned(), known: Profile::names() }),
        }
    }

    /// A profile from the text of a TOML file; `name` is what it is called from here on, also in
    /// errors.
    ///
    /// # Errors
    /// If the text is not TOML, has a key or class that is not known, a block size that is not
    /// possible or a pattern that cannot be read.
    pub fn parse(name: &str, toml: &str) -> Result<Profile, ProfileError> {
        parse::parse(name, toml)
    }

    /// The names of all built-in profiles, with commas between.
    fn names() -> String {
        let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        names.join(", ")
    }

    /// All built-in profiles.
    pub fn builtin() -> impl Iterator<Item = Profile> {
        BUILT_IN.iter().map(|(name, toml)| Profile::built_in(name, toml))
    }

    fn built_in(name: &str, toml: &str) -> Profile {
        Profile::parse(name, toml).expect("BUG: a built-in profile cannot be read")
    }

    /// The built-in profile whose files are in this directory; nothing if it looks like none of
    /// them (then `generic` fits). A directory that cannot be read looks like none.
    pub fn detect(home: &Path) -> Option<Profile> {
        Profile::builtin().find(|profile| profile.fits(home))
    }

    /// Whether the files that identify the database are in this directory.
    pub fn fits(&self, home: &Path) -> bool {
        self.detect.iter().any(|signs| signs.iter().all(|sign| sign.is_in(home)))
    }

    /// The files, relative to home, that every server of this database writes when it starts:
    /// changed ones tell the next attach that a server ran without the tier.
    pub fn sentinels(&self) -> &[PathBuf] {
        &self.sentinels
    }

    /// Where the file at this path relative to home belongs.
    pub fn placement(&self, rel: &Path) -> Placement {
        self.rule(rel).map_or(self.default, |rule| rule.placement)
    }

    /// Whether the database never needs the file at this path after a crash, so that its syncs may
    /// be left out.
    pub fn is_temporary(&self, rel: &Path) -> bool {
        self.rule(rel).is_some_and(|rule| rule.temporary)
    }

    /// Whether the file at this path has a fixed size and may be lent: written by the kernel
    /// itself, in a plain file beside the tier.
    pub fn is_lent(&self, rel: &Path) -> bool {
        self.rule(rel).is_some_and(|rule| rule.lend)
    }

    /// The directory, relative to home, of the files that may be lent, where a rule names one.
    pub fn lent_directory(&self) -> Option<&Path> {
        self.lent_in.as_deref()
    }

    /// Why the file at this path belongs where it does, for a person; nothing if it got the
    /// default.
    pub fn why(&self, rel: &Path) -> Option<&str> {
        self.rule(rel).map(|rule| rule.why.as_str())
    }

    /// Bytes that a tier must have for blocks so that this database's redo can be written and
    /// drained at the same time.
    pub fn redo_at_least(&self) -> u64 {
        self.redo_at_least
    }

    /// What the profile is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is for, in a sentence.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Where a file belongs that no rule matches.
    pub fn default_placement(&self) -> Placement {
        self.default
    }

    fn rule(&self, rel: &Path) -> Option<&Rule> {
        // `./base/1` and `base//1` are the same file as `base/1`.
        let plain: PathBuf =
            rel.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        let matching = self.patterns.matches(plain);
        matching
            .iter()
            .filter_map(|pattern| self.rule_of.get(*pattern))
            .min()
            .map(|rule| &self.rules[*rule])
    }
}

impl Sign {
    fn is_in(&self, home: &Path) -> bool {
        match self {
            Sign::Path(path) => home.join(path).symlink_metadata().is_ok(),
            Sign::Name(name) => std::fs::read_dir(home).is_ok_and(|entries| {
                entries.flatten().any(|entry| name.is_match(entry.file_name()))
            }),
        }
    }
}

impl FileClass {
    /// The word for it in profiles and reports.
    pub const fn name(self) -> &'static str {
        match self {
            FileClass::Redo => "redo",
            FileClass::Data => "data",
            FileClass::Pass => "pass",
        }
    }
}

impl fmt::Display for FileClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
