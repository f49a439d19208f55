//! A window on the files of an attached database, for SQLite's own tests:
//! `PRAGMA tiersmith_inspect`.
//!
//! Those tests look at a database, its WAL and its journal by name: how long is it, what are the
//! bytes at this offset, change them, copy it. Of an attached database these bytes are on the tier
//! and in its directory, so the tests' file commands ask here instead (`tests/suite/with_vfs.tcl`).
//!
//! It is no interface for programs: it takes no locks and writes past SQLite. It answers only while
//! TIERSMITH_SQLITE_FAST is set, the variable that attaches the tests' databases.
//!
//! | question | answer |
//! |---|---|
//! | `size ROLE` | bytes, or `none` when there is no such file |
//! | `read ROLE OFFSET BYTES` | the bytes in hexadecimal, fewer at the end of the file |
//! | `write ROLE OFFSET HEX` | the number of bytes written; the file is made if it is not there |
//! | `truncate ROLE SIZE` | `ok` |
//! | `delete ROLE` | `ok`; WAL and journal only |
//!
//! ROLE is `main`, `wal` or `journal`.

use crate::database::User;
use crate::place::Role;
use crate::wal::Wal;
use tiersmith_store::{File, OpenMode, Result};

/// The environment variable that attaches each database the tests open, and lets this answer.
pub(crate) const FAST_DIRECTORY: &str = "TIERSMITH_SQLITE_FAST";
/// No test reads more at once.
const READ_MAX: u64 = 256 << 20;

/// One of the three files, as SQLite sees it.
enum Seen<'a> {
    Main(&'a File),
    Wal(Wal, &'a User),
    Journal(&'a User),
}

/// The answer to `question`; `None` when this is not a run of SQLite's tests.
pub(crate) fn answer(
    question: &str,
    user: &User,
    main: &File,
) -> Option<std::result::Result<String, String>> {
    std::env::var_os(FAST_DIRECTORY)?;
    let words: Vec<&str> = question.split_whitespace().collect();
    let answered = match ask(&words, user, main) {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(e)) => Err(e.to_string()),
        None => Err(format!("the question {question:?} cannot be read")),
    };
    Some(answered)
}

fn ask(words: &[&str], user: &User, main: &File) -> Option<Result<String>> {
    let (verb, role) = (*words.first()?, role(words.get(1)?)?);
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    let mut seen = match Seen::find(role, user, main, verb == "write") {
        Ok(Some(seen)) => seen,
        Ok(None) => return Some(Ok("none".to_owned())),
        Err(e) => return Some(Err(e)),
    };
    let done = match verb {
        "size" => seen.size().map(|size| size.to_string()),
        "read" => {
            let (offset, most) = (number(2)?, number(3)?.min(READ_MAX));
            seen.read(offset, most).map(|bytes| bytes.iter().map(|b| format!("{b:02X}")).collect())
        }
        "write" => {
            let bytes = unhex(words.get(3)?)?;
            seen.write(number(2)?, &bytes).map(|()| bytes.len().to_string())
        }
        "truncate" => seen.truncate(number(2)?).map(|()| "ok".to_owned()),
        "delete" if role != Role::Main => user.delete(role).map(|_| "ok".to_owned()),
        _ => return None,
    };
    Some(done)
}

fn role(word: &str) -> Option<Role> {
    match word {
        "main" => Some(Role::Main),
        "wal" => Some(Role::Wal),
        "journal" => Some(Role::Journal),
        _ => None,
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pairs = digits.is_ascii() && digits.len().is_multiple_of(2);
    pairs.then_some(())?;
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

impl<'a> Seen<'a> {
    /// The file, if it is there, or made.
    fn find(role: Role, user: &'a User, main: &'a File, make: bool) -> Result<Option<Self>> {
        let place = user.place();
        Ok(match role {
            Role::Main => Some(Self::Main(main)),
            Role::Wal if make || place.files.has(role)? => {
                Some(Self::Wal(Wal::new(place.files.open(role, OpenMode::CREATE)?), user))
            }
            Role::Wal => None,
            Role::Journal => {
                user.shared().journal.open(&place.files, make)?.map(|()| Self::Journal(user))
            }
        })
    }

    fn size(&self) -> Result<u64> {
        match self {
            Self::Main(file) => file.len(),
            Self::Wal(wal, user) => wal.size(&user.shared().wal),
            Self::Journal(user) => Ok(user.shared().journal.size()),
        }
    }

    fn read(&self, offset: u64, most: u64) -> Result<Vec<u8>> {
        let there = self.size()?.saturating_sub(offset).min(most);
        let mut bytes = vec![0; there as usize];
        let got = match self {
            Self::Main(file) => file.read(offset, &mut bytes)?,
            Self::Wal(wal, user) => wal.read(&user.shared().wal, offset, &mut bytes)?,
            Self::Journal(user) => user.shared().journal.read(offset, &mut bytes)?,
        };
        bytes.truncate(got);
        Ok(bytes)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Main(file) => file.write(offset, bytes),
            Self::Wal(wal, user) => {
                let frames = &user.shared().wal;
                wal.sync(frames)?;
                wal.write(frames, offset, bytes)?;
                wal.sync(frames)
            }
            Self::Journal(user) => {
                user.shared().journal.write(offset, bytes)?;
                user.shared().journal.sync()
            }
        }
    }

    fn truncate(&mut self, size: u64) -> Result<()> {
        match self {
            Self::Main(file) => file.truncate(size),
            Self::Wal(wal, user) => wal.truncate(&user.shared().wal, size),
            Self::Journal(user) => user.shared().journal.truncate(size),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_is_read_whole_or_not_at_all() {
        assert_eq!(unhex("00fF10"), Some(vec![0, 255, 16]));
        assert_eq!(unhex(""), Some(Vec::new()));
        for bad in ["0", "0g", "é0"] {
            assert_eq!(unhex(bad), None, "{bad}");
        }
    }
}
