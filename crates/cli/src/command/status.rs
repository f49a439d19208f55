//! `tiersmith status`: is it attached, to what, and what is in the tier.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use tiersmith_block::Health;
use tiersmith_sqlite::place::{FastSpec, Placement, Standing, Status as PlaceStatus, as_owner};
use tiersmith_store::Attachment;
use tiersmith_store::check::{CheckError, CheckOptions, CheckReport, Finding, Severity, check};

use super::home::{Home, Subject, lent_in, names_a_tier};
use super::{nobody_reads, print, print_as_it_is, print_json};
use crate::Outcome;
use crate::error::{Error, Result};
use crate::health;
use crate::messages;
use crate::mounted::control::{Reply, Request, ask};
use crate::mounted::place::Place;
use crate::mounted::{Live, unexpected, unreachable};

/// Say whether a database or directory is attached, to what, and what is in its tier
///
/// Of a mounted directory its daemon is asked: use of the tier by state and class, hit ratio, how
/// far home is behind, and how requests arrive. Of each disk below the tier its health is said; an
/// NVMe disk tells root only. An attached SQLite database is opened for that, and
/// recovered if a crash left it; so no other process may have it open. Of a directory that is
/// attached and not mounted the tier is read.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith status /var/lib/postgresql/15/main
  tiersmith status /var/lib/postgresql/15/main --watch
  tiersmith status app.db --json

Exit codes: 0 plain, mounted, or a database attached and sound; 1 there is something to mend, and \
it says what: not mounted, a tier that is damaged, a disk that warns; 2 error.")]
pub(crate) struct Status {
    #[command(flatten)]
    home: Home,
    /// Of a mounted directory: look again every SECONDS, until it is unmounted or Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
    value_parser = seconds)]
    watch: Option<Duration>,
    /// Print JSON (with --watch one line for each look)
    #[arg(long)]
    json: bool,
}

pub(super) fn seconds(text: &str) -> std::result::Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("give seconds, from 0.1 to 86400".into()),
    }
}

impl Status {
    pub(super) fn run(&self) -> Result<Outcome> {
        match self.home.subject()? {
            Subject::Database(status) => self.database(&status),
            Subject::Directory => self.directory(),
        }
    }

    fn database(&self, status: &PlaceStatus) -> Result<Outcome> {
        // It cannot be opened: `check` tells whether that is because of its tier, and what it
        // means.
        let tier =
            status.spec.as_ref().filter(|_| status.trouble.is_some() && status.blocks.is_none());
        // What it reads, the database's owner has named.
        let look = |spec: &FastSpec| look_at(&status.home, &spec.members);
        let report = tier.and_then(|spec| as_owner(&status.database, || look(spec)).ok()?.ok());
        let report = report.filter(|report| !report.is_sound());
        let disks = status.spec.as_ref().map_or(Vec::new(), |spec| health::below(&spec.members));
        if self.json {
            let spec = status.spec.as_ref().map(|spec| {
                json!({ "members": spec.members, "emulated": spec.emulate,
                "place": word(spec.place) })
            });
            let blocks = status.blocks.as_ref().map(|blocks| {
                json!({
                    "tier_bytes": blocks.tier_bytes, "dirty_bytes": blocks.dirty_bytes,
                    "cached_bytes": blocks.cached_bytes,
                    "free_bytes": blocks.free_bytes, "media": blocks.media,
                })
            });
            print_json(&json!({
                "database": status.database, "standing": status.standing.word(),
                "home": status.home, "tier": spec,
                "blocks": blocks, "trouble": status.trouble, "check": report.as_ref().map(findings),
                "disks": disks,
            }))?;
        } else {
            let path = status.database.display().to_string();
            print(&format!(
                "{status}{}{}",
                report.map_or_else(String::new, |report| damage(&report, &path)),
                health::lines(&disks)
            ))?;
        }
        let well = matches!(status.standing, Standing::Plain | Standing::Attached)
            && status.trouble.is_none()
            && health::is_well(&disks);
        Ok(if well { Outcome::Good } else { Outcome::Findings })
    }

    fn directory(&self) -> Result<Outcome> {
        let place = Place::find(&self.home.path)?;
        let began = Instant::now();
        let mut live = loop {
            if let Some(live) = self.live(&place)? {
                break live;
            }
            match self.at_rest(&place) {
                // A daemon that ends has unmounted before it lets go of its tier, and one that
                // begins has the tier before it is mounted.
                Err(Error::Check(CheckError::Owned { .. })) if began.elapsed() < CHANGING_MAX => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                told => return told,
            }
        };
        let disks_below = || health::below(&self.home.members().unwrap_or_default());
        let (mut disks, mut asked) = (disks_below(), Instant::now());
        loop {
            self.show(&live, &disks)?;
            let Some(every) = self.watch.filter(|_| !nobody_reads()) else {
                let well = health::is_well(&disks)
                    && live.background_error.is_none()
                    && live.trouble_with_files().is_empty()
                    && live.trouble_with_media().is_empty();
                return Ok(if well { Outcome::Good } else { Outcome::Findings });
            };
            std::thread::sleep(every);
            // A command to the disk, which serves others.
            if asked.elapsed() >= DISKS_EVERY {
                (disks, asked) = (disks_below(), Instant::now());
            }
            match self.live(&place)? {
                Some(next) => live = next,
                None => {
                    print(&format!("{}: no longer mounted\n", place.path().display()))?;
                    return Ok(Outcome::Good);
                }
            }
        }
    }

    fn live(&self, place: &Place) -> Result<Option<Live>> {
        match ask(place, &Request::Status)? {
            Some(Reply::Status { live }) => Ok(Some(*live)),
            Some(_) => Err(unexpected(place.path())),
            None => Ok(None),
        }
    }

    fn show(&self, live: &Live, disks: &[Health]) -> Result<()> {
        let standing = json!({ "standing": "mounted", "live": live, "disks": disks });
        let text = || live.text() + &health::lines(disks);
        match (self.json, self.watch.is_some()) {
            (true, true) => print_as_it_is(&(messages::json(&standing.to_string()) + "\n")),
            (true, false) => print_json(&standing),
            (false, true) if std::io::stdout().is_terminal() => {
                print_as_it_is(&format!("\x1b[H\x1b[2J{}", messages::output(&text())))
            }
            _ => print(&text()),
        }
    }

    /// No daemon serves it.
    fn at_rest(&self, place: &Place) -> Result<Outcome> {
        let path = place.path().display();
        if let Some(why) = unreachable(place) {
            if self.json {
                let standing = "mounted, and not to be asked";
                print_json(&json!({ "home": place.path(), "standing": standing, "trouble": why }))?;
            } else {
                print(&format!("{why}\n"))?;
            }
            return Ok(Outcome::Findings);
        }
        let note = self.home.note()?;
        if note.is_none() && self.home.fast.is_empty() {
            return self.plain(place);
        }
        let members = self.home.members()?;
        let gone = |member: &&PathBuf| {
            member.symlink_metadata().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
        };
        if let Some(member) = members.iter().find(gone) {
            let trouble = format!(
                "its tier {} is not there. Mount the fast storage it is on, or say where it is \
                 with --fast; nothing is \
                 lost as long as that file is not",
                messages::path(member)
            );
            if self.json {
                print_json(&json!({
                    "home": place.path(), "standing": "attached, not mounted", "members": members,
                    "trouble": trouble,
                }))?;
            } else {
                print(&format!("{path}: attached; it is not mounted, and {trouble}\n"))?;
            }
            return Ok(Outcome::Findings);
        }
        let report = look_at(place.path(), &members)?;
        let disks = health::below(&members);
        if self.json {
            print_json(&at_rest_as_json(note.as_ref(), &members, &report, &disks))?;
        } else {
            let emulated = note.as_ref().is_some_and(is_emulated);
            print(&at_rest_as_text(&path.to_string(), emulated, &report, &disks))?;
        }
        Ok(Outcome::Findings)
    }

    /// It is not attached.
    fn plain(&self, place: &Place) -> Result<Outcome> {
        let path = place.path().display();
        let left = place.has_to_remove();
        if self.json {
            print_json(&json!({ "home": place.path(), "standing": "plain",
                "interrupted_detach": left }))?;
        } else if left {
            print(&format!(
                "{path}: not attached; a detach was interrupted at its end, `tiersmith detach \
                 {path}` removes what it left\n"
            ))?;
        } else {
            print(&format!("{path}: not attached\n"))?;
        }
        Ok(if left { Outcome::Findings } else { Outcome::Good })
    }
}

/// How long another process may have the tier of a home that is not mounted before that is an
/// error: between two states it has it for a moment.
const CHANGING_MAX: Duration = Duration::from_secs(10);
/// How often `--watch` asks the disks at most.
const DISKS_EVERY: Duration = Duration::from_secs(60);

/// Findings that are shown; `check` shows all.
const SHOWN: usize = 5;

/// What `check` finds in a tier at rest. Reads every block that exists only there, but no clean
/// ones.
fn look_at(home: &Path, members: &[PathBuf]) -> Result<CheckReport> {
    let options = CheckOptions {
        after_recovery: false,
        compare_blocks: false,
        was_formatted: names_a_tier(home),
        lent_in: lent_in(home),
        ..CheckOptions::default()
    };
    match check(Some(home), members, &options) {
        Err(CheckError::Home { .. }) => Ok(check(None, members, &options)?),
        other => Ok(other?),
    }
}

/// The part of a report that says whether the tier is sound.
fn findings(report: &CheckReport) -> serde_json::Map<String, serde_json::Value> {
    let all = json!({
        "sound": report.is_sound(), "at_stake": report.at_stake(), "findings": report.findings,
        "counts": report.counts,
        "omitted": report.omitted,
    });
    match all {
        serde_json::Value::Object(fields) => fields,
        _ => serde_json::Map::new(),
    }
}

/// Invariants about the home. When only these do not hold, the tier itself is whole.
const ABOUT_HOME: [u8; 3] = [13, 14, 15];

/// For people: what is at stake in a tier that is not sound, and what to do before anything else.
fn damage(report: &CheckReport, path: &str) -> String {
    let stake = report.at_stake().unwrap_or_default();
    let wrong = || report.findings.iter().filter(|finding| finding.severity != Severity::Note);
    let shown = wrong().take(SHOWN).count() as u64;
    let about_tier = |finding: &Finding| match finding.severity {
        Severity::Damage => true,
        Severity::Inconsistent => !ABOUT_HOME.contains(&finding.invariant),
        _ => false,
    };
    let damaged = wrong().any(about_tier) || report.summary.dirty_lost > 0 || report.omitted > 0;
    let mut text = format!("  {}: {stake}\n", if damaged { "DAMAGED" } else { "NOT SOUND" });
    for finding in wrong().take(SHOWN) {
        text.push_str(&format!(
            "  {}: {}: expected {}, found {}\n    means: {}\n    what to do: {}\n",
            finding.severity.name(),
            finding.place,
            finding.expected,
            finding.found,
            finding.meaning,
            finding.remedy
        ));
    }
    let more = report.counts.iter().sum::<u64>() - report.count(Severity::Note) - shown;
    if more > 0 {
        text.push_str(&format!("  and {more} more findings\n"));
    }
    text.push_str(match damaged {
        true => {
            "  Do not attach or detach before this is repaired, and copy the tier's members before \
             you \
             change them."
        }
        false => "  Do what the findings say before you attach or detach.",
    });
    text.push_str(&format!(
        " `tiersmith check {path} --cold` lists every finding with its remedy\n"
    ));
    text
}

fn is_emulated(note: &Attachment) -> bool {
    note.tiers.iter().any(|tier| tier.emulated)
}

/// An attached directory that no daemon serves, for programs.
fn at_rest_as_json(
    note: Option<&Attachment>,
    members: &[PathBuf],
    report: &CheckReport,
    disks: &[Health],
) -> serde_json::Value {
    let mut all = serde_json::to_value(&report.summary).unwrap_or_default();
    if let Some(fields) = all.as_object_mut() {
        let _ = fields.insert("standing".into(), "attached, not mounted".into());
        let _ = fields.insert("interrupted".into(), json!(interrupted(&report.summary.state)));
        let _ = fields.insert("emulated".into(), note.is_some_and(is_emulated).into());
        let _ = fields.insert("members".into(), json!(members));
        let _ = fields.insert("disks".into(), json!(disks));
        let _ = fields.insert("profile".into(), json!(note.map(|note| note.profile.clone())));
        let _ = fields.insert("files_are_in".into(), json!(note.map(|note| &note.files)));
        fields.extend(findings(report));
    }
    all
}

/// The same for people.
fn at_rest_as_text(path: &str, emulated: bool, report: &CheckReport, disks: &[Health]) -> String {
    let (summary, sound) = (&report.summary, report.is_sound());
    let label = if emulated { " (EMULATED)" } else { "" };
    let mut text = match &summary.tier[..] {
        "" => {
            format!("{path}: attached to a tier{label} that cannot be read; it is not mounted\n")
        }
        name => {
            format!("{path}: tier `{name}`{label} is {}; it is not mounted\n", summary.state)
        }
    };
    if let Some(what) = interrupted(&summary.state).filter(|_| sound) {
        text.push_str(&format!(
            "  {what} was interrupted; nothing is lost, and either command below goes on\n"
        ));
    }
    if !sound {
        text.push_str(&damage(report, path));
    } else {
        text.push_str(&format!(
            "  home as the tier has it: {}\n  files: {}\n  in the tier: {} blocks dirty ({} \
             bytes), {} blocks cached; {} of {} frames used\n",
            summary.home,
            summary.files,
            summary.blocks_dirty,
            summary.dirty_bytes,
            summary.blocks_cached,
            summary.frames_used,
            summary.frames_total
        ));
    }
    if let Some(lent) = summary.lent_line() {
        text.push_str(&format!("  {lent}\n"));
    }
    text.push_str(&health::lines(disks));
    if sound {
        text.push_str(&format!(
            "  to use it: `tiersmith attach {path}`, which recovers it and mounts it; to have \
             it plain: `tiersmith detach {path}`\n"
        ));
    }
    text
}

/// Which command has left the tier in this state, if one was ended on its way.
fn interrupted(state: &str) -> Option<&'static str> {
    match state {
        "attaching" => Some("an attach"),
        "detaching" => Some("a detach"),
        _ => None,
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
