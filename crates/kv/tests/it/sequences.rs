//! Lists that are long enough for a sequence of several levels, against a list in ordinary memory.

use std::collections::VecDeque;

use tiersmith_kv::check::check;
use tiersmith_kv::planted::Planted;
use tiersmith_kv::testing::Local;
use tiersmith_pmem::Mapping;

fn assert_sound(local: &Local) {
    let report = check(&Mapping::in_memory(&local.image(), 0)).unwrap();
    assert!(report.is_sound(), "{report}");
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn local() -> Local {
    Local::create(Mapping::in_memory(&vec![0; 6 << 20], 0), 64 << 10, Planted::None).unwrap()
}

#[test]
fn random_changes_of_a_long_list_leave_what_they_leave_of_a_list_in_memory() {
    let mut local = local();
    let mut random = fastrand::Rng::with_seed(23);
    let mut model: VecDeque<String> = VecDeque::new();
    // Grows, shrinks, grows: by what is more likely.
    for (round, likely) in [9, 3, 8, 1].into_iter().enumerate() {
        for number in 0..6000 {
            let value = format!("{round}:{number}");
            let place = random.usize(..model.len().max(1));
            match random.u8(..12) {
                grow if grow < likely => match random.u8(..4) {
                    0 => {
                        local.say(&format!("LPUSH l {value}"));
                        model.push_front(value);
                    }
                    1 => {
                        local.say(&format!("RPUSH l {value}"));
                        model.push_back(value);
                    }
                    _ => {
                        let Some(pivot) = model.get(place).cloned() else { continue };
                        let said = local.say(&format!("LINSERT l AFTER {pivot} {value}"));
                        model.insert(place + 1, value);
                        assert_eq!(said, format!(":{}\r\n", model.len()));
                    }
                },
                9 => {
                    let said = local.say("LPOP l");
                    assert_eq!(said, model.pop_front().map_or("$-1\r\n".to_owned(), |v| bulk(&v)));
                }
                10 => {
                    let said = local.say("RPOP l");
                    assert_eq!(said, model.pop_back().map_or("$-1\r\n".to_owned(), |v| bulk(&v)));
                }
                11 if !model.is_empty() => {
                    local.say(&format!("LSET l {place} {value}"));
                    model[place] = value;
                }
                _ => {
                    let Some(value) = model.remove(place) else { continue };
                    assert_eq!(local.say(&format!("LREM l 0 {value}")), ":1\r\n");
                }
            }
            if number % 500 == 0 {
                let all: Vec<String> = model.iter().map(|value| bulk(value)).collect();
                let said = local.say("LRANGE l 0 -1");
                assert_eq!(said, format!("*{}\r\n{}", all.len(), all.concat()));
                local.commit();
                assert_sound(&local);
            }
            if number % 50 == 0 && !model.is_empty() {
                let at = random.usize(..model.len());
                assert_eq!(local.say(&format!("LINDEX l {at}")), bulk(&model[at]));
            }
        }
    }
    local.commit();
    assert_sound(&local);
}

#[test]
fn a_queue_keeps_its_space_and_a_removed_list_gives_all_of_it_back() {
    let mut local = local();
    for n in 0..3000 {
        local.say(&format!("RPUSH l {n}"));
    }
    local.commit();
    let used = local.keys().heap().used();
    for n in 3000..60_000 {
        local.say(&format!("RPUSH l {n}"));
        assert_eq!(local.say("LPOP l"), bulk(&(n - 3000).to_string()));
        if n % 10 == 0 {
            local.commit();
        }
    }
    local.commit();
    let now = local.keys().heap().used();
    assert!(now <= used + 2048, "{used} bytes became {now}");
    assert_eq!(local.say("DEL l"), ":1\r\n");
    local.commit();
    while local.keys().has_trash() {
        local.tidy();
    }
    assert_sound(&local);
    local.say("FLUSHALL");
    while local.keys().has_trash() {
        local.tidy();
    }
    assert_eq!(local.keys().heap().used(), 0);
}

#[test]
fn random_changes_of_a_large_sorted_set_leave_it_in_order() {
    let mut local = local();
    let mut random = fastrand::Rng::with_seed(29);
    let mut model: Vec<(i64, String)> = Vec::new();
    let show = |all: &[(i64, String)]| {
        let parts: Vec<String> = all.iter().map(|(s, m)| bulk(m) + &bulk(&s.to_string())).collect();
        format!("*{}\r\n{}", 2 * all.len(), parts.concat())
    };
    for (round, likely) in [8, 3, 9, 0].into_iter().enumerate() {
        for number in 0..2500 {
            let (member, score) = (format!("m{}", random.u32(..6000)), random.i64(-50..50));
            let known = model.iter().position(|(_, other)| *other == member);
            match random.u8(..10) {
                add if add < likely => {
                    let added = local.say(&format!("ZADD z {score} {member}"));
                    assert_eq!(added, format!(":{}\r\n", u8::from(known.is_none())));
                    known.map(|at| model.remove(at));
                    let at = model.partition_point(|other| *other < (score, member.clone()));
                    model.insert(at, (score, member));
                }
                9 if !model.is_empty() => {
                    let last = model.pop().unwrap();
                    assert_eq!(local.say("ZPOPMAX z"), show(&[last]));
                }
                8 if !model.is_empty() => {
                    let first = model.remove(0);
                    assert_eq!(local.say("ZPOPMIN z"), show(&[first]));
                }
                _ if !model.is_empty() => {
                    let at = random.usize(..model.len());
                    let (_, member) = model.remove(at);
                    assert_eq!(local.say(&format!("ZRANK z {member}")), format!(":{at}\r\n"));
                    assert_eq!(local.say(&format!("ZREM z {member}")), ":1\r\n");
                }
                _ => {}
            }
            if number % 250 == 0 {
                let (low, high) = (random.i64(-60..0), random.i64(0..60));
                let part: Vec<_> =
                    model.iter().filter(|(s, _)| (low..=high).contains(s)).cloned().collect();
                let said = local.say(&format!("ZRANGEBYSCORE z {low} {high} WITHSCORES"));
                assert_eq!(said, show(&part), "round {round}");
                local.commit();
                assert_sound(&local);
            }
        }
        // What is small again in the first rounds is one with a node still.
        if round == 0 {
            let padded: Vec<String> =
                (0..400).map(|n| format!("0 {n}{}", "x".repeat(80))).collect();
            local.say(&format!("ZADD z {}", padded.join(" ")));
            model.extend((0..400).map(|n| (0, format!("{n}{}", "x".repeat(80)))));
            model.sort();
        }
    }
    local.commit();
    local.say("DEL z");
    local.commit();
    while local.keys().has_trash() {
        local.tidy();
    }
    assert_sound(&local);
}

#[test]
fn a_list_keeps_its_time_when_its_only_element_moves_to_its_other_end() {
    let mut local = local();
    local.say("RPUSH l a");
    local.say("PEXPIRE l 5000");
    for line in ["LMOVE l l LEFT RIGHT", "RPOPLPUSH l l"] {
        assert_eq!(local.say(line), bulk("a"));
        assert_eq!(local.say("PTTL l"), ":5000\r\n", "after {line}");
    }
}

#[test]
fn what_is_left_of_a_long_list_or_sorted_set_in_a_full_tier_is_what_was_not_removed() {
    let mut local =
        Local::create(Mapping::in_memory(&vec![0; 6 << 20], 0), 4096, Planted::None).unwrap();
    let elements: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
    for part in elements.chunks(50) {
        local.say(&format!("RPUSH l {}", part.join(" ")));
        let scored: Vec<String> = part.iter().map(|n| format!("{n} {n}")).collect();
        local.say(&format!("ZADD z {}", scored.join(" ")));
        local.commit();
    }
    let mut more = 0;
    while local.say(&format!("SET k{more} {}", "v".repeat(500))) == "+OK\r\n" {
        local.commit();
        more += 1;
    }
    local.say("PEXPIRE l 5000");
    assert_eq!(local.say("LTRIM l 19998 -1"), "+OK\r\n");
    assert_eq!(local.say("ZREMRANGEBYRANK z 2 -1"), ":19998\r\n");
    local.commit();
    assert_eq!(local.say("LRANGE l 0 -1"), format!("*2\r\n{}{}", bulk("19998"), bulk("19999")));
    assert_eq!(local.say("ZRANGE z 0 -1"), format!("*2\r\n{}{}", bulk("0"), bulk("1")));
    assert_eq!(local.say("PTTL l"), ":5000\r\n");
    assert_sound(&local);
}
