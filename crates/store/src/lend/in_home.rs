//! A directory of plain files for the simulator: any [`Home`], above all one that can lose power. For tests.

use super::place::{LentDir, Plain, id_of, name_of};
use crate::home::{Home, OpenMode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Plain files at the top of a home.
#[derive(Debug)]
pub(crate) struct InHome(pub(crate) Arc<dyn Home>);

impl LentDir for InHome {
    fn make(&self, id: u64, len: u64) -> io::Result<Plain> {
        self.remove(id)?;
        let file = self.0.open(Path::new(&name_of(id)), OpenMode::CREATE_NEW)?;
        file.set_len(len)?;
        Ok(Plain { file, descriptor: None })
    }

    fn open(&self, id: u64) -> io::Result<Plain> {
        Ok(Plain { file: self.0.open(Path::new(&name_of(id)), OpenMode::WRITE)?, descriptor: None })
    }

    fn remove(&self, id: u64) -> io::Result<()> {
        match self.0.unlink(Path::new(&name_of(id))) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn ids(&self) -> io::Result<Vec<u64>> {
        let mut ids = Vec::new();
        self.0.walk(&mut |path, _| {
            ids.extend(id_of(path.as_os_str().as_encoded_bytes()));
            Ok(())
        })?;
        Ok(ids)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_dir(Path::new(""))
    }

    fn is_ours_alone(&self, _: &Plain) -> io::Result<bool> {
        Ok(true)
    }

    fn tidy(&self) {}

    fn path(&self, id: u64) -> PathBuf {
        Path::new("/lent").join(name_of(id))
    }
}
