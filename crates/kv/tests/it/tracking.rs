//! CLIENT TRACKING: the same commands of three clients get the same messages here and from a real
//! Redis.

use crate::replica::{info, server, wait_for};
use crate::served::{Client, Served, Value, text};

/// Who speaks, and what: 0 tracks, 2 is another. `{}` is the number of one that is told for 0.
const LINES: &[(usize, &str)] = &[
    // Nobody tracks yet, and nobody is told of it later.
    (2, "FLUSHALL"),
    (0, "CLIENT TRACKINGINFO"),
    (0, "CLIENT GETREDIR"),
    (0, "CLIENT CACHING yes"),
    (0, "CLIENT TRACKING maybe"),
    (0, "CLIENT TRACKING on REDIRECT 999999"),
    (0, "CLIENT TRACKING on REDIRECT x"),
    (0, "CLIENT TRACKING on REDIRECT {} REDIRECT {}"),
    (0, "CLIENT TRACKING on PREFIX a"),
    (0, "CLIENT TRACKING on BCAST OPTIN"),
    (0, "CLIENT TRACKING on OPTIN OPTOUT"),
    (0, "CLIENT TRACKING on BCAST PREFIX ab PREFIX a"),
    (0, "CLIENT TRACKING on REDIRECT {}"),
    (0, "CLIENT GETREDIR"),
    (0, "CLIENT CACHING yes"),
    (2, "SET a 1"),
    (0, "GET a"),
    (2, "SET b 1"),
    (2, "SET a 2"),
    (2, "SET a 3"),
    (0, "MGET a b c"),
    (0, "SET a 4"),
    (2, "DEL b"),
    (2, "SET c 5"),
    (0, "STRLEN c"),
    (2, "FLUSHALL"),
    (2, "SET c 5"),
    (0, "HELLO 3"),
    (0, "GET c"),
    (2, "SET c 6"),
    (0, "CLIENT TRACKING off"),
    (0, "GET c"),
    (2, "SET c 7"),
    (0, "CLIENT TRACKING on"),
    (0, "CLIENT TRACKINGINFO"),
    (0, "GET c"),
    (0, "SET c 88"),
    (0, "GET c"),
    (2, "EXPIRE c 100"),
    (0, "GET c"),
    (2, "PERSIST c"),
    (0, "HGETALL h"),
    (2, "HSET h f 1"),
    (0, "MULTI;GET c;INCR c;GET h;EXEC"),
    (2, "DEL h"),
    (0, "EVAL |return(redis.call('get',KEYS[1]))| 2 c d"),
    (2, "SET d 1"),
    (2, "SET c 1"),
    (0, "EVAL |return(redis.call('set',KEYS[1],1))| 2 c d"),
    (2, "SET d 1"),
    (0, "EVAL_RO |return(redis.call('get',KEYS[1]))| 1 d"),
    (2, "RENAME d e"),
    (0, "GET c"),
    (2, "FLUSHDB"),
    (0, "GET nothing"),
    (2, "FLUSHALL ASYNC"),
    (2, "SET nothing 1"),
    (0, "CLIENT TRACKING on BCAST"),
    (0, "CLIENT TRACKING off"),
    (0, "CLIENT TRACKING on NOLOOP"),
    (0, "GET a"),
    (0, "SET a 1"),
    (0, "GET a"),
    (2, "SET a 2"),
    (0, "CLIENT TRACKING off"),
    (0, "CLIENT TRACKING on OPTIN"),
    (0, "CLIENT TRACKING on OPTOUT"),
    (0, "GET a"),
    (2, "SET a 3"),
    (0, "CLIENT CACHING no"),
    (0, "CLIENT CACHING maybe"),
    (0, "CLIENT CACHING yes"),
    (0, "CLIENT TRACKINGINFO"),
    (0, "GET a"),
    (2, "SET a 4"),
    (0, "GET a"),
    (0, "CLIENT TRACKINGINFO"),
    (2, "SET a 5"),
    (0, "CLIENT TRACKING off"),
    (0, "CLIENT TRACKING on OPTOUT"),
    (0, "CLIENT CACHING no"),
    (0, "GET a"),
    (2, "SET a 6"),
    (0, "GET a"),
    (2, "SET a 7"),
    (0, "CLIENT TRACKING off"),
    (0, "GET b"),
    (0, "CLIENT TRACKING on BCAST PREFIX user: PREFIX a"),
    (0, "CLIENT TRACKING on BCAST PREFIX user:1"),
    (0, "CLIENT TRACKING on BCAST PREFIX c"),
    (0, "CLIENT TRACKINGINFO"),
    (2, "SET user:1 x"),
    (2, "SET other x"),
    (2, "MSET user:1 x user:2 y b z"),
    (2, "DEL b"),
    (2, "SET user:3 x"),
    (2, "FLUSHALL"),
    (0, "CLIENT TRACKING off"),
    (0, "CLIENT TRACKING on BCAST NOLOOP REDIRECT {}"),
    (2, "SET one x"),
    (0, "SET two x"),
    (2, "LPUSH list x"),
    (2, "RPOP list"),
    (0, "CLIENT TRACKING off"),
    (0, "CLIENT GETREDIR"),
    (2, "SET one x"),
    // What a client reads after its own change, it keeps.
    (0, "HELLO 3"),
    (0, "CLIENT TRACKING on NOLOOP"),
    (0, "MULTI;SET x 1;GET x;EXEC"),
    (2, "SET x 2"),
    (0, "MULTI;LPUSH li 1;LRANGE li 0 -1;EXEC"),
    (2, "LPUSH li 2"),
    (2, "SET ctr 1000"),
    (0, "EVAL |redis.call('incr',KEYS[1])return(redis.call('get',KEYS[1]))| 1 ctr"),
    (2, "INCR ctr"),
    (0, "EVAL |redis.call('get',KEYS[1])return(redis.call('incr',KEYS[1]))| 1 ctr"),
    (2, "INCR ctr"),
    (0, "CLIENT TRACKING off"),
    (0, "CLIENT TRACKING on"),
    (0, "MULTI;SET x 1;GET x;EXEC"),
    (2, "SET x 2"),
    (0, "EVAL |redis.call('incr',KEYS[1])return(redis.call('get',KEYS[1]))| 1 ctr"),
    (2, "INCR ctr"),
    (0, "EVAL |redis.call('get',KEYS[1])return(redis.call('incr',KEYS[1]))| 1 ctr"),
    (2, "INCR ctr"),
    // Who tracks no more is told what changed before.
    (0, "CLIENT TRACKING off"),
    (0, "CLIENT TRACKING on"),
    (0, "GET a"),
    (0, "MULTI;FLUSHALL;CLIENT TRACKING off;EXEC"),
    (0, "CLIENT TRACKING on BCAST"),
    (0, "MULTI;SET a 1;CLIENT TRACKING off;EXEC"),
    (0, "RESET"),
];

fn words<'a>(line: &'a str, id: &'a str) -> Vec<&'a [u8]> {
    let word = |word: &'a str| if word == "{}" { id } else { word.trim_matches('|') };
    line.split(' ').map(|one| word(one).as_bytes()).collect()
}

/// What a client is told up to now.
fn told(client: &mut Client) -> Vec<Value> {
    client.send(&[b"ECHO", b"so far"]).unwrap();
    let mut all = Vec::new();
    loop {
        match client.read().unwrap() {
            one if one == text("so far") => return all,
            one => all.push(one),
        }
    }
}

/// Every reply, and the messages that came with it.
fn said(served: &Served) -> Vec<(String, Vec<Value>, Vec<Value>)> {
    let mut clients = [0; 3].map(|_| served.connect());
    let mut subscriber = served.connect();
    let Value::Int(id) = subscriber.say("CLIENT ID") else { panic!("no number") };
    subscriber.say("SUBSCRIBE __redis__:invalidate mark");
    let id = id.to_string();
    let mut all = Vec::new();
    for (who, line) in LINES {
        for line in line.split(';') {
            clients[*who].send(&words(line, &id)).unwrap();
        }
        let mut own = told(&mut clients[*who]);
        if *who != 0 {
            own.extend(told(&mut clients[0]));
        }
        clients[2].say("PUBLISH mark m");
        let mut others = Vec::new();
        loop {
            let one = subscriber.read().unwrap();
            if one == Value::List(["message", "mark", "m"].map(text).into()) {
                break;
            }
            others.push(one);
        }
        // HELLO says which server it is, and that of another is another.
        let blank = |one: &Value| match one {
            Value::Int(number) if number.to_string() == id => text("the other client"),
            Value::List(all) if all.contains(&text("proto")) => text("hello"),
            Value::List(all) => Value::List(
                all.iter()
                    .map(|one| {
                        if *one == Value::Int(id.parse().unwrap()) {
                            Value::Nil
                        } else {
                            one.clone()
                        }
                    })
                    .collect(),
            ),
            one => one.clone(),
        };
        own = own.iter().map(blank).collect();
        all.push((format!("{who} {line}"), own, others));
    }
    all
}

#[test]
fn changes_are_told_to_whom_redis_tells_them() {
    let directory = tempfile::tempdir().unwrap();
    let ours = server(directory.path(), "");
    let mine = said(&ours);
    let messages = mine.iter().filter(|(_, _, others)| !others.is_empty()).count();
    assert!(messages >= 5, "{messages}");
    let mut client = ours.connect();
    for name in ["tracking_clients", "tracking_total_keys", "tracking_total_prefixes"] {
        assert_eq!(info(&mut client, name), "0", "{name}");
    }
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    for (one, other) in mine.iter().zip(&said(&redis)) {
        assert_eq!(one, other);
    }
}

#[test]
fn what_goes_for_a_command_is_told_before_its_reply() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(directory.path(), "maxmemory-policy volatile-random");
    let mut client = served.connect();
    client.say("HELLO 3");
    client.say("CLIENT TRACKING on");
    client.say("SETEX goes 10000 x");
    client.say("GET goes");
    client.say("SET stays x");
    client.say("CONFIG SET maxmemory 1");
    client.send(&[b"GET", b"stays"]).unwrap();
    assert_eq!([client.read().unwrap(), client.read().unwrap()], [invalid("goes"), text("x")]);
}

fn invalid(key: &str) -> Value {
    Value::List(vec![text("invalidate"), Value::List(vec![text(key)])])
}

#[test]
fn a_table_of_tracked_keys_is_bounded_and_who_loses_a_key_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(directory.path(), "tracking-table-max-keys 300");
    let (mut client, mut other) = (served.connect(), served.connect());
    client.say("HELLO 3");
    client.say("CLIENT TRACKING on");
    for n in 0..250 {
        client.say(&format!("GET key{n}"));
    }
    assert_eq!(info(&mut other, "tracking_total_keys"), "250");
    other.say("CONFIG SET tracking-table-max-keys 1");
    wait_for("the table", || info(&mut other, "tracking_total_keys") == "1");
    let lost = told(&mut client);
    assert_eq!(lost.len(), 249);
    assert!((0..250).filter(|n| lost.contains(&invalid(&format!("key{n}")))).count() == 249);
    assert_eq!(info(&mut other, "tracking_total_items"), "1");
    // One that goes takes what it tracks along.
    client.say("CLIENT TRACKING off");
    client.say("CLIENT TRACKING on BCAST PREFIX a PREFIX b");
    assert_eq!(info(&mut other, "tracking_total_prefixes"), "2");
    drop(client);
    wait_for("the client is gone", || info(&mut other, "tracking_clients") == "0");
    assert_eq!(info(&mut other, "tracking_total_prefixes"), "0");
    assert_eq!(info(&mut other, "tracking_total_keys"), "0");
}

#[test]
fn keys_that_expire_are_told_and_so_is_one_that_is_told_for_another_and_gone() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(directory.path(), "");
    let (mut client, mut target, mut other) =
        (served.connect(), served.connect(), served.connect());
    client.say("HELLO 3");
    client.say("CLIENT TRACKING on");
    other.say("SET short 1 PX 50");
    client.say("GET short");
    // Nobody asks for it again.
    assert_eq!(client.read().unwrap(), invalid("short"));
    client.say("CLIENT TRACKING off");
    // One that is over when its reader asks for it is not there, and then it is.
    client.say("CLIENT TRACKING on NOLOOP");
    other.say("CONFIG SET hz 1");
    for _ in 0..20 {
        other.say("SET short 1 PX 3");
        std::thread::sleep(std::time::Duration::from_millis(5));
        client.say("GET short");
        other.say("SET short 2");
        assert_eq!(client.read().unwrap(), invalid("short"));
    }
    client.say("CLIENT TRACKING off");
    let Value::Int(id) = target.say("CLIENT ID") else { panic!("no number") };
    client.say(&format!("CLIENT TRACKING on REDIRECT {id}"));
    client.say("GET key");
    drop(target);
    wait_for("the target is gone", || info(&mut other, "connected_clients") == "2");
    other.say("SET key 1");
    let lost = Value::List(vec![text("tracking-redir-broken"), Value::Int(id)]);
    assert_eq!(told(&mut client), [lost]);
    let Value::List(parts) = client.say("CLIENT TRACKINGINFO") else { panic!("no list") };
    assert_eq!(parts[1], Value::List(["on", "broken_redirect"].map(text).into()));
    let Value::Text(list) = client.say("CLIENT LIST") else { panic!("no text") };
    assert!(list.contains(" flags=tRU ") && list.contains(&format!(" redir={id} ")), "{list}");
}
