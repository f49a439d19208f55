//! A file system in memory that answers FUSE requests: just enough of one to work through a
//! transport.
//!
//! It decodes on its own, so that the transport is not tested with the decoder that it is used
//! with. Not here: permissions, times, links.

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use tiersmith_mount::ring::{Request, Service};

pub(crate) const INIT: u32 = 26;
pub(crate) const FORGET: u32 = 2;
pub(crate) const BATCH_FORGET: u32 = 42;
pub(crate) const INTERRUPT: u32 = 36;
pub(crate) const WRITE: u32 = 16;
const FSYNC: u32 = 20;
const ROOT: u64 = 1;

/// A sync of a file whose name begins so waits until it is let go.
pub(crate) const STALLS: &str = "stalls";
/// A lookup of this name panics.
pub(crate) const PANICS: &str = "panics";

enum Node {
    Directory(BTreeMap<Vec<u8>, u64>),
    File { data: Arc<Mutex<Vec<u8>>>, stalls: bool },
}

/// The file system.
pub(crate) struct Memory {
    nodes: Mutex<HashMap<u64, Node>>,
    next: AtomicU64,
    /// What a sync is answered with; none is success.
    sync: Option<Errno>,
    /// Files are opened past the page cache.
    direct: bool,
    let_go: Mutex<bool>,
    changed: Condvar,
    /// Syncs that wait to be let go.
    pub(crate) stalled: AtomicU64,
}

impl Memory {
    pub(crate) fn new(sync: Option<Errno>, direct: bool) -> Arc<Self> {
        Arc::new(Self {
            nodes: Mutex::new(HashMap::from([(ROOT, Node::Directory(BTreeMap::new()))])),
            next: AtomicU64::new(ROOT + 1),
            sync,
            direct,
            let_go: Mutex::new(false),
            changed: Condvar::new(),
            stalled: AtomicU64::new(0),
        })
    }

    /// Lets the syncs go that stall, those under way and all later ones.
    pub(crate) fn let_go(&self) {
        *self.let_go.lock() = true;
        self.changed.notify_all();
    }

    fn stall(&self) {
        self.stalled.fetch_add(1, SeqCst);
        let mut go = self.let_go.lock();
        while !*go {
            self.changed.wait(&mut go);
        }
    }

    fn file(&self, node: u64) -> Result<Arc<Mutex<Vec<u8>>>, Errno> {
        match self.nodes.lock().get(&node) {
            Some(Node::File { data, .. }) => Ok(Arc::clone(data)),
            Some(Node::Directory(_)) => Err(Errno::ISDIR),
            None => Err(Errno::NOENT),
        }
    }

    fn child(&self, parent: u64, name: &[u8]) -> Result<u64, Errno> {
        match self.nodes.lock().get(&parent) {
            Some(Node::Directory(names)) => names.get(name).copied().ok_or(Errno::NOENT),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn make(&self, parent: u64, name: &[u8], directory: bool) -> Result<u64, Errno> {
        let mut nodes = self.nodes.lock();
        let Some(Node::Directory(names)) = nodes.get_mut(&parent) else {
            return Err(Errno::NOTDIR);
        };
        if names.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let node = self.next.fetch_add(1, SeqCst);
        names.insert(name.to_vec(), node);
        let made = if directory {
            Node::Directory(BTreeMap::new())
        } else {
            Node::File { data: Arc::default(), stalls: name.starts_with(STALLS.as_bytes()) }
        };
        nodes.insert(node, made);
        Ok(node)
    }

    fn remove(&self, parent: u64, name: &[u8]) -> Result<usize, Errno> {
        // The node stays, for whoever has it open.
        match self.nodes.lock().get_mut(&parent) {
            Some(Node::Directory(names)) => names.remove(name).map(|_| 0).ok_or(Errno::NOENT),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn rename(&self, from: u64, old: &[u8], to: u64, new: &[u8]) -> Result<usize, Errno> {
        let mut nodes = self.nodes.lock();
        let Some(Node::Directory(names)) = nodes.get_mut(&from) else { return Err(Errno::NOTDIR) };
        let node = names.remove(old).ok_or(Errno::NOENT)?;
        let Some(Node::Directory(names)) = nodes.get_mut(&to) else { return Err(Errno::NOTDIR) };
        names.insert(new.to_vec(), node);
        Ok(0)
    }

    fn attr(&self, node: u64) -> Result<[u8; 88], Errno> {
        let (mode, size) = match self.nodes.lock().get(&node) {
            Some(Node::Directory(_)) => (0o040_755u32, 0),
            Some(Node::File { data, .. }) => (0o100_644, data.lock().len() as u64),
            None => return Err(Errno::NOENT),
        };
        let mut attr = [0; 88];
        attr[..8].copy_from_slice(&node.to_le_bytes());
        attr[8..16].copy_from_slice(&size.to_le_bytes());
        attr[16..24].copy_from_slice(&size.div_ceil(512).to_le_bytes());
        attr[60..64].copy_from_slice(&mode.to_le_bytes());
        attr[64..68].copy_from_slice(&1u32.to_le_bytes());
        attr[80..84].copy_from_slice(&4096u32.to_le_bytes());
        Ok(attr)
    }

    fn entry(&self, node: u64) -> Result<Vec<u8>, Errno> {
        let mut out = Vec::with_capacity(128);
        for field in [node, 0, 1, 1, 0] {
            out.extend(field.to_le_bytes());
        }
        out.extend(self.attr(node)?);
        Ok(out)
    }

    fn opened(&self, node: u64) -> Vec<u8> {
        let mut out = node.to_le_bytes().to_vec();
        out.extend(u32::from(self.direct).to_le_bytes());
        out.extend([0; 4]);
        out
    }

    fn list(&self, node: u64, offset: u64, size: usize) -> Result<Vec<u8>, Errno> {
        let nodes = self.nodes.lock();
        let Some(Node::Directory(names)) = nodes.get(&node) else { return Err(Errno::NOTDIR) };
        let mut out = Vec::new();
        for (n, (name, child)) in names.iter().enumerate().skip(offset as usize) {
            let padded = name.len().next_multiple_of(8);
            if out.len() + 24 + padded > size {
                break;
            }
            out.extend(child.to_le_bytes());
            out.extend((n as u64 + 1).to_le_bytes());
            out.extend((name.len() as u32).to_le_bytes());
            out.extend(0u32.to_le_bytes());
            out.extend(name);
            out.resize(out.len() + padded - name.len(), 0);
        }
        Ok(out)
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Errno> {
    bytes.get(at..at + N).and_then(|b| b.try_into().ok()).ok_or(Errno::INVAL)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Errno> {
    number(bytes, at).map(u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Result<u64, Errno> {
    number(bytes, at).map(u64::from_le_bytes)
}

fn name(bytes: &[u8]) -> Result<(&[u8], &[u8]), Errno> {
    let end = bytes.iter().position(|b| *b == 0).ok_or(Errno::INVAL)?;
    Ok((&bytes[..end], &bytes[end + 1..]))
}

fn put(out: &mut [u8], body: &[u8]) -> Result<usize, Errno> {
    out.get_mut(..body.len()).ok_or(Errno::RANGE)?.copy_from_slice(body);
    Ok(body.len())
}

impl Service for Memory {
    fn is_quick(&self, request: &Request<'_>) -> bool {
        u32_at(request.header, 4) != Ok(FSYNC)
            || u64_at(request.header, 16).is_ok_and(|node| {
                !matches!(self.nodes.lock().get(&node), Some(Node::File { stalls: true, .. }))
            })
    }

    fn answer(&self, request: &Request<'_>, out: &mut [u8]) -> Result<usize, Errno> {
        let node = u64_at(request.header, 16)?;
        let (fixed, rest) = (request.fixed, request.rest);
        match u32_at(request.header, 4)? {
            // LOOKUP
            1 => {
                let name = name(rest)?.0;
                assert_ne!(name, PANICS.as_bytes(), "asked to panic");
                put(out, &self.entry(self.child(node, name)?)?)
            }
            // GETATTR, SETATTR (of which only the size is known)
            op @ (3 | 4) => {
                if op == 4 && u32_at(fixed, 0)? & 8 != 0 {
                    self.file(node)?.lock().resize(u64_at(fixed, 16)? as usize, 0);
                }
                let mut body = [0; 104];
                body[16..].copy_from_slice(&self.attr(node)?);
                put(out, &body)
            }
            // MKDIR
            9 => put(out, &self.entry(self.make(node, name(rest)?.0, true)?)?),
            // UNLINK, RMDIR
            10 | 11 => self.remove(node, name(rest)?.0),
            // RENAME, RENAME2
            12 | 45 => {
                let (old, rest) = name(rest)?;
                self.rename(node, old, u64_at(fixed, 0)?, name(rest)?.0)
            }
            // OPEN, OPENDIR
            14 | 27 => put(out, &self.opened(node)),
            // READ
            15 => {
                let (offset, size) = (u64_at(fixed, 8)? as usize, u32_at(fixed, 16)? as usize);
                let data = self.file(node)?;
                let data = data.lock();
                let all = data.get(offset..).unwrap_or_default();
                put(out, &all[..size.min(all.len())])
            }
            WRITE => {
                let (offset, size) = (u64_at(fixed, 8)? as usize, u32_at(fixed, 16)?);
                if size as usize != rest.len() {
                    return Err(Errno::INVAL);
                }
                let data = self.file(node)?;
                let mut data = data.lock();
                if data.len() < offset + rest.len() {
                    data.resize(offset + rest.len(), 0);
                }
                data[offset..offset + rest.len()].copy_from_slice(rest);
                put(out, &u64::from(size).to_le_bytes())
            }
            // STATFS
            17 => put(out, &[0; 80]),
            FSYNC => {
                if !self.is_quick(request) {
                    self.stall();
                }
                self.sync.map_or(Ok(0), Err)
            }
            // RELEASE, RELEASEDIR, FLUSH, FSYNCDIR
            18 | 29 | 25 | 30 => Ok(0),
            // READDIR
            28 => put(out, &self.list(node, u64_at(fixed, 8)?, u32_at(fixed, 16)? as usize)?),
            // CREATE
            35 => {
                let made = self.make(node, name(rest)?.0, false)?;
                let mut body = self.entry(made)?;
                body.extend(self.opened(made));
                put(out, &body)
            }
            _ => Err(Errno::NOSYS),
        }
    }
}
