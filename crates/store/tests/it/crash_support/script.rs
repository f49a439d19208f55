//! Random scripts: files to begin with and operations on them, drawn from a seed.

use super::{Op, block_size, class};
use std::collections::BTreeMap;
use std::path::Path;
use tiersmith_store::FileClass;

/// A write, for scripts that are written.
pub(crate) fn write(name: &'static str, at: u64, len: usize) -> Op {
    Op::Write { name, at, len }
}

const NAMES: [&str; 5] = ["a.db", "b.big", "r.redo", "c.db", "s.redo"];

/// Files to begin with, and operations, drawn from a seed. Every operation is legal when its turn
/// comes.
pub(crate) fn script(seed: u64, operations: usize) -> (Vec<(&'static str, usize)>, Vec<Op>) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut files: Vec<(&'static str, usize)> = vec![
        ("a.db", rng.usize(0..40000)),
        ("b.big", rng.usize(0..60000)),
        ("r.redo", rng.usize(0..6000)),
    ];
    files[2].1 = if rng.bool() { 0 } else { files[2].1 };
    let sizes: BTreeMap<&'static str, u64> = files.iter().map(|(n, s)| (*n, *s as u64)).collect();
    let links = sizes.keys().map(|n| (*n, 0)).collect();
    let mut drawing = Drawing { rng, sizes, links, next_link: 1, ops: Vec::new() };
    while drawing.ops.len() < operations {
        drawing.draw();
    }
    (files, drawing.ops)
}

/// A script that is being drawn.
struct Drawing {
    rng: fastrand::Rng,
    sizes: BTreeMap<&'static str, u64>,
    /// Names of one file have the same number, other than 0.
    links: BTreeMap<&'static str, u32>,
    next_link: u32,
    ops: Vec<Op>,
}

impl Drawing {
    /// An operation, or none if the one that was drawn is not legal now.
    fn draw(&mut self) {
        let names: Vec<&'static str> = self.sizes.keys().copied().collect();
        let Some(name) = names.get(self.rng.usize(0..names.len().max(1))).copied() else {
            return self.create("a.db");
        };
        let size = self.sizes[name];
        match self.rng.u32(0..112) {
            0..40 => self.write(name),
            40..52 if class(name) == FileClass::Data => self.batch(name),
            52..60 => {
                let to = self.rng.u64(0..size + 5000);
                self.ops.push(Op::Truncate { name, size: to });
                self.resize(name, to);
            }
            60..64 => self.rename(name),
            64..67 => {
                self.ops.push(Op::Unlink { name });
                self.sizes.remove(name);
                self.links.remove(name);
            }
            67..69 => self.link(name),
            69..73 => {
                let to = self.any_name();
                if !self.sizes.contains_key(to) && self.sizes.len() < 5 {
                    self.create(to);
                }
            }
            73..79 => self.ops.push(Op::Read { name }),
            79..85 => self.ops.push(Op::Destage { name }),
            85..89 => self.ops.push(Op::Evict),
            89..94 => self.ops.push(Op::Background),
            94..95 => self.ops.push(Op::Grow),
            95..97 => self.ops.push(Op::Reopen),
            97..98 => {
                self.ops.push(Op::Detach);
                self.ops.push(Op::Attach);
            }
            98..106 => self.clear(name),
            106..108 => {
                let len = self.rng.u64(1..90_000);
                self.ops.push(Op::Allocate { name, len });
            }
            108..110 => self.ops.push(Op::SetTime { name }),
            110..112 => self.exchange(name),
            _ => {}
        }
    }

    fn any_name(&mut self) -> &'static str {
        NAMES[self.rng.usize(0..NAMES.len())]
    }

    /// Sets the size of a file, whatever it is called.
    fn resize(&mut self, name: &'static str, to: u64) {
        let family = self.links[name];
        for (n, s) in self.sizes.iter_mut() {
            if *n == name || (family != 0 && self.links[n] == family) {
                *s = to;
            }
        }
    }

    fn create(&mut self, name: &'static str) {
        self.ops.push(Op::Create { name });
        self.sizes.insert(name, 0);
        self.links.insert(name, 0);
    }

    fn write(&mut self, name: &'static str) {
        let (size, block) = (self.sizes[name], block_size(name) as u64);
        let blocks = (size / block).max(1);
        let (at, len) = match self.rng.u32(0..5) {
            0 => (self.rng.u64(0..size + 3000), self.rng.usize(1..3000)),
            1 => (size, self.rng.usize(1..2 * block as usize)),
            _ => (self.rng.u64(0..blocks) * block, block as usize),
        };
        if at + len as u64 > 90_000 {
            return;
        }
        self.ops.push(Op::Write { name, at, len });
        self.resize(name, size.max(at + len as u64));
    }

    fn batch(&mut self, name: &'static str) {
        let (size, block) = (self.sizes[name], block_size(name) as u64);
        let blocks = (size / block).max(1);
        let mut chosen: Vec<u64> =
            (0..self.rng.u64(1..4)).map(|_| self.rng.u64(0..blocks + 1)).collect();
        chosen.sort_unstable();
        chosen.dedup();
        let end = (chosen.last().copied().unwrap_or(0) + 1) * block;
        if end > 90_000 {
            return;
        }
        self.ops.push(Op::Batch { name, blocks: chosen });
        self.resize(name, size.max(end));
    }

    fn rename(&mut self, name: &'static str) {
        let size = self.sizes[name];
        let to = self.any_name();
        let same_kind = Path::new(to).extension() == Path::new(name).extension();
        if to == name
            || !same_kind
            || (self.links[name] != 0 && self.links.get(to) == Some(&self.links[name]))
        {
            return;
        }
        self.ops.push(Op::Rename { from: name, to });
        self.sizes.remove(name);
        let family = self.links.remove(name).unwrap_or(0);
        self.sizes.insert(to, size);
        self.links.insert(to, family);
    }

    fn link(&mut self, name: &'static str) {
        let size = self.sizes[name];
        let to = self.any_name();
        if self.sizes.contains_key(to) || Path::new(to).extension() != Path::new(name).extension() {
            return;
        }
        self.ops.push(Op::Link { from: name, to });
        if self.links[name] == 0 {
            self.links.insert(name, self.next_link);
            self.next_link += 1;
        }
        let family = self.links[name];
        self.sizes.insert(to, size);
        self.links.insert(to, family);
    }

    /// Punches or zeroes a range.
    fn clear(&mut self, name: &'static str) {
        let (size, block) = (self.sizes[name], block_size(name) as u64);
        let (at, len) = (self.rng.u64(0..size + 1), self.rng.u64(1..3 * block));
        let whole = self.rng.bool();
        let (at, len) =
            if whole { (at / block * block, len.next_multiple_of(block)) } else { (at, len) };
        if at + len > 90_000 {
            return;
        }
        if self.rng.bool() {
            self.ops.push(Op::Punch { name, at, len });
        } else {
            self.ops.push(Op::Zero { name, at, len });
            self.resize(name, size.max(at + len));
        }
    }

    fn exchange(&mut self, name: &'static str) {
        let to = self.any_name();
        let same_kind = Path::new(to).extension() == Path::new(name).extension();
        if to == name || !same_kind || !self.sizes.contains_key(to) {
            return;
        }
        self.ops.push(Op::Exchange { from: name, to });
        let (a, b) = ((self.sizes[name], self.links[name]), (self.sizes[to], self.links[to]));
        self.sizes.extend([(name, b.0), (to, a.0)]);
        self.links.extend([(name, b.1), (to, a.1)]);
    }
}
