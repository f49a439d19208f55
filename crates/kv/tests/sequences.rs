//! Lists that are long enough for a sequence of several levels, against a list in ordinary memory.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

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
