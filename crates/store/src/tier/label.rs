//! What a tier member says of itself, read from its file: for whoever must know whose it is without
//! attaching it.
//!
//! **Deliberately absent**: locks, and whether anything besides the superblock is sound (`check`).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::format::hex;
use crate::format::superblock::{COPY_AT, SUPERBLOCK, Superblock, TierState, Unusable};
use crate::home::HomeStat;

/// Whose a tier member is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberLabel {
    /// Names its last attachment, as [`crate::Attachment::id`] does.
    pub attachment: String,
    /// Whether it was detached, as far as the step after which every block is home.
    pub is_free: bool,
    home_ino: u64,
    home_btime_ns: u64,
}

impl MemberLabel {
    /// Reads the superblock of a member. `None`: it has none that is whole, or one of another
    /// format.
    ///
    /// # Errors
    /// What the system says.
    pub fn read(member: &File) -> io::Result<Option<Self>> {
        let mut newest: Option<Superblock> = None;
        for at in COPY_AT {
            let mut bytes = [0; SUPERBLOCK];
            match member.read_exact_at(&mut bytes, at) {
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                other => other?,
            }
            let copy = match Superblock::decode(&bytes) {
                Err(Unusable::OtherFormat(_)) => return Ok(None),
                other => other.ok(),
            };
            newest = newest.into_iter().chain(copy).max_by_key(|superblock| superblock.seq);
        }
        Ok(newest.map(|superblock| Self {
            attachment: hex(&superblock.attachment),
            is_free: matches!(superblock.state, TierState::Detaching | TierState::Detached),
            home_ino: superblock.home_ino,
            home_btime_ns: superblock.home_btime_ns,
        }))
    }

    /// Whether it was attached to the directory of which this is the identity.
    #[must_use]
    pub fn is_of(&self, home: &HomeStat) -> bool {
        home.same_file(self.home_ino, 0, self.home_btime_ns)
    }
}
