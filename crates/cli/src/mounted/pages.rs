//! Whether pages are atomic: what the user wants, and whether the database is proved to mend torn
//! pages itself.
//!
//! PostgreSQL's proof is in its home: `global/pg_control` has what `full_page_writes` was at the
//! last checkpoint, and no file of the home says otherwise. Where MariaDB has its settings cannot
//! be seen from its home, and the others have none. What cannot be read proves nothing. While a
//! daemon serves pages that may be torn, it goes on looking.
//!
//! **Deliberately absent**: mounting (crate `mount`), and tables outside the home (`links.rs`).

use tiersmith_store::AttachedHome;

use super::links::{FullPageWrites, full_page_writes, read_of};
use crate::attach::AtomicPages;
use crate::error::{Error, Result};

/// Whether pages are atomic, and why. `sync_always`: the user wants every change to be durable when
/// it returns.
///
/// # Errors
/// They are not to be, and nothing else would keep them whole; or not to be, and durable on return.
pub(super) fn decide(
    wished: AtomicPages,
    sync_always: bool,
    home: &AttachedHome,
) -> Result<(bool, String)> {
    let protection = protection(home);
    let name = home.profile_name();
    let refused = |why: String| {
        let path = home.home_path();
        Err(Error::Usage(format!(
            "cannot attach {} with --atomic-pages off: {why}",
            path.display()
        )))
    };
    if has_clean_copies_only(home) {
        return decide_for_clean_copies(wished, sync_always, home);
    }
    match (wished, protection) {
        (AtomicPages::On, _) => Ok((true, "as --atomic-pages on says".into())),
        (AtomicPages::Off, _) if sync_always => refused(
            "--sync-on-write always has every change durable when it returns, and the page cache \
             has not; give one of the two another value"
                .into(),
        ),
        (AtomicPages::Off, FullPageWrites::Off(place)) => refused(format!(
            "full_page_writes is off, says {place}, so a power cut would tear pages that nobody \
             mends. Set it to on, start the database once \
             and stop it, or say --atomic-pages on"
        )),
        (AtomicPages::Off, FullPageWrites::On) => {
            Ok((false, "as --atomic-pages off says; full_page_writes is on".into()))
        }
        (AtomicPages::Off, FullPageWrites::Unknown) => Ok((
            false,
            "as --atomic-pages off says; that the database protects its pages could not be checked"
                .into(),
        )),
        (AtomicPages::Auto, FullPageWrites::On) if !sync_always => Ok((
            false,
            "chosen because full_page_writes is on, which mends torn pages; \
                        --atomic-pages on keeps them whole"
                .into(),
        )),
        (AtomicPages::Auto, FullPageWrites::On) => Ok((
            true,
            "chosen because --sync-on-write always has every change durable when it \
                       returns"
                .into(),
        )),
        (AtomicPages::Auto, FullPageWrites::Off(place)) => {
            Ok((true, format!("chosen because full_page_writes is off, says {place}")))
        }
        (AtomicPages::Auto, FullPageWrites::Unknown) => Ok((
            true,
            format!(
                "chosen because it is not proved that the database (profile {name}) mends torn \
                     pages itself"
            ),
        )),
    }
}

/// The same where the tier has clean copies only.
fn decide_for_clean_copies(
    wished: AtomicPages,
    sync_always: bool,
    home: &AttachedHome,
) -> Result<(bool, String)> {
    match wished {
        AtomicPages::On => Err(Error::Usage(format!(
            "cannot attach {} with --atomic-pages on: the tier has clean copies only, and \
             pages are as whole as the home's own file system keeps them; leave it out",
            home.home_path().display()
        ))),
        _ if sync_always => Ok((
            true,
            "every change is durable when it returns, as --sync-on-write always says; pages \
             are as whole as the home's own file system keeps them"
                .into(),
        )),
        _ => Ok((
            false,
            "the tier has clean copies only: pages are as whole as the home's own file system \
             keeps them"
                .into(),
        )),
    }
}

/// What to do about pages that may be torn and that the database does not protect; `None` where it
/// does, or cannot be asked.
pub(super) fn found_unprotected(home: &AttachedHome) -> Option<String> {
    let FullPageWrites::Off(place) = protection(home) else { return None };
    if has_clean_copies_only(home) {
        // As safe or unsafe as it was without the tier.
        return None;
    }
    Some(format!(
        "pages are not atomic, and full_page_writes was found off ({place}): a power cut may tear \
         pages that nobody mends. Set \
         full_page_writes = on; or stop the database, and `tiersmith unmount {0}` and `tiersmith \
         attach {0} --atomic-pages on`. Until the \
         next attach the page cache is written back every few seconds",
        home.home_path().display()
    ))
}

/// Whether blocks are written at home, past all tiers.
fn has_clean_copies_only(home: &AttachedHome) -> bool {
    home.stats().tiers.iter().all(|tier| !tier.durability.may_hold_only_copy())
}

fn protection(home: &AttachedHome) -> FullPageWrites {
    match home.profile_name() {
        "postgres" => full_page_writes(&|path: &str, most: usize| read_of(home, path, most)),
        _ => FullPageWrites::Unknown,
    }
}
