//! A write-ahead log as PostgreSQL writes one, for power cuts: segments of fixed size that are
//! filled page by page, switched and recycled.
//!
//!     segments write  DIR [fdatasync|open_datasync]   writes until killed; `wal N` when record N
//!                                                     is durable
//!     segments verify DIR LAST                        every record up to LAST is there, of the
//!                                                     segments that are kept
//!     segments check  DIR                             checks itself, in an empty directory
//!
//! Written for `.ci/dax_suite.sh`, in whose guest DIR is on a mount. It knows nothing of tiers:
//! what it does are the calls of a database. A segment is made under another name, filled with
//! zeros, synced and renamed; a page is written again with each commit that adds to it; an old
//! segment becomes a future one by its name, with its old contents. What a record holds follows
//! from its number, so a number is all that an acknowledgement carries, and a record of another
//! place or life is told from the one that is to be there.
//!
//! Not here: a database's reading of its log at a start; `verify` compares every byte instead. DIR
//! may be any directory.

#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// As small as initdb makes them, so that there are many switches.
const SEGMENT_BYTES: u64 = 1 << 20;
const PAGE_BYTES: usize = 8192;
const RECORD_BYTES: usize = 1024;
const RECORDS: u64 = SEGMENT_BYTES / RECORD_BYTES as u64;
const RECORDS_PER_PAGE: u64 = (PAGE_BYTES / RECORD_BYTES) as u64;
/// Segments before the newest that are not used again yet.
const KEPT: u64 = 3;
/// Segments with the same middle part of their names.
const SEGMENTS_PER_LOG: u64 = (1 << 32) / SEGMENT_BYTES;

/// What record `number` holds: the number, and bytes that follow from it.
fn record(number: u64) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    let mut word = number;
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&word.to_le_bytes());
        word = (word ^ number)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
            .wrapping_add(number | 1);
    }
    bytes
}

/// Where a record is in its segment.
fn place_of(number: u64) -> u64 {
    number % RECORDS * RECORD_BYTES as u64
}

struct Log {
    dir: PathBuf,
    flags: i32,
    syncs: bool,
}

impl Log {
    fn new(dir: impl AsRef<Path>, method: &str) -> Self {
        let flags = if method == "open_datasync" { libc::O_DSYNC } else { 0 };
        Self { dir: dir.as_ref().into(), flags, syncs: method == "fdatasync" }
    }

    fn path(&self, segment: u64) -> PathBuf {
        let (log, part) = (segment / SEGMENTS_PER_LOG, segment % SEGMENTS_PER_LOG);
        self.dir.join(format!("00000001{log:08X}{part:08X}"))
    }

    /// The numbers of the segments that are there, by their names.
    fn segments(&self) -> Result<Vec<u64>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            let name = name
                .to_str()
                .filter(|name| name.len() == 24 && name.is_ascii())
                .unwrap_or_default();
            let number = |part: Option<&str>| u64::from_str_radix(part?, 16).ok();
            if let (Some(log), Some(part)) = (number(name.get(8..16)), number(name.get(16..24))) {
                found.push(log * SEGMENTS_PER_LOG + part);
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }

    fn open(&self, segment: u64) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).custom_flags(self.flags).open(self.path(segment))
    }

    /// The segment for writing: it is there, or an old one gets its name, or it is made.
    fn begin(&self, segment: u64) -> Result<File> {
        if !self.path(segment).exists() {
            let old = self.segments()?.into_iter().find(|found| found + KEPT < segment);
            let from = match old {
                Some(old) => self.path(old),
                None => self.make()?,
            };
            File::open(&from)?.sync_all()?;
            fs::rename(&from, self.path(segment))?;
            self.sync_dir()?;
        }
        Ok(self.open(segment)?)
    }

    fn make(&self) -> Result<PathBuf> {
        let path = self.dir.join(format!("xlogtemp.{}", std::process::id()));
        let file = File::create(&path)?;
        for at in (0..SEGMENT_BYTES).step_by(PAGE_BYTES) {
            file.write_all_at(&[0; PAGE_BYTES], at)?;
        }
        file.sync_all()?;
        Ok(path)
    }

    fn holds(&self, file: &File, number: u64) -> bool {
        let mut found = [0; RECORD_BYTES];
        file.read_exact_at(&mut found, place_of(number)).is_ok() && found == record(number)
    }

    /// The first record that is kept, and the first after it that is not whole.
    fn range(&self) -> Result<(u64, u64)> {
        // A name of the future may have the contents of the past.
        let mut first = None;
        for segment in self.segments()? {
            if self.holds(&File::open(self.path(segment))?, segment * RECORDS) {
                first = Some(segment * RECORDS);
                break;
            }
        }
        let Some(first) = first else { return Ok((0, 0)) };
        let mut end = first;
        while let Ok(file) = File::open(self.path(end / RECORDS)) {
            let whole = (end..(end / RECORDS + 1) * RECORDS)
                .take_while(|number| self.holds(&file, *number))
                .count() as u64;
            end += whole;
            if whole == 0 || !end.is_multiple_of(RECORDS) {
                break;
            }
        }
        Ok((first, end))
    }

    /// Goes on after what is there, commits of one to twelve records each, until there are `until`
    /// records.
    fn write(&self, until: u64, said: &mut dyn Write) -> Result<()> {
        let (_, mut next) = self.range()?;
        let mut file = None;
        let mut page = [0; PAGE_BYTES];
        while next < until {
            let segment = next / RECORDS;
            let current = match file.take() {
                Some((open, current)) if open == segment => current,
                _ => self.begin(segment)?,
            };
            let end = (next + 1 + next % 12).min((segment + 1) * RECORDS);
            let mut first_of_page = next / RECORDS_PER_PAGE * RECORDS_PER_PAGE;
            while first_of_page < end {
                page.fill(0);
                let here = first_of_page..end.min(first_of_page + RECORDS_PER_PAGE);
                for (number, bytes) in here.zip(page.chunks_mut(RECORD_BYTES)) {
                    bytes.copy_from_slice(&record(number));
                }
                current.write_all_at(&page, place_of(first_of_page))?;
                first_of_page += RECORDS_PER_PAGE;
            }
            if self.syncs {
                current.sync_data()?;
            }
            next = end;
            // One call, so that a line is whole or not there.
            said.write_all(format!("wal {}\n", next - 1).as_bytes())?;
            file = Some((segment, current));
        }
        Ok(())
    }

    /// What there is, in a sentence, if it is all that was acknowledged.
    fn verify(&self, last: u64) -> Result<String> {
        let (first, end) = self.range()?;
        if end <= last {
            return Err(format!(
                "record {end} is not whole, and {last} was acknowledged; kept from {first} on"
            )
            .into());
        }
        // The one before them may have got the next name already.
        let least = (last / RECORDS).saturating_sub(KEPT - 1) * RECORDS;
        if first > least {
            return Err(format!(
                "the records from {least} to {first} are not there; {last} was acknowledged"
            )
            .into());
        }
        for segment in self.segments()? {
            let size = fs::metadata(self.path(segment))?.len();
            if size != SEGMENT_BYTES {
                return Err(format!("{} has {size} bytes", self.path(segment).display()).into());
            }
        }
        Ok(format!("segments: records {first} to {} are whole; {last} was acknowledged", end - 1))
    }
}

/// Shows that what is written is found, and what is not there is missed; on a plain directory, by
/// the tests.
///
/// # Errors
/// What is not as it must be.
pub(crate) fn check_itself(dir: &Path) -> Result<()> {
    let mut said = Vec::new();
    // Five segments and a part: the oldest was used again.
    Log::new(dir, "fdatasync").write(3 * RECORDS, &mut said)?;
    Log::new(dir, "open_datasync").write(5 * RECORDS + 100, &mut said)?;
    let text = String::from_utf8(said)?;
    let last: u64 = text
        .lines()
        .last()
        .and_then(|line| line.strip_prefix("wal "))
        .unwrap_or_default()
        .parse()?;
    let log = Log::new(dir, "");
    log.verify(last)?;
    if log.segments()?.first() != Some(&2) {
        return Err("the oldest segments were not used again".into());
    }
    if log.verify(last + 13).is_ok() {
        return Err("records that were never written are not missed".into());
    }
    let file = log.open(4)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, 70_000)?;
    file.write_all_at(&[!byte[0]], 70_000)?;
    if log.verify(last).is_ok() {
        return Err("a wrong byte is not seen".into());
    }
    file.write_all_at(&byte, 70_000)?;
    log.verify(last)?;
    fs::remove_file(log.path(3))?;
    if log.verify(last).is_ok() {
        return Err("a lost segment is not missed".into());
    }
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["write", dir] => Log::new(dir, "fdatasync").write(u64::MAX, &mut io::stdout()),
        ["write", dir, method @ ("fdatasync" | "open_datasync")] => {
            Log::new(dir, method).write(u64::MAX, &mut io::stdout())
        }
        ["check", dir] => check_itself(Path::new(dir)),
        ["verify", dir, last] => last
            .parse()
            .map_err(Into::into)
            .and_then(|last| Log::new(dir, "").verify(last))
            .map(|said| println!("{said}")),
        _ => {
            Err("give `write DIR [fdatasync|open_datasync]`, `verify DIR LAST` or `check DIR`"
                .into())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("segments: {e}");
            ExitCode::FAILURE
        }
    }
}
