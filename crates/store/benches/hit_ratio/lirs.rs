//! LIRS (Jiang and Zhang, SIGMETRICS'02): blocks whose last two requests lay close together stay.
//!
//! Differences from the paper: the stack remembers at most two blocks that are not held for each
//! that is, as published implementations do; else a trace without repetitions would fill it for
//! ever.

use super::policies::Cache;
use super::queue::{Links, Queue};

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Unknown,
    /// Short distance: held, and in the stack.
    Low,
    /// Held, and in the queue of those that go next; in the stack or not.
    High,
    /// In the stack, not held.
    Ghost,
}

pub(crate) struct Lirs {
    stack: Queue,
    stack_links: Links,
    in_stack: Vec<bool>,
    /// Blocks of kind `High` or `Ghost`, in two queues.
    links: Links,
    high: Queue,
    ghosts: Queue,
    kind: Vec<Kind>,
    low: usize,
    low_most: usize,
    high_most: usize,
    fills: u64,
}

impl Lirs {
    pub(crate) fn new(blocks: usize, size: usize) -> Lirs {
        let high_most = (size / 100).max(1);
        Lirs {
            stack: Queue::new(),
            stack_links: Links::new(blocks),
            in_stack: vec![false; blocks],
            links: Links::new(blocks),
            high: Queue::new(),
            ghosts: Queue::new(),
            kind: vec![Kind::Unknown; blocks],
            low: 0,
            low_most: size.saturating_sub(high_most).max(1),
            high_most,
            fills: 0,
        }
    }

    /// Makes a block the top of the stack.
    fn top(&mut self, block: u32) {
        if self.in_stack[block as usize] {
            self.stack.remove(&mut self.stack_links, block);
        }
        self.in_stack[block as usize] = true;
        self.stack.push(&mut self.stack_links, block);
    }

    fn unstack(&mut self, block: u32) {
        self.stack.remove(&mut self.stack_links, block);
        self.in_stack[block as usize] = false;
    }

    /// The bottom of the stack is of kind `Low`.
    fn prune(&mut self) {
        while let Some(block) = self.stack.oldest() {
            match self.kind[block as usize] {
                Kind::Low => return,
                Kind::Ghost => {
                    self.ghosts.remove(&mut self.links, block);
                    self.kind[block as usize] = Kind::Unknown;
                }
                Kind::High | Kind::Unknown => {}
            }
            self.unstack(block);
        }
    }

    /// The block of kind `Low` that was asked for longest ago becomes one of those that go.
    fn demote(&mut self) {
        self.prune();
        if let Some(block) = self.stack.oldest() {
            self.unstack(block);
            self.kind[block as usize] = Kind::High;
            self.high.push(&mut self.links, block);
            self.low -= 1;
            self.prune();
        }
    }

    fn evict(&mut self) {
        let Some(block) = self.high.pop(&mut self.links) else { return };
        if !self.in_stack[block as usize] {
            self.kind[block as usize] = Kind::Unknown;
            return;
        }
        self.kind[block as usize] = Kind::Ghost;
        self.ghosts.push(&mut self.links, block);
        if self.ghosts.len() > 2 * (self.low_most + self.high_most)
            && let Some(oldest) = self.ghosts.pop(&mut self.links)
        {
            self.kind[oldest as usize] = Kind::Unknown;
            self.unstack(oldest);
        }
    }

    fn make_low(&mut self, block: u32) {
        self.kind[block as usize] = Kind::Low;
        self.low += 1;
        self.top(block);
        if self.low > self.low_most {
            self.demote();
        }
    }
}

impl Cache for Lirs {
    fn request(&mut self, block: u32) -> bool {
        match self.kind[block as usize] {
            Kind::Low => {
                let was_bottom = self.stack.oldest() == Some(block);
                self.top(block);
                if was_bottom {
                    self.prune();
                }
                return true;
            }
            Kind::High => {
                if self.in_stack[block as usize] {
                    self.high.remove(&mut self.links, block);
                    self.make_low(block);
                } else {
                    self.high.renew(&mut self.links, block);
                    self.top(block);
                }
                return true;
            }
            Kind::Ghost | Kind::Unknown => {}
        }
        self.fills += 1;
        let was_ghost = self.kind[block as usize] == Kind::Ghost;
        if was_ghost {
            self.ghosts.remove(&mut self.links, block);
            self.kind[block as usize] = Kind::Unknown;
        }
        if self.low + self.high.len() >= self.low_most + self.high_most {
            self.evict();
        }
        if self.low < self.low_most || was_ghost {
            self.make_low(block);
        } else {
            self.kind[block as usize] = Kind::High;
            self.high.push(&mut self.links, block);
            self.top(block);
        }
        false
    }

    fn fills(&self) -> u64 {
        self.fills
    }
}
