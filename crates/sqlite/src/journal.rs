//! The rollback journal of an attached database: one file of the home that is kept, however often
//! SQLite deletes and makes it.
//!
//! SQLite writes a journal in small pieces, makes it durable, writes the database, and ends the
//! transaction by deleting, cutting or zeroing the journal. Making and removing a file of the home
//! costs several syncs of its file system; so here a journal that SQLite deleted or cut to nothing
//! stays, with zeros where its header was ("dead"), as SQLite's own `journal_mode=PERSIST` leaves
//! it. Its length, and whether it is there, are what SQLite last made of them. When the last
//! connection is closed a dead journal is removed.
//!
//! # What is written when
//! Pieces wait in memory and are written together, durable, at the latest before the next write to
//! the database: the order in which SQLite writes is kept (`SQLITE_IOCAP_SEQUENTIAL`), and until
//! the database is written a journal says nothing. The last block is filled up with zeros, so
//! nothing of an older journal lies directly behind the end.
//!
//! # What a power cut, or a killed process, leaves
//! | when | what SQLite finds |
//! |---|---|
//! | before the pieces are written | a dead journal; the database is untouched |
//! | while they are written | part of the journal; the database is untouched; what is played back equals what is there |
//! | after | the journal, with zeros or an older journal's records behind its end; those fail their checksum, which has a random number of the journal in it |
//! | after the header is zeros | a dead journal: the transaction is committed |
//!
//! A journal that ends with the name of a super-journal is recognised by its last eight bytes,
//! which must be the last of the file: then the file is cut to its length at once, and to nothing
//! when it is dead.
//!
//! # A journal of class pass (`place=data`)
//! The same file operations go straight to home. There SQLite syncs the journal itself, with one
//! exception: when an atomic batch fails it makes the journal late and writes the database without
//! a sync between. [`Journal::before_database`] does that sync.
//!
//! Read next: `file.rs`, which calls this; "Rollback journal format" on sqlite.org.

use crate::files::{Files, Role};
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, Ordering};
use tiersmith_store::{Durability, Error, File, OpenMode, Result};

/// The first bytes of a header, and the last of a journal that names a super-journal.
const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// Pieces that wait take no more than this.
const WAITING_MAX: usize = 1 << 20;
/// A dead journal longer than this is cut to nothing: its blocks are worth more than the time.
const KEPT_MAX: u64 = 4 << 20;
static ZEROS: [u8; 32768] = [0; 32768];

/// The journal of one database, shared by its connections. Only the one that holds RESERVED or more
/// writes it.
#[derive(Default)]
pub(crate) struct Journal {
    /// It exists for SQLite and has bytes: what `xAccess` asks.
    present: AtomicBool,
    /// Pieces wait, or a pass journal has not been synced.
    waiting: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The file of the home; once opened it stays open until the last connection goes.
    file: Option<File>,
    /// Bytes of a block; pieces are filled up to it.
    block: u64,
    /// It exists, for SQLite.
    named: bool,
    /// Its length, for SQLite.
    len: u64,
    /// Length of the file of the home.
    physical: u64,
    /// The file's first block may hold a header.
    live: bool,
    /// It ends with the name of a super-journal.
    exact: bool,
    /// The file's last bytes are, or were made to be, such a name.
    cut_when_dead: bool,
    pieces: Vec<u8>,
    pieces_at: u64,
}

impl Journal {
    /// Looks at what is in the home: what a crash, or a program that closed, left.
    ///
    /// # Errors
    /// Those of the home's file system.
    pub(crate) fn find(&self, files: &Files) -> Result<()> {
        let mut state = self.state.lock();
        if state.file.is_some() || !files.has(Role::Journal)? {
            return Ok(());
        }
        state.open(files)?;
        state.named = true;
        state.len = state.physical;
        let mut first = [0];
        let got = state.file()?.read(0, &mut first)?;
        state.live = got == 1 && first != [0];
        if state.writes_are_durable() && !state.live {
            // A dead one, left by a process that did not come to remove it. As long as it is there
            // every transaction would look into it.
            (state.named, state.len) = (false, 0);
        }
        // Whatever its last bytes are: the next journal must not end with them.
        state.cut_when_dead = state.physical > 0;
        self.note(&state);
        Ok(())
    }

    /// Whether `xAccess` finds it: it exists and is not empty.
    pub(crate) fn is_present(&self) -> bool {
        self.present.load(Ordering::Acquire)
    }

    /// Opens it. `None`: it does not exist and is not to be made.
    ///
    /// # Errors
    /// Those of the home's file system.
    pub(crate) fn open(&self, files: &Files, create: bool) -> Result<Option<()>> {
        let mut state = self.state.lock();
        if !state.named && !create {
            return Ok(None);
        }
        state.open(files)?;
        state.named = true;
        Ok(Some(()))
    }

    /// Reads; returns how many bytes there were.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let mut state = self.state.lock();
        self.push_locked(&mut state)?;
        let there = state.len.saturating_sub(offset).min(into.len() as u64) as usize;
        if there == 0 {
            return Ok(0);
        }
        state.file()?.read(offset, &mut into[..there])
    }

    /// Writes.
    ///
    /// # Durability
    /// Durable before the next write to the database file begins, and after [`Journal::sync`].
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        if !state.writes_are_durable() {
            self.waiting.store(true, Ordering::Release);
            state.file()?.write(offset, data)?;
            state.named = true;
            state.len = state.len.max(offset + data.len() as u64);
            self.note(&state);
            return Ok(());
        }
        let waiting_end = state.pieces_at + state.pieces.len() as u64;
        if state.pieces.is_empty() {
            state.pieces_at = offset;
            state.pieces.extend_from_slice(data);
        } else if offset == waiting_end && state.pieces.len() + data.len() <= WAITING_MAX {
            state.pieces.extend_from_slice(data);
        } else if offset >= state.pieces_at && offset + data.len() as u64 <= waiting_end {
            let at = (offset - state.pieces_at) as usize;
            state.pieces[at..at + data.len()].copy_from_slice(data);
        } else {
            self.push_locked(&mut state)?;
            state.pieces_at = offset;
            state.pieces.extend_from_slice(data);
        }
        state.named = true;
        state.len = state.len.max(offset + data.len() as u64);
        state.exact = data == MAGIC;
        self.waiting.store(true, Ordering::Release);
        // Zeros over the header of a journal that is on the tier end a transaction (PERSIST,
        // exclusive locking). With synchronous = OFF nothing follows, and while they waited here a
        // killed process left a hot journal, which takes the transaction back.
        if offset == 0 && state.live && data.first() == Some(&0) {
            self.push_locked(&mut state)?;
        }
        self.note(&state);
        Ok(())
    }

    /// Called before each write to the database file: what waits is written first.
    ///
    /// # Durability
    /// The journal is durable on return.
    #[inline]
    pub(crate) fn before_database(&self) -> Result<()> {
        if self.waiting.load(Ordering::Acquire) { self.settle() } else { Ok(()) }
    }

    #[cold]
    fn settle(&self) -> Result<()> {
        let mut state = self.state.lock();
        self.push_locked(&mut state)?;
        if !state.writes_are_durable()
            && let Some(file) = &state.file
        {
            file.sync()?;
        }
        self.waiting.store(false, Ordering::Release);
        Ok(())
    }

    /// Makes it durable.
    ///
    /// # Durability
    /// All writes that returned survive a power cut.
    pub(crate) fn sync(&self) -> Result<()> {
        let mut state = self.state.lock();
        self.push_locked(&mut state)?;
        state.file()?.sync()?;
        self.waiting.store(false, Ordering::Release);
        Ok(())
    }

    /// Cuts it.
    ///
    /// # Durability
    /// Durable on return, a pass journal's after [`Journal::sync`].
    pub(crate) fn truncate(&self, size: u64) -> Result<()> {
        let mut state = self.state.lock();
        if size == 0 && state.writes_are_durable() {
            state.kill()?;
        } else {
            self.push_locked(&mut state)?;
            state.file()?.truncate(size)?;
            state.physical = size;
        }
        state.len = size;
        self.waiting
            .store(!state.writes_are_durable() || !state.pieces.is_empty(), Ordering::Release);
        self.note(&state);
        Ok(())
    }

    /// Its length.
    pub(crate) fn size(&self) -> u64 {
        self.state.lock().len
    }

    /// Deletes it. `false`: it did not exist.
    ///
    /// # Durability
    /// Durable on return.
    pub(crate) fn delete(&self, files: &Files) -> Result<bool> {
        let mut state = self.state.lock();
        if !state.named {
            return Ok(false);
        }
        if state.writes_are_durable() {
            state.kill()?;
        } else {
            state.forget();
            files.remove(Role::Journal)?;
        }
        state.named = false;
        state.len = 0;
        self.waiting.store(false, Ordering::Release);
        self.note(&state);
        Ok(true)
    }

    /// The last connection goes: a dead journal is removed, another one stays for whoever opens the
    /// database next.
    ///
    /// # Errors
    /// Those of the home's file system; a dead journal that stays does no harm.
    pub(crate) fn last_connection_goes(&self, files: &Files) -> Result<()> {
        let mut state = self.state.lock();
        let pushed = self.push_locked(&mut state);
        let dead = state.file.is_some() && (!state.named || state.len == 0);
        state.forget();
        *state = State::default();
        self.waiting.store(false, Ordering::Release);
        pushed?;
        if dead {
            files.remove(Role::Journal)?;
            self.present.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Characteristics of the file behind: whether writes are durable in order, once it is open.
    pub(crate) fn is_durable(&self) -> bool {
        self.state.lock().writes_are_durable()
    }

    fn note(&self, state: &State) {
        let present = state.named && state.len > 0;
        if self.present.load(Ordering::Relaxed) != present {
            self.present.store(present, Ordering::Release);
        }
    }

    /// Writes what waits, durable.
    fn push_locked(&self, state: &mut MutexGuard<'_, State>) -> Result<()> {
        if state.pieces.is_empty() {
            return Ok(());
        }
        let end = state.pieces_at + state.pieces.len() as u64;
        if end >= state.len && !state.exact {
            let filled = end.next_multiple_of(state.block) - state.pieces_at;
            state.pieces.resize(filled as usize, 0);
        }
        // Before the write: it goes block by block, and the header may be there although a later
        // block failed.
        state.live |= state.pieces_at == 0;
        let State { file, pieces, pieces_at, .. } = &mut **state;
        let file = file.as_ref().ok_or(Error::Detached)?;
        file.write(*pieces_at, pieces)?;
        let written_end = *pieces_at + pieces.len() as u64;
        pieces.clear();
        state.physical = state.physical.max(written_end);
        if state.exact {
            state.cut_when_dead = true;
            if state.physical > state.len {
                let len = state.len;
                state.file()?.truncate(len)?;
                state.physical = len;
            }
        }
        if state.writes_are_durable() {
            self.waiting.store(false, Ordering::Release);
        }
        Ok(())
    }
}

impl State {
    fn open(&mut self, files: &Files) -> Result<()> {
        if self.file.is_none() {
            let file = files.open(Role::Journal, OpenMode::CREATE)?;
            self.block = file.block_size().map_or(4096, |b| b.bytes() as u64);
            self.physical = file.len()?;
            self.file = Some(file);
        }
        Ok(())
    }

    /// Whether each is on return. Not, while there is no file.
    fn writes_are_durable(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.durability() == Durability::OnReturn)
    }

    fn file(&self) -> Result<&File> {
        self.file.as_ref().ok_or(Error::Detached)
    }

    /// Makes it dead: zeros for its header, durable.
    fn kill(&mut self) -> Result<()> {
        self.pieces.clear();
        self.exact = false;
        if self.live {
            // A whole block: nothing of the old one has to be read.
            let len = self.physical.min(self.block) as usize;
            self.file()?.write(0, &ZEROS[..len])?;
            self.live = false;
        }
        if self.cut_when_dead || self.physical > KEPT_MAX {
            self.file()?.truncate(0)?;
            self.physical = 0;
            self.cut_when_dead = false;
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.pieces.clear();
        self.file = None;
    }
}
