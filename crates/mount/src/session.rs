//! The classic transport: threads that read requests from `/dev/fuse` and write the answers.
//!
//! Each thread has a descriptor of its own where the kernel allows it. A thread ends when the mount
//! is gone, never before: whatever happens to one request is answered.

use crate::answer::{Sent, answer};
use crate::fs::Fs;
use crate::header::{IN_HEADER, OUT_HEADER, OutHeader};
use crate::wire::{MAX_IO, Request};
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Room for the largest request: a write and what comes before its data.
const REQUEST: usize = MAX_IO + 64 * 1024;
/// Room for the largest answer.
const REPLY: usize = MAX_IO + OUT_HEADER + 4096;

/// How many threads still serve, and who waits for the last of them.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    threads: Mutex<usize>,
    ended: Condvar,
}

impl Serving {
    /// Counts a thread in, until the returned value is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> Served {
        *self.threads.lock() += 1;
        Served(self.clone())
    }

    pub(crate) fn is_over(&self) -> bool {
        *self.threads.lock() == 0
    }

    /// Waits until the last thread has ended, or that long.
    pub(crate) fn wait_for(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let mut threads = self.threads.lock();
        while *threads > 0 && !self.ended.wait_until(&mut threads, until).timed_out() {}
    }

    pub(crate) fn wait(&self) {
        let mut threads = self.threads.lock();
        while *threads > 0 {
            self.ended.wait(&mut threads);
        }
    }
}

/// One thread that serves.
#[derive(Debug)]
pub(crate) struct Served(Arc<Serving>);

impl Drop for Served {
    fn drop(&mut self) {
        *self.0.threads.lock() -= 1;
        self.0.ended.notify_all();
    }
}

/// Starts the threads.
pub(crate) fn start(
    fs: &Arc<Fs>,
    device: BorrowedFd<'_>,
    threads: usize,
    serving: &Arc<Serving>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let mut started = Vec::with_capacity(threads);
    for n in 0..threads {
        let own = match crate::device::clone_device(device) {
            Ok(own) => own.into(),
            Err(_) => device.try_clone_to_owned()?,
        };
        let (fs, served) = (fs.clone(), serving.enter());
        let thread =
            std::thread::Builder::new().name(format!("tiersmith-fuse-{n}")).spawn(move || {
                serve(&fs, own.as_fd());
                drop(served);
            })?;
        started.push(thread);
    }
    Ok(started)
}

/// Serves requests until the mount is gone.
pub(crate) fn serve(fs: &Fs, device: BorrowedFd<'_>) {
    let mut request = vec![0u8; REQUEST];
    let mut reply = vec![0u8; REPLY];
    loop {
        match rustix::io::read(device, &mut request) {
            Ok(len) => serve_one(fs, device, &request[..len], &mut reply),
            // The request was taken back, or a signal came.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::NODEV | Errno::CONNABORTED) => return,
            Err(e) => {
                log::error!("cannot read from /dev/fuse: {e}; this thread of the mount ends");
                return;
            }
        }
    }
}

fn serve_one(fs: &Fs, device: BorrowedFd<'_>, message: &[u8], reply: &mut [u8]) {
    let Some(request) = Request::whole(message) else {
        log::error!(
            "the kernel sent {} bytes, less than the {IN_HEADER} of a header",
            message.len()
        );
        return;
    };
    let (header, body) = reply.split_at_mut(OUT_HEADER);
    let result = match answer(fs, &request, body) {
        Sent::Nothing => return,
        Sent::Bytes(len) => Ok(len as u32),
        Sent::Error(errno) => Err(errno),
    };
    header.copy_from_slice(OutHeader::new(request.unique, result).as_bytes());
    let whole = OUT_HEADER + result.map_or(0, |len| len as usize);
    match rustix::io::write(device, &reply[..whole]) {
        // ENOENT: whoever asked does not wait any more.
        Ok(_) | Err(Errno::NOENT | Errno::NODEV) => {}
        Err(e) => {
            log::error!("the kernel did not take the answer to request {}: {e}", request.opcode);
            refuse(device, request.unique);
        }
    }
}

/// The answer was not good: whoever waits for it must not wait for ever.
fn refuse(device: BorrowedFd<'_>, unique: u64) {
    let header = OutHeader::new(unique, Err(Errno::IO.raw_os_error()));
    let _ = rustix::io::write(device, header.as_bytes());
}
