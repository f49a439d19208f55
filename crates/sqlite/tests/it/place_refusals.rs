//! What attaching, opening and detaching refuse: each with a sentence that says what to do, and
//! nothing changed.

use crate::support;

use crate::support::{Bench, again, assert_not_a_database, fold, rows, stock};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use tiersmith_sqlite::place::{FastSpec, Place, PlaceError, Placement, Standing, Want, status};

/// Asserts that `refused` says all of `words`, and that every file is what it was before `work`.
fn refuses<T: std::fmt::Debug>(
    bench: &Bench,
    words: &[&str],
    work: impl FnOnce() -> Result<T, PlaceError>,
) -> PlaceError {
    let before = bench.contents(&[]);
    let refused = work().unwrap_err();
    let message = refused.to_string();
    for word in words {
        assert!(message.contains(word), "{word:?} is not in: {message}");
    }
    let after = bench.contents(&[]);
    let names = |files: &[(std::path::PathBuf, u32, Vec<u8>)]| {
        files.iter().map(|(path, ..)| path.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&before), names(&after), "{message}");
    for (before, after) in before.iter().zip(&after) {
        assert!(before == after, "{} changed: {message}", before.0.display());
    }
    refused
}

/// An attached database with 10 rows that is not open.
fn attached() -> Bench {
    let bench = Bench::new();
    bench.fill(10);
    drop(bench.attach().unwrap().unwrap());
    bench
}

#[test]
fn a_database_this_process_has_open_is_not_attached() {
    let bench = Bench::new();
    bench.fill(10);
    let db = stock(&bench.database()).unwrap();
    assert_eq!(db.query_row("SELECT count(*) FROM t", [], |r| r.get::<_, u32>(0)).unwrap(), 10);
    let refused =
        refuses(&bench, &["this process has it open", "close it"], || bench.attach_at_once());
    assert!(refused.is_busy());
    // Refusing takes no lock away from it (`refuses` would: it opens and closes the file).
    db.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES (10)").unwrap();
    assert!(bench.attach_at_once().unwrap_err().is_busy());
    let mut other = again(
        &full_name!("another_process_with_a_stock_connection"),
        ("TIERSMITH_TEST_STOCK", "write"),
    );
    let other = other.env("TIERSMITH_TEST_PATH", bench.database()).output().unwrap();
    assert!(String::from_utf8_lossy(&other.stdout).contains("database is locked"), "{other:?}");
    db.execute_batch("COMMIT").unwrap();
    drop(db);
    drop(bench.attach().unwrap().unwrap());
    bench.detach().unwrap();
    assert_eq!(rows(&bench.database()).unwrap(), 11);
}

/// Not a test: what others start.
#[test]
fn another_process_with_a_stock_connection() {
    let Ok(role) = std::env::var("TIERSMITH_TEST_STOCK") else { return };
    let db = stock(Path::new(&std::env::var_os("TIERSMITH_TEST_PATH").unwrap())).unwrap();
    match &role[..] {
        "write" => {
            println!("{:?}", db.execute("INSERT INTO t VALUES (99)", []).map_err(|e| e.to_string()))
        }
        "idle" | "transaction" => {
            if role == "transaction" {
                db.execute_batch("BEGIN IMMEDIATE").unwrap();
            }
            db.query_row("SELECT count(*) FROM t", [], |_| Ok(())).unwrap();
            println!("\nready");
            std::io::stdout().flush().unwrap();
            std::io::stdin().read_line(&mut String::new()).unwrap();
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_database_another_process_has_open_is_not_attached_even_when_it_is_idle() {
    for role in ["transaction", "idle"] {
        let bench = Bench::new();
        bench.fill(10);
        let mut other = again(
            &full_name!("another_process_with_a_stock_connection"),
            ("TIERSMITH_TEST_STOCK", role),
        );
        let mut other = other.env("TIERSMITH_TEST_PATH", bench.database()).spawn().unwrap();
        let ready =
            BufReader::new(other.stdout.take().unwrap()).lines().any(|l| l.unwrap() == "ready");
        assert!(ready);
        let refused = refuses(&bench, &["close it there and try again"], || bench.attach_at_once());
        assert!(refused.is_busy(), "{role}: {refused}");
        drop(other.stdin.take());
        other.wait().unwrap();
        drop(bench.attach().unwrap().unwrap());
    }
}

#[test]
fn the_tier_of_a_database_that_was_removed_says_how_it_becomes_free() {
    let bench = Bench::new();
    bench.fill(1);
    drop(bench.attach().unwrap());
    std::fs::remove_file(bench.database()).unwrap();
    std::fs::remove_dir_all(bench.home()).unwrap();
    bench.fill(2);
    let said = refuses(&bench, &["belongs to", "removing the tier's file frees it"], || {
        bench.attach_at_once()
    });
    assert!(!said.to_string().contains("first"), "{said}");
    std::fs::remove_file(bench.tier()).unwrap();
    drop(bench.attach().unwrap().unwrap());
    bench.detach().unwrap();
    assert_eq!(rows(&bench.database()).unwrap(), 2);
}

/// Not a test: what others start.
#[test]
fn another_process_that_opens_the_place() {
    let Ok(path) = std::env::var("TIERSMITH_TEST_OPEN") else { return };
    match Place::open(Path::new(&path), &Want::default(), &fold) {
        Ok(_) => println!("opened"),
        Err(e) => println!("busy {} read-only {} {e}", e.is_busy(), e.is_readonly()),
    }
}

#[test]
fn a_second_process_is_told_which_process_has_the_database() {
    let bench = attached();
    let place = bench.open().unwrap().unwrap();
    let path = bench.database().display().to_string();
    let said =
        again(&full_name!("another_process_that_opens_the_place"), ("TIERSMITH_TEST_OPEN", &path))
            .output()
            .unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let me = format!("process {}", std::process::id());
    assert!(said.contains("busy true") && said.contains(&me), "{said}");
    drop(place);
    let said =
        again(&full_name!("another_process_that_opens_the_place"), ("TIERSMITH_TEST_OPEN", &path))
            .output()
            .unwrap();
    assert!(String::from_utf8_lossy(&said.stdout).contains("opened"));
}

#[test]
fn a_stock_sqlite_is_refused_while_it_is_attached_open_or_not() {
    let bench = attached();
    assert_not_a_database(&bench.database());
    let place = bench.open().unwrap().unwrap();
    assert_not_a_database(&bench.database());
    // Past the stub, at the file in the directory: locked while it is open, and barred always.
    assert_barred(&bench.home().join("db"));
    drop(place);
    assert_barred(&bench.home().join("db"));
    // Nothing SQLite leaves beside the stub.
    let names: Vec<_> =
        std::fs::read_dir(bench.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

/// A stock SQLite neither reads nor writes the file, in whatever way it is opened.
fn assert_barred(path: &Path) {
    use rusqlite::ffi::ErrorCode::{CannotOpen, DatabaseBusy, SystemIoFailure};
    let before = std::fs::read(path).unwrap();
    for sql in [
        "SELECT * FROM t",
        "INSERT INTO t VALUES (99)",
        "PRAGMA journal_mode = OFF; INSERT INTO t VALUES (99)",
        "PRAGMA journal_mode = MEMORY; INSERT INTO t VALUES (99)",
        "PRAGMA journal_mode = WAL; INSERT INTO t VALUES (99)",
        "PRAGMA locking_mode = EXCLUSIVE; INSERT INTO t VALUES (99)",
        "VACUUM",
    ] {
        let past = stock(path).unwrap();
        // An open place has SQLite's locks too.
        past.busy_timeout(std::time::Duration::ZERO).unwrap();
        let said = past.execute_batch(sql).unwrap_err();
        let code = said.sqlite_error_code();
        assert!(matches!(code, Some(CannotOpen | SystemIoFailure | DatabaseBusy)), "{sql}: {said}");
    }
    assert!(std::fs::read(path).unwrap() == before, "it was written");
}

#[test]
fn a_stock_sqlite_is_refused_past_the_stub_in_every_journal_mode() {
    for mode in ["DELETE", "TRUNCATE", "PERSIST", "WAL"] {
        let bench = Bench::new();
        bench.fill(10);
        stock(&bench.database())
            .unwrap()
            .execute_batch(&format!("PRAGMA journal_mode = {mode}"))
            .unwrap();
        let connection = support::connect(&bench.uri()).unwrap();
        connection.execute_batch("INSERT INTO t VALUES (10)").unwrap();
        let db = bench.home().join("db");
        assert_barred(&db);
        drop(connection);
        assert_barred(&db);
        // One bar is enough, and the next open raises the other.
        for bar in ["db-wal", "db-journal"] {
            std::fs::remove_dir(bench.home().join(bar)).unwrap();
            assert_barred(&db);
            drop(bench.open().unwrap().unwrap());
            assert!(bench.home().join(bar).is_dir());
        }
        bench.detach().unwrap();
        assert_eq!(rows(&bench.database()).unwrap(), 11, "{mode}");
    }
}

#[test]
fn a_file_in_the_place_of_a_bar_stops_the_open() {
    let bench = attached();
    let bar = bench.home().join("db-wal");
    std::fs::remove_dir(&bar).unwrap();
    std::fs::write(&bar, "frames of somebody").unwrap();
    refuses(&bench, &["db-wal is there", "detach --keep-both"], || bench.open());
    refuses(&bench, &["db-wal is there", "detach --keep-both"], || bench.detach());
    std::fs::remove_file(&bar).unwrap();
    bench.detach().unwrap();
    assert_eq!(rows(&bench.database()).unwrap(), 10);
}

#[test]
fn a_database_with_two_names_is_not_attached() {
    let bench = Bench::new();
    bench.fill(10);
    std::fs::hard_link(bench.database(), bench.file("other.db")).unwrap();
    refuses(&bench, &["has 2 names", "Remove the others"], || bench.attach());
    assert_eq!(rows(&bench.database()).unwrap(), 10);
}

#[test]
fn a_tier_that_vanished_or_was_cut_short_is_named() {
    let bench = attached();
    let tier = std::fs::read(bench.tier()).unwrap();
    std::fs::remove_file(bench.tier()).unwrap();
    let tier_path = bench.tier().display().to_string();
    refuses(&bench, &[&tier_path, "nothing is there"], || bench.open());
    refuses(&bench, &[&tier_path, "nothing is there"], || bench.attach());
    refuses(&bench, &[&tier_path, "nothing is there"], || bench.detach());
    // Until no process that another test is just starting has copies of this one's locks.
    let trouble = (0..120_000).find_map(|_| {
        let found = status(&bench.database()).unwrap();
        assert_eq!(found.standing, Standing::Attached);
        let trouble = found.trouble.unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
        trouble.contains(&tier_path).then_some(trouble)
    });
    assert!(trouble.is_some());
    std::fs::write(bench.tier(), b"").unwrap();
    refuses(&bench, &[&tier_path, "there is nothing on"], || bench.open());
    std::fs::write(bench.tier(), &tier[..4 << 20]).unwrap();
    refuses(&bench, &[&tier_path, "cut short", "full length"], || bench.open());
    std::fs::write(bench.tier(), vec![0x55; 8 << 20]).unwrap();
    refuses(&bench, &[&tier_path, "not a Tiersmith tier"], || bench.open());
    std::fs::write(bench.tier(), &tier).unwrap();
    bench.detach().unwrap();
    assert_eq!(rows(&bench.database()).unwrap(), 10);
}

#[test]
fn a_tier_of_another_database_is_refused() {
    let bench = attached();
    let other = Bench::new();
    other.fill(3);
    let theirs = FastSpec { members: vec![bench.tier()], ..other.fast() };
    let path = bench.home().display().to_string();
    let refused = refuses(&other, &[&path], || other.attach_with(theirs.clone()));
    assert!(!refused.is_busy());
    assert_eq!(rows(&other.database()).unwrap(), 3);
    // And swapped under an attached one.
    drop(other.attach().unwrap().unwrap());
    std::fs::copy(other.tier(), bench.file("tier")).unwrap();
    refuses(&bench, &[], || bench.open());
}

#[test]
fn another_tier_or_setting_than_it_was_attached_with_is_refused() {
    let bench = attached();
    let elsewhere = FastSpec { members: vec![bench.file("elsewhere")], ..bench.fast() };
    let (here, there) =
        (bench.tier().display().to_string(), bench.file("elsewhere").display().to_string());
    refuses(&bench, &[&here, &there, "leave fast= out"], || bench.attach_with(elsewhere.clone()));
    let real = FastSpec { emulate: false, ..bench.fast() };
    refuses(&bench, &["emulate=1", "emulate=0"], || bench.attach_with(real.clone()));
    let redo = FastSpec { place: Placement::Redo, ..bench.fast() };
    refuses(&bench, &["place=all", "place=redo"], || bench.attach_with(redo.clone()));
    let block = FastSpec { block_size: Some(8192), ..bench.fast() };
    refuses(&bench, &["block=4096", "block=8192"], || bench.attach_with(block));
    // The same rules while it is open.
    let place = bench.attach().unwrap().unwrap();
    assert!(bench.attach_with(elsewhere).is_err());
    assert!(bench.attach_with(redo).is_err());
    let same = bench.attach().unwrap().unwrap();
    assert!(std::sync::Arc::ptr_eq(&place, &same));
}

#[test]
fn a_tier_that_cannot_be_made_leaves_the_database_as_it_was() {
    let bench = Bench::new();
    bench.fill(10);
    let nowhere = FastSpec { members: vec!["/nowhere/at/all".into()], ..bench.fast() };
    refuses(&bench, &["/nowhere/at/all"], || bench.attach_with(nowhere));
    let no_size = FastSpec { size: None, ..bench.fast() };
    refuses(&bench, &["give size="], || bench.attach_with(no_size));
    let small = FastSpec { size: Some(8192), ..bench.fast() };
    refuses(&bench, &["at least"], || bench.attach_with(small));
    let itself = FastSpec { members: vec![bench.database()], ..bench.fast() };
    refuses(&bench, &["the database itself"], || bench.attach_with(itself));
    // In memory only an emulated tier can be made.
    if let Ok(memory) = tempfile::tempdir_in("/dev/shm") {
        let real =
            FastSpec { emulate: false, members: vec![memory.path().join("tier")], ..bench.fast() };
        refuses(&bench, &["emulate"], || bench.attach_with(real));
    }
    // And a new database is not made.
    std::fs::remove_file(bench.database()).unwrap();
    let nowhere = FastSpec { members: vec!["/nowhere/at/all".into()], ..bench.fast() };
    refuses(&bench, &[], || bench.attach_with(nowhere));
}

#[test]
fn a_removed_stub_or_directory_or_a_second_database_is_explained() {
    let bench = attached();
    let stub = std::fs::read(bench.database()).unwrap();
    std::fs::remove_file(bench.database()).unwrap();
    refuses(&bench, &["is gone or empty", "tiersmith detach"], || bench.open());
    refuses(&bench, &["is gone or empty", "tiersmith detach"], || bench.attach());
    assert_eq!(status(&bench.database()).unwrap().standing, Standing::StubMissing);
    std::fs::copy(bench.home().join("db"), bench.database()).unwrap();
    refuses(&bench, &["hold a database", "Move the one"], || bench.open());
    refuses(&bench, &["hold a database", "Move the one"], || bench.detach());
    assert_eq!(status(&bench.database()).unwrap().standing, Standing::TwoDatabases);
    std::fs::write(bench.database(), stub).unwrap();
    std::fs::rename(bench.home(), bench.file("elsewhere")).unwrap();
    refuses(&bench, &["app.db-tiersmith", "no such directory"], || bench.open());
    refuses(&bench, &["app.db-tiersmith", "no such directory"], || bench.detach());
    assert_eq!(status(&bench.database()).unwrap().standing, Standing::HomeMissing);
    std::fs::rename(bench.file("elsewhere"), bench.home()).unwrap();
    // The way out that the message names; also when a stock SQLite has made an empty file
    // meanwhile.
    std::fs::remove_file(bench.database()).unwrap();
    bench.detach().unwrap();
    assert_eq!(rows(&bench.database()).unwrap(), 10);
    drop(bench.attach().unwrap().unwrap());
    std::fs::write(bench.database(), "").unwrap();
    refuses(&bench, &["is gone or empty", "tiersmith detach"], || bench.open());
    bench.detach().unwrap();
    assert_eq!(rows(&bench.database()).unwrap(), 10);
}

#[test]
fn a_damaged_attachment_file_needs_fast_once() {
    let bench = attached();
    let path = bench.home().join("attachment");
    let sound = std::fs::read(&path).unwrap();
    std::fs::write(&path, &sound[..sound.len() / 2]).unwrap();
    refuses(&bench, &["attachment", "give fast="], || bench.open());
    drop(bench.attach().unwrap().unwrap());
    drop(bench.open().unwrap().unwrap());
    std::fs::remove_file(&path).unwrap();
    refuses(&bench, &["attachment", "is missing"], || bench.detach());
    drop(bench.attach().unwrap().unwrap());
    bench.detach().unwrap();
    assert_eq!(rows(&bench.database()).unwrap(), 10);
}

#[test]
fn a_home_changed_behind_its_back_stops_the_open_when_the_tier_is_ahead() {
    let bench = attached();
    {
        let place = bench.open().unwrap().unwrap();
        let file = place.home().open("db", tiersmith_store::OpenMode::WRITE).unwrap();
        let mut block = vec![0; 4096];
        file.read(4096, &mut block).unwrap();
        file.write(4096, &block).unwrap();
        assert_eq!(file.blocks_in_tier().0, 1);
    }
    let db = std::fs::File::options().write(true).open(bench.home().join("db")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(40));
    db.write_all_at(b"x", 5000).unwrap();
    drop(db);
    refuses(&bench, &["changed while the tier held 1 newer blocks"], || bench.open());
    refuses(&bench, &["changed while the tier held 1 newer blocks"], || bench.detach());
}

#[test]
fn a_database_this_process_may_not_write_says_so() {
    let bench = attached();
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap()
    };
    mode(bench.path(), 0o755);
    mode(&bench.database(), 0o444);
    mode(&bench.home(), 0o555);
    let path = bench.database().display().to_string();
    let mut other =
        again(&full_name!("another_process_that_opens_the_place"), ("TIERSMITH_TEST_OPEN", &path));
    if rustix::process::geteuid().is_root() {
        // Root may write anything; nobody may not.
        let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"];
        let mut command = std::process::Command::new("setpriv");
        command
            .args(nobody)
            .arg(other.get_program())
            .args(other.get_args())
            .env("TIERSMITH_TEST_OPEN", &path);
        let mut list = std::process::Command::new("setpriv");
        list.args(nobody).arg(other.get_program()).arg("--list");
        if !list.output().is_ok_and(|o| o.status.success()) {
            eprintln!(
                "skipped: a process that may not write, because nobody cannot run this program \
                 through setpriv"
            );
            return;
        }
        other = command;
    }
    let said = other.output().unwrap();
    mode(&bench.home(), 0o755);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(
        said.contains("read-only true") && said.contains("other accounts run this as the owner"),
        "{said}"
    );
}

#[test]
fn reading_only_does_not_attach() {
    let bench = Bench::new();
    bench.fill(10);
    let want = Want { fast: Some(bench.fast()), create: false, read_only: true };
    let open = || Place::open(&bench.database(), &want, &fold);
    assert!(refuses(&bench, &["open it once for writing"], open).is_readonly());
    drop(bench.attach().unwrap().unwrap());
    assert!(open().unwrap().is_some());
}

#[test]
fn what_is_no_database_is_named_as_what_it_is_and_left_alone() {
    let bench = Bench::new();
    for text in ["x", &"Dear diary, today I was no database. ".repeat(200)] {
        std::fs::write(bench.database(), text).unwrap();
        refuses(&bench, &["app.db is not an SQLite database"], || bench.attach());
    }
    std::fs::remove_file(bench.database()).unwrap();
    std::fs::create_dir(bench.database()).unwrap();
    refuses(&bench, &["no ordinary file"], || bench.attach());
    refuses(&bench, &["is not attached"], || bench.detach());
    assert!(bench.open().unwrap().is_none());
    symlink("nothing", bench.file("link.db")).unwrap();
    assert!(Place::open(&bench.file("link.db"), &Want::default(), &fold).unwrap().is_none());
}
