//! Names as a door for programs changes them: durable after a sync, so that a cut may take back the
//! last of them. Which sets of names a cut may leave, and what each file then holds.

use super::{Files, Op, Run, pattern};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tiersmith_store::home::{Home, Named};
use tiersmith_store::{AttachedHome, Error, OpenMode, RenameFlags};

/// What a program does to names. Nothing is synced but by the last three.
#[derive(Clone, Debug)]
pub(crate) enum Names {
    /// A file is made and opened.
    Make {
        name: &'static str,
    },
    /// A write without a sync: durable on return, if the file is.
    Write {
        name: &'static str,
        at: u64,
        len: usize,
    },
    Move {
        from: &'static str,
        to: &'static str,
    },
    Remove {
        name: &'static str,
    },
    SyncFile {
        name: &'static str,
    },
    SyncDir {
        name: &'static str,
    },
    /// What the background does after a second.
    Settle,
}

/// As programs use a mount: nothing is synced but what they sync.
pub(crate) fn names_of_programs() -> Vec<Op> {
    let make = |name| Op::Names(Names::Make { name });
    let write = |name, at, len| Op::Names(Names::Write { name, at, len });
    let remove = |name| Op::Names(Names::Remove { name });
    let rename = |from, to| Op::Names(Names::Move { from, to });
    vec![
        make("n.db"),
        write("n.db", 0, 9000),
        // Its frames would be taken by the next writes.
        remove("a.db"),
        make("o.db"),
        write("o.db", 0, 8192),
        write("n.db", 4096, 4096),
        Op::Names(Names::SyncFile { name: "n.db" }),
        write("n.db", 0, 4096),
        make("r.redo"),
        write("r.redo", 0, 700),
        rename("n.db", "m.db"),
        write("m.db", 0, 100),
        Op::Names(Names::SyncDir { name: "m.db" }),
        remove("o.db"),
        make("o.db"),
        write("o.db", 0, 4096),
        rename("o.db", "b.db"),
        Op::Destage { name: "b.db" },
        Op::Names(Names::SyncFile { name: "b.db" }),
        remove("r.redo"),
        make("p.db"),
        write("p.db", 0, 30_000),
        rename("p.db", "m.db"),
        Op::Names(Names::Settle),
        write("m.db", 0, 4096),
        make("q.db"),
        Op::Reopen,
        write("q.db", 0, 8192),
        Op::Names(Names::SyncFile { name: "q.db" }),
        remove("q.db"),
        Op::Detach,
    ]
}

pub(super) fn execute(home: &AttachedHome, n: usize, op: &Names) -> tiersmith_store::Result<()> {
    let at_home: &Arc<dyn Home> = home.home();
    match op {
        Names::Make { name } => {
            let made = at_home.open(Path::new(name), OpenMode::CREATE_NEW);
            made.map_err(|e| Error::Options(format!("cannot make {name}: {e}")))?;
            home.open_made(name, OpenMode::WRITE).map(drop)
        }
        Names::Write { name, at, len } => {
            home.open(name, OpenMode::WRITE)?.write(*at, &pattern(n, *at, *len))
        }
        Names::Move { from, to } => {
            let (from, to) = (Path::new(from), Path::new(to));
            home.rename_by(Named::by_path(from), Named::by_path(to), RenameFlags::None, || {
                at_home.rename(from, to)
            })
        }
        Names::Remove { name } => home.unlink_named(Named::by_path(Path::new(name))),
        Names::SyncFile { name } => home.open(name, OpenMode::WRITE)?.sync(),
        Names::SyncDir { name } => home.sync_dir(name),
        Names::Settle => home.settle_names(),
    }
}

/// The operation as the model has it.
pub(super) fn same_as(op: &Names) -> Option<Op> {
    match *op {
        Names::Make { name } => Some(Op::Create { name }),
        Names::Write { name, at, len } => Some(Op::Write { name, at, len }),
        Names::Move { from, to } => Some(Op::Rename { from, to }),
        Names::Remove { name } => Some(Op::Unlink { name }),
        Names::SyncFile { .. } | Names::SyncDir { .. } | Names::Settle => None,
    }
}

/// Whether all names are durable after the operation.
fn settles_all(op: &Op) -> bool {
    matches!(
        op,
        Op::Create { .. }
            | Op::Rename { .. }
            | Op::Exchange { .. }
            | Op::Link { .. }
            | Op::Unlink { .. }
            | Op::Detach
            | Op::Names(Names::SyncDir { .. })
    )
}

/// The file whose names are durable after the operation.
fn settles(op: &Op) -> Option<&'static str> {
    match op {
        Op::Write { name, .. }
        | Op::Truncate { name, .. }
        | Op::Names(Names::SyncFile { name }) => Some(name),
        _ => None,
    }
}

/// The names of the file that is called `name` in `now`, as they are in `then`.
fn called(then: &Files, now: &Files, name: &str) -> Vec<&'static str> {
    let id = now.names.get(name);
    then.names.iter().filter(|(_, of)| Some(*of) == id).map(|(name, _)| *name).collect()
}

impl Run {
    fn state(&self, step: usize) -> &Files {
        if step == 0 { &self.start } else { &self.steps[step - 1].after }
    }

    /// What a cut may leave when so many operations are acknowledged: for each set of names the
    /// files before the operation in flight, and after it. The newest names come first.
    pub(super) fn may_be(&self, acked: usize) -> Vec<(Files, Files)> {
        let top = (acked + 1).min(self.steps.len());
        let mut sets: Vec<(Files, Files)> = Vec::new();
        let mut settled: Vec<(usize, &'static str)> = Vec::new();
        let mut step = top;
        loop {
            let then = self.state(step);
            let kept = settled.iter().all(|(at, name)| {
                let now = self.state(*at);
                called(then, now, name) == called(now, now, name)
            });
            if kept && !sets.iter().any(|(set, _)| set.names == then.names) {
                sets.push((self.with_names(then, step, acked), self.with_names(then, step, top)));
            }
            // What is in flight has made nothing durable yet.
            if step <= acked && step > 0 {
                let op = &self.steps[step - 1].op;
                if settles_all(op) {
                    break;
                }
                settled.extend(settles(op).map(|name| (step, name)));
            }
            if step == 0 {
                break;
            }
            step -= 1;
        }
        sets
    }

    /// These names, which the step `from` left, with what the files held after the step `to`, or
    /// when they last had a name.
    fn with_names(&self, names: &Files, from: usize, to: usize) -> Files {
        let newest = |id: &usize| {
            let steps = (from.min(to)..=to.max(from)).rev();
            let of = |step: usize| {
                (step <= to).then(|| self.state(step).bytes.get(id).cloned()).flatten()
            };
            let made = || self.state(from).bytes.get(id).cloned();
            (*id, steps.into_iter().find_map(of).or_else(made).expect("named files have bytes"))
        };
        let bytes: BTreeMap<_, _> = names.names.values().map(newest).collect();
        Files { names: names.names.clone(), bytes }
    }
}
