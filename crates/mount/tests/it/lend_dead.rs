//! A program that has a lent file open outlives the daemon.

use crate::daemon::Daemon;
use crate::place::{Place, skipped_unless_root, until};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command};
use tiersmith_mount::Options;

const LEN: usize = 256 << 10;
const TIER: u64 = 9 << 20;

/// Ends its program also when the test fails.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_program_that_outlives_the_daemon_is_named_by_the_next_attach_and_what_it_writes_counts() {
    const TEST: &str =
        "a_program_that_outlives_the_daemon_is_named_by_the_next_attach_and_what_it_writes_counts";
    if skipped_unless_root(TEST) {
        return;
    }
    let mut place = Place::with(TIER >> 20, Options::default());
    fs::write(place.at("new.redo"), vec![1; LEN]).unwrap();
    let path = place.at("0.seg");
    fs::rename(place.at("new.redo"), &path).unwrap();
    let open = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
    drop(open());
    let lent = |place: &Place| place.mounted().attached().files().iter().any(|f| f.lent);
    let (report, lending) = (place.mounted().report(), place.mounted().attached().stats().lending);
    if !report.lends || lending.refused.is_some() {
        let why = report.lends_because.or(lending.refused).unwrap_or_default();
        eprintln!("skipped: {TEST}, because nothing is lent: {why}");
        return;
    }
    // Handles that were closed a moment ago are in the way until the kernel has told of it.
    until("the file to be lent", || {
        drop(open());
        lent(&place)
    });
    drop(place.unmount());
    let mut daemon = Daemon::start(place.path(), TIER, false);
    let file = open();
    file.write_all_at(&[2; 100], 0).unwrap();
    let started = Command::new("sleep").arg("1000").stdin(file.try_clone().unwrap()).spawn();
    let program = Program(started.unwrap());
    daemon.kill();
    // Whether the kernel still lets it write is the kernel's business; what it says it has written
    // is there.
    let written = file.write_all_at(&[3; 100], 50).is_ok();
    drop(file);
    daemon.clear();
    place.mount();
    let recovery = place.mounted().attached().stats().recovery;
    let [held] = &recovery.lent_in_use[..] else { panic!("{recovery}") };
    assert_eq!(held.path.to_str(), Some("0.seg"));
    assert_eq!(held.programs, [format!("process {} (sleep)", program.0.id())], "{recovery}");
    let bytes = fs::read(&path).unwrap();
    let expected = if written { (2, 3, 3, 1) } else { (2, 2, 1, 1) };
    assert_eq!((bytes[49], bytes[50], bytes[149], bytes[150]), expected, "written: {written}");
    drop(program);
    until("its files to be closed", || {
        let attached = place.mounted().attached();
        attached.files().iter().all(|f| f.handles == 0) && attached.give_back("0.seg").unwrap()
    });
    place.detach();
    assert_eq!(fs::read(&path).unwrap(), bytes);
}
