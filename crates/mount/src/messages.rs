//! The kernel's messages without a kernel: what tests and fuzz targets send in its place. Not a
//! transport, and not in a release.
//!
//! The kernel is trusted to keep to its protocol; this shows that the mount survives one that does
//! not. A panic goes through to whoever sends, which in a mount ends in an I/O error for the one
//! who asked.

use crate::Options;
use crate::answer::answer_or_panic;
use crate::fs::{Fs, Part};
use crate::wire::{MAX_IO, Request};
use rustix::io::Errno;
use tiersmith_store::AttachedHome;

/// An attached home that answers messages.
#[derive(Debug)]
pub struct Messages {
    fs: Fs,
    into: Vec<u8>,
}

impl Messages {
    /// Opens the home as a mount does; `sync_on_write` as in [`Options`].
    ///
    /// # Errors
    /// If home's directory cannot be opened.
    pub fn new(home: AttachedHome, sync_on_write: bool) -> std::io::Result<Self> {
        let options = Options { sync_on_write, ..Options::default() };
        Ok(Self { fs: Fs::new(home, &options, &Part::default())?, into: vec![0; MAX_IO + 4096] })
    }

    /// The answer to one message, without its header; `None` if none is due.
    ///
    /// # Errors
    /// The error that the caller of the request would see, as a positive number.
    ///
    /// # Durability
    /// That of the request which the message is.
    pub fn answer(&mut self, message: &[u8]) -> Result<Option<&[u8]>, i32> {
        self.asked(Request::whole(message))
    }

    /// The same for a message in three parts, as io_uring brings it.
    ///
    /// # Errors
    /// As [`Messages::answer`].
    ///
    /// # Durability
    /// As [`Messages::answer`].
    pub fn answer_parts(
        &mut self,
        header: &[u8],
        fixed: &[u8],
        rest: &[u8],
    ) -> Result<Option<&[u8]>, i32> {
        self.asked(Request::new(header, fixed, rest))
    }

    fn asked(&mut self, request: Option<Request<'_>>) -> Result<Option<&[u8]>, i32> {
        let Some(request) = request else { return Ok(None) };
        match answer_or_panic(&self.fs, &request, &mut self.into) {
            Ok(Some(len)) => self.into.get(..len).map(Some).ok_or(Errno::IO.raw_os_error()),
            Ok(None) => Ok(None),
            Err(errno) => Err(errno.raw_os_error()),
        }
    }
}
