//! Space: what a refused command looked at is not lost, what the log still needs is not used.

use tiersmith_kv::check::check;
use tiersmith_kv::planted::Planted;
use tiersmith_kv::rdb::{Content, Item};
use tiersmith_kv::testing::Local;
use tiersmith_pmem::Mapping;

/// A tier of so many units.
fn tier(units: usize) -> Mapping {
    Mapping::in_memory(&vec![0; (128 << 10) + units * (64 << 10)], 0)
}

fn assert_sound(local: &Local) {
    let report = check(&Mapping::in_memory(&local.image(), 0)).unwrap();
    assert!(report.is_sound(), "{report}");
}

#[test]
fn a_command_that_is_refused_leaves_the_free_slots_to_the_next() {
    let mut local = Local::create(tier(24), 64 << 10, Planted::None).unwrap();
    let value = "v".repeat(290);
    let mut keys = 0;
    while local.say(&format!("SET k{keys} {value}")) == "+OK\r\n" {
        local.commit();
        keys += 1;
    }
    assert!(keys > 1000, "{keys}");
    for key in (0..keys).step_by(2) {
        local.say(&format!("DEL k{key}"));
    }
    local.commit();
    let pairs: Vec<String> = (0..keys).map(|key| format!("m{key} {value}")).collect();
    assert!(local.say(&format!("MSET {}", pairs.join(" "))).starts_with("-OOM"));
    local.commit();
    for key in (0..keys).step_by(2) {
        assert_eq!(local.say(&format!("SET k{key} {value}")), "+OK\r\n", "k{key} of {keys}");
        local.commit();
    }
    assert_sound(&local);
}

#[test]
fn the_body_of_the_last_record_is_there_until_the_next_record_counts_also_after_a_recovery() {
    let mut local = Local::create(tier(40), 4096, Planted::None).unwrap();
    local.say("SET a 1");
    local.commit();
    let pairs: Vec<String> = (0..300).map(|key| format!("m{key} {key}")).collect();
    local.say(&format!("MSET {}", pairs.join(" ")));
    local.commit();
    // Killed; then a large value is written, and the power fails before it counts.
    let mut local = Local::open(Mapping::in_memory(&local.image(), 0), Planted::None).unwrap();
    let expected = local.contents();
    local.say(&format!("SET large {}", "x".repeat(30 << 16)));
    let local = Local::open(Mapping::in_memory(&local.image(), 0), Planted::None).unwrap();
    assert_eq!(local.contents().len(), expected.len());
    assert_sound(&local);
}

#[test]
fn what_gives_space_back_works_in_a_full_tier() {
    let mut local = Local::create(tier(70), 16 << 10, Planted::None).unwrap();
    // Small hashes of several sizes, then whatever still has room.
    let mut hashes = 0;
    while local.say(&format!(
        "HSET h{hashes} a {} b {} c 1",
        "a".repeat(hashes % 700),
        "b".repeat(100)
    )) == ":3\r\n"
    {
        local.commit();
        hashes += 1;
    }
    let mut keys = 0;
    for len in [30_000, 4000, 500, 60, 1] {
        while local.say(&format!("SET k{keys} {}", "v".repeat(len))) == "+OK\r\n" {
            local.commit();
            keys += 1;
        }
    }
    assert!(hashes > 1000 && keys > 10, "{hashes} {keys}");
    for key in 0..keys {
        assert_eq!(local.say(&format!("EXPIRE k{key} 1000")), ":1\r\n", "k{key} of {keys}");
    }
    local.commit();
    for hash in 0..hashes {
        assert_eq!(local.say(&format!("HDEL h{hash} c")), ":1\r\n", "h{hash} of {hashes}");
        assert_eq!(local.say(&format!("EXPIRE h{hash} 1000")), ":1\r\n", "h{hash} of {hashes}");
        local.commit();
        assert_eq!(local.say(&format!("HDEL h{hash} b")), ":1\r\n", "h{hash} of {hashes}");
        local.commit();
    }
    assert_sound(&local);
    // One record of more than a slot of the log.
    let some: Vec<String> = (0..900).map(|hash| format!("h{hash}")).collect();
    assert_eq!(local.say(&format!("DEL {}", some.join(" "))), ":900\r\n");
    assert_eq!(local.say("FLUSHALL"), "+OK\r\n");
    local.commit();
    while local.keys().has_trash() {
        local.tidy();
    }
    assert_eq!(local.keys().heap().used(), 0);
    assert_sound(&local);
}

/// What was changed and given back in one commit, and used again in the next one.
fn used_again_at_once(planted: Planted) -> [String; 2] {
    let mut local = Local::create(tier(40), 64 << 10, planted).unwrap();
    local.say("SET grown 1");
    let large = "x".repeat(150_000);
    local.say(&format!("SET large {large}"));
    local.commit();
    for line in ["APPEND grown 2", "DEL grown", "EXPIRE large 100", "DEL large"] {
        local.say(line);
    }
    local.commit();
    local.say("SET other 1");
    local.say(&format!("SET wide {large}"));
    local.commit();
    // Killed: what both commits changed is stored again.
    let mut local = Local::open(Mapping::in_memory(&local.image(), 0), planted).unwrap();
    if planted == Planted::None {
        assert_sound(&local);
    }
    [local.say("GET other"), local.say("STRLEN wide")]
}

#[test]
fn what_a_commit_gave_back_is_the_next_ones_also_after_a_recovery() {
    assert_eq!(used_again_at_once(Planted::None), ["$1\r\n1\r\n", ":150000\r\n"]);
    assert_ne!(used_again_at_once(Planted::DeadWordsInRecord), ["$1\r\n1\r\n", ":150000\r\n"]);
}

#[test]
fn a_key_of_a_copy_whose_record_finds_no_space_is_refused_and_leaves_nothing() {
    let mut refused = 0;
    for count in (1000..9000).step_by(53) {
        let mut local = Local::create(tier(8), 4096, Planted::None).unwrap();
        let all = (0..count).map(|n| format!("element {n}").into_bytes()).collect();
        let item =
            Item { db: 0, key: b"list".to_vec(), content: Content::List(all), expires: None };
        refused += usize::from(local.load(&item).is_err());
        local.commit();
        assert_sound(&local);
    }
    assert!(refused > 10, "{refused}");
}

#[test]
fn a_script_that_waited_for_space_and_finds_none_for_its_record_leaves_nothing_of_it() {
    for count in (100..1500).step_by(23) {
        let mut local = Local::create(tier(8), 4096, Planted::None).unwrap();
        let mut keys = 0;
        while local.say(&format!("SET k{keys} {}", "v".repeat(300))) == "+OK\r\n" {
            local.commit();
            keys += 1;
        }
        // Space that is there only after a commit, and changes that are not committed.
        for key in 0..keys {
            local.say(&format!("DEL k{key}"));
        }
        let script = format!(
            "for n = 1, {count} do redis.call('set', 'x' .. n, string.rep('y', 300)) end return 1"
        );
        let said = String::from_utf8(local.run(&[b"EVAL", script.as_bytes(), b"0"])).unwrap();
        local.commit();
        assert_sound(&local);
        let left = local.contents().len();
        assert!(left == count || said.starts_with('-'), "{count}: {said}");
    }
}
