//! The program `tiersmith`: one file for each command in `command/`.
//!
//! What a command does is in the crates; here are options, output and exit codes. To add a command:
//! a file in `command/` with its options, its help and a `run`, and a line in `command/mod.rs`; the
//! tests in `tests/` ask every command for its help. The options of `attach` are in `attach.rs`,
//! because the daemon that it starts reads them too.
//!
//! **Invariants**: a command prints for a person, or JSON with `--json`, and then nothing else on
//! standard output; what it makes for its own use is gone when it ends, also after Ctrl-C; an error
//! is one sentence on standard error.

#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

mod attach;
mod command;
mod error;
mod health;
mod hot;
mod messages;
mod mounted;
mod probe;
mod progress;
mod signals;
mod top;
mod write_budget;

use std::process::ExitCode;

use clap::Parser;
use tiersmith_lab::place::Leftovers;

use command::Command;
use messages::Messages;

/// Attach a little fast storage to a database that lives on slower storage, without changing the
/// database; measure what that buys.
#[derive(Debug, Parser)]
#[command(
    name = "tiersmith",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "Exit codes: 0 good; 1 findings or differences; 2 error. `tiersmith help COMMAND` \
                  has examples."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// How a command ended when it did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Exit code 0.
    Good,
    /// Exit code 1: something was found that the user has to look at.
    Findings,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    Messages::begin();
    // Whatever command opens a database, and however deep below.
    if let Err(e) = tiersmith_sqlite::open_only_files() {
        messages::say(&e.to_string());
        return ExitCode::from(2);
    }
    let leftovers = Leftovers::default();
    if !arguments.command.stays()
        && let Err(e) = signals::clean_up_on_interruption(&leftovers)
    {
        messages::say(&e.to_string());
        return ExitCode::from(2);
    }
    let ended = arguments.command.run(&leftovers);
    Messages::catch_up(true);
    leftovers.clean();
    // The thread that watches for signals ends the program, with the exit code a shell expects.
    while leftovers.stopped() {
        std::thread::park();
    }
    match ended {
        Ok(Outcome::Good) => ExitCode::SUCCESS,
        Ok(Outcome::Findings) => ExitCode::from(1),
        Err(e) => {
            messages::say(&e.to_string());
            ExitCode::from(2)
        }
    }
}
