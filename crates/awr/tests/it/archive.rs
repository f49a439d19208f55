//! The repository in one file: what was taken is there, what is something else is refused, numbers
//! are given once.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::fixture::{at_home, home_interval, on_tier, tier_interval};
use tiersmith_awr::archive::{Archive, Gap};
use tiersmith_awr::record::{Plan, Recorder};
use tiersmith_awr::sources::LiveSource;
use tiersmith_awr::{AnyRepository, Error, Interval, Sampling, Snapshot, SnapshotId, export};

#[test]
fn what_is_taken_is_found_also_by_another_program() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("awr.db");
    let archive = Archive::open(&path).unwrap();
    let (begin, end) = at_home();
    let (first, second) = (archive.take(&begin).unwrap(), archive.take(&end).unwrap());
    let other = Archive::existing(&path).unwrap();
    assert_eq!(other.find(first).unwrap(), begin);
    assert_eq!(other.list().unwrap().entries.len(), 2);
    let interval =
        Interval::between(&other.find(first).unwrap(), &other.find(second).unwrap()).unwrap();
    assert_eq!(interval.transactions(), home_interval().transactions());
    assert_ne!(interval.transactions(), tier_interval().transactions());
    assert!(matches!(other.find(SnapshotId::new(9)), Err(Error::NoSuchSnapshot { .. })));
}

#[test]
fn retention_keeps_baselines_and_numbers_are_not_given_again() {
    let dir = tempfile::tempdir().unwrap();
    let archive = Archive::open(dir.path().join("awr.db")).unwrap();
    let (begin, end) = at_home();
    let ids: Vec<SnapshotId> =
        (0..5).map(|at| archive.take(if at % 2 == 0 { &begin } else { &end }).unwrap()).collect();
    archive.add_baseline("before", ids[0], ids[1]).unwrap();
    let again = archive.add_baseline("before", ids[2], ids[3]).unwrap_err().to_string();
    assert!(again.contains("before"), "{again}");
    assert!(archive.add_baseline("none", ids[0], SnapshotId::new(99)).is_err());
    assert_eq!(archive.remove_before(Some("another source"), u64::MAX).unwrap(), 0);
    let mut other = begin.clone();
    other.source.path = "other".to_owned();
    let of_other = [archive.take(&other).unwrap(), archive.take(&other).unwrap()];
    for (name, first, last, why) in [
        (" ", ids[0], ids[1], "its name is empty"),
        ("back", ids[1], ids[0], "from snapshot 2 to 1 there is no interval"),
        ("one", ids[1], ids[1], "there is no interval"),
        ("two", ids[1], of_other[0], "of two sources"),
    ] {
        let error = archive.add_baseline(name, first, last).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    assert_eq!(archive.remove_before(Some("other"), u64::MAX).unwrap(), 1, "the newest stays");
    assert!(archive.find(of_other[1]).is_ok() && archive.find(ids[4]).is_ok());
    archive
        .note_gap(&Gap {
            source: "s".to_owned(),
            at_unix_ns: 5,
            reason: "gone".to_owned(),
            after: None,
        })
        .unwrap();
    assert_eq!(archive.remove_before(None, u64::MAX).unwrap(), 4);
    assert!(archive.gaps().unwrap().is_empty());
    let left: Vec<SnapshotId> =
        archive.list().unwrap().entries.into_iter().map(|entry| entry.id).collect();
    assert_eq!(left, ids[..2]);
    assert!(archive.drop_baseline("before").unwrap());
    assert!(!archive.drop_baseline("before").unwrap());
    assert_eq!(archive.remove_before(None, u64::MAX).unwrap(), 2);
    assert_eq!(archive.take(&begin).unwrap(), SnapshotId::new(8));
    let raw = rusqlite::Connection::open(archive.path()).unwrap();
    let briefs: i64 = raw.query_row("SELECT count(*) FROM brief", [], |row| row.get(0)).unwrap();
    assert_eq!(briefs, 1, "the briefs went with their snapshots");
}

#[test]
fn gaps_inside_a_baseline_stay_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let archive = Archive::open(dir.path().join("awr.db")).unwrap();
    let begin = at_home().0;
    let source = begin.source.path.clone();
    let note = |reason: &str, source: &str| {
        let at_unix_ns = begin.taken_unix_ns;
        archive
            .note_gap(&Gap {
                source: source.to_owned(),
                at_unix_ns,
                reason: reason.to_owned(),
                after: None,
            })
            .unwrap();
    };
    note("before", &source);
    let first = archive.take(&begin).unwrap();
    note("inside", &source);
    note("of another", "another");
    let last = archive.take(&at_home().1).unwrap();
    archive.add_baseline("b", first, last).unwrap();
    for _ in 0..2 {
        archive.remove_before(None, u64::MAX).unwrap();
        let gaps = archive.gaps().unwrap();
        assert!(gaps.iter().any(|gap| gap.reason == "inside"), "{gaps:?}");
        assert!(gaps.iter().all(|gap| gap.source == source), "{gaps:?}");
    }
    archive.drop_baseline("b").unwrap();
    archive.remove_before(None, u64::MAX).unwrap();
    assert!(archive.gaps().unwrap().is_empty());
}

/// A source that only counts its snapshots.
struct Still;

impl LiveSource for Still {
    fn name(&self) -> &str {
        "still"
    }

    fn snapshot(&mut self) -> tiersmith_awr::Result<Snapshot> {
        let path = "still".to_owned();
        Ok(Snapshot::now(tiersmith_awr::Source { path, ..tiersmith_awr::Source::default() }))
    }

    fn look(&mut self, _: &mut Sampling) -> tiersmith_awr::Result<bool> {
        Ok(false)
    }
}

#[test]
fn a_recorder_whose_source_was_taken_over_writes_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("awr.db");
    let every = Duration::from_millis(20);
    let plan = Plan { every, length: None, sample: None, keep: None };
    let recorder = Recorder::begin(vec![Box::new(Still)], &path, plan).unwrap();
    let raw = rusqlite::Connection::open(&path).unwrap();
    assert_eq!(raw.execute("UPDATE recorder SET token = 'another'", []).unwrap(), 1);
    let error = recorder.run(&|| false).unwrap_err().to_string();
    assert!(error.contains("took still over"), "{error}");
    assert_eq!(Archive::existing(&path).unwrap().list().unwrap().entries.len(), 1);
}

#[test]
fn what_is_something_else_is_refused_and_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text.db");
    fs::write(
        &text,
        "this is a text, and a long one, so that nobody takes it for an empty \
                      database ........................",
    )
    .unwrap();
    let before = fs::read(&text).unwrap();
    let error = Archive::open(&text).unwrap_err();
    assert!(
        matches!(error, Error::Archive { .. }) && error.to_string().contains("text.db"),
        "{error}"
    );
    assert_eq!(fs::read(&text).unwrap(), before);
    let foreign = dir.path().join("foreign.db");
    rusqlite::Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE mine (i)").unwrap();
    let error = Archive::open(&foreign).unwrap_err();
    assert!(error.to_string().contains("something else"), "{error}");
    let later = dir.path().join("later.db");
    drop(Archive::open(&later).unwrap());
    rusqlite::Connection::open(&later).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let error = Archive::open(&later).unwrap_err();
    assert!(error.to_string().contains("of format 99"), "{error}");
    assert!(Archive::existing(dir.path().join("misspelt.db")).is_err());
    assert!(!dir.path().join("misspelt.db").exists());
}

#[test]
fn a_damaged_snapshot_does_not_hide_the_others_and_half_a_file_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("awr.db");
    let archive = Archive::open(&path).unwrap();
    let ids: Vec<SnapshotId> = (0..40).map(|_| archive.take(&on_tier().0).unwrap()).collect();
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute("UPDATE snapshot SET body = substr(body, 1, 500) WHERE id = 2", [])
        .unwrap();
    assert!(matches!(archive.find(ids[1]), Err(Error::Damaged { .. })));
    assert_eq!(archive.find(ids[2]).unwrap(), on_tier().0);
    drop(archive);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let read = Archive::existing(&path).and_then(|archive| {
        for id in &ids {
            archive.find(*id)?;
        }
        Ok(())
    });
    let error = read.unwrap_err().to_string();
    assert!(error.contains("awr.db"), "{error}");
}

#[test]
fn programs_that_take_snapshots_at_once_get_different_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("awr.db");
    let snapshot = at_home().0;
    let ids: BTreeSet<SnapshotId> = std::thread::scope(|scope| {
        let take = || {
            let archive = Archive::open(&path).unwrap();
            (0..5).map(|_| archive.take(&snapshot).unwrap()).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(take)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(ids.len(), 15);
}

#[test]
fn a_path_says_which_form_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let is_file = |name: &str| {
        matches!(AnyRepository::open(&dir.path().join(name)).unwrap(), AnyRepository::Archive(_))
    };
    assert!(is_file("a.db") && is_file("b.awr"));
    assert!(!is_file("c") && !is_file("snapshots.d"));
    fs::create_dir(dir.path().join("dir.db")).unwrap();
    assert!(!is_file("dir.db"));
    let path = dir.path().join("c");
    let error = AnyRepository::open(&path).unwrap().archive(&path).unwrap_err().to_string();
    assert!(error.contains("awr load"), "{error}");
    assert!(AnyRepository::existing(Path::new("/nowhere/x")).is_err());
}

#[test]
fn a_file_that_may_only_be_read_is_read_and_says_why_it_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("awr.db");
    let archive = Archive::open(&path).unwrap();
    let ids = [at_home().0, at_home().1].map(|snapshot| archive.take(&snapshot).unwrap());
    drop(archive);
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o555)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    // Permissions do not bind root: this thread, and no other, is nobody for the while.
    let errors = std::thread::spawn(move || {
        let nobody = rustix::process::Uid::from_raw(65534);
        if rustix::process::geteuid().is_root()
            && rustix::thread::set_thread_res_uid(nobody, nobody, nobody).is_err()
        {
            eprintln!(
                "skipped: the file that may only be read, because this thread cannot be another \
                 user"
            );
            return None;
        }
        let archive = Archive::existing(&path).unwrap();
        assert_eq!(archive.series(ids[0], ids[1]).unwrap().ids, ids);
        assert_eq!(archive.find(ids[1]).unwrap(), at_home().1);
        let taken = archive.take(&at_home().0).unwrap_err();
        Some([taken, archive.drop_baseline("x").unwrap_err(), archive.lease("x").unwrap_err()])
    });
    for error in errors.join().unwrap().into_iter().flatten() {
        assert!(error.to_string().contains("may only be read"), "{error}");
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn baselines_and_gaps_go_with_their_snapshots_and_what_cannot_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    let from = Archive::open(place("from.db")).unwrap();
    let (begin, end) = at_home();
    let mut other = begin.clone();
    other.source.path = "other".to_owned();
    let ids = from.take_all(&[other, begin.clone(), end.clone()]).unwrap();
    let long = "x".repeat(2_000);
    from.add_baseline(&long, ids[1], ids[2]).unwrap();
    from.add_baseline("<b>", ids[1], ids[2]).unwrap();
    let gap = |at_unix_ns, after| Gap {
        source: begin.source.path.clone(),
        at_unix_ns,
        reason: "no answer".to_owned(),
        after,
    };
    from.note_gap(&gap(7, Some(ids[1]))).unwrap();
    let from = AnyRepository::Archive(from);
    // Over a directory, whose numbers are others.
    export::export(&from, &[ids[0]], &place("files")).unwrap();
    let exported = export::export(&from, &[], &place("files")).unwrap();
    assert_eq!((exported.snapshots.len(), exported.baselines, exported.gaps), (3, 2, 1));
    assert!(exported.left_out.is_empty(), "{:?}", exported.left_out);
    let loaded = export::load(&[place("files")], &place("to.db")).unwrap();
    assert_eq!((loaded.snapshots.len(), loaded.baselines, loaded.gaps), (4, 2, 1));
    assert!(loaded.left_out.is_empty(), "{:?}", loaded.left_out);
    let to = Archive::existing(place("to.db")).unwrap();
    let named =
        to.baselines().unwrap().into_iter().find(|of| of.name == long).expect("whole, not cut");
    assert_eq!((to.find(named.first).unwrap(), to.find(named.last).unwrap()), (begin.clone(), end));
    let series = to.series(named.first, named.last).unwrap();
    assert_eq!(series.gaps.len(), 1, "the gap lies where it lay");
    // A second time the names are given.
    let again = export::load(&[place("files")], &place("to.db")).unwrap();
    assert_eq!((again.baselines, again.left_out.len()), (0, 2));
    assert!(
        again.left_out[0].contains("there is one of this name already"),
        "{:?}",
        again.left_out
    );
    // What the repository refuses: neither snapshots nor gaps are kept, nor half of them.
    let raw = rusqlite::Connection::open(place("to.db")).unwrap();
    raw.execute_batch(
        "CREATE TRIGGER no BEFORE INSERT ON gap BEGIN SELECT RAISE(ABORT, 'no gaps'); END",
    )
    .unwrap();
    let there = to.list().unwrap().entries.len();
    let error = export::load(&[place("files")], &place("to.db")).unwrap_err().to_string();
    assert!(error.contains("no gaps"), "{error}");
    assert_eq!(to.list().unwrap().entries.len(), there, "nothing was kept");
    // Of some snapshots only what belongs to them.
    let some = export::export(&from, &[ids[0], ids[2]], &place("some")).unwrap();
    assert_eq!((some.baselines, some.gaps, some.left_out.len()), (0, 0, 3), "{:?}", some.left_out);
    // A file that is something else, or damaged: nothing is kept.
    std::fs::write(place("files").join(export::BESIDE), "{}").unwrap();
    assert!(export::load(&[place("files")], &place("none.db")).is_err());
    // Nobody ever writes into this one.
    let pipe = place("files").join(export::BESIDE);
    std::fs::remove_file(&pipe).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let error = export::load(&[place("files")], &place("none.db")).unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
    assert!(!place("none.db").exists());
}

#[test]
fn what_is_given_twice_under_any_names_is_refused_and_nothing_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    let files = AnyRepository::open(&place("files")).unwrap();
    let (begin, end) = at_home();
    files.take_all(&[begin.clone(), end]).unwrap();
    let beside = place("files").join(export::BESIDE);
    let gap = format!(
        "{{\"source\": {:?}, \"at_unix_ns\": 7, \"reason\": \"no answer\", \"after\": 1}}",
        begin.source.path
    );
    let kind = "\"kind\": \"tiersmith baselines and gaps\", \"format\": 1";
    fs::write(&beside, format!("{{{kind}, \"baselines\": [], \"gaps\": [{gap}]}}")).unwrap();
    let snapshot = place("files").join("snap-000001.json");
    std::os::unix::fs::symlink(place("files"), place("link")).unwrap();
    fs::hard_link(&snapshot, place("other-name.json")).unwrap();
    let with_slash = std::path::PathBuf::from(format!("{}/", place("files").display()));
    for [first, second] in [
        [place("files"), place("files")],
        [place("files"), with_slash],
        [place("link"), place("files")],
        [place("files"), snapshot.clone()],
        [place("other-name.json"), place("files")],
        [snapshot.clone(), snapshot],
        [beside, place("files")],
    ] {
        let error = export::load(&[first.clone(), second.clone()], &place("to.db"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("was given before") && error.contains("Give each"), "{error}");
        assert!(!place("to.db").exists(), "nothing was kept of {first:?} {second:?}");
    }
    let loaded = export::load(&[place("link")], &place("to.db")).unwrap();
    assert_eq!((loaded.snapshots.len(), loaded.gaps, loaded.left_out.len()), (2, 1, 0));
}

#[test]
fn baselines_that_nobody_could_add_are_not_loaded_either_and_that_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    let (begin, end) = at_home();
    let mut other = end.clone();
    other.source.path = "<another>".to_owned();
    AnyRepository::open(&place("files")).unwrap().take_all(&[begin, end, other]).unwrap();
    let baselines: Vec<String> =
        [("good", 1, 2), ("", 1, 2), ("back", 2, 1), ("one", 2, 2), ("two", 1, 3), ("good", 1, 2)]
            .into_iter()
            .map(|(name, first, last)| {
                format!("{{\"name\": \"{name}\", \"first\": {first}, \"last\": {last}}}")
            })
            .collect();
    let kind = "\"kind\": \"tiersmith baselines and gaps\", \"format\": 1";
    let text = format!("{{{kind}, \"baselines\": [{}], \"gaps\": []}}", baselines.join(", "));
    fs::write(place("files").join(export::BESIDE), text).unwrap();
    for to in ["to.db", "to"] {
        let loaded = export::load(&[place("files")], &place(to)).unwrap();
        assert_eq!((loaded.snapshots.len(), loaded.baselines), (3, 1), "{to}");
        let said = loaded.left_out.join("\n");
        for why in [
            "its name is empty",
            "from snapshot 2 to 1 there is no interval",
            "from snapshot 2 to 2 there is no interval",
            "of two sources",
            "one of this name already",
        ] {
            assert!(said.contains(why), "{to}: {why}: {said}");
        }
        assert_eq!(loaded.left_out.len(), 5, "{said}");
        let (kept, _) = AnyRepository::existing(&place(to)).unwrap().baselines_and_gaps().unwrap();
        assert_eq!(kept.iter().map(|of| of.name.as_str()).collect::<Vec<_>>(), ["good"], "{to}");
    }
}

/// A source that counts its snapshots and looks.
struct Counting {
    snapshots: Arc<AtomicU64>,
    looks: Arc<AtomicU64>,
}

impl LiveSource for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn snapshot(&mut self) -> tiersmith_awr::Result<Snapshot> {
        let number = self.snapshots.fetch_add(1, Ordering::SeqCst);
        let mut snapshot = at_home().0;
        snapshot.source.path = "counting".to_owned();
        snapshot.taken_unix_ns = number;
        Ok(snapshot)
    }

    fn look(&mut self, sampling: &mut Sampling) -> tiersmith_awr::Result<bool> {
        sampling.looks += 1;
        self.looks.fetch_add(1, Ordering::SeqCst);
        Ok(true)
    }
}

/// Polls; the limit is for hangs only.
fn until(what: &str, is: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(240), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn looks_and_snapshots_go_on_while_the_repository_hangs_and_what_does_not_fit_is_a_gap() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("awr.db");
    let (snapshots, looks) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let source = Counting { snapshots: Arc::clone(&snapshots), looks: Arc::clone(&looks) };
    let (every, sample) = (Duration::from_millis(10), Some(Duration::from_millis(10)));
    let plan = Plan { every, length: None, sample, keep: None };
    let recorder = Recorder::begin(vec![Box::new(source)], &path, plan).unwrap();
    // Whoever holds the file like this makes each writer wait.
    let holder = rusqlite::Connection::open(&path).unwrap();
    holder.busy_timeout(Duration::from_secs(120)).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let stop = AtomicBool::new(false);
    let recorded = std::thread::scope(|scope| {
        let recording = scope.spawn(|| recorder.run(&|| stop.load(Ordering::Relaxed)).unwrap());
        // More than there is room for: one in the writer's hands, sixty that wait.
        until("snapshots while the repository hangs", || snapshots.load(Ordering::SeqCst) > 80);
        until("looks while the repository hangs", || looks.load(Ordering::SeqCst) > 80);
        holder.execute_batch("COMMIT").unwrap();
        let there = || {
            Archive::existing(&path)
                .is_ok_and(|of| of.list().is_ok_and(|all| all.entries.len() > 30))
        };
        until("what waited is written", there);
        stop.store(true, Ordering::Relaxed);
        recording.join().unwrap()
    });
    let archive = Archive::existing(&path).unwrap();
    let entries = archive.list().unwrap().entries;
    let numbers: Vec<u64> = entries.iter().map(|entry| entry.taken_unix_ns).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "in order, each once: {numbers:?}");
    assert_eq!(recorded[0].taken, entries.iter().map(|entry| entry.id).collect::<Vec<_>>());
    let asked = snapshots.load(Ordering::SeqCst);
    assert_eq!(numbers.last(), Some(&(asked - 1)), "the last one is there");
    let gaps = archive.gaps().unwrap();
    let lost: u64 = gaps
        .iter()
        .filter_map(|gap| {
            gap.reason.split_once(" snapshots and gaps were lost")?.0.parse::<u64>().ok()
        })
        .sum();
    // A machine that stands still for half a minute makes gaps of its own, and they wait as
    // snapshots do.
    assert!(lost > 0, "{gaps:?}");
    assert!(lost >= asked - numbers.len() as u64, "{lost} of {asked}: {gaps:?}");
    assert!(
        gaps.iter().any(|gap| gap.after.is_some_and(|after| entries.iter().any(|e| e.id == after)))
    );
}
