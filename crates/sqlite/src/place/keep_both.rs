//! The way back when the file in the directory was written past Tiersmith while the tier had newer
//! blocks of it: both versions are kept, as two databases.
//!
//! Which of the two is wanted, nobody but the user knows. Tiersmith's version is what it had
//! acknowledged: the blocks in the tier over the rest of the file. The rest is not known as it was,
//! only as it was changed: when there are such blocks, the version is a mixture at those places,
//! and [`KeptBoth::blocks_from_home`] says how many there are.
//!
//! # Steps, and what a cut leaves
//!
//! | step | what is done | a cut after it leaves |
//! |---|---|---|
//! | 1 | `db` is copied to `NAME-changed`, under another name first | as before, and the copy |
//! | 2 | the marker `keep-both` is written in the directory | **begun**: every open and every other detach refuses; `detach_keeping_both` goes on |
//! | 3 | a WAL or journal that a stock SQLite left takes its name beside the copy; the bars are raised | begun |
//! | 4 | length and modification time of `db` become what the tier expects, and the store attaches | begun |
//! | 5 | blocks in the tier, clean copies too, that differ at home are written to `db`, which keeps its modification time | begun |
//! | 6 | the marker is written again, with the figures to report | begun; the figures are these |
//! | 7 | the store brings its newer blocks home and gives the tier back | begun; the directory has the whole database |
//! | 8 | steps 2 to 5 of `detach.rs`; the marker is the last file to go | begun, or, after the rename, the plain database |
//!
//! Without the marker a cut in steps 4 and 5 would leave a home that looks as the tier expects and
//! is not: the next open would take its clean copies for equal to home, and mix the two versions.
//!
//! # What the clean copies are worth
//!
//! A clean copy was equal to home once; after home was written past Tiersmith that is not so any
//! more, and nothing here takes it to be: each is compared with home, and written where it differs.
//! What it holds is Tiersmith's version, unless the database was open through Tiersmith while home
//! was written past it: a block that was read only then is in the tier as it was changed, and
//! nothing tells.
//!
//! Invariant: from step 4 to step 6 nothing enters or leaves the tier. The store admits no block
//! and runs no background work, and step 5 writes past it. So each try finds and counts the same
//! blocks, and no clean copy is evicted before it was written.
//!
//! Not here: a home whose file is gone or another one, and one whose WAL or journal was changed.
//! Those stay refused.

use super::attach::{self, lock_db, read_record};
use super::layout::{
    KEEPING, Layout, STOCK_JOURNAL, STOCK_WAL, State, Transition, look, make_anew,
    names_super_journal, remove, sync_dir,
};
use super::marker::{Figures, is_begun, read_marker, write_marker};
use super::record::Record;
use super::spec::Placement;
use super::{Fold, Want, bars, detach, stamp, step, tier_file};
use crate::error::PlaceError;
use crate::files::{DB, JOURNAL};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use tiersmith_dir::{Found, Kind};
use tiersmith_store::{AttachedHome, Error, OpenMode, Options};

/// What the copy's name adds to the database's.
const CHANGED: &str = "-changed";
/// The copy while it is written.
const CHANGED_NEW: &str = "-changed.new";
/// Names in the directory, and what they add to the database's when they are kept beside the copy.
const STOCK: [(&str, &str); 2] = [(STOCK_WAL, "-changed-wal"), (STOCK_JOURNAL, "-changed-journal")];
/// Bytes read at a time.
const PIECE: usize = 1 << 20;
/// The two databases that [`super::Place::detach_keeping_both`] leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptBoth {
    /// The database's path: what Tiersmith had.
    pub database: PathBuf,
    /// What was found in the directory, with the WAL or journal that was beside it under the names
    /// SQLite looks for; `None` when nothing had been changed.
    pub changed: Option<PathBuf>,
    /// Blocks of [`KeptBoth::database`] that Tiersmith had only at home, where they may have been
    /// changed: then it may be a mixture, and `PRAGMA integrity_check` tells the worst of it. 0:
    /// each block is from the tier, and it is what Tiersmith had, unless it was open through
    /// Tiersmith while home was changed: then blocks first read after the change are as they were
    /// changed.
    pub blocks_from_home: u64,
    /// Blocks of [`KeptBoth::database`]; 0, not counted, when nothing had been changed.
    pub blocks: u64,
}

/// All of it, for a database no connection of this process has open.
pub(super) fn detach_keeping_both(layout: &Layout, fold: Fold<'_>) -> Result<KeptBoth, PlaceError> {
    let kept = |changed, figures: Figures| KeptBoth {
        database: layout.database.clone(),
        changed,
        blocks_from_home: figures.from_home,
        blocks: figures.blocks,
    };
    let nothing = Figures { from_home: 0, blocks: 0 };
    let mut state = layout.state()?;
    if state == State::StubMissing {
        detach::restore_stub(layout)?;
        state = layout.state()?;
    }
    if !matches!(state, State::Attached | State::HalfDetached | State::Leftover) {
        detach::detach(layout, fold)?;
        return Ok(kept(None, nothing));
    }
    if !is_begun(layout)? {
        let refused = match state {
            State::Attached => attach::open(layout, &Want::default(), fold).map(drop).err(),
            _ => None,
        };
        match refused {
            None => {
                detach::detach(layout, fold)?;
                return Ok(kept(None, nothing));
            }
            Some(PlaceError::Meddled { .. } | PlaceError::Changed { .. }) => {}
            Some(e) => return Err(e),
        }
    }
    // The stub's lock; of a database that is at its path already, that one's.
    let transition = Transition::begin(layout)?;
    if layout.state()? != state {
        let who = "another process is detaching it".to_owned();
        return Err(PlaceError::Busy { database: layout.database.clone(), who });
    }
    let known = read_marker(layout)?;
    let figures = match (state, known) {
        (State::Attached, _) => bring_home(layout, known)?,
        (_, Some(Some(figures))) => figures,
        (_, Some(None)) => {
            let why =
                "it says that blocks are in the tier still, and the store's note of the tier \
                       is gone"
                    .to_owned();
            return Err(PlaceError::Attachment { path: layout.in_home(KEEPING), why });
        }
        (_, None) => nothing,
    };
    if state == State::Leftover {
        layout.remove_home()?;
    } else {
        detach::finish(layout, transition, fold)?;
    }
    let begun = known.is_some() || state == State::Attached;
    Ok(kept(begun.then(|| layout.beside(CHANGED)), figures))
}

/// Steps 1 to 7. `known` is what the marker says, if there is one.
fn bring_home(layout: &Layout, known: Option<Option<Figures>>) -> Result<Figures, PlaceError> {
    let record = read_record(layout)?;
    let at_home = layout.in_home(DB);
    let inside = layout.inside()?;
    let db = inside.open_file_rw(DB).map_err(PlaceError::io("cannot open", &at_home))?;
    lock_db(layout, &db)?;
    if known.is_none() {
        copy_changed(layout)?;
        step(31)?;
        write_marker(layout, None)?;
        step(32)?;
    }
    keep_stock_files(layout)?;
    bars::raise(layout)?;
    step(33)?;
    let home = attach_as_it_was(layout, &record, &db)?;
    step(35)?;
    // Written again by each try, for step 4 may have cut `db` short again; but counted once, before
    // step 7 changes what is where.
    let counted = write_clean_copies(&home, &db, &at_home, record.block_size)?;
    step(36)?;
    let figures = known.flatten().unwrap_or(counted);
    if known.flatten().is_none() {
        write_marker(layout, Some(figures))?;
    }
    step(37)?;
    home.flush_all()?;
    if names_super_journal(&inside, JOURNAL)? {
        // Home and tier agree again, and only SQLite through Tiersmith can judge the journal: the
        // database must open.
        log::warn!(
            "{}: what was written past Tiersmith is kept as {}; {} of {} blocks were at home only",
            layout.database.display(),
            layout.beside(CHANGED).display(),
            figures.from_home,
            figures.blocks
        );
        if record.spec.place == Placement::Redo {
            stamp::forget(&home)?;
        }
        remove(&inside, KEEPING)?;
        sync_dir(&inside)?;
        return Err(PlaceError::SuperJournal { path: layout.in_home(JOURNAL) });
    }
    home.detach()?;
    step(38)?;
    Ok(figures)
}

/// Step 1.
fn copy_changed(layout: &Layout) -> Result<(), PlaceError> {
    let (inside, copy) = (layout.inside()?, layout.beside_name(CHANGED));
    let in_the_way = |path| Err(PlaceError::InTheWay { database: layout.database.clone(), path });
    for (stock, ending) in STOCK {
        let kept = look(&layout.dir, layout.beside_name(ending))?;
        if kept.is_some() && look(&inside, stock)?.is_some_and(is_kept) {
            return in_the_way(layout.beside(ending));
        }
    }
    let at_home = layout.in_home(DB);
    let mut db = inside.open_file(DB).map_err(PlaceError::io("cannot open", &at_home))?;
    if let Some(found) = look(&layout.dir, &copy)? {
        // A cut left the copy, if it is one.
        let same = || Ok(found.is_file() && same_contents(db, layout.dir.open_file(&copy)?)?);
        let same =
            same().map_err(PlaceError::io("cannot compare with", &layout.beside(CHANGED)))?;
        return if same { Ok(()) } else { in_the_way(layout.beside(CHANGED)) };
    }
    let (new, failed) = (layout.beside_name(CHANGED_NEW), layout.beside(CHANGED_NEW));
    let mode = db.metadata().map_err(PlaceError::io("cannot stat", &at_home))?.mode() & 0o777;
    let mut file = make_anew(&layout.dir, &new, b"", mode)?;
    let copied = io::copy(&mut db, &mut file).and_then(|_| file.sync_all());
    copied.map_err(PlaceError::io("cannot copy to", &failed))?;
    layout
        .dir
        .rename(&new, &layout.dir, &copy)
        .map_err(PlaceError::io("cannot rename", &failed))?;
    sync_dir(&layout.dir)
}

/// Whether it is kept beside the copy: it is no bar.
fn is_kept(found: Found) -> bool {
    found.kind != Kind::Directory
}

/// Whether the files are equal.
fn same_contents(mut one: File, mut two: File) -> io::Result<bool> {
    let (mut a, mut b) = (vec![0; PIECE], vec![0; PIECE]);
    let mut left = one.metadata()?.len();
    if two.metadata()?.len() != left {
        return Ok(false);
    }
    while left > 0 {
        let n = left.min(PIECE as u64) as usize;
        one.read_exact(&mut a[..n])?;
        two.read_exact(&mut b[..n])?;
        if a[..n] != b[..n] {
            return Ok(false);
        }
        left -= n as u64;
    }
    Ok(true)
}

/// Step 3, but for the bars.
fn keep_stock_files(layout: &Layout) -> Result<(), PlaceError> {
    let inside = layout.inside()?;
    for (stock, ending) in STOCK {
        let (from, to) = (layout.in_home(stock), layout.beside_name(ending));
        let Some(found) = look(&inside, stock)?.filter(|found| is_kept(*found)) else { continue };
        match look(&layout.dir, &to)? {
            None => {
                let renamed = inside.rename(stock, &layout.dir, &to);
                renamed.map_err(PlaceError::io("cannot rename", &from))?;
            }
            // A cut left the rename with both names.
            Some(there) if there.same_file(&found) => remove(&inside, stock)?,
            Some(_) => {
                let path = layout.beside(ending);
                return Err(PlaceError::InTheWay { database: layout.database.clone(), path });
            }
        }
        sync_dir(&layout.dir)?;
        sync_dir(&inside)?;
    }
    Ok(())
}

/// Step 4.
fn attach_as_it_was(
    layout: &Layout,
    record: &Record,
    db: &File,
) -> Result<AttachedHome, PlaceError> {
    let attach = || {
        tier_file::judge(layout, &record.spec)?;
        let tier = record.spec.tier(&layout.database)?;
        // Nothing enters or leaves the tier behind step 5's back.
        let options =
            Options { admit: false, background: false, ..record.spec.options(record.block_size) };
        Ok::<_, PlaceError>(tiersmith_store::attach(&layout.home, &[tier], options)?)
    };
    match attach() {
        Err(PlaceError::Store(
            Error::HomeChanged { path, expected: Some(expected), .. }
            | Error::LogOfAnother { path, expected: Some(expected), .. },
        )) if path == Path::new(DB) => {
            let as_it_was = || {
                db.set_len(expected.size)?;
                db.set_modified(UNIX_EPOCH + Duration::from_nanos(expected.mtime_ns))?;
                db.sync_all()
            };
            as_it_was()
                .map_err(PlaceError::io("cannot set length and time of", &layout.in_home(DB)))?;
            step(34)?;
            attach()
        }
        other => other,
    }
}

/// Step 5: the store takes its clean copies for equal to home and would not write them. They are
/// written to `db` past it: a write through the store would need room in the tier, and might evict
/// those that are not written yet. Counts what only home has.
///
/// # Durability
/// Durable on return.
fn write_clean_copies(
    home: &AttachedHome,
    db: &File,
    path: &Path,
    block_size: u32,
) -> Result<Figures, PlaceError> {
    let file = home.open(DB, OpenMode::READ)?;
    // The store's stamp: with no dirty block nothing makes it write another, and the next open
    // would take this write for a foreign one.
    let known = db
        .metadata()
        .and_then(|found| found.modified())
        .map_err(PlaceError::io("cannot stat", path))?;
    let block = u64::from(block_size);
    let blocks = file.len()?.div_ceil(block);
    let mut theirs = vec![0; block as usize];
    let mut in_tier = 0;
    for offset in (0..blocks).map(|n| n * block) {
        if offset / block == blocks / 2 {
            step(39)?;
        }
        let Some(ours) = file.read_ref(offset) else { continue };
        in_tier += 1;
        let got = read_up_to(db, &mut theirs[..ours.len()], offset)
            .map_err(PlaceError::io("cannot read", path))?;
        if got < ours.len() || theirs[..got] != ours[..] {
            db.write_all_at(&ours, offset).map_err(PlaceError::io("cannot write", path))?;
        }
    }
    db.set_modified(known).map_err(PlaceError::io("cannot set the time of", path))?;
    db.sync_all().map_err(PlaceError::io("cannot sync", path))?;
    let (dirty, cached) = file.blocks_in_tier();
    if in_tier != dirty + cached {
        let counted = format!("{in_tier} of {} blocks of the tier could be read", dirty + cached);
        return Err(PlaceError::io("cannot read the blocks in the tier of", path)(
            io::Error::other(counted),
        ));
    }
    Ok(Figures { from_home: blocks - in_tier, blocks })
}

/// Reads until `into` is full or the file ends; returns the number of bytes.
fn read_up_to(file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < into.len() {
        match file.read_at(&mut into[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(n) => read += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(read)
}
