//! The crash suite: the power is cut at every step of what these files do.

mod ephemeral;
mod flash;
mod operations;
mod planted;
mod random;
mod sectors;
mod threads;
mod tiers;
mod untried;
