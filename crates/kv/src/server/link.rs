//! The connection to a primary: a thread that reads what the primary sends, and no more.
//!
//! It knows neither keys nor tier. What it has read goes through a channel to the server's thread,
//! which applies it; messages and bytes on their way are limited ([`Quota`]), so a primary that is
//! faster than the tier waits in its socket.
//! When the connection is lost it connects again, and says from which position to go on.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::quota::Quota;
use super::request::{Limits, Next, Request};
use crate::format::entry::LENGTH_MAX;
use crate::rdb;

/// Messages that may wait for the server.
const QUEUE: usize = 512;
/// Bytes of messages that may wait for the server; a larger message waits alone.
const QUEUE_BYTES: u64 = 64 << 20;
/// The greatest position that a copy can begin at.
const POSITION_MAX: u64 = 1 << 62;
/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_secs(1);
const CONNECT: Duration = Duration::from_secs(5);

/// What a primary said.
#[derive(Debug)]
pub(super) enum Said {
    /// All of its data come, and nothing of what was there counts.
    Begin,
    /// A key of them.
    Key(rdb::Item),
    /// They were all: the name of its history, and the position.
    Whole { history: String, position: u64, db: u8, ack: TcpStream },
    /// It goes on behind this position; its history may have another name.
    GoesOn { history: Option<String>, position: u64, ack: TcpStream },
    /// A command, and how many bytes of the stream it took.
    Command { words: Vec<Vec<u8>>, bytes: u64 },
    /// The connection is lost.
    Lost(String),
}

impl Said {
    /// Bytes of memory that it takes, more or less.
    fn bytes(&self) -> u64 {
        let each =
            |all: &mut dyn Iterator<Item = usize>| all.map(|len| len as u64 + 48).sum::<u64>();
        match self {
            Said::Command { words, .. } => each(&mut words.iter().map(Vec::len)),
            Said::Key(item) => {
                let content = match &item.content {
                    rdb::Content::String(value) | rdb::Content::Library(value) => {
                        value.len() as u64
                    }
                    rdb::Content::List(all) | rdb::Content::Set(all) => {
                        each(&mut all.iter().map(Vec::len))
                    }
                    rdb::Content::Hash(all) => {
                        each(&mut all.iter().map(|(f, v)| f.len() + v.len() + 48))
                    }
                    rdb::Content::Sorted(all) => {
                        each(&mut all.iter().map(|(member, _)| member.len() + 8))
                    }
                    rdb::Content::Stream(stream) => {
                        let pairs = stream.blocks.iter().flatten().flat_map(|entry| &entry.pairs);
                        let pending =
                            stream.groups.iter().map(|group| group.pending.len() as u64 * 40);
                        each(&mut pairs.map(|(f, v)| f.len() + v.len() + 48)) + pending.sum::<u64>()
                    }
                };
                content + item.key.len() as u64
            }
            _ => 0,
        }
    }
}

/// Where to go on.
#[derive(Clone, Debug)]
pub(super) struct Resume {
    pub(super) history: String,
    pub(super) position: u64,
}

/// What the server says of the place to go on: only behind all that was said before is it known.
#[derive(Debug)]
pub(super) enum Place {
    NotYet,
    Known(Option<Resume>),
}

/// How to connect.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) user: String,
    pub(super) password: String,
    pub(super) timeout: Duration,
    /// What the primary is told of this server.
    pub(super) own_ip: String,
    pub(super) own_port: u64,
    /// What its data may take of the memory.
    pub(super) limits: rdb::Limits,
    /// Bytes of one of its commands.
    pub(super) command_max: u64,
}

/// The thread, as the server has it.
pub(super) struct Line {
    said: Receiver<Said>,
    quota: Arc<Quota>,
    /// Readable when something was said.
    pub(super) bell: Arc<OwnedFd>,
    /// Where the next connection goes on; nothing: with all of the data.
    pub(super) place: Arc<Mutex<Place>>,
    stop: Arc<AtomicBool>,
    socket: Arc<Mutex<Option<TcpStream>>>,
}

impl Line {
    /// Ends the connection; another one is made.
    pub(super) fn cut(&self) {
        if let Some(socket) = self.socket.lock().ok().as_deref().and_then(Option::as_ref) {
            // One that is gone already needs no end.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// What was said next, if something was.
    pub(super) fn next(&self) -> Option<Said> {
        let said = self.said.try_recv().ok()?;
        self.quota.give(said.bytes());
        Some(said)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.quota.close();
        if let Some(socket) = self.socket.lock().ok().as_deref_mut().and_then(Option::take) {
            // One that is gone already needs no end.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

struct Speaker {
    address: Address,
    out: SyncSender<Said>,
    quota: Arc<Quota>,
    bell: Arc<OwnedFd>,
    place: Arc<Mutex<Place>>,
    stop: Arc<AtomicBool>,
    socket: Arc<Mutex<Option<TcpStream>>>,
    /// The other side is asked to be the primary from now on.
    hands_over: bool,
}

/// Rings the bell that the server waits for.
pub(super) fn ring(bell: &OwnedFd) {
    // It can only fail when it rings already.
    let _ = rustix::io::write(bell, &1_u64.to_le_bytes());
}

/// Begins to follow.
///
/// # Errors
/// There is no descriptor or thread.
pub(super) fn follow(
    address: Address,
    resume: Option<Resume>,
    hands_over: bool,
) -> std::io::Result<Line> {
    let (line, speaker) = pair(address, resume, hands_over)?;
    std::thread::Builder::new().name("kv primary".to_owned()).spawn(move || speaker.run())?;
    Ok(line)
}

/// Follows a primary that says this and then closes the connection; tests only.
///
/// # Errors
/// There is no descriptor or thread.
#[cfg(feature = "testing")]
pub(super) fn follow_bytes(
    address: Address,
    resume: Option<Resume>,
    bytes: Vec<u8>,
    ack: TcpStream,
) -> std::io::Result<Line> {
    let (line, speaker) = pair(address, resume.clone(), false)?;
    std::thread::Builder::new().spawn(move || {
        let why = match speaker.converse(&bytes[..], std::io::sink(), ack, resume) {
            Ok(()) => "the primary closed the connection".to_owned(),
            Err(why) => why,
        };
        speaker.say(Said::Lost(why))
    })?;
    Ok(line)
}

/// Both ends of the channel.
fn pair(
    address: Address,
    resume: Option<Resume>,
    hands_over: bool,
) -> std::io::Result<(Line, Speaker)> {
    let (out, said) = sync_channel(QUEUE);
    let quota = Arc::new(Quota::new(QUEUE_BYTES));
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let line = Line {
        said,
        quota: Arc::clone(&quota),
        bell: Arc::clone(&bell),
        place: Arc::new(Mutex::new(Place::Known(resume))),
        stop: Arc::default(),
        socket: Arc::default(),
    };
    let speaker = Speaker {
        address,
        out,
        quota,
        bell,
        place: Arc::clone(&line.place),
        stop: Arc::clone(&line.stop),
        socket: Arc::clone(&line.socket),
        hands_over,
    };
    Ok((line, speaker))
}

type Heard<T> = Result<T, String>;

fn io(what: &'static str) -> impl Fn(std::io::Error) -> String {
    move |error| format!("cannot {what}: {error}")
}

impl Speaker {
    fn run(self) {
        while !self.stop.load(Ordering::Relaxed) {
            let place = match self.place.lock() {
                Ok(mut place) => std::mem::replace(&mut *place, Place::NotYet),
                Err(_) => return,
            };
            let Place::Known(resume) = place else {
                std::thread::sleep(PAUSE / 20);
                continue;
            };
            let why = match self.connect().and_then(|stream| self.attend(stream, resume)) {
                Ok(()) => "the primary closed the connection".to_owned(),
                Err(why) => why,
            };
            if !self.say(Said::Lost(why)) {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Whether somebody listens.
    fn say(&self, said: Said) -> bool {
        let heard = self.quota.take(said.bytes()) && self.out.send(said).is_ok();
        ring(&self.bell);
        heard && !self.stop.load(Ordering::Relaxed)
    }

    fn connect(&self) -> Heard<TcpStream> {
        let Address { host, port, timeout, .. } = &self.address;
        let addresses = (host.as_str(), *port).to_socket_addrs().map_err(io("find the primary"))?;
        let mut last = "cannot find the primary".to_owned();
        for address in addresses {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(stream) => {
                    let set = stream
                        .set_nodelay(true)
                        .and_then(|()| stream.set_read_timeout(Some(*timeout)))
                        .and_then(|()| stream.set_write_timeout(Some(*timeout)))
                        .and_then(|()| stream.try_clone());
                    let clone = set.map_err(io("prepare the connection"))?;
                    if let Ok(mut socket) = self.socket.lock() {
                        *socket = Some(clone);
                    }
                    return Ok(stream);
                }
                Err(error) => last = format!("cannot connect to {address}: {error}"),
            }
        }
        Err(last)
    }

    fn attend(&self, stream: TcpStream, resume: Option<Resume>) -> Heard<()> {
        let clone = || stream.try_clone().map_err(io("prepare the connection"));
        let (out, ack) = (clone()?, clone()?);
        self.converse(BufReader::with_capacity(64 << 10, stream), out, ack, resume)
    }

    /// Asks the primary for its stream, and takes that; `ack`: where the server acknowledges it.
    fn converse<R: BufRead>(
        &self,
        mut input: R,
        mut out: impl Write,
        ack: TcpStream,
        resume: Option<Resume>,
    ) -> Heard<()> {
        let mut ask = |input: &mut R, words: &[&str]| -> Heard<String> {
            let mut bytes = format!("*{}\r\n", words.len());
            for word in words {
                bytes += &format!("${}\r\n{word}\r\n", word.len());
            }
            out.write_all(bytes.as_bytes()).map_err(io("speak to the primary"))?;
            line(input)
        };
        let Address { user, password, own_ip, own_port, .. } = &self.address;
        let said = ask(&mut input, &["PING"])?;
        if !(said.starts_with("+PONG")
            || said.starts_with("-NOAUTH")
            || said.starts_with("-NOPERM"))
        {
            return Err(format!("the primary answers a PING with `{said}`"));
        }
        if !password.is_empty() {
            let words = match user.as_str() {
                "" => vec!["AUTH", password],
                user => vec!["AUTH", user, password],
            };
            let said = ask(&mut input, &words)?;
            if !said.starts_with("+OK") {
                return Err(format!("the primary refuses masterauth: {said}"));
            }
        }
        // A primary that does not know one of these goes on without it.
        ask(&mut input, &["REPLCONF", "listening-port", &own_port.to_string()])?;
        if !own_ip.is_empty() {
            ask(&mut input, &["REPLCONF", "ip-address", own_ip])?;
        }
        ask(&mut input, &["REPLCONF", "capa", "eof", "capa", "psync2"])?;
        let said = match &resume {
            Some(Resume { history, position }) if self.hands_over => {
                ask(&mut input, &["PSYNC", history, &(position + 1).to_string(), "FAILOVER"])?
            }
            Some(Resume { history, position }) => {
                ask(&mut input, &["PSYNC", history, &(position + 1).to_string()])?
            }
            None => ask(&mut input, &["PSYNC", "?", "-1"])?,
        };
        let mut words = said.split_whitespace();
        match (words.next(), words.next(), words.next(), resume) {
            (Some("+CONTINUE"), history, _, Some(Resume { position, .. })) => {
                let history = history.map(str::to_owned);
                if !self.say(Said::GoesOn { history, position, ack }) {
                    return Ok(());
                }
            }
            (Some("+FULLRESYNC"), Some(history), Some(position), _) if history.len() == 40 => {
                let history = history.to_owned();
                // Redis counts with a sign: what no primary reaches would not leave room to count.
                let position = position.parse::<u64>().ok().filter(|at| *at <= POSITION_MAX);
                let position = position.ok_or_else(|| format!("no position: `{said}`"))?;
                if !self.say(Said::Begin) {
                    return Ok(());
                }
                let db = self.data(&mut input)?;
                if !self.say(Said::Whole { history, position, db, ack }) {
                    return Ok(());
                }
            }
            _ => return Err(format!("the primary answers PSYNC with `{said}`")),
        }
        self.commands(input)
    }

    /// All of the primary's data; the database that its stream has selected.
    fn data(&self, input: &mut impl BufRead) -> Heard<u8> {
        let said = line(input)?;
        let each = |item| match self.say(Said::Key(item)) {
            true => Ok(()),
            false => Err("the server follows somebody else".to_owned()),
        };
        let said = said.strip_prefix('$').ok_or_else(|| format!("no data come, but `{said}`"))?;
        if let Some(mark) = said.strip_prefix("EOF:") {
            let mark = mark.as_bytes().to_owned();
            let read = rdb::read_copy(input, self.address.limits, each)
                .map_err(|error| error.to_string())?;
            let mut end = [0; 40];
            input.read_exact(&mut end).map_err(io("read the end of the data"))?;
            return if end == mark[..] {
                Ok(read.stream_db)
            } else {
                Err("the data end in the wrong place".to_owned())
            };
        }
        let len = said.parse::<u64>().map_err(|_| format!("no length of the data: `{said}`"))?;
        let mut part = input.take(len);
        let read = rdb::read_copy(&mut part, self.address.limits, each)
            .map_err(|error| error.to_string())?;
        if part.limit() == 0 {
            Ok(read.stream_db)
        } else {
            Err("the data end in the wrong place".to_owned())
        }
    }

    fn commands(&self, mut input: impl BufRead) -> Heard<()> {
        let (mut bytes, mut request) = (Vec::new(), Request::default());
        loop {
            let more = input.fill_buf().map_err(io("hear the primary"))?;
            if more.is_empty() {
                return Ok(());
            }
            bytes.extend_from_slice(more);
            let len = more.len();
            input.consume(len);
            let mut done = 0;
            loop {
                if !matches!(bytes.get(done), None | Some(b'*' | b'\n')) {
                    return Err("the primary sends no commands, but something else".to_owned());
                }
                let limits = Limits { bulk: LENGTH_MAX, allowed: true };
                match request.read(&bytes[done..], limits) {
                    Next::Whole(len) => {
                        let mut words: smallvec::SmallVec<[&[u8]; 8]> = smallvec::SmallVec::new();
                        request.arguments(&bytes[done..], &mut words);
                        let own = words.iter().map(|word| word.to_vec()).collect();
                        drop(words);
                        if !self.say(Said::Command { words: own, bytes: len as u64 }) {
                            return Ok(());
                        }
                        done += len;
                        request.reset();
                    }
                    Next::More => break,
                    Next::Wrong(why) => {
                        return Err(format!("the primary sends no commands: {why}"));
                    }
                }
            }
            bytes.drain(..done);
            let most = self.address.command_max;
            if bytes.len() as u64 > most {
                return Err(format!(
                    "the primary sends a command of more than {most} bytes; raise \
                     client-query-buffer-limit \
                     if that is wanted, and say REPLICAOF again"
                ));
            }
        }
    }
}

/// A line; empty ones only say that the primary is still there.
fn line(input: &mut impl BufRead) -> Heard<String> {
    loop {
        let mut bytes = Vec::new();
        input.by_ref().take(4096).read_until(b'\n', &mut bytes).map_err(io("hear the primary"))?;
        if !bytes.ends_with(b"\n") {
            return Err("the primary closed the connection".to_owned());
        }
        let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
        if !text.is_empty() {
            return Ok(text);
        }
    }
}
