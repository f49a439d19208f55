//! A directory of plain files for the simulator: any [`Home`], above all one that can lose power.
//! For tests.

use super::{LentDir, Plain, PlainName};
use crate::home::{Home, OpenMode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Plain files at the top of a home.
#[derive(Debug)]
pub(crate) struct InHome(pub(crate) Arc<dyn Home>);

impl LentDir for InHome {
    fn make(&self, name: PlainName, len: u64) -> io::Result<Plain> {
        let file = self.0.open(Path::new(&name.to_string()), OpenMode::CREATE_NEW)?;
        file.set_len(len)?;
        Ok(Plain { name, file, descriptor: None })
    }

    fn open(&self, name: PlainName) -> io::Result<Plain> {
        Ok(Plain {
            name,
            file: self.0.open(Path::new(&name.to_string()), OpenMode::WRITE)?,
            descriptor: None,
        })
    }

    fn remove(&self, name: PlainName) -> io::Result<()> {
        match self.0.unlink(Path::new(&name.to_string())) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn names(&self) -> io::Result<Vec<PlainName>> {
        let mut names = Vec::new();
        self.0.walk(&mut |path, _| {
            names.extend(PlainName::parse(path.as_os_str().as_encoded_bytes()));
            Ok(())
        })?;
        Ok(names)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_dir(Path::new(""))
    }

    fn is_ours_alone(&self, _: &Plain) -> io::Result<bool> {
        Ok(true)
    }

    fn tidy(&self) {}

    fn path(&self, name: PlainName) -> PathBuf {
        Path::new("/lent").join(name.to_string())
    }

    fn directory_path(&self) -> PathBuf {
        PathBuf::from("/lent")
    }
}
