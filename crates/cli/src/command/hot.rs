//! `tiersmith hot`: which files of a mounted home are hot, and what to pin.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tiersmith_awr::sources::Address;

use super::status::seconds;
use super::{nobody_reads, print, print_as_it_is, print_json};
use crate::Outcome;
use crate::error::Result;
use crate::hot::{self, Advice, By, Over};
use crate::messages;
use crate::mounted::control::{Reply, Request, ask};
use crate::mounted::place::Place;
use crate::mounted::{LiveHot, not_served, unexpected};

/// Show which files of a mounted home are hot, and what to pin
///
/// For each file, or with --url for each table and index: blocks read, blocks read from home
/// (misses) and blocks written, a second, decayed with half-lives of a minute and an hour; and the
/// waiting for home that a pin would save. It ends with the commands that pin what is worth it and
/// fits, or with why there is nothing to gain. The daemon knows the rates from counters that it
/// looks at every five seconds.
///
/// With the address of PostgreSQL its relations are named, and their segments and forks that were
/// used are one line. MariaDB's and MySQL's tables are named by their paths; with an address the
/// server reads names in other alphabets. Passwords come from where `tiersmith awr record` takes
/// them.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith hot /var/lib/postgresql/15/main
  tiersmith hot /var/lib/postgresql/15/main --url postgresql:///postgres --top 10
  tiersmith hot /var/lib/mysql --by writes --over minute --every 5
  tiersmith hot /var/lib/mysql --json

Exit codes: 0 shown, whether there is something to pin or not; 1 shown, but the server of --url \
could not name all of it, and it says why; 2 error.")]
pub(crate) struct Hot {
    /// The database's directory
    #[arg(value_name = "HOME")]
    home: PathBuf,
    /// The server whose directory it is, to name tables and indexes: postgresql://USER@HOST:PORT/DB
    /// or mariadb://, as for `tiersmith awr record`
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// How many are listed
    #[arg(long, value_name = "N", default_value_t = 20,
    value_parser = clap::value_parser!(u32).range(1..=10_000))]
    top: u32,
    /// What comes first
    #[arg(long, value_enum, default_value = "saved")]
    by: By,
    /// Over which time it is sorted, and advice is given
    #[arg(long, value_enum, default_value = "hour")]
    over: Over,
    /// Show it again every so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    every: Option<Duration>,
    /// Print JSON (with --every one line for each look)
    #[arg(long)]
    json: bool,
}

impl Hot {
    pub(super) fn run(&self) -> Result<Outcome> {
        let address = self.url.as_deref().map(Address::parse).transpose()?;
        let place = Place::find(&self.home)?;
        loop {
            let hot = match ask(&place, &Request::Hot)? {
                Some(Reply::Hot { hot }) => hot,
                Some(_) => return Err(unexpected(&self.home)),
                None => return Err(not_served(&place)),
            };
            let named = self.show(&hot, address.as_ref())?;
            let Some(every) = self.every.filter(|_| !nobody_reads()) else {
                return Ok(if named { Outcome::Good } else { Outcome::Findings });
            };
            std::thread::sleep(every);
        }
    }

    /// Whether all of it could be named.
    fn show(&self, hot: &LiveHot, address: Option<&Address>) -> Result<bool> {
        let mut objects = hot::objects(hot, address.is_some(), self.over);
        hot::sort(&mut objects, By::Saved, self.over);
        let mut troubles = Vec::new();
        let top = self.top as usize;
        if let Some(address) = address {
            // What is listed and what is to be pinned: the first by either order.
            let mut others = objects.split_off(objects.len().min(top.max(hot::NAMED_LEAST)));
            hot::sort(&mut others, self.by, self.over);
            let cold = others.split_off(others.len().min(top));
            objects.extend(others);
            troubles = hot::name_by(address, hot, &mut objects);
            objects.extend(cold);
            hot::sort(&mut objects, By::Saved, self.over);
        }
        let advice = Advice::of(hot, &objects, self.over);
        hot::sort(&mut objects, self.by, self.over);
        if self.json {
            let LiveHot { home, known_s, half_lives_s, home_read_us, tier_read_us, tiers, .. } =
                hot;
            let listed = &objects[..objects.len().min(top)];
            let all = json!({
                "home": home, "profile": hot.profile, "emulated": hot.emulated,
                "home_model": hot.home_model, "known_s": known_s, "half_lives_s": half_lives_s,
                "home_read_us": home_read_us, "tier_read_us": tier_read_us, "tiers": tiers,
                "by": self.by, "over": self.over, "objects": listed,
                "objects_not_listed": objects.len() as u64 - listed.len() as u64
                    + hot.files_left_out,
                "not_named": troubles, "advice": advice,
            });
            match self.every {
                Some(_) => print_as_it_is(&(messages::json(&all.to_string()) + "\n"))?,
                None => print_json(&all)?,
            }
        } else {
            let order = (self.by, self.over);
            let text = hot::text(hot, &objects, top, order, (&troubles, &advice));
            match self.every.is_some() && std::io::stdout().is_terminal() {
                true => {
                    print_as_it_is(&format!("\x1b[H\x1b[2J{}", messages::output(&text)))?;
                }
                false => print(&text)?,
            }
        }
        Ok(troubles.is_empty())
    }
}
