//! `tiersmith kv`: what its INFO has beyond that of a Redis, its wait events and its tier.
//!
//! The server waits for nothing but clients while it runs commands: what they change becomes
//! durable when a batch of them ends, in the wait `tier commit`. So DB time is the time of all
//! commands and of the waits that are neither idle nor in the background.
//!
//! Deliberately absent: histograms of waits, which INFO does not have.

use std::collections::BTreeMap;

use tiersmith_events::WaitClass;

use super::short;
use crate::{MediumStat, Snapshot, WaitStat};

/// The product's name.
pub(crate) const PRODUCT: &str = "tiersmith kv";

/// More wait events than a server of this kind will ever have.
const MOST_WAITS: usize = 100;

/// What its wait events mean.
const HELP: [(&str, &str); 3] = [
    ("tier commit", "The changes of a batch of commands became durable in the tier: its fence."),
    ("client message", "No client sent anything."),
    ("trash emptied", "What a FLUSHDB took away was freed."),
];

/// Settings worth comparing: how the tier is mapped, and whether it is damaged.
const SETTINGS: [&str; 4] = ["tier_path", "tier_access", "tier_persistent", "tier_damage"];

/// Whether INFO is that of a `tiersmith kv`.
pub(super) fn is_one(fields: &BTreeMap<&str, &str>) -> bool {
    fields.get("server_name") == Some(&"tiersmith")
}

/// Adds its wait events and its tier.
pub(super) fn fill(snapshot: &mut Snapshot, fields: &BTreeMap<&str, &str>) {
    for (name, value) in fields {
        let Some(wait) = name.strip_prefix("wait_").and_then(|name| wait(name, value)) else {
            continue;
        };
        let is_new = snapshot.waits.iter().all(|known| known.key() != wait.key());
        if is_new && snapshot.waits.len() < MOST_WAITS {
            snapshot.waits.push(wait);
        }
    }
    let number = |name: &str| fields.get(name).and_then(|value| value.parse::<u64>().ok());
    for name in SETTINGS {
        if let Some(value) = fields.get(name) {
            snapshot.source.settings.insert(name.to_owned(), short(value));
        }
    }
    super::count(snapshot, "commits to the tier", "commits", number("tier_commits"));
    for (name, ours, unit) in [
        ("used_memory", "tier used by keys and values", "bytes"),
        ("tier_trash_buckets", "trash to be freed", "buckets"),
        ("tier_recovery_us", "opening the tier took", "us"),
    ] {
        if let Some(value) = number(name) {
            snapshot.add_level(ours, unit, value);
        }
    }
    if let (Some(bytes), Some(label)) = (number("tier_bytes"), fields.get("tier_label")) {
        snapshot.add_medium(MediumStat {
            name: "tier".to_owned(),
            kind: format!("one file, mapped ({})", short(label).to_lowercase()),
            emulated: *label == "EMULATED",
            bytes,
            used_bytes: number("tier_used_bytes").unwrap_or(0),
        });
    }
}

/// Time of requests that was spent in waits, which commandstats does not have.
pub(super) fn waited_ns(snapshot: &Snapshot) -> u64 {
    let of_requests =
        snapshot.waits.iter().filter(|wait| !wait.background && wait.class != WaitClass::Idle);
    of_requests.fold(0, |sum, wait| sum.saturating_add(wait.total_ns))
}

/// `tier_commit:class=Commit,waits=1,total_us=2,max_us=2,background=0`; nothing of what is none.
fn wait(name: &str, value: &str) -> Option<WaitStat> {
    let of = |key: &str| {
        let mut pairs = value.split(',').filter_map(|pair| pair.split_once('='));
        pairs.find(|(found, _)| *found == key).map(|(_, value)| value)
    };
    let number = |key: &str| of(key)?.parse::<u64>().ok();
    let name = short(&name.replace('_', " "));
    let help = HELP.iter().find(|(known, _)| *known == name).map_or("", |(_, help)| help);
    Some(WaitStat {
        class: WaitClass::from_name(of("class")?)?,
        background: of("background") == Some("1"),
        help: help.to_owned(),
        count: number("waits")?,
        total_ns: number("total_us")?.saturating_mul(1000),
        max_ns: number("max_us")?.saturating_mul(1000),
        bytes: 0,
        buckets: Vec::new(),
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Answers, fill};
    use crate::{Snapshot, Source, statistic};
    use tiersmith_events::WaitClass;

    /// What the server answered after a little work, cut to what is read of it.
    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\nserver_name:tiersmith\r\n\
        tiersmith_version:0.1.0\r\nrun_id:abc\r\ntcp_port:7000\r\n\r\n# Memory\r\n\
        used_memory:18432\r\n\r\n# Tier\r\ntier_path:/dev/shm/kv.tier\r\n\
        tier_access:emulated\r\ntier_label:EMULATED\r\ntier_persistent:0\r\n\
        tier_bytes:16777216\r\ntier_used_bytes:81920\r\ntier_commits:12\r\ntier_damage:none\r\n\
        tier_trash_buckets:3\r\ntier_recovery_us:77\r\n\r\n# CPU\r\nused_cpu_user:0.250000\r\n\
        used_cpu_sys:0.750000\r\n\r\n# Waits\r\n\
        wait_tier_commit:class=Commit,waits=12,total_us=400,max_us=90,background=0\r\n\
        wait_client_message:class=Idle,waits=40,total_us=9000000,max_us=99000,background=0\r\n\
        wait_trash_emptied:class=System I/O,waits=2,total_us=50,max_us=30,background=1\r\n\
        cmdstat_set:calls=10,usec=500,usec_per_call=50.00\r\n";

    fn snapshot(info: &str) -> Snapshot {
        let mut snapshot = Snapshot::at(Source::default(), 1, 1);
        fill(&mut snapshot, &Answers { info: info.to_owned(), ..Answers::default() });
        snapshot.check().expect("whole");
        snapshot
    }

    #[test]
    fn waits_come_with_their_class_and_the_fence_is_in_db_time() {
        let of = snapshot(INFO);
        assert_eq!(
            (of.source.product.as_str(), of.source.version.as_str()),
            (super::PRODUCT, "0.1.0")
        );
        let told: Vec<_> = of
            .waits
            .iter()
            .map(|w| (w.name.as_str(), w.class, w.background, w.count, w.total_ns, w.max_ns))
            .collect();
        assert_eq!(
            told,
            [
                ("client message", WaitClass::Idle, false, 40, 9_000_000_000, 99_000_000),
                ("tier commit", WaitClass::Commit, false, 12, 400_000, 90_000),
                ("trash emptied", WaitClass::SystemIo, true, 2, 50_000, 30_000),
            ]
        );
        assert!(of.waits.iter().all(|wait| !wait.help.is_empty()));
        // Commands and the fence; not the time without clients, nor the work in the background.
        assert_eq!(of.db_time_ns, Some(500_000 + 400_000));
        assert_eq!(of.process_cpu_ns, Some(1_000_000_000));
        assert_eq!(of.counters.iter().find(|c| c.name == "commits to the tier").unwrap().value, 12);
        assert_eq!(
            of.counters.iter().find(|c| c.name == statistic::EXECUTE_COUNT).unwrap().value,
            10
        );
    }

    #[test]
    fn the_tier_is_a_medium_with_its_label_and_damage_is_a_setting() {
        let of = snapshot(INFO);
        assert!(of.is_emulated());
        let [tier] = of.media.as_slice() else { panic!("{:?}", of.media) };
        assert_eq!((tier.bytes, tier.used_bytes), (16_777_216, 81_920));
        assert_eq!(of.source.settings["tier_damage"], "none");
        let level = |name: &str| of.levels.iter().find(|l| l.name == name).map(|l| l.value);
        assert_eq!(level("trash to be freed"), Some(3));
        assert_eq!(level("memory used by data"), None, "data are in the tier, not in memory");
        let real = snapshot(&INFO.replace("tier_label:EMULATED", "tier_label:fsdax"));
        assert!(!real.is_emulated() && real.media[0].kind.contains("fsdax"));
    }

    #[test]
    fn a_redis_has_no_such_waits_whatever_its_lines_say() {
        let of = snapshot(&INFO.replace("server_name:tiersmith", "server_name:valkey"));
        assert!(of.waits.is_empty() && of.media.is_empty());
        assert_eq!(of.db_time_ns, Some(500_000));
    }
}
