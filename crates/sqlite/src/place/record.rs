//! The two texts that say a database is attached: the stub at its path, and the attachment file in its
//! directory.
//!
//! The **stub** is what a program finds that opens the database's path without Tiersmith: a text for people,
//! shorter than a page, that does not begin like a database. SQLite answers "file is not a database". Its
//! length is never a multiple of 512, the smallest page, so that a stub can be told from a database by its
//! size alone, before anything is opened (closing a file drops the locks this process's stock connections
//! have on it).
//!
//! The **attachment file** has the tier's members and how they were attached, so that later opens need no
//! `fast=`. Lines of `word value`, values with `%xx` for bytes that are not plain, and `end` as the last
//! line. What belongs to the tier (its identity, its length, which home it has) is on the tier and in the
//! store's note, not here.
//!
//! Invariant: what is read was written whole: both are written under another name, synced and renamed.

use super::error::PlaceError;
use super::spec::{FastSpec, Placement};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The stub's first bytes.
const STUB: &str = "This SQLite database is attached to Tiersmith.";
/// The stub is shorter.
pub(super) const STUB_MAX: u64 = 4096;
/// The attachment file's first line after the comment.
const VERSION: &str = "tiersmith-sqlite-attachment 2";
/// That of version 1, whose WAL and journal have the names that a stock SQLite looks for.
const VERSION_1: &str = "tiersmith-sqlite-attachment 1";
/// No sound attachment file is longer.
pub(super) const RECORD_MAX: u64 = 1 << 20;

/// What the attachment file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// How it was attached, the block size decided.
    pub(super) spec: FastSpec,
    /// Block size of the database file in bytes.
    pub(super) block_size: u32,
    /// It was read from a file of version 1: the directory has no bars. Never written.
    pub(super) without_bars: bool,
}

/// The stub's text for the database `name`, whose directory beside it is `home`.
pub(super) fn stub(database: &Path, home: &Path, spec: &FastSpec) -> String {
    let short = |text: String| if text.len() > 800 { format!("{}...", cut(&text, 800)) } else { text };
    let path = short(on_one_line(&database.display().to_string()));
    let home = short(on_one_line(&home.display().to_string()));
    let emulated = if spec.emulate { "EMULATED: not persistent memory, " } else { "" };
    let members = short(on_one_line(&spec.member_list()));
    let mut text = format!(
        "{STUB}\n\n\
         The database {path}\n\
         is in the directory {home}\n\
         and the newest version of some of its pages is on fast storage only:\n\
         {emulated}{members}\n\n\
         To use it, open this path through Tiersmith: file:...?vfs=tiersmith\n\
         To have the plain file back: tiersmith detach {path}\n\n\
         Do not use or copy the file in that directory: without the fast storage it is not whole.\n"
    );
    if text.len() % 512 == 0 {
        text.push('\n');
    }
    text
}

/// Whoever names a file may not choose the lines of another, nor what a terminal does.
fn on_one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(plain).collect()
}

fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

/// Whether a file of this length may be a stub.
pub(super) fn may_be_stub(len: u64) -> bool {
    len > 0 && len < STUB_MAX && !len.is_multiple_of(512)
}

/// Whether a file that begins with `head` is a stub.
pub(super) fn is_stub(head: &[u8]) -> bool {
    head.starts_with(STUB.as_bytes())
}

impl Record {
    pub(super) fn encode(&self) -> String {
        let spec = &self.spec;
        let mut text = format!(
            "# Tiersmith: which fast storage the database beside this file is attached to. Do not edit.\n{VERSION}\n"
        );
        for member in &spec.members {
            text += &format!("member {}\n", escape(member.as_os_str().as_bytes()));
        }
        let mut number = |word: &str, value: Option<u64>| {
            if let Some(value) = value {
                text += &format!("{word} {value}\n");
            }
        };
        number("size", spec.size);
        number("maxsize", spec.max_size);
        number("next", spec.grow_by);
        number("keep", spec.redo_keep_bytes);
        number("block", Some(self.block_size.into()));
        number("emulate", Some(spec.emulate.into()));
        text + &format!("place {}\nend\n", spec.place.word())
    }

    /// Reads the attachment file at `path`, whose contents are `bytes`.
    ///
    /// # Errors
    /// [`PlaceError::Attachment`] for anything that this version would not have written.
    pub(super) fn decode(bytes: &[u8], path: &Path) -> Result<Self, PlaceError> {
        Self::read(bytes).map_err(|why| PlaceError::Attachment { path: path.to_path_buf(), why })
    }

    fn read(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() as u64 > RECORD_MAX {
            return Err(format!("it has {} bytes", bytes.len()));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let without_bars = match lines.next() {
            Some(VERSION) => false,
            Some(VERSION_1) => true,
            first => {
                return Err(format!("it begins with {:?}, not with {VERSION:?}", first.unwrap_or_default()));
            }
        };
        let mut record = Self { spec: FastSpec::default(), block_size: 0, without_bars };
        let (mut place, mut emulate, mut ended) = (None, None, false);
        for line in lines {
            if ended {
                return Err(format!("{line:?} follows its end"));
            }
            let (word, value) = line.split_once(' ').unwrap_or((line, ""));
            let bad = || format!("the line {line:?} cannot be read");
            let number = || value.parse::<u64>().map_err(|_| bad());
            match word {
                "member" => {
                    let path = PathBuf::from(OsString::from_vec(unescape(value).ok_or_else(bad)?));
                    if !path.is_absolute() || path.as_os_str().as_bytes().contains(&0) {
                        return Err(bad());
                    }
                    record.spec.members.push(path);
                }
                "size" => record.spec.size = Some(number()?),
                "maxsize" => record.spec.max_size = Some(number()?),
                "next" => record.spec.grow_by = Some(number()?),
                "keep" => record.spec.redo_keep_bytes = Some(number()?),
                "block" => {
                    let size = u32::try_from(number()?).map_err(|_| bad())?;
                    if !size.is_power_of_two() || !(4096..=32768).contains(&size) {
                        return Err(bad());
                    }
                    (record.block_size, record.spec.block_size) = (size, Some(size));
                }
                "emulate" => emulate = Some(number()? == 1),
                "place" => place = Some(Placement::from_word(value).ok_or_else(bad)?),
                "end" => ended = true,
                _ => return Err(bad()),
            }
        }
        let missing = |what: &str| format!("it has no line `{what}`");
        record.spec.place = place.ok_or_else(|| missing("place"))?;
        record.spec.emulate = emulate.ok_or_else(|| missing("emulate"))?;
        if record.spec.members.is_empty() {
            return Err(missing("member"));
        }
        if record.block_size == 0 {
            return Err(missing("block"));
        }
        if !ended {
            return Err(missing("end"));
        }
        Ok(record)
    }
}

fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'%' | 0..=b' ' | 0x7f.. => text += &format!("%{byte:02x}"),
            plain => text.push(char::from(*plain)),
        }
    }
    text
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let digits = after.get(..2).filter(|d| d.iter().all(u8::is_ascii_hexdigit))?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let spec = FastSpec {
            members: vec!["/mnt/a b%\n".into(), PathBuf::from(OsString::from_vec(b"/\xff\x7f".to_vec()))],
            size: Some(1 << 20),
            max_size: None,
            grow_by: Some(4096),
            emulate: true,
            block_size: Some(8192),
            redo_keep_bytes: Some(0),
            place: Placement::Data,
        };
        Record { spec, block_size: 8192, without_bars: false }
    }

    #[test]
    fn an_attachment_file_of_version_1_is_read_and_known_as_such() {
        let text = record().encode().replace(VERSION, VERSION_1);
        let read = Record::decode(text.as_bytes(), Path::new("x")).unwrap();
        assert_eq!(read, Record { without_bars: true, ..record() });
        assert_eq!(Record::decode(read.encode().as_bytes(), Path::new("x")).unwrap(), record());
    }

    #[test]
    fn an_attachment_file_reads_back_whatever_the_paths_are() {
        assert_eq!(Record::decode(record().encode().as_bytes(), Path::new("x")).unwrap(), record());
    }

    #[test]
    fn a_damaged_attachment_file_is_refused() {
        let text = record().encode();
        for cut in 0..text.len() - 1 {
            assert!(Record::decode(&text.as_bytes()[..cut], Path::new("x")).is_err(), "cut at {cut}");
        }
        for (from, to) in
            [("block 8192", "block 512"), ("place data", "place x"), ("/mnt", "mnt"), ("end", "end\nend")]
        {
            assert!(Record::decode(text.replace(from, to).as_bytes(), Path::new("x")).is_err(), "{from}");
        }
        let message = Record::decode(b"\xff", Path::new("/d/attachment")).unwrap_err().to_string();
        assert!(message.contains("/d/attachment") && message.contains("give fast="), "{message}");
    }

    #[test]
    fn a_stub_has_the_same_lines_whatever_the_paths_are() {
        let lines = |path: &str| {
            let spec = FastSpec { members: vec![format!("/fast{path}").into()], ..FastSpec::default() };
            let text = stub(Path::new(path), Path::new(path), &spec);
            assert!(!text.contains(['\u{1b}', '\r', '\u{85}']), "{text:?}");
            text.lines().count()
        };
        let evil = "/tmp/x\nroot2::0:0::/:/bin/sh\n\u{1b}[2J\r\u{85}.db";
        assert_eq!(lines(evil), lines("/tmp/x.db"));
    }

    #[test]
    fn a_stub_is_never_as_long_as_a_database() {
        for extra in 0..2000 {
            let spec =
                FastSpec { members: vec![format!("/{}", "m".repeat(extra)).into()], ..FastSpec::default() };
            let long = PathBuf::from(format!("/{}", "d".repeat(extra)));
            let text = stub(&long, &long, &spec);
            assert!(may_be_stub(text.len() as u64), "{} bytes", text.len());
            assert!(is_stub(text.as_bytes()));
            assert_ne!(&text.as_bytes()[..16], b"SQLite format 3\0");
        }
    }
}
