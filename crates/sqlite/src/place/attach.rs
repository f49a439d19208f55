//! Attaching a plain database, and opening one that is attached.
//!
//! # Attaching, and what a cut leaves
//!
//! | step | what is done | a cut after it leaves | the next open |
//! |---|---|---|---|
//! | 1 | a missing database is made, empty; SQLite rolls a hot journal back and empties the WAL (`fold`) | a plain database | begins again |
//! | 2 | its lock bytes are locked; WAL and journal are looked at again; nobody else has it open | the same | begins again |
//! | 3 | the directory is made, with the bars (`bars.rs`) and the attachment file | a plain database, a directory without one | removes the directory |
//! | 4 | the database gets its second name, `db` in the directory | a plain database with two names | gives the tier back, removes the directory |
//! | 5 | the store attaches the directory to the tier | the same, an empty tier | the same |
//! | 6 | the stub is written beside `db` under another name | the same | the same |
//! | 7 | the stub is renamed over the database's path | **attached**, whole on both sides | opens it |
//! | 8 | with `place=redo`: the stamp is written (`stamp.rs`) | the same | the same |
//!
//! Until step 7 a stock SQLite sees the whole database, after it the stub. No page is written to the tier
//! before the call has returned. Each step is durable before the next begins. When a step fails, those before
//! it are taken back, the rename too (by detaching); where that fails as well, the error says so.
//!
//! # While it is attached and open
//!
//! The lock bytes of `db` stay locked, so a stock connection that has its inode open gets SQLITE_BUSY. One
//! that is open and idle when the database is attached has no lock; where the file system and the permissions
//! tell that a file is open, step 2 refuses, and step 7 does.
//!
//! Read next: `detach.rs`.

use super::error::PlaceError;
use super::layout::{
    ATTACHMENT, DB, Layout, STOCK_JOURNAL, STOCK_WAL, STUB_NEW, State, Transition, in_use_here, stat,
    sync_dir,
};
use super::record::{self, Record};
use super::spec::{FastSpec, Placement};
use super::stamp::Stamp;
use super::{Fold, Want, bars, detach, keep_both, ofd, step, stopped};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tiersmith_store::{AttachedHome, Bound, Error, attach};

/// How a database begins.
const DATABASE_MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// A database whose home is attached and whose `db` is locked.
pub(super) struct Opened {
    /// Of a `db` that passes. It has a file of `home` open, and goes before it.
    pub(super) stamp: Option<Stamp>,
    pub(super) home: AttachedHome,
    /// Holds the lock bytes.
    pub(super) lock: ofd::LockFile,
    pub(super) record: Record,
}

/// Opens the database, attaching it if `want` has a tier; finishes or takes back what was cut. `None`: it is
/// plain.
pub(super) fn open(layout: &Layout, want: &Want, fold: Fold<'_>) -> Result<Option<Opened>, PlaceError> {
    loop {
        let state = layout.state()?;
        match state {
            State::Plain => match &want.fast {
                None => return Ok(None),
                Some(_) if stat(&layout.database)?.is_none() && !want.create => return Ok(None),
                Some(_) if want.read_only => {
                    return Err(PlaceError::ReadOnlyAttach { database: layout.database.clone() });
                }
                Some(spec) => return first(layout, spec, fold).map(Some),
            },
            State::Leftover if stat(&layout.database)?.is_none() => return Err(no_database(layout)),
            State::Leftover | State::HalfAttached | State::HalfDetached => {
                let transition = Transition::begin(layout)?;
                // Another process may have done it meanwhile.
                if layout.state()? == state {
                    keep_both::refuse_if_begun(layout, state)?;
                    clean_up(layout, state, transition, fold)?;
                }
            }
            State::Attached => {
                let transition = Transition::begin(layout)?;
                if layout.state()? == state {
                    keep_both::refuse_if_begun(layout, state)?;
                    return again(layout, want.fast.as_ref(), &transition).map(Some);
                }
            }
            State::HomeMissing => return Err(home_missing(layout)),
            State::StubMissing => {
                let (database, home) = (layout.database.clone(), layout.home.clone());
                return Err(PlaceError::StubMissing { database, home });
            }
            State::Two => {
                let (database, home) = (layout.database.clone(), layout.home.clone());
                return Err(PlaceError::TwoDatabases { database, home });
            }
        }
    }
}

/// Finishes or takes back what a cut left.
pub(super) fn clean_up(
    layout: &Layout,
    state: State,
    transition: Transition,
    fold: Fold<'_>,
) -> Result<(), PlaceError> {
    log::info!("{}: finishing an attach or detach that was interrupted", layout.database.display());
    match state {
        State::HalfAttached => {
            give_tier_back(layout);
            layout.remove_home()
        }
        State::Leftover => layout.remove_home(),
        State::HalfDetached => detach::finish(layout, transition, fold),
        _ => Ok(()),
    }
}

fn no_database(layout: &Layout) -> PlaceError {
    PlaceError::NotOurs { home: layout.home.clone(), names: "no database, and none is at its path".into() }
}

pub(super) fn home_missing(layout: &Layout) -> PlaceError {
    let why = match stat(&layout.home) {
        Ok(Some(_)) => "there is no `db` in it",
        _ => "there is no such directory",
    };
    PlaceError::HomeMissing { database: layout.database.clone(), home: layout.home.clone(), why }
}

/// Attaching was cut before the stub: the tier has no block, but it may say that it belongs to the directory
/// that goes away.
fn give_tier_back(layout: &Layout) {
    let noted = layout.home.join(tiersmith_store::home::ATTACHMENT).exists();
    let Ok(record) = read_record(layout) else { return };
    let given = || {
        let tier = record.spec.tier(&layout.database)?;
        attach(&layout.home, &[tier], record.spec.options(record.block_size))?.detach()?;
        Ok::<(), PlaceError>(())
    };
    if noted && let Err(e) = given() {
        log::warn!(
            "{}: attaching was cut and is taken back, but its tier still says that it is attached: {e}; the tier is empty, remove \
             its files ({}) before they are used again",
            layout.database.display(),
            record.spec.member_list()
        );
    }
}

// --- the first time ---

fn first(layout: &Layout, spec: &FastSpec, fold: Fold<'_>) -> Result<Opened, PlaceError> {
    let made = make_database(layout)?;
    let opened = attach_plain(layout, spec, fold);
    if opened.is_err() && made && !stopped() && layout.state().is_ok_and(|state| state == State::Plain) {
        let empty = stat(&layout.database)?.is_some_and(|m| m.len() == 0);
        // Best effort: an empty file is a database too.
        let _ = empty.then(|| std::fs::remove_file(&layout.database));
    }
    opened
}

/// An empty file where there is none, with the mode SQLite gives a new database. Whether it was made.
fn make_database(layout: &Layout) -> Result<bool, PlaceError> {
    if stat(&layout.database)?.is_some() {
        return Ok(false);
    }
    let mut options = File::options();
    match options.write(true).create_new(true).mode(0o644).open(&layout.database) {
        Ok(_) => sync_dir(&layout.parent).map(|()| true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(PlaceError::io("cannot create", &layout.database)(e)),
    }
}

fn attach_plain(layout: &Layout, spec: &FastSpec, fold: Fold<'_>) -> Result<Opened, PlaceError> {
    let database = || layout.database.clone();
    let tier = spec.tier(&layout.database)?;
    refuse_other_files(layout)?;
    if let Err(reason) = fold(&layout.database) {
        return Err(PlaceError::Fold { database: database(), reason });
    }
    let (wal, journal) = (layout.beside("-wal"), layout.beside("-journal"));
    step(1)?;
    let transition = Transition::begin(layout)?;
    Layout::check_folded(&wal, &journal)?;
    let found = transition.file.metadata().map_err(PlaceError::io("cannot stat", &layout.database))?;
    if found.nlink() > 1 {
        return Err(PlaceError::Linked { database: database(), links: found.nlink() });
    }
    refuse_if_open(layout, &transition.file)?;
    // Nobody has it open and nothing is in them. Left behind, they would be taken for the stub's.
    for path in [wal, journal, layout.beside("-shm")] {
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(PlaceError::io("cannot remove", &path)(e));
            }
            _ => {}
        }
    }
    step(2)?;
    let block_size = block_size(spec, &transition.file);
    // Decided now, so that a later open asks for the same.
    let spec = FastSpec { size: Some(tier.size), block_size: Some(block_size), ..spec.clone() };
    let record = Record { spec, block_size, without_bars: false };
    move_aside(layout, transition, record, tier, fold).inspect_err(|_| {
        if !stopped() {
            take_back(layout);
        }
    })
}

/// What SQLite would say of them is that it cannot bring a WAL into them.
fn refuse_other_files(layout: &Layout) -> Result<(), PlaceError> {
    let database = || layout.database.clone();
    let Some(found) = stat(&layout.database)? else { return Ok(()) };
    if !found.is_file() {
        return Err(PlaceError::NotAFile { database: database() });
    }
    // Not opened here if this process may have it open: closing it would drop the locks of that
    // connection. And a hot journal may be needed to make a database of it.
    if found.len() == 0 || in_use_here(&found) || stat(&layout.beside("-journal"))?.is_some() {
        return Ok(());
    }
    let mut head = [0; DATABASE_MAGIC.len()];
    let read = File::open(&layout.database).and_then(|file| file.read_at(&mut head, 0));
    read.map_err(PlaceError::io("cannot read", &layout.database))?;
    if &head == DATABASE_MAGIC { Ok(()) } else { Err(PlaceError::NotADatabase { database: database() }) }
}

/// Somebody who has the inode open would go on with a file that is not whole any more.
fn refuse_if_open(layout: &Layout, db: &File) -> Result<(), PlaceError> {
    match ofd::open_elsewhere(db) {
        Some(true) => {
            let who = "a program has the file open".to_owned();
            return Err(PlaceError::Busy { database: layout.database.clone(), who });
        }
        Some(false) => {}
        None => {
            log::debug!("{}: whether it is open elsewhere cannot be told here", layout.database.display())
        }
    }
    Ok(())
}

/// Steps 3 to 8.
fn move_aside(
    layout: &Layout,
    transition: Transition,
    record: Record,
    tier: tiersmith_store::TierSpec,
    fold: Fold<'_>,
) -> Result<Opened, PlaceError> {
    let db = &transition.file;
    let make = std::fs::DirBuilder::new().mode(0o700).create(&layout.home);
    make.map_err(PlaceError::io("cannot make the directory", &layout.home))?;
    give_owner(&layout.home, db);
    bars::raise(layout)?;
    write_record(layout, &record)?;
    sync_dir(&layout.parent)?;
    step(3)?;
    let second = layout.in_home(DB);
    if let Err(e) = std::fs::hard_link(&layout.database, &second) {
        let database = layout.database.clone();
        return Err(match e.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported => {
                PlaceError::NoLinks { database, source: e }
            }
            _ => PlaceError::io("cannot link", &second)(e),
        });
    }
    db.sync_all().map_err(PlaceError::io("cannot sync", &layout.database))?;
    sync_dir(&layout.home)?;
    step(4)?;
    let home = attach(&layout.home, &[tier], record.spec.options(record.block_size))?;
    let stubbed = || {
        step(5)?;
        put_stub(layout, db, &record.spec)?;
        let stamp = Stamp::open(&home, record.spec.place == Placement::Redo)?;
        step(8).map(|()| stamp)
    };
    match stubbed() {
        Ok(stamp) => Ok(Opened { stamp, home, lock: transition.file, record }),
        Err(e) if stopped() => Err(e),
        Err(e) => Err(give_back(layout, home, transition, fold, e)),
    }
}

/// What follows the store's attach failed because of `why`: the tier is given back, to be free for another try. After the rename the database is attached, whatever
/// came next, and is detached as any other.
fn give_back(
    layout: &Layout,
    home: AttachedHome,
    transition: Transition,
    fold: Fold<'_>,
    why: PlaceError,
) -> PlaceError {
    let undone = match layout.state() {
        Ok(State::Attached) => Transition::begin(layout).and_then(|stub| {
            home.detach()?;
            // `finish` takes the locks of `db` itself.
            drop(transition);
            detach::finish(layout, stub, fold)
        }),
        Ok(_) => {
            home.detach().unwrap_or_else(|e| log::warn!("{}: {e}", layout.home.display()));
            Ok(())
        }
        Err(e) => Err(e),
    };
    match undone {
        Ok(()) => why,
        Err(undo) => PlaceError::HalfWay {
            database: layout.database.clone(),
            source: Box::new(why),
            undo: Box::new(undo),
        },
    }
}

/// Steps 6 and 7.
fn put_stub(layout: &Layout, db: &File, spec: &FastSpec) -> Result<(), PlaceError> {
    let new = layout.in_home(STUB_NEW);
    let found = db.metadata().map_err(PlaceError::io("cannot stat", &layout.database))?;
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(record::stub(&layout.database, &layout.home, spec).as_bytes())?;
        file.set_permissions(std::fs::Permissions::from_mode(found.mode() & 0o777))?;
        file.sync_all()
    };
    write().map_err(PlaceError::io("cannot write", &new))?;
    give_owner(&new, db);
    sync_dir(&layout.home)?;
    step(6)?;
    refuse_if_open(layout, db)?;
    std::fs::rename(&new, &layout.database).map_err(PlaceError::io("cannot replace", &layout.database))?;
    sync_dir(&layout.parent)?;
    sync_dir(&layout.home)?;
    step(7)
}

/// The database's owner and group, where the process may give them.
fn give_owner(path: &Path, db: &File) {
    let Ok(found) = db.metadata() else { return };
    if let Err(e) = std::os::unix::fs::chown(path, Some(found.uid()), Some(found.gid())) {
        log::debug!("{}: keeps its owner: {e}", path.display());
    }
}

/// A step failed: the directory goes away, if the path still holds the database.
fn take_back(layout: &Layout) {
    let undone = match layout.state() {
        Ok(State::Leftover | State::HalfAttached) => layout.remove_home(),
        Ok(_) => Ok(()),
        Err(e) => Err(e),
    };
    if let Err(e) = undone {
        log::warn!("{}: {e}; the next open takes it away", layout.home.display());
    }
}

/// The block size for the database: its page size, or what was asked for.
fn block_size(spec: &FastSpec, db: &File) -> u32 {
    if let Some(size) = spec.block_size {
        return size;
    }
    let mut header = [0; 18];
    let whole = db.read_at(&mut header, 0).is_ok_and(|n| n == header.len());
    if !whole || &header[..16] != DATABASE_MAGIC {
        return 4096;
    }
    match (u32::from(header[16]) << 8) | u32::from(header[17]) {
        // How the header says 65536; the largest block is half of that.
        1 => 32768,
        page => page.clamp(4096, 32768),
    }
}

// --- again ---

/// Opens an attached database.
fn again(layout: &Layout, given: Option<&FastSpec>, stub: &Transition) -> Result<Opened, PlaceError> {
    let db_path = layout.in_home(DB);
    let db = ofd::LockFile::open(&db_path).map_err(PlaceError::io("cannot open", &db_path))?;
    let (record, rewrite) = match (read_record(layout), given) {
        (Ok(record), None) => (record, false),
        (Ok(record), Some(given)) => {
            let spec = check_given(&layout.database, &record.spec, given)?;
            (Record { spec, ..record }, false)
        }
        (Err(e), None) => return Err(e),
        (Err(e), Some(given)) => {
            log::warn!("{e}; it is written again from fast=");
            let block_size = block_size(given, &db);
            let spec = FastSpec { block_size: Some(block_size), ..given.clone() };
            // Which version it was is not known: files of version 1 are taken as they are.
            (Record { spec, block_size, without_bars: true }, true)
        }
    };
    for member in &record.spec.members {
        // Never made again: an empty file in its place would hide for what the tier was needed.
        std::fs::metadata(member).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => tiersmith_store::Error::WrongTier(format!(
                "{} is attached to {}, and nothing is there; mount it or bring the file back, then open the database again",
                layout.database.display(),
                member.display()
            ))
            .into(),
            _ => PlaceError::io("cannot stat", member)(e),
        })?;
    }
    let tier = record.spec.tier(&layout.database)?;
    let old = record.without_bars;
    let mut options = record.spec.options(record.block_size);
    let unbarred = !old && bars::are_gone(layout)?;
    if old {
        bars::bring_up_to_date(layout)?;
    } else if unbarred {
        let doubt = format!("{STOCK_WAL} and {STOCK_JOURNAL}, which keep SQLite from it, were removed");
        options.bound = options.bound.map(|bound| Bound { doubt: Some(doubt), ..bound });
    } else {
        bars::raise(layout)?;
    }
    let home = attach(&layout.home, &[tier], options).map_err(|e| changed(layout, unbarred, e))?;
    let stamp = Stamp::open(&home, record.spec.place == Placement::Redo).map_err(|e| match e {
        PlaceError::Store(e) => changed(layout, false, e),
        e => e,
    })?;
    if unbarred {
        bars::raise(layout)?;
    }
    lock_db(layout, &db)?;
    if rewrite || old {
        write_record(layout, &record)?;
    }
    if let Err(e) = std::fs::remove_file(layout.in_home(STUB_NEW))
        && e.kind() != io::ErrorKind::NotFound
    {
        log::warn!("cannot remove {}: {e}", layout.in_home(STUB_NEW).display());
    }
    let _ = stub;
    Ok(Opened { home, lock: db, record, stamp })
}

/// Names the database and the way out, where there is one: who has it open; the file is there, and
/// Tiersmith knows what it was.
fn changed(layout: &Layout, unbarred: bool, source: Error) -> PlaceError {
    match source {
        Error::Owned { owner, .. } => PlaceError::InUse { database: layout.database.clone(), owner },
        Error::HomeChanged { ref path, expected: Some(_), .. }
        | Error::LogOfAnother { ref path, expected: Some(_), .. }
            if path == Path::new(DB) =>
        {
            PlaceError::Changed {
                database: layout.database.clone(),
                home: layout.home.clone(),
                unbarred,
                source: Box::new(source),
            }
        }
        source => source.into(),
    }
}

/// Holds SQLite's locks on `db` as long as the file is open.
pub(super) fn lock_db(layout: &Layout, db: &File) -> Result<(), PlaceError> {
    ofd::lock(db).map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock => PlaceError::Busy {
            database: layout.database.clone(),
            who: format!("a program has a lock on {}", layout.in_home(DB).display()),
        },
        _ => PlaceError::io("cannot lock", &layout.in_home(DB))(e),
    })
}

/// What was given with a later `fast=`: the same members and settings as `attached`, or an error. Growth and
/// the redo kept may differ.
pub(super) fn check_given(
    database: &Path,
    attached: &FastSpec,
    given: &FastSpec,
) -> Result<FastSpec, PlaceError> {
    let same = |(a, b): (&PathBuf, &PathBuf)| a == b || super::spec::same_file(a, b);
    if given.members.len() != attached.members.len() || !given.members.iter().zip(&attached.members).all(same)
    {
        let (attached, given) = (attached.member_list(), given.member_list());
        return Err(PlaceError::OtherTier { database: database.to_path_buf(), attached, given });
    }
    let settings = |spec: &FastSpec| {
        // A block size that is not given is not another one.
        let block = given.block_size.and(spec.block_size).map_or(String::new(), |b| format!("&block={b}"));
        format!("emulate={}&place={}{block}", u8::from(spec.emulate), spec.place.word())
    };
    let (was, is) = (settings(attached), settings(given));
    if was != is {
        return Err(PlaceError::OtherSetting { database: database.to_path_buf(), attached: was, given: is });
    }
    Ok(FastSpec {
        max_size: given.max_size.or(attached.max_size),
        grow_by: given.grow_by.or(attached.grow_by),
        redo_keep_bytes: given.redo_keep_bytes.or(attached.redo_keep_bytes),
        ..attached.clone()
    })
}

// --- the attachment file ---

pub(super) fn read_record(layout: &Layout) -> Result<Record, PlaceError> {
    let path = layout.in_home(ATTACHMENT);
    let bytes = std::fs::read(&path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => PlaceError::Attachment { path: path.clone(), why: "it is missing".into() },
        _ => PlaceError::io("cannot read", &path)(e),
    })?;
    Record::decode(&bytes, &path)
}

/// Writes the attachment file as a whole.
///
/// # Durability
/// Durable on return.
fn write_record(layout: &Layout, record: &Record) -> Result<(), PlaceError> {
    let new = layout.attachment_new();
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(record.encode().as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, layout.in_home(ATTACHMENT))
    };
    write().map_err(PlaceError::io("cannot write", &new))?;
    sync_dir(&layout.home)
}
