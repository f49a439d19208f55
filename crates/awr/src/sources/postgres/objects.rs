//! Databases, users, indexes, standbys and replication slots of a PostgreSQL: rows in, objects out.
//!
//! | view | kind |
//! |---|---|
//! | pg_stat_database, pg_database | databases |
//! | pg_roles | users, whose numbers statements have |
//! | counts of indexes | indexes of the database we are connected to |
//! | pg_stat_replication | standbys |
//! | pg_replication_slots | slots |
//!
//! What holds VACUUM up and how far a standby is behind are levels too, so that they are in every
//! snapshot of a series.
//!
//! Deliberately absent: sums over databases (`counters.rs`).

use std::collections::BTreeMap;

use serde_json::Value;

use super::counters::page_bytes;
use super::fields::{milliseconds, number, rows, text};
use super::{Answers, Row};
use crate::Snapshot;
use crate::snapshot::known::level;
use crate::snapshot::object::{ObjectKind, ObjectStat};

/// How many things of a kind are kept.
const MOST: usize = 500;

/// Fields of pg_stat_database that are counted, and what they are kept as.
const OF_DATABASES: [(&str, &str); 14] = [
    ("xact_commit", "commits"),
    ("xact_rollback", "rollbacks"),
    ("blks_hit", "pages_hit"),
    ("blks_read", "pages_read"),
    ("tup_returned", "rows_read"),
    ("tup_fetched", "rows_fetched"),
    ("tup_inserted", "rows_inserted"),
    ("tup_updated", "rows_updated"),
    ("tup_deleted", "rows_deleted"),
    ("temp_files", "temp_files"),
    ("temp_bytes", "temp_bytes"),
    ("deadlocks", "deadlocks"),
    ("conflicts", "conflicts"),
    ("sessions", "sessions"),
];

pub(super) fn fill(snapshot: &mut Snapshot, answers: &Answers) {
    databases(snapshot, answers);
    for row in rows(answers, "roles") {
        add(snapshot, ObjectStat::new(ObjectKind::User, text(row, "oid"), text(row, "name")));
    }
    indexes(snapshot, answers);
    replication(snapshot, answers);
    horizon(snapshot, answers);
}

/// One more, unless there are too many or it is there.
fn add(snapshot: &mut Snapshot, new: ObjectStat) {
    let of_kind = snapshot.objects.iter().filter(|object| object.kind == new.kind);
    let (mut count, mut known) = (0, false);
    for object in of_kind {
        count += 1;
        known |= object.id == new.id;
    }
    if count >= MOST {
        snapshot.is_partial_in(&["objects"]);
    } else if !known && !new.id.is_empty() {
        snapshot.objects.push(new);
    }
}

fn is(row: &Row, field: &str) -> bool {
    row.get(field).and_then(Value::as_bool).unwrap_or(false)
}

fn databases(snapshot: &mut Snapshot, answers: &Answers) {
    let ages: BTreeMap<String, u64> = rows(answers, "freezing")
        .iter()
        .filter_map(|row| Some((text(row, "oid"), number(row, "age")?)))
        .collect();
    for row in rows(answers, "database") {
        let (id, name) = (text(row, "datid"), text(row, "datname"));
        if name.is_empty() {
            continue;
        }
        let mut of = ObjectStat::new(ObjectKind::Database, id.clone(), name);
        of.counts.extend(
            OF_DATABASES
                .iter()
                .filter_map(|(field, name)| Some(((*name).to_owned(), number(row, field)?))),
        );
        for (field, name) in
            [("active_time", "db_time_ns"), ("idle_in_transaction_time", "idle_in_transaction_ns")]
        {
            of.counts.extend(milliseconds(row, field).map(|ns| (name.to_owned(), ns)));
        }
        of.levels.extend(number(row, "numbackends").map(|count| ("sessions".to_owned(), count)));
        of.levels.extend(ages.get(&id).map(|age| ("frozen_age".to_owned(), *age)));
        add(snapshot, of);
    }
    if let Some(oldest) = ages.values().max() {
        snapshot.add_level(level::FROZEN_AGE, "transactions", *oldest);
    }
}

fn indexes(snapshot: &mut Snapshot, answers: &Answers) {
    let all = rows(answers, "indexes");
    // A hundred are told; those used most and least.
    if all.len() >= 50 {
        snapshot.is_partial_in(&["objects"]);
    }
    let page = page_bytes(snapshot);
    for row in all {
        let Some(scans) = number(row, "scans") else { continue };
        let mut of = ObjectStat::new(ObjectKind::Index, text(row, "oid"), text(row, "name"));
        of.detail = text(row, "table");
        of.counts.insert("scans".to_owned(), scans);
        of.counts.extend(number(row, "rows").map(|count| ("rows".to_owned(), count)));
        of.levels.insert("scans".to_owned(), scans);
        let pages = number(row, "pages").filter(|pages| *pages > 0);
        of.levels.extend(pages.map(|pages| ("bytes".to_owned(), pages.saturating_mul(page))));
        of.levels.insert("needed".to_owned(), u64::from(is(row, "needed")));
        of.levels.insert("valid".to_owned(), u64::from(is(row, "valid")));
        add(snapshot, of);
    }
}

fn replication(snapshot: &mut Snapshot, answers: &Answers) {
    let mut furthest: Option<u64> = None;
    for row in rows(answers, "standbys") {
        let mut name = text(row, "name");
        let address = text(row, "address");
        if !address.is_empty() {
            name = format!("{name} at {address}");
        }
        let mut of = ObjectStat::new(ObjectKind::Standby, text(row, "id"), name);
        of.detail = [text(row, "state"), text(row, "sync")].join(", ");
        for (field, name) in [("sent", "unsent_bytes"), ("behind", "behind_bytes")] {
            of.levels.extend(number(row, field).map(|bytes| (name.to_owned(), bytes)));
        }
        for (field, name) in [("write", "write_ns"), ("flush", "flush_ns"), ("replay", "replay_ns")]
        {
            of.levels.extend(milliseconds(row, field).map(|ns| (name.to_owned(), ns)));
        }
        furthest = furthest.max(of.level("behind_bytes"));
        add(snapshot, of);
    }
    if let Some(bytes) = furthest {
        snapshot.add_level(level::FURTHEST_STANDBY, "bytes", bytes);
    }
    for row in rows(answers, "slots") {
        let name = text(row, "name");
        let mut of = ObjectStat::new(ObjectKind::Slot, name.clone(), name);
        of.detail = [text(row, "type"), text(row, "status")].join(", ");
        of.levels.insert("active".to_owned(), u64::from(is(row, "active")));
        of.levels.extend(number(row, "kept").map(|bytes| ("kept_bytes".to_owned(), bytes)));
        add(snapshot, of);
    }
}

/// What holds VACUUM up, and how far this server is behind if it is a standby.
fn horizon(snapshot: &mut Snapshot, answers: &Answers) {
    let Some(row) = rows(answers, "horizon").first() else { return };
    for (field, name, unit) in [
        ("transaction_s", level::OLDEST_TRANSACTION, "s"),
        ("prepared_s", level::OLDEST_PREPARED, "s"),
        ("standby_s", level::BEHIND_PRIMARY, "s"),
        ("vacuums", "VACUUMs under way", "tables"),
    ] {
        if let Some(value) = number(row, field) {
            snapshot.add_level(name, unit, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn filled(views: &[(&'static str, Value)]) -> Snapshot {
        let mut answers = Answers { version: 150_000, ..Answers::default() };
        for (name, rows) in views {
            let rows = rows
                .as_array()
                .expect("a list")
                .iter()
                .map(|row| row.as_object().expect("a row").clone());
            answers.rows.insert(name, rows.collect());
        }
        let mut snapshot = Snapshot::at(crate::Source::default(), 1, 1);
        fill(&mut snapshot, &answers);
        snapshot.check().expect("whole");
        snapshot
    }

    #[test]
    fn databases_indexes_and_standbys_are_told_apart() {
        let snapshot = filled(&[
            (
                "database",
                json!([{"datid": 0, "datname": null, "xact_commit": 3},
                       {"datid": 5, "datname": "shop", "xact_commit": 70, "active_time": 2.5,
                       "numbackends": 3}]),
            ),
            ("freezing", json!([{"oid": 5, "age": 150_000_000}, {"oid": 1, "age": 7}])),
            ("roles", json!([{"oid": 10, "name": "postgres"}])),
            (
                "indexes",
                json!([{"oid": 7, "name": "public.t_pkey", "table": "t", "pages": 2, "scans": 0,
                "rows": 0,
                        "valid": true, "needed": true}]),
            ),
            (
                "standbys",
                json!([{"id": "9 since x", "name": "walreceiver", "address": "10.0.0.2",
                "state": "streaming",
                        "sync": "async", "sent": 0, "behind": 4096, "replay": 12.5}]),
            ),
            (
                "slots",
                json!([{"name": "old", "type": "physical", "active": false, "status": "extended",
                              "kept": 5_000_000_000u64}]),
            ),
            (
                "horizon",
                json!([{"vacuums": 1, "transaction_s": 70.25, "prepared_s": null,
                "standby_s": null}]),
            ),
        ]);
        let of = |kind| snapshot.objects.iter().find(|object| object.kind == kind).expect("there");
        let database = of(ObjectKind::Database);
        assert_eq!((database.name.as_str(), database.count("commits")), ("shop", Some(70)));
        assert_eq!(
            (database.count("db_time_ns"), database.level("sessions")),
            (Some(2_500_000), Some(3))
        );
        assert_eq!(
            (database.level("frozen_age"), database.count("deadlocks")),
            (Some(150_000_000), None)
        );
        assert_eq!(of(ObjectKind::Index).level("bytes"), Some(16_384));
        let standby = of(ObjectKind::Standby);
        assert_eq!(
            (standby.name.as_str(), standby.detail.as_str()),
            ("walreceiver at 10.0.0.2", "streaming, async")
        );
        assert_eq!(
            (standby.level("behind_bytes"), standby.level("replay_ns")),
            (Some(4096), Some(12_500_000))
        );
        assert_eq!(
            (standby.level("flush_ns"), of(ObjectKind::Slot).level("active")),
            (None, Some(0))
        );
        let value = |name: &str| {
            snapshot.levels.iter().find(|level| level.name == name).map(|level| level.value)
        };
        assert_eq!(
            (value(level::OLDEST_TRANSACTION), value(level::FURTHEST_STANDBY)),
            (Some(70), Some(4096))
        );
        assert_eq!(
            (value(level::OLDEST_PREPARED), value(level::FROZEN_AGE)),
            (None, Some(150_000_000))
        );
    }
}
