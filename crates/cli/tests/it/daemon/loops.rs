//! Loop devices for tests: real block devices over files, taken away when the test ends.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Site, text};

/// A loop device.
pub(crate) struct Loop {
    pub(crate) path: PathBuf,
    image: PathBuf,
}

impl Loop {
    /// Over a new file of so many MiB, all holes. `None`, said on standard output, where that
    /// cannot be.
    pub(crate) fn new(site: &Site, name: &str, mib: u64) -> Option<Loop> {
        let image = site.path().join("images").join(name);
        fs::create_dir_all(image.parent().unwrap()).unwrap();
        File::create(&image).unwrap().set_len(mib << 20).unwrap();
        if in_memory(site.path()) {
            println!("skipped: {name}, because directories for temporary files are in memory here");
            return None;
        }
        Loop::over(&image)
    }

    /// Over a file that is there.
    pub(crate) fn over(image: &Path) -> Option<Loop> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(image).output();
        match made {
            Ok(made) if made.status.success() => {
                let path = text(&made).trim().into();
                Some(Loop { path, image: image.into() })
            }
            other => {
                println!("skipped: a block device, because `losetup` cannot make one: {other:?}");
                None
            }
        }
    }

    pub(crate) fn str(&self) -> &str {
        self.path.to_str().unwrap()
    }

    pub(crate) fn image(&self) -> &Path {
        &self.image
    }

    /// All its bytes, hashed. What the kernel keeps of it is what a reader gets.
    pub(crate) fn hash(&self) -> u64 {
        hash(&self.path)
    }

    /// Takes it away; the file stays.
    pub(crate) fn detach(self) -> PathBuf {
        self.image.clone()
    }

    /// The name that it has for `--overwrite`.
    pub(crate) fn identity(&self) -> String {
        let bytes = fs::metadata(&self.image).unwrap().len();
        format!("{}:{bytes}", self.path.file_name().unwrap().to_str().unwrap())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // In use, it goes when its last user does.
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

/// All bytes of a file or a device, hashed.
pub(crate) fn hash(path: &Path) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(&fs::read(path).unwrap());
    hasher.finish()
}

/// `statfs(2)`, as on x86-64 and aarch64.
const TMPFS: i64 = 0x0102_1994;

fn in_memory(path: &Path) -> bool {
    rustix::fs::statfs(path).unwrap().f_type == TMPFS
}

/// Whether a program is here.
pub(crate) fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        println!("skipped: what `{program}` makes, because it is not here");
    }
    found
}
