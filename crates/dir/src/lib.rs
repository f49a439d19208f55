//! Directories held open, and what is done by names relative to them.
//!
//! A path is a question that has a new answer each time: whoever may write in one of its
//! directories can put a link, a pipe or somebody else's file where another file was a moment ago.
//! A program that runs as root must therefore not ask twice. It opens a directory once
//! ([`Dir::open`]), and does everything else by single names relative to that descriptor, which no
//! rename changes.
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! use tiersmith_dir::Dir;
//!
//! # let scratch = tempfile::tempdir()?;
//! # let path = scratch.path();
//! let dir = Dir::open(path)?;
//! dir.replace("settings", b"size = 64M\n", 0o600, None)?;
//! assert_eq!(dir.read("settings", 4096)?, b"size = 64M\n");
//! dir.remove("settings")?;
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised
//!
//! - The last component of a path and every name is taken as it is: a symbolic link is not
//!   followed.
//! - When root opens a directory, the way there is checked (`walk.rs`): once it has passed through
//!   a directory that an unprivileged account can change, only what belongs to that account
//!   follows.
//! - Only regular files are opened, and opening never blocks: not on a pipe, not on a device.
//! - A file that is made did not exist before, and is given its owner and mode through its
//!   descriptor.
//! - Nothing is read without a limit.
//!
//! Not defended: whoever may change names in a directory can remove what this crate made there, put
//! another regular file of their own in its place, or move the directory itself.
//!
//! Source: openat2(2), path_resolution(7), and the rule against unsafe transitions of ownership
//! that systemd applies to `tmpfiles.d` paths.
//!
//! Deliberately absent: recursion, watching, advice, symbolic links (nothing here makes one).
//!
//! Read next: `dir/mod.rs`, then `walk.rs`; `sidecar.rs` for the small text files that Tiersmith
//! keeps.

#![forbid(unsafe_code)]

mod dir;
mod found;
mod sidecar;
mod walk;

pub use dir::{Dir, Owner};
pub use found::{Found, Kind};
pub use sidecar::{NumberText, PathText, Sidecar, Unfit};
