//! Two threads in one recording: at one of its accesses to the medium the first lets the second run
//! its whole program, and then goes on. So a lane, a map page or a file that the first has changed,
//! and not fenced yet, comes into the hands of the second, whose fence is not for it.
//!
//! Each block belongs to the one thread that writes it; what the threads share is everything else.
//! Operations change the contents of blocks only by writing within them. A thread that meets a lock
//! of the other waits for it, and the first then goes on after a while. What the second reads are
//! the blocks that the first writes.

use super::{
    Files, Op, Shape, accounts, apply, block_size, class, count, execute_on, explore_new,
    offline_check, pattern, read_all, same,
};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tiersmith_pmem::sim::Event;
use tiersmith_store::crash::{Budget, CutState, Recorder, Recording, Report};
use tiersmith_store::{AttachedHome, FileClass, OpenMode, Planted};

/// How long the first thread waits for the second before it takes it for waiting itself.
const PATIENCE: Duration = Duration::from_millis(60);
/// Operations of the second thread are numbered from here, so that they write other bytes.
const SECOND: usize = 500;

/// What one thread has done, and the contents after each of its operations as they would be without
/// the other thread.
struct Program {
    states: Vec<Files>,
    /// File and block.
    owns: BTreeSet<(&'static str, u64)>,
    /// The marks of its operations.
    numbers: Range<u64>,
    /// Where in the trace its operations were acknowledged.
    acked: Vec<usize>,
}

/// A recording of two threads.
pub(crate) struct Pair {
    shape: Shape,
    recording: Recording,
    programs: [Program; 2],
}

impl Pair {
    /// Runs `first`; before its access number `at` to the medium `second` runs beside it. `None`:
    /// it has no such access.
    pub(crate) fn record(
        shape: Shape,
        files: &[(&'static str, usize)],
        [first, second]: [&[Op]; 2],
        at: usize,
        planted: Planted,
    ) -> Option<Self> {
        let recorder = Recorder::new();
        let mut start = Files::default();
        for (id, (name, len)) in files.iter().enumerate() {
            let bytes = pattern(1000 + id, 0, *len);
            recorder.home().put(Path::new(name), &bytes).expect("the home has room");
            start.names.insert(name, id);
            start.bytes.insert(id, Arc::new(bytes));
        }
        let members = shape.blank(recorder.simulator());
        let home = shape
            .attach_lending(recorder.home(), recorder.lent(), members, planted)
            .expect("a first attach works");
        recorder.rebase();
        let wanted =
            [(first, 0), (second, SECOND)].map(|(ops, from)| Program::new(&start, ops, from));
        let met = thread::scope(|scope| {
            let ((go, told), (done, ended)) = (channel(), channel());
            let (recorder, beside, [wrote, _]) = (&recorder, home.clone(), &wanted);
            scope.spawn(move || {
                if told.recv().is_ok() {
                    run(recorder, &beside, second, SECOND, Some(wrote));
                }
                let _ = done.send(());
            });
            let (itself, accesses) = (thread::current().id(), AtomicUsize::new(0));
            let hand = Mutex::new(Some((go, ended)));
            let hand_over = Arc::new(hand);
            let over = hand_over.clone();
            recorder.simulator().set_hook(Some(Arc::new(move || {
                if thread::current().id() == itself
                    && accesses.fetch_add(1, Ordering::Relaxed) == at
                {
                    let (go, ended) =
                        over.lock().expect("nobody panics with it").take().expect("once");
                    go.send(()).expect("the second thread waits for it");
                    let _ = ended.recv_timeout(PATIENCE);
                }
            })));
            run(recorder, &home, first, 0, None);
            recorder.simulator().set_hook(None);
            hand_over.lock().expect("nobody panics with it").take().is_none()
        });
        drop(home);
        let recording = recorder.recording();
        let programs = wanted.map(|program| program.acknowledged_in(&recording));
        met.then_some(Self { shape, recording, programs })
    }

    /// Cuts the run everywhere and checks what is found.
    pub(crate) fn explore(&self, images_per_cut: usize, seed: u64, planted: Planted) -> Report {
        let budget = Budget { images_per_cut, seed, stop_after: 1, ..Budget::default() };
        let report = explore_new(&self.recording, &budget, |found| self.check(found, planted));
        count(&report);
        report
    }

    fn check(&self, found: CutState<'_>, planted: Planted) -> Result<(), String> {
        let members = self.shape.found(found.tiers);
        let (home, lent) = (Arc::new(found.home), Arc::new(found.lent));
        let attached = self
            .shape
            .attach_lending(home.clone(), lent, members.clone(), planted)
            .map_err(|e| format!("attach after the cut: {e}"))?;
        let seen = read_all(&attached, &home)?;
        for (n, program) in self.programs.iter().enumerate() {
            let acked = program.acked.iter().filter(|at| **at < found.position).count();
            let before = &program.states[acked];
            let after = program.states.get(acked + 1).unwrap_or(before);
            for (name, block) in &program.owns {
                let piece = |bytes: &[u8]| block_of(bytes, name, *block);
                let bytes = piece(seen.get(name).ok_or_else(|| format!("{name} is gone"))?);
                let old = piece(before.get(name).expect("no operation removes a file"));
                let new = piece(after.get(name).expect("no operation removes a file"));
                if bytes == old || bytes == new {
                    continue;
                }
                let step = if class(name) == FileClass::Data { bytes.len() } else { 8 };
                let words = bytes.chunks(step).zip(old.chunks(step).zip(new.chunks(step)));
                if words.into_iter().any(|(found, (old, new))| found != old && found != new) {
                    return Err(format!(
                        "block {block} of {name}, which thread {n} wrote, is neither as after \
                         {acked} operations nor as after the next"
                    ));
                }
            }
        }
        accounts(&attached)?;
        for tier in members.chunks(self.shape.members) {
            offline_check(tier, &home)?;
        }
        attached.evict(None, u64::MAX).map_err(|e| format!("evict: {e}"))?;
        same(&seen, &read_all(&attached, &home)?, "after the clean copies were dropped")
    }
}

/// One block of a file, with zeros past the end.
fn block_of(bytes: &[u8], name: &str, block: u64) -> Vec<u8> {
    let size = block_size(name);
    let there = bytes.get(block as usize * size..).unwrap_or_default();
    let mut found = there[..there.len().min(size)].to_vec();
    found.resize(size, 0);
    found
}

/// `beside`: what the other thread does, for whoever reads.
fn run(
    recorder: &Recorder,
    home: &AttachedHome,
    ops: &[Op],
    from: usize,
    beside: Option<&Program>,
) {
    for (n, op) in ops.iter().enumerate() {
        match (op, beside) {
            (Op::Read { name }, Some(other)) => other.look(recorder, home, name),
            _ => execute_on(home, from + n, op).unwrap_or_else(|e| panic!("{op:?}: {e}")),
        }
        recorder.simulator().mark((from + n) as u64);
    }
}

impl Program {
    fn new(start: &Files, ops: &[Op], from: usize) -> Self {
        let mut states = vec![start.clone()];
        let mut owns = BTreeSet::new();
        for (n, op) in ops.iter().enumerate() {
            let before = states.last().expect("there is a first");
            states.push(apply(before, from + n, op).0);
            if let Op::Write { name, at, len } = op {
                let size = block_size(name) as u64;
                owns.extend(
                    (at / size..(at + *len as u64).div_ceil(size)).map(|block| (*name, block)),
                );
            }
        }
        Self { states, owns, numbers: from as u64..(from + ops.len()) as u64, acked: Vec::new() }
    }

    fn acknowledged_in(mut self, recording: &Recording) -> Self {
        let ours = |event: &Event| matches!(event, Event::Mark(tag) if self.numbers.contains(tag));
        let marks = recording.media.events().enumerate().filter(|(_, event)| ours(event));
        self.acked = marks.map(|(at, _)| at).collect();
        self
    }

    /// Reads the blocks that this program writes, from another thread: each is whole, and at least
    /// as new as what was acknowledged before.
    fn look(&self, recorder: &Recorder, home: &AttachedHome, name: &str) {
        let acked = || {
            let trace = recorder.simulator().trace();
            let ours =
                |event: &&Event| matches!(event, Event::Mark(tag) if self.numbers.contains(tag));
            trace.events().filter(ours).count()
        };
        let file = home.open(name, OpenMode::WRITE).expect("it is there");
        for (_, block) in self.owns.iter().filter(|(of, _)| *of == name) {
            let size = block_size(name);
            let before = acked();
            let mut found = vec![0; size];
            file.read(block * size as u64, &mut found).expect("it can be read");
            let borrowed = file.read_ref(block * size as u64).map(|bytes| bytes.to_vec());
            let after = (acked() + 1).min(self.states.len() - 1);
            for found in [Some(found), borrowed].into_iter().flatten() {
                let is = |state: &Files| {
                    let bytes = state.get(name).expect("no operation removes a file");
                    block_of(bytes, name, *block)[..found.len()] == found[..]
                };
                let known = self.states[before..=after].iter().any(is);
                assert!(known, "block {block} of {name} is none of what was written");
            }
        }
    }
}
