//! Truth: what a source counts against what somebody else counted of the same work, within a stated
//! error. Each is small enough that a figure which is off by 5 % fails.
//!
//! | figure | the other count | error |
//! |---|---|---|
//! | PostgreSQL `user commits` | pgbench's own report | connecting and the snapshots' own transactions: 60 of 2,000 above (and one each time that was asked while the counts were waited for), none below |
//! | PostgreSQL `redo syncs` | `fdatasync` calls seen by strace | 3 of 100 |
//! | MariaDB `user calls`, `user commits` | sysbench's own report | 60 of 16,000 and 30 of 800 above, none below |
//! | Redis `SET` | redis-benchmark's `-n` | none |
//! | host, bytes written | /proc/diskstats, read inside and outside of it; a write past the page cache | none |

use crate::servers;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::servers::{Server, program, skip, until};
use mysql::prelude::Queryable;
use rustix::process::{Pid, Signal, kill_process};
use tiersmith_awr::sources::{LiveSource, Surroundings};
use tiersmith_awr::{Interval, Snapshot, host};

/// What a program prints, or the reason why the test cannot run.
fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// The first number in the line that has the mark, behind it.
fn number(text: &str, mark: &str) -> u64 {
    let rest = text
        .lines()
        .find_map(|line| Some(line.split_once(mark)?.1))
        .unwrap_or_else(|| panic!("no {mark}: {text}"));
    rest.split(|c: char| !c.is_ascii_digit()).find_map(|word| word.parse().ok()).unwrap()
}

fn pg_source(server: &Server) -> Box<dyn LiveSource> {
    let url = format!("postgresql://postgres@/postgres?host={}", server.path("").display());
    server.source(&url, &Surroundings::default()).unwrap()
}

/// A snapshot in which no session is left but the source's own, so that everything that was counted
/// has been told; and how often was asked, each time in a transaction.
fn alone(source: &mut dyn LiveSource, and: impl Fn(&Snapshot) -> bool) -> (Snapshot, u64) {
    let (mut asked, mut found) = (0, None);
    until("the counts of the sessions that ended", || {
        asked += 1;
        found = Some(source.snapshot().unwrap())
            .filter(|snapshot| snapshot.sessions == Some(1) && and(snapshot));
        found.is_some()
    });
    (found.unwrap(), asked)
}

fn counter(snapshot: &Snapshot, name: &str) -> u64 {
    snapshot.counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
}

/// Waits until what was done before has been told. Servers before 15 tell counts by messages, one
/// after the other: what is done last is told last.
fn all_is_told(server: &Server) {
    let config = format!("host={} user=postgres dbname=postgres", server.path("").display());
    let client = || postgres::Client::connect(&config, postgres::NoTls).unwrap();
    let mut work = client();
    work.batch_execute("CREATE TABLE last (i int); INSERT INTO last VALUES (1)").unwrap();
    work.close().unwrap();
    let mut asking = client();
    until("the last row to be told", || {
        let told = "SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'last'";
        asking.query_one(told, &[]).unwrap().get::<_, i64>(0) == 1
    });
    asking.close().unwrap();
}

#[test]
fn commits_are_those_that_pgbench_counted() {
    let what = "commits_are_those_that_pgbench_counted";
    let Some(pgbench) = program("pgbench") else { return skip(what, "pgbench is not installed") };
    let Some(server) = servers::postgres(what) else { return };
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&pgbench);
        output(
            command
                .arg("-h")
                .arg(server.path(""))
                .args(["-U", "postgres"])
                .args(arguments)
                .arg("postgres"),
        )
    };
    run(&["-i", "-q", "-s", "1"]);
    all_is_told(&server);
    let mut source = pg_source(&server);
    let (begin, _) = alone(source.as_mut(), |_| true);
    let said = number(&run(&["-n", "-c", "2", "-t", "1000"]), "actually processed:");
    assert_eq!(said, 2000);
    // Servers before 15 tell counts by messages, which may be on their way when the session has
    // left.
    let (end, asked) = alone(source.as_mut(), |end| {
        counter(end, "rows inserted") >= counter(&begin, "rows inserted") + said
    });
    let interval = Interval::between(&begin, &end).unwrap();
    let commits = interval.counter("user commits").unwrap();
    assert!((said..said + 60 + asked).contains(&commits), "{commits} commits, pgbench says {said}");
    assert_eq!(interval.counter("rows inserted"), Some(said), "a row of history each");
}

/// strace, looking at a process and its children; ended with the value.
struct Tracer(Child);

impl Tracer {
    fn stop(&mut self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::INT);
        }
        let _ = self.0.wait();
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // Ended by INT, it lets go of what it looks at.
        if matches!(self.0.try_wait(), Ok(None)) {
            self.stop();
        }
    }
}

/// Begins to trace syncs of the process, those it has forked, and those it will.
fn trace(strace: &Path, of: Pid, to: &Path) -> Result<Tracer, String> {
    let of = of.as_raw_nonzero().get();
    let children = format!("/proc/{of}/task/{of}/children");
    let children = fs::read_to_string(&children)
        .map_err(|error| format!("{children} cannot be read: {error}"))?;
    let errors = to.with_extension("err");
    let mut command = Command::new(strace);
    command
        .args(["-f", "-e", "trace=fdatasync", "-e", "signal=none", "-o"])
        .arg(to)
        .arg("-p")
        .arg(of.to_string());
    for child in children.split_whitespace() {
        command.args(["-p", child]);
    }
    let stderr = fs::File::create(&errors).map_err(|error| error.to_string())?;
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn();
    let mut tracer = Tracer(child.map_err(|error| error.to_string())?);
    let wanted = 1 + children.split_whitespace().count();
    let mut refused = None;
    until("strace to attach", || {
        let said = fs::read_to_string(&errors).unwrap_or_default();
        if !matches!(tracer.0.try_wait(), Ok(None))
            || said.contains("not permitted")
            || said.contains("denied")
        {
            refused = Some(said);
            return true;
        }
        // A child may have ended since it was listed: that is a line about ptrace.
        said.contains(&format!("Process {of} attached"))
            && said
                .lines()
                .filter(|line| line.contains(" attached") || line.contains("ptrace("))
                .count()
                >= wanted
    });
    match refused {
        Some(said) => Err(format!("strace may not: {}", said.lines().next().unwrap_or_default())),
        None => Ok(tracer),
    }
}

#[test]
fn redo_syncs_are_those_that_strace_saw() {
    let what = "redo_syncs_are_those_that_strace_saw";
    let Some(strace) = program("strace") else { return skip(what, "strace is not installed") };
    let Some(mut server) = servers::postgres(what) else { return };
    server.stop();
    for setting in [
        "--fsync=on",
        "--wal_sync_method=fdatasync",
        "--checkpoint_timeout=1h",
        "--track_counts=on",
    ] {
        server.start_with(setting);
    }
    server.start();
    let mut source = pg_source(&server);
    if source.snapshot().unwrap().counters.iter().all(|counter| counter.name != "redo syncs") {
        return skip(what, "this version does not count syncs of redo apart");
    }
    let config = format!("host={} user=postgres dbname=postgres", server.path("").display());
    let mut work = postgres::Client::connect(&config, postgres::NoTls).unwrap();
    work.batch_execute("CREATE TABLE t (i int); INSERT INTO t VALUES (0)").unwrap();
    work.close().unwrap();
    let log = server.path("trace");
    let mut tracer = match trace(&strace, server.process().unwrap(), &log) {
        Ok(tracer) => tracer,
        Err(why) => return skip(what, &why),
    };
    let (begin, _) = alone(source.as_mut(), |_| true);
    let mut work = postgres::Client::connect(&config, postgres::NoTls).unwrap();
    for i in 1..=100 {
        work.batch_execute(&format!("INSERT INTO t VALUES ({i})")).unwrap();
    }
    work.close().unwrap();
    let (end, _) = alone(source.as_mut(), |end| {
        counter(end, "rows inserted") >= counter(&begin, "rows inserted") + 100
    });
    tracer.stop();
    let mut seen = String::new();
    fs::File::open(&log).unwrap().read_to_string(&mut seen).unwrap();
    // A call that was interrupted by another process's line is in two lines, the second of which
    // says `resumed`.
    let seen = seen.lines().filter(|line| line.contains("fdatasync(")).count() as u64;
    let counted = Interval::between(&begin, &end).unwrap().counter("redo syncs").unwrap();
    assert!(seen >= 100, "strace saw {seen} for 100 commits");
    assert!(counted.abs_diff(seen) <= 3, "{counted} counted, strace saw {seen}");
}

#[test]
fn calls_and_commits_are_those_that_sysbench_counted() {
    let what = "calls_and_commits_are_those_that_sysbench_counted";
    let Some(sysbench) = program("sysbench") else {
        return skip(what, "sysbench is not installed");
    };
    let Some(server) = servers::mariadb(what) else { return };
    let socket = server.path("my.sock");
    let mut client =
        mysql::Conn::new(mysql::OptsBuilder::new().socket(socket.to_str()).user(Some("root")))
            .unwrap();
    client.query_drop("CREATE DATABASE d").unwrap();
    client.query_drop("SET GLOBAL innodb_flush_log_at_trx_commit = 2").unwrap();
    let run = |what: &str| {
        let mut command = Command::new(&sysbench);
        command.args([
            "oltp_read_write",
            "--db-driver=mysql",
            "--mysql-user=root",
            "--mysql-db=d",
            "--tables=1",
        ]);
        command.args([
            "--table-size=500",
            "--events=800",
            "--time=0",
            "--threads=1",
            "--db-ps-mode=disable",
        ]);
        output(command.arg(format!("--mysql-socket={}", socket.display())).arg(what))
    };
    run("prepare");
    let url = format!("mariadb://root@/?socket={}", socket.display());
    let mut source = server.source(&url, &Surroundings::default()).unwrap();
    let begin = source.snapshot().unwrap();
    let said = run("run");
    let end = source.snapshot().unwrap();
    let (queries, transactions) = (number(&said, "total:"), number(&said, "transactions:"));
    assert_eq!(transactions, 800);
    let interval = Interval::between(&begin, &end).unwrap();
    let calls = interval.counter("user calls").unwrap();
    assert!((queries..queries + 60).contains(&calls), "{calls} calls, sysbench says {queries}");
    let commits = interval.counter("user commits").unwrap();
    assert!(
        (transactions..transactions + 30).contains(&commits),
        "{commits} commits, sysbench says {transactions}"
    );
}

#[test]
fn commands_are_those_that_redis_benchmark_sent() {
    let what = "commands_are_those_that_redis_benchmark_sent";
    let Some(benchmark) = program("redis-benchmark").or_else(|| program("valkey-benchmark")) else {
        return skip(what, "redis-benchmark is not installed");
    };
    let Some(server) = servers::redis(what) else { return };
    let mut source = server
        .source(&format!("unix://{}", server.path("r.sock").display()), &Surroundings::default())
        .unwrap();
    let begin = source.snapshot().unwrap();
    output(
        Command::new(benchmark)
            .arg("-s")
            .arg(server.path("r.sock"))
            .args(["-n", "3000", "-c", "4", "-t", "set", "-q"]),
    );
    let end = source.snapshot().unwrap();
    let interval = Interval::between(&begin, &end).unwrap();
    let set = interval.statements.rows.iter().find(|row| row.id == "set").unwrap();
    assert_eq!(set.calls, 3000);
}

#[test]
fn a_reset_of_redis_is_a_reset_also_when_its_counters_have_grown_past_what_they_were() {
    let what = "a_reset_of_redis_is_a_reset_also_when_its_counters_have_grown_past_what_they_were";
    let Some(server) = servers::redis(what) else { return };
    let mut stream = std::os::unix::net::UnixStream::connect(server.path("r.sock")).unwrap();
    let mut say = |line: &str, n: usize| {
        let mut answers = std::io::BufReader::new(stream.try_clone().unwrap());
        for _ in 0..n {
            stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
            tiersmith_awr::resp::receive(&mut answers).unwrap();
        }
    };
    let url = format!("unix://{}", server.path("r.sock").display());
    let mut source = server.source(&url, &Surroundings::default()).unwrap();
    say("SET k v", 50);
    let begin = source.snapshot().unwrap();
    say("CONFIG RESETSTAT", 1);
    say("SET k v", 500);
    // A source that never saw the time before knows of the reset as well, from what the server
    // lists.
    let mut fresh = server.source(&url, &Surroundings::default()).unwrap();
    for end in [source.snapshot().unwrap(), fresh.snapshot().unwrap()] {
        let names_itself = end.resets.values().any(|at| at.contains("calls="));
        match Interval::between(&begin, &end) {
            // A source that never saw the time before finds counters that fell, where the server
            // does not tell.
            Err(error) => {
                let fell = !names_itself && error.to_string().contains("began again at zero");
                assert!(fell || error.to_string().contains("reset"), "{error}");
            }
            // Versions before 7 do not tell this command from other CONFIGs.
            Ok(_) => assert!(!names_itself, "{:?}", end.resets),
        }
    }
    let before = fresh.snapshot().unwrap();
    say("CONFIG RESETSTAT", 1);
    let after = fresh.snapshot().unwrap();
    Interval::between(&before, &after).expect_err("its counters fell");
}

/// Bytes written by disk, as the kernel says.
fn written() -> BTreeMap<String, u64> {
    let text = fs::read_to_string("/proc/diskstats").unwrap_or_default();
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        Some(((*words.get(2)?).to_owned(), words.get(9)?.parse::<u64>().ok()? * 512))
    };
    text.lines().filter_map(line).collect()
}

#[test]
fn bytes_written_by_the_host_are_those_of_the_kernel() {
    const BYTES: usize = 8 << 20;
    let what = "bytes_written_by_the_host_are_those_of_the_kernel";
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let dir = tempfile::tempdir_in(target).unwrap();
    // O_DIRECT wants memory at a multiple of the disk's block.
    let memory = vec![7u8; BYTES + 4096];
    let from = memory.as_ptr().align_offset(4096);
    let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap();
    let file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .custom_flags(direct)
        .open(dir.path().join("f"));
    let mut file = match file {
        Ok(file) => file,
        Err(error) => {
            return skip(what, &format!("{} has no direct writes: {error}", target.display()));
        }
    };
    let host = || -> Option<BTreeMap<String, u64>> {
        Some(host::read().disks?.into_iter().map(|disk| (disk.name, disk.write_bytes)).collect())
    };
    let outer_before = written();
    let Some(begin) = host() else { return skip(what, "this system does not tell of its disks") };
    let inner_before = written();
    if let Err(error) = file.write_all(&memory[from..from + BYTES]).and_then(|()| file.sync_all()) {
        return skip(what, &format!("{} has no direct writes: {error}", target.display()));
    }
    let inner_after = written();
    let end = host().unwrap();
    let outer_after = written();
    let grown = |name: &str, before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>| {
        after.get(name).copied().unwrap_or(0).saturating_sub(before.get(name).copied().unwrap_or(0))
    };
    let mut most = 0;
    for name in end.keys() {
        let told = grown(name, &begin, &end);
        let (least, limit) =
            (grown(name, &inner_before, &inner_after), grown(name, &outer_before, &outer_after));
        assert!(
            (least..=limit).contains(&told),
            "{name}: {told} told, the kernel says {least} to {limit}"
        );
        most = most.max(told);
    }
    if most < BYTES as u64 {
        skip(what, &format!("{} is on no disk of /proc/diskstats", target.display()));
    }
}
