//! Cuts upon cuts: the power goes again while recovery runs, or after the recovery from a killed
//! process.

use super::{Run, count, explore_new};
use std::sync::Arc;
use tiersmith_pmem::sim::Event;
use tiersmith_store::Planted;
use tiersmith_store::crash::{Budget, Recorder, Report, Tried, explore_untried};

/// Cuts the run, records the recovery of a sample of what is found, and cuts that too.
pub(crate) fn explore_recovery(
    run: &Run,
    (first, second): (usize, usize),
    seed: u64,
    planted: Planted,
) -> Report {
    let outer = Budget { images_per_cut: first, seed, stop_after: 1, ..Budget::default() };
    let total = std::sync::Mutex::new(Report::default());
    let tried = Tried::default();
    let report = explore_new(&run.recording(), &outer, |found| {
        let recorder = Recorder::resume_with(found.home, found.lent);
        let members = run.shape.recorded(recorder.simulator(), found.tiers.to_vec());
        recorder.rebase();
        let attached = run
            .shape
            .attach_lending(recorder.home(), recorder.lent(), members, planted)
            .map_err(|e| format!("attach after the first cut: {e}"))?;
        drop(attached);
        let budget = Budget { images_per_cut: second, threads: 1, ..outer };
        let question = (&tried, found.acked as u64);
        let inner = explore_untried(&recorder.recording(), &budget, question, |again| {
            let members = run.shape.found(again.tiers);
            let (home, lent) = (Arc::new(again.home), Arc::new(again.lent));
            run.check_opened(&home, &lent, members, found.acked, again.thorough, planted)
        });
        let violation = inner.violations.first().map(ToString::to_string);
        total.lock().expect("nobody panics with it").add(inner);
        match violation {
            Some(v) => Err(format!("second cut, in recovery: {v}")),
            None => Ok(()),
        }
    });
    let mut sum = total.into_inner().expect("nobody panics with it");
    sum.violations = report.violations;
    sum.elapsed = report.elapsed;
    count(&sum);
    sum
}

/// Kills the process at every cut point (nothing is lost then, and what home has not synced stays
/// unsynced), records the recovery, and cuts the power anywhere in it and after it.
pub(crate) fn explore_after_kill(
    run: &Run,
    images_per_cut: usize,
    seed: u64,
    planted: Planted,
) -> Report {
    const HOME_EVENT: u64 = 1 << 63;
    const ACKNOWLEDGED: u64 = 1 << 62;
    const LENT_EVENT: u64 = 1 << 61;
    let recording = run.recording();
    let mut media = recording.media.player();
    let (mut home, mut lent) = (recording.home.player(), recording.lent.player());
    let (mut position, mut home_events, mut lent_events, mut acked) = (0, 0, 0, 0);
    let events: Vec<_> = recording.media.events().cloned().collect();
    let (mut sum, tried) = (Report::default(), Tried::default());
    for cut in recording.media.cut_points() {
        for event in &events[position..cut] {
            if let Event::Mark(tag) = event {
                home_events += usize::from(tag & HOME_EVENT != 0);
                lent_events +=
                    usize::from(tag & (HOME_EVENT | ACKNOWLEDGED) == 0 && tag & LENT_EVENT != 0);
                acked += usize::from(tag & HOME_EVENT == 0 && tag & ACKNOWLEDGED != 0);
            }
        }
        position = cut;
        media.advance_to(cut);
        home.advance_to(home_events);
        lent.advance_to(lent_events);
        let mut images = Vec::new();
        media.image_into(&media.everything(), &mut images);
        let recorder = Recorder::resume_with(home.killed().home(), lent.killed().home());
        let members = run.shape.recorded(recorder.simulator(), images);
        recorder.simulator().rebase();
        match run.shape.attach_lending(recorder.home(), recorder.lent(), members, planted) {
            Ok(attached) => drop(attached),
            Err(e) => panic!("attach after a kill at trace event {cut}: {e}"),
        }
        let budget = Budget { images_per_cut, seed, stop_after: 1, ..Budget::default() };
        let question = (&tried, acked as u64);
        let report = explore_untried(&recorder.recording(), &budget, question, |again| {
            let members = run.shape.found(again.tiers);
            let (home, lent) = (Arc::new(again.home), Arc::new(again.lent));
            run.check_opened(&home, &lent, members, acked, again.thorough, planted)
                .map_err(|e| format!("killed before trace event {cut}, then: {e}"))
        });
        sum.add(report);
        if !sum.violations.is_empty() {
            break;
        }
    }
    count(&sum);
    sum
}
