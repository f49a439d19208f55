//! Being the primary of a real Redis, and of another server of this program.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::replica::{fill, info, same, server, wait_for, write};
use crate::served::{Client, Served, Value, assert_sound, contents, free_port, text};

/// A primary of ours with a real replica.
struct Pair {
    ours: Served,
    redis: Served,
    port: u16,
    directory: tempfile::TempDir,
    other: tempfile::TempDir,
}

/// Settings with which ours listens at a port.
fn conf(port: u16) -> String {
    format!("port {port}\nrepl-ping-replica-period 1\n")
}

fn lead(before: impl Fn(&mut Client), settings: &[&str]) -> Option<Pair> {
    let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (port, redis_port) = (free_port(), free_port());
    let ours = server(directory.path(), &conf(port));
    before(&mut ours.connect());
    let settings = [&["--repl-diskless-load", "disabled"][..], settings].concat();
    let redis = Served::redis_at(other.path(), redis_port, &settings)?;
    let said = redis.connect().say(&format!("REPLICAOF 127.0.0.1 {port}"));
    assert_eq!(said, text("OK"));
    Some(Pair { ours, redis, port, directory, other })
}

fn wait_until_up(replica: &mut Client) {
    wait_for("the link to our server", || info(replica, "master_link_status") == "up");
}

/// Waits until the replica has all that ours has.
fn catch_up(ours: &mut Client, replica: &mut Client) {
    wait_for("the replica's position", || {
        info(ours, "master_repl_offset") == info(replica, "slave_repl_offset")
    });
}

#[test]
fn a_real_replica_gets_a_copy_and_every_command_once() {
    for load in ["disabled", "swapdb"] {
        let settings = ["--repl-diskless-load", load];
        let Some(mut pair) = lead(fill, &settings) else {
            println!("skipped: redis-server is not installed");
            return;
        };
        let (mut ours, mut theirs) = (pair.ours.connect(), pair.redis.connect());
        wait_until_up(&mut theirs);
        assert!(contents(&mut ours) == contents(&mut theirs), "the copy differs");
        let mut random = fastrand::Rng::with_seed(21);
        for round in 0..4 {
            write(&mut ours, &mut random, 600);
            if round == 2 {
                // The connection is cut while commands come.
                theirs.say("CLIENT KILL TYPE master");
                write(&mut ours, &mut random, 200);
                wait_until_up(&mut theirs);
            }
            ours.say("SET last 1");
            assert_eq!(ours.say("WAIT 1 20000"), Value::Int(1), "round {round}");
            same(&mut ours, &mut theirs, &format!("round {round}"));
        }
        let line = info(&mut ours, "slave0");
        assert!(line.starts_with("ip=127.0.0.1,port=") && line.contains("state=online"), "{line}");
        assert_eq!(
            (info(&mut ours, "sync_full"), info(&mut ours, "sync_partial_ok")),
            ("1".into(), "1".into())
        );
        assert_eq!(info(&mut ours, "master_replid"), info(&mut theirs, "master_replid"));
        let Value::List(role) = ours.say("ROLE") else { panic!("no role") };
        let Value::List(replicas) = &role[2] else { panic!("no replicas") };
        assert_eq!((&role[0], replicas.len()), (&text("master"), 1));
        // Keys that expire go there because they went here.
        wait_for("the end of keys that expire", || {
            theirs.say("KEYS short*") == Value::List(Vec::new())
                && ours.say("DBSIZE") == theirs.say("DBSIZE")
        });
        // The position is exact after a crash, and the replica goes on without a copy.
        catch_up(&mut ours, &mut theirs);
        let at = info(&mut theirs, "slave_repl_offset").parse::<u64>().unwrap();
        pair.ours.kill();
        assert_sound(pair.directory.path());
        pair.ours = server(pair.directory.path(), &conf(pair.port));
        ours = pair.ours.connect();
        assert!(info(&mut ours, "master_repl_offset").parse::<u64>().unwrap() >= at);
        ours.say("SET after crash");
        wait_until_up(&mut theirs);
        write(&mut ours, &mut random, 300);
        ours.say("SET last 2");
        assert_eq!(ours.say("WAIT 1 20000"), Value::Int(1));
        same(&mut ours, &mut theirs, "after the crash");
        assert_eq!(
            info(&mut ours, "sync_full"),
            "0",
            "a replica that had everything was given a copy"
        );
        drop(pair.other);
    }
}

#[test]
fn a_copy_is_of_one_moment_however_much_changes_meanwhile() {
    let large = |client: &mut Client| {
        for n in 0..8000 {
            client.ask(&[b"SET", format!("k{n}").as_bytes(), "v".repeat(n % 900).as_bytes()]);
        }
        for n in 0..3000 {
            client.say(&format!("HSET h0 f{n} {n}"));
            client.say(&format!("ZADD z0 {n} m{n}"));
        }
    };
    let Some(pair) = lead(large, &[]) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let second = tempfile::tempdir().unwrap();
    let ours_too = server(second.path(), "");
    let (mut ours, mut theirs, mut third) =
        (pair.ours.connect(), pair.redis.connect(), ours_too.connect());
    let stop = std::sync::atomic::AtomicBool::new(false);
    let writers: Vec<Client> = (0..2).map(|_| pair.ours.connect()).collect();
    std::thread::scope(|scope| {
        for (seed, mut client) in (0..).zip(writers) {
            let stop = &stop;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(100 + seed);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    write(&mut client, &mut random, 50);
                    for _ in 0..50 {
                        let (one, other) = (random.u32(..8000), random.u32(..8000));
                        client.say(&format!("APPEND k{one} {other}"));
                        client.say(&format!("RENAME k{one} k{other}"));
                        client.say(&format!("HSET h0 f{one} {other}"));
                        client.say(&format!("ZINCRBY z0 1.5 m{one}"));
                        client.say(&format!("DEL k{}", one / 2));
                        client.say(&format!(
                            "SET k{} {}",
                            one / 3,
                            "n".repeat(other as usize % 700)
                        ));
                    }
                }
            });
        }
        for _ in 0..6 {
            for replica in [&mut theirs, &mut third] {
                replica.say("REPLICAOF NO ONE");
                // A history of its own, so that it cannot go on from where it was.
                replica.say("FLUSHALL");
                replica.say("SET its own");
                replica.say(&format!("REPLICAOF 127.0.0.1 {}", pair.port));
            }
            std::thread::sleep(Duration::from_millis(100));
            wait_until_up(&mut theirs);
            wait_until_up(&mut third);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    ours.say("SET last 1");
    assert_eq!(ours.say("WAIT 2 20000"), Value::Int(2));
    same(&mut ours, &mut theirs, "Redis");
    same(&mut ours, &mut third, "ours");
    assert!(info(&mut ours, "sync_full").parse::<u64>().unwrap() >= 12);
    drop(ours_too);
    assert_sound(second.path());
}

#[test]
fn a_replica_of_a_replica_has_the_same_bytes_at_the_same_positions() {
    // A real primary, ours in the middle, and a real replica of ours.
    let (top, middle, end) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ports = [free_port(), free_port(), free_port()];
    let settings = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"];
    let Some(first) = Served::redis_at(top.path(), ports[0], &settings) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let mut random = fastrand::Rng::with_seed(31);
    let mut theirs = first.connect();
    write(&mut theirs, &mut random, 300);
    let own = format!("{}replicaof 127.0.0.1 {}\n", conf(ports[1]), ports[0]);
    let mut ours = server(middle.path(), &own);
    let mut between = ours.connect();
    wait_until_up(&mut between);
    let last = Served::redis_at(end.path(), ports[2], &[]).unwrap();
    let mut leaf = last.connect();
    leaf.say(&format!("REPLICAOF 127.0.0.1 {}", ports[1]));
    wait_until_up(&mut leaf);
    for round in 0..4 {
        write(&mut theirs, &mut random, 300);
        if round == 1 {
            ours.kill();
            write(&mut theirs, &mut random, 100);
            ours = server(middle.path(), &own);
            between = ours.connect();
            wait_until_up(&mut between);
        }
        if round == 2 {
            leaf.say("CLIENT KILL TYPE master");
        }
        theirs.say("SELECT 2");
        theirs.say("INCR rounds");
        theirs.say("SELECT 0");
        wait_for("the same position everywhere", || {
            let at = info(&mut theirs, "master_repl_offset");
            info(&mut between, "slave_repl_offset") == at
                && info(&mut leaf, "slave_repl_offset") == at
        });
        same(&mut theirs, &mut between, &format!("the middle, round {round}"));
        same(&mut theirs, &mut leaf, &format!("the end, round {round}"));
        assert_eq!(info(&mut theirs, "master_replid"), info(&mut leaf, "master_replid"));
    }
    assert_eq!(info(&mut theirs, "sync_full"), "1");
}

/// Reads a line.
fn line(stream: &mut impl Read) -> String {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while stream.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    String::from_utf8_lossy(&line).trim_end().to_owned()
}

/// A replica that has its copy; and the position.
fn by_hand(socket: &Path) -> (UnixStream, u64) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"REPLCONF capa eof capa psync2\r\n").unwrap();
    assert_eq!(line(&mut stream), "+OK");
    stream.write_all(b"PSYNC ? -1\r\n").unwrap();
    let said = line(&mut stream);
    let position = said.rsplit(' ').next().unwrap().parse().unwrap();
    let mark = line(&mut stream);
    let mark = mark.strip_prefix("$EOF:").unwrap_or_else(|| panic!("{mark}")).as_bytes().to_owned();
    let (mut all, mut part) = (Vec::new(), [0; 4096]);
    while !all.ends_with(&mark) {
        let got = stream.read(&mut part).unwrap();
        assert!(got > 0);
        all.extend_from_slice(&part[..got]);
    }
    stream.write_all(format!("REPLCONF ACK {position}\r\n").as_bytes()).unwrap();
    (stream, position)
}

#[test]
fn a_replica_that_takes_too_slowly_or_says_nothing_is_cut() {
    let directory = tempfile::tempdir().unwrap();
    let conf =
        "repl-backlog-size 16kb\nclient-output-buffer-limit replica 1mb 256kb 2\nrepl-timeout 2\n";
    let mut server = server(directory.path(), conf);
    let mut client = server.connect();
    let value = "v".repeat(60_000);
    let count = |client: &mut Client| info(client, "connected_slaves");
    // Beyond the hard limit, behind what the socket holds.
    let (slow, _) = by_hand(&server.socket);
    wait_for("the replica", || info(&mut client, "slave0").contains("state=online"));
    let mut sent = 0;
    while count(&mut client) == "1" {
        client.say(&format!("SET a {value}"));
        sent += 1;
        assert!(sent < 200, "a slow replica is kept");
    }
    assert!(sent >= 17, "cut after {sent} values");
    drop(slow);
    // A little beyond the soft limit, for too long, though it acknowledges.
    let (mut slow, position) = by_hand(&server.socket);
    wait_for("the replica", || info(&mut client, "slave0").contains("state=online"));
    for _ in 0..12 {
        client.say(&format!("SET a {value}"));
    }
    let began = Instant::now();
    while count(&mut client) == "1" {
        // It is heard, so that it is not cut for its silence.
        let _ = slow.write_all(format!("REPLCONF ACK {position}\r\n").as_bytes());
        std::thread::sleep(Duration::from_millis(200));
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "a replica beyond the soft limit is kept"
        );
    }
    assert!(began.elapsed() > Duration::from_millis(1500), "cut after {:?}", began.elapsed());
    // One that says nothing.
    let _silent = by_hand(&server.socket);
    wait_for("the end of the silent one", || count(&mut client) == "0");
    // One that claims to have what is not there does not confirm it.
    let (mut liar, position) = by_hand(&server.socket);
    liar.write_all(format!("REPLCONF ACK {}\r\n", position + 1_000_000).as_bytes()).unwrap();
    client.say("SET a 1");
    assert_eq!(client.say("WAIT 1 300"), Value::Int(0));
    assert!(server.is_running());
}

/// A replica that says nothing more once it has its copy, whose length it was told; and the copy.
fn by_length(socket: &Path, request: &str) -> (UnixStream, Vec<u8>) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    if request.starts_with('P') {
        assert!(line(&mut stream).starts_with("+FULLRESYNC "));
    }
    let head = line(&mut stream);
    let len: usize = head.strip_prefix('$').unwrap_or_else(|| panic!("{head}")).parse().unwrap();
    let mut copy = vec![0; len];
    stream.read_exact(&mut copy).unwrap();
    (stream, copy)
}

#[test]
fn who_wants_the_length_of_a_copy_first_gets_it() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path(), "");
    let mut client = server.connect();
    fill(&mut client);
    for request in ["SYNC\r\n", "PSYNC ? -1\r\n"] {
        let (mut stream, copy) = by_length(&server.socket, request);
        let limits = tiersmith_kv::rdb::Limits { value: 1 << 30, file: 1 << 30 };
        let mut keys = 0;
        let read = tiersmith_kv::rdb::read(&mut copy.as_slice(), limits, |_| {
            keys += 1;
            Ok(())
        });
        assert_eq!(read.unwrap(), keys);
        assert_eq!(keys as usize, contents(&mut client).len());
        // Nothing is between the copy and the stream, and no acknowledgement is waited for.
        client.say("SET behind it");
        assert_eq!(next_command(&mut stream), "SELECT 0");
        assert_eq!(next_command(&mut stream), "SET behind it");
    }
}

/// Words that stand for a command in the stream are of that command, and go with it when there is
/// no stream.
#[test]
fn a_replica_is_not_told_of_what_was_done_before_it_came() {
    for done in [["GEOADD stale 1 1 m", "ZREM stale m"], ["SPOP all 9", "SADD all m"]] {
        let directory = tempfile::tempdir().unwrap();
        let server = server(directory.path(), "");
        let mut client = server.connect();
        client.say("SADD all m");
        for command in done {
            client.say(command);
        }
        let (mut stream, _) = by_length(&server.socket, "PSYNC ? -1\r\n");
        client.say("SET kept 1");
        assert_eq!(next_command(&mut stream), "SELECT 0");
        assert_eq!(next_command(&mut stream), "SET kept 1", "after {done:?}");
    }
}

#[test]
fn the_stream_says_what_commands_did() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path(), "");
    let mut client = server.connect();
    client.say("SADD t one");
    client.say("RPUSH l a b c");
    let (mut stream, _) = by_hand(&server.socket);
    let mut other = server.connect();
    other.send(&[b"BLPOP", b"none", b"late", b"0"]).unwrap();
    for (said, told) in [
        ("SET a 1 EX 1000", "SET a 1 PXAT *"),
        ("GET a", ""),
        ("EXPIRE a 2000", "PEXPIREAT a *"),
        ("EXPIRE a -1", "DEL a"),
        ("DEL a", ""),
        ("INCRBYFLOAT f 1.5", "SET f 1.5 KEEPTTL"),
        ("SPOP t", "SREM t one"),
        ("BLPOP l 0", "LPOP l"),
        ("BLMPOP 0 2 none l RIGHT COUNT 1", "LMPOP 1 l RIGHT COUNT 1"),
        ("BRPOPLPUSH l m 0", "RPOPLPUSH l m"),
        ("GETDEL f", "DEL f"),
        ("PUBLISH channel text", "PUBLISH channel text"),
        ("SETEX s 100 v", "SET s v PXAT *"),
        ("GETEX s PERSIST", "PERSIST s"),
        ("RPUSH late x", "MULTI|RPUSH late x|LPOP late|EXEC"),
        ("APPEND s w", "APPEND s w"),
        ("LPOP nothing", ""),
        ("HINCRBYFLOAT h f 0.5", "HSET h f 0.5"),
        ("SET now here PX 1", "SET now here PXAT *"),
        ("FLUSHALL", "FLUSHALL"),
        // The mark is for that database.
        ("SELECT 3", "SELECT 3"),
        ("SET three 1", "SET three 1"),
    ] {
        let reply = client.say(said);
        assert!(!matches!(reply, Value::Error(_)), "{said}: {reply:?}");
        // What comes up to this mark is of that command.
        client.say("PUBLISH mark mark");
        let mut commands = Vec::new();
        loop {
            let command = next_command(&mut stream);
            if command == "PUBLISH mark mark" {
                break;
            }
            if !commands.is_empty() || command != "SELECT 0" {
                commands.push(command);
            }
        }
        let found = commands.join("|");
        let fits = match told.strip_suffix('*') {
            Some(begin) => found.starts_with(begin) && found.len() == begin.len() + 13,
            None if said.starts_with("RPUSH late") => {
                told.replace("MULTI|", "").replace("|EXEC", "") == found || told == found
            }
            None => found == told,
        };
        assert!(fits, "{said}: {found}");
    }
    // An EXEC and a script are transactions of what they did.
    for words in ["MULTI", "INCR n", "GET n", "INCR n", "EXEC"] {
        client.say(words);
    }
    client.ask(&[b"EVAL", b"redis.call('set','x','1') redis.call('incr','x')", b"0"]);
    let told: Vec<String> = (0..8).map(|_| next_command(&mut stream)).collect();
    assert_eq!(
        told.join("|"),
        "MULTI|INCR n|INCR n|EXEC|MULTI|set x 1|incr x|EXEC".replace("set x 1", "SET x 1")
    );
}

#[test]
fn a_transaction_selects_its_first_database_before_it_begins_as_in_redis() {
    let Some(pair) = lead(|_| {}, &[]) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let settings = ["--repl-diskless-sync-delay", "0"];
    let redis = Served::redis_at(directory.path(), free_port(), &settings).unwrap();
    let script =
        "redis.call('SET', 'q', '1') redis.call('SELECT', '2') redis.call('SET', 'w', '1')";
    let commands = [
        "SELECT 1",
        "SET a 1",
        "MULTI",
        "SET b 1",
        "SELECT 3",
        "SET c 1",
        "SELECT 1",
        "SET d 1",
        "EXEC",
        "SELECT 2",
        "MULTI",
        "SET x 1",
        "INCR x",
        "EXEC",
        "MULTI",
        "SELECT 0",
        "SELECT 3",
        "EXEC",
        "SET z 1",
        "SELECT 0",
        "MULTI",
        "PUBLISH channel text",
        "SET y 1",
        "EXEC",
        "SELECT 3",
        "EVAL",
        "SET t 1",
        "PUBLISH end end",
    ];
    let streams = [&pair.ours, &redis].map(|server| {
        let mut client = server.connect();
        let (mut stream, position) = by_hand(&server.socket);
        // Redis waits for what a replica says after it has noticed that the copy is made.
        wait_for("the replica", || info(&mut client, "slave0").contains("state=online"));
        stream.write_all(format!("REPLCONF ACK {position}\r\n").as_bytes()).unwrap();
        for command in commands {
            let said = match command {
                "EVAL" => client.ask(&[b"EVAL", script.as_bytes(), b"0"]),
                command => client.say(command),
            };
            assert!(!matches!(said, Value::Error(_)), "{command}: {said:?}");
        }
        let mut told = Vec::new();
        while told.last().is_none_or(|last| last != "PUBLISH end end") {
            let command = next_command(&mut stream);
            if command != "PING" {
                told.push(command);
            }
        }
        told
    });
    let [ours, theirs] = &streams;
    assert_eq!(ours, theirs);
    assert!(ours.join("|").contains("|SELECT 2|MULTI|SET x 1|INCR x|EXEC|"), "{ours:?}");
    // A real replica has the same.
    let (mut ours, mut theirs) = (pair.ours.connect(), pair.redis.connect());
    wait_until_up(&mut theirs);
    for command in commands.iter().filter(|command| **command != "EVAL") {
        ours.say(command);
    }
    assert_eq!(ours.say("WAIT 1 20000"), Value::Int(1));
    same(&mut ours, &mut theirs, "after transactions in several databases");
}

/// The next command of the stream, in words.
fn next_command(stream: &mut UnixStream) -> String {
    let head = line(stream);
    let count: usize = head.strip_prefix('*').unwrap_or_else(|| panic!("{head}")).parse().unwrap();
    let words = (0..count).map(|_| {
        let len: usize = line(stream)[1..].parse().unwrap();
        let mut bytes = vec![0; len + 2];
        stream.read_exact(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    });
    words.collect::<Vec<_>>().join(" ")
}

/// What writers were told: that it is written, and that a replica has it.
struct Told {
    written: Vec<u64>,
    confirmed: Vec<u64>,
}

/// Writers that count until the server is gone.
fn count_until_killed(server: &mut Served, from: u64, replicas: &str) -> Told {
    let writers: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    let told: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..)
            .zip(writers)
            .map(|(id, mut client)| {
                scope.spawn(move || {
                    let (mut written, mut confirmed) = (0, 0);
                    for n in from.. {
                        let (key, value) = (format!("w{id}"), n.to_string());
                        let set: [&[u8]; 3] = [b"SET", key.as_bytes(), value.as_bytes()];
                        match client.send(&set).and_then(|()| client.read()) {
                            Ok(Value::Text(_)) => written = n,
                            _ => break,
                        }
                        let wait: [&[u8]; 3] = [b"WAIT", replicas.as_bytes(), b"0"];
                        match client.send(&wait).and_then(|()| client.read()) {
                            Ok(Value::Int(1..)) => confirmed = n,
                            _ => break,
                        }
                    }
                    (written, confirmed)
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(1200));
        server.kill();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let (written, confirmed) = told.into_iter().unzip();
    Told { written, confirmed }
}

fn assert_has(client: &mut Client, told: &[u64], what: &str) {
    for (id, last) in told.iter().enumerate() {
        let Value::Text(found) = client.say(&format!("GET w{id}")) else {
            panic!("w{id} is lost: {what}")
        };
        assert!(found.parse::<u64>().unwrap() >= *last, "w{id} is {found}, and {last} was {what}");
    }
}

#[test]
fn a_killed_primary_has_all_that_it_said_and_its_replica_all_that_wait_confirmed() {
    let Some(mut pair) = lead(|_| {}, &[]) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let mut theirs = pair.redis.connect();
    wait_until_up(&mut theirs);
    for round in 1..5 {
        let told = count_until_killed(&mut pair.ours, round * 1_000_000, "1");
        assert!(
            told.confirmed.iter().all(|last| *last > round * 1_000_000),
            "nothing is confirmed"
        );
        assert_sound(pair.directory.path());
        // The replica goes on alone, or the tier comes back.
        assert_has(&mut theirs, &told.confirmed, "confirmed by WAIT");
        let at = info(&mut theirs, "slave_repl_offset").parse::<u64>().unwrap();
        pair.ours = server(pair.directory.path(), &conf(pair.port));
        let mut ours = pair.ours.connect();
        assert!(
            info(&mut ours, "master_repl_offset").parse::<u64>().unwrap() >= at,
            "the replica is ahead"
        );
        assert_has(&mut ours, &told.written, "written");
        wait_until_up(&mut theirs);
        ours.say("SET round done");
        assert_eq!(ours.say("WAIT 1 20000"), Value::Int(1));
        same(&mut ours, &mut theirs, &format!("round {round}"));
    }
}
