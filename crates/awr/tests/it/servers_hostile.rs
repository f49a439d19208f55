//! Servers that lie: nothing a server sends or leaves out makes a source wait for ever, panic in
//! the caller, or fill the memory.
//!
//! The servers here are threads on unix sockets in a temporary directory; none has to be installed.
//! The patience of the sources is a second or less where nothing comes, the limits of the tests are
//! for hangs only.

use std::io::{BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tiersmith_awr::sources::{self, Address, Asking, LiveSource, Surroundings};

/// What a server does with a connection.
type Manner = Arc<dyn Fn(UnixStream) + Send + Sync>;

/// A server on a socket of this name; its threads end with the test's process.
fn server(name: &str, manner: impl Fn(UnixStream) + Send + Sync + 'static) -> TempDir {
    let dir = tempfile::Builder::new().prefix("ts-bad-").tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join(name)).unwrap();
    let manner: Manner = Arc::new(manner);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let manner = Arc::clone(&manner);
            std::thread::spawn(move || manner(stream));
        }
    });
    dir
}

/// Sends the same for ever, or until the other side has gone.
fn flood(mut to: UnixStream, bytes: &[u8]) {
    while to.write_all(bytes).is_ok() {}
}

/// Says nothing and waits until the other side has gone.
fn wait(mut from: UnixStream) {
    let mut sink = [0; 4096];
    while from.read(&mut sink).is_ok_and(|read| read > 0) {}
}

/// The error of a source that is asked twice, with so little patience that a server that does not
/// answer costs no time.
fn error_of(url: &str) -> String {
    error_within(Duration::from_millis(600), url)
}

/// The error of a server whose lie is found however slow the machine is.
fn lie_of(url: &str) -> String {
    error_within(Duration::from_secs(100), url)
}

fn error_within(patience: Duration, url: &str) -> String {
    let asking = Asking { patience, ..Asking::default() };
    let opened = sources::open(&Address::parse(url).unwrap(), &asking, &Surroundings::default());
    let mut source: Box<dyn LiveSource> = match opened {
        Ok(source) => source,
        Err(error) => return error.to_string(),
    };
    let first = source.snapshot().unwrap_err().to_string();
    source.snapshot().unwrap_err();
    first
}

/// The most memory this process ever had, in MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) / 1024
}

/// Fails if the process has grown much since its peak was `before_mib`.
fn grew_little(before_mib: u64) {
    let grown = peak_mib().saturating_sub(before_mib);
    assert!(grown < 512, "{grown} MiB");
}

/// Bytes that mean nothing, the same in every run.
fn junk(seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..64 << 10).map(|_| rng.u8(..)).collect()
}

fn pg(dir: &Path) -> String {
    format!("postgresql://u@/d?host={}", dir.display())
}

/// A message of PostgreSQL's.
#[allow(clippy::big_endian_bytes, reason = "the order of its protocol")]
fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[kind][..], &length, body].concat()
}

/// Lets the client in as PostgreSQL does, and waits for its first question.
fn let_in(stream: &mut UnixStream) -> bool {
    let mut sink = [0; 4096];
    let greeting = [frame(b'R', &[0, 0, 0, 0]), frame(b'Z', b"I")].concat();
    stream.read(&mut sink).is_ok()
        && stream.write_all(&greeting).is_ok()
        && stream.read(&mut sink).is_ok()
}

#[test]
fn a_postgresql_that_lies_is_an_error_in_time_and_in_little_memory() {
    const SOCKET: &str = ".s.PGSQL.5432";
    let before = peak_mib();
    let silent = server(SOCKET, wait);
    let error = error_of(&pg(silent.path()));
    assert!(error.contains("no answer within"), "{error}");
    let silent_later = server(SOCKET, |mut stream| {
        let_in(&mut stream);
        wait(stream);
    });
    let error = error_of(&pg(silent_later.path()));
    assert!(error.contains("no answer within"), "{error}");
    let columns = frame(
        b'T',
        &[&[0, 1, b'c', 0][..], &[0; 6], &[0, 0, 0, 25, 0, 255, 255, 255, 255, 255, 0, 0]].concat(),
    );
    let row = frame(b'D', &[0, 1, 0, 0, 0, 1, b'x']);
    for flooded in
        [row.repeat(500), frame(b'N', &[0]).repeat(500), frame(b'S', b"a\0b\0").repeat(500)]
    {
        let columns = columns.clone();
        let endless = server(SOCKET, move |mut stream| {
            if let_in(&mut stream) && stream.write_all(&columns).is_ok() {
                flood(stream, &flooded);
            }
        });
        let error = error_of(&pg(endless.path()));
        assert!(error.contains("cannot"), "{error}");
    }
    let huge = server(SOCKET, |mut stream| {
        if let_in(&mut stream) && stream.write_all(b"D\x7f\xff\xff\xff").is_ok() {
            flood(stream, &[0; 65536]);
        }
    });
    let error = lie_of(&pg(huge.path()));
    assert!(error.contains("more than 8 MiB") || error.contains("no answer within"), "{error}");
    for seed in 0..8 {
        let garbage = server(SOCKET, move |mut stream| {
            if seed % 2 == 0 {
                let_in(&mut stream);
            }
            flood(stream, &junk(seed));
        });
        let error = error_of(&pg(garbage.path()));
        assert!(error.contains("cannot") && !error.contains('\u{1b}'), "{error}");
    }
    grew_little(before);
}

fn redis(dir: &Path) -> String {
    format!("unix://{}/r", dir.display())
}

#[test]
fn a_redis_that_lies_is_an_error_in_time_and_in_little_memory() {
    let before = peak_mib();
    let silent = server("r", wait);
    assert!(error_of(&redis(silent.path())).contains("cannot"));
    // Each byte comes in time, the answer never does.
    let dripping = server("r", |mut stream| {
        while stream.write_all(b"+").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    assert!(error_of(&redis(dripping.path())).contains("time"));
    let bulk = b"*262144\r\n"
        .iter()
        .copied()
        .chain(format!("$65000\r\n{}\r\n", "x".repeat(65_000)).into_bytes());
    let bulk: Vec<u8> = bulk.collect();
    for bytes in
        [bulk, b"$999999999999\r\n".to_vec(), b"+x".repeat(4096), b"*1\r\n".repeat(4096), junk(5)]
    {
        let endless = server("r", move |stream| flood(stream, &bytes));
        let error = error_of(&redis(endless.path()));
        assert!(error.contains("cannot") && !error.contains('\u{1b}'), "{error}");
    }
    grew_little(before);
}

#[test]
fn a_name_that_may_be_a_password_of_redis_is_refused_and_not_repeated() {
    let address = Address::parse("redis://hunter2@127.0.0.1:1").unwrap();
    let opened = sources::open(&address, &Asking::default(), &Surroundings::default());
    let error = opened.err().unwrap().to_string();
    assert!(error.contains("REDISCLI_AUTH") && !error.contains("hunter2"), "{error}");
}

#[test]
fn a_redis_with_more_commands_than_there_are_is_recorded_without_them_and_says_so() {
    let mut info = "redis_version:7.0.0\r\nrun_id:x\r\ntotal_commands_processed:5\r\n".to_owned();
    for number in 0..150_000 {
        info.push_str(&format!("cmdstat_c{number}:calls=1,usec=1\r\n"));
    }
    let answer = format!("${}\r\n{info}\r\n", info.len()).into_bytes();
    let many = server("r", move |stream| {
        let (mut to, mut from) = (stream.try_clone().unwrap(), BufReader::new(stream));
        while let Ok(question) = sources::resp::receive(&mut from) {
            let info = question.list().first().and_then(|word| word.text()) == Some("INFO");
            if to.write_all(if info { &answer } else { b"+PONG\r\n" }).is_err() {
                return;
            }
        }
    });
    let asking = Asking { patience: Duration::from_secs(120), ..Asking::default() };
    let address = Address::parse(&redis(many.path())).unwrap();
    let mut source = sources::open(&address, &asking, &Surroundings::default()).unwrap();
    let snapshot = source.snapshot().unwrap();
    assert!(snapshot.statements.is_empty() && snapshot.db_time_ns.is_none());
    assert!(
        snapshot.missing.iter().any(|line| line.contains("more than 10000")),
        "{:?}",
        snapshot.missing
    );
    assert!(
        snapshot.counters.iter().any(|counter| counter.name == "user calls" && counter.value == 5)
    );
}

fn mysql(dir: &Path) -> String {
    format!("mysql://u@/?socket={}/m", dir.display())
}

/// A packet of MySQL's.
fn packet(sequence: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_le_bytes();
    [&length[..3], &[sequence], body].concat()
}

/// What MySQL says first.
fn greeting() -> Vec<u8> {
    let mut greeting = b"\x0a8.0.0\0".to_vec();
    greeting.extend([1, 0, 0, 0]);
    greeting.extend(b"12345678\0");
    // Protocol 4.1, secure connection; the plugin's name.
    greeting.extend([0x00, 0x82, 33, 2, 0, 0x08, 0x00, 21]);
    greeting.extend([0; 10]);
    greeting.extend(b"123456789012\0mysql_native_password\0");
    packet(0, &greeting)
}

/// Lets the client in as MySQL does, and waits for its first question.
fn greet(stream: &mut UnixStream) -> bool {
    let mut sink = [0; 4096];
    stream.write_all(&greeting()).is_ok()
        && stream.read(&mut sink).is_ok()
        && stream.write_all(&packet(2, &[0, 0, 0, 2, 0, 0, 0])).is_ok()
        && stream.read(&mut sink).is_ok()
}

/// As MySQL 8 does for a user it has not let in since it was started.
#[test]
fn a_mysql_that_asks_for_the_password_itself_gets_it_on_a_socket() {
    let (given, got) = std::sync::mpsc::channel();
    let asking = server("m", move |mut stream| {
        let mut sink = [0; 4096];
        let mut next = |stream: &mut UnixStream, sent: &[u8]| -> Vec<u8> {
            stream.write_all(sent).unwrap();
            let read = stream.read(&mut sink).unwrap();
            sink[..read].to_vec()
        };
        next(&mut stream, &greeting());
        let other = packet(2, b"\xfecaching_sha2_password\x0012345678123456789012\0");
        let proof = next(&mut stream, &other);
        let password = next(&mut stream, &packet(4, &[1, 4]));
        let question = next(&mut stream, &packet(6, &[0, 0, 0, 2, 0, 0, 0]));
        given.send((proof, password, question)).unwrap();
        let _ = stream.write_all(&packet(1, b"\xff\x10\x04#HY000not today"));
        wait(stream);
    });
    let asked = Asking { patience: Duration::from_secs(100), ..Asking::default() };
    let surroundings = Surroundings::of([("MYSQL_PWD", "hunter2")]);
    let mut source =
        sources::open(&Address::parse(&mysql(asking.path())).unwrap(), &asked, &surroundings)
            .unwrap();
    let error = source.snapshot().unwrap_err().to_string();
    assert!(error.contains("not today"), "{error}");
    let (proof, password, question) = got.recv_timeout(Duration::from_secs(100)).unwrap();
    assert_eq!((proof.len(), proof[3]), (4 + 32, 3), "a hash");
    assert_eq!(password, packet(5, b"hunter2\0"));
    assert_eq!(question, packet(0, b"\x03SELECT VERSION() AS version"));
}

/// A column of MySQL's, as its packet describes it.
const COLUMN: &[u8] = b"\x03def\0\0\0\x01c\0\x0c\x21\0\x40\0\0\0\xfd\0\0\0\0\0";

#[test]
fn a_mysql_that_lies_is_an_error_in_time_and_in_little_memory() {
    let before = peak_mib();
    let silent = server("m", wait);
    assert!(error_of(&mysql(silent.path())).contains("cannot"));
    let silent_later = server("m", |mut stream| {
        greet(&mut stream);
        wait(stream);
    });
    assert!(error_of(&mysql(silent_later.path())).contains("cannot"));
    let dripping = server("m", |mut stream| {
        greet(&mut stream);
        let _ = stream.write_all(&[200, 0, 0, 1]);
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let error = error_of(&mysql(dripping.path()));
    // On a slow machine a byte may come so late that the read itself ends.
    assert!(error.contains("cannot"), "{error}");
    for seed in 0..8 {
        let garbage = server("m", move |mut stream| {
            if seed % 2 == 0 {
                greet(&mut stream);
            }
            flood(stream, &junk(seed));
        });
        let error = error_of(&mysql(garbage.path()));
        assert!(error.contains("cannot") && !error.contains('\u{1b}'), "{error}");
    }
    grew_little(before);
}

#[test]
fn an_answer_of_mysql_without_end_is_given_up_and_its_connection_closed() {
    let before = peak_mib();
    let (end, ended) = std::sync::mpsc::channel();
    let endless = server("m", move |mut stream| {
        greet(&mut stream);
        let head = [packet(1, &[1]), packet(2, COLUMN), packet(3, &[0xfe, 0, 0, 2, 0])].concat();
        let mut sequence = 3u8;
        let rows = (0..256).flat_map(|_| {
            sequence = sequence.wrapping_add(1);
            packet(sequence, b"\x01x")
        });
        let rows: Vec<u8> = rows.collect();
        if stream.write_all(&head).is_ok() {
            flood(stream, &rows);
        }
        let _ = end.send(());
    });
    let error = lie_of(&mysql(endless.path()));
    assert!(error.contains("longer than any"), "{error}");
    // Both connections were closed: nobody goes on reading what has no end.
    for _ in 0..2 {
        ended.recv_timeout(Duration::from_secs(150)).unwrap();
    }
    grew_little(before);
}

#[test]
fn an_answer_of_mysql_that_is_not_of_its_protocol_is_an_error_that_says_why() {
    let before = peak_mib();
    let row_end = packet(3, &[0xfe, 0, 0, 2, 0]);
    for (sent, word) in [
        // More columns than any memory holds, and than any question of ours has.
        (packet(1, &[0xfe, 255, 255, 255, 255, 255, 255, 255, 0x7f]), "number of columns"),
        (packet(1, &[0xfd, 255, 255, 255]), "number of columns"),
        (packet(1, &[33]), "number of columns"),
        (packet(1, &[0xfb, b'/', b'e']), "asks for a file"),
        (packet(1, b""), "empty"),
        (vec![255, 255, 255, 1], "4 MiB"),
        (packet(7, &[1]), "out of order"),
        (
            [packet(1, &[1]), packet(2, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff")].concat(),
            "description",
        ),
        ([packet(1, &[1]), packet(2, COLUMN), packet(3, COLUMN)].concat(), "more columns than"),
        (
            [packet(1, &[1]), packet(2, COLUMN), row_end.clone(), packet(4, b"\x01xx")].concat(),
            "does not have its columns",
        ),
        (
            [packet(1, &[1]), packet(2, COLUMN), row_end.clone(), packet(4, b"\xfd\xff\xff\xff")]
                .concat(),
            "its columns",
        ),
    ] {
        let lying = server("m", move |mut stream| {
            greet(&mut stream);
            let _ = stream.write_all(&sent);
            wait(stream);
        });
        let error = lie_of(&mysql(lying.path()));
        assert!(error.contains(word), "{word}: {error}");
    }
    grew_little(before);
}

#[test]
fn a_login_of_mysql_that_is_not_of_its_protocol_is_an_error_that_says_why() {
    let before = peak_mib();
    for (sent, word) in [
        (packet(0, b"\x0a8"), "greet"),
        (packet(0, b"\xff\x10\x04Too many connections"), "Too many"),
        (packet(0, b"\x09old\0"), "greet"),
    ] {
        let lying = server("m", move |mut stream| {
            let _ = stream.write_all(&sent);
            wait(stream);
        });
        let error = lie_of(&mysql(lying.path()));
        assert!(error.contains(word), "{word}: {error}");
    }
    for (sent, word) in [
        (packet(2, &[1]), "login"),
        (packet(2, &[1, 4]), "login"),
        (packet(2, &[0xfe]), "before 4.1"),
        (packet(2, b"\xfedialog\0"), "logs in by dialog"),
        (
            (2..12)
                .step_by(2)
                .flat_map(|at| packet(at, b"\xfemysql_native_password\0x\0"))
                .collect(),
            "no end",
        ),
    ] {
        let lying = server("m", move |mut stream| {
            let mut sink = [0; 4096];
            let _ = stream.write_all(&greeting()).and_then(|()| stream.read(&mut sink));
            let _ = stream.write_all(&sent);
            wait(stream);
        });
        let error = lie_of(&mysql(lying.path()));
        assert!(error.contains(word), "{word}: {error}");
    }
    grew_little(before);
}
