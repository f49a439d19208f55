//! How a snapshot lies in an archive: the text form of `snapshot/encoding.rs`, compressed, and
//! beside it the same of the brief snapshot.
//!
//! A body is a zlib stream (RFC 1950) of the text form. zlib because it is in the standard library
//! of every language that may want to read an archive, because it is written in Rust without unsafe
//! code, and because the program has it in it anyway. Of a generated day of a PostgreSQL with 5,000
//! statements (`tests/it/day`) a snapshot is 1.8 MB of text, 250 KB as a body and 20 KB as a brief
//! one.
//!
//! Invariant: no stream makes the reader hold more than the largest snapshot there may be.

use miniz_oxide::deflate::compress_to_vec_zlib;
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;

use crate::repository::listing::MOST_BYTES;
use crate::{Error, Result, Snapshot};

/// Beyond this the size falls by a few per cent and the time doubles.
const LEVEL: u8 = 5;

/// The bytes of a snapshot in an archive.
pub(super) fn pack(snapshot: &Snapshot) -> Vec<u8> {
    compress_to_vec_zlib(snapshot.to_json().as_bytes(), LEVEL)
}

/// The snapshot in these bytes; `place` says in errors where they came from.
pub(super) fn unpack(bytes: &[u8], place: &str) -> Result<Snapshot> {
    unpack_within(bytes, usize::try_from(MOST_BYTES).unwrap_or(usize::MAX), place)
}

fn unpack_within(bytes: &[u8], most: usize, place: &str) -> Result<Snapshot> {
    let damaged = |reason: String| Error::Damaged { place: place.to_owned(), reason };
    let text =
        decompress_to_vec_zlib_with_limit(bytes, most).map_err(|error| match error.status {
            TINFLStatus::HasMoreOutput => damaged(format!("it is larger than {most} bytes")),
            _ => damaged(format!("its {} bytes are no whole zlib stream", bytes.len())),
        })?;
    let text = std::str::from_utf8(&text)
        .map_err(|error| damaged(format!("byte {} is not UTF-8 text", error.valid_up_to())))?;
    Snapshot::from_json(text, place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    #[test]
    fn no_change_of_a_byte_and_no_early_end_gets_through() {
        let mut snapshot =
            Snapshot::at(Source { path: "/x".to_owned(), ..Source::default() }, 5, 6);
        for n in 0..40 {
            snapshot.add_counter(&format!("counter {n}"), "rows", n * 1_000_003);
        }
        let packed = pack(&snapshot);
        assert!(packed.len() * 3 < snapshot.to_json().len(), "{} bytes", packed.len());
        assert_eq!(unpack(&packed, "here").expect("whole"), snapshot);
        for at in 0..packed.len() {
            let mut changed = packed.clone();
            changed[at] ^= 0x10;
            // Some bits of the header and some that fill the last byte before the checksum say
            // nothing.
            let read = unpack(&changed, "here");
            assert!(read.is_err() || read.is_ok_and(|read| read == snapshot), "byte {at}");
            let error = unpack(&packed[..at], "here").expect_err("the end is missing").to_string();
            assert!(error.contains("here"), "{error}");
        }
    }

    #[test]
    fn a_stream_that_grows_without_end_is_refused() {
        let bomb = compress_to_vec_zlib(&vec![0u8; 200_000], 1);
        let error = unpack_within(&bomb, 100_000, "bomb").expect_err("too large").to_string();
        assert!(error.contains("larger than 100000 bytes"), "{error}");
        assert!(error.contains("bomb"), "{error}");
    }
}
