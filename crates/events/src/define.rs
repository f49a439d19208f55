//! Tables of wait events and counters, and the index types into them.
//!
//! The tables are constants, written with [`wait_events!`](crate::wait_events) and
//! [`counters!`](crate::counters), so that an index and its row cannot drift apart: the index is
//! looked up by name when the program is compiled.
//!
//! Invariants: a name occurs once in its table (checked at compile time by the macros, at run time
//! by [`Registry::new`](crate::Registry::new)); an index means something only with the table it was
//! made from.

use crate::WaitClass;

/// One wait event: a row of the table a registry is built from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventDef {
    /// The name in reports: lower case, the field's own words, for instance `log file sync`.
    pub name: &'static str,
    /// The class it is added up in.
    pub class: WaitClass,
    /// What is waited for, in a sentence.
    pub help: &'static str,
    /// Whether background work waits, not a request; kept out of DB time.
    pub background: bool,
}

/// One counter: a row of the table a registry is built from. A counter only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterDef {
    /// The name in reports.
    pub name: &'static str,
    /// What one count is: `blocks`, `bytes`, `requests`.
    pub unit: &'static str,
    /// What is counted, in a sentence.
    pub help: &'static str,
}

/// The index of a wait event in its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(u16);

/// The index of a counter in its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CounterId(u16);

impl EventId {
    /// The index of row `index`.
    pub const fn new(index: u16) -> EventId {
        EventId(index)
    }

    /// The index of the event called `name`; in a constant, a name that is not there or there twice
    /// does not compile.
    ///
    /// # Panics
    /// If the name is not in the table exactly once.
    pub const fn named(table: &[EventDef], name: &str) -> EventId {
        let mut found = None;
        let mut index = 0;
        while index < table.len() {
            if same(table[index].name, name) {
                assert!(found.is_none(), "BUG: a wait event is listed twice under one name");
                found = Some(index);
            }
            index += 1;
        }
        match found {
            Some(index) => EventId(index as u16),
            None => panic!("BUG: no wait event of this name is in the table"),
        }
    }

    /// The row in the table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl CounterId {
    /// The index of row `index`.
    pub const fn new(index: u16) -> CounterId {
        CounterId(index)
    }

    /// The index of the counter called `name`; in a constant, a name that is not there or there
    /// twice does not compile.
    ///
    /// # Panics
    /// If the name is not in the table exactly once.
    pub const fn named(table: &[CounterDef], name: &str) -> CounterId {
        let mut found = None;
        let mut index = 0;
        while index < table.len() {
            if same(table[index].name, name) {
                assert!(found.is_none(), "BUG: a counter is listed twice under one name");
                found = Some(index);
            }
            index += 1;
        }
        match found {
            Some(index) => CounterId(index as u16),
            None => panic!("BUG: no counter of this name is in the table"),
        }
    }

    /// The row in the table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// String equality that can run at compile time.
const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Writes a table of [`EventDef`] and one [`EventId`] constant per row.
///
/// The comment of a row is its help text; `, background` marks waits of background work. See the
/// example in the [crate documentation](crate).
#[macro_export]
macro_rules! wait_events {
    (
        $(#[$table_attr:meta])* $vis:vis const $table:ident;
        $( $(#[doc = $help:literal])+ $id:ident = $name:literal, $class:ident $(, $mode:ident)? ; )+
    ) => {
        $(#[$table_attr])*
        $vis const $table: &[$crate::EventDef] = &[
            $( $crate::EventDef {
                name: $name,
                class: $crate::WaitClass::$class,
                help: concat!($($help),+).trim_ascii(),
                background: $crate::wait_events!(@mode $($mode)?),
            }, )+
        ];
        $( $(#[doc = $help])+ $vis const $id: $crate::EventId = $crate::EventId::named($table,
        $name); )+
    };
    (@mode) => { false };
    (@mode background) => { true };
}

/// Writes a table of [`CounterDef`] and one [`CounterId`] constant per row.
///
/// The comment of a row is its help text. See the example in the [crate documentation](crate).
#[macro_export]
macro_rules! counters {
    (
        $(#[$table_attr:meta])* $vis:vis const $table:ident;
        $( $(#[doc = $help:literal])+ $id:ident = $name:literal, $unit:literal ; )+
    ) => {
        $(#[$table_attr])*
        $vis const $table: &[$crate::CounterDef] = &[
            $( $crate::CounterDef { name: $name, unit: $unit,
            help: concat!($($help),+).trim_ascii() }, )+
        ];
        $( $(#[doc = $help])+ $vis const $id: $crate::CounterId = $crate::CounterId::named($table,
        $name); )+
    };
}

#[cfg(test)]
mod tests {
    use crate::WaitClass;

    wait_events! {
        /// A table for the tests.
        const EVENTS;
        /// A block read
        /// from the home file.
        HOME_READ = "home block read", UserIo;
        /// Dirty blocks written to the home file.
        DESTAGE_WRITE = "destage write", SystemIo, background;
    }
    counters! {
        /// A table for the tests.
        const COUNTERS;
        /// Reads answered by the tier.
        HITS = "tier hits", "blocks";
    }

    #[test]
    fn a_row_of_the_macro_keeps_name_class_help_and_mode() {
        assert_eq!(EVENTS.len(), 2);
        let read = EVENTS[HOME_READ.index()];
        assert_eq!(
            (read.name, read.class, read.background),
            ("home block read", WaitClass::UserIo, false)
        );
        assert_eq!(read.help, "A block read from the home file.");
        assert!(EVENTS[DESTAGE_WRITE.index()].background);
        assert_eq!(COUNTERS[HITS.index()].unit, "blocks");
    }
}
