//! What a dump, a primary, a client or a script may take of the server's memory.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::served::{Client, Served, Value, request, text};
use tiersmith_kv::rdb::{self, Limits};

fn server(directory: &Path, conf: &str) -> Served {
    std::fs::write(directory.join("conf"), conf).unwrap();
    Served::start(directory)
}

fn status(served: &Served, name: &str) -> u64 {
    let all = std::fs::read_to_string(format!("/proc/{}/status", served.id())).unwrap();
    let line = all.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Bytes of memory that are not the tier's.
fn memory(served: &Served) -> u64 {
    status(served, "RssAnon")
}

fn info(client: &mut Client, name: &str) -> String {
    let Value::Text(all) = client.say("INFO everything") else { panic!("no text") };
    let line =
        all.lines().find_map(|line| line.strip_prefix(&format!("{name}:")).map(str::to_owned));
    line.unwrap_or_default()
}

/// A length as dumps have it.
fn length(len: usize) -> Vec<u8> {
    // The most significant byte first.
    [&[0x80][..], &[24, 16, 8, 0].map(|bit| (len >> bit) as u8)].concat()
}

/// `len` bytes that are `start`, then `middle` again and again, then `end`, compressed by LZF.
fn compressed(start: &[u8], middle: [u8; 2], len: usize, end: u8) -> Vec<u8> {
    let mut packed = vec![start.len() as u8 + 1];
    packed.extend_from_slice(start);
    packed.extend_from_slice(&middle);
    let mut left = len - start.len() - 2 - 1;
    // A copy of at most 264 bytes, of what begins two bytes before.
    while left > 2 {
        let count =
            left.min(264) - if left.min(264) < left && left - left.min(264) < 3 { 3 } else { 0 };
        match count - 2 {
            more @ 7.. => packed.extend([0xe0, (more - 7) as u8, 1]),
            few => packed.extend([(few as u8) << 5, 1]),
        }
        left -= count;
    }
    for byte in &middle[..left] {
        packed.extend([0, *byte]);
    }
    packed.extend([0, end]);
    let lengths = [length(packed.len()), length(len)].concat();
    [&[0xc3][..], &lengths, &packed].concat()
}

/// A dump of one list whose listpack has so many bytes: two for each of its elements.
fn list_of(len: usize) -> Vec<u8> {
    let head = [&(len as u32).to_le_bytes()[..], &0xffff_u16.to_le_bytes()].concat();
    let mut dump = b"REDIS0010\x12\x01k\x01\x02".to_vec();
    dump.extend(compressed(&head, [1, 1], len, 0xff));
    dump.extend([0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    dump
}

#[test]
fn a_value_of_a_dump_takes_no_more_memory_than_its_budget() {
    let mut sizes = Vec::new();
    let small = list_of(7 + 2 * 1000);
    let limits = Limits { value: 1 << 20, file: 1 << 30 };
    rdb::read(&mut small.as_slice(), limits, |item| {
        let rdb::Content::List(all) = item.content else { panic!("no list") };
        sizes.push(all.len());
        Ok(())
    })
    .unwrap();
    assert_eq!(sizes, [1000]);
    // 64 MiB of elements of one byte, from 700 kB.
    let large = list_of(7 + (64 << 20));
    assert!(large.len() < 1 << 20);
    let refused = rdb::read(&mut large.as_slice(), limits, |_| panic!("the value is refused"));
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("key \"k\"") && said.contains("1048576 bytes"), "{said}");
    // So is one that is not packed: its elements are strings of a byte.
    let mut dump = b"REDIS0010\x01\x01k".to_vec();
    dump.extend(length(100_000));
    dump.extend(b"\x01x".repeat(100_000));
    assert!(rdb::read(&mut dump.as_slice(), limits, |_| panic!("the value is refused")).is_err());
}

#[test]
fn a_dump_that_unpacks_to_much_more_than_the_tier_is_refused() {
    // Many keys, each of which is small enough, that had expired.
    let mut dump = b"REDIS0010".to_vec();
    let value = compressed(&[], *b"ab", 100_000, b'x');
    for _ in 0..1000 {
        dump.extend(b"\xfc\x01\0\0\0\0\0\0\0\0\x01k");
        dump.extend(&value);
    }
    dump.extend([0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    let limits = Limits { value: 1 << 20, file: 10 << 20 };
    let mut count = 0;
    let refused = rdb::read(&mut dump.as_slice(), limits, |_| {
        count += 1;
        Ok(())
    });
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("10485760 bytes") && said.contains("tier"), "{said}");
    assert!((100..120).contains(&count), "{count}");
}

#[test]
fn an_import_of_a_dump_that_grows_in_memory_is_refused_in_a_sentence() {
    let map = tiersmith_pmem::Mapping::in_memory(&vec![0; 8 << 20], 0);
    let said =
        tiersmith_kv::import(map, &mut list_of(7 + (64 << 20)).as_slice()).unwrap_err().to_string();
    assert!(said.contains("larger tier"), "{said}");
}

#[test]
fn a_request_beyond_the_query_buffer_ends_its_client_also_while_a_script_runs() {
    let directory = tempfile::tempdir().unwrap();
    let server =
        server(directory.path(), "client-query-buffer-limit 1mb\nbusy-reply-threshold 50\n");
    let before = memory(&server);
    let (mut large, mut runs, mut other) = (server.connect(), server.connect(), server.connect());
    let push = |client: &mut Client| {
        let _ = client.out.set_write_timeout(Some(Duration::from_millis(500)));
        let _ = client.out.write_all(b"*1000000\r\n$500000000\r\n");
        (0..64).take_while(|_| client.out.write_all(&vec![b'x'; 1 << 20]).is_ok()).count()
    };
    assert!(push(&mut large) < 8, "the server reads on");
    runs.send(&[b"EVAL", b"while true do end", b"0"]).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let mut large = server.connect();
    assert!(push(&mut large) < 8, "the server reads on while a script runs");
    assert!(memory(&server) < before + (48 << 20), "{} MiB", memory(&server) >> 20);
    assert_eq!(other.say("SCRIPT KILL"), text("OK"));
    assert!(runs.read().is_ok());
    assert_eq!(other.say("PING"), text("PONG"));
}

#[test]
fn replies_that_nobody_takes_are_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path(), "");
    let mut client = server.connect();
    client.ask(&[b"SET", b"key", &vec![b'v'; 1 << 20]]);
    // There is no limit for replies, as in Redis; but who takes none is not answered further.
    let mut all = request(&[b"GET", b"key"]).repeat(1500);
    all.extend(request(&[b"PING"]));
    client.out.write_all(&all).unwrap();
    std::thread::sleep(Duration::from_millis(800));
    assert!(memory(&server) < 300 << 20, "{} MiB", memory(&server) >> 20);
    assert_eq!(server.connect().say("PING"), text("PONG"));
    for _ in 0..1500 {
        let Value::Text(value) = client.read().unwrap() else { panic!("no value") };
        assert_eq!(value.len(), 1 << 20);
    }
    assert_eq!(client.read().unwrap(), text("PONG"));
}

#[test]
fn a_client_that_stays_behind_is_cut_at_the_soft_limit_when_its_time_is_over() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path(), "client-output-buffer-limit pubsub 64mb 1mb 1\n");
    let (mut slow, mut other) = (server.connect(), server.connect());
    slow.say("SUBSCRIBE c");
    other.ask(&[b"PUBLISH", b"c", &vec![b'x'; 4 << 20]]);
    assert_eq!(other.say("PUBSUB NUMSUB c"), Value::List(vec![text("c"), Value::Int(1)]));
    let began = Instant::now();
    while other.say("PUBSUB NUMSUB c") != Value::List(vec![text("c"), Value::Int(0)]) {
        assert!(began.elapsed() < Duration::from_secs(15), "the client is still there");
        std::thread::sleep(Duration::from_millis(50));
    }
    let said = other.say("CONFIG GET client-output-buffer-limit");
    let Value::List(said) = said else { panic!("{said:?}") };
    assert_eq!(said[1], text("normal 0 0 0 slave 268435456 67108864 60 pubsub 67108864 1048576 1"));
}

#[test]
fn messages_of_a_script_do_not_collect_beyond_their_subscribers_limit() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path(), "client-output-buffer-limit pubsub 1mb 0 0\n");
    let before = memory(&server);
    let (mut slow, mut other) = (server.connect(), server.connect());
    slow.say("SUBSCRIBE c");
    let script = "local m = string.rep('x', 100000) for i = 1, 5000 do redis.call('publish', 'c', \
                  m .. i) end";
    assert_eq!(other.ask(&[b"EVAL", script.as_bytes(), b"0"]), Value::Nil);
    let most = status(&server, "VmHWM");
    assert!(most < before + (250 << 20), "{} MiB", most >> 20);
    assert_eq!(other.say("PUBSUB NUMSUB c"), Value::List(vec![text("c"), Value::Int(0)]));
}

#[test]
fn a_monitor_that_does_not_read_is_cut_at_the_limit_of_subscribers() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path(), "client-output-buffer-limit pubsub 1mb 0 0\n");
    let before = memory(&server);
    let mut other = server.connect();
    let monitors = |other: &mut Client| {
        let Value::Text(list) = other.say("CLIENT LIST") else { panic!("no text") };
        list.lines().filter(|line| line.contains(" flags=OU ")).count()
    };
    let mut slow = server.connect();
    slow.say("MONITOR");
    let script = "local m = string.rep('x', 100000) for i = 1, 5000 do redis.call('echo', m .. i) \
                  end";
    assert_eq!(other.ask(&[b"EVAL", script.as_bytes(), b"0"]), Value::Nil);
    assert_eq!(monitors(&mut other), 0);
    let most = status(&server, "VmHWM");
    assert!(most < before + (250 << 20), "{} MiB", most >> 20);

    let mut slow = server.connect();
    slow.say("MONITOR");
    let value = vec![b'x'; 100_000];
    for _ in 0..40 {
        other.ask(&[b"ECHO", &value]);
    }
    assert_eq!(monitors(&mut other), 0);

    // What is said of normal clients counts for those that monitor.
    other.ask(&[b"CONFIG", b"SET", b"client-output-buffer-limit", b"normal 64mb 0 0"]);
    let mut slow = server.connect();
    slow.say("MONITOR");
    for _ in 0..40 {
        other.ask(&[b"ECHO", &value]);
    }
    assert_eq!(monitors(&mut other), 1);
}

#[test]
fn what_a_slow_subscriber_has_taken_does_not_stay_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path(), "");
    let (mut slow, mut other) = (server.connect(), server.connect());
    slow.say("SUBSCRIBE c");
    let message = vec![b'x'; 1 << 20];
    let mut publish = || other.ask(&[b"PUBLISH", b"c", &message]);
    for _ in 0..6 {
        publish();
    }
    // It always has some to take, so that its buffer is never empty.
    for _ in 0..100 {
        publish();
        let Value::List(said) = slow.read().unwrap() else { panic!("no message") };
        assert_eq!(said.len(), 3);
    }
    let Value::Text(list) = other.say("CLIENT LIST") else { panic!("no text") };
    let line = list.lines().find(|line| line.contains(" flags=PU ")).unwrap();
    let number = |name: &str| -> u64 {
        let field = line.split(' ').find_map(|field| field.strip_prefix(name)).unwrap();
        field.parse().unwrap()
    };
    assert!(number("omem=") > 1 << 20, "{line}");
    assert!(number("rbs=") < 40 << 20, "{line}");
}

#[test]
fn scripts_that_eval_brought_go_before_they_fill_the_memory() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path(), "");
    let mut client = server.connect();
    let kept = client.ask(&[b"SCRIPT", b"LOAD", b"return 'kept'"]);
    let Value::Text(kept) = kept else { panic!("{kept:?}") };
    let body = "y".repeat(1 << 20);
    for n in 0..600 {
        let said =
            client.ask(&[b"EVAL", format!("local s = '{body}' return {n}").as_bytes(), b"0"]);
        assert_eq!(said, Value::Int(n));
    }
    for n in 0..2000 {
        assert_eq!(client.ask(&[b"EVAL", format!("return {n}").as_bytes(), b"0"]), Value::Int(n));
    }
    let count: u64 = info(&mut client, "number_of_cached_scripts").parse().unwrap();
    assert!(count <= 501, "{count}");
    let used: u64 = info(&mut client, "used_memory_lua").parse().unwrap();
    assert!(used < 200 << 20, "{used}");
    assert_eq!(client.say(&format!("EVALSHA {kept} 0")), text("kept"));
}

#[test]
fn a_few_bytes_do_not_ask_for_more_replies_than_memory_has() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = server(directory.path(), "");
    let mut client = server.connect();
    client.ask(&[b"SET", b"key", &vec![b'v'; 8 << 20]]);
    let mut many: Vec<&[u8]> = vec![b"MGET"];
    many.resize(400, b"key");
    let mut script: Vec<&[u8]> = vec![b"EVAL", b"return #redis.call('mget', unpack(KEYS))"];
    script.push(b"399");
    script.extend(&many[1..]);
    for (what, words) in [("MGET", many), ("EVAL", script)] {
        let mut client = server.connect();
        client.send(&words).unwrap();
        match client.read() {
            Err(_) => assert_eq!(what, "MGET"),
            Ok(Value::Error(why)) => assert!(what == "EVAL" && why.contains("too large"), "{why}"),
            Ok(_) => panic!("{what} has an answer"),
        }
        assert!(server.is_running());
    }
    let most = status(&server, "VmHWM") >> 20;
    assert!(most < 1500, "{most} MiB");
    assert_eq!(client.say("STRLEN key"), Value::Int(8 << 20));
}

fn import(bytes: &[u8]) -> Result<tiersmith_kv::Imported, String> {
    let map = tiersmith_pmem::Mapping::in_memory(&vec![0; 4 << 20], 0);
    tiersmith_kv::import(map, &mut &bytes[..]).map_err(|error| error.to_string())
}

#[test]
fn a_note_in_an_append_only_file_has_a_limit() {
    let set = request(&[b"SET", b"key", b"1"]);
    let note = |len: usize| [&b"#"[..], &vec![b'x'; len], b"\r\n", &set].concat();
    assert_eq!(import(&note(100)).unwrap().keys, 1);
    // Without a limit all of it would be looked at again with each part that is read.
    let why = import(&note(5000)).unwrap_err();
    assert!(why.contains("a note of more than"), "{why}");
}

#[test]
fn a_script_in_an_append_only_file_has_an_end() {
    let why = import(&request(&[b"EVAL", b"while true do end", b"0"])).unwrap_err();
    assert!(why.contains("EVAL is refused") && why.contains("takes more than 30 s"), "{why}");
}

#[test]
fn the_large_elements_of_a_list_are_counted_before_they_are_too_many() {
    let mut dump = b"REDIS0010\x12\x01k\x80\x00\x01\x00\x00".to_vec();
    // Each is said to be a large one, and has one byte.
    dump.extend(b"\x01\x01x".repeat(65_536));
    dump.extend(b"\xff\0\0\0\0\0\0\0\0");
    let limits = rdb::Limits { value: 1 << 20, file: 1 << 30 };
    let why = rdb::read(&mut &dump[..], limits, |_| Ok(())).unwrap_err().to_string();
    assert!(why.contains("takes more than 1048576 bytes"), "{why}");
}
