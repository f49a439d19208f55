//! Redis's dump files (RDB), as versions 5 to 11 have them: what `tiersmith kv import` reads, and
//! what a primary sends first. `write.rs` writes them, for `tiersmith kv export`. DUMP and RESTORE
//! have one value in the same form.
//!
//! The bytes are somebody else's: every length is checked before it is believed, memory is taken as
//! bytes arrive, up to a budget ([`Limits`]), because a few bytes can unpack to gigabytes; and what
//! cannot be kept here (modules) is an error that names the key, never left
//! out. The caller gets keys one by one, before the checksum at the end is known.
//!
//! Deliberately absent: what is older than Redis 2.6 (zipmaps).

mod budget;
mod packed;
mod stream;
mod write;

pub use budget::Limits;
pub(crate) use packed::{packed_number, packed_string};
pub use stream::{Stream, StreamEntry, StreamGroup, StreamPending};
pub(crate) use write::dump_libraries;
pub use write::{Writer, dump};

use std::collections::HashSet;
use std::io::Read;

use crc::{CRC_64_REDIS, Crc, Digest};

use crate::format::DATABASE_COUNT;
use crate::format::entry::LENGTH_MAX;
use budget::Budget;

static CRC: Crc<u64> = Crc::<u64>::new(&CRC_64_REDIS);

/// Versions that are read.
const VERSIONS: std::ops::RangeInclusive<u32> = 5..=11;

/// Bytes of a value.
pub type Bytes = Vec<u8>;

/// A value of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A string.
    String(Bytes),
    /// A list.
    List(Vec<Bytes>),
    /// A set; no member is there twice.
    Set(Vec<Bytes>),
    /// A hash; no field is there twice.
    Hash(Vec<(Bytes, Bytes)>),
    /// A sorted set; no member is there twice. In no order.
    Sorted(Vec<(Bytes, f64)>),
    /// A stream.
    Stream(Stream),
    /// No value of a key, but a library of functions, whose name is where a key would be.
    Library(Bytes),
}

/// A key.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// The number of its database.
    pub db: u64,
    /// The key.
    pub key: Bytes,
    /// The value.
    pub content: Content,
    /// When it expires, in milliseconds since 1970.
    pub expires: Option<u64>,
}

/// Why a dump cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes do not come.
    #[error("cannot read the dump at byte {at}: {source}")]
    Io {
        /// Where.
        at: u64,
        /// Why not.
        source: std::io::Error,
    },
    /// They mean nothing.
    #[error("the dump is damaged at byte {at}: {what}; make a new one")]
    Damaged {
        /// Where.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// They mean something that is not there.
    #[error(
        "the dump has {what}, which this server does not keep; nothing of it is left out silently: \
         remove that first"
    )]
    Unsupported {
        /// What.
        what: String,
    },
    /// A value takes too much memory.
    #[error(
        "the value of key \"{key}\" takes more than {limit} bytes of memory while it is read, \
         which is the \
         most for this tier; take a larger tier (--size), or remove the key first"
    )]
    LargeValue {
        /// The key.
        key: String,
        /// The most.
        limit: u64,
    },
    /// All values together take too much.
    #[error(
        "the dump unpacks to more than {limit} bytes, several times what the tier holds; take a \
         larger tier \
         (--size)"
    )]
    LargeDump {
        /// The most.
        limit: u64,
    },
    /// Who takes the keys wants no more.
    #[error("{0}")]
    Refused(String),
}

struct Source<'a, R> {
    from: &'a mut R,
    at: u64,
    digest: Digest<'static, u64>,
    budget: Budget,
}

impl<R: Read> Source<'_, R> {
    fn damaged<T>(&self, what: &'static str) -> Result<T, Error> {
        Err(Error::Damaged { at: self.at, what })
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).map_err(|source| Error::Io { at: self.at, source })?;
        self.digest.update(&bytes);
        self.at += N as u64;
        Ok(bytes)
    }

    fn byte(&mut self) -> Result<u8, Error> {
        Ok(self.bytes::<1>()?[0])
    }

    /// Bytes of a length that may be a lie: memory is taken as they come.
    fn some(&mut self, len: u64) -> Result<Bytes, Error> {
        if len > LENGTH_MAX {
            return self.damaged("a string is longer than 512 MiB");
        }
        let mut bytes = Vec::new();
        let got = self.from.by_ref().take(len).read_to_end(&mut bytes);
        let got = got.map_err(|source| Error::Io { at: self.at, source })?;
        if got as u64 != len {
            let source = std::io::ErrorKind::UnexpectedEof.into();
            return Err(Error::Io { at: self.at, source });
        }
        self.digest.update(&bytes);
        self.at += len;
        Ok(bytes)
    }

    /// A length, or the number of a special form.
    fn length_or_form(&mut self) -> Result<Result<u64, u8>, Error> {
        let first = self.byte()?;
        Ok(match (first >> 6, first) {
            (0, _) => Ok(u64::from(first)),
            (1, _) => Ok(u64::from(first & 63) << 8 | u64::from(self.byte()?)),
            (2, 0x80) => Ok(number(&self.bytes::<4>()?)),
            (2, 0x81) => Ok(number(&self.bytes::<8>()?)),
            (2, _) => return self.damaged("a length of an unknown form"),
            _ => Err(first & 63),
        })
    }

    fn length(&mut self) -> Result<u64, Error> {
        match self.length_or_form()? {
            Ok(length) => Ok(length),
            Err(_) => self.damaged("a string where a length should be"),
        }
    }

    fn string(&mut self) -> Result<Bytes, Error> {
        let whole = |number: i64| Ok(number.to_string().into_bytes());
        match self.length_or_form()? {
            Ok(len) => self.some(len),
            Err(0) => whole(self.byte()?.cast_signed().into()),
            Err(1) => whole(i16::from_le_bytes(self.bytes()?).into()),
            Err(2) => whole(i32::from_le_bytes(self.bytes()?).into()),
            Err(3) => {
                let (packed, len) = (self.length()?, self.length()?);
                let packed = self.some(packed)?;
                if len > LENGTH_MAX {
                    return self.damaged("a string is longer than 512 MiB");
                }
                if self.budget.unpack(len).is_none() {
                    return self.damaged("a value takes too much memory");
                }
                match packed::lzf(&packed, len as usize) {
                    Some(bytes) => Ok(bytes),
                    None => self.damaged("a compressed string does not unpack"),
                }
            }
            Err(_) => self.damaged("a string of an unknown form"),
        }
    }

    /// A string that is an element of a value.
    fn element(&mut self) -> Result<Bytes, Error> {
        let bytes = self.string()?;
        match self.budget.element(bytes.len()) {
            Some(()) => Ok(bytes),
            None => self.damaged("a value takes too much memory"),
        }
    }

    fn strings(&mut self) -> Result<Vec<Bytes>, Error> {
        (0..self.length()?).map(|_| self.element()).collect()
    }

    /// A score as text.
    fn score(&mut self) -> Result<f64, Error> {
        match self.byte()? {
            253 => Ok(f64::NAN),
            254 => Ok(f64::INFINITY),
            255 => Ok(f64::NEG_INFINITY),
            len => {
                let text = self.some(len.into())?;
                crate::number::float(&text).map_or_else(|| self.damaged("a score is no number"), Ok)
            }
        }
    }

    /// What `read` makes of a string that holds a whole value.
    fn unpacked(
        &mut self,
        read: fn(&[u8], &mut Budget) -> Option<Vec<Bytes>>,
    ) -> Result<Vec<Bytes>, Error> {
        let bytes = self.string()?;
        read(&bytes, &mut self.budget)
            .map_or_else(|| self.damaged("a packed value contradicts itself"), Ok)
    }

    fn pairs(&self, all: Vec<Bytes>) -> Result<Vec<(Bytes, Bytes)>, Error> {
        if !all.len().is_multiple_of(2) {
            return self.damaged("a field without a value");
        }
        let mut all = all.into_iter();
        let mut pairs = Vec::new();
        while let (Some(one), Some(other)) = (all.next(), all.next()) {
            pairs.push((one, other));
        }
        Ok(pairs)
    }

    fn sorted(&self, all: Vec<Bytes>) -> Result<Content, Error> {
        let scored = |(member, score): (Bytes, Bytes)| match crate::number::float(&score) {
            Some(score) => Ok((member, score)),
            None => self.damaged("a score is no number"),
        };
        Ok(Content::Sorted(self.pairs(all)?.into_iter().map(scored).collect::<Result<_, _>>()?))
    }

    /// A library of functions.
    fn library(&mut self) -> Result<Item, Error> {
        let text = self.string();
        self.budget.within(b"a library of functions")?;
        let text = text?;
        let Some(key) = crate::library::name_of(&text) else {
            return self.damaged("a library of functions does not say its name");
        };
        Ok(Item { db: 0, key, content: Content::Library(text), expires: None })
    }

    fn content(&mut self, kind: u8, key: &[u8]) -> Result<Content, Error> {
        let content = match kind {
            0 => Content::String(self.string()?),
            1 => Content::List(self.strings()?),
            2 => Content::Set(self.strings()?),
            3 | 5 => {
                let mut all = Vec::new();
                for _ in 0..self.length()? {
                    let member = self.element()?;
                    let score =
                        if kind == 5 { f64::from_le_bytes(self.bytes()?) } else { self.score()? };
                    all.push((member, score));
                }
                Content::Sorted(all)
            }
            4 => {
                let mut all = Vec::new();
                for _ in 0..self.length()? {
                    all.push((self.element()?, self.element()?));
                }
                Content::Hash(all)
            }
            10 => Content::List(self.unpacked(packed::ziplist)?),
            11 => Content::Set(self.unpacked(packed::intset)?),
            12 => {
                let all = self.unpacked(packed::ziplist)?;
                self.sorted(all)?
            }
            13 => {
                let all = self.unpacked(packed::ziplist)?;
                Content::Hash(self.pairs(all)?)
            }
            14 => {
                let mut all = Vec::new();
                for _ in 0..self.length()? {
                    all.extend(self.unpacked(packed::ziplist)?);
                }
                Content::List(all)
            }
            16 => {
                let all = self.unpacked(packed::listpack)?;
                Content::Hash(self.pairs(all)?)
            }
            17 => {
                let all = self.unpacked(packed::listpack)?;
                self.sorted(all)?
            }
            18 => {
                let mut all = Vec::new();
                for _ in 0..self.length()? {
                    match self.length()? {
                        1 => all.push(self.element()?),
                        2 => all.extend(self.unpacked(packed::listpack)?),
                        _ => return self.damaged("a part of a list of an unknown form"),
                    }
                }
                Content::List(all)
            }
            20 => Content::Set(self.unpacked(packed::listpack)?),
            15 | 19 | 21 => Content::Stream(self.stream(kind)?),
            other => return Err(unsupported(other, key)),
        };
        self.sound(content)
    }

    /// A value as a server can have one: nothing twice, not empty, no score that is no number.
    fn sound(&self, content: Content) -> Result<Content, Error> {
        fn all_differ<'a>(names: impl Iterator<Item = &'a Bytes>) -> bool {
            let mut seen = HashSet::new();
            names.into_iter().all(|name| seen.insert(name))
        }
        let (empty, differ) = match &content {
            Content::String(_) | Content::Stream(_) | Content::Library(_) => (false, true),
            Content::List(all) => (all.is_empty(), true),
            Content::Set(all) => (all.is_empty(), all_differ(all.iter())),
            Content::Hash(all) => (all.is_empty(), all_differ(all.iter().map(|(name, _)| name))),
            Content::Sorted(all) => {
                if all.iter().any(|(_, score)| score.is_nan()) {
                    return self.damaged("a score is no number");
                }
                (all.is_empty(), all_differ(all.iter().map(|(name, _)| name)))
            }
        };
        match (empty, differ) {
            (true, _) => self.damaged("a value without elements"),
            (_, false) => self.damaged("a member or field is there twice"),
            _ => Ok(content),
        }
    }
}

fn unsupported(kind: u8, key: &[u8]) -> Error {
    let what = match kind {
        6 | 7 => "a value of a module",
        _ => "a value of a type that Redis 7.0 does not have",
    };
    let key = String::from_utf8_lossy(&key[..key.len().min(64)]);
    Error::Unsupported { what: format!("{what} (key \"{}\")", key.escape_debug()) }
}

/// What is wrong with bytes that are no dump of a value or of libraries.
pub(crate) const UNSIGNED: &str = "its version or its checksum is another one, or it is too short";
/// What is wrong with a dump of libraries that has something else.
pub(crate) const NO_FUNCTION: &str = "given type is not a function";
/// What comes before a library of functions.
const FUNCTION: u8 = 0xf5;

/// Reads what FUNCTION DUMP gives: the libraries, `most` at most, which nobody has compiled.
///
/// # Errors
/// What is wrong with the bytes.
pub(crate) fn libraries(bytes: &[u8], limits: Limits, most: usize) -> Result<Vec<Item>, Error> {
    let mut value = signed(bytes)?;
    let end = value.len() as u64;
    let mut source =
        Source { from: &mut value, at: 0, digest: CRC.digest(), budget: Budget::new(limits) };
    let mut all = Vec::new();
    while source.at < end {
        if source.byte()? != FUNCTION {
            return source.damaged(NO_FUNCTION);
        }
        if all.len() == most {
            return source.damaged("there are too many libraries of functions");
        }
        source.budget.next_value();
        all.push(source.library()?);
    }
    Ok(all)
}

/// What version and checksum at the end of these bytes are about, if they are right.
fn signed(bytes: &[u8]) -> Result<&[u8], Error> {
    let unsigned = |at: usize| Err(Error::Damaged { at: at as u64, what: UNSIGNED });
    let Some((signed, sum)) = bytes.split_last_chunk::<8>() else { return unsigned(0) };
    let Some((value, version)) = signed.split_last_chunk::<2>() else { return unsigned(0) };
    if !VERSIONS.contains(&u16::from_le_bytes(*version).into()) {
        return unsigned(value.len());
    }
    let sum = u64::from_le_bytes(*sum);
    if sum != 0 && sum != CRC.checksum(signed) {
        return unsigned(signed.len());
    }
    Ok(value)
}

/// The most significant byte first.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Reads a dump to its end and gives each key to `each`; how many there were.
///
/// # Errors
/// What is wrong with the bytes, or what `each` says. Keys may have been given before.
pub fn read<R: Read>(
    from: &mut R,
    limits: Limits,
    each: impl FnMut(Item) -> Result<(), String>,
) -> Result<u64, Error> {
    read_copy(from, limits, each).map(|read| read.count)
}

/// What a dump said beside its keys.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Whole {
    count: u64,
    /// The database that the stream behind a primary's copy has selected.
    pub(crate) stream_db: u8,
}

/// [`read`] of a primary's copy.
pub(crate) fn read_copy<R: Read>(
    from: &mut R,
    limits: Limits,
    mut each: impl FnMut(Item) -> Result<(), String>,
) -> Result<Whole, Error> {
    let mut stream_db = 0;
    let mut source = Source { from, at: 0, digest: CRC.digest(), budget: Budget::new(limits) };
    let head = source.bytes::<9>()?;
    let version = head.strip_prefix(b"REDIS").and_then(|digits| std::str::from_utf8(digits).ok());
    let Some(version) = version.and_then(|digits| digits.parse::<u32>().ok()) else {
        return source.damaged("it does not begin as a dump of Redis does");
    };
    if !VERSIONS.contains(&version) {
        return Err(Error::Unsupported { what: format!("the format of version {version}") });
    }
    let (mut db, mut expires, mut count) = (0, None, 0);
    loop {
        match source.byte()? {
            // Facts about the server that wrote it.
            0xfa => {
                let (name, value) = (source.string()?, source.string()?);
                if name == b"repl-stream-db" {
                    let db = std::str::from_utf8(&value).ok().and_then(|db| db.parse::<u8>().ok());
                    stream_db = db.filter(|db| *db < DATABASE_COUNT).unwrap_or(0);
                }
            }
            0xfb => {
                source.length()?;
                source.length()?;
            }
            0xfe => db = source.length()?,
            0xfd => expires = Some(u64::from(u32::from_le_bytes(source.bytes()?)) * 1000),
            0xfc => expires = Some(u64::from_le_bytes(source.bytes()?)),
            // When it was used last, and how often.
            0xf8 => {
                source.length()?;
            }
            0xf9 => {
                source.byte()?;
            }
            FUNCTION => {
                source.budget.next_value();
                let item = source.library()?;
                each(item).map_err(Error::Refused)?;
            }
            0xf6 => {
                let what = "functions as a release candidate of Redis 7.0 wrote them".to_owned();
                return Err(Error::Unsupported { what });
            }
            0xf7 => return Err(Error::Unsupported { what: "data of a module".to_owned() }),
            0xff => break,
            kind => {
                let key = source.string()?;
                source.budget.next_value();
                let content = source.content(kind, &key);
                source.budget.within(&key)?;
                let content = content?;
                let item = Item { db, key, content, expires: expires.take() };
                each(item).map_err(Error::Refused)?;
                count += 1;
            }
        }
    }
    let computed = source.digest.clone().finalize();
    let written = u64::from_le_bytes(source.bytes()?);
    // Redis writes 0 where it was told to compute none.
    if written != 0 && written != computed {
        return source.damaged("its checksum is another one");
    }
    Ok(Whole { count, stream_db })
}

/// Reads a value as DUMP gives it; its key is for messages.
///
/// # Errors
/// What is wrong with the bytes.
pub fn restore(bytes: &[u8], key: &[u8], limits: Limits) -> Result<Content, Error> {
    let mut value = signed(bytes)?;
    let end = value.len() as u64;
    let mut source =
        Source { from: &mut value, at: 0, digest: CRC.digest(), budget: Budget::new(limits) };
    let kind = source.byte()?;
    let content = source.content(kind, key);
    source.budget.within(key)?;
    let content = content?;
    match source.at == end {
        true => Ok(content),
        false => source.damaged("something follows the value"),
    }
}
