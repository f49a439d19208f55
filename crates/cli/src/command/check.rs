//! `tiersmith check`: does every invariant of a tier hold, and if not, what does it mean.

use std::path::PathBuf;

use clap::Args;
use tiersmith_sqlite::place::{Standing, as_owner, attachment};
use tiersmith_store::check::{CheckOptions, check};

use super::home::{Home, Subject, lent_in, names_a_tier};
use super::print;
use crate::Outcome;
use crate::error::{Error, Result};
use crate::mounted::control::{Request, ask};
use crate::mounted::place::Place;

/// Check a tier that nobody uses: every invariant, and its clean blocks against the home
///
/// The check is a second reader of the format, apart from the one that the store uses. It never
/// writes to the tier. A SQLite database is opened and closed first, which recovers it and mends
/// what the store can mend. With --cold it is not: the tier is looked at as a crash left it, and
/// nothing at all is changed.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith check app.db
  tiersmith check app.db --cold                       as a crash left it, nothing is opened or \
  recovered
  tiersmith check /data/db                            after tiersmith unmount /data/db
  tiersmith check /data/db --cold --json              as a crash left it
  tiersmith check /data/db --fast /mnt/other/db.tier  its tier was moved

Exit codes: 0 every invariant holds; 1 findings, each with what it means and what to do; 2 error.")]
pub(crate) struct Check {
    #[command(flatten)]
    home: Home,
    /// The tier is as a crash left it: unapplied records and the like are expected
    #[arg(long)]
    cold: bool,
    /// Do not read blocks, neither the clean ones, to compare them with the home, nor the others,
    /// to see whether the medium still has them
    #[arg(long)]
    quick: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is checked.
enum What {
    /// The home and the members of a database that is not opened.
    Cold(PathBuf, Vec<PathBuf>),
    /// Something that was looked at.
    Subject(Subject),
}

impl Check {
    pub(super) fn run(&self) -> Result<Outcome> {
        let (home, members, recovered, database) =
            match self.cold_database()?.map_or_else(|| self.subject(), Ok)? {
                What::Cold(home, members) => (home, members, false, Some(self.home.path.clone())),
                What::Subject(Subject::Directory) => {
                    self.refuse_served()?;
                    (
                        Place::find(&self.home.path)?.path().to_path_buf(),
                        self.home.members()?,
                        false,
                        None,
                    )
                }
                What::Subject(Subject::Database(status)) => {
                    let spec = status
                        .spec
                        .as_ref()
                        .filter(|_| status.standing != Standing::Plain)
                        .ok_or_else(|| {
                            Error::Usage(format!(
                                "{} is not attached; there is no tier to check",
                                status.database.display()
                            ))
                        })?;
                    let recovered = status.trouble.is_none();
                    (
                        status.home.clone(),
                        spec.members.clone(),
                        recovered,
                        Some(status.database.clone()),
                    )
                }
            };
        let options = CheckOptions {
            // A directory's tier is as its last user left it, which was not necessarily in order.
            after_recovery: recovered && !self.cold,
            compare_blocks: !self.quick,
            read_dirty: !self.quick,
            ..CheckOptions::default()
        };
        let check = || {
            let options = CheckOptions {
                was_formatted: names_a_tier(&home),
                lent_in: lent_in(&home),
                ..options
            };
            check(Some(&home), &members, &options)
        };
        let report = match database {
            // What it reads, the database's owner has named.
            Some(database) => as_owner(&database, check)??,
            None => check()?,
        };
        print(&if self.json { format!("{}\n", report.to_json()) } else { format!("{report}\n") })?;
        Ok(if report.is_sound() { Outcome::Good } else { Outcome::Findings })
    }

    fn subject(&self) -> Result<What> {
        self.home.subject().map(What::Subject)
    }

    /// With --cold, the directory and the members of an attached database: from its attachment
    /// file, nothing is opened.
    fn cold_database(&self) -> Result<Option<What>> {
        if !self.cold || !self.home.fast.is_empty() || self.home.path.is_dir() {
            return Ok(None);
        }
        Ok(attachment(&self.home.path)?.map(|(home, spec)| What::Cold(home, spec.members)))
    }

    /// A tier that is written meanwhile looks damaged to a reader that stops nobody.
    fn refuse_served(&self) -> Result<()> {
        let place = Place::find(&self.home.path)?;
        if ask(&place, &Request::Status)?.is_none() {
            return Ok(());
        }
        let path = place.path().display();
        Err(Error::Usage(format!(
            "{path} is mounted, and a tier is checked at rest: stop the database, `tiersmith \
             unmount {path}`, check, and \
             `tiersmith attach {path}` again"
        )))
    }
}
