//! Files whose blocks home refused (it is full, or failing), and what else background work failed
//! with: known until the same work succeeds again.
//!
//! Destaging is done by the background, by writers that need room and by commands, and most of the
//! time by nobody. A look at the last attempt would therefore forget a full home as soon as there
//! is nothing to do. So each file whose destaging fails is remembered with its error, and the
//! background tries it again now and then ([`RETRY_STEPS`]): the error goes when all of the file's
//! blocks went home, or when the file is gone.

use super::Mover;
use crate::error::{Error, Result};
use crate::known::FileState;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Background steps from one attempt to the next: about a second. Counted, not timed, so that a run
/// of the simulator can be repeated.
const RETRY_STEPS: u64 = 50;

/// Why a file is no longer refused.
#[derive(Clone, Copy)]
enum Why {
    /// All of its blocks are at home.
    Home,
    Removed,
}

/// What is remembered of it.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// Whether `files` has any: nobody waits for the lock to hear that all is well.
    any: AtomicBool,
    /// By device and inode number, with the error as a sentence.
    files: Mutex<BTreeMap<(u64, u64), String>>,
    /// What the last background step failed with.
    step: Mutex<Option<String>>,
    steps: AtomicU64,
}

impl Refused {
    /// The files there are, and the error of one of them.
    fn first(&self) -> (usize, Option<String>) {
        if !self.any.load(Ordering::Acquire) {
            return (0, None);
        }
        let files = self.files.lock();
        (files.len(), files.values().next().cloned())
    }

    /// How many files home refuses blocks of.
    pub(crate) fn count(&self) -> u64 {
        self.first().0 as u64
    }

    /// What does not work at present, for people.
    pub(crate) fn message(&self) -> Option<String> {
        match self.first() {
            (0 | 1, Some(error)) => Some(error),
            (files, Some(error)) => {
                Some(format!("{error}; the same goes for {} more files", files - 1))
            }
            (_, None) => self.step.lock().clone(),
        }
    }

    /// Forgets the files that `gone` says of.
    fn forget(&self, why: Why, gone: impl Fn(&(u64, u64)) -> bool) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut files = self.files.lock();
        files.retain(|key, _| !gone(key));
        if files.is_empty() && self.any.swap(false, Ordering::AcqRel) {
            match why {
                Why::Home => log::warn!("home takes every file's blocks again"),
                Why::Removed => log::warn!("the files that home took no blocks of were removed"),
            }
        }
    }
}

impl Mover {
    /// Remembers how destaging a file ended. `all`: it was not to stop before the last block.
    pub(crate) fn note_destaged(&self, file: &FileState, all: bool, result: &Result<u64>) {
        match result {
            Ok(_) if all || self.is_all_home(file) => {
                self.refused.forget(Why::Home, |key| *key == file.identity.key());
            }
            Ok(_) => {}
            Err(e) => self.note_refused(file, e),
        }
    }

    pub(crate) fn note_refused(&self, file: &FileState, error: &Error) {
        let mut files = self.refused.files.lock();
        if files.is_empty() {
            log::error!("{error}; nothing is lost, and it is tried again");
        }
        files.insert(file.identity.key(), error.to_string());
        self.refused.any.store(true, Ordering::Release);
    }

    fn is_all_home(&self, file: &FileState) -> bool {
        file.placed
            .as_ref()
            .is_none_or(|placed| !placed.loan.is_lent() && placed.map.counts().0 == 0)
    }

    /// A part of the background step: tries the refused files again when it is time to.
    pub(crate) fn retry_refused(&self) -> Result<()> {
        let refused = &self.refused;
        if !refused.any.load(Ordering::Acquire)
            || !(refused.steps.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(RETRY_STEPS)
        {
            return Ok(());
        }
        let keys: Vec<_> = refused.files.lock().keys().copied().collect();
        let known: Vec<Arc<FileState>> =
            keys.iter().filter_map(|key| self.files.get(*key)).collect();
        refused.forget(Why::Removed, |key| !known.iter().any(|file| file.identity.key() == *key));
        let mut failed = None;
        for file in &known {
            failed = self.destage_file(file, u64::MAX).err().or(failed);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Remembers how a background step ended, and logs what is new.
    pub(crate) fn note_step(&self, result: Result<()>) {
        let message = result.err().map(|e| e.to_string());
        let mut last = self.refused.step.lock();
        if let Some(message) = &message
            && last.as_ref() != Some(message)
            && self.refused.count() == 0
        {
            log::error!(
                "background work of {}: {message}; nothing is lost, and it is tried again",
                self.env.home_path().display()
            );
        }
        *last = message;
    }
}
