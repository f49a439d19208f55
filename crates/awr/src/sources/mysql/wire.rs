//! A connection to MariaDB or MySQL whose answers are bounded in time, packets, columns, rows and
//! bytes.
//!
//! The protocol as far as it is needed, read here: logging in, and text answers to a statement. A
//! client library takes a server's word for how many columns an answer has, reads it to its end,
//! and is not made for servers that lie. Every length is checked before anything is made of it;
//! what does not fit ends the connection with an error.
//!
//! Written after the manual of MySQL's protocol (MySQL Source Code Documentation, Client/Server
//! Protocol) and MariaDB's (Client/Server Protocol). Differences: no capability of either is asked
//! for that this file has no use for, so a server may not ask for a local file, and ends rows with
//! the packets of before 5.7.
//!
//! Deliberately absent: compression, prepared statements, several statements at once, what the
//! queries mean.
//!
//! Invariants: nothing here waits longer than the deadline of [`Wire::begin`], keeps more than
//! [`MOST_BYTES`] of an answer, or panics whatever the server sends. A password leaves as it is on
//! a local socket or encrypted only, and sealed only for a key that the user named or said to ask
//! for. What came before encryption is not taken for what came after it.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Write};
use std::time::Instant;

use mysql_common::scramble::{scramble_native, scramble_sha256};

use super::super::timed::Timed;
use super::super::tls::{self, Connector, Encryption, Need, Refusal, ServerKey};
use super::key;

/// A row by the names of its columns, in lower case. What is NULL is empty.
pub(in super::super) type Fields = BTreeMap<String, String>;

/// The most rows of an answer: a server has some hundreds of variables and some thousands of
/// instruments.
const MOST_ROWS: usize = 20_000;
/// The most bytes that are kept of an answer.
const MOST_BYTES: usize = 16 << 20;
/// What a value costs beside its bytes.
const OF_A_VALUE: usize = 64;
/// The largest packet.
const MOST_BYTES_OF_A_PACKET: usize = 4 << 20;
/// The most columns: those of our longest question, and room.
const MOST_COLUMNS: u64 = 32;
/// The longest name of a column, as both products have it.
const LONGEST_NAME: usize = 256;
/// The longest value that is kept, in characters.
const LONGEST: usize = 8_000;
/// The most packets of a login: greeting, another way to log in, a key, an answer.
const MOST_STEPS: usize = 5;

/// Protocol 4.1, passwords of 4.1, transactions, ways to log in by name; the lowest bit says that
/// this is no client of MariaDB's own.
const CAPABILITIES: u32 = 0x0008_a201;
/// What a server must be able to do: protocol 4.1, passwords of 4.1, ways to log in by name.
const NEEDED: u32 = 0x0008_8200;
/// The wish of a client to go on encrypted, and a server's offer of it.
const ENCRYPTED: u32 = 0x0800;
/// utf8mb4_general_ci.
const COLLATION: u8 = 45;

const NATIVE: &[u8] = b"mysql_native_password";
const SHA2: &[u8] = b"caching_sha2_password";
/// Ways to log in where the system says who is at the other end of a socket.
const BY_SOCKET: [&[u8]; 2] = [b"auth_socket", b"unix_socket"];

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server refuses.
    Server {
        /// Its number of the error.
        code: u16,
        /// Its words.
        message: String,
    },
    /// The connection broke, or the server does not keep to what is bounded.
    Broken(String),
    /// It is not encrypted as it should be.
    Refused(Refusal),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        match Refusal::behind(&error, tls::words_of_mysql()) {
            Some(refusal) => Fault::Refused(refusal),
            None => Fault::Broken(error.to_string()),
        }
    }
}

fn wrong(what: &str) -> Fault {
    Fault::Broken(format!("the answer is not one to a question of ours: {what}"))
}

/// Where a server is, and who asks.
pub(super) struct Login {
    /// A host, or the path of a socket.
    pub(super) host: String,
    /// The port of a host.
    pub(super) port: u16,
    /// The user's name.
    pub(super) user: String,
    /// The password; empty for none.
    pub(super) password: String,
    /// Whether and how the connection is encrypted.
    pub(super) encryption: Encryption,
}

/// A connection.
pub(super) struct Wire {
    stream: BufReader<Timed>,
    /// The number of the packet that comes next.
    number: u8,
}

impl Wire {
    /// Connects and logs in.
    ///
    /// # Errors
    /// If the server cannot be reached, refuses, or says nothing that can be understood until the
    /// deadline.
    pub(super) fn connect(login: &Login, deadline: Instant) -> Result<Wire, Fault> {
        let stream = Timed::open(&login.host, login.port, deadline)?;
        let mut wire = Wire { stream: BufReader::new(stream), number: 0 };
        wire.log_in(login)?;
        Ok(wire)
    }

    /// Allows time until another instant.
    pub(super) fn begin(&mut self, deadline: Instant) {
        self.stream.get_mut().wait_until(deadline);
    }

    /// The rows of a query. After a [`Fault::Broken`] the connection is of no use.
    ///
    /// # Errors
    /// If the server refuses, the connection breaks, or the answer is larger than any of a server
    /// should be.
    pub(super) fn rows(&mut self, query: &str) -> Result<Vec<Fields>, Fault> {
        self.number = 0;
        // 3 is the command for a query.
        self.send(&[b"\x03", query.as_bytes()].concat())?;
        let head = self.receive()?;
        let mut head = Bytes(&head);
        let count = match head.0 {
            [0, ..] => return Ok(Vec::new()),
            [0xff, rest @ ..] => return Err(refusal(rest)),
            [0xfb, ..] => return Err(wrong("the server asks for a file")),
            _ => head.length().filter(|_| head.0.is_empty()),
        };
        let count = count.filter(|count| (1..=MOST_COLUMNS).contains(count));
        let count = count.ok_or_else(|| wrong("it has no number of columns that it could have"))?;
        let mut names = Vec::new();
        for _ in 0..count {
            let column = self.receive()?;
            names.push(name_of(&column).ok_or_else(|| wrong("the description of a column"))?);
        }
        if !is_end(&self.receive()?) {
            return Err(wrong("it has more columns than it says"));
        }
        let (mut rows, mut bytes) = (Vec::new(), 0usize);
        loop {
            let packet = self.receive()?;
            match packet.as_slice() {
                end if is_end(end) => return Ok(rows),
                [0xff, rest @ ..] => return Err(refusal(rest)),
                _ => {}
            }
            bytes += packet.len();
            let row =
                row(&names, &packet).ok_or_else(|| wrong("a row does not have its columns"))?;
            bytes += row
                .iter()
                .map(|(name, value)| name.len() + value.len() + OF_A_VALUE)
                .sum::<usize>();
            if rows.len() == MOST_ROWS || bytes > MOST_BYTES {
                return Err(Fault::Broken(
                    "an answer is longer than any of a server should be".to_owned(),
                ));
            }
            rows.push(row);
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let length = u32::try_from(bytes.len()).ok().filter(|length| *length < 0xff_ffff);
        let length = length.ok_or_else(|| Fault::Broken("a question is too long".to_owned()))?;
        let [a, b, c, _] = length.to_le_bytes();
        let packet = [&[a, b, c, self.number][..], bytes].concat();
        self.number = self.number.wrapping_add(1);
        self.stream.get_mut().write_all(&packet)?;
        Ok(self.stream.get_mut().flush()?)
    }

    /// A packet that is not empty: none that is waited for here may be.
    fn receive(&mut self) -> Result<Vec<u8>, Fault> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head)?;
        let [a, b, c, number] = head;
        let length = usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16;
        if length == 0 || length > MOST_BYTES_OF_A_PACKET {
            return Err(wrong("a packet claims to be empty or to have more than 4 MiB"));
        }
        if number != self.number {
            return Err(wrong("a packet is out of order"));
        }
        self.number = number.wrapping_add(1);
        // Room is made for what came, not for what is claimed.
        let mut packet = Vec::new();
        let read = (&mut self.stream).take(length as u64).read_to_end(&mut packet)?;
        if read < length {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Ok(packet)
    }

    fn log_in(&mut self, login: &Login) -> Result<(), Fault> {
        let greeting = self.receive()?;
        if let [0xff, rest @ ..] = greeting.as_slice() {
            let open = match login.encryption.need {
                Need::Always => false,
                Need::IfOffered => !super::super::address::is_remote(&login.host),
                Need::Never | Need::IfDemanded => true,
            };
            return Err(match refusal(rest) {
                // Nobody proved who says this.
                Fault::Server { code, .. } if !open => {
                    Fault::Refused(tls::error_for_greeting(code))
                }
                refusal => refusal,
            });
        }
        let greeting =
            Greeting::of(&greeting).ok_or_else(|| wrong("it does not greet as a server does"))?;
        let (mut nonce, mut way) = (greeting.nonce, greeting.way);
        if way != SHA2 {
            way = NATIVE.to_vec();
        }
        let proof = proof(&way, &nonce, &login.password)?;
        let encrypted = self.wants_encryption(login, greeting.encrypts)?;
        let able = if encrypted { CAPABILITIES | ENCRYPTED } else { CAPABILITIES };
        let mut answer = able.to_le_bytes().to_vec();
        answer.extend(u32::try_from(MOST_BYTES_OF_A_PACKET).unwrap_or(u32::MAX).to_le_bytes());
        answer.push(COLLATION);
        answer.extend([0; 23]);
        if encrypted {
            // The beginning of the answer alone asks for encryption; all of it follows then.
            self.send(&answer)?;
            if !self.stream.buffer().is_empty() {
                return Err(wrong("it says more before encryption than it was asked"));
            }
            let connector = connector(login).map_err(Fault::Refused)?;
            self.stream.get_mut().encrypt(&connector)?;
        }
        answer.extend(login.user.bytes().filter(|byte| *byte != 0));
        answer.extend([0, u8::try_from(proof.len()).unwrap_or(0)]);
        answer.extend(proof);
        answer.extend(&way);
        answer.push(0);
        self.send(&answer)?;
        for _ in 0..MOST_STEPS {
            let packet = self.receive()?;
            match packet.as_slice() {
                [0, ..] => return Ok(()),
                [0xff, rest @ ..] => return Err(refusal(rest)),
                [0xfe, rest @ ..] => {
                    let mut rest = Bytes(rest);
                    let other = rest
                        .until_zero()
                        .ok_or_else(|| wrong("it asks for a login of before 4.1"))?;
                    (way, nonce) = (other.to_vec(), nonce_of(rest.0));
                    self.send(&self::proof(&way, &nonce, &login.password)?)?;
                }
                // The server knows the password from before.
                [1, 3] if way == SHA2 => {}
                [1, 4] if way == SHA2 => self.send_password(login, &nonce)?,
                _ => return Err(wrong("its answer to a login")),
            }
        }
        Err(wrong("its login has no end"))
    }

    fn wants_encryption(&self, login: &Login, offered: bool) -> Result<bool, Fault> {
        match login.encryption.need {
            Need::Never | Need::IfDemanded => Ok(false),
            Need::IfOffered if !offered => {
                if super::super::address::is_remote(&login.host) {
                    tls::in_clear(
                        &login.host,
                        "the server does not offer it, and ssl-mode is PREFERRED",
                    );
                }
                Ok(false)
            }
            Need::Always if !offered => {
                Err(Fault::Refused(tls::not_offered(login.encryption.words)))
            }
            Need::IfOffered | Need::Always => Ok(true),
        }
    }

    /// The password itself: as it is where nobody else reads it; elsewhere only for a key that is
    /// the server's, or that the user takes for it.
    fn send_password(&mut self, login: &Login, nonce: &[u8]) -> Result<(), Fault> {
        let mut password = [login.password.as_bytes(), &[0]].concat();
        if self.stream.get_ref().is_encrypted() {
            login.encryption.warn_of_stranger(&login.host);
        } else if !login.host.starts_with('/') {
            let key = match &login.encryption.server_key {
                ServerKey::Unknown => return Err(Fault::Refused(tls::no_key_of_server())),
                ServerKey::File(path) => Some(key::Key::in_file(path).map_err(Fault::Refused)?),
                ServerKey::Asked => {
                    log::warn!(
                        "the password goes to {}, sealed for the key that it sends, and nothing \
                         proves whose key \
                         that is: get-server-public-key says so",
                        crate::figure::visible(&login.host)
                    );
                    self.send(&[2])?;
                    match self.receive()?.as_slice() {
                        [1, key @ ..] => key::Key::of(key),
                        [0xff, rest @ ..] => return Err(refusal(rest)),
                        _ => None,
                    }
                }
            };
            for (byte, mask) in password.iter_mut().zip(nonce.iter().cycle()) {
                *byte ^= mask;
            }
            let sealed = key.and_then(|key| key.seal(&password));
            password = sealed.ok_or_else(|| wrong("its key for the password"))?;
        }
        self.send(&password)
    }
}

fn connector(login: &Login) -> Result<Connector, Refusal> {
    let host = if login.host.starts_with('/') { "localhost" } else { login.host.as_str() };
    login.encryption.connector(host, &[])
}

/// What goes to the server for a password, by the name of the way to log in.
fn proof(way: &[u8], nonce: &[u8], password: &str) -> Result<Vec<u8>, Fault> {
    let password = password.as_bytes();
    match way {
        NATIVE => Ok(scramble_native(nonce, password).map_or(Vec::new(), Vec::from)),
        SHA2 => Ok(scramble_sha256(nonce, password).map_or(Vec::new(), Vec::from)),
        way if BY_SOCKET.contains(&way) => Ok(Vec::new()),
        way => {
            let way: String = String::from_utf8_lossy(way).chars().take(100).collect();
            Err(Fault::Broken(format!(
                "the user logs in by {way}; give one that logs in by mysql_native_password, \
                 caching_sha2_password or unix_socket"
            )))
        }
    }
}

/// Twenty bytes of a server's, however many it sent.
fn nonce_of(bytes: &[u8]) -> Vec<u8> {
    let mut nonce: Vec<u8> = bytes.iter().copied().take(20).collect();
    nonce.resize(20, 0);
    nonce
}

/// What a server says first.
struct Greeting {
    nonce: Vec<u8>,
    way: Vec<u8>,
    encrypts: bool,
}

impl Greeting {
    fn of(bytes: &[u8]) -> Option<Greeting> {
        let mut bytes = Bytes(bytes);
        if bytes.take(1)? != [10] {
            return None;
        }
        bytes.until_zero()?;
        bytes.take(4)?;
        let first = bytes.take(8)?.to_vec();
        bytes.take(1)?;
        let low = bytes.take(2)?;
        bytes.take(3)?;
        let high = bytes.take(2)?;
        let (low, high) = (low.first_chunk::<2>()?, high.first_chunk::<2>()?);
        let able = u32::from(u16::from_le_bytes(*low)) | u32::from(u16::from_le_bytes(*high)) << 16;
        if able & NEEDED != NEEDED {
            return None;
        }
        let whole = usize::from(*bytes.take(1)?.first()?);
        bytes.take(10)?;
        let second = bytes.take(whole.saturating_sub(8).max(13))?;
        let way = bytes.until_zero().unwrap_or(bytes.0).to_vec();
        let encrypts = able & ENCRYPTED != 0;
        Some(Greeting { nonce: nonce_of(&[&first, second].concat()), way, encrypts })
    }
}

/// What is left of a packet.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// The bytes before a zero, which is taken as well.
    fn until_zero(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let taken = self.take(end)?;
        self.take(1)?;
        Some(taken)
    }

    /// A number of one to nine bytes.
    fn length(&mut self) -> Option<u64> {
        let wide = match *self.take(1)?.first()? {
            small @ ..=0xfa => return Some(u64::from(small)),
            0xfc => 2,
            0xfd => 3,
            0xfe => 8,
            _ => return None,
        };
        let mut number = [0; 8];
        number.get_mut(..wide)?.copy_from_slice(self.take(wide)?);
        Some(u64::from_le_bytes(number))
    }

    /// Bytes with their length before them.
    fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.length()?).ok()?;
        self.take(length)
    }
}

/// The packet after the columns, and after the rows.
fn is_end(packet: &[u8]) -> bool {
    packet.first() == Some(&0xfe) && packet.len() < 9
}

/// What a server says when it refuses: a number, a state since 4.1, its words.
fn refusal(bytes: &[u8]) -> Fault {
    let mut bytes = Bytes(bytes);
    let code = bytes
        .take(2)
        .and_then(|code| code.first_chunk::<2>())
        .map_or(0, |code| u16::from_le_bytes(*code));
    let words = match bytes.0 {
        [b'#', _, _, _, _, _, words @ ..] => words,
        words => words,
    };
    let words = words.get(..words.len().min(4096)).unwrap_or(words);
    Fault::Server { code, message: String::from_utf8_lossy(words).into_owned() }
}

/// The name of a column: the fifth text of its description, after the names of its catalogue,
/// database and table.
fn name_of(packet: &[u8]) -> Option<String> {
    let mut packet = Bytes(packet);
    for _ in 0..4 {
        packet.text()?;
    }
    let name = packet.text().filter(|name| name.len() <= LONGEST_NAME)?;
    Some(String::from_utf8_lossy(name).to_lowercase())
}

fn row(names: &[String], packet: &[u8]) -> Option<Fields> {
    let mut packet = Bytes(packet);
    let mut fields = Fields::new();
    for name in names {
        let value = if let [0xfb, rest @ ..] = packet.0 {
            packet.0 = rest;
            &[]
        } else {
            packet.text()?
        };
        // A character has four bytes at most.
        let value = String::from_utf8_lossy(value.get(..4 * LONGEST).unwrap_or(value));
        let value = match value.char_indices().nth(LONGEST) {
            Some((end, _)) => value.get(..end).unwrap_or_default().to_owned(),
            None => value.into_owned(),
        };
        fields.insert(name.clone(), value);
    }
    packet.0.is_empty().then_some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bytes_make_a_reader_panic() {
        let mut rng = fastrand::Rng::with_seed(11);
        let names = ["a".to_owned(), "b".to_owned()];
        for _ in 0..20_000 {
            let bytes: Vec<u8> =
                (0..rng.usize(0..80)).map(|_| if rng.bool() { rng.u8(..) } else { 0xfe }).collect();
            let greeting = [&[10][..], &bytes].concat();
            let _ =
                (Greeting::of(&greeting), name_of(&bytes), row(&names, &bytes), refusal(&bytes));
            let _ = (Bytes(&bytes).length(), key::Key::of(&bytes));
        }
    }

    #[test]
    fn lengths_and_rows_are_read_as_the_manual_has_them() {
        let number = |bytes: &[u8]| Bytes(bytes).length();
        assert_eq!(number(&[250]), Some(250));
        assert_eq!(number(&[0xfc, 0xfb, 0]), Some(251));
        assert_eq!(number(&[0xfd, 1, 0, 1]), Some(65_537));
        assert_eq!(number(&[0xfe, 1, 0, 0, 0, 0, 0, 0, 0]), Some(1));
        assert_eq!((number(&[0xfe, 1, 0]), number(&[0xff]), number(&[])), (None, None, None));
        let names = ["a".to_owned(), "b".to_owned()];
        let fields = row(&names, b"\x01x\xfb").expect("a row");
        assert_eq!((fields["a"].as_str(), fields["b"].as_str()), ("x", ""));
        assert!(row(&names, b"\x01x").is_none() && row(&names, b"\x01x\xfb\xfb").is_none());
        let long = [&[0xfd, 0x40, 0x9c, 0][..], "é".repeat(20_000).as_bytes(), b"\0"].concat();
        assert_eq!(row(&names, &long).expect("a row")["a"].chars().count(), LONGEST);
    }
}
