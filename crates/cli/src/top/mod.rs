//! The live screen of `tiersmith top`: what a source's sessions wait for, while they wait.
//!
//! ```text
//! Feed (thread: snapshot, look) -- News --> View (figures of one interval) --> JSON
//! View, History (activity over time) --> Sheet (tables) --> Screen (cells) or plain text
//! ```
//!
//! | file | what |
//! |---|---|
//! | `feed.rs` | asks the source on a beat, and goes on when it does not answer |
//! | `view.rs` | the figures of an interval; what `--json` prints |
//! | `activity.rs` | average active sessions by wait class: measured, sampled, or processors where there is no database |
//! | `sheet.rs` | tables that fit a width: the panes |
//! | `panes.rs` | which table shows what, and how it is sorted |
//! | `history.rs` | activity over the last intervals, gaps among them |
//! | `screen.rs`, `chart.rs` | the screen: where everything stands, and the chart |
//! | `plain.rs` | the same as text, for `--once` and for what is no terminal |
//! | `keys.rs` | keys, and the help that lists them |
//! | `terminal.rs` | the terminal's modes, and giving them back |
//! | `shown.rs` | text from outside, made harmless |
//!
//! Invariants: every text from outside passes `shown.rs` before it is a cell or a line; an interval
//! over a restart or a reset is a gap; the thread that asks never holds up keys; the terminal is
//! given back however the program ends.
//!
//! Deliberately absent: asking in any way that the sources do not have; changing anything on the
//! server.

mod activity;
mod chart;
mod feed;
mod history;
mod keys;
mod panes;
mod plain;
mod screen;
mod sheet;
mod shown;
mod terminal;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use feed::{Feed, News};
pub(crate) use plain::{FULL_ROWS, text};
pub(crate) use screen::Screen;
pub(crate) use shown::{Alphabet, harmless_json};
pub(crate) use terminal::{End, is_capable, run};
pub(crate) use view::View;
