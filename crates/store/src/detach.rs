//! Taking a tier away from its home, and back again when home refuses.

use crate::error::{Error, Result};
use crate::format::superblock::{Superblock, TierState};
use crate::home::HomeStat;
use crate::ledger::Ledger;
use crate::options::Guard;
use crate::store::Store;
use std::path::Path;
use std::sync::Arc;

/// What whoever looks at the path of an attached home finds there.
pub(crate) fn people_note(path: &Path, tiers: &[Arc<Ledger>]) -> String {
    let mut text = format!(
        "The directory {} is attached to fast storage by Tiersmith.\n\
         The newest version of some of its blocks is on that storage only, so the plain files are \
         not a usable\n\
         database at the moment.\n\n\
         To use the database, mount it with Tiersmith. To have the plain directory back, detach \
         it.\n\n",
        path.display()
    );
    for tier in tiers {
        for member in &tier.members {
            text += &format!("fast storage: tier {}, {}\n", tier.name, member.path.display());
        }
    }
    text
}

/// Back to attached after a detach that could not open the door or remove the note, which was this.
///
/// # Errors
/// Why the note cannot be written or the door closed again. The tiers stay `detaching` then: they
/// have nothing that home lacks, and the next attach or detach finds where the files are. Until
/// then nothing may be written to either.
pub(crate) fn undo_detach(store: &Store, note: Option<&[u8]>) -> std::io::Result<()> {
    let home = &store.env.home;
    // It was removed, which could not be made durable: it comes before the door, as in attaching.
    if let Some(note) = note
        && !home.door_closed()?
        && home.read_attachment()?.as_deref() != Some(note)
    {
        home.write_attachment(note)?;
        for tier in store.tiers.iter().filter(|tier| tier.is_ephemeral()) {
            // The note of before may not say it.
            store.homeward.say_again_if_given_up(tier).map_err(std::io::Error::other)?;
        }
    }
    if store.env.options.guard == Guard::MoveAside {
        home.close_door(&people_note(store.env.home_path(), &store.tiers))?;
    }
    let identity = home.identity()?;
    for tier in &store.tiers {
        tier.update_superblocks(|sb| {
            sb.state = TierState::Attached;
            belongs_to(sb, &identity);
        });
    }
    Ok(())
}

/// Says which directory the tier belongs to.
pub(crate) fn belongs_to(sb: &mut Superblock, home: &HomeStat) {
    sb.home_ino = home.ino;
    if home.btime_ns != 0 {
        sb.home_btime_ns = home.btime_ns;
    }
}

/// Steps 2 to 5 of detaching; step 1 is done.
pub(crate) fn detach(store: &Store) -> Result<()> {
    let failed = |e: std::io::Error| Error::Home {
        path: store.env.home_path().to_path_buf(),
        reason: e.to_string(),
    };
    // The directory that the files of a mount point go back to.
    let top = store.env.home.identity_of_top().map_err(failed)?;
    for tier in &store.tiers {
        // The next attach makes another tier of it, which leaves plain files of this one alone:
        // those given back must be gone for good.
        if let Some(Err(e)) = tier.lent_dir.as_ref().map(|dir| dir.sync())
            && e.kind() != std::io::ErrorKind::NotFound
        {
            log::warn!("plain files that were given back may stay after a power cut: {e}");
        }
        tier.update_superblocks(|sb| {
            sb.state = TierState::Detaching;
            if let Some(top) = &top {
                belongs_to(sb, top);
            }
        });
        store.homeward.word_is_kept(tier)?;
    }
    if store.env.home.door_closed().map_err(failed)? {
        store.env.home.open_door().map_err(failed)?;
    }
    store.env.home.remove_attachment().map_err(failed)?;
    store.env.set_closed(true);
    for tier in &store.tiers {
        tier.update_superblocks(|sb| sb.state = TierState::Detached);
        if let Some(dir) = &tier.lent_dir {
            dir.tidy();
        }
    }
    Ok(())
}
