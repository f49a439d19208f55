//! State lines that say `lent` where nothing can be: written by a defective program, or by hand,
//! with right checksums.

use crate::api::AttachedHome;
use crate::attach::{Options, TierSpec};
use crate::check::{AnyHome, Severity, check_images};
use crate::error::Error;
use crate::format::slot::{LENT, SLOT, StateLine, with_loan};
use crate::home::SimHome;
use crate::medium::Medium;
use crate::profile::{FileClass, Profile};
use crate::testing::{attach_simulated_lending, forget_claims};
use std::path::Path;
use std::sync::Arc;
use tiersmith_pmem::Mapping;

const LEN: u64 = 1 << 20;

fn profile() -> Profile {
    let rule = |name: &str, class: &str, lend: &str| {
        format!(
            "[[rule]]\nfiles = ['*.{name}']\nclass = '{class}'\nblock_size = 4096\n{lend}\nwhy = \
             'test'\n"
        )
    };
    let text = "description = 'test'\n[default]\nclass = 'pass'\nblock_size = 4096\n".to_owned();
    Profile::parse("lend", &(text + &rule("seg", "redo", "lend = true") + &rule("db", "data", "")))
        .unwrap()
}

struct Machine {
    home: Arc<SimHome>,
    lent: Arc<SimHome>,
    tier: Arc<Mapping>,
}

impl Machine {
    fn attach(&self) -> crate::Result<AttachedHome> {
        forget_claims(std::slice::from_ref(&self.tier), 64 << 10);
        let mut spec = TierSpec::new("fast", "/fast", Medium::Emulated, LEN);
        (spec.unit, spec.lanes, spec.batches, spec.slots) = (32 << 10, 4, 1, 16);
        let options = Options { background: false, ..Options::default() };
        let tiers = vec![(spec, vec![self.tier.clone()])];
        attach_simulated_lending(self.home.clone(), self.lent.clone(), tiers, &profile(), options)
    }

    fn image(&self) -> Vec<u8> {
        let mut bytes = vec![0; LEN as usize];
        self.tier.read(0, &mut bytes);
        bytes
    }
}

/// Closes the home, then writes a newer state line of the file, as it is but lent.
fn close_saying_lent(home: AttachedHome, path: &str) {
    let known = home.store.names.known(Path::new(path)).unwrap();
    let placed = known.placed.as_ref().unwrap();
    let tier = placed.tier.clone();
    let (seed, id, base) = (tier.seed, placed.id, placed.slot.get().unwrap().at);
    drop(known);
    drop(home);
    let mut slot = [0; SLOT];
    tier.read_checked(base, &mut slot).unwrap();
    let mut line = StateLine::newest(&slot, seed, id).unwrap();
    line.seq += 1;
    line.flags = with_loan(line.flags | LENT, 7);
    tier.write_meta(base.plus(line.at()), &line.encode_pair(seed, id));
    tier.fence();
}

#[test]
fn a_state_line_that_says_lent_of_a_data_file_is_refused_as_damage_and_nothing_is_changed() {
    let (home, lent) = (Arc::new(SimHome::new(None)), Arc::new(SimHome::new(None)));
    let machine =
        Machine { home, lent, tier: Arc::new(Mapping::in_memory(&vec![0; LEN as usize], LEN)) };
    let attached = machine.attach().unwrap();
    let file = attached.create("a.db").unwrap();
    file.write(0, &[5; 8192]).unwrap();
    assert_eq!(file.class(), FileClass::Data);
    assert!(file.lend().unwrap().is_none(), "a data file is not lent");
    drop(file);
    close_saying_lent(attached, "a.db");
    let (before, home_before) = (machine.image(), machine.home.snapshot());
    let error = machine.attach().unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains("a.db") && said.contains("only redo files are"), "{said}");
    assert!(machine.image() == before, "the tier is as it was");
    assert_eq!(machine.home.snapshot().fingerprint(), home_before.fingerprint());
    let report = check_images(&[&before], Some(&AnyHome(&*machine.home)));
    let found: Vec<_> = report.findings.iter().map(|f| (f.severity, f.invariant)).collect();
    assert!(found.contains(&(Severity::Inconsistent, 5)), "{report}");
}

#[test]
fn a_state_line_that_says_lent_of_a_redo_file_without_a_plain_file_is_refused_and_nothing_is_changed()
 {
    let (home, lent) = (Arc::new(SimHome::new(None)), Arc::new(SimHome::new(None)));
    let machine =
        Machine { home, lent, tier: Arc::new(Mapping::in_memory(&vec![0; LEN as usize], LEN)) };
    let attached = machine.attach().unwrap();
    attached.create("a.seg").unwrap().write(0, &[5; 8192]).unwrap();
    close_saying_lent(attached, "a.seg");
    let before = machine.image();
    let error = machine.attach().unwrap_err();
    assert!(matches!(error, Error::Lent { .. }), "{error}");
    assert!(
        machine.image() == before,
        "the tier is as it was, with the blocks that the line denies"
    );
}
