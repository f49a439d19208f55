//! What happens when the medium holds what it cannot hold.
//!
//! Nothing that is read from the medium makes this program panic or write where it must not. Who
//! meets something impossible notes it and goes on with nothing (a word that is zero, no bytes);
//! who executes commands looks at the note after each of them, takes back what the command did, and
//! refuses it. A value without its checksum costs its key. Damage to what finds and frees entries
//! also ends all changes until the tier was looked after: with wrong words in the index or the
//! allocator they could destroy what is still whole.

use super::Heap;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A value is not what was written.
    Value(String),
    /// A word of index, allocator or entry is impossible.
    Structure(String),
}

impl Heap {
    /// Notes damage, of which the first stays noted.
    #[cold]
    pub fn note(&self, damage: Damage) {
        let mut noted = self.noted.borrow_mut();
        if noted.is_none() {
            *noted = Some(damage);
        }
    }

    #[cold]
    pub(super) fn note_outside(&self, at: u64, len: u64) -> u64 {
        self.note(Damage::Structure(format!(
            "something refers to {len} bytes at {at}, where none can be"
        )));
        0
    }

    /// Whether something is noted.
    pub fn is_noted(&self) -> bool {
        self.noted.borrow().is_some()
    }

    /// Takes the note. After damage to the structure the heap is not to be changed any more.
    pub fn take_note(&mut self) -> Option<Damage> {
        let damage = self.noted.take()?;
        if let Damage::Structure(what) = &damage
            && self.broken.is_none()
        {
            self.broken = Some(what.clone());
        }
        Some(damage)
    }

    /// Why the heap is not to be changed any more, if that is so.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }
}
