//! Opening tiers that were in use: finish what was under way, read the maps, compare with home.
//!
//! The order, and why it is safe to be cut at any point of it:
//!
//! 1. Lane records, then batch records, are applied to the map entries they speak of, a fence, then
//!    emptied: of each lane the older first, then the newer, then the batches, with fences between,
//!    so that a cut never leaves an older record without the newer one. Applying twice does no
//!    harm: no entry has moved on, because nobody else is at work.
//! 2. The file table and every map page are read and checked; which frames are free follows from
//!    that. Nothing is written.
//! 3. Every file is found at home and compared with its stamp. Nothing is written; a changed home
//!    with dirty blocks ends here, with everything as it was, and so does a changed file whose logs
//!    are not empty ([`Bound`]), and a file that every server writes when it starts, if the tier
//!    has newer blocks of any other.
//! 4. ([`finish`]) Removed files are freed, cuts are completed, entries past the end dropped, the
//!    tail of the last block zeroed, flags cleared: each the same code that runs without a crash.
//!
//! The cost is in proportion to the file table and the maps, not to the data: of the blocks only
//! those that a record speaks of are read (two a lane at most, and those of a batch).

use crate::address::{BlockIndex, FRAME, Frame, WordAt};
use crate::error::{Error, HomeStamp, Result};
use crate::format::entry::{
    Entry, LEAF_BLOCKS, LEAF_SLOT, PAGE_WORDS, Place, State, unseal, unseal_value, words_of,
};
use crate::format::slot::{
    self, DESTAGING, IDENTITY_AT, Identity, LENT, LINE, LINES_AT, ROOTS_AT, SLOT, StateLine,
    TRUNCATING, UNLINKING, decode_path, decode_time, loan_of,
};
use crate::home::{FileTime, Home, HomeFiles, HomeHandle, HomeStat, is_elsewhere};
use crate::known::{FileState, Meta, Placed};
use crate::ledger::Ledger;
use crate::ledger::map::FileMap;
use crate::options::Bound;
use crate::plain::{LentDir, Plain, PlainName, path_beside};
use crate::planted::Planted;
use crate::profile::{FileClass, Profile};
use crate::stats::RecoveryReport;
use crate::store::Store;
use crate::sync::atomic::Ordering;
use crate::tier::Tier;
use crate::tier::alloc::{Census, Purpose};
use crate::tier::table::Slot;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

mod sentinel;

/// How long after destaging began a changed modification time still counts as ours. Longer than any
/// round.
const OURS_FOR_NS: u64 = 120_000_000_000;
/// Coarseness of file time stamps: a stamp may be this much older than the clock.
const CLOCK_GRAIN_NS: u64 = 20_000_000;

/// A file as the tier describes it.
struct OnTier {
    id: u64,
    slot: Slot,
    identity: Identity,
    line: StateLine,
    map: FileMap,
    hint: PathBuf,
}

/// The home file of a slot.
struct AtHome {
    path: PathBuf,
    stat: HomeStat,
    file: HomeHandle,
}

/// A file of a tier and what was found of it at home.
pub(crate) struct Recovered {
    placed: Placed,
    identity: Identity,
    flags: u64,
    hint: PathBuf,
    /// `None`: no file of home has its identity.
    home: Option<AtHome>,
    /// The contents of a lent file.
    plain: Option<Plain>,
}

/// Steps 1 to 3 for every tier that is not `fresh`.
pub(crate) fn recover(
    home: &Arc<dyn Home>,
    files_of_home: &Arc<HomeFiles>,
    tiers: Vec<(Tier, bool)>,
    profile: &Profile,
    bound: Option<&Bound>,
    report: &mut RecoveryReport,
) -> Result<(Vec<Arc<Ledger>>, Vec<Recovered>)> {
    let mut out = Vec::new();
    let mut recovered = Vec::new();
    for (tier, fresh) in tiers {
        let mut tier = Ledger::of(tier);
        // Of all members alike, also after a cut in growing: whoever assembled the tier saw to it.
        let len = tier.superblocks.lock()[0].len;
        let mut census = Census::new(&tier.geometry, len);
        let mut files = Vec::new();
        if fresh {
            tier.table.lock().found((0..tier.geometry.slots).rev().collect(), HashSet::new());
        } else {
            tier.claim_extents(&mut census)?;
            let replayed = tier.replay(len)?;
            report.switches_finished += replayed.switches;
            report.batches_finished += replayed.batches;
            files = read_files(&tier, &mut census, report)?;
        }
        tier.allocator = census.into_allocator();
        let tier = Arc::new(tier);
        for file in files {
            recovered.push(match_home(files_of_home, &tier, file)?);
        }
        out.push(tier);
    }
    find_renamed(home, files_of_home, &mut recovered)?;
    // What was under way is about to be called done, as home shows it now; but after a killed
    // process home shows what a power cut may still take back.
    let planted = recovered.iter().any(|f| f.placed.tier.planted.is(Planted::RecoveryWithoutSync));
    if !planted
        && recovered.iter().any(|file| file.flags & (UNLINKING | TRUNCATING | DESTAGING) != 0)
    {
        home.sync_all().map_err(Error::io("cannot sync the file system of", ""))?;
    }
    report.ran_without = sentinel::compare(&recovered, profile)?;
    compare(&recovered, bound.and_then(|bound| bound.aside.as_deref()))?;
    if let Some(bound) = bound {
        compare_bound(&**home, &recovered, bound)?;
    }
    recovered.iter_mut().try_for_each(find_plain)?;
    Ok((out, recovered))
}

// --- step 2 ---

fn read_files(
    tier: &Ledger,
    census: &mut Census,
    report: &mut RecoveryReport,
) -> Result<Vec<OnTier>> {
    let mut files = Vec::new();
    let mut free = Vec::new();
    for slot in tier.each_slot() {
        let (number, at) = (slot.number, slot.at);
        let damaged = |what: &str, offset: u64, detail: String| Error::Damaged {
            path: tier.members[at.member()].path.clone(),
            member: at.member(),
            offset: at.offset() + offset,
            structure: format!("file slot {number}, {what}"),
            detail,
        };
        let word = tier.load_checked(at)?;
        let id = unseal_value(tier.seed, 0, Place::Slot(number), word).ok_or_else(|| {
            damaged("in-use word", 0, format!("{word:#018x} has a wrong checksum"))
        })?;
        if id == 0 {
            free.push(number);
            continue;
        }
        let bytes = tier.read_slot(at)?;
        let identity = Identity::decode(&bytes, tier.seed, id)
            .map_err(|detail| damaged("identity", IDENTITY_AT, detail))?;
        let line = StateLine::newest(&bytes, tier.seed, id).ok_or_else(|| {
            damaged(
                "state lines",
                LINES_AT,
                format!("none of the four lines of {LINE} bytes has a right checksum"),
            )
        })?;
        let hint = decode_path(&bytes, tier.seed, id).unwrap_or_default();
        let hint = PathBuf::from(OsStr::from_bytes(&hint));
        let mut reader =
            MapReader { tier, census, id, class: identity.class, slot, hint: &hint, entries: 0 };
        let map = reader.read(&bytes, Purpose::Blocks(identity.block_size))?;
        report.entries += reader.entries;
        report.files += 1;
        files.push(OnTier { id, slot, identity, line, map, hint });
    }
    free.reverse();
    let ids = files.iter().map(|file: &OnTier| file.id).collect();
    tier.table.lock().found(free, ids);
    Ok(files)
}

/// Reads one file's map pages into DRAM.
struct MapReader<'a> {
    tier: &'a Ledger,
    census: &'a mut Census,
    id: u64,
    class: FileClass,
    slot: Slot,
    hint: &'a Path,
    entries: u64,
}

impl MapReader<'_> {
    fn read(&mut self, slot: &[u8; SLOT], blocks: Purpose) -> Result<FileMap> {
        let map = FileMap::default();
        let root = |n: usize| slot::slot(slot).roots[n].get();
        let at = |n: u64| self.slot.at.plus(ROOTS_AT + n * 8);
        let (leaf, middle, top) = (at(0), at(1), at(2));
        if let Some(page) = self.page(&map, Place::Leaf(0), root(0), leaf)? {
            self.leaf(&map, 0, page, blocks)?;
        }
        if let Some(page) = self.page(&map, Place::Middle(0), root(1), middle)? {
            self.middle(&map, 0, page, blocks)?;
        }
        if let Some(page) = self.page(&map, Place::Top, root(2), top)? {
            map.adopt_top(self.tier.page_at(page));
            let words = self.words(page)?;
            for (n, word) in words.into_iter().enumerate() {
                let at = self.tier.page_at(page).plus(n as u64 * 8);
                if let Some(page) = self.page(&map, Place::Middle(n as u64), word, at)? {
                    self.middle(&map, n as u64, page, blocks)?;
                }
            }
        }
        Ok(map)
    }

    fn middle(&mut self, map: &FileMap, number: u64, page: Frame, blocks: Purpose) -> Result<()> {
        map.adopt_middle(number, self.tier.page_at(page));
        for (n, word) in self.words(page)?.into_iter().enumerate() {
            let leaf = number * PAGE_WORDS + n as u64;
            let at = self.tier.page_at(page).plus(n as u64 * 8);
            if let Some(page) = self.page(map, Place::Leaf(leaf), word, at)? {
                self.leaf(map, leaf, page, blocks)?;
            }
        }
        Ok(())
    }

    fn leaf(&mut self, map: &FileMap, number: u64, page: Frame, purpose: Purpose) -> Result<()> {
        let base = self.tier.page_at(page);
        let leaf = map.adopt_leaf(number, base);
        for (n, word) in self.words(page)?.into_iter().step_by(2).enumerate() {
            let block = number * LEAF_BLOCKS + n as u64;
            let at = base.plus(n as u64 * LEAF_SLOT);
            let entry =
                unseal(self.tier.seed, self.id, Place::Block(block), word).ok_or_else(|| {
                    self.damaged(at, &format!("map entry of block {block}"), word, None)
                })?;
            if entry == Entry::HOME {
                continue;
            }
            self.entries += 1;
            self.census.claim(entry.frame(), purpose).map_err(|why| {
                self.damaged(at, &format!("map entry of block {block}"), word, Some(why))
            })?;
            if self.class == FileClass::Redo && !self.tier.latch(entry.frame(), purpose.frames()) {
                return Err(self.damaged(
                    at,
                    &format!("map entry of block {block}"),
                    word,
                    Some("its frames are taken".into()),
                ));
            }
            // On a device every read is compared, and what is written in place never is.
            let is_memory = self.tier.memory_of(entry.frame()).is_some();
            let unseen = self.class == FileClass::Data && is_memory;
            leaf.set(n, if unseen { entry.unseen() } else { entry });
        }
        Ok(())
    }

    /// The page a pointer leads to.
    fn page(
        &mut self,
        map: &FileMap,
        place: Place,
        word: u64,
        at: WordAt,
    ) -> Result<Option<Frame>> {
        let name = || format!("pointer to {place}");
        let entry = unseal(self.tier.seed, self.id, place, word)
            .ok_or_else(|| self.damaged(at, &name(), word, None))?;
        if entry == Entry::HOME {
            return Ok(None);
        }
        let frame = entry.frame();
        self.census
            .claim(frame, Purpose::Pages)
            .map_err(|why| self.damaged(at, &name(), word, Some(why)))?;
        if !self.tier.latch(frame, 1) {
            return Err(self.damaged(at, &name(), word, Some("its frame is taken".into())));
        }
        map.adopt_page(frame);
        Ok(Some(frame))
    }

    fn words(&self, page: Frame) -> Result<Vec<u64>> {
        let mut bytes = [0; FRAME];
        self.tier.read_checked(self.tier.page_at(page), &mut bytes)?;
        Ok(words_of(&bytes).collect())
    }

    fn damaged(&self, at: WordAt, what: &str, word: u64, why: Option<String>) -> Error {
        let why = why.unwrap_or_else(|| "its checksum is wrong for this place".into());
        Error::Damaged {
            path: self.tier.members[at.member()].path.clone(),
            member: at.member(),
            offset: at.offset(),
            structure: format!(
                "{what} of {} (file {}, slot {})",
                self.hint.display(),
                self.id,
                self.slot.number
            ),
            detail: format!("found {word:#018x}: {why}"),
        }
    }
}

// --- step 3 ---

fn match_home(home: &Arc<HomeFiles>, tier: &Arc<Ledger>, file: OnTier) -> Result<Recovered> {
    let OnTier { id, slot, identity, line, map, hint } = file;
    let flags = line.flags;
    if flags & LENT != 0 && identity.class != FileClass::Redo {
        return Err(Error::Damaged {
            path: tier.members[slot.at.member()].path.clone(),
            member: slot.at.member(),
            offset: slot.at.offset() + line.at(),
            structure: format!(
                "state line of {} (file {id}, slot {})",
                hint.display(),
                slot.number
            ),
            detail: "it says that the file is lent, and only redo files are".into(),
        });
    }
    let mut meta = Meta { line, ..Meta::default() };
    if identity.class == FileClass::Redo {
        map.for_each_leaf(|number, leaf| {
            for n in 0..LEAF_BLOCKS {
                if leaf.get(n as usize).state() == State::Dirty {
                    meta.redo.note(BlockIndex(number * LEAF_BLOCKS + n));
                }
            }
        });
    }
    let found = if hint.as_os_str().is_empty() { None } else { open_same(home, &hint, &identity)? };
    let placed = Placed::new(tier, id, Some(slot), &identity, meta, map);
    Ok(Recovered { placed, identity, flags, hint, home: found, plain: None })
}

/// The home file at `path`, if it is the one meant.
fn open_same(home: &Arc<HomeFiles>, path: &Path, id: &Identity) -> Result<Option<AtHome>> {
    let found = home
        .find(path, |stat| stat.same_file(id.ino, id.generation, id.btime_ns))
        .map_err(Error::io("cannot open", path))?;
    Ok(found.map(|found| AtHome {
        path: path.to_path_buf(),
        stat: found.stat,
        file: HomeHandle::new(home, path, found),
    }))
}

/// Files that are not where they were: one walk over home looks for all of them by inode number.
fn find_renamed(
    home: &Arc<dyn Home>,
    files_of_home: &Arc<HomeFiles>,
    recovered: &mut [Recovered],
) -> Result<()> {
    // Two slots may name one inode number: the file of one is gone, and the number was used again.
    let mut missing: HashMap<u64, Vec<usize>> = HashMap::new();
    for (n, file) in recovered.iter().enumerate() {
        if file.home.is_none() {
            missing.entry(file.identity.ino).or_default().push(n);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let mut found = Vec::new();
    home.walk(&mut |path, stat| {
        for n in missing.get(&stat.ino).into_iter().flatten() {
            found.push((*n, path.to_path_buf()));
        }
        Ok(())
    })
    .map_err(Error::io("cannot walk", ""))?;
    for (n, path) in found {
        if let Some(found) = open_same(files_of_home, &path, &recovered[n].identity)? {
            recovered[n].home = Some(found);
        }
    }
    Ok(())
}

/// Ends the attach when home has changed under dirty blocks, other than those of `aside`.
fn compare(recovered: &[Recovered], aside: Option<&Path>) -> Result<()> {
    for file in recovered {
        let (dirty, _) = file.placed.map.counts();
        let lent = file.flags & LENT != 0;
        if (dirty == 0 && !lent) || (file.home.is_none() && file.flags & UNLINKING != 0) {
            continue;
        }
        if let Some(how) = changed(file) {
            let path = file.home.as_ref().map_or(&file.hint, |at| &at.path).clone();
            if aside == Some(&path) {
                log::warn!("{} {how}: what the tier had of it is dropped", path.display());
                continue;
            }
            let line = file.placed.meta.lock().line.clone();
            let stamp = HomeStamp { size: line.home_size, mtime_ns: line.home_mtime_ns };
            let expected = file.home.as_ref().map(|_| stamp);
            let all = line.size.div_ceil(file.placed.block_size.bytes() as u64);
            let dirty_blocks = if lent { all } else { dirty };
            return Err(Error::HomeChanged { path, dirty_blocks, how, expected });
        }
    }
    Ok(())
}

/// Ends the attach when a file is not the one its logs were written for.
fn compare_bound(home: &dyn Home, recovered: &[Recovered], bound: &Bound) -> Result<()> {
    let named =
        |path: &Path| recovered.iter().find(|f| f.home.as_ref().is_some_and(|at| at.path == path));
    // One that another file was put over: its slot has the name still.
    let lost = || {
        let gone =
            |f: &&Recovered| f.home.is_none() && f.hint == bound.file && f.flags & UNLINKING == 0;
        recovered.iter().find(gone)
    };
    let file = named(&bound.file).or_else(lost);
    let (how, expected) = match file.and_then(|file| Some((changed(file)?, file))) {
        Some((how, file)) => {
            let line = file.placed.meta.lock().line.clone();
            let stamp = HomeStamp { size: line.home_size, mtime_ns: line.home_mtime_ns };
            (format!("was changed ({how})"), file.home.as_ref().map(|_| stamp))
        }
        None => match &bound.doubt {
            None => return Ok(()),
            Some(doubt) => {
                let stat = home.stat(&bound.file).map_err(Error::io("cannot stat", &bound.file))?;
                let stamp = HomeStamp { size: stat.size, mtime_ns: stat.mtime_ns };
                (format!("may have been changed ({doubt})"), Some(stamp))
            }
        },
    };
    for log in &bound.logs {
        let log_bytes = match (named(log), home.stat(log)) {
            (Some(log), _) => log.placed.size(),
            (None, Ok(stat)) => stat.size,
            (None, Err(e)) if is_elsewhere(&e) => 0,
            (None, Err(e)) => return Err(Error::io("cannot stat", log)(e)),
        };
        if log_bytes > 0 {
            return Err(Error::LogOfAnother {
                path: bound.file.clone(),
                log: log.clone(),
                log_bytes,
                how,
                expected,
            });
        }
    }
    Ok(())
}

/// How the home file differs from what the tier knows of it; `None` when it does not, or only by
/// our own doing.
fn changed(file: &Recovered) -> Option<String> {
    let Some(AtHome { stat, .. }) = &file.home else { return Some("it is no longer there".into()) };
    let meta = file.placed.meta.lock();
    let line = &meta.line;
    if stat.mtime_ns == line.home_mtime_ns
        && (stat.size == line.home_size || line.flags & TRUNCATING != 0)
    {
        return None;
    }
    if line.flags & (DESTAGING | TRUNCATING) != 0 {
        let from = line.since_ns.saturating_sub(CLOCK_GRAIN_NS);
        // The time it was being given, as far as home keeps parts of a second.
        let given = decode_time(line.mtime).map(FileTime::wrapped_ns);
        if stat.mtime_ns == line.home_mtime_ns
            || given.is_some_and(|t| {
                t == stat.mtime_ns
                    || (t > stat.mtime_ns
                        && t - stat.mtime_ns < 1_000_000_000
                        && stat.mtime_ns.is_multiple_of(1_000_000_000))
            })
            || (from..=line.since_ns.saturating_add(OURS_FOR_NS)).contains(&stat.mtime_ns)
        {
            return None;
        }
    }
    Some(format!(
        "size {} and modification time {} ns, expected {} and {}",
        stat.size, stat.mtime_ns, line.home_size, line.home_mtime_ns
    ))
}

/// The plain file of a lent file, which is the truth: without it there is nothing to go on with.
fn find_plain(file: &mut Recovered) -> Result<()> {
    let Some(at) = file.home.as_ref().filter(|_| file.flags & LENT != 0) else { return Ok(()) };
    let tier = &file.placed.tier;
    let name = PlainName { tier: tier.uuid(), id: file.placed.id, loan: loan_of(file.flags) };
    let Some(dir) = &tier.lent_dir else {
        let plain = path_beside(&tier.members[0].path, name);
        let reason = "a tier given as volatile, or on a device or on flash, has no such directory \
                      beside it; if one was named, say it again: --passthrough-dir DIR"
            .to_owned();
        return Err(Error::Lent { path: at.path.clone(), plain, reason });
    };
    let wrong =
        |reason: String| Error::Lent { path: at.path.clone(), plain: dir.path(name), reason };
    let plain = dir.open(name).map_err(|e| {
        let others =
            if e.kind() == std::io::ErrorKind::NotFound { others_than(&**dir, name) } else { None };
        wrong(others.map_or_else(|| e.to_string(), |others| format!("{e}; {others}")))
    })?;
    let size = plain.file.stat().map_err(|e| wrong(e.to_string()))?.size;
    let least = file.placed.meta.lock().line.size;
    if size < least {
        return Err(wrong(format!("it has {size} bytes, and had {least} or more")));
    }
    file.plain = Some(plain);
    Ok(())
}

/// What is there instead of a plain file: of another tier, or of another loan of the same file.
fn others_than(dir: &dyn LentDir, name: PlainName) -> Option<String> {
    let names = dir.names().ok()?;
    if let Some(other) = names.iter().find(|other| (other.tier, other.id) == (name.tier, name.id)) {
        return Some(format!(
            "there is {other}, which is of an older or newer state of the same tier"
        ));
    }
    let other = names.iter().find(|other| other.tier != name.tier)?;
    Some(format!("there is {other}, which is of another tier"))
}

/// Removes plain files of no lent file: what a cut in the middle of lending or giving back left.
/// What is of another tier, or of a newer state of this one, stays: somebody may bring the tier
/// that it belongs to.
fn remove_orphans(store: &Store) {
    for tier in &store.tiers {
        // Who is lent no more has to be known for good first.
        let Some(dir) = tier.lent_dir.as_ref().filter(|_| tier.sound().is_ok()) else { continue };
        let (uuid, count) = (tier.uuid(), tier.superblocks.lock()[0].attach_count);
        let files = store.files.all();
        let ours =
            files.iter().filter_map(|f| f.placed.as_ref()).filter(|p| Arc::ptr_eq(&p.tier, tier));
        let lent: HashSet<PlainName> = ours.filter_map(|p| Some(p.loan.plain()?.name)).collect();
        let names = dir.names().unwrap_or_else(|e| {
            log::warn!("{}: {e}; what is of no use there stays", dir.directory_path().display());
            Vec::new()
        });
        for name in names.into_iter().filter(|name| !lent.contains(name)) {
            let path = dir.path(name);
            if name.tier != uuid {
                log::warn!("{} is of another tier than `{}`, and stays", path.display(), tier.name);
            } else if !name.is_before(count) {
                log::warn!(
                    "{} is of a newer state of the tier `{}` than this one, and stays: is the tier \
                     an older copy?",
                    path.display(),
                    tier.name
                );
            } else if let Err(e) = dir.remove(name) {
                log::warn!("{} is of no use, and stays: {e}", path.display());
            }
        }
    }
}

// --- step 4 ---

/// Completes what was under way and makes the files known to `store`.
pub(crate) fn finish(
    store: &Store,
    recovered: Vec<Recovered>,
    report: &mut RecoveryReport,
) -> Result<()> {
    for file in recovered {
        let differs = changed(&file).is_some();
        let Recovered { placed, flags, home, plain, .. } = file;
        let Some(AtHome { path, stat, file: home }) = home.filter(|_| !differs) else {
            // Removed as asked, or nothing but clean copies of something else.
            placed.free_slot();
            if flags & UNLINKING != 0 {
                report.files_freed += 1
            } else {
                report.changed_files += 1
            }
            continue;
        };
        let planted = placed.tier.planted.is(Planted::SizeOfLine);
        if placed.tier.is_ephemeral() && flags & TRUNCATING == 0 && !planted {
            // Home is written past the tier, so it knows the size.
            placed.size.store(stat.size, Ordering::Release);
            placed.meta.lock().line.size = stat.size;
        }
        let state = Arc::new(FileState::new(home, stat, Some(placed)));
        state.treat_by(&store.env.options.cache, &path);
        let placed = state.placed.as_ref().expect("BUG: it was just put in");
        let size = placed.size();
        match plain {
            Some(plain) => {
                finish_lent(store, &state, placed, plain)?;
                report.files_lent += 1;
                if let Some(held) = store.lender.lent_in_use(&state, placed) {
                    log::warn!("{held}");
                    report.lent_in_use.push(held);
                }
            }
            None => report.entries_dropped += finish_file(store, &state, placed, size)?,
        }
        if flags & TRUNCATING != 0 {
            report.truncations_finished += 1;
        }
        if store.profile.placement(&path).class != placed.class {
            state.replace.store(true, Ordering::Release);
        }
        store.files.insert(state);
    }
    remove_orphans(store);
    Ok(())
}

fn finish_lent(store: &Store, state: &FileState, placed: &Placed, plain: Plain) -> Result<()> {
    placed.adopt_plain(state, plain)?;
    let mut meta = placed.meta.lock();
    if meta.line.flags & (DESTAGING | UNLINKING | TRUNCATING) != 0 {
        meta.line.flags &= !(UNLINKING | TRUNCATING);
        store.homeward.fingerprint(state, placed, &mut meta)?;
    }
    Ok(())
}

fn finish_file(store: &Store, state: &FileState, placed: &Placed, size: u64) -> Result<u64> {
    let flags = placed.meta.lock().line.flags;
    if flags & TRUNCATING != 0 {
        store.io.finish_cut(state, placed, size, None, true)?;
    }
    let mut past_end = Vec::new();
    let first = size.div_ceil(placed.block_size.bytes() as u64);
    placed.map.for_each_leaf(|number, leaf| {
        for n in 0..LEAF_BLOCKS {
            let block = number * LEAF_BLOCKS + n;
            if block >= first && leaf.get(n as usize) != Entry::HOME {
                past_end.push(BlockIndex(block));
            }
        }
    });
    let dropped = if past_end.is_empty() { 0 } else { placed.drop_entries(&past_end, |_| true) };
    placed.meta.lock().redo.forget(|b| b.0 >= first);
    let block = placed.block_size.block_of(size);
    let within = (size - placed.block_size.start_of(block)) as usize;
    if within > 0 {
        placed.zero_tail_in_place(block, within)?;
    }
    if flags & (DESTAGING | UNLINKING) != 0 {
        let mut meta = placed.meta.lock();
        meta.line.flags &= !UNLINKING;
        store.homeward.fingerprint(state, placed, &mut meta)?;
    }
    Ok(dropped)
}
