//! The situations of `tests/alone/servers_findings.rs` as they were recorded on real servers: every
//! rule of findings runs on them, without servers.

use std::fs;

#[path = "../alone/situation/mod.rs"]
#[allow(dead_code, reason = "the tests with servers use the rest")]
mod situation;

use self::situation::{Expected, SITUATIONS, found, recorded};

#[test]
fn each_recorded_situation_has_its_finding_first_and_no_false_alarm() {
    for of in &SITUATIONS {
        let (begin, end) = of.recorded();
        let found = found(&begin, &end);
        of.judge(&found);
        // No sentence of ours; statements and names of MariaDB may have them.
        for finding in found {
            let ours = [Some(finding.name), Some(finding.advice), finding.tiersmith];
            assert!(ours.iter().flatten().all(|text| !text.contains('`')), "{ours:?}");
        }
    }
    let of = |product: &str| SITUATIONS.iter().filter(|of| of.name.starts_with(product)).count();
    assert_eq!((of("postgresql-"), of("mariadb-")), (10, 5));
}

#[test]
fn what_was_found_in_one_situation_is_wrong_for_every_other_cause() {
    let about = |of: &Expected| {
        let (begin, end) = of.recorded();
        found(&begin, &end)
    };
    for one in &SITUATIONS {
        for other in &SITUATIONS {
            let cause = |of: &Expected| of.name.split_once('-').unwrap().1;
            if one.has_cause() && cause(one) != cause(other) {
                assert!(one.wrong(&about(other)).is_some(), "{} is {}", one.name, other.name);
            }
        }
    }
}

#[test]
fn recorded_situations_are_small_and_have_nothing_of_the_machine_that_recorded() {
    let mut count = 0;
    for entry in fs::read_dir(recorded()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ext| ext != "jsonl") {
            continue;
        }
        count += 1;
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.len() < 100_000, "{}: {} bytes", path.display(), text.len());
        // Put together here, so that this file does not name a place of a machine either.
        for top in ["tmp", "home", "root", "work", "var"] {
            let place = format!("/{top}/");
            assert!(!text.contains(&place), "{place} is in {}", path.display());
        }
    }
    assert_eq!(count, SITUATIONS.len(), "none is left of what nobody reads");
}
