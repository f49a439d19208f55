//! What `attach` says when the mount is up.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::live::{Door, LiveCacheRule};

/// An attached and mounted home.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Attached {
    /// The database's path.
    pub(crate) home: PathBuf,
    /// Where it is mounted.
    pub(crate) at: PathBuf,
    /// Where the files are meanwhile.
    pub(crate) files: PathBuf,
    /// The daemon.
    pub(crate) pid: u32,
    /// Its messages; none in the foreground.
    pub(crate) log: Option<PathBuf>,
    /// The tier's files or devices.
    pub(crate) members: Vec<PathBuf>,
    /// Bytes of them.
    pub(crate) tier_bytes: u64,
    /// Bytes that redo files may take beside them, on the same storage, while the kernel writes
    /// them itself.
    #[serde(default)]
    pub(crate) passthrough_max_bytes: u64,
    /// Where those are, if not beside them.
    #[serde(default)]
    pub(crate) passthrough_dir: Option<PathBuf>,
    /// Whether they only stand for persistent memory.
    pub(crate) emulated: bool,
    /// Whether they hold clean copies only.
    pub(crate) volatile: bool,
    /// Whether they are files on disks, with metadata in a log.
    #[serde(default)]
    pub(crate) flash: bool,
    /// Whether they are on disks that are emptied when the machine is stopped, with clean copies
    /// only.
    #[serde(default)]
    pub(crate) ephemeral: bool,
    /// The profile.
    pub(crate) profile: String,
    /// Why this one.
    pub(crate) profile_why: String,
    /// Slow storage that home pretends to be.
    pub(crate) home_model: Option<String>,
    /// Which files the tier keeps.
    #[serde(default)]
    pub(crate) cache: Vec<LiveCacheRule>,
    /// Bytes a day that may be written to the tier.
    #[serde(default)]
    pub(crate) write_budget: Option<u64>,
    /// Whether it was attached before.
    pub(crate) again: bool,
    /// What opening the tier found and did.
    pub(crate) recovery: String,
    /// How many files the tier has room for.
    pub(crate) fits: String,
    /// What else was found and done.
    pub(crate) remarks: Vec<String>,
    /// How requests reach the daemon.
    pub(crate) door: Door,
}

/// What the daemon tells the command that started it, in one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FirstWord {
    /// The mount is up.
    Attached(Box<Attached>),
    /// It is not.
    Failed(String),
}

impl Attached {
    /// Whether a file of the tier is on the home's own file system: a slip, or somebody tries it
    /// out.
    fn one_file_system(&self) -> bool {
        let device = |path: &Path| std::fs::metadata(path).ok().map(|metadata| metadata.dev());
        // What is at the home's path now is the mount.
        let home = device(&self.files);
        home.is_some() && self.members.iter().any(|member| device(member) == home)
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let again = if self.again { "attached again" } else { "attached" };
        let mut out =
            format!("{}: {again}, and mounted at {}\n", self.home.display(), self.at.display());
        self.write_kind(&mut out);
        self.write_tier(&mut out);
        out.push_str(&format!("  files:     {}\n", self.files.display()));
        out.push_str(&format!("  room for:  {}\n", self.fits));
        out.push_str(&format!("  profile:   {} ({})\n", self.profile, self.profile_why));
        for rule in &self.cache {
            out.push_str(&format!("  cache:     {rule}\n"));
        }
        if let Some(budget) = self.write_budget {
            out.push_str(&format!(
                "  budget:    {} a day written to the tier\n",
                super::size(budget)
            ));
        }
        for line in self.door.lines() {
            out.push_str(&format!("  {line}\n"));
        }
        out.push_str(&format!("  recovery:  {}\n", self.recovery));
        for remark in &self.remarks {
            out.push_str(&format!("  note:      {remark}\n"));
        }
        let log = self
            .log
            .as_ref()
            .map(|log| format!(", messages in {}", log.display()))
            .unwrap_or_default();
        out.push_str(&format!("  daemon:    process {}{log}\n", self.pid));
        out
    }

    /// What the tier is, and what home pretends to be.
    fn write_kind(&self, out: &mut String) {
        if self.emulated {
            out.push_str(
                "  EMULATED: the tier stands for persistent memory, and a power cut may \
                          lose what was acknowledged\n",
            );
        }
        if self.volatile {
            out.push_str(
                "  volatile: the tier holds clean copies only; what is written is durable \
                          when it is synced, at home\n",
            );
        }
        if self.ephemeral {
            out.push_str(
                "  ephemeral: the tier holds clean copies only, which a reboot keeps and a stop of \
                 the machine may not; what is written is durable when it is synced, at home\n",
            );
        }
        if self.flash {
            out.push_str(
                "  flash:     the tier is on a disk; what is written is durable \
                          when it is synced, in the tier\n",
            );
        }
        if let Some(model) = &self.home_model {
            out.push_str(&format!(
                "  MODELLED: home is delayed as {model} would be; for studies only\n"
            ));
        }
    }

    /// Where the tier is.
    fn write_tier(&self, out: &mut String) {
        let members: Vec<String> =
            self.members.iter().map(|member| member.display().to_string()).collect();
        out.push_str(&format!(
            "  tier:      {} ({})\n",
            members.join(", "),
            super::size(self.tier_bytes)
        ));
        if self.door.lends && self.passthrough_max_bytes > 0 {
            let dir = self.passthrough_dir.as_ref();
            out.push_str(&format!(
                "             besides, up to {} for redo the kernel writes itself, in {} \
                 (--passthrough-max)\n",
                super::size(self.passthrough_max_bytes),
                dir.map_or_else(|| "TIER.lent".to_owned(), |dir| dir.display().to_string())
            ));
        }
        if self.one_file_system() {
            out.push_str(
                "             on the home's own file system: shows how it works, not what faster \
                 storage gives\n",
            );
        }
    }
}
