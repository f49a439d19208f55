//! `tiersmith awr baseline`, `export`, `load` and `purge`: what is done with snapshots that are there.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use serde_json::json;
use tiersmith_awr::archive::Archive;
use tiersmith_awr::{AnyRepository, Repository, SnapshotId, read_snapshot};

use super::super::{print, print_json};
use super::record::duration;
use crate::Outcome;
use crate::error::{Error, Result};

/// Name intervals, so that retention keeps them and reports find them
#[derive(Debug, Subcommand)]
#[command(after_long_help = "\
Examples:
  tiersmith awr baseline add before 1 12 --in load.db
  tiersmith awr baseline add before 1 12 --in postgresql://awr@db0/fleet
  tiersmith awr compare --in load.db --baseline before --baseline after
  tiersmith awr baseline drop before --in load.db")]
pub(crate) enum Baseline {
    Add(Add),
    Drop(DropIt),
}

/// Name the interval between two snapshots
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit codes: 0 named; 1 named, but the source was restarted in it or the snapshots are of two: there is no report of it; 2 error.")]
pub(crate) struct Add {
    /// The name
    name: String,
    /// The first snapshot
    begin: u64,
    /// The second
    end: u64,
    /// The repository: one file, or postgresql://USER@HOST/DB
    #[arg(long = "in", value_name = "PATH", default_value = super::DEFAULT_FILE)]
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Take a name away; the snapshots stay
#[derive(Debug, Args)]
pub(crate) struct DropIt {
    /// The name
    name: String,
    /// The repository: one file, or postgresql://USER@HOST/DB
    #[arg(long = "in", value_name = "PATH", default_value = super::DEFAULT_FILE)]
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Write snapshots as files, one each, that can be read anywhere
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith awr export --in load.db --to DIR
  tiersmith awr export --in load.db --to DIR 3 4 5")]
pub(crate) struct Export {
    /// The snapshots; all of them if none is given
    ids: Vec<u64>,
    /// The repository
    #[arg(long = "in", value_name = "PATH", default_value = super::DEFAULT_FILE)]
    from: PathBuf,
    /// The directory, made if it is not there; snapshots get new numbers in it
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Take snapshots from files into a repository
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith awr load DIR/snap-*.json --to load.db
  tiersmith awr load DIR/snap-*.json --to postgresql://awr@db0/fleet

Exit codes: 0 loaded; 2 error, and nothing was kept (in a directory: what was loaded before the error).")]
pub(crate) struct Load {
    /// The files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The repository, made if it is not there
    #[arg(long, value_name = "PATH", default_value = super::DEFAULT_FILE)]
    to: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Remove snapshots that are older than a time; those of baselines stay
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith awr purge --older 30d --in load.db")]
pub(crate) struct Purge {
    /// How old
    #[arg(long, value_name = "TIME", value_parser = duration)]
    older: Duration,
    /// The repository: one file, or postgresql://USER@HOST/DB
    #[arg(long = "in", value_name = "PATH", default_value = super::DEFAULT_FILE)]
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn archive(path: &std::path::Path) -> Result<Archive> {
    Ok(AnyRepository::existing(path)?.archive(path)?)
}

impl Baseline {
    pub(super) fn run(&self) -> Result<Outcome> {
        match self {
            Baseline::Add(add) => {
                let ids = [add.begin, add.end].map(SnapshotId::new);
                if add.begin >= add.end {
                    return Err(Error::Usage(
                        "give the earlier snapshot first, and two different ones".into(),
                    ));
                }
                let archive = archive(&add.file)?;
                archive.add_baseline(&add.name, ids[0], ids[1])?;
                // A name keeps its snapshots, also where there is no report from the first to the last.
                let broken = AnyRepository::Archive(archive).interval(ids[0], ids[1]).err();
                if add.json {
                    print_json(&json!({
                        "name": add.name, "first": ids[0], "last": ids[1], "no_report": broken.as_ref().map(ToString::to_string),
                    }))?;
                } else if let Some(broken) = &broken {
                    print(&format!(
                        "named, and kept from removal; but there is no report of it: {broken}\n"
                    ))?;
                }
                return Ok(if broken.is_some() { Outcome::Findings } else { Outcome::Good });
            }
            Baseline::Drop(drop) => {
                if !archive(&drop.file)?.drop_baseline(&drop.name)? {
                    return Err(Error::Usage(format!(
                        "there is no baseline `{}` in {}; `tiersmith awr list` shows them",
                        drop.name,
                        drop.file.display()
                    )));
                }
                if drop.json {
                    print_json(&json!({ "dropped": drop.name }))?;
                }
            }
        }
        Ok(Outcome::Good)
    }
}

impl Export {
    pub(super) fn run(&self) -> Result<Outcome> {
        let from = AnyRepository::existing(&self.from)?;
        let ids: Vec<SnapshotId> = match self.ids.is_empty() {
            true => from.list()?.entries.into_iter().map(|entry| entry.id).collect(),
            false => self.ids.iter().copied().map(SnapshotId::new).collect(),
        };
        let to = Repository::open(&self.to)?;
        let mut written = Vec::new();
        for id in ids {
            written.push((id, to.take(&from.find(id)?)?));
        }
        if self.json {
            let all: Vec<_> = written.iter().map(|(from, to)| json!({ "from": from, "to": to })).collect();
            print_json(&json!({ "directory": self.to, "snapshots": all }))?;
        } else {
            print(&format!("{} snapshots in {}\n", written.len(), self.to.display()))?;
        }
        Ok(Outcome::Good)
    }
}

impl Load {
    pub(super) fn run(&self) -> Result<Outcome> {
        // Everything is read before anything is kept: a damaged file loads nothing.
        let snapshots =
            self.files.iter().map(|file| read_snapshot(file)).collect::<tiersmith_awr::Result<Vec<_>>>()?;
        let to = AnyRepository::open(&self.to)?;
        let ids = to.take_all(&snapshots)?;
        if self.json {
            print_json(&json!({ "repository": self.to, "snapshots": ids }))?;
        } else {
            print(&format!("{} snapshots in {}\n", ids.len(), self.to.display()))?;
        }
        Ok(Outcome::Good)
    }
}

impl Purge {
    pub(super) fn run(&self) -> Result<Outcome> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let before = u64::try_from(now.saturating_sub(self.older).as_nanos()).unwrap_or(0);
        let gone = archive(&self.file)?.remove_before(None, before)?;
        if self.json {
            print_json(&json!({ "removed": gone }))?;
        } else {
            print(&format!("{gone} snapshots removed\n"))?;
        }
        Ok(Outcome::Good)
    }
}
