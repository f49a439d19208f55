//! The checker's own reader of the log of a member on flash: what the records say is laid over what
//! the pages say (invariant 23).
//!
//! **Invariant**: memory is in proportion to the log, whose records are read no further than its
//! ring.

use std::collections::BTreeMap;
use std::io;

use super::at::log as at;
use super::seal::{checksum, u32_at, u64_at};
use super::source::Source;
use crate::medium::hash_bytes;

const HEADER: u64 = 4096;
const RING_AT: u64 = 2 * HEADER;
const LINE: u64 = 64;

/// Where the log is.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogAt {
    pub(super) at: u64,
    pub(super) len: u64,
    pub(super) sector: u64,
    pub(super) seed: u64,
    pub(super) uuid: [u8; 16],
    /// Records speak of what lies behind this.
    pub(super) front: u64,
}

/// A member as it is when its log has been applied.
pub(super) struct Logged<'s> {
    source: &'s dyn Source,
    lines: BTreeMap<u64, [u8; LINE as usize]>,
}

/// The parts of a record.
struct Record {
    runs: Vec<(u64, Vec<u8>)>,
    blocks: Vec<[u64; 3]>,
}

impl<'s> Logged<'s> {
    /// Reads a log. The second part says what is wrong with it.
    pub(super) fn read(source: &'s dyn Source, log: &LogAt) -> (Self, Option<String>) {
        let mut logged = Self { source, lines: BTreeMap::new() };
        let wrong = logged.apply(log).unwrap_or_else(|e| Some(format!("cannot be read: {e}")));
        (logged, wrong)
    }

    fn apply(&mut self, log: &LogAt) -> io::Result<Option<String>> {
        let ring = log.len.saturating_sub(RING_AT);
        let mut space = Vec::new();
        let headers = self.source.view(log.at, RING_AT as usize, &mut space)?;
        let heads = headers.chunks(HEADER as usize).filter_map(|copy| header(copy, log));
        let newest = heads.max_by_key(|(generation, _)| *generation);
        let Some((_, head)) = newest.filter(|(_, head)| head.is_multiple_of(log.sector)) else {
            return Ok(Some("neither copy of its header is whole".into()));
        };
        let (mut position, mut last) = (head, None);
        while let Some((record, len)) = self.record(log, ring, position, head)? {
            // An older one counts, whatever its blocks have become since.
            if let Some(older) = last.replace(record)
                && let Some(wrong) = self.lay_over(&older, log)
            {
                return Ok(Some(wrong));
            }
            position += len;
        }
        Ok(last
            .filter(|newest| self.has_its_blocks(newest, log.seed))
            .and_then(|newest| self.lay_over(&newest, log)))
    }

    /// The record at a position, and how far the next one is from it.
    fn record(
        &self,
        log: &LogAt,
        ring: u64,
        position: u64,
        head: u64,
    ) -> io::Result<Option<(Record, u64)>> {
        let first = self.ring(log, ring, position, log.sector)?;
        let is_one = &first[at::MAGIC] == b"TSLOGREC" && u64_at(&first, at::POSITION) == position;
        let len = u64_at(&first, at::LEN);
        let padded = len.checked_next_multiple_of(log.sector);
        let fits = padded.filter(|padded| *padded <= ring && position + padded <= head + ring);
        let Some(padded) = fits.filter(|_| is_one && len >= at::RUNS_AT as u64) else {
            return Ok(None);
        };
        let bytes = self.ring(log, ring, position, padded)?;
        let bytes = &bytes[..len as usize];
        if checksum(&bytes[at::POSITION..], log.seed) != u64_at(bytes, at::CHECK) {
            return Ok(None);
        }
        Ok(parts(bytes).map(|record| (record, padded)))
    }

    fn ring(&self, log: &LogAt, ring: u64, position: u64, len: u64) -> io::Result<Vec<u8>> {
        let from = position % ring;
        let before_end = len.min(ring - from);
        let (mut space, mut bytes) = (Vec::new(), Vec::new());
        let start = log.at + RING_AT;
        bytes.extend_from_slice(self.source.view(start + from, before_end as usize, &mut space)?);
        bytes.extend_from_slice(self.source.view(
            start,
            (len - before_end) as usize,
            &mut space,
        )?);
        Ok(bytes)
    }

    fn has_its_blocks(&self, record: &Record, seed: u64) -> bool {
        record.blocks.iter().all(|[offset, len, hash]| {
            let mut space = Vec::new();
            let inside = offset.checked_add(*len).is_some_and(|end| end <= self.source.len());
            // A block that cannot be read may have been acknowledged.
            inside
                && self
                    .source
                    .block(*offset, *len as usize, &mut space)
                    .map_or(true, |block| hash_bytes(block, seed) == *hash)
        })
    }

    fn lay_over(&mut self, record: &Record, log: &LogAt) -> Option<String> {
        for (offset, bytes) in &record.runs {
            let end =
                offset.checked_add(bytes.len() as u64).filter(|end| *end <= self.source.len());
            let aligned = offset.is_multiple_of(LINE) && (bytes.len() as u64).is_multiple_of(LINE);
            let in_log = end.is_some_and(|end| *offset < log.at + log.len && end > log.at);
            if end.is_none() || !aligned || in_log || *offset < log.front {
                return Some(format!(
                    "a record changes {} bytes at {offset}, where no metadata is",
                    bytes.len()
                ));
            }
            for (n, line) in bytes.as_chunks().0.iter().enumerate() {
                self.lines.insert(offset / LINE + n as u64, *line);
            }
        }
        None
    }
}

fn header(bytes: &[u8], log: &LogAt) -> Option<(u64, u64)> {
    let is_ours = bytes.get(at::MAGIC)? == b"TSLOGHDR"
        && bytes.get(at::UUID)? == log.uuid
        && checksum(bytes.get(..at::HEADER_CHECK)?, log.seed) == u64_at(bytes, at::HEADER_CHECK);
    let (generation, head) = (u64_at(bytes, at::GENERATION), u64_at(bytes, at::HEAD));
    (is_ours && generation < 1 << 62 && head < 1 << 62).then_some((generation, head))
}

fn parts(bytes: &[u8]) -> Option<Record> {
    let (runs, blocks) = (u32_at(bytes, at::RUNS), u32_at(bytes, at::BLOCKS));
    let mut record = Record { runs: Vec::new(), blocks: Vec::new() };
    let mut rest = bytes.get(at::RUNS_AT..)?;
    for _ in 0..runs {
        let (run, after) = rest.split_at_checked(at::RUN_BYTES)?;
        let (data, after) =
            after.split_at_checked(usize::try_from(u64_at(run, at::RUN_LEN)).ok()?)?;
        record.runs.push((u64_at(run, at::RUN_OFFSET), data.to_vec()));
        rest = after;
    }
    for _ in 0..blocks {
        let (block, after) = rest.split_at_checked(at::BLOCK_BYTES)?;
        record.blocks.push(at::BLOCK_NUMBERS.map(|at| u64_at(block, at)));
        rest = after;
    }
    Some(record)
}

impl Source for Logged<'_> {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn view<'a>(&'a self, at: u64, len: usize, space: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        let mut read = Vec::new();
        let end = at.saturating_add(len as u64);
        let lines = at / LINE..end.div_ceil(LINE);
        if self.lines.range(lines.clone()).next().is_none() {
            return self.source.view(at, len, space);
        }
        let found = self.source.view(at, len, &mut read)?;
        space.clear();
        space.extend_from_slice(found);
        for (number, line) in self.lines.range(lines) {
            let from = number * LINE;
            let (first, last) = (from.max(at), (from + LINE).min(end));
            space[(first - at) as usize..(last - at) as usize]
                .copy_from_slice(&line[(first - from) as usize..(last - from) as usize]);
        }
        Ok(space)
    }

    fn block<'a>(&'a self, at: u64, len: usize, space: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        self.source.block(at, len, space)
    }
}
