//! State lines that were being written when the power failed.
//!
//! Deliberately absent: choosing the line that counts ([`StateLine::newest`]).

use super::Ledger;
use crate::error::Result;
use crate::format::entry::{Place, unseal_value};
use crate::format::slot::StateLine;
use crate::tier::table::Slot;

/// Makes torn state lines unreadable for good. The next line takes the number of the torn one:
/// words that the two have in common could complete the torn one, if the power failed again while
/// the next one is written.
pub(super) fn spoil_lines(tier: &Ledger) -> Result<()> {
    let mut spoiled = false;
    for Slot { number, at } in tier.each_slot() {
        let word = unseal_value(tier.seed, 0, Place::Slot(number), tier.load_checked(at)?);
        let Some(id) = word.filter(|id| *id != 0) else { continue };
        for check in StateLine::torn(&tier.read_slot(at)?, tier.seed, id) {
            tier.store_word(at.plus(check), 0);
            spoiled = true;
        }
    }
    if spoiled {
        tier.fence();
    }
    Ok(())
}
