//! Loop devices for tests: real block devices over files, taken away when the test ends.
//!
//! A container may have `/dev/loop-control` and no nodes of the devices, or nodes of devices that
//! another one uses; `losetup` may then wait, or try for ever. So nothing here is waited for for
//! long, and who cannot have a device says why.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use super::{Site, output_within, text};

/// How long a program may take that makes a device or a file system.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a program, and not for ever.
pub(crate) fn ran(program: &str, arguments: &[&str]) -> io::Result<Output> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    output_within(command.spawn()?, PATIENCE)
}

/// A loop device.
pub(crate) struct Loop {
    pub(crate) path: PathBuf,
    image: PathBuf,
}

impl Loop {
    /// Over a new file of so many MiB, all holes. `None`, said on standard output, where that
    /// cannot be.
    pub(crate) fn new(site: &Site, name: &str, mib: u64) -> Option<Loop> {
        Loop::over(&image(site, name, mib)?)
    }

    /// The same, with the name that another one had.
    pub(crate) fn with_name(path: &Path, site: &Site, name: &str, mib: u64) -> Option<Loop> {
        Loop::named(path, &image(site, name, mib)?)
    }

    /// Over a file that is there.
    pub(crate) fn over(image: &Path) -> Option<Loop> {
        Loop::set_up(image, &["--find", "--show"], None)
    }

    /// Over a file that is there, but for so many bytes at its beginning.
    pub(crate) fn behind(image: &Path, bytes: u64) -> Option<Loop> {
        Loop::set_up(image, &["--find", "--show", "--offset", &bytes.to_string()], None)
    }

    /// Over a file that is there, with the name that another one had.
    pub(crate) fn named(path: &Path, image: &Path) -> Option<Loop> {
        Loop::set_up(image, &[path.to_str().unwrap()], Some(path))
    }

    fn set_up(image: &Path, options: &[&str], path: Option<&Path>) -> Option<Loop> {
        let why_not = |why: String| {
            println!("skipped: a block device, because {why}");
            None
        };
        static WHY_NOT: OnceLock<String> = OnceLock::new();
        if let Some(why) = WHY_NOT.get().cloned().or_else(nobody_knows) {
            return why_not(why);
        }
        let made = ran("losetup", &[options, &[image.to_str().unwrap()]].concat());
        match made {
            Ok(made) if made.status.success() => {
                let path = path.map_or_else(|| text(&made).trim().into(), Path::to_path_buf);
                let device = Loop { path, image: image.into() };
                match File::open(&device.path) {
                    Ok(_) => Some(device),
                    Err(e) => why_not(format!("{} cannot be opened ({e})", device.str())),
                }
            }
            // Killed, or in the kernel for good: once is enough.
            Err(e) => why_not(WHY_NOT.get_or_init(|| format!("`losetup` fails: {e}")).clone()),
            Ok(made) if made.status.code().is_none() => {
                why_not(WHY_NOT.get_or_init(|| "`losetup` does not end".into()).clone())
            }
            Ok(made) => why_not(format!("`losetup` cannot make one: {}", text(&made).trim())),
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
        let name = self.path.file_name().unwrap().to_str().unwrap();
        let sectors = fs::read_to_string(format!("/sys/class/block/{name}/size")).unwrap();
        format!("{name}:{}", sectors.trim().parse::<u64>().unwrap() * 512)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // Of a test that failed: the next file with this name would have it.
        let name = self.path.file_name().unwrap().to_str().unwrap();
        let below = fs::read_dir(Path::new("/sys/class/block").join(name));
        for entry in below.into_iter().flatten().flatten() {
            if let Ok(number) = fs::read_to_string(entry.path().join("partition")) {
                let _ = ran("delpart", &[self.str(), number.trim()]);
            }
        }
        // In use, it goes when its last user does.
        let _ = ran("losetup", &["--detach", self.str()]);
    }
}

/// A new file of so many MiB.
fn image(site: &Site, name: &str, mib: u64) -> Option<PathBuf> {
    let image = site.path().join("images").join(name);
    fs::create_dir_all(image.parent().unwrap()).unwrap();
    File::create(&image).unwrap().set_len(mib << 20).unwrap();
    if in_memory(site.path()) {
        println!("skipped: {name}, because directories for temporary files are in memory here");
        return None;
    }
    Some(image)
}

/// Why no device may be taken over here: a loop device of somebody else's that cannot be asked what
/// it is over, as in a container that does not have its node.
fn nobody_knows() -> Option<String> {
    let all = fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
    let bound = all.filter(|entry| entry.path().join("loop").exists());
    bound.into_iter().find_map(|entry| {
        let node = Path::new("/dev").join(entry.file_name());
        let e = File::open(&node).err()?;
        // It may have gone meanwhile.
        let is_there = entry.path().join("loop").exists();
        is_there.then(|| format!("{} cannot be asked what it is over ({e})", node.display()))
    })
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
    let found = ran(program, &["--version"]).is_ok();
    if !found {
        println!("skipped: what `{program}` makes, because it is not here");
    }
    found
}

/// Whether strace can kill a process at one of its calls here: it needs ptrace(2), which a
/// container may not have, and without it nothing would ever be killed.
pub(crate) fn can_kill_at_calls() -> bool {
    let inject = ["-f", "-qq", "-o", "/dev/null", "-e", "inject=exit_group:signal=KILL"];
    let killed = ran("strace", &[&inject[..], &["sh", "-c", "exit 7"]].concat());
    // It ends as what it traced.
    let can = killed.is_ok_and(|ran| ran.status.signal() == Some(9));
    if !can {
        println!("skipped: kills at a call, because strace is not here, or may not trace");
    }
    can
}
