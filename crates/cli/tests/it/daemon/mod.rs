//! A directory to attach in a test, and the guard that leaves nothing behind: no daemon, no mount,
//! no file.
//!
//! Nothing here asks a mounted file system: who serves it is found by the links under `/proc`, what
//! is mounted by the kernel's list.

pub(crate) mod loops;

use std::cell::Cell;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::Receiver;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// For hangs only.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// The tests of one program run one after the other. A process that one thread starts has, until
/// its `exec`, copies of all that other threads have open: a mount would be in use, and a
/// directory, by whom no test knows of.
struct Turn {
    guard: Option<MutexGuard<'static, ()>>,
}

thread_local! {
    static MINE: Cell<bool> = const { Cell::new(false) };
}

impl Turn {
    /// Waits for it; a thread that has it goes on.
    fn take() -> Turn {
        static TURN: Mutex<()> = Mutex::new(());
        if MINE.replace(true) {
            return Turn { guard: None };
        }
        // A test that failed has said so.
        Turn { guard: Some(TURN.lock().unwrap_or_else(PoisonError::into_inner)) }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.guard.is_some() {
            MINE.set(false);
        }
    }
}

/// A place with a home and a directory of fast storage.
pub(crate) struct Site {
    _dir: tempfile::TempDir,
    pub(crate) home: PathBuf,
    pub(crate) fast: PathBuf,
    /// Goes last.
    _turn: Turn,
}

impl Site {
    /// An empty home.
    pub(crate) fn new() -> Site {
        let turn = Turn::take();
        let dir = tempfile::Builder::new().prefix("ts").tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        let (home, fast) = (real.join("db"), real.join("fast"));
        fs::create_dir(&home).unwrap();
        fs::create_dir(&fast).unwrap();
        Site { _dir: dir, home, fast, _turn: turn }
    }

    /// A home that looks like PostgreSQL's.
    pub(crate) fn postgres_like() -> Site {
        let site = Site::new();
        for sub in ["global", "base/1", "pg_wal", "pg_xact"] {
            fs::create_dir_all(site.home.join(sub)).unwrap();
        }
        fs::write(site.home.join("PG_VERSION"), "15\n").unwrap();
        fs::write(site.home.join("global/pg_control"), [7; 8192]).unwrap();
        fs::write(site.home.join("base/1/1259"), blocks(0, 64)).unwrap();
        site
    }

    /// An empty home on a file system of its own with room for `mib` MiB; the fast storage is
    /// elsewhere. `None`, said on standard error, where root is needed for that and is not to be
    /// had.
    pub(crate) fn on_small_disk(mib: u32) -> Option<Site> {
        let mut site = Site::new();
        let disk = site.home.with_file_name("disk");
        fs::create_dir(&disk).unwrap();
        let options = format!("size={mib}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(&disk)
            .output();
        if !mounted.as_ref().is_ok_and(|done| done.status.success()) {
            eprintln!(
                "skipped: a file system of its own for the home, because it cannot be mounted: \
                 {mounted:?}"
            );
            return None;
        }
        site.home = disk.join("db");
        fs::create_dir(&site.home).unwrap();
        Some(site)
    }

    pub(crate) fn path(&self) -> &Path {
        self.home.parent().unwrap()
    }

    pub(crate) fn home_str(&self) -> &str {
        self.home.to_str().unwrap()
    }

    pub(crate) fn fast_str(&self) -> &str {
        self.fast.to_str().unwrap()
    }

    /// What stands beside home, besides the fast storage.
    pub(crate) fn beside(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|n| n != "db" && n != "fast")
            .collect();
        names.sort();
        names
    }

    /// `attach` of a first time, with a small emulated tier; JSON.
    pub(crate) fn attach(&self, more: &[&str]) -> Value {
        self.attach_sized("24M", more)
    }

    /// The same with a tier of another size.
    pub(crate) fn attach_sized(&self, size: &str, more: &[&str]) -> Value {
        let mut arguments = vec![
            "attach",
            self.home_str(),
            "--fast",
            self.fast_str(),
            "--emulate",
            "--size",
            size,
            "--json",
        ];
        arguments.extend(more);
        json(&good(&arguments))
    }

    /// `attach` again; JSON.
    pub(crate) fn attach_again(&self) -> Value {
        json(&good(&["attach", self.home_str(), "--json"]))
    }

    pub(crate) fn live(&self) -> Value {
        let status = json(&good(&["status", self.home_str(), "--json"]));
        assert_eq!(status["standing"], "mounted", "{status}");
        status["live"].clone()
    }

    /// The home is plain, nothing of ours is beside it, and the fast storage is empty.
    pub(crate) fn assert_plain(&self) {
        assert_eq!(self.beside(), Vec::<String>::new(), "something was left beside the home");
        assert_eq!(fs::read_dir(&self.fast).unwrap().count(), 0, "a tier was left");
        assert!(!self.home.join(".tiersmith").exists());
        assert!(!is_mounted(&self.home));
    }

    /// Ends the daemon as the kernel would.
    pub(crate) fn kill_daemon(&self, attached: &Value) {
        let pid = attached["pid"].as_u64().unwrap();
        kill("KILL", pid);
        wait_until("the killed daemon is gone", || !is_alive(pid));
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let began = Instant::now();
        loop {
            let daemons = daemons_of(self.path());
            for pid in &daemons {
                kill("KILL", *pid);
            }
            let mounts = mounts_below(self.path());
            for at in &mounts {
                let _ = Command::new("umount")
                    .arg("-l")
                    .arg(at)
                    .stdin(Stdio::null())
                    .stderr(Stdio::null())
                    .status();
                if is_mounted(at) {
                    let _ = Command::new("fusermount3")
                        .arg("-uz")
                        .arg(at)
                        .stdin(Stdio::null())
                        .stderr(Stdio::null())
                        .status();
                }
            }
            if daemons.is_empty() && mounts.is_empty() {
                return;
            }
            if began.elapsed() > LIMIT {
                eprintln!("left behind: daemons {daemons:?}, mounts {mounts:?}");
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Blocks of 8 KiB, each full of its own pattern.
pub(crate) fn blocks(seed: u8, count: usize) -> Vec<u8> {
    (0..count).flat_map(|n| [seed.wrapping_add(n as u8).wrapping_mul(31) | 1; 8192]).collect()
}

/// Processes of this program that are in `dir` or have something below it open.
pub(crate) fn daemons_of(dir: &Path) -> Vec<u64> {
    let program = Path::new(env!("CARGO_BIN_EXE_tiersmith")).canonicalize().unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u64>().ok()) else {
            continue;
        };
        if fs::read_link(entry.path().join("exe")).ok().as_deref() != Some(&program) {
            continue;
        }
        let fds = fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        let links = fds.map(|fd| fd.path()).chain([entry.path().join("cwd")]);
        if links.filter_map(|link| fs::read_link(link).ok()).any(|target| target.starts_with(dir)) {
            found.push(pid);
        }
    }
    found
}

pub(crate) fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mut found: Vec<PathBuf> = text
        .split(|b| *b == b'\n')
        .filter_map(|line| line.split(|b| *b == b' ').nth(4))
        .map(|at| PathBuf::from(std::ffi::OsString::from_vec(unescaped(at))))
        .filter(|at| at.starts_with(dir))
        .collect();
    found.reverse();
    found
}

/// A path as the kernel's list has it, with spaces and the like as `\040`.
fn unescaped(mut path: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some((first, after)) = path.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        (bytes, path) = match byte.filter(|_| *first == b'\\') {
            Some(byte) => ([bytes, vec![byte]].concat(), &after[3..]),
            None => ([bytes, vec![*first]].concat(), after),
        };
    }
    bytes
}

pub(crate) fn is_mounted(at: &Path) -> bool {
    mounts_below(at).iter().any(|mount| mount == at)
}

pub(crate) fn kill(signal: &str, pid: u64) {
    let _ = Command::new("kill")
        .args(["-s", signal, &pid.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

/// Whether a process is there; one that has ended and was not waited for is not.
pub(crate) fn is_alive(pid: u64) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !matches!(
        stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()),
        Some("Z" | "X") | None
    )
}

pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LIMIT, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiersmith"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the program to its end.
pub(crate) fn tiersmith(arguments: &[&str]) -> Output {
    output(command(arguments).spawn().unwrap(), arguments)
}

/// Waits for a program, not for ever: also not for one that waits for a disk, which no kill ends,
/// or whose children keep its output open.
pub(crate) fn output(child: Child, what: &[&str]) -> Output {
    output_within(child, LIMIT).unwrap_or_else(|e| panic!("{what:?}: {e}"))
}

/// The same, killed after so long.
///
/// # Errors
/// It does not end when it is killed.
pub(crate) fn output_within(mut child: Child, limit: Duration) -> std::io::Result<Output> {
    let stdout = gather(child.stdout.take());
    let stderr = gather(child.stderr.take());
    let began = Instant::now();
    let mut killed = false;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if began.elapsed() > limit && !killed {
            eprintln!("process {} is killed, because it goes on for {limit:?}", child.id());
            child.kill()?;
            killed = true;
        }
        if began.elapsed() > limit + GOING {
            return Err(std::io::Error::other("it waits in the kernel, and no kill ends it"));
        }
        let step = if began.elapsed() < Duration::from_millis(50) { 1 } else { 10 };
        std::thread::sleep(Duration::from_millis(step));
    };
    let all = |from: Receiver<Vec<u8>>| {
        from.recv_timeout(LIMIT).map_err(|_| std::io::Error::other("its output is kept open"))
    };
    Ok(Output { status, stdout: all(stdout)?, stderr: all(stderr)? })
}

/// How long a killed process may take to go.
const GOING: Duration = Duration::from_secs(30);

/// All that comes from a pipe.
fn gather(from: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (tell, told) = std::sync::mpsc::channel();
    let _ = std::thread::spawn(move || {
        let mut all = Vec::new();
        let _ = from.map(|mut from| from.read_to_end(&mut all));
        let _ = tell.send(all);
    });
    told
}

/// Runs the program, which must succeed. What the kernel or a database that ends still holds for an
/// instant makes a mount busy: then again. Not a device that somebody uses: that one stays in use,
/// and all tests that wait for it one after the other would wait for hours.
pub(crate) fn good(arguments: &[&str]) -> Output {
    let began = Instant::now();
    let mut output = tiersmith(arguments);
    while matches!(arguments[0], "attach" | "detach" | "unmount")
        && !output.status.success()
        && ["in use", "busy"].iter().any(|word| text(&output).contains(word))
        && !text(&output).contains("never overwritten")
        && began.elapsed() < LIMIT
    {
        std::thread::sleep(Duration::from_millis(50));
        output = tiersmith(arguments);
    }
    assert!(output.status.success(), "{arguments:?}: {:?} {}", output.status, text(&output));
    output
}

/// Runs the program, which must refuse with one sentence and exit code 2; gives the sentence.
pub(crate) fn refused(arguments: &[&str]) -> String {
    let output = tiersmith(arguments);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?}: {said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{arguments:?}: {said}");
    said
}

pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(output)))
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether homes can be mounted here; if not, says on standard error that `what` is skipped.
pub(crate) fn can_mount(what: &str) -> bool {
    // Before the look, which makes a place of its own: whoever looks must not wait for whoever
    // waits for the look.
    let _turn = Turn::take();
    static WHY_NOT: OnceLock<Option<String>> = OnceLock::new();
    let why_not = WHY_NOT.get_or_init(|| {
        if !Path::new("/dev/fuse").exists() {
            return Some("there is no /dev/fuse".into());
        }
        let site = Site::new();
        let arguments = [
            "attach",
            site.home_str(),
            "--fast",
            site.fast_str(),
            "--emulate",
            "--size",
            "16M",
            "--json",
        ];
        let attached = tiersmith(&arguments);
        if attached.status.success() {
            return None;
        }
        let said = text(&attached);
        let not_here = ["ermission", "not permitted", "EPERM", "fusermount3", "cannot mount"]
            .iter()
            .any(|word| said.contains(word));
        assert!(not_here, "attach fails: {said}");
        Some(said.trim().to_owned())
    });
    if let Some(why_not) = why_not {
        eprintln!("skipped: {what}, because {why_not}");
    }
    why_not.is_none()
}
