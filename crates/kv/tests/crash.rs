//! Power cuts everywhere: each command family, the allocator, the index, the log.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod crash_support;

use crash_support::{Script, batch, explore};
use tiersmith_kv::planted::Planted;

mod scripts;

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

/// For each planted bug, some script finds it.
#[test]
fn every_planted_bug_is_found() {
    let scripts = scripts::all();
    let missed: Vec<_> = Planted::ALL
        .iter()
        .filter(|bug| {
            let found = scripts.iter().find_map(|script| {
                let tried = std::panic::catch_unwind(|| explore(script, **bug, 100));
                match tried {
                    Ok(Ok(_)) => None,
                    Ok(Err(why)) => Some(why),
                    Err(_) => Some("a panic".to_owned()),
                }
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
