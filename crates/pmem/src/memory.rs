//! The bytes themselves: a file mapped inside a reservation of address space, heap memory, or pages
//! of no file.
//!
//! Heap memory serves the simulator, images under check, and Miri. Small heap blocks are kept per
//! thread for reuse: a crash test opens a million images, and fresh memory would cost it a page
//! fault for every 4 KiB.
//!
//! Invariant: `base` is aligned to 4 KiB at least and never moves while the value lives.

use std::alloc::Layout;
use std::cell::RefCell;
use std::fs::File;
use std::ptr::NonNull;

use crate::faults::Registered;
use crate::process::CloseOnFork;

/// Alignment of heap memory: a frame, as a mapped file has it.
const HEAP_ALIGN: usize = 4096;
/// Heap blocks up to this size are kept for reuse, ...
const KEEP_SIZE: usize = 8 << 20;
/// ... this many per thread.
const KEEP_COUNT: usize = 8;

thread_local! {
    static KEPT: RefCell<Kept> = const { RefCell::new(Kept(Vec::new())) };
}

/// Heap blocks waiting for reuse by this thread.
struct Kept(Vec<(NonNull<u8>, Layout)>);

impl Drop for Kept {
    fn drop(&mut self) {
        for (base, layout) in self.0.drain(..) {
            // SAFETY: allocated by `Memory::heap` with this layout, and nobody else has it while it
            // is kept.
            unsafe { std::alloc::dealloc(base.as_ptr(), layout) }
        }
    }
}

/// The bytes of a mapping.
pub(crate) struct Memory {
    base: NonNull<u8>,
    kind: Kind,
}

enum Kind {
    Mapped(Mapped),
    Heap(Layout),
    /// Pages that cost nothing until they are used; so many bytes.
    #[cfg(not(miri))]
    Reserved(usize),
}

/// A file mapped at the start of a reservation.
pub(crate) struct Mapped {
    /// Goes before `file`.
    pub(crate) close_on_fork: CloseOnFork,
    pub(crate) file: File,
    /// What `munmap` needs: the whole reservation, of which `base` is the first aligned byte.
    #[cfg_attr(miri, allow(dead_code, reason = "Miri maps no files"))]
    pub(crate) reserved_at: NonNull<u8>,
    #[cfg_attr(miri, allow(dead_code, reason = "Miri maps no files"))]
    pub(crate) reserved_len: usize,
    /// Ask the kernel for `MAP_SYNC`.
    pub(crate) sync: bool,
    /// Multiples of this are mapped.
    pub(crate) unit: u64,
    /// Allocate blocks when growing.
    pub(crate) preallocate: bool,
    /// The size is fixed: a device.
    pub(crate) device_len: Option<u64>,
    pub(crate) huge_pages: bool,
    pub(crate) prefault: bool,
    /// Its pages are memory already (tmpfs, persistent memory), not copies of a disk's blocks.
    pub(crate) in_memory: bool,
    /// By what name a fault in it is known.
    pub(crate) registered: Registered,
}

// SAFETY: the bytes are reached through atomics and asm, and as slices only under a view (see
// `frames.rs`).
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// A file already mapped at `base`.
    pub(crate) fn mapped(base: NonNull<u8>, mapped: Mapped) -> Memory {
        Memory { base, kind: Kind::Mapped(mapped) }
    }

    /// Heap memory of `len` bytes whose contents are whatever an earlier user left (never
    /// uninitialised).
    pub(crate) fn heap(len: usize) -> Memory {
        let size = len.max(1).next_multiple_of(HEAP_ALIGN);
        let kept = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            let fits = kept.0.iter().position(|(_, layout)| layout.size() == size)?;
            Some(kept.0.swap_remove(fits))
        });
        if let Ok(Some((base, layout))) = kept {
            return Memory { base, kind: Kind::Heap(layout) };
        }
        let layout = Layout::from_size_align(size, HEAP_ALIGN)
            .expect("BUG: a length beyond the address space");
        // SAFETY: the size is not zero.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { std::alloc::handle_alloc_error(layout) };
        Memory { base, kind: Kind::Heap(layout) }
    }

    /// `len` bytes of zeros, of which only what is used costs memory.
    pub(crate) fn reserved(len: usize) -> std::io::Result<Memory> {
        #[cfg(miri)]
        return Ok(Memory::heap(len));
        #[cfg(not(miri))]
        {
            use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            let len = len.max(1).next_multiple_of(HEAP_ALIGN);
            // SAFETY: a new mapping, wherever the kernel has room.
            let base = unsafe {
                mmap_anonymous(
                    std::ptr::null_mut(),
                    len,
                    ProtFlags::READ | ProtFlags::WRITE,
                    flags,
                )?
            };
            let base = NonNull::new(base.cast()).ok_or(std::io::ErrorKind::OutOfMemory)?;
            Ok(Memory { base, kind: Kind::Reserved(len) })
        }
    }

    /// The first byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Fills the page tables of `len` bytes from the offset `at`, which are within the memory. A
    /// hint.
    pub(crate) fn prefault(&self, at: usize, len: usize) {
        #[cfg(not(miri))]
        if self.as_mapped().is_some_and(|mapped| mapped.in_memory) {
            let start = self.base.as_ptr().wrapping_add(at).cast();
            // SAFETY: populating for write leaves contents as they are; of a range that is not
            // mapped the kernel says so.
            let _ =
                unsafe { rustix::mm::madvise(start, len, rustix::mm::Advice::LinuxPopulateWrite) };
        }
    }

    /// The file behind it, if there is one.
    pub(crate) fn as_mapped(&self) -> Option<&Mapped> {
        match &self.kind {
            Kind::Mapped(mapped) => Some(mapped),
            _ => None,
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match &mut self.kind {
            // A child has neither the mapping nor the lock: what it has at these addresses by now
            // is not ours to unmap.
            #[cfg(not(miri))]
            Kind::Mapped(mapped) if !mapped.close_on_fork.is_ours() => {}
            #[cfg(not(miri))]
            Kind::Mapped(mapped) => {
                mapped.registered.leave();
                // SAFETY: the reservation was made by `open.rs` for this value alone; views borrow
                // the mapping that owns it, so none is left.
                let done = unsafe {
                    rustix::mm::munmap(mapped.reserved_at.as_ptr().cast(), mapped.reserved_len)
                };
                debug_assert!(done.is_ok(), "BUG: munmap of a reservation refused");
                // Closing would do, but for a child that some thread has just forked: until it
                // executes its program it has a copy of the descriptor, and would keep the file
                // locked.
                let _ = rustix::fs::flock(&mapped.file, rustix::fs::FlockOperation::Unlock);
            }
            #[cfg(miri)]
            Kind::Mapped(_) => {}
            #[cfg(not(miri))]
            Kind::Reserved(len) => {
                // SAFETY: mapped by `reserved` with this length; views borrow the mapping that owns
                // it, so none is left.
                let done = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), *len) };
                debug_assert!(done.is_ok(), "BUG: munmap of reserved memory refused");
            }
            Kind::Heap(layout) => {
                let (base, layout) = (self.base, *layout);
                let kept = layout.size() <= KEEP_SIZE
                    && KEPT
                        .try_with(|kept| {
                            let mut kept = kept.borrow_mut();
                            let room = kept.0.len() < KEEP_COUNT;
                            if room {
                                kept.0.push((base, layout));
                            }
                            room
                        })
                        .unwrap_or(false);
                if !kept {
                    // SAFETY: allocated by `heap` with this layout; this value owned it alone.
                    unsafe { std::alloc::dealloc(base.as_ptr(), layout) }
                }
            }
        }
    }
}
