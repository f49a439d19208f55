//! Messages on their way to subscribers, until the batch is committed.
//!
//! A script can publish for as long as it runs, and nothing is sent meanwhile. So what waits for a
//! client is counted here already; one that will be beyond its limit anyway gets nothing more, and
//! is cut.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Bytes that a message takes beside its own.
const MESSAGE: u64 = 64;

/// A message for a client; all of its subscribers share the bytes.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) client: u64,
    pub(crate) pattern: Option<Vec<u8>>,
    pub(crate) channel: Rc<[u8]>,
    pub(crate) payload: Rc<[u8]>,
}

impl Delivery {
    fn bytes(&self) -> u64 {
        let pattern = self.pattern.as_ref().map_or(0, Vec::len);
        (pattern + self.channel.len() + self.payload.len()) as u64 + MESSAGE
    }
}

/// The messages, in the order in which they were published.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    all: Vec<Delivery>,
    /// Bytes that wait for a client.
    waiting: HashMap<u64, u64>,
    /// Clients that are beyond their limit.
    over: HashSet<u64>,
}

impl Deliveries {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds a message for a client that may have so many bytes waiting; 0: any number.
    pub(crate) fn push(&mut self, delivery: Delivery, limit: u64) {
        if self.over.contains(&delivery.client) {
            return;
        }
        let waiting = self.waiting.entry(delivery.client).or_default();
        *waiting += delivery.bytes();
        // A single message may be larger than the limit: the server decides when it sends.
        if limit > 0 && *waiting > limit && *waiting > delivery.bytes() {
            self.over.insert(delivery.client);
        } else {
            self.all.push(delivery);
        }
    }

    /// Forgets the messages behind the first `len`, whose command was taken back.
    pub(crate) fn truncate(&mut self, len: usize) {
        for delivery in self.all.drain(len.min(self.all.len())..) {
            if let Some(waiting) = self.waiting.get_mut(&delivery.client) {
                *waiting = waiting.saturating_sub(delivery.bytes());
            }
        }
    }

    /// Takes the messages, and the clients that are to be cut.
    pub(crate) fn take(&mut self) -> (Vec<Delivery>, HashSet<u64>) {
        self.waiting.clear();
        (std::mem::take(&mut self.all), std::mem::take(&mut self.over))
    }
}
