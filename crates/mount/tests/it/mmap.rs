//! Memory maps of files of each class: what is written to memory reaches the file, what is written
//! to the file is seen in memory.

use crate::daemon::Apart;
use crate::place::skipped;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

const NAMES: [&str; 4] = ["a.redo", "a.d8", "a.d4", "a.pass"];
const LEN: usize = 256 << 10;

/// A shared map of a file, as bytes.
struct Map {
    at: *mut u8,
    len: usize,
}

impl Map {
    fn new(file: &File, len: usize) -> Self {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses where; the mapping lives as long as the value.
        let at = unsafe {
            mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0).unwrap()
        };
        Self { at: at.cast(), len }
    }

    fn put(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len);
        // SAFETY: the range was checked against the length of the mapping, within the file.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.add(offset), bytes.len()) };
    }

    fn get(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len);
        let mut bytes = vec![0; len];
        // SAFETY: the range was checked against the length of the mapping, within the file.
        unsafe { std::ptr::copy_nonoverlapping(self.at.add(offset), bytes.as_mut_ptr(), len) };
        bytes
    }

    fn sync(&self) {
        // SAFETY: the mapping is alive.
        unsafe { msync(self.at.cast(), self.len, MsyncFlags::SYNC).unwrap() };
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is the one made in `new`, and the value goes away.
        let _ = unsafe { munmap(self.at.cast(), self.len) };
    }
}

#[test]
fn memory_and_file_show_each_other_what_was_written() {
    if skipped("memory_and_file_show_each_other_what_was_written") {
        return;
    }
    let mut place = Apart::new(8, false);
    for name in NAMES {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(place.at(name))
            .unwrap();
        file.write_all_at(&vec![7; LEN], 0).unwrap();
        let map = Map::new(&file, LEN);
        assert_eq!(map.get(100_000, 3), [7, 7, 7], "{name}");
        file.write_all_at(b"by write", 70_000).unwrap();
        assert_eq!(map.get(70_000, 8), b"by write", "{name}");
        map.put(150_000, b"by memory");
        let mut read = [0; 9];
        file.read_exact_at(&mut read, 150_000).unwrap();
        assert_eq!(&read, b"by memory", "{name}");
        map.put(8190, b"across a border");
        map.sync();
    }
    place.remount();
    for name in NAMES {
        let bytes = std::fs::read(place.at(name)).unwrap();
        assert_eq!(bytes.len(), LEN, "{name}");
        assert_eq!(&bytes[70_000..70_008], b"by write", "{name}");
        assert_eq!(&bytes[150_000..150_009], b"by memory", "{name}");
        assert_eq!(&bytes[8190..8205], b"across a border", "{name}");
    }
}

#[test]
fn what_is_in_memory_only_is_written_when_the_mount_goes() {
    if skipped("what_is_in_memory_only_is_written_when_the_mount_goes") {
        return;
    }
    let mut place = Apart::new(8, false);
    for name in NAMES {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(place.at(name))
            .unwrap();
        file.set_len(LEN as u64).unwrap();
        let map = Map::new(&file, LEN);
        for page in 0..LEN / 4096 {
            map.put(page * 4096 + page, &[page as u8 + 1]);
        }
    }
    place.detach();
    for name in NAMES {
        let bytes = std::fs::read(place.at(name)).unwrap();
        for page in 0..LEN / 4096 {
            assert_eq!(bytes[page * 4096 + page], page as u8 + 1, "{name}");
        }
    }
}

#[test]
fn direct_and_cached_handles_of_one_file_agree() {
    if skipped("direct_and_cached_handles_of_one_file_agree") {
        return;
    }
    let place = Apart::new(8, false);
    for name in NAMES {
        let cached = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(place.at(name))
            .unwrap();
        cached.write_all_at(&vec![1; LEN], 0).unwrap();
        let direct = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .open(place.at(name))
            .unwrap();
        let map = Map::new(&cached, LEN);
        // Aligned, for home's own direct I/O.
        let space = vec![2u8; 3 * 4096];
        let skip = space.as_ptr().align_offset(4096);
        direct.write_all_at(&space[skip..skip + 8192], 65536).unwrap();
        let mut read = [0; 8192];
        cached.read_exact_at(&mut read, 65536).unwrap();
        assert!(read.iter().all(|b| *b == 2), "{name}");
        assert_eq!(map.get(65536, 1), [2], "{name}");
    }
}
