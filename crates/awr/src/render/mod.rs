//! What a report looks like: text, CSV, Markdown, a page of HTML.
//!
//! ```text
//! report/ (data)  --->  render/  ---> text, CSV, Markdown
//!                          |
//!                          +---> page/ (a builder of pages, which knows no report) ---> HTML
//! ```
//!
//! | file | what |
//! |---|---|
//! | `text.rs` | text, at most 100 columns wide; tables alone too |
//! | `delimited.rs` | CSV and Markdown |
//! | `html.rs` | a page, or sections of one |
//!
//! Invariant: nothing in this crate imports this room, so a report can be made, kept, compared and
//! read without knowing how it looks. Deliberately absent: JSON, which is the data itself
//! ([`Report::json`](crate::Report::json)).

mod delimited;
mod html;
mod text;

pub use delimited::{csv, markdown};
pub use html::{add_item, add_to, html};
pub use text::{text, write_table};
