//! From what the user said, and what the home's note remembers, to what is attached: tier, profile,
//! mount point, options.
//!
//! # What is believed
//!
//! The note lies in the home, and so the database's user could have written it. A daemon of root
//! must not be led by it to mount over any directory, to read any file or to make one. So the mount
//! point and the profile's file are taken from a note only when root or this user wrote it, and a
//! profile's file must be root's or this user's own, and not writable by others; else they have to
//! be given again. A tier must belong to root, this user or the home's owner; one that is named
//! only by a note of somebody else must be a private file of the home's owner, and is never made.
//! Whose the note is, is asked of the open file it was read from.
//!
//! **Invariant**: nothing is changed here but that the tier's file is made, and that file goes
//! again with [`Plan::made`].

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

use tiersmith_store::home::{ATTACHMENT, RealHome};
use tiersmith_store::{
    AttachedHome, Attachment, CacheRules, Durability, HomeModel, Medium, Profile, TierSpec,
    attachment,
};

use super::belief::is_believed;
use super::budget;
use super::cloud_disk;
use super::device;
use super::pages;
use super::passthrough;
use super::place::{FS_NAME, Place, Standing};
use super::profile;
use super::refuse;
use super::tier::{self, Made, Wish};
use crate::attach::{AtomicPages, Attach, Ephemeral, Lend, SyncOnWrite, Transport, Xattrs};
use crate::error::{Error, Result};

/// The note's keys of this program.
pub(super) mod key {
    pub(in crate::mounted) const AT: &str = "mount.at";
    pub(in crate::mounted) const THREADS: &str = "mount.threads";
    pub(in crate::mounted) const TRANSPORT: &str = "mount.transport";
    pub(in crate::mounted) const SYNC: &str = "mount.sync_on_write";
    pub(in crate::mounted) const ATOMIC_PAGES: &str = "mount.atomic_pages";
    pub(in crate::mounted) const XATTRS: &str = "mount.xattrs";
    pub(in crate::mounted) const LEND: &str = "mount.lend";
    pub(in crate::mounted) const PASSTHROUGH_MAX: &str = "mount.passthrough_max";
    pub(in crate::mounted) const MODEL: &str = "mount.home_model";
    /// Rules, a line each.
    pub(in crate::mounted) const CACHE: &str = "mount.cache";
    pub(in crate::mounted) const WRITE_BUDGET: &str = "mount.write_budget";
    /// The tier's file was made by `attach` and goes with `detach`.
    pub(in crate::mounted) const MADE: &str = "mount.made_tier";
}

/// What is to be attached, and how.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) place: Place,
    /// Where it is mounted.
    pub(super) at: PathBuf,
    pub(super) tiers: Vec<TierSpec>,
    /// The tier's file, when this attach has made it.
    pub(super) made: Option<Made>,
    pub(super) profile: Profile,
    pub(super) profile_why: String,
    pub(super) store: tiersmith_store::Options,
    pub(super) mount: tiersmith_mount::Options,
    pub(super) sync_why: String,
    /// Why pages are atomic or not.
    pub(super) pages_why: String,
    /// It was attached before.
    pub(super) again: bool,
    /// What the user should know besides.
    pub(super) remarks: Vec<String>,
}

impl Plan {
    /// Looks at everything and decides.
    ///
    /// # Errors
    /// Each refusal has its sentence; nothing was changed.
    pub(super) fn make(wish: &Attach) -> Result<Plan> {
        let place = Place::find(&wish.home)?;
        let path = place.path();
        // The note, the list of what is to be removed and every answer of the daemon are text.
        for said in [Some(path), wish.fast.as_deref(), wish.at.as_deref()].into_iter().flatten() {
            let _ = utf8(said)?;
        }
        let note = note_if_any(&place)?;
        let again = note.is_some();
        let files = files_of(note.as_ref(), &place);
        refuse::not_permitted(path, &owner(note.as_ref(), &files)?)?;
        let believed = note.as_ref().is_some_and(is_believed);
        let mut remarks = Vec::new();
        let door = believed_options(note.as_ref(), &files, &mut remarks);
        refuse::in_use(path, &files, !again)?;
        refuse::no_fuse()?;
        let chosen = profile::choose(wish, note.as_ref(), believed, &files)?;
        let at = mount_point(wish, &place, &door)?;
        let synced = wish.sync_on_write.or_else(|| noted(&door, key::SYNC));
        let synced = synced.unwrap_or(SyncOnWrite::Auto);
        let (mount, sync_why) = mount_options(wish, &door, synced, chosen.profile.name());
        let model = wish.home_model.clone().or_else(|| door.get(key::MODEL).cloned());
        let home_model = model.as_deref().map(named_model).transpose()?;
        let (cache, cache_text) = cache_rules(wish, &door, &mut remarks)?;
        let write_budget = budget::budget(wish.write_budget, &door, &mut remarks);
        let mut noted = options_to_note(wish, &door, model, cache_text);
        if at != path {
            let _ = noted.insert(key::AT.to_owned(), utf8(&at)?.to_owned());
        }
        // What was lent before and must not be any more is given back.
        let noted_max = door.get(key::PASSTHROUGH_MAX);
        let lent_max_bytes = if mount.lend { passthrough::most(wish, noted_max) } else { 0 };
        if note.is_none() {
            refuse_unusable(path)?;
        }
        let (mut tiers, made) = tiers(wish, note.as_ref(), &place)?;
        passthrough::direct(wish, &mut tiers, (&place, &at), lent_max_bytes, &mut remarks)?;
        if again {
            remarks.extend(on_an_emptied_disk(&tiers));
            remarks.extend(note.iter().flat_map(|note| device::called_otherwise(note, &tiers)));
        }
        device::note_names(&mut noted, &door, wish.fast.as_deref(), &tiers);
        if made.is_some() || door.contains_key(key::MADE) {
            let _ = noted.insert(key::MADE.to_owned(), "yes".to_owned());
        }
        let store = tiersmith_store::Options {
            profile: Some(chosen.profile.clone()),
            profile_file: chosen.file,
            door: noted,
            home_model,
            cache,
            write_budget,
            lent_max_bytes,
            lent_synced: synced == SyncOnWrite::Always,
            lent_rest: tiersmith_store::Options::LENT_REST,
            members_of: Some(tier::whose()),
            ..tiersmith_store::Options::default()
        };
        let (profile, profile_why) = (chosen.profile, chosen.why);
        Ok(Plan {
            at,
            tiers,
            made,
            profile,
            profile_why,
            store,
            mount,
            sync_why,
            pages_why: String::new(),
            again,
            remarks,
            place,
        })
    }
}

impl Plan {
    /// The tier's file is no persistent memory: it is taken as flash, or as ephemeral where its
    /// disk is known to be. `false`: the user has said what it is, or the note does.
    pub(super) fn take_as_a_disk(&mut self, wish: &Attach) -> bool {
        let may = !self.again && !wish.emulate && !wish.volatile;
        let unsaid = self.tiers.iter_mut().filter(|spec| spec.medium == Medium::Persistent);
        for spec in unsaid.filter(|_| may) {
            let emptied =
                spec.members.iter().find_map(|member| cloud_disk::emptied_at_stop(member));
            spec.medium = match emptied.filter(|_| wish.ephemeral.is_none()) {
                Some(model) => {
                    self.remarks.push(format!(
                        "the tier's disk is emptied when the machine is stopped ({model}), so it \
                         is ephemeral; --ephemeral=no says that it is not"
                    ));
                    Medium::Ephemeral
                }
                None => Medium::Flash,
            };
        }
        may
    }

    /// Decides whether pages are atomic, by what the user wants and what the home's files prove.
    ///
    /// # Errors
    /// The user wants them not to be, and nothing else would keep them whole.
    pub(super) fn decide_pages(&mut self, home: &AttachedHome) -> Result<()> {
        let wished = noted(&self.store.door, key::ATOMIC_PAGES).unwrap_or(AtomicPages::Auto);
        let always = noted(&self.store.door, key::SYNC) == Some(SyncOnWrite::Always);
        let decided = pages::decide(wished, always, home)?;
        (self.mount.atomic_pages, self.pages_why) = decided;
        Ok(())
    }

    /// With a tier that is not durable on return each write would have a sync of its own. Not
    /// unless the user wants that.
    pub(super) fn sync_as_the_tier_does(&mut self, home: &AttachedHome) {
        let tiers = home.stats().tiers;
        let why = match tiers.iter().map(|tier| tier.durability).reduce(Durability::and) {
            Some(Durability::AtSync) => {
                "the tier is on flash: a write is durable with the file's \
                                         fsync"
            }
            Some(Durability::Never) => {
                "the tier has clean copies only: a write is durable with the \
                                        file's fsync, at home"
            }
            _ => return,
        };
        let wished = self.store.door.get(key::SYNC);
        if wished.is_none_or(|word| *word == self::word(SyncOnWrite::Auto)) {
            self.mount.sync_on_write = false;
            self.sync_why = why.into();
        }
    }
}

/// A tier that has the only copies of blocks, on a disk that is known to be emptied.
fn on_an_emptied_disk(tiers: &[TierSpec]) -> Option<String> {
    let flash = tiers.iter().filter(|spec| spec.medium == Medium::Flash);
    let (member, model) = flash
        .flat_map(|spec| &spec.members)
        .find_map(|member| Some((member, cloud_disk::emptied_at_stop(member)?)))?;
    Some(format!(
        "the tier {} has blocks that home lacks, and its disk is emptied when the machine is \
         stopped ({model}): detach before that; attached anew it is ephemeral",
        member.display()
    ))
}

fn named_model(name: &str) -> Result<HomeModel> {
    HomeModel::named(name).ok_or_else(|| {
        let known: Vec<String> =
            HomeModel::builtin().map(|model| model.name().to_string()).collect();
        Error::Usage(format!(
            "there is no modelled storage `{name}`; there are {}",
            known.join(", ")
        ))
    })
}

/// Which files the tier keeps: as said, else as noted; and the text of what was said.
fn cache_rules(
    wish: &Attach,
    door: &BTreeMap<String, String>,
    remarks: &mut Vec<String>,
) -> Result<(CacheRules, Option<String>)> {
    if !wish.cache.is_empty() {
        let rules = CacheRules::parse(wish.cache.iter().map(String::as_str));
        let rules = rules.map_err(|e| Error::Usage(format!("--cache: {e}")))?;
        return Ok((rules, Some(wish.cache.join("\n"))));
    }
    let noted = door.get(key::CACHE).map_or("", String::as_str);
    let rules = CacheRules::parse(noted.lines()).unwrap_or_else(|e| {
        remarks.push(format!("the cache rules of the home's note are left out: {e}"));
        CacheRules::default()
    });
    Ok((rules, None))
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        Error::Usage(format!("{} has bytes that are not UTF-8; give another path", path.display()))
    })
}

/// The word of the command line for one of its values.
fn word(value: impl clap::ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// The value a note has for a key; what this version does not know is left out.
fn noted<T: clap::ValueEnum>(door: &BTreeMap<String, String>, key: &str) -> Option<T> {
    T::from_str(door.get(key)?, false).ok()
}

/// The note of an attached home; `None` for a plain directory.
///
/// # Errors
/// There is no directory, or it is not to be attached.
fn note_if_any(place: &Place) -> Result<Option<Attachment>> {
    let path = place.path();
    // Before anything is looked at inside: a mount of somebody else is not asked.
    if place.standing(None) == Standing::Plain {
        refuse::place(place)?;
    }
    if place.standing(None) == Standing::Missing {
        if path.is_dir() {
            // The note of an attached home, and nothing beside it.
            drop(RealHome::open(path).map_err(|e| Error::Usage(e.to_string()))?);
        }
        return Err(Error::Usage(match path.symlink_metadata() {
            Ok(_) => format!(
                "{} is not a directory; a mount is for directories (an SQLite database is \
                 attached by the URI it is opened with)",
                path.display()
            ),
            Err(_) => {
                format!("there is no directory {}; give the database's directory", path.display())
            }
        }));
    }
    let note = attachment(path)?;
    if note.is_none()
        && let Some(why) = super::unreachable(place)
    {
        return Err(Error::Usage(why));
    }
    Ok(note)
}

/// The directory with the home's files.
fn files_of(note: Option<&Attachment>, place: &Place) -> PathBuf {
    note.map(|note| note.files.clone())
        .or_else(|| place.files())
        .unwrap_or_else(|| place.path().into())
}

/// The metadata of the directory with the home's files.
fn owner(note: Option<&Attachment>, files: &Path) -> Result<Metadata> {
    match note {
        Some(note) => owner_of(note),
        None => std::fs::metadata(files).map_err(|source| Error::Io {
            what: "look at",
            path: files.into(),
            source,
        }),
    }
}

/// The options of this program that the note has, when it is believed.
fn believed_options(
    note: Option<&Attachment>,
    files: &Path,
    remarks: &mut Vec<String>,
) -> BTreeMap<String, String> {
    match note {
        Some(note) if is_believed(note) => note.door.clone(),
        Some(note) if !note.door.is_empty() => {
            remarks.push(format!(
                "the note {} was not written by root or you: its mount options are not taken \
                 over",
                files.join(ATTACHMENT).display()
            ));
            BTreeMap::new()
        }
        _ => BTreeMap::new(),
    }
}

/// What the note is to remember: what was said now, else what it said before.
fn options_to_note(
    wish: &Attach,
    door: &BTreeMap<String, String>,
    model: Option<String>,
    cache: Option<String>,
) -> BTreeMap<String, String> {
    let said = [
        (key::THREADS, wish.threads.map(|n| n.to_string())),
        (key::TRANSPORT, wish.transport.map(word)),
        (key::SYNC, wish.sync_on_write.map(word)),
        (key::ATOMIC_PAGES, wish.atomic_pages.map(word)),
        (key::XATTRS, wish.xattrs.map(word)),
        (key::LEND, wish.lend.map(word)),
        (key::PASSTHROUGH_MAX, wish.passthrough_max.map(|most| most.bytes().to_string())),
        (key::MODEL, model),
        (key::CACHE, cache),
        (key::WRITE_BUDGET, wish.write_budget.map(|budget| budget.to_string())),
    ];
    let value = |key: &str, said: Option<String>| said.or_else(|| door.get(key).cloned());
    said.into_iter().filter_map(|(key, said)| Some((key.to_owned(), value(key, said)?))).collect()
}

/// A home that cannot be written, say, is refused before the tier's file is made.
fn refuse_unusable(home: &Path) -> Result<()> {
    let opened = RealHome::open(home)
        .map_err(|e| tiersmith_store::Error::Home { path: home.into(), reason: e.to_string() });
    Ok(opened.map(drop)?)
}

fn mount_point(wish: &Attach, place: &Place, door: &BTreeMap<String, String>) -> Result<PathBuf> {
    let at = match (&wish.at, door.get(key::AT)) {
        (Some(at), _) => at.clone(),
        (None, Some(at)) => PathBuf::from(at),
        (None, None) => return Ok(place.path().to_path_buf()),
    };
    // Its last name may be a mount whose daemon died: that is not asked.
    let at = Place::find(&at)?.path().to_path_buf();
    if at == place.path() {
        return Ok(at);
    }
    let refuse = |why: &str| Err(Error::Usage(format!("cannot mount at {}: {why}", at.display())));
    if at.starts_with(place.path()) || at.starts_with(place.vault()) {
        return refuse("that is inside the home; give a directory elsewhere");
    }
    if place.path().starts_with(&at) {
        return refuse("the home is inside it, and would be hidden; give a directory elsewhere");
    }
    if super::place::Mounts::read().ours_at(&at) {
        return Ok(at);
    }
    match std::fs::read_dir(&at).map(|mut entries| entries.next().is_none()) {
        Err(e) => refuse(&format!("{e}; give an empty directory")),
        Ok(false) => {
            refuse("it is not empty, and what is in it would be hidden; give an empty directory")
        }
        Ok(true) => Ok(at),
    }
}

/// How it is mounted, and why every change is durable on return or not.
fn mount_options(
    wish: &Attach,
    door: &BTreeMap<String, String>,
    synced: SyncOnWrite,
    profile: &str,
) -> (tiersmith_mount::Options, String) {
    let (sync_on_write, sync_why) = sync_on_write(synced, profile);
    let xattrs = wish.xattrs.or_else(|| noted(door, key::XATTRS)).unwrap_or(Xattrs::Auto);
    let by_profile = tiersmith_mount::xattrs_if_any_for(profile);
    let mut options = tiersmith_mount::Options {
        sync_on_write,
        sync_in_redo_only: synced == SyncOnWrite::Auto,
        xattrs_if_any: xattrs == Xattrs::Auto && by_profile,
        allow_other: rustix::process::geteuid().is_root(),
        fsname: FS_NAME.into(),
        ..tiersmith_mount::Options::default()
    };
    let threads = wish
        .threads
        .or_else(|| door.get(key::THREADS)?.parse().ok())
        .filter(|n| (1..=256).contains(n));
    if let Some(threads) = threads {
        options.threads = threads.into();
    }
    options.transport =
        match wish.transport.or_else(|| noted(door, key::TRANSPORT)).unwrap_or(Transport::Auto) {
            Transport::Auto => tiersmith_mount::Transport::Auto,
            Transport::Classic => tiersmith_mount::Transport::Classic,
            Transport::Uring => tiersmith_mount::Transport::Uring,
        };
    options.lend = wish.lend.or_else(|| noted(door, key::LEND)).unwrap_or(Lend::Auto) == Lend::Auto;
    (options, sync_why)
}

/// Whether every change is durable on return, and why.
fn sync_on_write(wished: SyncOnWrite, profile: &str) -> (bool, String) {
    match wished {
        SyncOnWrite::Always => (
            true,
            "as --sync-on-write always says; of what passes only \
                                       temporary files are not synced by each write"
                .into(),
        ),
        SyncOnWrite::Never => (false, "as --sync-on-write never says".into()),
        SyncOnWrite::Auto => auto_sync(profile),
    }
}

/// What the mount says of a profile.
fn auto_sync(profile: &str) -> (bool, String) {
    let (sync, why) = tiersmith_mount::sync_on_write_for(profile);
    (sync, format!("chosen for the profile {profile}: {why}"))
}

/// What the user says that the fast storage is. What it is not said to be shows when it is opened.
fn medium(wish: &Attach) -> Medium {
    match wish {
        Attach { emulate: true, .. } => Medium::Emulated,
        Attach { volatile: true, .. } => Medium::Volatile,
        Attach { ephemeral: Some(Ephemeral::Yes), .. } => Medium::Ephemeral,
        _ => Medium::Persistent,
    }
}

/// What the tier of an attached home is stays.
fn refuse_another_medium(wish: &Attach, note: &Attachment, place: &Place) -> Result<()> {
    let said = match medium(wish) {
        Medium::Persistent if wish.ephemeral == Some(Ephemeral::No) => Some("--ephemeral=no"),
        Medium::Persistent | Medium::Flash => None,
        Medium::Emulated => Some("--emulate"),
        Medium::Volatile => Some("--volatile"),
        Medium::Ephemeral => Some("--ephemeral"),
    };
    let Some(said) = said else { return Ok(()) };
    let fits = |noted: Medium| match wish.ephemeral {
        Some(Ephemeral::No) => noted != Medium::Ephemeral,
        _ => noted == medium(wish),
    };
    let Some(other) = note.tiers.iter().find(|tier| !fits(tier.medium)) else { return Ok(()) };
    let noted = match other.medium {
        Medium::Persistent => "persistent memory",
        Medium::Flash => "a disk that keeps its contents (flash)",
        Medium::Ephemeral => "ephemeral",
        Medium::Emulated => "emulated",
        Medium::Volatile => "volatile",
    };
    Err(Error::Usage(format!(
        "{} is attached, with its tier `{}` as {noted}; {said} cannot change that. To change it, \
         `tiersmith detach {0}` and attach anew; else leave {said} out",
        place.path().display(),
        other.name
    )))
}

fn tiers(
    wish: &Attach,
    note: Option<&Attachment>,
    place: &Place,
) -> Result<(Vec<TierSpec>, Option<Made>)> {
    if let Some(note) = note.filter(|note| !note.tiers.is_empty()) {
        refuse_another_medium(wish, note, place)?;
        let mut specs = noted_tiers(place, note, wish.fast.as_slice())?;
        if let Some(said) = &wish.overwrite {
            if !specs.iter().all(|spec| spec.medium == Medium::Ephemeral) {
                return Err(Error::Usage(format!(
                    "{} is attached, and its tier may have the only copy of a block; leave \
                     --overwrite out. Nothing was changed",
                    place.path().display()
                )));
            }
            specs.iter_mut().for_each(|spec| spec.overwrite_device = Some(said.clone()));
        }
        return Ok((specs, None));
    }
    let Some(fast) = &wish.fast else {
        return Err(Error::Usage(format!(
            "{} is not attached; say where the fast storage is: --fast DIR or --fast DEVICE",
            place.path().display()
        )));
    };
    let medium = medium(wish);
    let overwrite = wish.overwrite.as_deref();
    let wished = Wish { fast, size: wish.size.bytes(), medium, home: place.path(), overwrite };
    let (spec, made) = wished.spec()?;
    Ok((vec![spec], made))
}

/// The metadata of the directory with an attached home's files. By its path this user may not get
/// there.
///
/// # Errors
/// What the file system says.
pub(super) fn owner_of(note: &Attachment) -> Result<Metadata> {
    let directory = note.directory.try_clone().map(std::fs::File::from);
    directory.and_then(|directory| directory.metadata()).map_err(|source| Error::Io {
        what: "look at",
        path: note.files.clone(),
        source,
    })
}

/// The tiers that a home's note names, or `fast` where one of them was moved to.
///
/// # Errors
/// A member that is not there, or belongs to somebody else.
pub(crate) fn noted_tiers(
    place: &Place,
    note: &Attachment,
    fast: &[PathBuf],
) -> Result<Vec<TierSpec>> {
    let mut specs: Vec<TierSpec> = note.tiers.iter().map(|tier| tier.spec.clone()).collect();
    if !fast.is_empty() {
        other_members(fast, &mut specs, place)?;
    }
    let named_by_other = fast.is_empty() && !is_believed(note);
    for spec in &mut specs {
        for member in &mut spec.members {
            if named_by_other {
                return Err(Error::Usage(format!(
                    "the note of {} was not written by root or you, and names the tier {}; if that \
                     is the right one, say --fast with it or with its directory. Nothing was \
                     changed",
                    place.path().display(),
                    member.display()
                )));
            }
            find_device(note, member, spec.medium, !fast.is_empty())?;
            match member.symlink_metadata() {
                Ok(_) => tier::ours(member, false)?,
                // Clean copies only, gone with a reboot or a stop: the tier is made again.
                Err(_) if spec.medium == Medium::Volatile => {
                    tier::make_again(member, place.path())?
                }
                Err(_) if spec.medium == Medium::Ephemeral => {
                    if fast.is_empty() {
                        tier::refuse_unmounted(member)?;
                    }
                    tier::make_again(member, place.path())?;
                }
                Err(_) => {
                    return Err(Error::Usage(format!(
                        "{} is attached to the tier on {}, which is not there; mount the fast \
                         storage it is on and try again (if it was \
                         moved, say --fast). Nothing was changed, and nothing is lost as long as \
                         that file is not",
                        place.path().display(),
                        member.display()
                    )));
                }
            }
        }
    }
    Ok(specs)
}

/// Of a member on a block device: where it is now.
fn find_device(note: &Attachment, member: &mut PathBuf, medium: Medium, given: bool) -> Result<()> {
    let is_ephemeral = medium == Medium::Ephemeral;
    if given {
        // An emptied disk has nothing that could be known.
        return if is_ephemeral { Ok(()) } else { device::refuse_another(note, member) };
    }
    match device::noted(note, member) {
        Ok(found) => {
            if let Some(found) = found {
                *member = found;
            }
            Ok(())
        }
        // A stop may have emptied it, or another disk has its name now: only the user knows.
        Err(e) if is_ephemeral => Err(Error::Usage(format!(
            "{e}. The tier had clean copies only. If a stop has emptied its disk, say which one it \
             is, and the tier is made anew there: --fast {}",
            member.display()
        ))),
        Err(e) => Err(e),
    }
}

/// How a home was attached, for who brings it back. What is not believed is left out: the note may
/// be written anew, by this user then.
pub(crate) fn as_noted(note: &Attachment) -> tiersmith_store::Options {
    let (profile_file, door) = if is_believed(note) {
        (note.profile_file.clone(), note.door.clone())
    } else {
        (None, BTreeMap::new())
    };
    tiersmith_store::Options {
        profile: Profile::named(&note.profile).ok(),
        profile_file,
        door,
        members_of: Some(tier::whose()),
        ..tiersmith_store::Options::default()
    }
}

/// The mount point in a home's note, when it is believed.
pub(super) fn noted_at(note: &Attachment) -> Option<PathBuf> {
    is_believed(note).then(|| note.door.get(key::AT).map(PathBuf::from)).flatten()
}

/// The tier was moved, or a restart script names it each time: its members may be given anew.
fn other_members(fast: &[PathBuf], specs: &mut [TierSpec], place: &Place) -> Result<()> {
    let mut members = Vec::new();
    for path in fast {
        let (_, _, member) = tier::place(path, place.path())?;
        members.push(member);
    }
    match specs {
        [spec] if spec.members.len() == members.len() => {
            spec.members = members;
            Ok(())
        }
        _ => Err(Error::Usage(format!(
            "{} is attached to other members than were given; leave --fast out, the home's note \
             names them",
            place.path().display()
        ))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails here says where")]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_has_a_reason_for_its_sync() {
        for profile in Profile::builtin() {
            let (_, why) = auto_sync(profile.name());
            assert!(why.contains(profile.name()), "{why}");
        }
    }
}
