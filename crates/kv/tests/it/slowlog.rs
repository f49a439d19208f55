//! SLOWLOG: what is in it, as in a real Redis, and what never is.

use crate::replica::{info, server, wait_for};
use crate::served::{Client, Served, Value, text};

/// Commands whose entries are compared.
const LINES: &[&str] = &[
    "SLOWLOG LEN",
    "PING",
    "set a 5",
    "GETSET a 6",
    "INCRBYFLOAT a 1.5",
    "GEOADD places 13.4 52.5 Berlin",
    "INCR places",
    "NOTHING a",
    "GET",
    "SLOWLOG GET -2",
    "SLOWLOG GET x",
    "SLOWLOG GET 1 2",
    "SLOWLOG NOTHING",
    "SLOWLOG HELP",
    "MULTI",
    "RPUSH l 1",
    "LPOP l",
    "EXEC",
    "CLIENT SETNAME somebody",
    "AUTH secret",
    "auth default secret",
    "HELLO 2 AUTH default secret SETNAME other",
    "ACL SETUSER u on >secret +get",
    "ACL DELUSER u",
    "config set masterauth secret",
    "CONFIG SET slowlog-max-len 1000 masterauth secret MASTERUSER secret",
    "CONFIG SET masterauth |",
    "SLOWLOG LEN",
];

/// Arguments, the client's name, and whether no client said it.
fn entries(client: &mut Client) -> Vec<(Value, Value, bool)> {
    let Value::List(all) = client.say("SLOWLOG GET -1") else { panic!("no list") };
    let entry = |one: &Value| match one {
        Value::List(parts) if parts.len() == 6 => {
            assert!(parts[..3].iter().all(|one| matches!(one, Value::Int(_))), "{parts:?}");
            (parts[3].clone(), parts[5].clone(), parts[4] == text("?:0"))
        }
        other => panic!("no entry: {other:?}"),
    };
    all.iter().map(entry).collect()
}

fn waits(client: &mut Client) -> bool {
    info(client, "blocked_clients") == "1"
}

fn said(served: &Served) -> (Vec<Value>, Vec<(Value, Value, bool)>) {
    let (mut client, mut other) = (served.connect(), served.connect());
    client.say("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 1000");
    client.say("SLOWLOG RESET");
    let mut said = Vec::new();
    for line in LINES {
        let words: Vec<&[u8]> =
            line.split(' ').map(|one| one.trim_matches('|').as_bytes()).collect();
        let reply = client.ask(&words);
        // HELLO says which server it is.
        if !line.starts_with("HELLO") {
            said.push(reply);
        }
    }
    let many: Vec<String> = (0..40).map(|n| format!("e{n}")).collect();
    said.push(client.say(&format!("SADD many {}", many.join(" "))));
    said.push(client.say(&format!("SADD many {} {}", many[..30].join(" "), "x".repeat(128))));
    said.push(client.say(&format!("SADD many {}", "x".repeat(129))));
    said.push(client.ask(&[b"EVAL", b"redis.call('set', KEYS[1], 'v')", b"1", b"x"]));
    other.send(&[b"BLPOP", b"waited", b"0"]).unwrap();
    // Asked again and again, so it is not compared.
    let mut third = served.connect();
    third.say("CONFIG SET slowlog-log-slower-than -1");
    wait_for("the client that waits", || waits(&mut third));
    third.say("CONFIG SET slowlog-log-slower-than 0");
    client.say("RPUSH waited 1");
    other.read().unwrap();
    let mut all = entries(&mut client);
    // Whether the clients or the one that they wait for come first is left to the server.
    all.sort();
    client.say("CONFIG SET slowlog-max-len 3");
    client.say("PING");
    said.push(client.say("SLOWLOG LEN"));
    client.say("CONFIG SET slowlog-log-slower-than -1");
    client.say("SLOWLOG RESET");
    client.say("PING");
    said.push(client.say("SLOWLOG LEN"));
    client.say("CONFIG SET slowlog-log-slower-than 100000000");
    client.say("PING");
    said.push(client.say("SLOWLOG GET"));
    (said, all)
}

#[test]
fn slow_commands_are_noted_as_redis_notes_them_and_secrets_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let (mine, entries) = said(&server(directory.path(), ""));
    assert!(entries.len() > 30, "{entries:?}");
    assert!(!format!("{entries:?}").contains("secret"), "{entries:?}");
    assert!(!entries.iter().any(|one| one.0 == Value::List(vec![text("EXEC")])), "{entries:?}");
    let last = &mine[mine.len() - 3..];
    assert_eq!(last, [Value::Int(3), Value::Int(0), Value::List(Vec::new())]);
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let (theirs, their_entries) = said(&redis);
    assert_eq!(mine, theirs);
    assert_eq!(entries, their_entries);
}

/// The commands of a pipeline share their readings of the clock.
#[test]
fn what_one_command_takes_is_not_charged_to_another() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(directory.path(), "");
    let mut client = served.connect();
    // Far above what PING takes even on a machine that does much else.
    client.say("CONFIG SET slowlog-log-slower-than 300000");
    client.say("SLOWLOG RESET");
    let busy = "local until_ = tonumber(redis.call('time')[1]) + 2 \
                while tonumber(redis.call('time')[1]) < until_ do end \
                return redis.call('ping')";
    client.send(&[b"PING"]).unwrap();
    client.send(&[b"EVAL", busy.as_bytes(), b"0"]).unwrap();
    client.send(&[b"PING"]).unwrap();
    for _ in 0..3 {
        client.read().unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    client.say("PING");
    let all = entries(&mut client);
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(format!("{all:?}").contains("EVAL"), "{all:?}");
    let Value::List(parts) = client.say("SLOWLOG GET") else { panic!("no list") };
    let Value::List(parts) = &parts[0] else { panic!("no entry") };
    let Value::Int(micros) = parts[2] else { panic!("no time") };
    assert!((1_000_000..10_000_000).contains(&micros), "{micros} us");
}
