//! The repository: numbers given once, damage reported and passed over, nothing half written.

use std::collections::BTreeSet;
use std::fs;

use crate::fixture::{at_home, home_interval, tier_interval};
use tiersmith_awr::{Error, Interval, Repository, SnapshotId, read_snapshot};

#[test]
fn what_is_taken_is_found_under_its_number() {
    let dir = tempfile::tempdir().unwrap();
    let repository = Repository::open(dir.path().join("new/repository")).unwrap();
    let (begin, end) = at_home();
    let first = repository.take(&begin).unwrap();
    let second = repository.take(&end).unwrap();
    assert_eq!((first, second), (SnapshotId::new(1), SnapshotId::new(2)));
    assert_eq!(repository.find(first).unwrap(), begin);
    let listing = repository.list().unwrap();
    assert_eq!(listing.entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), [first, second]);
    assert_eq!(listing.entries[1].database, "orders");
    assert_eq!(read_snapshot(&listing.entries[1].path).unwrap(), end);
    let interval =
        Interval::between(&repository.find(first).unwrap(), &repository.find(second).unwrap())
            .unwrap();
    assert_eq!(interval.transactions(), home_interval().transactions());
    assert_ne!(interval.transactions(), tier_interval().transactions());
    let files: Vec<_> =
        fs::read_dir(repository.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files.len(), 2, "no temporary file stays: {files:?}");
}

#[test]
fn a_damaged_file_is_reported_and_does_not_hide_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let repository = Repository::open(dir.path()).unwrap();
    let snapshot = at_home().0;
    let (first, second) =
        (repository.take(&snapshot).unwrap(), repository.take(&snapshot).unwrap());
    let damaged = dir.path().join("snap-000001.json");
    let text = fs::read(&damaged).unwrap();
    fs::write(&damaged, &text[..text.len() / 2]).unwrap();
    fs::write(dir.path().join("snap-000007.json"), [0xff, 0xfe, 0]).unwrap();
    fs::create_dir(dir.path().join("snap-000008.json")).unwrap();
    fs::write(dir.path().join("snap-+9.json"), "not a number").unwrap();
    fs::write(dir.path().join(".snap-1-1-1.tmp"), "a crash left this").unwrap();
    let listing = repository.list().unwrap();
    assert_eq!(listing.entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), [second]);
    assert_eq!(listing.damaged.len(), 3, "{:?}", listing.damaged);
    assert!(
        listing.damaged[0].1.to_string().contains("snap-000001.json"),
        "{}",
        listing.damaged[0].1
    );
    assert!(matches!(repository.find(first), Err(Error::Damaged { .. })));
    assert!(matches!(repository.find(SnapshotId::new(8)), Err(Error::Foreign { .. })));
    assert!(matches!(repository.find(SnapshotId::new(3)), Err(Error::NoSuchSnapshot { .. })));
    assert_eq!(repository.take(&snapshot).unwrap(), SnapshotId::new(9));
}

#[test]
fn programs_that_take_snapshots_at_once_get_different_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let snapshot = at_home().0;
    let ids: BTreeSet<SnapshotId> = std::thread::scope(|scope| {
        let take = || {
            let repository = Repository::open(dir.path()).unwrap();
            (0..20).map(|_| repository.take(&snapshot).unwrap()).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(ids.len(), 80);
    assert_eq!(Repository::open(dir.path()).unwrap().list().unwrap().entries.len(), 80);
}

#[test]
fn a_directory_that_cannot_be_one_is_an_error_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Repository::open(&file).unwrap_err();
    assert!(error.to_string().contains(&file.display().to_string()), "{error}");
    let error = Repository::existing(dir.path().join("misspelt")).unwrap_err();
    assert!(
        error.to_string().contains("misspelt") && !dir.path().join("misspelt").exists(),
        "{error}"
    );
    assert!(matches!(Repository::existing(&file), Err(Error::Io { .. })));
    let repository = Repository::open(dir.path().join("gone")).unwrap();
    assert_eq!(Repository::existing(dir.path().join("gone")).unwrap().path(), repository.path());
    fs::remove_dir(repository.path()).unwrap();
    assert!(matches!(repository.list(), Err(Error::Io { .. })));
    assert!(matches!(repository.take(&at_home().0), Err(Error::Io { .. })));
}
