//! Files of class pass that the kernel reads and writes itself, where it can: the same contents,
//! also when a file changes its class by its name, and beside handles that go through this process.

use crate::place::{Place, skipped_unless_root};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use tiersmith_mount::Options;

/// A mount with passthrough, or a line that says why there is none.
fn place() -> Option<Place> {
    if skipped_unless_root("passthrough") {
        return None;
    }
    let place = Place::with(8, Options { passthrough: true, ..Options::default() });
    fs::write(place.at("probe.pass"), "x").unwrap();
    match place.mounted().report() {
        report if report.passthrough => Some(place),
        report => {
            eprintln!(
                "skipped: passthrough, because {}",
                report.passthrough_because.unwrap_or_default()
            );
            None
        }
    }
}

#[test]
fn what_the_kernel_writes_is_in_the_home_at_once() {
    let Some(mut place) = place() else { return };
    let path = place.at("a.pass");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all(&[3; 100_000]).unwrap();
    assert_eq!(fs::read(place.aside().join("a.pass")).unwrap(), [3; 100_000]);
    assert_eq!(file.metadata().unwrap().len(), 100_000);
    // Another handle, another way to write, an append, a cut: one file.
    let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path);
    if let Ok(direct) = direct {
        let space = vec![0u8; 2 * 4096];
        let skip = space.as_ptr().align_offset(4096);
        let mut space = space;
        direct.read_exact_at(&mut space[skip..skip + 4096], 0).unwrap();
        assert_eq!(space[skip], 3);
    }
    let mut append = OpenOptions::new().append(true).open(&path).unwrap();
    append.write_all(b"end").unwrap();
    file.set_len(100_002).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 100_002);
    file.sync_all().unwrap();
    drop((file, append));
    let before = fs::metadata(&path).unwrap();
    place.remount();
    let after = fs::metadata(&path).unwrap();
    assert_eq!(after.len(), 100_002);
    assert_eq!((before.mtime(), before.mtime_nsec()), (after.mtime(), after.mtime_nsec()));
    assert_eq!(&fs::read(&path).unwrap()[99_998..], [3, 3, b'e', b'n']);
}

#[test]
fn a_file_that_changes_its_class_with_its_name_keeps_its_bytes() {
    let Some(mut place) = place() else { return };
    for (from, to) in
        [("a.pass", "a.d8"), ("b.d8", "b.pass"), ("c.pass", "c.redo"), ("d.redo", "d.pass")]
    {
        let mut bytes = vec![0; 60_000];
        fastrand::Rng::with_seed(5).fill(&mut bytes);
        fs::write(place.at(from), &bytes).unwrap();
        let open = OpenOptions::new().read(true).write(true).open(place.at(from)).unwrap();
        fs::rename(place.at(from), place.at(to)).unwrap();
        // The open handle, and a new one by the new name, see and write one file.
        let other = OpenOptions::new().read(true).write(true).open(place.at(to)).unwrap();
        open.write_all_at(b"by the old handle", 30_000).unwrap();
        other.write_all_at(b"by the new handle", 40_000).unwrap();
        bytes[30_000..30_017].copy_from_slice(b"by the old handle");
        bytes[40_000..40_017].copy_from_slice(b"by the new handle");
        for file in [&open, &other] {
            let mut read = vec![0; 60_000];
            file.read_exact_at(&mut read, 0).unwrap();
            assert_eq!(read, bytes, "{from} to {to}");
        }
        drop((open, other));
        assert_eq!(fs::read(place.at(to)).unwrap(), bytes, "{from} to {to}: opened anew");
        let file = OpenOptions::new().write(true).open(place.at(to)).unwrap();
        file.write_all_at(b"once more", 50_000).unwrap();
        bytes[50_000..50_009].copy_from_slice(b"once more");
        drop(file);
        place.remount();
        assert_eq!(fs::read(place.at(to)).unwrap(), bytes, "{from} to {to}: mounted anew");
    }
}

/// A length that is seen while another thread appends may lie within what it appends: ext4 itself,
/// without a mount, shows a border of a page there. What is promised is that appends do not mix,
/// and that what was acknowledged is in the length.
#[test]
fn many_files_are_opened_and_closed_by_many_threads() {
    let Some(place) = place() else { return };
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let home = place.home();
            scope.spawn(move || {
                let mut acknowledged = [0u64; 7];
                for n in 0..150 {
                    let path = home.join(format!("file-{}.pass", n % 7));
                    let mut file =
                        OpenOptions::new().append(true).create(true).open(&path).unwrap();
                    file.write_all(&[thread; 100]).unwrap();
                    acknowledged[n % 7] += 100;
                    let read = File::open(&path).unwrap();
                    assert!(read.metadata().unwrap().len() >= acknowledged[n % 7]);
                }
            });
        }
    });
    let files: Vec<Vec<u8>> =
        (0..7).map(|n| fs::read(place.at(&format!("file-{n}.pass"))).unwrap()).collect();
    assert_eq!(files.iter().map(Vec::len).sum::<usize>(), 4 * 150 * 100);
    let whole = |part: &[u8]| part.len() == 100 && part.iter().all(|byte| *byte == part[0]);
    assert!(files.iter().all(|file| file.chunks(100).all(whole)), "two appends are mixed");
}
