//! Which blocks the tier keeps as clean copies of home's: [`policy`] is what decides, [`scan`]
//! tells it who reads a file from one end to the other, [`usage`] counts what
//! became of it, [`what_if`] plays it at other sizes, [`budget`] says how much a day may be
//! written.
//!
//! **Invariant**: who reads a block, admits one or makes room asks the policy, and decides nothing
//! himself.
//!
//! **Deliberately absent**: how a copy is made or given up (`mover`).

pub(crate) mod budget;
mod epochs;
pub(crate) mod policy;
pub(crate) mod scan;
pub(crate) mod usage;
pub(crate) mod what_if;
