//! Sidecars: small text files that say what belongs to what, beside or inside what they speak of.
//!
//! Every note, attachment file, marker and list of Tiersmith's is one. A person who finds it reads
//! TOML below a comment; a program reads all of it or nothing:
//!
//! ```text
//! # What this is, and what not to do with it.
//! kind = "attachment"
//! version = 1
//! ...                              the body: the fields of the caller's type
//! # checksum 0123456789abcdef      XXH3, 64 bits, of all bytes before this line
//! ```
//!
//! A file is refused when it is too long, damaged, edited, or of another kind or version; of
//! another version [`Unfit`] says who can read it. Line ends after the checksum do not count, so
//! that a file may have a fixed length.
//!
//! Invariant: no bytes make the reader panic, and none of what it gives was not covered by the
//! checksum.
//!
//! Deliberately absent: trust. The checksum finds damage; whoever may write in the directory can
//! compute it, so a reader treats what it says as it would words on a command line.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Dir, Owner};

const CHECKSUM: &str = "# checksum ";

/// What all files of one kind have in common.
#[derive(Clone, Copy, Debug)]
pub struct Sidecar {
    /// Tells it from other files. One word.
    pub kind: &'static str,
    /// The version of the body that is written and read.
    pub version: u32,
    /// The comment at its beginning, without `#`; for whoever finds the file.
    pub comment: &'static str,
    /// No sound file is longer, in bytes.
    pub most: u64,
}

/// Why a file is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unfit {
    /// It is whole, as far as one can tell, and another program's.
    OtherVersion(String),
    /// It was damaged or edited, or is something else.
    Damaged(String),
}

impl Unfit {
    /// Of a file in a format that was never released.
    #[must_use]
    pub fn of_development_build() -> Self {
        let why = "is of a development build, before version 1; use the build that wrote it (all \
                   up to commit \
                   ffd5d09 can)";
        Self::OtherVersion(why.to_owned())
    }
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OtherVersion(why) | Self::Damaged(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Unfit {}

impl Sidecar {
    /// The file's text.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] when TOML cannot say the body: a number of 2^63 or more, or
    /// one that would make the file longer than it may be.
    pub fn encode(&self, body: &impl Serialize) -> io::Result<String> {
        let refused = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        let mut text = String::new();
        for line in self.comment.lines() {
            text += &format!("# {line}\n");
        }
        text += &format!("kind = \"{}\"\nversion = {}\n", self.kind, self.version);
        let unsayable =
            |why: String| refused(format!("the {} cannot be written: {why}", self.kind));
        text += &toml::to_string(body).map_err(|e| unsayable(e.to_string()))?;
        // It writes numbers that it does not read.
        text.parse::<toml::Table>().map_err(|e| unsayable(e.message().to_owned()))?;
        let sum = checksum(&text);
        text += &format!("{CHECKSUM}{sum}\n");
        if text.len() as u64 > self.most {
            return Err(refused(format!(
                "the {} would be longer than {} bytes",
                self.kind, self.most
            )));
        }
        Ok(text)
    }

    /// What a file with these bytes says.
    ///
    /// # Errors
    /// [`Unfit`], in words that follow "the file".
    pub fn decode<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, Unfit> {
        let damaged = |why: &str| Unfit::Damaged(why.to_owned());
        if bytes.len() as u64 > self.most {
            return Err(Unfit::Damaged(format!("is longer than {} bytes", self.most)));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("is not text"))?;
        let mut table: toml::Table =
            toml::from_str(text).map_err(|_| damaged("cannot be read as TOML"))?;
        let (kind, version) = (table.remove("kind"), table.remove("version"));
        let (kind, version) =
            (kind.as_ref().and_then(|k| k.as_str()), version.and_then(|v| v.as_integer()));
        // Before the checksum: that of another version may be made in another way.
        match version {
            Some(version) if kind == Some(self.kind) && version != i64::from(self.version) => {
                return Err(Unfit::OtherVersion(format!(
                    "is of version {version}, and this program reads version {}; use the Tiersmith \
                     that wrote it",
                    self.version
                )));
            }
            _ => {}
        }
        let text = text.trim_end_matches('\n');
        let (body, last) = text.split_at(text.rfind('\n').map_or(0, |at| at + 1));
        match last.strip_prefix(CHECKSUM) {
            None if kind == Some(self.kind) => {
                return Err(damaged("has lost its last line, the checksum"));
            }
            None => {
                return Err(damaged(
                    "does not end with a checksum, so this program did not write it",
                ));
            }
            Some(given) if given != checksum(body) => return Err(damaged("was edited or damaged")),
            Some(_) => {}
        }
        match (kind, version) {
            (Some(kind), Some(_)) if kind == self.kind => {}
            (Some(kind), None) if kind == self.kind => {
                return Err(damaged("does not say its version"));
            }
            (Some(kind), _) => {
                return Err(Unfit::Damaged(format!(
                    "is of the kind `{}`, not `{}`",
                    kind.escape_debug(),
                    self.kind
                )));
            }
            (None, _) => {
                return Err(Unfit::of_development_build());
            }
        }
        toml::Value::Table(table).try_into().map_err(|e: toml::de::Error| {
            Unfit::Damaged(format!("does not say what it should: {}", e.message()))
        })
    }

    /// Reads the file `name` of `dir`.
    ///
    /// # Errors
    /// As [`Dir::read`]; [`io::ErrorKind::InvalidData`] with [`Unfit`] inside.
    pub fn read<T: DeserializeOwned>(&self, dir: &Dir, name: impl AsRef<OsStr>) -> io::Result<T> {
        let bytes = dir.read(name, self.most)?;
        self.decode(&bytes).map_err(|unfit| io::Error::new(io::ErrorKind::InvalidData, unfit))
    }

    /// Puts the file at `name` of `dir`, all or nothing, in place of what is there.
    ///
    /// # Errors
    /// As [`Sidecar::encode`] and [`Dir::replace`].
    ///
    /// # Durability
    /// Durable on return.
    pub fn replace(
        &self,
        dir: &Dir,
        name: impl AsRef<OsStr>,
        body: &impl Serialize,
        mode: u32,
        owner: Option<Owner>,
    ) -> io::Result<()> {
        dir.replace(name, self.encode(body)?.as_bytes(), mode, owner)
    }
}

fn checksum(text: &str) -> String {
    format!("{:016x}", xxhash_rust::xxh3::xxh3_64(text.as_bytes()))
}

/// A number of 64 bits in a sidecar, as text. TOML's own numbers end at 2^63; inode numbers, which
/// some file systems make of a hash, do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberText(pub u64);

impl Serialize for NumberText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0.to_string())
    }
}

impl<'de> Deserialize<'de> for NumberText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map(Self).map_err(|_| D::Error::custom("a number that is none of 64 bits"))
    }
}

/// A path in a sidecar: text as it is, but for `%`, and for bytes that are no text: those are
/// `%xx`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathText(pub PathBuf);

impl From<&Path> for PathText {
    fn from(path: &Path) -> Self {
        Self(path.to_path_buf())
    }
}

impl Serialize for PathText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut text = String::new();
        for chunk in self.0.as_os_str().as_bytes().utf8_chunks() {
            text += &chunk.valid().replace('%', "%25");
            for byte in chunk.invalid() {
                let _ = write!(text, "%{byte:02x}");
            }
        }
        to.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for PathText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let mut parts = text.split('%');
        let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
        for part in parts {
            let byte = part.get(..2).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
            let byte = byte.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            bytes.push(
                byte.ok_or_else(|| D::Error::custom("a path with `%` and no two digits after it"))?,
            );
            bytes.extend_from_slice(&part.as_bytes()[2..]);
        }
        if bytes.contains(&0) {
            return Err(D::Error::custom("a path with a zero byte"));
        }
        Ok(Self(PathBuf::from(OsString::from_vec(bytes))))
    }
}
