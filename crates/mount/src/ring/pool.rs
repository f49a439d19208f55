//! The threads that answer what may take long, so that a ring thread stays free for what does not.
//!
//! A job brings its entry's memory along and takes it back: whoever has the memory answers. Nothing
//! here talks to the kernel.

use super::areas::Areas;
use super::layout::Arrived;
use super::queue::{Finished, Mailbox, serve};
use super::{Living, Service};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// A request to be answered elsewhere than on its ring thread.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) slot: usize,
    pub(super) areas: Areas,
    pub(super) arrived: Arrived,
    pub(super) mailbox: Arc<Mailbox>,
}

#[derive(Debug, Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// Ring threads that may still give jobs.
    givers: usize,
}

/// The waiting jobs. Its threads end when nobody gives any more and nothing waits.
#[derive(Debug, Default)]
pub(super) struct Pool {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Pool {
    /// A pool with `threads` threads that answer with `service`, and the first giver of jobs.
    pub(super) fn start(
        threads: usize,
        service: &Arc<dyn Service>,
        living: &Arc<Living>,
    ) -> io::Result<Giver> {
        let giver = Giver::to(&Arc::new(Self::default()));
        for n in 0..threads.max(1) {
            let (shared, service, life) =
                (Arc::clone(&giver.pool), Arc::clone(service), Living::enter(living));
            std::thread::Builder::new().name(format!("fuse-slow-{n}")).spawn(move || {
                while let Some(mut job) = shared.next() {
                    let body = serve(&*service, &mut job.areas, &job.arrived);
                    job.mailbox.put(Finished { slot: job.slot, areas: job.areas, body });
                }
                drop((shared, service));
                drop(life);
            })?;
        }
        Ok(giver)
    }

    fn next(&self) -> Option<Job> {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(job) = waiting.jobs.pop_front() {
                return Some(job);
            }
            if waiting.givers == 0 {
                return None;
            }
            self.changed.wait(&mut waiting);
        }
    }
}

/// Who may give jobs to a pool: as long as there is one, its threads stay.
#[derive(Debug)]
pub(super) struct Giver {
    pool: Arc<Pool>,
}

impl Giver {
    fn to(pool: &Arc<Pool>) -> Self {
        pool.waiting.lock().givers += 1;
        Self { pool: Arc::clone(pool) }
    }

    /// Hands a job over.
    pub(super) fn give(&self, job: Job) {
        self.pool.waiting.lock().jobs.push_back(job);
        self.pool.changed.notify_one();
    }
}

impl Clone for Giver {
    fn clone(&self) -> Self {
        Self::to(&self.pool)
    }
}

impl Drop for Giver {
    fn drop(&mut self) {
        self.pool.waiting.lock().givers -= 1;
        self.pool.changed.notify_all();
    }
}
