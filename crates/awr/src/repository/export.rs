//! Export and import: snapshots as files, with the baselines and gaps that belong to them.
//!
//! ```text
//! DIR/snap-000001.json ...           as `directory.rs` describes
//! DIR/baselines-and-gaps.json        what has a meaning only together with them; its numbers are
//!                                    those of the files
//! ```
//!
//! Whatever is not taken over is said: a baseline whose snapshots are not among those exported or
//! loaded, one that cannot be an interval, a name that is given already, a reason that is too long.
//! Nothing is renamed, and nothing is loaded twice because it was named twice.
//!
//! Invariants: a baseline or a gap is never attached to another snapshot than before; a file is
//! whole or not there. Deliberately absent: leases, for who records is no fact about the past.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::private;
use crate::repository::archive::{
    Archive, Baseline, Behind, Gap, LONGEST_NAME, fitting, unfit_baseline,
};
use crate::repository::listing::MOST_BYTES;
use crate::{
    AnyRepository, Error, Repository, Result, Snapshot, SnapshotId, figure, read_snapshot,
};

/// The file beside exported snapshots.
pub const BESIDE: &str = "baselines-and-gaps.json";

const KIND: &str = "tiersmith baselines and gaps";
const FORMAT: u32 = 1;

/// What was exported.
#[derive(Debug, Default)]
pub struct Exported {
    /// The snapshots: their numbers before, and in the directory.
    pub snapshots: Vec<(SnapshotId, SnapshotId)>,
    /// How many baselines went with them.
    pub baselines: usize,
    /// How many gaps went with them.
    pub gaps: usize,
    /// What was not taken over, in sentences.
    pub left_out: Vec<String>,
}

/// What was loaded.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The snapshots, in order.
    pub snapshots: Vec<SnapshotId>,
    /// How many baselines came with them.
    pub baselines: usize,
    /// How many gaps came with them.
    pub gaps: usize,
    /// What was not taken over, in sentences.
    pub left_out: Vec<String>,
}

/// Baselines and gaps, on their way.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Beside {
    kind: String,
    format: u32,
    baselines: Vec<BaselineOut>,
    gaps: Vec<GapOut>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct BaselineOut {
    name: String,
    first: SnapshotId,
    last: SnapshotId,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct GapOut {
    source: String,
    at_unix_ns: u64,
    reason: String,
    after: Option<SnapshotId>,
}

impl Beside {
    fn of(repository: &AnyRepository) -> Result<Beside> {
        let baseline = |of: Baseline| BaselineOut { name: of.name, first: of.first, last: of.last };
        let gap = |of: Gap| GapOut {
            source: of.source,
            at_unix_ns: of.at_unix_ns,
            reason: of.reason,
            after: of.after,
        };
        let (baselines, gaps) = repository.baselines_and_gaps()?;
        Ok(Beside {
            baselines: baselines.into_iter().map(baseline).collect(),
            gaps: gaps.into_iter().map(gap).collect(),
            ..Beside::default()
        })
    }

    fn read(path: &Path) -> Result<Option<Beside>> {
        let failed = |source| failed("read", path, source);
        let foreign = |reason: String| {
            let remedy =
                "Export it anew, or take it away: the snapshots beside it can be read without it"
                    .to_owned();
            Err(Error::Archive {
                action: "read baselines and gaps of",
                path: path.to_owned(),
                reason,
                remedy,
            })
        };
        // Before it is opened: opening a named pipe would wait for somebody to write.
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) => return foreign("it is not a regular file".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        }
        let mut text = String::new();
        let read =
            File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_string(&mut text));
        if read.map_err(failed)? as u64 > MOST_BYTES {
            return foreign(format!("it is larger than {MOST_BYTES} bytes"));
        }
        let beside: Beside = match serde_json::from_str(&text) {
            Ok(beside) => beside,
            Err(error) => return foreign(format!("it is damaged: {error}")),
        };
        if beside.kind != KIND || beside.format != FORMAT {
            return foreign(format!("it is not of kind `{KIND}`, format {FORMAT}"));
        }
        Ok(Some(beside))
    }

    /// Writes it whole, durable on return: under another name, synced, renamed.
    fn write(mut self, dir: &Path) -> Result<()> {
        (self.kind, self.format) = (KIND.to_owned(), FORMAT);
        let text = serde_json::to_string_pretty(&self).expect("BUG: it holds text and numbers");
        let (path, temporary) =
            (dir.join(BESIDE), dir.join(format!(".beside-{}.tmp", std::process::id())));
        let write = || {
            // What an end in the middle left goes first; a link that somebody put there is never
            // followed.
            match fs::remove_file(&temporary) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = private::make(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            File::open(dir)?.sync_all()
        };
        write().map_err(|source| {
            let _ = fs::remove_file(&temporary);
            failed("write", &path, source)
        })
    }

    /// Adds to what lies beside the snapshots of a directory; a name that is given there is left
    /// out, and said. Returns how many baselines and gaps were added.
    fn add_to(self, dir: &Path, left_out: &mut Vec<String>) -> Result<(usize, usize)> {
        if self.baselines.is_empty() && self.gaps.is_empty() {
            return Ok((0, 0));
        }
        // Two programs that add at once: the second waits, then finds what the first one added. On
        // a file system without locks (some network file systems) two at the very same instant
        // could meet.
        let _locked = File::open(dir).and_then(|dir| {
            rustix::fs::flock(&dir, rustix::fs::FlockOperation::LockExclusive)?;
            Ok(dir)
        });
        let mut all = Beside::read(&dir.join(BESIDE))?.unwrap_or_default();
        let (named, gaps) = (all.baselines.len(), self.gaps.len());
        for of in self.baselines {
            match all.baselines.iter().any(|given| given.name == of.name) {
                true => left_out.push(name_is_given(&of.name)),
                false => all.baselines.push(of),
            }
        }
        all.gaps.extend(self.gaps);
        let added = all.baselines.len() - named;
        all.write(dir)?;
        Ok((added, gaps))
    }

    /// The same with other numbers; what has none is left out, and said.
    fn renumbered(self, new: &Numbers, left_out: &mut Vec<String>) -> Beside {
        let mut beside = Beside::default();
        for of in self.baselines {
            let name = figure::visible(&of.name);
            match (new.ids.get(&of.first), new.ids.get(&of.last)) {
                (Some((first, its)), Some((last, also))) => {
                    match unfit_baseline(&of.name, (of.first, its), (of.last, also)) {
                        Some(why) => left_out.push(format!("baseline {name}: {why}")),
                        None => {
                            beside.baselines.push(BaselineOut { first: *first, last: *last, ..of })
                        }
                    }
                }
                _ => left_out.push(format!(
                    "baseline {name}: its snapshots {} and {} are not both among these",
                    of.first, of.last
                )),
            }
        }
        let mut outside = 0;
        for of in self.gaps {
            let after = match of.after {
                Some(after) => new.ids.get(&after).map(|(id, _)| *id),
                None => new.before(&of.source, of.at_unix_ns),
            };
            match after {
                Some(after) => beside.gaps.push(GapOut { after: Some(after), ..of }),
                None => outside += 1,
            }
        }
        if outside > 0 {
            left_out.push(format!("{outside} gaps: the snapshots before them are not among these"));
        }
        beside
    }
}

impl Beside {
    /// With the numbers that snapshots were given, where their places among `ids` stood.
    fn at(mut self, ids: &[SnapshotId]) -> Beside {
        let id = |place: SnapshotId| {
            let at = usize::try_from(place.number()).ok().and_then(|at| ids.get(at));
            *at.expect("BUG: what belongs to no snapshot was left out")
        };
        for of in &mut self.baselines {
            (of.first, of.last) = (id(of.first), id(of.last));
        }
        for of in &mut self.gaps {
            of.after = of.after.map(id);
        }
        self
    }
}

fn failed(what: &str, path: &Path, source: io::Error) -> Error {
    Error::Io {
        action: if what == "read" {
            "read the baselines and gaps in"
        } else {
            "write the baselines and gaps to"
        },
        path: path.to_owned(),
        source,
        remedy: "Check that the directory is there, can be read and written, and has space",
    }
}

/// What is left out because another interval is called so.
fn name_is_given(name: &str) -> String {
    format!("baseline {}: there is one of this name already", figure::visible(name))
}

/// The baselines and gaps that lie beside the snapshots of a directory.
///
/// # Errors
/// If the file with them is there and cannot be read, or is something else.
pub(crate) fn beside(dir: &Path) -> Result<(Vec<Baseline>, Vec<Gap>)> {
    let beside = Beside::read(&dir.join(BESIDE))?.unwrap_or_default();
    let baseline = |of: BaselineOut| Baseline { name: of.name, first: of.first, last: of.last };
    let gap = |of: GapOut| Gap {
        source: of.source,
        at_unix_ns: of.at_unix_ns,
        reason: of.reason,
        after: of.after,
    };
    Ok((
        beside.baselines.into_iter().map(baseline).collect(),
        beside.gaps.into_iter().map(gap).collect(),
    ))
}

/// New numbers of snapshots by their old ones, of which source each is, and when it was taken.
#[derive(Default)]
struct Numbers {
    ids: BTreeMap<SnapshotId, (SnapshotId, String)>,
    /// By source and time.
    times: BTreeMap<(String, u64), SnapshotId>,
}

impl Numbers {
    fn add(&mut self, old: SnapshotId, new: SnapshotId, of: &Snapshot) {
        self.ids.insert(old, (new, of.source.path.clone()));
        self.times.insert((of.source.path.clone(), of.taken_unix_ns), new);
    }

    /// The newest snapshot of a source at an instant: where a gap lies that an older program noted
    /// without a number.
    fn before(&self, source: &str, unix_ns: u64) -> Option<SnapshotId> {
        let until = (source.to_owned(), unix_ns);
        let ((of, _), id) = self.times.range(..=until).next_back()?;
        (of == source).then_some(*id)
    }
}

/// Writes snapshots as files into a directory, all of them if none is named, with their baselines
/// and gaps.
///
/// # Errors
/// If one cannot be read, or the directory cannot be written. What was written before that stays.
///
/// # Durability
/// Durable on return.
pub fn export(from: &AnyRepository, ids: &[SnapshotId], to: &Path) -> Result<Exported> {
    let beside = Beside::of(from)?;
    let ids = match ids {
        [] => from.list()?.entries.into_iter().map(|entry| entry.id).collect(),
        some => some.to_vec(),
    };
    let to = Repository::open(to)?;
    let (mut exported, mut numbers) = (Exported::default(), Numbers::default());
    for id in ids {
        let snapshot = from.find(id)?;
        let new = to.take(&snapshot)?;
        numbers.add(id, new, &snapshot);
        exported.snapshots.push((id, new));
    }
    let beside = beside.renumbered(&numbers, &mut exported.left_out);
    (exported.baselines, exported.gaps) = beside.add_to(to.path(), &mut exported.left_out)?;
    Ok(exported)
}

/// Files and directories that were read, by what they are and not by what they are called.
#[derive(Default)]
struct ReadOnce(BTreeMap<(u64, u64), PathBuf>);

impl ReadOnce {
    /// Notes that this one is read.
    ///
    /// # Errors
    /// If it was read before, under this name or another.
    fn note(&mut self, path: &Path) -> Result<()> {
        let metadata = fs::metadata(path).map_err(|source| Error::Io {
            action: "read",
            path: path.to_owned(),
            source,
            remedy: "Check that it is there and can be read",
        })?;
        match self.0.insert((metadata.dev(), metadata.ino()), path.to_owned()) {
            None => Ok(()),
            Some(before) => Err(Error::Archive {
                action: "load snapshots of",
                path: path.to_owned(),
                reason: format!(
                    "it was given before, as {}, and everything in it would be kept twice",
                    before.display()
                ),
                remedy: "Give each file and directory once".to_owned(),
            }),
        }
    }
}

/// Loads snapshots from files, or from directories with what lies beside the snapshots there.
///
/// # Errors
/// If something cannot be read or is given twice, under whatever names, or the repository cannot be
/// written: neither a snapshot nor a gap is kept then, but in a directory those before the error.
///
/// # Durability
/// Durable on return.
pub fn load(paths: &[PathBuf], to: &Path) -> Result<Loaded> {
    let mut loaded = Loaded::default();
    // Everything is read before anything is kept.
    let (mut snapshots, mut places, mut besides) = (Vec::new(), Vec::new(), Vec::new());
    let mut without: Vec<PathBuf> = Vec::new();
    let mut once = ReadOnce::default();
    for path in paths {
        if path.exists() {
            once.note(path)?;
        }
        if path.is_dir() {
            for (id, file) in Repository::existing(path)?.files_by_number()? {
                once.note(&file)?;
                snapshots.push(read_snapshot(&file)?);
                places.push((path.clone(), id));
            }
            let beside = path.join(BESIDE);
            if let Some(read) = Beside::read(&beside)? {
                once.note(&beside)?;
                besides.push((path.clone(), read));
            }
            continue;
        }
        let dir = path
            .parent()
            .filter(|dir| !dir.as_os_str().is_empty())
            .unwrap_or(Path::new("."))
            .to_owned();
        if path.file_name().is_some_and(|name| name == BESIDE) {
            besides.extend(Beside::read(path)?.map(|beside| (dir, beside)));
            continue;
        }
        snapshots.push(read_snapshot(path)?);
        if dir.join(BESIDE).is_file() && !without.contains(&dir) {
            without.push(dir.clone());
        }
        places.push((dir, Repository::number_of(path).unwrap_or(SnapshotId::new(0))));
    }
    without.retain(|dir| !besides.iter().any(|(of, _)| of == dir));
    loaded.left_out.extend(without.iter().map(|dir| {
        format!(
            "baselines and gaps in {}: name the directory, or {BESIDE} in it, to load them too",
            dir.display()
        )
    }));
    // Until they have numbers, snapshots are told by their places among those that are loaded.
    let mut beside = Beside::default();
    for (dir, of_dir) in besides {
        let mut numbers = Numbers::default();
        for (at, ((of, old), snapshot)) in places.iter().zip(&snapshots).enumerate() {
            if *of == dir {
                numbers.add(*old, SnapshotId::new(at as u64), snapshot);
            }
        }
        let of_dir = of_dir.renumbered(&numbers, &mut loaded.left_out);
        beside.baselines.extend(of_dir.baselines);
        beside.gaps.extend(of_dir.gaps);
    }
    match AnyRepository::open(to)? {
        AnyRepository::Archive(archive) => keep(beside, &snapshots, &archive, &mut loaded)?,
        AnyRepository::Directory(repository) => {
            for snapshot in &snapshots {
                loaded.snapshots.push(repository.take(snapshot)?);
            }
            let beside = beside.at(&loaded.snapshots);
            (loaded.baselines, loaded.gaps) =
                beside.add_to(repository.path(), &mut loaded.left_out)?;
        }
    }
    Ok(loaded)
}

/// Why an archive does not take a gap as it is, if it does not.
fn unfit(gap: &GapOut) -> Option<&'static str> {
    if gap.source.len() > LONGEST_NAME || gap.source.contains('\0') {
        Some("the name of its source is too long, or has a NUL character in it")
    } else if i64::try_from(gap.at_unix_ns).is_err() {
        Some("its time is after the year 2262")
    } else {
        None
    }
}

/// Snapshots and gaps are kept at once; a baseline that cannot be added is left out, and said.
fn keep(
    beside: Beside,
    snapshots: &[Snapshot],
    archive: &Archive,
    loaded: &mut Loaded,
) -> Result<()> {
    let mut given: Vec<String> = archive.baselines()?.into_iter().map(|of| of.name).collect();
    let mut gaps = Vec::new();
    for of in &beside.gaps {
        let at = figure::instant(of.at_unix_ns);
        if let Some(why) = unfit(of) {
            loaded.left_out.push(format!("a gap at {at}: {why}"));
            continue;
        }
        if of.reason.len() > LONGEST_NAME {
            loaded.left_out.push(format!(
                "the end of the reason of a gap at {at}: it is {} bytes long",
                of.reason.len()
            ));
        }
        let (source, reason) = (of.source.clone(), of.reason.clone());
        let gap = fitting(Gap { source, at_unix_ns: of.at_unix_ns, reason, after: None });
        let behind = of.after.and_then(|at| usize::try_from(at.number()).ok());
        gaps.push(Behind {
            gap,
            behind: behind.expect("BUG: a gap without a snapshot was left out"),
        });
    }
    loaded.snapshots = archive.take_with_gaps(snapshots, &gaps)?;
    loaded.gaps = gaps.len();
    for of in beside.at(&loaded.snapshots).baselines {
        let name = figure::visible(&of.name);
        if given.contains(&of.name) {
            loaded.left_out.push(name_is_given(&of.name));
            continue;
        }
        match archive.add_baseline(&of.name, of.first, of.last) {
            Ok(()) => loaded.baselines += 1,
            Err(error) => loaded.left_out.push(format!("baseline {name}: {error}")),
        }
        given.push(of.name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_at_the_temporary_name_is_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let (elsewhere, link) = (
            dir.path().join("elsewhere"),
            dir.path().join(format!(".beside-{}.tmp", std::process::id())),
        );
        fs::write(&elsewhere, "mine").expect("a file");
        std::os::unix::fs::symlink(&elsewhere, &link).expect("a link");
        Beside::default().write(dir.path()).expect("written");
        assert_eq!(fs::read_to_string(&elsewhere).expect("there"), "mine");
        assert!(
            Beside::read(&dir.path().join(BESIDE)).expect("readable").is_some() && !link.exists()
        );
    }
}
