//! The fast tier's medium gave other bytes than were written to it, or none.

use super::Finding;
use crate::{Interval, figure};

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let repaired = of.counter("blocks repaired from home").filter(|count| *count > 0)?;
    let scrubbed = of.counter("blocks scrubbed").filter(|count| *count > 0);
    let read = scrubbed
        .map(|count| format!(" A scrub compared {} blocks.", figure::count(count)))
        .unwrap_or_default();
    Some(Finding {
        name: "The fast tier's medium is not to be trusted".to_owned(),
        impact_percent: None,
        evidence: vec![format!(
            "{} clean copies were not what was written there, or could not be read, and came from \
             home instead.{read}",
            figure::count(repaired)
        )],
        advice: "Nothing is lost of these: home has them. But the same medium holds blocks that \
                 home does not have yet. `tiersmith scrub HOME` compares all of them; `tiersmith \
                 status HOME` and the daemon's log name those that are lost. Look at the medium's \
                 own errors (dmesg, smartctl), bring all of it home (`tiersmith flush HOME`), and \
                 replace it."
            .to_owned(),
        tiersmith: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::minute;
    use super::*;

    #[test]
    fn it_speaks_when_a_copy_was_repaired_and_says_what_a_scrub_has_read() {
        let of = |count| minute().counter("blocks repaired from home", count);
        assert_eq!(find(&of(0).interval()), None);
        assert_eq!(find(&minute().interval()), None);
        let found = find(&of(3).interval()).expect("three were");
        assert!(found.evidence[0].starts_with("3 clean copies"), "{:?}", found.evidence);
        let found = find(&of(3).counter("blocks scrubbed", 70).interval()).expect("three were");
        assert!(found.evidence[0].contains("compared 70 blocks"), "{:?}", found.evidence);
    }
}
