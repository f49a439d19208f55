//! Simulated devices of sectors: what a program does to one goes into the machine's trace, beside
//! the stores to its mappings, so that one cut stops both.
//!
//! Sources: fsync(2) and the Linux documentation of block devices' volatile write caches (a flush
//! covers the writes that had completed when it was issued); Rebello and others, "Can Applications
//! Recover from fsync Failures?" (USENIX ATC 2020): after a failed sync the kernel calls the pages
//! clean, and a sync that succeeds later says nothing about them.
//!
//! Not here: formats, retries, the decision what to do about an error. What a cut leaves is
//! `sectors.rs`.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use super::{Event, Sabotage, Simulator, State, lock, lock_running};

/// A device of sectors in heap memory, whose every call is recorded. Clones are the same device.
#[derive(Clone)]
pub struct Device {
    state: Arc<Mutex<State>>,
    medium: Arc<Mutex<Medium>>,
    /// Its number in the trace and in the images.
    index: usize,
    sector: usize,
}

/// What the device holds, and which of its calls are to fail.
struct Medium {
    bytes: Vec<u8>,
    unreadable: Vec<Range<u64>>,
    /// Calls until one fails; 0: none does.
    fail_write_in: u64,
    fail_sync_in: u64,
    /// Every call fails.
    gone: bool,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { index, sector, .. } = self;
        f.debug_struct("Device")
            .field("index", index)
            .field("sector", sector)
            .finish_non_exhaustive()
    }
}

impl Simulator {
    /// A device of sectors of `sector` bytes, whose durable contents are `image`: whole sectors,
    /// not none. Its number in the trace and in the images is how many mappings and devices were
    /// made before it.
    pub fn device(&self, image: Vec<u8>, sector: usize) -> Device {
        assert!(
            sector > 0 && !image.is_empty() && image.len().is_multiple_of(sector),
            "BUG: {} bytes are no whole sectors of {sector}",
            image.len()
        );
        let medium = Medium {
            bytes: image.clone(),
            unreadable: Vec::new(),
            fail_write_in: 0,
            fail_sync_in: 0,
            gone: false,
        };
        let mut state = lock(&self.state);
        let index = state.add(image, sector);
        Device {
            state: Arc::clone(&self.state),
            medium: Arc::new(Mutex::new(medium)),
            index,
            sector,
        }
    }
}

impl Device {
    /// The bytes of one sector.
    pub fn sector_size(&self) -> usize {
        self.sector
    }

    /// Bytes it holds.
    #[allow(clippy::len_without_is_empty, reason = "a device is never empty")]
    pub fn len(&self) -> u64 {
        self.medium().bytes.len() as u64
    }

    /// Reads what the newest writes left, synced or not.
    ///
    /// # Errors
    /// EIO where [`Device::fail_reads`] or [`Device::vanish`] says so; EINVAL for what lies
    /// outside.
    pub fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let medium = self.medium();
        let range = self.range(&medium, at, buffer.len())?;
        let until = at + buffer.len() as u64;
        if medium.gone || medium.unreadable.iter().any(|bad| bad.start < until && at < bad.end) {
            return Err(Errno::IO.into());
        }
        buffer.copy_from_slice(&medium.bytes[range]);
        Ok(())
    }

    /// Writes whole sectors. Between its beginning and its return other threads can act: the hook
    /// is called at both.
    ///
    /// # Durability
    /// None before a [`Device::sync`] that begins after the return. A write that fails may have
    /// arrived in part.
    ///
    /// # Errors
    /// EIO where [`Device::fail_nth_write`] or [`Device::vanish`] says so; EINVAL for what lies
    /// outside or is no whole sectors.
    pub fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = lock_running(&self.state, false);
        let mut medium = self.medium();
        self.range(&medium, at, bytes.len())?;
        if !at.is_multiple_of(self.sector as u64) || !bytes.len().is_multiple_of(self.sector) {
            return Err(Errno::INVAL.into());
        }
        if bytes.is_empty() {
            return Ok(());
        }
        if medium.gone {
            return Err(Errno::IO.into());
        }
        let Some(at) = state.arrives(at, bytes.len(), medium.bytes.len() as u64) else {
            return Ok(());
        };
        let range = self.range(&medium, at, bytes.len())?;
        let call = state.next_call();
        let good = !countdown(&mut medium.fail_write_in);
        state.push(Event::Write { device: self.index, at, len: bytes.len(), call });
        state.data.extend_from_slice(bytes);
        // Under the lock, so that racing writes reach the medium in the order of the trace.
        let arrived = if good { bytes.len() } else { bytes.len() / self.sector / 2 * self.sector };
        medium.bytes[range][..arrived].copy_from_slice(&bytes[..arrived]);
        drop((medium, state));
        lock_running(&self.state, false).push(Event::Returned { device: self.index, call, good });
        if good { Ok(()) } else { Err(Errno::IO.into()) }
    }

    /// Makes durable what was written by calls that had returned before this one began.
    ///
    /// # Durability
    /// On success. After a failure what was not durable stays in doubt for good, also when a later
    /// sync succeeds.
    ///
    /// # Errors
    /// EIO where [`Device::fail_nth_sync`] or [`Device::vanish`] says so.
    pub fn sync(&self) -> io::Result<()> {
        let call = {
            let mut state = lock_running(&self.state, false);
            let call = state.next_call();
            state.push(Event::SyncBegun { device: self.index, call });
            call
        };
        let mut state = lock_running(&self.state, true);
        let number = state.syncs;
        state.syncs += 1;
        let failed = {
            let mut medium = self.medium();
            medium.gone || countdown(&mut medium.fail_sync_in)
        };
        if failed {
            state.push(Event::SyncFailed { device: self.index });
            return Err(Errno::IO.into());
        }
        let dropped = match state.sabotage {
            Sabotage::DropEverySync => true,
            Sabotage::DropNthSync(n) => n == number,
            _ => false,
        };
        if !dropped {
            state.push(Event::Synced { device: self.index, call });
        }
        Ok(())
    }

    /// Lengthens it with zeros, which are durable when this returns. A shorter length changes
    /// nothing.
    pub fn grow(&self, len: u64) {
        assert!(len.is_multiple_of(self.sector as u64), "BUG: {len} bytes are no whole sectors");
        let mut state = lock_running(&self.state, false);
        let mut medium = self.medium();
        if len as usize > medium.bytes.len() {
            medium.bytes.resize(len as usize, 0);
            state.push(Event::Grow { mapping: self.index, len });
        }
    }

    /// From now on a read of any of these bytes fails with EIO. An empty range takes all of that
    /// back.
    pub fn fail_reads(&self, range: Range<u64>) {
        let unreadable = &mut self.medium().unreadable;
        if range.is_empty() { unreadable.clear() } else { unreadable.push(range) }
    }

    /// Makes the `n`-th write from now on fail with EIO, once; half of its sectors arrive. 0: none.
    pub fn fail_nth_write(&self, n: u64) {
        self.medium().fail_write_in = n;
    }

    /// Makes the `n`-th sync from now on fail with EIO, once. 0: none.
    pub fn fail_nth_sync(&self, n: u64) {
        self.medium().fail_sync_in = n;
    }

    /// The device goes: from now on every read, write and sync fails with EIO, and nothing of a
    /// write arrives.
    pub fn vanish(&self) {
        self.medium().gone = true;
    }

    fn medium(&self) -> MutexGuard<'_, Medium> {
        self.medium.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn range(&self, medium: &Medium, at: u64, len: usize) -> io::Result<Range<usize>> {
        let range = usize::try_from(at).ok().and_then(|from| Some(from..from.checked_add(len)?));
        range.filter(|range| range.end <= medium.bytes.len()).ok_or_else(|| Errno::INVAL.into())
    }
}

/// Counts a call; true when it is the one that fails.
fn countdown(left: &mut u64) -> bool {
    let last = *left == 1;
    *left = left.saturating_sub(1);
    last
}
