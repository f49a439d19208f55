//! Reads requests from a client's bytes, piecewise, with Redis's limits and error texts.
//!
//! A request is an array of bulk strings, or a line of words. The reader keeps its place, so that a
//! request that comes in a thousand parts is looked at once.
//!
//! Invariants: it allocates for what has arrived, never for what a length announces; no byte makes
//! it panic.

use smallvec::SmallVec;

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

/// How many requests are read before the first of them is executed.
pub(crate) const AHEAD: usize = 16;
/// With so many arguments no further request is read.
const ARGUMENTS_AHEAD: usize = 1024;
/// Arguments whose places stay allocated.
const ARGUMENTS_KEPT: usize = 1024;

/// Requests of one client that were read and are not executed yet.
///
/// A request that is not executed after all is read again: the bytes of a client are forgotten only
/// when they were.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    requests: Vec<One>,
    /// How many of them were executed.
    done: usize,
    /// Where the arguments of all are, from the begin of each request.
    arguments: Vec<(usize, usize)>,
    /// Arguments of a line, which is always alone.
    line: Vec<Vec<u8>>,
}

/// One of them.
#[derive(Debug)]
struct One {
    bytes: usize,
    /// Its first argument among those of all, and how many it has.
    first: usize,
    count: usize,
}

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// One request or more.
    Some,
    /// More bytes are needed.
    More,
    /// It is not in the protocol; the connection is of no use.
    Wrong(String),
}

impl Ahead {
    pub(crate) fn is_empty(&self) -> bool {
        self.done == self.requests.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len() - self.done
    }

    /// Reads whole requests, `most` at most, from the begin of a buffer; none is executed yet.
    pub(crate) fn fill(
        &mut self,
        request: &mut Request,
        buffer: &[u8],
        limits: Limits,
        most: usize,
    ) -> Filled {
        self.clear();
        let mut from = 0;
        while self.requests.len() < most && self.arguments.len() < ARGUMENTS_AHEAD {
            match request.read(&buffer[from..], limits) {
                Next::Whole(_) if !request.line.is_empty() && from > 0 => {
                    request.reset();
                    break;
                }
                Next::Whole(bytes) => {
                    let (first, count) = (self.arguments.len(), request.arguments.len());
                    self.arguments.append(&mut request.arguments);
                    self.line.append(&mut request.line);
                    self.requests.push(One { bytes, first, count });
                    request.reset();
                    from += bytes;
                    if !self.line.is_empty() {
                        break;
                    }
                }
                Next::More if from == 0 => return Filled::More,
                Next::Wrong(why) if from == 0 => return Filled::Wrong(why),
                Next::More => break,
                // Those before it are executed first.
                Next::Wrong(_) => {
                    request.reset();
                    break;
                }
            }
        }
        Filled::Some
    }

    /// The arguments of the first request, at the begin of the buffer, and its bytes.
    pub(crate) fn first<'a>(&'a self, buffer: &'a [u8]) -> (SmallVec<[&'a [u8]; 8]>, usize) {
        let Some(one) = self.requests.get(self.done) else { return (SmallVec::new(), 0) };
        let arguments = if self.line.is_empty() {
            let places = &self.arguments[one.first..one.first + one.count];
            places.iter().map(|(at, len)| &buffer[*at..*at + *len]).collect()
        } else {
            self.line.iter().map(Vec::as_slice).collect()
        };
        (arguments, one.bytes)
    }

    /// What is the key of most commands: the second word of each request.
    pub(crate) fn keys<'a>(&'a self, buffer: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut from = 0;
        self.requests[self.done..].iter().filter_map(move |one| {
            let begin = from;
            from += one.bytes;
            let (at, len) = *self.arguments[one.first..one.first + one.count].get(1)?;
            buffer.get(begin + at..begin + at + len)
        })
    }

    /// The first one was executed.
    pub(crate) fn pop(&mut self) {
        self.done += 1;
        if self.is_empty() {
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.requests.clear();
        self.arguments.clear();
        // After a request of a million arguments the memory goes back.
        self.arguments.shrink_to(ARGUMENTS_KEPT);
        self.line = Vec::new();
        self.done = 0;
    }

    /// Forgets requests that were not executed, which are read again.
    pub(crate) fn give_up(&mut self, request: &mut Request) {
        if !self.is_empty() {
            self.forget(request);
        }
    }

    /// The same, and what was read of a request that is not whole.
    pub(crate) fn forget(&mut self, request: &mut Request) {
        self.clear();
        request.reset();
    }
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
        // After a request of a million arguments the memory goes back.
        self.arguments.shrink_to(ARGUMENTS_KEPT);
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

    /// Every request of a buffer, and what ends it.
    fn all(buffer: &[u8], most: usize) -> (Vec<Vec<Vec<u8>>>, Filled, usize) {
        let (mut request, mut ahead) = (Request::default(), Ahead::default());
        let (mut found, mut done) = (Vec::new(), 0);
        loop {
            match ahead.fill(&mut request, &buffer[done..], LIMITS, most) {
                Filled::Some => assert!(ahead.len() <= most, "{}", ahead.len()),
                end => return (found, end, done),
            }
            while !ahead.is_empty() {
                let (arguments, bytes) = ahead.first(&buffer[done..]);
                let second = arguments.get(1).map(|word| word.to_vec());
                if !ahead.line.is_empty() || second.is_some() {
                    found.push(arguments.iter().map(|word| word.to_vec()).collect());
                }
                if ahead.line.is_empty() {
                    assert_eq!(ahead.keys(&buffer[done..]).next().map(<[u8]>::to_vec), second);
                }
                drop(arguments);
                done += bytes;
                ahead.pop();
            }
        }
    }

    #[test]
    fn requests_that_are_read_ahead_are_those_of_the_buffer_in_order() {
        let one = |number: usize| format!("*2\r\n$3\r\nGET\r\n$3\r\nk{number:02}\r\n");
        let mut bytes: Vec<u8> = (0..40).flat_map(|number| one(number).into_bytes()).collect();
        bytes.extend(b"set a 1\r\nset b 2\r\n*2\r\n$3\r\nGET\r\n$3\r\nend\r\n");
        for most in [AHEAD, 1] {
            let (found, end, done) = all(&bytes, most);
            assert_eq!((end, done), (Filled::More, bytes.len()));
            assert_eq!(found.len(), 43);
            assert_eq!(found[39], [&b"GET"[..], b"k39"]);
            assert_eq!(found[41], [&b"set"[..], b"b", b"2"]);
            assert_eq!(found[42], [&b"GET"[..], b"end"]);
        }
        // What is before bytes that are in no protocol is read, and half a request is none.
        for (tail, end) in [(&b"*1\r\n$-1\r\n"[..], true), (b"*2\r\n$3\r\nGE", false)] {
            let bytes = [one(7).as_bytes(), one(8).as_bytes(), tail].concat();
            let (found, last, done) = all(&bytes, AHEAD);
            assert_eq!((found.len(), done), (2, bytes.len() - tail.len()));
            assert_eq!(matches!(last, Filled::Wrong(_)), end);
        }
    }

    #[test]
    fn requests_that_are_given_up_are_read_again() {
        let bytes = b"*1\r\n$1\r\na\r\n*1\r\n$1\r\nb\r\n*1\r\n$1\r\n";
        let (mut request, mut ahead) = (Request::default(), Ahead::default());
        assert_eq!(ahead.fill(&mut request, bytes, LIMITS, AHEAD), Filled::Some);
        let (first, done) = ahead.first(bytes);
        assert_eq!(first.as_slice(), [b"a"]);
        drop(first);
        ahead.pop();
        ahead.give_up(&mut request);
        assert_eq!(ahead.fill(&mut request, &bytes[done..], LIMITS, AHEAD), Filled::Some);
        assert_eq!(ahead.first(&bytes[done..]).0.as_slice(), [b"b"]);
    }

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
