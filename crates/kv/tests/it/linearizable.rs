//! Clients work on the same few keys while the server is killed and started again; whether the
//! replies fit one order of everything is judged by a checker that we did not write.
//!
//! # The history
//! A round is one life of the server. Each key has a history of its own in each round: it begins
//! with what was there when the server had started, and ends with what the next server finds. In
//! between are the requests of all clients, each with the times of a monotonic clock just before it
//! was sent and just after its reply was read. All commands of a transaction or of a script are one
//! step. A request whose reply did not come returns after everything else, so it may have happened
//! or not: what is put behind the last look has not. That is as strict as it can be, because a dead
//! server does nothing more.
//!
//! What a round can hold is limited, so that the checker's search ends: so many requests of so many
//! clients, of which each has one under way.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

use crate::replica::{info, server, wait_for};
use crate::served::{Client, Served, Value, assert_sound, free_port, request, text};

const CLIENTS: u64 = 4;
const KEYS: usize = 3;
/// The most requests of a client in a round.
const REQUESTS: usize = 1000;

/// What a key holds.
type State = Option<String>;

/// A command on a key.
#[derive(Clone, Debug)]
enum Word {
    Get,
    Set(String),
    SetNew(String),
    GetSet(String),
    Append(String),
    Incr,
    Del,
}

impl Word {
    fn arguments<'a>(&'a self, key: &'a str) -> Vec<&'a [u8]> {
        let words = match self {
            Word::Get => vec!["GET", key],
            Word::Set(value) => vec!["SET", key, value],
            Word::SetNew(value) => vec!["SET", key, value, "NX"],
            Word::GetSet(value) => vec!["GETSET", key, value],
            Word::Append(value) => vec!["APPEND", key, value],
            Word::Incr => vec!["INCR", key],
            Word::Del => vec!["DEL", key],
        };
        words.into_iter().map(str::as_bytes).collect()
    }

    /// What Redis's manual says that it does, and its reply.
    fn does(&self, state: &mut State) -> Value {
        let of = |state: &State| state.clone().map_or(Value::Nil, Value::Text);
        match self {
            Word::Get => of(state),
            Word::SetNew(_) if state.is_some() => Value::Nil,
            Word::Set(value) | Word::SetNew(value) => {
                *state = Some(value.clone());
                text("OK")
            }
            Word::GetSet(value) => of(&state.replace(value.clone())),
            Word::Append(value) => {
                let all = state.get_or_insert_default();
                all.push_str(value);
                Value::Int(all.len() as i64)
            }
            Word::Incr => {
                let before = state.as_deref().unwrap_or("0");
                let number = before.parse::<i64>().ok().filter(|n| n.to_string() == before);
                match number.and_then(|number| number.checked_add(1)) {
                    Some(number) => {
                        *state = Some(number.to_string());
                        Value::Int(number)
                    }
                    None => Value::Error(String::new()),
                }
            }
            Word::Del => Value::Int(state.take().is_some().into()),
        }
    }
}

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// What is there when the server has started.
    Begins(State),
    /// Commands, all at once, and the replies that are known.
    Did(Vec<(Word, Option<Value>)>),
    /// The same behind a WATCH, with what the key held: they happen where it still holds that.
    /// `so`: the reply says that they did.
    IfStill { held: State, so: bool, did: Vec<(Word, Option<Value>)> },
}

/// One key.
struct Key;

impl Specification for Key {
    type State = State;
    type Operation = Step;

    fn init() -> State {
        None
    }

    fn apply(step: &Step, state: &State) -> (bool, State) {
        let did = match step {
            Step::Begins(state) => return (true, state.clone()),
            Step::IfStill { held, so, .. } if held != state => return (!so, state.clone()),
            Step::Did(did) | Step::IfStill { did, .. } => did,
        };
        let mut after = state.clone();
        let fits = did.iter().all(|(word, reply)| match (word.does(&mut after), reply) {
            (_, None) | (Value::Error(_), Some(Value::Error(_))) => true,
            (one, Some(other)) => one == *other,
        });
        if fits { (true, after) } else { (false, state.clone()) }
    }
}

/// A request as its client saw it.
#[derive(Clone, Debug)]
struct Seen {
    key: usize,
    step: Step,
    sent: Instant,
    /// Nothing: no reply came.
    replied: Option<Instant>,
}

/// Whether the requests on a key fit to what it held before and after them.
fn fits(begins: &State, seen: &[Seen], found: Option<&State>) -> bool {
    let mut events: Vec<(Option<Instant>, bool, usize)> = Vec::new();
    for (number, one) in seen.iter().enumerate() {
        events.push((Some(one.sent), false, number));
        events.extend(one.replied.map(|at| (Some(at), true, number)));
    }
    // At the same time, what begins comes first: then more orders are possible, not fewer.
    events.sort();
    let look = |found: &State| {
        Step::Did(vec![(Word::Get, Some(found.clone().map_or(Value::Nil, Value::Text)))])
    };
    let ends = seen.iter().enumerate().filter(|(_, one)| one.replied.is_none());
    let mut steps = vec![(false, seen.len(), Step::Begins(begins.clone()))];
    steps.push((true, seen.len(), Step::Begins(begins.clone())));
    steps.extend(events.into_iter().map(|(_, end, n)| (end, n, seen[n].step.clone())));
    if let Some(found) = found {
        steps.push((false, seen.len() + 1, look(found)));
        steps.push((true, seen.len() + 1, look(found)));
    }
    steps.extend(ends.map(|(number, one)| (true, number, one.step.clone())));
    let actions = steps.into_iter().map(|(end, number, step)| match end {
        false => (number, Action::Call(step)),
        true => (number, Action::Response(step)),
    });
    WGLChecker::<Key>::is_linearizable(History::from_actions(actions.collect()))
}

/// What is wrong with a key's history, if something is: the end of the shortest part of it that no
/// order fits.
fn judge(begins: &State, seen: &[Seen], found: &State) -> Result<(), String> {
    if fits(begins, seen, Some(found)) {
        return Ok(());
    }
    let mut ends: Vec<Instant> = seen.iter().filter_map(|one| one.replied).collect();
    ends.sort();
    let part = |end: Instant| -> Vec<Seen> {
        let begun = seen.iter().filter(|one| one.sent <= end).cloned();
        begun.map(|one| Seen { replied: one.replied.filter(|at| *at <= end), ..one }).collect()
    };
    let good = ends.partition_point(|end| fits(begins, &part(*end), None));
    let (mut shown, what) = match ends.get(good) {
        Some(end) => (part(*end), "no order fits the last of"),
        None => (seen.to_vec(), "what is there afterwards does not fit to"),
    };
    shown.sort_by_key(|one| one.replied.unwrap_or(one.sent));
    let first = shown.iter().map(|one| one.sent).min();
    let us = |at: Instant| first.map_or(0, |first| at.duration_since(first).as_micros());
    let line = |one: &Seen| match one.replied {
        Some(at) => format!("  {} to {} µs: {:?}", us(one.sent), us(at), one.step),
        None => format!("  {} µs, no reply: {:?}", us(one.sent), one.step),
    };
    let from = shown.len().saturating_sub(12);
    let lines: Vec<String> = shown[from..].iter().map(line).collect();
    Err(format!("{what} these requests; found {found:?}\n{}", lines.join("\n")))
}

/// A client at work, with what it has seen.
struct Worker {
    client: Client,
    random: fastrand::Rng,
    id: u64,
    count: u64,
    seen: Vec<Seen>,
}

/// The server is gone.
struct Gone;

const SCRIPT: &str = "redis.call('set', KEYS[1], ARGV[1]) redis.call('append', KEYS[1], ARGV[2]) \
                      return {redis.call('get', KEYS[1]), redis.call('incr', KEYS[1])}";

impl Worker {
    fn new(client: Client, random: fastrand::Rng, id: u64) -> Worker {
        Worker { client, random, id, count: 0, seen: Vec::new() }
    }

    /// A value that nobody else writes, and that is a number.
    fn value(&mut self) -> String {
        self.count += 1;
        format!("{}{:06}", self.id + 1, self.count)
    }

    fn word(&mut self) -> Word {
        match self.random.u8(..9) {
            0 | 1 => Word::Get,
            2 => Word::Set(self.value()),
            3 => Word::SetNew(self.value()),
            4 => Word::GetSet(self.value()),
            5 => Word::Append(self.random.digit(10).to_string()),
            6 | 7 => Word::Incr,
            _ => Word::Del,
        }
    }

    /// Sends, and reads so many replies, of which the last counts.
    fn ask(&mut self, bytes: &[u8], replies: usize) -> Result<Value, Gone> {
        use std::io::Write;
        self.client.out.write_all(bytes).map_err(|_| Gone)?;
        let all: Result<Vec<Value>, _> = (0..replies).map(|_| self.client.read()).collect();
        all.map_err(|_| Gone)?.pop().ok_or(Gone)
    }

    /// Asks, and notes what was seen; `step` makes that of the reply, or of none.
    fn note(
        &mut self,
        key: usize,
        bytes: &[u8],
        replies: usize,
        step: impl Fn(Option<Value>) -> Option<Step>,
    ) -> Result<(), Gone> {
        let sent = Instant::now();
        let reply = self.ask(bytes, replies);
        let replied = reply.is_ok().then(Instant::now);
        let seen = step(reply.ok()).map(|step| Seen { key, step, sent, replied });
        self.seen.extend(seen);
        if replied.is_some() { Ok(()) } else { Err(Gone) }
    }

    fn one(&mut self, key: usize) -> Result<(), Gone> {
        let name = format!("key:{key}");
        match self.random.u8(..10) {
            0 => self.transaction(key, &name),
            1 => self.script(key, &name),
            2 => self.if_still(key, &name),
            _ => {
                let word = self.word();
                let bytes = request(&word.arguments(&name));
                self.note(key, &bytes, 1, |reply| Some(Step::Did(vec![(word.clone(), reply)])))
            }
        }
    }

    fn transaction(&mut self, key: usize, name: &str) -> Result<(), Gone> {
        let words: Vec<Word> = (0..self.random.usize(2..5)).map(|_| self.word()).collect();
        let mut bytes = request(&[b"MULTI"]);
        words.iter().for_each(|word| bytes.extend(request(&word.arguments(name))));
        bytes.extend(request(&[b"EXEC"]));
        self.note(key, &bytes, words.len() + 2, |reply| Some(Step::Did(zip(&words, reply))))
    }

    fn script(&mut self, key: usize, name: &str) -> Result<(), Gone> {
        let (value, digit) = (self.value(), self.random.digit(10).to_string());
        let mut words: Vec<&[u8]> = vec![b"EVAL", SCRIPT.as_bytes(), b"1"];
        words.extend([name, &value, &digit].map(str::as_bytes));
        self.note(key, &request(&words), 1, |reply| {
            let mut did =
                vec![(Word::Set(value.clone()), None), (Word::Append(digit.clone()), None)];
            did.extend(zip(&[Word::Get, Word::Incr], reply));
            Some(Step::Did(did))
        })
    }

    /// Changes what it has read, if nobody else has in between.
    fn if_still(&mut self, key: usize, name: &str) -> Result<(), Gone> {
        self.ask(&request(&[b"WATCH", name.as_bytes()]), 1)?;
        let get = request(&[b"GET", name.as_bytes()]);
        self.note(key, &get, 1, |reply| Some(Step::Did(vec![(Word::Get, reply)])))?;
        let held = match self.seen.last().map(|seen| &seen.step) {
            Some(Step::Did(did)) => match &did[0].1 {
                Some(Value::Text(held)) => Some(held.clone()),
                _ => None,
            },
            _ => unreachable!("it was noted"),
        };
        let words = [Word::Set(self.value()), Word::Incr];
        let mut bytes = request(&[b"MULTI"]);
        words.iter().for_each(|word| bytes.extend(request(&word.arguments(name))));
        bytes.extend(request(&[b"EXEC"]));
        self.note(key, &bytes, 4, |reply| {
            let (held, so) = (held.clone(), reply.is_some());
            // Somebody else has changed it: nothing happened.
            (reply != Some(Value::Nil)).then(|| Step::IfStill { held, so, did: zip(&words, reply) })
        })
    }
}

/// Each command with its reply out of a list of all.
fn zip(words: &[Word], reply: Option<Value>) -> Vec<(Word, Option<Value>)> {
    let replies = match reply {
        None => vec![None; words.len()],
        Some(Value::List(all)) => all.into_iter().map(Some).collect(),
        Some(other) => panic!("no list: {other:?}"),
    };
    assert_eq!(replies.len(), words.len());
    words.iter().cloned().zip(replies).collect()
}

/// What the keys hold.
fn look(server: &Served) -> Vec<State> {
    let mut client = server.connect();
    let all = (0..KEYS).map(|key| match client.say(&format!("GET key:{key}")) {
        Value::Text(value) => Some(value),
        Value::Nil => None,
        other => panic!("{other:?}"),
    });
    all.collect()
}

/// Lets clients work for a while; what they saw, and when the server is gone.
fn round(server: &mut Served, seed: u64) -> Vec<Seen> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..CLIENTS)
            .map(|id| {
                let mut worker = Worker::new(server.connect(), random.fork(), id);
                scope.spawn(move || {
                    while worker.seen.len() < REQUESTS {
                        let key = worker.random.usize(..KEYS);
                        if worker.one(key).is_err() {
                            break;
                        }
                    }
                    worker.seen
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(random.u64(5..80)));
        server.kill();
        running.into_iter().flat_map(|one| one.join().unwrap()).collect()
    })
}

/// What was done in all rounds.
#[derive(Debug, Default)]
struct Figures {
    rounds: u64,
    requests: usize,
    open: usize,
}

/// Kills the server again and again for a while, at least so many times.
fn kill_again_and_again(
    directory: &Path,
    seed: u64,
    (least, seconds): (u64, u64),
) -> Result<Figures, String> {
    let (began, mut figures) = (Instant::now(), Figures::default());
    let mut server = Served::start(directory);
    let mut begins = look(&server);
    while figures.rounds < least || began.elapsed() < Duration::from_secs(seconds) {
        let seen = round(&mut server, seed + figures.rounds);
        assert_sound(directory);
        server = Served::start(directory);
        let found = look(&server);
        for key in 0..KEYS {
            let own: Vec<Seen> = seen.iter().filter(|one| one.key == key).cloned().collect();
            judge(&begins[key], &own, &found[key]).map_err(|why| {
                let round = figures.rounds;
                format!("VIOLATION: TIERSMITH_SEED={seed}, round {round}, key {key}: {why}")
            })?;
        }
        figures.rounds += 1;
        figures.requests += seen.len();
        figures.open += seen.iter().filter(|one| one.replied.is_none()).count();
        begins = found;
    }
    Ok(figures)
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// As long as `TIERSMITH_SOAK_SECONDS` says, from the seed that `TIERSMITH_SEED` says.
#[test]
fn what_each_client_is_told_fits_one_order_also_when_the_server_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let seed = from_environment("TIERSMITH_SEED").unwrap_or(20_261_129);
    let seconds = from_environment("TIERSMITH_SOAK_SECONDS").unwrap_or(12);
    let figures = kill_again_and_again(directory.path(), seed, (6, seconds));
    let figures = figures.unwrap_or_else(|why| panic!("{why}"));
    println!("linearizable: {figures:?}, seed {seed}");
    assert!(figures.requests > 100 && figures.open > 0, "{figures:?}");
}

/// Whether a planted bug is found, of which the server is told by a file.
fn finds(planted: &str) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("planted"), planted).unwrap();
    let why = kill_again_and_again(directory.path(), 1, (40, 60)).expect_err(planted);
    // Without the word by which a log says that data are lost.
    println!("{planted} was found: {}", why.replace("VIOLATION: ", ""));
}

#[test]
fn a_write_that_was_answered_before_its_commit_is_found_to_be_lost() {
    finds("AnsweredBeforeCommit");
}

#[test]
fn a_transaction_that_does_not_see_what_it_watched_change_is_found() {
    finds("WatchIgnored");
}

/// Writes at whichever of two servers is the primary. A read of the other one may be an old one, so
/// only commands that write say what is there.
fn write_at(sockets: [&Path; 2], id: u64, stop: &AtomicBool) -> Vec<Seen> {
    let connect = |at: usize| Client::to(sockets[at]).unwrap();
    let random = fastrand::Rng::with_seed(id);
    let (mut worker, mut at) = (Worker::new(connect(0), random, id), 0);
    // Where no server takes writes any more, this must end all the same.
    let until = Instant::now() + Duration::from_secs(120);
    while worker.seen.len() < REQUESTS && !stop.load(Ordering::Relaxed) && Instant::now() < until {
        let (key, word) = (worker.random.usize(..KEYS), worker.word());
        if matches!(word, Word::Get) {
            continue;
        }
        let (bytes, before) = (request(&word.arguments(&format!("key:{key}"))), worker.seen.len());
        let asked = worker.note(key, &bytes, 1, |reply| match reply {
            Some(Value::Error(why)) if why.starts_with("READONLY") => None,
            reply => Some(Step::Did(vec![(word.clone(), reply)])),
        });
        assert!(asked.is_ok(), "a server is gone");
        if worker.seen.len() == before {
            at = 1 - at;
            worker.client = connect(at);
        }
        // So that the handovers come while it works.
        std::thread::sleep(Duration::from_millis(1));
    }
    worker.seen
}

/// Sets a flag when it goes, also by a panic: threads of a scope that wait for the flag are joined
/// before the panic is seen.
struct StopsAtEnd<'a>(&'a AtomicBool);

impl Drop for StopsAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_each_client_is_told_fits_one_order_also_when_the_role_is_handed_over() {
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let ports = [(); 2].map(|()| free_port());
    let start = |at: usize| server(directories[at].path(), &format!("port {}\n", ports[at]));
    let servers = [start(0), start(1)];
    let [mut one, mut other] = servers.each_ref().map(Served::connect);
    other.say(&format!("REPLICAOF 127.0.0.1 {}", ports[0]));
    wait_for("the link", || info(&mut other, "master_link_status") == "up");
    let sockets = servers.each_ref().map(|server| server.socket.as_path());
    let stop = AtomicBool::new(false);
    let seen: Vec<Seen> = std::thread::scope(|scope| {
        let stop = &stop;
        let ends = StopsAtEnd(stop);
        let running: Vec<_> =
            (0..CLIENTS).map(|id| scope.spawn(move || write_at(sockets, id, stop))).collect();
        // There and back.
        for to in [1, 0] {
            std::thread::sleep(Duration::from_millis(150));
            let (old, new) = if to == 1 { (&mut one, &mut other) } else { (&mut other, &mut one) };
            let said = old.say(&format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 20000", ports[to]));
            assert_eq!(said, text("OK"));
            wait_for("the new primary", || info(new, "role") == "master");
            wait_for("the old one to follow", || info(old, "master_link_status") == "up");
        }
        std::thread::sleep(Duration::from_millis(100));
        drop(ends);
        running.into_iter().flat_map(|one| one.join().unwrap()).collect()
    });
    assert!(seen.len() > 100, "{} requests", seen.len());
    for (key, found) in look(&servers[0]).iter().enumerate() {
        let own: Vec<Seen> = seen.iter().filter(|one| one.key == key).cloned().collect();
        judge(&None, &own, found).unwrap_or_else(|why| panic!("VIOLATION: key {key}: {why}"));
    }
}

/// Requests at times: sent, replied if at all.
fn history(all: &[(u64, Option<u64>, Step)]) -> Vec<Seen> {
    let base = Instant::now();
    let at = |ms: u64| base + Duration::from_millis(ms);
    let seen = |(sent, replied, step): &(u64, Option<u64>, Step)| {
        let (step, replied) = (step.clone(), replied.map(at));
        Seen { key: 0, step, sent: at(*sent), replied }
    };
    all.iter().map(seen).collect()
}

fn did(word: Word, reply: Value) -> Step {
    Step::Did(vec![(word, Some(reply))])
}

fn set(value: &str) -> Step {
    did(Word::Set(value.to_owned()), text("OK"))
}

fn state(value: &str) -> State {
    Some(value.to_owned())
}

#[test]
fn the_judge_refuses_what_no_order_explains() {
    let incr = |reply| did(Word::Incr, Value::Int(reply));
    let refused = |begins: State, all: &[(u64, Option<u64>, Step)], found: State| {
        let why = judge(&begins, &history(all), &found).expect_err("no order explains it");
        assert!(why.contains("these requests"), "{why}");
    };
    // An old value is read after a new one was acknowledged.
    let old = did(Word::Get, text("1"));
    refused(state("1"), &[(0, Some(10), set("2")), (20, Some(30), old)], state("2"));
    // An acknowledged write is not there after a kill.
    refused(state("1"), &[(0, Some(10), set("2"))], state("1"));
    // A new value is read, and then the old one, while both are being written.
    let reads = [did(Word::Get, text("2")), did(Word::Get, text("1"))];
    let [new, old] = reads;
    refused(
        None,
        &[
            (0, Some(5), set("1")),
            (6, Some(100), set("2")),
            (10, Some(20), new),
            (30, Some(40), old),
        ],
        state("2"),
    );
    // Two add one, and both are told the same sum.
    refused(state("1"), &[(0, Some(10), incr(2)), (5, Some(15), incr(2))], state("2"));
    // Half of a transaction.
    let both = Step::Did(vec![(Word::Del, None), (Word::Set("3".to_owned()), None)]);
    refused(state("1"), &[(0, None, both)], None);
    // A transaction happened although what it watched had changed.
    let still = |so| {
        let did = vec![(Word::Set("9".to_owned()), None)];
        Step::IfStill { held: state("1"), so, did }
    };
    refused(state("1"), &[(0, Some(10), set("2")), (20, Some(30), still(true))], state("9"));
    refused(state("1"), &[(0, Some(10), set("2")), (20, None, still(false))], state("9"));
}

#[test]
fn the_judge_takes_what_one_order_explains() {
    let taken = |begins: State, all: &[(u64, Option<u64>, Step)], found: State| {
        judge(&begins, &history(all), &found).unwrap();
    };
    // No reply: it happened, or did not.
    taken(state("1"), &[(0, None, set("2"))], state("2"));
    taken(state("1"), &[(0, None, set("2"))], state("1"));
    // Whoever reads at the same time may read either.
    for read in ["1", "2"] {
        let read = did(Word::Get, text(read));
        taken(state("1"), &[(0, Some(10), set("2")), (5, Some(15), read)], state("2"));
    }
    let still = |so| {
        let did = vec![(Word::Set("9".to_owned()), None)];
        Step::IfStill { held: state("1"), so, did }
    };
    taken(state("1"), &[(20, Some(30), still(true))], state("9"));
    taken(state("1"), &[(0, Some(10), set("2")), (20, None, still(false))], state("2"));
    let long: Vec<_> = (0..REQUESTS as u64)
        .map(|n| (n * 5, Some(n * 5 + 18), did(Word::Incr, Value::Int(n as i64 + 1))))
        .collect();
    taken(None, &long, state("1000"));
}
