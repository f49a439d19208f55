//! What `status`, `check`, `detach` and `awr snapshot` are asked about: a SQLite database, or a
//! directory with its tier.

use std::path::{Path, PathBuf};

use clap::Args;
use tiersmith_sqlite::place::{Status, status};
use tiersmith_store::home::RealHome;
use tiersmith_store::{AttachedHome, Attachment, Medium, Options, TierSpec, attach, attachment};

use crate::error::{Error, Result};
use crate::mounted::place::Place;
use crate::mounted::{device, is_believed};

/// The options of a home.
#[derive(Debug, Args)]
pub(crate) struct Home {
    /// A SQLite database file, or a database directory
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// For a directory whose tier was moved: the members of the tier, in the order in which it was
    /// made
    #[arg(long, value_name = "MEMBER", num_args = 1..)]
    pub(crate) fast: Vec<PathBuf>,
    /// For a directory without a note: the tier given with --fast stands for persistent memory
    /// (emulated)
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

/// Whether the path is a file. That of a mounted home is not looked at: its daemon may hang.
pub(crate) fn is_database_file(path: &Path) -> bool {
    let home = Home { path: path.to_path_buf(), fast: Vec::new(), emulate: false };
    !home.is_directory() && path.is_file()
}

/// Whether the note in a home names a tier that keeps its blocks. That was formatted before the
/// note was written: without superblocks it is damaged, where a tier that nobody names holds
/// nothing yet.
pub(super) fn names_a_tier(home: &Path) -> bool {
    match attachment(home) {
        Ok(None) => false,
        Ok(Some(note)) => note.tiers.iter().any(|tier| !tier.medium.has_clean_copies_only()),
        // A note that cannot be read is a note.
        Err(_) => true,
    }
}

/// Where the plain files of lent files are by the note in a home, if not beside a member.
pub(super) fn lent_in(home: &Path) -> Option<PathBuf> {
    let note = attachment(home).ok()??;
    note.tiers.into_iter().find_map(|tier| Some(tier.spec.lent_in?.directory))
}

impl Home {
    /// Looks at the path. An attached database is opened and closed again, and so recovered if it
    /// needs that.
    pub(crate) fn subject(&self) -> Result<Subject> {
        if self.is_directory() {
            if let Some(missing) = self.fast.iter().find(|member| !member.exists()) {
                return Err(Error::Usage(format!(
                    "there is no tier member {}; name the files or devices the tier was made of",
                    missing.display()
                )));
            }
            return Ok(Subject::Directory);
        }
        if self.path.is_dir() {
            // The note of an attached home, and nothing beside it.
            let place = Place::find(&self.path)?;
            drop(RealHome::open(place.path()).map_err(|e| Error::Usage(e.to_string()))?);
        }
        // The stub of an attached database may have been removed by mistake: its data is in the
        // directory beside it.
        let mut aside = self.path.clone().into_os_string();
        aside.push(tiersmith_sqlite::place::HOME_SUFFIX);
        if !self.path.exists() && !Path::new(&aside).is_dir() {
            return Err(Error::Usage(format!(
                "there is no {}; give a SQLite database file or a database directory",
                self.path.display()
            )));
        }
        if self.path.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(Error::Usage(format!(
                "{} is neither a file nor a directory; give a SQLite database file or a database \
                 directory",
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

    /// Whether a directory is known by this path: there, moved aside, or mounted. A daemon that
    /// died or hangs is not asked.
    fn is_directory(&self) -> bool {
        Place::find(&self.path).is_ok_and(|place| match place.standing(None) {
            crate::mounted::place::Standing::Missing => false,
            crate::mounted::place::Standing::Plain => place.path().is_dir(),
            _ => true,
        })
    }

    /// What the directory's note says; `None`: it has none.
    pub(crate) fn note(&self) -> Result<Option<Attachment>> {
        Ok(attachment(Place::find(&self.path)?.path())?)
    }

    /// The members of the directory's tier: those given, else those of its note.
    pub(crate) fn members(&self) -> Result<Vec<PathBuf>> {
        if !self.fast.is_empty() {
            return Ok(self.fast.clone());
        }
        let of_note = |note: &Attachment| -> Result<Vec<PathBuf>> {
            let members = note.tiers.iter().flat_map(|tier| &tier.members);
            if !is_believed(note) {
                return Ok(members.cloned().collect());
            }
            let now = |member: &PathBuf| match device::noted(note, member) {
                // What is not there has a line of its own.
                Err(e) if device::is_one(member) => Err(e),
                Ok(Some(found)) => Ok(found),
                _ => Ok(member.clone()),
            };
            members.map(now).collect()
        };
        let noted = self.note()?.as_ref().map(of_note).transpose()?;
        match noted {
            Some(members) if !members.is_empty() => Ok(members),
            _ => Err(Error::Usage(format!(
                "{} is a directory that is not attached; `tiersmith attach` attaches it. To look \
                 at a tier it was attached to, name the \
                 members with --fast",
                self.path.display()
            ))),
        }
    }

    /// Attaches the directory again, which recovers it.
    pub(crate) fn attach(&self) -> Result<AttachedHome> {
        let device = |path: &PathBuf| {
            use std::os::unix::fs::FileTypeExt;
            std::fs::metadata(path).is_ok_and(|m| m.file_type().is_char_device())
        };
        // Nothing is copied into the tier by looking at it.
        let look = |options: Options| Options { admit: false, ..options };
        let place = Place::find(&self.path)?;
        if let Some(note) = self.note()? {
            let specs = crate::mounted::noted_tiers(&place, &note, &self.fast)?;
            return Ok(attach(place.path(), &specs, look(crate::mounted::as_noted(&note)))?);
        }
        let medium = if self.emulate && !self.fast.iter().any(device) {
            Medium::Emulated
        } else {
            Medium::Persistent
        };
        let members = self.members()?;
        let first =
            members.first().ok_or_else(|| Error::Usage("no tier member was given".into()))?;
        let mut spec = TierSpec::new("fast", first, medium, 0);
        spec.members = members;
        Ok(attach(&self.path, &[spec], look(Options::default()))?)
    }
}
