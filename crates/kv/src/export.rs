//! Export: a tier at rest as a dump file of Redis.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use tiersmith_pmem::Mapping;

use crate::error::Error;
use crate::format::DATABASE_COUNT;
use crate::heap::{Damage, Heap};
use crate::keyspace::{Copied, Keyspace};
use crate::planted::Planted;
use crate::rdb::{Content, Item, Writer};

/// Writes all keys of a tier that have not expired, and returns how many they were. The tier keeps
/// its data; what the log of a killed server has is applied.
///
/// # Durability
/// The caller syncs the file.
///
/// # Errors
/// The tier holds a copy that is not whole, or damage; the file cannot be written. It is of no use
/// then.
pub fn export(map: Mapping, to: impl Write) -> Result<u64, Error> {
    let path = map.report().path.clone();
    let mut keys = Keyspace::new(Heap::open(map, Planted::None)?);
    if keys.copied() == Copied::Part {
        return Err(Error::Incomplete { path });
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    keys.set_now_ms(now.as_millis() as u64);
    let failed = |source| Error::System { what: "write the dump", source };
    let mut writer = Writer::begin(to).map_err(failed)?;
    let (mut count, mut done) = (0, Ok(()));
    for (key, text) in keys.libraries() {
        let content = Content::Library(text);
        done = done.and_then(|()| writer.item(&Item { db: 0, key, content, expires: None }));
    }
    if let Some(Damage::Value(what) | Damage::Structure(what)) = keys.heap_mut().take_note() {
        return Err(Error::Damaged { path, what });
    }
    for db in 0..DATABASE_COUNT {
        keys.for_each(db, |key, found| {
            if done.is_ok() {
                let (content, expires) = (keys.content(found), found.header.expires);
                // What is damaged is not written: the loop ends, and the note is looked at below.
                if !keys.heap().is_noted() {
                    done =
                        writer.item(&Item { db: db.into(), key: key.to_vec(), content, expires });
                    count += 1;
                }
            }
        });
        if let Some(Damage::Value(what) | Damage::Structure(what)) = keys.heap_mut().take_note() {
            return Err(Error::Damaged { path, what });
        }
    }
    done.map_err(failed)?;
    writer.end().map_err(failed)?;
    Ok(count)
}
