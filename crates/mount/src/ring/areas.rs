//! The memory of one ring entry, which kernel and process write in turns.
//!
//! The kernel keeps the two addresses from the entry's registration to its end. It writes while a
//! request arrives and reads while an answer is committed; in between, and before the registration,
//! the areas belong to their owner here.

use super::layout::HEADER;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::io;
use std::ptr::NonNull;

/// Where the payload begins: the header has a page of its own, so that the payload is aligned to
/// pages.
const PAYLOAD_AT: usize = 4096;
const _: () = assert!(HEADER <= PAYLOAD_AT);

/// An entry's header area and payload area. Pages take memory only when they were used once.
#[derive(Debug)]
pub(super) struct Areas {
    start: NonNull<u8>,
    payload: usize,
}

// SAFETY: the mapping is plain memory that no thread has a claim on; whoever has the `Areas` has
// the memory.
unsafe impl Send for Areas {}

impl Areas {
    /// Maps areas with a payload of `payload` bytes.
    pub(super) fn new(payload: usize) -> io::Result<Self> {
        let len = PAYLOAD_AT.checked_add(payload).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new private mapping at an address that the kernel chooses touches no memory
        // that exists.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, payload })
    }

    /// Header and payload. Call it only while the entry is not the kernel's: before its
    /// registration, or between the arrival of a request and its commit.
    pub(super) fn parts(&mut self) -> (&mut [u8; HEADER], &mut [u8]) {
        let start = self.start.as_ptr();
        // SAFETY: the mapping has `PAYLOAD_AT + payload` readable, writable, initialised (zeroed)
        // bytes and lives as long as `self`; the two ranges do not overlap; `&mut self` makes these
        // the only references. The kernel writes to the areas only inside the system calls of the
        // ring thread that registered them, and for an entry that it holds, of which the caller has
        // no references.
        unsafe {
            (
                &mut *start.cast::<[u8; HEADER]>(),
                std::slice::from_raw_parts_mut(start.add(PAYLOAD_AT), self.payload),
            )
        }
    }

    /// The two areas as the kernel wants them.
    pub(super) fn vectors(&self) -> [libc::iovec; 2] {
        let start = self.start.as_ptr();
        // SAFETY: `PAYLOAD_AT` is inside the mapping.
        let payload = unsafe { start.add(PAYLOAD_AT) };
        [
            libc::iovec { iov_base: start.cast(), iov_len: HEADER },
            libc::iovec { iov_base: payload.cast(), iov_len: self.payload },
        ]
    }
}

impl Drop for Areas {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping of `new`, and no reference outlives `self`. Owners
        // forget areas that the kernel may still use.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), PAYLOAD_AT + self.payload) };
    }
}
