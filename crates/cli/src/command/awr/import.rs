//! `tiersmith awr import`: Oracle's AWR and Statspack reports as snapshots.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tiersmith_awr::{AnyRepository, Snapshot, figure, import};

use super::super::{print, print_json};
use crate::Outcome;
use crate::error::Result;

/// Read Oracle's reports: AWR in HTML or text (11.2 and later, single instance or RAC), and Statspack in text
///
/// Each becomes two snapshots, the begin and the end of its interval, which report and compare as any others do. What is not known is
/// listed and left out.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith awr import before.html after.html --to oracle.db
  tiersmith awr compare --in oracle.db 1 2 3 4

Exit codes: 0 read; 1 read, but of a report no wait event; 2 error, and nothing was kept.")]
pub(crate) struct Import {
    /// The reports
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The repository, made if it is not there
    #[arg(long, value_name = "PATH", default_value = super::DEFAULT_FILE)]
    to: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Import {
    pub(super) fn run(&self) -> Result<Outcome> {
        // Everything is read before anything is kept: a file that is no report imports nothing.
        let read =
            self.files.iter().map(|file| Ok((file, import::read(file)?))).collect::<Result<Vec<_>>>()?;
        let repository = AnyRepository::open(&self.to)?;
        let (mut text, mut all, mut outcome) = (String::new(), Vec::new(), Outcome::Good);
        let snapshots: Vec<Snapshot> =
            read.iter().flat_map(|(_, imported)| [imported.begin.clone(), imported.end.clone()]).collect();
        let mut ids = repository.take_all(&snapshots)?.into_iter();
        for (file, imported) in read {
            let (begin, end) = (ids.next(), ids.next());
            let (Some(begin), Some(end)) = (begin, end) else { break };
            let source = &imported.end.source;
            text.push_str(&format!(
                "{}: {} of {}, snapshots {begin} and {end} in {}\n",
                file.display(),
                imported.kind,
                figure::visible(&source.database),
                self.to.display()
            ));
            if imported.end.waits.is_empty() {
                outcome = Outcome::Findings;
                text.push_str("  NO WAIT EVENTS could be read: reports of it say nothing of waits\n");
            }
            for section in &imported.unknown {
                text.push_str(&format!("  not read: {}\n", figure::visible(section)));
            }
            for line in &imported.left_out {
                text.push_str(&format!("  left out: {}\n", figure::visible(line)));
            }
            all.push(json!({
                "file": file, "kind": imported.kind, "database": source.database, "begin": begin, "end": end, "not_read": imported.unknown,
                "left_out": imported.left_out,
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
