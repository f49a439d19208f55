//! What recovery must notice or mend, on images made by hand: two entries for one frame, a torn
//! state line that the next one could complete, a plain file that nobody synced.

use super::{Medium, Options, TierSpec};
use crate::address::{BlockIndex, WordAt};
use crate::api::{AttachedHome, File, OpenMode};
use crate::error::{Error, Result};
use crate::format::entry::{Place, seal};
use crate::format::slot::{LINE, SLOT, StateLine};
use crate::home::SimHome;
use crate::profile::Profile;
use crate::testing::{attach_simulated, attach_simulated_lending};
use std::path::Path;
use std::sync::Arc;
use tiersmith_pmem::Mapping;

const BYTES: usize = 4 << 20;

fn spec() -> TierSpec {
    let small = TierSpec::new("fast", "/member", Medium::Emulated, BYTES as u64);
    TierSpec { unit: 64 << 10, lanes: 4, slots: 16, ..small }
}

fn options() -> Options {
    Options { background: false, ..Options::default() }
}

fn profile() -> Profile {
    let text = "description = 'test'\n[default]\nclass = 'data'\nblock_size = 4096\n\
                [[rule]]\nfiles = ['*.seg']\nclass = 'redo'\nlend = true\nwhy = 'test'\n";
    Profile::parse("test", text).unwrap()
}

fn try_attach(home: &SimHome, image: &[u8]) -> (Result<AttachedHome>, Arc<Mapping>) {
    let home = Arc::new(SimHome::from_image(&home.snapshot(), None));
    let mapping = Arc::new(Mapping::in_memory(image, 0));
    let tiers = vec![(spec(), vec![mapping.clone()])];
    (attach_simulated(home, tiers, &profile(), options()), mapping)
}

fn image(mapping: &Mapping) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    mapping.read(0, &mut bytes);
    bytes
}

/// Where a file is in the tier.
struct Known {
    id: u64,
    seed: u64,
    slot_at: usize,
    entries: Vec<WordAt>,
    /// What the entry of its first block says.
    first: crate::format::entry::Entry,
}

impl Known {
    fn of(file: &File) -> Known {
        let placed = file.state.placed.as_ref().unwrap();
        let (leaf, _) = placed.map.leaf(BlockIndex(0)).unwrap();
        Known {
            id: placed.id,
            seed: placed.tier.seed,
            slot_at: placed.slot.get().unwrap().at.offset() as usize,
            entries: (0..4).map(|n| leaf.word_at(n).unwrap()).collect(),
            first: leaf.get(0),
        }
    }
}

/// A home with two files of two blocks each, at rest, and its tier.
fn two_files() -> (Arc<SimHome>, Vec<u8>, [Known; 2]) {
    let home = Arc::new(SimHome::new(None));
    let mapping = Arc::new(Mapping::in_memory(&vec![0; BYTES], 0));
    let tiers = vec![(spec(), vec![mapping.clone()])];
    let attached = attach_simulated(home.clone(), tiers, &profile(), options()).unwrap();
    let known = ["a", "b"].map(|name| {
        let file = attached.open(name, OpenMode::CREATE).unwrap();
        for n in 0..2 {
            file.write(n * 4096, &[name.as_bytes()[0] + n as u8; 4096]).unwrap();
        }
        Known::of(&file)
    });
    drop(attached);
    (home, image(&mapping), known)
}

/// With one frame under two entries a write to one block would show in the other.
#[test]
fn a_frame_that_two_entries_point_to_ends_the_attach_and_nothing_is_changed() {
    let (home, sound, [a, b]) = two_files();
    try_attach(&home, &sound).0.unwrap().detach().unwrap();
    // The second block of `a`, a further one past its end, and one of the other file.
    for (file, block) in [(&a, 1), (&a, 3), (&b, 0)] {
        let mut twice = sound.clone();
        let word = seal(file.seed, file.id, Place::Block(block as u64), a.first);
        let at = file.entries[block].offset() as usize;
        twice[at..at + 8].copy_from_slice(&word.to_le_bytes());
        let (attached, mapping) = try_attach(&home, &twice);
        let error = attached.map(drop).unwrap_err();
        let Error::Damaged { offset, .. } = &error else { panic!("{error}") };
        assert!(error.to_string().contains("to which another entry points too"), "{error}");
        assert!([at as u64, a.entries[0].offset()].contains(offset), "{error}");
        assert!(image(&mapping) == twice, "block {block}: the attach changed something");
    }
}

/// The next line has the number of the torn one. Words that both have in common could make it
/// whole, if power went as the next one is written; so recovery makes sure that it never will be.
#[test]
fn a_torn_state_line_is_never_completed_by_words_of_the_next_one() {
    let (home, mut torn, [a, _]) = two_files();
    let mut slot = [0; SLOT];
    slot.copy_from_slice(&torn[a.slot_at..a.slot_at + SLOT]);
    let newest = StateLine::newest(&slot, a.seed, a.id).unwrap();
    assert_eq!(newest.size, 8192);
    // A line that was never acknowledged: all of it has arrived but for one word, in both copies.
    let next = StateLine { seq: newest.seq + 1, size: 3 * 4096, ..newest.clone() };
    let (at, pair) = (a.slot_at + next.at() as usize, next.encode_pair(a.seed, a.id));
    let missing = [24, LINE + 24];
    torn[at..at + 2 * LINE].copy_from_slice(&pair);
    for word in missing {
        torn[at + word] ^= 0xff;
    }
    let size = |attached: &AttachedHome| attached.stat("a").unwrap().size;
    let (attached, mapping) = try_attach(&home, &torn);
    let attached = attached.unwrap();
    assert_eq!(size(&attached), 8192);
    // The next line has the same word there, and power goes when nothing else of it has arrived.
    let mut cut = image(&mapping);
    for word in missing {
        cut[at + word..at + word + 8].copy_from_slice(&pair[word..word + 8]);
    }
    let (again, _) = try_attach(&home, &cut);
    assert_eq!(size(&again.unwrap()), 8192, "a size that was never acknowledged came back");
}

/// What a killed process left is in the kernel's memory perhaps. Once recovery has shown it, it
/// stays.
#[test]
fn what_recovery_shows_of_a_plain_file_survives_a_power_cut_although_nobody_synced_it() {
    const LEN: usize = 64 << 10;
    let (home, lent) = (Arc::new(SimHome::new(None)), Arc::new(SimHome::new(None)));
    let mapping = Arc::new(Mapping::in_memory(&vec![0; BYTES], 0));
    let attach = |home: &Arc<SimHome>, lent: &Arc<SimHome>, mapping: &Arc<Mapping>| {
        let tiers = vec![(spec(), vec![mapping.clone()])];
        let options = Options { lent_max_bytes: 1 << 20, ..options() };
        attach_simulated_lending(home.clone(), lent.clone(), tiers, &profile(), options).unwrap()
    };
    let attached = attach(&home, &lent, &mapping);
    let file = attached.open("0.seg", OpenMode::CREATE).unwrap();
    file.write(0, &[7; LEN]).unwrap();
    let handed = file.lend().unwrap().expect("a redo file of this profile can be lent");
    home.rebase();
    lent.rebase();
    // The kernel writes it, and the process is killed before anybody syncs.
    handed.plain.file.write_at(0, &[9; 8192]).unwrap();
    let images = (home.snapshot(), lent.snapshot(), image(&mapping));
    drop((file, handed, attached));

    let home = Arc::new(SimHome::from_image(&images.0, None));
    let lent = Arc::new(SimHome::from_image(&images.1, None));
    let attached = attach(&home, &lent, &Arc::new(Mapping::in_memory(&images.2, 0)));
    let mut seen = [0; 8192];
    let file = attached.open("0.seg", OpenMode::READ).unwrap();
    assert_eq!(file.read(0, &mut seen).unwrap(), seen.len());
    assert!(seen == [9; 8192]);

    let trace = lent.trace();
    let mut player = trace.player();
    player.advance_to(trace.events().len());
    let found = player.choices(64, 1);
    for choice in &found {
        let after = player.image(choice).home();
        let names = after.paths();
        let [name] = &names[..] else { panic!("{names:?}") };
        let bytes = after.contents(Path::new(&**name)).unwrap();
        assert!(bytes[..8192] == [9; 8192], "a power cut took back what recovery had shown");
    }
    assert!(!found.is_empty());
}
