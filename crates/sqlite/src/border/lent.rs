//! An open main file with the pages it has lent to SQLite (`xFetch`): references into the tier,
//! without a copy.
//!
//! SQLite gives a page back with `xUnfetch`, mostly the one it fetched last, so they are kept in a
//! vector that is searched from its end.
//!
//! Invariant: a page that SQLite may still read is in the vector; so its frame is not used for
//! anything else, and its bytes do not change.

use crate::file::Main;
use std::sync::Arc;
use tiersmith_store::{BlockRef, File};

/// A page SQLite has: where it lies in the file and in memory, and what keeps it there.
struct Page {
    offset: u64,
    at: *const u8,
    _block: BlockRef<'static>,
}

/// A main file and its lent pages.
pub(super) struct OpenMain {
    /// Dropped before `file`, which it borrows.
    pages: Vec<Page>,
    /// What the pages borrow: the same file as `main.file`, held here so that it goes after them.
    file: Arc<File>,
    pub(super) main: Main,
}

impl OpenMain {
    pub(super) fn new(main: Main) -> Self {
        Self { pages: Vec::new(), file: main.file.clone(), main }
    }

    /// The address of `len` bytes at `offset`, if the tier has the block they are in; they stay as
    /// they are until given back.
    #[inline]
    pub(super) fn lend(&mut self, offset: u64, len: usize) -> Option<*const u8> {
        let end = i64::try_from(offset.checked_add(len as u64)?).ok()?;
        if end > self.main.lend_before || self.main.batch.is_open() {
            return None;
        }
        let block = self.main.block()?;
        let inner = (offset & (block - 1)) as usize;
        if inner as u64 + len as u64 > block {
            return None;
        }
        let lent = self.file.read_ref(offset - inner as u64)?;
        let at = lent.get(inner..inner + len)?.as_ptr();
        // SAFETY: the reference borrows `self.file`. The `File` is on the heap behind an `Arc` this
        // object holds, and does not move; `pages` is declared before `file`, and so is dropped
        // before it. Nobody gets the reference out of `pages`.
        let block = unsafe { std::mem::transmute::<BlockRef<'_>, BlockRef<'static>>(lent) };
        self.pages.push(Page { offset, at, _block: block });
        Some(at)
    }

    /// Takes a lent page back.
    #[inline]
    pub(super) fn take_back(&mut self, offset: u64, at: *const u8) {
        if let Some(n) = self.pages.iter().rposition(|p| p.offset == offset && p.at == at) {
            self.pages.swap_remove(n);
        }
    }

    /// Pages SQLite has.
    pub(super) fn lent(&self) -> usize {
        self.pages.len()
    }
}
