//! Replies as bytes, in RESP2 or RESP3, whichever the client speaks.

use super::arguments::print_score;

/// Bytes of replies behind which no more are made: the server cuts a client that asks for more with
/// one command, as a few bytes can (`MGET key key key`), and a script gets an error.
pub(crate) const REPLIES_MAX: usize = 1 << 30;

/// Where replies are appended.
#[derive(Debug)]
pub(crate) struct Reply<'a> {
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) resp3: bool,
}

impl Reply<'_> {
    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }

    fn number(&mut self, kind: u8, number: i64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut left = number.unsigned_abs();
        loop {
            at -= 1;
            digits[at] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        self.out.push(kind);
        if number < 0 {
            self.out.push(b'-');
        }
        self.out.extend_from_slice(&digits[at..]);
        self.out.extend_from_slice(b"\r\n");
    }

    pub(crate) fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// Text without line breaks.
    pub(crate) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// What was refused. Line breaks, which an argument can bring in, become spaces.
    pub(crate) fn error(&mut self, text: &str) {
        self.line(b'-', text.replace(['\r', '\n'], " ").as_bytes());
    }

    pub(crate) fn integer(&mut self, number: i64) {
        self.number(b':', number);
    }

    /// A count.
    pub(crate) fn count(&mut self, count: u64) {
        self.number(b':', count as i64);
    }

    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        if self.out.len() > REPLIES_MAX {
            return;
        }
        self.number(b'$', bytes.len() as i64);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A bulk string of `len` bytes, which `fill` appends.
    pub(crate) fn bulk_of(&mut self, len: u64, fill: impl FnOnce(&mut Vec<u8>)) {
        if self.out.len() > REPLIES_MAX {
            return;
        }
        self.number(b'$', len as i64);
        fill(self.out);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A score.
    pub(crate) fn double(&mut self, number: f64) {
        self.printed(&print_score(number));
    }

    /// A degree, with at most 17 digits behind its point.
    pub(crate) fn coordinate(&mut self, number: f64) {
        let text = format!("{number:.17}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        self.printed(if text == "-0" { "0" } else { text });
    }

    fn printed(&mut self, number: &str) {
        if self.resp3 { self.line(b',', number.as_bytes()) } else { self.bulk(number.as_bytes()) }
    }

    pub(crate) fn double_or_null(&mut self, number: Option<f64>) {
        match number {
            Some(number) => self.double(number),
            None => self.null(),
        }
    }

    pub(crate) fn null(&mut self) {
        self.out.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// Nothing, where a list was expected.
    pub(crate) fn null_list(&mut self) {
        self.out.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// A list of so many elements follows.
    pub(crate) fn list(&mut self, elements: usize) {
        self.number(b'*', elements as i64);
    }

    /// A set of so many elements follows.
    pub(crate) fn set(&mut self, elements: usize) {
        self.number(if self.resp3 { b'~' } else { b'*' }, elements as i64);
    }

    /// So many pairs follow.
    pub(crate) fn map(&mut self, pairs: usize) {
        if self.resp3 {
            self.number(b'%', pairs as i64);
        } else {
            self.number(b'*', 2 * pairs as i64);
        }
    }

    /// A list of so many elements that nobody asked for.
    pub(crate) fn push(&mut self, elements: usize) {
        self.number(if self.resp3 { b'>' } else { b'*' }, elements as i64);
    }

    /// Several lines of text.
    pub(crate) fn text(&mut self, text: &str) {
        if self.resp3 {
            self.number(b'=', text.len() as i64 + 4);
            self.out.extend_from_slice(b"txt:");
            self.out.extend_from_slice(text.as_bytes());
            self.out.extend_from_slice(b"\r\n");
        } else {
            self.bulk(text.as_bytes());
        }
    }

    pub(crate) fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }
}
