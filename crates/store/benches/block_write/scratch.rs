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

/// Two folders: on the medium under test, and on an ordinary disk for the homes.
pub(crate) struct Scratch {
    fast: TempDir,
    slow: TempDir,
    /// Whether `fast` is a tmpfs.
    pub(crate) tmpfs: bool,
    reaper: Option<Child>,
}

impl Scratch {
    /// `/dev/shm` if it has the room, else the build folder for both.
    pub(crate) fn new() -> io::Result<Scratch> {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
        std::fs::create_dir_all(&target)?;
        let shm = Path::new("/dev/shm");
        let tmpfs = free_bytes(shm).min(free_memory()) >= NEEDED;
        let folder = |place: &Path| {
            tempfile::Builder::new().prefix("tiersmith-block-write-").tempdir_in(place)
        };
        let (fast, slow) = (folder(if tmpfs { shm } else { &target })?, folder(&target)?);
        let reaper = Command::new("sh")
            .args(["-c", "cat > /dev/null; rm -rf -- \"$@\"", "sh"])
            .args([fast.path(), slow.path()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        // Without a shell only a regular end cleans up.
        Ok(Scratch { fast, slow, tmpfs, reaper: reaper.ok() })
    }

    /// A path on the medium under test.
    pub(crate) fn fast(&self, name: &str) -> PathBuf {
        self.fast.path().join(name)
    }

    /// A new home on an ordinary disk.
    pub(crate) fn home(&self, name: &str) -> io::Result<PathBuf> {
        let home = self.slow.path().join(name);
        std::fs::create_dir(&home)?;
        Ok(home)
    }

    /// The word for the medium in tables.
    pub(crate) fn medium(&self) -> &'static str {
        if self.tmpfs { "tmpfs" } else { "disk" }
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
