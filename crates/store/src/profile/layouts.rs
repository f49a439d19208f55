//! What the built-in profiles say about the files of real databases: one table per database, the
//! names that are renamed into each other, and homes that are recognized. [`LAYOUTS`] and [`HOMES`]
//! have to have every profile.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::FileClass::{Data, Pass, Redo};
use super::*;

/// Files, and where they belong; the size of blocks means nothing for `pass`.
type Layout = &'static [(&'static str, FileClass, u32)];

/// The files that each profile is for.
const LAYOUTS: &[(&str, Layout)] = &[
    ("postgres", POSTGRES),
    ("mariadb", MARIADB),
    ("mysql", MYSQL_9),
    ("redis", REDIS),
    ("etcd", ETCD),
    ("sqlite", SQLITE),
    ("generic", UNKNOWN_PROGRAM),
    ("pass", &[("a", Pass, 0), ("pg_wal/1", Pass, 0), ("deep/er/y.ibd", Pass, 0)]),
];

const POSTGRES: Layout = &[
    ("pg_wal/00000001000000A900000042", Redo, 8192),
    ("pg_wal/xlogtemp.4711", Redo, 8192),
    ("pg_wal/RECOVERYXLOG", Redo, 8192),
    ("pg_wal/000000010000000000000003.partial", Redo, 8192),
    ("pg_wal/00000002.history", Redo, 8192),
    ("pg_wal/archive_status/00000001000000A900000042.ready", Pass, 0),
    ("pg_wal/summaries/0000000100000000010000280000000001000110.summary", Pass, 0),
    ("base/5/1259", Data, 8192),
    ("base/16384/16397", Data, 8192),
    ("base/16384/16397.1", Data, 8192),
    ("base/16384/16397_fsm", Data, 8192),
    ("base/16384/16397_vm", Data, 8192),
    ("base/16384/16397_init", Data, 8192),
    ("base/16384/t3_16404", Pass, 0),
    ("base/16384/t12_16404.1", Pass, 0),
    ("base/16384/PG_VERSION", Pass, 0),
    ("base/16384/pg_filenode.map", Pass, 0),
    ("base/16384/pg_internal.init", Pass, 0),
    ("base/pgsql_tmp/pgsql_tmp4711.0", Pass, 0),
    ("base/pgsql_tmp/pgsql_tmp4711.0.fileset/i0of4.p0.0", Pass, 0),
    ("global/pg_control", Data, 8192),
    ("global/1262", Data, 8192),
    ("global/pg_filenode.map", Pass, 0),
    ("pg_xact/0000", Data, 8192),
    ("pg_multixact/members/0000", Data, 8192),
    ("pg_multixact/offsets/0000", Data, 8192),
    ("pg_commit_ts/0000", Data, 8192),
    ("pg_subtrans/0000", Pass, 0),
    ("pg_notify/0000", Pass, 0),
    ("pg_twophase/00000000000002F1", Pass, 0),
    ("pg_replslot/standby/state", Pass, 0),
    ("pg_logical/replorigin_checkpoint", Pass, 0),
    ("pg_stat/pgstat.stat", Pass, 0),
    ("pg_stat_tmp/pgss_query_texts.stat", Pass, 0),
    ("pg_dynshmem/mmap.12", Pass, 0),
    ("pg_tblspc/16400/PG_16_202307071/5/16401", Data, 8192),
    ("pg_tblspc/16400/PG_16_202307071/5/t4_16401", Pass, 0),
    ("pg_tblspc/16400/PG_16_202307071/pgsql_tmp/pgsql_tmp1.0", Pass, 0),
    ("PG_VERSION", Pass, 0),
    ("postmaster.pid", Pass, 0),
    ("postmaster.opts", Pass, 0),
    ("postgresql.conf", Pass, 0),
    ("postgresql.auto.conf", Pass, 0),
    ("pg_hba.conf", Pass, 0),
    ("backup_label", Pass, 0),
    ("standby.signal", Pass, 0),
    ("current_logfiles", Pass, 0),
    ("log/postgresql-2024-01-01.log", Pass, 0),
];

const MARIADB: Layout = &[
    ("ibdata1", Data, 16384),
    ("ib_logfile0", Data, 4096),
    ("ib_logfile1", Data, 4096),
    ("#innodb_redo/#ib_redo10", Data, 4096),
    ("ibtmp1", Pass, 0),
    ("#innodb_temp/temp_1.ibt", Pass, 0),
    ("mysql.ibd", Data, 16384),
    ("undo001", Data, 16384),
    ("undo_002", Data, 16384),
    ("undo_extra.ibu", Data, 16384),
    ("#ib_16384_0.dblwr", Data, 16384),
    ("#ib_16384_0.bdblwr", Data, 16384),
    ("shop/orders.ibd", Data, 16384),
    ("shop/orders#P#p2024.ibd", Data, 16384),
    ("shop/#sql-alter-4711-9.ibd", Data, 16384),
    ("shop/FTS_0000000000000428_BEING_DELETED.ibd", Data, 16384),
    ("shop/orders.frm", Pass, 0),
    ("shop/orders_347.sdi", Pass, 0),
    ("shop/db.opt", Pass, 0),
    ("mysql/user.MAI", Data, 8192),
    ("mysql/user.MAD", Data, 8192),
    ("aria_log.00000001", Data, 8192),
    ("aria_log_control", Data, 8192),
    ("shop/old.MYI", Data, 4096),
    ("shop/old.MYD", Data, 4096),
    ("mysql/general_log.CSV", Pass, 0),
    ("binlog.000042", Redo, 4096),
    ("mysql-bin.000042", Redo, 4096),
    ("mariadb-bin.000042", Redo, 4096),
    ("db7-relay-bin.000003", Redo, 4096),
    ("relay-log-branch.000003", Redo, 4096),
    ("binlog-000001.ibb", Data, 16384),
    ("binlog.index", Pass, 0),
    ("db7-relay-bin.index", Pass, 0),
    ("mariadb-bin.index_crash_safe", Pass, 0),
    ("bin-log.000042", Redo, 4096),
    ("#binlog_cache_files/ML_00001", Pass, 0),
    ("ib_buffer_pool", Pass, 0),
    ("tc.log", Pass, 0),
    ("ddl_recovery.log", Pass, 0),
    ("multi-master.info", Pass, 0),
    ("auto.cnf", Pass, 0),
    ("server-key.pem", Pass, 0),
    ("db7.err", Pass, 0),
    ("db7.pid", Pass, 0),
    ("galera.cache", Pass, 0),
    ("grastate.dat", Pass, 0),
];

/// The whole directory of a MySQL 9.7.4 after a load, kills and restarts, as it was listed; 8.0.30
/// and newer have the same names.
const MYSQL_9: Layout = &[
    ("#ib_16384_0.dblwr", Data, 16384),
    ("#ib_16384_1.dblwr", Data, 16384),
    ("#innodb_redo/#ib_redo31", Data, 4096),
    ("#innodb_redo/#ib_redo32_tmp", Data, 4096),
    ("#innodb_temp/temp_10.ibt", Pass, 0),
    ("auto.cnf", Pass, 0),
    ("binlog.000016", Redo, 4096),
    ("binlog.index", Pass, 0),
    ("ca-key.pem", Pass, 0),
    ("d/t.ibd", Data, 16384),
    ("ib_buffer_pool", Pass, 0),
    ("ibdata1", Data, 16384),
    ("ibtmp1", Pass, 0),
    ("mysql.ibd", Data, 16384),
    ("mysql/general_log.CSM", Pass, 0),
    ("mysql/general_log.CSV", Pass, 0),
    ("mysql/general_log_224.sdi", Pass, 0),
    ("mysql_upgrade_history", Pass, 0),
    ("performance_schema/accounts_145.sdi", Pass, 0),
    ("public_key.pem", Pass, 0),
    ("sys/sys_config.ibd", Data, 16384),
    ("undo_001", Data, 16384),
    ("x2.ibu", Data, 16384),
];

const SQLITE: Layout = &[
    ("app.db", Data, 4096),
    ("app.sqlite3", Data, 4096),
    ("profile/places.sqlite", Data, 4096),
    ("Cookies", Data, 4096),
    ("app.db-wal", Redo, 4096),
    ("profile/places.sqlite-wal", Redo, 4096),
    ("app.db-journal", Data, 4096),
    ("app.db-shm", Pass, 0),
    ("app.db-mj9A3B5C7D", Pass, 0),
    ("etilqs_x1Y2z3", Pass, 0),
    ("app.log", Pass, 0),
    ("app.txt", Pass, 0),
    ("app.conf", Pass, 0),
    ("app.ini", Pass, 0),
    ("app.pid", Pass, 0),
    ("app.lock", Pass, 0),
    ("app.sock", Pass, 0),
];

const REDIS: Layout = &[
    ("appendonlydir/appendonly.aof.1.incr.aof", Data, 4096),
    ("appendonlydir/temp-appendonly.aof.incr", Data, 4096),
    ("appendonlydir/appendonly.aof.1.base.rdb", Pass, 0),
    ("appendonlydir/appendonly.aof.1.base.aof", Pass, 0),
    ("appendonlydir/appendonly.aof.manifest", Pass, 0),
    ("appendonly.aof", Data, 4096),
    ("dump.rdb", Pass, 0),
    ("temp-4711.rdb", Pass, 0),
    ("temp-rewriteaof-bg-4711.aof", Pass, 0),
    ("nodes.conf", Pass, 0),
    ("redis.conf", Pass, 0),
];

/// Of etcd 3.7.3, as they were seen while it made a directory, was loaded, made snapshots, was
/// defragmented and killed, and repaired a torn log; `.snap.db` and `tmp*` as its source has them.
const ETCD: Layout = &[
    ("member/wal.tmp/0000000000000000-0000000000000000.wal", Data, 4096),
    ("member/wal/0000000000000000-0000000000000000.wal", Data, 4096),
    ("member/wal/0000000000000001-000000000000042e.wal", Data, 4096),
    ("member/wal/0000000000000001-000000000000042e.wal.broken", Pass, 0),
    ("member/wal/0.tmp", Data, 4096),
    ("member/wal/1.tmp", Data, 4096),
    ("0000000000000000-0000000000000000.wal", Data, 4096),
    ("0.tmp", Data, 4096),
    ("member/snap/db", Pass, 0),
    ("member/snap/db.tmp.1703165458", Pass, 0),
    ("member/snap/tmp3390871255", Pass, 0),
    ("member/snap/00000000000186a2.snap.db", Pass, 0),
    ("member/snap/0000000000000002-000000000000057f.snap", Pass, 0),
    ("member/snap/0000000000000002-000000000000057f.snap.tmp", Pass, 0),
    ("member/snap/0000000000000002-000000000000057f.snap.broken", Pass, 0),
    ("member/snap/.touch", Pass, 0),
];

const UNKNOWN_PROGRAM: Layout = &[
    ("segment-0001", Data, 4096),
    ("a/b/c/table.dat", Data, 4096),
    ("journal-wal", Data, 4096),
    ("state.json.tmp", Data, 4096),
    ("db.pid", Pass, 0),
    ("a/LOCK", Pass, 0),
    ("server.log", Pass, 0),
    ("db.lock", Pass, 0),
    ("db.sock", Pass, 0),
    ("db.conf", Pass, 0),
    ("my.cnf", Pass, 0),
    ("a/db.ini", Pass, 0),
    ("server.err", Pass, 0),
    ("a/server.out", Pass, 0),
    ("core", Pass, 0),
    ("a/core.4711", Pass, 0),
];

#[test]
fn each_file_belongs_where_its_database_needs_it() {
    for (profile, layout) in LAYOUTS {
        let profile = Profile::named(profile).unwrap();
        for (path, class, block_size) in *layout {
            let found = profile.placement(Path::new(path));
            assert_eq!(found.class, *class, "{}: {path}", profile.name());
            if found.class != Pass {
                assert_eq!(found.block_size, *block_size, "{}: {path}", profile.name());
            }
        }
    }
}

#[test]
fn an_unknown_program_gets_no_file_written_in_place() {
    assert!(Profile::named("generic").unwrap().rules.iter().all(|r| r.placement.class != Redo));
    assert!(UNKNOWN_PROGRAM.iter().all(|(_, class, _)| *class != Redo));
}

/// A pattern that no name matches is a spelling mistake, or its file is missing here.
#[test]
fn every_pattern_of_a_built_in_profile_decides_about_a_file_of_its_layout() {
    let mut idle = Vec::new();
    for (name, text) in BUILT_IN {
        let profile = Profile::built_in(name, text);
        let layouts: Vec<Layout> = LAYOUTS
            .iter()
            .filter(|(other, _)| Profile::named(other).unwrap().name() == *name)
            .map(|(_, layout)| *layout)
            .collect();
        assert!(!layouts.is_empty(), "add the files that `{name}` is for to LAYOUTS");
        let mut deciding: BTreeSet<usize> = BTreeSet::new();
        for (path, ..) in layouts.into_iter().flatten() {
            let matching = profile.patterns.matches(path);
            let first = matching.iter().map(|pattern| profile.rule_of[*pattern]).min();
            deciding.extend(matching.iter().filter(|p| Some(profile.rule_of[**p]) == first));
        }
        let parsed: toml::Table = text.parse().unwrap();
        let rules = parsed.get("rule").and_then(toml::Value::as_array).into_iter().flatten();
        let patterns = rules.flat_map(|rule| rule["files"].as_array().unwrap());
        let without = patterns.enumerate().filter(|(n, _)| !deciding.contains(n));
        idle.extend(without.map(|(_, pattern)| format!("{name}: {pattern}")));
    }
    assert!(idle.is_empty(), "no file in LAYOUTS is decided by\n{}", idle.join("\n"));
}

#[test]
fn every_profile_in_the_directory_is_built_in() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles");
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files: BTreeSet<_> =
        files.map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    let built_in: BTreeSet<_> = BUILT_IN.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(files, built_in, "add the file to BUILT_IN");
}

#[test]
fn a_file_keeps_its_placement_when_its_program_renames_it() {
    let renames = [
        ("postgres", "pg_wal/xlogtemp.4711", "pg_wal/000000010000000000000007"),
        ("postgres", "pg_wal/xlogtemp.4711", "pg_wal/00000002.history"),
        ("postgres", "pg_wal/RECOVERYXLOG", "pg_wal/000000010000000000000007"),
        ("postgres", "pg_wal/000000010000000000000003", "pg_wal/000000010000000000000103"),
        ("postgres", "pg_wal/000000010000000000000003", "pg_wal/000000010000000000000003.partial"),
        (
            "postgres",
            "pg_wal/archive_status/000000010000000000000003.ready",
            "pg_wal/archive_status/000000010000000000000003.done",
        ),
        ("postgres", "base/5/pg_internal.init.4711", "base/5/pg_internal.init"),
        ("postgres", "base/5/pg_filenode.map.tmp", "base/5/pg_filenode.map"),
        ("postgres", "pg_replslot/standby/state.tmp", "pg_replslot/standby/state"),
        ("postgres", "postgresql.auto.conf.tmp", "postgresql.auto.conf"),
        ("postgres", "backup_label", "backup_label.old"),
        ("mariadb", "ib_logfile101", "ib_logfile0"),
        ("mariadb", "#innodb_redo/#ib_redo7_tmp", "#innodb_redo/#ib_redo7"),
        ("mariadb", "shop/#sql-alter-4711-9.ibd", "shop/orders.ibd"),
        ("mariadb", "shop/orders.ibd", "shop/#sql-backup-4711-9.ibd"),
        ("mariadb", "shop/#sql-alter-4711-9.MYD", "shop/orders.MYD"),
        ("mariadb", "ib_buffer_pool.incomplete", "ib_buffer_pool"),
        (
            "redis",
            "appendonlydir/temp-appendonly.aof.incr",
            "appendonlydir/appendonly.aof.2.incr.aof",
        ),
        ("redis", "temp-rewriteaof-bg-4711.aof", "appendonlydir/appendonly.aof.2.base.rdb"),
        ("redis", "temp-4711.rdb", "dump.rdb"),
        (
            "redis",
            "appendonlydir/temp-appendonly.aof.manifest",
            "appendonlydir/appendonly.aof.manifest",
        ),
        (
            "etcd",
            "member/wal.tmp/0000000000000000-0000000000000000.wal",
            "member/wal/0000000000000000-0000000000000000.wal",
        ),
        ("etcd", "member/wal/1.tmp", "member/wal/0000000000000001-000000000000042e.wal"),
        ("etcd", "member/snap/db.tmp.1703165458", "member/snap/db"),
        ("etcd", "member/snap/tmp3390871255", "member/snap/00000000000186a2.snap.db"),
        ("etcd", "member/snap/00000000000186a2.snap.db", "member/snap/db"),
        (
            "etcd",
            "member/snap/0000000000000002-000000000000057f.snap.tmp",
            "member/snap/0000000000000002-000000000000057f.snap",
        ),
        ("generic", "state.json.tmp", "state.json"),
    ];
    for (profile, from, to) in renames {
        let profile = Profile::named(profile).unwrap();
        assert_eq!(
            profile.placement(Path::new(from)),
            profile.placement(Path::new(to)),
            "{}: {from} becomes {to}",
            profile.name()
        );
    }
}

#[test]
fn every_built_in_profile_can_be_read_and_says_why_for_each_rule() {
    for profile in Profile::builtin() {
        assert!(!profile.description().is_empty());
        assert!(profile.rules.iter().all(|rule| !rule.why.is_empty()), "{}", profile.name());
    }
}

/// Files of homes, and the profile that they are recognized as.
const HOMES: &[(&[&str], Option<&str>)] = &[
    (&["PG_VERSION", "global/pg_control", "base/5/1259"], Some("postgres")),
    (&["PG_VERSION"], None),
    (&["ibdata1", "ib_logfile0"], Some("mariadb")),
    (&["mysql.ibd"], Some("mariadb")),
    (&["aria_log_control"], Some("mariadb")),
    (
        &["#innodb_redo/#ib_redo31", "auto.cnf", "ibdata1", "undo_001", "binlog.000001"],
        Some("mariadb"),
    ),
    (&["appendonlydir/appendonly.aof.manifest"], Some("redis")),
    (&["dump.rdb"], Some("redis")),
    (&["member/snap/db", "member/wal/0000000000000000-0000000000000000.wal"], Some("etcd")),
    (&["member/snap/db"], None),
    (&["app.sqlite3"], Some("sqlite")),
    (&["app.db-wal"], Some("sqlite")),
    (&["notes/app.db"], None),
    (&["notes.txt"], None),
    (&[], None),
];

#[test]
fn a_home_is_recognized_by_the_files_in_it() {
    for (files, expected) in HOMES {
        let home = tempfile::tempdir().unwrap();
        for file in *files {
            let path = home.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"").unwrap();
        }
        let found = Profile::detect(home.path());
        assert_eq!(found.as_ref().map(Profile::name), *expected, "{files:?}");
    }
    assert!(Profile::detect(Path::new("/does/not/exist")).is_none());
    for profile in Profile::builtin().filter(|profile| !profile.detect.is_empty()) {
        let recognized = HOMES.iter().any(|(_, expected)| *expected == Some(profile.name()));
        assert!(recognized, "add a home that is recognized as `{}` to HOMES", profile.name());
    }
}

#[test]
fn what_is_never_needed_after_a_crash_is_said_to_be_so_and_nothing_else() {
    let temporary =
        |profile: &str, path: &str| Profile::named(profile).unwrap().is_temporary(Path::new(path));
    for path in ["base/pgsql_tmp/pgsql_tmp12.0", "base/5/t3_16400"] {
        assert!(temporary("postgresql", path), "{path}");
    }
    for path in ["ibtmp1", "#innodb_temp/temp_1.ibt"] {
        assert!(temporary("mysql", path), "{path}");
    }
    for path in
        ["base/5/16400", "pg_wal/1", "postgresql.auto.conf", "pg_twophase/1", "global/pg_control"]
    {
        assert!(!temporary("postgres", path), "{path}");
    }
    assert!(
        !temporary("valkey", "dump.rdb")
            && !temporary("mariadb", "db/t.frm")
            && !temporary("pass", "x")
    );
}

#[test]
fn the_profile_pass_lets_everything_pass() {
    let profile = Profile::named("pass").unwrap();
    for path in ["a", "pg_wal/1", "x.db-wal", "deep/er/y.ibd"] {
        assert_eq!(profile.placement(Path::new(path)).class, FileClass::Pass);
    }
    assert_eq!(profile.redo_at_least(), 0);
}
