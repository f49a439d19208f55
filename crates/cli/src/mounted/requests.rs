//! What commands ask of the daemon of a mounted home, and what it says.
//!
//! Deliberately absent: how that goes through its socket (`control.rs`), and what is done
//! (`answer.rs`).

use serde::{Deserialize, Serialize};
use tiersmith_awr::Snapshot;

use super::heat::LiveHot;
use super::live::Live;
use super::moves::LiveMove;

/// What a command asks of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// How is it.
    Status,
    /// Which files are hot.
    Hot,
    /// Write the newest blocks of all files, or of those of a pattern, home.
    Flush {
        /// A glob pattern of paths relative to home.
        pattern: Option<String>,
    },
    /// Bring files into the tier and keep them there.
    Pin {
        /// A glob pattern.
        pattern: String,
        /// No faster than that.
        bytes_per_s: Option<u64>,
    },
    /// End that.
    Unpin {
        /// A glob pattern.
        pattern: String,
    },
    /// Bring files into the tier, or home and out of it, once.
    Move {
        /// A glob pattern.
        pattern: String,
        /// Where to.
        to: To,
        /// No faster than that.
        bytes_per_s: Option<u64>,
    },
    /// End the pin or the move that runs.
    MoveStop,
    /// Begin to compare every block in the tiers with its checksum.
    Scrub {
        /// No faster than that.
        bytes_per_s: Option<u64>,
    },
    /// End that.
    ScrubStop,
    /// A snapshot for the workload repository.
    Snapshot,
    /// Unmount; the home stays attached.
    Unmount,
    /// Unmount, bring everything home, take the tier away.
    Detach,
}

/// Where files are moved to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum To {
    /// Into the tier; they leave it again as others do.
    Tier,
    /// Home, and out of the tier.
    Home,
}

impl To {
    /// As on the command line.
    pub(super) fn word(self) -> &'static str {
        match self {
            To::Tier => "tier",
            To::Home => "home",
        }
    }
}

/// What the daemon says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub(crate) enum Reply {
    /// How it is.
    Status {
        /// That.
        live: Box<Live>,
    },
    /// Which files are hot.
    Hot {
        /// That.
        hot: Box<LiveHot>,
    },
    /// What was done.
    Done {
        /// That.
        done: Done,
    },
    /// The snapshot.
    Snapshot {
        /// That.
        snapshot: Box<Snapshot>,
    },
    /// A sign of life: the request is being worked on, and another reply follows.
    Working {
        /// How far it is.
        #[serde(default)]
        moves: Option<Box<LiveMove>>,
    },
    /// It is ending: as if there were none.
    Ending,
    /// Why it was not done.
    Failed {
        /// A sentence.
        error: String,
    },
}

/// What a request did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    /// Files it was done to.
    pub(crate) files: u64,
    /// Blocks that went home, left the tier or came into it.
    pub(crate) blocks: u64,
    /// Files of the pattern it was not done to, with why.
    pub(crate) left_out: Vec<String>,
    /// It was ended before its end.
    #[serde(default)]
    pub(crate) ended: bool,
}
