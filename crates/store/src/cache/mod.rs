//! Which blocks the tier keeps as clean copies of home's.

pub(crate) mod scan;
