//! Moving blocks between the tier and home: [`destage`] and [`drain`] bring dirty blocks home,
//! [`admit`] takes clean copies in, as [`budget`] lets it, [`evict`] gives them up, [`scrub`]
//! compares blocks at rest, [`room`] waits for free frames, [`keep`] does all that before anybody
//! has to wait.
//!
//! **Invariant**: home is synced before an entry says that home has a block.
//!
//! **Deliberately absent**: what a caller wants of a file ([`crate::file`]), and when a file leaves
//! the tier (`names`).

pub(crate) mod admit;
pub(crate) mod budget;
pub(crate) mod destage;
pub(crate) mod drain;
pub(crate) mod evict;
pub(crate) mod keep;
pub(crate) mod lent;
pub(crate) mod pace;
pub(crate) mod refused;
pub(crate) mod room;
pub(crate) mod scrub;
pub(crate) mod unreadable;

use crate::environment::Environment;
use crate::homeward::Homeward;
use crate::known::files::Files;
use crate::ledger::Ledger;
use admit::Admissions;
use refused::Refused;
use std::sync::Arc;
use tiersmith_events::Registry;
use unreadable::GivenUp;

/// Moves blocks of all files of a home.
pub(crate) struct Mover {
    pub(crate) events: Registry,
    pub(crate) env: Arc<Environment>,
    pub(crate) homeward: Arc<Homeward>,
    pub(crate) files: Arc<Files>,
    pub(crate) tiers: Vec<Arc<Ledger>>,
    /// What was read from home and waits for admission.
    admissions: Admissions,
    /// What home does not take at present.
    pub(crate) refused: Refused,
    pub(crate) given_up: GivenUp,
}

impl Mover {
    pub(crate) fn new(
        env: &Arc<Environment>,
        homeward: &Arc<Homeward>,
        files: &Arc<Files>,
        tiers: &[Arc<Ledger>],
    ) -> Self {
        Self {
            events: env.events.clone(),
            env: env.clone(),
            homeward: homeward.clone(),
            files: files.clone(),
            tiers: tiers.to_vec(),
            admissions: Admissions::default(),
            refused: Refused::default(),
            given_up: GivenUp::default(),
        }
    }
}
