//! Import: the keys of a dump or an append-only file of Redis, into a tier that has none.

use std::io::{BufRead, Read};
use std::time::{SystemTime, UNIX_EPOCH};

use tiersmith_pmem::Mapping;

use crate::aof;
use crate::command::{Configuration, Shared, check_libraries};
use crate::error::Error;
use crate::format::DATABASE_COUNT;
use crate::heap::Heap;
use crate::keyspace::{Copied, Keyspace};
use crate::planted::Planted;
use crate::rdb;
use crate::server::LOG_BYTES;

/// What an import brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Keys that are there now.
    pub keys: u64,
    /// Keys that had expired, which were left out as a Redis leaves them out.
    pub expired: u64,
    /// Bytes at the end of an append-only file that were left out, because it ends within a command
    /// or a transaction, as that of a killed server does.
    pub left_out: u64,
}

/// Reads a dump, or an append-only file, into a tier, which is made if there is none, and has no
/// keys.
///
/// # Durability
/// All of it is durable on return. Until then the tier says that its data are not whole, and a
/// server answers no reads from it.
///
/// # Errors
/// The tier has keys; the file cannot be read or does not fit. The tier is empty then.
pub fn import(map: Mapping, from: &mut impl BufRead) -> Result<Imported, Error> {
    import_parts(map, &mut [from])
}

/// The same with files that a manifest names ([`crate::manifest`]), in their order.
///
/// # Durability
/// As [`import`].
///
/// # Errors
/// As [`import`].
pub fn import_parts(map: Mapping, parts: &mut [impl BufRead]) -> Result<Imported, Error> {
    let map_len = map.report().len;
    let heap = match Heap::is_blank(&map)? {
        true => Heap::create(map, LOG_BYTES.min(map_len / 16), Planted::None)?,
        false => Heap::open(map, Planted::None)?,
    };
    import_into(&mut Keyspace::new(heap), parts)
}

/// [`import_parts`] into a tier that is open.
pub(crate) fn import_into(
    keys: &mut Keyspace,
    parts: &mut [impl BufRead],
) -> Result<Imported, Error> {
    let count = |keys: &Keyspace| (0..DATABASE_COUNT).map(|db| keys.len(db)).sum::<u64>();
    let there = count(keys) + keys.library_count();
    if there > 0 && keys.copied() != Copied::Part {
        let path = keys.heap().medium().path.clone();
        return Err(Error::NotEmpty { path, keys: there });
    }
    keys.begin_copy();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    keys.set_now_ms(now);
    let mut shared = Shared::new(Configuration::default());
    let done = read_parts(keys, &mut shared, parts, now);
    let done = done.and_then(|done| match check_libraries(&mut shared, keys) {
        Ok(()) => Ok(done),
        Err(what) => Err(rdb::Error::Unsupported { what }.into()),
    });
    if done.is_err() {
        keys.begin_copy();
    }
    keys.set_copied(Copied::Own);
    keys.heap_mut().commit();
    let (expired, left_out) = done?;
    Ok(Imported { keys: count(keys), expired, left_out })
}

/// Reads all parts; keys that had expired, and bytes of the last part that are of no use.
fn read_parts(
    keys: &mut Keyspace,
    shared: &mut Shared,
    parts: &mut [impl BufRead],
    now: u64,
) -> Result<(u64, u64), Error> {
    let limits = rdb::Limits::of_tier(keys.heap().size());
    let (mut expired, mut left_out) = (0, 0);
    for part in parts {
        if left_out > 0 {
            let why = format!("the file before this one ends {left_out} bytes within a command");
            return Err(Error::AppendOnly { at: 0, why });
        }
        let first =
            part.fill_buf().map_err(|source| rdb::Error::Io { at: 0, source })?.first().copied();
        // Commands begin with one of these, or a file is empty, as a new one of Redis is; a dump
        // may come first.
        let mut at = 0;
        if !matches!(first, None | Some(b'*' | b'#')) {
            let mut counted = Counted { from: &mut *part, bytes: 0 };
            rdb::read(&mut counted, limits, |item| {
                if item.expires.is_some_and(|at| at <= now) {
                    expired += 1;
                    return Ok(());
                }
                keys.load(&item)
            })?;
            at = counted.bytes;
        }
        // Commands read what is there, although it is not whole yet.
        keys.partial = false;
        left_out = aof::replay(keys, shared, part, at)?;
    }
    // A command that gave a key a time that is over now.
    let before = keys.expired();
    keys.remove_expired(u64::MAX);
    Ok((expired + keys.expired() - before, left_out))
}

/// Counts what is read.
struct Counted<'a, R> {
    from: &'a mut R,
    bytes: u64,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let got = self.from.read(into)?;
        self.bytes += got as u64;
        Ok(got)
    }
}
