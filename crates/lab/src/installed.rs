//! Programs that are installed: where they are looked for.
//!
//! **Deliberately absent**: installing anything.

use std::path::{Path, PathBuf};

/// Where programs are looked for: a product's own directories before PATH, for there `initdb` and
/// `postgres` are of one version.
pub(crate) fn directories(patterns: &[&str]) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = patterns.iter().flat_map(|pattern| expand(pattern)).collect();
    all.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    // PATH of a service or a test may lack them.
    all.extend(["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from));
    all
}

/// `/usr/lib/postgresql/*/bin`: the directories there are, the greatest number first.
fn expand(pattern: &str) -> Vec<PathBuf> {
    let Some((before, after)) = pattern.split_once('*') else { return vec![pattern.into()] };
    let entries =
        std::fs::read_dir(before).into_iter().flatten().filter_map(std::result::Result::ok);
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_by_key(|name| std::cmp::Reverse(name.parse::<u32>().unwrap_or(0)));
    names.into_iter().map(|name| PathBuf::from(format!("{before}{name}{after}"))).collect()
}

/// A program of the system, by name: `mount`, `setpriv`.
pub(crate) fn system_program(name: &str) -> Option<PathBuf> {
    directories(&[]).into_iter().map(|dir| dir.join(name)).find(|path| is_program(path))
}

/// Whether this may be run.
pub(crate) fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}
