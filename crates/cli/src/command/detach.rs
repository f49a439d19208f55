//! `tiersmith detach`: everything goes home, and the tier is free.

use clap::Args;
use serde_json::json;
use tiersmith_sqlite::place::{Standing, Status};

use super::home::{Home, Subject};
use super::{print, print_json};
use crate::Outcome;
use crate::error::{Error, Result};
use crate::mounted;

/// Bring everything home and take the tier away: a plain database is left
///
/// Nobody may have the database open: stop it first. What a crash left is recovered first; a detach
/// that was interrupted is finished by the next one. A mounted directory is unmounted, is at its
/// path again, and the tier's file goes if `attach` had made it.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith detach /var/lib/postgresql/15/main
  tiersmith detach app.db
  tiersmith detach --keep-both app.db                            its file was written past \
  Tiersmith: that version is app.db-changed
  tiersmith detach /data/db --fast /mnt/elsewhere/db.tier        its tier was moved
  tiersmith detach --skip-unreadable /data/db                    its tier's medium has lost \
  blocks, and there is no copy of it

Exit codes: 0 it is plain now, or was; 1 it is plain now, and blocks were given up, which are \
listed; 2 error: it is attached still, nothing is lost, and the same command goes on.")]
pub(crate) struct Detach {
    #[command(flatten)]
    home: Home,
    /// The tier is gone for good: give the directory back as home has it. Blocks that were only in
    /// the tier are LOST
    #[arg(long)]
    force_without_tier: bool,
    /// The tier's medium has lost blocks: give up those that cannot be read, and list them. The
    /// directory keeps an older version of each. Without this option one unreadable block keeps it
    /// attached
    #[arg(long, conflicts_with = "force_without_tier")]
    skip_unreadable: bool,
    /// Of a database file whose home was written past Tiersmith: keep that version and Tiersmith's,
    /// as two files
    #[arg(long, conflicts_with_all = ["force_without_tier", "skip_unreadable"])]
    keep_both: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Detach {
    pub(super) fn run(&self) -> Result<Outcome> {
        let path = &self.home.path;
        let done = match self.home.subject()? {
            Subject::Database(status) if self.keep_both => return self.keep_both(&status),
            Subject::Directory if self.keep_both => {
                return Err(Error::Usage(format!(
                    "--keep-both is for one SQLite file, and {} is a directory; without it, the \
                     changed file is named",
                    path.display()
                )));
            }
            Subject::Database(status) if self.skip_unreadable => {
                return Err(Error::Usage(format!(
                    "--skip-unreadable is for a directory, and {} is a single SQLite file; restore \
                     the medium of \
                     its tier from a copy, or the database from a backup",
                    status.database.display()
                )));
            }
            Subject::Database(status) => detach_database(&status)?,
            // A tier named and no note: as the program's API leaves it when the note was removed.
            Subject::Directory if !self.home.fast.is_empty() && self.home.note()?.is_none() => {
                let home = self.home.attach()?;
                let _sigbus = home.watch_sigbus()?;
                let lost = mounted::detach_store(home, self.skip_unreadable)?;
                mounted::Detached {
                    path: path.clone(),
                    was_attached: true,
                    recovery: None,
                    lost,
                    remarks: Vec::new(),
                }
            }
            Subject::Directory => {
                let give_up = match (self.force_without_tier, self.skip_unreadable) {
                    (true, _) => mounted::GiveUp::Tier,
                    (_, true) => mounted::GiveUp::Unreadable,
                    _ => mounted::GiveUp::Nothing,
                };
                mounted::detach(path, &self.home.fast, give_up)?
            }
        };
        self.say(&done)
    }

    fn say(&self, done: &mounted::Detached) -> Result<Outcome> {
        let outcome = if done.lost.is_empty() { Outcome::Good } else { Outcome::Findings };
        if self.json {
            print_json(&json!({
                "path": done.path, "was_attached": done.was_attached, "attached": false,
                "recovery": done.recovery,
                "lost": done.lost, "remarks": done.remarks,
            }))?;
            return Ok(outcome);
        }
        let mut text = match done.was_attached {
            true => format!("{}: detached; it is plain now\n", done.path.display()),
            false => format!("{}: was not attached; nothing to do\n", done.path.display()),
        };
        if let Some(recovery) = &done.recovery {
            text.push_str(&format!("  no daemon served it; recovery before: {recovery}\n"));
        }
        for lost in &done.lost {
            text.push_str(&format!("  LOST: {lost}\n"));
        }
        if !done.lost.is_empty() {
            text.push_str(
                "  The directory has an older version of each of these, or zeros. Check the \
                 database before you \
                 start it; a backup may be the better start\n",
            );
        }
        for remark in &done.remarks {
            text.push_str(&format!("  note: {remark}\n"));
        }
        print(&text)?;
        Ok(outcome)
    }

    fn keep_both(&self, status: &Status) -> Result<Outcome> {
        tiersmith_sqlite::register()?;
        let kept = tiersmith_sqlite::detach_keeping_both(&status.database)?;
        if self.json {
            print_json(&json!({
                "path": kept.database, "changed": kept.changed,
                "blocks_from_home": kept.blocks_from_home, "blocks": kept.blocks,
                "was_attached": true, "attached": false,
            }))?;
            return Ok(Outcome::Good);
        }
        let database = kept.database.display();
        let mut text = match &kept.changed {
            None => format!("{database}: nothing had been changed; detached as usual\n"),
            Some(changed) => format!(
                "{database}: what Tiersmith had\n{}: what was written past Tiersmith\n",
                changed.display()
            ),
        };
        if kept.blocks_from_home > 0 {
            text.push_str(&format!(
                "{} of {} blocks were at home only, where they may have been changed: run PRAGMA \
                 integrity_check on both before you decide\n",
                kept.blocks_from_home, kept.blocks
            ));
        }
        print(&text)?;
        Ok(Outcome::Good)
    }
}

fn detach_database(status: &Status) -> Result<mounted::Detached> {
    let was_attached = status.standing != Standing::Plain;
    if was_attached {
        tiersmith_sqlite::register()?;
        tiersmith_sqlite::detach(&status.database)?;
    }
    Ok(mounted::Detached {
        path: status.database.clone(),
        was_attached,
        recovery: None,
        lost: Vec::new(),
        remarks: Vec::new(),
    })
}
