//! A certificate as a message shows it and as a name is looked for in it: the parts of X.509 that
//! are read here (RFC 5280).
//!
//! Whether a chain of certificates holds is decided by the TLS library (`verifier.rs`). Besides
//! that this file is needed because the library reads no certificate of version 1, which
//! `openssl x509 -req` made for years and the manuals of the databases tell to make, and no common
//! name; and because an error should say which certificate it is about.
//!
//! Deliberately absent: extensions but those for names, revocation, building chains.
//!
//! Invariant: no bytes make a reader panic, and what is not understood is no certificate.

use std::net::IpAddr;

use rustls::pki_types::SignatureVerificationAlgorithm;

use crate::figure::visible;

/// The most names that are read of a certificate.
const MOST_NAMES: usize = 1_000;
/// How many names a message has.
const SHOWN_NAMES: usize = 5;
/// The longest name in a message, in characters.
const LONGEST_SHOWN: usize = 120;

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
const NAME_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x1e];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const BITS: u8 = 0x03;
const OCTETS: u8 = 0x04;
const OBJECT: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;

/// A day and time of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    /// Seconds since 1970; what is before is 0.
    pub(super) unix_s: u64,
    date: (u64, u64, u64),
}

impl std::fmt::Display for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (year, month, day) = self.date;
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

/// A certificate that was taken apart. Nothing in it is proven.
#[derive(Debug)]
pub(super) struct Certificate<'a> {
    whole: &'a [u8],
    /// What its issuer signed.
    signed: &'a [u8],
    signature_way: &'a [u8],
    signature: &'a [u8],
    pub(super) version: u8,
    issuer: &'a [u8],
    subject: &'a [u8],
    pub(super) from: Moment,
    pub(super) until: Moment,
    key_kind: &'a [u8],
    key: &'a [u8],
    extensions: Vec<(&'a [u8], &'a [u8])>,
    hosts: Vec<&'a [u8]>,
    addresses: Vec<IpAddr>,
}

impl<'a> Certificate<'a> {
    /// Takes it apart.
    pub(super) fn of(whole: &'a [u8]) -> Option<Certificate<'a>> {
        let mut outside = Der(Der(whole).only(SEQUENCE)?);
        let (_, body, signed) = outside.next().filter(|(kind, ..)| *kind == SEQUENCE)?;
        let signature_way = outside.take(SEQUENCE)?;
        let signature = outside.only_bits()?;
        let mut body = Der(body);
        let version = match body.take(0xa0) {
            Some(version) => match Der(version).only(INTEGER)? {
                [number @ 0..=2] => number + 1,
                _ => return None,
            },
            None => 1,
        };
        body.take(INTEGER)?;
        body.take(SEQUENCE)?;
        let issuer = body.take(SEQUENCE)?;
        let mut validity = Der(body.take(SEQUENCE)?);
        let (from, until) = (validity.moment()?, validity.moment()?);
        let subject = body.take(SEQUENCE)?;
        let mut key = Der(body.take(SEQUENCE)?);
        let (key_kind, key) = (key.take(SEQUENCE)?, key.only_bits()?);
        // Numbers of issuer and subject, which nobody uses.
        let _ = (body.take(0x81), body.take(0x82));
        let mut certificate = Certificate {
            whole,
            signed,
            signature_way,
            signature,
            version,
            issuer,
            subject,
            from,
            until,
            key_kind,
            key,
            extensions: Vec::new(),
            hosts: Vec::new(),
            addresses: Vec::new(),
        };
        if let Some(extensions) = body.take(0xa3) {
            certificate.extensions(Der(extensions).only(SEQUENCE)?)?;
        }
        body.0.is_empty().then_some(certificate)
    }

    fn extensions(&mut self, all: &'a [u8]) -> Option<()> {
        let mut all = Der(all);
        while !all.0.is_empty() {
            let mut one = Der(all.take(SEQUENCE)?);
            let name = one.take(OBJECT)?;
            // Whether it is critical.
            let _ = one.take(BOOLEAN);
            let value = one.only(OCTETS)?;
            self.extensions.push((name, value));
            if name == ALTERNATIVE_NAMES {
                let mut names = Der(Der(value).only(SEQUENCE)?);
                while let Some((kind, name, _)) = names.next() {
                    if self.hosts.len() + self.addresses.len() >= MOST_NAMES {
                        return None;
                    }
                    match kind {
                        0x82 => self.hosts.push(name),
                        0x87 => self.addresses.extend(address(name)),
                        _ => {}
                    }
                }
            }
        }
        Some(())
    }

    /// Whether it is this one, byte by byte.
    pub(super) fn is(&self, other: &[u8]) -> bool {
        self.whole == other
    }

    /// Whether an instant is one of its days.
    pub(super) fn is_valid_at(&self, unix_s: u64) -> bool {
        (self.from.unix_s..=self.until.unix_s).contains(&unix_s)
    }

    /// Whether it names itself as its issuer.
    pub(super) fn is_by_itself(&self) -> bool {
        self.subject == self.issuer
    }

    /// Whether it is an authority's, as OpenSSL decides it: it says so; or it is of version 1 and
    /// signed itself. Another server's own certificate in a file of trusted ones is trusted for
    /// that server alone, and must not sign for others.
    pub(super) fn may_sign(&self) -> bool {
        if self.version < 3 {
            return self.is_by_itself();
        }
        let value = |wanted: &[u8]| {
            self.extensions.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value)
        };
        // The sixth bit; the first byte says how many bits of the last are unused.
        let usage = value(KEY_USAGE)
            .map(|usage| matches!(Der(usage).only(BITS), Some([_, bits, ..]) if bits & 0x04 != 0));
        match value(BASIC_CONSTRAINTS) {
            Some(constraints) => {
                let says =
                    Der(constraints).only(SEQUENCE).and_then(|inside| Der(inside).take(BOOLEAN));
                says.is_some_and(|says| says != [0]) && usage != Some(false)
            }
            None => usage == Some(true),
        }
    }

    /// Whether it limits the names below it.
    pub(super) fn constrains_names(&self) -> bool {
        self.extensions.iter().any(|(name, _)| *name == NAME_CONSTRAINTS)
    }

    /// Whether another certificate's owner signed it.
    pub(super) fn is_signed_by(
        &self,
        issuer: &Certificate<'_>,
        ways: &[&dyn SignatureVerificationAlgorithm],
    ) -> bool {
        self.issuer == issuer.subject
            && ways.iter().any(|way| {
                way.signature_alg_id().as_ref() == self.signature_way
                    && issuer.has_signed(*way, self.signed, self.signature)
            })
    }

    /// Whether its owner signed a message in this way.
    pub(super) fn has_signed(
        &self,
        way: &dyn SignatureVerificationAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        way.public_key_alg_id().as_ref() == self.key_kind
            && way.verify_signature(self.key, message, signature).is_ok()
    }

    /// Whether it is for this host, after RFC 6125 as libpq does it: a star stands for one whole
    /// first label; an address may be written as a name; `common` lets the common name count where
    /// no name of the host's kind is given.
    pub(super) fn is_for(&self, host: &str, common: bool) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        let address = host.parse::<IpAddr>().ok();
        if address.is_some_and(|address| self.addresses.contains(&address)) {
            return true;
        }
        let matches = |name: &[u8]| {
            if name.eq_ignore_ascii_case(host.as_bytes()) {
                return true;
            }
            let (Some(domain), Some((first, rest))) =
                (name.strip_prefix(b"*."), host.split_once('.'))
            else {
                return false;
            };
            // No star for a whole top-level domain, and none for the parts of an address.
            address.is_none()
                && !first.is_empty()
                && domain.contains(&b'.')
                && domain.eq_ignore_ascii_case(rest.as_bytes())
        };
        let named = !self.hosts.is_empty() || (address.is_some() && !self.addresses.is_empty());
        self.hosts.iter().any(|name| matches(name))
            || (common && !named && self.common_name_bytes().is_some_and(matches))
    }

    fn common_name_bytes(&self) -> Option<&'a [u8]> {
        common_name(self.subject)
    }

    /// The names that it is for, as a message shows them.
    pub(super) fn names(&self) -> String {
        let mut names: Vec<String> = self.hosts.iter().map(|name| shown(name)).collect();
        names.extend(self.addresses.iter().map(IpAddr::to_string));
        if names.is_empty() {
            return "no name but its common name".to_owned();
        }
        let more = names.len().saturating_sub(SHOWN_NAMES);
        names.truncate(SHOWN_NAMES);
        match more {
            0 => names.join(", "),
            more => format!("{} and {more} more", names.join(", ")),
        }
    }

    /// Which one it is, as a message shows it.
    pub(super) fn described(&self) -> String {
        let name = |name: &'a [u8]| common_name(name).map_or("(no common name)".to_owned(), shown);
        let (subject, issuer) = (name(self.subject), name(self.issuer));
        let by = if self.is_by_itself() { "itself".to_owned() } else { format!("`{issuer}`") };
        format!("`{subject}`, issued by {by}, valid from {} to {}", self.from, self.until)
    }

    /// The hash that a login is bound to a connection by (tls-server-end-point of RFC 5929): that
    /// of the signature, and SHA-256 where that is MD5 or SHA-1. None for ways to sign that have no
    /// one hash.
    pub(super) fn binding(&self) -> Option<Vec<u8>> {
        use sha2::Digest as _;
        let mut way = Der(self.signature_way);
        let hash = match way.take(OBJECT)? {
            // RSA with MD5, SHA-1, SHA-256, SHA-384, SHA-512.
            [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 4 | 5 | 11] => 256,
            [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 12] => 384,
            [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 13] => 512,
            // ECDSA with SHA-1, SHA-256, SHA-384, SHA-512.
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1] | [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2] => 256,
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3] => 384,
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4] => 512,
            _ => return None,
        };
        Some(match hash {
            256 => sha2::Sha256::digest(self.whole).to_vec(),
            384 => sha2::Sha384::digest(self.whole).to_vec(),
            _ => sha2::Sha512::digest(self.whole).to_vec(),
        })
    }
}

/// The first common name of a name.
fn common_name(name: &[u8]) -> Option<&[u8]> {
    let mut parts = Der(name);
    while !parts.0.is_empty() {
        let mut part = Der(Der(parts.take(SET)?).take(SEQUENCE)?);
        let kind = part.take(OBJECT)?;
        let (text, value, _) = part.next()?;
        // Texts of one byte a character and UTF-8.
        if kind == COMMON_NAME && matches!(text, 0x0c | 0x13 | 0x14 | 0x16) {
            return Some(value);
        }
    }
    None
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

fn shown(name: &[u8]) -> String {
    let name: String = String::from_utf8_lossy(name).chars().take(LONGEST_SHOWN).collect();
    visible(&name)
}

/// What is left of a list of elements.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next element: its kind, its content, and the whole of it.
    fn next(&mut self) -> Option<(u8, &'a [u8], &'a [u8])> {
        let (kind, rest) = self.0.split_first()?;
        let (first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            short @ ..=0x7f => (usize::from(*short), rest),
            0x81..=0x83 => {
                let (length, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
                (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        let whole = self.0.get(..self.0.len() - rest.len())?;
        self.0 = rest;
        Some((*kind, content, whole))
    }

    /// The content of the next element, if it is of this kind; else nothing is taken.
    fn take(&mut self, kind: u8) -> Option<&'a [u8]> {
        if self.0.first() != Some(&kind) {
            return None;
        }
        self.next().map(|(_, content, _)| content)
    }

    /// The content of the one element that is left.
    fn only(mut self, kind: u8) -> Option<&'a [u8]> {
        self.take(kind).filter(|_| self.0.is_empty())
    }

    /// The bytes of the string of bits that is left: the first byte says how many bits of the last
    /// are unused.
    fn only_bits(self) -> Option<&'a [u8]> {
        self.only(BITS)?.strip_prefix(&[0])
    }

    /// YYMMDDHHMMSSZ or YYYYMMDDHHMMSSZ.
    fn moment(&mut self) -> Option<Moment> {
        let (kind, text, _) = self.next()?;
        let digits =
            text.strip_suffix(b"Z").filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
        let number =
            |digits: &[u8]| digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
        let (year, rest) = match (kind, digits.len()) {
            (0x17, 12) => {
                let (year, rest) = digits.split_at_checked(2)?;
                let year = number(year);
                (if year < 50 { 2000 + year } else { 1900 + year }, rest)
            }
            (0x18, 14) => digits.split_at_checked(4).map(|(year, rest)| (number(year), rest))?,
            _ => return None,
        };
        let [month, day, hour, minute, second] =
            <[u64; 5]>::try_from(rest.chunks(2).map(number).collect::<Vec<_>>()).ok()?;
        if !(1..=12).contains(&month)
            || !(1..=31).contains(&day)
            || hour > 23
            || minute > 59
            || second > 60
        {
            return None;
        }
        // Years begin in March here, so that the leap day is the last of its year.
        let (y, m) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
        let days = y * 365 + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1;
        let unix_s = days.saturating_sub(719_468) * 86_400 + hour * 3600 + minute * 60 + second;
        let unix_s = if days < 719_468 { 0 } else { unix_s };
        Some(Moment { unix_s, date: (year, month, day) })
    }
}
