//! The commands, and what their outputs share.

mod as_owner;
pub(crate) mod attach;
mod attach_sqlite;
mod awr;
mod check;
mod detach;
mod files;
mod home;
mod probe;
mod status;
mod study;
mod top;

use std::io::Write;
use std::path::Path;

use clap::Subcommand;
use serde::Serialize;
use tiersmith_lab::place::Leftovers;

use crate::Outcome;
use crate::error::{Error, Result};
use crate::messages;

/// Every command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Probe(probe::Probe),
    Study(Box<study::Study>),
    #[command(subcommand)]
    Awr(awr::Awr),
    Top(top::Top),
    Attach(attach::Attach),
    Detach(detach::Detach),
    Status(status::Status),
    Check(check::Check),
    Flush(files::Flush),
    Pin(files::Pin),
    Unpin(files::Unpin),
    Move(files::Move),
    Unmount(files::Unmount),
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(&self, leftovers: &Leftovers) -> Result<Outcome> {
        match self {
            Command::Probe(probe) => probe.run(leftovers),
            Command::Study(study) => study.run(leftovers),
            Command::Awr(awr) => awr.run(),
            Command::Top(top) => top.run(),
            Command::Status(status) => status.run(),
            Command::Check(check) => check.run(),
            Command::Detach(detach) => detach.run(),
            Command::Attach(attach) => attach.run(),
            Command::Flush(flush) => flush.run(),
            Command::Pin(pin) => pin.run(),
            Command::Unpin(unpin) => unpin.run(),
            Command::Move(one) => one.run(),
            Command::Unmount(unmount) => unmount.run(),
        }
    }

    /// Whether this process ends in its own way at a signal: a daemon, and what gives a terminal back first.
    pub(crate) fn stays(&self) -> bool {
        matches!(self, Command::Top(_)) || matches!(self, Command::Attach(attach) if attach.stays())
    }
}

/// Prints on standard output, no name in it as a terminal's command. A reader that went away
/// (`| head`) is no error.
fn print(text: &str) -> Result<()> {
    print_as_it_is(&messages::output(text))
}

fn print_as_it_is(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::Io { what: "write", path: "standard output".into(), source: e })
        }
        _ => Ok(()),
    }
}

/// Prints JSON on standard output.
fn print_json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Error::Usage(format!("the result cannot be written as JSON: {e}")))?;
    print_as_it_is(&(messages::json(&text) + "\n"))
}

/// Writes a file the user asked for: all of it or, where that fails, nothing. What was there before stays
/// until then. A pipe or a terminal, and a file in a directory that cannot be written, is written in place.
fn write_file(path: &Path, text: &str) -> Result<()> {
    let failed = |source| Error::Io { what: "write", path: path.into(), source };
    let in_place = || std::fs::write(path, text).map_err(failed);
    let target = match std::fs::metadata(path) {
        Ok(there) if !there.is_file() || path.starts_with("/dev") => return in_place(),
        // What a link leads to, so that the link stays.
        Ok(_) => std::fs::canonicalize(path).map_err(failed)?,
        Err(_) => path.to_owned(),
    };
    let Some(name) = target.file_name() else { return in_place() };
    let (name, process) = (name.to_string_lossy(), std::process::id());
    let beside = target.with_file_name(format!(".{name}.{process}.tmp"));
    let mut file = match std::fs::File::create_new(&beside) {
        Err(e) if target.exists() && e.kind() == std::io::ErrorKind::PermissionDenied => return in_place(),
        made => made.map_err(failed)?,
    };
    let written = file.write_all(text.as_bytes()).and_then(|()| match std::fs::metadata(&target) {
        Ok(before) => file.set_permissions(before.permissions()),
        Err(_) => Ok(()),
    });
    // Some file systems find out that they are full only when they are asked to sync.
    let whole = written.and_then(|()| file.sync_all());
    whole.and_then(|()| std::fs::rename(&beside, &target)).map_err(|source| {
        // The error that matters is the one above.
        let _ = std::fs::remove_file(&beside);
        failed(source)
    })
}
