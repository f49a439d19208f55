//! Which node number is which file of the home, and which handle is which open file.
//!
//! A node number is given once and never again, so the kernel cannot mistake a new file for an old
//! one when home uses an inode number twice. All names of a file are one node. What a node is
//! called may be out of date for a moment while it is removed: whoever uses a name compares what it
//! finds there with the node.

use super::io::Opened;
use parking_lot::{Mutex, RwLock};
use rustix::fs::{FileType, Statx};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tiersmith_store::FileTime;

/// The node of the home itself.
pub(crate) const ROOT: u64 = 1;
/// Descriptors of directories that are kept, or an eighth of what the process may open; above that
/// a directory is opened for each use.
const DIRECTORIES_KEPT: usize = 512;

/// Device, inode number and birth time: the birth time tells a number apart that is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    born: Option<(i64, u32)>,
    kind: u16,
}

impl Identity {
    /// When it was born, where home knows it.
    pub(crate) fn born(&self) -> Option<FileTime> {
        self.born.map(|(sec, nsec)| FileTime { sec, nsec })
    }

    pub(crate) fn of(found: &Statx) -> Self {
        let known = found.stx_mask & rustix::fs::StatxFlags::BTIME.bits() != 0;
        Self {
            dev: crate::attr::device(found),
            ino: found.stx_ino,
            born: known.then_some((found.stx_btime.tv_sec, found.stx_btime.tv_nsec)),
            kind: found.stx_mode & 0o170_000,
        }
    }
}

/// A file, directory or anything else that the kernel knows of.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) identity: Identity,
    /// Parents and names.
    names: Mutex<Vec<(u64, OsString)>>,
    /// Home's descriptor, for a directory that was used.
    pub(crate) directory: Mutex<Option<Arc<OwnedFd>>>,
    /// Its descriptors in open listings: an open directory has attributes after its name is gone.
    listed: Mutex<Vec<Weak<OwnedFd>>>,
    /// The open file that all its handles share.
    pub(crate) open: Mutex<Option<(Arc<Opened>, u64)>>,
    /// Whether a write has a right to take away (suid, sgid, capabilities): see `change.rs`.
    pub(crate) privileges: AtomicU8,
    /// Whether the kernel ever wrote it without this process: then what it remembers of the
    /// contents may be old.
    pub(crate) bypassed: std::sync::atomic::AtomicBool,
    lookups: AtomicU64,
}

impl Node {
    fn new(id: u64, identity: Identity) -> Self {
        Self {
            id,
            identity,
            names: Mutex::default(),
            directory: Mutex::default(),
            listed: Mutex::default(),
            open: Mutex::default(),
            privileges: AtomicU8::new(0),
            bypassed: std::sync::atomic::AtomicBool::new(false),
            lookups: AtomicU64::new(0),
        }
    }

    /// Whether home's answer is about this file.
    pub(crate) fn is(&self, found: &Statx) -> bool {
        self.identity == Identity::of(found)
    }

    pub(crate) fn is_dir(&self) -> bool {
        FileType::from_raw_mode(self.identity.kind.into()) == FileType::Directory
    }

    pub(crate) fn is_file(&self) -> bool {
        FileType::from_raw_mode(self.identity.kind.into()) == FileType::RegularFile
    }

    pub(crate) fn is_symlink(&self) -> bool {
        FileType::from_raw_mode(self.identity.kind.into()) == FileType::Symlink
    }

    /// A descriptor of a directory, good after its name is gone.
    pub(crate) fn kept(&self) -> Option<Arc<OwnedFd>> {
        let kept = self.directory.lock().clone();
        kept.or_else(|| self.listed.lock().iter().find_map(Weak::upgrade))
    }

    /// Notes the descriptor of a listing.
    pub(crate) fn list(&self, fd: &Arc<OwnedFd>) {
        let mut listed = self.listed.lock();
        listed.retain(|fd| fd.strong_count() > 0);
        listed.push(Arc::downgrade(fd));
    }

    pub(crate) fn any_name(&self) -> Option<(u64, OsString)> {
        self.names.lock().first().cloned()
    }

    pub(crate) fn all_names(&self) -> Vec<(u64, OsString)> {
        self.names.lock().clone()
    }

    pub(crate) fn opened(&self) -> Option<Arc<Opened>> {
        self.open.lock().as_ref().map(|(opened, _)| opened.clone())
    }

    fn add_name(&self, parent: u64, name: &OsStr) {
        let mut names = self.names.lock();
        if self.is_dir() {
            names.clear();
        }
        if !names.iter().any(|(p, n)| *p == parent && n == name) {
            names.push((parent, name.to_os_string()));
        }
    }

    fn drop_name(&self, parent: u64, name: &OsStr) {
        self.names.lock().retain(|(p, n)| !(*p == parent && n == name));
    }
}

/// The nodes that the kernel knows.
#[derive(Debug)]
pub(crate) struct Table {
    nodes: HashMap<u64, Arc<Node>>,
    by_key: HashMap<(u64, u64), u64>,
    /// Who has a name, for finding the node that a rename replaces.
    by_name: HashMap<(u64, OsString), u64>,
    next: u64,
    directories: usize,
    directories_most: usize,
}

impl Table {
    pub(crate) fn new(root: &Statx, directory: Arc<OwnedFd>) -> Self {
        let identity = Identity::of(root);
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let limit = limit.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
        let node = Arc::new(Node::new(ROOT, identity));
        *node.directory.lock() = Some(directory);
        Self {
            by_key: HashMap::from([((identity.dev, identity.ino), ROOT)]),
            nodes: HashMap::from([(ROOT, node)]),
            by_name: HashMap::new(),
            next: ROOT + 1,
            directories: 0,
            directories_most: (limit / 8).min(DIRECTORIES_KEPT),
        }
    }

    pub(crate) fn node(&self, id: u64) -> Option<Arc<Node>> {
        self.nodes.get(&id).cloned()
    }

    /// The node of what was found, if the kernel knows it.
    pub(crate) fn known(&self, found: &Statx) -> Option<Arc<Node>> {
        let identity = Identity::of(found);
        let id = self.by_key.get(&(identity.dev, identity.ino))?;
        self.nodes.get(id).filter(|n| n.identity == identity).cloned()
    }

    /// The node that the kernel knows by a name.
    pub(crate) fn named(&self, parent: u64, name: &OsStr) -> Option<Arc<Node>> {
        self.node(*self.by_name.get(&(parent, name.to_os_string()))?)
    }

    /// How many nodes the kernel knows.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The node of what was found under a name, made when it is new. Counts as one look-up, which
    /// the kernel will take back.
    pub(crate) fn enter(&mut self, parent: u64, name: &OsStr, found: &Statx) -> Arc<Node> {
        let identity = Identity::of(found);
        let key = (identity.dev, identity.ino);
        let node = match self.known(found) {
            Some(node) => node,
            None => {
                let node = Arc::new(Node::new(self.next, identity));
                self.next += 1;
                self.by_key.insert(key, node.id);
                self.nodes.insert(node.id, node.clone());
                node
            }
        };
        node.lookups.fetch_add(1, Ordering::Relaxed);
        self.name(&node, parent, name);
        node
    }

    fn name(&mut self, node: &Node, parent: u64, name: &OsStr) {
        if node.is_dir() {
            for (p, n) in node.all_names() {
                self.by_name.remove(&(p, n));
            }
        }
        node.add_name(parent, name);
        if let Some(before) = self.by_name.insert((parent, name.to_os_string()), node.id)
            && before != node.id
            && let Some(before) = self.nodes.get(&before)
        {
            before.drop_name(parent, name);
        }
    }

    /// A name went away. With the last one the inode number may be used again.
    pub(crate) fn unname(&mut self, parent: u64, name: &OsStr, was_last: bool) {
        let Some(id) = self.by_name.remove(&(parent, name.to_os_string())) else { return };
        let Some(node) = self.nodes.get(&id) else { return };
        node.drop_name(parent, name);
        if was_last {
            let key = (node.identity.dev, node.identity.ino);
            if self.by_key.get(&key) == Some(&id) {
                self.by_key.remove(&key);
            }
        }
    }

    /// A name was given to what had another; with `exchange` the other way round too.
    pub(crate) fn renamed(
        &mut self,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
        exchange: bool,
        replaced_last: bool,
    ) {
        let moved =
            self.by_name.remove(&(from.0, from.1.to_os_string())).and_then(|id| self.node(id));
        let other = self.by_name.get(&(to.0, to.1.to_os_string())).and_then(|id| self.node(*id));
        if let Some(node) = &moved {
            node.drop_name(from.0, from.1);
        }
        if exchange {
            self.by_name.remove(&(to.0, to.1.to_os_string()));
            if let Some(node) = &other {
                node.drop_name(to.0, to.1);
                self.name(node, from.0, from.1);
            }
        } else {
            self.unname(to.0, to.1, replaced_last);
        }
        if let Some(node) = &moved {
            self.name(node, to.0, to.1);
        }
    }

    /// The kernel forgets a node that often.
    pub(crate) fn forget(&mut self, id: u64, lookups: u64) {
        let Some(node) = self.nodes.get(&id) else { return };
        let before = node.lookups.load(Ordering::Relaxed);
        node.lookups.store(before.saturating_sub(lookups), Ordering::Relaxed);
        if before > lookups || id == ROOT {
            return;
        }
        let Some(node) = self.nodes.remove(&id) else { return };
        let key = (node.identity.dev, node.identity.ino);
        if self.by_key.get(&key) == Some(&id) {
            self.by_key.remove(&key);
        }
        for name in node.all_names() {
            if self.by_name.get(&name) == Some(&id) {
                self.by_name.remove(&name);
            }
        }
        if node.directory.lock().take().is_some() {
            self.directories = self.directories.saturating_sub(1);
        }
    }

    /// Whether one more directory's descriptor may be kept; counts it.
    pub(crate) fn may_keep_directory(&mut self) -> bool {
        let may = self.directories < self.directories_most;
        self.directories += usize::from(may);
        may
    }

    pub(crate) fn clear(&mut self) {
        for node in self.nodes.values() {
            node.open.lock().take();
        }
        self.nodes.retain(|id, _| *id == ROOT);
        self.by_key.retain(|_, id| *id == ROOT);
        self.by_name.clear();
    }
}

/// What handles stand for: a number for each, used again when it is free.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    inner: RwLock<Places<T>>,
}

/// What is at each number, and which numbers are free.
type Places<T> = (Vec<Option<Arc<T>>>, Vec<usize>);

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { inner: RwLock::new((Vec::new(), Vec::new())) }
    }
}

impl<T> Slots<T> {
    pub(crate) fn put(&self, value: Arc<T>) -> u64 {
        let mut inner = self.inner.write();
        let index = match inner.1.pop() {
            Some(index) => index,
            None => {
                inner.0.push(None);
                inner.0.len() - 1
            }
        };
        inner.0[index] = Some(value);
        index as u64 + 1
    }

    pub(crate) fn get(&self, handle: u64) -> Option<Arc<T>> {
        let index = usize::try_from(handle.checked_sub(1)?).ok()?;
        self.inner.read().0.get(index)?.clone()
    }

    /// What a question about the value is answered with, without a share in it; `false` if there is
    /// none. The question must not wait.
    pub(crate) fn look(&self, handle: u64, question: impl FnOnce(&T) -> bool) -> bool {
        let Some(index) = handle.checked_sub(1).and_then(|n| usize::try_from(n).ok()) else {
            return false;
        };
        self.inner.read().0.get(index).and_then(Option::as_deref).is_some_and(question)
    }

    pub(crate) fn take(&self, handle: u64) -> Option<Arc<T>> {
        let index = usize::try_from(handle.checked_sub(1)?).ok()?;
        let mut inner = self.inner.write();
        let value = inner.0.get_mut(index)?.take();
        if value.is_some() {
            inner.1.push(index);
        }
        value
    }

    pub(crate) fn clear(&self) {
        let taken = std::mem::take(&mut *self.inner.write());
        drop(taken);
    }
}
