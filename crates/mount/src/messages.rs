//! Messages of the kernel answered without a kernel: what fuzz targets and tests send in its place. Not a transport, and not in a release.
//!
//! The kernel is trusted to keep to its protocol; this is how it is shown that the mount would survive one that does not.

use crate::Options;
use crate::fs::Fs;
use crate::wire::answer::{Sent, answer};
use crate::wire::{MAX_IO, Request};
use tiersmith_store::AttachedHome;

/// An attached home that answers messages.
#[derive(Debug)]
pub struct Messages {
    fs: Fs,
    into: Vec<u8>,
}

impl Messages {
    /// Opens the home as a mount does.
    ///
    /// # Errors
    /// If home's directory cannot be opened.
    pub fn new(home: AttachedHome) -> std::io::Result<Self> {
        Ok(Self { fs: Fs::new(home, &Options::default())?, into: vec![0; MAX_IO + 4096] })
    }

    /// The answer to one message, header not included; `None` if none is due, and the number of the error if it was refused.
    ///
    /// # Errors
    /// The error that the caller of the request would see, as a positive number.
    ///
    /// # Durability
    /// That of the request which the message is.
    pub fn answer(&mut self, message: &[u8]) -> Result<Option<&[u8]>, i32> {
        let Some(request) = Request::whole(message) else { return Ok(None) };
        match answer(&self.fs, &request, &mut self.into) {
            Sent::Nothing => Ok(None),
            Sent::Bytes(len) => Ok(Some(&self.into[..len])),
            Sent::Error(number) => Err(number),
        }
    }
}
