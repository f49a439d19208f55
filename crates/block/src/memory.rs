//! File systems in memory, which lose what is on them with the power.

use std::fs::File;
use std::path::Path;

use rustix::fs::StatFs;

/// The magic numbers of tmpfs and ramfs.
const MAGIC: [u64; 2] = [0x0102_1994, 0x8584_58F6];

/// Whether a file is on one.
pub(crate) fn has(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| is_one(&found))
}

/// The same of a file that is not open.
pub(crate) fn has_path(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| is_one(&found))
}

fn is_one(found: &StatFs) -> bool {
    // The type of the field differs between architectures.
    #[allow(clippy::unnecessary_cast, reason = "the field's type differs between architectures")]
    MAGIC.contains(&(found.f_type as u64))
}
