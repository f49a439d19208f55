//! The files of an attached database as SQLite has them open: main file, WAL, journal.
//!
//! Each is used by one connection, one call at a time; what connections share is in
//! [`Shared`](crate::shared::Shared). Errors are the store's here; `border` turns them into result
//! codes.
//!
//! # Device characteristics, and why they are true
//! | flag | holds |
//! |---|---|
//! | `ATOMIC512` to the block size | an aligned write of that many bytes lies within one block, and a block becomes new as a whole: a pointer switch |
//! | `POWERSAFE_OVERWRITE` | bytes beside a write do not change: the rest of the block is copied, or the write is in place by 8-byte words |
//! | `SAFE_APPEND`, `SEQUENTIAL` | writes reach the tier in SQLite's order, each durable: the length after the bytes; what waits in memory is written before the other file is |
//! | `BATCH_ATOMIC` | `File::write_batch`, see `batch.rs` |
//! | `UNDELETABLE_WHEN_OPEN` | a journal that is deleted while a connection has it open stays the file of that connection, see `journal.rs`; not on flash |
//! | `SUBPAGE_READ` | a read may have any offset and length |
//!
//! SQLite asks the database file and means the journal too. So `SAFE_APPEND` and `SEQUENTIAL` are
//! there only when both are on a tier whose writes are durable on return, and a main file of class
//! pass says what its file system does: `POWERSAFE_OVERWRITE`, as the stock VFS does.
//!
//! # On flash
//! What was written is durable after a sync, and what was not synced is in this process's memory: a
//! killed program would lose it, which no setting of `synchronous` allows. So a commit ends with a
//! sync (`Main::committed`), where SQLite asked for none before.
//!
//! Read next: `batch.rs`, `journal.rs`, `wal.rs`.

use crate::batch::{Batch, Outcome};
use crate::database::{Name, Opened, User};
use crate::ffi;
use crate::locks::Held;
use crate::place::{Place, Placement, Role};
use crate::shm::Member;
use crate::wal::Wal;
use std::ffi::c_int;
use std::sync::Arc;
use tiersmith_store::{Durability, File, OpenMode, Result};

/// What all three kinds can do. Offsets and sizes are in bytes.
pub(crate) trait Storage {
    /// Reads; returns how many bytes there were, fewer at the end of the file.
    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<usize>;
    /// Writes.
    ///
    /// # Durability
    /// On a durable tier in the order of the calls; durable at the latest at [`Storage::sync`].
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<()>;
    /// Cuts, or lengthens with zeros.
    fn truncate(&mut self, size: u64) -> Result<()>;
    /// Makes everything durable.
    fn sync(&mut self) -> Result<()>;
    /// Size in bytes.
    fn size(&mut self) -> Result<u64>;
    /// `SQLITE_IOCAP` flags.
    fn characteristics(&self) -> c_int;
    /// Whose file it is.
    fn user(&self) -> &User;
    /// Ends the use of the file; the object goes after it.
    fn close(&mut self) -> Result<()>;
}

/// A main database file.
pub(crate) struct Main {
    pub(crate) file: Arc<File>,
    pub(crate) user: User,
    pub(crate) held: Held,
    pub(crate) member: Member,
    pub(crate) batch: Batch,
    /// `PRAGMA mmap_size`: pages that lie before this offset may be lent.
    pub(crate) lend_before: i64,
    pub(crate) persist_wal: bool,
    characteristics: c_int,
    /// Bytes of a block; 0 for a pass file.
    block: usize,
    _name: Name,
    _opened: Opened,
}

impl Main {
    /// Opens the main file of a place. `name` is the database as SQLite spells it.
    ///
    /// # Errors
    /// Those of the home's file system.
    pub(crate) fn open(place: Arc<Place>, name: &[u8], mode: OpenMode) -> Result<Self> {
        // The journal is looked for before the name is known: whoever finds the name believes what
        // is known of the journal.
        let user = User::join(place.clone())?;
        let name = Name::keep(name, Some(&place));
        let file = user.place().files.open(Role::Main, mode)?;
        let block = file.block_size().map_or(0, |b| b.bytes());
        let spec = user.place().spec();
        let characteristics = characteristics(&file, block, spec.place, spec.flash);
        let opened = Opened::new(user.place().clone());
        Ok(Self {
            file: Arc::new(file),
            user,
            held: Held::default(),
            member: Member::default(),
            batch: Batch::default(),
            lend_before: 0,
            persist_wal: false,
            characteristics,
            block,
            _name: name,
            _opened: opened,
        })
    }

    pub(crate) fn lock(&mut self, level: c_int) -> c_int {
        self.user.shared().locks.lock(&mut self.held, level)
    }

    pub(crate) fn unlock(&mut self, level: c_int) {
        let shared = self.user.shared();
        shared.locks.unlock(&mut self.held, level);
        if level == ffi::LOCK_NONE {
            shared.statistics.unlocked(&self.user.place().files);
        }
    }

    /// A transaction of this connection was committed, and its locks are still held.
    ///
    /// # Durability
    /// The transaction survives a killed process on return.
    pub(crate) fn committed(&self) -> Result<()> {
        let place = self.user.place();
        if place.spec().flash {
            place.home().sync_tiers()?;
        }
        self.user.shared().statistics.committed(&place.files);
        Ok(())
    }

    pub(crate) fn begin_batch(&mut self) -> c_int {
        if !self.file.has_batches() || self.batch.is_open() {
            return ffi::IOERR_BEGIN_ATOMIC;
        }
        self.batch.begin();
        ffi::OK
    }

    /// Writes the batch. A batch that is refused without an error is no event for anybody: SQLite
    /// goes on with a journal.
    pub(crate) fn commit_batch(&mut self) -> Result<Outcome> {
        self.user.shared().journal.before_database()?;
        self.batch.commit(&self.file, self.block)
    }

    /// What has to be there before the file changes: the journal, and that it does.
    #[inline]
    fn before_change(&self) -> Result<()> {
        self.user.shared().journal.before_database()?;
        match &self.user.place().stamp {
            Some(stamp) if self.block == 0 => stamp.announce(),
            _ => Ok(()),
        }
    }

    /// `xShmLock`.
    #[inline]
    pub(crate) fn shm_lock(&mut self, first: usize, n: usize, flags: c_int) -> c_int {
        let shared = self.user.shared();
        // The first slot is the WAL's write lock.
        if first == 0 && flags == ffi::SHM_UNLOCK | ffi::SHM_EXCLUSIVE {
            shared.wal.write_lock_goes();
        }
        let code = shared.index.lock(&mut self.member, first, n, flags);
        if flags & ffi::SHM_UNLOCK != 0 {
            shared.statistics.unlocked(&self.user.place().files);
        }
        code
    }

    /// `xShmUnmap`.
    pub(crate) fn shm_unmap(&mut self) {
        let shared = self.user.shared();
        if self.member.has_exclusive(0) {
            shared.wal.write_lock_goes();
        }
        shared.index.leave(&mut self.member);
    }

    /// After the file changed: what it looks like now.
    #[inline]
    fn after_change(&self) {
        if self.block == 0
            && let Some(stamp) = &self.user.place().stamp
        {
            stamp.written(self.user.place().home());
        }
    }

    /// Bytes of a block; `None` for a pass file.
    pub(crate) fn block(&self) -> Option<u64> {
        (self.block > 0).then_some(self.block as u64)
    }
}

fn characteristics(file: &File, block: usize, placement: Placement, flash: bool) -> c_int {
    let mut flags = ffi::IOCAP_POWERSAFE_OVERWRITE | ffi::IOCAP_SUBPAGE_READ;
    if placement != Placement::Data && !flash {
        flags |= ffi::IOCAP_UNDELETABLE_WHEN_OPEN;
    }
    if file.has_batches() {
        flags |= ffi::IOCAP_BATCH_ATOMIC;
        let mut bytes = 512;
        let mut atomic = ffi::IOCAP_ATOMIC512;
        while bytes <= block {
            // The flags follow each other, one for each power of two.
            flags |= atomic;
            bytes *= 2;
            atomic <<= 1;
        }
        if placement == Placement::All && file.durability() == Durability::OnReturn {
            flags |= ffi::IOCAP_SAFE_APPEND | ffi::IOCAP_SEQUENTIAL;
        }
    }
    flags
}

impl Storage for Main {
    #[inline]
    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let got = self.file.read(offset, into)?;
        if self.batch.is_open() {
            into[got..].fill(0);
            return Ok(self.batch.overlay(offset, into, got));
        }
        Ok(got)
    }

    #[inline]
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        if self.batch.is_open() {
            self.batch.add(offset, data);
            return Ok(());
        }
        self.before_change()?;
        self.file.write(offset, data)?;
        self.after_change();
        Ok(())
    }

    fn truncate(&mut self, size: u64) -> Result<()> {
        // SQLite does not cut within a batch. If one did: without the batch its transaction would
        // be acknowledged and gone, with it what was cut would come back. An error makes SQLite
        // roll the transaction back.
        if self.batch.is_open() {
            return Err(tiersmith_store::Error::Invalid {
                what: "cut",
                path: self.user.place().name(Role::Main).to_path_buf(),
                reason: format!("to {size} bytes while an atomic batch of writes is open"),
            });
        }
        self.before_change()?;
        self.file.truncate(size)?;
        self.after_change();
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync()?;
        let place = self.user.place();
        place.stamp.as_ref().map_or(Ok(()), |stamp| stamp.settle(place.home()))
    }

    fn size(&mut self) -> Result<u64> {
        let len = self.file.len()?;
        Ok(if self.batch.is_open() { len.max(self.batch.end()) } else { len })
    }

    fn characteristics(&self) -> c_int {
        self.characteristics
    }

    #[inline]
    fn user(&self) -> &User {
        &self.user
    }

    fn close(&mut self) -> Result<()> {
        self.shm_unmap();
        self.unlock(ffi::LOCK_NONE);
        Ok(())
    }
}

/// An open WAL or journal.
pub(crate) struct Side {
    what: What,
    user: User,
    read_only: bool,
    delete_on_close: bool,
}

enum What {
    Wal(Wal),
    Journal,
}

impl Side {
    /// Opens the WAL or the journal of a place. `None`: it is not there, and not to be made.
    ///
    /// # Errors
    /// Those of the home's file system.
    pub(crate) fn open(place: Arc<Place>, role: Role, flags: c_int) -> Result<Option<Self>> {
        let user = User::join(place)?;
        let create = flags & ffi::OPEN_CREATE != 0;
        let place = user.place();
        let what = match role {
            Role::Journal => {
                if create && flags & ffi::OPEN_EXCLUSIVE != 0 && user.is_present(role) {
                    return Ok(None);
                }
                match user.shared().journal.open(&place.files, create)? {
                    Some(()) => What::Journal,
                    None => return Ok(None),
                }
            }
            _ => {
                if !create && !place.files.has(role)? {
                    return Ok(None);
                }
                What::Wal(Wal::new(place.files.open(role, OpenMode::CREATE)?))
            }
        };
        let read_only = flags & ffi::OPEN_READONLY != 0;
        Ok(Some(Self {
            what,
            user,
            read_only,
            delete_on_close: flags & ffi::OPEN_DELETEONCLOSE != 0,
        }))
    }

    fn writable(&self, what: &'static str) -> Result<()> {
        if self.read_only {
            let path = self.user.place().database().to_path_buf();
            let reason = "its WAL or journal was opened for reading only".to_string();
            return Err(tiersmith_store::Error::Invalid { what, path, reason });
        }
        Ok(())
    }
}

impl Storage for Side {
    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<usize> {
        match &self.what {
            What::Wal(wal) => wal.read(&self.user.shared().wal, offset, into),
            What::Journal => self.user.shared().journal.read(offset, into),
        }
    }

    #[inline]
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        self.writable("write")?;
        match &self.what {
            What::Wal(wal) => wal.write(&self.user.shared().wal, offset, data),
            What::Journal => self.user.shared().journal.write(offset, data),
        }
    }

    fn truncate(&mut self, size: u64) -> Result<()> {
        self.writable("truncate")?;
        match &self.what {
            What::Wal(wal) => wal.truncate(&self.user.shared().wal, size),
            What::Journal => self.user.shared().journal.truncate(size),
        }
    }

    fn sync(&mut self) -> Result<()> {
        match &self.what {
            What::Wal(wal) => wal.sync(&self.user.shared().wal),
            What::Journal => self.user.shared().journal.sync(),
        }
    }

    fn size(&mut self) -> Result<u64> {
        match &self.what {
            What::Wal(wal) => wal.size(&self.user.shared().wal),
            What::Journal => Ok(self.user.shared().journal.size()),
        }
    }

    fn characteristics(&self) -> c_int {
        let ordered = ffi::IOCAP_SAFE_APPEND | ffi::IOCAP_SEQUENTIAL;
        ffi::IOCAP_POWERSAFE_OVERWRITE
            | match &self.what {
                What::Wal(wal) if wal.is_ordered() => ordered,
                What::Journal if self.user.shared().journal.is_durable() => {
                    ordered | ffi::IOCAP_UNDELETABLE_WHEN_OPEN
                }
                _ => 0,
            }
    }

    #[inline]
    fn user(&self) -> &User {
        &self.user
    }

    /// Frames that still wait are those of a transaction that is still open: the connection that
    /// has the write lock says what becomes of them.
    fn close(&mut self) -> Result<()> {
        if self.delete_on_close {
            let role = if matches!(self.what, What::Journal) { Role::Journal } else { Role::Wal };
            self.user.delete(role)?;
        }
        Ok(())
    }
}
