//! What an attached database counted, for other processes to read: a file among Tiersmith's own in
//! the database's directory.
//!
//! The process that has the database open leaves its totals in `statistics`, when it opens and
//! closes it, and at most once a second by the thread that just ended a transaction. Each version
//! replaces the one before by a rename, so a reader sees a whole one. Nothing depends on the file:
//! it is never synced, a failure to write it is no error for SQLite, and `detach` removes it.
//!
//! | line (fields between tabs) | meaning |
//! |---|---|
//! | `tiersmith sqlite statistics`, `1` | what it is, and its format |
//! | `process`, id, start, boot | who has it open: process id, its start in clock ticks after boot, the boot's id |
//! | `opened`, ns | when, since 1970; another value is another opening, and every counter began at zero |
//! | `written`, ns, 0 or 1 | when this was written, on the clock that goes on in suspend; 1: it was the last close |
//! | `connections`, n | open main files |
//! | `sqlite`, n | SQLite's version number |
//! | `tier`, name, emulated, bytes, used, free, dirty, cached, medium | one a tier; sizes in bytes |
//! | `event`, name, class, background, ns, longest ns, bytes, buckets, help | one a wait event; buckets are `lower border:waits`, by commas |
//! | `counter`, name, unit, value, help | one a counter |
//! | `end` | the last line |
//!
//! Invariants: a reader takes nothing for granted: the size is bounded, links are not followed, a
//! line that is not as above is an error. Between two versions a transaction costs a load and a
//! look at the coarse clock.

use crate::clock::{boot_ns, coarse_ms};
use crate::error::PlaceError;
use crate::files::Files;
use parking_lot::Mutex;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use tiersmith_dir::Dir;
use tiersmith_store::events::{Totals, WaitClass};

/// The file.
pub(crate) const STATISTICS: &str = "statistics";
/// The same while it is written.
pub(crate) const STATISTICS_NEW: &str = "statistics.new";
const HEADER: &str = "tiersmith sqlite statistics\t1";
/// The time from one version to the next.
const PERIOD_MS: u64 = 1000;
/// Bytes a reader takes; a real one has some ten thousand.
const SIZE_MAX: u64 = 1 << 20;
/// Characters of a name, and of what explains it.
const TEXT_MAX: usize = 1000;

/// What one process keeps of a database for its file.
#[derive(Debug, Default)]
pub(crate) struct Publishing {
    /// Not before this instant of the coarse clock is the next version written.
    next_ms: AtomicU64,
    commits: AtomicU64,
    opening: Mutex<Opening>,
}

#[derive(Debug, Default)]
struct Opening {
    opened_unix_ns: u64,
    connections: u64,
}

impl Publishing {
    /// A main file was opened; with the first a version is written.
    pub(crate) fn opened(&self, files: &Files) {
        let mut opening = self.opening.lock();
        opening.connections += 1;
        if opening.connections == 1 {
            // Two openings of one process are never at the same instant, whatever the clock says.
            opening.opened_unix_ns = unix_ns().max(opening.opened_unix_ns + 1);
            self.write(files, &opening);
        }
    }

    /// A main file was closed; with the last a version is written.
    pub(crate) fn closed(&self, files: &Files) {
        let mut opening = self.opening.lock();
        opening.connections -= 1;
        if opening.connections == 0 {
            self.write(files, &opening);
        }
    }

    /// A transaction of a writer was committed; its locks are still held.
    #[inline]
    pub(crate) fn committed(&self, files: &Files) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        // With `locking_mode = EXCLUSIVE` no lock is ever let go, so that nothing else would write
        // it.
        let now_ms = coarse_ms();
        if now_ms >= self.next_ms.load(Ordering::Relaxed).saturating_add(PERIOD_MS) {
            self.publish(files);
        }
    }

    /// A lock was let go.
    #[inline]
    pub(crate) fn unlocked(&self, files: &Files) {
        if coarse_ms() >= self.next_ms.load(Ordering::Relaxed) {
            self.publish(files);
        }
    }

    #[cold]
    fn publish(&self, files: &Files) {
        // Who finds somebody at it has nothing to add.
        if let Some(opening) = self.opening.try_lock()
            && opening.connections > 0
        {
            self.write(files, &opening);
        }
    }

    fn write(&self, files: &Files, opening: &Opening) {
        if let Some(directory) = &files.inside
            && let Err(e) = replace(directory, &self.text(files, opening))
        {
            log::debug!("{}: its statistics are not written: {e}", files.database.display());
        }
        // Also after a failure: a full disk is not asked again by each transaction.
        self.next_ms.store(coarse_ms().saturating_add(PERIOD_MS), Ordering::Relaxed);
    }

    fn text(&self, files: &Files, opening: &Opening) -> String {
        let (written_ns, stats) = (boot_ns(), files.home.stats());
        let pid = std::process::id();
        let start = state_and_start(pid).map_or(0, |(_, start)| start);
        let mut out = format!("{HEADER}\nprocess\t{pid}\t{start}\t{}\n", boot());
        let closed = u8::from(opening.connections == 0);
        let _ =
            writeln!(out, "opened\t{}\nwritten\t{written_ns}\t{closed}", opening.opened_unix_ns);
        // Of several libraries the one that was first.
        let version = crate::ffi::api::all().next().map_or(0, |api| i64::from(api.version()));
        let _ = writeln!(out, "connections\t{}\nsqlite\t{version}", opening.connections);
        for tier in &stats.tiers {
            let used = tier.usable_bytes.saturating_sub(tier.free_bytes);
            let medium =
                tier.media.first().and_then(|medium| medium.lines().next()).unwrap_or_default();
            let (name, medium, emulated) =
                (plain(&tier.name), plain(medium), u8::from(tier.emulated));
            let sizes = [tier.bytes, used, tier.free_bytes, tier.dirty_bytes, tier.cached_bytes];
            let sizes = sizes.map(|bytes| bytes.to_string()).join("\t");
            let _ = writeln!(out, "tier\t{name}\t{emulated}\t{sizes}\t{medium}");
        }
        totals(&mut out, &stats.waits);
        let commits = self.commits.load(Ordering::Relaxed);
        let _ = writeln!(
            out,
            "counter\tuser commits\ttransactions\t{commits}\tTransactions that ended well.\nend"
        );
        out
    }
}

fn totals(out: &mut String, totals: &Totals) {
    for (def, of) in totals.events() {
        let buckets: Vec<String> = of
            .histogram()
            .buckets()
            .map(|bucket| format!("{}:{}", bucket.low_ns, bucket.count))
            .collect();
        let (class, background, help) =
            (def.class.name(), u8::from(def.background), plain(def.help));
        let figures = format!("{}\t{}\t{}", of.total_ns(), of.max_ns(), of.bytes());
        let _ = writeln!(
            out,
            "event\t{}\t{class}\t{background}\t{figures}\t{}\t{help}",
            def.name,
            buckets.join(",")
        );
    }
    for (def, value) in totals.counters() {
        let _ = writeln!(out, "counter\t{}\t{}\t{value}\t{}", def.name, def.unit, plain(def.help));
    }
}

/// On one line, without what separates fields.
fn plain(text: &str) -> String {
    text.chars().take(TEXT_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Replaces the file. A reader has the old version or the new one; after a power cut it may be gone
/// or empty.
fn replace(directory: &Dir, text: &str) -> io::Result<()> {
    // Left by a process that was killed; nobody else writes here, for one process has the database
    // open.
    match directory.remove(STATISTICS_NEW) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let owner = directory.found()?;
    let mut file = directory.make_file(STATISTICS_NEW, 0o600, None)?;
    let mine = file.metadata()?;
    if (owner.user, owner.group) != (mine.uid(), mine.gid()) {
        // Whoever may not give it away keeps it.
        let _ = std::os::unix::fs::fchown(&file, Some(owner.user), Some(owner.group));
    }
    file.write_all(text.as_bytes())?;
    directory.rename(STATISTICS_NEW, directory, STATISTICS)
}

/// What a process counted of a database it has, or had, open through Tiersmith.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// The process.
    pub process: u32,
    /// Another one for every opening: counters begin at zero with it.
    pub instance: String,
    /// Whether the process has it open still. In another process namespace than the writer's it
    /// seems closed.
    pub open: bool,
    /// When it was written: nanoseconds of the clock that goes on while the machine is suspended.
    pub written_boot_ns: u64,
    /// Connections open then.
    pub connections: u64,
    /// SQLite's version number, 3045001 for 3.45.1; 0 if it was not known.
    pub sqlite: u64,
    /// The tiers.
    pub tiers: Vec<TierFigures>,
    /// Wait events.
    pub waits: Vec<WaitFigures>,
    /// Counters.
    pub counters: Vec<CounterFigures>,
}

/// Use of a tier; sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct TierFigures {
    pub name: String,
    pub emulated: bool,
    pub bytes: u64,
    pub used_bytes: u64,
    pub free_bytes: u64,
    pub dirty_bytes: u64,
    pub cached_bytes: u64,
    pub medium: String,
}

/// Totals of a wait event; its buckets are lower borders in nanoseconds, and waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct WaitFigures {
    pub name: String,
    pub class: WaitClass,
    pub background: bool,
    pub total_ns: u64,
    pub max_ns: u64,
    pub bytes: u64,
    pub buckets: Vec<(u64, u64)>,
    pub help: String,
}

/// The value of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct CounterFigures {
    pub name: String,
    pub unit: String,
    pub value: u64,
    pub help: String,
}

/// What was counted, as the file in the database's directory says; `None`: there is none.
///
/// # Errors
/// What the file system says, and a file that is not as this program writes it.
pub(crate) fn read_in(inside: &Dir) -> Result<Option<Statistics>, PlaceError> {
    let path = inside.path_of(STATISTICS);
    let file = match inside.open_file(STATISTICS) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(PlaceError::io("cannot read", &path)(e)),
    };
    read(file).map(Some).map_err(|why| {
        let why = format!(
            "{why}; it holds figures only: remove it, the next process to open the database writes \
             it"
        );
        PlaceError::io("cannot read", &path)(io::Error::new(io::ErrorKind::InvalidData, why))
    })
}

fn read(file: File) -> Result<Statistics, String> {
    let found = file.metadata().map_err(|e| e.to_string())?;
    if !found.is_file() || found.len() > SIZE_MAX {
        return Err(format!("it is no file of at most {SIZE_MAX} bytes"));
    }
    let mut bytes = Vec::new();
    let got = file.take(SIZE_MAX + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if got as u64 > SIZE_MAX {
        return Err(format!("it is longer than {SIZE_MAX} bytes"));
    }
    parse(std::str::from_utf8(&bytes).map_err(|_| "it is no text".to_owned())?)
}

/// What the lines so far say.
struct Parsing {
    found: Statistics,
    /// When the process was started, in clock ticks after boot, and on which boot.
    started: u64,
    booted: String,
    opened_unix_ns: u64,
    /// Whether it was written when the last connection was closed.
    closed: bool,
    /// Whether its last line was there.
    ended: bool,
}

fn parse(text: &str) -> Result<Statistics, String> {
    let mut lines = text.lines();
    if lines.next() != Some(HEADER) {
        return Err(
            "its first line is not that of format 1; another version of Tiersmith may have written \
             it".into(),
        );
    }
    let mut parsing = Parsing::new();
    for (number, line) in lines.enumerate() {
        let fields: Vec<&str> = line.split('\t').collect();
        parsing
            .line(&fields)
            .ok_or_else(|| format!("line {} is not as this program writes it", number + 2))?;
    }
    parsing.whole().ok_or_else(|| "it is not whole".into())
}

impl Parsing {
    fn new() -> Parsing {
        let found = Statistics {
            process: 0,
            instance: String::new(),
            open: false,
            written_boot_ns: 0,
            connections: 0,
            sqlite: 0,
            tiers: Vec::new(),
            waits: Vec::new(),
            counters: Vec::new(),
        };
        let booted = String::new();
        Parsing { found, started: 0, booted, opened_unix_ns: 0, closed: true, ended: false }
    }

    /// Takes a line by its fields; nothing if it is not as this program writes it.
    fn line(&mut self, fields: &[&str]) -> Option<()> {
        if self.ended {
            return None;
        }
        let found = &mut self.found;
        match *fields {
            ["process", id, start, boot] => {
                (found.process, self.started, self.booted) =
                    (id.parse().ok()?, start.parse().ok()?, name(boot)?);
            }
            ["opened", ns] => self.opened_unix_ns = ns.parse().ok()?,
            ["written", ns, at_close] => {
                (found.written_boot_ns, self.closed) = (ns.parse().ok()?, flag(at_close)?)
            }
            ["connections", n] => found.connections = n.parse().ok()?,
            ["sqlite", n] => found.sqlite = n.parse().ok()?,
            ["tier", tier, emulated, bytes, used, free, dirty, cached, medium] => {
                found.tiers.push(TierFigures {
                    name: name(tier)?,
                    emulated: flag(emulated)?,
                    bytes: bytes.parse().ok()?,
                    used_bytes: used.parse().ok()?,
                    free_bytes: free.parse().ok()?,
                    dirty_bytes: dirty.parse().ok()?,
                    cached_bytes: cached.parse().ok()?,
                    medium: name(medium)?,
                })
            }
            ["event", event, class, background, total, max, bytes, list, help] => {
                found.waits.push(WaitFigures {
                    name: name(event)?,
                    class: WaitClass::from_name(class)?,
                    background: flag(background)?,
                    total_ns: total.parse().ok()?,
                    max_ns: max.parse().ok()?,
                    bytes: bytes.parse().ok()?,
                    buckets: buckets(list)?,
                    help: name(help)?,
                })
            }
            ["counter", counter, unit, value, help] => found.counters.push(CounterFigures {
                name: name(counter)?,
                unit: name(unit)?,
                value: value.parse().ok()?,
                help: name(help)?,
            }),
            ["end"] => self.ended = true,
            _ => return None,
        }
        Some(())
    }

    /// All of it; nothing if lines are missing.
    fn whole(self) -> Option<Statistics> {
        let Parsing { mut found, started, booted, opened_unix_ns: opened, closed, ended } = self;
        if !ended || found.process == 0 || opened == 0 {
            return None;
        }
        found.instance = format!("process {} of {started}, opened at {opened}", found.process);
        let lives = |(state, start): (char, u64)| start == started && !matches!(state, 'Z' | 'X');
        found.open =
            !closed && booted == boot() && state_and_start(found.process).is_some_and(lives);
        Some(found)
    }
}

fn name(text: &str) -> Option<String> {
    (text.len() <= 4 * TEXT_MAX && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// The sum of the waits is a number too.
fn buckets(text: &str) -> Option<Vec<(u64, u64)>> {
    let mut sum = 0_u64;
    let of = |pair: &str| {
        let (low, count) = pair.split_once(':')?;
        let (low, count) = (low.parse().ok()?, count.parse().ok()?);
        sum = sum.checked_add(count)?;
        Some((low, count))
    };
    if text.is_empty() { Some(Vec::new()) } else { text.split(',').map(of).collect() }
}

/// State and start (clock ticks after boot) of a process.
fn state_and_start(pid: u32) -> Option<(char, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> String {
        let (pid, start) = (std::process::id(), state_and_start(std::process::id()).unwrap().1);
        format!(
            "{HEADER}\nprocess\t{pid}\t{start}\t{}\nopened\t7\nwritten\t9\t0\nconnections\t2\n\
             sqlite\t3045001\n\
             tier\tfast\t1\t1\t2\t3\t4\t5\tram\nevent\tlog file \
             sync\t{}\t0\t5\t5\t0\t4:1,8:2\thelp\n\
             counter\tuser commits\ttransactions\t3\thelp\nend\n",
            boot(),
            WaitClass::Commit.name()
        )
    }

    #[test]
    fn a_file_is_read_as_written_and_says_whether_its_process_lives() {
        let found = parse(&sound()).unwrap();
        assert!(found.open && found.connections == 2 && found.tiers[0].emulated);
        assert_eq!(
            (found.waits[0].buckets.clone(), found.counters[0].value),
            (vec![(4, 1), (8, 2)], 3)
        );
        assert!(!parse(&sound().replace("written\t9\t0", "written\t9\t1")).unwrap().open);
        // Another process has the number now, or the machine was started anew.
        for (from, to) in [
            (boot(), "x".to_owned()),
            (format!("process\t{}", std::process::id()), "process\t4294967295".into()),
        ] {
            assert!(!parse(&sound().replace(&from, &to)).unwrap().open, "{to}");
        }
    }

    #[test]
    fn a_file_cut_or_changed_anywhere_is_an_error_or_figures_and_never_a_panic() {
        let sound = sound();
        for end in 0..sound.len() - 1 {
            let whole = end + 1 == sound.len() - "\n".len() + 1;
            assert!(parse(&sound[..end]).is_err() || whole, "cut at {end}");
            for byte in ["\t", "9", "\n", "\u{7f}", "x"] {
                let _ = parse(&format!("{}{byte}{}", &sound[..end], &sound[end + 1..]));
            }
        }
        for bad in ["", "x", "tiersmith sqlite statistics\t2\nend\n"] {
            assert!(parse(bad).is_err());
        }
        let many = sound.replace("4:1,8:2", "4:18446744073709551615,8:2");
        assert!(parse(&many).unwrap_err().contains("line 8"), "a sum that is no number");
        assert!(parse(&format!("{sound}counter\ta\tb\t1\tc\n")).is_err(), "after the end");
    }
}
