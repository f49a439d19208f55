//! The offline check: a second, independent reader of a tier that verifies every invariant and says
//! what is damaged, what that means for the user's data, and what to do.
//!
//! It has its own decoders, written from the tables in `format/` and sharing nothing with the code
//! there but the checksum functions, so that a defect in one reader shows when the two disagree. It
//! never writes, and it is not recovery: it says what recovery would do.
//!
//! # The invariants
//!
//! `docs/crash-safety.md` refers to these numbers, and every finding carries one.
//!
//! | no. | what holds | how bad when not |
//! |---|---|---|
//! | 1 | a member has two equal superblock copies with right checksums and sane values | one damaged: Note; both: Damage |
//! | 2 | the members agree, each is there once and as long as its superblock says | Inconsistent, Damage |
//! | 3 | the in-use word of every file slot unseals | Damage |
//! | 4 | the identity in every used slot has a right checksum and known values | Damage |
//! | 5 | a used slot has a whole state line with known flags, both copies of the newest line are equal | none: Damage; one: Note |
//! | 6 | no two slots have the same file id, or name the same home file | Inconsistent |
//! | 7 | every root and every word of a map page unseals at its place | Damage |
//! | 8 | every frame referred to lies in the tier, aligned to the size of its block | Inconsistent |
//! | 9 | every frame is referred to once, over all blocks and map pages of all files | Inconsistent |
//! | 10 | an allocation unit holds map pages, or blocks of one size | Inconsistent |
//! | 11 | no block lies at or past the end of its file | after recovery: Lost |
//! | 12 | in the last block the bytes past the end of the file are zero | after recovery: Inconsistent |
//! | 13 | a `Cached` block has the bytes of the home file | Inconsistent |
//! | 14 | the home file of every slot exists | Lost when it has Dirty blocks, else Inconsistent |
//! | 15 | size and modification time of the home file are those of the stamp | Inconsistent |
//! | 16 | a whole lane record fits its file's map, and after recovery is in the map | Inconsistent, Lost |
//! | 17 | a whole batch record fits its file's map, and after recovery is in the map, all of it | Inconsistent, Lost |
//! | 18 | with the pending records applied, every frame is still referred to once | Inconsistent |
//! | 19 | the block an entry points to has the checksum of the record that switched the entry | Damage |
//! | 20 | a tier being attached holds no blocks, one being detached no Dirty ones; after recovery no file is being unlinked | Inconsistent, Lost |
//! | 21 | the plain file of a lent file is beside the first member, or where the note says, as long as its state line says or longer, and nobody's but its owner's; after recovery none of its blocks is in the tier | missing, short: Lost; else Inconsistent; unreadable: Damage |
//! | 22 | an extent of the file table is a unit of the tier that is nothing else | Damage |
//! | 23 | the log of a member on flash has a whole header, and its records change nothing but metadata | Damage |
//! | 24 | a block of a data file has the checksum beside its map entry, unless a record that counts says otherwise | Dirty: Damage; Cached: Inconsistent |
//! | 25 | an ephemeral tier has no Dirty block | Inconsistent |
//!
//! **Invariant**: no input makes this panic, run without end, or take memory out of proportion to
//! the bytes it was given.
//!
//! Read next: `seal.rs` and `superblock.rs` for the decoding, `map.rs` for the walk, `blocks.rs`
//! and `verify.rs` for what is checked on it.

mod any_home;
mod at;
mod blocks;
mod frames;
mod home;
mod log;
mod map;
mod records;
mod report;
mod seal;
mod source;
mod superblock;
mod table;
#[cfg(test)]
mod tests;
mod verify;

use std::io;
use std::path::{Path, PathBuf};

pub use any_home::AnyHome;
pub use home::{DirectoryHome, HomeFileView, HomeView};
pub use report::{CheckReport, FileName, Finding, Place, Severity, Summary};

use crate::home::{files_aside, open_files_aside};
use map::Tier;
use source::{MemberFile, Source};
use superblock::Opened;
use verify::{Checker, Claim, Text};

/// What to check.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// The tier is at rest: recovery has run, or it was closed in order. `false` for what a power
    /// cut or a killed process left: unapplied records, blocks past the end of a file, unfinished
    /// unlinking and the like are expected then.
    pub after_recovery: bool,
    /// The home's note names this tier, which is written after the tier is formatted: superblocks
    /// that are gone are damage. `false`: they may be those of a tier that holds nothing yet.
    pub was_formatted: bool,
    /// Read every `Cached` block and its home block, and compare.
    pub compare_blocks: bool,
    /// Read every `Dirty` block to see whether the medium still has it; there is no other copy.
    pub read_dirty: bool,
    /// In which directory the plain files of lent files are, where the home's note names one.
    pub lent_in: Option<PathBuf>,
    /// Findings kept in the report; further ones are counted.
    pub findings_max: usize,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self {
            after_recovery: true,
            was_formatted: false,
            compare_blocks: true,
            read_dirty: true,
            lent_in: None,
            findings_max: 1000,
        }
    }
}

/// Why nothing could be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// No member was named.
    #[error("no member of the tier was given; name the files or devices the tier was made of")]
    NoMembers,
    /// A member is something that cannot be read as one.
    #[error("{} is {kind}; give the files or block devices the tier was made of", path.display())]
    NotAFile {
        /// The path given.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// A process uses the tier.
    #[error("{} is in use by {owner}; a running tier changes while it is read: stop that process \
             first", path.display())]
    Owned {
        /// The member.
        path: PathBuf,
        /// The process, as it named itself.
        owner: String,
    },
    /// A member holds something else.
    #[error(
        "member {member} of those given is no Tiersmith tier: {why}; if it was one, both copies of \
         its superblock are lost: restore it from a copy"
    )]
    NotATier {
        /// Its place among the members given, from 0.
        member: usize,
        /// What was found.
        why: String,
    },
    /// A format this program does not know.
    #[error(
        "member {member} of those given has format version {found}, this program reads version \
         {known}; use the Tiersmith that attached it"
    )]
    Version {
        /// Its place among the members given, from 0.
        member: usize,
        /// The version found.
        found: u32,
        /// The version known.
        known: u32,
    },
    /// A tier that only a program that knows more can use.
    #[error("member {member} of those given {why}; use the Tiersmith that attached it")]
    Unknown {
        /// Its place among the members given, from 0.
        member: usize,
        /// What is not known here.
        why: String,
    },
    /// A format of development builds, which were never released.
    #[error(
        "member {member} of those given was made by a development build, before format version 1; \
         use the build that attached it last (all up to commit ffd5d09 can check and detach it)"
    )]
    Development {
        /// Its place among the members given, from 0.
        member: usize,
    },
    /// Members missing, given twice, or of different tiers.
    #[error("the members do not make a tier: {0}")]
    WrongMembers(String),
    /// The home is not there, or the tier was attached to another one.
    #[error("cannot compare with the home {}: {why}", path.display())]
    Home {
        /// The path given.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
    /// The system refused.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Checks a tier that nobody uses. `members` are its files or block devices in any order; with
/// `home`, clean blocks, sizes and times are compared with the home's files (also when the
/// directory is moved aside). Nothing is written.
///
/// # Errors
/// [`CheckError`] when there is nothing to check: a member cannot be opened, is in use, is no tier,
/// or is missing. What is wrong with a tier is in the report.
pub fn check(
    home: Option<&Path>,
    members: &[PathBuf],
    options: &CheckOptions,
) -> Result<CheckReport, CheckError> {
    if members.is_empty() {
        return Err(CheckError::NoMembers);
    }
    let files: Vec<MemberFile> =
        members.iter().map(|path| MemberFile::open(path)).collect::<Result<_, _>>()?;
    let sources: Vec<&dyn Source> = files.iter().map(|f| f as &dyn Source).collect();
    let mut report = CheckReport::default();
    if let Opened::Tier { layout, order } = superblock::open(&sources, options, &mut report)? {
        let home = home.map(|path| find_home(path, layout.home)).transpose()?;
        let view = home.as_ref().map(|h| h as &dyn HomeView);
        let tier = Tier {
            sources: order.iter().filter_map(|n| sources.get(*n).copied()).collect(),
            layout: *layout,
        };
        let first = order.first().and_then(|n| members.get(*n));
        let logged = apply_log(&tier, options, &mut report);
        let tier = with_log(tier, logged.as_ref());
        return Ok(Checker::new(&tier, view, options, report)
            .beside(first.map(PathBuf::as_path))
            .run());
    }
    Ok(report)
}

/// Checks a tier at rest whose members are `images` in memory ([`CheckOptions::default`]).
#[must_use]
pub fn check_images(images: &[&[u8]], home: Option<&dyn HomeView>) -> CheckReport {
    check_images_with(images, home, &CheckOptions::default())
}

/// Checks images in memory. What [`check`] refuses to check is one finding of severity Damage here.
#[must_use]
pub fn check_images_with(
    images: &[&[u8]],
    home: Option<&dyn HomeView>,
    options: &CheckOptions,
) -> CheckReport {
    let sources: Vec<&dyn Source> = images.iter().map(|image| image as &dyn Source).collect();
    check_sources(&sources, home, options)
}

/// [`check_images`] of members whose blocks may be on devices of their own: the mapped bytes and
/// those.
#[cfg(feature = "testing")]
#[must_use]
pub fn check_images_apart(
    images: &[(&[u8], Option<&[u8]>)],
    home: Option<&dyn HomeView>,
) -> CheckReport {
    let apart: Vec<_> =
        images.iter().map(|(mapped, blocks)| source::Apart { mapped, blocks: *blocks }).collect();
    let sources: Vec<&dyn Source> = apart.iter().map(|image| image as &dyn Source).collect();
    check_sources(&sources, home, &CheckOptions::default())
}

/// The first member as its log has it, where it has one.
fn apply_log<'s>(
    tier: &Tier<'s>,
    options: &CheckOptions,
    report: &mut CheckReport,
) -> Option<log::Logged<'s>> {
    let (place, source) = (tier.layout.log?, *tier.sources.first()?);
    let (logged, wrong) = log::Logged::read(source, &place);
    if let Some(found) = wrong {
        report.add(
            options.findings_max,
            Finding {
                severity: Severity::Damage,
                invariant: 23,
                place: Place {
                    member: Some(0),
                    offset: Some(place.at),
                    structure: "log".into(),
                    ..Place::default()
                },
                expected: "a log with a whole header, whose records change metadata".into(),
                found,
                meaning: "what was durable in the log alone is lost: the newest versions of any \
                          block may be out of reach"
                    .into(),
                remedy: "restore the member from a copy of the medium".into(),
            },
        );
    }
    Some(logged)
}

fn with_log<'a>(tier: Tier<'a>, logged: Option<&'a log::Logged<'a>>) -> Tier<'a> {
    match logged {
        Some(logged) => Tier { sources: vec![logged], ..tier },
        None => tier,
    }
}

fn check_sources(
    sources: &[&dyn Source],
    home: Option<&dyn HomeView>,
    options: &CheckOptions,
) -> CheckReport {
    let mut report = CheckReport::default();
    let refused = if sources.is_empty() {
        CheckError::NoMembers
    } else {
        match superblock::open(sources, options, &mut report) {
            Ok(Opened::Nothing) => return report,
            Ok(Opened::Tier { layout, order }) => {
                let sources = order.iter().filter_map(|n| sources.get(*n).copied()).collect();
                let tier = Tier { sources, layout: *layout };
                let logged = apply_log(&tier, options, &mut report);
                return Checker::new(&with_log(tier, logged.as_ref()), home, options, report).run();
            }
            Err(e) => e,
        }
    };
    report.add(
        options.findings_max,
        Finding {
            severity: Severity::Damage,
            invariant: if matches!(refused, CheckError::WrongMembers(_)) { 2 } else { 1 },
            place: Place { structure: "superblock".into(), ..Place::default() },
            expected: "the members of one tier".into(),
            found: refused.to_string(),
            meaning: "nothing in the tier can be read".into(),
            remedy: "give all members of the tier, or restore them from a copy".into(),
        },
    );
    report
}

/// The home's directory: at its path, or moved aside. Which one it is, its inode number and birth
/// time tell.
fn find_home(path: &Path, identity: (u64, u64)) -> Result<DirectoryHome, CheckError> {
    let mut failed = None;
    let aside = || DirectoryHome::of(&files_aside(path), open_files_aside(path)?);
    for candidate in [&|| DirectoryHome::open(path), &aside as &dyn Fn() -> std::io::Result<_>] {
        match candidate() {
            Ok(home) => {
                let (ino, btime) = home.identity();
                if ino == identity.0 && home::same_when_known(btime, identity.1) {
                    return Ok(home);
                }
            }
            Err(e) => failed = failed.or(Some(e)),
        }
    }
    let why = match failed {
        Some(e) if !path.exists() => format!("{e}; give the directory the tier is attached to"),
        _ => {
            "the tier was attached to another directory (its inode number or birth time differs); \
              give that one, or \
              none to check the tier alone"
                .into()
        }
    };
    Err(CheckError::Home { path: path.into(), why })
}
