//! Names that become durable when somebody syncs the file or its directory, and not before.
//!
//! POSIX asks for no more, and a sync of home takes as long as a commit of the database. So a door
//! for programs leaves the names of files that it makes, renames and removes to the next sync: a
//! program's, or the background's a second later. Until then a power cut leaves the old or the new
//! name, as on home itself, and each file whole.
//!
//! # A file that was just made, and what a power cut leaves
//!
//! | step | what is done | a cut after it leaves |
//! |---|---|---|
//! | 1 | the door makes it at home | no file, or an empty one |
//! | 2 | it gets a slot, whose first state line says `unlinking`: the home file may be gone | the same; recovery frees the slot if there is no home file |
//! | 3 | programs write to it | no file, or the file with all that was written |
//! | 4 | its directories are synced, and itself if a program asks for it | the file |
//! | 5 | the flag is cleared | the file |
//!
//! # A file whose last name went
//! The steps are those of [`super`]. Between 2 and 3 it keeps its slot and its blocks, for its name
//! may come back, and stays open at home, so that no other file gets its inode number. Of such
//! files there are [`MOST`] at most: who removes one more syncs for all of them.
//!
//! Deliberately absent: names that are durable on return; those are synced where they are made
//! ([`super`]).

use super::Namespace;
use crate::error::{Error, Result};
use crate::format::slot::UNLINKING;
use crate::home::is_elsewhere;
use crate::known::FileState;
use crate::planted::Planted;
use crate::sync::atomic::Ordering;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// Removed files that may wait for a sync: each keeps a slot, and a file of home open.
const MOST: usize = 256;
/// Bytes that their blocks may keep from others.
const MOST_BYTES: u64 = 64 << 20;
/// Background steps until the background syncs: about a second. Counted, not timed, so that a run
/// of the simulator can be repeated.
const AFTER_STEPS: u64 = 50;

/// When a change of names is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    OnReturn,
    /// After a sync of the file or of its directory.
    AtSync,
}

/// Files whose names wait for a sync.
#[derive(Default)]
pub(crate) struct Unsettled {
    /// Made, or renamed.
    named: Vec<Weak<FileState>>,
    removed: Vec<Arc<FileState>>,
    /// Of those removed.
    bytes: u64,
    /// Background steps since the first came.
    steps: u64,
    /// The last sync failed.
    failed: bool,
}

impl Unsettled {
    fn is_empty(&self) -> bool {
        self.named.is_empty() && self.removed.is_empty()
    }

    fn is_much(&self) -> bool {
        self.removed.len() >= MOST || self.bytes >= MOST_BYTES
    }
}

impl Namespace {
    /// A file was made whose name may not be durable.
    pub(super) fn made_unsettled(&self, file: &Arc<FileState>) {
        file.name.set_doubted(true);
        self.name_changed(file);
    }

    /// The name of a file may not be durable.
    pub(super) fn name_changed(&self, file: &Arc<FileState>) {
        // One that is unsettled waits already.
        let waits = file.name.unsettled().is_some();
        file.name.changed();
        if !waits {
            self.unsettled.lock().named.push(Arc::downgrade(file));
        }
    }

    /// The last name of a file went, and may come back.
    pub(super) fn removed_unsettled(&self, file: &Arc<FileState>, failed: bool) {
        let mut unsettled = self.unsettled.lock();
        unsettled.bytes += file.placed.as_ref().map_or(0, |placed| placed.size());
        unsettled.removed.push(file.clone());
        unsettled.failed |= failed;
    }

    /// Makes the names that a file has had so far durable, and those beside it and above, which the
    /// same syncs make so: who syncs all files of a directory waits for home once. Costs nothing
    /// when they are.
    pub(crate) fn settle(&self, file: &FileState) -> Result<()> {
        while let Some(changes) = file.name.unsettled() {
            if file.unlinked.load(Ordering::Acquire) {
                return Ok(());
            }
            let path = file.path.lock().clone();
            let beside = self.unsettled_beside(&path);
            let lost =
                file.placed.as_ref().is_some_and(|p| p.tier.planted.is(Planted::NameNotSynced));
            let synced = if lost { Ok(()) } else { self.settle_name(&path, || file.home.sync()) };
            match synced {
                Ok(()) => {
                    self.name_is_durable(file, changes);
                    for (file, changes) in beside {
                        self.name_is_durable(&file, changes);
                    }
                }
                // It was renamed meanwhile, or a directory above it.
                Err(_) if file.name.unsettled() != Some(changes) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// The files whose names are in a directory that holds `path` or is above it, with how many
    /// changes they have had. To be asked before the directories are synced.
    fn unsettled_beside(&self, path: &Path) -> Vec<(Arc<FileState>, u64)> {
        let mut beside = Vec::new();
        self.unsettled.lock().named.retain(|file| {
            let Some(file) = file.upgrade() else { return false };
            // Counted first: a rename after that is a change more.
            let Some(changes) = file.name.unsettled() else { return false };
            let is_beside = file.path.lock().parent().is_some_and(|dir| path.starts_with(dir));
            if is_beside {
                beside.push((file, changes));
            }
            true
        });
        beside
    }

    /// Step 5, if nothing has happened to the file's names since there were so many changes of
    /// them.
    fn name_is_durable(&self, file: &FileState, changes: u64) {
        // A removal sets the flag anew, under this lock.
        let _names = self.changing.lock();
        file.name.settled(changes);
        if file.unlinked.load(Ordering::Acquire) || file.name.unsettled().is_some() {
            return;
        }
        file.name.set_doubted(false);
        if let Some(placed) = file.placed.as_ref().filter(|p| p.has_slot() && !p.is_gone())
            && placed.meta.lock().line.flags & UNLINKING != 0
        {
            placed.set_flag(UNLINKING, false);
        }
    }

    /// After a removal: syncs for all, if there are many.
    pub(super) fn settle_if_many(&self) {
        if self.unsettled.lock().is_much() {
            // The background tries again, and tells of it.
            let _ = self.settle_all();
        }
    }

    /// The background's part.
    pub(crate) fn settle_step(&self) -> Result<()> {
        {
            let mut unsettled = self.unsettled.lock();
            if unsettled.is_empty() {
                return Ok(());
            }
            unsettled.steps += 1;
            if unsettled.steps < AFTER_STEPS && !unsettled.failed {
                return Ok(());
            }
        }
        self.settle_all()
    }

    /// Makes all names durable, and frees the blocks of files that have none.
    ///
    /// # Durability
    /// Of what had happened when it was called, on return.
    pub(crate) fn settle_all(&self) -> Result<()> {
        let _settling = self.settling.lock();
        let Unsettled { named, removed, bytes, .. } = std::mem::take(&mut *self.unsettled.lock());
        let named: Vec<_> = named.iter().filter_map(Weak::upgrade).collect();
        let counted: Vec<_> =
            named.iter().filter_map(|f| f.name.unsettled().map(|n| (f, n))).collect();
        let waiting = removed.iter().filter(|f| !f.removal_durable.load(Ordering::Acquire));
        let files = counted.iter().map(|(file, _)| *file).chain(waiting);
        let paths: BTreeSet<PathBuf> = files.map(|file| file.path.lock().clone()).collect();
        if let Err(e) = self.sync_directories(&paths) {
            let mut unsettled = self.unsettled.lock();
            unsettled.named.extend(named.iter().map(Arc::downgrade));
            unsettled.removed.extend(removed);
            unsettled.bytes += bytes;
            unsettled.failed = true;
            return Err(e);
        }
        for (file, changes) in &counted {
            self.name_is_durable(file, *changes);
        }
        let _names = self.changing.lock();
        // Renamed since: it found itself waiting.
        let again = named
            .iter()
            .filter(|f| f.name.unsettled().is_some() && !f.unlinked.load(Ordering::Acquire));
        self.unsettled.lock().named.extend(again.map(Arc::downgrade));
        for file in &removed {
            file.removal_durable.store(true, Ordering::Release);
            self.free_removed(file);
        }
        Ok(())
    }

    /// Syncs the directories of these names and all above them, each once. What is gone itself has
    /// nothing to be synced but the directory that it was in.
    fn sync_directories(&self, paths: &BTreeSet<PathBuf>) -> Result<()> {
        let mut synced: BTreeSet<&Path> = BTreeSet::new();
        for path in paths {
            for name in path.ancestors().filter(|p| !p.as_os_str().is_empty()) {
                let directory = name.parent().unwrap_or(Path::new(""));
                if !synced.insert(directory) {
                    break;
                }
                match self.env.home.sync_dir(name) {
                    Err(e) if !is_elsewhere(&e) => {
                        return Err(Error::io("cannot sync the directory of", name)(e));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
