//! Situations with a known cause: what is counted and seen between a beginning and an end, what is
//! found in it, and what must be found. The host is made up, because the machine of the tests is
//! shared.
//!
//! `servers_findings.rs` makes them on real servers; `it/situations.rs` reads what was recorded
//! there, without servers. `tests/recorded/situations/NAME.jsonl` is the snapshot at the beginning
//! and the one at the end, a line each, without what did not change between them. To record them
//! anew:
//!
//! ```text
//! TIERSMITH_RECORD=$PWD/crates/awr/tests/recorded/situations \
//!   cargo test -p tiersmith-awr --profile checked --test alone servers_findings
//! ```
//!
//! A situation is recorded only if what is found in it is right.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tiersmith_awr::findings::{Finding, findings};
use tiersmith_awr::host::{CpuTimes, Cpus, HostStat};
use tiersmith_awr::sources::LiveSource;
use tiersmith_awr::{Interval, Sampling, Snapshot};

/// What must be found in a situation.
pub(crate) struct Expected {
    pub(crate) name: &'static str,
    /// The first finding; nothing where there is no cause to find.
    first: Option<&'static str>,
    /// Words of its evidence.
    evidence: &'static [&'static str],
    /// Beginnings of what may be found besides; also that the interval is short.
    besides: &'static [&'static str],
}

/// Findings that every situation may have besides its own: the intervals are short.
pub(crate) const SHORT: &str = "Too short";

const ONE_STATEMENT: &str = "One statement is most";

const UNSAFE: &str = "A crash can lose what was acknowledged";
const COMMITS: &str = "Commits wait for redo";
const LOCKS: &str = "Sessions wait for locks";
const SCANS: &str = "Large tables are read from end to end";
const SPILLS: &str = "Sorts and hashes spill to files";

pub(crate) const SITUATIONS: [Expected; 15] = [
    Expected {
        name: "postgresql-fsync-off",
        first: Some(UNSAFE),
        evidence: &["fsync is off"],
        besides: &[],
    },
    // The processors are another program's.
    Expected { name: "postgresql-idle-on-a-busy-host", first: None, evidence: &[], besides: &[] },
    Expected {
        name: "postgresql-row-locks",
        first: Some(LOCKS),
        evidence: &["Lock: ", "idle in transaction", "held up 100.0 %", "UPDATE t SET n = n + ?"],
        besides: &[],
    },
    Expected {
        name: "postgresql-spill",
        first: Some(SPILLS),
        evidence: &["temporary files with"],
        besides: &[ONE_STATEMENT],
    },
    Expected {
        name: "postgresql-missing-index",
        first: Some(SCANS),
        evidence: &["public.wide: "],
        besides: &[ONE_STATEMENT, "The processors"],
    },
    Expected {
        name: "postgresql-processors",
        first: Some("The processors are the limit"),
        evidence: &[],
        besides: &[ONE_STATEMENT],
    },
    Expected {
        name: "postgresql-commits",
        first: Some(COMMITS),
        evidence: &[],
        besides: &["Redo is", ONE_STATEMENT],
    },
    Expected {
        name: "postgresql-frequent-checkpoints",
        first: Some("Checkpoints too frequent"),
        evidence: &["max_wal_size is 32MB"],
        besides: &["Full pages", "Redo is", ONE_STATEMENT],
    },
    // A read of some microseconds is no slow storage.
    Expected {
        name: "postgresql-tiny-cache",
        first: Some("Page cache too small"),
        evidence: &[],
        besides: &["A few files", ONE_STATEMENT],
    },
    Expected {
        name: "postgresql-fast-reads",
        first: None,
        evidence: &[],
        besides: &[ONE_STATEMENT],
    },
    // This server also writes and reads its own tablespace meanwhile, and counts that.
    Expected {
        name: "mariadb-commits",
        first: Some(COMMITS),
        evidence: &[],
        besides: &[
            "Redo is",
            ONE_STATEMENT,
            "One wait event",
            "Page cache too small",
            "A few files",
            "Pages are written twice",
        ],
    },
    Expected {
        name: "mariadb-commits-given-up",
        first: Some(UNSAFE),
        evidence: &["innodb_flush_log_at_trx_commit is 2"],
        besides: &[],
    },
    Expected {
        name: "mariadb-row-locks",
        first: Some(LOCKS),
        evidence: &[],
        besides: &[ONE_STATEMENT],
    },
    Expected {
        name: "mariadb-missing-index",
        first: Some(SCANS),
        evidence: &[],
        besides: &[ONE_STATEMENT],
    },
    Expected {
        name: "mariadb-spill",
        first: Some(SPILLS),
        evidence: &[],
        besides: &[ONE_STATEMENT],
    },
];

impl Expected {
    pub(crate) fn of(name: &str) -> &'static Expected {
        SITUATIONS.iter().find(|of| of.name == name).unwrap_or_else(|| panic!("no {name}"))
    }

    pub(crate) fn has_cause(&self) -> bool {
        self.first.is_some()
    }

    /// What is wrong with what was found.
    pub(crate) fn wrong(&self, found: &[Finding]) -> Option<String> {
        let name = self.name;
        if let Some(first) = self.first {
            let Some(of) = found.first().filter(|of| of.name == first) else {
                return Some(format!("{name}: the first is not `{first}`: {found:#?}"));
            };
            let is_there = |words: &&&str| of.evidence.iter().any(|line| line.contains(**words));
            if let Some(words) = self.evidence.iter().find(|words| !is_there(words)) {
                return Some(format!("{name}: `{words}` is in no evidence: {of:#?}"));
            }
        }
        let expected = |of: &&Finding| {
            self.first == Some(&of.name)
                || of.name.starts_with(SHORT)
                || self.besides.iter().any(|begin| of.name.starts_with(begin))
        };
        let more: Vec<&Finding> = found.iter().filter(|of| !expected(of)).collect();
        (!more.is_empty()).then(|| format!("{name}: false alarm: {more:#?}"))
    }

    pub(crate) fn judge(&self, found: &[Finding]) {
        if let Some(wrong) = self.wrong(found) {
            panic!("{wrong}");
        }
    }

    /// The two snapshots that were recorded.
    pub(crate) fn recorded(&self) -> (Snapshot, Snapshot) {
        let path = recorded().join(format!("{}.jsonl", self.name));
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut lines = text.lines().map(|line| Snapshot::from_json(line, self.name).unwrap());
        let both = (lines.next().unwrap(), lines.next().unwrap());
        assert!(lines.next().is_none(), "two snapshots");
        both
    }
}

/// Where what was recorded lies.
pub(crate) fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/situations")
}

/// Of a made-up host's processors, how busy they were, in per cent.
pub(crate) const IDLE: u64 = 10;
pub(crate) const BUSY: u64 = 98;

/// What a server counts is in its views a moment later. For hangs only.
const PATIENCE: Duration = Duration::from_secs(40);

pub(crate) struct Situation {
    expected: &'static Expected,
    begin: Snapshot,
    sampling: Sampling,
}

impl Situation {
    pub(crate) fn begin(name: &str, asked: &mut dyn LiveSource) -> Situation {
        let sampling = Sampling::new("test".to_owned(), 5);
        let mut begin = asked.snapshot().unwrap();
        begin.sampling = Some(sampling.clone());
        Situation { expected: Expected::of(name), begin, sampling }
    }

    pub(crate) fn look(&mut self, asked: &mut dyn LiveSource) {
        asked.look(&mut self.sampling).unwrap();
        thread::sleep(Duration::from_millis(5));
    }

    pub(crate) fn look_while(&mut self, asked: &mut dyn LiveSource, goes_on: &dyn Fn() -> bool) {
        while goes_on() {
            self.look(asked);
        }
    }

    /// The two ends, on a host of two processors that were so busy.
    fn ends(&self, asked: &mut dyn LiveSource, busy_percent: u64) -> (Snapshot, Snapshot) {
        let (mut begin, mut end) = (self.begin.clone(), asked.snapshot().unwrap());
        end.sampling = Some(self.sampling.clone());
        let all = 2 * (end.monotonic_ns - begin.monotonic_ns);
        let host = |all: u64| HostStat {
            cpus: Some(Cpus { threads: 2, cores: 2, sockets: 1 }),
            cpu: Some(CpuTimes {
                user_ns: all / 100 * busy_percent,
                idle_ns: all / 100 * (100 - busy_percent),
                ..CpuTimes::default()
            }),
            disks: Some(Vec::new()),
            ..HostStat::default()
        };
        (begin.host, end.host) = (host(0), host(all));
        (begin, end)
    }

    /// Waits until something besides the shortness of the interval is found, but not for long: what
    /// sessions counted reaches the views within a second.
    pub(crate) fn end(self, asked: &mut dyn LiveSource, busy_percent: u64) -> Ended {
        let began = Instant::now();
        self.end_when(asked, busy_percent, |found| {
            thread::sleep(Duration::from_millis(50));
            found.len() > 1 || began.elapsed() > Duration::from_millis(1500)
        })
    }

    /// Asks until what is found is what was waited for.
    pub(crate) fn end_when(
        self,
        asked: &mut dyn LiveSource,
        busy_percent: u64,
        mut enough: impl FnMut(&[Finding]) -> bool,
    ) -> Ended {
        let began = Instant::now();
        loop {
            let (begin, end) = self.ends(asked, busy_percent);
            let found = found(&begin, &end);
            if enough(&found) || began.elapsed() > PATIENCE {
                return Ended { expected: self.expected, begin, end, found };
            }
        }
    }
}

/// A situation that is over.
#[must_use]
pub(crate) struct Ended {
    expected: &'static Expected,
    begin: Snapshot,
    end: Snapshot,
    found: Vec<Finding>,
}

impl Ended {
    /// Fails unless what was found is right; records it then, where that is asked for.
    pub(crate) fn judge(self) -> Vec<Finding> {
        self.expected.judge(&self.found);
        record(self.expected.name, self.begin, self.end, &self.found);
        self.found
    }
}

pub(crate) fn found(begin: &Snapshot, end: &Snapshot) -> Vec<Finding> {
    findings(&Interval::between(begin, end).unwrap())
}

/// Takes away what is the same in both.
fn without_same<T: PartialEq + Clone>(begin: &mut Vec<T>, end: &mut Vec<T>) {
    let same: Vec<T> = end.iter().filter(|of| begin.contains(of)).cloned().collect();
    begin.retain(|of| !same.contains(of));
    end.retain(|of| !same.contains(of));
}

/// Keeps a situation, where that is asked for.
fn record(name: &str, mut begin: Snapshot, mut end: Snapshot, found_of_all: &[Finding]) {
    let Some(dir) = std::env::var_os("TIERSMITH_RECORD").filter(|dir| !dir.is_empty()) else {
        return;
    };
    without_same(&mut begin.waits, &mut end.waits);
    without_same(&mut begin.io, &mut end.io);
    without_same(&mut begin.statements, &mut end.statements);
    without_same(&mut begin.files, &mut end.files);
    without_same(&mut begin.tables, &mut end.tables);
    without_same(&mut begin.objects, &mut end.objects);
    without_same(&mut begin.plans, &mut end.plans);
    for of in [&mut begin, &mut end] {
        // Places of the machine that records.
        (of.source.path, of.source.instance) = ("recorded".to_owned(), "recorded".to_owned());
        of.source.settings.retain(|_, value| !value.contains('/'));
    }
    assert_eq!(found(&begin, &end), found_of_all, "what is left out does not matter");
    for of in [&mut begin, &mut end] {
        let files = of.files.iter_mut().flat_map(|file| [&mut file.id, &mut file.name]);
        let tables = of.tables.iter_mut().flat_map(|table| [&mut table.id, &mut table.name]);
        for place in files.chain(tables).filter(|place| place.contains('/')) {
            *place = format!("./{}", place.rsplit('/').next().unwrap());
        }
    }
    let path = Path::new(&dir).join(format!("{name}.jsonl"));
    fs::write(path, begin.to_json() + &end.to_json()).unwrap();
}
