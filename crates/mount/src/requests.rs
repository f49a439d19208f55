//! How many requests of each kind the kernel has sent: what a mount costs a program is mostly how
//! often the kernel has to ask.
//!
//! A counter for each kind, in memory that all threads share: 10 ns of a request's 10 us.
//!
//! Deliberately absent: how long a request took (the store's wait events tell of what it did).

use crate::wire::op;
use std::sync::atomic::{AtomicU64, Ordering};

/// The kinds, by the names that Linux has for them without `FUSE_`.
const KINDS: [(u32, &str); 33] = [
    (op::LOOKUP, "lookup"),
    (op::FORGET, "forget"),
    (op::GETATTR, "getattr"),
    (op::SETATTR, "setattr"),
    (op::READLINK, "readlink"),
    (op::SYMLINK, "symlink"),
    (op::MKNOD, "mknod"),
    (op::MKDIR, "mkdir"),
    (op::UNLINK, "unlink"),
    (op::RMDIR, "rmdir"),
    (op::RENAME, "rename"),
    (op::LINK, "link"),
    (op::OPEN, "open"),
    (op::READ, "read"),
    (op::WRITE, "write"),
    (op::STATFS, "statfs"),
    (op::RELEASE, "release"),
    (op::FSYNC, "fsync"),
    (op::SETXATTR, "setxattr"),
    (op::GETXATTR, "getxattr"),
    (op::LISTXATTR, "listxattr"),
    (op::REMOVEXATTR, "removexattr"),
    (op::FLUSH, "flush"),
    (op::OPENDIR, "opendir"),
    (op::READDIR, "readdir"),
    (op::RELEASEDIR, "releasedir"),
    (op::FSYNCDIR, "fsyncdir"),
    (op::CREATE, "create"),
    (op::BATCH_FORGET, "batch_forget"),
    (op::FALLOCATE, "fallocate"),
    (op::READDIRPLUS, "readdirplus"),
    (op::RENAME2, "rename2"),
    (op::LSEEK, "lseek"),
];

/// Numbers of kinds that are counted one by one; Linux 6.18 has fewer.
const NUMBERS: usize = 64;

/// Requests since the mount began.
#[derive(Debug)]
pub(crate) struct Requests {
    counts: [AtomicU64; NUMBERS],
}

impl Default for Requests {
    fn default() -> Self {
        Self { counts: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Requests {
    pub(crate) fn count(&self, opcode: u32) {
        // All others count as number 0, which is none.
        let number = usize::try_from(opcode).ok().filter(|n| *n < NUMBERS).unwrap_or(0);
        self.counts[number].fetch_add(1, Ordering::Relaxed);
    }

    /// The kinds that there were, with how many of each; those without a name here as `other`.
    pub(crate) fn counted(&self) -> Vec<(String, u64)> {
        let at = |opcode: u32| self.counts[opcode as usize].load(Ordering::Relaxed);
        let mut counted: Vec<_> =
            KINDS.iter().map(|(opcode, name)| ((*name).to_owned(), at(*opcode))).collect();
        let all: u64 = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        let named: u64 = counted.iter().map(|(_, count)| count).sum();
        counted.push(("other".into(), all.saturating_sub(named)));
        counted.retain(|(_, count)| *count > 0);
        counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_counted_once_and_what_has_no_name_too() {
        let requests = Requests::default();
        for opcode in (0..200).chain([op::WRITE, u32::MAX]) {
            requests.count(opcode);
        }
        let counted = requests.counted();
        let of = |name: &str| counted.iter().find(|(n, _)| n == name).map(|(_, count)| *count);
        assert_eq!((of("write"), of("getattr"), of("other")), (Some(2), Some(1), Some(202 - 34)));
        assert_eq!(counted.len(), KINDS.len() + 1);
    }
}
