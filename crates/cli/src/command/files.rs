//! `tiersmith flush`, `pin`, `unpin`, `move`, `unmount`: what the daemon of a mounted home is asked
//! to do.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tiersmith_lab::ByteSize;
use tiersmith_lab::study::Progress;

use super::{print, print_json};
use crate::Outcome;
use crate::error::{Error, Result};
use crate::mounted::control::{Done, Reply, Request, To, ask, ask_and_follow};
use crate::mounted::place::{Place, Standing};
use crate::mounted::{not_served, unexpected};
use crate::progress::Line;

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
///
/// The database goes on meanwhile. Ctrl-C ends the command; the daemon goes on, and `status` says
/// how far it is. After --stop, an unmount or a crash the same command goes on where it was: a file
/// is pinned once all of it is there. `tiersmith hot` says which files are worth it.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith pin /var/lib/postgresql/15/main 'base/16384/*'
  tiersmith pin /var/lib/mysql 'shop/orders.ibd' --rate 20M
  tiersmith pin /var/lib/mysql --stop

Exit codes: 0 done; 1 not to every file (the tier is too small, the profile lets it pass, or it \
was ended), and it says to which not; 2 error.")]
pub(crate) struct Pin {
    #[command(flatten)]
    mounted: MountedHome,
    /// Files, by a glob pattern of their paths inside the home
    #[arg(value_name = "PATTERN", required_unless_present = "stop")]
    pattern: Option<String>,
    #[command(flatten)]
    pace: Pace,
}

/// How fast files are moved.
#[derive(Debug, Args)]
struct Pace {
    /// Move no more than so many bytes a second; 0 for as fast as it goes
    #[arg(long, value_name = "BYTES", default_value = "100M")]
    rate: ByteSize,
    /// End the pin or the move that runs
    #[arg(long, conflicts_with_all = ["pattern", "rate"])]
    stop: bool,
}

impl Pace {
    fn bytes_per_s(&self) -> Option<u64> {
        (self.rate.0 > 0).then_some(self.rate.0)
    }
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
///
/// The database goes on meanwhile: what it writes behind the move stays in the tier. A file that is
/// lent to the kernel goes home at once, whatever the rate. Ctrl-C, --stop and a crash are as for
/// `pin`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith move /var/lib/mysql 'shop/*.ibd' --to tier
  tiersmith move /var/lib/mysql 'archive/*.ibd' --to home --rate 20M
  tiersmith move /var/lib/mysql --stop

Exit codes: 0 done; 1 not to every file, or it was ended, and it says to which not; 2 error.")]
pub(crate) struct Move {
    #[command(flatten)]
    mounted: MountedHome,
    /// Files, by a glob pattern of their paths inside the home
    #[arg(value_name = "PATTERN", required_unless_present = "stop")]
    pattern: Option<String>,
    /// Where to
    #[arg(long, value_enum, required_unless_present = "stop", conflicts_with = "stop")]
    to: Option<To>,
    #[command(flatten)]
    pace: Pace,
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
        let Some(pattern) = &self.pattern else { return self.mounted.stop() };
        let bytes_per_s = self.pace.bytes_per_s();
        self.mounted.ask("pinned", &Request::Pin { pattern: pattern.clone(), bytes_per_s })
    }
}

impl Unpin {
    pub(super) fn run(&self) -> Result<Outcome> {
        self.mounted.ask("unpinned", &Request::Unpin { pattern: self.pattern.clone() })
    }
}

impl Move {
    pub(super) fn run(&self) -> Result<Outcome> {
        let Some((pattern, to)) = self.pattern.as_ref().zip(self.to) else {
            return self.mounted.stop();
        };
        let said = match to {
            To::Tier => "moved into the tier",
            To::Home => "moved home",
        };
        let bytes_per_s = self.pace.bytes_per_s();
        self.mounted.ask(said, &Request::Move { pattern: pattern.clone(), to, bytes_per_s })
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
        let line = Line::new();
        let answer =
            ask_and_follow(&place, request, &mut |moves| line.step(&moves.far(), moves.share()));
        line.clear();
        let done = match answer? {
            Some(Reply::Done { done }) => done,
            Some(_) => return Err(unexpected(&self.home)),
            None => return Err(not_served(&place)),
        };
        let Done { files, blocks, left_out, ended } = &done;
        if self.json {
            print_json(&json!({ "home": place.path(), "done": done }))?;
        } else {
            let went = if *blocks > 0 { format!(" ({blocks} blocks)") } else { String::new() };
            let mut text = format!("{}: {files} files {said}{went}\n", place.path().display());
            for file in left_out {
                text.push_str(&format!("  not {file}\n"));
            }
            if *ended {
                text.push_str(
                    "  not the others: it was ended before its end; the same command goes on where \
                     it was\n",
                );
            }
            print(&text)?;
        }
        let whole = left_out.is_empty() && !ended;
        Ok(if whole { Outcome::Good } else { Outcome::Findings })
    }

    /// Ends the pin or the move that runs.
    fn stop(&self) -> Result<Outcome> {
        let place = Place::find(&self.home)?;
        let ran = match ask(&place, &Request::MoveStop)? {
            Some(Reply::Done { done }) => done.files > 0,
            Some(_) => return Err(unexpected(&self.home)),
            None => return Err(not_served(&place)),
        };
        if self.json {
            print_json(&json!({ "home": place.path(), "stopped": ran }))?;
        } else {
            let said = if ran { "the pin or move was ended" } else { "no pin or move ran" };
            print(&format!("{}: {said}\n", place.path().display()))?;
        }
        Ok(Outcome::Good)
    }
}
