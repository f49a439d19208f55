//! The endpoint of metrics: whoever sends nonsense, nothing, too much, slowly or from many
//! connections, the next reader gets its answer.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use tiersmith_awr::metrics::{Endpoint, Format, Hosts, Listen};

/// For hangs only.
const LIMIT: Duration = Duration::from_secs(120);

fn start() -> (Endpoint, SocketAddr) {
    let listen = Listen::parse("127.0.0.1:0").unwrap();
    let answer = |format: Format| match format {
        Format::OpenMetrics => "open\n# EOF\n".to_owned(),
        // Larger than what a socket holds, so that a reader that does not read holds the writer up.
        Format::Prometheus => "x".repeat(4 << 20),
    };
    let endpoint = Endpoint::start(&listen, Hosts::default(), Arc::new(answer)).unwrap();
    let Listen::Tcp(address) = endpoint.listens_at() else { panic!("it listens elsewhere") };
    let address = *address;
    (endpoint, address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, LIMIT).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Everything that comes back; what is broken off ends there.
fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = connect(address);
    let _ = stream.write_all(request);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn assert_answers(address: SocketAddr) {
    let accept = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: \
          application/openmetrics-text;version=1.0.0\r\n\r\n";
    let answer = ask(address, accept);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(
        answer.contains(
            "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"
        ),
        "{answer}"
    );
    assert!(answer.ends_with("\r\n\r\nopen\n# EOF\n"), "{answer}");
}

#[test]
fn requests_are_answered_in_the_form_that_was_asked_for() {
    let (_endpoint, address) = start();
    assert_answers(address);
    let plain = ask(address, b"GET /metrics?x=1 HTTP/1.0\r\n\r\n");
    assert!(plain.contains(
        "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: 4194304\r\n"
    ));
    assert_eq!(plain.split_once("\r\n\r\n").unwrap().1.len(), 4 << 20);
    let head = ask(address, b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.contains("Content-Length: 3\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(ask(address, b"GET /healthz HTTP/1.1\n\n").ends_with("ok\n"));
    assert!(ask(address, b"GET /../../etc/passwd HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(
        ask(address, b"POST /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\n123456789")
            .starts_with("HTTP/1.1 405 ")
    );
}

#[test]
fn a_name_that_a_stranger_leads_here_is_not_answered() {
    let listen = Listen::parse("127.0.0.1:0").unwrap();
    let answer = Arc::new(|_: Format| "secret\n".to_owned());
    let endpoint =
        Endpoint::start(&listen, Hosts::of(["db1.example.org".to_owned()]), answer.clone())
            .unwrap();
    let Listen::Tcp(address) = endpoint.listens_at() else { panic!("it listens elsewhere") };
    let of_host =
        |line: &str| ask(*address, format!("GET /metrics HTTP/1.1\r\n{line}\r\n\r\n").as_bytes());
    let port = address.port();
    for good in [
        format!("Host: {address}"),
        format!("hOST:localhost:{port}"),
        "Host: DB1.example.org".to_owned(),
        "X: y".to_owned(),
    ] {
        assert!(of_host(&good).ends_with("\r\n\r\nsecret\n"), "{good}");
    }
    for wrong in [
        format!("Host: rebound.evil.example:{port}"),
        "Host: localhost.evil.example".to_owned(),
        "Host: localhost\r\nHost: rebound.evil.example".to_owned(),
        "Host : rebound.evil.example".to_owned(),
        "Host:".to_owned(),
    ] {
        let answer = of_host(&wrong);
        assert!(
            answer.starts_with("HTTP/1.1 421 ") && answer.contains("--allow-host"),
            "{wrong}: {answer}"
        );
        assert!(!answer.contains("secret") && !answer.contains("evil"), "{answer}");
    }
    // No browser opens a socket in the file system.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sock");
    let _endpoint = Endpoint::start(&Listen::Unix(path.clone()), Hosts::default(), answer).unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: anything\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("secret\n"), "{answer}");
}

#[test]
fn nonsense_is_refused_and_never_repeated() {
    let (_endpoint, address) = start();
    let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &b"a".repeat(1 << 20)].concat();
    let answer = ask(address, &long);
    // The system may break the connection off before all of it was sent.
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let mut rng = fastrand::Rng::with_seed(3);
    for _ in 0..200 {
        let bytes: Vec<u8> = (0..rng.usize(0..200)).map(|_| rng.u8(..)).collect();
        let answer = ask(address, &bytes);
        assert!(answer.starts_with("HTTP/1.1 4"), "{bytes:?}: {answer}");
        assert!(answer.ends_with("\r\n\r\n"), "no body");
    }
    // A TLS greeting, and the beginning of HTTP/2.
    assert!(
        ask(address, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n")
            .starts_with("HTTP/1.1 400 ")
    );
    assert!(ask(address, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").starts_with("HTTP/1.1 400 "));
    assert_answers(address);
}

#[test]
fn silent_slow_and_deaf_connections_hold_nobody_up() {
    let (_endpoint, address) = start();
    let mut held = Vec::new();
    for n in 0..200 {
        let mut stream = connect(address);
        match n % 3 {
            // Says nothing.
            0 => {}
            // Began a request and sends no more.
            1 => {
                let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: ");
            }
            // Went away in the middle of it.
            _ => {
                let _ = stream.write_all(b"GET ");
                continue;
            }
        }
        held.push(stream);
        if n % 50 == 49 {
            assert_answers(address);
        }
    }
    // Asks for much and reads nothing of it.
    for _ in 0..5 {
        let mut stream = connect(address);
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        held.push(stream);
    }
    assert_answers(address);
}

#[test]
fn many_readers_at_once_all_get_their_answer() {
    let (_endpoint, address) = start();
    std::thread::scope(|scope| {
        for _ in 0..30 {
            scope.spawn(|| (0..5).for_each(|_| assert_answers(address)));
        }
    });
}

#[test]
fn a_socket_in_the_file_system_is_its_owners_and_one_left_behind_is_replaced() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sock");
    // A listener that is gone leaves its file.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listen = Listen::Unix(path.clone());
    let endpoint =
        Endpoint::start(&listen, Hosts::default(), Arc::new(|_| "x\n".to_owned())).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nx\n"), "{answer}");
    assert!(
        Endpoint::start(&listen, Hosts::default(), Arc::new(|_| String::new())).is_err(),
        "somebody listens there"
    );
    drop(endpoint);
    assert!(!path.exists());
    std::fs::write(&path, "a file").unwrap();
    assert!(
        Endpoint::start(&listen, Hosts::default(), Arc::new(|_| String::new())).is_err(),
        "a file is not replaced"
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
}
