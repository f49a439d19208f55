//! Byte sizes as people write them: `64M`, `64MB`, `64MiB`, `1G`, `8192`.
//!
//! Deliberately absent: decimal units. K, M, G and T are powers of 1024, as in SLOB's and Oracle's
//! parameters, and so are KB and MB, as in PostgreSQL's.

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
        let end = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let (digits, unit) = trimmed.split_at(end);
        let unit = unit.trim_start().to_ascii_uppercase();
        let letter = ["IB", "B"].iter().find_map(|end| unit.strip_suffix(end)).unwrap_or(&unit);
        let factor = match letter {
            // Bytes; "iB" alone is nothing.
            "" if unit != "IB" => Some(1),
            letter => UNITS
                .iter()
                .find(|(known, _)| letter == known.to_string())
                .map(|(_, factor)| *factor),
        };
        let number = digits.parse::<u64>().ok();
        number
            .zip(factor)
            .and_then(|(number, factor)| number.checked_mul(factor))
            .map(ByteSize)
            .ok_or_else(|| {
                format!(
                    "`{text}` is not a size; write a number of bytes, or one with K, M, G or T \
                        behind it"
                )
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
        for (text, bytes) in
            [("64M", 64 << 20), ("1g", 1 << 30), ("8192", 8192), (" 3 K ", 3072), ("0", 0)]
        {
            assert_eq!(text.parse::<ByteSize>(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["256M", "256MB", "256MiB", "256 mb", "268435456", "268435456B"] {
            assert_eq!(text.parse::<ByteSize>(), Ok(ByteSize(256 << 20)), "{text}");
        }
        assert_eq!(ByteSize(64 << 20).to_string(), "64M");
        assert_eq!(ByteSize(1000).to_string(), "1000");
    }

    #[test]
    fn what_is_no_size_is_refused_with_a_sentence() {
        for text in [
            "",
            "M",
            "-1",
            "1.5G",
            "99999999999T",
            "8 potatoes",
            "é",
            "1iB",
            "1BB",
            "1MBB",
            "1 M B",
            "MB",
        ] {
            let error = text.parse::<ByteSize>().unwrap_err();
            assert!(error.contains("is not a size"), "{text}: {error}");
        }
    }
}
