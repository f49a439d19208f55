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
//! | 5 | the store attaches the directory to the tier; for one on flash the attachment file is written again first | the same, an empty tier | the same |
//! | 6 | the stub is written beside `db` under another name | the same | the same |
//! | 7 | the stub is renamed over the database's path | **attached**, whole on both sides | opens it |
//! | 8 | with `place=redo`: the stamp is written (`stamp.rs`) | the same | the same |
//!
//! Until step 7 a stock SQLite sees the whole database, after it the stub. No page is written to
//! the tier before the call has returned. Each step is durable before the next begins. When a step
//! fails, those before it are taken back, the rename too (by detaching); where that fails as well,
//! the error says so.
//!
//! # While it is attached and open
//!
//! The lock bytes of `db` stay locked, so a stock connection that has its inode open gets
//! SQLITE_BUSY. One that is open and idle when the database is attached has no lock; where the file
//! system and the permissions tell that a file is open, step 2 refuses, and step 7 does.
//!
//! Read next: `detach.rs`.

use super::layout::{
    ATTACHMENT, ATTACHMENT_NEW, Layout, STOCK_JOURNAL, STOCK_WAL, STUB_NEW, State, Transition,
    give_owner, in_use_here, is_at, look, make_anew, remove, replace, sync_dir,
};
use super::record::{self, RECORD, Record};
use super::spec::{FastSpec, Placement};
use super::stamp::Stamp;
use super::{Fold, Want, bars, detach, marker, ofd, step, stopped, tier_file};
use crate::error::PlaceError;
use crate::files::DB;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use tiersmith_dir::Dir;
use tiersmith_store::{AttachedHome, Bound, Error, Options, attach};

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

/// Opens the database, attaching it if `want` has a tier; finishes or takes back what was cut.
/// `None`: it is plain.
pub(super) fn open(
    layout: &Layout,
    want: &Want,
    fold: Fold<'_>,
) -> Result<Option<Opened>, PlaceError> {
    loop {
        let state = layout.state()?;
        match state {
            State::Plain => match &want.fast {
                None => return Ok(None),
                Some(_) if layout.at_path()?.is_none() && !want.create => return Ok(None),
                Some(_) if want.read_only => {
                    return Err(PlaceError::ReadOnlyAttach { database: layout.database.clone() });
                }
                Some(spec) => return first(layout, spec, fold).map(Some),
            },
            State::Leftover if layout.at_path()?.is_none() => return Err(no_database(layout)),
            State::Leftover | State::HalfAttached | State::HalfDetached => {
                let transition = Transition::begin(layout)?;
                // Another process may have done it meanwhile.
                if layout.state()? == state {
                    marker::refuse_if_begun(layout, state)?;
                    clean_up(layout, state, transition, fold)?;
                }
            }
            State::Attached => {
                let transition = Transition::begin(layout)?;
                if layout.state()? == state {
                    marker::refuse_if_begun(layout, state)?;
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
    PlaceError::NotOurs {
        home: layout.home.clone(),
        names: "no database, and none is at its path".into(),
    }
}

pub(super) fn home_missing(layout: &Layout) -> PlaceError {
    let why = match layout.inside() {
        Ok(_) => "there is no `db` in it",
        _ => "there is no such directory",
    };
    PlaceError::HomeMissing { database: layout.database.clone(), home: layout.home.clone(), why }
}

/// Attaching was cut before the stub: the tier has no block, but it may say that it belongs to the
/// directory that goes away.
fn give_tier_back(layout: &Layout) {
    let note = layout.inside().and_then(|inside| look(&inside, tiersmith_store::home::ATTACHMENT));
    let noted = note.is_ok_and(|note| note.is_some());
    let Ok(record) = read_record(layout) else { return };
    let given = || {
        tier_file::judge(layout, &record.spec)?;
        let tier = record.spec.tier(&layout.database)?;
        attach(&layout.home, &[tier], record.spec.options(record.block_size))?.detach()?;
        Ok::<(), PlaceError>(())
    };
    if noted && let Err(e) = given() {
        log::warn!(
            "{}: attaching was cut and is taken back, but its tier still says that it is attached: \
             {e}; the tier is empty, remove \
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
    if opened.is_err()
        && made
        && !stopped()
        && layout.state().is_ok_and(|state| state == State::Plain)
    {
        let empty = layout.at_path()?.is_some_and(|found| found.size == 0);
        // Best effort: an empty file is a database too.
        let _ = empty.then(|| layout.dir.remove(&layout.name));
    }
    opened
}

/// An empty file where there is none, with the mode SQLite gives a new database. Whether it was
/// made.
fn make_database(layout: &Layout) -> Result<bool, PlaceError> {
    if layout.at_path()?.is_some() {
        return Ok(false);
    }
    // Not `make_file`: here the umask has a say.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(&layout.dir, &layout.name, flags, Mode::from_raw_mode(0o644)) {
        Ok(_) => sync_dir(&layout.dir).map(|()| true),
        Err(Errno::EXIST) => Ok(false),
        Err(e) => Err(PlaceError::io("cannot create", &layout.database)(e.into())),
    }
}

fn attach_plain(layout: &Layout, spec: &FastSpec, fold: Fold<'_>) -> Result<Opened, PlaceError> {
    let database = || layout.database.clone();
    let size = spec.tier(&layout.database)?.size;
    refuse_other_files(layout)?;
    let stock = ["-wal", "-journal", "-shm"].map(|ending| layout.beside_name(ending));
    layout.refuse_strange(&layout.dir, &stock)?;
    if let Err(reason) = fold(&layout.database) {
        return Err(PlaceError::Fold { database: database(), reason });
    }
    step(1)?;
    let transition = Transition::begin(layout)?;
    Layout::check_folded(&layout.dir, &stock[0], &stock[1])?;
    let found =
        transition.file.metadata().map_err(PlaceError::io("cannot stat", &layout.database))?;
    if found.nlink() > 1 {
        return Err(PlaceError::Linked { database: database(), links: found.nlink() });
    }
    refuse_if_open(layout, &transition.file)?;
    // Nobody has it open and nothing is in them. Left behind, they would be taken for the stub's.
    for name in &stock {
        remove(&layout.dir, name)?;
    }
    step(2)?;
    let block_size = block_size(spec, &transition.file);
    // Decided now, so that a later open asks for the same.
    let spec = FastSpec { size: Some(size), block_size: Some(block_size), ..spec.clone() };
    let record = Record { spec, block_size };
    move_aside(layout, transition, record, fold).inspect_err(|_| {
        if !stopped() {
            take_back(layout);
        }
    })
}

/// What SQLite would say of them is that it cannot bring a WAL into them.
fn refuse_other_files(layout: &Layout) -> Result<(), PlaceError> {
    let database = || layout.database.clone();
    let Some(found) = layout.at_path()? else { return Ok(()) };
    if !found.is_file() {
        return Err(PlaceError::NotAFile { database: database() });
    }
    // Not opened here if this process may have it open: closing it would drop the locks of that
    // connection. And a hot journal may be needed to make a database of it.
    let journal = look(&layout.dir, layout.beside_name("-journal"))?;
    if found.size == 0 || in_use_here(&found) || journal.is_some() {
        return Ok(());
    }
    let mut head = [0; DATABASE_MAGIC.len()];
    let read = layout.dir.open_file(&layout.name).and_then(|file| file.read_at(&mut head, 0));
    read.map_err(PlaceError::io("cannot read", &layout.database))?;
    if &head == DATABASE_MAGIC {
        Ok(())
    } else {
        Err(PlaceError::NotADatabase { database: database() })
    }
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
            log::debug!(
                "{}: whether it is open elsewhere cannot be told here",
                layout.database.display()
            )
        }
    }
    Ok(())
}

/// Steps 3 to 8.
fn move_aside(
    layout: &Layout,
    transition: Transition,
    mut record: Record,
    fold: Fold<'_>,
) -> Result<Opened, PlaceError> {
    let db = &transition.file;
    layout.make_home(db)?;
    bars::raise(layout)?;
    write_record(layout, &record)?;
    sync_dir(&layout.dir)?;
    step(3)?;
    let (inside, second) = (layout.inside()?, layout.in_home(DB));
    if let Err(e) = layout.dir.link(&layout.name, &inside, DB) {
        let database = layout.database.clone();
        return Err(match e.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported => {
                PlaceError::NoLinks { database, source: e }
            }
            _ => PlaceError::io("cannot link", &second)(e),
        });
    }
    if !is_at(&inside, DB, db).map_err(PlaceError::io("cannot stat", &second))? {
        remove(&inside, DB)?;
        let who = "another file was put at its path".to_owned();
        return Err(PlaceError::Busy { database: layout.database.clone(), who });
    }
    db.sync_all().map_err(PlaceError::io("cannot sync", &layout.database))?;
    sync_dir(&inside)?;
    step(4)?;
    let options = record.spec.options(record.block_size);
    let home = attach_as_what_it_is(layout, &mut record, options, true)?;
    is_the_home(layout, &home)?;
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

/// Attaches the tier as persistent memory where its file is, else as flash, where that survives a
/// power cut. The first time the attachment file says so before the tier does.
fn attach_as_what_it_is(
    layout: &Layout,
    record: &mut Record,
    options: Options,
    first: bool,
) -> Result<AttachedHome, PlaceError> {
    let tier = record.spec.tier(&layout.database)?;
    let not_dax = match attach(&layout.home, &[tier], options.clone()) {
        Err(e) if e.is_not_dax() => e,
        other => return Ok(other?),
    };
    record.spec.flash = true;
    let tier = record.spec.tier(&layout.database)?;
    if first {
        write_record(layout, record)?;
    }
    match attach(&layout.home, &[tier], options) {
        Err(e) if e.is_of_memory() => Err(not_dax.into()),
        other => Ok(other?),
    }
}

/// What follows the store's attach failed because of `why`: the tier is given back, to be free for
/// another try. After the rename the database is attached, whatever came next, and is detached as
/// any other.
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
    let inside = layout.inside()?;
    let found = db.metadata().map_err(PlaceError::io("cannot stat", &layout.database))?;
    let text = record::stub(&layout.database, &layout.home, spec);
    let stub = make_anew(&inside, STUB_NEW, text.as_bytes(), found.mode() & 0o777)?;
    give_owner(stub, db, &layout.in_home(STUB_NEW));
    sync_dir(&inside)?;
    step(6)?;
    refuse_if_open(layout, db)?;
    let replaced = inside.rename(STUB_NEW, &layout.dir, &layout.name);
    replaced.map_err(PlaceError::io("cannot replace", &layout.database))?;
    sync_dir(&layout.dir)?;
    sync_dir(&inside)?;
    step(7)
}

/// Fails when the store found another directory at the path than the one that is held open here.
fn is_the_home(layout: &Layout, home: &AttachedHome) -> Result<(), PlaceError> {
    let failed = |e| PlaceError::io("cannot look at", &layout.home)(e);
    let Some(open) = home.home().directory() else { return Ok(()) };
    let open = Dir::from_handle(open.try_clone_to_owned().map_err(failed)?, &layout.home);
    let held = layout.inside()?.found().map_err(failed)?;
    if open.found().map_err(failed)?.same_file(&held) {
        return Ok(());
    }
    let who = format!("somebody put another directory at {}", layout.home.display());
    Err(PlaceError::Busy { database: layout.database.clone(), who })
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
fn again(
    layout: &Layout,
    given: Option<&FastSpec>,
    stub: &Transition,
) -> Result<Opened, PlaceError> {
    let (db_path, inside) = (layout.in_home(DB), layout.inside()?);
    let db = ofd::LockFile::open(&inside, DB).map_err(PlaceError::io("cannot open", &db_path))?;
    let (mut record, rewrite) = match (read_record(layout), given) {
        (Ok(record), None) => (record, false),
        (Ok(record), Some(given)) => {
            let spec = check_given(&layout.database, &record.spec, given)?;
            (Record { spec, ..record }, false)
        }
        // What another version wrote it may have written for a reason.
        (Err(e @ PlaceError::OtherVersion { .. }), _) | (Err(e), None) => return Err(e),
        (Err(e), Some(given)) => {
            log::warn!("{e}; it is written again from fast=");
            let block_size = block_size(given, &db);
            let spec = FastSpec { block_size: Some(block_size), ..given.clone() };
            (Record { spec, block_size }, true)
        }
    };
    tier_file::judge(layout, &record.spec)?;
    for member in &record.spec.members {
        // Never made again: an empty file in its place would hide for what the tier was needed.
        std::fs::metadata(member).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => tiersmith_store::Error::WrongTier(format!(
                "{} is attached to {}, and nothing is there; mount it or bring the file back, then \
                 open the database again",
                layout.database.display(),
                member.display()
            ))
            .into(),
            _ => PlaceError::io("cannot stat", member)(e),
        })?;
    }
    let mut options = record.spec.options(record.block_size);
    let unbarred = bars::are_gone(layout)?;
    if unbarred {
        let doubt =
            format!("{STOCK_WAL} and {STOCK_JOURNAL}, which keep SQLite from it, were removed");
        options.bound = options.bound.map(|bound| Bound { doubt: Some(doubt), ..bound });
    } else {
        bars::raise(layout)?;
    }
    let home = match rewrite {
        // What it was attached as is to be found out again.
        true => attach_as_what_it_is(layout, &mut record, options, false),
        false => {
            let tier = record.spec.tier(&layout.database)?;
            attach(&layout.home, &[tier], options).map_err(PlaceError::from)
        }
    };
    let home = home.map_err(|e| match e {
        PlaceError::Store(e) => changed(layout, unbarred, e),
        e => e,
    })?;
    is_the_home(layout, &home)?;
    let stamp = Stamp::open(&home, record.spec.place == Placement::Redo).map_err(|e| match e {
        PlaceError::Store(e) => changed(layout, false, e),
        e => e,
    })?;
    if unbarred {
        bars::raise(layout)?;
    }
    lock_db(layout, &db)?;
    if rewrite {
        write_record(layout, &record)?;
    }
    remove(&inside, STUB_NEW).unwrap_or_else(|e| log::warn!("{e}"));
    let _ = stub;
    Ok(Opened { home, lock: db, record, stamp })
}

/// Names the database and the way out, where there is one: who has it open; the file is there, and
/// Tiersmith knows what it was.
fn changed(layout: &Layout, unbarred: bool, source: Error) -> PlaceError {
    match source {
        Error::Owned { owner, .. } => {
            PlaceError::InUse { database: layout.database.clone(), owner }
        }
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

/// What was given with a later `fast=`: the same members and settings as `attached`, or an error.
/// Growth and the redo kept may differ.
pub(super) fn check_given(
    database: &Path,
    attached: &FastSpec,
    given: &FastSpec,
) -> Result<FastSpec, PlaceError> {
    let same = |(a, b): (&PathBuf, &PathBuf)| a == b || super::spec::same_file(a, b);
    if given.members.len() != attached.members.len()
        || !given.members.iter().zip(&attached.members).all(same)
    {
        let (attached, given) = (attached.member_list(), given.member_list());
        return Err(PlaceError::OtherTier { database: database.to_path_buf(), attached, given });
    }
    let settings = |spec: &FastSpec| {
        // A block size that is not given is not another one.
        let block =
            given.block_size.and(spec.block_size).map_or(String::new(), |b| format!("&block={b}"));
        format!("emulate={}&place={}{block}", u8::from(spec.emulate), spec.place.word())
    };
    let (was, is) = (settings(attached), settings(given));
    if was != is {
        return Err(PlaceError::OtherSetting {
            database: database.to_path_buf(),
            attached: was,
            given: is,
        });
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
    let missing = || PlaceError::Attachment { path: path.clone(), why: "it is missing".into() };
    let inside = layout.inside().map_err(|_| missing())?;
    let bytes = inside.read(ATTACHMENT, RECORD.most).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => missing(),
        io::ErrorKind::InvalidInput | io::ErrorKind::FileTooLarge => {
            PlaceError::Attachment { path: path.clone(), why: e.to_string() }
        }
        _ => PlaceError::io("cannot read", &path)(e),
    })?;
    Record::decode(&bytes, &path)
}

/// Writes the attachment file as a whole.
///
/// # Durability
/// Durable on return.
fn write_record(layout: &Layout, record: &Record) -> Result<(), PlaceError> {
    let text =
        record.encode().map_err(PlaceError::io("cannot write", &layout.in_home(ATTACHMENT)))?;
    replace(&*layout.inside()?, ATTACHMENT_NEW, ATTACHMENT, text.as_bytes())
}
