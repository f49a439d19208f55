//! A global of one process, which a forked child does not inherit.
//!
//! What a registry says of the parent's open things is wrong in a child, and its lock may have been
//! held by a thread that the child does not have. So the child gets a new one, and the copy of the
//! parent's is left alone, for good.

use std::sync::atomic::{AtomicPtr, Ordering};

use super::Process;

/// A global that is made when a process first asks for it.
pub struct PerProcess<T: 'static> {
    made: AtomicPtr<Made<T>>,
    make: fn() -> T,
}

struct Made<T> {
    by: Process,
    value: T,
}

impl<T: Send + Sync + 'static> PerProcess<T> {
    /// A global that `make` makes.
    pub const fn new(make: fn() -> T) -> Self {
        Self { made: AtomicPtr::new(std::ptr::null_mut()), make }
    }

    /// This process's. It is never dropped.
    pub fn get(&self) -> &'static T {
        loop {
            let found = self.made.load(Ordering::Acquire);
            // SAFETY: null, or one that was leaked below.
            if let Some(made) = unsafe { found.as_ref() }
                && made.by.is_current()
            {
                return &made.value;
            }
            let new =
                Box::into_raw(Box::new(Made { by: Process::current(), value: (self.make)() }));
            if self.made.compare_exchange(found, new, Ordering::AcqRel, Ordering::Acquire).is_err()
            {
                // SAFETY: made above; another thread was first, and nobody has seen this one.
                drop(unsafe { Box::from_raw(new) });
            }
        }
    }
}

#[cfg(all(test, not(miri), feature = "testing"))]
mod tests {
    use super::*;
    use crate::process::in_child;
    use std::sync::Mutex;

    static COUNT: PerProcess<Mutex<i32>> = PerProcess::new(|| Mutex::new(1));

    #[test]
    fn a_child_gets_a_new_one_although_the_parents_is_locked() {
        let mut held = COUNT.get().lock().unwrap();
        *held = 7;
        assert_eq!(in_child(|| *COUNT.get().lock().unwrap()).unwrap(), 1);
        drop(held);
        assert_eq!(*COUNT.get().lock().unwrap(), 7);
    }
}
