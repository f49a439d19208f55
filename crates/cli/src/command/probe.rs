//! `tiersmith probe`: what storage is here, how it is reached, how fast it is.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use serde_json::json;
use tiersmith_awr::{Cell, Table, figure, write_table};
use tiersmith_block::{Disk, Health};
use tiersmith_lab::compared::{Rates, Verdict};
use tiersmith_lab::place::{FileSystem, Leftovers};
use tiersmith_lab::probe::beside::{self, Beside, Fio};
use tiersmith_lab::probe::found::{Found, SYSFS, look};
use tiersmith_lab::probe::{MIXED_READS_PCT, Operation, Place, Queue, file};

use super::{print, print_json};
use crate::Outcome;
use crate::error::{Error, Result};
use crate::health;
use crate::mounted;
use crate::probe as mapped;
use crate::progress::Line;

/// Find the storage of this machine and measure it
///
/// Prints the media found, how well each disk is (an NVMe disk tells root only), how each medium is
/// reached and whether it survives a power cut, and measures reads, durable writes and a mixture of
/// both at 512 B, 4 KiB and 512 KiB, one operation at a time or as many as --threads and --depth
/// say: latency and bandwidth.
///
/// Without DIR it measures the current directory (with direct I/O where the file system takes it),
/// every DAX file system that can be written, and /dev/shm (both mapped); which of these it could
/// not measure, and why, is a line. Files made for measuring are removed.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith probe
  tiersmith probe /data /mnt/pmem0
  tiersmith probe /dev/nvme1n1                                reads only: nothing is written to a \
  device
  tiersmith probe /data --threads 4 --depth 16 --mix 50       the device study: many at once, half \
  of them reads
  tiersmith probe /data --threads 4 --cross-check             fio beside each measurement, on the \
  same file
  tiersmith probe --list
  tiersmith probe --json > probe.json

A directory on a DAX file system or in memory is measured mapped, any other through files. Figures \
of memory that only stands
for persistent memory are labelled EMULATED.

Exit codes: 0 good; 1 fio failed in a cross-check, and the other figures are there; 2 error.")]
pub(crate) struct Probe {
    /// Directories to measure, or block devices, of which only reads are measured
    #[arg(value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Seconds per figure; there are nine for each directory
    #[arg(long, value_name = "N", default_value_t = 0.3)]
    seconds: f64,
    /// Threads that do operations at the same time
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u32,
    /// Operations on a file that each thread has outstanding; a mapping has no queue
    #[arg(long, value_name = "N", default_value_t = 1)]
    depth: u32,
    /// Reads of a hundred operations of the mixture
    #[arg(long, value_name = "PCT", default_value_t = MIXED_READS_PCT)]
    mix: u64,
    /// Only say what there is, measure nothing
    #[arg(long)]
    list: bool,
    /// Run fio, if it is installed, beside each measurement through files, on the same file
    #[arg(long, conflicts_with = "list")]
    cross_check: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Probe {
    pub(super) fn run(&self, leftovers: &Leftovers) -> Result<Outcome> {
        if !(0.001..=600.0).contains(&self.seconds) {
            return Err(Error::Usage(format!(
                "--seconds {} is not from 0.001 to 600",
                self.seconds
            )));
        }
        let queue = Queue { threads: self.threads, depth: self.depth, reads_pct: self.mix };
        queue.check()?;
        let found = look(Path::new(SYSFS));
        let disks = found.block_devices.iter().filter_map(|device| Disk::named(&device.name));
        let health: Vec<Health> = disks.map(|disk| disk.health()).collect();
        let line = Line::new();
        let fio = self.cross_check.then(Fio::find);
        let mut places = Vec::new();
        let (dirs, mut skipped) = self.dirs(&found)?;
        for dir in dirs {
            let place = measure(&dir, self.seconds, queue, leftovers, &line, fio.as_ref());
            line.clear();
            match place {
                Ok(place) => places.push(place),
                // Nobody asked for this one: a small /dev/shm, as in a container, is no reason to
                // say nothing of the rest.
                Err(e) if self.dirs.is_empty() && !leftovers.stopped() => {
                    skipped.push(Skipped::because(&dir, &e.to_string()));
                }
                Err(e) => return Err(e),
            }
        }
        if self.json {
            print_json(&json!({
                "format": 1, "found": found, "health": health, "seconds": self.seconds,
                "queue": queue,
                "measured": places,
                "skipped": skipped
            }))?;
        } else {
            print(&text(&found, &health, &places, &skipped, queue))?;
        }
        let failed = |place: &Place| place.cross_check.as_ref().is_some_and(|c| c.failed.is_some());
        Ok(if places.iter().any(failed) { Outcome::Findings } else { Outcome::Good })
    }

    /// What to measure, and what of the usual places not.
    fn dirs(&self, found: &Found) -> Result<(Vec<PathBuf>, Vec<Skipped>)> {
        if self.list {
            return Ok((Vec::new(), Vec::new()));
        }
        let real = |dir: &Path| {
            let is_place = |path: &PathBuf| path.is_dir() || mounted::device::is_one(path);
            std::fs::canonicalize(dir).ok().filter(is_place).ok_or_else(|| {
                Error::Usage(format!(
                    "cannot measure {}: it is not a directory, nor a block device; give one on the \
                     storage to measure",
                    dir.display()
                ))
            })
        };
        if !self.dirs.is_empty() {
            return Ok((self.dirs.iter().map(|dir| real(dir)).collect::<Result<_>>()?, Vec::new()));
        }
        let mut dirs = vec![real(Path::new("."))?];
        dirs.extend(found.candidates.iter().map(|candidate| candidate.path.clone()));
        dirs.dedup();
        let writable =
            |dir: &PathBuf| rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok();
        let (dirs, others): (Vec<_>, Vec<_>) = dirs.into_iter().partition(writable);
        let skipped = others
            .iter()
            .map(|dir| Skipped::because(dir, "this user cannot write to it"))
            .collect();
        Ok((dirs, skipped))
    }
}

/// Measures a directory: mapped if it is on a DAX file system or in memory, else through files,
/// there with fio beside it if it is given.
pub(super) fn measure(
    dir: &Path,
    seconds: f64,
    queue: Queue,
    leftovers: &Leftovers,
    line: &Line,
    fio: Option<&std::result::Result<Fio, String>>,
) -> Result<Place> {
    let progress = |what: &str| line.say(&format!("{}: {what}", dir.display()));
    if mounted::device::is_one(dir) {
        let mode = match tiersmith_block::is_persistent_memory(dir) {
            true if dir.as_os_str().as_encoded_bytes().ends_with(b"s") => "sector",
            true => "raw",
            false => "disk",
        };
        let is = (mode, tiersmith_block::is_kept(dir));
        let mut place = file::measure_device(dir, is, seconds, queue, leftovers, &progress)?;
        place.cross_check = fio.map(|_| Beside::skipped(beside::DEVICE));
        return Ok(place);
    }
    let is_on = FileSystem::of(dir);
    if is_on.dax || is_on.in_memory() {
        let mut place = mapped::measure(dir, seconds, queue, leftovers, &progress)?;
        place.cross_check = fio.map(|_| Beside::skipped(beside::MAPPED));
        Ok(place)
    } else {
        Ok(file::measure_beside(dir, seconds, queue, leftovers, &progress, fio)?)
    }
}

/// A place that was not measured.
#[derive(Debug, Serialize)]
struct Skipped {
    path: String,
    because: String,
}

impl Skipped {
    /// Of an error the reason only: the place is said already.
    fn because(dir: &Path, why: &str) -> Skipped {
        let path = dir.display().to_string();
        let because =
            why.strip_prefix(&format!("cannot measure {path}: ")).unwrap_or(why).to_owned();
        Skipped { path, because }
    }
}

/// For people.
fn text(
    found: &Found,
    health: &[Health],
    places: &[Place],
    skipped: &[Skipped],
    queue: Queue,
) -> String {
    let mut out = String::new();
    write_table(&mut out, &block_devices(found));
    out.push('\n');
    if !health.is_empty() {
        write_table(&mut out, &health::table(health));
        out.push('\n');
    }
    write_memory(&mut out, found);
    for place in places {
        out.push('\n');
        write_table(&mut out, &measured(place, queue));
        if let Some(beside) = &place.cross_check {
            out.push('\n');
            out.push_str(&compared(&place.path, beside, queue));
        }
    }
    for one in skipped {
        out.push_str(&format!("\nskipped: measuring {}, because {}\n", one.path, one.because));
    }
    out
}

fn block_devices(found: &Found) -> Table {
    let or = |value: &Option<String>| value.clone().unwrap_or_default();
    let mut disks = Table::new("Block devices")
        .text("Name", "As the kernel calls it.")
        .text("Model", "As the device calls itself.")
        .figures("Size", "", "Its size.")
        .figures("Sector", "", "Bytes of a sector as software sees it.")
        .text("Kind", "Turning disks or not, as the device says.")
        .text("Write cache", "As the kernel sees it.");
    for disk in &found.block_devices {
        disks.row(vec![
            Cell::text(&disk.name),
            Cell::text(or(&disk.model)),
            Cell::bytes(disk.bytes as f64),
            Cell::count(disk.logical_block_bytes),
            Cell::text(match (disk.dax, disk.rotational) {
                (Some(true), _) => "DAX",
                (_, Some(true)) => "turning",
                (_, Some(false)) => "not turning",
                _ => "",
            }),
            Cell::text(or(&disk.write_cache)),
        ]);
    }
    disks
}

/// Memory that is there, and where a tier could be.
fn write_memory(out: &mut String, found: &Found) {
    if found.namespaces.is_empty() {
        out.push_str("Persistent memory\n  None found.\n");
    } else {
        write_table(out, &namespaces(found));
    }
    for namespace in &found.namespaces {
        if matches!(namespace.access_mode.as_str(), "raw" | "sector") {
            out.push_str(&format!(
                "{}: {} memory cannot be mapped, so no tier can be there; `ndctl create-namespace \
                 -f -e {0} --mode=fsdax` (or devdax) makes it so \
                 that one can, and erases it\n",
                namespace.name, namespace.access_mode
            ));
        }
    }
    if !found.dax_devices.is_empty() {
        out.push_str(&format!("DAX devices: {}\n", found.dax_devices.join(", ")));
    }
    for candidate in &found.candidates {
        out.push_str(&format!(
            "\n{}: {}, {} free, {}\n",
            candidate.path.display(),
            candidate.is_on,
            figure::bytes(candidate.bytes_free as f64),
            if candidate.persistent {
                "survives a power cut"
            } else {
                "memory: a tier here is EMULATED"
            }
        ));
    }
}

fn namespaces(found: &Found) -> Table {
    let or = |value: &Option<String>| value.clone().unwrap_or_default();
    let mut pmem = Table::new("Persistent memory")
        .text("Namespace", "As the kernel calls it.")
        .text("Access mode", "How it is presented.")
        .figures("Size", "", "Its size.")
        .text("Persistence domain", "Where data is safe from a power cut.")
        .text("Device", "Its block device.");
    for namespace in &found.namespaces {
        pmem.row(vec![
            Cell::text(&namespace.name),
            Cell::text(&namespace.access_mode),
            Cell::bytes(namespace.bytes as f64),
            Cell::text(or(&namespace.persistence_domain)),
            Cell::text(or(&namespace.block_device)),
        ]);
    }
    pmem
}

fn measured(place: &Place, queue: Queue) -> Table {
    let label = if place.access_mode == "emulated" { ", EMULATED" } else { "" };
    let at_once = place.measurements.first().map_or(1, |m| m.at_once);
    let at_once = if at_once == 1 { "one".to_owned() } else { at_once.to_string() };
    let title = format!(
        "{} ({}), access mode {}{label}, {at_once} at once",
        place.path, place.is_on, place.access_mode
    );
    let mut table = Table::new(title)
        .figures("Size", "", "Bytes of each operation.")
        .text("Operation", "What was done.")
        .figures("Median", "", "Half of them took no longer.")
        .figures("p95", "", "95 of 100 took no longer.")
        .figures("p99", "", "99 of 100 took no longer.")
        .figures("p99.9", "", "999 of 1000 took no longer.")
        .figures("Per second", "", "Operations, all threads together.")
        .figures("Bandwidth", "", "Bytes a second, all threads together.")
        .text("How", "Which way.");
    for m in &place.measurements {
        table.row(vec![
            Cell::bytes(m.size_bytes as f64),
            Cell::text(called(m.operation, queue)),
            Cell::nanoseconds(m.median_ns as f64),
            Cell::nanoseconds(m.p95_ns as f64),
            Cell::nanoseconds(m.p99_ns as f64),
            Cell::nanoseconds(m.p999_ns as f64),
            Cell::number((m.per_s > 0.0).then_some(m.per_s)),
            Cell::text(format!("{}/s", figure::bytes(m.bytes_per_s))),
            Cell::text(&m.how),
        ]);
    }
    for note in &place.notes {
        table.note(note.clone());
    }
    table
}

fn called(operation: Operation, queue: Queue) -> String {
    match operation {
        Operation::Mixed => format!("mixed {}/{}", queue.reads_pct, 100 - queue.reads_pct),
        operation => operation.name().to_owned(),
    }
}

/// fio's figures beside those of a place, or why there are none.
fn compared(path: &str, beside: &Beside, queue: Queue) -> String {
    let mut out = String::new();
    if let Some(because) = &beside.skipped {
        out.push_str(&format!("skipped: cross-check by fio of {path}, because {because}\n"));
        return out;
    }
    let version = beside.version.as_deref().unwrap_or_default();
    let table = Table::new(format!("Cross-check of {path} by fio {version}"))
        .figures("Size", "", "Bytes of each operation.")
        .text("Operation", "What was done.");
    let mut table = Rates::columns(table, "this probe", "fio", " reads");
    for row in &beside.rows {
        let rates = Rates {
            ours_per_s: Some(row.tiersmith_per_s),
            theirs_per_s: Some(row.outside_per_s),
            ratio: Some(row.ratio),
            ours_p95_ns: row.tiersmith_p95_ns,
            theirs_p95_ns: row.outside_p95_ns,
            verdict: if row.disagree { Verdict::Disagree } else { Verdict::Agree },
        };
        let size = Cell::bytes(row.size_bytes as f64);
        let operation = Cell::text(called(row.operation, queue));
        table.row([size, operation].into_iter().chain(rates.cells()).collect());
    }
    for note in &beside.notes {
        table.note(note.clone());
    }
    if beside.rows.iter().any(|row| row.disagree) {
        table.note(
            "Where they disagree, which of them is right is not known. Measure for longer \
             (--seconds 5) while nothing else uses the disk; if they still disagree, see what the \
             notes above say they do differently.",
        );
    }
    if !table.rows.is_empty() {
        write_table(&mut out, &table);
    }
    if let Some(why) = &beside.failed {
        out.push_str(&format!(
            "The cross-check by fio failed, and the probe's own figures stand: {why}\n"
        ));
    }
    out
}
