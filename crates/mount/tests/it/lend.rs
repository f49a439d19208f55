//! Redo files that are lent: the kernel writes them itself, in a plain file beside the tier, and
//! every other way to them shows the same.

use crate::place::{Place, skipped_unless_root, until};
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use tiersmith_mount::{Options, Transport};

const LEN: usize = 256 << 10;

fn open(path: &PathBuf) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// A mount that lends, with a segment that is whole; or a line that says why there is none.
fn place(transport: Transport) -> Option<(Place, PathBuf)> {
    if skipped_unless_root("lending") {
        return None;
    }
    let place = Place::with(8, Options { transport, sync_on_write: true, ..Options::default() });
    let made = place.at("new.redo");
    fs::write(&made, vec![1; LEN]).unwrap();
    let path = place.at("0.seg");
    fs::rename(&made, &path).unwrap();
    drop(open(&path));
    let report = place.mounted().report();
    let lending = place.mounted().attached().stats().lending;
    // A moment after the file was made its first handle may be there still; it is asked for again
    // then.
    if report.lends && lending.refused.is_none() {
        return Some((place, path));
    }
    let why = report.lends_because.or(lending.refused).unwrap_or_default();
    // Anything else is a failure.
    let known = ["its file system", "the kernel does not offer it", "the kernel refused a file"];
    assert!(known.iter().any(|known| why.contains(known)), "nothing is lent: {why}");
    eprintln!("skipped: lending, because {why}");
    None
}

fn is_lent(place: &Place, name: &str) -> bool {
    place.mounted().attached().files().iter().any(|f| f.path.as_os_str() == name && f.lent)
}

/// Opens for writing until the kernel has the file: handles that were closed a moment ago are in
/// the way until it has told of it.
fn lent(place: &Place, path: &PathBuf) -> File {
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    until("the file to be lent", || {
        drop(open(path));
        is_lent(place, &name)
    });
    open(path)
}

fn plains(place: &Place) -> Vec<PathBuf> {
    let dir = fs::read_dir(place.path().join("fast.lent"));
    dir.map_or(Vec::new(), |dir| dir.map(|e| e.unwrap().path()).collect())
}

#[test]
fn a_lent_file_is_one_file_whichever_way_it_is_reached() {
    for transport in [Transport::Classic, Transport::Auto] {
        let Some((mut place, path)) = place(transport) else { return };
        let file = lent(&place, &path);
        let before = place.mounted().attached().stats().waits.clone();
        file.write_all_at(&[2; 8192], 8192).unwrap();
        file.write_all_at(&[3; 100], 5).unwrap();
        // It went past this process, into the plain file.
        let plain = plains(&place);
        assert_eq!(plain.len(), 1);
        assert_eq!(&fs::read(&plain[0]).unwrap()[8192..16384], [2; 8192]);
        assert_eq!(fs::metadata(&plain[0]).unwrap().mode() & 0o777, 0o600);
        let after = place.mounted().attached().stats().waits.clone();
        assert_eq!(format!("{before:?}"), format!("{after:?}"), "no wait event has seen it");
        // Another handle, reading and appending, and a look at it.
        let reader = File::open(&path).unwrap();
        let mut bytes = vec![0; LEN];
        reader.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(
            (bytes[4], bytes[5], bytes[104], bytes[105], bytes[8191], bytes[8192]),
            (1, 3, 3, 1, 1, 2)
        );
        assert_eq!(fs::metadata(&path).unwrap().len(), LEN as u64);
        // The store's own way: what a flush brings home, and the file goes on being lent.
        place.mounted().attached().flush_all().unwrap();
        assert_eq!(fs::read(place.aside().join("0.seg")).unwrap(), bytes);
        assert!(is_lent(&place, "0.seg"));
        file.write_all_at(&[4; 8192], 0).unwrap();
        drop((file, reader));
        // Closed, it goes home by itself, and stays lent for the next opening.
        let aside = place.aside().join("0.seg");
        until("home to follow", || fs::read(&aside).unwrap()[..8192] == [4; 8192]);
        assert!(is_lent(&place, "0.seg"));
        let mtime = fs::metadata(&path).unwrap().mtime();
        place.remount();
        assert!(is_lent(&place, "0.seg"));
        assert_eq!(place.mounted().attached().stats().recovery.files_lent, 1);
        assert_eq!(fs::metadata(&path).unwrap().mtime(), mtime);
        assert_eq!(&fs::read(&path).unwrap()[8190..8194], [4, 4, 2, 2]);
        place.detach();
        let plain = fs::read(&path).unwrap();
        assert_eq!((plain.len(), plain[0], plain[8192], plain[LEN - 1]), (LEN, 4, 2, 1));
        assert!(!place.path().join("fast.lent").exists());
    }
}

#[test]
fn a_lent_file_is_cut_cleared_renamed_and_removed_as_any_other() {
    let Some((mut place, path)) = place(Transport::Auto) else { return };
    let file = lent(&place, &path);
    file.set_len(100_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 100_000);
    file.set_len(LEN as u64).unwrap();
    let mut bytes = vec![9; LEN];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes[..100_000].iter().all(|b| *b == 1) && bytes[100_000..].iter().all(|b| *b == 0));
    let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 4096, 8192).unwrap();
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!((bytes[4095], bytes[4096], bytes[12287], bytes[12288]), (1, 0, 0, 1));
    // Appending by the kernel makes it longer than what the tier knew.
    let mut append = OpenOptions::new().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut append, b"end").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), LEN as u64 + 3);
    drop(append);
    let other = place.at("1.seg");
    fs::rename(&path, &other).unwrap();
    file.write_all_at(&[7; 10], 0).unwrap();
    assert_eq!(&fs::read(&other).unwrap()[..11], [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 1]);
    fs::hard_link(&other, place.at("2.seg")).unwrap();
    fs::remove_file(&other).unwrap();
    drop(file);
    place.remount();
    let last = place.at("2.seg");
    assert_eq!(fs::read(&last).unwrap().len(), LEN + 3);
    // Removed while it is open: good until it is closed.
    let file = lent(&place, &last);
    fs::remove_file(&last).unwrap();
    file.write_all_at(&[8; 10], 0).unwrap();
    let mut ten = [0; 10];
    file.read_exact_at(&mut ten, 0).unwrap();
    assert_eq!(ten, [8; 10]);
    drop(file);
    until("the plain file to go", || plains(&place).is_empty());
    place.detach();
}

#[test]
fn a_lent_file_that_is_mapped_is_not_given_back_although_it_is_closed() {
    let Some((mut place, path)) = place(Transport::Auto) else { return };
    let file = lent(&place, &path);
    let protection = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    // SAFETY: the kernel chooses where; it is unmapped below, and nothing refers to it after that.
    let map = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            LEN,
            protection,
            rustix::mm::MapFlags::SHARED,
            &file,
            0,
        )
        .unwrap()
    };
    drop(file);
    let attached = place.mounted().attached().clone();
    // Also when the kernel has told that the handle is closed.
    until("the handle to be closed", || {
        attached.files().iter().any(|f| f.path.as_os_str() == "0.seg" && f.handles == 0)
    });
    assert!(!attached.give_back("0.seg").unwrap(), "it is mapped");
    // SAFETY: the mapping is LEN bytes long.
    unsafe { map.cast::<u8>().add(7).write_volatile(77) };
    // SAFETY: the mapping is the one made above.
    unsafe { rustix::mm::munmap(map, LEN).unwrap() };
    until("the mapping to be gone", || attached.give_back("0.seg").unwrap());
    assert!(!is_lent(&place, "0.seg"));
    assert_eq!(fs::read(&path).unwrap()[..9], [1, 1, 1, 1, 1, 1, 1, 77, 1]);
    drop(attached);
    place.detach();
    assert_eq!(fs::read(&path).unwrap()[7], 77);
}

#[test]
fn random_work_on_a_lent_file_equals_a_plain_one() {
    let Some((mut place, path)) = place(Transport::Auto) else { return };
    let plain_path = place.path().join("plain");
    fs::write(&plain_path, vec![1; LEN]).unwrap();
    let mut rng = fastrand::Rng::with_seed(11);
    let (mut ours, mut plain) = (open(&path), open(&plain_path));
    for step in 0..1500u32 {
        let (at, len) = (rng.u64(0..LEN as u64), rng.usize(1..20_000));
        match rng.u32(0..100) {
            0..55 => {
                let bytes = vec![step as u8; len];
                ours.write_all_at(&bytes, at).unwrap();
                plain.write_all_at(&bytes, at).unwrap();
            }
            55..80 => {
                let (mut a, mut b) = (vec![0; len], vec![0; len]);
                let (n, m) =
                    (ours.read_at(&mut a, at).unwrap(), plain.read_at(&mut b, at).unwrap());
                assert_eq!((n, &a[..n]), (m, &b[..m]), "step {step}");
            }
            80..83 => {
                ours.set_len(at).unwrap();
                plain.set_len(at).unwrap();
            }
            83..86 => {
                let punch =
                    rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&ours, punch, at, len as u64).unwrap();
                rustix::fs::fallocate(&plain, punch, at, len as u64).unwrap();
            }
            86..90 => {
                ours.sync_data().unwrap();
                place.mounted().attached().flush_all().unwrap();
            }
            90..96 => {
                drop(ours);
                if rng.bool() {
                    // Somebody may have it still; then it stays lent.
                    place.mounted().attached().give_back("0.seg").unwrap();
                }
                ours = open(&path);
                plain = open(&plain_path);
            }
            96..98 => {
                drop(ours);
                place.remount();
                ours = open(&path);
            }
            _ => {
                let there = place.at(if rng.bool() { "0.seg" } else { "moved.seg" });
                fs::rename(&path, &there).unwrap();
                fs::rename(&there, &path).unwrap();
            }
        }
        let (a, b) = (ours.metadata().unwrap().len(), plain.metadata().unwrap().len());
        assert_eq!(a, b, "size after step {step}");
    }
    drop(ours);
    assert_eq!(fs::read(&path).unwrap(), fs::read(&plain_path).unwrap());
    place.detach();
    assert_eq!(fs::read(&path).unwrap(), fs::read(&plain_path).unwrap());
}

/// An older kernel after a reboot, or `--lend no`: through this process a lent file is slower than
/// one that is not.
#[test]
fn what_was_lent_is_taken_back_by_a_mount_that_lends_nothing() {
    let Some((mut place, path)) = place(Transport::Auto) else { return };
    let file = lent(&place, &path);
    file.write_all_at(&[5; 8192], 4096).unwrap();
    drop(file);
    place.options.lend = false;
    place.remount();
    assert!(!place.mounted().report().lends);
    assert!(is_lent(&place, "0.seg"), "as recovery found it");
    until("the file to be taken back", || {
        assert_eq!(fs::read(&path).unwrap()[4095..4097], [1, 5]);
        !is_lent(&place, "0.seg")
    });
    until("the plain file to go", || plains(&place).is_empty());
    let file = open(&path);
    file.write_all_at(&[6; 8192], 8192).unwrap();
    drop(file);
    assert!(!is_lent(&place, "0.seg"));
    place.remount();
    let found = fs::read(&path).unwrap();
    assert_eq!((found.len(), found[4096], found[8192], found[16384]), (LEN, 5, 6, 1));
    place.detach();
    assert_eq!(fs::read(&path).unwrap(), found);
}

/// How many pages of a file are not on its storage; `None` where the kernel does not say.
fn unsynced_pages(file: &File) -> Option<u64> {
    const CACHESTAT: libc::c_long = 451;
    let range = [0u64, 0];
    let mut found = [0u64; 5];
    // SAFETY: the call reads two and writes five numbers of 64 bits, which are there; the
    // descriptor is open.
    let done = unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), found.as_mut_ptr(), 0)
    };
    (done == 0).then_some(found[1] + found[2])
}

/// What lending rests on where the medium is persistent: the attribute of the file that is written,
/// not a flag of whoever opened it, makes the kernel sync each write that it passes through. Shown
/// with a file that passes, on whatever disk the home is.
#[test]
fn a_write_that_is_passed_through_is_synced_when_the_file_has_the_attribute() {
    if skipped_unless_root("passed through and synced") {
        return;
    }
    let mut place = Place::with(8, Options::default());
    let why = |why: &str| eprintln!("skipped: passed through and synced, because {why}");
    if !place.mounted().report().passthrough {
        return why("the kernel passes nothing through here");
    }
    fs::write(place.at("a.pass"), [1; 16384]).unwrap();
    let beneath = open(&place.aside().join("a.pass"));
    beneath.sync_all().unwrap();
    let flags = rustix::fs::ioctl_getflags(&beneath);
    let set = flags
        .and_then(|flags| rustix::fs::ioctl_setflags(&beneath, flags | rustix::fs::IFlags::SYNC));
    if let Err(e) = set {
        return why(&format!("the disk of this directory has no such attribute ({e})"));
    }
    if unsynced_pages(&beneath).is_none() {
        return why("the kernel does not say which pages are on storage (Linux 6.5 does)");
    }
    let path = place.at("a.pass");
    until("the kernel to have it", || {
        place.mounted().attached().files().iter().all(|f| f.handles == 0)
    });
    let file = OpenOptions::new().write(true).custom_flags(0).open(&path).unwrap();
    for n in 0..20 {
        file.write_all_at(&[n; 8192], 4096).unwrap();
        assert_eq!(unsynced_pages(&beneath), Some(0), "write {n} was not synced");
    }
    drop((file, beneath));
    place.detach();
}
