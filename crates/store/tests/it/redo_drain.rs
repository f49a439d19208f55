//! A redo log that goes round while it is drained: what the drain has just freed is written again,
//! and is there after a cut.
//!
//! The drain and the writer change the same words on the medium. A word that arrives late shows
//! only in what the medium holds at that moment, so each round is attached again from an image of
//! it: what a kill leaves.

use crate::place;

use crate::place::Place;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tiersmith_pmem::{Access, Mapping, OpenOptions};
use tiersmith_store::home::SimHome;
use tiersmith_store::{OpenMode, Options, TierSpec, testing};

const TIER: u64 = 4 << 20;
const BLOCK: usize = 4096;
const BLOCKS: usize = 128;
/// As many as the drain frees at a time.
const AGAIN: usize = 32;
/// A word that arrived late was in one round of 30 to 200.
const ROUNDS: u64 = 600;

#[test]
fn a_redo_block_that_is_written_again_while_it_is_drained_is_there_after_a_cut() {
    for round in 0..ROUNDS {
        let place = Place::in_memory();
        let member = place.member("fast");
        let home = Arc::new(SimHome::new(None));
        let spec = TierSpec { lanes: 64, ..place::small(member.clone(), TIER) };
        let attach = |mapping: &Arc<Mapping>| {
            let options =
                Options { redo_keep_bytes: (BLOCKS / 2 * BLOCK) as u64, ..place::options() };
            let tier = vec![(spec.clone(), vec![mapping.clone()])];
            testing::attach_simulated(home.clone(), tier, &place::profile(), options).unwrap()
        };
        let options = OpenOptions { create: true, ..OpenOptions::new(Access::Emulated, TIER) };
        let mapping = Arc::new(Mapping::open(&member, &options).unwrap());
        let attached = attach(&mapping);
        let file = attached.open("log.redo", OpenMode::CREATE).unwrap();
        file.extend((BLOCKS * BLOCK) as u64).unwrap();
        let write = |block: usize, version: u8| {
            file.write((block * BLOCK) as u64, &[version; BLOCK]).unwrap();
        };
        (0..BLOCKS).for_each(|block| write(block, 1));
        attached.destage(Some(Path::new("log.redo"))).unwrap();
        (0..BLOCKS).for_each(|block| write(block, 2));
        let (begun, mut again) = (AtomicBool::new(false), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !begun.load(Ordering::SeqCst) {
                    std::hint::spin_loop();
                }
                attached.background_step().unwrap();
            });
            begun.store(true, Ordering::SeqCst);
            // As soon as something is freed, the oldest blocks are written again. (Where the drain
            // never runs meanwhile, nothing is.)
            let end = Instant::now() + Duration::from_secs(5);
            while again < AGAIN && Instant::now() < end {
                if file.blocks_in_tier().0 < BLOCKS as u64 {
                    write(again, 3);
                    again += 1;
                }
            }
        });
        let image = place::image(&mapping);
        drop(file);
        drop(attached);
        let attached = attach(&Arc::new(Mapping::in_memory(&image, 0)));
        let after = place::read(&attached, "log.redo");
        for block in 0..BLOCKS {
            let acknowledged = if block < again { 3 } else { 2 };
            assert_eq!(after[block * BLOCK], acknowledged, "round {round}, block {block}");
        }
    }
}
