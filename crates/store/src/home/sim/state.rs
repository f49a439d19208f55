//! What a simulated home holds, now and on its medium, and how one event changes both.
//!
//! The model, an adversary's view of a journalling file system:
//! - Names, lengths and time stamps change in a journal that becomes durable in order. A power cut
//!   leaves some prefix of it, and every sync (of any file or directory) makes all of it durable so
//!   far.
//! - Bytes become durable apart from the journal, in sectors of 512 bytes, each in any version it
//!   had since it was last synced, in any order; a file's sync makes all its bytes durable. So a
//!   new time stamp may be found with old bytes, old stamps with new bytes, and a longer file with
//!   zeros where its bytes should be.
//! - Space freed by a cut (`set_len`) is not used again before the cut is durable.
//! - After a failed sync, the bytes it should have made durable stay in doubt even when a later
//!   sync succeeds (Linux drops them).
//!
//! Sources: the ext4 documentation on `data=ordered` and `data=writeback`, and "All File Systems
//! Are Not Created Equal" (OSDI 2014); different from both, file systems that make a file durable
//! without the journal before it (a strict reading of POSIX) are not modelled.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Unit in which a medium keeps or loses unsynced bytes.
pub const SECTOR: usize = 512;
/// Unit in which the file system gives out space.
pub(super) const ALLOCATION: usize = 4096;

/// One file through its life, whatever its names and inode number.
pub type FileId = u64;

/// Bytes of a write, shared between the trace and the states; printed as a length.
#[derive(Clone, PartialEq, Eq)]
pub struct Bytes(pub Arc<[u8]>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// Where the directory is, as the guard sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Door {
    /// The home is at its path.
    Open,
    /// The home is at its path, with a note as sibling.
    NoteBeside,
    /// The note is at the path, the home as sibling.
    Closed,
}

/// One change made to the home, or one sync.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are what their names say; the variants are documented")]
pub enum HomeEvent {
    /// A file was made.
    Create { path: Arc<Path>, id: FileId, ino: u64, generation: u32, time_ns: u64 },
    /// A directory was made.
    CreateDir { path: Arc<Path>, ino: u64, time_ns: u64 },
    /// A directory was removed.
    RemoveDir { path: Arc<Path> },
    /// A file or directory changed its name, replacing what had the new one.
    Rename { from: Arc<Path>, to: Arc<Path>, time_ns: u64 },
    /// Two files or directories exchanged their names.
    Exchange { one: Arc<Path>, other: Arc<Path>, time_ns: u64 },
    /// The time of the last change was set, to something else than the time of this event.
    SetTimes { id: FileId, mtime_ns: u64, time_ns: u64 },
    /// A name of a file was removed.
    Unlink { path: Arc<Path>, time_ns: u64 },
    /// A file got a further name.
    Link { from: Arc<Path>, to: Arc<Path>, time_ns: u64 },
    /// Bytes were written.
    Write { id: FileId, at: u64, data: Bytes, time_ns: u64 },
    /// Bytes became zero, and the space of whole allocation units was given back.
    Punch { id: FileId, at: u64, len: u64, time_ns: u64 },
    /// A file was cut or extended.
    SetLen { id: FileId, len: u64, time_ns: u64 },
    /// The guard moved the directory, or made or removed the note.
    MoveDoor { door: Door, note: Option<Arc<str>> },
    /// A file was synced.
    SyncFile { id: FileId },
    /// The sync of a file failed.
    SyncFileFailed { id: FileId },
    /// A directory was synced.
    SyncDir { path: Arc<Path> },
}

/// Attributes of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) ino: u64,
    pub(super) generation: u32,
    pub(super) btime_ns: u64,
    pub(super) size: u64,
    pub(super) mtime_ns: u64,
    pub(super) ctime_ns: u64,
    pub(super) nlink: u64,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    File(FileId),
    Directory { ino: u64, time_ns: u64 },
}

/// Everything the journal covers.
#[derive(Debug, Clone)]
pub(super) struct Names {
    pub(super) entries: BTreeMap<Arc<Path>, Entry>,
    /// Also files without a name, for those who have them open.
    pub(super) files: BTreeMap<FileId, Attributes>,
    pub(super) door: Door,
    pub(super) note: Option<Arc<str>>,
}

impl Names {
    fn new() -> Self {
        Self { entries: BTreeMap::new(), files: BTreeMap::new(), door: Door::Open, note: None }
    }

    pub(super) fn file_at(&self, path: &Path) -> Option<FileId> {
        match self.entries.get(path) {
            Some(Entry::File(id)) => Some(*id),
            _ => None,
        }
    }

    /// The paths below the directory `dir`.
    pub(super) fn below(&self, dir: &Path) -> Vec<Arc<Path>> {
        self.entries.keys().filter(|p| p.starts_with(dir) && ***p != *dir).cloned().collect()
    }

    fn drop_name(&mut self, path: &Path, time_ns: u64) {
        if let Some(Entry::File(id)) = self.entries.remove(path)
            && let Some(a) = self.files.get_mut(&id)
        {
            a.nlink -= 1;
            a.ctime_ns = time_ns;
        }
    }

    fn rename(&mut self, from: &Path, to: &Arc<Path>, time_ns: u64) {
        self.drop_name(to, time_ns);
        for old in self.below(from) {
            let new: PathBuf =
                to.join(old.strip_prefix(from).expect("BUG: below() gives paths below"));
            let entry = self.entries.remove(&old).expect("BUG: below() gives names that are there");
            self.entries.insert(new.into(), entry);
        }
        if let Some(entry) = self.entries.remove(from) {
            if let Entry::File(id) = entry
                && let Some(a) = self.files.get_mut(&id)
            {
                a.ctime_ns = time_ns;
            }
            self.entries.insert(to.clone(), entry);
        }
    }

    fn exchange(&mut self, one: &Arc<Path>, other: &Arc<Path>, time_ns: u64) {
        let take = |names: &mut Self, at: &Path| -> Vec<(PathBuf, Entry)> {
            let paths =
                names.entries.keys().filter(|p| p.starts_with(at)).cloned().collect::<Vec<_>>();
            let below = |p: &Path| p.strip_prefix(at).expect("BUG: it starts so").to_path_buf();
            paths.into_iter().filter_map(|p| Some((below(&p), names.entries.remove(&p)?))).collect()
        };
        let (a, b) = (take(self, one), take(self, other));
        for (entries, to) in [(a, other), (b, one)] {
            for (below, entry) in entries {
                let itself = below.as_os_str().is_empty();
                if let (true, Entry::File(id)) = (itself, entry)
                    && let Some(a) = self.files.get_mut(&id)
                {
                    a.ctime_ns = time_ns;
                }
                let path: Arc<Path> = if itself { to.clone() } else { to.join(below).into() };
                self.entries.insert(path, entry);
            }
        }
    }

    fn apply(&mut self, event: &HomeEvent) {
        match event {
            HomeEvent::Exchange { one, other, time_ns } => self.exchange(one, other, *time_ns),
            HomeEvent::SetTimes { id, mtime_ns, time_ns } => {
                if let Some(a) = self.files.get_mut(id) {
                    (a.mtime_ns, a.ctime_ns) = (*mtime_ns, *time_ns);
                }
            }
            HomeEvent::Create { path, id, ino, generation, time_ns } => {
                let (ino, generation, t) = (*ino, *generation, *time_ns);
                let fresh = Attributes {
                    ino,
                    generation,
                    btime_ns: t,
                    size: 0,
                    mtime_ns: t,
                    ctime_ns: t,
                    nlink: 1,
                };
                self.files.insert(*id, fresh);
                self.entries.insert(path.clone(), Entry::File(*id));
            }
            HomeEvent::CreateDir { path, ino, time_ns } => {
                self.entries
                    .insert(path.clone(), Entry::Directory { ino: *ino, time_ns: *time_ns });
            }
            HomeEvent::RemoveDir { path } => {
                self.entries.remove(path);
            }
            HomeEvent::Rename { from, to, time_ns } => self.rename(from, to, *time_ns),
            HomeEvent::Unlink { path, time_ns } => self.drop_name(path, *time_ns),
            HomeEvent::Link { from, to, time_ns } => {
                if let Some(id) = self.file_at(from)
                    && let Some(a) = self.files.get_mut(&id)
                {
                    a.nlink += 1;
                    a.ctime_ns = *time_ns;
                    self.entries.insert(to.clone(), Entry::File(id));
                }
            }
            HomeEvent::Write { id, at, data, time_ns } => {
                if let Some(a) = self.files.get_mut(id) {
                    a.size = a.size.max(at + data.0.len() as u64);
                    (a.mtime_ns, a.ctime_ns) = (*time_ns, *time_ns);
                }
            }
            HomeEvent::Punch { id, time_ns, .. } => {
                if let Some(a) = self.files.get_mut(id) {
                    (a.mtime_ns, a.ctime_ns) = (*time_ns, *time_ns);
                }
            }
            HomeEvent::SetLen { id, len, time_ns } => {
                if let Some(a) = self.files.get_mut(id) {
                    a.size = *len;
                    (a.mtime_ns, a.ctime_ns) = (*time_ns, *time_ns);
                }
            }
            HomeEvent::MoveDoor { door, note } => {
                self.door = *door;
                self.note.clone_from(note);
            }
            HomeEvent::SyncFile { .. }
            | HomeEvent::SyncFileFailed { .. }
            | HomeEvent::SyncDir { .. } => {}
        }
    }
}

/// How far a write of the past has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Not synced.
    Pending,
    /// A sync of it failed: may never become durable.
    InDoubt,
    /// Synced, but kept in the list because a write in doubt comes before it.
    Settled,
}

/// A change of a file's bytes that its durable contents do not have yet.
#[derive(Debug, Clone)]
enum Past {
    Write {
        at: u64,
        data: Bytes,
        fate: Fate,
    },
    /// `op`: its number in the journal.
    Len {
        len: u64,
        op: u64,
    },
}

/// The bytes of one file.
#[derive(Debug, Clone)]
pub(super) struct Node {
    durable: Arc<Vec<u8>>,
    pub(super) current: Arc<Vec<u8>>,
    past: Vec<Past>,
    /// Which allocation units have space.
    blocks: Arc<Vec<bool>>,
}

/// One sector that may be found in several versions after a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingSector {
    /// The file.
    pub id: FileId,
    /// Which sector of the file.
    pub sector: u64,
    /// The oldest version that may be found (0: the durable one).
    pub oldest: u16,
    /// The newest version: the number of unsynced writes that touched it.
    pub newest: u16,
}

/// A simulated home, now and on its medium. Cloning shares everything that is not changed
/// afterwards.
#[derive(Debug, Clone)]
pub(super) struct State {
    base: Arc<Names>,
    pub(super) now: Arc<Names>,
    journal: Vec<HomeEvent>,
    /// The number of the journal's first event.
    first_op: u64,
    nodes: Arc<BTreeMap<FileId, Node>>,
    pub(super) next_id: FileId,
    pub(super) next_ino: u64,
    pub(super) clock_ns: u64,
}

impl State {
    pub(super) fn new() -> Self {
        let names = Arc::new(Names::new());
        let (next_id, next_ino, clock_ns) = (1, 12, 1_700_000_000_000_000_000);
        let nodes = Arc::new(BTreeMap::new());
        Self {
            base: names.clone(),
            now: names,
            journal: Vec::new(),
            first_op: 0,
            nodes,
            next_id,
            next_ino,
            clock_ns,
        }
    }

    pub(super) fn node(&self, id: FileId) -> &Node {
        self.nodes.get(&id).expect("BUG: a file has a node from its creation on")
    }

    /// Bytes of space that files with a name take, in whole allocation units.
    pub(super) fn used(&self) -> u64 {
        let named =
            self.nodes.iter().filter(|(id, _)| self.now.files.get(id).is_some_and(|a| a.nlink > 0));
        named.map(|(_, n)| n.blocks.iter().filter(|b| **b).count() as u64 * ALLOCATION as u64).sum()
    }

    /// How many bytes of a write of `len` at `at` fit when `free` bytes of space are left.
    pub(super) fn fitting(&self, id: FileId, at: u64, len: usize, mut free: u64) -> usize {
        let blocks = &self.node(id).blocks;
        let (first, end) = (at as usize / ALLOCATION, (at as usize + len).div_ceil(ALLOCATION));
        for block in first..end {
            if blocks.get(block) != Some(&true) {
                if free < ALLOCATION as u64 {
                    return (block * ALLOCATION).saturating_sub(at as usize);
                }
                free -= ALLOCATION as u64;
            }
        }
        len
    }

    pub(super) fn apply(&mut self, event: &HomeEvent) {
        match event {
            HomeEvent::SyncFile { id } => {
                self.node_mut(*id).settle();
                self.commit();
                return;
            }
            HomeEvent::SyncFileFailed { id } => {
                for p in &mut self.node_mut(*id).past {
                    if let Past::Write { fate, .. } = p
                        && *fate == Fate::Pending
                    {
                        *fate = Fate::InDoubt;
                    }
                }
                return;
            }
            HomeEvent::SyncDir { .. } => {
                self.commit();
                return;
            }
            HomeEvent::Create { id, .. } => {
                let (bytes, blocks) = (Arc::new(Vec::new()), Arc::new(Vec::new()));
                let node =
                    Node { durable: bytes.clone(), current: bytes, past: Vec::new(), blocks };
                Arc::make_mut(&mut self.nodes).insert(*id, node);
            }
            HomeEvent::Write { id, at, data, .. } => self.node_mut(*id).write(*at, data),
            HomeEvent::Punch { id, at, len, .. } => self.node_mut(*id).punch(*at, *len),
            HomeEvent::SetLen { id, len, .. } => {
                let op = self.first_op + self.journal.len() as u64;
                self.node_mut(*id).set_len(*len, op);
            }
            _ => {}
        }
        Arc::make_mut(&mut self.now).apply(event);
        self.journal.push(event.clone());
    }

    /// Everything so far is durable, and there is no past.
    pub(super) fn make_durable(&mut self) {
        self.commit();
        for node in Arc::make_mut(&mut self.nodes).values_mut() {
            node.durable = node.current.clone();
            node.past.clear();
        }
    }

    fn node_mut(&mut self, id: FileId) -> &mut Node {
        Arc::make_mut(&mut self.nodes)
            .get_mut(&id)
            .expect("BUG: a file has a node from its creation on")
    }

    fn commit(&mut self) {
        if self.journal.is_empty() {
            return;
        }
        self.base = self.now.clone();
        self.first_op += self.journal.len() as u64;
        self.journal.clear();
        if self.nodes.values().any(|n| matches!(n.past.first(), Some(Past::Len { .. }))) {
            for node in Arc::make_mut(&mut self.nodes).values_mut() {
                node.fold_committed(self.first_op);
            }
        }
    }

    /// The number of journal events that are not durable.
    pub(super) fn journal_len(&self) -> usize {
        self.journal.len()
    }

    /// Every sector that a power cut now may leave in more than one version, in the order of file
    /// and sector.
    pub(super) fn pending(&self) -> Vec<PendingSector> {
        let mut found = Vec::new();
        for (id, node) in self.nodes.iter().filter(|(_, n)| !n.past.is_empty()) {
            let made_since = || {
                self.journal.iter().any(|e| matches!(e, HomeEvent::Create { id: i, .. } if i == id))
            };
            if self.base.files.get(id).is_some_and(|a| a.nlink > 0) || made_since() {
                node.pending(*id, &mut found);
            }
        }
        found
    }

    /// What is found after a power cut: the first `prefix` events of the journal, and the sectors
    /// of `pending` in `versions`.
    pub(super) fn after_power_cut(
        &self,
        prefix: usize,
        pending: &[PendingSector],
        versions: &[u16],
    ) -> Self {
        let mut names =
            if prefix == self.journal.len() { self.now.clone() } else { self.base.clone() };
        if prefix > 0 && prefix < self.journal.len() {
            let names = Arc::make_mut(&mut names);
            for event in &self.journal[..prefix] {
                names.apply(event);
            }
        }
        let durable_ops = self.first_op + prefix as u64;
        let mut nodes = BTreeMap::new();
        for (id, a) in names.files.iter().filter(|(_, a)| a.nlink > 0) {
            let from = pending.partition_point(|p| p.id < *id);
            let until = pending.partition_point(|p| p.id <= *id);
            let node = self.node(*id);
            let bytes = node.after_power_cut(
                durable_ops,
                &pending[from..until],
                &versions[from..until],
                a.size,
            );
            let mut blocks = node.blocks.clone();
            if blocks.len() > (a.size as usize).div_ceil(ALLOCATION) {
                Arc::make_mut(&mut blocks).truncate((a.size as usize).div_ceil(ALLOCATION));
            }
            give_space(&mut blocks, &bytes);
            nodes.insert(
                *id,
                Node { durable: bytes.clone(), current: bytes, past: Vec::new(), blocks },
            );
        }
        if names.files.len() > nodes.len() {
            Arc::make_mut(&mut names).files.retain(|_, a| a.nlink > 0);
        }
        let (next_id, next_ino, clock_ns) = (self.next_id, self.next_ino, self.clock_ns);
        let nodes = Arc::new(nodes);
        Self {
            base: names.clone(),
            now: names,
            journal: Vec::new(),
            first_op: 0,
            nodes,
            next_id,
            next_ino,
            clock_ns,
        }
    }

    /// A number that differs between states that a program can tell apart.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut h = xxhash_rust::xxh3::Xxh3::new();
        h.update(&[self.now.door as u8]);
        for (path, entry) in &self.now.entries {
            h.update(AsRef::<OsStr>::as_ref(&**path).as_encoded_bytes());
            let Entry::File(id) = entry else { continue };
            let a = &self.now.files[id];
            for n in [
                a.ino,
                u64::from(a.generation),
                a.btime_ns,
                a.size,
                a.mtime_ns,
                a.ctime_ns,
                a.nlink,
            ] {
                h.update(&n.to_le_bytes());
            }
            h.update(&self.node(*id).current);
        }
        h.digest()
    }

    /// A number for everything that [`State::fingerprint`] leaves out, where nothing is unsynced.
    pub(super) fn rest(&self) -> u64 {
        let mut h = xxhash_rust::xxh3::Xxh3::new();
        let mut number = |n: u64| h.update(&n.to_le_bytes());
        [self.clock_ns, self.next_id, self.next_ino].into_iter().for_each(&mut number);
        for (path, entry) in &self.now.entries {
            match entry {
                Entry::File(id) => {
                    number(*id);
                    let blocks = &self.node(*id).blocks;
                    number(blocks.len() as u64);
                    blocks.chunks(64).for_each(|held| {
                        number(held.iter().fold(0, |bits, held| bits << 1 | u64::from(*held)));
                    });
                }
                Entry::Directory { ino, time_ns } => {
                    number(path.as_os_str().len() as u64);
                    number(*ino);
                    number(*time_ns);
                }
            }
        }
        h.update(self.now.note.as_deref().unwrap_or_default().as_bytes());
        h.digest()
    }

    /// Inode numbers that were in use and are not any more.
    pub(super) fn free_inos(&self) -> BTreeSet<u64> {
        let named = |want: bool| {
            self.now.files.values().filter(move |a| (a.nlink > 0) == want).map(|a| a.ino)
        };
        let taken: BTreeSet<u64> = named(true).collect();
        named(false).filter(|i| !taken.contains(i)).collect()
    }
}

impl Node {
    fn write(&mut self, at: u64, data: &Bytes) {
        let (at_index, end) = (at as usize, at as usize + data.0.len());
        let bytes = Arc::make_mut(&mut self.current);
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[at_index..end].copy_from_slice(&data.0);
        let units = at_index / ALLOCATION..end.div_ceil(ALLOCATION);
        if !units.clone().all(|u| self.blocks.get(u) == Some(&true)) {
            let blocks = Arc::make_mut(&mut self.blocks);
            blocks.resize(blocks.len().max(units.end), false);
            blocks[units].fill(true);
        }
        self.past.push(Past::Write { at, data: data.clone(), fate: Fate::Pending });
    }

    fn punch(&mut self, at: u64, len: u64) {
        self.write(at, &Bytes(vec![0; len as usize].into()));
        let whole = (at as usize).div_ceil(ALLOCATION)..(at + len) as usize / ALLOCATION;
        if !whole.is_empty() {
            Arc::make_mut(&mut self.blocks)[whole].fill(false);
        }
    }

    /// The first byte from `from` on that is in an allocation unit with space, or in one without;
    /// past the last unit there is none.
    pub(super) fn next(&self, from: u64, with_space: bool) -> Option<u64> {
        let first = usize::try_from(from).unwrap_or(usize::MAX) / ALLOCATION;
        let units = first..self.blocks.len().max(first);
        let mut found = units.filter(|unit| self.blocks[*unit] == with_space);
        let past = (!with_space).then_some(self.blocks.len().max(first));
        found.next().or(past).map(|unit| from.max((unit * ALLOCATION) as u64))
    }

    fn set_len(&mut self, len: u64, op: u64) {
        Arc::make_mut(&mut self.current).resize(len as usize, 0);
        if self.blocks.len() > (len as usize).div_ceil(ALLOCATION) {
            Arc::make_mut(&mut self.blocks).truncate((len as usize).div_ceil(ALLOCATION));
        }
        self.past.push(Past::Len { len, op });
    }

    fn settle(&mut self) {
        let in_doubt = |p: &Past| matches!(p, Past::Write { fate: Fate::InDoubt, .. });
        if self.past.iter().any(in_doubt) {
            for p in &mut self.past {
                if let Past::Write { fate, .. } = p
                    && *fate == Fate::Pending
                {
                    *fate = Fate::Settled;
                }
            }
        } else {
            self.durable = self.current.clone();
            self.past.clear();
        }
    }

    /// Moves cuts that are durable, and that no write comes before, into the durable contents.
    fn fold_committed(&mut self, durable_ops: u64) {
        let committed = |p: &&Past| matches!(p, Past::Len { op, .. } if *op < durable_ops);
        let n = self.past.iter().take_while(committed).count();
        for p in self.past.drain(..n) {
            if let Past::Len { len, .. } = p {
                Arc::make_mut(&mut self.durable).resize(len as usize, 0);
            }
        }
    }

    fn pending(&self, id: FileId, found: &mut Vec<PendingSector>) {
        let mut sectors: BTreeMap<u64, (u16, u16)> = BTreeMap::new();
        for p in &self.past {
            let Past::Write { at, data, fate } = p else { continue };
            for sector in at / SECTOR as u64..(at + data.0.len() as u64).div_ceil(SECTOR as u64) {
                let (oldest, newest) = sectors.entry(sector).or_default();
                *newest += 1;
                if *fate == Fate::Settled {
                    *oldest = *newest;
                }
            }
        }
        let uncertain = sectors.into_iter().map(|(sector, (oldest, newest))| PendingSector {
            id,
            sector,
            oldest,
            newest,
        });
        found.extend(uncertain);
    }

    /// The bytes after a power cut that left the journal's first `durable_ops` events, this file's
    /// `pending` sectors in `versions`, and the length `size`.
    fn after_power_cut(
        &self,
        durable_ops: u64,
        pending: &[PendingSector],
        versions: &[u16],
        size: u64,
    ) -> Arc<Vec<u8>> {
        let size = size as usize;
        let nothing_written = versions.iter().all(|v| *v == 0);
        let nothing_cut = self.past.iter().all(|p| matches!(p, Past::Write { .. }));
        if nothing_written && nothing_cut {
            if self.durable.len() == size {
                return self.durable.clone();
            }
            let mut bytes = Vec::with_capacity(size);
            bytes.extend_from_slice(&self.durable[..size.min(self.durable.len())]);
            bytes.resize(size, 0);
            return Arc::new(bytes);
        }
        let all_written = versions.iter().zip(pending).all(|(v, p)| *v == p.newest);
        if all_written && nothing_cut && self.current.len() == size {
            return self.current.clone();
        }
        let mut bytes = Vec::clone(&self.durable);
        // Past a cut that is not durable, the file has no space yet that new bytes could go to.
        let mut limit = usize::MAX;
        let mut seen = vec![0u16; pending.len()];
        for p in &self.past {
            match p {
                Past::Len { len, op } if *op < durable_ops => bytes.resize(*len as usize, 0),
                Past::Len { len, .. } => {
                    limit = limit.min((*len as usize).next_multiple_of(ALLOCATION))
                }
                Past::Write { at, data, .. } => {
                    overlay(&mut bytes, *at as usize, &data.0, limit, |sector| {
                        let Ok(i) = pending.binary_search_by_key(&sector, |p| p.sector) else {
                            return true;
                        };
                        seen[i] += 1;
                        seen[i] <= versions[i]
                    });
                }
            }
        }
        bytes.resize(size, 0);
        Arc::new(bytes)
    }
}

/// After a power cut there is space wherever there are bytes: a hole that was not durable is none.
fn give_space(blocks: &mut Arc<Vec<bool>>, bytes: &[u8]) {
    for (unit, held) in bytes.chunks(ALLOCATION).enumerate() {
        if blocks.get(unit) != Some(&true) && held.iter().any(|b| *b != 0) {
            let blocks = Arc::make_mut(blocks);
            blocks.resize(blocks.len().max(unit + 1), false);
            blocks[unit] = true;
        }
    }
}

/// Copies the sectors of a write that `chosen` wants and that begin below `limit`.
fn overlay(
    bytes: &mut Vec<u8>,
    at: usize,
    data: &[u8],
    limit: usize,
    mut chosen: impl FnMut(u64) -> bool,
) {
    let mut from = at;
    let end = at + data.len();
    while from < end {
        let until = ((from / SECTOR + 1) * SECTOR).min(end);
        if chosen((from / SECTOR) as u64) && from < limit {
            if bytes.len() < until {
                bytes.resize(until, 0);
            }
            bytes[from..until].copy_from_slice(&data[from - at..until - at]);
        }
        from = until;
    }
}
