//! A tier that a cut left between the states, given to another home.

use super::{Medium, Options, TierSpec, attach};
use crate::attached::AttachedHome;
use crate::error::Result;
use crate::format::superblock::{COPY_AT, SUPERBLOCK, Superblock, TierState};
use crate::profile::Profile;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

fn try_attach(dir: &Path, home: &str) -> Result<AttachedHome> {
    let mut spec = TierSpec::new("fast", dir.join("fast"), Medium::Emulated, 4 << 20);
    (spec.unit, spec.lanes, spec.slots) = (64 << 10, 4, 16);
    let profile = Some(Profile::named("generic").unwrap());
    attach(&dir.join(home), &[spec], Options { profile, background: false, ..Options::default() })
}

/// Writes another state into the superblocks of a tier at rest.
fn set_state(member: &Path, state: TierState) {
    let file = fs::File::options().read(true).write(true).open(member).unwrap();
    for at in COPY_AT {
        let mut bytes = [0; SUPERBLOCK];
        file.read_exact_at(&mut bytes, at).unwrap();
        let mut superblock = Superblock::decode(&bytes).unwrap();
        superblock.state = state;
        superblock.seq += 1;
        file.write_all_at(&superblock.encode(), at).unwrap();
    }
}

#[test]
fn a_tier_in_the_middle_of_attaching_or_detaching_is_not_given_to_another_home_while_a_note_names_it() {
    for state in [TierState::Attaching, TierState::Detaching] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        for home in ["one", "two"] {
            fs::create_dir(dir.join(home)).unwrap();
            fs::write(dir.join(home).join("file"), home).unwrap();
        }
        drop(try_attach(&dir, "one").unwrap());
        let member = dir.join("fast");
        set_state(&member, state);
        let before = fs::read(&member).unwrap();
        let said = try_attach(&dir, "two").unwrap_err().to_string();
        assert!(said.contains(&format!("{}", dir.join("one").display())) && said.contains("first"), "{said}");
        assert!(fs::read(&member).unwrap() == before, "nothing was changed");
        assert_eq!(fs::read_dir(dir.join("two")).unwrap().count(), 1, "nor there");
        // The first home goes on from there, and its end makes the tier free.
        try_attach(&dir, "one").unwrap().detach().unwrap();
        assert_eq!(fs::read_to_string(dir.join("one/file")).unwrap(), "one");
        try_attach(&dir, "two").unwrap().detach().unwrap();
        // One whose home is gone, or says nothing of it, is free.
        drop(try_attach(&dir, "one").unwrap());
        set_state(&member, state);
        fs::remove_file(dir.join("one.tiersmith-home/.tiersmith")).unwrap();
        try_attach(&dir, "two").unwrap().detach().unwrap();
    }
}
