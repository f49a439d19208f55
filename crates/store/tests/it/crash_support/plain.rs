//! What a cut leaves of a home that says nothing of Tiersmith: whole, at its own path, and its tier
//! free for any other home.
//!
//! Deliberately not here: that the same home attaches again, which every other exploration shows.

use super::{Op, Run, count, difference, explore_new};
use std::path::Path;
use std::sync::Arc;
use tiersmith_store::Planted;
use tiersmith_store::crash::{Budget, CutState, Report};
use tiersmith_store::home::sim::{Door, SimOptions};
use tiersmith_store::home::{Home, SimHome};

/// Cuts the run everywhere. Where the note is not in home nobody can know that there is a tier: the
/// home must not need it, and the tier must not say that it is in use.
pub(crate) fn explore_plain(run: &Run, images_per_cut: usize, seed: u64) -> Report {
    let budget = Budget { images_per_cut, seed, stop_after: 2, ..Budget::default() };
    let report = explore_new(&run.recording(), &budget, |found| run.check_plain(&found));
    count(&report);
    report
}

impl Run {
    fn check_plain(&self, found: &CutState<'_>) -> Result<(), String> {
        let home = &found.home;
        if home.read_attachment().map_err(|e| e.to_string())?.is_some() {
            return Ok(());
        }
        if home.door() != Door::Open {
            return Err(format!("the door is {:?}, and no note in home says by what", home.door()));
        }
        // Every file of home, byte for byte.
        let before =
            if found.acked == 0 { &self.start } else { &self.steps[found.acked - 1].after };
        let in_flight = self.steps.get(found.acked).map(|step| &step.op);
        if !matches!(in_flight, None | Some(Op::Attach | Op::Detach)) {
            return Err(format!("the note is gone while {in_flight:?}"));
        }
        for name in before.names.keys() {
            let (plain, expected) =
                (home.contents(Path::new(name)).unwrap_or_default(), before.get(name));
            let expected = expected.expect("named files have bytes");
            if plain != *expected {
                return Err(format!("{name} of the plain home: {}", difference(expected, &plain)));
            }
        }
        let members = self.shape.found(found.tiers);
        let another = SimHome::new(None);
        another.set_options(SimOptions { directory_ino: 77, ..SimOptions::default() });
        let lent = Arc::new(SimHome::new(None));
        self.shape
            .attach_with(Arc::new(another), Some(lent), members, Planted::None, 99)
            .map_err(|e| format!("the home is plain, and another one does not get its tier: {e}"))?
            .detach()
            .map_err(|e| format!("another home does not give the tier back: {e}"))
    }
}
