//! Who uses a mount, as far as this process may look: for the message that it is busy.
//!
//! Only links in `/proc` are read, which asks nothing of the mount.

use std::path::Path;

/// Names and numbers of the processes with something of `at` open, or a sentence that none was found.
pub(crate) fn of(at: &Path) -> String {
    let mut found = Vec::new();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let Some(pid) = process.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let dir = process.path();
        let inside = |link: &Path| std::fs::read_link(link).is_ok_and(|to| to.starts_with(at));
        let how = if inside(&dir.join("cwd")) {
            "its working directory"
        } else if inside(&dir.join("root")) {
            "its root directory"
        } else if inside(&dir.join("exe")) {
            "its program"
        } else {
            let files = std::fs::read_dir(dir.join("fd")).into_iter().flatten().flatten();
            if files.into_iter().any(|f| inside(&f.path())) { "open files" } else { continue }
        };
        let name = std::fs::read_to_string(dir.join("comm")).unwrap_or_default();
        found.push(format!("{} (process {pid}) has {how} there", name.trim()));
    }
    let more = found.len().saturating_sub(5);
    found.truncate(5);
    if more > 0 {
        found.push(format!("{more} more"));
    }
    if found.is_empty() {
        "it is in use (a process that cannot be looked into, a file mapped into memory, or a mount below it)"
            .into()
    } else {
        found.join(", ")
    }
}

/// As [`of`], for those who have a mount at `at` in a mount namespace of their own: one of each namespace.
pub(crate) fn elsewhere(at: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let namespace = |of: &Path| std::fs::read_link(of.join("ns/mnt")).ok();
    let mut seen = vec![namespace(Path::new("/proc/self"))];
    // As the kernel writes it there.
    let at: Vec<u8> = at
        .as_os_str()
        .as_bytes()
        .iter()
        .flat_map(|b| match b {
            b' ' | b'\t' | b'\n' | b'\\' => format!("\\{b:03o}").into_bytes(),
            b => vec![*b],
        })
        .collect();
    let has = |mounts: &[u8]| {
        mounts.split(|b| *b == b'\n').any(|line| {
            line.split(|b| *b == b' ').nth(4) == Some(&at[..]) && line.windows(8).any(|w| w == b" - fuse ")
        })
    };
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let dir = process.path();
        let own = namespace(&dir);
        if own.is_none() || seen.contains(&own) {
            continue;
        }
        seen.push(own);
        if std::fs::read(dir.join("mountinfo")).is_ok_and(|mounts| has(&mounts)) {
            let name = std::fs::read_to_string(dir.join("comm")).unwrap_or_default();
            found.push(format!("{} (process {pid})", name.trim()));
        }
    }
    if found.is_empty() {
        return "somebody who cannot be seen from here (a container, or a program that still has files of it) has it".into();
    }
    format!(
        "{} has it in a mount namespace of its own (a container or a service, started while it was mounted)",
        found.join(", ")
    )
}
