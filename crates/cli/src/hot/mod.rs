//! `tiersmith hot`: the hot files of a mounted home as tables and indexes, and which of them a pin
//! would help.
//!
//! | file | what |
//! |---|---|
//! | `names.rs` | which relation or table a file is of, by its path alone |
//! | `server.rs` | the names that a server gives |
//! | `advice.rs` | what to pin, and why not |
//! | `sheet.rs` | all of it as text |
//!
//! **Deliberately absent**: rates, which the daemon keeps (`mounted/heat.rs`); pinning anything.

mod advice;
pub(crate) mod names;
mod server;
mod sheet;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::Serialize;

use crate::mounted::{HotFile, LiveHot, Rates};
pub(crate) use advice::Advice;
pub(crate) use server::name_by;
pub(crate) use sheet::text;

/// So many are named at least, for what is to be pinned.
pub(crate) const NAMED_LEAST: usize = 50;

/// By what the list is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum By {
    /// What a pin would save: misses, in waiting for home where that was measured
    Saved,
    /// Blocks read, from the tier and from home
    Reads,
    /// Blocks read from home
    Misses,
    /// Blocks written
    Writes,
    /// Bytes read and written
    Bytes,
}

/// Over which time the list is sorted and advice is given: the half-life of the rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Over {
    /// The last minute counts half
    Minute,
    /// The last hour counts half
    Hour,
}

impl Over {
    /// Its place among the half-lives.
    pub(crate) fn place(self) -> usize {
        match self {
            Over::Minute => 0,
            Over::Hour => 1,
        }
    }
}

/// A file, or the files of a relation, and how hot they are.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Object {
    /// What the database calls it, else the path.
    pub(crate) name: String,
    /// table, index, ...; `file` where it has no name.
    pub(crate) kind: String,
    pub(crate) files: Vec<String>,
    /// A pattern that matches these files and no others.
    pub(crate) pattern: String,
    pub(crate) tier: String,
    pub(crate) is_data: bool,
    /// All of it.
    pub(crate) pinned: bool,
    pub(crate) lent: bool,
    pub(crate) size: u64,
    pub(crate) block_bytes: u64,
    pub(crate) in_tier_bytes: u64,
    /// Blocks a second, decayed by half in a minute, and in an hour.
    pub(crate) minute: Rates,
    pub(crate) hour: Rates,
    /// What a pin would save of waiting for home, in milliseconds a second; absent where no read
    /// was measured.
    pub(crate) saves_ms_per_s: Option<f64>,
    #[serde(skip)]
    pub(crate) relation: Option<names::Relation>,
    /// Its files that are not pinned.
    #[serde(skip)]
    pub(crate) loose: Loose,
}

/// Files that a pin would change something of: sums.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Loose {
    /// In whole blocks.
    pub(crate) size: u64,
    pub(crate) in_tier_bytes: u64,
    /// For each of the half-lives.
    pub(crate) hits: [f64; 2],
    /// Misses a second that there would not be: those that a file has now and has had for long, and
    /// of these the share of the file that is not in the tier by now.
    pub(crate) avoidable: f64,
}

impl Loose {
    fn take(&mut self, file: &HotFile) {
        if file.pinned {
            return;
        }
        let size = file.size.next_multiple_of(file.block_bytes.max(1));
        self.size += size;
        self.in_tier_bytes += file.in_tier_bytes.min(size);
        for (sum, rates) in self.hits.iter_mut().zip(&file.rates) {
            *sum += rates.hits;
        }
        let misses = file.rates[0].misses.min(file.rates[1].misses);
        let absent = 1.0 - file.in_tier_bytes as f64 / size.max(1) as f64;
        self.avoidable += misses * absent.max(0.0);
    }
}

impl Object {
    fn of(file: &HotFile) -> Object {
        let [minute, hour] = file.rates;
        let mut loose = Loose::default();
        loose.take(file);
        Object {
            name: file.path.clone(),
            kind: "file".into(),
            pattern: names::pattern_of(&file.path),
            files: vec![file.path.clone()],
            tier: file.tier.clone(),
            is_data: file.is_data,
            pinned: file.pinned,
            lent: file.lent,
            size: file.size,
            block_bytes: file.block_bytes,
            in_tier_bytes: file.in_tier_bytes,
            minute,
            hour,
            saves_ms_per_s: None,
            relation: None,
            loose,
        }
    }

    /// Takes another file of the same relation in.
    fn take(&mut self, file: &HotFile) {
        self.files.push(file.path.clone());
        self.is_data &= file.is_data;
        self.pinned &= file.pinned;
        self.lent |= file.lent;
        self.size += file.size;
        self.in_tier_bytes += file.in_tier_bytes;
        self.minute.add(&file.rates[0]);
        self.hour.add(&file.rates[1]);
        self.loose.take(file);
    }

    pub(crate) fn rates(&self, over: Over) -> &Rates {
        [&self.minute, &self.hour][over.place()]
    }

    /// Whether it can be pinned, and is not.
    pub(crate) fn can_be_pinned(&self) -> bool {
        self.is_data && !self.pinned && !self.lent
    }

    /// Whether all of it is in the tier: what missed was before it came there.
    pub(crate) fn is_there(&self) -> bool {
        self.in_tier_bytes >= self.size
    }

    /// Misses a second that there would not be with a pin, as far as can be promised.
    pub(crate) fn avoidable(&self) -> f64 {
        if self.can_be_pinned() { self.loose.avoidable } else { 0.0 }
    }
}

/// What a block that is read from home costs more than one from the tier, in microseconds; `None`:
/// no read from home was measured.
pub(crate) fn miss_costs_us(hot: &LiveHot, over: Over) -> Option<f64> {
    let home = hot.home_read_us[over.place()]?;
    Some((home - hot.tier_read_us[over.place()].unwrap_or(0.0)).max(0.0))
}

/// The files of a home as a list. `fold`: files of one of PostgreSQL's relations are one.
pub(crate) fn objects(hot: &LiveHot, fold: bool, over: Over) -> Vec<Object> {
    let mut objects: Vec<Object> = Vec::new();
    let mut places: BTreeMap<names::Relation, usize> = BTreeMap::new();
    for file in &hot.files {
        let relation = names::relation(&file.path).filter(|_| fold);
        if let Some(place) = relation.and_then(|relation| places.get(&relation)) {
            objects[*place].take(file);
            continue;
        }
        let mut object = Object::of(file);
        if let Some(relation) = relation {
            let _ = places.insert(relation, objects.len());
            (object.name, object.relation) = (relation.to_string(), Some(relation));
        } else if hot.profile == "mariadb"
            && let Some(table) = names::table(&file.path)
        {
            (object.name, object.kind) = (table.to_string(), table.kind.into());
        }
        objects.push(object);
    }
    let cost_us = miss_costs_us(hot, over);
    for object in &mut objects {
        if object.files.len() > 1 {
            object.files.sort();
            object.pattern = names::pattern_of_all(&object.files);
        }
        let avoidable = object.avoidable();
        object.saves_ms_per_s = cost_us.map(|us| avoidable * us / 1e3);
    }
    objects
}

/// The hottest first.
pub(crate) fn sort(objects: &mut [Object], by: By, over: Over) {
    let worth = |object: &Object| -> f64 {
        let rates = object.rates(over);
        match by {
            By::Saved if object.saves_ms_per_s.is_some_and(|saves| saves > 0.0) => {
                object.saves_ms_per_s.unwrap_or_default()
            }
            // A home whose reads cost nothing, or were not measured: then by misses alone.
            By::Saved => object.avoidable(),
            By::Reads => rates.reads(),
            By::Misses => rates.misses,
            By::Writes => rates.writes,
            By::Bytes => (rates.reads() + rates.writes) * object.block_bytes as f64,
        }
    };
    let used = |object: &Object| object.rates(over).reads() + object.rates(over).writes;
    objects.sort_by(|a, b| match worth(b).total_cmp(&worth(a)) {
        Ordering::Equal => used(b).total_cmp(&used(a)).then_with(|| a.name.cmp(&b.name)),
        other => other,
    });
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::mounted::HotTier;

    pub(crate) const MIB: u64 = 1 << 20;

    /// A file of 8 MiB of which nothing is in the tier.
    pub(crate) fn file(path: &str, hits: f64, misses: f64) -> HotFile {
        HotFile {
            path: path.into(),
            tier: "fast".into(),
            is_data: true,
            pinned: false,
            lent: false,
            size: 8 * MIB,
            block_bytes: 8192,
            in_tier_bytes: 0,
            rates: [Rates { hits, misses, writes: 0.5 }; 2],
        }
    }

    /// A home with a tier of 80 MiB, half of it free, on storage of a millisecond.
    pub(crate) fn home(profile: &str, files: Vec<HotFile>) -> LiveHot {
        LiveHot {
            home: "/srv/db".into(),
            at: "/srv/db".into(),
            profile: profile.into(),
            emulated: true,
            home_model: None,
            cluster: None,
            server_started_unix_s: None,
            known_s: 7200.0,
            half_lives_s: [60.0, 3600.0],
            home_read_us: [Some(1010.0); 2],
            tier_read_us: [Some(10.0); 2],
            tiers: vec![HotTier {
                name: "fast".into(),
                usable_bytes: 80 * MIB,
                free_bytes: 40 * MIB,
                pinned_bytes: 0,
                pins_most_bytes: 70 * MIB,
                others_bytes: 40 * MIB,
            }],
            files,
            files_left_out: 0,
        }
    }

    #[test]
    fn segments_and_forks_are_folded_into_their_relation_and_only_if_asked() {
        let files = || {
            vec![
                file("base/5/16384", 1.0, 2.0),
                file("base/5/163841", 1.0, 1.0),
                file("base/5/16384.1", 10.0, 20.0),
                file("base/5/16384_vm", 100.0, 200.0),
                file("base/6/16384", 0.0, 1.0),
                file("global/16384", 0.0, 1.0),
            ]
        };
        let folded = objects(&home("postgres", files()), true, Over::Hour);
        assert_eq!(folded.len(), 4, "{folded:?}");
        let first = &folded[0];
        assert_eq!((first.files.len(), first.size), (3, 24 * MIB));
        assert_eq!((first.hour.hits, first.minute.misses), (111.0, 222.0));
        assert_eq!(first.saves_ms_per_s, Some(222.0));
        assert_eq!(first.pattern, "base/5/{16384,16384.1,16384_vm}");
        assert_eq!((&*folded[1].pattern, &*folded[1].name), ("base/5/163841", "base/5/163841"));
        assert_eq!(objects(&home("postgres", files()), false, Over::Hour).len(), 6);
    }

    #[test]
    fn the_list_is_sorted_by_what_was_asked_for() {
        let mut read = file("read", 90.0, 1.0);
        let missed = file("missed", 0.0, 9.0);
        let mut pinned = file("pinned", 5.0, 80.0);
        let mut written = file("written", 0.0, 0.0);
        read.block_bytes = 4096;
        pinned.pinned = true;
        let there = HotFile { in_tier_bytes: 8 * MIB, ..file("there", 5.0, 70.0) };
        written.rates[1].writes = 80.0;
        written.rates[0].misses = 1000.0;
        let hot = home("generic", vec![read, missed, pinned, written, there]);
        let first = |by, over| {
            let mut objects = objects(&hot, false, over);
            sort(&mut objects, by, over);
            objects[0].name.clone()
        };
        assert_eq!(
            first(By::Saved, Over::Hour),
            "missed",
            "a pin changes nothing of a pinned file"
        );
        assert_eq!(first(By::Saved, Over::Minute), "missed", "what misses since a moment ago only");
        assert_eq!(first(By::Misses, Over::Minute), "written");
        assert_eq!(first(By::Misses, Over::Hour), "pinned");
        assert_eq!(first(By::Reads, Over::Hour), "read");
        assert_eq!(first(By::Writes, Over::Hour), "written");
        assert_eq!(first(By::Bytes, Over::Hour), "pinned", "its blocks are twice as large");
    }

    #[test]
    fn mariadbs_tables_are_named_by_their_paths() {
        let hot = home(
            "mariadb",
            vec![file("shop/orders#P#p0.ibd", 1.0, 1.0), file("ibdata1", 1.0, 0.0)],
        );
        let objects = objects(&hot, true, Over::Hour);
        let names: Vec<_> = objects.iter().map(|o| (&*o.name, &*o.kind, &*o.pattern)).collect();
        assert_eq!(
            names,
            [
                ("shop.orders partition p0", "table", "shop/orders#P#p0.ibd"),
                ("ibdata1", "file", "/ibdata1")
            ]
        );
    }
}
