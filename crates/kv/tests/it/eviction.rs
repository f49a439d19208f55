//! `maxmemory` and its policies.

use crate::replica::{info, same, server, wait_for};
use crate::served::{Client, Served, Value, assert_sound, free_port, text};

const MOST: &str = "4000000";

fn number(client: &mut Client, name: &str) -> u64 {
    info(client, name).parse().unwrap_or_else(|_| panic!("no number: {name}"))
}

fn error(value: Value) -> String {
    match value {
        Value::Error(text) => text,
        other => panic!("no error: {other:?}"),
    }
}

fn exists(client: &mut Client, keys: std::ops::Range<u32>, prefix: &str) -> usize {
    keys.filter(|n| client.say(&format!("EXISTS {prefix}{n}")) == Value::Int(1)).count()
}

/// Values of a KiB, so that 4 MB hold fewer than 4000 of them.
fn set(client: &mut Client, key: &str, options: &str) -> Value {
    client.say(&format!("SET {key} {}{options}", "v".repeat(1000)))
}

fn limited(directory: &std::path::Path, policy: &str) -> (Served, Client) {
    let conf = format!("maxmemory {MOST}\nmaxmemory-policy {policy}\nmaxmemory-samples 10\n");
    let served = server(directory, &conf);
    let client = served.connect();
    (served, client)
}

#[test]
fn keys_that_are_used_stay_and_others_go() {
    for policy in ["allkeys-lru", "allkeys-lfu"] {
        let directory = tempfile::tempdir().unwrap();
        let (_served, mut client) = limited(directory.path(), policy);
        for n in 0..500 {
            assert_eq!(set(&mut client, &format!("hot{n}"), ""), text("OK"));
        }
        for n in 0..6000 {
            assert_eq!(set(&mut client, &format!("cold{n}"), ""), text("OK"), "{policy} {n}");
            client.say(&format!("GET hot{}", n % 500));
            client.say(&format!("GET hot{}", (n * 7) % 500));
        }
        assert!(number(&mut client, "used_memory") <= 4_000_000 + 8192, "{policy}");
        let (hot, cold) =
            (exists(&mut client, 0..500, "hot"), exists(&mut client, 0..6000, "cold"));
        assert!(hot > 400, "{policy}: {hot} of 500 keys that are used are left");
        assert!(cold < 4000, "{policy}: {cold}");
        assert_eq!(number(&mut client, "evicted_keys") as usize, 6500 - hot - cold);
        // They say how they are used.
        let asked = if policy == "allkeys-lfu" { "FREQ" } else { "IDLETIME" };
        let other = if policy == "allkeys-lfu" { "IDLETIME" } else { "FREQ" };
        let found =
            (0..500).find(|n| client.say(&format!("EXISTS hot{n}")) == Value::Int(1)).unwrap();
        let Value::Int(use_of) = client.say(&format!("OBJECT {asked} hot{found}")) else {
            panic!("no number")
        };
        assert!(policy == "allkeys-lru" || use_of > 5, "{use_of}");
        assert!(
            error(client.say(&format!("OBJECT {other} hot{found}"))).contains("LFU")
                || other == "IDLETIME"
        );
    }
}

#[test]
fn only_keys_that_expire_go_where_the_policy_says_so() {
    for policy in ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"] {
        let directory = tempfile::tempdir().unwrap();
        let (_served, mut client) = limited(directory.path(), policy);
        for n in 0..1000 {
            set(&mut client, &format!("stays{n}"), "");
        }
        for n in 0..4000 {
            // The time left falls from key to key.
            let options = format!(" EX {}", 100_000 - n * 10);
            assert_eq!(set(&mut client, &format!("goes{n}"), &options), text("OK"), "{policy} {n}");
        }
        assert_eq!(exists(&mut client, 0..1000, "stays"), 1000, "{policy}");
        let (early, late) =
            (exists(&mut client, 0..1000, "goes"), exists(&mut client, 3000..4000, "goes"));
        if policy == "volatile-ttl" {
            assert!(early > 900 && late < 500, "{early} {late}");
        }
        client.say("CONFIG SET maxmemory-policy volatile-ttl");
        // Without any that expires nothing can go.
        let mut said = text("OK");
        for n in 0..4000 {
            said = set(&mut client, &format!("more{n}"), "");
            if said != text("OK") {
                break;
            }
        }
        assert!(error(said).starts_with("OOM command not allowed when used memory"), "{policy}");
        assert_eq!(exists(&mut client, 0..1000, "stays"), 1000, "{policy}");
    }
}

#[test]
fn without_a_policy_what_needs_space_is_refused_and_nothing_goes() {
    let directory = tempfile::tempdir().unwrap();
    let (served, mut client) = limited(directory.path(), "noeviction");
    let mut keys = 0;
    while set(&mut client, &format!("k{keys}"), "") == text("OK") {
        keys += 1;
        assert!(keys < 4000);
    }
    assert!(keys > 2000, "{keys}");
    assert_eq!(client.say("DBSIZE"), Value::Int(keys));
    assert!(error(client.say("RPUSH l 1")).starts_with("OOM"));
    // Another reason to refuse a command comes first, as in Redis.
    assert!(error(client.say("RPUSH l")).starts_with("ERR wrong number of arguments"));
    assert!(error(client.say("XGROUP SOME s g")).starts_with("ERR unknown subcommand"));
    client.say("ACL SETUSER reader on nopass ~* +get +auth");
    let mut reader = served.connect();
    assert_eq!(reader.say("AUTH reader any"), text("OK"));
    assert!(error(reader.say("SET x 1")).starts_with("NOPERM"));
    assert_eq!(client.say("STRLEN k0"), Value::Int(1000));
    let script = |client: &mut Client, text: &str| client.ask(&[b"EVAL", text.as_bytes(), b"0"]);
    assert_eq!(script(&mut client, "return redis.call('strlen', 'k1')"), Value::Int(1000));
    assert!(error(script(&mut client, "return redis.call('set', 'x', '1')")).contains("OOM"));
    client.say("MULTI");
    assert!(error(client.say("SET x 1")).starts_with("OOM"));
    assert!(error(client.say("EXEC")).starts_with("EXECABORT"));
    // A limit that is raised, or space that is given back.
    assert_eq!(client.say("DEL k0 k1 k2 k3 k4 k5 k6 k7"), Value::Int(8));
    assert_eq!(client.say("SET x 1"), text("OK"));
    client.say("CONFIG SET maxmemory 8mb");
    assert_eq!(set(&mut client, "more", ""), text("OK"));
    // A limit that is lowered takes effect with the next command.
    client.say("CONFIG SET maxmemory 1mb maxmemory-policy allkeys-random");
    client.say("PING");
    assert!(number(&mut client, "used_memory") <= 1 << 20);
    assert_eq!(number(&mut client, "maxmemory"), 1 << 20);
    assert!(
        error(client.say("CONFIG SET maxmemory-policy some")).contains("takes one of noeviction")
    );
}

#[test]
fn a_full_tier_takes_what_comes_where_keys_may_go() {
    let directory = tempfile::tempdir().unwrap();
    let mut served = server(directory.path(), "maxmemory-policy allkeys-lru\n");
    let mut client = served.connect();
    let mut random = fastrand::Rng::with_seed(8);
    for n in 0..3000_u32 {
        // Of all sizes, and hashes with an index of their own.
        let len = *random.choice(&[10, 1000, 30_000, 200_000]).unwrap();
        let value = "x".repeat(len);
        let said = match n % 10 {
            0 => client.say(&format!("HSET h{} f{n} {}", n / 200, "y".repeat(len.min(30_000)))),
            _ => client.say(&format!("SET k{n} {value}")),
        };
        assert!(!matches!(said, Value::Error(_)), "{n}: {said:?}");
    }
    assert!(number(&mut client, "evicted_keys") > 100);
    served.kill();
    assert_sound(directory.path());
}

#[test]
fn a_replica_learns_what_went() {
    let (directory, other, port) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), free_port());
    let conf = format!("port {port}\nmaxmemory {MOST}\nmaxmemory-policy allkeys-lru\n");
    let ours = server(directory.path(), &conf);
    let Some(redis) = Served::redis_at(other.path(), free_port(), &[]) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let (mut client, mut theirs) = (ours.connect(), redis.connect());
    theirs.say(&format!("REPLICAOF 127.0.0.1 {port}"));
    wait_for("the link", || info(&mut theirs, "master_link_status") == "up");
    for n in 0..6000 {
        set(&mut client, &format!("k{n}"), "");
    }
    client.say("MULTI");
    client.say("SET last 1");
    client.say("EXEC");
    assert_eq!(client.say("WAIT 1 20000"), Value::Int(1));
    assert!(number(&mut client, "evicted_keys") > 1000);
    same(&mut client, &mut theirs, "after keys went");
}

#[test]
fn an_exec_that_finds_too_much_in_use_ends_its_transaction_as_in_redis() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path(), "");
    let redis = Served::redis(directory.path());
    let mut said = Vec::new();
    for served in [Some(&server), redis.as_ref()].into_iter().flatten() {
        let (mut client, mut other) = (served.connect(), served.connect());
        client.say("MULTI");
        client.say("SET x 1");
        other.say("SET y 1");
        other.say("CONFIG SET maxmemory 1");
        let refused = error(client.say("EXEC"));
        assert!(refused.starts_with("EXECABORT ") && refused.contains(" OOM "), "{refused}");
        // There is no transaction any more.
        let again = client.say("EXEC");
        other.say("CONFIG SET maxmemory 0");
        said.push([Value::Error(refused), again, client.say("EXISTS x"), client.say("MULTI")]);
    }
    assert!(said.iter().all(|one| *one == said[0]), "{said:?}");
    assert_eq!(said[0][3], text("OK"));
}

#[test]
fn a_limit_of_one_byte_refuses_what_needs_space_on_an_empty_tier_as_in_redis() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path(), "");
    let redis = Served::redis(directory.path());
    let mut said = Vec::new();
    for served in [Some(&server), redis.as_ref()].into_iter().flatten() {
        let mut client = served.connect();
        client.say("CONFIG SET maxmemory 1");
        let refused = client.say("SET x 1");
        assert!(error(refused.clone()).starts_with("OOM"), "{refused:?}");
        let script = client.ask(&[b"EVAL", b"return redis.call('set', 'x', '1')", b"1", b"x"]);
        assert!(error(script.clone()).contains("OOM"), "{script:?}");
        let rest = ["GET x", "DEL x", "FLUSHALL", "DBSIZE"].map(|line| client.say(line));
        assert!(number(&mut client, "used_memory") > 1);
        client.say("CONFIG SET maxmemory 0");
        said.push((refused, rest, client.say("SET x 1")));
    }
    assert!(said.iter().all(|one| *one == said[0]), "{said:?}");
}
