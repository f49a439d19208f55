//! Maps a medium into memory, writes to it, makes the writes durable; and simulates a power cut.
//!
//! This is the only part with persistence instructions. Everything above it is
//! `forbid(unsafe_code)`: the calls here are safe, check every offset, and check that what is
//! written is not being read as a slice.
//!
//! What it is not: it knows no format, no allocation, no retry. It does not decide when to flush;
//! it does as told.
//!
//! # Words
//! `store` and `write` put bytes into the mapping and promise nothing; `flush` sends cache lines on
//! their way; `fence` orders; `persist` is flush then fence; `nt_*` go past the CPU caches and are
//! durable after the next `fence` *of the same thread*.
//!
//! # Invariants
//! - A frame is viewed (somebody holds a slice of it) or claimed (somebody may write it), never
//!   both (`frames.rs`).
//! - Every write is to claimed frames or to the open range (metadata, which is never viewable).
//! - The base of a mapping never moves; [`Mapping::grow`] maps more inside the reserved address
//!   space.
//! - What the caller keeps: a claim is released only after its last write returned. The crate
//!   checks this at the start of each write, it cannot check it in the middle of one.
//! - 8-byte aligned words are power-fail atomic; nothing larger is.
//!
//! Where to read next: [`Mapping`] in `mapping.rs`, how a backing is opened in `open.rs`, the
//! instructions in `kernel/`, the crash model in [`sim`].

#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

mod access;
mod alone;
mod error;
mod faults;
mod frames;
mod journal;
mod kernel;
mod mapping;
mod memory;
mod open;
pub mod process;
mod report;
pub mod sim;
#[cfg(not(feature = "interleavings"))]
mod sync;
#[cfg(feature = "interleavings")]
pub mod sync;
mod sysfs;
mod ticks;

pub use access::{Access, OpenOptions};
pub use alone::is_only_opening;
pub use error::Error;
pub use faults::{Explain, SigbusWatch, watch_sigbus};
pub use frames::Use;
pub use journal::{Bytes, Journal};
pub use kernel::{hash_bytes, prefetch_for_write, prefetch_whole_for_write};
pub use mapping::{Mapping, PreparedWrite, View, ViewRef};
pub use report::{FlushInstruction, HugePages, NonTemporal, PersistenceDomain, Report};
pub use ticks::Ticks;

/// The unit of views and claims: 4 KiB, the smallest block the store keeps.
pub const FRAME: usize = 4096;

/// The unit of flushes, and of power-fail tearing above the 8-byte word: one cache line.
pub const LINE: usize = 64;
