//! Power cuts everywhere: each command family, the allocator, the index, the log.

use crate::crash_support::{Script, batch, explore};
use crate::scripts;
use tiersmith_kv::check::check;
use tiersmith_kv::heap::Heap;
use tiersmith_kv::planted::Planted;
use tiersmith_kv::rdb::{Content, Item};
use tiersmith_kv::testing::Local;
use tiersmith_pmem::Mapping;
use tiersmith_pmem::sim::Simulator;

fn holds(script: &Script) {
    let images = if cfg!(debug_assertions) { 60 } else { 200 };
    match explore(script, Planted::None, images) {
        Ok(looked_at) => assert!(looked_at > 20, "{looked_at} images"),
        Err(why) => panic!("{why}"),
    }
}

#[test]
fn power_cuts_leave_every_script_before_or_after_a_batch() {
    for script in scripts::all() {
        holds(&script);
    }
}

/// Makes a tier on a medium that held other things, and cuts the power everywhere.
fn make(planted: Planted) -> Result<usize, String> {
    let mut image = vec![0xab; 300 << 10];
    image[..8192].fill(0);
    let simulator = Simulator::new();
    Local::create(simulator.mapping(image, 0), 4096, planted).unwrap();
    let trace = simulator.trace();
    let mut player = trace.player();
    let mut looked_at = 0;
    for cut in trace.cut_points() {
        player.advance_to(cut);
        let mut buffer = player.buffer();
        for choice in player.images(300, cut as u64) {
            let image = &player.image(&choice, &mut buffer)[0];
            looked_at += 1;
            let map = Mapping::in_memory(image, 0);
            let local = match Heap::is_blank(&map).map_err(|e| e.to_string())? {
                true => Local::create(map, 4096, Planted::None),
                false => Local::open(map, Planted::None),
            };
            let local = local.map_err(|e| format!("cut {cut}: {e}"))?;
            let report =
                check(&Mapping::in_memory(&local.image(), 0)).map_err(|e| e.to_string())?;
            if !report.is_sound() || !local.contents().is_empty() {
                return Err(format!("cut {cut}: {report}"));
            }
        }
    }
    Ok(looked_at)
}

#[test]
fn power_cuts_while_a_tier_is_made_leave_none_or_an_empty_one() {
    assert!(make(Planted::None).unwrap() > 100);
}

/// Copies a primary's data over others, follows it for two commands, and cuts the power everywhere.
fn copy(planted: Planted) -> Result<usize, String> {
    let item = |n: u8| Item {
        db: 0,
        key: vec![b'k', n],
        content: Content::Hash(vec![(vec![n], vec![n; 200])]),
        expires: None,
    };
    fastrand::seed(2);
    let simulator = Simulator::new();
    let mut local = Local::create(simulator.mapping(vec![0; 1 << 20], 0), 4096, planted).unwrap();
    local.say("MSET old 1 other 2");
    local.commit();
    let old = local.contents();
    simulator.rebase();
    local.copy(&[item(1), item(2), item(3)], &"a".repeat(40), 100);
    let mut wholes = vec![(100, local.contents())];
    for position in [130, 160] {
        local.obey("INCR counter", position);
        wholes.push((position, local.contents()));
    }
    drop(local);
    let trace = simulator.trace();
    let mut player = trace.player();
    let mut looked_at = 0;
    for cut in trace.cut_points() {
        player.advance_to(cut);
        let mut buffer = player.buffer();
        for choice in player.images(60, cut as u64) {
            let image = &player.image(&choice, &mut buffer)[0];
            looked_at += 1;
            let local =
                Local::open(Mapping::in_memory(image, 0), planted).map_err(|e| e.to_string())?;
            let found = local.contents();
            let fits = match local.copied() {
                None => found == old,
                Some((false, _)) => true,
                Some((true, position)) => wholes.contains(&(position, found)),
            };
            if !fits {
                return Err(format!("cut {cut}: the data do not fit to {:?}", local.copied()));
            }
        }
    }
    Ok(looked_at)
}

#[test]
fn power_cuts_while_a_primary_is_followed_leave_the_old_data_an_incomplete_copy_or_a_whole_one() {
    assert!(copy(Planted::None).unwrap() > 100);
}

/// The script that is likely to find a bug, which is tried first: the others take a minute.
fn likely(bug: Planted) -> &'static str {
    match bug {
        Planted::BodyNotKept | Planted::BodyNotKeptAfterRecovery => "beyond the log",
        Planted::DeadWordsInRecord => "changed, given back, used again",
        Planted::SlabNotCleared => "slabs come and go",
        Planted::ExecOneByOne => "several",
        Planted::ScriptOneByOne => "scripts",
        Planted::SplitInTwo => "index grows",
        Planted::ElementCountedLater | Planted::NodeSplitInTwo => "lists with a sequence",
        Planted::MovedInTwo => "sets",
        Planted::OrderComesLater => "sorted sets",
        Planted::IndexGoesFirst => "hashes with an index",
        Planted::FlushForgetsTrash => "flush",
        Planted::LibrariesGoFirst => "libraries",
        Planted::RowCountedLater | Planted::BlockReplacedInTwo => "streams",
        Planted::PendingInTwo | Planted::GroupForgotten => "stream groups",
        _ => "strings",
    }
}

/// For each planted bug, some script finds it.
#[test]
fn every_planted_bug_is_found() {
    let mut scripts = scripts::all();
    let missed: Vec<_> = Planted::ALL
        .iter()
        .filter(|bug| {
            scripts.sort_by_key(|script| script.name != likely(**bug));
            let made = (**bug == Planted::SuperblockFirst).then(|| make(**bug).err()).flatten();
            let copies = matches!(**bug, Planted::CopyNotMarked | Planted::PositionLater);
            let made = made.or_else(|| copies.then(|| copy(**bug).err()).flatten());
            let found = made.or_else(|| {
                scripts.iter().find_map(|script| {
                    let tried = std::panic::catch_unwind(|| explore(script, **bug, 100));
                    match tried {
                        Ok(Ok(_)) => None,
                        Ok(Err(why)) => Some(why),
                        Err(_) => Some("a panic".to_owned()),
                    }
                })
            });
            if let Some(why) = &found {
                println!("{bug:?}: {}", why.lines().take(3).collect::<Vec<_>>().join(" | "));
            }
            found.is_none()
        })
        .collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn a_batch_that_is_larger_than_the_log_is_all_or_nothing() {
    let keys: Vec<String> = (0..400).map(|n| format!("key:{n} value:{n}")).collect();
    let script = Script {
        name: "large",
        units: 12,
        before: vec![batch(&["SET old 1"])],
        batches: vec![
            vec![format!("MSET {}", keys.join(" "))],
            batch(&["SET a 1"]),
            vec![format!("MSET {}", keys.join("x "))],
            batch(&["DEL old", "SET b 1"]),
        ],
    };
    holds(&script);
}
