//! What an operation makes of the model's files, and how much of it a cut may leave.

use super::*;

/// What a cut in an operation leaves that is written through to home: any sectors of it, here
/// looked at by words.
pub(super) fn through(grain: Grain) -> Grain {
    match grain {
        Grain::Whole => Grain::Whole,
        Grain::Block(_) | Grain::Word => Grain::Word,
        Grain::Ranged(_) => Grain::Word,
    }
}

fn in_parts(name: &str) -> Grain {
    match class(name) {
        FileClass::Data => Grain::Block(block_size(name)),
        _ => Grain::Word,
    }
}

/// The model's answer to an operation.
pub(super) fn apply(before: &Files, n: usize, op: &Op) -> (Files, Grain) {
    let mut files = before.clone();
    let mut grain = Grain::Whole;
    let edit = |files: &mut Files, name: &str, f: &mut dyn FnMut(&mut Vec<u8>)| {
        let id = files.id(name).unwrap_or_else(|| panic!("script: no file {name}"));
        f(Arc::make_mut(files.bytes.get_mut(&id).expect("named files have bytes")));
    };
    match op {
        Op::Names(op) => {
            return names::same_as(op).map_or((files, grain), |op| apply(before, n, &op));
        }
        Op::Create { name } => {
            let id = 100 + n;
            files.names.insert(name, id);
            files.bytes.insert(id, Arc::default());
        }
        Op::Write { name, at, len } | Op::KernelWrite { name, at, len } => {
            edit(&mut files, name, &mut |bytes| put(bytes, *at, &pattern(n, *at, *len)));
            grain = in_parts(name);
        }
        Op::Batch { name, blocks } => {
            let size = block_size(name) as u64;
            edit(&mut files, name, &mut |bytes| {
                for b in blocks {
                    put(bytes, b * size, &pattern(n, b * size, size as usize));
                }
            });
        }
        Op::Truncate { name, size } => {
            edit(&mut files, name, &mut |bytes| bytes.resize(*size as usize, 0))
        }
        Op::Exchange { from, to } => {
            let ids = (
                files.id(from).expect("script: both are there"),
                files.id(to).expect("script: both are there"),
            );
            files.names.insert(from, ids.1);
            files.names.insert(to, ids.0);
        }
        Op::Punch { name, at, len } => {
            edit(&mut files, name, &mut |bytes| {
                let end = (at + len).min(bytes.len() as u64);
                if *at < end {
                    bytes[*at as usize..end as usize].fill(0);
                }
            });
            grain = in_parts(name);
        }
        Op::Zero { name, at, len } => {
            // Zeros first, then the size.
            edit(&mut files, name, &mut |bytes| put(bytes, *at, &vec![0; *len as usize]));
            grain =
                Grain::Ranged(if class(name) == FileClass::Data { block_size(name) } else { 8 });
        }
        Op::Rename { from, to } => {
            if let Some(id) = files.names.remove(from) {
                files.names.insert(to, id);
            }
            files.forget_unnamed();
        }
        Op::Link { from, to } => {
            let id = files.id(from).expect("script: the file is there");
            files.names.insert(to, id);
        }
        Op::Unlink { name } => {
            files.names.remove(name);
            files.forget_unnamed();
        }
        _ => {}
    }
    (files, grain)
}

fn put(bytes: &mut Vec<u8>, at: u64, data: &[u8]) {
    let end = at as usize + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[at as usize..end].copy_from_slice(data);
}
