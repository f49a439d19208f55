//! The peers: what the same bytes cost without the store.
//!
//! | peer | durable | atomic |
//! |---|---|---|
//! | [`Raw`]: non-temporal stores in place, one fence | yes | no: the physical limit |
//! | [`PmemBlk`]: libpmemblk, loaded when it is installed | yes | by block |
//! | [`Plain`]: `pwrite`, with or without `fdatasync` | to the medium's own promise | no |
//!
//! Each keeps its file on the medium under test and has written all of it before it is timed.

use std::ffi::{CString, c_char, c_int, c_void};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use libloading::Library;
use tiersmith_pmem::{Access, Mapping, OpenOptions};

type Failed = Box<dyn std::error::Error>;

/// Stores in place: what the medium can do at most.
pub(crate) struct Raw(Mapping);

impl Raw {
    pub(crate) fn new(path: &Path, len: u64) -> Result<Raw, Failed> {
        let mut options = OpenOptions::new(Access::Emulated, len);
        options.create = true;
        let mapping = Mapping::open(path, &options)?;
        mapping.set_open_range(len);
        let noise = noise(1 << 20);
        for at in (0..len).step_by(noise.len()) {
            mapping.nt_write(at, &noise);
        }
        mapping.fence();
        Ok(Raw(mapping))
    }

    /// Durable on return; torn by a power cut.
    #[inline]
    pub(crate) fn write(&self, at: u64, data: &[u8]) {
        self.0.nt_write(at, data);
        self.0.fence();
    }

    /// Two writes and one fence.
    #[inline]
    pub(crate) fn write_two(&self, at: [u64; 2], data: &[u8]) {
        self.0.nt_write(at[0], data);
        self.0.nt_write(at[1], data);
        self.0.fence();
    }

    /// What the mapping says of itself.
    pub(crate) fn report(&self) -> String {
        self.0.report().to_string()
    }
}

/// A file of ordinary system calls.
pub(crate) struct Plain(File);

impl Plain {
    pub(crate) fn new(path: &Path, len: u64) -> Result<Plain, Failed> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        let noise = noise(1 << 20);
        for at in (0..len).step_by(noise.len()) {
            file.write_all_at(&noise, at)?;
        }
        Ok(Plain(file))
    }

    #[inline]
    pub(crate) fn write(&self, at: u64, data: &[u8]) {
        self.0.write_all_at(data, at).expect("pwrite to the benchmark's file failed");
    }

    #[inline]
    pub(crate) fn write_and_sync(&self, at: u64, data: &[u8]) {
        self.write(at, data);
        self.0.sync_data().expect("fdatasync of the benchmark's file failed");
    }

    #[inline]
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) {
        self.0.read_exact_at(into, at).expect("pread of the benchmark's file failed");
    }
}

/// Tells libpmem to treat the file as persistent memory; on a tmpfs it would call msync otherwise.
///
/// # Safety
/// No other thread runs yet.
pub(crate) unsafe fn force_flush_instructions() {
    // SAFETY: the caller's obligation.
    unsafe { std::env::set_var("PMEM_IS_PMEM_FORCE", "1") }
}

type Create = unsafe extern "C" fn(*const c_char, usize, usize, u32) -> *mut c_void;
type Access4 = unsafe extern "C" fn(*mut c_void, *mut c_void, i64) -> c_int;
type Count = unsafe extern "C" fn(*mut c_void) -> usize;
type Close = unsafe extern "C" fn(*mut c_void);

/// The calls of libpmemblk that are used.
#[derive(Clone, Copy)]
struct Calls {
    create: Create,
    write: Access4,
    read: Access4,
    count: Count,
    close: Close,
}

/// The library, if it is installed.
pub(crate) struct PmemBlkLibrary {
    calls: Calls,
    /// Keeps the code mapped.
    _library: Library,
}

impl PmemBlkLibrary {
    pub(crate) fn load() -> Option<PmemBlkLibrary> {
        // SAFETY: loading runs the initialisers of PMDK, which only read the environment.
        let library = unsafe { Library::new("libpmemblk.so.1") }.ok()?;
        // SAFETY: the types are those of libpmemblk.h, version 1.
        let calls = unsafe {
            Calls {
                create: *library.get::<Create>(b"pmemblk_create\0").ok()?,
                write: *library.get::<Access4>(b"pmemblk_write\0").ok()?,
                read: *library.get::<Access4>(b"pmemblk_read\0").ok()?,
                count: *library.get::<Count>(b"pmemblk_nblock\0").ok()?,
                close: *library.get::<Close>(b"pmemblk_close\0").ok()?,
            }
        };
        Some(PmemBlkLibrary { calls, _library: library })
    }

    /// A pool of at least `blocks` blocks, all of them written.
    pub(crate) fn pool(
        &self,
        path: &Path,
        block: usize,
        blocks: usize,
    ) -> Result<PmemBlk<'_>, Failed> {
        // Its own tables, and a share for what it keeps free.
        let len = (block * blocks).div_ceil(100) * 104 + (32 << 20);
        let name = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: the name is a C string; the library makes the file.
        let pool =
            unsafe { (self.calls.create)(name.as_ptr(), block, len.next_multiple_of(4096), 0o600) };
        if pool.is_null() {
            return Err(format!(
                "libpmemblk cannot make a pool of {len} bytes at {}: {}",
                path.display(),
                std::io::Error::last_os_error()
            )
            .into());
        }
        let pool = PmemBlk { calls: self.calls, pool, block, _library: self };
        // SAFETY: the pool is open.
        let count = unsafe { (self.calls.count)(pool.pool) };
        if count < blocks {
            return Err(format!(
                "libpmemblk made {count} blocks of {block} bytes, {blocks} are needed"
            )
            .into());
        }
        let noise = noise(block);
        for index in 0..blocks {
            pool.write(index, &noise);
        }
        Ok(pool)
    }
}

/// A pool of atomic blocks of libpmemblk.
pub(crate) struct PmemBlk<'a> {
    calls: Calls,
    pool: *mut c_void,
    block: usize,
    _library: &'a PmemBlkLibrary,
}

// SAFETY: pmemblk_read and pmemblk_write may be called from many threads at once (libpmemblk(7),
// "MULTI-THREADED").
unsafe impl Sync for PmemBlk<'_> {}

impl PmemBlk<'_> {
    #[inline]
    pub(crate) fn write(&self, block: usize, data: &[u8]) {
        assert_eq!(data.len(), self.block, "BUG: not one block");
        // SAFETY: the pool is open; the buffer is one block long and only read.
        let done =
            unsafe { (self.calls.write)(self.pool, data.as_ptr().cast_mut().cast(), block as i64) };
        assert_eq!(done, 0, "pmemblk_write failed: {}", std::io::Error::last_os_error());
    }

    #[inline]
    pub(crate) fn read(&self, block: usize, into: &mut [u8]) {
        assert_eq!(into.len(), self.block, "BUG: not one block");
        // SAFETY: the pool is open; the buffer is one block long.
        let done = unsafe { (self.calls.read)(self.pool, into.as_mut_ptr().cast(), block as i64) };
        assert_eq!(done, 0, "pmemblk_read failed: {}", std::io::Error::last_os_error());
    }
}

impl Drop for PmemBlk<'_> {
    fn drop(&mut self) {
        // SAFETY: open until here, and nobody else has it.
        unsafe { (self.calls.close)(self.pool) }
    }
}

/// Bytes that compress badly and repeat never.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(len as u64).fill(&mut bytes);
    bytes
}
