//! The two texts that say a database is attached: the stub at its path, and the attachment file in
//! its directory.
//!
//! The **stub** is what a program finds that opens the database's path without Tiersmith: a text
//! for people, shorter than a page, that does not begin like a database. SQLite answers "file is
//! not a database". Its length is never a multiple of 512, the smallest page, so that a stub can be
//! told from a database by its size alone, before anything is opened (closing a file drops the
//! locks this process's stock connections have on it).
//!
//! The stub is no [`Sidecar`]: it stands where a database is looked for, must begin with words and
//! not with a key, and says nothing that a program reads.
//!
//! The **attachment file** is one. It has the tier's members and how they were attached, so that
//! later opens need no `fast=`. What belongs to the tier (its identity, its length, which home it
//! has) is on the tier and in the store's note, not here.
//!
//! Invariant: what is read was written whole: both are written under another name, synced and
//! renamed.

use super::spec::{FastSpec, Placement};
use crate::error::PlaceError;
use serde::{Deserialize, Serialize};
use std::path::Path;
use tiersmith_dir::{PathText, Sidecar, Unfit};

/// The stub's first bytes.
const STUB: &str = "This SQLite database is attached to Tiersmith.";
/// The stub is shorter.
pub(super) const STUB_MAX: u64 = 4096;
/// The attachment file.
pub(super) const RECORD: Sidecar = Sidecar {
    kind: "sqlite-attachment",
    version: 1,
    comment: "Tiersmith: which fast storage the database beside this file is attached to. Do not \
              edit.",
    most: 1 << 20,
};

/// A line of it that development builds wrote.
const DEVELOPMENT: &[u8] = b"tiersmith-sqlite-attachment ";

/// What the attachment file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// How it was attached, the block size decided.
    pub(super) spec: FastSpec,
    /// Block size of the database file in bytes.
    pub(super) block_size: u32,
}

/// The attachment file's body.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    members: Vec<PathText>,
    size: Option<u64>,
    max_size: Option<u64>,
    grow_by: Option<u64>,
    redo_keep_bytes: Option<u64>,
    block_size: u32,
    emulate: bool,
    /// Not there: no.
    #[serde(default)]
    flash: bool,
    place: String,
}

/// The stub's text for the database `name`, whose directory beside it is `home`.
pub(super) fn stub(database: &Path, home: &Path, spec: &FastSpec) -> String {
    let short =
        |text: String| if text.len() > 800 { format!("{}...", cut(&text, 800)) } else { text };
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
    let plain =
        |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
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
    /// The attachment file's text.
    ///
    /// # Errors
    /// A size that it cannot say.
    pub(super) fn encode(&self) -> std::io::Result<String> {
        let spec = &self.spec;
        RECORD.encode(&Body {
            members: spec.members.iter().map(|member| member.as_path().into()).collect(),
            size: spec.size,
            max_size: spec.max_size,
            grow_by: spec.grow_by,
            redo_keep_bytes: spec.redo_keep_bytes,
            block_size: self.block_size,
            emulate: spec.emulate,
            flash: spec.flash,
            place: spec.place.word().into(),
        })
    }

    /// Reads the attachment file at `path`, whose contents are `bytes`.
    ///
    /// # Errors
    /// [`PlaceError::Attachment`] and [`PlaceError::OtherVersion`] for anything that this version
    /// would not have written.
    pub(super) fn decode(bytes: &[u8], path: &Path) -> Result<Self, PlaceError> {
        Self::read(bytes).map_err(|unfit| PlaceError::unfit(path, unfit))
    }

    fn read(bytes: &[u8]) -> Result<Self, Unfit> {
        let body: Body = RECORD.decode(bytes).map_err(|unfit| {
            let development =
                bytes.split(|b| *b == b'\n').any(|line| line.starts_with(DEVELOPMENT));
            if development { Unfit::of_development_build() } else { unfit }
        })?;
        let bad = |what: &str| Unfit::Damaged(format!("has {what}"));
        let members: Vec<_> = body.members.into_iter().map(|PathText(path)| path).collect();
        if members.is_empty() || members.iter().any(|member| !member.is_absolute()) {
            return Err(bad("no members, or one whose path is not absolute"));
        }
        if !body.block_size.is_power_of_two() || !(4096..=32768).contains(&body.block_size) {
            return Err(bad("a block size that is none"));
        }
        let spec = FastSpec {
            members,
            size: body.size,
            max_size: body.max_size,
            grow_by: body.grow_by,
            redo_keep_bytes: body.redo_keep_bytes,
            block_size: Some(body.block_size),
            emulate: body.emulate,
            flash: body.flash,
            place: Placement::from_word(&body.place)
                .ok_or_else(|| bad("a placement that is none"))?,
        };
        Ok(Self { spec, block_size: body.block_size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    use std::path::PathBuf;

    fn record() -> Record {
        let spec = FastSpec {
            members: vec![
                "/mnt/a b%\n".into(),
                PathBuf::from(OsString::from_vec(b"/\xff\x7f".to_vec())),
            ],
            size: Some(1 << 20),
            max_size: None,
            grow_by: Some(4096),
            emulate: true,
            flash: false,
            block_size: Some(8192),
            redo_keep_bytes: Some(0),
            place: Placement::Data,
        };
        Record { spec, block_size: 8192 }
    }

    #[test]
    fn an_attachment_file_reads_back_whatever_the_paths_are() {
        assert_eq!(
            Record::decode(record().encode().unwrap().as_bytes(), Path::new("x")).unwrap(),
            record()
        );
    }

    #[test]
    fn a_damaged_attachment_file_is_refused() {
        let text = record().encode().unwrap();
        for cut in 0..text.len() - 1 {
            assert!(
                Record::decode(&text.as_bytes()[..cut], Path::new("x")).is_err(),
                "cut at {cut}"
            );
        }
        // What a program could have written that is not this one.
        for wrong in [
            Record { block_size: 512, ..record() },
            Record { spec: FastSpec { members: vec!["mnt".into()], ..record().spec }, ..record() },
            Record { spec: FastSpec { members: Vec::new(), ..record().spec }, ..record() },
        ] {
            assert!(
                Record::decode(wrong.encode().unwrap().as_bytes(), Path::new("x")).is_err(),
                "{wrong:?}"
            );
        }
        let message = Record::decode(b"\xff", Path::new("/d/attachment")).unwrap_err().to_string();
        assert!(message.contains("/d/attachment") && message.contains("give fast="), "{message}");
    }

    #[test]
    fn a_stub_has_the_same_lines_whatever_the_paths_are() {
        let lines = |path: &str| {
            let spec =
                FastSpec { members: vec![format!("/fast{path}").into()], ..FastSpec::default() };
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
            let spec = FastSpec {
                members: vec![format!("/{}", "m".repeat(extra)).into()],
                ..FastSpec::default()
            };
            let long = PathBuf::from(format!("/{}", "d".repeat(extra)));
            let text = stub(&long, &long, &spec);
            assert!(may_be_stub(text.len() as u64), "{} bytes", text.len());
            assert!(is_stub(text.as_bytes()));
            assert_ne!(&text.as_bytes()[..16], b"SQLite format 3\0");
        }
    }
}
