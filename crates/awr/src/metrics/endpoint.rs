//! A small HTTP server for metrics: `GET /metrics` and `GET /healthz`, nothing else, with hard
//! limits.
//!
//! | limit | what happens beyond it |
//! |---|---|
//! | the names in `hosts.rs` for a request over TCP | 421 |
//! | `HEAD` bytes of a request's head | 431 |
//! | `HEAD_TIME` from connection to the end of the head | 408 |
//! | `ANSWER_TIME` for sending an answer | the connection ends |
//! | `CONNECTIONS` at once | one ends: the oldest that has its answer, else that sends its head, else that has not read its answer for `DEAF`; 503 if none |
//!
//! A connection carries one request: a scrape every few seconds needs no more, and there is no
//! state in which two requests could be mixed up. So whoever is slow, silent or hostile holds one
//! connection for a few seconds, and a reader that sends its head at once gets through.
//!
//! Deliberately absent: keep-alive, bodies, compression, TLS, passwords. The default address is of
//! this machine only.
//!
//! Invariant: nothing that comes from outside is kept, repeated in an answer or written to the log.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use super::{Format, Hosts};

/// Bytes of a request's head at most.
const HEAD: usize = 8 << 10;
/// From the connection to the end of the head at most.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// How long sending an answer may take.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// How old a connection is at least that makes room for others before its answer was sent.
const DEAF: Duration = Duration::from_secs(10);
/// Connections at once.
const CONNECTIONS: usize = 64;
/// How long and how much is read on after an answer, so that what is still coming does not make the
/// system throw the answer away.
const LINGER: (Duration, usize) = (Duration::from_secs(1), 64 << 10);

/// Where an endpoint listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An address and a port; port 0 is any that is free.
    Tcp(SocketAddr),
    /// A socket in the file system, for its owner alone.
    Unix(PathBuf),
}

impl Listen {
    /// Reads `ADDRESS:PORT` or `unix:PATH`.
    ///
    /// # Errors
    /// A sentence, if it is neither.
    pub fn parse(text: &str) -> Result<Listen, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path.is_empty() {
                true => {
                    Err("there is no path behind unix:; write unix:/run/tiersmith.sock".to_owned())
                }
                false => Ok(Listen::Unix(PathBuf::from(path))),
            };
        }
        let wrong = |why: &str| {
            format!("{why}; write ADDRESS:PORT, for instance 127.0.0.1:9756, or unix:PATH")
        };
        let mut addresses = text.to_socket_addrs().map_err(|error| wrong(&error.to_string()))?;
        addresses.next().map(Listen::Tcp).ok_or_else(|| wrong("it has no address"))
    }

    /// Whether programs on other machines can reach it.
    pub fn is_open_to_others(&self) -> bool {
        matches!(self, Listen::Tcp(address) if !address.ip().is_loopback())
    }
}

/// What `/metrics` answers with.
type Answer = dyn Fn(Format) -> String + Send + Sync;

/// A server that runs; it ends when this value goes.
pub struct Endpoint {
    listen: Listen,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Endpoint {
    /// Listens, and answers each request for metrics with what `answer` gives. Over TCP it answers
    /// to the names in `hosts` only.
    ///
    /// # Errors
    /// If the address cannot be listened at.
    pub fn start(listen: &Listen, hosts: Hosts, answer: Arc<Answer>) -> std::io::Result<Endpoint> {
        let (listener, listen) = match listen {
            Listen::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                let address = listener.local_addr()?;
                (Listener::Tcp(listener), Listen::Tcp(address))
            }
            Listen::Unix(path) => (Listener::Unix(bind(path)?), listen.clone()),
        };
        // No page can make a browser open a socket in the file system.
        let hosts = matches!(listen, Listen::Tcp(_)).then(|| Arc::new(hosts));
        let stop = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || accept(&listener, &answer, hosts.as_ref(), &of_thread))?;
        Ok(Endpoint { listen, stop, thread: Some(thread) })
    }

    /// Where it listens, with the port that was free if any was asked for.
    pub fn listens_at(&self) -> &Listen {
        &self.listen
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("listen", &self.listen).finish_non_exhaustive()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // A connection of our own wakes the thread that waits for one.
        let woken = match &self.listen {
            Listen::Tcp(address) => {
                let mut address = *address;
                if address.ip().is_unspecified() {
                    let loopback = if address.is_ipv4() {
                        std::net::Ipv4Addr::LOCALHOST.into()
                    } else {
                        std::net::Ipv6Addr::LOCALHOST.into()
                    };
                    address.set_ip(loopback);
                }
                TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
            }
            Listen::Unix(path) => UnixStream::connect(path).is_ok(),
        };
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
        if let Listen::Unix(path) = &self.listen {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A socket at `path`; one that nobody listens at any more is replaced, anything else is not.
fn bind(path: &Path) -> std::io::Result<UnixListener> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|of| of.file_type().is_socket());
    if is_socket
        && let Err(error) = UnixStream::connect(path)
        && error.kind() == ErrorKind::ConnectionRefused
    {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

impl Listener {
    fn accept(&self) -> std::io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
            Listener::Unix(listener) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
        }
    }
}

impl Stream {
    fn twin(&self) -> std::io::Result<Stream> {
        match self {
            Stream::Tcp(stream) => stream.try_clone().map(Stream::Tcp),
            Stream::Unix(stream) => stream.try_clone().map(Stream::Unix),
        }
    }

    fn shut(&self, how: Shutdown) {
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(how),
            Stream::Unix(stream) => stream.shutdown(how),
        };
    }

    /// Reads, at the latest until `deadline`.
    fn read(&mut self, buffer: &mut [u8], deadline: Instant) -> std::io::Result<usize> {
        let left = Some(left(deadline)?);
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(left).and_then(|()| stream.read(buffer)),
            Stream::Unix(stream) => {
                stream.set_read_timeout(left).and_then(|()| stream.read(buffer))
            }
        }
    }

    fn write_all(&mut self, mut bytes: &[u8], deadline: Instant) -> std::io::Result<()> {
        while !bytes.is_empty() {
            let left = Some(left(deadline)?);
            let written = match self {
                Stream::Tcp(stream) => {
                    stream.set_write_timeout(left).and_then(|()| stream.write(bytes))
                }
                Stream::Unix(stream) => {
                    stream.set_write_timeout(left).and_then(|()| stream.write(bytes))
                }
            };
            match written {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The time until `deadline`; an error if it has passed.
fn left(deadline: Instant) -> std::io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    // No time at all would mean no limit.
    if left < Duration::from_millis(1) { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A connection under way.
struct Open {
    stream: Stream,
    since: Instant,
    state: Arc<AtomicU8>,
}

/// States of a connection, in their order.
const READS_HEAD: u8 = 0;
const ANSWERS: u8 = 1;
const LINGERS: u8 = 2;
const OVER: u8 = 3;

/// The connection that makes room for another one, if one may.
fn victim(open: &[Open]) -> Option<usize> {
    let oldest =
        |wanted: u8| open.iter().position(|open| open.state.load(Ordering::SeqCst) == wanted);
    let deaf = || oldest(ANSWERS).filter(|at| open[*at].since.elapsed() > DEAF);
    oldest(LINGERS).or_else(|| oldest(READS_HEAD)).or_else(deaf)
}

fn accept(
    listener: &Listener,
    answer: &Arc<Answer>,
    hosts: Option<&Arc<Hosts>>,
    stop: &AtomicBool,
) {
    let mut open: Vec<Open> = Vec::new();
    loop {
        let accepted = listener.accept();
        if stop.load(Ordering::SeqCst) {
            open.iter().for_each(|open| open.stream.shut(Shutdown::Both));
            return;
        }
        let Ok(mut stream) = accepted else {
            // No file descriptors are left, for instance: others end in a moment.
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        open.retain(|open| open.state.load(Ordering::SeqCst) != OVER);
        if open.len() >= CONNECTIONS {
            match victim(&open) {
                Some(at) => open.remove(at).stream.shut(Shutdown::Both),
                None => {
                    let soon = Instant::now() + Duration::from_millis(50);
                    let _ = stream.write_all(&head(503, "text/plain", 0), soon);
                    continue;
                }
            }
        }
        let state = Arc::new(AtomicU8::new(READS_HEAD));
        let Ok(twin) = stream.twin() else { continue };
        open.push(Open { stream: twin, since: Instant::now(), state: Arc::clone(&state) });
        let (answer, hosts) = (Arc::clone(answer), hosts.map(Arc::clone));
        let serve = move || {
            // A panic in the answer ends this connection only, and is counted as its end.
            let over = Over(state);
            serve(stream, &*answer, hosts.as_deref(), &over.0);
        };
        // Without a thread the connection ends: its stream goes with the closure, and its twin
        // here.
        if std::thread::Builder::new().name("metrics".to_owned()).spawn(serve).is_err() {
            open.pop();
        }
    }
}

/// Says that a connection is over, however that came about.
struct Over(Arc<AtomicU8>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(OVER, Ordering::SeqCst);
    }
}

fn serve(mut stream: Stream, answer: &Answer, hosts: Option<&Hosts>, state: &AtomicU8) {
    let request = read_head(&mut stream);
    state.store(ANSWERS, Ordering::SeqCst);
    let plain = "text/plain; charset=utf-8";
    let (status, kind, body, without_body) = match request {
        Err(status) => (status, plain, String::new(), false),
        Ok(request) if hosts.is_some_and(|hosts| !request.is_for(hosts)) => {
            let why = "this endpoint does not answer to the name in the Host header; start it with \
                       --allow-host NAME, or ask by address\n";
            (421, plain, why.to_owned(), request.head_only)
        }
        Ok(request) => {
            let (status, kind, body) = match request.path.as_str() {
                "/metrics" => (200, request.format.content_type(), answer(request.format)),
                "/healthz" => (200, plain, "ok\n".to_owned()),
                "/" => (200, plain, "tiersmith: /metrics and /healthz\n".to_owned()),
                _ => (404, plain, "there are /metrics and /healthz\n".to_owned()),
            };
            (status, kind, body, request.head_only)
        }
    };
    let mut bytes = head(status, kind, body.len());
    if !without_body {
        bytes.extend(body.as_bytes());
    }
    let sent = stream.write_all(&bytes, Instant::now() + ANSWER_TIME).is_ok();
    stream.shut(Shutdown::Write);
    state.store(LINGERS, Ordering::SeqCst);
    if sent {
        let (until, mut room) = (Instant::now() + LINGER.0, LINGER.1);
        let mut buffer = [0; 4096];
        while let Ok(read) = stream.read(&mut buffer, until)
            && read > 0
            && room > read
        {
            room -= read;
        }
    }
    // The twin would keep the connection open until somebody looks.
    stream.shut(Shutdown::Both);
}

/// What is wanted.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    path: String,
    format: Format,
    head_only: bool,
    /// What the `Host` headers say.
    hosts: Vec<String>,
}

impl Request {
    fn is_for(&self, hosts: &Hosts) -> bool {
        let said: Vec<&str> = self.hosts.iter().map(String::as_str).collect();
        hosts.allow(&said)
    }
}

/// The request, or the status that says what is wrong with it.
fn read_head(stream: &mut Stream) -> Result<Request, u16> {
    let deadline = Instant::now() + HEAD_TIME;
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        match stream.read(&mut buffer, deadline) {
            Ok(0) => return Err(400),
            Ok(read) => {
                // The end may be cut by two reads: look again at the last bytes.
                let from = head.len().saturating_sub(3);
                head.extend_from_slice(&buffer[..read]);
                let end = |mark: &[u8]| {
                    head[from..].windows(mark.len()).position(|window| window == mark)
                };
                if let Some(end) = end(b"\r\n\r\n").or_else(|| end(b"\n\n")) {
                    return parse(&head[..from + end]);
                }
                if head.len() >= HEAD {
                    return Err(431);
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(408);
            }
            Err(_) => return Err(400),
        }
    }
}

fn parse(head: &[u8]) -> Result<Request, u16> {
    let text = std::str::from_utf8(head).map_err(|_| 400_u16)?;
    let mut lines = text.lines();
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = words[..] else { return Err(400) };
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return Err(400);
    }
    if !matches!(method, "GET" | "HEAD") {
        return Err(405);
    }
    let headers: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(':')).collect();
    // A name with blanks around it is none to us and may be one to others: then it counts.
    let all = |wanted: &str| -> Vec<&str> {
        let named = headers.iter().filter(|(name, _)| name.trim().eq_ignore_ascii_case(wanted));
        named.map(|(_, value)| value.trim()).collect()
    };
    let path = target.split(['?', '#']).next().unwrap_or_default().to_owned();
    let format = Format::accepted(&all("accept").join(","));
    let hosts = all("host").into_iter().map(str::to_owned).collect();
    Ok(Request { path, format, head_only: method == "HEAD", hosts })
}

/// The path that the head of a request asks for, or the status it is refused with: for fuzz
/// targets.
///
/// # Errors
/// The status.
#[cfg(feature = "testing")]
pub fn path_of_head(head: &[u8]) -> Result<String, u16> {
    parse(head).map(|request| request.path)
}

fn head(status: u16, kind: &str, length: usize) -> Vec<u8> {
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        _ => "Service Unavailable",
    };
    let allow = if status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: \
         {length}\r\n{allow}Cache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_what_is_none_is_refused_with_an_example() {
        assert_eq!(Listen::parse("unix:/run/t.sock"), Ok(Listen::Unix("/run/t.sock".into())));
        assert_eq!(Listen::parse("unix:///run/t.sock"), Ok(Listen::Unix("/run/t.sock".into())));
        let here = Listen::parse("127.0.0.1:9756").expect("an address");
        assert!(!here.is_open_to_others() && !Listen::Unix("/x".into()).is_open_to_others());
        assert!(Listen::parse("0.0.0.0:9756").expect("an address").is_open_to_others());
        for wrong in ["", "9756", "127.0.0.1", "127.0.0.1:99999", "unix:"] {
            let error = Listen::parse(wrong).expect_err(wrong);
            assert!(error.contains("write "), "{error}");
        }
    }

    #[test]
    fn no_head_makes_it_panic_and_only_whole_requests_are_answered() {
        let good =
            parse(b"GET /metrics?a=b HTTP/1.1\r\nHost: x\r\nACCEPT: application/openmetrics-text")
                .expect("a request");
        assert_eq!(
            (good.path.as_str(), good.format, good.head_only),
            ("/metrics", Format::OpenMetrics, false)
        );
        assert_eq!(parse(b"POST /metrics HTTP/1.1"), Err(405));
        for wrong in [
            &b""[..],
            b"GET",
            b"GET /metrics",
            b"GET metrics HTTP/1.1",
            b"GET / HTTP/2",
            b"GET /a b HTTP/1.1",
            b"\xff\xfe",
        ] {
            assert_eq!(parse(wrong), Err(400));
        }
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..rng.usize(0..40))
                .map(|_| rng.choice(b"GET /: HTP1.\r\n\xff\0").copied().unwrap_or_default())
                .collect();
            let _ = parse(&bytes);
        }
    }
}
