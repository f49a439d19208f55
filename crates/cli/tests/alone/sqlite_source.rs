//! An attached SQLite database recorded while another process works on it. The tiers are EMULATED.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use rusqlite::{Connection, OpenFlags};
use tiersmith_awr::archive::Archive;
use tiersmith_awr::{Snapshot, SnapshotId};

const ROLE: &str = "TIERSMITH_SQLITE_SOURCE_WRITER";

fn tiersmith(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiersmith"));
    command.args(arguments).current_dir(dir).stdin(Stdio::null()).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// Not a test: the program whose database is recorded. It opens it, and then does what the lines of
/// its input say.
#[test]
fn the_writer() {
    let Ok(dir) = std::env::var(ROLE) else { return };
    let dir = Path::new(&dir);
    tiersmith_sqlite::register().unwrap();
    let (database, tier) = (dir.join("app.db"), dir.join("app.tier"));
    let uri = format!(
        "file:{}?vfs=tiersmith&fast={}&size=16M&emulate=1",
        database.display(),
        tier.display()
    );
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri, flags).unwrap();
    println!("\nready");
    for line in std::io::stdin().lines() {
        connection.execute_batch(&line.unwrap()).unwrap();
        println!("\nready");
    }
}

struct Writer {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Writer {
    fn start(dir: &Path) -> Writer {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &full_name!("the_writer"), "--nocapture"]).env(ROLE, dir);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut writer = Writer { child, to, from };
        writer.until_ready();
        writer
    }

    fn until_ready(&mut self) {
        let mut line = String::new();
        while line.trim() != "ready" {
            line.clear();
            assert!(self.from.read_line(&mut line).unwrap() > 0, "the writer ended");
        }
    }

    fn run(&mut self, sql: &str) {
        writeln!(self.to.as_mut().unwrap(), "{sql}").unwrap();
        self.until_ready();
    }

    fn close(mut self) {
        self.to = None;
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn snapshots(path: &Path) -> Vec<Snapshot> {
    let archive = Archive::existing(path).unwrap();
    let ids: Vec<SnapshotId> =
        archive.list().unwrap().entries.iter().map(|entry| entry.id).collect();
    ids.into_iter().map(|id| archive.find(id).unwrap()).collect()
}

fn commits(snapshot: &Snapshot) -> u64 {
    snapshot.counters.iter().find(|counter| counter.name == "user commits").unwrap().value
}

fn nobody(dir: &Path) {
    let said = tiersmith(dir, &["top", "app.db", "--once", "--every", "100ms"]);
    assert!(text(&said).contains("nobody has it open"), "{}", text(&said));
}

#[test]
fn commits_of_another_process_are_counted_up_to_its_close_and_another_opening_is_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for mode in ["DELETE", "WAL"] {
        let _ = std::fs::remove_file(dir.join("r.db"));
        let mut first = Writer::start(dir);
        first.run(&format!(
            "PRAGMA journal_mode = {mode}; CREATE TABLE IF NOT EXISTS t (x); DELETE FROM t"
        ));
        first.close();
        nobody(dir);
        let mut writer = Writer::start(dir);
        let mut recorder = Command::new(env!("CARGO_BIN_EXE_tiersmith"));
        recorder.args([
            "awr", "record", "--source", "app.db", "--every", "1h", "--to", "r.db", "--", "cat",
        ]);
        let mut recorder =
            recorder.current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let began = std::time::Instant::now();
        while !Archive::existing(dir.join("r.db"))
            .and_then(|of| of.list())
            .is_ok_and(|l| l.entries.len() == 1)
        {
            assert!(began.elapsed().as_secs() < 150, "a first snapshot");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        for n in 0..200 {
            writer.run(&format!("INSERT INTO t VALUES ({n})"));
        }
        writer.run("BEGIN; INSERT INTO t VALUES (0); ROLLBACK");
        writer.close();
        drop(recorder.stdin.take());
        assert!(recorder.wait().unwrap().success());
        let found = snapshots(&dir.join("r.db"));
        let [begin, end] = &found[..] else { panic!("{} snapshots", found.len()) };
        assert_eq!((commits(begin), commits(end)), (0, 200), "{mode}");
        assert!(end.is_emulated() && end.process_cpu_ns.is_none());
        assert!(end.waits.iter().any(|wait| wait.count >= 200), "{mode}: waits of commits");
        let report = tiersmith(dir, &["awr", "report", "--in", "r.db"]);
        assert!(report.status.success(), "{}", text(&report));
        // The next opening begins at zero, and no difference is made across it.
        let next = Writer::start(dir);
        let taken = tiersmith(dir, &["awr", "snapshot", "app.db", "--to", "r.db"]);
        assert!(taken.status.success(), "{}", text(&taken));
        let last = snapshots(&dir.join("r.db")).pop().unwrap();
        assert_eq!(commits(&last), 0);
        assert_ne!(last.source.instance, end.source.instance);
        assert!(tiersmith_awr::Interval::between(end, &last).is_err());
        next.close();
    }
    let detached = tiersmith(dir, &["detach", "app.db"]);
    assert!(detached.status.success(), "{}", text(&detached));
    assert!(!dir.join("app.db-tiersmith").exists());
    let plain = tiersmith(dir, &["awr", "record", "--source", "app.db", "--for", "1ms"]);
    assert!(text(&plain).contains("not an attached SQLite database"), "{}", text(&plain));
}

#[test]
fn a_killed_process_and_a_hostile_file_are_said_and_detach_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut writer = Writer::start(dir);
    writer.run("CREATE TABLE t (x)");
    let seen = tiersmith(dir, &["top", "app.db", "--once", "--every", "100ms"]);
    assert!(seen.status.success(), "{}", text(&seen));
    drop(writer);
    nobody(dir);
    let file = dir.join("app.db-tiersmith/statistics");
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let sound = std::fs::read(&file).unwrap();
    let long = vec![b'x'; 2 << 20];
    for bad in [&b""[..], b"\xff\xfe", &sound[..sound.len() / 2], &long] {
        std::fs::write(&file, bad).unwrap();
        let said = tiersmith(dir, &["top", "app.db", "--once", "--every", "100ms"]);
        assert!(
            text(&said).contains("cannot read") && !text(&said).contains("panic"),
            "{}",
            text(&said)
        );
    }
    // Neither read through nor written through.
    std::fs::write(dir.join("other"), "kept").unwrap();
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(dir.join("other"), &file).unwrap();
    std::os::unix::fs::symlink(dir.join("other"), dir.join("app.db-tiersmith/statistics.new"))
        .unwrap();
    let said = tiersmith(dir, &["top", "app.db", "--once", "--every", "100ms"]);
    assert!(text(&said).contains("cannot read"), "{}", text(&said));
    Writer::start(dir).close();
    assert_eq!(std::fs::read_to_string(dir.join("other")).unwrap(), "kept");
    assert!(file.symlink_metadata().unwrap().is_file());
    std::fs::write(dir.join("app.db-tiersmith/statistics.new"), "left by a killed process")
        .unwrap();
    let detached = tiersmith(dir, &["detach", "app.db"]);
    assert!(detached.status.success(), "{}", text(&detached));
    assert!(!dir.join("app.db-tiersmith").exists());
}
