//! A file as a device: how it is made, opened, locked, refused and grown, and what an error says.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use rustix::fs::SeekFrom;
use tempfile::TempDir;
use tiersmith_block::{Device, Error, OpenOptions, Sector, SectorSize, Sectors};
use tiersmith_dir::Dir;

fn scratch() -> (TempDir, Dir) {
    let scratch = tempfile::tempdir().unwrap();
    let dir = Dir::open(scratch.path()).unwrap();
    (scratch, dir)
}

fn create(sectors: u64) -> OpenOptions {
    OpenOptions { create: true, ..OpenOptions::new(SectorSize::B512, Sectors(sectors)) }
}

/// Whether the file has no hole: nothing that the first write would have to allocate.
fn is_written_in_full(path: &Path) -> bool {
    let file = fs::File::open(path).unwrap();
    rustix::fs::seek(&file, SeekFrom::Hole(0)).unwrap() == file.metadata().unwrap().len()
}

#[test]
fn a_new_file_is_its_owners_alone_and_written_in_full() {
    let (scratch, dir) = scratch();
    let path = scratch.path().join("new");
    let device = Device::open(&dir, "new", &create(5000)).unwrap();
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.len(), found.mode() & 0o7777), (5000 * 512, 0o600));
    assert!(is_written_in_full(&path));
    device.grow(Sectors(9000)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 9000 * 512);
    assert!(is_written_in_full(&path));
}

#[test]
fn holes_of_an_existing_file_are_written_and_its_bytes_stay() {
    let (scratch, dir) = scratch();
    let path = scratch.path().join("sparse");
    let file = fs::File::create(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[5; 4096], 512 << 10).unwrap();
    drop(file);
    assert!(!is_written_in_full(&path) || cfg!(miri));
    // Not asked for, its length is what it has.
    let device =
        Device::open(&dir, "sparse", &OpenOptions::new(SectorSize::B512, Sectors(0))).unwrap();
    assert_eq!(device.sectors(), Sectors(2048));
    assert!(is_written_in_full(&path));
    let mut found = vec![1; 1 << 20];
    device.read(Sector(0), &mut found).unwrap();
    let written = (512 << 10)..(512 << 10) + 4096;
    assert!(
        found
            .iter()
            .enumerate()
            .all(|(at, byte)| *byte == if written.contains(&at) { 5 } else { 0 })
    );
}

#[test]
fn a_device_shorter_than_its_file_grows_by_zeros_and_not_by_what_lay_there() {
    let (scratch, dir) = scratch();
    fs::write(scratch.path().join("long"), vec![9; 8 * 512]).unwrap();
    let device = Device::open(&dir, "long", &create(4)).unwrap();
    device.grow(Sectors(6)).unwrap();
    let mut found = vec![1; 6 * 512];
    device.read(Sector(0), &mut found).unwrap();
    assert!(
        found[..4 * 512].iter().all(|byte| *byte == 9)
            && found[4 * 512..].iter().all(|byte| *byte == 0)
    );
    assert!(device.read(Sector(6), &mut [0; 512]).is_err());
}

#[test]
fn what_cannot_be_a_device_is_refused_with_a_reason_and_left_alone() {
    let (scratch, dir) = scratch();
    let at = |name: &str| scratch.path().join(name);
    let said = |name: &str, options: &OpenOptions| {
        Device::open(&dir, name, options).unwrap_err().to_string()
    };
    let existing = OpenOptions::new(SectorSize::B512, Sectors(8));

    assert!(
        said("missing", &existing)
            .ends_with("does not exist; check the path, or ask for it to be created")
    );
    fs::write(at("short"), [7; 100]).unwrap();
    assert!(said("short", &existing).contains("holds 100 bytes but 4096 were asked for"));
    assert!(
        said("short", &OpenOptions::new(SectorSize::B512, Sectors(0)))
            .contains("a device of 0 sectors")
    );
    assert!(
        said("short", &create(u64::MAX))
            .contains("cannot be a device of 18446744073709551615 sectors")
    );
    assert_eq!(fs::read(at("short")).unwrap(), [7; 100]);
    fs::create_dir(at("directory")).unwrap();
    assert!(said("directory", &existing).contains("is not a regular file"));
    symlink(at("short"), at("link")).unwrap();
    assert!(said("link", &create(8)).contains("is not a regular file"));
    assert!(said("../short", &create(8)).contains("is not a name in a directory"));
    assert_eq!(fs::read(at("short")).unwrap(), [7; 100]);

    let device = Device::open(&dir, "held", &create(8)).unwrap();
    assert!(matches!(Device::open(&dir, "held", &existing).unwrap_err(), Error::Owned { .. }));
    assert!(said("held", &create(800)).contains("is in use by another process"));
    assert_eq!(fs::metadata(at("held")).unwrap().len(), 4096, "lengthened without the lock");
    drop(device);
    Device::open(&dir, "held", &existing).unwrap();
}

#[test]
fn a_file_that_somebody_else_could_change_is_refused_by_owner() {
    let (scratch, dir) = scratch();
    let path = scratch.path().join("device");
    drop(Device::open(&dir, "device", &create(8)).unwrap());
    let me = fs::metadata(&path).unwrap().uid();
    let mine = OpenOptions { owner: Some(me), ..create(16) };
    let refused = |reason: &str| {
        let error = Device::open(&dir, "device", &mine).unwrap_err();
        assert!(
            matches!(error, Error::OfAnother { .. }) && error.to_string().contains(reason),
            "{error}"
        );
        assert_eq!(fs::metadata(&path).unwrap().len(), 8 * 512, "refused, and lengthened before");
    };
    fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
    refused("may be written by others (mode 0620)");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(&path, scratch.path().join("second")).unwrap();
    refused("has another name");
    fs::remove_file(scratch.path().join("second")).unwrap();
    if me == 0 {
        chown(&path, Some(4711), None).unwrap();
        refused("belongs to user 4711");
        chown(&path, Some(0), None).unwrap();
    } else {
        println!("skipped: a file of another account, because only root can make one");
    }
    Device::open(&dir, "device", &mine).unwrap();
}

#[test]
fn without_room_a_new_file_is_gone_and_an_old_one_as_it_was() {
    let (scratch, dir) = scratch();
    if rustix::fs::statvfs(scratch.path()).unwrap().f_blocks == 0 {
        println!(
            "skipped: more than is free, because this file system does not say how much that is"
        );
        return;
    }
    let long = create(1 << 50);
    let error = Device::open(&dir, "new", &long).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert!(!scratch.path().join("new").exists());
    fs::write(scratch.path().join("old"), [7; 1024]).unwrap();
    assert!(matches!(Device::open(&dir, "old", &long).unwrap_err(), Error::NoSpace { .. }));
    assert_eq!(fs::read(scratch.path().join("old")).unwrap(), [7; 1024]);
    let device = Device::open(&dir, "old", &create(2)).unwrap();
    assert!(matches!(device.grow(Sectors(1 << 50)).unwrap_err(), Error::NoSpace { .. }));
    assert_eq!(device.sectors(), Sectors(2));
    device.write(Sector(1), &[8; 512]).unwrap();
    device.sync().unwrap();
    drop(device);
    assert_eq!(fs::read(scratch.path().join("old")).unwrap(), [[7; 512], [8; 512]].concat());
}

#[test]
fn a_file_that_was_truncated_is_unreadable_by_file_and_bytes() {
    let (scratch, dir) = scratch();
    let path = scratch.path().join("device");
    let device = Device::open(&dir, "device", &create(8)).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(3 * 512).unwrap();
    device.read(Sector(0), &mut [0; 3 * 512]).unwrap();
    let error = device.read(Sector(2), &mut [0; 1024]).unwrap_err();
    assert!(
        matches!(error, Error::Unreadable { ref range, .. } if *range == (1024..2048)),
        "{error}"
    );
    let said = error.to_string();
    let expected =
        format!("cannot read bytes 1024 to 2048 of {}: the file was truncated", path.display());
    assert!(said.starts_with(&expected), "{said}");
}

#[test]
fn an_error_of_the_medium_names_the_bytes_and_a_sync_that_failed_is_never_taken_back() {
    use tiersmith_pmem::sim::Simulator;
    let disk = Simulator::new().device(vec![0; 16 * 512], 512);
    let device = Device::simulated(disk.clone());
    disk.fail_reads(3 * 512..4 * 512);
    let said = device.read(Sector(2), &mut [0; 1024]).unwrap_err().to_string();
    assert!(
        said.starts_with("cannot read bytes 1024 to 2048 of simulated: Input/output error"),
        "{said}"
    );
    disk.fail_nth_write(1);
    let said = device.write(Sector(8), &[1; 512]).unwrap_err().to_string();
    assert!(
        said.starts_with("cannot write bytes 4096 to 4608 of simulated: Input/output error"),
        "{said}"
    );
    device.write(Sector(4), &[1; 512]).unwrap();
    disk.fail_nth_sync(1);
    for _ in 0..2 {
        let error = device.sync().unwrap_err();
        assert!(
            matches!(error, Error::Lost { ref range, .. } if *range == (2048..4608)),
            "{error}"
        );
        let said = error.to_string();
        assert!(
            said.contains("written to its bytes 2048 to 4608 since the last good sync may be lost"),
            "{said}"
        );
        let error = device.write(Sector(0), &[1; 512]).unwrap_err();
        assert!(matches!(error, Error::Lost { .. }), "{error}");
        assert!(matches!(device.grow(Sectors(32)).unwrap_err(), Error::Lost { .. }));
    }
    device.read(Sector(0), &mut [0; 512]).unwrap();
}

/// Bytes of a file that the kernel has in memory; `None` where no program tells. A read that does
/// not wait would tell too, and fetch what is missing.
fn in_memory(path: &Path) -> Option<u64> {
    let mut fincore = Command::new("fincore");
    let said = fincore.args(["--bytes", "--noheadings", "--output", "RES"]).arg(path).output();
    String::from_utf8(said.ok()?.stdout).ok()?.trim().parse().ok()
}

#[test]
fn what_is_synced_can_be_read_from_the_medium_and_not_through_the_kernels_copy() {
    let (scratch, dir) = scratch();
    let path = scratch.path().join("new");
    let options = OpenOptions { create: true, ..OpenOptions::new(SectorSize::B4096, Sectors(4)) };
    let device = Device::open(&dir, "new", &options).unwrap();
    device.write(Sector(1), &[7; 4096]).unwrap();
    device.sync().unwrap();
    let mut found = [0; 4096];
    device.read_afresh(Sector(1), &mut found).unwrap();
    assert_eq!(found, [7; 4096]);
    let direct = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECT;
    let direct = rustix::fs::open(&path, direct, rustix::fs::Mode::empty());
    let file = fs::File::open(&path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    if direct.is_err() || in_memory(&path) != Some(0) {
        eprintln!(
            "skipped: reading past the kernel's copy, because this file system does not, or \
             nothing tells"
        );
        return;
    }
    device.read_afresh(Sector(0), &mut found).unwrap();
    device.read_afresh(Sector(1), &mut found).unwrap();
    assert_eq!(found, [7; 4096]);
    assert_eq!(in_memory(&path), Some(0), "it was read through the copy");
    device.read(Sector(0), &mut found).unwrap();
    assert!(in_memory(&path) > Some(0));
    device.read_afresh(Sector(4), &mut found).unwrap_err();
}
