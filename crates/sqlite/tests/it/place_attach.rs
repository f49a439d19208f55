//! Attaching and detaching a database file: what is kept, what is found again, and that a process
//! shares one place.

use crate::support::{Bench, connect, fold, patiently, rows, stock};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::Arc;
use tiersmith_sqlite::place::{
    FastSpec, Place, Placement, Role, Standing, Want, attachment, status,
};
use tiersmith_store::{FileClass, OpenMode};

#[test]
fn detaching_gives_back_the_same_file_with_its_mode_and_bytes() {
    let bench = Bench::new();
    bench.fill(10);
    std::fs::set_permissions(bench.database(), std::fs::Permissions::from_mode(0o640)).unwrap();
    let before = std::fs::read(bench.database()).unwrap();
    let inode = std::fs::metadata(bench.database()).unwrap().ino();
    let place = bench.attach().unwrap().unwrap();
    let stub = std::fs::metadata(bench.database()).unwrap();
    assert_eq!((stub.mode() & 0o777, stub.nlink()), (0o640, 1));
    assert!(stub.ino() != inode && stub.len() < 4096);
    let text = std::fs::read_to_string(bench.database()).unwrap();
    assert!(text.contains("tiersmith detach") && text.contains("EMULATED"), "{text}");
    drop(place);
    bench.detach().unwrap();
    let after = std::fs::metadata(bench.database()).unwrap();
    assert_eq!((after.mode() & 0o777, after.ino(), after.nlink()), (0o640, inode, 1));
    assert!(std::fs::read(bench.database()).unwrap() == before);
    assert!(!bench.home().exists());
}

/// SQLite holds a mutex of its own while it opens with a shared cache: attaching must not open with
/// one too, or waits for itself.
#[test]
fn a_database_that_is_opened_with_a_shared_cache_is_attached() {
    let bench = Bench::new();
    bench.fill(10);
    let db = connect(&format!("{}&cache=shared", bench.uri())).unwrap();
    let tables: i64 =
        db.query_row("SELECT COUNT(*) FROM sqlite_master", [], |row| row.get(0)).unwrap();
    assert!(tables > 0 && bench.home().is_dir());
}

#[test]
fn what_was_written_through_the_place_is_there_after_reopening_and_detaching() {
    let bench = Bench::new();
    bench.fill(10);
    let page = vec![7; 4096];
    {
        let place = bench.attach().unwrap().unwrap();
        let file = place.home().open(place.name(Role::Main), OpenMode::WRITE).unwrap();
        file.write(8192, &page).unwrap();
    }
    assert_eq!(std::fs::metadata(bench.home().join("db")).unwrap().len(), 8192);
    {
        let place = bench.open().unwrap().unwrap();
        assert!(place.is_emulated());
        let file = place.home().open(place.name(Role::Main), OpenMode::READ).unwrap();
        let mut found = vec![0; 4096];
        file.read(8192, &mut found).unwrap();
        assert_eq!(found, page);
    }
    let blocks = status(&bench.database()).unwrap().blocks.unwrap();
    assert_eq!(blocks.dirty_bytes, 4096);
    assert!(blocks.media.iter().all(|m| m.contains("EMULATED")), "{:?}", blocks.media);
    bench.detach().unwrap();
    assert_eq!(std::fs::read(bench.database()).unwrap()[8192..], page);
    assert_eq!(status(&bench.database()).unwrap().standing, Standing::Plain);
}

#[test]
fn all_opens_of_a_process_share_one_place_whatever_the_path_looks_like() {
    let bench = Bench::new();
    bench.fill(1);
    symlink(bench.database(), bench.file("link.db")).unwrap();
    let linked = Want { fast: Some(bench.fast()), ..Want::default() };
    let first = patiently(|| Place::open(&bench.file("link.db"), &linked, &fold)).unwrap().unwrap();
    assert_eq!(first.database(), bench.database().canonicalize().unwrap());
    let second = bench.open().unwrap().unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    assert!(Arc::ptr_eq(&first, &Place::find(&bench.file("./link.db")).unwrap()));
    assert!(bench.detach_at_once().unwrap_err().is_busy());
    drop((first, second));
    assert!(Place::find(&bench.database()).is_none());
    bench.detach().unwrap();
}

#[test]
fn threads_that_open_and_close_at_the_same_time_never_see_it_busy() {
    let bench = Bench::in_memory();
    bench.fill(1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let place = bench.attach().unwrap().unwrap();
                    let file = place.home().open(place.name(Role::Main), OpenMode::WRITE).unwrap();
                    file.read(0, &mut [0; 100]).unwrap();
                }
            });
        }
    });
    bench.detach().unwrap();
    assert_eq!(rows(&bench.database()).unwrap(), 1);
}

#[test]
fn the_block_size_is_the_page_size_within_what_the_store_has() {
    for (page, expected) in
        [(512, 4096), (4096, 4096), (8192, 8192), (32768, 32768), (65536, 32768)]
    {
        let bench = Bench::new();
        let db = stock(&bench.database()).unwrap();
        db.execute_batch(&format!("PRAGMA page_size = {page}; CREATE TABLE t(n)")).unwrap();
        drop(db);
        let place = bench.attach().unwrap().unwrap();
        let file = place.home().open(place.name(Role::Main), OpenMode::WRITE).unwrap();
        assert_eq!(file.block_size().unwrap().bytes(), expected, "page size {page}");
    }
}

#[test]
fn the_placement_is_kept_and_decides_the_classes() {
    use FileClass::{Data, Pass, Redo};
    for (placement, expected) in [
        (Placement::All, [Data, Redo, Data]),
        (Placement::Redo, [Pass, Redo, Data]),
        (Placement::Data, [Data, Pass, Pass]),
    ] {
        let bench = Bench::new();
        bench.fill(1);
        drop(bench.attach_with(FastSpec { place: placement, ..bench.fast() }).unwrap().unwrap());
        let place = bench.open().unwrap().unwrap();
        assert_eq!(place.spec().place, placement);
        let class = |role| place.home().open(place.name(role), OpenMode::CREATE).unwrap().class();
        assert_eq!([Role::Main, Role::Wal, Role::Journal].map(class), expected);
    }
}

#[test]
fn a_dead_journal_beside_the_database_goes_away_and_a_hot_one_is_rolled_back() {
    let bench = Bench::new();
    bench.fill(10);
    let db = stock(&bench.database()).unwrap();
    db.execute_batch("PRAGMA journal_mode = PERSIST; INSERT INTO t VALUES (10)").unwrap();
    // A hot journal: a copy of the files in the middle of a transaction, as a killed process leaves
    // them.
    db.execute_batch("PRAGMA cache_size = 1; BEGIN").unwrap();
    for n in 0..2000 {
        db.execute("INSERT INTO t VALUES (?)", [n]).unwrap();
    }
    let hot = Bench::new();
    for ending in ["", "-journal"] {
        std::fs::copy(bench.file(&format!("app.db{ending}")), hot.file(&format!("app.db{ending}")))
            .unwrap();
    }
    db.execute_batch("ROLLBACK").unwrap();
    drop(db);
    for bench in [bench, hot] {
        assert!(bench.file("app.db-journal").exists());
        drop(bench.attach().unwrap().unwrap());
        assert!(!bench.file("app.db-journal").exists());
        bench.detach().unwrap();
        assert_eq!(rows(&bench.database()).unwrap(), 11);
    }
}

#[test]
fn databases_in_one_directory_are_independent() {
    let bench = Bench::new();
    let attach = |n: u32| {
        let path = bench.file(&format!("{n}.db"));
        let db = stock(&path).unwrap();
        db.execute_batch("CREATE TABLE t(n)").unwrap();
        for row in 0..n {
            db.execute("INSERT INTO t VALUES (?)", [row]).unwrap();
        }
        drop(db);
        let fast = FastSpec { members: vec![bench.file(&format!("tier{n}"))], ..bench.fast() };
        Place::open(&path, &Want { fast: Some(fast), ..Want::default() }, &fold).unwrap().unwrap()
    };
    let places: Vec<_> = (1..4).map(attach).collect();
    drop(places);
    for n in [2, 1, 3] {
        let path = bench.file(&format!("{n}.db"));
        assert_eq!(status(&path).unwrap().standing, Standing::Attached);
        Place::detach(&path, &fold).unwrap();
        assert_eq!(rows(&path).unwrap(), n);
    }
}

#[test]
fn several_members_are_striped_and_found_again() {
    let bench = Bench::new();
    bench.fill(10);
    let members = vec![bench.file("fast a"), bench.file("fast%b")];
    drop(
        bench.attach_with(FastSpec { members: members.clone(), ..bench.fast() }).unwrap().unwrap(),
    );
    assert_eq!(bench.open().unwrap().unwrap().spec().members, members);
    bench.detach().unwrap();
    assert_eq!(rows(&bench.database()).unwrap(), 10);
}

#[test]
fn a_new_database_begins_attached_and_empty() {
    let bench = Bench::new();
    let missing = Want { fast: Some(bench.fast()), ..Want::default() };
    assert!(Place::open(&bench.database(), &missing, &fold).unwrap().is_none());
    assert!(!bench.database().exists() && !bench.tier().exists());
    drop(bench.attach().unwrap().unwrap());
    assert_eq!(std::fs::metadata(bench.home().join("db")).unwrap().len(), 0);
    bench.detach().unwrap();
    assert_eq!(std::fs::metadata(bench.database()).unwrap().len(), 0);
}

#[test]
fn a_plain_database_is_left_to_the_stock_vfs() {
    let bench = Bench::new();
    assert!(bench.open().unwrap().is_none());
    bench.fill(1);
    assert!(bench.open().unwrap().is_none());
    assert!(Place::find(&bench.database()).is_none());
}

#[test]
fn how_a_database_is_attached_is_told_without_opening_it() {
    let bench = Bench::new();
    bench.fill(1);
    assert_eq!(attachment(&bench.database()).unwrap(), None);
    let place = bench.attach().unwrap().unwrap();
    // Also while somebody has it open, and when its tier is gone.
    let (home, spec) = attachment(&bench.database()).unwrap().unwrap();
    assert_eq!(home, bench.home().canonicalize().unwrap());
    assert_eq!((&spec.members, spec.emulate), (&vec![bench.tier()], true));
    drop(place);
    std::fs::remove_file(bench.tier()).unwrap();
    assert_eq!(attachment(&bench.database()).unwrap(), Some((home, spec)));
}
