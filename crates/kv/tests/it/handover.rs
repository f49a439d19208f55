//! The role of the primary goes from one server to another: by FAILOVER and by the real Sentinel,
//! while a load runs.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::replica::{info, same, server, wait_for, write};
use crate::served::{Client, Served, Value, assert_sound, free_port, text};

/// A server of either kind that can be started again at its port, with its data.
struct Member {
    ours: bool,
    port: u16,
    directory: tempfile::TempDir,
    served: Option<Served>,
}

impl Member {
    fn new(ours: bool) -> Option<Member> {
        let (port, directory) = (free_port(), tempfile::tempdir().unwrap());
        std::fs::write(
            directory.path().join("conf"),
            format!("port {port}\nrepl-ping-replica-period 1\n"),
        )
        .unwrap();
        let mut member = Member { ours, port, directory, served: None };
        member.start()?;
        Some(member)
    }

    /// Starts it, with what it wrote into its configuration.
    fn start(&mut self) -> Option<()> {
        let path = self.directory.path();
        self.served = Some(if self.ours {
            let conf = std::fs::read_to_string(path.join("conf")).unwrap();
            server(path, &conf)
        } else {
            let settings = ["--appendonly", "yes", "--repl-diskless-sync-delay", "0"];
            Served::redis_at(path, self.port, &settings)?
        });
        Some(())
    }

    fn kill(&mut self) {
        self.served = None;
        if self.ours {
            assert_sound(self.directory.path());
        }
    }

    fn connect(&self) -> Client {
        self.served.as_ref().unwrap().connect()
    }

    fn socket(&self) -> PathBuf {
        self.served.as_ref().unwrap().socket.clone()
    }
}

fn follow(replica: &Member, primary: &Member) {
    let mut client = replica.connect();
    client.say(&format!("REPLICAOF 127.0.0.1 {}", primary.port));
    wait_for("the link", || info(&mut client, "master_link_status") == "up");
}

/// Counts at whichever member takes writes; returns the last number that was acknowledged, and the
/// last that a replica had.
fn count(sockets: &[PathBuf], id: usize, stop: &AtomicBool, waits: bool) -> (u64, u64) {
    let (mut written, mut confirmed) = (0, 0);
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        for socket in sockets {
            let Ok(mut client) = Client::to(socket) else { continue };
            loop {
                if stop.load(Ordering::Relaxed) {
                    return (written, confirmed);
                }
                n += 1;
                let (key, value) = (format!("w{id}"), n.to_string());
                match client
                    .send(&[b"SET", key.as_bytes(), value.as_bytes()])
                    .and_then(|()| client.read())
                {
                    Ok(Value::Text(_)) => written = n,
                    // Another one is the primary, or it is gone.
                    _ => break,
                }
                if waits {
                    match client.send(&[b"WAIT", b"1", b"500"]).and_then(|()| client.read()) {
                        Ok(Value::Int(1..)) => confirmed = n,
                        Ok(Value::Int(0)) => {}
                        _ => break,
                    }
                }
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    (written, confirmed)
}

fn assert_has(client: &mut Client, told: &[u64], what: &str) {
    for (id, last) in told.iter().enumerate() {
        let Value::Text(found) = client.say(&format!("GET w{id}")) else {
            panic!("w{id} is lost: {what}")
        };
        assert!(found.parse::<u64>().unwrap() >= *last, "w{id} is {found}, and {last} was {what}");
    }
}

#[test]
fn a_planned_handover_loses_nothing_whoever_is_on_either_side() {
    for (first, second) in [(true, false), (false, true), (true, true)] {
        let (Some(one), Some(other)) = (Member::new(first), Member::new(second)) else {
            println!("skipped: redis-server is not installed");
            return;
        };
        let mut random = fastrand::Rng::with_seed(5);
        write(&mut one.connect(), &mut random, 300);
        follow(&other, &one);
        let members = [&one, &other];
        let sockets = members.map(Member::socket);
        let stop = AtomicBool::new(false);
        let told: Vec<(u64, u64)> = std::thread::scope(|scope| {
            let counters: Vec<_> = (0..3)
                .map(|id| {
                    let (sockets, stop) = (&sockets, &stop);
                    scope.spawn(move || count(sockets, id, stop, false))
                })
                .collect();
            // There and back, and there.
            for n in 0..3 {
                std::thread::sleep(Duration::from_millis(400));
                let (from, to) = (members[n % 2], members[(n + 1) % 2]);
                let (mut old, mut new) = (from.connect(), to.connect());
                let said = old.say(&format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 20000", to.port));
                assert_eq!(said, text("OK"), "{first} {second} {n}");
                wait_for("the new primary", || info(&mut new, "role") == "master");
                wait_for("the old one to follow", || info(&mut old, "master_link_status") == "up");
                assert_eq!(info(&mut old, "master_failover_state"), "no-failover");
            }
            std::thread::sleep(Duration::from_millis(300));
            stop.store(true, Ordering::Relaxed);
            counters.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let (mut ours, mut theirs) = (one.connect(), other.connect());
        theirs.say("SET last 1");
        assert_eq!(theirs.say("WAIT 1 20000"), Value::Int(1));
        let written: Vec<u64> = told.iter().map(|(written, _)| *written).collect();
        assert!(written.iter().all(|last| *last > 20), "{written:?}");
        assert_has(&mut theirs, &written, "written");
        same(&mut ours, &mut theirs, "after three handovers");
        // Nobody was given a copy after the first one.
        for (member, mut client) in [(first, ours), (second, theirs)] {
            let copies = info(&mut client, "sync_full");
            assert!(matches!(copies.as_str(), "0" | "1"), "{member}: {copies}");
        }
    }
}

#[test]
fn a_handover_that_fails_leaves_the_primary_as_it_was() {
    let one = Member::new(true).unwrap();
    let mut client = one.connect();
    let error = |value: Value| match value {
        Value::Error(text) => text,
        other => panic!("no error: {other:?}"),
    };
    assert!(error(client.say("FAILOVER")).contains("requires connected replicas"));
    assert!(error(client.say("FAILOVER ABORT")).contains("No failover"));
    let other = Member::new(true).unwrap();
    follow(&other, &one);
    assert!(error(client.say("FAILOVER TO 127.0.0.1 1")).contains("is not a replica"));
    assert!(error(client.say("FAILOVER FORCE")).contains("requires both"));
    assert!(error(other.connect().say("FAILOVER")).contains("when server is a replica"));
    // A replica that does not come to the end.
    let stopped = other.served.as_ref().unwrap().id().to_string();
    Command::new("kill").args(["-STOP", &stopped]).status().unwrap();
    client.say("SET a 1");
    assert_eq!(client.say("FAILOVER TIMEOUT 1500"), text("OK"));
    assert_eq!(info(&mut client, "master_failover_state"), "waiting-for-sync");
    assert!(error(client.say("REPLICAOF 127.0.0.1 1")).contains("while failing over"));
    // A read is answered, and a write waits.
    let mut writer = one.connect();
    let began = Instant::now();
    writer.send(&[b"SET", b"a", b"2"]).unwrap();
    assert_eq!(client.say("GET a"), text("1"));
    assert_eq!(writer.read().unwrap(), text("OK"));
    assert!(began.elapsed() > Duration::from_millis(1000), "{:?}", began.elapsed());
    assert_eq!(info(&mut client, "master_failover_state"), "no-failover");
    assert_eq!(client.say("FAILOVER TIMEOUT 60000"), text("OK"));
    assert_eq!(client.say("FAILOVER ABORT"), text("OK"));
    assert_eq!(writer.say("SET a 3"), text("OK"));
    Command::new("kill").args(["-CONT", &stopped]).status().unwrap();
    client.say("SET a 4");
    assert_eq!(client.say("WAIT 1 20000"), Value::Int(1));
    assert_eq!(other.connect().say("GET a"), text("4"));
    // A pause of clients.
    client.say("CLIENT PAUSE 1500 WRITE");
    let began = Instant::now();
    assert_eq!(client.say("GET a"), text("4"));
    for line in ["FUNCTION LIST", "FUNCTION STATS", "FUNCTION DUMP"] {
        assert!(!matches!(client.say(line), Value::Error(_)), "{line}");
    }
    assert!(began.elapsed() < Duration::from_millis(1000), "a read waits");
    writer.send(&[b"SET", b"a", b"5"]).unwrap();
    wait_for("the writer among those that wait", || info(&mut client, "blocked_clients") == "1");
    assert_eq!(writer.read().unwrap(), text("OK"));
    assert_eq!(info(&mut client, "blocked_clients"), "0");
    assert!(began.elapsed() > Duration::from_millis(1400), "a write does not wait");
    client.say("CLIENT PAUSE 1500 WRITE");
    let began = Instant::now();
    assert_eq!(client.say("FUNCTION FLUSH"), text("OK"));
    assert!(began.elapsed() > Duration::from_millis(1400), "a change of libraries does not wait");
}

/// The Sentinel takes a server for down that has not answered for so long.
const DOWN_AFTER: Duration = Duration::from_secs(2);
/// A Sentinel connects to one server once in this time (its `SENTINEL_PING_PERIOD`).
///
/// It counts the attempts at the old primary as those at the new one, and measures the silence of
/// the new one from the moment of the switch. With a `down-after-milliseconds` below this it takes
/// a primary for down that it has not spoken to yet, and promotes the old one if that is back: two
/// servers of Redis end the same way.
const RECONNECTS: Duration = Duration::from_secs(1);
const _: () = assert!(DOWN_AFTER.as_millis() > RECONNECTS.as_millis() + 500);

/// A real Sentinel that watches the server at this port.
struct Sentinel {
    child: Child,
    socket: PathBuf,
    _directory: tempfile::TempDir,
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // One that has ended already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Sentinel {
    fn watch(port: u16) -> Sentinel {
        let directory = tempfile::tempdir().unwrap();
        let (conf, socket) = (directory.path().join("conf"), directory.path().join("socket"));
        let text = format!(
            "port {}\ndir {}\nunixsocket {}\nsentinel monitor m 127.0.0.1 {port} 1\n\
             sentinel down-after-milliseconds m {}\nsentinel failover-timeout m 2000\n",
            free_port(),
            directory.path().display(),
            socket.display(),
            DOWN_AFTER.as_millis(),
        );
        std::fs::write(&conf, text).unwrap();
        let mut command = Command::new("redis-server");
        command.arg(&conf).arg("--sentinel").stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().unwrap();
        let sentinel = Sentinel { child, socket, _directory: directory };
        wait_for("the Sentinel", || Client::to(&sentinel.socket).is_ok());
        sentinel
    }

    /// The port of the primary.
    fn primary(&self) -> u16 {
        let mut client = Client::to(&self.socket).unwrap();
        match client.say("SENTINEL get-master-addr-by-name m") {
            Value::List(address) => match &address[1] {
                Value::Text(port) => port.parse().unwrap(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    /// How many failovers there were.
    fn failovers(&self) -> u64 {
        let mut client = Client::to(&self.socket).unwrap();
        let Value::List(words) = client.say("SENTINEL master m") else { panic!("no master") };
        let at = words.iter().position(|word| *word == text("config-epoch")).unwrap();
        match &words[at + 1] {
            Value::Text(epoch) => epoch.parse().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn wait_for_replicas(&self, count: usize) {
        let mut client = Client::to(&self.socket).unwrap();
        wait_for("the Sentinel to know the replicas", || {
            matches!(client.say("SENTINEL replicas m"), Value::List(all) if all.len() == count)
                && matches!(client.say("SENTINEL ckquorum m"), Value::Text(_))
        });
    }
}

/// What a member answers on a connection of its own, which the Sentinel may cut.
fn ask(member: &Member, line: &str) -> String {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let said = Client::to(&member.socket()).and_then(|mut client| {
        client.send(&words)?;
        client.read()
    });
    match said {
        Ok(Value::Text(text)) => text,
        _ => String::new(),
    }
}

/// Kills the primary while clients count, and waits until the Sentinel has made the other one it.
fn fail_over(sentinel: &Sentinel, old: &mut Member, new: &Member) {
    let sockets = [old.socket(), new.socket()];
    let stop = AtomicBool::new(false);
    let told: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let counters: Vec<_> = (0..3)
            .map(|id| {
                let (sockets, stop) = (&sockets, &stop);
                scope.spawn(move || count(&sockets[..1], id, stop, true))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(800));
        old.kill();
        stop.store(true, Ordering::Relaxed);
        counters.into_iter().map(|one| one.join().unwrap()).collect()
    });
    wait_for("the Sentinel to promote the replica", || sentinel.primary() == new.port);
    wait_for("the new primary", || ask(new, "SET promoted 1") == "OK");
    let mut client = new.connect();
    let confirmed: Vec<u64> = told.iter().map(|(_, confirmed)| *confirmed).collect();
    assert!(confirmed.iter().all(|last| *last > 0), "{confirmed:?}");
    assert_has(&mut client, &confirmed, "confirmed by WAIT");
}

/// The old primary comes back, and the Sentinel lets it follow.
fn come_back(sentinel: &Sentinel, old: &mut Member, new: &Member) {
    let failovers = sentinel.failovers();
    old.start();
    let began = Instant::now();
    while !ask(old, "INFO replication").contains("master_link_status:up") {
        let state =
            || format!("{}\n{}", ask(old, "INFO replication"), ask(new, "INFO replication"));
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "the old primary does not follow: {}",
            state()
        );
        assert_eq!(sentinel.failovers(), failovers, "the Sentinel takes the new primary for down");
        std::thread::sleep(Duration::from_millis(50));
    }
    wait_for("the write", || {
        ask(new, "SET returned 1");
        ask(old, "GET returned") == "1"
    });
    let (mut returned, mut primary) = (old.connect(), new.connect());
    same(&mut returned, &mut primary, "after the return");
}

#[test]
fn the_real_sentinel_promotes_a_replica_and_lets_the_old_primary_follow() {
    for (first, second) in [(true, false), (true, true)] {
        let (Some(mut one), Some(mut other)) = (Member::new(first), Member::new(second)) else {
            println!("skipped: redis-server is not installed");
            return;
        };
        write(&mut one.connect(), &mut fastrand::Rng::with_seed(6), 200);
        follow(&other, &one);
        let sentinel = Sentinel::watch(one.port);
        sentinel.wait_for_replicas(1);
        fail_over(&sentinel, &mut one, &other);
        come_back(&sentinel, &mut one, &other);
        if second {
            // What the Sentinel told them is in their files.
            let conf =
                |of: &Member| std::fs::read_to_string(of.directory.path().join("conf")).unwrap();
            assert!(!conf(&other).contains("replicaof"));
            wait_for("the file", || {
                conf(&one).contains(&format!("replicaof 127.0.0.1 {}", other.port))
            });
            continue;
        }
        // And back to where it was.
        sentinel.wait_for_replicas(1);
        fail_over(&sentinel, &mut other, &one);
        come_back(&sentinel, &mut other, &one);
    }
}
