//! Lists: the files of the tier, and the files of home that a pattern matches.

use super::AttachedHome;
use super::media_errors::LOCK_PATIENCE;
use crate::address::BlockSize;
use crate::cache::usage::FileUse;
use crate::error::{Error, Result};
use crate::known::FileState;
use crate::profile::keeping::path_pattern;
use crate::profile::{CacheRule, FileClass};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A file that the tier knows.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileInTier {
    /// One of its paths, relative to home: the one seen last.
    pub path: PathBuf,
    /// How many names it has; 0: it is removed and still open.
    pub names: u64,
    /// Name of the tier.
    pub tier: String,
    /// Its number there.
    pub id: u64,
    /// Redo or data.
    pub class: FileClass,
    /// Block size.
    pub block_size: BlockSize,
    /// Length in bytes.
    pub size: u64,
    /// Blocks of which the tier has a clean copy.
    pub cached: u64,
    /// Blocks whose newest version is only in the tier.
    pub dirty: u64,
    /// It is lent: its contents are in a plain file beside the tier.
    pub lent: bool,
    /// It stays in the tier.
    pub pinned: bool,
    /// How often it is open.
    pub handles: usize,
    /// What became of its reads since the attach, or since it got its place in the tier.
    pub usage: FileUse,
}

/// What was counted of a file that the tier knows.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileUsed {
    /// Name of the tier.
    pub tier: String,
    /// Its number there: another file's counts begin at nothing, whatever its path.
    pub id: u64,
    /// Block size.
    pub block_size: BlockSize,
    /// What became of its reads, and what was written.
    pub usage: FileUse,
}

/// A file of home that a pattern matches.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Candidate {
    /// Its path, relative to home.
    pub path: PathBuf,
    /// Length in bytes.
    pub size: u64,
    /// The class it has in the tier, else the one its name has.
    pub class: FileClass,
    /// The tier knows it.
    pub in_tier: bool,
}

/// A rule of how the blocks of files are treated, and the data files it decides of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CacheRuleUse {
    /// The rule.
    pub rule: CacheRule,
    /// Those of them that the tier knows.
    pub files: u64,
    /// Bytes of their blocks that the tier has clean copies of.
    pub cached_bytes: u64,
    /// Bytes of those that only the tier has.
    pub dirty_bytes: u64,
}

impl AttachedHome {
    /// The rules of [`crate::Options::cache`], and what the tier has by them.
    pub fn cache_rules(&self) -> Vec<CacheRuleUse> {
        let cache = &self.store.env.options.cache;
        let unused = |rule: &CacheRule| CacheRuleUse {
            rule: rule.clone(),
            files: 0,
            cached_bytes: 0,
            dirty_bytes: 0,
        };
        let mut rules: Vec<CacheRuleUse> = cache.rules().iter().map(unused).collect();
        if rules.is_empty() {
            return rules;
        }
        for file in self.store.files.all() {
            let Some(placed) = file.placed.as_ref().filter(|p| !p.is_gone()) else { continue };
            let decides =
                cache.decides(&file.path.lock()).filter(|_| placed.class == FileClass::Data);
            if let Some(rule) = decides.map(|rule| &mut rules[rule]) {
                let ((dirty, cached), block) =
                    (placed.map.counts(), placed.block_size.bytes() as u64);
                rule.files += 1;
                rule.cached_bytes += cached * block;
                rule.dirty_bytes += dirty * block;
            }
        }
        rules
    }

    /// The rules that decide of no data file of the home.
    ///
    /// # Errors
    /// Home's, when it cannot be walked.
    pub fn cache_rules_of_no_file(&self) -> Result<Vec<CacheRule>> {
        self.store.env.usable()?;
        let cache = &self.store.env.options.cache;
        if cache.rules().is_empty() {
            return Ok(Vec::new());
        }
        let mut decided = vec![false; cache.rules().len()];
        let walked = self.store.env.home.walk(&mut |path, _| {
            let is_data = self.store.profile.placement(path).class == FileClass::Data;
            if let Some(rule) = cache.decides(path).filter(|_| is_data) {
                decided[rule] = true;
            }
            Ok(())
        });
        walked.map_err(Error::io("cannot walk", ""))?;
        let rules = cache.rules().iter().zip(decided);
        Ok(rules.filter(|(_, decided)| !decided).map(|(rule, _)| rule.clone()).collect())
    }

    /// The paths of the files with blocks that home does not have. Asks nothing of the file system.
    pub fn dirty_files(&self) -> Vec<PathBuf> {
        let is_dirty = |file: &Arc<FileState>| {
            file.placed.as_ref().is_some_and(|p| !p.is_gone() && p.map.counts().0 > 0)
        };
        self.store
            .files
            .all()
            .iter()
            .filter(|f| is_dirty(f))
            .map(|f| f.path.lock().clone())
            .collect()
    }

    /// What was counted of the files that the tier knows, of those that were used and have a name.
    /// Asks nothing of the file system, and stops nobody: for who looks again and again. `None`
    /// when somebody else has the list of files for long.
    pub fn used(&self) -> Option<Vec<FileUsed>> {
        let files = self.store.files.all_within(LOCK_PATIENCE)?;
        let used = files.iter().filter_map(|file| {
            let placed = file.placed.as_ref().filter(|p| !p.is_gone())?;
            if file.unlinked.load(Ordering::Acquire) {
                return None;
            }
            let usage = placed.usage.read();
            (usage != FileUse::default()).then(|| FileUsed {
                tier: placed.tier.name.clone(),
                id: placed.id,
                block_size: placed.block_size,
                usage,
            })
        });
        Some(used.collect())
    }

    /// The paths of the files that are pinned, and their sizes. Asks nothing of the file system.
    pub fn pinned(&self) -> Vec<(PathBuf, u64)> {
        let files = self.store.files.all();
        let pinned = files.iter().filter_map(|file| {
            let placed = file.placed.as_ref().filter(|p| !p.is_gone() && p.stay.is_pinned())?;
            Some((file.path.lock().clone(), placed.size()))
        });
        pinned.collect()
    }

    /// The files that the tier knows, by path.
    pub fn files(&self) -> Vec<FileInTier> {
        let files = self.store.files.all();
        let known = files.iter().filter_map(|file| {
            let placed = file.placed.as_ref().filter(|p| !p.is_gone())?;
            let (dirty, cached) = placed.map.counts();
            let size = file.size_of(placed).unwrap_or_else(|_| placed.size());
            // Home's file may be looked at by its path: not while that is locked.
            let path = file.path.lock().clone();
            Some(FileInTier {
                path,
                names: file.home.stat().map_or(1, |stat| stat.nlink),
                tier: placed.tier.name.clone(),
                id: placed.id,
                class: placed.class,
                block_size: placed.block_size,
                size,
                cached,
                dirty,
                lent: placed.loan.is_lent(),
                pinned: placed.stay.is_pinned(),
                handles: file.handles.load(Ordering::Acquire),
                usage: placed.usage.read(),
            })
        });
        let mut known: Vec<FileInTier> = known.collect();
        known.sort_by(|a, b| a.path.cmp(&b.path));
        known
    }

    /// The ordinary files of home whose path matches a pattern (`?` and `*` within a part, `**`
    /// across parts, `[...]`, `{a,b}`). A pattern without a slash matches a name in any directory.
    ///
    /// # Errors
    /// [`Error::Options`] for a pattern that cannot be read; home's error when it cannot be walked.
    pub fn candidates(&self, pattern: &str) -> Result<Vec<Candidate>> {
        self.store.env.usable()?;
        let glob = path_pattern(pattern)
            .map_err(|e| Error::Options(format!("the pattern `{pattern}` cannot be read: {e}")))?
            .compile_matcher();
        let mut found = Vec::new();
        let walked = self.store.env.home.walk(&mut |path, stat| {
            if glob.is_match(path) {
                let known = self.store.names.find(stat);
                let placed = known.as_ref().and_then(|file| file.placed.as_ref());
                found.push(Candidate {
                    path: path.to_path_buf(),
                    size: known
                        .as_ref()
                        .zip(placed)
                        .and_then(|(f, p)| f.size_of(p).ok())
                        .unwrap_or(stat.size),
                    class: placed
                        .map_or_else(|| self.store.profile.placement(path).class, |p| p.class),
                    in_tier: placed.is_some(),
                });
            }
            Ok(())
        });
        walked.map_err(Error::io("cannot walk", ""))?;
        Ok(found)
    }
}
