//! The commands, and what their outputs share.

mod attach;
mod attach_sqlite;
mod awr;
mod check;
mod detach;
mod doctor;
mod files;
mod home;
mod hot;
mod kv;
mod look_at;
mod manual;
mod probe;
mod scrub;
mod status;
mod study;
mod top;
mod trial;
mod written;

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Subcommand;
use serde::Serialize;
use tiersmith_lab::place::Leftovers;

use crate::Outcome;
use crate::attach::Attach;
use crate::error::{Error, Result};
use crate::messages;

/// Every command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Probe(probe::Probe),
    Doctor(doctor::Doctor),
    Study(Box<study::Study>),
    Trial(Box<trial::Trial>),
    #[command(subcommand)]
    Awr(awr::Awr),
    Top(top::Top),
    Attach(Attach),
    Detach(detach::Detach),
    Status(status::Status),
    Hot(hot::Hot),
    Check(check::Check),
    Scrub(scrub::Scrub),
    Flush(files::Flush),
    Pin(files::Pin),
    Unpin(files::Unpin),
    Move(files::Move),
    Unmount(files::Unmount),
    Kv(kv::Kv),
    #[command(hide = true)]
    Manual(manual::Manual),
    #[command(hide = true)]
    LookAt(look_at::LookAt),
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(&self, leftovers: &Leftovers) -> Result<Outcome> {
        match self {
            Command::Probe(probe) => probe.run(leftovers),
            Command::Doctor(doctor) => doctor.run(),
            Command::Study(study) => study.run(leftovers),
            Command::Trial(trial) => trial.run(),
            Command::Awr(awr) => awr.run(),
            Command::Top(top) => top.run(),
            Command::Status(status) => status.run(),
            Command::Hot(hot) => hot.run(),
            Command::Check(check) => check.run(),
            Command::Scrub(scrub) => scrub.run(),
            Command::Detach(detach) => detach.run(),
            Command::Attach(wish) => attach::run(wish),
            Command::Flush(flush) => flush.run(),
            Command::Pin(pin) => pin.run(),
            Command::Unpin(unpin) => unpin.run(),
            Command::Move(one) => one.run(),
            Command::Unmount(unmount) => unmount.run(),
            Command::LookAt(look_at) => look_at.run(),
            Command::Kv(kv) => kv.run(),
            Command::Manual(manual) => manual.run(),
        }
    }

    /// Whether this process ends in its own way at a signal: a daemon, and what gives a terminal
    /// back first.
    pub(crate) fn stays(&self) -> bool {
        matches!(self, Command::Top(_)) || matches!(self, Command::Attach(wish) if wish.stays())
    }
}

/// Prints on standard output, no name in it as a terminal's command. A reader that went away
/// (`| head`) is no error.
fn print(text: &str) -> Result<()> {
    print_as_it_is(&messages::output(text))
}

/// Whether whoever read what is printed has gone: who prints again and again ends.
fn nobody_reads() -> bool {
    NOBODY_READS.load(Ordering::Relaxed)
}

static NOBODY_READS: AtomicBool = AtomicBool::new(false);

fn print_as_it_is(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::Io { what: "write", path: "standard output".into(), source: e })
        }
        Err(_) => {
            NOBODY_READS.store(true, Ordering::Relaxed);
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Prints JSON on standard output.
fn print_json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Error::Usage(format!("the result cannot be written as JSON: {e}")))?;
    print_as_it_is(&(messages::json(&text) + "\n"))
}
