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
use crate::format::superblock::{OWNER_AT, TierState};
use crate::home::{Home, HomeError, HomeFiles, RealHome};
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
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Instant;
use tiersmith_dir::Dir;
use tiersmith_events::Registry;

use belongs::{Own, Read, read_tiers, refuse_equal_names, reopens};

pub use crate::options::{Bound, Guard, Options, TierSpec};

mod belongs;
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
    refuse_equal_names(&mapped)?;
    let Read { found, given, empty } = read_tiers(mapped, note.as_ref(), &own, path)?;
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
    let planned = plan(found, reopened, &mut random, lent_dir)?;
    let mut counted = None;
    let mut moved = Vec::new();
    let mut tiers = Vec::new();
    for Planned { spec, tier, random, lent_dir } in planned {
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
            moved.extend(set_lent_dir(&mut tier, &spec, lent_dir, note.as_ref()));
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

/// A tier that is to be attached. One that is formatted has random numbers for that.
struct Planned {
    spec: TierSpec,
    tier: Found,
    random: Option<[u64; 3]>,
    lent_dir: Option<Arc<dyn LentDir>>,
}

/// Decides which tiers are formatted, before one is written: a place for plain files that cannot be
/// had leaves all as it was.
fn plan(
    found: Vec<(TierSpec, Found)>,
    reopened: bool,
    random: &mut Random,
    lent_dir: &LentDirOf<'_>,
) -> Result<Vec<Planned>> {
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
        planned.push(Planned { spec, tier, random, lent_dir });
    }
    Ok(planned)
}

/// Gives a tier the place of its plain files; the place where the note says that they were, if that
/// is another one.
fn set_lent_dir(
    tier: &mut Tier,
    spec: &TierSpec,
    lent_dir: Option<Arc<dyn LentDir>>,
    note: Option<&Note>,
) -> Option<(PathBuf, [u8; 16])> {
    tier.lent_dir = lent_dir;
    tier.lent_in = spec.lent_in.as_ref().map(|given| given.directory.clone());
    let noted = note.iter().flat_map(|note| &note.tiers).find(|n| n.name == tier.name);
    let before = noted.and_then(|noted| Some(noted.lent_in.as_ref()?.0.clone()));
    let left =
        |before: &PathBuf| tier.lent_in.as_ref().is_none_or(|now| !named::may_be_one(before, now));
    before.filter(left).map(|before| (before, tier.uuid()))
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
