//! Libraries of functions: what a real Redis answers, that they are data as keys are, in both
//! directions, and their limits.

use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use crate::replica::{info, wait_for};
use crate::served::{Client, Served, TIER, Value, assert_sound, free_port, text};
use tiersmith_kv::planted::Planted;
use tiersmith_kv::testing::Local;
use tiersmith_kv::{export, import};
use tiersmith_pmem::{Access, Mapping, OpenOptions};

fn server(directory: &Path, conf: &str) -> Served {
    std::fs::write(directory.join("conf"), conf).unwrap();
    Served::start(directory)
}

/// A library whose one function has its name.
fn library(name: &str, body: &str) -> String {
    format!("#!lua name={name}\nredis.register_function('{name}', function(keys, args) {body} end)")
}

fn load(client: &mut Client, name: &str, body: &str) -> Value {
    client.ask(&[b"FUNCTION", b"LOAD", b"REPLACE", library(name, body).as_bytes()])
}

fn same_libraries(one: &mut Client, other: &mut Client) -> bool {
    let listed = |client: &mut Client| without_order(&client.say("FUNCTION LIST WITHCODE"));
    listed(one) == listed(other)
}

/// A reply in which nothing has an order: functions of a library have none.
fn without_order(value: &Value) -> Value {
    let Value::List(all) = value else { return value.clone() };
    let mut all: Vec<Value> = all.iter().map(without_order).collect();
    all.sort();
    Value::List(all)
}

/// Texts of libraries, good and bad, each after a line that says what it is.
const TEXTS: &str = include_str!("../scripting/libraries.txt");

/// What is asked after each text.
const ASKED: &[&str] = &[
    "FUNCTION LIST",
    "FUNCTION STATS",
    "FCALL f1 0",
    "FCALL F1 2 a b c d",
    "FCALL f2 1 a b",
    "FCALL_RO f1 0",
    "FCALL_RO f2 1 a b",
    "GET x",
];

#[test]
fn libraries_and_functions_answer_as_redis_does() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = server(directory.path(), "");
    let (mut ours, mut theirs) = (server.connect(), redis.connect());
    let mut differences = Vec::new();
    let mut tried = 0;
    for protocol in ["2", "3"] {
        for client in [&mut ours, &mut theirs] {
            client.say(&format!("HELLO {protocol}"));
        }
        for library in TEXTS.split("\n----\n").filter(|text| !text.trim().is_empty()) {
            let mut compare = |words: &[&[u8]]| {
                let (mine, their) = (ours.ask(words), theirs.ask(words));
                tried += 1;
                if without_order(&mine) != without_order(&their) {
                    let said = String::from_utf8_lossy(words[words.len() - 1]).into_owned();
                    differences.push(format!(
                        "RESP{protocol} {library}\n {said}\n  ours   {mine:?}\n  theirs {their:?}"
                    ));
                }
            };
            compare(&[b"FUNCTION", b"FLUSH"]);
            compare(&[b"DEL", b"x"]);
            compare(&[b"FUNCTION", b"LOAD", library.as_bytes()]);
            for line in ASKED {
                let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
                compare(&words);
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {tried}:\n{}",
        differences.len(),
        differences.join("\n")
    );
    assert!(tried > 400, "{tried}");
}

/// Commands about libraries, in this order.
const COMMANDS: &[&str] = &[
    "FUNCTION",
    "FUNCTION LOAD",
    "FUNCTION LOAD x",
    "FUNCTION LOAD y x",
    "FUNCTION NOTHING",
    "FUNCTION LIST LIBRARYNAME one",
    "FUNCTION LIST LIBRARYNAME T* WITHCODE",
    "FUNCTION LIST WITHCODE WITHCODE",
    "FUNCTION LIST LIBRARYNAME",
    "FUNCTION LIST x",
    "FUNCTION STATS x",
    "FUNCTION STATS",
    "FUNCTION KILL",
    "FUNCTION HELP",
    "FUNCTION DUMP x",
    "FUNCTION RESTORE x",
    "FUNCTION RESTORE x y",
    "FUNCTION RESTORE x FLUSH z",
    "FUNCTION FLUSH x",
    "FUNCTION FLUSH SYNC x",
    "FUNCTION DELETE three",
    "FUNCTION DELETE ONE",
    "FCALL",
    "FCALL one",
    "FCALL none 0",
    "FCALL one x",
    "FCALL one -1",
    "FCALL one 1",
    "FCALL one 3 a b",
    "FCALL_RO one 0",
    "MULTI",
    "FCALL one 1 k v",
    "FUNCTION DELETE two",
    "EXEC",
    "EVAL return{pcall(redis.call,'fcall','one',0)} 0",
    "EVAL return{pcall(redis.call,'function','list')} 0",
    "COMMAND GETKEYS FCALL one 2 a b c",
    "COMMAND GETKEYS FCALL_RO one 1 a b",
    "ACL SETUSER u on nopass ~a* +fcall",
    "ACL DRYRUN u FCALL one 1 abc",
    "ACL DRYRUN u FCALL one 1 b",
    "ACL DRYRUN u FCALL_RO one 1 abc",
    "ACL DRYRUN u FUNCTION LIST",
    "FUNCTION FLUSH",
    "FUNCTION LIST",
    "FLUSHALL",
];

#[test]
fn commands_about_libraries_answer_as_redis_does() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = server(directory.path(), "");
    let (mut ours, mut theirs) = (server.connect(), redis.connect());
    for client in [&mut ours, &mut theirs] {
        load(client, "one", "return redis.call('set', keys[1] or 'k', args[1] or 'v')");
        load(client, "two", "return 2");
    }
    let mut differences = Vec::new();
    for line in COMMANDS {
        let (mine, their) = (ours.say(line), theirs.say(line));
        if without_order(&mine) != without_order(&their) {
            differences.push(format!("{line}\n  ours   {mine:?}\n  theirs {their:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn each_reads_the_dump_of_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = server(directory.path(), "");
    let (mut ours, mut theirs) = (server.connect(), redis.connect());
    load(&mut ours, "one", &format!("return '{}'", "long ".repeat(4000)));
    load(&mut ours, "two", "return 2");
    let dump = ours.ask_bytes(&[b"FUNCTION", b"DUMP"]).unwrap();
    assert_eq!(theirs.ask(&[b"FUNCTION", b"RESTORE", &dump]), text("OK"));
    assert!(same_libraries(&mut ours, &mut theirs));
    let dump = theirs.ask_bytes(&[b"FUNCTION", b"DUMP"]).unwrap();
    for client in [&mut ours, &mut theirs] {
        let again = client.ask(&[b"FUNCTION", b"RESTORE", &dump]);
        assert!(
            matches!(&again, Value::Error(text) if text.contains("already exists")),
            "{again:?}"
        );
        client.say("FUNCTION DELETE one");
        load(client, "two", "return 'changed'");
        load(client, "three", "return 3");
        assert_eq!(client.ask(&[b"FUNCTION", b"RESTORE", &dump, b"REPLACE"]), text("OK"));
        assert_eq!(client.say("FCALL two 0"), Value::Int(2));
        // A function of another library: nothing is changed.
        client.say("FUNCTION FLUSH");
        let other = library("two", "return 7").replace("name=two", "name=other");
        client.ask(&[b"FUNCTION", b"LOAD", other.as_bytes()]);
        let taken = client.ask(&[b"FUNCTION", b"RESTORE", &dump, b"REPLACE"]);
        assert!(matches!(&taken, Value::Error(text) if text.contains("Function two")), "{taken:?}");
        assert_eq!(client.say("FCALL two 0"), Value::Int(7));
        assert_eq!(client.ask(&[b"FUNCTION", b"RESTORE", &dump, b"FLUSH"]), text("OK"));
        let mut damaged = dump.clone();
        damaged[20] ^= 1;
        let refused = client.ask(&[b"FUNCTION", b"RESTORE", &damaged, b"FLUSH"]);
        assert_eq!(
            refused,
            Value::Error("ERR DUMP payload version or checksum are wrong".to_owned())
        );
    }
    assert!(same_libraries(&mut ours, &mut theirs));
    assert_eq!(ours.say("FUNCTION STATS"), theirs.say("FUNCTION STATS"));
}

#[test]
fn a_library_whose_loading_was_answered_survives_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let mut served = server(directory.path(), "");
    let mut client = served.connect();
    for n in 0..40 {
        load(&mut client, &format!("lib{n}"), &format!("return {n}"));
    }
    client.say("FUNCTION DELETE lib7");
    load(&mut client, "lib8", "return redis.call('incr', 'n')");
    assert_eq!(client.say("FCALL lib8 0"), Value::Int(1));
    client.say("FLUSHALL");
    served.kill();
    assert_sound(directory.path());
    let served = server(directory.path(), "");
    let mut client = served.connect();
    assert_eq!(info(&mut client, "number_of_libraries"), "39");
    assert_eq!(client.say("DBSIZE"), Value::Int(0));
    for n in (0..40).filter(|n| *n != 8) {
        let expected = match n {
            7 => Value::Error("ERR Function not found".to_owned()),
            n => Value::Int(n),
        };
        assert_eq!(client.say(&format!("FCALL lib{n} 0")), expected);
    }
    assert_eq!(client.say("FCALL lib8 0"), Value::Int(1));
    // What came with EVAL goes, and what a library keeps for itself stays.
    client.say("SCRIPT FLUSH");
    assert_eq!(client.say("FCALL lib9 0"), Value::Int(9));
}

#[test]
fn libraries_come_from_a_real_primary_and_go_to_a_real_replica() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (port, redis_port) = (free_port(), free_port());
    let Some(redis) = Served::redis_at(there.path(), redis_port, &[]) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let served = server(here.path(), &format!("port {port}\nrepl-ping-replica-period 1\n"));
    let (mut ours, mut theirs) = (served.connect(), redis.connect());
    load(&mut ours, "gone", "return 0");
    load(&mut theirs, "copied", "return redis.call('incr', keys[1])");
    ours.say(&format!("REPLICAOF 127.0.0.1 {redis_port}"));
    wait_for("the copy", || info(&mut ours, "master_link_status") == "up");
    assert!(same_libraries(&mut ours, &mut theirs), "the copy differs");
    load(&mut theirs, "streamed", "return 2");
    load(&mut theirs, "removed", "return 3");
    theirs.say("FUNCTION DELETE removed");
    assert_eq!(theirs.say("FCALL copied 1 n"), Value::Int(1));
    assert_eq!(theirs.say("WAIT 1 20000"), Value::Int(1));
    assert!(same_libraries(&mut ours, &mut theirs), "the stream differs");
    assert_eq!(ours.say("GET n"), text("1"));
    let refused = load(&mut ours, "own", "return 1");
    assert!(matches!(&refused, Value::Error(text) if text.starts_with("READONLY")), "{refused:?}");
    let refused = ours.say("FCALL copied 1 n");
    assert!(matches!(&refused, Value::Error(text) if text.starts_with("READONLY")), "{refused:?}");
    // And back.
    ours.say("REPLICAOF NO ONE");
    load(&mut ours, "ours", "return redis.call('incrby', keys[1], 5)");
    theirs.say("FUNCTION FLUSH");
    theirs.say(&format!("REPLICAOF 127.0.0.1 {port}"));
    wait_for("the copy there", || info(&mut theirs, "master_link_status") == "up");
    assert!(same_libraries(&mut ours, &mut theirs), "the copy there differs");
    load(&mut ours, "streamed", "return 'anew'");
    ours.say("FUNCTION DELETE copied");
    assert_eq!(ours.say("FCALL ours 1 n"), Value::Int(6));
    let dump = ours.ask_bytes(&[b"FUNCTION", b"DUMP"]).unwrap();
    ours.say("FUNCTION FLUSH");
    assert_eq!(ours.ask(&[b"FUNCTION", b"RESTORE", &dump]), text("OK"));
    assert_eq!(ours.say("WAIT 1 20000"), Value::Int(1));
    assert!(same_libraries(&mut ours, &mut theirs), "the stream there differs");
    assert_eq!(theirs.say("GET n"), text("6"));
    drop(served);
    assert_sound(here.path());
}

fn map(path: &Path, len: u64) -> Mapping {
    let mut options = OpenOptions::new(Access::Emulated, len);
    options.create = len > 0;
    Mapping::open(path, &options).unwrap()
}

#[test]
fn libraries_are_part_of_a_dump_and_of_an_import() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let mut theirs = redis.connect();
    load(&mut theirs, "one", "return 'one'");
    load(&mut theirs, "two", "return 'two'");
    theirs.say("SET key value");
    theirs.say("CONFIG SET rdbcompression no");
    theirs.say("SAVE");
    let dump = std::fs::read(directory.path().join("dump.rdb")).unwrap();
    let tier = directory.path().join("tier");
    let imported = import(map(&tier, TIER), &mut BufReader::new(&dump[..])).unwrap();
    assert_eq!(imported.keys, 1);
    // A tier with libraries alone is not empty.
    let again = import(map(&tier, 0), &mut BufReader::new(&dump[..]));
    assert!(again.is_err(), "{again:?}");
    let mut bytes = Vec::new();
    assert_eq!(export(map(&tier, 0), &mut bytes).unwrap(), 1);
    {
        let served = server(directory.path(), "");
        assert!(same_libraries(&mut served.connect(), &mut theirs));
        assert_eq!(served.connect().say("FCALL two 0"), text("two"));
    }
    drop(redis);
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("dump.rdb"), &bytes).unwrap();
    let redis = Served::redis(other.path()).unwrap();
    let mut theirs = redis.connect();
    assert_eq!(theirs.say("FCALL one 0"), text("one"));
    assert_eq!(theirs.say("GET key"), text("value"));
    // One that cannot be used here is an error, and nothing is there.
    let at = dump.windows(8).position(|bytes| bytes == b"register").unwrap();
    let mut unknown = dump.clone();
    unknown[at..at + 8].copy_from_slice(b"registre");
    let end = unknown.len();
    unknown[end - 8..].fill(0);
    let tier = other.path().join("tier");
    let refused = import(map(&tier, TIER), &mut BufReader::new(&unknown[..])).unwrap_err();
    assert!(refused.to_string().contains("the library of functions"), "{refused}");
    let local = Local::open(map(&tier, 0), Planted::None).unwrap();
    assert!(local.contents().is_empty());
}

#[test]
fn a_function_that_runs_for_long_is_named_and_ended_by_function_kill_alone() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(directory.path(), "busy-reply-threshold 50\n");
    let (mut client, mut runs) = (served.connect(), served.connect());
    load(&mut client, "endless", "while true do end");
    for (command, ends) in
        [("FCALL endless 0 x", "FUNCTION"), ("EVAL while\ttrue\tdo\tend 0", "SCRIPT")]
    {
        runs.send(&command.split(' ').map(str::as_bytes).collect::<Vec<_>>()).unwrap();
        // What comes in the same moment is answered after it.
        std::thread::sleep(Duration::from_millis(200));
        let busy = format!(
            "BUSY Redis is busy running a script. You can only call {ends} KILL or SHUTDOWN NOSAVE."
        );
        wait_for("the answer that it is busy", || client.say("PING") == Value::Error(busy.clone()));
        let other = if ends == "FUNCTION" { "SCRIPT" } else { "FUNCTION" };
        assert_eq!(client.say(&format!("{other} KILL")), Value::Error(busy.clone()));
        let stats = client.say("FUNCTION STATS");
        if ends == "FUNCTION" {
            let Value::List(stats) = stats else { panic!("{stats:?}") };
            let Value::List(running) = &stats[1] else { panic!("{stats:?}") };
            let command = ["FCALL", "endless", "0", "x"].map(text).to_vec();
            assert_eq!(running[1], text("endless"));
            assert_eq!(running[3], Value::List(command));
            assert!(matches!(running[5], Value::Int(ms) if ms >= 50), "{running:?}");
        } else {
            assert_eq!(stats, Value::Error(busy));
        }
        assert_eq!(client.say(&format!("{ends} KILL")), text("OK"));
        assert!(
            matches!(runs.read().unwrap(), Value::Error(text) if text.contains("killed by user"))
        );
        // What was killed is not what is loaded next.
        let after = "#!lua name=after\nlocal n = 0\nwhile n < 100000 do n = n + 1 end\n\
                     redis.register_function('after', function() return 1 end)";
        assert_eq!(
            client.ask(&[b"FUNCTION", b"LOAD", b"REPLACE", after.as_bytes()]),
            text("after"),
            "after {ends} KILL"
        );
    }
    assert_eq!(client.say("PING"), text("PONG"));
}

/// The four bytes of a length, the most significant first.
fn length(len: usize) -> [u8; 4] {
    [24, 16, 8, 0].map(|shift| (len >> shift) as u8)
}

/// A payload of FUNCTION RESTORE with these texts, as a client makes it that can do no checksums.
fn payload(texts: &[String]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for text in texts {
        bytes.extend([0xf5, 0x80]);
        bytes.extend(length(text.len()));
        bytes.extend(text.as_bytes());
    }
    bytes.extend([10, 0]);
    bytes.extend([0; 8]);
    bytes
}

#[test]
fn the_most_functions_that_may_be_there_are_called_dumped_and_restored() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(directory.path(), "");
    let mut client = served.connect();
    for name in ["one", "two"] {
        let thousand = format!(
            "#!lua name={name}\nfor n = 1, 1000 do redis.register_function('{name}' .. n, \
             function(keys, args) return #args end) end"
        );
        assert_eq!(client.ask(&[b"FUNCTION", b"LOAD", thousand.as_bytes()]), text(name));
    }
    assert!(matches!(load(&mut client, "more", ""), Value::Error(text)
            if text.contains("at most 2000 functions")));
    let call = |client: &mut Client, count: usize| {
        let mut words: Vec<&[u8]> = vec![b"FCALL", b"two1000", b"0"];
        words.resize(3 + count, b"x");
        client.ask(&words)
    };
    for count in [0, 100, 20_000] {
        assert_eq!(call(&mut client, count), Value::Int(count as i64));
    }
    let dump = client.ask_bytes(&[b"FUNCTION", b"DUMP"]).unwrap();
    for policy in [&b"REPLACE"[..], b"FLUSH"] {
        assert_eq!(client.ask(&[b"FUNCTION", b"RESTORE", &dump, policy]), text("OK"));
        assert_eq!(call(&mut client, 100), Value::Int(100));
    }
    // A script has its own interpreter, and as many arguments.
    let mut words: Vec<&[u8]> = vec![b"EVAL", b"return #ARGV", b"0"];
    words.resize(3 + 20_000, b"x");
    assert_eq!(client.ask(&words), Value::Int(20_000));
}

#[test]
fn a_payload_of_libraries_takes_bounded_time_and_memory() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(directory.path(), "");
    let mut client = served.connect();
    // Each ends in time, all together do not.
    let slow = |n: usize| {
        format!(
            "#!lua name=s{n}\nlocal n = 0\nwhile n < 3000000 do n = n + 1 end\n\
             redis.register_function('s{n}', function() return 1 end)"
        )
    };
    let began = std::time::Instant::now();
    let slow = payload(&(0..1900).map(slow).collect::<Vec<_>>());
    let refused = client.ask(&[b"FUNCTION", b"RESTORE", &slow]);
    assert!(
        matches!(&refused, Value::Error(text) if text.contains("FUNCTION LOAD timeout")),
        "{refused:?}"
    );
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let many = payload(&(0..2001).map(|n| library(&format!("m{n}"), "")).collect::<Vec<_>>());
    let refused = client.ask(&[b"FUNCTION", b"RESTORE", &many]);
    let failed = "ERR failed loading the given functions payload";
    assert_eq!(refused, Value::Error(failed.to_owned()));
    // 80 MiB that compress well: a hundred copies of a back reference to the byte before.
    let mut bomb = vec![0xf5, 0xc3];
    let mut packed = b"\x00-".to_vec();
    let runs = (80_usize << 20) / 264;
    packed.extend(std::iter::repeat_n([0xe0, 0xff, 0x00], runs).flatten());
    for len in [packed.len(), 1 + 264 * runs] {
        bomb.push(0x80);
        bomb.extend(length(len));
    }
    bomb.extend(&packed);
    bomb.extend([10, 0]);
    bomb.extend([0; 8]);
    assert_eq!(client.ask(&[b"FUNCTION", b"RESTORE", &bomb]), Value::Error(failed.to_owned()));
    assert_eq!(client.say("FUNCTION LIST"), Value::List(Vec::new()));
}

#[test]
fn a_function_that_writes_is_refused_as_a_command_that_writes() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(directory.path(), "");
    let other = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(other.path()) else { return };
    let (mut ours, mut theirs) = (served.connect(), redis.connect());
    for line in ["FUNCTION FLUSH", "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"] {
        assert_eq!(ours.say(line), theirs.say(line), "{line}");
        if line == "FUNCTION FLUSH" {
            for client in [&mut ours, &mut theirs] {
                load(client, "f", "return redis.call('get', 'k')");
            }
        }
        for asked in ["FCALL f 0", "FCALL_RO f 0", "MULTI", "FUNCTION LOAD x", "EXEC"] {
            assert_eq!(ours.say(asked), theirs.say(asked), "{asked} after {line}");
        }
    }
}

#[test]
fn what_is_taken_back_is_not_called() {
    let mut local =
        Local::create(Mapping::in_memory(&vec![0; 1 << 20], 0), 4096, Planted::None).unwrap();
    let small = library("small", "return 1");
    assert_eq!(local.run(&[b"FUNCTION", b"LOAD", small.as_bytes()]), b"$5\r\nsmall\r\n");
    let large = library("small", &format!("return 2 --{}\n", "x".repeat(1 << 20)));
    let refused = local.run(&[b"FUNCTION", b"LOAD", b"REPLACE", large.as_bytes()]);
    assert!(refused.starts_with(b"-OOM"), "{}", String::from_utf8_lossy(&refused));
    assert_eq!(local.say("FCALL small 0"), ":1\r\n");
    local.commit();
    assert_eq!(local.say("FUNCTION FLUSH"), "+OK\r\n");
    assert_eq!(local.say("FCALL small 0"), "-ERR Function not found\r\n");
}

#[test]
fn what_a_client_can_make_of_libraries_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(directory.path(), "proto-max-bulk-len 512mb\n");
    let mut client = served.connect();
    let many = "#!lua name=many\nlocal n = 0\nwhile n < 100000 do n = n + 1 \
                redis.register_function('f' .. n, function() return 1 end) end";
    let refused = client.ask(&[b"FUNCTION", b"LOAD", many.as_bytes()]);
    assert!(
        matches!(&refused, Value::Error(text) if text.contains("at most 1000 functions")),
        "{refused:?}"
    );
    let endless = "#!lua name=endless\nwhile true do end";
    let refused = client.ask(&[b"FUNCTION", b"LOAD", endless.as_bytes()]);
    assert!(
        matches!(&refused, Value::Error(text) if text.contains("FUNCTION LOAD timeout")),
        "{refused:?}"
    );
    let memory = "#!lua name=memory\nlocal s = 'x'\nwhile true do s = s .. s end";
    let refused = client.ask(&[b"FUNCTION", b"LOAD", memory.as_bytes()]);
    assert!(
        matches!(&refused, Value::Error(text) if text.contains("not enough memory")
            || text.contains("FUNCTION LOAD timeout")),
        "{refused:?}"
    );
    let nested = format!("#!lua name=nested\nlocal a = {}1{}", "(".repeat(5000), ")".repeat(5000));
    let refused = client.ask(&[b"FUNCTION", b"LOAD", nested.as_bytes()]);
    assert!(matches!(&refused, Value::Error(_)), "{refused:?}");
    let binary = client.ask(&[b"FUNCTION", b"LOAD", b"#!lua name=b\n\x1bLua"]);
    assert!(matches!(&binary, Value::Error(_)), "{binary:?}");
    assert_eq!(client.say("FUNCTION LIST"), Value::List(Vec::new()));
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(client.say("PING"), text("PONG"));
}
