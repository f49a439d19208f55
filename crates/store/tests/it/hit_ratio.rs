//! The traces and policies of the benchmark `hit_ratio`: what they must not get wrong.

#![allow(dead_code, reason = "the benchmark uses all of it")]

#[path = "../../benches/hit_ratio/belady.rs"]
mod belady;
#[path = "../../benches/hit_ratio/budget.rs"]
mod budget;
#[path = "../../benches/hit_ratio/epoch.rs"]
mod epoch;
#[path = "../../benches/hit_ratio/lirs.rs"]
mod lirs;
#[path = "../../benches/hit_ratio/policies.rs"]
mod policies;
#[path = "../../benches/hit_ratio/queue.rs"]
mod queue;
#[path = "../../benches/hit_ratio/tiny_lfu.rs"]
mod tiny_lfu;
#[path = "../../benches/hit_ratio/trace.rs"]
mod trace;

use policies::Cache;
use trace::Trace;

const BLOCKS: usize = 1000;
const SIZE: usize = 100;

fn all() -> Vec<(&'static str, Box<dyn Cache>)> {
    vec![
        ("lru", Box::new(policies::Lru::new(BLOCKS, SIZE))),
        ("second chance", Box::new(policies::Clock::new(BLOCKS, SIZE))),
        ("sieve", Box::new(policies::Sieve::new(BLOCKS, SIZE))),
        ("arc", Box::new(policies::Arc::new(BLOCKS, SIZE))),
        ("s3-fifo", Box::new(policies::S3Fifo::new(BLOCKS, SIZE))),
        ("clock2q+", Box::new(policies::S3Fifo::clock2q(BLOCKS, SIZE))),
        ("larc", Box::new(policies::Larc::new(BLOCKS, SIZE))),
        ("lirs", Box::new(lirs::Lirs::new(BLOCKS, SIZE))),
        ("w-tinylfu", Box::new(tiny_lfu::TinyLfu::new(BLOCKS, SIZE))),
        ("epochs", Box::new(epoch::Epochs::new(epoch::Rules::STORE, BLOCKS, SIZE))),
    ]
}

fn hits(cache: &mut dyn Cache, requests: &[u32]) -> u64 {
    requests.iter().filter(|block| cache.request(**block)).count() as u64
}

#[test]
fn no_policy_hits_more_than_belady_or_holds_more_than_its_size() {
    let mut random = fastrand::Rng::with_seed(7);
    let requests: Vec<u32> = (0..50_000)
        .map(|_| (random.f64() * random.f64() * random.f64() * BLOCKS as f64) as u32)
        .collect();
    let best = belady::hits(&requests, BLOCKS, SIZE);
    for (name, mut cache) in all() {
        let hits = hits(&mut *cache, &requests);
        assert!(hits > 0 && hits <= best, "{name}: {hits} hits, Belady {best}");
        assert!(cache.fills() <= requests.len() as u64 - hits, "{name}: more fills than misses");
        // One after the other, in a row that no request brings anything into: what is held hits.
        let before = cache.fills();
        let held = (0..BLOCKS as u32).rev().filter(|block| {
            let hit = cache.request(*block);
            hit && cache.fills() == before
        });
        assert!(held.count() <= SIZE + 1, "{name} holds more than {SIZE} blocks");
    }
}

#[test]
fn recency_hits_nothing_in_a_loop_and_the_stores_policy_keeps_what_it_has() {
    let requests: Vec<u32> = (0..20_000).map(|n| n % 300).collect();
    let best = belady::hits(&requests, BLOCKS, SIZE);
    for (name, mut cache) in all() {
        let hits = hits(&mut *cache, &requests);
        match name {
            "lru" | "second chance" => assert_eq!(hits, 0, "{name}"),
            "epochs" => {
                assert!(hits * 10 >= best * 9, "{hits} hits, Belady {best}");
                assert!(cache.fills() <= 2 * SIZE as u64, "{} fills", cache.fills());
            }
            _ => {}
        }
    }
}

#[test]
fn a_budget_is_kept_by_either_means_and_hits_more_by_the_threshold() {
    let mut random = fastrand::Rng::with_seed(7);
    let requests: Vec<u32> = (0..200_000)
        .map(|n| ((random.f64().powi(3) * BLOCKS as f64) as u32 + n / 500) % BLOCKS as u32)
        .collect();
    let with = |budget: Option<budget::Budget>| {
        let all = epoch::Epochs::new(epoch::Rules::STORE, BLOCKS, SIZE);
        let mut cache = match budget {
            Some(budget) => all.with_budget(budget),
            None => all,
        };
        let hits = hits(&mut cache, &requests);
        (hits, cache.fills(), cache.budget().map(budget::Budget::off))
    };
    let (_, all, _) = with(None);
    let day = requests.len() as u64 / 4;
    let kept = |by| with(Some(budget::Budget::new(by, all as f64 / 16.0, day)));
    let (by_threshold, by_chance) = (kept(budget::By::Threshold), kept(budget::By::Chance));
    for (hits, fills, off) in [by_threshold, by_chance] {
        let share = fills as f64 * 4.0 / all as f64;
        assert!((0.95..=1.0).contains(&share), "{share} of the budget, {hits} hits");
        let off = off.unwrap();
        assert!(off.steady <= 0.05 && off.early == 0.0, "{off:?}");
    }
    assert!(by_threshold.0 > by_chance.0, "{by_threshold:?} {by_chance:?}");
}

#[test]
fn a_trace_that_is_cut_empty_or_of_another_format_is_refused_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let read = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        Trace::read(&path)
    };
    let header = [b"tsmtrac1".as_slice(), &8192u32.to_le_bytes(), &[0; 4]].concat();
    let words: Vec<u8> =
        [5u64, 5 | 1 << 63, 1 << 40, 5].iter().flat_map(|word| word.to_le_bytes()).collect();
    let whole = [header.clone(), words].concat();
    let trace = read("a.tstrace", &whole).unwrap();
    assert_eq!((trace.requests, trace.blocks, trace.writes), (vec![0, 0, 1, 0], 2, 1));
    for (name, bytes, says) in [
        (
            "cut.tstrace",
            &whole[..whole.len() - 3],
            "is cut: after 3 requests of 8 bytes 5 bytes are left",
        ),
        ("head.tstrace", &whole[..9], "does not begin with the 16 bytes of a header"),
        ("none.tstrace", &header[..], "holds no request"),
        ("cut.trace", &whole[..7], "is cut"),
        ("cut.oracleGeneral.bin", &whole[..30], "is cut"),
        ("some.csv", &whole[..], "is no trace known here"),
    ] {
        let error = read(name, bytes).err().unwrap_or_default();
        assert!(error.contains(says) && error.contains(name), "{name}: {error}");
    }
    assert!(Trace::read(&dir.path().join("missing.trace")).is_err());
}
