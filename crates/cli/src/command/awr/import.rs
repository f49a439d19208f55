//! `tiersmith awr import`: Oracle's AWR and Statspack reports as snapshots.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tiersmith_awr::import::{self, Imported};
use tiersmith_awr::{AnyRepository, Entry, Snapshot, SnapshotId, figure};

use super::super::{print, print_json};
use crate::Outcome;
use crate::error::Result;

/// Read Oracle's reports: AWR in HTML or text (11.2 and later, single instance or RAC), and
/// Statspack in text
///
/// Each becomes two snapshots, the begin and the end of its interval, which report and compare as
/// any others do. What is not known is left out, and so is a report of an interval that is there
/// already.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith awr import before.html after.html --to oracle.db
  tiersmith awr import before.html --verbose         every section, read or not
  tiersmith awr compare --in oracle.db 1 2 3 4

Exit codes: 0 read; 1 read, but of a report no wait event; 2 error, and nothing was kept.")]
pub(crate) struct Import {
    /// The reports
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The repository, made if it is not there
    #[arg(long, value_name = "PATH", default_value = super::DEFAULT_FILE)]
    to: PathBuf,
    /// List every section that was read or not, and what was left out of those that were
    #[arg(long)]
    verbose: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Import {
    pub(super) fn run(&self) -> Result<Outcome> {
        // Everything is read before anything is kept: a file that is no report imports nothing.
        let read = self
            .files
            .iter()
            .map(|file| Ok((file, import::read(file)?)))
            .collect::<Result<Vec<_>>>()?;
        let repository = AnyRepository::open(&self.to)?;
        let kept = repository.list()?.entries;
        let (mut text, mut all, mut outcome) = (String::new(), Vec::new(), Outcome::Good);
        let mut new: Vec<(&PathBuf, &Imported)> = Vec::new();
        for (file, imported) in &read {
            let same = new
                .iter()
                .find(|(_, other)| imported.adds_nothing_to(other.begin.taken_unix_ns, &other.end));
            let place = match (same, there_already(&repository, &kept, imported)?) {
                (Some((other, _)), _) => other.display().to_string(),
                (None, Some(end)) => format!("snapshot {end} in {}", self.to.display()),
                (None, None) => {
                    new.push((file, imported));
                    continue;
                }
            };
            text.push_str(&format!(
                "{}: not kept again, because it is of the same interval as {place}\n",
                file.display()
            ));
            all.push(json!({ "file": file, "kind": imported.kind, "same_as": place }));
        }
        let snapshots: Vec<Snapshot> = new
            .iter()
            .flat_map(|(_, imported)| [imported.begin.clone(), imported.end.clone()])
            .collect();
        let mut ids = repository.take_all(&snapshots)?.into_iter();
        for (file, imported) in new {
            let (begin, end) = (ids.next(), ids.next());
            let (Some(begin), Some(end)) = (begin, end) else { break };
            let source = &imported.end.source;
            let printed = imported.begin.printed_number.zip(imported.end.printed_number);
            let printed = printed
                .map_or(String::new(), |(begin, end)| format!(", in the report {begin} and {end}"));
            text.push_str(&format!(
                "{}: {} of {}, snapshots {begin} and {end} in {}{printed}\n",
                file.display(),
                imported.kind,
                figure::visible(&source.database),
                self.to.display()
            ));
            if imported.end.waits.is_empty() {
                outcome = Outcome::Findings;
                text.push_str(
                    "  NO WAIT EVENTS could be read: reports of it say nothing of waits\n",
                );
            }
            text.push_str(&self.summary(imported));
            all.push(json!({
                "file": file, "kind": imported.kind, "database": source.database, "begin": begin,
                "end": end, "printed_begin": imported.begin.printed_number,
                "printed_end": imported.end.printed_number, "read": imported.read,
                "not_read": imported.unknown, "left_out": imported.left_out,
                "whole": imported.whole,
            }));
        }
        if self.json {
            print_json(&json!({ "repository": self.to, "imported": all }))?;
        } else {
            print(&text)?;
        }
        Ok(outcome)
    }
}

impl Import {
    /// What was read and what was not, in a few lines; every name of it if that is wanted.
    fn summary(&self, imported: &Imported) -> String {
        let mut text = String::new();
        if !imported.whole {
            text.push_str(
                "  TRUNCATED: the file ends before the report does; make the report anew\n",
            );
        }
        let missed: Vec<String> = imported.missed().into_iter().map(figure::visible).collect();
        let skipped = imported.unknown.len();
        let (read, left) = (imported.read.len(), imported.left_out.len());
        text.push_str(&format!("  {read} sections read, {skipped} not read"));
        if !missed.is_empty() {
            text.push_str(&format!(", among them what findings rest on: {}", missed.join("; ")));
        }
        if left > 0 {
            text.push_str("; some figures were left out");
        }
        if self.verbose {
            let lines = |what: &'static str, of: &[String]| -> Vec<String> {
                of.iter().map(|line| format!("\n  {what}: {}", figure::visible(line))).collect()
            };
            text.extend(lines("read", &imported.read));
            text.extend(lines("not read", &imported.unknown));
            text.extend(lines("left out", &imported.left_out));
        } else if skipped + left > 0 {
            text.push_str(" (--verbose lists them)");
        }
        text + "\n"
    }
}

/// The end of the same interval, if the repository has it from an earlier import that said as much.
fn there_already(
    repository: &AnyRepository,
    kept: &[Entry],
    imported: &Imported,
) -> Result<Option<SnapshotId>> {
    let source = &imported.end.source;
    let of_same_run =
        |entry: &&Entry| entry.source == source.path && entry.instance == source.instance;
    let at = |taken: u64| {
        kept.iter().filter(of_same_run).filter(move |entry| entry.taken_unix_ns == taken)
    };
    let Some(begin) = at(imported.begin.taken_unix_ns).next() else { return Ok(None) };
    for end in at(imported.end.taken_unix_ns) {
        if imported.adds_nothing_to(begin.taken_unix_ns, &repository.find(end.id)?) {
            return Ok(Some(end.id));
        }
    }
    Ok(None)
}
