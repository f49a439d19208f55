//! How much room a case needs: its database, and the tier of one.
//!
//! Deliberately absent: where the room is, and whether it is free (`place.rs`).

use super::loads;
use crate::case::{Case, Placement};
use crate::size::ByteSize;

/// Bytes of one loaded database, about: the table, its index and the scan table.
pub fn database_bytes(case: &Case) -> u64 {
    /// What a server's own tables and logs take.
    const SERVER: u64 = 192 << 20;
    let page = case.block_bytes();
    if let Some(load) = loads::of(case, &case.slob) {
        return load.bytes() + if case.is_embedded() { 0 } else { SERVER };
    }
    let rows = case.slob.blocks(page) + case.slob.scan_blocks(page);
    if !case.is_embedded() {
        return rows * page * 5 / 4 + SERVER;
    }
    // An index entry is at most 24 bytes; two thirds of a page are filled when keys come in
    // random order.
    rows * page + rows * 36 + (1 << 20)
}

/// Bytes that are loaded, about.
fn loaded_bytes(case: &Case) -> u64 {
    match loads::of(case, &case.slob) {
        Some(load) => load.bytes(),
        None => case.slob.scale.bytes() + case.slob.scan_table.bytes(),
    }
}

/// Bytes of the tier of one database: as the case says, or enough for everything the case puts
/// there.
pub fn tier_bytes(case: &Case) -> u64 {
    const REDO: u64 = 96 << 20;
    /// A server's redo is several files of 16 to 64 MiB.
    const SERVER_REDO: u64 = 256 << 20;
    /// Beside the data, which are rounded up and have an index, in a tier that a server maps.
    const MAPPED: u64 = 64 << 20;
    let wanted = match case.placement {
        Placement::Home => 0,
        Placement::Disk | Placement::Directory => 2 * SERVER_REDO,
        Placement::Mapped => MAPPED + 4 * loaded_bytes(case),
        Placement::Redo if !case.is_embedded() => SERVER_REDO,
        Placement::All if !case.is_embedded() => SERVER_REDO + database_bytes(case) * 3 / 2,
        Placement::Redo => REDO,
        // A quarter of a tier is kept free by its background work.
        Placement::All => REDO + database_bytes(case) * 3 / 2,
    };
    let told = if case.is_embedded() { case.sqlite.tier } else { case.server.tier };
    let bytes = told.map_or(wanted, ByteSize::bytes);
    if case.placement == Placement::Home { 0 } else { bytes.next_multiple_of(1 << 20) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case;

    #[test]
    fn the_databases_of_the_default_study_are_larger_than_the_page_cache() {
        for case in case::choose(&[], false).unwrap() {
            assert!(database_bytes(&case) >= 8 * case.sqlite.page_cache.bytes(), "{}", case.id);
        }
    }
}
