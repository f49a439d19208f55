//! A server's RSA key, for which alone a password is readable on a connection that others may read.
//!
//! MySQL sends it as text (PEM, SubjectPublicKeyInfo of RFC 5280, or RSAPublicKey of RFC 8017). It
//! is taken apart here, strictly, because the library that seals (RSAES-OAEP of RFC 8017) trusts
//! the form and the size of a key.
//!
//! Deliberately absent: whose key it is. Without TLS a client cannot know that of one that was sent
//! (`tls/password.rs`).

use std::io::Read;
use std::path::Path;

use base64::Engine as _;
use mysql_common::crypto::{der, rsa};

use super::super::tls::Refusal;

/// The sizes of the modulus that are used, in bytes: 1024 to 8192 bits.
const SIZES: std::ops::RangeInclusive<usize> = 128..=1024;
/// What the padding takes of a block, in bytes.
const PADDING: usize = 42;
/// The longest text of a key.
const LONGEST: usize = 8192;

/// A key: modulus and exponent, without leading zeros.
pub(super) struct Key {
    modulus: Vec<u8>,
    exponent: Vec<u8>,
}

impl Key {
    /// The key of a file that the user named.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn in_file(path: &Path) -> Result<Key, Refusal> {
        let mut text = Vec::new();
        let read = std::fs::File::open(path)
            .and_then(|file| file.take(LONGEST as u64 + 1).read_to_end(&mut text));
        let wrong = |reason: String| {
            let reason = format!("server-public-key-path names {}, {reason}", path.display());
            Refusal::new(
                crate::figure::visible(&reason),
                "Copy public_key.pem from the server's data directory",
            )
        };
        read.map_err(|error| wrong(format!("which cannot be read: {error}")))?;
        Key::of(&text)
            .ok_or_else(|| wrong("which is not an RSA key of 1024 to 8192 bits in PEM".to_owned()))
    }

    /// A key, if the text is one.
    pub(super) fn of(text: &[u8]) -> Option<Key> {
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= LONGEST)?;
        let body = |kind: &str| {
            let (_, rest) = text.split_once(&format!("-----BEGIN {kind}-----"))?;
            let (body, _) = rest.split_once(&format!("-----END {kind}-----"))?;
            let body: String = body.split_ascii_whitespace().collect();
            base64::engine::general_purpose::STANDARD.decode(body).ok()
        };
        if let Some(bytes) = body("RSA PUBLIC KEY") {
            return Key::of_integers(&bytes);
        }
        let bytes = body("PUBLIC KEY")?;
        let (info, _) = element(0x30, &bytes)?;
        let (_algorithm, rest) = element(0x30, info)?;
        let (bits, _) = element(0x03, rest)?;
        // The first byte says how many bits of the last are unused.
        Key::of_integers(bits.strip_prefix(&[0])?)
    }

    fn of_integers(bytes: &[u8]) -> Option<Key> {
        let (pair, _) = element(0x30, bytes)?;
        let (modulus, rest) = element(0x02, pair)?;
        let (exponent, _) = element(0x02, rest)?;
        let bare =
            |bytes: &[u8]| bytes.iter().copied().skip_while(|byte| *byte == 0).collect::<Vec<u8>>();
        let key = Key { modulus: bare(modulus), exponent: bare(exponent) };
        let odd = |bytes: &[u8]| bytes.last().is_some_and(|byte| byte % 2 == 1);
        let whole = key.modulus.first().is_some_and(|byte| *byte >= 0x80);
        let usable = SIZES.contains(&key.modulus.len()) && whole && odd(&key.modulus);
        (usable && key.exponent.len() <= 4 && odd(&key.exponent)).then_some(key)
    }

    /// Bytes that only the owner of the key reads; none if they are too many for it.
    pub(super) fn seal(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        if bytes.len() + PADDING > self.modulus.len() {
            return None;
        }
        // The library's numbers have no name here: it reads them from the form that `integer` gives
        // them.
        let (modulus, exponent) = (integer(&self.modulus)?, integer(&self.exponent)?);
        let key = rsa::PublicKey::new(der::parse_uint(&modulus).0, der::parse_uint(&exponent).0);
        Some(key.encrypt_block(bytes, rsa::Pkcs1OaepPadding::new(rsa::GetRandom)))
    }
}

/// The content of the element that begins the bytes, which must be of this kind, and what comes
/// after it.
fn element(kind: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first().filter(|_| *head == kind)?;
    match first {
        short @ ..=0x7f => rest.split_at_checked(usize::from(*short)),
        0x81 => {
            let (length, rest) = rest.split_first()?;
            rest.split_at_checked(usize::from(*length))
        }
        0x82 => {
            let (length, rest) = rest.split_first_chunk::<2>()?;
            rest.split_at_checked(usize::from(length[0]) << 8 | usize::from(length[1]))
        }
        _ => None,
    }
}

/// A number as an element.
fn integer(bytes: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(bytes.len()).ok()?;
    let length = [(length >> 8) as u8, (length & 0xff) as u8];
    Some([&[0x02, 0x82][..], &length, bytes].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made for this test.
    const TEXT: &str = "-----BEGIN PUBLIC KEY-----\n\
        MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAvOkMe3lIRfKYyzwWU0Du\n\
        5o99dxYadhEV6061TbGcrUTnlH3ng/M34qALdOnyR7JdlVRlMjn5OyxNYUZ4ugkx\n\
        6H38Apc4IETS6iFgDeqrOR4nVH4fXjBx4vTIQOGNnywYWJze6TQdfY6UgUQShLdH\n\
        hIL1iblWKAwF97b7OfzUjiEx2IRvoeU694vxSrrE042VmdJsI6K7UqtuZk1+ek6N\n\
        HDz0vu1Qd3c7fg9gbiGBTAk1+ziA3hMtpTfDvkhZY4XkpskW3YFDRTsW07mdlI71\n\
        xby/ju22by8hmkLcuxA6lx+sWsyPvgb/z79qGYINNEO3sg734K4ZOMwmlOv7FFVq\n\
        AwIDAQAB\n\
        -----END PUBLIC KEY-----";

    #[test]
    fn a_key_is_read_and_seals_what_fits_and_a_damaged_one_is_none() {
        let key = Key::of(TEXT.as_bytes()).expect("a key");
        assert_eq!((key.modulus.len(), key.exponent.as_slice()), (256, &[1, 0, 1][..]));
        let (bytes, kind) = der::pem_to_der(TEXT);
        let (modulus, exponent) = der::parse_pub_key(&bytes, kind);
        assert_eq!(
            (modulus.to_bytes_be(), exponent.to_bytes_be()),
            (key.modulus.clone(), key.exponent.clone())
        );
        assert_eq!(key.seal(b"hunter2\0").map(|sealed| sealed.len()), Some(256));
        assert!(key.seal(&[0; 256 - PADDING + 1]).is_none());
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..2_000 {
            let mut damaged = TEXT.as_bytes().to_vec();
            let at = rng.usize(..damaged.len());
            damaged[at] = rng.u8(..);
            if let Some(key) = Key::of(&damaged) {
                // Another key, whole: it can be used.
                assert!(SIZES.contains(&key.modulus.len()) && key.exponent.len() <= 4);
            }
            let _ = Key::of(&damaged[..at]);
        }
    }
}
