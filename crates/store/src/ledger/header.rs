//! A file's slot in the file table: whose it is, where its map begins, its state line and the hint
//! of its path.
//!
//! Deliberately absent: which slots are free ([`crate::tier::table`]), and what is in a state line.

use super::Ledger;
use crate::address::WordAt;
use crate::error::Result;
use crate::format::entry::{Entry, Place, seal, seal_value};
use crate::format::slot::{
    IDENTITY_AT, Identity, PATH_AT, SLOT, SlotBytes, StateLine, encode_path,
};
use crate::planted::Planted;
use crate::tier::table::Slot;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use zerocopy::IntoBytes;

impl Ledger {
    /// All of a slot, as it is on the medium.
    pub(crate) fn read_slot(&self, at: WordAt) -> Result<[u8; SLOT]> {
        let mut bytes = [0; SLOT];
        self.read_checked(at, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills a slot and puts it in use.
    ///
    /// # Durability
    /// The slot is whole, durable, before its in-use word is switched; both are durable on return.
    pub(crate) fn fill_slot(
        &self,
        number: u64,
        id: u64,
        path: &Path,
        identity: &Identity,
        line: &StateLine,
    ) -> Slot {
        let slot = self.slot(number).expect("BUG: a free slot is one of the table");
        let mut bytes = SlotBytes::new(identity, line, path.as_os_str().as_bytes(), self.seed, id);
        for (root, place) in
            bytes.roots.iter_mut().zip([Place::Leaf(0), Place::Middle(0), Place::Top])
        {
            *root = seal(self.seed, id, place, Entry::HOME).into();
        }
        let word = seal_value(self.seed, 0, Place::Slot(number), id);
        if self.planted.is(Planted::SlotInUseFirst) {
            self.store_word(slot.at, word);
            self.fence();
        }
        self.write_meta(slot.at.plus(IDENTITY_AT), &bytes.as_bytes()[IDENTITY_AT as usize..]);
        self.fence();
        self.store_word(slot.at, word);
        self.fence();
        slot
    }

    /// Says that nobody has a slot.
    ///
    /// # Durability
    /// Durable on return.
    pub(crate) fn free_slot(&self, slot: Slot) {
        self.store_word(slot.at, seal_value(self.seed, 0, Place::Slot(slot.number), 0));
        self.fence();
    }

    /// Writes a state line twice, one behind the other; durable with the next fence.
    #[inline]
    pub(crate) fn write_state_line(&self, slot: Slot, id: u64, line: &StateLine) {
        let at = slot.at.plus(line.at());
        let words = line.words(self.seed, id);
        self.words(at.member()).write_line(at.offset(), words, 2);
    }

    /// Rewrites the hint of the path. A cut leaves none, and the file is then found by its inode
    /// number.
    ///
    /// # Durability
    /// Durable on return.
    pub(crate) fn write_path(&self, slot: Slot, id: u64, path: &Path) {
        let hint = encode_path(path.as_os_str().as_bytes(), self.seed, id);
        self.write_meta(slot.at.plus(PATH_AT), &hint);
        self.fence();
    }
}
