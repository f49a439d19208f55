//! What the crash tests share: scripts of operations, a plain model of what they promise, and the
//! check of what is found after a cut.
//!
//! A script runs once on simulated media and a simulated home. The model keeps the contents of
//! every file after each acknowledged operation. At every cut the state found must be that of the
//! acknowledged operations, or one that the operation in flight may leave: per block for a write,
//! per 8-byte word for a redo write, whole for everything else.

mod again;
mod apply;
mod beside;
mod mixture;
mod names;
mod plain;
mod script;
mod shape;

use apply::{apply, through};
use mixture::{difference, mixture};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use tiersmith_store::check::{AnyHome, check_images_apart};
use tiersmith_store::crash::{
    Budget, CutState, Recorder, Recording, Report, Tried, explore_untried,
};
use tiersmith_store::home::sim::{Door, SimOptions};
use tiersmith_store::home::{Home, SimHome};
use tiersmith_store::{
    AttachedHome, Error, File, FileClass, FileTime, OpenMode, Planted, RenameFlags, SetTime,
    testing,
};

#[allow(unused_imports, reason = "each test binary uses its part")]
pub(crate) use {
    again::{explore_after_kill, explore_recovery},
    beside::Pair,
    names::{Names, names_of_programs},
    plain::explore_plain,
    script::{script, write},
    shape::{Media, Shape, Tiers, UNIT},
};

/// One step of a script. Offsets and lengths are bytes; `fill` makes contents that differ by
/// operation and place.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Create {
        name: &'static str,
    },
    Write {
        name: &'static str,
        at: u64,
        len: usize,
    },
    Batch {
        name: &'static str,
        blocks: Vec<u64>,
    },
    Truncate {
        name: &'static str,
        size: u64,
    },
    Rename {
        from: &'static str,
        to: &'static str,
    },
    /// The two names change places.
    Exchange {
        from: &'static str,
        to: &'static str,
    },
    Punch {
        name: &'static str,
        at: u64,
        len: u64,
    },
    /// Zeros, which make the file as long as the range.
    Zero {
        name: &'static str,
        at: u64,
        len: u64,
    },
    /// Reserves space at home; the size stays.
    Allocate {
        name: &'static str,
        len: u64,
    },
    SetTime {
        name: &'static str,
    },
    Unlink {
        name: &'static str,
    },
    Link {
        from: &'static str,
        to: &'static str,
    },
    /// Reads the whole file, which admits its home blocks.
    Read {
        name: &'static str,
    },
    Destage {
        name: &'static str,
    },
    Evict,
    Pin {
        name: &'static str,
    },
    Unpin {
        name: &'static str,
    },
    Background,
    /// Everything goes home.
    Flush,
    /// The file becomes lent, and stays it.
    Lend {
        name: &'static str,
    },
    /// The kernel writes to a lent file.
    KernelWrite {
        name: &'static str,
        at: u64,
        len: usize,
    },
    GiveBack {
        name: &'static str,
    },
    Grow,
    /// The file stays open from here on, also when its name is removed or goes to another file.
    Hold {
        name: &'static str,
    },
    /// A write to a file that is held and has no name any more: nobody else sees it.
    WriteRemoved {
        held: &'static str,
        at: u64,
        len: usize,
    },
    /// The held file is closed.
    LetGo {
        held: &'static str,
    },
    /// As a door for programs does it.
    Names(Names),
    /// Somebody sets the clock back by an hour.
    ClockBack,
    /// Home fails when it is synced, so that the destaging is not done.
    DestageFails {
        name: &'static str,
    },
    /// Quiet close and a new attach.
    Reopen,
    Detach,
    Attach,
}

/// What a file is to the model: an id that follows it through renames, and its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Files {
    names: BTreeMap<&'static str, usize>,
    bytes: BTreeMap<usize, Arc<Vec<u8>>>,
}

impl Files {
    fn id(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Vec<u8>>> {
        self.bytes.get(self.names.get(name)?)
    }

    fn forget_unnamed(&mut self) {
        let names = self.names.clone();
        self.bytes.retain(|id, _| names.values().any(|n| n == id));
    }
}

/// What an operation in flight may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grain {
    /// The state before or after.
    Whole,
    /// Each block of the file before or after; the size too, and with the new size every block.
    Block(usize),
    /// Each 8-byte word before or after.
    Word,
    /// Each block or word before or after, and then the size.
    Ranged(usize),
}

/// A step as it went: the state after it and what a cut during it may leave.
struct Step {
    after: Files,
    grain: Grain,
    op: Op,
}

/// Files that a script keeps open, by the names they were opened with.
type Held = BTreeMap<&'static str, File>;

/// A script that has run.
pub(crate) struct Run {
    pub shape: Shape,
    start: Files,
    steps: Vec<Step>,
    /// What a cut may leave when so many operations are acknowledged, made when it is first asked
    /// for.
    allowed: Vec<OnceLock<Vec<(Files, Files)>>>,
    recorder: Recorder,
}

fn block_size(name: &str) -> usize {
    if name.ends_with(".big") { 8192 } else { 4096 }
}

fn class(name: &str) -> FileClass {
    match Path::new(name).extension().and_then(|e| e.to_str()) {
        Some("redo") => FileClass::Redo,
        Some("db" | "big") => FileClass::Data,
        _ => FileClass::Pass,
    }
}

/// Bytes that tell operation, file offset and word apart.
pub(crate) fn pattern(step: usize, at: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|n| {
            let word = (at + n) / 8;
            let mixed = (word.wrapping_mul(0x9e37_79b9)
                ^ (step as u64 + 1).wrapping_mul(0x85eb_ca6b))
            .wrapping_mul(0xc2b2_ae35);
            ((mixed >> (((at + n) % 8) * 5)) as u8) | 1
        })
        .collect()
}

impl Run {
    /// Runs `ops` on a home with `files` that is attached beforehand (unless the first operation is
    /// `Attach`).
    pub(crate) fn new(
        shape: Shape,
        files: &[(&'static str, usize)],
        ops: &[Op],
        planted: Planted,
    ) -> Self {
        let recorder = Recorder::new();
        let clock_step_ns = shape.change_takes_ms * 1_000_000;
        let sync_takes_ns = shape.sync_takes_ms * 1_000_000;
        recorder.home().set_options(SimOptions {
            clock_step_ns,
            sync_takes_ns,
            ..SimOptions::default()
        });
        let mut start = Files::default();
        for (id, (name, len)) in files.iter().enumerate() {
            let bytes = pattern(1000 + id, 0, *len);
            recorder.home().put(Path::new(name), &bytes).expect("the home has room");
            start.names.insert(name, id);
            start.bytes.insert(id, Arc::new(bytes));
        }
        let members = shape.blank(recorder.simulator());
        let mut attached = None;
        if !matches!(ops.first(), Some(Op::Attach)) {
            attached = Some(
                shape
                    .attach_with(
                        recorder.home(),
                        Some(recorder.lent()),
                        members.clone(),
                        planted,
                        6,
                    )
                    .expect("a first attach works"),
            );
        }
        recorder.rebase();
        let allowed = (0..=ops.len()).map(|_| OnceLock::new()).collect();
        let mut run = Self { shape, start: start.clone(), steps: Vec::new(), allowed, recorder };
        let (mut files, mut held) = (start, Held::new());
        for (n, op) in ops.iter().enumerate() {
            // The step is known before it runs: a cut falls into it.
            let (after, grain) = apply(&files, n, op);
            let grain = match (shape.tiers, grain) {
                (Tiers::Volatile | Tiers::Ephemeral, grain) => through(grain),
                // What is in place is left to the sync, and the size is not.
                (Tiers::OnSectors | Tiers::OnFlash, Grain::Ranged(8)) => Grain::Word,
                (_, grain) => grain,
            };
            run.steps.push(Step { after: after.clone(), grain, op: op.clone() });
            run.execute(n, op, &mut attached, &mut held, &members, planted);
            files = after;
            run.recorder.acked();
        }
        drop((held, attached));
        run
    }

    fn execute(
        &self,
        n: usize,
        op: &Op,
        attached: &mut Option<AttachedHome>,
        held: &mut Held,
        members: &[Media],
        planted: Planted,
    ) {
        // Mappings of the same bytes: claims and views of the last attach are gone, as after a
        // restart.
        let again = || {
            let (home, lent) = (self.recorder.home(), self.recorder.lent());
            let seed = 8 + n as u64;
            self.shape
                .attach_with(home, Some(lent), members.to_vec(), planted, seed)
                .expect("attach works")
        };
        match op {
            Op::Attach => {
                *attached = Some(again());
                return;
            }
            Op::Reopen => {
                *attached = None;
                forget_claims(members);
                *attached = Some(again());
                return;
            }
            Op::Detach => {
                attached.take().expect("attached").detach().expect("detach works");
                forget_claims(members);
                return;
            }
            _ => {}
        }
        let home = attached.as_ref().expect("attached");
        match op {
            Op::Hold { name } => {
                held.insert(name, home.open(name, OpenMode::WRITE).expect("the file is there"));
            }
            Op::WriteRemoved { held: name, at, len } => {
                let file = &held[name];
                file.write(*at, &pattern(n, *at, *len))
                    .expect("a removed file is written as any other");
                file.sync().expect("a removed file is synced as any other");
            }
            Op::LetGo { held: name } => drop(held.remove(name)),
            Op::DestageFails { name } => {
                self.recorder.home().fail_nth_sync(1);
                expect_err(home.destage(Some(Path::new(name))));
            }
            Op::ClockBack => self.recorder.home().set_clock_back(3_600_000_000_000),
            _ => {}
        }
        execute_on(home, n, op).unwrap_or_else(|e| panic!("step {n} {op:?}: {e}"));
    }

    /// Cuts the run everywhere and checks what is found.
    pub(crate) fn explore(&self, images_per_cut: usize, seed: u64, planted: Planted) -> Report {
        let budget = Budget { images_per_cut, seed, stop_after: 2, ..Budget::default() };
        let report =
            explore_new(&self.recorder.recording(), &budget, |found| self.check(found, planted));
        count(&report);
        report
    }

    pub(crate) fn recording(&self) -> Recording {
        self.recorder.recording()
    }

    /// What is found after a cut.
    pub(crate) fn check(&self, found: CutState<'_>, planted: Planted) -> Result<(), String> {
        let members = self.shape.found(found.tiers);
        self.check_door(&found.home, found.acked)?;
        let (home, lent) = (Arc::new(found.home), Arc::new(found.lent));
        self.check_opened(&home, &lent, members, found.acked, found.thorough, planted)
    }

    /// No way in by the back door: a home at its own path is whole without the tier, and one that
    /// was moved aside says by what.
    fn check_door(&self, home: &SimHome, acked: usize) -> Result<(), String> {
        if home.door() == Door::Closed {
            let note = home.read_attachment().map_err(|e| e.to_string())?;
            return note
                .map(drop)
                .ok_or_else(|| "the door is closed, and no note in home says by what".into());
        }
        let before = if acked == 0 { &self.start } else { &self.steps[acked - 1].after };
        for name in before.names.keys() {
            let (found, expected) =
                (home.contents(Path::new(name)).unwrap_or_default(), before.get(name));
            let expected = expected.expect("named files have bytes");
            if found != *expected {
                let how = difference(expected, &found);
                return Err(format!(
                    "the door is {:?}, and home lacks blocks: {name}: {how}",
                    home.door()
                ));
            }
        }
        Ok(())
    }

    /// Attaches to what a cut left and compares with the model.
    pub(crate) fn check_opened(
        &self,
        home: &Arc<SimHome>,
        lent: &Arc<SimHome>,
        members: Vec<Media>,
        acked: usize,
        deep: bool,
        planted: Planted,
    ) -> Result<(), String> {
        let attached = self
            .shape
            .attach_lending(home.clone(), lent.clone(), members.clone(), planted)
            .map_err(|e| format!("attach after the cut: {e}"))?;
        only_lent_files_have_plain_ones(&attached, lent)?;
        let seen = read_all(&attached, home)?;
        self.compare(&seen, acked)?;
        accounts(&attached)?;
        for tier in members.chunks(self.shape.members) {
            offline_check(tier, home)?;
        }
        // Clean blocks equal home: without their copies the same bytes are read.
        attached.evict(None, u64::MAX).map_err(|e| format!("evict: {e}"))?;
        same(&seen, &read_all(&attached, home)?, "after the clean copies were dropped")?;
        accounts(&attached)?;
        if !deep {
            return Ok(());
        }
        // It goes on working, and detaches to a plain directory with the same bytes.
        let mut seen = seen;
        for (name, bytes) in &mut seen {
            if class(name) == FileClass::Pass {
                continue;
            }
            let file =
                attached.open(name, OpenMode::WRITE).map_err(|e| format!("open {name}: {e}"))?;
            let new = pattern(2000, 0, 600);
            // Twice: then a lane has laid out the piece of the block that the first replaced.
            for _ in 0..2 {
                file.write(8, &new).map_err(|e| format!("write to {name} after recovery: {e}"))?;
            }
            let whole = Arc::make_mut(bytes);
            whole.resize(whole.len().max(608), 0);
            whole[8..608].copy_from_slice(&new);
        }
        same(&seen, &read_all(&attached, home)?, "after writing on")?;
        // With pieces that lanes have laid out and ready.
        accounts(&attached)?;
        attached.detach().map_err(|e| format!("detach: {e}"))?;
        if !lent.paths().is_empty() {
            return Err(format!("after detach there are plain files: {:?}", lent.paths()));
        }
        for (name, bytes) in &seen {
            let plain = home.contents(Path::new(name)).unwrap_or_default();
            if *plain != **bytes {
                return Err(format!("{name} after detach: {}", difference(bytes, &plain)));
            }
        }
        Ok(())
    }

    fn compare(&self, seen: &Seen, acked: usize) -> Result<(), String> {
        let sets = self.allowed[acked].get_or_init(|| self.may_be(acked));
        let mut why = Vec::new();
        for (before, after) in sets {
            match self.compare_with(seen, before, after, self.steps.get(acked)) {
                Ok(()) => return Ok(()),
                Err(e) => why.push(e),
            }
        }
        Err(why.swap_remove(0))
    }

    fn compare_with(
        &self,
        seen: &Seen,
        before: &Files,
        after: &Files,
        in_flight: Option<&Step>,
    ) -> Result<(), String> {
        let old = matches(seen, before);
        let Err(why_not_old) = old else { return Ok(()) };
        let Some(step) = in_flight else {
            return Err(format!("nothing in flight, and {why_not_old}"));
        };
        let Err(why_not_new) = matches(seen, after) else { return Ok(()) };
        let grain = match step.grain {
            Grain::Whole => {
                return Err(format!(
                    "{:?}: neither before ({why_not_old}) nor after ({why_not_new})",
                    step.op
                ));
            }
            grain => grain,
        };
        if seen.keys().ne(before.names.keys()) {
            return Err(format!("{:?}: the names are {:?}", step.op, seen.keys()));
        }
        for (name, found) in seen {
            let (a, b) = (before.get(name).expect("named"), after.get(name).expect("named"));
            mixture(found, a, b, grain)
                .map_err(|e| format!("{:?} in flight: {name}: {e}", step.op))?;
        }
        Ok(())
    }
}

/// Tries no image twice, since what the check says depends on nothing else.
pub(crate) fn explore_new(
    recording: &Recording,
    budget: &Budget,
    check: impl Fn(CutState<'_>) -> Result<(), String> + Sync,
) -> Report {
    explore_untried(recording, budget, (&Tried::default(), 0), check)
}

fn accounts(attached: &AttachedHome) -> Result<(), String> {
    let (free, used, total) = testing::accounting(attached);
    if free + used == total {
        return Ok(());
    }
    Err(format!("frames do not add up: {free} free + {used} in use, of {total}"))
}

/// Runs one operation that needs no attaching.
pub(crate) fn execute_on(home: &AttachedHome, n: usize, op: &Op) -> tiersmith_store::Result<()> {
    match op {
        Op::Create { name } => {
            // The names of others are durable before the tier knows the file. Redo is not in a
            // volatile tier, and goes straight home.
            if home.create(name)?.class() == FileClass::Pass {
                home.sync_dir(name)?;
            }
        }
        Op::Write { name, at, len } => {
            then_sync(home, name, |file| file.write(*at, &pattern(n, *at, *len)))?;
        }
        Op::Batch { name, blocks } => write_batch(home, n, name, blocks)?,
        Op::Truncate { name, size } => then_sync(home, name, |file| file.truncate(*size))?,
        Op::Rename { from, to } => {
            home.rename(from, to)?;
            home.sync_dir(to)?;
        }
        Op::Exchange { from, to } => {
            home.rename_with(from, to, RenameFlags::Exchange)?;
            home.sync_dir(to)?;
        }
        Op::Punch { name, at, len } => then_sync(home, name, |file| file.punch(*at, *len))?,
        Op::Zero { name, at, len } => {
            then_sync(home, name, |file| file.zero(*at, *len, false))?;
        }
        Op::Allocate { name, len } => home.open(name, OpenMode::WRITE)?.allocate(0, *len, true)?,
        Op::SetTime { name } => {
            let time = FileTime { sec: 1_234_567_890 + n as i64, nsec: 5 };
            home.open(name, OpenMode::WRITE)?.set_times(SetTime::Keep, SetTime::At(time))?;
        }
        Op::Link { from, to } => {
            home.link(from, to)?;
            home.sync_dir(to)?;
        }
        Op::Unlink { name } => {
            home.unlink(name)?;
            home.sync_dir(name)?;
        }
        Op::Read { name } => read_all_of(home, name)?,
        Op::Destage { name } => {
            home.destage(Some(Path::new(name)))?;
        }
        Op::Evict => {
            home.evict(None, u64::MAX)?;
        }
        Op::Pin { name } => home.pin(name)?,
        Op::Unpin { name } => home.unpin(name)?,
        Op::Background => home.background_step()?,
        Op::Flush => {
            home.flush_all()?;
        }
        Op::Hold { .. }
        | Op::WriteRemoved { .. }
        | Op::LetGo { .. }
        | Op::ClockBack
        | Op::DestageFails { .. } => {}
        Op::Names(op) => names::execute(home, n, op)?,
        Op::Lend { name } => lend(home, name)?,
        Op::KernelWrite { name, at, len } => {
            let lent = home.open(name, OpenMode::WRITE)?.lend()?.expect("it can be lent");
            testing::kernel_write(&lent, *at, &pattern(n, *at, *len)).expect("the medium has room");
        }
        Op::GiveBack { name } => assert!(home.give_back(name)?, "nobody has it"),
        Op::Grow => {
            home.grow("fast")?;
        }
        Op::Attach | Op::Reopen | Op::Detach => unreachable!("handled by the run"),
    }
    Ok(())
}

fn lend(home: &AttachedHome, name: &str) -> tiersmith_store::Result<()> {
    let file = home.open(name, OpenMode::WRITE)?;
    assert!(file.lend()?.is_some(), "{name} is not lent: {:?}", home.stats().lending.refused);
    Ok(())
}

fn then_sync(
    home: &AttachedHome,
    name: &str,
    change: impl FnOnce(&File) -> tiersmith_store::Result<()>,
) -> tiersmith_store::Result<()> {
    let file = home.open(name, OpenMode::WRITE)?;
    change(&file)?;
    file.sync()
}

fn write_batch(
    home: &AttachedHome,
    n: usize,
    name: &str,
    blocks: &[u64],
) -> tiersmith_store::Result<()> {
    let file = home.open(name, OpenMode::WRITE)?;
    let size = block_size(name);
    let data: Vec<(u64, Vec<u8>)> =
        blocks.iter().map(|b| (b * size as u64, pattern(n, b * size as u64, size))).collect();
    let refs: Vec<(u64, &[u8])> = data.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
    file.write_batch(&refs)?;
    file.sync()
}

fn read_all_of(home: &AttachedHome, name: &str) -> tiersmith_store::Result<()> {
    let file = home.open(name, OpenMode::WRITE)?;
    let mut bytes = vec![0; block_size(name)];
    let mut at = 0;
    while file.read(at, &mut bytes)? > 0 {
        at += bytes.len() as u64;
    }
    Ok(())
}

/// What a look through the store shows: names and bytes.
pub(crate) type Seen = BTreeMap<&'static str, Arc<Vec<u8>>>;

static NAMES: LazyLock<std::sync::Mutex<BTreeMap<String, &'static str>>> =
    LazyLock::new(Default::default);

fn intern(name: &str) -> &'static str {
    let mut names = NAMES.lock().expect("nobody panics with it");
    names.entry(name.to_string()).or_insert_with(|| Box::leak(name.to_string().into_boxed_str()))
}

pub(crate) fn read_all(attached: &AttachedHome, home: &SimHome) -> Result<Seen, String> {
    let mut seen = Seen::new();
    for path in home.paths() {
        let name = intern(&path.to_string_lossy());
        if tiersmith_store::home::is_reserved(&path) {
            continue;
        }
        let file =
            attached.open(&*path, OpenMode::WRITE).map_err(|e| format!("open {name}: {e}"))?;
        let size = file.len().map_err(|e| format!("size of {name}: {e}"))?;
        if attached.stat(&*path).map_err(|e| e.to_string())?.size != size {
            return Err(format!("{name}: stat and handle disagree on the size"));
        }
        let mut bytes = vec![0xee; size as usize + 10];
        let got = file.read(0, &mut bytes).map_err(|e| format!("read {name}: {e}"))?;
        if got as u64 != size {
            return Err(format!("{name}: read {got} of {size} bytes"));
        }
        bytes.truncate(got);
        seen.insert(name, Arc::new(bytes));
    }
    Ok(seen)
}

fn matches(seen: &Seen, files: &Files) -> Result<(), String> {
    if seen.keys().ne(files.names.keys()) {
        return Err(format!("names {:?}, expected {:?}", seen.keys(), files.names.keys()));
    }
    for (name, found) in seen {
        let expected = files.get(name).expect("named");
        if expected != found {
            return Err(format!("{name}: {}", difference(expected, found)));
        }
    }
    Ok(())
}

fn same(a: &Seen, b: &Seen, when: &str) -> Result<(), String> {
    for (name, bytes) in a {
        match b.get(name) {
            Some(other) if other == bytes => {}
            Some(other) => return Err(format!("{name} {when}: {}", difference(bytes, other))),
            None => return Err(format!("{name} is gone {when}")),
        }
    }
    Ok(())
}

/// What a cut left of lending is gone.
fn only_lent_files_have_plain_ones(attached: &AttachedHome, lent: &SimHome) -> Result<(), String> {
    let files = attached.files().iter().filter(|f| f.lent).count();
    let plains = lent.paths().len();
    if files == plains {
        Ok(())
    } else {
        Err(format!("{files} files are lent, {plains} plain files are there"))
    }
}

/// What the end of a process does.
pub(crate) fn forget_claims(members: &[Media]) {
    let mappings: Vec<_> = members.iter().map(|member| member.mapping.clone()).collect();
    testing::forget_claims(&mappings, UNIT);
}

/// The second reader's opinion of what recovery left.
fn offline_check(members: &[Media], home: &SimHome) -> Result<(), String> {
    thread_local! {
        static SPACE: RefCell<Vec<[Vec<u8>; 2]>> = const { RefCell::new(Vec::new()) };
    }
    let report = SPACE.with_borrow_mut(|space| {
        space.resize_with(members.len().max(space.len()), Default::default);
        let images: Vec<_> =
            members.iter().zip(space).map(|(member, space)| member.images(space)).collect();
        check_images_apart(&images, Some(&AnyHome(home)))
    });
    if report.is_sound() { Ok(()) } else { Err(format!("the offline check found: {report}")) }
}

static TRIED: AtomicU64 = AtomicU64::new(0);
static VIOLATIONS: AtomicU64 = AtomicU64::new(0);

fn count(report: &Report) {
    TRIED.fetch_add(report.images, Ordering::Relaxed);
    VIOLATIONS.fetch_add(report.violations.len() as u64, Ordering::Relaxed);
}

/// The line `./check` adds up.
pub(crate) fn print_count(what: &str, report: &Report) {
    println!("{what}: {report}");
    println!("crash images: {} tried, {} violations", report.images, report.violations.len());
}

/// Fails with the reason when the store says something unexpected.
pub(crate) fn expect_err<T>(result: Result<T, Error>) -> Error {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(e) => e,
    }
}
