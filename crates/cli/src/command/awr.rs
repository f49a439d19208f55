//! `tiersmith awr`: the workload repository.
//!
//! | file | commands |
//! |---|---|
//! | this one | `snapshot`, `list`, `report`, `compare` |
//! | `awr/record.rs` | `record` |
//! | `awr/attached.rs` | the source that an attached SQLite database is, for all of them |
//! | `awr/keep.rs` | `baseline`, `export`, `load`, `purge` |
//! | `awr/import.rs` | `import`: Oracle's reports |
//! | `awr/serve.rs` | `serve`: metrics for Prometheus |

mod attached;
mod import;
mod keep;
mod record;
mod serve;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::json;
use tiersmith_awr::archive::{Archive, Baseline, Gap};
use tiersmith_awr::export::BESIDE;
use tiersmith_awr::sources::{Address, LiveSource};
use tiersmith_awr::{
    AnyRepository, Entry, Interval, Listing, Report, Repository, Snapshot, SnapshotId, Source,
    compare, figure, read_snapshot, render, report,
};
use tiersmith_sqlite::place::{Place, Statistics, statistics};
use tiersmith_store::Stats;

use self::attached::Attached;
pub(super) use self::record::{HowToAsk, duration, length};
use super::home::{Home, Subject};
use super::written::{Readers, write_file};
use super::{print, print_json};
use crate::error::{Error, Result};
use crate::{Outcome, messages};

/// The repository that is used if none is named.
const DEFAULT_FILE: &str = "tiersmith-awr.db";

/// Record databases; take, list, report and compare snapshots of the workload repository
#[derive(Debug, Subcommand)]
#[command(after_long_help = "\
Examples:
  tiersmith awr record --source postgresql:///postgres -- pgbench -T 60 -c 8
  tiersmith awr import awrrpt_1_100_101.html
  tiersmith study --snapshots DIR              every run's snapshots are kept in DIR
  tiersmith awr list --in DIR
  tiersmith awr report --in DIR 1 2            what happened between snapshots 1 and 2
  tiersmith awr compare --in DIR 1 2 3 4       interval 1-2 beside interval 3-4
  tiersmith awr report begin.json end.json     snapshots by the paths of their files

Exit codes: 0 good; 1 something to look at, and each command says what; 2 error.")]
pub(crate) enum Awr {
    Record(record::Record),
    Snapshot(Take),
    List(List),
    Report(One),
    Compare(Two),
    #[command(subcommand)]
    Baseline(keep::Baseline),
    Export(keep::Export),
    Load(keep::Load),
    Purge(keep::Purge),
    Import(import::Import),
    Serve(serve::Serve),
}

/// Take a snapshot of a database server, a mounted home, or an attached database or directory
///
/// A server (--source), a mounted home, and an attached SQLite database that a program has open are
/// asked while they work. What nobody has open is opened for that, and it counts from there: what
/// such a snapshot tells is what is in the tier, and what opening it took. Counters of a running
/// program are taken by that program; `tiersmith study --snapshots` does so.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith awr snapshot --source postgresql://monitor@db1/shop --to load.db
  tiersmith awr snapshot app.db --to DIR
  tiersmith awr snapshot /data/db --fast /mnt/pmem0/db.tier --to DIR

Exit codes: 0 taken; 2 error, and no snapshot was kept.")]
pub(crate) struct Take {
    /// A SQLite database file, or a database directory
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// For a directory whose tier was moved: the members of the tier, in the order in which it was
    /// made
    #[arg(long, value_name = "MEMBER", num_args = 1.., requires = "path")]
    fast: Vec<PathBuf>,
    /// For a directory without a note: the tier given with --fast stands for persistent memory
    /// (emulated)
    #[arg(long, requires = "path")]
    emulate: bool,
    /// A database server, as `tiersmith awr record` takes it
    #[arg(long, value_name = "URL", conflicts_with = "path")]
    source: Option<String>,
    #[command(flatten)]
    asking: record::HowToAsk,
    /// The repository, made if it is not there: a directory, one file if the name ends in .db, or
    /// postgresql://USER@HOST/DB
    #[arg(long, value_name = "PATH")]
    to: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// List the snapshots of a repository
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith awr list
  tiersmith awr list --in load.db
  tiersmith awr list --in postgresql://awr@db0/fleet --json

Exit codes: 0 all could be read; 1 some are damaged, and it says which; 2 error.")]
pub(crate) struct List {
    /// The repository, as --in names it
    #[arg(value_name = "PATH", conflicts_with = "dir")]
    path: Option<PathBuf>,
    #[command(flatten)]
    place: Where,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Report what happened in a recording, or between two snapshots
///
/// Without snapshots and without --baseline it is of the last recording, from its first snapshot to
/// its last. Of several sources that were recorded together it is of the one whose snapshot is the
/// newest.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith awr report                               all that was recorded last
  tiersmith awr report --in DIR 1 2
  tiersmith awr report --in load.db --baseline before
  tiersmith awr report --in DIR 1 2 --html report.html

Exit codes: 0 reported, whatever the findings are; 1 reported, but of an imported report of which no
wait event could be read; 2 error.")]
pub(crate) struct One {
    /// The first snapshot: its number, or the path of its file
    #[arg(requires = "end")]
    begin: Option<String>,
    /// The second
    end: Option<String>,
    /// An interval by its name
    #[arg(long, value_name = "NAME", conflicts_with = "begin")]
    baseline: Option<String>,
    #[command(flatten)]
    output: Output,
}

/// Compare two intervals: Oracle's Compare Periods
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith awr compare --in DIR 1 2 3 4
  tiersmith awr compare --in load.db --baseline before --baseline after
  tiersmith awr compare --in load.db --baseline before 7 9

Exit codes: 0 compared, whatever the differences are; 1 compared, but of one no wait event could be
read; 2 error.")]
pub(crate) struct Two {
    /// Begin and end of the first interval, then of the second: numbers, or paths of files
    #[arg(value_name = "SNAPSHOT", num_args = 0..=4)]
    snapshots: Vec<String>,
    /// An interval by its name; these come before those by numbers
    #[arg(long, value_name = "NAME")]
    baseline: Vec<String>,
    #[command(flatten)]
    output: Output,
}

/// The repository that is read.
#[derive(Debug, Args)]
struct Where {
    /// The repository: a directory, one file, or postgresql://USER@HOST/DB [default:
    /// tiersmith-awr.db, else the snapshots in this directory]
    #[arg(long = "in", value_name = "PATH")]
    dir: Option<PathBuf>,
}

impl Where {
    /// The repository, which is there.
    fn path(&self) -> Result<PathBuf> {
        let path = match &self.dir {
            Some(dir) => dir.clone(),
            None => {
                let here = PathBuf::from(".");
                let exported = Repository::existing(&here).is_ok_and(|here| here.has_snapshots());
                let recorded = PathBuf::from(DEFAULT_FILE);
                if exported && !recorded.is_file() { here } else { recorded }
            }
        };
        if path.exists() || Archive::is_address(&path) {
            return Ok(path);
        }
        Err(Error::Usage(format!(
            "there is no repository {}; name one with --in, for instance the file that `tiersmith \
             awr record` made",
            path.display()
        )))
    }
}

/// Where snapshots are, and how a report is written.
#[derive(Debug, Args)]
struct Output {
    #[command(flatten)]
    place: Where,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print CSV, one figure a line
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print Markdown
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    markdown: bool,
    /// Write the page to FILE instead of printing text
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "csv", "markdown"])]
    html: Option<PathBuf>,
}

impl Awr {
    pub(super) fn run(&self) -> Result<Outcome> {
        match self {
            Awr::Record(record) => record.run(),
            Awr::Snapshot(take) => take.run(),
            Awr::List(list) => list.run(),
            Awr::Report(one) => {
                let of = one.interval()?;
                one.output.write(&report(&of), &[&of])
            }
            Awr::Compare(two) => {
                let (first, second) = two.intervals()?;
                two.output.write(&compare(&first, &second), &[&first, &second])
            }
            Awr::Baseline(baseline) => baseline.run(),
            Awr::Export(export) => export.run(),
            Awr::Load(load) => load.run(),
            Awr::Purge(purge) => purge.run(),
            Awr::Import(import) => import.run(),
            Awr::Serve(serve) => serve.run(),
        }
    }
}

impl One {
    fn interval(&self) -> Result<Interval> {
        match (&self.begin, &self.end, &self.baseline) {
            (Some(begin), Some(end), _) => self.output.interval(begin, end),
            (_, _, Some(name)) => self.output.baseline(name),
            _ => self.output.newest(),
        }
    }
}

impl Two {
    fn intervals(&self) -> Result<(Interval, Interval)> {
        let mut intervals = self
            .baseline
            .iter()
            .map(|name| self.output.baseline(name))
            .collect::<Result<Vec<_>>>()?;
        for pair in self.snapshots.chunks(2) {
            match pair {
                [begin, end] => intervals.push(self.output.interval(begin, end)?),
                _ => {
                    return Err(Error::Usage(
                        "an interval needs two snapshots; give begin and end of each".into(),
                    ));
                }
            }
        }
        let count = intervals.len();
        <[Interval; 2]>::try_from(intervals).map(|[first, second]| (first, second)).map_err(|_| {
            Error::Usage(format!(
                "a comparison needs two intervals, {count} were given; give four snapshots, or two \
                 baselines, or one of each"
            ))
        })
    }
}

impl Output {
    /// The snapshot and, if it has one, its number.
    fn find(&self, name: &str) -> Result<(Snapshot, Option<SnapshotId>)> {
        match name.parse::<u64>() {
            Ok(number) => {
                let id = SnapshotId::new(number);
                Ok((AnyRepository::existing(&self.place.path()?)?.find(id)?, Some(id)))
            }
            Err(_) => Ok((read_snapshot(Path::new(name))?, None)),
        }
    }

    fn baseline(&self, name: &str) -> Result<Interval> {
        let path = self.place.path()?;
        let repository = AnyRepository::existing(&path)?;
        let (baselines, _) = repository.baselines_and_gaps()?;
        let found =
            baselines.into_iter().find(|baseline| baseline.name == name).ok_or_else(|| {
                Error::Usage(format!(
                    "there is no baseline `{name}` in {}; `tiersmith awr list` shows them",
                    path.display()
                ))
            })?;
        let interval = repository
            .interval(found.first, found.last)
            .map_err(|error| Error::Usage(format!("baseline `{name}` is no interval: {error}")))?;
        Ok(interval.labelled(name))
    }

    /// The whole last recording.
    fn newest(&self) -> Result<Interval> {
        let path = self.place.path()?;
        let repository = AnyRepository::existing(&path)?;
        let Some(last) = repository.last_recording()? else {
            return Err(Error::Usage(format!(
                "there is no snapshot in {}; `tiersmith awr record` takes some, and --in names \
                 another repository",
                path.display()
            )));
        };
        if last.first == last.last {
            return Err(Error::Usage(format!(
                "what was recorded last in {}, {}, has one snapshot so far ({}), and a report \
                 needs two; wait for the next one, or name two \
                 that `tiersmith awr list` shows",
                path.display(),
                figure::visible(&last.source),
                last.first
            )));
        }
        let interval = repository.interval(last.first, last.last)?;
        Ok(match last.name {
            Some(name) => interval.labelled(&name),
            None => interval,
        })
    }

    fn interval(&self, begin: &str, end: &str) -> Result<Interval> {
        let ((begin, first), (end, second)) = (self.find(begin)?, self.find(end)?);
        match first.zip(second) {
            Some((first, second)) => {
                Ok(AnyRepository::existing(&self.place.path()?)?.interval(first, second)?)
            }
            None => Ok(Interval::between(&begin, &end)?),
        }
    }

    fn write(&self, report: &Report, intervals: &[&Interval]) -> Result<Outcome> {
        match &self.html {
            Some(file) => {
                write_file(file, &render::html(report), Readers::Owner)?;
                print(&format!("page: {}\n", file.display()))?;
            }
            None if self.json => print(&format!("{}\n", report.json()))?,
            None if self.csv => print(&render::csv(report))?,
            None if self.markdown => print(&render::markdown(report))?,
            None => print(&render::text(report))?,
        }
        let lacking = intervals.iter().filter(|of| of.lacks_wait_events());
        let lacking: Vec<String> =
            lacking.map(|of| figure::visible(&of.end.source.database)).collect();
        if lacking.is_empty() {
            return Ok(Outcome::Good);
        }
        messages::say(&format!(
            "NO WAIT EVENTS could be read from the imported report of {}: this says nothing of \
             what requests waited for; make the report anew, as HTML, and import that",
            lacking.join(" and ")
        ));
        Ok(Outcome::Findings)
    }
}

impl List {
    fn run(&self) -> Result<Outcome> {
        let place = Where { dir: self.path.clone().or_else(|| self.place.dir.clone()) };
        let repository = AnyRepository::existing(&place.path()?)?;
        let mut listing = repository.list()?;
        let (baselines, gaps) = match (repository.baselines_and_gaps(), &repository) {
            // A damaged file does not hide the snapshots beside it.
            (Err(error), AnyRepository::Directory(of)) => {
                listing.damaged.push((of.path().join(BESIDE), error));
                Default::default()
            }
            (both, _) => both?,
        };
        let printed: Vec<Option<u64>> =
            listing.entries.iter().map(|entry| printed_number(&repository, entry)).collect();
        let listed = Listed { listing, printed, baselines, gaps };
        if self.json {
            print_json(&listed.json())?;
        } else {
            print(&listed.text())?;
        }
        let sound = listed.listing.damaged.is_empty();
        Ok(if sound { Outcome::Good } else { Outcome::Findings })
    }
}

/// What is in a repository.
struct Listed {
    listing: Listing,
    /// Of each entry, the number that an imported report prints for it.
    printed: Vec<Option<u64>>,
    baselines: Vec<Baseline>,
    gaps: Vec<Gap>,
}

impl Listed {
    fn entries(&self) -> impl Iterator<Item = (&Entry, Option<u64>)> {
        self.listing.entries.iter().zip(self.printed.iter().copied())
    }

    fn json(&self) -> serde_json::Value {
        let entries: Vec<_> = self
            .entries()
            .map(|(e, printed)| {
                json!({ "id": e.id.number(), "printed_number": printed,
                "taken_unix_ns": e.taken_unix_ns,
                "database": e.database, "source": e.source, "instance": e.instance,
                "path": e.path })
            })
            .collect();
        let damaged: Vec<_> = self
            .listing
            .damaged
            .iter()
            .map(|(path, e)| json!({ "path": path, "error": e.to_string() }))
            .collect();
        let baselines: Vec<_> = self
            .baselines
            .iter()
            .map(|b| json!({ "name": b.name, "first": b.first, "last": b.last }))
            .collect();
        let gaps: Vec<_> = self
            .gaps
            .iter()
            .map(|g| {
                json!({ "source": g.source, "at_unix_ns": g.at_unix_ns,
                "reason": g.reason, "after": g.after })
            })
            .collect();
        json!({ "snapshots": entries, "damaged": damaged, "baselines": baselines,
            "gaps": gaps })
    }

    fn text(&self) -> String {
        let entries = &self.listing.entries;
        let as_printed = entries.iter().filter(|entry| entry.is_as_printed()).count();
        let all_are = as_printed > 0 && as_printed == entries.len();
        let zone = if all_are { "" } else { " (UTC)" };
        // In a column of its own: commands take the repository's numbers.
        let has_numbers = self.printed.iter().any(Option::is_some);
        let number = |text: String| match has_numbers {
            true => format!("{text:>10}  "),
            false => String::new(),
        };
        let mut out = format!(
            "{:>8}  {}{:<20} {:<20} {:<36} {}\n",
            "Snap Id",
            number("As Printed".to_owned()),
            format!("Snap Time{zone}"),
            "Database",
            "Source",
            "Instance"
        );
        for (entry, printed) in self.entries() {
            out.push_str(&format!(
                "{:>8}  {}{:<20} {:<20} {:<36} {}\n",
                entry.id.number(),
                number(printed.map(|printed| printed.to_string()).unwrap_or_default()),
                figure::instant(entry.taken_unix_ns),
                figure::visible(&entry.database),
                figure::visible(&entry.source),
                figure::visible(&entry.instance)
            ));
        }
        if as_printed > 0 {
            out.push_str("times of imported reports are as printed, without a zone\n");
        }
        for baseline in &self.baselines {
            let name = figure::visible(&baseline.name);
            out.push_str(&format!("baseline {name}: {} to {}\n", baseline.first, baseline.last));
        }
        for gap in &self.gaps {
            let (at, source) = (figure::instant(gap.at_unix_ns), figure::visible(&gap.source));
            out.push_str(&format!("gap at {at}: {source}: {}\n", figure::visible(&gap.reason)));
        }
        for (path, e) in &self.listing.damaged {
            out.push_str(&format!("damaged: {}: {e}\n", path.display()));
        }
        out
    }
}

/// The number that an imported report prints for a snapshot.
fn printed_number(repository: &AnyRepository, entry: &Entry) -> Option<u64> {
    // A listing does not read snapshots, and of a live source there is no such number.
    let snapshot = entry.is_as_printed().then(|| repository.find(entry.id).ok())??;
    snapshot.printed_number
}

impl Take {
    fn run(&self) -> Result<Outcome> {
        let snapshot = self.snapshot()?;
        let id = AnyRepository::open(&self.to)?.take(&snapshot)?;
        if self.json {
            print_json(&json!({ "id": id.number(), "repository": self.to }))?;
        } else {
            print(&format!("snapshot {id} in {}\n", self.to.display()))?;
        }
        Ok(Outcome::Good)
    }

    fn snapshot(&self) -> Result<Snapshot> {
        let path = match (&self.source, &self.path) {
            (Some(source), _) => return Ok(self.asking.open(source)?.snapshot()?),
            (None, Some(path)) => path,
            (None, None) => {
                return Err(Error::Usage("nothing was named; give a path, or --source URL".into()));
            }
        };
        // A URL where a path is expected is a URL.
        if let Some(url) = path.to_str().filter(|text| Address::is_one(text) && !path.exists()) {
            return Ok(self.asking.open(url)?.snapshot()?);
        }
        // A program that has the database open has counted; nobody else could open it.
        let by_others =
            |figures: &Statistics| figures.open && figures.process != std::process::id();
        if super::home::is_database_file(path)
            && statistics(path).is_ok_and(|found| found.as_ref().is_some_and(by_others))
        {
            return Ok(Attached::open(path, self.asking.asking()?.redaction)?.snapshot()?);
        }
        of_home(&Home { path: path.clone(), fast: self.fast.clone(), emulate: self.emulate })
    }
}

/// A snapshot of an attached database or directory; through its daemon if it is mounted.
fn of_home(home: &Home) -> Result<Snapshot> {
    let source = Source {
        instance: format!("opened by process {}", std::process::id()),
        path: home.path.display().to_string(),
        ..Source::default()
    };
    match home.subject()? {
        Subject::Database(status) => {
            let path = &status.database;
            tiersmith_sqlite::register()?;
            let place: Arc<Place> = Place::open(path, &Default::default(), &|_| Ok(()))?
                .ok_or_else(|| {
                    Error::Usage(format!(
                        "{} is not attached; there is nothing to count in it",
                        path.display()
                    ))
                })?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok(snapshot(
                Source { database: name, product: "SQLite".into(), ..source },
                &place.home().stats(),
            ))
        }
        Subject::Directory => {
            if let Some(snapshot) = crate::mounted::snapshot(&home.path)? {
                return Ok(snapshot);
            }
            let attached = home.attach()?;
            let name = home.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok(snapshot(
                Source { database: name, product: "a directory".into(), ..source },
                &attached.stats(),
            ))
        }
    }
}

/// A snapshot of an attached home.
fn snapshot(source: Source, stats: &Stats) -> Snapshot {
    let mut snapshot = Snapshot::now(source);
    crate::mounted::fill(&mut snapshot, stats);
    snapshot
}
