//! How much room there is, on a disk and in memory.
//!
//! Deliberately absent: what needs it (`found.rs`, `copy/`).

use std::fs;
use std::path::Path;

/// `statfs(2)`: file systems in memory.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6u32 as i64];

/// Room of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Bytes that an unprivileged program can still have.
    pub free: u64,
    /// Bytes that there are.
    pub total: u64,
}

/// The room on the file system of a directory; nothing if the kernel does not say.
pub(super) fn on(dir: &Path) -> Option<Room> {
    let found = rustix::fs::statvfs(dir).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Some(Room { free: bytes(found.f_bavail), total: bytes(found.f_blocks) })
}

/// Whether a directory is in memory.
pub(super) fn is_in_memory(dir: &Path) -> bool {
    rustix::fs::statfs(dir).is_ok_and(|system| IN_MEMORY.contains(&{ system.f_type }))
}

/// The memory that programs can have without swapping; nothing if the kernel does not say.
pub(super) fn memory() -> Option<Room> {
    memory_in(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn memory_in(text: &str) -> Option<Room> {
    let of = |name: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(Room { free: of("MemAvailable:")?, total: of("MemTotal:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_the_kernel_prints_it() {
        let text = "MemTotal:       24683520 kB\nMemFree: 1 kB\nMemAvailable:   22408448 kB\n";
        let found = Room { free: 22_408_448 << 10, total: 24_683_520 << 10 };
        assert_eq!(memory_in(text), Some(found));
        assert_eq!(memory_in("MemTotal: 5 kB\n"), None);
        assert!(memory().is_some_and(|memory| memory.free <= memory.total));
    }
}
