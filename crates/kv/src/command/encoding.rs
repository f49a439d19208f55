//! OBJECT ENCODING: the name of what Redis would keep a value in.
//!
//! It follows from the value as it is now and from the settings, and says nothing of how this
//! server keeps it. Redis goes to the larger encoding when a limit is passed and never back.

use super::Context;
use super::arguments::integer;
use crate::format::entry::kind;
use crate::keyspace::Found;

/// Members of a sorted set that are looked at: no larger one is a `listpack`.
const SORTED_MOST: u64 = 1 << 16;

/// The encoding that Redis would have.
pub(super) fn encoding(context: &Context<'_>, found: &Found) -> &'static [u8] {
    let limit = |name: &str| context.shared.configuration.number(name);
    let keys = &context.keys;
    match found.header.kind {
        kind::LIST | kind::LIST_NODE => b"quicklist",
        kind::STREAM => b"stream",
        kind::SET | kind::SET_NODE => {
            let numbers = keys.field_count(found) <= limit("set-max-intset-entries")
                && keys.fields(found).iter().all(|(member, _)| integer(member).is_some());
            if numbers { b"intset" } else { b"hashtable" }
        }
        kind::HASH | kind::HASH_NODE => {
            let most = limit("hash-max-listpack-value");
            let small = keys.field_count(found) <= limit("hash-max-listpack-entries")
                && keys.fields(found).iter().all(|(f, v)| f.len().max(v.len()) as u64 <= most);
            if small { b"listpack" } else { b"hashtable" }
        }
        kind::ZSET | kind::ZSET_NODE => {
            let most = limit("zset-max-listpack-value");
            let count = keys.field_count(found);
            let small = count <= limit("zset-max-listpack-entries").min(SORTED_MOST)
                && keys.scored(found, 0, count).iter().all(|(m, _)| m.len() as u64 <= most);
            if small { b"listpack" } else { b"skiplist" }
        }
        _ if found.header.raw => b"raw",
        _ => match (found.header.value_len, keys.value(found)) {
            (..=20, value) if integer(&value).is_some() => b"int",
            (..=44, _) => b"embstr",
            _ => b"raw",
        },
    }
}
