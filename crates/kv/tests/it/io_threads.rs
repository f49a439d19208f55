//! Several threads read and send: what clients see is as with one.

use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use crate::served::{Client, Served, Value, assert_sound, request, text};

const CLIENTS: usize = 24;

fn server(directory: &Path, conf: &str) -> Served {
    std::fs::write(directory.join("conf"), conf).unwrap();
    Served::start(directory)
}

/// A server, somebody who holds it up, and the clients of a batch.
fn crowd(directory: &Path, conf: &str) -> (Served, Client, Vec<Client>) {
    let served = server(directory, conf);
    let first = served.connect();
    let all = (0..CLIENTS).map(|_| served.connect()).collect();
    (served, first, all)
}

fn error(value: &Value) -> &str {
    match value {
        Value::Error(said) => said,
        other => panic!("no error: {other:?}"),
    }
}

/// What a script does while the requests of all others come in, so that they are one batch.
fn hold_up(client: &mut Client) {
    let script = b"local from = redis.call('time') local us = 0 while us < 100000 do \
                   local now = redis.call('time') \
                   us = (now[1] - from[1]) * 1000000 + now[2] - from[2] end";
    client.send(&[b"EVAL", script, b"0"]).unwrap();
}

fn number(client: &mut Client, name: &str) -> u64 {
    let Value::Text(info) = client.say("INFO everything") else { panic!("no text") };
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

#[test]
fn the_requests_of_a_batch_are_answered_in_order_by_any_number_of_threads() {
    for threads in [1, 2, 3, 8] {
        let directory = tempfile::tempdir().unwrap();
        let (served, mut first, mut all) =
            crowd(directory.path(), &format!("io-threads {threads}\n"));
        hold_up(&mut first);
        for (number, client) in all.iter_mut().enumerate() {
            let key = format!("key:{number}");
            let mut bytes = Vec::new();
            // More than is parsed ahead, of all sizes, and the begin of one that is not whole.
            for n in 0..40 {
                let value = "v".repeat(n * n * 3);
                bytes.extend(request(&[b"SET", key.as_bytes(), value.as_bytes()]));
                bytes.extend(request(&[b"STRLEN", key.as_bytes()]));
            }
            bytes.extend(b"*2\r\n$4\r\nPING\r\n$3\r\nen");
            client.out.write_all(&bytes).unwrap();
        }
        assert_eq!(first.read().unwrap(), Value::Nil);
        for client in &mut all {
            for n in 0..40 {
                assert_eq!(client.read().unwrap(), text("OK"));
                assert_eq!(client.read().unwrap(), Value::Int(n * n * 3));
            }
            client.out.write_all(b"d\r\n").unwrap();
            assert_eq!(client.read().unwrap(), text("end"));
        }
        let shared = ["io_threaded_reads_processed", "io_threaded_writes_processed"]
            .map(|name| number(&mut first, name) >= CLIENTS as u64 / 2);
        assert_eq!(shared, [threads > 1; 2], "with {threads} threads");
        assert_eq!(number(&mut first, "io_threads_active"), u64::from(threads > 1));
        drop(served);
        assert_sound(directory.path());
    }
}

#[test]
fn what_one_of_a_batch_does_to_the_others_happens_before_their_requests() {
    let directory = tempfile::tempdir().unwrap();
    let (served, mut first, mut all) = crowd(directory.path(), "io-threads 4\n");
    assert_eq!(first.say("ACL SETUSER default resetkeys ~key:*"), text("OK"));
    let names: Vec<String> = (0..CLIENTS).map(|n| format!("key:{n}")).collect();
    hold_up(&mut first);
    // Whoever is first ends the others, whose requests are parsed by then.
    for (client, name) in all.iter_mut().zip(&names) {
        let mut bytes = request(&[b"SET", name.as_bytes(), b"1"]);
        bytes.extend(request(&[b"CLIENT", b"KILL", b"TYPE", b"normal"]));
        bytes.extend(request(&[b"SET", name.as_bytes(), b"2"]));
        bytes.extend(request(&[b"QUIT"]));
        client.out.write_all(&bytes).unwrap();
    }
    drop(first);
    let mut answered = 0;
    for client in &mut all {
        let mut said = Vec::new();
        // One that was ended is closed, or reset because it had sent more.
        let _ = client.out.read_to_end(&mut said);
        if !said.is_empty() {
            answered += 1;
        }
    }
    let mut reader = served.connect();
    let set = names.iter().filter(|name| reader.say(&format!("GET {name}")) != Value::Nil).count();
    assert_eq!((answered, set), (1, 1), "the others were ended before their first request");
}

#[test]
fn requests_that_were_parsed_before_a_script_took_long_are_executed_once_behind_it() {
    let directory = tempfile::tempdir().unwrap();
    let (served, mut first, mut all) =
        crowd(directory.path(), "io-threads 4\nbusy-reply-threshold 1000\n");
    let mut killer = served.connect();
    hold_up(&mut first);
    for (number, client) in all.iter_mut().enumerate() {
        let key = format!("key:{number}");
        let mut bytes = Vec::new();
        if number == CLIENTS / 2 {
            bytes.extend(request(&[b"EVAL", b"while true do end", b"0"]));
        }
        for _ in 0..5 {
            bytes.extend(request(&[b"INCR", key.as_bytes()]));
        }
        bytes.extend(b"*2\r\n$4\r\nINCR\r\n$5\r\nke");
        client.out.write_all(&bytes).unwrap();
    }
    // They say more while the script runs, with which the first one may be a batch.
    std::thread::sleep(Duration::from_millis(1500));
    for client in &mut all {
        client.out.write_all(b"y:1\r\n").unwrap();
    }
    while killer.say("SCRIPT KILL") != text("OK") {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(first.read().unwrap(), Value::Nil);
    for (number, client) in all.iter_mut().enumerate() {
        if number == CLIENTS / 2 {
            assert!(error(&client.read().unwrap()).contains("Script killed"));
        }
        let mut count = 0;
        for _ in 0..5 {
            match client.read().unwrap() {
                Value::Int(now) => {
                    count += 1;
                    assert_eq!(now, count);
                }
                Value::Error(said) => assert!(said.starts_with("BUSY"), "{said}"),
                other => panic!("{other:?}"),
            }
        }
        // The last one is whole, whoever read its parts.
        match client.read().unwrap() {
            Value::Int(_) => {}
            Value::Error(said) => assert!(said.starts_with("BUSY"), "{said}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_came_in_one_batch_with_a_script_that_takes_long_ends_it() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(directory.path(), "io-threads 4\nbusy-reply-threshold 500\n");
    let mut first = served.connect();
    let mut all: Vec<Client> = (0..CLIENTS).map(|_| served.connect()).collect();
    hold_up(&mut first);
    for (number, client) in all.iter_mut().enumerate() {
        match number {
            0 => client.send(&[b"EVAL", b"while true do end", b"0"]).unwrap(),
            _ => client.send(&[b"SCRIPT", b"KILL"]).unwrap(),
        }
    }
    assert_eq!(first.read().unwrap(), Value::Nil);
    assert!(error(&all[0].read().unwrap()).contains("Script killed"));
    let said: Vec<Value> = all[1..].iter_mut().map(|client| client.read().unwrap()).collect();
    assert!(said.contains(&text("OK")), "{said:?}");
    assert_eq!(number(&mut first, "connected_clients"), CLIENTS as u64 + 1);
}

#[test]
fn who_is_killed_takes_nothing_any_more_and_is_counted_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(directory.path(), "io-threads 2\n");
    let (mut killer, mut waits) = (served.connect(), served.connect());
    let Value::Int(id) = waits.say("CLIENT ID") else { panic!("no number") };
    waits.send(&[b"BLPOP", b"list", b"0"]).unwrap();
    while number(&mut killer, "blocked_clients") == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut bytes = request(&[b"CLIENT", b"KILL", b"ID", id.to_string().as_bytes()]);
    bytes.extend(request(&[b"RPUSH", b"list", b"precious"]));
    bytes.extend(request(&[b"LRANGE", b"list", b"0", b"-1"]));
    bytes.extend(request(&[b"CLIENT", b"KILL", b"ID", id.to_string().as_bytes()]));
    killer.out.write_all(&bytes).unwrap();
    assert_eq!(killer.read().unwrap(), Value::Int(1));
    assert_eq!(killer.read().unwrap(), Value::Int(1));
    assert_eq!(killer.read().unwrap(), Value::List(vec![text("precious")]));
    assert_eq!(killer.read().unwrap(), Value::Int(0));
    assert_eq!(number(&mut killer, "connected_clients"), 1);
}

#[test]
fn clients_that_go_in_a_batch_are_not_counted_and_nor_are_the_others_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let (_served, mut first, mut all) = crowd(directory.path(), "io-threads 4\n");
    hold_up(&mut first);
    for (number, client) in all.iter_mut().enumerate() {
        client.send(&[if number % 6 == 5 { &b"QUIT"[..] } else { b"PING" }]).unwrap();
    }
    first.read().unwrap();
    all.iter_mut().for_each(|client| drop(client.read().unwrap()));
    let left = CLIENTS - CLIENTS / 6 + 1;
    assert_eq!(number(&mut first, "connected_clients"), left as u64);
}

#[test]
fn a_number_of_threads_is_said_at_the_start_and_within_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(directory.path(), "io-threads 3\n");
    let mut client = served.connect();
    let said = client.say("CONFIG SET io-threads 4");
    assert!(error(&said).contains("can't set immutable config"), "{said:?}");
    for wrong in ["0", "129", "many", "-1"] {
        let mut all = tiersmith_kv::Configuration::default();
        let why = all.set("io-threads", wrong).unwrap_err();
        assert_eq!(why, "`io-threads` takes a number from 1 to 128");
    }
}
