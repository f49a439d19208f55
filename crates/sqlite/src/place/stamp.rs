//! The stamp of a `db` that passes (`place=redo`): what it looked like when Tiersmith last wrote
//! it, so that a foreign write is noticed.
//!
//! Of a `db` on the tier the store knows that itself. Here it is a small file of class data in the
//! directory, so each write of it is durable and whole on return, and costs about as much as a page
//! of a commit. It is no [`tiersmith_dir::Sidecar`]: it is written in place on the way of a commit,
//! and what is not as it should be means only that nothing is known.
//!
//! | when | what the file says |
//! |---|---|
//! | before the first write to `db` since, and before one that comes more than [`RENEW_AFTER`] after the last look | `writing`: nothing is known |
//! | after that write | `writing`, its inode number, the earliest and the latest modification time it had |
//! | after a sync of `db` | its inode number, length and modification time, which are durable then |
//! | at an open that found `writing`, or nothing | `db` is synced, and the same |
//!
//! At an open a `db` that is not as the stamp says is refused while its WAL or journal is not
//! empty, for those belong to what it was. With both empty `db` is a whole database, whoever wrote
//! it, and is taken as it is.
//!
//! While `db` is written its length and time change, and after a crash any of them is ours. Ours
//! are no earlier than the time before, and no later than the last one seen plus [`OURS_FOR_NS`],
//! which is [`RENEW_AFTER`] and as long as one write may be held up. All of them are times of
//! home's own clock; the machine's tells only how long ago the last look was, and one that was set
//! makes the next write look again.
//!
//! The file only tells: when it was itself removed or changed, the tier's copy of it is dropped
//! ([`tiersmith_store::Bound::aside`]), and what it says at home counts: nothing, as with
//! `writing`, or an older stamp, which refuses what it should not rather than the other way round.
//!
//! Not seen: a foreign write within two minutes of the last one of ours, when a crash came between
//! that one and its sync (in the middle of a checkpoint, or, with a rollback journal, of a commit;
//! with `synchronous = OFF` at any time); nor one after a crash between a first write and the look
//! that follows it. There only the bars tell (`bars.rs`). The change counter in the database's
//! header would not: a transaction in WAL mode leaves it as it is unless it changes the first page.

use crate::error::PlaceError;
use crate::files::{DB, JOURNAL, STAMP, WAL};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tiersmith_store::{AttachedHome, Error, File, HomeStamp, OpenMode, Result};

/// Bytes of the file; one block holds it.
const LEN: usize = 128;
/// Its first line.
const VERSION: &str = "tiersmith-sqlite-stamp 1";
/// How long writes go on before `db` is looked at again.
const RENEW_AFTER: Duration = Duration::from_secs(10);
/// A modification time this long after the last one seen is still ours, in ns: the machine may
/// sleep in the middle of a write.
const OURS_FOR_NS: u64 = 120_000_000_000;
/// Some file systems keep times by two seconds.
const GRAIN_NS: u64 = 2_000_000_000;

/// What `db` looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    ino: u64,
    size: u64,
    mtime_ns: u64,
}

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    /// Nothing: no file, `writing`, or what this version would not have written.
    Nothing,
    /// Since it was synced nothing was written.
    Synced(Look),
    /// It is being written.
    Writing(Span),
}

/// What a `db` that is being written may look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    ino: u64,
    from_ns: u64,
    until_ns: u64,
}

/// Values of [`Stamp::phase`]: it is as the file says; it is written, and the file says nothing;
/// the file has a span.
const SYNCED: u8 = 0;
const UNKNOWN: u8 = 1;
const SPANNED: u8 = 2;

/// The stamp of a database that is open.
pub(crate) struct Stamp {
    file: File,
    phase: AtomicU8,
    /// When `db` was last looked at, in ns since 1970 by the machine's clock.
    looked_ns: AtomicU64,
    /// Taken to change what the file says. The earliest and the latest modification time that `db`
    /// may have on the disk, if they are known.
    times_ns: Mutex<Option<(u64, u64)>>,
}

impl Stamp {
    /// Compares `db` with its stamp. `None`: `db` is on the tier, where the store does that, or
    /// there is none yet.
    ///
    /// # Errors
    /// [`PlaceError::Store`] with [`Error::LogOfAnother`] when it was changed and its logs are not
    /// empty; nothing was changed then. Else those of the home's file system.
    pub(super) fn open(
        home: &AttachedHome,
        passes: bool,
    ) -> std::result::Result<Option<Self>, PlaceError> {
        if !passes {
            return Ok(None);
        }
        let found = Look::of(home)?;
        let file = home.open(STAMP, OpenMode::CREATE)?;
        let says = read(&file)?;
        if let Some(found) = found
            && let Some((how, expected)) = says.differs(found)
            && let Some((log, log_bytes)) = waiting_log(home)?
        {
            return Err(Error::LogOfAnother {
                path: DB.into(),
                log: log.into(),
                log_bytes,
                how,
                expected,
            }
            .into());
        }
        let stamp = Self {
            file,
            phase: AtomicU8::new(UNKNOWN),
            looked_ns: AtomicU64::new(0),
            times_ns: Mutex::new(None),
        };
        let Some(found) = found else { return Ok(Some(stamp)) };
        if says == Says::Synced(found) {
            *stamp.times_ns.lock() = Some((found.mtime_ns, found.mtime_ns));
            stamp.phase.store(SYNCED, Ordering::Release);
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
        match self.phase.load(Ordering::Acquire) {
            UNKNOWN => Ok(()),
            SPANNED if self.looked_lately() => Ok(()),
            _ => self.announce_now(),
        }
    }

    #[cold]
    fn announce_now(&self) -> Result<()> {
        let _turn = self.times_ns.lock();
        write(&self.file, "writing")?;
        self.phase.store(UNKNOWN, Ordering::Release);
        Ok(())
    }

    fn looked_lately(&self) -> bool {
        let (now, then) = (now_ns(), self.looked_ns.load(Ordering::Relaxed));
        // A clock that was set back was not lately either.
        now >= then && now - then < RENEW_AFTER.as_nanos() as u64
    }

    /// To be called after `db` was written.
    #[inline]
    pub(crate) fn written(&self, home: &AttachedHome) {
        if self.phase.load(Ordering::Acquire) == UNKNOWN {
            self.look(home);
        }
    }

    /// Without it the file says less, and nothing else comes of it: so an error here is none of the
    /// write's.
    #[cold]
    fn look(&self, home: &AttachedHome) {
        let mut times_ns = self.times_ns.lock();
        let looked_ns = now_ns();
        let looked = Look::of(home).and_then(|look| {
            let Some(Look { ino, mtime_ns, .. }) = look else { return Ok(()) };
            // Of a file whose time before is not known a power cut may leave any earlier one.
            let (from, until) = times_ns.unwrap_or((0, mtime_ns));
            let (from, until) = (from.min(mtime_ns), until.max(mtime_ns));
            write(&self.file, &format!("writing {ino} {from} {until}"))?;
            *times_ns = Some((from, until));
            self.looked_ns.store(looked_ns, Ordering::Relaxed);
            self.phase.store(SPANNED, Ordering::Release);
            Ok(())
        });
        looked.unwrap_or_else(|e| log::debug!("the stamp of a database that is written: {e}"));
    }

    /// To be called after `db` was synced, and before it is written again.
    ///
    /// # Durability
    /// What it looks like is durable on return.
    pub(crate) fn settle(&self, home: &AttachedHome) -> Result<()> {
        let mut times_ns = self.times_ns.lock();
        if self.phase.load(Ordering::Acquire) != SYNCED
            && let Some(look) = Look::of(home)?
        {
            write(&self.file, &format!("db {} {} {}", look.ino, look.size, look.mtime_ns))?;
            *times_ns = Some((look.mtime_ns, look.mtime_ns));
            self.phase.store(SYNCED, Ordering::Release);
        }
        Ok(())
    }
}

impl Says {
    /// How `found` differs from it, and what it was taken to be, if it is the same file.
    fn differs(self, found: Look) -> Option<(String, Option<HomeStamp>)> {
        match self {
            Self::Nothing => None,
            Self::Synced(known) if known == found => None,
            Self::Synced(known) => {
                let how = format!(
                    "was changed (inode {}, size {} and modification time {} ns, expected {}, {} \
                     and {})",
                    found.ino, found.size, found.mtime_ns, known.ino, known.size, known.mtime_ns
                );
                let stamp = HomeStamp { size: known.size, mtime_ns: known.mtime_ns };
                Some((how, (known.ino == found.ino).then_some(stamp)))
            }
            Self::Writing(span) => {
                let latest = span.until_ns.saturating_add(OURS_FOR_NS);
                let ours = span.from_ns.saturating_sub(GRAIN_NS)..=latest;
                if span.ino == found.ino && ours.contains(&found.mtime_ns) {
                    return None;
                }
                let how = format!(
                    "was changed (inode {} and modification time {} ns, expected {} and one from \
                     {} to {latest})",
                    found.ino, found.mtime_ns, span.ino, span.from_ns
                );
                // Its length while it was written is not known.
                let stamp = HomeStamp { size: found.size, mtime_ns: span.until_ns };
                Some((how, (span.ino == found.ino).then_some(stamp)))
            }
        }
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

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

fn read(file: &File) -> Result<Says> {
    let mut bytes = [0; LEN];
    let got = file.read(0, &mut bytes)?;
    Ok(parse(std::str::from_utf8(&bytes[..got]).unwrap_or_default()))
}

fn parse(text: &str) -> Says {
    let mut lines = text.lines();
    let (Some(VERSION), Some(line), Some("end")) = (lines.next(), lines.next(), lines.next())
    else {
        return Says::Nothing;
    };
    let mut words = line.split(' ');
    let kind = words.next();
    let numbers: std::result::Result<Vec<u64>, _> = words.map(str::parse).collect();
    match (kind, numbers.as_deref()) {
        (Some("db"), Ok(&[ino, size, mtime_ns])) => Says::Synced(Look { ino, size, mtime_ns }),
        (Some("writing"), Ok(&[ino, from_ns, until_ns])) => {
            Says::Writing(Span { ino, from_ns, until_ns })
        }
        _ => Says::Nothing,
    }
}

/// # Durability
/// Durable on return, the old text or the new one after a cut: it is one block of class data.
fn write(file: &File, line: &str) -> Result<()> {
    let mut text = format!("{VERSION}\n{line}\nend\n").into_bytes();
    text.resize(LEN, b'\n');
    file.write(0, &text)?;
    file.sync()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn says(line: &str) -> Says {
        parse(&format!("{VERSION}\n{line}\nend\n\n\n"))
    }

    #[test]
    fn what_is_written_is_read_and_anything_else_says_nothing() {
        let look = Look { ino: 7, size: 8192, mtime_ns: 5 };
        assert_eq!(says("db 7 8192 5"), Says::Synced(look));
        assert_eq!(says("writing 7 5 9"), Says::Writing(Span { ino: 7, from_ns: 5, until_ns: 9 }));
        for line in [
            "writing",
            "writing 7",
            "writing 7 5 9 1",
            "db 7 8192",
            "db 7 8192 x",
            "db",
            "",
            "other 1 2 3",
        ] {
            assert_eq!(says(line), Says::Nothing, "{line}");
        }
        assert_eq!(parse("tiersmith-sqlite-stamp 2\ndb 7 8192 5\nend\n"), Says::Nothing);
        assert_eq!(parse(&format!("{VERSION}\ndb 7 8192 5\n")), Says::Nothing);
        let longest = format!("{VERSION}\nwriting {0} {0} {0}\nend\n", u64::MAX);
        assert!(longest.len() <= LEN, "{}", longest.len());
    }

    #[test]
    fn while_it_is_written_its_length_may_be_any_and_its_time_that_of_a_write() {
        let span = says(&format!("writing 7 {} {}", 1000 * SECOND, 1060 * SECOND));
        let at = |ino, seconds: u64| Look { ino, size: seconds, mtime_ns: seconds * SECOND };
        for seconds in [998, 1000, 1030, 1060, 1070, 1180] {
            assert_eq!(span.differs(at(7, seconds)), None, "{seconds}");
        }
        for seconds in [0, 997, 1181, 100_000] {
            let (how, expected) = span.differs(at(7, seconds)).unwrap();
            assert!(how.contains("modification time"), "{how}");
            assert_eq!(expected, Some(HomeStamp { size: seconds, mtime_ns: 1060 * SECOND }));
        }
        assert_eq!(span.differs(at(8, 1030)).unwrap().1, None);
        assert_eq!(Says::Nothing.differs(at(8, 1030)), None);
    }
}
