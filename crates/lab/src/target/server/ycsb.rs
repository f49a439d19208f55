//! YCSB's operations on Redis: a record is a hash, and a sorted set has the keys in their order for
//! scans.
//!
//! As YCSB's own binding has it, but that its set is sorted by a hash of the key and ours by the
//! key, so that a scan means the same as in SQL. A change is durable when it is answered, if the
//! server is set so.
//!
//! **Invariants**: an answer that is an error or lacks a field ends the run; after a run every
//! record that was loaded or acknowledged is there, and every field belongs to its record.

use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tiersmith_awr::events::{EventId, Recorder};
use tiersmith_awr::resp::{self, Reply};

use super::PATIENCE;
use crate::error::{During, Error, Result};
use crate::server::Client;
use crate::session::{CALLS, COMMIT, COMMITS, EXECUTES, ROWS, SELECT};
use crate::target::transactions::{Connected, Recorders};
use crate::target::ycsb::{INSERT, READ, READ_MODIFY_WRITE, SCAN, UPDATE};
use crate::workload::ycsb::{Operation, Plan, Ycsb, key, value};

/// The sorted set.
const INDEX: &str = "_indices";
/// Records whose commands are sent at once while they are loaded and checked.
const AT_ONCE: u64 = 64;

/// A connection: commands are sent together and answered in their order.
struct Connection {
    input: BufReader<UnixStream>,
    output: UnixStream,
    bytes: Vec<u8>,
    sent: u32,
    socket: PathBuf,
}

impl Connection {
    fn open(socket: &Path) -> Result<Connection> {
        let streams = UnixStream::connect(socket).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok((BufReader::with_capacity(64 << 10, stream.try_clone()?), stream))
        });
        let (input, output) = streams.during("connect to", socket)?;
        Ok(Connection { input, output, bytes: Vec::new(), sent: 0, socket: socket.into() })
    }

    fn failed(&self, reason: String) -> Error {
        Error::Target { what: "the load".into(), database: self.socket.clone(), reason }
    }

    /// Puts a command behind those that wait to be sent.
    fn push(&mut self, words: &[&str]) -> Result<()> {
        let put = resp::send(&mut self.bytes, words);
        self.sent += 1;
        put.map_err(|e| self.failed(format!("a command cannot be written: {e}")))
    }

    /// Sends what waits; every answer.
    fn answers(&mut self) -> Result<Vec<Reply>> {
        let sent = self.output.write_all(&self.bytes);
        self.bytes.clear();
        sent.map_err(|e| self.failed(format!("sending commands: {e}")))?;
        let mut replies = Vec::new();
        for _ in 0..std::mem::take(&mut self.sent) {
            let reply = resp::receive(&mut self.input);
            match reply.map_err(|e| self.failed(format!("reading an answer: {e}")))? {
                Reply::Refused(reason) => return Err(self.failed(reason)),
                reply => replies.push(reply),
            }
        }
        Ok(replies)
    }
}

fn fields(load: &Ycsb) -> Vec<String> {
    (0..load.settings.fields).map(|n| format!("field{n}")).collect()
}

/// The commands that add a record.
fn push_record(to: &mut Connection, names: &[String], key: &str, values: &[String]) -> Result<()> {
    let mut words = vec!["HSET", key];
    words
        .extend(names.iter().zip(values).flat_map(|(name, value)| [name.as_str(), value.as_str()]));
    to.push(&words)?;
    to.push(&["ZADD", INDEX, "0", key])
}

/// The command that reads a record.
fn push_read(to: &mut Connection, names: &[String], key: &str) -> Result<()> {
    let words: Vec<&str> =
        ["HMGET", key].into_iter().chain(names.iter().map(String::as_str)).collect();
    to.push(&words)
}

/// Whether every field is there and belongs to the record.
fn belongs(reply: &Reply, key: &str, fields: usize) -> bool {
    let found = reply.list();
    let right = |value: &Reply| value.text().is_some_and(|text| text.starts_with(key));
    found.len() == fields && found.iter().all(right)
}

/// Loads the records.
///
/// # Errors
/// What the server says; [`Error::Interrupted`] if `progress` said no.
pub(super) fn fill(
    socket: &Path,
    load: &Ycsb,
    seed: u64,
    progress: &dyn Fn(f64) -> bool,
) -> Result<()> {
    let mut connection = Connection::open(socket)?;
    let names = fields(load);
    let mut random = fastrand::Rng::with_seed(seed ^ 0x7963_7362);
    for first in (0..load.records).step_by(AT_ONCE as usize) {
        for record in first..(first + AT_ONCE).min(load.records) {
            let key = key(record);
            let values: Vec<String> =
                names.iter().map(|_| value(&load.settings, &key, &mut random)).collect();
            push_record(&mut connection, &names, &key, &values)?;
        }
        connection.answers()?;
        if !progress(first as f64 / load.records as f64) {
            return Err(Error::Interrupted);
        }
    }
    Ok(())
}

/// Records by the server's count of its keys: one is the sorted set.
///
/// # Errors
/// What the server says.
pub(super) fn counted(client: &mut dyn Client) -> Result<u64> {
    Ok(client.number("DBSIZE")?.saturating_sub(1))
}

/// Whether what is there after a run is what must be there; so many more may be there that were
/// under way when the server was killed.
///
/// # Errors
/// [`Error::Unsound`]; what the server says.
pub(super) fn check(socket: &Path, load: &Ycsb, under_way: u64) -> Result<()> {
    let mut connection = Connection::open(socket)?;
    let unsound = |reason: String| Err(Error::Unsound { database: socket.into(), reason });
    connection.push(&["ZRANGE", INDEX, "0", "-1"])?;
    let keys = connection.answers()?;
    let keys: Vec<&str> =
        keys.first().map_or(&[][..], Reply::list).iter().filter_map(Reply::text).collect();
    let expected = load.there();
    if !(expected..=expected + under_way).contains(&(keys.len() as u64)) {
        return unsound(format!("{expected} records must be there, and {} are", keys.len()));
    }
    let names = fields(load);
    for keys in keys.chunks(AT_ONCE as usize) {
        for key in keys {
            push_read(&mut connection, &names, key)?;
        }
        for (key, reply) in keys.iter().zip(connection.answers()?) {
            if !belongs(&reply, key, names.len()) {
                return unsound(format!(
                    "a field of the record {key} is missing or belongs to another"
                ));
            }
        }
    }
    Ok(())
}

/// A client of a run.
pub(super) struct YcsbOnRedis<'a> {
    load: &'a Ycsb,
    plan: Plan<'a>,
    connection: Connection,
    names: Vec<String>,
    next: Operation,
}

impl<'a> YcsbOnRedis<'a> {
    /// With a connection of its own.
    ///
    /// # Errors
    /// What the server says.
    pub(super) fn open(
        socket: &Path,
        load: &'a Ycsb,
        seed: u64,
        number: u32,
    ) -> Result<YcsbOnRedis<'a>> {
        Ok(YcsbOnRedis {
            load,
            plan: load.plan(seed, number),
            connection: Connection::open(socket)?,
            names: fields(load),
            next: Operation::Read(0),
        })
    }

    fn read(&mut self, of: &Recorder, record: u64) -> Result<()> {
        let key = key(record);
        let start = of.start();
        push_read(&mut self.connection, &self.names, &key)?;
        let answers = self.connection.answers()?;
        let _ = of.record(SELECT, start);
        of.count(ROWS, 1);
        if answers.iter().all(|reply| belongs(reply, &key, self.names.len())) {
            return Ok(());
        }
        Err(self
            .connection
            .failed(format!("a field of the record {key} is missing or belongs to another")))
    }

    fn scan(&mut self, of: &Recorder, record: u64, count: u32) -> Result<()> {
        let (from, most) = (format!("[{}", key(record)), count.to_string());
        let start = of.start();
        self.connection.push(&["ZRANGEBYLEX", INDEX, &from, "+", "LIMIT", "0", &most])?;
        let found = self.connection.answers()?;
        let keys = found.first().map_or(&[][..], Reply::list).iter().filter_map(Reply::text);
        let mut count = 0;
        for key in keys {
            push_read(&mut self.connection, &self.names, key)?;
            count += 1;
        }
        self.connection.answers()?;
        let _ = of.record(SELECT, start);
        of.count(ROWS, count);
        Ok(())
    }

    /// A change is durable when it is answered: what it takes is what a commit takes elsewhere.
    fn write(&mut self, of: &Recorder, record: u64, field: Option<u32>) -> Result<()> {
        let key = key(record);
        match field {
            Some(field) => {
                let value = self.plan.value(&key);
                let name = self.names.get(field as usize).map_or("field0", String::as_str);
                self.connection.push(&["HSET", &key, name, &value])?;
            }
            None => {
                let values: Vec<String> =
                    self.names.iter().map(|_| self.plan.value(&key)).collect();
                push_record(&mut self.connection, &self.names, &key, &values)?;
            }
        }
        let start = of.start();
        self.connection.answers()?;
        let _ = of.record(COMMIT, start);
        of.count(ROWS, 1);
        of.count(COMMITS, 1);
        Ok(())
    }

    fn operation(&mut self, of: &Recorder) -> Result<EventId> {
        Ok(match self.next {
            Operation::Read(record) => self.read(of, record).map(|()| READ)?,
            Operation::Update { record, field } => {
                self.write(of, record, Some(field)).map(|()| UPDATE)?
            }
            Operation::Insert(record) => self.write(of, record, None).map(|()| INSERT)?,
            Operation::Scan { record, count } => self.scan(of, record, count).map(|()| SCAN)?,
            Operation::ReadModifyWrite { record, field } => {
                self.read(of, record)?;
                of.count(EXECUTES, 1);
                of.count(CALLS, 1);
                self.write(of, record, Some(field)).map(|()| READ_MODIFY_WRITE)?
            }
        })
    }
}

impl Connected for YcsbOnRedis<'_> {
    fn draw(&mut self) {
        self.next = self.plan.draw();
    }

    fn before(&self) -> Option<Duration> {
        None
    }

    fn carry_out(&mut self, of: &Recorders) -> Result<Duration> {
        let began = Instant::now();
        let start = of.transactions.start();
        let kind = self.operation(&of.statements)?;
        let _ = of.transactions.record(kind, start);
        of.statements.count(EXECUTES, 1);
        of.statements.count(CALLS, 1);
        Ok(began.elapsed())
    }

    fn done(&mut self, _: Duration, _: &Recorder) -> Option<Duration> {
        if let Operation::Insert(record) = self.next {
            self.load.acknowledged(record);
        }
        None
    }

    fn tell_figures(&mut self) {}
}
