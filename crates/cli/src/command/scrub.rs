//! `tiersmith scrub`: every block of a mounted home's tiers is compared with its checksum.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use tiersmith_lab::ByteSize;
use tiersmith_lab::study::Progress;

use super::home::is_database_file;
use super::{print, print_json};
use crate::Outcome;
use crate::error::{Error, Result};
use crate::mounted::control::{Reply, Request, ask};
use crate::mounted::place::Place;
use crate::mounted::{LiveScrub, not_served, size, unexpected};
use crate::progress::Line;

/// How often the daemon is asked how far it is.
const EVERY: Duration = Duration::from_millis(500);

/// A scrub that has read nothing for so long is stuck, or its daemon says what is not true.
const STUCK: Duration = Duration::from_secs(10 * 60);
/// What it may read in one go, however slow it is to be.
const BLOCK_MOST: u64 = 1 << 20;

/// Read every block of a mounted home's tier, and compare it with its checksum
///
/// A clean copy that is not what was written is given up, and read from home from then on. A block
/// whose newest version is only in the tier and is not what was written is named; reading it is an
/// error until it is written again. The database goes on meanwhile. Ctrl-C ends the command; the
/// scrub goes on in the daemon. Redo has no checksums, nor have files that the kernel writes
/// itself. `tiersmith check` does the same to a tier that nobody uses.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith scrub /var/lib/postgresql/15/main
  tiersmith scrub /var/lib/postgresql/15/main --rate 20M
  tiersmith scrub /var/lib/postgresql/15/main --stop

Exit codes: 0 all blocks are what was written; 1 some were not, or it was ended before its end; 2 \
error.")]
pub(crate) struct Scrub {
    /// The database's directory
    #[arg(value_name = "HOME")]
    home: PathBuf,
    /// Read no more than so many bytes a second; 0 for as fast as it goes
    #[arg(long, value_name = "BYTES", default_value = "100M")]
    rate: ByteSize,
    /// End the scrub that runs
    #[arg(long)]
    stop: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Scrub {
    pub(super) fn run(&self) -> Result<Outcome> {
        if is_database_file(&self.home) {
            return Err(Error::Usage(format!(
                "{} is a file, and only its own process uses its tier: `tiersmith check {0}` \
                 compares every block while \
                 nobody has it open",
                self.home.display()
            )));
        }
        let place = Place::find(&self.home)?;
        let request = if self.stop {
            Request::ScrubStop
        } else {
            Request::Scrub { bytes_per_s: (self.rate.0 > 0).then_some(self.rate.0) }
        };
        match ask(&place, &request)? {
            Some(Reply::Done { done }) if self.stop => {
                return self.said_to_stop(&place, done.files > 0);
            }
            Some(Reply::Done { .. }) => {}
            Some(_) => return Err(unexpected(&self.home)),
            None => return Err(not_served(&place)),
        }
        let scrub = self.wait(&place)?;
        let well = scrub.whole && scrub.repaired == 0 && scrub.lost == 0;
        if self.json {
            print_json(&json!({ "home": place.path(), "scrub": scrub }))?;
        } else {
            let end = if scrub.whole { "scrubbed" } else { "ended before its end, scrubbed" };
            print(&format!("{}: {end} {}\n", place.path().display(), scrub.found()))?;
        }
        Ok(if well { Outcome::Good } else { Outcome::Findings })
    }

    fn wait(&self, place: &Place) -> Result<LiveScrub> {
        let line = Line::new();
        let pause = BLOCK_MOST.checked_div(self.rate.0).unwrap_or(0);
        let patience = STUCK + Duration::from_secs(pause);
        let mut moved = (0, Instant::now());
        loop {
            let scrub = match ask(place, &Request::Status)? {
                Some(Reply::Status { live }) => live.scrub,
                Some(_) => return Err(unexpected(&self.home)),
                None => {
                    line.clear();
                    return Err(Error::Usage(format!(
                        "{} was unmounted before the scrub came to its end",
                        place.path().display()
                    )));
                }
            };
            if !scrub.running {
                line.clear();
                return Ok(scrub);
            }
            if scrub.bytes != moved.0 {
                moved = (scrub.bytes, Instant::now());
            } else if moved.1.elapsed() > patience {
                line.clear();
                return Err(Error::Usage(format!(
                    "the daemon of {} has read nothing for {} s; `tiersmith status {0}` says how \
                     far the scrub is, `tiersmith scrub {0} --stop` ends it",
                    place.path().display(),
                    patience.as_secs()
                )));
            }
            let (done, all) = (size(scrub.bytes), size(scrub.of_bytes));
            line.step(&format!("{done} of {all} bytes"), scrub.share());
            std::thread::sleep(EVERY);
        }
    }

    fn said_to_stop(&self, place: &Place, ran: bool) -> Result<Outcome> {
        if self.json {
            print_json(&json!({ "home": place.path(), "stopped": ran }))?;
        } else {
            let said = if ran { "the scrub was ended" } else { "no scrub ran" };
            print(&format!("{}: {said}\n", place.path().display()))?;
        }
        Ok(Outcome::Good)
    }
}
