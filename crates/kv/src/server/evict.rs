//! `maxmemory-clients`: clients that together take too much memory are cut, the largest first,
//! until the rest fits. One that said CLIENT NO-EVICT stays, and so do replicas; what they take
//! counts all the same.
//!
//! While there is no limit, nothing is counted.

use super::Server;

impl Server {
    /// Cuts clients until the others keep the limit.
    pub(super) fn evict_clients(&mut self) {
        let most = self.shared.configuration.hot.clients_most;
        if most == 0 {
            return;
        }
        let mut sizes: Vec<(usize, u64)> = Vec::new();
        let mut all: u64 = 0;
        for (id, client) in &mut self.clients {
            client.session.buffers = client.buffers();
            if client.session.follows {
                continue;
            }
            let size = client.session.memory() + self.shared.tracking.memory(*id);
            all += size as u64;
            if !client.session.stays {
                sizes.push((size, *id));
            }
        }
        if all <= most {
            return;
        }
        sizes.sort_unstable();
        while let Some((size, id)) = sizes.pop().filter(|_| all > most) {
            if let Some(client) = self.clients.remove(&id) {
                self.close(client);
                self.shared.evicted_clients += 1;
            }
            all = all.saturating_sub(size as u64);
        }
    }
}
