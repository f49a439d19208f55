//! The stamp of a `db` that passes (`place=redo`): what it looked like when Tiersmith last wrote it, so that a foreign write is noticed.
//!
//! Of a `db` on the tier the store knows that itself. Here it is a small file of class data in the directory, so each write of it is durable and
//! whole on return, and costs about as much as a page of a commit.
//!
//! | when | what the file says |
//! |---|---|
//! | before the first write to `db` since | `writing`: nothing is known until `db` was synced |
//! | after a sync of `db` | its inode number, length and modification time, which are durable then |
//! | at an open that found `writing`, or nothing | `db` is synced, and the same |
//!
//! At an open a `db` that is not as the stamp says is refused while its WAL or journal is not empty, for those belong to what it was. With both
//! empty `db` is a whole database, whoever wrote it, and is taken as it is.
//!
//! The file only tells: when it was itself removed or changed, the tier's copy of it is dropped ([`tiersmith_store::Bound::aside`]), and what it says
//! at home counts: nothing, as with `writing`, or an older stamp, which refuses what it should not rather than the other way round.
//!
//! Not seen: a foreign write while the file says `writing`, which is so between a crash in the middle of a checkpoint (or, with a rollback journal,
//! of a commit) and the next open; and always with `synchronous = OFF`, for then nothing is synced. There only the bars tell (`bars.rs`).

use super::PlaceError;
use super::layout::{DB, JOURNAL, STAMP, WAL};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use tiersmith_store::{AttachedHome, Error, File, HomeStamp, OpenMode, Result};

/// Bytes of the file; one block holds it.
const LEN: usize = 128;
/// Its first line.
const VERSION: &str = "tiersmith-sqlite-stamp 1";

/// What `db` looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    ino: u64,
    size: u64,
    mtime_ns: u64,
}

/// The stamp of a database that is open.
pub(crate) struct Stamp {
    file: File,
    /// `db` was written since it was last stamped, and the file says so.
    writing: AtomicBool,
    /// Taken to change what the file says.
    turn: Mutex<()>,
}

impl Stamp {
    /// Compares `db` with its stamp. `None`: `db` is on the tier, where the store does that, or there is none yet.
    ///
    /// # Errors
    /// [`PlaceError::Store`] with [`Error::LogOfAnother`] when it was changed and its logs are not empty; nothing was changed then. Else those of
    /// the home's file system.
    pub(super) fn open(home: &AttachedHome, passes: bool) -> std::result::Result<Option<Self>, PlaceError> {
        if !passes {
            return Ok(None);
        }
        let found = Look::of(home)?;
        let file = home.open(STAMP, OpenMode::CREATE)?;
        let known = read(&file)?;
        if let (Some(known), Some(found)) = (known, found)
            && known != found
            && let Some((log, log_bytes)) = waiting_log(home)?
        {
            let how = format!(
                "was changed (inode {}, size {} and modification time {} ns, expected {}, {} and {})",
                found.ino, found.size, found.mtime_ns, known.ino, known.size, known.mtime_ns
            );
            let stamp = HomeStamp { size: known.size, mtime_ns: known.mtime_ns };
            let expected = (known.ino == found.ino).then_some(stamp);
            return Err(
                Error::LogOfAnother { path: DB.into(), log: log.into(), log_bytes, how, expected }.into()
            );
        }
        let stamp = Self { file, writing: AtomicBool::new(true), turn: Mutex::new(()) };
        if found.is_none() {
            return Ok(Some(stamp));
        }
        if known == found {
            stamp.writing.store(false, Ordering::Release);
        } else {
            home.open(DB, OpenMode::WRITE)?.sync()?;
            stamp.settle(home)?;
        }
        Ok(Some(stamp))
    }

    /// To be called before `db` is written.
    ///
    /// # Durability
    /// That it is being written is durable on return.
    #[inline]
    pub(crate) fn announce(&self) -> Result<()> {
        if self.writing.load(Ordering::Acquire) { Ok(()) } else { self.announce_now() }
    }

    #[cold]
    fn announce_now(&self) -> Result<()> {
        let _turn = self.turn.lock();
        write(&self.file, "writing")?;
        self.writing.store(true, Ordering::Release);
        Ok(())
    }

    /// To be called after `db` was synced, and before it is written again.
    ///
    /// # Durability
    /// What it looks like is durable on return.
    pub(crate) fn settle(&self, home: &AttachedHome) -> Result<()> {
        let _turn = self.turn.lock();
        if self.writing.load(Ordering::Acquire)
            && let Some(look) = Look::of(home)?
        {
            write(&self.file, &format!("db {} {} {}", look.ino, look.size, look.mtime_ns))?;
            self.writing.store(false, Ordering::Release);
        }
        Ok(())
    }
}

/// Makes a stamp know nothing: `db` may be anything at the next open.
///
/// # Durability
/// Durable on return.
pub(super) fn forget(home: &AttachedHome) -> Result<()> {
    write(&home.open(STAMP, OpenMode::CREATE)?, "writing")
}

impl Look {
    fn of(home: &AttachedHome) -> Result<Option<Self>> {
        let stat = stat(home, DB)?;
        Ok(stat.map(|stat| Self { ino: stat.ino, size: stat.size, mtime_ns: stat.mtime_ns }))
    }
}

/// The WAL or journal that is not empty, and its length.
fn waiting_log(home: &AttachedHome) -> Result<Option<(&'static str, u64)>> {
    for log in [WAL, JOURNAL] {
        if let Some(stat) = stat(home, log)?.filter(|stat| stat.size > 0) {
            return Ok(Some((log, stat.size)));
        }
    }
    Ok(None)
}

fn stat(home: &AttachedHome, name: &str) -> Result<Option<tiersmith_store::home::HomeStat>> {
    match home.stat(Path::new(name)) {
        Ok(stat) => Ok(Some(stat)),
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// What the file says; `None` for `writing`, and for what this version would not have written.
fn read(file: &File) -> Result<Option<Look>> {
    let mut bytes = [0; LEN];
    let got = file.read(0, &mut bytes)?;
    let text = std::str::from_utf8(&bytes[..got]).unwrap_or_default();
    let mut lines = text.lines();
    let (Some(VERSION), Some(line), Some("end")) = (lines.next(), lines.next(), lines.next()) else {
        return Ok(None);
    };
    let numbers: Vec<u64> = line.split(' ').skip(1).filter_map(|word| word.parse().ok()).collect();
    Ok(match numbers[..] {
        [ino, size, mtime_ns] if line.starts_with("db ") => Some(Look { ino, size, mtime_ns }),
        _ => None,
    })
}

/// # Durability
/// Durable on return, the old text or the new one after a cut: it is one block of class data.
fn write(file: &File, line: &str) -> Result<()> {
    let mut text = format!("{VERSION}\n{line}\nend\n").into_bytes();
    text.resize(LEN, b'\n');
    file.write(0, &text)?;
    file.sync()
}
