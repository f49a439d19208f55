//! `tiersmith awr baseline`, `export`, `load` and `purge`: what is done with snapshots that are
//! there.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use serde_json::json;
use tiersmith_awr::archive::Archive;
use tiersmith_awr::{AnyRepository, SnapshotId, export};

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
  tiersmith awr baseline drop before --in load.db

Exit codes: 0 done; 1 named, but there is no report of it; 2 error.")]
pub(crate) enum Baseline {
    Add(Add),
    Drop(DropIt),
}

/// Name the interval between two snapshots
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith awr baseline add before 1 12 --in load.db

Exit codes: 0 named; 1 named, but the source was restarted in it: there is no report of it; 2 \
error.")]
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
#[command(after_long_help = "\
Examples:
  tiersmith awr baseline drop before --in load.db

Exit codes: 0 dropped; 2 error.")]
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

/// Write snapshots as files, one each, that can be read anywhere, with their baselines and gaps
///
/// Baselines and gaps go into a file baselines-and-gaps.json beside the snapshots;
/// `tiersmith awr load DIR` brings all of it into another repository.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith awr export --in load.db --to DIR
  tiersmith awr export --in load.db --to DIR 3 4 5

Exit codes: 0 all of it; 1 a baseline or gap was left out, and it says which; 2 error.")]
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

/// Take snapshots from files into a repository; from a directory also its baselines and gaps
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith awr load DIR --to load.db
  tiersmith awr load DIR --to postgresql://awr@db0/fleet
  tiersmith awr load DIR/snap-000003.json DIR/snap-000004.json --to load.db

Exit codes: 0 loaded; 1 loaded, but a baseline or gap was left out, and it says which; 2 error, \
and nothing was kept (in a directory: what
was loaded before the error).")]
pub(crate) struct Load {
    /// Files of snapshots, or directories that were exported
    #[arg(required = true, value_name = "PATH")]
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
  tiersmith awr purge --older 30d --in load.db

Exit codes: 0 removed, or nothing was that old; 2 error.")]
pub(crate) struct Purge {
    /// How old
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
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
                // A name keeps its snapshots, also where there is no report from the first to the
                // last.
                let broken = AnyRepository::Archive(archive).interval(ids[0], ids[1]).err();
                if add.json {
                    print_json(&json!({
                        "name": add.name, "first": ids[0], "last": ids[1],
                        "no_report": broken.as_ref().map(ToString::to_string),
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

/// What is said of snapshots, baselines and gaps that were taken over, and of what was not.
fn taken_over(counts: [usize; 3], to: &std::path::Path, left_out: &[String]) -> String {
    let [snapshots, baselines, gaps] = counts;
    let mut text =
        format!("{snapshots} snapshots, {baselines} baselines, {gaps} gaps in {}\n", to.display());
    for line in left_out {
        text.push_str(&format!("  left out: {line}\n"));
    }
    text
}

fn whole(left_out: &[String]) -> Outcome {
    if left_out.is_empty() { Outcome::Good } else { Outcome::Findings }
}

impl Export {
    pub(super) fn run(&self) -> Result<Outcome> {
        let from = AnyRepository::existing(&self.from)?;
        let ids: Vec<SnapshotId> = self.ids.iter().copied().map(SnapshotId::new).collect();
        let exported = export::export(&from, &ids, &self.to)?;
        if self.json {
            let all: Vec<_> = exported
                .snapshots
                .iter()
                .map(|(from, to)| json!({ "from": from, "to": to }))
                .collect();
            print_json(&json!({
                "directory": self.to, "snapshots": all, "baselines": exported.baselines,
                "gaps": exported.gaps,
                "left_out": exported.left_out,
            }))?;
        } else {
            let counts = [exported.snapshots.len(), exported.baselines, exported.gaps];
            print(&taken_over(counts, &self.to, &exported.left_out))?;
        }
        Ok(whole(&exported.left_out))
    }
}

impl Load {
    pub(super) fn run(&self) -> Result<Outcome> {
        let loaded = export::load(&self.files, &self.to)?;
        if self.json {
            print_json(&json!({
                "repository": self.to, "snapshots": loaded.snapshots,
                "baselines": loaded.baselines, "gaps": loaded.gaps,
                "left_out": loaded.left_out,
            }))?;
        } else {
            let counts = [loaded.snapshots.len(), loaded.baselines, loaded.gaps];
            print(&taken_over(counts, &self.to, &loaded.left_out))?;
        }
        Ok(whole(&loaded.left_out))
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
