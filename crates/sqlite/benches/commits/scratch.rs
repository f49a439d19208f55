//! Where the benchmark keeps its files, and how they go away whatever becomes of it.
//!
//! The folders are removed when [`Scratch`] is dropped. A panic that aborts, Ctrl-C and SIGKILL
//! drop nothing; so a shell in a process group of its own holds the other end of a pipe and removes
//! them when the pipe closes.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// Free bytes a tmpfs must have to be used.
const NEEDED: u64 = 3 << 30;
/// What `statfs` says of a tmpfs (`TMPFS_MAGIC` of linux/magic.h).
const TMPFS: u64 = 0x0102_1994;

/// Two folders: on memory, for tiers and for the peers that run on tmpfs; and on an ordinary disk,
/// for homes and the other peers.
pub(crate) struct Scratch {
    fast: TempDir,
    slow: TempDir,
    /// Whether `fast` is a tmpfs.
    pub(crate) fast_is_tmpfs: bool,
    /// Whether `slow` is one: then nothing here is a disk.
    pub(crate) disk_is_tmpfs: bool,
    reaper: Option<Child>,
}

impl Scratch {
    /// `/dev/shm` if it has the room, else the build folder for both.
    pub(crate) fn new() -> io::Result<Scratch> {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
        std::fs::create_dir_all(&target)?;
        let shm = Path::new("/dev/shm");
        let fast_is_tmpfs = is_tmpfs(shm) && free_bytes(shm).min(free_memory()) >= NEEDED;
        let folder =
            |place: &Path| tempfile::Builder::new().prefix("tiersmith-commits-").tempdir_in(place);
        let (fast, slow) = (folder(if fast_is_tmpfs { shm } else { &target })?, folder(&target)?);
        let disk_is_tmpfs = is_tmpfs(slow.path());
        let reaper = Command::new("sh")
            .args(["-c", "cat > /dev/null; rm -rf -- \"$@\"", "sh"])
            .args([fast.path(), slow.path()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        // Without a shell only a regular end cleans up.
        Ok(Scratch { fast, slow, fast_is_tmpfs, disk_is_tmpfs, reaper: reaper.ok() })
    }

    /// A path on memory.
    pub(crate) fn fast(&self, name: &str) -> PathBuf {
        self.fast.path().join(name)
    }

    /// A path on an ordinary disk.
    pub(crate) fn disk(&self, name: &str) -> PathBuf {
        self.slow.path().join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(mut reaper) = self.reaper.take() {
            drop(reaper.stdin.take());
            // It removes the folders; what it leaves, the fields do.
            let _ = reaper.wait();
        }
    }
}

fn is_tmpfs(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|stat| stat.f_type as u64 == TMPFS)
}

fn free_bytes(path: &Path) -> u64 {
    rustix::fs::statvfs(path).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// A tmpfs may be larger than the memory that is left.
fn free_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    // A kernel that does not say is taken at its tmpfs's word.
    kib.map_or(u64::MAX, |kib| kib << 10)
}
