//! `maxmemory-clients`: clients that together take too much memory are cut, the largest first,
//! until the rest fits. One that said CLIENT NO-EVICT stays, and so do replicas; what they take
//! counts all the same.
//!
//! While there is no limit, nothing is counted. Else each client is counted when it was served, and
//! the sum is kept: a batch costs nothing for the clients that have no part in it.

use super::Server;
use super::client::Client;
use crate::command::Tracking;

impl Client {
    /// Counts what it takes now; `all` is the sum of those that were counted.
    fn count(&mut self, tracking: &Tracking, all: &mut u64) {
        self.session.buffers = self.buffers();
        let size = match self.session.follows {
            true => 0,
            false => (self.session.memory() + tracking.memory(self.session.id)) as u64,
        };
        *all = all.saturating_sub(self.counted) + size;
        self.counted = size;
    }
}

impl Server {
    /// Counts a client that was served.
    pub(super) fn count(&mut self, client: &mut Client) {
        if let Some(all) = &mut self.clients_bytes {
            client.count(&self.shared.tracking, all);
        }
    }

    /// Counts a client that goes no more.
    pub(super) fn uncount(&mut self, client: &Client) {
        if let Some(all) = &mut self.clients_bytes {
            *all = all.saturating_sub(client.counted);
        }
    }

    /// Counts all clients anew before the sum is asked for next: what they track changes while
    /// others are served.
    pub(super) fn count_anew(&mut self) {
        self.clients_bytes = None;
    }

    /// Cuts clients until the others keep the limit.
    pub(super) fn evict_clients(&mut self) {
        let most = self.shared.configuration.hot.clients_most;
        if most == 0 {
            return self.count_anew();
        }
        if self.clients_bytes.is_some_and(|all| all <= most) {
            return;
        }
        let (mut sizes, mut all): (Vec<(u64, u64)>, u64) = (Vec::new(), 0);
        for (id, client) in &mut self.clients {
            client.counted = 0;
            client.count(&self.shared.tracking, &mut all);
            if !client.session.stays && !client.session.follows {
                sizes.push((client.counted, *id));
            }
        }
        self.clients_bytes = Some(all);
        if all <= most {
            return;
        }
        sizes.sort_unstable();
        while self.clients_bytes.is_some_and(|all| all > most) {
            let Some((_, id)) = sizes.pop() else { break };
            if let Some(client) = self.clients.remove(&id) {
                self.close(client);
                self.shared.evicted_clients += 1;
            }
        }
    }
}
