//! Keyspace events: the same commands make the same events here and in a real Redis.

use crate::replica::{server, wait_for};
use crate::served::{Client, Served, Value, free_port, text};

/// Commands, each with what it does to keys; `|` is an empty argument.
const LINES: &[&str] = &[
    "SET a 1",
    "SET a 2",
    "SET a 3 EX 100",
    "SET a 4 KEEPTTL",
    "SET a 5 XX GET",
    "SET missing 5 XX GET",
    "SET a 5 NX",
    "SETNX a 1",
    "SETNX b 1",
    "SETEX c 100 v",
    "PSETEX c 100000 v",
    "GETSET a 1",
    "GETSET d 1",
    "GETDEL d",
    "GETDEL d",
    "GETEX c",
    "GETEX c PERSIST",
    "GETEX c PERSIST",
    "GETEX c EX 100",
    "GETEX c EXAT 1",
    "GETEX c EXAT 1",
    "MSET a 1 b 2 c 3",
    "MSETNX a 1 e 1",
    "MSETNX e 1 f 1",
    "APPEND e 1",
    "APPEND new 1",
    "SETRANGE e 5 x",
    "SETRANGE e 5 |",
    "INCR a",
    "DECRBY a 5",
    "INCR words",
    "INCRBYFLOAT a 1.5",
    "INCR a",
    "GET a",
    "GET nothing",
    "MGET a nothing b",
    "STRLEN nothing",
    "GETRANGE nothing 0 1",
    "EXISTS a nothing",
    "TYPE nothing",
    "TTL nothing",
    "OBJECT ENCODING nothing",
    "DUMP nothing",
    "TOUCH nothing",
    "SETBIT bits 7 1",
    "SETBIT bits 7 1",
    "GETBIT nothing 1",
    "BITCOUNT nothing",
    "BITOP AND target bits bits",
    "BITOP AND target nothing",
    "BITOP AND target nothing",
    "BITFIELD bits SET u8 0 5 INCRBY u8 0 1",
    "BITFIELD bits GET u8 0",
    "BITFIELD nothing GET u8 0",
    "PFADD hll a b",
    "PFADD hll a b",
    "PFCOUNT hll",
    "PFMERGE hll2 hll",
    "DEL a b nothing",
    "UNLINK c",
    "RENAME e a",
    "RENAME a a",
    "RENAMENX a f",
    "RENAMENX a g",
    "RENAME g f",
    "MOVE f 5",
    "COPY new copied",
    "COPY new copied",
    "COPY new copied REPLACE",
    "COPY new copied DB 5",
    "COPY nothing copied",
    "EXPIRE new 100",
    "EXPIRE new 100 NX",
    "PERSIST new",
    "PERSIST new",
    "EXPIRE new -1",
    "EXPIRE new 100",
    "HSET h f 1 g 2",
    "HSET h f 1",
    "HMSET h f 1",
    "HSETNX h f 1",
    "HSETNX h i 1",
    "HINCRBY h f 5",
    "HINCRBYFLOAT h f 0.5",
    "HDEL h nothing",
    "HDEL h f",
    "HDEL h g i",
    "HDEL h g",
    "HGET h g",
    "LPUSH l 1 2 3",
    "RPUSH l 1 2 3",
    "LPUSHX nothing 1",
    "RPUSHX l 4",
    "LINSERT l BEFORE 1 9",
    "LINSERT l BEFORE 77 9",
    "LSET l 0 5",
    "LPOP l",
    "LPOP l 0",
    "RPOP l 2",
    "LREM l 0 nothing",
    "LREM l 0 1",
    "LTRIM l 0 -1",
    "LTRIM l 0 0",
    "LMOVE l l LEFT RIGHT",
    "LMOVE l m LEFT RIGHT",
    "RPOPLPUSH m l",
    "RPOPLPUSH m l",
    "BLPOP l 1",
    "RPUSH l 1 2",
    "BRPOP l 1",
    "BLMOVE l m LEFT LEFT 1",
    "LMPOP 2 l m LEFT COUNT 2",
    "RPUSH l 1 2",
    "LTRIM l 5 9",
    "LRANGE l 0 -1",
    "RPUSH l 3 1 2",
    "SORT l STORE sorted",
    "SORT nothing STORE sorted",
    "SORT nothing STORE sorted",
    "SADD s a b c d e",
    "SADD s a",
    "SREM s nothing",
    "SREM s a",
    "SMOVE s t b",
    "SMOVE s t b",
    "SMOVE s s c",
    "SMOVE t s b",
    "SPOP s",
    "SPOP s 2",
    "SPOP s 0",
    "SPOP s 9",
    "SPOP s",
    "SADD s a",
    "SPOP s",
    "SADD s a b",
    "SADD t b c",
    "SINTERSTORE u s t",
    "SUNIONSTORE u s t",
    "SDIFFSTORE u s t",
    "SINTERSTORE u s nothing",
    "SINTERSTORE u s nothing",
    "ZADD z 1 a 2 b 3 c 4 d 5 e",
    "ZADD z 1 a",
    "ZADD z XX 9 nothing",
    "ZADD z INCR 1 a",
    "ZINCRBY z 1 a",
    "ZINCRBY z 0 a",
    "ZREM z nothing",
    "ZREM z a",
    "ZPOPMIN z",
    "ZPOPMAX z 0",
    "ZPOPMAX z 9",
    "ZADD z 1 a 2 b 3 c",
    "ZREMRANGEBYRANK z 0 0",
    "ZREMRANGEBYSCORE z 2 2",
    "ZREMRANGEBYSCORE z 9 9",
    "ZREMRANGEBYLEX z - +",
    "ZADD z 1 a 2 b 3 c",
    "ZUNIONSTORE y 1 z",
    "ZINTERSTORE y 1 z",
    "ZDIFFSTORE y 2 z z",
    "ZDIFFSTORE y 2 z z",
    "ZRANGESTORE y z 0 0",
    "ZRANGESTORE y z 5 9",
    "BZPOPMIN z 1",
    "ZMPOP 1 z MAX COUNT 5",
    "ZSCORE z nothing",
    "GEOADD places 13.4 52.5 Berlin",
    "GEOADD places 13.4 52.5 Berlin",
    "GEOSEARCHSTORE near places FROMMEMBER Berlin BYRADIUS 1 km",
    "GEORADIUS places 13.4 52.5 1 km STORE near",
    "GEORADIUS places 0 0 1 km STORE near",
    "XADD x 1-1 f v",
    "XADD x MAXLEN 1 2-1 f v",
    "XADD x 3-1 f v",
    "XTRIM x MAXLEN 5",
    "XTRIM x MAXLEN 1",
    "XDEL x 9-9",
    "XGROUP CREATE x g 0",
    "XGROUP CREATE x2 g 0 MKSTREAM",
    "XGROUP CREATECONSUMER x g c",
    "XGROUP CREATECONSUMER x g c",
    "XREADGROUP GROUP g d STREAMS x >",
    "XCLAIM x g e 0 3-1",
    "XAUTOCLAIM x g f 0 0",
    "XACK x g 3-1",
    "XGROUP SETID x g 0",
    "XGROUP DELCONSUMER x g c",
    "XGROUP DELCONSUMER x g nobody",
    "XGROUP DESTROY x g",
    "XGROUP DESTROY x g",
    "XSETID x 9-9",
    "XDEL x 3-1",
    "ZUNION 2 nothing z",
    "ZINTER 2 nothing never",
    "ZINTERCARD 2 nothing never",
    "ZDIFFSTORE nowhere 2 nothing never",
    "XINFO STREAM nothing",
    "XINFO GROUPS nothing",
    "XREADGROUP GROUP g c STREAMS nothing >",
    "XACK nothing g 1-1",
    "XPENDING nothing g",
    "BLPOP nothing never 0.01",
    "BLMOVE nothing never LEFT LEFT 0.01",
    "BZMPOP 0.01 2 nothing never MIN",
    "XREAD BLOCK 10 STREAMS nothing $",
    "MULTI",
    "SET tx 1",
    "LPUSH tx 1",
    "DEL tx",
    "EXEC",
    "SWAPDB 0 9",
    "SWAPDB 0 9",
    "FLUSHDB",
];

/// Says everything, and reads what was published of it.
fn events(served: &Served, classes: &str) -> Vec<Value> {
    let (mut client, mut listener) = (served.connect(), served.connect());
    let mut marker = served.connect();
    client.say("FLUSHALL");
    client.say(&format!("CONFIG SET notify-keyspace-events {classes}"));
    listener.say("PSUBSCRIBE *");
    let mut all = Vec::new();
    for line in LINES {
        let words: Vec<&[u8]> =
            line.split(' ').map(|one| one.trim_matches('|').as_bytes()).collect();
        client.ask(&words);
        all.push(text(line));
        all.extend(until_mark(&mut marker, &mut listener));
    }
    let script = b"redis.call('set', KEYS[1], 1) redis.call('publish', 'c', 'm') \
                   redis.call('del', KEYS[1])";
    client.ask(&[b"EVAL", script, b"1", b"k"]);
    all.extend(until_mark(&mut marker, &mut listener));
    client.ask(&[b"CONFIG", b"SET", b"notify-keyspace-events", b""]);
    all
}

/// What came until a message that is sent now.
fn until_mark(client: &mut Client, listener: &mut Client) -> Vec<Value> {
    client.say("PUBLISH mark m");
    let mut all = Vec::new();
    loop {
        let one = listener.read().unwrap();
        if one == Value::List(["pmessage", "*", "mark", "m"].map(text).into()) {
            return all;
        }
        all.push(one);
    }
}

#[test]
fn commands_publish_the_events_that_redis_publishes() {
    let directory = tempfile::tempdir().unwrap();
    let ours = server(directory.path(), "");
    let mine = events(&ours, "AKEn");
    let count = |event: &str| {
        let channel = text(&format!("__keyevent@0__:{event}"));
        mine.iter().filter(|one| matches!(one, Value::List(parts) if parts[2] == channel)).count()
    };
    assert_eq!((count("hdel"), count("set"), count("keymiss")), (2, 18, 0));
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let compare = |classes: &str| {
        let (mine, theirs) = (events(&ours, classes), events(&redis, classes));
        let mut line = Value::Nil;
        for (one, other) in mine.iter().zip(&theirs) {
            if matches!(one, Value::Text(_)) {
                line = one.clone();
            }
            assert_eq!(one, other, "{classes}, after {line:?}");
        }
        assert_eq!(mine.len(), theirs.len());
    };
    for classes in ["AKEn", "Em", "Kgh", "$lE", "Eszt", "AKE"] {
        compare(classes);
    }
}

#[test]
fn the_copy_of_a_primary_is_no_event_and_is_told_to_who_tracks_as_one_change() {
    let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let port = free_port();
    let primary = server(other.path(), &format!("port {port}\n"));
    let mut writer = primary.connect();
    (0..100).for_each(|n| drop(writer.say(&format!("SET key{n} {n}"))));
    let replica = server(directory.path(), "notify-keyspace-events KEAnm\n");
    let (mut client, mut listener) = (replica.connect(), replica.connect());
    let mut tracker = replica.connect();
    listener.say("PSUBSCRIBE *");
    tracker.say("HELLO 3");
    tracker.say("CLIENT TRACKING ON BCAST");
    client.say(&format!("REPLICAOF 127.0.0.1 {port}"));
    wait_for("the copy", || client.say("DBSIZE") == Value::Int(100));
    assert_eq!(until_mark(&mut client, &mut listener), []);
    let all = Value::List(vec![text("invalidate"), Value::Nil]);
    assert_eq!(tracker.read().unwrap(), all);
    writer.say("SET later 1");
    let later = Value::List(vec![text("invalidate"), Value::List(vec![text("later")])]);
    assert_eq!(tracker.read().unwrap(), later);
    wait_for("the events", || !until_mark(&mut client, &mut listener).is_empty());
}

#[test]
fn keys_that_expire_or_go_for_space_are_told_and_what_was_refused_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(directory.path(), "notify-keyspace-events Exen$l");
    let (mut client, mut listener) = (served.connect(), served.connect());
    listener.say("PSUBSCRIBE *");
    let told = |event: &str, key: &str| {
        Value::List(["pmessage", "*", &format!("__keyevent@0__:{event}"), key].map(text).into())
    };
    client.say("SET looked 1 PX 1");
    std::thread::sleep(std::time::Duration::from_millis(5));
    client.say("GET looked");
    let all = until_mark(&mut client, &mut listener);
    assert_eq!(all, ["new", "set", "expired"].map(|event| told(event, "looked")));
    // Nobody asks for this one again.
    client.say("SET alone 1 PX 1");
    assert_eq!(listener.read().unwrap(), told("new", "alone"));
    assert_eq!(listener.read().unwrap(), told("set", "alone"));
    assert_eq!(listener.read().unwrap(), told("expired", "alone"));
    client.say("CONFIG SET maxmemory-policy allkeys-random");
    client.say("SET goes 1");
    until_mark(&mut client, &mut listener);
    client.say("CONFIG SET maxmemory 1");
    // It goes although nobody says anything more.
    assert_eq!(listener.read().unwrap(), told("evicted", "goes"));
    client.say("CONFIG SET maxmemory 0 maxmemory-policy noeviction");
    // The first element finds space, and the last one does not.
    let large = vec![b'x'; 30 << 20];
    let words: [&[u8]; 6] = [b"MSET", b"one", &large, b"two", &large, b"three"];
    let reply = client.ask(&[&words[..], &[&large[..]]].concat());
    assert!(matches!(&reply, Value::Error(text) if text.starts_with("OOM")), "{reply:?}");
    assert_eq!(until_mark(&mut client, &mut listener), []);
    let wrong = client.say("CONFIG SET notify-keyspace-events KEq");
    assert!(
        matches!(&wrong, Value::Error(text) if text.contains("letters of Ag$lshzxeKEtmdn")),
        "{wrong:?}"
    );
    assert_eq!(
        client.say("CONFIG GET notify-keyspace-events"),
        Value::List(vec![text("notify-keyspace-events"), text("$lxenE")])
    );
}
