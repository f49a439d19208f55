//! Redis' protocol, as far as the lab needs it: commands as arrays of bulk strings, and the five kinds of reply of version 2.
//!
//! **Invariant**: a reply larger than [`LARGEST`] or nested deeper than [`DEEPEST`] is an error, not memory.
//! **Deliberately absent**: version 3, subscriptions.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

/// The longest string and the longest array that are taken.
const LARGEST: usize = 64 << 20;
/// How deep arrays may lie in arrays.
const DEEPEST: u32 = 8;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// A short text.
    Simple(String),
    /// A number.
    Integer(i64),
    /// Bytes; nothing: no such key.
    Bulk(Option<Vec<u8>>),
    /// Several.
    Array(Vec<Reply>),
}

/// Appends a command to what is sent.
pub(super) fn encode(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// A connection.
pub(super) struct Connection {
    input: BufReader<UnixStream>,
    output: UnixStream,
}

impl Connection {
    /// To a socket.
    pub(super) fn new(stream: UnixStream) -> io::Result<Connection> {
        Ok(Connection { output: stream.try_clone()?, input: BufReader::new(stream) })
    }

    /// Sends commands that were encoded.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.write_all(bytes)
    }

    /// The next reply; an error reply is an error.
    pub(super) fn receive(&mut self) -> io::Result<Reply> {
        read_reply(&mut self.input, DEEPEST)
    }
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

fn read_reply(input: &mut impl BufRead, depth: u32) -> io::Result<Reply> {
    let mut line = Vec::new();
    input.by_ref().take(64 << 10).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let text = String::from_utf8_lossy(&line);
    let text = text.strip_suffix("\r\n").ok_or_else(|| wrong("a reply without an end of line"))?;
    let (kind, rest) = text.split_at_checked(1).ok_or_else(|| wrong("an empty reply"))?;
    let number = || rest.parse::<i64>().map_err(|_| wrong(format!("{rest:?} is not a number")));
    let length = |number: i64| match usize::try_from(number) {
        Ok(length) if length <= LARGEST => Ok(length),
        _ => Err(wrong(format!("a length of {number}"))),
    };
    match kind {
        "+" => Ok(Reply::Simple(rest.to_owned())),
        "-" => Err(io::Error::other(rest.to_owned())),
        ":" => Ok(Reply::Integer(number()?)),
        "$" => match number()? {
            -1 => Ok(Reply::Bulk(None)),
            n => {
                let mut bytes = Vec::new();
                let wanted = length(n)? + 2;
                input.by_ref().take(wanted as u64).read_to_end(&mut bytes)?;
                if bytes.len() < wanted {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                bytes.truncate(wanted - 2);
                Ok(Reply::Bulk(Some(bytes)))
            }
        },
        "*" if depth == 0 => Err(wrong("arrays too deep in arrays")),
        "*" => match number()? {
            -1 => Ok(Reply::Array(Vec::new())),
            n => (0..length(n)?)
                .map(|_| read_reply(input, depth - 1))
                .collect::<io::Result<_>>()
                .map(Reply::Array),
        },
        _ => Err(wrong(format!("a reply that begins with {kind:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Reply> {
        read_reply(&mut io::BufReader::new(bytes), DEEPEST)
    }

    #[test]
    fn replies_are_read_and_commands_written() {
        assert_eq!(read(b"+OK\r\n").unwrap(), Reply::Simple("OK".into()));
        assert_eq!(read(b":-7\r\n").unwrap(), Reply::Integer(-7));
        assert_eq!(read(b"$-1\r\n").unwrap(), Reply::Bulk(None));
        let array = read(b"*2\r\n$3\r\na\r\n\r\n:1\r\n").unwrap();
        assert_eq!(array, Reply::Array(vec![Reply::Bulk(Some(b"a\r\n".to_vec())), Reply::Integer(1)]));
        assert_eq!(read(b"-ERR no\r\n").unwrap_err().to_string(), "ERR no");
        let mut out = Vec::new();
        encode(&mut out, &[b"SET", b"k", b""]);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n");
    }

    #[test]
    fn replies_that_are_none_are_errors() {
        let deep = b"*1\r\n".repeat(100);
        for bytes in
            [&b""[..], b"+OK", b"?x\r\n", b"$5\r\nab\r\n", b"$99999999999\r\n", b"*-2\r\n", b"\r\n", &deep]
        {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }
}
