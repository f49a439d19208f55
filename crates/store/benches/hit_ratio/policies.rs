//! The peers: published policies, as they are described in their papers, with the constants given
//! there.
//!
//! | policy | published | constants |
//! |---|---|---|
//! | [`Lru`], [`Clock`] (second chance) | textbook | one bit |
//! | [`Sieve`] | NSDI'24 | one bit |
//! | [`Arc`] | FAST'03 | none |
//! | [`S3Fifo`] | SOSP'23 | small queue 10 %, counts to 3, promoted at 2, ghost as long as the main queue |
//! | [`S3Fifo::clock2q`] (Clock2Q+) | arXiv 2511.21958 | small queue 10 %, half of it the correlation window, ghost 50 % |
//! | [`Larc`] | MSST'13 | ghost from 10 to 90 % of the cache |
//! | [`Lirs`] in `lirs.rs` | SIGMETRICS'02 | 1 % for blocks without a short distance |
//! | [`TinyLfu`] in `tiny_lfu.rs` | TOS'17 | window 1 %, 80 % protected, 4 bits, aged after 10 requests a block |
//!
//! Deliberately absent: what the store does; that is in `epoch.rs`.

use super::queue::{Links, Queue};

/// A cache of blocks.
pub(crate) trait Cache {
    /// A block is asked for. Whether the cache had it.
    fn request(&mut self, block: u32) -> bool;

    /// Blocks put into the cache so far.
    fn fills(&self) -> u64;
}

pub(crate) struct Lru {
    links: Links,
    queue: Queue,
    held: Vec<bool>,
    size: usize,
    fills: u64,
}

impl Lru {
    pub(crate) fn new(blocks: usize, size: usize) -> Lru {
        Lru {
            links: Links::new(blocks),
            queue: Queue::new(),
            held: vec![false; blocks],
            size,
            fills: 0,
        }
    }
}

impl Cache for Lru {
    fn request(&mut self, block: u32) -> bool {
        if self.held[block as usize] {
            self.queue.renew(&mut self.links, block);
            return true;
        }
        if self.queue.len() >= self.size
            && let Some(gone) = self.queue.pop(&mut self.links)
        {
            self.held[gone as usize] = false;
        }
        self.queue.push(&mut self.links, block);
        self.held[block as usize] = true;
        self.fills += 1;
        false
    }

    fn fills(&self) -> u64 {
        self.fills
    }
}

pub(crate) struct Clock {
    links: Links,
    queue: Queue,
    /// Whether it is held, and whether it was read.
    held: Vec<Option<bool>>,
    size: usize,
    fills: u64,
}

impl Clock {
    pub(crate) fn new(blocks: usize, size: usize) -> Clock {
        Clock {
            links: Links::new(blocks),
            queue: Queue::new(),
            held: vec![None; blocks],
            size,
            fills: 0,
        }
    }
}

impl Cache for Clock {
    fn request(&mut self, block: u32) -> bool {
        if let Some(read) = &mut self.held[block as usize] {
            *read = true;
            return true;
        }
        while self.queue.len() >= self.size {
            let Some(oldest) = self.queue.pop(&mut self.links) else { break };
            if self.held[oldest as usize] == Some(true) {
                self.held[oldest as usize] = Some(false);
                self.queue.push(&mut self.links, oldest);
            } else {
                self.held[oldest as usize] = None;
            }
        }
        self.queue.push(&mut self.links, block);
        self.held[block as usize] = Some(false);
        self.fills += 1;
        false
    }

    fn fills(&self) -> u64 {
        self.fills
    }
}

pub(crate) struct Sieve {
    links: Links,
    queue: Queue,
    hand: Option<u32>,
    held: Vec<Option<bool>>,
    size: usize,
    fills: u64,
}

impl Sieve {
    pub(crate) fn new(blocks: usize, size: usize) -> Sieve {
        let (links, queue) = (Links::new(blocks), Queue::new());
        Sieve { links, queue, hand: None, held: vec![None; blocks], size, fills: 0 }
    }
}

impl Cache for Sieve {
    fn request(&mut self, block: u32) -> bool {
        if let Some(read) = &mut self.held[block as usize] {
            *read = true;
            return true;
        }
        if self.queue.len() >= self.size {
            let mut at = self.hand.or(self.queue.oldest());
            while let Some(looked) = at {
                at = self.links.newer(looked).or(self.queue.oldest());
                if self.held[looked as usize] == Some(true) {
                    self.held[looked as usize] = Some(false);
                    continue;
                }
                self.hand = self.links.newer(looked);
                self.queue.remove(&mut self.links, looked);
                self.held[looked as usize] = None;
                break;
            }
        }
        self.queue.push(&mut self.links, block);
        self.held[block as usize] = Some(false);
        self.fills += 1;
        false
    }

    fn fills(&self) -> u64 {
        self.fills
    }
}

/// Which of several queues a block is in; 0: in none.
type In = u8;
const FIRST: In = 1;
const SECOND: In = 2;
const GHOST_FIRST: In = 3;
const GHOST_SECOND: In = 4;

pub(crate) struct Arc {
    links: Links,
    queues: [Queue; 5],
    place: Vec<In>,
    /// What the first queue should have.
    target: f64,
    size: usize,
    fills: u64,
}

impl Arc {
    pub(crate) fn new(blocks: usize, size: usize) -> Arc {
        let queues = [const { Queue::new() }; 5];
        Arc {
            links: Links::new(blocks),
            queues,
            place: vec![0; blocks],
            target: 0.0,
            size,
            fills: 0,
        }
    }

    fn put(&mut self, to: In, block: u32) {
        let from = self.place[block as usize];
        if from > 0 {
            self.queues[from as usize].remove(&mut self.links, block);
        }
        if to > 0 {
            self.queues[to as usize].push(&mut self.links, block);
        }
        self.place[block as usize] = to;
    }

    fn demote(&mut self, from: In, to: In) {
        if let Some(block) = self.queues[from as usize].oldest() {
            self.put(to, block);
        }
    }

    fn len(&self, queue: In) -> usize {
        self.queues[queue as usize].len()
    }

    fn replace(&mut self, from_second_ghost: bool) {
        let first = self.len(FIRST) as f64;
        let too_long = first > self.target || (from_second_ghost && first == self.target);
        if first >= 1.0 && too_long || self.len(SECOND) == 0 {
            self.demote(FIRST, GHOST_FIRST);
        } else {
            self.demote(SECOND, GHOST_SECOND);
        }
    }
}

impl Cache for Arc {
    fn request(&mut self, block: u32) -> bool {
        let place = self.place[block as usize];
        if place == FIRST || place == SECOND {
            self.put(SECOND, block);
            return true;
        }
        self.fills += 1;
        let (ghosts1, ghosts2) = (self.len(GHOST_FIRST) as f64, self.len(GHOST_SECOND) as f64);
        if place == GHOST_FIRST {
            self.target = (self.target + (ghosts2 / ghosts1).max(1.0)).min(self.size as f64);
            self.replace(false);
            self.put(SECOND, block);
        } else if place == GHOST_SECOND {
            self.target = (self.target - (ghosts1 / ghosts2).max(1.0)).max(0.0);
            self.replace(true);
            self.put(SECOND, block);
        } else {
            let recent = self.len(FIRST) + self.len(GHOST_FIRST);
            let all = recent + self.len(SECOND) + self.len(GHOST_SECOND);
            if recent >= self.size {
                if self.len(FIRST) < self.size {
                    self.demote(GHOST_FIRST, 0);
                    self.replace(false);
                } else {
                    self.demote(FIRST, 0);
                }
            } else if all >= self.size {
                if all >= 2 * self.size {
                    self.demote(GHOST_SECOND, 0);
                }
                self.replace(false);
            }
            self.put(FIRST, block);
        }
        false
    }

    fn fills(&self) -> u64 {
        self.fills
    }
}

/// S3-FIFO, and Clock2Q+ that is the same with a window in which a second request says nothing.
pub(crate) struct S3Fifo {
    links: Links,
    small: Queue,
    main: Queue,
    ghost: Queue,
    place: Vec<In>,
    count: Vec<u8>,
    /// The number of the fill of the small queue that brought a block.
    brought: Vec<u64>,
    brought_now: u64,
    small_size: usize,
    main_size: usize,
    ghost_size: usize,
    window: u64,
    count_most: u8,
    promoted_at: u8,
    fills: u64,
}

impl S3Fifo {
    pub(crate) fn new(blocks: usize, size: usize) -> S3Fifo {
        let small_size = (size / 10).max(1);
        let main_size = (size - small_size).max(1);
        S3Fifo {
            links: Links::new(blocks),
            small: Queue::new(),
            main: Queue::new(),
            ghost: Queue::new(),
            place: vec![0; blocks],
            count: vec![0; blocks],
            brought: vec![0; blocks],
            brought_now: 0,
            small_size,
            main_size,
            ghost_size: main_size,
            window: 0,
            count_most: 3,
            promoted_at: 2,
            fills: 0,
        }
    }

    /// Clock2Q+.
    pub(crate) fn clock2q(blocks: usize, size: usize) -> S3Fifo {
        let mut policy = S3Fifo::new(blocks, size);
        policy.ghost_size = (size / 2).max(1);
        policy.window = (policy.small_size / 2) as u64;
        (policy.count_most, policy.promoted_at) = (1, 1);
        policy
    }

    fn make_room(&mut self) {
        while self.small.len() + self.main.len() >= self.small_size + self.main_size {
            if self.small.len() >= self.small_size || self.main.len() == 0 {
                self.leave_small();
            } else {
                self.leave_main();
            }
        }
    }

    fn leave_small(&mut self) {
        let Some(block) = self.small.pop(&mut self.links) else { return };
        if self.count[block as usize] >= self.promoted_at {
            self.count[block as usize] = 0;
            self.put_in_main(block);
            return;
        }
        if self.ghost.len() >= self.ghost_size
            && let Some(gone) = self.ghost.pop(&mut self.links)
        {
            self.place[gone as usize] = 0;
        }
        self.ghost.push(&mut self.links, block);
        self.place[block as usize] = GHOST_FIRST;
    }

    fn leave_main(&mut self) {
        while let Some(block) = self.main.pop(&mut self.links) {
            if self.count[block as usize] == 0 {
                self.place[block as usize] = 0;
                return;
            }
            self.count[block as usize] -= 1;
            self.main.push(&mut self.links, block);
        }
    }

    fn put_in_main(&mut self, block: u32) {
        while self.main.len() >= self.main_size {
            self.leave_main();
        }
        self.main.push(&mut self.links, block);
        self.place[block as usize] = SECOND;
    }
}

impl Cache for S3Fifo {
    fn request(&mut self, block: u32) -> bool {
        let at = block as usize;
        match self.place[at] {
            FIRST if self.brought_now - self.brought[at] < self.window => return true,
            FIRST | SECOND => {
                self.count[at] = (self.count[at] + 1).min(self.count_most);
                return true;
            }
            _ => {}
        }
        self.fills += 1;
        self.count[at] = 0;
        if self.place[at] == GHOST_FIRST {
            self.ghost.remove(&mut self.links, block);
            self.place[at] = 0;
            self.make_room();
            self.put_in_main(block);
            return false;
        }
        self.make_room();
        self.small.push(&mut self.links, block);
        self.place[at] = FIRST;
        self.brought_now += 1;
        self.brought[at] = self.brought_now;
        false
    }

    fn fills(&self) -> u64 {
        self.fills
    }
}

pub(crate) struct Larc {
    links: Links,
    cache: Queue,
    ghost: Queue,
    place: Vec<In>,
    size: f64,
    ghost_size: f64,
    fills: u64,
}

impl Larc {
    pub(crate) fn new(blocks: usize, size: usize) -> Larc {
        let size = size as f64;
        let (links, place) = (Links::new(blocks), vec![0; blocks]);
        Larc {
            links,
            cache: Queue::new(),
            ghost: Queue::new(),
            place,
            size,
            ghost_size: 0.1 * size,
            fills: 0,
        }
    }
}

impl Cache for Larc {
    fn request(&mut self, block: u32) -> bool {
        let at = block as usize;
        let size = self.size;
        if self.place[at] == FIRST {
            self.cache.renew(&mut self.links, block);
            self.ghost_size = (self.ghost_size - size / (size - self.ghost_size)).max(0.1 * size);
            return true;
        }
        if self.place[at] == GHOST_FIRST {
            self.ghost_size = (self.ghost_size + size / self.ghost_size).min(0.9 * size);
            self.ghost.remove(&mut self.links, block);
            if self.cache.len() as f64 >= size
                && let Some(gone) = self.cache.pop(&mut self.links)
            {
                self.place[gone as usize] = 0;
            }
            self.cache.push(&mut self.links, block);
            self.place[at] = FIRST;
            self.fills += 1;
            return false;
        }
        // While there is room, everything comes in: a cache that waits for second requests to fill
        // it never did on a short trace.
        if (self.cache.len() as f64) < size {
            self.cache.push(&mut self.links, block);
            self.place[at] = FIRST;
            self.fills += 1;
            return false;
        }
        self.ghost.push(&mut self.links, block);
        self.place[at] = GHOST_FIRST;
        while self.ghost.len() as f64 > self.ghost_size.max(1.0) {
            let Some(gone) = self.ghost.pop(&mut self.links) else { break };
            self.place[gone as usize] = 0;
        }
        false
    }

    fn fills(&self) -> u64 {
        self.fills
    }
}
