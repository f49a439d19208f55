//! `tiersmith status`: is it attached, to what, and what is in the tier.

use clap::Args;
use serde_json::json;
use tiersmith_sqlite::place::{Placement, Standing, Status as PlaceStatus};
use tiersmith_store::check::{CheckOptions, check};

use super::home::{Home, Subject};
use super::{print, print_json};
use crate::Outcome;
use crate::error::Result;

/// Say whether a database or directory is attached, to what, and what is in its tier
///
/// An attached SQLite database is opened for that, and recovered if a crash left it; so no other process may have it open. A directory's
/// tier is only read, and must not be in use.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith status app.db
  tiersmith status app.db --json
  tiersmith status /data/db --fast /mnt/pmem0/db.tier

Exit codes: 0 plain, or attached and sound; 1 there is something to mend, and it says what; 2 error.")]
pub(crate) struct Status {
    #[command(flatten)]
    home: Home,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Status {
    pub(super) fn run(&self) -> Result<Outcome> {
        match self.home.subject()? {
            Subject::Database(status) => self.database(&status),
            Subject::Directory => self.directory(),
        }
    }

    fn database(&self, status: &PlaceStatus) -> Result<Outcome> {
        if self.json {
            let spec = status.spec.as_ref().map(|spec| {
                json!({ "members": spec.members, "emulated": spec.emulate, "place": word(spec.place) })
            });
            let blocks = status.blocks.as_ref().map(|blocks| {
                json!({
                    "tier_bytes": blocks.tier_bytes, "dirty_bytes": blocks.dirty_bytes, "cached_bytes": blocks.cached_bytes,
                    "free_bytes": blocks.free_bytes, "media": blocks.media,
                })
            });
            print_json(&json!({
                "database": status.database, "standing": status.standing.word(), "home": status.home, "tier": spec,
                "blocks": blocks, "trouble": status.trouble,
            }))?;
        } else {
            print(&status.to_string())?;
        }
        let well =
            matches!(status.standing, Standing::Plain | Standing::Attached) && status.trouble.is_none();
        Ok(if well { Outcome::Good } else { Outcome::Findings })
    }

    fn directory(&self) -> Result<Outcome> {
        let options =
            CheckOptions { after_recovery: false, compare_blocks: false, ..CheckOptions::default() };
        let report = check(None, &self.home.fast, &options)?;
        let summary = &report.summary;
        if self.json {
            print_json(summary)?;
        } else {
            let mut text =
                format!("{}: tier `{}` is {}", self.home.path.display(), summary.tier, summary.state);
            text.push_str(&format!(
                "\n  home as the tier has it: {}\n  files: {}\n  in the tier: {} blocks dirty ({} bytes), {} blocks cached; {} of {} frames used\n",
                summary.home, summary.files, summary.blocks_dirty, summary.dirty_bytes, summary.blocks_cached,
                summary.frames_used, summary.frames_total
            ));
            print(&text)?;
        }
        Ok(if report.is_sound() { Outcome::Good } else { Outcome::Findings })
    }
}

/// As in the URI parameter `place`.
fn word(placement: Placement) -> &'static str {
    match placement {
        Placement::All => "all",
        Placement::Redo => "redo",
        Placement::Data => "data",
    }
}
