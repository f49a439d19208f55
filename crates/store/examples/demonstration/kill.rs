//! The killed writer: a child process writes, says what is acknowledged, and gets SIGKILL in the
//! middle; afterwards all of it is there.
//!
//! A kill leaves what the process had stored (the page cache and the mapping stay), so this shows
//! acknowledgement and recovery, not what a power cut does to stores that were not fenced. That is
//! what `./check --crash` simulates.
//!
//! Invariants: the child sends a number only after both its writes have returned; every word of a
//! block or record is the number of its write. So after a kill a block is whole and is the last
//! acknowledged one, or the one write that was under way.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::measure::{Attached, Files, fill, progress};
use crate::place::{BLOCK, DATA, Place, RECORD, REDO, Sizes, Tier, attach_tier};

/// The first argument of the program when it is the writer.
pub(crate) const CHILD: &str = "--be-the-writer";
/// How often a writer is killed.
pub(crate) const ROUNDS: usize = 3;
/// Numbers of the writer begin here: above all those of the measurements.
const FIRST: u64 = 1 << 40;

/// What the writer is told.
#[derive(Serialize, Deserialize)]
struct Orders {
    home: PathBuf,
    tier: Tier,
    sizes: Sizes,
    first: u64,
}

/// Where write `n` goes: block and record.
fn target(n: u64, sizes: &Sizes) -> (u64, u64) {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    (mixed % (sizes.data / BLOCK as u64), n % (sizes.redo / RECORD as u64))
}

/// The writer. It ends when it is killed, or when nobody reads its pipe any more.
pub(crate) fn child(orders: Option<String>) -> ExitCode {
    let write = || -> Result<()> {
        let orders: Orders = serde_json::from_str(&orders.ok_or("the writer got no orders")?)?;
        let attached = attach_tier(&orders.home, &orders.tier, &orders.sizes)?;
        let files = Attached::open(&attached)?;
        let (mut block, mut record) = (vec![0; BLOCK], vec![0; RECORD]);
        let mut out = std::io::stdout();
        for n in orders.first.. {
            let (to, place) = target(n, &orders.sizes);
            fill(&mut block, n);
            fill(&mut record, n);
            files.overwrite(to, &block)?;
            files.append(place, &record)?;
            out.write_all(&n.to_le_bytes())?;
            out.flush()?;
        }
        Ok(())
    };
    match write() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("writer: {e}");
            ExitCode::from(2)
        }
    }
}

/// What must be found.
pub(crate) struct Model {
    blocks: Vec<u64>,
    records: Vec<u64>,
    next: u64,
}

/// What one kill did.
pub(crate) struct Outcome {
    pub(crate) acknowledged: u64,
    pub(crate) recovery: String,
    pub(crate) recovery_ms: f64,
    /// Writes that were under way and had arrived.
    pub(crate) arrived: u64,
    pub(crate) faults: Vec<String>,
}

/// The word a block or record is made of; `None` when it is a mixture.
fn number(bytes: &[u8]) -> Option<u64> {
    let mut words =
        bytes.chunks_exact(8).map(|w| w.try_into().map(u64::from_le_bytes).unwrap_or(0));
    let first = words.next()?;
    words.all(|w| w == first).then_some(first)
}

impl Model {
    /// What the files hold now.
    pub(crate) fn read(files: &Attached, place: &Place) -> Result<Model> {
        let mut model = Model {
            blocks: vec![0; (place.sizes.data / BLOCK as u64) as usize],
            records: vec![0; (place.sizes.redo / RECORD as u64) as usize],
            next: FIRST,
        };
        let (data, redo) = contents(files, place)?;
        for (n, bytes) in data.chunks_exact(BLOCK).enumerate() {
            model.blocks[n] =
                number(bytes).ok_or_else(|| format!("block {n} is a mixture of two writes"))?;
        }
        for (n, bytes) in redo.chunks_exact(RECORD).enumerate() {
            model.records[n] =
                number(bytes).ok_or_else(|| format!("record {n} is a mixture of two writes"))?;
        }
        Ok(model)
    }

    /// Compares what was found with what was acknowledged up to `last`; the write after it may have
    /// arrived, and is learnt.
    fn compare(
        &mut self,
        data: &[u8],
        redo: &[u8],
        sizes: &Sizes,
        last: Option<u64>,
    ) -> (u64, Vec<String>) {
        let mut faults = Vec::new();
        let mut arrived = 0;
        let under_way = last.map_or(self.next, |n| n + 1);
        let (next_block, next_record) = target(under_way, sizes);
        for n in self.next..under_way {
            let (block, record) = target(n, sizes);
            self.blocks[block as usize] = n;
            self.records[record as usize] = n;
        }
        for (n, bytes) in data.chunks_exact(BLOCK).enumerate() {
            match number(bytes) {
                Some(found) if found == self.blocks[n] => {}
                Some(found) if found == under_way && n as u64 == next_block => {
                    self.blocks[n] = found;
                    arrived += 1;
                }
                Some(found) => faults.push(format!(
                    "block {n} holds write {found}, acknowledged was {}",
                    self.blocks[n]
                )),
                None => faults.push(format!("block {n} is a mixture of two writes")),
            }
        }
        for (n, bytes) in redo.chunks_exact(RECORD).enumerate() {
            match number(bytes) {
                Some(found) if found == self.records[n] => {}
                // Written in place: the record under way may hold words of both.
                found if n as u64 == next_record => self.records[n] = found.unwrap_or(under_way),
                found => faults.push(format!(
                    "redo record {n} holds {found:?}, acknowledged was {}",
                    self.records[n]
                )),
            }
        }
        self.next = under_way + 1;
        (arrived, faults)
    }

    /// Compares the plain files, after detaching, with what must be there.
    pub(crate) fn compare_with_plain(&mut self, place: &Place) -> Result<Vec<String>> {
        let (data, redo) = (fs::read(place.home.join(DATA))?, fs::read(place.home.join(REDO))?);
        let mut faults = Vec::new();
        if (data.len() as u64, redo.len() as u64) != (place.sizes.data, place.sizes.redo) {
            faults.push(format!("the plain files have {} and {} bytes", data.len(), redo.len()));
        }
        for (n, bytes) in data.chunks_exact(BLOCK).enumerate() {
            if number(bytes) != Some(self.blocks[n]) {
                faults.push(format!(
                    "plain block {n} holds {:?}, not {}",
                    number(bytes),
                    self.blocks[n]
                ));
            }
        }
        // The record last under way may be a mixture, as it was before detaching.
        let torn = target(self.next - 1, &place.sizes).1 as usize;
        for (n, bytes) in redo.chunks_exact(RECORD).enumerate() {
            if n != torn && number(bytes) != Some(self.records[n]) {
                faults.push(format!(
                    "plain redo record {n} holds {:?}, not {}",
                    number(bytes),
                    self.records[n]
                ));
            }
        }
        for left in [".tiersmith", "README-TIERSMITH.txt"] {
            if place.home.join(left).exists() {
                faults.push(format!("{left} is still in the directory"));
            }
        }
        Ok(faults)
    }
}

fn contents(files: &Attached, place: &Place) -> Result<(Vec<u8>, Vec<u8>)> {
    let (mut data, mut redo) =
        (vec![0; place.sizes.data as usize], vec![0; place.sizes.redo as usize]);
    let got = (files.data.read(0, &mut data)?, files.redo.read(0, &mut redo)?);
    if got != (data.len(), redo.len()) {
        return Err(format!(
            "the files have {} and {} bytes, not {} and {}",
            got.0,
            got.1,
            data.len(),
            redo.len()
        )
        .into());
    }
    Ok((data, redo))
}

/// Lets a writer run for a while, kills it, reattaches and compares.
pub(crate) fn round(place: &Place, model: &mut Model) -> Result<Outcome> {
    progress("a writer is running, and will be killed");
    let orders = Orders {
        home: place.home.clone(),
        tier: place.tier.clone(),
        sizes: place.sizes,
        first: model.next,
    };
    let mut child = Command::new(std::env::current_exe()?)
        .args([CHILD, &serde_json::to_string(&orders)?])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut pipe = child.stdout.take().ok_or("the writer has no pipe")?;
    place.keep_writer(child);
    let mut word = [0; 8];
    if pipe.read_exact(&mut word).is_err() {
        place.kill_writer()?;
        return Err("the writer ended before it wrote anything; what it said is above".into());
    }
    let reader = std::thread::spawn(move || {
        let (mut last, mut count) = (u64::from_le_bytes(word), 1);
        while pipe.read_exact(&mut word).is_ok() {
            (last, count) = (u64::from_le_bytes(word), count + 1);
        }
        (last, count)
    });
    std::thread::sleep(Duration::from_millis(fastrand::u64(200..500)));
    place.kill_writer()?;
    let (last, acknowledged) =
        reader.join().map_err(|_| "the reader of the writer's pipe panicked")?;
    progress("");

    let attached = place.attach()?;
    let recovery = attached.stats().recovery;
    let files = Attached::open(&attached)?;
    let (data, redo) = contents(&files, place)?;
    let (arrived, faults) = model.compare(&data, &redo, &place.sizes, Some(last));
    Ok(Outcome {
        acknowledged,
        recovery_ms: recovery.time.as_secs_f64() * 1e3,
        recovery: recovery.to_string(),
        arrived,
        faults,
    })
}
