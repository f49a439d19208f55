//! CLIENT and what it says of connections: as in a real Redis, and the limit of their memory.

use std::io::Read;

use crate::replica::{info, server, wait_for};
use crate::served::{Client, Served, Value, text};

const LINES: &[&str] = &[
    "CLIENT KILL ID x",
    "CLIENT KILL ID 0",
    "CLIENT KILL ID -1",
    "CLIENT KILL ID 999999",
    "CLIENT KILL ID 10 x",
    "CLIENT KILL TYPE x",
    "CLIENT KILL USER nobody",
    "CLIENT KILL SKIPME maybe",
    "CLIENT KILL LADDR 1.2.3.4:5",
    "CLIENT KILL ADDR 1.2.3.4:5",
    "CLIENT KILL 1.2.3.4:5",
    "CLIENT KILL USER other",
    "CLIENT NO-EVICT maybe",
    "CLIENT NO-EVICT on",
    "CLIENT NO-EVICT off",
    "CONFIG SET maxmemory 100mb maxmemory 200mb",
    "CONFIG SET maxmemory 50mb maxmemory-clients 200%",
    "CONFIG GET maxmemory",
    "CONFIG SET maxmemory-clients 5%",
    "CONFIG GET maxmemory-clients",
    "CONFIG SET maxmemory-clients 0",
    "CONFIG SET daemonize yes",
    "CONFIG SET aclfile ",
    "CONFIG SET aclfile x maxmemory y",
    "CONFIG SET tcp-backlog 511",
    "CONFIG SET unixsocketperm 0",
    "CONFIG SET replicaof ",
    "CONFIG SET slaveof ",
    "CONFIG SET maxmemory x nothing y",
    "CONFIG SET maxmemory x maxmemory y",
    "CONFIG SET nothing 1 aclfile ",
    "CONFIG SET lua-time-limit 5000 lua-time-limit 5000",
    "CONFIG SET lua-time-limit 5000 busy-reply-threshold 5000",
    "CONFIG SET maxmemory-clients 101%",
    "CONFIG SET maxmemory-clients 7%",
    "CONFIG SET maxmemory-clients 0%",
    "CONFIG GET maxmemory-clients",
    "CLIENT NO-TOUCH on",
    "CLIENT KILL ID 999999 ID 0",
    "CLIENT KILL TYPE pubsub TYPE x",
    "READONLY",
    "READWRITE",
    "ASKING",
    "READONLY x",
    "CLUSTER INFO",
    "CLUSTER NOTHING",
    "CLUSTER RESET x y z",
];

fn said(served: &Served) -> Vec<Value> {
    let mut client = served.connect();
    client.say("ACL SETUSER other on nopass +@all");
    LINES.iter().map(|line| client.say(line)).collect()
}

#[test]
fn clients_are_chosen_and_refused_as_redis_does_it() {
    let directory = tempfile::tempdir().unwrap();
    let ours = Served::start(directory.path());
    let mine = said(&ours);
    let Some(redis) = Served::redis(directory.path()) else {
        println!("not compared: redis-server is not installed");
        return;
    };
    for ((line, one), other) in LINES.iter().zip(&mine).zip(said(&redis)) {
        assert_eq!(*one, other, "{line}");
    }
    // Whoever is another user goes, and nobody else.
    for served in [&ours, &redis] {
        let (mut client, mut goes, mut stays) =
            (served.connect(), served.connect(), served.connect());
        assert_eq!(stays.say("PING"), text("PONG"));
        goes.say("AUTH other x");
        assert_eq!(client.say("CLIENT KILL USER other"), Value::Int(1));
        let gone = |goes: &mut Client| goes.send(&[b"PING"]).is_err() || goes.read().is_err();
        wait_for("the connection ends", || gone(&mut goes));
        assert_eq!(client.say("PING"), text("PONG"));
        assert_eq!(stays.say("PING"), text("PONG"));
    }
}

#[test]
fn the_last_command_of_a_client_is_listed_with_its_subcommand() {
    let directory = tempfile::tempdir().unwrap();
    let ours = Served::start(directory.path());
    let redis = Served::redis(directory.path());
    for served in std::iter::once(&ours).chain(&redis) {
        let (mut client, mut other) = (served.connect(), served.connect());
        let Value::Int(id) = client.say("CLIENT ID") else { panic!("no number") };
        let mut last = || {
            let Value::Text(list) = other.say("CLIENT LIST") else { panic!("no text") };
            let start = format!("id={id} ");
            let line = list.lines().find(|line| line.starts_with(&start)).unwrap();
            line.split_once(" cmd=").unwrap().1.split(' ').next().unwrap().to_owned()
        };
        assert_eq!(last(), "client|id");
        for (line, expected) in [
            ("GET a", "get"),
            ("CONFIG GET maxmemory", "config|get"),
            ("COMMAND", "command"),
            ("OBJECT HELP", "object|help"),
            ("SET a 1", "set"),
        ] {
            client.say(line);
            assert_eq!(last(), expected, "{line}");
        }
    }
}

const REPLIED_OR_NOT: &[&str] = &[
    "CLIENT REPLY OFF",
    "PING",
    "UNSUBSCRIBE",
    "PUNSUBSCRIBE",
    "SUBSCRIBE",
    "SUBSCRIBE a",
    "UNSUBSCRIBE",
    "CLIENT REPLY ON",
    "CLIENT REPLY SKIP",
    "CLIENT REPLY ON",
    "CLIENT REPLY SKIP",
    "PING",
    "PING",
    "CLIENT REPLY SKIP",
    "CLIENT REPLY SKIP",
    "PING",
    "CLIENT REPLY SKIP",
    "UNSUBSCRIBE",
    "CLIENT REPLY OFF",
    "CLIENT REPLY SKIP",
    "PING",
    "CLIENT REPLY ON",
    "CLIENT REPLY OFF",
    "MULTI",
    "SUBSCRIBE b",
    "PING",
    "UNSUBSCRIBE",
    "EXEC",
    "MULTI",
    "NOTHING",
    "EXEC",
    "MULTI",
    "EXEC",
    "CLIENT REPLY ON",
    "MULTI",
    "PING",
    "CLIENT REPLY OFF",
    "SUBSCRIBE c",
    "PING",
    "UNSUBSCRIBE",
    "EXEC",
    "CLIENT REPLY ON",
    "MULTI",
    "CLIENT REPLY SKIP",
    "PING",
    "EXEC",
    "PING",
    "ECHO heard",
    "CLIENT REPLY SKIP",
    "EXEC",
];

#[test]
fn replies_that_nobody_wants_are_not_sent_and_messages_are() {
    let directory = tempfile::tempdir().unwrap();
    let ours = Served::start(directory.path());
    let redis = Served::redis(directory.path());
    let told = |served: &Served| {
        let mut client = served.connect();
        for line in REPLIED_OR_NOT {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            client.send(&words).unwrap();
        }
        client.send(&[b"ECHO", b"end"]).unwrap();
        let mut all = Vec::new();
        // An EXEC says how many replies there are before it is told that nobody wants them: so the
        // bytes are compared.
        while !all.ends_with(b"end\r\n") {
            let mut some = [0; 4096];
            let read = client.out.read(&mut some).unwrap();
            all.extend(&some[..read]);
        }
        String::from_utf8(all).unwrap()
    };
    let mine = told(&ours);
    assert_eq!(mine.matches("+OK").count(), 7, "{mine:?}");
    assert_eq!(mine.matches("subscribe\r\n$1\r\nb\r\n").count(), 2, "{mine:?}");
    match redis {
        Some(redis) => assert_eq!(mine, told(&redis)),
        None => println!("not compared: redis-server is not installed"),
    }
}

#[test]
fn a_client_that_tracks_for_itself_is_told_where_it_subscribes() {
    let directory = tempfile::tempdir().unwrap();
    let ours = Served::start(directory.path());
    let redis = Served::redis(directory.path());
    for served in std::iter::once(&ours).chain(&redis) {
        let (mut client, mut writer) = (served.connect(), served.connect());
        let Value::Int(id) = client.say("CLIENT ID") else { panic!("no number") };
        client.say("GET key");
        client.say(&format!("CLIENT TRACKING on BCAST REDIRECT {id}"));
        client.say("SUBSCRIBE __redis__:invalidate");
        writer.say("SET key 1");
        let keys = Value::List(vec![text("key")]);
        let told = Value::List(vec![text("message"), text("__redis__:invalidate"), keys]);
        assert_eq!(client.read().unwrap(), told);
    }
}

fn number(value: Value) -> i64 {
    let Value::Int(number) = value else { panic!("no number: {value:?}") };
    number
}

fn is_gone(client: &mut Client) -> bool {
    client.send(&[b"PING"]).is_err() || client.read().is_err()
}

/// Names are bytes: two that are no text look alike when they are shown.
#[test]
fn the_clients_of_a_user_are_those_whose_name_has_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let ours = Served::start(directory.path());
    let redis = Served::redis(directory.path());
    for served in std::iter::once(&ours).chain(&redis) {
        let (mut client, mut goes, mut stays) =
            (served.connect(), served.connect(), served.connect());
        for (name, one) in [(b"\xff", &mut goes), (b"\xfe", &mut stays)] {
            client.ask(&[b"ACL", b"SETUSER", name, b"on", b"nopass", b"+@all"]);
            assert_eq!(one.ask(&[b"AUTH", name, b"x"]), text("OK"));
        }
        assert_eq!(client.ask(&[b"CLIENT", b"KILL", b"USER", b"\xff"]), Value::Int(1));
        wait_for("it goes", || is_gone(&mut goes));
        assert_eq!(stays.say("PING"), text("PONG"));
    }
}

#[test]
fn a_link_to_the_primary_is_cut_only_where_no_client_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.connect();
    // Nobody is there: it tries again and again.
    client.say("REPLICAOF 127.0.0.1 1");
    for also in ["ADDR 1.2.3.4:5", "LADDR 1.2.3.4:5", "USER default", "ID 999999"] {
        let said = client.say(&format!("CLIENT KILL TYPE master {also}"));
        assert_eq!(said, Value::Int(0), "{also}");
    }
    assert_eq!(client.say("CLIENT KILL TYPE master"), Value::Int(1));
    let Value::Text(list) = client.say("CLIENT LIST ID 999999 x 999998") else { panic!("no text") };
    assert_eq!(list, "");
}

#[test]
fn of_an_option_of_client_kill_that_is_said_twice_the_last_one_counts() {
    let directory = tempfile::tempdir().unwrap();
    let ours = Served::start(directory.path());
    let redis = Served::redis(directory.path());
    for served in std::iter::once(&ours).chain(&redis) {
        let (mut client, mut stays, mut goes) =
            (served.connect(), served.connect(), served.connect());
        let [first, last] = [&mut stays, &mut goes].map(|one| number(one.say("CLIENT ID")));
        let said = client.say(&format!("CLIENT KILL ID {first} ID {last}"));
        assert_eq!(said, Value::Int(1));
        wait_for("it goes", || is_gone(&mut goes));
        assert_eq!(stays.say("PING"), text("PONG"));
        let said = client.say(&format!("CLIENT KILL ID {first} TYPE normal TYPE pubsub"));
        assert_eq!((said, stays.say("PING")), (Value::Int(0), text("PONG")));
    }
}

#[test]
fn a_transaction_is_about_the_clients_that_are_there_when_it_is_executed() {
    let directory = tempfile::tempdir().unwrap();
    let ours = Served::start(directory.path());
    let redis = Served::redis(directory.path());
    for served in std::iter::once(&ours).chain(&redis) {
        let mut client = served.connect();
        for line in ["MULTI", "CLIENT SETNAME later", "CLIENT LIST", "CLIENT KILL TYPE normal"] {
            client.say(line);
        }
        let mut other = served.connect();
        let id = number(other.say("CLIENT ID"));
        let Value::List(all) = client.say("EXEC") else { panic!("no list") };
        let Value::Text(list) = &all[1] else { panic!("{all:?}") };
        assert!(list.contains(&format!("id={id} ")) && list.contains(" name=later "), "{list}");
        assert_eq!(all[2], Value::Int(1));
        wait_for("it goes", || is_gone(&mut other));
    }
}

#[test]
fn what_a_client_subscribes_to_counts_while_it_does() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(directory.path(), "maxmemory-clients 16mb\n");
    let (mut client, mut goes, mut stays) = (served.connect(), served.connect(), served.connect());
    let names = |of: &mut Client, command: &[u8], from: u32| -> std::io::Result<()> {
        let names: Vec<Vec<u8>> =
            (from..from + 100).map(|n| format!("{n:01000}").into_bytes()).collect();
        let mut words = vec![command];
        words.extend(names.iter().map(Vec::as_slice));
        of.send(&words)?;
        (0..100).try_for_each(|_| of.read().map(drop))
    };
    // 3 MB at a time, and never more.
    for _ in 0..8 {
        for command in [&b"SUBSCRIBE"[..], b"UNSUBSCRIBE", b"PSUBSCRIBE", b"PUNSUBSCRIBE"] {
            (0..30).for_each(|n| names(&mut stays, command, n * 100).unwrap());
        }
    }
    assert_eq!(info(&mut client, "evicted_clients"), "0");
    // 10 MB of each, which is too much together.
    let gone = (0..200).any(|n| {
        let command = if n % 2 == 0 { &b"SUBSCRIBE"[..] } else { b"PSUBSCRIBE" };
        names(&mut goes, command, n * 100).is_err()
    });
    assert!(gone || is_gone(&mut goes));
    wait_for("it is counted", || info(&mut client, "evicted_clients") == "1");
    assert_eq!(stays.say("PING"), text("PONG"));
}

#[test]
fn the_largest_clients_go_when_all_take_too_much_and_those_stay_that_said_so() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(directory.path(), "maxmemory-clients 28mb\n");
    let (mut client, mut small, mut stays) = (served.connect(), served.connect(), served.connect());
    let queue = |client: &mut Client, bytes: usize| {
        client.send(&[b"SET", b"key", &vec![b'x'; bytes]])?;
        client.read()
    };
    stays.say("CLIENT NO-EVICT on");
    stays.say("MULTI");
    for _ in 0..4 {
        assert_eq!(queue(&mut stays, 4 << 20).unwrap(), text("QUEUED"));
    }
    small.say("MULTI");
    assert_eq!(queue(&mut small, 1 << 20).unwrap(), text("QUEUED"));
    assert_eq!(info(&mut client, "evicted_clients"), "0");
    // It goes before it has as much as the one that stays. A reply may come before that.
    let mut second = served.connect();
    second.say("MULTI");
    let gone = (0..6).any(|_| queue(&mut second, 4 << 20).is_err());
    assert!(gone || second.send(&[b"PING"]).is_err() || second.read().is_err());
    wait_for("it is counted", || info(&mut client, "evicted_clients") == "1");
    assert_eq!(small.say("DISCARD"), text("OK"));
    assert_eq!(stays.say("DISCARD"), text("OK"));
}
