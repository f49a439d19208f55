//! I/O threads: several threads read what clients have sent, and send the replies.
//!
//! The loop shares out the clients of a batch, takes a share itself, and goes on when all are back.
//! One thread executes, in the order of the batch, so the invariant of `mod.rs` holds as it is. TLS
//! is decrypted and encrypted here too, and the first requests of a client are parsed.
//! `docs/decisions/0020-io-threads.md` says why sockets are shared out and keys are not.

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::Error;

/// Clients of a batch. The first of a large batch would wait for the last, with nothing to do
/// meanwhile, and what was read of the first would have left the processor's caches.
const BATCH: usize = 32;
/// Clients of a batch for each thread.
const BATCH_EACH: usize = 8;
/// How many clients a thread is worth waking for, as in Redis. Tests have few clients.
const CLIENTS_EACH: usize = if cfg!(feature = "testing") { 1 } else { 2 };

/// The thread that calls, and others beside it.
pub(super) struct IoThreads {
    /// With the one that calls.
    count: usize,
    /// Nothing: there is no other thread.
    others: Option<ThreadPool>,
}

impl IoThreads {
    /// `count` threads, of which the one that calls is one.
    ///
    /// # Errors
    /// The system lets this process have no more threads.
    pub(super) fn new(count: usize) -> Result<IoThreads, Error> {
        let others = match count {
            0 | 1 => None,
            _ => {
                let pool = ThreadPoolBuilder::new()
                    .num_threads(count - 1)
                    .thread_name(|number| format!("kv-io-{}", number + 1))
                    .build();
                Some(pool.map_err(|error| Error::System {
                    what: "start the threads of `io-threads`",
                    source: std::io::Error::other(error),
                })?)
            }
        };
        Ok(IoThreads { count: count.max(1), others })
    }

    /// How many clients are served between two commits.
    pub(super) fn batch(&self) -> usize {
        BATCH.max(self.count * BATCH_EACH)
    }

    /// Whether there is work for more than one thread with so many clients.
    pub(super) fn share(&self, clients: usize) -> bool {
        self.others.is_some() && clients >= self.count * CLIENTS_EACH
    }

    /// Does `work` to each, and returns when all is done.
    pub(super) fn each<T: Send>(&self, all: &mut [T], work: impl Fn(&mut T) + Sync) {
        let mut parts = all.chunks_mut(all.len().div_ceil(self.count).max(1));
        let own = parts.next().unwrap_or_default();
        match &self.others {
            Some(others) => others.in_place_scope(|scope| {
                let work = &work;
                for part in parts {
                    scope.spawn(move |_| part.iter_mut().for_each(work));
                }
                own.iter_mut().for_each(work);
            }),
            None => own.iter_mut().for_each(work),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::{Barrier, Mutex};

    use super::*;

    #[test]
    fn each_one_is_worked_on_once_whatever_the_numbers_are() {
        for threads in [1, 2, 3, 7] {
            let threads = IoThreads::new(threads).expect("threads");
            for len in [0, 1, 2, 6, 7, 8, 100] {
                let mut all = vec![0; len];
                threads.each(&mut all, |one| *one += 1);
                assert_eq!(all, vec![1; len]);
            }
        }
    }

    #[test]
    fn the_threads_work_at_the_same_time() {
        let threads = IoThreads::new(3).expect("threads");
        let (all_here, names) = (Barrier::new(3), Mutex::new(HashSet::new()));
        threads.each(&mut [0; 3], |_| {
            // A thread that does two of them would wait here for ever.
            all_here.wait();
            names.lock().expect("no panic").insert(std::thread::current().id());
        });
        let names = names.into_inner().expect("no panic");
        assert_eq!(names.len(), 3);
        assert!(names.contains(&std::thread::current().id()), "the one that calls works too");
    }

    #[test]
    fn a_batch_is_shared_only_where_it_is_worth_it() {
        let alone = IoThreads::new(1).expect("threads");
        assert!(!alone.share(1000));
        let four = IoThreads::new(4).expect("threads");
        assert_eq!((four.share(4 * CLIENTS_EACH - 1), four.share(4 * CLIENTS_EACH)), (false, true));
    }
}
