//! The server as clients see it: pipelines, transactions, messages, limits, hostile bytes.

use crate::served;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::served::{Served, TIER, Value, assert_sound, request, text};

fn server(directory: &tempfile::TempDir, conf: &str) -> Served {
    std::fs::write(directory.path().join("conf"), conf).unwrap();
    Served::start(directory.path())
}

fn error(value: &Value) -> &str {
    match value {
        Value::Error(text) => text,
        other => panic!("no error: {other:?}"),
    }
}

#[test]
fn a_pipeline_is_answered_in_order_and_survives_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let mut served = server(&directory, "");
    let mut client = served.connect();
    let mut bytes = Vec::new();
    for n in 0..5000 {
        bytes.extend(request(&[b"SET", format!("key:{n}").as_bytes(), b"value"]));
        bytes.extend(request(&[b"INCR", b"count"]));
    }
    client.out.write_all(&bytes).unwrap();
    for n in 1..=5000 {
        assert_eq!(client.read().unwrap(), text("OK"));
        assert_eq!(client.read().unwrap(), Value::Int(n));
    }
    let Value::Text(waits) = client.say("INFO waits") else { panic!("no text") };
    let commits = waits.lines().find_map(|line| {
        let counted = line.strip_prefix("wait_tier_commit:class=Commit,waits=")?;
        counted.split(',').next()?.parse::<u64>().ok()
    });
    // Ten thousand commands share far fewer fences.
    assert!(commits.is_some_and(|commits| (1..5000).contains(&commits)), "{waits}");
    served.kill();
    assert_sound(directory.path());
    let served = server(&directory, "");
    let mut client = served.connect();
    assert_eq!(client.say("DBSIZE"), Value::Int(5001));
    assert_eq!(client.say("GET count"), text("5000"));
}

/// Requests are read before the ones ahead of them are executed: what those change must count all
/// the same.
#[test]
fn a_pipeline_means_the_same_in_one_part_and_request_by_request() {
    let long: Vec<&[u8]> = std::iter::repeat_n(&b"k"[..], 11).collect();
    // The head of a request that is not whole, as only a client may send it that is known.
    let part = b"*1000\r\n$4\r\nMGET\r\n$20000\r\nk".to_vec();
    let pipelines: Vec<Vec<Vec<u8>>> = vec![
        // Lines among arrays, another database, what a script and a transaction wrote.
        vec![
            request(&[b"SET", b"a", b"1"]),
            b"SET b 2\r\n".to_vec(),
            b"\r\n".to_vec(),
            request(&[b"SELECT", b"1"]),
            request(&[b"GET", b"a"]),
            request(&[b"SELECT", b"0"]),
            request(&[b"EVAL", b"return redis.call('incr', KEYS[1])", b"1", b"a"]),
            request(&[b"MULTI"]),
            request(&[b"INCRBY", b"b", b"5"]),
            request(&[b"EXEC"]),
            request(&[b"MGET", b"a", b"b"]),
        ],
        // A password that is no longer given: the limits are those of a stranger again.
        vec![
            request(&[b"AUTH", b"secret"]),
            request(&[b"SET", b"a", b"1"]),
            request(&[&[&b"MGET"[..]], &long[..]].concat()),
            request(&[b"RESET"]),
            request(&[b"GET", b"a"]),
            request(&[&[&b"MGET"[..]], &long[..]].concat()),
            request(&[b"PING"]),
        ],
        vec![request(&[b"AUTH", b"secret"]), request(&[b"RESET"]), part],
        // What is behind the end, or behind what is no request, is nobody's.
        vec![
            request(&[b"AUTH", b"secret"]),
            request(&[b"INCR", b"n"]),
            request(&[b"QUIT"]),
            request(&[b"INCR", b"n"]),
        ],
        vec![
            request(&[b"AUTH", b"secret"]),
            request(&[b"INCR", b"n"]),
            b"*1\r\n$x\r\n".to_vec(),
            request(&[b"INCR", b"n"]),
        ],
    ];
    for (number, pipeline) in pipelines.iter().enumerate() {
        let mut answers = Vec::new();
        for together in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let conf = if number == 0 { "" } else { "requirepass secret\n" };
            let served = server(&directory, conf);
            let mut client = served.connect();
            let mut answer = Vec::new();
            if together {
                client.out.write_all(&pipeline.concat()).unwrap();
                client.out.shutdown(std::net::Shutdown::Write).unwrap();
                client.out.read_to_end(&mut answer).unwrap();
            } else {
                for one in pipeline {
                    // It may be gone already.
                    let _ = client.out.write_all(one);
                    std::thread::sleep(Duration::from_millis(20));
                }
                let _ = client.out.shutdown(std::net::Shutdown::Write);
                let _ = client.out.read_to_end(&mut answer);
            }
            answers.push(String::from_utf8(answer).unwrap());
            let mut other = served.connect();
            other.say("AUTH secret");
            answers.push(format!("{:?}", served::contents(&mut other)));
        }
        assert_eq!(answers[..2], answers[2..], "pipeline {number}");
        assert!(answers[0].len() > 10, "pipeline {number}: {}", answers[0]);
    }
}

#[test]
fn an_exec_fails_when_a_watched_key_has_changed_and_only_then() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(&directory, "");
    let (mut one, mut other) = (served.connect(), served.connect());
    for (change, fails) in [
        ("SET a 1", true),
        ("DEL a", true),
        ("SET b 1", false),
        ("GET a", false),
        ("EXPIRE a 100", true),
        ("FLUSHALL", true),
    ] {
        other.say("SET a 0");
        one.say("WATCH a");
        other.say(change);
        one.say("MULTI");
        assert_eq!(one.say("SET c 1"), text("QUEUED"));
        let done = one.say("EXEC");
        assert_eq!(done == Value::Nil, fails, "{change}: {done:?}");
    }
    one.say("WATCH a");
    other.say("SET a 2");
    one.say("UNWATCH");
    one.say("MULTI");
    assert_eq!(one.say("EXEC"), Value::List(vec![]));
    // A key that expires between WATCH and EXEC has changed.
    other.say("SET a 1 PX 30");
    one.say("WATCH a");
    std::thread::sleep(Duration::from_millis(50));
    one.say("MULTI");
    assert_eq!(one.say("EXEC"), Value::Nil);
    one.say("MULTI");
    one.say("NOSUCH");
    assert!(error(&one.say("EXEC")).starts_with("EXECABORT"));
}

#[test]
fn messages_reach_the_subscribers_of_channels_and_patterns() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(&directory, "");
    let (mut one, mut other, mut sender) = (served.connect(), served.connect(), served.connect());
    one.say("SUBSCRIBE news");
    other.say("HELLO 3");
    other.say("PSUBSCRIBE n*");
    assert!(error(&one.say("GET a")).contains("only (P|S)SUBSCRIBE"));
    assert_eq!(other.say("GET a"), Value::Nil);
    assert_eq!(sender.say("PUBLISH news hello"), Value::Int(2));
    assert_eq!(one.read().unwrap(), Value::List(["message", "news", "hello"].map(text).to_vec()));
    let expected = ["pmessage", "n*", "news", "hello"].map(text).to_vec();
    assert_eq!(other.read().unwrap(), Value::List(expected));
    assert_eq!(sender.say("PUBSUB NUMPAT"), Value::Int(1));
    drop(one);
    while sender.say("PUBLISH news again") != Value::Int(1) {}
}

#[test]
fn a_key_that_expires_is_gone_also_when_nobody_asks_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut served = server(&directory, "");
    let mut client = served.connect();
    for n in 0..200 {
        client.say(&format!("SET k{n} v PX 300"));
    }
    client.say("SET stays v PX 3600000");
    assert_eq!(client.say("DBSIZE"), Value::Int(201));
    served.kill();
    let served = server(&directory, "");
    let mut client = served.connect();
    let began = std::time::Instant::now();
    while client.say("DBSIZE") != Value::Int(1) {
        assert!(began.elapsed() < Duration::from_secs(20), "they are still there");
        std::thread::sleep(Duration::from_millis(20));
    }
    let Value::Int(left) = client.say("PTTL stays") else { panic!("no number") };
    assert!((3_500_000..=3_600_000).contains(&left), "{left}");
}

#[test]
fn a_scan_finds_every_key_that_is_there_all_the_time_while_others_come() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(&directory, "");
    let mut client = served.connect();
    for n in 0..500 {
        client.say(&format!("SET old:{n} v"));
    }
    let (mut cursor, mut found, mut new) = ("0".to_owned(), std::collections::BTreeSet::new(), 0);
    loop {
        let Value::List(mut reply) = client.say(&format!("SCAN {cursor} COUNT 7")) else {
            panic!()
        };
        let Some(Value::List(keys)) = reply.pop() else { panic!("no keys") };
        let Some(Value::Text(next)) = reply.pop() else { panic!("no cursor") };
        found.extend(keys);
        if next == "0" {
            break;
        }
        cursor = next;
        for _ in 0..20 {
            client.say(&format!("SET new:{new} v"));
            new += 1;
        }
    }
    for n in 0..500 {
        assert!(found.contains(&text(&format!("old:{n}"))), "old:{n} is missing");
    }
}

#[test]
fn a_full_tier_refuses_writes_loses_nothing_and_takes_them_again_after_a_flush() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(&directory, "");
    let mut client = served.connect();
    let value = "x".repeat(100_000);
    let mut kept = 0;
    loop {
        let said = client.say(&format!("SET k{kept} {value}"));
        if said != text("OK") {
            assert!(error(&said).starts_with("OOM "), "{said:?}");
            break;
        }
        kept += 1;
        assert!(kept < 2 * TIER / 100_000, "it is never full");
    }
    assert_eq!(client.say("DBSIZE"), Value::Int(kept as i64));
    for key in [0, kept / 2, kept - 1] {
        assert_eq!(client.say(&format!("GET k{key}")), text(&value));
    }
    // Half of an MSET has room; it does not happen.
    client.say("DEL k0");
    assert!(error(&client.say(&format!("MSET a {value} b {value} c {value}"))).starts_with("OOM "));
    assert_eq!(client.say("EXISTS a b c"), Value::Int(0));
    assert_eq!(client.say("FLUSHALL"), text("OK"));
    assert_eq!(client.say(&format!("MSET a {value} b {value} c {value}")), text("OK"));
    assert_eq!(client.say("DBSIZE"), Value::Int(3));
    drop((client, served));
    assert_sound(directory.path());
}

/// Commands that are sent with random arguments, some more often.
const COMMANDS: &[&str] = &[
    "SET",
    "GETRANGE",
    "SETBIT",
    "BITPOS",
    "SCAN",
    "EXPIRE",
    "COPY",
    "OBJECT",
    "CLIENT",
    "CONFIG",
    "COMMAND",
    "HELLO",
    "MEMORY",
    "PUBSUB",
    "SETRANGE",
    "LCS",
    "GETEX",
    "BITOP",
    "SWAPDB",
    "RPUSH",
    "SADD",
    "ZADD",
    "HSET",
    "LRANGE",
    "LPOP",
    "LPOS",
    "LTRIM",
    "LSET",
    "LREM",
    "LINSERT",
    "LMPOP",
    "SPOP",
    "SRANDMEMBER",
    "HRANDFIELD",
    "ZRANDMEMBER",
    "SINTERCARD",
    "SUNIONSTORE",
    "SSCAN",
    "ZRANGE",
    "ZADD",
    "ZCOUNT",
    "ZPOPMIN",
    "ZMPOP",
    "ZUNION",
    "ZINTERSTORE",
    "ZRANGESTORE",
    "ZREMRANGEBYRANK",
    "ZSCAN",
    "SORT",
    "BLPOP",
    "BLMPOP",
    "BZPOPMAX",
    "RENAME",
    "DEL",
];

const ARGUMENTS: &[&[u8]] = &[
    b"-1",
    b"0",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"",
    b"\xff\r\n",
    b"getkeys",
    b"set",
    b"get",
    b"*",
    b"kill",
    b"usage",
];

#[test]
fn what_is_not_in_the_protocol_ends_its_connection_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let mut served = server(&directory, "proto-max-bulk-len 1mb\nmaxclients 60\n");
    let mut good = served.connect();
    good.say("SET a 1");
    let mut random = fastrand::Rng::with_seed(11);
    let mut hostile: Vec<Vec<u8>> = vec![
        b"*1000000000\r\n".to_vec(),
        b"*1\r\n$2000000\r\n".to_vec(),
        b"*1\r\n$-5\r\n".to_vec(),
        b"*-9223372036854775808\r\n".to_vec(),
        vec![b'x'; 100_000],
        vec![0; 70_000],
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048576\r\n".to_vec(),
    ];
    for _ in 0..400 {
        let len = random.usize(1..200);
        let word = |random: &mut fastrand::Rng| {
            *random.choice(b"*$0123456789-\r\n\r\n\0\xffabcSETGETEXECMULTI\"' \\x").unwrap()
        };
        hostile.push((0..len).map(|_| word(&mut random)).collect());
    }
    // Real commands with random arguments.
    for _ in 0..3000 {
        let mut words: Vec<&[u8]> = vec![random.choice(COMMANDS).unwrap().as_bytes()];
        for _ in 0..random.usize(..6) {
            words.push(random.choice(ARGUMENTS).unwrap());
        }
        hostile.push(request(&words));
    }
    let counts = [i64::MIN, i64::MIN + 1, -(1 << 40), -(1 << 30), i64::MAX / 2, i64::MAX];
    for (make, ask) in [
        ("SADD some a", "SRANDMEMBER some"),
        ("HSET pairs a b", "HRANDFIELD pairs"),
        ("ZADD scores 1 a", "ZRANDMEMBER scores"),
    ] {
        good.say(make);
        for count in counts {
            for more in ["", " WITHVALUES", " WITHSCORES"] {
                hostile.push(format!("{ask} {count}{more}\r\n").into_bytes());
            }
        }
    }
    for bytes in &hostile {
        let mut bad = served.connect();
        // The server may close it in the middle.
        let _ = bad.out.write_all(bytes);
        // One that waits for a key is ended by the end of its connection.
        let _ = bad.out.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = bad.out.read_to_end(&mut answer);
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]);
        assert!(answer.len() < 1 << 20, "{} bytes for {shown:?}", answer.len());
        assert!(served.is_running(), "it ended after {:?}", String::from_utf8_lossy(bytes));
    }
    let mut good = served.connect();
    assert_eq!(good.say("PING"), text("PONG"));
    drop(good);
    served.kill();
    assert_sound(directory.path());
}

#[test]
fn limits_of_clients_passwords_and_settings_are_those_of_redis() {
    let directory = tempfile::tempdir().unwrap();
    let mut served = server(&directory, "requirepass secret\nmaxclients 3\n");
    let mut client = served.connect();
    assert!(error(&client.say("GET a")).starts_with("NOAUTH"));
    assert!(error(&client.say("AUTH wrong")).starts_with("WRONGPASS"));
    client.send(&[b"SET".as_slice(); 11]).unwrap();
    assert!(error(&client.read().unwrap()).contains("unauthenticated multibulk length"));
    let mut client = served.connect();
    assert_eq!(client.say("AUTH secret"), text("OK"));
    assert_eq!(client.say("GET a"), Value::Nil);
    let unknown = client.say("NOSUCH a b");
    assert_eq!(error(&unknown), "ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' ");
    assert_eq!(error(&client.say("GET")), "ERR wrong number of arguments for 'get' command");
    assert_eq!(
        client.say("CONFIG GET appendfsync"),
        Value::List(vec![text("appendfsync"), text("always")])
    );
    assert!(error(&client.say("CONFIG SET appendfsync no")).contains("every write is durable"));
    let others: Vec<_> = (0..2).map(|_| served.connect()).collect();
    let mut one_too_many = served.connect();
    assert_eq!(error(&one_too_many.read().unwrap()), "ERR max number of clients reached");
    drop(others);
    client.send(&[b"SHUTDOWN"]).unwrap();
    assert!(served.ends());
    assert!(!served.socket.exists(), "the socket stays");
}

#[test]
fn a_value_of_many_megabytes_comes_back_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let mut served = server(&directory, "");
    let mut client = served.connect();
    let value = "0123456789abcdef".repeat(1 << 20);
    assert_eq!(client.ask(&[b"SET", b"large", value.as_bytes()]), text("OK"));
    assert_eq!(client.say("APPEND large end"), Value::Int((16 << 20) + 3));
    served.kill();
    let served = server(&directory, "");
    let mut client = served.connect();
    assert_eq!(client.say("GET large"), text(&format!("{value}end")));
    assert_eq!(client.say("GETRANGE large -5 -1"), text("efend"));
}

/// The most memory that the server ever had, in bytes.
fn peak(served: &Served) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", served.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn a_client_that_gave_no_password_and_reads_no_reply_is_cut() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(&directory, "requirepass secret\n");
    let mut client = served.connect();
    let lines = b"GET a\r\n".repeat(10_000);
    // Each of these is answered by 36 bytes.
    let sent = (0..600).take_while(|_| client.out.write_all(&lines).is_ok()).count();
    assert!(sent < 100, "{sent} parts were taken, and their replies kept");
    assert!(peak(&served) < (TIER + (64 << 20)), "{}", peak(&served));
}

#[test]
fn replies_and_messages_beyond_the_limits_are_not_collected() {
    let directory = tempfile::tempdir().unwrap();
    let conf = "client-output-buffer-limit normal 1mb 0 0 pubsub 1mb 0 0\n";
    let served = server(&directory, conf);
    let mut client = served.connect();
    let value = vec![b'v'; 512 << 10];
    client.ask(&[b"SET", b"big", &value]);
    let before = peak(&served);
    client.out.write_all(&request(&[b"GET", b"big"]).repeat(2000)).unwrap();
    let mut all = Vec::new();
    // It is cut in the middle.
    let _ = client.out.read_to_end(&mut all);
    assert!(all.len() < 64 << 20, "{}", all.len());
    let subscribers: Vec<_> = (0..200)
        .map(|_| {
            let mut one = served.connect();
            one.say("SUBSCRIBE news");
            one
        })
        .collect();
    let mut client = served.connect();
    let message = vec![b'm'; 10 << 10];
    client.out.write_all(&request(&[b"PUBLISH", b"news", &message]).repeat(600)).unwrap();
    (0..600).for_each(|_| assert!(matches!(client.read().unwrap(), Value::Int(_))));
    let grown = peak(&served) - before;
    assert!(grown < 450 << 20, "{} MiB more", grown >> 20);
    drop(subscribers);
}

#[test]
fn what_follows_replicaof_no_one_in_a_pipeline_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(&directory, "replicaof 127.0.0.1 1\n");
    let mut client = server.connect();
    assert!(error(&client.say("SET a 1")).starts_with("READONLY"));
    let line = |line: &str| request(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    let lines = ["REPLICAOF NO ONE", "SET a 1", "REPLICAOF 127.0.0.1 1", "SET a 2"];
    client.out.write_all(&lines.map(line).concat()).unwrap();
    assert_eq!(client.read().unwrap(), text("OK"));
    assert_eq!(client.read().unwrap(), text("OK"));
    assert_eq!(client.read().unwrap(), text("OK"));
    assert!(error(&client.read().unwrap()).starts_with("READONLY"));
    // Sentinel says it within a transaction.
    for part in ["MULTI", "SLAVEOF NO ONE", "SET a 3"] {
        client.say(part);
    }
    assert_eq!(client.say("EXEC"), Value::List(vec![text("OK"), text("OK")]));
    assert_eq!(client.say("GET a"), text("3"));
}

#[test]
fn a_browser_that_is_sent_here_executes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(&directory, "");
    for line in ["POST / HTTP/1.1", "Host: 127.0.0.1:6379"] {
        let mut browser = served.connect();
        browser.out.write_all(format!("{line}\r\nSET taken 1\r\n").as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = browser.out.read_to_end(&mut answer);
        assert_eq!(answer, b"");
    }
    assert_eq!(served.connect().say("EXISTS taken"), Value::Int(0));
}

#[test]
fn a_second_server_on_the_tier_is_refused_and_the_first_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(&directory, "");
    let mut client = served.connect();
    client.say("SET a 1");
    let options = tiersmith_pmem::OpenOptions::new(tiersmith_pmem::Access::Emulated, 0);
    let second = tiersmith_pmem::Mapping::open(&directory.path().join("tier"), &options);
    let why = second.expect_err("it is taken").to_string();
    assert!(why.contains("in use by another process"), "{why}");
    assert_eq!(client.say("GET a"), text("1"));
}

#[test]
fn replies_have_the_shapes_of_the_protocol_that_the_client_speaks() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(&directory, "");
    let mut client = served.connect();
    let commands = [
        ("SADD s a", ":1\r\n", ":1\r\n"),
        ("SMEMBERS s", "*1\r\n$1\r\na\r\n", "~1\r\n$1\r\na\r\n"),
        ("SINTER s s", "*1\r\n$1\r\na\r\n", "~1\r\n$1\r\na\r\n"),
        ("ZADD z 1.5 a", ":1\r\n", ":1\r\n"),
        ("ZSCORE z a", "$3\r\n1.5\r\n", ",1.5\r\n"),
        (
            "ZRANGE z 0 -1 WITHSCORES",
            "*2\r\n$1\r\na\r\n$3\r\n1.5\r\n",
            "*1\r\n*2\r\n$1\r\na\r\n,1.5\r\n",
        ),
        ("ZADD z XX INCR 1 b", "$-1\r\n", "_\r\n"),
        ("LPOP nothing 2", "*-1\r\n", "_\r\n"),
        ("ZPOPMIN z", "*2\r\n$1\r\na\r\n$3\r\n1.5\r\n", "*2\r\n$1\r\na\r\n,1.5\r\n"),
        ("BLPOP nothing 0.01", "*-1\r\n", "_\r\n"),
        ("BLMOVE nothing l LEFT LEFT 0.01", "*-1\r\n", "_\r\n"),
    ];
    for resp3 in [false, true] {
        client.say("FLUSHALL");
        client.say(if resp3 { "HELLO 3" } else { "HELLO 2" });
        for (line, two, three) in commands {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            client.send(&words).unwrap();
            let wanted = if resp3 { three } else { two };
            let mut got = vec![0; wanted.len()];
            client.out.read_exact(&mut got).unwrap();
            assert_eq!(String::from_utf8_lossy(&got), wanted, "{line}, RESP3: {resp3}");
        }
    }
}

fn blocked(client: &mut served::Client, count: usize) {
    let wanted = format!("blocked_clients:{count}\r\n");
    let began = std::time::Instant::now();
    while !matches!(client.say("INFO clients"), Value::Text(text) if text.contains(&wanted)) {
        assert!(began.elapsed() < Duration::from_secs(20), "not {count} clients are blocked");
    }
}

fn pair(key: &str, value: &str) -> Value {
    Value::List(vec![text(key), text(value)])
}

#[test]
fn who_waits_for_an_element_is_served_in_turn_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut served = server(&directory, "");
    let mut sender = served.connect();
    let mut waiting: Vec<_> = (0..3)
        .map(|n| {
            let mut client = served.connect();
            // What follows waits too.
            client.send(&[b"BLPOP", b"other", b"queue", b"0"]).unwrap();
            client.send(&[b"ECHO", b"after"]).unwrap();
            blocked(&mut sender, n + 1);
            client
        })
        .collect();
    // Another type wakes nobody.
    sender.say("SET queue string");
    sender.say("DEL queue");
    assert_eq!(sender.say("RPUSH queue a b"), Value::Int(2));
    assert_eq!(sender.say("EXISTS queue"), Value::Int(0));
    for (client, value) in waiting.iter_mut().zip(["a", "b"]) {
        assert_eq!(client.read().unwrap(), pair("queue", value));
        assert_eq!(client.read().unwrap(), text("after"));
    }
    blocked(&mut sender, 1);
    // An EXEC is seen whole.
    sender.say("MULTI");
    sender.say("RPUSH other x");
    sender.say("LPUSH other y");
    sender.say("EXEC");
    assert_eq!(waiting[2].read().unwrap(), pair("other", "y"));
    let (mut mover, mut last) = (served.connect(), served.connect());
    one_that_moves_an_element_wakes_the_next(
        &served,
        &mut sender,
        [&mut mover, &mut last, &mut waiting[0]],
    );
    // A sorted set wakes its own, and a list does not.
    mover.send(&[b"BZPOPMAX", b"scores", b"0"]).unwrap();
    last.send(&[b"BZMPOP", b"0", b"1", b"scores", b"MIN"]).unwrap();
    blocked(&mut sender, 2);
    sender.say("RPUSH scores 1");
    sender.say("DEL scores");
    sender.say("ZADD scores 1 low 2.5 high");
    assert_eq!(mover.read().unwrap(), Value::List(["scores", "high", "2.5"].map(text).to_vec()));
    let low = Value::List(vec![Value::List(["low", "1"].map(text).to_vec())]);
    assert_eq!(last.read().unwrap(), Value::List(vec![text("scores"), low]));
    time_and_a_command_end_a_wait(&mut sender, &mut last);
    // One who is gone gets nothing.
    last.send(&[b"BLPOP", b"nothing", b"0"]).unwrap();
    blocked(&mut sender, 1);
    drop(last);
    blocked(&mut sender, 0);
    sender.say("RPUSH nothing kept");
    served.kill();
    let served = server(&directory, "");
    assert_eq!(served.connect().say("LRANGE nothing 0 -1"), Value::List(vec![text("kept")]));
    drop(served);
    assert_sound(directory.path());
}

fn one_that_moves_an_element_wakes_the_next(
    served: &Served,
    sender: &mut served::Client,
    [mover, last, third]: [&mut served::Client; 3],
) {
    mover.send(&[b"BLMOVE", b"one", b"two", b"LEFT", b"RIGHT", b"0"]).unwrap();
    last.send(&[b"BLMPOP", b"0", b"1", b"two", b"LEFT", b"COUNT", b"9"]).unwrap();
    blocked(sender, 2);
    sender.say("RPUSH one z");
    assert_eq!(mover.read().unwrap(), text("z"));
    assert_eq!(last.read().unwrap(), Value::List(vec![text("two"), Value::List(vec![text("z")])]));
    let mut bytes = UnixStream::connect(&served.socket).unwrap();
    bytes
        .write_all(&served::request(&[b"BLMOVE", b"one", b"two", b"LEFT", b"LEFT", b"0.01"]))
        .unwrap();
    let mut reply = [0; 5];
    bytes.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"*-1\r\n");
    // And who waits for what was moved gets it before one who came later and has another key.
    mover.send(&[b"BLMOVE", b"one", b"two", b"LEFT", b"RIGHT", b"0"]).unwrap();
    blocked(sender, 1);
    last.send(&[b"BLPOP", b"two", b"0"]).unwrap();
    blocked(sender, 2);
    third.send(&[b"BLPOP", b"two", b"one", b"0"]).unwrap();
    blocked(sender, 3);
    sender.say("RPUSH one p q");
    assert_eq!(mover.read().unwrap(), text("p"));
    assert_eq!(last.read().unwrap(), pair("two", "p"));
    assert_eq!(third.read().unwrap(), pair("one", "q"));
}

fn time_and_a_command_end_a_wait(sender: &mut served::Client, last: &mut served::Client) {
    let began = std::time::Instant::now();
    assert_eq!(last.say("BLPOP nothing 0.25"), Value::Nil);
    assert!(began.elapsed() >= Duration::from_millis(250), "{:?}", began.elapsed());
    let Value::Int(id) = last.say("CLIENT ID") else { panic!("no number") };
    last.send(&[b"BRPOPLPUSH", b"nothing", b"other", b"0"]).unwrap();
    blocked(sender, 1);
    assert_eq!(sender.say(&format!("CLIENT UNBLOCK {id} ERROR")), Value::Int(1));
    assert!(error(&last.read().unwrap()).starts_with("UNBLOCKED"));
}

#[test]
fn what_clients_ask_about_the_server_is_answered_as_redis_answers() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(&directory, "");
    let mut client = served.connect();
    assert!(error(&client.say("DEBUG SLEEP 1")).starts_with("ERR DEBUG command not allowed"));
    for n in 0..2000 {
        client.say(&format!("RPUSH list {n}:{}", "x".repeat(50)));
        client.say(&format!("ZADD sorted {n} {n}:{}", "x".repeat(50)));
    }
    let used = |client: &mut served::Client| {
        let Value::Text(info) = client.say("INFO memory") else { panic!("no text") };
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
        line.parse::<i64>().unwrap()
    };
    for key in ["list", "sorted"] {
        let Value::Int(said) = client.say(&format!("MEMORY USAGE {key}")) else {
            panic!("no number")
        };
        let before = used(&mut client);
        client.say(&format!("DEL {key}"));
        let began = std::time::Instant::now();
        let mut freed = 0;
        while freed < said / 2 && began.elapsed() < Duration::from_secs(20) {
            freed = before - used(&mut client);
        }
        std::thread::sleep(Duration::from_millis(100));
        freed = before - used(&mut client);
        assert!(
            (said - freed).abs() <= freed / 10,
            "{key}: {said} bytes were said, {freed} were freed"
        );
    }
}

/// How often the server has waited for clients.
fn turns(client: &mut served::Client) -> u64 {
    let Value::Text(waits) = client.say("INFO waits") else { panic!("no text") };
    let counted =
        waits.lines().find_map(|line| line.strip_prefix("wait_client_message:class=Idle,waits="));
    counted.unwrap().split(',').next().unwrap().parse().unwrap()
}

#[test]
fn without_a_descriptor_left_clients_wait_and_the_server_does_not_spin() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start_with_descriptors(directory.path(), 40);
    let mut first = served.connect();
    assert_eq!(first.say("PING"), text("PONG"));
    let mut others: Vec<_> = (0..60).map(|_| served.connect()).collect();
    assert_eq!(first.say("PING"), text("PONG"));
    let before = turns(&mut first);
    std::thread::sleep(Duration::from_millis(500));
    // Ten a second, and a few for what this client asks.
    let turned = turns(&mut first) - before;
    assert!(turned < 100, "{turned} turns");
    let mut last = others.pop().unwrap();
    last.send(&[b"PING"]).unwrap();
    drop(others);
    assert_eq!(last.read().unwrap(), text("PONG"));
}
