//! FUSE over io_uring: the fast way for requests to come in and answers to go out.
//!
//! The kernel (Linux 6.14 and later, when the parameter `enable_uring` of its module `fuse` is on)
//! keeps a queue for each processor. A call is put into the queue of the processor that its caller
//! runs on, straight into memory of ours, and the thread that serves the queue (module `queue`) is
//! bound to that processor. So one system call commits an answer and fetches the next request, and
//! no other processor has to be woken. That wake-up is most of what a call through `/dev/fuse`
//! costs while processors are idle; while all of them are busy, there is little to save.
//!
//! This is a transport and nothing else: it knows how a request arrives, and hands it, undecoded,
//! to a [`Service`]. What a request means, mounting, and the greeting (`FUSE_INIT`) are elsewhere.
//! Some messages never come this way (`FUSE_FORGET`, `FUSE_INTERRUPT`), so somebody must read
//! `/dev/fuse` as well.
//!
//! How it begins: `FUSE_INIT` is answered with the flag `FUSE_OVER_IO_URING`, only if [`available`]
//! said yes. From then on the kernel holds all calls back until each queue has an entry, or until
//! an entry was refused; [`start`] sees to one or the other. How it ends: the kernel ends all
//! entries, at an unmount or when the connection is aborted, and each thread ends with its last
//! entry. A process that is killed has its entries cancelled, and callers get `ENOTCONN`.
//!
//! A process must not map files of a mount that it serves: unmapping waits for writes to be
//! answered while it keeps the process's memory locked, which the one who answers may need. (So it
//! is with `/dev/fuse`, and with a process that waits for its own mount in any way.)
//!
//! **Invariant**: each request is answered exactly once, also when its service panics (the caller
//! gets an I/O error).
//! **Deliberately absent**: decoding, and any thought of what may wait for what;
//! [`Service::is_quick`] says it.

mod areas;
mod layout;
mod pool;
mod queue;

use parking_lot::{Condvar, Mutex};
use pool::Pool;
use queue::{Plan, Queue};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, mpsc};

/// Requests that one queue has under way at once. What comes after waits in the kernel. With one, a
/// slow request would hold up all calls of its processor; each takes memory only when it was used.
const DEPTH: usize = 8;
/// The same for queues of processors that are not in use: they exist only because the kernel wants
/// a queue for each.
const SPARE_DEPTH: usize = 2;
/// The least that the kernel wants an entry to have room for.
const LEAST_PAYLOAD: usize = 8192;
/// Bytes of a body that a service may count on in the answer to a request without data, whatever
/// `max_write` is.
const LEAST_OUT: usize = 64 << 10;

/// A request as it arrived, in three parts.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// `fuse_in_header`: always 40 bytes.
    pub header: &'a [u8],
    /// The operation's own structure: as long as the kernel sent it (0 to 128 bytes), which is for
    /// the service to check.
    pub fixed: &'a [u8],
    /// What follows: names, each with a zero byte at its end, or data.
    pub rest: &'a [u8],
}

/// What answers requests.
pub trait Service: Send + Sync + 'static {
    /// True if this request is answered from memory, so that it may hold up the calls of its
    /// caller's processor meanwhile. False if it may wait for a disk, for room, or for another
    /// request: then it is answered on a thread of the pool.
    fn is_quick(&self, request: &Request<'_>) -> bool;

    /// Answers one request: writes the body of the answer (what follows `fuse_out_header`) to the
    /// beginning of `out` and returns its length. `out` is as large as the largest read, at least
    /// 64 KiB, except for `FUSE_WRITE`, where it has 64 bytes; it never overlaps the request, and
    /// what it held before is of no meaning.
    ///
    /// # Errors
    /// The errno that the caller is to get. `ENOSYS` makes the kernel do without this operation
    /// from then on, where it can.
    ///
    /// # Durability
    /// The caller takes an answer without error to a write or a sync for the promise that it is.
    fn answer(&self, request: &Request<'_>, out: &mut [u8]) -> Result<usize, Errno>;
}

/// How to serve a connection.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The most bytes of a write, as `FUSE_INIT` was answered.
    pub max_write: u32,
    /// The most pages of a request, as `FUSE_INIT` was answered.
    pub max_pages: u16,
    /// Threads for what is not quick.
    pub pool_threads: usize,
}

impl Options {
    fn payload(&self) -> usize {
        let pages = usize::from(self.max_pages) * page_size();
        let write = usize::try_from(self.max_write).unwrap_or(usize::MAX);
        write.max(pages).max(LEAST_PAYLOAD).max(LEAST_OUT)
    }
}

fn page_size() -> usize {
    // SAFETY: a query of a constant of the system, without pointers.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// Says whether FUSE over io_uring can be had here.
///
/// # Errors
/// Why not, and what would help, as part of a sentence.
pub fn available() -> Result<(), String> {
    const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
    let switch = Path::new(SWITCH);
    match std::fs::read_to_string(switch) {
        Ok(value) if value.trim_ascii().starts_with('Y') => {}
        Ok(_) => {
            return Err(format!(
                "the kernel has FUSE over io_uring switched off (as root: echo Y > {SWITCH})"
            ));
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(
                "the kernel has no FUSE over io_uring (Linux 6.14 and later, built with it)".into(),
            );
        }
        Err(e) => {
            return Err(format!(
                "cannot tell whether the kernel has FUSE over io_uring: reading {SWITCH}: {e}"
            ));
        }
    }
    let nothing = io::pipe()
        .map(|(end, _)| OwnedFd::from(end))
        .map_err(|e| format!("no pipe can be made: {e}"))?;
    queue::new_ring(1, &nothing).map(drop).map_err(|e| match e.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            format!(
                "io_uring is not permitted to this process: {e} (see the setting \
                     kernel.io_uring_disabled, and the container's rules)"
            )
        }
        Some(libc::ENOSYS) => format!("the kernel has no io_uring, or it is forbidden here: {e}"),
        _ => format!("an io_uring cannot be made: {e}"),
    })
}

/// A connection that is served over io_uring. Dropping it stops nothing: the threads end with the
/// connection.
#[derive(Debug)]
pub struct Ring {
    queues: usize,
    living: Arc<Living>,
}

impl Ring {
    /// Queues, one for each processor that the machine can have.
    pub fn queues(&self) -> usize {
        self.queues
    }

    /// Whether the connection has ended, nothing is being answered any more, and the service was
    /// given back.
    pub fn has_ended(&self) -> bool {
        *self.living.count.lock() == 0
    }

    /// Waits until the connection has ended (unmounted, or aborted) and the service was given back.
    pub fn wait(&self) {
        let mut count = self.living.count.lock();
        while *count > 0 {
            self.living.changed.wait(&mut count);
        }
    }
}

/// How many threads there are that may still have the service in hand.
#[derive(Debug, Default)]
struct Living {
    count: Mutex<usize>,
    changed: Condvar,
}

impl Living {
    /// Counts a thread, until the returned value is dropped. What else the thread has is to be
    /// dropped before.
    fn enter(living: &Arc<Self>) -> Life {
        *living.count.lock() += 1;
        Life(Arc::clone(living))
    }
}

/// One thread's part in [`Living`].
#[derive(Debug)]
struct Life(Arc<Living>);

impl Drop for Life {
    fn drop(&mut self) {
        *self.0.count.lock() -= 1;
        self.0.changed.notify_all();
    }
}

/// Serves the connection of `device`, whose `FUSE_INIT` was answered with `FUSE_OVER_IO_URING`.
///
/// # Errors
/// Why the ring cannot be used. The kernel was told and goes on without it: all requests come by
/// `/dev/fuse`, as if it had never been offered. If even that was not possible the text begins with
/// `BLOCKED: `; calls then wait until the file system is unmounted.
pub fn start(
    device: &impl AsFd,
    service: Arc<dyn Service>,
    options: &Options,
) -> Result<Ring, String> {
    match begin(device, &service, options) {
        Ok(ring) => Ok(ring),
        Err(e) => {
            let why = format!("the ring could not be set up: {e}");
            match refuse(device) {
                Ok(()) => Err(why),
                Err(f) => Err(format!("BLOCKED: {why}; and the kernel could not be told: {f}")),
            }
        }
    }
}

fn begin(device: &impl AsFd, service: &Arc<dyn Service>, options: &Options) -> io::Result<Ring> {
    let plans = plans(options.payload())?;
    let living = Arc::new(Living::default());
    let pool = Pool::start(options.pool_threads, service, &living)?;
    let queues = plans.iter().map(|p| p.queues.len()).sum();
    let (say, hear) = mpsc::channel();
    let mut started = 0;
    for plan in plans {
        let (service, say) = (Arc::clone(service), say.clone());
        let device = device.as_fd().try_clone_to_owned()?;
        let (life, pool) = (Living::enter(&living), pool.clone());
        let name = plan.processor.map_or("fuse-ring-spare".into(), |p| format!("fuse-ring-{p}"));
        std::thread::Builder::new().name(name).spawn(move || {
            match Queue::start(&plan, device, service, pool) {
                Ok(queue) => {
                    let _ = say.send(Ok(()));
                    queue.run();
                }
                Err(e) => {
                    let _ = say.send(Err(e));
                }
            }
            drop(life);
        })?;
        started += 1;
    }
    drop(say);
    for _ in 0..started {
        hear.recv().map_err(|_| io::Error::other("a ring thread ended early"))??;
    }
    Ok(Ring { queues, living })
}

/// Makes the kernel go on without the ring: an entry that it must refuse does that.
fn refuse(device: &impl AsFd) -> io::Result<()> {
    let device = device.as_fd().try_clone_to_owned()?;
    queue::refused_entry(&device)
}

/// Which thread serves which queues: one for each processor that this process may use, and one for
/// all the other queues.
fn plans(payload: usize) -> io::Result<Vec<Plan>> {
    let possible = processors("/sys/devices/system/cpu/possible")?;
    let online = processors("/sys/devices/system/cpu/online")?;
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let (mut plans, mut spare) = (Vec::new(), Vec::new());
    // The kernel numbers its queues by processor and makes as many as there can be processors.
    for n in 0..possible.len() {
        let queue = u16::try_from(n)
            .map_err(|_| io::Error::other("more processors than queues can be numbered"))?;
        if online.contains(&n) && n < rustix::thread::CpuSet::MAX_CPU && allowed.is_set(n) {
            plans.push(Plan { processor: Some(n), queues: vec![queue], depth: DEPTH, payload });
        } else {
            spare.push(queue);
        }
    }
    if !spare.is_empty() {
        plans.push(Plan { processor: None, queues: spare, depth: SPARE_DEPTH, payload });
    }
    Ok(plans)
}

/// The numbers in a list such as `0-3,8`.
fn processors(list: &str) -> io::Result<Vec<usize>> {
    let text = std::fs::read_to_string(list)?;
    parse_processors(&text)
        .ok_or_else(|| io::Error::other(format!("{list} is no list of processors: {text:?}")))
}

fn parse_processors(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if last < first || last >= 1 << 16 {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_processors("0-1\n"), Some(vec![0, 1]));
        assert_eq!(parse_processors("0,2-3,7\n"), Some(vec![0, 2, 3, 7]));
        assert_eq!(parse_processors("\n"), Some(vec![]));
        for wrong in ["a", "3-1", "1-", "0-4294967295", "-"] {
            assert_eq!(parse_processors(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn every_queue_has_a_thread() {
        let possible = processors("/sys/devices/system/cpu/possible")
            .expect("the kernel says which processors there are");
        let plans = plans(LEAST_PAYLOAD).expect("there is a processor");
        let mut queues: Vec<u16> = plans.iter().flat_map(|p| p.queues.clone()).collect();
        queues.sort_unstable();
        assert_eq!(queues, (0..possible.len()).map(|n| n as u16).collect::<Vec<_>>());
    }

    #[test]
    fn an_entry_has_room_for_the_largest_request() {
        let payload =
            |max_write, max_pages| Options { max_write, max_pages, pool_threads: 1 }.payload();
        assert_eq!(payload(1 << 20, 256), 1 << 20);
        assert_eq!(payload(4096, 1), LEAST_OUT);
        assert_eq!(payload(1 << 20, 512), 512 * page_size());
    }
}
