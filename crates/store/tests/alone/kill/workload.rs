//! What the killed writer does, and what must be found afterwards.
//!
//! Writer and checker draw the same operations from the same seed, so an acknowledgement needs to
//! carry nothing but a number. Each thread of the writer has files of its own and, in a file that
//! all share, blocks of its own; so the state of its files after `n` acknowledged operations is
//! known, and at most one operation, number `n`, was under way.
//!
//! Of that operation may be found: per block the old or the new version (data), per 8-byte word
//! (redo), all or nothing (batches and everything about names and sizes).

use super::place;
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use tiersmith_store::{AttachedHome, Error, OpenMode};

/// Threads of the writer.
pub(crate) const THREADS: usize = 3;
/// Blocks each thread has in the shared file.
pub(crate) const SHARED_BLOCKS: u64 = 24;
pub(crate) const SHARED_BLOCK: usize = 8192;
pub(crate) const SHARED: &str = "shared.d8";
const DATA_MAX: u64 = 160 << 10;
const REDO_MAX: u64 = 128 << 10;

/// One call of a writer. Names are those of the thread's own files.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Makes the file when it is missing.
    Write {
        name: String,
        at: u64,
        len: usize,
    },
    /// Whole blocks, all or none; makes the file when it is missing.
    Batch {
        name: String,
        blocks: Vec<u64>,
    },
    Append {
        name: String,
        len: usize,
    },
    Resize {
        name: String,
        size: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    Link {
        from: String,
        to: String,
    },
    Unlink {
        name: String,
    },
    Shared {
        blocks: Vec<u64>,
    },
    /// None of these changes what a reader sees.
    Check {
        name: String,
    },
    Destage {
        name: String,
    },
    Evict {
        name: Option<String>,
    },
    Flush,
    Pin {
        name: String,
        on: bool,
    },
    Grow,
}

/// The block size that the profile gives a name.
pub(crate) fn block_of(name: &str) -> usize {
    match name.rsplit('.').next() {
        Some("d8") => 8192,
        Some("d16") => 16384,
        _ => 4096,
    }
}

/// A thread's names; two of each kind, so that they can replace each other.
pub(crate) fn names(thread: usize) -> [String; 6] {
    ["a.d8", "b.d8", "c.d4", "d.d16", "e.redo", "f.redo"].map(|n| format!("t{thread}{n}"))
}

/// What one thread's files hold. Two names of one file have one number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model {
    thread: usize,
    names: BTreeMap<String, u64>,
    files: BTreeMap<u64, Vec<u8>>,
    shared: BTreeMap<u64, Vec<u8>>,
    next: u64,
}

impl Model {
    /// Reads what is there. Hard links are told apart by the inode number.
    pub(crate) fn found(attached: &AttachedHome, thread: usize) -> Self {
        let mut model = Model { thread, ..Model::default() };
        let mut by_inode = BTreeMap::new();
        for name in names(thread) {
            let Ok(stat) = attached.stat(&name) else { continue };
            let id = *by_inode.entry(stat.ino).or_insert(model.next);
            if id == model.next {
                model.next += 1;
                let bytes = place::read(attached, &name);
                assert_eq!(
                    stat.size,
                    bytes.len() as u64,
                    "{name}: stat and the open file say different sizes"
                );
                model.files.insert(id, bytes);
            }
            model.names.insert(name, id);
        }
        let shared = place::read(attached, SHARED);
        for n in 0..SHARED_BLOCKS {
            let at = shared_at(thread, n) as usize;
            model.shared.insert(n, shared[at..at + SHARED_BLOCK].to_vec());
        }
        model
    }

    pub(crate) fn contents(&self, name: &str) -> Option<&[u8]> {
        Some(&self.files[self.names.get(name)?])
    }

    pub(crate) fn name_list(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    fn file(&mut self, name: &str) -> &mut Vec<u8> {
        if !self.names.contains_key(name) {
            self.names.insert(name.into(), self.next);
            self.next += 1;
        }
        self.files.entry(self.names[name]).or_default()
    }

    fn forget(&mut self, name: &str) {
        if let Some(id) = self.names.remove(name)
            && !self.names.values().any(|n| *n == id)
        {
            self.files.remove(&id);
        }
    }

    /// Draws the next operation.
    pub(crate) fn draw(&self, rng: &mut Rng) -> Op {
        let all = names(self.thread);
        let data = all[rng.usize(..4)].clone();
        let redo = all[4 + rng.usize(..2)].clone();
        let any = all[rng.usize(..6)].clone();
        let pair = [[0, 1], [1, 0], [4, 5], [5, 4]][rng.usize(..4)];
        let (from, to) = (all[pair[0]].clone(), all[pair[1]].clone());
        let bytes = block_of(&data) as u64;
        match rng.u32(..100) {
            0..24 => Op::Write {
                at: rng.u64(..DATA_MAX / bytes) * bytes,
                len: bytes as usize,
                name: data,
            },
            24..34 => Op::Write {
                at: rng.u64(..DATA_MAX - 20_000),
                len: rng.usize(1..20_000),
                name: data,
            },
            34..46 => {
                let most = if rng.u32(..8) == 0 { DATA_MAX / bytes } else { 6 };
                let mut blocks: Vec<u64> = (0..DATA_MAX / bytes).collect();
                rng.shuffle(&mut blocks);
                blocks.truncate(rng.usize(1..=most as usize));
                Op::Batch { name: data, blocks }
            }
            46..64 => {
                Op::Append { len: [512, 512, 512, 40, 1000, 5000][rng.usize(..6)], name: redo }
            }
            64..70 => Op::Resize { size: rng.u64(..DATA_MAX), name: any },
            70..74 => Op::Rename { from, to },
            74..76 => Op::Link { from, to },
            76..79 => Op::Unlink { name: any },
            79..89 => {
                let mut blocks: Vec<u64> = (0..SHARED_BLOCKS).collect();
                rng.shuffle(&mut blocks);
                blocks.truncate(if rng.bool() { 1 } else { rng.usize(2..6) });
                Op::Shared { blocks }
            }
            89..92 => Op::Check { name: any },
            92..94 => Op::Destage { name: any },
            94..97 => Op::Evict { name: rng.bool().then_some(any) },
            97 => Op::Flush,
            98 => Op::Pin { name: all[2].clone(), on: rng.bool() },
            _ => Op::Grow,
        }
    }

    /// Does to the model what [`perform`] does to the store.
    pub(crate) fn apply(&mut self, op: &Op, tag: u64) {
        match op {
            Op::Write { name, at, len } => {
                let data = place::pattern(tag, *at, *len);
                put(self.file(name), *at as usize, &data);
            }
            Op::Batch { name, blocks } => {
                let bytes = block_of(name);
                for block in blocks {
                    let at = block * bytes as u64;
                    put(self.file(name), at as usize, &place::pattern(tag, at, bytes));
                }
            }
            Op::Append { name, len } => {
                let file = self.file(name);
                let at = append_at(file.len() as u64);
                put(file, at as usize, &place::pattern(tag, at, *len));
            }
            Op::Resize { name, size } if self.names.contains_key(name) => {
                self.file(name).resize(*size as usize, 0);
            }
            Op::Rename { from, to } => {
                if let Some(id) = self.names.get(from).copied()
                    && self.names.get(to) != Some(&id)
                {
                    self.forget(to);
                    self.names.remove(from);
                    self.names.insert(to.clone(), id);
                }
            }
            Op::Link { from, to } => {
                if let Some(id) = self.names.get(from).copied()
                    && !self.names.contains_key(to)
                {
                    self.names.insert(to.clone(), id);
                }
            }
            Op::Unlink { name } => self.forget(name),
            Op::Shared { blocks } => {
                for n in blocks {
                    let data = place::pattern(tag, shared_at(self.thread, *n), SHARED_BLOCK);
                    self.shared.insert(*n, data);
                }
            }
            _ => {}
        }
    }

    /// Whether `found` is what may be there when `op` was under way between `self` and `after`.
    pub(crate) fn allows(&self, after: &Model, op: &Op, found: &Model) -> Result<(), String> {
        let identities = |m: &Model| -> Vec<(String, BTreeSet<String>)> {
            let same = |id: &u64| {
                m.names.iter().filter(|(_, i)| *i == id).map(|(n, _)| n.clone()).collect()
            };
            m.names.iter().map(|(n, id)| (n.clone(), same(id))).collect()
        };
        let (old, new, now) = (identities(self), identities(after), identities(found));
        if now != old && now != new {
            return Err(format!("names and links are {now:?}, neither {old:?} nor {new:?}"));
        }
        let base = if now == new { after } else { self };
        for (name, id) in &found.names {
            let bytes = &found.files[id];
            let (old, new) =
                (self.contents(name).unwrap_or(&[]), after.contents(name).unwrap_or(&[]));
            let verdict = match op {
                Op::Write { name: n, .. } if self.same(after, n, name) => {
                    per_unit(old, new, bytes, block_of(n), true)
                }
                Op::Append { name: n, .. } if self.same(after, n, name) => {
                    per_unit(old, new, bytes, 8, false)
                }
                Op::Batch { name: n, .. } if self.same(after, n, name) => whole(old, new, bytes),
                Op::Resize { name: n, .. } if self.same(after, n, name) => whole(old, new, bytes),
                _ => whole(
                    base.contents(name).unwrap_or(&[]),
                    base.contents(name).unwrap_or(&[]),
                    bytes,
                ),
            };
            verdict.map_err(|why| format!("{name}: {why}"))?;
        }
        let mut versions = BTreeSet::new();
        for (n, block) in &found.shared {
            let (old, new) = (&self.shared[n], &after.shared[n]);
            if block != old && block != new {
                return Err(format!(
                    "{SHARED}: block {n} of thread {} {}",
                    self.thread,
                    difference(old, block)
                ));
            }
            if old != new {
                versions.insert(block == new);
            }
        }
        if versions.len() > 1 {
            return Err(format!("{SHARED}: part of a batch is there and part is not"));
        }
        Ok(())
    }

    /// Whether the name `other` is another name of the file called `name`, or that name.
    fn same(&self, after: &Model, name: &str, other: &str) -> bool {
        name == other || after.names.get(name).is_some_and(|id| after.names.get(other) == Some(id))
    }
}

fn put(file: &mut Vec<u8>, at: usize, data: &[u8]) {
    if file.len() < at + data.len() {
        file.resize(at + data.len(), 0);
    }
    file[at..at + data.len()].copy_from_slice(data);
}

/// Where an append goes: at the end, or, when the file is long enough, over the beginning, as a
/// recycled redo file is written.
fn append_at(len: u64) -> u64 {
    if len < REDO_MAX { len } else { len % 4096 * 16 }
}

fn shared_at(thread: usize, n: u64) -> u64 {
    // Neighbouring blocks belong to different threads.
    (n * THREADS as u64 + thread as u64) * SHARED_BLOCK as u64
}

/// The size of the shared file.
pub(crate) fn shared_size() -> u64 {
    SHARED_BLOCKS * THREADS as u64 * SHARED_BLOCK as u64
}

fn whole(old: &[u8], new: &[u8], found: &[u8]) -> Result<(), String> {
    if found == old || found == new {
        return Ok(());
    }
    let near = if found.len() == new.len() { new } else { old };
    Err(format!(
        "{} bytes long (before {}, after {}) {}",
        found.len(),
        old.len(),
        new.len(),
        difference(near, found)
    ))
}

/// Each `unit` bytes are old or new. `size_last`: the new size is there only when all new units
/// are.
fn per_unit(
    old: &[u8],
    new: &[u8],
    found: &[u8],
    unit: usize,
    size_last: bool,
) -> Result<(), String> {
    if found.len() != old.len() && found.len() != new.len() {
        return Err(format!(
            "{} bytes long, before {}, after {}",
            found.len(),
            old.len(),
            new.len()
        ));
    }
    if size_last && found.len() == new.len() && old.len() != new.len() {
        return whole(new, new, found);
    }
    let padded = |bytes: &[u8], from: usize, len: usize| {
        let mut part = vec![0; len];
        let has = bytes.len().saturating_sub(from).min(len);
        part[..has].copy_from_slice(&bytes[from.min(bytes.len())..from.min(bytes.len()) + has]);
        part
    };
    for (n, part) in found.chunks(unit).enumerate() {
        let from = n * unit;
        if part != padded(old, from, part.len()) && part != padded(new, from, part.len()) {
            return Err(format!("the {unit} bytes at {from} are neither old nor new"));
        }
    }
    Ok(())
}

fn difference(expected: &[u8], found: &[u8]) -> String {
    let at = expected.iter().zip(found).position(|(a, b)| a != b);
    match at {
        Some(at) => {
            let zero = found[at..].iter().take(64).all(|b| *b == 0);
            format!("differs first at byte {at}{}", if zero { " (zeros there)" } else { "" })
        }
        None => "differs in length".into(),
    }
}

/// What `op` number `n` of a thread writes.
pub(crate) fn tag(seed: u64, thread: usize, n: u64) -> u64 {
    place::mix(seed ^ (thread as u64) << 56 ^ n << 8)
}

/// Where a thread's operations are drawn from.
pub(crate) fn rng(seed: u64, thread: usize) -> Rng {
    Rng::with_seed(place::mix(seed.wrapping_add(thread as u64 + 1)))
}

/// Does `op` to the store; returns when it is acknowledged.
pub(crate) fn perform(
    attached: &AttachedHome,
    model: &Model,
    op: &Op,
    tag: u64,
) -> Result<(), Error> {
    let exists = |name: &String| model.names.contains_key(name);
    match op {
        Op::Write { name, at, len } => {
            attached.open(name, OpenMode::CREATE)?.write(*at, &place::pattern(tag, *at, *len))
        }
        Op::Batch { name, blocks } => {
            let bytes = block_of(name);
            let at = |block: &u64| block * bytes as u64;
            let data: Vec<Vec<u8>> =
                blocks.iter().map(|b| place::pattern(tag, at(b), bytes)).collect();
            let batch: Vec<(u64, &[u8])> =
                blocks.iter().zip(&data).map(|(b, d)| (at(b), &d[..])).collect();
            attached.open(name, OpenMode::CREATE)?.write_batch(&batch)
        }
        Op::Append { name, len } => {
            let file = attached.open(name, OpenMode::CREATE)?;
            let at = append_at(file.len()?);
            file.write(at, &place::pattern(tag, at, *len))
        }
        Op::Resize { name, size } if exists(name) => {
            attached.open(name, OpenMode::WRITE)?.truncate(*size)
        }
        Op::Rename { from, to } if exists(from) => attached.rename(from, to),
        Op::Link { from, to } if exists(from) && !exists(to) => attached.link(from, to),
        Op::Unlink { name } if exists(name) => attached.unlink(name),
        Op::Shared { blocks } => {
            let at = |n: &u64| shared_at(model.thread, *n);
            let file = attached.open(SHARED, OpenMode::WRITE)?;
            let data: Vec<Vec<u8>> =
                blocks.iter().map(|n| place::pattern(tag, at(n), SHARED_BLOCK)).collect();
            match &data[..] {
                [one] => file.write(at(&blocks[0]), one),
                _ => file.write_batch(
                    &blocks.iter().zip(&data).map(|(n, d)| (at(n), &d[..])).collect::<Vec<_>>(),
                ),
            }
        }
        Op::Check { name } if exists(name) => {
            let found = place::read(attached, name);
            let expected = model.contents(name).unwrap_or(&[]);
            assert!(
                found == expected,
                "{name} while running: {:?}",
                whole(expected, expected, &found)
            );
            Ok(())
        }
        Op::Destage { name } if exists(name) => attached.destage(Some(name.as_ref())).map(|_| ()),
        Op::Evict { name: Some(name) } if exists(name) => {
            attached.evict(Some(name.as_ref()), 0).map(|_| ())
        }
        Op::Evict { name: None } => attached.evict(None, 16).map(|_| ()),
        Op::Flush => attached.flush_all().map(|_| ()),
        Op::Pin { name, on: true } if exists(name) => match attached.pin(name) {
            Err(Error::TierFull { .. }) => Ok(()),
            other => other,
        },
        Op::Pin { name, on: false } if exists(name) => attached.unpin(name),
        Op::Grow => attached.grow("fast").map(|_| ()),
        _ => Ok(()),
    }
}
