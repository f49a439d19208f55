//! The fast tier a URI names, and what the store needs to know of it.
//!
//! `file:app.db?vfs=tiersmith&fast=/mnt/pmem0/app.tier&size=1G`: the parameters are listed at
//! [`FastSpec::from_uri`].
//!
//! It does not look at the media: the store does, and says what is wrong with them.
//!
//! Invariant: the profile made here names exactly the three files of one database; everything else
//! in the directory passes.
//!
//! Read next: `record.rs`, which keeps a `FastSpec` beside the database.

use crate::error::PlaceError;
use crate::files::{DB, JOURNAL, STAMP, WAL};
use std::path::{Path, PathBuf};
use tiersmith_store::{Bound, Guard, Medium, Options, Profile, TierSpec};

/// Name of the tier, in reports and in the store's messages.
pub(super) const TIER: &str = "fast";
/// Bytes of redo kept in the tier if nobody says otherwise and the tier is large.
const REDO_KEEP: u64 = 256 << 20;

/// Which files of the database live on the tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Database, WAL and journal.
    #[default]
    All,
    /// WAL and journal; the database file itself passes to the home's file system.
    Redo,
    /// The database file; WAL and journal pass.
    Data,
}

impl Placement {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Redo => "redo",
            Self::Data => "data",
        }
    }

    pub(super) fn from_word(word: &str) -> Option<Self> {
        [Self::All, Self::Redo, Self::Data].into_iter().find(|p| p.word() == word)
    }
}

/// The fast tier a URI names. Sizes are in bytes; each `None` has a default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastSpec {
    /// The backings, striped by allocation unit: files on a DAX file system, DAX devices, or with
    /// `emulate` any files. One file on any other disk is flash.
    pub members: Vec<PathBuf>,
    /// Bytes of each member when it is made. Needed for a file that is missing or empty, without
    /// meaning for others.
    pub size: Option<u64>,
    /// Bytes each member may grow to; by default it does not grow.
    pub max_size: Option<u64>,
    /// Bytes each member grows by at a time; by default a quarter of `size`.
    pub grow_by: Option<u64>,
    /// The members only stand for persistent memory, and every report says so.
    pub emulate: bool,
    /// The member is an ordinary file on a disk. Nobody gives it: attaching finds out, and notes
    /// it.
    pub flash: bool,
    /// Block size of the database file; by default its page size, within what the store has.
    pub block_size: Option<u32>,
    /// Bytes of the WAL that stay in the tier; by default a quarter of the tier, 256 MiB at most.
    pub redo_keep_bytes: Option<u64>,
    /// Which of the three files live on the tier.
    pub place: Placement,
}

impl FastSpec {
    /// Reads the URI parameters; `None` when there is no `fast=`.
    ///
    /// `fast` members, separated by commas; `size`, `maxsize`, `next`, `keep` bytes, with K, M, G
    /// or T for powers of 1024; `emulate` 1 or 0; `block` 4096 to 32768; `place` all, redo or data.
    ///
    /// # Errors
    /// [`PlaceError::Parameter`] for a value that cannot be read, and for parameters that make no
    /// sense without `fast=`.
    pub fn from_uri(get: impl Fn(&str) -> Option<String>) -> Result<Option<FastSpec>, PlaceError> {
        const WITH_FAST: [&str; 7] =
            ["size", "maxsize", "next", "emulate", "block", "keep", "place"];
        let Some(fast) = get("fast") else {
            return match WITH_FAST.into_iter().find_map(|name| Some((name, get(name)?))) {
                Some((parameter, value)) => {
                    wrong(parameter, value, "it says how fast= is attached, and there is no fast=")
                }
                None => Ok(None),
            };
        };
        let mut members = Vec::new();
        for member in fast.split(',') {
            if member.is_empty() || member.contains('\0') {
                return wrong("fast", fast, "give one path, or several with commas between them");
            }
            let absolute = std::path::absolute(member);
            let Ok(absolute) = absolute else {
                return wrong("fast", fast, "the working directory is gone; give absolute paths");
            };
            if absolute.is_dir() {
                return wrong(
                    "fast",
                    fast,
                    "it is a directory; name a file in it, such as app.tier",
                );
            }
            members.push(absolute);
        }
        let bytes = |parameter| match get(parameter) {
            None => Ok(None),
            Some(text) => match parse_bytes(&text) {
                Some(bytes) => Ok(Some(bytes)),
                None => wrong(parameter, text, "give bytes, such as 67108864, 64M or 1G"),
            },
        };
        let emulate = switch("emulate", &get)?;
        let block_size = match get("block") {
            None => None,
            Some(text) => match parse_bytes(&text).and_then(|n| u32::try_from(n).ok()) {
                Some(size) if size.is_power_of_two() && (4096..=32768).contains(&size) => {
                    Some(size)
                }
                _ => return wrong("block", text, "give 4096, 8192, 16384 or 32768"),
            },
        };
        let place = match get("place") {
            None => Placement::All,
            Some(word) => match Placement::from_word(&word) {
                Some(place) => place,
                None => return wrong("place", word, "give all, redo or data"),
            },
        };
        Ok(Some(FastSpec {
            members,
            size: bytes("size")?,
            max_size: bytes("maxsize")?,
            grow_by: bytes("next")?,
            emulate,
            flash: false,
            block_size,
            redo_keep_bytes: bytes("keep")?,
            place,
        }))
    }

    /// The members as `fast=` has them.
    pub(super) fn member_list(&self) -> String {
        let members: Vec<String> = self.members.iter().map(|m| m.display().to_string()).collect();
        members.join(",")
    }

    /// Bytes of each member as it will be: what exists counts, `size` for what has to be made.
    fn member_bytes(&self) -> Option<u64> {
        let existing =
            |path: &PathBuf| std::fs::metadata(path).ok().filter(|m| m.is_file()).map(|m| m.len());
        self.members.iter().filter_map(existing).filter(|len| *len > 0).min().or(self.size)
    }

    /// The tier for the store.
    ///
    /// # Errors
    /// [`PlaceError::Parameter`] when a member would have to be made and there is no size.
    pub(super) fn tier(&self, database: &Path) -> Result<TierSpec, PlaceError> {
        for member in &self.members {
            if same_file(member, database) {
                return wrong(
                    "fast",
                    self.member_list(),
                    "it is the database itself; give a file on fast storage",
                );
            }
            let missing = match std::fs::metadata(member) {
                Ok(found) => found.is_file() && found.len() == 0,
                Err(_) => true,
            };
            if missing && self.size.is_none() {
                let why = format!(
                    "{} does not exist, or is empty; give size= to have it made",
                    member.display()
                );
                return wrong("fast", self.member_list(), &why);
            }
        }
        // A DAX device has no length to ask for; it is used whole, and is large.
        let bytes = self.member_bytes().unwrap_or(1 << 30);
        let size = self.size.unwrap_or(bytes / 4096 * 4096);
        let max_size = self.max_size.unwrap_or(size);
        let growing = max_size > size;
        let grow_by = match self.grow_by {
            Some(bytes) => bytes,
            None if growing => (size / 4).max(4096).next_multiple_of(4096).min(max_size - size),
            None => 0,
        };
        let largest = bytes.max(max_size);
        // Small tiers are for tests and demonstrations; there the usual unit would leave only a
        // handful to divide.
        let unit = power_below(largest / 64).clamp(32 << 10, 1 << 20);
        let lanes = power_below(largest / (512 << 10)).clamp(4, 128) as u32;
        Ok(TierSpec {
            members: self.members.clone(),
            max_size,
            grow_by,
            unit,
            lanes,
            // One database has one writer, and one transaction commits at a time.
            batches: 2,
            // Three files, and a slot for each journal that was removed and made again until its
            // last handle is closed.
            slots: 64,
            ..TierSpec::new(TIER, PathBuf::new(), self.medium(), size)
        })
    }

    fn medium(&self) -> Medium {
        match (self.emulate, self.flash) {
            (true, _) => Medium::Emulated,
            (false, true) => Medium::Flash,
            (false, false) => Medium::Persistent,
        }
    }

    /// How the store attaches, for blocks of `block_size` bytes.
    pub(super) fn options(&self, block_size: u32) -> Options {
        let bytes =
            self.member_bytes().unwrap_or(1 << 30).saturating_mul(self.members.len() as u64);
        Options {
            profile: Some(profile(self.place, block_size)),
            guard: Guard::Door,
            bound: Some(bound()),
            redo_keep_bytes: self.redo_keep_bytes.unwrap_or(REDO_KEEP.min(bytes / 4)),
            ..Options::default()
        }
    }
}

/// Whether the URI asks for a SIGBUS handler. Unlike the other parameters it needs no `fast=`.
///
/// # Errors
/// [`PlaceError::Parameter`] for a value that is neither 1 nor 0.
pub fn asks_for_sigbus(get: impl Fn(&str) -> Option<String>) -> Result<bool, PlaceError> {
    switch("sigbus", &get)
}

fn switch(
    parameter: &'static str,
    get: &impl Fn(&str) -> Option<String>,
) -> Result<bool, PlaceError> {
    match get(parameter).as_deref() {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => wrong(parameter, other.to_owned(), "give 1 or 0"),
    }
}

/// That the WAL and the journal belong to the database file as it is.
#[must_use]
pub fn bound() -> Bound {
    Bound {
        file: DB.into(),
        logs: vec![WAL.into(), JOURNAL.into()],
        doubt: None,
        aside: Some(STAMP.into()),
    }
}

fn wrong<T>(parameter: &'static str, value: String, why: &str) -> Result<T, PlaceError> {
    Err(PlaceError::Parameter { parameter, value, why: why.to_owned() })
}

fn power_below(n: u64) -> u64 {
    1 << n.max(1).ilog2()
}

/// Whether both paths lead to one existing file.
pub(super) fn same_file(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (std::fs::metadata(a), std::fs::metadata(b)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// A number of bytes; K, M, G and T are powers of 1024.
fn parse_bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' | b'k' => (&text[..text.len() - 1], 10),
        b'M' | b'm' => (&text[..text.len() - 1], 20),
        b'G' | b'g' => (&text[..text.len() - 1], 30),
        b'T' | b't' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// The rules for the three files of a database whose file has blocks of `block_size` bytes. Why
/// these classes: `crates/store/profiles/sqlite.toml`.
///
/// # Panics
/// When the store has no blocks of that size.
#[must_use]
pub fn profile(place: Placement, block_size: u32) -> Profile {
    let on = |here: bool, class| if here { class } else { "pass" };
    let main = on(place != Placement::Redo, "data");
    let (wal, journal) =
        (on(place != Placement::Data, "redo"), on(place != Placement::Data, "data"));
    let stamp = match place {
        Placement::Redo => {
            "[[rule]]\nfiles = ['stamp']\nclass = 'data'\nwhy = 'what the database looked like'\n"
        }
        _ => "",
    };
    let text = format!(
        "description = 'one SQLite database'\n\
         [default]\nclass = 'pass'\nblock_size = 4096\n\
         [[rule]]\nfiles = ['db']\nclass = '{main}'\nblock_size = {block_size}\nwhy = 'the \
         database'\n\
         [[rule]]\nfiles = ['wal']\nclass = '{wal}'\nwhy = 'write-ahead log: each commit waits for \
         it'\n\
         [[rule]]\nfiles = ['journal']\nclass = '{journal}'\n\
         why = 'rollback journal: its header is written more than once, so not redo'\n\
         {stamp}"
    );
    Profile::parse("sqlite-database", &text)
        .expect("BUG: the profile of one database cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiersmith_store::FileClass;

    fn from(uri: &[(&str, &str)]) -> Result<Option<FastSpec>, PlaceError> {
        FastSpec::from_uri(|name| {
            uri.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned())
        })
    }

    #[test]
    fn every_parameter_is_read() {
        let spec = from(&[
            ("fast", "/mnt/a,/mnt/b"),
            ("size", "64M"),
            ("maxsize", "1G"),
            ("next", "8192k"),
            ("emulate", "1"),
            ("block", "8K"),
            ("keep", "4096"),
            ("place", "redo"),
        ]);
        let expected = FastSpec {
            members: vec!["/mnt/a".into(), "/mnt/b".into()],
            size: Some(64 << 20),
            max_size: Some(1 << 30),
            grow_by: Some(8 << 20),
            emulate: true,
            flash: false,
            block_size: Some(8192),
            redo_keep_bytes: Some(4096),
            place: Placement::Redo,
        };
        assert_eq!(spec.unwrap().unwrap(), expected);
        assert!(from(&[("vfs", "tiersmith")]).unwrap().is_none());
    }

    #[test]
    fn a_value_that_cannot_be_read_is_named_with_what_to_give() {
        for (name, value) in [
            ("size", "1X"),
            ("size", ""),
            ("size", "99999999999999999999"),
            ("size", "-1"),
            ("maxsize", "G"),
            ("next", "1 G"),
            ("emulate", "yes"),
            ("block", "512"),
            ("block", "65536"),
            ("keep", "16777216T"),
            ("place", "wal"),
        ] {
            let message = from(&[("fast", "/mnt/a"), (name, value)]).unwrap_err().to_string();
            assert!(
                message.contains(&format!("{name}={value}")) && message.contains("give"),
                "{message}"
            );
        }
        for fast in ["", "/a,,/b", ",", "/tmp"] {
            assert!(from(&[("fast", fast)]).is_err(), "{fast}");
        }
        let message = from(&[("size", "1G")]).unwrap_err().to_string();
        assert!(message.contains("there is no fast="), "{message}");
    }

    #[test]
    fn a_member_that_must_be_made_needs_a_size() {
        let dir = tempfile::tempdir().unwrap();
        let spec = FastSpec { members: vec![dir.path().join("t")], ..FastSpec::default() };
        assert!(spec.tier(Path::new("/none")).unwrap_err().to_string().contains("give size="));
        std::fs::write(dir.path().join("t"), vec![0; 1 << 20]).unwrap();
        assert_eq!(spec.tier(Path::new("/none")).unwrap().size, 1 << 20);
        assert!(
            spec.tier(&dir.path().join("t"))
                .unwrap_err()
                .to_string()
                .contains("the database itself")
        );
    }

    #[test]
    fn the_placement_decides_which_files_pass() {
        use FileClass::{Data, Pass, Redo};
        for (place, expected) in [
            (Placement::All, [Data, Redo, Data]),
            (Placement::Redo, [Pass, Redo, Data]),
            (Placement::Data, [Data, Pass, Pass]),
        ] {
            let profile = profile(place, 8192);
            let classes = ["db", "wal", "journal"].map(|f| profile.placement(Path::new(f)).class);
            assert_eq!(classes, expected);
            assert_eq!(profile.placement(Path::new("attachment")).class, Pass);
            assert_eq!(profile.placement(Path::new("db")).block_size, 8192);
        }
    }
}
