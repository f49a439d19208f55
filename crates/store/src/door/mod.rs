//! What a door needs beyond reading and writing: ranges, times, names by flag, lists of files, a home that is modelled slow.
//!
//! A file of the tier is newer than its home file, so whatever a file system says of a file has to be said here: its size and times
//! ([`times`]), its holes ([`range`]), its names ([`names`]), which files there are ([`list`]).
//! [`mod@open`] is about descriptors.
//!
//! Deliberately absent: permissions, owners, extended attributes, links, locks. Those are home's own, and a door asks home.

pub(crate) mod list;
pub(crate) mod media_errors;
pub(crate) mod names;
pub(crate) mod open;
pub(crate) mod range;
pub(crate) mod times;
