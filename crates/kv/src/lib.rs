//! The key-value server whose data lives in persistent memory; it speaks Redis's protocol.
//!
//! A write is durable before its reply; a command, and all of an EXEC, happens or does not, also
//! across a power cut; the server serves at once after a crash, however many keys there are.
//!
//! # Shape
//! | layer | what it is | knows |
//! |---|---|---|
//! | [`mod@format`] | the bytes on the medium | nothing |
//! | [`heap`] | words that change all or none, and space for bytes | format |
//! | [`keyspace`] | databases: index, entries, expiry, what is still to be freed | heap |
//! | `command` | Redis's commands, one table; a session with its MULTI and WATCH | keyspace |
//! | `server` | sockets, the protocol's bytes, limits; primary and replicas | command |
//! | [`rdb`] | Redis's dump files, and a primary's first words | nothing |
//! | [`check`] | a second reader of the format, with decoders of its own | format's page only |
//!
//! # Why it is like this
//! - **Transactions of words below everything.** Index, allocator, counters and every type of value
//!   are ordinary code on words that change all or none. So one layer of 400 lines carries the
//!   promises, and the crash tests of that layer are those of all commands. A log of commands
//!   (Redis's AOF) must be replayed, in time that grows with the keys; an allocator and an index
//!   that are each crash-safe by themselves (PMDK, Dash) need a protocol for every structure, and
//!   one more for MULTI.
//! - **New bytes are written once, where they stay**; only words go through the log (about 100
//!   bytes for a SET). A log-structured store would write as little, but needs a compactor, which
//!   needs as much room again, and an index that is rebuilt or compacted with it.
//! - **One fence for a batch.** The loop reads what all clients sent, executes it, commits once and
//!   answers. A pipeline or 50 clients share the fence.
//! - **The index is linear hashing**: it grows by one bucket at a time, so no command waits for a
//!   table to be copied; and SCAN can go on while it does.
//! - **One thread** executes, as in Redis. More cores need one heap for each; the format has room
//!   for that (a medium is split), this version does not do it.
//! - **The request reader is our own** (`server/request.rs`): a server reads one shape, arrays of
//!   bulk strings, with Redis's limits and error texts, piecewise up to 512 MB. Why it is not a
//!   library's, nor that of the workload repository: `docs/decisions/0018-redis-protocol.md`.
//!
//! Deliberately absent: writing AOF, cluster mode.

#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

mod aof;
pub mod check;
mod command;
mod error;
mod export;
pub mod format;
pub mod heap;
mod import;
pub mod keyspace;
mod library;
mod number;
pub mod planted;
pub mod rdb;
pub mod server;
#[cfg(feature = "testing")]
pub mod testing;
mod words;

pub use aof::manifest;
pub use command::{Configuration, table_for_people};
pub use error::Error;
pub use export::export;
pub use import::{Imported, import, import_parts};
pub use server::Server;
