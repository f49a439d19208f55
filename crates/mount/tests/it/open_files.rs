//! More files than the daemon may have open: those of class data it opens when it needs them, and a
//! program that has too many others open does not hear of a limit of its own.

use crate::daemon;
use crate::daemon::Daemon;
use crate::place::{Place, skipped, until};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use tiersmith_mount::Options;

const LIMIT: usize = 256;
const FILES: usize = 450;

/// A mount whose daemon may open so few files.
fn served() -> (Place, Daemon) {
    let place = Place::plain(64, Options::default());
    let environment = [(daemon::FILES, &*LIMIT.to_string())];
    let daemon = Daemon::start_with(place.path(), 64 << 20, false, &environment);
    (place, daemon)
}

fn open_in(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

#[test]
fn a_daemon_that_may_open_256_files_serves_more() {
    if skipped("a mount whose daemon may open few files") {
        return;
    }
    let (place, daemon) = served();
    let path = |n: usize| -> PathBuf { place.at(&format!("{}/{n}.d8", n % 300)) };
    for n in 0..300 {
        fs::create_dir(place.at(&n.to_string())).unwrap();
    }
    for n in 0..FILES {
        fs::write(path(n), [n as u8; 9000]).unwrap();
    }
    let open: Vec<File> = (0..FILES)
        .map(|n| OpenOptions::new().read(true).write(true).open(path(n)).unwrap())
        .collect();
    fs::remove_file(path(5)).unwrap();
    for (n, mut file) in open.iter().enumerate() {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert!(bytes == [n as u8; 9000], "file {n}");
        file.write_all(&[7]).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
        file.sync_all().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 9001);
    }
    // A program that walks the tree leaves nothing open behind it.
    let names = (0..300).map(|n| fs::read_dir(place.at(&n.to_string())).unwrap().count());
    assert_eq!(names.sum::<usize>(), FILES - 1);
    assert!(open_in(daemon.pid()) < LIMIT);
    // What is removed can be read still, whatever else was opened meanwhile.
    let mut byte = [0];
    open[5].read_exact_at(&mut byte, 9000).unwrap();
    assert_eq!(byte, [7]);
}

#[test]
fn a_daemon_without_descriptors_does_not_blame_the_program() {
    if skipped("a mount whose daemon may open few files") {
        return;
    }
    let (place, daemon) = served();
    fs::write(place.at("a.d8"), [1; 9000]).unwrap();
    let mut open = Vec::new();
    let refused = loop {
        match File::create(place.at(&format!("{}.pass", open.len()))) {
            Ok(file) => open.push(file),
            Err(e) => break e,
        }
        assert!(open.len() < 2 * LIMIT, "the daemon has more files open than it may");
    };
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::NFILE.raw_os_error()), "{refused}");
    // Most of its descriptors were for those who asked.
    assert!(open.len() > LIMIT / 2, "only {} files could be opened", open.len());
    drop(open);
    until("the daemon to close its files", || open_in(daemon.pid()) < LIMIT / 2);
    File::create(place.at("another.pass")).unwrap();
    assert_eq!(fs::read(place.at("a.d8")).unwrap(), [1; 9000]);
}

#[test]
fn a_second_opening_of_a_data_file_asks_nothing_of_home() {
    if skipped("the cost of an opening") {
        return;
    }
    let mut place = Place::new(16);
    fs::write(place.at("a.d8"), [3; 9000]).unwrap();
    // Whoever asks home finds nothing there.
    fs::rename(place.aside().join("a.d8"), place.aside().join("hidden")).unwrap();
    let mut file = OpenOptions::new().read(true).write(true).open(place.at("a.d8")).unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, [3; 9000]);
    drop(file);
    fs::rename(place.aside().join("hidden"), place.aside().join("a.d8")).unwrap();
    place.detach();
    assert_eq!(fs::read(place.at("a.d8")).unwrap(), [3; 9000]);
}
