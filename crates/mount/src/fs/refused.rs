//! A kernel that refuses lent files, planted: what the file system does then. A kernel that really
//! does is in `tests/it/lend_refused.rs`.

use super::{Fs, Passthrough};
use crate::Options;
use crate::fs::table::ROOT;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tiersmith_store::{AttachedHome, Medium, OpenMode, Profile, TierSpec, attach};

const LEN: usize = 64 << 10;
const RDWR: u32 = libc::O_RDWR as u32;

/// Refuses as Linux does where the file's own file system is stacked on another.
#[derive(Debug, Default)]
struct Refuses(Arc<AtomicU64>);

impl Passthrough for Refuses {
    fn open(&self, _: BorrowedFd<'_>) -> io::Result<i32> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(io::Error::from_raw_os_error(libc::ELOOP))
    }

    fn close(&self, id: i32) {
        panic!("nothing was taken over, and {id} is given back");
    }
}

fn attached(dir: &Path) -> AttachedHome {
    let text = "description = 'test'\n[default]\nclass = 'pass'\nblock_size = \
                4096\n[[rule]]\nfiles = ['*.seg']\nclass = 'redo'\n\
        lend = true\nwhy = 'test'\n";
    let profile = Some(Profile::parse("lend", text).unwrap());
    let mut spec = TierSpec::new("fast", dir.join("fast"), Medium::Emulated, 4 << 20);
    (spec.unit, spec.lanes, spec.slots) = (64 << 10, 4, 16);
    let options = tiersmith_store::Options { profile, background: false, ..Default::default() };
    attach(&dir.join("db"), &[spec], options).unwrap()
}

#[test]
fn a_file_that_the_kernel_refuses_is_given_back_once_it_is_home_and_nothing_more_is_lent() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("db")).unwrap();
    for n in 0..3u8 {
        fs::write(dir.path().join(format!("db/{n}.seg")), vec![n; LEN]).unwrap();
    }
    let home = attached(dir.path());
    // One was lent before, on a mount that could.
    if home.open("2.seg", OpenMode::WRITE).unwrap().lend().unwrap().is_none() {
        let why = home.stats().lending.refused.unwrap_or_default();
        assert!(why.contains("its file system"), "nothing is lent: {why}");
        eprintln!("skipped: lending, because {why}");
        return;
    }
    let asked = Arc::new(AtomicU64::new(0));
    let served = Fs::new(home.clone(), &Options::default(), &super::Part::default()).unwrap();
    served.set_passthrough(Some(Box::new(Refuses(asked.clone()))));
    let plains = || fs::read_dir(dir.path().join("fast.lent")).map_or(0, Iterator::count);
    let is_lent = |name: &str| home.files().iter().any(|f| f.path == Path::new(name) && f.lent);
    assert_eq!(plains(), 1);
    for n in 0..3u8 {
        let name = format!("{n}.seg");
        let node = served.lookup(ROOT, OsStr::new(&name)).unwrap().unwrap().node;
        let handle = served.open(node, RDWR).unwrap();
        assert_eq!(handle.backing, 0, "{name} goes through this process");
        // Lent, or just about to be, when it was opened: no opening copies it home.
        let stays = n != 1;
        assert_eq!(is_lent(&name), stays, "{name}");
        assert_eq!(served.write(handle.fh, 5, &[9; 100], 0, false).unwrap(), 100);
        let mut bytes = vec![7; LEN + 1];
        assert_eq!(served.read(handle.fh, 0, &mut bytes).unwrap(), LEN);
        assert_eq!((bytes[4], bytes[5], bytes[104], bytes[105]), (n, 9, 9, n));
        served.fsync(handle.fh, true).unwrap();
        served.release(handle.fh);
        // Nor does one that follows, for as long as home has less than all of it.
        let handle = served.open(node, RDWR).unwrap();
        served.release(handle.fh);
        assert_eq!(is_lent(&name), stays, "{name}");
        if stays {
            assert_eq!(
                fs::read(tiersmith_store::home::files_aside(&dir.path().join("db")).join(&name))
                    .unwrap(),
                vec![n; LEN],
                "an opening went to home"
            );
            // As the background does.
            home.destage(Some(Path::new(&name))).unwrap();
            assert!(is_lent(&name));
            let handle = served.open(node, RDWR).unwrap();
            assert!(!is_lent(&name) && handle.backing == 0);
            let mut bytes = vec![7; LEN];
            assert_eq!(served.read(handle.fh, 0, &mut bytes).unwrap(), LEN);
            assert_eq!((bytes[4], bytes[5], bytes[104], bytes[105]), (n, 9, 9, n));
            served.release(handle.fh);
        }
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1, "the kernel is asked once");
    assert!(served.lending_refused.lock().as_ref().unwrap().contains("os error 40"));
    assert_eq!((plains(), home.stats().lending.files), (0, 0));
    served.end();
    drop(served);
    home.detach().unwrap();
    for n in 0..3u8 {
        let bytes = fs::read(dir.path().join(format!("db/{n}.seg"))).unwrap();
        assert_eq!((bytes.len(), bytes[4], bytes[5], bytes[105]), (LEN, n, 9, n));
    }
}

#[test]
fn a_refused_file_that_a_program_has_itself_stays_lent_and_stays_right() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("db")).unwrap();
    fs::write(dir.path().join("db/0.seg"), vec![1; LEN]).unwrap();
    let home = attached(dir.path());
    if home.open("0.seg", OpenMode::WRITE).unwrap().lend().unwrap().is_none() {
        eprintln!("skipped: lending, because the file system of this directory cannot");
        return;
    }
    let plain = fs::read_dir(dir.path().join("fast.lent")).unwrap().next().unwrap().unwrap().path();
    let other = fs::File::options().write(true).open(plain).unwrap();
    let served = Fs::new(home.clone(), &Options::default(), &super::Part::default()).unwrap();
    served.set_passthrough(Some(Box::<Refuses>::default()));
    let node = served.lookup(ROOT, OsStr::new("0.seg")).unwrap().unwrap().node;
    let handle = served.open(node, RDWR).unwrap();
    assert_eq!(handle.backing, 0);
    assert_eq!(home.stats().lending.files, 1);
    std::os::unix::fs::FileExt::write_all_at(&other, &[2; 10], 20).unwrap();
    assert_eq!(served.write(handle.fh, 5, &[9; 10], 0, false).unwrap(), 10);
    let mut bytes = vec![0; 40];
    assert_eq!(served.read(handle.fh, 0, &mut bytes).unwrap(), 40);
    assert_eq!(
        (bytes[4], bytes[5], bytes[14], bytes[15], bytes[20], bytes[30]),
        (1, 9, 9, 1, 2, 1)
    );
    served.release(handle.fh);
    drop(other);
    // Opened again, and home up to date, it goes back: the kernel was asked before.
    home.flush_all().unwrap();
    let handle = served.open(node, RDWR).unwrap();
    assert_eq!((handle.backing, home.stats().lending.files), (0, 0));
    served.release(handle.fh);
    served.end();
    drop(served);
    home.detach().unwrap();
    assert_eq!(fs::read(dir.path().join("db/0.seg")).unwrap()[..40], bytes);
}
