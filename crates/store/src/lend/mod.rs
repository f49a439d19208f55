//! Lent files: redo files of fixed size whose contents are in a plain file beside the tier while
//! they are written, so that the kernel can write them itself (a door hands it the plain file) and
//! no call goes through this process.
//!
//! The state line says it: while a file is lent its plain file is the truth, its map is empty, and
//! home may be behind in any way. Every operation of the store on it acts on the plain file
//! ([`crate::file::lent`]); [`crate::plain`] is where plain files are.
//!
//! # Lending, and what a power cut leaves
//!
//! | step | what is done | a cut after it leaves |
//! |---|---|---|
//! | 1 | the plain file is made, its space reserved, filled with the file's contents and synced, then its directory | the file; a plain file that nobody knows, removed at the next attach |
//! | 2 | the state line gets the flag `lent` and the number of the loan; **fence** | **lent** |
//! | 3 | its map entries become `Home`, their frames are free | lent: recovery does the rest |
//!
//! # Giving back
//!
//! | step | what is done | a cut after it leaves |
//! |---|---|---|
//! | 1 | the state line says `destaging`, and again when copying takes long; home gets what differs, its size and its time, and is synced | lent |
//! | 2 | the state line gets the size and home's stamp, and loses the flag and the number; **fence** | **the file, all at home** |
//! | 3 | the plain file is removed | the same; one that is left is removed at the next attach |
//!
//! A program that has mapped a lent file may write to it after it has closed it. The kernel tells
//! ([`LentDir::is_ours_alone`]), and such a file is not given back.
//!
//! On flash, of a fence that the log did not take down nobody knows whether it has happened
//! (`Tier::sound`). Then nothing becomes lent, and no plain file is removed, cut or written here.
//!
//! # Locks
//! `lending` (one lends or gives back) is taken after `changing` and before all locks of a file.
//! `plain` of a file is taken after `moving`: a reader holds it as long as it reads, so that what
//! it reads is not moved away under it.
//!
//! Deliberately absent: who lends. A door does, when it opens a file that the kernel may take over.

pub(crate) mod holders;
#[cfg(test)]
mod tests;

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::file::FileIo;
use crate::format::slot::{DESTAGING, LENT, TIME_EXACT, with_loan};
use crate::homeward::Homeward;
use crate::known::files::Files;
use crate::known::{FileState, Placed};
use crate::ledger::Ledger;
use crate::mover::Mover;
use crate::plain::{LentDir, Plain, PlainName};
use crate::planted::Planted;
use crate::profile::FileClass;
use crate::profile::Profile;
use crate::sync::Mutex;
use crate::sync::atomic::Ordering;
use std::sync::Arc;

/// Bytes that are copied at a time, and compared with home's.
const PART_BYTES: usize = 256 << 10;

/// Lent files of a home.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LendingStats {
    /// Files lent now.
    pub files: u64,
    /// Bytes of their plain files.
    pub bytes: u64,
    /// Those of them of which home does not have everything, or is not known to: bytes of their
    /// plain files.
    pub not_home_bytes: u64,
    /// Where the plain files are, one directory for a tier with some, or for which one is named.
    /// Each belongs to its tier.
    pub directories: Vec<std::path::PathBuf>,
    /// Bytes there may be.
    pub max_bytes: u64,
    /// Why the last file that was to be lent was not, or why none can be; `None` when it was, or
    /// nothing is known against it.
    pub refused: Option<String>,
}

/// What `lending` protects.
#[derive(Debug, Default)]
pub(crate) struct Lending {
    refused: Option<String>,
}

/// Lends files of a home, and takes them back.
pub(crate) struct Lender {
    pub(crate) env: Arc<Environment>,
    pub(crate) homeward: Arc<Homeward>,
    pub(crate) files: Arc<Files>,
    pub(crate) mover: Arc<Mover>,
    pub(crate) io: Arc<FileIo>,
    pub(crate) tiers: Vec<Arc<Ledger>>,
    pub(crate) profile: Arc<Profile>,
    /// One lends or gives back.
    pub(crate) lending: Mutex<Lending>,
}

impl Lender {
    /// Lends a file, if it may be: see [`crate::File::lend`].
    pub(crate) fn lend(&self, file: &FileState) -> Result<Option<Plain>> {
        let Some(placed) =
            file.placed.as_ref().filter(|p| p.class == FileClass::Redo && p.tier.holds_dirty())
        else {
            return Ok(None);
        };
        // One that was just made is empty, and about to be filled.
        let wanted =
            placed.loan.is_lent() || (placed.size() > 0 && self.profile.is_lent(&file.path.lock()));
        if !wanted {
            return Ok(None);
        }
        let mut lending = self.lending.lock();
        self.env.usable()?;
        placed.tier.sound()?;
        let plain = match placed.loan.plain() {
            Some(plain) => plain,
            None => match self.begin_lending(file, placed) {
                Ok(plain) => {
                    lending.refused = None;
                    plain
                }
                Err(why) => {
                    if lending.refused.as_ref() != Some(&why) {
                        log::info!(
                            "{} is written through the daemon: {why}",
                            file.path.lock().display()
                        );
                    }
                    lending.refused = Some(why);
                    return Ok(None);
                }
            },
        };
        // The log may have failed at the last step, when the blocks were freed.
        placed.tier.sound()?;
        placed.loan.borrowers.fetch_add(1, Ordering::AcqRel);
        placed.loan.changed();
        Ok(Some(plain))
    }

    /// The four steps. The error is a reason, and nothing has changed then.
    fn begin_lending(
        &self,
        file: &FileState,
        placed: &Placed,
    ) -> std::result::Result<Plain, String> {
        let tier = &placed.tier;
        let Some(dir) = &tier.lent_dir else {
            return Err(no_files_beside(tier));
        };
        self.make_lending_room(placed.size())?;
        let said = |e: Error| e.to_string();
        let _ranging = file.ranging.lock();
        let _sizing = placed.sizing.lock();
        self.io.finish_earlier_cut(file, placed).map_err(said)?;
        let _moving = placed.moving.lock();
        let size = placed.size();
        if placed.is_gone() || file.unlinked.load(Ordering::Acquire) {
            return Err("it was removed".into());
        }
        if placed.stay.is_pinned() {
            return Err("it is pinned".into());
        }
        if placed.stay.stays() {
            return Err("its blocks are being brought into the tier".into());
        }
        if size == 0 {
            return Err("it is empty".into());
        }
        if self.lent_bytes() + size > self.env.options.lent_max_bytes {
            return Err(self.no_room(size));
        }
        let name = {
            let count = tier.superblocks.lock()[0].attach_count;
            let seq = placed.meta.lock().line.seq;
            let loan = PlainName::new_loan(count, self.env.home.now_ns(), seq);
            PlainName { tier: tier.uuid(), id: placed.id, loan }
        };
        let made = self.copy_out(file, placed, &**dir, name, size);
        let plain = match made {
            Ok(plain) => plain,
            Err(why) => {
                let _ = dir.remove(name);
                return Err(why);
            }
        };
        let lent = (|| {
            let mut meta = placed.meta.lock();
            if meta.line.flags & DESTAGING != 0 {
                file.home.sync().map_err(file.io("cannot sync"))?;
                self.homeward.fingerprint(file, placed, &mut meta)?;
            }
            placed.times.forget_exact();
            meta.line.flags = with_loan((meta.line.flags | LENT) & !TIME_EXACT, name.loan);
            meta.line.mtime = 0;
            meta.line.size = size;
            placed.persist_line(&mut meta);
            Ok(())
        })();
        if let Err(e) = lent {
            let _ = dir.remove(name);
            return Err(said(e));
        }
        // The line may be durable or not: the plain file stays, and nobody writes it.
        tier.sound().map_err(said)?;
        if tier.planted.is(Planted::LentBeforeSync) {
            let synced = plain.file.sync().and_then(|()| dir.sync());
            synced.map_err(|e| e.to_string())?;
        }
        placed.loan.begin(plain.clone());
        placed.drop_map();
        Ok(plain)
    }

    /// Step 1. Nobody writes to the file meanwhile.
    fn copy_out(
        &self,
        file: &FileState,
        placed: &Placed,
        dir: &dyn LentDir,
        name: PlainName,
        size: u64,
    ) -> std::result::Result<Plain, String> {
        let failed = |e: std::io::Error| format!("{}: {e}", dir.path(name).display());
        let (_, seen) = self.homeward.overlay(file).map_err(|e| e.to_string())?;
        let plain = dir.make(name, size).map_err(failed)?;
        let mut part = vec![0; PART_BYTES];
        let mut at = 0;
        while at < size {
            let len = (size - at).min(PART_BYTES as u64) as usize;
            self.io.read(file, at, &mut part[..len]).map_err(|e| e.to_string())?;
            // Zeros too: space that was only reserved would make the first write of each block
            // slow.
            plain.file.write_at(at, &part[..len]).map_err(failed)?;
            at += len as u64;
        }
        if let Some(seen) = seen {
            plain.file.set_times(None, Some(seen.mtime)).map_err(failed)?;
        }
        if !placed.tier.planted.is(Planted::LentBeforeSync) {
            plain.file.sync().and_then(|()| dir.sync()).map_err(failed)?;
        }
        Ok(plain)
    }

    /// Bytes of all plain files.
    pub(crate) fn lent_bytes(&self) -> u64 {
        let files = self.files.all();
        let loans = files.iter().filter_map(|f| Some(&f.placed.as_ref()?.loan));
        loans.filter_map(|loan| Some(loan.plain_bytes(&loan.plain()?))).sum()
    }

    fn no_room(&self, size: u64) -> String {
        format!(
            "{size} bytes more would be more than the {} bytes that may be lent",
            self.env.options.lent_max_bytes
        )
    }

    /// Gives files back that nobody uses and of which home has everything, until there is room.
    /// Called with `lending` held and nothing else.
    fn make_lending_room(&self, size: u64) -> std::result::Result<(), String> {
        let most = self.env.options.lent_max_bytes;
        if size > most {
            return Err(self.no_room(size));
        }
        for file in self.idle_loans() {
            if self.lent_bytes() + size <= most {
                break;
            }
            if file.placed.as_ref().is_some_and(|p| p.loan.is_at_home()) {
                self.give_back(&file).map_err(|e| e.to_string())?;
            }
        }
        if self.lent_bytes() + size <= most { Ok(()) } else { Err(self.no_room(size)) }
    }

    /// Lent files that no kernel has and that are not pinned, those first that were let go longest
    /// ago.
    fn idle_loans(&self) -> Vec<Arc<FileState>> {
        let idle = |f: &Arc<FileState>| {
            f.placed.as_ref().is_some_and(|p| {
                p.loan.is_lent() && p.loan.borrowers.load(Ordering::Acquire) == 0 && !p.stay.stays()
            })
        };
        let mut files: Vec<_> = self.files.all().into_iter().filter(idle).collect();
        // Asked once each: what a sort looks at must not change meanwhile.
        files.sort_by_cached_key(|f| {
            f.placed.as_ref().map_or(0, |p| p.loan.idle_since_ns.load(Ordering::Acquire))
        });
        files
    }

    /// Ends a loan. `false`: somebody uses the file. Called with `lending` held.
    pub(crate) fn give_back(&self, file: &FileState) -> Result<bool> {
        let Some(placed) = &file.placed else { return Ok(true) };
        let _ranging = file.ranging.lock();
        let _sizing = placed.sizing.lock();
        let _moving = placed.moving.lock();
        let Some(plain) = placed.loan.plain().filter(|_| !placed.is_gone()) else {
            return Ok(true);
        };
        if placed.is_plain_in_use(&plain) {
            return Ok(false);
        }
        if !placed.loan.is_at_home() {
            self.mover.copy_home(file, placed, &plain)?;
        }
        let size = plain.file.stat().map_err(file.io("cannot stat the lent"))?.size;
        if placed.tier.planted.is(Planted::PlainRemovedFirst) {
            placed.remove_plain(plain.name);
        }
        {
            let mut meta = placed.meta.lock();
            let before = meta.line.clone();
            meta.line.flags = with_loan(meta.line.flags & !LENT, 0);
            meta.line.size = size;
            // On flash the line may not have become durable: then the plain file is the truth.
            let said = self.homeward.fingerprint(file, placed, &mut meta);
            if let Err(e) = said.and_then(|()| placed.tier.sound()) {
                meta.line = before;
                return Err(e);
            }
        }
        placed.size.store(size, Ordering::Release);
        placed.map.evictions.fetch_add(1, Ordering::AcqRel);
        placed.loan.end();
        placed.remove_plain(plain.name);
        Ok(true)
    }

    /// Ends the loan of a file that leaves the tier. An error when it is in use.
    pub(crate) fn give_back_whole(&self, file: &FileState) -> Result<()> {
        if !file.placed.as_ref().is_some_and(|p| p.loan.is_lent()) {
            return Ok(());
        }
        let _lending = self.lending.lock();
        if self.give_back(file)? {
            return Ok(());
        }
        let known = file.placed.as_ref().and_then(|placed| self.lent_in_use(file, placed));
        let programs = known.map(|known| known.programs).unwrap_or_default();
        let who = match &programs[..] {
            [] => "a program has it open or mapped".to_owned(),
            programs => format!("{} has it open", programs.join(" and ")),
        };
        let reason = format!(
            "{who} (its plain file is {}); end that program and try again",
            plain_path(file)
        );
        Err(file.invalid("give back", reason))
    }

    /// Ends every loan: before detaching.
    pub(crate) fn give_all_back(&self) -> Result<()> {
        self.files.all().iter().try_for_each(|file| self.give_back_whole(file))
    }

    /// Background: one file that is not in use goes home once it has rested, so that home does not
    /// lag for ever; when most of the room is taken, some of those that are home end their loans.
    pub(crate) fn lending_step(&self) -> Result<()> {
        let idle = self.idle_loans();
        let mut failed = None;
        let now_ns = self.env.home.now_ns();
        let is_short = !idle.is_empty() && self.lent_bytes() > self.env.options.lent_max_bytes / 2;
        // Copying what is written anew a moment later would take as much of home's storage as the
        // redo itself.
        let rested = |placed: &Placed| {
            let since_ns = placed.loan.idle_since_ns.load(Ordering::Acquire);
            let rest_ns = self.env.options.lent_rest.as_nanos();
            // A clock that was put back says nothing.
            is_short || now_ns < since_ns || u128::from(now_ns - since_ns) >= rest_ns
        };
        for file in &idle {
            let placed = file.placed.as_ref().filter(|p| !p.loan.is_at_home() && rested(p));
            let Some(placed) = placed else { continue };
            // One that is mapped changes without a sign; it goes home when somebody asks for it.
            if placed.loan.plain().is_none_or(|plain| placed.is_plain_in_use(&plain)) {
                continue;
            }
            match self.mover.destage_file(file, u64::MAX) {
                Ok(_) => break,
                Err(e) => failed = Some(e),
            }
        }
        let most = self.env.options.lent_max_bytes / 4 * 3;
        for file in &idle {
            if self.lent_bytes() <= most {
                break;
            }
            if file.placed.as_ref().is_some_and(|p| p.loan.is_at_home()) {
                let _lending = self.lending.lock();
                self.give_back(file)?;
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Why no file of this home can be lent, whatever it is.
    fn nowhere_to_lend(&self) -> Option<String> {
        if self.tiers.iter().any(|tier| tier.lent_dir.is_some()) {
            return None;
        }
        let durable = self.tiers.iter().find(|tier| tier.holds_dirty());
        Some(durable.map_or_else(
            || "the fast storage keeps clean copies only".into(),
            |tier| no_files_beside(tier),
        ))
    }

    pub(crate) fn lending_stats(&self) -> LendingStats {
        // Held while a file goes home, which may take long; nobody waits for that to be told how it
        // is.
        let refused = self.lending.try_lock().map(|lending| lending.refused.clone());
        let mut stats =
            LendingStats { max_bytes: self.env.options.lent_max_bytes, ..LendingStats::default() };
        stats.refused = refused.flatten().or_else(|| self.nowhere_to_lend());
        let named = self.tiers.iter().filter(|tier| tier.lent_in.is_some());
        let named = named.filter_map(|tier| Some(tier.lent_dir.as_ref()?.directory_path()));
        stats.directories.extend(named);
        for file in self.files.all() {
            let Some(placed) = &file.placed else { continue };
            let Some(plain) = placed.loan.plain() else { continue };
            let bytes = placed.loan.plain_bytes(&plain);
            stats.files += 1;
            stats.bytes += bytes;
            if placed.loan.borrowers.load(Ordering::Acquire) > 0 || !placed.loan.is_at_home() {
                stats.not_home_bytes += bytes;
            }
            if let Some(directory) = placed.tier.lent_dir.as_ref().map(|dir| dir.directory_path())
                && !stats.directories.contains(&directory)
            {
                stats.directories.push(directory);
            }
        }
        stats
    }
}

/// Where the plain file of a lent file is, for messages.
fn plain_path(file: &FileState) -> String {
    let path = file.placed.as_ref().and_then(|placed| {
        Some(placed.tier.lent_dir.as_ref()?.path(placed.loan.plain()?.name).display().to_string())
    });
    path.unwrap_or_default()
}

/// Why nothing of a tier can be lent.
fn no_files_beside(tier: &Ledger) -> String {
    let why = match tier.has_log {
        true => "is on flash, and no directory is named for such files (--passthrough-dir DIR)",
        false => "is on a device, beside which there can be no files",
    };
    format!("tier `{}` {why}", tier.name)
}
