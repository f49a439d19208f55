//! Reads requests from a client's bytes, piecewise, with Redis's limits and error texts.
//!
//! A request is an array of bulk strings, or a line of words. The reader keeps its place, so that a
//! request that comes in a thousand parts is looked at once.
//!
//! Invariants: it allocates for what has arrived, never for what a length announces; no byte makes
//! it panic.

use crate::words::words;

/// The longest line.
const LINE_MAX: usize = 64 << 10;
/// The most arguments.
const ARGUMENTS_MAX: i64 = 1 << 20;
/// What a client may send before it gave the password.
const ARGUMENTS_UNKNOWN: i64 = 10;
const BULK_UNKNOWN: i64 = 16 << 10;

/// Limits that depend on the configuration and on the client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) bulk: u64,
    pub(crate) allowed: bool,
}

/// Where a request stands.
#[derive(Debug, Default)]
pub(crate) struct Request {
    /// Bytes of the buffer that were looked at.
    at: usize,
    /// Arguments still to come, once the array's head is read.
    left: Option<i64>,
    /// Length of the argument that is being read.
    bulk: Option<usize>,
    /// Where in the buffer the arguments are.
    arguments: Vec<(usize, usize)>,
    /// Arguments of a line, which may have been quoted.
    line: Vec<Vec<u8>>,
}

/// What the bytes hold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A request of so many bytes is whole.
    Whole(usize),
    /// More bytes are needed.
    More,
    /// It is not in the protocol; the connection is of no use.
    Wrong(String),
}

fn wrong(what: &str) -> Next {
    Next::Wrong(format!("ERR Protocol error: {what}"))
}

impl Request {
    /// The arguments of a whole request.
    pub(crate) fn arguments<'a>(
        &'a self,
        buffer: &'a [u8],
        into: &mut smallvec::SmallVec<[&'a [u8]; 8]>,
    ) {
        into.clear();
        if self.line.is_empty() {
            into.extend(self.arguments.iter().map(|(at, len)| &buffer[*at..*at + *len]));
        } else {
            into.extend(self.line.iter().map(Vec::as_slice));
        }
    }

    /// Begins with the next request.
    pub(crate) fn reset(&mut self) {
        self.at = 0;
        self.left = None;
        self.bulk = None;
        self.arguments.clear();
        self.line.clear();
    }

    /// The line at the place where the request stands, without its end, and moves behind it.
    fn line<'a>(&mut self, buffer: &'a [u8], what: &str) -> Result<&'a [u8], Next> {
        let rest = &buffer[self.at..];
        match rest[..rest.len().min(LINE_MAX)].iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                self.at += end + 1;
                Ok(rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]))
            }
            None if rest.len() >= LINE_MAX => Err(wrong(what)),
            None => Err(Next::More),
        }
    }

    /// Looks at the bytes, from the begin of the request.
    pub(crate) fn read(&mut self, buffer: &[u8], limits: Limits) -> Next {
        match self.advance(buffer, limits) {
            Ok(()) => Next::Whole(self.at),
            Err(next) => next,
        }
    }

    fn advance(&mut self, buffer: &[u8], limits: Limits) -> Result<(), Next> {
        if self.left.is_none() {
            match buffer.first() {
                None => return Err(Next::More),
                Some(b'*') => {}
                Some(_) => return self.inline(buffer),
            }
            let line = self.line(buffer, "too big mbulk count string")?;
            let count = number(&line[1..]).filter(|count| *count <= ARGUMENTS_MAX);
            let count = count.ok_or_else(|| wrong("invalid multibulk length"))?;
            if count > ARGUMENTS_UNKNOWN && !limits.allowed {
                return Err(wrong("unauthenticated multibulk length"));
            }
            self.left = Some(count.max(0));
        }
        while self.left.is_some_and(|left| left > 0) {
            let len = match self.bulk {
                Some(len) => len,
                None => {
                    let line = self.line(buffer, "too big bulk count string")?;
                    let Some((b'$', digits)) = line.split_first() else {
                        let found = line.first().copied().unwrap_or(b' ');
                        let found = if found.is_ascii_graphic() { char::from(found) } else { ' ' };
                        return Err(wrong(&format!("expected '$', got '{found}'")));
                    };
                    let len = number(digits)
                        .filter(|len| *len >= 0 && *len as u64 <= limits.bulk)
                        .ok_or_else(|| wrong("invalid bulk length"))?;
                    if len > BULK_UNKNOWN && !limits.allowed {
                        return Err(wrong("unauthenticated bulk length"));
                    }
                    self.bulk = Some(len as usize);
                    len as usize
                }
            };
            if buffer.len() - self.at < len + 2 {
                return Err(Next::More);
            }
            self.arguments.push((self.at, len));
            self.at += len + 2;
            self.bulk = None;
            self.left = self.left.map(|left| left - 1);
        }
        Ok(())
    }

    fn inline(&mut self, buffer: &[u8]) -> Result<(), Next> {
        let line = self.line(buffer, "too big inline request")?;
        self.line = words(line).ok_or_else(|| wrong("unbalanced quotes in request"))?;
        Ok(())
    }
}

fn number(digits: &[u8]) -> Option<i64> {
    let plain = digits.strip_prefix(b"-").unwrap_or(digits);
    let plain = !plain.is_empty() && plain.len() <= 18 && plain.iter().all(u8::is_ascii_digit);
    if plain { std::str::from_utf8(digits).ok()?.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { bulk: 1000, allowed: true };

    fn arguments(buffer: &[u8]) -> Vec<Vec<u8>> {
        let mut request = Request::default();
        assert_eq!(request.read(buffer, LIMITS), Next::Whole(buffer.len()));
        let mut found = smallvec::SmallVec::new();
        request.arguments(buffer, &mut found);
        found.iter().map(|argument| argument.to_vec()).collect()
    }

    #[test]
    fn a_request_is_the_same_in_one_part_and_in_parts_of_a_byte() {
        let bytes = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\na\r\nbc\r\n";
        assert_eq!(arguments(bytes), [&b"SET"[..], b"k", b"a\r\nbc"]);
        let mut request = Request::default();
        for end in 0..bytes.len() {
            assert_eq!(request.read(&bytes[..end], LIMITS), Next::More);
        }
        assert_eq!(request.read(bytes, LIMITS), Next::Whole(bytes.len()));
    }

    #[test]
    fn a_line_has_words_and_quotes() {
        assert_eq!(
            arguments(b"  set  k \"a \\x41\\n\" 'b c'\r\n"),
            [&b"set"[..], b"k", b"a A\n", b"b c"]
        );
    }

    #[test]
    fn what_is_not_in_the_protocol_is_named_as_redis_names_it() {
        for (bytes, text) in [
            (&b"*x\r\n"[..], "invalid multibulk length"),
            (b"*99999999999\r\n", "invalid multibulk length"),
            (b"*1\r\n+OK\r\n", "expected '$', got '+'"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$1001\r\n", "invalid bulk length"),
            (b"\"a\r\n", "unbalanced quotes in request"),
        ] {
            let next = Request::default().read(bytes, LIMITS);
            assert_eq!(next, wrong(text), "{}", String::from_utf8_lossy(bytes));
        }
        let long = vec![b'a'; 70_000];
        assert_eq!(Request::default().read(&long, LIMITS), wrong("too big inline request"));
    }

    #[test]
    fn random_bytes_are_refused_or_read_and_never_more() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..20_000 {
            let len = random.usize(..60);
            let bytes: Vec<u8> = (0..len)
                .map(|_| *random.choice(b"*$0123-\r\n\r\nabc\"' \\x").expect("one"))
                .collect();
            let mut request = Request::default();
            if let Next::Whole(end) = request.read(&bytes, LIMITS) {
                assert!(end <= bytes.len());
                let mut found = smallvec::SmallVec::new();
                request.arguments(&bytes, &mut found);
            }
        }
    }
}
