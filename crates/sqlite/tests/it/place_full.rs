//! Attaching and detaching on a full file system, or with the tier on one that was mounted
//! read-only: SQLite is told, nothing is lost, and with more room, or the right to write, it goes
//! on.
//!
//! A small file system is mounted for it (tmpfs), which needs root; without it these tests say so
//! and do nothing.

use crate::support;

use crate::support::{Bench, connect, fold, patiently, rows, stock};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tiersmith_sqlite::place::{FastSpec, Place, Want};

/// A mounted file system of `pages` pages of 4 KiB, gone with the value.
struct Small {
    bench: Bench,
}

impl Small {
    fn mount(pages: u64) -> Option<Self> {
        let small = Self { bench: Bench::new() };
        std::fs::create_dir(small.path()).unwrap();
        let size = format!("size={}", pages * 4096);
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(small.path()).stderr(Stdio::null());
        if mount.status().is_ok_and(|s| s.success()) {
            return Some(small);
        }
        eprintln!("skipped: a full disk, because mounting a small file system needs root");
        None
    }

    fn path(&self) -> PathBuf {
        self.bench.path().join("small")
    }

    /// `ro` or `rw`.
    fn remount(&self, how: &str) {
        let option = format!("remount,{how}");
        let began = Instant::now();
        loop {
            let mut mount = Command::new("mount");
            mount.args(["-o", &option]).arg(self.path()).stdin(Stdio::null());
            let output = mount.output().unwrap();
            // Between fork and exec, a child of another test still has the tier's file open for
            // writing.
            if output.status.success() {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(120), "mount -o {option}: {output:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).stderr(Stdio::null()).status();
    }
}

/// Takes all of the file system but `pages` pages.
fn fill_but(dir: &Path, pages: usize) {
    let filler = dir.join("filler");
    let mut bytes = 0;
    while std::fs::write(&filler, vec![1; bytes + 4096]).is_ok() {
        bytes += 4096;
    }
    std::fs::write(&filler, vec![1; bytes.saturating_sub(pages * 4096)]).unwrap();
}

fn fill_table(database: &Path) {
    let db = stock(database).unwrap();
    db.execute_batch("CREATE TABLE t(n); INSERT INTO t VALUES (1), (2), (3)").unwrap();
}

#[test]
fn no_room_for_the_tier_leaves_the_database_plain() {
    let Some(small) = Small::mount(64) else { return };
    small.bench.fill(10);
    let fast = FastSpec { members: vec![small.path().join("tier")], ..small.bench.fast() };
    let refused = small.bench.attach_with(fast).unwrap_err();
    assert!(refused.is_full(), "{refused:?}");
    assert!(!small.bench.home().exists() && !small.path().join("tier").exists());
    assert_eq!(rows(&small.bench.database()).unwrap(), 10);
}

#[test]
fn no_room_for_the_directory_leaves_the_database_plain_or_attaches_it() {
    let mut outcomes = [0, 0];
    for pages in 0..8 {
        let Some(small) = Small::mount(64) else { return };
        let database = small.path().join("app.db");
        fill_table(&database);
        fill_but(&small.path(), pages);
        let want = Want { fast: Some(small.bench.fast()), create: true, read_only: false };
        match patiently(|| Place::open(&database, &want, &fold)) {
            Ok(place) => {
                drop(place.unwrap());
                outcomes[0] += 1;
                patiently(|| Place::detach(&database, &fold)).unwrap();
            }
            Err(e) => {
                assert!(e.is_full(), "{pages} pages free: {e:?}");
                outcomes[1] += 1;
            }
        }
        assert!(!small.path().join("app.db-tiersmith").exists(), "{pages} pages free");
        assert_eq!(rows(&database).unwrap(), 3, "{pages} pages free");
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "{outcomes:?}");
}

#[test]
fn no_room_to_bring_everything_home_keeps_it_attached_and_detaches_when_there_is_room() {
    let Some(small) = Small::mount(128) else { return };
    let database = small.path().join("app.db");
    fill_table(&database);
    let want = Want { fast: Some(small.bench.fast()), create: true, read_only: false };
    let mut newest = vec![0; 64 * 4096];
    {
        let place = patiently(|| Place::open(&database, &want, &fold)).unwrap().unwrap();
        let file = place.home().open("db", tiersmith_store::OpenMode::WRITE).unwrap();
        // Pages that no row refers to: only the bytes matter here.
        newest.iter_mut().enumerate().for_each(|(n, byte)| *byte = (n / 4096) as u8);
        file.write(8192, &newest).unwrap();
    }
    fill_but(&small.path(), 4);
    let refused = patiently(|| Place::detach(&database, &|_| Ok(()))).unwrap_err();
    assert!(refused.is_full(), "{refused:?}");
    support::assert_not_a_database(&database);
    std::fs::remove_file(small.path().join("filler")).unwrap();
    patiently(|| Place::detach(&database, &|_| Ok(()))).unwrap();
    assert!(std::fs::read(&database).unwrap()[8192..] == newest);
}

/// The sentence behind SQLite's short message.
fn last_error() -> String {
    let any = connect("file::memory:?vfs=tiersmith").unwrap();
    any.query_row("SELECT tiersmith_last_error()", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_tier_on_a_read_only_file_system_is_refused_through_sqlite_and_nothing_is_lost() {
    let Some(small) = Small::mount(4096) else { return };
    let bench = &small.bench;
    let uri = |name: &str| {
        let (database, tier) = (bench.file(name), small.path().join(format!("{name}.tier")));
        format!(
            "file:{}?vfs=tiersmith&fast={}&size=8M&emulate=1",
            database.display(),
            tier.display()
        )
    };
    let once = |uri: &str| {
        connect(uri)?.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0))
    };
    // As above: a child of another test may have the files open for a moment.
    let count = |uri: &str| {
        let began = Instant::now();
        loop {
            let counted = once(uri);
            let busy = |e: &rusqlite::Error| {
                e.sqlite_error_code() == Some(rusqlite::ffi::ErrorCode::DatabaseBusy)
            };
            if !counted.as_ref().is_err_and(busy) || began.elapsed() > Duration::from_secs(120) {
                return counted;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    connect(&uri("app.db"))
        .unwrap()
        .execute_batch("CREATE TABLE t(n); INSERT INTO t VALUES (1), (2)")
        .unwrap();
    small.remount("ro");
    for name in ["app.db", "new.db"] {
        let refused = count(&uri(name)).unwrap_err();
        let code = refused.sqlite_error_code();
        assert_eq!(code, Some(rusqlite::ffi::ErrorCode::CannotOpen), "{name}: {refused}");
        let sentence = last_error();
        assert!(sentence.contains(&format!("{name}.tier")), "{name}: {sentence}");
        assert!(
            sentence.contains("Read-only file system") && sentence.contains("remount"),
            "{name}: {sentence}"
        );
    }
    assert!(!bench.file("new.db").exists() && !bench.file("new.db-tiersmith").exists());
    support::assert_not_a_database(&bench.database());
    small.remount("rw");
    assert_eq!(count(&uri("app.db")).unwrap(), 2);
    patiently(|| Place::detach(&bench.database(), &fold)).unwrap();
    assert_eq!(rows(&bench.database()).unwrap(), 2);
}
