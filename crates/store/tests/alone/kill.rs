//! A real process on real files, killed at random, hundreds of times: nothing acknowledged is
//! missing, nothing is torn.
//!
//! The test runs itself again as the writer, which prints a line for each operation acknowledged;
//! the parent kills it (SIGKILL), attaches, and compares with what the lines promise
//! (`kill/workload.rs`). The tier is a fraction of the data, so growing, destaging, evicting and
//! waiting for free blocks go on all the time. In the second kind of run the writer attaches and
//! detaches all the time.
//!
//! `TIERSMITH_SEED` repeats the operations of a run (not its timing); `TIERSMITH_KILLS` sets how
//! many kills each test does.

use crate::place;
// Two programs have this file.
#[path = "kill/workload.rs"]
mod workload;

use crate::place::{Place, attach};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tiersmith_store::{AttachedHome, Error, OpenMode, Options, TierSpec};
use workload::{Model, THREADS};

const ROLE: &str = "TIERSMITH_KILLED_WRITER";

/// What writer and checker both know.
struct Run {
    dir: PathBuf,
    members: usize,
    seed: u64,
    /// Attach and detach all the time.
    cycling: bool,
}

impl Run {
    fn encode(&self) -> String {
        format!("{} {} {} {}", self.members, self.seed, self.cycling, self.dir.display())
    }

    fn decode(text: &str) -> Self {
        let mut parts = text.splitn(4, ' ');
        let mut next = || parts.next().unwrap();
        let (members, seed) = (next().parse().unwrap(), next().parse().unwrap());
        Self { members, seed, cycling: next() == "true", dir: next().into() }
    }

    fn spec(&self) -> TierSpec {
        let members = self.members as u64;
        TierSpec {
            members: (0..members).map(|n| self.dir.join(format!("fast{n}"))).collect(),
            size: (1 << 20) / members,
            max_size: (3 << 20) / members,
            grow_by: (256 << 10) / members,
            ..place::small(self.dir.join("fast0"), 1 << 20)
        }
    }

    fn attach(&self, background: bool) -> AttachedHome {
        let options = Options { background, redo_keep_bytes: 64 << 10, ..place::options() };
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            match attach(&self.dir.join("db"), &self.spec(), options.clone()) {
                Ok(attached) => return attached,
                // A writer that another test is just starting has, until its exec, copies of this
                // process's descriptors and their locks.
                Err(Error::Owned { .. }) if Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(1))
                }
                Err(e) => panic!("cannot attach: {e}"),
            }
        }
    }
}

// --- the writer ---

/// Prints one line with one system call, so that a line is there whole or not at all.
struct Printer(std::fs::File);

impl Printer {
    fn new() -> Self {
        Self(OpenOptions::new().write(true).open("/proc/self/fd/1").unwrap())
    }

    fn say(&mut self, line: &str) {
        self.0.write_all(format!("\n{line}\n").as_bytes()).unwrap();
    }
}

/// Not a test: what the parent starts. By itself it does nothing.
#[test]
fn writer_that_is_killed() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let run = Run::decode(&role);
    if run.cycling { attach_and_detach(&run) } else { write_until_killed(&run) }
}

fn write_until_killed(run: &Run) {
    let attached = run.attach(true);
    Printer::new().say("ready");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let attached = attached.clone();
            scope.spawn(move || {
                // A thread that fails ends the writer, so that the parent hears of it.
                let _end = ExitOnPanic;
                let mut printer = Printer::new();
                let mut model = Model::found(&attached, thread);
                let mut rng = workload::rng(run.seed, thread);
                for n in 0.. {
                    step(&attached, run, &mut model, &mut rng, thread, n);
                    printer.say(&format!("ack {thread} {n}"));
                }
            });
        }
    });
}

struct ExitOnPanic;

impl Drop for ExitOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::exit(3);
        }
    }
}

fn attach_and_detach(run: &Run) {
    let mut printer = Printer::new();
    let mut rngs: Vec<_> = (0..THREADS).map(|t| workload::rng(run.seed, t)).collect();
    let mut models: Vec<Model> = Vec::new();
    printer.say("ready");
    for cycle in 0.. {
        let attached = run.attach(cycle % 2 == 0);
        if models.is_empty() {
            models = (0..THREADS).map(|t| Model::found(&attached, t)).collect();
        }
        for n in cycle * 4..cycle * 4 + 4 {
            for thread in 0..THREADS {
                step(&attached, run, &mut models[thread], &mut rngs[thread], thread, n);
                printer.say(&format!("ack {thread} {n}"));
            }
        }
        if cycle % 3 == 2 {
            drop(attached);
        } else {
            attached.detach().unwrap();
            models.iter().for_each(|m| assert_plain(&run.dir.join("db"), m));
        }
    }
}

fn step(
    attached: &AttachedHome,
    run: &Run,
    model: &mut Model,
    rng: &mut fastrand::Rng,
    thread: usize,
    n: u64,
) {
    let op = model.draw(rng);
    let tag = workload::tag(run.seed, thread, n);
    workload::perform(attached, model, &op, tag).unwrap_or_else(|e| panic!("{op:?}: {e}"));
    model.apply(&op, tag);
}

/// A detached home is a plain directory with the newest contents.
fn assert_plain(home: &Path, model: &Model) {
    for name in model.name_list() {
        let found = std::fs::read(home.join(&name))
            .unwrap_or_else(|e| panic!("{name} after detaching: {e}"));
        assert!(
            Some(&found[..]) == model.contents(&name),
            "{name} after detaching is not what it was before"
        );
    }
}

// --- the checker ---

/// Starts the writer; `lines` gets what it prints.
fn start(run: &Run) -> (Child, mpsc::Receiver<String>) {
    let (_, writer) = concat!(module_path!(), "::writer_that_is_killed").split_once("::").unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", writer, "--nocapture", "--test-threads=1"])
        .env(ROLE, run.encode())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (tell, lines) = mpsc::channel();
    let out = BufReader::new(child.stdout.take().unwrap());
    std::thread::spawn(move || {
        for line in out.lines() {
            // The last line may be cut off only where the pipe is; a line without its end was not
            // acknowledged.
            let Ok(line) = line else { return };
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    (child, lines)
}

struct Killed {
    /// Operations acknowledged by each thread.
    acked: [u64; THREADS],
}

/// Runs the writer for `time` after it is ready and kills it.
fn kill_after(run: &Run, time: Duration) -> Killed {
    let (mut child, lines) = start(run);
    let mut acked = [0; THREADS];
    let mut take = |line: String| {
        let mut words = line.split(' ');
        if words.next() == Some("ack") {
            let thread: usize = words.next().unwrap().parse().unwrap();
            acked[thread] = words.next().unwrap().parse::<u64>().unwrap() + 1;
        }
    };
    let mut ready = false;
    while let Ok(line) = lines.recv_timeout(Duration::from_secs(180)) {
        ready = line == "ready";
        if ready {
            break;
        }
    }
    if ready {
        std::thread::sleep(time);
    }
    let ended = child.try_wait().unwrap();
    child.kill().unwrap();
    let status = child.wait().unwrap();
    if !ready || ended.is_some() || status.code().is_some() {
        let mut said = String::new();
        std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
        panic!("the writer ended by itself ({status}), seed {}:\n{said}", run.seed);
    }
    while let Ok(line) = lines.recv() {
        take(line);
    }
    Killed { acked }
}

/// What the writer's files hold, thread by thread, after `acked` operations and what may have come
/// of the next one.
fn verify(
    run: &Run,
    before: &[Model],
    killed: &Killed,
    attached: &AttachedHome,
) -> (Vec<Model>, [u64; 2]) {
    let mut in_flight = [0; 2];
    let mut all = Vec::new();
    for (thread, start) in before.iter().enumerate() {
        let mut rng = workload::rng(run.seed, thread);
        let mut model = start.clone();
        for n in 0..killed.acked[thread] {
            let op = model.draw(&mut rng);
            model.apply(&op, workload::tag(run.seed, thread, n));
        }
        let (op, mut after) = (model.draw(&mut rng), model.clone());
        after.apply(&op, workload::tag(run.seed, thread, killed.acked[thread]));
        let found = Model::found(attached, thread);
        if let Err(why) = model.allows(&after, &op, &found) {
            panic!(
                "thread {thread} after {} acknowledged operations, while {op:?} was under way: \
                 {why} \
                 (TIERSMITH_SEED of this round {})",
                killed.acked[thread], run.seed
            );
        }
        in_flight[usize::from(model.allows(&model, &op, &found).is_err())] += 1;
        all.push(found);
    }
    (all, in_flight)
}

/// `kills` rounds on one home: each begins with what the one before left.
fn kill_again_and_again(
    what: &str,
    place: &Place,
    members: usize,
    cycling: bool,
    kills: u64,
    most: Duration,
) {
    let seed = place::seed();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut run = Run { dir: place.path().into(), members, seed, cycling };
    let mut models: Vec<Model> = {
        let attached = run.attach(false);
        attached
            .open(workload::SHARED, OpenMode::CREATE)
            .unwrap()
            .truncate(workload::shared_size())
            .unwrap();
        (0..THREADS).map(|t| Model::found(&attached, t)).collect()
    };
    let (began, mut acked, mut in_flight, mut recovery) =
        (Instant::now(), 0, [0; 2], Duration::ZERO);
    for round in 0..kills {
        run.seed = rng.u64(..);
        // Half of the kills early: while the first operations, or the attach, are under way.
        let longest = if rng.bool() { most / 10 } else { most };
        let killed = kill_after(&run, Duration::from_micros(rng.u64(..longest.as_micros() as u64)));
        let attached = run.attach(false);
        recovery += attached.stats().recovery.time;
        place::assert_accounted(&attached.stats());
        let counts;
        (models, counts) = verify(&run, &models, &killed, &attached);
        acked += killed.acked.iter().sum::<u64>();
        in_flight = [in_flight[0] + counts[0], in_flight[1] + counts[1]];
        if round % 16 == 15 {
            attached.detach().unwrap();
            models.iter().for_each(|m| assert_plain(&place.home(), m));
        }
    }
    let attached = run.attach(false);
    attached.detach().unwrap();
    models.iter().for_each(|m| assert_plain(&place.home(), m));
    println!(
        "{what}: {kills} kills in {:.1} s, {acked} operations acknowledged, all found; of those \
         under way {} were not to be seen \
         and {} were; reopening took {:.1} ms on average",
        began.elapsed().as_secs_f64(),
        in_flight[0],
        in_flight[1],
        recovery.as_secs_f64() * 1e3 / kills as f64
    );
}

/// How many kills: what the test asks for, or what `TIERSMITH_KILLS` says.
fn kills(usual: u64) -> u64 {
    std::env::var("TIERSMITH_KILLS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(place::times(usual))
}

const LONG: Duration = Duration::from_millis(200);

#[test]
fn a_killed_writer_on_one_member_lost_nothing_acknowledged() {
    kill_again_and_again("one member, in memory", &Place::in_memory(), 1, false, kills(120), LONG);
}

#[test]
fn a_killed_writer_on_two_members_lost_nothing_acknowledged() {
    kill_again_and_again("two members, in memory", &Place::in_memory(), 2, false, kills(120), LONG);
}

#[test]
fn a_killed_writer_on_a_disk_lost_nothing_acknowledged() {
    kill_again_and_again("two members, on disk", &Place::new(), 2, false, kills(24), LONG);
}

#[test]
fn a_process_killed_while_attaching_or_detaching_lost_nothing_acknowledged() {
    kill_again_and_again(
        "attaching and detaching",
        &Place::in_memory(),
        2,
        true,
        kills(60),
        LONG / 4,
    );
    kill_again_and_again(
        "attaching and detaching, on disk",
        &Place::new(),
        1,
        true,
        kills(12),
        LONG / 2,
    );
}
