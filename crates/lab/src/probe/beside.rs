//! fio beside a probe: after each of our measurements, the same operations on the same file.
//!
//! With direct I/O there is no cache that could be warmer for one of them; without it, both find
//! the whole file in the page cache.
//!
//! **Invariant**: fio that fails, or whose output cannot be read, is not asked again, and costs the
//! probe none of its own figures. It opens no name that somebody could exchange: it is handed the
//! open file, and prints to memory.
//! **Deliberately absent**: mappings. fio's engine for them ends a write with msync, ours with a
//! fence: two different operations.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{AREA_BYTES, Measurement, Operation, Queue, What};
use crate::compared::disagree;
use crate::error::{During, Error, Result};
use crate::installed::system_program;
use crate::place::Leftovers;
use crate::process::{Printed, Process, command, log_end};
use crate::programs::fio;
use crate::server::find::version_of;

/// How much longer than asked fio may run: it starts every thread first.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long is waited between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// The file that is measured, for fio: what is its standard input.
const STDIN: &str = "/proc/self/fd/0";
/// Why a mapping is not compared.
pub const MAPPED: &str = "this place is measured mapped, and fio's engine for mappings ends a \
     write with msync, which is another operation";
/// Why a device is not compared.
pub const DEVICE: &str = "what is on a device is somebody's, and no other program is let near it";

/// What fio found beside the figures of a place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// fio's version; nothing if it was not run.
    pub version: Option<String>,
    /// A comparison for each measurement.
    pub rows: Vec<Compared>,
    /// What fio measures differently.
    pub notes: Vec<String>,
    /// Why it was not run.
    pub skipped: Option<String>,
    /// Why it was not run to the end.
    pub failed: Option<String>,
}

/// One comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// What was done.
    pub operation: Operation,
    /// Bytes of each.
    pub size_bytes: u64,
    /// Operations in a second by the probe.
    pub tiersmith_per_s: f64,
    /// Operations in a second by fio.
    pub outside_per_s: f64,
    /// The probe's over fio's.
    pub ratio: f64,
    /// The two are not close.
    pub disagree: bool,
    /// Of reads by the probe, what 95 of 100 took no longer than.
    pub tiersmith_p95_ns: Option<u64>,
    /// The same by fio.
    pub outside_p95_ns: Option<u64>,
}

impl Beside {
    /// Nothing was compared, for a reason.
    pub fn skipped(because: impl Into<String>) -> Beside {
        Beside { skipped: Some(because.into()), ..Beside::default() }
    }
}

/// fio, installed.
#[derive(Clone, Debug)]
pub struct Fio {
    program: PathBuf,
    version: String,
}

impl Fio {
    /// Looks for it.
    ///
    /// # Errors
    /// Why there is none, and what to do.
    pub fn find() -> std::result::Result<Fio, String> {
        let program = system_program("fio")
            .ok_or_else(|| "fio is not installed; sudo apt-get install fio".to_owned())?;
        Ok(Fio { version: version_of(&program), program })
    }
}

/// fio beside one place.
pub(super) struct Checking<'a> {
    fio: &'a Fio,
    queue: Queue,
    leftovers: &'a Leftovers,
    found: Beside,
}

impl<'a> Checking<'a> {
    pub(super) fn new(fio: &'a Fio, queue: Queue, leftovers: &'a Leftovers) -> Checking<'a> {
        let notes = [
            "Operations per second are compared; p95 of reads alone, because fio's time of a \
             write is without its sync. Each measurement of fio was right after ours, on the same \
             file.",
            "Writes: fio syncs after each (fdatasync=1), as the probe does. Mixed: fio opens the \
             file with O_DSYNC, because its fdatasync=1 would sync after reads too.",
        ];
        let found = Beside {
            version: Some(fio.version.clone()),
            notes: notes.map(str::to_owned).to_vec(),
            ..Beside::default()
        };
        Checking { fio, queue, leftovers, found }
    }

    /// What was found.
    pub(super) fn end(self) -> Beside {
        self.found
    }

    /// Does the same as a measurement did.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub(super) fn after(
        &mut self,
        what: &What<'_>,
        is_direct: bool,
        file: &File,
        ours: &Measurement,
    ) -> Result<()> {
        if self.found.failed.is_some() {
            return Ok(());
        }
        match self.run(what, is_direct, file) {
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => self.found.failed = Some(error.to_string()),
            Ok(fio::Ran { per_s, read_p95_ns }) => {
                let ratio = ours.per_s / per_s;
                let reads = what.operation == Operation::Read;
                self.found.rows.push(Compared {
                    operation: what.operation,
                    size_bytes: what.size_bytes as u64,
                    tiersmith_per_s: ours.per_s,
                    outside_per_s: per_s,
                    ratio,
                    disagree: disagree(ratio),
                    tiersmith_p95_ns: reads.then_some(ours.p95_ns),
                    outside_p95_ns: read_p95_ns.filter(|_| reads),
                });
            }
        }
        Ok(())
    }

    fn run(&self, what: &What<'_>, is_direct: bool, file: &File) -> Result<fio::Ran> {
        let mut command =
            command(&self.fio.program, &arguments(what, self.queue, is_direct), None)?;
        command.stdin(file.try_clone().during("open again", STDIN)?);
        let json = Printed::new()?;
        let mut process = Process::start_printing(command, &json, &Printed::new()?)?;
        let failed = |reason: String| Error::Target {
            what: "the cross-check".into(),
            database: self.fio.program.clone(),
            reason,
        };
        let (began, most) =
            (Instant::now(), PATIENCE + Duration::from_secs_f64(what.seconds.max(0.0)));
        let status = loop {
            if self.leftovers.stopped() {
                return Err(Error::Interrupted);
            }
            match process.ended() {
                Some(status) => break status,
                None if began.elapsed() > most => {
                    return Err(failed(format!("it did not end in {:.0} s", most.as_secs_f64())));
                }
                None => std::thread::sleep(LOOK),
            }
        };
        if !status.success() {
            let printed = [process.log_end(), log_end(&json.text())].join(" ");
            let printed = printed.trim();
            return Err(failed(format!("it ended with {status}; it printed: {printed}")));
        }
        fio::read(&json.text())
    }
}

/// What fio is told.
fn arguments(what: &What<'_>, queue: Queue, is_direct: bool) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![
        "--name=tiersmith".into(),
        format!("--filename={STDIN}").into(),
        format!("--size={AREA_BYTES}").into(),
        format!("--bs={}", what.size_bytes).into(),
        format!("--direct={}", u8::from(is_direct)).into(),
        format!("--numjobs={}", what.at_once).into(),
        format!("--runtime={}us", (what.seconds * 1e6).ceil().max(1.0)).into(),
    ];
    let of_operation = match what.operation {
        Operation::Read => vec!["--rw=randread".to_owned()],
        Operation::Write => vec!["--rw=randwrite".to_owned(), "--fdatasync=1".to_owned()],
        Operation::Mixed => vec![
            "--rw=randrw".to_owned(),
            format!("--rwmixread={}", queue.reads_pct),
            "--sync=dsync".to_owned(),
        ],
    };
    words.extend(of_operation.into_iter().map(OsString::from));
    let always = [
        "--ioengine=psync",
        "--thread=1",
        "--time_based=1",
        "--norandommap=1",
        "--invalidate=0",
        "--allow_file_create=0",
        "--group_reporting=1",
        "--output-format=json",
    ];
    words.extend(always.map(OsString::from));
    words
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::probe::SIZES;
    use crate::probe::file::{measure, measure_beside};

    fn fio() -> Option<Fio> {
        Fio::find().map_err(|why| eprintln!("skipped: fio beside a probe, because {why}")).ok()
    }

    #[test]
    fn fio_does_what_the_probe_does_and_both_rates_are_there() {
        let Some(fio) = fio() else { return };
        let dir = tempfile::tempdir().unwrap();
        let (queue, leftovers) = (Queue { threads: 2, ..Queue::default() }, Leftovers::default());
        let place =
            measure_beside(dir.path(), 0.05, queue, &leftovers, &|_| {}, Some(&Ok(fio))).unwrap();
        let beside = place.cross_check.unwrap();
        assert_eq!((&beside.skipped, &beside.failed), (&None, &None));
        assert!(beside.version.unwrap().starts_with(|c: char| c.is_ascii_digit()));
        assert_eq!(beside.rows.len(), 3 * SIZES.len());
        for (row, ours) in beside.rows.iter().zip(&place.measurements) {
            assert_eq!((row.operation, row.size_bytes), (ours.operation, ours.size_bytes));
            assert!(row.outside_per_s > 0.0 && row.tiersmith_per_s == ours.per_s, "{row:?}");
            assert!((row.ratio - row.tiersmith_per_s / row.outside_per_s).abs() < 1e-9);
            assert_eq!(row.outside_p95_ns.is_some(), row.operation == Operation::Read, "{row:?}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    /// Whoever owns the directory knows the names, and when each is used.
    #[test]
    fn names_that_are_planted_or_exchanged_lead_neither_the_probe_nor_fio_elsewhere() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let victim = elsewhere.path().join("victim");
        let name = dir.path().join(format!(".tiersmith-probe.{}", std::process::id()));
        let beside = |end: &str| PathBuf::from(format!("{}{end}", name.display()));
        let (json, log, aside) = (beside(".fio"), beside(".fio-log"), beside(".aside"));
        let put_a_link = |at: &Path| std::os::unix::fs::symlink(&victim, at).unwrap();
        let fio = fio();
        // Before the area's second opening past the page cache, and before fio.
        for moment in ["read of 512 bytes", "write, durable of 4096 bytes, by fio"] {
            fs::write(&victim, "precious").unwrap();
            for at in [&json, &log] {
                put_a_link(at);
            }
            let swap = |step: &str| {
                if step == moment {
                    fs::rename(&name, &aside).unwrap();
                    put_a_link(&name);
                }
            };
            let (queue, leftovers) = (Queue::default(), Leftovers::default());
            let checked = fio.clone().map(Ok);
            let checked = checked.as_ref();
            let place = measure_beside(dir.path(), 0.01, queue, &leftovers, &swap, checked);
            if let Some(beside) = place.unwrap().cross_check {
                assert_eq!((beside.failed, beside.rows.len()), (None, 3 * SIZES.len()));
                assert!(aside.exists());
            }
            assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
            // What took the name is not ours to remove.
            for link in [&name, &json, &log].into_iter().filter(|at| *at != &name || aside.exists())
            {
                assert_eq!(fs::read_link(link).unwrap(), victim);
                fs::remove_file(link).unwrap();
            }
            let _ = fs::remove_file(&aside);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_fio_that_fails_costs_no_figure_of_the_probe() {
        let dir = tempfile::tempdir().unwrap();
        let leftovers = Leftovers::default();
        for (program, expected) in [("false", "it ended with"), ("true", "a figure is missing")] {
            let program = system_program(program).unwrap();
            let fio = Ok(Fio { program, version: "0".into() });
            let place =
                measure_beside(dir.path(), 0.01, Queue::default(), &leftovers, &|_| {}, Some(&fio))
                    .unwrap();
            let beside = place.cross_check.unwrap();
            let failed = beside.failed.unwrap();
            assert!(failed.contains(expected), "{failed}");
            assert!(beside.rows.is_empty() && place.measurements.len() == 9);
        }
        let none = Err("fio is not installed".to_owned());
        let place =
            measure_beside(dir.path(), 0.01, Queue::default(), &leftovers, &|_| {}, Some(&none));
        let beside = place.unwrap().cross_check.unwrap();
        assert_eq!(beside, Beside::skipped("fio is not installed"));
        let place = measure(dir.path(), 0.01, Queue::default(), &leftovers, &|_| {}).unwrap();
        assert_eq!(place.cross_check, None);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn fio_is_told_what_is_measured() {
        let what = |operation, size_bytes| What {
            operation,
            size_bytes,
            how: "",
            at_once: 6,
            seconds: 0.3,
        };
        let told = |operation, size, is_direct| -> Vec<String> {
            let queue = Queue { threads: 2, depth: 3, reads_pct: 30 };
            let words = arguments(&what(operation, size), queue, is_direct);
            words.into_iter().map(|word| word.into_string().unwrap()).collect()
        };
        let has = |words: &[String], word: &str| words.iter().any(|one| one == word);
        let write = told(Operation::Write, 512, true);
        for word in [
            "--filename=/proc/self/fd/0",
            "--bs=512",
            "--direct=1",
            "--numjobs=6",
            "--runtime=300000us",
            "--rw=randwrite",
            "--fdatasync=1",
            "--allow_file_create=0",
        ] {
            assert!(has(&write, word), "{word} in {write:?}");
        }
        let mixed = told(Operation::Mixed, 4096, false);
        for word in ["--rw=randrw", "--rwmixread=30", "--sync=dsync", "--direct=0"] {
            assert!(has(&mixed, word), "{word} in {mixed:?}");
        }
        let read = told(Operation::Read, 4096, true);
        assert!(has(&read, "--rw=randread") && !read.iter().any(|word| word.contains("sync=1")));
    }
}
