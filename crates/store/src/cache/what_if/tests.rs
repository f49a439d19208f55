//! The miniatures by themselves. Beside runs at their sizes: `tests/it/what_if.rs`.

use super::*;

fn asked(block: u64) -> Asked {
    Asked { file: 1, block: BlockIndex(block), frames: 2, is_kept: true }
}

impl Miniatures {
    fn see(&self, asked: Asked, how: How) {
        self.saw(asked.file, asked.block, how, || asked);
    }
}

fn of_tier(frames: u64, one_in: u64) -> Miniatures {
    Miniatures::of_tier(frames, one_in, false)
}

const MISS: How = How::Miss { is_scan: false, file_frames: 1 << 20, admits: true };

/// Hit ratios of all sizes, of `all` blocks that were read.
fn ratios(all: &Miniatures, read: u64) -> Vec<f64> {
    let points = all.read(read).unwrap().points;
    points.iter().map(|point| point.hit_ratio.unwrap()).collect()
}

#[test]
fn what_fits_in_a_size_hits_there_and_in_all_larger_ones() {
    // 1024 frames, of which blocks have three quarters: 96, 192, 384, 768 and 1536 blocks.
    let all = of_tier(1024, 1);
    for _ in 0..40 {
        (0..300).for_each(|block| all.see(asked(block * 7919 % 300), MISS));
    }
    let ratios = ratios(&all, 12_000);
    assert!(ratios[2] > 0.95 && ratios[3] > 0.95 && ratios[4] > 0.95, "{ratios:?}");
    assert!(ratios[0] < 0.5 && ratios[0] <= ratios[1] && ratios[1] < 0.9, "{ratios:?}");
    let points = all.read(12_000).unwrap().points;
    assert_eq!(points[2].bytes_written, 300.0 * 8192.0, "each once");
    let bytes: Vec<u64> = points.iter().map(|point| point.bytes).collect();
    assert_eq!(bytes, [1, 2, 4, 8, 16].map(|quarters| quarters << 20));
}

#[test]
fn however_large_the_tier_is_the_miniatures_are_small_and_small_tiers_have_none() {
    let all = of_tier(1 << 30, 1);
    assert_eq!(all.played().one_in, 1 << 16);
    for block in 0..1_000_000_u64 {
        // Blocks of the least length there is: the most of them.
        all.follow(block, Asked { frames: 1, ..asked(block) }, MISS);
    }
    let found = all.played();
    let bytes = |one: &Miniature| {
        one.held.len() * (size_of::<Held>() + 16) * 3 / 2
            + one.marks.len() * size_of::<Chosen>()
            + one.places.capacity() * size_of::<u32>()
    };
    let bytes = found.each.iter().map(bytes).sum::<usize>()
        + (QUEUES * WAITING_MOST + EARLIER_MOST) * size_of::<Request>();
    assert!(bytes < 5 << 20, "{bytes} bytes");
    assert!(found.each.iter().all(|one| one.used <= one.total), "more than fits");
    assert!(of_tier(4 * 64 * FRAMES_LEAST - 4, 64).read(0).is_none());
    assert!(of_tier(4 * 64 * FRAMES_LEAST, 64).read(0).is_some());
}

#[test]
fn a_write_is_in_every_size_and_each_part_of_a_block_counts_and_is_no_other_request() {
    let all = of_tier(1024, 1);
    all.see(asked(5), How::Write);
    for _ in 0..WhatIf::READS_LEAST / 2 {
        all.see(asked(5), How::Hit);
    }
    // Its file has no copies, so each part misses.
    let never = How::Miss { is_scan: false, file_frames: 1 << 20, admits: false };
    for _ in 0..WhatIf::READS_LEAST / 2 {
        all.see(asked(6), never);
    }
    assert_eq!(ratios(&all, WhatIf::READS_LEAST), [0.5; 5]);
    // A part of a block that the tier has and a smaller one has not: all the smaller ones know
    // of one request only, and do not copy the block for a second one.
    let full = of_tier(1024, 1);
    (0..600).for_each(|block| full.see(asked(block), MISS));
    let before = full.read(600).unwrap().points[0].bytes_written;
    (0..9).for_each(|_| full.see(asked(5000), How::Hit));
    assert_eq!(full.read(609).unwrap().points[0].bytes_written, before);
    full.see(asked(5001), How::Hit);
    full.see(asked(5000), How::Hit);
    assert!(full.read(611).unwrap().points[0].bytes_written > before, "asked for again");
}

#[test]
fn what_a_rule_keeps_at_home_fills_no_size_and_hits_in_all_of_them_before_it_is_there() {
    let all = of_tier(1024, 1);
    let none = |block| Asked { is_kept: false, ..asked(block) };
    (0..500).for_each(|block| all.see(none(block), How::Write));
    assert!(all.played().each.iter().all(|one| one.used == 0 && one.frames_written == 1000));
    (0..1000).for_each(|n| all.see(none(n % 500), How::Hit));
    assert_eq!(ratios(&all, 1000), [1.0; 5]);
    let never = How::Miss { is_scan: false, file_frames: 1000, admits: false };
    (0..1000).for_each(|n| all.see(none(n % 500), never));
    assert_eq!(ratios(&all, 2000), [0.5; 5]);
}

#[test]
fn there_is_no_hit_ratio_of_a_few_reads() {
    let all = of_tier(1024, 1);
    (1..WhatIf::READS_LEAST).for_each(|n| all.see(asked(n % 7), MISS));
    let few = all.read(WhatIf::READS_LEAST - 1).unwrap();
    assert_eq!((few.reads, few.points[0].hit_ratio), (WhatIf::READS_LEAST - 1, None));
    assert_eq!(few.points[0].hit_ratio_off, None);
    all.see(asked(0), MISS);
    assert!(ratios(&all, WhatIf::READS_LEAST).iter().all(|ratio| *ratio > 0.99));
}

#[test]
fn a_request_that_comes_while_another_is_played_is_no_hit_by_that() {
    let all = of_tier(1024, 1);
    all.see(asked(0), How::Write);
    let half =
        |n: u64| all.see(asked(n % 2 * (n + 1)), if n.is_multiple_of(2) { How::Hit } else { MISS });
    (0..2000).for_each(half);
    assert!(ratios(&all, 2000)[0] < 0.51);
    let written = all.read(2000).unwrap().points[4].bytes_written;
    {
        let _played = all.all.lock();
        (2000..4000).for_each(half);
    }
    let found = all.read(4000).unwrap();
    let waited = WAITING_MOST as u64;
    assert_eq!((found.reads, found.passed_over), (2000 + waited, 2000 - waited));
    assert!(ratios(&all, 4000)[0] < 0.51, "{found:?}");
    assert!((found.points[4].bytes_written / written - 2.0).abs() < 0.01, "{found:?}");
}

#[test]
fn a_request_plays_a_few_at_most_and_none_where_there_is_a_background() {
    let waiting = WAITING_MOST as u64;
    for has_background in [false, true] {
        let all = Miniatures::of_tier(1024, 1, has_background);
        let played = || all.all.lock().reads;
        let mut most = 0;
        for n in 0..3 * waiting {
            let before = played();
            all.see(asked(n), MISS);
            most = most.max(played() - before);
        }
        assert_eq!(most, if has_background { 0 } else { PLAYED_AT_ONCE as u64 });
        let passed = if has_background { 2 * waiting } else { 0 };
        let found = all.read(3 * waiting).unwrap();
        assert_eq!((found.reads, found.passed_over), (3 * waiting - passed, passed));
    }
}

#[test]
fn what_every_read_looks_at_is_in_a_cache_line_that_nobody_writes() {
    let below = std::mem::offset_of!(Miniatures, below) / 128;
    let of_queues = std::mem::offset_of!(Miniatures, queues) / 128;
    let of_all = std::mem::offset_of!(Miniatures, all);
    let ends_all = (of_all + size_of::<Mutex<All>>() - 1) / 128;
    assert_eq!((align_of::<Miniatures>(), size_of::<Queue>()), (128, 128));
    assert!(below != of_queues && !(of_all / 128..=ends_all).contains(&below));
    assert!(!(of_queues..of_queues + QUEUES).contains(&below));
    assert_ne!(below, std::mem::offset_of!(Miniatures, earlier) / 128);
}

#[test]
fn what_has_gone_is_asked_for_anew_and_leaves_room() {
    let all = of_tier(1024, 1);
    (0..90).for_each(|block| all.see(asked(block), How::Write));
    all.gone(2, 0..=u64::MAX);
    all.gone(1, 10..=u64::MAX);
    all.gone(1, 3..=4);
    let found = all.played();
    for one in &found.each {
        assert_eq!((one.held.len(), one.used), (8, 16), "all but 3, 4 and from 10 on");
    }
}

#[test]
fn who_takes_blocks_away_waits_for_nobody_who_plays_and_they_go_in_the_order_of_requests() {
    let all = &of_tier(1024, 1);
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let played = all.all.lock();
        scope.spawn(move || {
            (0..9).for_each(|block| all.see(asked(block), How::Write));
            all.gone(1, 0..=3);
            all.see(asked(2), How::Write);
            all.see(Asked { file: 2, ..asked(1) }, How::Write);
            all.gone(2, 0..=u64::MAX);
            all.see(Asked { file: 2, ..asked(3) }, How::Write);
            for file in 3..3 + 2 * EARLIER_MOST as u64 {
                all.gone(file, 0..=u64::MAX);
            }
            done.send(()).unwrap();
        });
        let waited = is_done.recv_timeout(Duration::from_secs(60));
        drop(played);
        assert!(waited.is_ok(), "it waits for who plays");
    });
    assert_eq!(all.earlier.lock().len(), EARLIER_MOST, "no more than that is remembered");
    let found = all.played();
    let held: Vec<_> = found.each[4].held.keys().copied().collect();
    assert_eq!(held, [(1, 2), (1, 4), (1, 5), (1, 6), (1, 7), (1, 8), (2, 3)]);
    // What waits in the queue of another thread came before.
    drop(found);
    std::thread::scope(|scope| {
        for file in 1..=9 {
            scope.spawn(move || all.see(Asked { file, ..asked(1) }, How::Write));
        }
    });
    (1..=9).for_each(|file| all.gone(file, 0..=u64::MAX));
    assert!(all.played().each[4].held.is_empty());
}

#[test]
fn threads_that_ask_and_take_blocks_away_lose_and_tear_nothing_while_others_play() {
    const ROUNDS: u64 = 20_000;
    for resizes in [false, true] {
        let all = &Miniatures::of_tier(1024, 1, true);
        let over = &std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for file in 1..=3 {
                scope.spawn(move || {
                    for n in 0..ROUNDS {
                        let of_file = Asked { file, ..asked(n * 7919 % 500) };
                        all.see(of_file, if n % 3 == 0 { How::Write } else { MISS });
                        if n % 100 == 0 {
                            all.gone(file, n % 400..=n % 400 + n / 100 % 100);
                        }
                    }
                    all.gone(file, 0..=u64::MAX);
                    let _ = over.fetch_add(1, std::sync::atomic::Ordering::Release);
                });
            }
            let mut n = 0;
            while over.load(std::sync::atomic::Ordering::Acquire) < 3 {
                all.play_waiting();
                n += 1;
                if resizes && n % 3 == 0 {
                    all.resized([1024, 2048, 64][n as usize / 3 % 3], 0);
                }
                let found = all.all.lock();
                for one in &found.each {
                    let frames = one.held.values().map(|held| u64::from(held.frames));
                    assert_eq!(one.used, frames.sum::<u64>());
                }
            }
        });
        let found = all.played();
        if !resizes {
            assert!(found.each.iter().all(|one| one.held.is_empty() && one.used == 0));
            let played = found.reads + found.writes;
            drop(found);
            let passed = all.read(1).unwrap().passed_over;
            assert_eq!(played + passed, 3 * ROUNDS);
        }
    }
}

#[test]
fn a_tier_that_has_grown_begins_anew_with_what_it_holds() {
    let all = of_tier(1024, 1);
    (0..300).for_each(|block| all.see(asked(block), How::Write));
    (0..1000).for_each(|n| all.see(asked(n % 300), How::Hit));
    assert!(all.wants_seed() && !all.wants_seed());
    all.resized(2048, 1000);
    assert!(!all.wants_seed(), "it had some");
    let found = all.read(1000).unwrap();
    assert_eq!((found.reads, found.points[0].bytes_written), (0, 0.0));
    assert_eq!(found.points[2].bytes, 2048 << 12);
    (0..1000).for_each(|n| all.see(asked(n % 300), How::Hit));
    assert_eq!(ratios(&all, 2000)[3..], [1.0; 2]);
    // So large that it follows fewer blocks.
    all.resized(4 * FRAMES_MOST, 2000);
    let found = all.played();
    let held: Vec<_> = found.each[4].held.keys().collect();
    assert!(held.iter().all(|(file, block)| all.follows(*file, *block)), "{held:?}");
    assert_eq!(found.each[4].used, 2 * held.len() as u64);
    assert!((5..40).contains(&held.len()), "{held:?}");
    drop(found);
    let small = of_tier(64, 1);
    assert!(!small.wants_seed());
    small.resized(1024, 0);
    assert!(small.wants_seed(), "it had none");
}

#[test]
fn what_a_warm_tier_has_is_in_every_size_as_far_as_it_fits() {
    let all = of_tier(1024, 1);
    all.seed((0..380).map(asked).collect());
    let held = all.played().each.iter().map(|one| one.held.len()).collect::<Vec<_>>();
    assert_eq!(held, [96, 192, 380, 380, 380]);
}
