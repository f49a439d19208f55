//! Named latency profiles of slow storage, for studies only: a home that answers as late as such
//! storage would.
//!
//! The delays are added to what the real storage takes, and each model says where its figures come
//! from (`models/*.toml`). Nothing is on unless a caller asks for it, and [`crate::Stats`] says so
//! as long as it is; a figure from such a home is labelled with the model's name.
//!
//! Deliberately absent: queues, caches, variance, other users of the storage. A model is a floor
//! that does not move, for comparing. Names (creating, renaming, removing) cost nothing until they
//! are synced.

use super::{Clear, FileTime, Home, HomeFile, HomeStat, OpenMode, RenameFlags};
use parking_lot::Mutex;
use serde::Deserialize;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How slow a home is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeModel {
    name: String,
    text: Text,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    description: String,
    source: String,
    read_us: u64,
    write_us: u64,
    sync_us: u64,
    mib_per_s: u64,
}

const BUILT_IN: [(&str, &str); 3] = [
    ("15k-disk-array", include_str!("../../models/15k-disk-array.toml")),
    ("all-flash-array", include_str!("../../models/all-flash-array.toml")),
    ("cloud-network-volume", include_str!("../../models/cloud-network-volume.toml")),
];

impl HomeModel {
    /// The model of this name; `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        Self::builtin().find(|model| model.name == name)
    }

    /// All models.
    pub fn builtin() -> impl Iterator<Item = Self> {
        BUILT_IN.iter().map(|(name, text)| {
            Self::parse(name, text).expect("BUG: a built-in model cannot be read")
        })
    }

    fn parse(name: &str, text: &str) -> Result<Self, toml::de::Error> {
        Ok(Self { name: name.to_owned(), text: toml::from_str(text)? })
    }

    /// What it is called; the label of every figure.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it stands for, in a sentence.
    pub fn description(&self) -> &str {
        &self.text.description
    }

    /// Where its figures come from.
    pub fn source(&self) -> &str {
        &self.text.source
    }

    /// Added to each read.
    pub fn read(&self) -> Duration {
        Duration::from_micros(self.text.read_us)
    }

    /// Added to each write.
    pub fn write(&self) -> Duration {
        Duration::from_micros(self.text.write_us)
    }

    /// Added to each sync.
    pub fn sync(&self) -> Duration {
        Duration::from_micros(self.text.sync_us)
    }

    /// Bytes a second, of all reads and writes together.
    pub fn bytes_per_s(&self) -> u64 {
        self.text.mib_per_s << 20
    }

    /// A home that is as slow as this.
    pub(crate) fn wrap(&self, home: Arc<dyn Home>) -> Arc<dyn Home> {
        Arc::new(SlowHome {
            home,
            pace: Arc::new(Pace { model: self.clone(), free_at: Mutex::new(Instant::now()) }),
        })
    }
}

/// Who waits how long.
#[derive(Debug)]
struct Pace {
    model: HomeModel,
    /// When the bytes asked for so far are through.
    free_at: Mutex<Instant>,
}

impl Pace {
    /// Waits for one operation that began at `start`: its latency, and until its bytes are through.
    fn wait(&self, start: Instant, latency: Duration, bytes: u64) {
        let transfer = Duration::from_nanos(
            bytes.saturating_mul(1_000_000_000) / self.model.bytes_per_s().max(1),
        );
        let through = {
            let mut free_at = self.free_at.lock();
            *free_at = (*free_at).max(start) + transfer;
            *free_at
        };
        let until = through.max(start + transfer) + latency;
        while let Some(left) =
            until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        {
            std::thread::sleep(left);
        }
    }
}

#[derive(Debug)]
struct SlowHome {
    home: Arc<dyn Home>,
    pace: Arc<Pace>,
}

#[derive(Debug)]
struct SlowFile {
    file: Arc<dyn HomeFile>,
    pace: Arc<Pace>,
}

impl Home for SlowHome {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn HomeFile>> {
        let file = self.home.open(path, mode)?;
        Ok(Arc::new(SlowFile { file, pace: self.pace.clone() }))
    }

    fn open_own(&self, path: &Path, meant: &HomeStat) -> io::Result<Arc<dyn HomeFile>> {
        let file = self.home.open_own(path, meant)?;
        Ok(Arc::new(SlowFile { file, pace: self.pace.clone() }))
    }

    fn stat(&self, path: &Path) -> io::Result<HomeStat> {
        self.home.stat(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.home.rename(from, to)
    }

    fn rename_with(&self, from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
        self.home.rename_with(from, to, flags)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.home.unlink(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.home.link(from, to)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.home.create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.home.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let start = Instant::now();
        let result = self.home.sync_dir(path);
        self.pace.wait(start, self.pace.model.sync(), 0);
        result
    }

    fn walk(&self, each: &mut dyn FnMut(&Path, &HomeStat) -> io::Result<()>) -> io::Result<()> {
        self.home.walk(each)
    }

    fn identity(&self) -> io::Result<HomeStat> {
        self.home.identity()
    }

    fn identity_of_top(&self) -> io::Result<Option<HomeStat>> {
        self.home.identity_of_top()
    }

    fn sync_all(&self) -> io::Result<()> {
        let start = Instant::now();
        let result = self.home.sync_all();
        self.pace.wait(start, self.pace.model.sync(), 0);
        result
    }

    fn now_ns(&self) -> u64 {
        self.home.now_ns()
    }

    fn lock(&self) -> io::Result<()> {
        self.home.lock()
    }

    fn directory(&self) -> Option<BorrowedFd<'_>> {
        self.home.directory()
    }

    fn read_attachment(&self) -> io::Result<Option<Vec<u8>>> {
        self.home.read_attachment()
    }

    fn write_attachment(&self, bytes: &[u8]) -> io::Result<()> {
        self.home.write_attachment(bytes)
    }

    fn remove_attachment(&self) -> io::Result<()> {
        self.home.remove_attachment()
    }

    fn close_door(&self, note: &str) -> io::Result<()> {
        self.home.close_door(note)
    }

    fn open_door(&self) -> io::Result<()> {
        self.home.open_door()
    }

    fn door_closed(&self) -> io::Result<bool> {
        self.home.door_closed()
    }
}

impl HomeFile for SlowFile {
    fn stat(&self) -> io::Result<HomeStat> {
        self.file.stat()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }

    fn read_at(&self, off: u64, into: &mut [u8]) -> io::Result<usize> {
        let start = Instant::now();
        let got = self.file.read_at(off, into)?;
        self.pace.wait(start, self.pace.model.read(), got as u64);
        Ok(got)
    }

    fn write_at(&self, off: u64, data: &[u8]) -> io::Result<()> {
        let start = Instant::now();
        self.file.write_at(off, data)?;
        self.pace.wait(start, self.pace.model.write(), data.len() as u64);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn open_own(&self) -> io::Result<Arc<dyn HomeFile>> {
        Ok(Arc::new(Self { file: self.file.open_own()?, pace: self.pace.clone() }))
    }

    fn sync(&self) -> io::Result<()> {
        let start = Instant::now();
        let result = self.file.sync();
        self.pace.wait(start, self.pace.model.sync(), 0);
        result
    }

    fn set_times(&self, atime: Option<FileTime>, mtime: Option<FileTime>) -> io::Result<()> {
        self.file.set_times(atime, mtime)
    }

    fn clear(&self, off: u64, len: u64, how: Clear) -> io::Result<()> {
        let start = Instant::now();
        let result = self.file.clear(off, len, how);
        self.pace.wait(start, self.pace.model.write(), 0);
        result
    }

    fn allocate(&self, off: u64, len: u64) -> io::Result<()> {
        self.file.allocate(off, len)
    }

    fn next_data(&self, off: u64) -> io::Result<Option<u64>> {
        self.file.next_data(off)
    }

    fn next_hole(&self, off: u64) -> io::Result<Option<u64>> {
        self.file.next_hole(off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::SimHome;

    #[test]
    fn every_model_says_what_it_stands_for_and_where_its_figures_come_from() {
        for model in HomeModel::builtin() {
            assert!(
                !model.description().is_empty() && model.source().len() > 40,
                "{}",
                model.name()
            );
            assert!(
                model.bytes_per_s() > 0 && !model.read().is_zero() && !model.sync().is_zero(),
                "{}",
                model.name()
            );
        }
        assert!(HomeModel::named("15k-disk-array").is_some() && HomeModel::named("none").is_none());
    }

    #[test]
    fn a_modelled_home_takes_at_least_as_long_as_the_model_says_and_keeps_the_bytes() {
        let model = HomeModel::named("all-flash-array").unwrap();
        let home = model.wrap(Arc::new(SimHome::new(None)));
        let file = home.open(Path::new("a"), OpenMode::CREATE).unwrap();
        let (start, data) = (Instant::now(), vec![7; 1 << 20]);
        file.write_at(0, &data).unwrap();
        file.sync().unwrap();
        let mut back = vec![0; data.len()];
        assert_eq!(file.read_at(0, &mut back).unwrap(), data.len());
        let bytes = Duration::from_secs_f64(2.0 * data.len() as f64 / model.bytes_per_s() as f64);
        assert!(
            start.elapsed()
                >= model.write() + model.sync() + model.read() + bytes - Duration::from_micros(2)
        );
        assert!(back == data);
    }
}
