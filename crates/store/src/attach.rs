//! Attaching a home to its tiers and detaching it.
//!
//! # Attaching for the first time, and what a power cut leaves
//!
//! | step | what is done | a cut after it leaves |
//! |---|---|---|
//! | 1 | every tier is formatted, its superblocks say `attaching` | a plain home; formatting is done again |
//! | 2 | the attachment note is written into home | no block in a tier; attach goes on from here |
//! | 3 | the door is closed: home is moved aside, its path holds a note for people | the same |
//! | 4 | the superblocks say `attached` | attached |
//!
//! # Detaching
//!
//! | step | what is done | a cut after it leaves |
//! |---|---|---|
//! | 1 | every dirty block goes home, home is synced | attached, nothing dirty |
//! | 2 | the superblocks say `detaching` | the next attach takes it up as attached: copies are clean, changed files are noticed |
//! | 3 | the door is opened: home is at its path again | the same |
//! | 4 | the attachment note is removed | a plain home; the tier is free |
//! | 5 | the superblocks say `detached` | the same |

use crate::address::{FRAME, WordAt};
use crate::api::{AttachedHome, Running, spawn_background};
use crate::detach::{belongs_to, people_note};
use crate::environment::Environment;
use crate::error::{Error, MediumError, Result};
use crate::format::superblock::{FLAG_EPHEMERAL, OWNER_AT, Superblock, TierState};
use crate::home::{Home, HomeError, HomeFiles, HomeStat, NoteOf, RealHome};
use crate::medium::held::Held;
use crate::medium::{Medium, OnSectors, open_to_read};
use crate::names::slots::FileCounts;
use crate::note::{Note, names_lent_in};
use crate::plain::{LentDir, PlainDir, named};
use crate::planted::Planted;
use crate::profile::Profile;
use crate::stats::RecoveryReport;
use crate::store::Store;
use crate::sync::Mutex;
use crate::sync::atomic::AtomicBool;
use crate::tier::open::{self, Found};
use crate::tier::{Member, Tier};
use crate::waits;
use std::cell::RefCell;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Instant;
use tiersmith_dir::Dir;
use tiersmith_events::Registry;

pub use crate::options::{Bound, Guard, Options, TierSpec};

#[cfg(test)]
mod point_tests;
#[cfg(test)]
mod recovery_tests;
#[cfg(test)]
mod tests;

/// Bytes of the owner note.
const OWNER_NOTE: usize = 256;

/// Attaches `tiers` to the directory `home`: formats them when they are new, else recovers what
/// they hold.
///
/// # Errors
/// Each reason has its own error: no directory, read-only, somebody else's tier, a member missing,
/// out of order or cut short, a damaged structure, a home file changed while the tier had newer
/// blocks of it, another owner. Nothing is changed then.
///
/// # Durability
/// The attachment is durable on return.
pub fn attach(home: &Path, tiers: &[TierSpec], options: Options) -> Result<AttachedHome> {
    let started = Instant::now();
    options.check()?;
    for spec in tiers {
        spec.check()?;
    }
    open::refuse_twice(tiers)?;
    // Kept until what a failed attach made is removed: the home stays locked so long.
    let real = Arc::new(open_and_lock(home)?);
    let places = tiers.iter().map(|spec| Held::all(&spec.members)).collect::<Result<Vec<_>>>()?;
    let mut made = Vec::new();
    let attached = map_and_attach(real.clone(), tiers, &places, &mut made, options, started);
    if attached.is_err() {
        for (place, made) in places.iter().flatten().zip(&made) {
            made.iter().for_each(|made| place.undo_new(made));
        }
    }
    attached
}

/// Opens the home and becomes its owner. Another process may attach or detach it between the two,
/// which moves the directory.
fn open_and_lock(home: &Path) -> Result<RealHome> {
    let _ = crate::home::finish_move(home).map_err(|e| home_error(home, e))?;
    for _ in 0..100 {
        let real = RealHome::open(home).map_err(|e| home_error(home, e))?;
        refuse_aside(&real)?;
        real.lock().map_err(|e| owned_or_home(home, &real, e))?;
        if real.is_current().map_err(|e| home_error(home, e))? {
            return Ok(real);
        }
    }
    Err(Error::Home {
        path: home.to_path_buf(),
        reason: "it is being moved all the time; try again when that has ended".into(),
    })
}

/// The place a home was moved aside to is not its name: attached by that, it would be moved aside
/// once more.
fn refuse_aside(real: &RealHome) -> Result<()> {
    let path = real.path();
    let Some(home) = crate::home::home_of_aside(path) else { return Ok(()) };
    let reason = format!(
        "it is where Tiersmith moved the files of {} aside; give {} instead",
        home.display(),
        home.display()
    );
    Err(Error::Home { path: path.to_path_buf(), reason })
}

fn map_and_attach(
    real: Arc<RealHome>,
    tiers: &[TierSpec],
    places: &[Vec<Held>],
    made: &mut Vec<Option<tiersmith_dir::Found>>,
    options: Options,
    started: Instant,
) -> Result<AttachedHome> {
    let path = real.path().to_path_buf();
    let synced = options.lent_synced;
    for given in tiers.iter().filter_map(|spec| spec.lent_in.as_ref()) {
        named::refuse_unfit(given, synced)?;
    }
    let mut mapped = Vec::new();
    for (spec, places) in tiers.iter().zip(places) {
        let members =
            open::map_members(spec, places, options.members_of, made).map_err(name_owner)?;
        spec.refuse_lent_elsewhere()?;
        mapped.push((spec.clone(), members));
    }
    let profile = match &options.profile {
        Some(profile) => profile.clone(),
        None => real_profile(&real)?,
    };
    let mut home: Arc<dyn Home> = real.clone();
    if let Some(model) = &options.home_model {
        home = model.wrap(home);
    }
    let members_of = options.members_of;
    let made_within = RefCell::new(Vec::new());
    let is_noted = |directory: &Path| names_lent_in(&*real, &path, directory);
    let place = |spec: &TierSpec, uuid: [u8; 16]| -> Result<Option<Arc<dyn LentDir>>> {
        if let Some(given) = &spec.lent_in {
            let (dir, made) = PlainDir::found_within(given, uuid, synced)?;
            let dir = Arc::new(dir);
            if made {
                let noted = is_noted(&given.directory);
                made_within.borrow_mut().push((given.directory.clone(), noted, dir.clone()));
            }
            return Ok(Some(dir));
        }
        let first = tiers.iter().position(|tier| tier.name == spec.name);
        let first = first.and_then(|n| places[n].first());
        // On flash the user has to name a directory.
        let Some(first) = first.filter(|_| spec.medium != Medium::Flash) else { return Ok(None) };
        let dir = PlainDir::new(first, spec.medium == Medium::Persistent);
        let dir = dir.map(|dir| match members_of {
            Some(user) => dir.of(user),
            None => dir,
        });
        Ok(dir.map(|dir| Arc::new(dir) as Arc<dyn LentDir>))
    };
    let attached = attach_mapped(home, &path, mapped, &place, profile, options, started);
    if attached.is_err() {
        // What the note names by now, and did not before, is missed if it is not there.
        let made = made_within.take();
        let left = made.iter().filter(|(directory, noted, _)| is_noted(directory) == *noted);
        left.for_each(|(_, _, dir)| dir.tidy());
    }
    attached
}

/// The built-in profile the home is attached with, else one by looking into it: what a file is must
/// not change because a file that tells the database is gone.
fn real_profile(real: &RealHome) -> Result<Profile> {
    use std::os::fd::AsRawFd;
    let note = real
        .read_attachment()
        .ok()
        .flatten()
        .and_then(|bytes| Note::parse(&bytes, real.path()).ok());
    let noted = note.filter(|note| note.profile_file.is_none()).map(|note| note.profile);
    if let Some(profile) = noted.and_then(|name| Profile::named(&name).ok()) {
        return Ok(profile);
    }
    let place = PathBuf::from(format!("/proc/self/fd/{}", real.directory().as_raw_fd()));
    match Profile::detect(&place) {
        Some(profile) => Ok(profile),
        None => Profile::named("generic").map_err(|e| Error::Options(e.to_string())),
    }
}

fn home_error(home: &Path, e: HomeError) -> Error {
    Error::Home { path: home.to_path_buf(), reason: e.to_string() }
}

fn owned_or_home(home: &Path, real: &RealHome, e: std::io::Error) -> Error {
    if e.kind() == std::io::ErrorKind::WouldBlock {
        let owner = home_owner(real)
            .unwrap_or_else(|| "another process (it has the directory locked)".into());
        return Error::Owned { what: format!("the home {}", home.display()), owner };
    }
    Error::Home { path: home.to_path_buf(), reason: e.to_string() }
}

/// Says who has a member, from the owner note on it.
fn name_owner(e: Error) -> Error {
    let Error::Medium(MediumError::Owned { path, .. }) = &e else { return e };
    let owner = owner_note(path).unwrap_or_else(|| "another process".into());
    Error::Owned { what: format!("the tier member {}", path.display()), owner }
}

/// Who attached the tier last, as the first member says. That is text, which the member's owner may
/// have changed, so it is given as what it is.
fn owner_note(member: &Path) -> Option<String> {
    use std::os::unix::fs::FileExt;
    let mut note = [0; OWNER_NOTE];
    // A path that others may have a say in: no link is followed, and a pipe is not waited for.
    let (dir, name) = Dir::holding(member).ok()?;
    let file = dir.open_file(name).or_else(|_| open_to_read(member)).ok()?;
    file.read_exact_at(&mut note, OWNER_AT).ok()?;
    let text = String::from_utf8_lossy(&note).trim_end_matches('\0').to_string();
    let number = text.strip_prefix("process ")?.split(|c: char| !c.is_ascii_digit()).next()?;
    let process = number.parse().ok().and_then(rustix::process::Pid::from_raw)?;
    if text.contains(char::is_control) {
        return None;
    }
    Some(match rustix::process::test_kill_process(process) {
        Err(rustix::io::Errno::SRCH) => format!(
            "{text}, which is not running here (it has ended and left a child, or runs in another \
             container)"
        ),
        _ => format!("{text}, as the owner note of {} says", member.display()),
    })
}

/// Who has the home: the one that has its tiers.
fn home_owner(real: &RealHome) -> Option<String> {
    let note = real.read_attachment().ok()??;
    let note = Note::parse(&note, real.path()).ok()?;
    note.tiers.iter().find_map(|tier| owner_note(&tier.members.first()?.0))
}

/// Where the plain files of a tier are, by what is said of it and its uuid; `None`: nowhere.
pub(crate) type LentDirOf<'a> =
    dyn Fn(&TierSpec, [u8; 16]) -> Result<Option<Arc<dyn LentDir>>> + 'a;

/// Attaches media that are mapped already: what [`attach`] does, and what the simulator calls.
pub(crate) fn attach_mapped(
    home: Arc<dyn Home>,
    path: &Path,
    mapped: Vec<(TierSpec, Vec<Member>)>,
    lent_dir: &LentDirOf<'_>,
    profile: Profile,
    options: Options,
    started: Instant,
) -> Result<AttachedHome> {
    let identity = home.identity().map_err(Error::io("cannot stat", path))?;
    let own = Own { identity, top: home.identity_of_top().ok().flatten(), path };
    let note =
        home.read_attachment().map_err(Error::io("cannot read the attachment note of", path))?;
    let note = note.map(|bytes| Note::parse(&bytes, path)).transpose()?;
    let uuid = note.as_ref().map(|n| n.attachment);
    let mut names: Vec<&str> = mapped.iter().map(|(spec, _)| &spec.name[..]).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::Options(format!(
            "two tiers are called `{}`; give each its own name",
            twice[0]
        )));
    }
    let mut found = Vec::new();
    let (mut given, mut empty) = (Vec::new(), Vec::new());
    for (spec, members) in mapped {
        let mut tier = open::read_superblocks(members, &spec)?;
        match tier.superblocks.as_ref().map(|sb| &sb[0]) {
            Some(sb) if Some(sb.attachment) == uuid => given.push((sb.name.clone(), spec.medium)),
            Some(_) => {}
            None => empty.extend(spec.members.first().map(|p| p.display().to_string())),
        }
        let believed = tier.superblocks.as_ref().is_some_and(|sb| {
            note.iter().flat_map(|note| &note.tiers).any(|noted| noted.believes(&sb[0]))
        });
        if spec.medium == Medium::Ephemeral && !believed {
            // It is another one, an older state of it, or failed while home was written; or a
            // detach that the disk did not take down left it as it was.
            for sb in tier.superblocks.take().iter().flatten() {
                refuse_foreign(sb, &own, uuid.as_ref(), path)?;
            }
        }
        if !spec.medium.has_clean_copies_only()
            && let Some(sb) = tier.superblocks.as_ref().map(|sb| &sb[0])
            && Some(sb.attachment) == uuid
            && sb.state != TierState::Detached
        {
            let noted = note.iter().flat_map(|note| &note.tiers);
            for (noted, member) in noted.filter(|noted| noted.name == sb.name).zip(&spec.members) {
                noted.refuse_another_state(sb, member, path)?;
            }
        }
        if spec.medium == Medium::Volatile {
            // Clean copies of an earlier attach are nobody's loss.
            for sb in tier.superblocks.take().iter().flatten() {
                refuse_foreign(sb, &own, uuid.as_ref(), path)?;
                refuse_unnoted(sb, uuid.as_ref(), path)?;
            }
        }
        found.push((spec, tier));
    }
    let ids = (own.identity.ino, own.identity.btime_ns, path.as_os_str().as_bytes());
    let reopened = reopens(&found, uuid.as_ref(), &own, path)?;
    if let Some(note) = &note {
        note.check(&given, &empty, path)?;
    }
    if note.is_none() && found.iter().any(|(_, tier)| tier.superblocks.is_some()) {
        // A detach that was killed right after it removed the note: with the power the note would
        // come back, and name a tier made anew here.
        home.sync_dir(Path::new("")).map_err(Error::io("cannot sync", path))?;
    }
    let mut random = Random(options.seed);
    let attachment = match uuid {
        Some(uuid) => uuid,
        None => found
            .iter()
            .find_map(|(_, f)| {
                f.superblocks.as_ref().filter(|_| reopened).map(|sb| sb[0].attachment)
            })
            .unwrap_or_else(|| random.uuid()),
    };
    // Before a tier is written: a place for plain files that cannot be had leaves all as it was.
    let mut planned = Vec::new();
    for (spec, tier) in found {
        let fresh = !reopened
            // One of ours that says `attaching` is complete and empty: formatting it again could be
            // cut, and leave a home whose note names a tier that is not there.
            || tier.superblocks.as_ref().is_none_or(|sb| sb[0].state == TierState::Detached);
        let random = fresh.then(|| random.three());
        let given = tier.superblocks.as_ref().map(|sb| sb[0].tier_uuid);
        let uuid = random.map(open::uuid_of).or(given).unwrap_or_default();
        let durability = open::durability(&tier.members, &spec);
        let holds_dirty = durability.may_hold_only_copy();
        let lent_dir = if holds_dirty { lent_dir(&spec, uuid)? } else { None };
        planned.push((spec, tier, random, lent_dir));
    }
    let mut counted = None;
    let mut moved = Vec::new();
    let mut tiers = Vec::new();
    for (spec, tier, random, lent_dir) in planned {
        let before = tier.superblocks.unwrap_or_default();
        let superblocks = match random {
            None => before,
            Some(random) => {
                let files = match counted {
                    Some(files) => files,
                    None => *counted.insert(FileCounts::of(&*home, &profile)?),
                };
                let files = files.for_tier(&spec);
                open::format(&tier.members, before, &spec, attachment, random, ids, files)?
            }
        };
        // A tier in state `attaching` is not formatted again, and was held like one that is.
        tier.members.iter().filter_map(|m| m.medium.on_sectors()).for_each(OnSectors::formatted);
        let mut tier = open::assemble(tier.members, superblocks, &spec, &options)?;
        if tier.holds_dirty() {
            tier.lent_dir = lent_dir;
            tier.lent_in = spec.lent_in.as_ref().map(|given| given.directory.clone());
            let noted = note.iter().flat_map(|note| &note.tiers).find(|n| n.name == tier.name);
            let before = noted.and_then(|noted| Some(noted.lent_in.as_ref()?.0.clone()));
            let left = |before: &PathBuf| {
                tier.lent_in.as_ref().is_none_or(|now| !named::may_be_one(before, now))
            };
            moved.extend(before.filter(left).map(|before| (before, tier.uuid())));
        }
        tiers.push((tier, random.is_some()));
    }
    for (tier, _) in &tiers {
        check_redo_fits(tier, &profile)?;
    }
    let first = note.is_none();
    let home_files = counted.map(|files| files.redo + files.data);
    let taken = Taken { attachment, note, path, recovery_reopened: reopened, home_files };
    let was_closed = home.door_closed().unwrap_or(true);
    let attached = take(home.clone(), taken, tiers, profile, options, started);
    if attached.is_err() && first && !was_closed && !reopened {
        make_plain_again(&*home, path);
    }
    if attached.is_ok() {
        // Empty, or the attach would have missed what is in it.
        let left = moved.iter().filter_map(|(dir, uuid)| PlainDir::within(dir, *uuid, false).ok());
        left.for_each(|dir| dir.tidy());
    }
    attached
}

/// What is known when home and tiers are found to belong together.
struct Taken<'a> {
    attachment: [u8; 16],
    note: Option<Note>,
    path: &'a Path,
    recovery_reopened: bool,
    home_files: Option<u64>,
}

/// A tier that holds redo has to have room for it to move.
fn check_redo_fits(tier: &Tier, profile: &Profile) -> Result<()> {
    let superblock = tier.superblocks.lock()[0].clone();
    let overhead = tier.geometry.data_start.iter().sum::<u64>();
    let room = (superblock.max_len.max(superblock.len) * u64::from(superblock.members))
        .saturating_sub(overhead);
    let wanted = profile.redo_at_least();
    if !tier.holds_redo || room >= wanted {
        return Ok(());
    }
    let each =
        (wanted + overhead).div_ceil(u64::from(superblock.members)).next_multiple_of(1 << 20);
    Err(Error::Options(format!(
        "tier `{}` has room for {room} bytes of blocks, and the redo of profile `{}` needs \
         {wanted}; give each member at least {} MiB",
        tier.name,
        profile.name(),
        each >> 20
    )))
}

/// After a first attach that failed: no note, and the directory at its path. What was formatted is
/// not attached to anything.
fn make_plain_again(home: &dyn Home, path: &Path) {
    let undo = || {
        if home.door_closed()? {
            home.open_door()?;
        }
        home.remove_attachment()
    };
    if let Err(e) = undo() {
        log::warn!("{}: {e}; the next attach or detach makes it whole", path.display());
    }
}

fn write_note(home: &dyn Home, path: &Path, note: &Note) -> Result<()> {
    note.encode()
        .and_then(|note| home.write_attachment(&note))
        .map_err(Error::io("cannot write the attachment note of", path))
}

/// Recovers, closes the door and starts the work.
fn take(
    home: Arc<dyn Home>,
    taken: Taken<'_>,
    tiers: Vec<(Tier, bool)>,
    profile: Profile,
    mut options: Options,
    started: Instant,
) -> Result<AttachedHome> {
    let Taken { attachment, note, path, recovery_reopened: reopened, home_files: counted } = taken;
    let events = if options.record_waits {
        Registry::new(waits::EVENTS, waits::COUNTERS)
    } else {
        Registry::disabled()
    };
    let recovery_started = events.start();
    let mut report = RecoveryReport { reopened, home_files: counted, ..RecoveryReport::default() };
    let home_files = Arc::new(HomeFiles::new(home.clone(), options.home_files_open));
    let (tiers, recovered) = crate::recover::recover(
        &home,
        &home_files,
        tiers,
        &profile,
        options.bound.as_ref(),
        &mut report,
    )?;
    let redo_tiers = tiers.iter().filter(|t| t.holds_redo);
    let share = redo_tiers.map(|t| t.allocator.total_frames() * FRAME as u64 / 4).min();
    options.redo_keep_bytes = options.redo_keep_bytes.min(share.unwrap_or(u64::MAX));
    let now = Note::new(attachment, profile.name(), &options, &tiers);
    if options.planted.is(Planted::DoorClosedFirst) {
        let _ = home.close_door("");
    }
    if note.as_ref() != Some(&now) {
        write_note(&*home, path, &now)?;
    }
    if options.guard == Guard::MoveAside {
        home.close_door(&people_note(path, &tiers))
            .map_err(|e| Error::Home { path: path.to_path_buf(), reason: e.to_string() })?;
    }
    // The files of a mount point have moved into another directory by now.
    let identity = home.identity().map_err(Error::io("cannot look at", path))?;
    for tier in &tiers {
        tier.update_superblocks(|sb| {
            sb.state = TierState::Attached;
            sb.attach_count += 1;
            // The home may have moved, and one that a tier was formatted for and not used yet may
            // be another directory now.
            belongs_to(sb, &identity);
            sb.home_path = path.as_os_str().as_bytes().to_vec();
        });
        let count = tier.superblocks.lock()[0].attach_count;
        tier.table.lock().begin(count);
        tier.number_records(count);
        write_owner(tier);
    }
    if tiers.iter().any(|tier| tier.is_counted()) {
        // Before home is written, and before anybody is told that a block is durable: an older
        // state of the tier is told by its number.
        write_note(&*home, path, &Note::new(attachment, profile.name(), &options, &tiers))?;
    }
    let env = Arc::new(Environment::new(home, path, events, options));
    let mut store = Store::new(env, tiers, profile, home_files, &identity);
    crate::recover::finish(&store, recovered, &mut report)?;
    store.tiers.iter().try_for_each(|tier| tier.sound())?;
    report.time = started.elapsed();
    let _ = store.env.events.record(waits::RECOVERY, recovery_started);
    store.recovery = report;
    store.names.know_sentinels();
    log::info!("{}: {}", path.display(), store.recovery);
    let store = Arc::new(store);
    let stop = Arc::new(AtomicBool::new(false));
    let running =
        Arc::new(Running { store: store.clone(), thread: Mutex::new(None), stop: stop.clone() });
    if store.env.options.background {
        let thread = spawn_background(&store, &stop)
            .map_err(Error::io("cannot start a thread for", path))?;
        *running.thread.lock() = Some(thread);
    }
    Ok(AttachedHome { store, _running: running })
}

/// Whether this home and these tiers belong together already; an error when they belong to others.
fn reopens(
    found: &[(TierSpec, Found)],
    note: Option<&[u8; 16]>,
    own: &Own<'_>,
    path: &Path,
) -> Result<bool> {
    let (mut ours, mut only_copies) = (0, 0);
    for (spec, tier) in found {
        let Some(sb) = tier.superblocks.as_ref().map(|sb| &sb[0]) else { continue };
        let state = newest_state(tier);
        refuse_noted(sb, state, own, note, path)?;
        if state == TierState::Detached || (state == TierState::Detaching && note.is_none()) {
            continue;
        }
        if state == TierState::Attaching && note != Some(&sb.attachment) {
            // Formatted and never used: no block is in it.
            continue;
        }
        refuse_foreign(sb, own, note, path)?;
        if note.is_none_or(|uuid| *uuid == sb.attachment) {
            ours += 1;
            only_copies += usize::from(!spec.medium.has_clean_copies_only());
        }
    }
    let durable = found.iter().filter(|(spec, _)| !spec.medium.has_clean_copies_only()).count();
    if ours > 0 && only_copies < durable {
        return Err(Error::WrongTier(format!(
            "{only_copies} of the {durable} tiers given belong to {}; name exactly the tiers it \
             was attached to",
            path.display()
        )));
    }
    Ok(ours > 0)
}

fn newest_state(tier: &Found) -> TierState {
    // A cut between members leaves different states; the one that is furthest back decides.
    let states = tier.superblocks.iter().flatten().map(|sb| sb.state);
    let rank = |s: &TierState| match s {
        TierState::Attached => 0,
        TierState::Detaching => 1,
        TierState::Attaching => 2,
        TierState::Detached => 3,
    };
    states.min_by_key(rank).unwrap_or(TierState::Detached)
}

/// A tier between the first and the last step of attaching or detaching holds nothing that home
/// lacks; but as long as the other home's note names it, that home needs it to be attached or
/// detached to the end. The home itself is never refused here, wherever it was moved and whatever
/// is at its old place now.
fn refuse_noted(
    sb: &Superblock,
    state: TierState,
    own: &Own<'_>,
    note: Option<&[u8; 16]>,
    path: &Path,
) -> Result<()> {
    let was = PathBuf::from(std::ffi::OsString::from_vec(sb.home_path.clone()));
    let in_the_middle = matches!(state, TierState::Attaching | TierState::Detaching);
    if !in_the_middle || was == path || own.is_home_of(sb) {
        return Ok(());
    }
    let why = match noted_at(&was) {
        Ok(attachment) if attachment != Some(sb.attachment) => return Ok(()),
        Ok(_) => String::new(),
        // It was copied to another place in the middle: what cannot be read where it was is no
        // reason to refuse what its own note names.
        Err(_) if note == Some(&sb.attachment) => return Ok(()),
        Err(reason) => format!(". Whether that home still needs it cannot be seen: {reason}"),
    };
    Err(Error::WrongTier(format!(
        "tier `{}` is in the middle of being attached to {} or detached from it, which was \
         interrupted; attach or detach that first{why}",
        sb.name,
        was.display()
    )))
}

/// The attachment that the note of the home at `path` names; `None` where there is no home, or one
/// without a note. The error is why that cannot be seen.
fn noted_at(path: &Path) -> std::result::Result<Option<[u8; 16]>, String> {
    let found = match NoteOf::read(path) {
        Err(HomeError::Missing { .. } | HomeError::NotADirectory { .. }) => return Ok(None),
        other => other.map_err(|e| e.to_string())?,
    };
    let note = found.note.map(|bytes| Note::parse(&bytes, &found.home)).transpose();
    Ok(note.map_err(|e| e.to_string())?.map(|note| note.attachment))
}

/// The home that is to be attached.
struct Own<'a> {
    identity: HomeStat,
    /// The directory at its path, where that is a mount point.
    top: Option<HomeStat>,
    path: &'a Path,
}

impl Own<'_> {
    /// Whether the tier's superblock names this very directory as its home, under whatever name.
    /// Of a mount point it may name the top, which the files have left since, or not reached yet.
    fn is_home_of(&self, sb: &Superblock) -> bool {
        let is = |found: &HomeStat| {
            // All file systems of a kind give their tops one number.
            let is_top = self.top.as_ref().is_some_and(|top| top.ino == found.ino);
            let told_apart = found.btime_ns != 0 && sb.home_btime_ns != 0;
            found.same_file(sb.home_ino, 0, sb.home_btime_ns)
                && (!is_top || told_apart || sb.home_path == self.path.as_os_str().as_bytes())
        };
        is(&self.identity) || self.top.as_ref().is_some_and(is)
    }

    /// Refuses the copy of a whole file system, in which the home has the same numbers, while the
    /// home that the tier names is there too.
    fn refuse_twin(&self, sb: &Superblock) -> Result<()> {
        let was = PathBuf::from(std::ffi::OsString::from_vec(sb.home_path.clone()));
        if was == self.path {
            return Ok(());
        }
        let twin = NoteOf::read(&was).ok().filter(|found| found.note.is_some());
        let twin = twin.and_then(|found| found.stat().ok());
        let (ino, btime) = (self.identity.ino, self.identity.btime_ns);
        if !twin.is_some_and(|it| it.same_file(ino, 0, btime) && it.dev != self.identity.dev) {
            return Ok(());
        }
        Err(Error::WrongTier(format!(
            "{} and {} are the same home twice, on two file systems of which one is a copy of the \
             other: some blocks of the copy are old. Tier `{}` names {1}: attach that; or unmount \
             the file system there, if it is the copy",
            self.path.display(),
            was.display(),
            sb.name
        )))
    }
}

fn refuse_foreign(
    sb: &Superblock,
    own: &Own<'_>,
    note: Option<&[u8; 16]>,
    path: &Path,
) -> Result<()> {
    if matches!(sb.state, TierState::Detached | TierState::Attaching) {
        return Ok(());
    }
    let was = String::from_utf8_lossy(&sb.home_path).into_owned();
    if note.is_some_and(|uuid| *uuid != sb.attachment) {
        return Err(Error::WrongTier(format!(
            "tier `{}` belongs to the home {was}, not to {}. Name the tier this home was attached \
             to; {}",
            sb.name,
            path.display(),
            how_to_free(sb, &was)
        )));
    }
    if own.is_home_of(sb) {
        return own.refuse_twin(sb);
    }
    if note.is_some() {
        return Err(Error::WrongTier(format!(
            "{} (inode {}) is a copy of the home {was} (inode {}), which tier `{}` belongs to: \
             some blocks of the copy are old. Attach \
             the original; to copy it, detach it first",
            path.display(),
            own.identity.ino,
            sb.home_ino,
            sb.name
        )));
    }
    Err(Error::WrongTier(format!(
        "tier `{}` belongs to the home {was} (inode {}), {} is another directory (inode {}). Give \
         an empty tier; {}",
        sb.name,
        sb.home_ino,
        path.display(),
        own.identity.ino,
        how_to_free(sb, &was)
    )))
}

/// How a tier that belongs to the home at `was` becomes free.
fn how_to_free(sb: &Superblock, was: &str) -> String {
    if sb.flags & FLAG_EPHEMERAL != 0 {
        return format!(
            "it has clean copies of {was} only: if that home does without them, remove the tier's \
             file, or clear the beginning of its device"
        );
    }
    match noted_at(Path::new(was)) {
        Ok(attachment) if attachment != Some(sb.attachment) => format!(
            "nothing at {was} needs this one any more: if that home was moved, detach it where it \
             is now; if it is gone for good, so are \
             the blocks it had here only, and removing the tier's file frees it (on a block \
             device, clearing its beginning: `dd if=/dev/zero of=DEVICE bs=1M count=1 conv=fsync`)"
        ),
        _ => format!("or detach {was} first"),
    }
}

/// A tier in use by this home, which has no note, given as volatile: what it was attached as is not
/// known.
fn refuse_unnoted(sb: &Superblock, note: Option<&[u8; 16]>, path: &Path) -> Result<()> {
    if note.is_some() || sb.state != TierState::Attached {
        return Ok(());
    }
    Err(Error::WrongTier(format!(
        "tier `{}` is attached to {}, whose note .tiersmith is gone, and is given as volatile; \
         give it as what it was attached as",
        sb.name,
        path.display()
    )))
}

/// Who has the tier, for the message a second owner gets. Only text: nothing depends on it.
fn write_owner(tier: &Tier) {
    static PROGRAM: LazyLock<String> = LazyLock::new(|| {
        std::env::current_exe()
            .ok()
            .and_then(|p| p.file_name().map(|n| n.to_string_lossy().into_owned()))
            .unwrap_or_else(|| "unknown program".into())
    });
    let mut note = format!("process {} ({})", std::process::id(), *PROGRAM).into_bytes();
    note.resize(OWNER_NOTE, 0);
    tier.write_meta(WordAt::new(0, OWNER_AT), &note[..OWNER_NOTE]);
    tier.fence();
}

/// Uuids and seeds: from the operating system, or a repeatable sequence from a seed (SplitMix64).
struct Random(Option<u64>);

impl Random {
    fn next(&mut self) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        match &mut self.0 {
            Some(state) => {
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                crate::format::mix(*state)
            }
            // The keys of the standard library's hasher come from the operating system.
            None => std::hash::RandomState::new().build_hasher().finish(),
        }
    }

    fn three(&mut self) -> [u64; 3] {
        [self.next(), self.next(), self.next()]
    }

    fn uuid(&mut self) -> [u8; 16] {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&self.next().to_le_bytes());
        uuid[8..].copy_from_slice(&self.next().to_le_bytes());
        uuid
    }
}
