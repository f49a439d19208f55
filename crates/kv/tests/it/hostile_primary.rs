//! A primary that does what no Redis does, or what one does rarely.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::served::{Client, Served, Value, request, text};

/// Answers the beginning of a conversation up to PSYNC, and that with `answer`.
fn greet(listener: &TcpListener, answer: &[u8]) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    let mut input = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut line = String::new();
        assert!(input.read_line(&mut line).unwrap() > 0, "the replica is gone");
        match line.trim_end() {
            "PING" => stream.write_all(b"+PONG\r\n").unwrap(),
            "REPLCONF" => stream.write_all(b"+OK\r\n").unwrap(),
            "PSYNC" => break,
            _ => {}
        }
    }
    for _ in 0..4 {
        input.read_line(&mut String::new()).unwrap();
    }
    stream.write_all(answer).unwrap();
    stream
}

/// All of its data, which are none.
fn nothing() -> Vec<u8> {
    let mut bytes = format!("+FULLRESYNC {} 0\r\n$18\r\nREDIS0009", "a".repeat(40)).into_bytes();
    bytes.extend([0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes
}

fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn info(client: &mut Client, name: &str) -> String {
    let Value::Text(all) = client.say("INFO replication") else { panic!("no text") };
    let line =
        all.lines().find_map(|line| line.strip_prefix(&format!("{name}:")).map(str::to_owned));
    line.unwrap_or_default()
}

/// A replica that follows the listener; the answer to its PSYNC.
fn followed(
    answer: &[u8],
    first: &str,
) -> (tempfile::TempDir, Served, Client, TcpListener, TcpStream) {
    let directory = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Served::start(directory.path());
    let mut client = server.connect();
    client.say(first);
    let port = listener.local_addr().unwrap().port();
    assert_eq!(client.say(&format!("REPLICAOF 127.0.0.1 {port}")), text("OK"));
    let stream = greet(&listener, answer);
    (directory, server, client, listener, stream)
}

#[test]
fn a_time_that_is_over_when_it_comes_takes_no_key_away() {
    let (_directory, _server, mut client, _listener, mut stream) = followed(&nothing(), "PING");
    for line in [
        "SET expire v",
        "PEXPIREAT expire 1000",
        "PERSIST expire",
        "SET set v PXAT 1000",
        "INCRBY other 5",
        "PERSIST set",
        "SET gone v PXAT 1000",
        "SET done 1",
    ] {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        stream.write_all(&request(&words)).unwrap();
    }
    wait_for("the last command", || client.say("GET done") == text("1"));
    assert_eq!(client.say("GET expire"), text("v"));
    assert_eq!(client.say("GET set"), text("v"));
    // That one is there until the primary says that it is not, and is not shown.
    assert_eq!(client.say("GET gone"), Value::Nil);
    assert_eq!(client.say("DBSIZE"), Value::Int(5));
}

#[test]
fn a_primary_that_goes_on_with_what_nobody_has_is_not_followed() {
    let (_directory, _server, mut client, _listener, mut stream) =
        followed(b"+CONTINUE\r\n", "SET own value");
    // The replica may have cut the connection already.
    let _ = stream.write_all(&request(&[b"SET", b"theirs", b"value"]));
    wait_for("the reason", || info(&mut client, "master_link_down_reason").contains("CONTINUE"));
    assert_eq!(client.say("GET own"), text("value"));
    assert_eq!(client.say("GET theirs"), Value::Nil);
}

#[test]
fn lines_are_no_commands_of_a_primary() {
    let (_directory, _server, mut client, _listener, mut stream) = followed(&nothing(), "PING");
    stream.write_all(&request(&[b"SET", b"key", b"value"])).unwrap();
    stream.write_all(b"\nFLUSHALL\r\n").unwrap();
    wait_for("the reason", || info(&mut client, "master_link_down_reason").contains("no commands"));
    assert_eq!(client.say("GET key"), text("value"));
}

#[test]
fn a_transaction_that_is_cut_off_did_not_begin() {
    let (_directory, _server, mut client, listener, mut stream) = followed(&nothing(), "PING");
    let mut bytes = request(&[b"SET", b"key", b"1"]);
    let position = bytes.len();
    for words in [&[&b"MULTI"[..]][..], &[b"SELECT", b"3"], &[b"SET", b"key", b"2"]] {
        bytes.extend(request(words));
    }
    stream.write_all(&bytes).unwrap();
    wait_for("the command", || client.say("GET key") == text("1"));
    std::thread::sleep(Duration::from_millis(200));
    drop(stream);
    let mut stream = greet(&listener, b"+CONTINUE\r\n");
    assert_eq!(info(&mut client, "slave_repl_offset"), position.to_string());
    stream.write_all(&request(&[b"SET", b"key", b"3"])).unwrap();
    wait_for("the command", || client.say("GET key") == text("3"));
}

/// The position that the next connection asks for; it is answered with `answer`.
fn asked(listener: &TcpListener, answer: &[u8]) -> (u64, TcpStream) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut input = BufReader::new(stream.try_clone().unwrap());
    let mut words = Vec::new();
    loop {
        let mut line = String::new();
        assert!(input.read_line(&mut line).unwrap() > 0, "the replica is gone");
        match line.trim_end() {
            "PING" => stream.write_all(b"+PONG\r\n").unwrap(),
            "REPLCONF" => stream.write_all(b"+OK\r\n").unwrap(),
            word if !words.is_empty() || word == "PSYNC" => words.push(word.to_owned()),
            _ => {}
        }
        if words.len() == 5 {
            break;
        }
    }
    stream.write_all(answer).unwrap();
    (words[4].parse().unwrap(), stream)
}

#[test]
fn a_question_for_the_position_within_a_transaction_is_no_place_to_go_on_from() {
    let (_directory, _server, mut client, listener, mut stream) = followed(&nothing(), "PING");
    let mut bytes = request(&[b"SET", b"key", b"1"]);
    let position = bytes.len() as u64;
    for words in [&[&b"MULTI"[..]][..], &[b"SET", b"key", b"2"], &[b"REPLCONF", b"GETACK", b"*"]] {
        bytes.extend(request(words));
    }
    stream.write_all(&bytes).unwrap();
    wait_for("the command", || client.say("GET key") == text("1"));
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(info(&mut client, "slave_repl_offset"), position.to_string());
    drop(stream);
    let (from, mut stream) = asked(&listener, b"+CONTINUE\r\n");
    assert_eq!(from, position + 1);
    stream.write_all(&request(&[b"SET", b"key", b"3"])).unwrap();
    wait_for("the command", || client.say("GET key") == text("3"));
}

#[test]
fn a_transaction_that_finds_no_space_did_not_happen_and_the_data_before_it_are_read() {
    let (_directory, _server, mut client, _listener, mut stream) = followed(&nothing(), "PING");
    stream.write_all(&request(&[b"SET", b"key", b"1"])).unwrap();
    stream.write_all(&request(&[b"MULTI"])).unwrap();
    stream.write_all(&request(&[b"SET", b"key", b"2"])).unwrap();
    // So many words that the record is a large one, and then more bytes than the tier has.
    for n in 0..20_000 {
        stream.write_all(&request(&[b"SET", format!("k{n}").as_bytes(), b"v"])).unwrap();
    }
    for n in 0..30 {
        let value = vec![b'v'; 4 << 20];
        stream.write_all(&request(&[b"SET", format!("large{n}").as_bytes(), &value])).unwrap();
    }
    stream.write_all(&request(&[b"EXEC"])).unwrap();
    wait_for("the reason", || info(&mut client, "master_link_down_reason").contains("EXEC"));
    let why = info(&mut client, "master_link_down_reason");
    assert!(why.contains("OOM"), "{why}");
    assert_eq!(client.say("GET key"), text("1"));
    assert_eq!(client.say("DBSIZE"), Value::Int(1));
}

#[test]
fn what_a_primary_sends_faster_than_it_is_applied_waits_in_its_socket() {
    let (_directory, server, mut client, _listener, mut stream) = followed(&nothing(), "PING");
    stream.write_all(&request(&[b"SET", b"key", b"1"])).unwrap();
    wait_for("the command", || client.say("GET key") == text("1"));
    let memory = || {
        let all = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
        let line = all.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() >> 10
    };
    let before = memory();
    // The server's thread is busy, and the primary sends 1 GB of commands.
    client.send(&[b"EVAL", b"while true do end", b"0"]).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let command = request(&[b"SET", b"key", &vec![b'v'; 4 << 20]]);
    let sent = (0..250).take_while(|_| stream.write_all(&command).is_ok()).count();
    assert!(sent < 60, "{sent} commands of 4 MiB were taken");
    assert!(memory() < before + 300, "{} MiB", memory());
    drop(server);
}

#[test]
fn a_command_of_a_primary_has_a_limit() {
    let (_directory, server, mut client, _listener, mut stream) = followed(&nothing(), "PING");
    client.say("CONFIG SET client-query-buffer-limit 1mb");
    let port = info(&mut client, "master_port");
    drop(stream.write_all(&request(&[b"SET", b"key", b"1"])));
    wait_for("the command", || client.say("GET key") == text("1"));
    // The limit of a connection is that of its begin.
    client.say("REPLICAOF NO ONE");
    assert_eq!(client.say(&format!("REPLICAOF 127.0.0.1 {port}")), text("OK"));
    let mut stream = greet(&_listener, &nothing());
    let mut bytes = b"*1000000\r\n".to_vec();
    bytes.extend(b"$1048576\r\n");
    bytes.extend(vec![b'x'; 1 << 20]);
    bytes.extend(b"\r\n$1048576\r\n");
    for _ in 0..4 {
        // It may be cut already.
        let _ = stream.write_all(&bytes);
    }
    wait_for("the reason", || {
        info(&mut client, "master_link_down_reason").contains("client-query-buffer-limit")
    });
    drop(server);
}

#[test]
fn a_position_that_leaves_no_room_to_count_is_none() {
    let answer = format!("+FULLRESYNC {} {}\r\n", "a".repeat(40), u64::MAX);
    let (_directory, mut server, mut client, listener, _stream) =
        followed(answer.as_bytes(), "SET own value");
    wait_for("the reason", || info(&mut client, "master_link_down_reason").contains("no position"));
    assert_eq!(client.say("GET own"), text("value"));
    assert!(server.is_running());
    let mut stream = greet(&listener, &nothing());
    stream.write_all(&request(&[b"SET", b"key", b"1"])).unwrap();
    wait_for("the command", || client.say("GET key") == text("1"));
}

#[test]
fn what_a_primary_says_makes_no_line_of_its_own_in_info() {
    let (_directory, _server, mut client, _listener, _stream) =
        followed(b"-ERR no\rmaster_link_status:up\x1b[2J\n", "PING");
    wait_for("the reason", || info(&mut client, "master_link_down_reason").contains("ERR no"));
    let Value::Text(all) = client.say("INFO replication") else { panic!("no text") };
    let all = all.replace("\r\n", "\n");
    assert!(!all.chars().any(|c| c.is_control() && c != '\n'), "{all:?}");
}

#[test]
fn empty_lines_of_a_primary_are_not_collected() {
    let (_directory, _server, mut client, _listener, mut stream) = followed(&nothing(), "PING");
    stream.write_all(b"\n\n\n").unwrap();
    wait_for("the position", || info(&mut client, "slave_repl_offset") == "3");
    stream.write_all(&request(&[b"SET", b"key", b"1"])).unwrap();
    wait_for("the command", || client.say("GET key") == text("1"));
}

#[test]
fn what_a_primary_says_in_the_middle_of_a_transaction_has_a_limit() {
    let (_directory, server, mut client, _listener, mut stream) = followed(&nothing(), "PING");
    stream.write_all(&request(&[b"SET", b"key", b"1"])).unwrap();
    stream.write_all(&request(&[b"MULTI"])).unwrap();
    // It is no command of the transaction, and is for this server's own replicas.
    let asks = request(&[b"REPLCONF", b"GETACK", &vec![b'*'; 4 << 20]]);
    for _ in 0..60 {
        // It may be cut already.
        if stream.write_all(&asks).is_err() {
            break;
        }
    }
    wait_for("the reason", || {
        info(&mut client, "master_link_down_reason").contains("a transaction of more than")
    });
    assert_eq!(client.say("GET key"), text("1"));
    drop(server);
}

#[test]
fn a_script_of_a_primary_has_an_end() {
    let (_directory, _server, mut client, _listener, mut stream) = followed(&nothing(), "PING");
    stream.write_all(&request(&[b"SET", b"key", b"1"])).unwrap();
    let script = b"redis.call('set', 'key', 2) while true do pcall(redis.call, 'get', 'key') end";
    stream.write_all(&request(&[b"EVAL", script, b"0"])).unwrap();
    wait_for("the reason", || {
        info(&mut client, "master_link_down_reason").contains("takes more than 30 s")
    });
    assert_eq!(client.say("GET key"), text("1"));
}
