//! Batch-atomic writes: what SQLite writes between "begin" and "commit" becomes one batch of the
//! store, all or none.
//!
//! With it SQLite commits a transaction in a rollback mode without writing a journal. Pages are
//! collected (SQLite may change its buffers before the commit, so they are copied), and at the
//! commit become whole blocks: a page smaller than a block is laid over what the block holds, a
//! larger one is several blocks.
//!
//! # When a batch is refused
//! - The store's batch makes a file as long as the end of its last block. When SQLite's end is not
//!   the end of a block (pages smaller than blocks), the file would be too long.
//! - The store can never hold it (`BatchTooLarge`).
//!
//! Then nothing was written, `xFileControl` returns `SQLITE_IOERR_COMMIT_ATOMIC`, and SQLite makes
//! a journal and writes page by page. When tier and home are full the answer is `SQLITE_FULL`, and
//! the transaction ends there, without a trace.
//!
//! Invariant: between "begin" and "commit" nothing reaches the file; reads see what was collected.
//!
//! One block alone is an ordinary write: as atomic and cheaper. In the steady state no memory is
//! allocated here.

use tiersmith_store::{File, Result};

/// Bytes of memory kept for the next batch.
const KEEP: usize = 4 << 20;

/// What happened to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Everything is durable.
    Done,
    /// Nothing was written: the end of the file would not be where SQLite wants it.
    Refused,
}

/// The pages of an open batch, and the memory of those before.
#[derive(Default)]
pub(crate) struct Batch {
    open: bool,
    /// Offset in the file, offset in `bytes`, length.
    pages: Vec<(u64, usize, usize)>,
    bytes: Vec<u8>,
    /// Blocks put together of smaller pages: their offsets in the file, and their bytes.
    composed_at: Vec<u64>,
    composed: Vec<u8>,
    /// The memory of the list that the store gets; empty between commits.
    list: Vec<(u64, &'static [u8])>,
}

impl Batch {
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    pub(crate) fn begin(&mut self) {
        self.discard();
        self.open = true;
    }

    /// Forgets everything.
    pub(crate) fn discard(&mut self) {
        self.open = false;
        self.pages.clear();
        self.bytes.clear();
    }

    /// Takes a page.
    pub(crate) fn add(&mut self, offset: u64, data: &[u8]) {
        self.pages.push((offset, self.bytes.len(), data.len()));
        self.bytes.extend_from_slice(data);
    }

    /// Where the file would end, at least.
    pub(crate) fn end(&self) -> u64 {
        self.pages.iter().map(|(offset, _, len)| offset + *len as u64).max().unwrap_or(0)
    }

    /// Lays what was collected over `into`, which was read at `offset` and had `got` bytes. Returns
    /// how many it has now.
    pub(crate) fn overlay(&self, offset: u64, into: &mut [u8], got: usize) -> usize {
        let mut there = got;
        let end = offset + into.len() as u64;
        for (page, at, len) in &self.pages {
            let from = offset.max(*page);
            let to = end.min(page + *len as u64);
            if from < to {
                let source = at + (from - page) as usize;
                let (begin, n) = ((from - offset) as usize, (to - from) as usize);
                into[begin..begin + n].copy_from_slice(&self.bytes[source..source + n]);
                there = there.max(begin + n);
            }
        }
        there
    }

    /// Writes everything, all or none, and closes the batch.
    ///
    /// # Errors
    /// The store's; nothing was written then.
    ///
    /// # Durability
    /// All pages survive a power cut on return; after one before that, all or none.
    pub(crate) fn commit(&mut self, file: &File, block: usize) -> Result<Outcome> {
        self.open = false;
        let done = self.write(file, block);
        self.discard();
        // What one very large transaction needed is not kept for the small ones after it.
        self.bytes.shrink_to(KEEP);
        self.composed.shrink_to(KEEP);
        done
    }

    fn write(&mut self, file: &File, block: usize) -> Result<Outcome> {
        if !self.pages.is_sorted_by(|a, b| a.0 < b.0) {
            self.sort();
        }
        let (Some(first), Some(last)) = (self.pages.first(), self.pages.last()) else {
            return Ok(Outcome::Done);
        };
        let whole = |(offset, _, len): &(u64, usize, usize)| {
            *offset % block as u64 == 0 && len % block == 0
        };
        let len = file.len()?;
        let (start, end) = (first.0, last.0 + last.2 as u64);
        let one_block = start / block as u64 == (end - 1) / block as u64;
        if one_block && self.pages.len() == 1 && (end <= len || start >= len) {
            file.write(start, &self.bytes[first.1..first.1 + first.2])?;
            return Ok(Outcome::Done);
        }
        if self.pages.iter().all(whole) {
            return self.write_whole(file, block);
        }
        // The last block ends where the file does, or inside it: else the file would become longer
        // than SQLite made it.
        if end.next_multiple_of(block as u64) > len.max(end) {
            return Ok(Outcome::Refused);
        }
        self.compose(file, block)?;
        let mut list = recycle(std::mem::take(&mut self.list));
        list.extend(self.composed_at.iter().copied().zip(self.composed.chunks_exact(block)));
        let written = file.write_batch(&list);
        self.list = recycle(list);
        written.map(|()| Outcome::Done)
    }

    /// Every page is one block or several.
    fn write_whole(&mut self, file: &File, block: usize) -> Result<Outcome> {
        let mut list = recycle(std::mem::take(&mut self.list));
        for (offset, at, len) in &self.pages {
            let blocks = self.bytes[*at..at + len].chunks_exact(block);
            list.extend(blocks.enumerate().map(|(n, bytes)| (offset + (n * block) as u64, bytes)));
        }
        let written = file.write_batch(&list);
        self.list = recycle(list);
        written.map(|()| Outcome::Done)
    }

    /// Puts whole blocks together of pages that are parts of them.
    fn compose(&mut self, file: &File, block: usize) -> Result<()> {
        self.composed_at.clear();
        self.composed.clear();
        for (offset, at, len) in &self.pages {
            let mut done = 0;
            while done < *len {
                let from = offset + done as u64;
                let start = from / block as u64 * block as u64;
                if self.composed_at.last() != Some(&start) {
                    let begin = self.composed.len();
                    self.composed_at.push(start);
                    self.composed.resize(begin + block, 0);
                    // Past the end of the file the block keeps its zeros.
                    file.read(start, &mut self.composed[begin..])?;
                }
                let inner = (from - start) as usize;
                let n = (block - inner).min(len - done);
                let to = self.composed.len() - block + inner;
                self.composed[to..to + n].copy_from_slice(&self.bytes[at + done..at + done + n]);
                done += n;
            }
        }
        Ok(())
    }

    /// By offset; of two writes at one offset the later stays. SQLite writes in order and each page
    /// once, so this is hardly ever needed.
    fn sort(&mut self) {
        self.pages.sort_by_key(|(offset, at, _)| (*offset, std::cmp::Reverse(*at)));
        self.pages.dedup_by_key(|(offset, _, _)| *offset);
    }
}

/// The memory of an empty list for another one: the list a commit needs is as long as the
/// transaction, and its references do not live beyond the call.
fn recycle<'a>(mut list: Vec<(u64, &[u8])>) -> Vec<(u64, &'a [u8])> {
    list.clear();
    // Collecting from a vector's own iterator keeps its memory.
    list.into_iter().map(|(offset, _)| (offset, &[][..])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_page_that_was_written_twice_the_newer_counts() {
        let mut batch = Batch::default();
        batch.begin();
        for (page, byte) in [(1, 1), (0, 2), (1, 3), (0, 4)] {
            batch.add(page * 512, &[byte; 512]);
        }
        batch.sort();
        let kept: Vec<_> =
            batch.pages.iter().map(|(page, at, _)| (*page, batch.bytes[*at])).collect();
        assert_eq!(kept, [(0, 4), (512, 3)]);
    }
}
