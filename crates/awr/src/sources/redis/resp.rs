//! The Redis protocol, as much as asking needs: a command out, one reply in, with limits.
//!
//! Invariants: a reply larger than the limits, or deeper nested, is an error and not memory; no byte makes it panic.

use std::io::{self, BufRead, Read, Write};

/// The largest string of a reply.
const MOST_BYTES: u64 = 16 << 20;
/// The most elements in all lists of a reply together.
const MOST_ELEMENTS: usize = 1 << 18;
/// The deepest nesting.
const DEEPEST: usize = 8;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// Text, simple or bulk; what is not UTF-8 is replaced.
    Text(String),
    /// A number.
    Number(i64),
    /// Nothing.
    Nothing,
    /// Replies in order; a map of RESP3 is its keys and values in turn.
    List(Vec<Reply>),
    /// What the server refused, in its words.
    Refused(String),
}

impl Reply {
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Reply::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn number(&self) -> Option<u64> {
        match self {
            Reply::Number(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    pub(super) fn list(&self) -> &[Reply] {
        match self {
            Reply::List(list) => list,
            _ => &[],
        }
    }
}

/// Sends a command.
pub(super) fn send(out: &mut impl Write, words: &[&str]) -> io::Result<()> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend(word.as_bytes());
        bytes.extend(b"\r\n");
    }
    out.write_all(&bytes)?;
    out.flush()
}

/// Reads one reply.
pub(super) fn receive(from: &mut impl BufRead) -> io::Result<Reply> {
    let mut left = MOST_ELEMENTS;
    element(from, DEEPEST, &mut left)
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the answer is not in Redis's protocol: {what}"))
}

fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.take(64 << 10).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match bytes.strip_suffix(b"\r\n") {
        Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
        None => Err(wrong("a line does not end")),
    }
}

fn element(from: &mut impl BufRead, depth: usize, left: &mut usize) -> io::Result<Reply> {
    *left = left.checked_sub(1).ok_or_else(|| wrong("it has too many elements"))?;
    let line = line(from)?;
    let mut chars = line.chars();
    let kind = chars.next().unwrap_or(' ');
    let rest = chars.as_str();
    let length = || rest.parse::<i64>().map_err(|_| wrong("a length is not a number"));
    match kind {
        '+' | ',' | '(' | '#' => Ok(Reply::Text(rest.to_owned())),
        '-' => Ok(Reply::Refused(rest.to_owned())),
        ':' => rest.parse().map(Reply::Number).map_err(|_| wrong("a number is not one")),
        '_' => Ok(Reply::Nothing),
        '$' | '=' | '!' => {
            let Ok(length) = u64::try_from(length()?) else { return Ok(Reply::Nothing) };
            if length > MOST_BYTES {
                return Err(wrong("a string is too long"));
            }
            let mut bytes = Vec::new();
            from.take(length + 2).read_to_end(&mut bytes)?;
            if bytes.len() as u64 != length + 2 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes.truncate(bytes.len() - 2);
            Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
        }
        '*' | '~' | '>' | '%' => {
            let Ok(count) = usize::try_from(length()?) else { return Ok(Reply::Nothing) };
            let count = if kind == '%' { count.saturating_mul(2) } else { count };
            if depth == 0 || count > *left {
                return Err(wrong("it is nested too deeply or has too many elements"));
            }
            (0..count).map(|_| element(from, depth - 1, left)).collect::<io::Result<_>>().map(Reply::List)
        }
        _ => Err(wrong("an element has no known kind")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_and_too_large_ones_refused() {
        let read = |bytes: &[u8]| receive(&mut &bytes[..]);
        assert_eq!(read(b"+OK\r\n").expect("read"), Reply::Text("OK".to_owned()));
        assert_eq!(read(b"$-1\r\n").expect("read"), Reply::Nothing);
        let list = read(b"*3\r\n:7\r\n$2\r\na\n\r\n-ERR no\r\n").expect("read");
        assert_eq!(list.list()[0].number(), Some(7));
        assert_eq!(list.list()[1].text(), Some("a\n"));
        assert_eq!(list.list()[2], Reply::Refused("ERR no".to_owned()));
        for bytes in
            [&b"$99999999999\r\n"[..], b"*999999999\r\n", b"$5\r\nab", b"", b"hello", b"?\r\n", b":x\r\n"]
        {
            assert!(read(bytes).is_err());
        }
        assert!(read("*1\r\n".repeat(50).as_bytes()).is_err());
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut rng = fastrand::Rng::with_seed(9);
        let parts = [&b"*"[..], b"$", b"%", b":", b"1", b"-1", b"3", b"\r\n", b"ab", b"\xff", b"+", b"_"];
        for _ in 0..50_000 {
            let bytes: Vec<u8> =
                (0..rng.usize(0..14)).flat_map(|_| parts[rng.usize(0..parts.len())].to_vec()).collect();
            let _ = receive(&mut &bytes[..]);
        }
    }
}
