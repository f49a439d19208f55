//! What a tier tells a snapshot, whatever database is on it.

use tiersmith_awr::{CounterStat, MediumStat, Snapshot, statistic};
use tiersmith_store::Stats;

/// Bytes that a server wrote to redo files of the tier.
const TIER_REDO: &str = "tier redo size";

/// Adds waits, counters, reads and writes, and the use of the tier. `background` says that no
/// client of the database waited in these waits itself: they lie inside those that the server
/// counts.
pub(super) fn add(snapshot: &mut Snapshot, stats: &Stats, background: bool) {
    let mut of_tier = Snapshot::at(snapshot.source.clone(), 0, 0);
    if background {
        of_tier.add_waits(&stats.waits);
        of_tier.waits.iter_mut().for_each(|wait| wait.background = true);
        snapshot.waits.append(&mut of_tier.waits);
        of_tier.add_counters(&stats.waits);
        // A server counts its redo itself, in bytes of records; the tier counts it once more, in
        // blocks written. Their sum is nothing.
        let own = |counter: &&mut CounterStat| counter.name == statistic::REDO_SIZE;
        of_tier.counters.iter_mut().filter(own).for_each(|counter| counter.name = TIER_REDO.into());
        snapshot.counters.append(&mut of_tier.counters);
    } else {
        snapshot.add_waits(&stats.waits);
        snapshot.add_counters(&stats.waits);
    }
    let name = stats.tiers.first().map_or("tier", |tier| tier.name.as_str());
    snapshot.add_io_of(&stats.waits, name);
    for tier in &stats.tiers {
        snapshot.add_medium(MediumStat {
            name: tier.name.clone(),
            kind: tier.media.first().and_then(|m| m.lines().next()).unwrap_or_default().to_owned(),
            emulated: tier.emulated,
            bytes: tier.bytes,
            used_bytes: tier.usable_bytes - tier.free_bytes.min(tier.usable_bytes),
        });
        snapshot.add_level("tier dirty", "bytes", tier.dirty_bytes);
        snapshot.add_level("tier cached", "bytes", tier.cached_bytes);
        snapshot.add_level("tier free", "bytes", tier.free_bytes);
        snapshot.add_level("tier files", "files", tier.files);
        snapshot.add_level("tier file slots", "files", tier.file_slots);
        snapshot.add_level("files outside the tier", "files", tier.files_outside);
    }
}

/// Adds what the home's storage is, and how much of it is free.
pub(super) fn add_home(snapshot: &mut Snapshot, dir: &std::path::Path, model: Option<&str>) {
    let kind = crate::place::FileSystem::of(dir).to_string();
    snapshot.add_medium(MediumStat {
        name: "home".into(),
        kind: model.map_or(kind.clone(), |model| format!("{kind}, MODELLED as {model}")),
        emulated: false,
        bytes: 0,
        used_bytes: 0,
    });
    snapshot.add_level("home free", "bytes", crate::place::bytes_free(dir));
}
