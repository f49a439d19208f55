//! MONITOR: what a real Redis tells of the same commands.

use std::io::Read;

use crate::replica::wait_for;
use crate::served::{Client, Served, Value, text};

const LINES: &[&str] = &[
    "SET a 1",
    "get a",
    "SELECT 3",
    "SET quoted \"\\\u{7}\u{8}\t\u{1}\u{e9}",
    "NOTHING at all",
    "GET",
    "INCR quoted",
    "AUTH secret",
    "AUTH somebody secret",
    "HELLO 2 AUTH somebody secret",
    "CONFIG GET maxmemory",
    "CONFIG HELP",
    "LATENCY LATEST",
    "LATENCY HELP",
    "ROLE",
    "LASTSAVE",
    "REPLCONF listening-port 1",
    "CLIENT GETNAME",
    "CLIENT LIST",
    "CLIENT KILL ID 999999",
    "CLIENT NO-EVICT off",
    "CLIENT PAUSE 0",
    "ACL WHOAMI",
    "ACL SETUSER new on >secret",
    "ACL GETUSER new",
    "ACL DELUSER new",
    "ACL HELP",
    "DBSIZE",
    "MULTI",
    "SET b 2",
    "LPUSH b 1",
    "EXEC",
    "MULTI",
    "SET",
    "EXEC",
    "EXEC",
    "MULTI",
    "DISCARD",
    "BLPOP waited 0.01",
    "EVAL redis.call('set',KEYS[1],ARGV[1])redis.pcall('get') 1 k v",
    "FUNCTION LOAD #!lua\u{20}name=l\nredis.register_function('f',function()return(1)end)",
    "FCALL f 0",
    "SELECT 0",
];

/// The lines that a monitor gets, without times and addresses.
fn told(served: &Served) -> Vec<String> {
    let (mut monitor, mut client) = (served.connect(), served.connect());
    assert_eq!(monitor.say("MONITOR"), Value::Text("OK".to_owned()));
    // A second time it gets no answer, and is told of everything once all the same.
    monitor.send(&[b"MONITOR"]).unwrap();
    for line in LINES {
        let words: Vec<&[u8]> = match line.strip_prefix("FUNCTION LOAD ") {
            Some(text) => vec![b"FUNCTION", b"LOAD", text.as_bytes()],
            None => line.split(' ').map(str::as_bytes).collect(),
        };
        client.ask(&words);
    }
    client.say("ECHO end");
    let mut all = Vec::new();
    while all.last().is_none_or(|line: &String| !line.contains("\"end\"")) {
        all.push(shown(&mut monitor));
    }
    all
}

fn shown(monitor: &mut Client) -> String {
    let Value::Text(line) = monitor.read().unwrap() else { panic!("no line") };
    let (_, rest) = line.split_once(" [").unwrap();
    let (place, words) = rest.split_once(']').unwrap();
    let (db, who) = place.split_once(' ').unwrap();
    let who = if who == "lua" { "lua" } else { who.split(':').next().unwrap() };
    format!("{db} {who}{words}")
}

#[test]
fn a_monitor_is_told_of_what_redis_tells_it() {
    let directory = tempfile::tempdir().unwrap();
    let ours = Served::start(directory.path());
    let mine = told(&ours);
    assert!(mine.iter().any(|line| line == "0 unix \"SET\" \"a\" \"1\""), "{mine:#?}");
    assert!(mine.iter().all(|line| !line.contains("secret")), "{mine:#?}");
    assert!(mine.iter().any(|line| line.starts_with("3 lua \"set\"")), "{mine:#?}");
    let Some(redis) = Served::redis(directory.path()) else {
        println!("not compared: redis-server is not installed");
        return;
    };
    assert_eq!(mine, told(&redis));
}

/// Lines for a monitor would stand in the middle of the stream.
#[test]
fn a_monitor_does_not_become_a_replica() {
    let directory = tempfile::tempdir().unwrap();
    let ours = Served::start(directory.path());
    let redis = Served::redis(directory.path());
    for served in std::iter::once(&ours).chain(&redis) {
        let (mut monitor, mut client) = (served.connect(), served.connect());
        monitor.say("MONITOR");
        for words in [&[&b"SYNC"[..]][..], &[b"PSYNC", b"?", b"-1"], &[b"PSYNC", b"?", b"1", b"x"]]
        {
            monitor.send(words).unwrap();
        }
        monitor.send(&[b"ECHO", b"answered"]).unwrap();
        assert_eq!(monitor.read().unwrap(), text("answered"));
        assert_eq!(shown(&mut monitor), "0 unix \"ECHO\" \"answered\"");
        let Value::Text(info) = client.say("INFO replication") else { panic!("no text") };
        assert!(info.contains("connected_slaves:0"), "{info}");
    }
}

/// What a replica gets until the word `last`.
fn streamed(replica: &mut Client) -> String {
    let mut stream = Vec::new();
    while !stream.windows(4).any(|four| four == b"last") {
        let mut some = [0; 4096];
        let read = replica.out.read(&mut some).unwrap();
        assert!(read > 0, "it was cut: {}", String::from_utf8_lossy(&stream));
        stream.extend(&some[..read]);
    }
    String::from_utf8_lossy(&stream).into_owned()
}

/// A follower takes nothing but the stream, whatever else it has asked for.
#[test]
fn no_message_stands_in_the_stream_of_a_replica() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let (mut replica, mut client) = (served.connect(), served.connect());
    replica.send(&[b"SYNC"]).unwrap();
    client.say("SET key value");
    replica.send(&[b"SUBSCRIBE", b"channel"]).unwrap();
    let joined = |client: &mut Client| {
        let Value::List(all) = client.say("PUBSUB NUMSUB channel") else { panic!("no list") };
        all[1] == Value::Int(1)
    };
    wait_for("it is subscribed", || joined(&mut client));
    client.say("PUBLISH channel x");
    client.say("SET last one");
    let said = streamed(&mut replica);
    assert!(said.contains("PUBLISH") && !said.contains("\r\nmessage\r\n"), "{said}");
}

/// The most memory that a process has taken, in MiB.
fn most_memory_mib(served: &Served) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", served.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// Quoted, these bytes are four times as many, and more than may wait for a monitor.
#[test]
fn a_line_that_no_monitor_can_take_is_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let (mut client, long) = (served.connect(), vec![0xff; 64 << 20]);
    assert_eq!(client.ask(&[b"PUBLISH", b"nobody", &long]), Value::Int(0));
    let before = most_memory_mib(&served);
    let mut monitor = served.connect();
    monitor.say("MONITOR");
    assert_eq!(client.ask(&[b"PUBLISH", b"nobody", &long]), Value::Int(0));
    let more = most_memory_mib(&served) - before;
    assert!(more < 64, "{more} MiB more than the {before} MiB that the command takes itself");
    assert!(monitor.read().is_err(), "it is not cut");
}

/// Nor does a reply that it waits for: of a list, of time that is over, of replicas.
#[test]
fn no_late_reply_stands_in_the_stream_of_a_replica() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let (mut replica, mut client) = (served.connect(), served.connect());
    let blocked = |client: &mut Client, clients: u32| {
        wait_for("it waits, or waits no more", || {
            let Value::Text(info) = client.say("INFO clients") else { panic!("no text") };
            info.contains(&format!("blocked_clients:{clients}\r\n"))
        });
    };
    replica.send(&[b"SYNC"]).unwrap();
    client.say("SET key value");
    replica.send(&[b"BLPOP", b"list", b"0"]).unwrap();
    blocked(&mut client, 1);
    client.say("RPUSH list handed");
    blocked(&mut client, 0);
    for line in [&[&b"BLPOP"[..], b"list", b"0.2"][..], &[b"WAIT", b"99", b"200"]] {
        replica.send(line).unwrap();
        blocked(&mut client, 1);
        blocked(&mut client, 0);
    }
    client.say("SET last one");
    let said = streamed(&mut replica);
    for reply in ["*2\r\n$4\r\nlist\r\n", "*-1\r\n", "\r\n:"] {
        assert!(!said.contains(reply), "{reply:?} in {said:?}");
    }
}

#[test]
fn a_monitor_that_resets_or_is_in_a_transaction_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let (mut monitor, mut client) = (served.connect(), served.connect());
    monitor.say("MONITOR");
    let Value::Text(list) = client.say("CLIENT LIST") else { panic!("no text") };
    assert!(list.contains(" flags=OU "), "{list}");
    client.say("GET a");
    assert_eq!(shown(&mut monitor), "0 unix \"GET\" \"a\"");
    monitor.say("RESET");
    client.say("SET a 1");
    assert_eq!(monitor.say("PING"), Value::Text("PONG".to_owned()));
    for line in ["MULTI", "MONITOR"] {
        client.say(line);
    }
    let Value::List(all) = client.say("EXEC") else { panic!("no list") };
    assert!(matches!(&all[..], [Value::Error(said)] if said.contains("DENY BLOCKING")), "{all:?}");
}
