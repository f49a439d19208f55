//! Dumps of a real Redis, and a real Redis as the primary.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::served::{Client, Served, TIER, Value, assert_sound, contents, free_port, text};
use tiersmith_kv::{Imported, export, import, import_parts};
use tiersmith_pmem::{Access, Mapping, OpenOptions};

pub(crate) fn server(directory: &Path, conf: &str) -> Served {
    std::fs::write(directory.join("conf"), conf).unwrap();
    Served::start(directory)
}

fn error(value: &Value) -> &str {
    match value {
        Value::Error(text) => text,
        other => panic!("no error: {other:?}"),
    }
}

/// A line of INFO.
pub(crate) fn info(client: &mut Client, name: &str) -> String {
    let Value::Text(all) = client.say("INFO everything") else { panic!("no text") };
    let line =
        all.lines().find_map(|line| line.strip_prefix(&format!("{name}:")).map(str::to_owned));
    line.unwrap_or_default()
}

pub(crate) fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(40), "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Values of every type in every form that Redis 7.0 keeps them.
pub(crate) fn fill(redis: &mut Client) {
    for db in [0, 3] {
        redis.say(&format!("SELECT {db}"));
        for value in ["", "x", "12", "-7", "70000", "-3000000000", "1.5"] {
            redis.ask(&[b"SET", format!("s:{value}").as_bytes(), value.as_bytes()]);
        }
        redis.ask(&[b"SET", b"s:compressed", "abcabc".repeat(500).as_bytes()]);
        redis.ask(&[
            b"SET",
            b"s:long",
            &(0..70_000_u32).map(|n| b'a' + (n % 1009 % 23) as u8).collect::<Vec<_>>(),
        ]);
        for (name, count) in [("small", 5), ("large", 1500)] {
            for n in 0..count {
                let long = "v".repeat(n % 90);
                redis.say(&format!("RPUSH l:{name} {n} e{n}{long} -{n} {}", n * 70_001));
                redis.say(&format!("HSET h:{name} f{n} {n} {n} g{n}{long}"));
                redis.say(&format!("SADD t:{name} m{n}{long} {n}"));
                redis.say(&format!("SADD i:{name} {n} -{n} {}", n * 100));
                redis.say(&format!("ZADD z:{name} {n}.25 m{n} -{n} {n} inf top{n} -inf low{n}"));
            }
        }
        redis.say("SADD i:32 1 -70000");
        redis.say("SADD i:64 1 -7000000000");
        for n in [
            "1",
            "-1",
            "100",
            "-4096",
            "4095",
            "4096",
            "32767",
            "-8388608",
            "2147483647",
            "-9000000000",
        ] {
            redis.say(&format!("RPUSH l:numbers {n}"));
        }
        for len in [1, 63, 64, 127, 128, 4095, 4096, 9000, 70_000] {
            redis.say(&format!("RPUSH l:lengths {}", "y".repeat(len)));
        }
        fill_streams(redis);
        redis.say("SET expires 1 PX 900000000");
        redis.say("PEXPIRE h:small 800000000");
        redis.say("PEXPIRE t:large 700000000");
        redis.say("PEXPIRE l:small 700000001");
        redis.say("PEXPIRE z:large 700000002");
    }
    redis.say("SELECT 0");
}

/// Streams with removed entries, several blocks, groups, and what is pending.
fn fill_streams(redis: &mut Client) {
    for n in 1..250_u64 {
        redis.say(&format!("XADD x:large {n}-{} f value{n} {n} {}", n % 3, n * 70_001));
        redis.say(&format!("XADD x:wide {n}-1 a{} {}", n % 2, "y".repeat(n as usize * 7 % 900)));
    }
    for number in ["-1", "4096", "-9000000000", "x", ""] {
        redis.say(&format!("XADD x:numbers 18446744073709551{}-* n {number}", 600 + number.len()));
    }
    for line in [
        "XDEL x:large 1-1 7-1 100-1 249-0",
        "XTRIM x:large MAXLEN 230",
        "XGROUP CREATE x:large g 0",
        "XGROUP CREATE x:large late 200-2 ENTRIESREAD 7",
        "XGROUP CREATE x:empty g $ MKSTREAM",
        "XGROUP CREATECONSUMER x:empty g nobody",
        "XREADGROUP GROUP g one COUNT 50 STREAMS x:large >",
        "XREADGROUP GROUP g two COUNT 20 STREAMS x:large >",
        "XREADGROUP GROUP late two COUNT 5 NOACK STREAMS x:large >",
        "XACK x:large g 20-2 21-0 22-1 75-0",
        "XCLAIM x:large g three 0 30-0 31-1 RETRYCOUNT 9",
        "XDEL x:large 40-1",
        "XADD x:gone 5-5 a b",
        "XDEL x:gone 5-5",
        "PEXPIRE x:wide 600000000",
    ] {
        let said = redis.say(line);
        assert!(!matches!(said, Value::Error(_)), "{line}: {said:?}");
    }
}

fn tier(path: &Path) -> Mapping {
    let mut options = OpenOptions::new(Access::Emulated, TIER);
    options.create = true;
    Mapping::open(path, &options).unwrap()
}

#[test]
fn a_dump_of_redis_is_read_whole_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let mut theirs = redis.connect();
    fill(&mut theirs);
    assert_eq!(theirs.say("SAVE"), text("OK"));
    let dump = std::fs::read(directory.path().join("dump.rdb")).unwrap();
    let imported = import(tier(&directory.path().join("tier")), &mut dump.as_slice()).unwrap();
    assert_sound(directory.path());
    let server = server(directory.path(), "");
    let mut ours = server.connect();
    let (mine, their) = (contents(&mut ours), contents(&mut theirs));
    assert_eq!(imported.keys as usize, their.len());
    for (mine, their) in mine.iter().zip(&their) {
        assert_eq!(mine, their);
    }
    assert_eq!(mine.len(), their.len());
    // A tier with keys is left alone.
    let again = import(
        Mapping::in_memory(&std::fs::read(directory.path().join("tier")).unwrap(), 0),
        &mut dump.as_slice(),
    );
    assert!(again.unwrap_err().to_string().contains("keys, and an import would mix with them"));
    // A dump that is damaged or cut leaves an empty tier, or (without a checksum's help) never a
    // panic.
    theirs.say("FLUSHALL");
    for n in 0..6 {
        theirs.say(&format!("SET s{n} {}", "ab".repeat(n * 20)));
        theirs.say(&format!("RPUSH l {n} x{n}"));
        theirs.say(&format!("ZADD z {n}.5 x{n}"));
        theirs.say(&format!("HSET h {n} x{n}"));
        theirs.say(&format!("SADD i {n}"));
        theirs.say(&format!("XADD x {n}-1 f {n}"));
    }
    theirs.say("XGROUP CREATE x g 0");
    theirs.say("XREADGROUP GROUP g c COUNT 2 STREAMS x >");
    theirs.say("SAVE");
    let dump = std::fs::read(directory.path().join("dump.rdb")).unwrap();
    let mut random = fastrand::Rng::with_seed(4);
    let mut refused = 0;
    for _ in 0..400 {
        let mut damaged = dump.clone();
        let at = random.usize(..damaged.len());
        if random.u8(..4) == 0 {
            damaged.truncate(at);
        } else {
            damaged[at] = random.u8(..);
        }
        let small = Mapping::in_memory(&vec![0; 2 << 20], 0);
        if damaged != dump && import(small, &mut damaged.as_slice()).is_err() {
            refused += 1;
        }
    }
    assert!(refused > 350, "{refused}");
    // What cannot be kept is named.
    let dump = b"REDIS0010\xf7\x81\x00\x00\x00\x00\x00\x00\x00\x01\x02\x01\x00\xff";
    let said = import(Mapping::in_memory(&vec![0; 2 << 20], 0), &mut dump.as_slice());
    assert!(said.unwrap_err().to_string().contains("the dump has data of a module"));
}

#[test]
fn a_real_redis_reads_what_is_exported_and_dumped_and_so_do_we() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let mut theirs = redis.connect();
    let mut ours_served = server(directory.path(), "");
    let mut ours = ours_served.connect();
    fill(&mut ours);
    ours.say("SET gone 1 PX 1");
    // Single values, from here to there, in every type; and back under another name.
    for db in [0, 3] {
        ours.say(&format!("SELECT {db}"));
        theirs.say(&format!("SELECT {db}"));
        let Value::List(keys) = ours.say("KEYS *") else { panic!("no keys") };
        for key in keys {
            let Value::Text(key) = key else { panic!("no key") };
            let time = match ours.say(&format!("PEXPIRETIME {key}")) {
                Value::Int(time @ 1..) => time.to_string(),
                _ => "0".to_owned(),
            };
            let restore = |from: &mut Client, to: &mut Client, as_key: &str| {
                let Some(bytes) = from.ask_bytes(&[b"DUMP", key.as_bytes()]) else { return };
                let words =
                    [b"RESTORE", as_key.as_bytes(), time.as_bytes(), &bytes, b"ABSTTL", b"REPLACE"];
                assert_eq!(to.ask(&words), text("OK"), "{key}");
            };
            restore(&mut ours, &mut theirs, &key);
            restore(&mut theirs, &mut ours, &key);
        }
    }
    assert!(contents(&mut ours) == contents(&mut theirs), "a value differs");
    for (line, said) in
        [("RESTORE s:x 0 x", "BUSYKEY"), ("RESTORE new 0 nonsense-nonsense", "ERR DUMP payload")]
    {
        assert!(error(&ours.say(line)).starts_with(said), "{line}");
        assert!(error(&theirs.say(line)).starts_with(said), "{line}");
    }
    let mine = contents(&mut ours);
    // All of it: a Redis loads the file, and so does a new tier.
    ours_served.kill();
    let mut options = OpenOptions::new(Access::Emulated, 0);
    options.preallocate = false;
    let map = Mapping::open(&directory.path().join("tier"), &options).unwrap();
    let mut dump = Vec::new();
    assert_eq!(export(map, &mut dump).unwrap() as usize, mine.len());
    assert_sound(directory.path());
    redis.kill();
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("dump.rdb"), &dump).unwrap();
    let redis = Served::redis(other.path()).unwrap();
    assert!(contents(&mut redis.connect()) == mine, "what Redis loaded differs");
    let imported = import(tier(&other.path().join("tier")), &mut dump.as_slice()).unwrap();
    assert_eq!(imported.keys as usize, mine.len());
    let again = server(other.path(), "");
    assert!(contents(&mut again.connect()) == mine, "what was imported differs");
}

#[test]
fn a_value_that_is_no_dump_makes_no_key_and_ends_no_server() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = server(directory.path(), "");
    let mut client = server.connect();
    client.say("ZADD z 1 a 2.5 b");
    client.say("HSET h f v");
    client.say("RPUSH l 1 2 3");
    let mut random = fastrand::Rng::with_seed(9);
    for key in ["z", "h", "l"] {
        let sound = client.ask_bytes(&[b"DUMP", key.as_bytes()]).unwrap();
        for _ in 0..400 {
            let mut bytes = sound.clone();
            let at = random.usize(..bytes.len() - 10);
            bytes[at] = random.u8(..);
            if random.bool() {
                bytes.truncate(random.usize(..bytes.len()));
            } else {
                // No checksum.
                let end = bytes.len();
                bytes[end - 8..].fill(0);
            }
            client.ask(&[b"RESTORE", b"new", b"0", &bytes, b"REPLACE"]);
        }
    }
    assert!(server.is_running());
    server.kill();
    assert_sound(directory.path());
}

/// The files that a manifest of a Redis names.
fn append_only(directory: &Path) -> Vec<Vec<u8>> {
    let directory = directory.join("appendonlydir");
    let text = std::fs::read_to_string(directory.join("appendonly.aof.manifest")).unwrap();
    let names = tiersmith_kv::manifest(&text).unwrap();
    names.iter().map(|name| std::fs::read(directory.join(name)).unwrap()).collect()
}

fn replay(directory: &Path, parts: &[Vec<u8>]) -> Result<Imported, tiersmith_kv::Error> {
    // What an import before this one left.
    let _ = std::fs::remove_file(directory.join("tier"));
    let mut parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    import_parts(tier(&directory.join("tier")), &mut parts)
}

#[test]
fn an_append_only_file_of_redis_is_replayed_whole_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let settings = ["--appendonly", "yes", "--aof-timestamp-enabled", "yes"];
    let Some(redis) = Served::redis_at(directory.path(), free_port(), &settings) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let mut theirs = redis.connect();
    let mut random = fastrand::Rng::with_seed(12);
    write(&mut theirs, &mut random, 200);
    theirs.say("FLUSHALL");
    theirs.say("SET early 1");
    // The base is a dump, and what follows are commands.
    theirs.say("BGREWRITEAOF");
    wait_for("the end of the rewrite", || info(&mut theirs, "aof_rewrite_in_progress") == "0");
    write(&mut theirs, &mut random, 1000);
    theirs.say("SET over 1 PX 1");
    std::thread::sleep(Duration::from_millis(50));
    let their = contents(&mut theirs);
    let parts = append_only(directory.path());
    assert!(parts.len() >= 2 && parts[0].starts_with(b"REDIS"), "{}", parts.len());
    let imported = replay(directory.path(), &parts).unwrap();
    assert_eq!(imported.left_out, 0);
    assert_sound(directory.path());
    let mut ours = server(directory.path(), "");
    let all = [contents(&mut ours.connect()), their].map(|all| {
        let stays = |key: &Value| !matches!(key, Value::Text(key) if key.starts_with("short"));
        all.into_iter().filter(|(key, ..)| stays(key)).collect::<Vec<_>>()
    });
    for (mine, their) in all[0].iter().zip(&all[1]) {
        assert_eq!(mine, their, "what was replayed differs");
    }
    assert_eq!(all[0].len(), all[1].len());
    ours.kill();
    // One of a killed Redis may end anywhere in its last file: what is whole is there, and no half.
    let head = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n".to_vec();
    let tail =
        b"*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n2\r\n*1\r\n$4\r\nEXEC\r\n"
            .to_vec();
    for cut in [0, 5, 20, tail.len() - 1, tail.len()] {
        let part = [&head[..], &tail[..cut]].concat();
        let imported = replay(directory.path(), &[part]).unwrap();
        let whole = cut == tail.len();
        assert_eq!(imported.left_out, if whole { 0 } else { cut as u64 }, "{cut}");
        let mut ours = server(directory.path(), "");
        assert_eq!(ours.connect().say("GET a"), text(if whole { "2" } else { "1" }), "{cut}");
        ours.kill();
    }
    let cut = [&head[..], &tail[..5]].concat();
    for (parts, said) in [
        (vec![cut, head.clone()], "within a command"),
        (vec![[&head[..], b"*1\r\n$4\r\nXADD\r\n"].concat()], "XADD is refused"),
        (vec![[&head[..], b"PING\r\n"].concat()], "there is no command"),
    ] {
        assert!(replay(directory.path(), &parts).unwrap_err().to_string().contains(said), "{said}");
        let report = tiersmith_kv::check::check_file(&directory.path().join("tier")).unwrap();
        assert!(report.is_sound() && report.keys.iter().sum::<u64>() == 0, "{report}");
    }
}

struct Pair {
    redis: Served,
    ours: Served,
    port: u16,
    directory: tempfile::TempDir,
}

fn follow(settings: &[&str]) -> Option<Pair> {
    let (directory, port) = (tempfile::tempdir().unwrap(), free_port());
    let redis = Served::redis_at(directory.path(), port, settings)?;
    let ours = server(directory.path(), "");
    Some(Pair { redis, ours, port, directory })
}

fn wait_until_up(ours: &mut Client) {
    wait_for("the link to the primary", || {
        let why = info(ours, "master_link_down_reason");
        assert!(!why.contains("cannot follow"), "{why}");
        info(ours, "master_link_status") == "up"
    });
}

/// Commands of every family, some of them within an EXEC or a script.
pub(crate) fn write(redis: &mut Client, random: &mut fastrand::Rng, count: usize) {
    for _ in 0..count {
        let (k, n) = (random.u8(..6), random.i64(-50..50));
        let line = match random.u8(..27) {
            0 => format!("SELECT {}", random.u8(..3)),
            1 => format!("SET s{k} {n} PX {}", random.u32(100_000..900_000)),
            2 => format!("APPEND s{k} {n}"),
            3 => "INCR counter".to_owned(),
            4 => format!("RPUSH l{k} {n} x{n}"),
            5 => format!("LPOP l{k}"),
            6 => format!("HSET h{k} f{n} {n}"),
            7 => format!("HINCRBYFLOAT h{k} sum 0.1"),
            8 => format!("SADD t{k} {n} y{n}"),
            9 => format!("SPOP t{k}"),
            10 => format!("ZADD z{k} {n}.5 m{n}"),
            11 => format!("ZPOPMIN z{k}"),
            12 => format!("DEL s{k} l{}", k + 1),
            13 => format!("EXPIRE h{k} 100000"),
            14 => format!("PERSIST h{k}"),
            15 => format!("INCRBYFLOAT f{k} 0.1"),
            16 => format!("RENAME l{k} l{}", k + 1),
            17 => {
                for part in ["MULTI", "INCR counter", &format!("RPUSH l{k} {n}"), "EXEC"] {
                    redis.say(part);
                }
                continue;
            }
            18 => {
                let script = b"redis.call('incr', KEYS[1]) redis.call('rpush', KEYS[2], ARGV[1])";
                let list = format!("l{k}");
                redis.ask(&[b"EVAL", script, b"2", b"counter", list.as_bytes(), b"script"]);
                continue;
            }
            19 => format!("XADD x{k} MAXLEN ~ 40 * f {n} g y{n}"),
            20 => format!("XADD x{k} NOMKSTREAM MAXLEN 90 * f {n}"),
            21 => format!("XGROUP CREATE x{k} g{} 0 MKSTREAM", n % 2),
            22 => format!("XREADGROUP GROUP g{} c{} COUNT 4 STREAMS x{k} >", n % 2, n % 3),
            23 => format!("XAUTOCLAIM x{k} g{} c{} 0 0 COUNT 3", n % 2, n % 3),
            24 | 25 => {
                let Value::List(first) = redis.say(&format!("XRANGE x{k} - + COUNT 2")) else {
                    continue;
                };
                let Some(Value::List(entry)) = first.last() else { continue };
                let Value::Text(id) = &entry[0] else { panic!("no ID") };
                redis.say(&format!("XACK x{k} g{} {id}", n % 2));
                if n > 0 {
                    redis.say(&format!("XDEL x{k} {id}"));
                }
                continue;
            }
            _ => format!("SETEX short{k} 1 gone"),
        };
        redis.say(&line);
    }
    redis.say("SELECT 0");
}

/// Both have the same, but for keys that may go between two looks.
pub(crate) fn same(ours: &mut Client, theirs: &mut Client, when: &str) {
    let mut all = [contents(ours), contents(theirs)];
    for one in &mut all {
        one.retain(|(key, ..)| !matches!(key, Value::Text(key) if key.starts_with("short")));
    }
    let [mine, their] = all;
    for (mine, their) in mine.iter().zip(&their) {
        assert_eq!(mine, their, "{when}");
    }
    assert_eq!(mine.len(), their.len(), "{when}");
}

#[test]
fn a_real_primary_is_followed_and_each_of_its_commands_counts_once() {
    for diskless in ["yes", "no"] {
        let settings = ["--repl-diskless-sync", diskless, "--repl-diskless-sync-delay", "0"];
        let Some(mut pair) = follow(&settings) else {
            println!("skipped: redis-server is not installed");
            return;
        };
        let (mut theirs, mut ours) = (pair.redis.connect(), pair.ours.connect());
        fill(&mut theirs);
        ours.say("SET mine 1");
        let said = ours.say(&format!("REPLICAOF 127.0.0.1 {}", pair.port));
        assert_eq!(said, text("OK"));
        wait_until_up(&mut ours);
        assert!(
            contents(&mut ours) == contents(&mut theirs),
            "the copy differs (diskless {diskless})"
        );
        assert!(error(&ours.say("SET a 1")).starts_with("READONLY"));
        assert!(error(&ours.say("EVAL redis.call('set','a','1') 0")).starts_with("READONLY"));
        let Value::List(role) = ours.say("ROLE") else { panic!("no role") };
        assert_eq!((&role[0], &role[3]), (&text("slave"), &text("connected")));
        let mut random = fastrand::Rng::with_seed(11);
        let conf = format!("replicaof 127.0.0.1 {}\nrepl-timeout 5\n", pair.port);
        for round in 0..5 {
            write(&mut theirs, &mut random, 400);
            if round > 0 {
                // Killed while commands come, and while none come.
                pair.ours.kill();
                assert_sound(pair.directory.path());
                write(&mut theirs, &mut random, 100);
                pair.ours = server(pair.directory.path(), &conf);
                ours = pair.ours.connect();
                write(&mut theirs, &mut random, 300);
            }
            wait_until_up(&mut ours);
            assert_eq!(theirs.say("WAIT 1 20000"), Value::Int(1), "round {round}");
            same(&mut ours, &mut theirs, &format!("round {round}, diskless {diskless}"));
        }
        // Of all connections only the first one copied everything.
        assert_eq!(info(&mut theirs, "sync_full"), "1");
        assert_eq!(info(&mut ours, "master_replid"), info(&mut theirs, "master_replid"));
        // The primary's connection is cut, and comes again.
        theirs.say("CLIENT KILL TYPE replica");
        theirs.say("SET after cut");
        wait_for("the key", || ours.say("GET after") == text("cut"));
        assert_eq!(info(&mut theirs, "sync_full"), "1");
        // Keys go when the primary says so.
        wait_for("the end of keys that expire", || {
            theirs.say("KEYS short*") == Value::List(Vec::new())
                && ours.say("DBSIZE") == theirs.say("DBSIZE")
        });
        // What this server does not have ends the following, and says so.
        assert_eq!(theirs.say("PFADD sparse a"), Value::Int(1));
        assert_eq!(theirs.say("PFDEBUG TODENSE sparse"), Value::Int(1));
        let reason = |ours: &mut Client| info(ours, "master_link_down_reason");
        wait_for("the reason", || reason(&mut ours).to_uppercase().contains("PFDEBUG"));
        assert_eq!(ours.say("GET after"), text("cut"));
    }
}

#[test]
fn nothing_that_wait_confirmed_is_lost_when_the_primary_is_killed_and_we_go_on() {
    let Some(mut pair) = follow(&["--repl-diskless-sync-delay", "0"]) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let mut ours = pair.ours.connect();
    ours.say(&format!("REPLICAOF 127.0.0.1 {}", pair.port));
    wait_until_up(&mut ours);
    let writers: Vec<Client> = (0..3).map(|_| pair.redis.connect()).collect();
    let confirmed: Vec<(usize, u64)> = std::thread::scope(|scope| {
        let running: Vec<_> = writers
            .into_iter()
            .enumerate()
            .map(|(id, mut client)| {
                scope.spawn(move || {
                    let mut last = 0;
                    for n in 1.. {
                        let wrote = client.send(&[
                            b"SET",
                            format!("w{id}").as_bytes(),
                            n.to_string().as_bytes(),
                        ]);
                        if wrote.is_err()
                            || client.read().is_err()
                            || client.send(&[b"WAIT", b"1", b"0"]).is_err()
                        {
                            break;
                        }
                        match client.read() {
                            Ok(Value::Int(1)) => last = n,
                            _ => break,
                        }
                    }
                    (id, last)
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(1500));
        pair.redis.kill();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    });
    // The replica is killed as well, and comes back without its primary.
    pair.ours.kill();
    assert_sound(pair.directory.path());
    pair.ours = server(pair.directory.path(), &format!("replicaof 127.0.0.1 {}\n", pair.port));
    let mut ours = pair.ours.connect();
    assert_eq!(info(&mut ours, "master_link_status"), "down");
    assert_eq!(ours.say("REPLICAOF NO ONE"), text("OK"));
    assert_eq!(ours.say("SET now mine"), text("OK"));
    for (id, last) in confirmed {
        assert!(last > 3, "only {last} writes were confirmed");
        let Value::Text(found) = ours.say(&format!("GET w{id}")) else { panic!("w{id} is lost") };
        assert!(found.parse::<u64>().unwrap() >= last, "w{id}: {found}, and {last} was confirmed");
    }
    let Value::List(role) = ours.say("ROLE") else { panic!("no role") };
    assert_eq!(role[0], text("master"));
}

#[test]
fn half_of_a_copy_is_never_taken_for_a_whole() {
    let Some(mut pair) =
        follow(&["--repl-diskless-sync-delay", "0", "--rdb-key-save-delay", "3000"])
    else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let (mut theirs, mut ours) = (pair.redis.connect(), pair.ours.connect());
    for n in 0..2000 {
        theirs.say(&format!("SET key:{n} {}", "v".repeat(2000)));
    }
    ours.say("SET mine 1");
    ours.say(&format!("REPLICAOF 127.0.0.1 {}", pair.port));
    wait_for(
        "a part of the copy",
        || matches!(ours.say("GET mine"), Value::Error(said) if said.starts_with("LOADING")),
    );
    assert!(
        error(&ours.say("REPLICAOF NO ONE")).contains("a part of the primary's data is missing")
    );
    std::thread::sleep(Duration::from_millis(200));
    pair.ours.kill();
    pair.redis.kill();
    assert_sound(pair.directory.path());
    let report = tiersmith_kv::check::check_file(&pair.directory.path().join("tier")).unwrap();
    assert!(report.incomplete && report.to_string().contains("a part is missing"), "{report}");
    pair.ours = server(pair.directory.path(), "");
    let mut ours = pair.ours.connect();
    for line in
        ["GET mine", "GET key:1", "DBSIZE", "SET a 1", "EVAL return(redis.call('get','a')) 0"]
    {
        assert!(error(&ours.say(line)).starts_with("LOADING"), "{line}");
    }
    assert_eq!(ours.say("PING"), text("PONG"));
    assert_eq!(ours.say("FLUSHALL"), text("OK"));
    assert_eq!(ours.say("DBSIZE"), Value::Int(0));
    assert_eq!(ours.say("SET a 1"), text("OK"));
    pair.ours.kill();
    let report = tiersmith_kv::check::check_file(&pair.directory.path().join("tier")).unwrap();
    assert!(!report.incomplete, "{report}");
}

#[test]
fn hyperloglogs_of_a_primary_are_followed_from_its_copy_and_its_commands() {
    let Some(pair) = follow(&["--repl-diskless-sync-delay", "0"]) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let (mut theirs, mut ours) = (pair.redis.connect(), pair.ours.connect());
    let add = |client: &mut Client, key: &str, from: u32, to: u32| {
        let elements: Vec<String> = (from..to).map(|n| n.to_string()).collect();
        client.say(&format!("PFADD {key} {}", elements.join(" ")));
    };
    add(&mut theirs, "sparse", 0, 50);
    add(&mut theirs, "dense", 0, 5000);
    // The count is cached in the value that is copied, and is not believed for long.
    theirs.say("PFCOUNT dense");
    ours.say(&format!("REPLICAOF 127.0.0.1 {}", pair.port));
    wait_until_up(&mut ours);
    add(&mut theirs, "sparse", 40, 90);
    add(&mut theirs, "dense", 4000, 7000);
    add(&mut theirs, "grows", 0, 3000);
    theirs.say("PFMERGE all sparse dense grows");
    // Redis passes on a PFCOUNT that changed what is cached.
    theirs.say("PFCOUNT all");
    assert_eq!(theirs.say("WAIT 1 20000"), Value::Int(1));
    for key in ["sparse", "dense", "grows", "all", "sparse grows", "none"] {
        let line = format!("PFCOUNT {key}");
        assert_eq!(ours.say(&line), theirs.say(&line), "{key}");
    }
    assert_eq!(info(&mut ours, "master_link_status"), "up");
}
