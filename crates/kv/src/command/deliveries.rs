//! Messages on their way to subscribers, until the batch is committed.
//!
//! A script can publish for as long as it runs, and nothing is sent meanwhile. So what waits for a
//! client is counted here already; one that will be beyond its limit anyway gets nothing more, and
//! is cut.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Bytes that a message takes beside its own.
const MESSAGE: u64 = 64;

/// A message for a client.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) client: u64,
    pub(crate) what: What,
}

/// What it says; all who get it share the bytes.
#[derive(Debug)]
pub(crate) enum What {
    /// To a channel that it is subscribed to.
    Message { via: Via, channel: Rc<[u8]>, payload: Rc<[u8]> },
    /// A line of its own, for a client that monitors.
    Line(Rc<[u8]>),
    /// What this client keeps of keys, or of all, is not true any more.
    /// Redirected: it is told because another one, or itself, named it.
    Invalid { tracker: u64, redirected: bool, keys: Option<Rc<[Vec<u8>]>> },
}

/// Which subscription it comes by.
#[derive(Debug)]
pub(crate) enum Via {
    Channel,
    Pattern(Vec<u8>),
    Shard,
}

impl Delivery {
    fn bytes(&self) -> u64 {
        let bytes = match &self.what {
            What::Message { via, channel, payload } => {
                let pattern = if let Via::Pattern(pattern) = via { pattern.len() } else { 0 };
                pattern + channel.len() + payload.len()
            }
            What::Line(line) => line.len(),
            What::Invalid { keys, .. } => {
                keys.iter().flat_map(|keys| keys.iter()).map(|key| key.len() + 16).sum()
            }
        };
        bytes as u64 + MESSAGE
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

    /// Whether a message of so many bytes can wait for a client with this limit. One that is beyond
    /// it alone would have the client cut when it is sent.
    pub(crate) fn takes(&self, client: u64, bytes: u64, limit: u64) -> bool {
        let waiting = self.waiting.get(&client).copied().unwrap_or_default();
        !self.over.contains(&client)
            && (limit == 0 || waiting.saturating_add(bytes + MESSAGE) <= limit)
    }

    /// Has a client cut, which gets nothing more.
    pub(crate) fn cut(&mut self, client: u64) {
        self.over.insert(client);
    }

    /// Forgets the messages behind the first `len`, whose command was taken back. That keys have
    /// changed is told nevertheless: who has read them is not remembered any more.
    pub(crate) fn truncate(&mut self, len: usize) {
        for delivery in self.all.split_off(len.min(self.all.len())) {
            match &delivery.what {
                What::Invalid { .. } => self.all.push(delivery),
                What::Message { .. } | What::Line(_) => self.waits_no_more(&delivery),
            }
        }
    }

    fn waits_no_more(&mut self, delivery: &Delivery) {
        if let Some(waiting) = self.waiting.get_mut(&delivery.client) {
            *waiting = waiting.saturating_sub(delivery.bytes());
        }
    }

    /// Takes what is behind the first `from` and tells a client itself that keys have changed.
    pub(crate) fn take_own(&mut self, from: usize, client: u64) -> Vec<Delivery> {
        let behind = self.all.split_off(from.min(self.all.len()));
        let own = |one: &Delivery| {
            one.client == client
                && matches!(one.what, What::Invalid { tracker, .. } if tracker == client)
        };
        let (own, others): (Vec<_>, Vec<_>) = behind.into_iter().partition(own);
        self.all.extend(others);
        own.iter().for_each(|one| self.waits_no_more(one));
        own
    }

    /// Takes the messages, and the clients that are to be cut.
    pub(crate) fn take(&mut self) -> (Vec<Delivery>, HashSet<u64>) {
        self.waiting.clear();
        (std::mem::take(&mut self.all), std::mem::take(&mut self.over))
    }
}
