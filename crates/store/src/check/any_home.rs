//! Any [`Home`] as a [`HomeView`]: the simulated home above all.
//!
//! **Invariant**: a file is given out only when its identity is the one asked for.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::home::{HomeFileView, HomeView};
use crate::home::{Home, HomeFile, HomeStat, OpenMode};

/// A home opened by the store's own code, for looking files up in it. Nothing is written.
#[derive(Clone, Copy, Debug)]
pub struct AnyHome<'a>(pub &'a dyn Home);

struct AnyFile {
    file: Arc<dyn HomeFile>,
    stat: HomeStat,
}

impl AnyHome<'_> {
    fn try_path(&self, path: &Path, ino: u64, generation: u32, btime_ns: u64) -> Option<AnyFile> {
        let file = self.0.open(path, OpenMode::READ).ok()?;
        let stat = file.stat().ok()?;
        stat.same_file(ino, generation, btime_ns).then_some(AnyFile { file, stat })
    }
}

impl HomeView for AnyHome<'_> {
    fn find(
        &self,
        ino: u64,
        generation: u32,
        btime_ns: u64,
        hint: &[u8],
    ) -> io::Result<Option<Box<dyn HomeFileView + '_>>> {
        let boxed = |file| Some(Box::new(file) as Box<dyn HomeFileView>);
        let hint = Path::new(OsStr::from_bytes(hint));
        if let Some(file) = self.try_path(hint, ino, generation, btime_ns) {
            return Ok(boxed(file));
        }
        let mut paths: Vec<PathBuf> = Vec::new();
        self.0.walk(&mut |path, stat| {
            if stat.ino == ino {
                paths.push(path.into());
            }
            Ok(())
        })?;
        Ok(paths
            .iter()
            .find_map(|path| self.try_path(path, ino, generation, btime_ns))
            .and_then(boxed))
    }
}

impl HomeFileView for AnyFile {
    fn size(&self) -> u64 {
        self.stat.size
    }

    fn mtime_ns(&self) -> u64 {
        self.stat.mtime_ns
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(at, into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::SimHome;

    #[test]
    fn a_file_of_a_simulated_home_is_found_under_another_name_and_another_file_is_not() {
        let home = SimHome::new(None);
        home.put(Path::new("a"), b"hello").unwrap();
        let stat = home.stat(Path::new("a")).unwrap();
        home.rename(Path::new("a"), Path::new("b")).unwrap();
        let view = AnyHome(&home);
        let file = view.find(stat.ino, stat.generation, stat.btime_ns, b"a").unwrap().unwrap();
        let mut bytes = [0; 3];
        assert_eq!(
            (file.size(), file.mtime_ns(), file.read_at(3, &mut bytes).unwrap()),
            (5, stat.mtime_ns, 2)
        );
        assert!(view.find(stat.ino + 100, 0, 0, b"b").unwrap().is_none());
    }
}
