//! The Redis protocol, as much as asking needs: a command out, one reply in, with limits.
//!
//! A stream that is given a deadline (a read timeout before each read) makes it end in time; this
//! file knows no clock.
//!
//! Invariants: a reply larger than the limits, or deeper nested, is an error and not memory; no
//! byte makes it panic.

use std::io::{self, BufRead, Read, Write};

/// The most bytes of a reply: INFO of a server with thousands of commands has less than one MiB.
const MOST_BYTES: u64 = 16 << 20;
/// The longest line: simple strings, errors, and what goes before strings and lists.
const LONGEST_LINE: u64 = 64 << 10;
/// The most elements in all lists of a reply together.
const MOST_ELEMENTS: usize = 1 << 18;
/// The deepest nesting.
const DEEPEST: usize = 8;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
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
    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Reply::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The number, if it is one and not negative.
    pub fn number(&self) -> Option<u64> {
        match self {
            Reply::Number(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// The elements; none if it is no list.
    pub fn list(&self) -> &[Reply] {
        match self {
            Reply::List(list) => list,
            _ => &[],
        }
    }
}

/// Sends a command.
///
/// # Errors
/// Those of the stream.
pub fn send(out: &mut impl Write, words: &[&str]) -> io::Result<()> {
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
///
/// # Errors
/// Those of the stream, and what is not in the protocol, nested too deeply, or too large: the
/// stream is of no use after it.
pub fn receive(from: &mut impl BufRead) -> io::Result<Reply> {
    let mut left = Left { elements: MOST_ELEMENTS, bytes: MOST_BYTES };
    element(from, DEEPEST, &mut left)
}

/// How much of a reply may come still.
struct Left {
    elements: usize,
    bytes: u64,
}

impl Left {
    fn take(&mut self, bytes: u64) -> io::Result<()> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or_else(|| wrong("it is too long"))?;
        Ok(())
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the answer is not in Redis's protocol: {what}"),
    )
}

fn line(from: &mut impl BufRead, left: &mut Left) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.take(LONGEST_LINE).read_until(b'\n', &mut bytes)?;
    left.take(bytes.len() as u64)?;
    if bytes.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match bytes.strip_suffix(b"\r\n") {
        Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
        None => Err(wrong("a line does not end")),
    }
}

fn element(from: &mut impl BufRead, depth: usize, left: &mut Left) -> io::Result<Reply> {
    left.elements =
        left.elements.checked_sub(1).ok_or_else(|| wrong("it has too many elements"))?;
    let line = line(from, left)?;
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
            left.take(length)?;
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
            if depth == 0 || count > left.elements {
                return Err(wrong("it is nested too deeply or has too many elements"));
            }
            (0..count)
                .map(|_| element(from, depth - 1, left))
                .collect::<io::Result<_>>()
                .map(Reply::List)
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
        for bytes in [
            &b"$99999999999\r\n"[..],
            b"*999999999\r\n",
            b"$5\r\nab",
            b"",
            b"hello",
            b"?\r\n",
            b":x\r\n",
        ] {
            assert!(read(bytes).is_err());
        }
        assert!(read("*1\r\n".repeat(50).as_bytes()).is_err());
        // No line and no string of it is too long, all of them together are.
        let many = format!("*2000\r\n{}", format!("+{}\r\n", "x".repeat(60 << 10)).repeat(2000));
        assert!(read(many.as_bytes()).expect_err("too long").to_string().contains("too long"));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut rng = fastrand::Rng::with_seed(9);
        let parts =
            [&b"*"[..], b"$", b"%", b":", b"1", b"-1", b"3", b"\r\n", b"ab", b"\xff", b"+", b"_"];
        for _ in 0..50_000 {
            let bytes: Vec<u8> = (0..rng.usize(0..14))
                .flat_map(|_| parts[rng.usize(0..parts.len())].to_vec())
                .collect();
            let _ = receive(&mut &bytes[..]);
        }
    }
}
