//! What a case file holds, as TOML: one case, or with `[each]` several.
//!
//! **Deliberately absent**: whether it makes sense: `Case::of`.

use serde::Deserialize;

use super::{Load, Placement, SQLITE, ServerSettings, SqliteSettings};
use crate::workload::{clients, oltp, slob, tpcc, ycsb};

/// Of what one file makes several cases: one for each combination.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Each {
    /// Servers.
    pub(super) program: Vec<String>,
    /// How they sync their append-only file.
    pub(super) appendfsync: Vec<String>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) about: String,
    pub(super) baseline: Option<String>,
    #[serde(default)]
    pub(super) by_default: bool,
    #[serde(default)]
    pub(super) sets: Vec<String>,
    #[serde(default = "sqlite_alone")]
    pub(super) targets: Vec<String>,
    pub(super) placement: Placement,
    #[serde(default)]
    pub(super) published: Vec<String>,
    pub(super) update_pcts: Vec<u32>,
    #[serde(default)]
    pub(super) sqlite: SqliteSettings,
    #[serde(default)]
    pub(super) server: ServerSettings,
    #[serde(default)]
    pub(super) slob: slob::Settings,
    #[serde(default)]
    pub(super) tpcc: tpcc::Settings,
    #[serde(default)]
    pub(super) ycsb: ycsb::Settings,
    #[serde(default)]
    pub(super) oltp: oltp::Settings,
    #[serde(default)]
    pub(super) client_copy: clients::Settings,
    /// As in the section of a server; SQLite has no such section.
    pub(super) load: Option<Load>,
    pub(super) clients: Option<u32>,
    #[serde(default)]
    pub(super) each: Each,
}

impl File {
    /// The file of each case: this one, or one for each combination, the first as it is by default.
    pub(super) fn split(self) -> Vec<File> {
        let Each { program, appendfsync } = &self.each;
        let all = program.iter().flat_map(|one| appendfsync.iter().map(move |sync| (one, sync)));
        let one = |(n, (program, sync)): (usize, (&String, &String))| {
            let mut file = self.clone();
            file.id = format!("{}-{program}-{sync}", self.id);
            file.title = format!("{} ({program}, appendfsync {sync})", self.title);
            file.baseline = file.baseline.filter(|baseline| *baseline != file.id);
            file.by_default = self.by_default && n == 0;
            file.sets.push(self.id.clone());
            file.server.program = Some(program.clone());
            let own = file.server.settings.entry(program.clone()).or_default();
            own.insert("appendfsync".to_owned(), sync.clone());
            file
        };
        let split: Vec<File> = all.enumerate().map(one).collect();
        if split.is_empty() { vec![self] } else { split }
    }
}

fn sqlite_alone() -> Vec<String> {
    vec![SQLITE.into()]
}
