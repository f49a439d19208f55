//! What a command is, as bits: what the table gives each, and what is asked before one runs.

/// Changes keys.
pub(crate) const WRITE: u16 = 1;
/// Reads keys.
pub(crate) const READ: u16 = 2;
/// Takes constant time.
pub(crate) const FAST: u16 = 4;
/// May run before the password was given.
pub(crate) const WITHOUT_AUTH: u16 = 8;
/// Runs at once within a MULTI.
pub(crate) const NOT_QUEUED: u16 = 16;
/// Is refused within a MULTI.
pub(crate) const NOT_IN_MULTI: u16 = 32;
/// May run while a RESP2 client is subscribed.
pub(crate) const SUBSCRIBED: u16 = 64;
/// For the administrator.
pub(crate) const ADMIN: u16 = 128;
/// Gives space back, or takes none: it may use the reserve of a full tier.
pub(crate) const FREES: u16 = 256;
/// Is refused in a script.
pub(crate) const NOT_IN_SCRIPT: u16 = 512;

pub(crate) const N: u16 = NOT_IN_SCRIPT;
pub(crate) const W: u16 = WRITE;
pub(crate) const WF: u16 = WRITE | FAST;
pub(crate) const WX: u16 = WRITE | FREES;
pub(crate) const WFX: u16 = WRITE | FAST | FREES;
pub(crate) const R: u16 = READ;
pub(crate) const RF: u16 = READ | FAST;
pub(crate) const F: u16 = FAST;
