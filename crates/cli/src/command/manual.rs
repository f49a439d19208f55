//! `tiersmith manual`: man pages and the completions of shells, written from the table of options
//! that parses the command line.
//!
//! Nothing it writes is kept in the tree: `packaging/pages` runs it for the packages. The command
//! is hidden, because only somebody who builds a package needs it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use super::print;
use crate::error::{Error, Result};
use crate::{Arguments, Outcome};

/// Write the man pages and the completions of bash, zsh and fish into a directory
///
/// The directory gets the layout of /usr/share. What is there under these names is replaced.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith manual /tmp/share
  man -M /tmp/share/man tiersmith-attach

Exit codes: 0 written; 2 error.")]
pub(crate) struct Manual {
    /// The directory; it is created if it does not exist
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Where the shells of a distribution look for completions, below /usr/share.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/tiersmith"),
    (Shell::Zsh, "zsh/vendor-completions/_tiersmith"),
    (Shell::Fish, "fish/vendor_completions.d/tiersmith.fish"),
];

impl Manual {
    pub(super) fn run(&self) -> Result<Outcome> {
        let mut table = Arguments::command();
        table.build();
        let mut written = 0;
        self.pages(&table, &mut written)?;
        for (shell, name) in COMPLETIONS {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut shown(&table), "tiersmith", &mut text);
            self.write(name, &text)?;
        }
        print(&format!(
            "{written} man pages and the completions of {} shells are in {}\n",
            COMPLETIONS.len(),
            self.dir.display()
        ))?;
        Ok(Outcome::Good)
    }

    /// The page of a command, and those of the commands below it.
    fn pages(&self, command: &clap::Command, written: &mut usize) -> Result<()> {
        for below in command.get_subcommands().filter(|below| has_page(below)) {
            self.pages(below, written)?;
        }
        let man = Man::new(command.clone()).manual("Tiersmith").source(format!(
            "tiersmith {}",
            command.get_version().unwrap_or(env!("CARGO_PKG_VERSION"))
        ));
        let name = man.get_filename();
        let mut text = Vec::new();
        page(command, &man, &mut text).map_err(|source| Error::Io {
            what: "render",
            path: name.clone().into(),
            source,
        })?;
        self.write(&format!("man/man1/{name}"), &text)?;
        *written += 1;
        Ok(())
    }

    fn write(&self, name: &str, text: &[u8]) -> Result<()> {
        let path = self.dir.join(name);
        let parent = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(|source| Error::Io {
            what: "create",
            path: parent.into(),
            source,
        })?;
        fs::write(&path, text).map_err(|source| Error::Io { what: "write", path, source })
    }
}

/// Whether a command has a page: not if it is hidden, nor `help`, which the library adds.
fn has_page(command: &clap::Command) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}

/// A copy of the table without hidden commands and options: the library completes those too.
fn shown(command: &clap::Command) -> clap::Command {
    let mut copy = clap::Command::new(command.get_name().to_owned())
        .args(command.get_arguments().filter(|argument| !argument.is_hide_set()))
        .subcommands(command.get_subcommands().filter(|below| !below.is_hide_set()).map(shown))
        .disable_help_flag(true)
        .disable_version_flag(true)
        .disable_help_subcommand(true);
    if let Some(about) = command.get_about() {
        copy = copy.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        copy = copy.version(version.to_owned());
    }
    copy
}

/// One page. The text behind the options becomes sections with the names that readers of man pages
/// look for; the library would put all of it under EXTRA.
fn page(command: &clap::Command, man: &Man, to: &mut dyn Write) -> std::io::Result<()> {
    man.render_title(to)?;
    man.render_name_section(to)?;
    man.render_synopsis_section(to)?;
    man.render_description_section(to)?;
    man.render_options_section(to)?;
    if command.get_subcommands().any(has_page) {
        man.render_subcommands_section(to)?;
    }
    let behind = command.get_after_long_help().or(command.get_after_help());
    let behind = behind.map(ToString::to_string).unwrap_or_default();
    let mut roff = Roff::new();
    for paragraph in behind.split("\n\n") {
        if let Some(examples) = paragraph.strip_prefix("Examples:\n") {
            roff.control("SH", ["EXAMPLES"]).control("nf", []);
            examples.lines().for_each(|line| {
                roff.text([roman(line)]);
            });
            roff.control("fi", []);
        } else if let Some(codes) = paragraph.strip_prefix("Exit codes: ") {
            roff.control("SH", ["EXIT STATUS"]).text([roman(codes)]);
        } else {
            roff.control("SH", ["NOTES"]).text([roman(paragraph)]);
        }
    }
    roff.to_writer(to)
}
