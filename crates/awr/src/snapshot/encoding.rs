//! The text form of a snapshot: one JSON object that says what it is and carries a checksum of its
//! body.
//!
//! ```text
//! {"kind":"tiersmith snapshot","format":1,"xxh3":"0123456789abcdef","snapshot":{...}}
//! ```
//!
//! | field | meaning |
//! |---|---|
//! | `kind` | always `tiersmith snapshot`, so that other JSON is told apart |
//! | `format` | 1. A program refuses a format it does not know |
//! | `xxh3` | XXH3 (64 bits, sixteen hexadecimal digits) of the bytes of the body as they stand in the file |
//! | `snapshot` | the body: the fields of [`Snapshot`], times in nanoseconds, sizes in bytes |
//!
//! Invariant: a text in which one byte was changed or the end is missing is refused, with the place
//! and what to do; no text makes the reader panic. Once format 1 is released, a changed field of
//! the body means a new format number.
//!
//! Deliberately absent: compression, and reading formats of other programs.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_64;

use crate::{Error, Result, Snapshot};

/// The format this program writes and reads.
pub const FORMAT: u32 = 1;

const KIND: &str = "tiersmith snapshot";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File<'a> {
    kind: &'a str,
    format: u64,
    xxh3: &'a str,
    #[serde(borrow)]
    snapshot: &'a RawValue,
}

impl Snapshot {
    /// The text form, on one line.
    pub fn to_json(&self) -> String {
        let body = serde_json::to_string(self)
            .expect("BUG: a snapshot has no maps with keys that are not strings");
        let xxh3 = checksum(&body);
        let snapshot: &RawValue =
            serde_json::from_str(&body).expect("BUG: what was written as JSON reads as JSON");
        let file = File { kind: KIND, format: u64::from(FORMAT), xxh3: &xxh3, snapshot };
        let mut text = serde_json::to_string(&file)
            .expect("BUG: four fields of text and numbers write as JSON");
        text.push('\n');
        text
    }

    /// Reads the text form. `place` says in errors where the text came from.
    ///
    /// # Errors
    /// If the text is not a snapshot, is of another format, or is damaged.
    pub fn from_json(text: &str, place: &str) -> Result<Snapshot> {
        let foreign = |reason: String| Error::Foreign { place: place.to_owned(), reason };
        let damaged = |reason: String| Error::Damaged { place: place.to_owned(), reason };
        let file: File<'_> = serde_json::from_str(text).map_err(|error| {
            let begins_like_one = text.trim_start().starts_with(&format!("{{\"kind\":\"{KIND}\""));
            if begins_like_one { damaged(error.to_string()) } else { foreign(error.to_string()) }
        })?;
        if file.kind != KIND {
            return Err(foreign(format!(
                "its kind is `{}`, not `{KIND}`",
                file.kind.escape_default()
            )));
        }
        if file.format != u64::from(FORMAT) {
            return Err(Error::Format {
                place: place.to_owned(),
                found: file.format,
                known: FORMAT,
            });
        }
        let body = file.snapshot.get();
        let found = checksum(body);
        if found != file.xxh3 {
            let recorded = file.xxh3.escape_default();
            return Err(damaged(format!(
                "the checksum of its body is {found}, the file says {recorded}"
            )));
        }
        let snapshot: Snapshot =
            serde_json::from_str(body).map_err(|error| damaged(error.to_string()))?;
        snapshot.check().map_err(damaged)?;
        Ok(snapshot)
    }
}

fn checksum(body: &str) -> String {
    format!("{:016x}", xxh3_64(body.as_bytes()))
}
