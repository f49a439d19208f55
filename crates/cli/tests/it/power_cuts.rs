//! PostgreSQL on a mounted home whose tier is the crash simulator: the power is cut in the middle
//! of its work, at any of the fences with which the store makes things durable; what a persistent
//! medium may then hold is recovered over the home, and PostgreSQL starts on it.
//!
//! `full_page_writes = off`: a torn page would stay torn, and its checksum says so. Small
//! `shared_buffers`, checkpoints and a small tier keep pages on their way to the tier and out of it
//! at every instant. The home is a real directory, which after a cut holds all that was written to
//! it. A cut ends one life of the home and the image drawn begins the next, so whatever is wrong
//! adds up.
//!
//! The process that serves the mount is this program, started again: a machine that has stopped can
//! only be killed. The tier is EMULATED. `TIERSMITH_POWER_CUTS` sets how many cuts (default 1),
//! `TIERSMITH_SEED` the seed that is printed otherwise.

use crate::daemon;
use crate::database;

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::daemon::{Site as Place, can_mount};
use crate::database::{Load, Subject, sql_transaction, stop_and_check, verify};
use tiersmith_lab::server::{self, Programs, Server, Site};
use tiersmith_mount::{clear_dead, is_dead, mount};
use tiersmith_pmem::sim::{Sabotage, Simulator};
use tiersmith_store::testing::attach_simulated_at;
use tiersmith_store::{Error, Medium, Options, Profile, TierSpec};

/// The directory, in the environment of the process that serves.
const PLACE: &str = "TIERSMITH_TEST_POWER";
/// Bytes of the tier: less than the database, so that blocks come and go.
const TIER: usize = 24 << 20;
/// What the process that serves says when it cannot begin for another reason than the state of tier
/// and home.
const REFUSED: &str = "it is refused";
/// What it is called when it ended without a word.
const SILENT: &str = "the process that serves ended before it said";
/// What those say who have found damage: this test's own look, the store, PostgreSQL and its tools.
const LOSSES: [&str; 21] = [
    "acknowledged row ",
    "PANIC: ",
    " bytes, not ",
    "a transaction was torn apart",
    "it is found damaged",
    "could not locate a valid checkpoint record",
    "could not locate required checkpoint record",
    "invalid checkpoint record",
    "invalid primary checkpoint record",
    "invalid page in block",
    "page verification failed",
    "checksum verification failed",
    "could not read block",
    "could not access status of transaction",
    "could not open file",
    "could not read file",
    "could not read from file",
    "WAL ends before",
    "flush request ",
    "invalid memory alloc request size",
    "missing chunk number",
];
/// What `pg_amcheck` says of a table or an index, each after its name.
const CHECKS: [&str; 3] = ["heap table \"", "btree index \"", "index \""];
/// What a dead mount gives to everybody, and other words that say nothing of the data whatever
/// stands beside them.
const NO_LOOK: [&str; 4] =
    [REFUSED, SILENT, "it did not answer in", "Transport endpoint is not connected"];
/// What is durable on return.
const REDO: &str = "redo";
const ALL: &str = "all";
const NOTHING: &str = "nothing";
/// Images to draw one from at a cut.
const IMAGES: usize = 64;

/// Not a test: the process that serves, when it was started for that.
#[test]
fn the_process_that_serves() {
    let Some(place) = std::env::var_os(PLACE) else { return };
    serve(Path::new(&place));
}

/// Serves the home in `place` over the image there, until it is killed. Standard input says what is
/// to happen; each command is answered with a line.
fn serve(place: &Path) {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let simulator = Simulator::new();
    let image = fs::read(place.join("image")).unwrap_or_else(|_| vec![0; TIER]);
    let mapping = Arc::new(simulator.mapping(image, 0));
    let mut spec = TierSpec::new("fast", "/simulated/tier", Medium::Emulated, TIER as u64);
    spec.unit = 256 << 10;
    spec.lanes = 8;
    let profile = Profile::named("postgres").unwrap();
    let home = place.join("db");
    let attached =
        match attach_simulated_at(&home, vec![(spec, vec![mapping])], &profile, Options::default())
        {
            Ok(attached) => attached,
            Err(e @ (Error::Owned { .. } | Error::Busy(_))) => return println!("{REFUSED}: {e}"),
            Err(e) => return println!("it is found damaged: {e}"),
        };
    let synced = std::env::var("TIERSMITH_TEST_SYNC").unwrap_or_default();
    let mode = tiersmith_mount::Options {
        sync_on_write: synced != NOTHING,
        sync_in_redo_only: synced == REDO,
        atomic_pages: std::env::var_os("TIERSMITH_TEST_WRITE_BACK").is_none(),
        allow_other: true,
        ..Default::default()
    };
    let _mounted = mount(attached, &home, &mode).unwrap();
    println!("it is mounted and ready");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["sabotage"] => {
                simulator.set_dropped(Sabotage::DropEveryFence);
                println!("it is sabotaged");
            }
            ["cut", calls, which, seed] => {
                let (calls, seed): (u64, u64) = (calls.parse().unwrap(), seed.parse().unwrap());
                let trace = simulator.stop_after(calls);
                let mut player = trace.player();
                player.advance_to(trace.len());
                let which = which.parse::<usize>().unwrap();
                let images = player.images(IMAGES, seed).collect::<Vec<_>>();
                let which = which % images.len();
                let mut buffer = player.buffer();
                let image = player.image(&images[which], &mut buffer);
                fs::write(place.join("image.next"), &image[0]).unwrap();
                println!(
                    "it is cut after {} events, {} words pending, image {which} of {}",
                    trace.len(),
                    player.pending().len(),
                    images.len()
                );
            }
            _ => panic!("what is {line:?}?"),
        }
    }
}

/// The machine: a process that serves the home until the power is cut.
struct Machine {
    child: Child,
    commands: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    place: PathBuf,
}

impl Machine {
    /// Switched on: the tier's image is recovered over the home, and the home is mounted. What it
    /// said last if that did not work.
    fn start(place: &Path, synced: &str, atomic_pages: bool) -> Result<Machine, String> {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([
            full_name!("the_process_that_serves").as_str(),
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ]);
        command.env(PLACE, place);
        command.env("TIERSMITH_TEST_SYNC", synced);
        if !atomic_pages {
            command.env("TIERSMITH_TEST_WRITE_BACK", "1");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let commands = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut machine = Machine { child, commands, lines, place: place.into() };
        let said = machine.said("it is ")?;
        if said.contains("it is mounted and ready") { Ok(machine) } else { Err(said) }
    }

    /// The line with these words; an error when the process ends before, which it is made to after
    /// a long time.
    fn said(&mut self, what: &str) -> Result<String, String> {
        let (pid, (done, ended)) = (u64::from(self.child.id()), std::sync::mpsc::channel::<()>());
        let watch = std::thread::spawn(move || {
            if ended.recv_timeout(daemon::LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                daemon::kill("KILL", pid);
            }
        });
        let said = self.lines.by_ref().map_while(Result::ok).find(|line| line.contains(what));
        drop(done);
        watch.join().unwrap();
        said.ok_or_else(|| format!("{SILENT} {what:?}; what it said is above"))
    }

    fn ask(&mut self, command: &str, answer: &str) -> String {
        writeln!(self.commands, "{command}").unwrap();
        self.said(answer).unwrap()
    }

    /// The image drawn is the tier's from here on. The server is to be killed by the caller, who
    /// then lets the machine go.
    fn cut(&mut self, calls: u64, which: usize, seed: u64) -> String {
        let said = self.ask(&format!("cut {calls} {which} {seed}"), "it is cut");
        fs::rename(self.place.join("image.next"), self.place.join("image")).unwrap();
        said
    }
}

impl Drop for Machine {
    /// Killed, and the dead mount taken away. What the kernel still holds for an instant is waited
    /// for.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let (at, began) = (self.place.join("db"), std::time::Instant::now());
        while daemon::is_mounted(&at) {
            if is_dead(&at) {
                let _ = clear_dead(&at);
            }
            if began.elapsed() > daemon::LIMIT {
                return eprintln!("left behind: a mount at {}", at.display());
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// A home with a database in it, and what the database has acknowledged.
struct Run {
    subject: Subject,
    programs: Programs,
    place: Place,
    site: Site,
    next: Arc<AtomicU64>,
    acknowledged: Vec<u64>,
    random: fastrand::Rng,
    /// Else PostgreSQL mends torn pages itself, and the kernel keeps pages until they are synced.
    atomic_pages: bool,
}

/// How one life of the machine goes.
struct Life {
    /// What is durable on return.
    synced: &'static str,
    /// From the load on no fence does anything.
    sabotaged: bool,
    /// Which of the images; nothing: any.
    image: Option<usize>,
}

impl Run {
    /// Nothing, with a word why, where it cannot be.
    fn new(what: &str, seed: u64, atomic_pages: bool) -> Option<Run> {
        let transaction = |number, session| {
            let mut statements = sql_transaction(number, session);
            if number % 16 == 0 {
                statements.push("CHECKPOINT".into());
            }
            statements
        };
        let subject = Subject { transaction, ..database::postgres() };
        let programs = match server::find(subject.product) {
            Ok(programs) => programs,
            Err(e) => {
                eprintln!("skipped: {what}, because {e}");
                return None;
            }
        };
        if !daemon::is_root() {
            eprintln!(
                "skipped: {what}, because it needs root: PostgreSQL runs as another user than the \
                 mount"
            );
            return None;
        }
        if !can_mount(what) {
            return None;
        }
        let place = Place::new();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::remove_dir(&place.home).unwrap();
        let mut site = Site::new(&place.home, place.path().join("server.log"));
        server::create(subject.product, &programs, &site).unwrap();
        let server = Server::start(subject.product, &programs, &site).unwrap();
        let mut client = server.client().unwrap();
        // Four rows a page, and more pages than PostgreSQL has buffers.
        let wide = [
            "ALTER TABLE account ADD COLUMN filler text",
            "UPDATE account SET filler = repeat('f', 1800)",
        ];
        for statement in subject.prepare.iter().chain(&wide) {
            client.batch(statement).unwrap();
        }
        drop(client);
        server.stop().unwrap();
        let small = [("shared_buffers", "512kB"), ("bgwriter_delay", "10ms")];
        let protects = [("full_page_writes", if atomic_pages { "off" } else { "on" })];
        let others = subject.settings.iter().filter(|(name, _)| *name != "full_page_writes");
        let settings = others.chain(&protects).chain(&small);
        site.settings
            .extend(settings.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let random = fastrand::Rng::with_seed(seed);
        Some(Run {
            subject,
            programs,
            place,
            site,
            next: Arc::new(AtomicU64::new(1)),
            acknowledged: Vec::new(),
            random,
            atomic_pages,
        })
    }

    /// Switches the machine on, looks whether everything is there, and cuts the power under a load.
    fn live(&mut self, life: &Life) -> Result<String, String> {
        let mut machine = Machine::start(self.place.path(), life.synced, self.atomic_pages)?;
        let server = self.checked()?;
        if life.sabotaged {
            machine.ask("sabotage", "it is sabotaged");
        }
        let load = Load::start(&self.subject, &server, &self.next);
        load.wait_for(40 + self.random.u64(0..120));
        let (calls, seed) = (1 + self.random.u64(0..400), self.random.u64(..));
        let which = life.image.unwrap_or_else(|| self.random.usize(0..IMAGES));
        let said = machine.cut(calls, which, seed);
        // No acknowledgement is on its way: whoever waits for the tier waits for ever.
        drop(machine);
        server.kill();
        self.acknowledged.extend(load.end());
        Ok(said)
    }

    /// A server that was started on the mount after everything was found to be there.
    fn checked(&self) -> Result<Server, String> {
        let start = || {
            Server::start(self.subject.product, &self.programs, &self.site)
                .map_err(|e| e.to_string())
        };
        let server = start()?;
        verify(&self.subject, &server, &self.programs, &self.acknowledged)?;
        stop_and_check(&self.subject, server, &self.programs, &self.place.home)?;
        start()
    }

    /// As [`Run::live`], up to the cut. What the server says goes to a log of its own: the last
    /// words of the one that was cut off from its mount are no finding.
    fn look(&mut self) -> Result<(), String> {
        self.site.log = self.place.path().join("look.log");
        let _machine = Machine::start(self.place.path(), NOTHING, self.atomic_pages)?;
        self.checked()?.stop().map_err(|e| e.to_string())
    }
}

/// Whether an error is one of those that lost work gives. Any other may have come from the look
/// itself, and finds nothing out.
fn is_a_loss(why: &str) -> bool {
    let checked = why.contains("pg_amcheck") && CHECKS.iter().any(|words| why.contains(words));
    !NO_LOOK.iter().any(|words| why.contains(words))
        && (checked || LOSSES.iter().any(|words| why.contains(words)))
}

#[test]
fn a_look_that_did_not_work_is_not_taken_for_a_loss() {
    for loss in [
        "acknowledged row 7 is not there",
        "it ended with exit status: 1; it printed: PANIC:  could not locate a valid checkpoint \
         record",
        "\"pg_amcheck\" says: btree index \"postgres.public.acked_pkey\": item order invariant \
         violated",
        "ERROR: invalid page in block 3 of relation base/5/16384",
    ] {
        assert!(is_a_loss(loss), "{loss}");
    }
    for other in [
        "the process that serves ended before it said \"it is \"; what it said is above",
        "it is refused: another process has it",
        "starting PostgreSQL: it did not answer in 180s: the connection was refused; it printed: \
         PANIC:  ",
        "starting PostgreSQL: it ended with exit status: 1; it printed: FATAL:  could not create \
         lock file",
        "\"pg_amcheck\" says: connection to server on socket failed: Connection refused",
        "it ended with exit status: 1; it printed: PANIC:  could not write to file: Transport \
         endpoint is not connected",
        "No such file or directory (os error 2)",
        "",
    ] {
        assert!(!is_a_loss(other), "{other}");
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn postgresql_without_full_page_writes_survives_power_cuts_and_a_medium_that_keeps_no_fence_is_found_out()
 {
    let what = "power cuts beneath PostgreSQL";
    let seed = number("TIERSMITH_SEED").unwrap_or_else(|| fastrand::u64(..));
    let cuts = number("TIERSMITH_POWER_CUTS").unwrap_or(1);
    let Some(mut run) = Run::new(what, seed, true) else { return };
    eprintln!("power cuts beneath PostgreSQL: seed {seed}, {cuts} cuts, tier EMULATED");
    let wrong = |cut: u64, why: &str| -> ! {
        eprintln!("VIOLATION: after cut {cut} (seed {seed}): {why}");
        panic!("VIOLATION: after cut {cut} (seed {seed}): {why}");
    };
    for cut in 0..cuts {
        // The first as `attach` has PostgreSQL's homes mounted.
        let synced = [REDO, NOTHING, ALL][(cut % 3) as usize];
        let life = Life { synced, sabotaged: false, image: None };
        match run.live(&life) {
            Ok(said) => eprintln!("cut {cut}: {said}"),
            Err(why) => wrong(cut, &why),
        }
    }
    // The same look at a machine whose fences do nothing, of whose work since then nothing has
    // arrived: blind it would be worth nothing.
    let life = Life { synced: NOTHING, sabotaged: true, image: Some(0) };
    let acknowledged = run.acknowledged.len();
    // It begins with the look after the last cut.
    let said = run.live(&life).unwrap_or_else(|why| wrong(cuts, &why));
    eprintln!(
        "power cuts beneath PostgreSQL: {cuts} cuts, {acknowledged} transactions acknowledged"
    );
    let why = run.look().expect_err("a cut that took acknowledged work away was not seen");
    if !is_a_loss(&why) {
        wrong(
            cuts + 1,
            &format!("no loss was found after a cut without fences, the look itself failed: {why}"),
        );
    }
    eprintln!("cut without fences: {said}; found out: {why}");
}

#[test]
fn postgresql_that_mends_torn_pages_survives_power_cuts_with_pages_in_the_page_cache() {
    let what = "power cuts beneath PostgreSQL in the page cache";
    let seed = number("TIERSMITH_SEED").unwrap_or_else(|| fastrand::u64(..));
    let cuts = number("TIERSMITH_POWER_CUTS").unwrap_or(1);
    let Some(mut run) = Run::new(what, seed, false) else { return };
    eprintln!("{what}: seed {seed}, {cuts} cuts, tier EMULATED");
    for cut in 0..=cuts {
        let synced = [REDO, NOTHING][(cut % 2) as usize];
        let life = Life { synced, sabotaged: false, image: None };
        // Each life begins with the look after the cut before, and the last is only that look.
        let lived =
            if cut < cuts { run.live(&life) } else { run.look().map(|()| "all is there".into()) };
        match lived {
            Ok(said) => eprintln!("cut {cut}: {said}"),
            Err(why) => {
                eprintln!("VIOLATION: after cut {cut} (seed {seed}): {why}");
                panic!("VIOLATION: after cut {cut} (seed {seed}): {why}");
            }
        }
    }
    eprintln!("{what}: {cuts} cuts, {} transactions acknowledged", run.acknowledged.len());
}
