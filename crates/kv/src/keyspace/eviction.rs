//! Which keys go when there is too little space: Redis's policies, approximated as Redis does it.
//!
//! When a key was used, and how often, is kept in ordinary memory, in a table with a place for each
//! hash: nothing is written to the tier for a read. Keys may share a place; then the later use
//! counts for both. After a start no key was used yet. Of a few keys that chance chose
//! (`maxmemory-samples`) the best go into a pool, and the best of the pool is removed.
//!
//! As in Redis, the frequency is a counter of 8 bits that grows ever more slowly
//! (`lfu-log-factor`) and falls with time (`lfu-decay-time`).

use super::{Found, Keyspace, notice};
use crate::format::DATABASE_COUNT;

/// Keys that are remembered as good to go.
const POOL: usize = 16;
/// What a new key's counter begins with.
const FREQUENCY_FIRST: u32 = 5;
/// Places of the table, at least and at most.
const PLACES: [usize; 2] = [1 << 16, 1 << 26];
/// Milliseconds of one step of the clock of uses.
const STEP_MS: u64 = 16;
/// Buckets that are looked into by chance before all are looked through.
const TRIES: u64 = 64;

/// Which key goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// None goes.
    #[default]
    None,
    /// The one that was not used for longest.
    Lru,
    /// The one that is used least often.
    Lfu,
    /// Any.
    Random,
    /// The one that expires first.
    Ttl,
}

/// The policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) order: Order,
    /// Only keys that expire go.
    pub(crate) volatile: bool,
    pub(crate) samples: usize,
    pub(crate) log_factor: u32,
    pub(crate) decay_minutes: u32,
}

impl Policy {
    /// Its name in Redis.
    pub(crate) fn named(name: &str) -> Policy {
        let order = match name.rsplit('-').next().unwrap_or_default() {
            "lru" => Order::Lru,
            "lfu" => Order::Lfu,
            "random" => Order::Random,
            "ttl" => Order::Ttl,
            _ => Order::None,
        };
        Policy { order, volatile: name.starts_with("volatile"), ..Policy::default() }
    }
}

/// Uses of keys, and which are good to go.
#[derive(Debug, Default)]
pub(super) struct Uses {
    policy: Policy,
    /// By hash: when it was used, or its minute and its counter. Empty: nobody asks.
    table: Vec<u32>,
    /// The best last.
    pool: Vec<(u64, u8, Vec<u8>)>,
    evicted: u64,
}

impl Uses {
    fn place(&self, hash: u64) -> usize {
        hash as usize & (self.table.len() - 1)
    }

    fn minute(now_ms: u64) -> u32 {
        (now_ms / 60_000) as u32 & 0xffff
    }

    /// The counter, with what time has taken from it.
    fn frequency(&self, word: u32, now_ms: u64) -> u32 {
        let (minute, count) = (word >> 8 & 0xffff, word & 0xff);
        if self.policy.decay_minutes == 0 {
            return count;
        }
        let passed = Uses::minute(now_ms).wrapping_sub(minute) & 0xffff;
        count.saturating_sub(passed / self.policy.decay_minutes)
    }

    fn used(&mut self, hash: u64, now_ms: u64) {
        let place = self.place(hash);
        let word = self.table[place];
        self.table[place] = match self.policy.order {
            Order::Lfu => {
                let mut count =
                    if word == 0 { FREQUENCY_FIRST } else { self.frequency(word, now_ms) };
                let base = count.saturating_sub(FREQUENCY_FIRST);
                let grows = word != 0
                    && count < 255
                    && fastrand::f64() * f64::from(base * self.policy.log_factor + 1) < 1.0;
                count += u32::from(grows);
                1 << 31 | Uses::minute(now_ms) << 8 | count
            }
            _ => (now_ms / STEP_MS) as u32,
        };
    }
}

impl Keyspace {
    /// A key was used.
    #[inline]
    pub(super) fn note_use(&mut self, hash: u64) {
        if !self.uses.table.is_empty() {
            self.uses.used(hash, self.now_ms);
        }
    }

    /// Sets the policy; uses are remembered from then on if it asks for them.
    pub(crate) fn set_policy(&mut self, policy: Policy) {
        let before = self.uses.policy;
        self.uses.policy = policy;
        if before.order != policy.order || before.volatile != policy.volatile {
            self.uses.pool.clear();
            self.uses.table = match policy.order {
                Order::Lru | Order::Lfu => vec![0; PLACES[0]],
                _ => Vec::new(),
            };
        }
    }

    /// Lets the table of uses grow with the keys. A place becomes two, which both know what it
    /// knew.
    pub(crate) fn grow_uses(&mut self) {
        let keys: u64 = (0..DATABASE_COUNT).map(|db| self.len(db)).sum();
        let table = &mut self.uses.table;
        while !table.is_empty() && (table.len() as u64) < keys && table.len() < PLACES[1] {
            table.extend_from_within(..);
        }
    }

    /// The policy.
    pub(crate) fn policy(&self) -> Policy {
        self.uses.policy
    }

    /// Keys that were removed for space, since the server started.
    pub(crate) fn evicted(&self) -> u64 {
        self.uses.evicted
    }

    /// For how many milliseconds a key was not used; 0 if nobody counts.
    pub(crate) fn idle_ms(&self, key: &[u8]) -> u64 {
        match self.uses.policy.order {
            Order::Lru => self.idle_steps(self.heap.hash(key)) * STEP_MS,
            _ => 0,
        }
    }

    /// Notes how a key was used elsewhere, as far as the policy asks for it.
    pub(crate) fn set_use(&mut self, key: &[u8], idle_s: Option<u64>, frequency: Option<u8>) {
        let word = match (self.uses.policy.order, idle_s, frequency) {
            (Order::Lru, Some(idle), _) => {
                (self.now_ms.saturating_sub(idle.saturating_mul(1000)) / STEP_MS) as u32
            }
            (Order::Lfu, _, Some(count)) => {
                1 << 31 | Uses::minute(self.now_ms) << 8 | u32::from(count)
            }
            _ => return,
        };
        let place = self.uses.place(self.heap.hash(key));
        self.uses.table[place] = word;
    }

    fn idle_steps(&self, hash: u64) -> u64 {
        let word = self.uses.table[self.uses.place(hash)];
        u64::from(((self.now_ms / STEP_MS) as u32).wrapping_sub(word))
    }

    /// How often a key is used, as a counter; nothing if nobody counts.
    pub(crate) fn frequency(&self, key: &[u8]) -> Option<u32> {
        let counted = self.uses.policy.order == Order::Lfu;
        let word = |hash| self.uses.table[self.uses.place(hash)];
        counted.then(|| self.uses.frequency(word(self.heap.hash(key)), self.now_ms))
    }

    /// How good it is that this key goes.
    fn goes_before(&self, found: &Found) -> u64 {
        match self.uses.policy.order {
            Order::Lru => self.idle_steps(found.hash),
            Order::Lfu => {
                let word = self.uses.table[self.uses.place(found.hash)];
                255 - u64::from(self.uses.frequency(word, self.now_ms))
            }
            Order::Ttl => u64::MAX - found.header.expires.unwrap_or(u64::MAX),
            Order::Random | Order::None => 0,
        }
    }

    /// Some keys that may go, by chance.
    fn sample(&self, db: u8, count: usize) -> Vec<(Vec<u8>, Found)> {
        let (volatile, buckets) = (self.uses.policy.volatile, self.bucket_count(db));
        let candidates = if volatile { self.expiring(db) } else { self.len(db) };
        let (mut all, mut found) = (Vec::new(), Vec::new());
        if buckets == 0 || candidates == 0 {
            return all;
        }
        let mut look = |bucket: u64, all: &mut Vec<_>| {
            self.keys_in_bucket(db, bucket, &mut found);
            all.extend(
                found.drain(..).filter(|(_, one)| !volatile || one.header.expires.is_some()),
            );
        };
        for _ in 0..TRIES {
            look(fastrand::u64(..buckets), &mut all);
            if all.len() >= count {
                break;
            }
        }
        if all.is_empty() {
            let first = fastrand::u64(..buckets);
            for bucket in (first..buckets).chain(0..first) {
                look(bucket, &mut all);
                if !all.is_empty() {
                    break;
                }
            }
        }
        fastrand::shuffle(&mut all);
        all.truncate(count);
        all
    }

    /// Puts some keys into the pool.
    fn fill_pool(&mut self) {
        for db in 0..DATABASE_COUNT {
            for (key, found) in self.sample(db, self.uses.policy.samples.max(1)) {
                let score = self.goes_before(&found);
                let pool = &mut self.uses.pool;
                if pool.iter().any(|(_, of, other)| *of == db && *other == key) {
                    continue;
                }
                let at = pool.partition_point(|(other, ..)| *other < score);
                pool.insert(at, (score, db, key));
                if pool.len() > POOL {
                    pool.remove(0);
                }
            }
        }
    }

    /// The key to go next.
    fn next_to_go(&mut self) -> Option<(u8, Vec<u8>)> {
        if self.uses.policy.order == Order::Random {
            let dbs: Vec<u8> = (0..DATABASE_COUNT).filter(|db| !self.is_empty(*db)).collect();
            let first = fastrand::usize(..dbs.len().max(1));
            let mut dbs = dbs.iter().cycle().skip(first).take(dbs.len());
            return dbs.find_map(|db| Some((*db, self.sample(*db, 1).pop()?.0)));
        }
        self.fill_pool();
        while let Some((_, db, key)) = self.uses.pool.pop() {
            let there = self.as_it_is(db, &key);
            if there
                .is_some_and(|found| !self.uses.policy.volatile || found.header.expires.is_some())
            {
                return Some((db, key));
            }
        }
        None
    }

    /// Removes the key that the policy names; whether there was one.
    pub(crate) fn evict(&mut self) -> bool {
        if self.uses.policy.order == Order::None || self.heap.broken().is_some() {
            return false;
        }
        let Some((db, key)) = self.next_to_go() else { return false };
        let removed = self.remove(db, &key);
        if removed {
            self.uses.evicted += 1;
            self.feed(db, &[b"DEL", &key]);
            self.notify(notice::EVICTED, "evicted", db, &key);
        }
        // One whose time was over went just so.
        true
    }
}
