//! COMMAND: keys, lists and flags, as a real Redis says them of the commands that are here.

use std::collections::BTreeSet;

use crate::served::{Client, Served, Value, sorted};

const LINES: &[&str] = &[
    "COMMAND GETKEYS GET k",
    "COMMAND GETKEYS MSET a 1 b 2",
    "COMMAND GETKEYS EVAL x 2 a b c",
    "COMMAND GETKEYS EVAL x 0",
    "COMMAND GETKEYS ZUNIONSTORE d 2 a b",
    "COMMAND GETKEYS SORT a STORE b",
    "COMMAND GETKEYS XREAD COUNT 2 STREAMS a b 0 0",
    "COMMAND GETKEYS MEMORY USAGE k",
    "COMMAND GETKEYS XGROUP CREATE k g $",
    "COMMAND GETKEYS LCS a b",
    "COMMAND GETKEYS PING",
    "COMMAND GETKEYS GET",
    "COMMAND GETKEYS GET a b",
    "COMMAND GETKEYS NOTHING a",
    "COMMAND LIST x",
    "COMMAND LIST FILTERBY x",
    "COMMAND LIST FILTERBY x y",
    "COMMAND LIST FILTERBY ACLCAT nothing",
    "COMMAND LIST FILTERBY MODULE nothing",
    "COMMAND LIST FILTERBY PATTERN set",
    "COMMAND LIST FILTERBY PATTERN nothing*",
];

fn names(client: &mut Client, line: &str) -> BTreeSet<String> {
    let Value::List(all) = client.say(line) else { panic!("no list") };
    let name = |one| match one {
        Value::Text(name) => name,
        other => panic!("{other:?}"),
    };
    all.into_iter().map(name).collect()
}

#[test]
fn commands_are_described_as_redis_describes_them() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = Served::start(directory.path());
    let (mut ours, mut theirs) = (server.connect(), redis.connect());
    for line in LINES {
        assert_eq!(ours.say(line), theirs.say(line), "{line}");
    }
    let here = names(&mut ours, "COMMAND LIST");
    let there = names(&mut theirs, "COMMAND LIST");
    assert!(here.contains("get") && here.contains("script|kill") && here.is_subset(&there));
    for filter in ["ACLCAT scripting", "ACLCAT write", "PATTERN config|*re*", "PATTERN *help"] {
        let line = format!("COMMAND LIST FILTERBY {filter}");
        let wanted: BTreeSet<_> = names(&mut theirs, &line).intersection(&here).cloned().collect();
        assert!(!wanted.is_empty());
        assert_eq!(names(&mut ours, &line), wanted, "{line}");
    }
    for name in here.iter().filter(|name| !name.contains('|')) {
        let of = |client: &mut Client| described(&client.say(&format!("COMMAND INFO {name}")));
        assert_eq!(of(&mut ours), of(&mut theirs), "{name}");
    }
    // All at once are the same, of those that are here.
    let all = |client: &mut Client| {
        let Value::List(all) = client.say("COMMAND") else { panic!("no list") };
        let all =
            all.into_iter().filter(|one| matches!(one, Value::List(of) if is_here(of, &here)));
        sorted(&Value::List(all.map(|one| described(&one)).collect()))
    };
    assert_eq!(all(&mut ours), all(&mut theirs));
}

fn is_here(command: &[Value], here: &BTreeSet<String>) -> bool {
    matches!(&command[0], Value::Text(name) if here.contains(name))
}

/// What COMMAND says of commands, with names in one order, and without what it advises clients of a
/// cluster and what its authors note.
fn described(value: &Value) -> Value {
    let Value::List(all) = value else { return value.clone() };
    let parts = all.iter().map(described);
    match &all[..] {
        // A command.
        [Value::Text(_), Value::Int(_), Value::List(_), Value::Int(_), ..] => {
            let parts = parts.enumerate().filter(|(at, _)| *at != 7);
            Value::List(parts.map(|(_, one)| one).collect())
        }
        [Value::Text(name), _, rest @ ..] if name == "notes" => {
            described(&Value::List(rest.to_vec()))
        }
        [Value::List(_) | Value::Text(_), ..] => sorted(&Value::List(parts.collect())),
        _ => Value::List(parts.collect()),
    }
}

#[test]
fn what_is_said_of_keys_and_commands_that_are_not_here_is_what_redis_says() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = Served::start(directory.path());
    let (mut ours, mut theirs) = (server.connect(), redis.connect());
    for line in [
        "GET k",
        "SET k v",
        "SET k v EX 10 GET",
        "MSET a 1 b 2",
        "DEL a b",
        "BITFIELD k GET u8 0",
        "BITFIELD k SET u8 0 1",
        "BITFIELD_RO k GET u8 0",
        "EVAL x 2 a b c",
        "EVAL x 0",
        "EVAL x -9223372036854775808 k",
        "SORT k BY store ALPHA",
        "SORT k STORE d BY store x",
        "SSUBSCRIBE c",
        "FCALL f 1 a",
        "ZUNIONSTORE d 2 a b WEIGHTS 1 2",
        "LMPOP 2 a b LEFT",
        "XREAD COUNT 2 STREAMS a b 0 0",
        "XREADGROUP GROUP g c STREAMS a >",
        "XGROUP CREATE k g $",
        "GEORADIUS k 1 2 3 m STORE d",
        "SORT k",
        "SORT k STORE d",
        "SORT k BY x STORE a STORE b",
        "COPY a b",
        "PING",
        "GET",
        "NOTHING a",
        "PUBLISH c m",
    ] {
        for kind in ["GETKEYS", "GETKEYSANDFLAGS"] {
            let line = format!("COMMAND {kind} {line}");
            let said =
                [&mut ours, &mut theirs].map(|client| with_flags_in_order(&client.say(&line)));
            assert_eq!(said[0], said[1], "{line}");
        }
    }
    for line in ["COMMAND INFO get nothing client|list client|nothing", "COMMAND INFO", "COMMAND X"]
    {
        if line == "COMMAND INFO" {
            assert!(matches!(ours.say(line), Value::List(all) if all.len() > 200));
            continue;
        }
        let said = [&mut ours, &mut theirs].map(|client| match client.say(line) {
            Value::List(all) => Value::List(all.iter().map(described).collect()),
            other => other,
        });
        assert_eq!(said[0], said[1], "{line}");
    }
}

fn with_flags_in_order(said: &Value) -> Value {
    let Value::List(all) = said else { return said.clone() };
    let one = |one: &Value| match one {
        Value::List(of) => Value::List(of.iter().map(sorted).collect()),
        other => other.clone(),
    };
    Value::List(all.iter().map(one).collect())
}
