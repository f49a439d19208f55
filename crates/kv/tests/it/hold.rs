//! A moment of the heap that is held is read whole, whatever happens meanwhile.

use tiersmith_kv::planted::Planted;
use tiersmith_kv::testing::Local;
use tiersmith_pmem::Mapping;

fn tier(bytes: usize, planted: Planted) -> Local {
    Local::create(Mapping::in_memory(&vec![0; bytes], 0), 1 << 20, planted).unwrap()
}

/// A command that changes something, small or large.
fn change(local: &mut Local, random: &mut fastrand::Rng) {
    let (k, n) = (random.u32(..300), random.u32(..5000));
    let line = match random.u8(..16) {
        0 => format!("APPEND s{k} {n}"),
        1 => format!("DEL s{k} h{} l{}", k % 5, k % 3),
        2 => format!("HSET h{} f{n} {}", k % 5, "h".repeat(k as usize)),
        3 => format!("HDEL h{} f{n} f{}", k % 5, n + 1),
        4 => format!("RPUSH l{} {n} {}", k % 3, "e".repeat(n as usize)),
        5 => format!("LPOP l{}", k % 3),
        6 => format!("ZADD z{} {n} m{k}", k % 4),
        7 => format!("ZREM z{} m{k}", k % 4),
        8 => format!("PEXPIRE s{k} {}", 100_000 + n),
        9 => format!("PERSIST s{k}"),
        10 => format!("RENAME s{k} s{}", n % 300),
        11 => format!("SET large{} {}", k % 4, "x".repeat(200_000 + n as usize)),
        12 if k == 7 => "FLUSHDB".to_owned(),
        13 => format!("SETRANGE s{k} 10 {n}"),
        _ => format!("SET s{k} {}", "y".repeat(n as usize % 2000)),
    };
    local.say(&line);
    local.commit();
}

/// What of a held moment is not as it was.
fn differs(seed: u64, planted: Planted) -> Option<String> {
    let (mut local, mut random) = (tier(24 << 20, planted), fastrand::Rng::with_seed(seed));
    for _ in 0..800 {
        change(&mut local, &mut random);
    }
    for round in 0..4 {
        local.hold();
        let before = local.contents();
        for n in 0..400 {
            change(&mut local, &mut random);
            if n % 7 == 0 {
                local.tidy();
            }
            if n % 100 == 99 && local.as_it_was() != before {
                return Some(format!("seed {seed}, round {round}, after {n}"));
            }
        }
        let now = local.contents();
        local.let_go();
        assert!(local.contents() == now, "seed {seed}, round {round}");
    }
    // No space is lost by it.
    local.say("FLUSHALL");
    local.commit();
    (0..2000).for_each(|_| local.tidy());
    let mut fresh = tier(24 << 20, Planted::None);
    fresh.say("SET a 1");
    fresh.commit();
    let free = |local: &Local| local.keys().heap().unused_units();
    assert!(free(&local) + (4 << 20) > free(&fresh), "{} of {}", free(&local), free(&fresh));
    None
}

#[test]
fn a_moment_that_is_held_is_whole_until_it_is_let_go() {
    for seed in 0..12 {
        assert_eq!(differs(seed, Planted::None), None);
    }
}

#[test]
fn a_moment_whose_words_or_space_are_not_kept_is_noticed() {
    for planted in [Planted::HeldSpaceReused, Planted::HeldWordsNotKept] {
        // A damaged moment may also end in a panic of the test's own reader.
        let found = std::panic::catch_unwind(|| differs(1, planted));
        assert!(!matches!(found, Ok(None)), "{planted:?} is not noticed");
    }
}
