//! INFO commandstats, errorstats and latencystats, and LATENCY: counted as in a real Redis.

use crate::replica::{server, wait_for};
use crate::served::{Client, Served, Value, text};

fn lines(client: &mut Client, section: &str) -> Vec<String> {
    let Value::Text(all) = client.say(&format!("INFO {section}")) else { panic!("no text") };
    all.lines().skip(1).map(str::to_owned).collect()
}

/// The counts without the times.
fn counts(client: &mut Client) -> Vec<String> {
    let timeless = |line: &String| {
        let part = |part: &&str| !part.starts_with("usec");
        line.split(',').filter(part).collect::<Vec<_>>().join(",")
    };
    let mut all: Vec<String> = lines(client, "commandstats").iter().map(timeless).collect();
    all.extend(lines(client, "errorstats"));
    all.retain(|line| !line.starts_with("cmdstat_info") && !line.starts_with("cmdstat_quit"));
    all.sort();
    all
}

/// Commands, some of which are refused, each for another reason.
const LINES: &[&str] = &[
    "SET a b",
    "SET a",
    "set c d",
    "GET a",
    "INCR a",
    "NOTHING x",
    "CLIENT ID",
    "CLIENT NOTHING",
    "CLIENT SETNAME a b",
    "CONFIG GET maxmemory",
    "CONFIG SET latency-tracking-info-percentiles 101",
    "XGROUP CREATECONSUMER x g c",
    "EVALSHA 0123456789012345678901234567890123456789 0",
    "MULTI",
    "SET a",
    "EXEC",
    "MULTI",
    "INCR a",
    "EXEC",
    "EXEC",
    "AUTH k",
    "CONFIG SET maxmemory 1",
    "SET a b",
    "CONFIG SET maxmemory 0",
    "ACL SETUSER alice on nopass ~cached:* +get +auth",
    "AUTH alice x",
    "SET a b",
    "GET other",
    "AUTH default x",
    "OBJECT ENCODING a",
    "WAIT 0 0",
    "WAIT 1 20",
];

/// Scripts that fail, or take an error for a reply.
const SCRIPTS: &[&str] = &[
    "redis.pcall('INCR', KEYS[1]) return 1",
    "return {err='MINE is this'}",
    "return redis.call('INCR', KEYS[1])",
    "return redis.pcall('INCR', KEYS[1])",
    "return redis.call('NOTHING')",
    "return redis.call('GET')",
    "return redis.call('WATCH', 'a')",
    "return redis.call()",
    "return redis.call({})",
    "return redis.error_reply('OWN words')",
    "local ok, err = pcall(redis.call, 'INCR', KEYS[1]) return err",
    "error('thrown')",
    "error({err='TABLE thrown'})",
    "return nothing",
];

fn said(served: &Served) -> (Vec<String>, Vec<Value>, Vec<Value>) {
    let (mut client, mut other) = (served.connect(), served.connect());
    client.say("CONFIG RESETSTAT");
    for line in LINES {
        client.say(line);
    }
    for script in SCRIPTS {
        client.ask(&[b"EVAL", script.as_bytes(), b"1", b"a"]);
        client.ask(&[b"EVAL_RO", script.as_bytes(), b"1", b"a"]);
    }
    client.ask(&[b"EVAL_RO", b"return redis.call('SET', KEYS[1], 1)", b"1", b"a"]);
    for how in ["TIMEOUT", "ERROR"] {
        let Value::Int(id) = other.say("CLIENT ID") else { panic!("no id") };
        other.send(&[b"BLPOP", b"waited", b"0"]).unwrap();
        wait_for("the client waits", || {
            client.say(&format!("CLIENT UNBLOCK {id} {how}")) == Value::Int(1)
        });
        other.read().unwrap();
    }
    other.send(&[b"BLPOP", b"waited", b"0"]).unwrap();
    wait_for("the client waits", || {
        lines(&mut client, "clients").contains(&"blocked_clients:1".to_owned())
    });
    client.say("RPUSH waited 1");
    other.read().unwrap();
    let mut all = counts(&mut client);
    // It was asked as often as the client took to wait.
    all.retain(|line| !line.starts_with("cmdstat_client|unblock"));
    let asked = ["SET", "nothing", "OBJECT", "client|id", "config"];
    let histograms = asked.map(|name| named(&client.say(&format!("LATENCY HISTOGRAM {name}"))));
    let mut replies = Vec::new();
    for line in [
        "LATENCY LATEST",
        "LATENCY HISTORY command",
        "LATENCY GRAPH nothing",
        "LATENCY RESET nothing",
        "LATENCY HELP",
        "LATENCY HELP x",
        "LATENCY",
        "LATENCY HISTORY",
        "CONFIG SET latency-tracking-info-percentiles x",
        "CONFIG GET latency*",
    ] {
        let reply = client.say(line);
        // Each server says in its own words what a setting takes.
        replies.push(match reply {
            Value::Error(said) if said.contains("CONFIG SET failed") => text("failed"),
            reply => crate::served::sorted(&reply),
        });
    }
    (all, histograms.into(), replies)
}

/// Names and calls of a histogram, in order: the rest is time.
fn named(histogram: &Value) -> Value {
    let Value::List(all) = histogram else { return histogram.clone() };
    let mut names: Vec<Value> = all
        .chunks(2)
        .map(|pair| match pair {
            [name, Value::List(parts)] => {
                Value::List([std::slice::from_ref(name), &parts[..2]].concat())
            }
            other => panic!("{other:?}"),
        })
        .collect();
    names.sort();
    Value::List(names)
}

#[test]
fn commands_and_errors_are_counted_as_redis_counts_them() {
    let directory = tempfile::tempdir().unwrap();
    let ours = server(directory.path(), "");
    let mine = said(&ours);
    let has = |line: &str| assert!(mine.0.contains(&line.to_owned()), "{line}: {:?}", mine.0);
    has("cmdstat_set:calls=2,rejected_calls=5,failed_calls=0");
    has("errorstat_EXECABORT:count=1");
    has("errorstat_UNBLOCKED:count=1");
    if let Some(redis) = Served::redis(directory.path()) {
        let theirs = said(&redis);
        assert_eq!(mine.0, theirs.0);
        assert_eq!(mine.1, theirs.1);
        assert_eq!(mine.2, theirs.2);
    } else {
        println!("not compared: redis-server is not installed");
    }
    let mut client = ours.connect();
    client.say("CONFIG RESETSTAT");
    assert_eq!(lines(&mut client, "errorstats"), Vec::<String>::new());
    client.say("CONFIG SET latency-tracking no");
    client.say("SET a b");
    let latency = |client: &mut Client| lines(client, "latencystats").join(" ");
    assert!(!latency(&mut client).contains("_set:"));
    assert!(
        lines(&mut client, "commandstats").iter().any(|l| l.starts_with("cmdstat_set:calls=1"))
    );
    client.ask(&[b"CONFIG", b"SET", b"latency-tracking", b"yes"]);
    client.ask(&[b"CONFIG", b"SET", b"latency-tracking-info-percentiles", b"0.0 50.0 100.0"]);
    client.say("SET a b");
    let all = latency(&mut client);
    let line = all.split(' ').find(|line| line.contains("_set:")).unwrap();
    assert!(line.starts_with("latency_percentiles_usec_set:p0="), "{line}");
    assert!(line.contains(",p50=") && line.contains(",p100="), "{line}");
}

#[test]
fn what_takes_long_is_noted_and_told_and_can_be_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let ours = server(directory.path(), "");
    let mut client = ours.connect();
    let said = |client: &mut Client, line: &str| match client.say(line) {
        Value::Text(text) => text,
        other => panic!("{other:?}"),
    };
    assert!(said(&mut client, "LATENCY DOCTOR").contains("monitoring is off"));
    client.say("CONFIG SET latency-monitor-threshold 5");
    assert!(said(&mut client, "LATENCY DOCTOR").contains("Nothing has taken 5 ms"));
    let busy = b"local n = 0 for i = 1, 20000000 do n = n + i end return 1";
    client.ask(&[b"EVAL", busy, b"0"]);
    let Value::List(latest) = client.say("LATENCY LATEST") else { panic!("no list") };
    let event =
        latest.iter().find(|one| matches!(one, Value::List(all) if all[0] == text("command")));
    let Some(Value::List(event)) = event else { panic!("{latest:?}") };
    assert_eq!(event[2], event[3]);
    assert!(matches!(event[2], Value::Int(ms) if ms >= 5), "{event:?}");
    let history = client.say("LATENCY HISTORY command");
    assert_eq!(history, Value::List(vec![Value::List(event[1..3].to_vec())]));
    assert!(said(&mut client, "LATENCY GRAPH command").starts_with("command - high "));
    assert!(said(&mut client, "LATENCY DOCTOR").contains("1. command: 1 latency spikes"));
    client.say("CONFIG SET latency-monitor-threshold 0");
    assert_eq!(client.say("LATENCY RESET COMMAND"), Value::Int(1));
    client.ask(&[b"EVAL", busy, b"0"]);
    assert_eq!(client.say("LATENCY HISTORY command"), Value::List(Vec::new()));
}
