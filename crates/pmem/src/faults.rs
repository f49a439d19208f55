//! Explains a SIGBUS: which medium, which byte, and, where somebody knows it, which block of which
//! file.
//!
//! When a mapped medium has lost bytes, or its file was truncated, an access raises SIGBUS instead
//! of returning an error, and the default action ends the process without a word. [`watch_sigbus`]
//! installs a handler in front of it, for those who ask.
//!
//! The handler only makes calls that are safe in a signal handler. It looks the address up in a
//! table of atomics, writes one line to standard error, and wakes a thread that asks the watchers
//! for details. It waits for that thread for a bounded time, then passes the signal on to the
//! previous handler.
//!
//! # Invariants
//! - A range is in the table from before its first access until before it is unmapped. The range of
//!   a fault cannot go away under the handler, because the thread that faulted borrows the mapping.
//! - No signal is swallowed: the previous handler, or the default action, always gets it.
//!
//! Deliberately absent: recovering from a fault. There are no bytes to return. Callers that can
//! handle an error use [`crate::Mapping::read_checked`].

use std::ffi::{c_int, c_void};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Mappings in the table. Faults in further ones are passed on unexplained.
const RANGES_MAX: usize = 256;
/// The start of a range that is being filled in.
const TAKEN: usize = 1;
/// How long the handler waits for details. Finding a block walks the maps of a large tier.
const PATIENCE_MS: c_int = 3000;
/// How often it looks.
const STEP_MS: c_int = 5;
/// `BUS_MCEERR_AO`: memory of this process was lost, but nobody touched it yet.
const MEMORY_ERROR_LATER: c_int = 5;
/// `BUS_MCEERR_AR`: lost memory was touched.
const MEMORY_ERROR_NOW: c_int = 4;
/// Tells the thread to end.
const END: u64 = u64::MAX;

/// Where one mapping lies, and what of.
struct Range {
    /// Zero: free.
    start: AtomicUsize,
    end: AtomicUsize,
    /// The path, owned by the table.
    path: AtomicPtr<PathBuf>,
}

static RANGES: [Range; RANGES_MAX] = [const {
    Range {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        path: AtomicPtr::new(std::ptr::null_mut()),
    }
}; RANGES_MAX];

/// An entry of the table, removed by [`Registered::leave`]; or none, if the table was full.
#[derive(Debug)]
pub(crate) struct Registered(Option<usize>);

impl Registered {
    /// Adds `len` bytes from `base`, which map the file or device `path` from its start.
    pub(crate) fn enter(base: *mut u8, len: usize, path: &Path) -> Registered {
        for (n, range) in RANGES.iter().enumerate() {
            if range.start.compare_exchange(0, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                range.path.store(Box::into_raw(Box::new(path.to_owned())), Ordering::Relaxed);
                range.end.store(base as usize + len, Ordering::Relaxed);
                range.start.store(base as usize, Ordering::Release);
                return Registered(Some(n));
            }
        }
        Registered(None)
    }

    /// Removes it. Nobody accesses the range any more.
    pub(crate) fn leave(&mut self) {
        let Some(range) = self.0.take().and_then(|n| RANGES.get(n)) else { return };
        range.start.store(TAKEN, Ordering::Release);
        range.end.store(0, Ordering::Relaxed);
        let path = range.path.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: made by `enter` from a box, and taken out of the table by this call alone. A
        // handler looks at the path of a range only while a fault in it waits, and the caller says
        // that nobody accesses the range.
        drop(unsafe { Box::from_raw(path) });
        range.start.store(0, Ordering::Release);
    }
}

/// The range an address is in, and how far into it.
fn find(address: usize) -> Option<(usize, usize)> {
    RANGES.iter().enumerate().find_map(|(n, range)| {
        let start = range.start.load(Ordering::Acquire);
        let inside = start > TAKEN && (start..range.end.load(Ordering::Relaxed)).contains(&address);
        inside.then(|| (n, address - start))
    })
}

/// Gets the path of a medium and a byte of it; returns what is there, if it knows.
pub type Explain = dyn Fn(&Path, u64) -> Option<String> + Send + Sync;

/// Explains SIGBUS while it lives ([`watch_sigbus`]). The last one to go restores the previous
/// handler, unless somebody has installed another over ours; then ours stays and only passes
/// signals on.
#[derive(Debug)]
pub struct SigbusWatch {
    number: u64,
}

struct Watching {
    watchers: Vec<(u64, Arc<Explain>)>,
    ask: PipeWriter,
    thread: JoinHandle<()>,
    /// The action before ours; `None` when ours was in place already.
    old: Option<libc::sigaction>,
}

static WATCHING: Mutex<Option<Watching>> = Mutex::new(None);
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The pipe on which the handler asks for details; -1: nobody answers.
static ASK: AtomicI32 = AtomicI32::new(-1);
/// The process of the answering thread. A child made by `fork` inherits handler and pipe, but no
/// thread.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// The details are written.
static ANSWERED: AtomicBool = AtomicBool::new(false);
/// The handler before ours, and its flags.
static OLD: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static OLD_FLAGS: AtomicI32 = AtomicI32::new(0);
/// A thread reports. Others that fault meanwhile wait for it.
static REPORTING: AtomicBool = AtomicBool::new(false);

/// Explains every SIGBUS in a mapping of this process until the watch is dropped: medium and byte
/// go to standard error, then what `explain` says about them. The previous handler, or the default
/// action, gets the signal afterwards.
///
/// `explain` runs in a thread of its own with all signals blocked. The thread that faulted waits
/// for it, three seconds at most, so it must not wait for a lock which that thread may hold.
///
/// # Errors
/// When no descriptor or thread is available.
pub fn watch_sigbus(explain: Arc<Explain>) -> io::Result<SigbusWatch> {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut watching = WATCHING.lock().unwrap_or_else(PoisonError::into_inner);
    match &mut *watching {
        Some(watching) => watching.watchers.push((number, explain)),
        none => *none = Some(Watching::begin(number, explain)?),
    }
    Ok(SigbusWatch { number })
}

impl Drop for SigbusWatch {
    fn drop(&mut self) {
        let mut watching = WATCHING.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(now) = &mut *watching else { return };
        now.watchers.retain(|(number, _)| *number != self.number);
        if !now.watchers.is_empty() {
            return;
        }
        let Some(Watching { mut ask, thread, old, .. }) = watching.take() else { return };
        ASK.store(-1, Ordering::Release);
        if let Some(old) = old.filter(|_| is_ours(&current())) {
            act(Some(&old));
        }
        // The thread asks for the watchers under this lock.
        drop(watching);
        if ask.write_all(&request(END, 0)).is_ok() {
            // One that had panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Watching {
    fn begin(number: u64, explain: Arc<Explain>) -> io::Result<Watching> {
        let (asked, ask) = io::pipe()?;
        let thread = spawn_deaf(move || answer(asked))?;
        PROCESS.store(process(), Ordering::Relaxed);
        ASK.store(ask.as_raw_fd(), Ordering::Release);
        let before = current();
        // Ours stayed in place if it was covered when the last watch ended; OLD is still right
        // then.
        let old = (!is_ours(&before)).then_some(before);
        if let Some(old) = &old {
            OLD_FLAGS.store(old.sa_flags, Ordering::Relaxed);
            OLD.store(old.sa_sigaction, Ordering::Release);
            // SAFETY: all zero is a valid value of this structure of integers.
            let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
            ours.sa_sigaction = ours_address();
            // Use the alternate stack if there is one: the fault may be in the normal one.
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            act(Some(&ours));
        }
        Ok(Watching { watchers: vec![(number, explain)], ask, thread, old })
    }
}

fn process() -> c_int {
    // SAFETY: it has no arguments and cannot fail; a handler may make the call.
    unsafe { libc::getpid() }
}

fn ours_address() -> usize {
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_sigbus;
    handler as usize
}

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == ours_address()
}

fn current() -> libc::sigaction {
    act(None)
}

/// Sets the action for SIGBUS, if one is given. Returns the one before.
fn act(new: Option<&libc::sigaction>) -> libc::sigaction {
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: all zero is a valid value of this structure of integers.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are null or valid. The only handlers set are ours, which is
    // signal-safe, and the one the process had set itself.
    let done = unsafe { libc::sigaction(libc::SIGBUS, new, &raw mut old) };
    debug_assert_eq!(done, 0, "BUG: SIGBUS cannot be caught");
    old
}

/// Starts a thread that takes no signals: those are for the threads of the host program.
fn spawn_deaf(run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    // SAFETY: all zero is a valid value of this structure of integers, and it is filled in before
    // it is used.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
    // SAFETY: the sets are ours; the mask is this thread's alone, and what it was is put back.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let spawned = std::thread::Builder::new().name("sigbus".into()).spawn(run);
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    spawned
}

fn request(range: u64, at: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&range.to_le_bytes());
    bytes[8..].copy_from_slice(&at.to_le_bytes());
    bytes
}

/// The thread that answers the handler.
fn answer(mut asked: PipeReader) {
    let mut bytes = [0; 16];
    while asked.read_exact(&mut bytes).is_ok() {
        let [range, at] = [0, 8].map(|n| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[n..n + 8]);
            u64::from_le_bytes(number)
        });
        let Some(range) = usize::try_from(range).ok().and_then(|n| RANGES.get(n)) else { return };
        // SAFETY: the thread that asks has faulted in this range and waits, so the range and its
        // path stay.
        let path = unsafe { &*range.path.load(Ordering::Acquire) };
        let watchers: Vec<Arc<Explain>> = {
            let watching = WATCHING.lock().unwrap_or_else(PoisonError::into_inner);
            watching
                .iter()
                .flat_map(|now| &now.watchers)
                .map(|(_, explain)| explain.clone())
                .collect()
        };
        for explain in watchers {
            // A panic in one must not silence the others.
            let words =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| explain(path, at)));
            if let Ok(Some(words)) = words {
                say(format!("tiersmith: byte {at} of {}: {words}\n", path.display()).as_bytes());
            }
        }
        ANSWERED.store(true, Ordering::Release);
    }
}

/// Writes to standard error without a lock or a buffer.
fn say(mut words: &[u8]) {
    while !words.is_empty() {
        // SAFETY: the bytes are a slice; the call is one that a signal handler may make.
        let done = unsafe { libc::write(libc::STDERR_FILENO, words.as_ptr().cast(), words.len()) };
        match usize::try_from(done) {
            Ok(done @ 1..) => words = words.get(done..).unwrap_or_default(),
            // There is nowhere else to say it.
            _ => return,
        }
    }
}

/// A line put together in place.
struct Line {
    bytes: [u8; 768],
    len: usize,
}

impl Line {
    fn push(&mut self, part: &[u8]) {
        let room = self.bytes.get_mut(self.len..).unwrap_or_default();
        let count = part.len().min(room.len());
        if let (Some(to), Some(from)) = (room.get_mut(..count), part.get(..count)) {
            to.copy_from_slice(from);
            self.len += count;
        }
    }

    fn push_number(&mut self, mut number: usize) {
        let mut digits = [b'0'; 20];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.push(&digits[first..]);
    }
}

/// Writes where the fault was, then waits while the thread writes what is there.
fn report(range: usize, at: usize, code: c_int) {
    let mut line = Line { bytes: [0; 768], len: 0 };
    line.push(b"tiersmith: SIGBUS at byte ");
    line.push_number(at);
    line.push(b" of ");
    // SAFETY: this thread has faulted in the range, so it borrows the mapping, and the range and
    // its path stay.
    let path = RANGES.get(range).map(|range| unsafe { &*range.path.load(Ordering::Acquire) });
    let path = path.map_or(&b"a medium"[..], |path| path.as_os_str().as_bytes());
    // The end of a path says more than its beginning.
    let fits = line.bytes.len() - line.len - 300;
    if path.len() > fits {
        line.push(b"...");
    }
    line.push(path.get(path.len().saturating_sub(fits)..).unwrap_or_default());
    line.push(match code {
        MEMORY_ERROR_NOW | MEMORY_ERROR_LATER => &b": the medium lost it (memory error)"[..],
        _ => {
            b": no storage behind it: the medium lost it, the file was truncated, or its file \
              system is \
              full"
        }
    });
    line.push(b". This process cannot continue\n");
    say(line.bytes.get(..line.len).unwrap_or_default());

    let ask = ASK.load(Ordering::Acquire);
    if ask < 0 || PROCESS.load(Ordering::Relaxed) != process() {
        return;
    }
    ANSWERED.store(false, Ordering::Release);
    let bytes = request(range as u64, at as u64);
    // SAFETY: the bytes are an array; the descriptor is that of a pipe, or closed by now.
    if unsafe { libc::write(ask, bytes.as_ptr().cast(), bytes.len()) } != bytes.len() as isize {
        return;
    }
    for _ in 0..PATIENCE_MS / STEP_MS {
        if ANSWERED.load(Ordering::Acquire) {
            return;
        }
        pause(STEP_MS);
    }
}

fn pause(ms: c_int) {
    // SAFETY: no descriptor is given; the call is one that a signal handler may make.
    let _ = unsafe { libc::poll(std::ptr::null_mut(), 0, ms) };
}

/// The handler. It takes no lock, does not allocate, and makes signal-safe calls only.
extern "C" fn on_sigbus(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the address of this thread's own number.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel gives a handler of this kind a structure that is filled in, of a fault
    // with its address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // A code of zero or less: sent by a process, so there is no address.
    if code > 0
        && let Some((range, at)) = find(address)
    {
        if REPORTING.swap(true, Ordering::AcqRel) {
            pause(PATIENCE_MS);
        } else {
            report(range, at, code);
            REPORTING.store(false, Ordering::Release);
        }
    }
    pass_on(signal, info, context, code);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Hands the signal to the previous handler. The default action takes effect when the access is
/// retried.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, code: c_int) {
    let old = OLD.load(Ordering::Acquire);
    if old == libc::SIG_DFL || old == libc::SIG_IGN {
        if old == libc::SIG_IGN && code <= 0 {
            return;
        }
        // SAFETY: all zero is a valid value of this structure of integers, and the default action.
        let default: libc::sigaction = unsafe { std::mem::zeroed() };
        act(Some(&default));
        if code <= 0 || code == MEMORY_ERROR_LATER {
            // No access will be retried. The signal is delivered when this handler returns.
            // SAFETY: a signal to this thread, whose action is the default.
            let _ = unsafe { libc::raise(libc::SIGBUS) };
        }
        return;
    }
    if OLD_FLAGS.load(Ordering::Relaxed) & libc::SA_SIGINFO != 0 {
        // SAFETY: the process had set it as a handler with these arguments, and they are the
        // kernel's.
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
            unsafe { std::mem::transmute(old) };
        handler(signal, info, context);
    } else {
        // SAFETY: the process had set it as a handler with this argument.
        let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(old) };
        handler(signal);
    }
}
