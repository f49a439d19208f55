//! The pragmas: `tiersmith_stats`, `tiersmith_flush`, `tiersmith_check`. Each answers with one
//! text.
//!
//! The names are fixed by what users type; `flush` here means "write every dirty block home", as
//! `AttachedHome::flush_all` does.
//!
//! # What `tiersmith_check` can see
//! The store's offline check reads a tier that nobody uses. Here the tier is in use, so another
//! thing is checked, and said: every dirty block is written home, then each block that the tier
//! lends is compared with the home file, and the sizes are. That is promise 3 (home is truth for
//! clean blocks) for the blocks that are in the tier now. Blocks written while it runs are looked
//! at again, a few times.

use crate::database::User;
use crate::ffi::api::Api;
use crate::place::{Place, Role};
use crate::waits::plain_events;
use std::fmt::Write as _;
use tiersmith_store::events::Totals;
use tiersmith_store::{Durability, File, OpenMode, Result};

/// What a pragma answers: the text of its row, or an error message.
type Answer = std::result::Result<String, String>;

/// Rounds of comparing, for blocks that are written meanwhile.
const ROUNDS: u32 = 5;

/// The answer to a pragma, `value` behind its `=`, for a connection of this SQLite; `None` when it
/// is not one of ours. `attached` is the main file of an attached database.
pub(crate) fn answer(
    api: &Api,
    name: &str,
    value: Option<&str>,
    attached: Option<(&User, &File)>,
) -> Option<Answer> {
    let pragma = name.to_ascii_lowercase();
    Some(match (pragma.as_str(), attached) {
        ("tiersmith_stats", Some((user, file))) => Ok(stats(api, user.place(), file)),
        ("tiersmith_stats", None) => Ok(plain_stats()),
        ("tiersmith_flush", Some((user, _))) => flush(user.place()),
        ("tiersmith_check", Some((user, file))) => check(user.place(), file),
        ("tiersmith_flush" | "tiersmith_check", None) => {
            Err("this database is not attached: it has no fast tier. Open it with \
             file:PATH?vfs=tiersmith&fast=TIER&size=BYTES to attach it"
                .to_string())
        }
        ("tiersmith_inspect", Some((user, file))) => {
            return crate::inspect::answer(value?, user, file);
        }
        _ => return None,
    })
}

fn flush(place: &Place) -> Answer {
    place.home().flush_all().map(|blocks| blocks.to_string()).map_err(|e| e.to_string())
}

fn plain_stats() -> String {
    let mut out = "place              plain: no fast tier, the VFS below is used\n".to_string();
    waits(&mut out, &plain_events().read());
    out
}

fn stats(api: &Api, place: &Place, file: &File) -> String {
    let stats = place.home().stats();
    let mut out = String::new();
    let _ = writeln!(out, "place              attached: {}", place.database().display());
    let class = file.class();
    let block = file.block_size().map_or("none".to_string(), |b| format!("{} bytes", b.bytes()));
    let _ = writeln!(out, "database file      class {class}, block {block}");
    let version = api.version();
    let (major, minor, patch) = (version / 1_000_000, version / 1000 % 1000, version % 1000);
    let _ = writeln!(out, "SQLite             {major}.{minor}.{patch}");
    for tier in &stats.tiers {
        let label = if tier.emulated {
            "EMULATED: stands for persistent memory, figures are not its figures"
        } else if tier.durability == Durability::AtSync {
            "flash: durable at each sync"
        } else {
            "persistent"
        };
        let _ = writeln!(out, "tier {:<13} {label}", tier.name);
        for medium in &tier.media {
            for line in medium.lines() {
                let _ = writeln!(out, "  medium           {}", line.trim());
            }
        }
        let _ = writeln!(
            out,
            "  size             {} bytes, {} free",
            tier.usable_bytes, tier.free_bytes
        );
        let _ = writeln!(
            out,
            "  blocks           {} bytes dirty, {} bytes cached",
            tier.dirty_bytes, tier.cached_bytes
        );
        let _ = writeln!(out, "  map pages        {} bytes", tier.map_bytes);
    }
    let (dirty, cached) = file.blocks_in_tier();
    let _ = writeln!(out, "database blocks    {dirty} dirty, {cached} cached");
    let _ = writeln!(out, "recovery           {}", stats.recovery);
    for failed in stats.tiers.iter().filter_map(|tier| tier.failed.as_ref()) {
        let _ = writeln!(out, "nothing more is written: {failed}");
    }
    for lost in &stats.unreadable {
        let _ = writeln!(out, "cannot be read, and is nowhere else: {lost}");
    }
    if let Some(error) = &stats.background_error {
        let _ = writeln!(out, "background error   {error}");
    }
    waits(&mut out, &stats.waits);
    out
}

/// Counters, and the events that happened: waits, time, mean.
fn waits(out: &mut String, totals: &Totals) {
    for (def, value) in totals.counters().filter(|(_, value)| *value > 0) {
        let _ = writeln!(out, "{:<44} {value:>12} {}", def.name, def.unit);
    }
    for (def, event) in totals.events().filter(|(_, event)| event.count() > 0) {
        let mean_us = event.mean_ns().unwrap_or(0.0) / 1e3;
        let total_ms = event.total_ns() as f64 / 1e6;
        let _ = writeln!(
            out,
            "{:<44} {:>12} waits {total_ms:>12.3} ms {mean_us:>10.3} us each {:>14} bytes",
            def.name,
            event.count(),
            event.bytes()
        );
    }
}

fn check(place: &Place, file: &File) -> Answer {
    match compare(place, file) {
        Ok((compared, different, home_only)) if different.is_empty() => Ok(format!(
            "ok: every dirty block was written home; {compared} blocks of the database file are in \
             the tier and equal those at home, \
             {home_only} are at home only and were not read. The tier's own structures are checked \
             while nobody has it open \
             (tiersmith check)"
        )),
        Ok((compared, different, _)) => Err(format!(
            "{} of {compared} blocks in the tier differ from home after they were written there, \
             the first at byte {} of {}: the tier or \
             the home file is damaged, or somebody writes the home file. Close the database, run \
             tiersmith check, and keep both",
            different.len(),
            different[0],
            place.database().display()
        )),
        Err(e) => Err(format!("the check could not be made: {e}")),
    }
}

/// Blocks compared, offsets of those that differ, and blocks that are at home only.
fn compare(place: &Place, file: &File) -> Result<(u64, Vec<u64>, u64)> {
    place.home().flush_all()?;
    let Some(block) = file.block_size().map(|b| b.bytes() as u64) else {
        return Ok((0, Vec::new(), 0));
    };
    let blocks = file.len()?.div_ceil(block);
    let name = place.name(Role::Main);
    let io = |source| tiersmith_store::Error::Io {
        what: "cannot read",
        path: name.to_path_buf(),
        source,
    };
    let home = place.home().home().open(name, OpenMode::READ).map_err(io)?;
    let mut buffer = vec![0; block as usize];
    let (mut compared, mut home_only) = (0, 0);
    let mut again: Vec<u64> = (0..blocks).map(|n| n * block).collect();
    for round in 0..ROUNDS {
        if round > 0 {
            place.home().flush_all()?;
        }
        let mut different = Vec::new();
        for offset in again {
            let Some(lent) = file.read_ref(offset) else {
                home_only += u64::from(round == 0);
                continue;
            };
            let got = home.read_at(offset, &mut buffer[..lent.len()]).map_err(io)?;
            compared += u64::from(round == 0);
            if buffer[..got] != lent[..] {
                different.push(offset);
            }
        }
        again = different;
        if again.is_empty() {
            break;
        }
    }
    Ok((compared, again, home_only))
}
