//! The server is killed again and again while clients write; what it acknowledged must be there.

use crate::served;
use std::time::{Duration, Instant};

use crate::served::{Served, Value, assert_sound, request};

const CLIENTS: u64 = 3;
/// Keys of each client, in groups of this many that one EXEC changes together.
const GROUPS: u64 = 40;
const GROUP: u64 = 3;

/// What a client knows of its groups: the last value acknowledged, and the last sent; and behind
/// the groups the same of its list, to which it pushes 0, 1, 2 and so on.
type Known = Vec<(u64, u64)>;

fn group_request(client: u64, group: u64, value: u64, how: u64) -> (Vec<u8>, usize) {
    let text = |n: u64| format!("{value}:{}", "x".repeat(((value * 37 + n) % 700) as usize));
    let keys: Vec<String> = (0..GROUP).map(|n| format!("c{client}:g{group}:{n}")).collect();
    let values: Vec<String> = (0..GROUP).map(|_| text(group)).collect();
    let mut bytes = Vec::new();
    if how == 3 {
        let script = b"for i, key in ipairs(KEYS) do redis.call('set', key, ARGV[1]) end return 1";
        let count = GROUP.to_string();
        let mut words: Vec<&[u8]> = vec![b"EVAL", script, count.as_bytes()];
        words.extend(keys.iter().map(String::as_bytes));
        words.push(values[0].as_bytes());
        return (request(&words), 1);
    }
    if how == 0 {
        let mut words: Vec<&[u8]> = vec![b"MSET"];
        for (key, value) in keys.iter().zip(&values) {
            words.extend([key.as_bytes(), value.as_bytes()]);
        }
        return (request(&words), 1);
    }
    bytes.extend(request(&[b"MULTI"]));
    for (key, value) in keys.iter().zip(&values) {
        if how == 1 {
            bytes.extend(request(&[b"SET", key.as_bytes(), value.as_bytes()]));
        } else {
            bytes.extend(request(&[b"DEL", key.as_bytes()]));
            bytes.extend(request(&[
                b"APPEND",
                key.as_bytes(),
                &value.as_bytes()[..2.min(value.len())],
            ]));
            bytes.extend(request(&[
                b"APPEND",
                key.as_bytes(),
                &value.as_bytes()[2.min(value.len())..],
            ]));
        }
    }
    bytes.extend(request(&[b"EXEC"]));
    let replies = if how == 1 { 2 + GROUP } else { 2 + 3 * GROUP };
    (bytes, replies as usize)
}

fn number(value: &Value) -> u64 {
    match value {
        Value::Nil => 0,
        Value::Text(text) => text.split(':').next().unwrap().parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

fn write_until_killed(mut client: served::Client, id: u64, seed: u64, known: &mut Known) {
    use std::io::Write;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut next = known.iter().map(|(_, sent)| *sent).max().unwrap_or(0) + 1;
    loop {
        // A pipeline of several groups.
        let mut sent = Vec::new();
        let mut bytes = Vec::new();
        let mut groups: Vec<u64> = (0..GROUPS).collect();
        random.shuffle(&mut groups);
        for group in groups.into_iter().take(random.usize(1..6)) {
            let (part, replies) = group_request(id, group, next, random.u64(..4));
            bytes.extend(part);
            known[group as usize].1 = next;
            sent.push((group, next, replies));
            next += 1;
        }
        let list = GROUPS as usize;
        let pushed = known[list].1.to_string();
        bytes.extend(request(&[b"MULTI"]));
        bytes.extend(request(&[b"RPUSH", format!("c{id}:list").as_bytes(), pushed.as_bytes()]));
        bytes.extend(request(&[b"SADD", format!("c{id}:set").as_bytes(), pushed.as_bytes()]));
        let sorted = format!("c{id}:sorted");
        bytes.extend(request(&[b"ZADD", sorted.as_bytes(), pushed.as_bytes(), pushed.as_bytes()]));
        bytes.extend(request(&[b"EXEC"]));
        known[list].1 += 1;
        if client.out.write_all(&bytes).is_err() {
            return;
        }
        for (group, value, replies) in sent {
            for _ in 0..replies {
                match client.read() {
                    Ok(Value::Error(why)) => panic!("{why}"),
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
            known[group as usize].0 = value;
        }
        for reply in 0..5 {
            match client.read() {
                Ok(Value::List(all)) => assert_eq!(all[1..], [Value::Int(1), Value::Int(1)]),
                Ok(_) => assert!(reply < 4),
                Err(_) => return,
            }
        }
        known[list].0 = known[list].1;
    }
}

/// The list of a client has all that was acknowledged, in order, and nothing that was not sent.
fn look_at_list(reader: &mut served::Client, client: u64, known: &mut (u64, u64)) {
    let Value::List(all) = reader.say(&format!("LRANGE c{client}:list 0 -1")) else {
        panic!("no list")
    };
    let len = all.len() as u64;
    assert!((known.0..=known.1).contains(&len), "client {client}: {len} elements of {known:?}");
    for (element, number) in all.iter().zip(0_u64..) {
        assert_eq!(*element, Value::Text(number.to_string()));
    }
    // The same EXEC put it into a set and a sorted set.
    assert_eq!(reader.say(&format!("SCARD c{client}:set")), Value::Int(len as i64));
    assert_eq!(reader.say(&format!("ZRANGE c{client}:sorted 0 -1")), Value::List(all));
    *known = (len, len);
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_half_done_when_the_server_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let seed = 20_260_101;
    let mut known: Vec<Known> = vec![vec![(0, 0); GROUPS as usize + 1]; CLIENTS as usize];
    let began = Instant::now();
    let mut rounds = 0;
    while rounds < 12 && (rounds < 4 || began.elapsed() < Duration::from_secs(20)) {
        let mut server = Served::start(directory.path());
        let mut reader = server.connect();
        for (client, known) in (0_u64..).zip(&mut known) {
            look_at_list(&mut reader, client, &mut known[GROUPS as usize]);
            for (group, (acknowledged, sent)) in (0_u64..).zip(&mut known[..GROUPS as usize]) {
                let values: Vec<Value> = (0..GROUP)
                    .map(|n| reader.say(&format!("GET c{client}:g{group}:{n}")))
                    .collect();
                let what = format!("seed {seed}, round {rounds}, client {client}, group {group}");
                assert!(values.iter().all(|v| *v == values[0]), "{what}: half done: {values:?}");
                let found = number(&values[0]);
                assert!(
                    (*acknowledged..=*sent).contains(&found),
                    "{what}: {found} of {acknowledged} to {sent}"
                );
                (*acknowledged, *sent) = (found, found);
            }
        }
        let clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
        std::thread::scope(|scope| {
            for ((client, id), known) in clients.into_iter().zip(0..).zip(&mut known) {
                let seed = seed + rounds * 10 + id;
                scope.spawn(move || write_until_killed(client, id, seed, known));
            }
            std::thread::sleep(Duration::from_millis(150 + rounds * 13));
            server.kill();
        });
        drop(server);
        assert_sound(directory.path());
        rounds += 1;
    }
    assert!(
        known.iter().flatten().any(|(acknowledged, _)| *acknowledged > 50),
        "nothing was written"
    );
}

/// What a client knows of a pair of keys that one MSET changes: the last value acknowledged, and
/// one whose reply did not come. 0: the keys are not there.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    acknowledged: u64,
    sent: Option<u64>,
}

/// Changes and removes pairs until the server is killed; how many changes found no space.
fn fill_until_killed(mut client: served::Client, id: u64, seed: u64, pairs: &mut [Pair]) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut next =
        pairs.iter().map(|pair| pair.acknowledged.max(pair.sent.unwrap_or(0))).max().unwrap_or(0);
    let mut refused = 0;
    loop {
        let chosen = random.usize(..pairs.len());
        let names = [format!("c{id}:p{chosen}:0"), format!("c{id}:p{chosen}:1")];
        next += 1;
        // What gives space back, often enough that most of the others find some.
        let removes = random.u8(..5) == 0;
        let value = format!("{next}:{}", "x".repeat(random.usize(..12_000)));
        let words: Vec<&[u8]> = match removes {
            true => vec![b"DEL", names[0].as_bytes(), names[1].as_bytes()],
            false => {
                let [one, other] = [names[0].as_bytes(), names[1].as_bytes()];
                vec![b"MSET", one, value.as_bytes(), other, value.as_bytes()]
            }
        };
        pairs[chosen].sent = Some(if removes { 0 } else { next });
        if client.send(&words).is_err() {
            return refused;
        }
        match client.read() {
            Err(_) => return refused,
            Ok(Value::Error(why)) => {
                assert!(why.starts_with("OOM") && !removes, "{why}");
                refused += 1;
            }
            Ok(_) => pairs[chosen].acknowledged = if removes { 0 } else { next },
        }
        pairs[chosen].sent = None;
    }
}

#[test]
fn a_nearly_full_tier_loses_nothing_acknowledged_and_keeps_nothing_refused_when_the_server_is_killed()
 {
    let directory = tempfile::tempdir().unwrap();
    let seed = 20_260_102;
    let mut known = vec![vec![Pair::default(); 60]; CLIENTS as usize];
    let mut refused = 0;
    for round in 0..6 {
        let mut server = Served::start(directory.path());
        let mut reader = server.connect();
        for (client, pairs) in known.iter_mut().enumerate() {
            for (number_of_pair, pair) in pairs.iter_mut().enumerate() {
                let key = |n: u8| format!("GET c{client}:p{number_of_pair}:{n}");
                let values = [reader.say(&key(0)), reader.say(&key(1))];
                let what = format!("seed {seed}, round {round}, client {client}, {pair:?}");
                assert!(values[0] == values[1], "{what}: half done: {values:.60?}");
                let found = number(&values[0]);
                let possible = found == pair.acknowledged || Some(found) == pair.sent;
                assert!(possible, "{what}: found {found}");
                *pair = Pair { acknowledged: found, sent: None };
            }
        }
        // Whatever is free goes to values that nobody changes, the large ones first.
        for len in [300_000, 10_000, 1000] {
            let value = "b".repeat(len);
            for ballast in 0.. {
                let key = format!("ballast:{round}:{len}:{ballast}");
                if matches!(
                    reader.ask(&[b"SET", key.as_bytes(), value.as_bytes()]),
                    Value::Error(_)
                ) {
                    break;
                }
            }
        }
        // And a little comes back.
        for len in [10_000, 1000] {
            (0..20).for_each(|ballast| {
                reader.say(&format!("DEL ballast:{round}:{len}:{ballast}"));
            });
        }
        let clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
        refused += std::thread::scope(|scope| {
            let running: Vec<_> = clients
                .into_iter()
                .zip(0..)
                .zip(&mut known)
                .map(|((client, id), pairs)| {
                    scope
                        .spawn(move || fill_until_killed(client, id, seed + round * 10 + id, pairs))
                })
                .collect();
            std::thread::sleep(Duration::from_millis(150 + round * 13));
            server.kill();
            running.into_iter().map(|one| one.join().unwrap()).sum::<u64>()
        });
        drop(server);
        assert_sound(directory.path());
    }
    assert!(refused > 10, "only {refused} changes found no space");
}
