//! What the built-in profiles say about the files of real databases: one table per database, and
//! the names that are renamed into each other.

use std::fs;
use std::path::Path;

use super::FileClass::{Data, Pass, Redo};
use super::*;

fn expect(profile: &str, table: &[(&str, FileClass, u32)]) {
    let profile = Profile::named(profile).unwrap();
    for (path, class, block_size) in table {
        let found = profile.placement(Path::new(path));
        assert_eq!(found.class, *class, "{}: {path}", profile.name());
        if found.class != Pass {
            assert_eq!(found.block_size, *block_size, "{}: {path}", profile.name());
        }
    }
}

#[test]
fn postgres_files_belong_where_postgres_needs_them() {
    expect(
        "postgres",
        &[
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
        ],
    );
}

#[test]
fn mariadb_and_mysql_files_belong_where_they_need_them() {
    expect(
        "mariadb",
        &[
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
        ],
    );
}

/// The whole directory of a MySQL 9.7.4 after a load, kills and restarts, as it was listed; 8.0.30
/// and newer have the same names.
#[test]
fn the_files_of_a_mysql_server_that_ran_belong_where_it_needs_them() {
    expect(
        "mysql",
        &[
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
        ],
    );
}

#[test]
fn sqlite_files_belong_where_sqlite_needs_them() {
    expect(
        "sqlite",
        &[
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
        ],
    );
}

#[test]
fn redis_and_valkey_files_belong_where_they_need_them() {
    expect(
        "redis",
        &[
            ("appendonlydir/appendonly.aof.1.incr.aof", Redo, 4096),
            ("appendonlydir/appendonly.aof.1.base.rdb", Pass, 0),
            ("appendonlydir/appendonly.aof.1.base.aof", Pass, 0),
            ("appendonlydir/appendonly.aof.manifest", Pass, 0),
            ("appendonly.aof", Redo, 4096),
            ("dump.rdb", Pass, 0),
            ("temp-4711.rdb", Pass, 0),
            ("temp-rewriteaof-bg-4711.aof", Pass, 0),
            ("nodes.conf", Pass, 0),
            ("redis.conf", Pass, 0),
        ],
    );
}

#[test]
fn an_unknown_program_gets_no_file_written_in_place() {
    expect(
        "generic",
        &[
            ("segment-0001", Data, 4096),
            ("a/b/c/table.dat", Data, 4096),
            ("journal-wal", Data, 4096),
            ("state.json.tmp", Data, 4096),
            ("db.pid", Pass, 0),
            ("a/LOCK", Pass, 0),
            ("server.log", Pass, 0),
        ],
    );
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
    let names: Vec<String> = Profile::builtin()
        .map(|profile| {
            assert!(!profile.description().is_empty());
            assert!(profile.rules.iter().all(|rule| !rule.why.is_empty()), "{}", profile.name());
            profile.name().to_owned()
        })
        .collect();
    assert_eq!(names, ["postgres", "mariadb", "redis", "sqlite", "generic", "pass"]);
}

#[test]
fn a_home_is_recognized_by_the_files_in_it() {
    let homes: [(&[&str], Option<&str>); 13] = [
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
        (&["app.sqlite3"], Some("sqlite")),
        (&["app.db-wal"], Some("sqlite")),
        (&["notes/app.db"], None),
        (&["notes.txt"], None),
        (&[], None),
    ];
    for (files, expected) in homes {
        let home = tempfile::tempdir().unwrap();
        for file in files {
            let path = home.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"").unwrap();
        }
        let found = Profile::detect(home.path());
        assert_eq!(found.as_ref().map(Profile::name), expected, "{files:?}");
    }
    assert!(Profile::detect(Path::new("/does/not/exist")).is_none());
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
