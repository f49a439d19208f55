//! Servers that lie about encryption: nothing one sends or leaves out in a handshake or after it
//! makes a source wait for ever, take what was in clear for encrypted, or fill the memory.
//!
//! The servers here are threads on free ports of this machine; none has to be installed.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tiersmith_awr::sources::{self, Address, Asking, Surroundings};

/// Made for these tests.
const CERTIFICATE: &str = "\
    -----BEGIN CERTIFICATE-----\n\
    MIIBsTCCAVegAwIBAgIBBTAKBggqhkjOPQQDAjAoMQ0wCwYDVQQKDARUZXN0MRcw\n\
    FQYDVQQDDA5UZXN0IGF1dGhvcml0eTAeFw0yNjExMjIxNTMxNTNaFw0zNjExMTkx\n\
    NTMxNTNaMA4xDDAKBgNVBAMMA2RiMTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IA\n\
    BOPxoI2YiXp7J03zCt49760nHIrrKktnZSljxmCIteDizktb4xZxZvG/YOV2fNdo\n\
    X3DtBtKyNqT6fsJjTMaohDSjgYswgYgwRgYDVR0RBD8wPYIPZGIxLmV4YW1wbGUu\n\
    Y29tghIqLnNob3AuZXhhbXBsZS5jb22HBMAAAgeHECABDbgAAAAAAAAAAAAAAAcw\n\
    HQYDVR0OBBYEFFyXyKf5YgOWHFSMCwsh3ExDu03aMB8GA1UdIwQYMBaAFPWKaaOZ\n\
    Ra0/XKI+0CpkyQ3zZKanMAoGCCqGSM49BAMCA0gAMEUCIQCN90QpzN6Vk/sdd8J8\n\
    IQp5cp1t8CWwcmz22LUNrGhTEwIgP2wNPNU1r9a0CYhijprzk36SBR0lhVWW9rlR\n\
    7uAV09Y=\n\
    -----END CERTIFICATE-----";
/// Its key.
const KEY: &str = "\
    -----BEGIN PRIVATE KEY-----\n\
    MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgu4YS/jPFc08waSRM\n\
    f2Wnupg6Vb/XJoO9Odz1+dPXfNehRANCAATj8aCNmIl6eydN8wrePe+tJxyK6ypL\n\
    Z2UpY8ZgiLXg4s5LW+MWcWbxv2DldnzXaF9w7QbSsjak+n7CY0zGqIQ0\n\
    -----END PRIVATE KEY-----";

type Encrypted = StreamOwned<ServerConnection, TcpStream>;

/// A server on a free port; its threads end with the test's process.
fn server(manner: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let manner = Arc::new(manner);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let manner = Arc::clone(&manner);
            std::thread::spawn(move || manner(stream));
        }
    });
    port
}

/// The server's side of a handshake.
fn encrypted(stream: TcpStream) -> Encrypted {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(KEY.as_bytes()).unwrap(),
        )
        .unwrap();
    StreamOwned::new(ServerConnection::new(Arc::new(config)).unwrap(), stream)
}

/// The error of a source that is asked with so much patience.
fn error_within(patience: Duration, url: &str) -> String {
    let asking = Asking { patience, ..Asking::default() };
    let surroundings = Surroundings::of([("PGPASSWORD", "hunter2"), ("MYSQL_PWD", "hunter2")]);
    let error = match sources::open(&Address::parse(url).unwrap(), &asking, &surroundings) {
        Ok(mut source) => source.snapshot().unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    assert!(
        error.contains("cannot") && !error.contains("hunter2") && !error.contains('\u{1b}'),
        "{error}"
    );
    error
}

/// So little that a server that does not answer costs no time.
fn error_of(url: &str) -> String {
    error_within(Duration::from_millis(600), url)
}

/// So much that what is wrong is found however slow the machine is: a PostgreSQL has ten seconds
/// for connecting, so it is asked again if the machine was so slow that they were over.
fn lie_of(url: &str) -> String {
    let mut error = String::new();
    for _ in 0..6 {
        error = error_within(Duration::from_secs(100), url);
        if !is_late(&error) {
            break;
        }
    }
    error
}

/// Whether an error says that the time was over.
fn is_late(error: &str) -> bool {
    ["no answer within", "no whole answer in time", "timed out"]
        .iter()
        .any(|words| error.contains(words))
}

/// What was logged; nothing else in these tests lets a connection go on in clear.
static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let text = record.args().to_string();
        if record.level() == log::Level::Warn && text.contains("is not encrypted") {
            LOGGED.lock().unwrap().push(text);
        }
    }

    fn flush(&self) {}
}

/// The most memory this process ever had, in MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) / 1024
}

/// What a server sends instead of a handshake.
#[derive(Clone, Copy)]
enum Manner {
    Silent,
    Drips,
    Sends(&'static [u8]),
    Floods(&'static [u8]),
    Leaves,
}

fn behave(mut stream: TcpStream, manner: Manner) {
    let mut sink = [0; 4096];
    match manner {
        Manner::Leaves => return,
        Manner::Silent => {}
        // A record that begins, each byte in time.
        Manner::Drips => {
            let _ = stream.write_all(&[22, 3, 3, 0x3f, 0xff]);
            while stream.write_all(&[2]).is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Manner::Sends(bytes) => {
            let _ = stream.write_all(bytes);
        }
        Manner::Floods(bytes) => while stream.write_all(bytes).is_ok() {},
    }
    while stream.read(&mut sink).is_ok_and(|read| read > 0) {}
}

/// What MySQL says first: it can encrypt; `more` follows in the same breath.
fn greeting(more: &[u8]) -> Vec<u8> {
    let mut greeting = b"\x0a8.0.0\0\x01\0\0\x0012345678\0".to_vec();
    // Protocol 4.1, encryption, secure connection; ways to log in by name.
    greeting.extend([0x00, 0x8a, 33, 2, 0, 0x08, 0x00, 21]);
    greeting.extend([0; 10]);
    greeting.extend(b"123456789012\0caching_sha2_password\0");
    [&packet(0, &greeting)[..], more].concat()
}

/// A packet of MySQL's.
fn packet(sequence: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_le_bytes();
    [&length[..3], &[sequence], body].concat()
}

/// What MySQL's client sends to go on encrypted.
fn wish_of_mysql(stream: &mut TcpStream) -> bool {
    let mut wish = [0; 36];
    stream.write_all(&greeting(&[])).is_ok()
        && stream.read_exact(&mut wish).is_ok()
        && wish[3] == 1
        && wish[5] & 0x08 != 0
}

/// What PostgreSQL's client sends to go on encrypted.
fn wish_of_postgresql(stream: &mut TcpStream) -> bool {
    let mut wish = [0; 8];
    stream.read_exact(&mut wish).is_ok()
        && wish == [0, 0, 0, 8, 4, 210, 22, 47]
        && stream.write_all(b"S").is_ok()
}

#[test]
fn a_handshake_that_is_none_is_an_error_in_time_and_in_little_memory() {
    let before = peak_mib();
    // A record of 16 KiB of a handshake that claims 16 MiB; one that is larger than any may be; an
    // alert in clear; another protocol.
    const ENDLESS: &[u8] = &{
        let mut record = [0; 5 + 0x4000];
        (record[0], record[1], record[2], record[3]) = (22, 3, 3, 0x40);
        (record[5], record[6], record[7], record[8]) = (2, 0xff, 0xff, 0xff);
        record
    };
    const EMPTY: &[u8] = &[22, 3, 3, 0, 0];
    const UNKNOWN: &[u8] = &[0xde, 0xad, 0xbe, 0xef, 0xff, 0xff, 0x1b, b'['];
    let manners = [
        (Manner::Silent, ""),
        (Manner::Drips, ""),
        (Manner::Leaves, "closed the connection"),
        (Manner::Sends(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "TLS"),
        (Manner::Sends(&[22, 3, 3, 0xff, 0xff, 1]), "TLS"),
        (Manner::Sends(&[21, 3, 3, 0, 2, 2, 40]), "HandshakeFailure"),
        (Manner::Sends(&[21, 3, 3, 0, 2, 2, 70]), "TLS 1.2 or later"),
        (Manner::Floods(ENDLESS), "is not TLS as it should be"),
        (Manner::Floods(EMPTY), "is not TLS as it should be"),
        (Manner::Floods(UNKNOWN), "is not TLS as it should be"),
    ];
    std::thread::scope(|scope| {
        for (manner, word) in manners {
            scope.spawn(move || {
                let redis = server(move |stream| behave(stream, manner));
                let postgresql = server(move |mut stream| {
                    if wish_of_postgresql(&mut stream) {
                        behave(stream, manner);
                    }
                });
                let mysql = server(move |mut stream| {
                    if wish_of_mysql(&mut stream) {
                        behave(stream, manner);
                    }
                });
                for url in [
                    format!("rediss://127.0.0.1:{redis}?verify=none"),
                    format!("postgresql://u@127.0.0.1:{postgresql}/d?sslmode=require"),
                    format!("mysql://u@127.0.0.1:{mysql}/?ssl-mode=REQUIRED"),
                ] {
                    // What is sent in whole is looked at, however long that takes.
                    if word.is_empty() {
                        let error = error_of(&url);
                        assert!(is_late(&error), "{url}: {error}");
                    } else {
                        let error = lie_of(&url);
                        assert!(error.contains(word), "{url}: {word}: {error}");
                    }
                }
            });
        }
    });
    let grown = peak_mib().saturating_sub(before);
    assert!(grown < 512, "{grown} MiB");
}

#[test]
fn a_server_without_encryption_or_with_an_error_before_it_does_not_get_a_password() {
    // Whoever asks in clear after this is heard by the second read.
    for (answer, word) in [
        (&b"N"[..], "does not offer"),
        (b"E\0\0\0\x20SFATAL\0Mhunter2\0\0", "anybody on the way"),
        (b"HTTP", "does not know"),
    ] {
        let (heard, hears) = std::sync::mpsc::channel();
        let port = server(move |mut stream| {
            let mut sink = [0; 4096];
            let _ = stream.read(&mut sink);
            let _ = stream.write_all(answer);
            let _ = heard.send(stream.read(&mut sink).unwrap_or(0));
        });
        let error = lie_of(&format!("postgresql://u@127.0.0.1:{port}/d?sslmode=require"));
        assert!(error.contains(word), "{error}");
        assert_eq!(
            hears.recv_timeout(Duration::from_secs(150)).unwrap(),
            0,
            "nothing is said in clear"
        );
    }
    // A server that takes the offer back.
    let mut without = greeting(&[]);
    let at = without.iter().position(|byte| *byte == 0x8a).unwrap();
    without[at] = 0x82;
    let port = server(move |mut stream| {
        let _ = stream.write_all(&without);
        let mut sink = [0; 4096];
        assert_eq!(stream.read(&mut sink).unwrap_or(0), 0);
    });
    let error = lie_of(&format!("mysql://u@127.0.0.1:{port}/?ssl-mode=REQUIRED"));
    assert!(error.contains("does not offer encryption"), "{error}");
}

#[test]
fn what_comes_before_encryption_is_not_taken_for_what_comes_after() {
    // As if the login had succeeded already: numbered as what comes after the handshake, which is a
    // real one.
    let port = server(|mut stream| {
        let _ = stream.write_all(&greeting(&packet(3, &[0, 0, 0, 2, 0, 0, 0])));
        let mut wish = [0; 36];
        if stream.read_exact(&mut wish).is_ok() {
            let mut stream = encrypted(stream);
            let mut sink = [0; 4096];
            while stream.read(&mut sink).is_ok_and(|read| read > 0) {}
        }
    });
    let error = lie_of(&format!("mysql://u@127.0.0.1:{port}/?ssl-mode=REQUIRED"));
    assert!(error.contains("more before encryption"), "{error}");
    let port = server(|mut stream| {
        let mut wish = [0; 8];
        let _ = stream.read_exact(&mut wish);
        let _ = stream.write_all(b"SR\0\0\0\x08\0\0\0\0Z\0\0\0\x05I");
        behave(stream, Manner::Silent);
    });
    let error = lie_of(&format!("postgresql://u@127.0.0.1:{port}/d?sslmode=require"));
    assert!(error.contains("is not TLS as it should be"), "{error}");
}

#[test]
fn what_a_mysql_says_before_encryption_is_not_shown_and_gives_no_advice() {
    for (code, known) in [
        (1130_u16, "nobody may connect"),
        (1040, "no connection to spare"),
        (1045, "anybody"),
        (3159, "anybody"),
    ] {
        let refusal = [
            &[0xff][..],
            &code.to_le_bytes(),
            b"#HY000Say ssl-mode=DISABLED, or leave ssl-mode out",
        ]
        .concat();
        let port = server(move |mut stream| {
            let _ = stream.write_all(&packet(0, &refusal));
            behave(stream, Manner::Silent);
        });
        for mode in ["ssl-mode=REQUIRED", "ssl-mode=VERIFY_IDENTITY", "ssl-verify-server-cert=1"] {
            let error = lie_of(&format!("mysql://u@127.0.0.1:{port}/?{mode}"));
            assert!(
                error.contains(known) && error.contains(&format!("error {code} before")),
                "{error}"
            );
            for word in ["DISABLED", "leave ssl-mode out", "MYSQL_PWD"] {
                assert!(!error.contains(word), "{error}");
            }
        }
        // Who wants no encryption believes everything anyway.
        let error = lie_of(&format!("mysql://u@127.0.0.1:{port}/?ssl-mode=DISABLED"));
        assert!(
            error.contains(&format!("Say ssl-mode=DISABLED, or leave ssl-mode out ({code})")),
            "{error}"
        );
    }
}

/// An error of PostgreSQL's with this code.
fn refusal(code: &str) -> Vec<u8> {
    let fields = format!("SFATAL\0C{code}\0Mnot you\0\0");
    let length = u32::try_from(fields.len() + 4).unwrap();
    let [d, c, b, a] = length.to_le_bytes();
    [&[b'E', a, b, c, d][..], fields.as_bytes()].concat()
}

/// Encrypts, and does not let the user in.
fn denies(mut stream: TcpStream) {
    if stream.write_all(b"S").is_ok() {
        let mut stream = encrypted(stream);
        let mut sink = [0; 4096];
        let _ = stream.read(&mut sink);
        let _ = stream.write_all(&refusal("28000")).and_then(|()| stream.flush());
        while stream.read(&mut sink).is_ok_and(|read| read > 0) {}
    }
}

/// Says that it encrypts, and speaks another protocol.
fn garbles(mut stream: TcpStream) {
    let _ = stream.write_all(b"S");
    behave(stream, Manner::Sends(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
}

fn fails(mut stream: TcpStream) {
    let _ = stream.write_all(b"E");
    behave(stream, Manner::Silent);
}

/// Answers what PostgreSQL never does.
fn answers(mut stream: TcpStream) {
    let _ = stream.write_all(b"HTTP");
    behave(stream, Manner::Silent);
}

#[test]
fn going_on_in_clear_is_said_first_and_only_a_server_makes_it_so() {
    log::set_logger(&Logger).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let warnings = || std::mem::take(&mut *LOGGED.lock().unwrap());
    let wish = [0, 0, 0, 8, 4, 210, 22, 47];
    // Who asks for encryption gets `answer`; who begins in clear is counted, with what was logged
    // until then, and refused.
    let asked = |answer: Box<dyn Fn(TcpStream) + Send + Sync>, more: &str| {
        let (heard, hears) = std::sync::mpsc::channel();
        let port = server(move |mut stream| {
            let mut first = [0; 8];
            if stream.read_exact(&mut first).is_err() {
                return;
            }
            if first == wish {
                return answer(stream);
            }
            let _ = heard.send(LOGGED.lock().unwrap().len());
            let _ = stream.write_all(&refusal("28P01"));
            behave(stream, Manner::Silent);
        });
        let error = lie_of(&format!("postgresql://u@127.0.0.1:{port}/d?{more}"));
        (error, hears.try_iter().collect::<Vec<_>>(), warnings())
    };
    for (answer, word) in [
        (
            Box::new(denies) as Box<dyn Fn(TcpStream) + Send + Sync>,
            "does not let the user in encrypted",
        ),
        (Box::new(garbles), "is not TLS as it should be"),
        (Box::new(fails), "an error before the connection is encrypted"),
    ] {
        let (error, in_clear, logged) = asked(answer, "sslmode=prefer");
        assert!(error.contains("28P01"), "{error}");
        // Asked again where the machine was too slow: each time it is said before.
        assert!(!in_clear.is_empty() && in_clear.iter().all(|before| *before >= 1), "{in_clear:?}");
        assert!(
            logged
                .iter()
                .all(|line| line.contains("127.0.0.1 is not encrypted") && line.contains(word)),
            "{logged:?}"
        );
        assert!(logged.len() >= in_clear.len(), "{logged:?}");
    }
    for (answer, more, word) in [
        (Box::new(denies) as Box<dyn Fn(TcpStream) + Send + Sync>, "sslmode=require", "28000"),
        (Box::new(garbles), "sslmode=require", "is not TLS as it should be"),
        (Box::new(answers), "sslmode=prefer", "does not know PostgreSQL's wish"),
        (
            Box::new(garbles),
            "sslmode=prefer&sslcert=/no/such&sslkey=/no/such",
            "/no/such cannot be read",
        ),
    ] {
        let (error, in_clear, logged) = asked(answer, more);
        assert!(error.contains(word), "{more}: {error}");
        assert!(in_clear.is_empty() && logged.is_empty(), "{more}: {logged:?}");
    }
}

#[test]
fn limits_of_answers_and_time_hold_inside_of_encryption() {
    let before = peak_mib();
    // So much time that the handshake is over before: what is slow is inside of it.
    let slow = [600, 6_000, 60_000].map(Duration::from_millis).into_iter().any(|patience| {
        let (agreed, agrees) = std::sync::mpsc::channel();
        let dripping = server(move |stream| {
            let mut stream = encrypted(stream);
            while stream.write_all(b"+").and_then(|()| stream.flush()).is_ok() {
                if !stream.conn.is_handshaking() {
                    let _ = agreed.send(());
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let error = error_within(patience, &format!("rediss://127.0.0.1:{dripping}?verify=none"));
        assert!(is_late(&error), "{error}");
        agrees.try_recv().is_ok()
    });
    assert!(slow, "there was no handshake within a minute");
    let endless = server(|stream| {
        let mut stream = encrypted(stream);
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
    });
    let error = lie_of(&format!("rediss://127.0.0.1:{endless}?verify=none"));
    assert!(error.contains("not in Redis's protocol"), "{error}");
    let huge = server(|mut stream| {
        if !wish_of_postgresql(&mut stream) {
            return;
        }
        let mut stream = encrypted(stream);
        let mut sink = [0; 4096];
        let _ = stream.read(&mut sink);
        let _ = stream.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05ID\x7f\xff\xff\xff");
        while stream.write_all(&[0; 4096]).is_ok() {}
    });
    let error = lie_of(&format!("postgresql://u@127.0.0.1:{huge}/d?sslmode=require"));
    assert!(error.contains("more than 8 MiB"), "{error}");
    let grown = peak_mib().saturating_sub(before);
    assert!(grown < 512, "{grown} MiB");
}

/// As MySQL 8 does for a user it has not let in since it was started.
#[test]
fn a_mysql_that_asks_for_the_password_itself_gets_it_inside_of_encryption() {
    let (given, got) = std::sync::mpsc::channel();
    let port = server(move |mut stream| {
        assert!(wish_of_mysql(&mut stream));
        let mut stream = encrypted(stream);
        let mut sink = [0; 4096];
        let mut next = |stream: &mut Encrypted, sent: &[u8]| -> Vec<u8> {
            stream.write_all(sent).unwrap();
            let read = stream.read(&mut sink).unwrap();
            sink[..read].to_vec()
        };
        let login = next(&mut stream, &[]);
        let password = next(&mut stream, &packet(3, &[1, 4]));
        let question = next(&mut stream, &packet(5, &[0, 0, 0, 2, 0, 0, 0]));
        given.send((login, password, question)).unwrap();
        let _ = stream.write_all(&packet(1, b"\xff\x10\x04#HY000not today"));
    });
    let error = lie_of(&format!("mysql://u@127.0.0.1:{port}/?ssl-mode=REQUIRED"));
    assert!(error.contains("not today"), "{error}");
    let (login, password, question) = got.recv_timeout(Duration::from_secs(150)).unwrap();
    assert_eq!((login[3], login[5] & 0x08), (2, 0x08), "the whole answer follows the wish");
    assert_eq!(password, packet(4, b"hunter2\0"));
    assert_eq!(question, packet(0, b"\x03SELECT VERSION() AS version"));
}

/// What a client answers to `demand` of a PostgreSQL that has no encryption, without the message's
/// head, and the error.
fn given_in_clear(demand: &'static [u8], more: &str) -> (String, String) {
    let (given, got) = std::sync::mpsc::channel();
    let port = server(move |mut stream| {
        let mut first = [0; 8];
        let mut sink = [0; 4096];
        if stream.read_exact(&mut first).is_err() {
            return;
        }
        if first == [0, 0, 0, 8, 4, 210, 22, 47]
            && (stream.write_all(b"N").is_err() || stream.read_exact(&mut first).is_err())
        {
            return;
        }
        // The rest of the startup is thrown away.
        let _ = stream.read(&mut sink);
        let _ = stream.write_all(demand);
        let read = stream.read(&mut sink).unwrap_or(0);
        let answer = String::from_utf8_lossy(sink.get(5..read).unwrap_or_default()).into_owned();
        let _ = given.send(answer);
        let _ = stream.write_all(b"E\0\0\0\x1eSFATAL\0C28P01\0Mnot today\0\0");
        behave(stream, Manner::Silent);
    });
    let error = lie_of(&format!("postgresql://u@127.0.0.1:{port}/d?{more}"));
    (got.recv_timeout(Duration::from_secs(150)).unwrap(), error)
}

#[test]
fn a_postgresql_in_clear_gets_no_password_in_clear_unless_that_is_asked_for() {
    const IN_CLEAR: &[u8] = b"R\0\0\0\x08\0\0\0\x03";
    for more in
        ["sslmode=disable", "sslmode=prefer", "sslmode=allow", "sslmode=disable&require_auth=!md5"]
    {
        let (given, error) = given_in_clear(IN_CLEAR, more);
        assert_eq!(given, "", "{more}");
        assert!(
            error.contains("password in clear") && error.contains("sslmode=verify-full"),
            "{error}"
        );
    }
    // As libpq has it, and with a warning.
    let (given, error) =
        given_in_clear(IN_CLEAR, "sslmode=disable&require_auth=password,scram-sha-256");
    assert_eq!((given.as_str(), error.contains("not today")), ("hunter2\0", true), "{error}");
}

#[test]
fn a_postgresql_lets_in_only_in_a_way_that_require_auth_allows() {
    const IN_CLEAR: &[u8] = b"R\0\0\0\x08\0\0\0\x03";
    const MD5: &[u8] = b"R\0\0\0\x0c\0\0\0\x05salt";
    const SCRAM: &[u8] = b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0";
    const IN: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";
    let does = |demand: &[u8]| match demand {
        IN_CLEAR => "asks for the password in clear",
        MD5 => "asks for an MD5 hash",
        SCRAM => "asks for SCRAM-SHA-256",
        _ => "lets the user in without asking for anything",
    };
    for (required, refused) in [
        ("scram-sha-256", &[IN_CLEAR, MD5, IN][..]),
        ("!password", &[IN_CLEAR]),
        ("!none,!password", &[IN_CLEAR, IN]),
        ("none", &[IN_CLEAR, MD5, SCRAM]),
        ("md5,scram-sha-256", &[IN_CLEAR, IN]),
    ] {
        for demand in [IN_CLEAR, MD5, SCRAM, IN] {
            let (given, error) =
                given_in_clear(demand, &format!("sslmode=disable&require_auth={required}"));
            if refused.contains(&demand) {
                assert_eq!(given, "", "{required}");
                let words =
                    format!("require_auth is `{required}`, and the server {}", does(demand));
                assert!(error.contains(&words), "{words}: {error}");
            } else {
                assert!(
                    !given.is_empty() && error.contains("not today"),
                    "{required}: {given} {error}"
                );
            }
        }
    }
}

/// What a client sends to a MySQL without encryption that wants the password itself: each message
/// without its head, and the error.
fn asked_by_mysql(more: &str, key: &'static [u8]) -> (Vec<Vec<u8>>, String) {
    let mut without = greeting(&[]);
    let at = without.iter().position(|byte| *byte == 0x8a).unwrap();
    without[at] = 0x82;
    let (given, got) = std::sync::mpsc::channel();
    let port = server(move |mut stream| {
        let mut sink = [0; 4096];
        let mut next = |stream: &mut TcpStream, sent: &[u8]| -> Vec<u8> {
            let _ = stream.write_all(sent);
            let read = stream.read(&mut sink).unwrap_or(0);
            sink.get(4..read).unwrap_or_default().to_vec()
        };
        next(&mut stream, &without);
        let mut heard = vec![next(&mut stream, &packet(2, &[1, 4]))];
        let mut sequence = 4;
        if heard == [[2]] {
            heard.push(next(&mut stream, &packet(4, &[&[1], key].concat())));
            sequence = 6;
        }
        let _ = given.send(heard);
        let _ = stream.write_all(&packet(sequence, b"\xff\x10\x04#HY000not today"));
        behave(stream, Manner::Silent);
    });
    let error = lie_of(&format!("mysql://u@127.0.0.1:{port}/?{more}"));
    (got.recv_timeout(Duration::from_secs(150)).unwrap(), error)
}

#[test]
fn a_password_is_sealed_for_the_key_of_a_mysql_only_if_that_is_asked_for() {
    /// An attacker's, made for this test.
    const KEY: &[u8] = b"-----BEGIN PUBLIC KEY-----\n\
        MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAvOkMe3lIRfKYyzwWU0Du\n\
        5o99dxYadhEV6061TbGcrUTnlH3ng/M34qALdOnyR7JdlVRlMjn5OyxNYUZ4ugkx\n\
        6H38Apc4IETS6iFgDeqrOR4nVH4fXjBx4vTIQOGNnywYWJze6TQdfY6UgUQShLdH\n\
        hIL1iblWKAwF97b7OfzUjiEx2IRvoeU694vxSrrE042VmdJsI6K7UqtuZk1+ek6N\n\
        HDz0vu1Qd3c7fg9gbiGBTAk1+ziA3hMtpTfDvkhZY4XkpskW3YFDRTsW07mdlI71\n\
        xby/ju22by8hmkLcuxA6lx+sWsyPvgb/z79qGYINNEO3sg734K4ZOMwmlOv7FFVq\n\
        AwIDAQAB\n\
        -----END PUBLIC KEY-----";
    for more in ["", "ssl-mode=DISABLED", "ssl-mode=PREFERRED", "get-server-public-key=0"] {
        let (heard, error) = asked_by_mysql(more, KEY);
        assert_eq!(heard, [b""], "{more}: neither a wish for a key nor a password");
        assert!(
            error.contains("sealed for a key") && error.contains("get-server-public-key"),
            "{error}"
        );
    }
    let (heard, error) = asked_by_mysql("get-server-public-key=1", KEY);
    assert_eq!((heard.len(), heard[1].len()), (2, 256), "{error}");
    assert!(error.contains("not today"), "{error}");
    // For the key that the user has, whatever the server would send.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("public_key.pem");
    std::fs::write(&file, KEY).unwrap();
    let named = format!("server-public-key-path={}", file.display());
    let (heard, error) = asked_by_mysql(&named, b"none");
    assert_eq!((heard.len(), heard[0].len()), (1, 256), "{error}");
    std::fs::write(&file, "no key").unwrap();
    let (heard, error) = asked_by_mysql(&named, KEY);
    assert_eq!(heard, [b""]);
    assert!(error.contains("is not an RSA key"), "{error}");
}
