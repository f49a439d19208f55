//! Races for root: an unprivileged account exchanges every name that a command of root looks at,
//! while it runs. Nothing of root's or of a third account's is changed, read, given away or mounted
//! over, and each command ends.
//!
//! A short run is a test. `./check --races SECONDS` goes on for longer, with a last line `races: N
//! commands, M swaps, V violations`. TIERSMITH_SEED is the first seed: a seed draws the command,
//! the names and what is put there, so that one repeats what is tried, though not its moments.
//!
//! Read next: `races/names.rs` and `races/commands.rs`, the lists; `races/attacker.rs`;
//! `races/watch.rs`; `races/probe.rs`, whose names have a process's number in them.

use crate::daemon;
mod attacker;
mod commands;
mod names;
mod probe;
mod stage;
mod watch;

use std::time::{Duration, Instant};

use attacker::{Attacker, Plan, may_link};
use commands::{COMMANDS, RootsCommand};
use names::Kind;
use stage::Stage;
use watch::Watch;

/// Exchanges for each command that a long run is to reach.
const SWAPS_WANTED: u64 = 100_000;
/// The short run's seconds.
const SHORT_S: u64 = 8;
/// A run that has found so much is over.
const VIOLATIONS_MAX: usize = 40;

/// Whether races can be run here; if not, says that `what` is skipped.
fn can_race(what: &str) -> bool {
    if !daemon::is_root() {
        eprintln!("skipped: {what}, because only root can be raced");
        return false;
    }
    daemon::can_mount(what)
}

/// What was tried, and what came of it.
#[derive(Default)]
struct Tally {
    /// Runs and exchanges, for each of the commands.
    commands: [(u64, u64); COMMANDS.len()],
    violations: Vec<String>,
}

impl Tally {
    /// One attacked command. `false`: something was not as it must be, and the stage is not to be
    /// used again.
    fn race(
        &mut self,
        stage: &Stage,
        number: usize,
        plan: impl Fn(&RootsCommand) -> Plan,
        users_tier: bool,
    ) -> bool {
        let command = &COMMANDS[number];
        stage.set_up();
        let arguments = command.prepare(stage, users_tier);
        let plan = plan(command);
        let watch = Watch::begin(stage);
        let attacker = Attacker::begin(&stage.path, &plan);
        let began = Instant::now();
        let mut ended = stage.run(&arguments, || watch.look(stage));
        let mut runs = 1;
        while command.looks_only
            && ended.code.is_some()
            && began.elapsed() < Duration::from_millis(200)
        {
            ended = stage.run(&arguments, || watch.look(stage));
            runs += 1;
        }
        let swaps = attacker.end();
        self.commands[number].0 += runs;
        self.commands[number].1 += swaps;
        let found = watch.violations(stage, &ended);
        for text in &found {
            println!("VIOLATION: {} ({arguments:?}), {plan:?}: {text}", command.name);
        }
        let good = found.is_empty();
        self.violations.extend(found);
        good
    }

    fn line(&self) -> String {
        let (runs, swaps) = self
            .commands
            .iter()
            .fold((0, 0), |(runs, swaps), command| (runs + command.0, swaps + command.1));
        format!("races: {runs} commands, {swaps} swaps, {} violations", self.violations.len())
    }
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// Without a race: what an attacker can put in the way once and for all.
#[test]
fn what_an_owner_plants_beside_a_home_leads_root_nowhere() {
    let what = "files planted for root";
    if !can_race(what) {
        return;
    }
    let _alone = crate::alone();
    let (mut tally, mut stage) = (Tally::default(), Stage::new());
    for (number, command) in COMMANDS.iter().enumerate() {
        let names = names::of(command.subject);
        for (kind, without_subject) in
            [(Kind::RootsTwin, false), (Kind::RootsTwin, true), (Kind::Pipe, false)]
        {
            let plan = |command: &RootsCommand| {
                let path = *names
                    .iter()
                    .find(|name| name.strip_prefix("work/") == Some(command.subject))
                    .unwrap();
                let planted = if without_subject { vec![(path, Kind::Absent)] } else { Vec::new() };
                Plan {
                    free: Some((kind, names.clone())),
                    planted,
                    swapped: Vec::new(),
                    by_steps: false,
                    at: None,
                    seed: 0,
                }
            };
            if !tally.race(&stage, number, plan, false) {
                stage = Stage::new();
            }
        }
    }
    println!("{}", tally.line());
    assert!(tally.violations.is_empty(), "{}", tally.violations.join("\n"));
}

/// Whoever owns the link decides where the tier is made, and the file that it leads to is
/// another's.
#[test]
fn a_tier_behind_a_link_of_an_owner_is_made_in_no_directory_of_roots() {
    let what = "tiers behind a link";
    if !can_race(what) {
        return;
    }
    let _alone = crate::alone();
    let (mut tally, mut stage) = (Tally::default(), Stage::new());
    for number in (0..COMMANDS.len()).filter(|number| COMMANDS[*number].name.starts_with("attach "))
    {
        for kind in [Kind::RootsDirectory, Kind::RootsTwin] {
            let planted = vec![("fast", kind)];
            let plan = Plan {
                free: None,
                planted,
                swapped: Vec::new(),
                by_steps: false,
                at: None,
                seed: 0,
            };
            if !tally.race(&stage, number, |_| plan.clone(), true) {
                stage = Stage::new();
            }
        }
    }
    println!("{}", tally.line());
    assert!(tally.violations.is_empty(), "{}", tally.violations.join("\n"));
}

/// The way to the home leads elsewhere for a moment: to another mount point of its name, for one.
#[test]
fn attach_mounts_nowhere_else_when_the_way_there_changes_at_its_last_step() {
    let what = "an attach whose way is changed";
    if !can_race(what) {
        return;
    }
    let _alone = crate::alone();
    let (mut tally, mut stage) = (Tally::default(), Stage::new());
    let mut seed = 0;
    for number in
        (0..COMMANDS.len()).filter(|number| COMMANDS[*number].name.starts_with("attach db"))
    {
        for at in ["db.tiersmith-log"; 16] {
            seed += 1;
            let swapped = vec![("work", Kind::RootsTwin)];
            let plan = Plan {
                free: None,
                planted: Vec::new(),
                swapped,
                by_steps: true,
                at: Some(at),
                seed,
            };
            if !tally.race(&stage, number, |_| plan.clone(), false) {
                stage = Stage::new();
            }
        }
    }
    println!("{}", tally.line());
    assert!(tally.violations.is_empty(), "{}", tally.violations.join("\n"));
}

/// SQLite opens what is beside a database by its path. A pipe that comes and goes is not seen by a
/// look before that, and to open one waits.
#[test]
fn no_command_waits_for_a_pipe_that_comes_and_goes_beside_a_database() {
    let what = "pipes beside a database";
    if !can_race(what) {
        return;
    }
    let _alone = crate::alone();
    let (mut tally, mut stage) = (Tally::default(), Stage::new());
    let opens = |command: &RootsCommand| command.subject == "app.db" && !command.looks_only;
    let opening = (0..COMMANDS.len()).filter(|number| opens(&COMMANDS[*number]));
    for name in ["work/app.db-journal", "work/app.db-tiersmith/db-journal"] {
        for number in opening.clone() {
            for seed in 0..8 {
                let (swapped, planted) = (vec![(name, Kind::Pipe)], Vec::new());
                let plan = Plan { free: None, planted, swapped, by_steps: false, at: None, seed };
                if !tally.race(&stage, number, |_| plan.clone(), false) {
                    stage = Stage::new();
                }
            }
        }
    }
    println!("{}", tally.line());
    assert!(tally.violations.is_empty(), "{}", tally.violations.join("\n"));
}

#[test]
fn nothing_of_roots_is_changed_read_or_given_away_while_names_are_exchanged() {
    let what = "races for root";
    if !can_race(what) {
        return;
    }
    let _alone = crate::alone();
    let seconds = number_of("TIERSMITH_RACES_SECONDS");
    let first = number_of("TIERSMITH_SEED").unwrap_or(1);
    let (mut tally, mut stage) = (Tally::default(), Stage::new());
    let secret = stage.path.join("roots/secret");
    let second_names = may_link(&secret, &stage.path.join("user/decoys/link"));
    println!(
        "second names of root's files: {}",
        if second_names {
            "the kernel lets the attacker make them"
        } else {
            "refused by the kernel (fs.protected_hardlinks)"
        }
    );
    let began = Instant::now();
    let time = Duration::from_secs(seconds.unwrap_or(SHORT_S));
    for seed in first.. {
        if began.elapsed() > time || tally.violations.len() > VIOLATIONS_MAX {
            break;
        }
        let number = (seed % COMMANDS.len() as u64) as usize;
        let plan = |command: &RootsCommand| {
            let loot = stage.path.join("user/decoys/loot").exists();
            Plan::draw(seed, &names::of(command.subject), second_names, loot)
        };
        if !tally.race(&stage, number, plan, seed / COMMANDS.len() as u64 % 2 == 1) {
            println!("seed {seed}");
            stage = Stage::new();
        }
    }
    for (command, (runs, swaps)) in COMMANDS.iter().zip(tally.commands) {
        let few = if seconds.is_some() && swaps < SWAPS_WANTED {
            ", which is few: run for longer"
        } else {
            ""
        };
        println!("{}: {runs} times, {swaps} swaps{few}", command.name);
    }
    println!("{}", tally.line());
    assert!(tally.violations.is_empty(), "{}", tally.violations.join("\n"));
}
