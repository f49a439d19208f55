//! pg_stat_io: who read and wrote what, as reads and writes and as waits.
//!
//! A client's backend is a request; everybody else works in the background. Waits are there only
//! where their time was measured.

use tiersmith_events::WaitClass;

use super::super::wait;
use super::fields::{milliseconds, number, rows, text};
use super::{Answers, Row};
use crate::snapshot::known;
use crate::{IoStat, Snapshot, WaitStat};

/// Writes that make a file of a table or an index longer.
const DATA_FILE_EXTEND: &str = "data file extend";

/// Who did it, to what, and in which way.
struct Kind {
    who: String,
    object: String,
    context: String,
}

pub(super) fn fill(snapshot: &mut Snapshot, answers: &Answers, io_timed: bool, redo_timed: bool) {
    for row in rows(answers, "io") {
        snapshot.resets.insert("pg_stat_io".to_owned(), text(row, "stats_reset"));
        let kind = Kind {
            who: text(row, "backend_type"),
            object: text(row, "object"),
            context: text(row, "context"),
        };
        let timed = if kind.object == "wal" { redo_timed } else { io_timed };
        snapshot.add_io(kind.reads_and_writes(row, timed));
        if timed {
            kind.waits(snapshot, row);
        }
    }
}

impl Kind {
    fn reads_and_writes(&self, row: &Row, timed: bool) -> IoStat {
        let of = |field: &str| number(row, field).unwrap_or(0);
        let unit = of("op_bytes");
        let bytes = |field: &str, requests: u64| {
            number(row, field).unwrap_or(requests.saturating_mul(unit))
        };
        let ns = |field: &str| if timed { milliseconds(row, field).unwrap_or(0) } else { 0 };
        let (reads, writes, extends) = (of("reads"), of("writes"), of("extends"));
        IoStat {
            file_class: format!("{}, {}, {}", self.object, self.context, self.who),
            tier: "home".to_owned(),
            reads,
            read_bytes: bytes("read_bytes", reads),
            read_ns: ns("read_time"),
            writes: writes.saturating_add(extends),
            write_bytes: bytes("write_bytes", writes)
                .saturating_add(bytes("extend_bytes", extends)),
            write_ns: ns("write_time").saturating_add(ns("extend_time")),
            untimed: !timed,
        }
    }

    fn waits(&self, snapshot: &mut Snapshot, row: &Row) {
        let of = |field: &str| number(row, field).unwrap_or(0);
        let time = |field: &str| milliseconds(row, field).unwrap_or(0);
        let [read, write, sync] = self.events();
        let (writes, extends) = (of("writes"), of("extends"));
        // A file that grows is written to in any case: for tables that is an event of its own, and
        // no sign of anything.
        let apart = self.object == "relation";
        let written = if apart {
            (writes, time("write_time"))
        } else {
            (writes.saturating_add(extends), time("write_time").saturating_add(time("extend_time")))
        };
        let mut parts = vec![
            (read, of("reads"), time("read_time")),
            (write, written.0, written.1),
            (sync, of("fsyncs"), time("fsync_time")),
        ];
        if apart && number(row, "extends").is_some() {
            parts.push((DATA_FILE_EXTEND, extends, time("extend_time")));
        }
        for (name, requests, total_ns) in parts {
            let read_of_redo = name == "log file sequential read";
            let class = if read_of_redo { WaitClass::SystemIo } else { self.class() };
            let help = self.help(name, write);
            add(snapshot, wait(name, class, self.is_background(), help), requests, total_ns);
        }
    }

    fn is_background(&self) -> bool {
        self.who != "client backend"
    }

    /// The events of reading, writing and syncing.
    fn events(&self) -> [&'static str; 3] {
        match (self.object.as_str(), self.context.as_str(), self.is_background()) {
            // A new file is written and synced once when it is made; Oracle has a name for that.
            ("wal", "init", _) => {
                ["log file sequential read", "log file init write", "log file init sync"]
            }
            ("wal", ..) => ["log file sequential read", "log file parallel write", "redo sync"],
            ("temp relation", ..) => {
                ["direct path read temp", "direct path write temp", "data file sync"]
            }
            (_, "bulkread" | "bulkwrite", _) => {
                ["db file scattered read", "direct path write", "data file sync"]
            }
            // A VACUUM of a client writes the pages of its own ring, which says nothing of a want
            // of clean ones.
            (_, "vacuum", false) => {
                ["db file sequential read", "direct path write", "data file sync"]
            }
            (_, _, true) => ["db file sequential read", "db file parallel write", "data file sync"],
            (_, _, false) => ["db file sequential read", "data file write", "data file sync"],
        }
    }

    fn class(&self) -> WaitClass {
        match (self.object.as_str(), self.is_background()) {
            (_, true) => WaitClass::SystemIo,
            ("wal", false) if self.context == "init" => WaitClass::Other,
            ("wal", false) => WaitClass::Commit,
            _ => WaitClass::UserIo,
        }
    }

    /// What is counted under a name is part of its help: where it changes, so does the help, and
    /// reports tell the two apart.
    fn help(&self, name: &str, write: &str) -> &'static str {
        match (self.object.as_str(), self.context.as_str()) {
            ("wal", "init") => {
                "A new file for redo, filled when it is made: counted and timed by pg_stat_io."
            }
            ("wal", _) => "Redo, without new files for it: counted and timed by pg_stat_io.",
            _ if name == DATA_FILE_EXTEND => {
                "A file of a table or an index was made longer: counted and timed by pg_stat_io."
            }
            ("relation", _) if name == write => {
                "Without what makes files longer: counted and timed by pg_stat_io; \
                 to the page cache of the system or the disk."
            }
            _ => known::WITH_EXTENDS,
        }
    }
}

fn add(snapshot: &mut Snapshot, new: WaitStat, requests: u64, total_ns: u64) {
    let at = snapshot.waits.iter().position(|wait| wait.key() == new.key()).unwrap_or_else(|| {
        snapshot.waits.push(new);
        snapshot.waits.len() - 1
    });
    let wait = &mut snapshot.waits[at];
    wait.count = wait.count.saturating_add(requests);
    wait.total_ns = wait.total_ns.saturating_add(total_ns);
}
