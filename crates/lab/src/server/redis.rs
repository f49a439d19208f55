//! Redis, with its append-only file synced at each command: the smallest [`Product`], to copy.
//! Valkey is the same, where a case asks for it and for nothing else.
//!
//! SLOB's row is a key with a string as value; a range of rows is one MGET or MSET, which is one
//! transaction of Redis; a scan is an MGET for every 64 rows.
//!
//! **Deliberately absent**: snapshots (RDB), replication, clusters.

use std::ffi::OsString;
use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use tiersmith_awr::resp::{self, Reply};
use tiersmith_awr::{Snapshot, statistic};

use super::client::{Client, Deadlock, Range, Rows, first_words};
use super::{Product, Programs, Site, refused};
use crate::error::Result;

/// The most keys of a command that loads or looks through a table.
const AT_ONCE: u64 = 64;

/// The product.
#[derive(Debug)]
pub(super) struct Redis {
    name: &'static str,
    title: &'static str,
    /// Its fork's programs, and no others.
    is_fork: bool,
}

/// Redis, else its fork.
pub(super) const REDIS: Redis = Redis { name: "redis", title: "Redis", is_fork: false };

/// The fork alone.
pub(super) const VALKEY: Redis = Redis { name: "valkey", title: "Valkey", is_fork: true };

impl Product for Redis {
    fn name(&self) -> &'static str {
        self.name
    }

    fn profile(&self) -> &'static str {
        "redis"
    }

    fn title(&self) -> &'static str {
        self.title
    }

    fn needed(&self) -> &'static [&'static str] {
        &["redis-server"]
    }

    fn useful(&self) -> &'static [&'static str] {
        &["redis-benchmark", "memtier_benchmark", "redis-check-aof", "redis-cli"]
    }

    fn fork(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("redis-server", "valkey-server"),
            ("redis-benchmark", "valkey-benchmark"),
            ("redis-check-aof", "valkey-check-aof"),
            ("redis-cli", "valkey-cli"),
        ]
    }

    fn is_fork(&self) -> bool {
        self.is_fork
    }

    fn places(&self) -> &'static [&'static str] {
        &["/usr/bin"]
    }

    fn packages(&self) -> &'static str {
        if self.is_fork { "valkey-server valkey-tools" } else { "redis-server redis-tools" }
    }

    fn account_name(&self) -> &'static str {
        "redis"
    }

    fn user(&self) -> &'static str {
        ""
    }

    fn page_bytes(&self) -> u64 {
        4096
    }

    fn creation(&self, _: &Programs, _: &Path) -> Option<Vec<OsString>> {
        None
    }

    fn arguments(&self, site: &Site, socket_dir: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["--dir".into(), site.data.clone().into()];
        words.extend(["--unixsocket".into(), socket_dir.join(self.socket_name()).into()]);
        let usual = [
            ["--port", "0"],
            ["--appendonly", "yes"],
            ["--appendfsync", "always"],
            ["--save", ""],
            // In a long run the file would outgrow any disk; in a short one it is never that long.
            ["--auto-aof-rewrite-percentage", "100"],
            ["--auto-aof-rewrite-min-size", "192mb"],
            ["--latency-monitor-threshold", "1"],
        ];
        words.extend(usual.into_iter().flatten().map(OsString::from));
        words.extend(
            site.settings
                .iter()
                .flat_map(|(name, value)| [format!("--{name}").into(), value.into()]),
        );
        words
    }

    fn socket_name(&self) -> &'static str {
        "redis.sock"
    }

    fn stop_signal(&self) -> Signal {
        Signal::TERM
    }

    fn connect(&self, socket: &Path) -> Result<Box<dyn Client>> {
        connect(socket)
    }

    fn speaks_redis(&self) -> bool {
        true
    }

    fn unsynced(&self) -> Option<(&'static str, &'static str)> {
        Some(("appendfsync", "no"))
    }

    fn redo_within(&self) -> &'static str {
        "appendonlydir"
    }

    fn torn_page_protection(&self) -> Option<(&'static str, &'static str)> {
        None
    }

    fn cache_settings(&self, _: u64) -> Vec<(String, String)> {
        Vec::new()
    }

    fn redo_profile(&self) -> &'static str {
        "description = \"Redis: the append-only file on the tier\"\n\
         [default]\nclass = \"pass\"\nblock_size = 4096\n\
         [[rule]]\nfiles = [\"appendonly.aof\", \"**/*.incr.aof\", \"**/temp-*.incr\"]\nclass = \
         \"data\"\n\
         why = \"append-only file: each write command waits for it\"\n"
    }

    fn commits_with_each_statement(&self) -> bool {
        true
    }

    fn figures(&self, client: &mut dyn Client, snapshot: &mut Snapshot) -> Result<()> {
        let rows = client.table("INFO")?;
        if let Some(bytes) = redo_written(&rows) {
            snapshot.add_counter(statistic::REDO_SIZE, "bytes", bytes);
        }
        for row in rows {
            let [name, value] = row.as_slice() else { continue };
            let Ok(value) = value.parse::<u64>() else { continue };
            match name.as_str() {
                "total_connections_received" => {
                    snapshot.add_counter(statistic::LOGONS, "connections", value)
                }
                "used_memory" | "used_memory_rss" => snapshot.add_level(name, "bytes", value),
                "aof_delayed_fsync" => snapshot.add_counter("AOF delayed fsync", "times", value),
                _ => {}
            }
        }
        // The monitor knows only what took a millisecond or longer: a part of the waits, and said
        // so.
        for (event, name) in [
            ("aof-fsync-always", "AOF sync of 1 ms or longer"),
            ("aof-write-alone", "AOF write of 1 ms or longer"),
        ] {
            let history = client.table(&format!("LATENCY HISTORY {event}"))?;
            if let Some(slowest) =
                history.iter().filter_map(|row| row.last()?.parse::<u64>().ok()).max()
            {
                snapshot.add_level(
                    &format!("{name}: longest of the last {}", history.len()),
                    "ms",
                    slowest,
                );
            }
        }
        Ok(())
    }
}

/// A connection to a server that speaks Redis's protocol.
pub(super) fn connect(socket: &Path) -> Result<Box<dyn Client>> {
    let streams = UnixStream::connect(socket)
        .and_then(|stream| Ok((BufReader::new(stream.try_clone()?), stream)));
    let (input, output) = streams.map_err(|e| refused("connecting", socket)(e.to_string()))?;
    Ok(Box::new(RedisClient { input, output, socket: socket.into() }))
}

struct RedisClient {
    input: BufReader<UnixStream>,
    output: UnixStream,
    socket: PathBuf,
}

impl RedisClient {
    /// What is refused is an error.
    fn command(&mut self, words: &[&str]) -> Result<Reply> {
        let reply =
            resp::send(&mut self.output, words).and_then(|()| resp::receive(&mut self.input));
        let reply = match reply {
            Ok(Reply::Refused(reason)) => Err(io::Error::other(reason)),
            other => other,
        };
        let what = words.first().copied().unwrap_or_default();
        reply.map_err(|e| refused(what, &self.socket)(e.to_string()))
    }

    fn spoken(&mut self, command: &str) -> Result<Reply> {
        let words: Vec<&str> = command.split_whitespace().collect();
        self.command(&words)
    }

    /// How many of these keys have a value.
    fn get(&mut self, keys: &[String]) -> Result<u64> {
        let words: Vec<&str> =
            std::iter::once("MGET").chain(keys.iter().map(String::as_str)).collect();
        let reply = self.command(&words)?;
        Ok(reply.list().iter().filter(|value| value.text().is_some()).count() as u64)
    }

    /// How many of a table's first rows are there.
    fn get_rows(&mut self, table: &str, schema: u32, rows: u64) -> Result<u64> {
        let mut found = 0;
        for first in (1..=rows).step_by(AT_ONCE as usize) {
            let last = rows.min(first + AT_ONCE - 1);
            let keys: Vec<String> = (first..=last).map(|n| key(table, schema, n as i64)).collect();
            found += self.get(&keys)?;
        }
        Ok(found)
    }
}

fn key(table: &str, schema: u32, custid: i64) -> String {
    format!("user{}:{table}:{custid:012}", schema + 1)
}

fn keys(range: Range) -> Vec<String> {
    (range.after + 1..range.before).map(|custid| key("cf1", range.schema, custid)).collect()
}

/// Bytes of the append-only file, by the rows of INFO. A file that was rewritten is shorter than
/// before and says nothing of what was written: nothing then. (-1: it was not rewritten.)
fn redo_written(info: &[Vec<String>]) -> Option<u64> {
    let number = |wanted: &str| {
        let of = |row: &Vec<String>| match row.as_slice() {
            [name, value] if name == wanted => value.parse::<u64>().ok(),
            _ => None,
        };
        info.iter().find_map(of)
    };
    number("aof_current_size").filter(|_| number("aof_last_rewrite_time_sec").is_none())
}

fn lines(reply: &Reply, out: &mut Vec<Vec<String>>) {
    match reply {
        Reply::Text(text) => out.extend(text.lines().map(|line| match line.split_once(':') {
            Some((name, value)) => vec![name.to_owned(), value.to_owned()],
            None => vec![line.to_owned()],
        })),
        Reply::Number(number) => out.push(vec![number.to_string()]),
        // A row of numbers.
        Reply::List(replies) if replies.iter().all(|reply| matches!(reply, Reply::Number(_))) => {
            out.push(
                replies.iter().filter_map(Reply::number).map(|number| number.to_string()).collect(),
            );
        }
        Reply::List(replies) => replies.iter().for_each(|reply| lines(reply, out)),
        Reply::Nothing | Reply::Refused(_) => {}
    }
}

impl Client for RedisClient {
    fn ping(&mut self) -> Result<()> {
        // A server that reads its file answers PING with an error.
        self.batch("PING")
    }

    fn batch(&mut self, statements: &str) -> Result<()> {
        self.spoken(statements).map(|_| ())
    }

    fn ask(&mut self, statement: &str) -> Result<String> {
        match self.spoken(statement)? {
            Reply::Text(text) => Ok(text),
            Reply::Number(number) => Ok(number.to_string()),
            Reply::Nothing | Reply::List(_) | Reply::Refused(_) => {
                Err(refused(first_words(statement), &self.socket)("it returned no value".into()))
            }
        }
    }

    fn table(&mut self, statement: &str) -> Result<Vec<Vec<String>>> {
        let reply = self.spoken(statement)?;
        let mut rows = Vec::new();
        if reply != Reply::List(Vec::new()) {
            lines(&reply, &mut rows);
        }
        Ok(rows)
    }

    fn load(&mut self, rows: &Rows) -> Result<()> {
        let value = "x".repeat(rows.width * 19);
        for (table, count) in [("cf1", rows.rows), ("cf2", rows.scan_rows)] {
            for first in (1..=count).step_by(AT_ONCE as usize) {
                let last = count.min(first + AT_ONCE - 1);
                let keys: Vec<String> =
                    (first..=last).map(|n| key(table, rows.schema, n as i64)).collect();
                let mut words = vec!["MSET"];
                keys.iter().for_each(|key| words.extend([key.as_str(), &value]));
                self.command(&words)?;
            }
        }
        let scanned = rows.scan_rows.to_string();
        self.command(&["SET", &format!("user{}:scan", rows.schema + 1), &scanned]).map(|_| ())
    }

    fn count(&mut self, schema: u32, rows: u64) -> Result<u64> {
        self.get_rows("cf1", schema, rows)
    }

    fn select(&mut self, range: Range) -> Result<u64> {
        self.get(&keys(range))
    }

    fn scan(&mut self, schema: u32) -> Result<u64> {
        let rows = self.number(&format!("GET user{}:scan", schema + 1))?;
        self.get_rows("cf2", schema, rows)
    }

    fn update(
        &mut self,
        range: Range,
        value: &str,
        is_heavy: bool,
    ) -> Result<std::result::Result<u64, Deadlock>> {
        let keys = keys(range);
        let value = value.repeat(if is_heavy { 19 } else { 2 });
        let mut words = vec!["MSET"];
        keys.iter().for_each(|key| words.extend([key.as_str(), &value]));
        self.command(&words).map(|_| Ok(keys.len() as u64))
    }

    fn commit(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_rewritten_does_not_say_what_was_written() {
        let info = |rewrite_s: &str| {
            let rows = [("aof_last_rewrite_time_sec", rewrite_s), ("aof_current_size", "100")];
            rows.map(|(name, value)| vec![name.to_owned(), value.to_owned()]).to_vec()
        };
        assert_eq!(redo_written(&info("-1")), Some(100));
        assert_eq!(redo_written(&info("0")), None);
        assert_eq!(redo_written(&[]), None);
    }
}
