//! `tiersmith flush`, `pin`, `unpin`, `move`, `unmount`: what the daemon of a mounted home is asked
//! to do.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::{print, print_json};
use crate::Outcome;
use crate::error::{Error, Result};
use crate::mounted::control::{Done, Reply, Request, To, ask};
use crate::mounted::place::{Place, Standing};
use crate::mounted::{not_served, unexpected};

/// Bring the newest blocks home, of all files or of those of a pattern; clean copies stay in the
/// tier
///
/// When it returns, home's files hold what they should, and are synced. The database may go on
/// meanwhile, and then write more.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith flush /var/lib/postgresql/15/main
  tiersmith flush /var/lib/postgresql/15/main 'pg_wal/*'

Exit codes: 0 done; 1 done, but not to every file, and it says to which not; 2 error.")]
pub(crate) struct Flush {
    #[command(flatten)]
    mounted: MountedHome,
    /// Files, by a glob pattern of their paths inside the home [default: all]
    #[arg(value_name = "PATTERN")]
    pattern: Option<String>,
}

/// Bring files into the tier and keep them there, across restarts, until they are unpinned
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith pin /var/lib/postgresql/15/main 'base/16384/*'
  tiersmith pin /var/lib/mysql 'shop/orders.ibd'

Exit codes: 0 done; 1 not to every file (the tier is too small, or the profile lets it pass), and \
it says to which not; 2 error.")]
pub(crate) struct Pin {
    #[command(flatten)]
    mounted: MountedHome,
    /// Files, by a glob pattern of their paths inside the home
    #[arg(value_name = "PATTERN")]
    pattern: String,
}

/// End a pin: the files leave the tier as others do
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith unpin /var/lib/postgresql/15/main 'base/16384/*'

Exit codes: 0 done; 1 not to every file, and it says to which not; 2 error.")]
pub(crate) struct Unpin {
    #[command(flatten)]
    mounted: MountedHome,
    /// Files, by a glob pattern of their paths inside the home
    #[arg(value_name = "PATTERN")]
    pattern: String,
}

/// Bring files into the tier, or home and out of it, once; afterwards they come and go as others do
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith move /var/lib/mysql 'shop/*.ibd' --to tier
  tiersmith move /var/lib/mysql 'archive/*.ibd' --to home

Exit codes: 0 done; 1 not to every file, and it says to which not; 2 error.")]
pub(crate) struct Move {
    #[command(flatten)]
    mounted: MountedHome,
    /// Files, by a glob pattern of their paths inside the home
    #[arg(value_name = "PATTERN")]
    pattern: String,
    /// Where to
    #[arg(long, value_enum)]
    to: To,
}

/// Unmount a home and end its daemon; it stays attached, and the tier keeps its blocks
///
/// As SIGTERM does, but it fails at once when files are open, and says who has them.
/// `tiersmith attach HOME` mounts it again.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith unmount /var/lib/postgresql/15/main

Exit codes: 0 it is not mounted now; 2 error: it is mounted still.")]
pub(crate) struct Unmount {
    #[command(flatten)]
    mounted: MountedHome,
}

/// What all of them have.
#[derive(Debug, Args)]
pub(crate) struct MountedHome {
    /// The database's directory
    #[arg(value_name = "HOME")]
    home: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Flush {
    pub(super) fn run(&self) -> Result<Outcome> {
        self.mounted.ask("brought home", &Request::Flush { pattern: self.pattern.clone() })
    }
}

impl Pin {
    pub(super) fn run(&self) -> Result<Outcome> {
        self.mounted.ask("pinned", &Request::Pin { pattern: self.pattern.clone() })
    }
}

impl Unpin {
    pub(super) fn run(&self) -> Result<Outcome> {
        self.mounted.ask("unpinned", &Request::Unpin { pattern: self.pattern.clone() })
    }
}

impl Move {
    pub(super) fn run(&self) -> Result<Outcome> {
        let said = match self.to {
            To::Tier => "moved into the tier",
            To::Home => "moved home",
        };
        self.mounted.ask(said, &Request::Move { pattern: self.pattern.clone(), to: self.to })
    }
}

impl Unmount {
    pub(super) fn run(&self) -> Result<Outcome> {
        let place = Place::find(&self.mounted.home)?;
        match ask(&place, &Request::Unmount)? {
            None => Err(not_served(&place)),
            // What answers may be any program of the home's owner.
            Some(_) if matches!(place.standing(None), Standing::Mounted(_)) => {
                Err(Error::Usage(format!(
                    "{} is mounted still, though what answers at {} says it is not: see which \
                     program that is \
                 (ss -xlp), and end it",
                    place.path().display(),
                    place.control().display()
                )))
            }
            Some(_) if self.mounted.json => {
                print_json(&json!({ "home": place.path(), "mounted": false, "attached": true }))?;
                Ok(Outcome::Good)
            }
            Some(_) => {
                print(&format!("{}: unmounted; it stays attached\n", place.path().display()))?;
                Ok(Outcome::Good)
            }
        }
    }
}

impl MountedHome {
    fn ask(&self, said: &str, request: &Request) -> Result<Outcome> {
        let place = Place::find(&self.home)?;
        let done = match ask(&place, request)? {
            Some(Reply::Done { done }) => done,
            Some(_) => return Err(unexpected(&self.home)),
            None => return Err(not_served(&place)),
        };
        let Done { files, blocks, left_out } = &done;
        if self.json {
            print_json(&json!({ "home": place.path(), "done": done }))?;
        } else {
            let went = if *blocks > 0 { format!(" ({blocks} blocks)") } else { String::new() };
            let mut text = format!("{}: {files} files {said}{went}\n", place.path().display());
            for file in left_out {
                text.push_str(&format!("  not {file}\n"));
            }
            print(&text)?;
        }
        Ok(if left_out.is_empty() { Outcome::Good } else { Outcome::Findings })
    }
}
