//! Random scripts: files to begin with and operations on them, drawn from a seed.

use super::{Op, block_size, class};
use std::collections::BTreeMap;
use std::path::Path;
use tiersmith_store::FileClass;

/// A write, for scripts that are written.
pub(crate) fn write(name: &'static str, at: u64, len: usize) -> Op {
    Op::Write { name, at, len }
}

/// Files to begin with, and operations, drawn from a seed. Every operation is legal when its turn
/// comes.
pub(crate) fn script(seed: u64, operations: usize) -> (Vec<(&'static str, usize)>, Vec<Op>) {
    const NAMES: [&str; 5] = ["a.db", "b.big", "r.redo", "c.db", "s.redo"];
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut files: Vec<(&'static str, usize)> = vec![
        ("a.db", rng.usize(0..40000)),
        ("b.big", rng.usize(0..60000)),
        ("r.redo", rng.usize(0..6000)),
    ];
    files[2].1 = if rng.bool() { 0 } else { files[2].1 };
    let mut sizes: BTreeMap<&'static str, u64> =
        files.iter().map(|(n, s)| (*n, *s as u64)).collect();
    let mut links: BTreeMap<&'static str, u32> = sizes.keys().map(|n| (*n, 0)).collect();
    let mut ops = Vec::new();
    let mut next_link = 1;
    while ops.len() < operations {
        let names: Vec<&'static str> = sizes.keys().copied().collect();
        let Some(name) = names.get(rng.usize(0..names.len().max(1))).copied() else {
            ops.push(Op::Create { name: "a.db" });
            sizes.insert("a.db", 0);
            links.insert("a.db", 0);
            continue;
        };
        let size = sizes[name];
        let block = block_size(name) as u64;
        let blocks = (size / block).max(1);
        let grow = |sizes: &mut BTreeMap<&'static str, u64>,
                    links: &BTreeMap<&'static str, u32>,
                    to: u64| {
            let family = links[name];
            for (n, s) in sizes.iter_mut() {
                if *n == name || (family != 0 && links[n] == family) {
                    *s = to;
                }
            }
        };
        match rng.u32(0..112) {
            0..40 => {
                let (at, len) = match rng.u32(0..5) {
                    0 => (rng.u64(0..size + 3000), rng.usize(1..3000)),
                    1 => (size, rng.usize(1..2 * block as usize)),
                    _ => (rng.u64(0..blocks) * block, block as usize),
                };
                if at + len as u64 > 90_000 {
                    continue;
                }
                ops.push(Op::Write { name, at, len });
                grow(&mut sizes, &links, size.max(at + len as u64));
            }
            40..52 if class(name) == FileClass::Data => {
                let mut chosen: Vec<u64> =
                    (0..rng.u64(1..4)).map(|_| rng.u64(0..blocks + 1)).collect();
                chosen.sort_unstable();
                chosen.dedup();
                let end = (chosen.last().copied().unwrap_or(0) + 1) * block;
                if end > 90_000 {
                    continue;
                }
                ops.push(Op::Batch { name, blocks: chosen });
                grow(&mut sizes, &links, size.max(end));
            }
            52..60 => {
                let to = rng.u64(0..size + 5000);
                ops.push(Op::Truncate { name, size: to });
                grow(&mut sizes, &links, to);
            }
            60..64 => {
                let to = NAMES[rng.usize(0..NAMES.len())];
                let same_kind = Path::new(to).extension() == Path::new(name).extension();
                if to == name
                    || !same_kind
                    || (links[name] != 0 && links.get(to) == Some(&links[name]))
                {
                    continue;
                }
                ops.push(Op::Rename { from: name, to });
                sizes.remove(name);
                let family = links.remove(name).unwrap_or(0);
                sizes.insert(to, size);
                links.insert(to, family);
            }
            64..67 => {
                ops.push(Op::Unlink { name });
                sizes.remove(name);
                links.remove(name);
            }
            67..69 => {
                let to = NAMES[rng.usize(0..NAMES.len())];
                if sizes.contains_key(to)
                    || Path::new(to).extension() != Path::new(name).extension()
                {
                    continue;
                }
                ops.push(Op::Link { from: name, to });
                if links[name] == 0 {
                    links.insert(name, next_link);
                    next_link += 1;
                }
                let family = links[name];
                sizes.insert(to, size);
                links.insert(to, family);
            }
            69..73 => {
                let to = NAMES[rng.usize(0..NAMES.len())];
                if sizes.contains_key(to) || sizes.len() >= 5 {
                    continue;
                }
                ops.push(Op::Create { name: to });
                sizes.insert(to, 0);
                links.insert(to, 0);
            }
            73..79 => ops.push(Op::Read { name }),
            79..85 => ops.push(Op::Destage { name }),
            85..89 => ops.push(Op::Evict),
            89..94 => ops.push(Op::Background),
            94..95 => ops.push(Op::Grow),
            95..97 => ops.push(Op::Reopen),
            97..98 => {
                ops.push(Op::Detach);
                ops.push(Op::Attach);
            }
            98..106 => {
                let (at, len) = (rng.u64(0..size + 1), rng.u64(1..3 * block));
                let whole = rng.bool();
                let (at, len) = if whole {
                    (at / block * block, len.next_multiple_of(block))
                } else {
                    (at, len)
                };
                if at + len > 90_000 {
                    continue;
                }
                if rng.bool() {
                    ops.push(Op::Punch { name, at, len });
                } else {
                    ops.push(Op::Zero { name, at, len });
                    grow(&mut sizes, &links, size.max(at + len));
                }
            }
            106..108 => ops.push(Op::Allocate { name, len: rng.u64(1..90_000) }),
            108..110 => ops.push(Op::SetTime { name }),
            110..112 => {
                let to = NAMES[rng.usize(0..NAMES.len())];
                let same_kind = Path::new(to).extension() == Path::new(name).extension();
                if to == name || !same_kind || !sizes.contains_key(to) {
                    continue;
                }
                ops.push(Op::Exchange { from: name, to });
                let (a, b) = ((sizes[name], links[name]), (sizes[to], links[to]));
                sizes.extend([(name, b.0), (to, a.0)]);
                links.extend([(name, b.1), (to, a.1)]);
            }
            _ => {}
        }
    }
    (files, ops)
}
