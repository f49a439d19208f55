//! Media errors: bytes of a tier that can no longer be read.
//!
//! | what is unreadable | what happens |
//! |---|---|
//! | metadata, at attach | it is read with `pread` ([`crate::tier::Tier::read_checked`]): an error |
//! | a block being destaged | also `pread`: an error names it, it stays `Dirty`, the others go home |
//! | the same, and the user gave it up | its entry becomes `Home`, and it is listed ([`LostBlock`]) |
//! | a block that a program reads, in mapped memory | SIGBUS ends the process, with an explanation if asked for |
//! | the same on a device, and home has it | it is read from home, and the copy is given up |
//! | the same on a device, and home has it not | an error names it, and [`crate::Stats::unreadable`] does |
//!
//! The explanation is [`AttachedHome::watch_sigbus`].
//!
//! **Invariant**: an unreadable block is never replaced by an older version of itself unless the
//! user said so.

use super::AttachedHome;
use crate::address::{FRAME, WordAt};
use crate::error::{Error, Result};
use crate::format::entry::{LEAF_BLOCKS, State};
use crate::known::Placed;
use crate::ledger::Ledger;
use crate::ledger::map::Leaf;
use crate::medium::{SigbusWatch, watch_sigbus};
use crate::mover::unreadable::LostBlock;
use crate::store::Store;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long an explanation waits for a lock, which the thread that faulted may hold.
pub(super) const LOCK_PATIENCE: Duration = Duration::from_millis(500);

impl AttachedHome {
    /// [`AttachedHome::detach`] from a medium that has lost blocks: gives up those that cannot be
    /// read, and returns them, sorted by file. The home keeps an older version of each, or zeros.
    ///
    /// # Errors
    /// As [`AttachedHome::detach`]. Blocks may have been given up by then; the log names them, and
    /// so does the next call.
    ///
    /// # Durability
    /// As [`AttachedHome::detach`], except for the blocks returned.
    pub fn detach_giving_up_unreadable(self) -> Result<Vec<LostBlock>> {
        let store = self.store.clone();
        store.mover.given_up.allow(true);
        let detached = self.detach();
        store.mover.given_up.allow(false);
        detached?;
        let mut lost = store.mover.given_up.take();
        lost.sort_by(|a, b| (&a.path, a.block).cmp(&(&b.path, b.block)));
        Ok(lost)
    }

    /// Explains a SIGBUS (the medium lost bytes, or a file of the tier was truncated) until the
    /// returned guard is dropped: which member, byte, file and block it was about goes to standard
    /// error. Then the previous handler gets the signal, or the default action. No handler is
    /// installed without this call.
    ///
    /// # Errors
    /// When no descriptor or thread is available.
    pub fn watch_sigbus(&self) -> Result<SigbusWatch> {
        let store = Arc::downgrade(&self.store);
        let explain = move |path: &Path, at: u64| what_is_at(&*store.upgrade()?, path, at);
        watch_sigbus(Arc::new(explain))
            .map_err(Error::io("cannot watch for SIGBUS in", "this process"))
    }
}

/// What lies at a byte of a member; `None` when the member is not this home's.
fn what_is_at(store: &Store, path: &Path, at: u64) -> Option<String> {
    let place = |tier: &Arc<Ledger>| tier.members.iter().position(|member| member.path == path);
    let (tier, member) = store.tiers.iter().find_map(|tier| Some((tier, place(tier)?)))?;
    if at < tier.geometry.data_start[member] {
        return Some("it is metadata of the tier (superblock, records or file table)".into());
    }
    if tier.is_in_extent(member, at, LOCK_PATIENCE) {
        return Some("it is metadata of the tier (a part that the file table has grown by)".into());
    }
    let Some(files) = store.files.all_within(LOCK_PATIENCE) else {
        return Some("`tiersmith check` tells which block that is".into());
    };
    for file in files {
        let Some(placed) = file.placed.as_ref().filter(|p| Arc::ptr_eq(&p.tier, tier)) else {
            continue;
        };
        let mut found = None;
        placed.map.for_each_leaf(|number, leaf| {
            found = found.take().or_else(|| in_leaf(placed, number, leaf, member, at));
        });
        if let Some((what, state)) = found {
            let path = file.path.try_lock_for(LOCK_PATIENCE);
            // It goes to a log as it is: no name may be a line or a terminal's command there.
            let shown = |path: &Path| path.display().to_string().escape_debug().to_string();
            let path = path.map_or_else(|| format!("file {}", placed.id), |path| shown(&path));
            return Some(format!("it is in {what} of {path}{state}"));
        }
    }
    Some("no block of a file is there".into())
}

/// The block, or the map page of this leaf, that a byte is in; and what that means.
fn in_leaf(
    placed: &Placed,
    number: u64,
    leaf: &Leaf,
    member: usize,
    at: u64,
) -> Option<(String, &'static str)> {
    let first = number * LEAF_BLOCKS;
    let inside = |page: WordAt| {
        page.member() == member && (page.offset()..page.offset() + FRAME as u64).contains(&at)
    };
    if leaf.word_at(0).is_some_and(inside) {
        return Some((
            format!("the map page of blocks {first} to {}", first + LEAF_BLOCKS - 1),
            "",
        ));
    }
    (0..LEAF_BLOCKS).find_map(|index| {
        let entry = leaf.get(index as usize);
        let state = match entry.state() {
            State::Home => return None,
            State::Cached => " (Cached: the home has the same bytes)",
            State::Dirty => " (Dirty: its newest version exists only there)",
        };
        let (on, start) = placed.tier.geometry.locate(entry.frame());
        let inside =
            on == member && (start..start + placed.block_size.bytes() as u64).contains(&at);
        inside.then(|| (format!("block {}", first + index), state))
    })
}

#[cfg(test)]
mod tests {
    use super::what_is_at;
    use crate::address::FRAME;
    use crate::home::OpenMode;
    use crate::medium::Medium;
    use crate::options::{Options, TierSpec};
    use crate::profile::Profile;

    #[test]
    fn a_fault_in_what_the_file_table_has_grown_by_is_told_to_be_in_the_file_table() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("db")).unwrap();
        let member = dir.path().join("fast");
        let tier = TierSpec {
            slots: 8,
            unit: 32 << 10,
            ..TierSpec::new("fast", &member, Medium::Emulated, 4 << 20)
        };
        let profile = Some(Profile::named("generic").unwrap());
        let options = Options { profile, background: false, ..Options::default() };
        let home = crate::attach(&dir.path().join("db"), &[tier], options).unwrap();
        let open = |n| home.open(format!("{n}.db"), OpenMode::CREATE).unwrap();
        let files: Vec<_> = (0..20).map(open).collect();
        files.iter().for_each(|file| file.write(0, &[1; 8192]).unwrap());
        let start = home.store.tiers[0].geometry.data_start[0];
        let frames = (start..4 << 20).step_by(FRAME);
        let said: Vec<String> =
            frames.filter_map(|at| what_is_at(&home.store, &member, at)).collect();
        assert_eq!(said.iter().filter(|what| what.contains("file table")).count(), 8, "{said:?}");
        assert!(said.iter().any(|what| what.contains("block 0 of 1.db")), "{said:?}");
    }
}
