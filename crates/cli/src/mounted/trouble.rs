//! What `status` has to say of a mounted home that somebody should mend, a sentence each.
//!
//! Deliberately absent: what is right, and figures ([`super::live`]).

use super::live::Live;
use super::size;

impl Live {
    /// Files that are not in the tier and should be, and files inside or outside the home that
    /// nothing protects: what is to be mended of them.
    pub(crate) fn trouble_with_files(&self) -> Vec<String> {
        let in_tiers = self.tiers.iter().flat_map(|tier| tier.table.trouble(&tier.name));
        let redo_gone = self.door.redo_at.as_ref().filter(|_| self.door.redo_gone).map(|redo| {
            format!(
                "{} was unmounted by somebody, and nothing in it can be reached: stop the \
                 database, \
                 `tiersmith unmount {}`, and attach again",
                self.at.join(redo).display(),
                self.home.display()
            )
        });
        let of_pages = self.unprotected.clone().into_iter().chain(redo_gone);
        in_tiers.chain(of_pages).chain(self.outside_home.unprotected.clone()).collect()
    }

    /// What a medium no longer does, and what is at risk by it.
    pub(crate) fn trouble_with_media(&self) -> Vec<String> {
        let failed = self.tiers.iter().filter_map(|tier| {
            let (name, why, dirty) = (&tier.name, tier.failed.as_ref()?, size(tier.dirty_bytes));
            if !tier.durability.may_hold_only_copy() {
                return Some(format!(
                    "tier {name} failed: {why}. It had clean copies only, so nothing is lost, and \
                     the database goes on without it. Mend or replace the disk; then stop the \
                     database, `tiersmith unmount {0}`, and `tiersmith attach {0}`, with --fast if \
                     the new disk has another path",
                    self.home.display()
                ));
            }
            Some(format!(
                "tier {name} failed: {why}. Nothing more is written, there or to home; reads go \
                 on, from home where \
                 it has the block. {dirty} bytes are newer there than at home: they are lost if \
                 the medium does not \
                 come back. Stop the database, mend the medium, `tiersmith unmount {}`, and attach \
                 again",
                self.home.display()
            ))
        });
        let lost = (self.unreadable_blocks > 0).then(|| {
            let more = self.unreadable_blocks - self.unreadable.len() as u64;
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            format!(
                "the newest version of these could not be read, and is nowhere else: {}{more}. \
                 Restore the medium from \
                 a copy, or `tiersmith detach --skip-unreadable {}`, which leaves home's older \
                 version of each",
                self.unreadable.join(", "),
                self.home.display()
            )
        });
        failed.chain(lost).collect()
    }
}
