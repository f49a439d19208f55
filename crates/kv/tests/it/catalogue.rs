//! COMMAND: keys, lists and flags, as a real Redis says them of the commands that are here.

use std::collections::BTreeSet;

use crate::served::{Client, Served, Value, text};

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
    let flags = |client: &mut Client, name: &str| {
        let Value::List(all) = client.say(&format!("COMMAND INFO {name}")) else {
            panic!("{name}")
        };
        let Some(Value::List(of)) = all.first() else { panic!("{name}: {all:?}") };
        let Value::List(flags) = &of[2] else { panic!("{name}: {of:?}") };
        // What clients go by: where keys are, and which commands they must not send beside others.
        ["movablekeys", "pubsub", "blocking"].map(|flag| flags.contains(&text(flag)))
    };
    for name in here.iter().filter(|name| !name.contains('|')) {
        assert_eq!(flags(&mut ours, name), flags(&mut theirs, name), "{name}");
    }
}
