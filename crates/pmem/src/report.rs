//! What was found when a backing was mapped: for people (`Display`) and for machines
//! ([`Report::fields`]).
//!
//! Nothing here is assumed: each field is what the processor, the kernel or sysfs said at open.

use std::fmt;
use std::path::PathBuf;

use crate::Access;

/// The instruction that sends a cache line towards the persistence domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlushInstruction {
    /// x86-64: writes the line back and may keep it in the cache.
    Clwb,
    /// x86-64: writes the line back and drops it, weakly ordered.
    ClflushOpt,
    /// x86-64: writes the line back and drops it, one at a time.
    Clflush,
    /// aarch64: cleans to the point of persistence.
    DcCvap,
    /// aarch64: cleans to the point of coherency.
    DcCvac,
    /// None needed (the caches are in the persistence domain, or nothing is expected to survive) or
    /// none known.
    None,
}

impl FlushInstruction {
    /// The mnemonic.
    pub fn name(self) -> &'static str {
        match self {
            FlushInstruction::Clwb => "clwb",
            FlushInstruction::ClflushOpt => "clflushopt",
            FlushInstruction::Clflush => "clflush",
            FlushInstruction::DcCvap => "dc cvap",
            FlushInstruction::DcCvac => "dc cvac",
            FlushInstruction::None => "none",
        }
    }
}

/// Where data is safe from a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PersistenceDomain {
    /// From the memory controller's queues on (ADR): lines must be flushed.
    MemoryController,
    /// From the CPU caches on (eADR): no flush needed.
    CpuCache,
    /// Persistent, but the platform does not say from where; treated as `MemoryController`.
    Unknown,
    /// Nowhere: emulated or volatile.
    None,
}

impl PersistenceDomain {
    /// The word used in reports; for persistent memory, the kernel's own.
    pub fn name(self) -> &'static str {
        match self {
            PersistenceDomain::MemoryController => "memory_controller",
            PersistenceDomain::CpuCache => "cpu_cache",
            PersistenceDomain::Unknown => "unknown",
            PersistenceDomain::None => "none",
        }
    }
}

/// How bulk writes go past the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NonTemporal {
    /// One 64-byte store per line.
    Avx512,
    /// Two 32-byte stores per line.
    Avx2,
    /// Four 16-byte stores per line.
    Sse2,
    /// Cached stores, then a flush of each line: no such stores on this processor, or the memory is
    /// simulated.
    CachedThenFlush,
}

impl NonTemporal {
    /// Bytes per store.
    pub fn width(self) -> usize {
        match self {
            NonTemporal::Avx512 => 64,
            NonTemporal::Avx2 => 32,
            NonTemporal::Sse2 => 16,
            NonTemporal::CachedThenFlush => 8,
        }
    }

    /// The word used in reports.
    pub fn name(self) -> &'static str {
        match self {
            NonTemporal::Avx512 => "AVX-512",
            NonTemporal::Avx2 => "AVX2",
            NonTemporal::Sse2 => "SSE2",
            NonTemporal::CachedThenFlush => "cached stores then flush",
        }
    }
}

/// Whether the mapping can use 2 MiB pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HugePages {
    /// The device maps in units of this many bytes.
    Device(u64),
    /// A DAX file mapped at a 2 MiB boundary: 2 MiB pages wherever the file's extents are aligned
    /// too.
    Aligned,
    /// Transparent huge pages: the kernel was asked and its setting allows them.
    Transparent,
    /// 4 KiB pages.
    No,
}

impl fmt::Display for HugePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HugePages::Device(unit) => write!(f, "device unit {unit} bytes"),
            HugePages::Aligned => f.write_str("mapping aligned to 2 MiB"),
            HugePages::Transparent => f.write_str("transparent"),
            HugePages::No => f.write_str("no"),
        }
    }
}

/// What was found when a backing was mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How the backing is reached.
    pub access: Access,
    /// Contents survive a power cut. False for emulated memory, whatever it stands for.
    pub persistent: bool,
    /// The caller said this stands for persistent memory. Every figure from it must say so.
    pub emulated: bool,
    /// How a line is flushed.
    pub instruction: FlushInstruction,
    /// Where data is safe.
    pub domain: PersistenceDomain,
    /// How bulk writes go past the caches.
    pub nontemporal: NonTemporal,
    /// Whether 2 MiB pages are possible.
    pub huge_pages: HugePages,
    /// What was opened.
    pub path: PathBuf,
    /// Bytes mapped at open (growth is not counted here).
    pub len: u64,
}

impl Report {
    /// The report of a mapping that is heap memory.
    pub(crate) fn of_heap(
        instruction: FlushInstruction,
        nontemporal: NonTemporal,
        name: &str,
        len: u64,
    ) -> Report {
        Report {
            access: Access::Emulated,
            persistent: false,
            emulated: true,
            instruction,
            domain: PersistenceDomain::None,
            nontemporal,
            huge_pages: HugePages::No,
            path: name.into(),
            len,
        }
    }

    /// Whether a tier on this mapping may hold the only copy of a block: persistent, or the caller
    /// said emulate.
    pub fn may_hold_only_copy(&self) -> bool {
        self.persistent || self.emulated
    }

    /// Every field by name, in the order of `Display`, for a caller that writes JSON or a table.
    pub fn fields(&self) -> [(&'static str, String); 9] {
        [
            ("path", self.path.display().to_string()),
            ("len", self.len.to_string()),
            ("access", self.access.name().to_owned()),
            ("persistent", self.persistent.to_string()),
            ("emulated", self.emulated.to_string()),
            ("flush", self.instruction.name().to_owned()),
            ("domain", self.domain.name().to_owned()),
            ("nontemporal", self.nontemporal.name().to_owned()),
            ("huge_pages", self.huge_pages.to_string()),
        ]
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let survives = match (self.persistent, self.emulated) {
            (true, _) if self.domain == PersistenceDomain::Unknown => {
                "survives a power cut if this memory does; the platform does not say so (memory \
                 set apart with memmap= does not)"
            }
            (true, _) => "survives a power cut",
            (false, true) => "EMULATED: stands for persistent memory, does not survive a power cut",
            (false, false) => "does not survive a power cut",
        };
        writeln!(f, "{} ({} bytes, {})", self.path.display(), self.len, self.access.name())?;
        writeln!(f, "  {survives}")?;
        writeln!(f, "  persistence domain  {}", self.domain.name())?;
        writeln!(f, "  flush instruction   {}", self.instruction.name())?;
        writeln!(f, "  non-temporal store  {}", self.nontemporal.name())?;
        write!(f, "  huge pages          {}", self.huge_pages)
    }
}
