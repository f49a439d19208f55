//! Who uses a mount, as far as this process may look: for the message that it is busy.
//!
//! Only links in `/proc` are read, which asks nothing of the mount.

use std::path::Path;

/// Names and numbers of the processes with something of `at` open, or a sentence that none was
/// found.
pub(crate) fn of(at: &Path) -> String {
    said(among(at, true))
}

/// The same of other processes than this one; `None` when none was found.
pub(crate) fn others(at: &Path) -> Option<String> {
    Some(among(at, false)).filter(|found| !found.is_empty()).map(said)
}

fn among(at: &Path, with_own: bool) -> Vec<String> {
    let mut found = Vec::new();
    let mounts = numbers(at);
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let Some(pid) = process.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else {
            continue;
        };
        if !with_own && pid == std::process::id() {
            continue;
        }
        let dir = process.path();
        let inside = |link: &Path| std::fs::read_link(link).is_ok_and(|to| to.starts_with(at));
        let how = if inside(&dir.join("cwd")) {
            "its working directory"
        } else if inside(&dir.join("root")) {
            "its root directory"
        } else if inside(&dir.join("exe")) {
            "its program"
        } else {
            // The daemon has the directory open that the mount covers, and its path reads like the
            // mount's.
            let own = pid == std::process::id();
            let covered =
                |fd: &std::ffi::OsStr| own && !is_of(&dir.join("fdinfo").join(fd), &mounts);
            let files = std::fs::read_dir(dir.join("fd")).into_iter().flatten().flatten();
            let mut files = files.filter(|file| inside(&file.path()));
            if files.any(|file| !covered(&file.file_name())) { "open files" } else { continue }
        };
        found.push(format!("{} (process {pid}) has {how} there", name_in(&dir)));
    }
    found
}

fn said(mut found: Vec<String>) -> String {
    let more = found.len().saturating_sub(5);
    found.truncate(5);
    if more > 0 {
        found.push(format!("{more} more"));
    }
    if found.is_empty() {
        "it is in use (a process that cannot be looked into, a file mapped into memory, or a mount \
         below it)"
            .into()
    } else {
        found.join(", ")
    }
}

/// A process's name, which it may choose, in one line.
fn name_in(process: &Path) -> String {
    let name = std::fs::read(process.join("comm")).unwrap_or_default();
    crate::fs::one_line(String::from_utf8_lossy(&name).trim())
}

/// The numbers of what is mounted at `at`, in this process's mount namespace.
fn numbers(at: &Path) -> Vec<u64> {
    let at = as_listed(at);
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let of = |line: &[u8]| {
        let mut words = line.split(|b| *b == b' ');
        let number = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
        (words.nth(3) == Some(&at[..])).then_some(number)
    };
    mounts.split(|b| *b == b'\n').filter_map(of).collect()
}

/// Whether an open file, by what is said of it under `/proc`, is on one of these mounts.
fn is_of(fdinfo: &Path, mounts: &[u64]) -> bool {
    let text = std::fs::read_to_string(fdinfo).unwrap_or_default();
    let number =
        text.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse::<u64>().ok());
    number.is_none_or(|number| mounts.contains(&number))
}

/// As [`of`], for those who have a mount at `at` in a mount namespace of their own: one of each
/// namespace.
pub(crate) fn elsewhere(at: &Path) -> String {
    let namespace = |of: &Path| std::fs::read_link(of.join("ns/mnt")).ok();
    let mut seen = vec![namespace(Path::new("/proc/self"))];
    let at = as_listed(at);
    let has = |mounts: &[u8]| {
        mounts.split(|b| *b == b'\n').any(|line| {
            line.split(|b| *b == b' ').nth(4) == Some(&at[..])
                && line.windows(8).any(|w| w == b" - fuse ")
        })
    };
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else {
            continue;
        };
        let dir = process.path();
        let own = namespace(&dir);
        if own.is_none() || seen.contains(&own) {
            continue;
        }
        seen.push(own);
        if std::fs::read(dir.join("mountinfo")).is_ok_and(|mounts| has(&mounts)) {
            found.push(format!("{} (process {pid})", name_in(&dir)));
        }
    }
    if found.is_empty() {
        return "somebody who cannot be seen from here (a container, or a program that still has \
                files of it) has it"
            .into();
    }
    format!(
        "{} has it in a mount namespace of its own (a container or a service, started while it was \
         mounted)",
        found.join(", ")
    )
}

/// A path as the kernel writes it into its lists of mounts.
fn as_listed(path: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    let written = |b: &u8| match b {
        b' ' | b'\t' | b'\n' | b'\\' => format!("\\{b:03o}").into_bytes(),
        b => vec![*b],
    };
    path.as_os_str().as_bytes().iter().flat_map(written).collect()
}
