//! `tiersmith detach`: everything goes home, and the tier is free.

use clap::Args;
use serde_json::json;
use tiersmith_sqlite::place::Standing;

use super::home::{Home, Subject};
use super::{print, print_json};
use crate::Outcome;
use crate::error::Result;

/// Bring everything home and take the tier away: a plain database is left
///
/// What a crash left is recovered first. A detach that was cut is finished by the next one. Nobody may have the database open.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith detach app.db
  tiersmith detach /data/db --fast /mnt/pmem0/db.tier
  tiersmith detach /data/db --fast /dev/shm/db.tier --emulate

Exit codes: 0 it is plain now, or was; 2 error: it is attached still, nothing is lost, and the same command goes on.")]
pub(crate) struct Detach {
    #[command(flatten)]
    home: Home,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Detach {
    pub(super) fn run(&self) -> Result<Outcome> {
        let (path, was) = match self.home.subject()? {
            Subject::Database(status) => {
                if status.standing != Standing::Plain {
                    tiersmith_sqlite::register()?;
                    tiersmith_sqlite::detach(&status.database)?;
                }
                (status.database.clone(), status.standing != Standing::Plain)
            }
            Subject::Directory => {
                self.home.attach()?.detach()?;
                (self.home.path.clone(), true)
            }
        };
        if self.json {
            print_json(&json!({ "path": path, "was_attached": was, "attached": false }))?;
        } else if was {
            print(&format!("{}: detached; it is plain now\n", path.display()))?;
        } else {
            print(&format!("{}: was not attached; nothing to do\n", path.display()))?;
        }
        Ok(Outcome::Good)
    }
}
