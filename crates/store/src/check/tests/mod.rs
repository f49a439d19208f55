//! Tests of the checker on images made by hand ([`build`]), before and beside those that the store
//! makes.

mod agree;
mod build;
mod findings;
mod hostile;
mod offline;

use std::collections::HashMap;
use std::io;

use super::{CheckOptions, CheckReport, HomeFileView, HomeView, Severity, check_images_with};
use build::{Build, CACHED, DIRTY, File};

/// A home in memory, by inode number.
#[derive(Clone, Default)]
struct MemoryHome(HashMap<u64, (Vec<u8>, u64)>);

impl MemoryHome {
    fn add(&mut self, f: &File, bytes: Vec<u8>) {
        self.0.insert(f.ino, (bytes, f.mtime));
    }
}

impl HomeView for MemoryHome {
    fn find(
        &self,
        ino: u64,
        _: u32,
        btime: u64,
        _: &[u8],
    ) -> io::Result<Option<Box<dyn HomeFileView + '_>>> {
        let file = self.0.get(&ino).filter(|_| btime == ino + 1);
        Ok(file.map(|f| Box::new(MemoryFile(f)) as Box<dyn HomeFileView>))
    }
}

struct MemoryFile<'a>(&'a (Vec<u8>, u64));

impl HomeFileView for MemoryFile<'_> {
    fn size(&self) -> u64 {
        self.0.0.len() as u64
    }

    fn mtime_ns(&self) -> u64 {
        self.0.1
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.0.0.get(at as usize..).unwrap_or_default();
        let n = bytes.len().min(into.len());
        into[..n].copy_from_slice(&bytes[..n]);
        Ok(n)
    }
}

const AFTER_CUT: CheckOptions = CheckOptions {
    after_recovery: false,
    was_formatted: false,
    compare_blocks: true,
    read_dirty: true,
    lent_in: None,
    findings_max: 1000,
};

/// A tier with a data file of three blocks of 8 KiB (Dirty, Cached, Cached tail) and a redo file of
/// one Dirty block of 4 KiB, and its home.
///
/// Frames: unit 0 map pages (0, 1), unit 1 blocks of 8 KiB (8, 10, 12; 14 free), unit 2 blocks of 4
/// KiB (16).
struct Sample {
    build: Build,
    home: MemoryHome,
    data: File,
    redo: File,
}

const LEAF: u64 = 0;
const FREE_8K: u64 = 14;

fn sample(members: u64) -> Sample {
    let mut build = Build::new(members, 12 / members);
    let mut home = MemoryHome::default();
    let data = File::new(1, 41, 1, 2 * 8192 + 100);
    let mut redo = File::new(2, 42, 0, 4096);
    redo.class = 1;
    let bytes: Vec<u8> = (0..data.size).map(|n| (n / 7) as u8 | 1).collect();
    build.file(&data);
    build.leaf0(&data, LEAF);
    build.fill(8, &[0xaa; 8192]);
    build.entry(&data, LEAF, 0, DIRTY, 8);
    build.fill(10, &bytes[8192..16384]);
    build.entry(&data, LEAF, 1, CACHED, 10);
    build.fill(12, &bytes[16384..]);
    build.entry(&data, LEAF, 2, CACHED, 12);
    build.file(&redo);
    build.leaf0(&redo, 1);
    build.entry(&redo, 1, 0, DIRTY, 16);
    home.add(&data, bytes);
    home.add(&redo, vec![0; 4096]);
    Sample { build, home, data, redo }
}

impl Sample {
    fn check_with(&self, options: &CheckOptions) -> CheckReport {
        check_images_with(&self.build.views(), Some(&self.home), options)
    }

    fn at_rest(&self) -> CheckReport {
        self.check_with(&CheckOptions::default())
    }

    fn after_cut(&self) -> CheckReport {
        self.check_with(&AFTER_CUT)
    }
}

/// The findings as severities and invariants, sorted, for comparing.
fn kinds(report: &CheckReport) -> Vec<(Severity, u8)> {
    let mut kinds: Vec<_> = report.findings.iter().map(|f| (f.severity, f.invariant)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}
