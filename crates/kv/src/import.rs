//! Import: the keys of a dump of Redis, into a tier that has none.

use std::io::Read;
use std::time::{SystemTime, UNIX_EPOCH};

use tiersmith_pmem::Mapping;

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
}

/// Reads a dump into a tier, which is made if there is none, and has no keys.
///
/// # Durability
/// All of it is durable on return. Until then the tier says that its data are not whole, and a
/// server answers no reads from it.
///
/// # Errors
/// The tier has keys; the dump cannot be read or does not fit. The tier is empty then.
pub fn import(map: Mapping, from: &mut impl Read) -> Result<Imported, Error> {
    let map_len = map.report().len;
    let heap = match Heap::is_blank(&map)? {
        true => Heap::create(map, LOG_BYTES.min(map_len / 16), Planted::None)?,
        false => Heap::open(map, Planted::None)?,
    };
    let mut keys = Keyspace::new(heap);
    let count = |keys: &Keyspace| (0..DATABASE_COUNT).map(|db| keys.len(db)).sum::<u64>();
    let there = count(&keys);
    if there > 0 && keys.copied() != Copied::Part {
        let path = keys.heap().medium().path.clone();
        return Err(Error::NotEmpty { path, keys: there });
    }
    keys.begin_copy();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let mut expired = 0;
    let limits = rdb::Limits::of_tier(keys.heap().size());
    let done = rdb::read(from, limits, |item| {
        if item.expires.is_some_and(|at| at <= now) {
            expired += 1;
            return Ok(());
        }
        keys.load(&item)
    });
    if done.is_err() {
        keys.begin_copy();
    }
    keys.set_copied(Copied::Own);
    keys.heap_mut().commit();
    done?;
    Ok(Imported { keys: count(&keys), expired })
}
