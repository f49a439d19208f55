//! What `status`, `check` and `detach` are asked about: a SQLite database, or a directory with its tier.

use std::path::PathBuf;

use clap::Args;
use tiersmith_sqlite::place::{Status, status};
use tiersmith_store::{AttachedHome, Medium, Options, TierSpec, attach};

use crate::error::{Error, Result};

/// The options of a home.
#[derive(Debug, Args)]
pub(crate) struct Home {
    /// A SQLite database file, or a database directory
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// For a directory: the members of its tier, in the order in which it was made. A SQLite database knows its own
    #[arg(long, value_name = "MEMBER", num_args = 1..)]
    pub(crate) fast: Vec<PathBuf>,
    /// For a directory: its tier was attached as emulated persistent memory
    #[arg(long)]
    pub(crate) emulate: bool,
}

/// Which of the two it is.
pub(crate) enum Subject {
    /// A single SQLite database, with what is known of it.
    Database(Box<Status>),
    /// A directory.
    Directory,
}

impl Home {
    /// Looks at the path. An attached database is opened and closed again, and so recovered if it needs that.
    pub(crate) fn subject(&self) -> Result<Subject> {
        if self.path.is_dir() {
            if self.fast.is_empty() {
                return Err(Error::Usage(format!(
                    "{} is a directory, and which tier is attached to it is not written in it; name the members with --fast",
                    self.path.display()
                )));
            }
            if let Some(missing) = self.fast.iter().find(|member| !member.exists()) {
                return Err(Error::Usage(format!(
                    "there is no tier member {}; name the files or devices the tier was made of",
                    missing.display()
                )));
            }
            return Ok(Subject::Directory);
        }
        // The stub of an attached database may have been removed by mistake: its data is in the directory beside it.
        let mut aside = self.path.clone().into_os_string();
        aside.push(tiersmith_sqlite::place::HOME_SUFFIX);
        if !self.path.exists() && !std::path::Path::new(&aside).is_dir() {
            return Err(Error::Usage(format!(
                "there is no {}; give a SQLite database file or a database directory",
                self.path.display()
            )));
        }
        if !self.fast.is_empty() {
            return Err(Error::Usage(format!(
                "{} is a file, and a SQLite database knows its tier; leave --fast out",
                self.path.display()
            )));
        }
        Ok(Subject::Database(Box::new(status(&self.path)?)))
    }

    /// Attaches the directory again, which recovers it.
    pub(crate) fn attach(&self) -> Result<AttachedHome> {
        let device = |path: &PathBuf| {
            use std::os::unix::fs::FileTypeExt;
            std::fs::metadata(path).is_ok_and(|m| m.file_type().is_char_device())
        };
        let medium =
            if self.emulate && !self.fast.iter().any(device) { Medium::Emulated } else { Medium::Persistent };
        let first = self.fast.first().ok_or_else(|| Error::Usage("no tier member was given".into()))?;
        let mut spec = TierSpec::new("fast", first, medium, 0);
        spec.members = self.fast.clone();
        // Nothing is copied into the tier by looking at it.
        Ok(attach(&self.path, &[spec], Options { admit: false, ..Options::default() })?)
    }
}
