//! The write-ahead log of an attached database: frames are put together, so that a transaction is
//! one write with one fence.
//!
//! SQLite writes a frame as a header of 24 bytes and a page. On the tier every write is durable on
//! return and costs a fence, so frames wait in memory until the one that commits is complete, and
//! are written together.
//!
//! # When frames are written
//! With the page of a frame whose header has a database size (the commit mark); at a sync, a look
//! at the size, a read of what waits; when 256 KiB wait; at close. So a commit survives a killed
//! process also with `synchronous=NORMAL`, as with the stock VFS, and here a power cut too. Frames
//! that still wait when a connection gives up the WAL's write lock are those of a transaction that
//! was rolled back: they go.
//!
//! The WAL's own header is written alone, durable before the frames behind it: with the old header
//! and some of the old frames, a torn new one behind them would be taken for the end of a WAL of
//! long ago. On flash, where a write is durable only after a sync, SQLite syncs between the two;
//! and since the header ends what the WAL held, what a checkpoint wrote is synced before it,
//! whatever `synchronous` says.
//!
//! Only whole headers of frames and whole pages wait, each at its place in the file. Anything else
//! is written at once, with what waits before it: SQLite rewrites checksums in place, without a
//! page behind; and a VFS above this one may hide that bytes beside a write stay as they are
//! (`POWERSAFE_OVERWRITE`), or cut writes in pieces. Then SQLite fills up the sector with copies of
//! the frame that commits and syncs in the middle of one, and the rest of that one is not followed
//! by anything.
//!
//! # Invariants
//! - What was committed does not wait: behind a commit mark nothing but its page, and that ends the
//!   waiting.
//! - What waits belongs to the connection that has the WAL's write lock: no other one writes, and
//!   others read only what was committed.
//! - Nothing that waited is written after that lock was given up: another connection may have
//!   written the same place by then.
//!
//! Read next: `walWriteOneFrame` and `walRewriteChecksums` in `sqlite3.c`; "The WAL File Format" on
//! sqlite.org.

use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, Ordering};
use tiersmith_store::{Durability, File, FileClass, Result};

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
    /// The write before this one was the whole header of a frame; whether it commits.
    header: Option<bool>,
    /// Bytes of a page, from the file's header; 0: not known.
    page: u64,
}

/// What a write is to the WAL.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// The whole header of a frame; whether it commits.
    Header { commits: bool },
    /// The whole page of a frame.
    Page,
    /// Anything else, the file's header too.
    Other,
}

impl State {
    /// What `data` at `offset` is.
    fn piece(&self, offset: u64, data: &[u8]) -> Piece {
        let Some(in_frames) = offset.checked_sub(FILE_HEADER as u64).filter(|_| self.page > 0)
        else {
            return Piece::Other;
        };
        match in_frames % (HEADER as u64 + self.page) {
            0 if data.len() == HEADER => Piece::Header { commits: data[4..8] != [0; 4] },
            at if at == HEADER as u64 && data.len() as u64 == self.page => Piece::Page,
            _ => Piece::Other,
        }
    }
}

/// The page size in the header of a WAL, 0 if it has none that SQLite knows.
fn page_size(header: &[u8]) -> u64 {
    // SQLite's formats are big-endian.
    let size = header
        .get(8..12)
        .unwrap_or_default()
        .iter()
        .fold(0, |size, byte| size << 8 | u64::from(*byte));
    if size.is_power_of_two() && (512..=65536).contains(&size) { size } else { 0 }
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
        let mut state = self.state.lock();
        state.page = 0;
        self.forget(&mut state);
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
    /// It is on a durable tier: only then is it worth to let frames wait.
    placed: bool,
    /// Writes are durable on return.
    ordered: bool,
}

impl Wal {
    pub(crate) fn new(file: File) -> Self {
        let placed = file.class() == FileClass::Redo;
        let ordered = placed && file.durability() == Durability::OnReturn;
        Self { file, placed, ordered }
    }

    /// Writes are durable on return, one after the other.
    pub(crate) fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// Writes.
    ///
    /// # Durability
    /// Where it is ordered, the frames of a transaction are durable when its last page was written.
    /// Else after [`Wal::sync`].
    pub(crate) fn write(&self, frames: &Frames, offset: u64, data: &[u8]) -> Result<()> {
        frames.set_present(true);
        if !self.placed {
            return self.file.write(offset, data);
        }
        let mut state = frames.state.lock();
        if offset < FILE_HEADER as u64 {
            if !self.ordered {
                self.file.sync()?;
            }
            state.page = if offset == 0 { page_size(data) } else { 0 };
        } else if state.page == 0 {
            let mut header = [0; FILE_HEADER];
            let got = self.file.read(0, &mut header)?;
            state.page = page_size(&header[..got]);
        }
        let follows = offset == state.end;
        let piece = state.piece(offset, data);
        if !follows || state.frames.len() + data.len() > WAITING_MAX {
            frames.push(&mut state, &self.file)?;
        }
        if state.frames.is_empty() {
            state.at = offset;
        }
        state.frames.extend_from_slice(data);
        state.end = offset + data.len() as u64;
        let header = state.header.take();
        let complete = match piece {
            Piece::Header { commits } => {
                state.header = Some(commits);
                !follows
            }
            // A page whose header came in pieces, or does not come with it, may end a commit.
            Piece::Page => header != Some(false) || !follows,
            Piece::Other => true,
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
        if size < FILE_HEADER as u64 {
            frames.state.lock().page = 0;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::{FastSpec, Place, Role, Want};
    use std::sync::Arc;
    use tiersmith_store::OpenMode;

    const PAGE: usize = 4096;
    const FIRST: u64 = FILE_HEADER as u64;

    /// A WAL of pages of 4 KiB with its header written, on an emulated tier.
    fn wal(dir: &tempfile::TempDir) -> (Arc<Place>, Wal, Frames) {
        let members = vec![dir.path().join("tier")];
        let fast = FastSpec { members, size: Some(4 << 20), emulate: true, ..FastSpec::default() };
        let want = Want { fast: Some(fast), create: true, read_only: false };
        let place = Place::open(&dir.path().join("app.db"), &want, &|_| Ok(())).unwrap().unwrap();
        let file = place.home().open(place.name(Role::Wal), OpenMode::CREATE).unwrap();
        let (wal, frames) = (Wal::new(file), Frames::default());
        let mut header = [0; FILE_HEADER];
        header[8..12].copy_from_slice(&[0, 0, (PAGE >> 8) as u8, 0]);
        wal.write(&frames, 0, &header).unwrap();
        (place, wal, frames)
    }

    fn header(commits: bool) -> [u8; HEADER] {
        let mut header = [7; HEADER];
        header[4..8].fill(u8::from(commits));
        header
    }

    #[test]
    fn a_commit_is_written_and_what_is_rolled_back_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (_place, wal, frames) = wal(&dir);
        let page = FIRST + HEADER as u64;
        wal.write(&frames, FIRST, &header(true)).unwrap();
        wal.write(&frames, page, &[1; PAGE]).unwrap();
        assert_eq!(wal.file.len().unwrap(), page + PAGE as u64);
        let next = page + PAGE as u64;
        wal.write(&frames, next, &header(false)).unwrap();
        wal.write(&frames, next + HEADER as u64, &[2; PAGE]).unwrap();
        frames.write_lock_goes();
        assert_eq!(wal.size(&frames).unwrap(), next);
    }

    /// What SQLite does above a VFS that does not say POWERSAFE_OVERWRITE: it syncs in the middle
    /// of a frame, and nothing follows the rest.
    #[test]
    fn no_part_of_a_frame_that_commits_waits_however_it_is_cut() {
        let at = FIRST + HEADER as u64;
        for cuts in [
            vec![0, 10, HEADER],
            vec![0, HEADER, HEADER + 1000],
            vec![0, HEADER, HEADER + PAGE - HEADER],
        ] {
            for synced in [false, true] {
                let dir = tempfile::tempdir().unwrap();
                let (_place, wal, frames) = wal(&dir);
                let frame = [&header(true)[..], &[3; PAGE]].concat();
                let ends = cuts.iter().skip(1).copied().chain([frame.len()]);
                for (from, to) in cuts.iter().copied().zip(ends) {
                    wal.write(&frames, FIRST + from as u64, &frame[from..to]).unwrap();
                    if synced {
                        wal.sync(&frames).unwrap();
                    }
                }
                frames.write_lock_goes();
                let mut found = vec![0; PAGE];
                assert_eq!(wal.file.read(at, &mut found).unwrap(), PAGE, "{cuts:?}");
                assert!(found.iter().all(|byte| *byte == 3), "{cuts:?}");
            }
        }
    }

    #[test]
    fn the_page_size_is_read_from_a_wal_that_was_there_before() {
        let dir = tempfile::tempdir().unwrap();
        let (_place, wal, _) = wal(&dir);
        let frames = Frames::default();
        wal.write(&frames, FIRST, &header(false)).unwrap();
        wal.write(&frames, FIRST + HEADER as u64, &[4; PAGE]).unwrap();
        assert_eq!(frames.state.lock().page, PAGE as u64);
        assert!(frames.waiting.load(Ordering::Acquire));
        for wrong in [[0, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 1], [0xff; 4]] {
            assert_eq!(page_size(&[&[0; 8][..], &wrong].concat()), 0);
        }
        assert_eq!(page_size(&[]), 0);
    }
}
