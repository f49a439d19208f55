//! Redis's append-only files: commands as clients send them, behind a dump or alone, in one file or
//! in parts that a manifest names.
//!
//! The bytes are somebody else's: a command has a limit, a refused one is an error that names it,
//! and only the last file may end in the middle of a command or a transaction, as one of a killed
//! server does; how much of it is left out is said.

use std::io::BufRead;

use crate::command::{Identity, Session, Shared, refusals, step};
use crate::error::Error;
use crate::format::entry::LENGTH_MAX;
use crate::keyspace::Keyspace;
use crate::server::request::{Limits, Next, Request};

/// Bytes of one command.
const COMMAND_MAX: usize = 1 << 30;
/// Bytes of a line that is no command.
const NOTE_MAX: usize = 1024;
/// Commands between two commits.
const BATCH: u64 = 256;

fn damaged(at: u64, why: impl Into<String>) -> Error {
    Error::AppendOnly { at, why: why.into() }
}

/// Executes the commands of a file, which begin at byte `at` of it. Returns how many bytes at the
/// end are of no use, because the file ends within a command or a transaction.
pub(crate) fn replay(
    keys: &mut Keyspace,
    shared: &mut Shared,
    from: &mut impl BufRead,
    mut at: u64,
) -> Result<u64, Error> {
    let mut session = Session::new(0, "file".to_owned(), "file".to_owned(), Identity::unlimited());
    let (mut bytes, mut request, mut count) = (Vec::new(), Request::default(), 0_u64);
    // Where the last whole command, or transaction, ended.
    let mut whole = at;
    loop {
        let more = from.fill_buf().map_err(|e| damaged(at, format!("cannot read on: {e}")))?;
        if more.is_empty() {
            return Ok(at + bytes.len() as u64 - whole);
        }
        bytes.extend_from_slice(more);
        let len = more.len();
        from.consume(len);
        let mut done = 0;
        loop {
            let rest = &bytes[done..];
            match rest.first() {
                // A time, which Redis writes if it is told to.
                Some(b'#') => match rest.iter().position(|byte| *byte == b'\n') {
                    Some(end) if end < NOTE_MAX => done += end + 1,
                    // Redis's are shorter; a longer one would be looked at again with each part.
                    _ if rest.len() >= NOTE_MAX => {
                        let why = format!("a note of more than {NOTE_MAX} bytes");
                        return Err(damaged(at + done as u64, why));
                    }
                    _ => break,
                },
                None => break,
                Some(b'*') => {
                    match request.read(rest, Limits { bulk: LENGTH_MAX, allowed: true }) {
                        Next::Whole(len) => {
                            let mut words: smallvec::SmallVec<[&[u8]; 8]> =
                                smallvec::SmallVec::new();
                            request.arguments(rest, &mut words);
                            execute(keys, shared, &mut session, &words)
                                .map_err(|why| damaged(at + done as u64, why))?;
                            drop(words);
                            done += len;
                            request.reset();
                            if session.multi.is_none() {
                                whole = at + done as u64;
                            }
                            count += 1;
                            if count.is_multiple_of(BATCH) {
                                keys.heap_mut().commit();
                            }
                        }
                        Next::More => break,
                        Next::Wrong(why) => return Err(damaged(at + done as u64, why)),
                    }
                }
                Some(_) => return Err(damaged(at + done as u64, "there is no command")),
            }
        }
        bytes.drain(..done);
        at += done as u64;
        if bytes.len() > COMMAND_MAX {
            return Err(damaged(at, format!("a command of more than {COMMAND_MAX} bytes")));
        }
    }
}

fn execute(
    keys: &mut Keyspace,
    shared: &mut Shared,
    session: &mut Session,
    words: &[&[u8]],
) -> Result<(), String> {
    let Some(name) = words.first() else { return Ok(()) };
    if name.eq_ignore_ascii_case(b"exec") && keys.has_trash() {
        // It cannot look for space in its middle.
        keys.make_space();
    }
    let mut out = Vec::new();
    keys.for_primary = true;
    let done = step(keys, shared, session, words, &mut out);
    keys.for_primary = false;
    if done {
        return Ok(());
    }
    let name = String::from_utf8_lossy(name).to_ascii_uppercase();
    let name: String = name.chars().take(64).collect();
    Err(format!("{} is refused: {}", name.escape_debug(), refusals(&out)))
}

/// The files that a manifest names, in the order in which they count: the base, then what followed.
///
/// # Errors
/// The first line that means nothing, or names a file elsewhere.
pub fn manifest(text: &str) -> Result<Vec<String>, Error> {
    let (mut base, mut others) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong =
            || Error::Configuration(format!("line {number} of the manifest is none: `{line}`"));
        let rest = line.strip_prefix("file ").ok_or_else(wrong)?;
        let (name, rest) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').ok_or_else(wrong)?,
            None => rest.split_once(' ').ok_or_else(wrong)?,
        };
        if name.is_empty() || name.contains(['/', '\\']) {
            return Err(wrong());
        }
        match rest.split_whitespace().collect::<Vec<_>>()[..] {
            ["seq", _, "type", "b"] => base.push(name.to_owned()),
            ["seq", _, "type", "i"] => others.push(name.to_owned()),
            // What a rewrite made unneeded.
            ["seq", _, "type", "h"] => {}
            _ => return Err(wrong()),
        }
    }
    base.extend(others);
    if base.is_empty() {
        return Err(Error::Configuration("the manifest names no file".to_owned()));
    }
    Ok(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_names_its_base_first_and_no_file_elsewhere() {
        let text = "file a.1.incr.aof seq 1 type i\nfile \"a b.base.rdb\" seq 1 type b\nfile x seq \
                    1 type h\n";
        assert_eq!(manifest(text).expect("it is one"), ["a b.base.rdb", "a.1.incr.aof"]);
        for text in ["", "file ../x seq 1 type b", "file x seq 1", "x", "file x seq 1 type q"] {
            assert!(manifest(text).is_err(), "{text}");
        }
    }
}
