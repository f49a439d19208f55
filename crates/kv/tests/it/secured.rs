//! TLS: who is let in, who is not, and what a peer may take that never shows anything.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::served::{Served, Value, free_port, request};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// An authority, a server's certificate, a client's, and one of another authority; nothing without
/// `openssl`.
fn certificates(directory: &Path) -> Option<()> {
    let run = |line: &str| {
        let done =
            Command::new("openssl").args(line.split(' ')).current_dir(directory).output().ok()?;
        assert!(done.status.success(), "openssl {line}: {}", String::from_utf8_lossy(&done.stderr));
        Some(())
    };
    std::fs::write(directory.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    for authority in ["ca", "other"] {
        let constraint = "-addext basicConstraints=critical,CA:TRUE";
        run(&format!(
            "req -x509 -days 30 {constraint} {key} -keyout {authority}.key -out {authority}.crt \
             -subj /CN={authority}"
        ))?;
    }
    for (name, authority) in [("server", "ca"), ("client", "ca"), ("stranger", "other")] {
        run(&format!("req -new {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"))?;
        run(&format!(
            "x509 -req -in {name}.csr -CA {authority}.crt -CAkey {authority}.key -days 30 \
             -set_serial 2 \
             -extfile names -out {name}.crt"
        ))?;
    }
    Some(())
}

struct Place {
    directory: tempfile::TempDir,
    port: u16,
}

impl Place {
    fn new() -> Option<Place> {
        let directory = tempfile::tempdir().unwrap();
        if certificates(directory.path()).is_none() {
            println!("skipped: openssl is not installed");
            return None;
        }
        Some(Place { directory, port: free_port() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn conf(&self, more: &str) -> String {
        let [cert, key, ca] = ["server.crt", "server.key", "ca.crt"].map(|name| self.path(name));
        format!(
            "tls-port {}\ntls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\n{more}",
            self.port,
            cert.display(),
            key.display(),
            ca.display()
        )
    }

    fn serve(&self, more: &str) -> Served {
        std::fs::write(self.path("conf"), self.conf(more)).unwrap();
        Served::start(self.directory.path())
    }

    /// A connection that trusts the authority, with a certificate of this name or none.
    fn connect(&self, name: Option<&str>) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path("ca.crt")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match name {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let chain =
                    vec![CertificateDer::from_pem_file(self.path(&format!("{name}.crt"))).unwrap()];
                let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key"))).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let server = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), server).unwrap();
        StreamOwned::new(connection, self.raw())
    }

    fn raw(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }
}

/// Whether a command is answered.
fn answers(stream: &mut (impl Read + Write)) -> bool {
    let mut reply = [0; 7];
    stream.write_all(&request(&[b"PING"])).is_ok()
        && stream.read_exact(&mut reply).is_ok()
        && &reply == b"+PONG\r\n"
}

#[test]
fn who_has_no_certificate_of_the_authority_is_not_let_in() {
    let Some(place) = Place::new() else { return };
    for (how, none, own, stranger) in
        [("yes", false, true, false), ("optional", true, true, false), ("no", true, true, true)]
    {
        let _served = place.serve(&format!("tls-auth-clients {how}\n"));
        for (name, wanted) in [(None, none), (Some("client"), own), (Some("stranger"), stranger)] {
            assert_eq!(answers(&mut place.connect(name)), wanted, "{how}: {name:?}");
        }
        // Who does not speak TLS is answered nothing, and executes nothing.
        let mut plain = place.raw();
        plain.write_all(&request(&[b"SET", b"plain", b"1"])).unwrap();
        let mut all = Vec::new();
        let _ = plain.read_to_end(&mut all);
        assert!(!all.starts_with(b"+"), "{all:?}");
        let mut client = place.connect(Some("client"));
        client.write_all(&request(&[b"EXISTS", b"plain"])).unwrap();
        let mut reply = [0; 4];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b":0\r\n");
    }
}

#[test]
fn large_values_and_pipelines_pass_through_tls_and_the_client_of_redis_understands_it() {
    let Some(place) = Place::new() else { return };
    let served = place.serve("tls-auth-clients no\n");
    let mut client = place.connect(None);
    let value: Vec<u8> = (0..20_000_000_u32).map(|n| (n % 251) as u8).collect();
    client.write_all(&request(&[b"SET", b"large", &value])).unwrap();
    let mut reply = [0; 5];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n");
    let pipeline: Vec<u8> = (0..50_000).flat_map(|_| request(&[b"INCR", b"n"])).collect();
    client.write_all(&pipeline).unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b":50000\r\n") {
        let mut some = [0; 65536];
        let got = client.read(&mut some).unwrap();
        assert!(got > 0);
        seen.extend_from_slice(&some[..got]);
    }
    assert_eq!(seen.iter().filter(|byte| **byte == b':').count(), 50_000);
    client.write_all(&request(&[b"GET", b"large"])).unwrap();
    let mut all = vec![0; b"$20000000\r\n".len() + value.len() + 2];
    client.read_exact(&mut all).unwrap();
    assert!(all[11..11 + value.len()] == value);
    // Messages reach subscribers.
    let mut subscriber = place.connect(None);
    subscriber.write_all(&request(&[b"SUBSCRIBE", b"news"])).unwrap();
    let mut answer = vec![0; b"*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n".len()];
    subscriber.read_exact(&mut answer).unwrap();
    assert_eq!(served.connect().say("PUBLISH news hello"), Value::Int(1));
    let mut message = vec![0; b"*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$5\r\nhello\r\n".len()];
    subscriber.read_exact(&mut message).unwrap();
    assert!(message.ends_with(b"hello\r\n"));
    let port = place.port.to_string();
    let ca = place.path("ca.crt");
    let cli = Command::new("redis-cli")
        .args(["-h", "localhost", "-p", &port, "--tls", "--cacert"])
        .arg(ca)
        .args(["GET", "n"])
        .output();
    match cli {
        Ok(done) => assert_eq!(String::from_utf8_lossy(&done.stdout), "50000\n", "{done:?}"),
        Err(_) => println!("skipped: redis-cli is not installed"),
    }
}

/// Bytes of memory that are not the tier's.
fn memory(served: &Served) -> u64 {
    let all = std::fs::read_to_string(format!("/proc/{}/status", served.id())).unwrap();
    let line = all.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn a_handshake_that_never_ends_is_cut_and_takes_little() {
    let Some(place) = Place::new() else { return };
    let served = place.serve("tls-auth-clients yes\nmaxclients 500\n");
    let mut random = fastrand::Rng::with_seed(4);
    // Bytes that are no handshake, or the head of one that would be very long.
    let before = memory(&served);
    for round in 0..150 {
        let mut stream = place.raw();
        let bytes: Vec<u8> = match round % 3 {
            0 => (0..random.usize(1..3000)).map(|_| random.u8(..)).collect(),
            1 => [&[22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff][..], &vec![7; 16_000]].concat(),
            _ => {
                (0..60).flat_map(|_| [&[22, 3, 3, 0x10, 0][..], &vec![1; 4096]].concat()).collect()
            }
        };
        // It may be cut before it has said all of it.
        let _ = stream.write_all(&bytes);
        let mut answer = Vec::new();
        if round % 3 > 0 {
            continue;
        }
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 100 && !answer.starts_with(b"-"), "{answer:?}");
    }
    // Many that say nothing, or half of something.
    let began = Instant::now();
    let mut silent: Vec<TcpStream> = (0..200).map(|_| place.raw()).collect();
    for stream in &mut silent[..100] {
        stream.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
    }
    assert!(answers(&mut place.connect(Some("client"))), "others are served meanwhile");
    let taken = memory(&served).saturating_sub(before);
    assert!(taken < 64 << 20, "{taken} bytes for 200 connections");
    for stream in &mut silent {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    let waited = began.elapsed();
    assert!((8..25).contains(&waited.as_secs()), "cut after {waited:?}");
    let mut client = place.connect(Some("client"));
    assert!(answers(&mut client));
    // One that is let in may take its time.
    std::thread::sleep(Duration::from_secs(2));
    assert!(answers(&mut client));
    let Value::Text(clients) = served.connect().say("INFO clients") else { panic!("no text") };
    assert!(clients.contains("connected_clients:2\r\n"), "{clients}");
}

#[test]
fn what_cannot_serve_tls_does_not_start_and_says_why() {
    let Some(place) = Place::new() else { return };
    std::fs::write(place.path("empty"), "").unwrap();
    let open = |change: &[(&str, &str)]| {
        let mut configuration = tiersmith_kv::Configuration::default();
        configuration.read(&place.conf(""), "conf").unwrap();
        configuration.set("port", "0").unwrap();
        for (name, value) in change {
            let value = if value.is_empty() {
                String::new()
            } else {
                place.path(value).display().to_string()
            };
            configuration.set(name, &value).unwrap();
        }
        let map = tiersmith_pmem::Mapping::in_memory(&vec![0; 8 << 20], 0);
        tiersmith_kv::Server::open(map, configuration)
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    assert_eq!(open(&[]), Ok(()));
    for (change, part) in [
        (("tls-cert-file", ""), "needs `tls-cert-file`"),
        (("tls-cert-file", "none"), "No such file"),
        (("tls-cert-file", "empty"), "no certificate"),
        (("tls-key-file", "server.crt"), "no private key"),
        (("tls-key-file", "client.key"), "`tls-key-file`"),
        (("tls-ca-cert-file", ""), "needs `tls-ca-cert-file`"),
    ] {
        let said = open(&[change]).unwrap_err();
        assert!(said.contains(part) && said.contains(change.0), "{change:?}: {said}");
    }
    let said = tiersmith_kv::Configuration::default().set("tls-auth-clients", "maybe").unwrap_err();
    assert!(said.contains("yes, no, optional"), "{said}");
}
