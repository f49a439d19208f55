//! Traces: which block of which file was asked for, one request after the other.
//!
//! # The format of a recorded trace, `.tstrace`
//! All little-endian. 16 bytes: the magic `tsmtrac1`, bytes of a block (u32), zeros (u32). Then 8
//! bytes a request:
//!
//! | bits | hold |
//! |---|---|
//! | 0..40 | number of the block in its file |
//! | 40..63 | number of the file |
//! | 63 | 1: a write |
//!
//! `record.py` beside this file makes one from the system calls of a running database.
//!
//! # The two public traces
//! `w106.trace` is what `xz -d` makes of `cloud_physics/w106.trace.xz` in the Maven artifact
//! `com.github.ben-manes.caffeine:simulator:3.1.8`: a block's number (u32) for each request.
//! `cloudPhysicsIO.oracleGeneral.bin` is in the source package of `libcachesim` 0.3.5 on PyPI: 24
//! bytes a request, the number at byte 4. Neither tells reads from writes. They are not in this
//! tree: one is under another licence.
//!
//! Deliberately absent: time. A policy is told how many requests there were, and nothing else.

use std::path::Path;

const MAGIC: &[u8; 8] = b"tsmtrac1";
const FILE_SHIFT: u32 = 40;
const BLOCK_MASK: u64 = (1 << FILE_SHIFT) - 1;
const WRITE: u64 = 1 << 63;

/// A trace whose blocks are numbered without gaps, in the order of file and block.
pub(crate) struct Trace {
    pub(crate) name: String,
    /// A block for each request.
    pub(crate) requests: Vec<u32>,
    /// How many blocks there are.
    pub(crate) blocks: usize,
    /// Requests that write.
    pub(crate) writes: usize,
    /// It was taken behind a database's buffer, so none is put in front of it.
    pub(crate) behind_buffer: bool,
}

impl Trace {
    /// Reads a trace.
    ///
    /// # Errors
    /// When the file cannot be read, is of no format known here, or ends within a request.
    pub(crate) fn read(path: &Path) -> Result<Trace, String> {
        let file_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = std::fs::read(path)
            .map_err(|e| format!("cannot read the trace {}: {e}", path.display()))?;
        let words = if file_name.ends_with(".tstrace") {
            recorded(path, &bytes)?
        } else if file_name.ends_with(".oracleGeneral.bin") {
            let records = records::<24>(path, &bytes)?;
            records.map(|r| u64_at(&r[4..12]) & BLOCK_MASK).collect()
        } else if file_name.ends_with(".trace") {
            let numbers = records::<4>(path, &bytes)?;
            numbers.map(|r| u64::from(u32::from_le_bytes([r[0], r[1], r[2], r[3]]))).collect()
        } else {
            return Err(format!(
                "{} is no trace known here: its name must end in .tstrace, .oracleGeneral.bin or \
                 .trace",
                path.display()
            ));
        };
        let name = file_name.split('.').next().unwrap_or_default().to_owned();
        Ok(Trace::of(name, &words, file_name.ends_with(".tstrace")))
    }

    /// The trace of these words of the format above.
    pub(crate) fn of(name: String, words: &[u64], behind_buffer: bool) -> Trace {
        let mut all: Vec<u64> = words.iter().map(|word| word & !WRITE).collect();
        let requests_of = all.clone();
        all.sort_unstable();
        all.dedup();
        let number =
            |block: &u64| all.binary_search(block).expect("BUG: every block was collected") as u32;
        Trace {
            name,
            requests: requests_of.iter().map(number).collect(),
            blocks: all.len(),
            writes: words.iter().filter(|word| **word & WRITE != 0).count(),
            behind_buffer,
        }
    }
}

fn recorded(path: &Path, bytes: &[u8]) -> Result<Vec<u64>, String> {
    let Some((header, rest)) =
        bytes.split_at_checked(16).filter(|(header, _)| header.starts_with(MAGIC))
    else {
        return Err(format!(
            "{} is no recorded trace: it does not begin with the 16 bytes of a header; record it \
             again",
            path.display()
        ));
    };
    if u32::from_le_bytes([header[8], header[9], header[10], header[11]]) == 0 {
        return Err(format!(
            "{} says that its blocks have 0 bytes; record it again",
            path.display()
        ));
    }
    Ok(records::<8>(path, rest)?.map(|record| u64_at(&record)).collect())
}

fn u64_at(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("BUG: eight bytes were cut out"))
}

/// Records of `N` bytes, each whole.
fn records<'a, const N: usize>(
    path: &Path,
    bytes: &'a [u8],
) -> Result<impl Iterator<Item = [u8; N]> + 'a, String> {
    let (whole, rest) = bytes.as_chunks::<N>();
    if !rest.is_empty() {
        return Err(format!(
            "the trace {} is cut: after {} requests of {N} bytes {} bytes are left; get or record \
             it again",
            path.display(),
            whole.len(),
            rest.len()
        ));
    }
    if whole.is_empty() {
        return Err(format!("the trace {} holds no request", path.display()));
    }
    Ok(whole.iter().copied())
}
