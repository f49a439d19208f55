//! LCS: the longest common subsequence of two strings, its length, or where its parts are.

use super::arguments::integer_or_refusal;
use super::strings::value;
use super::{Arguments, Context, Done, Refusal, SYNTAX, word};

/// Cells of the table of lengths, 4 bytes each.
const CELLS_MAX: usize = 1 << 26;

#[derive(Default)]
struct Options {
    only_len: bool,
    places: bool,
    with_len: bool,
    least: u64,
}

impl Options {
    fn read(args: &Arguments<'_>) -> Result<Options, Refusal> {
        let (mut options, mut at) = (Options::default(), 0);
        while let Some(argument) = args.get(at) {
            match word(argument).as_str() {
                "idx" => options.places = true,
                "len" => options.only_len = true,
                "withmatchlen" => options.with_len = true,
                "minmatchlen" if at + 1 < args.len() => {
                    at += 1;
                    options.least = u64::try_from(integer_or_refusal(args[at])?).unwrap_or(0);
                }
                _ => return Err(SYNTAX),
            }
            at += 1;
        }
        if options.places && options.only_len {
            return Err(Refusal::Said(
                "ERR If you want both the length and indexes, please just use IDX.",
            ));
        }
        Ok(options)
    }
}

/// For each two beginnings of the strings, how long the longest common subsequence is.
struct Lengths {
    cells: Vec<u32>,
    width: usize,
}

impl Lengths {
    fn of(one: &[u8], other: &[u8]) -> Option<Lengths> {
        let width = other.len() + 1;
        let count = (one.len() + 1).checked_mul(width).filter(|count| *count <= CELLS_MAX)?;
        let mut all = Lengths { cells: vec![0; count], width };
        for (i, a) in one.iter().enumerate() {
            for (j, b) in other.iter().enumerate() {
                all.cells[(i + 1) * width + j + 1] = match a == b {
                    true => all.at(i, j) + 1,
                    false => all.at(i, j + 1).max(all.at(i + 1, j)),
                };
            }
        }
        Some(all)
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells[i * self.width + j]
    }
}

/// A part that both have: where it begins in each, and how long it is.
#[derive(Clone, Copy)]
struct Part {
    one: usize,
    other: usize,
    len: usize,
}

/// The parts of the longest common subsequence, the last one first.
fn parts(one: &[u8], other: &[u8], lengths: &Lengths) -> Vec<Part> {
    let (mut i, mut j) = (one.len(), other.len());
    let mut parts: Vec<Part> = Vec::new();
    while i > 0 && j > 0 {
        if one[i - 1] == other[j - 1] {
            (i, j) = (i - 1, j - 1);
            match parts.last_mut() {
                Some(last) if last.one == i + 1 && last.other == j + 1 => {
                    *last = Part { one: i, other: j, len: last.len + 1 };
                }
                _ => parts.push(Part { one: i, other: j, len: 1 }),
            }
        } else if lengths.at(i - 1, j) > lengths.at(i, j - 1) {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    parts
}

pub(crate) fn lcs(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let options = Options::read(&args[3..])?;
    let not_strings = |_| Refusal::Said("ERR The specified keys must contain string values");
    let one = value(context, args[1]).map_err(not_strings)?.unwrap_or_default();
    let other = value(context, args[2]).map_err(not_strings)?.unwrap_or_default();
    let lengths = Lengths::of(&one, &other).ok_or(Refusal::Said(
        "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
    ))?;
    let len = u64::from(lengths.at(one.len(), other.len()));
    if options.only_len {
        context.reply.count(len);
        return Ok(());
    }
    let mut parts = parts(&one, &other, &lengths);
    if !options.places {
        let common: Vec<u8> = parts
            .iter()
            .rev()
            .flat_map(|part| &one[part.one..part.one + part.len])
            .copied()
            .collect();
        context.reply.bulk(&common);
        return Ok(());
    }
    parts.retain(|part| part.len as u64 >= options.least);
    context.reply.map(2);
    context.reply.bulk(b"matches");
    context.reply.list(parts.len());
    for part in parts {
        context.reply.list(2 + usize::from(options.with_len));
        for from in [part.one, part.other] {
            context.reply.list(2);
            context.reply.count(from as u64);
            context.reply.count((from + part.len - 1) as u64);
        }
        if options.with_len {
            context.reply.count(part.len as u64);
        }
    }
    context.reply.bulk(b"len");
    context.reply.count(len);
    Ok(())
}
