//! One ring thread: it gives its entries to the kernel, answers what arrives in them, and commits.
//!
//! The thread is bound to the processor whose queue it serves. A caller's request is put into the
//! queue of the processor that it runs on, so caller and thread take turns on one processor and
//! nobody is woken on another, which is most of what a FUSE call costs. A request that may take
//! long goes to the pool with its entry; the other entries of the queue go on.
//!
//! Invariants:
//! - An entry's areas are in its slot, or with the pool, or (slot without a request) the kernel's.
//! - Each request is committed exactly once. A slot is dead when the kernel ended its entry
//!   (unmount, abort, refusal), and is not used again.
//! - The areas are unmapped only when all entries are dead; where that cannot be told they are
//!   leaked.

use super::areas::Areas;
use super::layout::{self, Arrived};
use super::pool::{Giver, Job};
use super::{Request, Service};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

type Uring = IoUring<squeue::Entry128, cqueue::Entry>;

/// The number of `FUSE_WRITE`.
const WRITE: u32 = 16;
/// What a completion with this user data means: somebody put something into the mailbox.
const MAIL: u64 = u64::MAX;

/// What the pool has answered.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) slot: usize,
    pub(super) areas: Areas,
    pub(super) body: Result<u32, i32>,
}

/// Where the pool puts what it has answered; it wakes the ring thread.
#[derive(Debug)]
pub(super) struct Mailbox {
    finished: Mutex<Vec<Finished>>,
    bell: PipeWriter,
}

impl Mailbox {
    pub(super) fn put(&self, finished: Finished) {
        let mut list = self.finished.lock();
        list.push(finished);
        // One byte is enough for all that is in the list. It cannot fail while the ring thread
        // lives, which reads the pipe to its end.
        if list.len() == 1
            && let Err(e) = (&self.bell).write_all(&[1])
        {
            log::error!("cannot wake a ring thread of the mount: {e}");
        }
    }
}

/// An entry: registered at `queue`, its memory here unless the pool has it.
#[derive(Debug)]
struct Slot {
    queue: u16,
    areas: Option<Areas>,
    arrived: Option<Arrived>,
    dead: bool,
}

/// What a ring thread needs to begin.
#[derive(Debug)]
pub(super) struct Plan {
    /// The processor to be bound to; none for the thread that serves the queues of processors that
    /// are off, or not ours.
    pub(super) processor: Option<usize>,
    /// The queues to serve.
    pub(super) queues: Vec<u16>,
    /// Entries of each queue.
    pub(super) depth: usize,
    /// Bytes of payload that an entry must have room for.
    pub(super) payload: usize,
}

/// A ring thread's state.
pub(super) struct Queue {
    ring: Uring,
    device: OwnedFd,
    service: Arc<dyn Service>,
    pool: Giver,
    mailbox: Arc<Mailbox>,
    mail: PipeReader,
    slots: Vec<Slot>,
    /// Entries that the pool has.
    away: usize,
    /// The list that [`completions`](Self::completions) fills, kept for the next turn.
    done: Vec<(u64, i32)>,
}

impl Queue {
    /// Makes the ring and gives all entries to the kernel. Call it on the thread that will
    /// [`run`](Self::run) it.
    pub(super) fn start(
        plan: &Plan,
        device: OwnedFd,
        service: Arc<dyn Service>,
        pool: Giver,
    ) -> io::Result<Self> {
        if let Some(processor) = plan.processor {
            bind(processor);
        }
        let entries = plan.queues.len() * plan.depth + 1;
        let ring = new_ring(entries, &device)?;
        let (mail, bell) = io::pipe()?;
        let mailbox = Arc::new(Mailbox { finished: Mutex::new(Vec::new()), bell });
        let mut slots = Vec::with_capacity(entries);
        for &queue in &plan.queues {
            for _ in 0..plan.depth {
                slots.push(Slot {
                    queue,
                    areas: Some(Areas::new(plan.payload)?),
                    arrived: None,
                    dead: false,
                });
            }
        }
        rustix::io::ioctl_fionbio(&mail, true)?;
        let mut queue =
            Self { ring, device, service, pool, mailbox, mail, slots, away: 0, done: Vec::new() };
        queue.register()?;
        Ok(queue)
    }

    /// Gives every entry to the kernel. An error means that some queue has none, so that the kernel
    /// cannot use the ring.
    fn register(&mut self) -> io::Result<()> {
        let areas: Vec<[libc::iovec; 2]> =
            self.slots.iter().filter_map(|s| s.areas.as_ref().map(Areas::vectors)).collect();
        for (n, vectors) in areas.iter().enumerate() {
            let Some(slot) = self.slots.get(n) else { break };
            self.push(&layout::register(slot.queue, vectors.as_ptr()).user_data(n as u64))?;
        }
        self.await_mail()?;
        while !self.ring.submission().is_empty() {
            self.submit(0)?;
        }
        // A refusal is there as soon as the submission is made; what is accepted completes with its
        // first request.
        let mut refusal = None;
        for (which, result) in self.completions() {
            self.completed(which, result)?;
            if result < 0 {
                refusal = Some(io::Error::from_raw_os_error(-result));
            }
        }
        match refusal {
            Some(e)
                if self
                    .slots
                    .iter()
                    .any(|s| self.slots.iter().all(|t| t.dead || t.queue != s.queue)) =>
            {
                Err(e)
            }
            _ => Ok(()),
        }
    }

    /// Serves until the kernel has ended all entries, which it does at an unmount or an abort.
    pub(super) fn run(mut self) {
        while self.away > 0 || self.slots.iter().any(|s| !s.dead) {
            if let Err(e) = self.turn() {
                log::error!(
                    "a ring thread of the mount ended: {e}; calls on its processor wait until the \
                     mount is unmounted"
                );
                return;
            }
        }
    }

    fn turn(&mut self) -> io::Result<()> {
        self.submit(1)?;
        let done = self.completions();
        for &(which, result) in &done {
            self.completed(which, result)?;
        }
        self.done = done;
        Ok(())
    }

    fn completed(&mut self, which: u64, result: i32) -> io::Result<()> {
        if which == MAIL {
            return self.take_mail();
        }
        let Some(n) = usize::try_from(which).ok().filter(|n| *n < self.slots.len()) else {
            return Ok(());
        };
        if result < 0 {
            self.end(n, result);
            return Ok(());
        }
        self.arrived(n)
    }

    /// The kernel has ended an entry.
    fn end(&mut self, n: usize, result: i32) {
        if let Some(slot) = self.slots.get_mut(n) {
            slot.dead = true;
            if ![-libc::ENOTCONN, -libc::ECONNABORTED, -libc::ECANCELED, -libc::ENODEV]
                .contains(&result)
            {
                let why = io::Error::from_raw_os_error(-result);
                log::error!(
                    "the kernel ended an entry of FUSE queue {} of the mount: {why}",
                    slot.queue
                );
            }
        }
    }

    /// A request is in slot `n`: answered here and now, or by the pool.
    fn arrived(&mut self, n: usize) -> io::Result<()> {
        let Some(slot) = self.slots.get_mut(n) else { return Ok(()) };
        let Some(mut areas) = slot.areas.take() else { return Ok(()) };
        let (header, payload) = areas.parts();
        let arrived = Arrived::read(header, payload.len());
        slot.arrived = Some(arrived);
        if arrived.sound && !is_quick(&*self.service, &mut areas, &arrived) {
            self.away += 1;
            self.pool.give(Job { slot: n, areas, arrived, mailbox: Arc::clone(&self.mailbox) });
            return Ok(());
        }
        let body = serve(&*self.service, &mut areas, &arrived);
        self.commit(n, areas, body)
    }

    /// Gives the answer in `areas` to the kernel at the next submission, and with it the entry.
    fn commit(&mut self, n: usize, mut areas: Areas, body: Result<u32, i32>) -> io::Result<()> {
        let Some(slot) = self.slots.get_mut(n) else { return Ok(()) };
        let Some(arrived) = slot.arrived.take() else { return Ok(()) };
        arrived.answer(areas.parts().0, body);
        slot.areas = Some(areas);
        let submission = layout::commit(slot.queue, arrived.commit_id).user_data(n as u64);
        self.push(&submission)
    }

    fn take_mail(&mut self) -> io::Result<()> {
        let mut bytes = [0; 64];
        match self.mail.read(&mut bytes) {
            Ok(_) => {}
            Err(e)
                if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
        let finished = std::mem::take(&mut *self.mailbox.finished.lock());
        for f in finished {
            self.away -= 1;
            self.commit(f.slot, f.areas, f.body)?;
        }
        self.await_mail()
    }

    /// Asks for a completion when the mailbox's bell rings.
    fn await_mail(&mut self) -> io::Result<()> {
        let readable = u32::from(libc::POLLIN.unsigned_abs());
        let poll = opcode::PollAdd::new(types::Fd(self.mail.as_raw_fd()), readable)
            .build()
            .user_data(MAIL);
        self.push(&squeue::Entry128::from(poll))
    }

    fn push(&mut self, submission: &squeue::Entry128) -> io::Result<()> {
        loop {
            // SAFETY: a registration's vectors live in `register` until the submission was made,
            // and the areas that they name until the kernel has ended the entry (`run`); a commit
            // has no pointers; the polled pipe lives as long as the ring, in this struct.
            if unsafe { self.ring.submission().push(submission) }.is_ok() {
                return Ok(());
            }
            self.submit(0)?;
        }
    }

    /// Submits what is queued and waits for `want` completions.
    fn submit(&mut self, want: usize) -> io::Result<()> {
        loop {
            match self.ring.submit_and_wait(want) {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // Completions must be taken first, or memory is short for a moment.
                Err(e) if matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN)) => {
                    if !self.ring.completion().is_empty() {
                        return Ok(());
                    }
                    std::thread::yield_now();
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// What has completed: which submission, and with what result.
    fn completions(&mut self) -> Vec<(u64, i32)> {
        let mut all = std::mem::take(&mut self.done);
        all.clear();
        all.extend(self.ring.completion().map(|done| (done.user_data(), done.result())));
        all
    }
}

impl Drop for Queue {
    /// Leaks the memory of entries that were not ended: the kernel may still hold its addresses.
    fn drop(&mut self) {
        self.slots.drain(..).filter(|s| !s.dead).for_each(std::mem::forget);
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("device", &self.device)
            .field("slots", &self.slots.len())
            .finish_non_exhaustive()
    }
}

/// A ring for this thread alone, with `device` as its registered file 0.
pub(super) fn new_ring(entries: usize, device: &OwnedFd) -> io::Result<Uring> {
    let entries =
        u32::try_from(entries.next_power_of_two()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut builder = Uring::builder();
    let ring = builder
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_submit_all()
        .dontfork()
        .build(entries)?;
    ring.submitter().register_files(&[device.as_raw_fd()])?;
    Ok(ring)
}

/// Offers the kernel an entry for a queue that cannot be, whereupon it does without the ring. An
/// error means that it was not told.
pub(super) fn refused_entry(device: &OwnedFd) -> io::Result<()> {
    let mut ring = new_ring(1, device)?;
    let areas = Areas::new(8192)?;
    let vectors = areas.vectors();
    let entry = layout::register(u16::MAX, vectors.as_ptr());
    // SAFETY: vectors and areas live to the end of this function, and the kernel does not keep what
    // it refuses.
    unsafe { ring.submission().push(&entry) }.map_err(|e| io::Error::other(e.to_string()))?;
    ring.submit_and_wait(1)?;
    match ring.completion().next().map(|done| done.result()) {
        // With 65536 possible processors this would be an entry indeed; it is leaked rather than
        // unmapped under the kernel.
        Some(0) => {
            std::mem::forget(areas);
            Err(io::Error::other("the kernel took an entry that it was to refuse"))
        }
        // Said before the kernel looks at its state: it goes on waiting for entries.
        Some(e) if e == -libc::EOPNOTSUPP => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        _ => Ok(()),
    }
}

/// Binds this thread to a processor. Where that is not allowed the thread serves all the same, only
/// slower.
fn bind(processor: usize) {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    set.set(processor);
    if let Err(e) = sched_setaffinity(None, &set) {
        log::warn!(
            "cannot bind a ring thread of the mount to processor {processor}: {e}; calls there \
             will take longer"
        );
    }
}

fn is_quick(service: &dyn Service, areas: &mut Areas, arrived: &Arrived) -> bool {
    let (header, payload) = areas.parts();
    let (head, fixed) = arrived.parts(header);
    let rest = payload.get(..arrived.rest).unwrap_or_default();
    // What panics here panics in `answer` as well; let that be on another thread.
    catch_unwind(AssertUnwindSafe(|| service.is_quick(&Request { header: head, fixed, rest })))
        .unwrap_or(false)
}

/// Answers the request in `areas`: the body is left at the beginning of the payload, its length or
/// the errno is returned.
pub(super) fn serve(
    service: &dyn Service,
    areas: &mut Areas,
    arrived: &Arrived,
) -> Result<u32, i32> {
    if !arrived.sound {
        log::error!(
            "the kernel sent a FUSE request whose lengths do not fit together (operation {})",
            arrived.opcode
        );
        return Err(libc::EIO);
    }
    let (header, payload) = areas.parts();
    let (head, fixed) = arrived.parts(header);
    let ask = |rest: &[u8], out: &mut [u8]| {
        let room = out.len();
        let request = Request { header: head, fixed, rest };
        match catch_unwind(AssertUnwindSafe(|| service.answer(&request, out))) {
            Ok(Ok(len)) => Ok(len.min(room)),
            Ok(Err(errno)) => Err(errno),
            Err(_) => {
                log::error!(
                    "answering FUSE operation {} panicked; its caller gets an I/O error",
                    arrived.opcode
                );
                Err(Errno::IO)
            }
        }
    };
    let len = match arrived.rest {
        0 => ask(&[], payload),
        // The data stay where they are; the answer is eight bytes.
        rest if arrived.opcode == WRITE => {
            let mut out = [0; 64];
            let (data, _) = payload.split_at(rest.min(payload.len()));
            ask(data, &mut out).inspect(|len| payload[..*len].copy_from_slice(&out[..*len]))
        }
        rest => {
            let names = payload.get(..rest).unwrap_or_default().to_vec();
            ask(&names, payload)
        }
    };
    match len {
        Ok(len) => u32::try_from(len).map_err(|_| libc::EIO),
        Err(errno) => Err(errno.raw_os_error()),
    }
}
