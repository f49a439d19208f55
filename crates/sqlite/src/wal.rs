//! The write-ahead log of an attached database: frames are put together, so that a transaction is one write with one fence.
//!
//! SQLite writes a frame as a header of 24 bytes and a page. On the tier every write is durable on return and costs a fence, so frames wait
//! in memory until the one that commits is complete, and are written together.
//!
//! # When frames are written
//! With the page of a frame whose header has a database size (the commit mark); at a sync, a look at the size, a read of what waits; when
//! 256 KiB wait; at close. So a commit survives a killed process also with `synchronous=NORMAL`, as with the stock VFS, and here a power cut
//! too. Frames that still wait when a connection gives up the WAL's write lock are those of a transaction that was rolled back: they go.
//!
//! The WAL's own header is written alone, durable before the frames behind it: with the old header and some of the old frames, a torn new
//! one behind them would be taken for the end of a WAL of long ago.
//!
//! A header that does not follow the write before it does not wait: SQLite rewrites checksums in place, without a page behind.
//!
//! # Invariants
//! - What waits belongs to the connection that has the WAL's write lock: no other one writes, and others read only what was committed.
//! - Nothing that waited is written after that lock was given up: another connection may have written the same place by then.
//!
//! Read next: `walWriteOneFrame` and `walRewriteChecksums` in `sqlite3.c`; "The WAL File Format" on sqlite.org.

use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, Ordering};
use tiersmith_store::{File, FileClass, Result};

const HEADER: usize = 24;
/// The WAL's own header, at its start.
const FILE_HEADER: usize = 32;
const WAITING_MAX: usize = 256 << 10;

/// The frames that wait, of one database.
#[derive(Default)]
pub(crate) struct Frames {
    /// The file exists and is not empty: what `xAccess` asks.
    present: AtomicBool,
    waiting: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    frames: Vec<u8>,
    at: u64,
    /// Where the write before this one ended.
    end: u64,
    /// The header that waits is that of a commit.
    commits: bool,
}

impl Frames {
    pub(crate) fn is_present(&self) -> bool {
        self.present.load(Ordering::Acquire)
    }

    pub(crate) fn set_present(&self, present: bool) {
        if self.present.load(Ordering::Relaxed) != present {
            self.present.store(present, Ordering::Release);
        }
    }

    /// The write lock is given up: what waits was rolled back.
    #[inline]
    pub(crate) fn write_lock_goes(&self) {
        if self.waiting.load(Ordering::Acquire) {
            self.forget(&mut self.state.lock());
        }
    }

    /// The file is gone, or nobody has it open.
    pub(crate) fn clear(&self) {
        self.set_present(false);
        self.forget(&mut self.state.lock());
    }

    fn forget(&self, state: &mut MutexGuard<'_, State>) {
        state.frames.clear();
        self.waiting.store(false, Ordering::Release);
    }

    fn push(&self, state: &mut MutexGuard<'_, State>, file: &File) -> Result<()> {
        if state.frames.is_empty() {
            return Ok(());
        }
        let written = file.write(state.at, &state.frames);
        // Also after an error: SQLite gives the transaction up.
        self.forget(state);
        written
    }

    fn settle(&self, file: &File) -> Result<()> {
        if !self.waiting.load(Ordering::Acquire) {
            return Ok(());
        }
        self.push(&mut self.state.lock(), file)
    }
}

/// An open WAL.
pub(crate) struct Wal {
    file: File,
    /// Writes are durable on return: only then is it worth to let frames wait.
    placed: bool,
}

impl Wal {
    pub(crate) fn new(file: File) -> Self {
        let placed = file.class() == FileClass::Redo;
        Self { file, placed }
    }

    /// Writes are durable on return.
    pub(crate) fn is_placed(&self) -> bool {
        self.placed
    }

    /// Writes.
    ///
    /// # Durability
    /// On a durable tier the frames of a transaction are durable when its last page was written. Else after [`Wal::sync`].
    pub(crate) fn write(&self, frames: &Frames, offset: u64, data: &[u8]) -> Result<()> {
        frames.set_present(true);
        if !self.placed {
            return self.file.write(offset, data);
        }
        let mut state = frames.state.lock();
        let follows = offset == state.end;
        let header = data.len() == HEADER && offset >= FILE_HEADER as u64;
        let begins = offset == 0 && data.len() == FILE_HEADER;
        if !follows || state.frames.len() + data.len() > WAITING_MAX {
            frames.push(&mut state, &self.file)?;
        }
        if state.frames.is_empty() {
            state.at = offset;
        }
        state.frames.extend_from_slice(data);
        state.end = offset + data.len() as u64;
        let complete = if header {
            state.commits = data[4..8] != [0; 4];
            !follows
        } else {
            std::mem::take(&mut state.commits) || begins
        };
        if complete {
            return frames.push(&mut state, &self.file);
        }
        if !frames.waiting.load(Ordering::Relaxed) {
            frames.waiting.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Reads; returns how many bytes there were.
    pub(crate) fn read(&self, frames: &Frames, offset: u64, into: &mut [u8]) -> Result<usize> {
        if frames.waiting.load(Ordering::Acquire) {
            let mut state = frames.state.lock();
            let (from, to) = (state.at, state.at + state.frames.len() as u64);
            if offset < to && from < offset + into.len() as u64 {
                frames.push(&mut state, &self.file)?;
            }
        }
        self.file.read(offset, into)
    }

    /// Cuts it.
    pub(crate) fn truncate(&self, frames: &Frames, size: u64) -> Result<()> {
        frames.settle(&self.file)?;
        self.file.truncate(size)?;
        if size == 0 {
            frames.clear();
        }
        Ok(())
    }

    /// Makes it durable: what a commit waits for.
    pub(crate) fn sync(&self, frames: &Frames) -> Result<()> {
        frames.settle(&self.file)?;
        self.file.sync()
    }

    /// Its length in bytes.
    pub(crate) fn size(&self, frames: &Frames) -> Result<u64> {
        frames.settle(&self.file)?;
        self.file.len()
    }
}
