//! A trial: what would fast storage do for this database? Record it, attach the storage, record it
//! again, compare, and give the plain database back.
//!
//! | file | what |
//! |---|---|
//! | `found.rs` | looks at the database and the storage before anything is touched |
//! | `plan.rs` | what will be done, as data |
//! | `journal.rs` | the trial's directory: the plan and every step, durable before it is taken |
//! | `alone.rs` | one trial at a time works on a database |
//! | `copy/` | a copy of the database, for a trial that leaves the database alone |
//! | `answering.rs` | that the server which answers is the one here |
//! | `run.rs` | takes the steps, and goes back |
//! | `redis.rs` | what Redis keeps on storage, and what a stop of it could lose |
//! | `service.rs` | stops and starts a server that Tiersmith did not start |
//! | `sqlite.rs` | looks at a SQLite file, which has no server |
//! | `which.rs` | which directory a home is, whatever is at its path later |
//! | `page.rs` | the page at the end |
//!
//! The steps are taken by a process of its own, without a terminal. When that is killed, the
//! journal says where it was; going on and going back both begin there.
//!
//! Invariants: nothing is touched before everything was looked at; no password is in a journal, an
//! argument or a result; nothing is kept unless the user said so.
//! Deliberately absent: attaching, detaching and recording themselves, which are commands of the
//! program.

pub mod alone;
mod answering;
pub mod copy;
pub mod found;
pub mod journal;
pub mod page;
pub mod plan;
mod redis;
pub mod run;
pub mod service;
mod sqlite;
mod which;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::error::{During, Result};
use crate::process::append;
use journal::Room;

/// Where trials are kept if nobody says otherwise: of root, or of a user.
pub fn state_directory() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return "/var/lib/tiersmith/trials".into();
    }
    let of =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = of("XDG_STATE_HOME").or_else(|| Some(of("HOME")?.join(".local/state")));
    state.unwrap_or_else(|| "/tmp".into()).join("tiersmith/trials")
}

/// Starts the process that takes the steps of a trial: this program once more, as `arguments` say,
/// what it prints into the trial's log.
///
/// # Errors
/// The system refuses.
pub fn launch(room: &Room, program: &Path, arguments: &[&str]) -> Result<Child> {
    let path = room.path_of("log");
    let log = append(&path)?;
    let second = log.try_clone().during("open again", &path)?;
    let mut command = Command::new(program);
    command.args(arguments).arg(room.path()).stdin(Stdio::null()).stdout(log).stderr(second);
    command.current_dir("/").spawn().during("start", program)
}
