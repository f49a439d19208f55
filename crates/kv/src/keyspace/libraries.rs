//! Libraries of functions: their texts, by name, in an index beside those of the databases.
//!
//! They are part of the heap's transaction as keys are. What an interpreter has made of them is not
//! known here: [`Keyspace::libraries_turn`] tells whether it is still that.

use super::Keyspace;
use crate::format::entry::kind;
use crate::format::{LIBRARIES, LIBRARIES_TURN};
use crate::heap::Full;
use crate::planted::Planted;

impl Keyspace {
    /// A number that is another one when the libraries are others; also what is taken back does not
    /// bring an old one again for other libraries.
    pub(crate) fn libraries_turn(&self) -> u64 {
        self.heap.word(LIBRARIES_TURN)
    }

    fn turn_libraries(&mut self) {
        self.library_turns += 1;
        self.heap.set(LIBRARIES_TURN, self.library_turns);
        self.changes += 1;
    }

    /// How many there are.
    pub(crate) fn library_count(&self) -> u64 {
        self.len(LIBRARIES)
    }

    /// The name and the text of each; damage is noted.
    pub(crate) fn libraries(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut all = Vec::new();
        self.for_each(LIBRARIES, |name, found| all.push((name.to_vec(), self.value(found))));
        all
    }

    /// [`Keyspace::libraries`], if their texts have no more bytes together.
    pub(crate) fn libraries_within(&self, most: usize) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        let (mut all, mut bytes) = (Vec::new(), 0_usize);
        self.for_each(LIBRARIES, |name, found| {
            if bytes <= most {
                let text = self.value(found);
                bytes += text.len();
                all.push((name.to_vec(), text));
            }
        });
        (bytes <= most).then_some(all)
    }

    /// Puts a library, in place of the one that has its name.
    ///
    /// # Errors
    /// There is no space.
    pub(crate) fn put_library(&mut self, name: &[u8], text: &[u8]) -> Result<(), Full> {
        self.put(LIBRARIES, name, kind::STRING, text, None)?;
        self.turn_libraries();
        Ok(())
    }

    /// Removes a library; whether it was there.
    pub(crate) fn remove_library(&mut self, name: &[u8]) -> bool {
        let there = self.remove(LIBRARIES, name);
        if there {
            self.turn_libraries();
        }
        there
    }

    /// Removes all libraries.
    pub(crate) fn flush_libraries(&mut self) {
        self.flush(LIBRARIES);
        if self.heap.planted().is(Planted::LibrariesGoFirst) {
            self.heap.commit();
        }
        self.turn_libraries();
    }
}
