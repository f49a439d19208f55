//! Checks on a real machine, or a virtual one, that what the store acknowledged survives a power
//! cut.
//!
//! `powercut write HOME TIER` writes and prints `acknowledged N` after operation N is durable. Cut
//! the power under it, having kept the last line somewhere else (a serial console, another
//! machine). When the machine is up again, `powercut verify HOME TIER N` attaches, which recovers,
//! and compares every byte. Then `write` again: it goes on where the cut left it.
//! `powercut detach HOME TIER N` verifies, detaches, and compares the plain files.
//! `docs/guide/vm-lab.md` shows it with a virtual NVDIMM.
//!
//! ```text
//! cargo build --release -p tiersmith-store --example powercut
//! mkdir /data/home
//! powercut write  /data/home /pmem/fast.tier     # a file on a DAX file system, or /dev/dax0.0
//! powercut verify /data/home /pmem/fast.tier 1024
//! ```
//!
//! What an operation is follows from its number alone, so a number is all that an acknowledgement
//! carries. Numbers 4n overwrite a block of a data file, 4n+2 overwrite two to eight blocks as one
//! batch, odd numbers append a record to a redo file that begins anew when it is full. After a cut
//! the files must hold operations 1 to K for one K that is not below the last acknowledged number.
//! Of operation K+1 there may be the words of a torn record, nothing else: blocks and batches are
//! whole.
//!
//! Deliberately absent: threads, renames, truncation (`tests/alone/kill.rs` and the crash suite
//! have those).

#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tiersmith_store::check::{CheckOptions, Severity, check};
use tiersmith_store::{AttachedHome, Medium, OpenMode, Options, Profile, TierSpec, attach};

const HELP: &str = "\
Checks that what the store acknowledged survives a power cut.

usage: powercut write  HOME TIER [COUNT]      write until killed, or COUNT operations; prints \
`acknowledged N`
       powercut verify HOME TIER LAST_ACKED   recover and compare every byte
       powercut detach HOME TIER LAST_ACKED   the same, then detach and compare the plain files

  HOME is a directory on ordinary storage, TIER a file on a DAX file system or a DAX device.
  --emulate, anywhere: TIER is any file; then only a killed process can be checked, not a power cut

exit code: 0 all is well; 1 something acknowledged was lost, or bytes are wrong; 2 it could not run
";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const TABLE: &str = "table";
const BLOCK: usize = 8192;
const BLOCKS: u64 = 512;
const REDO: &str = "log.redo";
/// Not a multiple of a cache line, so that records share lines.
const RECORD: usize = 200;
const RECORDS: u64 = 10_000;
/// Of a file; a device is used whole.
const TIER_SIZE: u64 = 64 << 20;
/// Everything goes home after this many operations, so that cuts hit destaging too.
const DESTAGE_EVERY: u64 = 3000;
/// A line costs more than an operation on a serial console.
const ACKNOWLEDGE_EVERY: u64 = 16;

const PROFILE: &str = r#"
description = "the files of powercut"
[default]
class = "data"
block_size = 8192
[[rule]]
files = ["*.redo"]
class = "redo"
why = "each record is found whole or not by its own words"
"#;

fn main() -> ExitCode {
    let (flags, words): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let medium = match flags.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Medium::Persistent,
        ["--emulate"] => Medium::Emulated,
        _ => {
            print!("{HELP}");
            return ExitCode::from(if flags == ["--help"] { 0 } else { 2 });
        }
    };
    let place = |home: &str, tier: &str| Place { home: home.into(), tier: tier.into(), medium };
    let number =
        |word: &str| word.parse::<u64>().map_err(|e| format!("{word} is not a number: {e}"));
    let done = match words[..] {
        ["write", home, tier] => place(home, tier).write(u64::MAX).map(|()| true),
        ["write", home, tier, count] => number(count)
            .map_err(Into::into)
            .and_then(|count| place(home, tier).write(count))
            .map(|()| true),
        ["verify", home, tier, last] => {
            number(last).map_err(Into::into).and_then(|last| place(home, tier).verify(last, false))
        }
        ["detach", home, tier, last] => {
            number(last).map_err(Into::into).and_then(|last| place(home, tier).verify(last, true))
        }
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(e) => {
            eprintln!("powercut: {e}");
            ExitCode::from(2)
        }
    }
}

/// Where to work.
struct Place {
    home: PathBuf,
    tier: PathBuf,
    medium: Medium,
}

impl Place {
    fn attach(&self) -> Result<AttachedHome> {
        let profile = Profile::parse("powercut", PROFILE)?;
        // Little redo is kept, so that the drain is at work when the cut comes.
        let options =
            Options { profile: Some(profile), redo_keep_bytes: 256 << 10, ..Options::default() };
        let spec = TierSpec::new("fast", &self.tier, self.medium, TIER_SIZE);
        let attached = attach(&self.home, &[spec], options)?;
        let stats = attached.stats();
        println!("{}\n{}", stats.tiers[0].media[0], stats.recovery);
        Ok(attached)
    }

    /// Goes on after the operations that are there, for `count` operations.
    fn write(&self, count: u64) -> Result<()> {
        let attached = self.attach()?;
        let (table, redo) =
            (attached.open(TABLE, OpenMode::CREATE)?, attached.open(REDO, OpenMode::CREATE)?);
        let first = Found::in_home(&attached)?.last() + 1;
        let mut bytes = vec![0; BLOCK * 8];
        for n in first..first.saturating_add(count) {
            if let Some(slot) = record_of(n) {
                fill(&mut bytes[..RECORD], n, slot);
                redo.write(slot * RECORD as u64, &bytes[..RECORD])?;
            } else {
                let blocks = blocks_of(n);
                for (block, bytes) in blocks.iter().zip(bytes.chunks_mut(BLOCK)) {
                    fill(bytes, n, *block);
                }
                let at = |block: &u64| *block * BLOCK as u64;
                match &blocks[..] {
                    [block] => table.write(at(block), &bytes[..BLOCK])?,
                    _ => {
                        let batch: Vec<_> =
                            blocks.iter().map(at).zip(bytes.chunks(BLOCK)).collect();
                        table.write_batch(&batch)?;
                    }
                }
            }
            if n % ACKNOWLEDGE_EVERY == 0 || n - first == count - 1 {
                let mut out = std::io::stdout().lock();
                writeln!(out, "acknowledged {n}")?;
                out.flush()?;
            }
            if n % DESTAGE_EVERY == 0 {
                attached.flush_all()?;
            }
        }
        Ok(())
    }

    /// Whether everything up to `acknowledged` is there and nothing else.
    fn verify(&self, acknowledged: u64, detach: bool) -> Result<bool> {
        let mut good = self.check("as the cut left it", false)?;
        let attached = self.attach()?;
        // A cut before the first operation may have left neither.
        drop((attached.open(TABLE, OpenMode::CREATE)?, attached.open(REDO, OpenMode::CREATE)?));
        good &= Found::in_home(&attached)?.verify(acknowledged, "attached");
        if detach {
            attached.detach()?;
            let read = |name| fs::read(self.home.join(name));
            good &= Found { table: read(TABLE)?, redo: read(REDO)? }
                .verify(acknowledged, "plain files");
        } else {
            drop(attached);
            good &= self.check("closed", true)?;
        }
        Ok(good)
    }

    /// The offline check, a second reader of the tier; it reads files only.
    fn check(&self, when: &str, after_recovery: bool) -> Result<bool> {
        if !fs::metadata(&self.tier).is_ok_and(|tier| tier.is_file() && tier.len() > 0) {
            return Ok(true);
        }
        let options = CheckOptions { after_recovery, ..CheckOptions::default() };
        let report = check(Some(&self.home), std::slice::from_ref(&self.tier), &options)?;
        let bad = report.findings.iter().filter(|finding| finding.severity > Severity::Note);
        for finding in bad.clone() {
            println!("WRONG: {finding:?}");
        }
        println!(
            "offline check, {when}: {} findings, {} of them bad",
            report.findings.len(),
            bad.clone().count()
        );
        Ok(bad.count() == 0)
    }
}

/// What is in the two files.
struct Found {
    table: Vec<u8>,
    redo: Vec<u8>,
}

impl Found {
    fn in_home(attached: &AttachedHome) -> Result<Found> {
        let read = |name: &str| -> Result<Vec<u8>> {
            let file = attached.open(name, OpenMode::READ)?;
            let size = attached.stat(Path::new(name))?.size;
            let mut bytes = vec![0; usize::try_from(size)?];
            let read = file.read(0, &mut bytes)?;
            if read < bytes.len() {
                return Err(format!("{name} has {size} bytes and gave {read}").into());
            }
            Ok(bytes)
        };
        Ok(Found { table: read(TABLE)?, redo: read(REDO)? })
    }

    /// The last operation that is there whole, as the numbers in whole blocks and records say.
    fn last(&self) -> u64 {
        let newest = |file: &[u8], size: usize| {
            let mut expected = vec![0; size];
            let whole = file.chunks_exact(size).zip(0..).filter_map(|(bytes, place)| {
                let n = first_word(bytes);
                fill(&mut expected, n, place);
                (n > 0 && bytes == expected).then_some(n)
            });
            whole.max().unwrap_or(0)
        };
        newest(&self.table, BLOCK).max(newest(&self.redo, RECORD))
    }

    fn verify(&self, acknowledged: u64, what: &str) -> bool {
        let last = self.last();
        let (blocks, records) = (blocks_after(last), records_after(last));
        let mut wrong = Vec::new();
        if last < acknowledged {
            wrong.push(format!(
                "operations {} to {acknowledged} were acknowledged and are lost",
                last + 1
            ));
        }
        // The operation under way may leave words of its record, over those of the one before.
        let torn = record_of(last + 1);
        let mut torn_words = 0;
        for (file, name, size, expected) in
            [(&self.table, TABLE, BLOCK, &blocks), (&self.redo, REDO, RECORD, &records)]
        {
            let written =
                expected.iter().rposition(|n| *n > 0).map_or(0, |place| (place + 1) * size);
            let under_way =
                torn.filter(|_| name == REDO).map_or(written, |slot| (slot as usize + 1) * size);
            if file.len() != written && file.len() != written.max(under_way) {
                wrong.push(format!("{name} has {} bytes, {written} were written", file.len()));
            }
            let (mut old, mut new) = (vec![0; size], vec![0; size]);
            for (place, n) in (0..).zip(expected) {
                let from = (place as usize * size).min(file.len());
                let mut found = file[from..(from + size).min(file.len())].to_vec();
                found.resize(size, 0);
                fill(&mut old, *n, place);
                if found == old {
                    continue;
                }
                fill(&mut new, last + 1, place);
                let words = found.chunks(8).zip(old.chunks(8).zip(new.chunks(8)));
                if name == REDO
                    && torn == Some(place)
                    && words.clone().all(|(f, (o, n))| f == o || f == n)
                {
                    torn_words = words.filter(|(f, (o, _))| f != o).count();
                    continue;
                }
                wrong.push(format!(
                    "{name}, place {place}: operation {n} expected, {} found",
                    first_word(&found)
                ));
            }
        }
        for line in wrong.iter().take(20) {
            println!("WRONG: {line}");
        }
        println!(
            "{}, {what}: acknowledged {acknowledged}, found {last}, {torn_words} words of the \
             record under way, {} places wrong",
            if wrong.is_empty() { "VERIFIED" } else { "FAILED" },
            wrong.len()
        );
        wrong.is_empty()
    }
}

/// The place of the record that operation `n` appends, if it does.
fn record_of(n: u64) -> Option<u64> {
    (n % 2 == 1).then_some(n / 2 % RECORDS)
}

/// The blocks that operation `n` writes, each once.
fn blocks_of(n: u64) -> Vec<u64> {
    let random = mix(n);
    let count = match n % 4 {
        0 => 1,
        2 => 2 + (random >> 32) % 7,
        _ => 0,
    };
    (0..count).map(|k| (random + k * 37) % BLOCKS).collect()
}

/// For each block the last operation up to `last` that wrote it; 0 for none.
fn blocks_after(last: u64) -> Vec<u64> {
    let mut found = vec![0; BLOCKS as usize];
    let mut missing = found.len();
    for n in (1..=last).rev() {
        for block in blocks_of(n) {
            let place = &mut found[block as usize];
            if *place == 0 {
                *place = n;
                missing -= 1;
            }
        }
        if missing == 0 {
            break;
        }
    }
    found
}

/// The same for the places of records.
fn records_after(last: u64) -> Vec<u64> {
    let mut found = vec![0; RECORDS as usize];
    for n in (1..=last).rev().take(2 * RECORDS as usize) {
        if let Some(place) = record_of(n) {
            found[place as usize] = n;
        }
    }
    found
}

/// The bytes that operation `n` writes to a place: its number, then words that follow from number
/// and place. Zeros for 0.
fn fill(bytes: &mut [u8], n: u64, place: u64) {
    for (word, at) in bytes.chunks_mut(8).zip(0..) {
        let value = if at == 0 || n == 0 { n } else { mix(n ^ place << 32 ^ at << 48) };
        word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
    }
}

fn first_word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

/// SplitMix64.
fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
