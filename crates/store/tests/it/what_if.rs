//! The what-if curves against runs: the same requests at homes whose tiers have the sizes that the
//! miniatures of another home model.
//!
//! Deliberately absent: the miniatures by themselves (`src/cache/what_if.rs`).

use crate::place::{self, Place};
use tiersmith_store::{AttachedHome, FileClass, OpenMode, Options, attach};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 8192;
/// Blocks of the home's file: 96 MiB.
const BLOCKS: u64 = 12_288;
const REQUESTS: u64 = 100_000;

/// Requests, and how the background steps in between; a write is one in sixteen where `writes`.
fn run(
    bytes: u64,
    one_in: u64,
    next: &mut dyn FnMut() -> u64,
    writes: bool,
) -> (Place, AttachedHome) {
    let place = Place::in_memory();
    let file = std::fs::File::create(place.home().join("a.d8")).unwrap();
    file.set_len(BLOCKS * BLOCK).unwrap();
    let options = Options { what_if_one_in: one_in, ..place::options() };
    let attached = attach(&place.home(), &[place.tier(bytes)], options).unwrap();
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    let mut block = vec![0; BLOCK as usize];
    for n in 0..REQUESTS {
        let at = next() % BLOCKS * BLOCK;
        if writes && n % 16 == 0 {
            file.write(at, &block).unwrap();
        } else {
            file.read(at, &mut block).unwrap();
        }
        if n % 64 == 0 {
            attached.background_step().unwrap();
        }
    }
    (place, attached)
}

fn hit_ratio(attached: &AttachedHome) -> f64 {
    let usage = attached.stats().usage(FileClass::Data);
    usage.hits as f64 / (usage.hits + usage.misses) as f64
}

/// The curve of a home with a tier of 16 MiB, and what runs at each of its sizes hit.
fn compare(name: &str, writes: bool, requests: impl Fn() -> Box<dyn FnMut() -> u64>) {
    let (_place, attached) = run(16 * MIB, 4, &mut *requests(), writes);
    let curve = attached.stats().tiers[0].what_if.clone().unwrap();
    assert_eq!((curve.points.len(), curve.passed_over), (5, 0));
    let mut said = String::new();
    let mut worst: f64 = 0.0;
    for (point, mib) in curve.points.iter().zip([4, 8, 16, 32, 64]) {
        let (_place, at_size) = run(mib * MIB, 1 << 20, &mut *requests(), writes);
        let (model, real) = (100.0 * point.hit_ratio.unwrap(), 100.0 * hit_ratio(&at_size));
        let usage = at_size.stats().usage(FileClass::Data);
        let (wrote, would) = (usage.bytes_written >> 20, point.bytes_written / MIB as f64);
        said += &format!("{name} {mib} MiB: model {model:.1} %, run {real:.1} %; ");
        said += &format!("would write {would:.0} MiB, wrote {wrote} MiB\n");
        worst = worst.max((model - real).abs());
    }
    println!("{said}");
    assert!(worst <= 3.0, "{worst:.1} points away:\n{said}");
}

#[test]
fn a_curve_is_within_three_points_of_runs_at_its_sizes_when_some_blocks_are_hot() {
    compare("hot", false, || {
        let mut random = fastrand::Rng::with_seed(11);
        Box::new(move || (random.f64().powi(3) * BLOCKS as f64) as u64 * 4801)
    });
}

#[test]
fn a_curve_is_within_three_points_of_runs_at_its_sizes_of_reads_and_writes() {
    compare("mixed", true, || {
        let mut random = fastrand::Rng::with_seed(12);
        let mut at = 0_u64;
        Box::new(move || {
            // Half of them go round in an order that is no scan, half are hot.
            at += 1;
            match random.bool() {
                true => at / 2 * 203 % 2048,
                false => (random.f64().powi(4) * BLOCKS as f64) as u64 * 4801,
            }
        })
    });
}
