//! What is known of a file being lent ([`crate::lend`]).

use super::{FileState, Placed};
use crate::error::Result;
use crate::plain::{Plain, PlainName};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, RwLock, RwLockReadGuard};

/// What a file's part in the tier knows of its being lent.
#[derive(Debug, Default)]
pub(crate) struct Loan {
    /// Changes with `sizing`, `moving` and `plain` held.
    lent: AtomicBool,
    plain: RwLock<Option<Plain>>,
    /// Those for whom the kernel has it. Grows with `lending` held.
    pub(crate) borrowers: AtomicUsize,
    /// Counts what may have changed the plain file, each when it is done.
    pub(crate) changes: AtomicU64,
    /// The `changes` up to which home has everything, and how long the plain file was then.
    pub(crate) at_home: Mutex<Option<(u64, u64)>>,
    /// Home may show what its storage does not have: a sync failed, or who knows. Then it is
    /// written, not compared.
    pub(crate) home_in_doubt: AtomicBool,
    /// When the last borrower went.
    pub(crate) idle_since_ns: AtomicU64,
}

impl Loan {
    pub(crate) fn is_lent(&self) -> bool {
        self.lent.load(Ordering::Acquire)
    }

    /// The plain file of a lent file. As long as the answer is held, the file does not become lent.
    pub(crate) fn look(&self) -> RwLockReadGuard<'_, Option<Plain>> {
        self.plain.read()
    }

    /// The plain file now. It may be given back at any moment, unless `sizing` or `moving` is held.
    pub(crate) fn plain(&self) -> Option<Plain> {
        if self.is_lent() { self.plain.read().clone() } else { None }
    }

    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// From here on the plain file is the truth.
    pub(crate) fn begin(&self, plain: Plain) {
        let mut slot = self.plain.write();
        *slot = Some(plain);
        *self.at_home.lock() = None;
        self.home_in_doubt.store(true, Ordering::Release);
        self.lent.store(true, Ordering::Release);
    }

    pub(crate) fn end(&self) {
        let mut slot = self.plain.write();
        self.lent.store(false, Ordering::Release);
        *slot = None;
    }

    pub(crate) fn is_at_home(&self) -> bool {
        self.size_at_home().is_some()
    }

    /// How long the plain file is, if home has all of it: nobody has it then, and nobody has
    /// changed it since.
    fn size_at_home(&self) -> Option<u64> {
        let (changes, size) = (*self.at_home.lock())?;
        (changes == self.changes.load(Ordering::Acquire)).then_some(size)
    }

    /// How long the plain file is. The file system is asked only if that may have changed: the
    /// background wants to know at each step, for ever.
    pub(crate) fn plain_bytes(&self, plain: &Plain) -> u64 {
        self.size_at_home().unwrap_or_else(|| plain.file.stat().map_or(0, |stat| stat.size))
    }
}

impl Placed {
    /// Whether the kernel may write to the plain file, for a door or for a memory map.
    pub(crate) fn is_plain_in_use(&self, plain: &Plain) -> bool {
        self.loan.borrowers.load(Ordering::Acquire) > 0
            || self.tier.lent_dir.as_ref().is_none_or(|dir| {
                dir.is_ours_alone(plain).map_or_else(
                    |e| {
                        // The background asks again and again.
                        log::debug!(
                            "{}: whether it is mapped is not known: {e}",
                            dir.path(plain.name).display()
                        );
                        true
                    },
                    |alone| !alone,
                )
            })
    }

    /// Step 3, and the end of a removed file. One that stays is removed at the next attach.
    pub(crate) fn remove_plain(&self, name: PlainName) {
        if let Some(dir) = &self.tier.lent_dir
            && let Err(e) = dir.remove(name)
        {
            log::warn!("{} stays until the next attach: {e}", dir.path(name).display());
        }
    }

    /// The slot of a file is free: what was lent of it goes too.
    pub(crate) fn forget_loan(&self) {
        if let Some(plain) = self.loan.plain() {
            self.loan.end();
            // Else the next attach may find the file lent still.
            if self.tier.sound().is_ok() {
                self.remove_plain(plain.name);
            }
        }
    }

    /// Recovery: the file is lent, and this is its plain file.
    pub(crate) fn adopt_plain(&self, file: &FileState, plain: Plain) -> Result<()> {
        // What a killed process left is seen from now on, and must survive a power cut then.
        plain.file.sync().map_err(file.io("cannot sync the lent"))?;
        self.loan.begin(plain);
        self.drop_map();
        Ok(())
    }
}
