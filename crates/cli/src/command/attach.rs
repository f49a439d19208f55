//! `tiersmith attach`: a directory is moved aside, gets a fast tier, and is mounted at its own
//! path.

use super::{print, print_json};
use crate::Outcome;
use crate::attach::Attach;
use crate::error::Result;
use crate::mounted;

/// Attaches a directory or a database file; as the daemon, serves until the end.
///
/// # Errors
/// Why it cannot be attached, and what was changed if anything.
pub(super) fn run(wish: &Attach) -> Result<Outcome> {
    if super::home::is_database_file(&wish.home) {
        return super::attach_sqlite::run(wish);
    }
    if wish.stays() {
        return mounted::serve(wish);
    }
    let attached = mounted::launch(wish)?;
    if wish.json {
        print_json(&attached)?
    } else {
        print(&attached.text())?
    }
    Ok(Outcome::Good)
}
