//! Byte sizes as people write them: `64M`, `1G`, `8192`.
//!
//! Deliberately absent: decimal units. K, M, G and T are powers of 1024, as in SLOB's and Oracle's parameters.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

/// Factors by their letters.
const UNITS: [(char, u64); 4] = [('T', 1 << 40), ('G', 1 << 30), ('M', 1 << 20), ('K', 1 << 10)];

impl ByteSize {
    /// The number.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        let letter = trimmed.chars().last().map(|c| c.to_ascii_uppercase());
        let factor = UNITS.iter().find(|(unit, _)| Some(*unit) == letter).map_or(1, |(_, factor)| *factor);
        let digits = if factor > 1 { &trimmed[..trimmed.len() - 1] } else { trimmed };
        digits
            .trim()
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(factor))
            .map(ByteSize)
            .ok_or_else(|| {
                format!("`{text}` is not a size; write a number of bytes, or one with K, M, G or T behind it")
            })
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, factor)| self.0 > 0 && self.0.is_multiple_of(*factor)) {
            Some((unit, factor)) => f.pad(&format!("{}{unit}", self.0 / factor)),
            None => f.pad(&self.0.to_string()),
        }
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Given {
            Number(u64),
            Text(String),
        }
        match Given::deserialize(deserializer)? {
            Given::Number(bytes) => Ok(ByteSize(bytes)),
            Given::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_read_and_printed_alike() {
        for (text, bytes) in [("64M", 64 << 20), ("1g", 1 << 30), ("8192", 8192), (" 3 K ", 3072), ("0", 0)] {
            assert_eq!(text.parse::<ByteSize>(), Ok(ByteSize(bytes)), "{text}");
        }
        assert_eq!(ByteSize(64 << 20).to_string(), "64M");
        assert_eq!(ByteSize(1000).to_string(), "1000");
    }

    #[test]
    fn what_is_no_size_is_refused_with_a_sentence() {
        for text in ["", "M", "-1", "1.5G", "99999999999T", "8 potatoes", "é"] {
            let error = text.parse::<ByteSize>().unwrap_err();
            assert!(error.contains("is not a size"), "{text}: {error}");
        }
    }
}
