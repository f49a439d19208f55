//! Queues of blocks, linked through arrays: a block is in at most one queue of a [`Links`].
//!
//! Deliberately absent: any check that a block is in the queue that it is taken from.

const NONE: u32 = u32::MAX;

/// Who comes before and after each block.
pub(crate) struct Links {
    older: Vec<u32>,
    newer: Vec<u32>,
}

/// Blocks from the oldest to the newest.
pub(crate) struct Queue {
    oldest: u32,
    newest: u32,
    len: usize,
}

impl Links {
    pub(crate) fn new(blocks: usize) -> Links {
        Links { older: vec![NONE; blocks], newer: vec![NONE; blocks] }
    }

    /// The block that came into its queue after this one.
    pub(crate) fn newer(&self, block: u32) -> Option<u32> {
        Some(self.newer[block as usize]).filter(|block| *block != NONE)
    }
}

impl Queue {
    pub(crate) const fn new() -> Queue {
        Queue { oldest: NONE, newest: NONE, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn oldest(&self) -> Option<u32> {
        Some(self.oldest).filter(|block| *block != NONE)
    }

    pub(crate) fn push(&mut self, links: &mut Links, block: u32) {
        links.older[block as usize] = self.newest;
        links.newer[block as usize] = NONE;
        match self.newest {
            NONE => self.oldest = block,
            newest => links.newer[newest as usize] = block,
        }
        self.newest = block;
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, links: &mut Links, block: u32) {
        let (older, newer) = (links.older[block as usize], links.newer[block as usize]);
        match older {
            NONE => self.oldest = newer,
            older => links.newer[older as usize] = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => links.older[newer as usize] = older,
        }
        self.len -= 1;
    }

    pub(crate) fn pop(&mut self, links: &mut Links) -> Option<u32> {
        let block = self.oldest()?;
        self.remove(links, block);
        Some(block)
    }

    /// Makes a block of this queue the newest.
    pub(crate) fn renew(&mut self, links: &mut Links, block: u32) {
        self.remove(links, block);
        self.push(links, block);
    }
}
