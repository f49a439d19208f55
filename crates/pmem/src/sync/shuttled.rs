//! Atomics that let shuttle choose who goes next before each access.
//!
//! Not shuttle's own types, whose values are not words: those of frames are zeroed memory, and most
//! are made while there is only one thread, where a choice would cost time and change nothing.

use std::cell::Cell;

use super::Flaw;

thread_local! {
    static RACING: Cell<bool> = const { Cell::new(false) };
    static PLANTED: Cell<Option<Flaw>> = const { Cell::new(None) };
}

/// Leaves this step out from now on.
pub fn plant(flaw: Option<Flaw>) {
    PLANTED.set(flaw);
}

pub(crate) fn planted(flaw: Flaw) -> bool {
    PLANTED.get() == Some(flaw)
}

/// Whether there are other threads: only then [`turn`] gives them one. Shuttle has one thread of
/// the system for all of its own, so this is said for all of them.
pub fn racing(on: bool) {
    RACING.set(on);
}

/// Lets shuttle choose who goes next.
pub fn turn() {
    if RACING.get() && !std::thread::panicking() {
        // What shuttle offers for it: an access to one of its atomics.
        shuttle::sync::atomic::AtomicBool::new(false).load(atomic::Ordering::SeqCst);
    }
}

/// In the middle of a copy, which takes as long as many accesses to a word.
pub(crate) fn turns_in_copy() {
    (0..4).for_each(|_| turn());
}

/// As `std::sync::atomic`.
pub mod atomic {
    use super::turn;
    pub use std::sync::atomic::Ordering;

    /// Each access has been seen by all, here as there.
    pub fn fence(_: Ordering) {
        turn();
    }

    macro_rules! atomics {
        ($($name:ident of $value:ty),*) => { $(
            /// As the standard library's.
            #[derive(Debug, Default)]
            #[repr(transparent)]
            pub struct $name(std::sync::atomic::$name);

            #[allow(missing_docs, reason = "as the standard library's")]
            impl $name {
                pub const fn new(value: $value) -> Self {
                    Self(std::sync::atomic::$name::new(value))
                }

                pub fn load(&self, order: Ordering) -> $value {
                    turn();
                    self.0.load(order)
                }

                /// Without a turn, for what nobody changes meanwhile.
                pub fn peek(&self) -> $value {
                    self.0.load(Ordering::SeqCst)
                }

                pub fn store(&self, value: $value, order: Ordering) {
                    turn();
                    self.0.store(value, order);
                }

                pub fn swap(&self, value: $value, order: Ordering) -> $value {
                    turn();
                    self.0.swap(value, order)
                }

                pub fn fetch_update(
                    &self,
                    set: Ordering,
                    fetch: Ordering,
                    to: impl FnMut($value) -> Option<$value>,
                ) -> Result<$value, $value> {
                    turn();
                    self.0.fetch_update(set, fetch, to)
                }

                pub fn compare_exchange(
                    &self,
                    from: $value,
                    to: $value,
                    set: Ordering,
                    fetch: Ordering,
                ) -> Result<$value, $value> {
                    turn();
                    self.0.compare_exchange(from, to, set, fetch)
                }

                pub fn fetch_or(&self, bits: $value, order: Ordering) -> $value {
                    turn();
                    self.0.fetch_or(bits, order)
                }

                pub fn fetch_and(&self, bits: $value, order: Ordering) -> $value {
                    turn();
                    self.0.fetch_and(bits, order)
                }

                pub fn get_mut(&mut self) -> &mut $value {
                    self.0.get_mut()
                }
            }
        )* };
    }

    macro_rules! numbers {
        ($($name:ident of $value:ty),*) => { $(
            #[allow(missing_docs, reason = "as the standard library's")]
            impl $name {
                pub fn fetch_add(&self, more: $value, order: Ordering) -> $value {
                    turn();
                    self.0.fetch_add(more, order)
                }

                pub fn fetch_sub(&self, less: $value, order: Ordering) -> $value {
                    turn();
                    self.0.fetch_sub(less, order)
                }

                pub fn fetch_max(&self, other: $value, order: Ordering) -> $value {
                    turn();
                    self.0.fetch_max(other, order)
                }
            }
        )* };
    }

    atomics!(AtomicBool of bool, AtomicU32 of u32, AtomicU64 of u64, AtomicUsize of usize);
    numbers!(AtomicU32 of u32, AtomicU64 of u64, AtomicUsize of usize);
}
