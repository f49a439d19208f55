//! The what-if curves against runs: the same requests at homes whose tiers have the sizes that the
//! miniatures of another home model.
//!
//! Deliberately absent: the miniatures by themselves (`src/cache/what_if.rs`).

use crate::place::{self, Place};
use tiersmith_store::{AttachedHome, CacheRules, FileClass, OpenMode, Options, attach};

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

#[test]
fn a_curve_of_a_tier_that_is_written_past_knows_that_copies_go() {
    let place = Place::in_memory();
    const FILE: u64 = 1024;
    let file = std::fs::File::create(place.home().join("a.d8")).unwrap();
    file.set_len(FILE * BLOCK).unwrap();
    let options = Options { what_if_one_in: 4, ..place::options() };
    let spec = tiersmith_store::TierSpec {
        medium: tiersmith_store::Medium::Volatile,
        ..place.tier(16 * MIB)
    };
    let attached = attach(&place.home(), &[spec], options).unwrap();
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    let mut block = vec![0; BLOCK as usize];
    for n in 0..40_000 {
        let at = random.u64(..FILE) * BLOCK;
        match random.bool() {
            true => file.write(at, &block).unwrap(),
            false => drop(file.read(at, &mut block).unwrap()),
        }
        if n % 64 == 0 {
            attached.background_step().unwrap();
        }
    }
    let curve = attached.stats().tiers[0].what_if.clone().unwrap();
    let model = 100.0 * curve.points[2].hit_ratio.unwrap();
    let run = 100.0 * hit_ratio(&attached);
    let wrote = attached.stats().usage(FileClass::Data).bytes_written >> 20;
    let would = curve.points[2].bytes_written / MIB as f64;
    let said =
        format!("model {model:.1} %, run {run:.1} %; would write {would:.0}, wrote {wrote} MiB");
    assert!((model - run).abs() <= 3.0, "{said}");
}

#[test]
fn a_curve_of_blocks_that_are_read_in_parts_says_what_status_says_of_this_size() {
    let place = Place::in_memory();
    let file = std::fs::File::create(place.home().join("a.d8")).unwrap();
    file.set_len(BLOCKS * BLOCK).unwrap();
    let options = Options { what_if_one_in: 4, ..place::options() };
    let attached = attach(&place.home(), &[place.tier(16 * MIB)], options).unwrap();
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    let mut random = fastrand::Rng::with_seed(11);
    let mut part = vec![0; BLOCK as usize / 2];
    for n in 0..100_000 {
        let at = (random.f64().powi(3) * BLOCKS as f64) as u64 * 4801 % BLOCKS * BLOCK;
        file.read(at, &mut part).unwrap();
        file.read(at + BLOCK / 2, &mut part).unwrap();
        if n % 64 == 0 {
            attached.background_step().unwrap();
        }
    }
    let curve = attached.stats().tiers[0].what_if.clone().unwrap();
    let model = 100.0 * curve.points[2].hit_ratio.unwrap();
    let run = 100.0 * hit_ratio(&attached);
    let said = format!("model {model:.1} %, run {run:.1} %");
    assert!((model - run).abs() <= 3.0, "{said}");
}

#[test]
fn a_curve_of_a_tier_that_has_grown_is_of_its_size() {
    let place = Place::in_memory();
    std::fs::File::create(place.home().join("a.d8")).unwrap();
    let options = Options { what_if_one_in: 4, ..place::options() };
    let spec =
        tiersmith_store::TierSpec { max_size: 64 * MIB, grow_by: 16 * MIB, ..place.tier(16 * MIB) };
    let attached = attach(&place.home(), &[spec], options).unwrap();
    while attached.grow("fast").unwrap() {}
    let tier = attached.stats().tiers[0].clone();
    let its_size = tier.what_if.unwrap().points[2].bytes;
    assert_eq!(its_size, tier.usable_bytes);
}

#[test]
fn a_curve_of_a_tier_that_is_warm_when_it_is_attached_is_of_a_warm_tier() {
    const FILE: u64 = 1200;
    let place = Place::in_memory();
    std::fs::write(place.home().join("a.d8"), vec![1; (FILE * BLOCK) as usize]).unwrap();
    let options = || Options { what_if_one_in: 4, ..place::options() };
    for round in 0..2 {
        let attached = attach(&place.home(), &[place.tier(16 * MIB)], options()).unwrap();
        attached.background_step().unwrap();
        let file = attached.open("a.d8", OpenMode::READ).unwrap();
        let mut block = vec![0; BLOCK as usize];
        for n in 0..6 * FILE {
            file.read(n * 203 % FILE * BLOCK, &mut block).unwrap();
        }
        let curve = attached.stats().tiers[0].what_if.clone().unwrap();
        let model = 100.0 * curve.points[2].hit_ratio.unwrap();
        let run = 100.0 * hit_ratio(&attached);
        assert!((model - run).abs() <= 3.0, "round {round}: model {model:.1} %, run {run:.1} %");
    }
}

#[test]
fn a_curve_knows_that_removed_and_cut_files_leave_room() {
    let place = Place::in_memory();
    const HOT: u64 = 1000;
    let hot = std::fs::File::create(place.home().join("a.d8")).unwrap();
    hot.set_len(HOT * BLOCK).unwrap();
    let options = Options { what_if_one_in: 4, ..place::options() };
    let attached = attach(&place.home(), &[place.tier(16 * MIB)], options).unwrap();
    let hot = attached.open("a.d8", OpenMode::READ).unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    let mut block = vec![0; BLOCK as usize];
    for round in 0..60 {
        let name = format!("temporary{round}.d8");
        let file = attached.open(&name, OpenMode::CREATE).unwrap();
        for n in 0..250 {
            file.write(n * BLOCK, &block).unwrap();
            hot.read(random.u64(..HOT) * BLOCK, &mut block).unwrap();
        }
        if round % 2 == 0 {
            file.truncate(0).unwrap();
        } else {
            drop(file);
            attached.unlink(&name).unwrap();
        }
        attached.background_step().unwrap();
    }
    let curve = attached.stats().tiers[0].what_if.clone().unwrap();
    let model = 100.0 * curve.points[2].hit_ratio.unwrap();
    let run = 100.0 * hit_ratio(&attached);
    assert!((model - run).abs() <= 3.0, "model {model:.1} %, run {run:.1} %");
}

#[test]
fn a_curve_knows_that_blocks_go_home_by_rule_and_by_command() {
    const FILE: u64 = 600;
    for (rule, moves) in [(true, false), (false, true), (false, false)] {
        let place = Place::in_memory();
        std::fs::write(place.home().join("a.d8"), vec![1; (FILE * BLOCK) as usize]).unwrap();
        let none = "none=*.d8";
        let cache = CacheRules::parse(rule.then_some(none)).unwrap();
        let options = Options { what_if_one_in: 4, cache, ..place::options() };
        let attached = attach(&place.home(), &[place.tier(16 * MIB)], options).unwrap();
        let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
        let mut block = vec![0; BLOCK as usize];
        for _ in 0..10 {
            (0..FILE).for_each(|n| file.write(n * BLOCK, &block).unwrap());
            let path = std::path::Path::new("a.d8");
            if rule {
                assert_eq!(attached.destage(Some(path)).unwrap(), FILE);
            } else if moves {
                assert_eq!(attached.move_home_at(path, None, |_| true).unwrap().blocks, FILE);
            } else {
                assert_eq!(attached.destage(Some(path)).unwrap(), FILE);
                assert_eq!(attached.evict(Some(path), 0).unwrap(), FILE);
            }
            for n in 0..FILE {
                file.read(n * 203 % FILE * BLOCK, &mut block).unwrap();
            }
            attached.background_step().unwrap();
        }
        let curve = attached.stats().tiers[0].what_if.clone().unwrap();
        let model = 100.0 * curve.points[2].hit_ratio.unwrap();
        let run = 100.0 * hit_ratio(&attached);
        assert!((model - run).abs() <= 3.0, "{rule} {moves}: model {model:.1} %, run {run:.1} %");
    }
}

#[test]
fn a_tier_that_holds_redo_only_has_no_curve() {
    let place = Place::in_memory();
    let spec = tiersmith_store::TierSpec { holds_data: false, ..place.tier(16 * MIB) };
    let options = Options { what_if_one_in: 1, ..place::options() };
    let attached = attach(&place.home(), &[spec], options).unwrap();
    assert_eq!(attached.stats().tiers[0].what_if, None);
}
