//! The repository on a PostgreSQL, against a real server: the same as in a file, whatever breaks on
//! the way, and refused where it must be.

#[allow(dead_code, reason = "other tests use the rest")]
use crate::servers;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fixture::{at_home, on_tier};
use crate::servers::{Server, until};
use tiersmith_awr::archive::{Archive, Gap};
use tiersmith_awr::record::{Plan, Recorder};
use tiersmith_awr::sources::LiveSource;
use tiersmith_awr::{
    AnyRepository, Error, Repository, Sampling, Snapshot, SnapshotId, Source, export,
};

fn client(server: &Server, database: &str) -> postgres::Client {
    let config = format!("host={} user=postgres dbname={database}", server.path("").display());
    postgres::Client::connect(&config, postgres::NoTls).unwrap()
}

fn url(server: &Server, user: &str, database: &str) -> String {
    format!("postgresql://{user}@/{database}?host={}", server.path("").display())
}

/// A new database, and the address of a repository in it.
fn database(server: &Server, name: &str) -> String {
    client(server, "postgres").batch_execute(&format!("CREATE DATABASE {name}")).unwrap();
    url(server, "postgres", name)
}

fn numbered(number: u64) -> Snapshot {
    let source =
        Source { path: "fake".to_owned(), instance: "one".to_owned(), ..Source::default() };
    let mut snapshot = Snapshot::at(source, 1_000_000_000_000_000_000 + number, number + 1);
    snapshot.add_counter("number", "snapshots", number);
    snapshot
}

fn refused(result: tiersmith_awr::Result<impl std::fmt::Debug>, words: &[&str]) {
    let error = result.unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[test]
fn it_does_what_the_file_does() {
    let Some(server) = servers::postgres("it_does_what_the_file_does") else { return };
    same_answers_as_the_file(&server);
    names_of_any_kind_and_size(&server);
    what_is_something_else_is_refused(&server);
    users_with_fewer_rights(&server);
    many_at_once(&server);
    many_gaps_are_loaded_at_once(&server);
    a_gap_whose_commit_takes_long_is_noted_once(&server);
    a_server_that_was_stopped_is_given_up(&server);
}

/// It takes ten seconds in which nothing is done.
fn a_server_that_was_stopped_is_given_up(server: &Server) {
    let url = database(server, "stopped");
    drop(Archive::open(&url).unwrap());
    let stopped = servers::GoesOn::stop(server.process().unwrap());
    refused(Archive::existing(&url), &["no answer within 10 s"]);
    drop(stopped);
    assert!(Archive::existing(&url).unwrap().list().unwrap().entries.is_empty());
}

/// More than one statement takes, with words of every kind.
fn many_gaps_are_loaded_at_once(server: &Server) {
    let dir = tempfile::tempdir().unwrap();
    let file = Archive::open(dir.path().join("from.db")).unwrap();
    let ids = file.take_all(&[numbered(1), numbered(2)]).unwrap();
    drop(file);
    // One by one each would be made durable.
    let mut raw = rusqlite::Connection::open(dir.path().join("from.db")).unwrap();
    let all = raw.transaction().unwrap();
    for n in 0..2_300u64 {
        let reason = ["{a,b}", "\"quoted\" \\ ' $1", "名前", "NULL", ""][n as usize % 5];
        all.execute(
            "INSERT INTO gap (source, at_unix_ns, reason, after) VALUES ('fake', ?1, ?2, ?3)",
            (n as i64, reason, ids[n as usize % 2].number() as i64),
        )
        .unwrap();
    }
    all.commit().unwrap();
    let from = AnyRepository::existing(&dir.path().join("from.db")).unwrap();
    export::export(&from, &[], &dir.path().join("files")).unwrap();
    let place = database(server, "gaps");
    Archive::open(&place).unwrap().take(&numbered(0)).unwrap();
    let loaded = export::load(&[dir.path().join("files")], Path::new(&place)).unwrap();
    assert_eq!((loaded.gaps, loaded.left_out.len()), (2_300, 0));
    let known = |gap: Gap, first: SnapshotId| {
        (
            gap.source,
            gap.at_unix_ns,
            gap.reason,
            gap.after.map(|after| after.number() - first.number()),
        )
    };
    let told = Archive::existing(&place).unwrap().gaps().unwrap();
    let told: Vec<_> = told.into_iter().map(|gap| known(gap, loaded.snapshots[0])).collect();
    let (_, written) = from.baselines_and_gaps().unwrap();
    let written: Vec<_> = written.into_iter().map(|gap| known(gap, ids[0])).collect();
    assert_eq!(told, written, "whole, in order, each behind its snapshot");
}

/// The first try is given up while its commit is under way, as behind a standby that is away; the
/// second comes meanwhile.
fn a_gap_whose_commit_takes_long_is_noted_once(server: &Server) {
    let place = database(server, "slow_commits");
    drop(Archive::open(&place).unwrap());
    let mut raw = client(server, "slow_commits");
    raw.batch_execute(
        "CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_catalog.pg_advisory_xact_lock_shared(42); RETURN NULL; END'; \
         CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON tiersmith.gap DEFERRABLE INITIALLY \
         DEFERRED FOR EACH ROW \
         EXECUTE FUNCTION public.slow(); SELECT pg_catalog.pg_advisory_lock(42)",
    )
    .unwrap();
    let gap = Gap {
        source: "fake".to_owned(),
        at_unix_ns: 7,
        reason: "no answer".to_owned(),
        after: None,
    };
    std::thread::scope(|scope| {
        let tries: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| Archive::existing(&place).unwrap().note_gap(&gap)))
            .collect();
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'slow_commits' AND \
                       wait_event_type = 'Lock'";
        until("both tries to wait", || raw.query_one(waiting, &[]).unwrap().get::<_, i64>(0) == 2);
        raw.batch_execute("SELECT pg_catalog.pg_advisory_unlock(42)").unwrap();
        tries.into_iter().for_each(|one| one.join().unwrap().unwrap());
    });
    assert_eq!(Archive::existing(&place).unwrap().gaps().unwrap().len(), 1);
}

fn same_answers_as_the_file(server: &Server) {
    let dir = tempfile::tempdir().unwrap();
    let url = database(server, "same");
    refused(
        Archive::existing(&url),
        &["postgresql://postgres@/same", "there is none in this database"],
    );
    let (begin, end) = at_home();
    let file = dir.path().join("awr.db");
    let answers =
        [url.as_str(), file.to_str().unwrap()].map(|place| answers_of(place, &begin, &end));
    assert_eq!(answers[0], answers[1]);
    assert!(
        answers[0][7].contains("Ok(SnapshotId(9))"),
        "a number is not given again: {}",
        answers[0][7]
    );
    // Files out of one and into another.
    let files = Repository::open(dir.path().join("files")).unwrap();
    let archive = Archive::existing(&url).unwrap();
    for entry in archive.list().unwrap().entries {
        files.take(&archive.find(entry.id).unwrap()).unwrap();
    }
    assert_eq!(files.find(SnapshotId::new(1)).unwrap(), begin);
    a_damaged_row_does_not_hide_the_others(server, &archive, &begin, &end);
    a_recorder_is_told_when_another_takes_over(server, &archive);
}

/// What a repository answers at this place, with two snapshots of one source in it.
fn answers_of(place: &str, begin: &Snapshot, end: &Snapshot) -> Vec<String> {
    let mut other = begin.clone();
    other.source.path = "other".to_owned();
    let gap = |source: &str, at_unix_ns| Gap {
        source: source.to_owned(),
        at_unix_ns,
        reason: "no".to_owned(),
        after: None,
    };
    let repository = AnyRepository::open(Path::new(place)).unwrap();
    let mut said = Vec::new();
    let ids: Vec<SnapshotId> =
        (0..5).map(|at| repository.take(if at % 2 == 0 { begin } else { end }).unwrap()).collect();
    let archive = repository.archive(Path::new(place)).unwrap();
    archive.note_gap(&gap(&begin.source.path, 5)).unwrap();
    archive.note_gap(&gap("other", 6)).unwrap();
    archive.take_all(&[other.clone(), other.clone(), on_tier().1]).unwrap();
    assert_eq!(archive.find(ids[0]).unwrap(), *begin);
    assert!(matches!(archive.find(SnapshotId::new(99)), Err(Error::NoSuchSnapshot { .. })));
    assert!(matches!(
        archive.series(SnapshotId::new(99), ids[0]),
        Err(Error::NoSuchSnapshot { .. })
    ));
    archive.add_baseline("before", ids[0], ids[1]).unwrap();
    refused(archive.add_baseline("before", ids[2], ids[3]), &["there is a baseline `before`"]);
    assert!(archive.add_baseline("none", ids[0], SnapshotId::new(99)).is_err());
    let series = archive.series(ids[0], SnapshotId::new(8)).unwrap();
    said.push(format!("{:?} {:?} {:?}", series.ids, series.snapshots, series.gaps));
    said.push(format!("{:?} {:?}", archive.list().unwrap().entries, archive.gaps().unwrap()));
    said.push(format!(
        "{:?} {:?}",
        archive.between(ids[1], ids[3]),
        archive.between(SnapshotId::new(6), SnapshotId::new(8))
    ));
    said.push(format!("{:?}", archive.remove_before(Some("other"), u64::MAX)));
    said.push(format!("{:?} {:?}", archive.remove_before(None, u64::MAX), archive.baselines()));
    let other_program = Archive::existing(place).unwrap();
    said.push(format!(
        "{:?} {:?}",
        other_program.list().unwrap().entries,
        other_program.gaps().unwrap()
    ));
    said.push(format!(
        "{:?} {:?}",
        other_program.drop_baseline("before"),
        other_program.drop_baseline("before")
    ));
    said.push(format!("{:?} {:?}", archive.remove_before(None, u64::MAX), archive.take(begin)));
    let lease = archive.lease("a source").unwrap();
    lease.beat().unwrap();
    refused(
        other_program.lease("a source"),
        &["is recording a source", &std::process::id().to_string()],
    );
    drop(other_program.lease("another").unwrap());
    drop(lease);
    drop(other_program.lease("a source").unwrap());
    said
}

fn a_damaged_row_does_not_hide_the_others(
    server: &Server,
    archive: &Archive,
    begin: &Snapshot,
    end: &Snapshot,
) {
    let ids = archive.take_all(&[begin.clone(), end.clone(), begin.clone()]).unwrap();
    let damage = "UPDATE tiersmith.snapshot SET body = substr(body, 1, 50), brief = substr(brief, \
                  1, 50) WHERE id = $1";
    client(server, "same").execute(damage, &[&(ids[1].number() as i64)]).unwrap();
    assert!(matches!(archive.find(ids[1]), Err(Error::Damaged { .. })));
    let series = archive.series(ids[0], ids[2]).unwrap();
    assert_eq!((series.ids.clone(), series.damaged.len()), (vec![ids[0], ids[2]], 1));
}

fn a_recorder_is_told_when_another_takes_over(server: &Server, archive: &Archive) {
    // A recorder elsewhere that was silent for long is gone; one that was not may be alive.
    let mut raw = client(server, "same");
    for (age, free) in [("1 minute", false), ("16 minutes", true)] {
        raw.batch_execute(&format!(
            "DELETE FROM tiersmith.recorder; INSERT INTO tiersmith.recorder VALUES ('far', 't', \
             'h', 'another boot', 1, 1, \
             clock_timestamp() - interval '{age}')"
        ))
        .unwrap();
        assert_eq!(archive.lease("far").is_ok(), free, "{age}");
    }
    // Taken over: the first one is told.
    let lease = archive.lease("mine").unwrap();
    raw.batch_execute("UPDATE tiersmith.recorder SET token = 'another'").unwrap();
    refused(lease.beat(), &["took mine over"]);
}

/// A later snapshot of the source of this name.
fn snapshot_after(name: &str) -> Snapshot {
    let mut snapshot = numbered(9);
    snapshot.source.path = name.to_owned();
    snapshot
}

fn names_of_any_kind_and_size(server: &Server) {
    let archive = Archive::open(database(server, "names")).unwrap();
    let hostile = [
        "'; DROP SCHEMA tiersmith CASCADE; --",
        "\"quoted\" \\ back",
        "zeile\nzwei\t\u{1b}[2J",
        "名前 ☃",
        "$1 %s {}",
        "",
    ];
    for name in hostile {
        let mut snapshot = numbered(1);
        (snapshot.source.path, snapshot.source.database) = (name.to_owned(), name.to_owned());
        snapshot.source.instance = name.to_owned();
        let id = archive.take(&snapshot).unwrap();
        assert_eq!(archive.find(id).unwrap(), snapshot);
        assert_eq!(archive.series(id, id).unwrap().snapshots, [snapshot.brief()]);
        if !name.is_empty() {
            archive.add_baseline(name, id, archive.take(&snapshot_after(name)).unwrap()).unwrap();
        }
        archive
            .note_gap(&Gap { source: name.to_owned(), reason: name.to_owned(), ..Gap::default() })
            .unwrap();
        drop(archive.lease(name).unwrap());
        assert_eq!(archive.list().unwrap().entries.last().unwrap().source, name);
    }
    let names: BTreeSet<String> =
        archive.baselines().unwrap().into_iter().map(|of| of.name).collect();
    assert_eq!(
        names,
        hostile.iter().map(|name| (*name).to_owned()).filter(|name| !name.is_empty()).collect()
    );
    let mut nul = numbered(2);
    nul.source.database = "a\0b".to_owned();
    refused(archive.take(&nul), &["the name of the database", "NUL"]);
    refused(archive.add_baseline("a\0b", SnapshotId::new(1), SnapshotId::new(2)), &["NUL"]);
    let mut long = numbered(3);
    long.source.path = "é".repeat(1_000);
    archive.take(&long).unwrap();
    long.source.path.push('x');
    refused(archive.take(&long), &["2001 bytes"]);
    // A gap is kept whatever its words are.
    archive
        .note_gap(&Gap { source: "a\0".to_owned(), reason: "\0é".repeat(5_000), ..Gap::default() })
        .unwrap();
    let kept = archive.gaps().unwrap().pop().unwrap();
    assert!(kept.source == "a\u{fffd}" && kept.reason.len() <= 2_000, "{kept:?}");
}

fn what_is_something_else_is_refused(server: &Server) {
    let url = database(server, "foreign_schema");
    let mut raw = client(server, "foreign_schema");
    raw.batch_execute("CREATE SCHEMA tiersmith; CREATE TABLE tiersmith.mine (i int)").unwrap();
    refused(Archive::open(&url), &["something else"]);
    let tables = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace \
                  WHERE nspname = 'tiersmith'";
    assert_eq!(raw.query_one(tables, &[]).unwrap().get::<_, i64>(0), 1, "and not touched");
    // An empty schema is what somebody may have been given.
    raw.batch_execute("DROP TABLE tiersmith.mine").unwrap();
    drop(Archive::open(&url).unwrap());
    raw.batch_execute("UPDATE tiersmith.repository SET format = 99").unwrap();
    refused(Archive::open(&url), &["format 99", "Use the tiersmith that recorded it"]);
    refused(Archive::existing(&url), &["format 99"]);
    client(server, "postgres")
        .batch_execute(
            "CREATE DATABASE bytes ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE \
             'C'",
        )
        .unwrap();
    refused(Archive::open(self::url(server, "postgres", "bytes")), &["SQL_ASCII", "UTF8"]);
    refused(
        Archive::open(self::url(server, "postgres", "not_there")),
        &["not_there", "Create the database"],
    );
    refused(Archive::open("postgresql://u:hunter2@h/d"), &["password in it"]);
    assert!(
        !Archive::open("postgresql://u:hunter2@h/d").unwrap_err().to_string().contains("hunter2")
    );
    refused(AnyRepository::open(Path::new("mysql://h/d")), &["it is not a PostgreSQL"]);
    refused(
        AnyRepository::open(Path::new("postgresql:///d?host=/nowhere")),
        &["/nowhere", "the server runs"],
    );
}

fn users_with_fewer_rights(server: &Server) {
    let place = database(server, "rights");
    let mut raw = client(server, "rights");
    raw.batch_execute("CREATE ROLE reader LOGIN; CREATE ROLE writer LOGIN").unwrap();
    refused(
        Archive::open(url(server, "writer", "rights")),
        &["permission denied", "CREATE SCHEMA tiersmith AUTHORIZATION"],
    );
    let id = Archive::open(&place).unwrap().take(&numbered(7)).unwrap();
    raw.batch_execute(
        "GRANT USAGE ON SCHEMA tiersmith TO reader, writer; GRANT SELECT ON ALL TABLES IN SCHEMA \
         tiersmith TO reader; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tiersmith TO writer; \
         ALTER ROLE writer SET synchronous_commit = off; ALTER ROLE writer SET \
         default_transaction_isolation = serializable",
    )
    .unwrap();
    let reader = Archive::existing(url(server, "reader", "rights")).unwrap();
    assert_eq!(reader.find(id).unwrap(), numbered(7));
    assert_eq!(reader.series(id, id).unwrap().ids, [id]);
    refused(reader.take(&numbered(8)), &["permission denied", "GRANT"]);
    let writer = Archive::open(url(server, "writer", "rights")).unwrap();
    writer.take(&numbered(9)).unwrap();
    drop(writer.lease("a source").unwrap());
    let ends = [writer.take(&numbered(10)).unwrap(), writer.take(&numbered(11)).unwrap()];
    writer.add_baseline("b", ends[0], ends[1]).unwrap();
    assert_eq!(writer.remove_before(None, u64::MAX).unwrap(), 2);
    writer
        .note_gap(&Gap { source: "fake".to_owned(), reason: "no".to_owned(), ..Gap::default() })
        .unwrap();
    raw.batch_execute("ALTER ROLE writer SET default_transaction_read_only = on").unwrap();
    let only_reads = Archive::open(url(server, "writer", "rights")).unwrap();
    refused(only_reads.take(&numbered(8)), &["read-only", "give the primary"]);
}

fn many_at_once(server: &Server) {
    let url = database(server, "many");
    let ids: BTreeSet<SnapshotId> = std::thread::scope(|scope| {
        let take = |thread: u64| {
            let archive = Archive::open(&url).unwrap();
            let lease = archive.lease(&format!("source {thread}")).unwrap();
            let ids: Vec<_> =
                (0..10).map(|n| archive.take(&numbered(thread * 100 + n)).unwrap()).collect();
            // Named and removed by all of them at once: what was named stays.
            archive.add_baseline(&format!("of {thread}"), ids[0], ids[1]).unwrap();
            archive.remove_before(None, 5).unwrap();
            lease.beat().unwrap();
            ids
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || take(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(ids.len(), 40);
    // One lease, many that want it at the same instant.
    let wins = AtomicUsize::new(0);
    let leases = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                if let Ok(lease) = Archive::open(&url).unwrap().lease("one") {
                    wins.fetch_add(1, Ordering::Relaxed);
                    leases.lock().unwrap().push(lease);
                }
            });
        }
    });
    assert_eq!(wins.into_inner(), 1);
    // Who removes and who names at once: a baseline never lacks its snapshots.
    let archive = Archive::open(&url).unwrap();
    std::thread::scope(|scope| {
        let remover =
            scope.spawn(|| Archive::open(&url).unwrap().remove_before(None, u64::MAX).unwrap());
        let ids: Vec<SnapshotId> = ids.iter().rev().take(10).copied().collect();
        for (number, pair) in ids.windows(2).enumerate() {
            match archive.add_baseline(&format!("late {number}"), pair[1], pair[0]) {
                Ok(()) => drop(archive.find(pair[1]).unwrap()),
                Err(error) => assert!(error.to_string().contains("snapshot"), "{error}"),
            }
        }
        remover.join().unwrap();
    });
    for baseline in archive.baselines().unwrap() {
        archive.find(baseline.first).unwrap();
    }
}

/// A way to the server that breaks after so many bytes of its answers, the first time.
struct Cut {
    after: Arc<AtomicUsize>,
    /// Bytes of answers on the newest connection.
    passed: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

impl Cut {
    fn before(server: &Server, dir: &Path) -> Cut {
        let listener = UnixListener::bind(dir.join(".s.PGSQL.5432")).unwrap();
        let real = server.path(".s.PGSQL.5432");
        let (after, connections) =
            (Arc::new(AtomicUsize::new(usize::MAX)), Arc::new(AtomicUsize::new(0)));
        let passed = Arc::new(AtomicUsize::new(0));
        let (limit, count, bytes) =
            (Arc::clone(&after), Arc::clone(&connections), Arc::clone(&passed));
        // Ends with the process of the test: nobody connects any more.
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, UnixStream::connect(&real)) else {
                    continue;
                };
                count.fetch_add(1, Ordering::SeqCst);
                let most = limit.swap(usize::MAX, Ordering::SeqCst);
                let (from_client, to_server) =
                    (client.try_clone().unwrap(), server.try_clone().unwrap());
                bytes.store(0, Ordering::SeqCst);
                let bytes = Arc::clone(&bytes);
                std::thread::spawn(move || {
                    pass_on(from_client, to_server, usize::MAX, &AtomicUsize::new(0))
                });
                std::thread::spawn(move || pass_on(server, client, most, &bytes));
            }
        });
        Cut { after, passed, connections }
    }
}

fn pass_on(mut from: UnixStream, mut to: UnixStream, most: usize, bytes: &AtomicUsize) {
    let (mut buffer, mut passed) = ([0u8; 4096], 0);
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let allowed = read.min(most - passed);
        // Before they are passed on: who has an answer finds it counted.
        bytes.fetch_add(allowed, Ordering::SeqCst);
        if to.write_all(&buffer[..allowed]).is_err() || allowed < read {
            break;
        }
        passed += allowed;
    }
    let _ = from.shutdown(std::net::Shutdown::Both);
    let _ = to.shutdown(std::net::Shutdown::Both);
}

#[test]
fn a_connection_that_breaks_anywhere_leaves_the_snapshot_once() {
    let Some(server) =
        servers::postgres("a_connection_that_breaks_anywhere_leaves_the_snapshot_once")
    else {
        return;
    };
    drop(Archive::open(database(&server, "cut")).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let cut = Cut::before(&server, dir.path());
    let place = format!("postgresql://postgres@/cut?host={}", dir.path().display());
    let archive = Archive::existing(&place).unwrap();
    let terminate = || {
        let ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'cut' \
                    AND pid <> pg_backend_pid()";
        client(&server, "cut").batch_execute(ends).unwrap();
    };
    terminate();
    let mut taken = vec![archive.take(&numbered(0)).unwrap()];
    let answers = cut.passed.load(Ordering::SeqCst);
    // Coarsely through the opening of the connection and the keeping, and finely through the last
    // answer: it says that the snapshot is committed, and who does not get it does not know.
    let places = (0..answers).step_by(answers / 12).chain((answers - 24..answers + 3).step_by(3));
    for (number, after) in places.enumerate() {
        let number = number + 1;
        // This connection ends, and the next one breaks.
        cut.after.store(after, Ordering::SeqCst);
        terminate();
        let snapshot = numbered(u64::try_from(number).unwrap());
        taken.push(archive.take(&snapshot).unwrap());
        archive.add_baseline(&format!("b{number}"), taken[0], taken[number]).unwrap();
    }
    assert!(cut.connections.load(Ordering::SeqCst) > taken.len() + 12, "connections broke");
    assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), taken.len());
    let series = archive.series(taken[0], taken[taken.len() - 1]).unwrap();
    assert_eq!(series.ids, taken, "each once");
    for (number, snapshot) in series.snapshots.iter().enumerate() {
        assert_eq!(snapshot.counters[0].value, u64::try_from(number).unwrap());
    }
    assert_eq!(archive.baselines().unwrap().len(), taken.len() - 1);
}

/// A source that counts its snapshots.
struct Fake {
    number: Arc<AtomicU64>,
    name: &'static str,
}

impl LiveSource for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn snapshot(&mut self) -> tiersmith_awr::Result<Snapshot> {
        Ok(numbered(self.number.fetch_add(1, Ordering::SeqCst)))
    }

    fn look(&mut self, _: &mut Sampling) -> tiersmith_awr::Result<bool> {
        Ok(false)
    }
}

#[test]
fn a_recording_goes_on_while_the_repository_is_away() {
    let Some(mut server) = servers::postgres("a_recording_goes_on_while_the_repository_is_away")
    else {
        return;
    };
    let place = database(&server, "away");
    let plan = Plan { every: Duration::from_millis(50), length: None, sample: None, keep: None };
    let number = Arc::new(AtomicU64::new(0));
    let fake = || -> Vec<Box<dyn LiveSource>> {
        vec![Box::new(Fake { number: Arc::clone(&number), name: "fake" })]
    };
    let recorder = Recorder::begin(fake(), Path::new(&place), plan).unwrap();
    refused(
        Recorder::begin(fake(), Path::new(&place), plan).map(|_| ()),
        &["is recording fake", "away"],
    );
    let began = number.load(Ordering::SeqCst);
    let stop = AtomicBool::new(false);
    let recorded = std::thread::scope(|scope| {
        let recording = scope.spawn(|| recorder.run(&|| stop.load(Ordering::Relaxed)).unwrap());
        let asked = || number.load(Ordering::SeqCst);
        until("some snapshots", || asked() > began + 3);
        server.stop();
        let before = asked();
        until("a snapshot while the repository is away", || asked() > before + 1);
        server.start();
        let before = asked();
        until("snapshots after that", || {
            Archive::existing(&place).is_ok_and(|archive| {
                archive.list().is_ok_and(|list| {
                    list.entries.last().is_some_and(|e| e.taken_unix_ns % 1_000_000 > before + 2)
                })
            })
        });
        stop.store(true, Ordering::Relaxed);
        recording.join().unwrap()
    });
    let archive = Archive::existing(&place).unwrap();
    let (first, last) = (recorded[0].taken[0], *recorded[0].taken.last().unwrap());
    let series = archive.series(first, last).unwrap();
    assert_eq!(series.ids, recorded[0].taken);
    let numbers: Vec<u64> =
        series.snapshots.iter().map(|snapshot| snapshot.counters[0].value).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "in order, each once: {numbers:?}");
    // Only a server that needs minutes for its start would make some of them too many to wait.
    if archive.gaps().unwrap().is_empty() {
        assert_eq!(numbers.len() as u64, number.load(Ordering::SeqCst), "all of them: {numbers:?}");
    }
    drop(Recorder::begin(fake(), Path::new(&place), plan).unwrap());
}

/// A way to the server that is away from the next commit of a snapshot on: the server gets it, and
/// its answer is lost.
fn away_after_a_commit(server: &Server, dir: &Path) -> (Arc<AtomicBool>, Arc<AtomicBool>) {
    let listener = UnixListener::bind(dir.join(".s.PGSQL.5432")).unwrap();
    let real = server.path(".s.PGSQL.5432");
    let (armed, away) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let handed = (Arc::clone(&armed), Arc::clone(&away));
    // Ends with the process of the test: nobody connects any more.
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(mut client), Ok(mut server)) = (client, UnixStream::connect(&real)) else {
                continue;
            };
            if away.load(Ordering::SeqCst) {
                continue;
            }
            let (mut from_server, mut to_client) =
                (server.try_clone().unwrap(), client.try_clone().unwrap());
            let (armed, away, gone) = (Arc::clone(&armed), Arc::clone(&away), Arc::clone(&away));
            std::thread::spawn(move || {
                let (mut buffer, mut keeps) = ([0u8; 4096], false);
                while let Ok(read @ 1..) = client.read(&mut buffer) {
                    let said = &buffer[..read];
                    keeps |= said.windows(24).any(|words| words == b"INTO tiersmith.snapshot ");
                    if said.ends_with(b"COMMIT\0") {
                        // Before the server has it: its answer finds the way closed.
                        if keeps && armed.swap(false, Ordering::SeqCst) {
                            away.store(true, Ordering::SeqCst);
                        }
                        keeps = false;
                    }
                    if server.write_all(said).is_err() {
                        break;
                    }
                }
                let _ = server.shutdown(std::net::Shutdown::Both);
            });
            std::thread::spawn(move || {
                let mut buffer = [0u8; 4096];
                while let Ok(read @ 1..) = from_server.read(&mut buffer) {
                    if gone.load(Ordering::SeqCst) || to_client.write_all(&buffer[..read]).is_err()
                    {
                        break;
                    }
                }
                let _ = to_client.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    handed
}

#[test]
fn a_snapshot_whose_commit_was_not_answered_is_there_once_also_when_it_waited() {
    let test = "a_snapshot_whose_commit_was_not_answered_is_there_once_also_when_it_waited";
    let Some(server) = servers::postgres(test) else { return };
    drop(Archive::open(database(&server, "unanswered")).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let (armed, away) = away_after_a_commit(&server, dir.path());
    let place = format!("postgresql://postgres@/unanswered?host={}", dir.path().display());
    let plan = Plan { every: Duration::from_millis(50), length: None, sample: None, keep: None };
    let number = Arc::new(AtomicU64::new(0));
    let fake: Vec<Box<dyn LiveSource>> =
        vec![Box::new(Fake { number: Arc::clone(&number), name: "fake" })];
    let recorder = Recorder::begin(fake, Path::new(&place), plan).unwrap();
    let stop = AtomicBool::new(false);
    let direct = Archive::existing(url(&server, "postgres", "unanswered")).unwrap();
    let kept = || direct.list().unwrap().entries.len();
    let recorded = std::thread::scope(|scope| {
        let recording = scope.spawn(|| recorder.run(&|| stop.load(Ordering::Relaxed)).unwrap());
        let asked = || number.load(Ordering::SeqCst);
        armed.store(true, Ordering::SeqCst);
        until("a commit without an answer", || away.load(Ordering::SeqCst));
        // Every try of the one call has failed by then, and it waits for the next.
        let before = asked();
        until("snapshots while the repository is away", || asked() > before + 20);
        away.store(false, Ordering::SeqCst);
        let before = kept();
        until("snapshots after that", || kept() > before + 3);
        stop.store(true, Ordering::Relaxed);
        recording.join().unwrap()
    });
    let entries = direct.list().unwrap().entries;
    let times: BTreeSet<u64> = entries.iter().map(|entry| entry.taken_unix_ns).collect();
    assert_eq!(times.len(), entries.len(), "each once: {entries:?}");
    // Only a machine that stands still for seconds would make some of them too many to wait.
    if direct.gaps().unwrap().is_empty() {
        assert_eq!(recorded[0].taken, entries.iter().map(|entry| entry.id).collect::<Vec<_>>());
    }
}
