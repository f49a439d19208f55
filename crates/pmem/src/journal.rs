//! Memory that stands for metadata kept elsewhere: whoever keeps it is told of every change.
//!
//! Such a mapping has no file. Its [`Journal`] learns which bytes change, and makes them durable
//! where it keeps them when somebody fences. So code that stores words and fences works unchanged
//! on a medium that is not mapped.
//!
//! Deliberately absent: any medium, and the decision what a change is written as.

/// The memory, for its journal.
pub trait Bytes {
    /// Copies the bytes at `at`.
    fn read(&self, at: u64, into: &mut [u8]);

    /// Puts bytes there without telling the journal: what it has read from where it keeps them.
    fn fill(&self, at: u64, bytes: &[u8]);
}

/// Who keeps what is stored to a mapping. It makes nothing durable that was stored later without
/// all that was stored before.
pub trait Journal: Send + Sync {
    /// The bytes `at .. at + len` change when `store` is called: once, before this returns.
    fn store(&self, memory: &dyn Bytes, at: u64, len: usize, store: &mut dyn FnMut());

    /// Makes durable what any thread has stored. Why it failed is for the journal to say to whoever
    /// asks it.
    fn fence(&self, memory: &dyn Bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FRAME, Mapping};
    use std::sync::{Arc, Mutex};

    #[derive(Default)]
    struct Told(Mutex<Vec<(u64, usize, u64)>>);

    impl Journal for Told {
        fn store(&self, memory: &dyn Bytes, at: u64, len: usize, store: &mut dyn FnMut()) {
            store();
            let mut word = [0; 8];
            memory.read(at, &mut word);
            self.0.lock().unwrap().push((at, len, u64::from_le_bytes(word)));
        }

        fn fence(&self, _memory: &dyn Bytes) {
            self.0.lock().unwrap().push((0, 0, 0));
        }
    }

    #[test]
    fn a_journal_is_told_of_every_change_and_fence_and_of_nothing_that_it_fills_in_itself() {
        let told = Arc::new(Told::default());
        let (len, max) = (2 * FRAME as u64, 1 << 40);
        let memory = Mapping::journaled("somewhere".as_ref(), len, max, told.clone()).unwrap();
        memory.set_open_range(len);
        memory.fill(8, &3_u64.to_le_bytes());
        memory.store_u64(8, 4);
        memory.nt_store_u64(16, 5);
        memory.nt_write(64, &6_u64.to_le_bytes());
        memory.nt_write_line(128, [7; 8], 1);
        memory.flush(8, 8);
        memory.order();
        memory.fence();
        let mut found = [0; 8];
        memory.read(8, &mut found);
        assert_eq!(u64::from_le_bytes(found), 4);
        let told = std::mem::take(&mut *told.0.lock().unwrap());
        assert_eq!(told, [(8, 8, 4), (16, 8, 5), (64, 8, 6), (128, 64, 7), (0, 0, 0)]);
        memory.grow(1 << 30).unwrap();
        assert_eq!(memory.len(), 1 << 30);
    }
}
