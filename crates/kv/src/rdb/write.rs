//! Writing: dump files of version 9, which Redis reads from 5.0 on, and Valkey; and single values,
//! as DUMP gives them. A stream is of the type that Redis reads from 7.0 on.
//!
//! Every value is written in its plainest form, one string an element: whoever reads it packs it as
//! it likes. Nothing is compressed.

use std::io::{self, Write};

use crc::Digest;

use super::{CRC, Content, FUNCTION, Item};

/// The version that is written.
const VERSION: u16 = 9;
/// The same of libraries of functions, which Redis has since then.
const LIBRARIES_VERSION: u16 = 10;
/// Types of values.
mod kind {
    pub(super) const STRING: u8 = 0;
    pub(super) const LIST: u8 = 1;
    pub(super) const SET: u8 = 2;
    pub(super) const HASH: u8 = 4;
    /// With scores of 8 bytes.
    pub(super) const SORTED: u8 = 5;
    /// With what Redis knows since 7.0.
    pub(super) const STREAM: u8 = 19;
}

/// A writer of a dump file.
pub struct Writer<W> {
    to: W,
    digest: Digest<'static, u64>,
    db: Option<u64>,
}

impl<W> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("db", &self.db).finish_non_exhaustive()
    }
}

impl<W: Write> Writer<W> {
    /// Begins a dump.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn begin(to: W) -> io::Result<Writer<W>> {
        let mut writer = Writer { to, digest: CRC.digest(), db: None };
        writer.put(format!("REDIS{VERSION:04}").as_bytes())?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digest.update(bytes);
        self.to.write_all(bytes)
    }

    /// Writes what is known beside the keys; who does not know the name leaves it out.
    ///
    /// # Errors
    /// Those of the writer.
    pub(crate) fn note(&mut self, name: &str, value: &str) -> io::Result<()> {
        let mut bytes = vec![0xfa];
        string(name.as_bytes(), &mut bytes);
        string(value.as_bytes(), &mut bytes);
        self.put(&bytes)
    }

    /// Writes a key. Keys of one database come one after the other.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn item(&mut self, item: &Item) -> io::Result<()> {
        let mut bytes = Vec::new();
        if let Content::Library(text) = &item.content {
            library(text, &mut bytes);
            return self.put(&bytes);
        }
        if self.db != Some(item.db) {
            self.db = Some(item.db);
            bytes.push(0xfe);
            length(item.db, &mut bytes);
        }
        if let Some(expires) = item.expires {
            bytes.push(0xfc);
            bytes.extend_from_slice(&expires.to_le_bytes());
        }
        bytes.push(kind_of(&item.content));
        string(&item.key, &mut bytes);
        self.put(&bytes)?;
        content(&item.content, &mut |bytes| self.put(bytes))
    }

    /// Ends the dump.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn end(mut self) -> io::Result<W> {
        self.put(&[0xff])?;
        let sum = self.digest.finalize();
        self.to.write_all(&sum.to_le_bytes())?;
        self.to.flush()?;
        Ok(self.to)
    }
}

/// A dump that is sent in parts.
impl Writer<Vec<u8>> {
    /// Bytes that were not taken yet.
    pub(crate) fn len(&self) -> usize {
        self.to.len()
    }

    /// Takes what was written.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.to)
    }

    /// Ends the dump, and takes what was not taken yet.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        self.digest.update(&[0xff]);
        self.to.push(0xff);
        let sum = std::mem::replace(&mut self.digest, CRC.digest()).finalize();
        self.to.extend_from_slice(&sum.to_le_bytes());
        self.take()
    }
}

/// Libraries of functions as FUNCTION DUMP gives them, which is as Redis 7.0 does: an older one has
/// no functions.
pub(crate) fn dump_libraries<'a>(texts: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    texts.for_each(|text| library(text, &mut bytes));
    sign(&mut bytes, LIBRARIES_VERSION);
    bytes
}

fn library(text: &[u8], into: &mut Vec<u8>) {
    into.push(FUNCTION);
    string(text, into);
}

/// Puts version and checksum behind bytes.
fn sign(bytes: &mut Vec<u8>, version: u16) {
    bytes.extend_from_slice(&version.to_le_bytes());
    let sum = CRC.checksum(bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
}

/// A value as DUMP gives it: type, value, version, checksum.
pub fn dump(value: &Content) -> Vec<u8> {
    let mut bytes = vec![kind_of(value)];
    let done = content(value, &mut |part| {
        bytes.extend_from_slice(part);
        Ok(())
    });
    debug_assert!(done.is_ok(), "BUG: memory cannot be written");
    sign(&mut bytes, VERSION);
    bytes
}

fn kind_of(content: &Content) -> u8 {
    match content {
        // Of a library nobody asks: it is no key's.
        Content::String(_) | Content::Library(_) => kind::STRING,
        Content::List(_) => kind::LIST,
        Content::Set(_) => kind::SET,
        Content::Hash(_) => kind::HASH,
        Content::Sorted(_) => kind::SORTED,
        Content::Stream(_) => kind::STREAM,
    }
}

pub(super) fn length(length: u64, into: &mut Vec<u8>) {
    match (u8::try_from(length), u32::try_from(length)) {
        (Ok(short @ 0..64), _) => into.push(short),
        (_, Ok(long @ 0..0x4000)) => into.extend([0x40 | (long >> 8) as u8, long as u8]),
        (_, Ok(long)) => {
            into.push(0x80);
            // The most significant byte first.
            into.extend((0..4).rev().map(|byte| (long >> (byte * 8)) as u8));
        }
        _ => {
            into.push(0x81);
            into.extend((0..8).rev().map(|byte| (length >> (byte * 8)) as u8));
        }
    }
}

pub(super) fn string(bytes: &[u8], into: &mut Vec<u8>) {
    length(bytes.len() as u64, into);
    into.extend_from_slice(bytes);
}

/// Writes a value in parts.
fn content(value: &Content, put: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut count = Vec::new();
    let mut each = |part: &mut dyn FnMut(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        part(&mut bytes);
        put(&bytes)
    };
    match value {
        Content::String(value) | Content::Library(value) => each(&mut |bytes| string(value, bytes)),
        Content::Stream(all) => super::stream::write(all, put),
        Content::List(all) | Content::Set(all) => {
            length(all.len() as u64, &mut count);
            each(&mut |bytes| bytes.extend_from_slice(&count))?;
            all.iter().try_for_each(|one| each(&mut |bytes| string(one, bytes)))
        }
        Content::Hash(all) => {
            length(all.len() as u64, &mut count);
            each(&mut |bytes| bytes.extend_from_slice(&count))?;
            all.iter().try_for_each(|(field, value)| {
                each(&mut |bytes| {
                    string(field, bytes);
                    string(value, bytes);
                })
            })
        }
        Content::Sorted(all) => {
            length(all.len() as u64, &mut count);
            each(&mut |bytes| bytes.extend_from_slice(&count))?;
            all.iter().try_for_each(|(member, score)| {
                each(&mut |bytes| {
                    string(member, bytes);
                    bytes.extend_from_slice(&score.to_le_bytes());
                })
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, read};
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let limits = Limits { value: 1 << 30, file: 1 << 30 };
        let texts = |lens: &[usize]| lens.iter().map(|len| vec![b'x'; *len]).collect::<Vec<_>>();
        let many: Vec<_> = (0..20_000).map(|n: u32| n.to_string().into_bytes()).collect();
        let contents = [
            Content::String(Vec::new()),
            Content::String(vec![0xff; 70_000]),
            Content::List(texts(&[0, 63, 64, 16_383, 16_384, 63])),
            Content::Set(many.clone()),
            Content::Hash(many.iter().map(|n| (n.clone(), n.clone())).collect()),
            Content::Sorted(vec![
                (b"a".to_vec(), f64::NEG_INFINITY),
                (b"b".to_vec(), 0.1),
                (b"".to_vec(), f64::INFINITY),
            ]),
        ];
        let items: Vec<Item> = (0..)
            .zip(contents)
            .map(|(n, content)| Item {
                db: n / 3 * 15,
                key: format!("key {n}").into_bytes(),
                content,
                expires: (n % 2 == 0).then_some(1 << 40),
            })
            .collect();
        let mut writer = Writer::begin(Vec::new()).expect("memory");
        items.iter().for_each(|item| writer.item(item).expect("memory"));
        let bytes = writer.end().expect("memory");
        let mut found = Vec::new();
        let count = read(&mut bytes.as_slice(), limits, |item| {
            found.push(item);
            Ok(())
        });
        assert_eq!((count.expect("it is sound"), found), (6, items));
    }
}
