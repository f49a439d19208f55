//! Whether a server ran on the home while it was attached and not served: what its sentinels tell.
//!
//! A profile names files that every server of its database writes when it starts. Nothing is
//! written here. Deliberately absent: files that a server may leave alone; each of those is
//! compared by itself when the tier has newer blocks of it.

use super::{Recovered, changed};
use crate::error::{Error, HomeStamp, Result};
use crate::format::slot::{LENT, TRUNCATING, UNLINKING};
use crate::planted::Planted;
use crate::profile::Profile;
use std::path::PathBuf;

/// Ends the attach when a server has run on the home while the tier was ahead of it: what the
/// server wrote, and what only the tier has, are of two databases from then on. The files that
/// every server writes when it starts tell, also where it touched nothing that the tier has newer
/// blocks of. With nothing newer in the tier, the home is whole and no harm was done: then the file
/// is returned.
pub(super) fn compare(recovered: &[Recovered], profile: &Profile) -> Result<Option<PathBuf>> {
    let path_of = |file: &Recovered| file.home.as_ref().map_or(&file.hint, |at| &at.path).clone();
    let told = recovered.iter().find_map(|file| {
        let path = path_of(file);
        let planted = file.placed.tier.planted.is(Planted::SentinelUnchecked);
        let is_sentinel = profile.sentinels().contains(&path) && file.flags & UNLINKING == 0;
        if is_sentinel && !planted { Some((path, changed(file)?, file)) } else { None }
    });
    let Some((path, how, file)) = told else { return Ok(None) };
    let newer = |file: &&Recovered| {
        let line = file.placed.meta.lock().line.clone();
        // A longer file may have no block where it ends, and one that was cut need have none at
        // all.
        let has_size = line.size > line.home_size;
        file.placed.map.counts().0 > 0 || has_size || file.flags & (LENT | TRUNCATING) != 0
    };
    let Some(ahead) = recovered.iter().find(newer) else { return Ok(Some(path)) };
    let line = file.placed.meta.lock().line.clone();
    let stamp = HomeStamp { size: line.home_size, mtime_ns: line.home_mtime_ns };
    let expected = file.home.as_ref().map(|_| stamp);
    Err(Error::RanWithout { path, ahead: path_of(ahead), how, expected })
}
