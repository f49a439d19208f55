//! Mounting the file system in memory, over the ring or by `/dev/fuse`, and taking the mount away
//! whatever happens.

pub(crate) mod memory;

use memory::{BATCH_FORGET, FORGET, INIT, INTERRUPT, Memory, WRITE, u32_at, u64_at};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tiersmith_mount::ring::{self, Options, Request, Ring, Service};

pub(crate) const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
/// After so long without an end a test is taken to hang: its mount is torn down, so that it fails
/// instead.
const HANGS_AFTER: Duration = Duration::from_secs(240);
/// How long another process may have the switch before the test does without.
const OTHERS_HAVE_IT: Duration = Duration::from_secs(120);
const MAX_WRITE: u32 = 1 << 20;
/// A test's ring is refused when it was told of smaller requests than the kernel sends.
pub(crate) const TOO_SMALL: Options = Options { max_write: 4096, max_pages: 1, pool_threads: 1 };
const FITTING: Options = Options { max_write: MAX_WRITE, max_pages: 256, pool_threads: 2 };

/// How a test's mount is served.
#[derive(Clone, Copy)]
pub(crate) enum Transport {
    Classic,
    Ring,
    /// The ring, asked for with these options.
    RingWith(Options),
}

/// The kernel's switch of FUSE over io_uring, set for as long as this lives and then put back.
/// Other processes that set it wait.
pub(crate) struct Switch {
    file: File,
    before: String,
}

impl Switch {
    /// Sets the switch, or says why that cannot be.
    pub(crate) fn set(to: &str) -> Result<Self, String> {
        let file = File::open(SWITCH).map_err(|e| format!("{SWITCH}: {e}"))?;
        let start = Instant::now();
        while let Err(e) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if e != Errno::WOULDBLOCK || start.elapsed() > OTHERS_HAVE_IT {
                return Err(format!("locking {SWITCH}: {e}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let before = std::fs::read_to_string(SWITCH).map_err(|e| format!("{SWITCH}: {e}"))?;
        let switch = Self { file, before };
        if switch.before.trim() != to {
            std::fs::write(SWITCH, to).map_err(|e| format!("setting {SWITCH}: {e}"))?;
        }
        Ok(switch)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if std::fs::read_to_string(SWITCH).is_ok_and(|now| now != self.before) {
            let _ = std::fs::write(SWITCH, &self.before);
        }
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// A mount of a [`Memory`], served by this process. Dropping it unmounts by force.
pub(crate) struct Mounted {
    pub(crate) memory: Arc<Memory>,
    pub(crate) ring: Option<Ring>,
    /// The service, as long as the ring has it.
    held_by_ring: Weak<Behind>,
    /// Why there is no ring.
    pub(crate) refused: Option<String>,
    at: At,
    reader: Option<JoinHandle<()>>,
    _watch: mpsc::Sender<()>,
}

/// A mount point. Dropping it takes the mount and the directory away.
pub(crate) struct At {
    directory: Option<TempDir>,
    path: PathBuf,
}

impl At {
    pub(crate) fn new() -> Self {
        let directory =
            tempfile::Builder::new().prefix("ring").tempdir().expect("a temporary directory");
        let path = directory.path().to_path_buf();
        Self { directory: Some(directory), path }
    }

    pub(crate) fn existing(path: &Path) -> Self {
        Self { directory: None, path: path.to_path_buf() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for At {
    fn drop(&mut self) {
        unmount(&self.path, libc::MNT_FORCE | libc::MNT_DETACH).ok();
        drop(self.directory.take());
    }
}

pub(crate) fn unmount(path: &Path, flags: i32) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes()).expect("a path without zero bytes");
    // SAFETY: the path is a string that ends with a zero byte and lives through the call.
    if unsafe { libc::umount2(path.as_ptr(), flags) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Unmounts what nobody uses. A process that another test is just starting has this one's files
/// open for a moment.
pub(crate) fn unmount_when_free(path: &Path) {
    let start = Instant::now();
    while let Err(e) = unmount(path, 0) {
        assert!(
            e.raw_os_error() == Some(libc::EBUSY) && start.elapsed() < HANGS_AFTER,
            "{}: {e}",
            path.display()
        );
        std::thread::yield_now();
    }
}

fn mount(path: &Path) -> io::Result<OwnedFd> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let options =
        format!("fd={},rootmode=40755,user_id=0,group_id=0,allow_other", device.as_raw_fd());
    let path = CString::new(path.as_os_str().as_bytes()).expect("a path without zero bytes");
    let options = CString::new(options).expect("options without zero bytes");
    let flags = libc::MS_NODEV | libc::MS_NOSUID;
    // SAFETY: all four strings end with a zero byte and live through the call.
    let made = unsafe {
        libc::mount(
            c"ring".as_ptr(),
            path.as_ptr(),
            c"fuse.ring".as_ptr(),
            flags,
            options.as_ptr().cast(),
        )
    };
    if made == 0 { Ok(device.into()) } else { Err(io::Error::last_os_error()) }
}

/// Mounts a memory file system at a new directory, or at `at`. `None`, after a line that says so,
/// where that cannot be.
pub(crate) fn mounted(memory: &Arc<Memory>, transport: Transport, at: At) -> Option<Mounted> {
    match try_mounted(memory, transport, at) {
        Ok(mounted) => Some(mounted),
        Err(why) => {
            eprintln!("skipped: a mount for the test of FUSE over io_uring, because {why}");
            None
        }
    }
}

fn try_mounted(memory: &Arc<Memory>, transport: Transport, at: At) -> Result<Mounted, String> {
    let over_ring = !matches!(transport, Transport::Classic);
    // Needed until the ring has begun; it then stays.
    let _switch = if over_ring { Some(Switch::set("Y")?) } else { None };
    if over_ring {
        ring::available()?;
    }
    let device = mount(at.path()).map_err(|e| format!("mounting FUSE failed: {e}"))?;
    let offered = greet(&device, over_ring).expect("FUSE_INIT is answered");
    if over_ring && !offered {
        return Err("the kernel does not offer it".into());
    }
    let (mut started, mut refused) = (None, None);
    let options = match transport {
        Transport::RingWith(options) => Some(options),
        Transport::Ring => Some(FITTING),
        Transport::Classic => None,
    };
    let mut held_by_ring = Weak::new();
    if let Some(options) = options {
        let service = Arc::new(Behind(Arc::clone(memory)));
        held_by_ring = Arc::downgrade(&service);
        match ring::start(&device, service, &options) {
            Ok(ring) => started = Some(ring),
            Err(why) => refused = Some(why),
        }
    }
    let service = Arc::clone(memory);
    let reader = std::thread::spawn(move || read_device(&device, &service));
    let (watch, over) = mpsc::channel::<()>();
    let path = at.path().to_path_buf();
    std::thread::spawn(move || {
        if over.recv_timeout(HANGS_AFTER) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("the test hangs: {} is torn down", path.display());
            unmount(&path, libc::MNT_FORCE | libc::MNT_DETACH).ok();
        }
    });
    Ok(Mounted {
        memory: Arc::clone(memory),
        ring: started,
        held_by_ring,
        refused,
        at,
        reader: Some(reader),
        _watch: watch,
    })
}

/// What the ring gets.
struct Behind(Arc<Memory>);

impl Service for Behind {
    fn is_quick(&self, request: &Request<'_>) -> bool {
        self.0.is_quick(request)
    }

    fn answer(&self, request: &Request<'_>, out: &mut [u8]) -> Result<usize, Errno> {
        self.0.answer(request, out)
    }
}

impl Mounted {
    pub(crate) fn path(&self) -> &Path {
        self.at.path()
    }

    /// Unmounts as an administrator would, and waits until nobody serves it any more.
    pub(crate) fn end(mut self) {
        unmount_when_free(self.path());
        self.ended();
    }

    /// Waits until the connection has ended.
    pub(crate) fn ended(&mut self) {
        if let Some(ring) = &self.ring {
            ring.wait();
            assert!(ring.has_ended());
        }
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader of /dev/fuse does not panic");
        }
        if self.ring.is_some() {
            assert!(
                self.held_by_ring.upgrade().is_none(),
                "who has waited has the service for itself"
            );
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.memory.let_go();
    }
}

/// Answers `FUSE_INIT`. Says whether the kernel offered the ring.
fn greet(device: &OwnedFd, ring: bool) -> io::Result<bool> {
    let mut message = vec![0; 1 << 20];
    let len = rustix::io::read(device, &mut message)?;
    let message = &message[..len];
    assert_eq!(u32_at(message, 4), Ok(INIT));
    let flags2 = u32_at(message, 40 + 16).unwrap_or(0);
    let mut body = [0; 64];
    let mut field = |at: usize, value: u32| body[at..at + 4].copy_from_slice(&value.to_le_bytes());
    field(0, 7);
    field(4, 40);
    field(8, 128 << 10);
    // ASYNC_READ, BIG_WRITES, PARALLEL_DIROPS, MAX_PAGES, INIT_EXT
    field(12, 1 | 1 << 5 | 1 << 18 | 1 << 22 | 1 << 30);
    field(16, 16 | 12 << 16);
    field(20, MAX_WRITE);
    field(24, 1);
    field(28, 256);
    field(32, if ring { flags2 & 1 << 9 } else { 0 });
    reply(device, u64_at(message, 8).expect("a request has a number"), Ok(&body))?;
    Ok(flags2 & 1 << 9 != 0)
}

/// The classic transport, for what does not come by the ring and for mounts without one.
fn read_device(device: &OwnedFd, service: &Memory) {
    let mut message = vec![0; (1 << 20) + 4096];
    let mut out = vec![0; 1 << 20];
    loop {
        let len = match rustix::io::read(device, &mut message) {
            Ok(len) => len,
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => continue,
            Err(_) => return,
        };
        let (header, body) = message[..len].split_at(40);
        let (opcode, unique) =
            (u32_at(header, 4).expect("an operation"), u64_at(header, 8).expect("a number"));
        let fixed = match opcode {
            9 | 12 | 14 | 27 => 8,
            3 | 20 | 30 | 35 | 45 => 16,
            18 | 25 | 29 => 24,
            15 | 28 | WRITE => 40,
            4 => 88,
            FORGET | BATCH_FORGET | INTERRUPT => continue,
            _ => 0,
        };
        let (fixed, rest) = body.split_at(fixed.min(body.len()));
        let answer = service.answer(&Request { header, fixed, rest }, &mut out);
        let body = answer.map(|len| &out[..len]);
        let _ = reply(device, unique, body);
    }
}

fn reply(device: &impl AsFd, unique: u64, body: Result<&[u8], Errno>) -> io::Result<()> {
    let (error, body) = match body {
        Ok(body) => (0, body),
        Err(errno) => (-errno.raw_os_error(), &[][..]),
    };
    let mut header = [0; 16];
    header[..4].copy_from_slice(&(16 + body.len() as u32).to_le_bytes());
    header[4..8].copy_from_slice(&error.to_le_bytes());
    header[8..].copy_from_slice(&unique.to_le_bytes());
    rustix::io::writev(device, &[io::IoSlice::new(&header), io::IoSlice::new(body)])?;
    Ok(())
}
