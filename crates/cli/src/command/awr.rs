//! `tiersmith awr`: the workload repository.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::json;
use tiersmith_awr::{
    Interval, MediumStat, Report, Repository, Snapshot, SnapshotId, Source, compare, figure, read_snapshot,
    report,
};
use tiersmith_sqlite::place::Place;
use tiersmith_store::Stats;

use super::home::{Home, Subject};
use super::{print, print_json, write_file};
use crate::Outcome;
use crate::error::{Error, Result};

/// Take, list, report and compare snapshots of the workload repository
#[derive(Debug, Subcommand)]
#[command(after_long_help = "\
Examples:
  tiersmith study --snapshots DIR              every run's snapshots are kept in DIR
  tiersmith awr list DIR
  tiersmith awr report --in DIR 1 2            what happened between snapshots 1 and 2
  tiersmith awr compare --in DIR 1 2 3 4       interval 1-2 beside interval 3-4
  tiersmith awr report begin.json end.json     snapshots by the paths of their files")]
pub(crate) enum Awr {
    Snapshot(Take),
    List(List),
    Report(One),
    Compare(Two),
}

/// Take a snapshot of an attached database or directory into a repository
///
/// It is opened for that, so no other process may have it open, and it counts from there: what such a snapshot tells is what is in the
/// tier, and what opening it took. Counters of a running program are taken by that program; `tiersmith study --snapshots` does so.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith awr snapshot app.db --to DIR
  tiersmith awr snapshot /data/db --fast /mnt/pmem0/db.tier --to DIR")]
pub(crate) struct Take {
    #[command(flatten)]
    home: Home,
    /// The repository, made if it is not there
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// List the snapshots of a repository
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit codes: 0 all could be read; 1 some are damaged, and it says which; 2 error.")]
pub(crate) struct List {
    /// The repository
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Report what happened between two snapshots
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith awr report --in DIR 1 2
  tiersmith awr report --in DIR 1 2 --html report.html")]
pub(crate) struct One {
    /// The first snapshot: its number, or the path of its file
    begin: String,
    /// The second
    end: String,
    #[command(flatten)]
    output: Output,
}

/// Compare two intervals: Oracle's Compare Periods
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith awr compare --in DIR 1 2 3 4")]
pub(crate) struct Two {
    /// First interval, first snapshot: its number, or the path of its file
    begin1: String,
    /// First interval, second snapshot
    end1: String,
    /// Second interval, first snapshot
    begin2: String,
    /// Second interval, second snapshot
    end2: String,
    #[command(flatten)]
    output: Output,
}

/// Where snapshots are, and how a report is written.
#[derive(Debug, Args)]
struct Output {
    /// The repository that numbers refer to
    #[arg(long = "in", value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write the page to FILE instead of printing text
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    html: Option<PathBuf>,
}

impl Awr {
    pub(super) fn run(&self) -> Result<Outcome> {
        match self {
            Awr::Snapshot(take) => take.run(),
            Awr::List(list) => list.run(),
            Awr::Report(one) => one.output.write(&report(&one.output.interval(&one.begin, &one.end)?)),
            Awr::Compare(two) => {
                let first = two.output.interval(&two.begin1, &two.end1)?;
                let second = two.output.interval(&two.begin2, &two.end2)?;
                two.output.write(&compare(&first, &second))
            }
        }
    }
}

impl Output {
    /// The snapshot and, if it has one, its number.
    fn find(&self, name: &str) -> Result<(Snapshot, Option<SnapshotId>)> {
        match name.parse::<u64>() {
            Ok(number) => {
                // Asking a repository for a snapshot makes no directory.
                if !self.dir.is_dir() {
                    return Err(Error::Usage(format!(
                        "{} is no directory, so there is no snapshot {number} in it; name the repository with --in",
                        self.dir.display()
                    )));
                }
                let id = SnapshotId::new(number);
                Ok((Repository::open(&self.dir)?.find(id)?, Some(id)))
            }
            Err(_) => Ok((read_snapshot(Path::new(name))?, None)),
        }
    }

    fn interval(&self, begin: &str, end: &str) -> Result<Interval> {
        let ((begin, first), (end, second)) = (self.find(begin)?, self.find(end)?);
        let interval = Interval::between(&begin, &end)?;
        Ok(match first.zip(second) {
            Some((first, second)) => interval.with_ids(first, second),
            None => interval,
        })
    }

    fn write(&self, report: &Report) -> Result<Outcome> {
        match &self.html {
            Some(file) => {
                write_file(file, &report.html())?;
                print(&format!("page: {}\n", file.display()))?;
            }
            None if self.json => print(&format!("{}\n", report.json()))?,
            None => print(&report.text())?,
        }
        Ok(Outcome::Good)
    }
}

impl List {
    fn run(&self) -> Result<Outcome> {
        if !self.dir.is_dir() {
            return Err(Error::Usage(format!(
                "{} is no directory; name a repository, for instance one that `tiersmith study --snapshots` made",
                self.dir.display()
            )));
        }
        let listing = Repository::open(&self.dir)?.list()?;
        if self.json {
            let entries: Vec<_> = listing
                .entries
                .iter()
                .map(|e| json!({ "id": e.id.number(), "taken_unix_ns": e.taken_unix_ns, "database": e.database, "instance": e.instance, "path": e.path }))
                .collect();
            let damaged: Vec<_> = listing
                .damaged
                .iter()
                .map(|(path, e)| json!({ "path": path, "error": e.to_string() }))
                .collect();
            print_json(&json!({ "snapshots": entries, "damaged": damaged }))?;
        } else {
            let mut out =
                format!("{:>8}  {:<20} {:<24} {}\n", "Snap Id", "Snap Time (UTC)", "Database", "Instance");
            for entry in &listing.entries {
                out.push_str(&format!(
                    "{:>8}  {:<20} {:<24} {}\n",
                    entry.id.number(),
                    figure::instant(entry.taken_unix_ns),
                    figure::visible(&entry.database),
                    figure::visible(&entry.instance)
                ));
            }
            for (path, e) in &listing.damaged {
                out.push_str(&format!("damaged: {}: {e}\n", path.display()));
            }
            print(&out)?;
        }
        Ok(if listing.damaged.is_empty() { Outcome::Good } else { Outcome::Findings })
    }
}

impl Take {
    fn run(&self) -> Result<Outcome> {
        let source = Source {
            instance: format!("opened by process {}", std::process::id()),
            path: self.home.path.display().to_string(),
            ..Source::default()
        };
        let snapshot = match self.home.subject()? {
            Subject::Database(status) => {
                let path = &status.database;
                tiersmith_sqlite::register()?;
                let place: Arc<Place> =
                    Place::open(path, &Default::default(), &|_| Ok(()))?.ok_or_else(|| {
                        Error::Usage(format!(
                            "{} is not attached; there is nothing to count in it",
                            path.display()
                        ))
                    })?;
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                snapshot(Source { database: name, product: "SQLite".into(), ..source }, &place.home().stats())
            }
            Subject::Directory => {
                let attached = self.home.attach()?;
                let name = self.home.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                snapshot(
                    Source { database: name, product: "a directory".into(), ..source },
                    &attached.stats(),
                )
            }
        };
        let id = Repository::open(&self.to)?.take(&snapshot)?;
        if self.json {
            print_json(&json!({ "id": id.number(), "repository": self.to }))?;
        } else {
            print(&format!("snapshot {id} in {}\n", self.to.display()))?;
        }
        Ok(Outcome::Good)
    }
}

/// A snapshot of an attached home.
fn snapshot(source: Source, stats: &Stats) -> Snapshot {
    let mut snapshot = Snapshot::now(source);
    snapshot.add_waits(&stats.waits);
    snapshot.add_counters(&stats.waits);
    for tier in &stats.tiers {
        snapshot.add_io_of(&stats.waits, &tier.name);
        snapshot.add_medium(MediumStat {
            name: tier.name.clone(),
            kind: tier.media.first().and_then(|m| m.lines().next()).unwrap_or_default().to_owned(),
            emulated: tier.emulated,
            bytes: tier.bytes,
            used_bytes: tier.usable_bytes.saturating_sub(tier.free_bytes),
        });
        snapshot.add_level("tier dirty", "bytes", tier.dirty_bytes);
        snapshot.add_level("tier cached", "bytes", tier.cached_bytes);
        snapshot.add_level("tier free", "bytes", tier.free_bytes);
    }
    snapshot
}
