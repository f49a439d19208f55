//! W-TinyLFU (Einziger, Friedman, Manes, TOS'17): a small window, and behind it what was asked for
//! more often than what it displaces.
//!
//! Differences from the paper: the counts are exact to 15, where a sketch would sometimes count too
//! much.

use super::policies::Cache;
use super::queue::{Links, Queue};

#[derive(Clone, Copy, PartialEq)]
enum In {
    Nothing,
    Window,
    Probation,
    Protected,
}

pub(crate) struct TinyLfu {
    links: Links,
    window: Queue,
    probation: Queue,
    protected: Queue,
    place: Vec<In>,
    count: Vec<u8>,
    requests: usize,
    size: usize,
    window_size: usize,
    protected_size: usize,
    fills: u64,
}

impl TinyLfu {
    pub(crate) fn new(blocks: usize, size: usize) -> TinyLfu {
        let window_size = (size / 100).max(1);
        TinyLfu {
            links: Links::new(blocks),
            window: Queue::new(),
            probation: Queue::new(),
            protected: Queue::new(),
            place: vec![In::Nothing; blocks],
            count: vec![0; blocks],
            requests: 0,
            size,
            window_size,
            protected_size: (size - window_size) * 8 / 10,
            fills: 0,
        }
    }

    fn count(&mut self, block: u32) {
        let count = &mut self.count[block as usize];
        *count = (*count + 1).min(15);
        self.requests += 1;
        if self.requests >= 10 * self.size {
            self.requests /= 2;
            self.count.iter_mut().for_each(|count| *count /= 2);
        }
    }

    /// What leaves the window stays if it was asked for more often than what it displaces.
    fn leave_window(&mut self) {
        let Some(candidate) = self.window.pop(&mut self.links) else { return };
        if self.window.len() + self.probation.len() + self.protected.len() + 1 > self.size {
            let victim = self.probation.oldest().or(self.protected.oldest());
            let Some(victim) = victim else { return };
            if self.count[candidate as usize] <= self.count[victim as usize] {
                self.place[candidate as usize] = In::Nothing;
                return;
            }
            let from_probation = self.place[victim as usize] == In::Probation;
            let queue = if from_probation { &mut self.probation } else { &mut self.protected };
            queue.remove(&mut self.links, victim);
            self.place[victim as usize] = In::Nothing;
        }
        self.place[candidate as usize] = In::Probation;
        self.probation.push(&mut self.links, candidate);
    }
}

impl Cache for TinyLfu {
    fn request(&mut self, block: u32) -> bool {
        self.count(block);
        match self.place[block as usize] {
            In::Window => self.window.renew(&mut self.links, block),
            In::Protected => self.protected.renew(&mut self.links, block),
            In::Probation => {
                self.probation.remove(&mut self.links, block);
                self.protected.push(&mut self.links, block);
                self.place[block as usize] = In::Protected;
                if self.protected.len() > self.protected_size
                    && let Some(demoted) = self.protected.pop(&mut self.links)
                {
                    self.probation.push(&mut self.links, demoted);
                    self.place[demoted as usize] = In::Probation;
                }
            }
            In::Nothing => {
                self.fills += 1;
                self.window.push(&mut self.links, block);
                self.place[block as usize] = In::Window;
                if self.window.len() > self.window_size {
                    self.leave_window();
                }
                return false;
            }
        }
        true
    }

    fn fills(&self) -> u64 {
        self.fills
    }
}
